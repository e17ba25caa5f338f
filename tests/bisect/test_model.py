"""The small statistics of a search against published tables and against slow sums."""

import math
import random
from itertools import combinations, pairwise

import pytest

from diagnose.bisect.model import (
    Beliefs,
    Noise,
    Readings,
    change_points,
    discordant,
    flaky,
    load_numbers,
    pooled,
    pooled_noise,
    readings,
    robust_noise,
)
from diagnose.model.statistics import transform_of
from tests.builders.records import replace


def test_noise_is_pooled_with_every_deviation_and_outweighs_what_was_assumed() -> None:
    chance = random.Random(1)
    found = [readings(place, [chance.gauss(place, 0.03) for _ in range(6)]) for place in range(20)]
    seen = pooled_noise(found, Noise(scale=0.01, freedom=2))
    assert seen.freedom == 2 + 100
    assert seen.scale == pytest.approx(0.03, rel=0.15)
    assert pooled_noise([], Noise(scale=0.01, freedom=2)).scale == pytest.approx(0.01)
    values = [1.0, 2.0, 4.0, 8.0, 8.5]
    whole = readings(0, values)
    assert pooled([readings(0, values[:2]), readings(1, values[2:])]) == Readings(
        0, 5, pytest.approx(whole.mean), pytest.approx(whole.squares)
    )


def test_a_few_strange_captures_do_not_raise_the_usual_noise() -> None:
    chance = random.Random(3)
    values = {place: [chance.gauss(0, 0.01) for _ in range(5)] for place in range(8)}
    steady = robust_noise(values, Noise(scale=0.01, freedom=2)).scale
    values[3][0] += 0.5
    values[5][1] += 0.5
    usual = robust_noise(values, Noise(scale=0.01, freedom=2))
    assert usual.scale < 1.5 * steady
    assert flaky(values, usual, 0.0005) == {3: (0,), 5: (1,)}


def test_noise_alone_seldom_looks_flaky_but_captures_that_contradict_each_other_are_doubtful() -> None:
    chance = random.Random(4)
    left_out = 0
    for _ in range(300):
        values = {place: [chance.gauss(0, 0.02) for _ in range(4)] for place in range(6)}
        left_out += sum(map(len, flaky(values, robust_noise(values, Noise(scale=0.01, freedom=2)), 0.0005).values()))
    assert left_out <= 300 * 24 * 0.002
    values = {0: [0.0, 0.01, -0.01], 1: [0.0, 0.4], 2: [0.2, 0.21]}
    usual = robust_noise(values, Noise(scale=0.01, freedom=2))
    assert discordant(values, flaky(values, usual, 0.0005), usual, 0.0005) == (1,)


# --- change points ----------------------------------------------------------------------------------------------------


def slow_weight(found: list[Readings], count: int, beliefs: Beliefs, chosen: tuple[int, ...]) -> float:
    """The weight of a set of steps by its definition, without running sums."""
    cuts = (0, *(gap + 1 for gap in chosen), len(found))
    stretches = [found[left:right] for left, right in pairwise(cuts)]
    squares = sum(pooled(stretch).squares for stretch in stretches)
    total = beliefs.prior.freedom * beliefs.prior.scale**2 + len(found) * beliefs.drift**2 + squares
    captures = sum(one.count for one in found)
    freedom = beliefs.prior.freedom + captures - len(stretches)
    weight = math.log(beliefs.none) if not chosen else (len(chosen) - 1) * math.log(beliefs.more)
    for gap in chosen:
        weight += math.log((found[gap + 1].place - found[gap].place) / (count - 1))
    for stretch in stretches:
        weight += -math.log(beliefs.width) + math.log(2 * math.pi) / 2 - math.log(sum(one.count for one in stretch)) / 2
    return weight + math.lgamma(freedom / 2) - freedom / 2 * math.log(total / 2)


def test_a_further_step_has_to_be_thirty_times_as_likely_by_the_readings_as_none() -> None:
    """The number of trace_rules/bisection.yaml at work: between evidence of 28 and of 40 for a second step it begins to be believed."""
    beliefs = Beliefs(prior=Noise(scale=0.05, freedom=2), width=4.0, none=0.05, more=1.0, drift=0.0)

    def three_levels(middle: float) -> list[Readings]:
        return [readings(place, [level - 0.05, level, level + 0.05]) for place, level in ((0, 0.0), (50, middle), (100, 1.0))]

    def evidence(middle: float) -> float:
        one, two = (slow_weight(three_levels(middle), 101, beliefs, chosen) for chosen in ((1,), (0, 1)))
        return math.exp(two - one)

    def level(wanted: float) -> float:
        low, high = 0.0, 0.5
        for _ in range(40):
            low, high = (low, (low + high) / 2) if evidence((low + high) / 2) > wanted else ((low + high) / 2, high)
        return high

    known = replace(beliefs, more=load_numbers().further_step.value)
    found = {wanted: change_points(three_levels(level(wanted)), 101, known).best for wanted in (28, 40)}
    assert found == {28: (1,), 40: (0, 1)}


def test_chances_are_sums_over_all_sets_of_steps() -> None:
    chance = random.Random(5)
    for _ in range(25):
        size = chance.randint(2, 7)
        places = sorted(chance.sample(range(40), size))
        found = [readings(place, [chance.gauss(chance.choice([0, 0, 1]), 0.3) for _ in range(chance.randint(1, 4))]) for place in places]
        beliefs = Beliefs(prior=Noise(scale=0.1, freedom=2), width=4.0, none=0.05, more=0.03, drift=0.01)
        weights = {
            chosen: slow_weight(found, 40, beliefs, chosen) for length in range(size) for chosen in combinations(range(size - 1), length)
        }
        total = math.fsum(math.exp(weight) for weight in weights.values())
        wanted = [math.fsum(math.exp(weight) for chosen, weight in weights.items() if gap in chosen) / total for gap in range(size - 1)]
        given = change_points(found, 40, beliefs)
        assert given.chances == pytest.approx(wanted, abs=2e-3)
        assert given.none == pytest.approx(math.exp(weights[()]) / total, abs=2e-3)
        assert weights[given.best] == pytest.approx(max(weights.values()))


def test_levels_and_noise_are_those_of_the_likeliest_steps() -> None:
    found = [readings(place, [value, value + 0.02]) for place, value in ((0, 1.0), (4, 1.0), (5, 2.0), (9, 2.0))]
    given = change_points(found, 10, Beliefs(prior=Noise(scale=0.01, freedom=2), width=4, none=0.05, more=0.03, drift=0.0))
    assert given.best == (1,)
    assert given.levels == pytest.approx((1.01, 2.01))
    assert [given.level_of(index) for index in range(4)] == pytest.approx([1.01, 1.01, 2.01, 2.01])
    assert 0.005 < given.noise < 0.03


# --- the transform -----------------------------------------------------------------------------------------------------


def test_times_are_compared_by_logarithms_and_metrics_near_nought_by_shares() -> None:
    times = transform_of([100.0, 120.0])
    assert times.to(110.0) - times.to(100.0) == pytest.approx(math.log(1.1))
    assert times.back(times.to(110.0)) == pytest.approx(110.0)
    assert times.relative(0.03, times.to(100.0)) == pytest.approx(math.log(1.03))
    counts = transform_of([0.0, 50.0])
    assert not counts.logarithmic
    assert counts.to(25.0) == 0.5
    assert counts.back(0.5) == 25.0
    assert transform_of([0.0, 0.0]).to(0.0) == 0.0
    assert not transform_of([-1.0, 3.0]).logarithmic
