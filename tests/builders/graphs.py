"""Small graphs of a step, written down node by node."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from diagnose.measure.replay.graph import EDGES, NODES, STEPS, Graph
from diagnose.measure.replay.path import replay, step_times

Edge = tuple[str, str, str, int] | tuple[str, str, str, int, str]  # source, target, kind, lag (ns), after (default: end)


def small_graph(nodes: Sequence[tuple[str, dict[str, Any]]], edges: Sequence[Edge]) -> Graph:
    """Nodes by a name of their own (which they also have in the trace) and what of their row is not null; one step over all of them.

    Times are in ns. `kind` is op, on lane 10, unless told; a call or host work is on lane 0.
    """
    place = {name: number for number, (name, _) in enumerate(nodes)}
    rows = []
    for number, (name, told) in enumerate(nodes):
        kind = told.get("kind", "op")
        usual = {"kind": kind, "lane": 10 if kind == "op" else 0, "start": 0, "delay": 0, "step": 0, "name_id": number, "replayed": False}
        rows.append({column: ({**usual, "op": number if kind == "op" else None} | told).get(column) for column in NODES})
        assert told.keys() <= NODES.keys(), name
    links = [
        {
            "src": place[one[0]],
            "dst": place[one[1]],
            "kind": one[2],
            "lag": one[3],
            "after": one[4] if len(one) > 4 else "end",
            "inferred": False,
        }
        for one in edges
    ]
    last = len(nodes) - 1
    return Graph(
        rank=0,
        device=0,
        nodes=pl.DataFrame(rows, schema=NODES),
        edges=pl.DataFrame(links, schema=EDGES).sort("dst", maintain_order=True),
        steps=pl.DataFrame([{"index": 0, "start": 0, "end": 0, "opens": 0, "closes": last, "at": "end"}], schema=STEPS),
        names=pl.DataFrame({"id": range(len(nodes)), "text": list(place)}, schema={"id": pl.Int32, "text": pl.String}),
    )


def times(graph: Graph) -> dict[str, tuple[int, int]]:
    """Start and end of every node by its name (of parts of one: the last)."""
    found = replay(graph)
    text = dict(graph.names.select("id", "text").iter_rows())
    names = [text[one] for one in graph.nodes["name_id"]]
    return dict(zip(names, zip(found.start, found.end, strict=True), strict=True))


def step_length(graph: Graph) -> int:
    """The one step's time after a replay."""
    found = step_times(graph, replay(graph))
    return int((found["end"] - found["start"]).item())


def op(name: str, duration: int, lane: int, phase: str, **told: Any) -> tuple[str, dict[str, Any]]:
    """A node of `small_graph`: transport on lane 20, compute on the others."""
    return name, {"duration": duration, "lane": lane, "phase": phase, "role": "transport" if lane == 20 else "compute", **told}
