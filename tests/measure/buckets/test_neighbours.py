"""What undecided operations learn from the ones around them, and where they must not."""

import random
from dataclasses import replace
from itertools import count

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.measure.buckets.classify import classify
from diagnose.measure.buckets.context import AGAIN_BIT, FORWARD_BIT, host_context, innermost, masks_of
from diagnose.measure.buckets.line import EDGE, after, before
from diagnose.measure.host import attribute
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import CommKind
from tests.builders.cases import for_each
from tests.builders.small_traces import Launch, Range, trace_of

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
FUSED_BACK = "void transformer_engine::fused_router::fused_topk_with_score_function_backward_kernel<float>(int)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 7, false, false>(int)"
SOFTMAX_BACK = "void softmax_warp_backward<float, float, float, 7, false, false>(int)"
NORM_BACK = "void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<int>(int)"
FLASH_BACK = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<int>(flash::Flash_bwd_params)"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<int>(int)"
SELECT = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
SCATTER = "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<true, float>::operator()<at::native::ReduceAdd>(int)>(int)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<int>(int)"
CAST = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<5>, AdamFunctorMaster<float>>(int)"
BIASED = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
LAYER_NORM = "void transformer_engine::normalization::ln_fwd_general_kernel<int>(int)"
LAYER_NORM_BACK = "void transformer_engine::normalization::ln_bwd_general_kernel<int>(int)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
GELU_BACK = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
SCATTERED = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCED = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def classes_of(trace: Trace, taxonomy: Taxonomy) -> pl.DataFrame:
    """The class of each operation of a trace, in order."""
    found = classify(trace, attribute(trace), taxonomy)
    return pl.DataFrame({"class_id": found.class_id}).join(found.classes, on="class_id", how="left", maintain_order="left")


def run(taxonomy: Taxonomy, *steps: str | tuple[str, int]) -> list[tuple[str, str]]:
    """Bucket and evidence of kernels that run one after the other; a pair names a kernel and its stream (otherwise 7)."""
    clock = count(0, 100)
    launches = []
    for step in steps:
        name, stream = step if isinstance(step, tuple) else (step, 7)
        launches.append(Launch(name=name, start=next(clock), duration=90, stream=stream))
    trace = trace_of(launches)
    return classes_of(trace, taxonomy).select("bucket", "decided_by").rows()


GROUPED = "setup_grouped_gemm_kernel"
NEAR, NAME = "neighbours", "name"
UNPERMUTE_BACK = "_unpermute_bwd_with_merging_probs_kernel"
OUT, BACK = "void hybrid_ep::dispatch_kernel<7168, 4>(int)", "void hybrid_ep::combine_kernel<7168, 4>(int)"
EXCHANGED = [FUSED, PERMUTE, (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE, FLASH]
COUNTED = [FLASH, FUSED, (GATHER, 24), PERMUTE, UNPERMUTE]
SIDES = [NORM, FUSED, PERMUTE, (GEMM, 20), (GEMM, 21), (GEMM, 20), (GEMM, 21), SWIGLU, (GEMM, 20), (GEMM, 21), UNPERMUTE, NORM, FLASH]
ONE_STREAM = [NORM, FUSED, PERMUTE, (GEMM, 9), SWIGLU, (GEMM, 9), UNPERMUTE, FLASH]
ONE_ELSEWHERE = [NORM, (GEMM, 9), FLASH, FUSED, PERMUTE, GROUPED, UNPERMUTE]
SPLIT = [NORM, ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", 30), (GEMM, 20), (GEMM, 21), FLASH]
BESIDE = [NORM, FUSED, PERMUTE, (GEMM, 33), (SWIGLU, 33), (GEMM, 33), (GEMM, 20), (GEMM, 21), SWIGLU, (GEMM, 20), (GEMM, 21), UNPERMUTE]
ON_MAIN = [NORM, FUSED, PERMUTE, (GEMM, 20), (GEMM, 21), SWIGLU, (GEMM, 20), (GEMM, 21), GEMM, SWIGLU, GEMM, UNPERMUTE]
GATED = [NORM, GATE, ADD, TOPK, ADD]
GATED_LAYER = [*GATED, PERMUTE, UNPERMUTE, FLASH]
UNFUSED = [*[NORM, FUSED, SORT, SORT, SELECT, (SENDRECV, 20), CAT, GROUPED], *[CAT, (SENDRECV, 20), SCATTER, ADD, NORM, FLASH]]
SENT = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)"
RETURNED = "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(int*)"
SORTED_AFTER = [NORM, FUSED, (SENT, 20), SORT, SELECT, GEMM, SWIGLU, GEMM, SCATTER, (RETURNED, 20), SELECT, NORM, GEMM, FLASH]
INDEX_ADD = "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true, at::native::ReduceAdd>(int)"
INDEX_PUT = "void at::native::indexing_backward_kernel<c10::BFloat16, 4>(long const*)"
INDEX = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<int>>(long)"
TOP = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)"
FORWARD_TURN = [SORT, SELECT, GEMM, SWIGLU, GEMM, INDEX, ADD, INDEX_ADD]
BACKWARD_TURN = [SELECT, SORT, INDEX_PUT, GEMM, GEMM, ADD, SWIGLU, CAT, GEMM, GEMM, SORT, INDEX_PUT]
LOG_SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
LOG_SOFTMAX_BACK = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(float*)"
CROSS_ENTROPY = [CAST, COPY, LOG_SOFTMAX, ADD, LOG_SOFTMAX_BACK, CAST]
LOOP_LAYER = [FLASH, GEMM, TOP, *FORWARD_TURN * 3, FLASH, *BACKWARD_TURN * 3, GEMM, FLASH]
Steps = list[str | tuple[str, int]]

