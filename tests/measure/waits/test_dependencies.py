"""Producers of operations: stream order, events, relays, graphs, and what times or the order of calls let infer."""

import polars as pl

from diagnose.measure.waits.dependencies import StreamWaits, latest_producers, prepare, resolve_waits
from tests.builders.cases import for_each
from tests.builders.scene import Item, Scene, await_event, blocked_by, call, causes, record, run, scene

Producer = tuple[int | None, bool, bool]  # the producer's start, whether it is inferred, whether a wait is unresolved
FAR = 100_000  # where a consumer starts too far from its producers for times to tell anything


def waits_of(one: Scene) -> StreamWaits:
    ids = one.trace.names.filter(pl.col("text") == "cudaStreamWaitEvent")["id"]
    return resolve_waits(one.trace.waits, one.trace.calls.filter(pl.col("name_id").is_in(ids.implode()))["correlation"])


def producer_of(one: Scene, start: int) -> Producer:
    """Of the operation that starts at `start`."""
    work = one.work()
    consumers = work.filter(pl.col("start") == start).select("op", "start", "stream", "correlation", "issued")
    assert consumers.height == 1
    (row,) = latest_producers(prepare(work, waits_of(one)), consumers).iter_rows(named=True)
    return None if row["producer"] is None else work["start"][row["producer"]], row["inferred"], row["unresolved"]


def asked(at: int) -> Item:
    """A stream-wait call of which the trace tells neither stream nor event."""
    return call("cudaStreamWaitEvent", at, at + 1)


def handed(at: int, producer: int = 20, consumer: int = 7, sync: int = 1) -> list[Item]:
    """An event after what stream `producer` holds so far, for which stream `consumer` waits."""
    return [record(at, producer, sync=sync), await_event(at + 1, consumer, sync=sync)]


def turns() -> list[Item]:
    """Two streams without work of their own that wait for each other in turn."""
    return [item for turn in range(40) for item in handed(2 + 2 * turn, *((30, 40) if turn % 2 else (40, 30)), turn)]


# A wait of another stream pair makes the trace one with resolved dependencies, where nothing is inferred.
ELSEWHERE = [run("memset", 1, 2, 1, stream=90), *handed(2, 90, 91, 900)]
FIRST = run("gemm", 10, 20, 1)
SENT = run("nccl", 12, 60, 2, stream=20)

