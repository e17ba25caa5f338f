"""Bucket, role, kind and phase of device operations: by name, by launch context, by process group."""

from pathlib import Path
from typing import Any

import polars as pl

from diagnose.knowledge.buckets import load_buckets
from diagnose.knowledge.taxonomy import Context, Family, Group, Taxonomy, load_taxonomy
from diagnose.measure.buckets.classify import NO_GROUP, Classified, classify, decide, group_index
from diagnose.measure.buckets.describe import describe, describe_all
from diagnose.measure.buckets.names import demangled, normalised
from diagnose.measure.host import attribute
from diagnose.model.trace import Trace
from tests.builders.cases import for_each
from tests.builders.small_traces import Launch, Range, trace_of

GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false> >(flash::Flash_fwd_params)"
NORM_FWD = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<int>(transformer_engine::normalization::ForwardKernelParams)"


def classified(trace: Trace, taxonomy: Taxonomy) -> Classified:
    return classify(trace, attribute(trace), taxonomy)


def rows(trace: Trace, taxonomy: Taxonomy, *columns: str) -> list[Any]:
    """The named columns of every operation's class: bare values for one column, tuples for several."""
    found = classified(trace, taxonomy)
    joined = pl.DataFrame({"class_id": found.class_id}).join(found.classes, on="class_id", how="left", maintain_order="left")
    return joined[columns[0]].to_list() if len(columns) == 1 else joined.select(columns).rows()


@for_each(
    "name",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, (int)8, (int)768, (int)4096>(T1 *, float *)",
    "void some_fork::ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
    "void deep_ep::legacy::intranode::combine<__nv_bfloat16, 8>(__nv_bfloat16*)",
    "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_PfPKS2_",
    "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_PfPKS2_.kd",
    "void deep_ep::intranode::combine<__nv_bf",
)
def test_one_kernel_in_every_spelling(taxonomy: Taxonomy, name: str):
    verdict = describe(name, taxonomy)
    assert (verdict.bucket, verdict.role, verdict.kind, verdict.backend, verdict.rule) == (
        "dispatch", "transport", "expert", "deepep", "deepep_combine",
    )  # fmt: skip


def test_names_are_normalised_and_demangled():
    names = [
        "void at::native::(anonymous namespace)::f<4, true, std::array<char*, 3ul> >(int)",
        "void at::native::<unnamed>::f<(int)4, (bool)1, std::array<char *, (unsigned long)3>>(int)",
        "Cijk_A.kd",
        "void acme::run<4>(int) [clone .kd]",
        "_fused_moe_kernel_0d1d2de3c4c",
        "_fused_moe_kernel_01d2de",
        "triton_poi_fused_add_0",
        None,
    ]
    assert normalised(pl.Series(names)).to_list() == [
        "at::native::f<4, true, std::array<char*, 3ul>>(int)", "at::native::f<4, true, std::array<char*, 3>>(int)", "Cijk_A",
        "acme::run<4>(int)", "_fused_moe_kernel", "_fused_moe_kernel", "triton_poi_fused_add_0", None,
    ]  # fmt: skip
    name = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256ELb1EEEvPT0_S4_i"
    assert demangled(name) == f"aiter::add_rmsnorm_quant_kernel:: {name}"
    assert demangled("plain_kernel") == "plain_kernel"
    assert demangled("_Z") == " _Z"
    assert demangled("_Z99999999short") == "short:: _Z99999999short"


def test_a_plain_product_may_belong_to_several_but_is_dense_where_nothing_is_of_experts(taxonomy: Taxonomy):
    alone = describe(GEMM, taxonomy)
    assert (alone.bucket, alone.weak, alone.evidence) == ("dense_gemm", True, "name")
    assert set(alone.alternatives) == {"expert_gemm", "router", "vision_encoder"}
    assert rows(trace_of([Launch(name=GEMM, at=0)]), taxonomy, "bucket", "weak") == [("dense_gemm", False)]


TOWER = ["Qwen3VLVisionModel_0", "Qwen3VLVisionTransformerBlock_0", "nn.Module: SelfAttention_3"]
GATHERED = "void at::native::vectorized_gather_kernel<16, long>(char*)"
VL = "Qwen3VLModel.forward."

