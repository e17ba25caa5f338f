"""Budget and stalls against the slow model: equal on every random case, to the nanosecond."""

from collections import Counter
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from diagnose.document.device import RAN, StepSplit
from diagnose.knowledge.buckets import bucket_type, load_buckets
from diagnose.knowledge.taxonomy import load_host_rules
from diagnose.measure import budget
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.budget import absent_cells, check_split, compute_shares
from diagnose.measure.device import DeviceMeasure, device_work
from diagnose.measure.host import attribute, host_activity
from diagnose.measure.waits import stalls
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import ceilings
from tests.builders.scene import Span, await_event, record, run, scene
from tests.measure.waits.slow_model import (
    Case,
    beside_transport,
    ends_idle,
    explain,
    explain_beyond,
    make_case,
    running,
    split_cells,
    to_trace,
)

HOSTS = load_host_rules()
CLASSES = pl.DataFrame(
    {
        "class_id": [0, 1, 2, 3],
        "bucket": ["attention", "dispatch", "dispatch", "memcpy"],
        "role": ["compute", "transport", "packing", "copy"],
        "kind": [None, "expert", None, None],
        "backend": [None, "nccl", None, None],
        "phase": [None, None, None, None],
        "operation": ["attention", "exchange", "permute", "copy"],
        "decided_by": ["name"] * 4,
        "rule": ["test"] * 4,
    },
    schema_overrides={"class_id": pl.UInt16, "phase": pl.String},
)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A case with what the split and the bounds are made from."""

    work: pl.DataFrame
    windows: pl.DataFrame
    ran: budget.Concurrency
    found: stalls.Stalls


def swept(case: Case) -> Swept:
    """A case up to the sweep and the pieces of its gaps."""
    trace = to_trace(case)
    numbers = pl.Series("class_id", [op.class_id for op in case.ops], dtype=pl.UInt16)
    classified = Classified(class_id=numbers, classes=CLASSES, payload_id=trace.ops["payload_id"], buckets=bucket_type(load_buckets()))
    ((_, _, work),) = device_work(trace, attribute(trace), classified)
    windows = pl.DataFrame(
        {"index": range(len(case.windows)), "start": [a for a, _ in case.windows], "end": [b for _, b in case.windows]},
        schema={"index": pl.Int32, "start": pl.Int64, "end": pl.Int64},
    )
    found = stalls.stalls(
        work, windows, resolve_waits(trace.waits, pl.Series([None] * len(case.waits), dtype=pl.Int64)), host_activity(trace, work, 0, HOSTS)
    )
    return Swept(work=work, windows=windows, ran=budget.concurrency(work, CLASSES, windows), found=found)


def times_of(one: Swept) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The budget's times, and those of the stalls with what bounds count beyond them."""
    work, windows, found = one.work, one.windows, one.found
    beyond = ceilings(found, windows, work["role"], work["copy_kind"], work.select("start", "issued"))
    times = stalls.stall_times(found, windows, work["role"], work["copy_kind"]).join(beyond, on="index", how="left", maintain_order="left")
    return budget.step_times(one.ran, windows), times


def modelled_budget(case: Case, window: tuple[int, int]) -> dict[str, int]:
    states = [running(case, moment) for moment in range(*window)]

    def busy(*classes: int) -> int:
        return sum(1 for state in states if state & set(classes))

    def alone(*classes: int) -> int:
        return sum(1 for state in states if state and state <= set(classes))

    return {
        "window_ns": len(states),
        "device_busy_ns": busy(0, 1, 2, 3),
        "device_idle_ns": len(states) - busy(0, 1, 2, 3),
        "compute_busy_ns": busy(0),
        "compute_absent_ns": len(states) - busy(0),
        "communication_busy_ns": busy(1, 2),
        "communication_exposed_ns": alone(1, 2),
        "transport_busy_ns": busy(1),
        "transport_exposed_ns": alone(1),
        "packing_busy_ns": busy(2),
        "packing_exposed_ns": alone(2),
        "copy_busy_ns": busy(3),
        "copy_exposed_ns": alone(3),
    }


