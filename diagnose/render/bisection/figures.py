"""The figure of a bisection: the metric over the candidates with intervals, for plotly and as plain SVG, from the same numbers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from diagnose.bisection import Bisection, Candidate
from diagnose.render import units
from diagnose.render.bisection import tables, words
from diagnose.render.comparison.story import value
from diagnose.render.drawings import Drawing
from diagnose.render.figures import Figure, axis_of, layout_of, literal

WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 300, 110, 34
_SCALES = {"ns": 1e6, "share": 0.01}
_NAMES = {"ns": "ms", "share": "%", "count": "count"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One candidate in the plain drawing, in its own units of length."""

    x: float
    y: float
    top: float
    bottom: float
    colour: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The plain drawing: candidates, captures, the steps' stretches (from, width), and marks of the axis (place, text)."""

    points: tuple[Point, ...]
    captures: tuple[tuple[float, float], ...]
    steps: tuple[tuple[float, float], ...]
    marks: tuple[tuple[float, str], ...]
    ends: tuple[str, str]
    legend: tuple[tuple[str, str], ...]


def drawn(document: Bisection) -> dict[str, tuple[Figure, Drawing]]:
    """The figure for the browser; nothing where nothing was measured."""
    if not _measured(document):
        return {}
    title = f"{words.metric(document.metric)[:1].upper()}{words.metric(document.metric)[1:]} over the {words.NOUNS[document.kind]}"
    caption = "From the good end to the bad one. Each mark is the median of a candidate's captures, with its 95 % interval; faint marks are single captures."
    drawing = Drawing(key="metric", title=title, caption=caption, bars=(), legend=())
    return {"metric": (_figure(document), drawing)}


def _measured(document: Bisection) -> list[tuple[int, Candidate]]:
    return [(place, one) for place, one in enumerate(document.candidates) if one.value is not None]


def _scaled(document: Bisection, number: float | None) -> float:
    return round((number or 0.0) / _SCALES.get(document.unit, 1.0), 6)


def _spans(document: Bisection) -> list[tuple[int, int]]:
    """From the last candidate before each step to the one that it is named by."""
    place = {one.label: index for index, one in enumerate(document.candidates)}
    return [(place[one.before], place[one.label]) for one in document.culprits]


def _figure(document: Bisection) -> Figure:
    captures = [(trial.candidate, statistics.median(trial.values)) for trial in document.trials if trial.values]
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "one capture",
            "x": [place for place, _ in captures],
            "y": [_scaled(document, number) for _, number in captures],
            "hoverinfo": "skip",
            "marker": {"color": "#6b7683", "size": 5, "opacity": 0.55},
        }
    ]
    for state in words.STATE:
        mine = [(place, one) for place, one in _measured(document) if one.state == state]
        if mine:
            traces.append(_state(document, words.STATE[state], words.COLOUR[state], mine))
    shapes = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": first + 0.25,
            "x1": last - 0.25,
            "y0": 0,
            "y1": 1,
            "fillcolor": "rgba(213,94,0,0.15)",
            "line": {"color": "#d55e00", "width": 1.5, "dash": "dot"},
        }
        for first, last in _spans(document)
    ]
    layout = layout_of(
        380,
        xaxis=axis_of(
            f"place in the order ({words.NOUNS[document.kind]})", range=[-0.7, len(document.candidates) - 0.3], rangemode="tozero"
        ),
        yaxis=axis_of(_NAMES.get(document.unit, document.unit)),
        shapes=shapes,
    )
    return {"data": traces, "layout": layout}


def _state(document: Bisection, name: str, colour: str, mine: list[tuple[int, Candidate]]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [place for place, _ in mine],
        "y": [_scaled(document, one.value) for _, one in mine],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [round(max(0.0, _scaled(document, one.high) - _scaled(document, one.value)), 6) for _, one in mine],
            "arrayminus": [round(max(0.0, _scaled(document, one.value) - _scaled(document, one.low)), 6) for _, one in mine],
            "color": colour,
            "thickness": 1.5,
        },
        "customdata": [[literal(words.short(one.label)), literal(one.subject), _said(one, document.unit)] for _, one in mine],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}<extra></extra>",
        "marker": {"color": colour, "size": 9},
    }


def _said(one: Candidate, unit: str) -> str:
    return f"{value(one.value, unit)}, {value(one.low, unit)} to {value(one.high, unit)}, {units.plural(one.trials, 'capture')}"


# --- without scripts --------------------------------------------------------------------------------------------------


def plain(document: Bisection) -> Plain | None:
    """The same as points and lines of an SVG; None where nothing was measured."""
    measured = _measured(document)
    if not measured:
        return None
    captures = [(trial.candidate, statistics.median(trial.values)) for trial in document.trials if trial.values]
    low, high = tables.bounds(document)
    low, high = min([low, *(number for _, number in captures)]), max([high, *(number for _, number in captures)])

    def x(place: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 20) * (place + 0.5) / len(document.candidates), 2)

    def y(number: float | None) -> float:
        return round(10 + (HEIGHT - BOTTOM - 20) * (1 - ((number or 0.0) - low) / (high - low)), 2)

    states = dict.fromkeys(one.state for _, one in measured)
    return Plain(
        points=tuple(
            Point(
                x=x(place),
                y=y(one.value),
                top=y(one.high),
                bottom=y(one.low),
                colour=words.COLOUR[one.state],
                text=f"{words.short(one.label)}: {_said(one, document.unit)}",
            )
            for place, one in measured
        ),
        captures=tuple((x(place), y(number)) for place, number in captures),
        steps=tuple((x(first + 0.25), round(x(last - 0.25) - x(first + 0.25), 2)) for first, last in _spans(document)),
        marks=tuple((y(number), value(number, document.unit)) for number in (low, (low + high) / 2, high)),
        ends=(words.short(document.good), words.short(document.bad)),
        legend=tuple((words.STATE[state], words.COLOUR[state]) for state in words.STATE if state in states),
    )
