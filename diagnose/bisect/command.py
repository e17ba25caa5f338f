"""The user's command, run for one candidate, and the traces that it left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.bisect import guard
from diagnose.bisect.git import environment

OUTPUT = "DIAGNOSE_OUTPUT"  # in the command's environment: the fresh folder in which its trace is looked for
SKIP = 125
ABORT = 128
_TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command ended. `said` is the last line that it printed."""

    code: int
    seconds: float
    timed_out: bool
    said: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a command works: its folder, the folder for its trace, the file for what it prints, and a descriptor that is kept open while it runs (the search's lock)."""

    folder: Path
    output: Path
    log: Path
    lock: int | None = None


def substituted(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command with {commit}, {item} and {trace} filled in; other braces stay."""
    found = []
    for word in command:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)  # noqa: PLW2901 - one word, filled in bit by bit
        found.append(word)
    return found


def run(command: Sequence[str], place: Place, timeout: float | None) -> Ran:
    """Run the command to its end, at most `timeout` seconds. Everything that it started ends with it when this is interrupted or killed."""
    started = time.monotonic()
    timed_out = False
    with place.log.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
            [sys.executable, "-I", "-S", guard.__file__, *command],
            cwd=place.folder,
            env={**environment(), OUTPUT: str(place.output)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the search alone, which then ends the command
            pass_fds=() if place.lock is None else (place.lock,),
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            code = _cut(process)
        except BaseException:
            _cut(process)
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
    return Ran(code=code, seconds=time.monotonic() - started, timed_out=timed_out, said=_last_line(place.log))


def _cut(process: subprocess.Popen[bytes]) -> int:
    """Let the guard end the command, and wait for it."""
    if process.stdin is not None:
        process.stdin.close()
    return process.wait()


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", errors="replace").splitlines()]
    return next((line[-300:] for line in reversed(lines) if line), "")


def why_not(ran: Ran, timeout: float | None) -> str:
    """Why a command that ran gives no value, as a sentence; empty where it ended well."""
    if ran.timed_out:
        return f"The command took longer than {timeout:g} s and was ended."
    if ran.code == 0:
        return ""
    last = f" Its last line: {ran.said}" if ran.said else ""
    if ran.code == SKIP:
        return f"The command asked to skip it (exit code {SKIP}).{last}"
    return f"The command failed with exit code {ran.code}.{last}"


Stamp = tuple[int, int, int]


def matches(place: Place, pattern: str) -> dict[Path, Stamp]:
    """What a pattern (relative to the command's folder) matches, each with what changes when it is written."""
    absolute = Path(pattern).is_absolute()
    anchor = Path(pattern).anchor if absolute else ""
    base = Path(anchor) if absolute else place.folder
    return {path: _stamp(path) for path in sorted(base.glob(pattern[len(anchor) :]))}


def traces(place: Place, pattern: str | None, before: Mapping[Path, Stamp]) -> tuple[Path, ...]:
    """The traces that a command left: what `pattern` matches and was not so `before` it ran, else what lies in its output folder."""
    if pattern is not None:
        return tuple(path for path, stamp in matches(place, pattern).items() if before.get(path) != stamp)
    found = sorted(path for path in place.output.iterdir() if not path.name.startswith("."))
    return (place.output,) if len(found) > 1 else tuple(found)


def _stamp(path: Path) -> Stamp:
    """Time, size and number of a file; of a folder, of the newest file in it."""
    files = [path] if path.is_file() else [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return max(((found.st_mtime_ns, found.st_size, found.st_ino) for found in (file.stat() for file in files)), default=(0, 0, 0))
