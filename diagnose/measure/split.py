"""Each step without overlap: which bucket computed, and where none did, what ran instead and why compute was absent.

Nothing is swept again: the compute part is a sum over the table of `budget.Concurrency`, the rest lays the pieces of `stalls.Stalls` over the segments
in which something else ran. So both agree with the budget to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from diagnose.intervals import overlaps
from diagnose.measure.budget import OUTSIDE, Concurrency, is_role
from diagnose.measure.stalls import Stalls
from diagnose.records import DeviceBudget, StepBudget
from diagnose.step_records import RAN, WHY, Absent, StepSplit, Why
from diagnose.vocabulary import BUCKETS

Ran, Cause, Bucket = pl.Enum(RAN), pl.Enum(WHY), pl.Enum(BUCKETS)
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
ROLES: tuple[Why, ...] = ("transport", "packing", "copy")


def split(found: Stalls, ran: Concurrency, work: pl.DataFrame, windows: pl.DataFrame) -> tuple[StepSplit, ...]:
    """Every step of one device, each nanosecond counted once. `work` holds op (row number), start and role of all operations, `windows` index, start, end."""
    compute: dict[int, dict[str, int]] = {}
    for index, bucket, ns in compute_shares(ran).iter_rows():
        compute.setdefault(index, {})[bucket] = ns
    absent: dict[int, list[Absent]] = {}
    for index, what, why, ns in absent_cells(found, ran, work, windows).iter_rows():
        absent.setdefault(index, []).append(Absent(ran=what, why=why, ns=ns))
    return tuple(
        StepSplit(index=index, window_ns=end - start, compute=compute.get(index, {}), absent=tuple(absent.get(index, ())))
        for index, start, end in windows.select("index", "start", "end").iter_rows()
    )


def compute_shares(ran: Concurrency) -> pl.DataFrame:
    """Time per step and bucket in which the bucket computed: index, bucket, ns; in order, without zeros.

    Where several compute at once each gets an equal share; nanoseconds that do not divide go to the first in the order of the vocabulary.
    """
    masks = {bucket: sum(one.mask for one in ran.classes if one.role == "compute" and one.bucket == bucket) for bucket in BUCKETS}
    used = [bucket for bucket, mask in masks.items() if mask]
    if not used:
        return pl.DataFrame(schema={"index": pl.Int64, "bucket": Bucket, "ns": pl.Int64})
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
        .select(pl.col("window").cast(pl.Int64).alias("index"), pl.col("bucket").cast(Bucket), "ns")
        .sort("index", "bucket")
    )


def absent_cells(found: Stalls, ran: Concurrency, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Time per step without compute by what ran and why compute was absent: index, ran, why, ns; in order, without zeros."""
    pieces = _explained(found.pieces, work, windows).sort("start")
    beside = _beside(ran)
    common = overlaps(pieces.select("start", "end"), beside)
    with_others = pl.DataFrame(
        {
            "index": pieces["index"].gather(common["left"]),
            "ran": beside["ran"].gather(common["right"]),
            "why": pieces["why"].gather(common["left"]),
            "ns": common["end"] - common["start"],
        }
    )
    alone = pl.concat(
        [
            pieces.select("index", pl.lit("nothing", dtype=Ran).alias("ran"), "why", (pl.col("end") - pl.col("start")).alias("ns")),
            with_others.select("index", pl.lit("nothing", dtype=Ran).alias("ran"), "why", -pl.col("ns")),
        ]
    )
    # A step ends idle only as far as nothing runs; under an operation that nothing waits for, what compute waited for is not known.
    stalled = pl.when(pl.col("why") == "step_end").then(pl.lit("dependency_stalled", dtype=Cause)).otherwise("why").alias("why")
    return (
        pl.concat([alone, with_others.with_columns(stalled)])
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


def _explained(pieces: pl.DataFrame, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Pieces with `why` (index, start, end, why): step_end where no producer is known and no compute follows in the step."""
    closes = windows.select("index", pl.col("end").alias("close"))
    seen = pieces.select(
        "index",
        "start",
        "end",
        "cause",
        work["start"].gather(pieces["op"]).alias("begins"),
        (work["role"].gather(pieces["op"]) == "compute").alias("computes"),
        work["role"].gather(pieces["producer"]).cast(pl.String).alias("role"),
    ).join(closes, on="index", how="left", maintain_order="left")
    follows = (pl.col("computes") & (pl.col("begins") >= pl.col("end")) & (pl.col("begins") < pl.col("close"))).fill_null(value=False)
    # Compute cannot hold up compute while nothing computes; should a piece ever say so, it is not known what compute waited for.
    blocked = pl.when(pl.col("role").is_in(ROLES)).then("role").otherwise(pl.lit("dependency_stalled"))
    why = (
        pl.when(pl.col("cause") == "blocking")
        .then(blocked)
        .when((pl.col("cause") == "dependency_stalled") & ~follows)
        .then(pl.lit("step_end"))
        .otherwise(pl.col("cause").replace(OF_CAUSE))
    )
    return seen.select("index", "start", "end", why.cast(Cause).alias("why"))


def check_splits(splits: tuple[StepSplit, ...], budget: DeviceBudget) -> None:
    """Raise AssertionError unless the split of every step agrees with the device's budget."""
    for one, step in zip(splits, budget.per_step, strict=True):
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
