"""Which candidate to measure next, or what the answer is: a pure function of what was measured so far.

Captures that cost something are searched: both ends are measured first and must differ, then gaps that surely hold a step are halved; where
captures leave it open on which side of a candidate the step lies, the candidate is captured again. An answer is verified before it is
given: both sides of the step were captured twice, and it is surer than any decision on the way had to be. Where captures are there already
all of them were measured, once each, and the steps of the whole series are the answer.

A State is made anew from the list of trials whenever a decision is due, so that a log that is read back goes on as if it had never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from diagnose.bisect.model import (
    Beliefs,
    Noise,
    Numbers,
    Posterior,
    Readings,
    Trend,
    apart,
    change_points,
    discordant,
    flaky,
    pooled,
    pooled_noise,
    readings,
    robust_noise,
    trend,
)
from diagnose.model.statistics import Transform, t_quantile, t_tail, transform_of

Reason = Literal["good end", "bad end", "halve", "again", "verify", "control"]
Ends = Literal["differ", "alike", "open"]
_SHARED = 4  # captures of a candidate that no other one shares its level with, before it is named
_ENCLOSED = 0.2  # hope for a candidate between two that failed, against one beside them
_LIKELY = 0.9  # a step that is too small to be searched for is mentioned from here on
_LEAST = 0.05  # a gap less likely than this begins no answer
_UNSEEN = 0.26  # of the candidates: a wider stretch after a step that is named does not stay unseen, for the step may be taken back in it
_NARROW = 4  # a stretch of fewer candidates than this is not looked into for that
_REVERTS = 3  # candidates that say they take something back, looked at after a step
_SURE = 3  # captures of a candidate after a step that seems to lie before it again

# --- what was measured ------------------------------------------------------------------------------------------------


class Question(Struct, frozen=True, kw_only=True):
    """What is searched.

    `count` candidates, from good (0) to bad. `again`: a candidate can be captured several times, up to `repeats`; otherwise all were
    measured once, and up to `repeats` neighbours speak for an end. `limit`: the change that is allowed (relative). `smallest`: the smallest
    step to look for (relative); None: a share of what lies between the ends. `first`: one step is enough. `noise`: what is assumed of the
    noise between captures (relative), None for the usual. `counts`: the metric is a count. `retries`: how often a candidate that gave no
    value is tried again; an end, without which nothing can be searched, once more than that. `reverts`: candidates that say of themselves
    that they take an earlier one back.
    """

    count: int
    repeats: int
    again: bool = True
    first: bool = False
    limit: float | None = None
    smallest: float | None = None
    noise: float | None = None
    counts: bool = False
    retries: int = 1
    reverts: tuple[int, ...] = ()


class Measurement(Struct, frozen=True):
    """One trial: the metric's value (None: it gave none) and its relative standard error by its steps.

    `standing`, of one without a value: "tried" may be tried again; "hopeless" is not; "left out" takes back what the candidate gave before;
    "afresh" forgets that it gave nothing.
    """

    place: int
    value: float | None
    error: float = 0.0
    standing: Literal["tried", "hopeless", "left out", "afresh"] = "tried"


class Gap(Struct, frozen=True):
    """A gap between two measured candidates: the chance of a step in it, the levels on both sides, candidates inside still to be tried."""

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
    """What the trials say; levels, noise and jumps are transformed values."""

    def __init__(self, question: Question, numbers: Numbers, taken: Sequence[Measurement]) -> None:
        self.question, self.numbers = question, numbers
        self.last = question.count - 1
        self.raw: dict[int, list[float]] = {}
        self.exhausted = frozenset(self._exhausted(taken))
        self.inner_error = max((one.error for one in taken if one.value is not None), default=0.0)

    def _exhausted(self, taken: Sequence[Measurement]) -> set[int]:
        """Candidates that are not captured any more, for they gave nothing too often; fills `raw`, candidate → values."""
        tries: dict[int, int] = {}
        gone: set[int] = set()
        for one in taken:
            if one.value is not None:
                self.raw.setdefault(one.place, []).append(one.value)
            elif one.standing == "afresh":
                tries.pop(one.place, None)
                gone.discard(one.place)
            else:
                tries[one.place] = tries.get(one.place, 0) + 1
                if one.standing != "tried" or tries[one.place] > self._patience(one.place):
                    gone.add(one.place)
                if one.standing == "left out":
                    self.raw.pop(one.place, None)
        return gone

    def _patience(self, place: int) -> int:
        """How often a candidate may give nothing and is still tried again; one that gave values before is known to be able to."""
        if not self.question.again:
            return 0
        return self.question.retries + len(self.raw.get(place, ())) + (place in (0, self.last))

    # --- values and noise ---------------------------------------------------------------------------------------------

    @cached_property
    def transform(self) -> Transform:
        """What values are compared by, chosen by what was measured first of both ends."""
        first = [self.raw[place][0] for place in (0, self.last) if place in self.raw]
        return transform_of(first or [next(iter(self.raw.values()), [1.0])[0]])

    @cached_property
    def assumed(self) -> float:
        """The noise between captures that is assumed before any was seen, relative."""
        usual = self.numbers.count_noise if self.question.counts else self.numbers.run_noise
        return usual.value if self.question.noise is None else self.question.noise

    @cached_property
    def prior(self) -> Noise:
        """The noise that is assumed, or what the steps inside the captures show if that is more."""
        return Noise(scale=max(self.assumed, self.inner_error), freedom=self.numbers.noise_weight.value)

    @cached_property
    def values(self) -> dict[int, list[float]]:
        """All values, transformed, by candidate."""
        return {place: [self.transform.to(value) for value in found] for place, found in sorted(self.raw.items())}

    @cached_property
    def flaky(self) -> dict[int, tuple[int, ...]]:
        """Captures that are left out: candidate → places in its list."""
        return flaky(self.values, self.usual, self.numbers.flaky_error.value)

    @cached_property
    def measured(self) -> tuple[Readings, ...]:
        """What was measured, in the order of the candidates, without what is left out."""
        return tuple(
            readings(place, [value for index, value in enumerate(values) if index not in self.flaky.get(place, ())])
            for place, values in self.values.items()
            if place not in self.aside
        )

    @cached_property
    def aside(self) -> frozenset[int]:
        """Candidates of a series whose only reading is far from those around it: one capture can't tell a change from a mishap."""
        if self.question.again:
            return frozenset()
        places, numbers = list(self.values), [found[0] for found in self.values.values()]
        return frozenset(places[index] for index in apart(numbers, self.prior, self.numbers.flaky_error.value))

    @cached_property
    def noise(self) -> Noise:
        """The noise between captures of one candidate; of single readings, around the level that they share with others."""
        if self.question.again or len(self.measured) < 2:
            return pooled_noise(self.measured, self.prior)
        cuts = (-1, *self.outer.best, len(self.measured) - 1)
        return pooled_noise([pooled(self.measured[left + 1 : right + 1]) for left, right in pairwise(cuts)], self.prior)

    @cached_property
    def usual(self) -> Noise:
        """The same as most captures show it."""
        return robust_noise(self.values, self.prior)

    @cached_property
    def doubtful(self) -> tuple[int, ...]:
        """Candidates whose captures contradict each other."""
        return discordant(self.values, self.flaky, self.usual, self.numbers.flaky_error.value)

    def strange(self) -> Iterator[int]:
        """Candidates whose single capture fits neither the measured candidate before nor the one after."""
        for before, one, after in zip(self.measured, self.measured[1:], self.measured[2:], strict=False):
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
        return place not in self.exhausted and self.captures(place) < self.question.repeats

    # --- the ends -----------------------------------------------------------------------------------------------------

    def runs(self) -> tuple[list[int], list[int]]:
        """The candidates that speak for each end: itself; where all have one reading, its neighbours up to the middle too."""
        if self.question.again:
            return [0], [self.last]
        usable = list(self.values)
        most = max(1, min(self.question.repeats, len(usable) // 2))
        return usable[:most], usable[: -most - 1 : -1]

    @cached_property
    def outer(self) -> Posterior:
        """Steps among single readings, with as many of them assumed as none."""
        return change_points(self.measured, self.question.count, self.single)

    @cached_property
    def trend(self) -> Trend:
        """A line through the single readings of three candidates or more, held against their steps."""
        return trend(self.measured, self.question.count, self.single, [self.outer.best])

    @cached_property
    def single(self) -> Beliefs:
        """What is believed of single readings before any: levels as far apart as those measured, and a step as likely as none."""
        means = [one.mean for one in self.measured]
        width = max(self.numbers.level_range.value * (max(means) - min(means)), 8 * self.prior.scale)
        return Beliefs(prior=self.prior, width=width, none=1.0, more=self.numbers.further_step.value, drift=0.0)

    @cached_property
    def sides(self) -> tuple[Readings, Readings]:
        """The levels of the good and of the bad end, by all readings that speak for them."""
        if self.question.again:
            return self.measured[0], self.measured[-1]
        if len(self.measured) > 2 and self.outer.none < self.numbers.ends_error.value:
            return pooled(self.measured[: self.outer.best[0] + 1]), pooled(self.measured[self.outer.best[-1] + 1 :])
        good, bad = ([one for one in self.measured if one.place in run] for run in self.runs())
        return pooled(good), pooled(bad)

    @cached_property
    def difference(self) -> float:
        """Bad less good."""
        return self.sides[1].mean - self.sides[0].mean

    @cached_property
    def allowed(self) -> float:
        """The change that is allowed; nought where none was given."""
        return 0.0 if self.question.limit is None else self.transform.relative(self.question.limit, self.sides[0].mean)

    @cached_property
    def smallest(self) -> float:
        """The smallest step that is searched for."""
        size = abs(self.difference) if self.question.again else max(self.outer.levels) - min(self.outer.levels)
        if self.question.smallest is not None:
            return min(self.transform.relative(self.question.smallest, self.sides[0].mean), 0.9 * size)
        return max(self.numbers.smallest_step.value * size, self.allowed if self.allowed < 0.9 * size or not self.question.again else 0.0)

    # --- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def posterior(self) -> Posterior:
        """Where the metric steps: between ends that differ, or in a series, whatever its ends do."""
        if not self.question.again:
            return self.outer
        numbers = self.numbers
        beliefs = Beliefs(
            prior=self.prior,
            width=max(numbers.level_range.value * abs(self.difference), 8 * self.noise.scale),
            none=numbers.no_step.value,
            more=numbers.further_step.value,
            drift=numbers.drift.value * self.smallest,
        )
        return change_points(self.measured, self.question.count, beliefs)

    @cached_property
    def lone(self) -> frozenset[int]:
        """Candidates whose level no other measured candidate shares."""
        cuts = (-1, *self.posterior.best, len(self.measured) - 1)
        return frozenset(self.measured[right].place for left, right in pairwise(cuts) if right == left + 1)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps between measured candidates."""
        untried = [place for place in range(self.question.count) if place not in self.raw and place not in self.exhausted]
        out = []
        for index, (left, right) in enumerate(pairwise(self.measured)):
            base, new = self._across(index)
            failed = sum(left.place < place < right.place for place in self.exhausted)
            inner = () if failed >= self.numbers.failures.value else tuple(place for place in untried if left.place < place < right.place)
            out.append(Gap(index, left.place, right.place, self.posterior.chances[index], base, new, inner))
        return tuple(out)

    def _across(self, index: int) -> tuple[float, float]:
        """Levels before and after a gap, if there is a step in it."""
        cuts = (-1, *sorted({*self.posterior.best, index}), len(self.measured) - 1)
        place = cuts.index(index)
        before, after = self.measured[cuts[place - 1] + 1 : index + 1], self.measured[index + 1 : cuts[place + 1] + 1]
        return pooled(before).mean, pooled(after).mean

    def sure(self) -> list[Gap]:
        """Gaps that hold a step worth searching, largest step first."""
        least = 1 - self.numbers.step_error.value
        return sorted(
            (gap for gap in self.gaps if gap.chance >= least and gap.jump >= self.smallest), key=lambda gap: (-gap.jump, gap.left)
        )


# --- advice -----------------------------------------------------------------------------------------------------------


class Next(Struct, frozen=True, kw_only=True):
    """Measure this candidate. `expected` and `most` runs are left, this one among them."""

    place: int
    why: Reason
    expected: int
    most: int


class ChangePoint(Struct, frozen=True, kw_only=True):
    """A step after `before`, not later than `place`; `base` and `new` are levels in the metric's unit.

    `likeliest`: where within that it lies most probably, and how probably.
    """

    before: int
    place: int
    base: float
    new: float
    likeliest: tuple[int, float]


class Answer(Struct, frozen=True, kw_only=True):
    """The end of a search. `ends` tells why nothing between was searched; `missing` is an end that gives no value.

    `small`: steps that are too small to be searched for; `lone`: single readings that differ from all others. `creeping`: the line along
    which a series goes; it has no steps then.
    """

    ends: Ends
    found: tuple[ChangePoint, ...] = ()
    small: tuple[ChangePoint, ...] = ()
    lone: tuple[int, ...] = ()
    missing: int | None = None
    creeping: Trend | None = None


def advise(state: State) -> Next | Answer:
    """The next candidate to measure, or the answer. The same trials give the same advice."""
    if not state.question.again:
        return _series(state)
    for rule in (_ends, _contradiction, _open, _halve, _verify, _control):
        advice = rule(state)
        if advice is not None:
            return advice
    return _answer(state)


def _series(state: State) -> Answer:
    """The answer of candidates that were all measured."""
    if len(state.raw) < 2:
        return Answer(ends="open", missing=state.last if 0 in state.raw else 0)
    if (line := gradual(state)) is not None:
        return Answer(ends="differ", creeping=line)
    answer = _answer(state)
    return answer if answer.found else replace(answer, ends=differ(state))


def gradual(state: State) -> Trend | None:
    """The line that says more of a series than steps do, beyond doubt and by more than the noise of a run."""
    numbers = state.numbers
    if len(state.measured) < numbers.gradual_runs.value:
        return None
    line = state.trend
    return line if line.evidence >= numbers.gradual.value and abs(line.last - line.first) > line.noise else None


# --- the ends ---------------------------------------------------------------------------------------------------------


def _ends(state: State) -> Next | Answer | None:
    """What is to be done about the ends; None once they differ."""
    ends = tuple(zip((0, state.last), _NAMES, strict=True))
    for enough in (1, min(2, state.question.repeats)):
        for place, why in ends:
            if state.captures(place) < enough:
                if state.can(place):
                    return _next(state, place, why)
                if not state.captures(place):
                    return Answer(ends="open", missing=place)
    for place, why in ends:
        if place in state.doubtful and state.can(place):
            return _next(state, place, why)
    verdict = differ(state)
    if verdict != "open":
        return None if verdict == "differ" else Answer(ends=verdict)
    fewest = min((end for end in ends if state.can(end[0])), key=lambda end: (state.captures(end[0]), end[0]), default=None)
    return Answer(ends="open") if fewest is None else _next(state, *fewest)


_NAMES: tuple[Reason, Reason] = ("good end", "bad end")


def differ(state: State) -> Ends:
    """Whether the ends differ beyond noise and beyond what is allowed, are alike, or that is open."""
    good, bad = state.sides
    usual = pooled_noise((good, bad), state.prior)
    error = usual.scale * math.sqrt(1 / good.count + 1 / bad.count)
    size = abs(state.difference)
    if size > t_quantile(state.numbers.ends_error.value / 2, usual.freedom) * error and size > state.allowed:
        return "differ"
    tolerance = state.allowed or state.transform.relative(state.numbers.alike.value * state.assumed, good.mean)
    return "alike" if size + t_quantile(0.025, usual.freedom) * error < tolerance else "open"


# --- between ----------------------------------------------------------------------------------------------------------


def _contradiction(state: State) -> Next | None:
    """A candidate whose captures contradict each other, or whose only one fits nothing, is captured again before it counts."""
    place = next((place for place in (*state.doubtful, *state.strange()) if state.can(place)), None)
    return None if place is None else _next(state, place, "again")


def _open(state: State) -> Next | None:
    """Where it is open in which gap a step lies: measure what decides it."""
    allowed = state.numbers.step_error.value
    unclear = [gap for gap in state.gaps if allowed < gap.chance < 1 - allowed and gap.jump >= state.smallest]
    return None if not unclear or _enough(state) else _decide(state, unclear, "again")


def _decide(state: State, unclear: Sequence[Gap], why: Reason) -> Next | None:
    """The candidate with most doubt around it for the captures that it has had."""
    weight: dict[int, float] = {}
    for gap in unclear:
        for place in (gap.left, gap.right):
            weight[place] = weight.get(place, 0.0) + gap.chance * (1 - gap.chance)
    ready = [place for place in weight if state.can(place)]
    return _next(state, max(ready, key=lambda place: (weight[place] / state.captures(place), -place)), why) if ready else None


def _halve(state: State) -> Next | None:
    """The middle of the gap that holds the largest step."""
    gaps = [] if _enough(state) else state.sure()[: 1 if state.question.first else None]
    gap = next((gap for gap in gaps if gap.inner), None)
    return None if gap is None else _next(state, middle(gap, state.exhausted), "halve")


def middle(gap: Gap, failed: frozenset[int]) -> int:
    """The best candidate to cut a gap with: near its middle, but the farther from failed ones, which seldom fail alone, the more failed."""
    near = sorted(place for place in failed if gap.left < place < gap.right)
    width = gap.right - gap.left
    reach = max(1.0, min(1.5 * 2 ** len(near), width / 6))

    def worth(place: int) -> tuple[float, int]:
        distance = min((abs(place - other) for other in near), default=None)
        hope = 1.0 if distance is None else 1 - math.exp(-distance / reach)
        if near and near[0] < place < near[-1]:
            hope *= _ENCLOSED
        return min(place - gap.left, gap.right - place) / width * hope, -place

    return max(gap.inner, key=worth)


def _verify(state: State) -> Next | None:
    """Measure what a step that is to be named still lacks."""
    for gap in state.sure():
        if gap.inner:
            continue
        place = next(_lacking(state, gap), None)
        if place is not None:
            return _next(state, place, "verify")
        if gap.chance < 1 - state.numbers.answer_error.value:
            advice = _decide(state, [other for other in state.gaps if abs(other.index - gap.index) <= 1], "verify")
            if advice is not None:
                return advice
    return None


def _control(state: State) -> Next | None:
    """Look after a step whether it lasts: the search sees the levels at its ends, not a step that was taken back and came again."""
    if state.question.first:
        return None
    named = [gap for gap in state.sure() if not gap.inner]
    for gap in sorted(named, key=lambda gap: gap.left):
        later = [place for place in state.question.reverts if gap.right < place < state.last][:_REVERTS]
        unsure = (one for one in state.measured if one.place > gap.right and one.count < _SURE)
        doubtful = (one.place for one in unsure if abs(one.mean - gap.base) < abs(one.mean - gap.new))  # nearer to the level before
        place = next((place for place in (*doubtful, *(one for one in later if one not in state.raw)) if state.can(place)), None)
        if place is not None:
            return _next(state, place, "control")
        unseen = [other for other in state.gaps[gap.index + 1 :] if len(other.inner) >= _NARROW]
        widest = max(unseen, key=lambda other: (other.right - other.left, -other.left), default=None)
        if widest is not None and widest.right - widest.left > _UNSEEN * state.question.count:
            return _next(state, middle(widest, state.exhausted), "control")
    return None


def _lacking(state: State, gap: Gap) -> Iterator[int]:
    """Candidates to measure before a step is named: its two sides until they have enough captures."""
    for place in (gap.left, gap.right):
        if state.captures(place) < (_SHARED if place in state.lone else 2) and state.can(place):
            yield place


def _enough(state: State) -> bool:
    """True when one step was asked for and is verified."""
    least = 1 - state.numbers.answer_error.value
    return state.question.first and any(
        not gap.inner and gap.chance >= least and next(_lacking(state, gap), None) is None for gap in state.sure()
    )


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(state: State) -> Answer:
    found = tuple(_stretches(state))
    inside = {place for one in found for place in range(one.before, one.place)}
    small = tuple(
        _change_point(state, gap, gap)
        for gap in state.gaps
        if gap.chance >= _LIKELY and gap.jump < state.smallest and gap.left not in inside
    )
    lone = () if state.question.again else tuple(sorted(state.lone | state.aside))
    return Answer(ends="differ", found=tuple(sorted(found, key=lambda one: one.before)), small=small, lone=lone)


def _stretches(state: State) -> Iterator[ChangePoint]:
    """Each step in the narrowest stretch of gaps that surely holds it. A level that one reading alone shows proves nothing."""
    taken: set[int] = set()
    for gap in sorted(state.gaps, key=lambda gap: (-gap.chance, gap.index)):
        if gap.index in taken or gap.jump < state.smallest or gap.chance < _LEAST:
            continue
        low, high, chance = _widened(state, gap.index, taken)
        taken |= set(range(low, high + 1))
        alone = not state.question.again and not state.lone.isdisjoint((state.gaps[low].left, state.gaps[high].right))
        if chance >= 1 - state.numbers.step_error.value and not alone and not _only_a_mishap(state, state.gaps[low], state.gaps[high]):
            yield _change_point(state, state.gaps[low], state.gaps[high])


def _only_a_mishap(state: State, first: Gap, last: Gap) -> bool:
    """Whether one reading alone stands apart in a stretch, and what comes after it differs from what is before it by noise at most."""
    if state.question.again or not any(first.left < place < last.right for place in state.lone):
        return False
    noise = state.noise
    return abs(last.new - first.base) < t_quantile(state.numbers.step_error.value / 2, noise.freedom) * noise.scale


def _widened(state: State, index: int, taken: set[int]) -> tuple[int, int, float]:
    """The gap and as many beside it as make the answer sure: first and last of them, and how sure."""
    low = high = index
    total = state.gaps[index].chance
    if total >= 1 - state.numbers.answer_error.value:
        return low, high, min(total, 1.0)
    while total < 1 - state.numbers.range_error.value:
        beside = [one for one in (low - 1, high + 1) if 0 <= one < len(state.gaps) and one not in taken]
        if not beside:
            break
        best = max(beside, key=lambda one: (state.gaps[one].chance, -one))
        total += state.gaps[best].chance
        low, high = min(low, best), max(high, best)
    return low, high, min(total, 1.0)


def _change_point(state: State, first: Gap, last: Gap) -> ChangePoint:
    back = state.transform.back
    likeliest = max(state.gaps[first.index : last.index + 1], key=lambda gap: (gap.chance, -gap.index))
    return ChangePoint(
        before=first.left,
        place=last.right,
        base=back(first.base),
        new=back(last.new),
        likeliest=(likeliest.right, min(likeliest.chance, 1.0)),
    )


# --- how many runs are left -------------------------------------------------------------------------------------------


def _next(state: State, place: int, why: Reason) -> Next:
    """Advice with an estimate: each halving takes as many captures as a test at this noise needs on average."""
    repeats = state.question.repeats
    done = sum(map(len, state.raw.values()))
    if why in _NAMES:
        halvings, more, each = _halvings(state.last), max(1, min(4, 2 * repeats) - done), 1
    else:
        gaps = state.sure() or sorted(state.gaps, key=lambda gap: -gap.chance)[:1]
        halvings, more = sum(_halvings(gap.right - gap.left) for gap in gaps if gap.inner), 1
        ratio = abs(state.difference) / max(state.posterior.noise, 1e-12)
        each = min(repeats, max(1, math.ceil(2 * math.log(1 / state.numbers.step_error.value) / max(ratio, 0.1) ** 2)))
    expected = more + halvings * each + (0 if why in ("verify", "control") else 2)
    return Next(place=place, why=why, expected=expected, most=max(expected, (halvings + 2) * repeats))


def _halvings(width: int) -> int:
    return math.ceil(math.log2(width)) if width > 1 else 0
