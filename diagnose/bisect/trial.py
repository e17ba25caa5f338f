"""One trial: a candidate is checked out, the user's command is run, what it left is diagnosed; or a capture that is there is measured."""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from diagnose.bisect import guard
from diagnose.bisect.git import Checkout, CheckoutError, environment
from diagnose.bisect.log import Entry, Experiment, Line, SearchFolder, Workspace, file_name
from diagnose.document import files
from diagnose.document.bisection import Trial, TrialState
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.encoding import encode
from diagnose.errors import DiagnoseError, InputError, JobFileError, UsageError
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.load.files import is_parquet_folder
from diagnose.load.readers import expand, superseded
from diagnose.reason.compare.metrics import NO_STEPS, Samples, UnmeasuredError, place_of, samples
from diagnose.reason.compare.work import capture_work

if TYPE_CHECKING:
    from diagnose.scale.engine import Engine, MeasuringOptions, ReadingOptions, Say

OUTPUT = "DIAGNOSE_OUTPUT"  # in the command's environment: the fresh folder in which its trace is looked for
SKIP = 125
ABORT = 128
# Seconds. Waiting with a limit looks again and again; without one, a handler of SIGINT that libraries install (polars does) lets the system
# go on waiting, and Ctrl-C has no effect.
_FOREVER = 1e9
_TAIL_BYTES, _TAIL_LINES, _TAIL_TEXT = 8192, 5, 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FOLDERS = re.compile(r"(?:/[^\s/'\":]+)+/(?=[^\s/'\":]+)")


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended. `last_words` is what it printed at the end, in a line."""

    code: int
    timed_out: bool
    last_words: str


def substituted(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command with {commit}, {item} and {trace} filled in at once; other braces stay (shells and awk use them, `${item}` too)."""
    pattern = re.compile(rf"(?<!\$)\{{({'|'.join(map(re.escape, values))})\}}")
    return [pattern.sub(lambda found: values[found.group(1)], word) for word in command]


