"""What stands first: the findings, the target wall ahead, and their fixes."""

import pytest
from msgspec import structs

from diagnose.document.diagnosis import Finding, PlanStep
from diagnose.job import Job
from diagnose.knowledge.catalogue import CauseSpec
from diagnose.model.vocabulary import FactValue
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader, find
from diagnose.reason.plan import of_numerics, on_all_walls, plan_of
from diagnose.reason.walls import bounds, verdict
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import A1, job, parse_job
from tests.builders.records import replace

HOST: dict[str, FactValue] = {"launch_starved_ns": 16_000_000, "host_work_ns": 16_000_000, "host_sync_ns": 0, "sync_restart_ns": 0}
CHAINS: dict[str, FactValue] = {"elementwise_busy_ns": 30_000_000, "compute_busy_ns": 80_000_000}


def ids(on: Job | None = None, **values: FactValue) -> list[str]:
    given = facts(**values)
    return [one.id for one in find(given, job=on, rulebook=BOOK, walls=bounds(given, BOOK))[0]]


def first_fixes(finding: str, on: Job | None = None, **values: FactValue) -> list[str]:
    given = facts(**values)
    found = next(one for one in find(given, job=on, rulebook=BOOK, walls=bounds(given, BOOK))[0] if one.id == finding)
    return [fix.id for fix in found.fixes if fix.state in {"applicable", "unknown"}]


@for_each("pageable, rare, on, state",
    (9, 0.99, None, "applicable"),
    (4, 0.99, None, "unknown"),
    (9, 0.89, None, "unknown"),
    (None, 0.99, None, "unknown"),
    (9, 0.99, {"checkpoint.async_save": True}, "already_on"),
)  # fmt: skip
def test_a_save_whose_copies_go_through_ordinary_memory_is_not_asynchronous(
    pageable: int | None, rare: float, on: dict[str, FactValue] | None, state: str
) -> None:
    """A saver beside the step copies into page-locked memory: what the trace shows needs no job file, so that its fix leads the plan."""
    copied: dict[str, FactValue] = {
        "host_copy_blocking_ns": 10_000_000, "host_copy_blocking_share": 0.1, "host_copy_handover_ns": 0, "host_copy_restart_ns": 0,
        "copy_d2h_bytes": 80_000_000, "copy_h2d_bytes": 1000, "copy_d2h_rare_share": rare,
        "pageable_copy_ns": None if pageable is None else pageable * 1_000_000, "framework_seen": "megatron",
    }  # fmt: skip
    context = make_context(facts(**copied), None if on is None else job(on), BOOK)
    assert FixReader(context=context).fix(BOOK.fixes["CPY-04"]).state == state


