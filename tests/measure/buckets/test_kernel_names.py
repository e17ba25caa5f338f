"""Names of kernels from the sources of many libraries, in the spellings of both profilers and cut short."""

import gzip
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.load.readers import load
from diagnose.measure.buckets.classify import classify
from diagnose.measure.buckets.describe import describe_all
from diagnose.measure.host import attribute
from diagnose.model import intervals
from fixtures import kernel_accuracy
from fixtures.kernel_accuracy import Count, counted, is_right, read_counts, read_labels, refreshed, section
from fixtures.stored import rows_text
from tests.builders.cases import for_each

TABLE = Path(__file__).parent / "kernel_names.tsv"


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


def test_the_table_names_its_sources_and_every_name_lands_in_its_bucket(table: list[tuple[set[str], str, str]], taxonomy: Taxonomy):
    assert len(table) > 400
    assert all(source for _, _, source in table)
    assert len({name for _, name, _ in table}) == len(table)
    found = buckets([name for _, name, _ in table], taxonomy)
    assert [(name, bucket) for (right, name, _), bucket in zip(table, found, strict=True) if bucket not in right] == []


def test_spelling_and_repetition_change_nothing(table: list[tuple[set[str], str, str]], taxonomy: Taxonomy):
    names = [name for _, name, _ in table]
    plain = buckets(names, taxonomy)
    assert sum(nsys_spelling(name) != name for name in names) > 150
    assert buckets([nsys_spelling(name) for name in names], taxonomy) == plain
    assert buckets([f"{name}.kd" for name in names], taxonomy) == plain
    mangled = "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_Pf"
    assert buckets([mangled, "x", mangled], taxonomy) == ["dispatch", "other", "dispatch"]


def test_words_that_mean_something_else_than_they_seem_to(taxonomy: Taxonomy):
    traps = {
        "triton_poi_fused_constant_pad_nd_moe_forward_0": "elementwise",
        "triton_poi_fused_all_gather_into_tensor_view_3": "elementwise",
        "triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10": "elementwise",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmMultiD": "convolution",
        "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(Params)": "dense_gemm",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, (deep_gemm::GemmType)0>(float*)": "dense_gemm",
        "void softmax_warp_forward<float, float, float, 10, true, false>(float*)": "loss",
        "void softmax_warp_forward<float, float, float, 10, false, false>(float*)": "attention",
        "scan": "other",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, float>(int, int const*)": "embedding",
        "void acme::gemm_tools::scale_rows(float*)": "elementwise",
        "void pack_rows<cutlass::gemm::GemmShape<16, 8, 4>>(float*)": "elementwise",
        "void fill_buffer(acme::GemmParams, float*)": "elementwise",
        "void frobnicate<acme::GemmTraits>(acme::AttentionParams)": "other",
        "void deep_gemm::sm100_mqa_logits<64u>(unsigned int)": "attention",
        "row_col_rht_gemm_device": "quantize",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_nn_align4>(T1::Params)": "dense_gemm",
        "ncclProgressCounterKernel": "other",
        "moe_frobnicate_kernel": "dispatch",
    }
    assert dict(zip(traps, buckets(list(traps), taxonomy), strict=True)) == traps


# -------------------- labelled kernel names

FLOOR = {"high": 0.99, "medium": 0.97}


def test_labelled_names_land_in_their_bucket(real_traces: Path, capsys: pytest.CaptureFixture[str]):
    path = real_traces.parent / "knowledge" / "kernels.jsonl"
    if not path.is_file():
        pytest.skip("the labelled names (../shared/knowledge/kernels.jsonl) are not here")
    labels = read_labels(path)
    verdicts = describe_all([(label["name"], label.get("context")) for label in labels], load_taxonomy())
    right = [is_right(label, verdict) for label, verdict in zip(labels, verdicts, strict=True)]
    confusion = Counter((label["bucket"], verdict.bucket) for label, verdict in zip(labels, verdicts, strict=True))
    shown = [f"  {wanted:<16} {found:<16} {n:>4}" for (wanted, found), n in sorted(confusion.items())]
    for label, verdict, ok in zip(labels, verdicts, right, strict=True):
        if not ok:
            shown.append(f"  wrong: {label['name'][:90]} is {label['bucket']}, not {verdict.bucket} ({verdict.rule})")
    with capsys.disabled():
        sys.stdout.write("\n  labelled         classified\n" + "\n".join(shown) + "\n")
    for confidence, floor in FLOOR.items():
        of_these = [ok for label, ok in zip(labels, right, strict=True) if label["confidence"] == confidence]
        assert len(of_these) > 100
        assert sum(of_these) / len(of_these) >= floor, confidence


