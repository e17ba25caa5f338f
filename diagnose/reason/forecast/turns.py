"""Backward passes that take turns with the forward pass after them: the exchange of one runs beside compute of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import polars as pl
from msgspec import Struct

from diagnose.measure.facts import SMALL_EXCHANGE
from diagnose.measure.replay.graph import EDGES, Graph
from diagnose.measure.replay.path import replay, step_times
from diagnose.model.intervals import total_length
from diagnose.reason.forecast.launches import with_pauses_first
from diagnose.reason.forecast.wiring import Ops, inferred_edges, rebuilt

SMALL_NS = 20_000  # compute between two exchanges of at most that goes with them: notifications, counts, layouts


class _Block(Struct, frozen=True, kw_only=True):
    """A stretch of one pass that is either exchange or compute: its operations in order, and how long it takes."""

    exchange: bool
    nodes: list[int]
    length: int


def interleaved(graph: Graph, mask: pl.Series) -> Graph:
    """Each backward pass takes turns with the forward pass after it, so that the selected exchange of one runs beside compute of the other.

    A pass stays a chain: its blocks (exchange, or compute) follow one another as they did. Compute takes turns on the device, exchange on
    the network; who goes first is whoever can begin first. The host launches in the new order, at the pace at which it did; what kept it
    long between the two passes (the next batch is fetched there) comes before both. A step of a single forward and backward pass has no
    neighbour, and passes that run beside each other already gain nothing: neither changes.
    """
    times = replay(graph)
    begin, end, chosen = times.start.to_list(), times.end.to_list(), mask.to_list()
    pairs = []
    for both in _neighbours(graph, chosen):
        pair = _Pair.of([_blocks(one, chosen, begin, end) for one in both])
        now = max(end[node] for one in both for node in one) - min(begin[node] for one in both for node in one)
        if pair.length < now:
            pairs.append(pair)
    if not pairs:
        return graph
    edges = _with_turns(graph, pairs)
    lane = graph.nodes["lane"].to_list()
    around = edges.filter((pl.col("kind") == "stream") & (pl.col("src_pair") != pl.col("dst_pair")))
    entering, leaving = (
        dict(around.group_by(f"{at}_pair", maintain_order=True).agg(other).iter_rows()) for at, other in (("dst", "src"), ("src", "dst"))
    )
    links = [link for place, pair in enumerate(pairs) for link in pair.links(lane, entering.get(place, ()), leaving.get(place, ()))]
    added = inferred_edges(list(dict.fromkeys(links)), "event").join(edges, on=["src", "dst"], how="anti", maintain_order="left")
    try:
        paused = with_pauses_first(graph, [pair.pauses for pair in pairs])
        after = rebuilt(graph, paused.nodes, pl.concat([edges.select(*EDGES), added]))
    except ValueError:  # some of their launches are not recorded, so the host's new order would wait for itself
        return graph
    return after if total_length(step_times(after, replay(after))) < total_length(step_times(graph, times)) else graph


def _neighbours(graph: Graph, mask: Sequence[bool]) -> Iterator[tuple[list[int], list[int]]]:
    """A backward pass and the forward pass after it in one kept step, where both hold selected exchange; by their operations.

    What lies outside the kept steps counts in no length, and may be cut: of a pass that the capture begins in, not all launches are known.
    """
    passes = _passes(Ops.of(graph), mask)
    used: set[int] = set()
    for number, (one, two) in enumerate(pairwise(passes)):
        both = one.phase == "backward" and two.phase == "forward" and one.step is not None and one.step == two.step
        if both and number not in used and one.holds(mask) and two.holds(mask):
            used |= {number, number + 1}
            yield one.nodes, two.nodes


class _Pass(Struct, frozen=True, kw_only=True):
    """Operations that follow one another in one phase of one step."""

    phase: str
    step: int | None
    nodes: list[int]

    @property
    def key(self) -> tuple[str, int | None]:
        """Phase and step."""
        return self.phase, self.step

    def holds(self, mask: Sequence[bool]) -> bool:
        """Whether any of them is selected."""
        return any(mask[node] for node in self.nodes)


def _passes(ops: Ops, mask: Sequence[bool]) -> list[_Pass]:
    """All passes in order; a few operations between two parts of one of which nothing is selected belong to it: their phase is mistaken."""
    passes: list[_Pass] = []
    for node, phase, step in zip(ops.nodes, ops.phases, ops.steps, strict=True):
        key = (phase, step)
        if len(passes) > 1 and passes[-1].key != key and passes[-2].key == key and not passes[-1].holds(mask):
            mistaken = passes.pop()
            passes[-1].nodes.extend(mistaken.nodes)
        if not passes or passes[-1].key != key:
            passes.append(_Pass(phase=phase, step=step, nodes=[]))
        passes[-1].nodes.append(node)
    return passes


def _blocks(nodes: Sequence[int], mask: Sequence[bool], begin: Sequence[int], end: Sequence[int]) -> list[_Block]:
    """A pass in blocks: exchange that is small beside its others (token counts) goes with compute, and small compute with exchange."""

    def length(members: Sequence[int]) -> int:
        return max(end[one] for one in members) - min(begin[one] for one in members)

    found = _joined([(mask[node], [node]) for node in nodes])
    longest = max((length(members) for exchange, members in found if exchange), default=0)
    found = _joined([(exchange and length(members) > SMALL_EXCHANGE * longest, members) for exchange, members in found])
    inner = range(1, len(found) - 1)
    found = _joined(
        [(exchange or (number in inner and length(members) <= SMALL_NS), members) for number, (exchange, members) in enumerate(found)]
    )
    return [_Block(exchange=exchange, nodes=members, length=length(members)) for exchange, members in found]


def _joined(parts: Sequence[tuple[bool, list[int]]]) -> list[tuple[bool, list[int]]]:
    """Neighbours of one kind as one."""
    found: list[tuple[bool, list[int]]] = []
    for exchange, members in parts:
        if found and found[-1][0] == exchange:
            found[-1][1].extend(members)
        else:
            found.append((exchange, list(members)))
    return found


def _turns(chains: Sequence[Sequence[_Block]]) -> tuple[list[tuple[int, int]], int]:
    """In which order the blocks of two passes begin, (pass, number of the block), and how long both take; a kind of work has one at a time.

    What follows the last exchange of a pass (the head of the model, say) runs once the other pass has made all of its exchanges, as the
    combined schedule does it.
    """
    exchanges = [[number for number, block in enumerate(chain) if block.exchange] for chain in chains]
    last = [max(numbers, default=-1) for numbers in exchanges]
    ready, free, at = [0, 0], {True: 0, False: 0}, [0, 0]
    order = []
    while any(at[one] < len(chains[one]) for one in (0, 1)):
        left = [one for one in (0, 1) if at[one] < len(chains[one])]
        inner = [one for one in left if at[one] <= last[one]]
        begins = [(max(ready[one], free[chains[one][at[one]].exchange]), ready[one], one) for one in inner or left]
        start, _, one = min(begins)
        block = chains[one][at[one]]
        ready[one] = free[block.exchange] = start + block.length
        order.append((one, at[one]))
        at[one] += 1
    return order, max(ready)


class _Pair(Struct, frozen=True, kw_only=True):
    """A backward and a forward pass in blocks, and the order in which these begin: (0 or 1, number of the block)."""

    chains: Sequence[Sequence[_Block]]
    order: Sequence[tuple[int, int]]
    length: int  # what both take together so

    @classmethod
    def of(cls, chains: Sequence[Sequence[_Block]]) -> _Pair:
        order, length = _turns(chains)
        return cls(chains=chains, order=order, length=length)

    @property
    def sequence(self) -> list[int]:
        """Its operations in the new order."""
        return [node for one, number in self.order for node in self.chains[one][number].nodes]

    @property
    def pauses(self) -> tuple[int, list[int]]:
        """Its first operation, and those that the host launches between the two passes: after the last exchange of the one."""
        back, ahead = self.chains
        last = max((number for number, block in enumerate(back) if block.exchange), default=-1)
        return back[0].nodes[0], [node for block in back[last + 1 :] for node in block.nodes] + ahead[0].nodes[:1]

    def links(self, lane: Sequence[int], entering: Sequence[int], leaving: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Who waits for whom now: block for block of its pass, and of its kind of work. On their streams its first operations waited for
        `entering`, and `leaving` for its last.
        """
        last: dict[bool, list[int]] = {}
        ends = [[_ends(block.nodes, lane) for block in chain] for chain in self.chains]
        for one, number in self.order:
            heads, tails = ends[one][number]
            before = ends[one][number - 1][1] if number else entering
            exchange = self.chains[one][number].exchange
            yield from ((source, head) for source in (*before, *last.get(exchange, ())) for head in heads)
            last[exchange] = tails
        yield from ((tail, target) for chain in ends for tail in chain[-1][1] for target in leaving)


