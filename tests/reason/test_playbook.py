"""Fixes against jobs: already on, blocked with the sentence that says why, unknown, applicable."""

from __future__ import annotations

import pytest

from diagnose.document.diagnosis import Fact, Fix
from diagnose.job import Job
from diagnose.model.vocabulary import FactValue
from diagnose.reason.context import make_context
from diagnose.reason.findings import FixReader
from tests.builders.facts import BOOK, facts
from tests.builders.jobs import A1, B1, job

H100 = facts()
GB200 = facts(platform="gb200", gpu_compute_major=10, nvlink_domain=72)


def fix(key: str, on: Job | None, given: dict[str, Fact] | None = None) -> Fix:
    reader = FixReader(context=make_context(H100 if given is None else given, on, BOOK))
    return reader.fix(BOOK.fixes[key])


def test_expert_overlap_applies_to_the_all_to_all_baseline() -> None:
    found = fix("COM-06", job())
    assert found.state == "applicable"
    assert found.blocked_by == ()
    assert [(change.framework, change.key, change.from_, change.to) for change in found.changes] == [
        ("megatron-bridge", "comm_overlap.overlap_moe_expert_parallel_comm", "false", "true"),
        ("megatron-lm", "--overlap-moe-expert-parallel-comm", "false", "true"),
    ]
    assert found.expected[0].source == "Megatron-Bridge skills/nemo-mbridge-perf-expert-parallel-overlap"
    assert found.unknown[0] == "Needs PyTorch 2.6.0 or newer; the job file does not give the version."
    assert "mtp_num_layers = 0" in found.unknown[-1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model__expert_model_parallel_size": 1}, "Experts are not split between ranks (expert_model_parallel_size is 1)."),
        ({"model__num_moe_experts": 1}, "The model has no experts to exchange tokens for (num_moe_experts is 1)."),
        ({"model__moe_token_dispatcher_type": "allgather"}, "The dispatcher is allgather; overlap is asserted to need alltoall or flex."),
        ({"mixed_precision": None, "model__bf16": False}, "The model is neither BF16 nor FP16."),
        ({"versions__torch": "2.5.1"}, "PyTorch is older than 2.6.0, where the overlap is refused or hangs."),
        (
            {"model__pipeline_model_parallel_size": 4},
            (
                "With 4 pipeline stages the schedule must be interleaved, but virtual_pipeline_model_parallel_size is not set. "
                "First: COM-13, interleave the pipeline and overlap its transfers."
            ),
        ),
        ({"model__recompute_granularity": "full"}, "Full recompute is on, which the overlap refuses. First: MEM-03, recompute less."),
        ({"model__recompute_method": "uniform"}, "recompute_method is set to uniform; it must be unset. First: MEM-03, recompute less."),
        ({"model__recompute_num_layers": 1}, "recompute_num_layers is set to 1; it must be unset. First: MEM-03, recompute less."),
        (
            {"model__recompute_granularity": "selective", "model__recompute_modules": ["moe"]},
            (
                "The whole MoE layer is recomputed (moe in recompute_modules), which the overlap refuses; recompute moe_act instead. "
                "First: MEM-02, recompute only what is cheap to recompute."
            ),
        ),
        ({"model__moe_shared_expert_overlap": True}, "moe_shared_expert_overlap is on; the two overlaps exclude each other."),
        ({"model__mtp_num_layers": 2}, "At most one multi-token-prediction layer is allowed, but the job has 2."),
        (
            {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["attn", "mlp"]},
            (
                "CUDA graphs capture moe or mlp ([attn, mlp]); with the overlap only attn, moe_router and moe_preprocess may be captured. "
                "First: HOST-01, replay router and preprocessing from CUDA graphs."
            ),
        ),
        (
            {
                "model__moe_token_dispatcher_type": "flex",
                "model__moe_flex_dispatcher_backend": "ncclep",
                "model__fine_grained_activation_offloading": True,
                "model__offload_modules": ["expert_fc1"],
            },
            "The ncclep backend refuses the overlap while expert_fc1 is offloaded.",
        ),
        (
            {"model__overlap_dispatch_backward_with_experts_wgrad": True},
            "overlap_dispatch_backward_with_experts_wgrad is on; the two overlaps exclude each other.",
        ),
        ({"dataset__packing_buffer_size": 64}, "On-line packing is on, which switches the overlap off with a warning."),
    ],
)
def test_each_assertion_of_the_expert_overlap_blocks(change: dict[str, object], sentence: str) -> None:
    found = fix("COM-06", job(**change))
    assert found.state == "blocked"
    assert found.blocked_by == (sentence,)


