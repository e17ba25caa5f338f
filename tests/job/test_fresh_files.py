"""What job files of other laboratories showed that the readers took wrongly: each case stands for several public files."""

import re
from pathlib import Path

import pytest

from diagnose.errors import JobFileError, PatchRefusedError
from tests.builders.advised import checked, patched
from tests.builders.cases import for_each
from tests.builders.jobs import FLAGS, parse_job, read_job


@for_each(
    "text, title",
    ("model:\n  _component_: torchtune.models.llama3.llama3_8b\noptimizer:\n  lr: 1.0e-5\n", "torchtune"),
    ("model:\n  type: llama\n  num_layers: 32\ntrainer:\n  mp: p=f32,c=bfloat16\noptimizer:\n  lr: 1.0\n", "Levanter"),
    ("max_duration: 10ba\ntrain_loader:\n  name: text\nmodel:\n  name: mpt_causal_lm\n", "LLM Foundry"),
    ("parallelism:\n  dp: 2\n  tp: 2\n  pp: 1\nmodel:\n  dtype: bfloat16\noptimizer:\n  clip_grad: 1.0\n", "nanotron"),
    ("distributed:\n  fsdp_type: full_shard\nmodel:\n  dim: 1024\ncheckpoint:\n  dump: {every: 1}\n", "lingua"),
    ("train:\n  ulysses_parallel_size: 2\n  global_batch_size: 32\nmodel:\n  model_path: x\n", "VeOmni"),
    ("step_scheduler:\n  global_batch_size: 32\ndistributed:\n  tp_size: 1\nmodel:\n  torch_dtype: bfloat16\n", "NeMo Automodel"),
    ('max_steps = 20\nseq_len = 4096\n[model]\nname = "x"\n[orchestrator]\nbatch_size = 32\n', "prime-rl"),
    ("base_config: base.yml\nici_fsdp_parallelism: 8\nnum_layers: 4\n", "MaxText"),
    (
        '{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048}',
        "a Hugging Face model",
    ),
    ('{"traceEvents": [{"ph": "X", "name": "k"}], "displayTimeUnit": "ms"}', "PyTorch's profiler (a trace)"),
    ("apiVersion: v1\nkind: Pod\nspec:\n  containers: []\n", "Kubernetes"),
    ("from nemo.collections import llm\n\ndef recipe():\n    return llm.x()\n", "NeMo 2"),
    ("from olmo_core.train import TrainerConfig\n\ndef main():\n    return TrainerConfig()\n", "OLMo-core"),
    ("#!/bin/bash\nray job submit -- python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3\n", "OpenRLHF"),
    ('[policy]\nmodel_max_length = 512\n[policy.parallelism]\ntp_size = 8\n[train.train_policy]\ntype = "sft"\n', "Cosmos-RL"),
    ("train_cfgs: {bf16: true}\nmodel_cfgs: {model_max_length: 2048}\n", "Align-Anything"),
    ("model_name: LFM2\ntraining_type: moe_sft\ntraining_config: {moe_training: {expert_parallel_size: 4}}\n", "LEAP Finetune"),
    ("MM_TOOL_PATH: tools.json\ngpt_args: {tensor_model_parallel_size: 2}\n", "MindSpeed MM"),
    ("parallel: {fsdp_plan: {x: 1}}\ntraining: {micro_batch_size: 1}\n", "MindSpeed MM"),  # Kimsale/qwen3.5_35B_mindspeed
    ("out_dir: x\ntrain: {micro_batch_size: 4, lr_warmup_steps: 10}\n", "LitGPT"),  # Lightning-AI/litgpt config_hub
    ("model: {model_name: x}\ntraining: {trainer_type: TRL_SFT}\n", "Oumi"),
    ("cluster: {num_nodes: 1, component_placement: {actor: all}}\nactor: {micro_batch_size: 1}\n", "RLinf"),
    ("display_name: x\ninstance_types: [ml.p5.48xlarge]\ntraining_config: {}\n", "SageMaker HyperPod"),
    ("---\napiVersion: v1\nkind: ConfigMap\n---\napiVersion: kubeflow.org/v1\nkind: PyTorchJob\n", "Kubernetes"),  # fms-hf-tuning
    ("import nemo_run as run\nfrom megatron.bridge.recipes.llama import llama3_8b\n\ndef main():\n    pass\n", "NeMo-Run"),
)
def test_a_file_of_a_framework_that_is_not_read_is_refused_by_its_name(text: str, title: str) -> None:
    with pytest.raises(JobFileError, match=re.escape(f"is of {title}, which is not read as a job file")):
        parse_job(text)


NEOX = '{"pipe_parallel_size": %s, "model_parallel_size": 2, "num_layers": 44, "checkpoint_activations": true, "train_micro_batch_size_per_gpu": 4}'
HERE_DOCUMENT = f"""run=$(cat <<- EOM
  python pretrain_gpt.py \\
    {FLAGS} \\
    --bf16
EOM
)
echo "$run" > worker.sh
torchrun --nnodes="4" --nproc-per-node="8" --no-python bash worker.sh
"""
ARGUMENTS = f"""for para in $*; do
  case $para in --profiling*) profiling=${{para#*=}};; --backend*) backend=${{para#*=}};; esac
done
BACKEND=${{backend:-mpirun}}
APP="python -u pretrain_gpt.py --save ${{path}} {FLAGS}"
if [[ $profiling == "torch" ]]; then APP+=" --profile"; fi
if [[ "$BACKEND" == mpirun ]]; then ${{binding}} ${{APP}}; fi
"""
ENUMS = """model:
  num_layers: 2
  attention_backend: {_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [3]}
  attention_mask: {_target_: megatron.core.transformer.enums.AttnMaskType, _call_: true, _args_: [2]}
"""
ROLL = """num_gpus_per_node: 8
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2, use_distributed_optimizer: true}
  device_mapping: list(range(0,32))
actor_infer:
  strategy_args: {strategy_config: {tensor_parallel_size: 4}}
  device_mapping: list(range(0,24))
"""
SKYRL = (
    "uv run -m examples.train.main trainer.strategy=megatron trainer.placement.policy_num_nodes=2 "
    "trainer.placement.policy_num_gpus_per_node=8 trainer.policy.megatron_config.expert_model_parallel_size=8 "
    "trainer.policy.megatron_config.transformer_config_kwargs.recompute_granularity=full trainer.micro_train_batch_size_per_gpu=4\n"
)
SUPERVISED = (
    "uv run python -m skyrl.train.main_sft strategy=megatron megatron_config.tensor_model_parallel_size=2 placement.num_nodes=1 "
    "placement.num_gpus_per_node=8\n"
)
SWIFT = "megatron sft --tensor_model_parallel_size 2 --micro_batch_size 1 --max_length 8192 "


