"""Is a difference more than noise? Runs are samples; the steps of a run tell how well its median is known.

The model is that of `diagnose bisect-step`: every run has one value (the median of its steps), runs of one side scatter around one level by
the noise between runs, and Student's t holds the two levels apart. That noise is measured from five runs of one side and one of the
other, or three of each; before that it is assumed in part, and of one run against one wholly. What is assumed stands in
trace_rules/comparison.yaml; reports/noise.md shows how often the answers are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.comparison import Basis, NoiseSource, Result
from diagnose.knowledge.comparison import NoiseLimits
from diagnose.model.statistics import (
    OUTLYING,
    Transform,
    known_spread,
    majority,
    median_error,
    pooled_spread,
    t_quantile,
    t_tail,
    transform_of,
    two_groups,
)

_PAIRED_FROM = 3  # values of a side: two pairs are hardly a spread
_MOST_RUNS = 30  # runs of a side that are ever asked for
_LEAST = 1e-9  # of a level: less noise than rounding


class Error(Struct, frozen=True, kw_only=True):
    """What the difference of two levels may be off by: its standard error, and the degrees of freedom in which that is known."""

    size: float
    freedom: float

    def reach(self, tail: float) -> float:
        """Half of the interval that leaves out `tail` on either side."""
        return t_quantile(tail, float(f"{self.freedom:.2g}")) * self.size


class Decision(Struct, frozen=True, kw_only=True):
    """What the runs say.

    `base` and `new` are the means of the runs' medians. `low` and `high` bound `delta` at the interval's level (None from a single step);
    `between` is the standard deviation of a run around its side's level, `within` that of steps around their run's median, both relative;
    `smallest` the relative change that is found with the usual power, `tolerance` the one that counts as none (at least the floor of the
    noise); `doubt` the relative difference that equal runs stay within where noise is not measured and larger than is assumed (None: it is
    measured or given); `more` how many runs more of base and new would show the tolerance.
    """

    base: float
    new: float
    delta: float
    relative: float | None
    worse: float | None
    low: float | None
    high: float | None
    p_value: float | None
    between: float
    source: NoiseSource
    within: float | None
    smallest: float | None
    tolerance: float
    doubt: float | None
    more: tuple[int, int] | None
    basis: Basis
    result: Result


Runs = Sequence[Sequence[float]]


def decide(
    base: Runs,
    new: Runs,
    *,
    limits: NoiseLimits,
    larger_is_worse: bool = True,
    tolerance: float | None = None,
    paired: bool = False,
    run_noise: float | None = None,
    counts: bool = False,
) -> Decision:
    """Regression, improvement, no change or can't tell, of at least one run a side with at least one value each.

    `tolerance`: the relative change that still counts as none, as far as noise allows (default: the gate of trace_rules/comparison.yaml).
    `paired`: one run against one captured the same steps, so that what a step has in common in both (its data, its place in the capture)
    cancels out. `run_noise`: the relative standard deviation between runs, where it is not measured (default: as assumed there). `counts`:
    the values are counts, which repeat more exactly than times.
    """
    here, there = [median(run) for run in base], [median(run) for run in new]
    levels = fmean(here), fmean(there)
    delta, scale = levels[1] - levels[0], _Scale(transform=transform_of([*here, *there]), base=levels[0])
    relative = delta / abs(levels[0]) if levels[0] else None
    usual = run_noise if run_noise is not None else limits.count_noise.value if counts else limits.run_noise.value
    numbers = [scale.transform.to(one) for one in here], [scale.transform.to(one) for one in there]
    within = _within(base, new, scale.transform, limits, paired=paired, counts=counts)
    noise = _between(numbers, within, usual, limits)
    source: NoiseSource = noise.source if noise.source != "assumed" or run_noise is None else "given"
    terms = _terms(source, tolerance, limits)
    error = noise.error(len(base), len(new), within.astray)
    change = fmean(numbers[1]) - fmean(numbers[0])
    p = min(1.0, 2 * t_tail(abs(change) / error.size, error.freedom))
    single = noise.freedom is None and not counts and min(len(base[0]), len(new[0])) == 1
    low, high = (None, None) if single else _interval(change, error, scale, delta, limits)
    smallest = _smallest(error, terms, scale, limits) if relative is not None else None
    identical = sorted(map(sorted, base)) == sorted(map(sorted, new))
    moved = p <= terms.level and (relative is None or abs(relative) >= terms.floor)
    inside = low is not None and high is not None and max(-low, high) <= terms.allowed * abs(levels[0])
    shown = smallest is not None and smallest <= terms.allowed
    same = identical or (inside and shown and not moved)
    return Decision(
        base=levels[0],
        new=levels[1],
        delta=delta,
        relative=relative,
        worse=None if relative is None else relative if larger_is_worse else -relative,
        low=low,
        high=high,
        p_value=None if single else p,
        between=_rounded(noise.scale / scale.unit),
        source=source,
        within=None if within.spread is None else _rounded(within.spread / scale.unit),
        smallest=smallest,
        tolerance=terms.allowed,
        doubt=None if source != "assumed" or counts else _doubt(noise, terms.level, scale, limits),
        more=None if smallest is None or shown else _more(noise, len(base), len(new), terms, scale, limits),
        basis="identical" if identical else "single step" if single else "two captures" if noise.freedom is None else "runs",
        result=_result(same=same, moved=moved, worse=(delta > 0) == larger_is_worse),
    )


class _Scale(Struct, frozen=True, kw_only=True):
    """How values become the numbers that are compared, and these relative to, or differences from, a base level."""

    transform: Transform
    base: float

    @property
    def unit(self) -> float:
        """What a relative number is of the base."""
        return 1.0 if self.transform.logarithmic else (abs(self.base) or self.transform.unit) / self.transform.unit

    def relative(self, number: float) -> float:
        """A difference of numbers as a relative change of the base."""
        return _rounded(math.expm1(number) if self.transform.logarithmic else number / self.unit)

    def difference(self, number: float) -> float:
        """A difference of numbers as a difference of values."""
        return self.base * math.expm1(number) if self.transform.logarithmic else number * self.transform.unit


class _Terms(Struct, frozen=True, kw_only=True):
    """When a change counts: the level of the test, the least relative change that is told, and the one up to which it counts as none."""

    level: float
    floor: float
    allowed: float


def _result(*, same: bool, moved: bool, worse: bool) -> Result:
    """What it comes to: nothing changed that noise could hide, a change beyond chance and tolerance, or neither."""
    if same:
        return "no_change"
    if not moved:
        return "cannot_tell"
    return "regression" if worse else "improvement"


def _terms(source: NoiseSource, tolerance: float | None, limits: NoiseLimits) -> _Terms:
    floor = limits.floor.value if source in {"assumed", "partly assumed"} else limits.floor_measured.value
    return _Terms(
        level=limits.p_value.value if source == "measured" else limits.p_value_assumed.value,
        floor=floor,
        allowed=max(tolerance if tolerance is not None else limits.tolerance.value, floor),
    )


# --- noise ------------------------------------------------------------------------------------------------------------


class _Within(Struct, frozen=True, kw_only=True):
    """How well the runs' medians are known by their steps: the standard deviation of steps (None: not known), the squared standard error of
    a run's median, that of the difference of one run against one, and the freedom of it.

    `astray`: the squared error that medians which no other step bears add to the difference of several runs.
    """

    spread: float | None
    squared: float
    of_two: float
    freedom: float
    astray: float = 0.0


def _within(base: Runs, new: Runs, transform: Transform, limits: NoiseLimits, *, paired: bool, counts: bool) -> _Within:
    numbers = [[transform.to(value) for value in run] for run in (*base, *new)]
    if counts:
        return _Within(spread=None, squared=0.0, of_two=0.0, freedom=1.0)
    if len(numbers) == 2:
        return _within_two(numbers[0], numbers[1], limits, paired=paired and len(numbers[0]) == len(numbers[1]) >= _PAIRED_FROM)
    spread = known_spread(numbers)[0]
    bare = _without_profile(numbers)
    without = known_spread(bare)[0]
    if 0 < without < spread / 2:  # a median over few runs takes away some of their own scatter too
        numbers, spread = bare, without
    squared = fmean(_squared_error(spread, len(run), limits) for run in numbers)
    sides, usual = (numbers[: len(base)], numbers[len(base) :]), median(pooled_spread(run, ()) for run in numbers)
    return _Within(
        spread=spread if max(map(len, numbers)) > 1 else None,
        squared=squared,
        of_two=0.0,
        freedom=1.0,
        astray=math.fsum(distance_astray(run, usual) ** 2 / len(side) ** 2 for side in sides for run in side),
    )


def distance_astray(run: Sequence[float], spread: float) -> float:
    """How far the nearest step lies from the median of a run, where that is farther than steps scatter (`spread`, of most runs), else 0.

    Two of three steps that were held up carry the median with them, which the scatter of most runs does not tell.
    """
    if len(run) < 2 or not spread:
        return 0.0
    middle = median(run)
    distances = sorted(abs(value - middle) for value in run)
    nearest = distances[len(run) % 2]  # of an odd number the first is the median itself
    return nearest if nearest > OUTLYING * spread else 0.0


def _without_profile(numbers: Sequence[Sequence[float]]) -> list[list[float]]:
    """The steps without what all runs have in common at the same place in the capture (a warm-up, the data): the median over the runs."""
    size = len(numbers[0])
    if size < _PAIRED_FROM or any(len(run) != size for run in numbers):
        return []
    around = [[value - middle for value in run] for run in numbers for middle in (median(run),)]
    usual = [median(places) for places in zip(*around, strict=True)]
    return [[value - common for value, common in zip(run, usual, strict=True)] for run in around]


def _within_two(first: Sequence[float], second: Sequence[float], limits: NoiseLimits, *, paired: bool) -> _Within:
    """Of one run against one: by both sides' spread, by the differences of the same steps, or by the two groups that steps fall into."""
    spread, freedom = known_spread([first, second])
    squared = [_squared_error(spread, len(run), limits) for run in (first, second)]
    of_two = sum(squared)
    if paired:
        by_pairs, known = known_spread([[new - old for old, new in zip(first, second, strict=True)]])
        pairs = (median_error(len(first)) * by_pairs) ** 2
        if pairs < of_two / 6:  # what the steps have in common is most of their spread
            of_two, freedom = pairs, known
    groups = [
        (median(found[1]) - median(found[0]), len(found[1]) / len(run)) for run in (first, second) if (found := two_groups(run)) is not None
    ]
    if groups:  # a median may lie in either group, the more seldom the more steps its run has
        gap, upper = max(groups)
        flips = [majority(len(run), upper) for run in (first, second)]
        of_two = max(of_two, gap**2 * math.fsum(chance * (1 - chance) for chance in flips))
    known_steps = max(len(first), len(second)) > 1
    if min(len(first), len(second)) == 1 and spread <= limits.single_step.value:
        freedom = _KNOWN  # what is assumed is taken for known
    return _Within(spread=spread if known_steps else None, squared=sum(squared) / 2, of_two=of_two, freedom=freedom)


