"""However a name is spelled, it is read as the same words; names made up after forms that a change of one word showed to be misread."""

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.measure.buckets.describe import describe_all
from diagnose.measure.buckets.names import namespaces_of, normalised, words_of
from tests.builders.cases import for_each

CUTE = "_object_at__tensorptrbf16gmemalign16"
NAMES = {
    # a granularity of scales is no token that moves
    "per_token_group_masked_kernel": "quantize",
    "PerTokenGroup8bitKernel": "quantize",
    "fp8_per_token_block_kernel": "quantize",
    "token_group_sort_kernel": "dispatch",
    # the middle of an expert's gate is its product's; a gate alone is a router's
    "moe_gate_mid_kernel": "expert_gemm",
    "moe_gate_kernel": "router",
    # positions that are applied are rotated ones; grouped queries are no experts' group
    "apply_pos_emb_forward_kernel": "attention",
    "fused_get_embedding_neox": "attention",
    "position_embedding_lookup_kernel": "embedding",
    "acme_grouped_query_wmma_kernel": "attention",
    "acme_group_wmma_kernel": "expert_gemm",
    "compute_inv_freq_kernel": "attention",
    "intra_chunk_kernel": "attention",
    "chunk_copy_kernel": "elementwise",
    # weights of a layer over the activation beside them
    "fused_w1w3_silu_kernel": "dense_gemm",
    "fused_fc1_gelu_kernel": "dense_gemm",
    # optimised is no optimizer
    "matmul_tiled_optim": "dense_gemm",
    "optim_step_kernel": "optimizer",
    # formats, and what is only unpacked
    "k_iq2_xs": "quantize",
    "gptq_unpack_kernel": "quantize",
    "gptq_gemm_kernel": "dense_gemm",
    "unpack_nibbles_kernel": "quantize",
    "compute_shared_exponent_kernel": "quantize",
    "cast_bf16x4_fp8x4_kernel": "quantize",
    "label_smoothing_kernel": "loss",
    "scharr_gradient_kernel": "convolution",
    "void acme::flash_decode::pass1_kernel<float>(float*)": "attention",
    # how a kernel goes through its work overrules nothing that says what it does
    "group_norm_chunked_fwd_kernel": "norm",
    "gelu_grad_chunked_kernel": "activation",
    "gate_topk_chunked_renorm_kernel": "router",
    "chunk_fwd_scale_kernel": "attention",
    "geglu_fwd_parallel_kernel": "activation",
    "linear_backward_parallel_weight_kernel": "dense_gemm",
    "parallel_fwd_kernel": "attention",
    "conv2d_window_kernel": "convolution",
    "sort_fp8_rows_kernel": "elementwise",
    "saxpy_int8_kernel": "elementwise",
    "acme_fp8_rows_kernel": "quantize",
    "modulate_compute_scale_shift_kernel": "elementwise",
    # the weights of an expert's layer, and their gradients, over how their tokens come and go
    "moe_dw_reduce_kernel": "expert_gemm",
    "moe_dw_gather_kernel": "expert_gemm",
    "moe_reduce_kernel": "dispatch",
    "ep_routed_gemm_kernel": "expert_gemm",
    "ep_routed_tokens_kernel": "dispatch",
    "topk_w13_fused_moe_kernel": "expert_gemm",
    "gating_w2_experts_kernel": "expert_gemm",
    "moe_gating_topk_kernel": "router",
    "routed_fc2_scatter_kernel": "expert_gemm",
    "routed_scatter_kernel": "dispatch",
    "exp_rows_grad_parallel_kernel": "elementwise",
    "index_select_block_kernel": "elementwise",
    "aligned_scale_rows_kernel": "elementwise",
    # forms of which a thousand names each were put together
    "tokens_per_expert_fp8_kernel": "dispatch",
    "tokens_per_expert_w13_gemm": "expert_gemm",
    "moe_gate_block_rows_kernel": "router",
    "moe_block_layout_kernel": "dispatch",
    "z_loss_logits_warp_kernel": "loss",
    "logits_warper_kernel": "other",
    "group_topk_renorm_weights": "router",
    "topk_gating_bwd_parallel_kernel": "router",
    "gate_softmax_topk_block_kernel": "router",
    "router_sinkhorn_fwd_chunked": "router",
    "reglu_grad_chunked_kernel": "activation",
    "wgrad_chunked_kernel": "dense_gemm",
    "activations_to_fp8_quant_kernel": "quantize",
    "silu_activations_quant_kernel": "activation",
    "unpack_int4_activations_kernel": "quantize",
    "moe_block_q4_K": "expert_gemm",
    "moe_bias_q8_0": "expert_gemm",
    "per_token_reduce_fp8_kernel": "quantize",
    "silu_gate_output_kernel": "activation",
    "gate_output_correction_kernel": "attention",
    "mamba_combine_kernel": "attention",
    "ll_combine_rows_kernel": "dispatch",
    "embedding_block_indices_kernel": "embedding",
    "unpermute_rows_2d_kernel": "dispatch",
    "unshuffle_pixel_2d_kernel": "elementwise",
    # CuTe's: another name of the method, a hyphen in the path, a class with underscores; a path that alone tells
    f"kernel_cutlass_kernel_acme-extopsattentionrelShearing{CUTE}": "attention",
    f"kernel_cutlass_kernel_dual_gemmcoreSm100BlockScaledSmall{CUTE}": "dense_gemm",
    f"kernel_cutlass__kernel_acmegemmtoolsCopyTile_Rows{CUTE}": "elementwise",
    f"kernel_cutlass_kernel_acme-extcross_entropyrmsRMSNorm_Bwd{CUTE}": "norm",
}


