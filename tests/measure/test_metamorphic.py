"""Changes of a trace that must change nothing, or only what they name: exactly, on the synthetic demo trace."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import polars as pl
import pytest

from diagnose.knowledge.load import Knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import Measured, measure
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.waits import hold_ups
from diagnose.model.trace import Trace
from fixtures.__main__ import FOLDER, TORCH
from tests.builders.cases import for_each
from tests.builders.records import replace

FRAMES = ("ops", "calls", "ranges", "waits", "counters", "memory")
TABLES = (
    "budget.per_step", "usage.buckets", "usage.details", "usage.names", "communication.by_kind", "communication.beside", "causes.blocking", "causes.host", "counts",
)  # fmt: skip
TIMES = ("start", "end", "time")
SHIFT = 123_456_789


@pytest.fixture(scope="module")
def demo() -> Trace:
    return load(FOLDER / TORCH)


@pytest.fixture(scope="module")
def plain(demo: Trace, knowledge: Knowledge) -> DeviceMeasure:
    return one(measure(demo, knowledge))


def one(measured: Measured, rank: int = 0) -> DeviceMeasure:
    (found,) = [device for device in measured.devices if device.rank == rank]
    return found


def each(trace: Trace, change: Callable[[pl.DataFrame], pl.DataFrame], frames: tuple[str, ...] = FRAMES) -> Trace:
    return replace(trace, **{name: change(getattr(trace, name)) for name in frames})  # type: ignore[arg-type]


def differing(left: DeviceMeasure, right: DeviceMeasure, tables: tuple[str, ...] = TABLES) -> list[str]:
    """The tables that are not equal, to the last row and column."""
    return [name for name in tables if not attrgetter(name)(left).equals(attrgetter(name)(right))]


def shifted(frame: pl.DataFrame, by: int = SHIFT) -> pl.DataFrame:
    return frame.with_columns(pl.col(name) + by for name in TIMES if name in frame.columns)


def test_later_by_a_constant_moves_the_windows_and_nothing_else(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    found = one(measure(each(demo, shifted), knowledge))
    assert differing(plain, found) == []
    assert found.steps.frame.equals(plain.steps.frame.with_columns(pl.col("start", "end") + SHIFT))
    moved = {name: value + SHIFT * name.startswith(("first", "last")) for name, value in plain.budget.totals.items()}
    assert found.budget.totals == moved
    assert (found.occupancy, found.recorded) == (plain.occupancy, plain.recorded)


def test_three_times_as_slow_is_three_times_as_long(
    demo: Trace, plain: DeviceMeasure, knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_ups, "LONG_NS", 3 * hold_ups.LONG_NS)  # what counts as a long launch is so many ns, however slow all is
    slow = each(demo, lambda frame: frame.with_columns(pl.col(name) * 3 for name in TIMES if name in frame.columns))
    found = one(measure(slow, knowledge))
    capped = [name for name in plain.budget.per_step.columns if name.endswith("_handover_ns")]  # at most 10 µs of a gap, however slow
    assert found.budget.per_step.drop(capped).equals(plain.budget.per_step.drop(capped).with_columns(pl.exclude("index") * 3))
    assert found.causes.blocking.equals(plain.causes.blocking.with_columns(pl.col("ns") * 3))


def shuffled(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Rows in another order, but still in order of time, as conform gives them."""
    return frame.sample(fraction=1.0, shuffle=True, seed=seed).sort("start" if "start" in frame.columns else "time", maintain_order=True)


@for_each("seed", 1, 2)
def test_rows_in_another_order_change_nothing(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge, seed: int) -> None:
    trace = each(demo, partial(shuffled, seed=seed), ("ops", "calls", "ranges"))
    trace = replace(trace, waits=demo.waits.sample(fraction=1.0, shuffle=True, seed=seed))
    found = one(measure(trace, knowledge))
    assert differing(plain, found) == []
    assert found.steps.frame.equals(plain.steps.frame)


