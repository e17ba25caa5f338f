"""How far the host leads bounds what a faster network can win."""

from __future__ import annotations

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


def test_the_wall_says_what_the_host_would_take() -> None:
    told = facts(step_ns=100_000_000, transport_blocking_ns=40_000_000, transport_host_limited_ns=15_000_000)
    wall = next(one for one in bounds(told, KNOWLEDGE.rulebook) if one.wall == "communication")
    assert (wall.bound_ns, wall.parts["host_in_its_place"]) == (25_000_000, -15_000_000)
