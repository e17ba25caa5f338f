"""From measured frames to the document's records: means over all steps, shares, order, and the check of the identities."""

import statistics
from collections import Counter, defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from diagnose.document.device import HostCost, KernelUse, Spread, StepBudget, Unclassified, Window
from diagnose.knowledge.buckets import bucket_type, load_buckets
from diagnose.measure.device import DeviceMeasure, check_identities, step_median
from diagnose.measure.kernels import NAME, kernel_table, uses
from diagnose.measure.records import device_records, kernels, split, steps, timeline, unclassified
from diagnose.measure.timeline import joined_pieces
from diagnose.measure.where import device_where
from diagnose.model.statistics import integer_median
from diagnose.model.trace import OpKind
from diagnose.reason.conclude import with_kernels
from tests.builders.cases import for_each
from tests.builders.records import replace
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


@for_each("values, middle", ([], 0), ([5], 5), ([5, 8], 6), ([9, 1, 5], 5), ([1, 2, 3, 10], 2), ([None, 4], 4), ([-5, -2], -4))
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
        None, 1000, 500, 100,
    )  # fmt: skip


def test_the_mean_is_of_all_steps_together_and_the_typical_step_is_a_real_one() -> None:
    """Two steps of 1000 ns and one of 400: 800 on average, and the first is the one of median length."""
    found = device_records(three_steps()).budget
    assert found.mean is not None
    assert (found.mean.index, found.mean.window_ns, found.mean.compute_busy_ns, found.mean.transport_busy_ns) == (None, 800, 500, 133)
    assert found.typical == 0


def test_a_bucket_that_a_step_lacks_counts_as_nothing_there() -> None:
    rows = {row.bucket: row for row in device_records(three_steps()).buckets}
    assert (rows["dispatch"].kernels, rows["dispatch"].work_ns, rows["dispatch"].busy_ns, rows["dispatch"].exclusive_ns) == (
        1, 133, 133, 133,
    )  # fmt: skip
    assert (rows["dense_gemm"].kernels, rows["dense_gemm"].work_ns) == (1, 500)
    assert rows["dispatch"].share == 400 / 1900
    assert sum(row.share for row in rows.values()) == 1.0
    assert rows["dispatch"].phase == {"forward": 0, "backward": 0, "recompute": 0, "optimizer": 0, "unknown": 133}
    assert rows["dispatch"].decided_by == {"rule": 0.0, "module": 0.0, "operator": 0.0, "name": 1.0, "neighbours": 0.0}


def test_buckets_come_with_most_work_first_and_one_of_a_single_step_counts_with_its_part() -> None:
    rows = {row.bucket: row for row in device_records(three_steps((run("adam", 2420, 2500, 2410),))).buckets}
    assert (rows["optimizer"].kernels, rows["optimizer"].work_ns, rows["optimizer"].share) == (1, 27, 80 / 1980)
    assert [row.bucket for row in device_records(three_steps()).buckets] == ["dense_gemm", "dispatch"]


def test_communication_by_kind_and_backend_and_what_ran_beside_it() -> None:
    (row,) = device_records(three_steps()).communication
    assert (row.kind, row.backend, row.count, row.work_ns, row.busy_ns, row.exposed_ns) == ("expert", "nccl", 1, 133, 133, 133)
    assert (row.overlap, row.transfer_ns) == (0.0, None)
    (one,) = scene([run("gemm", 0, 100, 0), run("nccl", 40, 140, 1, stream=20)]).measure()
    (row,) = device_records(one).communication
    assert (row.busy_ns, row.exposed_ns, row.overlap) == (100, 40, 0.6)
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
        HostCost(rank=0, device=0, name="no CUDA call on the launching threads", cause="host", launch_starved_ns=54, count=3),
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
    assert (found.anchor, found.n, found.duration_ns) == ("capture", 1, Spread(median=20, min=20, max=20, n=1, mean=20))
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
    (first, *rest) = three_steps().listed.steps
    return [structs.replace(first, **{name: getattr(first, name) + by for name, by in change.items()}), *rest]


def test_a_sound_budget_passes() -> None:
    check_identities(three_steps().listed.steps, 0)


