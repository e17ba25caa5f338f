"""`diagnose run`: what nsys is asked for, what becomes of the command's exit code and of Ctrl-C, and that the capture is diagnosed.

Nsys is a stand-in.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import diagnose.pipeline
from diagnose.cli import main
from diagnose.commands.run import opens_range
from diagnose.job.read import read_job
from diagnose.knowledge.settings import load_job_settings
from tests.builders.diagnosis import rich

ROOT = Path(__file__).parents[2]
# Takes the options of `nsys profile`, runs the command in its own group, leaves a report and an export beside it, exits as the command did.
NSYS = """\
#!/bin/sh
if [ "$2" = --help ]; then echo "--trace --sample --cpuctxsw --capture-range --capture-range-end --delay --duration $MORE_OPTIONS"; exit 0; fi
echo "$@" >> "$FAKE/asked"
shift
while :; do case "$1" in --output) out=$2; shift 2;; --*) shift;; *) break;; esac; done
write() { [ -z "$RAW" ] || { echo "U3w[END]NVIDIA Nsight Systems Stream 2023.4.4.54" > "$out.qdstrm"; return; }; [ -n "$EMPTY" ] || { echo "NVIDIA Tegra Profiler Report" > "$out.nsys-rep"; [ -z "$EXPORT" ] || cp "$EXPORT" "$out.sqlite"; }; }
trap 'write; exit 130' INT
echo "NVTX=$NVTE_NVTX_ENABLED"
"$@" &
child=$!
while kill -0 $child 2>/dev/null; do sleep 0.05; done  # a signal just before `wait` would be seen only after it
wait $child
code=$?
write
exit $code
"""


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the stand-in on PATH, in an empty folder."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nsys").write_text(NSYS)
    (tools / "nsys").chmod(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    return tmp_path / "asked"


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any report is diagnosed at once."""
    monkeypatch.setattr(diagnose.pipeline, "diagnose", lambda inputs, **_: rich() if inputs else None)


