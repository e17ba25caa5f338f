"""What the context of a launch tells about a kernel that is known by name alone."""

from __future__ import annotations

import pytest

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.measure.buckets.describe import describe, describe_all

GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>(flash::Flash_fwd_params)"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ROWS = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 7, false, false>(float*)"
CORE, BRIDGE = "megatron.core.", "megatron.bridge."


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


# Ranges as the sources of Megatron-Core, Megatron-Bridge, Transformer Engine and PyTorch spell them.
@pytest.mark.parametrize(
    ("name", "nvtx", "bucket"),
    [
        (GEMM, CORE + "transformer.mlp.forward.linear_fc1", "dense_gemm"),
        (GEMM, CORE + "transformer.attention.forward.linear_proj", "dense_gemm"),
        (GEMM, CORE + "ssm.gated_delta_net.forward.in_proj", "dense_gemm"),
        (GEMM, "TEColumnParallelGroupedLinear forward", "expert_gemm"),
        (GEMM, "TELMHeadColumnParallelLinear forward", "dense_gemm"),
        (GEMM, "transformer_engine._LayerNormLinear.forward.qkv.gemm", "dense_gemm"),
        (GEMM, "_GroupedLinear_wgrad", "expert_gemm"),
        (GEMM, "_GroupedLinear, seq = 12, op_id = 4, sizes = [[4096, 7168]]", "expert_gemm"),
        (GEMM, "delayed_expert_wgrad", "expert_gemm"),
        (GEMM, "nvte_multi_tensor_gemm", "expert_gemm"),
        (GEMM, ":experts: GroupedExpertsDeepEP", "expert_gemm"),
        (GEMM, BRIDGE + "training.train.train_step.optimizer_step", "optimizer"),
        (GEMM, "Qwen3VLModel.forward.pre_process", "vision_encoder"),
        (ADD, CORE + "transformer.mlp.forward.activation", "activation"),
        (ADD, CORE + "fusions.fused_weighted_squared_relu.backward", "activation"),
        (ADD, CORE + "ssm.gated_delta_net.forward.gated_delta_rule", "attention"),
        (ADD, CORE + "ssm.gated_delta_net.forward.gated_norm", "norm"),
        (ADD, "HyperConnection::compute_mappings", "other"),
        (ADD, "nvte_thd_out_correction", "attention"),
        (ADD, "nvte_multi_tensor_l2norm_cuda", "optimizer"),
        (ADD, "nvte_multi_tensor_scale_cuda", "optimizer"),
        (ADD, "dispatch_core in hybrid-ep", "dispatch"),
        (ADD, "activation offloading fc1", "elementwise"),
        (ROWS, CORE + "models.common.embeddings.language_model_embedding.forward", "embedding"),
        (FLASH, BRIDGE + "models.qwen_vl.modelling_qwen3_vl.attention.forward.core_attention", "attention"),
        (FLASH, BRIDGE + "models.ernie_vl.modeling_ernie45_vl.vision_attention.forward.core_attention", "vision_encoder"),
        (SENDRECV, CORE + "pipeline_parallel.p2p_communication.send_forward_recv_backward", "collective"),
        (SENDRECV, "moe_combine backward", "dispatch"),
    ],
)
def test_ranges_tell_the_bucket(taxonomy: Taxonomy, name: str, nvtx: str, bucket: str):
    found = describe(name, taxonomy, {"nvtx": [nvtx]})
    assert (found.bucket, found.weak) == (bucket, False)


