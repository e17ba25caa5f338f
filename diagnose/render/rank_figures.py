"""The figures about ranks: what each rank's buckets take more or less than its like group, and the steps of each rank as own time and waiting.

Plain data for plotly as in `figures`, with the same care for texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import Ranks, StepTime
from diagnose.render import drawings, figures, units, words
from diagnose.render.reports.diagnosis.tables import per
from diagnose.render.reports.ranks import story as rank_story

MOST_RANKS = 1_024  # of which every figure and table of the page speaks
MOST_STRIPS = 48  # beyond it steps are drawn as a map
MOST_STEPS = 10
_OWN, _WAIT, _WHOLE = "#0072b2", "#e69f00", "#8c8c8c"
_LOOKS = (("own time", _OWN, ""), ("waiting for others", _WAIT, "/"), ("not split: nothing was matched", _WHOLE, "-"))
EVEN = "#f2f2f2"  # no difference
_MOST_TICKS = 12
_MOST_NAMED = 12  # groups whose names fit above the heat map


# --- heat map ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Work of one rank in one bucket; the difference is None in a group of one rank, and where nobody in the group has that bucket."""

    work_ns: int
    median_ns: float
    difference_ns: float | None


@dataclass(frozen=True, kw_only=True)
class Heat:
    """Difference of each rank from its group's median, bucket by bucket, largest difference first. `groups`: name and first column of each."""

    labels: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]
    buckets: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]  # one row per bucket, one cell per rank
    largest_ns: float


def heat(ranks: Ranks) -> Heat | None:
    """The heat map's numbers; None where no group holds two ranks."""
    names = rank_story.labels(ranks)
    kept = set(rank_story.chosen_places(ranks, MOST_RANKS))
    labels: list[str] = []
    starts: list[tuple[str, int]] = []
    columns: dict[str, list[Cell]] = {bucket: [] for one in ranks.survey for bucket in one.buckets}
    for name, _, places in rank_story.grouped(ranks):
        shown = [place for place in places if place in kept]
        starts.append((name, len(labels)))
        labels += [names[place] for place in shown]
        for bucket, cells in columns.items():
            works = [ranks.survey[place].buckets.get(bucket, 0) for place in places]
            middle = median(works)
            even = len(works) < 2 or not any(works)
            cells += [
                Cell(work_ns=work, median_ns=middle, difference_ns=None if even else work - middle)
                for place, work in ((place, ranks.survey[place].buckets.get(bucket, 0)) for place in shown)
            ]
    sizes = {
        bucket: max((abs(cell.difference_ns) for cell in cells if cell.difference_ns is not None), default=None)
        for bucket, cells in columns.items()
    }
    told = sorted(((size, bucket) for bucket, size in sizes.items() if size is not None), key=lambda pair: (-pair[0], pair[1]))
    if not told:
        return None
    return Heat(
        labels=tuple(labels),
        groups=tuple(starts),
        buckets=tuple(bucket for _, bucket in told),
        cells=tuple(tuple(columns[bucket]) for _, bucket in told),
        largest_ns=told[0][0],
    )


def _colours(scale: list[list[float | str]], title: str, *, signed: bool = False, **limits: float) -> figures.Figure:
    """A colour axis; the page's script puts the theme's own colour in the place of `EVEN`."""
    bar = {"thickness": 12, "outlinewidth": 0, "title": {"text": title, "side": "right"}, "tickformat": "+~g" if signed else "~g"}
    return {"colorscale": scale, "colorbar": bar, **limits}


def _across(count: int) -> figures.Figure:
    """The axis of ranks: a name under each where there is room, else under a few."""
    few: dict[str, Any] = {"nticks": 9, "tickangle": 0} if count > _MOST_TICKS else {}
    return figures.axis_of(type="category", showgrid=False, **few)


def heat_figure(document: Diagnosis, found: Heat) -> figures.Figure:
    """The heat map: ranks from left to right by group, buckets from the largest difference down."""
    limit = max(found.largest_ns / 1e6, 0.001)
    trace = {
        "type": "heatmap",
        "x": list(found.labels),
        "y": [figures.literal(words.bucket(bucket)) for bucket in found.buckets],
        "z": [[None if cell.difference_ns is None else round(cell.difference_ns / 1e6, 4) for cell in row] for row in found.cells],
        "customdata": [[[units.ms(cell.work_ns), units.ms(cell.median_ns)] for cell in row] for row in found.cells],
        "hovertemplate": "%{x}, %{y}: %{customdata[0]} ms<br>%{z:+,.3f} ms from %{customdata[1]} ms, the median of its group<extra></extra>",
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "xgap": 1 if len(found.labels) <= 64 else 0,
        "ygap": 1,
    }
    layout = figures.layout_of(
        90 + 24 * len(found.buckets),
        margin={"l": 8, "r": 8, "t": 30, "b": 36},
        coloraxis=_colours([[0, "#0072b2"], [0.5, EVEN], [1, "#d55e00"]], f"ms {per(document)}", cmin=-limit, cmax=limit, signed=True),
        xaxis=_across(len(found.labels)),
        yaxis=figures.axis_of(type="category", autorange="reversed", showgrid=False, fixedrange=True),
        shapes=[
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": start - 0.5,
                "x1": start - 0.5,
                "y0": 0,
                "y1": 1.06,
                "line": {"color": "#8c8c8c", "width": 2},
            }
            for _, start in found.groups[1:]
        ],
        annotations=[
            {
                "text": figures.literal(units.shorten(name, 22)),
                "xref": "x",
                "yref": "paper",
                "x": start - 0.4,
                "y": 1.0,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
            for name, start in found.groups
            if 1 < len(found.groups) <= _MOST_NAMED
        ],
    )
    return {"data": [trace], "layout": layout}


