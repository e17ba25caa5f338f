"""A checkout of its own for a search: a clone that shares the objects of the user's repository, and nothing else with it.

The user's checkout, index, refs, reflogs, configuration and list of worktrees are never touched: `git worktree add` would leave an entry there when the run is killed, a clone can't. The clone has no remote, so that what the
user's command does with git stays in it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from diagnose.bisect.git import GitError, common_folder, git
from diagnose.errors import OutputError

_READY = "diagnose-ready"  # in the clone's git folder, once it is complete


class CheckoutError(Exception):
    """A commit that can't be checked out with all it needs; the candidate is skipped with this reason."""


@dataclass(frozen=True)
class Checkout:
    """The clone at `folder` of the repository at `source`. `keep`: untracked files stay between commits, for build caches."""

    folder: Path
    source: Path
    keep: bool = False

    def prepare(self) -> None:
        """Make the clone, or take over what an earlier run left: whole, and without its locks. Raises GitError or OutputError."""
        inner = self.folder / ".git"
        if (inner / _READY).exists():
            for lock in inner.rglob("*.lock"):
                lock.unlink(missing_ok=True)
            return
        _remove(self.folder)
        git(self.source, "clone", "--quiet", "--shared", "--no-checkout", "--template=", str(self.source), str(self.folder))
        git(self.folder, "remote", "remove", "origin")
        (inner / "no-hooks").mkdir(exist_ok=True)
        git(self.folder, "config", "core.hooksPath", str(inner / "no-hooks"))
        large = common_folder(self.source) / "lfs"
        if large.is_dir():
            git(self.folder, "config", "lfs.storage", str(large))
        (inner / _READY).touch()

    def check_out(self, commit: str) -> None:
        """Put `commit` into the folder, with its submodules and without anything else. Raises CheckoutError."""
        try:
            git(self.folder, "checkout", "--quiet", "--force", "--detach", commit)
            if not self.keep:
                git(self.folder, "clean", "-ffdxq")
            if (self.folder / ".gitmodules").is_file():
                _submodules(self.folder, common_folder(self.source), keep=self.keep)
        except GitError as fault:
            raise CheckoutError(fault.what) from fault


def _remove(folder: Path) -> None:
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as fault:
        raise OutputError(
            f"{folder}, which an earlier run left, could not be removed: {fault.strerror}.",
            effect="Nothing was run.",
            next_step="Remove it, or name another --state.",
        ) from fault


def _submodules(folder: Path, source: Path, *, keep: bool) -> None:
    """Check out the submodules of `folder`, each from the user's own copy in `source` (the git folder of the same repository there), else from its address. Raises GitError."""
    git(folder, "submodule", "--quiet", "init")
    for name, path in _named(folder):
        own = source / "modules" / name
        address = str(own) if own.is_dir() else _address(source, name)
        if address:
            git(folder, "config", f"submodule.{name}.url", address)
        git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--force", "--", path)
        inner = folder / path
        if not keep:
            git(inner, "clean", "-ffdxq")
        if (inner / ".gitmodules").is_file():
            _submodules(inner, own, keep=keep)


def _named(folder: Path) -> list[tuple[str, str]]:
    """Name and path of each submodule of the commit."""
    text = git(folder, "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    found = [line.split("\n", 1) for line in text.split("\0") if line]
    return [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, path in found]


def _address(source: Path, name: str) -> str:
    """The address of a submodule as the user's own configuration has it: resolved where .gitmodules gives a relative one."""
    try:
        return git(source, "config", f"submodule.{name}.url").strip()
    except GitError:
        return ""