# Kernel, its launch context, and what it is: bucket, and role, phase and evidence where they are told.
CONTEXTS = [
    (GEMM, {"nvtx": ["TEColumnParallelGroupedLinear forward", "nvte_multi_tensor_gemm"]}, {"bucket": "expert_gemm"}),
    (GEMM, {"ops": ["_GroupedLinearBackward"]}, {"bucket": "expert_gemm", "role": "compute", "phase": "backward", "evidence": "operator"}),
    (GEMM, {"ops": ["_LayerNormLinear"]}, {"bucket": "dense_gemm", "role": "compute", "phase": "forward", "evidence": "operator"}),
    (GEMM, {"modules": ["nn.Module: TopKRouter_7"]}, {"bucket": "router", "evidence": "module"}),
    (GEMM, {"modules": ["nn.Module: MoELayer_4", "nn.Module: SharedExpertMLP_4"]}, {"bucket": "dense_gemm", "evidence": "module"}),
    # torchtitan's shared expert; other libraries' layers of experts hold the routed ones as FeedForward
    (GEMM, {"modules": ["nn.Module: MoE_4", "nn.Module: FeedForward_9"]}, {"bucket": "dense_gemm", "evidence": "module"}),
    (GEMM, {"modules": ["nn.Module: MoE_4", "nn.Module: Experts_4", "nn.Module: FeedForward_9"]}, {"bucket": "expert_gemm"}),
    (GEMM, {"modules": ["nn.Module: MoeLayer_4", "nn.Module: FeedForward_9"]}, {"bucket": "expert_gemm"}),
    (GEMM, {"modules": ["nn.Module: MoE_4"]}, {"bucket": "expert_gemm"}),
    (ADD, {"modules": ["nn.Module: Ernie4_5_MoeSparseMoeBlock_1", "nn.Module: Ernie4_5_MoeStatics_1"]}, {"bucket": "router"}),
    (ADD, {"nvtx": ["layer.mlp", "activation_func"]}, {"bucket": "activation"}),
    (ADD, {"nvtx": ["silu_and_mul"]}, {"bucket": "activation"}),
    (ADD, {"nvtx": ["mlp"]}, {"bucket": "elementwise"}),
    (GEMM, {"nvtx": ["megatron.bridge.training.train.train_step.optimizer_step"]},
     {"bucket": "optimizer", "role": "compute", "phase": "optimizer"}),
    # Vision wins over names but not over collectives and copies.
    *[(name, {"modules": TOWER}, {"bucket": "vision_encoder"}) for name in (FLASH, GEMM, NORM_FWD, ADD)],
    ("Memset (Device)", {"modules": TOWER}, {"bucket": "memset", "role": "copy"}),
    ("ncclDevKernel_AllGather_RING_LL()", {"modules": TOWER}, {"bucket": "collective", "role": "transport"}),
    # Language attention of a vision model is attention.
    (FLASH, {"nvtx": [VL + "language_model", "megatron.bridge.models.qwen_vl.modelling_qwen3_vl.attention.forward.core_attention"]},
     {"bucket": "attention"}),
    (FLASH, {"nvtx": [VL + "pre_process", "megatron.core.transformer.attention.forward.core_attention"]}, {"bucket": "vision_encoder"}),
    (GATHERED, {"nvtx": [VL + "pre_process", "megatron.core.models.common.embeddings.language_model_embedding.forward"]},
     {"bucket": "embedding"}),
    (GEMM, {"modules": ["nn.Module: Qwen2VLForVision2Seq_0"]}, {"bucket": "dense_gemm"}),
    # Generic kernels that rearrange tokens are packing.
    (GATHERED, {"modules": ["nn.Module: MoELayer_1", "nn.Module: MoEAlltoAllTokenDispatcher_1"]},
     {"bucket": "dispatch", "role": "packing"}),
    (ADD, {"modules": ["nn.Module: TopKRouter_1"]}, {"bucket": "router", "role": "compute"}),
    # Without a group the caller says what an exchange is for.
    (SENDRECV, {"ops": ["megatron.core.pipeline_parallel.p2p_communication.send_forward"]}, {"kind": "pipeline"}),
    (SENDRECV, {"ops": ["transformer_engine.AttnFuncWithCPAndKVP2P.forward"]}, {"kind": "context"}),
    (SENDRECV, {"ops": ["FusedDispatch"]}, {"kind": "expert"}),
    # Megatron-LM's and DeepSpeed's function: outside attention and other mixers only their layers of experts call it
    (SENDRECV, {"ops": ["_AllToAll", "nccl:all_to_all"]}, {"kind": "expert", "bucket": "dispatch"}),
    (SENDRECV, {"ops": ["_AllToAll"], "modules": ["MambaMixer_2"]}, {"kind": "context", "bucket": "collective"}),
    (SENDRECV, {"ops": ["_AllToAll"], "pg_desc": "CONTEXT_PARALLEL_GROUP"}, {"kind": "context", "bucket": "collective"}),
    (SENDRECV, {"ops": ["_AllToAll"], "pg_desc": "EXPERT_MODEL_PARALLEL_GROUP", "modules": ["AttnFuncWithCP"]}, {"kind": "expert"}),
    # Pieces of the overlapped schedule.
    (GEMM.replace("TNN", "NTT"), {"nvtx": ["mlp wgrad", "nvte_multi_tensor_gemm"]}, {"bucket": "expert_gemm"}),
    (GEMM.replace("TNN", "NTT"), {"nvtx": ["mlp wgrad", "nvte_cublas_gemm_v2"]}, {"bucket": "dense_gemm"}),
    (GEMM.replace("TNN", "NTT"), {"nvtx": ["mlp wgrad"]}, {"bucket": "expert_gemm"}),
    (GEMM.replace("TNN", "NTT"), {"nvtx": ["nvte_cublas_gemm_v2"]}, {"bucket": "dense_gemm"}),
    (ADD, {"nvtx": ["moe_combine forward"]}, {"bucket": "elementwise"}),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<int>(int)", {"nvtx": ["moe_combine forward"]}, {"bucket": "dispatch"}),
    # A forward kernel in backward is recomputed.
    (NORM_FWD, {"ops": ["LinearBackward0"]}, {"phase": "recompute"}),
    (NORM_FWD, {}, {"phase": "forward"}),
    (NORM_FWD.replace("fwd", "bwd"), {"ops": ["CheckpointFunctionBackward"]}, {"phase": "backward"}),
]  # fmt: skip