@for_each(
    "change, named",
    ({"device_idle_ns": 1}, "device_busy \\+ device_idle = window"),
    ({"compute_busy_ns": -1}, "compute_busy \\+ compute_absent = window"),
    ({"blocking_ns": 1}, "stalls = compute_absent"),
    ({"dependency_stalled_ns": -1}, "stalls = compute_absent"),
    ({"host_work_ns": 1}, "host parts = launch_starved"),
    ({"blocking_copy_ns": 10_000}, "blocking parts ≤ blocking"),
)
def test_a_budget_that_does_not_add_up_is_a_fault(change: dict[str, int], named: str) -> None:
    with pytest.raises(AssertionError, match=f"budget of step 0 on rank 0 does not add up.*{named}"):
        check_identities(broken(**change), 0)


# ---------------------------------------------------------------------------------------------------- of a measured device


def measured(items: list[Item], spans: list[Span]) -> DeviceMeasure:
    (one,) = scene(items, spans).measure()
    return one


@for_each("lengths, shown", ((90, 50, 70), 2), ((50, 70), 0), ((70,), 0), ((50, 50, 50), 1))
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


def test_every_operation_of_the_step_stands_in_its_columns_with_its_launch_range_and_what_it_waited_for() -> None:
    items = [
        run("gemm", 10, 12, 9),
        run("nccl", 11, 60, 10, stream=20),
        run("gemm", 61, 100, 12),
        *(run("gemm", at, at + 1, at - 5) for at in range(100, 300, 2)),
    ]
    one = measured(items, [Span(text="iteration 0", start=0, end=280), Span(text="attn(F)", start=8, end=11)])
    found = timeline(one).columns
    count = len(found.start_ns)
    assert count > 90
    assert found.omitted == 0
    assert {len(column) for column in (found.duration_ns, found.stream, found.bucket, found.name, found.queued_ns, found.range)} == {count}
    zero = one.timeline.start_ns
    assert [zero + start for start in found.start_ns[:3]] == [10, 11, 61]
    assert found.duration_ns[:3] == (2, 49, 39)
    assert [found.streams[place] for place in found.stream[:3]] == [7, 20, 7]
    assert found.queued_ns[:3] == (0, 0, 48)  # from the end of the launching call
    assert [None if place is None else found.names[place] for place in found.range[:3]] == ["attn(F)", "attn(F)", "iteration 0"]
    gemm = {
        start + zero + at
        for start, length, stream in zip(found.start_ns, found.duration_ns, found.stream, strict=True)
        if stream == 0
        for at in range(length)
    }
    assert sum(found.gap_duration_ns) + len(gemm) == one.timeline.end_ns - zero
    waited = [found.names[found.name[by]] for by in found.gap_blocked_by if by is not None]
    assert set(waited) <= {"nccl"} or waited == []


