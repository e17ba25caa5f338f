"""How far the host leads bounds what a faster network can win."""

import polars as pl
import pytest

from diagnose.measure.facts import device_facts
from diagnose.measure.records import device_records
from diagnose.reason.walls import bounds
from tests.builders.cases import for_each
from tests.builders.facts import facts
from tests.builders.scene import KNOWLEDGE, Item, Scene, await_event, call, record, run, scene


def exchanges(lead: int, number: int = 3) -> list[Item]:
    """Pairs of a product (40 ns) and an exchange (60 ns) that the next product waits for.

    Each product is issued `lead` ns before it starts.
    """
    items: list[Item] = []
    for turn in range(number):
        start = 100 * turn
        items += [
            run("gemm", start, start + 40, start - lead),
            record(start - lead + 2, 7, sync=2 * turn),
            await_event(start - lead + 3, 20, sync=2 * turn),
            run("nccl", start + 40, start + 100, start - lead + 4, stream=20),
            record(start - lead + 6, 20, sync=2 * turn + 1),
            await_event(start - lead + 7, 7, sync=2 * turn + 1),
        ]
    return [*items, run("gemm", 100 * number, 100 * number + 40, 100 * number - lead)]


def limited(one: Scene) -> tuple[object, object]:
    """What transport blocked, and the part of it in whose place the host would hold compute up."""
    (measured,) = one.measure()
    found = device_facts(measured, device_records(measured), KNOWLEDGE)
    return found["transport_blocking_ns"], found["transport_host_limited_ns"]


# Three exchanges of 60 ns each. A launch takes 1 ns, so an operation that was called 40 ns before it starts lay issued for 39.
LEADS: dict[str, tuple[Scene, int, int]] = {
    "a host far ahead limits nothing": (scene(exchanges(1000)), 180, 0),
    "a host hardly ahead would be late instead: no operation starts before it is issued": (scene(exchanges(40)), 3 * 39, 2 * 39),
    "once the lead is used up nothing wins it back": (scene(exchanges(100)), 180, 180 - 99),
    "launches that were not recorded limit nothing": (scene([run(one.op, one.start, one.end, stream=one.stream) for one in exchanges(40) if one.op]), 0, 0),
}  # fmt: skip


@for_each("one, blocked, host", *LEADS.values())
def test_a_faster_network_wins_no_more_than_the_host_leads(one: Scene, blocked: int, host: int) -> None:
    assert limited(one) == (blocked, pytest.approx(host, abs=1))


@for_each("name, host", ("cudaDeviceSynchronize", 0), ("cudaFree", 0), ("cudaMalloc", 960 - 1))
def test_a_host_that_gives_memory_back_waits_for_the_exchange_too(name: str, host: int) -> None:
    """Without the exchange cudaFree returns as much earlier as cudaDeviceSynchronize does; cudaMalloc waits for nothing."""
    items = [
        run("gemm", 0, 40, -9),
        run("nccl", 40, 1000, -7, stream=7),
        run("gemm", 1000, 1040, -5),
        call(name, 5, 1040),
        run("gemm", 1043, 1083, 1041),
    ]
    assert limited(scene(items)) == (960, pytest.approx(host, abs=3))


@for_each("lead, share", (1000, 0.0), (100, (165 - 99) / 165), (20, (165 - 19) / 165))
def test_of_waiting_that_is_gone_the_host_is_late_for_what_it_leads_less(lead: int, share: float) -> None:
    """Of each of three exchanges the first 55 ns are waiting. An operation lay issued for 1 ns less than it was called before."""
    (measured,) = scene(exchanges(lead)).measure()
    gone = pl.DataFrame({"start": [40, 140, 240], "end": [95, 195, 295]})
    assert measured.leads.limited_share(gone, measured.steps.frame) == pytest.approx(share, abs=0.01)


def test_a_host_that_waits_for_the_exchange_leads_by_what_it_gains_itself() -> None:
    """The host waits for each exchange before it launches on: without the exchanges it is early too, and all that they held up is won."""
    items: list[Item] = []
    for turn in range(3):
        start = 100 * turn
        items += [
            run("gemm", start, start + 40, start - 3),
            run("nccl", start + 40, start + 96, start - 2, stream=7),
            call("cudaStreamSynchronize", start, start + 96),
        ]
    items.append(run("gemm", 300, 340, 297))
    blocked, host = limited(scene(items))
    assert isinstance(blocked, int)
    assert isinstance(host, int)
    assert blocked >= 160
    assert host <= 0.05 * blocked  # the few ns between a call's return and the next launch


def test_copies_that_follow_each_other_take_as_long_without_the_exchange() -> None:
    """After three exchanges the host waits for four copies of 100 ns. It is back as much earlier as the first of them is."""
    copies = [run("memcpy", 340 + 100 * one, 440 + 100 * one, 264 + 3 * one, stream=30, copy_kind="d2h", pinned=True) for one in range(4)]
    items = [*exchanges(40), record(262, 7, sync=90), await_event(263, 30, sync=90), *copies, call("cudaStreamSynchronize", 277, 740)]
    blocked, host = limited(scene([*items, run("gemm", 760, 800, 759)]))
    assert (blocked, host) == (3 * 39, pytest.approx(2 * 39, abs=1))


def silences(*delays: int) -> Scene:
    """A product that waits for an exchange of 200 us, and a host without a call from their launch until so many us after it."""
    items: list[Item] = []
    start = 0
    for turn, delay in enumerate(delays):
        items += [
            run("nccl", start + 1, start + 200_000, start, stream=20),
            record(start + 2, 20, sync=turn),
            await_event(start + 3, 7, sync=turn),
            run("gemm", start + 200_000, start + 200_040, start + 4),
        ]
        start += 200_040 + delay * 1000
    return scene([*items, run("gemm", start + 1, start + 41, start)])


