"""The search itself, over synthetic histories.

The right candidate where the step is clear, no wrong one elsewhere, and as few candidates as halving needs.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pytest

from diagnose.bisect.model import Numbers, change_points, load_numbers
from diagnose.bisect.report import taken_back
from diagnose.bisect.search import Answer, ChangePoint, Measurement, Next, Question, State, advise
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.suites import deep_unless

REPEATS = 10
Capture = Callable[[int, int], Measurement]  # place, how many captures of it there were before


@dataclass(frozen=True)
class Ended:
    answer: Answer
    taken: list[Measurement]
    advice: list[Next]

    @property
    def measured(self) -> set[int]:
        return {one.place for one in self.taken if one.value is not None}

    @property
    def controls(self) -> set[int]:
        """Candidates that were captured to see that a step lasts: they narrow nothing down."""
        return {one.place for one in self.advice if one.why == "control"}


def searched(question: Question, capture: Capture, most: int = 400) -> Ended:
    numbers, taken, given = load_numbers(), [], []
    while True:
        advice = advise(State(question, numbers, taken))
        if isinstance(advice, Answer):
            return Ended(advice, taken, given)
        assert 0 <= advice.place < question.count
        assert 1 <= advice.expected <= advice.most
        assert len(taken) < most, "the search does not end"
        given.append(advice)
        taken.append(capture(advice.place, sum(one.place == advice.place for one in taken)))


def noisy(
    levels: Sequence[float], noise: float, seed: int, *, broken: Collection[int] = (), unusable: float = 0.0, slow: float = 0.0
) -> Capture:
    """Captures of candidates at these levels: each is drawn by its place and number alone.

    `slow`: how often one takes 1.3 times as long for no reason.
    """

    def capture(place: int, number: int) -> Measurement:
        chance = random.Random(f"{seed} {place} {number}")
        if place in broken:
            return Measurement(place, None, standing="hopeless")
        if chance.random() < unusable:
            return Measurement(place, None)
        factor = 1.3 if chance.random() < slow else 1.0
        return Measurement(place, levels[place] * factor * math.exp(chance.gauss(0, noise)), noise / 10)

    return capture


@dataclass(frozen=True)
class History:
    levels: list[float]
    culprit: int
    broken: set[int]


def one_step(seed: int, effect: float, broken: float = 0.1) -> History:
    chance = random.Random(seed)
    count = chance.randint(2, 200)
    culprit = chance.randrange(1, count)
    return History(
        levels=[100.0 * (1 + effect * (place >= culprit)) for place in range(count)],
        culprit=culprit,
        broken={place for place in range(1, count - 1) if chance.random() < broken},
    )


def verdict(history: History, answer: Answer) -> str:
    """right, range (the culprit is in it), wrong, or none."""
    if not answer.found:
        return "none"
    if len(answer.found) > 1:
        return "wrong"
    found = answer.found[0]
    if not found.before < history.culprit <= found.place:
        return "wrong"
    inside = range(found.before + 1, found.place)
    return "right" if all(place in history.broken for place in inside) else "range"


# --- one step ---------------------------------------------------------------------------------------------------------

SEEDS = [range(50), pytest.param(range(150), marks=pytest.mark.deep)]


@pytest.mark.parametrize("noise", deep_unless((0.01,), [0.001, 0.01, 0.02, 0.05]))
@pytest.mark.parametrize("ratio", [3, 4, 8])
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_clear_step_is_found(noise: float, ratio: float, seeds: range) -> None:
    """Steps of less than a percent are found where the noise is told: without it, a noise of 1 % is assumed at first."""
    told = noise if noise < 0.01 else None
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = one_step(seed, ratio * noise)
        question = Question(count=len(history.levels), repeats=REPEATS, noise=told)
        seen[verdict(history, searched(question, noisy(history.levels, noise, seed, broken=history.broken)).answer)] += 1
    assert seen["wrong"] <= len(seeds) // 100
    assert seen["right"] >= 0.98 * len(seeds), seen
    assert ratio < 4 or seen["right"] == len(seeds), seen


@pytest.mark.parametrize("noise", deep_unless((0.01,), [0.01, 0.05]))
@pytest.mark.parametrize("seeds", SEEDS)
def test_flaky_captures_do_not_lead_astray(noise: float, seeds: range) -> None:
    """Three of a hundred captures are lost, and three take 1.3 times as long: with a noise of 5 % that looks like the step itself."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = one_step(seed, 6 * noise)
        capture = noisy(history.levels, noise, seed, broken=history.broken, unusable=0.03, slow=0.03)
        seen[verdict(history, searched(Question(count=len(history.levels), repeats=REPEATS), capture).answer)] += 1
    assert seen["wrong"] <= len(seeds) // 100
    assert seen["right"] >= 0.98 * len(seeds), seen


