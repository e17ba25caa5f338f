"""The statistics of a search: noise, captures that stand out, change points of a noisy series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import linear_regression, median, median_low

from msgspec import Struct

from diagnose.knowledge.data import checked, contents
from diagnose.model.statistics import MAD, t_quantile, t_tail

_FILE = "bisection.yaml"


class Number(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number with its meaning and source."""

    value: float
    meaning: str
    source: str


class Numbers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a search; the file says what each means."""

    run_noise: Number
    count_noise: Number
    noise_weight: Number
    alike: Number
    ends_error: Number
    step_error: Number
    answer_error: Number
    range_error: Number
    flaky_error: Number
    further_step: Number
    no_step: Number
    level_range: Number
    smallest_step: Number
    drift: Number
    failures: Number
    gradual: Number
    gradual_runs: Number
    verdict_error: Number
    line_error: Number


def load_numbers() -> Numbers:
    """The numbers in use. Raises RuleFileError."""
    with checked(_FILE, effect="Nothing was searched.", next_step="Correct the file; each number needs value, meaning and source."):
        return contents(_FILE, Numbers)


_AROUND = 2  # readings on either side that a single one is held against
_MAD_FREEDOM = 0.37  # degrees of freedom that a median absolute deviation is worth, per deviation, for normal values
_BEAM = 24  # sets of change points from which larger ones are grown
_MOST = 10  # change points of one set
_SMALL = math.log(1e-4)  # a number of change points whose sets together weigh less than this share ends the growth

# --- noise ------------------------------------------------------------------------------------------------------------


class Noise(Struct, frozen=True, kw_only=True):
    """The standard deviation of one capture around its candidate's level; `freedom`: of the estimate, or the weight of what is assumed."""

    scale: float
    freedom: float


class Readings(Struct, frozen=True):
    """What was measured of one candidate, transformed: number, mean, and sum of squares around the mean."""

    place: int
    count: int
    mean: float
    squares: float


def readings(place: int, values: Sequence[float]) -> Readings:
    """The summary of one candidate's values; there is at least one."""
    mean = math.fsum(values) / len(values)
    return Readings(place, len(values), mean, math.fsum((value - mean) ** 2 for value in values))


def pooled(several: Sequence[Readings]) -> Readings:
    """Candidates of one level taken together, at the place of the first; there is at least one."""
    count = sum(one.count for one in several)
    mean = math.fsum(one.count * one.mean for one in several) / count
    return Readings(several[0].place, count, mean, math.fsum(one.squares + one.count * (one.mean - mean) ** 2 for one in several))


def pooled_noise(candidates: Iterable[Readings], prior: Noise) -> Noise:
    """Pooled over candidates that were captured more than once, with the prior's weight."""
    freedom, squares = prior.freedom, prior.freedom * prior.scale**2
    for one in candidates:
        freedom += one.count - 1
        squares += one.squares
    return Noise(scale=math.sqrt(squares / freedom), freedom=freedom)


# --- captures that stand out ------------------------------------------------------------------------------------------

Values = Mapping[int, Sequence[float]]  # candidate → its values, transformed


def robust_noise(values: Values, prior: Noise) -> Noise:
    """The noise between captures of one candidate as most of them show it: from the median absolute deviation."""
    deviations: list[float] = []
    for mine in values.values():
        middle, count = median(mine), len(mine)
        found = sorted(abs(value - middle) * math.sqrt(count / (count - 1)) for value in mine) if count > 1 else []
        deviations += found[1:]  # one of them is the middle itself, or of two captures its twin
    if not deviations:
        return Noise(scale=prior.scale, freedom=prior.freedom)
    freedom = _MAD_FREEDOM * len(deviations)
    scale = MAD * median_low(deviations)
    return Noise(
        scale=math.sqrt((prior.freedom * prior.scale**2 + freedom * scale**2) / (prior.freedom + freedom)), freedom=prior.freedom + freedom
    )


def flaky(values: Values, usual: Noise, error: float) -> dict[int, tuple[int, ...]]:
    """Of candidates with three captures or more, those too far from their fellows to be noise: candidate → places in its list.

    Each is held against the mean of its fellows by a t test of error probability `error`. The farthest goes first; the majority and two
    captures always stay. `usual`: the noise as most captures show it.
    """
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


