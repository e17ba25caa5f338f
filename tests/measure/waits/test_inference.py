"""Producers that no event tells: from the order of calls where a trace holds no resolved wait, and inside replayed graphs."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.measure.waits.dependencies import StreamWaits, latest_producers, prepare, resolve_waits
from tests.builders.scene import Item, Scene, await_event, blocked_by, call, causes, record, run, scene

FAR = 100_000  # where the consumer starts: too far from its producers for times to tell anything


def waits_of(one: Scene) -> StreamWaits:
    ids = one.trace.names.filter(pl.col("text") == "cudaStreamWaitEvent")["id"]
    return resolve_waits(one.trace.waits, one.trace.calls.filter(pl.col("name_id").is_in(ids.implode()))["correlation"])


def producer_of(one: Scene, start: int = FAR) -> tuple[int | None, bool, bool]:
    """Of the operation that starts at `start`: the start of its producer, whether that is inferred, whether a wait is unresolved."""
    work = one.work()
    consumers = work.filter(pl.col("start") == start).select("op", "start", "stream", "correlation", "issued")
    assert consumers.height == 1
    (row,) = latest_producers(prepare(work, waits_of(one)), consumers).iter_rows(named=True)
    return None if row["producer"] is None else work["start"][row["producer"]], row["inferred"], row["unresolved"]


def asked(at: int) -> Item:
    """A stream-wait call of which the trace tells neither stream nor event."""
    return call("cudaStreamWaitEvent", at, at + 1)


GEMM = run("gemm", 10, 20, 0)
EXCHANGE = run("nccl", 15, 60, 2, stream=20)
CONSUMER = run("gemm", FAR, FAR + 100, 90)
ELSEWHERE = [run("memset", 1, 2, 1, stream=90), record(2, 90, sync=900), await_event(3, 91, sync=900)]  # a resolved wait

# ---------------------------------------------------------------------------------------------------- order of calls


def test_a_wait_call_names_what_was_launched_before_it_on_another_stream() -> None:
    assert producer_of(scene([GEMM, EXCHANGE, asked(5), CONSUMER])) == (15, True, True)


def test_without_the_call_nothing_is_named() -> None:
    assert producer_of(scene([GEMM, EXCHANGE, CONSUMER])) == (10, False, True)


def test_a_wait_whose_record_is_missing_is_such_a_call() -> None:
    one = scene([GEMM, EXCHANGE, await_event(5, 7, sync=77), CONSUMER])
    assert waits_of(one).resolved_rate == 0.0
    assert producer_of(one) == (15, True, True)


def test_the_launches_of_the_consumers_own_stream_are_skipped() -> None:
    """The last two before the call ran on the consumer's stream; the exchange was launched before them, and ended after."""
    own = [run("gemm", 30, 35, 3), run("gemm", 40, 45, 4)]
    assert producer_of(scene([GEMM, EXCHANGE, *own, asked(5), CONSUMER])) == (15, True, True)


def test_the_last_launch_of_another_stream_is_taken_not_the_longest() -> None:
    """The exchange lasts until 60, but the set was launched after it; that one ends before what the stream itself ran until 20."""
    later = run("memset", 16, 25, 3, stream=30)
    assert producer_of(scene([GEMM, EXCHANGE, later, asked(5), CONSUMER])) == (16, True, True)
    sooner = run("memset", 16, 19, 3, stream=30)
    assert producer_of(scene([GEMM, EXCHANGE, sooner, asked(5), CONSUMER])) == (10, False, True)


def test_two_calls_before_one_launch_name_the_same() -> None:
    """The call that comes first names the longer exchange, but for another operation, at whose start that one still ran."""
    first = run("nccl", 12, 70, 1, stream=30)
    one = scene([GEMM, first, asked(2), EXCHANGE, asked(5), asked(6), CONSUMER])
    assert producer_of(one) == (15, True, True)
    assert producer_of(one, 15) == (None, False, True)