# What the trace tells: the program, and the producer of the operations that start at these times.
TOLD: dict[str, tuple[list[Item], dict[int, Producer]]] = {
    "the operation before on the stream": (
        [*ELSEWHERE, run("gemm", 10, 20, 5), run("nccl", 12, 60, 6, stream=20), run("gemm", 70, 80, 7)],
        {70: (10, False, False), 10: (None, False, False)}),
    # PyTorch takes events from a pool: the same handle is recorded again and again.
    "without a sync id the last record of the event before the wait": (
        [FIRST, run("nccl", 12, 40, 2, stream=20), record(3, 20, event=5), run("nccl", 40, 60, 4, stream=20), record(5, 20, event=5),
         await_event(6, 7, event=5), run("nccl", 60, 90, 7, stream=20), record(8, 20, event=5), run("gemm", 95, 99, 9)],
        {95: (40, False, False)}),
    "a record covers only what was issued before it": (
        [FIRST, record(2, 20, sync=1), run("nccl", 12, 60, 3, stream=20), await_event(4, 7, sync=1), run("gemm", 70, 80, 5)],
        {70: (10, False, False)}),
    "a wait holds only what was issued after it on its own stream": (
        [run("nccl", 5, 60, 1, stream=20), record(2, 20, sync=1), run("gemm", 10, 20, 3), await_event(4, 7, sync=1),
         run("gemm", 61, 70, 5, stream=8), run("gemm", 62, 90, 6)],
        {10: (None, False, False), 61: (None, False, False), 62: (5, False, False)}),
    "later operations reach the record through their stream": (
        [run("nccl", 5, 60, 1, stream=20), *handed(2), run("memset", 61, 62, 4), run("gemm", 63, 70, 5)],
        {61: (5, False, False), 63: (61, False, False)}),
    "through two streams that only waited": (
        [FIRST, SENT, *handed(3, 20, 30, 1), *handed(5, 30, 40, 2), *handed(7, 40, 7, 3), run("gemm", 70, 80, 9)],
        {70: (12, False, False)}),
    "a relay stream whose own work ended before": (
        [FIRST, run("memset", 11, 15, 2, stream=30), run("nccl", 12, 60, 3, stream=20), *handed(4, 20, 30, 1), *handed(6, 30, 7, 2),
         run("gemm", 90, 99, 8)],
        {90: (12, False, False)}),
    "a relay stream whose own work ended after": (
        [FIRST, run("memset", 11, 80, 2, stream=30), run("nccl", 12, 60, 3, stream=20), *handed(4, 20, 30, 1), *handed(6, 30, 7, 2),
         run("gemm", 90, 99, 8)],
        {90: (11, False, False)}),
    "a wait after the record is no relay": (
        [FIRST, SENT, record(3, 20, sync=1), record(4, 30, sync=2), await_event(5, 30, sync=1), await_event(6, 7, sync=2),
         run("gemm", 70, 80, 7)],
        {70: (10, False, False)}),
    "two streams that wait for each other in turn": (
        [FIRST, *turns(), await_event(100, 7, sync=39), run("gemm", 120, 130, 101)],
        {120: (10, False, False)}),
    "an event whose record was not captured": (
        [*ELSEWHERE, run("gemm", 10, 20, 5), await_event(6, 7, event=6), run("gemm", 70, 80, 7)],
        {70: (10, False, True)}),
    "a sync id whose record was not captured": (
        [*ELSEWHERE, run("gemm", 10, 20, 5), await_event(6, 7, sync=77), run("gemm", 70, 80, 7)],
        {70: (10, False, True)}),
    "where waits are resolved times tell nothing": (
        [*ELSEWHERE, run("gemm", 10, 20, 4), run("nccl", 15, 69, 5, stream=20), run("gemm", 70, 80, 6)],
        {70: (10, False, False)}),
    "a record after a graph launch covers the whole graph": (
        [run("gemm", 10, 20, 0, correlation=1, node=1), run("nccl", 21, 90, None, stream=20, correlation=1, node=2),
         record(2, 7, sync=9, correlation=2), await_event(3, 8, sync=9, correlation=3), run("gemm", 95, 120, 4, stream=8, correlation=4)],
        {95: (21, False, False)}),
}  # fmt: skip


def test_a_wait_belongs_to_the_record_with_its_sync_id() -> None:
    again = [run("nccl", 60, 90, 4, stream=20), record(5, 20, event=5, sync=102), await_event(6, 7, event=5, sync=101)]
    one = scene([FIRST, SENT, record(3, 20, event=5, sync=101), *again, run("gemm", 95, 99, 7)])
    assert producer_of(one, 95) == (12, False, False)
    assert waits_of(one).stream_waits.rows() == [(7, 6, 20, 3)]
    assert waits_of(one).resolved_rate == 1.0


@for_each(
    "program, rate",
    ([*ELSEWHERE, await_event(6, 7, sync=77)], 0.5),
    ([*ELSEWHERE, asked(6), asked(8), asked(10)], 0.25),  # waits that only an API call shows
    ([run("gemm", 1, 2, 0), await_event(5, 7, sync=77)], 0.0),
    ([run("gemm", 1, 2, 0)], None),
)
def test_the_share_of_waits_that_are_resolved(program: list[Item], rate: float | None) -> None:
    assert waits_of(scene(program)).resolved_rate == rate


# ---------------------------------------------------------------------------------------------------- inferred from times


@for_each(
    "end, at, found",
    (FAR, 1, True),
    (FAR - 1, 1, True),
    (FAR - 10_000, 1, True),  # within ten microseconds
    (FAR - 10_001, 1, False),
    (FAR + 1, 1, False),
    (FAR - 1, 5, False),  # issued after its consumer
    (FAR - 1, None, False),  # without issue time
)
def test_a_producer_is_inferred_where_it_ended_just_before(end: int, at: int | None, found: bool) -> None:
    one = scene([run("gemm", 10, 20, 0), run("nccl", 15, end, at, stream=20), run("gemm", FAR, FAR + 100, 2)])
    assert producer_of(one, FAR) == ((15, True, True) if found else (10, False, True))


