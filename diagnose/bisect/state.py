"""What the trials of a search say: values on one scale, the noise between captures, the model of steps, the gaps between what was measured.

A State is made anew from the list of trials whenever a decision is due, so that a log that is read back goes on as if it had never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from diagnose.bisect.numbers import Numbers
from diagnose.bisect.scale import Scale, scale_of
from diagnose.bisect.spread import Noise, Prior, Readings, discordant, flaky, noise, pooled, readings, robust
from diagnose.bisect.steps import Beliefs, Steps, steps
from diagnose.model.statistics import t_tail


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is searched.

    `count` candidates, from good (0) to bad. `again`: a candidate can be captured several times, up to `repeats`; otherwise each gives one reading, and up to `repeats` neighbours speak for an end.
    `limit`: the change that is allowed (relative). `smallest`: the smallest step to look for (relative); None: a share of what lies between the ends. `first`: one step is enough.
    `noise`: what is assumed of the noise between captures (relative), None for the usual. `counts`: the metric is a count. `attempts` at a candidate that gives no value.
    """

    count: int
    repeats: int
    again: bool = True
    first: bool = False
    limit: float | None = None
    smallest: float | None = None
    noise: float | None = None
    counts: bool = False
    attempts: int = 2


@dataclass(frozen=True)
class Taken:
    """One trial: the value of the metric (None: there is none), its relative standard error by the steps inside the capture, and whether it is no use to try again."""

    place: int
    value: float | None
    error: float = 0.0
    hopeless: bool = False


@dataclass(frozen=True)
class Gap:
    """A gap between two measured candidates: the probability of a step in it, the levels on both sides, and candidates inside that are still to be tried."""

    index: int
    left: int
    right: int
    chance: float
    base: float
    new: float
    inner: tuple[int, ...]

    @property
    def jump(self) -> float:
        """Size of the step, if there is one."""
        return abs(self.new - self.base)


