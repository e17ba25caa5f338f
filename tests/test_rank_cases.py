"""The published cases on which rank is to be analysed and what may be said of it (playbook 9.3, from Bridge's evals of its trace-analysis skill), on runs of their shape."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from diagnose.diagnosis import Diagnosis
from diagnose.rank_records import Ranks
from fixtures.recording import Recording
from fixtures.scenario import Scenario
from fixtures.truth import windows
from fixtures.truth_file import compute_in
from tests.rank_captures import diagnosed, recorded, simulated, variant

# ---------------------------------------------------------------------------------------------- nsys-analysis-multi-rank-pipeline

STAGES, WORLD, GIVEN = 8, 128, (0, 17, 71)
PER_STAGE = WORLD // STAGES
STAGE_OF = {0: 0, 17: 1, 71: 4}


@cache
def pipeline_run() -> tuple[Scenario, tuple[Recording, ...]]:
    """The pipelines of three ranks in three stages, simulated whole; the stage of the last of the three holds more layers. Only the three were captured."""
    simulate = tuple(sorted({rank % PER_STAGE + PER_STAGE * stage for rank in GIVEN for stage in range(STAGES)}))
    one = variant(
        "ranks-pipeline-uneven",
        job={
            "model": {"num_layers": STAGES, "pipeline_model_parallel_size": STAGES, "seq_length": 1024},
            "train": {"global_batch_size": 6 * PER_STAGE},
        },
        machine={"world_size": WORLD, "ranks_per_node": 8, "simulate": simulate},
        stage_layers={STAGE_OF[71]: 1},
        clock_offset={2: 2_600_000, 8: -1_900_000},
        missing=tuple(rank for rank in simulate if rank not in GIVEN),
    )
    one = replace(one, steps=3)
    return one, simulated(one)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    one, recordings = pipeline_run()
    return diagnosed(one, recordings, tmp_path_factory.mktemp("pipeline"))


def ranks_of(found: Diagnosis) -> Ranks:
    assert found.ranks is not None
    return found.ranks


def test_pipeline_the_rank_is_chosen_by_what_it_does_and_not_by_its_number(pipeline: Diagnosis) -> None:
    """The stage with most layers is the one that the others wait for; rank 0 is no better a witness than any."""
    _, recordings = pipeline_run()
    work = {item.rank: sum(compute_in(item, window) for window in windows(item)) for item in recordings if item.rank in GIVEN}
    assert max(work, key=lambda rank: work[rank]) == 71
    ranks = ranks_of(pipeline)
    assert ranks.slowest == 71
    assert pipeline.verdict.rank == 71
    assert "71" in ranks.chosen


def test_pipeline_stages_are_mapped_from_the_job_file(pipeline: Diagnosis) -> None:
    ranks = ranks_of(pipeline)
    assert {survey.rank: survey.stage for survey in ranks.survey} == STAGE_OF
    assert {group.ranks: (group.stage, group.by) for group in ranks.groups} == {(rank,): (stage, "job") for rank, stage in STAGE_OF.items()}
    assert ranks.pipeline is not None
    assert {stage.stage: stage.ranks for stage in ranks.pipeline.stages} == {stage: (rank,) for rank, stage in STAGE_OF.items()}
    assert ranks.pipeline.expected_share == pytest.approx((STAGES - 1) / (6 + STAGES - 1))


def test_pipeline_waiting_is_told_from_transfer_by_stage(pipeline: Diagnosis) -> None:
    """No two of the three meet in a pipeline or among experts, so that only each one's own waiting can be told; it is, and no such exchange is split by a guess."""
    ranks = ranks_of(pipeline)
    assert [group for group in ranks.exchanges if group.matched and group.kind != "other"] == []  # all ranks meet in the norm of gradients
    assert ranks.pipeline is not None
    for stage in ranks.pipeline.stages:
        assert stage.bubble_ns == pytest.approx(stage.warm_up_ns + stage.steady_ns + stage.cool_down_ns, rel=0.05)
        assert stage.bubble_ns > 0
    busiest = max(ranks.pipeline.stages, key=lambda stage: stage.compute_busy_ns)
    assert busiest.stage == STAGE_OF[71]
    assert busiest.bubble_ns == min(stage.bubble_ns for stage in ranks.pipeline.stages)


def test_pipeline_what_can_not_be_said_is_said(pipeline: Diagnosis) -> None:
    """Clocks rest on nothing but start times, other stages are not like ranks, and 125 ranks were not captured."""
    ranks = ranks_of(pipeline)
    assert not any(pair.aligned for pair in ranks.clocks)
    assert ranks.late == ()
    assert ranks.skew == ()
    assert ranks.experts == ()
    (missing,) = (problem for problem in ranks.problems if problem.kind == "missing")
    assert missing.count == WORLD - len(GIVEN)
    assert ranks.notes, "that nothing was matched, and why"


# ---------------------------------------------------------------------------------------------- nsys-analysis-hybridep-cross-host

SKEW = 102_000_000


@cache
def hybrid_run() -> tuple[Scenario, tuple[Recording, ...]]:
    """Experts over sixteen ranks on two nodes by HybridEP, of which ranks 0 and 8 were captured; the second node begins 102 ms after the first, and they end together."""
    one = variant(
        "ranks-healthy-eight",
        job={
            "model": {
                "num_layers": 1,
                "seq_length": 2048,
                "expert_model_parallel_size": 16,
                "num_moe_experts": 64,
                "moe_token_dispatcher_type": "flex",
                "moe_flex_dispatcher_backend": "hybridep",
            },
            "train": {"global_batch_size": 16},
        },
        machine={"world_size": 16, "ranks_per_node": 8, "simulate": tuple(range(16))},
        clock_offset={1: 3_417_000},
        start_skew=dict.fromkeys(range(8, 16), float(SKEW)),
        missing=tuple(rank for rank in range(16) if rank not in {0, 8}),
    )
    one = replace(one, steps=12)
    return one, simulated(one)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    one, recordings = hybrid_run()
    return diagnosed(one, recordings, tmp_path_factory.mktemp("hybrid"))


