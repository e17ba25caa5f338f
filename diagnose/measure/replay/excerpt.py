"""Of a long capture the few steps that a report replays: those that are most like all, and the graph cut down to them."""

from __future__ import annotations

import dataclasses

import polars as pl

from diagnose.measure.replay.graph import Graph
from diagnose.model.intervals import latest
from diagnose.model.statistics import mean_of


def excerpt(work: pl.DataFrame, windows: pl.DataFrame, operations: int, one_step: int) -> pl.DataFrame:
    """Of the kept steps as many in a row as hold `operations` with as much time before the first of them as it takes itself.

    All where that is enough for them; else one at least, if it holds `one_step`. Of several such rows the one whose mean step is nearest to
    that of all. Empty: even one holds too much. `work` in order of start.
    """
    starts, mean = work["start"], mean_of(windows["end"] - windows["start"])
    if starts.search_sorted(latest(windows["end"])) <= operations:
        return windows
    ends = starts.search_sorted(windows["end"]).to_list()
    begins = starts.search_sorted(windows.select(2 * pl.col("start") - pl.col("end")).to_series()).to_list()
    held = [[end - begin for end in ends[place:]] for place, begin in enumerate(begins)]
    number = max(sum(one <= operations for one in row) for row in held) or int(min(row[0] for row in held) <= one_step)
    fits = [
        place for place, row in enumerate(held) if len(row) >= number > 0 and row[number - 1] <= max(operations, one_step * (number == 1))
    ]

    def apart(place: int) -> float:
        rows = windows[place : place + number]
        return abs(mean_of(rows["end"] - rows["start"]) - mean)

    return windows[min(fits, key=apart) :][:number] if fits else windows.clear()


def part(graph: Graph, operations: int) -> Graph:
    """The graph of as many of its kept steps as `excerpt` takes for so many operations, of one at least; all of it where that is enough."""
    steps = graph.steps.sort("start")
    chosen = excerpt(graph.nodes.filter(pl.col("kind") == "op").select("start"), steps, operations, one_step=graph.nodes.height)
    if chosen.height == steps.height:
        return graph
    begun = int((graph.nodes["start"] < chosen["end"].max()).sum())  # nodes are in order of start
    reach = max(begun, latest(chosen["closes"]) + 1)
    of_others = ~pl.col("step").is_in(chosen["index"].implode())
    nodes = graph.nodes[:reach].with_columns(pl.when(of_others).then(None).otherwise("step").alias("step"))
    return cut(dataclasses.replace(graph, nodes=nodes, edges=graph.edges.filter(pl.col("dst") < reach), steps=chosen))


def cut(graph: Graph) -> Graph:
    """The graph from as much time before its first kept step as that takes: what leads up to it is replayed, what is before is not.

    What waited only for something before stands where it was measured.
    """
    first = graph.steps.sort("start").row(0, named=True)
    before = int((graph.nodes["start"] < 2 * first["start"] - first["end"]).sum())  # nodes are in order of start
    if not before:
        return graph
    edges = graph.edges.filter((pl.col("src") >= before) & (pl.col("dst") >= before))
    return dataclasses.replace(
        graph,
        nodes=graph.nodes[before:],
        edges=edges.with_columns(pl.col("src", "dst") - before),
        steps=graph.steps.with_columns(pl.col("opens", "closes") - before),
    )