class State:
    """What the trials say; levels, noise and jumps are on the scale of the search."""

    def __init__(self, question: Question, numbers: Numbers, taken: Sequence[Taken]) -> None:
        self.question, self.numbers = question, numbers
        self.last = question.count - 1
        self.raw: dict[int, list[float]] = {}
        tries: dict[int, int] = {}
        hopeless: set[int] = set()
        for one in taken:
            if one.value is not None:
                self.raw.setdefault(one.place, []).append(one.value)
                continue
            tries[one.place] = tries.get(one.place, 0) + 1
            patience = question.attempts + len(self.raw.get(one.place, ())) + (one.place in (0, self.last))
            if one.hopeless or tries[one.place] >= patience:
                hopeless.add(one.place)
        self.exhausted = frozenset(hopeless)
        self.inner_error = max((one.error for one in taken if one.value is not None), default=0.0)

    # --- values and noise ---------------------------------------------------------------------------------------------

    @cached_property
    def scale(self) -> Scale:
        """The scale of the search, chosen by what was measured first of both ends."""
        first = [self.raw[place][0] for place in (0, self.last) if place in self.raw]
        return scale_of(first or [next(iter(self.raw.values()), [1.0])[0]])

    @cached_property
    def assumed(self) -> float:
        """The noise between captures that is assumed before any was seen, relative."""
        usual = self.numbers.count_noise if self.question.counts else self.numbers.run_noise
        return usual.value if self.question.noise is None else self.question.noise

    @cached_property
    def prior(self) -> Prior:
        """The noise that is assumed, or what the steps inside the captures show if that is more."""
        return Prior(scale=max(self.assumed, self.inner_error), freedom=self.numbers.noise_weight.value)

    @cached_property
    def values(self) -> dict[int, list[float]]:
        """All values on the scale, by candidate."""
        return {place: [self.scale.to(value) for value in found] for place, found in sorted(self.raw.items())}

    @cached_property
    def flaky(self) -> dict[int, tuple[int, ...]]:
        """Captures that are left out: candidate → places in its list."""
        return flaky(self.values, self.prior, self.numbers.flaky_error.value)

    @cached_property
    def found(self) -> tuple[Readings, ...]:
        """What was measured, in the order of the candidates."""
        return tuple(
            readings(place, [value for index, value in enumerate(values) if index not in self.flaky.get(place, ())])
            for place, values in self.values.items()
        )

    @cached_property
    def noise(self) -> Noise:
        """The noise between captures of one candidate; of single readings, around the level that they share with others."""
        if self.question.again or len(self.found) < 2:
            return noise(self.found, self.prior)
        cuts = (-1, *self.outer.best, len(self.found) - 1)
        return noise([pooled(self.found[left + 1 : right + 1]) for left, right in pairwise(cuts)], self.prior)

    @cached_property
    def usual(self) -> Noise:
        """The same as most captures show it."""
        return robust(self.values, self.prior)

    @cached_property
    def doubtful(self) -> tuple[int, ...]:
        """Candidates whose captures contradict each other."""
        return discordant(self.values, self.prior, self.numbers.flaky_error.value)

    def strange(self) -> Iterator[int]:
        """Candidates whose single capture fits neither the measured candidate before nor the one after."""
        for before, one, after in zip(self.found, self.found[1:], self.found[2:], strict=False):
            if one.count == 1 and self._differs(one, before) and self._differs(one, after):
                yield one.place

    def _differs(self, one: Readings, other: Readings) -> bool:
        t = abs(one.mean - other.mean) / (self.usual.scale * math.sqrt(1 / one.count + 1 / other.count))
        return 2 * t_tail(t, self.usual.freedom) < self.numbers.step_error.value

    def captures(self, place: int) -> int:
        """How many values a candidate has given."""
        return len(self.raw.get(place, ()))

    def can(self, place: int) -> bool:
        """True when a candidate may be captured (once more)."""
        most = self.question.repeats if self.question.again else 1
        return place not in self.exhausted and self.captures(place) < most

    # --- the ends -----------------------------------------------------------------------------------------------------

    def runs(self) -> tuple[list[int], list[int]]:
        """The candidates that speak for the ends: each itself, or where one reading each is all there is, it and its nearest neighbours, without going over the middle."""
        if self.question.again:
            return [0], [self.last]
        usable = [place for place in range(self.question.count) if place in self.raw or place not in self.exhausted]
        most = max(1, min(self.question.repeats, len(usable) // 2))
        return usable[:most], usable[: -most - 1 : -1]

    @cached_property
    def outer(self) -> Steps:
        """Steps among single readings, with as many of them assumed as none."""
        means = [one.mean for one in self.found]
        width = max(self.numbers.level_range.value * (max(means) - min(means)), 8 * self.prior.scale)
        return steps(
            self.found,
            self.question.count,
            Beliefs(prior=self.prior, width=width, none=1.0, more=self.numbers.further_step.value, drift=0.0),
        )

    @cached_property
    def sides(self) -> tuple[Readings, Readings]:
        """The levels of the good and of the bad end, by all readings that speak for them."""
        if self.question.again:
            return self.found[0], self.found[-1]
        if len(self.found) > 2 and self.outer.none < self.numbers.ends_error.value:
            return pooled(self.found[: self.outer.best[0] + 1]), pooled(self.found[self.outer.best[-1] + 1 :])
        good, bad = ([one for one in self.found if one.place in run] for run in self.runs())
        return pooled(good), pooled(bad)

    @cached_property
    def difference(self) -> float:
        """Bad less good."""
        return self.sides[1].mean - self.sides[0].mean

    @cached_property
    def allowed(self) -> float:
        """The change that is allowed; nought where none was given."""
        return 0.0 if self.question.limit is None else self.scale.relative(self.question.limit, self.sides[0].mean)

    @cached_property
    def smallest(self) -> float:
        """The smallest step that is searched for."""
        size = abs(self.difference)
        if self.question.smallest is not None:
            return min(self.scale.relative(self.question.smallest, self.sides[0].mean), 0.9 * size)
        return max(self.numbers.smallest_step.value * size, self.allowed if self.allowed < 0.9 * size else 0.0)

    # --- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> Steps:
        """Where the metric steps."""
        numbers = self.numbers
        beliefs = Beliefs(
            prior=self.prior,
            width=max(numbers.level_range.value * abs(self.difference), 8 * self.noise.scale),
            none=numbers.no_step.value,
            more=numbers.further_step.value,
            drift=numbers.drift.value * self.smallest,
        )
        return steps(self.found, self.question.count, beliefs)

    @cached_property
    def lone(self) -> frozenset[int]:
        """Candidates whose level no other measured candidate shares."""
        cuts = (-1, *self.steps.best, len(self.found) - 1)
        return frozenset(self.found[right].place for left, right in pairwise(cuts) if right == left + 1)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps between measured candidates."""
        untried = [place for place in range(self.question.count) if place not in self.raw and place not in self.exhausted]
        out = []
        for index, (left, right) in enumerate(pairwise(self.found)):
            base, new = self._across(index)
            failed = sum(left.place < place < right.place for place in self.exhausted)
            inner = () if failed >= self.numbers.failures.value else tuple(place for place in untried if left.place < place < right.place)
            out.append(Gap(index, left.place, right.place, self.steps.chances[index], base, new, inner))
        return tuple(out)

    def _across(self, index: int) -> tuple[float, float]:
        """Levels before and after a gap, if there is a step in it."""
        cuts = (-1, *sorted({*self.steps.best, index}), len(self.found) - 1)
        place = cuts.index(index)
        before, after = self.found[cuts[place - 1] + 1 : index + 1], self.found[index + 1 : cuts[place + 1] + 1]
        return pooled(before).mean, pooled(after).mean

    def sure(self) -> list[Gap]:
        """Gaps that hold a step worth searching, largest step first."""
        least = 1 - self.numbers.step_error.value
        return sorted(
            (gap for gap in self.gaps if gap.chance >= least and gap.jump >= self.smallest), key=lambda gap: (-gap.jump, gap.left)
        )
