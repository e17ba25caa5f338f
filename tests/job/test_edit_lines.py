"""Each setting knows the line of the job file that holds it, in every format."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from diagnose.job import overridden_job, parse_job, read_job
from diagnose.job.text import toml_lines
from diagnose.knowledge import strict_yaml

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
FILES = sorted(path.name for path in JOBS.iterdir() if path.suffix != ".md")


def lines_of(text: str, *overrides: str) -> dict[str, int | None]:
    return {row.name: row.line for row in parse_job(text, overrides=overrides).read().settings}


def words(key: str) -> set[str]:
    """The last parts of the keys that a row names, as files may spell them."""
    return {re.sub(r"\W.*", "", part.strip().lstrip("-").rpartition(".")[2]).replace("-", "_") for part in key.split(",")}


@pytest.mark.parametrize("name", FILES)
def test_the_line_of_every_setting_holds_its_key(name: str) -> None:
    text = (JOBS / name).read_text(encoding="utf-8").split("\n")
    found = read_job(JOBS / name).read()
    assert found.file == name
    placed = [row for row in found.settings if row.line is not None]
    assert len(placed) > len(found.settings) / 2
    for row in placed:
        assert row.line is not None
        shown = text[row.line - 1].replace("-", "_")
        assert any(word in shown for word in words(row.key)) or "torchrun" in shown, (row, shown)
    for row in found.settings:
        if row.line is None:
            assert "," in row.key, f"{row} was read from one key, which stands on a line"


def test_a_configuration_dump_with_wrappers_anchors_and_classes() -> None:
    text = """\
layers: &half
  [dense, moe]
shared: &overlap
  overlap_grad_reduce: true
  overlap_param_gather: true
ddp: *overlap
model:
  _target_: megatron.bridge.GPTProvider
  transformer:
    num_layers: 48
    params_dtype: {_target_: torch.bfloat16, _call_: false}
    recompute_modules:
      - moe_act
      - layernorm
  expert_model_parallel_size: 8  # a comment
train: {global_batch_size: 512,
  micro_batch_size: 1}
"""
    found = lines_of(text)
    assert (found["overlap_grad_reduce"], found["overlap_param_gather"]) == (4, 5), "where the alias was written"
    assert (found["num_layers"], found["recompute_modules"], found["expert_model_parallel_size"]) == (10, 12, 15)
    assert (found["global_batch_size"], found["micro_batch_size"]) == (16, 17)


def test_an_override_takes_the_line_away_and_a_preset_keeps_that_of_its_name() -> None:
    text = "num_layers: 48\nmodel.expert_model_parallel_size: 8\n"
    assert lines_of(text) == {"num_layers": 1, "expert_model_parallel_size": 2}
    assert lines_of(text, "num_layers=24")["num_layers"] is None
    assert {row.line for row in overridden_job(["num_layers=24"]).read().settings} == {None}
    assert overridden_job(["num_layers=24"]).read().file is None


def test_arguments_of_megatron_in_yaml() -> None:
    text = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 48\n  --bf16: true\n"
    found = lines_of(text)
    assert (found["cuda_device_max_connections"], found["num_layers"], found["bf16"]) == (2, 4, 5)


def test_a_shell_script_with_variables_and_arrays() -> None:
    text = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=2
ARGS=(
    --num-layers 48
    --tensor-model-parallel-size $TP
)
torchrun --nproc-per-node 8 pretrain_gpt.py ${ARGS[@]} \\
    --bf16
"""
    found = lines_of(text)
    assert (found["num_layers"], found["tensor_model_parallel_size"], found["bf16"]) == (5, 6, 9)
    assert (found["cuda_device_max_connections"], found["world_size"]) == (2, 8)


def test_windows_line_ends_and_a_byte_order_mark_move_no_line() -> None:
    assert lines_of("\ufeffmodel:\r\n  num_layers: 48\r\n") == {"num_layers": 2}


TOML = '''\
title = "a = 1 [not.a.table]"
[training]
steps = 10  # [x]
text = """
[parallelism]
steps = 3
"""
local_batch_size = 4
list = [
  1, # ]
  "]",
]
[ parallelism ]
tensor_parallel_degree = 2
"expert_parallel_degree" = 8
model.'x y'.z = { inner = 1 }
[[runs]]
a = 1
[[runs]]
a = 2
'''


def test_lines_of_toml() -> None:
    found = toml_lines(TOML)
    assert found == {
        ("title",): 1,
        ("training",): 2,
        ("training", "steps"): 3,
        ("training", "text"): 4,
        ("training", "local_batch_size"): 8,
        ("training", "list"): 9,
        ("parallelism",): 13,
        ("parallelism", "tensor_parallel_degree"): 14,
        ("parallelism", "expert_parallel_degree"): 15,
        ("parallelism", "model", "x y", "z"): 16,
        ("runs",): 17,
        ("runs", "a"): 18,
    }
    data = tomllib.loads(TOML)
    assert data["parallelism"]["model"]["x y"]["z"] == {"inner": 1}


def test_a_hostile_toml_ends_soon() -> None:
    text = "x = '''" + '"' * 200_000 + "'''\n" + "y = [" + "[" * 50 + "]" * 50 + "]\nz = 1\n"
    assert toml_lines(text)["z",] == 3


def test_aliases_are_followed_once_per_place() -> None:
    assert strict_yaml.lines("a: &x {k: 1}\nb: *x\nc:\n- k: 2\n") == {("a",): 1, ("a", "k"): 1, ("b",): 2, ("b", "k"): 1, ("c",): 3}
    assert strict_yaml.lines("") == {}
    assert strict_yaml.lines("- 1\n") == {}
