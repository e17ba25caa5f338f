"""Sizes that follow from a job file, how they follow, and what does not fit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.job import Job, flops
from diagnose.job.derived import completed
from diagnose.job.sizes import absent_kinds, layers_of, minimum_gpus, sizes, stages_of
from tests.builders.cases import for_each
from tests.builders.jobs import overridden_job, parse_job, read_job

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
A1, B1, C = (JOBS / name for name in ("a1_qwen3_30b_h100.yaml", "b1_deepseek_v3_gb200.yaml", "c_qwen3_vl_235b_gb200.yaml"))


def values(path: Path, *overrides: str, world_size: int | None = None) -> dict[str, object]:
    return {one.name: one.value for one in sizes(read_job(path, overrides), world_size=world_size).derived}


def problems(path: Path, *overrides: str, world_size: int | None = None) -> list[str]:
    return [f"{one.id}: {one.text}" for one in sizes(read_job(path, overrides), world_size=world_size).problems]


@for_each(
    "path, expected",
    (A1, (16, 16, 1, "TP 1 × CP 1 × DP 16 × PP 1", "ETP 1 × EP 16 × EDP 1 × PP 1", 16, 64, 4194304)),
    (B1, (256, 64, 1, "TP 1 × CP 1 × DP 64 × PP 4", "ETP 1 × EP 64 × EDP 1 × PP 4", 256, 64, 16777216)),
    (C, (64, 8, 1, "TP 1 × CP 1 × DP 8 × PP 8", "ETP 1 × EP 8 × EDP 1 × PP 8", 64, 64, 4194304)),
)
def test_the_example_jobs(path: Path, expected: tuple[object, ...]) -> None:
    found = values(path)
    names = ("world_size", "data_parallel_size", "expert_data_parallel_size", "attention_mesh", "expert_mesh", "minimum_gpus")
    assert tuple(found[name] for name in (*names, "num_microbatches", "tokens_per_step")) == expected
    assert problems(path) == []


def test_a_pipeline_layout_tells_its_stages_and_its_layers() -> None:
    job = parse_job("model: {pipeline_model_parallel_layout: 'Et*3|(tt|)*29m|L', pipeline_model_parallel_size: 16}\n")
    assert [job.get(f"pipeline_layout_{one}") for one in ("stages", "layers", "mtp_layers")] == [32, 61, 1]


def test_each_size_says_how_it_follows_and_rules_see_it() -> None:
    found = {one.name: one.from_ for one in sizes(read_job(A1)).derived}
    assert (found["world_size"], found["data_parallel_size"]) == ("world_size", "world 16 / (TP 1 × CP 1 × PP 1)")
    assert found["num_microbatches"] == "GBS 1024 / (MBS 1 × DP 16)"
    told = {one.name: one.from_ for one in sizes(read_job(C)).derived}
    assert "frozen parts are counted as if they were trained (freeze_language_model, freeze_vision_model)" in told["flop_per_token"]
    assert "the vision tower is not in it" in told["flop_per_token"]
    columns = read_job(B1).columns()
    assert (columns["job_data_parallel_size"], columns["job_expert_data_parallel_size"], columns["job_num_microbatches"]) == (64, 1, 64)


def test_a_model_without_experts_has_no_sizes_of_them() -> None:
    found = {one.name for one in sizes(parse_job("model: {num_layers: 2}\nworld_size: 8\n")).derived}
    assert ("data_parallel_size" in found, "expert_data_parallel_size" in found) == (True, False)


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


@for_each(
    "overrides, said",
    (("world_size=24",), "expert-mesh: world_size 24 is not divisible by the expert mesh's ETP 1 × EP 16 × PP 1 = 16."),
    (("world_size=8",), "minimum-gpus: world_size 8 is below the fewest ranks that both meshes fit on, 16."),
    (
        ("world_size=32", "model.context_parallel_size=3"),
        "attention-mesh: world_size 32 is not divisible by the attention mesh's TP 1 × CP 3 × PP 1 = 3.",
    ),
    (("train.global_batch_size=1000",), "batch: global_batch_size 1000 is not divisible by MBS 1 × DP 16 = 16."),
    (("train.global_batch_size=8",), "batch: global_batch_size 8 is below MBS 1 × DP 16 = 16: some ranks would have nothing to do."),
    (("model.context_parallel_size=2", "seq_length=4098"), "sequence: seq_length 4098 is not divisible by 2 × CP 2 = 4."),
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


@for_each(
    "mesh, expected",
    # Megatron-Bridge, parallelism strategies: not the product of all sizes
    ({"pp": 2, "tp": 2, "cp": 1, "ep": 8, "etp": 1}, 16),
    ({"pp": 1, "tp": 2, "cp": 4, "ep": 8, "etp": 1}, 8),
    ({"pp": 1, "tp": 1, "cp": 1, "ep": 4, "etp": 2}, 8),
    ({"pp": 1, "tp": 2, "cp": 1, "ep": 3, "etp": 1}, 6),
)
def test_fewest_gpus(mesh: dict[str, int], expected: int) -> None:
    assert minimum_gpus(**mesh) == expected


@given(st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 8])] * 5), st.integers(1, 6))
def test_both_meshes_multiply_to_the_world(mesh: tuple[int, ...], times: int) -> None:
    tp, cp, pp, ep, etp = mesh
    world = minimum_gpus(tp=tp, cp=cp, pp=pp, ep=ep, etp=etp) * times
    kinds = ("tensor_model", "context", "pipeline_model", "expert_model", "expert_tensor")
    told = [f"model.{kind}_parallel_size={value}" for kind, value in zip(kinds, mesh, strict=True)]
    job = overridden_job([f"world_size={world}", *told])
    dp, edp = job.get("data_parallel_size"), job.get("expert_data_parallel_size")
    assert isinstance(dp, int)
    assert isinstance(edp, int)
    assert tp * cp * dp * pp == world == etp * ep * edp * pp
    assert [one.id for one in sizes(job).problems] == []


@for_each(
    "layout, stages, layers", ("Et*3|(tt|)*29m|L", 32, 61), ("Et*2|(tt|)*5t|tmL", 8, 14), ("Ett|tt|ttL", 3, 6), ("E t, t | t L", 2, 3)
)
def test_layouts(layout: str, stages: int, layers: int) -> None:
    found = stages_of(layout)
    assert found is not None
    assert (len(found), layers_of(found)) == (stages, layers)


@for_each("layout", "", "[[embedding]]", "t*999999999", "(t*999999|)*999999", "Ex|L")
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


# -------------------- FLOPs as Megatron counts them, against published rows (Megatron-Bridge's performance summary and model cards)

QWEN_30B = read_job(JOBS / "a1_qwen3_30b_h100.yaml")
QWEN_235B = read_job(JOBS / "c_qwen3_vl_235b_gb200.yaml")
DSV3 = read_job(JOBS / "b1_deepseek_v3_gb200.yaml")
DSV3_PLAIN = read_job(JOBS / "b1_deepseek_v3_gb200.yaml", ["model.mtp_num_layers=0"])


def parts_of(job: Job, seq_length: int = 4096) -> dict[str, int]:
    return flops.per_token(flops.shape_of(job.get, nulls_are_told=True), seq_length)


def total(job: Job) -> int:
    return sum(parts_of(job).values())


@for_each(
    "job, expected, parts",
    (QWEN_30B, 2.3006e10, {"mlp": 1.0872e10, "attention_linear": 5.436e9, "attention_core": 4.832e9, "logits": 1.867e9, "mtp": 0}),
    (QWEN_235B, 1.4803e11, {"mlp": 8.516e10, "attention_linear": 4.022e10, "attention_core": 1.893e10, "logits": 3.734e9, "mtp": 0}),
    (DSV3_PLAIN, 2.4981e11, {}),
    (DSV3, 2.5999e11, {"mlp": 1.4745e11, "attention_linear": 6.960e10, "attention_core": 3.121e10, "mtp": 6.2e8, "logits": 1.112e10}),
)
def test_flop_per_token_and_its_parts(job: Job, expected: float, parts: dict[str, float]) -> None:
    assert total(job) == pytest.approx(expected, rel=1e-4)
    found = parts_of(job)
    for name, value in parts.items():
        assert found[name] == pytest.approx(value, rel=6e-3 if name == "mtp" else 1e-3), name


@for_each(
    "job, tokens_per_second, published, tolerance",
    (QWEN_235B, 8784.5, 1300.44, 1e-3),
    (QWEN_235B, 8816, 1306, 1e-3),
    (DSV3, 1061.2, 276.030, 1e-3),
    (DSV3, 6143.635, 1597.31, 1e-3),
    # printed without decimals, so half a TFLOP/s is rounding
    (QWEN_30B, 9058, 208, 0.5 / 208),
    (QWEN_30B, 1024 * 4096 / 20.14729 / 16, 299.352, 1e-3),  # told as the time of a step
)
def test_tokens_per_second_give_the_published_throughput(job: Job, tokens_per_second: float, published: float, tolerance: float) -> None:
    assert total(job) * tokens_per_second / 1e12 == pytest.approx(published, rel=tolerance)


# --- terms that the published rows do not tell apart, by hand -----------------------------------------------------------

TINY = """
model:
  num_layers: 4
  hidden_size: 8
  ffn_hidden_size: 16
  num_attention_heads: 2
  kv_channels: 4
  vocab_size: 100
  make_vocab_size_divisible_by: 16
  gated_linear_unit: false
  seq_length: 10
