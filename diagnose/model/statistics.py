"""Statistics of small samples: medians, Student's t, the exact rank test, the bootstrap of a difference of medians.

Nothing here knows what was measured.

Written by hand because a statistics package is larger than this program, and has no exact rank test with ties and strata; the tests hold
all of it against scipy and against enumeration. What the standard library has (`statistics.median`, `NormalDist`) is called there.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from statistics import NormalDist, median

MAD = 1.4826  # median absolute deviation of a normal distribution to its standard deviation
MEDIAN_ERROR = 1.2533  # √(π/2): standard error of a median to that of a mean
RANK_TEST_EXACT_UP_TO = 100  # values of both samples together; above, the normal approximation with ties is right to three digits
_SEED = 20240607  # any number: the same samples give the same interval
_DRAWS = 400_000  # values drawn at most for one interval; larger samples are drawn fewer times
_FEWEST_DRAWS = 400

# --- medians and spread -----------------------------------------------------------------------------------------------


def integer_median(values: Iterable[int]) -> int:
    """The median as a whole number (the mean of the two middle values, rounded down); 0 for no value."""
    ordered = sorted(values)
    if not ordered:
        return 0
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return int(ordered[middle])
    return (int(ordered[middle - 1]) + int(ordered[middle])) // 2


def median_with_error(values: Sequence[float]) -> tuple[float, float]:
    """The median of at least one value, and its relative standard error by their robust spread.

    No error (0) of fewer than three values, nor of a median of nought.
    """
    middle = median(values)
    if len(values) < 3 or not middle:
        return middle, 0.0
    spread = median(abs(value - middle) for value in values) * MAD
    return middle, MEDIAN_ERROR * spread / math.sqrt(len(values)) / abs(middle)


def pooled_spread(base: Sequence[float], new: Sequence[float]) -> float:
    """The standard deviation within two samples, robust: from the median distance to the own sample's median.

    0 where neither has two values.
    """
    distances: list[float] = []
    for values in (base, new):
        if len(values) > 1:
            middle = median(values)
            own = sorted(abs(value - middle) for value in values)
            distances += own[len(values) % 2 :]  # of an odd number the middle one is its own median, and tells nothing
    if not distances:
        return 0.0
    return MAD * median(distances) or MEDIAN_ERROR * sum(distances) / len(distances)


# --- quantiles and tails ----------------------------------------------------------------------------------------------


def normal_quantile(share: float) -> float:
    """The value below which this share of a standard normal distribution lies; six decimals, the same on every machine."""
    return round(NormalDist().inv_cdf(share), 6)


def t_tail(t: float, freedom: float) -> float:
    """Probability that a Student t with `freedom` degrees of freedom exceeds `t` ≥ 0 (Abramowitz and Stegun 26.7.1)."""
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


@lru_cache(maxsize=4096)
def t_quantile(tail: float, freedom: float) -> float:
    """The t that is exceeded with probability `tail` (below one half)."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > tail:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(x, a, b) / a if x < (a + 1) / (a + b + 2) else 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz' method."""
    c, d = 1.0, 1 / _off_nought(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 300):
        for numerator in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1 / _off_nought(1 + numerator * d), _off_nought(1 + numerator / c)
            result *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return result


