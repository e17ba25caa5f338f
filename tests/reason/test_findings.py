"""Findings: their order, their bounds, their status, and what could not be assessed."""

from __future__ import annotations

import pytest

from diagnose.document.diagnosis import Fact, Finding, NotAssessed, Where
from diagnose.job import Job
from diagnose.model.vocabulary import FactValue
from diagnose.reason.findings import find
from tests.builders.facts import BOOK, CLEAN, facts
from tests.builders.jobs import A1, job

# The published case of 41.25 s per step: the expert exchange blocks about a quarter of it.
COMMUNICATION_BOUND = facts(
    step_ns=41_250_000_000,
    launch_starved_ns=1_000_000_000,
    host_work_ns=900_000_000,
    host_sync_ns=100_000_000,
    transport_blocking_ns=9_000_000_000,
    transport_blocking_share=0.2182,
    expert_exchange_busy_ns=12_000_000_000,
    expert_exchange_exposed_ns=9_100_000_000,
    expert_exchange_blocking_ns=9_000_000_000,
    expert_exchange_blocking_share=0.2182,
)


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
        "Compute was issued and waited 9,000 ms per step (21.8 %) for expert dispatch or combine (nccl); "
        "the exchange runs for 12,000 ms, 9,100 ms of it with nothing else running."
    )


def test_a_clean_run_has_no_finding() -> None:
    assert found_with(facts()) == {}


def test_findings_are_ordered_by_bound_then_severity() -> None:
    given = facts(
        launch_starved_ns=20_000_000,
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


def test_hidden_communication_claims_no_saving() -> None:
    found = found_with(facts(transport_busy_share=0.876, transport_blocking_share=0.0157, transport_hidden_share=0.963))
    hidden = found["communication-hidden"]
    assert (hidden.bound_ns, hidden.speedup_ceiling, hidden.severity, hidden.fixes) == (None, None, "medium", ())


def test_an_inferred_fact_weakens_the_claim() -> None:
    given = facts(inferred=("expert_exchange_blocking_ns",), expert_exchange_blocking_ns=4_000_000, expert_exchange_blocking_share=0.04)
    assert found_with(given)["communication-blocking-expert-exchange"].status == "inferred"


def test_configured_but_not_active() -> None:
    on = job({**A1, "model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "deepep"})
    finding = found_with(facts(), on)["communication-dispatcher-not-active"]
    said = "The job file asks for deepep under the flex dispatcher, but the exchange in the trace runs on nccl (100.0 % of it on NCCL)."
    assert (finding.summary, finding.severity) == (said, "high")
    graphs = found_with(facts(graph_launches_per_step=0), job(model__cuda_graph_impl="transformer_engine"))
    assert graphs["host-graphs-not-replayed"].severity == "high"


def test_a_backend_under_another_dispatcher_type_is_only_a_hint() -> None:
    found = found_with(facts(), job(model__moe_flex_dispatcher_backend="deepep"))
    assert "communication-dispatcher-not-active" not in found
    hint = found["communication-backend-without-flex"]
    assert hint.severity == "low"
    assert hint.summary == (
        "The job file names deepep, but a backend counts only under the flex dispatcher, and the type is alltoall; "
        "the exchange in the trace runs on nccl."
    )


def test_evidence_leaves_out_what_was_not_measured() -> None:
    evidence = found_with(COMMUNICATION_BOUND)["communication-blocking-expert-exchange"].evidence
    names = [item.fact for item in evidence]
    assert "expert_exchange_blocking_ns" in names
    assert "expert_exchange_count" not in names
    assert {item.fact: (item.value, item.unit) for item in evidence}["expert_exchange_backend"] == ("nccl", "text")


def test_a_missing_fact_makes_a_rule_not_assessed() -> None:
    unknown = unknown_with(gc_ns=None)
    assert unknown["host-garbage-collection"].missing == ("gc_ns",)
    assert unknown["host-garbage-collection"].how.startswith("gc_ns: the trace holds no range that would show garbage collection.")
    assert "host-garbage-collection" not in unknown_with(gc_ns=0)


def test_a_missing_setting_makes_a_rule_not_assessed() -> None:
    without = unknown_with()["memory-full-recompute-configured"]
    assert without.missing == ("job_recompute_granularity",)
    assert without.how == "Give the job file (--config), which says recompute_granularity."
    silent = unknown_with(job())["capture-benchmark-only"]
    assert silent.how == "The job file does not say moe_router_force_load_balancing."


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


def test_without_an_anchor_summaries_do_not_say_per_step() -> None:
    found = found_with(facts(COMMUNICATION_VALUES, steps_anchored=False))
    assert "4.00 ms in the whole capture (4.0 %)" in found["communication-blocking-expert-exchange"].summary


def test_a_bound_of_the_whole_step_gives_no_ceiling() -> None:
    found = found_with(facts(launch_starved_ns=100_000_000))["host-launch-starved"]
    assert (found.bound_ns, found.speedup_ceiling) == (100_000_000, None)
