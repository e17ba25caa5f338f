"""The command line: what it passes on, where results go, how every run ends; `diagnose kernel -`: many names, one answer per line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import diagnose.pipeline
from diagnose.cli import cli, main
from diagnose.commands.kernel_lines import answers
from diagnose.commands.output import say
from diagnose.commands.verbs import VERBS
from diagnose.document.diagnosis import decode
from diagnose.document.encoding import encode
from diagnose.document.files import read
from diagnose.errors import InputError
from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.render import write
from diagnose.scale.dask import DaskEngine
from diagnose.scale.local import LocalEngine
from tests.builders.cases import for_each
from tests.builders.diagnosis import HOSTILE, minimal, rich
from tests.builders.kineto import document, kernel
from tests.builders.processes import gone
from tests.builders.stand_in import StandIn

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "diagnose")


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(minimal())
    monkeypatch.setattr(diagnose.pipeline, "diagnose", stand_in)
    for name in ("NO_COLOR", "FORCE_COLOR", "DIAGNOSE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return stand_in


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "d.json"
    path.write_bytes(encode(rich()))
    return path


def command(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[bytes]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.run([*PROGRAM, *map(str, arguments)], cwd=ROOT, timeout=600, check=False, **streams)


# --- arguments --------------------------------------------------------------------------------------------------------


def test_options_reach_the_pipeline(pipeline: StandIn, tmp_path: Path) -> None:
    job, rules = tmp_path / "job.yaml", tmp_path / "rules"
    arguments = [
        "a.sqlite", "b.json", "--config", job, "--set", "model.num_layers=4", "--set", "~model.mtp_num_layers", "--rules", rules,
        "--rank", "3", "--step-range", "iter*", "--nsys", "/opt/nsys", "--include-host-info",
    ]  # fmt: skip
    assert main([str(one) for one in arguments]) == 0
    assert pipeline.inputs == ("a.sqlite", "b.json")
    assert pipeline.options == {
        "config": job,
        "overrides": ("model.num_layers=4", "~model.mtp_num_layers"),
        "command": None,
        "rules": (rules,),
        "rank": 3,
        "step_range": "iter*",
        "nsys": Path("/opt/nsys"),
        "log": None,
        "include_host_info": True,
        "forecasts": True,
        "engine": LocalEngine(jobs=None),
        "progress": None,
        "notice": say,
    }


@for_each(
    "arguments, engine",
    (["--jobs", "3"], LocalEngine(jobs=3)),
    (["--engine", "dask", "--jobs", "2"], DaskEngine(jobs=2)),
    (["--engine", "dask", "--scheduler", "tcp://host:8786"], DaskEngine(scheduler="tcp://host:8786")),
)
def test_the_engine_is_the_one_asked_for(pipeline: StandIn, arguments: list[str], engine: LocalEngine | DaskEngine) -> None:
    assert main(["x.json", "-q", *arguments]) == 0
    assert pipeline.options["engine"] == engine
    assert pipeline.options["notice"] is None, "quiet"


@for_each(
    "arguments",
    ["--scheduler", "tcp://host:1"], ["--engine", "dask", "--scheduler", "x", "--jobs", "2"], ["--jobs", "0"],
    ["--engine", "ray"],
)  # fmt: skip
def test_options_of_engines_that_do_not_go_together_are_2_before_any_work(pipeline: StandIn, arguments: list[str]) -> None:
    assert main(["x.json", *arguments]) == 2
    assert pipeline.inputs == ()


@for_each("arguments, trace", (["analyse", "-"], "-"), (["--quiet", "x.json"], "x.json"))
def test_the_default_command_may_be_named_and_options_may_come_before_the_trace(
    pipeline: StandIn, arguments: list[str], trace: str
) -> None:
    assert main(arguments) == 0
    assert pipeline.inputs == (trace,)


@for_each(
    "arguments", ["--nonsense"], ["x.json", "--format", "pdf"], ["x.json", "--rank", "-1"], ["x.json", "--fail-on", "never"], [], ["render"]
)
def test_wrong_usage_is_2_without_a_traceback(pipeline: StandIn, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert err.strip()


@for_each("words", "--help", "-h", "explain --help", "compare --help", "gate --help", "baseline --help", "baseline add --help", "--version")
def test_help_and_version_are_0(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    assert ("diagnose" if words == "--version" else "Usage: diagnose") in capsys.readouterr().out


def test_help_shows_the_options_of_the_default_command_and_every_other_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for word in (
        "--config", "--fail-on", "--strict", "--output", "explain", "rules", "kernel", "render", "check", "patch", "130 interrupted",
    ):  # fmt: skip
        assert word in out


def test_help_imports_nothing_heavy() -> None:
    script = "import sys; from diagnose.cli import main; main(['--help']); print(sorted({'polars', 'plotly', 'rich', 'jinja2', 'msgspec'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert done.stderr == "[]\n"


def test_help_says_of_each_verb_what_that_says_of_itself_and_imports_only_the_default_one() -> None:
    assert {verb: listed.says for verb, listed in VERBS.items()} == {
        verb: (command.help or "").split("\n\n")[0].replace("\n", " ") for verb, command in cli.commands.items()
    }
    assert {verb: command.name for verb, command in cli.commands.items()} == {verb: verb for verb in VERBS}
    assert not any(command.hidden for command in cli.commands.values())
    others = sorted(
        {f"diagnose.commands.{listed.module}" for verb, listed in VERBS.items()} - {"diagnose.commands.analyse", "diagnose.commands.patch"}
    )
    script = f"import sys; from diagnose.cli import main; main(['--help']); print([one for one in {others} if one in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert done.stderr == "[]\n"


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_text_goes_to_standard_output_and_files_follow_their_extension(
    pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.answer = rich()
    files = [tmp_path / name for name in ("r.html", "r.json", "r.md", "r.TXT")]
    assert main(["x.json", *(argument for file in files for argument in ("-o", str(file)))]) == 0
    out, err = capsys.readouterr()
    assert "COMMUNICATION" in out
    assert err.splitlines() == [f"wrote {file}" for file in files]
    starts = [file.read_text(encoding="utf-8")[:15].strip() for file in files]
    assert starts[0] == "<!doctype html>"
    assert decode(files[1].read_bytes()) == rich()
    assert starts[2].startswith("**NVIDIA H100 8")
    assert starts[3].startswith("NVIDIA H100 80G")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in files)


def test_machine_formats_put_nothing_else_anywhere(pipeline: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.answer = rich()
    assert main(["x.json", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["schema"] == "diagnosis/2"


def test_quiet_prints_nothing(pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x.json", "-q", "-o", str(tmp_path / "r.json")]) == 0
    assert capsys.readouterr() == ("", "")
    assert decode((tmp_path / "r.json").read_bytes()) == minimal()


def test_an_existing_file_is_kept_without_force(pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    file.write_text("mine")
    assert main(["x.json", "-o", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert pipeline.inputs == (), "refused before any work"
    assert main(["x.json", "-o", str(file), "--force"]) == 0
    assert decode(file.read_bytes()) == minimal()


def test_a_link_is_replaced_and_not_followed(pipeline: StandIn, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "r.json"
    target.write_text("mine")
    link.symlink_to(target)
    assert main(["x.json", "-o", str(link), "--force"]) == 0
    assert target.read_text() == "mine"
    assert not link.is_symlink()


def test_an_input_is_never_overwritten(pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("[]")
    assert main([str(trace), "-o", str(tmp_path / "." / "trace.json"), "--force"]) == 2
    assert "is an input" in capsys.readouterr().err
    assert trace.read_text() == "[]"


def test_an_output_that_is_named_twice_is_2(pipeline: StandIn, tmp_path: Path) -> None:
    assert main(["run.sqlite", "-o", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.json")]) == 2
    assert (pipeline.inputs, list(tmp_path.iterdir())) == ((), [])


@for_each("name, code", ("r.pdf", 2), ("r", 2), ("missing/r.json", 74))
def test_outputs_that_cannot_be_are_refused_before_any_work(pipeline: StandIn, tmp_path: Path, name: str, code: int) -> None:
    assert main(["x.json", "-o", str(tmp_path / name)]) == code
    assert pipeline.inputs == ()


def test_a_file_that_cannot_be_written_is_74_and_leaves_the_old_one(
    pipeline: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    file.write_text("mine")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["x.json", "-q", "-o", str(file), "--force"]) == 74
    assert "No space left on device" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_stale_temporary_files_of_killed_runs_are_removed(pipeline: StandIn, tmp_path: Path) -> None:
    stale, fresh = tmp_path / ".r.json.1.tmp", tmp_path / ".r.json.2.tmp"
    stale.write_text("half")
    fresh.write_text("half")
    os.utime(stale, (time.time() - 7_200, time.time() - 7_200))
    assert main(["x.json", "-q", "-o", str(tmp_path / "r.json")]) == 0
    assert (stale.exists(), fresh.exists()) == (False, True)


@for_each(
    "arguments, environment, coloured",
    ([], {}, False),
    (["--color", "always"], {}, True),
    (["--color", "always"], {"NO_COLOR": "1"}, True),
    ([], {"FORCE_COLOR": "1"}, True),
    ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    (["--color", "never"], {"FORCE_COLOR": "1"}, False),
)
def test_colour(
    pipeline: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
    coloured: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["x.json", *arguments]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is coloured


# --- how a run ends ---------------------------------------------------------------------------------------------------


def test_fail_on_ignores_weaker_findings_and_those_about_the_capture(pipeline: StandIn) -> None:
    capture = msgspec.structs.replace(rich().findings[2], severity="high")
    pipeline.answer = msgspec.structs.replace(rich(), findings=(rich().findings[1], capture))
    assert main(["x.json", "-q", "--fail-on", "high"]) == 0
    assert main(["x.json", "-q", "--fail-on", "medium"]) == 1
    pipeline.answer = rich()
    assert [main(["x.json", "-q", "--fail-on", level]) for level in ("low", "medium", "high")] == [1, 1, 1]
    pipeline.answer = minimal()
    assert main(["x.json", "-q", "--fail-on", "low"]) == 0


def test_strict_is_4_after_the_result_is_written(pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.answer = rich()
    assert main(["x.json", "--strict", "-o", str(tmp_path / "r.json")]) == 4
    out, err = capsys.readouterr()
    assert "COMMUNICATION" in out
    assert "Data was lost" in err
    assert (tmp_path / "r.json").exists()
    pipeline.answer = minimal()
    assert main(["x.json", "--strict"]) == 0


@for_each(
    "fault, code, said",
    (InputError("It is damaged.", effect="Nothing.", next_step="Export again."), 3, "error: It is damaged. Nothing. Export again."),
    (KeyboardInterrupt(), 130, "interrupted"),
    (pl.exceptions.PanicException("index out of bounds"), 70, "error: internal fault, PanicException: index out of bounds"),
    (RuntimeError("first\nsecond"), 70, "error: internal fault, RuntimeError: first. There is no result."),
    (MemoryError(), 3, "error: Memory ran out. There is no result."),
    (OSError(5, "Input/output error"), 70, "error: internal fault, OSError"),
    (OSError(28, "No space left on device"), 74, "error: Something could not be written: No space left on device."),
)
def test_faults_end_in_a_sentence(
    pipeline: StandIn, capsys: pytest.CaptureFixture[str], fault: BaseException, code: int, said: str
) -> None:
    pipeline.answer = fault
    assert main(["x.json"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_the_traceback_comes_only_when_asked_for(
    pipeline: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGNOSE_DEBUG", "1")
    pipeline.answer = RuntimeError("x")
    assert main(["x.json"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_error_messages_are_harmless(pipeline: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.answer = InputError(f"Bad name {HOSTILE[2]}.")
    assert main(["x.json"]) == 3
    assert "\x1b" not in capsys.readouterr().err


@for_each("words, what", ("--help", "Something"), ("--version", "Something"), ("render d.json", "Standard output"))
def test_a_full_disk_is_74_and_a_closed_pipe_a_quiet_0(saved: Path, words: str, what: str) -> None:
    arguments = words.replace("d.json", str(saved)).split()
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full:
        on_full, closed = (command(*arguments, stdout=out) for out in (full, writer))
    os.close(writer)
    assert (on_full.returncode, closed.returncode, closed.stderr) == (74, 0, b"")
    assert on_full.stderr.decode().startswith(f"error: {what} could not be written: No space left on device.")
    assert on_full.stderr.count(b"\n") == 1


def test_a_closed_standard_output_is_74(saved: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m diagnose render {saved} >&-"], cwd=ROOT, stderr=subprocess.PIPE, timeout=600, check=False
    )
    assert done.returncode == 74


def test_a_closed_standard_error_changes_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_bytes(document([kernel(20, 5)]))
    for arguments, code in (([trace], 0), ([tmp_path / "no.json"], 3)):
        ended = subprocess.run(["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *PROGRAM, *arguments], cwd=ROOT, capture_output=True, check=False)
        assert (ended.returncode, bool(ended.stdout)) == (code, code == 0)


@for_each("limit, said", ("-v 600000", "may use 585 MiB of memory"), ("-n 20", "may open 20 files"))
def test_a_limit_that_is_too_low_is_said_before_it_is_hit(tmp_path: Path, limit: str, said: str) -> None:
    command = ["/bin/sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *PROGRAM, tmp_path / "run.sqlite"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, said in ended.stderr) == (3, True)


@for_each("number, code", (signal.SIGTERM, 143), (signal.SIGHUP, 129))
def test_a_signal_to_end_clears_away_what_an_export_left(tmp_path: Path, number: signal.Signals, code: int) -> None:
    started, private = tmp_path / "started", tmp_path / "private"
    private.mkdir()
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f"#!/bin/sh\ncase $1 in --version) echo 2024.2.3.38; exit;; esac\necho $$ > {started}.new\nmv {started}.new {started}\nsleep 3600\n"
    )
    nsys.chmod(0o755)
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + bytes(600))
    running = subprocess.Popen(
        [*PROGRAM, tmp_path / "run.nsys-rep", "--nsys", nsys],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(private)},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whoever runs the tests may ignore it, as nohup does  # noqa: PLW1509
    )
    until = time.monotonic() + 300
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(number)
    _, said = running.communicate(timeout=600)
    assert (running.returncode, said.decode().strip()) == (code, "terminated")
    assert list(private.iterdir()) == []
    assert gone(int(started.read_text()))


def test_ctrl_c_is_130() -> None:
    pipe = subprocess.PIPE
    running = subprocess.Popen([*PROGRAM, "kernel", "-"], cwd=ROOT, stdin=pipe, stderr=pipe, stdout=pipe)
    assert running.stdin is not None
    running.stdin.write(b"k\n" * 100_000)  # more than a pipe holds: when this returns, the command is reading
    running.stdin.flush()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=600)
    assert running.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err


def test_standard_output_in_ascii_does_not_fail(saved: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert command("render", saved, env=environment).returncode == 0
    done = command("render", saved, "--format", "markdown", env=environment)
    assert "≤ ms" in done.stdout.decode("utf-8")


# --- other commands ---------------------------------------------------------------------------------------------------


def test_render_gives_what_the_analysis_gave(pipeline: StandIn, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.answer = rich()
    main(["x.json"])
    first = capsys.readouterr().out
    assert main(["render", str(saved)]) == 0
    assert capsys.readouterr().out == first


@for_each(
    "content",
    b"", b"{", b"[]", b'{"schema":"diagnosis/9"}', b'{"schema":"diagnosis/2"}', b'{"traceEvents":[]}', b"\xff\xfe", b"[" * 100_000,
    b'{"schema":NaN}',
)  # fmt: skip
def test_what_is_not_a_diagnosis_is_3(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(content)
    for asked in (path, tmp_path / "none.json"):
        assert main(["render", str(asked)]) == 3
        assert "Traceback" not in capsys.readouterr().err


def test_kernel_says_bucket_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "void deep_ep::internode::dispatch<8>(int)"]) == 0
    out = capsys.readouterr().out
    assert "bucket     dispatch" in out
    assert "communication (EP all-to-all, deepep)" in out


def test_kernel_reads_names_from_standard_input_and_gives_json_lines() -> None:
    done = command("kernel", "-", "--format", "json", input=b"deep_ep::internode::combine\n\nsome_\x1b[31mkernel\n")
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["bucket"] for row in rows] == ["dispatch", "other"]
    assert rows[1]["name"] == "some_\x1b[31mkernel"
    assert b"\x1b" not in done.stdout


def test_rules_lists_and_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert main(["rules", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [rule["id"] for rule in data["rules"] if f"{rule['id']} " not in text or rule["name"] not in text] == []
    assert all(fix["id"] in text for fix in data["fixes"])


@for_each("name", "host-launch-starved", "HOST-03", "step_ns", "negative_duration", "communication")
def test_explain_speaks_in_the_numbers_of_a_diagnosis(name: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name, str(saved)]) == 0
    out = capsys.readouterr().out
    assert "in this run:" in out
    assert {
        "host-launch-starved": "24.807 ms", "HOST-03": "no finding", "step_ns": "215.050 ms", "negative_duration": "3 in CUPTI",
        "communication": "45.273 ms",
    }[name] in out  # fmt: skip


# --- `diagnose kernel -` ----------------------------------------------------------------------------------------------


GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


def asked(lines: list[str], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    return [json.loads(line) for line in write(answers(lines, taxonomy), "json").splitlines()]


def test_one_line_of_json_for_each_in_order(taxonomy: Taxonomy):
    lines = [
        json.dumps({"name": GEMM}),
        "",
        json.dumps({"name": GEMM, "context": {"ops": ["_GroupedLinear"], "phase": "backward", "colour": "red"}}),
        "  Memset (Device)  ",
        "[CUDA memcpy Host-to-Device]",
    ]
    first, second, third, fourth = asked(lines, taxonomy)
    assert first == {
        "name": GEMM, "bucket": "dense_gemm", "phase": None, "role": "compute", "kind": None, "backend": None, "operation": "gemm",
        "evidence": "name", "rule": "gemm", "ambiguous": True, "alternatives": ["expert_gemm", "router", "vision_encoder"],
    }  # fmt: skip
    assert (second["bucket"], second["rule"], second["evidence"], second["ambiguous"]) == (
        "expert_gemm", "expert_operator", "operator", False,
    )  # fmt: skip
    assert second["not_understood"] == ["colour"]
    assert (third["bucket"], fourth["bucket"]) == ("memset", "memcpy")


@for_each(
    "line, reason",
    ("{bad", "the line is no JSON object"),
    ('{"name": "a"} trailing', "the line is no JSON object"),
    ('{"nane": "a"}', "`name` is missing"),
    ('{"name": 3}', "`name` is missing"),
    ('{"name": " "}', "`name` is missing"),
    ('{"name": "a", "context": ["x"]}', "`context` is no object"),
    ("{" * 5000, "the line is no JSON object"),
)
def test_a_broken_line_is_answered_in_its_place_and_the_rest_goes_on(taxonomy: Taxonomy, line: str, reason: str):
    rows = asked([GEMM, line, "flash_fwd_kernel"], taxonomy)
    assert [row.get("bucket") for row in rows] == ["dense_gemm", None, "attention"]
    assert rows[1]["line"] == 2
    assert reason in rows[1]["error"]
    assert "error" in write(answers([line], taxonomy), "text")


def test_no_line_no_answer(taxonomy: Taxonomy):
    assert answers(["", "  "], taxonomy).answers == answers([], taxonomy).answers == ()


def test_the_command_ends_with_3_where_a_line_could_not_be_read(capsys: pytest.CaptureFixture[str]):
    assert main(["kernel", GEMM, '{"name": "flash_fwd_kernel"}', "--format", "json"]) == 0
    assert [json.loads(line)["bucket"] for line in capsys.readouterr().out.splitlines()] == ["dense_gemm", "attention"]
    assert main(["kernel", "{oops", GEMM]) == InputError.exit_code == 3
    out = capsys.readouterr().out
    assert "line 1\n  error  the line is no JSON object" in out
    assert "bucket     dense" in out


@for_each(
    "words, code, said",
    (["anaylse", "x.json"], 2, "Did you mean `diagnose analyse`?"),
    (["comapre", "a", "b"], 2, "Did you mean `diagnose compare`?"),
    (["good.json", "--section", "findigs"], 2, "Did you mean findings?"),
    (["good.json", "--html"], 2, "It is a format: -o FILE.html writes it to a file, --format html prints it."),
    (["good.json", "--github"], 2, "No such option '--github'. It is a format: --format github prints it."),
    (["rules", "--json"], 2, "It is a format: --format json prints it."),
    (["rules", "--formt", "json"], 2, "No such option '--formt'. Did you mean --format? Try `diagnose --help`."),
    (["rules", "--sarif"], 2, "No such option '--sarif'. Try `diagnose --help`."),
)
def test_what_is_mistyped_is_an_error(
    pipeline: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text("{}")
    pipeline.answer = rich()
    assert main(words) == code
    out, err = capsys.readouterr()
    assert said in err
    assert (out, pipeline.calls) == ("", []), "nothing was done"


def test_the_screen_names_files_as_they_were_typed_and_files_do_not(
    pipeline: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.sqlite").touch()
    (tmp_path / "runs" / "job.yaml").write_text("num_layers: 3\n")
    pipeline.answer = read(ROOT / "reports" / "gallery" / "communication-alltoall-two-nodes.json")
    for words in (["runs/a.sqlite", "--config", "runs/job.yaml"], ["runs/a.sqlite"]):  # named, and found beside the trace
        assert main([*words, "-o", "a.txt", "-o", "a.md", "--force"]) == 0
        assert "diagnose compare runs/a.sqlite AFTER --config runs/job.yaml" in " ".join(
            capsys.readouterr().out.replace("\\\n", "").split()
        )
        assert "runs/" not in (tmp_path / "a.txt").read_text() + (tmp_path / "a.md").read_text()


def test_a_named_path_that_does_not_exist_is_an_error_even_beside_good_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.json").write_text("{}")
    assert main([str(tmp_path / "good.json"), str(tmp_path / "nowhere.json")]) == 3
    assert "nowhere.json does not exist." in capsys.readouterr().err


@for_each("name", "settings.toml", "list.yaml")
def test_a_file_that_merely_begins_with_a_bracket_is_no_trace(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text('[build-system]\nrequires = ["x"]\n' if name.endswith("toml") else "[a, b]\n")
    assert main([str(tmp_path / name)]) == 3
    assert "is a text file, not a trace" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 3
    assert "holds no trace (1 other file)" in capsys.readouterr().err


def test_a_job_file_beside_the_trace_is_used_and_said(pipeline: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.answer = rich()
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "run_config.yaml").write_text("num_layers: 4\n")
    assert main([str(tmp_path / "x.json")]) == 0
    assert "using run_config.yaml, which lies beside the trace" in capsys.readouterr().err
    assert pipeline.options["config"] == tmp_path / "run_config.yaml"
    assert main([str(tmp_path / "x.json"), "--no-config"]) == 0
    assert "run_config.yaml" not in capsys.readouterr().err
    assert pipeline.options["config"] is None
    (tmp_path / "run_config.yaml").write_text("num_layers: [\n")
    assert main([str(tmp_path / "x.json")]) == 0
    assert "was not used" in capsys.readouterr().err
    (tmp_path / "run_config.yaml").write_text("num_layers: 4\n")
    assert main([str(tmp_path / "x.json"), "--set", "odd"]) == 2
    err = capsys.readouterr().err
    assert "error: --set has 'odd', which is no override." in err
    assert err.count("odd") == 1, "what is wrong is told once, and not as a fault of the file"


@for_each("name", "pyproject.toml", "diagnose.yaml")
def test_a_project_gives_options_and_an_unknown_one_is_refused(
    name: str, pipeline: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def put(options: dict[str, str]) -> None:
        toml = "[tool.diagnose]\n" + "".join(f"{key} = {value!r}\n" for key, value in options.items())
        (tmp_path / name).write_text(toml if name.endswith("toml") else "".join(f"{key}: {value}\n" for key, value in options.items()))

    pipeline.answer = rich()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.json").write_text("{}")
    (tmp_path / "job.yaml").write_text("num_layers: 4\n")
    monkeypatch.chdir(tmp_path / "deep")
    put({"config": "job.yaml", "fail-on": "high"})
    assert main(["x.json"]) == 1
    assert f"using {name}: config, fail-on" in capsys.readouterr().err
    assert pipeline.options["config"] == tmp_path / "job.yaml"
    for flags in (["-q"], ["-qv"], ["-vvq"], ["--quiet", "-v"], ["-qo", "y.md"]):
        assert main(["x.json", *flags]) == 1
        assert capsys.readouterr() == ("", ""), flags
    put({"confg": "job.yaml"})
    assert main(["x.json"]) == 2
    assert "'confg' is no option. Did you mean config?" in capsys.readouterr().err


@for_each(
    "job, said",
    ("a1_qwen3_30b_h100.yaml", ["profiling.use_nsys_profiler: true", "profiling.profile_ranks: [0, 1, 8]"]),
    ("a1_qwen3_30b_h100.sh", ["--profile", "--profile-step-start 10", "--profile-ranks 0 1 8"]),
    ("", ["# open the range around steps 10 to 13 (torch.cuda.profiler.start(), .stop()) on rank 0"]),
)
def test_how_to_capture_is_told_in_the_jobs_own_keys(job: str, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", *([str(ROOT / "fixtures" / "jobs" / job)] if job else [])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(said) <= set(lines)
    assert any("--cuda-graph-trace=node --cuda-event-trace=true" in line for line in lines)
    assert any("enable_cuda_sync_events=True" in line for line in lines)