@for_each("padding, fused, first", (0, 60, []), (8, 60, ["CMP-07"]), (8, 0, ["CMP-03", "CMP-07"]))
def test_the_router_is_to_pad_where_kernels_do_and_what_is_not_fused_goes_first(padding: int, fused: int, first: list[str]) -> None:
    packed: dict[str, FactValue] = {"packing_busy_share": 0.2, "packing_busy_ns": 20_000_000, "packing_exclusive_ns": 20_000_000}
    kernels = {"permutation_kernels_per_step": 60, "fused_permutation_kernels_per_step": fused, "padding_kernels_per_step": padding}
    on = job({"mixed_precision.fp8": "hybrid", "model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "hybridep"})
    assert first_fixes("compute-packing-overhead", on, **{**H100, **packed, **kernels, "has_experts": True}) == first


@for_each("kernels, unfused, fused", (24, 0.9, False), (24, 0.3, True), (900, 0.0, False))
def test_an_update_that_is_fused_already_is_told_from_loops_and_foreach(kernels: int, unfused: float, *, fused: bool) -> None:
    update: dict[str, FactValue] = {"optimizer_busy_ns": 20_000_000, "optimizer_kernels_per_step": kernels, "unfused_update_share": unfused}
    assert ("CMP-17" not in first_fixes("compute-optimizer-heavy", None, **update)) is fused


@for_each("optimizer, first", ("muon", "CMP-16"), ("adam", "CMP-17"))
def test_an_update_of_matrix_products_is_to_be_shared_out_matrix_by_matrix(optimizer: str, first: str) -> None:
    on = job(
        {
            "optimizer.optimizer": optimizer,
            "ddp.use_distributed_optimizer": False,
            "optimizer.use_distributed_optimizer": False,
            "world_size": 64,
        }
    )
    assert first_fixes("compute-optimizer-heavy", on, optimizer_busy_ns=60_000_000, unfused_update_share=0.0)[0] == first


@for_each("batches, long_steps, first", (None, 2, "HOST-03"), (None, None, "HOST-11"), (3_000_000, 2, "HOST-03"), (9_000_000, 2, "HOST-10"))
def test_long_stalls_where_batches_are_fetched_are_the_loader_s_first(batches: int | None, long_steps: int | None, first: str) -> None:
    pauses: dict[str, FactValue] = {**HOST, "host_gap_excess_ns": 10_000_000, "batch_pauses_ns": batches, "long_steps_n": long_steps}
    assert first_fixes("host-long-gaps", **pauses)[0] == first
    loading = facts(**pauses, data_loading_ns=3_000_000)  # what a range of the loader names is no part of what nothing names
    found = find(loading, job=None, rulebook=BOOK, walls=bounds(loading, BOOK))[0]
    assert {fix.id: fix.reach_ns for one in found if one.id == "host-long-gaps" for fix in one.fixes}["HOST-10"] == (batches or 0)


@for_each("most, first", ("log_metrics", "HOST-11"), ("optimizer_step", "CPY-02"))
def test_an_offloaded_optimizer_is_the_answer_where_most_of_the_pauses_is_its_own(most: str, first: str) -> None:
    named: dict[str, FactValue] = {"host_pauses": "log_metrics (16 ms), optimizer_step (3 ms)", "host_pause_most": most}
    on = job({"optimizer.optimizer_cpu_offload": True, "optimizer.optimizer_offload_fraction": 1.0})
    assert first_fixes("host-named-pauses", on, **{**HOST, **named}, host_gap_excess_ns=19_000_000)[0] == first


@for_each("layers, state", (4_000_000, "applicable"), (None, "unknown"), (1_000_000, "unknown"))
def test_code_in_every_layer_is_known_to_be_the_program_s_own(layers: int | None, state: str) -> None:
    given = facts(**HOST, host_gap_excess_ns=10_000_000, layer_pauses_ns=layers)
    found = find(given, job=job(), rulebook=BOOK, walls=bounds(given, BOOK))[0]
    states = {fix.id: fix.state for one in found if one.id == "host-long-gaps" for fix in one.fixes}
    assert states["HOST-11"] == state


@for_each("chains, first", (12_000_000, "host-launch-starved"), (40_000_000, "compute-unfused-pointwise"))
def test_the_target_wall_goes_first_but_for_what_is_larger_than_all_of_it(chains: int, first: str) -> None:
    pieces: dict[str, FactValue] = {**HOST, "host_sync_ns": 1_500_000, "host_gap_excess_ns": 4_000_000, "host_work_ns": 14_500_000}
    assert ids(**{**pieces, **CHAINS}, pointwise_chain_ns=chains)[0] == first


TOWER: dict[str, FactValue] = {"vision_encoder_share": 0.5, "vision_encoder_busy_ns": 50_000_000, "vision_encoder_backward_ns": 30_000_000}


def test_what_only_another_training_wins_is_no_larger_loss_than_the_target_wall() -> None:
    found = ids(**HOST, **TOWER, host_gap_excess_ns=4_000_000)
    assert found.index("compute-vision-encoder-heavy") > found.index("host-launch-starved")


def test_precision_that_wins_more_than_the_target_wall_goes_first() -> None:
    found = ids(**{**HOST, **CHAINS}, host_gap_excess_ns=4_000_000, fp32_product_busy_ns=60_000_000)
    assert found.index("compute-fp32-products") < found.index("host-launch-starved")


@for_each("frozen, found, fix", (True, "compute-frozen-vision-backward", "VLM-13"), (False, "compute-vision-encoder-heavy", "VLM-01"))
def test_a_frozen_tower_with_a_backward_pass_is_not_told_to_be_frozen(*, frozen: bool, found: str, fix: str) -> None:
    on = job({"model.freeze_vision_model": frozen})
    assert [name for name in ids(on, **TOWER) if "vision" in name and name.endswith(("backward", "heavy"))] == [found]
    assert first_fixes(found, on, **TOWER)[0] == fix


def test_a_frozen_tower_with_a_backward_pass_is_mended_before_idle_sms() -> None:
    """It is seen to run, so no code has to be read first; idle SMs take many changes, and most of them may be the tower's."""
    on = job({"model.freeze_vision_model": True})
    idle: dict[str, FactValue] = {"compute_fill": 0.59, "compute_busy_ns": 85_000_000, "opaque_graph_share": 0.0}
    found, *_ = find(facts(**TOWER, **idle), job=on, rulebook=BOOK)
    both = [one for one in found if one.id in ("compute-frozen-vision-backward", "compute-low-fill")]
    assert [one.id for one in both] == ["compute-frozen-vision-backward", "compute-low-fill"]
    assert (both[0].fixes[0].id, both[0].fixes[0].state) == ("VLM-13", "applicable")


def test_where_compute_is_the_target_the_order_is_by_severity() -> None:
    found = ids(
        **{**CHAINS, "pointwise_chain_ns": 20_000_000, "launch_starved_ns": 6_000_000, "host_work_ns": 6_000_000, "host_sync_ns": 0}
    )
    assert found[:2] == ["compute-unfused-pointwise", "host-launch-starved"]


@for_each("loading, first", (7_000_000, "host-data-loading"), (3_000_000, "host-launch-starved"))
def test_one_change_goes_before_many_that_win_little_more(loading: int, first: str) -> None:
    assert ids(**{**HOST, "data_loading_ns": loading})[0] == first


@for_each("loading, first", (11_000_000, "host-data-loading"), (9_000_000, "communication-blocking-expert-exchange"))
def test_one_severe_change_goes_before_a_larger_target_wall(loading: int, first: str) -> None:
    exchange: dict[str, FactValue] = {"expert_exchange_blocking_ns": 14_000_000, "expert_exchange_blocking_share": 0.14}
    waits: dict[str, FactValue] = {"transport_blocking_ns": 14_000_000, "launch_starved_ns": loading, "host_work_ns": loading}
    assert ids(**exchange, **waits, host_sync_ns=0, sync_restart_ns=0, data_loading_ns=loading)[0] == first


@for_each("syncs, first", (40, "HOST-08"), (4, "HOST-12"))
def test_reads_that_no_dispatch_waits_for_are_no_token_counts(syncs: int, first: str) -> None:
    on = job({"ddp.check_for_nan_in_grad": True})
    waits: dict[str, FactValue] = {"host_sync_ns": 1_000_000, "sync_restart_ns": 9_000_000, "sync_calls_per_step": 40}
    assert first_fixes("host-synchronisation", on, **waits, dispatch_syncs_per_step=syncs)[0] == first


@for_each("layers, first", (12, "HOST-09"), (24, "HOST-12"))
def test_reads_in_every_layer_are_no_check_for_nan(layers: int, first: str) -> None:
    """40 reads in two micro-batches: of 12 layers each has one, and of 24 not."""
    flags = f"--num-layers {layers} --micro-batch-size 1 --global-batch-size 2 --check-for-nan-in-loss-and-grad"
    on = parse_job(f"torchrun --nproc_per_node 1 pretrain_gpt.py {flags}", source="job.sh")
    waits: dict[str, FactValue] = {"host_sync_ns": 1_000_000, "sync_restart_ns": 9_000_000, "sync_calls_per_step": 40}
    assert first_fixes("host-synchronisation", on, **waits, dispatch_syncs_per_step=0)[0] == first


def test_a_note_does_not_outrank_what_takes_the_step() -> None:
    on = job(model__cuda_graph_impl="transformer_engine")
    found = ids(on, graph_launches_per_step=0, expert_exchange_blocking_ns=4_000_000, expert_exchange_blocking_share=0.04)
    assert found.index("communication-blocking-expert-exchange") < found.index("host-graphs-not-replayed")


def test_a_failure_outranks_everything() -> None:
    rule = structs.replace(BOOK.rules["capture-no-steps"], cause=CauseSpec(say="The run ran out of memory", outranks=True))
    given = facts(**HOST, steps_anchored=False)
    found, _ = find(given, job=None, rulebook=replace(BOOK, rules={**BOOK.rules, rule.id: rule}), walls=bounds(given, BOOK))
    assert [one.id for one in found][:2] == [rule.id, "host-launch-starved"]


def test_a_slow_gpu_of_another_rank_is_the_cause_where_no_wall_of_this_rank_is_one() -> None:
    late: dict[str, FactValue] = {
        "straggler_rank": "0", "straggler_cause": "slow_gpu", "straggler_wait_ns": 24_000_000, "straggler_saves_ns": 24_000_000,
        "straggler_wait_share": 0.24, "straggler_saves_share": 0.24,
    }  # fmt: skip
    given = facts(**late)
    found, _ = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))
    said = verdict(bounds(given, BOOK), given, BOOK, findings=found)
    assert said.target_wall == "compute"
    assert found[0].id == "compute-straggler-slow-gpu"
    assert said.sentence.startswith("Rank 0's GPU is slow: the other ranks wait 24.0 ms per step (24.0 %) for it. Compute dominates")
    little = facts(
        **{
            **late,
            "straggler_wait_ns": 9_000_000,
            "straggler_saves_ns": 9_000_000,
            "straggler_wait_share": 0.09,
            "straggler_saves_share": 0.09,
        }
    )
    assert verdict(bounds(little, BOOK), little, BOOK, findings=find(little, job=None, rulebook=BOOK)[0]).cause is None