@for_each(
    "text, told",
    # scripts: a line that goes on in a here-document is one line, and a spoken text in a file is run
    (HERE_DOCUMENT, {"num_attention_heads": 4, "bf16": True, "world_size": 32}),
    # a line that goes on in gathered flags is no value
    (f"read -r -d '' CMD <<'EOM'\npretrain_gpt.py {FLAGS} \\\n --num-workers 2\nEOM\nexport CMD\n", {"hidden_size": 64}),
    # a loop over the arguments gives variables nothing, and what asks for them is answered
    (ARGUMENTS, {"num_layers": 4, "use_nsys_profiler": False, "tensor_model_parallel_size": 1}),
    # a program that is given no flag of the model or its layout has no defaults of Megatron
    (
        "torchrun --standalone --nproc-per-node 4 train_gpt.py --seq-length 1024 --device cuda\n",
        {"seq_length": 1024, "world_size": 4, "pipeline_model_parallel_size": None},
    ),
    # a switch of 1 is on, and a false one gives way to another name of the same argument
    (
        "system: {tensor_model_parallel_size: 2, sequence_parallel: 1, use_megatron_fsdp: true, use_custom_fsdp: false}\nmodel: {num_layers: 4}\n",
        {"sequence_parallel": True, "use_megatron_fsdp": True, "num_layers": 4},
    ),
    # false where none is the value is none, and a window may be one number
    ("model: {fp8: false, window_size: 512, num_layers: 2}\n", {"fp8": "none", "window_size": ("512",)}),
    # an interpolation is what its key says, and any other is not known
    ("model: {seq_length: 4096, num_layers: 2}\ndataset: {seq_length: '${model.seq_length}'}\n", {"seq_length": 4096}),
    (
        "dataset: {seq_length: '${art:data,size}'}\nmodel: {num_layers: 2, tensor_model_parallel_size: '${oc.env:TP}'}\n",
        {"seq_length": None, "tensor_model_parallel_size": None, "num_layers": 2},
    ),
    # a member of an enum that is saved by its number
    (ENUMS, {"attention_backend": "unfused"}),
    # a whole section by its name is an override of a recipe
    (
        "python run_recipe.py --recipe x_config mixed_precision=bf16_with_mxfp8_mixed train.micro_batch_size=1\n",
        {"fp8_recipe": "mxfp8", "bf16": True, "micro_batch_size": 1},
    ),
    # of two names of torchtitan's compilation the newer counts, for the other is not looked at
    ("[training]\nseq_len = 2048\ncompile = false\n[compile]\nenable = true\n", {"torch_compile": True}),
    # GPT-NeoX beside DeepSpeed's own keys; 0 and 1 are no pipeline
    (
        NEOX % 4,
        {"pipeline_model_parallel_size": 4, "tensor_model_parallel_size": 2, "num_layers": 44, "recompute_granularity": "full"},
    ),
    (NEOX % 0, {"pipeline_model_parallel_size": None}),
    # numbers of DeepSpeed inside the trainer's arguments may have a point
    (
        '{"per_device_train_batch_size": 1, "deepspeed": {"zero_optimization": {"stage": 3, "reduce_bucket_size": 50000000.0}}}',
        {"bucket_size": 50_000_000},
    ),
    # the roles that train
    (ROLL, {"world_size": 32, "tensor_model_parallel_size": 2, "micro_batch_size": 1, "use_distributed_optimizer": True}),
    (
        "cluster: {n_nodes: 1, n_gpus_per_node: 8}\nactor: {backend: 'megatron:d2p2t1c2', path: x}\nrollout: {backend: 'sglang:d4'}\n",
        {"world_size": 8, "pipeline_model_parallel_size": 2, "context_parallel_size": 2},
    ),
    (
        "actor: {backend: 'megatron:(attn:d1p6t1c1|ffn:d1p6t1e2)', path: x}\n",
        {"world_size": 6, "pipeline_model_parallel_size": 6, "expert_model_parallel_size": 2},
    ),
    ("actor: {backend: 'fsdp:d8', path: x}\n", {"tensor_model_parallel_size": None}),
    (SKYRL, {"world_size": 16, "expert_model_parallel_size": 8, "recompute_granularity": "full", "micro_batch_size": 4}),
    (SUPERVISED, {"tensor_model_parallel_size": 2, "world_size": 8}),
    ("policy:\n  precision: bfloat16\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2}\n", {"bf16": True}),
    ("policy:\n  precision: ${p}\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2}\n", {"bf16": None}),  # told elsewhere
    # what MS-Swift gives Megatron itself
    (f"{SWIFT}--packing true\n", {"seq_length": 8192, "use_distributed_optimizer": True}),
    (f"{SWIFT}--packing true --packing_length 4096 --optimizer dist_muon\n", {"seq_length": 4096, "use_distributed_optimizer": None}),
    (f"{SWIFT}--use_distributed_optimizer false\n", {"seq_length": None, "use_distributed_optimizer": False}),
)
def test_what_the_files_of_others_say(text: str, told: dict[str, object]) -> None:
    job = parse_job(text)
    assert {name: job.get(name) for name in told} == told


def test_a_script_that_submits_itself_is_read_as_it_runs_then(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nif [ -z $SLURM_JOB_ID ]; then\n  mkdir -p logs\n"
        f'  sbatch "$0"\n  exit\nfi\nsrun python pretrain_gpt.py {FLAGS}\n'
    )
    assert (read_job(script).get("num_layers"), read_job(script).get("world_size")) == (4, 16)


