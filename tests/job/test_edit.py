"""How what a list gains is written where the file holds nothing of it yet: as the format and the setting ask."""

from __future__ import annotations

from diagnose.job import edit_yaml as yaml_edit
from diagnose.job.edit import Edit, write
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
