"""What operations lose that newly run side by side: compute beside transport slows down both; compute beside compute takes turns, and so
does transport of one group of ranks, whose link is one.

What compute loses beside transport is measured where the trace holds the same kernels alone and beside it (`measure.contention.losses`);
otherwise the published share of SMs that an exchange takes stands for it (`contention` in trace_rules/forecast.yaml).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from diagnose.knowledge.forecast import Contention
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.path import replay
from diagnose.model.intervals import covered, lasting, merge
from diagnose.reason.forecast.changes import ENDS, End
from diagnose.reason.forecast.wiring import inferred_edges, rebuilt

LARGEST = 0.5  # a larger share that is lost is not believed
SHARED = 0.5  # of the shorter one's time: what ran at once for so long does not fill the device (this project's choice)
ROUNDS = 4  # of finding compute that newly runs at once and letting it take turns, which moves what comes after it
_LONGER: Mapping[str, pl.DataType | type[pl.DataType]] = {"node": pl.UInt32, "longer": pl.Int64}


def settled(before: Graph, after: Graph, end: End, known: Contention) -> Graph:
    """`after`, a change of `before`, with what newly runs side by side slowed down."""
    if after is before:
        return after
    in_turns, spans = _in_turns(before, after, end, known)
    return _slowed(before, in_turns, spans, end, known)


def _spans(graph: Graph) -> pl.DataFrame:
    """The operations of a graph that take time once it is replayed: node, op, lane, role, comm, start, end."""
    times = replay(graph)
    nodes = graph.nodes.select("op", "lane", "role", "comm", "name_id", "kind").with_row_index("node")
    spans = nodes.with_columns(times.start.alias("start"), times.end.alias("end"))
    return spans.filter((pl.col("kind") == "op") & (pl.col("end") > pl.col("start"))).with_columns(pl.col("role").cast(pl.String))


# ---------------------------------------------------------------------------------------------------------------- beside transport


_OTHER = {"compute": "transport", "transport": "compute"}


class _Measured(NamedTuple):
    """What the measured graph tells: `lost`, as `lost_share`; by role: op, was (ns, the longest that it ran beside the other role)."""

    lost: float | None
    beside: Mapping[str, pl.DataFrame]


def _measured(graph: Graph) -> _Measured:
    """That of a graph: the same for every change of it."""
    spans = _spans(graph)
    was = pl.col("beside").max().alias("was")
    return _Measured(
        lost=lost_share(graph, spans), beside={role: _beside(spans, role, other).group_by("op").agg(was) for role, other in _OTHER.items()}
    )


def _slowed(before: Graph, after: Graph, new: pl.DataFrame, end: End, known: Contention) -> Graph:
    """Compute and transport longer by what each loses in the time that it newly spends beside the other. `new`: spans of `after`."""
    measured = before.once("beside", lambda: _measured(before))
    worst, at = known.compute[2], ENDS.index(end)
    shares = known.compute if measured.lost is None else (measured.lost, measured.lost, max(measured.lost, worst))
    of_role = {"compute": shares[at], "transport": known.transport[at]}
    longer = pl.concat([_longer(measured.beside[role], _beside(new, role, _OTHER[role]), share) for role, share in of_role.items()])
    if longer.is_empty():
        return after
    nodes = after.nodes.with_row_index("node").join(longer, on="node", how="left", maintain_order="left")
    duration = (pl.col("duration") + pl.col("longer").fill_null(0)).alias("duration")
    return dataclasses.replace(after, nodes=nodes.with_columns(duration).drop("node", "longer"))


def _longer(was: pl.DataFrame, beside: pl.DataFrame, share: float) -> pl.DataFrame:
    """node, longer (ns): by how much each operation of a role grows that runs longer `beside` the other role than it did (`was`)."""
    if not share:
        return pl.DataFrame(schema=_LONGER)
    found = beside.join(was, on="op", how="left")
    grown = (pl.col("beside") - pl.col("was").fill_null(0)).clip(0) * share / (1 - share)
    return found.select("node", grown.round().cast(pl.Int64).alias("longer")).filter(pl.col("longer") > 0)


def _beside(spans: pl.DataFrame, role: str, other: str) -> pl.DataFrame:
    """The operations of `role` with the time that some of `other` ran during each."""
    own = spans.filter(pl.col("role") == role)
    return own.with_columns(covered(own, merge(spans.filter(pl.col("role") == other))).alias("beside"))


def lost_share(graph: Graph, spans: pl.DataFrame) -> float | None:
    """The share of its time beside transport that compute was measured to lose in a graph; None where the trace tells of none."""
    lost = int(graph.nodes["lost"].sum())
    beside = int(_beside(spans, "compute", "transport")["beside"].sum())
    return min(lost / beside, LARGEST) if lost and beside else None


# ---------------------------------------------------------------------------------------------------------------- one at a time


def _in_turns(before: Graph, after: Graph, end: End, known: Contention) -> tuple[Graph, pl.DataFrame]:
    """Work of several streams that newly runs at once takes turns, in the order in which it would have begun; and the spans of that.

    That is compute long enough to fill the device, and transport between the same kind of ranks, which one link carries. What ran at once
    with its like before leaves room for it.
    """
    least = known.fills_us[ENDS.index(end)] * 1000
    was = before.once(("at once", least), lambda: _at_once(_taking_turns(_spans(before), least)))
    together = {pair.ops for pair in was}
    sharing = {op for pair in was if pair.share >= SHARED for op in pair.ops}
    spans = _spans(after)
    for _ in range(ROUNDS):
        pairs = _at_once(_taking_turns(spans, least))
        found = [pair.nodes for pair in pairs if pair.ops not in together and not sharing.issuperset(pair.ops)]
        if not found:
            break
        try:
            after = rebuilt(after, after.nodes, pl.concat([after.edges, inferred_edges(found, "device")]))
        except ValueError:  # what waits for what would run in a circle: they wait for each other already
            break
        spans = _spans(after)
    return after, spans


def _taking_turns(spans: pl.DataFrame, least: float) -> Sequence[pl.DataFrame]:
    """The operations that take time (`_spans`) in groups of which one goes at a time: compute of `least` ns, transport by its kind."""
    compute = spans.filter((pl.col("role") == "compute") & (lasting >= least))
    return compute, *spans.filter((pl.col("role") == "transport") & pl.col("comm").is_not_null()).partition_by("comm", maintain_order=True)


class _Span(NamedTuple):
    """An operation that takes time."""

    op: int
    node: int
    lane: int
    start: int
    end: int


class _AtOnce(NamedTuple):
    """Two operations that run at once, and the share of the shorter one's time for which they do."""

    ops: tuple[int, int]
    nodes: tuple[int, int]
    share: float


def _at_once(groups: Sequence[pl.DataFrame]) -> Sequence[_AtOnce]:
    """Neighbours in time on different streams of which the second begins before the first ends, by group."""
    spans = [[_Span(*row) for row in group.sort("start", "node").select(*_Span._fields).iter_rows()] for group in groups]
    return [
        _AtOnce(
            ops=(one.op, two.op),
            nodes=(one.node, two.node),
            share=(min(one.end, two.end) - two.start) / min(one.end - one.start, two.end - two.start),
        )
        for one, two in (pair for group in spans for pair in pairwise(group))
        if one.lane != two.lane and two.start < one.end
    ]
