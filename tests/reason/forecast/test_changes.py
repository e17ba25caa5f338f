"""Each law on a graph small enough to be worked out by hand. Times in ns; a name tells the node."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from diagnose.reason.forecast.changes import ENDS, Change, End, changed, launch_limit, touches
from diagnose.reason.forecast.outcome import after as after_questions
from diagnose.reason.forecast.questions import Question
from diagnose.reason.forecast.select import selected
from tests.builders.cases import for_each
from tests.builders.facts import BOOK
from tests.builders.graphs import op, small_graph, step_length, times

# Host: before each kernel 10 of Python, then a call of 5; a kernel can begin 2 after its call returns. On the stream a kernel begins at
# least 1 after the one before it.
#        host 0..10, call 10..15 | 15..25, 25..30 | 30..40, 40..45
# gemm    17..117 (100)
# top_k            118..122 (4)
# sort                     123..129 (6)       the step ends with it: 129
LAUNCHES = [
    ("work1", {"kind": "host", "duration": 10, "cause": "python"}),
    ("call1", {"kind": "call", "duration": 5, "cause": "launch"}),
    ("gemm", {"duration": 100, "bucket": "expert_gemm", "role": "compute", "phase": "forward"}),
    ("work2", {"kind": "host", "duration": 10, "cause": "python"}),
    ("call2", {"kind": "call", "duration": 5, "cause": "launch"}),
    ("top_k", {"duration": 4, "bucket": "router", "role": "compute", "phase": "forward"}),
    ("work3", {"kind": "host", "duration": 10, "cause": "python"}),
    ("call3", {"kind": "call", "duration": 5, "cause": "launch"}),
    ("sort", {"duration": 6, "bucket": "router", "role": "compute", "phase": "forward"}),
]
WAITS = [
    ("work1", "call1", "thread", 0), ("call1", "gemm", "issue", 2), ("call1", "work2", "thread", 0), ("work2", "call2", "thread", 0),
    ("gemm", "top_k", "stream", 1), ("call2", "top_k", "issue", 2), ("call2", "work3", "thread", 0), ("work3", "call3", "thread", 0),
    ("top_k", "sort", "stream", 1), ("call3", "sort", "issue", 2),
]  # fmt: skip
# The same with a kernel of 1 in the place of the product: the host is what the step waits for. sort begins at 45 + 2 and ends at 53.
SHORT = [(name, {**told, "duration": 1} if name == "gemm" else told) for name, told in LAUNCHES]


def change(transformation: str, select: str, **told: Any) -> Change:
    return Change(transformation=transformation, select=select, basis="assumed", why="why", source="source", **told)  # type: ignore[arg-type]


def test_the_unchanged_graph() -> None:
    assert times(small_graph(LAUNCHES, WAITS))["sort"] == (123, 129)
    assert times(small_graph(SHORT, WAITS))["sort"] == (47, 53)


@for_each(
    "changes, most",
    ([change("graph", "bucket = 'router'")], 30),  # two launches of 5 and the 10 of work before each
    ([change("graph", "bucket = 'expert_gemm'")], 30),  # its own, and that of what comes after it
    ([change("merge", "bucket = 'router'")], 40),  # the device's 4 and 6 too
    ([change("graph", "bucket = 'router'"), change("scale", "kind = 'op'", by=(1.0, 1.0, 1.02))], 30),
    ([change("graph", "bucket = 'router'"), change("scale", "kind = 'op'", by=(0.9, 1.0, 1.0))], None),
    ([change("graph", "bucket = 'router'"), change("remove", "bucket = 'expert_gemm'")], None),
    ([change("remove", "bucket = 'router'")], None),
)
def test_fewer_launches_win_no_more_than_launching_takes(changes: list[Change], most: int | None) -> None:
    assert launch_limit(small_graph(SHORT, WAITS), changes) == most


def test_removed_operations_cost_nothing_and_their_order_stays() -> None:
    after = changed(small_graph(LAUNCHES, WAITS), [change("remove", "bucket = 'router'")], "likely")
    # Neither the 10 of work nor the two gaps of 1 before it are left: the step ends with the product, at 117.
    assert times(after)["top_k"] == (117, 117)
    assert step_length(after) == 117


@for_each("with_host, end", (False, 45), (True, 18))
def test_removed_with_their_launches_the_host_is_free_of_them(with_host: bool, end: int) -> None:
    # Launched: the last call returns at 45. Not launched: calls and the work before them are
    # gone, and the device is done with the product, 17 + 1; what is not launched waits for nothing but that.
    after = changed(small_graph(SHORT, WAITS), [change("remove", "bucket = 'router'", with_host=with_host)], "likely")
    assert step_length(after) == end


@for_each("with_host, start", (True, 118), (False, 134))
def test_what_is_not_launched_is_not_waited_for(with_host: bool, start: int) -> None:
    """Waiting for top-k the host waits for the product, too: until 117, and launches sort 17 later."""
    read = ("read", {"kind": "call", "duration": 0, "cause": "host_sync"})
    nodes = [*LAUNCHES[:6], read, *LAUNCHES[6:8], ("sort", {"duration": 6, "bucket": "norm", "role": "compute", "phase": "forward"})]
    waits = [one for one in WAITS if one[:2] != ("call2", "work3")]
    waits += [("call2", "read", "thread", 0), ("read", "work3", "thread", 0), ("top_k", "read", "awaited", 0)]
    after = changed(small_graph(nodes, waits), [change("remove", "bucket = 'router'", with_host=with_host)], "likely")
    assert times(after)["sort"] == (start, start + 6)


def asked(*changes: Change) -> Question:
    return Question(id="asked", title="asked", changes=changes)


@for_each("start, low, likely, high", (None, 79, 89, 109), (20, 89, 97, 113), (200, 129, 129, 129))
def test_scaled_durations(start: int | None, low: int, likely: int, high: int) -> None:
    """The product takes 50, 60 or 80 instead of 100: the step of 129 is shorter by 50, 40 or 20; less of what it takes in any case."""
    faster = asked(change("scale", "bucket = 'expert_gemm'", by=(0.5, 0.6, 0.8), start_ns=start))
    assert [step_length(after_questions(small_graph(LAUNCHES, WAITS), [faster], end)) for end in ENDS] == [low, likely, high]


def test_a_condition_on_the_host_scales_host_work() -> None:
    # Each of three stretches of Python takes 5 instead of 10: sort is launched at 30 and runs 32..38.
    after = after_questions(small_graph(SHORT, WAITS), [asked(change("scale", "cause = 'python'", by=(0.5, 0.5, 0.5)))], "likely")
    assert times(after)["sort"] == (32, 38)


def test_merged_launches_cost_one() -> None:
    # top_k and sort as one kernel of 10, launched by call2 at 30: 32..42. What is left of sort ends with it.
    after = changed(small_graph(SHORT, WAITS), [change("merge", "bucket = 'router'")], "likely")
    assert times(after)["top_k"] == (32, 42)
    assert step_length(after) == 42
    # With work of 0.5 to 0.7 of the two: 5 to 7 of 10.
    scaled = [
        step_length(changed(small_graph(SHORT, WAITS), [change("merge", "bucket = 'router'", by=(0.5, 0.6, 0.7))], end))
        for end in ("low", "likely", "high")
    ]  # type: ignore[arg-type]
    assert scaled == [37, 38, 39]


@for_each("bucket, fused", ("norm", True), ("other", False))
def test_small_kernels_of_which_nothing_is_known_are_not_taken_to_fuse(bucket: str, *, fused: bool) -> None:
    """A product may hide behind any name."""
    small = [(name, {**told, "bucket": bucket} if "bucket" in told else told) for name, told in SHORT]
    select = BOOK.fixes["HOST-07"].effect[-1].merge
    assert touches(small_graph(small, WAITS), change("merge", select)) is fused


def test_one_kernel_alone_is_not_merged() -> None:
    before = small_graph(SHORT, WAITS)
    assert changed(before, [change("merge", "bucket = 'expert_gemm'")], "likely") is before


def test_a_graph_takes_one_launch_and_its_nodes_follow_closely() -> None:
    # All three in one graph, whose launch takes 8: work1 0..10, call1 10..18, gemm 20..21, then each 1 after the one before it:
    # top_k 22..26, sort 27..33.
    after = changed(small_graph(SHORT, WAITS), [change("graph", "role = 'compute'", host_ns=(6, 8, 20), gap_ns=(1, 1, 1))], "likely")
    assert times(after)["top_k"] == (22, 26)
    assert step_length(after) == 33
    # In the worst case its launch takes 20: 12 later.
    assert (
        step_length(changed(small_graph(SHORT, WAITS), [change("graph", "role = 'compute'", host_ns=(6, 8, 20), gap_ns=(1, 1, 1))], "high"))
        == 45
    )


@for_each("ns, end, length", (999_999, "likely", 33), (2_000_000, "low", 33), (2_000_000, "likely", 2_000_036))
def test_a_graph_likely_ends_before_long_work_of_the_host(ns: int, end: End, length: int) -> None:
    """What takes a millisecond between two launches is no launching: a replay leaves it out at best, where it lies in the captured code.

    Likely call1 ends at 15, work2 at 15 + ns, call2 (of two kernels) 8 later; top_k 2 later for 4, sort 1 later for 6.
    """
    nodes = [(name, {**told, "duration": ns} if name == "work2" else told) for name, told in SHORT]
    graphs = [change("graph", "role = 'compute'", host_ns=(8, 8, 8), gap_ns=(1, 1, 1))]
    assert step_length(changed(small_graph(nodes, WAITS), graphs, end)) == length


def test_the_launch_of_a_graph_takes_no_longer_than_the_launches_that_it_replaces() -> None:
    # call1, work2, call2, work3 and call3 take 35: call1 10..45, gemm 47..48, top_k 49..53, sort 54..60. A graph of 4 kernels in a step of
    # 0.3 ms was told to take up to 1.1 ms.
    after = changed(small_graph(SHORT, WAITS), [change("graph", "role = 'compute'", host_ns=(6, 8, 1000), gap_ns=(1, 1, 1))], "high")
    assert times(after)["call1"] == (10, 45)
    assert step_length(after) == 60


def test_a_slow_host_launches_graphs_more_slowly_too() -> None:
    # A launch takes 5 here, twice what the launch of 8 was told of: 16, so that all is 8 later. On a faster host it is no shorter.
    slow, fast = (change("graph", "role = 'compute'", host_ns=(6, 8, 20), launch_ns=ns, gap_ns=(1, 1, 1)) for ns in (2.5, 50.0))
    assert step_length(changed(small_graph(SHORT, WAITS), [slow], "likely")) == 33 + 8
    assert step_length(changed(small_graph(SHORT, WAITS), [fast], "likely")) == 33


def scopes(fix: str) -> list[str]:
    """What the graphs of a fix hold: under any dispatcher but all-to-all, and under that."""
    return [one.graph for one in BOOK.fixes[fix].effect if one.graph is not None]


def test_a_scoped_graph_takes_what_no_range_covers_too() -> None:
    # top_k has no phase, as kernels have that no range covers: it is in the router's graph all the same, and the norm before the router.
    parts = {"gemm": {"bucket": "norm"}, "top_k": {"phase": None}}
    nodes = [(name, {**told, **parts.get(name, {})}) for name, told in SHORT]
    for scope in scopes("HOST-01"):
        after = changed(small_graph(nodes, WAITS), [change("graph", scope, host_ns=(6, 8, 20), gap_ns=(1, 1, 1))], "likely")
        assert step_length(after) == 33


@for_each("fix", "HOST-01", "HOST-15")
def test_a_graph_of_the_preprocessing_holds_the_permutation_before_an_all_to_all(fix: str) -> None:
    # Megatron's dispatch_preprocess: out, tokens are permuted behind the router and then sent; what sorts them where they arrive, and the
    # way back, lie outside. Backward, the gradient of that permutation stands between the exchange and the router.
    def op(bucket: str, role: str, phase: str, lane: int = 10) -> dict[str, Any]:
        return {"bucket": bucket, "role": role, "phase": phase, "lane": lane, "duration": 1}

    nodes = [
        ("router", op("router", "compute", "forward")),
        ("row map", op("dispatch", "packing", "forward")),
        ("permute", op("dispatch", "packing", "forward")),
        ("out", op("dispatch", "transport", "forward", lane=20)),
        ("sort chunks", op("dispatch", "packing", "forward")),
        ("experts", op("expert_gemm", "compute", "forward")),
        ("unsort chunks", op("dispatch", "packing", "forward")),
        ("back", op("dispatch", "transport", "forward", lane=20)),
        ("unpermute", op("dispatch", "packing", "forward")),
        ("attention", op("attention", "compute", "forward")),
        ("experts' gradient", op("expert_gemm", "compute", "backward")),
        ("chunks' gradient", op("dispatch", "packing", "backward")),
        ("gradients back", op("dispatch", "transport", "backward", lane=20)),
        ("permutation's gradient", op("dispatch", "packing", "backward")),
        ("router's gradient", op("router", "compute", "backward")),
    ]
    graph = small_graph(nodes, [])
    held = [{name for (name, _), taken in zip(nodes, selected(graph, scope), strict=True) if taken} for scope in scopes(fix)]
    assert held[1] - held[0] == {"row map", "permute", "permutation's gradient"}
    assert held[0] <= held[1]


@for_each("fix", "HOST-01", "HOST-15")
def test_which_graph_it_is_follows_from_the_dispatcher(fix: str) -> None:
    conditions = [one.only for one in BOOK.fixes[fix].effect if one.graph is not None]
    assert conditions == [
        "COALESCE(job_moe_token_dispatcher_type <> 'alltoall', TRUE)",
        "COALESCE(job_moe_token_dispatcher_type = 'alltoall', FALSE)",
    ]


def test_no_graph_spans_a_call_that_waits_for_the_device() -> None:
    # A call between call2 and work3 returns 3 after top_k is done: sort is launched by a graph of its own, so by itself as before.
    nodes = [*SHORT[:6], ("sync", {"kind": "call", "duration": 3, "cause": "host_sync"}), *SHORT[6:]]
    waits = [one for one in WAITS if one[:2] != ("call2", "work3")]
    waits = [*waits, ("call2", "sync", "thread", 0), ("top_k", "sync", "awaited", 0), ("sync", "work3", "thread", 0)]
    before = small_graph(nodes, waits)
    # top_k 32..36, sync 36..39, work3 ..49, call3 ..54, sort 56..62.
    assert step_length(before) == 62
    # gemm and top_k as one graph: its launch at 10..15, gemm 17..18, top_k 19..23, sync 23..26, work3 ..36, call3 ..41, sort 43..49.
    after = changed(before, [change("graph", "role = 'compute'", host_ns=(5, 5, 5), gap_ns=(1, 1, 1))], "likely")
    assert step_length(after) == 49


def test_two_micro_batches_in_one_halve_the_launches() -> None:
    # Host work, calls and latencies take half: 5 + 2.5 (2 by rounding to even) each, launched 1 after the call. work1 0..5, call1 5..7,
    # gemm 8..9; call2 at 12..14, top_k 15..19; call3 19..21, sort 22..28. Gaps of 1 between kernels become 0 (0.5 to even).
    after = changed(small_graph(SHORT, WAITS), [change("resize", "micro_batch_size", to=2, by=(1.0, 1.0, 1.0))], "likely")
    assert times(after)["sort"] == (22, 28)
    # Of the 4 that each kernel takes however little it works 2 are left: two of 6 become one of 8.
    after = changed(small_graph(SHORT, WAITS), [change("resize", "micro_batch_size", to=2, by=(1.0, 1.0, 1.0), start_ns=4)], "likely")
    assert times(after)["sort"] == (22, 26)


def test_a_pause_may_come_with_each_sample_so_that_larger_micro_batches_likely_leave_it() -> None:
    """A loader of 1 ms before the first launch: at best half is left, and of smaller micro-batches at worst it comes twice as often."""
    loader = ("loader", {"kind": "host", "duration": 1_000_000, "cause": "loading"})
    graph = small_graph([loader, *SHORT], [("loader", "work1", "thread", 0), *WAITS])
    for to, lengths in ((2, [500_028, 1_000_028, 1_000_028]), (0.5, [1_000_100, 1_000_100, 2_000_100])):
        resized = [changed(graph, [change("resize", "micro_batch_size", to=to, by=(1.0, 1.0, 1.0))], end) for end in ENDS]
        assert [step_length(one) for one in resized] == lengths


def test_what_no_select_meets_is_left_and_told() -> None:
    before, nothing = small_graph(LAUNCHES, WAITS), change("remove", "bucket = 'attention'")
    assert step_length(changed(before, [nothing], "likely")) == 129
    assert not touches(before, nothing)
    assert touches(before, change("remove", "bucket = 'router'"))


def chain(*names: str) -> list[tuple[str, str, str, int]]:
    return [(one, two, "stream", 0) for one, two in pairwise(names)]


# Gradients reduced in one burst after backward: b1..b4 0..40, r1 40..55, r2 55..70, and the optimizer, which waits for both, 70..75.
BURST = (
    [op(f"b{n}", 10, 10, "backward") for n in (1, 2, 3, 4)]
    + [op(f"r{n}", 15, 20, "backward", comm="data") for n in (1, 2)]
    + [op("adam", 5, 10, "optimizer")],
    [*chain("b1", "b2", "b3", "b4", "adam"), *chain("r1", "r2"), ("b4", "r1", "event", 0), ("r2", "adam", "event", 0)],
)
# Parameters gathered before forward: g1 0..20, g2 20..40, f1..f4 40..80.
GATHER = (
    [op(f"g{n}", 20, 20, "forward", comm="data") for n in (1, 2)] + [op(f"f{n}", 10, 10, "forward") for n in (1, 2, 3, 4)],
    [*chain("g1", "g2"), *chain("f1", "f2", "f3", "f4"), ("g2", "f1", "event", 0)],
)
# An exchange before each of two products, which waits for it: c1 0..10, x1 10..16, c2 16..26, x2 26..32, c3 32..42.
RING = (
    [
        op("c1", 10, 10, "forward"),
        op("x1", 6, 20, "forward"),
        op("c2", 10, 10, "forward"),
        op("x2", 6, 20, "forward"),
        op("c3", 10, 10, "forward"),
    ],
    [
        *chain("c1", "c2", "c3"),
        *chain("x1", "x2"),
        *((one, two, "event", 0) for one, two in (("c1", "x1"), ("x1", "c2"), ("c2", "x2"), ("x2", "c3"))),
    ],
)
# The same exchange on the stream of the products themselves.
IN_LINE = ([(name, {**told, "lane": 10}) for name, told in RING[0]], chain("c1", "x1", "c2", "x2", "c3"))
LATER = (IN_LINE[0], [(source, target, kind, 2) for source, target, kind, _ in IN_LINE[1]])


# Exchange that feeds a product, g 0..60, p1 60..160; one that a product feeds, p2 160..200, r 200..280; then n 280..290.
FEEDING = (
    [
        op("g", 60, 20, "forward", comm="tensor"),
        op("p1", 100, 10, "forward", bucket="dense_gemm"),
        op("p2", 40, 10, "forward", bucket="dense_gemm"),
        op("r", 80, 20, "forward", comm="tensor"),
        op("n", 10, 10, "forward", bucket="norm"),
    ],
    [*chain("p1", "p2", "n"), *chain("g", "r"), ("g", "p1", "event", 0), ("p2", "r", "event", 0), ("r", "n", "event", 0)],
)
# In backward a gradient, d 0..30, r 30..80, which the product of the weights waits for without reading it: w 80..120, n 120..130.
PASSED = (
    [
        op("d", 30, 10, "backward", bucket="dense_gemm"),
        op("r", 50, 20, "backward", comm="tensor"),
        op("w", 40, 10, "backward", bucket="dense_gemm"),
        op("n", 10, 10, "backward", bucket="norm"),
    ],
    [*chain("d", "w", "n"), ("d", "r", "event", 0), ("r", "w", "event", 0)],
)
IN_PIECES = change("detach", "comm = 'tensor'", beside="bucket = 'dense_gemm'", pieces=(8, 4, 1))


@for_each(
    "graph, change_, lengths",
    # Reduced beside backward, awaited by the optimizer: r1 is ready with the second of four: 20..35; r2 with the last: 40..55; the
    # optimizer 55..60.
    (BURST, change("detach", "comm = 'data'", since="phase = 'backward'", until="phase = 'optimizer'"), (60, 60, 60)),
    # Piece by piece beside the products: g in four of 15: p1 15..115; p2 in four of 10, 115..155: r in four of 20 from 125 on to 205. In
    # eight pieces p1 begins at 7 and r at 112; n takes 10 more. At worst all stays.
    (FEEDING, IN_PIECES, (7 + 100 + 5 + 80 + 10, 215, 290)),
    (PASSED, IN_PIECES, (30 + 50 + 10, 90, 130)),  # a gradient beside the product of the weights
    # Gathered beside forward, share by share: f1 waits for g1, f3 for g2: f1 20..30, f2 30..40, f3 40..50, f4 50..60.
    (GATHER, change("detach", "comm = 'data'", until="phase = 'forward' AND role = 'compute'", spread=True), (60, 60, 60)),
    # One ahead, where nothing tells who reads it. Low: nothing of another phase waits, c3 ends at 30. Likely: c3, which waits for x2, waits
    # for x1 too, and c2 for none: x2 20..26, c3 26..36. High: as it was.
    (RING, change("detach", "role = 'transport'"), (30, 36, 42)),
    (IN_LINE, change("detach", "role = 'transport'"), (30, 36, 42)),  # the same on the stream of the products
    # With what passes between two operations of a stream, 2 more between each and the one before it: as it was 50. Low: c3 24..34.
    # Likely: x2 24..30, c3 30..40.
    (LATER, change("detach", "role = 'transport'"), (34, 40, 50)),
)
def test_detached_operations_leave_the_stream_that_waits_for_them(graph: Any, change_: Change, lengths: tuple[int, int, int]) -> None:
    before = small_graph(*graph)
    assert tuple(step_length(changed(before, [change_], end)) for end in ENDS) == lengths


def test_one_gather_in_two_parts() -> None:
    # One gather of 40 instead of two of 20: cut in two it is awaited as those are.
    nodes = [op("g", 40, 20, "forward", comm="data"), *GATHER[0][2:]]
    before = small_graph(nodes, [*chain("f1", "f2", "f3", "f4"), ("g", "f1", "event", 0)])
    assert step_length(before) == 80
    cut = change("detach", "comm = 'data'", until="phase = 'forward' AND role = 'compute'", spread=True, parts=2)
    assert step_length(changed(before, [cut], "likely")) == 60


def test_a_gather_for_a_pass_that_the_graph_cuts_off_is_awaited_by_nobody() -> None:
    # Gathered at the end of the step for the next one, of which only the operation is there that the step ends with: g1 10..30, g2 30..50.
    nodes = [op("adam", 10, 10, "optimizer"), *GATHER[0][:2], op("next", 10, 10, "forward", step=None)]
    before = small_graph(nodes, [("adam", "g1", "event", 0), *chain("g1", "g2"), ("adam", "next", "stream", 0), ("g2", "next", "event", 0)])
    assert step_length(before) == 60
    after = changed(before, [change("detach", "comm = 'data'", until="phase = 'forward' AND role = 'compute'", spread=True)], "likely")
    assert times(after)["next"] == (10, 20)


def test_delayed_work_runs_where_the_stream_waits() -> None:
    # p 0..10, the weight gradient 10..20, the exchange 20..40, c 40..50. Delayed: exchange 10..30, weight gradient 10..20, c 30..40.
    nodes = [op("p", 10, 10, "backward"), op("wgrad", 10, 10, "backward"), op("x", 20, 20, "backward"), op("c", 10, 10, "backward")]
    before = small_graph(nodes, [*chain("p", "wgrad", "c"), ("wgrad", "x", "event", 0), ("x", "c", "event", 0)])
    assert step_length(before) == 50
    after = changed(before, [change("delay", "name LIKE 'wgrad'", until="role = 'transport'")], "likely")
    assert times(after) == {"p": (0, 10), "wgrad": (10, 20), "x": (10, 30), "c": (30, 40)}
    assert step_length(changed(before, [change("delay", "name LIKE 'wgrad'", until="role = 'transport'")], "high")) == 50


def test_work_that_is_put_off_is_not_awaited_by_the_host_any_more() -> None:
    """A call waits for the stream, whose last operation is the weight gradient, and launches the next product d.

    Put off, the gradient runs after d, beside the exchange: p 0..10, d 10..20, exchange 20..40, weight gradient 20..30, c 40..50.
    """
    nodes = [
        op("p", 10, 10, "backward"),
        op("wgrad", 10, 10, "backward"),
        ("read", {"kind": "call", "duration": 0}),
        op("d", 10, 10, "backward"),
        op("x", 20, 20, "backward"),
        op("c", 10, 10, "backward"),
    ]
    waits = [("wgrad", "read", "awaited", 0), ("read", "d", "issue", 0), ("d", "x", "event", 0), ("x", "c", "event", 0)]
    before = small_graph(nodes, [*chain("p", "wgrad", "d", "c"), *waits])
    assert step_length(before) == 60
    delay = change("delay", "name LIKE 'wgrad'", until="role = 'transport'")
    after = changed(before, [delay], "likely")
    assert times(after) == {"p": (0, 10), "read": (10, 10), "d": (10, 20), "wgrad": (20, 30), "x": (20, 40), "c": (40, 50)}
    # What d reads of it by another edge makes it wait for itself: all stays.
    bound = small_graph(nodes, [*chain("p", "wgrad", "d", "c"), *waits, ("wgrad", "read", "thread", 0)])
    assert times(changed(bound, [delay], "likely")) == times(bound)


def two_micro_batches() -> list[tuple[str, dict[str, Any]]]:
    """Forward and backward of each: 10 of compute, 20 of exchange, 10 of compute (times 1000)."""
    parts = (("before", 10, {}), ("exchange", 20, {"comm": "expert"}), ("after", 10, {}))
    return [
        op(f"{phase[0]}{number}{name}", 1000 * long, 20 if told else 10, phase, **told)
        for number in (1, 2)
        for phase in ("forward", "backward")
        for name, long, told in parts
    ]


def in_turn(names: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Compute and exchanges, each in order, and each exchange between the compute around it."""
    compute, exchange = [name for name in names if "exchange" not in name], [name for name in names if "exchange" in name]
    waits = ((one, two, "event", 0) for one, two in pairwise(names) if ("exchange" in one) != ("exchange" in two))
    return [*chain(*compute), *chain(*exchange), *waits]