def test_a_long_calculation_that_is_not_known_may_stand_in_a_command_that_is_evaluated() -> None:
    count = "$(($(ds_ssh nvidia-smi --query-gpu=name --format=csv,noheader,nounits | wc -l)-2))"
    script = f'N={count}\nrun_cmd="deepspeed pretrain_gpt.py --global-batch-size $N {FLAGS}"\neval ${{run_cmd}}\n'
    job = parse_job(script)
    assert (job.get("num_layers"), "global_batch_size" in job.unresolved) == (4, True)


def test_a_flag_with_a_number_for_each_layer_leaves_its_setting_unknown_and_the_rest_readable() -> None:
    job = parse_job(f"deepspeed pretrain_gpt.py {FLAGS} --num-experts 64 64 128\n")
    assert (job.get("num_moe_experts"), "num_moe_experts" in job.unresolved, job.get("num_layers")) == (None, True, 4)
    assert any("several numbers" in note for note in job.notes)


def test_what_slime_sets_by_itself_is_not_said_to_be_off_and_its_ranks_are_counted() -> None:
    offload = "--optimizer-cpu-offload --use-precision-aware-optimizer"
    job = parse_job(f"python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate {FLAGS} --optimizer adam {offload}\n")
    assert (job.get("use_distributed_optimizer"), job.get("bf16"), job.get("world_size")) == (True, True, 16)
    assert not checked(job).failed
    muon = parse_job(f"python3 train.py --actor-num-gpus-per-node 8 {FLAGS} --optimizer muon\n")
    assert muon.get("use_distributed_optimizer") is not True


@for_each(
    "environment, ranks, known",
    ("NPROC_PER_NODE=8", 8, True),
    ("NPROC_PER_NODE=8 NNODES=2", 16, True),
    ("NPROC_PER_NODE=8 NNODES=$MORE", None, False),
    ("NPROC_PER_NODE=$GPUS NNODES=2", None, False),
    ("NPROC_PER_NODE=gpu", None, False),
    ("NNODES=2", None, True),  # nothing says how many ranks a node has
)
def test_ms_swift_starts_as_many_ranks_as_its_variables_say(environment: str, ranks: int | None, known: bool) -> None:
    job = parse_job(f"{environment} megatron pt --tensor_model_parallel_size 2 --num_layers 4\n")
    assert (job.get("world_size"), job.unresolved) == (ranks, set() if known else {"world_size"})


@for_each(
    "option, connections, open_",
    ("""--runtime-env-json='{"env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": "4", "NCCL_NVLS_ENABLE": "$NVLS"}}'""", 4, {"nccl_nvls_enable"}),
    ("""--runtime-env-json '{"env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}}'""", 4, set()),
    ("""--metadata-json '{"CUDA_DEVICE_MAX_CONNECTIONS": "4"}'""", 8, set()),  # the driver's own, which nothing changed
    ("""--note='set "env_vars": "CUDA_DEVICE_MAX_CONNECTIONS": "4"'""", 8, set()),
)
def test_ray_hands_its_runtime_environment_on_and_no_other_json(option: str, connections: int, open_: set[str]) -> None:
    job = parse_job(f"ray job submit {option} -- python3 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4\n")
    assert (job.get("cuda_device_max_connections"), job.unresolved) == (connections, open_)


def test_of_the_deepspeed_fork_sizes_that_do_not_divide_are_certain_and_other_comparisons_of_sizes_are_not() -> None:
    sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 6"
    job = parse_job(f"deepspeed pretrain_gpt.py {sizes} --seq-length 8192 --max-position-embeddings 4096 --deepspeed\n")
    assert job.format == "megatron-deepspeed"
    groups = {one.id: one.group for one in checked(job).results}
    assert groups == {"sequence-beyond-positions": "doubtful", "hidden-size-not-divisible-by-heads": "will_fail"}


def test_of_the_deepspeed_fork_of_megatron_no_assertion_of_megatron_lm_is_certain() -> None:
    job = parse_job(
        f"deepspeed pretrain_gpt.py {FLAGS} --num-experts 8 --tensor-model-parallel-size 2 --deepspeed --deepspeed_config ds.json\n"
    )
    assert job.format == "megatron-deepspeed"
    assert (job.get("tensor_model_parallel_size"), job.get("sequence_parallel")) == (2, None)
    assert not checked(job).failed


def test_sequence_parallelism_on_one_rank_does_not_fail_in_megatron_bridge() -> None:
    report = checked("model:\n  sequence_parallel: true\n  tensor_model_parallel_size: 1\n")
    assert not report.failed
    assert [(one.id, one.group) for one in report.results] == [("sequence-parallel-without-tensor-parallel", "doubtful")]


def test_a_configuration_of_nemo_1_is_read_in_its_own_words_and_assumes_nothing() -> None:
    text = (
        "trainer: {devices: 8, num_nodes: 4, precision: bf16-mixed, gradient_clip_val: 1.0}\nexp_manager: {name: x}\n"
        "model:\n  micro_batch_size: 2\n  encoder_seq_length: 2048\n  tensor_model_parallel_size: 4\n  fp8: true\n  fp8_hybrid: true\n"
        "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n  activations_checkpoint_granularity: selective\n"
    )
    job = parse_job(text)
    read = ("world_size", "bf16", "micro_batch_size", "seq_length", "tensor_model_parallel_size", "fp8", "recompute_granularity")
    assert [job.get(name) for name in read] == [32, True, 2, 2048, 4, "hybrid", "selective"]
    assert "ffn_hidden_size" in job.unresolved
    assert not any(one.source == "default" for one in job.settings.values())
    assert parse_job(text.replace("fp8: true", "fp8: false")).get("fp8") == "none"


def test_flagscale_hands_each_value_on_as_the_argument_of_its_name() -> None:
    text = (
        "system:\n  tensor_model_parallel_size: 2\n  precision: {bf16: true}\n  checkpoint: {load: '${experiment.load}'}\n"
        "model:\n  num_layers: 4\n  optimizer: {micro: 1}\n  no_rope_fusion: true\n  untie_embeddings_and_output_weights: false\ndata: {num_workers: 2}\n"
    )
    job = parse_job(text)
    assert [job.get(name) for name in ("tensor_model_parallel_size", "bf16", "num_layers", "num_workers")] == [2, True, 4, 2]
    assert (job.get("apply_rope_fusion"), "checkpoint_load" in job.unresolved, job.get("sequence_parallel")) == (False, True, None)


