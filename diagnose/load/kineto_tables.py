"""What was found in a PyTorch profiler file, as the tables of a RawTrace, and what it tells about the world around the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import polars as pl
from msgspec.structs import replace

from diagnose.errors import ForeignInputError
from diagnose.knowledge.environment import EnvironmentRules, RawEnvironment, environment, without_private
from diagnose.load.conform import RawTable, RawTrace
from diagnose.load.files import refused
from diagnose.load.kineto_columns import CATEGORIES, FRAME, OUT_OF_MEMORY, PAYLOAD_COLUMNS, Part, integer
from diagnose.model.environment import EnvironmentItem
from diagnose.model.ledger import Ledger
from diagnose.model.trace import PAYLOADS, CopyKind, Device, OpKind, Provenance, RangeKind, Rank, RankSource, WaitKind

_NAMING_KEYS = ("username", "user", "tw_user", "host_name", "hostname")


def _names(keys: Mapping[str, Any]) -> list[str]:
    """Names of the user and the host, as far as the file tells them."""
    return [word for key in _NAMING_KEYS if isinstance(name := keys.get(key), str) for word in {name, name.partition(".")[0]}]


def environment_of(keys: Mapping[str, Any], used: Iterable[int], rules: EnvironmentRules) -> tuple[EnvironmentItem, ...]:
    """The items of one file; `used` are the devices with work. A file of this profiler holds no environment variables."""
    devices = _properties(keys)
    ordinals = set(used)
    own = [one for one in devices if one.get("id") in ordinals] or devices
    wanted = [(place, key) for item in rules.items for one in item.from_ for place, key in one.items()]
    told = RawEnvironment(
        values={
            "torch": {key: (_at(keys, key),) for place, key in wanted if place == "torch"},
            "device": {key: tuple(one.get(key) for one in own) for place, key in wanted if place == "device"},
            "listed": {"devices": (len(devices),)},
        },
        sources={"torch": "{}", "device": "deviceProperties, {}", "listed": "deviceProperties"},
        private=_names(keys),
    )
    return environment(told, rules)


def _properties(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = keys.get("deviceProperties")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _at(keys: Mapping[str, Any], path: str) -> object:
    """The value at a key, or below it where a point goes one level down."""
    node: object = keys
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


_SCHEMAS = {
    **dict.fromkeys(("kernel", "memcpy", "memset"), "ops"),
    "call": "calls",
    **dict.fromkeys(("operator", "annotation", "gpu_annotation", "python"), "ranges"),
    "wait": "waits",
}
RECORDS, UNDECODED = "cuda_sync records", "undecodable events"

# Scopes that profilers before 2022 wrote among the operators.
_SCOPE = r"^(ProfilerStep#\d|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#)"
_COPY = re.compile(r"\b([HDPA])(?:ost|evice|eer|rray)?to([HDPA])", re.IGNORECASE)
_COPY_KINDS = {"hd": "h2d", "dh": "d2h", "dd": "d2d", "hh": "h2h", "pp": "p2p"}
_UNIX_NS = 10**17  # times above this (1973) count from 1970

_VERSIONS = {
    "cupti_version": "CUPTI",
    "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver",
    "roctracer_version": "roctracer",
    "rocprofiler-sdk_version": "rocprofiler-sdk",
    "hip_runtime_version": "HIP runtime",
    "hip_driver_version": "HIP driver",
}
_MAX_MESSAGES, _MAX_LENGTH = 20, 300


def raw_trace(
    keys: Mapping[str, Any],
    part: Part,
    undecodable: int,
    cut: str | None,
    *,
    file: str,
    size: int,
    rank: int | None,
    rules: EnvironmentRules | None,
    goes_on: bool = False,
) -> RawTrace:
    """Join the columns of a file and what its top-level keys tell; `goes_on`: more follows in the file after its trace.

    Raises InputError when no event has a category that the PyTorch profiler writes.
    """
    described = _rank(keys, part, rank)
    names = pl.DataFrame({"id": range(len(part.names)), "text": part.names}, schema={"id": pl.Int32, "text": pl.String})
    frames = {table: pl.concat(part.frames.pop(table)) for table in list(part.frames)}
    if not frames:
        raise _foreign(part, undecodable, file)
    tables, ledger = _tables(frames, part, names)
    _refuse_merged(part, tables, file)
    ledger = _notes(ledger, keys, part, undecodable, cut, described).note("further_content", "traceEvents", int(goes_on))
    number = pl.lit(described.rank, dtype=pl.Int32).alias("rank")
    ranked = [RawTable(schema=table.schema, table=table.table, frame=table.frame.with_columns(number), read=table.read) for table in tables]
    first, base = _first(ranked), _size(keys.get("baseTimeNanoseconds"))
    start = first if first is None or first > _UNIX_NS else None if base is None else base + first
    return RawTrace(
        tables=ranked,
        names=names,
        payloads=_payloads(part),
        threads=_threads(part, ranked, described.rank),
        devices=_devices(keys, ranked, described.rank),
        ranks=(replace(described, start_unix_ns=start),),
        provenance=_provenance(keys, part, ranked, names, file, size, described.rank, rules),
        ledger=ledger,
        overhead=pl.concat(part.overhead) if part.overhead else None,
    )


def _tables(frames: dict[str, pl.DataFrame], part: Part, names: pl.DataFrame) -> tuple[list[RawTable], Ledger]:
    """One RawTable for each category that holds something, and the row counts and refusals of all the others."""
    ledger = Ledger()
    for (code, table), count in sorted(part.refused.items()):
        ledger = ledger.note(code, table, count)
    calls = [frames[table] for table in frames if CATEGORIES.get(table) == "call"]
    tables: list[RawTable] = []
    for table, read in sorted(part.read.items()):
        frame = frames.pop(table, None)
        if frame is None:
            refused = sum(count for (_, name), count in part.refused.items() if name == table)
            ledger = ledger.table(table, read=read, kept=read - refused)
            continue
        meaning = CATEGORIES.get(table, "memory")
        schema = _SCHEMAS.get(meaning, "memory")
        if schema == "ops":
            frame = _operations(frame, meaning, names)
        elif schema == "ranges":
            frame, ledger = _ranges(frame, meaning, table, names, ledger)
        elif schema == "waits":
            waits, ledger = _waits(frame, table, calls, names, ledger)
            records = _records(waits, calls)
            tables.append(RawTable(schema="waits", table=RECORDS, frame=records, read=records.height))
            frame = waits.drop("recorded_on")
        tables.append(RawTable(schema=schema, table=table, frame=frame, read=read))
    return tables, ledger


def _operations(frame: pl.DataFrame, meaning: str, names: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(pl.lit(meaning, dtype=OpKind).alias("kind"))
    if meaning != "memcpy":
        return frame
    used = names.filter(pl.col("id").is_in(frame["name_id"].unique().implode()))
    sides = pl.DataFrame(
        {
            "name_id": used["id"],
            "copy_kind": pl.Series([_copy_kind(text) for text in used["text"]], dtype=CopyKind),
            "pinned": pl.Series([_pinned(text) for text in used["text"]], dtype=pl.Boolean),
        }
    )
    return frame.join(sides, on="name_id", how="left", maintain_order="left")


def _copy_kind(name: str) -> str:
    """The direction that a copy's name tells, as in "Memcpy HtoD (Pinned -> Device)"."""
    match = _COPY.search(name)
    return _COPY_KINDS.get((match.group(1) + match.group(2)).lower(), "other") if match else "other"