def test_hybrid_the_run_has_the_shape_of_the_case() -> None:
    _, recordings = hybrid_run()
    first, second = (windows(next(item for item in recordings if item.rank == rank)) for rank in (0, 8))
    longer = (first[0].end - first[0].start) - (second[0].end - second[0].start)
    assert longer == pytest.approx(SKEW, rel=0.02)
    assert abs(first[0].end - second[0].end) < 1_000_000


def test_hybrid_a_window_that_begins_earlier_and_ends_together_is_skew_and_no_straggler(hybrid: Diagnosis) -> None:
    ranks = ranks_of(hybrid)
    assert ranks.late == ()
    (skew,) = ranks.skew
    assert skew.rank in {0, 8}  # of two, either may be the one that is off
    assert abs(skew.begins_ns) == pytest.approx(SKEW, rel=0.02) or abs(skew.begins_ns) == pytest.approx(SKEW / 2, rel=0.02)
    assert abs(skew.ends_ns) < 1_000_000
    assert "straggler" in skew.text


def test_hybrid_clocks_rest_on_many_matched_ends(hybrid: Diagnosis) -> None:
    (pair,) = ranks_of(hybrid).clocks
    assert pair.aligned
    assert pair.n > 100
    assert pair.by_start_times
    assert pair.offset_ns == pytest.approx(3_417_000, abs=100_000)
    assert -100_000 < pair.residual_p5_ns <= pair.residual_p95_ns < 100_000


def test_hybrid_the_exchange_is_hybridep_s_and_only_its_transport_is_matched(hybrid: Diagnosis) -> None:
    """Packing is no network time, and what HybridEP moves is not NCCL's."""
    groups = [group for group in ranks_of(hybrid).exchanges if group.kind == "expert"]
    assert {group.backend for group in groups} == {"hybridep"}
    assert {group.operation for group in groups} >= {"dispatch", "combine"}
    assert all(group.ranks == (0, 8) for group in groups)
    assert all(group.unmatched == 0 for group in groups)
    surveys = ranks_of(hybrid).survey
    assert all(survey.packing_busy_ns > 0 for survey in surveys)
    assert all("network" not in late.evidence for late in ranks_of(hybrid).late)


def test_hybrid_two_of_sixteen_are_all_that_is_spoken_of(hybrid: Diagnosis) -> None:
    ranks = ranks_of(hybrid)
    (missing,) = (problem for problem in ranks.problems if problem.kind == "missing")
    assert missing.count == 14
    assert (ranks.captured, ranks.world_size) == (2, 16)
    assert {survey.rank for survey in ranks.survey} == {0, 8}
    assert "14 of 16 ranks" in missing.text


def test_hybrid_no_gain_is_claimed_for_what_began_at_another_time(hybrid: Diagnosis) -> None:
    """Not all members were captured: no bandwidth; no finding on lateness; and the one on skew promises nothing."""
    ranks = ranks_of(hybrid)
    assert all(group.algorithm_gb_s is None and group.bus_gb_s is None for group in ranks.exchanges if group.kind == "expert")
    assert [finding.id for finding in hybrid.findings if "straggler" in finding.id or "lateness" in finding.id] == []
    (skew,) = (finding for finding in hybrid.findings if any(evidence.fact == "start_skew_ns" for evidence in finding.evidence))
    assert skew.bound_ns is None
    assert skew.speedup_ceiling is None


# ---------------------------------------------------------------------------------------------- nsys-analysis-single-trace-critical-path


def test_one_trace_says_nothing_of_other_ranks(tmp_path: Path) -> None:
    """Its transport holds waiting for a slow rank that it can't show: no split into transfer and wait, and nobody is late."""
    one = variant("ranks-straggler", missing=(0, 2, 3))
    found = diagnosed(one, recorded("ranks-straggler"), tmp_path)
    assert found.ranks is None
    assert found.verdict.rank == 1
    assert found.facts["ranks_captured"].value == 1
    told = [found.verdict.sentence, *(finding.summary for finding in found.findings)]
    assert not any("rank 2" in text for text in told)


# ---------------------------------------------------------------------------------------------- nsys-analysis-capture-quality-overhead


def test_a_rank_whose_capture_is_damaged_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    def damaged(folder: Path) -> list[Path]:
        path = folder / "rank9.sqlite"
        path.write_bytes(b"SQLite format 3\0" + bytes(2_000))
        return [path]

    one = variant("ranks-straggler")
    found = diagnosed(one, recorded("ranks-straggler"), tmp_path, also=damaged)
    ranks = ranks_of(found)
    (failed,) = (problem for problem in ranks.problems if problem.kind == "failed")
    assert failed.count == 1
    assert "rank9.sqlite" in failed.text
    assert [(late.rank, late.cause) for late in ranks.late] == [(2, "slow_gpu")]
    assert ranks.captured == 4


def test_a_rank_whose_host_the_profiler_slows_is_late_by_its_host(tmp_path: Path) -> None:
    """A capture perturbs the rank that it is taken of: that rank's host is slower, and the comparison shows it rather than a slow device."""
    one = variant("ranks-straggler", slow_rank={}, slow_host={1: 5.0})
    ranks = ranks_of(diagnosed(one, simulated(one), tmp_path))
    assert [(late.rank, late.cause) for late in ranks.late] == [(1, "slow_host")]