PRIMUS = """modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:small}.yaml
    overrides:
      seq_length: ${PRIMUS_SEQ_LENGTH:4096}
      expert_model_parallel_size: ${PRIMUS_EP:8}
      recompute_granularity: null
      fp8: ${FP8}
"""


def test_an_experiment_of_primus_lies_on_the_model_that_it_names(tmp_path: Path) -> None:
    models = tmp_path / "primus" / "configs" / "models" / "megatron"
    models.mkdir(parents=True)
    (models / "small.yaml").write_text("extends:\n  - base.yaml\nnum_layers: 8\nseq_length: 2048\n")
    (models / "base.yaml").write_text("hidden_size: 64\nnum_layers: 2\n")
    (tmp_path / "run.yaml").write_text(PRIMUS)
    job = read_job(tmp_path / "run.yaml")
    assert [job.get(name) for name in ("seq_length", "expert_model_parallel_size", "num_layers", "hidden_size")] == [4096, 8, 8, 64]
    assert job.settings["seq_length"].line == 7
    assert (job.settings["num_layers"].line, job.settings["num_layers"].place) == (None, "line 3 of small.yaml")
    assert any("pre_trainer.yaml" in note for note in job.notes)
    fallbacks = parse_job(
        PRIMUS + "      bf16: ${BF16:False}\n      overlap_grad_reduce: ${OVERLAP:true}\n      mtp_num_layers: ${MTP:null}\n"
    )
    assert [fallbacks.get(name) for name in ("bf16", "overlap_grad_reduce", "mtp_num_layers")] == [False, True, None]
    profiled = parse_job(PRIMUS + "      profile: true\n      use_nsys_profiler: false\n")
    assert profiled.get("use_nsys_profiler") is True, "a profile that one name turns on is on"
    titan = parse_job(
        PRIMUS.replace("framework: megatron", "framework: torchtitan").replace(
            "      seq", "      parallelism: {tensor_parallel_degree: 4}\n      seq"
        )
    )
    assert (titan.format, titan.get("tensor_model_parallel_size")) == ("torchtitan", 4)


def test_an_experiment_of_flagscale_is_read_with_the_training_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "small.yaml").write_text("system: {tensor_model_parallel_size: 2}\nmodel: {num_layers: 4}\n")
    (tmp_path / "train.yaml").write_text(
        "defaults:\n  - _self_\n  - train: small\nexperiment:\n  runner: {backend: torchrun, nnodes: 2, nproc_per_node: 8}\n"
    )
    job = read_job(tmp_path / "train.yaml")
    assert [job.get(name) for name in ("tensor_model_parallel_size", "num_layers", "world_size")] == [2, 4, 16]


def test_a_flag_of_none_says_nothing() -> None:
    job = parse_job(f"torchrun --nproc-per-node 8 train.py {FLAGS} --mtp-num-layers None\n")
    assert (job.settings["mtp_num_layers"].source, job.get("num_layers")) == ("default", 4)


def test_a_colon_gives_variables_their_fallbacks() -> None:
    job = parse_job(
        f': "${{TP:=2}}"\n: ${{MBS:=4}} ${{GBS:=32}}\npython pretrain_gpt.py {FLAGS} --tensor-model-parallel-size $TP --micro-batch-size $MBS\n'
    )
    assert (job.get("tensor_model_parallel_size"), job.get("micro_batch_size")) == (2, 4)
    assert [(one.variable, one.value, one.line) for one in job.defaults] == [("TP", "2", 1), ("MBS", "4", 2), ("GBS", "32", 2)]
    assert job.read().script_defaults == job.defaults


def test_a_section_that_accelerate_would_not_look_at_is_not_written() -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 8\n"
    with pytest.raises(PatchRefusedError, match="distributed_type is FSDP"):
        patched(text, "MEM-04", source="accelerate.yaml")
    with_deepspeed = (
        text.replace("FSDP", "DEEPSPEED").replace("fsdp_config", "deepspeed_config").replace("fsdp_version: 2", "zero_stage: 0")
    )
    assert "zero_stage: 1" in patched(with_deepspeed, "MEM-04", source="accelerate.yaml").text


@for_each(
    "version, fix, written, left",
    ("fsdp_version: 1", "COM-11", "fsdp_forward_prefetch: true", ""),
    ("fsdp_sharding_strategy: FULL_SHARD", "COM-11", "fsdp_backward_prefetch: BACKWARD_PRE", ""),
    ("fsdp_version: 2", "COM-11", "", "fsdp_config.fsdp_reshard_after_forward"),
    ("fsdp_version: 1", "COM-30", "fsdp_sharding_strategy: HYBRID_SHARD", ""),
    ("fsdp_version: 2", "COM-30", "", "parallelism_config.parallelism_config_dp_replicate_size"),
)
def test_accelerate_on_the_second_fsdp_gets_no_key_of_the_first(version: str, fix: str, written: str, left: str) -> None:
    """Accelerate raises on `fsdp_forward_prefetch` there, and drops the others."""
    reshard = "" if "strategy" in version else f"  fsdp_reshard_after_forward: {'true' if version.endswith('2') else 'FULL_SHARD'}\n"
    text = f"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  {version}\n{reshard}num_processes: 16\n"
    assert parse_job(text).get("data_parallel_sharding_strategy") == "optim_grads_params"
    done = patched(text, fix, source="accelerate.yaml")
    assert written in done.text
    assert (done.text == text) == (not written)
    assert left in " ".join(one.key for one in done.report.left_to_you)


