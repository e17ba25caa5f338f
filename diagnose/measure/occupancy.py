"""SM occupancy from launch shapes: resident warps, waves and fill, against the device's limits.

Rules of residency: CUDA C++ Programming Guide, "Hardware Multithreading". The limits by compute capability are data
(trace_rules/platforms.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from diagnose.document.device import KernelOccupancy, Occupancy
from diagnose.knowledge.rulebook import SmLimits
from diagnose.model.trace import Device, Trace

SCHEDULERS = 4  # a warp's registers come from one quarter of the register file
SHOWN_KERNELS = 20
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one SM holds at most, and how many SMs the device has."""

    sm_count: int
    threads: int
    blocks: int
    registers: int
    shared_memory: int
    warp_size: int
    register_unit: int
    shared_unit: int
    reserved_shared: int


def limits(device: Device | None, by_capability: Mapping[str, SmLimits]) -> Limits | None:
    """What the trace's own device row gives, completed from the table by compute capability; None where a limit stays unknown."""
    if device is None or device.sm_count is None or device.compute_major is None:
        return None
    known = by_capability.get(f"{device.compute_major}.{device.compute_minor or 0}")
    if known is None:
        return None
    warp = device.warp_size or 32
    return Limits(
        sm_count=device.sm_count,
        threads=device.max_threads_per_sm or known.warps * warp,
        blocks=device.max_blocks_per_sm or known.blocks,
        registers=device.registers_per_sm or known.registers,
        shared_memory=device.shared_memory_per_sm or known.shared_bytes,
        warp_size=warp,
        register_unit=known.register_unit,
        shared_unit=known.shared_unit,
        reserved_shared=known.reserved_shared_bytes,
    )


