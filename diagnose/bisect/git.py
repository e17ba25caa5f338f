"""Questions to git about the user's repository. Nothing here writes to it: no lock is taken, no index refreshed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from diagnose.errors import UsageError

# `git rev-parse --local-env-vars` of git 2.39: they tie git to one repository, which a hook or `git bisect run` may have set to the user's.
_LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_QUARANTINE_PATH",
)


class GitError(UsageError):
    """Git is missing, or could not do what was asked."""


def environment() -> dict[str, str]:
    """The environment without what ties git to another repository than the one it is run in."""
    return {name: value for name, value in os.environ.items() if name not in _LOCAL}


def git(folder: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> str:
    """What a git command prints, run in `folder`. Raises GitError with git's own words."""
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603 - git, without a shell
            ["git", *arguments],  # noqa: S607 - the user's git
            cwd=folder,
            env={**environment(), **quiet, **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as fault:
        missing = "git is not installed" if folder.is_dir() else f"the folder {folder} does not exist"
        raise GitError(f"{missing[0].upper()}{missing[1:]}.", effect="Nothing was run.") from fault
    if done.returncode:
        said = (
            done.stderr.decode("utf-8", errors="replace").strip().splitlines() or done.stdout.decode("utf-8", errors="replace").splitlines()
        )
        words = "; ".join(line.strip() for line in said[-3:]) or f"exit code {done.returncode}"
        raise GitError(f"git {arguments[0]} failed: {words[:500]}.", effect="Nothing was run.")
    return done.stdout.decode("utf-8", errors="replace")


def commit_of(folder: Path, name: str) -> str:
    """The full hash of the commit that `name` stands for. Raises GitError."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except GitError as fault:
        raise GitError(f"{name!r} is no commit of this repository.", effect="Nothing was run.", next_step="Check its spelling.") from fault


def is_ancestor(folder: Path, old: str, new: str) -> bool:
    """True when `new` descends from `old`."""
    return git(folder, "merge-base", old, new).strip() == old if _related(folder, old, new) else False


def _related(folder: Path, old: str, new: str) -> bool:
    try:
        return bool(git(folder, "merge-base", old, new).strip())
    except GitError:
        return False


def line_of(folder: Path, good: str, bad: str) -> tuple[tuple[str, str], ...]:
    """Hash and subject of the commits after `good` up to `bad`, along first parents, oldest first."""
    text = git(folder, "rev-list", "--first-parent", "--reverse", "--no-commit-header", "--format=%H%x00%s", f"{good}..{bad}")
    return tuple((commit, subject) for commit, _, subject in (line.partition("\0") for line in text.splitlines() if line))


def subjects(folder: Path, commits: Sequence[str]) -> dict[str, str]:
    """Subject of each commit."""
    text = git(folder, "log", "--no-walk=unsorted", "--format=%H%x00%s", *commits, "--")
    return dict(line.split("\0", 1) for line in text.splitlines())


def message_of(folder: Path, commit: str) -> str:
    """The whole message of a commit, without its author."""
    return git(folder, "show", "--no-patch", "--format=%B", commit).strip()


def parents_of(folder: Path, commit: str) -> tuple[str, ...]:
    """The parents of a commit."""
    return tuple(git(folder, "rev-list", "--no-walk", "--parents", commit).split()[1:])


def common_folder(folder: Path) -> Path:
    """The folder with the repository's objects, also where `folder` is a linked worktree."""
    return (folder / git(folder, "rev-parse", "--git-common-dir").strip()).resolve()


def top_of(folder: Path) -> Path:
    """The top folder of the checkout (of a bare repository the repository itself)."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except GitError:
        return common_folder(folder)
