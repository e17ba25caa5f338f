"""From the tables of an Nsight Systems export to the columns of a Trace: device operations, API calls, waits, memory, metrics.

SQLite and Parquet exports hold the same tables. A `Source` hides how they are stored; the mapping (here, `nsys_nvtx`, `nsys_meta`) sees
frames with exactly the columns that it asked for. The frames made here still carry `process` (upper bits of globalPid or globalTid) where
the Trace has a rank, and `key` (a StringIds id or a code) where it has a name id; `nsys_trace` resolves both once all tables are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import polars as pl
from msgspec import Struct, field

from diagnose.errors import InputError
from diagnose.load.conform import RawTable
from diagnose.model.intervals import lasting
from diagnose.model.ledger import Ledger
from diagnose.model.trace import NAMING_NS, SYSTEM, CopyKind, OpKind, RangeKind, WaitKind

# How a column is wanted: whole numbers as Int64, measures as Float64, texts as String, payloads as Binary.
ColumnType = Literal["int", "real", "text", "bytes"]
Wanted = Mapping[str, ColumnType]
POLARS_TYPES: Mapping[ColumnType, type[pl.DataType]] = {"int": pl.Int64, "real": pl.Float64, "text": pl.String, "bytes": pl.Binary}

T = TypeVar("T")

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILER_OVERHEAD = "PROFILER_OVERHEAD"
NVTX = "NVTX_EVENTS"
OSRT = "OSRT_API"
STRINGS = "StringIds"

# Any one of these makes a database an export of Nsight Systems.
EVENT_TABLES = (
    KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, DRIVER, SYNC, EVENT, NVTX, OSRT, "COMPOSITE_EVENTS", "SCHED_EVENTS", "GPU_METRICS",
)  # fmt: skip
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", STRINGS, "ProcessStreams", "TARGET_INFO_SESSION_START_TIME")


class Rows(Struct, Generic[T], frozen=True, kw_only=True):
    """Mapped slices of one table, in row order, with the counts that the ledger needs."""

    parts: tuple[T, ...] = ()
    read: int = 0
    wrong_type: int = 0
    bad_text: int = 0


class Source(Protocol):
    """One opened export."""

    def columns(self, table: str) -> frozenset[str]:
        """Column names of a table; empty when it is absent."""

    def rows(self, table: str, wanted: Wanted, mapper: Callable[[pl.DataFrame], T]) -> Rows[T]:
        """`mapper` applied to slices of a table that is there, each with exactly the columns `wanted` (absent ones null).

        Rows with a value of another type are left out and counted. Slices may be mapped in several threads.
        """

    def small(self, table: str) -> list[dict[str, object]]:
        """All rows of a small table; an absent one has none. Values of unexpected types are passed on."""

    def strings(self, ids: Sequence[int]) -> tuple[pl.DataFrame, int]:
        """The texts of StringIds for distinct `ids`: columns id (Int64), text; and how many held invalid UTF-8."""

    def holding(self, table: str, columns: Sequence[str]) -> str | None:
        """The first of `columns` in which any row has a value."""


def shaped(frame: pl.DataFrame, wanted: Wanted) -> pl.DataFrame:
    """`frame` with exactly the columns `wanted`, in their order; absent ones are null."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype=POLARS_TYPES[kind]).alias(name) for name, kind in wanted.items()
    )


def decoded(values: pl.Series) -> tuple[pl.Series, int]:
    """Binary texts as String, empty ones as null, invalid UTF-8 (which Arrow would hand on) replaced; and how many rows were invalid."""
    try:
        texts = values.cast(pl.String)
    except pl.exceptions.ComputeError:
        pass
    else:
        return texts.set(texts.str.len_bytes() == 0, None) if len(texts) else texts, 0
    distinct = values.unique().drop_nulls()
    fixed = [(value, value.decode(errors="replace")) for value in distinct]
    bad = pl.Series([value for value, text in fixed if text.encode() != value], dtype=pl.Binary)
    table = pl.DataFrame(
        {"raw": [value for value, _ in fixed], "text": [text for _, text in fixed]}, schema={"raw": pl.Binary, "text": pl.String}
    )
    joined = pl.DataFrame({"raw": values}).join(table, on="raw", how="left", maintain_order="left")["text"]
    return joined.set((joined.str.len_bytes() == 0).fill_null(value=False), None), int(values.is_in(bad.implode()).sum())


def whole(value: object) -> int | None:
    """A metadata value as a whole number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else None
    return value if isinstance(value, int) else None


def text(value: object) -> str | None:
    """A metadata value as a stripped text; None when it is empty or no text."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.strip() or None if isinstance(value, str) else None