def test_the_stored_counts_are_current(real_traces: Path):
    path = real_traces.parent / "knowledge" / "kernels.jsonl"
    if not path.is_file():
        pytest.skip("the labelled names (../shared/knowledge/kernels.jsonl) are not here")
    assert read_counts() == counted(read_labels(path)), "a change of behaviour: run `python -m fixtures.kernel_accuracy`"


LABELS = [
    {"name": "flash_fwd_kernel", "bucket": "attention", "confidence": "high", "format": "any"},
    {"name": "nvjet_tst_192x192_TNN", "bucket": "ambiguous", "confidence": "high", "format": "any"},
    {"name": "nvjet_tst_192x192_TNN", "bucket": "expert_gemm", "confidence": "high", "format": "kineto", "context": {"ops": ["_Linear"]}},
    {"name": "nvjet_x", "bucket": "norm", "alternatives": ["dense_gemm:x"], "confidence": "medium", "format": "any"},
]  # fmt: skip


def test_counts_and_section():
    counts = counted(LABELS)
    assert Count(label="expert_gemm", answer="dense_gemm", confidence="high", format="kineto", context=True, right=False, names=1) in counts
    shown = section(counts)
    for line in (
        "| all | | 3 of 4 (75.0 %) |",
        "| confidence of the label | high | 2 of 3 (66.7 %) |",
        "| launch context | given | 0 of 1 (0.0 %) |",
        "| ambiguous by name | yes | 1 of 1 (100.0 %) |",
        "| expert gemm |  |  | 1 |",
    ):
        assert line in shown


def test_without_the_labels_the_stored_counts_stay_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored = counted(LABELS)
    (tmp_path / "kernel_accuracy.json").write_text(rows_text(stored), encoding="utf-8")
    monkeypatch.setattr(kernel_accuracy, "LABELS", tmp_path / "gone.jsonl")
    monkeypatch.setattr(kernel_accuracy.read_labels, "__defaults__", (tmp_path / "gone.jsonl",))
    monkeypatch.setattr(kernel_accuracy.read_counts, "__defaults__", (tmp_path / "kernel_accuracy.json",))
    counts, said = refreshed()
    assert counts == stored
    assert "NOT made anew" in said


# -------------------- real captures of others

DEMO = Path(__file__).parents[3] / "fixtures" / "traces"


@dataclass(frozen=True)
class Labelled:
    ops: pl.DataFrame  # with the columns of its class, `name` and `work`

    def where(self, **values: str) -> pl.DataFrame:
        return self.ops.filter(*(pl.col(column) == value for column, value in values.items()))

    def buckets(self, pattern: str) -> set[str]:
        """The buckets of the kernels whose name matches `pattern`."""
        return set(self.ops.filter(pl.col("name").str.contains(pattern))["bucket"])


def labelled(path: Path, taxonomy: Taxonomy) -> Labelled:
    trace = load(path)
    found = classify(trace, attribute(trace), taxonomy)
    names = trace.names["text"].gather(trace.ops["name_id"]).alias("name")
    work = (trace.ops["end"] - trace.ops["start"]).alias("work")
    ops = trace.ops.rename({"kind": "op_kind"}).with_columns(found.class_id, names, work)
    return Labelled(ops.join(found.classes, on="class_id", how="left", maintain_order="left"))


@pytest.fixture(scope="module")
def deepseek(real_traces: Path, taxonomy: Taxonomy) -> Labelled:
    return labelled(real_traces / "kineto" / "deepseek-ai_profile-data_train.json", taxonomy)