@pytest.mark.parametrize(
    "change",
    [
        {"versions__torch": "2.6.0"},
        {"model__pipeline_model_parallel_size": 4, "model__virtual_pipeline_model_parallel_size": 2},
        {"model__recompute_granularity": "selective", "model__recompute_modules": ["moe_act"]},
        {"model__mtp_num_layers": 1},
        {"model__cuda_graph_impl": "transformer_engine", "model__cuda_graph_modules": ["attn", "moe_router", "moe_preprocess"]},
        {"mixed_precision": "bf16_with_mxfp8_mixed"},
    ],
)
def test_what_the_expert_overlap_allows(change: dict[str, object]) -> None:
    assert fix("COM-06", job(**change)).state == "applicable"


def test_connections_are_only_told() -> None:
    found = fix("COM-06", job(env_vars__CUDA_DEVICE_MAX_CONNECTIONS=1))
    assert found.state == "applicable"
    assert "CUDA_DEVICE_MAX_CONNECTIONS is 1, so exchange and compute may not run at the same time (COM-18)." in found.unknown


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("COM-06", {"comm_overlap__overlap_moe_expert_parallel_comm": True}),
        ("COM-07", {"comm_overlap__delay_wgrad_compute": True}),
        ("COM-01", {"model__moe_token_dispatcher_type": "flex", "model__moe_flex_dispatcher_backend": "deepep"}),
        ("COM-02", {"model__moe_token_dispatcher_type": "flex", "model__moe_flex_dispatcher_backend": "hybridep"}),
        ("COM-09", {"model__tensor_model_parallel_size": 2, "model__sequence_parallel": True, "comm_overlap__tp_comm_overlap": True}),
        ("COM-10", {"ddp__overlap_grad_reduce": True}),
        ("COM-11", {"ddp__overlap_param_gather": True}),
        ("HOST-01", {"model__cuda_graph_impl": "transformer_engine"}),
        ("HOST-03", {"train__manual_gc": True}),
        ("MEM-01", {"env_vars__PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"}),
        ("MEM-02", {"model__recompute_granularity": "selective", "model__recompute_modules": ["moe_act"]}),
        ("MEM-03", {"model__recompute_granularity": "none"}),
        ("MEM-08", {"model__fine_grained_activation_offloading": True}),
        ("CMP-01", {"model__moe_grouped_gemm": True}),
        ("CMP-02", {"model__moe_router_fusion": True}),
        ("CMP-03", {"model__moe_permute_fusion": True}),
        ("CMP-05", {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}),
    ],
)
def test_already_on(key: str, change: dict[str, object]) -> None:
    found = fix(key, job(**change))
    assert found.state == "already_on"
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("key", "change", "sentence"),
    [
        (
            "COM-07",
            {},
            "It is asserted to need the expert overlap, which is off. First: COM-06, overlap the expert exchange with compute of another micro-batch.",
        ),
        (
            "COM-07",
            {
                "comm_overlap__overlap_moe_expert_parallel_comm": True,
                "versions__transformer_engine": "2.6.0",
                "ddp__overlap_grad_reduce": False,
            },
            "Together with gradient-accumulation fusion (Megatron-Bridge) or without it (Megatron-LM) it needs Transformer Engine 2.7 or newer.",
        ),
        ("COM-05", {}, "Only the HybridEP backend can do this, and the job does not use it. First: COM-02, move tokens with HybridEP."),
        (
            "COM-01",
            {"model__moe_pad_expert_input_to_capacity": True},
            "moe_pad_expert_input_to_capacity is on, which the flex dispatcher refuses.",
        ),
        ("COM-09", {"model__sequence_parallel": True}, "There is no tensor parallelism (size 1); the setting would be without effect."),
        (
            "COM-09",
            {"model__tensor_model_parallel_size": 2},
            "It needs sequence_parallel; without it Megatron-Bridge turns the overlap off with a warning.",
        ),
        ("COM-10", {"model__tensor_model_parallel_size": 16}, "There is only one data-parallel rank, so there is nothing to reduce."),
        (
            "COM-11",
            {"ddp__use_distributed_optimizer": True, "ddp__overlap_grad_reduce": False, "ddp__overlap_param_gather": False},
            "It needs the overlap of the gradient reduction. First: COM-10, reduce gradients while backward still runs.",
        ),
        ("COM-13", {}, "There is no pipeline (pipeline_model_parallel_size is 1)."),
        ("COM-15", {}, "There is no context parallelism (size 1)."),
        (
            "COM-18",
            {"model__tensor_model_parallel_size": 2, "env_vars__CUDA_DEVICE_MAX_CONNECTIONS": 1},
            "On Hopper and older, tensor or context parallelism without expert overlap is asserted to need CUDA_DEVICE_MAX_CONNECTIONS=1.",
        ),
        (
            "HOST-01",
            {"model__recompute_granularity": "full"},
            "Full recompute is on, which only full-iteration graphs allow. First: MEM-03, recompute less.",
        ),
        (
            "HOST-01",
            {"env_vars__PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "env_vars__NCCL_GRAPH_REGISTER": 1},
            "Expandable allocator segments are on, so NCCL_GRAPH_REGISTER must be 0; here it is 1.",
        ),
        (
            "HOST-01",
            {"dataset__enable_in_batch_packing": True},
            "Packed sequences change their shape from step to step, which graphs refuse.",
        ),
        ("HOST-05", {"dataset__enable_offline_packing": True}, "Offline packing requires micro_batch_size 1."),
        ("HOST-05", {"train__global_batch_size": 16}, "Each data-parallel rank has only one micro-batch per step already."),
        (
            "MEM-01",
            {"ddp__nccl_ub": True, "env_vars__PYTORCH_CUDA_ALLOC_CONF": "x:1"},
            "NCCL user buffers (nccl_ub) raise an error together with expandable segments.",
        ),
        ("CPY-02", {}, "The optimizer is not offloaded, so these copies come from elsewhere."),
        (
            "MEM-08",
            {"model__cpu_offloading": True},
            "Activation offload of whole layers (cpu_offloading) is on; the two exclude each other.",
        ),
        (
            "CMP-02",
            {"model__moe_router_fusion": False, "versions__transformer_engine": "2.6.0"},
            "It needs Transformer Engine 2.7 or newer.",
        ),
    ],
)
def test_blocked(key: str, change: dict[str, object], sentence: str) -> None:
    found = fix(key, job(**change))
    assert found.state == "blocked"
    assert sentence in found.blocked_by