def test_the_launch_context_tells_what_a_kernel_is(taxonomy: Taxonomy):
    found = describe_all([(name, context) for name, context, _ in CONTEXTS], taxonomy)
    assert [
        (name, context, {field: getattr(one, field) for field in told}) for (name, context, told), one in zip(CONTEXTS, found, strict=True)
    ] == CONTEXTS


def test_backends_and_roles_of_what_moves_tokens(taxonomy: Taxonomy):
    cases = {
        "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)": ("packing", None, None),
        "void deep_ep::internode::notify_dispatch<false, 8>(int const*)": ("transport", "expert", "deepep"),
        "hybrid_ep::device_sync_kernel()": ("transport", "expert", "hybridep"),
        "void hybrid_ep::scan<4>()": ("packing", None, None),
        "c10d::nvshmem_extension::allToAllV(void*)": ("transport", "expert", "nvshmem"),
        "_permute_kernel": ("packing", None, None),
        "_sort_chunks_by_map_kernel": ("packing", None, None),
        "kuserbuffers_pushsend(int*)": ("transport", "tensor", "userbuffers"),
        "Memcpy PtoP (Device -> Device)": ("transport", "other", "peer_copy"),
        "[CUDA memcpy Peer-to-Peer]": ("transport", "other", "peer_copy"),
        "[CUDA memcpy Device-to-Device]": ("copy", None, None),
        "void multimem_all_reduce_kernel<c10::BFloat16, 4>()": ("transport", "other", "symmetric_memory"),
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": ("transport", "other", "rccl"),
        "at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**)": ("packing", None, None),
    }
    found = describe_all([(name, None) for name in cases], taxonomy)
    assert {name: (one.role, one.kind, one.backend) for name, one in zip(cases, found, strict=True)} == cases