def _pinned(name: str) -> bool | None:
    """False where a side is pageable, True where one is pinned, None where the name tells neither."""
    if "pageable" in name.lower():
        return False
    return True if "pinned" in name.lower() else None


def _ranges(frame: pl.DataFrame, meaning: str, table: str, names: pl.DataFrame, ledger: Ledger) -> tuple[pl.DataFrame, Ledger]:
    """Rows with both times, and their kind. A complete event without a duration is no open range but damage."""
    whole = frame.filter(pl.col("end").is_not_null())
    ledger = ledger.note("missing_time", table, frame.height - whole.height)
    kind = pl.lit(meaning, dtype=RangeKind)
    if meaning == "operator":
        scopes = names.filter(pl.col("text").str.contains(_SCOPE))["id"].implode()
        comms = names.filter(pl.col("text") == "record_param_comms")["id"].implode()
        kind = (
            pl.when(pl.col("text_id").is_in(scopes))
            .then(pl.lit("annotation", dtype=RangeKind))
            .when(pl.col("text_id").is_in(comms) | pl.col("payload_id").is_not_null())
            .then(pl.lit("comms", dtype=RangeKind))
            .otherwise(kind)
        )
    if meaning == "python":
        telling = names.filter(pl.col("text").str.contains(FRAME.pattern))["id"].implode()
        kind = pl.when(pl.col("text_id").is_in(telling)).then(kind).otherwise(pl.lit("frame", dtype=RangeKind))
    return whole.with_columns(kind.alias("kind")), ledger


