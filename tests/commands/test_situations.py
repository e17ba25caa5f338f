"""The way of a user through situations of the playbook.

Job file and trace → first advice → patched job file → run again → faster, and said so.

The second run is the same simulated machine with the same faults, under the job file that `diagnose patch` wrote.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from diagnose.cli import main
from diagnose.document.comparison import Result
from diagnose.document.comparison import decode as comparison_of
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.diagnosis import decode as diagnosis_of
from fixtures import sample, scenario
from fixtures.truth import mean_step_time
from tests.builders.records import replace
from tests.builders.suites import deep_unless
from tests.conftest import ROOT


@dataclass(frozen=True, kw_only=True)
class Situation:
    """`fix`: what has to be advised first; `settings`: what the patched job file has to say; `faster`: the least share of the step won;
    `said`: what a comparison of both runs says.
    """

    fix: str
    settings: dict[str, object]
    faster: float
    said: Result = "improvement"


SITUATIONS = {
    "demo": Situation(fix="COM-06", settings={"comm_overlap.overlap_moe_expert_parallel_comm": True}, faster=0.10),
    "communication-shared-experts": Situation(fix="COM-02", settings={"model.moe_flex_dispatcher_backend": "hybridep"}, faster=0.20),
    "communication-context-parallel-a2a": Situation(fix="COM-15", settings={"model.cp_comm_type": ["p2p"]}, faster=0.20),
    "communication-data-parallel-burst": Situation(fix="COM-10", settings={"ddp.overlap_grad_reduce": True}, faster=0.08),
    "communication-tensor-parallel": Situation(fix="COM-09", settings={"comm_overlap.tp_comm_overlap": True}, faster=0.12),
    "messy-copy-engine-gather": Situation(fix="COM-11", settings={"ddp.overlap_param_gather": True}, faster=0.10),
    "compute-vision-heavy": Situation(fix="VLM-01", settings={"model.freeze_vision_model": True}, faster=0.40, said="refused"),
    "host-garbage-collection": Situation(fix="HOST-03", settings={"train.manual_gc": True}, faster=0.20),
    "host-padded-experts": Situation(
        fix="HOST-02", settings={"model.cuda_graph_impl": "full_iteration", "rerun_state_machine.check_for_nan_in_loss": False}, faster=0.30
    ),
    "host-unfused-router": Situation(fix="HOST-01", settings={"model.cuda_graph_impl": "transformer_engine"}, faster=0.05),
    "memory-allocator": Situation(fix="MEM-01", settings={"env_vars.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, faster=0.30),
    "memory-full-recompute": Situation(fix="MEM-03", settings={"model.recompute_granularity": "selective"}, faster=0.15),
    "memory-recompute-moe": Situation(fix="MEM-03", settings={"model.recompute_granularity": None}, faster=0.12),
    "memory-optimizer-offload": Situation(fix="CPY-02", settings={"optimizer.optimizer_offload_fraction": 0.5}, faster=0.25),
    "memory-activation-offload-slow-link": Situation(fix="CPY-05", settings={"model.activation_offload_fraction": 0.5}, faster=0.20),
    "memory-pageable-images": Situation(fix="CPY-01", settings={"dataset.pin_memory": True}, faster=0.15),
}


def traced(one: scenario.Scenario, folder: Path) -> tuple[Path, int]:
    """The scenario's trace, and the mean length of its steps in ns."""
    recording = one.record()[0]
    return sample.trace_of("nsys", one, recording, folder), mean_step_time(recording, one.skipped)


def diagnosed(trace: Path, job: Path) -> Diagnosis:
    path = trace.with_suffix(".json")
    assert main([str(trace), "--config", str(job), "-o", str(path), "-q"]) == 0
    return diagnosis_of(path.read_bytes())


@pytest.mark.parametrize("name", deep_unless((), SITUATIONS))
def test_the_first_advice_written_into_the_job_file_makes_the_run_faster(name: str, tmp_path: Path) -> None:
    one, situation = scenario.load(name), SITUATIONS[name]
    job, patched = tmp_path / "job.yaml", tmp_path / "patched.yaml"
    job.write_text(one.job_text(), encoding="utf-8")
    before, step = traced(one, tmp_path)

    document = diagnosed(before, job)
    first = document.findings[0]
    assert next(fix.id for fix in first.fixes if fix.state == "applicable") == situation.fix
    assert main(["patch", str(before), "--config", str(job), "--fix", situation.fix, "-o", str(patched)]) == 0

    settings = yaml.safe_load(patched.read_text(encoding="utf-8"))
    assert {key: lookup(settings, key) for key in situation.settings} == situation.settings
    assert main(["check", str(patched), "--platform", "h100"]) == main(["check", str(job), "--platform", "h100"])

    (tmp_path / "after").mkdir()
    settings.pop("world_size")
    after, shorter = traced(replace(one, plan=replace(one.plan, job=settings)), tmp_path / "after")
    assert step - shorter >= situation.faster * step
    bound = next((wall.bound_ns for wall in document.walls if wall.wall == first.wall), None)
    assert bound is None or step - shorter <= bound + 0.03 * step

    held = tmp_path / "held.json"
    assert main(["compare", str(before), str(after), "--base-config", str(job), "--config", str(patched), "-o", str(held), "-q"]) == (
        3 if situation.said == "refused" else 0
    )
    assert comparison_of(held.read_bytes()).outcome.result == situation.said


@pytest.mark.deep
@pytest.mark.parametrize("seed", [9704, 9713, 9715, 9724])
def test_the_first_advice_in_a_drawn_job_makes_it_faster_as_forecast(seed: int, tmp_path: Path) -> None:
    one, job, patched = scenario.load(f"random-{seed}"), tmp_path / "job.yaml", tmp_path / "patched.yaml"
    job.write_text(one.job_text(), encoding="utf-8")
    before, step = traced(one, tmp_path)
    first = next(each for each in diagnosed(before, job).plan if each.fix and each.forecast)
    assert main(["patch", str(before), "--config", str(job), "--fix", str(first.fix), "-o", str(patched)]) == 0
    settings = yaml.safe_load(patched.read_text(encoding="utf-8"))
    settings.pop("world_size")
    (tmp_path / "after").mkdir()
    _, after = traced(replace(one, plan=replace(one.plan, job=settings)), tmp_path / "after")
    assert first.forecast
    assert after < step
    assert first.forecast.low_ns <= after <= first.forecast.high_ns


def test_the_page_lists_the_situations_with_their_first_advice() -> None:
    page = (ROOT / "docs" / "field-knowledge.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \|[^|]+\| ([A-Z]+-\d+) \|$", page, flags=re.MULTILINE))
    assert rows == {name: one.fix for name, one in SITUATIONS.items()}
    assert len(rows) >= 12


def lookup(settings: object, key: str) -> object:
    """The setting at a dotted path; None where it is missing."""
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings
