"""Puts the mapped tables of one Nsight Systems export together: ranks for processes, names for ids, devices, provenance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load import nsys_meta, nsys_nvtx, nsys_tables
from diagnose.load.conform import RawTable, RawTrace, typed
from diagnose.load.files import refused
from diagnose.load.nsys_meta import environment_of
from diagnose.load.nsys_tables import (
    COPY_NAMES,
    EVENT,
    GRAPH_NAME,
    KERNEL,
    MEMSET_NAME,
    NO_KEY,
    NVTX,
    PLACES,
    RUNTIME,
    STRINGS,
    SYNC,
    Events,
    Source,
)
from diagnose.model.ledger import Ledger
from diagnose.model.trace import NAMES, Provenance, Rank, empty

_IMPORTANT = (KERNEL, RUNTIME, SYNC, EVENT, NVTX, STRINGS, "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME")
# cudaLaunchKernel_v7000, cuMemcpyHtoDAsync_v2, cudaLaunchKernel_ptsz_v7000
_API_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_SLICE = 1 << 19  # rows that are worked on at a time, so that intermediate columns stay small
_NO_TEXT = "<no text>"


class _Names(Struct, frozen=True):
    """Name ids by key, for each name space: `keys` sorted, `ids` and `known` beside them."""

    names: pl.DataFrame
    keys: Mapping[str, pl.Series]
    ids: Mapping[str, pl.Series]
    known: Mapping[str, pl.Series]
    bad_text: int

    def id_of(self, space: str, column: pl.Series) -> pl.Series:
        return self.ids[space].gather(self.keys[space].search_sorted(column))

    def unknown(self, space: str, column: pl.Series) -> int:
        """How many rows have a key without text."""
        if self.known[space].all():
            return 0
        return int((~self.known[space].gather(self.keys[space].search_sorted(column))).sum())


def _text_column(space: str, keys: pl.DataFrame, strings: pl.DataFrame, metrics: Mapping[int, str]) -> pl.DataFrame:
    """Columns key, text, short, known for the distinct keys of one name space."""
    by_id = dict(strings.iter_rows())
    rows = []
    for key, short_key in keys.iter_rows():
        short = by_id.get(short_key) if short_key is not None else None
        if space == "copy":
            found: str | None = f"[CUDA memcpy {COPY_NAMES[key]}]" if key in COPY_NAMES else "[CUDA memcpy]"
        elif space == "metric":
            found = metrics.get(key)
        elif space in ("set", "graph"):
            found = MEMSET_NAME if space == "set" else GRAPH_NAME
        else:
            found = by_id.get(key) or short
        if space == "api" and found is not None:
            found = _API_SUFFIX.sub("", found)
        if space == "text" and key == NO_KEY:
            rows.append((key, _NO_TEXT, None, True))
        else:
            missing = "<unresolved name>" if key == NO_KEY else f"<unresolved name {key}>"
            rows.append((key, found or missing, short, found is not None))
    return pl.DataFrame(rows, schema={"key": pl.Int64, "text": pl.String, "short": pl.String, "known": pl.Boolean}, orient="row")


def _texts(source: Source, ids: pl.Series) -> tuple[pl.DataFrame, int]:
    """What `Source.strings` tells of `ids`; nothing is read for none."""
    return source.strings(ids.unique().sort().to_list()) if len(ids) else (pl.DataFrame(schema={"id": pl.Int64, "text": pl.String}), 0)


def _named(source: Source, tables: Sequence[Events], inline: pl.Series) -> _Names:
    """One list of distinct names for all tables; NVTX texts that stand in their rows come as `inline`."""
    spaces: dict[str, list[pl.DataFrame]] = {}
    for events in tables:
        if events.names:
            spaces.setdefault(events.names, []).append(events.keys)
    keys = {space: pl.concat(found).unique("key", keep="first", maintain_order=True).sort("key") for space, found in spaces.items()}
    threads = nsys_meta.thread_names(source)["key"]
    wanted = pl.concat(
        [
            frame[column].drop_nulls()
            for space, frame in keys.items()
            if space in ("kernel", "api", "text")
            for column in ("key", "short_key")
        ]
        + [threads]
    )
    strings, bad = _texts(source, wanted.filter(wanted != NO_KEY))
    metrics = nsys_meta.metric_names(source) if "metric" in keys else {}
    texts = {space: _text_column(space, frame, strings, metrics) for space, frame in keys.items()}
    texts["inline"] = pl.DataFrame(
        {"key": pl.int_range(len(inline), dtype=pl.Int64, eager=True), "text": inline}, schema={"key": pl.Int64, "text": pl.String}
    ).with_columns(pl.lit(None, dtype=pl.String).alias("short"), pl.lit(value=True).alias("known"))
    every = pl.concat(texts.values())
    names = (
        every.group_by("text", maintain_order=True).agg(pl.col("short").drop_nulls().first()).with_row_index("id").cast({"id": pl.Int32})
    )
    joined = {space: frame.join(names.select("text", "id"), on="text", how="left", maintain_order="left") for space, frame in texts.items()}
    return _Names(
        names=names.select(list(NAMES)),
        keys={space: frame["key"] for space, frame in joined.items()},
        ids={space: frame["id"] for space, frame in joined.items()},
        known={space: frame["known"] for space, frame in joined.items()},
        bad_text=bad,
    )


def _with_names(events: Events, found: _Names, ledger: Ledger) -> tuple[Events, Ledger]:
    if not events.names:
        return events, ledger
    frame = events.frame
    column = {"ranges": "text_id"}.get(events.schema, "name_id")
    ids = found.id_of(events.names, frame["key"])
    unknown = found.unknown(events.names, frame["key"])
    if "inline" in frame.columns:
        has_own = frame["inline"].is_not_null()
        unknown = found.unknown(events.names, frame["key"].filter(~has_own))
        if len(found.ids["inline"]):
            ids = pl.select(pl.coalesce(found.ids["inline"].gather(frame["inline"]), ids)).to_series()
    frame = frame.drop("key", "inline", strict=False).with_columns(ids.alias(column))
    return replace(events, frame=frame), ledger.note("unknown_name", events.table, unknown)


def _of_one_process(places: pl.DataFrame, *groups: list[Events]) -> tuple[pl.DataFrame, list[Events], list[Events], list[Events]]:
    """Device work that does not tell its process belongs to the export's only process, where it has just one; else all stays as it is."""
    seen = places["process"].unique().sort().to_list()
    if len(seen) == 2 and seen[0] == 0:
        own = pl.col("process").replace(0, seen[1])
        places = places.with_columns(own).unique()
        groups = tuple([replace(events, frame=events.frame.with_columns(own)) for events in group] for group in groups)
    operations, others, nvtx = groups
    return places, operations, others, nvtx


