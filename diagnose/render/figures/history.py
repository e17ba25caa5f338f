"""The figures of a history: the metric over the runs with its levels, and where each run's step went."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from diagnose.document.history import History, HistoryRun
from diagnose.knowledge.templates import capitalised
from diagnose.model.names import shorten
from diagnose.render import units
from diagnose.render.figures.bisection import scaled, unit_name
from diagnose.render.figures.figure import Axis, Band, Figure, Layer, Look, Note, Point, Points, label, stacked
from diagnose.render.reports.bisection.story import short
from diagnose.render.reports.comparison import story
from diagnose.render.reports.comparison.story import value

RUN = Look("median of a run's steps", "#0072b2", shape="circle")
LEVEL, STEP = "#6b7683", "#d55e00"
_LAST = 40  # runs whose bars are shown
_LEAST = 0.01  # of the largest step: a category that never reaches it shares the others' colour
_REST = Look("the rest", "#8c6d5a", ".", order=200)


def figures(document: History) -> Iterator[Figure]:
    """Those that have something to show."""
    yield series(document)
    if sum(bool(one.categories) for one in document.runs) > 1:
        yield categories(document)


def series(document: History) -> Figure:
    """Every run with its level and the steps."""
    known = [(place, one) for place, one in enumerate(document.runs, 1) if one.value is not None]
    values = [number for _, one in known for number in (one.value, one.level) if number is not None]
    low, high = min(values), max(values)
    room = 0.08 * ((high - low) or abs(high) or 1.0)
    places = {one.label: place for place, one in enumerate(document.runs, 1)}
    middle = (len(document.runs) + 1) / 2
    return Figure(
        key="series",
        title=f"{capitalised(story.metric(document.metric, document.window))} over the runs",
        caption="A mark is one run; grey points are the line along which it creeps."
        if document.gradual is not None
        else "A mark is one run; grey points are the level of the runs between two steps. ▼ is where it stepped, most probably.",
        x=Axis(
            title=f"run, in order: {_end(document.runs[0])} → {_end(document.runs[-1])}", low=0.3, high=len(document.runs) + 0.7, whole=True
        ),
        y=Axis(title=unit_name(document.unit), low=scaled(document.unit, low - room), high=scaled(document.unit, high + room)),
        marks=(
            Points(
                look=Look("level", LEVEL, shape="ring"),
                data=tuple(Point(place, scaled(document.unit, one.level)) for place, one in known if one.level is not None),
                faint=True,
            ),
            Points(
                look=RUN,
                hover="{0}\n{1}\n{2}",
                data=tuple(Point(place, scaled(document.unit, one.value), _hovered(document, one)) for place, one in known),
            ),
        ),
        bands=tuple(
            Band(axis="x", low=places[step.before] + 0.2, high=places[step.last] + 0.2, colour=STEP, dashed=True) for step in document.steps
        ),
        notes=tuple(
            Note(x=places[step.label], text=f"▼ {shorten(short(step.label), 24)}", ends=places[step.label] > middle)
            for step in document.steps
        ),
    )


def _end(one: HistoryRun) -> str:
    return shorten(one.date or short(one.label), 24)


def _hovered(document: History, one: HistoryRun) -> tuple[str, str, str]:
    origin = " · ".join(part for part in (one.date, (one.commit or "")[:12]) if part)
    return label(short(one.label)), label(origin), f"{value(one.value, document.unit)}, {units.plural(one.steps, 'step')}"


def categories(document: History) -> Figure:
    """The median step of each of the last runs, by category."""
    shown = [one for one in document.runs if one.categories][-_LAST:]
    longest = max(sum(one.categories.values()) for one in shown)
    kinds = {name for one in shown for name, ns in one.categories.items()}
    large = {name for name in kinds if max(one.categories.get(name, 0) for one in shown) >= _LEAST * longest}
    looks = sorted(((story.look(name), name) for name in large), key=lambda pair: (pair[0].order, pair[1]))
    layers: list[Layer] = [(look, _spans(shown, look.label, frozenset({name}))) for look, name in looks]
    if kinds - large:
        layers.append((_REST, _spans(shown, _REST.label, frozenset(kinds - large))))
    more = f" The last {_LAST} runs." if len(document.runs) > _LAST else ""
    figure = Figure(
        key="categories",
        title="Where each run's step went",
        caption=f"The median step of each run; the parts of a bar add up to it, exactly.{more}",
        x=Axis(title="ms"),
        y=Axis(names=_names([shorten(short(one.label), 28) for one in shown])),
    )
    return stacked(figure, "{0}\n{1} ms of {2} ms\n{3}", layers)


def _names(names: list[str]) -> tuple[str, ...]:
    """Names of rows; those that repeat are numbered."""
    counts = {name: len(list(group)) for name, group in groupby(sorted(names))}
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if counts[name] == 1 else f"{name} ({seen[name]})")
    return tuple(found)


def _spans(shown: list[HistoryRun], called: str, names: frozenset[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for row, one in enumerate(shown):
        ns = sum(time for name, time in one.categories.items() if name in names)
        found.append((row, ns, (label(called), units.ms(ns), units.ms(sum(one.categories.values())), label(short(one.label)))))
    return found