def test_phase_of_a_generic_kernel(taxonomy: Taxonomy):
    phases = [
        (["CheckpointFunctionBackward", "_LayerNormLinear"], "recompute"),
        (["autograd::engine::evaluate_function: CheckpointFunctionBackward", "CheckpointFunctionBackward"], "recompute"),
        (["CheckpointFunctionBackward", "autograd::engine::evaluate_function: MulBackward0"], "backward"),
        (["ReluBackward0", "aten::conv2d"], "recompute"),
        (["ReluBackward0", "aten::sum"], "backward"),
        (["_LayerNormLinear"], "forward"),
        (["Optimizer.step#Adam.step", "aten::mul"], "optimizer"),
        (["torch::autograd::AccumulateGrad"], "backward"),
        (["megatron.core.pipeline_parallel.p2p_communication.recv_backward"], None),
        *(
            (["forward_backward", *ops], phase)
            for ops, phase in (([], None), (["_LayerNormLinear"], "forward"), (["MulBackward0"], "backward"))
        ),
        (["forward-backward"], None),
        (["fwd and backward"], None),
        (["te_moe::permute_mask_map_fwdBackward"], "backward"),
        ([], None),
    ]
    found = describe_all([(ADD, {"ops": ops}) for ops, _ in phases], taxonomy)
    assert [(ops, one.phase) for (ops, _), one in zip(phases, found, strict=True)] == phases


def test_softmax_of_scores_that_stand_in_memory_is_softmax(taxonomy: Taxonomy):
    """Megatron's fused scale, mask and softmax runs between two products, as any softmax of attention that is computed step by step."""
    kernel = "void transformer_engine::scaled_upper_triang_masked_softmax_warp_forward<__nv_bfloat16, __nv_bfloat16, float, 0>(int)"
    assert rows(trace_of([Launch(name=kernel, at=0)]), taxonomy, "bucket", "operation") == [("attention", "softmax")]


def test_every_operation_gets_a_class_in_order(taxonomy: Taxonomy):
    launches = [
        Launch(name=GEMM, at=0),
        Launch(name="Memcpy HtoD (Pinned -> Device)", at=10, kind="memcpy"),
        Launch(name="anything at all", at=20, kind="memset"),
        Launch(name="CUDA graph", at=30, kind="graph"),
        Launch(name="a kernel nobody knows", at=40),
    ]
    found = classified(trace_of(launches), taxonomy)
    assert found.class_id.dtype == pl.UInt16
    assert found.class_id.name == "class_id"
    assert found.classes["class_id"].to_list() == list(range(5))
    assert rows(trace_of(launches), taxonomy, "bucket", "role", "operation") == [
        ("dense_gemm", "compute", "gemm"), ("memcpy", "copy", "copy"), ("memset", "copy", "copy"), ("other", "compute", "graph"),
        ("other", "compute", "other"),
    ]  # fmt: skip


def test_classes_are_decided_per_launch_context_not_per_name(taxonomy: Taxonomy):
    ranges = [
        Range(text="nn.Module: TEGroupedMLP_0", start=0, end=100, kind="python"),
        Range(text="nn.Module: SelfAttention_0", start=100, end=200, kind="python"),
        Range(text="_Linear", start=110, end=190),
    ]
    trace = trace_of([Launch(name=GEMM, at=50), Launch(name=GEMM, at=150), Launch(name=GEMM, at=250)], ranges)
    assert rows(trace, taxonomy, "bucket", "decided_by", "weak") == [
        ("expert_gemm", "module", False),
        ("dense_gemm", "operator", False),
        ("dense_gemm", "name", True),
    ]


def test_descriptions_reach_the_collective_from_kernel_or_range(taxonomy: Taxonomy):
    ranges = [Range(text="record_param_comms", start=100, end=150, kind="comms", payload=1)]
    launches = [Launch(name=SENDRECV, at=10, payload=0), Launch(name=SENDRECV, at=120, stream=8), Launch(name=ADD, at=130)]
    trace = trace_of(launches, ranges, groups=["EXPERT_MODEL_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP"])
    assert rows(trace, taxonomy, "bucket", "kind", "decided_by") == [
        ("dispatch", "expert", "operator"),
        ("collective", "pipeline", "operator"),
        ("elementwise", None, "name"),
    ]


