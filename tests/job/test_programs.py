"""SkyRL, ROLL and AReaL: their jobs are read by the engine that trains, and told changes in their own keys."""

import csv
from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from tests.builders.advised import patched
from tests.builders.cases import for_each
from tests.builders.facts import BOOK
from tests.builders.jobs import parse_job, read_job
from tests.job.make_program_table import TABLE, dotted, own_keys, programs

SKYRL = (
    "python -m skyrl.train.entrypoints.main_base trainer.strategy=megatron trainer.placement.policy_num_gpus_per_node=8 "
    "trainer.policy.megatron_config.tensor_model_parallel_size=2 trainer.policy.megatron_config.expert_model_parallel_size=4 "
    "trainer.micro_train_batch_size_per_gpu=2{}\n"
)
SKYRL_FSDP = (
    "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=a/b trainer.placement.policy_num_nodes=2 "
    "trainer.placement.policy_num_gpus_per_node=8 trainer.policy.sequence_parallel_size=4 trainer.micro_train_batch_size_per_gpu=3\n"
)
SKYRL_SFT = (
    "python -m skyrl.train.main_sft strategy={} placement.num_nodes=1 placement.num_gpus_per_node=4 "
    "micro_train_batch_size_per_gpu=2 batch_size=16{}\n"
)
ROLL = """num_gpus_per_node: 8
{role}:
  model_args: {{disable_gradient_checkpointing: false, ulysses_size: 2}}
  training_args: {{per_device_train_batch_size: 2, gradient_accumulation_steps: 4}}
  strategy_args:
    strategy_name: {engine}
    strategy_config: {config}
  device_mapping: list(range(0,16))
"""
AREAL = """actor:
  backend: "{backend}"
  path: Qwen/Qwen3-30B-A3B
  gradient_checkpointing: {checkpointing}
  dtype: bfloat16
  megatron: {megatron}
"""
ON_MEGATRON = {"engine": "megatron_train", "config": "{tensor_model_parallel_size: 2, use_distributed_optimizer: true}"}


def areal(backend: str = "megatron:d4t2p2", checkpointing: str = "true", megatron: str = "{}") -> str:
    return AREAL.format(backend=backend, checkpointing=checkpointing, megatron=megatron)


def settings(text: str, *names: str) -> list[object]:
    job = parse_job(text)
    return [job.format, *(job.get(name) for name in names)]


def test_every_key_that_a_program_is_told_has_a_place_in_its_sources() -> None:
    lines = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    held = {(row[0], row[1]): row[3] for row in csv.reader(lines, delimiter="\t")}
    assert {key: file for key, file in held.items() if file == "MISSING"} == {}
    assert set(held) == {*dotted(), *((one.of, key) for one in programs() for key in own_keys(one))}, (
        "run `python -m tests.job.make_program_table`"
    )


def test_what_a_program_lacks_is_a_key_that_some_fix_writes() -> None:
    written = {change.key for fix in BOOK.fixes.values() for change in fix.changes}
    assert {key for one in programs() for key in one.lacks} <= written


@for_each(
    "text, fix, told",
    (SKYRL.format(""), "COM-10", ["trainer.policy.megatron_config.ddp_config.overlap_grad_reduce=true"]),
    (SKYRL.format(""), "CMP-02", ["trainer.policy.megatron_config.transformer_config_kwargs.moe_router_fusion=true"]),
    (SKYRL.format(""), "CPY-04", ["trainer.policy.megatron_config.async_dist_ckpt_save=true"]),
    (
        SKYRL_SFT.format("megatron", " megatron_config.tensor_model_parallel_size=1"),
        "COM-10",
        ["megatron_config.ddp_config.overlap_grad_reduce=true"],
    ),
    (ROLL.format(role="actor_train", **ON_MEGATRON), "COM-10", ["actor_train.strategy_args.strategy_config.overlap_grad_reduce=true"]),
    (ROLL.format(role="sft_train", **ON_MEGATRON), "COM-10", ["sft_train.strategy_args.strategy_config.overlap_grad_reduce=true"]),
    (
        ROLL.format(role="student", **ON_MEGATRON),
        "CMP-02",
        ["student.strategy_args.strategy_config.additional_configs.moe_router_fusion=true"],
    ),
    (areal(megatron="{ddp: {overlap_grad_reduce: false}}"), "COM-10", ["actor.megatron.ddp.overlap_grad_reduce=true"]),
    (areal(), "COM-10", ["++actor.megatron.ddp.overlap_grad_reduce=true"]),
)
def test_a_program_is_told_its_own_keys(text: str, fix: str, told: list[str]) -> None:
    report = patched(text, fix, source="job.sh" if text.startswith("python") else "job.yaml", finding="x").report
    assert (list(report.own_overrides), report.bridge_overrides, report.megatron_flags) == (told, (), ())


