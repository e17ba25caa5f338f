"""Questions about several ranks, on graphs of a few nodes worked out by hand; and two simulated jobs held against what they really do."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from diagnose.errors import UsageError
from diagnose.knowledge.load import load_knowledge
from diagnose.measure.ranks.meetings import ONE_RANK, Met, meet_in
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import replayed_together
from diagnose.pipeline import whatif
from diagnose.reason.forecast.outcome import Replays
from diagnose.reason.forecast.plan import Search
from diagnose.reason.forecast.questions import Free, rank_questions
from diagnose.reason.forecast.ranks import (
    Variant,
    balanced,
    evened,
    faster_link,
    in_step,
    likes_of_late,
    mean_steps,
    middle_in_step,
)
from fixtures.rank_forecast import rank_forecasts
from tests.builders.graphs import small_graph
from tests.builders.records import replace
from tests.builders.simulated import traces

EXPERTS, DENSE = ({"role": "compute", "bucket": bucket} for bucket in ("expert_gemm", "dense_gemm"))
EXCHANGE = {"role": "transport", "bucket": "dispatch", "comm": "expert"}


def rank(number: int, *items: tuple[str, int, dict[str, Any]]) -> Graph:
    """A rank whose operations follow one another: names, ns, and what they are."""
    begins, nodes = 0, []
    for name, ns, told in items:
        nodes.append((name, {"start": begins, "duration": ns, **told}))
        begins += ns
    edges = [(before[0], after[0], "stream", 0) for before, after in pairwise(items)]
    graph = small_graph(nodes, edges)
    return replace(graph, rank=number, steps=graph.steps.with_columns(end=pl.lit(begins, dtype=pl.Int64)))


def met(*graphs: Graph, exchanges: tuple[int, ...], hosts: int = 1, whole: bool | None = True) -> Met:
    """The ranks meet in these operations of each."""
    rows = [(number, place, op) for number, op in enumerate(exchanges) for place in range(len(graphs))]
    told = pl.DataFrame(rows, schema={"instance": pl.Int64, "place": pl.Int32, "op": pl.UInt32}, orient="row")
    instances = pl.DataFrame({"instance": range(len(exchanges))}, schema={"instance": pl.Int64}).with_columns(
        group=0, kind=pl.lit("expert"), shape=pl.lit("all_to_all"), whole=pl.lit(whole, dtype=pl.Boolean), hosts=hosts
    )
    return meet_in(graphs, told, instances, (0,) * len(graphs))


# two ranks work for 100 and 160 ns and exchange for 20; then both work for 50
LATE = (
    rank(0, ("work", 100, DENSE), ("exchange", 80, EXCHANGE), ("after", 50, DENSE)),
    rank(1, ("work", 160, DENSE), ("exchange", 20, EXCHANGE), ("after", 50, DENSE)),
)


def test_in_step_the_waiting_goes_and_the_transfer_stays() -> None:
    found = met(*LATE, exchanges=(1,))
    assert mean_steps(found) == (230, 230)
    assert mean_steps(found, in_step(found)) == (170, 230)
    assert "captured" not in in_step(found).why
    partly = in_step(met(*LATE, exchanges=(1,), whole=False))
    assert "members were not captured" in partly.why
    assert partly.basis == "inferred"


def test_what_lies_between_two_nodes_lies_between_them_when_ranks_are_replayed_together_too() -> None:
    """5 ns before the exchange, which the last reaches 165 ns in, and 5 ns behind it."""
    found = met(*(replace(graph, edges=graph.edges.with_columns(lag=pl.lit(5, pl.Int64))) for graph in LATE), exchanges=(1,))
    times = replayed_together(found.graphs, found.meetings).times
    assert [one.start.to_list() for one in times] == [[0, 105, 190], [0, 165, 190]]
    assert [one.end.to_list() for one in times] == [[100, 185, 240], [160, 185, 240]]


def test_in_step_the_rank_in_the_middle_is_shown() -> None:
    """The late one wins nothing: it waits for nobody."""
    assert middle_in_step(met(*LATE, exchanges=(1,))).rank == 0
    third = rank(2, ("work", 130, DENSE), ("exchange", 50, EXCHANGE), ("after", 50, DENSE))
    assert middle_in_step(met(*LATE, third, exchanges=(1,))).rank == 2


def test_a_late_rank_takes_what_its_likes_take() -> None:
    found = met(*LATE, exchanges=(1,))
    asked = evened(found, 1, [0])
    assert isinstance(asked, Variant)
    assert asked.graphs[1].nodes["duration"].to_list() == [round(160 * 150 / 210), 20, round(50 * 150 / 210)]  # 150 ns of work of 210
    assert mean_steps(found, asked) == (114 + 20 + 50, 114 + 20 + 36)
    fast = evened(found, 0, [1])
    assert isinstance(fast, Variant)
    assert fast.graphs[0].nodes.equals(found.graphs[0].nodes)  # what is shorter stays
    assert evened(found, 1, [7]) == "Rank 1 has no peer rank among those that can be replayed."


def test_a_rank_that_is_late_by_its_own_time_alone_is_not_evened() -> None:
    """In a pipeline no transfer is matched, and nothing tells what of the other stages' work follows on its own."""
    groups = (SimpleNamespace(ranks=(0, 1)), SimpleNamespace(ranks=(2, 3)))
    told = {"pattern": "always", "rank": 1, "alike": ()}
    by = {kinds: SimpleNamespace(late=(SimpleNamespace(kinds=kinds, **told),), groups=groups) for kinds in (("pipeline",), ("data",))}
    assert likes_of_late(cast("Any", by["pipeline",])) == {}
    assert likes_of_late(cast("Any", by["data",])) == {1: (0,)}
    pair = SimpleNamespace(kinds=("data",), pattern="always", rank=1, alike=(3,))
    assert likes_of_late(cast("Any", SimpleNamespace(late=(pair,), groups=groups))) == {1: (0,), 3: (2,)}


