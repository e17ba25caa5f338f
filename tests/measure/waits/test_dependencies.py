"""Producers of operations: stream order, events, relays, graphs, and what is inferred from times."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.measure.waits.dependencies import StreamWaits, latest_producers, prepare, resolve_waits
from tests.builders.scene import Item, Scene, await_event, blocked_by, causes, record, run, scene


def waits_of(one: Scene, calls: int = 0, rank: int = 0) -> StreamWaits:
    return resolve_waits(one.trace.waits.filter(pl.col("rank") == rank), pl.Series([None] * calls, dtype=pl.Int64))


def producer_of(one: Scene, start: int, place: int = 0) -> tuple[int | None, bool, bool]:
    """Of the operation that starts at `start`: the start of its producer, whether that is inferred, whether a wait is unresolved."""
    rank, _, work = one.works()[place]
    consumers = work.filter(pl.col("start") == start).select("op", "start", "stream", "correlation", "issued")
    assert consumers.height == 1
    (row,) = latest_producers(prepare(work, waits_of(one, rank=rank)), consumers).iter_rows(named=True)
    began = None if row["producer"] is None else work["start"][row["producer"]]
    return began, row["inferred"], row["unresolved"]


# A wait of another stream pair makes the trace one with resolved dependencies, where nothing is inferred.
ELSEWHERE = [run("memset", 1, 2, 1, stream=90), record(2, 90, sync=900), await_event(3, 91, sync=900)]


def test_the_operation_before_on_the_stream_is_a_producer() -> None:
    one = scene([*ELSEWHERE, run("gemm", 10, 20, 5), run("nccl", 12, 60, 6, stream=20), run("gemm", 70, 80, 7)])
    assert producer_of(one, 70) == (10, False, False)
    assert producer_of(one, 10) == (None, False, False)


def test_a_wait_belongs_to_the_record_with_its_sync_id() -> None:
    one = scene(
        [
            run("gemm", 10, 20, 1),
            run("nccl", 12, 60, 2, stream=20),
            record(3, 20, event=5, sync=101),
            run("nccl", 60, 90, 4, stream=20),
            record(5, 20, event=5, sync=102),
            await_event(6, 7, event=5, sync=101),
            run("gemm", 95, 99, 7),
        ]
    )
    assert producer_of(one, 95) == (12, False, False)
    assert waits_of(one).stream_waits.rows() == [(7, 6, 20, 3)]
    assert waits_of(one).resolved_rate == 1.0


def test_without_sync_id_the_last_record_of_the_event_before_the_wait_counts() -> None:
    """PyTorch takes events from a pool: the same handle is recorded again and again."""
    one = scene(
        [
            run("gemm", 10, 20, 1),
            run("nccl", 12, 40, 2, stream=20),
            record(3, 20, event=5),
            run("nccl", 40, 60, 4, stream=20),
            record(5, 20, event=5),
            await_event(6, 7, event=5),
            run("nccl", 60, 90, 7, stream=20),
            record(8, 20, event=5),
            run("gemm", 95, 99, 9),
        ]
    )
    assert producer_of(one, 95) == (40, False, False)


def test_a_record_covers_only_what_was_issued_before_it() -> None:
    one = scene(
        [
            run("gemm", 10, 20, 1),
            record(2, 20, sync=1),
            run("nccl", 12, 60, 3, stream=20),
            await_event(4, 7, sync=1),
            run("gemm", 70, 80, 5),
        ]
    )
    assert producer_of(one, 70) == (10, False, False)


def test_a_wait_holds_only_what_was_issued_after_it_on_its_own_stream() -> None:
    program = [run("nccl", 5, 60, 1, stream=20), record(2, 20, sync=1), run("gemm", 10, 20, 3), await_event(4, 7, sync=1)]
    one = scene([*program, run("gemm", 61, 70, 5, stream=8), run("gemm", 62, 90, 6)])
    assert producer_of(one, 10) == (None, False, False)
    assert producer_of(one, 61) == (None, False, False)
    assert producer_of(one, 62) == (5, False, False)


def test_later_operations_reach_the_record_through_their_stream() -> None:
    """Only the first operation after the wait has it as a producer; the next has that one."""
    program = [run("nccl", 5, 60, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    one = scene([*program, run("memset", 61, 62, 4), run("gemm", 63, 70, 5)])
    assert producer_of(one, 61) == (5, False, False)
    assert producer_of(one, 63) == (61, False, False)


def test_a_record_is_followed_through_two_streams_that_only_waited() -> None:
    one = scene(
        [
            run("gemm", 10, 20, 1),
            run("nccl", 12, 60, 2, stream=20),
            record(3, 20, sync=1),
            await_event(4, 30, sync=1),
            record(5, 30, sync=2),
            await_event(6, 40, sync=2),
            record(7, 40, sync=3),
            await_event(8, 7, sync=3),
            run("gemm", 70, 80, 9),
        ]
    )
    assert producer_of(one, 70) == (12, False, False)


def test_a_relay_stream_with_work_of_its_own_gives_the_later_of_both() -> None:
    def program(relay_end: int) -> list[Item]:
        return [
            run("gemm", 10, 20, 1),
            run("memset", 11, relay_end, 2, stream=30),
            run("nccl", 12, 60, 3, stream=20),
            record(4, 20, sync=1),
            await_event(5, 30, sync=1),
            record(6, 30, sync=2),
            await_event(7, 7, sync=2),
            run("gemm", 90, 99, 8),
        ]

    assert producer_of(scene(program(15)), 90) == (12, False, False)
    assert producer_of(scene(program(80)), 90) == (11, False, False)


def test_a_wait_after_the_record_is_no_relay() -> None:
    one = scene(
        [
            run("gemm", 10, 20, 1),
            run("nccl", 12, 60, 2, stream=20),
            record(3, 20, sync=1),
            record(4, 30, sync=2),
            await_event(5, 30, sync=1),
            await_event(6, 7, sync=2),
            run("gemm", 70, 80, 7),
        ]
    )
    assert producer_of(one, 70) == (10, False, False)


def test_two_streams_that_wait_for_each_other_in_turn_end() -> None:
    program: list[Item] = [run("gemm", 10, 20, 1)]
    for turn in range(40):
        here, there = (30, 40) if turn % 2 else (40, 30)
        program += [record(2 + 2 * turn, here, sync=turn), await_event(3 + 2 * turn, there, sync=turn)]
    one = scene([*program, await_event(100, 7, sync=39), run("gemm", 120, 130, 101)])
    assert producer_of(one, 120) == (10, False, False)


@pytest.mark.parametrize("wait", [{"event": 6}, {"sync": 77}])
def test_a_wait_whose_record_was_not_captured_is_unresolved(wait: dict[str, int]) -> None:
    one = scene([*ELSEWHERE, run("gemm", 10, 20, 5), await_event(6, 7, **wait), run("gemm", 70, 80, 7)])
    assert producer_of(one, 70) == (10, False, True)
    assert waits_of(one).resolved_rate == 0.5


def test_waits_that_only_an_api_call_shows_count_as_unresolved() -> None:
    assert waits_of(scene(ELSEWHERE), calls=4).resolved_rate == 0.25
    assert waits_of(scene([run("gemm", 1, 2, 0)]), calls=0).resolved_rate is None


# ---------------------------------------------------------------------------------------------------- inference


def pair(end: int, at: int = 1, consumer_at: int = 2, recorded: bool = True) -> Scene:
    """An exchange that ends at `end`, and a GEMM on another stream that starts at 100 000."""
    return scene(
        [run("gemm", 10, 20, 0), run("nccl", 15, end, at if recorded else None, stream=20), run("gemm", 100_000, 100_100, consumer_at)]
    )


@pytest.mark.parametrize(("end", "found"), [(100_000, True), (99_999, True), (90_000, True), (89_999, False), (100_001, False)])
def test_a_producer_is_inferred_within_ten_microseconds(end: int, found: bool) -> None:
    assert producer_of(pair(end), 100_000) == ((15, True, True) if found else (10, False, True))


def test_a_producer_issued_after_its_consumer_is_not_inferred() -> None:
    assert producer_of(pair(99_999, at=5, consumer_at=2), 100_000) == (10, False, True)


def test_a_producer_without_issue_time_is_not_inferred() -> None:
    assert producer_of(pair(99_999, recorded=False), 100_000) == (10, False, True)


def test_compute_is_never_inferred() -> None:
    one = scene([run("gemm", 10, 20, 0), run("expert", 15, 90, 1, stream=20), run("gemm", 95, 99, 2)])
    assert producer_of(one, 95) == (10, False, True)


def test_nothing_is_inferred_where_waits_are_resolved() -> None:
    one = scene([*ELSEWHERE, run("gemm", 10, 20, 4), run("nccl", 15, 69, 5, stream=20), run("gemm", 70, 80, 6)])
    assert producer_of(one, 70) == (10, False, False)


def test_inferred_blocking_lies_between_its_bounds() -> None:
    one = scene([run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), run("gemm", 65, 80, 2)])
    found = one.stalls(0, 80)
    assert causes(found) == {"blocking": 48, "dependency_stalled": 7}  # 10 … 12 and 60 … 65: nothing that explains the wait ran
    assert found.bounds.rows() == [(0, 0, 48)]


def test_resolved_blocking_has_equal_bounds() -> None:
    one = scene(
        [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1), run("gemm", 65, 80, 4)]
    )
    assert one.stalls(0, 80).bounds.rows() == [(0, 48, 48)]


# ---------------------------------------------------------------------------------------------------- chains


def test_a_chain_gives_each_producer_the_time_that_it_ran() -> None:
    """GEMM ← permute ← exchange: the wait is the exchange's until it ends, the permute's after that."""
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    one = scene([*program, run("permute", 62, 70, 4), run("gemm", 72, 80, 5)])
    found = one.stalls(0, 80)
    assert causes(found) == {"blocking": 56, "dependency_stalled": 6}
    assert blocked_by(found, one) == {"nccl": 48, "permute": 8}


# ---------------------------------------------------------------------------------------------------- graphs


def test_a_graph_launch_issues_all_of_its_nodes() -> None:
    launch = [run("gemm", 10, 20, 0, correlation=1, node=1), *(run("gemm", a, a + 5, None, correlation=1, node=a) for a in (30, 40))]
    assert scene(launch).work()["issued"].to_list() == [1, 1, 1]


def test_a_wait_before_a_graph_launch_holds_the_graph() -> None:
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    one = scene([*program, run("gemm", 65, 80, 4, correlation=5, node=1), run("gemm", 80, 90, None, correlation=5, node=2)])
    assert producer_of(one, 65) == (12, False, False)
    assert blocked_by(one.stalls(0, 90), one) == {"nccl": 48}


# ---------------------------------------------------------------------------------------------------- known to be wrong


@pytest.mark.parametrize("name", ["memcpy", "memset"])
def test_blocking_by_an_operation_is_never_longer_than_it_ran(name: str) -> None:
    one = scene([run("gemm", 0, 10, 0), run(name, 1000, 1002, 2), run("gemm", 1003, 1020, 3)])
    assert blocked_by(one.stalls(0, 1020), one).get(name, 0) <= 2


def test_the_producer_is_inferred_among_those_issued_before_the_consumer() -> None:
    one = scene(
        [run("gemm", 0, 10, 0), run("nccl", 12, 100, 1, stream=20), run("gemm", 103, 120, 2), run("memset", 101, 102, 50, stream=9)]
    )
    assert producer_of(one, 103) == (12, True, True)


def test_a_producer_is_inferred_inside_a_graph() -> None:
    nodes = [
        run("gemm", 10, 20, 0, correlation=1, node=1),
        run("nccl", 21, 90, None, stream=20, correlation=1, node=2),
        run("gemm", 92, 120, None, correlation=1, node=3),
    ]
    assert producer_of(scene(nodes), 92) == (21, True, True)


def test_a_record_after_a_graph_launch_covers_the_whole_graph() -> None:
    nodes = [run("gemm", 10, 20, 0, correlation=1, node=1), run("nccl", 21, 90, None, stream=20, correlation=1, node=2)]
    waits = [record(2, 7, sync=9, correlation=2), await_event(3, 8, sync=9, correlation=3)]
    assert producer_of(scene([*nodes, *waits, run("gemm", 95, 120, 4, stream=8, correlation=4)]), 95) == (21, False, False)


def test_a_wait_on_another_device_does_not_reach_this_one() -> None:
    program = [
        run("gemm", 0, 10, 0, device=0),
        run("nccl", 1, 90, 1, stream=20, device=0),
        run("nccl", 2, 50, 2, stream=20, device=1),
        record(3, 20, sync=5, device=1),
        await_event(4, 7, sync=5, device=1),
        run("gemm", 95, 120, 6, device=0),
        run("gemm", 60, 70, 7, device=1),
    ]
    first, second = scene(program).measure()
    assert first.causes.blocking["inferred"].to_list() == [True]  # device 0 has no wait of its own: what blocks it is only guessed
    assert second.causes.blocking.select("ns", "inferred").rows() == [(42, False)]
