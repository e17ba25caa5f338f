"""How what a list gains is written where the file holds nothing of it yet: as the format and the setting ask."""

import json

import pytest

from diagnose.job import edit_yaml as yaml_edit
from diagnose.job.edit import Edit, write
from diagnose.job.edit_yaml import YamlEditError
from diagnose.job.formats import READERS
from diagnose.knowledge.settings import load_job_settings
from tests.builders.cases import for_each


@for_each(
    "text, framework, key, setting, written",
    ("model:\n  recompute_modules:\n", "megatron-bridge", "model.recompute_modules", "recompute_modules", "recompute_modules: [mlp, moe]"),
    ("MODEL_ARGS:\n  --recompute-modules:\n", "megatron-lm", "--recompute-modules", "recompute_modules", "--recompute-modules: mlp moe"),
    ("env_vars:\n  PYTORCH_CUDA_ALLOC_CONF:\n", "environment", "PYTORCH_CUDA_ALLOC_CONF", "pytorch_cuda_alloc_conf", "CONF: mlp,moe"),
)
def test_members_of_a_list_that_is_empty(text: str, framework: str, key: str, setting: str, written: str) -> None:
    edit = Edit(framework=framework, key=key, op="add", value=("mlp", "moe"), table=load_job_settings(), setting=setting)
    after = write(text, edit)
    assert after.rstrip().endswith(written)
    assert write(after, edit) == after  # what is there is not added again


def test_of_a_key_that_stands_twice_the_one_that_counts_is_written() -> None:
    text = "MODEL_ARGS:\n  --num-layers: 4\n  --num-layers: 8\n"
    edit = Edit(framework="megatron-lm", key="--num-layers", op="set", value=6, table=load_job_settings(), setting="num_layers")
    assert write(text, edit) == "MODEL_ARGS:\n  --num-layers: 4\n  --num-layers: 6\n"
    assert yaml_edit.drop(text, ("MODEL_ARGS", "--num-layers")) == "MODEL_ARGS:\n"


ARGS = "MODEL_ARGS:\n  --num-layers: 4\n"
BLOCKING = "CUDA_LAUNCH_BLOCKING"


@for_each(
    "text, key, op, value, written",
    (ARGS, "--no-rope-fusion", "set", True, f"{ARGS}  --no-rope-fusion: true\n"),
    (f"{ARGS}  --no-rope-fusion: true\n", "--no-rope-fusion", "set", True, f"{ARGS}  --no-rope-fusion: true\n"),
    (f"{ARGS}  --no-rope-fusion: true\n", "--no-rope-fusion", "set", False, ARGS),  # leaving it out says so
    (f"{ARGS}  --no-rope-fusion: true\n", "--no-rope-fusion", "unset", None, ARGS),
    (ARGS, "--no-rope-fusion", "set", False, ARGS),
    (f"{ARGS}  --overlap-grad-reduce: true\n", "--overlap-grad-reduce", "set", False, ARGS),
    (f"env_vars:\n  {BLOCKING}: 1\n  OTHER: 2\n", BLOCKING, "unset", None, "env_vars:\n  OTHER: 2\n"),
    (f"ENV_VARS:\n  {BLOCKING}: 1\n  OTHER: 2\n{ARGS}", BLOCKING, "unset", None, f"ENV_VARS:\n  OTHER: 2\n{ARGS}"),
    (f"model.num_layers: 4\nenv_vars.{BLOCKING}: 1\n", BLOCKING, "unset", None, "model.num_layers: 4\n"),
    ("model:\n  num_layers: 4\n", BLOCKING, "unset", None, "model:\n  num_layers: 4\n"),
    ("model:\n  recompute_method: uniform\n", "model.recompute_method", "unset", None, "model:\n  recompute_method: null\n"),
    ("model:\n  recompute_method: null\n", "model.recompute_method", "unset", None, "model:\n  recompute_method: null\n"),
)
def test_what_turns_a_setting_off_or_takes_it_out(text: str, key: str, op: str, value: object, written: str) -> None:
    framework = "megatron-lm" if key.startswith("--") else "environment" if key == BLOCKING else "megatron-bridge"
    setting = {"--no-rope-fusion": "apply_rope_fusion", "--overlap-grad-reduce": "overlap_grad_reduce", BLOCKING: "cuda_launch_blocking"}
    own = setting.get(key, "recompute_method")
    assert write(text, Edit(framework=framework, key=key, op=op, value=value, table=load_job_settings(), setting=own)) == written


