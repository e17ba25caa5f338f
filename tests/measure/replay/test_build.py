"""The graph of a device: what it waits for, that its replay gives back what was measured, and what follows where something is gone."""

from itertools import pairwise

import polars as pl

from diagnose.knowledge.load import load_knowledge
from diagnose.load.conform import typed
from diagnose.load.readers import load
from diagnose.measure.capture import measure
from diagnose.measure.replay.build import replayed_nodes
from diagnose.measure.replay.graph import EDGES, NODES, STEPS, Graph
from diagnose.measure.replay.path import replay, step_times
from diagnose.measure.replay.threads import in_turn
from diagnose.model.trace import Device
from tests.builders import simulated
from tests.builders.cases import for_each
from tests.builders.records import replace
from tests.builders.scene import Item, Span, await_event, call, record, run, scene


def graph_of(items: list[Item]) -> Graph:
    (device,) = scene(items).measure(replay=True)
    assert device.graph is not None
    return device.graph


def without(graph: Graph, gone: pl.Expr) -> Graph:
    """The graph with nodes that cost nothing."""
    free = pl.when(gone).then(0).otherwise("duration").alias("duration")
    return replace(graph, nodes=graph.nodes.with_columns(free))


def begun(graph: Graph) -> list[int]:
    """When the operations begin, in the order of the trace."""
    times = graph.nodes.select("op").with_columns(replay(graph).start).drop_nulls("op").sort("op")
    return times["start"].to_list()


def op(*rows: int) -> pl.Expr:
    return pl.col("op").is_in(rows)


HOST = pl.col("kind") != "op"
NOTHING = pl.lit(value=False)
QUEUED = [run("gemm", 100, 1100, 10), run("gemm", 1100, 1600, 20), run("gemm", 1600, 1700, 30)]
LAUNCHED = [run("gemm", 105_000, 200_000, 100_000), run("gemm", 405_000, 500_000, 400_000), run("gemm", 705_000, 800_000, 700_000)]
# a call that frees memory returns 300 ns after the device has run dry
FREED = [run("gemm", 20, 900, 10), call("cudaFree", 30, 1200), run("gemm", 1220, 1300, 1210)]
# compute goes on 90 µs before the exchange ends, and nothing says why
WATCHED = [run("gemm", 20, 900, 10), run("nccl", 50, 690_000, 40, stream=20), run("gemm", 600_000, 700_000, 60)]
# launched long before, on another stream, and told to wait
ORDERED = [run("gemm", 20, 900, 10), run("nccl", 30, 1500, 20, stream=20), record(25, 20, sync=1), await_event(26, 7, sync=1),
           run("gemm", 1500, 2000, 30), run("gemm", 2000, 2100, 40)]  # fmt: skip
HELD = [run("gemm", 20, 900, 10), call("cudaDeviceSynchronize", 30, 940), run("gemm", 1010, 1200, 1000), run("gemm", 1200, 1300, 1001)]
# rounded times: the call that waits begins before the one before it has returned
ROUNDED = [HELD[0], call("cudaFuncGetAttributes", 25, 31), *HELD[1:]]
TURNS = [run("gemm", 20, 900, 10), run("gemm", 200_020, 200_100, 200_000, thread=2), run("gemm", 400_020, 400_100, 400_000),
         run("gemm", 600_020, 600_100, 600_000, thread=2)]  # fmt: skip


