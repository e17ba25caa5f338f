"""The figure of a bisection: the metric over the candidates with intervals, for plotly and as plain SVG, from the same numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diagnose.document.bisection import Bisection, Candidate, CandidateState, Culprit
from diagnose.render import units
from diagnose.render.drawings import Drawing
from diagnose.render.figures import Figure, axis_of, layout_of, literal
from diagnose.render.reports.bisection import tables, words
from diagnose.render.reports.comparison.story import value

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 320, 110, 20, 24, 34
CAPTURE, STEP = "#6b7683", "#d55e00"
_SCALES = {"ns": 1e6, "share": 0.01}
_NAMES = {"ns": "ms", "share": "%", "count": "count"}
# Shapes beside colours, so that neither is needed alone: plotly's name, and the path of the plain drawing around (0, 0).
_SYMBOL: dict[CandidateState, tuple[str, str]] = {
    "good": ("circle", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"),
    "bad": ("square", "M-4.5-4.5h9v9h-9z"),
    "between": ("diamond", "M0-6l6 6l-6 6l-6-6z"),
    "outside": ("triangle-up", "M0-6l6 10h-12z"),
    "cannot_tell": ("circle-open", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0zm2 0a3 3 0 1 1 6 0a3 3 0 1 1-6 0z"),
    "skipped": ("x-thin-open", "M-5-4l1-1l4 4l4-4l1 1l-4 4l4 4l-1 1l-4-4l-4 4l-1-1l4-4z"),
    "untested": ("circle-open", "M-1 0h2z"),
}


@dataclass(frozen=True, kw_only=True)
class Band:
    """The level of one end: its interval, in the metric's own unit."""

    label: str
    low: float
    high: float
    colour: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A step: the place of the candidate that it is named by, the one before it, and what stands over it."""

    before: int
    place: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """One candidate in the plain drawing, in its own units of length."""

    x: float
    y: float
    top: float
    bottom: float
    colour: str
    shape: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The plain drawing: candidates, captures, bands (y, height, colour), steps (from, width, place, text), marks of the axis (y, text), the limit's y."""

    points: tuple[Point, ...]
    captures: tuple[tuple[float, float], ...]
    bands: tuple[tuple[float, float, str], ...]
    steps: tuple[tuple[float, float, float, str], ...]
    marks: tuple[tuple[float, str], ...]
    limit: float | None
    ends: tuple[str, str]
    legend: tuple[tuple[str, str, str], ...]
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def drawn(document: Bisection) -> dict[str, tuple[Figure, Drawing]]:
    """The figure for the browser; nothing where nothing was measured."""
    if not _measured(document):
        return {}
    title = f"{words.metric(document.metric)[:1].upper()}{words.metric(document.metric)[1:]} over the {words.NOUNS[document.kind]}"
    return {"metric": (_figure(document), Drawing(key="metric", title=title, caption=caption(document), bars=(), legend=()))}


def caption(document: Bisection) -> str:
    """What the figure shows."""
    parts = [
        f"From the good end to the bad one, in the order of the {words.NOUNS[document.kind]}. A mark is the median of a candidate's captures with its 95 % interval; faint dots are single captures, bands the levels of both ends."
    ]
    if limit(document) is not None and document.max_regression is not None:
        parts.append(f"The dashed line is the change of {units.percent(document.max_regression)} that was allowed.")
    if _skipped(document):
        parts.append("Crosses at the bottom were skipped.")
    if _marks(document):
        parts.append("▼ is where it changed: inside the coloured stretch.")
    return " ".join(parts)


# --- what both forms show ---------------------------------------------------------------------------------------------


def _measured(document: Bisection) -> list[tuple[int, Candidate]]:
    return [(place, one) for place, one in enumerate(document.candidates) if one.value is not None]


def _skipped(document: Bisection) -> list[tuple[int, Candidate]]:
    return [(place, one) for place, one in enumerate(document.candidates) if one.state == "skipped"]


def _captures(document: Bisection) -> list[tuple[int, float]]:
    return [(trial.candidate, statistics.median(trial.values)) for trial in document.trials if trial.values]


