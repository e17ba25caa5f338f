"""A job file from its text to every output: keys with their places, sizes and how they follow, problems, rules of one's own."""

from pathlib import Path

import msgspec
import pytest

from diagnose.document.diagnosis import Diagnosis, JobRead
from diagnose.errors import RuleFileError
from diagnose.job.sizes import sizes
from diagnose.pipeline import diagnose
from diagnose.render import Options, write
from tests.builders.cases import for_each
from tests.builders.diagnosis import minimal
from tests.builders.jobs import parse_job, read_job
from tests.render.reading import PAGES

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "fixtures" / "jobs"
TRACE = ROOT / "fixtures" / "traces" / "demo.pt.trace.json.gz"


def report(path: Path, *overrides: str) -> Diagnosis:
    job = read_job(path, overrides)
    found = sizes(job)
    return msgspec.structs.replace(minimal(), job=msgspec.structs.replace(job.read(), derived=found.derived, problems=found.problems))


@for_each("format_", *PAGES)
@for_each(
    "name, key",
    ("a1_qwen3_30b_h100.yaml", "model.tensor_model_parallel_size"),
    ("a1_qwen3_30b_h100.megatron.yaml", "MODEL_ARGS.--tensor-model-parallel-size"),
    ("a1_qwen3_30b_h100.sh", "--tensor-model-parallel-size (line 35)"),
    ("a1_qwen3_30b_h100.flags", "--tensor-model-parallel-size (line 22)"),
    ("a4_hybridep.overrides", "model.moe_token_dispatcher_type (line 2)"),
    ("a_recipe.sh", "-tp (line 3)"),
    ("b1_deepseek_v3_gb200.yaml", "model.transformer.tensor_model_parallel_size"),
    ("torchtitan_deepseek_v3.toml", "parallelism.tensor_parallel_degree"),
)
def test_every_output_shows_the_key_of_a_setting(format_: str, name: str, key: str) -> None:
    text = write(report(JOBS / name), format_, Options(width=220, detail=2))
    plain = text.replace("<wbr>", "").replace("\\", "").replace("&#8203;", "").replace("\u200b", "")
    assert key in plain


@for_each("format_", *PAGES)
def test_every_output_shows_sizes_and_problems(format_: str) -> None:
    text = write(report(JOBS / "a1_qwen3_30b_h100.yaml", "world_size=24"), format_, Options(width=220, detail=2))
    assert "Derived from the job file" in text
    assert "2.3006e+10" in text
    assert "Problems of the job file" in text
    assert "world_size 24 is not divisible by the expert mesh" in text.replace("\\", "")
    fitting = write(report(JOBS / "a1_qwen3_30b_h100.yaml"), format_, Options(width=220, detail=2))
    assert "Contradictions" not in fitting


def test_a_dump_of_many_keys_does_not_flood_the_report() -> None:
    job = parse_job("model: {num_layers: 2, " + ", ".join(f"own_{n}: 1" for n in range(300)) + "}")
    assert len(job.unknown) == 300
    text = write(msgspec.structs.replace(minimal(), job=job.read()), "text", Options(width=220, detail=2))
    assert "and 260 more" in " ".join(text.split())


def test_documents_without_the_new_fields_still_read() -> None:
    assert msgspec.json.decode(b'{"format": "plain", "settings": []}', type=JobRead) == JobRead(format="plain", settings=())


@pytest.fixture(scope="module")
def own_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine" / "rules").mkdir(parents=True)
    (folder / "mine" / "rules" / "compute-always.yaml").write_text(
        'id: compute-always\nname: job of many ranks\nwall: compute\nstatus: stable\nsince: 0.1.0\nsummary: "{job_data_parallel_size:n} ranks"\n'
        "when: job_data_parallel_size > 4\nseverity: low\nclaim: config\nwhy: w\nwrong_when: w\ncheck: c\nevidence: [step_ns]\nfixes: []\n"
        "examples: {fires: [{job_data_parallel_size: 8}], silent: [{job_data_parallel_size: 4}, {}]}\n"
    )
    (folder / "job.yaml").write_text(
        "rules: mine\nmodel: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, context_parallel_size: 1}\n"
    )
    return folder


def test_rules_of_the_job_file_are_used_and_see_sizes_from_the_trace(own_rules: Path) -> None:
    document = diagnose([TRACE], config=own_rules / "job.yaml", overrides=["train.global_batch_size=32", "micro_batch_size=1"])
    found = {one.id: one.summary for one in document.findings}
    assert found["compute-always"] == "16 ranks", "the trace tells the world size"
    assert document.job is not None
    derived = {one.name: one for one in document.job.derived}
    assert (derived["world_size"].value, derived["world_size"].from_) == (16, "the trace")
    assert derived["num_microbatches"].value == 2
    assert {row.key for row in document.job.settings} == {
        "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "model.context_parallel_size",
        "train.global_batch_size (--set)", "micro_batch_size (--set)",
    }  # fmt: skip
    assert document.efficiency is not None
    assert document.efficiency.tflops_per_gpu is None
    assert document.efficiency.lacking


def test_rules_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("rules: nowhere\nnum_layers: 2\n")
    with pytest.raises(RuleFileError, match="nowhere"):
        diagnose([TRACE], config=tmp_path / "job.yaml")


def test_a_job_file_that_would_beat_the_hardware_is_of_another_capture(tmp_path: Path) -> None:
    """Where the count is not complete, its lower end decides; nothing is said of speed, and the screen says why."""
    path = tmp_path / "job.yaml"
    text = (JOBS / "qwen3_30b_a3b_alltoall_h100.yaml").read_text(encoding="utf-8")
    assert "vocab_size: 151936" in text
    for batch, more in ((32, False), (100_000, True)):
        job = text.replace("vocab_size: 151936", "vocab_size: null")
        path.write_text(job.replace("global_batch_size: 32", f"global_batch_size: {batch}"), encoding="utf-8")
        document = diagnose([TRACE], config=path)
        assert document.efficiency is not None
        assert document.job is not None
        assert (document.efficiency.tokens_per_second_per_gpu is None) is more
        assert ("another-capture" in {problem.id for problem in document.job.problems}) is more
        shown = " ".join(write(document, "text", Options(width=100)).split())
        assert ("times the peak: the job file is not that of this capture." in shown) is more
