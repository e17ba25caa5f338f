"""A wall taken away: the graph of the same steps without what that wall costs."""

from __future__ import annotations

import dataclasses

import polars as pl

from diagnose.knowledge.walls import WallSpec
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.links import LONGEST_NS
from diagnose.reason.forecast.select import selected


def without(graph: Graph, wall: WallSpec) -> Graph:
    """The graph where nothing that `walls.yaml` counts to a wall takes time.

    What is freed keeps its place and all that it waits for. What is omitted would not be there: it waits for nothing on the device, and no
    latency passes around it; longer than a latency is a wait for something unknown, which stays. Without any transport compute loses
    nothing beside it.
    """
    omitted = _asked(graph, wall.omits)
    gone = omitted | _asked(graph, wall.frees)
    moved = (graph.nodes["role"] == "transport") & (graph.nodes["kind"] == "op")
    alone = pl.col("duration") - pl.col("lost").fill_null(0) if (gone | ~moved).all() else pl.col("duration")
    nodes = graph.nodes.with_columns(
        pl.when(gone).then(0).otherwise(alone).alias("duration"),
        pl.when(omitted & (pl.col("delay") <= LONGEST_NS)).then(0).otherwise("delay").alias("delay"),
    )
    at = omitted.gather(graph.edges["dst"])
    edges = graph.edges.with_columns(pl.when(at).then(pl.min_horizontal("lag", 0)).otherwise("lag").alias("lag")).filter(
        ~(at & pl.col("kind").is_in(["awaited", "queue"]))
    )
    return dataclasses.replace(graph, nodes=nodes, edges=edges)


def _asked(graph: Graph, text: str | None) -> pl.Series:
    return pl.repeat(value=False, n=graph.nodes.height, eager=True) if text is None else selected(graph, text)
