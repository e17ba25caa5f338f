"""The figures of a comparison: both budgets on one scale, and the way from the base's step to the new one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.comparison import Category, Comparison, StepDelta
from diagnose.render import units
from diagnose.render.figures.figure import Axis, Bar, Bars, Figure, Layer, Look, Note, label, ms, stacked
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison.story import look

MOST_STEPS = 14  # categories that have a bar of their own on the way
SIDE = Look("the whole", "#6b7683")
MORE = Look("takes longer", "#d55e00")
LESS = Look("takes less", "#0072b2", "/")
_WORTH = 0.02  # of the largest difference: what is smaller and within noise shares one bar
_LEAST_RANGE = 0.01  # of the step: less than that is not blown up to the whole width


def figures(document: Comparison) -> Iterator[Figure]:
    """Each figure that has something to show."""
    delta = document.delta
    if delta is None or not (delta.base_ns or delta.new_ns):
        return
    yield budgets(document, delta)
    if any(row.delta_ns for row in delta.categories):
        yield waterfall(document, delta)


def budgets(document: Comparison, delta: StepDelta) -> Figure:
    """Two bars, whose parts add up to the steps exactly."""
    rows = sorted((row for row in delta.categories if row.base_ns or row.new_ns), key=lambda row: look(row.category).order)
    figure = Figure(
        key="budgets",
        title="Where the time went, before and after",
        caption=f"The {story.whole(document)} of both runs on one scale. The parts of a bar add up to it, exactly.",
        x=Axis(title="ms"),
        y=Axis(names=("base", "new")),
    )
    return stacked(figure, "{0}\n{1} ms · {2} of {3}\nnew less base: {4} ms", [_layer(row, delta) for row in rows])


def _layer(row: Category, delta: StepDelta) -> Layer:
    shape = replace(look(row.category), label=label(look(row.category).label))
    sides = (("base", row.base_ns, delta.base_ns), ("new", row.new_ns, delta.new_ns))
    spans = [
        (place, time, (shape.label, units.ms(time), units.percent(time / step if step else None), side, units.signed_ms(row.delta_ns)))
        for place, (side, time, step) in enumerate(sides)
    ]
    return shape, spans


# --- the way from one step to the other -------------------------------------------------------------------------------


class Leg(Struct, frozen=True, kw_only=True):
    """One bar of the way, in ns: where it begins and ends, what it says, and what it is drawn as."""

    label: str
    start: int
    end: int
    look: Look
    text: str


def legs(document: Comparison, delta: StepDelta) -> Iterator[Leg]:
    """The base's step, every category that differs, what is left, the new step: each begins where the one before ends."""
    yield Leg(label="base", start=0, end=delta.base_ns, look=SIDE, text=f"{units.ms(delta.base_ns)} ms")
    rows = [row for row in tables.ordered_categories(document) if row.delta_ns]
    worth = [row for row in rows if row.moved or abs(row.delta_ns) >= _WORTH * abs(rows[0].delta_ns)][:MOST_STEPS]
    now = delta.base_ns
    for row in worth:
        yield _leg(look(row.category).label, now, row.delta_ns)
        now += row.delta_ns
    if len(rows) > len(worth):
        yield _leg(units.plural(len(rows) - len(worth), "other"), now, delta.new_ns - now)
    yield Leg(label="new", start=0, end=delta.new_ns, look=SIDE, text=f"{units.ms(delta.new_ns)} ms")


def _leg(text: str, start: int, more: int) -> Leg:
    return Leg(label=text, start=start, end=start + more, look=MORE if more >= 0 else LESS, text=f"{units.signed_ms(more)} ms")


def _range(way: list[Leg], delta: StepDelta) -> tuple[int, int]:
    """The axis in ns: from nought where the difference is large, else from a little below all that differs."""
    ends = [leg.end for leg in way]
    low, high = min(ends), max(ends)
    room = max(high - low, round(_LEAST_RANGE * delta.base_ns))
    start = low - room // 3
    return (0 if start < high // 4 else start), high + room // 20


def waterfall(document: Comparison, delta: StepDelta) -> Figure:
    """What differs, most first, as bars that lead from one step to the other."""
    way = list(legs(document, delta))
    low, high = _range(way, delta)
    cut = f" The axis begins at {units.ms(low)} ms." if low else ""
    bars: dict[Look, list[Bar]] = {kind: [] for kind in (SIDE, MORE, LESS)}
    for row, leg in enumerate(way):
        first, last = sorted((max(leg.start, low), leg.end))
        bars[leg.look].append(Bar(row, ms(first), ms(last - first), (label(leg.label), leg.text)))
    return Figure(
        key="waterfall",
        title="The way from base to new",
        caption=f"From the base's {story.whole(document)} to the new one, what differs most first; the bars add up exactly.{cut}",
        x=Axis(title="ms", low=ms(low), high=ms(high + (high - low) // 7)),
        y=Axis(names=tuple(label(leg.label) for leg in way)),
        marks=tuple(Bars(look=kind, hover="{0}\n{1}", data=tuple(data)) for kind, data in bars.items() if data),
        notes=tuple(Note(x=ms(max(leg.start, leg.end)), y=row, text=leg.text) for row, leg in enumerate(way)),
    )