def _processes(places: pl.DataFrame, others: Sequence[Events]) -> list[int]:
    """Processes with device work in order of id; without any device work, all that were seen."""
    if len(places):
        return places["process"].unique().sort().to_list()
    seen = [events.frame["process"].unique() for events in others if not events.frame.is_empty()]
    return pl.concat(seen).unique().sort().to_list() if seen else [0]


def _with_ranks(events: Events, processes: Sequence[int], numbers: Sequence[int], ledger: Ledger) -> tuple[Events, Ledger]:
    """Rank for process; rows of processes without device work are counted as not needed."""
    frame = events.frame
    if list(processes) == [0]:  # the export does not tell processes apart
        return replace(events, frame=frame.drop("process").with_columns(pl.lit(numbers[0], dtype=pl.Int32).alias("rank"))), ledger
    known = pl.Series(processes, dtype=pl.Int64)
    own = pl.Series([*processes, None], dtype=pl.Int64)
    ranks = pl.Series("rank", [*numbers, None], dtype=pl.Int32)

    def mapped(part: pl.DataFrame) -> pl.DataFrame:
        place = known.search_sorted(part["process"])
        is_known = (own.gather(place) == part["process"]).fill_null(value=False)
        ranked = part.drop("process").with_columns(ranks.gather(place))
        return ranked if is_known.all() else ranked.filter(is_known)

    done = pl.concat([mapped(part) for part in frame.iter_slices(_SLICE)]) if len(frame) else mapped(frame)
    return replace(events, frame=done), ledger.note("not_needed", events.table, frame.height - done.height)


def _placed_waits(waits: Events, places: pl.DataFrame) -> Events:
    """Waits on the device where their stream, or their process, works: SYNCHRONIZATION.deviceId is 0 for every device."""

    def only(*keys: str) -> pl.DataFrame:
        devices = places.group_by(keys).agg(pl.col("device").unique()).filter(pl.col("device").list.len() == 1)
        return devices.select(*keys, pl.col("device").list.first().alias("_".join(("on", *keys))))

    frame = waits.frame.join(only("rank"), on="rank", how="left", maintain_order="left")
    frame = frame.join(only("rank", "stream"), on=["rank", "stream"], how="left", maintain_order="left")
    own = pl.coalesce("on_rank", "on_rank_stream", "device")
    return replace(waits, frame=frame.with_columns(own.alias("device")).drop("on_rank", "on_rank_stream"))


