"""What bounds count beyond the split of waiting time, or short of it: shadows, handovers, restarts, and the gaps of repeated work."""

import polars as pl

from diagnose.measure.waits import stalls
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import HANDOVER_NS, ceilings
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.scene import Item, Scene, Span, await_event, call, causes, facts_of, host_gap, record, run, scene


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


EXCHANGE = run("nccl", 12, 60, 1, stream=20)

# ---------------------------------------------------------------------------------------------------- handovers


def waited_items() -> list[Item]:
    return [run("gemm", 0, 10, 0), EXCHANGE, record(2, 20, sync=1), await_event(3, 7, sync=1), run("gemm", 65, 80, 4)]


COPY = run("memcpy", 12, 60, 1, stream=20, pinned=True)
WAITED = {"blocking": 48, "dependency_stalled": 7}  # 10 … 12 and 60 … 65 pass before and after the producer
# A program, the end of its window, why compute was absent, and what bounds count beyond that.
HANDOVERS: dict[str, tuple[Scene, int, dict[str, int], dict[str, int]]] = {
    "with the exchange": (waited_for(EXCHANGE, consumer=run("gemm", 65, 80, 4)), 80, WAITED, {"transport_handover": 7}),
    **{
        f"with a copy {kind}": (
            waited_for(replace(COPY, copy_kind=kind), consumer=run("gemm", 65, 80, 4)), 80, WAITED,
            {"host_copy_handover": 7} if kind != "d2d" else {})
        for kind in ("h2d", "d2h", "d2d")
    },
    **{
        f"not with a {op}": (waited_for(run(op, 12, 60, 1, stream=20), consumer=run("gemm", 65, 80, 4)), 80, WAITED, {})
        for op in ("memset", "permute")
    },
    # 100 … 110: the latency of a late launch is handed over with the host.
    "with the host": (host_gap(), 120, {"dependency_stalled": 10, "launch": 1, "host": 89}, {"launch_handover": 10}),
    # Whoever launched it, on its stream it comes after the copy.
    "a copy in order with what no launch is recorded of": (
        scene([run("gemm", 0, 10, 0), run("memcpy", 10, 60, 1, pinned=True, copy_kind="h2d"), run("gemm", 60, 80)]), 80,
        {"blocking": 50}, {}),
    "nothing was late": (scene([run("gemm", 0, 10, 0), run("gemm", 50, 60, 1)]), 60, {"dependency_stalled": 40}, {}),
    "allocation alone makes no late host": (
        scene([run("gemm", 0, 10, 0), call("cudaMalloc", 5, 100), run("gemm", 110, 120, 60, until=100)]), 120,
        {"allocator": 90, "dependency_stalled": 10}, {}),
    # The second gap, 80 … 100, neither the exchange nor the host explains.
    "each gap its own rest": (
        scene([*waited_items(), run("gemm", 100, 110, 5)]), 110, {"blocking": 48, "dependency_stalled": 27}, {"transport_handover": 7}),
    # The exchange until 60, but the host is later still: the gap counts for either wall.
    "two causes of one gap both get its rest": (
        waited_for(EXCHANGE, consumer=run("gemm", 65, 80, 39)), 80,
        {"blocking": 20, "dependency_stalled": 5, "launch": 1, "host": 29},
        {"transport_handover": 5, "launch_handover": 5, "launch_shadowed": 28}),
}  # fmt: skip


@for_each("one, end, why, expected", *HANDOVERS.values())
def test_what_is_handed_over(one: Scene, end: int, why: dict[str, int], expected: dict[str, int]) -> None:
    assert causes(one.stalls(0, end)) == why
    assert beyond(one, 0, end) == [expected]


def test_a_rest_longer_than_ten_microseconds_is_no_latency_and_windows_share_a_gap() -> None:
    assert HANDOVER_NS == 10_000
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 10_058, 10_100, 4)), 0, 10_100) == [{"transport_handover": 10_000}]
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 10_057, 10_100, 4)), 0, 10_100) == [{"transport_handover": 9_999}]
    assert beyond(waited_for(EXCHANGE, consumer=run("gemm", 90_000, 90_100, 4)), 0, 90_100) == [{"transport_handover": 10_000}]
    # Cut at 50, while the exchange runs
    assert beyond(scene(waited_items()), 0, 50, 80) == [{"transport_handover": 2}, {"transport_handover": 5}]