@for_each(
    "delays, lost",
    ([9, 9, 9, 9, 9], 0),  # it polls, and gains what the device does
    ([9, 150, 60, 120, 9], 4),  # its own work, which ends by chance where the device runs dry: but for the last turn nothing is won
)
def test_a_host_that_makes_no_call_polls_where_nearly_each_silence_ends_with_the_device(delays: list[int], lost: int) -> None:
    blocked, host = limited(silences(*delays))
    assert blocked == pytest.approx(5 * 200_000, rel=0.01)
    assert host == pytest.approx(lost * 200_000, rel=0.01)


def test_the_wall_says_what_the_host_would_take() -> None:
    told = facts(step_ns=100_000_000, transport_blocking_ns=40_000_000, transport_host_limited_ns=15_000_000)
    wall = next(one for one in bounds(told, KNOWLEDGE.rulebook) if one.wall == "communication")
    assert (wall.bound_ns, wall.parts["host_in_its_place"]) == (25_000_000, -15_000_000)


def micro_batches(*, held: bool, synced: bool) -> Scene:
    """Forward, two repeated products, backward (100, 50, 50 and 100 ns), then data for 300 ns in the host, forward and backward again.

    `held`: the host waits for the first repeated product before it launches the second; `synced`: for backward before it loads.
    """
    again = 161 if held else 21
    loaded = (315 if synced else again + 3) + 300
    late = max(loaded + 1, 315)
    first = 165 if held else 160
    return scene([
        run("gemm", 10, 110, 0, phase="forward"),
        run("gemm", 110, 160, 19, phase="recompute"),
        *([call("cudaStreamSynchronize", 20, 160)] if held else []),
        run("gemm", first, first + 50, again, phase="recompute"),
        run("gemm", first + 50, first + 150, again + 2, phase="backward"),
        *([call("cudaStreamSynchronize", again + 3, first + 150)] if synced else []),
        run("gemm", late, late + 100, loaded, phase="forward"),
        run("gemm", late + 100, late + 200, loaded + 2, phase="backward"),
    ])  # fmt: skip


# What is repeated takes 105 ns with the gap in it, or 100. Held in it the host spends 163 ns there, from its launch before to that after,
# and without that loads as much earlier: the gap of 150 ns behind it gets shorter by the 56 that the device does not gain.
@for_each(
    "held, synced, repeated, restart",
    (True, False, 105, 56),
    (True, True, 105, 0),  # the host waits for the device before it loads: it gains what that gains
    (False, False, 100, 0),  # the host launches what is repeated in 21 ns: it is late by more without it
)
def test_a_host_that_need_not_launch_what_is_repeated_is_late_less(*, held: bool, synced: bool, repeated: int, restart: int) -> None:
    (measured,) = micro_batches(held=held, synced=synced).measure()
    found = device_facts(measured, device_records(measured), KNOWLEDGE)
    assert (found["recompute_ns"], found["recompute_restart_ns"]) == (repeated, pytest.approx(restart, abs=2))


def test_a_host_that_waits_for_what_it_has_sent_gains_no_more_than_that_comes_earlier() -> None:
    """As with an optimizer on the CPU: it waits for gradients, works, sends parameters, and waits for these."""
    measured, = scene([
        run("gemm", 10, 110, 0, phase="forward"),
        run("gemm", 110, 160, 19, phase="recompute"),
        run("gemm", 160, 260, 21, phase="backward"),
        call("cudaStreamSynchronize", 25, 260),
        run("nccl", 561, 761, 560, stream=20),
        call("cudaStreamSynchronize", 562, 761),
        record(763, 20, sync=1),
        await_event(764, 7, sync=1),
        run("gemm", 770, 870, 765, phase="forward"),
        run("gemm", 870, 970, 767, phase="backward"),
    ]).measure()  # fmt: skip
    found = device_facts(measured, device_records(measured), KNOWLEDGE)
    assert (found["recompute_ns"], found["recompute_restart_ns"]) == (50, pytest.approx(0, abs=2))


def test_the_memory_wall_holds_what_is_waited_less_for_other_stages() -> None:
    told = facts(step_ns=100_000_000, recompute_ns=20_000_000, recompute_lower_ns=10_000_000, recompute_stages_ns=4_000_000)
    none = facts(step_ns=100_000_000, recompute_ns=20_000_000, recompute_lower_ns=10_000_000)
    wall, other = (next(one for one in bounds(one, KNOWLEDGE.rulebook) if one.wall == "memory") for one in (told, none))
    assert ((wall.bound_ns or 0) - (other.bound_ns or 0), (wall.lower_ns or 0) - (other.lower_ns or 0)) == (4_000_000, 2_000_000)
    assert wall.parts["recompute"] == 24_000_000


def test_the_memory_wall_holds_what_the_host_is_late_less() -> None:
    """In its lower end as much of it as is repeated for certain."""
    told = facts(step_ns=100_000_000, recompute_ns=20_000_000, recompute_lower_ns=10_000_000, recompute_restart_ns=4_000_000)
    none = facts(step_ns=100_000_000, recompute_ns=20_000_000, recompute_lower_ns=10_000_000, recompute_restart_ns=None)
    wall, other = (next(one for one in bounds(one, KNOWLEDGE.rulebook) if one.wall == "memory") for one in (told, none))
    assert (wall.bound_ns, wall.lower_ns, wall.parts["host_ahead"]) == (
        (other.bound_ns or 0) + 4_000_000,
        (other.lower_ns or 0) + 2_000_000,
        4_000_000,
    )