def test_a_file_of_nemo_rl_that_changes_other_parts_alone_is_read_with_the_one_that_it_lies_on(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("policy:\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2}\n")
    (tmp_path / "top.yaml").write_text("defaults: ./base.yaml\ndata_plane: {enabled: true}\n")
    assert read_job(tmp_path / "top.yaml").get("tensor_model_parallel_size") == 2


def test_a_fork_that_counts_experts_in_a_flag_of_its_own_is_not_said_to_have_none() -> None:
    job = parse_job(f"torchrun --nproc-per-node 8 pretrain_gpt.py {FLAGS} --moe-num-experts=64 --moe-top-k=1\n")
    assert (job.get("num_moe_experts"), "num_moe_experts" in job.unresolved, job.get("num_layers")) == (None, True, 4)
    assert "num_moe_experts" not in parse_job(f"torchrun --nproc-per-node 8 pretrain_gpt.py {FLAGS}\n").unresolved


def test_a_primus_experiment_on_megatron_bridge_is_read_as_arguments_of_its_recipe() -> None:
    job = parse_job(
        "modules:\n  post_trainer:\n    framework: megatron_bridge\n    config: sft_trainer.yaml\n    model: small.yaml\n    overrides:\n"
        "      tensor_model_parallel_size: 2\n      seq_length: ${LENGTH:4096}\n      precision_config: bf16_mixed\n      packed_sequence: true\n"
        "      peft: lora\nmodel: {moe_router_force_load_balancing: true}\n"
    )
    names = ("tensor_model_parallel_size", "seq_length", "bf16", "enable_offline_packing", "peft_type", "moe_router_force_load_balancing")
    assert [job.get(name) for name in names] == [2, 4096, True, True, "lora", True]
    assert job.get("use_distributed_optimizer") is None  # the recipe decides
    assert any("small.yaml" in note for note in job.notes)


def test_fp8_and_deepep_of_nemo_rl_count_only_where_they_are_on() -> None:
    text = "policy:\n  megatron_cfg:\n    enabled: true\n    tensor_model_parallel_size: 2\n    moe_enable_deepep: {deepep}\n    fp8_cfg: {{enabled: {on}, fp8: e4m3, fp8_recipe: blockwise, fp8_param: false}}\n"
    names = ("fp8", "fp8_recipe", "moe_flex_dispatcher_backend")
    on, off = parse_job(text.format(deepep="true", on="true")), parse_job(text.format(deepep="false", on="false"))
    assert [on.get(name) for name in names] == ["e4m3", "blockwise", "deepep"]
    assert [off.get(name) for name in names] == [None, None, None]
    assert (on.unknown, off.unknown) == ((), ())


def test_a_command_that_a_condition_lengthens_is_read_as_far_as_every_branch_has_it() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=4\n"
        f'CMD="python3 pretrain_gpt.py \\\n  {FLAGS}"\nif [ -n "$(hostname)" ]; then\n  CMD="$CMD \\\n    --log-interval 1"\nfi\n'
        'srun -lu bash -c "RANK=\\$SLURM_PROCID $CMD"\n'
    )
    job = parse_job(script)
    assert (job.get("num_layers"), job.get("world_size"), job.get("cuda_graph_impl")) == (4, 64, None)
    assert not any("given twice" in note for note in job.notes)


def test_a_script_that_its_own_defaults_would_end_ran_with_others() -> None:
    script = f"NODES=${{NODES:-1}}\n(( NODES >= 2 )) || {{\n  echo needs more; exit 1; }}\npython pretrain_gpt.py {FLAGS}\n"
    job = parse_job(script)
    assert job.get("num_layers") == 4
    assert any(note.startswith("line 3: the script ends here") for note in job.notes)


@for_each(
    "recipe, expected",
    ("{_target_: megatron.bridge.recipes.x.y_pretrain_config, tensor_model_parallel_size: 2, context_parallelism: 64}", (2, 64, None)),
    ("{_target_: megatron.bridge.recipes.x.y_pretrain_config}", (None, None, None)),
)
def test_a_recipe_that_a_file_names_decides_what_its_sections_leave_out(recipe: str, expected: tuple[int | None, ...]) -> None:
    job = parse_job(f"recipe: {recipe}\ntrain: {{global_batch_size: 64}}\n")
    sizes = ("tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size")
    assert tuple(job.get(name) for name in sizes) == expected
    assert any("y_pretrain_config decides" in note for note in job.notes)
    over = parse_job(f"recipe: {recipe}\nmodel: {{tensor_model_parallel_size: 8}}\n")
    assert over.get("tensor_model_parallel_size") == 8  # sections go over what the recipe is called with


@for_each(
    "text",
    "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nrecompute_activations: true\nrecompute_granularity: full\n",
    f"python pretrain_gpt.py {FLAGS} --recompute-granularity full --recompute-activations\n",
)
def test_recompute_activations_overrules_the_granularity_as_megatron_lm_takes_it(text: str) -> None:
    job = parse_job(text)
    assert job.get("recompute_granularity") == "selective"
    assert any("overrules" in note for note in job.notes)


@for_each(
    "script, title",
    ("python chatlearn/entrypoint.py grpo --config-file x.yaml models.policy_trainer.bf16=True\n", "ChatLearn"),
    ("python3 -m verl.trainer.main config=c.yaml trainer.n_gpus_per_node=8\n", "EasyR1"),
    ("torchrun --nproc_per_node 4 fastvideo/training/wan_training_pipeline.py --seed 1 --num_layers 3\n", "FastVideo"),
)
def test_a_program_of_another_framework_is_refused_by_its_name_although_some_arguments_are_known(script: str, title: str) -> None:
    with pytest.raises(JobFileError, match=f"is of {title}, which is not read"):
        parse_job(script)


def test_another_trainer_is_not_taken_for_megatron_by_common_words() -> None:
    assert parse_job(f"torchrun examples/train/run_train.py {FLAGS}\n").get("num_layers") == 4  # of that name, but not nanotron's package
    with pytest.raises(JobFileError, match="none of whose arguments tells of which framework it is"):  # no recipe of Megatron-Bridge
        parse_job("python -m mine.main_sft model.path=x batch_size=4 logger=console\n")
    job = parse_job("torchrun --nproc_per_node=8 train.py --num_layers=32 --hidden_size=4096 --bf16=1\n")
    assert job.get("cuda_graph_impl") is None  # no default of Megatron-LM counts