@pytest.mark.parametrize(("end", "found"), [(FAR - 20_000, True), (FAR, True), (FAR + 1, False)])
def test_what_had_not_ended_when_the_consumer_started_is_a_wrong_guess(end: int, found: bool) -> None:
    one = scene([GEMM, run("expert", 15, end, 2, stream=20), asked(5), CONSUMER])
    assert producer_of(one) == ((15, True, True) if found else (10, False, True))


def test_a_wrong_guess_leaves_what_times_tell() -> None:
    """The call names an exchange that still ran; the set that ended 5 ns before, and was launched earlier, is the likelier one."""
    items = [GEMM, run("memset", 16, FAR - 5, 1, stream=30), run("nccl", 15, FAR + 50, 2, stream=20), asked(5), CONSUMER]
    assert producer_of(scene(items)) == (16, True, True)


def test_between_times_and_calls_the_later_end_decides() -> None:
    def program(named_end: int) -> Scene:
        return scene([GEMM, run("memset", 16, FAR - 5, 1, stream=30), run("expert", 15, named_end, 2, stream=20), asked(5), CONSUMER])

    assert producer_of(program(FAR - 4)) == (15, True, True)
    assert producer_of(program(FAR - 6)) == (16, True, True)


def test_the_stream_s_own_operation_before_counts_where_it_ends_later() -> None:
    assert producer_of(scene([run("gemm", 10, 61, 0), EXCHANGE, asked(5), CONSUMER])) == (10, False, True)
    assert producer_of(scene([run("gemm", 10, 59, 0), EXCHANGE, asked(5), CONSUMER])) == (15, True, True)


def test_a_call_holds_only_what_is_launched_next() -> None:
    """The GEMM on stream 8, launched second, has nothing before it."""
    one = scene([GEMM, EXCHANGE, asked(5), CONSUMER, run("gemm", FAR + 200, FAR + 300, 91, stream=8)])
    assert producer_of(one) == (15, True, True)
    assert producer_of(one, FAR + 200) == (None, False, True)


@pytest.mark.parametrize("items", [[asked(0), EXCHANGE, CONSUMER], [EXCHANGE, CONSUMER, asked(95)], [EXCHANGE, CONSUMER]])
def test_a_call_before_the_first_or_after_the_last_launch_names_nothing(items: list[Item]) -> None:
    assert producer_of(scene(items)) == (None, False, True)


def test_where_all_launches_before_share_the_consumers_stream_nothing_is_named() -> None:
    assert producer_of(scene([GEMM, run("gemm", 30, 40, 2), asked(5), CONSUMER])) == (30, False, True)


def test_launches_without_correlation_are_no_guess() -> None:
    lost = run("memset", 16, 70, None, stream=30, correlation=0)
    assert producer_of(scene([GEMM, EXCHANGE, lost, asked(5), CONSUMER])) == (15, True, True)


def test_calls_name_nothing_where_a_wait_is_resolved() -> None:
    assert producer_of(scene([*ELSEWHERE, GEMM, EXCHANGE, asked(5), CONSUMER])) == (10, False, False)


def test_blocking_by_what_a_call_names_is_inferred() -> None:
    """10 … 12 nothing ran, 12 … 50 000 the exchange, then nothing."""
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 50_000, 1, stream=20)]
    early = run("gemm", FAR, FAR + 100, 7)
    (one,) = scene([*program, asked(5), early]).measure()
    assert one.causes.blocking.select("role", "ns", "inferred").rows() == [("transport", 49_988, True)]
    assert one.budget.per_step.select("blocking_ns", "blocking_lower_ns", "blocking_upper_ns", "dependency_stalled_ns").rows() == [
        (49_988, 0, 49_988, 50_002)
    ]
    (without,) = scene([*program, early]).measure()
    assert without.causes.blocking.is_empty()


# ---------------------------------------------------------------------------------------------------- replayed graphs