@given(st.integers(min_value=0, max_value=10**9))
@example(3247)
def test_budget_stalls_bounds_and_split_equal_the_slow_model(seed: int) -> None:
    """Each case is measured once. Without a resolved wait producers are inferred, which the model does not."""
    case = make_case(seed)
    if not case.windows:
        return
    if any(event not in case.records for _, _, event in case.waits) or (case.waits and not case.records):
        pytest.fail("the generator made a wait without a record")
    one = swept(case)
    times, found = times_of(one)
    cells = absent_cells(one.found, one.ran, one.work, one.windows)
    for place, window in enumerate(case.windows):
        budgeted, row = times.row(place, named=True), found.row(place, named=True)
        assert {key: value for key, value in budgeted.items() if key != "index"} == modelled_budget(case, window)
        check_stalls(case, window, row, budgeted["compute_absent_ns"])
        if case.waits:
            own = {(ran, why): ns for index, ran, why, ns in cells.iter_rows() if index == place}
            assert own == split_cells(case, window)
        if case.waits and not ends_idle(case):
            beyond = explain_beyond(case, window)
            assert {name: row[name] for name in beyond} == beyond
    check_synchronising_calls(case, one, found)


def check_stalls(case: Case, window: tuple[int, int], row: dict[str, int], absent: int) -> None:
    """The times of one window are those of the model."""
    expected = explain(case, window)
    assert row["allocator_ns"] == expected.get("allocator", 0)
    assert row["python_gap_ns"] == expected.get("host", 0)
    assert row["host_work_ns"] == expected.get("host", 0) + expected.get("launch", 0)
    assert row["launch_starved_ns"] + row["blocking_ns"] + row["dependency_stalled_ns"] == absent
    blocking = {role: expected.get(f"blocking {role}", 0) for role in ("transport", "packing", "copy", "compute")}
    assert row["beside_transport_ns"] <= row["dependency_stalled_ns"]
    if case.waits:
        assert row["beside_transport_ns"] == beside_transport(case, window)
        assert row["host_sync_ns"] == expected.get("host_sync", 0)
        assert row["blocking_ns"] == sum(blocking.values())
        assert (row["blocking_transport_ns"], row["blocking_packing_ns"], row["blocking_copy_ns"]) == (
            blocking["transport"],
            blocking["packing"],
            blocking["copy"],
        )
        assert row["blocking_host_copy_ns"] == blocking["copy"]
    else:
        assert row["host_sync_ns"] <= expected.get("host_sync", 0)  # an inferred producer may explain some of it
        # an inferred producer may also take the place of one that blocked for longer: only the bounds hold the true figure (seed 3247)
        for blocked in (sum(blocking.values()), row["blocking_ns"]):
            assert row["blocking_lower_ns"] <= blocked <= row["blocking_upper_ns"]


def check_synchronising_calls(case: Case, one: Swept, found: pl.DataFrame) -> None:
    """They are charged with no more than they took."""
    held = host_activity(to_trace(case), one.work, 0, HOSTS).blocked
    assert int(found["host_sync_ns"].sum() + found["sync_restart_ns"].sum()) <= int((held["end"] - held["start"]).sum())
    rest = found["host_work_ns"] - found["launch_shadowed_ns"] - found["sync_restart_ns"]
    assert int(rest.min()) >= 0  # type: ignore[arg-type]


# -------------------- steps without overlap

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
    for split, step in zip(one.split, one.listed.steps, strict=True):
        check_split(split, step)
    step, (first, _) = one.listed.steps[0], one.split
    for wrong in (
        structs.replace(first, window_ns=first.window_ns + 1),
        structs.replace(first, compute={**first.compute, "norm": 94}),
        structs.replace(first, absent=first.absent[1:]),
        structs.replace(first, absent=tuple(structs.replace(cell, why="host_sync") for cell in first.absent)),
        structs.replace(first, absent=tuple(structs.replace(cell, ran="nothing") for cell in first.absent)),
    ):
        with pytest.raises(AssertionError, match="split of step 0"):
            check_split(wrong, step)