def test_bare_arguments_get_new_ones_in_their_own_spelling_and_no_section_for_the_environment() -> None:
    text = "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nnum_experts: 8\nexpert_model_parallel_size: 8  # of one node\n"
    assert patched(text, "CMP-03", source="model.yaml").text == f"{text}moe_permute_fusion: true\n"
    hybrid = patched(text, "COM-02", source="model.yaml").text
    assert "moe_flex_dispatcher_backend: hybridep\n" in hybrid
    assert "env" not in hybrid.lower()
    assert (
        "--moe-permute-fusion: true" in patched("MODEL_ARGS:\n  --num-layers: 4\n  --num-experts: 8\n", "CMP-03", source="model.yaml").text
    )
    off = f"{text}no_rope_fusion: true\n"
    assert "no_rope_fusion" not in patched(off, "CMP-04", source="model.yaml").text


def test_a_number_that_the_trainer_fills_in_is_not_written_into_deepspeed_s_file() -> None:
    text = (
        '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"train_batch_size": "auto"}'
    )
    with pytest.raises(PatchRefusedError, match="is auto, which the trainer fills in from its own arguments"):
        patched(text, "MEM-12", source="zero3.json")
    assert patched(text, "HOST-05", source="zero3.json").text == text


def test_a_size_that_is_not_known_is_not_doubled() -> None:
    text = "model_name_or_path: x\noutput_dir: y\nlearning_rate: 1.0e-5\n"
    assert patched(text, "HOST-05", source="sft.yaml").text == text
    assert patched(f"{text}per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n", "HOST-05", source="sft.yaml").text != text


@for_each(
    "more, recompute",
    ("", "full"), ("gradient_checkpointing: false\n", "full"), ("disable_gradient_checkpointing: true\n", "none"),
)  # fmt: skip
def test_llama_factory_recomputes_unless_its_own_switch_is_set(more: str, recompute: str) -> None:
    text = f"stage: sft\nfinetuning_type: full\nmodel_name_or_path: x\ncutoff_len: 4096\nper_device_train_batch_size: 1\n{more}"
    assert parse_job(text).get("recompute_granularity") == recompute
    for fix in ("MEM-03", "CMP-13") if recompute == "full" else ():
        with pytest.raises(PatchRefusedError, match=r"LLaMA-Factory (recomputes unless|takes no)"):
            patched(text, fix, source="sft.yaml")


def test_the_rest_of_the_ranks_is_no_number_of_them() -> None:
    text = "data_parallel_replicate_degree: 1\ndata_parallel_shard_degree: -1\ntensor_parallel_degree: 1\n"
    assert [one.id for one in checked(text).results if one.group == "will_fail"] == []


def test_flags_that_a_condition_adds_to_an_array_are_the_only_ones_that_are_not_known() -> None:
    script = (
        f'ARGS=({FLAGS})\nif [ -n "${{KEY}}" ]; then\n  ARGS+=(--bf16 --wandb-project x y)\nfi\ntorchrun pretrain_gpt.py ${{ARGS[@]}}\n'
    )
    job = parse_job(script)
    assert (job.get("num_layers"), job.get("bf16"), job.get("fp16")) == (4, None, False)
    assert "bf16" in job.unresolved


def test_ranks_that_only_a_fallback_counts_make_no_misfit_certain() -> None:
    script = f"NNODES={{}}\ntorchrun --nnodes $NNODES --nproc_per_node 8 pretrain_gpt.py {FLAGS} --tensor-model-parallel-size 16\n"
    told = [checked(script.replace("{}", text)).results for text in ("${WORLD_SIZE:-1}", "1")]
    groups = [{one.id: one.group for one in results}["world-not-divisible-for-attention"] for results in told]
    assert groups == ["doubtful", "will_fail"]


def test_a_script_is_found_where_jobs_are_started_and_told_where_it_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "submit").mkdir()
    (tmp_path / "submit" / "run.sh").write_text(
        f"ROOT=$SCRATCH/logs\ncat > $ROOT/job.sbatch <<- EOM\n#!/bin/bash\nsrun python pretrain_gpt.py {FLAGS} --micro-batch-size $1\nEOM\n"
        "sbatch $ROOT/job.sbatch\n"
    )
    script = tmp_path / "submit" / "small.sh"
    script.write_text("bash submit/run.sh 8 $*\n")
    assert read_job(script).get("micro_batch_size") == 8
    script.write_text("bash elsewhere/train_all.sh 8\n")
    with pytest.raises(JobFileError) as error:
        read_job(script)
    assert error.value.next_step == "It starts train_all.sh: give the configuration or the script that decides what that does."


def test_words_of_another_program_are_no_arguments_of_megatron() -> None:
    job = parse_job("python3 run_deepseek.py -- --tensor_parallel_size 2 --pipeline_parallel_size 4 --context_parallel_size 1\n")
    assert (job.get("pipeline_model_parallel_size"), job.get("bf16")) == (None, None)
    flags = "--per_device_train_batch_size 1 --num_layers 4 --hidden_size 64 --deepspeed ds.json"
    assert parse_job(f"deepspeed train.py {flags}\n").format == "hugging-face"


@for_each(
    "more, split, offload",
    ('fsdp: "full_shard auto_wrap offload"', "optim_grads_params", True),
    ("fsdp: [shard_grad_op, auto_wrap]", "optim_grads", None),
    ("fsdp: true\nfsdp_config: {fsdp_version: 2, reshard_after_forward: false}", "optim_grads", None),
    ("fsdp: full_shard\nfsdp_config: {fsdp_version: 2}", None, None),  # decided by the release
    ("fsdp_config: {fsdp_offload_params: true}", None, None),  # nobody looks at it
)
def test_what_the_trainer_hands_to_fsdp_is_read(more: str, split: str | None, offload: bool | None) -> None:
    job = parse_job(f"per_device_train_batch_size: 1\n{more}\n")
    assert (job.get("data_parallel_sharding_strategy"), job.get("optimizer_cpu_offload")) == (split, offload)


