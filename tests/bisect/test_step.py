"""`bisect-step`: what captures say, each exit code, and a bisection by git itself."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from diagnose import cli, pipeline
from diagnose.bisect.model import load_numbers
from diagnose.bisect.step import judge
from diagnose.bisect.trial import TraceOptions, UnusableError, document_of, same_work
from diagnose.commands.bisect_step import ABORTS, aborting
from diagnose.document.device import StepSplit
from diagnose.document.diagnosis import Diagnosis, decode
from diagnose.document.encoding import encode
from diagnose.reason.compare.metrics import NO_STEPS
from tests.bisect import repositories
from tests.bisect.repositories import call, commit, new
from tests.bisect.simulated import step_captures
from tests.builders.cases import for_each
from tests.builders.compared import document, kernel
from tests.builders.comparing import RULES, samples
from tests.builders.processes import gone

ROOT = Path(__file__).parents[2]
LIMIT = 0.03


def judged(
    new: Sequence[float], *, good: Sequence[float] = (100.0,), error: float = 0.002, counts: bool = False, larger: bool = True
) -> str:
    """The verdict on captures that are so much worse than 100."""
    values = [100 * (1 + one) for one in new]
    return judge(good, values, limit=LIMIT, larger_is_worse=larger, counts=counts, error=error, numbers=load_numbers()).verdict


def decided(captures: Iterable[float], **options: Any) -> str:
    """The first verdict that is not open, of as many captures as it takes."""
    new: list[float] = []
    verdict = "open"
    for one in captures:
        new.append(one)
        verdict = judged(new, **options)
        if verdict != "open":
            break
    return verdict


# --- what captures say ------------------------------------------------------------------------------------------------


@for_each(
    "new, error, expected",
    ([0.5], 0.002, "bad"),
    ([-0.3], 0.002, "good"),
    ([0.0], 0.002, "open"),  # three deviations of the assumed noise, which is not much to go by
    ([0.0, 0.001], 0.002, "good"),
    ([0.06, 0.061], 0.002, "bad"),
    ([0.04, 0.042], 0.002, "open"),
    ([0.04, 0.042, 0.041, 0.04, 0.041], 0.002, "bad"),
    ([0.2, 0.0], 0.002, "open"),
    ([0.2, 0.0, 0.19], 0.002, "open"),
    ([0.5], 0.3, "open"),  # steps that differ so much inside the capture
    ([0.03, 0.03, 0.03], 0.0, "open"),
    ([5.0, 5.3], 0.002, "bad"),
    ([40.0, 42.0], 0.002, "bad"),
)
def test_captures_are_judged_by_their_noise(new: list[float], error: float, expected: str) -> None:
    assert judged(new, error=error) == expected


def test_counts_repeat_more_exactly_and_what_shall_be_large_is_judged_the_other_way_round() -> None:
    assert judged([0.04], error=0.0) == "open"
    assert judged([0.04], error=0.0, counts=True) == "bad"
    assert judged([-0.3], larger=False) == "bad"
    assert judged([0.3], larger=False) == "good"
    assert judged([-0.03] * 5, larger=False) == "open"  # the limit is 97


def test_several_baselines_place_the_limit_and_tell_their_noise() -> None:
    assert judged([0.06, 0.06], good=[100.0]) == "bad"
    assert judged([0.06, 0.06], good=[106.0]) == "good"
    assert judged([0.06, 0.06], good=[100.0, 106.0]) == "open"
    assert judged([0.0, 0.0], good=[100.0, 100.1, 99.9, 100.0]) == "good"
    assert judged([0.0], good=[100.0, 100.1, 99.9, 100.0]) == "good"


def test_wrong_verdicts_are_rare_and_right_ones_common() -> None:
    """Simulated captures of 1 % noise around levels on both sides of the limit."""
    chance = random.Random(7)
    said = {level: {"good": 0, "bad": 0, "open": 0} for level in (0.0, 0.02, 0.04, 0.06)}
    for level, counts in said.items():
        for _ in range(150):
            counts[decided(chance.gauss(level, 0.01) for _ in range(3))] += 1
    assert said[0.0]["bad"] == said[0.06]["good"] == 0
    assert said[0.02]["bad"] + said[0.04]["good"] <= 9
    assert min(said[0.0]["good"], said[0.06]["bad"]) > 120


def test_exit_codes_that_stop_git_can_not_be_confused() -> None:
    assert all(code > 192 or code == 141 for code in ABORTS.values())  # signals end at 128 + 64
    assert len(set(ABORTS.values())) == len(ABORTS)
    assert [aborting(code) for code in (130, 143, 2, 77)] == [130, 143, 194, 198]


# --- exit codes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = step_captures(tmp_path_factory.mktemp("simulated") / "traces")
    good = made["good"].with_name("good.json")
    assert cli.main([str(made["good"]), "--config", str(made["job"]), "-o", str(good), "-q"]) == 0
    return {**made, "baseline": good}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_captures_of_a_search_are_not_foreseen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(pipeline, "diagnose", lambda *_, forecasts, **__: asked.append(forecasts))
    document_of([tmp_path / "rank0.sqlite"], TraceOptions(), tmp_path)
    assert asked == [False]


def stepped(simulated: dict[str, Path], script: str, *options: str, baseline: str | None = None) -> int:
    """The exit code of one step whose command is a shell script, in which $GOOD and the like are traces."""
    for name, path in simulated.items():
        script = script.replace(f"${name.upper()}", f"'{path}'")
    given = ["--baseline", baseline or str(simulated["baseline"]), "--config", str(simulated["job"]), "--max-regression", "10%", *options]
    return cli.main(["bisect-step", *given, "--", "/bin/sh", "-c", script])


def leaving(name: str) -> str:
    return f'cp ${name} "$DIAGNOSE_OUTPUT/rank0.sqlite"'


def test_good(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stepped(simulated, leaving("AGAIN")) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "good: step time 21." in said.err
    assert "+10.0 % is allowed" in said.err
    assert list(here.iterdir()) == []


def test_bad(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stepped(simulated, "echo built; cp $SLOW trace.sqlite", "--trace", "*.sqlite", "--log", "log.txt") == 1
    said = capsys.readouterr().err
    assert (here / "log.txt").read_text() == "built\n"
    assert "bad: step time 33.1" in said
    assert "+10.0 % is allowed" in said
    assert ". Launch-bound time" in said


def test_metrics_of_every_kind(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stepped(simulated, leaving("SLOW"), "--metric", "launch_starved") == 1
    assert stepped(simulated, leaving("SLOW"), "--metric", "kernels") == 0
    capsys.readouterr()


def never_starved(step: StepSplit) -> StepSplit:
    """As if the host had never been late for itself."""
    return structs.replace(
        step, absent=tuple(structs.replace(one, why="host_sync") if one.why in {"allocator", "host_work"} else one for one in step.absent)
    )


@pytest.mark.deep
def test_a_baseline_of_nought_is_judged_by_the_comparison(
    simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nought = here / "nought.json"
    document = decode(simulated["baseline"].read_bytes())
    fed = [structs.replace(one, steps=tuple(never_starved(step) for step in one.steps)) for one in document.split]
    nought.write_bytes(encode(structs.replace(document, split=tuple(fed))))
    assert samples(decode(nought.read_bytes()), "launch_starved").values == (0.0,) * 4  # of five, the last ends where nobody knows
    assert stepped(simulated, leaving("GOOD"), "--metric", "idle") == 0  # both are nought
    assert "good: " in capsys.readouterr().err
    assert stepped(simulated, leaving("SLOW"), "--metric", "launch_starved", baseline=str(nought)) == 1
    assert "bad: " in capsys.readouterr().err


def test_several_baselines(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stepped(simulated, leaving("SLOW"), "--baseline", str(simulated["again"])) == 1
    capsys.readouterr()


@pytest.mark.deep
def test_noise_about_the_limit_repeats_and_then_skips(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = f"echo run >> runs; {leaving('SLOW')}"
    assert stepped(simulated, script, "--max-regression", "56.3%", "--repeats", "3") == 125  # it is 56.4 % slower
    said = capsys.readouterr().err
    assert (here / "runs").read_text().count("run") == 3
    assert said.count("not clear yet: step time 33.") == 3
    assert "skip: after 3 runs the noise is still larger than the effect." in said


@for_each(
    "script, said",
    ("echo 'ld: symbol not found'; exit 2", "skip: The command failed with exit code 2. It printed at the end: ld: symbol not found"),
    ("exit 1", "skip: The command failed with exit code 1. It printed nothing."),
    ("exit 125", "skip: The command asked to skip it"),
    ("true", "skip: The command left nothing in $DIAGNOSE_OUTPUT"),
    ("echo '{\"traceEvents\": [' > $DIAGNOSE_OUTPUT/x.json", "skip: "),
    ("head -c 50000 $GOOD > $DIAGNOSE_OUTPUT/rank0.sqlite", "skip: "),
    ("echo x > $DIAGNOSE_OUTPUT/notes.md; echo y > $DIAGNOSE_OUTPUT/more.md", "skip: The folder output holds no trace"),
    ("sleep 3600", "skip: The command took longer than 1 s and was ended."),
    (leaving("OTHER"), "skip: The two runs can't be compared"),
)
def test_skipped(
    simulated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    job = ("--config", str(simulated["other"].with_name("job.yaml"))) if "$OTHER" in script else ()
    counted = f"echo run >> runs; {script}"
    assert stepped(simulated, counted, "--timeout", "1" if "sleep" in script else "600", *job) == 125
    assert said in capsys.readouterr().err
    assert "sleep" in script or (tmp_path / "runs").read_text() == "run\n"


def test_anyway(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = str(simulated["other"].with_name("job.yaml"))
    assert stepped(simulated, leaving("OTHER"), "--config", job, "--anyway") == 1  # six layers instead of two
    capsys.readouterr()


def test_a_run_that_fails_after_a_good_one_counts_as_a_run(
    simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"if test -e ran; then echo broken; exit 3; fi; touch ran; {leaving('SLOW')}"
    assert stepped(simulated, script, "--max-regression", "56.3%", "--repeats", "3") == 125
    said = capsys.readouterr().err
    assert "run 2: The command failed with exit code 3. It printed at the end: broken" in said
    assert "run 3: The command failed" in said


@for_each("script, code", ("kill -KILL $$", 137), ("exit 128", 128), ("exit 255", 255))
def test_a_command_that_stops_everything(
    simulated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stepped(simulated, f"echo began; {script}", "--log", "log.txt") == code
    assert "stopped: The command " in capsys.readouterr().err
    assert (tmp_path / "log.txt").read_text() == "began\n"


def test_a_log_that_can_not_be_written(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stepped(simulated, "exit 1", "--log", "absent/log.txt") == 202
    assert "log.txt could not be written" in capsys.readouterr().err


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = cli.main(["bisect-step", *arguments, "--", "touch", "ran"])
    assert not Path("ran").exists()
    return code, capsys.readouterr().err


def test_wrong_questions_stop_git_before_anything_is_run(
    simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(simulated["baseline"])
    (here / "empty.json").write_text("{}")
    (here / "comparison.json").write_text('{"schema": "comparison/1"}')
    (here / "bad.yaml").write_text("a: [")
    wrong = {
        ("--baseline", good, "--no-such-option"): (194, "No such option"),
        (): (194, "Missing option '--baseline'"),
        ("--baseline", good, "--metric", "no_such_thing"): (194, "There is no metric"),
        ("--baseline", good, "--max-regression", "3"): (194, "no share"),
        ("--baseline", good, "--config", "absent.yaml"): (194, "absent.yaml"),
        ("--baseline", good, "--config", "bad.yaml"): (194, "bad.yaml"),
        ("--baseline", good, "--scheduler", "x"): (194, "Dask"),
        ("--baseline", "comparison.json"): (195, "comparison.json can't be used"),
        ("--baseline", "nightly"): (195, "neither a file nor a baseline"),
        ("--baseline", "no name!"): (194, "can't be the name of a baseline"),
        ("--baseline", "absent.json"): (195, "absent.json"),
        ("--baseline", "empty.json"): (195, "empty.json"),
    }
    for arguments, (code, text) in wrong.items():
        got = refused(arguments, capsys)
        assert (got[0], text in got[1]) == (code, True), (arguments, got)
    assert cli.main(["bisect-step", "--baseline", good]) == 194
    assert cli.main(["bisect-step", "--baseline", good, "--", "/bin/sh", "-c", "cp x y", "--log", "z"]) == 125


@pytest.mark.deep
def test_a_stored_baseline(simulated: dict[str, Path], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["baseline", "add", "main", str(simulated["baseline"])]) == 0
    assert stepped(simulated, leaving("SLOW"), baseline="main") == 1
    assert stepped(simulated, leaving("AGAIN"), baseline="main") == 0
    assert stepped(simulated, leaving("OTHER"), "--config", str(simulated["other"].with_name("job.yaml")), baseline="main") == 125
    assert "skip: It can't be compared: The baseline main was made from another job or device." in capsys.readouterr().err


def test_a_fault_of_ours_stops_git(
    simulated: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("diagnose.bisect.step.compare", broken)
    assert stepped(simulated, leaving("GOOD")) == 198
    assert "internal fault" in capsys.readouterr().err


@pytest.mark.deep
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupts(simulated: dict[str, Path], tmp_path: Path, number: signal.Signals, code: int) -> None:
    script = "sleep 600 & echo $$ $! > pids.new; mv pids.new pids; wait"
    process = subprocess.Popen(
        [sys.executable, "-m", "diagnose", "bisect-step", "--baseline", str(simulated["baseline"]), "--", "/bin/sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whoever runs the tests may ignore it, as nohup does  # noqa: PLW1509
    )
    until = time.monotonic() + 300
    while not (tmp_path / "pids").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == code
    assert b"Traceback" not in said
    for pid in (tmp_path / "pids").read_text().split():
        assert gone(int(pid))
    assert [path.name for path in tmp_path.iterdir()] == ["pids"]


# --- by git -----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_git_finds_the_commit(simulated: dict[str, Path], tmp_path: Path) -> None:
    """Twelve commits; the eighth is slower, the seventh does not build. Git is left with these two, or finds the one."""
    repository = new(tmp_path / "repository")
    profile = (
        '#!/bin/sh\nset -e\n./build.sh\nif grep -q slow setting; then cp "$SLOW" out/rank0.sqlite; else cp "$GOOD" out/rank0.sqlite; fi\n'
    )
    made = []
    for number in range(12):
        files = {
            "setting": "slow\n" if number >= 7 else "fast\n",
            "number": f"{number}\n",
            "build.sh": "#!/bin/sh\necho 'error: missing header' >&2\nexit 1\n" if number == 4 else "#!/bin/sh\nmkdir -p out\n",
            "profile.sh": profile,
            ".gitignore": "out\n",
        }
        for name in ("build.sh", "profile.sh"):
            path = repository / name
            path.write_text(files[name])
            path.chmod(0o755)
        made.append(commit(repository, f"change {number}", files))
    call(repository, "bisect", "start", made[-1], made[0])
    step = [sys.executable, "-m", "diagnose", "bisect-step", "--baseline", str(simulated["baseline"]), "--config", str(simulated["job"])]
    ended = subprocess.run(
        ["git", "bisect", "run", *step, "--max-regression", "10%", "--trace", "out/*.sqlite", "--", "./profile.sh"],
        cwd=repository,
        env={**repositories.environment(), "PYTHONPATH": str(ROOT), "GOOD": str(simulated["again"]), "SLOW": str(simulated["slow"])},
        capture_output=True,
        text=True,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert f"{made[7]} is the first bad commit" in said
    log = call(repository, "bisect", "log")
    assert f"# first bad commit: [{made[7]}] change 7" in log
    assert all(f"git bisect bad {one}" not in log for one in made[:7])
    assert all(f"git bisect good {one}" not in log for one in made[7:])
    if f"git bisect skip {made[4]}" in log:
        assert "skip: The command failed with exit code 1. It printed at the end: error: missing header" in said


def test_git_stops_when_the_question_is_wrong(simulated: dict[str, Path], tmp_path: Path) -> None:
    repository = new(tmp_path / "repository")
    made = [commit(repository, f"change {number}", {"number": str(number)}) for number in range(4)]
    call(repository, "bisect", "start", made[-1], made[0])
    ended = subprocess.run(
        ["git", "bisect", "run", sys.executable, "-m", "diagnose", "bisect-step", "--baseline", "nightly", "--", "true"],
        cwd=repository,
        env={**repositories.environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode not in {0, 1, 125}
    assert "195" in ended.stdout + ended.stderr
    log = call(repository, "bisect", "log")
    assert log.count("git bisect good") + log.count("git bisect bad") <= 2


@for_each("noise, baselines, wrong, skipped", (0.01, 1, 0.01, 0.10), (0.02, 1, 0.04, 0.45), (0.05, 1, 0.13, 0.65), (0.05, 3, 0.08, 0.75))
@for_each("effect", 0.0, 0.06)
def test_how_often_verdicts_are_wrong(noise: float, baselines: int, wrong: float, skipped: float, effect: float) -> None:
    """A limit of 3 % and five runs, 200 commits: with little noise nearly all are judged, with noise above the effect most are skipped.

    The bounds stand in docs/how-to/find-the-commit.md.
    """
    chance, ends = random.Random(11), []
    for _ in range(200):
        good = [100 * math.exp(chance.gauss(0, noise)) for _ in range(baselines)]
        shares = ((1 + effect) * math.exp(chance.gauss(0, noise)) - 1 for _ in range(5))
        ends.append(decided(shares, good=good, error=0.0))
    assert ends.count("bad" if effect < 0.03 else "good") <= wrong * len(ends)
    assert ends.count("open") <= skipped * len(ends)


# --- captures without steps -------------------------------------------------------------------------------------------


def test_captures_without_steps_are_brought_to_the_same_work_or_refused() -> None:
    """The same measure as a comparison's: a capture that holds 80 % of the work, in as much time, is slower by a quarter."""

    def whole(first: int, second: int, ns: int = 3_000_000) -> Diagnosis:
        return document(({"attention": ns},), anchor=NO_STEPS, kernels=[kernel("a", first, 10_000), kernel("b", second, 20_000)])

    base = whole(100, 50)
    assert same_work(base, base, (0, 0), RULES)[0] == 1
    scale, note = same_work(base, whole(80, 40), (0, 0), RULES)
    assert float(scale) == pytest.approx(1.25)
    assert "times 1.2500: the work of the first capture" in note
    assert same_work(document(), document(({"attention": 5},)), (0, 0), RULES) == (1, "")
    with pytest.raises(UnusableError, match="do not hold the same kind of work"):
        same_work(base, whole(100, 200), (0, 0), RULES)
    with pytest.raises(UnusableError, match="could not be cut into steps, and the first one was"):
        same_work(document(), base, (0, 0), RULES)
