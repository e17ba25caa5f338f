"""What job files collected blind showed that was read wrongly: each case stands for a public file that the readers had not seen."""

from pathlib import Path

from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read_job

FLAGS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4"


def test_overrides_behind_the_configuration_of_llama_factory_count(tmp_path: Path) -> None:
    """SachinKonan/LLaMA-Factory-AutoReviewer …/text_bz64_ailab.sbatch; LLaMA-Factory src/llamafactory/hparams/parser.py."""
    (tmp_path / "sft.yaml").write_text(
        "stage: sft\nfinetuning_type: full\nmodel_name_or_path: x\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n"
    )
    (tmp_path / "run.sh").write_text(
        "BATCH=4\naccelerate launch --num_processes 4 src/train.py sft.yaml \\\n"
        '  per_device_train_batch_size="${BATCH}" learning_rate="${LRS[$SLURM_ARRAY_TASK_ID]}" \\\n'
        "  'lr_scheduler_kwargs={\"decay_ratio\": 0.75}'\n"
    )
    job = read_job(tmp_path / "run.sh")
    assert (job.get("micro_batch_size"), job.get("gradient_accumulation_steps"), job.get("world_size")) == (4, 4, 4)


@for_each("own, expected", ("--bf16 True", (True, False)), ("--fp16 True", (False, True)), ("", (False, True)))
def test_the_trainers_own_precision_replaces_the_launchers(own: str, expected: tuple[bool, bool]) -> None:
    """OpenThaiGPT/openthaigpt-pretraining …/smultinode_deepspeed.sh; transformers training_args.py, TrainingArguments.__post_init__."""
    job = parse_job(f"accelerate launch --mixed_precision fp16 train.py --per_device_train_batch_size 1 --model_name_or_path x {own}\n")
    assert (job.get("bf16"), job.get("fp16")) == expected


def test_older_brackets_of_a_calculation_are_read() -> None:
    """DAMO-NLP-SG/VideoLLaMA3 scripts/train/stage1_2b.sh: $[ … ] is bash's older $(( … ))."""
    job = parse_job(
        f"TP=$[8/(2*2)]\npython pretrain_gpt.py {FLAGS} --tensor-model-parallel-size $TP --micro-batch-size $[ $TP*2 ] "
        '--global-batch-size "$[${TP}*8]"\n'
    )
    assert (job.get("tensor_model_parallel_size"), job.get("micro_batch_size"), job.get("global_batch_size")) == (2, 4, 16)


@for_each("condition", '[[ "$1" != "" ]]', '[ -n "$1" ]', "[[ $1 ]]", '[ ! -z "$1" ]', '[ "$1" ]')
def test_a_loop_that_asks_for_the_next_argument_is_one_over_the_arguments(condition: str) -> None:
    """QwenLM/Qwen finetune/finetune_lora_ds.sh."""
    job = parse_job(
        f"TP=2\nwhile {condition}; do\n  case $1 in\n    --tp ) shift; TP=$1 ;;\n    * ) exit 1 ;;\n  esac\n  shift\ndone\n"
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {FLAGS} --tensor-model-parallel-size $TP\n"
    )
    assert job.get("tensor_model_parallel_size") == 2


def test_a_comment_between_continued_lines_ends_the_command_and_is_told() -> None:
    """montehoover/verl examples/grpo_trainer/run_qwen3_vl-30b-megatron.sh: bash ends the command at the line behind the comment."""
    job = parse_job(
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {FLAGS} \\\n  --tensor-model-parallel-size 2 \\\n  # more\n"
        "  --pipeline-model-parallel-size 4 \\\n  --bf16\n"
    )
    assert (job.get("tensor_model_parallel_size"), job.settings["pipeline_model_parallel_size"].source) == (2, "default")
    assert "line 4: --pipeline-model-parallel-size begins a command of its own: the comment before it ends the one above" in job.notes
    whole = parse_job(f"python pretrain_gpt.py {FLAGS} \\\n  --bf16 \\\n  # more\n\necho done\n")
    assert not any("begins a command" in one for one in whole.notes)


@for_each("given, expected", ("localhost:0,1,2,3", 4), ("localhost:0-7", None), ("worker-0@worker-1:0,2", None), ("localhost", None))
def test_deepspeed_counts_the_devices_that_it_is_to_include(given: str, expected: int | None) -> None:
    """OpenBMB/MiniCPM …/lora_finetune.sh; DeepSpeed deepspeed/launcher/runner.py, parse_inclusion_exclusion."""
    job = parse_job(f"deepspeed --include {given} finetune.py --model_name_or_path x --per_device_train_batch_size 2\n")
    assert job.get("world_size") == expected
