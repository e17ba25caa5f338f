"""Names that no family knows are read by their words, and by their parents where the words say nothing."""

import polars as pl
import pytest

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.knowledge.words import Lines, WrongLineError
from diagnose.measure.buckets.describe import describe_all
from diagnose.measure.buckets.names import namespaces_of, normalised, words_of
from tests.builders.cases import for_each

# Kernels of current libraries that a review found answered wrong, and names made up after the same rules, with near misses beside them.
NAMES = {
    # a format of GGML's that is converted; an adjective before a product; a verb before the name of a format's library
    "q4_k_to_fp32_batch_kernel": "quantize",
    "f16_to_q8_0_kernel": "quantize",
    "quantized_linear_forward_kernel": "dense_gemm",
    "MXFP4QuantizeLinearKernel": "quantize",
    "repack_marlin_moe_weights_kernel": "quantize",
    # heads change places in a namespace of attention; tokens do in one of experts
    "acme::Gqa::unpermute_output_kernel(float*, float const*, int)": "attention",
    "acme::MultiHeadAttention::permute_backward_kernel(float*, float const*, int)": "attention",
    "acme::moe::unpermute_output_kernel(float*, float const*, int)": "dispatch",
    "pv_matmul_kernel": "attention",
    # an activation by a router's weight, an expert's by that word alone; activations that are added
    "silu_mul_topk_weight_kernel": "activation",
    "moe_act_f16": "activation",
    "expert_swiglu_backward_kernel": "activation",
    "_fused_moe_silu_kernel": "expert_gemm",
    "sum_activations_kernel": "elementwise",
    "add_bias_activation_kernel": "activation",
    "LeakyForward": "activation",
    # experts' products by the names of their weights, by whom they are computed, by what they are given
    "expert_upproj_kernel": "expert_gemm",
    "moe_wo_kernel": "expert_gemm",
    "ep_ffn_up_kernel": "expert_gemm",
    "matmul_by_ids_kernel": "expert_gemm",
    "expert_gradient_w_kernel": "expert_gemm",
    "run_global_fused_moe": "expert_gemm",
    "moe_mma_sync_kernel": "expert_gemm",
    "moe_gemm_signal_kernel": "expert_gemm",
    "expert_gate_mlp_kernel": "expert_gemm",
    "moe_ffn_reduce_kernel": "expert_gemm",
    "moe_sum_reduce_kernel": "dispatch",
    "dispatch_fc1_kernel": "expert_gemm",
    "moe_grad_w1_accumulate_kernel": "expert_gemm",
    "expert_bias_gradient_kernel": "elementwise",
    "moe_signal_wait_kernel": "dispatch",
    "moe_varlen_k_gemm_kernel": "expert_gemm",
    "moe_tma_descriptor_init_kernel": "expert_gemm",
    "moe_phase2_kernel": "expert_gemm",
    "acme_build_gather_ep_gather_kernel": "dispatch",
    # other products
    "mul_mv_q8_0_f32_kernel": "dense_gemm",
    "matrix_mult_optimized": "dense_gemm",
    "fully_connected_forward_kernel": "dense_gemm",
    "fc_backward_weights_kernel": "dense_gemm",
    # a matrix that is scaled has no format's scales; a kernel that sets memory is no copy engine's
    "matrix_scale_kernel": "elementwise",
    "attn_output_add_residual_kernel": "elementwise",
    "mlp_residual_add_inplace_kernel": "elementwise",
    "fused_mlp_residual_add_kernel": "dense_gemm",
    "scale_by_inv_kernel": "elementwise",
    "MemsetD32Kernel": "elementwise",
    "NearestNeighborNCHW": "convolution",
    "AdaGradFP16": "optimizer",
    # PyTorch's own are read as any library's, and a lambda by the function that holds it
    "void at::native::(anonymous namespace)::weight_norm_fwd_first_dim_kernel<float>(float*)": "norm",
    "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float>(int)": "attention",
    "at::native::(anonymous namespace)::populate_cublas_grouped_args_kernel(int const*)": "expert_gemm",
    "void at::native::(anonymous namespace)::segment_reduce_forward_kernel<float>(float*)": "elementwise",
    "void at::native::vectorized_elementwise_kernel<4, at::native::hardsigmoid_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>>(int)": "activation",
    "void at::native::unrolled_elementwise_kernel_for_multi_outputs<2, at::native::fake_quantize_tensor_kernel_cuda(float)::[lambda() (instance 1)]>(int)": "quantize",
    "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}, std::array<char*, 2ul>>(int)": "elementwise",
    "void at::native::unrolled_elementwise_kernel<at::native::div_true_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)": "elementwise",
    # what ends like a box's overlap is no detection; pictures are no model's work
    "kCautiousWeightDecayUpdate": "optimizer",
    "add_previous_rows_kernel": "elementwise",
    "acme_giou_forward_kernel": "other",
    "bgr_to_gray_kernel": "other",
    "cubic_resize_kernel": "convolution",
    "padded_to_packed_kernel": "elementwise",
    "blit_region_kernel": "elementwise",
    # an exchange's library and its experts over filling and packing; heads that are exchanged; an instruction is no divided context
    "deepep_fill_counts_kernel": "dispatch",
    "pack_expert_rows_kernel": "dispatch",
    "a2a_transpose_gemm_kernel": "collective",
    "gemm_cp_async_stage_kernel": "dense_gemm",
    "acme_simt_tile_kernel": "dense_gemm",
    "attention_unpermute_heads_kernel": "attention",
    "merge_scores_with_sink_kernel": "attention",
    "compressor_backward_pool_kernel": "attention",
    "acme_compressor_kernel": "other",
    "reshuffle_sfb_kernel": "quantize",
    "lm_head_lse_merge_kernel": "loss",
    "matrix_multiplication_shared_kernel": "dense_gemm",
    "index_put_kernel": "elementwise",
    "randperm_rows_kernel": "elementwise",
    "popcount_kernel": "elementwise",
    "compute_m_sizes_kernel": "dispatch",
    "copy_expert_tokens_kernel": "dispatch",
    "_grouped_dW_kernel": "expert_gemm",
    "block_rearrange_K_groups_mxfp8_kernel": "quantize",
    "cast_mxfp8_gated_kernel": "activation",
    "void transformer_engine::(anonymous namespace)::scaled_unary_backward_kernel<128, true, float>(int)": "activation",
    "Cijk_Ailk_Bljk_BBS_BH_GG_Bias_HA_S_SAV_UserArgs_MT256x256x64": "expert_gemm",
    # how an expert's product is computed, its weights' format, what is fused behind it; where a layer of experts attends or counts
    "moe_q4k_imma_tile_kernel": "expert_gemm",
    "moe_layer_fp8_kernel": "expert_gemm",
    "expert_tensorcore_dp4a_kernel": "expert_gemm",
    "fused_moe_super_kernel_large": "expert_gemm",
    "moe_intermediate_tiled_kernel": "expert_gemm",
    "moe_down_combine_f32_kernel": "expert_gemm",
    "_grouped_grad_weight_kernel": "expert_gemm",
    "kernel_cutlass_kernel_acmefusedmoeTileGemmSm90_object_at__tensorptrbf16": "expert_gemm",
    "segmented_gemm_kernel": "expert_gemm",
    "acme_gemm_execute_segment_k_off_kernel": "dense_gemm",
    "moe_ffn_arange_kernel": "elementwise",
    "void acme::gate_up<20>(acme::ExpertBatch, float*)": "expert_gemm",
    "void acme::gate_up<20>(acme::Experts*, float*)": "dense_gemm",
    "expert_qkv_rope_kernel": "attention",
    "moe_invert_kernel": "dispatch",
    "build_expert_masks_kernel": "dispatch",
    "moe_normalize_weights_kernel": "router",
    "expert_choice_kernel": "router",
    # what is added to a product or applied to it, statistics called delta, derivatives of a loss by what follows
    "addResidualToOutProj": "elementwise",
    "applySiluToFFN": "activation",
    "acme_variance_delta_kernel": "elementwise",
    "dLoss_dPreRMSNorm": "norm",
    "dLoss_d_pre_rope": "attention",
    "softmax_x_ent_kernel": "loss",
    # routines of BLAS, verbs of arrays, numbers of 64 bits; orders of axes and of places in memory, with scales beside them
    "scal_kernel": "elementwise",
    "vector_scalar_op_kernel": "elementwise",
    "logical_or_cuda": "elementwise",
    "exp_fp64_kernel": "elementwise",
    "real_cmpx64_kernel": "elementwise",
    "GATHERV2": "elementwise",
    "permute_0213_kernel": "elementwise",
    "swizzle_rows_kernel": "elementwise",
    "swizzle_blockscale_kernel": "quantize",
    "hadamard_multiply_kernel": "elementwise",
    "downcast_bf16_kernel": "elementwise",
    "dropout_8bit_rng_kernel": "elementwise",
    "binarize_weights_kernel": "quantize",
    "prompt_dequant_rows_kernel": "quantize",
    # pointers for many products at once, an expert's activation by itself, what is gathered of experts
    "build_gemm_pointers_gate_up_kernel": "expert_gemm",
    "moe_act_forward_kernel": "activation",
    "experts_aggregate_kernel": "dispatch",
    "add_rms_norm_per_token_padding_kernel": "norm",
    "mxfp8_scales_to_blocked_kernel": "quantize",
    # routines for vectors of a library that is named after products; two products that are numbered, and one that only looks so
    "void rocblas_haxpy_mlt_8_kernel<256, float>(int, float)": "elementwise",
    "void rocblas_sswap_2_kernel<512, float*>(int)": "elementwise",
    "void rocblas_reduction_kernel_part2<512, float>(int, float*)": "elementwise",
    "void rocblas_symv_kernel_upper<64, 4>(int)": "dense_gemm",
    "void rocblas_gemvn_kernel<64, 16>(int)": "dense_gemm",
    "gemm1_swiglu_kernel": "expert_gemm",
    "acme_ll_gemm1_kernel": "dense_gemm",
    # what is chosen, grouped or asked for by id is experts' product; aligning tokens by expert isn't, LoRA or not
    "selected_w1_gelu_kernel": "expert_gemm",
    "mul_mat_vec_q_ids_kernel": "expert_gemm",
    "grouped_block_fp8_same_mn_kernel": "expert_gemm",
    "grouped_per_token_fp8_kernel": "quantize",
    "fused_grouped_fwd_kernel": "expert_gemm",
    "_fwd_grouped_kernel_stage1": "attention",
    "moe_lora_align_kernel": "dispatch",
    "moe_align_gemm_kernel": "expert_gemm",
    "grouped_weighted_scatter_add_kernel": "dispatch",
    "moe_route_scored_kernel": "router",
    "_route_kernel": "router",
    "lm_head_topk_reduce_kernel": "loss",
    # a layer's weights by their numbers: products in front of what is fused behind them; a product fused with the way of its tokens
    "w1_silu_kernel": "expert_gemm",
    "w2_scatter_kernel": "expert_gemm",
    "silu_w13_backward_kernel": "activation",
    "fc1_gelu_kernel": "dense_gemm",
    "mega_oproj_kernel": "dense_gemm",
    "moe_gu_split_kernel": "expert_gemm",
    "moe_ffn_offset_kernel": "expert_gemm",
    "moe_mlp_unpermute_kernel": "expert_gemm",
    "moe_gemm_permute_kernel": "expert_gemm",
    "batched_gemm_permute_kernel": "dense_gemm",
    "moe_mlp_reduce_scatter_kernel": "expert_gemm",
    "ag_group_matmul_kernel": "expert_gemm",
    "moe_wgrad_act_kernel": "expert_gemm",
    "expert_mlp_bias_kernel": "expert_gemm",
    "expert_bias_update_kernel": "router",
    "select_expert_inputs_kernel": "dispatch",
    "select_experts_kernel": "router",
    "build_route_rows_kernel": "dispatch",
    # a letter that every kernel of a library begins with is no key; a cache of values is
    "k_add_bias_kernel": "elementwise",
    "_Z10k_add_biasPfS_i": "elementwise",
    "k_cache_append_kernel": "attention",
    "repeat_value_cache_kernel": "attention",
    "index_score_gemm_kernel": "attention",
    "stencil_2d_kernel": "elementwise",
    # words in their order over single ones: products over tables and splits, losses over chunks, scale factors over a namespace of products
    "_jagged_dense_bmm_kernel": "dense_gemm",
    "split_k_matmul_kernel": "dense_gemm",
    "quantize_for_grouped_gemm_kernel": "quantize",
    "chunk_cross_entropy_fwd_kernel": "loss",
    "flash_cross_entropy_fwd_kernel": "loss",
    "void acme::mxfp6_gemm::pack_scales_kernel<float>(float*)": "quantize",
    "void acme::direct_moe::route_w6a8_kernel<float>(float*)": "expert_gemm",
    "void acme::pad_tokens_kernel<float, cub::BlockReduce<float, 128>>(float*)": "dispatch",
    "void acme::activation::finish_kernel<float>(float*)": "activation",
    "void acme::activation::quantize_rows_kernel<float>(float*)": "quantize",
    "mxfp4_grouped_kernel": "expert_gemm",
    "ragged_dot_quant_kernel": "expert_gemm",
    "gather_routed_mxfp8_kernel": "dispatch",
    "fused_qkv_gemv_kernel": "dense_gemm",
    "flash_causal_combine_kernel": "attention",
    "route_normalize_kernel": "router",
    "mse_per_sample_kernel": "loss",
    "grad_sumsq_partial_kernel": "optimizer",
    "norm_clip_kernel": "optimizer",
    "block_compress_bwd_kernel": "attention",
    "team_broadcast_kernel": "collective",
    "copy_swizzle_kernel": "elementwise",
    # a product over the movement in front of it, a router's product over its layer's, transfers between ranks over copies of peers' rows
    "token_gather_grouped_gemm_kernel": "expert_gemm",
    "moe_router_gemm_kernel": "router",
    "cross_node_reduce_kernel": "collective",
    "copy_peer_buffer_kernel": "collective",
    "peer_row_copy_kernel": "dispatch",
    "set_ready_flag_kernel": "collective",
    "remote_store_kernel": "collective",
    "token_logprob_gather_kernel": "loss",
    "gate_logits_softmax_kernel": "router",
    "moe_ep_buffer_clear_kernel": "dispatch",
    # formats of few bits by their letter and number
    "f16_to_f8_kernel": "quantize",
    "f4_to_scaled_bf16_kernel": "quantize",
    "fp32_to_lowp_kernel": "elementwise",
    "dynamic_scaled_cast": "quantize",
    "scaled_gradient_cast_kernel": "elementwise",
    "fwht_kernel": "quantize",
    # parts of attention without its name; a convolution in one dimension that is laid out for a product
    "varlen_q_pad_gather_kernel": "attention",
    "cascade_prefix_partition_kernel": "attention",
    "prepare_qg_kg": "attention",
    "conv1d_im2col_kernel": "convolution",
    "conv1d_update_kernel": "attention",
    "snake_kernel": "activation",
    "kldivergence_kernel": "loss",
    "discumsum_fwd_kernel": "attention",
    "affine_vec4_kernel": "elementwise",
    "tri_kernel": "elementwise",
    "slerp_kernel": "elementwise",
    "decompress_int4_attention_weights": "quantize",
    "_rnn_forward_kernel": "attention",
    "acme_halfxint3_tensorop_align8_kernel": "dense_gemm",
    "addbias_batched_kernel": "elementwise",
    "ema_step_kernel": "optimizer",
    "acme_mlp_activation_backward_kernel": "activation",
    "quantize_mmq_rows": "quantize",
    "acme_grouped_linear_backward": "expert_gemm",
    "permute_gemm_unpermute_kernel": "expert_gemm",
    "hadamard_product_kernel": "elementwise",
    "inner_product_kernel": "elementwise",
    # quantisation over the product that it feeds
    "void transformer_engine::group_row_col_rht_gemm_device_graph_safe<float>(int)": "quantize",
    "row_col_rht_gemm_device": "quantize",
    "mx_blocked_layout_2d_M_groups_kernel": "quantize",
    "_to_fp8_row_major_t_kernel": "quantize",
    "acme_fp8_gemm_kernel": "dense_gemm",
    "gemm_dequantize_epilogue_kernel": "dense_gemm",
    # loss and optimizer by what they are of
    "efficient_entropy_kernel_general_mainloop": "loss",
    "efficient_entropy_backward_kernel_general_d_logits": "loss",
    "batched_syrk_kernel_bf16": "optimizer",
    "moe_aux_loss_kernel": "router",
    # mixers
    "chunk_global_cumsum_vector_kernel": "attention",
    "chunk_global_cumsum_scalar_kernel": "attention",
    "gate_output_correction_fwd_kernel": "attention",
    "fused_beta_sigmoid_fwd_kernel": "attention",
    "clean_logits_kernel": "attention",
    "merge_fwd_bwd_kernel": "attention",
    "pre_process_fwd_kernel_merged": "attention",
    "parallel_path_bwd_dq_kernel": "attention",
    "gated_delta_prepare_kernel": "attention",
    "void acme::AdaDeltaUpdate<float>(int, float*)": "optimizer",
    "parallel_concat_backward_kernel": "elementwise",  # what is done in parallel is named beside it
    "sort_chunks_of_tokens_kernel": "dispatch",
    # activation, and the projection that stands over it
    "powglu_bwd_kernel": "activation",
    "swish_fwd_kernel": "activation",
    "logsigmoid_bwd_kernel": "activation",
    "sigmoidglu_fwd_kernel": "activation",
    "moe_up_proj_swiglu_kernel": "expert_gemm",
    # a library's name among the arguments or ahead of the function says nothing
    "void acme::mamba::chunk_cumsum_kernel<int>(int const*, cub::ScanTileState<int>)": "attention",
    "void machete::elementwise_mul_kernel<float>(float*)": "elementwise",
    "void marlin::dequant_marlin(int const*)": "quantize",
    "acme::moe_alltoall::send_recv_cumsum_kernel(int*)": "dispatch",
    "multi_all_finite_kernel": "optimizer",
    "warp_all_reduce_sum_kernel": "elementwise",
    # helpers of tests: what the function says over the library that it is of
    "void fbgemm_gpu::utils::tensor_sum_kernel<float>(float*)": "elementwise",
    "fbgemm_gpu::float_to_half_direct(half*, float const*, int)": "elementwise",
    "dyn_emb::init_curand_state_kernel(curandState*)": "elementwise",
    "acme::assert_always_fail_kernel(int)": "other",
    "acme::putOnlyKernel(int)": "collective",
    "HybridAlltoAllKernel": "dispatch",
    "saxpy": "elementwise",
    "mlp1_fused_test_kernel": "dense_gemm",
    "crossentropy_softmax_backward_kernel1": "loss",
    "gen_data": "elementwise",
    "acme::comms::testBroadcast64Block(bool*)": "collective",
    "k_write_vec4": "elementwise",
    "void acme::moe::forward<float>(float*)": "expert_gemm",
    "SiLuMul_half": "activation",
    "mat_mul_transposed_cuda": "dense_gemm",
    "gptq_repack_kernel": "quantize",
    "void acme_cutlass_fp8::AddFloatBiasKernel<float>(float*)": "elementwise",
    "bf16_to_f16_sat_kernel": "elementwise",
    "dequantize_block_iq1_bn": "quantize",
    "dsv3_bf16_moe_2d_kernel": "expert_gemm",
    # a reduction that finds the largest, and one over what they gave
    "reduce_topk_kernel": "router",
    "topk_reduce_kernel": "dispatch",
    "quantile_kernel": "elementwise",
    "ragged_dot_kernel": "expert_gemm",
    "rowwise_cast_kernel": "quantize",
    # what multiplies by an expert's weights, whatever it does with the result
    "fusedMoeW2ScatterKernel": "expert_gemm",
    "acme_int4_moe_down_reduce_kernel": "expert_gemm",
    "void op::deepseek_moe::nvidia::down_kernel<float>(float*)": "expert_gemm",
    "void op::attention::down_kernel<float>(float*)": "attention",
    "moe_bias_add_kernel": "elementwise",
    "_fused_mxfp4_quant_moe_sort_kernel": "quantize",
    "awq_int4_to_marlin_weight_kernel": "quantize",
    "tma_align_input_scale_kernel": "quantize",
    "moe_lora_align_block_size_kernel": "dispatch",
    "weight_multiply_dgrad_kernel": "elementwise",
    # router and exchange
    "_topk_bwd_scatter_small_kernel": "router",
    "_softmax_fwd_small_kernel": "router",
    "token_gather_sum_kernel": "dispatch",
    "fused_unpad_token_groups_kernel": "dispatch",
    "fused_pad_token_groups_kernel": "dispatch",
    "_permute_quantize_mxfp8_kernel": "dispatch",
    "fill_expert_offsets_kernel": "dispatch",
    "fill_kernel": "elementwise",
    "mega_moe_kernel": "expert_gemm",
    "db2_and_ds_kernel": "expert_gemm",
    "db1_kernel": "expert_gemm",
    "group_m_fp8_gemm_kernel": "expert_gemm",
    "_multimem_all_gatherv_3tensor_kernel": "collective",
    # words of a namespace, of an argument's type, inside other words
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)": "embedding",
    "void deep_gemm::smxx_clean_logits<64>(int)": "attention",
    "void deep_gemm::sm100_mqa_logits<64>(int)": "attention",
    "void deep_gemm::sm100_paged_mqa_logits<64>(int)": "attention",
    "void deep_gemm::sm90_paged_mqa_logits_metadata<64>(int)": "attention",
    "void acme::scale_kernel(curandStatePhilox4_32_10_t*, float*)": "elementwise",
    "void acme::frobnicate(flash::AttentionParams)": "other",
    "_mhc_sinkhorn_fwd_fused": "other",
    # a namespace of experts decides what a word of rearranging or preparing is for
    "void acme::mxfp4_moe::reduce_v2::scatter_reduce_mxfp4_kernel<128>(int)": "dispatch",
    "void acme::scatter_reduce_mxfp4_kernel<128>(int)": "quantize",
    "acme::group_gemm_async::build_task_map_kernel(int*)": "expert_gemm",
    # heads: their norm is a norm, unless they are turned as well; casting for each token is casting, whoever takes it
    "void acme::fusedQkRmsNormV2Generic<float>(float*)": "norm",
    "fused_qk_norm_rope_kernel": "attention",
    "_per_token_group_quant_mla_fp8": "quantize",
    "_silu_mul_fp8_quant_deep_gemm_masked": "activation",
    "void LayerNormForwardV2<float>(float*)": "norm",
    "void LayerNormParamGradStep1<float>(float*)": "norm",
    "fusedMoeMxfp4W2Kernel": "expert_gemm",
    "topk_gating_kernel_prefill": "router",
    "rms_norm_splitk_kernel": "norm",
    "causal_dot_product_kernel": "attention",
    # transport by its own words; a block and a dimension are no type and no word
    "acme_barrier_kernel": "collective",
    "weights_resharding_kernel": "collective",
    "publish_counts_kernel": "dispatch",
    "blockwise_count_kernel": "elementwise",
    "void acme::rotary2D_kernel<float>(float*)": "attention",
    "_max_pool1d_kernel": "convolution",
    "void cudnn::detail::dgrad2d_alg1_1<float, 0, 5>(int)": "convolution",
    "amax_and_convert_kernel": "quantize",
    # the loop that generates: what is chosen next, what is finished, what a logit may not be
    "gather_output_ids_kernel": "other",
    "append_tokens_kernel": "other",
    "update_finished_flags_kernel": "other",
    "apply_logit_bias_kernel": "other",
    "gather_next_tokens_kernel": "other",
    "gather_tokens_kernel": "dispatch",
    "void acme::speculative_decoding::copyProbs<float>(float*)": "other",
    "void acme::copyProbs<float>(float*)": "elementwise",
    "build_tree_mask_kernel": "other",
    "assign_cache_locs_kernel": "attention",
    "_draft_extend_metadata_dsa_kernel": "attention",
    # scales that are packed are quantisation, a packed tensor that is scaled is none
    "build_packed_scales_kernel": "quantize",
    "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)": "elementwise",
    "moe_build_active_expert_segments_kernel": "dispatch",
    # every token passes shared experts: they are a dense layer, their gate scales what comes out of it
    "shared_expert_forward_kernel": "dense_gemm",
    "shared_expert_swiglu_kernel": "activation",
    "shared_expert_gate_scale_kernel": "elementwise",
    "append_shared_experts_to_topk_kernel": "dispatch",
    # casting for experts is no product of theirs, unless the stage of a layer that it is fused into stands beside
    "mxfp8_experts_quant_kernel": "quantize",
    "moe_stage1_fused_quant_kernel": "expert_gemm",
    "blockscaled_fp8_varlen_gemm_kernel": "expert_gemm",
    "grouped_w4a8_kernel": "expert_gemm",
    "routed_experts_up_expand": "expert_gemm",
    "routed_accumulate_f32_kernel": "dispatch",
    "ep_token_unpack_kernel": "dispatch",
    "map_logical_to_physical_experts": "dispatch",
    # latents are normalised, and so are pictures, but otherwise
    "rms_norm_ckv_kernel": "norm",
    "rms_norm_kv_rope_kernel": "attention",
    "normalize_image_kernel": "elementwise",
    "normalize_rows_kernel": "norm",
    "_fa_fwd_kernel": "attention",
    "_cmp_bwd_preprocess": "attention",
    "segment_cmp_backward_kernel": "elementwise",
    "put_signal_kernel": "collective",
    "reconstruct_gptq_4bit_kernel": "quantize",
    # a carrier is read by what it carries, in both spellings
    "void cutlass::device_kernel<acme::FlashAttentionForward<float>>(Params)": "attention",
    "_ZN7cutlass13device_kernelIN4acme15RmsNormBackwardIfEEEEvv": "norm",
    # what only its namespace tells, a mangled name tells too
    "void acme::deep_ep::count_recv_kernel(float*)": "dispatch",
    "_ZN4acme7deep_ep17count_recv_kernelEPf": "dispatch",
    "kernel_cutlass_kernel_acmemoe_gemmsrcdenseRMSNormBackward_object_at__tensorptrbf16": "norm",
    # a function that says nothing is read with the namespace around it, but for the outermost one and for those that divide sources
    "void acme::kernels::gelu_backward::cuda_kernel<float>(float*)": "activation",
    "_ZN4acme7kernels11adamw_step11cuda_kernelEPf": "optimizer",
    "acme::cross_entropy::detail::kernel_m1(float*)": "loss",
    "void gelu::cuda_kernel<float>(float*)": "other",
    "acme::kernels::cuda_kernel(float*)": "other",
    # a format that is decoded is no stage, and its maxima by chunk no mixer's; a stage stands behind what is chosen in it
    "nvfp4_decode_rowwise_transpose_kernel": "quantize",
    "fp32_to_nvfp4_no_chunk_amax_kernel": "quantize",
    "chunk_scale_state_kernel": "attention",
    "decode_sigmoid_bias_topk_kernel": "router",
    "scale_layernorm_to_fp8_kernel": "norm",
    "moe_reduce_swiglu_kernel": "activation",
    "moe_reduce_rows_kernel": "dispatch",
    # records of routes, the largest logits, an indexer's keys, a clip of queries and keys, projections that are written out
    "preprocess_route_records_kernel": "dispatch",
    "route_scores_topk_kernel": "router",
    "logits_topk_kernel": "other",
    "gate_logits_topk_kernel": "router",
    "store_index_k_kernel": "attention",
    "acme_qk_clip_kernel": "optimizer",
    "mla_project_value_kernel": "dense_gemm",
    "residual_grad_accumulate_kernel": "elementwise",
    "grad_accumulate_kernel": "optimizer",
    # experts' products in small letters and in their namespace; the router's weights, a stage, a reduction of split-K in their epilogue
    "moegemm_kernel": "expert_gemm",
    "expertmlp_kernel": "expert_gemm",
    "groupedgemm_kernel": "expert_gemm",
    "void acme::moe::linear1_kernel<float>(float*)": "expert_gemm",
    "void acme::fused_moe::gemm_silu_mul_kernel<float>(float*)": "expert_gemm",
    "void acme::moe::grad_weight_kernel<float>(float*)": "expert_gemm",
    "void acme::moe::stage2_kernel<float>(float*)": "expert_gemm",
    "_moe_w1w3_silu_kernel": "expert_gemm",
    "fused_moe_nvfp4_frobnicate_kernel": "expert_gemm",
    "grouped_gemv_routing_weights_kernel": "expert_gemm",
    "expert_mlp_topk_weight_kernel": "expert_gemm",
    "grouped_ffn_decode_kernel": "expert_gemm",
    "moe_linear_split_k_kernel": "expert_gemm",
    "routed_weight_grad_kernel": "expert_gemm",
    "grouped_ffn_all2all_kernel": "expert_gemm",
    "group_gemv_rs_kernel": "expert_gemm",
    "acme_grouped_topk_kernel": "router",
    "_topk_ids_recv_kernel": "dispatch",
    "tensor_parallel_grad_sync_kernel": "collective",
    # pointwise work: any library's unary kernel, casts by letters, types glued to a verb, C's and vectors' names
    "void acme::unary_kernel<acme::ops::Sqrt, float>(float*)": "elementwise",
    "void transformer_engine::unary_kernel<4, float>(float*)": "activation",
    "bf16_to_f(unsigned short const*, float*, int)": "elementwise",
    "k_f32to16": "elementwise",
    "vv_Addfloat32": "elementwise",
    "void gpu_apply<acme::Clamp>(float*)": "elementwise",
    "atomicExchKernel(float*, float, int)": "elementwise",
    "expf_kernel": "elementwise",
    "vecsub": "elementwise",
    "acme_neq_kernel": "elementwise",
    "void acme::apply<acme::not_op>(float*)": "elementwise",
    "head_untranspose_kernel": "elementwise",
    # a layer in one kernel, numbered products; gradients of biases are no pictures
    "kernel_mul_mv_id_q5_K_f32": "expert_gemm",
    "moe_megakernel": "expert_gemm",
    "DispatchFFNCombine": "expert_gemm",
    "acme_w13_gemm": "expert_gemm",
    "void acme::moe::marlin::Marlin<float>(float*)": "expert_gemm",
    "cudnn_generated_moe_grouped_matmul_sm90_128x128": "expert_gemm",
    "acme_down_kernel": "other",
    "acme_pad_int8_kernel": "elementwise",
    "acme_pad_fp8_kernel": "quantize",
    "index_tensor_kernel": "elementwise",
    "update_hidden_states_kernel": "elementwise",
    "grouped_gemm_fp8_silu_mul": "expert_gemm",
    "silu_mul_fp8_quant_grouped_gemm": "activation",
    "fp8_quant_group_gemm": "expert_gemm",
    "quantize_grouped_gemm": "quantize",
    "bgrad_kernel": "elementwise",
    "bgr2rgb_kernel": "other",
    "packbits_rows_kernel": "elementwise",
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<int>>>(int)": "elementwise",
    "sample_gamma_kernel": "elementwise",
    # a verb of arithmetic decides over the format that it works on, over a gate and over a library's namespace
    "where_int8_kernel": "elementwise",
    "void ns::negate_fp8<float>(float*)": "elementwise",
    "input_gating_kernel": "elementwise",
    "topk_gating_kernel": "router",
    "void acme::cudnn_backend::copyTypeConverted_kernel<float>(float*)": "elementwise",
    "void acme::cudnn_backend::direct_conv_kernel<float>(float*)": "convolution",
    "ns::KernelBGE(unsigned long, float const*, float const*, float*)": "elementwise",
    "mul_delta_kernel": "elementwise",
    "max_reduce_scatter_grad_kernel": "elementwise",
    "tp_reduce_scatter_kernel": "collective",
    "splice_rows_kernel": "elementwise",
    "conv1d_kernel_v2": "convolution",
    "causal_conv1d_update_kernel": "attention",
    # operators of array frameworks and of CUDA's own library, whatever stands beside them
    "aminmax_kernel": "elementwise",
    "select_v2_f32": "elementwise",
    "ns::UniqueByKey_SelectIf(int*)": "elementwise",
    "isNaN_kernel": "elementwise",
    "k_tgammaf": "elementwise",
    "cast_to_f64_kernel": "elementwise",
    "cast_to_f8_kernel": "quantize",
    # what is handed an operator applies it; verbs in one word
    "void ns::rows_kernel<float, BinaryOps::Add>(float*)": "elementwise",
    "void ns::rows_kernel<float, Geometry>(float*)": "other",
    "k_expsum": "elementwise",
    # the object of a verb: a bias' gradient, vectors, activations that are moved, a layer's halves
    "linear_backward_bias_kernel": "elementwise",
    "gemm_bias_bwd_kernel": "dense_gemm",
    "vectorDotProduct_kernel": "elementwise",
    "scaled_dot_product_attention_kernel": "attention",
    "copy_activations_kernel": "elementwise",
    "activation_kernel": "activation",
    "split_gate_up_kernel": "elementwise",
    "linear_index_kernel": "other",
    "int8_dropout_kernel": "elementwise",
    # a gate beside a shift is an adaptive norm's; one that is chosen a router's
    "scale_shift_gate_select_kernel": "elementwise",
    "gate_select_kernel": "router",
    "post_attention_rmsnorm_gate_residual_kernel": "norm",
    "max_margin_criterion_kernel": "loss",
    "stop_criterion_kernel": "other",
    "classifier_free_guidance_combine_kernel": "elementwise",
}


