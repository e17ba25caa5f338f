"""From measurements to the records of the diagnosis document: here, and nowhere else, rows get the rank and device that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from msgspec import Struct

from diagnose.document.device import (
    Blocking,
    BucketTime,
    Communication,
    DeviceBudget,
    DeviceKernels,
    DeviceSplit,
    HostCost,
    KernelUse,
    Memory,
    MoeLayer,
    Spread,
    Steps,
    Timeline,
    Totals,
    Unclassified,
    VisionEncoder,
    Window,
)
from diagnose.measure.device import DeviceMeasure, step_mean
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import OTHER_BUCKET

SHOWN_NAMES = 30


class DeviceRecords(Struct, frozen=True, kw_only=True):
    """What the document says of one device by itself."""

    totals: Totals
    budget: DeviceBudget
    buckets: tuple[BucketTime, ...]
    communication: tuple[Communication, ...]
    blocking: tuple[Blocking, ...]
    host: tuple[HostCost, ...]
    memory: Memory


def device_records(one: DeviceMeasure) -> DeviceRecords:
    """The records of one device under its rank."""
    at: dict[str, Any] = {"rank": one.rank, "device": one.device}
    listed = one.listed
    return DeviceRecords(
        totals=Totals(**at, **one.budget.totals),
        budget=DeviceBudget(**at, per_step=listed.steps, median=listed.median, mean=listed.mean, typical=listed.typical),
        buckets=tuple(BucketTime(**at, **row) for row in listed.buckets),
        communication=tuple(Communication(**at, **row) for row in listed.communication),
        blocking=tuple(Blocking(**at, **row) for row in listed.blocking),
        host=tuple(HostCost(**at, **row) for row in listed.host),
        memory=memory(one),
    )


def timeline(one: DeviceMeasure) -> Timeline:
    """One step of one device, for drawing."""
    step = one.timeline
    told = {name: getattr(step, name) for name in step.__struct_fields__ if name not in ("packed", "packed_host", "spans")}
    return Timeline(rank=one.rank, device=one.device, **told, columns=step.columns, host=step.host)


def moe_layer(one: DeviceMeasure) -> MoeLayer | None:
    """One mixture-of-experts layer; None where no experts ran."""
    return MoeLayer(rank=one.rank, device=one.device, passes=one.moe_layer) if one.moe_layer else None


def vision(devices: Sequence[DeviceMeasure]) -> VisionEncoder | None:
    """The vision encoder on the device on which it ran longest; None where none ran."""
    most = max(devices, key=lambda one: sum(phase.busy_ns for phase in one.vision))
    return VisionEncoder(rank=most.rank, device=most.device, passes=most.vision) if most.vision else None


def unclassified(one: DeviceMeasure) -> tuple[Unclassified, ...]:
    """Names in the bucket `other`, costliest first."""
    total = int(one.usage.names["work_ns"].sum()) or 1
    other = one.usage.names.filter(pl.col("bucket") == OTHER_BUCKET).group_by("name").agg(pl.col("kernels").sum(), pl.col("work_ns").sum())
    ordered = other.sort("work_ns", "name", descending=[True, False]).head(SHOWN_NAMES)
    return tuple(Unclassified(**row, share=row["work_ns"] / total) for row in ordered.iter_rows(named=True))


def steps(measures: Sequence[DeviceMeasure], shown: DeviceMeasure) -> Steps:
    """How the capture was cut; durations of the device that the verdict speaks of, windows of all."""
    lengths = shown.budget.per_step["window_ns"].to_list()
    return Steps(
        anchor=shown.steps.anchor,
        n=len(lengths),
        dropped=shown.steps.dropped,
        duration_ns=Spread(median=integer_median(lengths), min=min(lengths), max=max(lengths), n=len(lengths), mean=shown.mean_step_ns),
        windows=tuple(
            Window(index=index, start_ns=start, end_ns=end, rank=one.rank, device=one.device)
            for one in measures
            for index, start, end in one.steps.frame.iter_rows()
        ),
        cross_check=shown.steps.cross_check,
        classes=shown.classes.classes,
        outside_ns=shown.budget.totals["device_busy_ns"] - int(shown.budget.per_step["device_busy_ns"].sum()),
    )


def memory(one: DeviceMeasure) -> Memory:
    """The memory wall as time and level."""
    recompute = one.memory.recompute
    per_window = recompute.per_window
    return Memory(
        recompute_ns=None if per_window is None else step_mean(per_window["ns"]),
        recompute_lower_ns=None if per_window is None else step_mean(per_window["lower"]),
        recompute_status=recompute.status,
        attention_forward_kernels=recompute.forward,
        attention_backward_kernels=recompute.backward,
        peak_allocated_bytes=one.memory.peak_allocated,
        peak_reserved_bytes=one.memory.peak_reserved,
        capacity_bytes=one.info.total_memory if one.info else None,
    )


def split(one: DeviceMeasure) -> DeviceSplit:
    """All steps of one device, each nanosecond counted once."""
    return DeviceSplit(rank=one.rank, device=one.device, steps=one.split)


def kernels(one: DeviceMeasure) -> DeviceKernels:
    """What one device ran, by name and stream, most work first."""
    found = one.usage.kernels
    named = one.usage.names.select("name", "bucket", "role").select(pl.all().gather(found.frame["place"]))
    rows = found.frame.drop("place").hstack(named)
    return DeviceKernels(
        rank=one.rank,
        device=one.device,
        kernels=tuple(KernelUse(**row) for row in rows.iter_rows(named=True)),
        omitted=found.omitted,
        omitted_ns=found.omitted_ns,
    )