"""
DENSE = {"mlp": 6 * 8 * 16 * 2 * 4, "attention_linear": 6 * (8 * 8 * 3 + 8 * 8) * 4, "attention_core": 6 * 10 * 8 * 4, "mtp": 0}


def tiny(**more: object) -> dict[str, int]:
    job = parse_job(TINY, overrides=[f"model.{name}={value}" for name, value in more.items()])
    return parts_of(job, 10)


def test_a_dense_model_by_hand_with_gated_mlp_grouped_queries_and_a_padded_vocabulary() -> None:
    assert tiny() == {**DENSE, "logits": 6 * 8 * 112}
    assert tiny(gated_linear_unit="true")["mlp"] == DENSE["mlp"] * 3 // 2
    assert tiny(num_query_groups=1)["attention_linear"] == 6 * (8 * (8 + 2 * 4) + 8 * 8) * 4
    assert tiny(attention_output_gate="true")["attention_linear"] == DENSE["attention_linear"] + 6 * 8 * 8 * 4
    assert tiny(tensor_model_parallel_size=2)["logits"] == 6 * 8 * 128
    assert flops.padded_vocab(129280, 128, 1) == 129280
    assert flops.padded_vocab(129281, 128, 8) == 130048


def test_experts_by_hand() -> None:
    found = tiny(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=3, moe_layer_freq=2)
    assert found["mlp"] == 6 * 8 * 2 * (2 * 16 + 2 * 2 * 3)
    found = tiny(
        num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=3, moe_layer_freq="'[0]*3+[1]'", moe_shared_expert_intermediate_size=5,
        mtp_num_layers=2,
    )  # fmt: skip
    assert found["mlp"] == 6 * 8 * 2 * (3 * 16 + 3 * (2 * 3 + 5)), "prediction layers are of the last layer's kind"
    assert (found["attention_core"], found["mtp"]) == (6 * 10 * 8 * 6, 6 * 2 * (3 * 8 + 2 * 64))
    assert found["logits"] == 6 * 8 * 112 * 3
    found = tiny(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=3, moe_latent_size=2)
    assert found["mlp"] == 6 * 4 * (2 * 3 * 2 * 2 + 2 * 8 * 2)


def test_latent_attention_without_compressed_queries() -> None:
    sizes_ = {"multi_latent_attention": "true", "kv_lora_rank": 3, "qk_head_dim": 4, "qk_pos_emb_head_dim": 2, "v_head_dim": 5}
    assert tiny(**sizes_)["attention_linear"] == 6 * 4 * (8 * 2 * 6 + 3 * (8 + 2 * 9 + 1) + 8 * 2 + 2 * 5 * 8)
    assert tiny(**sizes_)["attention_core"] == 6 * 4 * 10 * (2 * 6 + 2 * 5) // 2
    assert tiny(**sizes_, q_lora_rank=7)["attention_linear"] == 6 * 4 * (7 * (8 + 2 * 6 + 1) + 3 * (8 + 2 * 9 + 1) + 8 * 2 + 2 * 5 * 8)


DELTA = {
    "experimental_attention_variant": "gated_delta_net", "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3,
    "linear_value_head_dim": 5, "linear_conv_kernel_dim": 4,
}  # fmt: skip


@for_each(
    "settings, delta, attention",
    ({"linear_attention_freq": 2}, 2, 2),
    ({"linear_attention_freq": "[1,1,1,0]"}, 3, 1),
    ({"linear_attention_freq": "[1,0,0,1]", "mtp_num_layers": 2}, 4, 2),
    ({"linear_attention_freq": 4, "mtp_num_layers": 2}, 3, 3),
)
def test_gated_delta_nets_take_attention_s_place_in_their_layers(settings: dict[str, object], delta: int, attention: int) -> None:
    """In multi-token prediction the last layer's kind is repeated, as Megatron-Bridge counts."""
    projections = 8 * (2 * 6 + 2 * 20 + 2 * 4 + 20)
    each = projections + 4 * (2 * 6 + 20) + 4 * 4 * 5**2
    plain = tiny()
    found = tiny(**DELTA, **settings)
    assert found["attention_linear"] == 6 * each * delta + plain["attention_linear"] // 4 * attention
    assert found["attention_core"] == plain["attention_core"] // 4 * attention
    second = tiny(**{**DELTA, "experimental_attention_variant": "gdn2"}, **settings)
    assert second["attention_linear"] - found["attention_linear"] == 6 * 8 * (2 * 6 + 20 - 2 * 4) * delta


