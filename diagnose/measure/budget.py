"""The budget of each step: how the window divides into what ran, alone or together, and into what compute waited for.

Operations are swept once per device. Each distinct (bucket, role, kind, backend) is one bit; the sweep gives, per window, how long each set
of classes ran together. All figures are sums over that small table, so that the identities of the budget hold to the nanosecond by
construction. The split without overlap (which bucket computed, and where none did, what ran instead and why) takes its compute part from
that table and lays the pieces of `stalls.Stalls` over the segments in which something else ran, so that it agrees to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl
from msgspec import Struct

from diagnose.document.device import RAN, WHY, Absent, StepBudget, StepSplit, Why
from diagnose.measure.steps import per_window
from diagnose.measure.waits.hold_ups import HOST_WORK
from diagnose.measure.waits.stalls import Stalls, ceilings, stall_times
from diagnose.model.intervals import MAX_CLASSES, earliest, lasting, latest, overlaps, sweep, total_length, union_length
from diagnose.model.vocabulary import COMM_KINDS, CommKind

OUTSIDE = -1  # window index of time that belongs to no step


class SweepClass(Struct, frozen=True, kw_only=True):
    """One bit of the sweep."""

    bit: int
    bucket: str
    role: str
    kind: str | None
    backend: str | None
    opaque: bool = False  # a CUDA graph traced as a whole

    @property
    def mask(self) -> int:
        """The bit as a mask."""
        return 1 << self.bit


class Concurrency(Struct, frozen=True, kw_only=True):
    """What ran together on one device. `frame`: window (index, or OUTSIDE), mask, ns; `classes` explains the bits.

    `without_compute`: start, end, mask of the segments in which something ran, but no compute; disjoint and sorted.
    """

    frame: pl.DataFrame
    classes: tuple[SweepClass, ...]
    without_compute: pl.DataFrame
    merged_classes: int = 0

    def mask(self, accept: Callable[[SweepClass], bool]) -> int:
        """Mask of all classes that `accept` takes."""
        return sum(one.mask for one in self.classes if accept(one))

    def in_all(self, condition: pl.Expr) -> int:
        """Time (ns) of the sets of classes for which the condition holds, in the whole capture."""
        return int(self.frame.filter(condition)["ns"].sum())

    def times(self, mask: int, windows: pl.DataFrame, alone: str, **labels: str) -> pl.DataFrame:
        """One row per window: index, the labels, busy_ns, and by the name `alone` the time with nothing else."""
        told = [pl.lit(text).alias(name) for name, text in labels.items()]
        return self.sums(windows, {"busy_ns": _any_of(mask), alone: _none_but(mask)}).select("index", *told, "busy_ns", alone)

    def together(self, first: int, second: int, windows: pl.DataFrame) -> pl.Series:
        """Time with a class of `first` and a class of `second` running at once, per window."""
        return self.sums(windows, {"ns": _any_of(first) & _any_of(second)})["ns"]

    def sums(self, windows: pl.DataFrame, conditions: Mapping[str, pl.Expr]) -> pl.DataFrame:
        """One row per window: index, and by their names the time (ns) of the sets of classes for which the conditions hold."""
        summed = (pl.col("ns").filter(condition).sum().alias(name) for name, condition in conditions.items())
        return per_window(windows, self.frame.group_by(pl.col("window").alias("index")).agg(*summed)).fill_null(0)


def _any_of(mask: int) -> pl.Expr:
    """Whether a class of `mask` runs."""
    return (pl.col("mask") & mask) != 0


def _none_but(mask: int) -> pl.Expr:
    """Whether a class of `mask` runs and nothing else."""
    return (pl.col("mask") != 0) & ((pl.col("mask") & ~mask) == 0)


class Budget(Struct, frozen=True, kw_only=True):
    """Where the time of one device's steps went.

    `per_step`: index and, in ns, the fields of the document's `StepBudget` and what bounds count beyond them (`waits.bounds`). `totals`:
    figures of the whole capture, without windows. `merged_classes`: classes whose backends the sweep could not hold apart.
    """

    per_step: pl.DataFrame
    totals: Mapping[str, int]
    merged_classes: int


def budget(ran: Concurrency, found: Stalls, work: pl.DataFrame, windows: pl.DataFrame, origin_ns: int) -> Budget:
    """Put together what ran and why compute was absent. `work`: all operations of the device, by row number."""
    of_ops = work["role"], work["copy_kind"]
    parts = (
        step_times(ran, windows),
        stall_times(found, windows, *of_ops),
        ceilings(found, windows, *of_ops, work.select("start", "issued")),
    )
    return Budget(per_step=per_window(windows, *parts), totals=totals(work, ran, origin_ns), merged_classes=ran.merged_classes)


def sweep_classes(classes: pl.DataFrame) -> tuple[pl.DataFrame, tuple[SweepClass, ...], int]:
    """Give each (bucket, role, kind, backend, opaque) of the classified operations a bit.

    `classes` has class_id, opaque, bucket, role, kind, backend, work (ns). Returns class_id → bit, the classes by bit, and how many
    classes lost their backend because there were more than the sweep holds apart.
    """
    keys = ["bucket", "role", "kind", "backend", "opaque"]
    distinct = classes.select(keys).unique().height
    merged = 0
    if distinct > MAX_CLASSES:
        merged = distinct - classes.select(*keys[:3], "opaque").unique().height
        classes = classes.with_columns(pl.lit(None, dtype=pl.String).alias("backend"))
    bits = classes.select(keys).unique().sort(keys, nulls_last=True).with_row_index("bit")
    by_class = classes.join(bits, on=keys, how="left", nulls_equal=True).select("class_id", "opaque", pl.col("bit").cast(pl.UInt8))
    named = tuple(SweepClass(**row) for row in bits.select("bit", *keys).iter_rows(named=True))
    return by_class, named, merged


def concurrency(work: pl.DataFrame, classes: pl.DataFrame, windows: pl.DataFrame) -> Concurrency:
    """Sweep one device's operations. `work`: start, end, kind, class_id; `classes`: of `Classified`; `windows`: index, start, end."""
    present = work.select("class_id", (pl.col("kind") == "graph").alias("opaque")).unique()
    known = present.join(classes.select("class_id", "bucket", "role", "kind", "backend"), on="class_id", how="left")
    by_class, named, merged = sweep_classes(known)
    bits = work.lazy().select("start", "end", "class_id", (pl.col("kind") == "graph").alias("opaque"))
    swept = sweep(
        bits.join(by_class.lazy(), on=["class_id", "opaque"], how="left").select("start", "end", "bit").collect(),
        cuts=pl.concat([windows["start"], windows["end"]]),
    ).filter(pl.col("mask") != 0)
    placed = (
        swept.join_asof(
            windows.select(pl.col("start").alias("begin"), pl.col("end").alias("close"), "index"), left_on="start", right_on="begin"
        )
        .with_columns(pl.when(pl.col("start") < pl.col("close")).then("index").otherwise(OUTSIDE).fill_null(OUTSIDE).alias("window"))
        .group_by("window", "mask")
        .agg(lasting.sum().alias("ns"))
        .sort("window", "mask")
    )
    compute = sum(one.mask for one in named if one.role == "compute")
    others = swept.filter(pl.col("mask") & compute == 0).select("start", "end", "mask")
    return Concurrency(frame=placed, classes=named, without_compute=others, merged_classes=merged)


