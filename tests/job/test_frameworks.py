"""Job files of torchtitan, DeepSpeed, Accelerate and Hugging Face's Trainer, recipes as Python, and what lies beside a job file."""

import json
from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from diagnose.job import Job
from tests.builders.advised import checked
from tests.builders.cases import for_each
from tests.builders.jobs import TABLE, parse_job, read_job

REGISTRY = """from dataclasses import replace
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer
from . import model_registry

LENGTH = 4096


def small() -> Trainer.Config:
    model_spec = model_registry("16B", attn_backend="flex", moe_comm_backend="deepep")
    return Trainer.Config(
        model_spec=model_spec,
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * LENGTH, max_context_length=LENGTH, steps=10),
        parallelism=ParallelismConfig(expert_parallel_degree=8, data_parallel_shard_degree=-1),
        activation_checkpoint=FullAC.Config(),
        compile=CompileConfig(enable=True, components=["loss"]),
    )


def small_long() -> Trainer.Config:
    config = small()
    config.training.max_context_length = 8192
    config.parallelism = ParallelismConfig(context_parallel_degree=2)
    if LENGTH > 2:
        config.compile.enable = False
    config.activation_checkpoint = None
    return config


def changed() -> Trainer.Config:
    config = small()
    elsewhere(config)
    return config
"""
SAVED = {
    "model_spec": {"name": "m", "flavor": "16B", "model": {"dim": 64, "layers": [{"moe": None}, {"moe": {"num_experts": 8}}]}},
    "training": {"num_tokens_per_microbatch_per_dp_rank": 16384, "num_tokens_per_train_step": -1, "max_context_length": 4096},
    "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 2, "enable_sequence_parallel": True},
    "activation_checkpoint": {"preserve_rng_state": True},
}
ZERO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "overlap_comm": True, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}},
}
LAUNCH = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"


def told(job: Job, *names: str) -> tuple[object, ...]:
    return tuple(job.get(name) for name in names)


# --- torchtitan ---------------------------------------------------------------------------------------------------------