def test_a_slow_gpu_is_the_cause_where_it_costs_the_others_more_than_all_of_its_own_target() -> None:
    late: dict[str, FactValue] = {
        "straggler_rank": "0",
        "straggler_cause": "slow_gpu",
        "straggler_wait_ns": 30_000_000,
        "straggler_saves_ns": 30_000_000,
        "straggler_saves_share": 0.3,
        "straggler_longer_ns": 20_000_000,  # the others wait for its CPU too
    }
    gaps: dict[str, FactValue] = {"launch_starved_ns": 14_000_000, "host_work_ns": 14_000_000, "host_gap_excess_ns": 12_000_000}

    def said(**changed: FactValue) -> tuple[str | None, str | None, int | None]:
        given = facts(**{**late, **gaps, **changed})
        found, _ = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))
        told = verdict(bounds(given, BOOK), given, BOOK, findings=found)
        slow = next(one for one in found if one.id == "compute-straggler-slow-gpu")
        return told.target_wall, told.cause and told.cause.finding, slow.bound_ns

    assert said() == ("host_overhead", "compute-straggler-slow-gpu", 22_000_000)
    assert said(straggler_longer_ns=10_000_000) == ("host_overhead", "host-long-gaps", 11_000_000)
    assert said(straggler_longer_ns=None)[2] == 30_000_000


