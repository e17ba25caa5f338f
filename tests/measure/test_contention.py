"""What compute loses beside transport, worked out by hand on kernels of one shape."""

from collections.abc import Sequence

import polars as pl
import pytest

from diagnose.measure.contention import compared, contention
from diagnose.measure.facts import device_facts
from diagnose.measure.records import device_records
from diagnose.measure.steps import inside_windows
from diagnose.model.vocabulary import FactValue
from diagnose.reason.walls import bounds
from tests.builders import simulated
from tests.builders.cases import for_each
from tests.builders.facts import facts
from tests.builders.records import replace
from tests.builders.scene import KNOWLEDGE, Item, Scene, run, scene

PERIOD = 1000
NAMES = ("contention_ns", "contention_share", "contention_loss_share", "contention_known_share", "compute_beside_transport_ns")


def shaped(items: Sequence[Item], *, grid: bool = True) -> Scene:
    """The scene; all its kernels have one launch shape, or none that was recorded."""
    one = scene(items)
    shape = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 4 if grid else None)
    ops = one.trace.ops.with_columns(pl.lit(value, dtype=pl.Int32).alias(name) for name, value in shape.items())
    return replace(one, trace=replace(one.trace, ops=ops))


def kernels(alone: Sequence[int], beside: Sequence[int], covered: float = 1.0, name: str = "gemm") -> list[Item]:
    """Kernels of these lengths, one each 1 000 ns; transport runs during the last `covered` of those that are not alone."""
    found = []
    for place, length in enumerate([*alone, *beside]):
        start = place * PERIOD
        found.append(run(name, start, start + length, start))
        if place >= len(alone):
            found.append(run("nccl", start + length - round(length * covered), start + length, start, stream=20))
    return found


def moved(items: Sequence[Item], ns: int) -> list[Item]:
    """The same, later."""
    return [replace(item, start=item.start + ns, end=item.end + ns) for item in items]


def measured(one: Scene) -> dict[str, FactValue]:
    (device,) = one.measure()
    found = device_facts(device, device_records(device), KNOWLEDGE)
    return {name: found[name] for name in NAMES}


# Lengths alone and beside, the share of the latter beside transport, and what is lost in all of the time beside it.
LOSSES: dict[str, tuple[list[int], list[int], float, int, float]] = {
    "half as long again": ([400] * 5, [600] * 5, 1.0, 1000, 1 / 3),
    "no difference": ([400] * 5, [400] * 5, 1.0, 0, 0.0),
    "hardly faster beside transport: nothing is lost": ([400] * 5, [390] * 5, 1.0, 0, 0.0),
    # 450 of 600 beside transport: 200 of them are lost.
    "beside transport for a part of its time": ([400] * 5, [600] * 5, 0.75, 1000, 200 / 450),
    "the medians count": ([390, 400, 400, 400, 500], [600, 600, 600, 590, 700], 1.0, 1030, 1 / 3),
}  # fmt: skip


@for_each("alone, beside, covered, lost, share", *LOSSES.values())
def test_what_compute_loses_beside_transport(alone: list[int], beside: list[int], covered: float, lost: int, share: float) -> None:
    found = measured(shaped(kernels(alone, beside, covered)))
    assert found["contention_ns"] == pytest.approx(lost, abs=3)
    assert found["contention_loss_share"] == pytest.approx(share, abs=1e-3)
    assert found["compute_beside_transport_ns"] == round(sum(beside) * covered)


UNKNOWN: dict[str, Scene] = {
    "four alone": shaped(kernels([400] * 4, [600] * 5)),
    "four beside": shaped(kernels([400] * 5, [600] * 4)),
    "no launch shape": shaped(kernels([400] * 5, [600] * 5), grid=False),
    "another kernel beside": shaped([*kernels([400] * 5, []), *kernels([], [600] * 5, name="norm")]),
    # The middle half of what ran alone spans 200 of a median of 400.
    "unlike work of one shape": shaped(kernels([300, 300, 400, 500, 500], [600] * 5)),
    "some beside transport as fast as alone, the others half as long again: unlike work": shaped(kernels([400] * 5, [405] * 2 + [600] * 5)),
    "faster beside transport, so it did less work there": shaped(kernels([400] * 5, [300] * 5)),
    "more than twice as long beside transport, so it did more work there": shaped(kernels([300] * 5, [700] * 5)),
    "three of either, and no more of any other": shaped(kernels([400] * 3, [600] * 3)),
    "no transport": shaped(kernels([400] * 9, [])),
}


@for_each("one", *UNKNOWN.values())
def test_what_cannot_be_compared_is_not_known(one: Scene) -> None:
    work = one.work()
    assert compared(inside_windows(work, one.steps().frame), work)["rate"].drop_nulls().to_list() == []


def test_where_nothing_can_be_compared_all_facts_but_the_time_are_null() -> None:
    found = measured(UNKNOWN["four alone"])
    assert [found[name] for name in NAMES[:4]] == [None] * 4
    assert found["compute_beside_transport_ns"] == 5 * 600


@for_each("others, lost, known", (3, 1000 + 600, 1), (15, 1000 + 3000, 1), (16, 1000, 5 / 21))
def test_what_could_be_compared_stands_for_the_rest_where_it_is_a_good_part(others: int, lost: int, known: float) -> None:
    """Of 3 000 ns beside transport a third is lost; `others` never ran alone, for 600 ns each: with 16 of them the sample is too small."""
    unknown = moved(kernels([], [600] * others, name="norm"), 20_000)
    found = measured(shaped([*kernels([400] * 5, [600] * 5), *unknown]))
    assert found["contention_ns"] == pytest.approx(lost, abs=3)
    assert found["contention_known_share"] == pytest.approx(known, abs=1e-3)


