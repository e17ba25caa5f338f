"""Occupancy against figures worked out by hand from the CUDA C++ Programming Guide's rules."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.knowledge.rulebook import load_rulebook
from diagnose.measure.kernels import limits, occupancy, residency
from diagnose.model.trace import Device

H100 = Device(
    rank=0,
    device=0,
    name="NVIDIA H100 80GB HBM3",
    sm_count=132,
    compute_major=9,
    compute_minor=0,
    max_threads_per_sm=2048,
    registers_per_sm=65536,
    shared_memory_per_sm=233472,
)
LIMIT = limits(H100, load_rulebook(()).platforms.sm_limits)


def shape(grid: int, block: int, registers: int | None, shared: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "grid_x": [grid],
            "grid_y": [1],
            "grid_z": [1],
            "block_x": [block],
            "block_y": [1],
            "block_z": [1],
            "registers": [registers],
            "shared_memory": [shared],
        },
        schema_overrides={"registers": pl.Int32, "shared_memory": pl.Int32},
    )


@pytest.mark.parametrize(
    ("grid", "block", "registers", "shared", "resident", "limited_by"),
    [
        (132, 128, 32, 0, 16, "warps"),  # 64 warps / 4 warps per block
        (132, 32, 32, 0, 32, "blocks"),  # 64 blocks by warps, but 32 blocks at most
        (132, 384, 168, 0, 1, "registers"),  # 168·32 = 5376 registers per warp; 16384 // 5376 = 3 per scheduler, 12 warps, 1 block of 12
        (132, 128, 32, 199 * 1024, 1, "shared memory"),  # 200 KiB of 228 KiB
    ],
)
def test_resident_blocks(grid: int, block: int, registers: int, shared: int, resident: int, limited_by: str) -> None:
    assert LIMIT is not None
    row = residency(shape(grid, block, registers, shared), LIMIT).row(0, named=True)
    assert row["limited_by"] == limited_by
    assert row["occupancy"] == pytest.approx(min(1.0, resident * (block / 32) / 64))
    assert row["waves"] == pytest.approx(grid / (resident * 132))


@pytest.mark.parametrize(
    ("grid", "waves", "fill"),
    [
        (132, 132 / 2112, 1.0),  # one block on each SM: every SM has work, though sixteen would fit
        (66, 66 / 2112, 0.5),  # half of the SMs have none
        (132 * 16 + 132 * 8, 1.5, 1.0),  # the last wave reaches every SM
        (132 * 16 + 33, 2145 / 2112, (1 + 0.25) / 2),  # the last wave reaches a quarter of them
    ],
)
def test_fill_counts_the_sms_that_the_last_wave_reaches(grid: int, waves: float, fill: float) -> None:
    assert LIMIT is not None
    row = residency(shape(grid, 128, 32, 0), LIMIT).row(0, named=True)
    assert row["waves"] == pytest.approx(waves)
    assert row["fill"] == pytest.approx(fill)


def test_incomplete_shapes_are_null_and_impossible_ones_too() -> None:
    assert LIMIT is not None
    assert residency(shape(10, 128, None, 0), LIMIT)["fill"][0] is None
    assert residency(shape(10, 128, 32, 240_000), LIMIT)["fill"][0] is None


def test_without_device_limits_nothing_is_claimed() -> None:
    kernels = shape(10, 128, 32, 0).with_columns(name_id=0, bucket=pl.lit("norm"), start=0, end=5)
    assert occupancy(kernels, pl.Series(["k"]), None, limits(None, {})) == (None, {})
    assert limits(H100, {}) is None