def _bands(document: Bisection) -> Iterator[Band]:
    """The intervals of both ends."""
    states: tuple[tuple[str, CandidateState], ...] = ((document.good, "good"), (document.bad, "bad"))
    for label, state in states:
        found = next((one for one in document.candidates if one.label == label), None)
        if found is not None and found.low is not None and found.high is not None:
            yield Band(label=words.STATE[state], low=found.low, high=found.high, colour=words.COLOUR[state])


def limit(document: Bisection) -> float | None:
    """The value beyond which a change is not allowed; None where none was asked for."""
    if document.max_regression is None or document.good_value is None:
        return None
    sign = 1 if document.larger_is_worse else -1
    return document.good_value + sign * document.max_regression * abs(document.good_value)


def _marks(document: Bisection) -> list[Mark]:
    """Steps whose candidates are in the list."""
    places = {one.label: place for place, one in enumerate(document.candidates)}
    return [
        Mark(before=places[one.before], place=places[one.label], text=_over(document.culprits, number, one))
        for number, one in enumerate(document.culprits, 1)
        if one.before in places and one.label in places
    ]


def _over(culprits: tuple[Culprit, ...], number: int, one: Culprit) -> str:
    return f"▼ {words.short(one.label)}" if len(culprits) == 1 else f"▼ {number}"


def _stretch(mark: Mark) -> tuple[float, float]:
    """The stretch in which a step lies, in places."""
    return (mark.before + 0.2, mark.place + 0.2) if mark.place > mark.before else (mark.place - 0.2, mark.place + 0.2)


def _said(one: Candidate, unit: str) -> str:
    interval = "" if one.low is None or one.high is None else f", {value(one.low, unit)} to {value(one.high, unit)}"
    return f"{value(one.value, unit)}{interval}, {units.plural(one.trials, 'capture')}"


# --- for plotly -------------------------------------------------------------------------------------------------------


def _scaled(document: Bisection, number: float | None) -> float:
    return round((number or 0.0) / _SCALES.get(document.unit, 1.0), 6)


def _figure(document: Bisection) -> Figure:
    captures = _captures(document)
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "one capture",
            "x": [place + 1 for place, _ in captures],
            "y": [_scaled(document, number) for _, number in captures],
            "hoverinfo": "skip",
            "marker": {"color": CAPTURE, "size": 5, "opacity": 0.55},
        }
    ]
    for state in words.STATE:
        mine = [(place, one) for place, one in _measured(document) if one.state == state]
        if mine:
            traces.append(_state(document, state, mine))
    if _skipped(document):
        traces.append(_crosses(document))
    layout = layout_of(
        380,
        margin={"l": 8, "r": 16, "t": 26, "b": 44},
        xaxis=axis_of(f"place in the order ({words.NOUNS[document.kind]})", range=[0.3, len(document.candidates) + 0.7]),
        yaxis=axis_of(_NAMES.get(document.unit, document.unit)),
        shapes=list(_shapes(document)),
        annotations=[
            {
                "x": mark.place + 1,
                "xref": "x",
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "text": literal(mark.text),
                "font": {"color": STEP},
            }
            for mark in _marks(document)
        ],
    )
    return {"data": traces, "layout": layout}


def _shapes(document: Bisection) -> Iterator[Figure]:
    for band in _bands(document):
        yield {
            "type": "rect",
            "xref": "paper",
            "yref": "y",
            "x0": 0,
            "x1": 1,
            "y0": _scaled(document, band.low),
            "y1": _scaled(document, band.high),
            "fillcolor": band.colour,
            "opacity": 0.14,
            "layer": "below",
            "line": {"width": 1, "color": band.colour},
        }
    for mark in _marks(document):
        first, last = _stretch(mark)
        yield {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": first + 1,
            "x1": last + 1,
            "y0": 0,
            "y1": 1,
            "fillcolor": STEP,
            "opacity": 0.15,
            "layer": "below",
            "line": {"color": STEP, "width": 1, "dash": "dot"},
        }
    allowed = limit(document)
    if allowed is not None:
        level = _scaled(document, allowed)
        yield {
            "type": "line",
            "xref": "paper",
            "yref": "y",
            "x0": 0,
            "x1": 1,
            "y0": level,
            "y1": level,
            "line": {"color": CAPTURE, "width": 1, "dash": "dash"},
        }


