"""What a search keeps: its folder, in which only one run works at a time, and its log of JSON lines that are only ever appended.

The log's first line is the experiment with its candidates, each further one a trial. A line counts once it ends in a line feed and is on
the disk. What a search knows is recomputed from these lines alone, so that a run which is killed at any moment goes on as if it had not
been.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, field

from diagnose.document.bisection import Kind, Trial
from diagnose.document.comparison import Window
from diagnose.errors import InputError, OutputError, UsageError

SCHEMA = "bisect-log/1"
DEFAULT_FOLDER = Path(".diagnose") / "bisect"  # in the repository; each search has a folder in it
_NAME = "log.jsonl"
_PATIENCE_SECONDS = 20.0  # for what a killed run left to end


class SearchError(UsageError):
    """A search can't be begun, or gone on with, as it is asked for; nothing was run."""

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what, effect="Nothing was run.", next_step=next_step)


class Entry(Struct, frozen=True, kw_only=True):
    """One candidate: what it is called, one line about it, and what stands for it in the command (commit, item) or is read (trace)."""

    label: str
    subject: str
    item: str


class Experiment(Struct, frozen=True, kw_only=True):
    """What is measured, and how: other answers here would make the trials of a log incomparable."""

    mode: Kind
    entries: tuple[Entry, ...]
    metric: str
    command: tuple[str, ...] = ()
    trace: str | None = None
    config: str | None = None
    job_command: str | None = None  # which of several commands, or functions, of the job file
    overrides: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    rank: int | None = None
    step_range: str | None = None
    keep_untracked: bool = False


class Criteria(Struct, frozen=True, kw_only=True):
    """How the trials are judged: may be changed between runs of one search. Shares are relative (0.03 is 3 %)."""

    repeats: int
    max_regression: float | None = None
    smallest: float | None = None
    noise: float | None = None
    first: bool = False
    retries: int = 1


class Header(Struct, frozen=True, kw_only=True, tag="header", tag_field="line"):
    """The first line.

    `work`: the folder that the search is about (the repository, or where commands run); `order`: how the candidates were put in order, as a
    sentence; `notes` about them; `repeat`: the command line that asks for the same search, a word each.
    """

    schema: str
    version: str
    experiment: Experiment = field(name="asked")
    criteria: Criteria = field(name="judging")
    work: str
    order: str = ""
    notes: tuple[str, ...] = ()
    repeat: tuple[str, ...] = ()


class Line(Struct, frozen=True, kw_only=True, tag="trial", tag_field="line"):
    """One trial, how long it took (for the estimate alone), and what its values are: their unit, and whether more is worse.

    `window`: what times are of. `rank`: of which rank they are, where the capture does not hold that of the first one; else None.
    """

    trial: Trial
    seconds: float
    unit: str = ""
    larger_is_worse: bool = True
    rank: int | None = None
    window: Window = "step"


class LogContent(Struct, frozen=True, kw_only=True):
    """What a log holds. `length`: bytes of whole lines; `torn`: bytes after them, of a line whose writing was interrupted."""

    header: Header
    lines: tuple[Line, ...]
    length: int
    torn: int


