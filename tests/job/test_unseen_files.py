"""What job files collected blind showed that was read wrongly: each case stands for a public file that the readers had not seen."""

from pathlib import Path

import pytest

from diagnose.errors import JobFileError
from tests.builders.advised import checked, patched
from tests.builders.cases import for_each
from tests.builders.facts import BOOK
from tests.builders.jobs import FLAGS, parse_job, read_job


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
    assert "line 3: the loop over the script's arguments is read as if there were none" in job.notes


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


NEMO = (
    "torchrun /opt/NeMo-Aligner/examples/nlp/gpt/train_gpt_sft.py trainer.precision=bf16 trainer.num_nodes=4 trainer.devices=8 "
    "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=4 model.context_parallel_size=2 "
    "model.activations_checkpoint_granularity=selective model.data.train_ds.micro_batch_size=1 model.data.train_ds.global_batch_size=32 "
    "model.data.validation_ds.global_batch_size=4 exp_manager.create_wandb_logger=False\n"
)


def test_a_command_line_of_nemo_1_has_the_ranks_of_its_trainer() -> None:
    """NVIDIA-NeMo/Run examples/dgxcloud/sft-finetune/sft-finetune-llama3.1-70b.sh: "will fail" on one rank was said of a job on 32."""
    job = parse_job(NEMO)
    read = ("world_size", "bf16", "context_parallel_size", "micro_batch_size", "global_batch_size", "recompute_granularity")
    assert (job.format, [job.get(name) for name in read]) == ("nemo", [32, True, 2, 1, 32, "selective"])
    assert not checked(job).failed


def test_what_nemo_takes_from_the_environment_is_read_at_its_fallback() -> None:
    """mlcommons/training_results_v5.1 …/megatron_gpt_peft_tuning_config.yaml: fp8 from a variable was read as none."""
    text = (
        "trainer: {devices: '${oc.decode:${oc.env:DGXNGPU,8}}', precision: '${oc.decode:${oc.env:PRECISION,bf16-mixed}}'}\n"
        "exp_manager: {name: x}\nmodel:\n  tensor_model_parallel_size: ${oc.decode:${oc.env:TP,4}}\n"
        "  sequence_parallel: ${oc.decode:${oc.env:SP,False}}\n  fp8: ${oc.decode:${oc.env:FP8}}\n"
        "  fp8_dot_product_attention: ${oc.decode:${oc.env:FP8_DPA,0}}\n"
    )
    job = parse_job(text)
    read = ("tensor_model_parallel_size", "sequence_parallel", "bf16", "world_size", "fp8", "fp8_dot_product_attention")
    assert [job.get(name) for name in read] == [4, False, True, None, None, False]
    assert ("fp8" in job.unresolved, job.settings["tensor_model_parallel_size"].assumed) == (True, True)
    assert [(one.variable, one.value, one.line) for one in job.defaults][-3:-1] == [("TP", "4", 4), ("SP", "False", 5)]


def test_torchrun_without_a_number_of_processes_may_take_it_from_its_environment() -> None:
    """PET_NPROC_PER_NODE, which the operators of Kubernetes set (torch/distributed/argparse_util.py): nothing is told on one rank."""
    job = parse_job(f"torchrun pretrain_gpt.py {FLAGS} --tensor-model-parallel-size 4\n")
    assert job.settings["world_size"].assumed
    assert not checked(job).failed
    assert checked(f"torchrun --nproc_per_node 1 pretrain_gpt.py {FLAGS} --tensor-model-parallel-size 4\n").failed


def test_several_documents_are_no_wrong_yaml() -> None:
    with pytest.raises(JobFileError, match="holds several YAML documents"):
        parse_job("a: 1\n---\nb: 2\n")


