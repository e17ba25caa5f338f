"""A metric over the runs of one job, and where it stepped: the series that `bisect --traces` searches, without ends that must differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from diagnose.bisect.model import Numbers, Trend
from diagnose.bisect.report import rounded, taken_back
from diagnose.bisect.search import Answer, ChangePoint, Measurement, Question, State, advise
from diagnose.bisect.trial import UnusableError, values_of
from diagnose.document.device import of_device
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.document.history import SCHEMA, CategoryMove, History, HistoryRun, HistoryStep, HistoryTrend
from diagnose.errors import InputError
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.knowledge.templates import capitalised, enumerated
from diagnose.model.statistics import median_with_error
from diagnose.reason.compare import causes
from diagnose.reason.compare.delta import middle
from diagnose.reason.compare.kernels import kernels
from diagnose.reason.compare.metrics import Samples, place_of, split_of
from diagnose.reason.compare.work import device
from diagnose.render import units
from diagnose.render.reports.bisection import story
from diagnose.render.reports.comparison.story import value

_LEAST = 3  # runs with a value, of which a series is made
_SPEAKERS = 5  # runs, from which on their spread tells the noise
_NAMED = 3  # categories that a sentence names where none holds half of a change
_TOLD = 10  # runs without a value of which it is said why
_SURE = 0.99  # from here on a step is told without its range


class Captured(Struct, frozen=True, kw_only=True):
    """One run in its order: its diagnosis, or why there is none."""

    label: str
    document: Diagnosis | None
    date: str | None = None
    commit: str | None = None
    problem: str = ""


def history(
    captured: Sequence[Captured], *, metric: str, rules: ComparisonRules, numbers: Numbers, tool: Tool, name: str, order: str
) -> History:
    """The document of runs in their order.

    Raises InputError where fewer than three give a value, MetricError where there is no such metric.
    """
    first = next((one.document for one in captured if one.document is not None), None)
    place = None if first is None else place_of(first)
    measured = [_measured(one, metric, place, rules) for one in captured]
    found = {index: samples for index, (samples, _) in enumerate(measured) if samples is not None}
    if len(found) < _LEAST:
        why = next((problem for _, problem in measured if problem), "")
        raise InputError(
            f"{units.plural(len(found), 'run')} of {len(captured)} gave a value of {metric}. {why}".rstrip(),
            effect=f"A history is made of {_LEAST} or more.",
            next_step="Name more runs, or another --metric.",
        )
    unit = next(iter(found.values()))
    state = _state(len(captured), found, numbers, counts=unit.unit == "count")
    answer = advise(state)
    line, steps = (answer.creeping, answer.found) if isinstance(answer, Answer) else (None, ())
    categories = [_categories(one.document, place) for one in captured]
    creeping = None if line is None else _creeping(state, line, categories)
    sides = [_around(steps, number, len(captured)) for number in range(len(steps))]
    rows = tuple(_rows(captured, steps, [_moved(categories, around) for around in sides]))
    known = [one.document for one in captured]
    if creeping is not None:
        paces = [common_pace(creeping.moved, known, known[::-1], rules)]
    else:
        around = zip(rows, sides, strict=True)
        paces = [
            common_pace(row.moved, known[here.start : here.stop][::-1], known[there.start : there.stop], rules)
            for row, (here, there) in around
        ]
    levels = _levels(state, steps) if line is None else _along(state, line)
    return History(
        schema=SCHEMA,
        tool=tool,
        name=name,
        metric=metric,
        unit=unit.unit,
        larger_is_worse=unit.larger_is_worse,
        window=unit.window,
        sentence=_sentence(metric, unit, rows, len(found), creeping, paces) + _lone(state, answer, captured, unit),
        noise=rounded(state.noise.scale if line is None else line.noise) if len(found) >= _SPEAKERS else None,
        runs=tuple(
            _run(one, found.get(index), problem, levels.get(index), categories[index])
            for index, (one, (_, problem)) in enumerate(zip(captured, measured, strict=True))
        ),
        steps=rows,
        order=order,
        notes=tuple(_notes(state, captured, [(one.label, why) for one, (_, why) in zip(captured, measured, strict=True) if why])),
        gradual=creeping,
    )


def _rows(captured: Sequence[Captured], steps: Sequence[ChangePoint], moved: Sequence[Iterable[CategoryMove]]) -> Iterator[HistoryStep]:
    """The steps of the series as the document tells them, each with what `moved` there."""
    undone = taken_back(steps)
    for number, (step, categories) in enumerate(zip(steps, moved, strict=True)):
        place, chance = step.likeliest
        yield HistoryStep(
            label=captured[place].label,
            chance=rounded(chance),
            before=captured[step.before].label,
            last=captured[step.place].label,
            base=rounded(step.base),
            new=rounded(step.new),
            relative=rounded((step.new - step.base) / abs(step.base)) if step.base else None,
            base_commit=captured[step.before].commit,
            commit=captured[step.place].commit,
            taken_back_by=captured[undone[number].likeliest[0]].label if number in undone else None,
            moved=tuple(categories),
        )


def _measured(one: Captured, metric: str, place: tuple[int, int] | None, rules: ComparisonRules) -> tuple[Samples | None, str]:
    """The metric's values in one run, or None and why."""
    if one.document is None:
        return None, one.problem
    try:
        return values_of(one.document, metric, place, rules), ""
    except UnusableError as fault:
        return None, str(fault)


