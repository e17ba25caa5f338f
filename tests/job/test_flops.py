"""FLOPs as Megatron counts them, against published rows (Megatron-Bridge's performance summary and model cards)."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.job import Job, flops, overridden_job, parse_job, read_job, sizes

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
QWEN_30B = read_job(JOBS / "a1_qwen3_30b_h100.yaml")
QWEN_235B = read_job(JOBS / "c_qwen3_vl_235b_gb200.yaml")
DSV3 = read_job(JOBS / "b1_deepseek_v3_gb200.yaml")
DSV3_PLAIN = read_job(JOBS / "b1_deepseek_v3_gb200.yaml", ["model.mtp_num_layers=0"])


def parts_of(job: Job, seq_length: int = 4096) -> dict[str, int]:
    return flops.per_token(flops.shape_of(job.get, nulls_are_told=True), seq_length)


def total(job: Job) -> int:
    return sum(parts_of(job).values())


@pytest.mark.parametrize(
    ("job", "expected", "parts"),
    [
        (QWEN_30B, 2.3006e10, {"mlp": 1.0872e10, "attention_linear": 5.436e9, "attention_core": 4.832e9, "logits": 1.867e9, "mtp": 0}),
        (QWEN_235B, 1.4803e11, {"mlp": 8.516e10, "attention_linear": 4.022e10, "attention_core": 1.893e10, "logits": 3.734e9, "mtp": 0}),
        (DSV3_PLAIN, 2.4981e11, {}),
        (
            DSV3,
            2.5999e11,
            {"mlp": 1.4745e11, "attention_linear": 6.960e10, "attention_core": 3.121e10, "mtp": 6.2e8, "logits": 1.112e10},
        ),
    ],
    ids=["qwen3-30b", "qwen3-235b", "dsv3", "dsv3-mtp"],
)
def test_flop_per_token_and_its_parts(job: Job, expected: float, parts: dict[str, float]) -> None:
    assert total(job) == pytest.approx(expected, rel=1e-4)
    found = parts_of(job)
    for name, value in parts.items():
        assert found[name] == pytest.approx(value, rel=6e-3 if name == "mtp" else 1e-3), name


@pytest.mark.parametrize(
    ("job", "gpus", "batch", "seconds", "published"),
    [
        (QWEN_30B, 16, 1024, 20.14729, 299.352),
        (QWEN_30B, 16, 1024, 24.7138, 244.039),
        (QWEN_30B, 16, 1024, 20.99203, 287.305),
        (QWEN_30B, 16, 1024, 30.28955, 199.12),
        (QWEN_30B, 16, 1024, 41.25, 146.2),
        (QWEN_30B, 16, 1024, 31.31, 192.6),
        (QWEN_30B, 8, 512, 6.50112, 927.68),
        (QWEN_30B, 8, 512, 5.85491, 1030.07),
        (QWEN_235B, 256, 8192, 14.92084, 1300.44),
        (QWEN_235B, 256, 8192, 17.90534, 1083.66),
        (DSV3, 1024, 16384, 61.756, 276.03),
        (DSV3, 256, 4096, 13.841, 1231.04),
        (DSV3, 256, 4096, 10.667, 1597.31),
    ],
)
def test_step_times_give_the_published_throughput(job: Job, gpus: int, batch: int, seconds: float, published: float) -> None:
    shape = flops.shape_of(job.get, nulls_are_told=True)
    step = flops.per_step(shape, 4096, batch)
    assert flops.tflops_per_gpu(step, round(seconds * 1e9), gpus) == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("job", "tokens_per_second", "published", "tolerance"),
    [
        (QWEN_235B, 8784.5, 1300.44, 1e-3),
        (DSV3, 1061.2, 276.030, 1e-3),
        (DSV3, 4734.856, 1231.04, 1e-3),
        (DSV3, 6143.635, 1597.31, 1e-3),
        (DSV3, 4912, 1276, 1e-3),
        (DSV3, 6288, 1635, 1e-3),
        (QWEN_235B, 8816, 1306, 1e-3),
        (QWEN_235B, 7280, 1077, 1e-3),
        # printed without decimals, so half a TFLOP/s is rounding; those of the 30 B model print rounded tokens as well (card: 44,773)
        (QWEN_30B, 8826, 203, 0.5 / 203),
        (QWEN_30B, 8960, 206, 0.5 / 206),
        (QWEN_30B, 9058, 208, 0.5 / 208),
        (QWEN_30B, 5113, 118, 0.5 / 118),
        (QWEN_30B, 44544, 1029, 5e-3),
        (QWEN_30B, 39936, 923, 5e-3),
        (DSV3, 3328, 864, 2e-3),
        (DSV3, 3456, 898, 1e-3),
        (DSV3, 3541, 920, 1e-3),
        (QWEN_235B, 3776, 560, 2e-3),
        (QWEN_235B, 5936, 878, 1e-3),
    ],
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


def test_a_dense_model_by_hand() -> None:
    assert tiny() == {**DENSE, "logits": 6 * 8 * 112}


def test_gated_mlp_has_three_products() -> None:
    assert tiny(gated_linear_unit="true")["mlp"] == DENSE["mlp"] * 3 // 2


def test_grouped_queries_and_an_output_gate() -> None:
    assert tiny(num_query_groups=1)["attention_linear"] == 6 * (8 * (8 + 2 * 4) + 8 * 8) * 4
    assert tiny(attention_output_gate="true")["attention_linear"] == DENSE["attention_linear"] + 6 * 8 * 8 * 4


def test_vocabulary_is_padded_to_tensor_parallel_ranks() -> None:
    assert tiny(tensor_model_parallel_size=2)["logits"] == 6 * 8 * 128
    assert flops.padded_vocab(129280, 128, 1) == 129280
    assert flops.padded_vocab(129281, 128, 8) == 130048


def test_experts_every_second_layer() -> None:
    found = tiny(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=3, moe_layer_freq=2)
    assert found["mlp"] == 6 * 8 * 2 * (2 * 16 + 2 * 2 * 3)


def test_experts_by_list_with_shared_ones_and_multi_token_prediction() -> None:
    found = tiny(
        num_moe_experts=4,
        moe_router_topk=2,
        moe_ffn_hidden_size=3,
        moe_layer_freq="'[0]*3+[1]'",
        moe_shared_expert_intermediate_size=5,
        mtp_num_layers=2,
    )
    assert found["mlp"] == 6 * 8 * 2 * (3 * 16 + 3 * (2 * 3 + 5)), "prediction layers are of the last layer's kind"
    assert found["attention_core"] == 6 * 10 * 8 * 6
    assert found["mtp"] == 6 * 2 * (3 * 8 + 2 * 64)
    assert found["logits"] == 6 * 8 * 112 * 3


def test_experts_in_a_latent_dimension() -> None:
    found = tiny(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=3, moe_latent_size=2)
    assert found["mlp"] == 6 * 4 * (2 * 3 * 2 * 2 + 2 * 8 * 2)


def test_latent_attention_without_compressed_queries() -> None:
    sizes_ = {"multi_latent_attention": "true", "kv_lora_rank": 3, "qk_head_dim": 4, "qk_pos_emb_head_dim": 2, "v_head_dim": 5}
    assert tiny(**sizes_)["attention_linear"] == 6 * 4 * (8 * 2 * 6 + 3 * (8 + 2 * 9 + 1) + 8 * 2 + 2 * 5 * 8)
    assert tiny(**sizes_)["attention_core"] == 6 * 4 * 10 * (2 * 6 + 2 * 5) // 2
    assert tiny(**sizes_, q_lora_rank=7)["attention_linear"] == 6 * 4 * (7 * (8 + 2 * 6 + 1) + 3 * (8 + 2 * 9 + 1) + 8 * 2 + 2 * 5 * 8)


# --- never a wrong number -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.experimental_attention_variant=gated_delta_net", "attention of the variant gated_delta_net has terms of its own"),
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
    ],
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