def test_platform_gates() -> None:
    deepep = fix("COM-01", job(), GB200)
    assert deepep.state == "blocked"
    assert deepep.blocked_by == (
        "Megatron-Bridge allows DeepEP on Ampere, Hopper, B200 and B300, not on gb200 (compute capability 10); there it falls back to all-to-all or raises an error.",
    )
    assert fix("COM-02", job(), GB200).state == "applicable"
    assert fix("COM-01", job()).state == "applicable"
    assert fix("COM-01", job(), facts(platform="b200", gpu_compute_major=10, nvlink_domain=8)).state == "applicable"
    assert fix("COM-02", job(model__expert_model_parallel_size=128), GB200).state == "blocked"
    assert fix("CMP-05", job(), facts(platform="a100", gpu_compute_major=8, nvlink_domain=8)).state == "blocked"


def test_the_platform_decides_the_recipe() -> None:
    def chosen(given: dict[str, Fact]) -> dict[str, str]:
        return {change.key: change.to for change in fix("CMP-05", job(), given).changes}

    assert chosen(H100)["mixed_precision"] == "bf16_with_fp8_subchannel_scaling_mixed"
    assert chosen(H100)["--fp8-recipe"] == "blockwise"
    assert chosen(GB200)["mixed_precision"] == "bf16_with_mxfp8_mixed"
    assert chosen(GB200)["--fp8-recipe"] == "mxfp8"


