"""Statistics of small samples: medians and their spread, chances of counts, the scale on which noise is alike, Student's t.

Nothing here knows what was measured.

Written by hand because a statistics package is larger than this program; the tests hold all of it against scipy. What the standard library
has (`statistics.median`) is called there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean, median
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import polars as pl

MAD = 1.4826  # median absolute deviation of a normal distribution to its standard deviation
MEDIAN_ERROR = 1.2533  # √(π/2): standard error of a median to that of a mean, of many normal values
_MEDIAN_ERRORS = (1.0, 1.0, 1.160, 1.092, 1.198, 1.135, 1.214)  # the same of one to seven (Harter, Order Statistics and Their Use, 1970)
_GROUPS_FROM = 4  # values from which two groups can be told from scatter
_GROUPS_APART = 4.0, 8.0  # the gap between two groups, in the scatter within them: of many values, and how much more the fewer they are
_WIDEST = 20.0  # ends further apart than this factor are compared by shares: a level near nought has little absolute noise

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


def median_of(values: pl.Series) -> float:
    """The median of a column; 0 for no value."""
    return float(values.median() or 0)  # type: ignore[arg-type]


def mean_of(values: pl.Series) -> float:
    """The mean of a column; 0 for no value."""
    return float(values.mean() or 0)  # type: ignore[arg-type]


def median_with_error(values: Sequence[float]) -> tuple[float, float]:
    """The median of at least one value, and its relative standard error by their robust spread.

    No error (0) of fewer than three values, nor of a median of nought.
    """
    middle = median(values)
    if len(values) < 3 or not middle:
        return middle, 0.0
    spread = median(abs(value - middle) for value in values) * MAD
    return middle, MEDIAN_ERROR * spread / math.sqrt(len(values)) / abs(middle)


def median_error(size: int) -> float:
    """The standard error of the median of so many normal values to the standard deviation of one."""
    return (_MEDIAN_ERRORS[size - 1] if size <= len(_MEDIAN_ERRORS) else MEDIAN_ERROR) / math.sqrt(size)


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


def known_spread(samples: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The standard deviation within samples, and its degrees of freedom.

    The usual one, or the robust one where single values stand far out.

    (0, 1) where no sample has two values.
    """
    several = [sample for sample in samples if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in several)
    if not freedom:
        return 0.0, 1.0
    usual = math.sqrt(math.fsum((value - fmean(sample)) ** 2 for sample in several for value in sample) / freedom)
    robust = (
        median(pooled_spread(sample, ()) for sample in several)
        if len(several) > 2
        else pooled_spread(several[0], several[-1] if len(several) > 1 else ())
    )
    return (usual, float(freedom)) if usual <= OUTLYING * robust else (robust, max(_MAD_FREEDOM * freedom, 1.0))


OUTLYING = 4.0  # times the robust spread: a usual one beyond that holds values that stand far out
_MAD_FREEDOM = 0.37  # degrees of freedom that a median absolute deviation is worth, per deviation, for normal values


def two_groups(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The two groups that values fall into: at least two values each, and a gap of several times the scatter within them; else None."""
    ordered = sorted(values)
    if len(ordered) < _GROUPS_FROM:
        return None
    gap, cut = max((ordered[index + 1] - ordered[index], index + 1) for index in range(len(ordered) - 1))
    groups = ordered[:cut], ordered[cut:]
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    scatter = math.sqrt(squares / (len(ordered) - 2))
    needed = _GROUPS_APART[0] + _GROUPS_APART[1] / (len(ordered) - 2)
    return groups if min(map(len, groups)) > 1 and gap > needed * scatter else None


def majority(size: int, share: float) -> float:
    """The probability that more than half of so many draws are of a kind that has this share."""
    return math.fsum(math.comb(size, k) * share**k * (1 - share) ** (size - k) for k in range(size // 2 + 1, size + 1))


def fisher(found: int, size: int, others: int, further: int) -> float:
    """The chance that `found` or more of all marked ones are among `size` draws, and `others` among the `further` ones (Fisher, exact)."""
    marked = found + others
    ways = sum(math.comb(size, count) * math.comb(further, marked - count) for count in range(found, min(marked, size) + 1))
    return ways / math.comb(size + further, marked)


# --- the scale on which noise is alike ----------------------------------------------------------------------------------


class Transform(Struct, frozen=True):
    """Numbers on which values are compared: logarithms where that makes noise alike on all levels, else shares of the larger end.

    `unit` is the value that counts as one (shares), or the least that is told from nought (logarithms).
    """

    logarithmic: bool
    unit: float

    def to(self, value: float) -> float:
        """The number for a value of the metric."""
        return math.log(max(value, self.unit)) if self.logarithmic else value / self.unit

    def back(self, number: float) -> float:
        """The value of the metric that a number stands for."""
        return math.exp(number) if self.logarithmic else number * self.unit

    def relative(self, share: float, at: float) -> float:
        """The difference of numbers that a relative change by `share` makes, from the number `at`."""
        return math.log1p(share) if self.logarithmic else share * abs(at)


def transform_of(values: Sequence[float]) -> Transform:
    """The transform for ends of these values: of times and counts a logarithm, unless one is nought or far from the other."""
    low, high = min(values), max(values)
    if low > 0 and high / low <= _WIDEST:
        return Transform(logarithmic=True, unit=low / 1e6)
    return Transform(logarithmic=False, unit=max(abs(low), abs(high)) or 1.0)


# --- quantiles and tails ----------------------------------------------------------------------------------------------


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
