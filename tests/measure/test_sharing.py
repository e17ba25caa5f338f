"""Several processes of one capture on one GPU, in scenes written by hand."""

import polars as pl

from diagnose.measure.capture import Measured, measure
from diagnose.measure.facts import device_facts
from diagnose.measure.records import device_records
from diagnose.measure.sharing import taken
from diagnose.model.trace import Device
from tests.builders.cases import for_each
from tests.builders.scene import KNOWLEDGE, Item, run, scene


def training(rank: int, steps: int = 4) -> list[Item]:
    """Steps of 1,000 µs: products, then the optimizer."""
    at = [1_000_000 * (1 + step) for step in range(steps)]
    return [
        item
        for start in at
        for item in (
            *(run("gemm", start + 90_000 * n, start + 90_000 * n + 80_000, start + 90_000 * n - 5_000, rank=rank) for n in range(8)),
            *(run("adam", start + 720_000 + n * 60_000, start + 770_000 + n * 60_000, start + 710_000 + n, rank=rank) for n in range(3)),
        )
    ]


def serving(rank: int, length: int = 20_000, every: int = 100_000) -> list[Item]:
    """A kernel of 20 µs every 100 µs."""
    return [run("gemm", at, at + length, at - 4_000, rank=rank) for at in range(1_000_000, 5_000_000, every)]


def measured(items: list[Item], gpus: tuple[str | None, str | None]) -> Measured:
    devices = [Device(rank=rank, device=0, uuid=gpu) for rank, gpu in enumerate(gpus)]
    return measure(scene(items, devices=devices).trace, KNOWLEDGE)


def test_a_process_that_does_not_train_on_a_ranks_gpu_is_no_rank_and_is_told() -> None:
    found = measured([*training(0), *serving(1)], ("GPU-a", "GPU-a"))
    (one,) = found.devices
    facts = device_facts(one, device_records(one), KNOWLEDGE)
    assert [rank.rank for rank in found.ranks] == [0]
    assert (facts["other_processes"], facts["others_busy_ns"], facts["others_taken_ns"]) == ("another process", 200_000, 200_000)


@for_each(
    "items, gpus",
    ([*training(0), *serving(1)], ("GPU-a", "GPU-b")),
    ([*training(0), *serving(1)], (None, None)),
    ([*training(0), *training(1)], ("GPU-a", "GPU-a")),
    ([*serving(0), *serving(1)], ("GPU-a", "GPU-a")),
)
def test_all_are_ranks_on_gpus_of_their_own_and_where_all_or_none_train(items: list[Item], gpus: tuple[str | None, str | None]) -> None:
    assert [one.rank for one in measured(items, gpus).devices] == [0, 1]


def test_equal_turns_bound_what_others_take() -> None:
    windows = pl.DataFrame({"index": [3, 4, 5], "start": [0, 100, 200], "end": [100, 200, 300]})
    one, two = (pl.DataFrame({"start": start, "end": end}) for start, end in (([0, 150], [40, 180]), ([20, 110], [90, 190])))
    assert taken(windows, [one]).rows() == [(3, 40, 40), (4, 30, 30), (5, 0, 0)]
    assert taken(windows, [one, two]).rows() == [(3, 90, 66), (4, 80, 66), (5, 0, 0)]
