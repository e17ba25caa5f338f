"""The reconciled delta: the median step of both runs by exclusive category.

Deltas of the categories add up to the delta of the step, to the nanosecond and without a residual.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from msgspec import Struct

from diagnose.document.comparison import Category, CategoryState, OverlapChange, Part, StepDelta
from diagnose.document.device import WHY, Communication, StepSplit, on_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.comparison import NoiseLimits
from diagnose.model.vocabulary import COMM_KINDS, CommKind
from diagnose.reason.compare.metrics import by_category, cells
from diagnose.reason.compare.noise import spread_interval

_Key = TypeVar("_Key", bound=Hashable)
_Exchange = tuple[CommKind, str]


class Middle(Struct, frozen=True, kw_only=True):
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


class SplitRun(Struct, frozen=True, kw_only=True):
    """One run's split steps; `scale`: what its times are multiplied by."""

    steps: Sequence[StepSplit]
    scale: Fraction = Fraction(1)


def step_delta(
    base: Sequence[SplitRun], new: Sequence[SplitRun], *, limits: NoiseLimits, run_noise: float | None = None
) -> StepDelta | None:
    """The median step's delta by category, largest first, of several runs the mean of their median steps; None where one holds no split."""
    if not base or not new or not all(run.steps for run in (*base, *new)):
        return None
    here, there = [middle(run.steps, run.scale) for run in base], [middle(run.steps, run.scale) for run in new]
    first, second = together(here), together(there)
    least = limits.category_share.value * first.total_ns
    steps = [[by_category(step) for step in run.steps] for run in (base[0], new[0])]
    names = sorted({category for category, _ in (*first.cells, *second.cells)})
    single = len(base) == len(new) == 1 and min(map(len, steps)) == 1
    found = []
    for name in names:
        values = [[float(step.get(name, 0) * run.scale) for step in own] for own, run in zip(steps, (base[0], new[0]), strict=True)]
        bounds = spread_interval(
            [_total(run, name) for run in here],
            [_total(run, name) for run in there],
            (values[0], values[1]),
            middles=(len(here[0].steps), len(there[0].steps)),
            limits=limits,
            run_noise=run_noise,
        )
        found.append(_category(name, first, second, bounds, least, single=single))
    return StepDelta(
        base_ns=first.total_ns,
        new_ns=second.total_ns,
        delta_ns=second.total_ns - first.total_ns,
        base_steps=first.steps,
        new_steps=second.steps,
        categories=tuple(sorted(found, key=lambda row: (-abs(row.delta_ns), -row.base_ns, row.category))),
    )


def together(runs: Sequence[Middle]) -> Middle:
    """The mean of several runs' median steps, in whole ns that add up; it is made of no single steps then."""
    if len(runs) == 1:
        return runs[0]
    summed: dict[tuple[str, str], int] = {}
    for run in runs:
        for key, ns in run.cells.items():
            summed[key] = summed.get(key, 0) + ns
    shared = portioned(summed, Fraction(1, len(runs)))
    return Middle(total_ns=sum(shared.values()), steps=(), cells=shared)


def _category(name: str, first: Middle, second: Middle, bounds: tuple[float, float], least: float, *, single: bool) -> Category:
    """One category in the median step; `bounds`: the interval of its difference, which of a `single` step is assumed and not told; `least`.

    What is small of a step.
    """
    here, there = _total(first, name), _total(second, name)
    # why compute was absent inside it, in the order of the vocabulary; none of compute
    causes = [(why, first.cells.get((name, why), 0), second.cells.get((name, why), 0)) for why in WHY]
    low, high = (limit(round(bound), there - here) for limit, bound in zip((min, max), bounds, strict=True))
    state = _state(there - here, (low, high), least)  # by what is shown: a bound of less than half a nanosecond is nought
    return Category(
        category=name,
        base_ns=here,
        new_ns=there,
        delta_ns=there - here,
        moved=state == "moved",
        state=state,
        low=None if single else low,
        high=None if single else high,
        parts=tuple(Part(why=why, base_ns=old, new_ns=now, delta_ns=now - old) for why, old, now in causes if old or now),
    )


def _state(delta: int, bounds: tuple[int, int], least: float) -> CategoryState:
    """Within noise is what has an interval that holds nought."""
    if not delta:
        return "same"
    if bounds[0] <= 0 <= bounds[1]:
        return "within noise"
    return "moved" if abs(delta) >= least else "small"


def _total(step: Middle, name: str) -> int:
    return sum(ns for (category, _), ns in step.cells.items() if category == name)


# --- overlap gained and lost: transport by kind and backend, how much of it ran beside other work ---------------------


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
    return {(row.kind, row.backend): row for row in on_device(document.communication, place)}


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
        base_count=here.count if here is not None else 0,
        new_count=there.count if there is not None else 0,
    )
