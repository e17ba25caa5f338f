"""Each step without overlap: which bucket computed, and where none did, what ran instead and why compute was absent.

Nothing is swept again: the compute part is a sum over the table of `budget.Concurrency`, the rest lays the pieces of `stalls.Stalls` over
the segments in which something else ran. So both agree with the budget to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from diagnose.document.device import StepBudget
from diagnose.document.steps import RAN, WHY, Absent, StepSplit, Why
from diagnose.measure.budget import OUTSIDE, Concurrency, is_role
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.intervals import overlaps

Ran, Cause = pl.Enum(RAN), pl.Enum(WHY)
# The host's causes as `StepBudget` sums them up; blocking goes by the role of what blocked.
OF_CAUSE: Mapping[str, Why] = MappingProxyType(
    {
        "allocator": "allocator",
        "host_sync": "host_sync",
        "gc": "host_work",
        "launch": "host_work",
        "python": "host_work",
        "dependency_stalled": "dependency_stalled",
    }
)
OF_ROLE: Mapping[str, Why] = MappingProxyType({"transport": "transport", "packing": "packing", "copy": "copy"})
CAUSES, ROLES = (*OF_CAUSE, "blocking"), ("compute", "transport", "packing", "copy")  # roles in the order of `device_work`
STALLED = pl.lit("dependency_stalled", dtype=Cause)


def split(found: Stalls, ran: Concurrency, work: pl.DataFrame, windows: pl.DataFrame, buckets: pl.Enum) -> tuple[StepSplit, ...]:
    """Every step of one device, each nanosecond counted once.

    `work` holds op (row number), start and role of all operations, `windows` index, start, end; `buckets`: their vocabulary, in order.
    """
    compute: dict[int, dict[str, int]] = {}
    for index, bucket, ns in compute_shares(ran, buckets).iter_rows():
        compute.setdefault(index, {})[bucket] = ns
    absent: dict[int, list[Absent]] = {}
    for index, what, why, ns in absent_cells(found, ran, work, windows).iter_rows():
        absent.setdefault(index, []).append(Absent(ran=what, why=why, ns=ns))
    return tuple(
        StepSplit(index=index, window_ns=end - start, compute=compute.get(index, {}), absent=tuple(absent.get(index, ())))
        for index, start, end in windows.select("index", "start", "end").iter_rows()
    )


def compute_shares(ran: Concurrency, buckets: pl.Enum) -> pl.DataFrame:
    """Time per step and bucket in which the bucket computed: index, bucket, ns; in order, without zeros.

    Where several compute at once each gets an equal share; nanoseconds that do not divide go to the first in the order of `buckets`, the
    vocabulary.
    """
    masks = {
        bucket: sum(one.mask for one in ran.classes if one.role == "compute" and one.bucket == bucket) for bucket in buckets.categories
    }
    used = [bucket for bucket, mask in masks.items() if mask]
    if not used:
        return pl.DataFrame(schema={"index": pl.Int64, "bucket": buckets, "ns": pl.Int64})
    inside = ran.frame.filter(pl.col("window") != OUTSIDE)
    sets = inside.select("window", "ns", *((pl.col("mask") & masks[bucket] != 0).alias(bucket) for bucket in used))
    summed = sets.filter(pl.any_horizontal(used)).group_by("window", *used).agg(pl.col("ns").sum())
    several = pl.sum_horizontal(pl.col(used).cast(pl.Int64))
    before = [pl.sum_horizontal(pl.lit(0, dtype=pl.Int64), *(pl.col(name).cast(pl.Int64) for name in used[:at])) for at in range(len(used))]
    shares = [
        pl.when(bucket).then(pl.col("ns") // several + (earlier < pl.col("ns") % several).cast(pl.Int64)).otherwise(0).alias(bucket)
        for bucket, earlier in zip(used, before, strict=True)
    ]
    return (
        summed.select("window", *shares)
        .group_by("window")
        .agg(pl.col(used).sum())
        .unpivot(used, index="window", variable_name="bucket", value_name="ns")
        .filter(pl.col("ns") > 0)
        .select(pl.col("window").cast(pl.Int64).alias("index"), pl.col("bucket").cast(buckets), "ns")
        .sort("index", "bucket")
    )


def absent_cells(found: Stalls, ran: Concurrency, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Time per step without compute by what ran and why compute was absent: index, ran, why, ns; in order, without zeros."""
    pieces = _numbered(found.pieces, work, windows)
    beside = _beside(ran)
    common = overlaps(pieces, beside)
    own = pieces.select("index", "code").select(pl.all().gather(common["left"]))
    with_others = own.with_columns(beside["ran"].gather(common["right"]), (common["end"] - common["start"]).alias("ns"))
    nothing = pl.lit("nothing", dtype=Ran).alias("ran")
    alone = [
        pieces.group_by("index", "code").agg((pl.col("end") - pl.col("start")).sum().alias("ns")).select("index", "code", nothing, "ns"),
        with_others.group_by("index", "code").agg(-pl.col("ns").sum()).select("index", "code", nothing, "ns"),
    ]
    summed = pl.concat([*alone, with_others.group_by("index", "code", "ran").agg(pl.col("ns").sum()).select("index", "code", "ran", "ns")])
    return (
        summed.join(_meanings(), on="code", how="left")
        # A step ends idle only as far as nothing runs; under an operation that nothing waits for, what compute waited for is not known.
        .with_columns(pl.when((pl.col("why") == "step_end") & (pl.col("ran") != "nothing")).then(STALLED).otherwise("why").alias("why"))
        .group_by("index", "ran", "why")
        .agg(pl.col("ns").sum())
        .filter(pl.col("ns") != 0)
        .select(pl.col("index").cast(pl.Int64), "ran", "why", "ns")
        .sort("index", "ran", "why")
    )


