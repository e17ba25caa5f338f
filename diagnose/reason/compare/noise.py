"""Is a difference more than noise? Steps are samples.

Difference of medians, its bootstrap interval, a rank test, and what these samples could have shown at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from diagnose.document.comparison import Basis, Result
from diagnose.knowledge.comparison import NoiseLimits
from diagnose.model.statistics import (
    MEDIAN_ERROR,
    bootstrap_intervals,
    normal_quantile,
    pooled_spread,
    rank_test,
    shift_shown,
    smallest_p,
)

_APART_FROM = 4  # values of a side: with fewer the others could not carry a test alone
_PAIRED_FROM = 3  # values of a side: two pairs are hardly an interval
_FEW = 40  # samples of both sides up to which the rank test's steps matter


@dataclass(frozen=True, kw_only=True)
class Design:
    """How the samples of the two sides correspond.

    `last_apart`: the last value of both sides is of another kind than the others (a step cut short), and is held against the other side's
    last one only. `paired`: both captured the same steps, so that what a step has in common in both runs (its data, its place in the
    capture) cancels out where steps are drawn in pairs. Heeded from three and four values on (`heeded`).
    """

    last_apart: bool = False
    paired: bool = False

    def heeded(self, n_base: int, n_new: int) -> Design:
        """The design as far as samples of these sizes bear it."""
        return Design(
            last_apart=self.last_apart and min(n_base, n_new) >= _APART_FROM, paired=self.paired and n_base == n_new >= _PAIRED_FROM
        )


PLAIN = Design()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the samples say.

    `low` and `high` bound `delta` (None from a single step); `spread` is the pooled robust standard deviation within the sides; relative
    figures are of base.
    """

    base: float
    new: float
    delta: float
    relative: float | None
    worse: float | None
    low: float | None
    high: float | None
    p_value: float | None
    spread: float
    smallest: float | None
    basis: Basis
    result: Result


def decide(
    base: Sequence[float],
    new: Sequence[float],
    *,
    limits: NoiseLimits,
    larger_is_worse: bool = True,
    tolerance: float | None = None,
    design: Design = PLAIN,
) -> Decision:
    """Regression, improvement, no change or can't tell, of samples that hold at least one value each.

    `tolerance`: the relative change that still counts as none, as far as noise allows (default: the gate of trace_rules/comparison.yaml).
    """
    own = design.heeded(len(base), len(new))
    delta = median(new) - median(base)
    relative = delta / abs(median(base)) if median(base) else None
    spread = _spread(base, new, own)
    low, high, p = None, None, None
    if min(len(base), len(new)) > 1:
        low, high = intervals([base], [new], own, limits=limits)[0]
        p = rank_test(strata(base, new, own))
    smallest = smallest_effect(len(base), len(new), spread / abs(median(base)), limits) if median(base) else None
    basis, moved = _moved(base, new, relative, spread, (low, high), p, limits, own)
    result = _result(
        basis, moved, delta, relative, (low, high), median(base), larger_is_worse, max(tolerance or limits.tolerance.value, 0.0), limits
    )
    return Decision(
        base=median(base),
        new=median(new),
        delta=delta,
        relative=relative,
        worse=None if relative is None else relative if larger_is_worse else -relative,
        low=low,
        high=high,
        p_value=p,
        spread=spread,
        smallest=smallest,
        basis=basis,
        result=result,
    )


def strata(base: Sequence[float], new: Sequence[float], design: Design) -> list[tuple[Sequence[float], Sequence[float]]]:
    """The samples that may be held against each other."""
    return [(base[:-1], new[:-1]), (base[-1:], new[-1:])] if design.last_apart else [(base, new)]


def _spread(base: Sequence[float], new: Sequence[float], design: Design) -> float:
    first, second = strata(base, new, design)[0]
    return pooled_spread(first, second)


def differs(
    base: Sequence[float],
    new: Sequence[float],
    bounds: tuple[float, float] | None,
    least: float,
    design: Design = PLAIN,
    *,
    limits: NoiseLimits,
) -> bool:
    """Whether a part of the step differs by more than noise and `least`; `bounds`: its interval, None of a single step."""
    delta = median(new) - median(base)
    relative = delta / median(base) if median(base) else None
    own = design.heeded(len(base), len(new))
    p = rank_test(strata(base, new, own)) if bounds is not None else None
    _, moved = _moved(base, new, relative, _spread(base, new, own), bounds or (None, None), p, limits, own)
    return moved and abs(delta) >= least and (relative is None or abs(relative) >= limits.floor.value)