@for_each(
    "items, gone, expected",
    (QUEUED, NOTHING, [100, 1100, 1600]),
    (QUEUED, op(0), [100, 110, 610]),  # the next moves up to its launch and the latency of launches here
    (QUEUED, HOST, [99, 1099, 1599]),  # the call of the first takes nothing any more
    (LAUNCHED, NOTHING, [105_000, 405_000, 705_000]),
    (LAUNCHED, op(0), [105_000, 405_000, 705_000]),  # the host is what each waits for
    (LAUNCHED, HOST, [104_999, 200_999, 296_999]),  # then their stream: 95 µs each, and 1 µs between, as no gap tells more
    (ORDERED, op(1), [20, 30, 900, 1400]),  # without the exchange the operation before on the stream
    (ORDERED, op(0), [20, 30, 1500, 2000]),
    (HELD, NOTHING, [20, 1010, 1200]),
    (HELD, op(0), [20, 140, 330]),  # the call returns 40 ns after its beginning, and 60 ns of work follow
    (ROUNDED, NOTHING, [20, 1010, 1200]),
    (ROUNDED, op(0), [20, 141, 331]),
    (FREED, NOTHING, [20, 1220]),
    (FREED, op(0), [20, 350]),
    (WATCHED, NOTHING, [20, 50, 600_000]),
    (WATCHED, op(1), [20, 50, 1900]),  # what it follows on its stream
    (WATCHED, op(0), [20, 50, 600_000]),
    (TURNS, op(0), [20, 200_020, 400_020, 600_020]),
)
def test_replay_of_a_small_graph(items: list[Item], gone: pl.Expr, expected: list[int]) -> None:
    assert begun(without(graph_of(items), gone)) == expected


@for_each("until", 10_200, 10_100, 9_900, 9_000)  # from behind the copy's end to 1.1 µs before it
def test_a_call_that_copies_from_ordinary_memory_waits_for_its_copy(until: int) -> None:
    """It may return before the copy ends, once all is staged."""
    copy = run("memcpy", 1100, 10_100, 20, until=until, name="cudaMemcpyAsync", pinned=False, copy_kind="h2d")
    graph = graph_of([run("gemm", 100, 1100, 10), copy, run("gemm", 10_400, 11_000, until + 100), run("gemm", 11_000, 12_000, until + 110)])
    assert begun(graph) == [100, 1100, 10_400, 11_000]
    assert begun(without(graph, op(1)))[2] == 1400


def test_host_work_for_a_copy_tells_whether_the_host_s_memory_is_page_locked() -> None:
    for pinned in (True, False, None):
        nodes = graph_of([run("gemm", 100, 1100, 10), run("memcpy", 1100, 2100, 20, pinned=pinned, copy_kind="h2d")]).nodes
        told = nodes.filter(pl.col("bucket").cast(pl.String) == "memcpy")
        assert set(told["kind"]) >= {"call", "op"}
        assert set(told["pinned"]) == {pinned}


@for_each(
    "calls, expected",
    ([(1, 0), (1, 5), (1, 9)], True), ([(1, 0), (2, 5), (2, 9)], False), ([(1, 0), (1, 5), (1, 5)], False),
    ([(1, 5), (1, 0)], False),
)  # fmt: skip
def test_calls_are_in_turn_where_one_thread_makes_one_after_the_other(calls: list[tuple[int, int]], expected: bool) -> None:
    assert in_turn(pl.DataFrame(calls, schema=["thread", "start"], orient="row")) is expected


def test_a_thread_that_takes_over_moves_with_the_one_before_it() -> None:
    graph = graph_of(TURNS)
    assert graph.edges.filter(pl.col("kind") == "handover").select("inferred").to_series().to_list() == [True, True, True]
    sooner = without(graph, (pl.col("kind") == "host") & (pl.col("start") < 200_000))
    assert begun(sooner)[1:] == [1900, 200_031, 400_031]  # the first waits for its stream, the others move up with the host


@for_each("calls, turns", (3, 2), (4, 3))
def test_a_short_pause_is_a_turn_where_the_other_thread_has_calls_enough_in_it(calls: int, turns: int) -> None:
    """The first thread pauses for 60 µs, while the second, quiet for long, launches; its own first call and what follows are turns too."""
    short = [run("gemm", start + 20, start + 100, start, thread=2) for start in range(200_000, 200_000 + 10_000 * calls, 10_000)]
    first = [run("gemm", start + 20, start + 100, start) for start in (0, 190_000, 250_000)]
    graph = graph_of([first[0], run("gemm", 5_020, 5_100, 5_000, thread=2), first[1], *short, first[2]])
    assert graph.edges.filter(pl.col("kind") == "handover").height == turns


