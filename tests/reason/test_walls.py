"""Bounds of the walls, the verdict, its sentence and its certainty."""

import msgspec
import pytest

from diagnose.document.device import Spread
from diagnose.document.diagnosis import Cause, Fact, Finding, Verdict, WallBound
from diagnose.knowledge.catalogue import CauseSpec
from diagnose.model.vocabulary import FactValue, Wall
from diagnose.reason.findings import find
from diagnose.reason.walls import bounds, verdict
from diagnose.render.reports.diagnosis.answer import step_time
from diagnose.render.reports.diagnosis.story import headline
from diagnose.render.reports.diagnosis.tables import per
from tests.builders.cases import for_each
from tests.builders.diagnosis import minimal
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job
from tests.builders.records import replace


def walls(**values: FactValue) -> dict[Wall, WallBound]:
    return {bound.wall: bound for bound in bounds(facts(**values), BOOK)}


def judged(**values: FactValue) -> Verdict:
    given = facts(**values)
    return verdict(bounds(given, BOOK), given, BOOK)


def explained(**values: FactValue) -> tuple[tuple[Finding, ...], Verdict]:
    """The findings, and the verdict that knows of them."""
    given = facts(**values)
    found, _ = find(given, job=None, rulebook=BOOK, where={})
    return found, verdict(bounds(given, BOOK), given, BOOK, findings=found)


def test_bounds_and_their_parts() -> None:
    found = walls(
        allocator_ns=400_000, recompute_ns=2_000_000, host_copy_blocking_ns=300_000, data_parallel_blocking_ns=700_000,
        transport_blocking_ns=3_700_000, transport_follow_ns=50_000,
    )  # fmt: skip
    assert (found["memory"].bound_ns, found["memory"].parts) == (
        2_700_000,
        {"recompute": 2_000_000, "blocking_copies": 300_000, "handover": 0, "allocator": 400_000, "restart": 0, "host_ahead": 0},
    )
    assert found["communication"].bound_ns == 3_750_000
    assert found["communication"].parts == {
        "expert": 3_000_000, "data": 700_000, "tensor": 0, "pipeline": 0, "context": 0, "other": 0, "work_behind_it": 50_000,
        "handover": 0, "restart": 0, "freeing": 0, "contention": 0, "message_passing": 0, "beside_transport": 0, "host_in_its_place": 0,
    }  # fmt: skip
    assert found["host_overhead"].bound_ns == 1_600_000, "launch-starved less allocator; host-sync is part of it"
    assert found["compute"].bound_ns == 95_000_000
    assert found["compute"].beside == {"packing_busy": 1_000_000, "packing_exclusive": 100_000, "unexplained_wait": 0}
    assert found["memory"].share == pytest.approx(0.027)
    for bound in found.values():
        assert sum(value or 0 for value in bound.parts.values()) == bound.bound_ns


def test_what_the_profiler_takes_is_no_cpu_overhead_of_the_run() -> None:
    """Half of a step is waiting for a CPU that records stacks; by the trainer's log a step takes no more than compute does."""
    given: dict[str, FactValue] = {
        "compute_busy_ns": 45_000_000, "compute_busy_share": 0.45, "launch_starved_ns": 52_000_000, "launch_starved_share": 0.52,
        "host_work_ns": 51_500_000, "host_sync_ns": 500_000, "allocator_ns": 0, "python_stacks": True, "profiler_starved_ns": 50_000_000,
        "unprofiled_step_ns": 50_000_000, "profiler_slowdown": 1.0,
    }  # fmt: skip
    found, said = explained(**given)
    host = walls(**given)["host_overhead"]
    assert (host.bound_ns, host.parts["profiler"], said.target_wall) == (2_000_000, -50_000_000, "compute")
    assert "50.0 ms more of waiting for the CPU are most likely the profiler's" in said.sentence
    assert "host-launch-starved" not in {one.id for one in found}
    within = {**given, "profiler_slowdown": 0.04}
    assert walls(**within)["host_overhead"].bound_ns == 52_000_000, "two captures differ by as much"


@for_each("busy, cause", (20_000_000, "compute-ungrouped-experts"), (9_000_000, None))
def test_experts_one_by_one_are_the_cause_where_their_products_take_most_of_that_time(busy: int, cause: str | None) -> None:
    found, said = explained(
        expert_gemm_grouped_share=0.0, expert_gemm_kernels_per_step=500, expert_gemm_median_ns=30_000, expert_gemm_busy_ns=busy,
        experts_one_by_one_ns=24_000_000, framework_seen="none",
    )  # fmt: skip
    assert "compute-ungrouped-experts" in {one.id for one in found}
    assert (said.target_wall, said.cause and said.cause.finding) == ("compute", cause)