def test_what_nsys_is_asked_for(nsys: Path, pipeline: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--", "sh", "-c", "echo trained; exit 0", "--profile"]) == 0
    out, err = capfd.readouterr()
    ranged = "--capture-range=cudaProfilerApi --capture-range-end=stop"
    asked = f"profile --trace=cuda,nvtx --sample=none --cpuctxsw=none {ranged} --output diagnose_run/trace sh -c"
    assert nsys.read_text().startswith(asked), "an option that this nsys does not know is left out"
    assert "trained" in err
    assert "NVTX=1" in err
    assert "trained" not in out
    assert "Where the step goes" in out
    monkeypatch.setenv("MORE_OPTIONS", "--cuda-graph-trace --cuda-event-trace")
    assert main(["run", "-q", "--duration", "5", "sh", "-c", "exit 0"]) == 0
    last = nsys.read_text().splitlines()[-1]
    assert "--cuda-graph-trace=node --cuda-event-trace=true" in last
    assert "--duration=5 --output diagnose_run_2/trace" in last
    assert "--capture-range" not in last
    assert main(["run", "--dry-run", "--to", "here", "--", "torchrun", "a b.py"]) == 0
    assert capfd.readouterr().out.endswith("--output here/trace torchrun 'a b.py'\n")
    assert not Path("here").exists()


def test_a_failure_is_passed_on_and_nothing_is_diagnosed(
    nsys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", "sh", "-c", "exit 7"]) == 7
    out, err = capfd.readouterr()
    assert out == ""
    assert "the command ended with 7; nothing was diagnosed. What was captured until then: diagnose diagnose_run" in err
    assert main(["run", "--", "sh", "-c", "kill -KILL $$"]) == 137
    monkeypatch.setenv("EMPTY", "1")
    assert main(["run", "--", "true"]) == 3
    assert "nsys wrote no report" in capfd.readouterr().err


def test_an_nsys_without_its_importer_leaves_a_raw_stream_and_what_to_do_is_said(
    nsys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As nsys 2023.4 does where only its target folder is installed: "The importer binary and its dependencies were not found"."""
    monkeypatch.setenv("RAW", "1")
    assert main(["run", "--", "true"]) == 3
    said = capfd.readouterr().err
    assert "QdstrmImporter -i trace.qdstrm" in said
    assert "opened no capture range" not in said


def test_refusals_come_before_anything_is_run(nsys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--", "srun", "python", "x.py"]) == 2
    assert "Put nsys between srun and the program" in capfd.readouterr().err
    assert main(["run", "-o", "x.pdf", "--", "true"]) == 2
    assert main(["run", "--to", ".", "--", "true"]) == 2
    assert main(["run"]) == 2
    assert "What is to be run was not given. Nothing was run. It stands after --, word by word" in capfd.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["run", "--", "true"]) == 2
    out, err = capfd.readouterr()
    assert "from torch.profiler import" in out
    assert "There is no nsys on this machine. Nothing was run." in err
    assert not nsys.exists()


def test_a_command_that_is_given_wrong_is_told_how_it_is_given(nsys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--command", "python train.py --lr 1"]) == 2
    said = capfd.readouterr().err
    assert "--command 'python train.py --lr 1' names one of several commands in the job file of --config; what is to be run" in said
    assert said.endswith("It stands after --, word by word: diagnose run -- python train.py --lr 1\n")
    assert main(["run", "--", "python train.py"]) == 2
    assert "There is no program 'python train.py'" in capfd.readouterr().err
    Path("my program").write_text("#!/bin/sh\n")
    Path("my program").chmod(0o755)
    assert main(["run", "--dry-run", "--", "./my program"]) == 0
    assert not nsys.exists()


def test_a_wrong_job_file_command_rule_or_pattern_shows_before_anything_is_run(nsys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("two.sh").write_text("python pretrain_gpt.py --num-layers 2\npython pretrain_gpt.py --num-layers 4 --profile\n")
    Path("rule.yaml").write_text("when: nothing > 1\n")
    for words, said in (
        (["--config", "none.yaml"], "none.yaml"),
        (["--config", "two.sh", "--command", "3"], "3"),
        (["--rules", "rule.yaml"], "rule.yaml is wrong"),
        (["--step-range", "("], "is no regular expression"),
    ):
        assert main(["run", *words, "--", "true"]) == 2
        assert said in capfd.readouterr().err
    assert not nsys.exists()


def test_a_range_is_expected_where_job_or_command_open_it() -> None:
    table = load_job_settings()
    jobs = ROOT / "fixtures" / "jobs"
    assert not opens_range(read_job(jobs / "a1_qwen3_30b_h100.sh", table), ["true"])
    assert opens_range(read_job(jobs / "a1_qwen3_30b_h100.yaml", table, ["profiling.use_nsys_profiler=true"]), ["true"])
    assert opens_range(None, ["torchrun", "x.py", "profiling.use_nsys_profiler=true"])
    assert not opens_range(None, ["torchrun", "x.py", "--profile-ranks", "0"])


@pytest.mark.deep
def test_ctrl_c_lets_nsys_write_its_report(nsys: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diagnose", "run", "--", "sh", "-c", "echo ready; sleep 60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith("ready") for line in process.stderr)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(timeout=30) == 130
    assert time.monotonic() - begun < 40
    assert "interrupted: nsys is told to end" in said
    assert Path("diagnose_run/trace.nsys-rep").exists()


@pytest.mark.deep
def test_the_capture_is_read_and_diagnosed(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.render.test_perfetto import SAMPLE, unpacked

    monkeypatch.setenv("EXPORT", str(unpacked(SAMPLE, tmp_path)))
    job = ROOT / "fixtures" / "jobs" / "qwen3_30b_a3b_alltoall_h100.yaml"
    assert main(["run", "--config", str(job), "-q", "-o", "found.md", "--", "true"]) == 0
    assert "COMMUNICATION-BOUND" in Path("found.md").read_text().upper()