def _moved(
    base: Sequence[float],
    new: Sequence[float],
    relative: float | None,
    spread: float,
    bounds: tuple[float | None, float | None],
    p: float | None,
    limits: NoiseLimits,
    design: Design,
) -> tuple[Basis, bool]:
    """What decides, and whether by it the samples differ."""
    if sorted(base) == sorted(new):
        return "identical", False
    size = math.inf if relative is None else abs(relative)
    if min(len(base), len(new)) == 1:
        known = limits.separation.value * spread / abs(median(base)) if median(base) else 0.0
        return "single step", size > max(limits.single_step.value, known)
    low, high = bounds
    excluded = low is not None and high is not None and (low > 0 or high < 0)
    sizes = [(len(first), len(second)) for first, second in strata(base, new, design)]
    if smallest_p(*sizes) <= limits.p_value.value:
        return "interval and rank test", excluded and p is not None and p <= limits.p_value.value
    apart = max(base) < min(new) or max(new) < min(base)
    enough = abs(median(new) - median(base)) >= apart_by(len(base), len(new), limits) * spread and size >= limits.separation_least.value
    return "separation", excluded and apart and enough


def _result(
    basis: Basis,
    moved: bool,
    delta: float,
    relative: float | None,
    bounds: tuple[float | None, float | None],
    base: float,
    larger_is_worse: bool,
    tolerance: float,
    limits: NoiseLimits,
) -> Result:
    """The verdict. A change below the floor is no more than what two captures of one program differ by."""
    if basis == "identical":
        return "no_change"
    size = math.inf if relative is None else abs(relative)
    if moved and size >= limits.floor.value:
        return "regression" if (delta > 0) == larger_is_worse else "improvement"
    if basis == "single step":
        return "no_change" if size < limits.floor.value else "cannot_tell"
    low, high = bounds
    allowed = max(tolerance, limits.floor.value) * abs(base)
    inside = low is not None and high is not None and -allowed <= low and high <= allowed
    return "no_change" if inside else "cannot_tell"


# --- the interval -----------------------------------------------------------------------------------------------------


def intervals(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], design: Design = PLAIN, *, limits: NoiseLimits
) -> list[tuple[float, float]]:
    """The bootstrap intervals of differences of medians, of several figures of the same steps (rows of one length on each side)."""
    if not base:
        return []
    own = design.heeded(len(base[0]), len(new[0]))
    return bootstrap_intervals(
        base,
        new,
        confidence=limits.confidence.value,
        resamples=int(limits.resamples.value),
        last_apart=own.last_apart,
        paired=own.paired,
    )


# --- what could have been shown ---------------------------------------------------------------------------------------


def smallest_effect(n_base: int, n_new: int, spread: float, limits: NoiseLimits) -> float:
    """The smallest relative effect that samples of these sizes with this relative spread would have shown with the usual power."""
    if min(n_base, n_new) == 1:
        return _rounded(max(limits.single_step.value, limits.separation.value * spread))
    error = MEDIAN_ERROR * math.sqrt(1 / n_base + 1 / n_new) * spread
    least = limits.floor.value
    if smallest_p((n_base, n_new)) > limits.p_value.value:
        least = max(least, limits.separation_least.value, apart_by(n_base, n_new, limits) * spread)
    return _rounded(max(_shown_in_spreads(n_base, n_new, limits) * spread, least + normal_quantile(limits.power.value) * error))


def apart_by(n_base: int, n_new: int, limits: NoiseLimits) -> float:
    """How many spreads samples too few for the rank test must lie apart; more with two steps on a side, whose spread is hardly known."""
    return limits.separation_of_two.value if min(n_base, n_new) == 2 else limits.separation.value


def _shown_in_spreads(n_base: int, n_new: int, limits: NoiseLimits) -> float:
    """What the interval (usual formula for medians) and, of few steps, the rank test ask for, in standard deviations."""
    level, power = limits.p_value.value, limits.power.value
    formula = (normal_quantile(1 - level / 2) + normal_quantile(power)) * MEDIAN_ERROR * math.sqrt(1 / n_base + 1 / n_new)
    return formula if n_base + n_new > _FEW else max(formula, shift_shown(n_base, n_new, level, power))


def _rounded(value: float) -> float:
    """Three significant digits: more would be pretence, and differ between machines."""
    return float(f"{value:.3g}")