def test_experts_one_by_one_and_waiting_in_every_layer_put_their_fixes_first() -> None:
    single: dict[str, FactValue] = {"expert_gemm_grouped_share": 0.0, "launch_calls_per_step": 1000, "expert_gemm_kernels_per_step": 500}
    assert first_fixes("host-launch-starved", job(model__moe_grouped_gemm=False), **HOST, **single)[0] == "CMP-01"
    assert first_fixes("host-launch-starved", job(), **HOST)[0] == "HOST-01"
    waits: dict[str, FactValue] = {**HOST, "host_sync_ns": 3_000_000, "host_work_ns": 13_000_000}
    flex, deepep = (
        job({**A1, "model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": name}) for name in ("hybridep", "deepep")
    )
    assert first_fixes("host-launch-starved", flex, **waits, sync_calls_per_step=8)[0] == "HOST-09", (
        "HybridEP asks for no counts: reads are the program's"
    )
    assert first_fixes("host-launch-starved", deepep, **waits, sync_calls_per_step=8)[:2] == ["HOST-08", "HOST-09"]
    assert first_fixes("host-launch-starved", flex, **waits, sync_calls_per_step=3)[0] == "HOST-01"
    assert first_fixes("host-launch-starved", job(), **waits, sync_calls_per_step=8)[0] == "HOST-01", "the dispatcher's own lie outside"
    once = first_fixes("host-launch-starved", **HOST, sync_calls_per_step=1)
    assert once
    assert "HOST-09" not in once, "one read per step is not why a step of hundreds of launches is launch-bound"


@for_each("trains, told", (True, True), (None, True), (False, False))
def test_where_nothing_trains_no_text_sends_to_a_trainer_s_log(trains: bool | None, told: bool) -> None:
    given = facts(**HOST, launch_starved_share=0.16, python_stacks=True, is_training=trains)
    found = {one.id: one for one in find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))[0]}
    assert ("trainer's log" in found["capture-perturbed"].check) is told
    assert ("(--log)" in found["host-launch-starved"].wrong_when) is told


@for_each("down, up, free", (0, 0, True), (8, 0, False), (0, 8, False), (None, None, False))
def test_calls_that_wait_where_nothing_is_copied_read_no_values_that_a_graph_could_not_hold(
    down: int | None, up: int | None, free: bool
) -> None:
    waits: dict[str, FactValue] = {**HOST, "framework_seen": "none", "copy_d2h_bytes": down, "copy_h2d_bytes": up}
    assert ("HOST-02" in first_fixes("host-launch-starved", **waits, sync_calls_per_step=8)) is free


@for_each("compute, hides", (60_000_000, True), (40_000_000, False), (None, True))
def test_copies_that_take_longer_than_compute_are_not_told_to_hide_beside_it(compute: int | None, hides: bool) -> None:
    given = facts(host_copy_blocking_ns=50_000_000, host_copy_blocking_share=0.5, pageable_copy_ns=0, compute_busy_ns=compute)
    found = next(one for one in find(given, job=None, rulebook=BOOK)[0] if one.id == "memory-blocking-copies")
    (change,) = next(fix.changes for fix in found.fixes if fix.id == "CPY-03")
    assert (("ahead" in change.to), ("only a part of them can hide" in change.to)) == (hides, not hides)


def test_pinned_copies_are_told_to_come_earlier_not_to_be_pinned() -> None:
    blocking: dict[str, FactValue] = {"host_copy_blocking_ns": 50_000_000, "host_copy_blocking_share": 0.5}
    assert "CPY-01" not in first_fixes("memory-blocking-copies", **blocking, pageable_copy_ns=0)
    assert "CPY-03" in first_fixes("memory-blocking-copies", **blocking, pageable_copy_ns=0)
    assert "CPY-01" in first_fixes("memory-blocking-copies", **blocking, pageable_copy_ns=40_000_000)


@for_each(
    "share, finding",
    (0.0, "communication-blocking-all-to-all"),
    (0.9, "communication-blocking-other"),
    (None, "communication-blocking-other"),
)
def test_an_all_to_all_of_an_unknown_group_is_no_gradient_reduction(share: float | None, finding: str) -> None:
    values: dict[str, FactValue] = {"other_collective_blocking_ns": 20_000_000, "other_collective_blocking_share": 0.2}
    told = first_fixes(finding, **values, other_reduction_share=share, transport_busy_ns=20_000_000)
    assert ({"COM-10", "COM-11"} & set(told) == set()) == (finding == "communication-blocking-all-to-all")


def test_an_opaque_graph_says_how_to_look_into_it() -> None:
    found, _ = find(facts(opaque_graph_share=1.0), job=None, rulebook=BOOK)
    assert "--cuda-graph-trace=node" in next(one for one in found if one.id == "capture-opaque-graphs").summary


def test_a_rank_late_by_its_own_wall_goes_before_a_part_of_it() -> None:
    late: dict[str, FactValue] = {
        "straggler_rank": "1", "straggler_cause": "slow_host", "straggler_wait_ns": 15_000_000, "straggler_saves_ns": 15_000_000,
        "straggler_wait_share": 0.15, "straggler_saves_share": 0.15,
    }  # fmt: skip
    assert ids(**{**HOST, **late}, host_gap_excess_ns=8_000_000)[0] == "host-straggler-slow-host"


@for_each("gathered, reduction, gather", (3_000_000, 6_000_000, 9_000_000), (None, 9_000_000, 9_000_000))
def test_a_fix_that_is_about_a_part_of_the_finding_promises_no_more(gathered: int | None, reduction: int, gather: int) -> None:
    """Of 9 ms that compute is stalled on data parallelism 3 are gathers: overlapped reductions win 6 at most, both overlaps all of it."""
    given = facts(data_parallel_blocking_ns=9_000_000, data_parallel_blocking_share=0.09, data_gather_blocking_ns=gathered, **H100, **NCCL)
    walls, own = (
        bounds(given, BOOK),
        job(ddp__overlap_grad_reduce=False, ddp__overlap_param_gather=False, ddp__use_distributed_optimizer=True),
    )
    found, _ = find(given, job=own, rulebook=BOOK, walls=walls)
    steps = {one.fix: one for one in plan_of(found, verdict(walls, given, BOOK, findings=found), 100_000_000)}
    assert (steps["COM-10"].bound_ns, steps["COM-11"].bound_ns) == (reduction, gather)
    assert steps["COM-10"].speedup_ceiling == pytest.approx(100_000_000 / (100_000_000 - reduction))


