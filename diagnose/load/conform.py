"""The one gate between a foreign file and a Trace.

Readers map a format's tables to the columns of `diagnose.model.trace` and hand them over as `RawTable`s, in nanoseconds of the
file's own clock. Here rows are checked, refused rows are counted in the ledger, types are made exact, times are made
relative to the capture's start and frames are put in order of time.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import InputError
from diagnose.model.intervals import clip, earliest, latest, merge, total_length
from diagnose.model.ledger import CODES, Ledger
from diagnose.model.statistics import median_of
from diagnose.model.trace import SCHEMAS, SYSTEM, Device, Provenance, Rank, Trace

_DAY_NS = 24 * 3600 * 10**9
_FEW_COPIES = 5
_FEW_STRAY = 0.01  # of a table's rows: where more lie so far apart, none can be told to be wrong

# Frames whose rows last from start to end, and those that happen at one moment.
_SPANS = ("ops", "calls", "ranges")
_MOMENTS = ("counters", "memory")
# Frames of what can't be twice at the same time in the same place: one stream runs one kernel, one thread is in one call.
_UNIQUE = ("ops", "calls")


class RawTable(Struct, frozen=True, kw_only=True):
    """Rows of one foreign table in the columns of one schema; absent columns are null.

    `read` counts the rows that the file held, those that the reader itself refused (and noted in the ledger) included.
    """

    schema: str
    table: str
    frame: pl.DataFrame
    read: int


class RawTrace(Struct, frozen=True, kw_only=True):
    """Everything a reader found. `names` has dense ids from 0; times are not yet relative.

    `conform` takes the tables out of the list, so that no table is held twice. `overhead`: the profiler's own spans (start, end), in any
    order, less what CUDA spends itself (a launch that waits for room in a full queue, a module that is loaded); None where the file
    records none.
    """

    tables: list[RawTable]
    names: pl.DataFrame
    payloads: pl.DataFrame
    threads: pl.DataFrame
    devices: tuple[Device, ...]
    ranks: tuple[Rank, ...]
    provenance: Provenance
    ledger: Ledger
    overhead: pl.DataFrame | None = None


def typed(frame: pl.DataFrame, schema: str) -> pl.DataFrame:
    """`frame` with exactly the columns and types of `schema`; missing columns become null."""
    columns = []
    for name, dtype in SCHEMAS[schema].items():
        if name not in frame.columns:
            columns.append(pl.lit(None, dtype=dtype).alias(name))
        elif frame.schema[name] != dtype:
            columns.append(pl.col(name).cast(dtype, strict=False).alias(name))
        else:
            columns.append(pl.col(name))
    return frame.select(columns)


def _check(raw: RawTable, ledger: Ledger, *, devices_known: bool) -> tuple[pl.DataFrame, Ledger]:
    """Rows with usable times and, of device operations where others tell theirs, a device; the rest is counted.

    Open ranges keep their null end.
    """
    frame = typed(raw.frame, raw.schema)

    def leave_out(code: str, wrong: pl.Series) -> None:
        nonlocal frame, ledger
        if count := int(wrong.sum()):
            frame, ledger = frame.filter(~wrong), ledger.note(code, raw.table, count)

    if raw.schema in (*_SPANS, *_MOMENTS):
        start, end = ("start", "end") if raw.schema in _SPANS else ("time", "time")
        leave_out("missing_time", frame[start].is_null() if raw.schema == "ranges" else frame[start].is_null() | frame[end].is_null())
        leave_out("negative_duration", (frame[end] < frame[start]).fill_null(value=False))
        stray = _stray(frame, raw.schema)
        if int(stray.sum()) <= max(int(frame.height > 2), _FEW_STRAY * frame.height):
            leave_out("stray_row", stray)
    if raw.schema == "ops" and devices_known:
        leave_out("no_device", frame["device"].is_null())
    if raw.schema == "ops":
        leave_out("endless_row", _endless(frame))
    if raw.schema in _UNIQUE and not (repeated := _repeated(frame)).is_empty():
        leave_out("repeated_row", pl.int_range(frame.height, eager=True).is_in(repeated.implode()))
    return frame, ledger.table(raw.table, read=raw.read, kept=frame.height)


def _stray(frame: pl.DataFrame, schema: str) -> pl.Series:
    """Which rows lie more than a day from the middle one, as no capture lasts."""
    start, end = ("start", "end") if schema in _SPANS else ("time", "time")
    bounds = [time for time in (frame[start].min(), frame[start].max(), frame[end].max()) if isinstance(time, int)]
    if not bounds or max(bounds) - min(bounds) <= _DAY_NS:
        return _none(frame)
    middle = int(median_of(frame[start]))
    low, high = max(middle - _DAY_NS, -(1 << 63)), min(middle + _DAY_NS, (1 << 63) - 1)
    return ((frame[start] < low) | (frame[start] > high) | (frame[end] > high)).fill_null(value=False)


def _endless(frame: pl.DataFrame) -> pl.Series:
    """Which rows have an end that can't be one.

    They would last beyond the last start by more than all starts lie apart, and others began on their stream meanwhile, which runs one
    after the other. Nodes of graphs may run beside each other.
    """
    first, last = frame["start"].min(), frame["start"].max()
    if not isinstance(first, int) or not isinstance(last, int):
        return _none(frame)
    is_late = frame["end"] > min(2 * last - first, (1 << 63) - 1)
    if not is_late.any():
        return _none(frame)
    followed = pl.col("start") < pl.col("start").max().over("rank", "device", "stream")
    return frame.select((pl.col("graph_node").is_null() & pl.lit(is_late) & followed).fill_null(value=False)).to_series()


def _none(frame: pl.DataFrame) -> pl.Series:
    """No row of a table, as a mask."""
    return pl.repeat(value=False, n=frame.height, eager=True)


def _repeated(frame: pl.DataFrame) -> pl.Series:
    """Numbers of the rows that last and are equal in every column to one before them. What takes no time may be there twice."""
    start = frame["start"]
    ordered = start.is_sorted()
    in_order = start if ordered else start.sort()  # a quarter of what hashing them all takes
    again = in_order == in_order.shift(1)
    shared = (again | again.shift(-1)).fill_null(value=False) if ordered else start.is_in(in_order.filter(again).unique().implode())
    alike = (shared & (frame["end"] > start)).arg_true()
    return alike.filter(~frame[alike].select(pl.struct(pl.all()).is_first_distinct()).to_series())


def _bounds(frames: dict[str, pl.DataFrame]) -> tuple[int, int]:
    """First start and last end of device operations, of which there are some, API calls and ranges; the operating system's do not count."""
    told = {
        **{schema: frames[schema] for schema in _SPANS},
        "ranges": frames["ranges"].select("start", "end", "kind").filter(pl.col("kind") != SYSTEM),
    }
    spans = [frame for frame in told.values() if not frame.is_empty()]
    firsts = [earliest(frame["start"]) for frame in spans]
    lasts = [int(end) for frame in spans if isinstance(end := frame["end"].max(), int)]
    return min(firsts), max(lasts)


