"""Findings: their order, their bounds, their status, what could not be assessed.

And those about many ranks, from their records to who is named.
"""

from typing import get_args

import pytest
from msgspec import structs

from diagnose.document.diagnosis import SEVERAL_RANKS, Fact, Finding, Fix, NotAssessed, Where
from diagnose.document.ranks import LateCause, Pipeline, RankProblem, Ranks, Stage, StartSkew
from diagnose.job import Job
from diagnose.measure.ranks.facts import inferred_rank_facts, rank_facts
from diagnose.measure.where import rank_where
from diagnose.model.vocabulary import CAPTURE, FactValue, Status
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader, find
from diagnose.reason.plan import plan_of
from diagnose.reason.walls import bounds, verdict
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, CLEAN, facts
from tests.builders.jobs import A1, job
from tests.builders.ranks import STEP, clock, exchange, experts, late, ranks, survey

# The published case of 41.25 s per step: the expert exchange blocks about a quarter of it.
COMMUNICATION_BOUND = facts(
    step_ns=41_250_000_000, launch_starved_ns=1_000_000_000, host_work_ns=900_000_000, host_sync_ns=100_000_000,
    transport_blocking_ns=9_000_000_000, transport_blocking_share=0.2182, expert_exchange_busy_ns=12_000_000_000,
    expert_exchange_exposed_ns=9_100_000_000, expert_exchange_blocking_ns=9_000_000_000, expert_exchange_blocking_share=0.2182,
)  # fmt: skip


def found_with(given: dict[str, Fact], on: Job | None = None, where: dict[str, Where] | None = None) -> dict[str, Finding]:
    found, _ = find(given, job=on, rulebook=BOOK, where=where)
    return {finding.id: finding for finding in found}


def unknown_with(on: Job | None = None, **values: FactValue) -> dict[str, NotAssessed]:
    _, unknown = find(facts(**values), job=on, rulebook=BOOK)
    return {entry.id: entry for entry in unknown}


def test_the_all_to_all_baseline_ranks_the_expert_overlap_first() -> None:
    found, _ = find(COMMUNICATION_BOUND, job=job(), rulebook=BOOK)
    first = found[0]
    assert first.id == "communication-blocking-expert-exchange"
    assert (first.severity, first.status, first.bound_ns) == ("high", "measured", 9_000_000_000)
    assert first.speedup_ceiling == pytest.approx(41.25 / 32.25)
    assert (first.fixes[0].id, first.fixes[0].state) == ("COM-06", "applicable")
    assert first.summary == (
        "Compute is stalled 9,000 ms per step (21.8 %) on EP dispatch and combine (nccl), which run for 12,000 ms, 9,100 ms of it exposed."
    )


def test_a_clean_run_has_no_finding() -> None:
    assert found_with(facts()) == {}


def test_findings_are_ordered_by_bound_then_severity() -> None:
    given = facts(
        launch_starved_ns=20_500_000,  # 0.5 ms of it in synchronising calls, which have a finding of their own
        expert_exchange_blocking_ns=4_000_000,
        expert_exchange_blocking_share=0.04,
        other_share=0.3,
        steps_anchored=False,
    )
    found = [(finding.id, finding.bound_ns, finding.severity) for finding in find(given, job=None, rulebook=BOOK)[0]]
    assert found == [
        ("host-launch-starved", 20_000_000, "high"),
        ("communication-blocking-expert-exchange", 4_000_000, "medium"),
        ("capture-unclassified-time", None, "high"),
        ("capture-no-steps", None, "medium"),
    ]


def test_hidden_communication_claims_no_saving_and_an_inferred_fact_weakens_a_claim() -> None:
    found = found_with(facts(transport_busy_share=0.876, transport_blocking_share=0.0157, transport_hidden_share=0.963))
    hidden = found["communication-hidden"]
    assert (hidden.bound_ns, hidden.speedup_ceiling, hidden.severity, hidden.fixes) == (None, None, "medium", ())
    given = facts(inferred=("expert_exchange_blocking_ns",), expert_exchange_blocking_ns=4_000_000, expert_exchange_blocking_share=0.04)
    assert found_with(given)["communication-blocking-expert-exchange"].status == "inferred"