@for_each(
    "function, expected",
    ("small", (8, 4, 4096, 1, "full", True, "16B", "flex", "deepep")),
    ("2", (None, 2, 8192, 2, "none", None, "16B", "flex", "deepep")),
    ("changed", (8, 4, 4096, None, "full", True, "16B", "flex", "deepep")),
)
def test_a_registry_is_read_from_its_syntax_tree(function: str, expected: tuple[object, ...]) -> None:
    job = parse_job(REGISTRY, command=function)
    names = ("expert_model_parallel_size", "micro_batch_size", "seq_length", "context_parallel_size", "recompute_granularity")
    names = (*names, "torch_compile", "model_flavor", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend")
    if function == "2":  # its class has a default for what it leaves out
        expected = (job.get("expert_model_parallel_size"), *expected[1:])
    assert told(job, *names) == expected
    assert any("elsewhere() changes" in note for note in job.notes) == (function == "changed")


def test_of_several_functions_one_is_chosen_and_nothing_is_run(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(JobFileError, match="3 configurations") as caught:
        parse_job(REGISTRY + f"\nopen({str(gone)!r}, 'w')\n")
    assert "1 small, 2 small_long, 3 changed" in caught.value.next_step
    assert not gone.exists()
    with pytest.raises(JobFileError, match="holds no configuration 9"):
        parse_job(REGISTRY, command="9")


@for_each("line", "a = f(a)\n    return C(x=a)", "a = {**a}\n    return f(**a)", "a = [a]\n    return C(x=a)", "a = small()\n    return a")
def test_names_that_stand_for_themselves_end(line: str) -> None:
    text = f"from torchtitan.trainer import Trainer\n\ndef small() -> Trainer.Config:\n    {line}\n"
    assert parse_job(text).get("num_layers") is None


def test_a_saved_configuration_tells_what_the_code_did_not() -> None:
    job = parse_job(json.dumps(SAVED, indent=2))
    names = ("tensor_model_parallel_size", "sequence_parallel", "micro_batch_size", "global_batch_size", "num_layers", "num_moe_experts")
    assert told(job, *names, "recompute_granularity", "model_flavor") == (2, True, 4, None, 2, 8, "full", "16B")
    assert (job.format, job.unknown) == ("torchtitan", ())


def test_a_command_lies_on_the_registry_beside_it_or_says_that_it_is_not_there(tmp_path: Path) -> None:
    script = "MODULE=small NGPU=16 CONFIG=small ./run_train.sh --parallelism.tensor_parallel_degree 4 --compile.no-enable activation-checkpoint:none"
    (tmp_path / "run.sh").write_text(script + "\n")
    alone = read_job(tmp_path / "run.sh")
    names = ("tensor_model_parallel_size", "world_size", "torch_compile", "recompute_granularity", "expert_model_parallel_size")
    assert told(alone, *names) == (4, 16, False, "none", None)
    assert any("it is not beside the script" in note for note in alone.notes)
    assert not any(one.source == "default" for one in alone.settings.values())
    folder = tmp_path / "torchtitan" / "models" / "small"
    folder.mkdir(parents=True)
    (folder / "config_registry.py").write_text(REGISTRY)
    whole = read_job(tmp_path / "run.sh")
    assert told(whole, *names, "context_parallel_size") == (4, 16, False, "none", 8, 1)
    assert whole.settings["expert_model_parallel_size"].place == "line 15 of torchtitan/models/small/config_registry.py"


def test_pipeline_stages_cut_a_ranks_batch_as_torchtitan_does() -> None:
    text = "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = {}\n"
    assert parse_job(text.format(2)).get("micro_batch_size") == 1
    assert parse_job(text.format(1)).get("micro_batch_size") == 8


# --- DeepSpeed, Accelerate, Hugging Face --------------------------------------------------------------------------------


def test_a_configuration_of_deepspeed() -> None:
    job = parse_job(json.dumps(ZERO))
    names = ("micro_batch_size", "bf16", "num_microbatches", "use_distributed_optimizer", "data_parallel_sharding_strategy", "bucket_size")
    assert told(job, *names) == (None, None, 4, True, "optim_grads_params", 500_000_000)
    assert told(job, "overlap_grad_reduce", "optimizer_cpu_offload") == (True, True)
    assert (job.format, job.unknown, len(job.notes)) == ("deepspeed", (), 1)
    assert checked(job).results == ()
    assert parse_job('{"train_batch_size": 8, "fp16": {"enabled": true}, "banana": 1}').unknown == ("banana",)


def test_a_configuration_of_accelerate_and_the_file_that_it_names(tmp_path: Path) -> None:
    job = parse_job(LAUNCH + "fsdp_config: {fsdp_activation_checkpointing: true}\nparallelism_config: {parallelism_config_cp_size: 4}\n")
    assert told(job, "world_size", "bf16", "recompute_granularity", "context_parallel_size") == (16, True, "full", 4)
    assert parse_job("distributed_type: 'NO'\nmixed_precision: no\nnum_processes: 1\n").get("bf16") is None
    (tmp_path / "zero.json").write_text(json.dumps(ZERO))
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {deepspeed_config_file: NAME}\n"
    (tmp_path / "here.yaml").write_text(text.replace("NAME", "zero.json"))
    (tmp_path / "away.yaml").write_text(text.replace("NAME", "gone.json"))
    assert read_job(tmp_path / "here.yaml").get("data_parallel_sharding_strategy") == "optim_grads_params"
    assert any("gone.json" in note for note in read_job(tmp_path / "away.yaml").notes)


def test_overrides_lie_on_the_configuration_file_that_they_name(tmp_path: Path) -> None:
    script = "CONFIG_FILE=./NAME ./run_train.sh --parallelism.tensor_parallel_degree 4"
    (tmp_path / "base.toml").write_text("[training]\nseq_len = 2048\n[parallelism]\ntensor_parallel_degree = 2\n")
    job = parse_job(script.replace("NAME", "base.toml"), folder=tmp_path)
    assert told(job, "seq_length", "tensor_model_parallel_size") == (2048, 4)
    away = parse_job(script.replace("NAME", "gone.toml"), folder=tmp_path)
    assert told(away, "seq_length", "tensor_model_parallel_size") == (None, 4)
    assert any("gone.toml is not beside the script" in note for note in away.notes)


@for_each(
    "command",
    "accelerate launch --config_file launch.yaml train.py --config train.yaml --max_grad_norm 0.5",
    "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed zero.json --per_device_train_batch_size 4 --bf16 True --max_grad_norm=0.5 --gradient_accumulation_steps 2",
    "FORCE_TORCHRUN=1 torchrun --nnodes 2 --nproc-per-node 8 train.py --model_name_or_path a/b --per_device_train_batch_size 4 --bf16 --max_grad_norm 0.5 --gradient_accumulation_steps 2",
)
def test_arguments_of_the_trainer_with_what_lies_around_them(command: str, tmp_path: Path) -> None:
    (tmp_path / "launch.yaml").write_text(LAUNCH)
    (tmp_path / "zero.json").write_text(json.dumps({**ZERO, "gradient_accumulation_steps": "auto"}))
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: a/b\nper_device_train_batch_size: 4\nbf16: true\ngradient_accumulation_steps: 2\nmax_grad_norm: 1.0\n"
    )
    (tmp_path / "run.sh").write_text(command + "\n")
    job = read_job(tmp_path / "run.sh")
    assert told(job, "world_size", "micro_batch_size", "bf16", "clip_grad", "num_microbatches") == (16, 4, True, 0.5, 2)
    assert job.get("use_distributed_optimizer") is (True if "zero.json" in command else None)
    assert (job.format, job.unknown) == ("hugging-face", ())
    assert not any(one.source == "default" for one in job.settings.values())
    (tmp_path / "run.sh").write_text(command.replace("train.yaml", "gone.yaml").replace("zero.json", "gone.json") + "\n")
    lost = [note for note in read_job(tmp_path / "run.sh").notes if "gone." in note]
    assert [note.endswith("what it sets is not known") for note in lost] == [True] * ("gone" in (tmp_path / "run.sh").read_text())


@for_each(
    "arguments, noted",
    ("--training.seq_len=4 $MORE", True), ("--module=small $MORE", True), ("--training.seq_len 4 $MORE", True),
    ("$MORE --training.seq_len 4", True), ("--training.seq_len=$LENGTH", False), ("--training.seq_len $LENGTH", False),
)  # fmt: skip
def test_what_may_hold_more_overrides_of_torchtitan_is_told(arguments: str, noted: bool) -> None:
    job = parse_job(f"MODULE=small CONFIG=small ./run_train.sh --parallelism.tensor_parallel_degree 2 {arguments}\n")
    assert any("may hold more overrides" in note for note in job.notes) == noted


@for_each("version", 1, 2)
def test_the_version_of_fsdp_is_the_trainers_whatever_the_launcher_says(version: int, tmp_path: Path) -> None:
    launch = f"distributed_type: FSDP\nfsdp_config: {{fsdp_version: {version}, fsdp_activation_checkpointing: true}}\nnum_processes: 8\n"
    (tmp_path / "launch.yaml").write_text(launch)
    arguments = "--model_name_or_path a/b --per_device_train_batch_size 4 --output_dir x"
    (tmp_path / "run.sh").write_text(f"accelerate launch --config_file launch.yaml train.py {arguments}\n")
    assert told(read_job(tmp_path / "run.sh"), "world_size", "fsdp_version") == (8, None)


def test_what_arguments_mean_is_not_what_settings_of_their_names_are() -> None:
    lines = (
        "base_model: a/b", "micro_batch_size: 2", "sequence_len: 4096", "optimizer: adamw_bnb_8bit", "fp8: true", "bf16: auto",
        "output_dir: x",
    )  # fmt: skip
    job = parse_job("\n".join(lines) + "\n")
    assert told(job, "micro_batch_size", "optimizer", "fp8", "bf16", "seq_length") == (2, "adam", None, None, None)
    assert parse_job("\n".join((*lines, "sample_packing: true"))).get("seq_length") == 4096
    assert [parse_job("\n".join((*lines, *more))).get("torch_compile") for more in ([], ["torch_compile: auto"])] == [False, None]


# --- commands -----------------------------------------------------------------------------------------------------------

TWO = "TP=1 bash ./train_one.sh --num-layers 4\nTP=2 bash ./train_one.sh --num-layers 4\n"


def test_one_of_several_commands_is_chosen_by_its_number() -> None:
    with pytest.raises(JobFileError, match="several training commands") as caught:
        parse_job(TWO)
    assert "--command: 1 (line 1, train_one.sh), 2 (line 2, train_one.sh)" in caught.value.next_step
    assert parse_job(TWO, command="2").get("num_layers") == 4
    with pytest.raises(JobFileError, match="holds no training command 3"):
        parse_job(TWO, command="3")


@for_each(
    "script, expected, shown",
    ("#SBATCH --nodes=4 --ntasks-per-node=8\nsrun python", 32, "#SBATCH --nodes × --ntasks-per-node"),
    ("#SBATCH -N 2\n#SBATCH --gres=gpu:h100:8\nsrun torchrun --nnodes $SLURM_NNODES --nproc-per-node $SLURM_GPUS_ON_NODE", 16, "torchrun"),
    ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\nsrun python", None, ""),
    ("#SBATCH --nodes=2\nsrun -N 4 --ntasks-per-node=8 python", 32, "srun --nodes"),
    ("#SBATCH --ntasks=16\nsrun python", 16, "#SBATCH --ntasks"),
    ("#SBATCH --ntasks=2\nsrun python", 2, "#SBATCH --ntasks"),
    ("#SBATCH --ntasks=16\nsrun -n 8 python", 8, "srun --ntasks"),
    ("#SBATCH --ntasks=16 --ntasks-per-node=8\nsrun --nodes 4 python", 32, "srun --nodes"),
    ("#SBATCH --ntasks=16 --nodes=4\nsrun --ntasks-per-node=8 python", 32, "srun --nodes"),
    ("#SBATCH --ntasks=4 --nodes=4\nsrun python", None, ""),  # one to a node, which may start more
    ("#SBATCH --ntasks=5 --nodes=4\nsrun python", 5, "#SBATCH --ntasks"),
    ("srun -n 1 python", None, ""),
    ("mpirun -np 16 python", 16, "mpirun"),
    ("mpirun python", None, ""),
    ("deepspeed --num_gpus 8", None, ""),
    ("#SBATCH --nodes=4 --ntasks-per-node=8\nsrun ./setup.sh\npython", None, ""),
)
def test_the_scheduler_tells_the_ranks_and_it_is_said_where(script: str, expected: int | None, shown: str) -> None:
    job = parse_job(f"#!/bin/bash\n{script} pretrain.py --num-layers 4 --tensor-model-parallel-size 2\n")
    assert job.get("world_size") == expected
    assert expected is None or job.settings["world_size"].key.startswith(shown)


# --- files below others -------------------------------------------------------------------------------------------------


def test_a_configuration_lies_on_the_files_that_its_defaults_name(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "defaults: [gone.yaml]\npolicy:\n  train_micro_batch_size: 2\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4, recompute_granularity: full, activation_checkpointing: false}\n"
    )
    (tmp_path / "top.yaml").write_text("defaults: base.yaml\npolicy:\n  megatron_cfg: {tensor_model_parallel_size: 8}\n")
    (tmp_path / "run.sh").write_text("python run_grpo.py --config top.yaml policy.train_micro_batch_size=1\n")
    job, over = read_job(tmp_path / "top.yaml"), read_job(tmp_path / "run.sh")
    assert told(job, "tensor_model_parallel_size", "micro_batch_size", "recompute_granularity") == (8, 2, "none")
    assert job.settings["micro_batch_size"].place == "line 3 of base.yaml"
    assert any("gone.yaml" in note for note in job.notes)
    assert told(over, "tensor_model_parallel_size", "micro_batch_size") == (8, 1)


def test_overrides_in_a_file_lie_below_those_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "over.yaml").write_text("model: {tensor_model_parallel_size: 4}\ntrain: {micro_batch_size: 2}\n")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 run.py --config-file over.yaml train.micro_batch_size=1\n")
    job = read_job(tmp_path / "run.sh")
    assert told(job, "tensor_model_parallel_size", "micro_batch_size", "world_size") == (4, 1, 8)
    alone = read_job(tmp_path / "over.yaml")
    assert alone.notes
    assert not any(one.source == "default" for one in alone.settings.values())