def _counters(source: Source, used: Sequence[tuple[int, int, int]], ledger: Ledger) -> tuple[Events | None, Ledger]:
    """Metric samples of the GPUs in use, by rank and CUDA ordinal; those of other GPUs are not needed."""
    events, ledger = nsys_tables.read_metrics(source, ledger)
    if events is None:
        return None, ledger
    ordinals = nsys_meta.gpu_ordinals(source)
    found = {gpu: (rank, device) for rank, _, device in reversed(used) for gpu, ordinal in ordinals.items() if ordinal == device}
    sampled = events.frame["gpu"].unique().drop_nulls()
    if not found and len(used) == 1 and len(sampled) == 1:
        found = {int(sampled[0]): (used[0][0], used[0][2])}
    table = pl.DataFrame(
        [(gpu, *place) for gpu, place in found.items()], schema={"gpu": pl.Int64, "rank": pl.Int32, "device": pl.Int32}, orient="row"
    )
    frame = events.frame.join(table, on="gpu", how="inner", maintain_order="left").drop("gpu")
    return replace(events, frame=frame), ledger.note("not_needed", events.table, events.frame.height - frame.height)


def _first_time(tables: Sequence[RawTable]) -> int | None:
    """The earliest usable start, which becomes the capture's start."""
    firsts = []
    for events in tables:
        if events.schema in ("ops", "calls", "ranges"):
            usable = events.frame.lazy().filter((pl.col("end") >= pl.col("start")).fill_null(events.schema == "ranges"))
            firsts.append(usable.select(pl.col("start").min()).collect().item())
    return min((first for first in firsts if first is not None), default=None)


def _refuse_wrong_types(file: str, operations: Sequence[Events], ledger: Ledger) -> None:
    wrong = sum(entry.count for entry in ledger.entries if entry.code == "wrong_type")
    if wrong and all(events.frame.is_empty() for events in operations):
        raise refused(
            f"{file} holds device operations only with values of the wrong type ({wrong} rows), as a table rebuilt from text has them.",
            "Export it again from the report: nsys export --type sqlite REPORT.nsys-rep",
        )


def build(
    source: Source, *, file: str, size: int, format_: str, rank: int | None, ledger: Ledger, rules: EnvironmentRules | None
) -> RawTrace:
    """One export as raw tables; `rank` is the user's number for the first process with GPU work."""
    version, schema, settings = nsys_meta.versions(source)
    for table in sorted(_IMPORTANT):
        ledger = ledger.note("missing_table", table, int(not source.columns(table)))
    provenance = Provenance(
        file=file, size=size, format=format_, profiler="Nsight Systems", profiler_version=version, schema_version=schema
    )
    read, ledger = _read(source, file, ledger)
    raw, used = _resolved(source, read, rank, provenance, ledger)
    diagnostics, ledger = nsys_meta.diagnostics(source, raw.ledger)
    zero, duration = nsys_meta.clock(source, settings)
    first = _first_time(raw.tables)
    start = zero + first if zero is not None and first is not None else None
    provenance = replace(
        raw.provenance,
        duration_ns=duration,
        graph_trace=_graph_trace(raw.tables),
        diagnostics=diagnostics,
        environment=() if rules is None else environment_of(source, settings, used, rules),
    )
    ranks = tuple(replace(own, start_unix_ns=start) for own in raw.ranks)
    return replace(raw, ranks=ranks, provenance=provenance, ledger=ledger, overhead=nsys_meta.overhead(source))


class _Read(Struct, frozen=True, kw_only=True):
    """All tables as mapped; `used` are the (process, device) with device work. Consumed by `_resolved`."""

    tables: list[Events]
    ranges: nsys_nvtx.Ranges | None
    counters: Events | None
    processes: list[int]
    used: list[tuple[int, int]]
    places: pl.DataFrame


