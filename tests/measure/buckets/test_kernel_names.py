"""Names of kernels from the sources of many libraries, in the spellings of both profilers and cut short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.measure.buckets.describe import describe_all

TABLE = Path(__file__).parent / "kernel_names.tsv"


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


@pytest.fixture(scope="module")
def table() -> list[tuple[set[str], str, str]]:
    lines = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(set(buckets.split("|")), name, source) for buckets, name, source in lines]


def buckets(names: list[str], taxonomy: Taxonomy) -> list[str]:
    return [verdict.bucket for verdict in describe_all([(name, None) for name in names], taxonomy)]


def nsys_spelling(name: str) -> str:
    """The name as Nsight Systems spells it."""
    if name.startswith("_Z") or "<" not in name:
        return name
    name = name.replace("(anonymous namespace)::", "<unnamed>::").replace("> >", ">>")
    name = re.sub(r"(?<=[<, ])true(?=[,>])", "(bool)1", name)
    name = re.sub(r"(?<=[<, ])false(?=[,>])", "(bool)0", name)
    name = re.sub(r"(?<=[<, ])(\d+)u(?=[,>])", r"(unsigned int)\1", name)
    name = re.sub(r"(?<=[<, ])(-?\d+)(?=[,>])", r"(int)\1", name)
    return re.sub(r"(\w)\*", r"\1 *", name)


def test_the_table_is_large_and_names_its_sources(table: list[tuple[set[str], str, str]]):
    assert len(table) > 400
    assert all(source for _, _, source in table)
    assert len({name for _, name, _ in table}) == len(table)


def test_every_name_lands_in_its_bucket(table: list[tuple[set[str], str, str]], taxonomy: Taxonomy):
    found = buckets([name for _, name, _ in table], taxonomy)
    assert [(name, bucket) for (right, name, _), bucket in zip(table, found, strict=True) if bucket not in right] == []


def test_spelling_changes_nothing(table: list[tuple[set[str], str, str]], taxonomy: Taxonomy):
    names = [name for _, name, _ in table]
    plain = buckets(names, taxonomy)
    assert sum(nsys_spelling(name) != name for name in names) > 150
    assert buckets([nsys_spelling(name) for name in names], taxonomy) == plain
    assert buckets([f"{name}.kd" for name in names], taxonomy) == plain


def test_a_name_that_repeats_is_answered_each_time(taxonomy: Taxonomy):
    mangled = "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_Pf"
    assert buckets([mangled, "x", mangled], taxonomy) == ["dispatch", "other", "dispatch"]


@pytest.mark.parametrize(
    ("name", "bucket"),
    [
        # Words that mean something else than they seem to.
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "elementwise"),
        ("triton_poi_fused_all_gather_into_tensor_view_3", "elementwise"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10", "elementwise"),
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmMultiD", "other"),
        ("void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(Params)", "dense_gemm"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, (deep_gemm::GemmType)0>(float*)", "dense_gemm"),
        ("void softmax_warp_forward<float, float, float, 10, true, false>(float*)", "loss"),
        ("void softmax_warp_forward<float, float, float, 10, false, false>(float*)", "attention"),
        ("scan", "other"),
        ("ncclProgressCounterKernel", "other"),
        ("moe_frobnicate_kernel", "dispatch"),
    ],
)
def test_traps(name: str, bucket: str, taxonomy: Taxonomy):
    assert buckets([name], taxonomy) == [bucket]
