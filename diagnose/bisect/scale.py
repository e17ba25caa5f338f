"""The scale on which values of a metric are compared: logarithms where that makes noise alike on all levels, else shares of the larger end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WIDEST = 20.0  # ends further apart than this factor are compared by shares: a level near nought has little absolute noise


@dataclass(frozen=True)
class Scale:
    """`unit` is the value that counts as one (shares), or the least that is told from nought (logarithms)."""

    logarithmic: bool
    unit: float

    def to(self, value: float) -> float:
        """A value of the metric on the scale."""
        return math.log(max(value, self.unit)) if self.logarithmic else value / self.unit

    def back(self, number: float) -> float:
        """The value that a number of the scale stands for."""
        return math.exp(number) if self.logarithmic else number * self.unit

    def relative(self, share: float, at: float) -> float:
        """How far a relative change by `share` goes on the scale, from the number `at`."""
        return math.log1p(share) if self.logarithmic else share * abs(at)


def scale_of(values: Sequence[float]) -> Scale:
    """The scale for ends of these values: of times and counts a logarithm, unless one is nought or far from the other."""
    low, high = min(values), max(values)
    if low > 0 and high / low <= _WIDEST:
        return Scale(logarithmic=True, unit=low / 1e6)
    return Scale(logarithmic=False, unit=max(abs(low), abs(high)) or 1.0)
