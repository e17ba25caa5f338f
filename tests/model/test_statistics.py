"""Statistics against scipy, against enumeration, and against their definitions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from diagnose.model import statistics
from diagnose.model.statistics import (
    MAD,
    MEDIAN_ERROR,
    RANK_TEST_EXACT_UP_TO,
    bootstrap_intervals,
    draws,
    incomplete_beta,
    integer_median,
    inversions_allowed,
    median_with_error,
    normal_quantile,
    pooled_spread,
    rank_test,
    shift_shown,
    smallest_p,
    t_quantile,
    t_tail,
)

VALUES = st.integers(1, 12).map(float)
STEPS = st.floats(1e6, 1e9)
FREEDOMS = (0.5, 1, 1.37, 2, 3, 5, 8.25, 12, 30, 100, 1000)


def noisy(chance: random.Random, steps: int, level: float, share: float) -> list[float]:
    return [level * (1 + chance.gauss(0, share)) for _ in range(steps)]


# --- medians and spread -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**15), 10**15), max_size=9))
def test_a_whole_median_is_rounded_down(values: list[int]) -> None:
    assert integer_median(values) == (math.floor(Fraction(median(map(Fraction, values)))) if values else 0)


def test_the_constants_are_those_of_a_normal_distribution() -> None:
    assert pytest.approx(1 / stats.norm.ppf(0.75), abs=1e-4) == MAD
    assert pytest.approx(math.sqrt(math.pi / 2), abs=1e-4) == MEDIAN_ERROR


def test_the_error_of_a_median_is_that_of_repeated_samples() -> None:
    chance = random.Random(2)
    samples = [noisy(chance, 60, 100, 0.05) for _ in range(400)]
    medians = [median(sample) for sample in samples]
    told = [median_with_error(sample) for sample in samples]
    assert [middle for middle, _ in told] == medians
    assert median(error for _, error in told) == pytest.approx(float(stats.tstd(medians)) / 100, rel=0.15)
    assert median_with_error([3.0, 5.0]) == (4.0, 0.0)
    assert median_with_error([-1.0, 0.0, 1.0]) == (0.0, 0.0)
    sample = [10.0, 11, 14, 9, 10.5]
    assert median_with_error(sample)[1] == pytest.approx(
        MEDIAN_ERROR * MAD * float(stats.median_abs_deviation(sample)) / math.sqrt(5) / 10.5
    )


def test_the_spread_is_robust_and_pooled_within_the_sides() -> None:
    assert pooled_spread([100.0], [110.0]) == 0.0
    assert pooled_spread([100.0, 102], [200.0, 202]) == pytest.approx(1.4826)
    chance = random.Random(1)
    base, new = noisy(chance, 400, 100, 0.03), noisy(chance, 400, 150, 0.02)
    assert pooled_spread(base, new) == pytest.approx(3.0, rel=0.1)
    assert pooled_spread([*base, 1e9], new) == pytest.approx(3.0, rel=0.1)
    assert pooled_spread([5.0, 5, 5, 9], [5.0, 5, 5, 5]) > 0
    even = [1.0, 4, 6, 11]
    assert pooled_spread(even, []) == pytest.approx(float(stats.median_abs_deviation(even, scale=1 / MAD)))


# --- quantiles and tails ----------------------------------------------------------------------------------------------


def test_quantiles_tails_and_the_incomplete_beta_function_are_those_of_scipy() -> None:
    for share in (0.001, 0.025, 0.2, 0.5, 0.8, 0.95, 0.975, 0.995, 0.99999):
        assert normal_quantile(share) == pytest.approx(stats.norm.ppf(share), abs=1e-6)
    for freedom in FREEDOMS:
        for t in (0.0, 0.01, 0.5, 1.0, 2.0, 3.3, 7.0, 40.0, 1000.0):
            assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-7, abs=1e-300), (t, freedom)
        for tail in (0.4, 0.1, 0.025, 0.005, 0.0005, 1e-6):
            assert t_quantile(tail, freedom) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-6), (tail, freedom)
    for a, b in itertools.product((0.25, 0.5, 1, 2.5, 40), (0.5, 1, 3)):
        for x in (-1.0, 0.0, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0, 2.0):
            assert incomplete_beta(x, a, b) == pytest.approx(special.betainc(a, b, min(max(x, 0), 1)), rel=1e-8), (x, a, b)


# --- the rank test ----------------------------------------------------------------------------------------------------


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    return rank_test([(first, second)])


def enumerated(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """The p of the permutation test by going through all ways to deal the values out, with scipy's ranks."""
    sums = []
    observed = Fraction(0)
    for first, second in strata:
        ranks = [Fraction(float(rank)) for rank in stats.rankdata([*first, *second])]
        middle = Fraction(len(first), len(ranks)) * sum(ranks)
        observed += sum(ranks[: len(first)]) - middle
        sums.append([sum(ranks[place] for place in taken) - middle for taken in itertools.combinations(range(len(ranks)), len(first))])
    distances = [sum(parts) for parts in itertools.product(*sums)]
    return sum(abs(distance) >= abs(observed) for distance in distances) / len(distances)


