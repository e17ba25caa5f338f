"""Facts that prove a feature: names, and what ran beside compute."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from diagnose.knowledge.features import matching
from diagnose.measure.facts.device import device_facts, graph_launch_calls, hierarchical_context_groups
from diagnose.measure.records import device_records
from diagnose.model.trace import PAYLOADS
from tests.builders.scene import KNOWLEDGE, Scene, call, run, scene

NARROW = [
    "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNN",
    "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_h_bz_ptrGroup_TNT",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 128u, (deep_gemm::GemmType)1>(float*)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::float_e4m3_t, cutlass::bfloat16_t>>",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_dynBatch_sm100f",
]
WIDE = [
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(cutlass_80_simt_sgemm_64x64_8x5_nn_align1::Params)",
    "Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64",
]
SILENT = ["fused_moe_kernel", "_p_matmul_ogs", "setup_grouped_gemm_kernel", "nvjet_sm100_ootst_128x256_TNT"]


def test_names_of_products_tell_their_operands() -> None:
    every = [*NARROW, *WIDE, *SILENT]
    assert matching(KNOWLEDGE.features["narrow_gemm"], every) == set(NARROW)
    assert matching(KNOWLEDGE.features["wide_gemm"], every) - matching(KNOWLEDGE.features["narrow_gemm"], every) == set(WIDE)


def test_fused_kernels_are_told_from_others() -> None:
    assert matching(
        KNOWLEDGE.features["fused_router"],
        ["void transformer_engine::fused_router::fused_moe_aux_loss_forward_kernel<float, int>(float const*)"],
    )
    assert not matching(KNOWLEDGE.features["fused_router"], ["topkGatingSoftmax", "softmax_warp_forward", "routingIndicesKernel"])
    fused = ["_permute_kernel", "_unpermute_kernel", "_row_id_map_pass_2_kernel", "_sort_chunks_by_map_kernel", "moe_permute_kernel<float>"]
    assert matching(
        KNOWLEDGE.features["fused_permutation"], [*fused, "indexSelectLargeIndex", "hybrid_ep::permute_preprocessing_kernel"]
    ) == set(fused)


def test_every_feature_has_a_pattern() -> None:
    assert set(KNOWLEDGE.features) == {
        "narrow_gemm",
        "wide_gemm",
        "fused_router",
        "fused_permutation",
        "hierarchical_groups",
        "context_groups",
    }


def facts_of(one: Scene) -> dict[str, object]:
    measured = one.measure()[0]
    return dict(device_facts(measured, device_records(measured), KNOWLEDGE))


def test_transport_beside_compute_is_counted_once() -> None:
    """100 ns of exchange, of which 30 lie beside one product and 20 beside another that overlaps it by 10."""
    one = scene([run("gemm", 0, 30), run("nccl", 0, 100, stream=20), run("gemm", 20, 40, stream=9), run("gemm", 150, 160)])
    found = facts_of(one)
    assert (found["expert_exchange_busy_ns"], found["expert_exchange_beside_compute_ns"]) == (100, 40)
    assert (found["data_parallel_beside_compute_ns"], found["tensor_parallel_beside_compute_ns"]) == (0, 0)
    assert found["expert_exchange_nccl_share"] == 1.0


def test_a_copy_beside_the_exchange_is_no_compute() -> None:
    one = scene([run("nccl", 0, 100, stream=20), run("memcpy", 0, 100, copy_kind="d2h", bytes=8), run("gemm", 100, 110)])
    assert facts_of(one)["expert_exchange_beside_compute_ns"] == 0


def test_without_exchange_or_names_shares_are_null() -> None:
    found = facts_of(scene([run("attention", 0, 10)]))
    assert found["expert_exchange_nccl_share"] is None
    assert found["tensor_parallel_nccl_share"] is None
    assert found["low_precision_gemm_share"] is None
    assert found["vision_encoder_share"] == 0.0


def test_graph_launches_are_counted_by_call() -> None:
    assert graph_launch_calls(scene([run("gemm", 0, 10)]).trace, KNOWLEDGE.hosts) is None
    assert graph_launch_calls(scene([run("gemm", 5, 10, 1)]).trace, KNOWLEDGE.hosts) == 0
    assert (
        graph_launch_calls(
            scene([run("gemm", 5, 10, 1), call("cudaGraphLaunch", 20, 30), call("cudaGraphLaunch", 40, 50)]).trace, KNOWLEDGE.hosts
        )
        == 2
    )


@pytest.mark.parametrize(
    ("groups", "known"),
    [
        ([], None),
        (["DATA_PARALLEL_GROUP"], None),
        (["CONTEXT_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"], False),
        (["CONTEXT_PARALLEL_GROUP", "HIERARCHICAL_CONTEXT_PARALLEL_GROUPS_L0"], True),
    ],
)
def test_levels_of_the_context_exchange(groups: list[str], known: bool | None) -> None:
    trace = scene([run("gemm", 0, 10)]).trace
    rows = [{"id": index, "group": group} for index, group in enumerate(groups)]
    payloads = pl.DataFrame([{name: row.get(name) for name in PAYLOADS} for row in rows], schema=dict(PAYLOADS))
    assert hierarchical_context_groups(replace(trace, payloads=payloads), KNOWLEDGE.features) is known


def test_kernels_of_a_graph_are_told_by_the_call_where_they_do_not_say_so() -> None:
    """Older PyTorch profilers record no graph node: kernels share the correlation of the call that launched the graph."""
    one = scene([run("gemm", 0, 10, 1), run("gemm", 40, 50, 2), run("gemm", 60, 70, 3)])
    name = one.trace.names.height
    graph = one.trace.names.head(1).with_columns(pl.lit(name, dtype=pl.Int32).alias("id"), pl.lit("cudaGraphLaunch").alias("text"))
    second = one.trace.calls["correlation"].sort()[1]
    calls = one.trace.calls.with_columns(
        pl.when(pl.col("correlation") == second).then(pl.lit(name, dtype=pl.Int32)).otherwise("name_id").alias("name_id")
    )
    found = facts_of(replace(one, trace=replace(one.trace, names=pl.concat([one.trace.names, graph]), calls=calls)))
    assert found["graph_launches_per_step"] == 1
    assert found["graph_kernel_share"] == pytest.approx(1 / 3)