# Kernels one after the other; the bucket, and by what evidence, of those at these places.
RUNS: dict[str, tuple[Steps, dict[tuple[int, ...], tuple[str, str]]]] = {
    "products between permutation and return are the experts'": (
        [GEMM, PERMUTE, GEMM, SWIGLU, GEMM, TAIL, UNPERMUTE, GEMM], {(0, 7): ("dense_gemm", NAME), (2, 4, 5): ("expert_gemm", NEAR)}),
    "the backward window opens with the unpermutation's backward": (
        [UNPERMUTE_BACK, GEMM, UNPERMUTE, GEMM],
        {(0, 2): ("dispatch", NAME), (1,): ("expert_gemm", NEAR), (3,): ("dense_gemm", NAME)}),
    "no window across attention": ([PERMUTE, FLASH, GEMM, UNPERMUTE], {(2,): ("dense_gemm", NAME)}),
    "no window across streams": ([PERMUTE, (GEMM, 9), UNPERMUTE], {(1,): ("dense_gemm", NAME)}),
    "no window with an open end": ([PERMUTE, GEMM], {(1,): ("dense_gemm", NAME)}),
    "no window with an open beginning": ([GEMM, UNPERMUTE], {(0,): ("dense_gemm", NAME)}),
    "no window from permutation to permutation": ([PERMUTE, GEMM, PERMUTE], {(1,): ("dense_gemm", NAME)}),
    "a gate with top-k after it is a router": (
        [NORM, GATE, TAIL, ADD, TOPK, ADD, PERMUTE, ADD], {(1, 2, 3, 5): ("router", NEAR), (7,): ("elementwise", NAME)}),
    "a plain product before a kernel that only routers have": (
        [NORM, GEMM, FUSED, PERMUTE], {(0,): ("norm", NAME), (1,): ("router", NEAR), (2,): ("router", NAME), (3,): ("dispatch", NAME)}),
    "a plain product before top-k is no gate": ([NORM, GEMM, ADD, TOPK, PERMUTE], {(1,): ("dense_gemm", NAME)}),
    "a gate before a norm is none": (
        [NORM, GATE, ADD, NORM, TOPK, PERMUTE], {(1,): ("dense_gemm", NAME), (2,): ("elementwise", NAME)}),
    "a run too long for a router is none": ([GATE, *[ADD] * 200, TOPK], {(0,): ("dense_gemm", NAME)}),
    "exchanges next to experts belong to them": (EXCHANGED * 2, {(2, 4, 9, 11): ("dispatch", NEAR)}),
    "exchanges next to attention are context-parallel": (
        [NORM, (SENDRECV, 20), FLASH, (SENDRECV, 20), NORM], {(1, 3): ("collective", NEAR)}),
    "exchanges without a clear majority": (
        [PERMUTE, (SENDRECV, 20), UNPERMUTE, NORM, (SENDRECV, 20), FLASH], {(1, 4): ("collective", NAME)}),
    "one exchange alone": ([PERMUTE, (SENDRECV, 20), UNPERMUTE], {(1,): ("collective", NAME)}),
    "exchanges far from either": ([NORM, (SENDRECV, 20), NORM, (SENDRECV, 20), NORM], {(1, 3): ("collective", NAME)}),
    "the exchange of counts between router and permutation": (COUNTED * 2, {(2, 7): ("dispatch", NEAR)}),
    "an exchange with a router on one side only": ([FUSED, (GATHER, 24), NORM, FLASH] * 2, {(1,): ("collective", NAME)}),
    "phases known by name alone prove no range": ([NORM, FLASH, NORM, FLASH, (GATHER, 28), (GATHER, 28)], {(4,): ("collective", NAME)}),
    "no phases prove no range": ([ADD, ADD, ADD, (GATHER, 28), (GATHER, 28)], {(3,): ("collective", NAME)}),
    "gathers and reductions beside the optimizer are data-parallel": (
        [NORM, FLASH, (SCATTERED, 28), ADAM, (GATHER, 28), NORM, FLASH] * 2, {(2, 4, 9, 11): ("collective", NEAR)}),
    "what casts logits and their gradients between the head's product and its backward is the loss's": (
        [NORM, ADD, GEMM, *CROSS_ENTROPY, GEMM, ADD, GEMM],
        {(3, 4, 6, 8): ("loss", NEAR), (5, 7): ("loss", NAME), (1, 10): ("elementwise", NAME), (2, 9): ("dense_gemm", NAME)}),
    "a loss without a backward behind it leaves what is generic as it is": ([NORM, GEMM, *CROSS_ENTROPY, NORM], {(2, 3, 7): ("elementwise", NAME)}),
    "nothing of another part runs between head and loss": ([GEMM, ADD, NORM, *CROSS_ENTROPY, GEMM], {(1, 3, 8): ("elementwise", NAME)}),
    # The experts' streams.
    "products alike on several streams that hold nothing else": (
        [*SIDES, GEMM], {(3, 4, 5, 6, 8, 9): ("expert_gemm", NEAR), (13,): ("dense_gemm", NAME)}),
    "late weight gradients on the experts' streams": ([*SIDES, NORM, (GEMM, 21), (GEMM, 20), NORM], {(-3, -2): ("expert_gemm", NEAR)}),
    "one stream of products in its place": (ONE_STREAM * 2, {(3, 5, 11, 13): ("expert_gemm", NEAR)}),
    "one stream of products elsewhere": (ONE_ELSEWHERE * 2, {(1,): ("dense_gemm", NAME)}),
    "products that user buffers split": ([*SPLIT, FUSED, PERMUTE, UNPERMUTE, *SPLIT], {(2, 3): ("dense_gemm", NAME)}),
    "experts beside products that user buffers split": ([*SPLIT, *SIDES, *SIDES], {(8, 9, 10, 11): ("expert_gemm", NEAR)}),
    "without experts several streams prove nothing": (
        [NORM, (GEMM, 20), (GEMM, 21), FLASH, (GEMM, 20), (GEMM, 21)], {(1, 2, 4, 5): ("dense_gemm", NAME)}),
    "a shared expert beside the exchange stays dense": (
        BESIDE * 2, {(3, 5, 15, 17): ("dense_gemm", NAME), (6, 7, 9, 10): ("expert_gemm", NEAR)}),
    "a shared expert on the main stream stays dense where the experts have their own": (
        ON_MAIN * 2, {(8, 10): ("dense_gemm", NAME), (3,): ("expert_gemm", NEAR)}),
    "one product of the experts on a stream of their own keeps the main stream's dense": (
        [PERMUTE, GEMM, UNPERMUTE, (GROUPED, 20)], {(1,): ("dense_gemm", NAME), (3,): ("expert_gemm", NAME)}),
    "HybridEP's exchanges open and close the experts' window": (
        [FUSED, OUT, GEMM, SWIGLU, GEMM, BACK, GEMM],
        {(2, 4): ("expert_gemm", NEAR), (3,): ("activation", NAME), (5,): ("dispatch", NAME), (6,): ("dense_gemm", NAME)}),
    # The router in backward.
    "two products after the fused selection's backward are the gate's": (
        [GEMM, FUSED_BACK, ADD, GEMM, GEMM, GEMM, NORM],
        {(0, 5): ("dense_gemm", NAME), (1,): ("router", NAME), (2,): ("elementwise", NAME), (3, 4): ("router", NEAR),
         (6,): ("norm", NAME)}),
    "no gate after a norm": ([FUSED_BACK, NORM, GEMM], {(2,): ("dense_gemm", NAME)}),
    "no gate on another stream": ([FUSED_BACK, (GEMM, 9)], {(1,): ("dense_gemm", NAME)}),
    "a gate's kernel is a gate wherever it runs": ([*GATED * 2, NORM, ADD, GATE, NORM], {(-2,): ("router", NEAR)}),
    "one gate is no proof": ([*GATED, NORM, ADD, GATE, NORM], {(-2,): ("dense_gemm", NAME)}),
    "generic kernels between return and gate are the selection's gradient": (
        [*GATED_LAYER * 2, UNPERMUTE_BACK, UNPERMUTE, SOFTMAX_BACK, ADD, GATE, NORM], {(-4, -3, -2): ("router", NEAR)}),
    "generic kernels before a norm are not": ([*GATED_LAYER * 2, UNPERMUTE, ADD, NORM, ADD, GATE], {(-4,): ("elementwise", NAME)}),
    # Unfused permutation.
    "sorts, gathers and copies around the exchange are packing": (
        UNFUSED * 2, {(2, 3, 4, 5, 6, 8, 9, 10): ("dispatch", NEAR), (11,): ("elementwise", NAME)}),
    "a shared expert on a stream of its own, beside the exchange, hides none of it": (
        [*UNFUSED[:5], (GEMM, 33), (SWIGLU, 33), (GEMM, 33), *UNFUSED[5:]] * 2,
        {(2, 3, 4, 8, 9, 11, 12, 13): ("dispatch", NEAR), (5, 7): ("dense_gemm", NAME)}),
    "behind a library's exchange what is gathered in front of products, and added up behind them, is packing": (
        SORTED_AFTER, {(3, 4, 8): ("dispatch", NEAR), (5, 7): ("expert_gemm", NEAR), (12,): ("dense_gemm", NAME)}),
    "with attention beside the experts nothing is told": (
        [(SENT, 20), SELECT, GEMM, (FLASH, 21), GEMM, SCATTER, (RETURNED, 20)], {(2, 4): ("dense_gemm", NAME)}),
    # Where no exchange carries tokens.
    "what moves rows right around the experts is packing": (
        [NORM, FUSED, SORT, SELECT, CAT, GROUPED, SWIGLU, CAT, GROUPED, CAT, SCATTER, NORM, GEMM, CAT, FLASH],
        {(2, 3, 4, 9, 10): ("dispatch", NEAR), (7, 13): ("elementwise", NAME), (12,): ("dense_gemm", NAME)}),
    "experts one by one: rows are taken, multiplied, and added up again": (
        [*[NORM, GEMM, ADD, SOFTMAX, TOPK, ADD], *[SORT, SELECT, GEMM, SWIGLU, GEMM, SCATTER] * 2, NORM, GEMM, FLASH],
        {(7, 11, 12, 13, 17): ("dispatch", NEAR), (8, 10, 14, 16): ("expert_gemm", NEAR), (1, 3, 4): ("router", NEAR),
         (19,): ("dense_gemm", NAME)}),
    "rows that are taken once, or without a selection, are no experts'": (
        [NORM, TOPK, SELECT, GEMM, SWIGLU, GEMM, SCATTER, NORM], {(2,): ("embedding", NAME), (3, 5): ("dense_gemm", NAME)}),
    "an embedding and its gradient are next to no experts": (
        [SELECT, GEMM, FLASH, GEMM, FUSED, SELECT, GROUPED, SCATTER, GEMM, FLASH_BACK, GEMM, SCATTER, ADAM],
        {(0,): ("embedding", NAME), (5, 7): ("dispatch", NEAR), (11,): ("elementwise", NAME)}),
    # Attention in steps.
    "a softmax between two products is attention with them and what lies between": (
        [NORM, GEMM, COPY, GEMM, ADD, SOFTMAX, CAST, GEMM, COPY, GEMM, NORM],
        {(3, 4, 5, 6, 7): ("attention", NEAR), (1, 9): ("dense_gemm", NAME), (2, 8): ("elementwise", NAME)}),
    "a softmax in front of a selection, or of a norm, is none between products": (
        [NORM, GEMM, SOFTMAX, TOPK, GEMM, SOFTMAX, NORM], {(1, 4): ("dense_gemm", NAME), (2, 5): ("attention", NAME)}),
    # The optimizer's tail.
    "casts right after the optimizer are its own": (
        [CAST, ADAM, CAST, CAST, ADD, CAST],
        {(0, 4, 5): ("elementwise", NAME), (1,): ("optimizer", NAME), (2, 3): ("optimizer", NEAR)}),
    "a cast after a copy from the host": ([ADAM, "Memcpy HtoD (Pinned -> Device)", CAST], {(2,): ("elementwise", NAME)}),
    "a copy is no cast": ([CAST, ADAM, COPY], {(2,): ("elementwise", NAME)}),
    "generic kernels between the optimizer's are its own": (
        [ADAM, ADD, ADAM, CAST, ADD, GEMM, ADD, ADAM],
        {(0, 2, 7): ("optimizer", NAME), (1, 3): ("optimizer", NEAR), (4, 6): ("elementwise", NAME), (5,): ("dense_gemm", NAME)}),
    "what has a name of its own keeps it there": (
        [ADAM, CAST, SELECT, ADAM], {(0, 3): ("optimizer", NAME), (1,): ("optimizer", NEAR), (2,): ("embedding", NAME)}),
}  # fmt: skip