def test_an_optimizer_on_the_cpu_begins_the_verdict_where_nothing_else_is_offloaded() -> None:
    copies: dict[str, FactValue] = {"host_copy_blocking_ns": 35_000_000, "host_copy_blocking_share": 0.35, "host_gap_excess_ns": 33_000_000}
    given = facts(**copies, host_pauses="HybridDeviceOptimizer.step (33.00 ms)", launch_starved_ns=33_000_000)

    def cause(**settings: object) -> str | None:
        on = job(**settings)
        found, _ = find(given, job=on, rulebook=BOOK, where={})
        said = verdict(bounds(given, BOOK), given, BOOK, on, findings=found)
        assert said.target_wall == "memory"
        return said.sentence if said.cause is not None else None

    said = cause(optimizer__optimizer_cpu_offload=True)
    assert said is not None
    assert said.startswith("The optimizer runs on the CPU, and copies to and from it stall compute for 35.0 ms per step (35.0 %), while")
    assert cause(optimizer__optimizer_cpu_offload=True, model__cpu_offloading=True) is None
    assert cause() is None


@for_each("pauses, headline, bound", (9_000_000, "CPU pauses in turn", 29_000_000), (3_000_000, "Straggler changes", 20_000_000))
def test_pauses_of_all_ranks_in_turn_are_named_and_their_own_part_counts(pauses: int, headline: str, bound: int) -> None:
    """Three others that pause as this rank does would make it wait for 27, or for 9 ms: it waits for 20."""
    found, said = explained(
        rotating_wait_ns=20_000_000, rotating_wait_share=0.2, rotating_saves_ns=20_000_000, rotating_cause="unknown", ranks_captured=4,
        host_gap_excess_ns=pauses, launch_starved_ns=pauses, transport_blocking_ns=20_000_000,
    )  # fmt: skip
    assert said.cause is not None
    assert (said.cause.finding, said.cause.headline) == ("communication-lateness-rotates", headline)
    assert next(one for one in found if one.id == "communication-lateness-rotates").bound_ns == bound


@for_each("calls, of_optimizer, named", (1, 1, False), (3, 3, False), (2, 1, True), (40, 40, True), (2, None, True))
def test_what_the_optimizer_reads_once_a_step_is_no_cause_and_no_plan(calls: int, of_optimizer: int | None, named: bool) -> None:
    """A gradient norm has to be read: what comes late after it is late by itself."""
    waits: dict[str, FactValue] = {
        "launch_starved_ns": 20_000_000, "host_work_ns": 20_000_000, "host_sync_ns": 0, "sync_restart_ns": 18_000_000,
    }  # fmt: skip
    given = {**waits, "sync_calls_per_step": calls, "optimizer_syncs_per_step": of_optimizer, "python_seen": True, "copy_d2h_bytes": 8}
    found, said = explained(**given)
    assert (said.cause is not None and said.cause.finding == "host-synchronisation") is named
    reads = next(fix for one in found if one.id == "host-synchronisation" for fix in one.fixes if fix.id == "HOST-09")
    assert reads.reach_ns == (None if of_optimizer is None else 18_000_000 if named else 0)


@for_each("step", 0, None)
def test_of_a_step_of_no_known_length_there_are_no_shares(step: int | None) -> None:
    assert {bound.share for bound in walls(step_ns=step, transport_blocking_ns=3_700_000).values()} == {None}


def test_parts_may_leave_a_rest_and_missing_or_inferred_facts_weaken_a_bound() -> None:
    found = walls(launch_starved_ns=2_100_000)
    assert found["host_overhead"].parts == {"host_work": 1_500_000, "host_sync": 500_000, "handover": 0, "profiler": 0, "rest": 100_000}
    memory = walls(recompute_ns=None, host_copy_blocking_ns=7_000_000)["memory"]
    assert (memory.bound_ns, memory.share) == (None, None)
    assert memory.parts == {"recompute": None, "blocking_copies": 7_000_000, "handover": 0, "allocator": 0, "restart": 0, "host_ahead": 0}
    found = {bound.wall: bound for bound in bounds(facts(inferred=("transport_blocking_ns",)), BOOK)}
    assert (found["communication"].status, found["memory"].status) == ("inferred", "measured")


@for_each(
    "values, target, runner_up",
    ({}, "compute", "communication"),
    ({"transport_blocking_ns": 10_000_000}, "communication", "compute"),
    ({"transport_blocking_ns": 9_999_999}, "compute", "communication"),
    ({"transport_blocking_ns": 20_000_000, "launch_starved_ns": 15_000_000}, "communication", "host_overhead"),
    ({"transport_blocking_ns": 15_000_000, "launch_starved_ns": 20_000_000}, "host_overhead", "communication"),
    ({"recompute_ns": 30_000_000}, "memory", "compute"),
    ({"recompute_ns": None, "host_copy_blocking_ns": 50_000_000}, "memory", "compute"),
    ({"launch_starved_ns": 50_000_000, "allocator_ns": 45_000_000}, "memory", "compute"),
    ({"launch_starved_ns": None, "allocator_ns": None}, "compute", "communication"),
)
def test_what_to_attack_first(values: dict[str, FactValue], target: str, runner_up: str) -> None:
    found = judged(**values)
    assert (found.target_wall, found.runner_up) == (target, runner_up)