@for_each("busy, first", (1_000_000, "host-launch-starved"), (35_000_000, "compute-ungrouped-experts"))
def test_experts_one_by_one_win_their_own_time_however_many_findings_ask_for_groups(busy: int, first: str) -> None:
    """Late launches are a finding of the CPU, the experts one that counts their launches: together they are no more."""
    single: dict[str, FactValue] = {"expert_gemm_grouped_share": 0.0, "expert_gemm_kernels_per_step": 500, "expert_gemm_median_ns": 30_000}
    given = facts(**HOST, **single, expert_gemm_busy_ns=busy, launch_calls_per_step=1000, experts_one_by_one_ns=45_000_000)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=job(model__moe_grouped_gemm=False), rulebook=BOOK, walls=walls)
    said = verdict(walls, given, BOOK, findings=found)
    alone = [rule.id for rule in BOOK.rules.values() if rule.one_change]
    step = next(one for one in plan_of(found, said, 100_000_000, alone) if one.fix == "CMP-01")
    assert (step.finding, step.bound_ns) == (first, 45_000_000)


def test_where_reductions_are_overlapped_already_a_gather_s_overlap_wins_the_gathers() -> None:
    given = facts(data_parallel_blocking_ns=9_000_000, data_parallel_blocking_share=0.09, data_gather_blocking_ns=3_000_000, **H100, **NCCL)
    own = job(ddp__overlap_grad_reduce=True, ddp__use_distributed_optimizer=True)
    found, _ = find(given, job=own, rulebook=BOOK, walls=bounds(given, BOOK))
    assert {fix.id: fix.reach_ns for one in found for fix in one.fixes if one.wall == "communication"}["COM-11"] == 3_000_000


@for_each("busy, reach", (30_000_000, 3_000_000), (9_000_000, 9_000_000))
def test_without_a_job_file_the_trace_shows_whether_reductions_are_overlapped_already(busy: int, reach: int) -> None:
    """Compute waits 6 ms for them, less than half or most of the time that they run."""
    stalled = {"data_parallel_blocking_ns": 9_000_000, "data_parallel_blocking_share": 0.09, "data_gather_blocking_ns": 3_000_000}
    given = facts(**stalled, data_gather_share=0.3, data_parallel_busy_ns=busy, **H100, **NCCL)
    found, _ = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))
    assert {fix.id: fix.reach_ns for one in found for fix in one.fixes if one.wall == "communication"}["COM-11"] == reach


@for_each("beside, gathers, state", (3_000_000, 0.0, "already_on"), (1_500_000, 0.0, "applicable"), (3_000_000, 0.3, "applicable"))
def test_reductions_that_run_beside_backward_are_overlapped_however_long_they_are(beside: int, gathers: float, state: str) -> None:
    """Compute waits 9 of the 10 ms that they run; what gathers may hide themselves shows nothing of them."""
    stalled = {"data_parallel_blocking_ns": 9_000_000, "data_parallel_blocking_share": 0.09, "data_gather_blocking_ns": 0}
    shown = {"data_parallel_busy_ns": 10_000_000, "data_parallel_beside_compute_ns": beside, "data_gather_share": gathers}
    given = facts(**stalled, **shown, is_training=True, **H100, **NCCL)
    found = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))[0]
    assert {fix.id: fix.state for one in found if one.wall == "communication" for fix in one.fixes}["COM-10"] == state


def test_waiting_for_a_late_rank_is_not_won_by_overlap() -> None:
    stalled = {"data_parallel_blocking_ns": 9_000_000, "data_parallel_blocking_share": 0.09, "data_gather_blocking_ns": 4_000_000}
    given = facts(**stalled, data_uneven_ns=8_000_000, **H100, **NCCL)
    found, _ = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))
    reached = next({fix.id: fix.reach_ns for fix in one.fixes} for one in found if one.id == "communication-blocking-data-parallel")
    assert (reached["COM-10"], reached["COM-11"]) == (1_000_000, 1_000_000)


def test_what_is_no_gradient_reduction_is_not_won_by_their_overlap() -> None:
    """Reductions of known groups are hidden; those of an unknown one are a timer's barriers or a norm's."""
    stalled = {"other_collective_blocking_ns": 9_000_000, "other_collective_blocking_share": 0.09, "other_gather_blocking_ns": 0}
    shown = {
        "data_parallel_busy_ns": 30_000_000, "data_parallel_blocking_ns": 1_000_000, "data_gather_blocking_ns": 0,
        "data_gather_share": 0.3,
    }  # fmt: skip
    given = facts(**stalled, **shown, other_reduction_share=1.0, **H100, **NCCL)
    found, _ = find(given, job=None, rulebook=BOOK, walls=bounds(given, BOOK))
    (one,) = [one for one in found if one.id == "communication-blocking-other"]
    assert {fix.id: fix.reach_ns for fix in one.fixes}["COM-11"] == 0