# ---------------------------------------------------------------------------------------------------- beside transport


def beside(one: Scene, end: int) -> tuple[int, int]:
    """Dependency-stalled time, and the part of it beside transport."""
    (measured,) = one.measure()
    assert end == measured.steps.frame["end"][-1]
    row = measured.budget.per_step.row(0, named=True)
    return row["dependency_stalled_ns"], row["beside_transport_ns"]


RESOLVED = [run("memset", 1, 2, 1, stream=90), record(2, 90, sync=900), await_event(3, 91, sync=900)]  # nothing need be inferred
# A GEMM until 10, the next issued at 5 that starts at 60; transport that no event joins to it.
UNSHOWN: dict[str, tuple[list[Item], int, int]] = {
    "a persistent kernel that outlasts the gap": ([run("nccl", 0, 70, 4, stream=20)], 50, 50),
    "a persistent kernel that begins in the gap": ([run("nccl", 30, 70, 4, stream=20)], 50, 30),
    "one after the other, and nothing between": (
        [run("nccl", 5, 25, 4, stream=20), run("nccl", 45, 50, 4, stream=20), run("nccl", 20, 30, 4, stream=21)], 50, 25),
    "packing and copies are no transport": ([run("permute", 0, 70, 4, stream=20), run("memcpy", 0, 70, 4, stream=21)], 50, 0),
    "nothing ran": ([], 50, 0),
}  # fmt: skip


@for_each("between, stalled, moved", *UNSHOWN.values())
def test_waits_that_no_event_shows(between: list[Item], stalled: int, moved: int) -> None:
    one = scene([run("gemm", 0, 10, 0), *RESOLVED, *between, run("gemm", 60, 70, 5)])
    assert beside(one, 70) == (stalled, moved)
    facts = facts_of(one)
    assert facts["beside_transport_ns"] == moved
    assert (facts["transport_blocking_ns"], facts["transport_handover_ns"]) == (0, 0)


def test_time_beside_transport_is_no_handover() -> None:
    """The exchange that the GEMM waits for ends at 60, another runs 62 … 64: what else passes before the GEMM is handed over."""
    one = scene([*waited_items()[:-1], run("allreduce", 62, 64, 4, stream=21), run("gemm", 65, 80, 5)])
    assert beside(one, 80) == (7, 2)
    assert facts_of(one)["transport_handover_ns"] == 5


def test_a_wait_for_memory_is_one_that_could_not_be_resolved() -> None:
    asked = [call("cuStreamWaitValue32_v2", 4, 5), call("cuStreamBatchMemOp", 5, 6), call("cuStreamWriteValue32", 6, 7)]
    assert facts_of(waited_for(EXCHANGE, consumer=run("gemm", 65, 80, 9)))["resolved_wait_rate"] == 1.0
    assert facts_of(waited_for(EXCHANGE, consumer=run("gemm", 65, 80, 9), between=tuple(asked)))["resolved_wait_rate"] == 1 / 3


# ---------------------------------------------------------------------------------------------------- shadows


def late(*between: Item, producer: tuple[int, int] = (12, 60), spans: tuple[Span, ...] = ()) -> Scene:
    """The consumer of an exchange that runs `producer` is issued at 40 only, and starts at 65."""
    return waited_for(
        run("nccl", *producer, 1, stream=20), consumer=run("gemm", 65, 80, 39), between=between, spans=spans
    )  # starved: 10 … 40


def shadows(one: Scene, end: int = 80) -> dict[str, int]:
    (row,) = beyond(one, 0, end)
    return {name: ns for name, ns in row.items() if name.endswith("_shadowed")}


