"""The replay: when every node begins and ends, by the longest path to it."""

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
    begins = nodes["start"].to_list()
    delays, durations = nodes["delay"].to_list(), nodes["duration"].to_list()
    ends = [0] * nodes.height
    bounds = edges["dst"].search_sorted(pl.int_range(nodes.height + 1, dtype=pl.UInt32, eager=True)).to_list()
    sources, lags = edges["src"].to_list(), edges["lag"].to_list()
    from_end = (edges["after"] == "end").to_list()
    low = bounds[0]
    for node in range(nodes.height):
        high = bounds[node + 1]
        if high > low:
            ready = max((ends if from_end[edge] else begins)[sources[edge]] + lags[edge] for edge in range(low, high))
            begins[node] = ready + delays[node]
        ends[node] = begins[node] + durations[node]
        low = high
    return Times(start=pl.Series("start", begins, dtype=pl.Int64), end=pl.Series("end", ends, dtype=pl.Int64))


def step_times(graph: Graph, times: Times) -> pl.DataFrame:
    """The kept steps after a replay: index, start, end (ns)."""
    steps = graph.steps
    opened, begun, ended = (
        series.gather(steps[node]) for series, node in ((times.start, "opens"), (times.start, "closes"), (times.end, "closes"))
    )
    close = pl.select(pl.when(steps["at"] == "start").then(begun).otherwise(ended)).to_series()
    return steps.select("index").with_columns(opened.alias("start"), close.alias("end"))