def test_names_of_these_forms_are_read(taxonomy: Taxonomy):
    found = {name: verdict.bucket for name, verdict in zip(NAMES, describe_all([(name, None) for name in NAMES], taxonomy), strict=True)}
    assert found == NAMES


@for_each("manner", "fast", "serial", "fallback", "autotuned", "hopper", "large")
def test_words_that_say_how_stand_beside_a_line_that_there_is_nothing_but(manner: str, taxonomy: Taxonomy):
    plain = ["kernel", "f32_to_bf16_kernel", "conv1d_shared_kernel", "vec_write_kernel", "bwd_preprocess_kernel"]
    varied = [name.replace("kernel", f"{manner}_kernel") for name in plain]
    found = describe_all([(name, None) for name in (*plain, *varied)], taxonomy)
    assert [(one.bucket, one.weak) for one in found[: len(plain)]] == [(one.bucket, one.weak) for one in found[len(plain) :]]


@for_each(
    "one, other",
    ("gemm128x64_kernel", "gemm_kernel"),
    ("GemmTile128x64x32Kernel", "gemm_tile_kernel"),
    ("moe_hgemm64x64_silu", "moe_hgemm_silu"),
    ("cast_fp8x4_rows", "cast_fp8_rows"),
    ("rows8bit_pack", "rows_8bit_pack"),
    (f"kernel_cutlass_kernel_acme-extopsmoeTopK_Bias{CUTE}", "top_k_bias"),
    (f"kernel_cutlass__kernel_acmeopsmoeTopKBias{CUTE}", "TopKBias"),
)
def test_both_spellings_are_the_same_words(one: str, other: str, taxonomy: Taxonomy):
    first, second = words_of(normalised(pl.Series([one, other])), taxonomy)
    assert first == second


def test_known_words_are_cut_out_of_a_cute_class_s_path():
    names = normalised(pl.Series([f"kernel_cutlass_kernel_acme-extopsattentionrelShearing{CUTE}", "void acme::gemmtools::scan(int*)"]))
    assert namespaces_of(names).to_list() == [" acme extops attention rel ", " acme gemmtools "]