@for_each(
    "values, dominant, target, begins",
    (
        {"transport_blocking_ns": 14_700_000},
        "compute",
        "communication",
        "Compute takes 95.0 % of the step; the largest avoidable loss is communication: ",
    ),
    (
        {"compute_busy_ns": 40_000_000, "compute_busy_share": 0.4, "transport_blocking_ns": 55_000_000},
        "communication",
        "communication",
        "Compute is stalled on communication for at most 55.0 of 100.0 ms per step (55.0 %",
    ),
    ({"transport_blocking_ns": 5_000_000}, "compute", "compute", "Compute dominates: "),
    (
        {"compute_busy_ns": 0, "compute_busy_share": 0.0, "host_copy_blocking_ns": 60_000_000},
        "memory",
        "memory",
        "Memory costs at most 60.0 of 100.0 ms per step (60.0 %",
    ),
    ({"compute_busy_ns": 0, "compute_busy_share": 0.0, "launch_starved_ns": 0}, "communication", None, "No wall can be shown"),
)
def test_where_the_step_goes_and_what_to_attack_are_two_answers(
    values: dict[str, FactValue], dominant: str, target: str | None, begins: str
) -> None:
    found = judged(**values)
    assert (found.dominant_wall, found.target_wall) == (dominant, target)
    assert found.sentence.startswith(begins)
    assert ("largest avoidable loss" in found.sentence) is (target is not None and dominant != target)
    assert ("dominates" in found.sentence) is (dominant == target == "compute")


@for_each(
    "values, tie, runner_up",
    ({"transport_blocking_ns": 20_000_000, "launch_starved_ns": 17_000_001}, True, "host_overhead"),
    ({"transport_blocking_ns": 20_000_000, "launch_starved_ns": 16_900_000}, False, "host_overhead"),
    ({"transport_blocking_ns": 10_000_000, "launch_starved_ns": 8_000_000}, True, "host_overhead"),
    ({"transport_blocking_ns": 8_900_000, "launch_starved_ns": 8_000_000}, False, "communication"),
)
def test_bounds_that_tell_no_order_are_a_tie(values: dict[str, FactValue], tie: bool, runner_up: str) -> None:
    found = judged(allocator_ns=0, **values)
    assert (found.tie, found.runner_up) == (tie, runner_up)
    assert ("tie" in found.sentence) is tie
    assert (found.certainty == "medium") is tie


def test_a_bound_may_be_a_range() -> None:
    book = replace(BOOK, walls=msgspec.structs.replace(BOOK.walls, walls={**BOOK.walls.walls}))
    spec = msgspec.structs.replace(BOOK.walls.walls["communication"], lower="transport_blocking_ns")
    book.walls.walls["communication"] = spec
    found = {bound.wall: bound for bound in bounds(facts(transport_handover_ns=400_000), book)}
    assert (found["communication"].bound_ns, found["communication"].lower_ns, found["memory"].lower_ns) == (3_400_000, 3_000_000, None)
    found = {bound.wall: bound for bound in bounds(facts(), book)}
    assert found["communication"].lower_ns is None, "both ends are the same"


LONGEST_HEADING = 24  # signs: beside its certainty on a page of 400 px
LATE = {
    "straggler_rank": "2", "straggler_wait_share": 0.062, "straggler_saves_share": 0.062, "straggler_last_share": 0.9,
    "straggler_cause": "slow_gpu", "transport_blocking_ns": 12_000_000,
}  # fmt: skip

LOADER = {
    **LATE,
    "straggler_wait_ns": 27_900_000,
    "straggler_saves_ns": 27_900_000,
    "straggler_wait_share": 0.279,
    "straggler_saves_share": 0.279,
    "straggler_cause": "slow_host",
    "straggler_longer_ns": 25_000_000,
    "transport_blocking_ns": 0,
    "launch_starved_ns": 20_000_000,
}


