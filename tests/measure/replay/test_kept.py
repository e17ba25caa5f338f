"""A graph is held packed where it is large, and comes back as it was."""

from itertools import pairwise

import pytest

from diagnose.measure.replay import graph as room
from diagnose.measure.replay.graph import EDGES, NODES, kept
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph


@for_each("limit", 2, 3)
def test_a_graph_comes_back_as_it_was_kept(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PACKED_FROM", limit)
    whole = small_graph([("a", {"bucket": "router", "cause": None, "duration": 3}), ("b", {"comm": "expert"})], [("a", "b", "stream", 1)])
    held = kept(whole)
    assert (held.height, bool(held.nodes), held.told.nodes.height) == (2, limit == 2, 0 if limit == 2 else 2)
    again = held.graph
    assert (again.nodes.schema, again.edges.schema) == (dict(NODES), dict(EDGES))
    assert again.nodes.equals(whole.nodes)
    assert again.edges.equals(whole.edges)
    assert again.steps.equals(whole.steps)


def test_numbers_are_packed_as_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain is the same distance again and again: it takes a fraction of a byte per edge, not the bytes of its numbers."""
    monkeypatch.setattr(room, "PACKED_FROM", 2)
    names = [str(number) for number in range(5_000)]
    chain = small_graph([(name, {}) for name in names], [(one, other, "stream", 1) for one, other in pairwise(names)])
    assert len(kept(chain).edges) < len(names)