def apart(numbers: Sequence[float], prior: Noise, error: float) -> tuple[int, ...]:
    """Of single readings in a row, those that lie above all of the two before and the two after them, or below all, by more than noise.

    The noise is that of neighbours' differences as most of them show it, which steps do not raise.
    """
    if len(numbers) < 2 * _AROUND + 1:
        return ()
    differences = [abs(new - old) for old, new in pairwise(numbers)]
    freedom = _MAD_FREEDOM * len(differences)
    usual = max(prior.scale, MAD * median(differences) / math.sqrt(2))
    reach = t_quantile(error / 2, prior.freedom + freedom) * usual * math.sqrt(2)
    found = []
    for index in range(_AROUND, len(numbers) - _AROUND):
        around = (*numbers[index - _AROUND : index], *numbers[index + 1 : index + _AROUND + 1])
        if numbers[index] > max(around) + reach or numbers[index] < min(around) - reach:
            found.append(index)
    return tuple(found)


def discordant(values: Values, gone: Mapping[int, Sequence[int]], usual: Noise, error: float) -> tuple[int, ...]:
    """Candidates whose captures contradict each other without a clear majority: two that differ, or one left out against two at most.

    `gone`: captures that are left out, candidate → places in its list; `usual`: the noise as most captures show it.
    """
    found = [
        place
        for place, mine in values.items()
        if len(mine) == 2 and 2 * t_tail(abs(mine[0] - mine[1]) / (usual.scale * math.sqrt(2)), usual.freedom) < error
    ]
    return tuple(sorted({*found, *(place for place, left in gone.items() if len(values[place]) < 2 * len(left) + 2)}))


# --- change points ----------------------------------------------------------------------------------------------------


class Beliefs(Struct, frozen=True, kw_only=True):
    """What is assumed before measuring. `width`: the range in which levels lie.

    `none`: odds of no change point at all against one; `more`: odds of each further one. `drift`: by how much candidates of one level may
    differ.
    """

    prior: Noise
    width: float
    none: float
    more: float
    drift: float


class Posterior(Struct, frozen=True, kw_only=True):
    """`chances[g]`: probability of a change point between the measured candidates g and g + 1.

    `best`: the likeliest set of them; `levels` one more than those; `noise`: one capture's standard deviation there.
    """

    chances: tuple[float, ...]
    none: float
    best: tuple[int, ...]
    levels: tuple[float, ...]
    noise: float

    def level_of(self, index: int) -> float:
        """The level of one measured candidate."""
        return self.levels[sum(gap < index for gap in self.best)]


def change_points(found: Sequence[Readings], count: int, beliefs: Beliefs) -> Posterior:
    """The change points among `found` (in the order of their places) of `count` candidates."""
    model = _Weights(found, count, beliefs)
    weighed: dict[tuple[int, ...], float] = {(): model.weight(()), **{(gap,): model.weight((gap,)) for gap in range(len(found) - 1)}}
    beam = [chosen for chosen in weighed if chosen]
    total = _sum(list(weighed.values()))
    for _ in range(_MOST - 1):
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


def _summary(weighed: dict[tuple[int, ...], float], total: float, model: _Weights, gaps: int) -> Posterior:
    chances = [0.0] * gaps
    for chosen, weight in weighed.items():
        share = math.exp(weight - total)
        for gap in chosen:
            chances[gap] += share
    best = max(weighed, key=lambda chosen: weighed[chosen])
    return Posterior(
        chances=tuple(min(chance, 1.0) for chance in chances),
        none=math.exp(weighed[()] - total),
        best=best,
        levels=model.levels(best),
        noise=model.noise(best),
    )


