"""Files that a job file names: regular text files in its folder, or below one of the folders around it; nothing else is opened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

_MAX_FILE = 1_000_000
_UPWARDS = 4  # folders above the job file in which a file counts as one beside it
_MOST_FILES = 1000  # of a package that are looked through for a function


def around(folder: Path) -> tuple[Path, ...]:
    """A folder and those above it in which a named file may lie, nearest first; the roots of a disk and of a home are none of them."""
    top = folder.resolve()
    return tuple(one for one in [top, *top.parents[:_UPWARDS]] if len(one.parts) > 2) or (top,)


def text_at(path: Path, folder: Path) -> tuple[Path, str] | None:
    """The path and the text of a file below one of the folders around `folder`; None where there is none."""
    try:
        found = path.resolve()
        if not any(found.is_relative_to(one) for one in around(folder)) or not found.is_file() or found.stat().st_size > _MAX_FILE:
            return None
        text = found.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None
    return None if "\0" in text else (found, text.replace("\r\n", "\n"))


def named(name: str, folder: Path) -> tuple[Path, str] | None:
    """The file that a job file in `folder` calls `name`.

    A path from there, else from one of the folders around it, where jobs are often started; else, for a module by the full name of the
    package around the folder, from that package on; else, for a path of another machine, the file of that name in the folder itself.
    """
    first = name.partition("/")[0]
    package = (one.parent / name for one in around(folder) if one.name == first)
    tries = (*(one / name for one in (folder, *around(folder))), *package, folder / name.rpartition("/")[2])
    return next((found for one in tries if (found := text_at(one, folder)) is not None), None)


def defining(function: str, folder: Path, packages: Sequence[str]) -> tuple[Path, str] | None:
    """The Python file that defines a function in one of `packages`, paths from the folders around `folder`, first package first."""
    begins = re.compile(rf"^def {re.escape(function)}\(", re.MULTILINE)
    for package in packages:
        for one in around(folder):
            files = islice((one / package).rglob("*.py"), _MOST_FILES)
            if found := next((read for path in sorted(files) if (read := text_at(path, folder)) and begins.search(read[1])), None):
                return found
    return None