def test_another_rank_is_only_another_name(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    trace = each(demo, lambda frame: frame.with_columns(pl.lit(5, dtype=pl.Int32).alias("rank")))
    threads = demo.threads.with_columns(pl.lit(5, dtype=pl.Int32).alias("rank"))
    trace = replace(trace, threads=threads, devices=tuple(replace(device, rank=5) for device in demo.devices))
    found = one(measure(trace, knowledge), rank=5)
    assert differing(plain, found) == []
    assert found.budget.totals == plain.budget.totals


def test_other_numbers_for_streams_and_calls_change_nothing(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    trace = each(demo, lambda frame: frame.with_columns(pl.col("stream") * 3 + 1), ("ops", "waits"))
    trace = each(trace, lambda frame: frame.with_columns(pl.col("correlation") * 7 + 3), ("ops", "calls", "waits"))
    trace = replace(trace, waits=trace.waits.with_columns(pl.col("sync_id") * 7 + 3))
    assert differing(plain, one(measure(trace, knowledge))) == []


def test_other_numbers_for_names_change_nothing(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    """Only the order in which two equally costly names are listed may hang on their numbers."""
    last = demo.names.height - 1
    names = demo.names.reverse().with_columns((last - pl.col("id")).alias("id"))
    trace = replace(
        demo,
        names=names,
        ops=demo.ops.with_columns((last - pl.col("name_id")).alias("name_id")),
        calls=demo.calls.with_columns((last - pl.col("name_id")).alias("name_id")),
        ranges=demo.ranges.with_columns((last - pl.col("text_id")).alias("text_id")),
    )
    assert differing(plain, one(measure(trace, knowledge))) == []


def split(trace: Trace, role: str, plain: DeviceMeasure) -> tuple[Trace, int]:
    """The longest kernel of a role cut in two at a third of its length."""
    text = plain.usage.names.filter((pl.col("role") == role) & (pl.col("kernels") > 0)).sort("work_ns", "name")["name"][-1]
    name_id = trace.names.filter(pl.col("text") == text)["id"][0]
    place = trace.ops.with_row_index("row").filter(pl.col("name_id") == name_id).sort(pl.col("end") - pl.col("start"), "row")["row"][-1]
    start, end = trace.ops["start"][place], trace.ops["end"][place]
    cut = start + (end - start) // 3
    here = pl.int_range(pl.len()) == place
    first = trace.ops.with_columns(pl.when(here).then(cut).otherwise("end").alias("end"))
    second = trace.ops.filter(here).with_columns(pl.lit(cut, dtype=pl.Int64).alias("start"))
    return replace(trace, ops=pl.concat([first, second]).sort("start", maintain_order=True)), place


@for_each("role", "compute", "transport", "packing")
def test_a_kernel_in_two_pieces_takes_the_same_time(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge, role: str) -> None:
    trace, _ = split(demo, role, plain)
    found = one(measure(trace, knowledge))
    assert differing(plain, found, ("budget.per_step", "causes.blocking", "causes.host", "usage.details")) == []
    assert found.usage.buckets.drop("kernels").equals(plain.usage.buckets.drop("kernels"))
    assert found.usage.buckets["kernels"].sum() == plain.usage.buckets["kernels"].sum() + 1
    assert found.budget.totals == {**plain.budget.totals, "kernel_count": plain.budget.totals["kernel_count"] + 1}


def test_an_idle_rank_beside_it_changes_nothing(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    """The same process again as rank 9, with its first operation and call only."""
    rank = pl.lit(9, dtype=pl.Int32).alias("rank")
    first = demo.ops.filter(pl.col("correlation").is_not_null()).head(1)
    launch = demo.calls.filter(pl.col("correlation") == first["correlation"][0])
    trace = replace(
        demo,
        ops=pl.concat([demo.ops, first.with_columns(rank)]).sort("start", maintain_order=True),
        calls=pl.concat([demo.calls, launch.with_columns(rank)]).sort("start", maintain_order=True),
    )
    measured = measure(trace, knowledge)
    assert differing(plain, one(measured)) == []
    assert one(measured).budget.totals == plain.budget.totals
    assert one(measured, rank=9).recorded.operations == 1


def test_a_copy_of_the_whole_process_under_another_rank_measures_the_same(demo: Trace, plain: DeviceMeasure, knowledge: Knowledge) -> None:
    """Correlation ids, threads and streams are unique only within a process."""
    rank = pl.lit(1, dtype=pl.Int32).alias("rank")

    def twice(frame: pl.DataFrame) -> pl.DataFrame:
        both = pl.concat([frame, frame.with_columns(rank)])
        return both.sort("start" if "start" in frame.columns else "time", maintain_order=True)

    trace = each(demo, twice)
    trace = replace(trace, devices=(*demo.devices, *(replace(device, rank=1) for device in demo.devices)))
    measured = measure(trace, knowledge)
    assert [differing(plain, one(measured, rank)) for rank in (0, 1)] == [[], []]
