"""The replay on random graphs, held against the longest path found node after node; and what it costs."""

import random
from typing import Any

from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.path import replay
from tests.builders.cases import for_each
from tests.builders.graphs import Edge, small_graph


def drawn(seed: int) -> Graph:
    """Nodes on a few lanes; most go on after the one before them there, some wait for others too, or for nothing."""
    chance = random.Random(seed)
    nodes: list[tuple[str, dict[str, Any]]] = []
    edges: list[Edge] = []
    latest: dict[int, int] = {}
    for number in range(chance.choice((1, 2, 40))):
        lane = chance.randrange(3)
        nodes.append((str(number), {"lane": lane, "start": number * 7, "duration": chance.randrange(20), "delay": chance.randrange(3)}))
        sources = [latest[lane]] if lane in latest and chance.random() < 0.9 else []
        sources += [chance.randrange(number) for _ in range(chance.choice((0, 0, 1, 3))) if number]
        edges += [
            (str(source), str(number), "stream", chance.randrange(-5, 9), chance.choice(("start", "end")))
            for source in dict.fromkeys(sources)
        ]
        latest[lane] = number
    return small_graph(nodes, edges)


def one_by_one(graph: Graph) -> list[int]:
    """When every node begins."""
    begun = graph.nodes["start"].to_list()
    durations, delays = graph.nodes["duration"].to_list(), graph.nodes["delay"].to_list()
    for node in range(len(begun)):
        waits = graph.edges.filter(graph.edges["dst"] == node).rows(named=True)
        ready = [begun[one["src"]] + (durations[one["src"]] if one["after"] == "end" else 0) + one["lag"] for one in waits]
        begun[node] = max(ready) + delays[node] if ready else begun[node]
    return begun


@for_each("seed", *range(40))
def test_replay_is_the_longest_path(seed: int) -> None:
    graph = drawn(seed)
    times = replay(graph)
    assert times.start.to_list() == one_by_one(graph)
    assert (times.end - times.start).to_list() == graph.nodes["duration"].to_list()