def test_the_exchange_of_one_micro_batch_beside_compute_of_its_neighbour() -> None:
    # Two micro-batches: forward and backward each 10 of compute, 20 of exchange, 10 of compute (times 1000): 160 one after the other.
    # The first backward and the second forward take turns. Backward: compute 0..10, exchange 10..30. Forward meanwhile: compute 10..20;
    # its exchange 30..50, once the network is free. Backward's rest 30..40, forward's 50..60: 60 in place of 80, 140 in all.
    nodes = two_micro_batches()
    names = [name for name, _ in nodes]
    before = small_graph(nodes, in_turn(names))
    assert step_length(before) == 160_000
    overlapped = change("interleave", "comm = 'expert'")
    after = changed(before, [overlapped], "likely")
    found = times(after)
    assert {name: tuple(at - 40_000 for at in found[name]) for name in names[3:9]} == {
        "b1before": (0, 10_000), "b1exchange": (10_000, 30_000), "b1after": (30_000, 40_000), "f2before": (10_000, 20_000),
        "f2exchange": (30_000, 50_000), "f2after": (50_000, 60_000),
    }  # fmt: skip
    assert max(end for _, end in found.values()) == 140_000
    # Once they take turns there is nothing more to win.
    assert changed(after, [overlapped], "likely") is after
    # A single forward and backward pass has no neighbour.
    alone = small_graph(nodes[:6], in_turn(names[:6]))
    assert step_length(changed(alone, [overlapped], "likely")) == 80_000