def test_prefetches_of_the_first_fsdp_are_written_where_the_trainer_takes_them() -> None:
    text = "output_dir: x\nper_device_train_batch_size: 1\nfsdp: full_shard  # split\nfsdp_config:\n  fsdp_version: 1\n"
    added = "  backward_prefetch: backward_pre\n  forward_prefetch: true\n"
    assert patched(text, "COM-11").text == text + added
    second = patched(text.replace("version: 1", "version: 2\n  reshard_after_forward: true"), "COM-11")
    assert [one.key for one in second.report.left_to_you] == ["fsdp_config.reshard_after_forward"]
    with pytest.raises(PatchRefusedError, match="Axolotl's fsdp_config has no prefetches"):
        patched(f"base_model: m\n{text}", "COM-11")


def test_a_plan_for_deepspeed_through_accelerate_names_no_key_of_fsdp() -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_processes: 8\n"
    done = patched(text, "COM-11")
    assert (done.text, [one.key for one in done.report.left_to_you if "fsdp" in one.key]) == (text, [])
    assert parse_job(text.replace("DEEPSPEED", "FSDP")).get("fsdp_version") == 1


SFT = "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.{} data.micro_batch_size_per_gpu=4 {}\n"


@for_each(
    "program, more, told",
    ("fsdp_sft_trainer", "engine.ulysses_sequence_parallel_size=2", {"micro_batch_size": 4, "context_parallel_size": 2}),
    ("sft_trainer", "engine=fsdp", {"micro_batch_size": None, "data_parallel_sharding_strategy": "optim_grads_params"}),  # counts tokens
    ("sft_trainer", "data.use_dynamic_bsz=False engine.optimizer_offload=True", {"micro_batch_size": 4, "optimizer_cpu_offload": True}),
    ("sft_trainer", "engine.fsdp_size=1", {"data_parallel_sharding_strategy": "no_shard"}),
)
def test_verl_s_supervised_trainer_on_fsdp_is_read_in_its_own_keys(program: str, more: str, told: dict[str, object]) -> None:
    job = parse_job(SFT.format(program, more))
    assert (job.format, job.get("world_size"), {name: job.get(name) for name in told}) == ("verl-sft", 8, told)


VERL = (
    "python3 -m verl.trainer.main_ppo {}actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 "
    "trainer.nnodes=2 trainer.n_gpus_per_node=8 {}\n"
)


@for_each(
    "text, said",
    ("colour: red\nshape: {round: true}\n", "holds no setting that is known: its keys are colour, shape"),
    ('[build-system]\nrequires = []\n\n[project]\nname = "other"\n', "holds no setting that is known: its keys are build-system, project"),
    ("model: {type: llama}\ndata: !include data/mix.yaml\n", "holds !include in line 2, a tag that only its own program knows"),
    # a script of functions is no YAML
    *(
        (f"{first}\n  python - <<EOF\nif total > 0:\n    print(1)\nEOF\n}}\n", "holds no command that starts a training")
        for first in ("function calc() {", "calc() {", "mkdir -p logs; {")
    ),
    (
        "#!/bin/bash\nsrun torchrun --nproc-per-node 4 tools/pipeline_run.py configs/sft.yaml super\n",
        r"starts pipeline_run\.py, none of whose arguments tells of which framework it is",
    ),
    (  # words like settings do not make a program Megatron-LM's
        "torchrun --nproc_per_node 2 fsdp_train.py --batch_size 16 --gradient_accumulation_steps 4 --max_length 512\n",
        r"starts fsdp_train\.py, none of whose arguments tells of which framework it is",
    ),
    (f"torchrun pretrain_gpt.py --yaml-cfg gpt.yaml {FLAGS}\n", r"whose arguments are those of gpt\.yaml"),
    *(
        (f"python {program} --tokenizer-type HuggingFaceTokenizer --input x.json\n", "which prepares data or weights and trains nothing")
        for program in ("tools/preprocess_data.py", "tools/checkpoint/convert.py")
    ),
    (
        VERL.format("", "model_engine=veomni actor_rollout_ref.actor.veomni.ulysses_parallel_size=2"),
        "trains with verl's engine veomni, which is not read",
    ),
    (VERL.format("", "actor_rollout_ref.actor.strategy=veomni"), "trains with verl's engine veomni, which is not read"),
    (
        VERL.format("", "model_engine=torchtitan actor_rollout_ref.actor.torchtitan.tensor_parallel_size=2"),
        "trains with verl's engine torchtitan, which is not read",
    ),
    (
        SFT.format("sft_trainer", "engine=veomni engine.ulysses_parallel_size=2"),
        "trains with verl's engine veomni, which is not read",
    ),
)
def test_what_can_not_be_read_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(JobFileError, match=said):
        parse_job(text)


@for_each(
    "text, format_, told",
    ("flash_attention_version: null\n", "plain", {}),  # known, and not set
    ('{"train_micro_batch_size_per_gpu": "auto", "autotuning": {"enabled": true}}', "deepspeed", {}),  # leaves all to the trainer
    (SFT.format("sft_trainer", "engine=megatron engine.tensor_model_parallel_size=2"), "rl", {}),
    (
        "torchrun --nproc_per_node 2 train_vlm.py --tensor-model-parallel-size 2 --gradient_accumulation_steps 4\n",
        "megatron-lm",
        {"gradient_accumulation_steps": 4},
    ),
)
def test_the_format_is_known_by_what_is_in_the_file(text: str, format_: str, told: dict[str, object]) -> None:
    job = parse_job(text)
    assert (job.format, {name: job.get(name) for name in told}) == (format_, told)
    assert format_ != "plain" or job.unknown == ()