# --- strips -----------------------------------------------------------------------------------------------------------


def strip_places(ranks: Ranks, most: int) -> list[int]:
    """The ranks that have a strip, group by group."""
    kept = set(rank_story.chosen_places(ranks, most))
    return [place for _, _, places in rank_story.grouped(ranks) for place in places if place in kept and ranks.survey[place].steps]


def _numbers(ranks: Ranks, places: Sequence[int]) -> list[int]:
    """The steps that are drawn."""
    return sorted({step.index for place in places for step in ranks.survey[place].steps})[:MOST_STEPS]


def _length(step: StepTime, colour: str) -> int:
    """What one step adds to the layer of that colour."""
    if step.own_ns is None:
        return step.window_ns if colour == _WHOLE else 0
    return {_OWN: step.own_ns, _WAIT: step.window_ns - step.own_ns}.get(colour, 0)


def _layers(ranks: Ranks, places: Sequence[int]) -> list[tuple[str, str, str, list[int], list[StepTime | None]]]:
    """Name, colour, pattern and lengths of each layer of the strips, from the first step on: own time, waiting, or the step where it was not split."""
    numbers = _numbers(ranks, places)
    by_place = [{step.index: step for step in ranks.survey[place].steps} for place in places]
    found = []
    for number in numbers:
        steps = [mine.get(number) for mine in by_place]
        for name, colour, pattern in _LOOKS:
            lengths = [0 if step is None else _length(step, colour) for step in steps]
            if any(lengths):
                found.append((name, colour, pattern, lengths, steps))
    return found


def _said(step: StepTime | None) -> list[str]:
    if step is None:
        return ["", units.MISSING, units.MISSING, units.MISSING]
    wait = None if step.own_ns is None else step.window_ns - step.own_ns
    return [f"step {step.index}", units.ms(step.window_ns), units.ms(step.own_ns), units.ms(wait)]


_HOVER = "%{customdata[0]}: %{customdata[1]} ms<br>own %{customdata[2]} ms, waiting %{customdata[3]} ms"


def strips(ranks: Ranks, places: Sequence[int]) -> figures.Figure:
    """One bar for each rank: its steps one after the other, each as own time and then waiting."""
    names = rank_story.labels(ranks)
    shown = [names[place] for place in places]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": shown,
            "x": [round(length / 1e6, 6) for length in lengths],
            "customdata": [_said(step) for step in steps],
            "hovertemplate": f"%{{y}}, {_HOVER}<extra></extra>",
            "marker": figures.marker_of(colour, pattern) | {"line": {"width": 0.8, "color": "rgba(0,0,0,0.55)"}},
        }
        for name, colour, pattern, lengths, steps in _layers(ranks, places)
    ]
    return {
        "data": traces,
        "layout": figures.layout_of(
            66 + 24 * len(shown),
            barmode="stack",
            xaxis=figures.axis_of("ms, steps one after the other"),
            yaxis=figures.axis_of(autorange="reversed", type="category"),
        ),
    }


def step_map(ranks: Ranks, places: Sequence[int]) -> figures.Figure:
    """The same for hundreds of ranks: ranks from left to right, steps from top to bottom, the colour for own time (the step, where nothing was matched)."""
    names = rank_story.labels(ranks)
    numbers = _numbers(ranks, places)
    by_place = [{step.index: step for step in ranks.survey[place].steps} for place in places]
    split = any(step.own_ns is not None for mine in by_place for step in mine.values())

    def value(step: StepTime | None) -> float | None:
        length = None if step is None else step.own_ns if split else step.window_ns
        return None if length is None else round(length / 1e6, 4)

    trace = {
        "type": "heatmap",
        "x": [names[place] for place in places],
        "y": [f"step {number}" for number in numbers],
        "z": [[value(mine.get(number)) for mine in by_place] for number in numbers],
        "customdata": [[_said(mine.get(number)) for mine in by_place] for number in numbers],
        "hovertemplate": f"%{{x}}, {_HOVER}<extra></extra>",
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "ygap": 1,
    }
    layout = figures.layout_of(
        90 + 24 * len(numbers),
        margin={"l": 8, "r": 8, "t": 8, "b": 36},
        coloraxis=_colours([[0, EVEN], [1, _OWN]], f"{'own time' if split else 'step'}, ms"),
        xaxis=_across(len(places)),
        yaxis=figures.axis_of(type="category", autorange="reversed", showgrid=False, fixedrange=True),
    )
    return {"data": [trace], "layout": layout}


def strip_drawing(ranks: Ranks) -> tuple[figures.Figure, drawings.Drawing] | None:
    """The strips, drawn and static; None where no step was recorded."""
    few = strip_places(ranks, MOST_STRIPS)
    if not few:
        return None
    bars = strips(ranks, few)
    many = len(ranks.survey) > MOST_STRIPS
    steps = max(len(one.steps) for one in ranks.survey)
    about = "own time, then the time in which it waited for others (in exchanges, and for other pipeline stages)"
    last = "Who has the longest own time and the least waiting is the slowest path."
    parts = (
        f"The own time of each step: without the time in which it waited for others, in exchanges or for other pipeline stages. The bluer, the longer. {last}"
        if many
        else f"Each step of each rank: {about}. {last}",
        f"The first {MOST_STEPS} steps are drawn." if steps > MOST_STEPS else "",
        f"Without scripts and in print: {len(few)} of {len(ranks.survey):,} ranks as bars, each step as {about}." if many else "",
    )
    title = "Each rank's steps: own time" + ("" if many else " and waiting")
    drawing = drawings.stacked("rank-strips", title, " ".join(part for part in parts if part), bars)
    if not many:
        return bars, drawing
    return step_map(ranks, strip_places(ranks, MOST_RANKS)), replace(drawing, legend_of_static=True)