GEMM = run("gemm", 10, 20, 0)
EXCHANGE = run("nccl", 15, 60, 2, stream=20)
CONSUMER = run("gemm", FAR, FAR + 100, 90)


def graph(exchange_end: int = 150, *, node: bool = True) -> list[Item]:
    """One launch: a GEMM until 80, an exchange on another stream until 150, and a GEMM from 155 on."""
    parts = [("gemm", 65, 80, 7, 4), ("nccl", 82, exchange_end, 20, None), ("gemm", 155, 170, 7, None)]
    return [
        run(name, start, end, at, stream=stream, correlation=50, node=number if node else None)
        for number, (name, start, end, stream, at) in enumerate(parts, 1)
    ]


FAR_NODE = run("gemm", 10_156, 10_170, None, correlation=50, node=3)
# What times, the order of calls and graphs let infer.
INFERRED: dict[str, tuple[list[Item], dict[int, Producer]]] = {
    "never compute": ([GEMM, run("expert", 15, 90, 1, stream=20), run("gemm", 95, 99, 2)], {95: (10, False, True)}),
    "among those issued before the consumer": (
        [run("gemm", 0, 10, 0), run("nccl", 12, 100, 1, stream=20), run("gemm", 103, 120, 2), run("memset", 101, 102, 50, stream=9)],
        {103: (12, True, True)}),
    # The order of calls.
    "a wait call names what was launched before it on another stream": ([GEMM, EXCHANGE, asked(5), CONSUMER], {FAR: (15, True, True)}),
    "without the call nothing is named": ([GEMM, EXCHANGE, CONSUMER], {FAR: (10, False, True)}),
    "a wait whose record is missing is such a call": ([GEMM, EXCHANGE, await_event(5, 7, sync=77), CONSUMER], {FAR: (15, True, True)}),
    # The last two launches before the call ran on the consumer's stream; the exchange was launched before them, and ended after.
    "launches of the consumer's own stream are skipped": (
        [GEMM, EXCHANGE, run("gemm", 30, 35, 3), run("gemm", 40, 45, 4), asked(5), CONSUMER], {FAR: (15, True, True)}),
    # The exchange lasts until 60, but the set was launched after it.
    "the last launch of another stream, not the longest": (
        [GEMM, EXCHANGE, run("memset", 16, 25, 3, stream=30), asked(5), CONSUMER], {FAR: (16, True, True)}),
    "the last launch ended before what the stream itself ran": (
        [GEMM, EXCHANGE, run("memset", 16, 19, 3, stream=30), asked(5), CONSUMER], {FAR: (10, False, True)}),
    # The call that comes first names the longer exchange, but for another operation, at whose start that one still ran.
    "two calls before one launch name the same": (
        [GEMM, run("nccl", 12, 70, 1, stream=30), asked(2), EXCHANGE, asked(5), asked(6), CONSUMER],
        {FAR: (15, True, True), 15: (None, False, True)}),
    "what ended early enough": ([GEMM, run("expert", 15, FAR - 20_000, 2, stream=20), asked(5), CONSUMER], {FAR: (15, True, True)}),
    "what ended when the consumer started": ([GEMM, run("expert", 15, FAR, 2, stream=20), asked(5), CONSUMER], {FAR: (15, True, True)}),
    "what still ran is a wrong guess": ([GEMM, run("expert", 15, FAR + 1, 2, stream=20), asked(5), CONSUMER], {FAR: (10, False, True)}),
    # The set that ended 5 ns before, and was launched earlier, is the likelier one.
    "a wrong guess leaves what times tell": (
        [GEMM, run("memset", 16, FAR - 5, 1, stream=30), run("nccl", 15, FAR + 50, 2, stream=20), asked(5), CONSUMER],
        {FAR: (16, True, True)}),
    "of times and calls the later end: the call's": (
        [GEMM, run("memset", 16, FAR - 5, 1, stream=30), run("expert", 15, FAR - 4, 2, stream=20), asked(5), CONSUMER],
        {FAR: (15, True, True)}),
    "of times and calls the later end: that of times": (
        [GEMM, run("memset", 16, FAR - 5, 1, stream=30), run("expert", 15, FAR - 6, 2, stream=20), asked(5), CONSUMER],
        {FAR: (16, True, True)}),
    "the stream's own operation ends later": ([run("gemm", 10, 61, 0), EXCHANGE, asked(5), CONSUMER], {FAR: (10, False, True)}),
    "the stream's own operation ends earlier": ([run("gemm", 10, 59, 0), EXCHANGE, asked(5), CONSUMER], {FAR: (15, True, True)}),
    # The GEMM on stream 8, launched second, has nothing before it.
    "a call holds only what is launched next": (
        [GEMM, EXCHANGE, asked(5), CONSUMER, run("gemm", FAR + 200, FAR + 300, 91, stream=8)],
        {FAR: (15, True, True), FAR + 200: (None, False, True)}),
    "a call before the first launch": ([asked(0), EXCHANGE, CONSUMER], {FAR: (None, False, True)}),
    "a call after the last launch": ([EXCHANGE, CONSUMER, asked(95)], {FAR: (None, False, True)}),
    "no call": ([EXCHANGE, CONSUMER], {FAR: (None, False, True)}),
    "all launches before share the consumer's stream": ([GEMM, run("gemm", 30, 40, 2), asked(5), CONSUMER], {FAR: (30, False, True)}),
    "launches without correlation are no guess": (
        [GEMM, EXCHANGE, run("memset", 16, 70, None, stream=30, correlation=0), asked(5), CONSUMER], {FAR: (15, True, True)}),
    "where a wait is resolved calls name nothing": ([*ELSEWHERE, GEMM, EXCHANGE, asked(5), CONSUMER], {FAR: (10, False, False)}),
    # Replayed graphs.
    "inside a graph": (
        [run("gemm", 10, 20, 0, correlation=1, node=1), run("nccl", 21, 90, None, stream=20, correlation=1, node=2),
         run("gemm", 92, 120, None, correlation=1, node=3)],
        {92: (21, True, True)}),
    "what is no node is not inferred beside a graph": (
        [*ELSEWHERE, *graph(), run("gemm", 200, 210, 60), run("nccl", 205, 248, 61, stream=20), run("gemm", 250, 260, 62)],
        {250: (200, False, False), 155: (82, True, True)}),
    "operations that no graph launched": ([*ELSEWHERE, *graph(node=False)], {155: (65, False, False)}),
    "an inner node by times only, not within ten microseconds": ([*ELSEWHERE, *graph(155)[:2], FAR_NODE], {10_156: (65, False, True)}),
    "an inner node by times only": ([*ELSEWHERE, *graph(156)[:2], FAR_NODE], {10_156: (82, True, True)}),
    "a first node waits as any launch does": (
        [*ELSEWHERE, EXCHANGE, asked(5), run("gemm", FAR, FAR + 10, 90, node=1)], {FAR: (None, False, False)}),
    # The set ended later, 62 … 64, but the event tells what the graph waited for.
    "a node that waits for an event": (
        [run("gemm", 0, 10, 0), run("nccl", 12, 60, 1, stream=20), run("memset", 62, 64, 2, stream=9), *handed(2),
         run("gemm", 65, 80, 4, node=1)],
        {65: (12, False, False)}),
    "an inner node never waits for what was launched after the graph": (
        [*ELSEWHERE, *graph(), run("memset", 151, 154, 99, stream=9)], {155: (82, True, True)}),
    "inner nodes held by their own stream where that ends later": (
        [*ELSEWHERE, graph()[0], run("nccl", 66, 79, None, stream=20, correlation=50, node=9),
         run("gemm", 82, 90, None, correlation=50, node=3)],
        {82: (65, False, True)}),
}  # fmt: skip