class _Weights:
    """The weights of sets of change points over one series of readings; sums over any stretch are differences of running sums."""

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
        self.stretches: dict[tuple[int, int], tuple[float, float]] = {}
        self.alike: dict[int, tuple[float, float, float, float, float]] = {}

    def _stretch(self, left: int, right: int) -> tuple[float, float]:
        """Of the readings from `left` to before `right`: their sum of squares around their level, and the logarithm of their number."""
        number = self.number[right] - self.number[left]
        squares = self.squares[right] - self.squares[left] - (self.sums[right] - self.sums[left]) ** 2 / number
        found = self.stretches[left, right] = squares, math.log(number)
        return found

    def _cuts(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        return (0, *(gap + 1 for gap in chosen), self.size)

    def _between(self, chosen: tuple[int, ...]) -> tuple[float, list[float]]:
        """The sum of squares around the levels between these change points, and the logarithm of each stretch's number of readings.

        Asked a hundred times per advice, and so without a generator.
        """
        known, left = self.stretches, 0
        squares, logarithms = [], []
        for gap in (*chosen, self.size - 1):
            right = gap + 1
            stretch = known.get((left, right)) or self._stretch(left, right)
            squares.append(stretch[0])
            logarithms.append(stretch[1])
            left = right
        return max(math.fsum(squares), self.within), logarithms

    def _squares(self, chosen: tuple[int, ...]) -> float:
        return self._between(chosen)[0]

    def _terms(self, stretches: int) -> tuple[float, float, float, float, float]:
        """What the weights of all sets of so many stretches have in common."""
        beliefs = self.beliefs
        odds = math.log(beliefs.none) if stretches == 1 else (stretches - 2) * math.log(beliefs.more)
        freedom = beliefs.prior.freedom + self.number[-1] - stretches
        widths, scale = stretches * math.log(beliefs.width), stretches / 2 * math.log(2 * math.pi)
        found = self.alike[stretches] = odds, widths, scale, math.lgamma(freedom / 2), freedom / 2
        return found

    def weight(self, chosen: tuple[int, ...]) -> float:
        """Logarithm of how likely these change points and these readings are together, up to what all sets have in common."""
        stretches = len(chosen) + 1
        odds, widths, scale, gamma, half = self.alike.get(stretches) or self._terms(stretches)
        squares, logarithms = self._between(chosen)
        distances = sum(map(self.distance.__getitem__, chosen))
        return odds + distances - widths + scale - sum(logarithms) / 2 + gamma - half * math.log((self.start + squares) / 2)

    def levels(self, chosen: tuple[int, ...]) -> tuple[float, ...]:
        """Mean of each stretch."""
        return tuple(
            self.middle + (self.sums[right] - self.sums[left]) / (self.number[right] - self.number[left])
            for left, right in pairwise(self._cuts(chosen))
        )

    def criterion(self, chosen: tuple[int, ...]) -> float:
        """The Bayesian information criterion of these change points: each has a place and a level (Schwarz, Estimating the dimension of a
        model, 1978).
        """
        return _criterion(self.start + self._squares(chosen), self.beliefs.prior.freedom + self.number[-1], self.size, 2 * len(chosen) + 1)

    def noise(self, chosen: tuple[int, ...]) -> float:
        """The standard deviation of one reading around its level, the prior's weight with it."""
        freedom = self.beliefs.prior.freedom + self.number[-1] - len(chosen) - 1
        return math.sqrt((self.start + self._squares(chosen)) / max(freedom, 1.0))


def _criterion(squares: float, freedom: float, size: int, parameters: int) -> float:
    return freedom * math.log(squares / freedom) + parameters * math.log(size)


class Trend(Struct, frozen=True, kw_only=True):
    """A straight line through all readings: its numbers at the first and the last candidate.

    `evidence`: by how much its criterion is better than that of the best set of change points, none among them. `noise`: the standard
    deviation of a reading around it.
    """

    first: float
    last: float
    noise: float
    evidence: float


def trend(found: Sequence[Readings], count: int, beliefs: Beliefs, steps: Sequence[tuple[int, ...]]) -> Trend:
    """The line of least squares through readings of three candidates or more, held against none, one, and each of `steps`."""
    model = _Weights(found, count, beliefs)
    places = [float(one.place) for one in found for _ in range(one.count)]
    means = [one.mean for one in found for _ in range(one.count)]
    slope, start = linear_regression(places, means)
    squares = model.start + model.within + math.fsum(one.count * (one.mean - start - slope * one.place) ** 2 for one in found)
    freedom = beliefs.prior.freedom + model.number[-1]
    line = _criterion(squares, freedom, model.size, 2)
    others = {(), *((gap,) for gap in range(len(found) - 1)), *steps}
    evidence = min(map(model.criterion, others)) - line
    return Trend(first=start, last=start + slope * (count - 1), noise=math.sqrt(squares / (freedom - 2)), evidence=evidence)


def _sum(logarithms: Sequence[float]) -> float:
    """Logarithm of a sum, from the logarithms of its terms."""
    top = max(logarithms)
    return top + math.log(math.fsum(math.exp(one - top) for one in logarithms))
