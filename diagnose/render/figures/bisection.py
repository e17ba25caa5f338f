"""The figure of a bisection: the metric over the candidates, with intervals, the levels of both ends, and where it changed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from diagnose.document.bisection import Bisection, Candidate, CandidateState
from diagnose.knowledge.templates import capitalised
from diagnose.model.names import shorten
from diagnose.render import units
from diagnose.render.figures.figure import Axis, Band, Figure, Look, Note, Point, Points, label
from diagnose.render.reports.bisection import story, tables
from diagnose.render.reports.comparison.story import value

CAPTURE, STEP = "#6b7683", "#d55e00"
_SCALES = {"ns": 1e6, "share": 0.01}
_NAMES = {"ns": "ms", "share": "%", "count": "count"}


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
    faint = tuple(Point(place + 1, scaled(document.unit, number)) for place, number in captures)
    marks = [Points(look=Look("one capture", CAPTURE, shape="circle"), data=faint, faint=True)]
    for state, look in story.LOOK.items():
        data = [_point(document, place, candidate) for place, candidate in measured if candidate.state == state]
        if state == "skipped":
            level = scaled(document.unit, bottom)
            data += [Point(place + 1, level, (*_names(candidate), "skipped")) for place, candidate in skipped if candidate.value is None]
        if data:
            marks.append(Points(look=look, hover="{0}\n{1}\n{2}", data=tuple(data)))
    good, bad = (shorten(story.short(end), 24) for end in (document.good, document.bad))
    steps = list(_steps(document))
    middle = (len(document.candidates) + 1) / 2
    yield Figure(
        key="metric",
        title=f"{capitalised(story.metric(document.metric, document.window))} over the {document.kind}",
        caption=_caption(document, bool(skipped), bool(steps)),
        x=Axis(title=f"{good} → place in the order ({document.kind}) → {bad}", low=0.3, high=len(document.candidates) + 0.7, whole=True),
        y=Axis(
            title=unit_name(document.unit),
            low=scaled(document.unit, bottom - 0.05 * (high - low)),
            high=scaled(document.unit, high + 0.05 * (high - low)),
        ),
        marks=tuple(marks),
        bands=(
            *_levels(document),
            *(band for band, _, _ in steps),
            *(
                []
                if allowed is None
                else [Band(axis="y", low=scaled(document.unit, allowed), high=scaled(document.unit, allowed), colour=CAPTURE, dashed=True)]
            ),
        ),
        notes=tuple(Note(x=place, text=text, ends=place > middle) for _, place, text in steps),
    )


def limit(document: Bisection) -> float | None:
    """The value beyond which a change is not allowed, in the metric's unit; None where none was asked for."""
    if document.max_regression is None or document.good_value is None:
        return None
    sign = 1 if document.larger_is_worse else -1
    return document.good_value + sign * document.max_regression * abs(document.good_value)


def _caption(document: Bisection, skipped: bool, steps: bool) -> str:
    first = (
        f"From the good end to the bad one, in the order of the {document.kind}. A mark is the median of a candidate's "
        "captures with its 95 % interval; faint dots are single captures, bands the levels of both ends."
    )
    parts = [first]
    if limit(document) is not None and document.max_regression is not None:
        parts.append(f"The dashed line is the change of {units.percent(document.max_regression)} that was allowed.")
    if skipped:
        parts.append("Crosses at the bottom were skipped.")
    if steps:
        parts.append("▼ is where it changed: inside the coloured stretch.")
    return " ".join(parts)


def scaled(unit: str, number: float | None) -> float:
    """A value of the metric's unit as an axis counts it."""
    return round((number or 0.0) / _SCALES.get(unit, 1.0), 6)


def unit_name(unit: str) -> str:
    """What an axis of the metric's unit is called."""
    return _NAMES.get(unit, unit)


def _levels(document: Bisection) -> Iterator[Band]:
    """The intervals of both ends."""
    ends: tuple[tuple[str, CandidateState], ...] = ((document.good, "good"), (document.bad, "bad"))
    for name, state in ends:
        end = next((candidate for candidate in document.candidates if candidate.label == name), None)
        if end is not None and end.low is not None and end.high is not None:
            yield Band(axis="y", low=scaled(document.unit, end.low), high=scaled(document.unit, end.high), colour=story.LOOK[state].colour)


def _steps(document: Bisection) -> Iterator[tuple[Band, float, str]]:
    """The stretch in which each step lies, the place of its candidate, and what stands over it."""
    places = {candidate.label: place for place, candidate in enumerate(document.candidates, 1)}
    for number, culprit in enumerate(document.culprits, 1):
        if culprit.before not in places or culprit.label not in places:
            continue
        before, place = places[culprit.before], places[culprit.label]
        first, last = (before + 0.2, place + 0.2) if place > before else (place - 0.2, place + 0.2)
        text = story.short(culprit.label) if len(document.culprits) == 1 else str(number)
        yield Band(axis="x", low=round(first, 1), high=round(last, 1), colour=STEP, dashed=True), place, f"▼ {text}"


def _names(candidate: Candidate) -> tuple[str, str]:
    return label(story.short(candidate.label)), label(candidate.subject)


def _point(document: Bisection, place: int, candidate: Candidate) -> Point:
    """A measured candidate with its interval."""
    low, high, interval = None, None, ""
    if candidate.low is not None and candidate.high is not None:
        low, high = scaled(document.unit, candidate.low), scaled(document.unit, candidate.high)
        interval = f", {value(candidate.low, document.unit)} to {value(candidate.high, document.unit)}"
    measured = f"{value(candidate.value, document.unit)}{interval}, {units.plural(candidate.trials, 'capture')}"
    return Point(place + 1, scaled(document.unit, candidate.value), (*_names(candidate), measured), low, high)
