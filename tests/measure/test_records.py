"""From measured frames to the document's records: medians over all steps, shares, order, and the check of the identities."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from msgspec import structs

from diagnose.document.device import HostCost, Spread, StepBudget, Unclassified, Window
from diagnose.measure.device import DeviceMeasure, check_identities, step_median
from diagnose.measure.records import device_records, kernels, split, steps, timeline, unclassified
from tests.builders.scene import Item, Span, call, run, scene

STEPS = [Span(text=f"iteration {number}", start=1000 * number, end=1000 * number + 1000) for number in range(3)]


def three_steps(extra: tuple[Item, ...] = ()) -> DeviceMeasure:
    """Three steps of 1000 ns with a GEMM of 600, 500 and 400 ns; the exchange runs in the first two only, for 100 and 300 ns."""
    items = [
        run("gemm", 10, 610, 1),
        run("nccl", 700, 800, 2, stream=20),
        run("gemm", 1010, 1510, 1001),
        run("nccl", 1600, 1900, 1002, stream=20),
        run("gemm", 2010, 2410, 2001),
    ]
    (one,) = scene(sorted([*items, *extra], key=lambda item: item.at or 0), STEPS).measure()
    return one


@pytest.mark.parametrize(
    ("values", "middle"), [([], 0), ([5], 5), ([5, 8], 6), ([9, 1, 5], 5), ([1, 2, 3, 10], 2), ([None, 4], 4), ([-5, -2], -4)]
)
def test_the_median_is_an_integer_rounded_down(values: list[int | None], middle: int) -> None:
    assert step_median(pl.Series(values, dtype=pl.Int64)) == middle


def test_the_budget_holds_each_step_and_the_median_of_each_figure() -> None:
    found = device_records(three_steps()).budget
    assert [(step.index, step.window_ns, step.compute_busy_ns, step.transport_busy_ns) for step in found.per_step] == [
        (0, 1000, 600, 100),
        (1, 1000, 500, 300),
        (2, 400, 400, 0),
    ]
    assert found.median is not None
    assert (found.median.index, found.median.window_ns, found.median.compute_busy_ns, found.median.transport_busy_ns) == (
        None,
        1000,
        500,
        100,
    )


def test_a_bucket_that_a_step_lacks_counts_as_nothing_there() -> None:
    rows = {row.bucket: row for row in device_records(three_steps()).buckets}
    assert (rows["dispatch"].kernels, rows["dispatch"].work_ns, rows["dispatch"].busy_ns, rows["dispatch"].exclusive_ns) == (
        1,
        100,
        100,
        100,
    )
    assert (rows["dense_gemm"].kernels, rows["dense_gemm"].work_ns) == (1, 500)
    assert rows["dispatch"].share == 400 / 1900
    assert sum(row.share for row in rows.values()) == 1.0
    assert rows["dispatch"].phase == {"forward": 0, "backward": 0, "recompute": 0, "optimizer": 0, "unknown": 133}
    assert rows["dispatch"].decided_by == {"rule": 0.0, "module": 0.0, "operator": 0.0, "name": 1.0, "neighbours": 0.0}


def test_a_bucket_in_one_of_three_steps_has_median_zero_and_still_its_share() -> None:
    rows = {row.bucket: row for row in device_records(three_steps((run("adam", 2420, 2500, 2410),))).buckets}
    assert (rows["optimizer"].kernels, rows["optimizer"].work_ns, rows["optimizer"].share) == (0, 0, 80 / 1980)


def test_buckets_come_with_most_work_first() -> None:
    assert [row.bucket for row in device_records(three_steps()).buckets] == ["dense_gemm", "dispatch"]


def test_communication_by_kind_and_backend() -> None:
    (row,) = device_records(three_steps()).communication
    assert (row.kind, row.backend, row.count, row.work_ns, row.busy_ns, row.exposed_ns) == ("expert", "nccl", 1, 100, 100, 100)
    assert row.overlap == 0.0
    assert row.transfer_ns is None


def test_overlap_is_what_ran_beside_other_work() -> None:
    (one,) = scene([run("gemm", 0, 100, 0), run("nccl", 40, 140, 1, stream=20)]).measure()
    (row,) = device_records(one).communication
    assert (row.busy_ns, row.exposed_ns, row.overlap) == (100, 40, 0.6)


def test_two_kinds_that_run_together_are_neither_exposed() -> None:
    (one,) = scene([run("gemm", 0, 10, 0), run("nccl", 20, 120, 1, stream=20), run("allreduce", 20, 120, 2, stream=21)]).measure()
    assert [(row.kind, row.exposed_ns) for row in device_records(one).communication] == [("expert", 0), ("data", 0)]
    assert one.budget.per_step["transport_exposed_ns"].to_list() == [100]


def test_blocking_names_who_compute_waited_for() -> None:
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), run("permute", 62, 70, 2), run("gemm", 71, 80, 3)]
    (one,) = scene(program).measure()
    assert [(row.bucket, row.role, row.kind, row.blocking_ns, row.status) for row in device_records(one).blocking] == [
        ("dispatch", "transport", "expert", 48, "inferred"),
        ("dispatch", "packing", None, 8, "measured"),
    ]


def test_host_costs_name_the_call_and_come_costliest_first() -> None:
    program = [run("gemm", 0, 10, 0), call("cudaMalloc", 20, 50), call("cudaStreamSynchronize", 55, 60), run("gemm", 110, 120, 99)]
    (one,) = scene(program).measure()
    assert device_records(one).host == (
        HostCost(rank=0, device=0, name="no CUDA call on the launching threads", cause="python", launch_starved_ns=54, count=3),
        HostCost(rank=0, device=0, name="cudaMalloc", cause="allocator", launch_starved_ns=30, count=1),
        HostCost(rank=0, device=0, name="cudaStreamSynchronize", cause="sync", launch_starved_ns=5, count=1),
        HostCost(rank=0, device=0, name="launching API calls", cause="launch", launch_starved_ns=1, count=1),
    )


def test_unclassified_names_come_with_their_share() -> None:
    one = three_steps()
    other = one.usage.names.with_columns(pl.when(pl.col("name") == "nccl").then(pl.lit("other")).otherwise("bucket").alias("bucket"))
    assert unclassified(replace(one, usage=replace(one.usage, names=other))) == (
        Unclassified(name="nccl", kernels=2, work_ns=400, share=400 / 1900),
    )
    assert unclassified(one) == ()


def test_steps_of_all_devices_and_the_durations_of_the_one_shown() -> None:
    items = [run("gemm", 10, 60, 1), run("gemm", 70, 90, 2, device=1)]
    first, second = scene(items).measure()
    found = steps([first, second], second)
    assert (found.anchor, found.n, found.duration_ns) == ("capture", 1, Spread(median=20, min=20, max=20, n=1))
    assert found.windows == (
        Window(index=0, start_ns=10, end_ns=60, rank=0, device=0),
        Window(index=0, start_ns=70, end_ns=90, rank=0, device=1),
    )


def test_another_rank_is_one_replace() -> None:
    """Rank and device stand once in a device's measurements; every record of the document takes them from there."""
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), run("gemm", 61, 80, 3), run("gemm", 110, 120, 99)]
    one = replace(scene(program).measure()[0], rank=5)
    records = device_records(one)
    rows = [records.totals, records.budget, *records.buckets, *records.communication, *records.blocking, *records.host]
    assert {(row.rank, row.device) for row in [*rows, timeline(one), split(one), kernels(one), *steps([one], one).windows]} == {(5, 0)}
    assert all((records.buckets, records.communication, records.blocking, records.host))


# ---------------------------------------------------------------------------------------------------- identities


def broken(**change: int) -> list[StepBudget]:
    (first, *rest) = three_steps().typical.per_step
    return [structs.replace(first, **{name: getattr(first, name) + by for name, by in change.items()}), *rest]


def test_a_sound_budget_passes() -> None:
    check_identities(three_steps().typical.per_step, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"device_idle_ns": 1}, "device_busy \\+ device_idle = window"),
        ({"compute_busy_ns": -1}, "compute_busy \\+ compute_absent = window"),
        ({"blocking_ns": 1}, "stalls = compute_absent"),
        ({"dependency_stalled_ns": -1}, "stalls = compute_absent"),
        ({"host_work_ns": 1}, "host parts = launch_starved"),
        ({"blocking_copy_ns": 10_000}, "blocking parts ≤ blocking"),
    ],
)
def test_a_budget_that_does_not_add_up_is_a_fault(change: dict[str, int], named: str) -> None:
    with pytest.raises(AssertionError, match=f"budget of step 0 on rank 0 does not add up.*{named}"):
        check_identities(broken(**change), 0)
