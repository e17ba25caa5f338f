"""Ranks replayed together: graphs of a few nodes, with the times worked out by hand."""

import polars as pl

from diagnose.measure.ranks.meetings import NODES_AT_ONCE, RANKS_AT_ONCE, Met, meet_in, too_many
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import replayed_together
from diagnose.measure.replay.path import step_times
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph
from tests.builders.records import replace

COLLECTIVE = {"role": "transport", "bucket": "dispatch", "comm": "expert"}


def rank(number: int, work: int, exchange: int, after: int = 50, *, begins: int = 0) -> Graph:
    """A rank that works, exchanges, and works for 50 ns or so more; each operation follows the one before it at once."""
    graph = small_graph(
        [
            ("work", {"start": begins, "duration": work, "role": "compute"}),
            ("exchange", {"start": begins + work, "duration": exchange, **COLLECTIVE}),
            ("after", {"start": begins + work + exchange, "duration": after, "role": "compute"}),
        ],
        [("work", "exchange", "stream", 0), ("exchange", "after", "stream", 0)],
    )
    steps = graph.steps.with_columns(start=pl.lit(begins, dtype=pl.Int64), end=pl.lit(begins + work + exchange + after, dtype=pl.Int64))
    return replace(graph, rank=number, steps=steps)


def met(*graphs: Graph, op: int = 1, offsets: tuple[int, ...] | None = None) -> Met:
    """The ranks meet in the operation `op` of each."""
    rows = pl.DataFrame(
        {"instance": 7, "place": range(len(graphs)), "op": op}, schema={"instance": pl.Int64, "place": pl.Int32, "op": pl.UInt32}
    )
    instances = pl.DataFrame({"instance": [7], "group": [0], "kind": ["expert"], "shape": ["all_to_all"], "whole": [True], "hosts": [1]})
    return meet_in(graphs, rows, instances, offsets or (0,) * len(graphs))


def ends(found: Met, graphs: tuple[Graph, ...] | None = None, *, waiting: bool = True) -> list[list[int]]:
    """Ends of all nodes of each rank after the joint replay."""
    return [times.end.to_list() for times in replayed_together(graphs or found.graphs, found.meetings, waiting=waiting).times]


def lasting(graph: Graph, node: int, ns: int) -> Graph:
    """The graph with another duration of one node."""
    numbers = pl.int_range(graph.nodes.height, eager=True)
    return replace(
        graph, nodes=graph.nodes.with_columns(pl.when(numbers == node).then(ns).otherwise("duration").cast(pl.Int64).alias("duration"))
    )


# rank 0 works for 100 ns and waits 60 ns for rank 1, which works for 160; the transfer takes both 20
FAST, SLOW = rank(0, 100, 80), rank(1, 160, 20)


def test_what_was_measured_comes_back() -> None:
    found = met(FAST, SLOW)
    assert found.refused is None
    assert not found.notes
    assert found.meetings.members["transfer"].to_list() == [20, 20]
    assert ends(found) == [[100, 180, 230], [160, 180, 230]]


def test_what_becomes_shorter_shows_where_others_waited_for_it() -> None:
    found = met(FAST, SLOW)
    fast, slow = found.graphs
    assert ends(found, (fast, lasting(slow, 0, 120))) == [[100, 140, 190], [120, 140, 190]]  # the slow rank by 40: both end 40 earlier
    assert ends(found, (fast, lasting(slow, 0, 40))) == [[100, 120, 170], [40, 120, 170]]  # now rank 1 waits for rank 0
    assert ends(found, (lasting(fast, 0, 10), slow)) == [[10, 180, 230], [160, 180, 230]]  # the fast one waits longer
    assert ends(found, (lasting(fast, 1, 40), lasting(slow, 1, 10)))[0] == [100, 170, 220]  # half the exchange: half the transfer of 20
    assert ends(found, (lasting(fast, 1, 0), lasting(slow, 1, 0))) == [[100, 100, 150], [160, 160, 210]]  # without it nobody meets
    assert ends(found, waiting=False) == [[100, 120, 170], [160, 180, 230]]


def test_clocks_that_differ() -> None:
    ahead = rank(1, 160, 20, begins=1_000_000)
    found = met(FAST, ahead, offsets=(0, 1_000_000))
    assert found.meetings.members["transfer"].to_list() == [20, 20]
    assert ends(found, (found.graphs[0], lasting(found.graphs[1], 0, 120))) == [[100, 140, 190], [1_000_120, 1_000_140, 1_000_190]]
    slightly = met(FAST, ahead, offsets=(0, 999_970))  # 30 ns off: by it rank 0 ends 10 before rank 1 has come; it stays so
    assert slightly.meetings.members["transfer"].to_list() == [-10, 20]
    assert ends(slightly)[0] == [100, 180, 230]
    wrong = met(FAST, ahead, offsets=(0, 0))
    assert wrong.meetings.members.is_empty()
    assert wrong.notes == ("1 matched collective stays as it was measured: by the clocks a member ended over 100 µs before the last came.",)
    assert ends(wrong, (wrong.graphs[0], lasting(wrong.graphs[1], 0, 120)))[0] == [100, 180, 230]


def test_two_meetings_that_wait_for_each_other_are_dropped() -> None:
    """Rank 0 sends in one order, rank 1 in the other: matched wrongly."""
    nodes = [(name, {"start": 100 * number, "duration": 100, **COLLECTIVE}) for number, name in enumerate(("a", "b"))]
    graph = small_graph(nodes, [("a", "b", "stream", 0)])
    graph = replace(graph, steps=graph.steps.with_columns(end=pl.lit(200, dtype=pl.Int64)))
    rows = pl.DataFrame(
        {"instance": [0, 1, 0, 1], "place": [0, 0, 1, 1], "op": [0, 1, 1, 0]},
        schema={"instance": pl.Int64, "place": pl.Int32, "op": pl.UInt32},
    )
    instances = pl.DataFrame({"instance": [0, 1], "group": 0, "kind": "expert", "shape": "all_to_all", "whole": True, "hosts": 1})
    found = meet_in([graph, replace(graph, rank=1)], rows, instances, (0, 0))
    assert found.refused is None
    assert found.meetings.members["instance"].unique().len() <= 1
    assert "each waits for another" in found.notes[0]
    assert ends(found) == [[100, 200], [100, 200]]


def test_a_waiting_for_ranks_that_were_not_captured_stays() -> None:
    """Three ranks meet, two were captured: what both waited for the third is part of their transfer."""
    found = met(rank(0, 100, 380), rank(1, 160, 320))
    assert found.meetings.members["transfer"].to_list() == [320, 320]
    assert ends(found, (found.graphs[0], lasting(found.graphs[1], 0, 100)))[0] == [100, 420, 470]


def test_a_step_is_what_it_was() -> None:
    found = met(FAST, SLOW)
    for graph, times in zip(found.graphs, replayed_together(found.graphs, found.meetings).times, strict=True):
        assert step_times(graph, times).select("start", "end").equals(graph.steps.select("start", "end"))


@for_each(
    "ranks, nodes, said",
    (RANKS_AT_ONCE, NODES_AT_ONCE, None),
    (512, 0, "512 ranks are too many to replay together (at most 64): "),
    (8, 4_000_000, "8 ranks with 4,000,000 nodes are too many to replay together (at most 2,000,000 nodes): "),
)
def test_so_many_ranks(ranks: int, nodes: int, said: str | None) -> None:
    why = too_many(ranks, nodes)
    assert why is None if said is None else why is not None and why.startswith(said)