def test_the_job_may_name_the_platform_that_the_trace_does_not() -> None:
    unnamed = facts(platform=None, gpu_compute_major=None, nvlink_domain=None)
    assert fix("COM-01", job(), unnamed).state == "unknown"
    assert "set platform in the job file" in fix("COM-01", job(), unnamed).unknown[0]
    assert fix("COM-01", job(platform="gb200"), unnamed).state == "blocked"
    assert fix("COM-01", job(platform="NVIDIA H100 80GB HBM3"), unnamed).state == "applicable"
    assert fix("COM-01", job(platform="abacus")).state == "unknown"


def test_without_a_job_file_nothing_is_applicable() -> None:
    found = {key: fix(key, None) for key in BOOK.fixes}
    assert [key for key, one in found.items() if one.state not in ("unknown", "blocked", "already_on")] == []
    unknown = {key: one.unknown[0] for key, one in found.items() if one.state == "unknown"}
    assert [key for key, said in unknown.items() if not said.startswith("Give the job file (--config)")] == []
    assert [key for key, one in found.items() if any(change.from_ is not None for change in one.changes)] == []


def test_without_a_job_file_the_trace_still_decides_what_it_can() -> None:
    assert fix("COM-01", None, GB200).state == "blocked"
    assert fix("COM-01", None, facts(expert_exchange_backend="deepep")).state == "already_on"
    assert "expert_model_parallel_size" in fix("COM-06", None).unknown[0]


def test_values_are_computed_from_the_job() -> None:
    changes = {change.key: (change.from_, change.to) for change in fix("HOST-05", job(train__micro_batch_size=2)).changes}
    assert changes == {"train.micro_batch_size": ("2", "4"), "--micro-batch-size": ("2", "4")}
    offload = fix("CPY-02", job(optimizer__optimizer_cpu_offload=True, optimizer__optimizer_offload_fraction=0.5))
    assert offload.state == "applicable"
    assert ("optimizer.optimizer_offload_fraction", "0.5", "0.25") in {(change.key, change.from_, change.to) for change in offload.changes}


def test_a_full_device_blocks_what_costs_memory() -> None:
    full: dict[str, FactValue] = {"peak_reserved_bytes": 80 * 10**9, "device_memory_bytes": 80 * 2**30}
    found = fix("HOST-05", job(), facts(**full))
    assert found.state == "blocked"
    assert found.blocked_by[0].startswith("Memory is nearly full (74.51 of 80.00 GiB reserved).")
    assert fix("HOST-05", job()).state == "applicable"


def test_affinity_cannot_be_told_from_a_job_file() -> None:
    found = fix("HOST-04", job())
    assert found.state == "unknown"
    assert found.unknown[0].startswith("The job file does not show whether processes are bound")


def test_the_gb200_recipe() -> None:
    states = {
        key: fix(key, job(B1), GB200).state
        for key in ("COM-01", "COM-02", "COM-06", "HOST-01", "MEM-01", "COM-10", "COM-18", "CMP-05", "CMP-01")
    }
    assert states == {
        "COM-01": "blocked",
        "COM-02": "already_on",
        "COM-06": "applicable",
        "HOST-01": "already_on",
        "MEM-01": "already_on",
        "COM-10": "already_on",
        "COM-18": "already_on",
        "CMP-05": "applicable",
        "CMP-01": "already_on",
    }


def test_order_is_applicable_unknown_blocked_already_on() -> None:
    reader = FixReader(context=make_context(H100, job(), BOOK))
    found = [(one.id, one.state) for one in reader.read(("CMP-01", "COM-07", "HOST-04", "COM-02", "COM-06"))]
    assert found == [
        ("COM-02", "applicable"),
        ("COM-06", "applicable"),
        ("HOST-04", "unknown"),
        ("COM-07", "blocked"),
        ("CMP-01", "already_on"),
    ]


def test_the_example_job_is_complete() -> None:
    assert job(A1).unknown == ()
    assert job(B1).unknown == ()