def test_names_are_read_by_the_words_of_their_function(taxonomy: Taxonomy):
    found = describe_all([(name, None) for name in NAMES], taxonomy)
    assert {name: one.bucket for name, one in zip(NAMES, found, strict=True)} == NAMES


BARE = ["device_kernel", "main", "main_kernel", "kernel", "kernel_cutlass_kernel", "void kernel<float, 4>(float*)", "postprocess_kernel"]


def test_a_name_that_tells_nothing_is_never_guessed(taxonomy: Taxonomy):
    for one in describe_all([(name, None) for name in BARE], taxonomy):
        assert (one.bucket, one.weak, one.rule) == ("other", True, "bare_name")
        assert {"attention", "expert_gemm"} <= set(one.alternatives)


@for_each(
    "name, bucket",
    ("merge_topk_lists_kernel", "router"),
    ("gate_gemm_bf16_kernel", "router"),
    ("acme_fp8_split_kernel", "quantize"),
    ("_kernel_delta_x", "attention"),
    ("acme_decode_rows_kernel", "attention"),
    ("update_states_kernel", "attention"),
    ("context_fwd_kernel", "attention"),
    ("maxsumexp_kernel", "attention"),
)
def test_a_choice_of_the_largest_a_gate_a_format_a_delta_and_a_stage_are_likely_only(taxonomy: Taxonomy, name: str, bucket: str):
    one = describe_all([(name, None)], taxonomy)[0]
    assert (one.bucket, one.weak) == (bucket, True)
    told = describe_all([("fp8_rows_to_float_kernel", None), ("gdn_decode_kernel", None)], taxonomy)
    assert [one.weak for one in told] == [False, False]