def is_role(*roles: str) -> Callable[[SweepClass], bool]:
    """Accepts classes of the given roles."""
    return lambda one: one.role in roles


def step_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exposed times of every window: one row per window, columns named as in the document's budget."""
    everything = ran.mask(lambda _: True)
    compute, transport = ran.mask(is_role("compute")), ran.mask(is_role("transport"))
    packing, copy = ran.mask(is_role("packing")), ran.mask(is_role("copy"))
    times = {
        "device_busy_ns": _any_of(everything),
        "compute_busy_ns": _any_of(compute),
        "communication_busy_ns": _any_of(transport | packing),
        "communication_exposed_ns": _none_but(transport | packing),
        "transport_busy_ns": _any_of(transport),
        "transport_exposed_ns": _none_but(transport),
        "packing_busy_ns": _any_of(packing),
        "packing_exposed_ns": _none_but(packing),
        "copy_busy_ns": _any_of(copy),
        "copy_exposed_ns": _none_but(copy),
    }
    length = windows["end"] - windows["start"]
    device, compute_, *others = times
    return ran.sums(windows, times).select(
        "index",
        length.alias("window_ns"),
        device,
        (length - pl.col(device)).alias("device_idle_ns"),
        compute_,
        (length - pl.col(compute_)).alias("compute_absent_ns"),
        *others,
    )


def totals(work: pl.DataFrame, ran: Concurrency, origin_ns: int) -> dict[str, int]:
    """Figures of one device's whole capture, by the fields of the document's `Totals`. `origin_ns`: the file's clock at the trace's 0."""
    kernels = work.select(pl.col("start", "end").filter(pl.col("kind") == "kernel"))
    transport = ran.mask(is_role("transport"))
    return {
        "kernel_count": kernels.height,
        "kernel_work_ns": total_length(kernels),
        "device_busy_ns": ran.in_all(_any_of(ran.mask(lambda _: True))),
        "kernel_busy_ns": union_length(kernels["start"], kernels["end"]),  # a copy between devices is communication, and no kernel
        "transport_busy_ns": ran.in_all(_any_of(transport)),
        "transport_exposed_ns": ran.in_all(_none_but(transport)),
        "first_ns": earliest(work["start"]) + origin_ns,
        "last_ns": latest(work["end"]) + origin_ns,
    }