def damaged(name: str, reason: str) -> InputError:
    """The error for an export whose content cannot be trusted."""
    return InputError(
        f"{name} is damaged: {reason}.",
        effect="Nothing was analysed, since a damaged export gives wrong numbers.",
        next_step="Copy it again, or export it again from the report: nsys export --type sqlite REPORT.nsys-rep",
    )


NO_VALUE = 0xFFFFFFFF  # CUPTI's "none" in stream and event ids
NO_KEY = -(2**62)  # stands for a missing name id, so that every row has a key
_THREAD_BITS = 1 << 24  # globalTid = process bits, then 24 bits of thread id

MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
METRICS = "GPU_METRICS"

# MEMCPY.copyKind: CUpti_ActivityMemcpyKind, and how nsys stats names it.
COPY_NAMES: Mapping[int, str] = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array", 6: "Array-to-Device",
    7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer", 11: "Unified Host-to-Device",
    12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
_COPY_KINDS: Mapping[int, str] = {
    **dict.fromkeys((1, 3, 11), "h2d"),
    **dict.fromkeys((2, 4, 12), "d2h"),
    **dict.fromkeys((5, 6, 7, 8, 13), "d2d"),
    9: "h2h",
    10: "p2p",
}
MEMSET_NAME, GRAPH_NAME = "[CUDA memset]", "CUDA graph"
_PAGEABLE, _PINNED = 0, 1  # CUpti_ActivityMemoryKind of a host side
_DEVICE_MEMORY = (2, 3, 4, 5, 6)  # device, array, managed, and the static ones: memory that a GPU holds
_METRIC_GPU_BITS = 256  # the low 8 bits of GPU_METRICS.typeId are TARGET_INFO_GPU.id


KEYS: Mapping[str, type[pl.DataType]] = {"key": pl.Int64, "short_key": pl.Int64}
PLACES: Mapping[str, type[pl.DataType]] = {"process": pl.Int64, "device": pl.Int32, "stream": pl.Int64}


class Events(RawTable, frozen=True, kw_only=True):
    """Mapped rows of one table: `frame` has columns of `schema`, process, and key where names are wanted.

    `keys` holds the distinct keys, each with the first short key seen, and `places` the distinct process, device and stream of
    device operations: both are gathered slice by slice, since looking for them in a whole table takes much memory.
    """

    names: str = ""  # the name space of `key`
    keys: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=KEYS))
    places: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PLACES))


