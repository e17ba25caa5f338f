"""The user's command, run for one candidate, and the traces that it left."""

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
from pathlib import Path

from diagnose.bisect import guard
from diagnose.bisect.git import environment
from diagnose.errors import InputError
from diagnose.load.files import is_parquet_folder
from diagnose.load.readers import expand, superseded

OUTPUT = "DIAGNOSE_OUTPUT"  # in the command's environment: the fresh folder in which its trace is looked for
SKIP = 125
ABORT = 128
# Seconds. Waiting with a limit looks again and again; without one, a handler of SIGINT that libraries install (polars does) lets the system
# go on waiting, and Ctrl-C has no effect.
_FOREVER = 1e9
_TAIL_BYTES, _TAIL_LINES, _TAIL_TEXT = 8192, 5, 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FOLDERS = re.compile(r"(?:/[^\s/'\":]+)+/(?=[^\s/'\":]+)")


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How a command ended. `last_words` is what it printed at the end, in a line."""

    code: int
    seconds: float
    timed_out: bool
    last_words: str


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where a command works.

    Its folder, the folder for its trace, the file for what it prints, and a descriptor that is kept open while it runs (the search's lock).

    `apart`: the folder is in another repository than the caller, so that variables that point git to the caller's are taken away.
    """

    folder: Path
    output: Path
    log: Path
    lock: int | None = None
    apart: bool = True


def substituted(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command with {commit}, {item} and {trace} filled in, all at once.

    Other braces stay as they are (shells and awk use them, and `${item}` is a variable).
    """
    pattern = re.compile(rf"(?<!\$)\{{({'|'.join(map(re.escape, values))})\}}")
    return [pattern.sub(lambda found: values[found.group(1)], word) for word in command]


def run(command: Sequence[str], workspace: Workspace, timeout: float | None) -> CommandResult:
    """Run the command to its end, at most `timeout` seconds.

    What it leaves running ends with it, also when this process is interrupted or killed. Raises InputError where its folder is not there.
    """
    if not workspace.folder.is_dir():
        raise InputError(
            f"The folder {workspace.folder}, in which the command runs, is not there.", effect="Nothing was run.", next_step="Put it back."
        )
    started = time.monotonic()
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
            code = _cut(process)
        except BaseException:
            _cut(process)
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
    return CommandResult(code=code, seconds=time.monotonic() - started, timed_out=timed_out, last_words=_last_lines(workspace.log))


def _cut(process: subprocess.Popen[bytes]) -> int:
    """Let the guard end the command, and wait for it."""
    if process.stdin is not None:
        process.stdin.close()
    return process.wait(_FOREVER)


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
    """What a pattern (relative to the command's folder) matches, each with what changes when it is written.

    Of a folder that does, the traces in it.
    """
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


def traces(workspace: Workspace, pattern: str | None, before: Mapping[Path, Stamp]) -> tuple[Path, ...]:
    """The traces that a command left: what `pattern` matches and was not so `before` it ran, else what lies in its output folder (several.

    The folder).
    """
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
    """What changes when a file is written, or any file of an export that is a folder.

    Compared with itself earlier, so that no two clocks have to agree.
    """
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        with suppress(OSError):
            status = file.stat()
            found.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
