"""What torchtitan saves and prints: JSON, its log, and the objects that its configuration manager shows.

The fields are those of torchtitan@b5bcd76, whose own `to_dict` and `get_nparams_and_flops` were run on 16B and 8B for these tests.
"""

import copy
import json
from typing import Any

import pytest

from diagnose.errors import JobFileError
from diagnose.job import Job
from diagnose.job.sizes import sizes
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job

ATTENTION = {
    "n_heads": 16, "q_lora_rank": 0, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip


def mlp(size: int) -> dict[str, object]:
    return {"w1": {"in_features": 2048, "out_features": size}, "w2": {"in_features": size}, "w3": {"out_features": size}}


EXPERTS = {
    "num_experts": 64,
    "routed_experts": {
        "inner_experts": {"param_init": {"w1_EFD": "<function a>", "w3_EFD": "<function a>"}, "dim": 2048, "hidden_dim": 1408},
        "token_dispatcher": {"num_experts": 64, "top_k": 6},
    },
    "router": {"top_k": 6},
    "shared_experts": mlp(2816),
}
DENSE = {"attention": ATTENTION, "feed_forward": mlp(10944), "moe": None}
SPARSE = {"attention": ATTENTION, "feed_forward": None, "moe": EXPERTS}
SAVED: dict[str, Any] = {
    "model_spec": {
        "name": "deepseek_v3",
        "flavor": "16B",
        "model": {"param_init": None, "dim": 2048, "vocab_size": 102400, "layers": [DENSE, *[SPARSE] * 26], "mtp_layers": []},
    },
    "optimizer": {"param_groups": [{"pattern": ".*", "optimizer_name": "AdamW"}], "implementation": "fused"},
    "training": {
        "num_tokens_per_microbatch_per_dp_rank": 16384,
        "num_tokens_per_train_step": -1,
        "max_context_length": 4096,
        "mixed_precision_param": "bfloat16",
    },
    "parallelism": {
        "data_parallel_shard_degree": -1,
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 1,
        "num_pp_microbatches": 4,
        "context_parallel_degree": 1,
        "expert_parallel_degree": 8,
    },
    "activation_checkpoint": {"preserve_rng_state": True, "force_recompute_mm_shapes_by_fqns": ["moe.router.gate"]},
}
SIZES = {
    "num_layers": 27, "hidden_size": 2048, "ffn_hidden_size": 10944, "num_attention_heads": 16, "vocab_size": 102400, "padded_vocab_size": 102400,
    "gated_linear_unit": True, "mtp_num_layers": 0, "multi_latent_attention": True, "q_lora_rank": 0, "kv_lora_rank": 512, "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "num_moe_experts": 64, "moe_router_topk": 6, "moe_ffn_hidden_size": 1408,
    "moe_shared_expert_intermediate_size": 2816, "moe_layer_freq": ("0", *["1"] * 26), "moe_token_dispatcher_type": "alltoall",
    "optimizer": "adam", "recompute_granularity": "selective", "tensor_model_parallel_size": 2, "expert_model_parallel_size": 8,
    "micro_batch_size": 4, "seq_length": 4096, "num_microbatches": 1, "model_flavor": "16B",
}  # fmt: skip


def read(job: Job, names: Any) -> dict[str, object]:
    return {name: job.get(name) for name in names}


def changed(path: str, value: object) -> dict[str, Any]:
    """The configuration with one value of every layer of its model changed."""
    saved = copy.deepcopy(SAVED)
    *keys, last = path.split(".")
    for layer in saved["model_spec"]["model"]["layers"]:
        node: Any = layer
        for key in keys:
            node = node[key] if node is not None else None
        if node is not None:
            node[last] = value
    return saved


def logged(text: str, rank: str = "[rank0]:") -> str:
    before = f"{rank}[titan] 2026-08-21 21:30:20,003 - root - INFO - "
    lines = f"{before}Starting job\n{before}Running with configs: {text}\n{before}Building 1-D device mesh with ['fsdp'], [8]".split("\n")
    return "".join(f"{line}\n" if line.startswith(rank) else f"{rank}{line}\n" for line in lines)


def as_objects(value: object, name: str = "Config") -> str:
    """The same as Python or rich shows objects; functions of initialisation have no value of their own."""
    if isinstance(value, dict):
        fields = [f"{key}={as_objects(one, key.capitalize() + 'Config')}" for key, one in value.items()]
        return f"{name}(\n" + ",\n".join(fields) + "\n)"
    if isinstance(value, list):
        return "[" + ", ".join(as_objects(one) for one in value) + "]"
    return (
        "functools.partial(<function init.<locals>.trunc_normal_ at \n0x7f2836161940>, std=0.02)"
        if value == "<function a>"
        else repr(value)
    )


@for_each(
    "text",
    json.dumps(SAVED, indent=2),
    logged(json.dumps(SAVED, indent=2)),
    logged(json.dumps(SAVED, indent=2), rank="3: [rank3]:"),
    logged(json.dumps({**SAVED, "activation_checkpoint": None}, indent=2)) + logged(json.dumps(SAVED, indent=2)),  # the last one ran
    logged("{}").replace("configs: {}", f"args: {SAVED!r}"),
    "Failed to load something\n" + as_objects(SAVED),
    "[titan] 2026-08-21 21:30:20,003 - root - INFO - " + as_objects(SAVED, "Trainer.Config") + "\nrich is not installed",
)
def test_a_configuration_is_read_as_it_is_saved_or_printed(text: str) -> None:
    job = parse_job(text)
    assert (job.format, job.unknown) == ("torchtitan", ())
    assert read(job, SIZES) == SIZES
    assert job.get("fp8") is None
    assert any("FP8" in note for note in job.notes)
    assert parse_job(text, overrides=["parallelism.tensor_parallel_degree=4"]).get("tensor_model_parallel_size") == 4


def test_lines_are_those_of_the_log() -> None:
    text = logged(json.dumps(SAVED, indent=2))
    line = 1 + next(place for place, line in enumerate(text.split("\n")) if "tensor_parallel_degree" in line)
    assert parse_job(text).settings["tensor_model_parallel_size"].line == line


@for_each("text", logged(json.dumps(SAVED, indent=2))[:2000], "Config(\n    model_spec=ModelSpec(\n", "Config(\n training=Config(a=b c))")
def test_a_configuration_that_is_cut_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(JobFileError, match=r"holds a configuration in line [12] that can't be read"):
        parse_job(text)


@for_each("text", "Config(\n    training=TrainingConfig(steps=1)\n)", "Config(\n)", "[titan] x - INFO - Running with configs: {}")
def test_what_another_program_prints_is_no_configuration_of_torchtitan(text: str) -> None:
    with pytest.raises(JobFileError, match="in no format that is known"):
        parse_job(text)


def test_floating_point_operations_are_torchtitan_s_but_for_the_masked_half_of_attention() -> None:
    derived: Any = {one.name: one.value for one in sizes(parse_job(json.dumps(SAVED)), world_size=16).derived}
    attention = 27 * 16 * (192 + 128) * 3 * 4096  # torchtitan counts positions that the causal mask leaves out
    router_and_norms = 6 * 26 * 64 * 2048
    assert derived["flop_per_token"] == pytest.approx(18_105_996_288 - attention - router_and_norms, rel=1e-4)
    assert derived["tokens_per_step"] == 16384 * 8
    assert derived["flop_per_step"] == pytest.approx(derived["flop_per_token"] * 16384 * 8)


def test_micro_batches_of_a_pipeline_are_worked_off_by_each_rank() -> None:
    pipelined = {**SAVED, "parallelism": {**SAVED["parallelism"], "pipeline_parallel_degree": 2}}
    assert parse_job(json.dumps(pipelined)).get("num_microbatches") == 4
    told = {**pipelined, "training": {**SAVED["training"], "num_tokens_per_train_step": 4096 * 64}}
    assert read(parse_job(json.dumps(told)), ("global_batch_size", "gradient_accumulation_steps")) == {
        "global_batch_size": 64,
        "gradient_accumulation_steps": None,
    }


DISPATCHER = {"num_experts": 64, "top_k": 6}


@for_each(
    "dispatcher, kind, backend",
    ({**DISPATCHER, "pad_multiple": 32}, "alltoall", None),
    ({**DISPATCHER, "non_blocking_capacity_factor": 1.0, "pad_multiple": None, "hidden_dim": 2048}, "flex", "hybridep"),
    ({**DISPATCHER, "cudagraphable": False, "hidden_dim": 2048}, "flex", "deepep"),
    ({**DISPATCHER, "dtype": None, "device": None, "hidden_dim": None}, "flex", "minimal_async_ep"),
    ({**DISPATCHER, "of_a_later_version": 1}, None, None),
)
def test_a_dispatcher_is_known_by_the_fields_of_its_class(dispatcher: object, kind: object, backend: object) -> None:
    job = parse_job(json.dumps(changed("moe.routed_experts.token_dispatcher", dispatcher)))
    assert read(job, ("moe_token_dispatcher_type", "moe_flex_dispatcher_backend")) == {
        "moe_token_dispatcher_type": kind,
        "moe_flex_dispatcher_backend": backend,
    }


def test_layers_that_differ_and_windows_are_not_taken_for_one() -> None:
    mixed = copy.deepcopy(SAVED)
    mixed["model_spec"]["model"]["layers"][3]["attention"] = {"n_heads": 8}
    assert read(parse_job(json.dumps(mixed)), ("num_attention_heads", "kv_lora_rank", "num_layers")) == {
        "num_attention_heads": None,
        "kv_lora_rank": None,
        "num_layers": 27,
    }
    assert parse_job(json.dumps(changed("attention.sliding_window_size", 128))).get("window_size") == ("128",)


def test_an_optimizer_is_told_where_all_parameters_have_the_same() -> None:
    groups = [{"pattern": "experts", "optimizer_name": "DistMuon"}, {"pattern": ".*", "optimizer_name": "AdamW"}]
    assert parse_job(json.dumps({**SAVED, "optimizer": {"param_groups": groups[:1]}})).get("optimizer") == "other"
    assert parse_job(json.dumps({**SAVED, "optimizer": {"param_groups": groups}})).settings.get("optimizer") is None