def test_mindspeed_rl_hands_the_actors_arguments_to_megatron_over_the_model_that_they_name(tmp_path: Path) -> None:
    """Ascend/MindSpeed-RL configs/dapo_qwen3_30b_a3b_A3.yaml; cli/train_dapo.py and mindspeed_rl/config_cls/base_config.py."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "small.yaml").write_text(
        "small:\n  num_layers: 48\n  num_experts: 128\n  moe_token_dispatcher_type: alltoall_seq\n"
    )
    file = tmp_path / "grpo.yaml"
    file.write_text(
        "megatron_training: {model: small, bf16: true, global_batch_size: 32, sequence_parallel: true, micro_batch_size: 4}\n"
        "actor_config: {model: small, micro_batch_size: 1, tensor_model_parallel_size: 4, expert_model_parallel_size: 2, no_load_optim: false}\n"
        "ref_config: {model: small, micro_batch_size: 8}\nrl_config: {actor_resource: {num_npus: 16}, mini_batch_size: 32}\n"
    )
    job = read_job(file)
    told = {
        "num_layers": 48, "num_moe_experts": 128, "moe_token_dispatcher_type": "alltoall_seq", "bf16": True, "global_batch_size": 32,
        "micro_batch_size": 1, "tensor_model_parallel_size": 4, "expert_model_parallel_size": 2, "sequence_parallel": True, "world_size": 16,
    }  # fmt: skip
    assert (job.format, {name: job.get(name) for name in told}) == ("megatron-arguments", told)
    assert job.settings["num_layers"].place == "line 2 of small.yaml"


def test_keys_outside_of_sections_of_verls_older_supervised_trainer_are_read() -> None:
    """LLM360/Reasoning360 recipe/retool/run_qwen2.5_32b_sp8.sh; verl/trainer/fsdp_sft_trainer.py."""
    job = parse_job(
        "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=128 data.micro_batch_size_per_gpu=4 \\\n"
        "  model.fsdp_config.cpu_offload=true trainer.total_epochs=12 $@ \\\n  ulysses_sequence_parallel_size=8 use_remove_padding=true\n"
    )
    read = ("global_batch_size", "micro_batch_size", "context_parallel_size", "optimizer_cpu_offload")
    assert [job.get(name) for name in read] == [128, 4, 8, True]


def test_a_configuration_of_deepspeed_that_the_script_writes_itself_is_read() -> None:
    """bigscience-workshop/bigscience experiments/gpt2-hf-ds/hf_ds_gpt2_base_n16.slurm."""
    script = (
        'config_json="./ds.json"\nSTAGE=3\ncat <<EOT > $config_json\n{\n  "zero_optimization": {"stage": $STAGE, "overlap_comm": true,\n'
        '    "offload_optimizer": {"device": "cpu"}},\n  "gradient_accumulation_steps": "auto"\n}\nEOT\n'
        'CMD="run_clm.py --model_name_or_path x --per_device_train_batch_size 4 --deepspeed $config_json"\n'
        "srun bash -c 'torchrun --nproc_per_node 4 $CMD'\n"
    )
    job = parse_job(script)
    read = ("data_parallel_sharding_strategy", "optimizer_cpu_offload", "overlap_grad_reduce", "micro_batch_size")
    assert [job.get(name) for name in read] == ["optim_grads_params", True, True, 4]
    assert job.settings["overlap_grad_reduce"].place == "line 2 of ds.json, which job file writes"
    assert parse_job(script.replace("STAGE=3", "read STAGE")).get("overlap_grad_reduce") is None


def _told(text: str, name: str, fix: str) -> tuple[str, list[str], list[str]]:
    """The patched text, what is to be given at launch, and the keys that are left to a person."""
    done = patched(text, fix, source=name, finding="x")
    report = done.report
    return done.text, [*report.own_overrides, *report.bridge_overrides, *report.megatron_flags], [one.key for one in report.left_to_you]


@for_each("workers, written", ("0", False), ("null", False), ("4", True))
def test_workers_that_stay_are_asked_of_a_loader_that_has_workers(workers: str, written: bool) -> None:
    """yangjianxin1/Firefly train_args/sft/qlora/qwen2-7b-sft-qlora.json: torch.utils.data.DataLoader raises without one, the default."""
    text = f'{{"per_device_train_batch_size": 1, "output_dir": "x", "dataloader_num_workers": {workers}}}\n'
    assert ("persistent_workers" in _told(text, "sft.json", "HOST-10")[0]) is written


def test_the_deepspeed_fork_is_told_no_flag_that_it_does_not_have() -> None:
    """bigscience-workshop/bigscience train/tr13-mtf/…: --overlap-grad-reduce ends in argparse's "unrecognized arguments"."""
    job = f"deepspeed pretrain_gpt.py {FLAGS} --seq-length 2048 --deepspeed --deepspeed_config ds.json\n"
    assert _told(job, "run.sh", "COM-10")[1:] == ([], ["zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients"])
    assert _told(job, "run.sh", "MEM-12")[1] == _told(job.replace("--deepspeed ", ""), "run.sh", "MEM-12")[1]
    known = {change.key for fix in BOOK.fixes.values() for change in fix.changes}
    assert set(BOOK.job.formats["megatron-deepspeed"].takes) <= known


