"""The unmodified replay of every real trace gives back its steps."""

from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.knowledge.load import load_knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import measure
from diagnose.measure.replay.path import replay, step_times

ACCURATE = 0.005  # design contract of forecasts


@pytest.mark.deep
def test_every_real_trace_is_given_back(real_traces: Path) -> None:
    knowledge = load_knowledge()
    off, seen = {}, 0
    for path in sorted([*real_traces.glob("kineto/*.json*"), *real_traces.glob("nsys/*.sqlite")]):
        try:
            trace = load(path)
        except InputError:  # holds no GPU work
            continue
        for device in measure(trace, knowledge, replay=True).devices:
            graph = device.graph
            assert graph is not None
            steps = step_times(graph, replay(graph))
            measured = graph.steps["end"] - graph.steps["start"]
            worst = ((steps["end"] - steps["start"] - measured) / measured).abs().max()
            seen += 1
            if graph.refused is None and not (isinstance(worst, float) and worst <= ACCURATE):
                off[path.name, device.device] = worst
    assert seen > 50
    assert off == {}