def _state(document: Bisection, state: CandidateState, mine: list[tuple[int, Candidate]]) -> Figure:
    colour = words.COLOUR[state]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words.STATE[state],
        "x": [place + 1 for place, _ in mine],
        "y": [_scaled(document, one.value) for _, one in mine],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_reach(document, one.value, one.high) for _, one in mine],
            "arrayminus": [_reach(document, one.low, one.value) for _, one in mine],
            "color": colour,
            "thickness": 1.5,
        },
        "customdata": [[literal(words.short(one.label)), literal(one.subject), literal(_said(one, document.unit))] for _, one in mine],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}<extra></extra>",
        "marker": {"color": colour, "size": 9, "symbol": _SYMBOL[state][0]},
    }


def _reach(document: Bisection, low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else round(max(0.0, _scaled(document, high) - _scaled(document, low)), 6)


def _crosses(document: Bisection) -> Figure:
    found = _skipped(document)
    low, high = _extremes(document)
    bottom = _scaled(document, low - (high - low) * 0.08)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words.STATE["skipped"],
        "x": [place + 1 for place, _ in found],
        "y": [bottom for _ in found],
        "customdata": [[literal(words.short(one.label)), literal(one.subject)] for _, one in found],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>skipped<extra></extra>",
        "marker": {"color": words.COLOUR["skipped"], "size": 9, "symbol": _SYMBOL["skipped"][0], "line": {"width": 2}},
    }


def _extremes(document: Bisection) -> tuple[float, float]:
    """The least and the greatest value that is drawn."""
    drawn_values = [*tables.bounds(document), *(number for _, number in _captures(document))]
    allowed = limit(document)
    drawn_values += [] if allowed is None else [allowed]
    return min(drawn_values), max(drawn_values)


# --- without scripts --------------------------------------------------------------------------------------------------


def plain(document: Bisection) -> Plain | None:
    """The same as points and lines of an SVG; None where nothing was measured."""
    measured = _measured(document)
    if not measured:
        return None
    low, high = _extremes(document)
    span, room = high - low or 1.0, HEIGHT - BOTTOM - TOP - 24

    def x(place: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / len(document.candidates), 2)

    def y(number: float | None) -> float:
        return round(TOP + 8 + room * (1 - ((low if number is None else number) - low) / span), 2)

    def point(place: int, one: Candidate, level: float, text: str) -> Point:
        top, bottom = (level, level) if one.high is None or one.low is None else (y(one.high), y(one.low))
        return Point(
            x=x(place),
            y=level,
            top=top,
            bottom=bottom,
            colour=words.COLOUR[one.state],
            shape=_SYMBOL[one.state][1],
            text=f"{words.short(one.label)}: {text}",
        )

    allowed = limit(document)
    points = [point(place, one, y(one.value), _said(one, document.unit)) for place, one in measured]
    crosses = [point(place, one, HEIGHT - BOTTOM - 8, "skipped") for place, one in _skipped(document) if one.value is None]
    return Plain(
        points=(*points, *crosses),
        captures=tuple((x(place), y(number)) for place, number in _captures(document)),
        bands=tuple((y(band.high), max(round(y(band.low) - y(band.high), 2), 1.0), band.colour) for band in _bands(document)),
        steps=tuple(_step(mark, x) for mark in _marks(document)),
        marks=tuple((y(number), value(number, document.unit)) for number in (low, (low + high) / 2, high)),
        limit=None if allowed is None else y(allowed),
        ends=(words.short(document.good), words.short(document.bad)),
        legend=legend(document),
    )


def _step(mark: Mark, x: Callable[[float], float]) -> tuple[float, float, float, str]:
    first, last = (x(place) for place in _stretch(mark))
    return first, round(last - first, 2), x(mark.place), mark.text


def legend(document: Bisection) -> tuple[tuple[str, str, str], ...]:
    """Label, colour and shape of every state that is drawn."""
    states = {one.state for _, one in (*_measured(document), *_skipped(document))}
    return tuple((words.STATE[state], words.COLOUR[state], _SYMBOL[state][1]) for state in words.STATE if state in states)
