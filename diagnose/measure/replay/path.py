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
    nodes = graph.nodes
    opens = pl.col("dst").ne_missing(pl.col("dst").shift(1))
    spent = pl.when(pl.col("after") == "end").then(pl.lit(nodes["duration"]).gather("src")).otherwise(0)
    wait = pl.col("lag") + spent + pl.lit(nodes["delay"]).gather("dst")
    known = graph.edges.select("src", "dst", wait.alias("wait"), (opens & opens.shift(-1, fill_value=True)).alias("alone"))
    heads, waits = _chains(nodes["lane"], known.filter("alone"))
    several = known.filter(~pl.col("alone"))
    del known
    joins = several.select("dst", heads[several["src"]].alias("head"), pl.col("wait") + waits[several["src"]])
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
    in_lanes = pl.DataFrame({"node": order, "src": heads[order], "wait": waits[order]})
    goes_on = (pl.col("src") == pl.col("node").shift(1)).fill_null(value=False)
    summed = in_lanes.with_columns(goes_on.alias("goes_on"), pl.when(goes_on).then("wait").otherwise(0).cum_sum().alias("sum"))
    first = pl.when(~pl.col("goes_on"))
    runs = summed.filter(pl.col("goes_on").shift(-1).fill_null(value=False) | pl.col("goes_on")).select(
        "node", "goes_on", first.then("node").forward_fill().alias("head"), (pl.col("sum") - first.then("sum").forward_fill()).alias("wait")
    )
    runs = runs.filter("goes_on")
    heads, waits = heads.scatter(runs["node"], runs["head"]), waits.scatter(runs["node"], runs["wait"])
    while True:
        further = heads[heads]
        if further.equals(heads):
            return heads, waits
        heads, waits = further, waits + waits[heads]


def _joined(seen: pl.Series, heads: pl.Series, joins: pl.DataFrame) -> pl.Series:
    """When the head of each node's chain begins: as it was seen to, or, where several edges lead to it (`joins`: dst, head, wait, by dst),
    with the latest of them.
    """
    number = pl.int_range(len(seen), dtype=pl.UInt32, eager=True)
    unjoined = pl.repeat(True, len(seen), eager=True).scatter(joins["dst"], False)  # noqa: FBT003 - values
    first = number.filter((heads == number) & unjoined)
    begun: list[int] = seen[first].to_list()
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
    second = pl.when(pl.col("second").is_null()).then(pl.col("entry") - 1).otherwise(pl.lit(entry).gather("second"))
    waited = pairs.select(pl.lit(entry).gather("head").alias("head"), "wait", second.alias("second"), "beside")
    del pairs
    for part in waited.iter_slices(_AT_ONCE):
        for head, wait, second, beside in zip(*(column.to_list() for column in part.get_columns()), strict=True):
            moment, latest = begun[head] + wait, begun[second] + beside
            begun.append(moment if moment > latest else latest)  # noqa: FURB136 - twice as fast as max, a million times
    return pl.Series("start", begun, dtype=pl.Int64)[entry[heads]]


_AT_ONCE = 1 << 16  # rows that are taken out of their columns at a time


def step_times(graph: Graph, times: Times) -> pl.DataFrame:
    """The kept steps after a replay: index, start, end (ns).

    A step goes on until what it computes is done, as it did when it was measured: what opens the next one may stand on another stream, and
    nothing need hold it there.
    """
    start, end = pl.lit(times.start), pl.lit(times.end)
    closed = pl.when(pl.col("at") == "start").then(start.gather("closes")).otherwise(end.gather("closes"))
    computed = _computed(graph, graph.nodes["start"] + graph.nodes["duration"], times.end)
    return graph.steps.hstack(computed).select(
        "index",
        _not_before(start.gather("opens"), pl.col("reached").shift(1), pl.col("measured").shift(1), "start").alias("start"),
        _not_before(closed, pl.col("reached"), pl.col("measured"), "end").alias("end"),
    )


def _computed(graph: Graph, measured: pl.Series, reached: pl.Series) -> pl.DataFrame:
    """When all that the kept steps up to each one compute is done, by the ends of all nodes as they were and as they are.

    Columns measured and reached (ns), one row per kept step.
    """
    computes = (pl.col("role") == "compute") & (pl.col("kind") == "op") & pl.col("step").is_not_null()
    ends = graph.nodes.select("role", "kind", "step", measured.alias("measured"), reached.alias("reached"))
    latest = ends.filter(computes).group_by(pl.col("step").cast(pl.Int64).alias("index")).agg(pl.col("measured", "reached").max())
    known = graph.steps.select("index").join(latest, on="index", how="left", maintain_order="left")
    return known.select(pl.col("measured", "reached").forward_fill().cum_max())


def _not_before(moment: pl.Expr, reached: pl.Expr, measured: pl.Expr, seen: str) -> pl.Expr:
    """`moment`, or later: when compute is done (`reached`), less by how much that was later than the boundary (`seen`) when measured."""
    return pl.max_horizontal(moment, reached - (measured - pl.col(seen)).clip(0))
