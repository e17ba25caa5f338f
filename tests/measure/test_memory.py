"""Recompute by phase and by count, and the peaks of the allocator."""

from __future__ import annotations

from diagnose.document.device import Memory
from diagnose.measure.memory import Recompute, peaks
from diagnose.measure.records import memory
from diagnose.model.trace import Device
from tests.builders.cases import for_each
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


Run = tuple[str, str | None, int, int]
FORWARD, BACKWARD = ("attention", "forward", 4, 10), ("attention_bwd", "backward", 4, 25)
# Kernels in a row, and what is found: repeated ns in the only window, its status, forward and backward attention kernels.
FOUND: dict[str, tuple[list[Run], tuple[list[int] | None, str | None, int | None, int | None]]] = {
    # Seven kernels and the seven gaps before them.
    "checkpoint ranges measure it": (
        [FORWARD, ("gemm", "recompute", 3, 20), ("attention", "recompute", 4, 10), BACKWARD], ([107], "measured", 8, 4)),
    # The 50 ns exchange and the two gaps beside it: without the repetition none of them would be there.
    "what a repetition exchanges goes with it": (
        [("gemm", "forward", 1, 10), ("nccl", "recompute", 1, 50), ("gemm", "recompute", 1, 7), ("gemm", "backward", 1, 10)],
        ([59], "measured", None, None)),
    # From one and a half forward kernels per backward one, the kernels beyond one per backward kernel are repeated work.
    **{f"{forward} forward and 4 backward kernels": ([("attention", "forward", forward, 10), BACKWARD], ([extra], "inferred", forward, 4))
       for forward, extra in [(4, 0), (5, 0), (6, 20), (8, 40)]},
    "helper kernels of attention are left out": ([FORWARD, ("vision_attention", "forward", 8, 1), BACKWARD], ([0], "inferred", 4, 4)),
    "forward work alone repeats nothing": ([FORWARD, ("gemm", "forward", 4, 10)], ([0], "inferred", None, None)),
    "without attention and ranges": ([("gemm", "forward", 4, 10), ("gemm", "backward", 4, 25)], (None, None, None, None)),
    "without attention, ranges and phases": ([("gemm", None, 4, 10), ("gemm", None, 4, 25)], (None, None, None, None)),
    "a vision tower beside the language model is no recompute": (
        [("vision_attention", "forward", 12, 10), ("attention", "forward", 6, 12), ("attention_bwd", "backward", 6, 40),
         ("vision_attention", "backward", 12, 5)],
        ([0], "inferred", 18, 18)),
}  # fmt: skip


@for_each("runs, expected", *FOUND.values())
def test_recompute(runs: list[Run], expected: tuple[list[int] | None, str | None, int | None, int | None]) -> None:
    found = recompute(*runs)
    assert outcome(found) == expected
    *_, forward, backward = expected
    assert found.ratio == (forward / backward if forward and backward else None)


def test_repeated_kernels_on_two_streams_count_once_in_each_window() -> None:
    items = [
        run("gemm", 0, 10, 0, phase="forward"),
        run("gemm", 20, 40, 1, phase="recompute"),
        run("gemm", 30, 50, 2, phase="recompute", stream=9),
    ]
    (one,) = scene(items).measure()
    assert outcome(one.memory.recompute)[:2] == ([40], "measured"), "30 ns of two kernels, 10 ns until the first"
    # The second of two steps repeats its forward pass
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