def _squared_error(spread: float, size: int, limits: NoiseLimits) -> float:
    """Of a run's median. A single step has no spread of its own: what is assumed, or more where other runs show more."""
    return max(spread, limits.single_step.value) ** 2 if size == 1 else (median_error(size) * spread) ** 2


class _Noise(Struct, frozen=True, kw_only=True):
    """Noise between runs: standard deviation of a run's median; its freedom, None of one run against one.

    Of those, `of_two` and `of_two_freedom` are of what their steps leave open, which comes on top.
    """

    scale: float
    freedom: float | None
    source: NoiseSource
    of_two: float
    of_two_freedom: float

    def error(self, n_base: int, n_new: int, astray: float = 0.0) -> Error:
        """The error of the difference of this many runs; `astray` is a squared error of theirs on top."""
        if self.freedom is not None:
            return Error(size=max(math.sqrt(self.scale**2 * (1 / n_base + 1 / n_new) + astray), _LEAST), freedom=self.freedom)
        # what is assumed is taken for known; Satterthwaite, An approximate distribution of estimates of variance components (1946)
        squared = 2 * self.scale**2 + self.of_two
        freedom = self.of_two_freedom * (squared / self.of_two) ** 2 if self.of_two > 0 else math.inf
        return Error(size=max(math.sqrt(squared), _LEAST), freedom=min(freedom, _KNOWN))