SHADOWS: dict[str, tuple[Scene, dict[str, int]]] = {
    **{
        f"of an exchange {start} … {end}": (late(producer=(start, end)), {"launch_shadowed": ns} if ns else {})
        for start, end, ns in [(12, 60, 28), (2, 60, 30), (12, 20, 8), (39, 41, 1), (40, 60, 0), (2, 10, 0), (2, 8, 0)]
    },
    "an allocator call has its own": (late(call("cudaMalloc", 20, 30)), {"launch_shadowed": 18, "allocator_shadowed": 10}),
    "an allocator call partly in the open": (
        late(call("cudaMalloc", 20, 30), producer=(12, 25)), {"launch_shadowed": 8, "allocator_shadowed": 5}),
    "an allocator call in the open": (late(call("cudaMalloc", 20, 30), producer=(12, 20)), {"launch_shadowed": 8}),
    "garbage collection": (late(spans=(Span(text="gc.collect", start=20, end=30),)), {"launch_shadowed": 28}),
    # 20 … 30, for a stream that was done.
    "a synchronisation is no host work": (
        late(call("cudaStreamSynchronize", 20, 30, wait="stream_sync", stream=9)), {"launch_shadowed": 18}),
    # The exchange 12 … 30, the permute that waited for it 32 … 38; in between nothing ran, and from 38 to 50 the host alone was late.
    "of the whole chain of producers": (
        waited_for(run("nccl", 12, 30, 1, stream=20), between=(run("permute", 32, 38, 4),), consumer=run("gemm", 55, 80, 49)),
        {"launch_shadowed": 18 + 6}),
}  # fmt: skip


@for_each("one, expected", *SHADOWS.values())
def test_a_late_host_costs_nothing_while_what_is_waited_for_runs(one: Scene, expected: dict[str, int]) -> None:
    assert shadows(one) == expected


@for_each("name, ended, ns", ("cudaFree", 25, 5), ("cudaFree", 20, 0), ("cudaMalloc", 25, 0))
def test_an_allocator_call_that_waits_for_the_exchange_goes_with_it(name: str, ended: int, ns: int) -> None:
    """It runs 20 ... 30, the exchange 12 ... `ended`."""
    (row,) = beyond(late(call(name, 20, 30), producer=(12, ended)), 0, 80)
    assert row.get("transport_freeing", 0) == ns


def test_shadows_by_cause_are_counted_in_their_window() -> None:
    found = late(call("cudaMalloc", 20, 30)).stalls(0, 80).shadowed
    assert found.group_by("index", "cause").agg(pl.col("ns").sum()).sort("cause").rows() == [
        (0, "allocator", 10),
        (0, "host", 17),
        (0, "launch", 1),
    ]
    collecting = late(spans=(Span(text="gc.collect", start=20, end=30),))
    assert causes(collecting.stalls(0, 80))["gc"] == 10
    rows = beyond(late(), 0, 30, 80)
    assert [row.get("launch_shadowed") for row in rows] == [18, 10]


def test_what_is_not_waited_for_casts_no_shadow_and_what_runs_before_does_not_follow() -> None:
    elsewhere = [run("memset", 1, 2, 1, stream=90), record(2, 90, sync=900), await_event(3, 91, sync=900)]
    one = scene([run("gemm", 0, 10, 0), *elsewhere, run("nccl", 12, 60, 4, stream=20), run("gemm", 65, 80, 39)])
    assert beyond(one, 0, 80) == [{"launch_handover": 25}]
    one = waited_for(run("permute", 2, 20, 1, stream=20), run("nccl", 20, 60, 1, stream=20), consumer=run("gemm", 60, 100, 4))
    assert "transport_follow" not in beyond(one, 0, 100)[0]


# ---------------------------------------------------------------------------------------------------- what follows transport


@for_each("began, length, follow", (2, 20, 8), (7, 20, 3), (10, 20, 0), (12, 20, 0), (2, 5, 5))
def test_what_follows_an_exchange_that_ran_ahead_of_the_gap_goes_with_it(began: int, length: int, follow: int) -> None:
    """The GEMM ends at 10; the exchange runs from `began` to 60, then a permutation for `length`: without the exchange that would have
    run `10 - began` beside the GEMM.
    """
    exchange = run("nccl", began, 60, 1, stream=20)
    permutation = run("permute", 60, 60 + length, 1, stream=20)
    one = waited_for(exchange, permutation, consumer=run("gemm", 60 + length, 100, 4))
    (found,) = beyond(one, 0, 100)
    assert found.get("transport_follow", 0) == follow


