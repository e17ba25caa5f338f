"""The playbook: fixes against jobs, the conflict matrix, and the lists that it must cover. The cases stand in cases/playbook.yaml."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from diagnose.document.diagnosis import Fact, Fix
from diagnose.job import Job
from diagnose.knowledge.catalogue import ChangeSpec
from diagnose.model.vocabulary import FactValue
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from diagnose.reason.forecast.changes import effect_of
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import A1, B1, Nested, job, parse_job, put

H100 = facts()
GB200 = facts(platform="gb200", gpu_compute_major=10, nvlink_domain=72)
CASES = yaml_text.load((Path(__file__).parent / "cases" / "playbook.yaml").read_text(encoding="utf-8"))
GROUPS = {"MEM": 20, "COM": 21, "HOST": 8, "CMP": 11, "VLM": 12, "LCX": 12, "PCK": 1}
ALL_IDS = [f"{group}-{number:02d}" for group, count in GROUPS.items() for number in range(1, count + 1)]
FACT = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")


def fix(key: str, on: Job | None, given: dict[str, Fact] | None = None) -> Fix:
    return FixReader(context=make_context(H100 if given is None else given, on, BOOK)).fix(BOOK.fixes[key])


# --- one by one -------------------------------------------------------------------------------------------------------


def agrees(case: dict[str, Any]) -> bool:
    """Whether a fix says what its case says; of what is on already nothing is unknown."""
    found = fix(case["fix"], job(**case.get("job", {})))
    return (
        found.state == case["state"]
        and ("because" not in case or list(found.blocked_by) == case["because"])
        and ("says" not in case or case["says"] in found.blocked_by)
        and ("note" not in case or case["note"] in found.unknown)
        and (found.state != "already_on" or found.unknown == ())
        and (found.state != "applicable" or found.blocked_by == ())
    )


def test_every_case_of_a_fix_and_its_job() -> None:
    assert [case for case in CASES["cases"] if not agrees(case)] == []


def test_expert_overlap_applies_to_the_all_to_all_baseline() -> None:
    found = fix("COM-06", job())
    assert (found.state, found.blocked_by) == ("applicable", ())
    assert [(change.framework, change.key, change.from_, change.to) for change in found.changes] == [
        ("megatron-bridge", "comm_overlap.overlap_moe_expert_parallel_comm", "false", "true"),
        ("megatron-lm", "--overlap-moe-expert-parallel-comm", "false", "true"),
    ]
    assert found.expected[0].source == "Megatron-Bridge skills/nemo-mbridge-perf-expert-parallel-overlap"
    assert found.unknown[0] == "Needs PyTorch 2.6.0 or newer (version not in the job file)."
    assert "mtp_num_layers = 0" in found.unknown[-1]


def test_platform_gates() -> None:
    deepep = fix("COM-01", job(), GB200)
    assert deepep.state == "blocked"
    assert deepep.blocked_by == (
        "Megatron-Bridge allows DeepEP on Ampere, Hopper, B200 and B300, not on gb200 (compute capability 10); there it falls back to all-to-all or raises an error.",
    )
    assert (fix("COM-02", job(), GB200).state, fix("COM-01", job()).state) == ("applicable", "applicable")
    assert fix("COM-01", job(), facts(platform="b200", gpu_compute_major=10, nvlink_domain=8)).state == "applicable"
    assert fix("COM-02", job(model__expert_model_parallel_size=128), GB200).state == "blocked"
    assert fix("CMP-05", job(), facts(platform="a100", gpu_compute_major=8, nvlink_domain=8)).state == "blocked"


def test_what_the_trace_tells_of_amd_is_told_with_and_without_a_job_file() -> None:
    """Expandable segments: PyTorch pull requests 177974 and 179930, in PyTorch 2.12, from ROCm 7 on."""
    amd = facts(platform="mi300x", gpu_compute_major=None, nvlink_domain=None, hip_version=7_002_000, framework_seen="none")
    assert (fix("MEM-01", None, amd).state, "ROCm 7 and PyTorch 2.12" in fix("MEM-01", None, amd).unknown[-1]) == ("unknown", True)
    assert any("ROCm 7 and PyTorch 2.12" in line for line in fix("MEM-01", job(), amd).unknown)
    assert not any("AMD" in line for line in fix("MEM-01", None).unknown)
    old = facts(platform="mi300x", gpu_compute_major=None, nvlink_domain=None, hip_version=6_004_000)
    assert (fix("MEM-01", None, old).state, fix("MEM-01", job(), old).state) == ("blocked", "blocked")


def test_the_platform_decides_the_recipe_and_the_job_may_name_it() -> None:
    def chosen(given: dict[str, Fact]) -> dict[str, str]:
        return {change.key: change.to for change in fix("CMP-05", job(), given).changes}

    assert chosen(H100)["mixed_precision"] == "bf16_with_fp8_subchannel_scaling_mixed"
    assert chosen(H100)["--fp8-recipe"] == "blockwise"
    assert (chosen(GB200)["mixed_precision"], chosen(GB200)["--fp8-recipe"]) == ("bf16_with_mxfp8_mixed", "mxfp8")
    unnamed = facts(platform=None, gpu_compute_major=None, nvlink_domain=None)
    assert fix("COM-01", job(), unnamed).state == "unknown"
    assert "set platform in the job file" in fix("COM-01", job(), unnamed).unknown[0]
    assert fix("COM-01", job(platform="gb200"), unnamed).state == "blocked"
    assert fix("COM-01", job(platform="NVIDIA H100 80GB HBM3"), unnamed).state == "applicable"
    assert fix("COM-01", job(platform="abacus")).state == "unknown"


def test_without_a_job_file_nothing_is_applicable_but_the_trace_decides_what_it_can() -> None:
    found = {key: fix(key, None) for key in BOOK.fixes}
    assert [key for key, one in found.items() if one.state not in ("unknown", "blocked", "already_on")] == []
    unknown = {key: one.unknown[0] for key, one in found.items() if one.state == "unknown"}
    assert [key for key, said in unknown.items() if not said.startswith("Pass the job file (--config)")] == []
    assert [key for key, one in found.items() if any(change.from_ is not None for change in one.changes)] == []
    assert fix("COM-01", None, GB200).state == "blocked"
    assert fix("COM-01", None, facts(expert_exchange_backend="deepep")).state == "already_on"
    assert fix("HOST-02", None, facts(graph_kernel_share=0.9)).state == "already_on"
    assert fix("HOST-02", None, facts(graph_kernel_share=0.5)).state == "unknown"
    assert "expert_model_parallel_size" in fix("COM-06", None).unknown[0]
    assert [one.key for one in fix("HOST-02", None).changes if one.framework == "environment"] == [], "goes with expandable segments only"
    gather = [one.key for one in fix("COM-11", None).changes]
    assert not any("with_optimizer_step" in key or "with-optimizer-step" in key for key in gather), "goes with an interleaved pipeline only"
    foreign = facts(framework_seen="none")
    assert [one.key for one in fix("HOST-02", None, foreign).changes] == ["CUDA graphs"], "it goes with a job's settings"


def test_a_flag_that_a_job_does_not_give_is_nothing_to_leave_out() -> None:
    script = "torchrun pretrain_gpt.py --num-layers 2 --num-experts 8 --no-rope-fusion\n"
    changed = [one.key for one in fix("CMP-04", parse_job(script, source="job.sh")).changes]
    assert "--no-rope-fusion" in changed
    assert not {"--no-bias-swiglu-fusion", "--no-masked-softmax-fusion", "--no-gradient-accumulation-fusion"} & set(changed)


def test_what_runs_in_the_trace_is_on_whatever_the_job_file_says() -> None:
    fused = facts(permutation_kernels_per_step=36, fused_permutation_kernels_per_step=30)
    apart = facts(permutation_kernels_per_step=36, fused_permutation_kernels_per_step=0)
    off = job(model__moe_permute_fusion=False)
    assert [fix("CMP-03", on, fused).state for on in (None, job(), off)] == ["already_on"] * 3
    assert [fix("CMP-03", on, apart).state for on in (None, off)] == ["unknown", "applicable"]
    router = facts(router_kernels_per_step=12, fused_router_kernels_per_step=4)
    assert [fix("CMP-02", on, router).state for on in (None, job(model__moe_router_fusion=False))] == ["already_on"] * 2
    assert fix("CMP-02", None, facts(router_kernels_per_step=60, fused_router_kernels_per_step=0)).state == "unknown"
    gathered, reduced = facts(data_gather_share=0.45, world_size=8), facts(data_gather_share=0.0, world_size=8)
    assert [fix("MEM-04", None, given).state for given in (gathered, reduced)] == ["already_on", "unknown"]


def test_torchtitan_s_own_sharding_reduces_gradients_beside_backward_already() -> None:
    titan = parse_job("[parallelism]\ndata_parallel_shard_degree = 8\n")
    running = facts(data_gather_share=0.45, data_parallel_busy_ns=40, data_parallel_beside_compute_ns=25, world_size=8)
    assert [fix("COM-10", on, running).state for on in (titan, job(ddp__overlap_grad_reduce=False))] == ["already_on", "applicable"]


def test_larger_micro_batches_halve_the_exchange_of_split_parameters_alone() -> None:
    split, whole = (
        parse_job("[parallelism]\ndata_parallel_shard_degree = 8\n"),
        parse_job("[parallelism]\ndata_parallel_shard_degree = 1\n"),
    )
    effects = [effect_of(BOOK.fixes["HOST-05"], make_context(H100, on, BOOK)) for on in (split, whole, job())]
    made = [any("'data'" in one.select for one in effect if not isinstance(one, str)) for effect in effects]
    assert made == [True, False, False]


def test_fewer_larger_micro_batches_fill_a_pipeline_less_and_smaller_ones_more() -> None:
    """Of 100 ns in a step in which 8 micro-batches pass 4 stages 3 of 11 parts fill and drain them: 27.3 ns, of 36 that are waited for."""
    waits = facts(step_ns=100, pipeline_parallel_blocking_ns=30, other_collective_blocking_ns=6, pipeline_parallel_busy_ns=30, world_size=4)
    batch = {"train.global_batch_size": 8, "train.micro_batch_size": 1}
    run = job({"model.pipeline_model_parallel_size": 4, "world_size": 4, **batch})
    parts = 300 / 11 / 36
    longer, shorter = (1.0, 1 + parts, 1 + 1.2 * parts), (0.5, 1 - parts / 2, 1.0)
    for key, factors in (("HOST-05", longer), ("VLM-03", longer), ("MEM-12", shorter)):
        effect = effect_of(BOOK.fixes[key], make_context(waits, run, BOOK))
        assert not isinstance(effect, str)
        (pipeline,) = (one.by for one in effect if "'pipeline'" in one.select)
        assert pipeline == pytest.approx(factors)
        alone = effect_of(BOOK.fixes[key], make_context(H100, job(model__pipeline_model_parallel_size=1), BOOK))
        assert not any("'pipeline'" in one.select for one in alone if not isinstance(one, str))


@for_each("batch, state", (2, "blocked"), (4, "applicable"))
def test_where_micro_batches_hide_each_other_s_exchange_two_have_to_be_left(batch: int, state: str) -> None:
    batches = {"train.global_batch_size": 8 * batch, "train.micro_batch_size": 1}
    run = job({"model.num_moe_experts": 8, "comm_overlap.overlap_moe_expert_parallel_comm": True, **batches})
    assert fix("HOST-05", run, facts(world_size=8)).state == state


@for_each(
    "rule, busy",
    ("compute-unfused-attention", "unfused_attention_busy_ns"),
    ("compute-unfused-loss", "loss_busy_ns"),
    ("compute-fp32-products", "fp32_product_busy_ns"),
    ("compute-ungrouped-experts", "experts_one_by_one_ns"),
)
def test_no_bound_rests_on_a_published_speed(rule: str, busy: str) -> None:
    """Other kernels may be faster than any that was published: what they replace is all that is sure."""
    given = facts(**{busy: 40_000_000})
    assert make_context(given, None, BOOK).numbers([BOOK.rules[rule].saves or ""]) == [40_000_000]


def test_a_loss_that_no_name_tells_is_bounded_by_all_elementwise_kernels() -> None:
    given = facts(step_ns=100_000_000, loss_busy_ns=0, elementwise_busy_ns=15_000_000)
    assert make_context(given, None, BOOK).numbers([BOOK.rules["compute-unfused-loss"].saves or ""]) == [15_000_000]


def test_pytorch_s_own_sharding_shows_in_the_trace_that_gradients_are_reduced_beside_backward() -> None:
    seen = [facts(framework_seen=name, data_parallel_busy_ns=40, data_parallel_blocking_ns=30, world_size=8) for name in ("fsdp", "none")]
    assert [fix("COM-10", job(ddp__overlap_grad_reduce=False), one).state for one in seen] == ["already_on", "applicable"]


def test_the_exchange_that_ran_decides_whether_permute_can_be_fused_into_hybridep() -> None:
    assert fix("COM-05", None, facts(expert_exchange_backend="deepep")).state == "blocked"
    assert fix("COM-05", None, facts(expert_exchange_backend="nccl")).state == "blocked"
    assert [
        fix("COM-05", None, given).state for given in (facts(expert_exchange_backend="hybridep"), facts(expert_exchange_backend=None))
    ] == [
        "unknown",
        "unknown",
    ]


def test_where_hybridep_runs_neither_deepep_nor_permute_fusion_is_offered() -> None:
    """HybridEP moves more bytes per second, and permutes by kernels of its own."""
    platform = {"gpu_compute_major": 9}
    seen = [facts(expert_exchange_backend=name, **platform) for name in ("hybridep", "nccl", None)]
    said = [[fix(key, job(model__moe_permute_fusion=False), one).state for one in seen] for key in ("COM-01", "CMP-03")]
    assert said == [["blocked", "applicable", "applicable"]] * 2


def test_padding_for_quantised_experts_is_for_runs_that_quantise() -> None:
    assert fix("CMP-07", None, facts(quantize_busy_ns=0)).state == "blocked"
    assert fix("CMP-07", None, facts(quantize_busy_ns=4_000_000)).state == "unknown"


def test_experts_that_are_even_on_the_captured_ranks_need_no_balance() -> None:
    even, uneven = facts(expert_imbalance_share=0.004), facts(expert_imbalance_share=0.05)
    assert [fix("CMP-10", on, even).state for on in (None, job())] == ["already_on"] * 2
    forced = job(model__moe_router_force_load_balancing=True)
    assert fix("CMP-10", forced, even).state == "unknown", "even because forced, which says nothing of training"
    assert [fix("CMP-10", job(), given).state for given in (uneven, facts(expert_imbalance_share=None))] == ["applicable", "unknown"]


def test_values_are_computed_from_the_job_and_a_full_device_blocks_what_costs_memory() -> None:
    changes = {change.key: (change.from_, change.to) for change in fix("HOST-05", job(train__micro_batch_size=2)).changes}
    assert changes == {"train.micro_batch_size": ("2", "4"), "--micro-batch-size": ("2", "4")}
    offload = fix("CPY-02", job(optimizer__optimizer_cpu_offload=True, optimizer__optimizer_offload_fraction=0.5))
    assert offload.state == "applicable"
    assert ("optimizer.optimizer_offload_fraction", "0.5", "0.25") in {(change.key, change.from_, change.to) for change in offload.changes}
    full: dict[str, FactValue] = {"peak_reserved_bytes": 80 * 10**9, "device_memory_bytes": 80 * 2**30}
    found = fix("HOST-05", job(), facts(**full))
    assert found.state == "blocked"
    assert found.blocked_by[0].startswith("Memory is nearly full (74.5 of 80.0 GiB reserved).")
    assert fix("HOST-05", job()).state == "applicable"


def test_affinity_cannot_be_told_from_a_job_file() -> None:
    found = fix("HOST-04", job())
    assert found.state == "unknown"
    assert found.unknown[0].startswith("Whether processes are bound stands in no trace and no job file")


def test_the_gb200_recipe() -> None:
    states = {
        key: fix(key, job(B1), GB200).state
        for key in ("COM-01", "COM-02", "COM-06", "HOST-01", "MEM-01", "COM-10", "COM-18", "CMP-05", "CMP-01")
    }
    assert states == {
        "COM-01": "blocked", "COM-02": "already_on", "COM-06": "applicable", "HOST-01": "already_on", "MEM-01": "already_on",
        "COM-10": "already_on", "COM-18": "already_on", "CMP-05": "applicable", "CMP-01": "already_on",
    }  # fmt: skip


def test_the_order_is_the_rule_s_and_only_blocked_and_already_on_move_back() -> None:
    reader = FixReader(context=make_context(H100, job(), BOOK))
    found = [(one.id, one.state) for one in reader.read(("CMP-01", "COM-07", "HOST-04", "COM-02", "COM-06"))]
    assert found == [
        ("HOST-04", "unknown"), ("COM-02", "applicable"), ("COM-06", "applicable"), ("COM-07", "blocked"), ("CMP-01", "already_on"),
    ]  # fmt: skip


def test_the_example_job_is_complete() -> None:
    assert (job(A1).unknown, job(B1).unknown) == ((), ())


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_conflicts_are_those_of_the_matrix_and_a_rejected_pair_alone_blocks() -> None:
    offenders, ready = [], CASES["ready"]
    for key, feature, verdict in ((row["fix"], *pair) for row in CASES["matrix"] for pair in row["with"]):
        found = fix(key, job(**{**ready.get(key, {}), **CASES["features"][feature]}))
        said = verdict in {"blocked", "ok"} or any(verdict in line for line in found.unknown)
        if found.state != ("blocked" if verdict == "blocked" else "applicable") or not said:
            offenders.append((key, feature, verdict, found.state, found.unknown))
    assert offenders == []
    # Without the feature the same job is not blocked: so it is the pair that blocks, not the base
    blocked = {row["fix"] for row in CASES["matrix"] if "blocked" in dict(row["with"]).values()}
    states = {key: fix(key, job(**CASES["ready"].get(key, {}))).state for key in blocked}
    assert {key: state for key, state in states.items() if state not in ("applicable", "unknown")} == {}


def test_sequence_parallelism_is_turned_on_with_the_overlap_that_needs_it() -> None:
    two = {"model__tensor_model_parallel_size": 2}
    without = fix("COM-09", job(**two))
    assert without.state != "blocked"
    assert {change.key: change.to for change in without.changes}["model.sequence_parallel"] == "true"
    assert "model.sequence_parallel" not in {change.key for change in fix("COM-09", job(**two, model__sequence_parallel=True)).changes}


def test_hopper_and_blackwell_ask_for_other_connections() -> None:
    two = {"model__tensor_model_parallel_size": 2, "model__sequence_parallel": True}
    hopper = {change.key: change.to for change in fix("COM-09", job(**two)).changes}
    assert hopper["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in {change.key for change in fix("COM-09", job(**two), GB200).changes}
    overlap = {"comm_overlap__overlap_moe_expert_parallel_comm": True}
    assert [change.to for change in fix("COM-18", job(**overlap)).changes] == ["32"]
    assert [change.to for change in fix("COM-18", job()).changes] == ["8"]
    assert [change.to for change in fix("COM-18", job(), GB200).changes] == ["32"]


def test_transport_of_context_parallelism_follows_what_is_in_use() -> None:
    eight = {"model__context_parallel_size": 8, "model__num_query_groups": 8, "world_size": 16}
    gather = fix("COM-15", job(**eight, model__cp_comm_type="all_gather"))
    ring = fix("COM-15", job(**eight, model__cp_comm_type="p2p"))
    assert (gather.state, {change.to for change in gather.changes}) == ("applicable", {"p2p"})
    assert (ring.state, {change.to for change in ring.changes}) == ("applicable", {"a2a"})


def test_recompute_of_attention_alone_is_no_answer() -> None:
    """Selective recompute without a list repeats core_attn, which frees next to nothing under fused attention."""
    found = fix("MEM-02", job(model__recompute_granularity="selective", model__transformer_impl="transformer_engine"))
    assert found.state == "applicable"
    assert any(line.startswith("core_attn in recompute_modules frees next to nothing") for line in found.unknown)


def test_variables_for_offload_follow_the_nccl_version() -> None:
    def variables(**changes: object) -> set[str]:
        return {change.key for change in fix("MEM-07", job(**changes)).changes if change.framework == "environment"}

    assert variables(versions__nccl="2.25.1") == {"NCCL_NET_GDR_LEVEL"}
    assert variables(versions__nccl="2.26.0") == {"NCCL_NET_GDR_C2C"}
    assert variables() == set()


# --- what it covers ---------------------------------------------------------------------------------------------------


def test_the_fixes_of_the_index_are_entries_in_their_phase_and_place() -> None:
    assert [key for key in ALL_IDS if key not in BOOK.fixes] == []
    assert len(ALL_IDS) == 85
    answers = CASES["answers"].items()
    assert {said: absent for said, keys in answers if (absent := [key for key in keys if key not in BOOK.fixes])} == {}
    said = {key: (phase, step) for phase, step, keys in CASES["order"] for key in keys}
    assert {key: (BOOK.fixes[key].phase, BOOK.fixes[key].step) for key in said} == said
    assert {key for key in ALL_IDS if key.startswith(("MEM-", "COM-"))} == set(said)


def test_what_sources_dispute_is_said() -> None:
    silent = {
        (letter, key)
        for letter, keys in CASES["disputed"].items()
        for key in keys
        if not re.search(r"[Tt]his entry", BOOK.fixes[key].disputed)
    }
    assert silent == set(), "say which side is taken"


def test_expected_effects_have_a_number_and_a_source_and_verify_names_a_fact() -> None:
    effects = [(key, effect) for key, fix in BOOK.fixes.items() for effect in fix.expected]
    assert [key for key, effect in effects if not (effect.source and re.search(r"\d", effect.text))] == []
    assert [key for key, fix in BOOK.fixes.items() if not set(FACT.findall(fix.verify)) & set(BOOK.facts)] == []


OTHERS: dict[str, dict[str, object]] = {  # by framework, what a job file of it is known by
    "deepspeed": {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1},
    "hugging-face": {"output_dir": "out", "learning_rate": 1e-4, "num_train_epochs": 1, "per_device_train_batch_size": 1},
    "accelerate": {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 8, "machine_rank": 0},
}


def wrong_literal(change: ChangeSpec) -> str | None:
    """What is wrong with a value that is to be written as it stands: under its key in its framework it is read back as the setting that
    the change names, in that setting's type.
    """
    value = yaml_text.load(change.to)
    if value is None:
        return "says nothing"
    if change.setting is None:
        return None
    if change.op in ("add", "remove"):
        kind = BOOK.settings[change.setting].type
        if kind not in ("list", "text") or not isinstance(value, str):
            return "is not one member of a list, nor one of several options"
        value = [value] if kind == "list" else value
    read = parse_job(written(change, value)).settings.get(change.setting)
    if read is None:
        return f"does not stand for {change.setting}"
    return None if read.source == "read" else f"{change.setting} is {read.source}"


def written(change: ChangeSpec, value: object) -> str:
    """A job file of the change's framework with a value under the change's key."""
    if change.framework == "nemo-rl":
        return f"python examples/run_grpo.py policy.dtensor_cfg.enabled=true {change.key}={json.dumps(value)}\n"
    if change.framework in ("verl-fsdp", "verl-sft"):
        program = {"verl-fsdp": "main_ppo", "verl-sft": "sft_trainer data.use_dynamic_bsz=False"}[change.framework]
        return f"python3 -m verl.trainer.{program} {change.key}={json.dumps(value)}\n"
    if change.framework == "torchtitan":
        section, _, last = change.key.rpartition(".")
        registry = f"from torchtitan.trainer import Trainer\n\ndef one() -> Trainer.Config:\n    return Trainer.Config({last}={value})\n"
        return f"[{section}]\n{last} = {json.dumps(value)}\n" if section else registry
    if change.framework == "megatron-lm":
        return yaml_text.dump({"MODEL_ARGS": {change.key: value}})
    if change.framework == "environment":
        return yaml_text.dump({"MODEL_ARGS": {}, "ENV_VARS": {change.key: value}})
    if change.framework in OTHERS:
        return yaml_text.dump({**OTHERS[change.framework], **put({}, change.key, value)})
    base: Nested = {"train": {"init_device": "meta"}} if change.framework == "veomni" else {"model": {"num_layers": 4}}
    return yaml_text.dump(put(base, change.key, value))


def test_a_literal_can_be_written_into_a_job_file() -> None:
    literal = [
        (key, change)
        for key, fix in BOOK.fixes.items()
        for change in fix.changes
        if not change.choose and change.value is None and change.op != "unset"
    ]
    assert len(literal) > 100
    assert [(key, change.key, wrong) for key, change in literal if (wrong := wrong_literal(change))] == []


def test_what_is_unset_says_nothing_else() -> None:
    assert [
        (key, change.key) for key, fix in BOOK.fixes.items() for change in fix.changes if change.op == "unset" and change.to != "null"
    ] == []


def test_words_are_marked_as_a_choice() -> None:
    """A change to a launcher or to code is a person's to make; a computed value says what it is where it can't be computed."""
    ours = [(key, change) for key, fix in BOOK.fixes.items() if key.startswith(("MEM-", "COM-", "CPY-")) for change in fix.changes]
    assert [(key, change.key) for key, change in ours if change.framework in ("launcher", "code") and not change.choose] == []
    words = [
        (key, change)
        for key, change in ours
        if " " in change.to and change.framework == "megatron-bridge" and change.value is None and not change.choose
    ]
    assert [(key, change.key) for key, change in words if isinstance(yaml_text.load(change.to), str)] == []
