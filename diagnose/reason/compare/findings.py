"""Findings and walls of both runs side by side, and the gate that a comparison is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import median

from diagnose.document.comparison import Effect, FindingChange, FindingState, Gate, OnUnclear, WallChange
from diagnose.document.diagnosis import Diagnosis, Evidence, Fact, Finding
from diagnose.knowledge.comparison import ComparisonRules, Limits, NoiseLimits
from diagnose.knowledge.templates import capitalised, enumerated, percent
from diagnose.model.vocabulary import Level
from diagnose.reason.compare.comparable import Judgement
from diagnose.reason.compare.metrics import steps_of
from diagnose.reason.compare.outcome import doubtful, several, signed_share
from diagnose.reason.compare.patterns import NO_LONG_STEPS, LongSteps
from diagnose.reason.patch import SettingPlace, place_of

_NO_MISHAP = 2  # long steps that a single mishap does not make
_LEVELS: Mapping[Level, int] = {"low": 0, "medium": 1, "high": 2}
_STATES: tuple[FindingState, ...] = ("new", "worse", "better", "gone", "not_assessed", "same")


def walls(base: Diagnosis, new: Diagnosis, scale: Fraction = Fraction(1)) -> tuple[WallChange, ...]:
    """The bounds of all walls that either run tells."""
    here = {wall.wall: wall.bound_ns for wall in base.walls}
    there = {wall.wall: None if wall.bound_ns is None else round(wall.bound_ns * scale) for wall in new.walls}
    return tuple(
        WallChange(wall=wall, base_ns=first, new_ns=second, delta_ns=None if first is None or second is None else second - first)
        for wall in dict.fromkeys((*here, *there))
        for first, second in [(here.get(wall), there.get(wall))]
    )


def findings(base: Diagnosis, new: Diagnosis, judged: Judgement, rules: ComparisonRules) -> tuple[FindingChange, ...]:
    """Every finding of either run, new ones first, then worse ones: a bound has to move by more of the step than two runs differ by."""
    here = {finding.id: finding for finding in base.findings}
    there = {finding.id: finding for finding in new.findings}
    unasked = {rule.id for rule in new.not_assessed}
    noise = rules.limits.noise.floor.value * median(step.window_ns for step in steps_of(base, judged.places[0]))
    found = []
    for name in dict.fromkeys((*there, *here)):
        first, second = here.get(name), there.get(name)
        bound = None if second is None or second.bound_ns is None else round(second.bound_ns * judged.scale)
        state = _state(first, second, bound, noise, asked=name not in unasked)
        lone, other = (first, new) if second is None or state == "better" else (second, base)
        grew = (bound or 0) - (first.bound_ns or 0) if first is not None and second is not None else 0
        if lone is not None and state in _BY_LEVEL and abs(grew) <= noise and _by_share_alone(lone, other, rules.limits):
            state = "same"
        place = SettingPlace() if second is None else place_of(second, new.job, rules.job)
        shown = there[name] if second is not None else here[name]
        change = FindingChange(
            id=shown.id,
            name=shown.name,
            severity=shown.severity,
            state=state,
            summary=shown.summary,
            base_bound_ns=first.bound_ns if first is not None else None,
            new_bound_ns=bound,
            wall=shown.wall,
            key=place.key,
            line=place.line,
            fix=place.fix,
            why=shown.why,
        )
        found.append(change)
    return tuple(
        sorted(
            found, key=lambda row: (_STATES.index(row.state), -_LEVELS[row.severity], -(row.new_bound_ns or row.base_bound_ns or 0), row.id)
        )
    )


_BY_LEVEL = frozenset({"new", "gone", "worse", "better"})  # states that another share of the step may make


def _by_share_alone(lone: Finding, other: Diagnosis, limits: Limits) -> bool:
    """Whether only one run has a measured finding, or a more severe one, since its step has another length.

    Then nothing that it rests on takes longer than in the other run, and all else but shares is the same.
    """
    told = [(one, other.facts.get(one.fact)) for one in lone.evidence if one.unit != "share"]

    def as_before(one: Evidence, fact: Fact | None) -> bool:
        if fact is None or not (isinstance(one.value, int | float) and isinstance(fact.value, int | float)):
            return fact is not None and one.value == fact.value
        shorter = one.unit == "ns" and one.fact not in limits.better_when_larger and one.value <= fact.value
        return shorter or math.isclose(one.value, fact.value, rel_tol=limits.noise.floor.value)

    return lone.status == "measured" and any(one.unit == "ns" for one, _ in told) and all(as_before(*pair) for pair in told)


def _state(first: Finding | None, second: Finding | None, bound: int | None, noise: float, *, asked: bool) -> FindingState:
    if first is None:
        return "new"
    if second is None:
        return "gone" if asked else "not_assessed"
    grew = (bound or 0) - (first.bound_ns or 0) if bound is not None and first.bound_ns is not None else 0
    rank = _LEVELS[second.severity] - _LEVELS[first.severity]
    if grew > noise or (rank > 0 and grew >= 0):  # a larger share of a shorter step is more severe, and nothing got worse
        return "worse"
    return "better" if grew < -noise or (rank < 0 and grew <= 0) else "same"


# --- the gate: the largest regression allowed, and findings that may not be new or worse ------------------------------


def gate(
    effect: Effect,
    findings: Sequence[FindingChange],
    limit: float | None,
    fail_on: Level | None,
    on_unclear: OnUnclear | None = None,
    *,
    limits: NoiseLimits,
    step: str = "step",
    long: LongSteps = NO_LONG_STEPS,
    one_pace: bool = False,
) -> Gate | None:
    """Whether it is met; None where none was asked for. `met` None: it can't be judged, and the sentence says what to do.

    `step`: what times are of. `long`: what a few long ones do to the mean, which counts too. `one_pace`: whether all
    compute became slower by one factor, as at another clock.
    """
    if limit is None and fail_on is None:
        return None
    judged = (
        [_with_long_steps(*_regression(effect, limit, limits, step, one_pace=one_pace), limit, limits, step, long)]
        if limit is not None
        else []
    )
    judged += [_findings(effect, findings, fail_on)] if fail_on is not None else []
    states = [met for met, _ in judged]
    met = False if False in states else None if None in states else True
    texts = [_beside_failure(text) if met is False and one is not False else text for one, text in judged]
    if effect.result == "refused":
        on_unclear = None  # what noise leaves open can be let pass; other work can't
    if met is None and on_unclear is not None:
        texts.append(_UNCLEAR[on_unclear])
    return Gate(limit=limit, fail_on=fail_on, met=met, sentence=" ".join(texts), on_unclear=on_unclear)


_UNCLEAR: Mapping[OnUnclear, str] = {
    "pass": "It passes all the same (--on-unclear pass).",
    "warn": "It passes with a warning (--on-unclear warn).",
    "fail": "It fails therefore (--on-unclear fail).",
}


_VERDICTS = {"The gate is met: ": "", "The gate can't be judged: ": "The regression can't be judged: "}


def _beside_failure(text: str) -> str:
    """What is said of a part of the gate that does not fail, where another does."""
    for verdict, instead in _VERDICTS.items():
        if text.startswith(verdict):
            return capitalised(instead + text.removeprefix(verdict))
    return text


def _regression(effect: Effect, limit: float, limits: NoiseLimits, step: str, *, one_pace: bool) -> tuple[bool | None, str]:
    allowed = f"the {percent(limit)} that the gate allows"
    if effect.result == "refused":
        return None, "The gate can't be judged, because the runs can't be compared. Capture the same work, or give --anyway."
    if effect.worse is None:
        return _from_nought(effect)
    if effect.result == "regression":
        beyond = effect.worse > limit
        if beyond and doubtful(effect):
            return None, (
                f"The gate can't be judged: {signed_share(effect.worse)} is more than {allowed}, but the noise between runs is assumed, and "
                "at twice as much equal runs lie as far apart. Three runs of each measure it; --run-noise tells it."
            )
        if beyond and one_pace and min(effect.runs_base, effect.runs_new) == 1:
            alone = "new" if effect.runs_new == 1 else "base"
            return None, (
                f"The gate can't be judged: {signed_share(effect.worse)} is more than {allowed}, but all compute takes longer by one factor, as at "
                f"a lower clock or power limit, and one run does not tell the clock of its GPU from the program. Capture 1 more run of {alone}, "
                "on another node or with locked clocks."
            )
        if beyond and (side := _lone_side(effect, limits)) is not None:
            text = (
                f"The gate can't be judged: {signed_share(effect.worse)} is more than {allowed}, but the only run of {side} may be of another "
                f"kind (node, clock, placement) than the {max(effect.runs_base, effect.runs_new)} runs that it is held against. "
                f"Capture 1 more run of {side}."
            )
            return None, text
        worst = _worst(effect)
        open_ = f", though noise leaves {signed_share(worst)} possible" if not beyond and worst is not None and worst > limit else ""
        return (
            not beyond,
            f"The gate is {'not ' if beyond else ''}met: {signed_share(effect.worse)} is {'more than' if beyond else 'within'} {allowed}{open_}.",
        )
    if effect.result in {"improvement", "no_change"}:
        return True, f"The gate is met: no regression beyond {allowed} was found."
    worst = _worst(effect)
    if worst is not None and worst <= limit:
        return True, f"The gate is met: whatever changed, it got worse by {signed_share(worst)} at most, within {allowed}."
    need = f" Such runs show a regression of {percent(effect.smallest)} in four of five comparisons." if effect.smallest is not None else ""
    return None, f"The gate can't be judged: noise hides whether the change is within {allowed}.{need} {_advice(effect, limit, step)}"


def _with_long_steps(met: bool | None, text: str, limit: float, limits: NoiseLimits, step: str, long: LongSteps) -> tuple[bool | None, str]:
    """The same, but where the typical step is within the limit and the mean is not; a single long step may be a mishap of the capture."""
    told = min(long.by_steps, long.by_runs) <= limits.p_value_assumed.value
    if not met or long.change <= limit or long.steps < _NO_MISHAP or not told:
        return met, text
    why = (
        f"the typical {step} is within the {percent(limit)} that it allows, the mean over all {step}s is not ({signed_share(long.change)}), "
        f"because {long.steps} long ones make it"
    )
    if max(long.by_steps, long.by_runs) <= limits.p_value.value:
        return False, f"The gate is not met: {why}."
    return None, f"The gate can't be judged: {why}. Capture more {step}s, or more runs, to see how many of them are long."


def _lone_side(effect: Effect, limits: NoiseLimits) -> str | None:
    """The side of one run that may be slower (or faster) by its kind alone: several runs stand against it, too few to have met both of two
    kinds that are alike often, and kinds of run differ by as much. Counts do not go by kinds of run.
    """
    few, many = sorted((effect.runs_base, effect.runs_new))
    if few > 1 or many == 1 or effect.unit == "count" or 0.5 ** (many + 1) <= limits.lone_error.value:
        return None
    if effect.worse is None or effect.worse > limits.lone_change.value:
        return None
    return "new" if effect.runs_new == 1 else "base"


def _advice(effect: Effect, limit: float, step: str) -> str:
    """What to capture to judge the gate."""
    if effect.basis == "single step":
        return several(effect, step)
    if effect.more_new is None or effect.more_base is None:
        return "Capture more runs of both, and more steps in each."
    parts = [
        f"{more} more run{'s' if more > 1 else ''} of {side}"
        for more, side in ((effect.more_new, "new"), (effect.more_base, "base"))
        if more
    ]
    return f"Capture {enumerated(parts)}: they would show {percent(effect.tolerance if effect.tolerance is not None else limit)}."


def _from_nought(effect: Effect) -> tuple[bool | None, str]:
    """A metric that is nought in base has no relative change."""
    if effect.result == "regression":
        return False, "The gate is not met: the metric is nought in base, and any growth is beyond it."
    if effect.result == "cannot_tell":
        return None, "The gate can't be judged: the metric is nought in base. Capture more runs of both."
    return True, "The gate is met: the metric did not get worse."


def _worst(effect: Effect) -> float | None:
    """The worse end of the interval, relative to base."""
    if effect.low is None or effect.high is None or not effect.base:
        return None
    ends = effect.low / abs(effect.base), effect.high / abs(effect.base)
    backwards = effect.worse is not None and effect.relative is not None and effect.worse != effect.relative
    return max(-end for end in ends) if backwards else max(ends)


def _findings(effect: Effect, findings: Sequence[FindingChange], fail_on: Level) -> tuple[bool | None, str]:
    """Notes on the capture (wall "capture") say nothing of the run, and do not count."""
    if effect.result == "refused":
        return None, "Findings can't be held against each other, because the runs can't be compared."
    found = [
        one for one in findings if one.state in {"new", "worse"} and one.wall != "capture" and _LEVELS[one.severity] >= _LEVELS[fail_on]
    ]
    if not found:
        return True, f"No finding of severity {fail_on} or above is new or worse."
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        False,
        f"The gate is not met: new or worse, of severity {fail_on} or above: {enumerated([f'{one.id} ({one.state})' for one in found[:3]])}{more}.",
    )
