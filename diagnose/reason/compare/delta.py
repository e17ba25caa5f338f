"""The reconciled delta: the median step of both runs by exclusive category.

Deltas of the categories add up to the delta of the step, to the nanosecond and without a residual.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from diagnose.document.comparison import Category, OverlapChange, Part, StepDelta
from diagnose.document.device import WHY, Communication, StepSplit
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.comparison import NoiseLimits
from diagnose.model.vocabulary import COMM_KINDS, CommKind
from diagnose.reason.compare.metrics import by_category, cells
from diagnose.reason.compare.noise import PLAIN, Design, differs, intervals

_Key = TypeVar("_Key", bound=Hashable)
_Exchange = tuple[CommKind, str]


@dataclass(frozen=True, kw_only=True)
class Middle:
    """The median step as ns by (category, cause), and the indices of the steps that it is made of."""

    total_ns: int
    steps: tuple[int, ...]
    cells: Mapping[tuple[str, str], int]


def middle(steps: Sequence[StepSplit], scale: Fraction = Fraction(1)) -> Middle:
    """The step in the middle by length (or the mean of two) times `scale`; cells are rounded so that they add up to the whole."""
    ordered = sorted(steps, key=lambda step: (step.window_ns, step.index))
    half = len(ordered) // 2
    chosen = ordered[half : half + 1] if len(ordered) % 2 else ordered[half - 1 : half + 1]
    summed: dict[tuple[str, str], int] = {}
    for step in chosen:
        for key, ns in cells(step).items():
            summed[key] = summed.get(key, 0) + ns
    shared = portioned(summed, scale / len(chosen))
    return Middle(total_ns=sum(shared.values()), steps=tuple(sorted(step.index for step in chosen)), cells=shared)


def portioned(parts: Mapping[_Key, int], factor: Fraction) -> dict[_Key, int]:
    """Each part times `factor` in whole numbers that add up to the sum times `factor`, rounded down, by largest remainder."""
    exact = {key: value * factor for key, value in parts.items()}
    found = {key: value.numerator // value.denominator for key, value in exact.items()}
    total = sum(parts.values()) * factor
    left = total.numerator // total.denominator - sum(found.values())
    for key in sorted(found, key=lambda one: found[one] - exact[one])[:left]:
        found[key] += 1
    return found


def step_delta(
    base: Sequence[StepSplit], new: Sequence[StepSplit], scale: Fraction = Fraction(1), design: Design = PLAIN, *, limits: NoiseLimits
) -> StepDelta | None:
    """The median step's delta by category, largest first; None without split. `scale`: of the new times; `design`: how steps correspond."""
    if not base or not new:
        return None
    first, second = middle(base), middle(new, scale)
    least = limits.category_share.value * first.total_ns
    here, there = [by_category(step) for step in base], [by_category(step) for step in new]
    names = sorted({name for step in (*here, *there) for name in step})
    rows_here = [[float(step.get(name, 0)) for step in here] for name in names]
    rows_there = [[float(step.get(name, 0) * scale) for step in there] for name in names]
    several = min(len(base), len(new)) > 1
    bounds = intervals(rows_here, rows_there, design, limits=limits) if several else [None] * len(names)
    beyond_noise = [
        differs(mine, yours, bound, least, design, limits=limits) for mine, yours, bound in zip(rows_here, rows_there, bounds, strict=True)
    ]
    known = {category for category, _ in (*first.cells, *second.cells)}
    found = [
        _category(name, first, second, bound, certain=certain, least=least)
        for name, bound, certain in zip(names, bounds, beyond_noise, strict=True)
        if name in known
    ]
    return StepDelta(
        base_ns=first.total_ns,
        new_ns=second.total_ns,
        delta_ns=second.total_ns - first.total_ns,
        base_steps=first.steps,
        new_steps=second.steps,
        categories=tuple(sorted(found, key=lambda row: (-abs(row.delta_ns), -row.base_ns, row.category))),
    )


def _category(name: str, first: Middle, second: Middle, bound: tuple[float, float] | None, *, certain: bool, least: float) -> Category:
    """One category in the median step; `bound`: the interval of its difference over all steps, `certain`: that it is more than noise."""
    here, there = _total(first, name), _total(second, name)
    # why compute was absent inside it, in the order of the vocabulary; none of compute
    causes = [(why, first.cells.get((name, why), 0), second.cells.get((name, why), 0)) for why in WHY]
    return Category(
        category=name,
        base_ns=here,
        new_ns=there,
        delta_ns=there - here,
        moved=certain and abs(there - here) >= least,
        low=None if bound is None else round(bound[0]),
        high=None if bound is None else round(bound[1]),
        parts=tuple(Part(why=why, base_ns=old, new_ns=now, delta_ns=now - old) for why, old, now in causes if old or now),
    )


def _total(step: Middle, name: str) -> int:
    return sum(ns for (category, _), ns in step.cells.items() if category == name)


# --- overlap gained and lost: transport by kind and backend, how much of it ran beside compute ------------------------


def overlap(
    base: Diagnosis, new: Diagnosis, places: tuple[tuple[int, int], tuple[int, int]], scale: Fraction = Fraction(1)
) -> tuple[OverlapChange, ...]:
    """The exchanges whose time or overlap changed, most exposed change first; nought on a side that does not run it."""
    here, there = _exchanges(base, places[0]), _exchanges(new, places[1])
    keys = sorted({*here, *there}, key=lambda key: (COMM_KINDS.index(key[0]), key[1]))
    found = [_overlap_change(key, here.get(key), there.get(key), scale) for key in keys]
    changed = [row for row in found if (row.base_busy_ns, row.base_exposed_ns) != (row.new_busy_ns, row.new_exposed_ns)]
    return tuple(sorted(changed, key=lambda row: -abs(row.new_exposed_ns - row.base_exposed_ns)))


def _exchanges(document: Diagnosis, place: tuple[int, int]) -> dict[_Exchange, Communication]:
    return {(row.kind, row.backend): row for row in document.communication if (row.rank, row.device) == place}


def _overlap_change(key: _Exchange, here: Communication | None, there: Communication | None, scale: Fraction) -> OverlapChange:
    busy, exposed = (0, 0) if there is None else (round(there.busy_ns * scale), round(there.exposed_ns * scale))
    hidden = here.overlap if here is not None else None
    return OverlapChange(
        kind=key[0],
        backend=key[1],
        base_busy_ns=here.busy_ns if here is not None else 0,
        new_busy_ns=busy,
        base_exposed_ns=here.exposed_ns if here is not None else 0,
        new_exposed_ns=exposed,
        base_overlap=hidden,
        new_overlap=there.overlap if there is not None else None,
        lost_ns=None if hidden is None or there is None else max(0, round(exposed - busy * (1 - hidden))),
    )