def run_command(command: Sequence[str], workspace: Workspace, timeout: float | None) -> CommandResult:
    """Run the command, at most `timeout` seconds; what it leaves running ends with it. Raises InputError where its folder is gone."""
    if not workspace.folder.is_dir():
        raise InputError(
            f"The folder {workspace.folder}, in which the command runs, is not there.", effect="Nothing was run.", next_step="Put it back."
        )
    timed_out = False
    with workspace.log.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
            [sys.executable, "-I", "-S", guard.__file__, *command],
            cwd=workspace.folder,
            env={**(environment() if workspace.apart else os.environ), OUTPUT: str(workspace.output)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the search alone, which then ends the command
            pass_fds=() if workspace.lock is None else (workspace.lock,),
        )
        try:
            code = process.wait(_FOREVER if timeout is None else timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            code = end_command(process)
        except BaseException:
            end_command(process)
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
    return CommandResult(code=code, timed_out=timed_out, last_words=_last_lines(workspace.log))


def end_command(process: subprocess.Popen[bytes]) -> int:
    """Let the guard end the command, and wait for it.

    Not by `Popen.wait`: an interruption that comes while that holds its lock leaves the lock behind, and it would wait for ever.
    """
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with suppress(ChildProcessError):  # it was waited for already
            process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    return -1 if process.returncode is None else process.returncode


def _last_lines(log: Path) -> str:
    """The last lines that the command printed, without escapes and without the folders of paths."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = [" ".join(_ESCAPES.sub(" ", line).split()) for line in re.split(r"[\r\n]+", text)]
    last = _FOLDERS.sub("", " / ".join([line for line in lines if line][-_TAIL_LINES:]))
    return f"{'…' if len(last) > _TAIL_TEXT else ''}{last[-_TAIL_TEXT:]}"


def why_not(ran: CommandResult, timeout: float | None) -> str:
    """Why a command that ran gives no value, as a sentence; empty where it ended well."""
    if ran.timed_out:
        return f"The command took longer than {timeout:g} s and was ended.{_quoted(ran)}"
    if ran.code == 0:
        return ""
    if ran.code == SKIP:
        return f"The command asked to skip it (exit code {SKIP}).{_quoted(ran)}"
    why = f", which stands for {_signal(ran.code - ABORT)}" if ran.code > ABORT else ""
    return f"The command failed with exit code {ran.code}{why}.{_quoted(ran)}"


def _quoted(ran: CommandResult) -> str:
    return f" It printed at the end: {ran.last_words}" if ran.last_words else " It printed nothing."


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- what it left -----------------------------------------------------------------------------------------------------

Stamp = tuple[tuple[str, int, int, int], ...]


def matches(workspace: Workspace, pattern: str) -> dict[Path, Stamp]:
    """What a pattern (relative to the command's folder) matches, each with what changes when it is written; of folders, their traces."""
    names = glob.glob(pattern, root_dir=workspace.folder, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    named = sorted({workspace.folder / name for name in names})
    found: list[Path] = []
    for path in named:
        if not path.is_dir() or is_parquet_folder(path):
            found.append(path)
            continue
        with suppress(InputError):
            found += expand([path]).traces
    return {path: _stamp(path) for path in dict.fromkeys(found)}


def traces_left(workspace: Workspace, pattern: str | None, before: Mapping[Path, Stamp]) -> tuple[Path, ...]:
    """What `pattern` matches and was not so `before`, else what the output folder holds (where that is several files, the folder)."""
    fresh = [] if pattern is None else [path for path, stamp in matches(workspace, pattern).items() if before.get(path) != stamp]
    if fresh:
        doubles = superseded(fresh)
        return tuple(path for path in fresh if path not in doubles)
    found = sorted(path for path in workspace.output.iterdir() if not path.name.startswith("."))
    return (workspace.output,) if len(found) > 1 else tuple(found)


def nothing_left(pattern: str | None, before: Mapping[Path, Stamp]) -> str:
    """That a command left no trace, as a sentence, and where it was looked for."""
    if pattern is None:
        return f"The command left nothing in ${OUTPUT}, and no pattern says where else its trace is."
    old = "only what was there before it ran" if before else "nothing"
    return f"The command left no trace: {old} matches {pattern}, and ${OUTPUT} is empty."


def _stamp(path: Path) -> Stamp:
    """What changes when a file, or a file of a folder's export, is written: compared with itself earlier, so no clocks have to agree."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        with suppress(OSError):
            status = file.stat()
            found.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


class UnusableError(Exception):
    """A capture that gives no value of the metric; the trial says so with this reason."""


class StopRequestedError(Exception):
    """The command ended in a way that asks for the end of it all: by a signal, or with 128 or more."""

    def __init__(self, code: int, label: str, log: Path, reason: str) -> None:
        self.code, self.label, self.log = code, label, log
        super().__init__(reason)


class _FailedError(Exception):
    """The command gave no capture.

    `state` of the trial: "skipped" where it asked for that, so that another try is no use, else "failed".
    """

    def __init__(self, reason: str, state: TrialState) -> None:
        self.state: TrialState = state
        super().__init__(reason)


# --- diagnoses and their values ---------------------------------------------------------------------------------------


class TraceOptions(Struct, frozen=True, kw_only=True):
    """How traces are read and measured. A relative job file is looked for in the folder that the command works in."""

    reading: ReadingOptions = {}
    rank: int | None = None
    engine: Engine | None = None
    notice: Say | None = None

    def within(self, folder: Path) -> MeasuringOptions:
        """The pipeline's keyword arguments for a command that works in `folder`."""
        config = self.reading.get("config")
        job_file = None if config is None else folder / config
        return {**self.reading, "config": job_file, "rank": self.rank, "engine": self.engine, "notice": self.notice}


def document_of(capture: Sequence[Path], options: TraceOptions, folder: Path) -> Diagnosis:
    """A capture's diagnosis, made or, where saved, read. Raises UnusableError; RuleFileError for what is wrong with every capture."""
    if is_saved(capture):
        return read_capture(capture)
    from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

    try:
        return diagnose(capture, **options.within(folder), forecasts=False)
    except (InputError, JobFileError, UsageError) as fault:
        raise unusable(fault, capture) from fault


def is_saved(capture: Sequence[Path]) -> bool:
    """Whether a capture is no trace but a document of this program."""
    return len(capture) == 1 and files.schema_of(capture[0]) is not None


def read_capture(capture: Sequence[Path]) -> Diagnosis:
    """A capture that is a saved diagnosis. Raises UnusableError for another document, and a damaged one."""
    try:
        return files.read_diagnosis(capture[0])
    except InputError as fault:
        raise unusable(fault, capture) from fault


def unusable(fault: DiagnoseError, capture: Sequence[Path]) -> UnusableError:
    """The same fault as a reason that a trial tells: without the folders of the capture's files, because documents name bare files."""
    reason = f"{fault.what} {fault.next_step}".strip()
    for path in capture:
        reason = reason.replace(f"{path.parent}{os.sep}", "")
    return UnusableError(reason)


def values_of(document: Diagnosis, metric: str, place: tuple[int, int] | None, rules: ComparisonRules) -> Samples:
    """The metric's samples at `place` (rank, device), else on the verdict's device. Raises UnusableError; MetricError: no such metric."""
    verdict = place_of(document)
    for where in dict.fromkeys((place or verdict, verdict)):
        try:
            return samples(document, metric, where, rules=rules)
        except UnmeasuredError as fault:
            reason = f"{fault.what} {fault.next_step}".strip()
    raise UnusableError(reason)


def same_work(first: Diagnosis, document: Diagnosis, place: tuple[int, int], rules: ComparisonRules) -> tuple[Fraction, str]:
    """What a capture's times are multiplied by to be of the first one's work, and a note where one was not cut into steps.

    The same measure as a comparison's. Raises UnusableError where their work can't be told to be the same.
    """
    whole = [one.steps.anchor == NO_STEPS for one in (first, document)]
    if whole[0] != whole[1]:
        raise UnusableError(
            f"The capture {'could not be' if whole[1] else 'was'} cut into steps, and the first one {'was' if whole[1] else 'was not'}: name "
            "the range that is one step (--step-range)."
        )
    if not whole[0]:
        return Fraction(1), ""
    if document is first:
        return Fraction(1), "The capture could not be cut into steps; the value is of all of it."
    work = capture_work(first, document, (place, place), rules.limits.capture)
    if work.mismatch is not None and work.mismatch.state == "refused":
        raise UnusableError(work.mismatch.text)
    return work.scale, (
        f"The capture could not be cut into steps; the value is of all of it, times {float(work.scale):.4f}: the work of the first capture."
    )


# --- trials -----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Trials:
    """Runs trials of one search. `work` is where the command runs; with a checkout, that is put there first.

    `lock`: descriptor of the search's lock. `place`: (rank, device) that values are taken from, that of the first capture. `first`: that
    capture, to whose amount of work captures without steps are brought. `timeout` in seconds.
    """

    experiment: Experiment
    folder: SearchFolder
    options: TraceOptions
    rules: ComparisonRules
    lock: int
    work: Path
    checkout: Checkout | None = None
    timeout: float | None = None
    place: tuple[int, int] | None = None
    first: Diagnosis | None = None

    def run(self, candidate: int, number: int) -> Line:
        """Run one trial. Raises StopRequestedError."""
        started = time.monotonic()
        entry = self.experiment.entries[candidate]
        try:
            line = self.measured(candidate, number, document_of(self._capture(entry, number), self.options, self.work))
        except _FailedError as fault:
            line = no_value(candidate, number, fault.state, fault)
        except CheckoutError as fault:
            line = no_value(candidate, number, "failed", fault)
        except UnusableError as fault:
            line = no_value(candidate, number, "unusable", fault)
        return structs.replace(line, seconds=round(time.monotonic() - started, 3))

    def _capture(self, entry: Entry, number: int) -> Sequence[Path]:
        """The traces that the command left."""
        if self.checkout is not None:
            self.checkout.check_out(entry.item)
        workspace = self.folder.workspace(number, entry.label, self.work, self.lock, apart=self.checkout is not None)
        values = {"commit": entry.item, "item": entry.item, "trace": str(workspace.output / "trace")}
        pattern = None if self.experiment.trace is None else substituted([self.experiment.trace], values)[0]
        before = {} if pattern is None else matches(workspace, pattern)
        result = run_command(substituted(self.experiment.command, values), workspace, self.timeout)
        if result.code >= ABORT and not result.timed_out:
            raise StopRequestedError(result.code, entry.label, workspace.log, why_not(result, None))
        reason = why_not(result, self.timeout)
        if reason:
            raise _FailedError(reason, "skipped" if result.code == SKIP and not result.timed_out else "failed")
        traces = traces_left(workspace, pattern, before)
        if not traces:
            raise UnusableError(nothing_left(pattern, before))
        return traces

    def measured(self, candidate: int, number: int, document: Diagnosis) -> Line:
        """The trial of a capture that was diagnosed; its document is kept. Raises UnusableError, and OutputError where it can't be kept."""
        name = f"{file_name(number, self.experiment.entries[candidate].label)}.json"
        files.write_file(self.folder.documents / name, encode(document).decode(), force=True)
        values = values_of(document, self.experiment.metric, self.place, self.rules)
        self.place, self.first = self.place or place_of(document), self.first or document
        scale, note = same_work(self.first, document, self.place, self.rules) if values.unit in {"ns", "count"} else (Fraction(1), "")
        scaled = tuple(float(value * scale) if scale != 1 else value for value in values.values)
        trial = Trial(candidate=candidate, number=number, state="measured", values=scaled, document=name, text=note)
        rank = None if any(step.rank == self.place[0] for step in document.budget) else place_of(document)[0]
        return Line(trial=trial, seconds=0.0, unit=values.unit, larger_is_worse=values.larger_is_worse, rank=rank, window=values.window)


def no_value(candidate: int, number: int, state: TrialState, reason: object) -> Line:
    """The trial of a candidate that gave no value."""
    return Line(trial=Trial(candidate=candidate, number=number, state=state, text=str(reason)), seconds=0.0)
