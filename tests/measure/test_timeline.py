"""The drawn step: bounded in size, nothing outside it, nothing lost in silence."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.measure.device import DeviceMeasure
from diagnose.measure.timeline import BARS, GAPS, DrawnStep, drawn
from tests.builders.scene import Item, Span, run, scene

NAMES = pl.Series(["a" * 400, "short"], dtype=pl.String)


def ops(rows: list[tuple[int, int, int, str]]) -> pl.DataFrame:
    """(start, end, stream, bucket) of compute operations."""
    frame = pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64, "stream": pl.Int64, "bucket": pl.String}, orient="row")
    return frame.with_columns(pl.lit("compute").alias("role"), pl.lit(1, dtype=pl.Int32).alias("name_id"))


def gaps(rows: list[tuple[int, int, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64, "cause": pl.String}, orient="row")


def draw(
    rows: list[tuple[int, int, int, str]], pieces: list[tuple[int, int, str]] | None = None, window: tuple[int, int, int] = (0, 0, 1000)
) -> DrawnStep:
    return drawn(ops(rows), gaps(pieces or []), window, NAMES)


def bars(found: DrawnStep) -> list[tuple[int, int, int, str, int]]:
    return [(bar.start_ns, bar.end_ns, bar.stream, bar.bucket, bar.kernels) for bar in found.ops]


def test_operations_of_one_bucket_that_touch_are_one_bar() -> None:
    found = draw([(0, 10, 7, "norm"), (10, 20, 7, "norm"), (21, 30, 7, "norm"), (32, 40, 7, "norm")])
    assert bars(found) == [(0, 30, 7, "norm", 3), (32, 40, 7, "norm", 1)]  # in a step of 1000 ns, 1 ns can't be seen


def test_other_buckets_and_streams_are_bars_of_their_own() -> None:
    found = draw([(0, 10, 7, "norm"), (10, 20, 7, "loss"), (20, 30, 7, "norm"), (0, 10, 8, "norm")])
    assert bars(found) == [(0, 10, 7, "norm", 1), (10, 20, 7, "loss", 1), (20, 30, 7, "norm", 1), (0, 10, 8, "norm", 1)]


def test_no_bar_reaches_out_of_the_step() -> None:
    found = draw([(90, 150, 7, "norm"), (180, 260, 8, "norm")], window=(3, 100, 200))
    assert bars(found) == [(100, 150, 7, "norm", 1), (180, 200, 8, "norm", 1)]
    assert (found.step, found.start_ns, found.end_ns) == (3, 100, 200)


def test_bars_beyond_the_bound_are_counted_and_the_longest_stay() -> None:
    rows = [(100 * n, 100 * n + (20 if n % 2 else 10), stream, "norm") for stream in range(4) for n in range(BARS // 2)]
    found = draw(rows, window=(0, 0, 50 * BARS))
    assert len(found.ops) == BARS
    assert {bar.end_ns - bar.start_ns for bar in found.ops} == {20}
    assert found.omitted == BARS
    assert sum(bar.kernels for bar in found.ops) + found.omitted == len(rows)


def test_gaps_of_one_cause_that_touch_are_one_and_others_stay_apart() -> None:
    found = draw([], [(0, 10, "python"), (10, 20, "python"), (20, 30, "launch"), (40, 50, "launch")])
    assert [(gap.start_ns, gap.end_ns, gap.cause) for gap in found.gaps] == [(0, 20, "python"), (20, 30, "launch"), (40, 50, "launch")]


def test_gaps_beyond_the_bound_are_counted_and_the_longest_stay() -> None:
    pieces = [(100 * n, 100 * n + (50 if n % 2 else 40), "python") for n in range(2 * GAPS)]
    found = draw([], pieces, window=(0, 0, 200 * GAPS))
    assert len(found.gaps) == GAPS
    assert {gap.end_ns - gap.start_ns for gap in found.gaps} == {50}
    assert found.omitted == GAPS


def test_long_names_are_cut() -> None:
    found = drawn(ops([(0, 5, 7, "norm")]).with_columns(pl.lit(0, dtype=pl.Int32).alias("name_id")), gaps([]), (0, 0, 10), NAMES)
    assert found.ops[0].name == "a" * 300


def test_an_empty_step_is_drawn_empty() -> None:
    assert draw([]) == DrawnStep(step=0, start_ns=0, end_ns=1000, ops=(), gaps=(), omitted=0)


# ---------------------------------------------------------------------------------------------------- of a measured device


def measured(items: list[Item], spans: list[Span]) -> DeviceMeasure:
    (one,) = scene(items, spans).measure()
    return one


@pytest.mark.parametrize(("lengths", "shown"), [((90, 50, 70), 2), ((50, 70), 0), ((70,), 0), ((50, 50, 50), 1)])
def test_the_step_of_median_length_is_drawn(lengths: tuple[int, ...], shown: int) -> None:
    """Of an even number the shorter of the two in the middle, of equal ones the earlier of the middle."""
    items: list[Item] = []
    spans: list[Span] = []
    now = 10
    for number, length in enumerate(lengths):
        items.append(run("gemm", now, now + length, now - 5))
        spans.append(Span(text=f"iteration {number}", start=now - 6, end=now - 1))
        now += length
    found = measured(items, spans).timeline
    assert found.step == shown
    assert found.end_ns - found.start_ns == lengths[shown]


def test_bars_and_gaps_fill_the_step_without_compute_and_gap_together() -> None:
    one = measured([run("gemm", 0, 10, 0), run("nccl", 15, 60, 1, stream=20), run("gemm", 70, 100, 2)], [])
    compute = sum(bar.end_ns - bar.start_ns for bar in one.timeline.ops if bar.role == "compute")
    assert compute + sum(gap.end_ns - gap.start_ns for gap in one.timeline.gaps) == 100
    assert one.timeline.omitted == 0


# ---------------------------------------------------------------------------------------------------- known to be wrong


def test_a_bar_is_not_drawn_solid_where_the_device_was_mostly_idle() -> None:
    """Kernels of 5 µs every 50 µs in a step of 200 ms: a tenth busy."""
    rows = [(50_000 * n, 50_000 * n + 5_000, 7, "norm") for n in range(4000)]
    found = draw(rows, window=(0, 0, 200_000_000))
    assert sum(bar.end_ns - bar.start_ns for bar in found.ops) < 2 * 4000 * 5_000