def test_deepseek_falls_into_its_buckets_and_phases(deepseek: Labelled):
    moving = deepseek.where(role="transport")
    rest = deepseek.ops.filter(pl.col("role") != "transport")
    busy = intervals.union_length(deepseek.ops["start"], deepseek.ops["end"])
    assert intervals.union_length(moving["start"], moving["end"]) == 113_030_000
    assert busy - intervals.union_length(rest["start"], rest["end"]) == 4_149_000
    assert set(moving.select("kind", "backend", "bucket").rows()) == {("expert", "deepep", "dispatch")}
    assert moving["stream"].unique().to_list() == [27]
    work = int(deepseek.ops["work"].sum())
    assert deepseek.where(bucket="other")["work"].sum() < 0.02 * work
    assert deepseek.ops.filter("weak")["work"].sum() < 0.05 * work
    assert {"router", "attention", "dispatch", "expert_gemm", "norm", "dense_gemm", "activation"} <= set(deepseek.ops["bucket"])
    assert deepseek.ops.null_count()["bucket"].item() == 0
    assert deepseek.buckets("m_grouped_fp8") == {"expert_gemm"}
    assert deepseek.buckets("::fp8_ptp128c::GemmKernel") == {"dense_gemm"}
    weight_gradients = deepseek.ops.filter(pl.col("name").str.contains("fp8_dptp128c_acc"))
    # Ten per layer under mlp(W) (the experts' on two streams), five under attn(W).
    assert dict(weight_gradients.group_by("bucket").len().rows()) == {"expert_gemm": 40, "dense_gemm": 20}
    assert weight_gradients.filter(pl.col("stream") == 23)["bucket"].unique().to_list() == ["expert_gemm"]
    assert deepseek.buckets("grouped_gemm::cuda::utils::transpose") <= {"elementwise", "attention"}
    assert deepseek.buckets("bf16f32_bf16f32_f32_tn") == {"router"}
    assert deepseek.buckets("gatherTopK|topk_sum_and_topk_idx|aux_fi") == {"router"}
    forward = deepseek.where(bucket="attention", phase="forward")["name"].str.contains("compute_attn_ws").sum()
    backward = deepseek.where(bucket="attention", phase="backward")["name"].str.contains("FlashAttnBwd<").sum()
    assert (forward, backward) == (4, 4)
    again = deepseek.where(phase="recompute")
    assert set(again["bucket"]) == {"norm", "attention"}
    assert again.filter(pl.col("bucket") == "norm")["name"].str.contains("ln_fwd_kernel").all()


@for_each("which", "before", "after")
def test_sequence_parallel_exchange_of_a_diffusion_model(real_traces: Path, taxonomy: Taxonomy, which: str):
    found = labelled(real_traces / "nsys" / f"GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{which}.sqlite", taxonomy)
    moving = found.where(role="transport")
    assert set(moving.select("bucket", "kind", "backend").rows()) == {("collective", "context", "nccl")}
    assert found.buckets("^void flash::flash_fwd") == {"attention"}
    assert found.where(bucket="other").height == 0
    assert found.where(bucket="expert_gemm").height == found.where(bucket="router").height == 0


def test_vision_models_are_vision_and_checkpoints_recompute(real_traces: Path, taxonomy: Taxonomy):
    name = "AMD-AGI_TraceLens_tests.traces.h100.facebook_timesformer-base-finetuned-k400_1016002.json.gz"
    found = labelled(real_traces / "kineto" / name, taxonomy)
    assert set(found.ops.filter(pl.col("op_kind") == "kernel")["bucket"]) == {"vision_encoder"}
    found = labelled(real_traces / "kineto" / "AMD-AGI_TraceLens_tests.traces.mi300.resnet_act_checkpoint.json.gz", taxonomy)
    again = found.where(phase="recompute")
    assert again.height > 50
    assert set(again["bucket"]) <= {"norm", "convolution", "activation", "memcpy", "memset", "elementwise", "dense_gemm"}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory, taxonomy: Taxonomy) -> tuple[Labelled, Labelled]:
    packed = DEMO / "demo.sqlite.gz"
    plain = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    return labelled(DEMO / "demo.pt.trace.json.gz", taxonomy), labelled(plain, taxonomy)


def test_the_same_run_in_both_formats_has_the_same_buckets_and_exchanges(demos: tuple[Labelled, Labelled]):
    torch, nsys = (dict(one.ops.group_by("bucket").len().rows()) for one in demos)
    for bucket in ("dispatch", "collective", "expert_gemm", "dense_gemm", "attention", "router", "norm", "activation", "loss", "embedding"):
        assert torch[bucket] == nsys[bucket], bucket
    assert "other" not in torch
    assert "other" not in nsys
    kinds = [dict(one.where(role="transport").group_by("kind").len().rows()) for one in demos]
    assert kinds[0] == kinds[1]
    assert {"expert", "data"} <= set(kinds[0])
    assert set(demos[0].where(kind="expert")["decided_by"]) == {"operator"}
    assert set(demos[1].where(kind="expert")["decided_by"]) == {"neighbours", "operator"}  # the range of _AllToAll, where there is one