def test_where_passes_take_turns_the_batch_of_the_second_is_fetched_before_both() -> None:
    """The CPU pauses 25 ms before it launches the second forward pass: beside 40 of work, now beside the first forward pass of 20 alone."""
    ran = [(name, {**told, "duration": 500 * told["duration"]}) for name, told in two_micro_batches()]
    names = [name for name, _ in ran]
    calls = [(f"launch {name}", {"kind": "call", "duration": 1000, "cause": "launch"}) for name in names]
    at = names.index("f2before")
    fetch = [("fetch", {"kind": "host", "duration": 25_000_000, "cause": "python"})]
    host = [*calls[:at], *fetch, *calls[at:]]
    edges = [
        *in_turn(names),
        *((f"launch {name}", name, "issue", 0) for name in names),
        *((one, two, "thread", 0) for one, two in pairwise(name for name, _ in host)),
    ]
    before = small_graph([*host, *ran], edges)
    after = changed(before, [change("interleave", "comm = 'expert'")], "likely")
    found = times(after)
    first = min(found[name][0] for name in names[3:9])
    assert found["fetch"][1] - found["fetch"][0] == 0
    assert 25_000_000 <= first < 25_100_000  # as soon as the batch has come
    assert (step_length(before), step_length(after)) == (80_000_000 + 1000, 75_000_000 + 4000)