def parse(data: bytes, name: str = _NAME) -> LogContent:
    """The log in `data`; a last line without line feed was cut off and does not count. Raises InputError where it is damaged."""
    whole, _, torn = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    try:
        header = msgspec.json.decode(lines[0], type=Header) if lines else None
        trials = tuple(msgspec.json.decode(line, type=Line) for line in lines[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise _damaged(name, str(fault)) from fault
    if header is None:
        raise _damaged(name, "it has no first line")
    if header.schema != SCHEMA:
        raise _damaged(name, f"its schema is {header.schema[:40]}, and this version of the program reads {SCHEMA}")
    if any(not 0 <= line.trial.candidate < len(header.experiment.entries) for line in trials):
        raise _damaged(name, "it speaks of a candidate that there is not")
    return LogContent(header=header, lines=trials, length=len(data) - len(torn), torn=len(torn))


def _damaged(name: str, why: str) -> InputError:
    return InputError(
        f"The log {name} can't be used: {why}.", effect="The search was not gone on with.", next_step="Begin anew with another --state."
    )


class Log:
    """A log on the disk that trials are appended to."""

    def __init__(self, path: Path, header: Header, lines: Sequence[Line]) -> None:
        self.path, self.header, self.lines = path, header, list(lines)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials so far."""
        return tuple(line.trial for line in self.lines)

    def append(self, line: Line) -> None:
        """Write one trial, and return when it is on the disk. Raises OutputError."""
        told, effect = f"The log {self.path} could not be written", "The last trial is lost, the others are kept."
        with OutputError.where_refused(told, effect=effect, next_step="Make room, then go on with --resume."):
            _write(self.path, line)
        self.lines.append(line)


def begin(path: Path, header: Header) -> Log:
    """A new log, whole or not at all. Raises UsageError where there is one already."""
    if path.exists():
        raise SearchError(
            f"There is a log of this search already: {path}.", next_step="Go on with --resume, or name another --state to begin anew."
        )
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    _write(temporary, header)
    temporary.replace(path)
    return Log(path, header, ())


def _write(path: Path, record: Header | Line) -> None:
    """Append a record as a line, and return when it is on the disk."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def resume(path: Path) -> tuple[Log, str]:
    """A log to go on with, and a sentence about a line that was cut off (empty where none was). Raises InputError."""
    told, next_step = f"There is no log of a search at {path}", "Begin it without --resume, or name its folder with --state."
    with InputError.where_refused(told, effect="Nothing was run.", next_step=next_step):
        data = path.read_bytes()
    content = parse(data, path.name)
    warning = ""
    if content.torn:
        os.truncate(path, content.length)
        warning = "The last line of the log was cut off when the run before ended; that trial is run again."
    return Log(path, content.header, content.lines), warning


def check_same(experiment: Experiment, logged: Experiment) -> None:
    """Refuse to go on with a log of another experiment. Raises UsageError, which names what is different."""
    if experiment == logged:
        return
    different = [name.replace("_", " ") for name in Experiment.__struct_fields__ if getattr(experiment, name) != getattr(logged, name)]
    shown = ", ".join("candidates" if name == "entries" else name for name in different)
    raise SearchError(
        f"The log in that folder belongs to another search; different: {shown}.",
        next_step="Give --resume --state alone to go on with it as it was, or name another --state to begin anew.",
    )


# --- the folder -------------------------------------------------------------------------------------------------------


class Workspace(Struct, frozen=True, kw_only=True):
    """Where a command works.

    Its folder, the folder for its trace, the file for what it prints, and a descriptor that is kept open while it runs (the search's lock).

    `apart`: the folder is in another repository than the caller, so that variables that point git to the caller's are taken away.
    """

    folder: Path
    output: Path
    log: Path
    lock: int | None = None
    apart: bool = True


class SearchFolder(Struct, frozen=True):
    """The folder at `path`; everything in it is ignored by git."""

    path: Path

    @property
    def log(self) -> Path:
        """The log."""
        return self.path / _NAME

    @property
    def documents(self) -> Path:
        """The folder of diagnoses."""
        return self.path / "documents"

    @property
    def clone(self) -> Path:
        """The checkout."""
        return self.path / "checkout"

    def make(self) -> None:
        """Make the folder, and keep git from showing it. Raises OutputError."""
        told = f"The folder {self.path} could not be made"
        with OutputError.where_refused(told, effect="Nothing was run.", next_step="Name another place with --state."):
            for part in (self.path, self.documents, self.path / "logs"):
                part.mkdir(parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")

    def workspace(self, number: int, label: str, work: Path, lock: int, *, apart: bool = True) -> Workspace:
        """Where the command of one trial works: its output folder is new and empty. Raises OutputError."""
        output = self.path / "output"
        told = "The folder for the command's output could not be made"
        with OutputError.where_refused(told, effect="The command was not run.", next_step="Make room."):
            if output.exists():
                shutil.rmtree(output)
            output.mkdir()
        return Workspace(folder=work, output=output, log=self.path / "logs" / f"{file_name(number, label)}.log", lock=lock, apart=apart)

    @contextmanager
    def locked(self, say: Callable[[str], None]) -> Iterator[int]:
        """Keep other runs out; the lock's descriptor. Waits for a killed run's command to end. Raises UsageError where one works."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, self.path, say)
            yield descriptor
        finally:
            os.close(descriptor)


def _lock(descriptor: int, path: Path, say: Callable[[str], None]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise SearchError(f"Another run works in {path}.", next_step="Let it end, or name another --state.") from None
            if not told:
                say("waiting for what an earlier run left in its folder to end")
            told = True
            time.sleep(0.1)
        else:
            return


def file_name(number: int, label: str) -> str:
    """The file name (without extension) of what one trial leaves."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.")[-40:] if not re.fullmatch(r"[0-9a-f]{40,64}", label) else label[:12]
    return f"{number:04d}-{safe or 'candidate'}"
