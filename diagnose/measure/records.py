"""From measured frames to the records of the diagnosis document."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from diagnose.document.device import (
    Blocking,
    BucketTime,
    Communication,
    DeviceBudget,
    HostCost,
    Memory,
    Spread,
    StepBudget,
    Steps,
    Unclassified,
    Window,
)
from diagnose.document.steps import DeviceKernels, DeviceSplit, KernelUse
from diagnose.measure.device import DeviceMeasure, median
from diagnose.model.vocabulary import EVIDENCE, OTHER_BUCKET, PHASES, Status

SHOWN_NAMES = 30
SHOWN_HOST_COSTS = 20


def _per_step(frame: pl.DataFrame, keys: list[str], columns: list[str], windows: pl.Series) -> list[dict[str, Any]]:
    """One row per combination of `keys` with the median of each column over all windows; a window without the row counts as 0."""
    rows = []
    for key, part in frame.group_by(keys, maintain_order=True):
        filled = pl.DataFrame({"index": windows}).join(part.select("index", *columns), on="index", how="left").fill_null(0)
        rows.append({**dict(zip(keys, key, strict=True)), **{column: median(filled[column]) for column in columns}})
    return rows


def device_budget(one: DeviceMeasure) -> DeviceBudget:
    """All steps of one device, and the median of each figure."""
    names = [field for field in StepBudget.__struct_fields__ if field != "index"]
    per_step = tuple(StepBudget(**row) for row in one.budget.select("index", *names).iter_rows(named=True))
    medians = {name: median(one.budget[name]) for name in names}
    return DeviceBudget(rank=one.rank, device=one.device, per_step=per_step, median=StepBudget(index=None, **medians))


def bucket_times(one: DeviceMeasure) -> tuple[BucketTime, ...]:
    """The buckets of one device, most work first."""
    columns = ["kernels", "work_ns", "busy_ns", "exclusive_ns"]
    rows = _per_step(one.buckets, ["bucket"], columns, one.budget["index"])
    total = int(one.buckets["work_ns"].sum()) or 1
    summed = dict(one.buckets.group_by("bucket").agg(pl.col("work_ns").sum()).iter_rows())
    steps = one.budget.height
    found = [
        BucketTime(
            rank=one.rank,
            device=one.device,
            **row,
            share=summed[row["bucket"]] / total,
            phase=_phases(one.details.filter(pl.col("bucket") == row["bucket"]), steps),
            decided_by=_evidence(one.details.filter(pl.col("bucket") == row["bucket"])),
        )
        for row in rows
        if summed[row["bucket"]] or row["kernels"]
    ]
    return tuple(sorted(found, key=lambda item: (-summed[item.bucket], item.bucket)))


def _phases(details: pl.DataFrame, steps: int) -> dict[str, int]:
    """Mean work per step by phase; "unknown" where it can't be told."""
    by_phase = dict(details.group_by("phase").agg(pl.col("work_ns").sum()).iter_rows())
    named: dict[str, int] = {phase: by_phase.get(phase, 0) // steps for phase in PHASES}
    return {**named, "unknown": by_phase.get(None, 0) // steps}


def _evidence(details: pl.DataFrame) -> dict[str, float]:
    """Share of work by the kind of evidence that decided the bucket."""
    by_evidence = dict(details.group_by("decided_by").agg(pl.col("work_ns").sum()).iter_rows())
    total = sum(by_evidence.values())
    return {kind: by_evidence.get(kind, 0) / total for kind in EVIDENCE} if total else dict.fromkeys(EVIDENCE, 0.0)


def unclassified(one: DeviceMeasure) -> tuple[Unclassified, ...]:
    """Names in the bucket `other`, costliest first."""
    total = int(one.names["work_ns"].sum()) or 1
    other = one.names.filter(pl.col("bucket") == OTHER_BUCKET).group_by("name").agg(pl.col("kernels").sum(), pl.col("work_ns").sum())
    ordered = other.sort("work_ns", "name", descending=[True, False]).head(SHOWN_NAMES)
    return tuple(Unclassified(**row, share=row["work_ns"] / total) for row in ordered.iter_rows(named=True))


def communication(one: DeviceMeasure) -> tuple[Communication, ...]:
    """Transport by kind and backend."""
    columns = ["count", "work_ns", "busy_ns", "exposed_ns", "blocking_ns"]
    rows = _per_step(one.communication, ["kind", "backend"], columns, one.budget["index"])
    return tuple(
        Communication(rank=one.rank, device=one.device, **row, overlap=1 - row["exposed_ns"] / row["busy_ns"] if row["busy_ns"] else None)
        for row in rows
    )


def blocking(one: DeviceMeasure) -> tuple[Blocking, ...]:
    """What compute waited for, longest first."""
    merged = one.blocking.group_by("index", "bucket", "role", "kind", maintain_order=True).agg(
        pl.col("ns").sum().alias("blocking_ns"), pl.col("ns").filter(pl.col("inferred")).sum().alias("guessed_ns")
    )
    rows = _per_step(
        merged.filter(pl.col("bucket").is_not_null()), ["bucket", "role", "kind"], ["blocking_ns", "guessed_ns"], one.budget["index"]
    )
    found = []
    for row in rows:
        status: Status = "inferred" if row.pop("guessed_ns") else "measured"
        found.append(Blocking(rank=one.rank, device=one.device, **row, status=status))
    return tuple(
        sorted((item for item in found if item.blocking_ns), key=lambda item: (-item.blocking_ns, item.bucket, item.role, item.kind or ""))
    )


def host_costs(one: DeviceMeasure) -> tuple[HostCost, ...]:
    """Host activities during which compute was launch-starved, costliest first."""
    rows = _per_step(one.host, ["name", "cause"], ["ns", "count"], one.budget["index"])
    found = [
        HostCost(rank=one.rank, device=one.device, name=row["name"], cause=row["cause"], launch_starved_ns=row["ns"], count=row["count"])
        for row in rows
        if row["ns"]
    ]
    return tuple(sorted(found, key=lambda item: (-item.launch_starved_ns, item.name))[:SHOWN_HOST_COSTS])


def steps(measures: list[DeviceMeasure], shown: DeviceMeasure) -> Steps:
    """How the capture was cut; durations of the device that the verdict speaks of, windows of all."""
    lengths = shown.budget["window_ns"]
    return Steps(
        anchor=shown.steps.anchor,
        n=len(lengths),
        dropped=shown.steps.dropped,
        duration_ns=Spread(median=median(lengths), min=int(lengths.min()), max=int(lengths.max()), n=len(lengths)),  # type: ignore[arg-type]
        windows=tuple(
            Window(index=index, start_ns=start, end_ns=end, rank=one.rank, device=one.device)
            for one in measures
            for index, start, end in one.steps.frame.iter_rows()
        ),
        cross_check=shown.steps.cross_check,
    )


def memory(one: DeviceMeasure, allocated: int | None, reserved: int | None) -> Memory:
    """The memory wall as time and level."""
    per_window = one.recompute.per_window
    return Memory(
        recompute_ns=None if per_window is None else median(per_window["ns"]),
        recompute_status=one.recompute.status,
        attention_forward_kernels=one.recompute.forward,
        attention_backward_kernels=one.recompute.backward,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        capacity_bytes=one.info.total_memory if one.info else None,
    )


def split(one: DeviceMeasure) -> DeviceSplit:
    """All steps of one device, each nanosecond counted once."""
    return DeviceSplit(rank=one.rank, device=one.device, steps=one.split)


def kernels(one: DeviceMeasure) -> DeviceKernels:
    """What one device ran, by name and stream, most work first."""
    found = one.kernels
    named = one.names.select("name", "bucket", "role").select(pl.all().gather(found.frame["place"]))
    rows = found.frame.drop("place").hstack(named)
    return DeviceKernels(
        rank=one.rank,
        device=one.device,
        kernels=tuple(KernelUse(**row) for row in rows.iter_rows(named=True)),
        omitted=found.omitted,
        omitted_ns=found.omitted_ns,
    )


def check_identities(budget: DeviceBudget) -> None:
    """Raise AssertionError unless every step's budget adds up to the nanosecond."""
    for step in budget.per_step:
        sums = {
            "device_busy + device_idle = window": step.device_busy_ns + step.device_idle_ns - step.window_ns,
            "compute_busy + compute_absent = window": step.compute_busy_ns + step.compute_absent_ns - step.window_ns,
            "stalls = compute_absent": step.launch_starved_ns + step.blocking_ns + step.dependency_stalled_ns - step.compute_absent_ns,
            "host parts = launch_starved": step.allocator_ns + step.host_sync_ns + step.host_work_ns - step.launch_starved_ns,
            "blocking parts ≤ blocking": min(
                0, step.blocking_ns - step.blocking_transport_ns - step.blocking_packing_ns - step.blocking_copy_ns
            ),
        }
        wrong = {name: difference for name, difference in sums.items() if difference}
        if wrong:
            raise AssertionError(
                f"budget of step {step.index} on rank {budget.rank} does not add up: {msgspec.json.encode(wrong).decode()}"
            )
