"""What the runs and steps look like besides their level and scatter: a warm-up inside captures, two groups of steps or of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple

from diagnose.knowledge.comparison import ComparisonRules
from diagnose.knowledge.templates import decimal, percent
from diagnose.model.statistics import fisher, majority, t_quantile, two_groups
from diagnose.reason.compare.delta import SplitRun
from diagnose.reason.compare.metrics import STEP_TIME, by_category

_STEPS = 5  # steps of a run from which two lengths are told: fewer look so by chance
_BY_CHANCE = 0.005  # that plain scatter lets a run of either side stand apart
_ORDERED = 0.05  # of the orders of a run's steps: fewer are no chance
_LEAST = 0.02  # of the level: less need not be said
_FAR = 0.1  # of the median: no step that is less above it stands far out
_SCATTER = 8  # times the median deviation of the steps; likewise, so that the tail of plain scatter does not


def patterns(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], labels: Sequence[Sequence[str]], *, metric: str, rules: ComparisonRules
) -> tuple[str, ...]:
    """Sentences on what in the steps and runs of both sides is no plain scatter; each says what to do. Only of times of steps.

    `labels`: how the runs of both sides are called.
    """
    if metric != STEP_TIME:
        return ()
    least, step = max(_LEAST, rules.limits.noise.floor_measured.value), rules.words.step
    return (
        *_warm_up((*base, *new), least, step),
        *_steps_in_two(base, new, least, step),
        *_runs_in_two(base, new, least),
        *_lone_run(base, new, labels, least),
    )


class LongSteps(NamedTuple):
    """What a few long steps do to the mean, which the median does not see; nought and none without.

    `change`: of the mean, relative. `steps`: how many stand far out on the side that has more of that. `by_steps`: the chance that so many
    of both sides' long steps fall to it (Fisher's exact test); `by_runs`: that every run of it has more than every run of the other, one
    where they do not.
    """

    change: float = 0.0
    sentence: str = ""
    steps: int = 0
    by_steps: float = 1.0
    by_runs: float = 1.0


NO_LONG_STEPS = LongSteps()


class Held(NamedTuple):
    """What long steps hold more of than the others: the category, by how many ns in each, and how many such steps there are."""

    category: str = ""
    ns: float = 0.0
    steps: int = 0


def long_steps(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], *, metric: str, step: str) -> LongSteps:
    """What a few long steps of either side do to the difference of the means.

    The median of a run does not see them, and the time to train does.
    """
    if metric != STEP_TIME or not all(median(run) > 0 for run in (*base, *new)):
        return NO_LONG_STEPS
    typical, whole = ([fmean(middle(run) for run in side) for side in (base, new)] for middle in (median, fmean))
    before, after = ([_excess(run) for run in side] for side in (base, new))
    apart = fmean(after) - fmean(before)
    change = whole[1] / whole[0] - 1
    if abs(apart) < _LEAST or abs(change - (typical[1] / typical[0] - 1)) < _LEAST or change * apart <= 0:
        return NO_LONG_STEPS
    side, runs, others = ("new", new, base) if apart > 0 else ("base", base, new)
    separate = min(after) > max(before) if apart > 0 else min(before) > max(after)
    found = [value for run in runs for value in _far(run)]
    steps, further = sum(map(len, runs)), sum(map(len, others))
    longest = f"{decimal(max(found) / 1e6)} ms"
    return LongSteps(
        change=change,
        steps=len(found),
        by_steps=fisher(len(found), steps, sum(len(_far(run)) for run in others), further),
        by_runs=1 / math.comb(len(base) + len(new), len(new)) if separate else 1.0,
        sentence=f"The mean over all {step}s is {percent(abs(change))} {'longer' if change > 0 else 'shorter'} ({decimal(whole[0] / 1e6)} → "
        f"{decimal(whole[1] / 1e6)} ms): {len(found)} of {steps} {step}s of {side} stand far out, up to {longest}, which the median leaves out.",
    )


def what_long_steps_hold(runs: Sequence[SplitRun]) -> Held:
    """The category that holds at least half of what the steps that stand far out take more than their run's others, if any."""
    more: Counter[str] = Counter()
    count = 0
    for run in runs:
        far = {*_far([float(step.window_ns) for step in run.steps])}
        usual = [by_category(step) for step in run.steps if step.window_ns not in far]
        for step in (by_category(step) for step in run.steps if step.window_ns in far):
            count += 1
            for name in {*step, *(name for one in usual for name in one)}:
                more[name] += round((step.get(name, 0) - median(one.get(name, 0) for one in usual)) * run.scale)
    name, ns = max(more.items(), key=lambda one: (one[1], one[0]), default=("", 0))
    return Held(name, ns / count, count) if ns > 0 and 2 * ns >= sum(more.values()) else Held()


def _excess(run: Sequence[float]) -> float:
    """What the steps of a run that stand far out add to its mean, as a share of its median."""
    middle = median(run)
    return sum(value - middle for value in _far(run)) / (len(run) * middle)