def test_a_recipe_of_megatron_bridge_is_read_from_its_function() -> None:
    text = """from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.recipes.common import _pretrain_common


def small_pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("a/b").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.moe_flex_dispatcher_backend = "deepep"
    cfg.train.micro_batch_size = 1
    return cfg
"""
    job = parse_job(text)
    assert told(job, "tensor_model_parallel_size", "moe_flex_dispatcher_backend", "micro_batch_size", "model_name") == (
        4, "deepep", 1, "a/b",
    )  # fmt: skip
    assert any("_pretrain_common() is not known" in note for note in job.notes)
    assert not any(one.source == "default" for one in job.settings.values())


RECIPE = """from megatron.bridge.training.config import ConfigContainer
NUMBER = 4

def small_config(size=4) -> ConfigContainer:
    cfg = base()
    cfg.model.num_layers = 7
    n = 7
"""


def layers(*body: str) -> object:
    """What a recipe leaves as its number of layers; None where that is not known."""
    return parse_job(RECIPE + "".join(f"    {line}\n" for part in body for line in part.splitlines()) + "    return cfg\n").get(
        "num_layers"
    )


@for_each("written", "2 + 2", "9 - 5", "2 * 2", "9 // 2", "2 ** 2", "-(-4)", "(4)", "NUMBER", "size", "NUMBER + size * 2 - 8", "True + 3")
def test_a_recipe_s_numbers_are_calculated_as_python_does(written: str) -> None:
    assert eval(written, {"NUMBER": 4, "size": 4}) == 4  # noqa: S307 - of the lines above
    assert layers(f"cfg.model.num_layers = {written}") == 4