def _within(ranges: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Calls of the operating system as far as they lie in the time of all else, which they explain."""
    times = [
        pl.when(pl.col("kind") == SYSTEM).then(pl.col(name).clip(first, last)).otherwise(name).alias(name) for name in ("start", "end")
    ]
    return ranges.with_columns(times)


def _provenance(raw: RawTrace, ops: pl.DataFrame, origin: int) -> Provenance:
    """With times from the capture's start, and of the profiler's own spans those while the GPU is at work.

    What it does before the first and after the last device operation (start-up, flush) perturbs nothing that is measured.
    """
    told = replace(raw.provenance, origin_ns=origin)
    if raw.overhead is None:
        return told
    spans = clip(
        raw.overhead.select(pl.col("start", "end") - origin).drop_nulls(),
        earliest(ops["start"]),
        latest(ops["end"]),
    )
    known = merge(spans)
    total = total_length(known)
    note = f"The profiler recorded {spans.height} spans of its own overhead while the GPU was at work, {total / 1e6:.3f} ms together."
    return replace(told, overhead=tuple(known.rows()), notes=(*told.notes, note) if total else told.notes)


def _relative(frame: pl.DataFrame, schema: str, origin: int) -> pl.DataFrame:
    times = ("time",) if schema in _MOMENTS else ("start", "end")
    moved = frame.with_columns(pl.col(times) - origin) if origin else frame
    if schema == "waits":
        return moved
    return moved if moved[times[0]].is_sorted() else moved.sort(times[0], maintain_order=True)


def conform(raw: RawTrace) -> Trace:
    """Check, count, type and order everything that a reader found. Raises InputError when no device operation is left."""
    ledger = raw.ledger
    parts: dict[str, list[pl.DataFrame]] = {schema: [] for schema in SCHEMAS}
    operations = [table.frame for table in raw.tables if table.schema == "ops" and "device" in table.frame.columns]
    devices_known = any(frame["device"].cast(pl.Int32, strict=False).null_count() < frame.height for frame in operations)
    del operations
    raw.tables.reverse()
    while raw.tables:
        table = raw.tables.pop()
        frame, ledger = _check(table, ledger, devices_known=devices_known)
        parts[table.schema].append(frame)
        del table
    frames = {}
    for schema in SCHEMAS:
        found = parts.pop(schema)
        frames[schema] = pl.concat(found) if found else typed(pl.DataFrame(), schema).clear()
        del found
    if frames["ops"].is_empty():
        names = raw.names.filter(pl.col("text").str.contains("Launch"))["id"]
        raise no_gpu_work(raw.provenance, ledger, launches=int(frames["calls"]["name_id"].is_in(names.implode()).sum()))
    first, last = _bounds(frames)
    is_open = frames["ranges"]["end"].is_null()
    if is_open.any():
        ledger = ledger.note("open_range", "ranges", int(is_open.sum()))
        frames["ranges"] = frames["ranges"].with_columns(pl.col("end").fill_null(pl.max_horizontal(pl.lit(last), pl.col("start"))))
    if (frames["ranges"]["kind"] == SYSTEM).any():
        frames["ranges"] = _within(frames["ranges"], first, last)
    if not 1_000 <= last - first <= _DAY_NS:
        ledger = ledger.note("implausible_span", "all", detail=f"{last - first} ns")
    if frames["ops"]["copy_kind"].null_count() == frames["ops"].height:
        ledger = ledger.note("no_copies", "ops", _copies_asked_for(frames["calls"], raw.names))
    zero = int((frames["ops"]["start"] == frames["ops"]["end"]).sum())
    ledger = ledger.note("zero_duration", "ops", zero)
    ledger = ledger.note("opaque_graph", "ops", int((frames["ops"]["kind"] == "graph").sum()))
    for schema in (*_SPANS, *_MOMENTS, "waits"):
        frames[schema] = _relative(frames.pop(schema), schema, first)
    ledger = ledger.folded()
    ledger.check()
    frames |= {
        schema: typed(frame, schema) for schema, frame in (("names", raw.names), ("payloads", raw.payloads), ("threads", raw.threads))
    }
    return Trace(**frames, devices=raw.devices, ranks=raw.ranks, provenance=_provenance(raw, frames["ops"], first), ledger=ledger)


def _copies_asked_for(calls: pl.DataFrame, names: pl.DataFrame) -> int:
    """Calls that copy on a stream; 0 where there are hardly any: of nothing, or inside host memory, the device has no record."""
    asked = names.filter(pl.col("text").str.contains(r"^(cuda|cu|hip)Memcpy\w*Async|^hipMemcpyWithStream"))["id"]
    count = int(calls["name_id"].is_in(asked.implode()).sum())
    return count if count >= _FEW_COPIES else 0


def no_gpu_work(provenance: Provenance, ledger: Ledger, *, launches: int) -> InputError:
    """The error for a readable capture without any device operation: what it does hold, what the profiler says, and why that happens."""
    rows = ledger.folded().rows
    unread = {entry.table: entry.code for entry in ledger.entries if entry.code != "not_needed" and CODES[entry.code].refuses}
    held = [f"{row.table} ({row.kept:,})" for row in sorted(rows, key=lambda row: -row.kept) if row.kept]
    refused = [
        f"{row.table} ({row.read:,}, none of use: {CODES[unread[row.table]].meaning.partition('.')[0].lower()})"
        for row in rows
        if row.read and not row.kept and row.table in unread
    ]
    others = sum(row.read for row in rows)
    contents = ", ".join([*refused, *held][:6]) or (f"{others:,} events of kinds that no measure uses" if others else "no events at all")
    about = [message for message in provenance.diagnostics if "CUDA" in message][:2]
    said = f" The profiler says: {' '.join(about)}" if about else ""
    if launches:
        counted = any(row.table == "cuda_profiler_range" for row in ledger.rows)
        again = "without metrics (profiler_metrics of torch.profiler), which take the place of times, " if counted else ""
        return InputError(
            f"{provenance.file} holds {launches:,} kernel launches by the CPU, but no GPU work that came of them: the records of the device "
            f"are missing (it has {contents}).{said}",
            effect="There is nothing to diagnose: what the GPU did, and for how long, is not in this file.",
            next_step=f"Capture again: {again}one profiler at a time (no nsys around torch.profiler, DCGM's profiling paused), stopped by itself before "
            "the process ends (cudaProfilerStop, --duration, prof.stop), since records that are not flushed are lost.",
        )
    if any(entry.code == "cut_file" for entry in ledger.entries):
        return InputError(
            f"{provenance.file} is cut off: it ends before its content does, and up to there it holds no GPU work (it has {contents}).{said}",
            effect="There is nothing to diagnose.",
            next_step="Copy or write the trace again, whole: let the profiler finish before the process ends, and compare the sizes after copying.",
        )
    return InputError(
        f"{provenance.file} holds no GPU work{' that can be used' if refused else ': no kernel, copy or memory set was recorded'} "
        f"(it has {contents}).{said}",
        effect="There is nothing to diagnose.",
        next_step="Capture again with CUDA tracing on (nsys profile --trace=cuda,nvtx, or activities=[CPU, CUDA] in torch.profiler) "
        "while the GPU is working.",
    )