@for_each(
    "first, more, format_",
    ("", "", "verl-fsdp"),  # its own configuration is on FSDP
    ("", "actor_rollout_ref.actor.strategy=fsdp2", "verl-fsdp"),
    ("", "actor_rollout_ref.actor.strategy=fsdp_turbo actor_rollout_ref.actor.fsdp_config.param_offload=True", "verl-fsdp"),
    ("", "actor_rollout_ref.actor.strategy=$STRATEGY model_engine=$ENGINE", "rl"),  # whichever it is
    ("", "actor_rollout_ref.actor.fsdp_config.param_offload=True", "verl-fsdp"),
    ("--config-name=ppo_megatron_trainer ", "", "rl"),
    ("", "actor_rollout_ref.actor.strategy=megatron", "rl"),
    ("", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2", "rl"),
    ("", "actor@actor_rollout_ref.actor=mlite_actor", "rl"),
    ("--config-name=own ", "", "rl"),
    ("--config-name=ppo_trainer ", "", "verl-fsdp"),
    ("--config-name=ppo_megatron_trainer ", "actor_rollout_ref.actor.strategy=fsdp", "verl-fsdp"),
)
def test_verl_trains_on_fsdp_unless_it_names_another_engine(first: str, more: str, format_: str) -> None:
    job = parse_job(VERL.format(first, more))
    assert (job.format, job.get("micro_batch_size"), job.get("world_size")) == (format_, 4, 16)


@for_each(
    "more, told",
    ("", {"micro_batch_size": 4, "data_parallel_sharding_strategy": "optim_grads_params", "recompute_granularity": None}),
    ("actor_rollout_ref.model.enable_gradient_checkpointing=True", {"recompute_granularity": "full"}),
    ("actor_rollout_ref.model.enable_gradient_checkpointing=False", {"recompute_granularity": "none"}),
    ("actor_rollout_ref.actor.use_dynamic_bsz=True", {"micro_batch_size": None}),  # it counts tokens instead
    ("actor_rollout_ref.actor.fsdp_config.reshard_after_forward=False", {"data_parallel_sharding_strategy": "optim_grads"}),
    ("actor_rollout_ref.actor.fsdp_config.fsdp_size=1", {"data_parallel_sharding_strategy": "no_shard"}),
    (
        "actor_rollout_ref.actor.fsdp_config.fsdp_size=1 actor_rollout_ref.actor.fsdp_config.reshard_after_forward=True",
        {"data_parallel_sharding_strategy": "no_shard"},
    ),
    (
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
        {"optimizer_cpu_offload": True, "context_parallel_size": 2},
    ),
    (
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=False",
        {"optimizer_cpu_offload": False},  # the last counts
    ),
)
def test_what_verl_on_fsdp_says(more: str, told: dict[str, object]) -> None:
    job = parse_job(VERL.format("", more))
    assert {name: job.get(name) for name in told} == told


@for_each("more, changed", ("", {"8"}), ("actor_rollout_ref.actor.use_dynamic_bsz=True", set()))
def test_a_batch_that_counts_tokens_gets_no_number_of_samples(more: str, changed: set[str]) -> None:
    done = patched(VERL.format("", more), "HOST-05", source="run.sh").report
    assert {one.to for one in (*done.left_to_you, *done.written)} == changed


@for_each(
    "launched, read",
    ("srun -W 0 train.sh", True),
    ("srun --nodes=2 ./train.sh", True),
    ("mpirun -n 8 train.sh", True),
    ("srun python other.py train.sh", False),  # an argument of the program
    ("echo train.sh", False),
)
def test_a_script_that_is_launched_as_a_task_is_read(tmp_path: Path, launched: str, read: bool) -> None:
    (tmp_path / "train.sh").write_text(f"torchrun pretrain_gpt.py {FLAGS}\n")
    (tmp_path / "job.sh").write_text(f"{launched}\n")
    if not read:
        with pytest.raises(JobFileError):
            read_job(tmp_path / "job.sh")
        return
    assert read_job(tmp_path / "job.sh").get("num_layers") == 4


@for_each("others, said", (4, True), (3, False))
def test_a_plain_file_of_which_hardly_anything_is_known_says_so(others: int, said: bool) -> None:
    job = parse_job("global_batch_size: 32\n" + "".join(f"own_{number}: 1\n" for number in range(others)))
    assert any(note.startswith(f"of {others + 1} keys 1 is known") for note in job.notes) == said
    sections = parse_job("model:\n  vocab_size: 32000\noptimizer:\n" + "".join(f"  own_{number}: 1\n" for number in range(others)))
    assert any(note.startswith(f"of {others + 1} keys 1 is known") for note in sections.notes) == said


@for_each("program, group", ("pretrain_gpt.py", "will_fail"), ("loongforge/train.py", "doubtful"))
def test_what_megatron_lm_s_parser_refuses_another_program_on_megatron_core_need_not(program: str, group: str) -> None:
    """LoongForge validates its arguments itself, without this assertion (loongforge/train/validators.py)."""
    flags = "--model-name glm --micro-batch-size 1 --optimizer-cpu-offload --use-precision-aware-optimizer --fp8-param-gather --fp8-recipe blockwise"
    results = checked(f"torchrun {program} {flags}\n").results
    assert [one.group for one in results if one.id == "optimizer-offload-with-fp8-parameters"] == [group]


@for_each(
    "command",
    "swift sft --model Qwen2.5-7B --gradient_accumulation_steps 16 --model_name swift-robot --max_length 1000",
    "deepspeed swift/cli/sft.py --model Qwen2.5-7B --gradient_accumulation_steps 16 --model_name swift-robot",
    "trl sft --model Qwen2.5-7B --gradient_accumulation_steps 16",
)
def test_a_program_on_the_trainer_is_known_by_its_name_whatever_it_is_told(command: str) -> None:
    job = parse_job(f"{command}\n")
    assert (job.format, job.get("gradient_accumulation_steps")) == ("hugging-face", 16)


@for_each("program", "pretrain_gpt.py", "tasks/main.py")
def test_the_older_flag_of_recompute_recomputes_every_layer(program: str) -> None:
    job = parse_job(f"torchrun --nproc-per-node 8 {program} {FLAGS} --checkpoint-activations\n")
    assert [job.get(f"recompute_{name}") for name in ("granularity", "method", "num_layers")] == ["full", "uniform", 1]
    assert any("--checkpoint-activations is full recompute" in note and "--recompute-granularity full" in note for note in job.notes)
    assert job.unknown == ()
    assert not checked(job).failed


def test_a_diagnostic_that_is_on_is_named_with_the_others_and_only_it_is_repaired() -> None:
    found = checked("MODEL_ARGS:\n  --num-layers: 4\n  --log-num-zeros-in-grad: true\n")
    one = next(one for one in found.results if one.id == "diagnostics-left-on")
    assert "log_num_zeros_in_grad is true" in one.summary
    assert "not known" not in one.summary
    assert [(change.key, change.to) for change in one.repair] == [("--log-num-zeros-in-grad", "false")]
