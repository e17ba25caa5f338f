"""Steps without overlap: against the slow model nanosecond by nanosecond, and by hand."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from diagnose.document.device import RAN, StepSplit
from diagnose.knowledge.buckets import load_buckets
from diagnose.measure import budget
from diagnose.measure.budget import absent_cells, check_split, check_splits, compute_shares
from diagnose.measure.device import DeviceMeasure
from tests.builders.scene import Span, await_event, record, run, scene
from tests.measure.waits.slow_model import make_case, split_cells
from tests.measure.waits.test_stalls import swept

BUCKETS = tuple(load_buckets())

COMPUTE = ["attention", "expert_gemm", "dense_gemm", "elementwise"]
SHARED = pl.DataFrame(
    {
        "class_id": range(6),
        "bucket": [*COMPUTE, "attention", "dispatch"],
        "role": ["compute"] * 5 + ["transport"],
        "kind": [None] * 5 + ["expert"],
        "backend": [None] * 4 + ["second", "nccl"],
    },
    schema_overrides={"class_id": pl.UInt16},
)


@given(st.integers(min_value=0, max_value=10**9))
def test_time_without_compute_equals_the_slow_model(seed: int) -> None:
    case = make_case(seed)
    if not case.windows or not case.waits:  # without a resolved wait producers are inferred, which the model does not
        return
    one = swept(case)
    cells = absent_cells(one.found, one.ran, one.work, one.windows)
    for place, window in enumerate(case.windows):
        own = {(ran, why): ns for index, ran, why, ns in cells.iter_rows() if index == place}
        assert own == split_cells(case, window)


@given(st.integers(min_value=0, max_value=10**9))
def test_without_dependencies_all_the_time_without_compute_is_still_there(seed: int) -> None:
    case = make_case(seed, with_dependencies=False)
    if not case.windows:
        return
    one = swept(case)
    cells = absent_cells(one.found, one.ran, one.work, one.windows)
    for place, window in enumerate(case.windows):
        own, told = cells.filter(pl.col("index") == place), split_cells(case, window)
        assert own["ns"].sum() == sum(told.values())
        for what in RAN:
            assert own.filter(pl.col("ran") == what)["ns"].sum() == sum(ns for (ran, _), ns in told.items() if ran == what)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 5)), min_size=1, max_size=14), st.integers(1, 39))
def test_buckets_that_compute_at_once_share_equally_and_nothing_is_lost(intervals: list[tuple[int, int, int]], cut: int) -> None:
    rows = sorted((start, start + length, of) for start, length, of in intervals)
    work = pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64, "class_id": pl.UInt16}, orient="row").with_columns(
        pl.lit("kernel").alias("kind")
    )
    spans = [(0, cut), (cut, 60)]
    windows = pl.DataFrame(
        [(4 + at, *span) for at, span in enumerate(spans)], schema={"index": pl.Int32, "start": pl.Int64, "end": pl.Int64}, orient="row"
    )
    found = compute_shares(budget.concurrency(work, SHARED, windows), pl.Enum(BUCKETS))
    buckets = SHARED["bucket"].to_list()
    for index, window in enumerate(spans, 4):
        together: Counter[tuple[str, ...]] = Counter()
        for moment in range(*window):
            states = {buckets[of] for start, end, of in rows if start <= moment < end and of < 5}
            together[tuple(bucket for bucket in BUCKETS if bucket in states)] += 1
        expected: Counter[str] = Counter()
        for states_, ns in together.items():
            for place, bucket in enumerate(states_):
                expected[bucket] += ns // len(states_) + (place < ns % len(states_))
        assert [(bucket, ns) for at, bucket, ns in found.iter_rows() if at == index] == [
            (bucket, expected[bucket]) for bucket in BUCKETS if expected[bucket]
        ]


STEPS = [Span(text=f"iteration {number}", start=1000 * number, end=1000 * number + 1000) for number in range(2)]


def only(one: list[DeviceMeasure]) -> DeviceMeasure:
    (found,) = one
    return found


def cells(step: StepSplit) -> dict[tuple[str, str], int]:
    return {(cell.ran, cell.why): cell.ns for cell in step.absent}


def overlapping() -> DeviceMeasure:
    """Two steps: an expert product beside attention and a norm for 101 ns, an exchange half hidden, waited for by the norm, a copy that
    nobody waits for.
    """
    items = [
        run("attention", 10, 210, 1, stream=7),
        run("expert", 109, 310, 2, stream=9),
        run("nccl", 250, 400, 3, stream=20),
        record(4, 20, event=1, sync=1),
        await_event(5, 7, event=1, sync=1),
        run("norm", 405, 500, 6, stream=7),
        run("memcpy", 520, 540, 7, stream=30),
        run("attention", 1010, 1100, 1001, stream=7),
        run("permute", 1150, 1160, 1002, stream=9),
    ]
    return only(scene(items, STEPS).measure())


def test_a_step_by_hand() -> None:
    first, second = overlapping().split
    assert (first.index, first.window_ns) == (0, 1000)
    # attention alone 10 … 109, both 109 … 210 (101 ns: 51 and 50), the expert product alone until 310, the norm 405 … 500
    assert first.compute == {"attention": 99 + 51, "expert_gemm": 50 + 100, "norm": 95}
    assert list(first.compute) == ["attention", "expert_gemm", "norm"], "in the order of the vocabulary"
    assert cells(first) == {
        ("transport", "transport"): 90,
        ("copy", "host_work"): 20,
        ("nothing", "dependency_stalled"): 5,
        ("nothing", "host_work"): 482,  # until the next step's attention was launched, which took until 1002
        ("nothing", "step_end"): 8,  # launched, but nothing that this step computes follows
    }
    assert (second.window_ns, second.compute) == (150, {"attention": 90})
    assert cells(second) == {("packing", "packing"): 10, ("nothing", "step_end"): 50}


def test_the_parts_agree_with_the_budget_and_a_wrong_one_is_a_fault() -> None:
    one = overlapping()
    check_splits(one.split, one.typical.per_step)
    step, (first, _) = one.typical.per_step[0], one.split
    for wrong in (
        structs.replace(first, window_ns=first.window_ns + 1),
        structs.replace(first, compute={**first.compute, "norm": 94}),
        structs.replace(first, absent=first.absent[1:]),
        structs.replace(first, absent=tuple(structs.replace(cell, why="host_sync") for cell in first.absent)),
        structs.replace(first, absent=tuple(structs.replace(cell, ran="nothing") for cell in first.absent)),
    ):
        with pytest.raises(AssertionError, match="split of step 0"):
            check_split(wrong, step)
