"""What job files of other laboratories showed that the readers took wrongly: each case stands for several public files."""

from pathlib import Path

import pytest

from diagnose.document.diagnosis import Tool
from diagnose.errors import JobFileError
from diagnose.reason.checks import check
from tests.builders.cases import for_each
from tests.builders.facts import BOOK
from tests.builders.jobs import parse_job, read_job

FLAGS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4"

TOOL = Tool(name="diagnose", version="0", rules_sha256=BOOK.sha256)


@for_each(
    "text, title",
    ("model:\n  _component_: torchtune.models.llama3.llama3_8b\noptimizer:\n  lr: 1.0e-5\n", "torchtune"),
    ("model:\n  type: llama\n  num_layers: 32\ntrainer:\n  mp: p=f32,c=bfloat16\noptimizer:\n  lr: 1.0\n", "Levanter"),
    ("max_duration: 10ba\ntrain_loader:\n  name: text\nmodel:\n  name: mpt_causal_lm\n", "LLM Foundry"),
    ("parallelism:\n  dp: 2\n  tp: 2\n  pp: 1\nmodel:\n  dtype: bfloat16\noptimizer:\n  clip_grad: 1.0\n", "nanotron"),
    ("distributed:\n  fsdp_type: full_shard\nmodel:\n  dim: 1024\ncheckpoint:\n  dump: {every: 1}\n", "lingua"),
    ("train:\n  accelerator:\n    ep_size: 8\n  global_batch_size: 32\nmodel:\n  model_path: x\n", "VeOmni"),
    ("step_scheduler:\n  global_batch_size: 32\ndistributed:\n  tp_size: 1\nmodel:\n  torch_dtype: bfloat16\n", "NeMo Automodel"),
    ('max_steps = 20\nseq_len = 4096\n[model]\nname = "x"\n[orchestrator]\nbatch_size = 32\n', "prime-rl"),
    ("base_config: base.yml\nici_fsdp_parallelism: 8\nnum_layers: 4\n", "MaxText"),
    ("apiVersion: v1\nkind: Pod\nspec:\n  containers: []\n", "Kubernetes"),
    ("from nemo.collections import llm\n\ndef recipe():\n    return llm.x()\n", "NeMo 2"),
    ("from olmo_core.train import TrainerConfig\n\ndef main():\n    return TrainerConfig()\n", "OLMo-core"),
    ("#!/bin/bash\nray job submit -- python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3\n", "OpenRLHF"),
)
def test_a_file_of_a_framework_that_is_not_read_is_refused_by_its_name(text: str, title: str) -> None:
    with pytest.raises(JobFileError, match=f"is of {title}, which is not read"):
        parse_job(text)


def test_plain_yaml_in_which_no_setting_is_known_is_refused_with_its_keys() -> None:
    with pytest.raises(JobFileError, match="holds no setting that is known: its keys are colour, shape"):
        parse_job("colour: red\nshape: {round: true}\n")


def test_a_line_that_goes_on_in_a_here_document_is_one_line_and_a_spoken_text_in_a_file_is_run() -> None:
    script = (
        f"run=$(cat <<- EOM\n  python pretrain_gpt.py \\\n    {FLAGS} \\\n    --bf16\nEOM\n)\n"
        'echo "$run" > worker.sh\ntorchrun --nnodes="4" --nproc-per-node="8" --no-python bash worker.sh\n'
    )
    job = parse_job(script)
    assert (job.get("num_attention_heads"), job.get("bf16"), job.get("world_size")) == (4, True, 32)


def test_a_line_that_goes_on_in_gathered_flags_is_no_value() -> None:
    assert parse_job(f"read -r -d '' CMD <<'EOM'\npretrain_gpt.py {FLAGS} \\\n --num-workers 2\nEOM\nexport CMD\n").get("hidden_size") == 64


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
    assert not check(job, BOOK, TOOL).failed
    muon = parse_job(f"python3 train.py --actor-num-gpus-per-node 8 {FLAGS} --optimizer muon\n")
    assert muon.get("use_distributed_optimizer") is not True


def test_of_the_deepspeed_fork_of_megatron_no_assertion_of_megatron_lm_is_certain() -> None:
    job = parse_job(
        f"deepspeed pretrain_gpt.py {FLAGS} --num-experts 8 --tensor-model-parallel-size 2 --deepspeed --deepspeed_config ds.json\n"
    )
    assert job.format == "megatron-deepspeed"
    assert (job.get("tensor_model_parallel_size"), job.get("sequence_parallel")) == (2, None)
    assert not check(job, BOOK, TOOL).failed


def test_sequence_parallelism_on_one_rank_does_not_fail_in_megatron_bridge() -> None:
    report = check(parse_job("model:\n  sequence_parallel: true\n  tensor_model_parallel_size: 1\n"), BOOK, TOOL)
    assert not report.failed
    assert [(one.id, one.group) for one in report.results] == [("sequence-parallel-without-tensor-parallel", "doubtful")]