def test_what_a_step_does_once_is_compared_where_all_that_could_be_is_enough() -> None:
    """Of each of two shapes three alone and three beside: six of either. Of the third, the spread of what ran alone is a quarter."""
    items = [*kernels([400] * 3, [600] * 3), *moved(kernels([300] * 3, [400] * 3, name="norm"), 10_000)]
    found = measured(shaped(items))
    assert found["contention_ns"] == pytest.approx(3 * 200 + 3 * 100, abs=3)
    unlike = moved(kernels([400, 400, 500, 500], [600] * 4, name="elementwise"), 20_000)
    assert found["contention_loss_share"] == pytest.approx(900 / 3000, abs=1e-3)
    assert measured(shaped([*items, *unlike]))["contention_loss_share"] == pytest.approx(900 / 3000, abs=0.04)  # it counts as the rest


def test_products_of_two_sizes_are_told_apart_by_what_runs_between_them_on_another_stream() -> None:
    """A layer: a product of 500 ns, an activation on another stream, a product of 250 ns; on their own stream products follow products."""
    items: list[Item] = []
    for layer in range(8):
        start, slow = layer * 2 * PERIOD, 1.25 if layer in {3, 4, 5} else 1.0
        first, second = round(500 * slow), round(250 * slow)
        items += [run("gemm", start, start + first, start), run("elementwise", start + 900, start + 910, start + 5, stream=8)]
        items += [run("gemm", start + PERIOD, start + PERIOD + second, start + 10)]
        if slow > 1:
            items += [run("nccl", start, start + first, start + 15, stream=20)]
            items += [run("nccl", start + PERIOD, start + PERIOD + second, start + 20, stream=20)]
    found = measured(shaped(items))
    assert found["contention_loss_share"] == pytest.approx(0.2, abs=1e-3)
    assert found["contention_ns"] == pytest.approx(3 * (125 + 62.5), abs=3)


def test_products_of_two_sizes_that_share_a_name_are_told_apart_by_what_runs_next_to_them() -> None:
    """Of one name and grid, 500 ns after a norm and 400 after an activation.

    Beside the exchange either takes half as long again, and there most are small.
    """
    items: list[Item] = []
    for place, (before, length, slow) in enumerate(
        [("norm", 500, 1.0), ("norm", 500, 1.0), ("elementwise", 400, 1.0)] * 6 + [("norm", 500, 1.5), *[("elementwise", 400, 1.5)] * 2] * 6
    ):
        start, took = place * PERIOD, round(length * slow)
        items += [run(before, start, start + 20, start), run("gemm", start + 30, start + 30 + took, start + 25)]
        if slow > 1:
            items.append(run("nccl", start + 30, start + 30 + took, start + 28, stream=20))
    assert measured(shaped(items))["contention_loss_share"] == pytest.approx(1 / 3, abs=1e-3)


def test_products_of_two_sizes_of_which_one_always_runs_beside_transport_are_not_compared() -> None:
    """A persistent kernel has one name and grid for both, and both stand between two norms; only the kernels around those differ."""
    items: list[Item] = []
    for place in range(12):
        length, last = ((300, "softmax"), (450, "elementwise"))[place % 2]
        start = place * PERIOD
        items += [run("norm", start, start + 20, start), run("gemm", start + 30, start + 30 + length, start + 1)]
        items += [run("norm", start + 700, start + 720, start + 2), run(last, start + 730, start + 740, start + 3)]
        if place % 2:
            items.append(run("nccl", start + 30, start + 30 + length, start + 4, stream=20))
    one = shaped(items)
    work = one.work()
    assert compared(inside_windows(work, one.steps().frame), work)["rate"].drop_nulls().to_list() == []


def test_kernels_that_run_at_once_lose_their_time_once() -> None:
    """Two kernels of one shape at once beside transport: 10 × 600 ns of work, in 5 × 600 ns of time."""
    items = kernels([400] * 5, [600] * 5)
    twins = [replace(item, stream=8) for item in items[5:] if item.op == "gemm"]
    found = measured(shaped([*items, *twins]))
    assert found["compute_beside_transport_ns"] == 3000
    assert found["contention_ns"] == pytest.approx(1000, abs=3)


def test_contention_is_a_part_of_the_communication_wall() -> None:
    told = facts(step_ns=100_000_000, transport_blocking_ns=2_000_000, contention_ns=13_000_000)
    wall = next(one for one in bounds(told, KNOWLEDGE.rulebook) if one.wall == "communication")
    assert (wall.bound_ns, wall.parts["contention"]) == (15_000_000, 13_000_000)


@pytest.mark.deep
def test_a_simulated_exchange_that_slows_what_hides_it_is_worth_what_its_removal_saves() -> None:
    """Compute beside transport runs at six tenths of its speed: without the exchange the step is 13.4 % shorter."""
    found = simulated.document("messy-contention-expert-overlap")
    wall = next(one for one in found.walls if one.wall == "communication")
    assert wall.share == pytest.approx(0.134, rel=0.15)
    assert found.findings[0].id == "communication-contention"
    assert [fix.id for fix in found.findings[0].fixes][:2] == ["COM-03", "COM-22"]
    assert "so the exchange is hidden" not in found.verdict.sentence


def test_what_stands_for_all_is_no_more_than_ran_beside_transport_in_any_step() -> None:
    """All of the first step could be compared, and half of the second, which stands for all."""
    known = pl.DataFrame({"index": [0, 1, 1], "op": [0, 1, 2], "beside": [100, 50, 50], "rate": [0.1, 0.1, None]})
    found = contention(known, pl.DataFrame({"index": [0, 1]}), pl.Series([100, 100]))
    assert found["compared_ns"].to_list() == [100, 100]