@for_each(
    "text, fix",
    (ROLL.format(role="actor_train", **ON_MEGATRON), "COM-11"),  # its strategy asserts that parameter gathers do not overlap
    (SKYRL.format(""), "MEM-04"),  # always on
    (areal(), "CMP-02"),  # no key of it reaches the router
    (ROLL.format(role="actor_train", engine="fsdp2_train", config="{fsdp_size: 8}"), "COM-10"),
    (areal("fsdp:d4p1t1"), "COM-10"),
    ("python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=x trainer.placement.policy_num_gpus_per_node=8\n", "COM-10"),
)
def test_a_program_is_told_no_key_of_megatron_that_it_does_not_take(text: str, fix: str) -> None:
    report = patched(text, fix, source="job.sh" if text.startswith("python") else "job.yaml", finding="x").report
    assert (report.own_overrides, report.bridge_overrides, report.megatron_flags) == ((), (), ())


RECOMPUTE = ("recompute_granularity", "recompute_method", "sequence_parallel", "use_distributed_optimizer", "world_size")


@for_each(
    "text, wanted",
    (SKYRL.format(""), ["rl", "full", "uniform", True, True, 8]),  # one node
    (SKYRL.format(" trainer.gradient_checkpointing=false"), ["rl", "none", None, True, True, 8]),
    (
        SKYRL.format(" trainer.policy.megatron_config.transformer_config_kwargs.recompute_granularity=selective"),
        ["rl", "selective", "uniform", True, True, 8],
    ),
    (SKYRL.format(" trainer.gradient_checkpointing=$GC"), ["rl", None, None, True, True, 8]),
    (areal(), ["rl", "full", "uniform", True, True, 16]),
    (areal(checkpointing="false", megatron="{recompute_granularity: selective}"), ["rl", "none", None, True, True, 16]),
    (areal("megatron:(attn:d4p4t1|ffn:d2p4e4)"), ["rl", "full", "uniform", False, True, 16]),
    (areal() + "  use_lora: true\n", ["rl", "full", "uniform", True, None, 16]),
)
def test_what_a_program_sets_of_megatron_by_itself_is_known(text: str, wanted: list[object]) -> None:
    assert settings(text, *RECOMPUTE) == wanted