def process_of(column: str) -> pl.Expr:
    """The process part of a globalPid or globalTid; 0 where it is not recorded."""
    return (pl.col(column) // _THREAD_BITS).fill_null(0).alias("process")


def distinct_keys(frame: pl.DataFrame) -> pl.DataFrame:
    """Distinct keys of a slice, each with the first short key that is not null."""
    if "short_key" not in frame.columns:
        return frame.select(pl.col("key").unique(), pl.lit(None, dtype=pl.Int64).alias("short_key"))
    return frame.group_by("key").agg(pl.col("short_key").drop_nulls().first()).select(list(KEYS))


def _small(column: str, name: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int32, strict=False).alias(name)


def _some(column: str, name: str) -> pl.Expr:
    """A value that is not CUPTI's "none"."""
    return pl.when(pl.col(column).is_between(0, NO_VALUE, closed="left")).then(pl.col(column)).alias(name)


def _not_zero(column: str, name: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(pl.col(column)).alias(name)


_OP: Wanted = {"start": "int", "end": "int", "deviceId": "int", "streamId": "int", "correlationId": "int", "globalPid": "int"}
_NODE: Wanted = {"graphNodeId": "int"}


def _op(kind: str) -> list[pl.Expr]:
    is_timed = (pl.col("start") != 0) | (pl.col("end") != 0)  # CUPTI writes both as 0 where it could not take them
    return [
        process_of("globalPid"),
        _small("deviceId", "device"),
        pl.when(is_timed).then(pl.col("start")).alias("start"),
        pl.col("end"),
        pl.lit(kind, dtype=OpKind).alias("kind"),
        pl.col("streamId").alias("stream"),
        _not_zero("correlationId", "correlation"),  # page migrations have 0: no call asked for them
    ]


def _kernels(name_column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def mapped(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(
            *_op("kernel"),
            _not_zero("graphNodeId", "graph_node"),
            pl.col(name_column).fill_null(NO_KEY).alias("key"),
            pl.col("shortName").alias("short_key"),
            *(_small(f"{shape}{axis}", f"{shape}_{axis.lower()}") for shape in ("grid", "block") for axis in "XYZ"),
            _small("registersPerThread", "registers"),
            (pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")).cast(pl.Int32, strict=False).alias("shared_memory"),
        )

    return mapped


def _copies(frame: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("copyKind").replace_strict(_COPY_KINDS, default="other", return_dtype=pl.String).cast(CopyKind)
    from_host, to_host = kind.is_in(["h2d", "h2h"]), kind.is_in(["d2h", "h2h"])
    pageable = (from_host & (pl.col("srcKind") == _PAGEABLE)).fill_null(value=False) | (
        to_host & (pl.col("dstKind") == _PAGEABLE)
    ).fill_null(value=False)
    pinned = (~from_host | (pl.col("srcKind") == _PINNED)) & (~to_host | (pl.col("dstKind") == _PINNED)) & (from_host | to_host)
    return frame.select(
        *_op("memcpy"),
        _not_zero("graphNodeId", "graph_node"),
        pl.col("copyKind").fill_null(0).alias("key"),
        pl.col("bytes"),
        kind.alias("copy_kind"),
        pl.when(pageable).then(pl.lit(value=False)).when(pinned).then(pl.lit(value=True)).alias("pinned"),
    )


def _sets(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(*_op("memset"), _not_zero("graphNodeId", "graph_node"), pl.lit(0, dtype=pl.Int64).alias("key"), pl.col("bytes"))


def _graphs(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(*_op("graph"), pl.lit(0, dtype=pl.Int64).alias("key"))


def _calls(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        process_of("globalTid"),
        pl.col("globalTid").alias("thread"),
        pl.col("start"),
        pl.col("end"),
        pl.col("nameId").fill_null(NO_KEY).alias("key"),
        pl.col("correlationId").alias("correlation"),
    )


def _system(frame: pl.DataFrame) -> pl.DataFrame:
    """The long calls of the operating system's libraries, as ranges."""
    return frame.filter(lasting >= NAMING_NS).select(
        process_of("globalTid"),
        pl.col("globalTid").alias("thread"),
        pl.col("start"),
        pl.col("end"),
        pl.lit(SYSTEM, dtype=RangeKind).alias("kind"),
        pl.col("nameId").fill_null(NO_KEY).alias("key"),
    )


def _wait(kind: pl.Expr, start: pl.Expr, end: pl.Expr, sync_id: pl.Expr) -> list[pl.Expr]:
    return [
        process_of("globalPid"),
        _small("deviceId", "device"),
        _some("streamId", "stream"),
        start.alias("start"),
        end.alias("end"),
        kind.alias("kind"),
        _some("eventId", "event"),
        pl.when(sync_id).then(pl.col("eventSyncId")).alias("sync_id"),
        pl.col("correlationId").alias("correlation"),
    ]


_HAS_SYNC_ID = (pl.col("eventSyncId") > 0) & (pl.col("eventSyncId") < NO_VALUE)


def _waits(frame: pl.DataFrame) -> pl.DataFrame:
    """Synchronisations. What kind one is follows from which ids it has, not from `syncType`.

    Exporters up to 2024 wrote three different numberings of syncType under one enumeration (a cudaDeviceSynchronize is 0, 1
    or 4); with a stream, an event, both or neither, the four kinds are told apart in every version.
    """
    has_stream, has_event = _some("streamId", "stream").is_not_null(), _some("eventId", "event").is_not_null()
    kind = (
        pl.when(has_stream & has_event)
        .then(pl.lit("stream_wait", dtype=WaitKind))
        .when(has_stream)
        .then(pl.lit("stream_sync", dtype=WaitKind))
        .when(has_event)
        .then(pl.lit("event_sync", dtype=WaitKind))
        .otherwise(pl.lit("device_sync", dtype=WaitKind))
    )
    return frame.select(_wait(kind, pl.col("start"), pl.col("end"), has_event & _HAS_SYNC_ID))


def _records(frame: pl.DataFrame) -> pl.DataFrame:
    """Event records. Their own `timestamp` is the device's and usually 0, so the host call is found by correlation."""
    none = pl.lit(None, dtype=pl.Int64)
    return frame.select(_wait(pl.lit("record", dtype=WaitKind), none, none, _HAS_SYNC_ID))


def _usage(released: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def mapped(frame: pl.DataFrame) -> pl.DataFrame:
        sign = pl.when(pl.col("memoryOperationType") == released).then(-1).otherwise(1)
        return frame.filter(pl.col("memKind").is_in(_DEVICE_MEMORY) | pl.col("memKind").is_null()).select(
            process_of("globalPid"), _small("deviceId", "device"), pl.col("start").alias("time"), (pl.col("bytes") * sign).alias("bytes")
        )

    return mapped


def _samples(frame: pl.DataFrame) -> pl.DataFrame:
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value"))
    return frame.select(
        (pl.col("typeId") % _METRIC_GPU_BITS).alias("gpu"),
        pl.col("timestamp").alias("time"),
        pl.col("metricId").fill_null(NO_KEY).alias("key"),
        value.alias("value"),
    )


_CALL: Wanted = {"start": "int", "end": "int", "globalTid": "int", "correlationId": "int", "nameId": "int"}
_WAIT: Wanted = {**_OP, "eventId": "int", "eventSyncId": "int"}
_RECORD: Wanted = {"deviceId": "int", "streamId": "int", "correlationId": "int", "globalPid": "int", "eventId": "int", "eventSyncId": "int"}
_SHAPE: Wanted = {
    **{f"{shape}{axis}": "int" for shape in ("grid", "block") for axis in "XYZ"},
    "registersPerThread": "int",
    "staticSharedMemory": "int",
    "dynamicSharedMemory": "int",
}
_USAGE: Wanted = {"start": "int", "globalPid": "int", "deviceId": "int", "bytes": "int", "memKind": "int", "memoryOperationType": "int"}
_SAMPLE: Wanted = {"timestamp": "int", "typeId": "int", "metricId": "int", "value": "real"}


def _read(
    source: Source, ledger: Ledger, schema: str, table: str, wanted: Wanted, mapper: Callable[[pl.DataFrame], pl.DataFrame], names: str = ""
) -> tuple[Events | None, Ledger]:
    if not source.columns(table):
        return None, ledger

    def slim(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        # rechunked: the columns that were only passed on would keep the larger buffers of the reader alive
        mapped = mapper(frame).rechunk()
        places = mapped.select(list(PLACES)).unique() if schema == "ops" else pl.DataFrame(schema=PLACES)
        return mapped.drop("short_key", strict=False), distinct_keys(mapped) if names else pl.DataFrame(schema=KEYS), places

    rows = source.rows(table, wanted, slim)
    frame = pl.concat([part for part, _, _ in rows.parts])
    ledger = ledger.note("wrong_type", table, rows.wrong_type).note("bad_text", table, rows.bad_text)
    # what a mapper leaves out is of a kind that is not analysed
    ledger = ledger.note("not_needed", table, rows.read - rows.wrong_type - frame.height)
    keys = pl.concat([keys for _, keys, _ in rows.parts]).unique("key", keep="first", maintain_order=True)
    places = pl.concat([places for _, _, places in rows.parts]).unique()
    return Events(schema=schema, table=table, frame=frame, read=rows.read, names=names, keys=keys, places=places), ledger


def _read_all(
    source: Source, ledger: Ledger, *tables: tuple[str, str, Wanted, Callable[[pl.DataFrame], pl.DataFrame], str]
) -> tuple[list[Events], Ledger]:
    """Those of the tables (the arguments of `_read`) that the export holds."""
    found = []
    for table in tables:
        events, ledger = _read(source, ledger, *table)
        found += [] if events is None else [events]
    return found, ledger


def read_operations(source: Source, ledger: Ledger) -> tuple[list[Events], Ledger]:
    """Kernels, copies, memory sets and whole-graph executions."""
    columns = source.columns(KERNEL)
    name_column = next((name for name in ("demangledName", "mangledName", "shortName") if name in columns), "demangledName")
    kernel = {**_OP, **_NODE, **_SHAPE, name_column: "int", "shortName": "int"}
    return _read_all(
        source,
        ledger,
        ("ops", KERNEL, kernel, _kernels(name_column), "kernel"),
        ("ops", MEMCPY, {**_OP, **_NODE, "bytes": "int", "copyKind": "int", "srcKind": "int", "dstKind": "int"}, _copies, "copy"),
        ("ops", MEMSET, {**_OP, **_NODE, "bytes": "int"}, _sets, "set"),
        ("ops", GRAPH, _OP, _graphs, "graph"),
    )


def read_others(source: Source, ledger: Ledger) -> tuple[list[Events], Ledger]:
    """API calls, long ones of the operating system, synchronisations, stream waits and event records, and memory usage.

    The last is recorded by nsys profile --cuda-memory-usage=true.
    """
    kinds = source.small("ENUM_CUDA_DEV_MEM_EVENT_OPER")
    released = [row["id"] for row in kinds if "DEALLOC" in str(row.get("name", "")).upper() and isinstance(row.get("id"), int)]
    return _read_all(
        source,
        ledger,
        ("calls", RUNTIME, _CALL, _calls, "api"),
        ("calls", DRIVER, _CALL, _calls, "api"),
        ("ranges", OSRT, {name: kind for name, kind in _CALL.items() if name != "correlationId"}, _system, "api"),
        ("waits", SYNC, _WAIT, _waits, ""),
        ("waits", EVENT, _RECORD, _records, ""),
        ("memory", MEMORY_USAGE, _USAGE, _usage(int(str((released or [1])[0]))), ""),
    )


def read_metrics(source: Source, ledger: Ledger) -> tuple[Events | None, Ledger]:
    """GPU metric samples, with column `gpu` (TARGET_INFO_GPU.id) instead of process and device."""
    return _read(source, ledger, "counters", METRICS, _SAMPLE, _samples, "metric")