def _beside(ran: Concurrency) -> pl.DataFrame:
    """The segments without compute in which something ran: start, end, ran (transport before packing before copies)."""
    transport, packing = ran.mask(is_role("transport")), ran.mask(is_role("packing"))
    what = pl.when(pl.col("mask") & transport != 0).then(pl.lit("transport")).when(pl.col("mask") & packing != 0).then(pl.lit("packing"))
    return ran.without_compute.select("start", "end", what.otherwise(pl.lit("copy")).cast(Ran).alias("ran"))


def _numbered(pieces: pl.DataFrame, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Pieces in order of start with a number for why compute was absent, which `_meanings` explains: index, start, end, code (UInt8).

    Numbers, since there may be as many pieces as operations, and texts are slow.
    """
    role = work["role"].to_physical().gather(pieces["producer"]).alias("role")
    coded = pieces.select(
        "index", "start", "end", pl.col("cause").cast(pl.Enum(CAUSES)).to_physical().cast(pl.UInt8).alias("cause"), role.cast(pl.UInt8)
    ).join(_last_compute(work, windows), on="index", how="left", maintain_order="left")
    cause = pl.col("cause")
    code = (
        pl.when(cause == CAUSES.index("blocking"))
        .then(len(CAUSES) + 1 + pl.col("role"))
        .when((cause == CAUSES.index("dependency_stalled")) & (pl.col("end") > pl.col("last")))
        .then(len(CAUSES))
        .otherwise(cause)
    )
    return coded.select("index", "start", "end", code.cast(pl.UInt8).alias("code")).sort("start")


def _last_compute(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """index, last: when the last compute of each step begins; where none does, before the step."""
    starts = work.filter((pl.col("role") == "compute") & (pl.col("end") > pl.col("start")))["start"]
    place = starts.search_sorted(windows["end"], side="left").cast(pl.Int64) - 1
    before = windows["start"] - 1
    last = starts.gather(place.clip(0)) if len(starts) else before
    told = windows.select("index", last.alias("last"), before.alias("before"), place.alias("place"))
    return told.select("index", pl.when(pl.col("place") < 0).then("before").otherwise(pl.max_horizontal("last", "before")).alias("last"))


def _meanings() -> pl.DataFrame:
    """code, why: the host's causes and stalls, step_end (no producer, and no compute follows in the step), blocking by role.

    Compute cannot hold up compute while nothing computes; should a piece ever say so, it is not known what compute waited for.
    """
    causes: list[Why] = [OF_CAUSE.get(cause, "dependency_stalled") for cause in CAUSES]
    roles: list[Why] = [OF_ROLE.get(role, "dependency_stalled") for role in ROLES]
    return pl.DataFrame({"why": [*causes, "step_end", *roles]}, schema={"why": Cause}).with_row_index("code").cast({"code": pl.UInt8})


def check_splits(splits: Sequence[StepSplit], per_step: Sequence[StepBudget]) -> None:
    """Raise AssertionError unless the split of every step agrees with the device's budget."""
    for one, step in zip(splits, per_step, strict=True):
        check_split(one, step)


def check_split(split: StepSplit, budget: StepBudget) -> None:
    """Raise AssertionError unless the split of a step agrees with its budget to the nanosecond.

    `dependency_stalled` of the budget is that of the split and its `step_end` together.
    """
    why = dict.fromkeys(WHY, 0)
    for cell in split.absent:
        why[cell.why] += cell.ns
    idle = sum(cell.ns for cell in split.absent if cell.ran == "nothing")
    blocked = budget.blocking_transport_ns + budget.blocking_packing_ns + budget.blocking_copy_ns
    sums = {
        "window": split.window_ns - budget.window_ns,
        "compute": sum(split.compute.values()) - budget.compute_busy_ns,
        "absent": sum(why.values()) - budget.compute_absent_ns,
        "nothing ran = device_idle": idle - budget.device_idle_ns,
        "allocator": why["allocator"] - budget.allocator_ns,
        "host_sync": why["host_sync"] - budget.host_sync_ns,
        "host_work": why["host_work"] - budget.host_work_ns,
        "blocking by transport": why["transport"] - budget.blocking_transport_ns,
        "blocking by packing": why["packing"] - budget.blocking_packing_ns,
        "blocking by copies": why["copy"] - budget.blocking_copy_ns,
        "stalled or at the end": why["dependency_stalled"]
        + why["step_end"]
        - budget.dependency_stalled_ns
        - (budget.blocking_ns - blocked),
    }
    wrong = {name: difference for name, difference in sums.items() if difference}
    if wrong:
        raise AssertionError(f"the split of step {split.index} does not agree with its budget: {wrong}")