def graph(exchange_end: int = 150, *, node: bool = True) -> list[Item]:
    """One launch: a GEMM until 80, an exchange on another stream until 150, and a GEMM from 155 on."""
    number = iter((1, 2, 3))
    parts = [("gemm", 65, 80, 7, 4), ("nccl", 82, exchange_end, 20, None), ("gemm", 155, 170, 7, None)]
    return [
        run(name, start, end, at, stream=stream, correlation=50, node=next(number) if node else None)
        for name, start, end, stream, at in parts
    ]


def test_inner_nodes_are_inferred_although_waits_are_resolved() -> None:
    one = scene([*ELSEWHERE, *graph()])
    assert producer_of(one, 155) == (82, True, True)
    found = one.stalls(65, 170)
    assert causes(found) == {"blocking": 68, "dependency_stalled": 7}
    assert blocked_by(found, one) == {"nccl": 68}
    assert found.bounds.rows() == [(0, 0, 68)]


def test_what_is_no_node_is_not_inferred_beside_a_graph() -> None:
    beside = [run("gemm", 200, 210, 60), run("nccl", 205, 248, 61, stream=20), run("gemm", 250, 260, 62)]
    one = scene([*ELSEWHERE, *graph(), *beside])
    assert producer_of(one, 250) == (200, False, False)
    assert producer_of(one, 155) == (82, True, True)


def test_operations_that_no_graph_launched_are_not_inferred() -> None:
    assert producer_of(scene([*ELSEWHERE, *graph(node=False)]), 155) == (65, False, False)


def test_an_inner_node_is_inferred_by_times_only() -> None:
    """The exchange ended more than 10 µs before; a call before the launch names it, but calls name nothing here."""
    far = run("gemm", 10_156, 10_170, None, correlation=50, node=3)
    assert producer_of(scene([*ELSEWHERE, *graph(155)[:2], far]), 10_156) == (65, False, True)
    assert producer_of(scene([*ELSEWHERE, *graph(156)[:2], far]), 10_156) == (82, True, True)
    first = run("gemm", FAR, FAR + 10, 90, node=1)
    assert producer_of(scene([*ELSEWHERE, EXCHANGE, asked(5), first])) == (None, False, False), "a first node waits as any launch does"


def test_a_node_that_waits_for_an_event_has_that_for_a_producer() -> None:
    """The set ended later, 62 … 64, but the event tells what the graph waited for."""
    program = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), run("memset", 62, 64, 2, stream=9), record(2, 20, sync=1)]
    one = scene([*program, await_event(3, 7, sync=1), run("gemm", 65, 80, 4, node=1)])
    assert producer_of(one, 65) == (12, False, False)


def test_an_inner_node_never_waits_for_what_was_launched_after_the_graph() -> None:
    one = scene([*ELSEWHERE, *graph(), run("memset", 151, 154, 99, stream=9)])
    assert producer_of(one, 155) == (82, True, True)


def test_inner_nodes_of_a_stream_are_held_by_their_own_stream_where_that_ends_later() -> None:
    nodes = [run("nccl", 66, 79, None, stream=20, correlation=50, node=9), *graph()]
    one = scene([*ELSEWHERE, nodes[1], nodes[0], run("gemm", 82, 90, None, correlation=50, node=3)])
    assert producer_of(one, 82) == (65, False, True)


def test_inner_nodes_are_inferred_after_a_resolved_wait_too() -> None:
    """The wait before the launch holds the first node; what orders the two after it no trace holds."""
    launch = [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), record(2, 20, sync=1), await_event(3, 7, sync=1)]
    nodes = [
        run("gemm", 65, 80, 4, correlation=5, node=1),
        run("nccl", 82, 150, None, stream=20, correlation=5, node=2),
        run("gemm", 155, 170, None, correlation=5, node=3),
    ]
    assert causes(scene([*launch, *nodes]).stalls(0, 170)) == {"blocking": 116, "dependency_stalled": 14}
