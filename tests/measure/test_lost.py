"""Launches whose kernel is not in the capture."""

import pytest

from diagnose.measure.host import lost_share
from tests.builders.scene import KNOWLEDGE, Item, call, run, scene


def lost(items: list[Item]) -> float | None:
    made = scene(items)
    return lost_share(made.trace, made.work(), 0, KNOWLEDGE.hosts)


def launches(count: int) -> list[Item]:
    return [run("gemm", 100 * place + 50, 100 * place + 90, 100 * place) for place in range(count)]


def without(at: int, name: str = "cudaLaunchKernel") -> Item:
    return call(name, at, at + 1)


def test_the_share_of_launches_without_a_kernel() -> None:
    assert lost(launches(120)) == 0.0
    missing = [without(100 * place + 5) for place in range(30)]
    assert lost([*launches(120), *missing]) == pytest.approx(30 / 150)
    assert lost([*launches(120), without(20_000)]) == 0.0, "launched before the capture's end, and run after it"
    assert lost([*launches(120), without(505, "cudaMemsetAsync"), without(605, "cudaMemcpyAsync")]) == 0.0


def test_what_can_t_be_told() -> None:
    assert lost(launches(99)) is None, "few launches"
    assert lost([*launches(120), without(505, "cudaStreamBeginCapture")]) is None, "kernels are recorded into a graph"
    assert lost([run("gemm", 100 * place, 100 * place + 40) for place in range(120)]) is None, "no launch was recorded"
