"""The user's command: what it leaves, how it ends, and that nothing of it stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from diagnose.bisect import guard, trial
from diagnose.bisect.log import SearchFolder, Workspace
from diagnose.bisect.trial import CommandResult, substituted
from diagnose.errors import InputError, OutputError
from tests.builders.cases import for_each
from tests.builders.processes import alive, gone
from tests.builders.records import replace

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Left:
    """A run of a command with what it left."""

    ran: CommandResult
    traces: tuple[Path, ...]
    text: str


def workspace_in(tmp_path: Path, *, apart: bool = True) -> Workspace:
    """A workspace whose folder is `tmp_path/it's here`."""
    work = tmp_path / "it's here"
    work.mkdir(exist_ok=True)
    folder = SearchFolder(tmp_path / "state")
    folder.make()
    with folder.locked(lambda _: None) as lock:
        return replace(folder.workspace(1, "a label", work, lock, apart=apart), lock=None)


def ran(tmp_path: Path, script: str, *, trace: str | None = None, timeout: float | None = None, apart: bool = True) -> Left:
    """A shell script, run as a trial runs it."""
    workspace = workspace_in(tmp_path, apart=apart)
    before = {} if trace is None else trial.matches(workspace, trace)
    found = trial.run_command(["/bin/sh", "-c", script], workspace, timeout)
    reason = trial.why_not(found, timeout)
    left = () if reason else trial.traces_left(workspace, trace, before)
    return Left(found, left, reason or ("" if left else trial.nothing_left(trace, before)))


def printed(tmp_path: Path) -> str:
    return (tmp_path / "state" / "logs" / "0001-a-label.log").read_text()


def content(path: Path) -> str:
    """What a file holds, once it holds anything."""
    until = time.monotonic() + 300
    while not (path.exists() and path.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.02)
    return path.read_text()


# --- what it left -----------------------------------------------------------------------------------------------------


def test_the_output_folder_is_fresh_and_what_lies_in_it_is_taken(tmp_path: Path) -> None:
    found = ran(tmp_path, 'echo {} > "$DIAGNOSE_OUTPUT/a trace.json"; echo done; echo oops >&2')
    assert (found.ran.code, found.text) == (0, "")
    assert found.traces == (tmp_path / "state" / "output" / "a trace.json",)
    assert printed(tmp_path) == "done\noops\n"
    found = ran(tmp_path, 'echo {} > "$DIAGNOSE_OUTPUT/r0.json"; echo {} > "$DIAGNOSE_OUTPUT/r1.json"')
    assert found.traces == (tmp_path / "state" / "output",)
    ran(tmp_path, 'echo {} > "$DIAGNOSE_OUTPUT/old.json"')
    assert ran(tmp_path, 'ls -A "$DIAGNOSE_OUTPUT"').traces == ()
    assert printed(tmp_path) == ""


def test_a_pattern_finds_several_ranks(tmp_path: Path) -> None:
    found = ran(
        tmp_path, "mkdir -p out/deep; echo {} > out/deep/r1.json; echo {} > out/r0.json; echo {} > out/notes.txt", trace="out/**/*.json"
    )
    assert [path.name for path in found.traces] == ["r1.json", "r0.json"]
    absolute = ran(tmp_path, "echo {} > out/r2.json", trace=f"{tmp_path}/it's here/out/*.json")
    assert [path.name for path in absolute.traces] == ["r2.json"]


def test_a_trace_of_an_earlier_run_is_never_taken(tmp_path: Path) -> None:
    assert ran(tmp_path, "echo first > trace.json", trace="*.json").traces
    found = ran(tmp_path, "true", trace="*.json")
    assert found.traces == ()
    assert found.text == "The command left no trace: only what was there before it ran matches *.json, and $DIAGNOSE_OUTPUT is empty."
    assert ran(tmp_path, "echo again > trace.json", trace="*.json").traces
    assert [path.name for path in ran(tmp_path, "echo {} > other.json", trace="*.json").traces] == ["other.json"]
    os.utime(tmp_path / "it's here" / "trace.json", (4_000_000_000, 4_000_000_000))  # clocks of file servers may be ahead
    assert [path.name for path in ran(tmp_path, "echo {} > other.json", trace="*.json").traces] == ["other.json"]


def test_without_a_fresh_match_the_output_folder_counts_and_nothing_left_is_said(tmp_path: Path) -> None:
    found = ran(tmp_path, 'echo {} > "$DIAGNOSE_OUTPUT/x.json"', trace="nothing/*.json")
    assert found.traces == (tmp_path / "state" / "output" / "x.json",)
    assert ran(tmp_path, "true").text == "The command left nothing in $DIAGNOSE_OUTPUT, and no pattern says where else its trace is."
    assert "nothing matches x/*.json, and $DIAGNOSE_OUTPUT is empty" in ran(tmp_path, "true", trace="x/*.json").text


def test_exports_and_folders_count_as_what_they_are(tmp_path: Path) -> None:
    folder = ran(tmp_path, "mkdir run; echo {} > run/r0.json; echo {} > run/r1.json; echo x > run/notes.md", trace="run")
    assert [path.name for path in folder.traces] == ["r0.json", "r1.json"]
    assert [path.name for path in ran(tmp_path, "echo {} > run/r1.json", trace="run").traces] == ["r1.json"]  # r0 is of an earlier run
    report = ran(tmp_path, "echo report > x.nsys-rep; sleep 0.02; printf 'SQLite format 3\\0' > x.sqlite", trace="x.*")
    assert [path.name for path in report.traces] == ["x.sqlite"]


# --- how it ended -----------------------------------------------------------------------------------------------------


@for_each(
    "script, code, text",
    ("echo {} > $DIAGNOSE_OUTPUT/x.json; exit 1", 1, "The command failed with exit code 1. It printed nothing."),
    ("echo fine; echo 'make: *** [all] Error 2' >&2; exit 2", 2, "exit code 2. It printed at the end: fine / make: *** [all] Error 2"),
    ("exit 125", 125, "asked to skip it (exit code 125)"),
    ("exit 127", 127, "failed with exit code 127"),
    ("exit 128", 128, "failed with exit code 128."),
    ("exit 139", 139, "exit code 139, which stands for SIGSEGV"),
    ("kill -KILL $$", 137, "exit code 137, which stands for SIGKILL"),
)
def test_every_other_end(tmp_path: Path, script: str, code: int, text: str) -> None:
    found = ran(tmp_path, script)
    assert (found.ran.code, found.traces) == (code, ())
    assert text in found.text


def test_a_command_that_does_not_start(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path)
    absent = trial.run_command(["./absent.sh", "x"], workspace, None)
    assert (absent.code, absent.last_words) == (127, "./absent.sh: No such file or directory")
    (workspace.folder / "script").write_text("exit 0\n")
    assert trial.run_command(["./script"], workspace, None).last_words == "./script: Permission denied"
    workspace.folder.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="here, in which the command runs, is not there"):
        trial.run_command(["true"], workspace, None)


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path / "state")
    folder.make()
    (folder.path / "output").write_text("")
    with pytest.raises(OutputError, match="could not be made"):
        folder.workspace(1, "x", tmp_path, 0)


def test_what_it_printed_is_quoted_without_escapes_folders_and_in_part(tmp_path: Path) -> None:
    found = ran(tmp_path, "printf '\\033[31mred\\033[0m\\r\\n/home/somebody/src/train.py: no module\\a\\n'; exit 1")
    assert found.text.endswith("It printed at the end: red / train.py: no module")
    found = ran(tmp_path, "yes long | head -n 100000; yes wide | head -n 2000 | tr '\\n' ' '; exit 1")
    assert len(found.text) < 600
    assert len(printed(tmp_path)) > 500_000


@pytest.mark.deep
def test_time_runs_out(tmp_path: Path) -> None:
    began = time.monotonic()
    found = ran(tmp_path, "echo began; sleep 3600 & echo $! > pid; wait", timeout=3)
    assert time.monotonic() - began < 900
    assert found.ran.timed_out
    assert found.text == "The command took longer than 3 s and was ended. It printed at the end: began"
    assert gone(int(content(tmp_path / "it's here" / "pid")))


def test_what_it_leaves_running_ends_with_it(tmp_path: Path) -> None:
    found = ran(tmp_path, "sleep 600 & echo $! > pid; echo {} > $DIAGNOSE_OUTPUT/x.json")
    assert found.traces
    assert not alive(int(content(tmp_path / "it's here" / "pid")))


def test_one_that_does_not_heed_sigterm_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done"
    child = subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, start_new_session=True)
    content(tmp_path / "pid")
    guard.end_group(child, patience=0.3)
    assert child.wait(timeout=600) == -signal.SIGKILL


# --- environment ------------------------------------------------------------------------------------------------------


def test_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/somewhere/.git")
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -4")
    script = 'echo "$PWD|$DIAGNOSE_OUTPUT|${GIT_DIR-none}|$GIT_SSH_COMMAND" > $DIAGNOSE_OUTPUT/x.json'
    seen = ran(tmp_path, script).traces[0].read_text().strip().split("|")
    assert seen == [str(tmp_path / "it's here"), str(tmp_path / "state" / "output"), "none", "ssh -4"]
    assert "|/somewhere/.git|" in ran(tmp_path, script, apart=False).traces[0].read_text()


def test_names_are_filled_in_and_other_braces_stay() -> None:
    argv = ["./p.sh", "{commit}", "--tag={item}/{commit}", "awk '{print $1}'", "{other}", "${trace}", "{ commit }"]
    assert substituted(argv, {"commit": "abc", "item": "{commit}", "trace": "t"}) == [
        "./p.sh", "abc", "--tag={commit}/abc", "awk '{print $1}'", "{other}", "${trace}", "{ commit }",
    ]  # fmt: skip


# --- this process ends ------------------------------------------------------------------------------------------------

_RUNS = """
import sys
import polars  # which handles SIGINT itself
from pathlib import Path
from diagnose.bisect.log import Workspace
from diagnose.bisect.trial import run_command
here = Path(sys.argv[1])
try:
    run_command(["/bin/sh", "-c", "sleep 600 & echo $$ $! > pids; wait"], Workspace(folder=here, output=here / "left", log=here / "log"), None)
except BaseException as fault:
    (here / "fault").write_text(type(fault).__name__)
"""


def started(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    process = subprocess.Popen([sys.executable, "-c", _RUNS, str(folder)], cwd=ROOT)
    return process, [int(word) for word in content(folder / "pids").split()]


def test_the_command_ends_before_the_interrupt_goes_on(tmp_path: Path) -> None:
    process, pids = started(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 0
    assert (tmp_path / "fault").read_text() == "KeyboardInterrupt"
    assert not any(alive(pid) for pid in pids)


@for_each("number", signal.SIGTERM, signal.SIGKILL)
def test_the_command_ends_with_a_search_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    process, pids = started(tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=600) == -number
    assert all(gone(pid) for pid in pids)


def test_a_command_is_ended_where_an_interruption_left_a_lock_behind() -> None:
    """A signal that comes while Popen asks for its child leaves Popen's lock held."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read(); sys.exit(7)"], stdin=subprocess.PIPE)
    process._waitpid_lock.acquire()  # type: ignore[attr-defined]  # noqa: SLF001 - what an interrupted Popen leaves
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(trial.end_command(process)), daemon=True)
    waiting.start()
    waiting.join(60)
    assert codes == [7]
