"""What bounds count beyond the split of waiting time, or short of it: shadows, handovers, restarts, and the gaps of repeated work."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.measure.facts.device import device_facts
from diagnose.measure.records import device_records
from diagnose.measure.waits import stalls
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import HANDOVER_NS, ceilings
from diagnose.model.vocabulary import FactValue
from tests.builders.scene import KNOWLEDGE, Item, Scene, Span, await_event, call, causes, record, run, scene


def beyond(one: Scene, *bounds: int) -> list[dict[str, int]]:
    """The figures of each window between two `bounds` that are not nought, without `_ns`."""
    work = one.work()
    windows = pl.DataFrame(
        {"index": range(len(bounds) - 1), "start": bounds[:-1], "end": bounds[1:]},
        schema={"index": pl.Int32, "start": pl.Int64, "end": pl.Int64},
    )
    found = stalls.stalls(work, windows, resolve_waits(one.trace.waits, pl.Series(dtype=pl.Int64)), one.host())
    rows = ceilings(found, windows, work["role"], work["copy_kind"], work.select("start", "issued")).iter_rows(named=True)
    return [{name.removesuffix("_ns"): ns for name, ns in row.items() if name != "index" and ns} for row in rows]


def waited_for(*producer: Item, consumer: Item, between: tuple[Item, ...] = (), spans: tuple[Span, ...] = ()) -> Scene:
    """A GEMM until 10; producers on stream 20 and an event after them; `consumer` waits for it on stream 7."""
    return scene([run("gemm", 0, 10, 0), *producer, record(2, 20, sync=1), await_event(3, 7, sync=1), *between, consumer], spans)


def host_gap(*between: Item, spans: tuple[Span, ...] = ()) -> Scene:
    """A GEMM until 10, and another that the host issues at 100 and that starts at 110."""
    return scene([run("gemm", 0, 10, 0), *between, run("gemm", 110, 120, 99)], spans)


EXCHANGE = run("nccl", 12, 60, 1, stream=20)

# ---------------------------------------------------------------------------------------------------- handovers


@pytest.mark.parametrize(
    ("producer", "expected"),
    [
        (EXCHANGE, {"transport_handover": 7}),
        (run("memcpy", 12, 60, 1, stream=20, pinned=True, copy_kind="h2d"), {"host_copy_handover": 7}),
        (run("memcpy", 12, 60, 1, stream=20, pinned=True, copy_kind="d2h"), {"host_copy_handover": 7}),
        (run("memcpy", 12, 60, 1, stream=20, copy_kind="d2d"), {}),
        (run("memset", 12, 60, 1, stream=20), {}),
        (run("permute", 12, 60, 1, stream=20), {}),
    ],
)
def test_what_passes_before_and_after_the_producer_is_handed_over_with_it(producer: Item, expected: dict[str, int]) -> None:
    """10 … 12 and 60 … 65."""
    one = waited_for(producer, consumer=run("gemm", 65, 80, 4))
    assert causes(one.stalls(0, 80)) == {"blocking": 48, "dependency_stalled": 7}
    assert beyond(one, 0, 80) == [expected]


def test_the_latency_of_a_late_launch_is_handed_over_with_the_host() -> None:
    """100 … 110."""
    assert beyond(host_gap(), 0, 120) == [{"launch_handover": 10}]


def test_a_gap_for_which_nothing_was_late_hands_nothing_over() -> None:
    one = scene([run("gemm", 0, 10, 0), run("gemm", 50, 60, 1)])
    assert causes(one.stalls(0, 60)) == {"dependency_stalled": 40}
    assert beyond(one, 0, 60) == [{}]


def test_allocation_alone_makes_no_late_host() -> None:
    one = scene([run("gemm", 0, 10, 0), call("cudaMalloc", 5, 100), run("gemm", 110, 120, 60, until=100)])
    assert causes(one.stalls(0, 120)) == {"allocator": 90, "dependency_stalled": 10}
    assert beyond(one, 0, 120) == [{}]


def test_each_gap_hands_over_its_own_rest() -> None:
    """The second gap, 80 … 100, neither the exchange nor the host explains."""
    one = scene([*waited_items(), run("gemm", 100, 110, 5)])
    assert causes(one.stalls(0, 110)) == {"blocking": 48, "dependency_stalled": 27}
    assert beyond(one, 0, 110) == [{"transport_handover": 7}]


def waited_items() -> list[Item]:
    return [run("gemm", 0, 10, 0), EXCHANGE, record(2, 20, sync=1), await_event(3, 7, sync=1), run("gemm", 65, 80, 4)]


def test_a_rest_longer_than_ten_microseconds_is_no_latency() -> None:
    assert HANDOVER_NS == 10_000
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 10_058, 10_100, 4)), 0, 10_100) == [{"transport_handover": 10_000}]
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 10_057, 10_100, 4)), 0, 10_100) == [{"transport_handover": 9_999}]
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 90_000, 90_100, 4)), 0, 90_100) == [{"transport_handover": 10_000}]


def test_two_causes_of_one_gap_both_get_its_rest() -> None:
    """The exchange until 60, but the host is later still: it counts for either wall."""
    one = waited_for(EXCHANGE, consumer=run("gemm", 65, 80, 39))
    assert causes(one.stalls(0, 80)) == {"blocking": 20, "dependency_stalled": 5, "launch": 1, "python": 29}
    assert beyond(one, 0, 80) == [{"transport_handover": 5, "launch_handover": 5, "launch_shadowed": 28}]


def test_a_gap_across_two_windows_hands_each_its_part() -> None:
    """Cut at 50, while the exchange runs."""
    assert beyond(scene(waited_items()), 0, 50, 80) == [{"transport_handover": 2}, {"transport_handover": 5}]


# ---------------------------------------------------------------------------------------------------- shadows


def late(*between: Item, producer: tuple[int, int] = (12, 60), spans: tuple[Span, ...] = ()) -> Scene:
    """The consumer of an exchange that runs `producer` is issued at 40 only, and starts at 65."""
    return waited_for(
        run("nccl", *producer, 1, stream=20), consumer=run("gemm", 65, 80, 39), between=between, spans=spans
    )  # starved: 10 … 40


def shadows(one: Scene, end: int = 80) -> dict[str, int]:
    (row,) = beyond(one, 0, end)
    return {name: ns for name, ns in row.items() if name.endswith("_shadowed")}


@pytest.mark.parametrize(
    ("producer", "shadowed"),
    [((12, 60), 28), ((2, 60), 30), ((12, 20), 8), ((39, 41), 1), ((40, 60), 0), ((2, 10), 0), ((2, 8), 0)],
)
def test_a_late_host_costs_nothing_while_what_is_waited_for_runs(producer: tuple[int, int], shadowed: int) -> None:
    assert shadows(late(producer=producer)) == ({"launch_shadowed": shadowed} if shadowed else {})


def test_the_shadow_of_an_allocator_call_is_its_own() -> None:
    one = late(call("cudaMalloc", 20, 30))
    assert shadows(one) == {"launch_shadowed": 18, "allocator_shadowed": 10}
    found = one.stalls(0, 80).shadowed
    assert found.group_by("index", "cause").sum().sort("cause").rows() == [(0, "allocator", 10), (0, "launch", 1), (0, "python", 17)]


def test_an_allocator_call_after_the_producer_is_in_the_open() -> None:
    assert shadows(late(call("cudaMalloc", 20, 30), producer=(12, 25))) == {"launch_shadowed": 8, "allocator_shadowed": 5}
    assert shadows(late(call("cudaMalloc", 20, 30), producer=(12, 20))) == {"launch_shadowed": 8}


def test_garbage_collection_can_be_shadowed() -> None:
    one = late(spans=(Span(text="gc.collect", start=20, end=30),))
    assert causes(one.stalls(0, 80))["gc"] == 10
    assert shadows(one) == {"launch_shadowed": 28}


def test_a_synchronisation_is_no_host_work_to_be_shadowed() -> None:
    """20 … 30, for a stream that was done."""
    one = late(call("cudaStreamSynchronize", 20, 30, wait="stream_sync", stream=9))
    assert causes(one.stalls(0, 80))["host_sync"] == 10
    assert shadows(one) == {"launch_shadowed": 18}


def test_what_the_operation_does_not_wait_for_casts_no_shadow() -> None:
    elsewhere = [run("memset", 1, 2, 1, stream=90), record(2, 90, sync=900), await_event(3, 91, sync=900)]
    one = scene([run("gemm", 0, 10, 0), *elsewhere, run("nccl", 12, 60, 4, stream=20), run("gemm", 65, 80, 39)])
    assert beyond(one, 0, 80) == [{"launch_handover": 25}]


def test_the_whole_chain_of_producers_casts_the_shadow() -> None:
    """The exchange 12 … 30, the permute that waited for it 32 … 38; in between nothing ran, and from 38 to 50 the host alone was late."""
    permute = run("permute", 32, 38, 4)
    one = waited_for(run("nccl", 12, 30, 1, stream=20), between=(permute,), consumer=run("gemm", 55, 80, 49))
    assert causes(one.stalls(0, 80)) == {"dependency_stalled": 5, "launch": 1, "python": 39}
    assert shadows(one) == {"launch_shadowed": 18 + 6}


def test_shadows_are_counted_in_their_window() -> None:
    rows = beyond(late(), 0, 30, 80)
    assert [row.get("launch_shadowed") for row in rows] == [18, 10]


# ---------------------------------------------------------------------------------------------------- what follows transport


@pytest.mark.parametrize(("began", "length", "follow"), [(2, 20, 8), (7, 20, 3), (10, 20, 0), (12, 20, 0), (2, 5, 5)])
def test_what_follows_an_exchange_that_ran_ahead_of_the_gap_goes_with_it(began: int, length: int, follow: int) -> None:
    """The GEMM ends at 10; the exchange runs from `began` to 60, then a permutation for `length`: without the exchange that would have
    run `10 - began` beside the GEMM.
    """
    exchange = run("nccl", began, 60, 1, stream=20)
    permutation = run("permute", 60, 60 + length, 1, stream=20)
    one = waited_for(exchange, permutation, consumer=run("gemm", 60 + length, 100, 4))
    (found,) = beyond(one, 0, 100)
    assert found.get("transport_follow", 0) == follow


def test_what_runs_before_the_exchange_does_not_follow_it() -> None:
    one = waited_for(run("permute", 2, 20, 1, stream=20), run("nccl", 20, 60, 1, stream=20), consumer=run("gemm", 60, 100, 4))
    assert "transport_follow" not in beyond(one, 0, 100)[0]


# ---------------------------------------------------------------------------------------------------- restarts


def restarts(one: Scene, end: int = 120) -> dict[str, int]:
    (row,) = beyond(one, 0, end)
    return {name: ns for name, ns in row.items() if name.endswith("_restart")}


def synchronised(done: int, returns: int) -> Scene:
    """An exchange until `done`; the host waits for its stream from 3 on."""
    return host_gap(run("nccl", 5, done, 1, stream=20), call("cudaStreamSynchronize", 3, returns, wait="stream_sync", stream=20))


@pytest.mark.parametrize(
    ("done", "returns", "transport", "sync"),
    [
        (60, 80, 40, 20),  # held 10 … 60; 60 … 100 until the launch, the last 20 of it after the call
        (60, 60, 40, 40),
        (30, 40, 20, 60),  # held for 20 only: at most as much
        (100, 100, 0, 0),  # the call returns when the launch does
        (11, 20, 1, 80),
        (10, 20, 0, 80),  # ended before the gap: what the host does then follows the call, not the exchange
    ],
)
def test_a_host_held_by_transport_starts_anew(done: int, returns: int, transport: int, sync: int) -> None:
    expected = {"transport_restart": transport, "sync_restart": sync}
    assert restarts(synchronised(done, returns)) == {name: ns for name, ns in expected.items() if ns}


def test_pieces_tell_what_held_the_host() -> None:
    held = synchronised(60, 80).stalls(0, 120).pieces.sort("start")
    assert held.filter("through_host").select("start", "end", "cause").rows() == [(10, 60, "blocking")]
    direct = scene(waited_items()).stalls(0, 80).pieces
    assert (direct["cause"] == "blocking").any()
    assert not direct["through_host"].any()


def test_transport_that_held_the_device_alone_restarts_nothing() -> None:
    assert restarts(scene(waited_items()), 80) == {}


def test_host_work_before_the_synchronisation_is_no_restart() -> None:
    """10 … 40 Python; held 40 … 60; 60 … 70 in the call; 70 … 100 to the launch."""
    one = host_gap(run("nccl", 5, 60, 1, stream=20), call("cudaStreamSynchronize", 40, 70, wait="stream_sync", stream=20))
    assert restarts(one) == {"transport_restart": 20, "sync_restart": 30}


def test_after_two_synchronisations_the_restart_follows_the_last() -> None:
    calls = [call("cudaStreamSynchronize", a, b, wait="stream_sync", stream=20) for a, b in ((3, 30), (50, 80))]
    one = host_gap(run("nccl", 5, 25, 1, stream=20), *calls)
    assert causes(one.stalls(0, 120)) == {"blocking": 15, "dependency_stalled": 10, "host_sync": 35, "launch": 1, "python": 39}
    assert restarts(one) == {"transport_restart": 15, "sync_restart": 20}


def test_a_synchronisation_that_waited_for_nothing_restarts_the_host_all_the_same() -> None:
    one = host_gap(run("nccl", 5, 8, 1, stream=20), call("cudaStreamSynchronize", 65, 80, wait="stream_sync", stream=20))
    assert restarts(one) == {"sync_restart": 20}


@pytest.mark.parametrize(("kind", "named"), [("h2d", True), ("d2h", True), ("d2d", False)])
def test_a_host_held_by_its_own_copy_starts_anew(kind: str, named: bool) -> None:
    """The copy runs 30 … 60 in a call 25 … 70: at most the 30 ns of the copy, of 40 until the launch."""
    one = host_gap(run("memcpy", 30, 60, 25, until=70, name="cudaMemcpy", pinned=False, copy_kind=kind))
    assert restarts(one) == {**({"host_copy_restart": 30} if named else {}), "sync_restart": 30}


def test_an_asynchronous_copy_holds_nobody() -> None:
    assert restarts(host_gap(run("memcpy", 30, 60, 25, until=28, name="cudaMemcpyAsync", pinned=True, copy_kind="h2d"))) == {}


@pytest.mark.parametrize(
    ("called", "returned", "restart"),
    [
        (4, 30, 6),  # six ns of it while the GEMM ran: so much less was queued
        (4, 97, 3),  # no more than there is until the launch
        (4, 100, 0),
        (10, 30, 0),  # began with the gap: without the call nothing more would have been queued
        (30, 70, 0),
        (2, 8, 0),  # returned before the gap
    ],
)
def test_a_host_held_by_the_allocator_while_the_device_computed_starts_anew(called: int, returned: int, restart: int) -> None:
    assert restarts(host_gap(call("cudaMalloc", called, returned))) == ({"allocator_restart": restart} if restart else {})


def test_each_gap_has_its_own_restart() -> None:
    """The second gap, 120 … 220, follows no hold-up."""
    program = [run("nccl", 5, 30, 1, stream=20), call("cudaStreamSynchronize", 3, 40, wait="stream_sync", stream=20)]
    one = scene([run("gemm", 0, 10, 0), *program, run("gemm", 110, 120, 99), run("gemm", 220, 230, 210)])
    assert restarts(one, 230) == {"transport_restart": 20, "sync_restart": 60}


# ---------------------------------------------------------------------------------------------------- facts


def facts_of(one: Scene) -> dict[str, FactValue]:
    (measured,) = one.measure()
    return device_facts(measured, device_records(measured), KNOWLEDGE)


OF_LAUNCHES = ("launch_handover_ns", "launch_shadowed_ns")
OF_CALLS = ("allocator_shadowed_ns", "allocator_restart_ns", "sync_restart_ns")
ALWAYS = ("transport_handover_ns", "transport_follow_ns", "transport_restart_ns", "host_copy_handover_ns", "host_copy_restart_ns")


def test_figures_of_the_host_are_null_where_it_was_not_recorded() -> None:
    found = facts_of(scene([run("gemm", 0, 10), run("gemm", 50, 60)]))
    assert {name: found[name] for name in (*OF_LAUNCHES, *OF_CALLS)} == dict.fromkeys((*OF_LAUNCHES, *OF_CALLS))
    assert {name: found[name] for name in ALWAYS} == dict.fromkeys(ALWAYS, 0)


def test_facts_are_the_figures_of_the_step() -> None:
    found = facts_of(synchronised(60, 80))
    expected = {"transport_handover_ns": 10, "launch_handover_ns": 10, "transport_restart_ns": 40, "sync_restart_ns": 20}
    assert {name: found[name] for name in (*OF_LAUNCHES, *OF_CALLS, *ALWAYS) if found[name]} == expected


# ---------------------------------------------------------------------------------------------------- recompute


def repeated(one: Scene) -> list[tuple[int, int]]:
    (measured,) = one.measure()
    assert measured.memory.recompute.status == "measured"
    assert measured.memory.recompute.per_window is not None
    return list(measured.memory.recompute.per_window.iter_rows())


def test_only_gaps_that_repeated_compute_ends_are_recompute() -> None:
    """10 … 20 and the repetition itself; not 30 … 50, before a backward kernel."""
    items = [run("gemm", 0, 10, 0, phase="forward"), run("gemm", 20, 30, 1, phase="recompute"), run("gemm", 50, 60, 2, phase="backward")]
    assert repeated(scene(items)) == [(0, 20)]


def test_repeated_compute_that_starts_beside_other_compute_ends_no_gap() -> None:
    items = [run("gemm", 0, 30, 0, phase="forward"), run("gemm", 20, 40, 1, stream=9, phase="recompute")]
    assert repeated(scene(items)) == [(0, 20)]


def test_a_gap_is_counted_in_the_step_in_which_it_lies() -> None:
    """Steps begin with their first compute, so at 0 and at 50; the gap 10 … 50 lies in the first."""
    items = [run("gemm", 0, 10, 1, phase="forward"), run("nccl", 30, 40, 22, phase="recompute"), run("gemm", 50, 57, 23, phase="recompute")]
    spans = [Span(text=f"iteration {n}", start=20 * n - 20, end=20 * n) for n in (1, 2)]
    assert repeated(scene(items, spans)) == [(1, 40), (2, 7)]