def test_what_is_nearest_is_looked_for_within_a_stream_and_ends_at_its_edge() -> None:
    rows = pl.DataFrame({"stream": [1, 1, 1, 2, 2], "sign": [None, 5, None, None, 6]}, schema_overrides={"sign": pl.UInt8})
    found = rows.select(before(pl.col("sign"), "stream").alias("before"), after(pl.col("sign"), "stream").alias("after"))
    assert found["before"].to_list() == [EDGE, EDGE, 5, EDGE, EDGE]
    assert found["after"].to_list() == [5, EDGE, EDGE, 6, EDGE]


@for_each("steps, expected", *RUNS.values())
def test_what_kernels_learn_from_those_around_them(
    taxonomy: Taxonomy, steps: Steps, expected: dict[tuple[int, ...], tuple[str, str]]
) -> None:
    found = run(taxonomy, *steps)
    assert {places: {found[at] for at in places} for places in expected} == {places: {told} for places, told in expected.items()}


def test_a_loop_over_experts_is_told_by_the_turns_that_follow_each_other(taxonomy: Taxonomy) -> None:
    found = run(taxonomy, *LOOP_LAYER)
    products = [told for told, name in zip(found, LOOP_LAYER, strict=True) if name == GEMM]
    assert products == [("dense_gemm", NAME), *[("expert_gemm", NEAR)] * (3 * 2 + 3 * 4), ("dense_gemm", NAME)]
    packed = {name for (bucket, _), name in zip(found, LOOP_LAYER, strict=True) if bucket == "dispatch"}
    assert packed == {SORT, SELECT, INDEX, INDEX_ADD, INDEX_PUT}


DENSE_LAYER = [FLASH, GEMM, ADD, GEMM, SWIGLU, GEMM, ADD]


@for_each(
    "steps",
    [FLASH, TOP, *[GEMM, SWIGLU, GEMM] * 8, FLASH],  # small layers without any rows selected
    [FLASH, TOP, *FORWARD_TURN, FLASH],  # one turn: rows that are selected for one layer
    [FLASH, *FORWARD_TURN * 4, FLASH],  # message passing: no selection of experts before
    [FLASH, TOP, *[SELECT, GEMM, GEMM, INDEX_ADD] * 4, FLASH],  # adapters of LoRA on rows of one length: no activation between
    [FLASH, TOP, *[*FORWARD_TURN, FLASH] * 4],  # one for each layer
    [TOP, SELECT, *DENSE_LAYER * 3, INDEX_ADD],
    [FLASH, TOP, *[SELECT, GEMM, SWIGLU, GEMM, INDEX] * 4, FLASH],  # nothing is added up
)
def test_other_layers_with_small_products_are_no_loop_over_experts(taxonomy: Taxonomy, steps: Steps) -> None:
    assert {bucket for bucket, _ in run(taxonomy, *steps)}.isdisjoint({"expert_gemm", "dispatch"})


def test_a_shared_expert_behind_the_loop_stays_dense(taxonomy: Taxonomy) -> None:
    names = [
        FLASH,
        TOP,
        *FORWARD_TURN * 3,
        GEMM,
        SWIGLU,
        GEMM,
        ADD,
        FLASH,
        GEMM,
        SWIGLU,
        GEMM,
        *BACKWARD_TURN * 3,
        GEMM,
        SWIGLU,
        GEMM,
        FLASH,
    ]
    products = [bucket for (bucket, _), name in zip(run(taxonomy, *names), names, strict=True) if name == GEMM]
    assert products == [*["expert_gemm"] * 6, *["dense_gemm"] * 4, *["expert_gemm"] * 12, *["dense_gemm"] * 2]


def buckets(taxonomy: Taxonomy, *steps: str | tuple[str, int]) -> list[str]:
    return [bucket for bucket, _ in run(taxonomy, *steps)]


def test_a_gather_outside_forward_and_backward_moves_data_parallel_state(taxonomy: Taxonomy):
    inside = [Launch(name=ADD, at=at, start=at + 5) for at in (0, 20, 40)]
    outside = [Launch(name=GATHER, at=at, start=at + 5, stream=28) for at in (200, 220)]
    ranges = [Range(text="TELayerNormColumnParallelLinear forward", start=0, end=100, kind="push_pop")]
    trace = trace_of([*inside, *outside], ranges)
    assert classes_of(trace, taxonomy).select("bucket", "kind", "decided_by").rows()[3:] == [("collective", "data", "neighbours")] * 2


def in_linear(taxonomy: Taxonomy, names: list[str], *around: Range) -> list[str]:
    """Buckets of kernels in a row on one stream, the products inside a plain linear layer's operator, within further ranges."""
    launches = [Launch(name=name, at=10 * number, start=10 * number + 2, duration=5) for number, name in enumerate(names)]
    ranges = [Range(text="_Linear", start=10 * number - 1, end=10 * number + 4) for number, name in enumerate(names) if name == GEMM]
    trace = trace_of(launches, [*ranges, *around])
    return classes_of(trace, taxonomy)["bucket"].to_list()


def test_linear_layers_between_permutation_and_return_are_experts_but_not_a_single_block(taxonomy: Taxonomy):
    one = [GEMM, SWIGLU, GEMM]
    found = in_linear(taxonomy, [NORM, GEMM, FUSED, PERMUTE, *one, *one, UNPERMUTE, NORM, *one])
    assert found[4] == found[6] == found[7] == found[9] == "expert_gemm"
    assert found[1] == found[12] == "dense_gemm"
    assert in_linear(taxonomy, [NORM, FUSED, PERMUTE, GEMM, SWIGLU, GEMM, UNPERMUTE])[3] == "dense_gemm"


def test_experts_that_ranges_tell_in_forward_alone_are_found_in_backward(taxonomy: Taxonomy):
    one = [GEMM, SWIGLU, GEMM]
    names = [NORM, FUSED, PERMUTE, *one, *one, UNPERMUTE, NORM, PERMUTE, *one, *one, UNPERMUTE]
    told = Range(text="megatron.core.transformer.moe.experts.forward", start=29, end=88, kind="push_pop")
    assert in_linear(taxonomy, names, told)[12:17] == ["expert_gemm", "activation", "expert_gemm", "expert_gemm", "activation"]


def test_packing_has_its_role_and_gathers_elsewhere_are_none(taxonomy: Taxonomy):
    trace = trace_of([Launch(name=name, start=100 * at, stream=20 if name == SENDRECV else 7) for at, name in enumerate(bare(UNFUSED) * 2)])
    found = classify(trace, attribute(trace), taxonomy)
    roles = dict(found.classes.filter(pl.col("bucket") == "dispatch").select("rule", "role").rows())
    assert roles == {"between_router_exchange_and_experts": "packing", "collective_by_stream_and_neighbours": "transport"}
    embedding = run(taxonomy, *UNFUSED, SELECT, NORM)[-2]
    assert embedding == ("embedding", "name")
    for around in ([NORM, SELECT, (SENDRECV, 21), SELECT, FLASH, SELECT, (SENDRECV, 21)], [NORM, SORT, CAT, SCATTER, NORM]):
        found = run(taxonomy, *UNFUSED, *UNFUSED, *around)[2 * len(UNFUSED) :]
        assert "dispatch" not in {bucket for bucket, _ in found}


def bare(steps: list[str | tuple[str, int]]) -> list[str]:
    return [step if isinstance(step, str) else step[0] for step in steps]


# ---------------------------------------------------------------------------------------------- collectives