def test_compute_that_fills_the_device_takes_turns() -> None:
    beside = [run("gemm", 105_000, 200_000, 100_000), run("gemm", 405_000, 500_000, 400_000, stream=8)]
    full = scene(beside, devices=[Device(rank=0, device=0, sm_count=132)])
    grid = [pl.lit(blocks, dtype=pl.Int32).alias(f"grid_{axis}") for axis, blocks in (("x", 70), ("y", 1), ("z", 1))]
    full = replace(full, trace=replace(full.trace, ops=full.trace.ops.with_columns(grid)))
    for one, expected in ((scene(beside), 104_999), (full, 199_999)):
        (device,) = one.measure(replay=True)
        assert device.graph is not None
        assert begun(without(device.graph, HOST)) == [104_999, expected]


def test_a_full_queue_holds_the_host() -> None:
    launches = [run("gemm", 1000 + 10 * place, 1010 + 10 * place, 1 + place) for place in range(1025)]
    last = run("gemm", 1020 + 10 * 1025, 1030 + 10 * 1025, 2000, until=2000 + 1000)
    graph = graph_of([*launches, last])
    queue = graph.edges.filter(pl.col("kind") == "queue")
    assert queue.height > 0
    assert graph.nodes["op"].gather(queue["src"]).to_list() == list(range(queue.height))


@for_each("places, each", (1024, 2), (1021, 2), (900, 10))
def test_where_the_queue_takes_a_few_launches_less_that_is_where_the_host_waits(places: int, each: int) -> None:
    """Each launch returns 2 ns after the one that is so many older has begun: with operations that take nothing, the host has 2 ns to do
    for each. Where far fewer are ahead the trace shows no full queue, and what a call took stays the host's own.
    """
    count = 1400
    launches, free = [], 1
    for place in range(count):
        until = free + 1 if place < places else 5002 + 10 * (place - places)
        launches.append(run("gemm", 5000 + 10 * place, 5010 + 10 * place, free, until=until))
        free = until
    graph = graph_of(launches)
    last = begun(without(graph, pl.col("op").is_not_null()))[-100:]
    assert [later - sooner for sooner, later in pairwise(last)] == [each] * 99


def test_an_unmodified_replay_gives_back_every_step_of_a_simulated_run() -> None:
    for kind in ("nsys", "torch"):
        (path,) = simulated.traces("demo", kind)
        (device,) = measure(load(path), load_knowledge(), replay=True).devices
        graph = device.graph
        assert graph is not None
        assert (graph.refused, graph.host) == (None, True)
        assert (graph.nodes.schema, graph.edges.schema) == (dict(NODES), dict(EDGES))
        assert dict(graph.steps.schema) == dict(STEPS)
        assert graph.edges.filter(pl.col("src") >= pl.col("dst")).is_empty()
        assert graph.edges["dst"].is_sorted()
        assert graph.nodes["start"].is_sorted()
        assert graph.nodes["delay"].min() == 0
        times = replay(graph)
        assert times.start.equals(graph.nodes["start"])
        assert step_times(graph, times).equals(graph.steps.select("index", "start", "end"))
        assert graph.steps.select("index", "start", "end").equals(device.steps.frame)


@for_each(
    "missing, refused",
    (0, None),
    (1, None),
    (2, "Only 80.0 % of the operations were launched by a call that the trace holds: a replay would leave the others where they are."),
    (10, None),  # of no operation: the device alone is replayed
)
def test_a_graph_that_lacks_many_launches_is_not_replayed(missing: int, refused: str | None) -> None:
    """What has no known launch would stay where it was, whatever the host does earlier."""
    launched = [run("gemm", 100 * place, 100 * place + 90, None if place < missing else 100 * place - 20) for place in range(10)]
    assert graph_of(launched).refused == refused


