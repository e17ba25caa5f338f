"""Statistics against scipy, against enumeration, and against their definitions."""

import itertools
import math
import random
from fractions import Fraction
from statistics import median

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from diagnose.model.statistics import (
    MAD,
    MEDIAN_ERROR,
    fisher,
    incomplete_beta,
    integer_median,
    known_spread,
    majority,
    median_error,
    median_with_error,
    pooled_spread,
    t_quantile,
    t_tail,
    two_groups,
)

FREEDOMS = (0.5, 1, 1.37, 2, 3, 5, 8.25, 12, 30, 100, 1000)


def noisy(chance: random.Random, steps: int, level: float, share: float) -> list[float]:
    return [level * (1 + chance.gauss(0, share)) for _ in range(steps)]


# --- medians and spread -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**15), 10**15), max_size=9))
def test_a_whole_median_is_rounded_down(values: list[int]) -> None:
    assert integer_median(values) == (math.floor(Fraction(median(map(Fraction, values)))) if values else 0)


def test_the_constants_are_those_of_a_normal_distribution() -> None:
    assert pytest.approx(1 / scipy.stats.norm.ppf(0.75), abs=1e-4) == MAD
    assert pytest.approx(math.sqrt(math.pi / 2), abs=1e-4) == MEDIAN_ERROR


def test_the_error_of_a_median_is_that_of_repeated_samples() -> None:
    chance = random.Random(2)
    samples = [noisy(chance, 60, 100, 0.05) for _ in range(400)]
    medians = [median(sample) for sample in samples]
    told = [median_with_error(sample) for sample in samples]
    assert [middle for middle, _ in told] == medians
    assert median(error for _, error in told) == pytest.approx(float(scipy.stats.tstd(medians)) / 100, rel=0.15)
    assert median_with_error([3.0, 5.0]) == (4.0, 0.0)
    assert median_with_error([-1.0, 0.0, 1.0]) == (0.0, 0.0)
    sample = [10.0, 11, 14, 9, 10.5]
    assert median_with_error(sample)[1] == pytest.approx(
        MEDIAN_ERROR * MAD * float(scipy.stats.median_abs_deviation(sample)) / math.sqrt(5) / 10.5
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
    assert pooled_spread(even, []) == pytest.approx(float(scipy.stats.median_abs_deviation(even, scale=1 / MAD)))


def test_the_error_of_a_median_of_few_is_that_of_repeated_samples() -> None:
    chance = random.Random(3)
    for size in (1, 2, 3, 4, 5, 6, 7, 12):
        medians = [median(chance.gauss(0, 1) for _ in range(size)) for _ in range(8000)]
        assert median_error(size) == pytest.approx(float(scipy.stats.tstd(medians)), rel=0.06), size


def test_the_known_spread_is_the_usual_one_unless_single_values_stand_far_out() -> None:
    chance = random.Random(4)
    samples = [noisy(chance, 5, 100, 0.02) for _ in range(3)]
    pooled = math.sqrt(sum(4 * float(scipy.stats.tvar(sample)) for sample in samples) / 12)
    assert known_spread(samples) == (pytest.approx(pooled), 12)
    spread, freedom = known_spread([[*samples[0][:4], 140.0], *samples[1:]])
    assert spread < 2 * pooled
    assert freedom < 12
    assert known_spread([[1.0], []]) == (0.0, 1.0)


def test_two_groups_need_a_gap_and_two_values_each() -> None:
    assert two_groups([100.0, 106.1, 100.2, 106.0, 99.9]) == ([99.9, 100.0, 100.2], [106.0, 106.1])
    assert two_groups([100.0, 100.2, 99.9, 130.0]) is None
    chance = random.Random(5)
    assert sum(two_groups(noisy(chance, 10, 100, 0.02)) is not None for _ in range(1000)) <= 5


def test_a_majority_is_that_of_the_binomial_distribution() -> None:
    for size, share in ((1, 0.3), (5, 0.5), (6, 0.2), (11, 0.9)):
        assert majority(size, share) == pytest.approx(float(scipy.stats.binom.sf(size // 2, size, share)))


def test_the_chance_that_one_side_has_so_many_is_that_of_scipy() -> None:
    for found, size, others, further in ((3, 8, 0, 8), (1, 8, 1, 8), (0, 5, 4, 40), (40, 1200, 12, 1100)):
        table = [[found, size - found], [others, further - others]]
        expected = scipy.stats.fisher_exact(table, alternative="greater").pvalue
        assert fisher(found, size, others, further) == pytest.approx(float(expected)), table


# --- quantiles and tails ----------------------------------------------------------------------------------------------


def test_t_its_tails_and_the_incomplete_beta_function_are_those_of_scipy() -> None:
    for freedom in FREEDOMS:
        for t in (0.0, 0.01, 0.5, 1.0, 2.0, 3.3, 7.0, 40.0, 1000.0):
            assert t_tail(t, freedom) == pytest.approx(scipy.stats.t.sf(t, freedom), rel=1e-7, abs=1e-300), (t, freedom)
        for tail in (0.4, 0.1, 0.025, 0.005, 0.0005, 1e-6):
            assert t_quantile(tail, freedom) == pytest.approx(scipy.stats.t.isf(tail, freedom), rel=1e-6), (tail, freedom)
    for a, b in itertools.product((0.25, 0.5, 1, 2.5, 40), (0.5, 1, 3)):
        for x in (-1.0, 0.0, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0, 2.0):
            assert incomplete_beta(x, a, b) == pytest.approx(scipy.special.betainc(a, b, min(max(x, 0), 1)), rel=1e-8), (x, a, b)