@for_each(
    "values, finding, begins",
    (
        {**LATE, "straggler_wait_ns": 6_200_000, "straggler_saves_ns": 6_200_000},
        "compute-straggler-slow-gpu",
        "Rank 2's GPU is slow: the other ranks wait 6.20 ms per step (6.2 %) for it.",
    ),
    (
        {**LATE, "straggler_wait_ns": 6_200_000, "straggler_saves_ns": 6_200_000, "straggler_with": "rank 5"},
        "compute-straggler-slow-gpu",
        "Rank 2's GPU is slow: the other ranks wait 6.20 ms per step (6.2 %) for it and rank 5, late with it.",
    ),
    (
        {
            "rotating_wait_ns": 7_100_000,
            "rotating_wait_share": 0.071,
            "rotating_saves_ns": 7_100_000,
            "rotating_cause": "vision_work",
            "transport_blocking_ns": 12_000_000,
        },
        "compute-uneven-images",
        "Ranks take turns as the straggler, because images fall unevenly on them: they wait 7.10 ms per step (7.1 %) for each other.",
    ),
    (
        {**LATE, "straggler_wait_ns": 5_800_000, "straggler_saves_ns": 5_800_000},
        None,
        "Compute takes",
    ),  # less than half of what communication loses
    (
        {**LATE, "straggler_wait_ns": 6_200_000, "straggler_saves_ns": 6_200_000, "transport_blocking_ns": 6_200_000},
        None,
        "Compute dominates",
    ),  # communication is no target
    (  # the verdict speaks of the late rank itself, on which nothing waits: what the others lose by it is worth a wall
        {
            **LATE,
            "straggler_wait_ns": 12_000_000,
            "straggler_saves_ns": 12_000_000,
            "straggler_wait_share": 0.12,
            "straggler_saves_share": 0.12,
            "transport_blocking_ns": 6_200_000,
        },
        "compute-straggler-slow-gpu",
        "Rank 2's GPU is slow: the other ranks wait 12.0 ms per step",
    ),
    (
        {**LATE, "straggler_wait_ns": 6_200_000, "straggler_saves_ns": 6_200_000, "straggler_cause": "slow_host"},
        "host-straggler-slow-host",
        "Rank 2 is the straggler because its CPU",
    ),
    (  # the late rank itself is shown, and what its CPU holds up is its target
        {
            **LATE,
            "straggler_wait_ns": 31_000_000,
            "straggler_saves_ns": 31_000_000,
            "straggler_cause": "slow_host",
            "transport_blocking_ns": 0,
            "launch_starved_ns": 30_000_000,
        },
        "host-straggler-slow-host",
        "Rank 2 is the straggler because its CPU",
    ),
    (  # of one late rank that its loader makes late the others' waiting is what is lost, not what its own steps show of it
        {**LOADER, "data_loading_ns": 16_700_000},
        "host-data-loading",
        "Rank 2 is the straggler because of its data loader: the other ranks wait 27.9 ms per step",
    ),
    (
        {**LOADER, "data_loading_ns": 9_500_000, "straggler_wait_ns": 31_000_000, "straggler_saves_ns": 31_000_000},
        "host-straggler-slow-host",
        "Rank 2 is the straggler because its CPU",
    ),
    (  # of a tie what the other ranks wait for is the cause, not what is seen on this rank alone
        {
            **LATE,
            "straggler_wait_ns": 12_000_000,
            "straggler_saves_ns": 12_000_000,
            "straggler_wait_share": 0.12,
            "straggler_saves_share": 0.12,
            "straggler_cause": "slow_host",
            "straggler_launch_ratio": 2.4,
            "transport_blocking_ns": 0,
            "launch_starved_ns": 20_000_000,
            "host_sync_ns": 1_000_000,
            "sync_restart_ns": 12_000_000,
        },
        "host-straggler-slow-cpu",
        "Rank 2 is the straggler because its CPU is slow all over",
    ),
    ({"launch_starved_ns": 20_000_000, "host_gap_excess_ns": 12_000_000}, "host-long-gaps", "A few long CPU stalls between launches"),
    (
        {"unfused_loss_kernels_per_step": 4, "loss_busy_ns": 16_000_000},
        "compute-unfused-loss",
        "The cross-entropy runs as a kernel for each",
    ),
    ({"unfused_loss_kernels_per_step": 4, "loss_busy_ns": 6_000_000}, None, "Compute dominates"),
    ({"launch_starved_ns": 30_000_000, "host_gap_excess_ns": 12_000_000}, None, "Compute takes"),
)
def test_the_cause_goes_before_the_wall(values: dict[str, FactValue], finding: str | None, begins: str) -> None:
    _, said = explained(**values)
    assert (said.cause and said.cause.finding) == finding
    assert said.sentence.startswith(begins)


@for_each("turns, finding", (29_000_000, "compute-uneven-images"), (20_000_000, "communication-uneven-exchanges"))
def test_what_ranks_were_measured_to_wait_is_the_cause_before_what_one_lets_infer(turns: int, finding: str) -> None:
    late = {"data_uneven_ns": 30_000_000, "data_parallel_blocking_ns": 30_000_000, "data_parallel_blocking_share": 0.3}
    blocked = {"transport_blocking_ns": 30_000_000, "transport_blocking_share": 0.3, "compute_busy_ns": 70_000_000}
    waited = {"rotating_wait_ns": turns, "rotating_saves_ns": turns, "rotating_wait_share": turns / 100_000_000}
    _, said = explained(**late, **blocked, rotating_cause="vision_work", **waited)
    assert said.cause is not None
    assert said.cause.finding == finding