@for_each(
    "frequency, said",
    (0, "linear_attention_freq is 0"),
    ("[1,0]", "linear_attention_freq lists 2 layers"),
    (None, "linear_attention_freq is not known"),
)
def test_layers_of_delta_nets_that_do_not_fit_are_not_counted(frequency: object, said: str) -> None:
    with pytest.raises(flops.NotCountedError, match=said):
        tiny(**DELTA, **({} if frequency is None else {"linear_attention_freq": frequency}))


# --- never a wrong number -----------------------------------------------------------------------------------------------


@for_each(
    "override, said",
    ("model.experimental_attention_variant=dsa", "attention of the variant dsa has terms of its own"),
    ("model.experimental_attention_variant=gated_delta_net", "linear_num_key_heads is not known"),
    ("model.kimi_kda_layers=[1,2]", "Kimi Delta Attention has terms of its own"),
    ("model.is_hybrid_model=true", "a hybrid model's Mamba"),
    ("model.hybrid_layer_pattern='M-M*'", "a hybrid model's Mamba"),
    ("model.window_size=[128,0]", "sliding-window attention has a term of its own"),
    ("dataset.enable_in_batch_packing=true", "sequences are packed"),
    ("model.moe_layer_freq=[0,1]", "moe_layer_freq lists 2 layers, num_layers says 48"),
    ("model.moe_layer_freq=0", "moe_layer_freq is 0"),
    ("~model.vocab_size", "vocab_size is not known"),
    ("~model.seq_length", ""),
    ("~model.num_moe_experts", "num_moe_experts is not known"),
    ("model.hidden_size=0", "hidden_size is 0"),
    ("model.num_layers=-1", "num_layers is -1"),
    ("model.num_layers=9000000000", "num_layers is 9000000000"),
)
def test_what_can_not_be_counted_is_null_with_its_reason(override: str, said: str) -> None:
    found = {one.name: one for one in sizes(read_job(JOBS / "a1_qwen3_30b_h100.yaml", [override])).derived}
    if not said:
        assert found["flop_per_token"].value == 23006281728, "the data set tells the length as well"
        return
    assert (found["flop_per_token"].value, found["flop_per_step"].value) == (None, None)
    assert said in found["flop_per_token"].from_


