"""The figure of a bisection: the metric over the candidates, with intervals, the levels of both ends, and where it changed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from diagnose.document.bisection import Bisection, Candidate, CandidateState
from diagnose.render import units
from diagnose.render.figures.figure import Axis, Band, Figure, Hover, Note, Points, Shape, label
from diagnose.render.reports.bisection import tables, words
from diagnose.render.reports.comparison.story import value

CAPTURE, STEP = "#6b7683", "#d55e00"
_SCALES = {"ns": 1e6, "share": 0.01}
_NAMES = {"ns": "ms", "share": "%", "count": "count"}
_SHAPE: dict[CandidateState, Shape] = {  # beside colours, so that neither is needed alone
    "good": "circle",
    "bad": "square",
    "between": "diamond",
    "outside": "triangle",
    "cannot_tell": "ring",
    "skipped": "cross",
    "untested": "ring",
}


def figures(document: Bisection) -> Iterator[Figure]:
    """The figure; none where nothing was measured."""
    measured = [(place, candidate) for place, candidate in enumerate(document.candidates) if candidate.value is not None]
    if not measured:
        return
    captures = [(trial.candidate, statistics.median(trial.values)) for trial in document.trials if trial.values]
    allowed = limit(document)
    seen = [*tables.bounds(document), *(number for _, number in captures), *([] if allowed is None else [allowed])]
    low, high = min(seen), max(seen)
    bottom = low - 0.08 * (high - low)
    skipped = [(place, candidate) for place, candidate in enumerate(document.candidates) if candidate.state == "skipped"]
    marks = [
        Points(
            label="one capture",
            colour=CAPTURE,
            shape="circle",
            xs=tuple(float(place + 1) for place, _ in captures),
            ys=tuple(_scaled(document, number) for _, number in captures),
            faint=True,
        )
    ]
    for state in words.STATE:
        mine = [(place, candidate) for place, candidate in measured if candidate.state == state]
        if mine:
            marks.append(_points(document, state, mine))
    if skipped:
        marks.append(_crosses(skipped, _scaled(document, bottom)))
    name = words.metric(document.metric)
    steps = list(_steps(document))
    middle = (len(document.candidates) + 1) / 2
    yield Figure(
        key="metric",
        title=f"{name[:1].upper()}{name[1:]} over the {words.NOUNS[document.kind]}",
        caption=_caption(document, bool(skipped), bool(steps)),
        x=Axis(
            title=f"{units.shorten(words.short(document.good), 24)} → place in the order ({words.NOUNS[document.kind]}) → {units.shorten(words.short(document.bad), 24)}",
            low=0.3,
            high=len(document.candidates) + 0.7,
            whole=True,
        ),
        y=Axis(
            title=_NAMES.get(document.unit, document.unit),
            low=_scaled(document, bottom - 0.05 * (high - low)),
            high=_scaled(document, high + 0.05 * (high - low)),
        ),
        marks=tuple(marks),
        bands=(
            *_levels(document),
            *(band for band, _, _ in steps),
            *([] if allowed is None else [_line(_scaled(document, allowed))]),
        ),
        notes=tuple(Note(x=place, text=text, colour=STEP, ends=place > middle) for _, place, text in steps),
    )


def limit(document: Bisection) -> float | None:
    """The value beyond which a change is not allowed, in the metric's unit; None where none was asked for."""
    if document.max_regression is None or document.good_value is None:
        return None
    sign = 1 if document.larger_is_worse else -1
    return document.good_value + sign * document.max_regression * abs(document.good_value)


def _caption(document: Bisection, skipped: bool, steps: bool) -> str:
    first = (
        f"From the good end to the bad one, in the order of the {words.NOUNS[document.kind]}. A mark is the median of a candidate's captures "
        "with its 95 % interval; faint dots are single captures, bands the levels of both ends."
    )
    parts = [first]
    if limit(document) is not None and document.max_regression is not None:
        parts.append(f"The dashed line is the change of {units.percent(document.max_regression)} that was allowed.")
    if skipped:
        parts.append("Crosses at the bottom were skipped.")
    if steps:
        parts.append("▼ is where it changed: inside the coloured stretch.")
    return " ".join(parts)


def _scaled(document: Bisection, number: float | None) -> float:
    """A value as the axis counts it."""
    return round((number or 0.0) / _SCALES.get(document.unit, 1.0), 6)


def _levels(document: Bisection) -> Iterator[Band]:
    """The intervals of both ends."""
    ends: tuple[tuple[str, CandidateState], ...] = ((document.good, "good"), (document.bad, "bad"))
    for name, state in ends:
        end = next((candidate for candidate in document.candidates if candidate.label == name), None)
        if end is not None and end.low is not None and end.high is not None:
            yield Band(axis="y", low=_scaled(document, end.low), high=_scaled(document, end.high), colour=words.COLOUR[state])


def _line(level: float) -> Band:
    return Band(axis="y", low=level, high=level, colour=CAPTURE, dashed=True)


def _steps(document: Bisection) -> Iterator[tuple[Band, float, str]]:
    """The stretch in which each step lies, the place of its candidate, and what stands over it."""
    places = {candidate.label: place for place, candidate in enumerate(document.candidates, 1)}
    for number, culprit in enumerate(document.culprits, 1):
        if culprit.before not in places or culprit.label not in places:
            continue
        before, place = places[culprit.before], places[culprit.label]
        first, last = (before + 0.2, place + 0.2) if place > before else (place - 0.2, place + 0.2)
        text = words.short(culprit.label) if len(document.culprits) == 1 else str(number)
        yield Band(axis="x", low=round(first, 1), high=round(last, 1), colour=STEP, dashed=True), place, f"▼ {text}"


def _points(document: Bisection, state: CandidateState, mine: list[tuple[int, Candidate]]) -> Points:
    def said(candidate: Candidate) -> str:
        known = candidate.low is not None and candidate.high is not None
        interval = f", {value(candidate.low, document.unit)} to {value(candidate.high, document.unit)}" if known else ""
        return f"{value(candidate.value, document.unit)}{interval}, {units.plural(candidate.trials, 'capture')}"

    return Points(
        label=words.STATE[state],
        colour=words.COLOUR[state],
        shape=_SHAPE[state],
        xs=tuple(float(place + 1) for place, _ in mine),
        ys=tuple(_scaled(document, candidate.value) for _, candidate in mine),
        lows=tuple(_scaled(document, candidate.value if candidate.low is None else candidate.low) for _, candidate in mine),
        highs=tuple(_scaled(document, candidate.value if candidate.high is None else candidate.high) for _, candidate in mine),
        hover=Hover(
            text="{0}\n{1}\n{2}",
            rows=tuple((label(words.short(candidate.label)), label(candidate.subject), said(candidate)) for _, candidate in mine),
        ),
    )


def _crosses(skipped: list[tuple[int, Candidate]], level: float) -> Points:
    return Points(
        label=words.STATE["skipped"],
        colour=words.COLOUR["skipped"],
        shape=_SHAPE["skipped"],
        xs=tuple(float(place + 1) for place, _ in skipped),
        ys=(level,) * len(skipped),
        hover=Hover(
            text="{0}\n{1}\nskipped",
            rows=tuple((label(words.short(candidate.label)), label(candidate.subject)) for _, candidate in skipped),
        ),
    )
