"""The playbook's conflict matrix and its version gates: for each pair a job with both, and what is said of the fix."""

from __future__ import annotations

import pytest

from diagnose.document.diagnosis import Fact, Fix
from diagnose.job import Job
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import job

H100 = facts()
GB200 = facts(platform="gb200", gpu_compute_major=10, nvlink_domain=72)
Changes = dict[str, object]

FEATURES: dict[str, Changes] = {
    "none": {},
    "full recompute": {
        "model__recompute_granularity": "full",
        "model__recompute_method": "uniform",
        "model__recompute_num_layers": 1,
    },
    "moe recompute": {"model__recompute_granularity": "selective", "model__recompute_modules": ["moe"]},
    "shared-expert overlap": {"model__moe_shared_expert_overlap": True},
    "EP overlap": {"comm_overlap__overlap_moe_expert_parallel_comm": True},
    "delayed wgrad": {"comm_overlap__overlap_moe_expert_parallel_comm": True, "comm_overlap__delay_wgrad_compute": True},
    "TE graphs moe": {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["moe"]},
    "TE graphs mlp": {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["attn", "mlp"]},
    "TE graphs router": {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["moe_router", "moe_preprocess"]},
    "TE graphs attn": {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["attn", "moe_router"]},
    "full-iteration graph": {"model__cuda_graph_impl": "full_iteration", "model__cuda_graph_modules": []},
    "cpu_offloading": {"model__cpu_offloading": True, "model__cpu_offloading_num_layers": 4},
    "expandable segments": {"env_vars__PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "nccl_ub": {"ddp__nccl_ub": True},
    "nccl_ub double-buffered, expandable segments": {
        "ddp__nccl_ub": True,
        "ddp__fsdp_double_buffer": True,
        "env_vars__PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    },
    "FSDP": {"dist__use_megatron_fsdp": True},
    "FSDP v2 asked for": {"ddp__use_megatron_fsdp_v2": True, "model__cuda_graph_impl": "full_iteration", "model__num_moe_experts": None},
    "FSDP v2 with experts": {"ddp__use_megatron_fsdp_v2": True},
    "Energon packing": {"dataset__packing_buffer_size": 64},
    "in-batch packing": {"dataset__enable_in_batch_packing": True},
    "fine-grained offload": {"model__fine_grained_activation_offloading": True, "model__offload_modules": ["moe_act"]},
}

# What a fix needs beside the base job before the pair can be asked.
READY: dict[str, Changes] = {
    "COM-06": {"versions__torch": "2.6.0", "env_vars__CUDA_DEVICE_MAX_CONNECTIONS": 32},
    "COM-07": {
        "versions__transformer_engine": "2.12.0",
        "comm_overlap__overlap_moe_expert_parallel_comm": True,
        "model__gradient_accumulation_fusion": True,
        "model__add_bias_linear": False,
        "model__add_qkv_bias": False,
    },
    "COM-08": {"model__moe_shared_expert_intermediate_size": 512},
    "COM-19": {"env_vars__NVTE_FWD_LAYERNORM_SM_MARGIN": 0, "env_vars__NVTE_BWD_LAYERNORM_SM_MARGIN": 0},
    "MEM-01": {"env_vars__PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"},
    "HOST-02": {"model__moe_pad_expert_input_to_capacity": True},
}

# fix, feature, verdict: "blocked" where the playbook rejects the pair (or one switches the other off), "ok" where nothing is said,
# else a part of the note that must be told.
MATRIX: list[tuple[str, str, str]] = [
    ("COM-06", "none", "ok"),
    ("COM-06", "full recompute", "blocked"),
    ("COM-06", "moe recompute", "blocked"),
    ("COM-06", "shared-expert overlap", "blocked"),
    ("COM-06", "TE graphs moe", "blocked"),
    ("COM-06", "TE graphs mlp", "blocked"),
    ("COM-06", "TE graphs router", "ok"),
    ("COM-06", "TE graphs attn", "ok"),
    ("COM-06", "full-iteration graph", "ok"),
    ("COM-06", "cpu_offloading", "No source tells"),
    ("COM-06", "expandable segments", "ok"),
    ("COM-06", "nccl_ub", "ok"),
    ("COM-06", "FSDP", "ok"),
    ("COM-06", "Energon packing", "blocked"),
    ("COM-06", "in-batch packing", "packed inside a batch"),
    ("COM-07", "none", "ok"),
    ("COM-07", "full recompute", "blocked"),
    ("COM-07", "moe recompute", "blocked"),
    ("COM-07", "shared-expert overlap", "blocked"),
    ("COM-07", "TE graphs moe", "blocked"),
    ("COM-07", "TE graphs mlp", "blocked"),
    ("COM-07", "TE graphs router", "ok"),
    ("COM-07", "TE graphs attn", "ok"),
    ("COM-07", "full-iteration graph", "ok"),
    ("COM-07", "cpu_offloading", "No source tells"),
    ("COM-07", "expandable segments", "ok"),
    ("COM-07", "nccl_ub", "ok"),
    ("COM-07", "FSDP", "ok"),
    ("COM-07", "Energon packing", "blocked"),
    ("COM-07", "in-batch packing", "packed inside a batch"),
    ("HOST-01", "full recompute", "blocked"),
    ("HOST-01", "moe recompute", "blocked"),
    ("HOST-01", "cpu_offloading", "blocked"),
    ("HOST-01", "expandable segments", "NCCL_GRAPH_REGISTER=0 is needed"),
    ("HOST-01", "FSDP", "version 2 has no CUDA graphs"),
    ("HOST-01", "Energon packing", "blocked"),
    ("HOST-02", "full recompute", "ok"),
    ("HOST-02", "moe recompute", "ok"),
    ("HOST-02", "cpu_offloading", "ok"),
    ("HOST-02", "FSDP", "version 2 has no CUDA graphs"),
    ("HOST-02", "Energon packing", "blocked"),
    ("MEM-07", "none", "ok"),
    ("MEM-07", "full recompute", "blocked"),
    ("MEM-07", "moe recompute", "blocked"),
    ("MEM-07", "TE graphs moe", "blocked"),
    ("MEM-07", "TE graphs attn", "blocked"),
    ("MEM-07", "TE graphs router", "blocked"),
    ("MEM-07", "full-iteration graph", "recent Megatron-Core"),
    ("MEM-07", "fine-grained offload", "blocked"),
    ("MEM-07", "EP overlap", "No source tells"),
    ("MEM-10", "none", "ok"),
    ("MEM-10", "full recompute", "ok"),
    ("MEM-10", "moe recompute", "ok"),
    ("MEM-10", "TE graphs router", "version 1 of Megatron-FSDP only"),
    ("MEM-10", "full-iteration graph", "version 1 of Megatron-FSDP only"),
    ("MEM-10", "FSDP v2 asked for", "blocked"),
    ("MEM-10", "FSDP v2 with experts", "blocked"),
    ("MEM-10", "expandable segments", "ok"),
    ("MEM-10", "nccl_ub", "double buffer"),
    ("MEM-10", "nccl_ub double-buffered, expandable segments", "blocked"),
    ("MEM-10", "EP overlap", "ok"),
    ("MEM-10", "delayed wgrad", "ok"),
    # the same pairs from the other side
    ("MEM-01", "none", "ok"),
    ("MEM-01", "nccl_ub", "blocked"),
    ("MEM-01", "TE graphs router", "NCCL_GRAPH_REGISTER=0 is needed"),
    ("MEM-01", "full-iteration graph", "NCCL_GRAPH_REGISTER=0 is needed"),
    ("MEM-02", "none", "ok"),
    ("MEM-02", "cpu_offloading", "blocked"),
    ("MEM-02", "EP overlap", "The label moe (the whole MoE layer) is closed"),
    ("MEM-02", "TE graphs router", "a captured moe_router refuses it"),
    ("MEM-02", "shared-expert overlap", "The label shared_experts is closed"),
    ("MEM-08", "cpu_offloading", "blocked"),
    ("MEM-08", "full recompute", "blocked"),
    ("MEM-08", "TE graphs moe", "blocked"),
    ("MEM-08", "EP overlap", "ok"),
    ("MEM-08", "moe recompute", "ok"),
    ("MEM-19", "none", "ok"),
    ("MEM-19", "EP overlap", "blocked"),
    ("MEM-19", "delayed wgrad", "blocked"),
    ("MEM-19", "TE graphs router", "blocked"),
    ("MEM-19", "full-iteration graph", "ok"),
    ("MEM-19", "cpu_offloading", "blocked"),
    ("MEM-19", "fine-grained offload", "blocked"),
    ("MEM-19", "FSDP", "ok"),
    ("MEM-17", "nccl_ub", "blocked"),
    ("COM-08", "none", "ok"),
    ("COM-08", "EP overlap", "blocked"),
    ("COM-08", "delayed wgrad", "blocked"),
    ("COM-08", "TE graphs router", "ok"),
    ("COM-19", "expandable segments", "Registered buffers (nccl_ub) are left out"),
]


def read(key: str, on: Job, given: dict[str, Fact] | None = None) -> Fix:
    return FixReader(context=make_context(H100 if given is None else given, on, BOOK)).fix(BOOK.fixes[key])


def test_conflict_matrix() -> None:
    offenders = []
    for key, feature, verdict in MATRIX:
        found = read(key, job(**{**READY.get(key, {}), **FEATURES[feature]}))
        said = verdict in {"blocked", "ok"} or any(verdict in line for line in found.unknown)
        if found.state != ("blocked" if verdict == "blocked" else "applicable") or not said:
            offenders.append((key, feature, verdict, found.state, found.unknown))
    assert offenders == []


def test_a_rejected_pair_is_the_only_thing_that_blocks() -> None:
    """Without the feature the same job is not blocked: so it is the pair that blocks, not the base."""
    for key in {key for key, _, verdict in MATRIX if verdict == "blocked"}:
        assert read(key, job(**READY.get(key, {}))).state in ("applicable", "unknown"), key


TE = "versions__transformer_engine"
GRAPHS: Changes = {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["moe_router", "moe_preprocess"]}
OFFLOADED: Changes = {**GRAPHS, "model__cuda_graph_warmup_steps": 3, "model__transformer_impl": "transformer_engine"}
DELAYED: Changes = {"comm_overlap__overlap_moe_expert_parallel_comm": True, "model__gradient_accumulation_fusion": True}
FP8: Changes = {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}


@pytest.mark.parametrize(
    ("key", "beside", "setting", "too_old", "enough"),
    [
        ("COM-06", {}, "versions__torch", "2.5.1", "2.6.0"),
        ("COM-07", DELAYED, TE, "2.6.0", "2.7.0"),
        ("COM-07", {**DELAYED, "ddp__overlap_grad_reduce": True}, TE, "2.7.0", "2.8.0"),
        (
            "COM-07",
            {**DELAYED, "model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["mamba"]},
            TE,
            "2.9.0",
            "2.10.0",
        ),
        ("COM-07", {**DELAYED, **GRAPHS}, TE, "2.11.0", "2.12.0"),
        ("COM-08", {"dist__use_megatron_fsdp": True}, TE, "2.2.0", "2.3.0"),
        ("COM-10", {"comm_overlap__delay_wgrad_compute": True, "ddp__overlap_grad_reduce": False}, TE, "2.7.0", "2.8.0"),
        ("COM-16", {"model__context_parallel_size": 16}, TE, "1.11.0", "1.12.0"),
        ("MEM-02", FP8, TE, "2.5.0", "2.6.0.dev0"),
        ("MEM-08", {**OFFLOADED, "versions__torch": "2.9.0"}, TE, "2.13.0", "2.14.0"),
        ("MEM-08", {**OFFLOADED, TE: "2.14.0"}, "versions__torch", "2.8.0", "2.9.0"),
        ("MEM-09", FP8, TE, "1.6.0", "1.7.0"),
    ],
)
def test_version_gates(key: str, beside: Changes, setting: str, too_old: str, enough: str) -> None:
    assert read(key, job(**{**beside, setting: too_old})).state == "blocked"
    assert read(key, job(**{**beside, setting: enough})).state == "applicable"


@pytest.mark.parametrize(
    ("key", "changes", "sentence"),
    [
        ("COM-07", {**DELAYED, TE: "2.12.0", "model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["attn"], "model__add_qkv_bias": True}, "Attention is captured and has a bias, which it refuses."),
        ("COM-07", {**DELAYED, **GRAPHS, TE: "2.12.0", "model__gradient_accumulation_fusion": False}, "With attn or moe_router captured it needs Transformer Engine 2.12 or newer and gradient_accumulation_fusion."),
        ("MEM-02", {"mixed_precision": "bf16_with_fp8_delayed_scaling_mixed", TE: "2.6.0"}, "moe_act and layernorm cannot be recomputed with delayed FP8 scaling."),
        ("MEM-02", {"model__moe_grouped_gemm": False}, "moe_act needs grouped GEMM. First: CMP-01, run all local experts in one grouped GEMM."),
        ("MEM-05", {"ddp__use_distributed_optimizer": False}, "It needs the distributed optimizer (use_distributed_optimizer). First: MEM-04, split the optimizer's state between data-parallel ranks."),
        ("MEM-06", {"ddp__use_distributed_optimizer": True, "mixed_precision": "bf16_with_fp8_current_scaling_mixed", "mixed_precision.fp8_param_gather": None, "fp8_param_gather": True}, "Parameters are gathered in FP8, which goes with an offloaded optimizer under the delayed recipe only; here it is tensorwise."),
        ("MEM-07", {"model__pipeline_model_parallel_size": 2}, "It is refused with pipeline parallelism (pipeline_model_parallel_size is 2)."),
        ("MEM-08", {"model__cuda_graph_impl": "local", "model__cuda_graph_modules": ["moe"]}, "CUDA graphs capture moe, which does not go with offloading."),
        ("MEM-09", {}, "The model does not run in FP8. First: CMP-05, FP8 with the recipe that fits the GPU."),
        ("MEM-11", {"model__tensor_model_parallel_size": 16, "model__expert_model_parallel_size": 1}, "There is only one data-parallel rank left, so the pipeline cannot grow on these GPUs."),
        ("MEM-11", {}, "The expert ranks of a stage fill the GPUs: pipeline, expert and expert tensor parallel sizes multiply to all of them."),
        ("MEM-12", {}, "micro_batch_size is 1 already."),
        ("MEM-13", {"peft._target_": "none"}, "The job trains no LoRA adapter (peft is none)."),
        ("MEM-14", {}, "No CUDA graphs are on, so none hold memory."),
        ("MEM-15", {}, "The capacity per rank needs the flex dispatcher with hybridep or ncclep; the job uses alltoall. First: COM-02, move tokens with HybridEP."),
        ("MEM-16", {}, "The expert overlap is off, and only it holds attention's memory longer. First: COM-06, overlap the expert exchange with compute of another micro-batch."),
        ("COM-04", {}, "Only HybridEP reads these variables, and the job does not use it. First: COM-02, move tokens with HybridEP."),
        ("COM-12", {"mixed_precision": None, "model__bf16": False, "ddp__grad_reduce_in_fp32": True}, "Gradients reduced in BF16 belong to a BF16 model."),
        ("COM-16", {"model__context_parallel_size": 2}, "Two levels need at least 2 × 2 context-parallel ranks; here there are 2."),
        ("COM-15", {"model__context_parallel_size": 8, "model__cp_comm_type": "p2p", "model__num_query_groups": 4}, "The ring (p2p) is in use, and the other way, a2a, needs at least as many key-value heads as context-parallel ranks; here 4 heads and 8 ranks leave p2p."),
        ("COM-21", {"model__moe_token_dispatcher_type": "flex", "model__moe_flex_dispatcher_backend": "deepep", "model__expert_model_parallel_size": 8}, "All expert-parallel ranks share one NVLink domain, so tokens never reach the network."),
    ],
)  # fmt: skip
def test_module_wise_needs(key: str, changes: Changes, sentence: str) -> None:
    found = read(key, job(**changes))
    assert found.state == "blocked"
    assert sentence in found.blocked_by


def test_hopper_and_blackwell_ask_for_other_connections() -> None:
    two = {"model__tensor_model_parallel_size": 2, "model__sequence_parallel": True}
    hopper = {change.key: change.to for change in read("COM-09", job(**two)).changes}
    assert hopper["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in {change.key for change in read("COM-09", job(**two), GB200).changes}
    overlap = {"comm_overlap__overlap_moe_expert_parallel_comm": True}
    assert [change.to for change in read("COM-18", job(**overlap)).changes] == ["32"]
    assert [change.to for change in read("COM-18", job()).changes] == ["8"]
    assert [change.to for change in read("COM-18", job(), GB200).changes] == ["32"]


def test_transport_of_context_parallelism_follows_what_is_in_use() -> None:
    eight = {"model__context_parallel_size": 8, "model__num_query_groups": 8, "world_size": 16}
    gather = read("COM-15", job(**eight, model__cp_comm_type="all_gather"))
    ring = read("COM-15", job(**eight, model__cp_comm_type="p2p"))
    assert (gather.state, {change.to for change in gather.changes}) == ("applicable", {"p2p"})
    assert (ring.state, {change.to for change in ring.changes}) == ("applicable", {"a2a"})


def test_recompute_of_attention_alone_is_no_answer() -> None:
    """Selective recompute without a list repeats core_attn, which frees next to nothing under fused attention."""
    found = read("MEM-02", job(model__recompute_granularity="selective", model__transformer_impl="transformer_engine"))
    assert found.state == "applicable"
    assert any(line.startswith("core_attn in recompute_modules frees next to nothing") for line in found.unknown)


def test_variables_for_offload_follow_the_nccl_version() -> None:
    def variables(**changes: object) -> set[str]:
        return {change.key for change in read("MEM-07", job(**changes)).changes if change.framework == "environment"}

    assert variables(versions__nccl="2.25.1") == {"NCCL_NET_GDR_LEVEL"}
    assert variables(versions__nccl="2.26.0") == {"NCCL_NET_GDR_C2C"}
    assert variables() == set()