# A name that tells nothing under a parent whose class nobody listed: its bucket, by that parent.
PARENTS = [
    ({"modules": ["AcmeModel_0", "nn.Module: AcmeLatentRouter_3"]}, "router", "module"),
    ({"modules": ["AcmeSparseLayer_1", "AcmeGroupedMLP_1"]}, "expert_gemm", "module"),
    ({"modules": ["AcmeTokenDispatcher_2"]}, "dispatch", "module"),
    ({"modules": ["DSAttention_3"]}, "attention", "module"),
    ({"ops": ["SparseMLABackward"]}, "attention", "module"),
    ({"modules": ["AcmeLatentRouter_3"], "ops": ["aten::mm"]}, "router", "module"),
    ({"modules": ["AcmeGroupedMLP_1"], "ops": ["aten::mm"]}, "expert_gemm", "module"),
    ({"ops": ["AcmeLinearCrossEntropyBackward"]}, "loss", "operator"),
    ({"nvtx": ["acme.muon.step"]}, "optimizer", "module"),
    ({"modules": ["AcmeTokenReorderer_0"]}, "dispatch", "module"),
    ({"modules": ["AcmeEPExpertParallel_0"]}, "dispatch", "module"),
    ({"modules": ["AcmeExpertGLU_1"]}, "expert_gemm", "module"),
    ({"modules": ["ParallelDroplessMLP_1"]}, "expert_gemm", "module"),
    ({"modules": ["AcmeRMSNormGated_2"]}, "norm", "operator"),
    ({"modules": ["AcmeShortConv_2"]}, "attention", "module"),
    ({"modules": ["AcmeVocabParallelEmbedding_0"]}, "embedding", "module"),
    ({"modules": ["AcmeVocabLogProbs_0"]}, "loss", "operator"),
    ({"nvtx": ["acme_load_balancing_loss"]}, "router", "module"),
    ({"nvtx": ["zeropower_via_newtonschulz5"]}, "optimizer", "module"),
    ({"modules": ["nn.Module: AcmeProjector_0"]}, "vision_encoder", "module"),
    ({"modules": ["AcmeDecoder_0"]}, "other", "name"),
    ({"modules": ["AcmeMoeGatedDeltaNet_0"]}, "attention", "module"),
    ({"modules": ["AcmeMoeRMSNormGated_0"]}, "norm", "operator"),
    ({"modules": ["AcmeLinearRMSNorm_0"]}, "norm", "operator"),
    ({"modules": ["AcmeForgetGate_0"]}, "other", "name"),
    ({"modules": ["AcmeGatingMLP_0"]}, "other", "name"),
    ({"modules": ["AcmeMoeMLP_0"]}, "other", "name"),
    ({"modules": ["AcmeSharedExpertsMLP_0"]}, "dense_gemm", "module"),
    ({"modules": ["AcmeHybridMixer_0"]}, "attention", "module"),
    ({"modules": ["AcmeMixerMLP_0"]}, "other", "name"),
    ({"modules": ["AcmeCSACompressor_0"]}, "attention", "module"),
    ({"modules": ["AcmeRotaryPositionalEmbedding_0"]}, "attention", "operator"),
    ({"modules": ["AcmeVisionTopKRouter_0"]}, "vision_encoder", "module"),
    ({"modules": ["AcmeMambaForCausalLM_0"]}, "other", "name"),
    # a linear layer's own kernel is its product, whatever it lies in
    ({"modules": ["AcmeAttention_0", "Linear_3"]}, "dense_gemm", "operator"),
    ({"modules": ["AcmeExperts_0", "Linear_3"]}, "expert_gemm", "module"),
    ({"modules": ["AcmeMoEBlock_0", "Linear_3"]}, "other", "name"),
    ({"ops": ["aten::mm"]}, "dense_gemm", "operator"),
    ({"ops": ["Fp8LinearFunctionBackward"]}, "dense_gemm", "operator"),
    ({"ops": ["FusedDenseFunc"]}, "dense_gemm", "operator"),
    ({"modules": ["AcmeDenseBlock_0"]}, "other", "name"),
    ({"ops": ["LinearAttnFunction"]}, "attention", "module"),
    ({"ops": ["ChunkedLinearLogProbs"]}, "loss", "operator"),
    ({"ops": ["AcmeRoPE2D"]}, "attention", "module"),
    ({"ops": ["AcmeReverseKL"]}, "loss", "operator"),
    ({"ops": ["AcmeEPGroupGemm"]}, "expert_gemm", "module"),
    ({"ops": ["AcmeMoeExpertsFunction"]}, "expert_gemm", "module"),
    # experts' operators of serving engines, and a function of experts as such
    ({"ops": ["aiter::moe_stage1"]}, "expert_gemm", "module"),
    ({"ops": ["acme::asm_moe"]}, "expert_gemm", "module"),
    ({"ops": ["acme_fp4_block_scale_moe"]}, "expert_gemm", "module"),
    ({"ops": ["AcmeSparseMoEFunction"]}, "expert_gemm", "module"),
    ({"ops": ["acme::moe_sorting_stage"]}, "other", "name"),
    ({"ops": ["FusedDispatchAndPermute"]}, "dispatch", "operator"),
    ({"ops": ["UniformExpertAssignment"]}, "router", "module"),
    ({"ops": ["AcmeSymQuantizer"]}, "quantize", "operator"),
    ({"ops": ["ToFP8RowMajor"]}, "quantize", "operator"),
]