@for_each("program, producers", *TOLD.values(), *INFERRED.values())
def test_the_producer_that_the_trace_tells_or_that_is_inferred(program: list[Item], producers: dict[int, Producer]) -> None:
    one = scene(program)
    assert {start: producer_of(one, start) for start in producers} == producers


# ---------------------------------------------------------------------------------------------------- what is blocked, and by what

START = run("gemm", 0, 10, 0)
BESIDE = run("nccl", 12, 60, 1, stream=20)
GRAPH_AFTER_A_WAIT = [
    run("gemm", 65, 80, 4, correlation=5, node=1),
    run("nccl", 82, 150, None, stream=20, correlation=5, node=2),
    run("gemm", 155, 170, None, correlation=5, node=3),
]


@for_each(
    "program, window, why, by, bounds",

        # 10 … 12 and 60 … 65: nothing that explains the wait ran.
        ([START, BESIDE, run("gemm", 65, 80, 2)], (0, 80), {"blocking": 48, "dependency_stalled": 7}, {"nccl": 48}, (0, 0, 48)),
        ([START, BESIDE, *handed(2), run("gemm", 65, 80, 4)], (0, 80), {"blocking": 48, "dependency_stalled": 7}, {"nccl": 48}, (0, 48, 48)),
        # GEMM ← permute ← exchange: the wait is the exchange's until it ends, the permute's after that.
        ([START, BESIDE, *handed(2), run("permute", 62, 70, 4), run("gemm", 72, 80, 5)], (0, 80),
         {"blocking": 56, "dependency_stalled": 6}, {"nccl": 48, "permute": 8}, (0, 56, 56)),
        # A wait before a graph launch holds the graph.
        ([START, BESIDE, *handed(2), run("gemm", 65, 80, 4, correlation=5, node=1), run("gemm", 80, 90, None, correlation=5, node=2)],
         (0, 90), {"blocking": 48, "dependency_stalled": 7}, {"nccl": 48}, (0, 48, 48)),
        # Inner nodes are inferred although waits are resolved, also after a resolved wait of their own.
        ([*ELSEWHERE, *graph()], (65, 170), {"blocking": 68, "dependency_stalled": 7}, {"nccl": 68}, (0, 0, 68)),
        ([START, BESIDE, *handed(2), *GRAPH_AFTER_A_WAIT], (0, 170), {"blocking": 116, "dependency_stalled": 14}, {"nccl": 116}, (0, 48, 116)),

)  # fmt: skip
def test_blocking(
    program: list[Item], window: tuple[int, int], why: dict[str, int], by: dict[str, int], bounds: tuple[int, int, int]
) -> None:
    one = scene(program)
    found = one.stalls(*window)
    assert (causes(found), blocked_by(found, one), found.bounds.rows()) == (why, by, [bounds])