def test_a_recipe_alone_is_never_counted() -> None:
    job = overridden_job(["model.num_layers=2", "model.hidden_size=8", "model.num_attention_heads=2", "model.vocab_size=100"])
    found = {one.name: one for one in sizes(job).derived}
    assert found["flop_per_token"].value is None


def test_megatron_heeds_key_value_heads_only_with_their_flag() -> None:
    flags = "--num-layers 2\n--hidden-size 8\n--ffn-hidden-size 16\n--num-attention-heads 4\n--num-query-groups 1\n--vocab-size 128\n"
    flags += "--seq-length 4\n"
    alone, grouped = parse_job(flags), parse_job(flags + "--group-query-attention\n")
    assert parts_of(alone)["attention_linear"] == 6 * 2 * (8 * 24 + 64)
    assert parts_of(grouped)["attention_linear"] == 6 * 2 * (8 * 12 + 64)


def test_a_parallel_size_of_one_rules_its_exchanges_out() -> None:
    assert absent_kinds(read_job(A1)) == {"tensor", "pipeline", "context"}
    assert absent_kinds(read_job(B1)) == {"tensor", "context"}


def test_zero_has_no_other_purpose_for_the_group_of_all_ranks() -> None:
    zero = [parse_job(f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {stage}}}}}') for stage in range(4)]
    assert ["other" in absent_kinds(one) for one in zero] == [False, True, True, True]


def test_without_a_vocabulary_the_count_has_a_lower_end() -> None:
    whole, less = values(A1), values(A1, "~model.vocab_size")
    assert "flop_per_step_at_least" not in whole
    assert less["flop_per_step"] is None
    least, count = less["flop_per_step_at_least"], whole["flop_per_step"]
    assert isinstance(least, float)
    assert isinstance(count, float)
    assert 0.7 * count < least < count
