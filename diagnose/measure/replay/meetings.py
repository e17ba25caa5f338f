"""Several ranks' graphs replayed together: a collective begins its work once the last of its captured members has come.

What each member took from then on is its transfer, which stays what was measured; the waiting before it follows from the replay. A
collective that is in no meeting takes what it took, waiting and all: so do those of a rank that was captured alone, and so does the waiting
for members that were not captured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import polars as pl
from msgspec import Struct

from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.path import Times

# One row for each member of each meeting.
MEMBERS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.Int64,  # as in NODES
    "place": pl.Int32,  # of the member's graph
    "op": pl.UInt32,  # as in NODES
    "duration": pl.Int64,  # measured, ns: waiting and transfer
    "transfer": pl.Int64,  # ns from the arrival of the last member to this one's end; negative where clocks differ by so much
}
# One row per meeting.
INSTANCES: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.Int64,
    "group": pl.Int32,  # number of the group of ranks and its operation
    "kind": pl.String,  # of exchange
    "shape": pl.String,
    "whole": pl.Boolean,  # every member was captured; null: the trace does not tell
    "hosts": pl.Int32,  # on how many hosts the captured members are; null: not told
}


class Meetings(Struct, frozen=True, kw_only=True):
    """In which collectives the ranks of several graphs meet. `offsets`: by graph, what to take off its times for the clock of all (ns)."""

    members: pl.DataFrame
    instances: pl.DataFrame
    offsets: tuple[int, ...]

    def without(self, instances: Collection[int]) -> Meetings:
        """These meetings dropped: their members take again what they took."""
        kept = ~pl.col("instance").is_in(sorted(instances))
        return Meetings(members=self.members.filter(kept), instances=self.instances.filter(kept), offsets=self.offsets)


class Together(Struct, frozen=True, kw_only=True):
    """`times`: of each graph. `broken`: meetings that could not come about, because each waits for another; these took what they took."""

    times: tuple[Times, ...]
    broken: frozenset[int]


def replayed_together(graphs: Sequence[Graph], meetings: Meetings, *, waiting: bool = True) -> Together:
    """When every node of every rank begins and ends, by its own rank's clock. Not `waiting`: every member begins its work at once.

    A member whose node lasts k times what was measured transfers for k times as long; one that lasts nothing meets nobody.
    """
    firsts = [0]
    for graph in graphs:
        firsts.append(firsts[-1] + graph.nodes.height)
    meeting_of = _members(graphs, meetings, firsts)
    begins, ends, broken = _worked_off(graphs, firsts, meeting_of, waiting=waiting)
    times = tuple(
        Times(start=pl.Series("start", begins[first:last], dtype=pl.Int64), end=pl.Series("end", ends[first:last], dtype=pl.Int64))
        for first, last in pairwise(firsts)
    )
    return Together(times=times, broken=frozenset(broken))


class _Member(Struct, frozen=True):
    """A node's part in a meeting of `members` nodes: its transfer (ns), and its clock's offset.

    `meeting`: the instance, and which of the parts that a change has cut it into.
    """

    meeting: tuple[int, int]
    members: int
    transfer: int
    offset: int


def _members(graphs: Sequence[Graph], meetings: Meetings, firsts: Sequence[int]) -> dict[int, _Member]:
    """By node, over all graphs; without the nodes that last nothing, and the meetings that only one node is left of."""
    found = []
    for place, (graph, first) in enumerate(zip(graphs, firsts, strict=False)):
        own = graph.nodes.select("op", "instance", pl.col("duration").alias("lasts")).with_row_index("node", offset=first)
        own = own.filter(pl.col("instance").is_not_null() & (pl.col("lasts") > 0))
        measured = meetings.members.filter(pl.col("place") == place)
        found.append(own.join(measured, on=["instance", "op"]).with_columns(pl.lit(meetings.offsets[place]).alias("offset")))
    longer = pl.col("lasts") / pl.max_horizontal("duration", 1)
    moved = pl.when((pl.col("transfer") > 0) & (pl.col("lasts") != pl.col("duration")))
    rows = pl.concat(found).with_columns(pl.int_range(pl.len()).over("instance", "place").alias("cut"))
    met = rows.select(
        "node",
        "instance",
        "cut",
        pl.len().over("instance", "cut").alias("members"),
        moved.then((pl.col("transfer") * longer).round().cast(pl.Int64)).otherwise("transfer").alias("transfer"),
        "offset",
    ).filter(pl.col("members") > 1)
    return {node: _Member((instance, cut), *told) for node, instance, cut, *told in met.iter_rows()}


class _Edges(NamedTuple):
    """All graphs' edges in lists, by what they wait for: those for the begin of node `n` stand from `bounds[2n]` on, behind them those for
    its end, up to `bounds[2n + 2]`.

    `missing`: for how many edges each node waits itself.
    """

    bounds: list[int]
    targets: list[int]
    lags: list[int]
    missing: list[int]


def _edges(graphs: Sequence[Graph], firsts: Sequence[int], count: int) -> _Edges:
    """The edges among `count` nodes; `firsts`: the number of each graph's first node."""
    ended = (pl.col("after") == "end").cast(pl.Int64)
    edges = pl.concat(
        [
            graph.edges.select(
                (2 * (pl.col("src").cast(pl.Int64) + first) + ended).alias("moment"), pl.col("dst").cast(pl.Int64) + first, "lag"
            )
            for graph, first in zip(graphs, firsts, strict=False)
        ]
    ).sort("moment")
    missing = pl.DataFrame({"dst": pl.int_range(count, eager=True)}).join(
        edges.group_by("dst").len(), on="dst", how="left", maintain_order="left"
    )
    return _Edges(
        bounds=edges["moment"].search_sorted(pl.int_range(2 * count + 1, eager=True)).to_list(),
        targets=edges["dst"].to_list(),
        lags=edges["lag"].to_list(),
        missing=missing["len"].fill_null(0).to_list(),
    )