def _state(count: int, found: Mapping[int, Samples], numbers: Numbers, *, counts: bool) -> State:
    question = Question(count=count, repeats=count, again=False, counts=counts)
    return State(question, numbers, [Measurement(place, *median_with_error(samples.values)) for place, samples in found.items()])


def _along(state: State, line: Trend) -> dict[int, float]:
    """Where the line lies at each run with a value."""
    share = (line.last - line.first) / max(state.question.count - 1, 1)
    return {place: rounded(state.transform.back(line.first + share * place)) for place in state.values}


def _creeping(state: State, line: Trend, categories: Sequence[Mapping[str, int]]) -> HistoryTrend:
    base, new = state.transform.back(line.first), state.transform.back(line.last)
    third = len(categories) // 3
    return HistoryTrend(
        base=rounded(base),
        new=rounded(new),
        relative=rounded((new - base) / abs(base)) if base else None,
        evidence=rounded(line.evidence),
        moved=tuple(_moved(categories, (range(third), range(len(categories) - third, len(categories))))),
    )


def _run(one: Captured, samples: Samples | None, problem: str, level: float | None, categories: dict[str, int]) -> HistoryRun:
    return HistoryRun(
        label=one.label,
        date=one.date,
        commit=one.commit,
        value=None if samples is None else statistics.median(samples.values),
        steps=0 if samples is None else len(samples.values),
        level=level,
        categories=categories,
        problem=problem,
    )


def _levels(state: State, steps: Sequence[ChangePoint]) -> dict[int, float]:
    """The level of each run that has one: of those inside the stretch that holds a step, the side on which it most probably lies."""
    cuts = [step.likeliest[0] for step in steps]
    parts: dict[int, list[float]] = {}
    for place, values in state.values.items():
        parts.setdefault(sum(cut <= place for cut in cuts), []).append(statistics.fmean(values))
    levels = {part: state.transform.back(statistics.fmean(values)) for part, values in parts.items()}
    return {place: rounded(levels[sum(cut <= place for cut in cuts)]) for place in state.values}


# --- what moved -------------------------------------------------------------------------------------------------------


def _categories(document: Diagnosis | None, place: tuple[int, int] | None) -> dict[str, int]:
    """The median step of a run by category, in ns."""
    steps = () if document is None else split_of(document, place or place_of(document))
    found: dict[str, int] = {}
    for (category, _), ns in (middle(steps).cells if steps else {}).items():
        found[category] = found.get(category, 0) + ns
    return {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))}


def _around(steps: Sequence[ChangePoint], number: int, count: int) -> tuple[range, range]:
    """The runs that surely lie before a step and after it, up to the steps beside it."""
    first = steps[number - 1].place if number else 0
    last = steps[number + 1].before if number + 1 < len(steps) else count - 1
    return range(first, steps[number].before + 1), range(steps[number].place, last + 1)


def _moved(categories: Sequence[Mapping[str, int]], around: tuple[range, range]) -> Iterator[CategoryMove]:
    """The medians of each category on both sides of a step, largest difference first."""
    here, there = ([categories[place] for place in side if categories[place]] for side in around)
    if not here or not there:
        return
    names = sorted({name for one in (*here, *there) for name in one})
    rows = []
    for name in names:
        base, new = (round(statistics.median(one.get(name, 0) for one in side)) for side in (here, there))
        if base != new:
            rows.append(CategoryMove(category=name, base_ns=base, new_ns=new, delta_ns=new - base))
    yield from sorted(rows, key=lambda row: (-abs(row.delta_ns), row.category))