OWN = """
families:
  - id: our_kernel
    patterns: ['^acme_mixer']
    operation: attention
    bucket: attention
  - id: our_flash
    patterns: ['flash_fwd_kernel']
    operation: attention
    bucket: other
contexts:
  - id: our_range
    patterns: ['^acme experts$']
    evidence: module
    operations: [gemm]
    bucket: expert_gemm
groups:
  - id: our_group
    patterns: ['^ring of fire$']
    kind: expert
"""


def test_the_user_s_own_rules_win(tmp_path: Path):
    (tmp_path / "own.yaml").write_text(OWN)
    own = load_taxonomy(extra=[tmp_path / "own.yaml"])
    ranges = [Range(text="acme experts", start=0, end=100, kind="push_pop"), Range(text="_Linear", start=0, end=100)]
    launches = [
        Launch(name="acme_mixer_fwd", at=10),
        Launch(name=FLASH, at=20),
        Launch(name=GEMM, at=30),
        Launch(name=SENDRECV, at=40, payload=0),
    ]
    trace = trace_of(launches, ranges, groups=["ring of fire"])
    assert rows(trace, own, "bucket", "decided_by", "rule") == [
        ("attention", "rule", "our_kernel"),
        ("other", "rule", "our_flash"),
        ("expert_gemm", "rule", "our_range"),
        ("dispatch", "rule", "our_group"),
    ]


def test_requirements_and_decisive_names():
    family = Family(id="f", patterns=("f",), operation="gemm", default="dense_gemm")
    needs = Context(id="needs", patterns=("n",), evidence="operator", bucket="attention", operations=("gemm",), requires=("other",))
    other = Context(id="other", patterns=("o",), evidence="module", bucket="norm", operations=("reduce",))
    assert decide(family, [needs], None, own=frozenset(), buckets=load_buckets()).bucket == "dense_gemm"
    assert decide(family, [needs, other], None, own=frozenset(), buckets=load_buckets()).bucket == "attention"
    sure = Family(id="s", patterns=("s",), operation="gemm", bucket="expert_gemm", decisive=True)
    assert decide(sure, [needs, other], None, own=frozenset(), buckets=load_buckets()).bucket == "expert_gemm"
    group = Group(id="g", patterns=("g",), kind="tensor")
    fixed = Family(id="t", patterns=("t",), operation="collective", bucket="collective", role="transport", kind="data")
    assert decide(fixed, [], group, own=frozenset(), buckets=load_buckets()).kind == "data"
    # what the user's own entries say goes before every name, but for a name of the user's own
    mine = Context(id="m", patterns=("m",), evidence="module", bucket="loss", kind="pipeline")
    found = [
        decide(sure, [mine], None, own=frozenset({"contexts/m"}), buckets=load_buckets()).bucket,
        decide(fixed, [mine], group, own=frozenset({"contexts/m"}), buckets=load_buckets()).kind,
        decide(fixed, [], group, own=frozenset({"groups/g"}), buckets=load_buckets()).kind,
        decide(fixed, [], group, own=frozenset({"groups/g", "t"}), buckets=load_buckets()).kind,
    ]
    assert found == ["loss", "pipeline", "tensor", "data"]


# -------------------- what the context of a launch tells about a kernel that is known by name alone

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ROWS = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 7, false, false>(float*)"
CORE, BRIDGE = "megatron.core.", "megatron.bridge."


def test_ranges_tell_the_bucket(taxonomy: Taxonomy):
    """Ranges as the sources of Megatron-Core, Megatron-Bridge, Transformer Engine and PyTorch spell them."""
    ranges = [
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
    ]
    found = describe_all([(name, {"nvtx": [nvtx]}) for name, nvtx, _ in ranges], taxonomy)
    assert [(name, nvtx, one.bucket, one.weak) for (name, nvtx, _), one in zip(ranges, found, strict=True)] == [
        (*row, False) for row in ranges
    ]


