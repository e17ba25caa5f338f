"""What runs in a vision encoder: its phases, the kinds of its operations, and the device's pauses between them."""

from pathlib import Path

import polars as pl
import pytest

from diagnose.measure.vision import vision_encoder
from fixtures import scenario
from fixtures.accuracy import document

OPERATIONS = ("gemm", "attention", "copy")
CLASSES = pl.DataFrame({"class_id": range(3), "operation": OPERATIONS}, schema_overrides={"class_id": pl.UInt16})


def ops(*rows: tuple[int, int, str, str, str | None], index: int = 0) -> pl.DataFrame:
    """Operations of one step: start, end, bucket, operation, phase."""
    made = [(index, start, end, bucket, "compute", OPERATIONS.index(operation), phase) for start, end, bucket, operation, phase in rows]
    schema = {"index": pl.Int64, "start": pl.Int64, "end": pl.Int64, "bucket": pl.String, "role": pl.String}
    return pl.DataFrame(made, schema={**schema, "class_id": pl.UInt16, "phase": pl.String}, orient="row")


def told(*steps: pl.DataFrame, of: int | None = None) -> list[tuple[object, ...]]:
    """Phase, kernels, busy, alone and idle, and the parts, of each phase."""
    found = vision_encoder(pl.concat(steps), CLASSES, of or len(steps))
    return [
        (
            one.phase,
            one.kernels,
            one.busy_ns,
            one.alone_ns,
            one.idle_ns,
            {part.operation: (part.kernels, part.busy_ns) for part in one.parts},
        )
        for one in found
    ]


STEP = (
    (0, 10, "memcpy", "copy", None),
    (20, 30, "vision_encoder", "gemm", "forward"),  # idle before it, but not behind the encoder
    (30, 40, "vision_encoder", "attention", "forward"),
    (35, 50, "vision_encoder", "gemm", "forward"),
    (60, 70, "vision_encoder", "gemm", "forward"),
    (70, 90, "attention", "attention", "forward"),
    (100, 110, "vision_encoder", "gemm", "backward"),
    (105, 115, "memcpy", "copy", None),
    (120, 130, "vision_encoder", "gemm", "backward"),
)


def test_phases_stand_apart_with_their_kinds_of_operation_longest_first() -> None:
    forward = ("forward", 4.0, 40, 40, 10, {"gemm": (3.0, 35), "attention": (1.0, 10)})
    backward = ("backward", 2.0, 20, 15, 0, {"gemm": (2.0, 20)})  # a copy ran beside the first, and stood between the two
    assert told(ops(*STEP)) == told(ops(*STEP), ops(*((a + 1000, b + 1000, *more) for a, b, *more in STEP), index=1)) == [forward, backward]
    assert [list(parts) for *_, parts in told(ops(*STEP))] == [["gemm", "attention"], ["gemm"]]


def test_a_step_without_images_counts_in_the_mean() -> None:
    assert told(ops((0, 10, "vision_encoder", "gemm", None)), of=2) == [(None, 0.5, 5, 5, 0, {"gemm": (0.5, 5)})]


def test_without_an_encoder_there_is_nothing() -> None:
    assert told(ops((0, 10, "attention", "attention", "forward"))) == []


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["nsys", "torch"])
def test_the_phases_are_the_bucket(kind: str, tmp_path: Path) -> None:
    one = scenario.load("compute-vision-heavy")
    found = document(kind, one, one.record(), tmp_path)  # type: ignore[arg-type]
    assert found.vision is not None
    bucket = next(row for row in found.buckets if row.bucket == "vision_encoder")
    assert sum(part.kernels for part in found.vision.passes) == bucket.kernels
    assert abs(sum(part.busy_ns for part in found.vision.passes) - bucket.busy_ns) <= len(found.vision.passes)
    assert [part.phase for part in found.vision.passes][:2] == ["forward", "backward"]