@for_each("attention, first", (0, "COM-24"), (80_000, "COM-24"), (9_000_000, "COM-20"))
def test_sends_of_an_unknown_group_in_a_model_with_attention_wait_for_other_ranks(attention: int, first: str) -> None:
    """Rows of embedding tables can be asked for ahead; what a pipeline or experts send can't."""
    values: dict[str, FactValue] = {"other_collective_blocking_ns": 20_000_000, "other_collective_blocking_share": 0.2}
    told = first_fixes(
        "communication-blocking-all-to-all", **values, **NCCL, other_reduction_share=0.0, attention_busy_ns=attention,
        compute_busy_ns=80_000_000,
    )  # fmt: skip
    assert told[0] == first


def test_what_changes_the_numerics_is_no_equal_alternative() -> None:
    given = facts(expert_exchange_blocking_ns=40_000_000, expert_exchange_blocking_share=0.4, has_experts=True, **H100, **NCCL)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=job(model__expert_model_parallel_size=8), rulebook=BOOK, walls=walls)
    said = verdict(walls, given, BOOK, findings=found)
    numerics = of_numerics(found)
    assert "CMP-05" in numerics
    assert not numerics & {"COM-01", "COM-02", "COM-06", "HOST-01", "MEM-02"}
    same = [structs.replace(one, fixes=tuple(structs.replace(fix, numerics=False) for fix in one.fixes)) for one in found]
    assert {one.fix for one in plan_of(same, said, 100_000_000)} & numerics
    assert not {one.fix for one in plan_of(found, said, 100_000_000) if one.instead_of is not None} & numerics


def test_what_changes_the_numerics_stands_beside_a_first_that_only_looks() -> None:
    """Where all overlap of gradients is on, fewer bytes are all that a job could change: not only the search for a late rank is told."""
    given = facts(data_parallel_blocking_ns=40_000_000, data_parallel_blocking_share=0.4, **H100, **NCCL)
    overlapped = job(ddp__overlap_grad_reduce=True, ddp__overlap_param_gather=True, ddp__grad_reduce_in_fp32=True)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=overlapped, rulebook=BOOK, walls=walls)
    said = verdict(walls, given, BOOK, findings=found)
    steps = plan_of(found, said, 100_000_000)
    assert [(one.fix, one.instead_of) for one in steps[:2]] == [("COM-20", None), ("COM-12", "COM-20")]


@for_each("loss, order", (8_000_000, ["CMP-04", "COM-20"]), (5_500_000, ["COM-20", "CMP-04"]))
def test_what_only_looks_stands_behind_a_change_that_may_win_more(loss: int, order: list[str]) -> None:
    given = facts(data_parallel_blocking_ns=6_000_000, data_parallel_blocking_share=0.06, loss_busy_ns=loss, **H100, **NCCL)
    overlapped = job(ddp__overlap_grad_reduce=True, ddp__overlap_param_gather=True, model__cross_entropy_loss_fusion=False)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=overlapped, rulebook=BOOK, walls=walls)
    steps = plan_of(found, verdict(walls, given, BOOK, findings=found), 100_000_000)
    assert [one.fix for one in steps if one.instead_of is None and one.fix in order] == order


@for_each("bound, order", (6_000_000, [0, 2, 1]), (4_000_000, [0, 1, 2]))
def test_what_surely_applies_goes_before_what_may_not_and_wins_less(bound: int, order: list[int]) -> None:
    """Never before the first: that is what holds the run back."""
    walls = bounds(facts(**HOST, **CHAINS), BOOK)
    found, _ = find(facts(**HOST, **CHAINS), job=None, rulebook=BOOK, walls=walls)
    first = next(one for one in found if one.fixes)
    fixes = {state: tuple(structs.replace(fix, state=state) for fix in first.fixes[:1]) for state in ("applicable", "unknown")}

    def finding(number: int, state: str, ns: int) -> Finding:
        named = tuple(structs.replace(fix, id=f"OWN-{number}") for fix in fixes[state])
        return structs.replace(first, id=f"own-{number}", fixes=named, bound_ns=ns)

    told = [finding(0, "unknown", 3_000_000), finding(1, "unknown", 5_000_000), finding(2, "applicable", bound)]
    said = structs.replace(verdict(walls, facts(**HOST, **CHAINS), BOOK, findings=found), cause=None)
    assert [one.fix for one in plan_of(told, said, 100_000_000)] == [f"OWN-{number}" for number in order]


@for_each("reach, order", (1_000_000, [1, 0]), (6_000_000, [0, 1]))
def test_a_finding_of_which_its_fix_reaches_a_part_stands_by_that_part(reach: int, order: list[int]) -> None:
    """Even stages win a millisecond of all that a pipeline waits: what wins more goes before."""
    given = facts(**HOST, **CHAINS)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=None, rulebook=BOOK, walls=walls)
    said = structs.replace(verdict(walls, given, BOOK, findings=found), cause=None)
    first = next(one for one in found if one.fixes)

    def finding(number: int, bound: int, reach: int | None) -> Finding:
        fix = structs.replace(first.fixes[0], id=f"OWN-{number}", state="unknown", reach_ns=reach)
        return structs.replace(first, id=f"own-{number}", fixes=(fix,), bound_ns=bound)

    told = [finding(0, 13_000_000, reach), finding(1, 5_000_000, None)]
    assert [one.fix for one in plan_of(told, said, 100_000_000)] == [f"OWN-{number}" for number in order]