Ran, Cause = pl.Enum(RAN), pl.Enum(WHY)
# The host's causes as `StepBudget` sums them up; blocking goes by the role of what blocked.
OF_CAUSE: Mapping[str, Why] = {
    "allocator": "allocator",
    "host_sync": "host_sync",
    "first_use": "host_work",
    **dict.fromkeys(HOST_WORK, "host_work"),
    "dependency_stalled": "dependency_stalled",
}
CAUSES = (*OF_CAUSE, "blocking")
STALLED = pl.lit("dependency_stalled", dtype=Cause)


def split(found: Stalls, ran: Concurrency, work: pl.DataFrame, windows: pl.DataFrame, buckets: pl.Enum) -> tuple[StepSplit, ...]:
    """One device's steps, each nanosecond counted once. `work`: op (row number), start, role; `windows`: index, start, end."""
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
    """index, bucket, ns: how long it computed (ordered, no zeros). Several at once share evenly; odd ns go to the first of `buckets`."""
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
        pieces.group_by("index", "code").agg(lasting.sum().alias("ns")).select("index", "code", nothing, "ns"),
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
    """`pieces` by start: index, start, end, code (UInt8, see `_meanings`): there may be as many as operations, and texts are slow."""
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
    roles: list[Why] = ["dependency_stalled", "transport", "packing", "copy"]  # in the order of the roles in `device_work`
    return pl.DataFrame({"why": [*causes, "step_end", *roles]}, schema={"why": Cause}).with_row_index("code").cast({"code": pl.UInt8})


def check_split(split: StepSplit, budget: StepBudget) -> None:
    """Raise AssertionError unless split and budget of a step agree to the ns; `step_end` is part of the budget's `dependency_stalled`."""
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


class CommunicationTimes(Struct, frozen=True, kw_only=True):
    """By step. `by_kind`: index, kind, backend, count, work_ns, busy_ns, exposed_ns, blocking_ns. `beside` compute: index, kind, ns."""

    by_kind: pl.DataFrame
    beside: pl.DataFrame


def by_kind(ran: Concurrency, inside: pl.DataFrame, windows: pl.DataFrame, classes: pl.DataFrame, blocking: pl.DataFrame) -> pl.DataFrame:
    """The frame of `CommunicationTimes`. `inside`: the operations in the steps, with index and class_id; `blocking`: of `Causes`."""
    keys = ["index", "kind", "backend"]
    transport = classes.filter(pl.col("role") == "transport").select(
        "class_id", pl.col("kind").fill_null("other"), pl.col("backend").fill_null("other")
    )
    counted = (
        inside.select("index", "class_id", lasting.alias("ns"))
        .join(transport, on="class_id", how="inner")
        .group_by(keys)
        .agg(pl.len().alias("count"), pl.col("ns").sum().alias("work_ns"))
    )
    blocked = blocking.filter(pl.col("role") == "transport").group_by(keys).agg(pl.col("ns").sum().alias("blocking_ns"))
    table = transport_times(ran, windows)
    for part in (counted, blocked):
        table = table.join(part, on=keys, how="left", maintain_order="left")
    return table.with_columns(pl.col("count", "work_ns", "blocking_ns").fill_null(0))


def is_transport(kind: CommKind | None = None, backend: str | None = None) -> Callable[[SweepClass], bool]:
    """Accepts transport, of one kind and backend where given."""
    return lambda one: (
        one.role == "transport"
        and (kind is None or (one.kind or "other") == kind)
        and (backend is None or (one.backend or "other") == backend)
    )


def transport_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exposed time per window, kind and backend of transport: index, kind, backend, busy_ns, exposed_ns."""
    pairs = sorted({(one.kind or "other", one.backend or "other") for one in ran.classes if one.role == "transport"})
    ordered = [(kind, backend) for kind in COMM_KINDS for other, backend in pairs if other == kind]
    parts = [ran.times(ran.mask(is_transport(*pair)), windows, "exposed_ns", kind=pair[0], backend=pair[1]) for pair in ordered]
    empty = pl.DataFrame(schema={"index": pl.Int64, "kind": pl.String, "backend": pl.String, "busy_ns": pl.Int64, "exposed_ns": pl.Int64})
    return pl.concat([empty, *parts])


def beside_compute(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Time per window and kind of transport in which compute ran too, or a graph whose content is unknown: index, kind, ns."""
    compute = ran.mask(lambda one: one.role == "compute" or one.opaque)
    beside = {kind: ran.together(ran.mask(is_transport(kind)), compute, windows).alias("ns") for kind in COMM_KINDS}
    return pl.concat(windows.select("index", pl.lit(kind).alias("kind")).with_columns(ns) for kind, ns in beside.items())
