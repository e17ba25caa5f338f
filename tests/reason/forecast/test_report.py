"""What a report forecasts by itself: of one rank and of several, of captures without steps, of the steps that are most like all."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from diagnose import pipeline
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.forecast import Report, Whatif
from diagnose.measure.ranks.meetings import ONE_RANK
from diagnose.measure.replay.excerpt import cut, excerpt, part
from diagnose.measure.replay.graph import Graph
from diagnose.reason.forecast import report
from diagnose.reason.forecast.outcome import replayed
from diagnose.reason.forecast.plan import NOT_HERE, Search
from diagnose.reason.forecast.questions import Question
from diagnose.reason.plan import MOST_INSTEAD
from diagnose.render import Options, write
from tests.builders.cases import for_each
from tests.builders.graphs import small_graph
from tests.builders.kineto import call, document, kernel
from tests.builders.records import replace
from tests.builders.simulated import traces

MS = 1_000_000
PLENTY = Report(operations=8000, one_step=40000, work=40000, together=16, ranks=8)


def trace(folder: Path, rank: int, *, steps: int = 4, marked: bool = True) -> Path:
    """Steps of 1 ms that the host holds up: ten kernels of 20 µs, each launched 99 µs after the one before."""
    events: list[dict[str, Any]] = []
    for number in range(steps):
        begin = 1000 * (number + 1)
        if marked:
            span = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 10, "tid": 11, "ts": begin, "dur": 1000}
            events.append({**span, "args": {}})
        for place in range(10):
            identity, at = 100 * number + place + 1, begin + 99 * place + 1
            events += [call(at, 1, correlation=identity), kernel(at + 5, 20, correlation=identity)]
    path = folder / f"rank{rank}.json"
    path.write_bytes(document(events, distributedInfo={"rank": rank, "world_size": 16}))
    return path


def limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Whatever is forecast from now on is within these `limits`."""
    made = pipeline.prepare

    def prepared(**options: Any) -> Any:
        found = made(**options)
        return replace(found, knowledge=replace(found.knowledge, forecast=structs.replace(found.knowledge.forecast, **limits)))

    monkeypatch.setattr(pipeline, "prepare", prepared)


def diagnosed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, ranks: int = 1, most: Report = PLENTY, **told: Any) -> Diagnosis:
    limited(monkeypatch, report=most)
    return pipeline.diagnose(traces(told["run"], "nsys") if "run" in told else [trace(folder, rank, **told) for rank in range(ranks)])


