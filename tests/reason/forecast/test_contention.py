"""What is lost where operations newly run side by side, on graphs worked out by hand. Times in ns."""

from typing import Any

import polars as pl

from diagnose.knowledge.forecast import Contention
from diagnose.reason.forecast.changes import ENDS, Change, changed
from diagnose.reason.forecast.contention import lost_share, settled
from tests.builders.cases import for_each
from tests.builders.graphs import op, small_graph, step_length

KNOWN = Contention(compute=(0.0, 0.2, 0.5), transport=(0.0, 0.0, 0.0), fills_us=(1, 1, 1))
DETACH = Change(transformation="detach", select="comm = 'data'", until="phase = 'optimizer'", basis="assumed", why="why", source="source")


# A reduction 0..40_000 that compute waits for (40_000..140_000), then the optimizer 140_000..150_000.
NODES = [op("reduce", 40_000, 20, "backward", comm="data"), op("gemm", 100_000, 10, "backward"), op("adam", 10_000, 10, "optimizer")]
WAITS = [("reduce", "gemm", "event", 0), ("gemm", "adam", "stream", 0)]


@for_each(
    "end, length",
    # Detached, the product runs 0..100_000 beside the reduction for 40_000 of it. No loss: the optimizer ends at 110_000. A share of
    # 0.2 lost there: 40_000 / 0.8 in place of 40_000, 10_000 more. Of 0.5: 40_000 more.
    ("low", 110_000),
    ("likely", 120_000),
    ("high", 150_000),
)
def test_compute_beside_transport_takes_longer(end: Any, length: int) -> None:
    # The product has to wait for something else, or it would stand where it was measured: a short kernel before it.
    nodes = [op("first", 1, 10, "backward"), *NODES]
    before = small_graph(nodes, [("first", "gemm", "stream", 0), ("first", "reduce", "event", 0), *WAITS])
    after = changed(before, [DETACH], end)
    assert step_length(settled(before, after, end, KNOWN)) == length + 1


def test_what_was_beside_transport_before_loses_nothing_more() -> None:
    before = small_graph(
        [op("first", 1, 10, "backward"), *NODES], [("first", "gemm", "stream", 0), ("first", "reduce", "event", 0), WAITS[1]]
    )
    assert step_length(before) == 110_001
    assert step_length(settled(before, changed(before, [DETACH], "high"), "high", KNOWN)) == 110_001


def test_compute_of_two_streams_that_newly_runs_at_once_takes_turns() -> None:
    # a 0..50_000, then b 50_000..80_000 which waits for it, on another stream. Without that wait both could begin at once: they take turns,
    # and nothing is gained.
    nodes = [op("first", 1, 10, "forward"), op("a", 50_000, 10, "forward"), op("b", 30_000, 11, "forward"), op("end", 1, 10, "optimizer")]
    waits = [("first", "a", "stream", 0), ("first", "b", "event", 0), ("a", "end", "stream", 0), ("b", "end", "event", 0)]
    before, free = small_graph(nodes, [*waits, ("a", "b", "event", 0)]), small_graph(nodes, waits)
    assert step_length(free) == 50_002
    assert [step_length(settled(before, free, end, KNOWN)) for end in ENDS] == [80_002] * 3
    # Where they ran at once before, they go on doing so.
    assert step_length(settled(free, changed(free, [DETACH], "likely"), "likely", KNOWN)) == 50_002


def test_the_share_that_this_trace_shows() -> None:
    # The product ran 100 beside the reduction and lost 25 of it.
    nodes = [op("reduce", 100, 20, "backward"), op("gemm", 100, 10, "backward", lost=25)]
    graph = small_graph(nodes, [])
    spans = pl.DataFrame({"role": ["transport", "compute"], "start": [0, 0], "end": [100, 100]})
    assert lost_share(graph, spans) == 0.25
    assert lost_share(small_graph(nodes[:1], []), spans[:1]) is None


def test_transport_of_one_link_takes_turns_and_of_another_does_not() -> None:
    # A gather 0..50_000 and a reduction 50_000..80_000 that waited for it: without the wait one link carries them one after the other.
    nodes = [
        op("first", 1, 10, "forward"),
        op("gather", 50_000, 20, "forward", comm="data"),
        op("reduce", 30_000, 21, "forward", role="transport"),
    ]
    waits = [("first", "gather", "event", 0), ("first", "reduce", "event", 0), ("gather", "end", "event", 0), ("reduce", "end", "event", 0)]
    for comm, length in (("data", 80_002), ("expert", 50_002)):
        told = [*nodes[:2], (nodes[2][0], {**nodes[2][1], "comm": comm}), op("end", 1, 10, "optimizer")]
        before, free = small_graph(told, [*waits, ("gather", "reduce", "event", 0)]), small_graph(told, waits)
        assert [step_length(settled(before, free, end, KNOWN)) for end in ENDS] == [length] * 3


def test_products_that_shared_the_device_go_on_sharing_it_in_another_order() -> None:
    # a and b run at once 0..30_000, then c 30_000..60_000 and d 30_000..90_000 on the streams of a grouped product. Without its waits d may
    # begin beside a and b, and takes no turns with them.
    lasting = (("a", 30_000, 10), ("b", 30_000, 11), ("c", 30_000, 10), ("d", 60_000, 12))
    nodes = [op("first", 1, 10, "forward"), *(op(name, ns, lane, "forward") for name, ns, lane in lasting), op("end", 1, 10, "optimizer")]
    waits = [("first", "a", "stream", 0), ("first", "b", "event", 0), ("a", "c", "stream", 0), ("c", "end", "stream", 0)]
    waits += [("b", "end", "event", 0), ("d", "end", "event", 0), ("first", "d", "event", 0)]
    before, free = small_graph(nodes, [*waits, ("a", "d", "event", 0), ("b", "d", "event", 0)]), small_graph(nodes, waits)
    assert (step_length(before), step_length(free)) == (90_002, 60_002)
    assert [step_length(settled(before, free, end, KNOWN)) for end in ENDS] == [60_002] * 3
