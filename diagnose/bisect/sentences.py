"""The sentences of a search: its result, what a reader must know beside it, how a run goes, and what one step of git's bisection found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from diagnose.bisect.log import Header, Line, Log
from diagnose.bisect.model import Trend, pooled_noise
from diagnose.bisect.search import Answer, Next, Reason, State
from diagnose.document.bisection import BisectResult, Culprit, Kind, Trial
from diagnose.knowledge.templates import capitalised
from diagnose.model.statistics import median_with_error, t_quantile
from diagnose.reason.compare.outcome import besides, signed_share
from diagnose.render import units
from diagnose.render.reports.bisection import story
from diagnose.render.reports.comparison.story import value

_WORST = 0.02  # a capture whose steps alone are that uncertain says so
_ENOUGH = 4  # candidates, of which both ends and more are left where one is taken for an end instead of its neighbour
_MORE_LIKELY = 0.5  # a step that is not sure enough to be named is told from here on as the likeliest one


# --- the sentence -----------------------------------------------------------------------------------------------------


def sentence(
    header: Header, state: State, answer: Answer, result: BisectResult, culprits: Sequence[Culprit], told: Line, trials: Sequence[Trial]
) -> str:
    """The result in one sentence, with its figures."""
    metric, unit = story.metric(header.experiment.metric, told.window), told.unit
    if answer.missing is not None:
        end = "good" if answer.missing == 0 else "bad"
        why = next((trial.text for trial in reversed(trials) if trial.candidate == answer.missing), "")
        label = story.short(header.experiment.entries[answer.missing].label)
        again = (
            f" To try it again: diagnose bisect --resume --retry {label}{_beside(header, answer.missing)}"
            if header.experiment.command
            else ""
        )
        closed = f" {why}" if not why or why.endswith((".", "!", "?")) else f" {why}."
        return f"The {end} end, {label}, gives no value, so nothing was searched.{closed}".rstrip() + again
    nothing = "Nothing between them was run." if header.experiment.command else "No step was found between them."
    if answer.ends == "alike":
        limit = state.question.limit
        alike = "are alike" if limit is None else f"differ by no more than the {units.percent(limit)} that are allowed"
        if not header.experiment.command:  # one capture of each: their own figures differ by the noise, the levels around them do not
            levels = f"the level of {metric} differs by {_interval(state)}, {_noise_words(state)}"
            return " ".join((f"The two ends {alike}: {levels}. {nothing}", *_lone(header, state, answer, unit)))
        return f"The two ends {alike}: {metric} differs by {_interval(state)}. {nothing}"
    if answer.ends == "open":
        likely, (low, _, high) = _likeliest(header, state, answer, unit), _bounds(state)
        open_ = "The ends are likely to differ, but not beyond doubt" if low > 0 or high < 0 else "Whether the ends differ is open"
        return f"{open_}: {metric} differs by {_interval(state)}, {_noise_words(state)}. {likely or nothing}"
    if answer.creeping is not None:
        return f"{capitalised(metric)} {_crept(state, answer.creeping, header.experiment.mode, unit)}."
    if result == "cannot_tell":
        open_ = f"The ends differ by {_interval(state)}, but where {metric} changed is open: {_why_not(header, answer, state)}."
        return f"{open_} {_likeliest(header, state, answer, unit)}".rstrip()
    return f"{capitalised(metric)} {steps_found(culprits, result, header.experiment.mode, unit)}.{_other_work(culprits)}"


def _beside(header: Header, missing: int) -> str:
    """The way on where an end gives no value and there are candidates enough: the one beside it as the end; else empty."""
    entries = header.experiment.entries
    if len(entries) < _ENOUGH:
        return ""
    option, place = ("--good", 1) if missing == 0 else ("--bad", -2)
    return f"; or begin beside it, with {option} {story.short(entries[place].label)}"


def _likeliest(header: Header, state: State, answer: Answer, unit: str) -> str:
    """Where a step lies more likely than not, though not surely enough to be named; empty where single captures are all that speaks."""
    gap, standing = max(state.gaps, key=lambda gap: gap.chance, default=None), set(answer.lone) - state.aside
    if gap is None or gap.chance < _MORE_LIKELY or gap.right > gap.left + 1 or standing or answer.small or len(state.measured) < 3:
        return ""
    label = story.short(header.experiment.entries[gap.right].label)
    base, new = (value(state.transform.back(level), unit) for level in (gap.base, gap.new))
    return (
        f"If there is a step, it is most likely {story.NOUN[header.experiment.mode]} {label} ({units.percent(gap.chance)}): "
        f"{base} before, {new} from there on. More captures of it and of the one before would tell."
    )


def _crept(state: State, line: Trend, kind: Kind, unit: str) -> str:
    """A series that goes along a line, from its first to its last."""
    first, last = (state.transform.back(level) for level in (line.first, line.last))
    relative = units.bracketed((last - first) / abs(first) if first else None)
    return (
        f"creeps from {value(first, unit)} to {value(last, unit)}{relative}, little by little over all {kind}: a straight line says more of "
        f"them than steps do, so no single {story.NOUN[kind]} is behind it"
    )


def _other_work(culprits: Sequence[Culprit]) -> str:
    """What a comparison of the captures around a step would be refused for, another amount of work being no other speed; else what of the
    device differs.
    """
    found = [one.comparison for one in culprits if one.comparison is not None]
    said = [mismatch for one in found for mismatch in one.comparability.mismatches if mismatch.state == "refused"]
    if not said:
        device = [one for comparison in found for one in comparison.environment if one.kind in {"hardware", "clock"}]
        return f" {besides(device[:1])}" if device else ""
    first = said[0].text.partition(":")[0]
    what = f"{first[:1].lower()}{first[1:]}" if said[0].aspect == "kernels" else f"{said[0].name} {said[0].base} → {said[0].new}"
    return f" Before and after are not the same work, or not captured alike: {what}."


def steps_found(culprits: Sequence[Culprit], result: BisectResult, kind: Kind, unit: str) -> str:
    """Where the metric went, with the culprit of each step; of steps that were taken back the one that lasts first."""
    if result == "several":
        names = {one.taken_back_by for one in culprits}
        lasting = [one for one in culprits if one.taken_back_by is None and one.label not in names]
        if len(lasting) == 1 and len(names) > 1:
            undone = "; ".join(
                f"{_moved(one, unit)} with {_either(one, kind)}, taken back with {story.NOUN[kind]} {story.short(one.taken_back_by)}"
                for one in culprits
                if one.taken_back_by is not None
            )
            return f"went from {_moved(lasting[0], unit)} with {_either(lasting[0], kind)}, which lasts. Before that: {undone}"
        return f"stepped {len(culprits)} times: {'; '.join(f'{_moved(one, unit)} with {_either(one, kind)}' for one in culprits)}"
    doubt = "; which one is unknown" if culprits[0].among else ""
    return f"went from {_moved(culprits[0], unit)} with {_either(culprits[0], kind)}{doubt}"


def _why_not(header: Header, answer: Answer, state: State) -> str:
    if standing := [place for place in answer.lone if place not in state.aside]:
        names = ", ".join(story.short(header.experiment.entries[place].label) for place in standing[:5])
        return f"only single captures stand apart ({names}), and one capture can't tell a change from a mishap"
    if answer.small:
        least = math.expm1(state.smallest) if state.transform.logarithmic else state.smallest
        return f"it crept, in steps of less than {units.percent(abs(least))}"
    return f"the captures contradict each other, {_noise_words(state)}"


def _bounds(state: State) -> tuple[float, float, float]:
    """The difference of the ends, transformed, between the bounds of its 95 % interval."""
    good, bad = state.sides
    pooled = pooled_noise((good, bad), state.prior)
    reach = t_quantile(0.025, pooled.freedom) * pooled.scale * math.sqrt(1 / good.count + 1 / bad.count)
    return state.difference - reach, state.difference, state.difference + reach


def _interval(state: State) -> str:
    """The difference of the ends with its 95 % interval, relative to the good one."""
    low, middle, high = (_relative(state, one) for one in _bounds(state))
    return f"{middle} (95 % interval {low} to {high})"


def _relative(state: State, difference: float) -> str:
    share = math.expm1(difference) if state.transform.logarithmic else difference / (abs(state.sides[0].mean) or 1.0)
    return signed_share(share)


def _noise_words(state: State) -> str:
    return f"with a noise of {units.percent(state.noise.scale)} between captures"


def _moved(culprit: Culprit, unit: str) -> str:
    return f"{value(culprit.base, unit)} to {value(culprit.new, unit)}{units.bracketed(culprit.relative)}"


def _either(culprit: Culprit, kind: Kind) -> str:
    """The culprit by its name, or the stretch that holds it."""
    label, subject = story.short(culprit.label), f" “{culprit.subject}”" if culprit.subject else ""
    if culprit.among:
        return f"one of {len(culprit.among) + 1} {kind} after {story.short(culprit.before)} up to {label}"
    return f"{story.NOUN[kind]} {label}{subject}"


# --- notes ------------------------------------------------------------------------------------------------------------


def notes(header: Header, state: State, answer: Answer, lines: Sequence[Line], unit: str) -> Iterator[str]:
    """What a reader must know."""
    entries = header.experiment.entries
    worse = next((line.larger_is_worse for line in lines if line.unit), True)
    if answer.ends == "differ" and (state.difference > 0) != worse:
        yield "The bad end is the better one by this metric: what was found is an improvement."
    for place, gone in sorted(state.flaky.items()):
        kept = [number for index, number in enumerate(state.raw[place]) if index not in gone]
        left_out = ", ".join(value(state.raw[place][index], unit) for index in gone)
        others = f"{value(min(kept), unit)} to {value(max(kept), unit)}"
        captures = units.plural(len(gone), "capture")
        yield f"{story.short(entries[place].label)}: {captures} left out as flaky ({left_out}; the others {others})."
    if state.flaky and answer.found:
        yield "Where captures stand apart, an answer is right in about 98 of 100 searches, not in 99.7."
    for one in answer.small:
        size = (one.new - one.base) / abs(one.base) if one.base else state.transform.to(one.new)
        where = f"after {story.short(entries[one.before].label)}, not later than {story.short(entries[one.place].label)}"
        yield f"A smaller step, {units.signed_percent(size)}, lies {where}; it was not searched (--smallest-step)."
    if answer.ends != "alike":  # else the sentence has them
        yield from _lone(header, state, answer, unit)
    yield from capture_notes(lines)


def _lone(header: Header, state: State, answer: Answer, unit: str) -> Iterator[str]:
    """Candidates that stand alone."""
    for place in answer.lone:
        from_ = "the two before and the two after it" if place in state.aside else "its neighbours"
        name = f"{story.short(header.experiment.entries[place].label)} alone differs from {from_} ({value(state.raw[place][0], unit)})"
        yield f"{name}{' and is left out' if place in state.aside else ''}; one capture can't tell a change from a mishap."


def capture_notes(lines: Sequence[Line]) -> Iterator[str]:
    """What the captures themselves lack."""
    whole = [line for line in lines if line.trial.state == "measured" and line.trial.text]
    if whole:
        yield f"{units.plural(len(whole), 'capture')} could not be cut into steps; the values are of whole captures."
    others = sorted({line.rank for line in lines if line.rank is not None})
    if others:
        captures = units.plural(sum(line.rank is not None for line in lines), "capture")
        yield (
            f"{captures} {'is' if captures.startswith('1 ') else 'are'} of rank {', '.join(map(str, others))}, not of the first one's rank: ranks "
            "of one job need not take equally long."
        )
    singles = [line for line in lines if len(line.trial.values) == 1 and not line.trial.text]
    if singles:
        yield f"{units.plural(len(singles), 'capture')} gave one value each, so the spread inside them is not known."
    uncertain = [line for line in lines if line.trial.values and median_with_error(line.trial.values)[1] > _WORST]
    if uncertain:
        captures = units.plural(len(uncertain), "capture")
        yield (
            f"The steps of {captures} vary so much that their median is uncertain by more than {units.percent(_WORST, 0)}; capture more "
            "steps."
        )


# --- how a run goes ---------------------------------------------------------------------------------------------------

_WHY: Mapping[Reason, str] = {
    "good end": "the good end",
    "bad end": "the bad end",
    "halve": "halves what is left",
    "again": "once more, for certainty",
    "verify": "verifies the step",
    "control": "looks whether the step lasts",
}


def plan(log: Log, advice: Next, number: int) -> str:
    """What is run next, why, and how much is left."""
    entry = log.header.experiment.entries[advice.place]
    subject = f" ({entry.subject[:60]})" if entry.subject else ""
    return f"run {number}: {story.short(entry.label)}{subject}, {_WHY[advice.why]}; {_left(log, advice)}"


def _left(log: Log, advice: Next) -> str:
    spent = [line.seconds for line in log.lines if line.trial.state == "measured"]
    most = f", {advice.most} at most" if advice.most > advice.expected else ""
    time = f"; about {duration(statistics.median(spent) * advice.expected)}" if spent else ""
    return f"about {units.plural(advice.expected, 'run')} left{most}{time}"


def duration(seconds: float) -> str:
    """A time to wait, roughly."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def outcome(line: Line) -> str:
    """How a trial ended."""
    if line.trial.state != "measured":
        return f"{line.trial.state}: {line.trial.text}"
    return f"{value(median_with_error(line.trial.values)[0], line.unit)}{f'. {line.trial.text}' if line.trial.text else ''}"


