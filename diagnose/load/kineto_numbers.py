"""Loosely written numbers as exact columns: ids, sizes, and microseconds as nanoseconds."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import polars as pl

from diagnose.load.kineto_events import Event, ExactEvent

_DIGITS = re.compile(r"\s*(?:stream\s+)?(-?\d{1,18})\b")
_LAST_US = 3_000_000_000_000_000  # ± 95 years: sums and differences of nanoseconds stay within 64 bits
_UNSIGNED_MINUS_ONE = (1 << 32) - 1


def thread_number(tid: object) -> int:
    """A stable number for a thread or stream id: the id itself, the number in its text, else a negative hash of it."""
    if isinstance(tid, int) and -(1 << 63) <= tid < 1 << 63:
        return tid
    text = "" if tid is None else str(tid)
    match = _DIGITS.match(text)
    return int(match.group(1)) if match else -2 - zlib.crc32(text.encode("utf-8", errors="replace"))


def integer(value: object, *, bits: int = 63) -> int | None:
    """`value` as a 64-bit integer, also where it is written as text or with a zero fraction; None where it is neither."""
    if isinstance(value, str):
        match = _DIGITS.match(value)
        value = int(match.group(1)) if match else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << bits:
        return None
    return value if value < 1 << 63 else value - (1 << 64)


def integers(name: str, values: Sequence[object], dtype: type[pl.DataType] = pl.Int64) -> pl.Series:
    """A column of integers; what isn't one or doesn't fit becomes null."""
    try:
        column = pl.Series(name, values, dtype=pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        column = pl.Series(name, [integer(value) for value in values], dtype=pl.Int64)
    return column if dtype == pl.Int64 else column.cast(dtype, strict=False)


def present(name: str, values: Sequence[object]) -> pl.Series:
    """Integers of which −1, also written as an unsigned number, means "none"."""
    column = integers(name, values)
    return column.to_frame().select(pl.when((pl.col(name) >= 0) & (pl.col(name) != _UNSIGNED_MINUS_ONE)).then(pl.col(name)))[name]


def times(group: Sequence[Event | ExactEvent]) -> tuple[pl.Series, pl.Series]:
    """Columns start and end in nanoseconds, exact: both numbers are rounded to the nearest one (half to even) on their own."""
    if isinstance(group[0], ExactEvent):
        start = exact_ns([event.ts for event in group])
        length = exact_ns([event.dur for event in group])
    else:
        start, length = (whole_ns(values) for values in ([event.ts for event in group], [event.dur for event in group]))
    return start.alias("start"), (start + length).alias("end")


def instants(group: Sequence[Event | ExactEvent]) -> pl.Series:
    """The time of each event in nanoseconds."""
    if isinstance(group[0], ExactEvent):
        return exact_ns([event.ts for event in group])
    return whole_ns([event.ts for event in group])


def whole_ns(microseconds: Sequence[object]) -> pl.Series:
    """Integer microseconds as nanoseconds; null where out of range."""
    column = integers("us", microseconds)
    low, high = column.min(), column.max()
    if isinstance(low, int) and isinstance(high, int) and not -_LAST_US <= low <= high <= _LAST_US:
        column = column.to_frame().select(pl.when(pl.col("us").is_between(-_LAST_US, _LAST_US)).then("us"))["us"]
    return column * 1000


def exact_ns(texts: Sequence[Any]) -> pl.Series:
    """Numbers written as text, in microseconds, as nanoseconds rounded half to even; null where out of range or no number.

    Eighteen decimals are held exactly; longer ones (no profiler writes them) go through Python's decimals.
    """
    joined = b"\n".join(texts).decode("ascii", errors="replace")
    column = pl.Series("us", joined.split("\n"), dtype=pl.String)
    if len(column) != len(texts):  # an object or list with line breaks stands where a number belongs
        column = pl.Series("us", [bytes(text).decode("ascii", errors="replace").replace("\n", " ") for text in texts], dtype=pl.String)
    if '"' in joined:
        column = column.str.strip_chars('" ')
    number = pl.col("us").cast(pl.Decimal(38, 18), strict=False)
    rounded = (pl.when(number.is_between(-_LAST_US, _LAST_US)).then(number) * 1000).round(0, mode="half_to_even")
    frame = column.to_frame().select(rounded.cast(pl.Int64, strict=False).alias("ns"), (pl.col("us").str.len_bytes() > 34).alias("long"))
    if not frame["long"].any():
        return frame["ns"]
    slow = [_decimal_ns(text) if is_long else ns for text, is_long, ns in zip(column, frame["long"], frame["ns"], strict=True)]
    return pl.Series("ns", slow, dtype=pl.Int64)


def _decimal_ns(text: str) -> int | None:
    try:
        number = Decimal(text[:400]) * 1000
    except InvalidOperation:
        return None
    return int(number.to_integral_value()) if number.is_finite() and abs(number) <= _LAST_US * 1000 else None
