"""`diagnose check`, `diagnose patch` and `--patch`: exit codes, outputs, files."""

import json
from pathlib import Path

import msgspec
import pytest

import diagnose.pipeline
from diagnose.cli import main
from diagnose.document.job import CheckReport, PatchReport
from tests.builders.cases import for_each
from tests.builders.diagnosis import minimal
from tests.builders.stand_in import StandIn

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "fixtures" / "jobs" / "qwen3_30b_a3b_alltoall_h100.yaml"
BROKEN = "comm_overlap: {overlap_moe_expert_parallel_comm: true}\nmodel: {recompute_granularity: full, expert_model_parallel_size: 8}\n"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN, encoding="utf-8")
    return path


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_of_a_sound_job_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DEMO), "--platform", "h100"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("megatron-bridge job on h100: nothing found wrong. ")
    assert "\nRead: TP 1, PP 1, CP 1, EP 16, " in out
    assert "checks need settings that the file does not say, most often " in out
    assert "would decide" not in out
    assert err == ""
    assert main(["check", str(DEMO), "--platform", "h100", "-v"]) == 0
    assert "versions.transformer_engine\n   would decide permute-fusion-needs-te, router-fusion-needs-te" in capsys.readouterr().out


def test_check_tells_what_was_read_and_what_was_not_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    sizes = "--num-layers 4 --tensor-model-parallel-size ${TP:-2} --num-experts 8 --bf16"
    script.write_text(f"python pretrain_gpt.py {sizes} $MORE\n", encoding="utf-8")
    main(["check", str(script)])
    out = " ".join(capsys.readouterr().out.split())
    assert "Read: TP 2, layers 4, experts 8, BF16." in out
    assert "line 1: $MORE may hold more flags" in out
    assert "taken from the script's own defaults, which the environment may overrule: TP" in out


def test_check_of_a_job_that_fails_is_1(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(broken)]) == 1
    out = capsys.readouterr().out
    assert "will fail: 1" in out
    assert "Will fail\n\n expert-overlap-with-full-recompute (assertion)\n" in out
    assert "seen as: an assertion that names recompute_granularity" in out
    assert "recompute_granularity = full (model.recompute_granularity)" in " ".join(out.split())
    assert "fixes: MEM-03 recompute less" in out


def test_check_as_json(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(broken), "--format", "json"]) == 1
    out = capsys.readouterr().out
    report = msgspec.json.decode(out, type=CheckReport, strict=True)
    assert report.schema == "check/1"
    assert report.failed
    assert [(one.id, one.group, one.outcome, one.source) for one in report.results if one.group == "will_fail"] == [
        ("expert-overlap-with-full-recompute", "will_fail", "assert", "check")
    ]
    assert list(json.loads(out)) == ["schema", "tool", "job", "platform", "failed", "checked", "results", "not_assessed"]