def _waits(
    frame: pl.DataFrame, table: str, calls: Sequence[pl.DataFrame], names: pl.DataFrame, ledger: Ledger
) -> tuple[pl.DataFrame, Ledger]:
    """Waits, without those of cudaEventQuery and cudaStreamQuery, which only look and don't wait."""
    queries = names.filter(pl.col("text").str.contains(r"^(cuda|cu|hip)\w*Query$"))["id"].implode()
    asked = [found.filter(pl.col("name_id").is_in(queries))["correlation"].drop_nulls() for found in calls]
    waits = frame.filter(~pl.col("correlation").is_in(pl.concat(asked).implode()).fill_null(value=False)) if asked else frame
    ledger = ledger.note("not_needed", table, frame.height - waits.height)
    return waits.with_columns(pl.col("kind").cast(WaitKind)), ledger


def _records(waits: pl.DataFrame, calls: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The event records that waits refer to: one row each, with the stream that recorded and the times of its call."""
    records = (
        waits.filter(pl.col("sync_id").is_not_null() & pl.col("recorded_on").is_not_null())
        .unique("sync_id", keep="first", maintain_order=True)
        .select("device", pl.col("recorded_on").alias("stream"), "event", "sync_id", pl.col("sync_id").alias("correlation"))
        .with_columns(pl.lit("record", dtype=WaitKind).alias("kind"))
    )
    wanted = records["correlation"].implode()
    found = [call.filter(pl.col("correlation").is_in(wanted)).select("correlation", "start", "end") for call in calls]
    empty = pl.DataFrame(schema={"correlation": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    times = pl.concat([empty, *found]).unique("correlation", keep="first", maintain_order=True)
    return records.join(times, on="correlation", how="left", maintain_order="left")


def _notes(ledger: Ledger, keys: Mapping[str, Any], part: Part, undecodable: int, cut: str | None, described: Rank) -> Ledger:
    ledger = ledger.note("undecodable_event", UNDECODED, undecodable)
    if undecodable:
        ledger = ledger.table(UNDECODED, read=undecodable, kept=0)
    ledger = ledger.note("bad_text", "traceEvents", part.bad_text)
    if cut is not None:
        ledger = ledger.note("cut_file", "traceEvents", detail=cut)
    if described.source == "assigned":
        ledger = ledger.note("assigned_rank", "traceEvents")
    errors, warnings = _messages(keys, "ERROR"), _messages(keys, "WARNING")
    dropped = sum("dropped" in text.lower() for text in (*errors, *warnings))
    ledger = ledger.note("profiler_error", "traceEvents", len(errors)).note("profiler_warning", "traceEvents", len(warnings))
    return ledger.note("dropped_by_profiler", "traceEvents", dropped)


def _messages(keys: Mapping[str, Any], level: str) -> list[str]:
    found = keys.get(level)
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _foreign(part: Part, undecodable: int, file: str) -> ForeignInputError:
    held = ", ".join(f"{table} ({count})" for table, count in part.read.most_common(5))
    what = (
        f"{file} holds none of the events that the PyTorch profiler writes (it has {held or f'{undecodable} entries that are no events'})."
    )
    if 2 * part.halves > part.events:
        what = (
            f"{file} is a list of begin and end events ({part.halves:,} with ph B or E) of another tool: the PyTorch profiler writes complete events (ph X), "
            "with the kernels of the GPU among them."
        )
    return ForeignInputError(
        what,
        effect="There is nothing to diagnose.",
        next_step="Write the trace with torch.profiler, activities=[CPU, CUDA], and prof.export_chrome_trace(path).",
    )


def _refuse_merged(part: Part, tables: Sequence[RawTable], file: str) -> None:
    """Refuse traces of several processes in one file where their calls have the same correlation ids, which each process counts alone."""
    if len(part.pids) < 2:
        return
    ids = pl.concat([table.frame["correlation"] for table in tables if table.schema == "calls"]).drop_nulls()
    if 2 * (len(ids) - ids.n_unique()) > part.pids.most_common(2)[1][1]:
        raise refused(
            f"{file} holds the traces of {len(part.pids)} processes, merged into one file: which call launched which kernel is not told any more.",
            "Give the files that the processes wrote themselves, or the folder that holds them.",
        )


def _rank(keys: Mapping[str, Any], part: Part, option: int | None) -> Rank:
    """The global rank as the user says, else as the file tells it, else 0, marked as assigned."""
    told = _mapping(keys.get("distributedInfo"))
    rank, world = _small(told.get("rank")), _small(told.get("world_size"))
    pids = [pid for pid, _ in part.pids.most_common(1)]
    pid = integer(pids[0]) if pids else None
    source: RankSource = "option" if option is not None else "assigned" if rank is None else "trace"
    return Rank(rank=(rank or 0) if option is None else option, world_size=world, pid=pid, source=source)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _small(value: object) -> int | None:
    """A number that can be a count or an index, else None."""
    number = integer(value) if not isinstance(value, bool) else None
    return number if number is not None and 0 <= number < 1 << 31 else None


def _size(value: object) -> int | None:
    number = integer(value) if not isinstance(value, bool) else None
    return number if number is not None and number > 0 else None


def _first(tables: Sequence[RawTable]) -> int | None:
    """Earliest start of the rows that the analysis will keep."""
    spans = [table.frame for table in tables if table.schema in {"ops", "calls", "ranges"}]
    firsts = [first for frame in spans if isinstance(first := frame.filter(pl.col("end") >= pl.col("start"))["start"].min(), int)]
    return min(firsts, default=None)


def _payloads(part: Part) -> pl.DataFrame:
    columns = list(zip(*part.payloads, strict=True)) or [()] * len(PAYLOAD_COLUMNS)
    data = {name: pl.Series(name, column, dtype=PAYLOADS[name]) for name, column in zip(PAYLOAD_COLUMNS, columns, strict=True)}
    return pl.DataFrame({"id": pl.Series(range(len(part.payloads)), dtype=pl.Int32), **data})


def _threads(part: Part, tables: Sequence[RawTable], rank: int) -> pl.DataFrame:
    """Names of the threads that API calls or ranges ran on."""
    used = [table.frame["thread"].unique() for table in tables if "thread" in table.frame.columns]
    named = pl.DataFrame(
        {"thread": list(part.thread_names), "name": list(part.thread_names.values())}, schema={"thread": pl.Int64, "name": pl.String}
    )
    on_host = pl.concat(used).unique().implode() if used else pl.Series([[]], dtype=pl.List(pl.Int64))
    return named.filter(pl.col("thread").is_in(on_host)).with_columns(pl.lit(rank, dtype=pl.Int32).alias("rank")).sort("thread")


def _devices(keys: Mapping[str, Any], tables: Sequence[RawTable], rank: int) -> tuple[Device, ...]:
    """The devices that operations ran on, with the properties that the file gives for them.

    ROCm numbers its operations' devices otherwise than its properties; they are then taken from any device where all have the same name.
    """
    properties = _properties(keys)
    by_id = {found["id"]: found for found in properties if isinstance(found.get("id"), int)}
    alike = properties[0] if properties and len({str(found.get("name")) for found in properties}) == 1 else {}
    return tuple(_device(by_id.get(device, alike), rank, device) for device in _used(tables))


def _used(tables: Sequence[RawTable]) -> list[int]:
    """The devices that operations ran on, in order."""
    found = pl.concat([pl.Series(dtype=pl.Int32), *(table.frame["device"] for table in tables if table.schema == "ops")])
    return found.drop_nulls().unique().sort().to_list()


def _device(found: Mapping[str, Any], rank: int, device: int) -> Device:
    name = found.get("name") or None
    is_cuda = not (isinstance(name, str) and "amd" in name.lower()) and _size(found.get("warpSize")) == 32
    return Device(
        rank=rank,
        device=device,
        name=name if isinstance(name, str) else None,
        sm_count=_size(found.get("numSms")),
        compute_major=_size(found.get("computeMajor")) if is_cuda else None,
        compute_minor=_small(found.get("computeMinor")) if is_cuda else None,
        total_memory=_size(found.get("totalGlobalMem")),
        max_threads_per_sm=_size(found.get("maxThreadsPerMultiprocessor")),
        registers_per_sm=_size(found.get("regsPerMultiprocessor")),
        shared_memory_per_sm=_size(found.get("sharedMemPerMultiprocessor")),
        warp_size=_size(found.get("warpSize")),
    )


def _provenance(
    keys: Mapping[str, Any],
    part: Part,
    tables: Sequence[RawTable],
    names: pl.DataFrame,
    file: str,
    size: int,
    rank: int,
    rules: EnvironmentRules | None,
) -> Provenance:
    versions = [f"{label} {keys[key]}" for key, label in _VERSIONS.items() if isinstance(keys.get(key), int | float | str)]
    diagnostics = [*_messages(keys, "ERROR"), *_messages(keys, "WARNING")][:_MAX_MESSAGES]
    failed = [f"{OUT_OF_MEMORY}: an allocation of device memory failed"] * part.read[OUT_OF_MEMORY]  # all of them count
    private = _names(keys)
    version = keys.get("schemaVersion")
    return Provenance(
        file=file,
        size=size,
        format="torch-json",
        profiler="PyTorch profiler",
        profiler_version=", ".join(versions)[:_MAX_LENGTH] or None,
        schema_version=str(version)[:20] if isinstance(version, int | float | str) else None,
        duration_ns=part.duration_ns,
        has_python_stacks=any(CATEGORIES.get(table) == "python" for table in part.read),
        graph_trace=_graph_trace(tables, names),
        diagnostics=(*(without_private(text, private)[:_MAX_LENGTH] for text in diagnostics), *failed),
        environment=() if rules is None else environment_of(keys, _used(tables), rules),
        notes=(*_rank_notes(keys, rank), *_pid_notes(part)),
    )


def _graph_trace(tables: Sequence[RawTable], names: pl.DataFrame) -> Literal["none", "nodes"]:
    """PyTorch's profiler records each node of a CUDA graph as a kernel of its own, under the graph's launch."""
    launches = names.filter(pl.col("text").str.contains(r"^(cuda|cu|hip)GraphLaunch$"))["id"].implode()
    launched = any(bool(table.frame["name_id"].is_in(launches).any()) for table in tables if table.schema == "calls")
    nodes = any(table.frame["graph_node"].null_count() < table.frame.height for table in tables if table.schema == "ops")
    return "nodes" if launched or nodes else "none"


def _rank_notes(keys: Mapping[str, Any], rank: int) -> tuple[str, ...]:
    """A sentence where the user's rank is not the one that the file tells."""
    told = _small(_mapping(keys.get("distributedInfo")).get("rank"))
    return (f"The file calls itself rank {told}; --rank named it rank {rank}.",) if told is not None and told != rank else ()


def _pid_notes(part: Part) -> tuple[str, ...]:
    if len(part.pids) < 2:
        return ()
    return (f"{len(part.pids)} processes called the GPU's API in this file; they count as one rank.",)