@for_each("written", "8 / 2", "4 // 0", "4 if size else 5", "int('4')", "2 ** 64", "'4' + ''", "n[0]", "other", "size.x", "lambda: 4")
def test_what_a_recipe_calculates_otherwise_is_not_known(written: str) -> None:
    assert layers(f"cfg.model.num_layers = {written}") is None


SET = "cfg.model.num_layers = 4"
UNSURE = (
    *(f"if size:\n    {SET}", f"if size:\n    pass\nelse:\n    {SET}", f"while size:\n    {SET}"),
    *(f"for n in []:\n    {SET}", f"for n in []:\n    pass\nelse:\n    {SET}", f"match size:\n    case 4:\n        {SET}"),
    *(
        f"try:\n    {SET}\nexcept E:\n    pass",
        f"try:\n    pass\nexcept E:\n    {SET}",
        f"try:\n    pass\nexcept E:\n    pass\nelse:\n    {SET}",
    ),
    "cfg.model.num_layers += 1",
    *(
        f"{line}\ncfg.model.num_layers = n"
        for line in ("n += 1", "if size:\n    n = 4", "for n in [4]:\n    pass", "with f() as n:\n    pass")
    ),
    *(f"{line}\ncfg.model.num_layers = n" for line in ("n, m = f()", "n, *m = 4, 5, 6")),
)


