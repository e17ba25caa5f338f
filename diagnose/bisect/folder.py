"""The folder of one search: its log, the diagnosis of each capture, what commands printed, and the checkout. Only one run works in it at a time."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diagnose.bisect import journal
from diagnose.bisect.command import Place
from diagnose.errors import OutputError, UsageError

DEFAULT = Path(".diagnose") / "bisect"
_PATIENCE_SECONDS = 20.0  # for what a killed run left to end


@dataclass(frozen=True)
class Folder:
    """The folder at `path`; everything in it is ignored by git."""

    path: Path

    @property
    def log(self) -> Path:
        """The log."""
        return self.path / journal.NAME

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
        try:
            for part in (self.path, self.documents, self.path / "logs"):
                part.mkdir(parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as fault:
            raise OutputError(
                f"The folder {self.path} could not be made: {fault.strerror}.",
                effect="Nothing was run.",
                next_step="Name another place with --state.",
            ) from fault

    def place(self, number: int, label: str, work: Path, lock: int, *, apart: bool = True) -> Place:
        """Where the command of one trial works: its output folder is new and empty. Raises OutputError."""
        output = self.path / "output"
        try:
            if output.exists():
                shutil.rmtree(output)
            output.mkdir()
        except OSError as fault:
            raise OutputError(
                f"The folder for the command's output could not be made: {fault.strerror}.",
                effect="The command was not run.",
                next_step="Make room.",
            ) from fault
        return Place(folder=work, output=output, log=self.path / "logs" / f"{name_of(number, label)}.log", lock=lock, apart=apart)

    @contextmanager
    def locked(self, say: Callable[[str], None]) -> Iterator[int]:
        """Keep other runs out of the folder; the lock's descriptor. Waits for the command of a killed run to end. Raises UsageError where another run works in it."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take(descriptor, self.path, say)
            yield descriptor
        finally:
            os.close(descriptor)


def _take(descriptor: int, path: Path, say: Callable[[str], None]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise UsageError(
                    f"Another run works in {path}.",
                    effect="Nothing was run.",
                    next_step="Let it end, or name another --state.",
                ) from None
            if not said:
                say("waiting for what an earlier run left in its folder to end")
            said = True
            time.sleep(0.1)
        else:
            return


def name_of(number: int, label: str) -> str:
    """The file name (without extension) of what one trial leaves."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.")[-40:] if not re.fullmatch(r"[0-9a-f]{40,64}", label) else label[:12]
    return f"{number:04d}-{safe or 'candidate'}"