VERL = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
    "actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 +actor_rollout_ref.actor.megatron.override_transformer_config.moe_permute_fusion=False "
    "+actor_rollout_ref.actor.megatron.override_transformer_config.moe_enable_deepep=True\n"
)
OF_VERL, OF_NEMO_RL = "actor_rollout_ref.actor.megatron.", "policy.megatron_cfg."
NEMO_RL = "python run_grpo.py policy.megatron_cfg.enabled=true policy.megatron_cfg.expert_model_parallel_size=8\n"


@for_each(
    "text, fix, told",
    (VERL, "CMP-02", [f"++{OF_VERL}override_transformer_config.moe_router_fusion=true"]),
    (VERL, "CMP-03", [f"{OF_VERL}override_transformer_config.moe_permute_fusion=true"]),  # it stands there already
    (VERL, "COM-10", [f"++{OF_VERL}override_ddp_config.overlap_grad_reduce=true"]),
    (VERL, "MEM-04", [f"++{OF_VERL}use_distributed_optimizer=true"]),
    (NEMO_RL, "CMP-02", [f"++{OF_NEMO_RL}model_overrides.moe_router_fusion=true"]),
    (NEMO_RL, "COM-10", [f"++{OF_NEMO_RL}distributed_data_parallel_config.overlap_grad_reduce=true"]),
    (NEMO, "COM-10", ["++model.optim.overlap_grad_sync=true"]),
    (NEMO.replace("context_parallel_size=2", "context_parallel_size=1"), "COM-10", ["++model.optim.overlap_grad_sync=true"]),
)
def test_a_program_that_hands_settings_to_megatron_is_told_them_in_its_own_keys(text: str, fix: str, told: list[str]) -> None:
    """montehoover/verl and NVIDIA-NeMo/Run: `ddp.overlap_grad_reduce=true` is no key of verl's or NeMo's, and Hydra refuses it."""
    assert _told(text, "run.sh", fix)[1] == told


def test_the_whole_configuration_of_verls_older_supervised_trainer_is_read() -> None:
    """hkust-nlp/simpleRL-reason verl/trainer/config/sft_trainer.yaml."""
    job = parse_job(
        "data: {train_batch_size: 256, micro_batch_size_per_gpu: 4, micro_batch_size: null}\nulysses_sequence_parallel_size: 2\n"
        "model: {partial_pretrain: x, enable_gradient_checkpointing: true, fsdp_config: {cpu_offload: false}}\noptim: {lr: 1e-5}\n"
    )
    read = ("global_batch_size", "micro_batch_size", "context_parallel_size", "recompute_granularity", "optimizer_cpu_offload")
    assert (job.format, [job.get(name) for name in read]) == ("verl-sft", [256, 4, 2, "full", False])


def test_a_section_called_model_beside_the_trainers_arguments_is_the_programs_own() -> None:
    """mlcommons/training retired_benchmarks/mixtral8x22b/config/experiment/convergence_template.yaml."""
    job = parse_job(
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nmodel:\n  dtype: bfloat16\n  fsdp_config: {min_num_params: 0}\n"
    )
    assert (job.format, job.get("micro_batch_size"), job.get("model_name")) == ("hugging-face", 1, None)


