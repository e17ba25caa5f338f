"""Sizes that follow from a job file, how they follow, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.job import completed, overridden_job, parse_job, read_job, sizes
from diagnose.job.sizes import layers_of, minimum_gpus, stages_of

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
A1, B1, C = (JOBS / name for name in ("a1_qwen3_30b_h100.yaml", "b1_deepseek_v3_gb200.yaml", "c_qwen3_vl_235b_gb200.yaml"))


def values(path: Path, *overrides: str, world_size: int | None = None) -> dict[str, object]:
    return {one.name: one.value for one in sizes(read_job(path, overrides), world_size=world_size).derived}


def problems(path: Path, *overrides: str, world_size: int | None = None) -> list[str]:
    return [f"{one.id}: {one.text}" for one in sizes(read_job(path, overrides), world_size=world_size).problems]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (A1, (16, 16, 1, "TP 1 × CP 1 × DP 16 × PP 1", "ETP 1 × EP 16 × EDP 1 × PP 1", 16, 64, 4194304)),
        (B1, (256, 64, 1, "TP 1 × CP 1 × DP 64 × PP 4", "ETP 1 × EP 64 × EDP 1 × PP 4", 256, 64, 16777216)),
        (C, (64, 8, 1, "TP 1 × CP 1 × DP 8 × PP 8", "ETP 1 × EP 8 × EDP 1 × PP 8", 64, 64, 4194304)),
    ],
    ids=["A1", "B1", "C"],
)
def test_the_example_jobs(path: Path, expected: tuple[object, ...]) -> None:
    found = values(path)
    names = ("world_size", "data_parallel_size", "expert_data_parallel_size", "attention_mesh", "expert_mesh", "minimum_gpus")
    assert tuple(found[name] for name in (*names, "num_microbatches", "tokens_per_step")) == expected
    assert problems(path) == []


def test_each_size_says_how_it_follows() -> None:
    found = {one.name: one.from_ for one in sizes(read_job(A1)).derived}
    assert found["world_size"] == "world_size"
    assert found["data_parallel_size"] == "world 16 / (TP 1 × CP 1 × PP 1)"
    assert found["num_microbatches"] == "GBS 1024 / (MBS 1 × DP 16)"
    told = {one.name: one.from_ for one in sizes(read_job(C)).derived}
    assert "frozen parts are counted as if they were trained (freeze_language_model, freeze_vision_model)" in told["flop_per_token"]
    assert "the vision tower is not in it" in told["flop_per_token"]


def test_rules_see_the_sizes() -> None:
    columns = read_job(B1).columns()
    assert (columns["job_data_parallel_size"], columns["job_expert_data_parallel_size"], columns["job_num_microbatches"]) == (64, 1, 64)


def test_the_trace_tells_the_world_size_where_the_file_does_not() -> None:
    job = read_job(A1, ["~world_size"])
    assert job.get("data_parallel_size") is None
    whole = completed(job, world_size=32)
    assert (whole.get("world_size"), whole.get("data_parallel_size"), whole.get("expert_data_parallel_size")) == (32, 32, 2)
    assert whole.settings["world_size"].source == "trace"
    assert "world_size" not in {row.name for row in whole.read().settings}, "it was not read from the job file"
    assert completed(read_job(A1), world_size=32).get("world_size") == 16, "the job file goes before the trace"
    assert values(A1, "~world_size", world_size=32)["attention_mesh"] == "TP 1 × CP 1 × DP 32 × PP 1"


def test_what_is_unknown_is_null_and_says_what_it_needs() -> None:
    found = {one.name: one for one in sizes(read_job(A1, ["~world_size"])).derived}
    assert (found["world_size"].value, found["data_parallel_size"].value) == (None, None)
    assert found["data_parallel_size"].from_ == "not known: needs world_size"
    assert sizes(read_job(A1, ["~world_size"])).problems == ()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("world_size=24",), "expert-mesh: world_size 24 is not divisible by the expert mesh's ETP 1 × EP 16 × PP 1 = 16."),
        (("world_size=8",), "minimum-gpus: world_size 8 is below the fewest ranks that both meshes fit on, 16."),
        (
            ("world_size=32", "model.context_parallel_size=3"),
            "attention-mesh: world_size 32 is not divisible by the attention mesh's TP 1 × CP 3 × PP 1 = 3.",
        ),
        (("train.global_batch_size=1000",), "batch: global_batch_size 1000 is not divisible by MBS 1 × DP 16 = 16."),
        (("train.global_batch_size=8",), "batch: global_batch_size 8 is below MBS 1 × DP 16 = 16: some ranks would have nothing to do."),
        (
            ("model.context_parallel_size=2", "seq_length=4098"),
            "sequence: seq_length 4098 is not divisible by 2 × CP 2 = 4.",
        ),
        (("model.num_moe_experts=100",), "experts: num_moe_experts 100 is not divisible by EP 16."),
        (("model.tensor_model_parallel_size=3",), "heads: num_attention_heads 32 is not divisible by TP 3."),
        (("model.pipeline_model_parallel_size=5",), "layers: num_layers 48 can't be cut evenly over 5 of PP 5 stages."),
        (
            ("model.pipeline_model_parallel_size=4", "model.virtual_pipeline_model_parallel_size=5"),
            "layers: a stage's 12 layers are not divisible by VPP 5.",
        ),
        (("model.moe_layer_freq=[1,1]",), "moe-layers: moe_layer_freq lists 2 layers, num_layers says 48."),
        (("model.expert_model_parallel_size=0",), "not-positive: expert_model_parallel_size is 0, but must be at least 1."),
        (("train.micro_batch_size=-2",), "not-positive: micro_batch_size is -2, but must be at least 1."),
    ],
)
def test_what_does_not_fit_is_said(overrides: tuple[str, ...], said: str) -> None:
    assert said in problems(A1, *overrides)


def test_stages_of_their_own_size_and_layouts() -> None:
    assert problems(C, "model.num_layers_in_first_pipeline_stage=11") == [
        "layers: num_layers 94 − 11 − 12 can't be cut evenly over 6 of PP 8 stages."
    ]
    assert problems(B1, "model.num_layers=62", "~model.moe_layer_freq") == [
        "layout: pipeline_model_parallel_layout places 61 layers, num_layers says 62."
    ]
    assert "layout: pipeline_model_parallel_layout has 16 stages, but PP 4 × VPP 2 makes 8." in problems(
        B1, "model.virtual_pipeline_model_parallel_size=2"
    )
    assert problems(A1, "model.pipeline_model_parallel_size=2", "++model.account_for_embedding_in_pipeline_split=true") == [
        "minimum-gpus: world_size 16 is below the fewest ranks that both meshes fit on, 32.",
        "expert-mesh: world_size 16 is not divisible by the expert mesh's ETP 1 × EP 16 × PP 2 = 32.",
        "layers: num_layers 48 + 1 can't be cut evenly over 2 of PP 2 stages.",
    ]


def test_two_world_sizes_are_said() -> None:
    assert problems(A1, world_size=32) == ["world-size: the job file says 16 ranks, the trace 32: they may belong to different runs."]


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [  # Megatron-Bridge, parallelism strategies: not the product of all sizes
        ({"pp": 2, "tp": 2, "cp": 1, "ep": 8, "etp": 1}, 16),
        ({"pp": 1, "tp": 2, "cp": 4, "ep": 8, "etp": 1}, 8),
        ({"pp": 1, "tp": 1, "cp": 1, "ep": 4, "etp": 2}, 8),
        ({"pp": 1, "tp": 2, "cp": 1, "ep": 3, "etp": 1}, 6),
    ],
)
def test_fewest_gpus(mesh: dict[str, int], expected: int) -> None:
    assert minimum_gpus(**mesh) == expected


@given(st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 8])] * 5), st.integers(1, 6))
def test_both_meshes_multiply_to_the_world(mesh: tuple[int, ...], times: int) -> None:
    tp, cp, pp, ep, etp = mesh
    world = minimum_gpus(tp=tp, cp=cp, pp=pp, ep=ep, etp=etp) * times
    job = overridden_job(
        [
            f"world_size={world}",
            *[
                f"model.{name}={value}"
                for name, value in zip(
                    (
                        "tensor_model_parallel_size",
                        "context_parallel_size",
                        "pipeline_model_parallel_size",
                        "expert_model_parallel_size",
                        "expert_tensor_parallel_size",
                    ),
                    mesh,
                    strict=True,
                )
            ],
        ]
    )
    dp, edp = job.get("data_parallel_size"), job.get("expert_data_parallel_size")
    assert isinstance(dp, int)
    assert isinstance(edp, int)
    assert tp * cp * dp * pp == world == etp * ep * edp * pp
    assert [one.id for one in sizes(job).problems] == []


@pytest.mark.parametrize(
    ("layout", "stages", "layers"),
    [
        ("Et*3|(tt|)*29m|L", 32, 61),
        ("Et*2|(tt|)*5t|tmL", 8, 14),
        ("Ett|tt|ttL", 3, 6),
        ("E t, t | t L", 2, 3),
    ],
)
def test_layouts(layout: str, stages: int, layers: int) -> None:
    found = stages_of(layout)
    assert found is not None
    assert (len(found), layers_of(found)) == (stages, layers)


@pytest.mark.parametrize("layout", ["", "[[embedding]]", "t*999999999", "(t*999999|)*999999", "Ex|L"])
def test_what_is_no_layout(layout: str) -> None:
    assert stages_of(layout) is None


def test_numbers_beyond_64_bits_are_not_wrapped_around() -> None:
    big = 2**62
    job = parse_job(
        f"world_size: 16\ntensor_model_parallel_size: {big}\ncontext_parallel_size: {big}\nglobal_batch_size: {big}\nseq_length: {big}\n"
    )
    assert job.get("data_parallel_size") is None
    found = {one.name: one.value for one in sizes(job).derived}
    assert found["data_parallel_size"] is None
    assert found["tokens_per_step"] == float(big) * float(big)
