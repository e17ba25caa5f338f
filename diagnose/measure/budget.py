"""The budget of each step: how the window divides into what ran, alone or together.

Operations are swept once per device. Each distinct (bucket, role, kind, backend) is one bit; the sweep gives, per window,
how long each set of classes ran together. All figures are sums over that small table, so that the identities of the
budget hold to the nanosecond by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from diagnose.measure.waits.bounds import ceilings
from diagnose.measure.waits.stalls import Stalls, stall_times
from diagnose.model.intervals import MAX_CLASSES, sweep

OUTSIDE = -1  # window index of time that belongs to no step


@dataclass(frozen=True, kw_only=True)
class SweepClass:
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


@dataclass(frozen=True, kw_only=True)
class Concurrency:
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

    def busy(self, mask: int, windows: pl.DataFrame | None = None) -> pl.Series:
        """Time with at least one class of `mask` running, per window of `windows` (its index order), or in all (one value)."""
        return self._sum((pl.col("mask") & mask) != 0, windows)

    def alone(self, mask: int, windows: pl.DataFrame | None = None) -> pl.Series:
        """Time with a class of `mask` running and nothing else."""
        return self._sum((pl.col("mask") != 0) & ((pl.col("mask") & ~mask) == 0), windows)

    def together(self, first: int, second: int, windows: pl.DataFrame | None = None) -> pl.Series:
        """Time with a class of `first` and a class of `second` running at once."""
        return self._sum(((pl.col("mask") & first) != 0) & ((pl.col("mask") & second) != 0), windows)

    def _sum(self, condition: pl.Expr, windows: pl.DataFrame | None) -> pl.Series:
        """Time (ns) of the sets of classes for which the condition holds, per window, or in all (one value)."""
        chosen = self.frame.filter(condition)
        if windows is None:
            return pl.Series("ns", [int(chosen["ns"].sum())], dtype=pl.Int64)
        summed = chosen.group_by("window").agg(pl.col("ns").sum())
        return (
            windows.select("index").join(summed, left_on="index", right_on="window", how="left", maintain_order="left")["ns"].fill_null(0)
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
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
    per_step = step_times(ran, windows)
    for part in (stall_times(found, windows, *of_ops), ceilings(found, windows, *of_ops, work.select("start", "issued"))):
        per_step = per_step.join(part, on="index", how="left", maintain_order="left")
    return Budget(per_step=per_step, totals=totals(work, ran, origin_ns), merged_classes=ran.merged_classes)


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
    """Sweep one device's operations.

    `work` has start, end, kind, class_id; `classes` is the table of `Classified`; `windows` has index, start, end (disjoint).
    """
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
        .agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
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
    length = windows["end"] - windows["start"]
    device_busy, compute_busy = ran.busy(everything, windows), ran.busy(compute, windows)
    return pl.DataFrame(
        {
            "index": windows["index"],
            "window_ns": length,
            "device_busy_ns": device_busy,
            "device_idle_ns": length - device_busy,
            "compute_busy_ns": compute_busy,
            "compute_absent_ns": length - compute_busy,
            "communication_busy_ns": ran.busy(transport | packing, windows),
            "communication_exposed_ns": ran.alone(transport | packing, windows),
            "transport_busy_ns": ran.busy(transport, windows),
            "transport_exposed_ns": ran.alone(transport, windows),
            "packing_busy_ns": ran.busy(packing, windows),
            "packing_exposed_ns": ran.alone(packing, windows),
            "copy_busy_ns": ran.busy(copy, windows),
            "copy_exposed_ns": ran.alone(copy, windows),
        }
    )


def totals(work: pl.DataFrame, ran: Concurrency, origin_ns: int) -> dict[str, int]:
    """Figures of one device over the whole capture, without windows, by the fields of the document's `Totals`.

    `origin_ns`: the file's clock at the trace's zero.
    """
    kernels = work.filter(pl.col("kind") == "kernel")
    return {
        "kernel_count": kernels.height,
        "kernel_work_ns": int((kernels["end"] - kernels["start"]).sum()),
        "device_busy_ns": int(ran.busy(ran.mask(lambda _: True))[0]),
        "kernel_busy_ns": int(ran.busy(ran.mask(lambda one: one.role != "copy" and not one.opaque))[0]),
        "transport_busy_ns": int(ran.busy(ran.mask(is_role("transport")))[0]),
        "transport_exposed_ns": int(ran.alone(ran.mask(is_role("transport")))[0]),
        "first_ns": int(work["start"].min()) + origin_ns,  # type: ignore[arg-type]
        "last_ns": int(work["end"].max()) + origin_ns,  # type: ignore[arg-type]
    }