@pytest.mark.parametrize("count", [20, pytest.param(40, marks=pytest.mark.deep)])
@pytest.mark.parametrize("named", [True, False])
def test_a_step_that_was_taken_back_does_not_hide_the_one_that_lasts(named: bool, count: int) -> None:
    """Two steps, the first one taken back between them, on 64 candidates.

    Always found where a candidate says that it reverts, else mostly.
    """
    today = 0
    for seed in range(count):
        chance = random.Random(seed)
        first, back, last = sorted(chance.sample(range(2, 62), 3))
        levels = [105.7 if first <= place < back or place >= last else 100.0 for place in range(64)]
        question = Question(count=64, repeats=REPEATS, reverts=(back,) if named else ())
        found = searched(question, noisy(levels, 0.01, seed)).answer.found
        assert all(any(one.before < place <= one.place for place in (first, back, last)) for one in found)
        today += any(one.before < last <= one.place for one in found)
        undone = taken_back(found)
        assert len(undone) == (len(found) == 3)
    assert today == count if named else today >= 0.55 * count


@for_each("left, undone", (100.0, True), (101.0, True), (101.5, False), (103.0, False))
def test_a_step_of_which_much_is_left_is_not_said_to_be_taken_back(left: float, undone: bool) -> None:
    up = ChangePoint(before=7, place=8, base=100.0, new=105.0, likeliest=(8, 1.0))
    back = ChangePoint(before=15, place=16, base=105.0, new=left, likeliest=(16, 1.0))
    assert taken_back([up, back]) == ({0: back} if undone else {})


@pytest.mark.parametrize("ratio", deep_unless((0.0, 1.0), [0.0, 0.5, 1.0, 2.0]))
def test_an_unclear_step_is_not_guessed(ratio: float) -> None:
    """The ends may differ by chance as often as `ends_error` allows at each look, an answer may be wrong as often as `answer_error`
    allows.
    """
    seen: Counter[str] = Counter()
    for seed in range(400):
        history = one_step(seed, ratio * 0.02)
        found = searched(Question(count=len(history.levels), repeats=6), noisy(history.levels, 0.02, seed, broken=history.broken))
        named = [one for one in found.answer.found if one.place == one.before + 1 and len(history.levels) > 4]
        if named and not (ratio and any(one.before < history.culprit <= one.place for one in named)):
            seen["wrong"] += 1
    assert seen["wrong"] <= 400 * 0.01, seen


def test_without_a_step_that_counts_nothing_between_is_run_and_ends_are_alike() -> None:
    for seed in range(60):
        found = searched(Question(count=100, repeats=REPEATS), noisy([100.0] * 100, 0.004, seed))
        assert found.answer.ends == "alike"
        assert found.measured == {0, 99}
        assert len(found.taken) <= 2 * REPEATS
    levels = [100.0] * 50 + [102.0] * 50
    found = searched(Question(count=100, repeats=REPEATS, limit=0.05), noisy(levels, 0.002, 1))
    assert found.answer.ends == "alike"
    assert found.measured == {0, 99}
    assert searched(Question(count=100, repeats=REPEATS, limit=0.01), noisy(levels, 0.002, 1)).answer.found[0].place == 50


def test_a_change_for_the_better_is_found_too() -> None:
    levels = [100.0] * 33 + [70.0] * 67
    found = searched(Question(count=100, repeats=REPEATS), noisy(levels, 0.02, 3)).answer.found
    assert [(one.before, one.place) for one in found] == [(32, 33)]
    assert found[0].new < found[0].base


# --- effort -----------------------------------------------------------------------------------------------------------