def _read(source: Source, file: str, ledger: Ledger) -> tuple[_Read, Ledger]:
    operations, ledger = nsys_tables.read_operations(source, ledger)
    _refuse_wrong_types(file, operations, ledger)
    others, ledger = nsys_tables.read_others(source, ledger)
    events, ranges, ledger = nsys_nvtx.read_ranges(source, ledger)
    nvtx = [events] if events is not None else []
    places = pl.concat([events.places for events in operations]).unique() if operations else pl.DataFrame(schema=PLACES)
    places, operations, others, nvtx = _of_one_process(places, operations, others, nvtx)
    processes = _processes(places, [*(events for events in others if events.schema == "calls"), *nvtx])
    used = places.select("process", "device").unique().drop_nulls().sort("process", "device").rows()
    counters, ledger = _counters(source, [(processes.index(process), process, device) for process, device in used], ledger)
    return _Read(
        tables=[*operations, *others, *nvtx], ranges=ranges, counters=counters, processes=processes, used=used, places=places
    ), ledger


def _resolved(
    source: Source, read: _Read, option: int | None, provenance: Provenance, ledger: Ledger
) -> tuple[RawTrace, Sequence[tuple[int, int, int]]]:
    """All tables with ranks and name ids, and the (rank, process, device) with device work. `read.tables` is emptied on the way."""
    counters = [] if read.counters is None else [read.counters]
    found = _named(source, [*read.tables, *counters], read.ranges.texts if read.ranges is not None else pl.Series([], dtype=pl.String))
    ledger = ledger.note("bad_text", STRINGS, found.bad_text)
    payloads, members = empty("payloads"), tuple[nsys_nvtx.Communicator, ...]()
    named: list[Events] = []
    while read.tables:
        done, ledger = _with_names(read.tables.pop(0), found, ledger)
        if read.ranges is not None and done.table == NVTX:
            frame, payloads, members = nsys_nvtx.read_payloads(source, read.ranges, done.frame, found.names)
            done = replace(done, frame=frame)
        named.append(done)
    ranks, notes, assigned = nsys_meta.ranks(source, read.processes, members, option=option)
    speaks_nccl = bool(found.names["text"].str.starts_with("nccl").any())
    ledger = ledger.note("assigned_rank", "all", assigned if assigned > 1 or speaks_nccl else 0)
    numbers = [own.rank for own in ranks]
    tables: list[Events] = []
    while named:
        done, ledger = _with_ranks(named.pop(0), read.processes, numbers, ledger)
        tables.append(done)
    for events in counters:
        done, ledger = _with_names(events, found, ledger)
        in_order = pl.Series(numbers, dtype=pl.Int32)
        tables.append(replace(done, frame=done.frame.with_columns(in_order.gather(done.frame["rank"]).alias("rank"))))
    by_process = dict(zip(read.processes, numbers, strict=True))
    places = read.places.with_columns(pl.col("process").replace_strict(by_process, default=None, return_dtype=pl.Int32).alias("rank"))
    used = [(by_process[process], process, device) for process, device in read.used]
    raw = RawTrace(
        tables=[_placed_waits(events, places) if events.schema == "waits" else events for events in tables],
        names=found.names,
        payloads=payloads,
        threads=_threads(source, read.processes, ranks),
        devices=nsys_meta.devices(source, used),
        ranks=ranks,
        provenance=replace(provenance, notes=notes),
        ledger=ledger,
    )
    return raw, used


def _graph_trace(tables: Sequence[RawTable]) -> Literal["none", "nodes", "opaque"]:
    operations = [events.frame for events in tables if events.schema == "ops"]
    if any("graph_node" not in frame.columns and (frame["kind"] == "graph").any() for frame in operations):
        return "opaque"
    return "nodes" if any("graph_node" in frame.columns and frame["graph_node"].is_not_null().any() for frame in operations) else "none"


def _threads(source: Source, processes: Sequence[int], ranks: Sequence[Rank]) -> pl.DataFrame:
    """Names of the threads of the ranks' processes."""
    frame = nsys_meta.thread_names(source)
    strings, _ = _texts(source, frame["key"])
    known = pl.DataFrame({"process": processes, "rank": [own.rank for own in ranks]}, schema={"process": pl.Int64, "rank": pl.Int32})
    named = frame.with_columns(nsys_tables.process_of("thread")).join(
        strings, left_on="key", right_on="id", how="inner", maintain_order="left"
    )
    if list(processes) == [0]:
        named = named.with_columns(pl.lit(0, dtype=pl.Int64).alias("process"))
    return typed(
        named.join(known, on="process", how="inner", maintain_order="left").rename({"text": "name"}).select("rank", "thread", "name"),
        "threads",
    )