def series_outcome(log: Log, line: Line) -> str:
    """How the trial of a capture that was there already ended."""
    return f"{story.short(log.header.experiment.entries[line.trial.candidate].label)}: {outcome(line)}"


def runs(number: int) -> str:
    """A number of runs in words."""
    return units.plural(number, "run")


# --- one step of git's bisection --------------------------------------------------------------------------------------

Verdict = Literal["good", "bad", "open"]
VERDICTS: Mapping[Verdict, str] = {"good": "good", "bad": "bad", "open": "not clear yet"}


class Judgement(Struct, frozen=True, kw_only=True):
    """A verdict with how far the new captures are from the good ones: relative, worse is positive.

    `low` and `high`: the interval that the verdict goes by. `noise`: the standard deviation of one capture, relative.
    """

    verdict: Verdict
    change: float
    low: float
    high: float
    noise: float


def step_sentence(judgement: Judgement, metric: str, new: Sequence[float], told: Line, limit: float) -> str:
    """What the captures of one commit say."""
    return (
        f"{VERDICTS[judgement.verdict]}: {story.metric(metric, told.window)} {value(statistics.median(new), told.unit)}, "
        f"{units.percent(abs(judgement.change))} {'worse' if judgement.change > 0 else 'better'} than the baseline "
        f"({units.signed_percent(judgement.low)} to {units.signed_percent(judgement.high)}); {units.signed_percent(limit)} is allowed, noise {units.percent(judgement.noise)}, {runs(len(new))}"
    )
