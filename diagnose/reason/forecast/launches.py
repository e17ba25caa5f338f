"""What the host does for each launch, and what of it goes elsewhere once launches change their order."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence

import polars as pl

from diagnose.measure.replay.graph import Graph
from diagnose.measure.waits.hold_ups import LONG_NS


def launched_for(graph: Graph) -> pl.DataFrame:
    """Per host node, by thread: node, lane, `call` (the number of the launching call that it is, or works for) and `own`: it launches.

    Work between two launches is for the second. Null: nothing is launched after it.
    """
    return graph.once("launched for", lambda: _launched_for(graph))


def _launched_for(graph: Graph) -> pl.DataFrame:
    issues = graph.edges.filter(pl.col("kind") == "issue")["src"].unique()
    host = graph.nodes.select("kind", "lane").with_row_index("node").filter(pl.col("kind") != "op").drop("kind")
    own = host["node"].is_in(issues.implode())
    return (
        host.with_columns(own.alias("own"))
        .sort("lane", "node", maintain_order=True)
        .with_columns(pl.when("own").then("node").alias("call"))
        .with_columns(pl.col("call").backward_fill().over("lane"))
    )


def with_pauses_first(graph: Graph, between: Iterable[tuple[int, Sequence[int]]]) -> Graph:
    """The graph where long work of the host (LONG_NS) before the launches of some operations comes before that of another one.

    `between`: an operation, and those whose launches the host pauses before; by number.
    """
    issue = graph.edges.filter(pl.col("kind") == "issue").unique("dst", keep="first")
    launch: dict[int, int] = dict(issue.select("dst", "src").iter_rows())
    work, durations = launched_for(graph).drop_nulls("call"), graph.nodes["duration"].to_list()
    begins: dict[int, int] = dict(work.group_by("call").agg(pl.col("node").min()).iter_rows())  # where the work for a call begins
    paused: dict[int, list[int]] = defaultdict(list)
    long = graph.nodes["duration"].gather(work["node"]) >= LONG_NS
    for call, node in work.filter(~pl.col("own") & long).select("call", "node").iter_rows():
        paused[call].append(node)
    for first, later in between:
        begin = begins.get(launch.get(first, -1))
        if begin is None:
            continue
        for node in (node for call in {launch[op] for op in later if op in launch} for node in paused.get(call, ())):
            durations[begin] += durations[node]
            durations[node] = 0
    return dataclasses.replace(graph, nodes=graph.nodes.with_columns(pl.Series("duration", durations, dtype=pl.Int64)))
