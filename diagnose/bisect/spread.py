"""Small statistics of a search: the noise between captures of one candidate, intervals, and captures that stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from diagnose.model.statistics import MAD, t_tail


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is assumed of the noise between captures before it is seen: `scale` (a standard deviation) with the weight of `freedom` observations."""

    scale: float
    freedom: float


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The standard deviation of one capture around its candidate's level, estimated with `freedom` degrees of freedom."""

    scale: float
    freedom: float


@dataclass(frozen=True)
class Readings:
    """What was measured of one candidate, in the search's scale: number, mean, and sum of squares around the mean."""

    place: int
    count: int
    mean: float
    squares: float


def readings(place: int, values: Sequence[float]) -> Readings:
    """The summary of one candidate's values; there is at least one."""
    mean = math.fsum(values) / len(values)
    return Readings(place, len(values), mean, math.fsum((value - mean) ** 2 for value in values))


def pooled(found: Sequence[Readings]) -> Readings:
    """Candidates of one level taken together, at the place of the first; there is at least one."""
    count = sum(one.count for one in found)
    mean = math.fsum(one.count * one.mean for one in found) / count
    return Readings(found[0].place, count, mean, math.fsum(one.squares + one.count * (one.mean - mean) ** 2 for one in found))


def noise(found: Iterable[Readings], prior: Prior) -> Noise:
    """Pooled over candidates that were captured more than once, with the prior's weight."""
    freedom, squares = prior.freedom, prior.freedom * prior.scale**2
    for one in found:
        freedom += one.count - 1
        squares += one.squares
    return Noise(scale=math.sqrt(squares / freedom), freedom=freedom)


# --- captures that stand out ------------------------------------------------------------------------------------------

Values = Mapping[int, Sequence[float]]
_WORTH = 0.37  # degrees of freedom that a median absolute deviation is worth, per deviation, for normal values


def robust(values: Values, prior: Prior) -> Noise:
    """The noise between captures of one candidate as most captures show it, whatever a few of them do: from the median absolute deviation."""
    deviations: list[float] = []
    for mine in values.values():
        middle, count = median(mine), len(mine)
        found = sorted(abs(value - middle) * math.sqrt(count / (count - 1)) for value in mine) if count > 1 else []
        deviations += found[1:]  # one of them is the middle itself, or of two captures its twin
    if not deviations:
        return Noise(scale=prior.scale, freedom=prior.freedom)
    freedom = _WORTH * len(deviations)
    scale = MAD * median_low(deviations)
    return Noise(
        scale=math.sqrt((prior.freedom * prior.scale**2 + freedom * scale**2) / (prior.freedom + freedom)), freedom=prior.freedom + freedom
    )


def flaky(values: Values, prior: Prior, error: float) -> dict[int, tuple[int, ...]]:
    """Of candidates with three captures or more, those captures that are too far from their fellows to be noise: candidate → places in its list.

    Each is held against the mean of its fellows by a t test of error probability `error`. The farthest goes first; the majority and two captures always stay.
    """
    usual = robust(values, prior)
    kept = {place: list(range(len(mine))) for place, mine in values.items()}
    for place, mine in values.items():
        while len(kept[place]) > max(2, len(mine) // 2 + 1):
            t, index = max((_distance(mine, kept[place], index, usual), index) for index in kept[place])
            if 2 * t_tail(t, usual.freedom) >= error:
                break
            kept[place].remove(index)
    return {place: gone for place, mine in values.items() if (gone := tuple(set(range(len(mine))) - set(kept[place])))}


def _distance(mine: Sequence[float], kept: Sequence[int], index: int, usual: Noise) -> float:
    fellows = [mine[other] for other in kept if other != index]
    return abs(mine[index] - math.fsum(fellows) / len(fellows)) / (usual.scale * math.sqrt(1 + 1 / len(fellows)))


def discordant(values: Values, prior: Prior, error: float) -> tuple[int, ...]:
    """Candidates whose captures contradict each other without a clear majority: two that differ, or one left out against no more than two."""
    usual, gone = robust(values, prior), flaky(values, prior, error)
    found = [
        place
        for place, mine in values.items()
        if len(mine) == 2 and 2 * t_tail(abs(mine[0] - mine[1]) / (usual.scale * math.sqrt(2)), usual.freedom) < error
    ]
    return tuple(sorted({*found, *(place for place, left in gone.items() if len(values[place]) < 2 * len(left) + 2)}))
