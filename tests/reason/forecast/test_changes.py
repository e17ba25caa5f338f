"""Each law on a graph small enough to be worked out by hand. Times in ns; a name tells the node."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.reason.forecast.changes import Change, changed, touches
from tests.builders.graphs import small_graph, step_length, times

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
    ("work1", "call1", "thread", 0),
    ("call1", "gemm", "issue", 2),
    ("call1", "work2", "thread", 0),
    ("work2", "call2", "thread", 0),
    ("gemm", "top_k", "stream", 1),
    ("call2", "top_k", "issue", 2),
    ("call2", "work3", "thread", 0),
    ("work3", "call3", "thread", 0),
    ("top_k", "sort", "stream", 1),
    ("call3", "sort", "issue", 2),
]
# The same with a kernel of 1 in the place of the product: the host is what the step waits for. sort begins at 45 + 2 and ends at 53.
SHORT = [(name, {**told, "duration": 1} if name == "gemm" else told) for name, told in LAUNCHES]


def change(transformation: str, select: str, **told: Any) -> Change:
    return Change(transformation=transformation, select=select, basis="assumed", why="why", source="source", **told)  # type: ignore[arg-type]


def test_the_unchanged_graph() -> None:
    assert times(small_graph(LAUNCHES, WAITS))["sort"] == (123, 129)
    assert times(small_graph(SHORT, WAITS))["sort"] == (47, 53)


def test_removed_operations_cost_nothing_and_their_order_stays() -> None:
    after = changed(small_graph(LAUNCHES, WAITS), [change("remove", "bucket = 'router'")], "likely")
    # Neither the 10 of work nor the two gaps of 1 before it are left: the step ends with the product, at 117.
    assert times(after)["top_k"] == (117, 117)
    assert step_length(after) == 117


@pytest.mark.parametrize(("with_host", "end"), [(False, 45), (True, 18)])
def test_removed_with_their_launches_the_host_is_free_of_them(with_host: bool, end: int) -> None:
    # Launched: the last call returns at 45. Not launched: calls and the work before them are
    # gone, and the device is done with the product, 17 + 1; what is not launched waits for nothing but that.
    after = changed(small_graph(SHORT, WAITS), [change("remove", "bucket = 'router'", with_host=with_host)], "likely")
    assert step_length(after) == end


@pytest.mark.parametrize(("end", "length"), [("low", 79), ("likely", 89), ("high", 109)])
def test_scaled_durations(end: Any, length: int) -> None:
    # The product takes 50, 60 or 80 instead of 100: the step of 129 is shorter by 50, 40 or 20.
    after = changed(small_graph(LAUNCHES, WAITS), [change("scale", "bucket = 'expert_gemm'", by=(0.5, 0.6, 0.8))], end)
    assert step_length(after) == length


def test_a_condition_on_the_host_scales_host_work() -> None:
    # Each of three stretches of Python takes 5 instead of 10: sort is launched at 30 and runs 32..38.
    after = changed(small_graph(SHORT, WAITS), [change("scale", "cause = 'python'", by=(0.5, 0.5, 0.5))], "likely")
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


def test_one_kernel_alone_is_not_merged() -> None:
    before = small_graph(SHORT, WAITS)
    assert changed(before, [change("merge", "bucket = 'expert_gemm'")], "likely") is before


def test_a_graph_takes_one_launch_and_its_nodes_follow_closely() -> None:
    # All three in one graph, whose launch takes 8: work1 0..10, call1 10..18, gemm 20..21, then each 1 after the one before it:
    # top_k 22..26, sort 27..33.
    after = changed(small_graph(SHORT, WAITS), [change("graph", "role = 'compute'", host_ns=(6, 8, 20))], "likely")
    assert times(after)["top_k"] == (22, 26)
    assert step_length(after) == 33
    # In the worst case its launch takes 20: 12 later.
    assert step_length(changed(small_graph(SHORT, WAITS), [change("graph", "role = 'compute'", host_ns=(6, 8, 20))], "high")) == 45


def test_no_graph_spans_a_call_that_waits_for_the_device() -> None:
    # A call between call2 and work3 returns 3 after top_k is done: sort is launched by a graph of its own, so by itself as before.
    nodes = [*SHORT[:6], ("sync", {"kind": "call", "duration": 3, "cause": "sync"}), *SHORT[6:]]
    waits = [one for one in WAITS if one[:2] != ("call2", "work3")]
    waits = [*waits, ("call2", "sync", "thread", 0), ("top_k", "sync", "awaited", 0), ("sync", "work3", "thread", 0)]
    before = small_graph(nodes, waits)
    # top_k 32..36, sync 36..39, work3 ..49, call3 ..54, sort 56..62.
    assert step_length(before) == 62
    # gemm and top_k as one graph: its launch at 10..15, gemm 17..18, top_k 19..23, sync 23..26, work3 ..36, call3 ..41, sort 43..49.
    after = changed(before, [change("graph", "role = 'compute'", host_ns=(5, 5, 5))], "likely")
    assert step_length(after) == 49


def test_two_micro_batches_in_one_halve_the_launches() -> None:
    # Host work, calls and latencies take half: 5 + 2.5 (2 by rounding to even) each, launched 1 after the call. work1 0..5, call1 5..7,
    # gemm 8..9; call2 at 12..14, top_k 15..19; call3 19..21, sort 22..28. Gaps of 1 between kernels become 0 (0.5 to even).
    after = changed(small_graph(SHORT, WAITS), [change("resize", "micro_batch_size", to=2, by=(1.0, 1.0, 1.0))], "likely")
    assert times(after)["sort"] == (22, 28)


def test_what_no_select_meets_is_left_and_told() -> None:
    before, nothing = small_graph(LAUNCHES, WAITS), change("remove", "bucket = 'attention'")
    assert step_length(changed(before, [nothing], "likely")) == 129
    assert not touches(before, nothing)
    assert touches(before, change("remove", "bucket = 'router'"))