@for_each("statement", *UNSURE)
def test_what_a_recipe_may_set_is_not_known(statement: str) -> None:
    assert layers(statement) is None


@for_each(
    "statement",
    *(
        SET,
        "cfg.model.num_layers: int = 4",
        f"with f():\n    {SET}",
        f"try:\n    pass\nfinally:\n    {SET}",
        "m = cfg.model\nm.num_layers = 4",
    ),
    *("setattr(cfg.model, 'num_layers', 4)", "n = 4\ncfg.model.num_layers = n", "m, n = 5, 4\ncfg.model.num_layers = n"),
    *("cfg.model.num_layers, m = 4, 5", "cfg.train.x = cfg.model.num_layers = 4", "cfg.model.num_layers += 1\ncfg.model.num_layers = 4"),
)
def test_what_a_recipe_sets_last_holds(statement: str) -> None:
    assert layers(statement) == 4


def test_a_recipe_s_own_function_is_read_with_the_arguments_that_it_is_called_with() -> None:
    recipe = """def model_config(tensor: int = 4, stages: int = 2, sequence: bool = True, *, experts: int = 8) -> Qwen3Provider:
    cfg = Qwen3Provider(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=stages, sequence_parallel=sequence, expert_model_parallel_size=experts
    )
    cfg.recompute_granularity = "full"
    return cfg

def pretrain_config(tensor: int = 2, stages: int = 1) -> ConfigContainer:
    model = model_config(tensor=tensor, stages=ranks(), sequence=False)
    model.seq_length = 4096
    return ConfigContainer(model=model, train=TrainingConfig(micro_batch_size=2))
"""
    job = parse_job(recipe)
    told = {
        "tensor_model_parallel_size": 2,
        "sequence_parallel": False,
        "expert_model_parallel_size": 8,
        "recompute_granularity": "full",
        "seq_length": 4096,
        "micro_batch_size": 2,
        "pipeline_model_parallel_size": None,  # what ranks() gives
    }
    assert {name: job.get(name) for name in told} == told
    assert "pipeline_model_parallel_size" in job.unresolved


