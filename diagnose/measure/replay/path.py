"""The replay: when every node begins and ends, by the longest path to it.

Most nodes wait for one thing alone: host work and calls follow each other. Such chains are summed up at once, column by column; only where
several things are waited for does the later one have to be found, node after node.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.measure.replay.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Times:
    """Start and end of every node in ns (Int64), by its number."""

    start: pl.Series
    end: pl.Series


def replay(graph: Graph) -> Times:
    """When every node begins and ends: once all that it waits for is there and its own delay has passed.

    A node without edges begins when it was seen to.
    """
    nodes, edges = graph.nodes, graph.edges
    number = pl.int_range(nodes.height, dtype=pl.UInt32, eager=True)
    spent = nodes["duration"].gather(edges["src"])
    after_end = edges["after"] == "end"
    known = edges.select(
        "src",
        "dst",
        (pl.col("lag") + pl.select(pl.when(after_end).then(spent).otherwise(0)).to_series() + nodes["delay"].gather(edges["dst"])).alias(
            "wait"
        ),
    )
    single = known.filter(known["dst"].is_unique())
    heads, waits = _chains(number, single)
    several = known.filter(~known["dst"].is_unique())
    joins = several.select(
        heads.gather(several["src"]).alias("head"), "dst", (several["wait"] + waits.gather(several["src"])).alias("wait")
    )
    begun = pl.Series("start", _joined(nodes["start"].to_list(), joins), dtype=pl.Int64)
    start = begun.gather(heads) + waits
    return Times(start=start.alias("start"), end=(start + nodes["duration"]).alias("end"))


def _chains(number: pl.Series, single: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """For every node where the chain begins that leads to it through nodes with one edge each, and how long after it the node begins."""
    follows = pl.DataFrame({"dst": number}).join(single, on="dst", how="left", maintain_order="left")
    heads = pl.select(pl.coalesce(follows["src"], number)).to_series()
    waits = follows["wait"].fill_null(0)
    while True:
        further = heads.gather(heads)
        if further.equals(heads):
            return heads, waits
        heads, waits = further, waits + waits.gather(heads)


def _joined(begun: list[int], joins: pl.DataFrame) -> list[int]:
    """`begun` with the start of each node that several edges lead to (`joins`: head, dst, wait, by dst): the latest of them."""
    place = pl.int_range(pl.len()).over("dst")
    ordered = joins.with_columns(place.alias("place"))
    first, second = ordered.filter(pl.col("place") == 0), ordered.filter(pl.col("place") == 1)
    counts = ordered.group_by("dst", maintain_order=True).len()["len"]
    others = ordered.filter(pl.col("place") > 1)
    heads, waits = others["head"].to_list(), others["wait"].to_list()
    low = 0
    for node, head, wait, other, beside, count in zip(
        first["dst"].to_list(),
        first["head"].to_list(),
        first["wait"].to_list(),
        second["head"].to_list(),
        second["wait"].to_list(),
        counts.to_list(),
        strict=True,
    ):
        latest = begun[head] + wait
        moment = begun[other] + beside
        latest = max(latest, moment)
        if count > 2:
            for edge in range(low, low + count - 2):
                moment = begun[heads[edge]] + waits[edge]
                latest = max(latest, moment)
            low += count - 2
        begun[node] = latest
    return begun


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
    measured, reached = (_computed(graph, ends) for ends in (graph.nodes["start"] + graph.nodes["duration"], times.end))
    before = reached.shift(1), measured.shift(1)
    return steps.select("index").with_columns(
        _not_before(opened, *before, steps["start"]).alias("start"), _not_before(close, reached, measured, steps["end"]).alias("end")
    )


def _computed(graph: Graph, ends: pl.Series) -> pl.Series:
    """When all that the kept steps up to each one compute is done."""
    computes = (graph.nodes["role"] == "compute") & (graph.nodes["kind"] == "op")
    done = graph.nodes.select("step", ends.alias("end")).filter(computes & pl.col("step").is_not_null())
    latest = done.group_by(pl.col("step").cast(pl.Int64).alias("index")).agg(pl.col("end").max())
    return (
        graph.steps.select("index")
        .join(latest, on="index", how="left", maintain_order="left")["end"]
        .fill_null(strategy="forward")
        .cum_max()
    )


def _not_before(moment: pl.Series, reached: pl.Series, measured: pl.Series, seen: pl.Series) -> pl.Series:
    """`moment`, or later: when compute is done (`reached`), less by how much that was later than the boundary (`seen`) when measured."""
    over = (measured - seen).clip(0)
    return pl.select(pl.max_horizontal(moment, reached - over)).to_series()