def test_modules_named_for_experts_and_ranges_that_people_write(taxonomy: Taxonomy):
    """Layers of experts in models of no known framework; a whole model's class (a decoder layer, attention) shows no expert."""
    linear = "Linear_3"
    rows = [
        (GEMM, ["TinyMoE_0", linear], "expert_gemm"),
        (GEMM, ["SwitchFFN_1", linear], "expert_gemm"),
        (GEMM, ["MyExperts_2", linear], "expert_gemm"),
        (GEMM, ["MoEFeedForward_0"], "expert_gemm"),
        (GEMM, ["TinyMoE_0", "TopKRouter_0"], "router"),
        (GEMM, ["TinyMoE_0", "SharedExpert_0"], "dense_gemm"),
        (GEMM, ["Qwen3MoeDecoderLayer_4", "Qwen3MoeAttention_4", linear], "dense_gemm"),
        (GEMM, ["SwitchTransformersModel_0", linear], "dense_gemm"),
    ]
    found = describe_all([(name, {"modules": modules}) for name, modules, _ in rows], taxonomy)
    assert [(modules, one.bucket) for (_, modules, _), one in zip(rows, found, strict=True)] == [
        (modules, bucket) for _, modules, bucket in rows
    ]
    for text in ("computing attention scores", "scaled dot product attention", "attn_scores"):
        assert {one.bucket for one in describe_all([(name, {"nvtx": [text]}) for name in (GEMM, ADD, SOFTMAX)], taxonomy)} == {
            "attention"
        }, text
    (one,) = describe_all([(GEMM, {"nvtx": ["attention layer 3"]})], taxonomy)
    assert one.bucket == "dense_gemm"


