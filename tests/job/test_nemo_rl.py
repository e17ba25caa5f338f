"""Jobs of NeMo RL: a policy on DTensor is read, and told what to change, in NeMo RL's own keys; one on Megatron in Megatron-Bridge's."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from diagnose.cli import cli
from diagnose.errors import JobFileError
from tests.builders import yaml_text
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read, read_job

BASE = """
grpo: {num_prompts_per_step: 64}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 512
  train_micro_batch_size: 4
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 4096
  max_grad_norm: 1.0
  precision: bfloat16
  dtensor_cfg:
    _v2: true
    enabled: true
    cpu_offload: false
    sequence_parallel: false
    activation_checkpointing: true
    tensor_parallel_size: 2
    context_parallel_size: 1
    lora_cfg: {enabled: false}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 8, activation_checkpointing: false, optimizer: {optimizer_cpu_offload: true}}
  dynamic_batching: {enabled: false, train_mb_tokens: 1024}
  sequence_packing: {enabled: false}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 5.0e-6}}
  generation: {colocated: {enabled: true}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""


def with_changes(**changes: object) -> str:
    """The configuration with other values under dotted keys, whose dots are written as two underscores; None takes a key away."""
    data = yaml_text.load(BASE)
    for key, value in changes.items():
        *sections, last = key.split("__")
        node = data
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
        if value is None:
            del node[last]
    return yaml_text.dump(data)


def test_a_policy_on_dtensor_is_read_in_nemo_rl_s_own_keys() -> None:
    job = parse_job(BASE)
    assert (job.format, job.unknown, job.misspelt) == ("nemo-rl", (), {})
    assert read(job) == {
        "model_name": "Qwen/Qwen3-8B", "world_size": 16, "data_parallel_size": 8, "num_microbatches": 16, "global_batch_size": 512,
        "micro_batch_size": 4, "tensor_model_parallel_size": 2, "context_parallel_size": 1, "pipeline_model_parallel_size": 1,
        "sequence_parallel": False, "recompute_granularity": "full", "optimizer_cpu_offload": False,
        "data_parallel_sharding_strategy": "optim_grads_params", "optimizer": "adam", "clip_grad": 1.0, "bf16": True, "fp16": False,
        "peft_type": "none", "enable_in_batch_packing": False,
    }  # fmt: skip
    assert (job.settings["recompute_granularity"].key, job.settings["recompute_granularity"].line) == (
        "policy.dtensor_cfg.activation_checkpointing",
        16,
    )


def test_what_the_configuration_leaves_out_stays_unknown() -> None:
    job = parse_job("policy:\n  dtensor_cfg: {enabled: true}\n")
    assert set(job.settings) == {"pipeline_model_parallel_size", "data_parallel_sharding_strategy"}


@for_each(
    "changes, told",
    ({"policy__sequence_packing__enabled": True}, {"micro_batch_size": None, "enable_in_batch_packing": True, "num_microbatches": None}),
    ({"policy__dynamic_batching__enabled": True}, {"micro_batch_size": None, "num_microbatches": None}),  # tokens are counted
    ({"policy__sequence_packing": None}, {"micro_batch_size": 4}),  # older releases had none
    ({"policy__dynamic_batching__enabled": "${batching}"}, {"micro_batch_size": None}),
    ({"policy__train_micro_batch_size": "${x}"}, {"micro_batch_size": None}),
    ({"policy__train_micro_batch_size": "${grpo.num_prompts_per_step}"}, {"micro_batch_size": 64}),
    ({"policy__train_global_batch_size": "${mul:${grpo.num_prompts_per_step}, 16}"}, {"global_batch_size": None, "num_microbatches": None}),
    ({"policy__generation__colocated__enabled": False}, {"world_size": None, "data_parallel_size": None}),  # some ranks generate alone
    ({"policy__generation__colocated__enabled": "${apart}"}, {"world_size": None}),
    ({"env": {"reward_model": {"resources": {"num_nodes": 1}}}}, {"world_size": None}),
    ({"on_policy_distillation": {"non_colocated_teachers": {"enabled": True}}}, {"world_size": None}),
    ({"policy__dtensor_cfg__activation_checkpointing": False}, {"recompute_granularity": "none"}),
    ({"policy__dtensor_cfg__cpu_offload": True}, {"optimizer_cpu_offload": True}),
    ({"policy__dtensor_cfg__lora_cfg__enabled": True}, {"peft_type": "lora"}),
    ({"policy__dtensor_cfg__dp_replicate_size": 2}, {"data_parallel_replicate_degree": 2}),
    ({"policy__dtensor_cfg__env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}}, {"cuda_device_max_connections": 1}),
    ({"policy__megatron_cfg__env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}}, {"cuda_device_max_connections": None}),  # the other engine's
    ({"policy__precision": "float16"}, {"bf16": False, "fp16": True}),
    ({"policy__optimizer__name": "dion.Muon"}, {"optimizer": "other"}),
    ({"policy__dtensor_cfg__expert_parallel_size": 8}, {"expert_model_parallel_size": 8, "data_parallel_sharding_strategy": "optim_grads"}),
    ({"policy__dtensor_cfg__expert_parallel_size": 1}, {"data_parallel_sharding_strategy": "optim_grads_params"}),
    ({"policy__dtensor_cfg__expert_parallel_size": "${ep}"}, {"data_parallel_sharding_strategy": None}),
    (
        {"policy__dtensor_cfg__expert_parallel_size": 8, "policy__dtensor_cfg__moe_parallelizer": {"reshard_after_forward": True}},
        {"data_parallel_sharding_strategy": "optim_grads_params"},
    ),
    (
        {"policy__dtensor_cfg__automodel_kwargs": {"freeze_config": {"freeze_vision_tower": True, "freeze_language_model": False}}},
        {"freeze_vision_model": True, "freeze_language_model": False},
    ),
)
def test_what_a_policy_on_dtensor_says(changes: dict[str, object], told: dict[str, object]) -> None:
    job = parse_job(with_changes(**changes))
    assert (job.format, {name: job.get(name) for name in told}) == ("nemo-rl", told)


@for_each(
    "dtensor, megatron, format_",
    (True, None, "nemo-rl"),
    (None, True, "rl"),
    (False, True, "rl"),
    ("${a}", True, "rl"),
    (True, "${b}", "nemo-rl"),
    ("${a}", "${b}", "rl"),  # whichever it is
)
def test_the_engine_that_is_turned_on_decides_the_keys(dtensor: object, megatron: object, format_: str) -> None:
    assert parse_job(with_changes(policy__dtensor_cfg__enabled=dtensor, policy__megatron_cfg__enabled=megatron)).format == format_


@for_each(
    "dtensor, megatron, wrong",
    (True, True, "turns on both DTensor and Megatron for its policy, which NeMo RL refuses"),
    (False, False, "turns on neither DTensor nor Megatron for its policy, which NeMo RL refuses"),
    (False, None, "turns on neither DTensor nor Megatron"),
)
def test_both_engines_or_neither_are_refused_as_nemo_rl_refuses_them(dtensor: object, megatron: object, wrong: str) -> None:
    with pytest.raises(JobFileError, match=wrong):
        parse_job(with_changes(policy__dtensor_cfg__enabled=dtensor, policy__megatron_cfg__enabled=megatron))


@for_each(
    "arguments, format_",
    ("policy.train_micro_batch_size=2", "nemo-rl"),  # its own configuration is on DTensor
    ("policy.train_micro_batch_size=2 $@", "rl"),  # it may name another
    ("policy.dtensor_cfg.enabled=false policy.train_micro_batch_size=2", "rl"),
    ("--config examples/configs/unseen.yaml policy.train_micro_batch_size=2", "rl"),
    ("--config=unseen.yaml policy.dtensor_cfg.tensor_parallel_size=2", "nemo-rl"),
    ("--config=unseen.yaml policy.megatron_cfg.enabled=false", "nemo-rl"),
    ("--config=unseen.yaml policy.dtensor_cfg.tensor_parallel_size=2 policy.megatron_cfg.tensor_model_parallel_size=2", "rl"),
)
def test_the_engine_of_a_command(arguments: str, format_: str) -> None:
    assert parse_job(f"uv run python examples/run_grpo.py {arguments}\n").format == format_


@for_each(
    "arguments, said",
    ("--config $CONFIG policy.train_micro_batch_size=2", True),
    ("--config unseen.yaml policy.train_micro_batch_size=2", True),
    ("--config $CONFIG policy.megatron_cfg.tensor_model_parallel_size=2", False),
    ("--config $CONFIG policy.dtensor_cfg.enabled=false policy.train_micro_batch_size=2", False),
)
def test_an_engine_that_is_not_known_is_said(arguments: str, said: bool) -> None:
    job = parse_job(f"python examples/run_grpo.py {arguments}\n")
    assert job.format == "rl"
    assert any(note.startswith("whether the policy trains on Megatron or DTensor is not known") for note in job.notes) == said


def test_ranks_of_a_reward_model_are_no_ranks_of_the_policy() -> None:
    ranks = "python run_grpo.py cluster.num_nodes=2 cluster.gpus_per_node=8 policy.megatron_cfg.enabled=true {}\n"
    assert parse_job(ranks.format("")).get("world_size") == 16
    assert parse_job(ranks.format("env.reward_model.resources.num_nodes=1")).get("world_size") is None
    assert parse_job(ranks.format("policy.generation.colocated.enabled=false")).get("world_size") is None


def test_the_single_controller_s_own_configuration_is_not_on_dtensor() -> None:
    assert parse_job("python examples/run_grpo_single_controller.py policy.train_micro_batch_size=2\n").format == "rl"


def test_a_micro_batch_counts_only_where_it_is_known_that_no_tokens_do() -> None:
    command = "python examples/run_grpo.py policy.train_micro_batch_size=2 policy.dynamic_batching.enabled=false {}\n"
    assert parse_job(command.format("")).get("micro_batch_size") is None
    assert parse_job(command.format("policy.sequence_packing.enabled=false")).get("micro_batch_size") == 2


def test_a_configuration_lies_on_the_one_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "own.yaml").write_text("defaults: base.yaml\npolicy:\n  dtensor_cfg: {tensor_parallel_size: 4}\n")
    (tmp_path / "run.sh").write_text("python run_sft.py --config own.yaml policy.dtensor_cfg.context_parallel_size=2\n")
    (tmp_path / "megatron.yaml").write_text("defaults: own.yaml\npolicy: {dtensor_cfg: {enabled: false}, megatron_cfg: {enabled: true}}\n")
    own, run, megatron = (read_job(tmp_path / name) for name in ("own.yaml", "run.sh", "megatron.yaml"))
    sizes = [(job.format, job.get("tensor_model_parallel_size"), job.get("context_parallel_size")) for job in (own, run, megatron)]
    assert sizes == [("nemo-rl", 4, 1), ("nemo-rl", 4, 2), ("rl", 8, None)]
    (tmp_path / "base.yaml").unlink()
    alone = read_job(tmp_path / "own.yaml")
    known = ("tensor_model_parallel_size", "data_parallel_sharding_strategy", "micro_batch_size")
    assert (alone.format, [alone.get(name) for name in known]) == ("nemo-rl", [4, None, None])
    assert alone.notes == ("base.yaml, which own.yaml lies on, is not beside it: what it sets is not known",)


@for_each(
    "fix, changes, written",
    ("HOST-05", {}, "policy.train_micro_batch_size: 4 → 8"),
    ("HOST-05", {"policy__dtensor_cfg__tensor_parallel_size": 4}, "policy.logprob_batch_size as policy.train_micro_batch_size"),
    ("HOST-05", {"policy__sequence_packing__enabled": True}, "policy.sequence_packing.train_mb_tokens twice the present value"),
    ("HOST-05", {"policy__dynamic_batching__enabled": True}, "policy.dynamic_batching.train_mb_tokens twice the present value"),
    ("MEM-12", {}, "policy.train_micro_batch_size: 4 → 2"),
    ("MEM-12", {"policy__sequence_packing__enabled": True}, "policy.sequence_packing.train_mb_tokens half the present value"),
    ("MEM-03", {}, "policy.dtensor_cfg.activation_checkpointing: true → false"),
    ("MEM-19", {"policy__dtensor_cfg__activation_checkpointing": False}, "policy.dtensor_cfg.activation_checkpointing: false → true"),
    ("HOST-06", {}, "policy.dtensor_cfg.tensor_parallel_size: 2 → 1"),
    ("HOST-06", {"policy__dtensor_cfg__sequence_parallel": True}, "policy.dtensor_cfg.sequence_parallel: true → false"),
    (
        "HOST-06",
        {"policy__dtensor_cfg__tensor_parallel_size": 1, "policy__dtensor_cfg__context_parallel_size": 4},
        "policy.dtensor_cfg.context_parallel_size: 4 → 2",
    ),
    ("COM-30", {}, "policy.dtensor_cfg.dp_replicate_size the number of nodes"),
    ("CPY-02", {"policy__dtensor_cfg__cpu_offload": True}, "policy.dtensor_cfg.cpu_offload: true → false"),
    ("MEM-06", {}, "policy.dtensor_cfg.cpu_offload true; parameters and gradients go to host memory with it"),
    ("PCK-01", {}, "policy.sequence_packing.enabled true, for text alone"),
)
def test_a_patch_is_in_nemo_rl_s_own_keys(tmp_path: Path, fix: str, changes: dict[str, object], written: str) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(with_changes(**changes))
    result = CliRunner().invoke(cli, ["patch", "--config", str(file), "--fix", fix], terminal_width=400)
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.stderr
    assert written in said
    assert not re.search(r"\b(model|train|ddp|optimizer)\.\w+", re.sub(r"policy\.[\w.]+", "", said))  # Megatron-Bridge's sections


def test_a_patch_of_gathered_experts_is_in_nemo_rl_s_own_keys(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    experts = {"expert_parallel_size": 8, "moe_parallelizer": {"reshard_after_forward": True}}
    file.write_text(with_changes(**{f"policy__dtensor_cfg__{key}": value for key, value in experts.items()}))
    result = CliRunner().invoke(cli, ["patch", "--config", str(file), "--fix", "COM-11"])
    assert "policy.dtensor_cfg.moe_parallelizer.reshard_after_forward false" in " ".join(result.stdout.split())


def test_settings_of_megatron_that_are_off_are_not_advised_upon(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(BASE)
    result = CliRunner().invoke(cli, ["check", str(file)])
    assert result.exit_code == 0
    assert "nemo-rl job" in result.stdout
    assert "megatron_cfg" not in result.stdout