EXPERTS = [NORM, FUSED, PERMUTE, (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE]


def test_a_transfer_after_the_return_of_tokens_is_no_exchange_of_experts(taxonomy: Taxonomy):
    back = ["_unpermute_bwd_with_merging_probs_kernel", (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE]
    stage = [FLASH, *EXPERTS, (SENDRECV, 52), (SENDRECV, 56), *back, NORM, FLASH, NORM, (SENDRECV, 52)]
    found = run(taxonomy, *stage, *stage)
    assert [found[at] for at in (8, 9, 18)] == [("collective", "name")] * 3
    assert [found[at][0] for at in (4, 6, 11, 13)] == ["dispatch"] * 4


@for_each("layers, told", (3, "pipeline"), (1, "other"))
def test_transfers_between_passes_over_several_layers_are_a_pipeline_s(taxonomy: Taxonomy, layers: int, told: str):
    """A stage receives once for each pass, whatever its layers exchange; once for each layer may be anything."""
    ahead, back = (
        [FLASH, *EXPERTS],
        ["_unpermute_bwd_with_merging_probs_kernel", (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE, FLASH_BACK, NORM],
    )
    stage = [NORM, (SENDRECV, 52), NORM, *ahead * layers, NORM, (SENDRECV, 56), NORM, *back * layers]
    steps = stage * 4
    trace = trace_of([Launch(name=name, start=100 * at, duration=90, stream=stream) for at, (name, stream) in enumerate(on_streams(steps))])
    found = classify(trace, attribute(trace), taxonomy)
    kinds = found.classes["kind"].gather(found.class_id)
    assert set(kinds.filter(trace.ops["stream"] == 20)) == {"expert"}
    assert [set(kinds.filter(trace.ops["stream"] == stream)) for stream in (52, 56)] == [{told}] * 2


def test_reduce_scatters_say_nothing_against_what_their_stream_gathers(taxonomy: Taxonomy):
    """Gradients that are reduced in every micro-batch: many reduce-scatters, and one gather of parameters behind the optimizer."""
    back = [FLASH_BACK, NORM_BACK, GEMM, (SCATTERED, 30)]
    step = [NORM, FLASH, GEMM, *back * 30, NORM_BACK, ADAM, (GATHER, 30), ADAM]
    trace = trace_of(
        [Launch(name=name, start=100 * at, duration=90, stream=stream) for at, (name, stream) in enumerate(on_streams(step * 2))]
    )
    found = classify(trace, attribute(trace), taxonomy)
    assert set(found.classes["kind"].gather(found.class_id).filter(trace.ops["stream"] == 30)) == {"data"}


def on_streams(steps: list[str | tuple[str, int]]) -> list[tuple[str, int]]:
    return [(step, 7) if isinstance(step, str) else step for step in steps]


def overlapped(taxonomy: Taxonomy, moving: list[tuple[str, int, int, int]], steps: list[str | tuple[str, int]]) -> list[tuple[str, str]]:
    """Bucket and kind of collectives (name, stream, start, duration) beside kernels that run one after the other, 100 ns each."""
    launches = [
        Launch(name=step if isinstance(step, str) else step[0], start=100 * at, duration=90, stream=7 if isinstance(step, str) else step[1])
        for at, step in enumerate(steps)
    ]
    beside = [Launch(name=name, start=start, duration=duration, stream=stream) for name, stream, start, duration in moving]
    trace = trace_of(sorted([*launches, *beside], key=lambda one: one.start or 0))
    found = classes_of(trace, taxonomy).filter(trace.ops["stream"].is_in([one[1] for one in moving]))
    return found.select("bucket", "kind").rows()


def test_only_exchanges_of_their_own_between_router_and_experts_carry_tokens(taxonomy: Taxonomy):
    layer = [FLASH, NORM, FUSED, PERMUTE, GROUPED, UNPERMUTE]
    under = [(GATHER, 28, 340, 200), (GATHER, 28, 940, 200)]
    assert overlapped(taxonomy, under, layer * 2) == [("collective", "other")] * 2
    between = [(GATHER, 24, 295, 3), (GATHER, 24, 895, 3)]
    assert overlapped(taxonomy, between, layer * 2) == [("dispatch", "expert")] * 2
    for name in (SCATTERED, REDUCED):
        assert overlapped(taxonomy, [(name, 24, 295, 3), (name, 24, 895, 3)], layer * 2) == [("collective", "other")] * 2
    moving = [(GATHER, 24, 295, 3), (SCATTERED, 24, 595, 3), (GATHER, 24, 895, 3), (SCATTERED, 24, 1195, 3)]
    assert overlapped(taxonomy, moving, layer * 2) == [("dispatch", "expert")] * 4
    layer = [FLASH, NORM, FUSED, PERMUTE, GROUPED, GROUPED, UNPERMUTE]
    early = [(SENDRECV, 56, 395, 200), (SENDRECV, 56, 1095, 200)]
    assert overlapped(taxonomy, early, layer * 2) == [("collective", "other")] * 2


def of_reductions(taxonomy: Taxonomy, steps: list[str | tuple[str, int]], absent: tuple[str, ...] = ()) -> list[str]:
    """The kind of each all-reduce among kernels that run one after the other, 100 ns each; a number is its length."""
    launches = [
        Launch(name=REDUCED, start=100 * at, duration=step[1], stream=30)
        if isinstance(step, tuple)
        else Launch(name=step, start=100 * at, duration=90, stream=7)
        for at, step in enumerate(steps)
    ]
    trace = trace_of(launches)
    found = classify(trace, attribute(trace), taxonomy, frozenset(absent))  # type: ignore[arg-type]
    kinds = found.classes["kind"].gather(found.class_id)
    return kinds.filter(trace.ops["stream"] == 30).to_list()


def test_what_is_reduced_in_a_first_forward_pass_are_activations(taxonomy: Taxonomy):
    layer = [NORM, GEMM, FLASH, GEMM, (REDUCED, 90), NORM, GEMM, (REDUCED, 90)]
    back = [GEMM, NORM_BACK, (REDUCED, 90), FLASH_BACK, GEMM, NORM_BACK, (REDUCED, 90)]
    step = [*layer * 2, NORM, *back * 2, ADAM]
    assert of_reductions(taxonomy, step * 2) == ["tensor"] * 16
    assert of_reductions(taxonomy, step) == ["other"] * 8, "nothing shows that no gradients are there yet"
    assert of_reductions(taxonomy, step * 2, ("tensor",)) == ["other"] * 16


def test_where_ranks_are_data_parallel_alone_so_are_their_collectives(taxonomy: Taxonomy):
    step = [NORM, GEMM, FLASH, GEMM, NORM, NORM_BACK, GEMM, (REDUCED, 90), FLASH_BACK, (REDUCED, 10), ADAM]
    alone = ("expert", "tensor", "pipeline", "context")
    assert [of_reductions(taxonomy, step * 2, absent) for absent in (alone[1:], alone)] == [["other"] * 4, ["data"] * 4]


def test_gradients_losses_and_statistics_are_no_activations(taxonomy: Taxonomy):
    forward, back = [NORM, GEMM, FLASH, GEMM, NORM, GEMM], [NORM_BACK, GEMM, FLASH_BACK, GEMM, NORM_BACK]
    gradients = [ADAM, *forward * 2, *back, (REDUCED, 90), *back, (REDUCED, 90), ADAM]
    assert of_reductions(taxonomy, gradients * 2) == ["data"] * 4
    repeated = [ADAM, *forward * 2, *back, *forward, (REDUCED, 90), *forward, (REDUCED, 90), *back, ADAM]
    assert of_reductions(taxonomy, repeated * 2) == ["data"] * 4, "layers that are run again in backward"
    norms = [ADAM, *forward * 2, *back * 2, (REDUCED, 90), ADAM]
    assert of_reductions(taxonomy, norms * 4) == ["other"] * 4, "one a step, behind backward: a norm, or how long a stage waits for others"
    unseen = [*forward, *back, (REDUCED, 90)]
    assert of_reductions(taxonomy, unseen * 3) == ["other"] * 3, "no optimizer shows where gradients begin"
    statistics = [ADAM, NORM, FLASH, (REDUCED, 10), NORM, FLASH, (REDUCED, 10), NORM, *back, (REDUCED, 90), (REDUCED, 90), ADAM]
    assert of_reductions(taxonomy, statistics * 2) == ["other"] * 8


@for_each(
    "gathers, reductions, early, attended, told",
    (20, 24, None, False, {20: "data", 24: "data"}),
    (20, 20, None, False, {20: "data"}),
    (20, 24, 24, False, {20: "other", 24: "tensor"}),  # reduced in the first forward pass too: activations
    (20, 24, None, True, {20: "other", 24: "data"}),  # keys and values of a divided context are gathered next to attention
    (20, 24, 28, False, {20: "data", 24: "data", 28: "tensor"}),
)
def test_what_is_gathered_in_both_passes_and_reduced_in_backward_alone_is_a_sharded_model_s(
    taxonomy: Taxonomy, gathers: int, reductions: int, early: int | None, attended: bool, told: dict[int, str]
):
    """As FSDP does, in a capture without ranges and groups."""
    moved: list[str | tuple[str, int]] = [(GATHER, gathers)]
    inside: list[str | tuple[str, int]] = [(SCATTERED, early)] if early else []
    ahead = [NORM, *moved * attended, FLASH, GEMM, *inside, NORM, GEMM, SWIGLU, *moved * (not attended)]
    back = [SWIGLU, *moved * (not attended), GEMM, NORM_BACK, *moved * attended, FLASH_BACK, GEMM, NORM_BACK, (SCATTERED, reductions)]
    step = on_streams([*ahead * 4, *back * 4, ADAM])
    trace = trace_of([Launch(name=name, start=100 * at, duration=90, stream=stream) for at, (name, stream) in enumerate(step * 3)])
    found = classify(trace, attribute(trace), taxonomy)
    kinds = pl.DataFrame({"stream": trace.ops["stream"], "kind": found.classes["kind"].gather(found.class_id)})
    assert {stream: set(kinds.filter(pl.col("stream") == stream)["kind"]) for stream in told} == {key: {kind} for key, kind in told.items()}


@for_each("lasting, told", (90, "other"), (190, "data"))
def test_compute_does_not_wait_for_what_it_runs_beside(taxonomy: Taxonomy, lasting: int, told: str):
    """Layers of which attention alone has a name that tells: everything stands next to it."""
    step = [*[FLASH, GEMM, GEMM, GATHER, GEMM] * 4, *[GEMM, GATHER, GEMM, FLASH_BACK, GEMM, SCATTERED] * 4, ADAM]
    launches = [
        Launch(name=name, start=100 * at, duration=lasting if name == GATHER else 90, stream={GATHER: 20, SCATTERED: 24}.get(name, 7))
        for at, name in enumerate(step * 3)
    ]
    # reductions run beside compute, too
    launches = [replace(one, duration=190) if one.name == SCATTERED else one for one in launches]
    trace = trace_of(launches)
    found = classify(trace, attribute(trace), taxonomy)
    assert set(found.classes["kind"].gather(found.class_id).filter(trace.ops["stream"] == 20)) == {told}


@for_each("absent, told", ((), "context"), (("context",), "other"))
def test_gathers_before_attention_and_reductions_behind_its_backward_pass_are_of_a_divided_context(
    taxonomy: Taxonomy, absent: tuple[CommKind, ...], told: str
):
    ahead = [NORM, GEMM, (GATHER, 40), FLASH, GEMM, NORM, GEMM]
    back = [SWIGLU, GEMM, NORM_BACK, (GATHER, 40), FLASH_BACK, (SCATTERED, 40), GEMM, NORM_BACK]
    step = on_streams([*ahead * 4, *back * 4, ADAM])
    trace = trace_of([Launch(name=name, start=100 * at, duration=90, stream=stream) for at, (name, stream) in enumerate(step * 3)])
    found = classify(trace, attribute(trace), taxonomy, frozenset(absent))
    assert set(found.classes["kind"].gather(found.class_id).filter(trace.ops["stream"] == 40)) == {told}


def test_a_kind_that_the_job_file_rules_out_gets_no_votes(taxonomy: Taxonomy):
    """Transfers of a pipeline next to attention: without the job file they pass for context parallelism."""
    stage = [FLASH, (SENDRECV, 52), FLASH, (SENDRECV, 52), NORM]
    launches = [
        Launch(name=step if isinstance(step, str) else step[0], start=100 * at, duration=90, stream=7 if isinstance(step, str) else step[1])
        for at, step in enumerate(stage * 2)
    ]
    trace = trace_of(launches)
    kinds = {}
    for absent in [(), ("context",), ("context", "expert"), ("context", "pipeline")]:
        found = classify(trace, attribute(trace), taxonomy, frozenset(absent))
        kinds[absent] = found.classes["kind"].gather(found.class_id).drop_nulls().unique().to_list()
    assert kinds == {(): ["context"], ("context",): ["pipeline"], ("context", "expert"): ["pipeline"], ("context", "pipeline"): ["other"]}


def test_a_stream_whose_collectives_disagree_has_no_kind(taxonomy: Taxonomy):
    """Two of three between router and experts, the third inside attention, are no majority of seventy percent; three of four are."""
    layer = [NORM, FUSED, (SENDRECV, 52), GROUPED, (SENDRECV, 52), UNPERMUTE]
    mixed = [FLASH, (SENDRECV, 52), FLASH, *layer]
    for steps, told in ((mixed * 3, ("collective", NAME)), ([*mixed * 2, *layer], ("dispatch", NEAR))):
        found = run(taxonomy, *steps)
        assert {found[place] for place, step in enumerate(steps) if step == (SENDRECV, 52)} == {told}


def in_ranges(taxonomy: Taxonomy, steps: list[str | tuple[str, int]], ranges: list[Range]) -> pl.DataFrame:
    """The classes of kernels in a row, 100 ns each, of which a pair names the stream; the launch of number n is at 10 n."""
    pairs = [(step, 7) if isinstance(step, str) else step for step in steps]
    launches = [Launch(name=name, at=10 * at, start=100 * at, duration=90, stream=stream) for at, (name, stream) in enumerate(pairs)]
    return classes_of(trace_of(launches, ranges), taxonomy)


@for_each("beside, told", ([], "dispatch"), ([GEMM], "collective"))
def test_what_is_known_of_a_communicator_holds_for_all_its_exchanges(taxonomy: Taxonomy, beside: list[str], told: str):
    """Backward has no ranges, and nothing there that brings tokens out; a stream that computes too may be any group's."""
    layer = [FLASH, NORM, PERMUTE, (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE, NORM]
    back = [NORM_BACK, (SENDRECV, 20), GROUPED, (SENDRECV, 20), UNPERMUTE_BACK, NORM_BACK, FLASH_BACK, *((name, 20) for name in beside)]
    steps: list[str | tuple[str, int]] = [*layer * 2, *back * 2]
    exchanges = [at for at, step in enumerate(steps) if step == (SENDRECV, 20)]
    ranges = [Range(text="token_dispatch", start=10 * at - 1, end=10 * at + 4, kind="push_pop") for at in exchanges[:4]]
    found = in_ranges(taxonomy, steps, ranges)["bucket"]
    assert [found[at] for at in exchanges] == ["dispatch"] * 4 + [told] * 4


def test_what_the_optimizer_gathers_inside_its_range_is_data_parallel(taxonomy: Taxonomy):
    steps: list[str | tuple[str, int]] = [FLASH, GEMM, (SCATTERED, 24), ADAM, (GATHER, 24)] * 3
    ranges = [Range(text="optimizer", start=50 * step + 19, end=50 * step + 44, kind="push_pop") for step in range(3)]
    found = in_ranges(taxonomy, steps, ranges)["kind"]
    assert [found[at] for at, step in enumerate(steps) if isinstance(step, tuple)] == ["data"] * 6


def test_one_stream_that_exchanges_twice_for_each_way_out_carries_the_tokens(taxonomy: Taxonomy):
    """Another micro-batch's norms start while tokens travel, so that no exchange stands alone."""
    layer = [FUSED, PERMUTE, NORM, GROUPED, NORM, UNPERMUTE, FLASH]
    beside = [(SENDRECV, 20, 195, 100), (SENDRECV, 20, 385, 110), (SENDRECV, 20, 895, 100), (SENDRECV, 20, 1085, 110)]
    assert overlapped(taxonomy, beside, layer * 2) == [("dispatch", "expert")] * 4
    assert overlapped(taxonomy, beside[::2], layer * 2) == [("collective", "other")] * 2


def test_a_product_that_runs_while_the_tokens_travel_is_no_experts(taxonomy: Taxonomy):
    """A shared expert on the main stream beside the dispatch, then the experts."""
    layer = [FLASH, NORM, FUSED, PERMUTE, GEMM, GEMM, GEMM, UNPERMUTE]
    moving = [(SENDRECV, 20, 390, 110), (SENDRECV, 20, 690, 9), (SENDRECV, 20, 1190, 110), (SENDRECV, 20, 1490, 9)]
    launches = [Launch(name=name, start=100 * at, duration=90, stream=7) for at, name in enumerate(layer * 2)]
    beside = [Launch(name=name, start=start, duration=duration, stream=stream) for name, stream, start, duration in moving]
    trace = trace_of(sorted([*launches, *beside], key=lambda one: one.start or 0))
    found = classes_of(trace, taxonomy).filter(trace.ops["start"].is_in([400, 500, 600, 1200, 1300, 1400]))
    assert found["bucket"].to_list() == ["dense_gemm", "expert_gemm", "expert_gemm"] * 2


def test_nccl_carries_no_tokens_beside_another_library_or_by_chance(taxonomy: Taxonomy):
    out, back = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "void deep_ep::intranode::combine<int>(int4*)"
    layer = [FLASH, NORM, FUSED, (out, 30), PERMUTE, (SENDRECV, 56), GROUPED, UNPERMUTE, (back, 30)]
    assert run(taxonomy, *layer, *layer)[5] == ("collective", "name")
    by_chance = [NORM, FUSED, PERMUTE, (SENDRECV, 56), GROUPED, UNPERMUTE]
    found = run(taxonomy, *[*EXPERTS, FLASH] * 3, *by_chance * 2)
    assert (found[-3], found[3]) == (("collective", "name"), ("dispatch", "neighbours"))


# ---------------------------------------------------------------------------------------------- a vision tower

TOWER = [BIASED, LAYER_NORM, BIASED, FLASH, BIASED, LAYER_NORM, BIASED, GELU, BIASED]
TOWER_BACK = [GEMM, GEMM, GELU_BACK, GEMM, GEMM, LAYER_NORM_BACK, FLASH_BACK, GEMM, GEMM, LAYER_NORM_BACK, GEMM, GEMM]
DECODER = [SELECT, NORM, GEMM, FLASH, GEMM, ADD, NORM, GATE, FUSED, PERMUTE, GROUPED, SWIGLU, UNPERMUTE]


def test_a_tower_of_another_make_is_vision_and_its_backward_takes_the_outer_layers_along(taxonomy: Taxonomy):
    found = run(taxonomy, *TOWER, *DECODER, *TOWER, *DECODER)
    assert found[: len(TOWER)] == [("vision_encoder", "neighbours")] * len(TOWER)
    rest = found[len(TOWER) : len(TOWER) + len(DECODER)]
    assert "vision_encoder" not in {bucket for bucket, _ in rest}
    assert rest[0] == ("embedding", "name")
    decoder_back = [FUSED_BACK, GEMM, GEMM, NORM_BACK, GEMM, GEMM, NORM_BACK, "embedding_backward_feature_kernel"]
    found = buckets(taxonomy, *TOWER, *DECODER, *decoder_back, *TOWER_BACK, ADAM)
    assert set(found[-len(TOWER_BACK) - 1 : -1]) == {"vision_encoder"}
    assert "vision_encoder" not in set(found[len(TOWER) : -len(TOWER_BACK) - 1])
    farther = buckets(taxonomy, *TOWER, *DECODER, *decoder_back, GEMM, *TOWER_BACK, ADAM)
    assert farther[-len(TOWER_BACK) - 2] == "dense_gemm"


def test_layer_norm_and_gelu_prove_nothing_alone(taxonomy: Taxonomy):
    plain = [LAYER_NORM, BIASED, FLASH, BIASED, LAYER_NORM, BIASED, GELU, BIASED]
    assert "vision_encoder" not in set(buckets(taxonomy, *plain, *plain))
    with_experts = [LAYER_NORM, FUSED, PERMUTE, GROUPED, UNPERMUTE]
    assert "vision_encoder" not in set(buckets(taxonomy, *plain, *with_experts))  # a decoder of the same make
    one_kind = [LAYER_NORM, FLASH, LAYER_NORM, LAYER_NORM, LAYER_NORM]
    assert "vision_encoder" not in set(buckets(taxonomy, *one_kind, *DECODER))


def test_where_ranges_tell_the_tower_the_neighbours_are_silent(taxonomy: Taxonomy):
    names = [*bare(TOWER), *DECODER]
    launches = [Launch(name=name, at=10 * number, start=10 * number + 2, duration=5) for number, name in enumerate(names)]
    trace = trace_of(launches, [Range(text="nn.Module: Qwen3VLVisionModel_0", start=-1, end=5, kind="python")])
    first, *others = classes_of(trace, taxonomy)["bucket"]
    assert (first, "vision_encoder" in others) == ("vision_encoder", False)


QKV_BACK = [GEMM, GEMM]  # two products, as any linear layer in backward
TOWER_LAYER, TOWER_LAYER_BACK = [LAYER_NORM, GEMM, FLASH, GEMM], [GEMM, GEMM, FLASH_BACK, FLASH_BACK, *QKV_BACK, LAYER_NORM_BACK]
LAYER = [NORM, GEMM, FLASH, GEMM, NORM, FUSED, PERMUTE, GROUPED, UNPERMUTE]
LAYER_BACK = [UNPERMUTE_BACK, GROUPED, UNPERMUTE, FUSED_BACK, NORM_BACK, GEMM, GEMM, FLASH_BACK, *QKV_BACK, NORM_BACK]


def told(taxonomy: Taxonomy, passes: list[list[list[str]]]) -> list[list[list[tuple[str, str | None]]]]:
    """Bucket and phase of kernels, in the parts in which they are given, where a range encloses the first part of each pass alone."""
    launches, ranges, now = [], [], 0
    for parts in passes:
        begun = now
        for number, part in enumerate(parts):
            for name in part:
                launches.append(Launch(name=name, at=10 * now, start=10 * now + 2, duration=5))
                now += 1
            if number == 0:
                ranges.append(Range(text="Qwen3VLModel.forward.pre_process", start=10 * begun - 1, end=10 * now - 5))
    rows = iter(classes_of(trace_of(launches, ranges), taxonomy)["bucket", "phase"].rows())
    return [[[next(rows) for _ in part] for part in parts] for parts in passes]


def test_backward_goes_through_the_decoder_then_through_the_tower_that_ranges_tell_in_forward_alone(taxonomy: Taxonomy):
    one = [TOWER_LAYER * 3, LAYER * 2, LAYER_BACK * 2, TOWER_LAYER_BACK * 3]
    for tower, ahead, decoder, back in told(taxonomy, [one, one]):
        assert {bucket for bucket, _ in tower} == {"vision_encoder"}
        assert set(back) == {("vision_encoder", "backward")}
        assert "vision_encoder" not in {bucket for bucket, _ in ahead + decoder}
    # A pipeline's first stage: two passes ahead, then two back.
    first, second = told(taxonomy, [one[:2], [*one[:2], LAYER_BACK * 2, TOWER_LAYER_BACK * 3, LAYER_BACK * 2, TOWER_LAYER_BACK * 3]])
    assert [{bucket for bucket, _ in part} == {"vision_encoder"} for part in [*first, *second]] == [
        True, False, True, False, False, True, False, True,
    ]  # fmt: skip


def test_a_tower_that_is_frozen_or_whose_layers_do_not_add_up_has_no_backward(taxonomy: Taxonomy):
    frozen = [TOWER_LAYER * 3, LAYER * 2, LAYER_BACK * 2]
    assert not {one for parts in told(taxonomy, [frozen, frozen]) for part in parts[1:] for one in part if one[0] == "vision_encoder"}
    odd = [TOWER_LAYER * 3, LAYER * 2, LAYER_BACK * 2, TOWER_LAYER_BACK * 2]
    assert not {one for parts in told(taxonomy, [odd, odd]) for part in parts[1:] for one in part if one[0] == "vision_encoder"}


def test_a_decoder_without_a_kernel_for_its_norm_leaves_the_tower_apart(taxonomy: Taxonomy):
    layer = [name for name in DECODER if name != NORM]
    found = run(taxonomy, *TOWER, *layer * 3, *TOWER, *layer * 3)
    assert found[: len(TOWER)] == [("vision_encoder", "neighbours")] * len(TOWER)
    assert "vision_encoder" not in {bucket for bucket, _ in found[len(TOWER) : len(TOWER) + 3 * len(layer)]}
    alike = [LAYER_NORM, *layer]
    assert "vision_encoder" not in set(buckets(taxonomy, *TOWER, *alike * 3, *TOWER, *alike * 3))


def beside_ranges(
    taxonomy: Taxonomy,
    parts: list[tuple[list[str], bool]],
    *,
    unlaunched: int = 0,
    around: int = 0,
    again: frozenset[int] = frozenset(),
) -> list[set[str]]:
    """The buckets in each part; of a part that is so marked a range of Megatron-Core encloses every product.

    So many of the first kernels were launched before the capture began (`unlaunched`) or inside one operator (`around`). The parts `again`
    are run by a checkpoint, in backward.
    """
    launches, ranges, now = [], [Range(text="CheckpointFunction", start=0, end=10 * around, sequence=1)] if around else [], 0
    for number, (names, enclosed) in enumerate(parts):
        if number in again:
            ranges.append(Range(text="CheckpointFunctionBackward", start=10 * now - 2, end=10 * (now + len(names)) - 3))
        for name in names:
            known = now >= unlaunched
            launches.append(Launch(name=name, at=10 * now if known else None, start=10 * now + 2, duration=5))
            if known and enclosed and name == GEMM:
                text = "megatron.core.transformer.attention.forward.linear_proj"
                ranges.append(Range(text=text, start=10 * now - 1, end=10 * now + 5, kind="push_pop"))
            now += 1
    rows = iter(classes_of(trace_of(launches, ranges), taxonomy)["bucket"])
    return [{next(rows) for _ in names} for names, _ in parts]


def test_layers_outside_the_ranges_of_those_behind_them_are_the_tower_s(taxonomy: Taxonomy):
    plain, back = [ADD, GEMM, FLASH, GEMM, ADD], [GEMM, GEMM, FLASH_BACK, *QKV_BACK]
    decoder, decoder_back = [NORM, GEMM, FLASH, GEMM, NORM, FUSED, PERMUTE, GROUPED, UNPERMUTE] * 2, LAYER_BACK * 2
    one = [(plain * 3, False), ([SELECT, *decoder], True), (decoder_back, False), (back * 3, False)]
    found = beside_ranges(taxonomy, [*one, *one])
    assert [part == {"vision_encoder"} for part in found] == [True, False, False, True] * 2
    alone = [(plain, False), ([SELECT, *decoder], True), (decoder_back, False)]  # one attention is no tower
    without = [(plain * 3, False), ([SELECT, *decoder], False), (decoder_back, False)]  # ranges of nothing tell nothing
    behind = [(decoder, True), (plain * 3, False), (back * 3, False), (decoder_back, False)]
    for parts in (alone, without, behind):
        assert not [part for part in beside_ranges(taxonomy, [*parts, *parts]) if "vision_encoder" in part]
    recomputed = [(decoder * 2, False), ([*decoder, *decoder_back], True)]  # forward runs without autograd's functions
    assert not [part for part in beside_ranges(taxonomy, recomputed, again=frozenset({1})) if "vision_encoder" in part]
    # A checkpoint around some of the layers alone records no operator of theirs inside its own.
    (kept,) = beside_ranges(taxonomy, [(decoder, False), (decoder, True), (decoder_back, False)], around=len(decoder))[:1]
    assert "vision_encoder" not in kept
    decoders = [(decoder, True), (decoder, True)]  # the capture begins in the second: no range of the first was recorded
    assert not [part for part in beside_ranges(taxonomy, decoders, unlaunched=len(decoder)) if "vision_encoder" in part]


@for_each("depths, is_tower", ([3, 3, 3], True), ([2, 3, 3], True), ([3, 6, 3], True), ([3, 3, 2], False), ([3, 2, 5], False))
def test_a_tower_outside_the_ranges_has_the_same_layers_each_time(taxonomy: Taxonomy, depths: list[int], is_tower: bool):
    """The capture may begin within the first; images may go one by one. Layers of any number are the decoder's, without their ranges."""
    plain, decoder = [ADD, GEMM, FLASH, GEMM, ADD], [NORM, GEMM, FLASH, GEMM, NORM, FUSED, PERMUTE, GROUPED, UNPERMUTE] * 2
    passes = [((plain * depth, False), ([SELECT, *decoder], True), (LAYER_BACK * 2, False)) for depth in depths]
    found = beside_ranges(taxonomy, [part for one in passes for part in one])
    assert [part == {"vision_encoder"} for part in found[::3]] == [is_tower] * len(depths)


def test_passes_outside_the_ranges_that_end_in_a_loss_are_an_evaluation_s(taxonomy: Taxonomy):
    layer = [NORM, GEMM, FLASH, GEMM, NORM, SWIGLU]
    trained = [(layer * 3, True), (CROSS_ENTROPY[:3], False), (LAYER_BACK * 3, False)]
    evaluated = [(layer * 3, False), (CROSS_ENTROPY[:3], False)] * 2
    for parts in ([*trained, *evaluated, *trained], [*evaluated, *trained] * 2):
        assert not [part for part in beside_ranges(taxonomy, parts) if "vision_encoder" in part]


# -------------------- which ranges enclose a launch, what backward nodes inherit


def ids_at(trace: Trace, taxonomy: Taxonomy) -> list[set[str]]:
    """The contexts of each operation, by id; FORWARD stands for a recorded forward operator, AGAIN for one inside a backward node."""
    found = host_context(trace, attribute(trace), taxonomy)
    assert found.mask.len() == found.payload_id.len() == trace.ops.height
    named = {1 << bit: context.id for bit, context in enumerate(taxonomy.contexts)} | {
        1 << FORWARD_BIT: "FORWARD",
        1 << AGAIN_BIT: "AGAIN",
    }
    # Parents that the patterns know are known by their words as well, which stand behind and say the same.
    return [{name for bit, name in named.items() if mask & bit and not name.endswith("_words")} for mask in found.mask]


def test_a_launch_is_inside_from_a_range_s_start_to_before_its_end_on_its_own_thread(taxonomy: Taxonomy):
    router = Range(text="nn.Module: TopKRouter_3", start=100, end=200, kind="python")
    launches = [Launch(name="k", at=at, start=at + 1000) for at in (99, 100, 150, 199, 200)]
    assert ids_at(trace_of(launches, [router]), taxonomy) == [set(), {"router"}, {"router"}, {"router"}, set()]
    ranges = [
        Range(text="_GroupedLinear", start=0, end=100, thread=1),
        Range(text="_Linear", start=0, end=100, thread=2),
        Range(text="Optimizer.step#Adam.step", start=0, end=100, thread=1, rank=1, kind="annotation"),
    ]
    launches = [Launch(name="k", at=50, thread=thread, rank=rank) for thread, rank in ((1, 0), (2, 0), (3, 0), (1, 1))]
    found = ids_at(trace_of(launches, ranges), taxonomy)
    assert found == [{"expert_operator", "forward"}, {"dense_operator", "forward"}, set(), {"optimizer"}]


def test_the_answer_follows_the_rows_of_ops_and_without_ranges_there_is_none(taxonomy: Taxonomy):
    ranges = [Range(text="_GroupedLinear", start=0, end=20), Range(text="ProfilerStep#1", start=0, end=100, kind="annotation")]
    launches = [Launch(name="late", at=50, start=60), Launch(name="early", at=10, start=70), Launch(name="unlaunched", start=80)]
    assert ids_at(trace_of(launches, ranges), taxonomy) == [set(), {"expert_operator", "forward"}, set()]
    assert ids_at(trace_of([Launch(name="k", at=5)]), taxonomy) == [set()]
    assert ids_at(trace_of([Launch(name="k")], [Range(text="_Linear", start=0, end=100)]), taxonomy) == [set()]
    assert ids_at(trace_of([Launch(name="k", at=5)], [Range(text="nothing known", start=0, end=100)]), taxonomy) == [set()]


def test_a_kind_of_range_only_meets_the_contexts_for_it(tmp_path, taxonomy: Taxonomy):
    path = tmp_path / "own.yaml"
    path.write_text("contexts:\n  - id: only_nvtx\n    patterns: ['^here$']\n    sources: [nvtx]\n    evidence: module\n    bucket: norm\n")
    own = load_taxonomy(extra=[path])
    kinds = ["push_pop", "start_end", "annotation", "operator", "python", "mark", "gpu_annotation"]
    ranges = [Range(text="here", start=100 * n, end=100 * n + 50, kind=kind) for n, kind in enumerate(kinds)]
    launches = [Launch(name="k", at=100 * n + 10) for n in range(len(kinds))]
    assert ids_at(trace_of(launches, ranges), own) == [{"only_nvtx"}, {"only_nvtx"}, set(), set(), set(), set(), set()]


@for_each("forward_thread", 7, None)
def test_backward_nodes_inherit_their_forward_operator_s_contexts(taxonomy: Taxonomy, forward_thread: int | None):
    """As Kineto records it (forward thread given) and as NVTX does (same number, name of a backward node)."""

    def back(text: str, start: int, end: int, sequence: int) -> Range:
        return Range(text=text, start=start, end=end, thread=2, sequence=sequence, forward_thread=forward_thread)

    ranges = [
        Range(text="nn.Module: Qwen3VLVisionModel_0", start=0, end=100, kind="python"),
        Range(text="aten::linear", start=10, end=20, sequence=41),
        Range(text="nn.Module: TopKRouter_0", start=200, end=300, kind="python"),
        Range(text="aten::linear", start=210, end=220, sequence=42),
        back("autograd::engine::evaluate_function: AddmmBackward0", 500, 600, 42),
        back("AddmmBackward0", 510, 590, 42),
        back("autograd::engine::evaluate_function: AddmmBackward0", 700, 800, 41),
        back("autograd::engine::evaluate_function: MulBackward0", 900, 950, 40),
    ]
    launches = [Launch(name="k", at=at, thread=2) for at in (550, 750, 850, 920)]
    found = ids_at(trace_of(launches, ranges), taxonomy)
    assert found == [{"router", "backward"}, {"vision", "backward"}, set(), {"backward"}]


def test_what_a_checkpoint_runs_again_belongs_where_its_own_operator_did(taxonomy: Taxonomy):
    """Recomputed operators lie on the backward thread, under the checkpoint's node only; their own nodes inherit what that one does."""
    ranges = [
        Range(text="Qwen3VLModel.forward.pre_process", start=0, end=100),
        Range(text="CheckpointFunction", start=10, end=90, sequence=7),
        Range(text="CheckpointFunctionBackward", start=500, end=900, thread=2, sequence=7),
        Range(text="_Linear", start=510, end=520, thread=2, sequence=30),
        Range(text="_LinearBackward", start=600, end=650, thread=2, sequence=30),
        Range(text="aten::gelu", start=700, end=710, thread=2, sequence=31),
        Range(text="GeluBackward0", start=720, end=750, thread=2, sequence=31),
    ]
    found = ids_at(trace_of([Launch(name="k", at=at, thread=2) for at in (515, 620, 730, 950)], ranges), taxonomy)
    assert ["vision" in ids for ids in found] == [True, True, True, False]
    assert "backward" in found[1]
    assert ["AGAIN" in ids for ids in found] == [True, False, False, False]


def test_recorded_operators_inside_a_node_are_forward_work_done_again(taxonomy: Taxonomy):
    """A checkpoint that is not reentrant repeats its forward inside whichever node first asks for what it did not keep."""
    ranges = [
        Range(text="aten::mul", start=0, end=10, sequence=20),
        Range(text="autograd::engine::evaluate_function: IndexBackward0", start=100, end=300, thread=2, sequence=25, forward_thread=1),
        Range(text="IndexBackward0", start=110, end=290, thread=2, sequence=25, forward_thread=1),
        Range(text="aten::mul", start=120, end=130, thread=2, sequence=40),
        Range(text="aten::mul", start=140, end=150, thread=2),  # the node's own
        Range(text="aten::mul", start=400, end=410, thread=2, sequence=41),
        Range(text="autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start=500, end=600, thread=2),
        Range(text="torch::autograd::AccumulateGrad", start=510, end=590, thread=2, sequence=0),  # as emit_nvtx writes it
    ]
    launches = [Launch(name=ADD, at=at, thread=thread) for at, thread in ((5, 1), (125, 2), (145, 2), (405, 2), (520, 2))]
    assert classes_of(trace_of(launches, ranges), taxonomy)["phase"].to_list() == [
        "forward", "recompute", "backward", "forward", "backward",
    ]  # fmt: skip


def test_what_lies_between_the_last_backward_node_and_the_optimizer_is_the_optimizer_s(taxonomy: Taxonomy):
    """Autograd numbers each operator, also those that check and sum up gradients; the next step's forward follows the optimizer."""
    ranges = [
        Range(text="MulBackward0", start=100, end=150, thread=2, sequence=1, forward_thread=1),
        Range(text="aten::mul", start=160, end=170, sequence=2),
        Range(text="MulBackward0", start=200, end=250, thread=2, sequence=2, forward_thread=1),
        Range(text="aten::isnan", start=260, end=270, sequence=3),
        Range(text="Optimizer.step#FusedAdam.step", start=400, end=500, kind="annotation"),
        Range(text="aten::mul", start=510, end=520, sequence=3),
    ]
    launches = [Launch(name=ADD, at=at, start=1000 + at) for at in (165, 265, 300, 450, 515)]
    trace = trace_of([*launches, Launch(name=REDUCED, at=310, start=1310)], ranges)
    found = classify(trace, attribute(trace), taxonomy)
    said = pl.DataFrame({"class_id": found.class_id}).join(found.classes, on="class_id", maintain_order="left").select("bucket", "phase")
    optimizer = ("optimizer", "optimizer")
    ahead = ("elementwise", "forward")
    assert said.rows() == [ahead, optimizer, optimizer, optimizer, ahead, ("collective", None)]


def test_a_number_used_again_links_to_the_operator_before_and_operators_are_forward(taxonomy: Taxonomy):
    ranges = [
        Range(text="nn.Module: TopKRouter_0", start=0, end=50, kind="python"),
        Range(text="aten::mm", start=10, end=20, sequence=1),
        Range(text="MmBackward0", start=100, end=150, thread=2, sequence=1, forward_thread=1),
        Range(text="nn.Module: SharedExpertMLP_0", start=200, end=250, kind="python"),
        Range(text="aten::mm", start=210, end=220, sequence=1),
        Range(text="MmBackward0", start=300, end=350, thread=2, sequence=1, forward_thread=1),
    ]
    found = ids_at(trace_of([Launch(name="k", at=120, thread=2), Launch(name="k", at=320, thread=2)], ranges), taxonomy)
    assert found == [{"router", "backward"}, {"shared_experts", "backward"}]
    ranges = [Range(text="aten::mul", start=0, end=50, sequence=3), Range(text="MulBackward0", start=100, end=150, sequence=3)]
    found = ids_at(trace_of([Launch(name="k", at=20), Launch(name="k", at=120)], ranges), taxonomy)
    assert found == [{"FORWARD"}, {"backward"}]


def test_the_kernel_s_own_description_comes_first_and_the_innermost_range_s_second(taxonomy: Taxonomy):
    ranges = [
        Range(text="record_param_comms", start=0, end=100, kind="comms", payload=0),
        Range(text="record_param_comms", start=20, end=40, kind="comms", payload=1),
    ]
    launches = [
        Launch(name="ncclDevKernel_SendRecv()", at=10),
        Launch(name="ncclDevKernel_SendRecv()", at=30),
        Launch(name="ncclDevKernel_SendRecv()", at=60),
        Launch(name="ncclDevKernel_SendRecv()", at=30, payload=2),
        Launch(name="ncclDevKernel_SendRecv()", at=120),
    ]
    trace = trace_of(launches, ranges, groups=["A", "B", "C"])
    assert host_context(trace, attribute(trace), taxonomy).payload_id.to_list() == [0, 1, 0, 2, None]


@for_each("seed", *range(5))
def test_innermost_agrees_with_a_search_through_all_ranges(seed: int):
    rng = random.Random(seed)
    rows: list[tuple[int, int, int]] = []

    def nest(start: int, end: int, depth: int) -> None:
        at = start
        while depth and at < end - 2:
            begin = at + rng.randrange(3)
            stop = min(end, begin + rng.randrange(1, 30))
            if stop <= begin:
                break
            rows.append((begin, stop, len(rows)))
            nest(begin, stop, depth - 1)
            at = stop

    nest(0, 120, 4)
    frame = pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64, "value": pl.Int64}, orient="row")
    segments = innermost(frame.sample(fraction=1.0, shuffle=True, seed=seed))
    assert segments["start"].is_sorted()
    for time in range(125):
        held = [row for row in rows if row[0] <= time < row[1]]
        here = segments.filter((pl.col("start") <= time) & (pl.col("end") > time))
        assert here.height == bool(held)
        if held:
            shortest = min(row[1] - row[0] for row in held)
            assert here["value"].item() in {row[2] for row in held if row[1] - row[0] == shortest}


def test_times_beyond_the_key_s_reach_are_coarsened_not_overflown(taxonomy: Taxonomy):
    far = 1 << 61
    ranges = [Range(text="_GroupedLinear", start=far, end=far + (1 << 58))]
    launches = [Launch(name="k", at=far + (1 << 57), thread=1), Launch(name="k", at=5, thread=1), Launch(name="k", at=5, thread=2)]
    assert ids_at(trace_of(launches, ranges), taxonomy) == [{"expert_operator", "forward"}, set(), set()]


def test_masks_of_texts_are_those_of_ranges(taxonomy: Taxonomy):
    masks = masks_of([{"module": ["nn.Module: TopKRouter_3"], "operator": ["aten::mm"]}, {}], taxonomy)
    places = [context.id for context in taxonomy.contexts]
    assert masks == [sum(1 << places.index(name) for name in ("router", "dense_words", "router_words")), 0]