def common_pace(
    moved: Sequence[CategoryMove], base: Sequence[Diagnosis | None], new: Sequence[Diagnosis | None], rules: ComparisonRules
) -> str:
    """That all compute changed by one factor, where it did and the first runs of both sides run the same kernels; else empty."""
    here, there = (next((one for one in side if one is not None), None) for side in (base, new))
    if here is None or there is None:
        return ""
    places, whole, limits = (place_of(here), place_of(there)), sum(one.delta_ns for one in moved), rules.limits
    if of_device(here.kernels, places[0]) is None or of_device(there.kernels, places[1]) is None:
        return ""
    return causes.common_pace(moved, whole, kernels(here, there, places, limits=limits).changes, limits.causes)


# --- what is said -----------------------------------------------------------------------------------------------------


def _sentence(
    metric: str, samples: Samples, steps: Sequence[HistoryStep], count: int, creeping: HistoryTrend | None, paces: Sequence[str]
) -> str:
    """`paces`: of each step, or of what crept, that all compute changed by one factor."""
    called = story.metric(metric, samples.window)
    if creeping is not None:
        moved = f"{value(creeping.base, samples.unit)} to {value(creeping.new, samples.unit)}{units.bracketed(creeping.relative)}"
        mostly = most_moved(creeping.moved, paces[0], "from the first to the last third ")
        return f"{capitalised(called)} crept from {moved} over {count} runs, little by little rather than in steps{mostly}."
    if not steps:
        return f"No step of {called} is seen in {units.plural(count, 'run')}."
    said = "; ".join(_step(one, samples, pace) for one, pace in zip(steps, paces, strict=True))
    return f"{capitalised(called)} stepped {'once' if len(steps) == 1 else f'{len(steps)} times'} in {count} runs: {said}."


def _step(one: HistoryStep, samples: Samples, pace: str) -> str:
    moved = f"{value(one.base, samples.unit)} to {value(one.new, samples.unit)}{units.bracketed(one.relative)}"
    named = f"with {story.short(one.label)}"
    if one.chance < _SURE:
        named += f" ({units.percent(one.chance, 0)}; after {story.short(one.before)}, with {story.short(one.last)} at the latest)"
    undone = "" if one.taken_back_by is None else f", taken back with {story.short(one.taken_back_by)}"
    return f"{moved} {named}{most_moved(one.moved, pace)}{undone}"


def most_moved(moved: Sequence[CategoryMove], pace: str, between: str = "") -> str:
    """What became slower alike, or the category that holds at least half of what moved, else the largest ones; `between` what."""
    if not moved:
        return ""
    if pace:
        return f": {between}{pace}"
    mostly = 2 * abs(moved[0].delta_ns) >= abs(sum(one.delta_ns for one in moved))
    said = [f"{story.metric(one.category)} ({units.signed_ms(one.delta_ns)} ms)" for one in moved[: 1 if mostly else _NAMED]]
    return f", {between}{'mostly' if mostly else 'most of it in'} {enumerated(said)}"


def _lone(state: State, answer: object, captured: Sequence[Captured], samples: Samples) -> str:
    """The runs that stand alone, as a sentence that follows; empty where none does."""
    places = answer.lone if isinstance(answer, Answer) else ()
    said = [f"{story.short(captured[place].label)} ({value(statistics.median(state.raw[place]), samples.unit)})" for place in places]
    if not said:
        return ""
    return f" {enumerated(said)} alone {'differs' if len(said) == 1 else 'differ'} from the runs around; one run can't tell a change from a mishap."


def _notes(state: State, captured: Sequence[Captured], problems: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What a reader must know of the runs."""
    yield from (f"{story.short(label)} gave no value: {problem}" for label, problem in problems[:_TOLD])
    if len(problems) > _TOLD:
        yield f"{len(problems) - _TOLD} more gave none."
    devices = {called for one in captured if one.document is not None and (called := device(one.document)) is not None}
    if len(devices) > 1:
        yield f"The runs are of different devices: {', '.join(sorted(devices))}. A step between them may be the device's."
    alone = {one.document.capture.ranks[0].rank for one in captured if one.document is not None and len(one.document.capture.ranks) == 1}
    if len(alone) > 1:
        yield (
            f"The runs are of different ranks ({units.listed(sorted(alone), 8)}): ranks of one run are no runs of their own, and need not take "
            "equally long. Put the traces of each run into a folder, and name the folder that holds these."
        )
    if len(state.raw) < _SPEAKERS:
        yield f"With fewer than {_SPEAKERS} runs the noise between them is assumed ({units.percent(state.assumed)}), not measured."
