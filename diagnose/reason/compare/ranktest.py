"""The rank test of two samples: Mann-Whitney, two-sided, exact with ties.

Mann and Whitney, On a test of whether one of two random variables is stochastically larger than the other (1947); ties get the mean of their ranks, and the distribution is that of all
ways to deal these ranks out (the permutation test). Ranks are doubled, so that they are whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

EXACT_UP_TO = 100  # samples of both together; above, the normal approximation with ties is right to three digits


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Probability that equal populations give rank sums as far from the middle as these or farther. 1 where one side is empty or all values are equal."""
    return p_value_in([(first, second)])


def p_value_in(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """The same where values are dealt out within strata only (pairs of samples that may be compared with each other, but not with the rest); rank sums of all strata add up."""
    found = [(list(first), list(second)) for first, second in strata if len(first) and len(second)]
    if not found:
        return 1.0
    if sum(len(first) + len(second) for first, second in found) > EXACT_UP_TO:
        return _approximate(*max(found, key=lambda pair: len(pair[0]) + len(pair[1])))
    ways: dict[Fraction, int] = {Fraction(0): 1}
    observed = Fraction(0)
    for first, second in found:
        ranks = doubled_ranks([*first, *second])
        middle = Fraction(len(first) * sum(ranks), len(ranks))
        observed += sum(ranks[: len(first)]) - middle
        counts = _subset_sums(tuple(sorted(ranks)), len(first))
        ways = _added(ways, {value - middle: count for value, count in counts.items()})
    hits = sum(count for distance, count in ways.items() if abs(distance) >= abs(observed))
    return min(1.0, hits / sum(ways.values()))


def _added(first: Mapping[Fraction, int], second: Mapping[Fraction, int]) -> dict[Fraction, int]:
    """The distribution of the sum of two independent ones."""
    if len(first) == 1 and Fraction(0) in first and first[Fraction(0)] == 1:
        return dict(second)
    found: dict[Fraction, int] = {}
    for one, here in first.items():
        for other, there in second.items():
            found[one + other] = found.get(one + other, 0) + here * there
    return found


def smallest_p(*strata: tuple[int, int]) -> float:
    """The smallest p that samples of these sizes (strata of them) can reach without ties: complete separation."""
    ways = math.prod(math.comb(first + second, first) for first, second in strata)
    return min(1.0, 2 / ways)


@lru_cache(maxsize=256)
def pairs_allowed(n_first: int, n_second: int, level: float) -> int | None:
    """How many pairs may stand the wrong way round with p still at most `level`, without ties; None: not even complete separation does. Only up to EXACT_UP_TO samples."""
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
    """How many subsets of `size` have each sum. One whole number holds all counts of one size, each in a slot wide enough for any of them."""
    width = len(ranks) + 1
    held = [1] + [0] * size
    for place, rank in enumerate(ranks):
        for taken in range(min(place + 1, size), 0, -1):
            held[taken] += held[taken - 1] << (rank * width)
    slots, mask, found, value = held[size], (1 << width) - 1, {}, 0
    data = slots.to_bytes((slots.bit_length() + 7) // 8 or 1, "little")
    for value in range(sum(ranks[-size:]) + 1 if size else 1):
        low = value * width
        part = int.from_bytes(data[low // 8 : (low + width + 7) // 8 + 1], "little") >> (low % 8) & mask
        if part:
            found[value] = part
    return found


def _approximate(first: Sequence[float], second: Sequence[float]) -> float:
    """The normal approximation with the correction for ties and for continuity (Lehmann, Nonparametrics, 1975)."""
    n, whole = len(first), len(first) + len(second)
    ranks = doubled_ranks([*first, *second])
    ties = sum(count**3 - count for count in Counter(ranks).values())
    variance = n * (whole - n) / 12 * (whole + 1 - ties / (whole * (whole - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(sum(ranks[:n]) - n * (whole + 1)) / 2 - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))
