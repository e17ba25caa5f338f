"""`diagnose capture` on AMD's GPUs, which Nsight Systems does not see."""

from pathlib import Path

import pytest

from diagnose.cli import main
from tests.builders.cases import for_each

ROOT = Path(__file__).parents[2]


@for_each(
    "words, nsys",
    ([], True), (["--platform", "amd"], False), (["--platform", "MI300X"], False),
    (["--platform", "AMD Instinct MI250X"], False), (["--platform", "b200"], True), (["plain.yaml"], False),
    (["plain.yaml", "--platform", "h100"], True),
)  # fmt: skip
def test_amds_gpus_are_captured_by_pytorchs_profiler_alone(
    words: list[str], nsys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.yaml").write_text("platform: mi325x\nnum_layers: 3\n")
    assert main(["capture", *words]) == 0
    out = capsys.readouterr().out
    assert "torch.profiler" in out
    assert ("nsys profile" in out, "enable_cuda_sync_events" in out) == (nsys, nsys)
    assert ("Nsight Systems does not see AMD's GPUs" in out) != nsys


def test_the_settings_of_a_job_on_amd_turn_pytorchs_profiler_on(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(ROOT / "fixtures" / "jobs" / "qwen3_30b_a3b_alltoall_h100.yaml")
    assert main(["capture", job, "--platform", "amd"]) == 0
    out = capsys.readouterr().out
    assert "profiling.use_pytorch_profiler: true\nprofiling.profile_step_start: 10" in out
    assert "nsys" not in out
    assert main(["capture", job, "--platform", "kitchen"]) == 2
    assert "--platform kitchen is not known." in capsys.readouterr().err