_KNOWN = 1e4  # degrees of freedom from which t is normal


def _between(numbers: tuple[Sequence[float], Sequence[float]], within: _Within, usual: float, limits: NoiseLimits) -> _Noise:
    """Measured where the runs' own scatter has freedom enough; before that what is assumed, outweighed by what they show."""
    freedom = sum(len(side) - 1 for side in numbers)
    squares = math.fsum((one - fmean(side)) ** 2 for side in numbers for one in side)
    weight = limits.noise_weight.value
    if not freedom:
        return _Noise(scale=usual, freedom=None, source="assumed", of_two=within.of_two, of_two_freedom=within.freedom)
    if freedom >= weight:  # runs can't lie closer together than their own steps allow, but by luck
        scale = math.sqrt(max(squares / freedom, within.squared if within.spread is not None else 0.0))
        return _Noise(scale=scale, freedom=freedom, source="measured", of_two=0.0, of_two_freedom=1.0)
    squared, known = _held_together(squares, freedom, usual**2 + within.squared, limits)
    return _Noise(scale=math.sqrt(squared), freedom=known, source="partly assumed", of_two=0.0, of_two_freedom=1.0)


def _held_together(squares: float, freedom: int, assumed: float, limits: NoiseLimits) -> tuple[float, float]:
    """The squared noise by few runs and by what is `assumed` (squared too), which never lowers what the runs show; and its freedom."""
    weight = limits.noise_weight.value
    return max((weight * assumed + squares) / (weight + freedom), squares / freedom), weight + freedom