def _off_nought(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


# --- the rank test ----------------------------------------------------------------------------------------------------
# Mann and Whitney, On a test of whether one of two random variables is stochastically larger than the other (1947). Ties get the mean of
# their ranks, and the distribution is that of all ways to deal these ranks out (the permutation test). Ranks are doubled, so that they are
# whole.


def rank_test(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """The two-sided p: probability that equal populations give rank sums as far from the middle as these or farther.

    A stratum is a pair of samples that may be compared with each other, but not with the rest: values are dealt out within strata only, and
    rank sums of all strata add up. 1 where no stratum has both samples, or all values are equal.
    """
    pairs = [(list(first), list(second)) for first, second in strata if len(first) and len(second)]
    if not pairs:
        return 1.0
    if sum(len(first) + len(second) for first, second in pairs) > RANK_TEST_EXACT_UP_TO:
        return _approximate_rank_test(*max(pairs, key=lambda pair: len(pair[0]) + len(pair[1])))
    ways: dict[Fraction, int] = {Fraction(0): 1}
    observed = Fraction(0)
    for first, second in pairs:
        ranks = doubled_ranks([*first, *second])
        middle = Fraction(len(first) * sum(ranks), len(ranks))
        observed += sum(ranks[: len(first)]) - middle
        counts = _subset_sums(tuple(sorted(ranks)), len(first))
        ways = _sum_of_independent(ways, {value - middle: count for value, count in counts.items()})
    hits = sum(count for distance, count in ways.items() if abs(distance) >= abs(observed))
    return min(1.0, hits / sum(ways.values()))


def _sum_of_independent(first: Mapping[Fraction, int], second: Mapping[Fraction, int]) -> dict[Fraction, int]:
    """The distribution (value → ways) of the sum of two independent ones."""
    if len(first) == 1 and Fraction(0) in first and first[Fraction(0)] == 1:
        return dict(second)
    ways: dict[Fraction, int] = {}
    for one, here in first.items():
        for other, there in second.items():
            ways[one + other] = ways.get(one + other, 0) + here * there
    return ways


def smallest_p(*strata: tuple[int, int]) -> float:
    """The smallest p that samples of these sizes (strata of them) can reach without ties: complete separation."""
    ways = math.prod(math.comb(first + second, first) for first, second in strata)
    return min(1.0, 2 / ways)


@lru_cache(maxsize=256)
def inversions_allowed(n_first: int, n_second: int, level: float) -> int | None:
    """How many pairs of values may stand the wrong way round with p still at most `level`, without ties.

    None: not even complete separation reaches it. Only for samples of the exact test.
    """
    counts = _subset_sums(tuple(range(2, 2 * (n_first + n_second) + 1, 2)), n_first)
    whole, least = math.comb(n_first + n_second, n_first), n_first * (n_first + 1)
    reached, allowed = 0, None
    for pairs in range(n_first * n_second // 2 + 1):
        reached += counts.get(least + 2 * pairs, 0)
        if 2 * reached / whole > level:
            break
        allowed = pairs
    return allowed


def doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, ties at their mean."""
    seen = Counter(values)
    rank: dict[float, int] = {}
    below = 0
    for value in sorted(seen):
        rank[value] = 2 * below + seen[value] + 1
        below += seen[value]
    return [rank[value] for value in values]


@lru_cache(maxsize=64)
def _subset_sums(ranks: tuple[int, ...], size: int) -> dict[int, int]:
    """How many subsets of `size` have each sum.

    One whole number holds all counts of one size, each in a slot wide enough for any of them.
    """
    width = len(ranks) + 1
    held = [1] + [0] * size
    for index, rank in enumerate(ranks):
        for count in range(min(index + 1, size), 0, -1):
            held[count] += held[count - 1] << (rank * width)
    slots, mask = held[size], (1 << width) - 1
    counts: dict[int, int] = {}
    data = slots.to_bytes((slots.bit_length() + 7) // 8 or 1, "little")
    for value in range(sum(ranks[-size:]) + 1 if size else 1):
        low = value * width
        count = int.from_bytes(data[low // 8 : (low + width + 7) // 8 + 1], "little") >> (low % 8) & mask
        if count:
            counts[value] = count
    return counts


def _approximate_rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The normal approximation with the correction for ties and for continuity (Lehmann, Nonparametrics, 1975)."""
    n, whole = len(first), len(first) + len(second)
    ranks = doubled_ranks([*first, *second])
    ties = sum(count**3 - count for count in Counter(ranks).values())
    variance = n * (whole - n) / 12 * (whole + 1 - ties / (whole * (whole - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(sum(ranks[:n]) - n * (whole + 1)) / 2 - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))


# --- the bootstrap ----------------------------------------------------------------------------------------------------

Draw = Callable[[Sequence[float]], Sequence[float]]  # takes the values at the places that were drawn


def bootstrap_intervals(
    base: Sequence[Sequence[float]],
    new: Sequence[Sequence[float]],
    *,
    confidence: float,
    resamples: int,
    last_apart: bool = False,
    paired: bool = False,
) -> list[tuple[float, float]]:
    """Percentile bootstrap intervals of differences of medians, of several figures of the same samples.

    What is drawn is places, so that every figure sees the same draws.

    All rows of one side are of one length, two and more. An interval holds the difference itself. `last_apart`: the last value of both
    sides is always drawn. `paired`: the same places are drawn of both sides, which are of one length. Seeded: the same samples give the
    same intervals, swapped ones their mirror image.
    """
    if not base:
        return []
    drawn_base, drawn_new = draws(len(base[0]), len(new[0]), resamples, last_apart=last_apart, paired=paired)
    tail = (1 - confidence) / 2
    return [_percentiles(first, second, drawn_base, drawn_new, tail) for first, second in zip(base, new, strict=True)]


def _percentiles(
    base: Sequence[float], new: Sequence[float], drawn_base: Sequence[Draw], drawn_new: Sequence[Draw], tail: float
) -> tuple[float, float]:
    differences = sorted(second - first for first, second in zip(_medians(base, drawn_base), _medians(new, drawn_new), strict=True))
    cut = int(tail * len(differences))
    delta = median(new) - median(base)
    return min(differences[cut], delta), max(differences[-1 - cut], delta)


def _medians(values: Sequence[float], drawn: Sequence[Draw]) -> list[float]:
    """The median of each resample; without a call for each, because an interval takes thousands."""
    half = len(values) // 2
    if len(values) % 2:
        return [sorted(draw(values))[half] for draw in drawn]
    return [((ordered := sorted(draw(values)))[half - 1] + ordered[half]) / 2 for draw in drawn]


@lru_cache(maxsize=32)
def draws(n_base: int, n_new: int, resamples: int, *, last_apart: bool, paired: bool) -> tuple[Sequence[Draw], Sequence[Draw]]:
    """The resamples of both sides. Each side's draws hang on its own length only, so that swapping the sides swaps the draws."""
    times = max(min(resamples, _DRAWS // (n_base + n_new)), _FEWEST_DRAWS)
    if paired:
        both = _drawn(n_base, times, last_apart=last_apart)
        return both, both
    if n_base == n_new:
        times //= 2
        both = _drawn(n_base, 2 * times, last_apart=last_apart)
        return both, [*both[times:], *both[:times]]  # every pair of draws in both orders, so that the mirror image is exact
    return _drawn(n_base, times, last_apart=last_apart), _drawn(n_new, times, last_apart=last_apart)


def _drawn(size: int, times: int, *, last_apart: bool) -> list[Draw]:
    chance = random.Random(_SEED + size)  # noqa: S311 - no secret
    free = size - 1 if last_apart else size
    fixed = [size - 1] if last_apart else []
    return [itemgetter(*chance.choices(range(free), k=free), *fixed) for _ in range(times)]


# --- what a rank test can show ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def shift_shown(n_base: int, n_new: int, level: float, power: float) -> float:
    """The shift between two normal samples, in standard deviations, that the rank test at `level` finds with probability `power`.

    Simulated, because few values make its p coarse.
    """
    allowed = inversions_allowed(n_base, n_new, level) or 0
    chance = random.Random(_SEED)  # noqa: S311 - no secret
    needed = sorted(_shift_needed(chance, n_base, n_new, allowed) for _ in range(_SIMULATED))
    return needed[int(power * _SIMULATED)]


_SIMULATED = 400  # pairs of samples


def _shift_needed(chance: random.Random, n_base: int, n_new: int, allowed: int) -> float:
    """The shift at which one simulated pair of samples would be told apart by the rank test.

    All but `allowed` pairs of values stand the right way round.
    """
    base = [_bell(chance) for _ in range(n_base)]
    new = [_bell(chance) for _ in range(n_new)]
    gaps = sorted((first - second for first in base for second in new), reverse=True)
    return max(gaps[allowed], 0.0)


def _bell(chance: random.Random) -> float:
    """A value that is nearly normal, with standard deviation 1, by sums alone: the same on every machine."""
    return sum(chance.random() for _ in range(12)) - 6.0