GROUPS = {
    "data": [
        "DATA_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_AG", "DATA_PARALLEL_GROUP_WITH_CP", "DATA_PARALLEL_GROUP_WITH_CP_AG",
        "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "EXPERT_DATA_PARALLEL_GROUP", "EXPERT_DATA_PARALLEL_GROUP_AG",
        "INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", "mesh_dp_shard_in_ep",
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


@for_each("name", SENDRECV, GATHER)
def test_every_group_that_megatron_describes_has_its_kind(taxonomy: Taxonomy, name: str):
    cases = [(kind, text) for kind, texts in GROUPS.items() for text in texts]
    found = describe_all([(name, {"pg_desc": text}) for _, text in cases], taxonomy)
    told = {text: (one.kind, one.bucket, one.role) for (_, text), one in zip(cases, found, strict=True)}
    assert told == {text: (kind, "dispatch" if kind == "expert" else "collective", "transport") for kind, text in cases}
    assert {text for (_, text), one in zip(cases, found, strict=True) if one.weak} == (
        {"default_pg", "undefined"} if name == SENDRECV else set()
    )


def test_the_kernels_on_either_side_decide_as_they_do_in_a_trace(taxonomy: Taxonomy):
    cases = [
        (GEMM, ["_permute_kernel", "_unpermute_kernel"], "expert_gemm", None),
        (GEMM, "permute .. unpermute", "expert_gemm", None),
        (GEMM, ["rmsnorm_fwd_tuned_kernel", "flash_fwd_kernel"], "dense_gemm", None),
        (SENDRECV, "_permute_kernel and _sort_chunks_by_map_kernel", "dispatch", "expert"),
        (SENDRECV, ["fused_rope_forward_kernel", "flash_fwd_kernel"], "collective", "context"),
        ("void cublasLt::splitKreduce_kernel<32>", ["nvjet_sm100_tst_ptrGroup_NTT", "x"], "expert_gemm", None),
    ]
    found = describe_all([(name, {"between": between}) for name, between, *_ in cases], taxonomy)
    assert [(name, between, one.bucket, one.kind) for (name, between, *_), one in zip(cases, found, strict=True)] == cases
    assert [one.weak for one in found] == [one.bucket == "dense_gemm" for one in found]
    assert all(one.weak for one in describe_all([(name, None) for name, *_ in cases], taxonomy))


def test_the_phase_told_counts_and_forward_modules_tell_the_bucket_but_no_phase(taxonomy: Taxonomy):
    assert describe(GEMM, taxonomy, {"phase": "backward"}).phase == "backward"
    assert describe(FLASH, taxonomy, {"phase": "end of backward"}).phase == "recompute"
    assert describe(GEMM, taxonomy, {"phase": "backward", "ops": ["CheckpointFunctionBackward", "_Linear"]}).phase == "recompute"
    found = describe(GEMM, taxonomy, {"phase": "optimizer (grad-norm)"})
    assert (found.bucket, found.phase) == ("optimizer", "optimizer")
    assert describe(GEMM, taxonomy, {"phase": "after optimizer step / next forward"}).not_understood == ("phase",)
    found = describe(GEMM, taxonomy, {"fwd_modules": ["TopKRouter_0"], "ops": ["MmBackward0"]})
    assert (found.bucket, found.phase) == ("router", "backward")
    assert describe(ADD, taxonomy, {"fwd_modules": ["torch.optim.adamw.AdamW.step", "optimizer"]}).bucket == "elementwise"


def test_what_is_not_understood_is_said_and_ambiguous_names_name_their_candidates(taxonomy: Taxonomy):
    silent = {"grid": [1, 1, 1], "mean_us": 3.0, "origin": "trace", "ops": [], "nvtx": None}
    assert describe(ADD, taxonomy, silent).not_understood == ()
    assert describe(ADD, taxonomy, {"opps": ["x"], "ops": 3, "between": "one"}).not_understood == ("opps", "ops", "between")
    for name, candidates in ((GEMM, {"expert_gemm", "router"}), (SENDRECV, {"dispatch"}), (SOFTMAX, {"router"}), (ROWS, {"dispatch"})):
        found = describe(name, taxonomy)
        assert found.weak
        assert candidates <= set(found.alternatives)


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_payload_tells_where_the_group_does_not_and_one_that_says_nothing_is_reported(taxonomy: Taxonomy) -> None:
    telling = [
        {"pg_desc": "default_pg", "collective": "allreduce", "dtype": "Float", "in_msg_nelems": 1_000_000},
        {"collective": "_reduce_scatter_base", "dtype": "Float", "in_msg_nelems": 8_000_000},
        {"pg_desc": "undefined", "collective": "allreduce", "dtype": "Double", "in_msg_nelems": 1},
    ]
    found = describe_all([(REDUCE, context) for context in telling], taxonomy)
    assert [(one.bucket, one.kind, one.rule, one.not_understood) for one in found] == [
        ("collective", kind, f"{rule}_by_payload", ())
        for kind, rule in (("data", "gradients"), ("data", "gradients"), ("other", "scalars"))
    ]
    world = pl.DataFrame(
        {
            "group": ["default_pg", "undefined"],
            "collective": ["_allgather_base"] * 2,
            "dtype": ["BFloat16"] * 2,
            "elements_in": [8_000_000] * 2,
        }
    )
    ids = [one.id for one in taxonomy.groups]
    assert group_index(world, taxonomy).to_list() == [NO_GROUP] * 2
    assert group_index(world, taxonomy, frozenset({"other"})).to_list() == [ids.index("world_of_zero"), NO_GROUP]
    silent = [
        {"collective": "allreduce", "dtype": "Float", "in_msg_nelems": 999_999},
        {"collective": "allreduce", "dtype": "BFloat16", "in_msg_nelems": 8_000_000},  # activations, as tensor parallelism sums them
        {"collective": "_allgather_base", "dtype": "Float", "in_msg_nelems": 8_000_000},
        {"collective": "allreduce", "in_msg_nelems": 17},
        {"pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "collective": "allreduce", "dtype": "Float", "in_msg_nelems": 8_000_000},
    ]
    found = describe_all([(REDUCE, context) for context in silent], taxonomy)
    assert not any(one.rule.endswith("_by_payload") for one in found)
    assert describe(REDUCE, taxonomy, {"in_msg_nelems": "many"}).not_understood == ("in_msg_nelems",)


def test_an_all_to_all_inside_data_parallelism_s_wrapper_reduces_no_gradients(taxonomy: Taxonomy):
    """Embeddings of a recommender travel so; an all-reduce in the same place is data-parallel."""
    where = {"nvtx": ["DistributedDataParallel.forward"]}
    exchange, reduction = describe_all([(SENDRECV, where), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", where)], taxonomy)
    assert (exchange.kind, reduction.kind) == ("other", "data")


def test_what_fills_and_empties_fsdp_s_buffers_is_packing(taxonomy: Taxonomy):
    """A copy into the buffer that is gathered is generic by name, and hides no exchange that runs beside it."""
    inside, plain = describe_all([(ADD, {"ops": ["fsdp::all_gather_copy_in"]}), (ADD, {"ops": ["aten::copy_"]})], taxonomy)
    assert (inside.bucket, inside.role) == ("collective", "packing")
    assert plain.role == "compute"