def test_a_recipe_that_a_command_names_is_read_from_the_package_beside_it(tmp_path: Path) -> None:
    """As Megatron-Bridge loads it: the benchmark's function before the library's of the same name, options of the command over both."""
    files = {
        "perf_recipes/qwen/h100/qwen3_moe.py": """from megatron.bridge.perf_recipes.qwen.common import _benchmark, base_config
from megatron.bridge.training.flex import apply_backend
def small_config() -> ConfigContainer:
    cfg = base_config()
    cfg.model.moe_flex_dispatcher_backend = "deepep"
    cfg.model.moe_token_dispatcher_type = "alltoall"
    _benchmark(cfg, "te")
    apply_backend(cfg.model, cfg.model.moe_flex_dispatcher_backend)
    tuned(cfg)
    return cfg
""",
        "perf_recipes/qwen/common.py": """from megatron.bridge.recipes.qwen import library_config as base_config
def _benchmark(cfg: ConfigContainer, implementation: str) -> None:
    cfg.train.manual_gc = True
    cfg.ddp.grad_reduce_in_fp32 = cfg.train.quick = False
    if implementation == "te":
        cfg.model.use_te_rng_tracker = True
""",
        "recipes/qwen.py": """def library_config() -> ConfigContainer:
    cfg = ConfigContainer(model=None, train=TrainingConfig(micro_batch_size=1))
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.seq_length = 4096
    cfg.dataset.seq_length = 8192
    return cfg
def small_config() -> ConfigContainer:
    cfg = library_config()
    cfg.model.tensor_model_parallel_size = 16
    return cfg
""",
        "training/flex.py": """def apply_backend(model, backend):
    if backend is None:
        return
    model.moe_token_dispatcher_type = "flex"
""",
    }
    for name, text in files.items():
        path = tmp_path / "src/megatron/bridge" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from megatron.bridge.training.config import ConfigContainer\n" + text, encoding="utf-8")
    script = tmp_path / "scripts/training/go.sh"
    script.parent.mkdir(parents=True)
    script.write_text(
        "torchrun --nproc_per_node 8 run_recipe.py --recipe small_config -mb 2 model.sequence_parallel=true\n", encoding="utf-8"
    )
    job = read_job(script)
    assert told(job, "tensor_model_parallel_size", "micro_batch_size", "sequence_parallel", "manual_gc", "grad_reduce_in_fp32") == (
        4, 2, True, True, False,
    )  # fmt: skip
    assert told(job, "seq_length", "moe_flex_dispatcher_backend") == (8192, "deepep"), "the dataset's length is the model's"
    assert told(job, "moe_token_dispatcher_type", "use_te_rng_tracker") == (None, None), "what stands under a condition is not known"
    assert any("what tuned() changes in it is not known" in note for note in job.notes)
    script.write_text("python run_recipe.py --recipe absent_config -mb 2\n", encoding="utf-8")
    assert any("the recipe absent_config decides what this command line leaves out" in note for note in read_job(script).notes)


def test_layers_to_offload_switch_the_offload_on_only_where_nothing_else_does() -> None:
    assert parse_job("--num-layers 8\n--cpu-offloading-num-layers 4\n").get("cpu_offloading") is True
    assert parse_job("--num-layers 8\n").get("cpu_offloading") is False
    recipe = "def one_config() -> ConfigContainer:\n    cfg = base()\n    cfg.model.cpu_offloading_num_layers = 95\n    return cfg\n"
    assert parse_job(recipe).get("cpu_offloading") is None, "Megatron-Bridge has a switch of its own"


@for_each("value, expected", ("-1", ("1",)), ("([0]*2+[1]*2)", ("0", "0", "1", "1")), ("[1]*999999999", None), ("__import__('os')", None))
def test_a_frequency_of_experts_in_no_known_form_is_unknown_and_refuses_nothing(value: str, expected: tuple[str, ...] | None) -> None:
    job = parse_job(f"--num-layers 4\n--moe-layer-freq {value}\n")
    assert (job.get("moe_layer_freq"), job.get("num_layers")) == (expected, 4)
    assert bool(job.notes) == (expected is None)


def test_the_formats_of_hugging_face_and_deepspeed_take_none_of_megatrons_assertions() -> None:
    for name, defaults in (("deepspeed", "none"), ("accelerate", "none"), ("hugging-face", "own")):
        assert TABLE.formats[name].defaults == defaults
