"""How a graph is rewired: who waits for whom after operations have left their stream, or moved on it."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Literal

import polars as pl
from msgspec import Struct

from diagnose.measure.replay.graph import EDGES, Graph
from diagnose.model.statistics import integer_median


def numbered(graph: Graph, numbers: pl.Series) -> pl.Series:
    """Per node whether its number is among `numbers`."""
    return pl.repeat(False, graph.nodes.height, eager=True).scatter(numbers, True)  # noqa: FBT003 - values


def without(edges: pl.DataFrame, dropped: pl.Expr) -> pl.DataFrame:
    """`edges` without `dropped`, but for those of a node that would be left with none: it would stand where it was measured."""
    keeps = edges.select(~dropped.fill_null(value=False)).to_series()
    if keeps.all():
        return edges
    held = edges["dst"].filter(keeps).unique()
    return edges.filter(keeps | ~edges["dst"].is_in(held.implode()))


def at_end(edges: pl.DataFrame, mask: pl.Series, end: Literal["src", "dst"]) -> pl.Series:
    """Per edge the value of `mask` at its source or its target."""
    return mask[edges[end]]


def runs(graph: Graph, mask: pl.Series, breaks: pl.Series | None = None) -> pl.DataFrame:
    """Selected operations with their `run`: those of one step that follow one another on their stream with no other between.

    Columns node, lane, run (number), place (0 for the first of its run), in order. `breaks`: nodes before which a new run begins.
    """
    breaks = pl.repeat(False, graph.nodes.height, eager=True) if breaks is None else breaks  # noqa: FBT003 - a value
    ops = graph.nodes.select("kind", "lane", "step", mask.alias("selected"), breaks.alias("breaks")).with_row_index("node")
    ops = ops.filter(pl.col("kind") == "op").sort("lane", "node", maintain_order=True)
    begins = (
        ~pl.col("selected").shift(1, fill_value=False)
        | (pl.col("lane") != pl.col("lane").shift(1))
        | pl.col("step").ne_missing(pl.col("step").shift(1))
        | pl.col("breaks")
    )
    return (
        ops.with_columns((pl.col("selected") & begins).cum_sum().alias("run"))
        .filter("selected")
        .select("node", "lane", "run", pl.int_range(pl.len()).over("run").alias("place"))
    )


def rebuilt(graph: Graph, nodes: pl.DataFrame, edges: pl.DataFrame, steps: pl.DataFrame | None = None) -> Graph:
    """A graph of these frames, its rows put in an order in which everything that a node waits for stands before it."""
    steps = graph.steps if steps is None else steps
    edges = edges.select(*EDGES)
    if (edges["src"] < edges["dst"]).all():
        return dataclasses.replace(graph, nodes=nodes, edges=edges.sort("dst", maintain_order=True), steps=steps)
    place = _order(nodes.height, edges)
    order = place.arg_sort()
    moved = (pl.Series(place).gather(edges[name]).cast(pl.UInt32).alias(name) for name in ("src", "dst"))
    return dataclasses.replace(
        graph,
        nodes=nodes[order],
        edges=edges.with_columns(*moved).sort("dst", maintain_order=True),
        steps=steps.with_columns(place.gather(steps[name]).cast(pl.UInt32).alias(name) for name in ("opens", "closes")),
    )


def _order(count: int, edges: pl.DataFrame) -> pl.Series:
    """The place of each node in a topological order that keeps the present one where it can. Raises ValueError for a circle.

    Of what may come next the first goes next. Only nodes between the two ends of an edge that leads back can change places.
    """
    number = pl.int_range(count, dtype=pl.UInt32, eager=True)
    back = edges.filter(pl.col("src") >= pl.col("dst")).sort("dst")
    furthest = pl.concat([pl.Series([-1]), back["src"].cast(pl.Int64).cum_max()])
    tangled = number <= furthest.gather(back["dst"].search_sorted(number, side="right"))
    inner = edges.filter(at_end(edges, tangled, "src") & at_end(edges, tangled, "dst")).select("src", "dst").sort("src")
    targets: list[int] = inner["dst"].to_list()
    begins = [*inner["src"].search_sorted(number).to_list(), len(targets)]
    waited = inner.group_by("dst").len()
    open_ = pl.zeros(count, dtype=pl.UInt32, eager=True).scatter(waited["dst"], waited["len"]).to_list()
    members: list[int] = number.filter(tangled).to_list()
    order: list[int] = []
    held: list[int] = []  # of those that had to wait, what may go now

    def go(node: int, reached: int) -> None:
        """`node` comes next; what waited for it alone may go, which those beyond `reached` find in their turn."""
        order.append(node)
        for target in targets[begins[node] : begins[node + 1]]:
            open_[target] -= 1
            if not open_[target] and target < reached:
                heappush(held, target)

    for node in members:
        while held:
            go(heappop(held), node)
        if not open_[node]:
            go(node, node)
    while held:
        go(heappop(held), count)
    if len(order) < len(members):
        raise ValueError("what waits for what runs in a circle")
    return number.scatter(pl.Series(order, dtype=pl.UInt32), pl.Series(members, dtype=pl.UInt32))


# ---------------------------------------------------------------------------------------------------------------- parts of an operation


def split(graph: Graph, mask: pl.Series, parts: int) -> tuple[Graph, pl.Series]:
    """Each selected operation as `parts` equal ones, one after the other: the first waits for what it waited for, the last is awaited."""
    if parts == 1 or not mask.any():
        return graph, mask
    times = mask.cast(pl.UInt32) * (parts - 1) + 1
    first = times.cum_sum() - times  # the new number of each node, or of its first part
    last = first + times - 1
    number = pl.int_range(graph.nodes.height, dtype=pl.UInt32, eager=True)
    order = pl.DataFrame([number.alias("number"), times.alias("times")]).select(pl.col("number").repeat_by("times").explode()).to_series()
    nodes = graph.nodes[order]
    part = pl.int_range(len(order), dtype=pl.Int64, eager=True) - first.gather(order).cast(pl.Int64)
    cut = mask.gather(order)
    share = (nodes["duration"] * (part + 1)) // parts - (nodes["duration"] * part) // parts
    nodes = nodes.with_columns(
        pl.when(cut).then(share).otherwise("duration").alias("duration"),
        pl.when(cut & (part > 0)).then(0).otherwise("delay").cast(pl.Int64).alias("delay"),
        pl.when(cut & (part > 0)).then(None).otherwise("instance").cast(pl.Int64).alias("instance"),
    )
    edges = graph.edges.with_columns(
        pl.when(pl.col("after") == "end").then(last.gather(graph.edges["src"])).otherwise(first.gather(graph.edges["src"])).alias("src"),
        first.gather(graph.edges["dst"]).alias("dst"),
    )
    inner = pl.DataFrame({"src": (first.filter(mask).to_frame("src")).to_series(), "mask": True})
    chained = pl.concat([inner.select(pl.col("src") + place, (pl.col("src") + place + 1).alias("dst")) for place in range(parts - 1)])
    edges = pl.concat([edges, inferred_edges(list(chained.iter_rows()), "stream")])
    steps = graph.steps.with_columns(first.gather(graph.steps["opens"]).alias("opens"), last.gather(graph.steps["closes"]).alias("closes"))
    return rebuilt(
        graph, nodes, edges.cast({"src": pl.UInt32, "dst": pl.UInt32}), steps.cast({"opens": pl.UInt32, "closes": pl.UInt32})
    ), cut


def inferred_edges(pairs: Sequence[tuple[int, int]] | Sequence[tuple[int, int, int]], kind: str) -> pl.DataFrame:
    """Inferred edges between pairs of nodes, from the end of the one; a third number is the lag."""
    ends = {name: pl.Series([one[place] for one in pairs], dtype=pl.UInt32) for place, name in enumerate(("src", "dst"))}
    lag = pl.Series([one[2] if len(one) > 2 else 0 for one in pairs], dtype=pl.Int64)
    told = (pl.lit(value, dtype=EDGES[name]).alias(name) for name, value in (("after", "end"), ("kind", kind), ("inferred", True)))
    return pl.DataFrame({**ends, "lag": lag}).with_columns(told).select(*EDGES)


def pieced(graph: Graph, mask: pl.Series, beside: pl.Series, pieces: int) -> Graph:
    """Each selected operation and the one of `beside` that it feeds, or that feeds it, in pieces that wait for each other one by one.

    Piece by piece both take as long as the longer of them and one piece of the shorter. What stands between two of them in backward is a
    gradient that the second (of the weights) does not read: it runs beside that as a whole, and what comes next waits for it.
    """
    if pieces == 1:
        return graph
    known = graph.edges.filter((pl.col("after") == "end") & pl.col("kind").is_in(["event", "stream"]))
    feeds = known.filter(at_end(known, mask, "src") & at_end(known, beside, "dst")).unique("src", keep="first", maintain_order=True)
    fed = known.filter(at_end(known, beside, "src") & at_end(known, mask, "dst")).unique("dst", keep="first", maintain_order=True)
    back = feeds["src"].is_in(fed["dst"].implode()) & (graph.nodes["phase"].gather(feeds["src"]) == "backward").fill_null(value=False)
    graph = _passed_by(graph, feeds.filter(back), beside)
    fed = fed.filter(~pl.col("dst").is_in(feeds["src"].implode()))
    pairs = pl.concat([feeds.filter(~back), fed]).select("src", "dst", "lag").sort("src", "dst")
    if pairs.is_empty():
        return graph
    cut = numbered(graph, pl.concat([pairs["src"], pairs["dst"]]).unique())
    times = cut.cast(pl.UInt32) * (pieces - 1) + 1
    first = times.cum_sum() - times
    after, _ = split(graph, cut, pieces)
    links = [(first[source], first[target], max(0, lag)) for source, target, lag in pairs.iter_rows()]
    added = inferred_edges([(source + part, target + part, lag) for source, target, lag in links for part in range(pieces)], "event")
    edges = _without_waits(after.edges, {(source + pieces - 1, target) for source, target, _ in links})
    return rebuilt(after, after.nodes, pl.concat([edges, added]))


def _passed_by(graph: Graph, waits: pl.DataFrame, beside: pl.Series) -> Graph:
    """The graph where what waits (`dst`, of `beside`) goes on beside `src`, which the next other operation on its stream waits for."""
    ops = graph.nodes.with_columns(beside.alias("beside")).with_row_index("next")
    others = ops.filter((pl.col("kind") == "op") & ~pl.col("beside")).select("lane", "next")
    found = (
        waits.join(graph.nodes.with_row_index("dst").select("dst", "lane"), on="dst")
        .sort("dst")
        .join_asof(others.sort("next"), left_on="dst", right_on="next", by="lane", strategy="forward", check_sortedness=False)
        .drop_nulls("next")
    )
    edges = _without_waits(graph.edges, set(found.select("src", "dst").iter_rows()))
    return rebuilt(graph, graph.nodes, pl.concat([edges, inferred_edges(list(found.select("src", "next").iter_rows()), "event")]))


def _without_waits(edges: pl.DataFrame, gone: set[tuple[int, int]]) -> pl.DataFrame:
    """The edges without those between these nodes on streams."""
    dropped = pl.Series([pair in gone for pair in edges.select("src", "dst").iter_rows()], dtype=pl.Boolean)
    return edges.filter(~(dropped & edges["kind"].is_in(["event", "stream"])))


# ---------------------------------------------------------------------------------------------------------------- leaving a stream


def detached(graph: Graph, mask: pl.Series, *, since: pl.Series | None, until: pl.Series | None, spread: bool, one_ahead: bool) -> Graph:
    """The selected operations on streams of their own; what waited for them goes on, and `until` waits in its place.

    `since`: they begin once their share of these is done, counted over the pass before them, not when they were launched. `spread`: each is
    awaited by its share of `until`, counted over the pass after them. Without `until`: what waited for the next of them waits for each
    (`one_ahead`), else the first operation of another phase. On a stream that they share with others the one before them is taken for what
    they read, which is inferred.
    """
    ops = Ops.of(graph)
    chosen = ops.among(mask)
    member = set(chosen)
    bursts = _bursts(ops, chosen, until)
    awaited_by = _consumers(graph, ops, chosen, bursts, until, spread=spread, one_ahead=one_ahead)
    ready = _producers(ops, bursts, since)
    own_lane, links = _own_lanes(graph, ops, member, data=since is None)
    edges = graph.edges
    out, into = at_end(edges, mask, "src"), at_end(edges, mask, "dst")
    leaves = out & ~into & edges["kind"].is_in(["event", "stream"])
    moved = numbered(graph, pl.Series(sorted(own_lane), dtype=pl.UInt32))
    between = (edges["kind"] == "stream") & (at_end(edges, moved, "src") | at_end(edges, moved, "dst"))
    turns = (out | into) & (edges["kind"] == "device")  # who goes first on the device is open again
    dropped = leaves | between | turns
    if since is not None:
        dropped |= into & ~out & edges["kind"].is_in(["event", "stream", "issue", "meeting", "queue"])
    added = [*links, *((node, target, 0) for node, target in awaited_by.items()), *((source, node, 0) for node, source in ready.items())]
    kept = edges.filter(~dropped)
    event = inferred_edges(added, "event")
    awaits = numbered(graph, pl.concat([kept["dst"], event["dst"]]).unique())  # the others would be left with nothing to wait for
    kept = edges.filter(~dropped | ~at_end(edges, awaits, "dst"))
    lane = graph.nodes["lane"].scatter(pl.Series(own_lane.keys(), dtype=pl.UInt32), pl.Series(own_lane.values(), dtype=pl.Int32))
    nodes = graph.nodes.with_columns(lane)
    if since is not None:
        nodes = nodes.with_columns(pl.when(mask).then(0).otherwise("delay").cast(pl.Int64).alias("delay"))
    return rebuilt(graph, nodes, pl.concat([kept, event]))


class Ops(Struct, frozen=True, kw_only=True):
    """The device operations in order, as lists by place: their number, lane, phase (of the nearest before where unknown) and step."""

    nodes: list[int]
    lanes: list[int]
    phases: list[str]
    steps: list[int | None]

    @classmethod
    def of(cls, graph: Graph) -> Ops:
        """The operations of a graph."""
        ops = graph.nodes.with_row_index("node").filter(pl.col("kind") == "op")
        phase = ops["phase"].cast(pl.String).replace("recompute", "backward").fill_null(strategy="forward").fill_null("")
        return cls(nodes=ops["node"].to_list(), lanes=ops["lane"].to_list(), phases=phase.to_list(), steps=ops["step"].to_list())

    def among(self, mask: pl.Series) -> list[int]:
        """The numbers of the operations for which `mask`, of all nodes, is true."""
        return [self.nodes[place] for place in self.places(mask)]

    def places(self, mask: pl.Series) -> list[int]:
        """Their places among the operations."""
        wanted = mask.to_list()
        return [place for place, node in enumerate(self.nodes) if wanted[node]]

    def position(self, node: int) -> int:
        """Place of an operation by its number."""
        return bisect_left(self.nodes, node)

    def cut_off(self, places: Sequence[int]) -> bool:
        """Whether a pass (places, in order) lies behind the kept steps and the graph ends within it."""
        return bool(places) and places[-1] == len(self.nodes) - 1 and self.steps[places[0]] is None

    def passage(self, wanted: Sequence[int], place: int, way: Literal[1, -1]) -> list[int]:
        """The `wanted` operations (places, in order) next to a place in one direction, up to one of another phase; in order."""
        begin = bisect_right(wanted, place) if way == 1 else bisect_left(wanted, place) - 1
        if not 0 <= begin < len(wanted):
            return []
        phase, found = self.phases[wanted[begin]], list[int]()
        at, end = wanted[begin], begin
        while 0 <= end < len(wanted) and all(self.phases[one] == phase for one in range(min(at, wanted[end]), max(at, wanted[end]) + 1)):
            at = wanted[end]
            found.append(at)
            end += way
        return found[::way]


def _bursts(ops: Ops, chosen: Sequence[int], until: pl.Series | None) -> list[list[int]]:
    """The selected operations in groups between which nothing of `until` (without it: of another phase) runs."""
    wanted = [] if until is None else ops.places(until)
    bursts: list[list[int]] = []
    before: object = None
    for node in chosen:
        place = ops.position(node)
        key: object = (bisect_right(wanted, place), ops.steps[place]) if until is not None else (ops.phases[place], ops.steps[place])
        if not bursts or key != before:
            bursts.append([])
        bursts[-1].append(node)
        before = key
    return bursts


def burst_size(graph: Graph, mask: pl.Series, until: pl.Series | None) -> int:
    """How many of the selected operations a burst usually holds; a burst is those between which nothing of `until` runs."""
    ops = Ops.of(graph)
    return integer_median([len(burst) for burst in _bursts(ops, ops.among(mask), until)])


def _consumers(
    graph: Graph,
    ops: Ops,
    chosen: Sequence[int],
    bursts: Sequence[Sequence[int]],
    until: pl.Series | None,
    *,
    spread: bool,
    one_ahead: bool,
) -> dict[int, int]:
    """The operation that waits for each selected one."""
    found: dict[int, int] = {}
    if until is not None:
        wanted = ops.places(until)
        for burst in bursts:
            after = ops.passage(wanted, ops.position(burst[-1]), 1)
            if ops.cut_off(after):
                continue  # who would wait is not there: all of the burst would be awaited by the first of them
            for number, node in enumerate(burst if after else ()):
                found[node] = ops.nodes[after[number * len(after) // len(burst) if spread else 0]]
        return found
    if not one_ahead:
        for burst in bursts:
            phase = ops.phases[ops.position(burst[-1])]
            after_place = next((place for place in range(ops.position(burst[-1]) + 1, len(ops.nodes)) if ops.phases[place] != phase), None)
            if after_place is not None:
                found |= dict.fromkeys(burst, ops.nodes[after_place])
        return found
    member, waiting = set(chosen), dict[int, int]()
    for source, target, _kind in graph.edges.filter(pl.col("kind").is_in(["event", "stream"])).select("src", "dst", "kind").iter_rows():
        if source in member and target not in member:
            waiting[source] = min(waiting.get(source, target), target)
    for node, ahead in zip(chosen, [*chosen[1:], None], strict=True):
        if node in waiting:  # nothing of them is ahead of the last: what waits for it waits on
            found[node] = waiting[node] if ahead is None else waiting.get(ahead, waiting[node])
    return found


def _producers(ops: Ops, bursts: Sequence[Sequence[int]], since: pl.Series | None) -> dict[int, int]:
    """The operation by which each selected one is made ready, where `since` tells."""
    if since is None:
        return {}
    wanted = ops.places(since)
    found: dict[int, int] = {}
    for burst in bursts:
        before = ops.passage(wanted, ops.position(burst[0]), -1)
        for number, node in enumerate(burst if before else ()):
            found[node] = ops.nodes[before[-(-(number + 1) * len(before) // len(burst)) - 1]]
    return found


def _own_lanes(graph: Graph, ops: Ops, member: set[int], *, data: bool) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """The new lane of each selected operation that shares its own, and the edges that take the place of the stream's order.

    Those left on the stream follow one another as before, the ones that left too; with `data`, each of these after the one before it.
    """
    lags = {
        (source, target): lag
        for source, target, lag in graph.edges.filter(pl.col("kind") == "stream").select("src", "dst", "lag").iter_rows()
    }
    by_lane: dict[int, list[int]] = {}
    for node, lane in zip(ops.nodes, ops.lanes, strict=True):
        by_lane.setdefault(lane, []).append(node)
    fresh = max(graph.nodes["lane"].to_list(), default=0)
    lanes: dict[int, int] = {}
    links: list[tuple[int, int, int]] = []
    for nodes in by_lane.values():
        if not member.intersection(nodes) or member.issuperset(nodes):
            continue
        fresh += 1
        last: dict[bool, int] = {}
        for before, node in zip([None, *nodes[:-1]], nodes, strict=True):
            left = node in member
            lag = max(0, lags.get((before, node), 0)) if before is not None else 0
            if left:
                lanes[node] = fresh
            if left in last and (left or before in member):
                links.append((last[left], node, lag))
            if left and data and False in last:
                links.append((last[False], node, lag))
            last[left] = node
    return lanes, links


# ---------------------------------------------------------------------------------------------------------------- moving on a stream


_LEFT_BEHIND = ("event", "awaited", "queue")  # kinds of edges that go on without what is put off: the host launches it later, too


def delayed(graph: Graph, mask: pl.Series, until: pl.Series) -> Graph:
    """The selected operations moved on their stream to where the stream waits for the next operation of `until` after them.

    What waited for them, a stream or a call, waits for the one before them on the stream; what follows the move waits for them. Where they
    would wait for themselves all stays as it is.
    """
    ops = Ops.of(graph)
    wanted = ops.places(until)
    by_lane: dict[int, list[int]] = {}
    for place, lane in enumerate(ops.lanes):
        by_lane.setdefault(lane, []).append(place)
    stream = {
        (source, target): lag
        for source, target, lag in graph.edges.filter(pl.col("kind") == "stream").select("src", "dst", "lag").iter_rows()
    }
    moved: dict[int, int] = {}  # selected operation: the one left on its stream before it
    added: list[tuple[int, int, int]] = []
    gone: set[tuple[int, int]] = set()
    for places in by_lane.values():
        if not any(mask[ops.nodes[place]] for place in places):
            continue
        order, put_off = _put_off(ops.nodes, places, mask, wanted)
        moved |= put_off
        kept = [ops.nodes[place] for place in places]
        before, now = set(pairwise(kept)), list(pairwise(order))
        gone |= before - set(now)
        added += [(one, two, max(0, stream.get((one, two), 0))) for one, two in now if (one, two) not in before]
    if not moved:
        return graph
    edges = graph.edges
    source = [moved.get(node) if kind != "stream" else node for node, kind in edges.select("src", "kind").iter_rows()]
    pairs = zip(edges["src"], edges["dst"], edges["kind"], strict=True)
    lost = pl.Series([kind == "stream" and (one, two) in gone for one, two, kind in pairs], dtype=pl.Boolean)
    resourced = pl.Series("source", source, dtype=pl.UInt32)
    left = pl.Series([node in moved for node in edges["src"]], dtype=pl.Boolean) & edges["kind"].is_in(_LEFT_BEHIND)
    turned = pl.Series(sorted(moved), dtype=pl.UInt32).implode()
    turns = (edges["src"].is_in(turned) | edges["dst"].is_in(turned)) & (edges["kind"] == "device")
    edges = edges.with_columns(pl.when(left & resourced.is_not_null()).then(resourced).otherwise("src").alias("src")).filter(~lost & ~turns)
    try:
        return rebuilt(graph, graph.nodes, pl.concat([edges, inferred_edges(added, "stream")]))
    except ValueError:  # what is moved would wait for itself: it can't be put off
        return graph


def _put_off(nodes: Sequence[int], places: Sequence[int], mask: pl.Series, wanted: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The operations of one stream (its `places`) with the selected ones moved behind the next of the places in `wanted`.

    Their new order, and of each that was moved the one that stays before it.
    """
    order: list[int] = []
    moved: dict[int, int] = {}
    held: list[tuple[int, int]] = []  # place from which on it goes in, and the operation
    previous: int | None = None
    for place in places:
        node = nodes[place]
        while held and held[0][0] < place:
            order.append(heappop(held)[1])
        after = bisect_right(wanted, place)
        if mask[node] and previous is not None and after < len(wanted):
            moved[node] = previous
            heappush(held, (wanted[after], node))
        else:
            previous = node
            order.append(node)
    return [*order, *(node for _, node in sorted(held))], moved