def test_host_work_before_a_collective_is_work_too() -> None:
    """Only operations of transport hold waiting; what the host does before it launches one is its own."""
    slow, usual = (
        rank(number, ("python", ns, {"kind": "host", "cause": "python", **EXCHANGE}), ("work", 10, DENSE))
        for number, ns in enumerate((400, 100))
    )
    asked = evened(met(slow, usual, exchanges=()), 0, [1])
    assert isinstance(asked, Variant)
    assert asked.graphs[0].nodes["duration"].to_list() == [100, 10]


def test_a_faster_link_shortens_transfers_and_not_the_waiting() -> None:
    found = met(*LATE, exchanges=(1,), hosts=2)
    asked = faster_link(found, 2)
    assert isinstance(asked, Variant)
    assert mean_steps(found, asked) == (100 + 60 + 10 + 50, 160 + 10 + 50)
    assert faster_link(met(*LATE, exchanges=(1,)), 2) == "No matched collective is known to run between hosts."


# tokens go out for 40 ns, rank 1 has three times the work for its experts, tokens come back for 40
BUSY = (
    rank(0, ("out", 40, EXCHANGE), ("experts", 50, EXPERTS), ("back", 140, EXCHANGE), ("dense", 30, DENSE)),
    rank(1, ("out", 40, EXCHANGE), ("experts", 150, EXPERTS), ("back", 40, EXCHANGE), ("dense", 30, DENSE)),
)


def test_balanced_experts_have_the_mean_of_their_group() -> None:
    found = met(*BUSY, exchanges=(0, 2))
    asked = balanced(found, load_knowledge().buckets)
    assert isinstance(asked, Variant)
    experts = [graph.nodes["duration"][1] for graph in asked.graphs]
    assert experts == [100, 100]
    moves = round(40 * 100 / 150)  # the busiest has 1.5 times the mean of the tokens
    assert mean_steps(found, asked) == pytest.approx((2 * moves + 130,) * 2, abs=2)
    without = balanced(met(*LATE, exchanges=(1,)), load_knowledge().buckets)
    assert without == "No work of experts shows between exchanges of tokens that all captured members of a group took part in."