@for_each("count", 2, 3, 4, 5, 16, 17, 100, 200, 1000)
def test_halving_takes_no_more_candidates_than_it_needs(count: int) -> None:
    for culprit in {1, count // 3 or 1, count // 2, count - 1}:
        levels = [100.0 + 30 * (place >= culprit) for place in range(count)]
        found = searched(Question(count=count, repeats=REPEATS), noisy(levels, 0.01, culprit))
        assert [(one.before, one.place) for one in found.answer.found] == [(culprit - 1, culprit)]
        assert len(found.measured - found.controls) <= 2 + math.ceil(math.log2(count))
        assert len(found.controls) <= 2
        assert (
            len(found.taken) <= len(found.measured) + 4 + 4
        )  # both ends and both sides of the step once more, four times where they stand alone


@pytest.mark.parametrize("count", [50, pytest.param(100, marks=pytest.mark.deep)])
def test_the_number_of_runs_stays_within_halving_and_repeats(count: int) -> None:
    """With an effect of three times the noise each decision takes a few captures; nothing is captured more often than allowed."""
    runs = []
    for seed in range(count):
        history = one_step(seed, 0.06, broken=0.05)
        found = searched(Question(count=len(history.levels), repeats=REPEATS), noisy(history.levels, 0.02, seed, broken=history.broken))
        captures = Counter(one.place for one in found.taken if one.value is not None)
        assert max(captures.values()) <= REPEATS
        skipped = len({one.place for one in found.taken if one.value is None})
        assert len(captures.keys() - found.controls) <= 2 + math.ceil(math.log2(len(history.levels))) + skipped + 4
        runs.append(len(found.taken))
    assert sum(runs) / len(runs) < 30


def test_what_is_left_is_estimated() -> None:
    levels = [100.0] * 90 + [120.0] * 110
    found = searched(Question(count=200, repeats=REPEATS), noisy(levels, 0.01, 5))
    assert abs(found.advice[0].expected - len(found.taken)) <= 4
    assert found.advice[-1].expected == 1
    for done, advice in enumerate(found.advice):
        assert advice.most >= len(found.taken) - done


# --- candidates that give no value ------------------------------------------------------------------------------------


def test_broken_candidates_are_named_with_the_culprit_and_not_tried_one_by_one() -> None:
    levels = [100.0] * 50 + [130.0] * 50
    found = searched(Question(count=100, repeats=REPEATS), noisy(levels, 0.01, 1, broken=range(45, 55))).answer.found
    assert [(one.before, one.place) for one in found] == [(44, 55)]
    levels = [100.0] * 150 + [130.0] * 50
    found = searched(Question(count=200, repeats=REPEATS), noisy(levels, 0.01, 1, broken=range(60, 140)))
    assert found.answer.found[0].place == 150
    assert sum(one.value is None for one in found.taken) <= 8


def test_an_end_without_a_value_ends_the_search() -> None:
    for broken in (0, 9):
        found = searched(Question(count=10, repeats=REPEATS), noisy([100.0] * 10, 0.01, 1, broken={broken}))
        assert (found.answer.ends, found.answer.missing) == ("open", broken)
        assert len(found.taken) <= 2


def test_an_unusable_capture_is_tried_again_a_broken_build_is_not() -> None:
    tries: Counter[int] = Counter()

    def capture(place: int, number: int) -> Measurement:
        tries[place] += 1
        if place == 5:
            return Measurement(place, None)
        if place in {4, 6}:
            return Measurement(place, None, standing="hopeless")
        return Measurement(place, 100.0 + 20 * (place >= 7) + number * 0.01)

    found = searched(Question(count=11, repeats=4), capture)
    assert tries[5] == 2
    assert tries[4] <= 1
    assert tries[6] <= 1
    assert found.answer.found[0].place == 7


# --- several steps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(14), pytest.param(range(14, 40), marks=pytest.mark.deep)])
def test_several_steps_are_all_found(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        count = chance.randint(20, 200)
        places = sorted(chance.sample(range(1, count), 3))
        levels = [100 * 1.15 ** sum(place >= one for one in places) for place in range(count)]
        found = searched(Question(count=count, repeats=REPEATS), noisy(levels, 0.01, seed))
        assert [one.place for one in found.answer.found] == places
        assert all(one.place == one.before + 1 for one in found.answer.found)


def test_the_first_step_is_enough_where_that_was_asked_for() -> None:
    levels = [100.0] * 30 + [110.0] * 40 + [150.0] * 30
    whole = searched(Question(count=100, repeats=REPEATS), noisy(levels, 0.005, 2))
    first = searched(Question(count=100, repeats=REPEATS, first=True), noisy(levels, 0.005, 2))
    assert [one.place for one in whole.answer.found] == [30, 70]
    assert len(first.taken) < len(whole.taken)
    assert any((one.before, one.place) == (69, 70) for one in first.answer.found)


def test_a_stretch_that_is_slower_in_between_is_seen_where_it_is_met() -> None:
    levels = [100.0] * 40 + [160.0] * 30 + [100.0] * 10 + [130.0] * 20
    found = searched(Question(count=100, repeats=REPEATS), noisy(levels, 0.01, 4)).answer.found
    assert [one.place for one in found] == [40, 70, 80]
    assert found[1].new < found[1].base


def test_creeping_is_no_step() -> None:
    levels = [100 + 0.3 * place for place in range(100)]
    found = searched(Question(count=100, repeats=6), noisy(levels, 0.003, 4))
    assert not any(one.place == one.before + 1 for one in found.answer.found)


def test_a_smaller_step_is_mentioned() -> None:
    levels = [100.0] * 25 + [106.0] * 25 + [150.0] * 50
    found = searched(Question(count=100, repeats=REPEATS), noisy(levels, 0.0005, 4)).answer
    assert [one.place for one in found.found] == [50]
    assert any(one.before < 25 <= one.place for one in found.small)
    both = searched(Question(count=100, repeats=REPEATS, smallest=0.02), noisy(levels, 0.0005, 4)).answer
    assert [one.place for one in both.found] == [25, 50]


# --- series that were measured as a whole -------------------------------------------------------------------------------


def series(levels: Sequence[float], capture: Capture, *, repeats: int = REPEATS, limit: float | None = None) -> Answer:
    question = Question(count=len(levels), repeats=repeats, again=False, limit=limit)
    advice = advise(State(question, load_numbers(), [capture(place, 0) for place in range(len(levels))]))
    assert isinstance(advice, Answer)
    return advice


@pytest.mark.parametrize("seeds", [range(24), pytest.param(range(24, 60), marks=pytest.mark.deep)])
def test_the_step_of_a_series_is_found(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = one_step(seed + 1000, 0.1)
        if 3 <= history.culprit <= len(history.levels) - 3:
            broken = history.broken - {history.culprit - 1, history.culprit}
            seen[verdict(history, series(history.levels, noisy(history.levels, 0.008, seed, broken=broken)))] += 1
    assert seen["wrong"] == 0
    assert seen["right"] == seen.total(), seen


def test_one_slow_capture_in_a_short_series_is_no_step() -> None:
    """What is after it differs from what is before it by noise alone."""
    for seed in range(60):
        slow = 2 + seed % 6
        usual = noisy([100.0] * 10, 0.01, seed)

        def capture(place: int, number: int, slow: int = slow, usual: Capture = usual) -> Measurement:
            one = usual(place, number)
            return replace(one, value=one.value * 1.12) if place == slow and one.value is not None else one

        found = series([100.0] * 10, capture)
        assert not found.found or (found.found[0].before, found.found[0].place) == (0, 9), seed


def test_a_step_is_found_beside_slow_captures_which_are_left_out() -> None:
    levels = [100.0] * 12 + [105.0] * 12
    for seed in range(20):
        taken = [noisy(levels, 0.006, seed)(place, 0) for place in range(24)]
        slowed = [replace(one, value=one.value * 1.15) if one.place in (4, 15) and one.value is not None else one for one in taken]
        state = State(Question(count=24, repeats=REPEATS, again=False), load_numbers(), slowed)
        assert state.aside == {4, 15}
        found = advise(state)
        assert isinstance(found, Answer)
        assert [one.before < 12 <= one.place for one in found.found] == [True], seed
    nights = [noisy([100.0] * 40, 0.01, seed)(place, 0) for seed in range(50) for place in range(40)]
    rows = [nights[first : first + 40] for first in range(0, len(nights), 40)]
    states = [State(Question(count=40, repeats=REPEATS, again=False), load_numbers(), row) for row in rows]
    assert sum(len(state.aside) for state in states) <= 2, "plain scatter leaves nothing out"


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 20), marks=pytest.mark.deep)])
def test_all_steps_of_a_series_are_found(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        places = sorted(chance.sample(range(5, 100, 6), 3))
        levels = [100 * 1.15 ** sum(place >= one for one in places) for place in range(100)]
        found = series(levels, noisy(levels, 0.01, seed)).found
        assert [(one.before, one.place) for one in found] == [(place - 1, place) for place in places]


def test_a_series_without_a_step_too_short_or_with_one_odd_trace_has_none() -> None:
    for seed in range(40):
        answer = series([100.0] * 60, noisy([100.0] * 60, 0.02, seed))
        assert answer.found == ()
        assert answer.ends != "differ"
    levels = [100.0] * 30 + [102.0] * 30
    assert series(levels, noisy(levels, 0.001, 1), limit=0.05).ends == "alike"
    for broken, missing in (({0, 1, 2}, 0), ({1, 2}, 2), ({0, 2}, 0)):
        answer = series([100.0] * 3, noisy([100.0] * 3, 0.01, 1, broken=broken))
        assert (answer.ends, answer.missing, answer.found) == ("open", missing, ())
    levels = [100.0] * 60
    levels[-1] = 140.0
    answer = series(levels, noisy(levels, 0.005, 1))
    assert answer.found == ()


def test_before_measuring_a_step_is_as_likely_as_none() -> None:
    """The odds after measuring are what the readings say alone: those of any other odds before, divided by these."""
    capture = noisy([100.0] * 4 + [102.0] * 4, 0.01, 5)
    question = Question(count=8, repeats=REPEATS, again=False)
    state = State(question, load_numbers(), [capture(place, 0) for place in range(8)])
    odds = state.outer.none / (1 - state.outer.none)
    hundredfold = change_points(state.measured, 8, replace(state.single, none=100.0)).none
    assert 0.01 < odds < 100
    assert hundredfold / (1 - hundredfold) / 100 == pytest.approx(odds, rel=1e-3)


def test_a_series_that_creeps_has_no_step() -> None:
    for seed in range(20):
        levels = [100 + 0.4 * place for place in range(20)]
        answer = series(levels, noisy(levels, 0.006, seed))
        assert answer.creeping is not None
        assert (answer.ends, answer.found) == ("differ", ())
        assert answer.creeping.last > answer.creeping.first


def test_one_odd_trace_of_a_series_is_told_whatever_its_ends_do() -> None:
    levels = [100.0] * 14
    levels[6] = 125.0
    answer = series(levels, noisy(levels, 0.006, 1))
    assert (answer.ends, answer.found, answer.lone) == ("alike", (), (6,))


@pytest.mark.parametrize("count", [20, pytest.param(40, marks=pytest.mark.deep)])
def test_a_step_that_noise_hides_from_single_traces_is_found_by_the_series(count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        levels = [100.0] * 40 + [110.0] * 60
        seen[verdict(History(levels, 40, set()), series(levels, noisy(levels, 0.02, seed)))] += 1
    assert seen["wrong"] == 0
    assert seen["right"] >= 0.75 * count, seen


# --- what a search is -------------------------------------------------------------------------------------------------


def test_the_same_trials_give_the_same_advice() -> None:
    history = one_step(7, 0.08)
    question = Question(count=len(history.levels), repeats=REPEATS)
    found = searched(question, noisy(history.levels, 0.02, 7, broken=history.broken))
    for length in range(len(found.taken)):
        assert advise(State(question, load_numbers(), found.taken[:length])) == found.advice[length]


def test_counts_that_repeat_exactly_and_metrics_that_begin_at_nought_are_searched() -> None:
    levels = [5376.0] * 70 + [5400.0] * 30
    found = searched(Question(count=100, repeats=REPEATS, counts=True), lambda place, _: Measurement(place, levels[place]))
    assert [one.place for one in found.answer.found] == [70]
    assert found.answer.found[0].base == pytest.approx(5376)
    levels = [0.0] * 20 + [5e6] * 30
    found = searched(Question(count=50, repeats=REPEATS), noisy(levels, 0.05, 1)).answer.found
    assert [one.place for one in found] == [20]
    assert found[0].base == pytest.approx(0, abs=1)


def test_flaky_captures_are_known() -> None:
    taken = [Measurement(0, value) for value in (100.0, 101.0, 150.0, 99.5)] + [Measurement(9, value) for value in (120.0, 121.0)]
    state = State(Question(count=10, repeats=6), load_numbers(), taken)
    assert state.flaky == {0: (2,)}
    assert state.measured[0].count == 3


def test_the_numbers_have_sources() -> None:
    numbers = load_numbers()
    for name in Numbers.__struct_fields__:
        one = getattr(numbers, name)
        assert one.source
        assert one.meaning.endswith(".")