def test_configured_but_not_active() -> None:
    on = job({**A1, "model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "deepep"})
    finding = found_with(facts(), on)["communication-dispatcher-not-active"]
    said = "The job file configures deepep under the flex dispatcher, but the EP all-to-all runs on nccl (100.0 % of it on NCCL)."
    assert (finding.summary, finding.severity) == (said, "high")
    graphs = found_with(facts(graph_launches_per_step=0), job(model__cuda_graph_impl="transformer_engine"))
    assert graphs["host-graphs-not-replayed"].severity == "high"


def test_a_backend_under_another_dispatcher_type_is_only_a_hint() -> None:
    found = found_with(facts(), job(model__moe_flex_dispatcher_backend="deepep"))
    assert "communication-dispatcher-not-active" not in found
    hint = found["communication-backend-without-flex"]
    assert hint.severity == "low"
    assert hint.summary == (
        "moe_flex_dispatcher_backend is deepep, which only the flex dispatcher uses; "
        "moe_token_dispatcher_type is alltoall, and the EP all-to-all runs on nccl."
    )


def test_evidence_leaves_out_what_was_not_measured() -> None:
    evidence = found_with(COMMUNICATION_BOUND)["communication-blocking-expert-exchange"].evidence
    names = [item.fact for item in evidence]
    assert "expert_exchange_blocking_ns" in names
    assert "expert_exchange_count" not in names
    assert {item.fact: (item.value, item.unit) for item in evidence}["expert_exchange_backend"] == ("nccl", "text")


def test_a_missing_fact_or_setting_makes_a_rule_not_assessed() -> None:
    unknown = unknown_with(gc_ns=None)
    assert unknown["host-garbage-collection"].missing == ("gc_ns",)
    assert unknown["host-garbage-collection"].how.startswith("gc_ns: the trace holds no range that would show garbage collection.")
    assert "host-garbage-collection" not in unknown_with(gc_ns=0)
    without = unknown_with()["memory-full-recompute-configured"]
    assert without.missing == ("job_recompute_granularity",)
    assert without.how == "Pass the job file (--config): recompute_granularity."
    silent = unknown_with(job())["capture-benchmark-only"]
    assert silent.how == "Not in the job file: moe_router_force_load_balancing."


def test_what_only_another_framework_has_is_not_asked_of_a_job_file() -> None:
    """FSDP's symmetric memory is torchtitan's; the margins are variables of the environment, which any job may set."""
    fix = FixReader(context=make_context(facts(), job(), BOOK)).fix(BOOK.fixes["COM-19"])
    assert "Not in the job file: nvte_fwd_layernorm_sm_margin, nvte_bwd_layernorm_sm_margin." in fix.unknown


def test_without_a_framework_a_setting_is_asked_for_where_the_trace_tells_the_same() -> None:
    """How many ranks there are; how they are divided no trace tells."""

    def state(**known: FactValue) -> tuple[str, tuple[str, ...]]:
        fix = FixReader(context=make_context(facts({"framework_seen": "none", **known}), None, BOOK)).fix(BOOK.fixes["COM-30"])
        return fix.state, fix.blocked_by

    assert state(world_size=4) == ("blocked", ("All ranks lie in one node, so every gather stays inside it.",))
    assert [state(world_size=size)[0] for size in (64, None)] == ["unknown", "unknown"]


def test_a_handful_of_operations_bounds_nothing() -> None:
    starved: dict[str, FactValue] = {"launch_starved_ns": 40_000_000, "launch_starved_share": 0.4}
    assert "host-launch-starved" in found_with(facts(operations_n=5, **starved))
    few = facts(operations_n=4, **starved)
    assert {finding.wall for finding in found_with(few).values()} <= {CAPTURE}
    how = unknown_with(operations_n=4, **starved)["host-launch-starved"].how
    assert how.startswith("Too little was captured to judge: ")
    assert "(device operations: 4)" in how


def test_every_rule_is_fired_silent_or_not_assessed_on_no_facts() -> None:
    found, unknown = find(facts({}), job=None, rulebook=BOOK)
    assert found == ()
    assert {entry.id for entry in unknown} == set(BOOK.rules)


def test_where() -> None:
    places = {
        "run": Where(ranks=(0,), steps=(3, 4), top=("ignored",)),
        "communication:expert": Where(ranks=(0,), steps=(4,), top=("a", "b")),
        "bucket:other": Where(ranks=(1,), steps=(), top=("x", "x", "y")),
    }
    found = found_with(facts(COMMUNICATION_VALUES, other_share=0.5, steps_anchored=False), where=places)
    assert found["communication-blocking-expert-exchange"].where == Where(ranks=(0,), steps=(4,), top=("a", "b"))
    assert found["capture-unclassified-time"].where == Where(ranks=(1,), steps=(3, 4), top=("x", "y"))
    assert found["capture-no-steps"].where == Where(ranks=(0,), steps=(3, 4))


COMMUNICATION_VALUES = {**CLEAN, "expert_exchange_blocking_ns": 4_000_000, "expert_exchange_blocking_share": 0.04}


def test_without_an_anchor_nothing_is_per_step_and_a_bound_of_the_whole_step_gives_no_ceiling() -> None:
    found = found_with(facts(COMMUNICATION_VALUES, steps_anchored=False))
    assert "4.00 ms in the whole capture (4.0 %)" in found["communication-blocking-expert-exchange"].summary
    found = found_with(facts(launch_starved_ns=100_000_000, host_sync_ns=0))["host-launch-starved"]
    assert (found.bound_ns, found.speedup_ceiling) == (100_000_000, None)


# --- findings about ranks ---------------------------------------------------------------------------------------------


OF_RANKS = {name for name, spec in BOOK.facts.items() if spec.scope == "ranks"}
SILENCED_BY_RANKS = "communication-blocking-all-to-all"  # speaks of one rank, unless all ranks show that it waits for other stages
RULES_OF_RANKS = {key for key, rule in BOOK.rules.items() if set(BOOK.expression(rule.when).names) & OF_RANKS} - {SILENCED_BY_RANKS}
BY_CAUSE: dict[LateCause, str] = {
    "slow_gpu": "compute-straggler-slow-gpu",
    "slow_host": "host-straggler-slow-host",
    "expert_work": "compute-straggler-expert-work",
    "vision_work": "compute-straggler-vision-work",
    "more_work": "compute-straggler-more-work",
    "slow_link": "communication-straggler-slow-link",
    "unknown": "communication-straggler-unexplained",
}


def facts_of(found: Ranks | None) -> dict[str, Fact]:
    captured = found.captured if found else 1
    return facts(
        {**CLEAN, "expert_exchange_count": 96, "ranks_captured": captured, **rank_facts(found, STEP)},
        inferred=tuple(inferred_rank_facts(found)),
    )


def of_ranks(found: Ranks | None, on: Job | None = None) -> tuple[dict[str, Finding], dict[str, NotAssessed]]:
    """Findings and what was not assessed, of rules about ranks."""
    findings, unknown = find(facts_of(found), job=on, rulebook=BOOK, where=rank_where(found))
    return {one.id: one for one in findings}, {one.id: one for one in unknown if one.id in RULES_OF_RANKS}


def test_even_ranks_have_no_finding() -> None:
    found, unknown = of_ranks(ranks())
    assert found == {}
    assert set(unknown) == {
        "compute-expert-imbalance",  # no such group in these records
        "communication-pipeline-bubble",
        "communication-stages-uneven",
        "communication-few-virtual-stages",
        "communication-data-parallel-tail",
    }


@for_each("cause, rule", *BY_CAUSE.items())
def test_each_cause_has_its_own_finding_and_no_other(cause: LateCause, rule: str) -> None:
    found, _ = of_ranks(ranks(late=(late(3, 20_000_000, cause=cause, longer=20_000_000),)))
    assert set(found) == {rule}
    finding = found[rule]
    assert (finding.bound_ns, finding.severity, finding.status) == (20_000_000, "high", "measured")
    assert finding.where.ranks == (3,)
    assert finding.summary.startswith(
        "The ranks of its group wait 20.0 ms per step (20.0 %) for rank 3 (last in 97.0 % of the collectives with notable waiting)"
    )
    assert "not known" not in finding.summary


def test_the_rules_know_every_cause() -> None:
    assert set(get_args(LateCause)) == set(BY_CAUSE)


@for_each("status, said", ("measured", "measured"), ("inferred", "inferred"))
def test_an_inferred_cause_weakens_the_claim(status: Status, said: str) -> None:
    found, _ = of_ranks(ranks(late=(late(3, 20_000_000, status=status),)))
    assert found["compute-straggler-slow-gpu"].status == said


def test_another_rank_that_is_late_by_a_cause_of_its_own_has_a_finding_of_its_own() -> None:
    found, _ = of_ranks(ranks(late=(late(3, 20_000_000), late(5, 9_000_000, cause="slow_host", longer=8_000_000))))
    assert set(found) == {"compute-straggler-slow-gpu", "communication-another-straggler"}
    finding = found["communication-another-straggler"]
    assert (finding.bound_ns, finding.severity, finding.status, finding.where.ranks) == (9_000_000, "high", "measured", (5,))
    assert [fix.id for fix in finding.fixes] == ["HOST-04", "HOST-03"]
    assert finding.summary == (
        "Beside their waiting for rank 3, the other ranks wait 9.00 ms per step for rank 5, which is late by a cause of its own: its CPU "
        "launches late (8.00 ms per step more than on peer ranks). Mending the one leaves the other."
    )


def test_start_skew_is_no_straggler() -> None:
    """Two hosts, sixteen expert-parallel ranks, two of them captured; one window is 102 ms longer and ends with the other (a published
    case).
    """
    both = (survey(0, host="host 0", wait=100_000), survey(8, host="host 1", wait=100_000))
    skewed = ranks(
        world_size=16,
        captured=2,
        survey=both,
        clocks=(clock(aligned=True, residual=(-50_000, 50_000)),),
        exchanges=(exchange((0, 8), wait=100_000, matched=5261),),
        late=(),
        skew=(StartSkew(rank=8, begins_ns=-102_000_000, ends_ns=40_000, text=""),),
        problems=(),
    )
    found, _ = of_ranks(skewed)
    assert set(found) == {"capture-start-skew"}
    assert found["capture-start-skew"].summary == (
        "1 of 2 captured ranks start up to 102.0 ms off the middle of their group and end with it. "
        "Their longer first step is start skew, not a straggler."
    )
    assert (found["capture-start-skew"].severity, found["capture-start-skew"].bound_ns) == ("low", None)
    assert found["capture-start-skew"].where.ranks == (8,)


def test_without_aligned_clocks_starts_are_not_compared() -> None:
    blind = tuple(survey(rank, host=f"host {rank // 4}", skew=None) for rank in range(8))
    found, unknown = of_ranks(ranks(survey=blind, clocks=(clock(aligned=False, residual=(-9_000_000, 9_000_000)),)))
    assert set(found) == {"capture-clocks-not-aligned"}
    assert "it is unknown which rank starts first and which is the straggler" in found["capture-clocks-not-aligned"].summary
    how = unknown["capture-start-skew"].how
    assert how.startswith("start_skew_ranks: clocks could not be compared.")
    assert SEVERAL_RANKS not in how


def test_waiting_above_transfer_is_a_balance_problem_unless_hidden_or_for_other_stages() -> None:
    hidden = tuple(survey(rank, wait=25_000_000, held=1_000_000) for rank in range(4))
    assert of_ranks(ranks(survey=hidden, exchanges=(exchange((0, 1, 2, 3), wait=25_000_000),), clocks=()))[0] == {}
    slow = tuple(survey(rank, wait=25_000_000) for rank in range(4))
    found, _ = of_ranks(ranks(survey=slow, exchanges=(exchange((0, 1, 2, 3), wait=25_000_000),), clocks=()))
    assert set(found) == {"communication-wait-above-transfer"}
    finding = found["communication-wait-above-transfer"]
    assert finding.summary.endswith("a balance problem, not a network problem.")
    assert (finding.bound_ns, finding.where.ranks) == (25_000_000, (0, 1, 2, 3))
    found, _ = of_ranks(ranks(survey=slow, exchanges=(exchange((0, 1, 2, 3), kind="pipeline", wait=25_000_000),), clocks=()))
    assert found == {}


def test_the_pipeline() -> None:
    stages = tuple(
        Stage(stage=number, ranks=(number,), compute_busy_ns=busy, bubble_ns=90_000_000 - busy, warm_up_ns=0, steady_ns=0, cool_down_ns=0)
        for number, busy in enumerate((60_000_000, 60_000_000, 60_000_000, 80_000_000))
    )
    uneven = Pipeline(
        stages=stages, bubble_share=0.25, expected_share=0.158, imbalance_ns=15_000_000, virtual_saves_ns=7_000_000, even_saves_ns=6_000_000
    )
    four = job(model__pipeline_model_parallel_size=4)
    found, _ = of_ranks(ranks(pipeline=uneven), four)
    assert {key: one.bound_ns for key, one in found.items() if key in RULES_OF_RANKS} == {
        "communication-stages-uneven": 6_000_000,
        "communication-pipeline-bubble": 9_200_000,
        "communication-few-virtual-stages": 7_000_000,
    }
    assert found["communication-stages-uneven"].where.ranks == (3,)
    assert found["communication-stages-uneven"].summary.startswith("Stage 3 computes 15.0 ms per step longer")
    even = structs.replace(uneven, bubble_share=0.16, imbalance_ns=0, virtual_saves_ns=0, even_saves_ns=0)
    assert not RULES_OF_RANKS & set(of_ranks(ranks(pipeline=even), four)[0])


def test_an_unexplained_straggler_is_not_for_a_collection_where_its_cpu_does_not_pause() -> None:
    even = job(model__moe_router_force_load_balancing=False)

    def planned(**given: FactValue) -> list[str | None]:
        late: dict[str, FactValue] = {
            "straggler_rank": "0",
            "straggler_cause": "unknown",
            "straggler_wait_ns": 18_000_000,
            "straggler_saves_ns": 18_000_000,
            "straggler_saves_share": 0.18,
            **given,
        }
        told = facts(**late)
        found, _ = find(told, job=even, rulebook=BOOK, walls=bounds(told, BOOK))
        steps = plan_of(found, verdict(bounds(told, BOOK), told, BOOK, even, findings=found), STEP)
        return [step.fix for step in steps if step.finding == "communication-straggler-unexplained"]

    assert planned(host_gap_excess_ns=0) == ["HOST-04"]
    assert planned(host_gap_excess_ns=6_000_000)[0] == "HOST-03"
    # uneven experts are such a rank's as far as they explain it
    uneven = facts(straggler_cause="unknown", straggler_saves_ns=18_000_000, straggler_saves_share=0.18, expert_imbalance_ns=7_000_000)
    reached = {fix.id: fix.reach_ns for fix in found_with(uneven, even)["communication-straggler-unexplained"].fixes}
    assert (reached["CMP-10"], reached["HOST-04"]) == (7_000_000, None)


def test_even_stages_win_no_more_of_the_waiting_for_the_gradients_norm_than_their_work_differs() -> None:
    """The stage that is done first waits while the pipeline runs empty: only where stages are not known may balance win all of that."""
    waits = {
        "other_collective_blocking_ns": 32_000_000,
        "other_collective_blocking_share": 0.32,
        "other_statistics_share": 1.0,
        "pipeline_parallel_busy_ns": 20_000_000,
    }
    pipeline = job(model__pipeline_model_parallel_size=4)
    for even_ns, reach_ns in ((16_000_000, 16_000_000), (0, 0), (None, 32_000_000)):
        found = found_with(facts(**waits, stage_even_saves_ns=even_ns), pipeline)["communication-blocking-statistics"]
        assert {fix.id: fix.reach_ns for fix in found.fixes}["COM-14"] == reach_ns


def test_a_bound_is_never_more_than_the_step() -> None:
    """Waiting on two streams at once adds up to more than the step has."""
    found, _ = of_ranks(ranks(late=(late(3, 130_000_000, longer=130_000_000),)))
    assert (found["compute-straggler-slow-gpu"].bound_ns, found["compute-straggler-slow-gpu"].speedup_ceiling) == (STEP, None)


def test_one_captured_rank_is_told_once_and_in_the_same_words() -> None:
    found, unknown = of_ranks(None)
    assert found == {}
    assert set(unknown) == RULES_OF_RANKS
    ask = "Pass the job file (--config): pipeline_model_parallel_size."
    assert {one.how for one in unknown.values()} == {SEVERAL_RANKS, f"{SEVERAL_RANKS} {ask}"}
    with_job = of_ranks(None, job(model__pipeline_model_parallel_size=4))[1]
    assert {one.how for one in with_job.values()} == {SEVERAL_RANKS}


def test_more_ranks_are_not_asked_for_where_they_would_tell_nothing_new() -> None:
    """Nothing of an unknown group ran."""
    unknown = {one.id: one for one in find(facts(other_collective_blocking_share=0.1), job=None, rulebook=BOOK)[1]}
    assert unknown[SILENCED_BY_RANKS].how.startswith("other_reduction_share: ")
    told = {"other_collective_blocking_share": 0.1, "other_collective_blocking_ns": 10_000_000, "other_reduction_share": 0.0}
    assert SILENCED_BY_RANKS in found_with(facts(**told))
    assert SILENCED_BY_RANKS not in found_with(facts(**told, pipeline_bubble_ns=6_000_000))


def test_why_rules_of_several_ranks_are_not_assessed_is_told_one_by_one() -> None:
    _, unknown = of_ranks(ranks(), job(model__pipeline_model_parallel_size=1))
    assert set(unknown) == {"compute-expert-imbalance", "communication-data-parallel-tail"}
    dense = {**CLEAN, "ranks_captured": 8, "expert_exchange_count": 0, **rank_facts(ranks(), STEP)}
    assert "compute-expert-imbalance" not in {one.id for one in find(facts(dense), job=None, rulebook=BOOK)[1]}
    apart = ranks(survey=tuple(survey(rank, wait=None, skew=None) for rank in range(2)), captured=2, exchanges=(), clocks=())
    _, unknown = of_ranks(apart)
    assert SEVERAL_RANKS not in {one.how for one in unknown.values()}
    assert "none of its collectives was found in another rank's trace" in unknown["communication-wait-above-transfer"].how


def test_comparing_ranks_is_proposed_only_where_it_was_not_done() -> None:
    waiting = {"transport_blocking_share": 0.2, "expert_exchange_blocking_share": 0.2, "expert_exchange_blocking_ns": 20_000_000}

    def state(found: Ranks | None) -> str:
        given = facts({**CLEAN, **waiting, **rank_facts(found, STEP)})
        first = next(one for one in find(given, job=job(), rulebook=BOOK)[0] if one.id == "communication-blocking-expert-exchange")
        return next(fix.state for fix in first.fixes if fix.id == "COM-20")

    assert state(None) == "applicable"
    assert state(ranks()) == "blocked"
    some = RankProblem(kind="missing", ranks=(6, 7), count=2, text="two are missing")
    assert state(ranks(problems=(some,))) == "applicable", "all that were captured may wait for one that was not"
    assert state(ranks(problems=(some,), late=(late(3, 20_000_000, cause="unknown"),))) == "blocked"


def test_even_experts_are_said_where_balance_is_proposed() -> None:
    uneven, even = (
        ranks(experts=(experts((0, 1, 2, 3), lost),), late=(late(3, 20_000_000, cause="unknown"),)) for lost in (5_000_000, 400_000)
    )

    alone = rank_facts(uneven, STEP) | {"expert_exchange_count": 4, "has_experts": True, "framework_seen": "none"}
    assert FixReader(context=make_context(facts(alone), None, BOOK)).fix(BOOK.fixes["CMP-10"]).unknown == (), "the ranks show it"

    def balance(found: Ranks) -> Fix:
        return next(fix for fix in of_ranks(found, job())[0]["communication-straggler-unexplained"].fixes if fix.id == "CMP-10")

    assert balance(even).state == "already_on", "not offered for time that it can't win"
    assert (balance(uneven).state, balance(uneven).blocked_by, balance(uneven).unknown) == ("applicable", (), ()), "measured, so not open"


def test_facts_of_ranks_are_not_asked_for_by_fixes_of_one_rank() -> None:
    waiting = {"expert_exchange_blocking_share": 0.2, "expert_exchange_blocking_ns": 20_000_000}
    found = find(facts({**CLEAN, **waiting}), job=None, rulebook=BOOK)[0]
    lines = [line for one in found for fix in one.fixes for line in fix.unknown]
    assert lines
    assert [line for line in lines for name in OF_RANKS if f"{name} " in line] == []


def test_a_fact_without_which_a_fix_is_decided_is_not_asked_for() -> None:
    found = found_with(facts(data_loading_ns=20_000_000, batch_pauses_ns=None))
    (prefetch,) = [fix for fix in found["host-data-loading"].fixes if fix.id == "HOST-10"]
    assert [line for line in prefetch.unknown if "batch_pauses_ns" in line] == []


@for_each("share, state", (0.2, "applicable"), (0.005, "already_on"), (None, "unknown"))
def test_stages_that_were_measured_decide_whether_balancing_them_is_left_to_do(share: float | None, state: str) -> None:
    given = make_context(facts(stage_imbalance_share=share), job({"model.pipeline_model_parallel_size": 4, "model.num_layers": 48}), BOOK)
    (fix,) = FixReader(context=given).read(["COM-14"])
    assert fix.state == state
    assert any("shows in traces of several stages only" in line for line in fix.unknown) == (share is None)


@for_each(
    "platform, first",
    ("h100", "16 H100 over InfiniBand"), ("gb200", "DeepSeek-V3 on 256 GB200"),
    ("a100", "8 B200 in one NVLink domain"), (None, "8 B200 in one NVLink domain"),
)  # fmt: skip
def test_what_was_published_of_the_own_platform_is_told_first(platform: str | None, first: str) -> None:
    given = make_context(facts(platform=platform), None, BOOK)
    expected = FixReader(context=given).fix(BOOK.fixes["COM-02"]).expected
    assert expected[0].text.startswith(first)
    assert len(expected) == 5