def test_a_fix_of_two_findings_on_one_wall_wins_as_much_as_the_larger() -> None:
    given = facts(**HOST, **CHAINS)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=None, rulebook=BOOK, walls=walls)
    said = structs.replace(verdict(walls, given, BOOK, findings=found), cause=None)
    first = next(one for one in found if one.fixes)
    same = tuple(structs.replace(fix, state="applicable") for fix in first.fixes[:1])
    told = [structs.replace(first, id=f"own-{ns}", fixes=same, bound_ns=ns) for ns in (4_000_000, 8_000_000)]
    assert [one.bound_ns for one in plan_of(told, said, 100_000_000)] == [8_000_000]


def test_what_two_findings_say_to_look_at_stands_once() -> None:
    given = facts(**HOST, **CHAINS)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=None, rulebook=BOOK, walls=walls)
    said = structs.replace(verdict(walls, given, BOOK, findings=found), cause=None)
    one, other, third = (
        structs.replace(found[0], id=f"own-{number}", fixes=(), check=check, severity="high", bound_ns=8_000_000)
        for number, check in enumerate(("Look at the links.", "Look at the links.", "Look at the CPU."))
    )
    assert [step.title for step in plan_of([one, other, third], said, 100_000_000)] == ["Look at the links.", "Look at the CPU."]


def test_of_what_holds_too_little_to_judge_nothing_is_planned() -> None:
    cold: dict[str, FactValue] = {
        "start_up_only": True, "start_up_share": 0.99, "elementwise_busy_ns": 30_000_000, "pointwise_chain_ns": 20_000_000,
    }  # fmt: skip
    for told, planned in (({**cold, "start_up_only": False}, True), (cold, False)):
        given = facts(**told)
        walls = bounds(given, BOOK)
        found, _ = find(given, job=None, rulebook=BOOK, walls=walls)
        assert any(one.bound_ns for one in found)
        assert bool(plan_of(found, verdict(walls, given, BOOK, findings=found), 100_000_000)) == planned


def _reached(finding: Finding, reach: int) -> Finding:
    """The finding, of which its fixes reach so much."""
    return structs.replace(finding, fixes=tuple(structs.replace(fix, reach_ns=reach) for fix in finding.fixes))


def test_a_fix_that_is_the_answer_on_several_walls_can_win_on_each() -> None:
    """What two findings on one wall hold may be the same time, and nothing wins more than the step."""
    given = facts(**HOST, **CHAINS)
    walls = bounds(given, BOOK)
    found, _ = find(given, job=None, rulebook=BOOK, walls=walls)
    said = verdict(walls, given, BOOK, findings=found)
    host = next(one for one in found if one.wall == "host_overhead" and one.fixes)
    host = structs.replace(host, bound_ns=16_000_000)
    copies = structs.replace(host, id="other-a", wall="memory", bound_ns=30_000_000)
    again = structs.replace(host, id="other-b", wall="memory", bound_ns=20_000_000)
    for findings, step, bound in (
        ([host], 100_000_000, 16_000_000),
        ([host, copies, again], 100_000_000, 46_000_000),
        ([host, copies, again], 40_000_000, 40_000_000),
        ([host, again, copies], 100_000_000, 46_000_000),  # whichever of one wall stands first
        ([host, _reached(copies, 5_000_000)], 100_000_000, 21_000_000),  # of a finding that it reaches in part, that part
        ([host, _reached(copies, 5_000_000), again], 100_000_000, 36_000_000),
    ):
        first, *others = (one for one in plan_of(findings, said, step) if one.instead_of is None)
        assert (first.fix, first.bound_ns, others) == (host.fixes[0].id, bound, [])