def test_calls_and_ranges_of_the_host_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each of five kernels, and six ranges that meet the step; four of each are kept."""
    items = [run("gemm", at, at + 5, at - 4) for at in range(10, 60, 10)]
    spans = [Span(text="iteration 0", start=0, end=70), *(Span(text=f"attn {at}", start=at, end=at + 2) for at in range(10, 60, 10))]
    monkeypatch.setattr("diagnose.measure.step_host.WHOLE", 4)
    host = timeline(measured(items, spans)).host
    assert host is not None
    assert (len(host.call_start_ns), len(host.range_start_ns), host.omitted) == (4, 4, 5 + 6 - 8)


def test_the_host_of_the_step_has_every_launch_short_ranges_too_and_when_each_place_shows() -> None:
    items = [
        run("gemm", 10, 12, 1),
        run("nccl", 15, 60, 14, stream=20),
        run("gemm", 61, 100, 14),
        *(run("gemm", at, at + 1, at - 5) for at in range(200, 300, 2)),
    ]
    spans = [
        Span(text="iteration 0", start=5, end=150),
        Span(text="iteration 1", start=160, end=280),
        Span(text="attn(F)", start=210, end=211),
    ]
    one = measured(items, spans)
    shown = timeline(one)
    assert shown.columns is not None
    assert shown.host is not None
    columns, host = shown.columns, shown.host
    ends = [start + length for start, length in zip(host.call_start_ns, host.call_duration_ns, strict=True)]
    issued = [start - queued for start, queued in zip(columns.start_ns, columns.queued_ns, strict=True) if queued is not None]
    assert [ends[call] for call in host.launched_by if call is not None] == issued
    assert len(issued) == len(columns.start_ns)
    assert {host.names[name] for name in host.range_name} >= {"iteration 1", "attn(F)"}, "a range too short to name a pause is kept too"
    assert host.omitted == 0
    places = one.timeline.spans
    begin = shown.start_ns
    assert {"bucket:dense_gemm", "role:compute"} <= places.keys()
    for found in places.values():
        assert all(start >= 0 and length > 0 and start + length <= shown.end_ns - begin for start, length in found)
        assert list(found) == sorted(found)


# ---------------------------------------------------------------------------------------------------- known to be wrong


# -------------------- kernels by name and stream

OPERATION = st.tuples(
    st.integers(0, 2), st.sampled_from([None, 3, 7]), st.integers(0, 4), st.integers(0, 9), st.sampled_from(["kernel", "memcpy"])
)
Row = tuple[int, int | None, int, int, str]


def framed(rows: list[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operations in order of start, and the names with most work first, as a device has them."""
    inside = pl.DataFrame(
        {
            "index": [4 + step for step, *_ in rows],
            "stream": [stream for _, stream, *_ in rows],
            "name_id": [name for _, _, name, *_ in rows],
            "bucket": ["attention" if name % 2 else "norm" for _, _, name, *_ in rows],
            "role": ["copy" if kind == "memcpy" else "compute" for *_, kind in rows],
            "kind": [kind for *_, kind in rows],
            "operation": ["x"] * len(rows),
            "start": [10 * place for place in range(len(rows))],
            "end": [10 * place + length for place, (_, _, _, length, _) in enumerate(rows)],
        },
        schema={
            "index": pl.Int32,
            "stream": pl.Int64,
            "name_id": pl.Int32,
            "bucket": bucket_type(load_buckets()),
            "role": pl.Enum(["compute", "transport", "packing", "copy"]),
            "kind": OpKind,
            "operation": pl.Categorical,
            "start": pl.Int64,
            "end": pl.Int64,
        },
    )
    work = inside.group_by(NAME).agg((pl.col("end") - pl.col("start")).sum().alias("work"))
    return inside, work.sort("work", *NAME, descending=[True, *[False] * len(NAME)]).select(NAME)


@given(st.lists(OPERATION, min_size=1, max_size=40), st.integers(1, 12))
def test_equals_plain_counting(rows: list[Row], kept: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])  # steps follow each other
    inside, names = framed(rows)
    windows = pl.DataFrame({"index": [4, 5, 6]}, schema={"index": pl.Int32})
    table = kernel_table(uses(inside, bucket_type(load_buckets())), windows, names, kept)
    keys = [(names.row(place)[0], names.row(place)[3], stream) for place, stream in table.frame.select("place", "stream").iter_rows()]
    assert len(set(keys)) == len(keys) == min(kept, len({(name, kind, stream) for _, stream, name, _, kind in rows}))
    work, launches, lengths = defaultdict(lambda: [0, 0, 0]), defaultdict(lambda: [0, 0, 0]), defaultdict(list)
    before: dict[object, Counter[object]] = defaultdict(Counter)
    after: dict[object, Counter[object]] = defaultdict(Counter)
    last: dict[object, object] = {}
    for step, stream, name, length, kind in rows:
        key = (name, kind, stream)
        work[key][step] += length
        launches[key][step] += 1
        lengths[key].append(length)
        if (step, stream) in last:
            before[key][last[step, stream]] += 1
            after[last[step, stream]][key] += 1
        last[step, stream] = key
    for key, row in zip(keys, table.frame.iter_rows(named=True), strict=True):
        assert (row["launches"], row["work_ns"]) == (integer_median(launches[key]), integer_median(work[key]))
        assert row["launch_ns"] == int(statistics.median(lengths[key]))
        for told, counted in ((row["previous"], before[key]), (row["next"], after[key])):
            if told is None:
                assert not counted or any(counted[one] == max(counted.values()) and one not in keys for one in counted)
            else:
                assert counted[keys[told]] == max(counted.values())
    left_out = [key for key in work if key not in keys]
    assert table.omitted == len(left_out)
    assert table.omitted_ns == integer_median([sum(work[key][step] for key in left_out) for step in range(3)])
    assert min((sum(work[key]) for key in keys), default=0) >= max((sum(work[key]) for key in left_out), default=0)
    assert [row["work_ns"] for row in table.frame.iter_rows(named=True)] == sorted(table.frame["work_ns"], reverse=True)


