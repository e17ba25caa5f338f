"""Where things stand in the user's repository: outputs for CI runners name files by their path within it."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath


def root_of(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a repository (`.git`, a folder or a file); None outside of any."""
    here = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links out of the repository
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def path_in_repository(path: Path) -> str:
    """A file's path within its repository, with `/`. Outside of any: as given where that is a path below the current folder, else empty."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - as above
    root = root_of(whole.parent)
    base = root if root is not None else Path.cwd()
    return str(PurePosixPath(whole.relative_to(base))) if whole.is_relative_to(base) else ""