def _worked_off(
    graphs: Sequence[Graph], firsts: Sequence[int], meeting_of: Mapping[int, _Member], *, waiting: bool
) -> tuple[list[int], list[int], set[int]]:
    """Begin and end of every node, in any order in which all that a node waits for goes before it; and the meetings that were broken."""
    nodes = pl.concat([graph.nodes.select("start", "delay", "duration") for graph in graphs])
    bounds, targets, lags, missing = _edges(graphs, firsts, nodes.height)
    durations, delays, begins = nodes["duration"].to_list(), nodes["delay"].to_list(), nodes["start"].to_list()
    ends: list[int] = [0] * nodes.height
    ready = [_NEVER] * nodes.height
    free = [node for node, number in enumerate(missing) if not number]
    come: dict[tuple[int, int], list[int]] = {}  # by meeting: the members that have begun
    broken: set[int] = set()

    def release(moment: int, time: int) -> None:
        """What waits for a moment, the begin or the end of a node, waits for it no longer."""
        for edge in range(bounds[moment], bounds[moment + 1]):
            target, at = targets[edge], time + lags[edge]
            if at > ready[target]:  # noqa: PLR1730 - a call less for each of millions of edges
                ready[target] = at
            missing[target] -= 1
            if not missing[target]:
                free.append(target)

    def meet(members: Sequence[int]) -> None:
        """All have come."""
        last = max(begins[node] - meeting_of[node].offset for node in members)
        for node in members:
            since = last + meeting_of[node].offset if waiting else begins[node]
            ends[node] = max(begins[node], since + meeting_of[node].transfer)
            release(2 * node + 1, ends[node])

    while free or come:
        if not free:  # each waits for another
            meeting = min(come, key=lambda one: min(begins[node] - meeting_of[node].offset for node in come[one]))
            broken.add(meeting[0])
            for node in come.pop(meeting):
                ends[node] = begins[node] + durations[node]
                release(2 * node + 1, ends[node])
            continue
        node = free.pop()
        if ready[node] != _NEVER:
            begins[node] = ready[node] + delays[node]
        if bounds[2 * node] < bounds[2 * node + 1]:  # hardly anything waits for a beginning
            release(2 * node, begins[node])
        if node not in meeting_of or meeting_of[node].meeting[0] in broken:
            ends[node] = begins[node] + durations[node]
            release(2 * node + 1, ends[node])
            continue
        here = come.setdefault(meeting_of[node].meeting, [])
        here.append(node)
        if len(here) == meeting_of[node].members:
            meet(come.pop(meeting_of[node].meeting))
    return begins, ends, broken


_NEVER = -(1 << 62)