@for_each(
    "told, scope",
    ({}, ""),
    ({"ranks": 2}, "replayed: rank 0 alone, its waiting for other ranks as it was"),  # no collective in which they meet
    (
        {"ranks": 3, "most": structs.replace(PLENTY, ranks=2)},
        "replayed: rank 1 alone, its waiting for other ranks as it was",
    ),  # measured again
    ({"marked": False}, "replayed: the whole capture, which was not cut into steps"),
    ({"most": structs.replace(PLENTY, operations=30)}, "replayed: steps 0 to 2, 3 of 4"),
    ({"most": structs.replace(PLENTY, operations=5)}, "replayed: step 0, 1 of 4"),
)
def test_a_report_says_what_was_replayed(told: dict[str, Any], scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(tmp_path, monkeypatch, **told)
    assert (found.forecast_scope, found.no_forecast) == (scope, "")
    assert found.forecast is not None
    step = found.facts["step_ns"].value
    assert found.forecast.now_ns == pytest.approx(step, rel=0.02)  # of the mean step, whichever steps were replayed
    assert found.forecast.low_ns <= found.forecast.likely_ns < found.forecast.now_ns
    alone = {fix.id: fix.forecast for finding in found.findings for fix in finding.fixes if fix.forecast is not None}
    assert alone[str(found.plan[0].fix)] == found.plan[0].forecast  # the same replay
    said = " ".join(write(found, "text", Options(detail=2)).split())
    assert f"Forecast ({scope}): " in said if scope else "Forecast: " in said
    assert f"{found.plan[0].fix} likely " in said


@pytest.mark.deep
def test_ranks_that_meet_are_replayed_together_where_that_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(tmp_path, monkeypatch, run="ranks-two-slow-gpu", most=structs.replace(PLENTY, work=10_000, together=1))
    assert found.forecast_scope == "replayed: 2 captured ranks together, the step of rank 0"
    assert found.forecast is not None
    assert found.forecast.likely_ns < found.forecast.now_ns


@pytest.mark.deep
def test_a_stage_alone_is_replayed_with_its_waiting_for_the_others_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(tmp_path, monkeypatch, run="ranks-pipeline-bubble")
    assert found.forecast_scope.startswith(
        "replayed: rank 6 alone, its waiting for other ranks as it was, for other stages in proportion to its own work"
    )


def test_what_is_not_forecast_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(tmp_path, monkeypatch, most=structs.replace(PLENTY, operations=5, one_step=5))
    assert found.plan
    assert found.forecast is None
    said = " ".join(write(found, "text").split())
    assert f"No forecast, only bounds: {found.no_forecast}" in said
    assert "`diagnose whatif` does" in said


@for_each("instead, forecast", (0, 1), (MOST_INSTEAD, 2))
def test_replays_are_few(instead: int, forecast: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's first change, and what could be had instead of it, are replayed in any case; what there is no room for says so."""
    monkeypatch.setattr(report, "MOST_INSTEAD", instead)
    found = diagnosed(tmp_path, monkeypatch, most=structs.replace(PLENTY, work=1))
    fixes = {fix.id: fix for finding in found.findings for fix in finding.fixes}.values()
    assert sum(fix.forecast is not None for fix in fixes) == forecast
    assert any(one.no_forecast == NOT_HERE for one in found.plan) == (not instead)


@for_each(
    "lengths, most, kept",
    ([100, 100, 100, 100], {"operations": 40}, [0, 1, 2, 3]),
    (
        [100, 340, 190, 210, 200],
        {"operations": 29},
        [2, 3],
    ),  # the mean is 208: 200 is nearer than the first two's 220; the last two hold 30
    ([100, 300, 190, 210], {"operations": 39}, [0, 1, 2]),  # before the first there is nothing
    ([100, 100, 100, 100], {"operations": 5, "one_step": 20}, [0]),
    ([100, 100, 100, 100], {"operations": 5, "one_step": 9}, []),
)
def test_the_steps_that_are_most_like_all(lengths: list[int], most: dict[str, int], kept: list[int]) -> None:
    """Ten operations in each step, at equal distances."""
    ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
    windows = pl.DataFrame({"index": range(len(lengths)), "start": [0, *ends[:-1]], "end": ends})
    starts = [end - length + length * place // 10 for end, length in zip(ends, lengths, strict=True) for place in range(10)]
    found = excerpt(pl.DataFrame({"start": starts}), windows, **{"operations": 8000, "one_step": 40000, **most})
    assert found["index"].to_list() == kept


def in_steps() -> Graph:
    """Four steps of ten operations, 10 ns each, one after the other."""
    nodes = [(f"op{place}", {"duration": 10, "start": 10 * place, "step": place // 10}) for place in range(40)]
    waits = [(f"op{place}", f"op{place + 1}", "stream", 0) for place in range(39)]
    whole = small_graph(nodes, waits)  # type: ignore[arg-type]
    at = ["start", "start", "start", "end"]
    rows = [
        {"index": step, "start": 100 * step, "end": 100 * step + 100, "opens": 10 * step, "closes": min(10 * step + 10, 39), "at": at[step]}
        for step in range(4)
    ]
    return replace(whole, steps=pl.DataFrame(rows, schema=whole.steps.schema))


def test_a_graph_cut_down_keeps_what_leads_up_to_its_steps() -> None:
    whole = in_steps()
    found = cut(replace(whole, steps=whole.steps[2:3]))
    assert found.nodes["start"].to_list() == list(range(100, 400, 10))
    assert found.steps.row(0) == (2, 200, 300, 10, 20, "start")
    assert (found.edges.height, found.edges["src"].min(), found.edges["dst"].max()) == (29, 0, 29)


@for_each("operations, kept", (40, [0, 1, 2, 3]), (39, [0, 1, 2]), (29, [0, 1]), (5, [0]))
def test_a_part_of_a_graph_has_whole_steps_that_take_as_long(operations: int, kept: list[int]) -> None:
    """Before the first step there is nothing; before each other as much as it holds."""
    whole = in_steps()
    found = part(whole, operations)
    assert found.steps["index"].to_list() == kept
    assert replayed(found).lengths == [100] * len(kept)
    assert found.nodes["step"].drop_nulls().unique().sort().to_list() == kept
    assert (found is whole) == (len(kept) == 4)


def test_a_plan_names_the_fixes_of_which_only_a_bound_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Question(id="COM-06", title="", refused="Nobody measured it.")
    without = (replace(unknown, bounds={"one": 3 * MS, "other": 5 * MS}), replace(unknown, id="COM-02"))
    monkeypatch.setattr("diagnose.reason.forecast.answer.search", lambda *_: Search(chosen=(), without=without, replays=1))
    told = pipeline.whatif([trace(tmp_path, 0)], plan=True).refused
    assert [(one.question, one.reason, one.next_step) for one in told if one.question] == [
        ("COM-06", "Nobody measured it.", "At most its finding's bound: 5.0 ms per step.")
    ]


@for_each("asked, joint", ({"plan": True}, 0), ({"fixes": ["HOST-07"]}, 1), ({"no_wait": True}, 1), ({}, 0))
def test_ranks_are_replayed_together_for_questions_and_not_for_a_plan(
    asked: dict[str, Any], joint: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr("diagnose.measure.ranks.meetings.meeting_ranks", lambda *found: calls.append(found) or ONE_RANK)
    pipeline.whatif([trace(tmp_path, 0)], **asked)
    assert len(calls) == joint


@pytest.mark.deep
def test_a_plan_of_a_long_capture_is_searched_and_told_for_some_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, whatif=Whatif(searched=10, answered=3000))
    paths = traces("host-slow-launches", "nsys")
    told = pipeline.whatif(paths, plan=True)
    assert told.planned
    assert told.plan
    assert 1 <= len(told.steps) < pipeline.diagnose(paths, forecasts=False).steps.n
    assert told.sentence.endswith(f" {len(told.steps)} of 4.")
    asked = pipeline.whatif(paths, fixes=[one.id for one in told.questions])
    assert len(asked.steps) == 4
    assert asked.sentence.endswith(").")
