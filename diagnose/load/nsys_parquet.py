"""Parquet exports of Nsight Systems (`nsys export --type parquetdir`): a folder with one file per table.

The tables are those of the SQLite export; only the column types differ (ids are unsigned, shapes 32-bit), and an absent table is
an absent file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load.conform import RawTrace, conform
from diagnose.load.files import Opening, Reader, is_parquet_folder, refused, unreadable_folder
from diagnose.load.nsys_tables import EVENT_TABLES, META_TABLES, STRINGS, Rows, T, Wanted, damaged, shaped
from diagnose.load.nsys_trace import build
from diagnose.model.ledger import Ledger

_SLICE = 1 << 20
_SMALL_ROWS = 100_000
_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


class ParquetSource(Struct, frozen=True):
    """One Parquet export. `schemas` maps each table to the types of its columns, `files` to its file."""

    name: str
    files: dict[str, Path]
    schemas: dict[str, dict[str, pl.DataType]]

    def columns(self, table: str) -> frozenset[str]:
        """Column names of a table; empty when it is absent."""
        return frozenset(self.schemas.get(table, ()))

    def _collect(self, table: str, frame: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        try:
            return frame(pl.scan_parquet(self.files[table], glob=False)).collect()
        except _FAILURES:
            raise damaged(self.name, f"its table {table} cannot be read") from None

    def small(self, table: str) -> list[dict[str, object]]:
        """All rows of a small table (the first 100 000 at most)."""
        return self._collect(table, lambda frame: frame.head(_SMALL_ROWS)).to_dicts() if self.columns(table) else []

    def holding(self, table: str, columns: Sequence[str]) -> str | None:
        """The first of `columns` in which any row has a value."""
        present = [column for column in columns if column in self.columns(table)]
        if not present:
            return None
        filled = self._collect(table, lambda frame: frame.select(pl.col(present).is_not_null().any())).row(0)
        return next((column for column, is_filled in zip(present, filled, strict=True) if is_filled), None)

    def strings(self, ids: Sequence[int]) -> tuple[pl.DataFrame, int]:
        """Texts of StringIds for `ids`. Parquet texts are valid UTF-8 by construction."""
        if not {"id", "value"} <= self.columns(STRINGS):
            return pl.DataFrame(schema={"id": pl.Int64, "text": pl.String}), 0
        wanted = pl.Series(ids, dtype=pl.Int64)
        columns = (pl.col("id").cast(pl.Int64, strict=False), pl.col("value").cast(pl.String, strict=False).alias("text"))
        found = self._collect(STRINGS, lambda frame: frame.select(columns).filter(pl.col("id").is_in(wanted.implode())))
        return found.unique("id", keep="first", maintain_order=True), 0

    def rows(self, table: str, wanted: Wanted, mapper: Callable[[pl.DataFrame], T]) -> Rows[T]:
        """Slices of a table, see `nsys_tables.Source.rows`."""
        present = [name for name in wanted if name in self.columns(table)]
        total = int(self._collect(table, lambda frame: frame.select(pl.len())).item())
        parts, wrong = [], 0
        for first in range(0, max(total, 1), _SLICE):
            raw = self._collect(table, lambda frame, at=first: frame.select(present).slice(at, _SLICE))  # type: ignore[misc]
            frame, refused = _exact(raw, wanted)
            parts.append(mapper(shaped(frame, wanted)))
            wrong += refused
        return Rows(parts=tuple(parts), read=total, wrong_type=wrong)


def _exact(raw: pl.DataFrame, wanted: Wanted) -> tuple[pl.DataFrame, int]:
    """The slice in the wanted types, without rows that hold another type; and how many those were."""
    casts, lost = [], pl.lit(value=False)
    for name, dtype in raw.schema.items():
        kind = wanted[name]
        column = pl.col(name)
        if kind == "int":
            exact = column.cast(pl.Int64, strict=False) if dtype.is_integer() or dtype == pl.Boolean else _from_float(column, dtype)
            casts.append(exact.alias(name))
            lost |= column.is_not_null() & exact.is_null()
        elif kind == "real":
            casts.append(column.cast(pl.Float64, strict=False) if dtype.is_numeric() else pl.lit(None, dtype=pl.Float64).alias(name))
        elif kind == "text":
            text = column.cast(pl.String, strict=False) if dtype in (pl.String, pl.Categorical) else pl.lit(None, dtype=pl.String)
            casts.append(pl.when(text.str.len_bytes() > 0).then(text).alias(name))
        else:
            casts.append(column.cast(pl.Binary) if dtype in (pl.String, pl.Binary) else pl.lit(None, dtype=pl.Binary).alias(name))
    if not casts:
        return raw, 0
    kept = raw.filter(~lost)
    return kept.select(casts), raw.height - kept.height


def _from_float(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Whole numbers below 2^53 that were stored as floats; everything else is null."""
    if not dtype.is_float():
        return pl.lit(None, dtype=pl.Int64)
    return pl.when((column.abs() < 2**53) & (column == column.floor())).then(column).cast(pl.Int64, strict=False)


def _open(folder: Path, name: str) -> ParquetSource:
    files = {item.stem: item for item in sorted(folder.iterdir()) if item.suffix == ".parquet" and item.is_file()}
    schemas: dict[str, dict[str, pl.DataType]] = {}
    for table, file in files.items():
        if table not in _NEEDED and not table.startswith(("TARGET_INFO_", "ENUM_", "META_DATA_")):
            continue
        try:
            schemas[table] = dict(pl.read_parquet_schema(file))
        except _FAILURES:
            raise damaged(name, f"its table {table} cannot be read") from None
    return ParquetSource(name, files, schemas)


_NEEDED = frozenset(
    (
        *EVENT_TABLES,
        *META_TABLES,
        "ANALYSIS_DETAILS",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        "DIAGNOSTIC_EVENT",
        "NVTX_PAYLOAD_SCHEMAS",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "PROFILER_OVERHEAD",
        "ThreadNames",
    )
)


def read(path: Path, *, rank: int | None = None, rules: EnvironmentRules | None = None) -> RawTrace:
    """One Parquet export folder as raw tables; arguments as of `nsys_sqlite.read`. Raises InputError for foreign or damaged files."""
    name = path.name
    try:
        source = _open(path, name)
        size = sum(file.stat().st_size for file in source.files.values())
    except OSError as error:
        raise unreadable_folder(path, error) from None
    if not source.schemas.keys() & set(EVENT_TABLES):
        raise refused(f"{name} holds no tables of events of Nsight Systems.", "Give the folder that nsys export --type parquetdir wrote.")
    return build(source, file=name, size=size, format_="nsys-parquet", rank=rank, ledger=Ledger(), rules=rules)


def _start(path: Path) -> int | None:
    """Start of the capture in ns since 1970, as the export tells it; None where it does not."""
    file = path / "TARGET_INFO_SESSION_START_TIME.parquet"
    try:
        found = pl.read_parquet(file)["utcEpochNs"].drop_nulls().to_list() if file.is_file() else []
    except pl.exceptions.PolarsError:
        return None
    return int(found[0]) if found and int(found[0]) > 0 else None


def _recognises(given: Opening) -> bool:
    try:
        return given.is_folder and is_parquet_folder(given.path)
    except OSError as error:
        raise unreadable_folder(given.path, error) from None


READER = Reader(
    name="nsys-parquet",
    recognises=_recognises,
    load=lambda path, rank, _nsys, rules: conform(read(path, rank=rank, rules=rules)),
    start=_start,
)
