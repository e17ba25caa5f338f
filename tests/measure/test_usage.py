"""Kernels by name and stream: launches, work, usual durations and neighbours, against plain counting and by hand."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.document.device import KernelUse
from diagnose.knowledge.buckets import bucket_type, load_buckets
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.kernels import NAME, kernel_table, uses
from diagnose.measure.records import kernels
from diagnose.model.statistics import integer_median
from diagnose.model.trace import OpKind
from diagnose.reason.conclude import _with_kernels
from tests.builders.scene import Span, run, scene

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


STEPS = [Span(text=f"iteration {number}", start=1000 * number, end=1000 * number + 1000) for number in range(3)]


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
        "attention",
        "compute",
        2,
        211,
        105,
    )
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
    assert _with_kernels(devices[:8], devices[2]) == devices[:8]
    assert [device.rank for device in _with_kernels(devices, devices[2])] == [2, 9]
    assert [device.rank for device in _with_kernels(devices, devices[8])] == [2]