def test_what_follows_an_exchange_comes_no_earlier_than_that_began() -> None:
    """An exchange of 3, then a copy of 30 that holds the CPU, which works for 34 more: without the exchange all of it is 3 earlier."""
    exchange = [run("nccl", 12, 15, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    copy = run("memcpy", 15, 45, 4, until=46, name="cudaMemcpyAsync", pinned=False, copy_kind="d2h")
    (found,) = beyond(scene([run("gemm", 0, 10, 0), *exchange, copy, run("gemm", 85, 100, 80)]), 0, 100)
    assert found.get("transport_follow") == 3


# ---------------------------------------------------------------------------------------------------- restarts


def restarts(one: Scene, end: int) -> dict[str, int]:
    (row,) = beyond(one, 0, end)
    return {name: ns for name, ns in row.items() if name.endswith("_restart")}


def synchronised(done: int, returns: int) -> Scene:
    """An exchange until `done`; the host waits for its stream from 3 on."""
    return host_gap(run("nccl", 5, done, 1, stream=20), call("cudaStreamSynchronize", 3, returns, wait="stream_sync", stream=20))


def waiting(start: int, end: int) -> Item:
    return call("cudaStreamSynchronize", start, end, wait="stream_sync", stream=20)


def copied(until: int, name: str = "cudaMemcpy", begin: int = 30, **more: object) -> Scene:
    """A copy that runs from `begin` to 60 in a call from 5 before it on; the gap begins at 10, and the launch is 30 behind the call."""
    return host_gap(run("memcpy", begin, 60, begin - 5, until=until, name=name, **more))


# A synchronisation is charged until the host leads again by as many operations as before, and with no more than its own length less what
# it took of the gap itself after the awaited work had ended.
RESTARTS: dict[str, tuple[Scene, int, dict[str, int]]] = {
    "held 10 … 60, 60 … 100 until the launch, the last 20 of it after the call": (
        synchronised(60, 80), 120, {"transport_restart": 40, "sync_restart": 20}),
    "the call returns at once": (synchronised(60, 60), 120, {"transport_restart": 40, "sync_restart": 40}),
    # The call 3 … 40, its last 10 in the gap.
    "held for 20 only: at most as much": (synchronised(30, 40), 120, {"transport_restart": 20, "sync_restart": 27}),
    "the call returns when the launch does": (synchronised(100, 100), 120, {}),
    "held for 1": (synchronised(11, 20), 120, {"transport_restart": 1, "sync_restart": 8}),
    "ended before the gap: what the host does then follows the call": (synchronised(10, 20), 120, {"sync_restart": 7}),
    "transport that held the device alone": (scene(waited_items()), 80, {}),
    # 10 … 40 host work; held 40 … 60; 60 … 70 in the call; 70 … 100 to the launch, of which a call of 30 takes the rest.
    "host work before the synchronisation is none": (
        host_gap(run("nccl", 5, 60, 1, stream=20), waiting(40, 70)), 120, {"transport_restart": 20, "sync_restart": 20}),
    # 30 … 50 and 80 … 100 to work; the calls take 27 and 30, of them 5 and 30 in the gap. Until the last the host did not lead by two
    # again.
    "two synchronisations before the host leads again are one": (
        host_gap(run("nccl", 5, 25, 1, stream=20), waiting(3, 30), waiting(50, 80)), 120, {"transport_restart": 15, "sync_restart": 22}),
    "a host that had nothing queued led by nothing": (host_gap(run("nccl", 5, 8, 1, stream=20), waiting(65, 80)), 120, {}),
    # Without a copy that begins in the gap the launch is earlier by its length, which is what it blocks; one that begins at 6 held the host
    # up for 4 in which the GEMM still ran.
    "a copy from the host": (copied(70, pinned=False, copy_kind="h2d"), 120, {}),
    "a copy to the host": (copied(70, pinned=False, copy_kind="d2h"), 120, {}),
    "a copy to the host that begins beside the GEMM": (copied(70, begin=6, pinned=False, copy_kind="d2h"), 120, {"host_copy_restart": 4, "sync_restart": 30}),
    "a copy on the device": (copied(70, pinned=False, copy_kind="d2d"), 120, {}),
    "an asynchronous copy holds nobody": (copied(28, "cudaMemcpyAsync", pinned=True, copy_kind="h2d"), 120, {}),
    **{
        f"the allocator {called} … {returned}": (
            host_gap(call("cudaMalloc", called, returned)), 120, {"allocator_restart": ns} if ns else {})
        for called, returned, ns in [
            (4, 30, 6),  # six ns of it while the GEMM ran: so much less was queued
            (4, 97, 3),  # no more than there is until the launch
            (4, 100, 0),
            (10, 30, 0),  # began with the gap: without the call nothing more would have been queued
            (30, 70, 0),
            (2, 8, 0),  # returned before the gap
        ]
    },
    # The second gap, 120 … 220, lies before the host leads by two again, but the call of 37 has none left of its 27.
    "each gap its own": (
        scene([run("gemm", 0, 10, 0), run("nccl", 5, 30, 1, stream=20), waiting(3, 40), run("gemm", 110, 120, 99),
               run("gemm", 220, 230, 210)]),
        230, {"transport_restart": 20, "sync_restart": 27}),
}  # fmt: skip


@for_each("one, end, expected", *RESTARTS.values())
def test_a_host_that_was_held_starts_anew(one: Scene, end: int, expected: dict[str, int]) -> None:
    assert restarts(one, end) == expected


def test_pieces_tell_what_held_the_host() -> None:
    held = synchronised(60, 80).stalls(0, 120).pieces.sort("start")
    assert held.filter("through_host").select("start", "end", "cause").rows() == [(10, 60, "blocking")]
    direct = scene(waited_items()).stalls(0, 80).pieces
    assert (direct["cause"] == "blocking").any()
    assert not direct["through_host"].any()


# ---------------------------------------------------------------------------------------------------- facts


OF_LAUNCHES = ("launch_handover_ns", "launch_shadowed_ns")
OF_CALLS = ("allocator_shadowed_ns", "allocator_restart_ns", "sync_restart_ns")
ALWAYS = ("transport_handover_ns", "transport_follow_ns", "transport_restart_ns", "host_copy_handover_ns", "host_copy_restart_ns")


def test_facts_are_the_figures_of_the_step_and_null_where_the_host_was_not_recorded() -> None:
    found = facts_of(scene([run("gemm", 0, 10), run("gemm", 50, 60)]))
    assert {name: found[name] for name in (*OF_LAUNCHES, *OF_CALLS)} == dict.fromkeys((*OF_LAUNCHES, *OF_CALLS))
    assert {name: found[name] for name in ALWAYS} == dict.fromkeys(ALWAYS, 0)
    found = facts_of(synchronised(60, 80))
    expected = {"transport_handover_ns": 10, "launch_handover_ns": 10, "transport_restart_ns": 40, "sync_restart_ns": 20}
    assert {name: found[name] for name in (*OF_LAUNCHES, *OF_CALLS, *ALWAYS) if found[name]} == expected


# ---------------------------------------------------------------------------------------------------- recompute


def repeated(one: Scene) -> list[tuple[int, int]]:
    (measured,) = one.measure()
    assert measured.memory.recompute.status == "measured"
    assert measured.memory.recompute.per_window is not None
    return list(measured.memory.recompute.per_window.select("index", "ns").iter_rows())


def test_gaps_that_repeated_compute_ends_are_recompute_in_the_step_in_which_they_lie() -> None:
    # 10 … 20 and the repetition itself; not 30 … 50, before a backward kernel
    items = [run("gemm", 0, 10, 0, phase="forward"), run("gemm", 20, 30, 1, phase="recompute"), run("gemm", 50, 60, 2, phase="backward")]
    assert repeated(scene(items)) == [(0, 20)]
    items = [run("gemm", 0, 30, 0, phase="forward"), run("gemm", 20, 40, 1, stream=9, phase="recompute")]
    assert repeated(scene(items)) == [(0, 20)]
    # A step begins with its first operation once the compute of the step before is done, so at 0 and at 30; the gap 10 … 50 lies in both
    items = [run("gemm", 0, 10, 1, phase="forward"), run("nccl", 30, 40, 22, phase="recompute"), run("gemm", 50, 57, 23, phase="recompute")]
    spans = [Span(text=f"iteration {n}", start=20 * n - 20, end=20 * n) for n in (1, 2)]
    assert repeated(scene(items, spans)) == [(1, 20), (2, 27)]


@for_each(
    "one, named",
    (waited_for(run("nccl", 12, 60, 1, stream=20), consumer=run("gemm", 65, 80, 4)), "no synchronising call for long"),
    (
        scene([run("gemm", 0, 10, 0), run("gemm", 60, 80, 5), call("cudaStreamSynchronize", 20, 50, wait="stream_sync", stream=7)]),
        "cudaStreamSynchronize (0.00 ms)",
    ),
)
def test_the_call_that_held_the_host_while_compute_waited_for_something_unknown_is_named(one: Scene, named: str) -> None:
    assert facts_of(one)["unexplained_wait_calls"] == named