def test_the_heading_of_a_verdict_is_its_wall_and_cause_or_a_cause_that_lies_elsewhere() -> None:
    """Not "Communication first" above a sentence that begins with a slow GPU."""
    causes = [(name, cause) for name, rule in BOOK.rules.items() for cause in (rule.cause, rule.late) if cause is not None]
    named = {(name, cause.say): cause.headline or "" for name, cause in causes}
    assert {name: text for name, text in named.items() if not 0 < len(text) <= LONGEST_HEADING} == {}
    found, said = explained(**{**LATE, "straggler_wait_ns": 6_200_000, "straggler_saves_ns": 6_200_000})
    assert headline(msgspec.structs.replace(minimal(), verdict=said, findings=found)) == "Straggler: slow GPU"
    assert headline(msgspec.structs.replace(minimal(), verdict=msgspec.structs.replace(said, cause=None))) == "Communication first"
    found, said = explained(launch_starved_ns=30_000_000, host_gap_excess_ns=28_000_000)
    assert headline(msgspec.structs.replace(minimal(), verdict=said, findings=found)) == "CPU overhead first · Long CPU stalls"


@for_each(
    "rule, values",
    ("host-data-loading", {"data_loading_ns": 10_100_000}),
    ("host-garbage-collection", {"gc_ns": 10_100_000, "gc_ranges_per_step": 1}),
    ("host-long-gaps", {"host_gap_excess_ns": 11_100_000, "host_gap_profiler_ns": 1_000_000}),
    ("host-named-pauses", {"host_gap_excess_ns": 11_100_000, "host_gap_profiler_ns": 1_000_000, "host_pauses": "log (11 ms)"}),
)
def test_what_makes_one_rank_late_bounds_what_the_others_wait_for_it(rule: str, values: dict[str, FactValue]) -> None:
    """A stall before the steps is in fewer of them than the waiting for it: of n windows in n - 1.

    Others do not wait for more than that and a tenth, and the own figure stays where it is more, or no rank is late.
    """

    def bound(**more: FactValue) -> int | None:
        found, _ = find(facts(**{**LOADER, **values, **more}), job=None, rulebook=BOOK, where={})
        return next(one.bound_ns for one in found if one.id == rule)

    own = 10_100_000
    assert bound(straggler_wait_ns=12_000_000, straggler_saves_ns=12_000_000) == 12_000_000
    assert [bound(steps_n=steps) for steps in (2, 5)] == [round(2.2 * own), round(1.1 * 5 / 4 * own)]
    assert bound(steps_n=1) == own, "where no step was cut the whole of it was seen"
    assert [
        bound(straggler_wait_ns=9_000_000, straggler_saves_ns=9_000_000),
        bound(straggler_longer_ns=25_400_000),
        bound(straggler_cause="slow_gpu"),
    ] == [own] * 3
    paced: dict[str, FactValue] = {"straggler_saves_ns": 4_000_000, "straggler_paced_ns": 4_000_000}
    assert bound(**paced) == 4_400_000, "without its lateness another rank sets the pace"
    assert bound(**paced, straggler_longer_ns=8_000_000) == 4_400_000 + own - 8_000_000, "what its peers have as well is won beside"
    assert bound(straggler_saves_ns=11_000_000, straggler_paced_ns=11_000_000) == 11_000_000


def test_a_failure_outranks_every_wall() -> None:
    rule = BOOK.rules["memory-nearly-full"]
    failed = msgspec.structs.replace(rule, cause=CauseSpec(say="The run ran out of memory", outranks=True))
    book = replace(BOOK, rules={**BOOK.rules, rule.id: failed})
    given = facts(**LATE, straggler_wait_ns=12_000_000, straggler_saves_ns=12_000_000)
    found, _ = find(given, job=None, rulebook=BOOK, where={})
    one = msgspec.structs.replace(found[0], id=rule.id, wall="memory", bound_ns=None)
    said = verdict(bounds(given, book), given, book, findings=[*found, one])
    assert said.cause == Cause(finding=rule.id, sentence="The run ran out of memory")


def test_a_capture_of_start_up_alone_gives_no_verdict_and_says_why() -> None:
    call = {"start_up_call": "cudaLaunchKernel of norm", "start_up_call_ns": 331_000_000}
    cold = {"start_up_only": True, "start_up_share": 0.93, "start_up_span_ns": 402_000_000, **call}
    found = verdict(bounds(facts(**cold), BOOK), facts(**cold), BOOK)
    assert (found.dominant_wall, found.target_wall, found.certainty) == (None, None, "low")
    assert "93.0 % of the 402.0 ms from its first call on; the longest is cudaLaunchKernel of norm, 331.0 ms" in found.sentence


