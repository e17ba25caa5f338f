"""Kinds of steps: those that differ in work or duration, what tells them apart, and what made the long ones long.

Evaluation, checkpoints, logging, another sequence length, a stall every few steps: a figure over all steps mixes them, a median hides the
rarer ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from diagnose.document.device import StepClass
from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.host import step_marks
from diagnose.measure.phases import USER_KINDS
from diagnose.measure.waits.stalls import HOST_CAUSES, Stalls
from diagnose.model.intervals import lasting, merge, overlaps, total_length
from diagnose.model.statistics import mean_of
from diagnose.model.trace import Trace

# This project's own choices.
LONGER = 1.15  # durations in order that differ by more lie in two classes
MORE_WORK = 1.1  # the same for numbers of compute operations
MIN_STEPS = 3  # below that there is nothing to tell apart
MOST = 0.8  # of ranges that enclose about as much (this share of the most) of what made steps long, the shortest is named
# What a step's time is made of, by the budget's columns; `compute_busy_ns` and the rest add up to the window.
PARTS: Mapping[str, str] = {
    "compute_busy_ns": "computing",
    "blocking_transport_ns": "waiting for communication",
    "blocking_packing_ns": "waiting for permute/unpermute",
    "blocking_copy_ns": "waiting for copies",
    "allocator_ns": "the allocator",
    "host_sync_ns": "CPU synchronisation",
    "first_use_ns": "first uses",
    "host_work_ns": "CPU work between launches",
    "dependency_stalled_ns": "waiting without a known cause",
}
_MARKS = {"thread": pl.Int64, "start": pl.Int64, "end": pl.Int64, "text_id": pl.Int32}


class LongSteps(Struct, frozen=True, kw_only=True):
    """The steps of classes that take longer than the largest: how many, by how much each (mean), and per step over all; whether they run
    more operations of compute; by what, and inside which range (a data loader's, a checkpoint's).
    """

    n: int
    each_ns: int
    per_step_ns: int
    more_work: bool
    cause: str
    range: str | None


class Classes(Struct, frozen=True, kw_only=True):
    """The classes of one device's steps, largest first, and what is said of the long ones; None where no class is longer."""

    classes: tuple[StepClass, ...]
    long: LongSteps | None


def user_ranges(trace: Trace, rank: int, rules: HostRules) -> pl.DataFrame:
    """The ranges that the program itself marked, but for those that are steps: thread, start, end, text_id."""
    own = (pl.col("rank") == rank) & pl.col("kind").is_in(USER_KINDS) & (pl.col("end") > pl.col("start"))
    return trace.ranges.filter(own & ~pl.col("text_id").is_in(step_marks(trace, rules).implode())).select(list(_MARKS))


def step_classes(
    per_step: pl.DataFrame, counts: pl.DataFrame, found: Stalls, inside: pl.DataFrame, marks: pl.DataFrame, names: pl.DataFrame
) -> Classes:
    """Tell the steps of one device apart.

    `per_step`: the budget of each step; `counts`: compute_kernels of each; `inside`: the operations in the steps, with index; `marks`: as
    `user_ranges`; `names`: of the trace.
    """
    launched = inside.filter(pl.col("call_start").is_not_null()).select("index", "call_start", lasting.alias("ns"))
    steps = per_step.select("index", "window_ns", *PARTS).with_columns(
        counts["compute_kernels"].alias("kernels"), (pl.col("host_work_ns") - pl.col("first_use_ns")).alias("host_work_ns")
    )
    parts = _alike(steps)
    main, others = parts[0], parts[1:]
    records = [StepClass(n=main.height, duration_ns=_mean(main, "window_ns"), differs_by=None, steps=tuple(main["index"].to_list()))]
    longer = [part for part in others if _mean(part, "window_ns") > _mean(main, "window_ns")]
    for part in others:
        where = _enclosing(part, main, found, launched, marks, names) if any(part is one for one in longer) else None
        records.append(
            StepClass(
                n=part.height,
                duration_ns=_mean(part, "window_ns"),
                differs_by=_difference(part, main, where),
                steps=tuple(part["index"].to_list()),
            )
        )
    if not longer:
        return Classes(classes=tuple(records), long=None)
    together = pl.concat(longer)
    excess = int(together["window_ns"].sum()) - together.height * _mean(main, "window_ns")
    return Classes(
        classes=tuple(records),
        long=LongSteps(
            n=together.height,
            each_ns=excess // together.height,
            per_step_ns=excess // steps.height,
            more_work=_mean(together, "kernels") > MORE_WORK * _mean(main, "kernels"),
            cause=_difference(together, main, None),
            range=_enclosing(together, main, found, launched, marks, names),
        ),
    )


def _mean(part: pl.DataFrame, column: str) -> int:
    return int(part[column].sum()) // part.height


