"""The budget of each step: how the window divides into what ran, alone or together.

Operations are swept once per device. Each distinct (bucket, role, kind, backend) is one bit; the sweep gives, per window,
how long each set of classes ran together. All figures are sums over that small table, so that the identities of the
budget hold to the nanosecond by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from diagnose.document.device import Totals
from diagnose.model.intervals import MAX_CLASSES, sweep
from diagnose.model.vocabulary import COMM_KINDS, CommKind

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
        chosen = self.frame.filter(condition)
        if windows is None:
            return pl.Series("ns", [int(chosen["ns"].sum())], dtype=pl.Int64)
        summed = chosen.group_by("window").agg(pl.col("ns").sum())
        return (
            windows.select("index").join(summed, left_on="index", right_on="window", how="left", maintain_order="left")["ns"].fill_null(0)
        )


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


def is_transport(kind: CommKind | None = None, backend: str | None = None) -> Callable[[SweepClass], bool]:
    """Accepts transport, of one kind and backend where given."""
    return lambda one: (
        one.role == "transport"
        and (kind is None or (one.kind or "other") == kind)
        and (backend is None or (one.backend or "other") == backend)
    )


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


def totals(work: pl.DataFrame, ran: Concurrency, rank: int, device: int, origin_ns: int) -> Totals:
    """Figures of one device over the whole capture, without windows."""
    kernels = work.filter(pl.col("kind") == "kernel")
    return Totals(
        rank=rank,
        device=device,
        kernel_count=kernels.height,
        kernel_work_ns=int((kernels["end"] - kernels["start"]).sum()),
        device_busy_ns=int(ran.busy(ran.mask(lambda _: True))[0]),
        kernel_busy_ns=int(ran.busy(ran.mask(lambda one: one.role != "copy" and not one.opaque))[0]),
        transport_busy_ns=int(ran.busy(ran.mask(is_role("transport")))[0]),
        transport_exposed_ns=int(ran.alone(ran.mask(is_role("transport")))[0]),
        first_ns=int(work["start"].min()) + origin_ns,  # type: ignore[arg-type]
        last_ns=int(work["end"].max()) + origin_ns,  # type: ignore[arg-type]
    )


def communication_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exposed time per window, kind and backend of transport: index, kind, backend, busy_ns, exposed_ns."""
    pairs = sorted({(one.kind or "other", one.backend or "other") for one in ran.classes if one.role == "transport"})
    parts = [_one_communication(ran, windows, kind, backend) for kind in COMM_KINDS for other, backend in pairs if other == kind]
    empty = pl.DataFrame(schema={"index": pl.Int64, "kind": pl.String, "backend": pl.String, "busy_ns": pl.Int64, "exposed_ns": pl.Int64})
    return pl.concat([empty, *parts])


def beside_compute(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Time per window and kind of transport in which compute ran too, or a graph whose content is unknown: index, kind, ns."""
    compute = ran.mask(lambda one: one.role == "compute" or one.opaque)
    return pl.concat(
        pl.DataFrame({"index": windows["index"], "ns": ran.together(ran.mask(is_transport(kind)), compute, windows)}).select(
            "index", pl.lit(kind).alias("kind"), "ns"
        )
        for kind in COMM_KINDS
    )


def _one_communication(ran: Concurrency, windows: pl.DataFrame, kind: CommKind, backend: str) -> pl.DataFrame:
    mask = ran.mask(is_transport(kind, backend))
    return pl.DataFrame({"index": windows["index"], "busy_ns": ran.busy(mask, windows), "exposed_ns": ran.alone(mask, windows)}).select(
        "index", pl.lit(kind).alias("kind"), pl.lit(backend).alias("backend"), "busy_ns", "exposed_ns"
    )


def bucket_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exclusive time per window and bucket: index, bucket, busy_ns, exclusive_ns."""
    parts = []
    for bucket in sorted({one.bucket for one in ran.classes}):
        mask = sum(one.mask for one in ran.classes if one.bucket == bucket)
        parts.append(
            pl.DataFrame({"index": windows["index"], "busy_ns": ran.busy(mask, windows), "exclusive_ns": ran.alone(mask, windows)}).select(
                "index", pl.lit(bucket).alias("bucket"), "busy_ns", "exclusive_ns"
            )
        )
    return pl.concat(parts)
