"""Sets of captures as they come: in several formats, with ranks missing or given twice, with fewer steps, or begun in the middle of one. The straggler is named all the same."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from diagnose.diagnosis import Diagnosis
from diagnose.rank_records import RankProblem, Ranks
from fixtures.accuracy import Format
from fixtures.clocks import begun_late, ended_early
from fixtures.rank_truth import RankTruth, rank_truth
from fixtures.scenario import Scenario
from tests.rank_captures import Change, diagnosed, recorded, variant

RUN = "ranks-wrong-start-time"  # four ranks over two nodes, of which rank 2 has a slow device; here with its clocks put right
SLOW = 2


@pytest.fixture(scope="module")
def one() -> Scenario:
    return variant(RUN, wrong_start={})


@pytest.fixture(scope="module")
def truth(one: Scenario) -> RankTruth:
    return rank_truth(one, recorded(RUN))


def ranks_of(found: Diagnosis) -> Ranks:
    assert found.ranks is not None
    return found.ranks


def problems(ranks: Ranks, kind: str) -> list[RankProblem]:
    return [problem for problem in ranks.problems if problem.kind == kind]


def names_the_straggler(ranks: Ranks) -> None:
    assert {(late.rank, late.cause) for late in ranks.late} == {(SLOW, "slow_gpu")}
    assert ranks.skew == ()
    assert all(pair.aligned for pair in ranks.clocks)


def sums(ranks: Ranks) -> tuple[Counter[str], Counter[str]]:
    """Transfer and wait by kind."""
    transfer, wait = Counter[str](), Counter[str]()
    for group in ranks.exchanges:
        transfer[group.kind] += group.transfer_ns
        wait[group.kind] += group.wait_ns
    return transfer, wait


def times_hold(ranks: Ranks, truth: RankTruth) -> None:
    """Transfer and wait per step within 5 %, or 0.5 % of the step."""
    transfer, wait = sums(ranks)
    floor = 0.005 * max(truth.step_ns.values())
    for group in truth.exchanges:
        assert transfer[group.kind] == pytest.approx(group.transfer_ns, rel=0.05, abs=floor), group.kind
        assert wait[group.kind] == pytest.approx(group.wait_ns, rel=0.05, abs=floor), group.kind


@pytest.mark.parametrize("formats", [{0: "torch", 1: "torch"}, {1: "torch", 3: "torch"}, {SLOW: "torch"}])
def test_formats_may_be_mixed(one: Scenario, truth: RankTruth, formats: dict[int, Format], tmp_path: Path) -> None:
    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, formats=formats))
    names_the_straggler(ranks)
    times_hold(ranks, truth)
    assert ranks.problems == ()


@pytest.mark.parametrize("left_out", [(0,), (3,), (1, 3)])
def test_ranks_without_a_trace_are_named_and_the_others_compared(one: Scenario, left_out: tuple[int, ...], tmp_path: Path) -> None:
    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, left_out=left_out))
    names_the_straggler(ranks)
    (missing,) = problems(ranks, "missing")
    assert (missing.ranks, missing.count, ranks.captured) == (left_out, len(left_out), 4 - len(left_out))
    assert not {rank for late in ranks.late for rank in late.ranks} & set(left_out)


def test_without_the_slow_rank_nobody_else_is_accused(one: Scenario, tmp_path: Path) -> None:
    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, left_out=(SLOW,)))
    assert ranks.late == ()
    assert problems(ranks, "missing")[0].ranks == (SLOW,)


def test_a_rank_given_twice_is_named_and_counted_once(one: Scenario, truth: RankTruth, tmp_path: Path) -> None:
    def again(folder: Path) -> list[Path]:
        return [Path(shutil.copy(folder / "rank1.sqlite", folder / "copy of rank1.sqlite"))]

    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, also=again))
    names_the_straggler(ranks)
    (duplicate,) = problems(ranks, "duplicate")
    assert duplicate.ranks == (1,)
    assert ranks.captured == 4
    assert sorted(survey.rank for survey in ranks.survey) == [0, 1, 2, 3]
    times_hold(ranks, truth)


@pytest.mark.parametrize("short", [0, 3])
def test_a_rank_with_fewer_steps_is_named_and_what_is_common_is_matched(
    one: Scenario, truth: RankTruth, short: int, tmp_path: Path
) -> None:
    changes: dict[int, Change] = {short: partial(ended_early, steps=2)}
    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, changes=changes))
    names_the_straggler(ranks)
    (steps,) = problems(ranks, "steps")
    assert steps.ranks == (short,)
    matched = Counter[str]()
    for group in ranks.exchanges:
        assert set(group.ranks) == {0, 1, 2, 3}
        matched[group.kind] += group.matched
    for group in truth.exchanges:
        assert matched[group.kind] == group.matched // 2


@pytest.mark.parametrize("late", [0, 1, SLOW])
def test_a_capture_that_begins_in_the_middle_of_a_step_is_matched_where_it_begins(
    one: Scenario, truth: RankTruth, late: int, tmp_path: Path
) -> None:
    """Its first exchange is not the first of the others; matched one off, they would not end together."""
    changes: dict[int, Change] = {late: partial(begun_late, share=0.45)}
    ranks = ranks_of(diagnosed(one, recorded(RUN), tmp_path, changes=changes))
    names_the_straggler(ranks)
    whole = {group.kind: group.matched for group in truth.exchanges}
    matched = Counter[str]()
    for group in ranks.exchanges:
        matched[group.kind] += group.matched
    assert all(0.75 * number <= matched[kind] <= number for kind, number in whole.items())
    assert matched["expert"] < whole["expert"]
    transfer, _ = sums(ranks)
    expert = next(group for group in truth.exchanges if group.kind == "expert")
    assert transfer["expert"] == pytest.approx(expert.transfer_ns, rel=0.05)