@for_each("name", "main_kernel", "frobnicate_kernel")
def test_an_unknown_kernel_takes_the_bucket_of_a_parent_that_decides(name: str, taxonomy: Taxonomy):
    found = describe_all([(name, context) for context, _, _ in PARENTS], taxonomy)
    assert [(context, one.bucket, one.evidence) for (context, _, _), one in zip(PARENTS, found, strict=True)] == PARENTS


GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


@for_each(
    "modules, bucket",
    # a model may be called so as its vision tower would be: then it holds a decoder's layers
    (["AcmeVisionModel_0", "AcmeDecoderLayer_3", "Linear_17"], "dense_gemm"),
    (["AcmeVisionModel_0", "AcmeVisionEncoderLayer_3", "Linear_17"], "vision_encoder"),
    (["AcmeVisionForConditionalGeneration_0", "Linear_17"], "dense_gemm"),
    # Transformers puts the model's name before every class
    (["AcmeMoeDecoderLayer_3", "AcmeMoeMLP_3", "Linear_17"], "dense_gemm"),
    (["AcmeMoeDecoderLayer_3", "AcmeMoeSparseMoeBlock_3", "AcmeMoeExperts_3"], "expert_gemm"),
    (["AcmeMoeSparseMLP_3", "Linear_17"], "expert_gemm"),
    (["MoEMLP_3", "Linear_17"], "expert_gemm"),
    (["AcmeMoeGatedDeltaNet_3", "Linear_17"], "dense_gemm"),
    (["AcmeMoeGate_3"], "router"),
)
def test_products_of_classes_whose_model_is_called_after_a_part(taxonomy: Taxonomy, modules: list[str], bucket: str):
    assert describe_all([(GEMM, {"modules": [f"nn.Module: {one}" for one in modules]})], taxonomy)[0].bucket == bucket


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"