def test_what_areal_hands_on_to_nothing_is_no_setting() -> None:
    job = parse_job(
        areal(
            megatron="{moe_token_dispatcher_type: flex, moe_enable_deepep: true, virtual_pipeline_parallel_size: 1, "
            "fp8_config: {mode: hybrid, recipe: blockwise}}"
        )
    )
    names = ("moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "virtual_pipeline_model_parallel_size", "fp8", "fp8_recipe")
    assert [job.get(name) for name in names] == [None, None, None, "hybrid", "blockwise"]


ON_FSDP = (
    "world_size", "micro_batch_size", "context_parallel_size", "recompute_granularity", "data_parallel_sharding_strategy", "model_name",
)  # fmt: skip


@for_each(
    "text, wanted",
    (
        SKYRL_FSDP,
        ["rl-fsdp", 16, 3, 4, "full", "optim_grads_params", "a/b"],
    ),
    (
        SKYRL_SFT.format("fsdp", " fsdp_config.reshard_after_forward=false model.path=a/b"),
        ["rl-fsdp", 4, 2, None, "full", "optim_grads", "a/b"],
    ),
    (
        ROLL.format(role="actor_train", engine="fsdp2_train", config="{fsdp_size: 16, reshard_after_forward: true}"),
        ["rl-fsdp", 16, 2, 2, "full", "optim_grads_params", None],
    ),
    (areal("fsdp:d4p1t1c2"), ["rl-fsdp", 8, None, 2, "full", None, "Qwen/Qwen3-30B-A3B"]),
    (SKYRL_SFT.format("megatron", ""), ["rl", 4, 2, None, None, None, None]),
)
def test_the_engine_that_trains_decides_how_a_job_is_read(text: str, wanted: list[object]) -> None:
    assert settings(text, *ON_FSDP) == wanted


def test_an_engine_that_is_not_read_is_refused_by_its_name() -> None:
    with pytest.raises(JobFileError, match="trains on deepspeed"):
        parse_job(ROLL.format(role="actor_train", engine="deepspeed_train", config="{zero_optimization: {stage: 3}}"))


MAIN = """defaults:
  - model_engine: dp
  - actor@actor_rollout_ref.actor: ${model_engine}_actor
  - nothing@critic: x
  - _self_
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""
VERL = {
    "verl/trainer/config/ppo_trainer.yaml": MAIN,
    "verl/trainer/config/ppo_megatron_trainer.yaml": "defaults:\n  - ppo_trainer\n  - override model_engine: megatron\n  - _self_\n",
    "verl/trainer/config/model_engine/dp.yaml": "# @package _global_\nmodel_engine: dp\n",
    "verl/trainer/config/model_engine/megatron.yaml": "# @package _global_\nmodel_engine: megatron\n",
    "verl/trainer/config/actor/dp_actor.yaml": (
        "defaults:\n  - ../engine@fsdp_config: fsdp\n  - actor\n  - _self_\nstrategy: fsdp\nulysses_sequence_parallel_size: 1\n"
    ),
    "verl/trainer/config/actor/megatron_actor.yaml": "defaults:\n  - ../engine@megatron: megatron\n  - actor\n  - _self_\nstrategy: megatron\n",
    "verl/trainer/config/actor/actor.yaml": "strategy: ???\nppo_micro_batch_size_per_gpu: null\n",
    "verl/trainer/config/engine/fsdp.yaml": "reshard_after_forward: true\nulysses_sequence_parallel_size: 1\n",
    "verl/trainer/config/engine/megatron.yaml": (
        "_target_: a.B\ntensor_model_parallel_size: 1\npipeline_model_parallel_size: 1\nsequence_parallel: True\nuse_distributed_optimizer: True\n"
    ),
}
ON_IT = "hydra:\n  searchpath:\n    - {}\ndefaults:\n  - {}\n  - _self_\nactor_rollout_ref:\n  hybrid_engine: True\n"
SIZES = ("world_size", "tensor_model_parallel_size", "sequence_parallel", "use_distributed_optimizer", "context_parallel_size")
WITH_MEGATRON = ["rl", 8, 1, False, True, None]
WITH_FSDP = ["verl-fsdp", 8, None, None, None, 1]


def composed(tmp_path: Path, name: str, text: str) -> list[object]:
    for path, inner in {**VERL, name: text}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(inner)
    job = read_job(tmp_path / name)
    return [job.format, *(job.get(setting) for setting in SIZES)]


@for_each(
    "name, text, wanted",
    ("recipe/a/config/dapo.yaml", ON_IT.format("file://verl/trainer/config", "ppo_megatron_trainer"), WITH_MEGATRON),
    ("recipe/a/config/dapo.yaml", ON_IT.format("pkg://verl.trainer.config", "ppo_trainer"), WITH_FSDP),
    (
        "recipe/a/config/dapo.yaml",
        ON_IT.replace("actor_rollout_ref:\n  hybrid_engine: True\n", "").format("file://verl/trainer/config", "ppo_trainer"),
        WITH_FSDP,
    ),
    ("examples/run.sh", "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml'\n", WITH_MEGATRON),
    (
        "examples/run.sh",
        "python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_trainer model_engine=megatron trainer.nnodes=1\n",
        WITH_MEGATRON,
    ),
    (
        "examples/run.sh",
        "python3 -m verl.trainer.main_ppo model_engine=megatron trainer.nnodes=1\n",
        WITH_MEGATRON,
    ),  # its usual configuration
    (
        "examples/run.sh",
        "python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_trainer actor_rollout_ref.actor.ulysses_sequence_parallel_size=4\n",
        [*WITH_FSDP[:-1], 4],
    ),
)
def test_files_on_hydras_search_path_are_what_a_configuration_lies_on(name: str, text: str, wanted: list[object], tmp_path: Path) -> None:
    """verl-recipe dapo/config/dapo_megatron_trainer.yaml; verl verl/trainer/config."""
    assert composed(tmp_path, name, text) == wanted


@for_each(
    "text, title",
    (
        'NAME="sft"\ncolossalai run --nproc_per_node 1 train_sft.py --pretrain $P --data_type sft\n',
        "Colossal-AI",
    ),  # applications/ColossalChat/benchmarks
    ("uv run sft @ configs/a.toml\n", "prime-rl"),
    (
        "model: {model_name_or_path: x}\nparallel:\n  fsdp_modules: [lm_head]\n  recompute: True\ntraining: {stage: sft}\n",
        "MindSpeed LLM on FSDP2",
    ),
    ("rlhf_type: gkd\nmicro_batch_size: 1\nsequence_parallel: true\ntrain: {gpus: 4, tensor_model_parallel_size: 2}\n", "ms-swift on Ray"),
    (
        "models: {student: {_target_: fastvideo.train.models.A}}\nmethod: {_target_: fastvideo.train.methods.B}\ntraining: {x: 1}\n",
        "FastVideo",
    ),
)
def test_a_framework_that_is_not_read_is_named_by_what_it_starts(text: str, title: str) -> None:
    """hpcaitech/ColossalAI, Ascend/MindSpeed-LLM examples/fsdp2, modelscope/ms-swift examples/ray/gkd, hao-ai-lab/FastVideo."""
    with pytest.raises(JobFileError, match=f"is of {title}, which"):
        parse_job(text)


def test_what_ms_swift_calls_the_model_is_its_path_and_not_what_it_learns_to_call_itself() -> None:
    """modelscope/ms-swift examples/ascend/train/qwen3_omni/qwen3_omni_lora_megatron_A3.sh."""
    job = parse_job(
        "megatron sft --model Qwen/Qwen3-Omni-30B-A3B --tensor_model_parallel_size 2 --micro_batch_size 2 --model_name swift-robot\n"
    )
    assert (job.format, job.get("model_name"), job.get("tensor_model_parallel_size")) == ("megatron-lm", "Qwen/Qwen3-Omni-30B-A3B", 2)
