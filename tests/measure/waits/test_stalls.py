"""Budget and stalls against the slow model: equal on every random case, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.knowledge.buckets import bucket_type, load_buckets
from diagnose.knowledge.taxonomy import load_host_rules
from diagnose.measure import budget
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.device import device_work
from diagnose.measure.host import attribute, host_activity
from diagnose.measure.waits import stalls
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import ceilings
from tests.measure.waits.slow_model import Case, ends_idle, explain, explain_beyond, make_case, running, to_trace

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


def measured(case: Case) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The budget's times, and those of the stalls with what bounds count beyond them, of a case."""
    one = swept(case)
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
def test_budget_equals_the_slow_model(seed: int) -> None:
    case = make_case(seed)
    if not case.windows:
        return
    times, _ = measured(case)
    for place, window in enumerate(case.windows):
        row = times.row(place, named=True)
        assert {key: value for key, value in row.items() if key != "index"} == modelled_budget(case, window)


@given(st.integers(min_value=0, max_value=10**9))
def test_stalls_equal_the_slow_model(seed: int) -> None:
    case = make_case(seed)
    if not case.windows:
        return
    if any(event not in case.records for _, _, event in case.waits) or (case.waits and not case.records):
        pytest.fail("the generator made a wait without a record")
    times, found = measured(case)
    resolved = any(True for _ in case.waits)
    for place, window in enumerate(case.windows):
        expected = explain(case, window)
        row = found.row(place, named=True)
        assert row["allocator_ns"] == expected.get("allocator", 0)
        assert row["python_gap_ns"] == expected.get("python", 0)
        assert row["host_work_ns"] == expected.get("python", 0) + expected.get("launch", 0)
        absent = times["compute_absent_ns"][place]
        assert row["launch_starved_ns"] + row["blocking_ns"] + row["dependency_stalled_ns"] == absent
        blocking = {role: expected.get(f"blocking {role}", 0) for role in ("transport", "packing", "copy", "compute")}
        if resolved:
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
            assert row["blocking_lower_ns"] <= sum(blocking.values()) <= row["blocking_ns"] <= row["blocking_upper_ns"]


@given(st.integers(min_value=0, max_value=10**9))
def test_what_bounds_count_beyond_the_split_equals_the_slow_model(seed: int) -> None:
    case = make_case(seed)
    if not case.windows or not case.waits:  # without a resolved wait producers are inferred, which the model does not
        return
    if ends_idle(case):
        return
    _, found = measured(case)
    for place, window in enumerate(case.windows):
        expected = explain_beyond(case, window)
        row = found.row(place, named=True)
        assert {name: row[name] for name in expected} == expected
