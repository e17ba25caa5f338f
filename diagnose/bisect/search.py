"""Which candidate to measure next, or what the answer is: a pure function of what was measured so far.

Both ends are measured first and must differ. Then gaps that surely hold a step are halved; where readings leave it open on which side of a candidate the step lies, the candidate is captured again (or, where
that can't be done, its neighbours are read). An answer is verified before it is given: both sides of the step were captured twice, and it is surer than any decision on the way had to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from diagnose.bisect.numbers import Numbers
from diagnose.bisect.spread import noise
from diagnose.bisect.state import Gap, Question, State, Taken
from diagnose.model.statistics import t_quantile

Reason = Literal["good end", "bad end", "halve", "again", "verify"]
Ends = Literal["differ", "alike", "open"]
_SHARED = 4  # captures of a candidate that no other one shares its level with, before it is named
_ENCLOSED = 0.2  # hope for a candidate between two that failed, against one beside them
_LIKELY = 0.9  # a step that is too small to be searched for is mentioned from here on
_LEAST = 0.05  # a gap less likely than this begins no answer


@dataclass(frozen=True, kw_only=True)
class Next:
    """Measure this candidate. `expected` and `most` runs are left, this one among them."""

    place: int
    why: Reason
    expected: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """The metric stepped after `before` and not later than `place`. `base`, `new`: levels on both sides, in the metric's own unit. `chance`: probability that it is so."""

    before: int
    place: int
    base: float
    new: float
    chance: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The end of a search. `ends` tells why nothing between was searched; `missing` is an end that gives no value. `small`: steps that are too small to be searched for; `lone`: single readings that differ from all others."""

    ends: Ends
    found: tuple[Found, ...] = ()
    small: tuple[Found, ...] = ()
    lone: tuple[int, ...] = ()
    missing: int | None = None


def advise(question: Question, numbers: Numbers, taken: Sequence[Taken]) -> Next | Answer:
    """The next candidate to measure, or the answer. The same trials give the same advice."""
    return advice_of(State(question, numbers, taken))


def advice_of(state: State) -> Next | Answer:
    """The same, of a state."""
    advice = _ends(state)
    if advice is not None:
        return advice
    for rule in (_contradiction, _open, _halve, _verify):
        following = rule(state)
        if following is not None:
            return following
    return _answer(state)


# --- the ends ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _End:
    """One end: how many values speak for it, and the candidate that would give the next one."""

    place: int
    why: Reason
    measured: int
    next: int | None


def _ends(state: State) -> Next | Answer | None:
    """What is to be done about the ends; None once they differ."""
    good, bad = (
        _End(place, why, sum(state.captures(one) for one in run), next((one for one in run if state.can(one)), None))
        for place, why, run in zip((0, state.last), _NAMES, state.runs(), strict=True)
    )
    for enough in (1, min(2, state.question.repeats)):
        for end in (good, bad):
            if end.measured < enough:
                if end.next is None and end.measured == 0:
                    return Answer(ends="open", missing=end.place)
                if end.next is not None:
                    return _next(state, end.next, end.why)
    if state.question.again:
        for end in (good, bad):
            if end.place in state.doubtful and state.can(end.place):
                return _next(state, end.place, end.why)
    verdict = differ(state)
    if verdict != "open":
        return None if verdict == "differ" else Answer(ends=verdict)
    fewest = min((end for end in (good, bad) if end.next is not None), key=lambda end: (end.measured, end.place), default=None)
    return Answer(ends="open") if fewest is None or fewest.next is None else _next(state, fewest.next, fewest.why)


_NAMES: tuple[Reason, Reason] = ("good end", "bad end")


def differ(state: State) -> Ends:
    """Whether the ends differ beyond noise and beyond what is allowed, are alike, or that is open."""
    good, bad = state.sides
    usual = noise((good, bad), state.prior)
    error = usual.scale * math.sqrt(1 / good.count + 1 / bad.count)
    size = abs(state.difference)
    if size > t_quantile(state.numbers.ends_error.value / 2, usual.freedom) * error and size > state.allowed:
        return "differ"
    tolerance = state.allowed or state.scale.relative(state.numbers.alike.value * state.assumed, good.mean)
    return "alike" if size + t_quantile(0.025, usual.freedom) * error < tolerance else "open"


# --- between ----------------------------------------------------------------------------------------------------------


def _contradiction(state: State) -> Next | None:
    """A candidate whose captures contradict each other, or whose only one fits nothing, is captured again before it counts."""
    if not state.question.again:
        return None
    place = next((place for place in (*state.doubtful, *state.strange()) if state.can(place)), None)
    return None if place is None else _next(state, place, "again")


def _open(state: State) -> Next | None:
    """Where it is open in which gap a step lies: measure what decides it."""
    allowed = state.numbers.step_error.value
    unclear = [gap for gap in state.gaps if allowed < gap.chance < 1 - allowed and gap.jump >= state.smallest]
    return None if not unclear or _enough(state) else _decide(state, unclear, "again")


def _decide(state: State, unclear: Sequence[Gap], why: Reason) -> Next | None:
    """The candidate with most doubt around it for the captures that it has had; of single readings an unread one."""
    if not state.question.again:
        return _unread(state, unclear, why)
    weight: dict[int, float] = {}
    for gap in unclear:
        for place in (gap.left, gap.right):
            weight[place] = weight.get(place, 0.0) + gap.chance * (1 - gap.chance)
    ready = [place for place in weight if state.can(place)]
    return _next(state, max(ready, key=lambda place: (weight[place] / state.captures(place), -place)), why) if ready else None


def _unread(state: State, unclear: Sequence[Gap], why: Reason) -> Next | None:
    """The unread candidate that has half of the doubt on each side; where none is left inside, the nearest beside it."""
    total, before = sum(gap.chance for gap in unclear), 0.0
    shares: dict[int, float] = {}
    for gap in unclear:
        for place in gap.inner:
            shares[place] = (before + gap.chance * (place - gap.left) / (gap.right - gap.left)) / total
        before += gap.chance
    if shares:
        return _next(state, min(shares, key=lambda place: (abs(shares[place] - 0.5), place)), why)
    likeliest = max(unclear, key=lambda gap: (gap.chance, -gap.index))
    beside = next(_beside(state, likeliest, state.question.repeats), None)
    return None if beside is None else _next(state, beside, why)


def _beside(state: State, gap: Gap, reach: int) -> Iterator[int]:
    """Unread candidates near a gap, nearest first."""
    for distance in range(1, reach + 1):
        for place in (gap.left - distance, gap.right + distance):
            if 0 <= place <= state.last and state.can(place):
                yield place


def _halve(state: State) -> Next | None:
    """The middle of the gap that holds the largest step."""
    gaps = [] if _enough(state) else state.sure()[: 1 if state.question.first else None]
    gap = next((gap for gap in gaps if gap.inner), None)
    return None if gap is None else _next(state, middle(gap, state.exhausted), "halve")


def middle(gap: Gap, failed: frozenset[int]) -> int:
    """The best candidate to cut a gap with: near its middle, but away from those that failed, which seldom fail alone; the farther the more of them failed."""
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


def _lacking(state: State, gap: Gap) -> Iterator[int]:
    """Candidates to measure before a step is named: its two sides until they have enough captures, of single readings their neighbours, and more of them while it is not sure."""
    if state.question.again:
        for place in (gap.left, gap.right):
            if state.captures(place) < (_SHARED if place in state.lone else 2) and state.can(place):
                yield place
        return
    yield from _beside(state, gap, 1 if gap.chance >= 1 - state.numbers.answer_error.value else state.question.repeats)


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
        _found(state, gap, gap, gap.chance)
        for gap in state.gaps
        if gap.chance >= _LIKELY and gap.jump < state.smallest and gap.left not in inside
    )
    lone = () if state.question.again else tuple(sorted(state.lone))
    return Answer(ends="differ", found=tuple(sorted(found, key=lambda one: one.before)), small=small, lone=lone)


def _stretches(state: State) -> Iterator[Found]:
    """Each step in the narrowest stretch that holds it for sure: one gap, or several where that stayed open. A level that one reading alone shows proves nothing."""
    taken: set[int] = set()
    for gap in sorted(state.gaps, key=lambda gap: (-gap.chance, gap.index)):
        if gap.index in taken or gap.jump < state.smallest or gap.chance < _LEAST:
            continue
        low, high, chance = _widened(state, gap.index, taken)
        taken |= set(range(low, high + 1))
        alone = not state.question.again and not state.lone.isdisjoint((state.gaps[low].left, state.gaps[high].right))
        if chance >= 1 - state.numbers.step_error.value and not alone:
            yield _found(state, state.gaps[low], state.gaps[high], chance)


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


def _found(state: State, first: Gap, last: Gap, chance: float) -> Found:
    back = state.scale.back
    return Found(before=first.left, place=last.right, base=back(first.base), new=back(last.new), chance=chance)


# --- how many runs are left -------------------------------------------------------------------------------------------


def _next(state: State, place: int, why: Reason) -> Next:
    """Advice with an estimate: each halving takes as many captures as a test at this noise needs on average."""
    repeats = state.question.repeats if state.question.again else 1
    done = sum(map(len, state.raw.values()))
    if why in _NAMES:
        halvings, more, each = _halvings(state.last), max(1, min(4, 2 * repeats) - done), 1
    else:
        gaps = state.sure() or sorted(state.gaps, key=lambda gap: -gap.chance)[:1]
        halvings, more = sum(_halvings(gap.right - gap.left) for gap in gaps if gap.inner), 1
        ratio = abs(state.difference) / max(state.steps.noise, 1e-12)
        each = min(repeats, max(1, math.ceil(2 * math.log(1 / state.numbers.step_error.value) / max(ratio, 0.1) ** 2)))
    expected = more + halvings * each + (0 if why == "verify" else 2)
    return Next(place=place, why=why, expected=expected, most=max(expected, (halvings + 2) * repeats))


def _halvings(width: int) -> int:
    return math.ceil(math.log2(width)) if width > 1 else 0
