"""What is made from files that come with the program, kept beside Python's bytecode from one run to the next.

Python parses a module once and keeps the result in `__pycache__`. Rule files, templates and plotly's script are as much a part of the
program, and preparing them took a seventh of a short run. As with bytecode, what is kept is used only for the very same text and maker,
nothing is written under PYTHONDONTWRITEBYTECODE, PYTHONPYCACHEPREFIX moves the folder, and a folder that can't be written costs only the
time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from contextlib import suppress
from importlib.resources.abc import Traversable
from pathlib import Path

from msgspec import Struct


class Compiled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place where what was made from a file is kept, None for nowhere, and the stamp that it has to carry."""

    place: Path | None
    stamp: bytes

    def read(self) -> bytes | None:
        """What was kept under the same stamp; None where nothing was."""
        try:
            data = b"" if self.place is None else self.place.read_bytes()
        except OSError:
            return None
        return data[len(self.stamp) :] if data.startswith(self.stamp) and data else None

    def write(self, data: bytes) -> None:
        """Keep `data` for the next run, where that can be written."""
        if self.place is None or sys.dont_write_bytecode:
            return
        with suppress(OSError):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self.place.parent, prefix=self.place.name)
            try:
                os.fchmod(number, 0o644)  # one user installs the program, others read what it has kept
                with os.fdopen(number, "wb") as out:
                    out.write(self.stamp + data)
                Path(name).replace(self.place)  # at once, so that another run never reads half of it
            except OSError:
                Path(name).unlink()
                raise


def beside(file: Traversable, text: bytes, *, code: str, library: str) -> Compiled:
    """Where that is kept, beside `file`, which is made of `text` by the code at the path `code` with a `library` (and its version).

    Nowhere for files in an archive.
    """
    try:
        made = os.stat(code)  # noqa: PTH116 - some two hundred in a run
    except OSError:
        return Compiled(place=None, stamp=b"")
    maker = f"{made.st_mtime_ns} {made.st_size} {library}\n"
    place = Path(f"{importlib.util.cache_from_source(file)}.compiled") if isinstance(file, Path) else None
    return Compiled(place=place, stamp=hashlib.sha256(maker.encode() + text).digest())