def _far(run: Sequence[float]) -> list[float]:
    """The steps of a run that are longer than its median by far more than the others scatter."""
    middle = median(run)
    least = max(_FAR * middle, _SCATTER * median(abs(value - middle) for value in run))
    return [value for value in run if value - middle > least]


def _warm_up(runs: Sequence[Sequence[float]], least: float, step: str) -> Iterator[str]:
    """The first step of every run is longer than all that follow but the next one, and each run ends faster than it began."""
    known = [run for run in runs if len(run) > 2 and median(run) > 0]
    if not known or len(known) < len(runs):
        return
    excess = [run[0] / median(run[1:]) - 1 for run in known]
    falling = all(run[0] == max(run) and median(run[: len(run) // 2]) > median(run[-(len(run) // 2) :]) for run in known)
    chance = math.prod(1 / len(run) for run in known)  # that the first step is the longest in every run
    if falling and chance < 0.05 and min(excess) > 0 and fmean(excess) >= least:
        yield (
            f"Every capture gets faster from its first {step} on (by {percent(fmean(excess))} from the first {step} to the others): a warm-up. "
            f"Begin the capture some {step}s later, or drop the first {step}."
        )


def _steps_in_two(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], least: float, step: str) -> Iterator[str]:
    """Steps of two lengths within runs."""
    for side, runs in (("base", base), ("new", new)):
        found = [groups for run in runs if len(run) >= _STEPS and (groups := two_groups(run)) is not None and _apart(groups) >= least]
        sizes = [sum(len(groups[which]) for groups in found) for which in (0, 1)]
        open_ = any(majority(sum(map(len, groups)), len(groups[0]) / sum(map(len, groups))) < 1 - _BY_CHANCE for groups in found)
        if 2 * len(found) > len(runs) and open_:
            apart = percent(median(_apart(groups) for groups in found))
            if 2 * sum(_gets_slower(run) for run in runs) > len(runs):
                yield (
                    f"The {step}s of {side} get {apart} longer within the capture ({sizes[0]} short, then {sizes[1]} long), as when the clock "
                    f"falls (power, heat) or another process begins: log clocks beside the run, and capture later {step}s."
                )
                continue
            yield (
                f"The {step}s of {side} are of two lengths, {apart} apart ({sizes[0]} short, "
                f"{sizes[1]} long): a median may lie in either group. Compare {step}s of one kind (--step-range), or more of them."
            )


def _gets_slower(run: Sequence[float]) -> bool:
    """Whether all short steps of a run come before all long ones, as fewer than one in twenty orders do."""
    groups = two_groups(run)
    if groups is None:
        return False
    is_long = [value > max(groups[0]) for value in run]
    return is_long == sorted(is_long) and math.comb(len(run), len(groups[0])) > 1 / _ORDERED


def _runs_in_two(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], least: float) -> Iterator[str]:
    """Runs of one side in two groups: other clocks, nodes or placements."""
    for side, runs in (("base", base), ("new", new)):
        values = [median(run) for run in runs]
        found = two_groups(values)
        if found is not None and (apart := _apart(found)) >= least:
            yield (
                f"The runs of {side} fall into two groups, {percent(apart)} apart ({len(found[0])} fast, {len(found[1])} slow): "
                "two kinds of node, clock or placement. The noise between runs holds that; runs of one kind would show smaller changes."
            )


def _lone_run(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], labels: Sequence[Sequence[str]], least: float
) -> Iterator[str]:
    """One run of a side that stands far from all others of it: a mishap of that run more likely than a program of two speeds."""
    sides = [[median(run) for run in side] for side in (base, new)]
    chance = _BY_CHANCE / 2 / sum(map(len, sides))  # of any of them, above or below
    for side, own, other, names in zip(("base", "new"), sides, sides[::-1], labels, strict=True):
        for place, (value, name) in enumerate(zip(own, names, strict=True)):
            rest = [*own[:place], *own[place + 1 :]]
            freedom = len(rest) + len(other) - 2
            if len(rest) < 2 or freedom < 2:
                continue
            off, squares = value / fmean(rest) - 1, math.fsum((one / fmean(group) - 1) ** 2 for group in (rest, other) for one in group)
            error = math.sqrt(squares / freedom * (1 + 1 / len(rest)))
            if abs(off) >= least and abs(off) > t_quantile(chance, freedom) * error:
                yield (
                    f"{name} stands {percent(abs(off))} {'above' if off > 0 else 'below'} the other runs of {side}, which the noise between "
                    "runs holds: look what was different there (node, clock, another job), or capture it again."
                )


def _apart(groups: tuple[Sequence[float], Sequence[float]]) -> float:
    """By how much the upper group lies above the lower one, relative."""
    low, high = median(groups[0]), median(groups[1])
    return high / low - 1 if low > 0 else 0.0
