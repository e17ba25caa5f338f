"""Real captures of others, and the project's own demo in both formats."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy
from diagnose.load.readers import load
from diagnose.measure.buckets.classify import classify
from diagnose.measure.host import attribute
from diagnose.model import intervals

DEMO = Path(__file__).parents[3] / "fixtures" / "traces"


@dataclass(frozen=True)
class Labelled:
    ops: pl.DataFrame  # with the columns of its class, `name` and `work`

    def where(self, **values: str) -> pl.DataFrame:
        return self.ops.filter(*(pl.col(column) == value for column, value in values.items()))

    def buckets(self, pattern: str) -> set[str]:
        """The buckets of the kernels whose name matches `pattern`."""
        return set(self.ops.filter(pl.col("name").str.contains(pattern))["bucket"])


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


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


def test_deepseek_transport_to_the_nanosecond(deepseek: Labelled):
    moving = deepseek.where(role="transport")
    rest = deepseek.ops.filter(pl.col("role") != "transport")
    busy = intervals.union_length(deepseek.ops["start"], deepseek.ops["end"])
    assert intervals.union_length(moving["start"], moving["end"]) == 113_030_000
    assert busy - intervals.union_length(rest["start"], rest["end"]) == 4_149_000
    assert set(moving.select("kind", "backend", "bucket").rows()) == {("expert", "deepep", "dispatch")}
    assert moving["stream"].unique().to_list() == [27]


def test_deepseek_leaves_next_to_nothing_unknown(deepseek: Labelled):
    work = int(deepseek.ops["work"].sum())
    assert deepseek.where(bucket="other")["work"].sum() < 0.02 * work
    assert deepseek.ops.filter("weak")["work"].sum() < 0.05 * work
    assert {"router", "attention", "dispatch", "expert_gemm", "norm", "dense_gemm", "activation"} <= set(deepseek.ops["bucket"])
    assert deepseek.ops.null_count()["bucket"].item() == 0


def test_deepseek_experts_told_from_dense_products(deepseek: Labelled):
    assert deepseek.buckets("m_grouped_fp8") == {"expert_gemm"}
    assert deepseek.buckets("::fp8_ptp128c::GemmKernel") == {"dense_gemm"}
    weight_gradients = deepseek.ops.filter(pl.col("name").str.contains("fp8_dptp128c_acc"))
    # Ten per layer under mlp(W) (the experts' on two streams), five under attn(W).
    assert dict(weight_gradients.group_by("bucket").len().rows()) == {"expert_gemm": 40, "dense_gemm": 20}
    assert weight_gradients.filter(pl.col("stream") == 23)["bucket"].unique().to_list() == ["expert_gemm"]
    assert deepseek.buckets("grouped_gemm::cuda::utils::transpose") <= {"elementwise", "attention"}


def test_deepseek_router_and_phases(deepseek: Labelled):
    assert deepseek.buckets("bf16f32_bf16f32_f32_tn") == {"router"}
    assert deepseek.buckets("gatherTopK|topk_sum_and_topk_idx|aux_fi") == {"router"}
    forward = deepseek.where(bucket="attention", phase="forward")["name"].str.contains("compute_attn_ws").sum()
    backward = deepseek.where(bucket="attention", phase="backward")["name"].str.contains("FlashAttnBwd<").sum()
    assert (forward, backward) == (4, 4)
    again = deepseek.where(phase="recompute")
    assert set(again["bucket"]) == {"norm", "attention"}
    assert again.filter(pl.col("bucket") == "norm")["name"].str.contains("ln_fwd_kernel").all()


@pytest.mark.parametrize("which", ["before", "after"])
def test_sequence_parallel_exchange_of_a_diffusion_model(real_traces: Path, taxonomy: Taxonomy, which: str):
    found = labelled(real_traces / "nsys" / f"GindaChen_nsys-ai_tests.fixtures.mfu_2gpu_{which}.sqlite", taxonomy)
    moving = found.where(role="transport")
    assert set(moving.select("bucket", "kind", "backend").rows()) == {("collective", "context", "nccl")}
    assert found.buckets("^void flash::flash_fwd") == {"attention"}
    assert found.where(bucket="other").height == 0
    assert found.where(bucket="expert_gemm").height == found.where(bucket="router").height == 0


def test_vision_models_are_vision(real_traces: Path, taxonomy: Taxonomy):
    name = "AMD-AGI_TraceLens_tests.traces.h100.facebook_timesformer-base-finetuned-k400_1016002.json.gz"
    found = labelled(real_traces / "kineto" / name, taxonomy)
    assert set(found.ops.filter(pl.col("op_kind") == "kernel")["bucket"]) == {"vision_encoder"}


def test_recompute_of_an_activation_checkpoint(real_traces: Path, taxonomy: Taxonomy):
    found = labelled(real_traces / "kineto" / "AMD-AGI_TraceLens_tests.traces.mi300.resnet_act_checkpoint.json.gz", taxonomy)
    again = found.where(phase="recompute")
    assert again.height > 50
    assert set(again["bucket"]) <= {"norm", "other", "activation", "memcpy", "memset", "elementwise", "dense_gemm"}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory, taxonomy: Taxonomy) -> tuple[Labelled, Labelled]:
    packed = DEMO / "demo.sqlite.gz"
    if not packed.is_file():
        pytest.skip("the demo traces are not built")
    plain = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    return labelled(DEMO / "demo.pt.trace.json.gz", taxonomy), labelled(plain, taxonomy)


def test_the_same_run_in_both_formats_falls_into_the_same_buckets(demos: tuple[Labelled, Labelled]):
    torch, nsys = (dict(one.ops.group_by("bucket").len().rows()) for one in demos)
    for bucket in ("dispatch", "collective", "expert_gemm", "dense_gemm", "attention", "router", "norm", "activation", "loss", "embedding"):
        assert torch[bucket] == nsys[bucket], bucket
    assert "other" not in torch
    assert "other" not in nsys


def test_the_expert_exchange_is_found_with_and_without_process_groups(demos: tuple[Labelled, Labelled]):
    kinds = [dict(one.where(role="transport").group_by("kind").len().rows()) for one in demos]
    assert kinds[0] == kinds[1]
    assert {"expert", "data"} <= set(kinds[0])
    assert set(demos[0].where(kind="expert")["decided_by"]) == {"operator"}
    assert set(demos[1].where(kind="expert")["decided_by"]) == {"neighbours"}
