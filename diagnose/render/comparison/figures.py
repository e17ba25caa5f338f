"""The figures of the page on a comparison: both budgets on one scale, and the way from the base's step to the new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diagnose.document.comparison import Category, Comparison, StepDelta
from diagnose.render import drawings, units
from diagnose.render.drawings import Bar, Drawing
from diagnose.render.figures import Figure, axis_of, layout_of, literal, marker_of
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison import words as own

MOST_STEPS = 14  # categories that have a bar of their own on the way
SIDE, MORE, LESS = "#6b7683", "#d55e00", "#0072b2"
_WORTH = 0.02  # of the largest difference: what is smaller and within noise shares one bar
_LEAST_RANGE = 0.01  # of the step: less than that is not blown up to the whole width
_PATTERN = {SIDE: "", MORE: "", LESS: "/"}
_LABEL = {SIDE: "the whole", MORE: "takes longer", LESS: "takes less"}


def drawn(document: Comparison) -> dict[str, tuple[Figure, Drawing]]:
    """Key, plotly figure and static drawing of each figure that has something to show."""
    found = document.delta
    if found is None or not (found.base_ns or found.new_ns):
        return {}
    figures = {"budgets": _budgets(document, found)}
    if any(row.delta_ns for row in found.categories):
        figures["waterfall"] = _waterfall(document, found)
    return figures


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


# --- both budgets -----------------------------------------------------------------------------------------------------


def _budgets(document: Comparison, found: StepDelta) -> tuple[Figure, Drawing]:
    rows = sorted((row for row in found.categories if row.base_ns or row.new_ns), key=lambda row: own.look(row.category).order)
    traces = [_segment(row, found) for row in rows]
    layout = layout_of(140, barmode="stack", xaxis=axis_of("ms"), yaxis=axis_of(autorange="reversed", type="category", showgrid=False))
    figure: Figure = {"data": traces, "layout": layout}
    caption = f"The {story.whole(document)} of both runs on one scale. The parts of a bar add up to it, exactly."
    return figure, drawings.stacked("budgets", "Where the time went, before and after", caption, figure)


def _segment(row: Category, found: StepDelta) -> dict[str, Any]:
    look = own.look(row.category)
    times, steps = (row.base_ns, row.new_ns), (found.base_ns, found.new_ns)
    return {
        "type": "bar",
        "orientation": "h",
        "name": literal(look.label),
        "y": ["base", "new"],
        "x": [_ms(time) for time in times],
        "customdata": [
            [literal(look.label), units.percent(time / step if step else None), units.signed_ms(row.delta_ns)]
            for time, step in zip(times, steps, strict=True)
        ],
        "hovertemplate": "%{customdata[0]}<br>%{x:.3f} ms · %{customdata[1]} of %{y}<br>new less base: %{customdata[2]} ms<extra></extra>",
        "marker": marker_of(look.colour, look.pattern),
    }


# --- the way from one step to the other -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Leg:
    """One bar of the way, in ns: where it begins and ends, what it says, and what it is drawn as."""

    label: str
    start: int
    end: int
    colour: str
    text: str


def _legs(document: Comparison, found: StepDelta) -> Iterator[_Leg]:
    """The base's step, every category that differs, what is left, the new step: each begins where the one before ends."""
    yield _Leg(label="base", start=0, end=found.base_ns, colour=SIDE, text=f"{units.ms(found.base_ns)} ms")
    rows = [row for row in tables.ordered_categories(document) if row.delta_ns]
    worth = [row for row in rows if row.moved or abs(row.delta_ns) >= _WORTH * abs(rows[0].delta_ns)][:MOST_STEPS]
    now = found.base_ns
    for row in worth:
        yield _leg(own.look(row.category).label, now, row.delta_ns)
        now += row.delta_ns
    if len(rows) > len(worth):
        yield _leg(units.plural(len(rows) - len(worth), "other"), now, found.new_ns - now)
    yield _Leg(label="new", start=0, end=found.new_ns, colour=SIDE, text=f"{units.ms(found.new_ns)} ms")


def _leg(label: str, start: int, delta: int) -> _Leg:
    return _Leg(label=label, start=start, end=start + delta, colour=MORE if delta >= 0 else LESS, text=f"{units.signed_ms(delta)} ms")


def _range(legs: list[_Leg], found: StepDelta) -> tuple[int, int]:
    """The axis in ns: from nought where the difference is large, else from a little below all that differs."""
    ends = [leg.end for leg in legs]
    low, high = min(ends), max(ends)
    room = max(high - low, round(_LEAST_RANGE * found.base_ns))
    start = low - room // 3
    return (0 if start < high // 4 else start), high + room // 20


def _waterfall(document: Comparison, found: StepDelta) -> tuple[Figure, Drawing]:
    legs = list(_legs(document, found))
    low, high = _range(legs, found)
    figure = _waterfall_figure(legs, low, high)
    cut = f" The axis begins at {units.ms(low)} ms." if low else ""
    caption = f"From the base's {story.whole(document)} to the new one, what differs most first; the bars add up exactly.{cut}"
    scale = 100 / ((high - low) or 1)
    bars = tuple(Bar(label=leg.label, text=leg.text, parts=(_part(leg, low, scale),)) for leg in legs)
    shown = {leg.colour for leg in legs}
    legend = tuple((_LABEL[colour], colour, drawings.PATTERN.get(_PATTERN[colour], "")) for colour in (SIDE, MORE, LESS) if colour in shown)
    title = "The way from base to new"
    return figure, Drawing(key="waterfall", title=title, caption=caption, bars=bars, legend=legend, floating=True)


def _ends(leg: _Leg, low: int) -> tuple[int, int]:
    """Where a bar begins and ends on the axis."""
    first, last = sorted((max(leg.start, low), leg.end))
    return first, last


def _part(leg: _Leg, low: int, scale: float) -> drawings.Part:
    first, last = _ends(leg, low)
    return drawings.Part(
        left=round((first - low) * scale, 4),
        width=round(max((last - first) * scale, 0.15), 4),
        colour=leg.colour,
        pattern=drawings.PATTERN.get(_PATTERN[leg.colour], ""),
        label=leg.label,
        text=leg.text,
    )


def _waterfall_figure(legs: list[_Leg], low: int, high: int) -> Figure:
    traces = []
    for colour in (SIDE, MORE, LESS):
        mine = [leg for leg in legs if leg.colour == colour]
        if not mine:
            continue
        ends = [_ends(leg, low) for leg in mine]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _LABEL[colour],
                "y": [literal(leg.label) for leg in mine],
                "base": [_ms(first) for first, _ in ends],
                "x": [_ms(last - first) for first, last in ends],
                "text": [leg.text for leg in mine],
                "textposition": "outside" if colour != SIDE else "auto",
                "cliponaxis": False,
                "customdata": [[literal(leg.label), leg.text] for leg in mine],
                "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
                "marker": marker_of(colour, _PATTERN[colour]),
            }
        )
    order = [literal(leg.label) for leg in legs]
    layout = layout_of(
        66 + 28 * len(legs),
        barmode="overlay",
        xaxis=axis_of("ms", range=[_ms(low), _ms(high + (high - low) // 8)]),
        yaxis=axis_of(type="category", categoryorder="array", categoryarray=order, range=[len(order) - 0.5, -0.5], showgrid=False),
    )
    return {"data": traces, "layout": layout}