def test_blocking_by_what_a_call_names_is_inferred() -> None:
    """10 … 12 nothing ran, 12 … 50 000 the exchange, then nothing."""
    program = [START, run("nccl", 12, 50_000, 1, stream=20)]
    early = run("gemm", FAR, FAR + 100, 7)
    (one,) = scene([*program, asked(5), early]).measure()
    assert one.causes.blocking.select("role", "ns", "inferred").rows() == [("transport", 49_988, True)]
    assert one.budget.per_step.select("blocking_ns", "blocking_lower_ns", "blocking_upper_ns", "dependency_stalled_ns").rows() == [
        (49_988, 0, 49_988, 50_002)
    ]
    (without,) = scene([*program, early]).measure()
    assert without.causes.blocking.is_empty()


def test_a_graph_launch_issues_all_of_its_nodes() -> None:
    launch = [run("gemm", 10, 20, 0, correlation=1, node=1), *(run("gemm", a, a + 5, None, correlation=1, node=a) for a in (30, 40))]
    assert scene(launch).work()["issued"].to_list() == [1, 1, 1]


@for_each("name", "memcpy", "memset")
def test_blocking_by_an_operation_is_never_longer_than_it_ran(name: str) -> None:
    one = scene([START, run(name, 1000, 1002, 2), run("gemm", 1003, 1020, 3)])
    assert blocked_by(one.stalls(0, 1020), one).get(name, 0) <= 2


def test_a_wait_on_another_device_does_not_reach_this_one() -> None:
    first = [START, run("nccl", 1, 90, 1, stream=20)]
    second = [run("nccl", 2, 50, 2, stream=20, device=1), record(3, 20, sync=5, device=1), await_event(4, 7, sync=5, device=1)]
    here, there = scene([*first, *second, run("gemm", 95, 120, 6), run("gemm", 60, 70, 7, device=1)]).measure()
    assert here.causes.blocking["inferred"].to_list() == [True]  # device 0 has no wait of its own: what blocks it is only guessed
    assert there.causes.blocking.select("ns", "inferred").rows() == [(42, False)]
