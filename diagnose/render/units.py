"""How numbers and names are written for people: one spelling of every unit, the same in every output.

A figure that was not measured is `None` and is written "–" in tables and "not measured" in sentences, never as zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.document.forecast import Span
    from diagnose.model.vocabulary import FactValue


MISSING = "–"
NOT_MEASURED = "not measured"
MANY = 10  # times as fast, from where on a factor has no decimals
SHORT = 10  # units of time below which a forecast is told in tenths, however wide its range

_KIB = 1024.0
_TENTH_NS = 100_000  # ns, of a millisecond


def ms(ns: float | None, width_ns: float = 0) -> str:
    """`ns` nanoseconds as milliseconds with three decimals, or one where they are known no better than to `width_ns`; without the unit."""
    return MISSING if ns is None else f"{ns / 1e6:,.{_decimals(width_ns)}f}"


def _decimals(width_ns: float) -> int:
    return 1 if width_ns >= _TENTH_NS else 3


def ms_unit(ns: float | None) -> str:
    """The same for sentences: with its unit, or "not measured"."""
    return NOT_MEASURED if ns is None else f"{ms(ns)} ms"


_SCALES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def scale(ns: float | None) -> tuple[str, float]:
    """The unit in which a time reads best, and its length in ns: ms from 0.1 ms up to 100 s, which people compare steps in."""
    size = abs(ns or 0.0)
    if not size:
        return "ms", 1e6
    return next(
        ((unit, length) for unit, length in _SCALES if size >= length * (100 if unit == "s" else 0.1 if unit == "ms" else 1)), _SCALES[-1]
    )


def time(ns: float | None) -> str:
    """A time with the unit that suits it; "not measured" where it was not."""
    if ns is None:
        return NOT_MEASURED
    unit, length = scale(ns)
    return f"{ns / length:,.{decimals(ns)}f} {unit}"


def decimals(ns: float) -> int:
    """How many decimals a time has in the unit that suits it: one, below one of that unit three."""
    unit, length = scale(ns)
    return 0 if unit == "ns" else 3 if 0 < abs(ns) < length else 1


def forecast(ns: int, span: Span) -> str:
    """A time of a forecast in the unit of the step as it is now: tenths where its range is narrower than one unit or the time is short.

    Of a step shorter than one unit hundredths.
    """
    unit, length = scale(span.now)
    wide = span.high - span.low >= length and span.likely >= SHORT * length
    return f"{ns / length:,.{2 if span.now < length else 0 if wide else 1}f} {unit}"


def between(span: Span) -> str:
    """The range of a forecast: `86–95 ms`."""
    low, high = forecast(span.low, span), forecast(span.high, span)
    return high if low == high else f"{low.partition(' ')[0]}–{high}"


def signed_ms(ns: float | None, width_ns: float = 0) -> str:
    """The same with a sign, which zero has not."""
    if ns is None:
        return MISSING
    shown = f"{ns / 1e6:+,.{_decimals(width_ns)}f}"
    return shown if shown.strip("+-0.") else shown[1:]


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 0..1 as percent; a share above zero never reads as zero."""
    if share is None:
        return MISSING
    least = 0.1**digits / 100
    if 0 < share < least / 2:
        return f"< {least * 100:.{digits}f} %"
    return f"{share * 100:.{digits}f} %"


def at_most(share: float) -> str:
    """A share that bounds: `at most 2.9 %`; what is below the least that is shown says so by itself."""
    shown = percent(share)
    return shown if shown.startswith("<") else f"at most {shown}"


def signed_percent(share: float | None, digits: int = 1) -> str:
    """A relative change with its sign, which none has not; a change is never shown as none."""
    if share is None:
        return MISSING
    if not share:
        return f"{0:.{digits}f} %"
    sign = "+" if share > 0 else "-"
    shown = percent(abs(share), digits)
    if not shown.startswith("<"):
        return f"{sign}{shown}"
    return f"{'<' if share > 0 else '>'} {sign}{shown[2:]}" if digits else signed_percent(share, 1)


def bracketed(change: float | None) -> str:
    """A relative change behind two values: ` (+3.0 %)`; nothing where it is not known."""
    return "" if change is None else f" ({signed_percent(change)})"


def count(value: float | None) -> str:
    """A count with thousands separated; a median between two counts keeps its half."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Bytes in the binary unit that fits."""
    if value is None:
        return MISSING
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < _KIB:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= _KIB
    return f"{amount:,.1f} TiB"


def factor(value: float | None) -> str:
    """A speed-up factor; infinite when the bound is the whole step. From ten on no bound is so well known that decimals would tell more."""
    if value is None:
        return MISSING
    return "∞" if value == float("inf") else f"{value:,.{2 if value < MANY else 0}f}×"


def rate(value: float | None) -> str:
    """GB/s (10⁹ bytes), without the unit."""
    return MISSING if value is None else f"{value:,.1f}"


def fact(value: FactValue, unit: str) -> str:
    """A fact with its unit, as a reader wants it."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    known: dict[str, Callable[[float], str]] = {"ns": ms_unit, "share": percent, "bytes": size, "count": count}
    return known[unit](value) if unit in known else f"{value:,} {unit}".strip()


def plural(number: int, one: str, many: str = "") -> str:
    """`3 steps`, `1 step`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(items: Sequence[object], most: int) -> str:
    """The first of many things, and how many more there are."""
    return ", ".join(map(str, items[:most])) + (f" and {len(items) - most} more" if len(items) > most else "")


_UNIT = re.compile(r" (?<=\d )(?=(?:%|ms|µs|ns|GB/s|[KMGT]iB)(?!\w))")  # a space first, which is quick to search for


def glued(text: str, sign: str = "\u00a0") -> str:
    """`text` in which a number and its unit stay on one line, held by `sign`."""
    return _UNIT.sub(sign, text)


# --- figures that add up -----------------------------------------------------------------------------------------------


def adding_up(values: Sequence[float], whole: float, digits: int = 1, *, told: Sequence[bool] | None = None) -> list[str]:
    """Values with `digits` decimals that add up to `whole` as printed, none off by a unit of the last.

    What rounding leaves goes to small ones, those nearest to their other neighbour first. Large ones stand in sentences too (those of
    `told`, where it is given): of these it goes to the last, where it must.
    """
    unit = 10**digits
    pieces = [round(value * unit) for value in values]
    left = round(whole * unit) - sum(pieces)
    change = 1 if left > 0 else -1
    over = [(value * unit - piece) * change for value, piece in zip(values, pieces, strict=True)]
    large = [10 * value > whole and (told is None or told[place]) for place, value in enumerate(values)]
    order = sorted(range(len(pieces)), key=lambda place: (over[place] <= 0, large[place], -place if large[place] else -over[place]))
    for place in order[: abs(left)]:
        pieces[place] += change
    return [f"{piece / unit:,.{digits}f}" for piece in pieces]
