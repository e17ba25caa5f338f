"""What undecided operations learn from the ones around them, and where they must not."""

from __future__ import annotations

from itertools import count

import polars as pl
import pytest

from diagnose.measure.buckets import classify
from diagnose.measure.launches import attribute
from diagnose.taxonomy import Taxonomy, load_taxonomy
from tests.measure.small_traces import Launch, Range, trace_of

GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
GATE = "sm90_xmma_gemm_bf16f32_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
TAIL = "void cublasLt::splitKreduce_kernel<32, 16, int>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)"
FUSED = "void transformer_engine::fused_router::fused_topk_with_score_function_forward_kernel<float, float>(int)"
NORM = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<int>(int)"
FLASH = "void flash::flash_fwd_kernel<int>(flash::Flash_fwd_params)"
SWIGLU = "void transformer_engine::gated_act_kernel<1, true>(int)"
PERMUTE, UNPERMUTE = "_permute_kernel", "_unpermute_kernel"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


def run(taxonomy: Taxonomy, *steps: str | tuple[str, int]) -> list[tuple[str, str]]:
    """Bucket and evidence of kernels that run one after the other; a pair names a kernel and its stream (otherwise 7)."""
    clock = count(0, 100)
    launches = []
    for step in steps:
        name, stream = step if isinstance(step, tuple) else (step, 7)
        launches.append(Launch(name=name, start=next(clock), duration=90, stream=stream))
    trace = trace_of(launches)
    found = classify(trace, attribute(trace), taxonomy)
    joined = pl.DataFrame({"class_id": found.class_id}).join(found.classes, on="class_id", how="left", maintain_order="left")
    return joined.select("bucket", "decided_by").rows()


def test_products_between_permutation_and_return_are_the_experts(taxonomy: Taxonomy):
    found = run(taxonomy, GEMM, PERMUTE, GEMM, SWIGLU, GEMM, TAIL, UNPERMUTE, GEMM)
    experts = ("expert_gemm", "neighbours")
    assert found[0] == found[7] == ("dense_gemm", "name")
    assert [found[2], found[4], found[5]] == [experts] * 3


def test_the_backward_window_opens_with_the_unpermutation_s_backward(taxonomy: Taxonomy):
    found = run(taxonomy, "_unpermute_bwd_with_merging_probs_kernel", GEMM, UNPERMUTE, GEMM)
    assert [bucket for bucket, _ in found] == ["dispatch", "expert_gemm", "dispatch", "dense_gemm"]


def test_no_window_across_attention_streams_or_an_open_end(taxonomy: Taxonomy):
    assert run(taxonomy, PERMUTE, FLASH, GEMM, UNPERMUTE)[2] == ("dense_gemm", "name")
    assert run(taxonomy, PERMUTE, (GEMM, 9), UNPERMUTE)[1] == ("dense_gemm", "name")
    assert run(taxonomy, PERMUTE, GEMM)[1] == ("dense_gemm", "name")
    assert run(taxonomy, GEMM, UNPERMUTE)[0] == ("dense_gemm", "name")
    assert run(taxonomy, PERMUTE, GEMM, PERMUTE)[1] == ("dense_gemm", "name")


def test_a_gate_with_top_k_after_it_is_a_router(taxonomy: Taxonomy):
    found = run(taxonomy, NORM, GATE, TAIL, ADD, TOPK, ADD, PERMUTE, ADD)
    assert found[1] == found[2] == found[3] == found[5] == ("router", "neighbours")
    assert found[7] == ("elementwise", "name")


def test_a_plain_product_is_a_gate_only_before_a_kernel_that_only_routers_have(taxonomy: Taxonomy):
    assert [bucket for bucket, _ in run(taxonomy, NORM, GEMM, FUSED, PERMUTE)] == ["norm", "router", "router", "dispatch"]
    assert run(taxonomy, NORM, GEMM, ADD, TOPK, PERMUTE)[1] == ("dense_gemm", "name")
    assert run(taxonomy, NORM, GATE, ADD, NORM, TOPK, PERMUTE)[1:3] == [("dense_gemm", "name"), ("elementwise", "name")]


def test_a_run_too_long_for_a_router_is_none(taxonomy: Taxonomy):
    assert run(taxonomy, GATE, *[ADD] * 200, TOPK)[0][0] == "dense_gemm"


def test_exchanges_next_to_experts_belong_to_them(taxonomy: Taxonomy):
    layer = [FUSED, PERMUTE, (SENDRECV, 20), "setup_grouped_gemm_kernel", (SENDRECV, 20), UNPERMUTE, FLASH]
    found = run(taxonomy, *layer, *layer)
    assert [found[at] for at in (2, 4, 9, 11)] == [("dispatch", "neighbours")] * 4


def test_exchanges_next_to_attention_are_context_parallel(taxonomy: Taxonomy):
    found = run(taxonomy, NORM, (SENDRECV, 20), FLASH, (SENDRECV, 20), NORM)
    assert found[1] == found[3] == ("collective", "neighbours")


def test_exchanges_without_a_clear_majority_stay_unknown(taxonomy: Taxonomy):
    mixed = run(taxonomy, PERMUTE, (SENDRECV, 20), UNPERMUTE, NORM, (SENDRECV, 20), FLASH)
    assert mixed[1] == mixed[4] == ("collective", "name")
    alone = run(taxonomy, PERMUTE, (SENDRECV, 20), UNPERMUTE)
    assert alone[1] == ("collective", "name")
    far = run(taxonomy, NORM, (SENDRECV, 20), NORM, (SENDRECV, 20), NORM)
    assert far[1] == far[3] == ("collective", "name")


def test_the_exchange_of_counts_is_found_between_router_and_permutation(taxonomy: Taxonomy):
    layer = [FLASH, FUSED, (GATHER, 24), PERMUTE, UNPERMUTE]
    found = run(taxonomy, *layer, *layer)
    assert found[2] == found[7] == ("dispatch", "neighbours")
    one_side = [FUSED, (GATHER, 24), NORM, FLASH]
    assert run(taxonomy, *one_side, *one_side)[1] == ("collective", "name")


def test_a_gather_outside_forward_and_backward_moves_data_parallel_state(taxonomy: Taxonomy):
    inside = [Launch(name=ADD, at=at, start=at + 5) for at in (0, 20, 40)]
    outside = [Launch(name=GATHER, at=at, start=at + 5, stream=28) for at in (200, 220)]
    ranges = [Range(text="TELayerNormColumnParallelLinear forward", start=0, end=100, kind="push_pop")]
    trace = trace_of([*inside, *outside], ranges)
    found = classify(trace, attribute(trace), taxonomy)
    joined = pl.DataFrame({"class_id": found.class_id}).join(found.classes, on="class_id", how="left", maintain_order="left")
    assert joined.select("bucket", "kind", "decided_by").rows()[3:] == [("collective", "data", "neighbours")] * 2


def test_phases_known_by_name_alone_prove_no_range(taxonomy: Taxonomy):
    assert run(taxonomy, NORM, FLASH, NORM, FLASH, (GATHER, 28), (GATHER, 28))[4] == ("collective", "name")
    assert run(taxonomy, ADD, ADD, ADD, (GATHER, 28), (GATHER, 28))[3] == ("collective", "name")
