"""A wall taken away, by hand on a small graph, and against what simulated runs take without it."""

import polars as pl
import pytest

from diagnose.knowledge.load import load_knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import measure
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.path import replay, step_times
from diagnose.reason.forecast.walls import without
from fixtures import scenario
from fixtures.truth import counterfactuals, mean_step_time
from tests.builders import simulated
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph, step_length
from tests.builders.records import replace
from tests.builders.suites import SCENARIOS, deep_unless, kind_of

KNOWLEDGE = load_knowledge()
WALLS = KNOWLEDGE.rulebook.walls.walls

# Where the replay is further off than 3 % of the step, as a share of it, with the reason.
LIMITS: dict[tuple[str, str], float] = {
    # the program's iterations are a twentieth longer than the true ones: what the host does between them is counted; both end alike
    ("messy-foreign-inference", "host_overhead"): 0.06,
}

# call 0..5, gemm 7..107, exchange 109..309 on another stream, image 310..360 (copied), again 361..461 (a forward once more), then the
# host returns (465..475), works (..495) and launches (..500) the last: 502..602
STEP = small_graph(
    [
        ("call", {"kind": "call", "duration": 5, "cause": "launch"}),
        ("gemm", {"duration": 100, "role": "compute"}),
        ("exchange", {"duration": 200, "role": "transport", "lane": 11}),
        ("image", {"duration": 50, "role": "copy", "copy": "h2d"}),
        ("allocate", {"kind": "call", "duration": 60, "cause": "allocator", "start": 5}),
        ("again", {"duration": 100, "role": "compute", "phase": "recompute"}),
        ("return", {"kind": "call", "duration": 10, "cause": "host_sync"}),
        ("work", {"kind": "host", "duration": 20, "cause": "python"}),
        ("launch", {"kind": "call", "duration": 5, "cause": "launch"}),
        ("last", {"duration": 100, "role": "compute"}),
    ],
    [
        ("call", "gemm", "issue", 2),
        ("gemm", "exchange", "event", 2),
        ("exchange", "image", "event", 1),
        ("gemm", "image", "stream", 1),
        ("call", "allocate", "thread", 0),
        ("image", "allocate", "awaited", 0),
        ("image", "again", "stream", 1),
        ("allocate", "return", "thread", 0),
        ("again", "return", "awaited", 4),
        ("return", "work", "thread", 0),
        ("work", "launch", "thread", 0),
        ("again", "last", "stream", 1),
        ("launch", "last", "issue", 2),
    ],
)


@for_each(
    "wall, expected",
    (None, 602),
    ("communication", 402),  # the image follows the gemm instead
    ("host_overhead", 562),  # two launches, the return and the work; latencies and what is waited for stay
    ("memory", 451),  # the copy and the repetition take no time, and no latency passes around what is not there
)
def test_a_small_step_without_a_wall(wall: str | None, expected: int) -> None:
    assert step_length(STEP if wall is None else without(STEP, WALLS[wall])) == expected


def test_without_transport_compute_loses_nothing_beside_it() -> None:
    slowed = replace(STEP, nodes=STEP.nodes.with_columns(pl.when(pl.col("role") == "compute").then(30).alias("lost")))
    assert step_length(without(slowed, WALLS["communication"])) == 402 - 3 * 30
    assert step_length(without(slowed, WALLS["memory"])) == 451


def saved(graph: Graph, wall: str) -> float:
    """By how much shorter the steps are without a wall, per step (ns)."""
    return _mean(graph) - _mean(without(graph, WALLS[wall]))


def _mean(graph: Graph) -> float:
    steps = step_times(graph, replay(graph))
    return float(((steps["end"] - steps["start"]).sum()) / steps.height)


# reports/forecast_accuracy.json holds the walls of all scenarios, and a test its floors
SAMPLE = [name for name in (*SCENARIOS, *(name for name, _ in LIMITS)) if kind_of(name) != "ranks"]


@pytest.mark.parametrize("name", deep_unless(("compute-border-memory",), SAMPLE))
def test_a_wall_by_replay_is_what_its_absence_saves(name: str) -> None:
    """Within 3 % of the step (design contract of forecasts)."""
    one = scenario.load(name)
    truth = counterfactuals(one.programs(), one.offsets, one.skipped)
    (path, *_) = simulated.traces(one, "nsys")
    (device, *_) = measure(load(path), KNOWLEDGE, replay=True).devices
    assert device.graph is not None
    step = next(mean_step_time(recording, one.skipped) for recording in simulated.recordings(one) if recording.rank == device.rank)
    off = {wall: (saved(device.graph, wall) - ns) / step for wall, ns in truth[device.rank].items()}
    assert {wall: error for wall, error in off.items() if abs(error) > LIMITS.get((name, wall), 0.03)} == {}