@pytest.fixture
def rows() -> dict[tuple[str, int | None], KernelUse]:
    """Three steps: attention, norm, attention, product on one stream, an exchange on another; the last step has a copy more and no
    exchange.
    """
    items = []
    for step in range(3):
        at = 1000 * step
        items += [
            run("attention", at + 10, at + 110, at + 1),
            run("norm", at + 120, at + 140, at + 2),
            run("attention", at + 150, at + 260 + step, at + 3),
            run("gemm", at + 300, at + 500, at + 4),
        ]
        if step < 2:
            items.append(run("nccl", at + 310, at + 400, at + 5, stream=20))
    items.append(run("memcpy", 2600, 2650, 2006))
    one = only(scene(items, STEPS).measure())
    found = kernels(one)
    assert (found.rank, found.device, found.omitted, found.omitted_ns) == (0, 0, 0, 0)
    return {(row.name, row.stream): row for row in found.kernels}


def only(found: list[DeviceMeasure]) -> DeviceMeasure:
    (one,) = found
    return one


def test_launches_and_work_are_medians_over_the_steps(rows: dict[tuple[str, int | None], KernelUse]) -> None:
    attention, exchange, copy = rows["attention", 7], rows["nccl", 20], rows["memcpy", 7]
    assert (attention.bucket, attention.role, attention.launches, attention.work_ns, attention.launch_ns) == (
        "attention", "compute", 2, 211, 105,
    )  # fmt: skip
    assert (exchange.bucket, exchange.role, exchange.launches, exchange.work_ns, exchange.launch_ns) == ("dispatch", "transport", 1, 90, 90)
    assert (copy.role, copy.launches, copy.work_ns, copy.launch_ns) == ("copy", 0, 0, 50), "in one step of three"


def test_neighbours_are_the_most_frequent_on_the_same_stream_within_a_step(rows: dict[tuple[str, int | None], KernelUse]) -> None:
    ordered = sorted(rows.values(), key=lambda row: -row.work_ns)
    assert [row.name for row in ordered] == ["attention", "gemm", "nccl", "norm", "memcpy"]

    def named(place: int | None) -> str | None:
        return None if place is None else ordered[place].name

    assert (named(rows["norm", 7].previous), named(rows["norm", 7].next)) == ("attention", "attention")
    assert (named(rows["gemm", 7].previous), named(rows["gemm", 7].next)) == ("attention", "memcpy")
    # the product of the step before stands in another step; the norm is as frequent after attention as the product, which has more work
    assert (named(rows["attention", 7].previous), named(rows["attention", 7].next)) == ("norm", "gemm")
    assert (rows["nccl", 20].previous, rows["nccl", 20].next) == (None, None)


def test_of_many_devices_only_the_lowest_and_that_of_the_verdict_are_listed() -> None:
    one = only(scene([run("gemm", 10, 20, 1)]).measure())
    devices = [replace(one, rank=rank) for rank in (7, 3, 9, 5, 11, 13, 15, 17, 2)]
    assert with_kernels(devices[:8], devices[2]) == devices[:8]
    assert [device.rank for device in with_kernels(devices, devices[2])] == [2, 9]
    assert [device.rank for device in with_kernels(devices, devices[8])] == [2]


def test_kernels_are_tiny_by_their_mean() -> None:
    """A thousand of a short kernel are tiny ones however long they take together, and a long one is none."""
    items = [*(run("norm", 10_000 * at, 10_000 * at + 4_000, at + 1) for at in range(20)), run("gemm", 300_000, 400_000, 50)]
    (one,) = scene(items, [Span(text="iteration 1", start=0, end=500_000), Span(text="iteration 2", start=500_000, end=600_000)]).measure()
    found = device_where(one, device_records(one))
    assert found["tiny"].top == ("norm",)
    assert set(found["bucket:dense_gemm"].top) == {"gemm"}


def test_touching_gaps_are_one_where_cause_and_blocker_are_the_same() -> None:
    rows = [
        (0, 5, "blocking", 1), (5, 9, "blocking", 1), (9, 12, "blocking", 2), (12, 15, "launch", None), (15, 20, "launch", None),
        (30, 31, "launch", None),
    ]  # fmt: skip
    found = joined_pieces(pl.DataFrame(rows, schema=["start", "end", "cause", "producer"], orient="row"))
    assert found.drop("run").rows() == [(0, 9, "blocking", 1), (9, 12, "blocking", 2), (12, 20, "launch", None), (30, 31, "launch", None)]