def test_calls_wait_for_what_has_the_place_of_what_they_waited_for_in_the_new_order() -> None:
    """Of two passes that take turns the awaited third operation is the exchange before it. One operation's launch was not recorded."""
    ran = two_micro_batches()
    names = [name for name, _ in ran]
    launched = [name for name in names if name != "f2before"]
    calls = [(f"launch {name}", {"kind": "call", "duration": 1, "cause": "launch"}) for name in launched]
    edges = [
        *in_turn(names),
        *((f"launch {name}", name, "issue", 0) for name in launched),
        ("b1after", "read", "awaited", 0),
    ]
    before = small_graph([*calls, *ran, ("read", {"kind": "call", "duration": 0, "cause": "host_sync"})], edges)
    after = changed(before, [change("interleave", "comm = 'expert'")], "likely")
    assert after is not before
    text = dict(after.names.select("id", "text").iter_rows())
    name = [text[one] for one in after.nodes["name_id"]]
    (waits,) = [name[source] for source, kind in after.edges.select("src", "kind").iter_rows() if kind == "awaited"]
    assert waits == "b1exchange"


@for_each("step", 0, None)
def test_passes_of_which_the_capture_missed_launches_take_no_turns(step: int | None) -> None:
    """A capture begins in a backward pass, whose launches it lacks; the host launches the forward after it once its exchange is over.

    Turns would have the host wait for what it launches only then. And what lies outside the kept steps (None) counts in no length.
    """
    ran = [(name, {**told, "step": step}) for name, told in two_micro_batches()]
    names = [name for name, _ in ran]
    launched = [name for name in names if name.startswith("f2")]
    calls = [(f"launch {name}", {"kind": "call", "duration": 1, "cause": "launch"}) for name in launched]
    edges = [
        *in_turn(names),
        *((f"launch {name}", name, "issue", 0) for name in launched),
        ("b1exchange", "read", "awaited", 0),
        *((one, two, "thread", 0) for one, two in pairwise(["read", *(f"launch {name}" for name in launched)])),
    ]
    at = names.index("b1exchange") + 1
    nodes = [*ran[:at], ("read", {"kind": "call", "duration": 0, "cause": "host_sync"}), *calls, *ran[at:]]
    before = small_graph(nodes, edges)
    assert changed(before, [change("interleave", "comm = 'expert'")], "likely") is before