def test_copies_of_collectives_and_elementwise_work_of_activations(taxonomy: Taxonomy):
    cases = [
        ("Memcpy DtoD (Device -> Device)", {"ops": ["nccl:all_gather"]}, "collective"),
        ("Memcpy DtoD (Device -> Device)", {}, "memcpy"),
        ("Memcpy DtoH (Device -> Pinned)", {"ops": ["nccl:all_gather"]}, "memcpy"),
        (ADD, {"ops": ["AcmeSwiGLUBackward"]}, "activation"),
        (ADD, {"nvtx": ["/conv1/Conv + /relu/Relu"]}, "elementwise"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", {"modules": ["AcmeMOELayer_0"]}, "dispatch"),
        (ADD, {"ops": ["AcmeMulBackward"]}, "elementwise"),
    ]
    found = describe_all([(name, context) for name, context, _ in cases], taxonomy)
    assert [(name, context, one.bucket) for (name, context, _), one in zip(cases, found, strict=True)] == cases


def test_how_a_name_is_taken_apart(taxonomy: Taxonomy):
    names = {
        "void acme::gemm::_toFP8RowMajor<4>(acme::Attention)": " to fp8 row major ",
        "fused_dQ_dK_kernel": " fused dq dk kernel ",
        "SwiGLUAndMoEGateKernel": " swiglu and moe gate kernel ",
        "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Pipeline>>()": " rmsnorm2d fwd pipeline ",
        "_ZN4acme11gather_toksEPf": " gather toks ",
        "acme::FP8MQALogits(float*)": " fp8 mqa logits ",
        "BF162FLOAT": " bf162float ",
        "acme_int4_group32_gemv": " acme int4 groupwise gemv ",
    }
    assert dict(zip(names, words_of(normalised(pl.Series(list(names))), taxonomy), strict=True)) == names


def test_a_name_lies_in_namespaces_or_in_the_module_of_a_cute_class():
    names = {
        "void acme::kda::gemm_of<4>(acme::Attention)": " acme kda ",
        "kernel_cutlass_kernel_acmeopslinear_cross_entropy_sm90_TileGemmSM90_object_at__tensorptrbf16": " acmeopslinear cross entropy sm90 ",
        "kernel_cutlass_scale_kernel_tensorptrbf16": " ",
        "main_kernel": " ",
        "_ZN4acme12_GLOBAL__N_112moe_exchange13count_to_sendILi4EN4acme3kda4TileEEEvPf": " acme moe exchange ",
        "_Z4scanPf": " ",
    }
    assert dict(zip(names, namespaces_of(normalised(pl.Series(list(names)))), strict=True)) == names


def test_a_letter_with_a_number_is_a_word_of_its_own():
    texts = [" gemm q8 bias ", " q bias ", " qs bias ", " top k2 bias ", " w1 bias "]
    held = {"q bias": [1], "q8 bias": [0], "top_k bias": [3], "w1|w2 bias": [4], "k|w bias": []}
    assert {line: [number for number, text in enumerate(texts) if list(Lines([[line]], {}).holding(text))] for line in held} == held


def test_the_grammar_of_words():
    texts = [
        " grouped fp8 gemm ", " gemm of groups ", " topk ", " top k2 ", " quantized rows ", " kernel main ", " rope2d ",
        " hot rope2 gemm3 ",
    ]  # fmt: skip
    held = {
        "group|grouped..gemm": [0], "gemm -of": [0, 7], "@groups": [0, 1], "top_k": [3], "quant*": [4], "=kernel|main": [5],
        "rope": [6, 7], "gemm -grouped..gemm|rope": [1, 7], "*ope hot|cold": [7],
    }  # fmt: skip
    sets = {"groups": ("group", "grouped")}
    for line, wanted in held.items():
        assert [number for number, text in enumerate(texts) if list(Lines([[line]], sets).holding(text))] == wanted, line
    lines = Lines(list(zip(held)), sets)
    assert [list(held)[number] for number in lines.holding(texts[0])] == ["group|grouped..gemm", "gemm -of", "@groups"]
    for wrong in ("", "-gemm", "@nothing", "Gemm", "a||b", "*a_b"):
        with pytest.raises(WrongLineError):
            Lines([[wrong]], {})