@for_each("text, said", ("model: [\n", "not valid YAML"), ("", "holds nothing"), ("model: {num_layers: many}\n", "expected int"))
def test_check_of_a_wrong_file_is_2(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["check", str(path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "No setting of the job was used." in err, "there is no run to speak of"
    assert main(["check", str(tmp_path / "missing.yaml")]) == 2


def test_check_with_settings_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--set", "comm_overlap.overlap_moe_expert_parallel_comm=true", "--set", "model.recompute_granularity=full"]
    assert main(["check", str(DEMO), *more]) == 1
    assert "expert-overlap-with-full-recompute" in capsys.readouterr().out


def test_check_refuses_an_unknown_platform(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DEMO), "--platform", "abacus"]) == 2
    assert "Use one of a100," in capsys.readouterr().err


def test_check_with_own_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checks").mkdir()
    own = "no-bf16-here:\n  title: t\n  outcome: error\n  when: job_bf16\n  say: bf16 is {job_bf16}.\n  remedy: r\n  refs: [us]\n"
    own += "  examples: {fires: [{job_bf16: true}], silent: [{job_bf16: false}, {job_bf16: false}]}\n"
    (tmp_path / "checks" / "own.yaml").write_text(own, encoding="utf-8")
    assert main(["check", str(DEMO), "--rules", str(tmp_path)]) == 1
    assert "no-bf16-here (error)" in capsys.readouterr().out
    (tmp_path / "checks" / "own.yaml").write_text(own.replace("job_bf16\n", "job_bf17\n", 1), encoding="utf-8")
    assert main(["check", str(DEMO), "--rules", str(tmp_path)]) == 2


# --- patch ------------------------------------------------------------------------------------------------------------


def test_patch_writes_the_changed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new.yaml"
    assert main(["patch", "--config", str(DEMO), "--fix", "com-06", "-o", str(target)]) == 0
    out, err = capsys.readouterr()
    old, new = DEMO.read_text(encoding="utf-8"), target.read_text(encoding="utf-8")
    assert new == old.replace("overlap_moe_expert_parallel_comm: false", "overlap_moe_expert_parallel_comm: true")
    assert "1 fix applied, 1 setting changed." in out
    assert "comm_overlap.overlap_moe_expert_parallel_comm: false → true" in out
    assert err == f"wrote {target}\n"


def test_patch_without_a_target_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = DEMO.read_bytes()
    assert main(["patch", "--config", str(DEMO), "--fix", "COM-06"]) == 0
    assert capsys.readouterr().err == "nothing was written; name a file with -o\n"
    assert DEMO.read_bytes() == before


def test_patch_as_yaml_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patch", "--config", str(DEMO), "--fix", "COM-06", "--format", "yaml"]) == 0
    out, err = capsys.readouterr()
    assert "overlap_moe_expert_parallel_comm: true" in out
    assert err == ""
    assert main(["patch", "--config", str(DEMO), "--fix", "COM-06", "--format", "json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=PatchReport, strict=True)
    assert report.schema == "patch/1"
    assert report.bridge_overrides == ("comm_overlap.overlap_moe_expert_parallel_comm=true",)
    assert report.megatron_flags == ("--overlap-moe-expert-parallel-comm",)


def test_patch_refuses_what_would_break(broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new.yaml"
    text = BROKEN.replace("overlap_moe_expert_parallel_comm: true", "tp_comm_overlap: false").replace(
        "model: {", "model: {mtp_num_layers: 2, "
    )
    broken.write_text(text, encoding="utf-8")
    assert main(["patch", "--config", str(broken), "--fix", "COM-06", "-o", str(target)]) == 2
    assert "COM-06 can't be applied: " in capsys.readouterr().err
    assert not target.exists()


def test_a_launch_script_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = DEMO.with_name("a1_qwen3_30b_h100.sh")
    target = tmp_path / "new.sh"
    assert main(["patch", "--config", str(script), "--fix", "COM-06", "-o", str(target)]) == 2
    assert "is not rewritten" in capsys.readouterr().err
    assert not target.exists()
    assert main(["patch", "--config", str(script), "--fix", "COM-06"]) == 0
    assert "\n --overlap-moe-expert-parallel-comm\n" in capsys.readouterr().out


@for_each(
    "arguments, said",
    (["patch", "--config", str(DEMO)], "nothing to go by"),
    (["patch", "--config", str(DEMO), "--fix", "COM-99"], "no fix and no check has this id"),
    (["patch", "--fix", "COM-06"], "--config"),
    (["patch", "--config", str(DEMO), "--fix", "COM-06", "-o", str(DEMO), "--force"], "is an input"),
    (["x.json", "--patch", "new.yaml"], "Name it with --config"),
)
def test_wrong_usage_is_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_an_existing_file_is_kept_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new.yaml"
    target.write_text("mine")
    assert main(["patch", "--config", str(DEMO), "--fix", "COM-06", "-o", str(target)]) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert main(["patch", "--config", str(DEMO), "--fix", "COM-06", "-o", str(target), "--force"]) == 0


def test_the_main_command_patches_after_it_has_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = StandIn(minimal())
    monkeypatch.setattr(diagnose.pipeline, "diagnose", stand_in)
    target = tmp_path / "new.yaml"
    assert main(["x.json", "--config", str(DEMO), "--patch", str(target)]) == 0
    out, err = capsys.readouterr()
    assert stand_in.options["config"] == DEMO
    assert target.read_bytes() == DEMO.read_bytes(), "no finding asks for a change"
    assert ": nothing to change. " in out
    assert err == f"wrote {target}\n"
    assert main(["x.json", "--config", str(DEMO), "--patch", str(target)]) == 2, "it exists now"


# --- several changes of one key -----------------------------------------------------------------------------------------


def test_changes_of_one_key_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: {num_layers: 4}\nenv_vars: {PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:512,expandable_segments:False'}\n")
    assert main(["patch", "--config", str(job), "--fix", "MEM-01", "--format", "yaml"]) == 0
    assert "PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:512,expandable_segments:True" in capsys.readouterr().out
    assert main(["patch", "--config", str(job), "--fix", "MEM-01"]) == 0
    out = capsys.readouterr().out
    assert "1 fix applied, 1 setting changed." in out
    assert [line.strip() for line in out.splitlines() if "export" in line] == [
        "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True"
    ]


def test_the_error_of_a_job_file_names_no_option_of_another_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "nope.yaml")]) == 2
    assert "--config" not in capsys.readouterr().err