def _alike(steps: pl.DataFrame) -> list[pl.DataFrame]:
    """The steps by class, the largest class first (of equal ones the first in time); one class where hardly any two steps are alike."""
    if steps.height < MIN_STEPS:
        return [steps]
    keyed = steps.with_columns(_cluster(steps["window_ns"], LONGER).alias("_long"), _cluster(steps["kernels"], MORE_WORK).alias("_work"))
    parts = keyed.partition_by("_long", "_work", maintain_order=True)
    if len(parts) == 1 or 2 * len(parts) > steps.height + 1:
        return [steps]
    return sorted((part.drop("_long", "_work") for part in parts), key=lambda part: -part.height)


def _cluster(values: pl.Series, factor: float) -> pl.Series:
    """A number for each value; values in order that differ by less than `factor` share one."""
    ordered = values.unique().sort()
    numbers = (ordered > ordered.shift(1) * factor).fill_null(value=False).cum_sum()
    return numbers.gather(ordered.search_sorted(values))


def _difference(part: pl.DataFrame, main: pl.DataFrame, inside: str | None) -> str:
    """What tells a class from the largest one: its work, and the parts of the budget that make up most of the difference."""
    by = _mean(part, "window_ns") - _mean(main, "window_ns")
    own, usual = _mean(part, "kernels"), _mean(main, "kernels")
    work = f"{own} compute operations instead of {usual}" if max(own, usual) > MORE_WORK * min(own, usual) else "the same work"
    changes = {text: _mean(part, column) - _mean(main, column) for column, text in PARTS.items()}
    told = [(text, ns) for text, ns in sorted(changes.items(), key=lambda item: -abs(item[1])) if ns * by > 0 and abs(ns) * 5 >= abs(by)]
    parts = ", ".join(f"{text} {ns / 1e6:+.1f} ms" for text, ns in told[:3])
    where = f", most of it inside {inside!r}" if inside else ""
    return f"{by / 1e6:+.1f} ms with {work}{': ' + parts if parts else ''}{where}"


def _enclosing(
    part: pl.DataFrame, main: pl.DataFrame, found: Stalls, launched: pl.DataFrame, marks: pl.DataFrame, names: pl.DataFrame
) -> str | None:
    """The user's range inside which the host held compute up (or was held by what compute waited for), or launched more work, for longer
    than in the usual steps.

    Of ranges that enclose about as much the shortest says most; one outside of which less than a fifth of a usual step is launched is a
    step itself and says nothing. None where none encloses half of what the steps take longer. `launched`: the operations of the steps,
    index, call_start, ns.
    """
    pieces = found.pieces.filter(pl.col("cause").is_in(list(HOST_CAUSES)) | pl.col("through_host")).select("index", "start", "end")
    inside = [pl.col("index").is_in(one["index"].implode()) for one in (part, main)]
    waits, work = ([frame.filter(own) for own in inside] for frame in (pieces, launched))
    moments = pl.concat([*(one[name] for one in waits for name in ("start", "end")), *(one["call_start"] for one in work)])
    more = _mean(part, "window_ns") - _mean(main, "window_ns")
    if marks.is_empty() or more <= 0 or moments.is_empty():
        return None
    held = [merge(one) for one in waits]
    near = marks.filter((pl.col("start") < moments.max()) & (pl.col("end") > moments.min()))
    excess: list[tuple[float, float, str]] = []
    for (text_id,), own in near.group_by("text_id", maintain_order=True):
        covered = merge(own)
        began = [_launched_in(covered, one) for one in work]
        outside = began[0].filter(pl.col("inside") > 0).select((pl.col("ns") - pl.col("inside")).min()).item()
        if outside is not None and outside < (1 - MOST) * int(work[1]["ns"].sum()) / main.height:
            continue
        more_work = int(began[0]["n"].sum()) * main.height > MORE_WORK * int(began[1]["n"].sum()) * part.height
        took = [
            (_common(covered, gaps) + more_work * int(ran["inside"].sum())) / one.height
            for gaps, ran, one in zip(held, began, (part, main), strict=True)
        ]
        length = mean_of(own["end"] - own["start"])
        excess.append((took[0] - took[1], length, str(names["text"][text_id])))
    most = max((one[0] for one in excess), default=0.0)
    if most < more / 2:
        return None
    return min((one for one in excess if one[0] >= MOST * most), key=lambda one: (one[1], one[2]))[2]


def _launched_in(spans: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """index, ns: how long the operations of each step take (as a sum); inside, n: the same of those launched inside `spans`, and how many.

    `spans` are disjoint and sorted.
    """
    place = spans["start"].search_sorted(work["call_start"], side="right").cast(pl.Int64) - 1
    within = (place >= 0) & (work["call_start"] < spans["end"].gather(place.clip(0, None)))
    own = pl.col("ns").filter(pl.col("within"))
    return (
        work.with_columns(within.alias("within")).group_by("index").agg(pl.col("ns").sum(), own.sum().alias("inside"), own.len().alias("n"))
    )


def _common(first: pl.DataFrame, second: pl.DataFrame) -> int:
    """How long both ran (ns); each disjoint and sorted."""
    common = overlaps(first, second)
    return total_length(common)
