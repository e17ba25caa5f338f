"""The survey of ranks agrees with what the document says of each device by itself."""

from __future__ import annotations

from collections import Counter

import pytest

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import Ranks
from diagnose.pipeline import diagnose
from fixtures import sample


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """Ranks 1 and 2 of four, of which 2 is the slow one."""
    folder = tmp_path_factory.mktemp("two")
    for rank in (1, 2):
        sample.unpack(f"straggler.rank{rank}.sqlite.gz", folder / f"rank{rank}.sqlite")
    return diagnose([folder])


def ranks_of(found: Diagnosis) -> Ranks:
    assert found.ranks is not None
    return found.ranks


def test_the_survey_repeats_the_budgets(two: Diagnosis) -> None:
    budgets = {one.rank: one for one in two.budget}
    for row in ranks_of(two).survey:
        middle = budgets[row.rank].median
        assert middle is not None
        assert (row.compute_busy_ns, row.transport_busy_ns, row.device_idle_ns) == (
            middle.compute_busy_ns,
            middle.transport_busy_ns,
            middle.device_idle_ns,
        )
        assert [(step.index, step.window_ns) for step in row.steps] == [(step.index, step.window_ns) for step in budgets[row.rank].per_step]
        assert row.buckets == {one.bucket: one.work_ns for one in two.buckets if one.rank == row.rank}


def test_operations_are_counted_per_step(two: Diagnosis) -> None:
    for row in ranks_of(two).survey:
        counted: Counter[str] = Counter()
        for name, number in row.collectives.items():
            counted[name.split()[0]] += number
        assert counted == {one.kind: one.count for one in two.communication if one.rank == row.rank}


def test_waiting_never_exceeds_the_step_and_own_time_is_what_is_left(two: Diagnosis) -> None:
    blocked = {one.rank: {step.index: step.blocking_transport_ns for step in one.per_step} for one in two.budget}
    for row in ranks_of(two).survey:
        assert row.wait_ns is not None
        assert 0 <= row.wait_ns <= row.step.max  # type: ignore[operator]
        for step in row.steps:
            assert step.own_ns is not None
            assert step.window_ns - blocked[row.rank][step.index] <= step.own_ns <= step.window_ns


def test_the_slow_one_is_named_and_the_verdict_speaks_of_it(two: Diagnosis) -> None:
    ranks = ranks_of(two)
    assert [(one.rank, one.cause) for one in ranks.late] == [(2, "slow_gpu")]
    assert (ranks.slowest, two.verdict.rank) == (2, 2)
    assert [(one.kind, one.ranks, one.count) for one in ranks.problems] == [("missing", (0, 3), 2)]
    waits = {(one.rank, one.kind): one.wait_ns for one in two.communication}
    assert (waits[1, "expert"] or 0) > 10 * (waits[2, "expert"] or 0)