def test_what_ran_before_the_steps_need_not_have_been_launched() -> None:
    """It stays where it was, and so does nothing in the steps."""
    launched = [run("gemm", 100 * place, 100 * place + 90, None if place < 2 else 100 * place - 20) for place in range(10)]
    steps = [Span(text=f"ProfilerStep#{number}", start=start, end=start + 390) for number, start in enumerate((175, 575))]
    (device,) = scene(launched, steps).measure(replay=True)
    assert device.graph is not None
    assert (device.steps.frame["start"].to_list(), device.graph.refused) == ([200, 600], None)


def test_a_graph_is_built_only_where_asked() -> None:
    (device,) = scene(QUEUED).measure()
    assert device.graph is None


@for_each("described, told", ("allreduce", "all-reduce"), ("allgather", "all-gather"), (None, "other"))
def test_a_collective_is_told_by_its_description_where_its_kernel_names_none(described: str | None, told: str) -> None:
    """ROCm's library has one kernel for all of them."""
    seen = scene([run("gemm", 20, 900, 10), run("allreduce", 30, 1500, 20, stream=20)])
    payload = typed(pl.DataFrame({"id": [0], "collective": [described]}), "payloads")
    generic = pl.col("text").replace("allreduce", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    of_payload = pl.Series("payload_id", [None, 0], dtype=pl.Int32)
    trace = replace(seen.trace, payloads=payload, names=seen.trace.names.with_columns(generic), ops=seen.trace.ops.with_columns(of_payload))
    (device,) = replace(seen, trace=trace, classified=replace(seen.classified, payload_id=of_payload)).measure(replay=True)
    assert device.graph is not None
    assert device.graph.nodes.filter(~HOST)["exchange"].cast(pl.String).to_list() == [None, told]


def test_operations_have_the_traits_that_facts_count() -> None:
    parts = ("elementwise", "gemm", "elementwise", "softmax", "elementwise", "gemm")
    names = (
        "direct_copy_kernel_cuda LoadWithCast", "volta_sgemm_128x64_nt", "direct_copy_kernel_cuda LoadWithCast", "softmax", "elementwise",
        "gemm",
    )  # fmt: skip
    seen = scene([run(part, start, start + 90, start - 50) for part, start in zip(parts, range(100, 700, 100), strict=True)])
    texts = ["cudaLaunchKernel", *names]
    trace = replace(
        seen.trace,
        names=typed(pl.DataFrame({"id": range(len(texts)), "text": texts}), "names"),
        ops=seen.trace.ops.with_columns(pl.int_range(1, len(texts), dtype=pl.Int32).alias("name_id")),
    )
    (device,) = replace(seen, trace=trace).measure(replay=True)
    assert device.graph is not None
    ops = device.graph.nodes.filter(~HOST).sort("op")
    assert ops["fp32_product"].to_list() == [False, True, False, False, False, False]
    assert ops["cast"].to_list() == [True, False, False, False, False, False], "the second is attention's, which claims it"
    assert ops["unfused_attention"].to_list() == [False, *[True] * 5]
    counts = device.counts.select("fp32_product_busy_ns", "cast_busy_ns", "unfused_attention_busy_ns")
    assert counts.row(0) == (90, 90, 450)


def test_what_a_graph_launched_after_its_first_node_is_replayed() -> None:
    nodes, launches = [None, 1, 2, 3, None, 1, 2, 1], [5, 7, 7, 7, 8, 9, 9, None]
    work = pl.DataFrame({"graph_node": nodes, "correlation": launches}, schema={"graph_node": pl.Int64, "correlation": pl.Int64})
    assert replayed_nodes(work).to_list() == [False, False, True, True, False, False, True, True]
    assert replayed_nodes(work.with_columns(pl.lit(None, dtype=pl.Int64).alias("graph_node"))).to_list() == [False] * 8