def test_values_that_are_another_keys_are_put_in() -> None:
    """RAGEN-AI/RAGEN config/base.yaml; NVIDIA/NeMo's max_position_embeddings: ${.encoder_seq_length}."""
    nemo = parse_job(
        "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nexp_manager: {name: x}\nmodel:\n  global_batch_size: 8\n  encoder_seq_length: 4096\n"
        "  max_position_embeddings: ${.encoder_seq_length}\n  hidden_size: ${a.missing}\n  data: {train_ds: {global_batch_size: '${model.global_batch_size}'}}\n"
    )
    assert (nemo.get("max_position_embeddings"), nemo.get("global_batch_size"), "hidden_size" in nemo.unresolved) == (4096, 8, True)
    verl = parse_job(
        "micro: 2\nsize: ${micro}\nactor_rollout_ref: {actor: {ppo_micro_batch_size_per_gpu: '${size}', megatron: {tensor_model_parallel_size: '${b}'}}}\nb: ${b}\n"
    )
    assert (verl.get("micro_batch_size"), verl.get("tensor_model_parallel_size")) == (2, None)


def test_numbers_as_python_writes_them_are_numbers() -> None:
    """OpenLLM-France/Lucie-Training chronicles/pretrain/2_extension/context_extension.slurm: --seq-length 32_000."""
    job = parse_job(f"python pretrain_gpt.py {FLAGS} --seq-length 32_000 --max-position-embeddings 131_072\n")
    assert (job.get("seq_length"), job.get("max_position_embeddings")) == (32000, 131072)
    with pytest.raises(JobFileError, match="expected int"):
        parse_job(f"python pretrain_gpt.py {FLAGS} --seq-length 32__000\n")


def test_processes_that_the_launcher_counts_itself_are_not_known() -> None:
    """NVIDIA/TensorRT-Model-Optimizer examples/llm_qat/accelerate_config/fsdp2.yaml: num_processes: gpu."""
    job = parse_job("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nnum_processes: gpu\nmixed_precision: bf16\n")
    assert (job.get("world_size"), job.get("bf16")) == (None, True)
    offload = parse_job("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu}\nnum_processes: 8\n")
    assert offload.get("optimizer_cpu_offload") is True


def test_flags_of_a_framework_that_is_not_read_are_not_megatrons_for_standing_in_a_variable() -> None:
    """RM-R1-UIUC/RM-R1 rm_r1/OpenRLHF/examples/scripts/train_conditional_llama.sh."""
    text = (
        'read -r -d "" sft_commands <<EOF\nopenrlhf.cli.train_sft --micro_train_batch_size 4 --zero_stage 3 --bf16 --seq-length 4096\nEOF\n'
    )
    with pytest.raises(JobFileError, match="is of OpenRLHF"):
        parse_job(text)
    assert parse_job("MODEL_ARGS=(\n  --num-layers 4 --bf16\n)\n").get("num_layers") == 4


@for_each(
    "more, split",
    ("--zero-stage 1", "optim"),
    ("--zero-stage 0", "no_shard"),
    ("--deepspeed_config ds.json --zero-stage 1", "optim_grads"),
    ("--deepspeed_config $CONFIG", None),
)
def test_what_zero_splits_in_megatron_deepspeed_is_read(tmp_path: Path, more: str, split: str | None) -> None:
    """bigscience-workshop/bigscience train/tr13-mtf/…/tr13f-6b3-mtf-xp3capmixlossseq.slurm."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}')
    (tmp_path / "run.sh").write_text(f"deepspeed pretrain_gpt.py {FLAGS} --micro-batch-size 4 --deepspeed {more}\n")
    job = read_job(tmp_path / "run.sh")
    assert (job.format, job.get("data_parallel_sharding_strategy")) == ("megatron-deepspeed", split)
    assert job.get("use_distributed_optimizer") == (None if split is None else split != "no_shard")


def test_arguments_that_make_deepspeeds_configuration_are_read() -> None:
    """01-ai/Yi finetune/scripts/run_sft_Yi_6b.sh; finetune/utils/ds_utils.py, get_train_ds_config."""
    text = "deepspeed main.py --model_name_or_path x --per_device_train_batch_size 1 --zero_stage 2 --deepspeed --offload\n"
    job = parse_job(text)
    assert (job.get("data_parallel_sharding_strategy"), job.get("optimizer_cpu_offload")) == ("optim_grads", True)
    assert parse_job(text.replace("--deepspeed ", "")).get("data_parallel_sharding_strategy") is None