def _with_turns(graph: Graph, pairs: Sequence[_Pair]) -> pl.DataFrame:
    """The edges once passes take turns, as EDGES and the pair (-1: none) at either end as they were, `src_pair` and `dst_pair`.

    None leads from pass to pass of a pair any more, and the host's go by place in the new order.
    """
    homes = [
        (node, number, one)
        for number, pair in enumerate(pairs)
        for one, chain in enumerate(pair.chains)
        for block in chain
        for node in block.nodes
    ]
    home = pl.DataFrame(homes, schema={"node": pl.UInt32, "pair": pl.Int32, "one": pl.Int32}, orient="row")
    pair, one = (
        pl.repeat(-1, graph.nodes.height, dtype=pl.Int32, eager=True).scatter(home["node"], home[name]) for name in ("pair", "one")
    )
    number = pl.int_range(graph.nodes.height, dtype=pl.UInt32, eager=True)
    ordered = pl.DataFrame({"node": pl.Series([node for each in pairs for node in each.sequence], dtype=pl.UInt32)})
    ordered = ordered.with_columns(pair.gather(ordered["node"]).alias("pair"))
    position = number.clone().scatter(home.sort("pair", "node")["node"], ordered["node"])
    edges = graph.edges.select(*EDGES).sort("src", "dst", maintain_order=True)
    edges = edges.with_columns(
        of.gather(edges[end]).alias(f"{end}_{name}") for end in ("src", "dst") for name, of in (("pair", pair), ("one", one))
    )
    launches = edges.filter((pl.col("kind") == "issue") & (pl.col("dst_pair") >= 0))
    turn = pl.int_range(pl.len()).over("pair").alias("turn")  # the first launch of a pair is for what comes first in it now
    before = launches.unique("dst", keep="first", maintain_order=True).select("dst", pl.col("dst_pair").alias("pair")).with_columns(turn)
    after = ordered.filter(pl.col("node").is_in(launches["dst"].implode())).with_columns(turn)
    relaunched = before.join(after, on=["pair", "turn"])
    launched = number.scatter(relaunched["dst"], relaunched["node"])
    issue, calls = pl.col("kind") == "issue", pl.col("kind").is_in(["awaited", "queue"])
    # one pass waited for the other only because it ran after it
    apart = (pl.col("src_pair") == pl.col("dst_pair")) & (pl.col("src_pair") >= 0) & (pl.col("src_one") != pl.col("dst_one"))
    moved = edges.with_columns(
        pl.when(calls).then(position.gather(edges["src"])).otherwise("src").alias("src"),
        pl.when(issue).then(launched.gather(edges["dst"])).otherwise("dst").alias("dst"),
    )
    return moved.filter(issue | calls | ~apart).drop("src_one", "dst_one")


def _ends(nodes: Sequence[int], lane: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first and the last operation of each stream of a block."""
    firsts, lasts = dict[int, int](), dict[int, int]()
    for node in nodes:
        firsts.setdefault(lane[node], node)
        lasts[lane[node]] = node
    return list(firsts.values()), list(lasts.values())
