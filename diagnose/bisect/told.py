"""What a search says in words: the sentence of its result, and the notes that a reader needs before believing it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from diagnose.bisect.journal import Header, Line
from diagnose.bisect.search import Answer, Found
from diagnose.bisect.spread import noise
from diagnose.bisect.state import State
from diagnose.document.bisection import BisectResult, Culprit, Kind, Trial
from diagnose.model.statistics import median_with_error, t_quantile
from diagnose.render import units
from diagnose.render.reports.bisection import words
from diagnose.render.reports.comparison.story import value

_WORST = 0.02  # a capture whose steps alone are that uncertain says so


def sentence_of(
    header: Header, state: State, answer: Answer, result: BisectResult, culprits: Sequence[Culprit], unit: str, trials: Sequence[Trial]
) -> str:
    """The result in one sentence, with its figures."""
    metric = words.metric(header.asked.metric)
    if answer.missing is not None:
        end = "good" if answer.missing == 0 else "bad"
        why = next((trial.text for trial in reversed(trials) if trial.candidate == answer.missing), "")
        return f"The {end} end, {words.short(header.asked.entries[answer.missing].label)}, gives no value, so nothing was searched. {why}".rstrip()
    if answer.ends == "alike":
        return f"The two ends are alike: {metric} differs by {_interval(state)}. Nothing between them was run."
    if answer.ends == "open":
        return f"It can't be told whether the ends differ: {metric} differs by {_interval(state)}, {_noise(state)}. Nothing between them was run."
    if result == "cannot_tell":
        return f"The ends differ by {_interval(state)}, but where {metric} changed can't be told: {_why_not(header, answer, state)}."
    return f"{metric[:1].upper()}{metric[1:]} {_steps(culprits, result, header.asked.mode, unit)}."


def _steps(culprits: Sequence[Culprit], result: BisectResult, kind: Kind, unit: str) -> str:
    if result == "several":
        return f"stepped {len(culprits)} times: {'; '.join(f'{_moved(one, unit)} with {_either(one, kind)}' for one in culprits)}"
    doubt = "; which one can't be told" if culprits[0].among else ""
    return f"went from {_moved(culprits[0], unit)} with {_either(culprits[0], kind)}{doubt}"


def _why_not(header: Header, answer: Answer, state: State) -> str:
    if answer.lone:
        names = ", ".join(words.short(header.asked.entries[place].label) for place in answer.lone[:5])
        return f"only single captures stand apart ({names}), and one capture can't tell a change from a mishap"
    if answer.small:
        return f"it crept, in steps of less than {units.percent(abs(math.expm1(state.smallest) if state.scale.logarithmic else state.smallest))}"
    return f"the captures contradict each other, {_noise(state)}"


def _interval(state: State) -> str:
    """The difference of the ends with its 95 % interval, relative to the good one."""
    good, bad = state.sides
    pooled = noise((good, bad), state.prior)
    reach = t_quantile(0.025, pooled.freedom) * pooled.scale * math.sqrt(1 / good.count + 1 / bad.count)
    low, middle, high = (_relative(state, state.difference + sign * reach) for sign in (-1, 0, 1))
    return f"{middle} (95 % interval {low} to {high})"


def _relative(state: State, difference: float) -> str:
    if state.scale.logarithmic:
        return units.signed_percent(math.expm1(difference))
    base = abs(state.sides[0].mean) or 1.0
    return units.signed_percent(difference / base)


def _noise(state: State) -> str:
    return f"with a noise of {units.percent(state.noise.scale)} between captures"


def _moved(culprit: Culprit, unit: str) -> str:
    relative = "" if culprit.relative is None else f" ({units.signed_percent(culprit.relative)})"
    return f"{value(culprit.base, unit)} to {value(culprit.new, unit)}{relative}"


def _named(culprit: Culprit, kind: Kind) -> str:
    subject = f" “{culprit.subject}”" if culprit.subject else ""
    return f"{words.NOUN[kind]} {words.short(culprit.label)}{subject}"


def _stretch(culprit: Culprit, kind: Kind) -> str:
    count = len(culprit.among) + 1
    return f"{count} {words.NOUNS[kind]} after {words.short(culprit.before)} up to {words.short(culprit.label)}"


def _either(culprit: Culprit, kind: Kind) -> str:
    return f"one of {_stretch(culprit, kind)}" if culprit.among else _named(culprit, kind)


# --- notes ------------------------------------------------------------------------------------------------------------


def notes_of(header: Header, state: State, answer: Answer, lines: Sequence[Line], unit: str) -> Iterator[str]:
    """What a reader must know."""
    entries = header.asked.entries
    worse = next((line.larger_is_worse for line in lines if line.unit), True)
    if answer.ends == "differ" and (state.difference > 0) != worse:
        yield "The bad end is the better one by this metric: what was found is an improvement."
    for place, gone in sorted(state.flaky.items()):
        kept = [number for index, number in enumerate(state.raw[place]) if index not in gone]
        said = ", ".join(value(state.raw[place][index], unit) for index in gone)
        yield f"{words.short(entries[place].label)}: {units.plural(len(gone), 'capture')} left out as flaky ({said}; the others {value(min(kept), unit)} to {value(max(kept), unit)})."
    for one in answer.small:
        yield f"A smaller step, {_step(state, one)}, lies {_where(header, one)}; it was not searched (--smallest-step)."
    for place in answer.lone:
        yield f"{words.short(entries[place].label)} alone differs from its neighbours ({value(state.raw[place][0], unit)}); one capture can't tell a change from a mishap."
    yield from _inner(lines)


def _step(state: State, one: Found) -> str:
    return units.signed_percent((one.new - one.base) / abs(one.base)) if one.base else units.signed_percent(state.scale.to(one.new))


def _where(header: Header, one: Found) -> str:
    entries = header.asked.entries
    return f"after {words.short(entries[one.before].label)}, not later than {words.short(entries[one.place].label)}"


def _inner(lines: Sequence[Line]) -> Iterator[str]:
    """What the captures themselves lack."""
    whole = [line for line in lines if line.trial.state == "measured" and line.trial.text]
    if whole:
        yield f"{units.plural(len(whole), 'capture')} could not be cut into steps; the values are of whole captures."
    singles = [line for line in lines if len(line.trial.values) == 1 and not line.trial.text]
    if singles:
        yield f"{units.plural(len(singles), 'capture')} gave one value each, so the spread inside them is not known."
    uncertain = [line for line in lines if line.trial.values and median_with_error(line.trial.values)[1] > _WORST]
    if uncertain:
        yield f"The steps of {units.plural(len(uncertain), 'capture')} vary so much that their median is uncertain by more than {units.percent(_WORST, 0)}; capture more steps."
