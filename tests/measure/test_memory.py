"""Recompute by phase and by count, and the peaks of the allocator."""

from __future__ import annotations

import pytest

from diagnose.document.device import Memory
from diagnose.measure.memory import Recompute, peaks
from diagnose.measure.records import memory
from diagnose.model.trace import Device
from tests.builders.scene import Item, Span, run, scene


def sequence(*runs: tuple[str, str | None, int, int]) -> list[Item]:
    """(name, phase, how many, ns each), one after another on one stream, 1 ns apart."""
    items: list[Item] = []
    now = 0
    for name, phase, number, length in runs:
        for _ in range(number):
            items.append(run(name, now, now + length, max(now - 1, 0), phase=phase))
            now += length + 1
    return items


def recompute(*runs: tuple[str, str | None, int, int]) -> Recompute:
    (one,) = scene(sequence(*runs)).measure()
    return one.memory.recompute


def outcome(found: Recompute) -> tuple[list[int] | None, str | None, int | None, int | None]:
    return (None if found.per_window is None else found.per_window["ns"].to_list(), found.status, found.forward, found.backward)


def test_checkpoint_ranges_measure_it() -> None:
    found = recompute(
        ("attention", "forward", 4, 10),
        ("gemm", "recompute", 3, 20),
        ("attention", "recompute", 4, 10),
        ("attention_bwd", "backward", 4, 25),
    )
    assert outcome(found) == ([107], "measured", 8, 4), "seven kernels and the seven gaps before them"
    assert found.ratio == 2.0


def test_what_a_repetition_exchanges_goes_with_it() -> None:
    """The 50 ns exchange and the two gaps beside it: without the repetition none of them would be there."""
    found = recompute(("gemm", "forward", 1, 10), ("nccl", "recompute", 1, 50), ("gemm", "recompute", 1, 7), ("gemm", "backward", 1, 10))
    assert outcome(found) == ([59], "measured", None, None)


def test_repeated_kernels_on_two_streams_count_once() -> None:
    items = [
        run("gemm", 0, 10, 0, phase="forward"),
        run("gemm", 20, 40, 1, phase="recompute"),
        run("gemm", 30, 50, 2, phase="recompute", stream=9),
    ]
    (one,) = scene(items).measure()
    assert outcome(one.memory.recompute)[:2] == ([40], "measured"), "30 ns of two kernels, 10 ns until the first"


@pytest.mark.parametrize(("forward", "extra"), [(4, 0), (5, 0), (6, 20), (8, 40)])
def test_without_ranges_the_count_of_attention_kernels_tells(forward: int, extra: int) -> None:
    """From one and a half forward kernels per backward one, the kernels beyond one per backward kernel are repeated work."""
    found = recompute(("attention", "forward", forward, 10), ("attention_bwd", "backward", 4, 25))
    assert outcome(found) == ([extra], "inferred", forward, 4)
    assert found.ratio == forward / 4


def test_helper_kernels_of_attention_are_left_out() -> None:
    found = recompute(("attention", "forward", 4, 10), ("vision_attention", "forward", 8, 1), ("attention_bwd", "backward", 4, 25))
    assert outcome(found) == ([0], "inferred", 4, 4)


def test_forward_work_alone_repeats_nothing() -> None:
    assert outcome(recompute(("attention", "forward", 4, 10), ("gemm", "forward", 4, 10))) == ([0], "inferred", None, None)


@pytest.mark.parametrize("phase", ["backward", None])
def test_without_attention_and_ranges_it_cannot_be_told(phase: str | None) -> None:
    found = recompute(("gemm", "forward" if phase else None, 4, 10), ("gemm", phase, 4, 25))
    assert outcome(found) == (None, None, None, None)
    assert found.ratio is None


def test_each_window_is_counted_by_itself() -> None:
    """The second of two steps repeats its forward pass."""
    plain = (("attention", "forward", 2, 10), ("attention_bwd", "backward", 2, 20))
    twice = (("attention", "forward", 4, 10), ("attention_bwd", "backward", 2, 20))
    items = sequence(*plain, *twice)
    spans = [Span(text="iteration 1", start=0, end=62), Span(text="iteration 2", start=62, end=200)]
    (one,) = scene(items, spans).measure()
    assert one.memory.recompute.per_window is not None
    assert one.memory.recompute.per_window.rows() == [(1, 0), (2, 20)]


def test_the_documents_part() -> None:
    items = sequence(("attention", "forward", 4, 10), ("attention_bwd", "backward", 2, 25))
    info = Device(rank=0, device=0, total_memory=80)
    events = [{"rank": 0, "device": 0, "time": 1, "bytes": 7, "total_allocated": 7}]
    (one,) = scene(items, devices=[info], memory=events).measure()
    assert memory(one) == Memory(
        recompute_ns=20,
        recompute_status="inferred",
        attention_forward_kernels=4,
        attention_backward_kernels=2,
        peak_allocated_bytes=7,
        peak_reserved_bytes=None,
        capacity_bytes=80,
    )


def test_peaks_are_those_of_the_device() -> None:
    events = [
        {"rank": 0, "device": 0, "time": 1, "bytes": 5, "total_allocated": 5, "total_reserved": 20},
        {"rank": 0, "device": 0, "time": 2, "bytes": 9, "total_allocated": 14, "total_reserved": 20},
        {"rank": 0, "device": 0, "time": 3, "bytes": -9, "total_allocated": 5, "total_reserved": 25},
        {"rank": 0, "device": 1, "time": 3, "bytes": 90, "total_allocated": 90, "total_reserved": 90},
        {"rank": 1, "device": 0, "time": 3, "bytes": 91, "total_allocated": 91, "total_reserved": 91},
        {"rank": 0, "time": 3, "bytes": 1, "total_allocated": 15},
    ]
    recorded = scene([run("gemm", 0, 10, 0)], memory=events).trace.memory
    assert peaks(recorded, 0, 0) == (15, 25)
    assert peaks(recorded, 0, 1) == (90, 90)
    assert peaks(recorded, 2, 0) == (None, None)


# ---------------------------------------------------------------------------------------------------- known to be wrong


def test_a_vision_tower_beside_the_language_model_is_no_recompute() -> None:
    found = recompute(
        ("vision_attention", "forward", 12, 10),
        ("attention", "forward", 6, 12),
        ("attention_bwd", "backward", 6, 40),
        ("vision_attention", "backward", 12, 5),
    )
    assert outcome(found)[:2] == ([0], "inferred")