def test_every_change_keeps_sources_before_what_waits_for_them() -> None:
    graphs = [small_graph(LAUNCHES, WAITS), *(small_graph(*one) for one in (BURST, GATHER, RING, IN_LINE))]
    kinds = [
        change("remove", "role = 'compute'", with_host=True),
        change("merge", "role = 'compute'"),
        change("graph", "role = 'compute'", host_ns=(5, 5, 5), gap_ns=(1, 1, 1)),
        change("detach", "role = 'transport'", since="phase = 'backward'", until="phase = 'optimizer'", parts=3),
        change("delay", "name LIKE '%1'", until="role = 'transport'"),
        change("interleave", "role = 'transport'"),
        change("resize", "micro_batch_size", to=2, by=(1, 1, 1)),
    ]
    for graph in graphs:
        for one in kinds:
            for end in ENDS:
                edges = changed(graph, [one], end).edges
                assert (edges["src"] < edges["dst"]).all()
                assert edges["dst"].is_sorted()
                assert set(edges["dst"].unique()) >= set(graph.edges["dst"].unique()) or one.parts > 1


def test_an_interleaved_pipeline_drains_sooner_where_a_stage_waits_in_the_all_reduce_of_all() -> None:
    nodes = [op("drain", 2_000_000, 20, "backward", comm="other", exchange="all-reduce")]
    nodes += [op("norm", 30_000, 20, "optimizer", comm="other", exchange="all-reduce"), op("send", 60_000, 20, "forward", comm="pipeline")]
    (effect,) = BOOK.fixes["COM-13"].effect
    assert effect.scale is not None
    assert selected(small_graph(nodes, []), effect.scale).to_list() == [True, False, True]