NCCL: dict[str, FactValue] = {"expert_exchange_backend": "nccl", "expert_exchange_nccl_share": 1.0}
H100, B200, GB200 = (
    {"platform": platform, "nvlink_domain": domain, "gpu_compute_major": major}
    for platform, domain, major in (("h100", 8, 9), ("b200", 8, 10), ("gb200", 72, 10))
)
FLEX = {"model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "deepep"}
HYBRID = {**FLEX, "model.moe_flex_dispatcher_backend": "hybridep"}


@for_each(
    "changes, seen, first",
    ({}, {**H100, **NCCL}, ["COM-06", "COM-02", "COM-01"]),  # EP16: the canonical recipe on 16 H100 takes HybridEP
    ({"model.expert_model_parallel_size": 32}, {**H100, **NCCL}, ["COM-06", "COM-01", "COM-02"]),
    ({"model.expert_model_parallel_size": 8}, {**B200, **NCCL}, ["COM-06", "COM-02", "COM-01"]),
    ({}, {**B200, **NCCL}, ["COM-06", "COM-01", "COM-02"]),
    ({}, {**GB200, **NCCL}, ["COM-02", "COM-06"]),
    ({"model.expert_model_parallel_size": 64}, {**GB200, **NCCL}, ["COM-02", "COM-06"]),
    (FLEX, {**H100, **NCCL}, ["COM-26", "COM-06", "COM-02"]),  # configured, but NCCL ran: why, before another is offered
    (FLEX, {**GB200, **NCCL}, ["COM-26", "COM-02", "COM-06"]),
    (HYBRID, {**GB200, **NCCL}, ["COM-26", "COM-06"]),
    (FLEX, {**H100, "expert_exchange_backend": "deepep", "expert_exchange_nccl_share": 0.0}, ["COM-06", "COM-02", "COM-03", "COM-17"]),
    ({**FLEX, "model.expert_model_parallel_size": 8}, {**H100, "expert_exchange_backend": "deepep"}, ["COM-06", "COM-02", "COM-03"]),
    (HYBRID, {**GB200, "expert_exchange_backend": "hybridep", "expert_exchange_nccl_share": 0.0}, ["COM-06"]),
    ({"model.moe_token_dispatcher_type": "allgather"}, {**H100, **NCCL}, ["COM-28", "COM-02", "COM-01"]),
    ({"env_vars.FI_PROVIDER": "efa"}, {**H100, **NCCL}, ["COM-27", "COM-06"]),
    ({"env_vars.FI_PROVIDER": "efa", "model.expert_model_parallel_size": 8}, {**H100, **NCCL}, ["COM-06", "COM-02", "COM-01"]),
    ({}, {"platform": "mi300x", **NCCL}, ["COM-27", "COM-06"]),
    ({}, {**H100, **NCCL, "expert_exchange_blocks": 1, "expert_exchange_typical_ns": 210_000}, ["COM-31", "COM-06", "COM-02", "COM-01"]),
    ({}, {**H100, **NCCL, "expert_exchange_blocks": 1, "expert_exchange_typical_ns": 190_000}, ["COM-06", "COM-02", "COM-01"]),
    ({}, {**H100, **NCCL, "expert_exchange_blocks": 2, "expert_exchange_typical_ns": 210_000}, ["COM-06", "COM-02", "COM-01"]),
)
def test_which_dispatcher_goes_first_depends_on_platform_size_and_what_ran(
    changes: dict[str, object], seen: dict[str, FactValue], first: list[str]
) -> None:
    blocking: dict[str, FactValue] = {"expert_exchange_blocking_ns": 20_000_000, "expert_exchange_blocking_share": 0.2, "has_experts": True}
    found = first_fixes("communication-blocking-expert-exchange", job({**A1, "world_size": 64, **changes}), **blocking, **seen)
    assert found[: len(first)] == first
    dispatchers = {"COM-01", "COM-02", "COM-26", "COM-27", "COM-28", "COM-31"}
    assert set(found) & dispatchers == set(first) & dispatchers, "what cannot run there is not offered"


@for_each("seen", NCCL, {"expert_exchange_backend": "hybridep", "expert_exchange_nccl_share": 0.0})
def test_nothing_is_said_to_have_fallen_back_where_nothing_is_known_to_be_configured(seen: dict[str, FactValue]) -> None:
    blocking: dict[str, FactValue] = {"expert_exchange_blocking_ns": 20_000_000, "expert_exchange_blocking_share": 0.2, "has_experts": True}
    assert not {"COM-26", "COM-28"} & set(first_fixes("communication-blocking-expert-exchange", None, **blocking, **H100, **seen))


DENSE = (
    "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 8 --hidden-size 2048 --num-attention-heads 16 --bf16 --micro-batch-size 2\n"
)
TITAN = "[training]\nlocal_batch_size = 1\n[compile]\nenable = false\n"


@for_each(
    "text, finding, values, first",
    (TITAN, "host-launch-starved", HOST, "HOST-07"),  # one switch compiles; graphs want fixed shapes
    (
        TITAN,
        "host-data-loading",
        {**HOST, "data_loading_ns": 7_000_000, "pageable_copy_ns": 1_000_000},
        "HOST-10",
    ),  # not the copies after it
    (TITAN, "memory-allocator-stalls", {"allocator_ns": 20_000_000, "allocator_calls_per_step": 40}, "MEM-01"),
    (DENSE, "compute-fp32-products", {"fp32_product_busy_ns": 40_000_000, "gpu_compute_major": 8}, "CMP-12"),
)
def test_what_the_trace_shows_to_be_undone_is_first_in_every_framework(
    text: str, finding: str, values: dict[str, FactValue], first: str
) -> None:
    assert first_fixes(finding, parse_job(text), python_seen=True, **values)[0] == first


def test_a_dense_job_gets_no_fusion_of_experts() -> None:
    given = facts(**CHAINS, pointwise_chain_ns=40_000_000, has_experts=False)
    found = next(one for one in find(given, job=parse_job(DENSE), rulebook=BOOK)[0] if one.id == "compute-unfused-pointwise")
    keys = {change.key for fix in found.fixes for change in fix.changes}
    assert "--cross-entropy-loss-fusion" in keys
    assert not {key for key in keys if "moe" in key}


@for_each(
    "bounds, whole, expected",
    ({"memory": 50}, None, 50),
    ({"memory": 50, "compute": 30}, None, 80),
    ({"memory": 50, "compute": 90}, None, 100),  # not more than the step
    ({"memory": 50, "compute": 30}, 60, 60),
    ({"memory": 50, "compute": 30}, 40, 50),  # not less than on its own wall
)
def test_a_fix_that_answers_several_walls_wins_no_less_than_on_its_own_and_no_more_than_the_step(
    bounds: dict[str, int], whole: int | None, expected: int
) -> None:
    made = {"changes": (), "needs": (), "published": (), "cost": "", "speedup_ceiling": None}
    step = PlanStep(finding="slow", fix="FIX-01", title="", state="applicable", bound_ns=50, **made)
    assert on_all_walls(step, bounds, whole, 100).bound_ns == expected