# --- the interval -----------------------------------------------------------------------------------------------------


def _interval(change: float, error: Error, scale: _Scale, delta: float, limits: NoiseLimits) -> tuple[float, float]:
    """The interval of `delta`, the difference of the levels, which it always holds."""
    reach = error.reach((1 - limits.confidence.value) / 2)
    ends = [scale.difference(change + way * reach) for way in (-1, 1)]
    return min(ends[0], delta), max(ends[1], delta)


def spread_interval(
    base: Sequence[float],
    new: Sequence[float],
    steps: tuple[Sequence[float], Sequence[float]],
    *,
    middles: tuple[int, int],
    limits: NoiseLimits,
    run_noise: float | None = None,
) -> tuple[float, float]:
    """The interval of the difference of means of a part of the step, in the values' own unit; of a single step by what is assumed of one.

    `base` and `new` are its values in the median step of each run. Of one run against one `steps` are its values in all steps, and
    `middles` says of how many steps each median step is the mean.
    """
    delta, tail = fmean(new) - fmean(base), (1 - limits.confidence.value) / 2
    level = (fmean(base) + fmean(new)) / 2
    usual = (run_noise if run_noise is not None else limits.run_noise.value) * level
    freedom = len(base) + len(new) - 2
    spread, known = known_spread(steps)
    if not freedom:
        if min(map(len, steps)) == 1 and spread <= limits.single_step.value * level:
            spread, known = limits.single_step.value * level, _KNOWN
        of_steps = spread**2 * sum(1 / number for number in middles)
        squared = 2 * usual**2 + of_steps
        error = Error(size=math.sqrt(squared), freedom=min(known * (squared / of_steps) ** 2, _KNOWN) if of_steps else _KNOWN)
        reach = error.reach(tail)
        return delta - reach, delta + reach
    squares = math.fsum((one - fmean(side)) ** 2 for side in (base, new) for one in side)
    squared, in_all = (
        _held_together(squares, freedom, usual**2 + spread**2, limits)
        if freedom < limits.noise_weight.value
        else (squares / freedom, float(freedom))
    )
    reach = t_quantile(tail, in_all) * math.sqrt(squared * (1 / len(base) + 1 / len(new)))
    return delta - reach, delta + reach


# --- what could have been shown ---------------------------------------------------------------------------------------


def _smallest(error: Error, terms: _Terms, scale: _Scale, limits: NoiseLimits) -> float:
    """The smallest relative change that is found with the usual power: beyond the test, and beyond the floor."""
    return scale.relative(max(error.reach(terms.level / 2), terms.floor * scale.unit) + error.reach(1 - limits.power.value))


def _doubt(noise: _Noise, level: float, scale: _Scale, limits: NoiseLimits) -> float:
    """The relative difference that one run against one stays within, if runs differ by more than is assumed."""
    return scale.relative(replace(noise, scale=limits.doubt.value * noise.scale).error(1, 1).reach(level / 2))


def _more(noise: _Noise, n_base: int, n_new: int, terms: _Terms, scale: _Scale, limits: NoiseLimits) -> tuple[int, int] | None:
    """How many runs more of each side would show a change of `terms.allowed`, if the noise is what it seems; None where no number would.

    Of the new side alone where the base has runs enough to measure noise and that does; else of both, up to one number.
    """
    weight = limits.noise_weight.value
    of_runs = noise.scale if noise.freedom is not None else math.sqrt(noise.scale**2 + noise.of_two / 2)
    measured = replace(terms, level=limits.p_value.value)
    sizes = [(n_base, size) for size in range(n_new + 1, _MOST_RUNS)] if n_base > weight else []
    sizes += [(max(n_base, size), max(n_new, size)) for size in range(2, _MOST_RUNS)]
    for first, second in sizes:
        freedom = first + second - 2
        known = freedom if freedom >= weight else freedom + weight
        error = Error(size=max(of_runs * math.sqrt(1 / first + 1 / second), _LEAST), freedom=known)
        if _smallest(error, measured, scale, limits) <= terms.allowed and (first, second) != (n_base, n_new):
            return first - n_base, second - n_new
    return None


def _rounded(value: float) -> float:
    """Three significant digits: more would be pretence, and differ between machines."""
    return float(f"{value:.3g}")
