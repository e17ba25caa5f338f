"""Which instance of one rank's sequence of exchanges is the same as which of another's.

Members of a group run its exchanges in the same order, but captures begin and end at different places. Exchanges end together, whoever came
late: at the right shift of the two sequences the differences of ends are all alike, at a wrong one they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SAMPLES = 96  # differences looked at for one shift
NEAR = 12  # shifts tried on either side of a likely one
FARTHEST = 1500  # shifts tried at most where no likely one fits
FIRM_NS = 150_000  # scatter of the differences (p90 − p10) below which a shift is right beyond doubt; this project's choice
LOOSE_NS = 2_000_000  # scatter above which no shift is believed; this project's choice
FEW = 4  # instances that two sequences must have in common, where the shorter has as many
CLOSE_NS = 10_000  # two shifts whose scatters differ by less are told apart by what is likely


@dataclass(frozen=True, kw_only=True)
class Course:
    """One rank's instances in one group, in order.

    Ends by its wall clock (or its own zero), sizes (None where unknown), step indices (None outside steps).
    """

    ends: Sequence[int]
    sizes: Sequence[int | None]
    steps: Sequence[int | None]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """`other[i]` is the same instance as `reference[i + shift]`.

    `scatter`: p90 − p10 of the differences of ends, `offset` their median; `n` differences were possible.
    """

    shift: int
    scatter: int
    n: int
    offset: int = 0


def fit(reference: Course, other: Course, *, limit: int = LOOSE_NS, thorough: bool = True) -> Fit | None:
    """The shift at which both sequences end together; None where there is none within `limit` (ns of scatter).

    Not `thorough`: only likely shifts are tried.
    """
    if not reference.ends or not other.ends:
        return None
    likely = list(dict.fromkeys(_likely(reference, other)))
    best: Fit | None = None
    for shift in likely:
        best = _better(best, _tried(reference, other, shift))
        if best is not None and best.scatter <= FIRM_NS // 4 and best.n >= 4:
            return best
    near = (shift + step for shift in likely for step in range(-NEAR, NEAR + 1))
    for shift in dict.fromkeys(near):
        best = _better(best, _tried(reference, other, shift))
    if thorough and (best is None or best.scatter > FIRM_NS):
        reach = min(FARTHEST, max(len(reference.ends), len(other.ends)))
        for shift in range(-reach, reach + 1):
            best = _better(best, _tried(reference, other, shift))
    return best if best is not None and best.scatter <= limit else None


def _likely(reference: Course, other: Course) -> Iterable[int]:
    """Shifts worth trying first: the same steps side by side, the same ordinals, the nearest end by the clock."""
    firsts: dict[int, int] = {}
    for place, step in enumerate(reference.steps):
        if step is not None:
            firsts.setdefault(step, place)
    seen = False
    for place, step in enumerate(other.steps):
        if step is not None and step in firsts and (place == 0 or other.steps[place - 1] != step):
            yield firsts[step] - place
            seen = True
            break
    yield 0
    if not seen or len(reference.ends) != len(other.ends):
        nearest = min(range(len(reference.ends)), key=lambda place: abs(reference.ends[place] - other.ends[0]))
        yield nearest
    yield len(reference.ends) - len(other.ends)


def _tried(reference: Course, other: Course, shift: int) -> Fit | None:
    """How well a shift fits; None where too little of the two overlaps, or sizes contradict it."""
    first, last = max(0, -shift), min(len(other.ends), len(reference.ends) - shift)
    overlap = last - first
    shorter = min(len(reference.ends), len(other.ends))
    if overlap < max(1, shorter // 3, min(shorter, FEW)):
        return None
    places = range(first, last) if overlap <= SAMPLES else [first + overlap * number // SAMPLES for number in range(SAMPLES)]
    differences = []
    for place in places:
        mine, theirs = other.sizes[place], reference.sizes[place + shift]
        if mine is not None and theirs is not None and mine != theirs:
            return None
        differences.append(other.ends[place] - reference.ends[place + shift])
    differences.sort()
    low, high = differences[len(differences) // 10], differences[len(differences) - 1 - len(differences) // 10]
    return Fit(shift=shift, scatter=high - low, n=overlap, offset=differences[len(differences) // 2])


def _better(best: Fit | None, new: Fit | None) -> Fit | None:
    """The one that fits better; of two that fit alike the one with more in common, then the one tried first."""
    if best is None or new is None:
        return best if new is None else new
    if abs(new.scatter - best.scatter) <= CLOSE_NS:
        return new if new.n > best.n + 1 else best
    return new if new.scatter < best.scatter else best