def test_below_the_floor_of_evidence_there_is_no_verdict() -> None:
    for few in ({"operations_n": 4}, {"device_busy_ns": 12_000, "steps_n": 4}):
        found = judged(**few)
        assert (found.dominant_wall, found.target_wall, found.runner_up, found.cause, found.certainty) == (None, None, None, None, "low")
        assert found.sentence.startswith("Too little was captured to judge: ")
    assert judged(operations_n=5).target_wall == "compute"


def test_sentence_for_hidden_communication() -> None:
    """The published DeepSeek-V3 training trace: a step of 129.012 ms, transport busy 113.030 ms and exposed 4.149 ms."""
    found = judged(
        step_ns=129_012_000, steps_n=1, step_spread=None, compute_busy_ns=119_243_000, compute_busy_share=0.9243,
        transport_busy_ns=113_030_000, transport_busy_share=0.8761, transport_exposed_ns=4_149_000, transport_blocking_ns=2_029_000,
        transport_blocking_share=0.0157,
    )  # fmt: skip
    assert found.target_wall == "compute"
    assert found.sentence == (
        "Compute dominates: it is active for 119.2 of 129.0 ms per step (92.4 %); "
        "communication runs for 113.0 ms, only 4.15 ms of it exposed, so it is hidden; "
        "the largest other wall is communication with at most 2.03 ms (1.6 %)."
    )
    assert (found.certainty, found.certainty_reasons) == ("medium", ("only one step was captured",))


@for_each(
    "contention, known, said",
    (2_900_000, 1.0, "so it is hidden"),
    (3_100_000, 1.0, "communication runs for 87.0 ms, mostly beside compute, and contention costs compute about 3.10 ms (3.1 %)"),
    (None, None, "so it is hidden; what compute loses beside it could not be estimated"),
    (290_000, 0.012, "so it is hidden; what compute loses beside it could be estimated for 1.2 % of that time only"),
)
def test_a_hidden_exchange_is_not_called_free(contention: int | None, known: float | None, said: str) -> None:
    """Above 3 % of the step the sentence never says that the exchange is hidden without what compute loses beside it."""
    share = None if contention is None else contention / 100_000_000
    told: dict[str, FactValue] = {"contention_ns": contention, "contention_share": share, "contention_known_share": known}
    busy: dict[str, FactValue] = {"transport_busy_ns": 87_000_000, "transport_busy_share": 0.87}
    found = judged(transport_blocking_ns=0, transport_blocking_share=0.0, **told, **busy)
    assert said in found.sentence
    assert ("hidden" in found.sentence) == ("hidden" in said)
    assert ("estimated" in found.sentence) == ("estimated" in said)


@for_each(
    "shown, beside, target, said, certainty",
    # Blocking that events show, waiting beside transport that none shows, in ms of 100
    (20, 0, "communication", "for at most 20.0 of 100.0 ms", "high"),
    (20, 0.4, "communication", "for at most 20.4 of 100.0 ms", "high"),
    (20, 15, "communication", "for between 20.0 and 35.0 of 100.0 ms", "medium"),
    (0, 27, "communication", "for between 0 and 27.0 of 100.0 ms", "low"),
    (2, 4, "compute", "communication with between 2.00 and 6.00 ms", "medium"),
)
def test_waiting_that_no_event_shows_makes_a_range_of_the_bound(
    shown: float, beside: float, target: str, said: str, certainty: str
) -> None:
    values: dict[str, FactValue] = {"transport_blocking_ns": round(shown * 1e6), "beside_transport_ns": round(beside * 1e6)}
    wall, found = walls(**values)["communication"], judged(**values)
    assert (wall.lower_ns, wall.bound_ns) == (round(shown * 1e6) if beside else None, round((shown + beside) * 1e6))
    assert (found.target_wall, found.certainty) == (target, certainty)
    assert said in found.sentence


