"""Real job files, by what they are made of: self-written ones, and the corpus where it is at hand."""

from pathlib import Path

import pytest

from fixtures.job_corpus import FOLDER, counted, read_counts, section, sources
from tests.builders.cases import for_each
from tests.builders.jobs import parse_job, read_job

FLAGS = "--num-layers 4 --tensor-model-parallel-size 2"


@for_each(
    "text",
    f'OPTIONS=" \\\n  {FLAGS} \\\n  --bf16"\nrun_cmd="torchrun --nproc_per_node 8 train_x.py ${{OPTIONS}}"\necho ${{run_cmd}}\neval ${{run_cmd}}\n',
    f'#!/bin/bash\nsrun --container-image=x bash -lc "\n  cd /opt\n  python -u pretrain_gpt.py \\\n  {FLAGS}\n"\n',
    f"sbatch <<EOF\n#!/bin/bash\nsrun torchrun --nnodes 1 --nproc_per_node 8 run.py {FLAGS}\nEOF\n",
    f"sbatch -p h100 --nodes 2 <<EOF\n#!/bin/bash\nsrun torchrun --nproc_per_node 8 run.py {FLAGS}\nEOF\n",
    f"docker run -it --rm image bash -c 'torchrun --nproc_per_node 8 run.py {FLAGS}'\n",
    f"ray job submit --address=x -- python3 train.py {FLAGS}\n",
    f"MODEL_ARGS=(\n  {FLAGS}\n)\n",
    f"run() {{\n  python $SCRIPT $@\n}}\nrun {FLAGS}\n",
    f"python tools/convert.py {FLAGS} --load x\ntorchrun pretrain_gpt.py {FLAGS}\n",
    "python run_recipe.py --recipe a_pretrain_config model.num_layers=4 model.tensor_model_parallel_size=2\n",
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
    "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers=4\n",
    "policy:\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, model_overrides: {num_layers: 4}}\n",
    "MODEL_ARGS:\n  --num-layers: 4\n  --tensor-model-parallel-size: 2\n  --seq-length: ${SEQ_LEN}\n",
)
def test_each_way_to_start_a_training_is_read(text: str) -> None:
    job = parse_job(text)
    assert (job.get("num_layers"), job.get("tensor_model_parallel_size")) == (4, 2)


def test_a_sourced_file_tells_its_settings_without_a_line_of_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.sh").write_text("MODEL_ARGS=(\n  --num-layers 4\n)\n")
    script = (
        'DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"\nsource "${DIR}/models/small.sh"\npython train.py ${MODEL_ARGS[@]}\n'
    )
    (tmp_path / "run.sh").write_text(script)
    found = read_job(tmp_path / "run.sh").settings["num_layers"]
    assert (found.value, found.line, found.place) == (4, None, "line 2 of models/small.sh")


def test_commands_that_differ_are_not_guessed_among_and_nothing_is_run(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    job = parse_job(f"L=$(touch {gone}; echo 4)\neval 'touch {gone}'\npython train.py --num-layers $L --hidden-size 64\n")
    assert (job.get("num_layers"), job.get("hidden_size"), gone.exists()) == (None, 64, False)


def test_of_the_stored_counts_nine_tenths_are_read_and_the_report_shows_them() -> None:
    counts = read_counts()
    assert {one.group for one in counts} == {source.group for source in sources()}
    assert sum(one.read for one in counts) >= 0.9 * sum(one.files for one in counts)
    assert all(one.read == one.files for one in counts if one.runs)
    assert counts[0].group in section(counts)


@pytest.mark.deep
def test_the_corpus_reads_as_stored() -> None:
    if not (FOLDER / "NVIDIA+Megatron-LM").exists():
        pytest.skip(f"the real job files are not in {FOLDER.name}/ beside the project: python -m fixtures.job_corpus --fetch")
    assert counted(FOLDER, sources()) == read_counts()
