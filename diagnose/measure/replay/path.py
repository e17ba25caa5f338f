"""The replay: when every node begins and ends, by the longest path to it.

Most nodes wait for one thing alone: host work and calls follow each other. Such chains are summed up at once, column by column; only where
several things are waited for does the later one have to be found, node after node.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from diagnose.measure.replay.graph import Graph


class Times(Struct, frozen=True, kw_only=True):
    """Start and end of every node in ns (Int64), by its number."""

    start: pl.Series
    end: pl.Series


def replay(graph: Graph) -> Times:
    """When every node begins and ends: once all that it waits for is there and its delay has passed; without edges when it was seen to."""
    return graph.once("times", lambda: _times(graph))


def _times(graph: Graph) -> Times:
    nodes, edges = graph.nodes, graph.edges
    spent, delays = nodes["duration"].gather(edges["src"]), nodes["delay"].gather(edges["dst"])
    opens = edges["dst"].ne_missing(edges["dst"].shift(1))
    alone = opens & opens.shift(-1, fill_value=True)
    known = edges.select("src", "dst", (pl.col("lag") + pl.when(edges["after"] == "end").then(spent).otherwise(0) + delays).alias("wait"))
    del spent, delays
    heads, waits = _chains(nodes["lane"], known.filter(alone))
    several = known.filter(~alone)
    del known
    joins = several.select("dst", heads.gather(several["src"]).alias("head"), pl.col("wait") + waits.gather(several["src"]))
    start = _joined(nodes["start"], heads, joins) + waits
    return Times(start=start.alias("start"), end=(start + nodes["duration"]).alias("end"))


def _chains(lanes: pl.Series, single: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """For every node where the chain begins that leads to it through nodes with one edge each, and how long after it the node begins.

    What follows the node before it in its lane is summed up first; then chains are put together, twice as long each time.
    """
    number = pl.int_range(len(lanes), dtype=pl.UInt32, eager=True)
    heads = number.clone().scatter(single["dst"], single["src"])
    waits = pl.zeros(len(lanes), dtype=pl.Int64, eager=True).scatter(single["dst"], single["wait"])
    order = pl.DataFrame({"lane": lanes, "node": number}).group_by("lane").agg("node").explode("node")["node"]
    in_lanes = pl.DataFrame({"node": order, "src": heads.gather(order), "wait": waits.gather(order)})
    goes_on = (pl.col("src") == pl.col("node").shift(1)).fill_null(value=False)
    summed = in_lanes.with_columns(goes_on.alias("goes_on"), pl.when(goes_on).then("wait").otherwise(0).cum_sum().alias("sum"))
    first = pl.when(~pl.col("goes_on"))
    runs = summed.filter(pl.col("goes_on").shift(-1).fill_null(value=False) | pl.col("goes_on")).select(
        "node", "goes_on", first.then("node").forward_fill().alias("head"), (pl.col("sum") - first.then("sum").forward_fill()).alias("wait")
    )
    runs = runs.filter("goes_on")
    heads, waits = heads.scatter(runs["node"], runs["head"]), waits.scatter(runs["node"], runs["wait"])
    while True:
        further = heads.gather(heads)
        if further.equals(heads):
            return heads, waits
        heads, waits = further, waits + waits.gather(heads)


def _joined(seen: pl.Series, heads: pl.Series, joins: pl.DataFrame) -> pl.Series:
    """When the head of each node's chain begins: as it was seen to, or, where several edges lead to it (`joins`: dst, head, wait, by dst),
    with the latest of them.
    """
    number = pl.int_range(len(seen), dtype=pl.UInt32, eager=True)
    first = number.filter((heads == number) & ~number.is_in(joins["dst"].implode()))
    begun: list[int] = seen.gather(first).to_list()
    entry = pl.zeros(len(seen), dtype=pl.UInt32, eager=True).scatter(first, pl.int_range(len(first), dtype=pl.UInt32, eager=True))
    same, third = (pl.col("dst") == pl.col("dst").shift(back) for back in (1, 2))
    pairs = joins.select(  # two edges make an entry, each further one another with the entry before it
        "dst",
        "head",
        "wait",
        pl.when(~third.fill_null(value=False)).then(pl.col("head").shift(1)).alias("second"),
        pl.when(third).then(0).otherwise(pl.col("wait").shift(1)).alias("beside"),
        same.alias("pair"),
    )
    pairs = pairs.filter("pair").with_row_index("entry", offset=len(first))
    last = pairs.filter(pl.col("dst").ne_missing(pl.col("dst").shift(-1)))
    entry = entry.scatter(last["dst"], last["entry"])
    seconds = pl.select(pl.when(pairs["second"].is_null()).then(pairs["entry"] - 1).otherwise(entry.gather(pairs["second"]))).to_series()
    waited = pl.DataFrame({"head": entry.gather(pairs["head"]), "wait": pairs["wait"], "second": seconds, "beside": pairs["beside"]})
    del pairs, seconds
    for part in waited.iter_slices(_AT_ONCE):
        for head, wait, second, beside in zip(*(column.to_list() for column in part.get_columns()), strict=True):
            moment, latest = begun[head] + wait, begun[second] + beside
            begun.append(moment if moment > latest else latest)  # noqa: FURB136 - twice as fast as max, a million times
    return pl.Series("start", begun, dtype=pl.Int64).gather(entry.gather(heads))


_AT_ONCE = 1 << 16  # rows that are taken out of their columns at a time


def step_times(graph: Graph, times: Times) -> pl.DataFrame:
    """The kept steps after a replay: index, start, end (ns).

    A step goes on until what it computes is done, as it did when it was measured: what opens the next one may stand on another stream, and
    nothing need hold it there.
    """
    steps = graph.steps
    opened, begun, ended = (
        series.gather(steps[node]) for series, node in ((times.start, "opens"), (times.start, "closes"), (times.end, "closes"))
    )
    close = pl.select(pl.when(steps["at"] == "start").then(begun).otherwise(ended)).to_series()
    measured, reached = _computed(graph, graph.nodes["start"] + graph.nodes["duration"], times.end)
    before = reached.shift(1), measured.shift(1)
    return steps.select("index").with_columns(
        _not_before(opened, *before, steps["start"]).alias("start"), _not_before(close, reached, measured, steps["end"]).alias("end")
    )


def _computed(graph: Graph, measured: pl.Series, reached: pl.Series) -> tuple[pl.Series, pl.Series]:
    """When all that the kept steps up to each one compute is done, by the ends of all nodes as they were and as they are."""
    computes = (pl.col("role") == "compute") & (pl.col("kind") == "op") & pl.col("step").is_not_null()
    ends = graph.nodes.select("role", "kind", "step", measured.alias("measured"), reached.alias("reached"))
    latest = ends.filter(computes).group_by(pl.col("step").cast(pl.Int64).alias("index")).agg(pl.col("measured", "reached").max())
    known = graph.steps.select("index").join(latest, on="index", how="left", maintain_order="left")
    found = known.select(pl.col("measured", "reached").forward_fill().cum_max())
    return found["measured"], found["reached"]


def _not_before(moment: pl.Series, reached: pl.Series, measured: pl.Series, seen: pl.Series) -> pl.Series:
    """`moment`, or later: when compute is done (`reached`), less by how much that was later than the boundary (`seen`) when measured."""
    over = (measured - seen).clip(0)
    return pl.select(pl.max_horizontal(moment, reached - over)).to_series()
