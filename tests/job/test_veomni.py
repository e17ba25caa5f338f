"""Jobs of VeOmni: read, and told what to change, in its own keys (veomni/arguments/arguments_types.py, d9774494f5)."""

from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from tests.builders import yaml_text
from tests.builders.advised import checked, patched, repaired
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read, read_job

BASE = """
model:
  model_path: Qwen3-30B-A3B-merge
  ops_implementation: {attn_implementation: flash_attention_2, moe_implementation: fused_triton}
data: {train_path: tulu, max_seq_len: 2048, dataloader: {num_workers: 4}}
train:
  accelerator:
    ulysses_size: 2
    ep_size: 8
    fsdp_config: {fsdp_mode: fsdp2, offload: false, mixed_precision: {enable: true}}
  gradient_checkpointing: {enable: true}
  global_batch_size: 64
  micro_batch_size: 2
  init_device: meta
  optimizer: {type: muon, max_grad_norm: 0.5}
  checkpoint: {output_dir: out}
"""


def with_train(**sections: object) -> str:
    """The job with other values in its train section; dots of a key are two underscores."""
    data = yaml_text.load(BASE)
    for key, value in sections.items():
        *path, last = key.split("__")
        node = data["train"]
        for one in path:
            node = node.setdefault(one, {})
        node[last] = value
    return yaml_text.dump(data, sort_keys=False)


def test_a_configuration_is_read_in_veomni_s_own_keys() -> None:
    job = parse_job(BASE)
    assert (job.format, job.unknown, job.notes) == ("veomni", (), ())
    expected = {
        "context_parallel_size": 2, "expert_model_parallel_size": 8, "micro_batch_size": 2, "global_batch_size": 64, "seq_length": 2048,
        "recompute_granularity": "full", "optimizer": "muon", "clip_grad": 0.5, "optimizer_cpu_offload": False,
        "attention_backend": "flash", "num_workers": 4, "bf16": True, "data_parallel_sharding_strategy": "optim_grads_params",
        "checkpoint_save": "out",
    }  # fmt: skip
    found = read(job)
    assert {name: found.get(name) for name in expected} == expected
    defaults = {name: one.value for name, one in job.settings.items() if one.source == "default"}
    assert (defaults["tensor_model_parallel_size"], defaults["pipeline_model_parallel_size"], defaults["torch_compile"]) == (1, 1, False)


@for_each(
    "more, name, value",
    ({"accelerator__fsdp_config__reshard_after_forward": False}, "data_parallel_sharding_strategy", "optim_grads"),
    ({"accelerator__fsdp_config__fsdp_mode": "ddp"}, "data_parallel_sharding_strategy", "no_shard"),
    ({"accelerator__fsdp_config__mixed_precision__param_dtype": "float32"}, "bf16", False),
    ({"accelerator__fsdp_config__mixed_precision": {"enable": False, "param_dtype": "float32"}}, "bf16", True),  # loaded in BF16
    ({"dyn_bsz": False}, "seq_length", None),  # samples as long as they are
    ({"gradient_checkpointing__enable": False}, "recompute_granularity", "none"),
)
def test_what_veomni_makes_of_its_arguments(more: dict[str, object], name: str, value: object) -> None:
    assert parse_job(with_train(**more)).get(name) == value


def test_a_switch_that_veomni_drops_is_told() -> None:
    job = parse_job(with_train(accelerator__offload__enable_activation=True))
    assert len(job.notes) == 1
    assert job.notes[0].startswith("train.accelerator.offload.enable_activation is no argument of VeOmni")


@for_each("key", "tp_size", "pp_size", "cp_size")
def test_what_veomni_asserts_not_to_be_fails_and_is_mended(key: str) -> None:
    text = with_train(**{f"accelerator__{key}": 2})
    found = [(one.id, one.group) for one in checked(text).results]
    assert ("veomni-with-tensor-or-pipeline-parallelism", "will_fail") in found
    assert yaml_text.load(repaired(text).text)["train"]["accelerator"][key] == 1


@for_each(
    "fix, path, value",
    ("MEM-03", ("train", "gradient_checkpointing", "enable"), False),
    ("HOST-05", ("train", "micro_batch_size"), 4),
    ("MEM-12", ("train", "micro_batch_size"), 1),
    ("HOST-10", ("data", "dataloader", "num_workers"), 8),
)
def test_changes_are_written_in_veomni_s_own_keys(fix: str, path: tuple[str, ...], value: object) -> None:
    done = patched(BASE, fix)
    node = yaml_text.load(done.text)
    for key in path:
        node = node[key]
    assert node == value


def saved(folder: Path, **files: str) -> Path:
    """VeOmni's folders with a configuration, and a script beside them."""
    (folder / "configs").mkdir()
    (folder / "configs" / "qwen3.yaml").write_text(files["config"], encoding="utf-8")
    script = folder / "run.sh"
    script.write_text(files["script"], encoding="utf-8")
    return script


@for_each(
    "command",
    "bash train.sh tasks/train_text.py configs/qwen3.yaml --train.micro_batch_size 4 --train.accelerator.cp_size=1",
    "torchrun --nnodes 1 --nproc-per-node 8 tasks/train_text.py configs/qwen3.yaml --train.micro_batch_size=4",
)
def test_a_command_is_read_with_the_configuration_that_it_names_under_its_overrides(tmp_path: Path, command: str) -> None:
    job = read_job(saved(tmp_path, config=BASE, script=f"{command}\n"))
    assert (job.format, job.unknown, job.notes) == ("veomni", (), ())
    found = read(job)
    told = ("micro_batch_size", "expert_model_parallel_size", "optimizer", "data_parallel_sharding_strategy", "bf16")
    assert [found.get(name) for name in told] == [4, 8, "muon", "optim_grads_params", True]
    assert job.settings["micro_batch_size"].place == "line 1"
    assert job.settings["expert_model_parallel_size"].place == "line 9 of qwen3.yaml"
    assert job.settings["torch_compile"].source == "default", "the file and the overrides are all that VeOmni is told"


def test_of_a_command_whose_configuration_is_elsewhere_the_overrides_are_read_and_nothing_counts_as_off() -> None:
    job = parse_job("bash train.sh tasks/train_text.py configs/gone.yaml --train.accelerator.ep_size 4 $EXTRA\n")
    assert (job.format, read(job)["expert_model_parallel_size"]) == ("veomni", 4)
    assert "torch_compile" not in job.settings
    assert "bf16" not in job.settings
    assert "configs/gone.yaml is not beside" in " ".join(job.notes)
    assert "may hold more arguments" in " ".join(job.notes)


def test_a_command_with_the_older_layout_is_refused_by_name(tmp_path: Path) -> None:
    flat = "train:\n  ulysses_parallel_size: 2\n  data_parallel_mode: fsdp2\n"
    with pytest.raises(JobFileError, match="VeOmni"):
        read_job(saved(tmp_path, config=flat, script="bash train.sh tasks/train_torch.py configs/qwen3.yaml\n"))


def test_the_older_flat_layout_is_refused_by_name() -> None:
    with pytest.raises(JobFileError, match="VeOmni"):
        parse_job("train:\n  ulysses_parallel_size: 2\n  data_parallel_mode: fsdp2\n  init_device: meta\n")
