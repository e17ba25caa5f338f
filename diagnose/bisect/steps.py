"""Where a series of noisy readings steps, and how sure that is: the probability of a step in each gap between candidates that were measured.

The model: a level for each stretch of the order, unknown steps between stretches, and noise of one unknown size in all captures. Level and noise are integrated in closed form (flat level, inverse gamma
noise), and the sets of steps are summed up: all with one or two of them, larger ones grown from the best smaller ones. Nothing here knows commits or files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagnose.bisect.spread import Prior, Readings

_BEAM = 24  # sets of steps from which larger ones are grown
_MOST_STEPS = 10
_SMALL = math.log(1e-4)  # a number of steps whose sets together weigh less than this share ends the growth


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """What is assumed before measuring. `width`: the range in which levels lie. `none`: odds of no step at all against one; `more`: odds of each further step. `drift`: by how much candidates of one level may differ."""

    prior: Prior
    width: float
    none: float
    more: float
    drift: float


@dataclass(frozen=True, kw_only=True)
class Steps:
    """`chances[g]`: probability of a step between the measured candidates g and g + 1. `best`: the likeliest set of steps; `levels` one more than those; `noise`: one capture's standard deviation there."""

    chances: tuple[float, ...]
    none: float
    best: tuple[int, ...]
    levels: tuple[float, ...]
    noise: float

    def level_of(self, index: int) -> float:
        """The level of one measured candidate."""
        return self.levels[sum(1 for step in self.best if step < index)]


def steps(found: Sequence[Readings], count: int, beliefs: Beliefs) -> Steps:
    """The steps among `found` (in the order of their places) of `count` candidates."""
    model = _Model(found, count, beliefs)
    weighed: dict[tuple[int, ...], float] = {(): model.weight(()), **{(gap,): model.weight((gap,)) for gap in range(len(found) - 1)}}
    beam = [chosen for chosen in weighed if chosen]
    total = _sum(list(weighed.values()))
    for _ in range(_MOST_STEPS - 1):
        grown = {tuple(sorted((*chosen, gap))) for chosen in beam for gap in range(len(found) - 1) if gap not in chosen}
        if not grown:
            break
        larger = {chosen: model.weight(chosen) for chosen in sorted(grown)}
        weighed |= larger
        added = _sum(list(larger.values()))
        total = _sum([total, added])
        beam = sorted(larger, key=lambda chosen: -larger[chosen])[:_BEAM]
        if added - total < _SMALL:
            break
    return _summary(weighed, total, model, len(found) - 1)


def _summary(weighed: dict[tuple[int, ...], float], total: float, model: _Model, gaps: int) -> Steps:
    chances = [0.0] * gaps
    for chosen, weight in weighed.items():
        share = math.exp(weight - total)
        for gap in chosen:
            chances[gap] += share
    best = max(weighed, key=lambda chosen: weighed[chosen])
    return Steps(
        chances=tuple(min(chance, 1.0) for chance in chances),
        none=math.exp(weighed[()] - total),
        best=best,
        levels=model.levels(best),
        noise=model.noise(best),
    )


class _Model:
    """The weights of sets of steps over one series of readings; sums over any stretch are differences of running sums."""

    def __init__(self, found: Sequence[Readings], count: int, beliefs: Beliefs) -> None:
        self.beliefs = beliefs
        self.middle = found[0].mean  # readings are taken relative to it, so that differences of squares stay exact
        self.number, self.sums, self.squares = [0], [0.0], [0.0]
        for one in found:
            mean = one.mean - self.middle
            self.number.append(self.number[-1] + one.count)
            self.sums.append(self.sums[-1] + one.count * mean)
            self.squares.append(self.squares[-1] + one.squares + one.count * mean * mean)
        self.within = math.fsum(one.squares for one in found)
        self.distance = [math.log((right.place - left.place) / max(count - 1, 1)) for left, right in pairwise(found)]
        self.size = len(found)
        self.start = beliefs.prior.freedom * beliefs.prior.scale**2 + len(found) * beliefs.drift**2
        self.stretches: dict[tuple[int, int], float] = {}

    def error(self, left: int, right: int) -> float:
        """Sum of squares of the readings from `left` to before `right` around their level."""
        known = self.stretches.get((left, right))
        if known is None:
            number = self.number[right] - self.number[left]
            known = self.squares[right] - self.squares[left] - (self.sums[right] - self.sums[left]) ** 2 / number
            self.stretches[left, right] = known
        return known

    def _cuts(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        return (0, *(gap + 1 for gap in chosen), self.size)

    def _squares(self, chosen: tuple[int, ...]) -> float:
        return max(math.fsum(self.error(left, right) for left, right in pairwise(self._cuts(chosen))), self.within)

    def weight(self, chosen: tuple[int, ...]) -> float:
        """Logarithm of how likely these steps and these readings are together, up to what all sets have in common."""
        beliefs, stretches = self.beliefs, len(chosen) + 1
        odds = math.log(beliefs.none) if not chosen else (stretches - 2) * math.log(beliefs.more)
        total, freedom = self.start + self._squares(chosen), beliefs.prior.freedom + self.number[-1] - stretches
        return (
            odds
            + sum(self.distance[gap] for gap in chosen)
            - stretches * math.log(beliefs.width)
            + stretches / 2 * math.log(2 * math.pi)
            - sum(math.log(self.number[right] - self.number[left]) for left, right in pairwise(self._cuts(chosen))) / 2
            + math.lgamma(freedom / 2)
            - freedom / 2 * math.log(total / 2)
        )

    def levels(self, chosen: tuple[int, ...]) -> tuple[float, ...]:
        """Mean of each stretch."""
        return tuple(
            self.middle + (self.sums[right] - self.sums[left]) / (self.number[right] - self.number[left])
            for left, right in pairwise(self._cuts(chosen))
        )

    def noise(self, chosen: tuple[int, ...]) -> float:
        """The standard deviation of one reading around its level, the prior's weight with it."""
        freedom = self.beliefs.prior.freedom + self.number[-1] - len(chosen) - 1
        return math.sqrt((self.start + self._squares(chosen)) / max(freedom, 1.0))


def _sum(logarithms: Sequence[float]) -> float:
    """Logarithm of a sum, from the logarithms of its terms."""
    top = max(logarithms)
    return top + math.log(math.fsum(math.exp(one - top) for one in logarithms))
