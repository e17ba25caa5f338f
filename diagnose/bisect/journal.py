"""The log of a search: JSON lines that are only ever appended. The first one is the question with its candidates, each further one a trial.

A line counts once it ends in a line feed and is on the disk. What a search knows is recomputed from these lines alone, so that a run which is killed at any moment goes on as if it had not been.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from diagnose.document.bisection import Kind, Trial
from diagnose.errors import InputError, OutputError, UsageError

SCHEMA = "bisect-log/1"
NAME = "log.jsonl"


class Entry(Struct, frozen=True, kw_only=True):
    """One candidate in the order: what it is called everywhere, one line about it, and what stands for it in the command (a commit, an item) or is read (a trace)."""

    label: str
    subject: str
    item: str


class Asked(Struct, frozen=True, kw_only=True):
    """What is measured, and how: other answers here would make the trials of a log incomparable."""

    mode: Kind
    entries: tuple[Entry, ...]
    metric: str
    command: tuple[str, ...] = ()
    trace: str | None = None
    config: str | None = None
    overrides: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    rank: int | None = None
    step_range: str | None = None
    keep_untracked: bool = False


class Judging(Struct, frozen=True, kw_only=True):
    """How the trials are judged: may be changed between runs of one search. Shares are relative (0.03 is 3 %)."""

    repeats: int
    max_regression: float | None = None
    smallest: float | None = None
    noise: float | None = None
    first: bool = False


class Header(Struct, frozen=True, kw_only=True, tag="header", tag_field="line"):
    """The first line. `work`: the folder that the search is about (the repository, or where commands run); `order`: how the candidates were put in order, as a sentence; `notes` about them."""

    schema: str
    version: str
    asked: Asked
    judging: Judging
    work: str
    order: str = ""
    notes: tuple[str, ...] = ()


class Line(Struct, frozen=True, kw_only=True, tag="trial", tag_field="line"):
    """One trial, how long it took (for the estimate alone), and what its values are: their unit, and whether more is worse."""

    trial: Trial
    seconds: float
    unit: str = ""
    larger_is_worse: bool = True


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What a log holds. `length`: bytes of whole lines; `torn`: bytes after them, of a line whose writing was interrupted."""

    header: Header
    lines: tuple[Line, ...]
    length: int
    torn: int

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials, in the order of running."""
        return tuple(line.trial for line in self.lines)


def parse(data: bytes, name: str = NAME) -> Logged:
    """The log in `data`. A last line without its line feed was being written when the run ended, and does not count. Raises InputError for one that is damaged otherwise."""
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
    if any(not 0 <= line.trial.candidate < len(header.asked.entries) for line in trials):
        raise _damaged(name, "it speaks of a candidate that there is not")
    return Logged(header=header, lines=trials, length=len(data) - len(torn), torn=len(torn))


def _damaged(name: str, why: str) -> InputError:
    return InputError(
        f"The log {name} can't be used: {why}.", effect="The search was not gone on with.", next_step="Begin anew with another --state."
    )


class Journal:
    """A log on the disk that trials are appended to."""

    def __init__(self, path: Path, header: Header, lines: Sequence[Line]) -> None:
        self.path, self.header, self.lines = path, header, list(lines)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials so far."""
        return tuple(line.trial for line in self.lines)

    def append(self, line: Line) -> None:
        """Write one trial, and return when it is on the disk. Raises OutputError."""
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as fault:
            raise OutputError(
                f"The log {self.path} could not be written: {fault.strerror}.",
                effect="The last trial is lost, the others are kept.",
                next_step="Make room, then go on with --resume.",
            ) from fault
        self.lines.append(line)


def begin(path: Path, header: Header) -> Journal:
    """A new log, whole or not at all. Raises UsageError where there is one already."""
    if path.exists():
        raise UsageError(
            f"There is a log of this search already: {path}.",
            effect="Nothing was run.",
            next_step="Go on with --resume, or name another --state to begin anew.",
        )
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(header) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return Journal(path, header, ())


def resume(path: Path) -> tuple[Journal, str]:
    """A log to go on with, and a sentence about a line that was cut off (empty where none was). Raises InputError."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise InputError(
            f"There is no log of a search at {path}: {fault.strerror}.",
            effect="Nothing was run.",
            next_step="Begin it without --resume, or name its folder with --state.",
        ) from fault
    found = parse(data, path.name)
    said = ""
    if found.torn:
        os.truncate(path, found.length)
        said = "The last line of the log was cut off when the run before ended; that trial is run again."
    return Journal(path, found.header, found.lines), said


def check_same(asked: Asked, logged: Asked) -> None:
    """Refuse to go on with a log of another question. Raises UsageError, which names what is different."""
    if asked == logged:
        return
    different = [name.replace("_", " ") for name in Asked.__struct_fields__ if getattr(asked, name) != getattr(logged, name)]
    shown = ", ".join("candidates" if name == "entries" else name for name in different)
    raise UsageError(
        f"The log in that folder belongs to another search; different: {shown}.",
        effect="Nothing was run.",
        next_step="Give --resume --state alone to go on with it as it was, or name another --state to begin anew.",
    )