@for_each(
    "text, written",
    ("model.num_layers=4\nmodel.seq_length=8\n", "model.num_layers=6\nmodel.seq_length=8\n"),
    ("+model.num_layers=4 \\\r\n  ++model.num_layers=5\r\n", "+model.num_layers=6 \\\r\n  ++model.num_layers=6\r\n"),
    ("model.seq_length=8\n", "model.seq_length=8\nmodel.num_layers=6\n"),
)
def test_an_override_is_written_where_it_stands_or_added(text: str, written: str) -> None:
    editor = READERS["overrides"].editor(text)
    assert editor is not None
    edit = Edit(framework="megatron-bridge", key="model.num_layers", op="set", value=6, table=load_job_settings(), setting="num_layers")
    assert editor.write(text, edit, 6) == written


DEEPSPEED = """{
\t"train_micro_batch_size_per_gpu": 2,
\t"zero_optimization": {
\t\t"stage": 0
\t},
\t"bf16": {"enabled": true}
}
"""
ACCELERATE = """# eight of them
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 0  # nothing split
num_processes: 8
"""
TRAINER = "per_device_train_batch_size: 2  # small\noutput_dir: out\noptim: adamw_torch\n"


def _edited(format_: str, text: str, key: str, value: object, setting: str | None = None, literal: str | None = None) -> str:
    editor = READERS[format_].editor(text)
    assert editor is not None
    edit = Edit(framework=format_, key=key, op="set", value=value, table=load_job_settings(), setting=setting, literal=literal)
    return editor.write(text, edit, value)


@for_each(
    "format_, text, key, value, setting, literal, old, new",
    ("deepspeed", DEEPSPEED, "zero_optimization.stage", "optim", "data_parallel_sharding_strategy", "1", '"stage": 0', '"stage": 1'),
    ("deepspeed", DEEPSPEED, "zero_optimization.overlap_comm", True, "overlap_grad_reduce", None, '"stage": 0', '"stage": 0,\n\t\t"overlap_comm": true'),
    ("deepspeed", DEEPSPEED, "communication_data_type", "bf16", None, None, '"enabled": true}', '"enabled": true},\n\t"communication_data_type": "bf16"'),
    ("deepspeed", DEEPSPEED, "bf16.immediate_grad_update", True, None, None, '{"enabled": true}', '{"enabled": true, "immediate_grad_update": true}'),
    ("deepspeed", DEEPSPEED, "zero_optimization.offload_optimizer.device", True, "optimizer_cpu_offload", "cpu", '"stage": 0', '"stage": 0,\n\t\t"offload_optimizer": {"device": "cpu"}'),
    ("accelerate", ACCELERATE, "deepspeed_config.zero_stage", "optim", "data_parallel_sharding_strategy", "1", "zero_stage: 0", "zero_stage: 1"),
    ("accelerate", ACCELERATE, "dynamo_config.dynamo_backend", True, "torch_compile", "INDUCTOR", "num_processes: 8\n", "num_processes: 8\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"),
    ("hugging-face", TRAINER, "optim", "adamw_torch_fused", None, None, "optim: adamw_torch", "optim: adamw_torch_fused"),
    ("hugging-face", TRAINER, "per_device_train_batch_size", 4, "micro_batch_size", None, "size: 2", "size: 4"),
)  # fmt: skip
def test_a_framework_s_own_keys_are_written_and_nothing_else(
    format_: str, text: str, key: str, value: object, setting: str | None, literal: str | None, old: str, new: str
) -> None:
    after = _edited(format_, text, key, value, setting, literal)
    assert text.count(old) == 1
    assert after == text.replace(old, new)
    assert _edited(format_, after, key, value, setting, literal) == after
    if format_ == "deepspeed":
        json.loads(after)


def test_of_one_setting_s_keys_that_which_stands_in_the_file_is_written() -> None:
    text = "base_model: x\nmicro_batch_size: 2\nsequence_len: 4096\n"  # Axolotl's name
    assert "micro_batch_size: 4\n" in _edited("hugging-face", text, "per_device_train_batch_size", 4, "micro_batch_size")


def test_what_accelerate_refuses_beside_a_file_of_deepspeed_is_not_written() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    with pytest.raises(YamlEditError, match="has to be set in ds"):
        _edited("accelerate", text, "deepspeed_config.zero_stage", "optim", "data_parallel_sharding_strategy", "1")