def residency(shapes: pl.DataFrame, limit: Limits) -> pl.DataFrame:
    """Occupancy, waves and fill of launch shapes.

    `shapes` has grid_x … block_z, registers, shared_memory. Adds occupancy (resident warps / maximum), waves (blocks / blocks that fit at
    once), fill (share of SM·time in which an SM has a block) and limited_by; null where the shape is incomplete or fits no block.
    """
    threads = pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z")
    grid = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    warps = (threads + limit.warp_size - 1) // limit.warp_size
    max_warps = limit.threads // limit.warp_size
    registers_per_warp = (
        (pl.col("registers").cast(pl.Int64) * limit.warp_size + limit.register_unit - 1) // limit.register_unit
    ) * limit.register_unit
    warps_by_registers = (limit.registers // SCHEDULERS) // registers_per_warp.clip(lower_bound=1) * SCHEDULERS
    shared = (
        (pl.col("shared_memory").cast(pl.Int64) + limit.reserved_shared + limit.shared_unit - 1) // limit.shared_unit
    ) * limit.shared_unit
    caps = {
        "warps": max_warps // warps.clip(lower_bound=1),
        "blocks": pl.lit(limit.blocks, dtype=pl.Int64),
        "registers": warps_by_registers // warps.clip(lower_bound=1),
        "shared memory": limit.shared_memory // shared.clip(lower_bound=1),
    }
    named = shapes.with_columns(threads.alias("_threads"), grid.alias("_grid"), *(cap.alias(f"_{name}") for name, cap in caps.items()))
    resident = pl.min_horizontal(*(f"_{name}" for name in caps))
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in ("_threads", "_grid", "registers", "shared_memory"))
    fits = complete & (resident > 0) & (pl.col("_threads") > 0) & (pl.col("_grid") > 0)
    limited = pl.coalesce(*(pl.when(pl.col(f"_{name}") == resident).then(pl.lit(name)) for name in caps))
    at_once = resident * limit.sm_count
    waves = pl.col("_grid") / at_once
    rest = pl.col("_grid") % at_once  # blocks of the last wave, which spread over the SMs before two share one
    last = pl.min_horizontal(rest / limit.sm_count, pl.lit(1.0))
    fill = (pl.col("_grid") // at_once + last) / (pl.col("_grid") // at_once + (rest > 0).cast(pl.Int64))
    return named.with_columns(
        pl.when(fits).then((resident * warps / max_warps).clip(upper_bound=1.0)).alias("occupancy"),
        pl.when(fits).then(waves).alias("waves"),
        pl.when(fits).then(fill).alias("fill"),
        pl.when(fits).then(limited).alias("limited_by"),
    ).drop("_threads", "_grid", *(f"_{name}" for name in caps))


@dataclass(frozen=True, kw_only=True)
class SmOccupancy:
    """`record` for the document, and `fills`: fill by bucket, "" for all compute kernels.

    None and {} where device limits or shapes were not recorded.
    """

    record: Occupancy | None
    fills: Mapping[str, float | None]


def sm_occupancy(inside: pl.DataFrame, trace: Trace, device: Device | None, sm_limits: Mapping[str, SmLimits]) -> SmOccupancy:
    """Occupancy of the compute kernels among the operations in the steps.

    `sm_limits` by compute capability, for what the trace does not tell of the device.
    """
    kernels = inside.filter((pl.col("kind") == "kernel") & (pl.col("role") == "compute"))
    record, fills = occupancy(
        kernels.select("name_id", "bucket", "start", "end", *_SHAPE), trace.name_texts(), device, limits(device, sm_limits)
    )
    return SmOccupancy(record=record, fills=fills)


def occupancy(
    kernels: pl.DataFrame, names: pl.Series, device: Device | None, limit: Limits | None
) -> tuple[Occupancy | None, dict[str, float | None]]:
    """Occupancy of the costliest kernels and fill by bucket, weighted by work.

    `kernels`: compute kernels inside the steps with name_id, bucket, start, end and the launch shape. Returns the document's part and the
    fill by bucket ("" for all compute kernels); None and {} where device limits or shapes were not recorded.
    """
    if limit is None or kernels.is_empty():
        return None, {}
    grouped = kernels.group_by("name_id", "bucket", *_SHAPE).agg(
        pl.len().alias("kernels"), (pl.col("end") - pl.col("start")).sum().alias("work")
    )
    known = residency(grouped, limit)
    if known["fill"].null_count() == known.height:
        return None, {}
    fills: dict[str, float | None] = {str(bucket): _mean(part, "fill") for (bucket,), part in sorted(known.group_by("bucket"), key=_key)}
    by_name = sorted(known.group_by("name_id", "bucket"), key=lambda pair: (-int(pair[1]["work"].sum()), pair[0]))
    rows = tuple(_kernel(names[int(key[0])], str(key[1]), part) for key, part in by_name[:SHOWN_KERNELS])
    part = Occupancy(device=device.name if device else None, sm_count=limit.sm_count, buckets=fills, kernels=rows)
    return part, {**fills, "": _mean(known, "fill")}


def _key(pair: tuple[tuple[object, ...], pl.DataFrame]) -> str:
    return str(pair[0][0])


def _kernel(name: str, bucket: str, shapes: pl.DataFrame) -> KernelOccupancy:
    """One kernel name over all its launch shapes."""
    return KernelOccupancy(
        name=name,
        bucket=bucket,
        kernels=int(shapes["kernels"].sum()),
        work_ns=int(shapes["work"].sum()),
        occupancy=_mean(shapes, "occupancy"),
        waves=_mean(shapes, "waves"),
        fill=_mean(shapes, "fill"),
        limited_by=shapes.sort("work", "grid_x", "block_x")["limited_by"][-1],
    )


def _mean(shapes: pl.DataFrame, column: str) -> float | None:
    """Mean of a column weighted by work; None where nothing is known. fsum makes it independent of the order of the rows."""
    known = shapes.filter(pl.col(column).is_not_null())
    weight = int(known["work"].sum())
    return math.fsum(value * work for value, work in known.select(column, "work").iter_rows()) / weight if weight else None