def test_sentences_for_communication_bounds_partly_known_and_compute_that_is_left() -> None:
    found = judged(transport_blocking_ns=24_000_000, expert_exchange_blocking_ns=22_000_000, data_parallel_blocking_ns=2_000_000)
    assert found.sentence == (
        "Compute takes 95.0 % of the step; the largest avoidable loss is communication: compute is stalled on it for at most 24.0 of "
        "100.0 ms per step (24.0 %; EP all-to-all 22.0 ms, DP collectives 2.00 ms)."
    )
    assert (found.certainty, found.certainty_reasons) == ("high", ())
    found = judged(recompute_ns=None, host_copy_blocking_ns=50_000_000)
    assert found.sentence == (
        "Compute takes 95.0 % of the step; the largest avoidable loss is memory: at least 50.0 of 100.0 ms per step "
        "(50.0 %; blocking copies 50.0 ms)."
    )
    assert found.certainty == "medium"
    found = judged(compute_busy_ns=20_000_000, compute_busy_share=0.2, compute_absent_ns=80_000_000, dependency_stalled_ns=75_000_000)
    assert found.target_wall == "compute"
    assert found.sentence.startswith(
        "No other wall can be shown to reach a tenth of the step, but compute is active for only 20.0 of 100.0 ms per step (20.0 %)"
    )
    assert "another 75.0 ms of waiting has no known cause" in found.sentence
    assert found.certainty == "low"


def test_where_nothing_trains_a_step_is_an_iteration() -> None:
    found = judged(is_training=False)
    assert "per iteration" in found.sentence
    assert "step" not in found.sentence
    document = minimal()
    shown = msgspec.structs.replace(
        document,
        steps=msgspec.structs.replace(document.steps, anchor="range decode", n=2, duration_ns=Spread(median=9, min=8, max=10, n=2, mean=9)),
        facts={**document.facts, "is_training": Fact(value=False, unit="bool", status="measured")},
    )
    assert (step_time(shown).split()[0], per(shown)) == ("iteration", "per iteration")


def test_without_an_anchor_nothing_is_per_step() -> None:
    found = judged(steps_anchored=False, steps_n=1, step_spread=None)
    assert "per step" not in found.sentence
    assert "ms in the whole capture" in found.sentence
    assert found.certainty == "low"
    found = judged(steps_anchored=False, steps_n=1, step_spread=None, start_up_cut=True)
    assert "ms after start-up" in found.sentence


def test_what_is_left_out_for_work_of_before_the_capture_is_said() -> None:
    left_out = "450.0 ms before that are left out, in which the GPU most likely worked on what had been launched before the capture"
    assert f"{left_out}." in judged(unseen_work_ns=450_000_000).sentence
    named = judged(unseen_work_ns=450_000_000, unseen_work_call="cudaMemcpy")
    assert f"{left_out}, while the CPU waited in cudaMemcpy." in named.sentence


def test_what_the_host_did_before_the_only_step_s_first_operation_is_said_beside_the_figures() -> None:
    led = {"steps_n": 1, "step_spread": None, "step_lead_ns": 110_000_000, "step_lead_range": "preprocess"}
    found = judged(**led)
    assert (
        "before its first operation on the GPU the CPU worked 110.0 ms more of the step, in preprocess, which none of these"
        in found.sentence
    )
    assert (found.certainty, found.certainty_reasons[0]) == ("low", "the step began 110.0 ms before the figures do")
    assert judged(**led, launch_starved_ns=40_000_000).certainty == "medium"  # it would only make the first target larger
    assert "before its first operation" not in judged(**{**led, "step_lead_ns": 10_000_000}).sentence


@for_each(
    "values, level, reason",
    ({"steps_n": 2}, "medium", "only two steps were captured"),
    ({"step_spread": 0.3}, "medium", "step times differ by 30.0 % of the median"),
    ({"clock_apart_ns": 90_000}, "low", "GPU times contradict the CPU's both ways, by 0.090 ms: no one shift mends that"),
    ({"clock_moved_ns": 294_000}, "medium", "GPU times contradicted the CPU's by 0.294 ms and were moved"),
    ({"lost_event_warnings": 1}, "medium", "the profiler warns that events may be missing"),
    ({"dependency_stalled_ns": 6_000_000}, "medium", "6.00 ms of waiting per step has no known cause"),
    ({"dependency_stalled_ns": 31_000_000}, "low", "31.0 ms of waiting per step has no known cause"),
    ({"transport_blocking_ns": 11_900_000}, "medium", "communication lies only just above a tenth of the step"),
    ({"transport_blocking_ns": 9_100_000}, "medium", "communication lies only just below a tenth of the step"),
    ({"correlation_rate": 0.95}, "medium", "the launch was found for only 95.0 % of the device operations"),
    ({"correlation_rate": 0.5}, "low", "the launch was found for only 50.0 % of the device operations"),
    (
        {"resolved_wait_rate": 0.4, "compute_absent_ns": 30_000_000, "blocking_upper_ns": 9_000_000},
        "low",
        "only 40.0 % of stream waits could be resolved",
    ),
    ({"resolved_wait_rate": 0.8, "compute_absent_ns": 30_000_000}, "medium", "only 80.0 % of stream waits could be resolved"),
    (
        {"blocking_inferred_share": 0.6, "blocking_ns": 6_000_000},
        "medium",
        "60.0 % of the stalls were inferred from times, not read from recorded dependencies",
    ),
    ({"python_stacks": True, "launch_starved_share": 0.022}, "medium", "Python stacks were recorded, which slows the CPU"),
    ({"opaque_graph_share": 0.2}, "low", "20.0 % of kernel time lies inside CUDA graphs traced as a whole"),
    ({"other_share": 0.2}, "medium", "20.0 % of kernel time is unclassified"),
    ({"launch_starved_ns": None}, "low", "no launch was recorded, so CPU overhead is unknown"),
)
def test_certainty(values: dict[str, FactValue], level: str, reason: str) -> None:
    found = judged(**values)
    assert found.certainty == level
    assert reason in found.certainty_reasons