def test_a_slow_device_is_no_imbalance() -> None:
    """Rank 1 takes 1.5 times as long for everything; its experts have the same tokens."""
    found = met(
        rank(0, ("out", 70, EXCHANGE), ("experts", 100, EXPERTS), ("back", 90, EXCHANGE), ("dense", 60, DENSE)),
        rank(1, ("out", 70, EXCHANGE), ("experts", 150, EXPERTS), ("back", 40, EXCHANGE), ("dense", 90, DENSE)),
        rank(2, ("out", 70, EXCHANGE), ("experts", 100, EXPERTS), ("back", 90, EXCHANGE), ("dense", 60, DENSE)),
        exchanges=(0, 2),
    )
    asked = balanced(found, load_knowledge().buckets)
    assert isinstance(asked, Variant)
    assert [graph.nodes["duration"][1] for graph in asked.graphs] == [100, 150, 100]
    assert mean_steps(found, asked) == mean_steps(found)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["ranks-two-slow-gpu", "ranks-two-loader-late", "ranks-expert-rotating-two-hosts"])
def test_what_is_forecast_happens(name: str, tmp_path: Path) -> None:
    for row in rank_forecasts(name):
        assert row.near, row


def test_the_command_s_questions_about_ranks() -> None:
    """What needs several ranks is told apart from what each answers by itself, and says why where it can't be told."""
    buckets = load_knowledge().buckets
    free = Free(no_wait=True, remove=("late_rank", "host_sync", "expert_imbalance"), link="2x")
    alone, left = rank_questions(free, ONE_RANK, None, buckets)
    assert [one.id for one in alone] == ["--no-wait", "--remove late_rank", "--remove expert_imbalance"]
    assert {one.refused for one in alone} == {ONE_RANK}
    assert left == Free(remove=("host_sync",), link="2x")
    found = met(*LATE, exchanges=(1,), hosts=2)
    several, left = rank_questions(free, found, None, buckets)
    assert [one.id for one in several if not one.refused] == ["--no-wait", "--link 2x"]
    assert [one.ingredients[0].basis for one in several if not one.refused] == ["measured", "assumed"]
    assert left == Free(remove=("host_sync",))
    with pytest.raises(UsageError):
        rank_questions(Free(link="fast"), found, None, buckets)


def test_questions_one_after_the_other_on_all_ranks() -> None:
    found = met(*LATE, exchanges=(1,), hosts=2)
    several, _ = rank_questions(Free(no_wait=True, link="2x"), found, None, load_knowledge().buckets)
    replays = Replays(found.graphs[0], load_knowledge().forecast, found)
    assert replays.after([]).span.likely == 230  # nothing is asked
    assert replays.after([several[1]]).span.likely == 220  # the link: as above
    assert replays.after(several).span.likely == 160  # and nobody waits


@pytest.mark.deep
def test_whatif_of_two_ranks() -> None:
    paths = traces("ranks-two-slow-gpu", "nsys")
    evened_ = whatif(paths, remove=["late_rank"], config=paths[0].parent / "job.yaml")
    true = next(row.true for row in rank_forecasts("ranks-two-slow-gpu") if row.asked == "late rank")
    assert evened_.step_ns is not None
    assert evened_.step_ns.likely / 1e6 == pytest.approx(true, rel=0.01)
    in_step_ = whatif(paths, no_wait=True, config=paths[0].parent / "job.yaml")
    assert in_step_.identity is not None
    assert in_step_.identity.rank == in_step_.rank == 1  # not the verdict's: that is the slow one, which waits for nobody
    assert in_step_.step_ns is not None
    assert in_step_.step_ns.likely < 0.9 * in_step_.step_ns.now
    assert any("Then each steps by itself, in " in one.text for one in in_step_.ingredients)
    assert whatif(paths[:1], no_wait=True).step_ns is None


@pytest.mark.deep
def test_what_a_question_does_not_ask_for_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question by itself needs no plan, and a plan no joint replay."""
    paths = traces("demo", "nsys")
    calls = {"plan": 0, "ranks": 0}

    def counted(name: str, *_: Any, **__: Any) -> Any:
        calls[name] += 1
        return ((), None) if name == "plan" else ONE_RANK

    monkeypatch.setattr("diagnose.reason.forecast.report.foreseen", partial(counted, "plan"))
    monkeypatch.setattr("diagnose.measure.ranks.meetings.meeting_ranks", partial(counted, "ranks"))
    assert whatif(paths, remove=["communication"]).step_ns is not None
    assert calls == {"plan": 0, "ranks": 1}
    monkeypatch.setattr("diagnose.reason.forecast.answer.search", lambda *_: Search(chosen=(), replays=1))
    assert whatif(paths, plan=True).planned
    assert calls == {"plan": 0, "ranks": 1}