@given(st.lists(VALUES, min_size=1, max_size=6), st.lists(VALUES, min_size=1, max_size=6))
def test_p_is_that_of_all_ways_to_deal_the_values_out(first: list[float], second: list[float]) -> None:
    assert p_value(first, second) == pytest.approx(enumerated([(first, second)]), abs=1e-12)


@given(st.lists(VALUES, min_size=3, max_size=4), st.lists(VALUES, min_size=3, max_size=4), VALUES, VALUES)
def test_p_within_strata_is_that_of_dealing_within_them(first: list[float], second: list[float], one: float, other: float) -> None:
    strata = [(first, second), ([one], [other])]
    assert rank_test(strata) == pytest.approx(enumerated(strata), abs=1e-12)


def test_p_without_ties_is_that_of_scipy() -> None:
    chance = random.Random(8)
    for n, m in ((1, 1), (1, 9), (2, 3), (5, 5), (8, 8), (7, 20), (40, 33), (50, 50)):
        for shift in (0.0, 0.7, 2.0):
            first, second = [chance.gauss(0, 1) for _ in range(n)], [chance.gauss(shift, 1) for _ in range(m)]
            wanted = stats.mannwhitneyu(first, second, method="exact").pvalue
            assert p_value(first, second) == pytest.approx(wanted, rel=1e-9), (n, m, shift)


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_large_samples_take_the_approximation_of_scipy(digits: int) -> None:
    chance = random.Random(9)
    for shift in (0.0, 0.3, 1.0):
        first = [round(chance.gauss(0, 1), digits) for _ in range(RANK_TEST_EXACT_UP_TO // 2)]
        second = [round(chance.gauss(shift, 1), digits) for _ in range(RANK_TEST_EXACT_UP_TO // 2 + 1)]
        wanted = stats.mannwhitneyu(first, second, method="asymptotic").pvalue
        assert p_value(first, second) == pytest.approx(min(1.0, wanted), rel=1e-9)
    assert p_value([5.0] * 60, [5.0] * 60) == 1.0


def test_the_approximation_takes_over_where_the_exact_test_ends() -> None:
    chance = random.Random(3)
    first = [chance.gauss(100, 5) for _ in range(RANK_TEST_EXACT_UP_TO // 2)]
    second = [chance.gauss(102, 5) for _ in range(RANK_TEST_EXACT_UP_TO // 2)]
    exact, approximate = p_value(first, second), p_value([*first, 100.0], [*second, 102.0])
    assert exact == pytest.approx(approximate, rel=0.2)


def test_known_values_of_the_rank_test() -> None:
    assert p_value([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert p_value([1, 1], [1, 1]) == 1.0
    assert p_value([], [1.0]) == 1.0
    assert smallest_p((4, 4)) == pytest.approx(2 / 70)
    assert smallest_p((3, 3), (1, 1)) == pytest.approx(2 / 40)
    assert smallest_p((1, 1)) == 1.0
    # Tables of critical values for Mann-Whitney's U, two-sided 5 %: 8 against 8 allow 13, 4 against 4 none, 3 against 3 can't decide.
    assert [inversions_allowed(n, n, 0.05) for n in (8, 4, 3, 5)] == [13, 0, None, 2]


def test_pairs_that_may_stand_the_wrong_way_round_keep_p_within_the_level() -> None:
    for n, m in ((4, 4), (5, 7), (8, 8), (3, 12)):
        allowed = inversions_allowed(n, m, 0.05)
        assert allowed is not None

        def p(inversions: int, n: int = n, m: int = m) -> float:
            full, rest = divmod(inversions, m)
            first = (
                [float(place) for place in range(n - full - 1)]
                + [n - full - 1 + rest + 0.5]
                + [m + n + 1.0 + place for place in range(full)]
            )
            return p_value(first, [float(n - full - 1 + place) for place in range(1, m + 1)])

        assert p(allowed) <= 0.05 < p(allowed + 1), (n, m)


def test_the_shift_that_is_shown_has_the_power() -> None:
    chance = random.Random(4)
    for n, m in ((4, 4), (6, 9), (12, 12)):
        shift = shift_shown(n, m, 0.05, 0.8)
        hits = sum(p_value([chance.gauss(0, 1) for _ in range(n)], [chance.gauss(shift, 1) for _ in range(m)]) <= 0.05 for _ in range(500))
        assert hits / 500 == pytest.approx(0.8, abs=0.06), (n, m)


# --- the bootstrap ----------------------------------------------------------------------------------------------------


def interval(base: Sequence[float], new: Sequence[float], *, last_apart: bool = False, paired: bool = False) -> tuple[float, float]:
    return bootstrap_intervals([base], [new], confidence=0.95, resamples=2000, last_apart=last_apart, paired=paired)[0]


@given(st.lists(STEPS, min_size=2, max_size=7), st.lists(STEPS, min_size=2, max_size=7))
def test_the_interval_holds_the_difference_and_is_the_same_again(base: list[float], new: list[float]) -> None:
    low, high = interval(base, new)
    assert low <= median(new) - median(base) <= high
    draws.cache_clear()
    assert interval(base, new) == (low, high)
    assert interval(new, base) == pytest.approx((-high, -low))


def test_an_interval_is_by_its_definition_the_percentiles_of_resampled_differences() -> None:
    chance = random.Random(5)
    for n, m in ((5, 8), (6, 6), (31, 4)):
        base, new = noisy(chance, n, 100, 0.05), noisy(chance, m, 103, 0.05)
        drawn = list(zip(*draws(n, m, 2000, last_apart=False, paired=False), strict=True))
        differences = sorted(median(second(new)) - median(first(base)) for first, second in drawn)
        assert len(differences) == 2000
        assert interval(base, new) == (differences[50], differences[-51])


def test_intervals_are_nearly_those_of_scipy() -> None:
    chance = random.Random(6)
    base, new = noisy(chance, 40, 100, 0.05), noisy(chance, 30, 104, 0.05)

    def difference(first: Sequence[float], second: Sequence[float]) -> float:
        return median(map(float, second)) - median(map(float, first))

    wanted = stats.bootstrap((base, new), difference, vectorized=False, method="percentile", n_resamples=2000, rng=1).confidence_interval
    assert interval(base, new) == pytest.approx((wanted.low, wanted.high), abs=0.5)


def test_equal_samples_are_mostly_within_the_interval() -> None:
    chance = random.Random(7)
    missed = 0
    for _ in range(200):
        low, high = interval(noisy(chance, 12, 100, 0.03), noisy(chance, 9, 100, 0.03))
        missed += not low <= 0 <= high
    assert missed <= 200 * 0.08


def test_the_last_value_is_drawn_always_and_pairs_together() -> None:
    (first, *_), (second, *_) = draws(5, 5, 100, last_apart=True, paired=True)
    assert first is second
    for draw in draws(6, 6, 100, last_apart=True, paired=False)[0]:
        places = draw(range(6))
        assert places[-1] == 5
        assert 5 not in places[:-1]
    assert len(draws(3, 4, 10, last_apart=False, paired=False)[0]) == statistics._FEWEST_DRAWS
    base = [100.0, 130, 95, 111, 122, 87]
    low, high = interval(base, [value + 1 for value in base], paired=True)
    assert (low, high) == pytest.approx((1, 1))


def test_figures_of_the_same_steps_see_the_same_draws() -> None:
    chance = random.Random(10)
    base, new = noisy(chance, 7, 100, 0.05), noisy(chance, 9, 110, 0.05)
    rows = bootstrap_intervals([base, [2 * value for value in base]], [new, [2 * value for value in new]], confidence=0.95, resamples=2000)
    assert rows[1] == pytest.approx((2 * rows[0][0], 2 * rows[0][1]))
    assert bootstrap_intervals([], [], confidence=0.95, resamples=2000) == []
