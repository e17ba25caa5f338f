"""What the mapping of Nsight Systems tables asks of an export, whatever its file format.

SQLite and Parquet exports hold the same tables. A `Source` hides how they are stored; the mapping modules
(`nsys_tables`, `nsys_nvtx`, `nsys_meta`) see frames with exactly the columns that they asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import polars as pl

from diagnose.errors import InputError

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
STRINGS = "StringIds"

# Any one of these makes a database an export of Nsight Systems.
EVENT_TABLES = (
    KERNEL,
    MEMCPY,
    MEMSET,
    GRAPH,
    RUNTIME,
    DRIVER,
    SYNC,
    EVENT,
    NVTX,
    "OSRT_API",
    "COMPOSITE_EVENTS",
    "SCHED_EVENTS",
    "GPU_METRICS",
)
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", STRINGS, "ProcessStreams", "TARGET_INFO_SESSION_START_TIME")


@dataclass(frozen=True, kw_only=True)
class Rows(Generic[T]):
    """Mapped slices of one table, in row order, with the counts that the ledger needs."""

    parts: tuple[T, ...] = ()
    read: int = 0
    wrong_type: int = 0
    bad_text: int = 0


class Source(Protocol):
    """One opened export."""

    def tables(self) -> frozenset[str]:
        """Names of all tables, empty ones included."""
        ...

    def columns(self, table: str) -> frozenset[str]:
        """Column names of a table; empty when it is absent."""
        ...

    def rows(self, table: str, wanted: Wanted, mapper: Callable[[pl.DataFrame], T]) -> Rows[T]:
        """`mapper` applied to slices of a table, each with exactly the columns `wanted` (absent ones null).

        Rows with a value of another type are left out and counted. Slices may be mapped in several threads.
        """
        ...

    def small(self, table: str) -> list[dict[str, object]]:
        """All rows of a small table; an absent one has none. Values of unexpected types are passed on."""
        ...

    def strings(self, ids: Sequence[int]) -> tuple[pl.DataFrame, int]:
        """The texts of StringIds for distinct `ids`: columns id (Int64), text; and how many held invalid UTF-8."""
        ...

    def holding(self, table: str, columns: Sequence[str]) -> str | None:
        """The first of `columns` in which any row has a value."""
        ...


def shaped(frame: pl.DataFrame, wanted: Wanted) -> pl.DataFrame:
    """`frame` with exactly the columns `wanted`, in their order; absent ones are null."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype=POLARS_TYPES[kind]).alias(name) for name, kind in wanted.items()
    )


def decoded(values: pl.Series) -> tuple[pl.Series, int]:
    """Binary texts as String, empty ones as null, invalid UTF-8 replaced; and how many rows were invalid.

    The bytes are checked: Arrow would hand invalid UTF-8 on as if it were valid.
    """
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