def test_what_is_as_low_as_the_certainty_is_told_first_and_names_the_finding_that_says_the_same() -> None:
    found = judged(other_share=0.2, correlation_rate=0.7)
    assert found.certainty_reasons == (
        "the launch was found for only 70.0 % of the device operations",
        "20.0 % of kernel time is unclassified",
    )
    assert found.certainty_findings == ("capture-low-correlation", "capture-unclassified-time")
    assert (found.hidden, judged(other_share=0.1).hidden, judged(other_share=None).hidden) == (True, False, False)


def test_a_handful_of_operations_is_no_evidence() -> None:
    operations, time = "only 99 device operations were captured", "less than 1 ms of GPU time was captured"
    for few, said in (({"operations_n": 99}, operations), ({"device_busy_ns": 200_000, "steps_n": 4}, time)):
        found = judged(**few)
        assert (found.certainty, found.certainty_reasons) == ("low", (said,)), few
    assert judged(operations_n=99, device_busy_ns=200_000, steps_n=4).certainty_reasons == (operations,), "one of them is enough to say"
    for enough in ({"operations_n": 100}, {"device_busy_ns": 250_000, "steps_n": 4}):
        assert judged(**enough).certainty_reasons == (), enough


def test_late_launches_that_the_bound_leaves_out_are_told_beside_it() -> None:
    """The bar shows all of them, the bound what a faster CPU would win: one figure stood for both."""
    late = {"launch_starved_ns": 40_000_000, "host_work_ns": 40_000_000, "host_sync_ns": 0}
    assert "more of late launches" not in judged(**late, launch_shadowed_ns=400_000).sentence
    told = judged(**late, launch_shadowed_ns=3_000_000).sentence
    assert "next kernel not launched 37.0 ms" in told
    assert "3.00 ms more of late launches would win nothing" in told


def test_without_a_kernel_nothing_is_judged() -> None:
    """Copies and memory sets alone show neither what computes nor what it waits for; communication alone does show a wall."""
    empty = {"compute_busy_ns": 0, "compute_absent_ns": 100_000_000, "allocator_ns": 60_000_000}
    found = judged(**empty, transport_busy_ns=0)
    assert (found.dominant_wall, found.target_wall, found.certainty) == (None, None, "low")
    assert found.sentence.startswith("No kernel was captured, only ")
    assert judged(**empty, transport_busy_ns=1_000_000).target_wall == "memory"


def test_unresolved_waits_do_not_matter_where_what_was_inferred_is_all_that_they_could_be() -> None:
    inferred = {"resolved_wait_rate": 0.0, "compute_absent_ns": 30_000_000, "blocking_inferred_share": 0.97}
    waits = {"transport_blocking_ns": 25_000_000, "blocking_ns": 25_000_000}
    assert judged(**inferred, **waits, blocking_upper_ns=27_000_000).certainty == "medium"
    assert judged(**inferred, **waits, blocking_upper_ns=29_000_000).certainty == "low"


@for_each(
    "values",
    {"dependency_stalled_ns": 6_000_000, "transport_handover_ns": 2_000_000},  # waiting that goes with a wall is owned
    {"step_spread": 0.2},  # steps that differ are no error of the verdict
    {"python_stacks": True, "launch_starved_share": 0.018},  # stacks slow a CPU for which nothing waits
    {"resolved_wait_rate": 0.0},  # nothing waits
)
def test_what_lowers_no_certainty(values: dict[str, FactValue]) -> None:
    assert judged(**values).certainty == "high"


@for_each(
    "values, expected",
    ({}, False),
    ({"python_stacks": True, "launch_starved_share": None}, True),
    ({"python_stacks": True, "launch_starved_share": 0.018}, False),  # the GPU never waits for the CPU
    ({"python_stacks": True, "launch_starved_share": 0.022}, True),
    ({"profiler_overhead_ns": 26_000_000}, True),
    ({"profiler_overhead_ns": 24_000_000}, False),
    ({"python_stacks": None}, False),
)
def test_perturbed(values: dict[str, FactValue], expected: bool) -> None:
    assert judged(**values).perturbed is expected
