"""How long a pipeline takes by what its stages do."""

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from msgspec import structs

from diagnose.knowledge.buckets import load_buckets
from diagnose.measure.ranks.members import Member
from diagnose.measure.ranks.schedule import Schedule, passes_of_stage, schedule_of
from diagnose.measure.ranks.stages import Stages
from fixtures.schedule import pipeline_order
from tests.builders.cases import for_each
from tests.builders.jobs import overridden_job
from tests.builders.records import replace
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members

FOUR = Schedule(count=4, of={rank: rank for rank in range(4)}, forward={}, batches=8)


def lasts(schedule: Schedule, *work: int) -> int | None:
    return schedule.lasts(dict(enumerate(work)))


@for_each("batches, virtual, length", (8, 1, 330), (4, 1, 210), (1, 1, 120), (8, 2, 285), (4, 2, 165))
def test_even_stages_wait_for_what_fills_and_drains_the_pipeline(batches: int, virtual: int, length: int) -> None:
    """30 ns of work for each micro-batch: (m + (p - 1) / v) times that."""
    found = replace(FOUR, batches=batches, virtual=virtual)
    assert lasts(found, *[30 * batches] * 4) == length
    assert found.bubble_share == pytest.approx(1 - 30 * batches / length)


def test_a_long_stage_costs_most_at_the_end_and_least_at_the_beginning() -> None:
    """Of the long first stage the forward passes run ahead while it would wait; a last stage with more to do has nothing to wait for."""
    even = lasts(FOUR, 240, 240, 240, 240)
    assert even == 330
    long = [lasts(FOUR, *(480 if stage == place else 240 for stage in range(4))) for place in range(4)]
    assert long == [510, 530, 550, 570]


def test_what_is_won_is_the_difference_of_two_steps_and_never_less_than_nothing() -> None:
    uneven, even = dict(enumerate((240, 240, 480, 240))), dict.fromkeys(range(4), 300)
    assert FOUR.saves(uneven, even) == 550 - 412
    assert FOUR.saves(even, uneven) == 0
    assert FOUR.interleaved(dict.fromkeys(range(4), 240)) == 45
    assert FOUR.saves({0: 240}, even) is None, "stages that were not captured"


def test_what_follows_the_passes_waits_for_no_other_stage() -> None:
    found = replace(FOUR, outside=40)
    assert lasts(found, 280, 280, 280, 280) == 330 + 40


def test_a_step_shorter_than_the_schedule_s_goes_by_another() -> None:
    """Split backward passes fill what would be waiting."""
    work = dict.fromkeys(range(4), 240)
    assert not FOUR.contradicted(work), "nothing was measured"
    assert not replace(FOUR, measured=330).contradicted(work)
    assert not replace(FOUR, measured=324).contradicted(work), "scatter"
    assert replace(FOUR, measured=290).contradicted(work)
    assert not replace(FOUR, measured=290).contradicted({0: 240}), "stages that were not captured"


@for_each("count, batches, virtual", (2, 4, 1), (4, 4, 2), (4, 8, 2), (3, 6, 3), (8, 16, 1))
def test_the_order_is_that_of_the_simulator(count: int, batches: int, virtual: int) -> None:
    for stage in range(count):
        expected = [(way == "f", batch, chunk) for way, batch, chunk in pipeline_order(count, stage, batches, virtual)]
        assert passes_of_stage(count, stage, batches, virtual) == expected


def ran(passes: dict[int, int], steps: int = 2, sent: int = 0) -> tuple[Member, ...]:
    """Two ranks, one for each stage, that run kernels of the embedding and the loss so often in each step, and send so many times."""
    parts = (("embedding", ("gather", "scatter")), ("loss", ("softmax", "entropy")))
    found = []
    for rank, (bucket, names) in enumerate(parts):
        rows = [Ran(start=number, end=number + 1, step=number % steps) for number in range(sent * steps)]
        (one,) = members([Did(rank=rank, lanes={lane(kind="pipeline", operation="send-receive", shape="pairwise"): rows}, steps=steps)])
        names_run = pl.DataFrame(
            [(name, bucket, (1 + place) * passes[rank] * steps) for place, name in enumerate(names)],
            schema={"name": pl.String, "bucket": pl.String, "kernels": pl.UInt32},
            orient="row",
        )
        details = pl.DataFrame({"phase": ["forward", "backward", "optimizer"], "work_ns": [40, 60, 10]})
        device = SimpleNamespace(**{**structs.asdict(one.device), "usage": SimpleNamespace(names=names_run, details=details)})
        found.append(replace(one, device=cast("Any", device)))
    return tuple(found)


SIZES = [f"model.{name}_parallel_size={size}" for name, size in (("pipeline_model", 2), ("tensor_model", 1), ("context", 1))] + [
    "world_size=4"
]
TWO = Stages(count=2, of={0: 0, 1: 1})


def test_micro_batches_are_told_by_the_job_or_by_how_often_the_ends_of_the_model_are_passed() -> None:
    buckets = load_buckets()
    found = schedule_of(ran({0: 6, 1: 6}, sent=12), TWO, None, buckets)
    assert found == Schedule(count=2, of=TWO.of, forward={0: 0.4, 1: 0.4}, batches=6, virtual=1, measured=1_000_000, outside=5)
    interleaved = schedule_of(ran({0: 6, 1: 6}, sent=36), TWO, None, buckets)
    assert interleaved is not None
    assert interleaved.virtual == 2, "36 transfers of 6 micro-batches: more than four for each"
    assert schedule_of(ran({0: 6, 1: 5}), TWO, None, buckets) is None, "the ends contradict each other"
    job = overridden_job(["train.global_batch_size=24", "train.micro_batch_size=1", "model.virtual_pipeline_model_parallel_size=3", *SIZES])
    told = schedule_of(ran({0: 6, 1: 6}), TWO, job, buckets)
    assert told is not None
    assert (told.batches, told.virtual) == (12, 3)
    partly = schedule_of(ran({0: 6, 1: 6}, sent=36), TWO, overridden_job(SIZES), buckets)
    assert partly is not None
    assert (partly.batches, partly.virtual) == (6, 1), "a job that gives no chunks has none"
    assert schedule_of(ran({0: 6, 1: 6}), None, None, buckets) is None
