"""A metric's samples from a document: one value per step where the document holds them, else one per capture.

Metrics are `step_time`, the categories of a comparison (`transport`, `launch_starved`, `compute:attention` …), `bucket:NAME` (time in which
the bucket ran), `blocking:BUCKET` (compute waited for it), `kernels` (launches per step), and every number among the facts. What a document
lacks is an error, never nought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.comparison import Window
from diagnose.document.device import StepBudget, StepSplit, of_device, on_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import DiagnoseError
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.model.vocabulary import NO_KERNELS
from diagnose.reason.context import window_of

STEP_TIME = "step_time"
KERNELS = "kernels"
COMPUTE = "compute:"
BUCKET = "bucket:"
BLOCKING = "blocking:"
NO_STEPS = "capture"  # the anchor of a document that was not cut into steps
_ENDS_WITH_LAST = ("range ", "step range ", "optimizer kernels")  # anchors whose last step ends with its last operation
_ENOUGH = 3  # steps from which on the last one is left out where it is short
_AGAIN = "Diagnose the trace again with this version of the program."
_NOTHING = "Nothing was compared."
_IDLE = "idle"
CATEGORIES = ("transport", "packing", "copy", "launch_starved", "host_sync", "dependency_stalled", _IDLE)
_Step = TypeVar("_Step", StepBudget, StepSplit)
_OF_CAUSE: Mapping[str, str] = {
    "allocator": "launch_starved",
    "host_work": "launch_starved",
    "host_sync": "host_sync",
    "dependency_stalled": "dependency_stalled",
}


class MetricError(DiagnoseError):
    """A metric that there is not, or that a document does not hold."""

    exit_code = 2


class UnmeasuredError(MetricError):
    """A metric that there is, but that this document does not hold."""

    exit_code = 3


class Samples(Struct, frozen=True, kw_only=True):
    """Values of one metric in `unit` (ns, share, count, bytes).

    `per_step`: one value for each step whose end is known; otherwise one for the capture (per step, median). `steps`: the indices of the
    steps, where the values are theirs. `window`: what times are of.
    """

    metric: str
    unit: str
    values: tuple[float, ...]
    per_step: bool
    larger_is_worse: bool = True
    steps: tuple[int, ...] = ()
    window: Window = "step"


def side_label(labels: Sequence[str]) -> str:
    """What a side is called: its run, or the first of several and how many there are besides."""
    return labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"


def check_metric(metric: str, rules: ComparisonRules, *, effect: str = _NOTHING) -> None:
    """Refuse a metric that there is not, before anything is measured for it; whether a document holds it, that alone tells.

    Raises MetricError.
    """
    buckets = rules.words.buckets
    if metric in {STEP_TIME, KERNELS, *CATEGORIES} or _blocked_for(metric, buckets):
        return
    prefix = next((one for one in (COMPUTE, BUCKET) if metric.startswith(one)), None)
    if prefix is not None:
        _check_bucket(metric, prefix, buckets, effect)
    elif metric not in rules.facts:
        raise _unknown(metric, rules.facts, effect)
    elif rules.facts[metric] in ("text", "bool"):
        raise _no_number(metric, effect)


def _blocked_for(metric: str, buckets: Buckets) -> bool:
    """Whether it asks for the time that compute waits for a bucket."""
    return metric.startswith((BLOCKING, "blocking_")) and metric.removeprefix("blocking").lstrip(":_") in buckets


def samples(document: Diagnosis, metric: str, place: tuple[int, int] | None = None, *, rules: ComparisonRules) -> Samples:
    """The samples of `metric` on the device at `place` (rank, device), by default the one that the verdict speaks of.

    Raises MetricError for a metric that there is not, and UnmeasuredError (one of them) for one that this document does not hold.
    """
    found = _samples(document, metric, place or place_of(document), rules.words.buckets)
    return replace(found, larger_is_worse=metric not in rules.limits.better_when_larger, window=window_of(document))


def _samples(document: Diagnosis, metric: str, where: tuple[int, int], buckets: Buckets) -> Samples:
    if metric == STEP_TIME:
        return step_times(document, where)
    if metric in CATEGORIES or metric.startswith(COMPUTE):
        return _category(document, metric, where, buckets)
    if metric.startswith(BUCKET):
        return _bucket(document, metric, where, buckets)
    if _blocked_for(metric, buckets):
        return _blocking(document, metric, where)
    if metric == KERNELS:
        return _kernels(document, where)
    return _fact(document, metric, where)


def step_times(document: Diagnosis, place: tuple[int, int]) -> Samples:
    """The lengths of the steps of one device, in ns. Raises UnmeasuredError."""
    return _per_step(document, STEP_TIME, [float(step.window_ns) for step in steps_of(document, place)], place)


def place_of(document: Diagnosis) -> tuple[int, int]:
    """(rank, device) that the verdict speaks of; of a document that does not say so, the first."""
    if document.verdict.rank is not None:
        return document.verdict.rank, document.verdict.device or 0
    return (document.budget[0].rank, document.budget[0].device) if document.budget else (0, 0)


def steps_of(document: Diagnosis, place: tuple[int, int]) -> tuple[StepBudget, ...]:
    """The budgets of the steps of one device whose ends are known. Raises UnmeasuredError."""
    found = of_device(document.budget, place)
    if found is None or not found.per_step:
        raise UnmeasuredError(
            f"The document holds no steps of rank {place[0]}, device {place[1]}.",
            effect="Nothing was compared.",
            next_step=f"It holds {_shown(f'rank {one.rank} device {one.device}' for one in document.budget)}.",
        )
    return with_ends(document, found.per_step)


def split_of(document: Diagnosis, place: tuple[int, int]) -> tuple[StepSplit, ...]:
    """The split steps of one device whose ends are known; empty in a document that does not hold them."""
    return with_ends(document, tuple(step for split in on_device(document.split, place) for step in split.steps))


def with_ends(document: Diagnosis, steps: tuple[_Step, ...]) -> tuple[_Step, ...]:
    """The steps of a device without the last, where that ends with its last operation and two others are left.

    The others end with the beginning of the next (`diagnose.measure.steps`): it is shorter by what lies between, and where its end is
    nobody knows.
    """
    return steps[:-1] if len(steps) >= _ENOUGH and last_is_short(document) else steps


def cells(step: StepSplit) -> dict[tuple[str, str], int]:
    """One step as ns by (category, why compute was absent; "" of compute): each cell of the split once, so they add up to the window."""
    found: dict[tuple[str, str], int] = {(f"{COMPUTE}{bucket}", ""): ns for bucket, ns in step.compute.items()}
    for part in step.absent:
        category = part.ran if part.ran != "nothing" else _OF_CAUSE.get(part.why, _IDLE)
        key = (category, part.why)
        found[key] = found.get(key, 0) + part.ns
    return found


def by_category(step: StepSplit) -> dict[str, int]:
    """One step as ns by category."""
    found: dict[str, int] = {}
    for (category, _), ns in cells(step).items():
        found[category] = found.get(category, 0) + ns
    return found


def last_is_short(document: Diagnosis) -> bool:
    """Whether the last step ends otherwise than the others: not where steps recur, nor where a later one was dropped."""
    kept = [window.index for window in document.steps.windows]
    later = any(one.index > max(kept, default=-1) for one in document.steps.dropped)
    return document.steps.anchor.startswith(_ENDS_WITH_LAST) and not later


def _per_step(document: Diagnosis, metric: str, values: list[float], place: tuple[int, int]) -> Samples:
    return Samples(
        metric=metric,
        unit="ns",
        values=tuple(values),
        per_step=True,
        steps=tuple(step.index for step in steps_of(document, place) if step.index is not None),
    )


def _single(metric: str, value: float, unit: str) -> Samples:
    return Samples(metric=metric, unit=unit, values=(float(value),), per_step=False)


def _category(document: Diagnosis, metric: str, place: tuple[int, int], buckets: Buckets) -> Samples:
    if metric.startswith(COMPUTE):
        _check_bucket(metric, COMPUTE, buckets)
    steps = split_of(document, place)
    if not steps:
        steps_of(document, place)
        raise _unmeasured(
            metric, "was made by a version of the program that did not split steps", f"{_AGAIN} Or use {STEP_TIME} or a fact."
        )
    return _per_step(document, metric, [float(by_category(step).get(metric, 0)) for step in steps], place)


def _bucket(document: Diagnosis, metric: str, place: tuple[int, int], buckets: Buckets) -> Samples:
    _check_bucket(metric, BUCKET, buckets)
    steps_of(document, place)
    name = metric.removeprefix(BUCKET)
    rows = [row for row in on_device(document.buckets, place) if row.bucket == name]
    return _single(metric, rows[0].busy_ns if rows else 0, "ns")


def _blocking(document: Diagnosis, metric: str, place: tuple[int, int]) -> Samples:
    name = metric.removeprefix("blocking").lstrip(":_")
    steps_of(document, place)
    known = document.facts.get("blocking_ns")
    if known is None or known.value is None:
        raise _unmeasured(metric, "does not tell what compute waited for", "Capture the launches too (CUDA API calls), or use bucket:NAME.")
    return _single(metric, sum(row.blocking_ns for row in on_device(document.blocking, place) if row.bucket == name), "ns")


def _kernels(document: Diagnosis, place: tuple[int, int]) -> Samples:
    steps_of(document, place)
    fact = document.facts.get("kernels_per_step")
    if place == place_of(document) and fact is not None and isinstance(fact.value, int | float):
        return _single(KERNELS, fact.value, "count")
    rows = [row.kernels for row in on_device(document.buckets, place) if row.bucket not in NO_KERNELS]
    return _single(KERNELS, sum(rows), "count")


def _fact(document: Diagnosis, metric: str, place: tuple[int, int]) -> Samples:
    """A fact; where the budget of each step holds the same figure, one value per step."""
    if metric not in document.facts:
        told = [name for name, fact in document.facts.items() if isinstance(fact.value, int | float)]
        raise _unknown(metric, told, _NOTHING)
    fact = document.facts[metric]
    if fact.value is None:
        raise _unmeasured(
            metric, "does not hold it (not measured)", f"`diagnose explain {metric}` says what it needs. {STEP_TIME} is always there."
        )
    if isinstance(fact.value, bool | str):
        raise _no_number(metric, _NOTHING)
    if metric in StepBudget.__struct_fields__:
        return _per_step(document, metric, [float(getattr(step, metric)) for step in steps_of(document, place)], place)
    if place != place_of(document):
        raise _unmeasured(
            metric, f"tells it of rank {place_of(document)[0]} only", f"Use {STEP_TIME} or a category, which every captured rank has."
        )
    return _single(metric, fact.value, fact.unit)


def _unknown(metric: str, facts: Iterable[str], effect: str) -> MetricError:
    """`facts`: those that may be meant."""
    return MetricError(
        f"There is no metric {metric!r}.",
        effect=effect,
        next_step=(
            f"Use {STEP_TIME}, {KERNELS}, {_shown(CATEGORIES)}, {COMPUTE}BUCKET, {BUCKET}BUCKET, {BLOCKING}BUCKET, or a fact "
            f"(`diagnose explain facts`){_near(facts, metric)}."
        ),
    )


def _no_number(metric: str, effect: str) -> MetricError:
    return MetricError(f"{metric} is no number.", effect=effect, next_step=f"Use {STEP_TIME}, a category, or a fact that is a number.")


def _check_bucket(metric: str, prefix: str, buckets: Buckets, effect: str = _NOTHING) -> None:
    name = metric.removeprefix(prefix)
    if name not in buckets:
        raise MetricError(f"There is no bucket {name!r}.", effect=effect, next_step=f"Use {prefix} with one of {_shown(buckets)}.")


def _unmeasured(metric: str, why: str, next_step: str) -> UnmeasuredError:
    return UnmeasuredError(f"The document {why}, so {metric} is not known.", effect=_NOTHING, next_step=next_step)


def _near(facts: Iterable[str], metric: str) -> str:
    """Those whose names share a word of some length with what was asked for."""
    words = [word for word in metric.replace(":", "_").split("_") if len(word) > 3]
    near = [name for name in facts if any(word in name for word in words)]
    return f", for example {_shown(near[:5])}" if near else ""


def _shown(names: Iterable[str]) -> str:
    return ", ".join(names)