def test_the_head_is_what_lies_between_the_last_norm_and_the_loss() -> None:
    """Forward and back; a dense layer's products have a norm between them and the loss, and no product of another stream is the head."""
    names = ["qkv", "norm", "fc", "last norm", "head", "loss", "loss back", "head dgrad", "head wgrad", "last norm back", "fc dgrad"]
    buckets = {"norm": "norm", "last norm": "norm", "last norm back": "norm", "loss": "loss", "loss back": "loss"}
    nodes = [(name, {"duration": 5, "bucket": buckets.get(name, "dense_gemm"), "role": "compute", "lane": 10}) for name in names]
    nodes.insert(6, ("beside", {"duration": 5, "bucket": "dense_gemm", "role": "compute", "lane": 11}))
    found = selected(small_graph(nodes, []), "head")
    assert [name for (name, _), on in zip(nodes, found, strict=True) if on] == ["head", "head dgrad", "head wgrad"]


def test_only_copies_from_ordinary_memory_get_faster_where_memory_is_pinned() -> None:
    copies = (("ordinary", "h2d", False), ("pinned", "d2h", True), ("untold", "d2h", None), ("inside", "d2d", None))
    nodes = [(name, {"duration": 30_000, "bucket": "memcpy", "copy": kind, "pinned": pinned}) for name, kind, pinned in copies]
    reads = [(f"read {name}", {"kind": "call", "duration": 0, "cause": "host_sync"}) for name, _ in nodes]
    graph = small_graph([*nodes, *reads], [(name, f"read {name}", "awaited", 0) for name, _ in nodes])
    (faster,) = (one.scale for one in BOOK.fixes["CPY-01"].effect if one.scale is not None)
    assert selected(graph, faster).to_list() == [True, False, True, *[False] * 5]


PINNED = (False, None, True)


def test_copies_that_are_page_locked_are_not_waited_for_less_where_memory_is_pinned() -> None:
    reads = [
        (str(pinned), {"kind": "call", "duration": 0, "cause": "host_sync", "bucket": "memcpy", "pinned": pinned}) for pinned in PINNED
    ]
    (sooner,) = (one.remove for one in BOOK.fixes["CPY-01"].effect if one.remove is not None)
    assert selected(small_graph(reads, []), sooner).to_list() == [True, True, False]


def test_a_smaller_share_of_the_optimizer_in_host_memory_copies_no_less_input() -> None:
    """Without phases what is pageable is taken for the input's; with them the optimizer's own may be pageable, too."""
    places = [(phase, pinned) for phase in (None, "forward", "optimizer") for pinned in PINNED]
    nodes = [
        (f"{phase} {pinned}", {"duration": 90_000, "bucket": "memcpy", "copy": "h2d", "phase": phase, "pinned": pinned})
        for phase, pinned in places
    ]
    copies = BOOK.fixes["CPY-02"].effect[0].scale
    assert copies is not None
    assert selected(small_graph(nodes, []), copies).to_list() == [False, True, True, *[False] * 3, *[True] * 3]