GROUPS = {
    "data": [
        "DATA_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_AG", "DATA_PARALLEL_GROUP_WITH_CP", "DATA_PARALLEL_GROUP_WITH_CP_AG",
        "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "EXPERT_DATA_PARALLEL_GROUP", "EXPERT_DATA_PARALLEL_GROUP_AG",
        "GTP_WEIGHT_REMAT_GROUP", "EXPERT_GTP_WEIGHT_REMAT_GROUP", "DATA_PARALLEL_GROUP_WITH_GTP_REMAT", "mesh_dp_shard",
        "mesh_dp_shard_cp", "mesh_dp_replicate", "mesh_dp_shard_mod_ep", "mesh_efsdp",
    ],
    "context": ["CONTEXT_PARALLEL_GROUP", "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "HYBRID_DP_CP_GROUP_4", "mesh_cp"],
    "tensor": ["TENSOR_MODEL_PARALLEL_GROUP", "mesh_tp"],
    "pipeline": ["PIPELINE_MODEL_PARALLEL_GROUP", "EMBEDDING_GROUP", "POSITION_EMBEDDING_GROUP", "mesh_pp"],
    "expert": ["EXPERT_MODEL_PARALLEL_GROUP", "EXPERT_TENSOR_PARALLEL_GROUP", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "mesh_ep"],
    "other": [
        "MODEL_PARALLEL_GROUP", "TENSOR_AND_DATA_PARALLEL_GROUP", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",
        "TENSOR_AND_CONTEXT_PARALLEL_GROUP", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP",
        "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "mesh_loss", "default_pg", "undefined",
    ],
}  # fmt: skip


def test_every_group_that_megatron_describes_has_its_kind(taxonomy: Taxonomy):
    cases = [(kind, text) for kind, texts in GROUPS.items() for text in texts]
    found = describe_all([(GATHER, {"pg_desc": text}) for _, text in cases], taxonomy)
    assert {text: verdict.kind for (_, text), verdict in zip(cases, found, strict=True)} == {text: kind for kind, text in cases}
    assert all((verdict.bucket == "dispatch") == (kind == "expert") for (kind, _), verdict in zip(cases, found, strict=True))


@pytest.mark.parametrize(
    ("name", "between", "bucket", "kind"),
    [
        (GEMM, ["_permute_kernel", "_unpermute_kernel"], "expert_gemm", None),
        (GEMM, "permute .. unpermute", "expert_gemm", None),
        (GEMM, ["rmsnorm_fwd_tuned_kernel", "flash_fwd_kernel"], "dense_gemm", None),
        (SENDRECV, "_permute_kernel and _sort_chunks_by_map_kernel", "dispatch", "expert"),
        (SENDRECV, ["fused_rope_forward_kernel", "flash_fwd_kernel"], "collective", "context"),
        ("void cublasLt::splitKreduce_kernel<32>", ["nvjet_sm100_tst_ptrGroup_NTT", "x"], "expert_gemm", None),
    ],
)
def test_the_kernels_on_either_side_decide_as_they_do_in_a_trace(taxonomy: Taxonomy, name, between, bucket, kind):
    found = describe(name, taxonomy, {"between": between})
    assert found.bucket == bucket
    assert found.kind == kind
    assert found.weak == (bucket == "dense_gemm")
    assert describe(name, taxonomy).weak


def test_the_phase_told_counts_where_no_range_tells_one(taxonomy: Taxonomy):
    assert describe(GEMM, taxonomy, {"phase": "backward"}).phase == "backward"
    assert describe(FLASH, taxonomy, {"phase": "end of backward"}).phase == "recompute"
    assert describe(GEMM, taxonomy, {"phase": "backward", "ops": ["CheckpointFunctionBackward", "_Linear"]}).phase == "recompute"
    found = describe(GEMM, taxonomy, {"phase": "optimizer (grad-norm)"})
    assert (found.bucket, found.phase) == ("optimizer", "optimizer")
    assert describe(GEMM, taxonomy, {"phase": "after optimizer step / next forward"}).not_understood == ("phase",)


def test_the_forward_operator_s_modules_tell_the_bucket_but_not_the_phase(taxonomy: Taxonomy):
    found = describe(GEMM, taxonomy, {"fwd_modules": ["TopKRouter_0"], "ops": ["MmBackward0"]})
    assert (found.bucket, found.phase) == ("router", "backward")
    assert describe(ADD, taxonomy, {"fwd_modules": ["torch.optim.adamw.AdamW.step", "optimizer"]}).bucket == "elementwise"


def test_what_is_not_understood_is_said(taxonomy: Taxonomy):
    silent = {"grid": [1, 1, 1], "mean_us": 3.0, "origin": "trace", "ops": [], "nvtx": None}
    assert describe(ADD, taxonomy, silent).not_understood == ()
    assert describe(ADD, taxonomy, {"opps": ["x"], "ops": 3, "between": "one"}).not_understood == ("opps", "ops", "between")


def test_ambiguous_names_name_their_candidates(taxonomy: Taxonomy):
    for name, candidates in ((GEMM, {"expert_gemm", "router"}), (SENDRECV, {"dispatch"}), (SOFTMAX, {"router"}), (ROWS, {"dispatch"})):
        found = describe(name, taxonomy)
        assert found.weak
        assert candidates <= set(found.alternatives)


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("context", "kind", "rule"),
    [
        (
            {"pg_desc": "default_pg", "collective": "allreduce", "dtype": "Float", "in_msg_nelems": 1_000_000},
            "data",
            "gradients_by_payload",
        ),
        ({"collective": "_reduce_scatter_base", "dtype": "Float", "in_msg_nelems": 8_000_000}, "data", "gradients_by_payload"),
        ({"pg_desc": "undefined", "collective": "allreduce", "dtype": "Double", "in_msg_nelems": 1}, "other", "scalars_by_payload"),
    ],
)
def test_payload_tells_where_the_group_does_not(taxonomy: Taxonomy, context: dict[str, object], kind: str, rule: str) -> None:
    found = describe(REDUCE, taxonomy, context)
    assert (found.bucket, found.kind, found.rule, found.not_understood) == ("collective", kind, rule, ())


@pytest.mark.parametrize(
    "context",
    [
        {"collective": "allreduce", "dtype": "Float", "in_msg_nelems": 999_999},
        {"collective": "allreduce", "dtype": "BFloat16", "in_msg_nelems": 8_000_000},  # activations, as tensor parallelism sums them
        {"collective": "_allgather_base", "dtype": "Float", "in_msg_nelems": 8_000_000},
        {"collective": "allreduce", "in_msg_nelems": 17},
        {"pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "collective": "allreduce", "dtype": "Float", "in_msg_nelems": 8_000_000},
    ],
)
def test_payload_does_not_tell_more_than_it_can(taxonomy: Taxonomy, context: dict[str, object]) -> None:
    assert not describe(REDUCE, taxonomy, context).rule.endswith("_by_payload")


def test_a_payload_that_says_nothing_is_reported(taxonomy: Taxonomy) -> None:
    assert describe(REDUCE, taxonomy, {"in_msg_nelems": "many"}).not_understood == ("in_msg_nelems",)
