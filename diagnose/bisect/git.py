"""Calls of the user's git that neither change a repository that is not ours nor end up in another one than meant."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from diagnose.errors import UsageError

# Variables that name a repository, its parts or how it is read (`git rev-parse --local-env-vars`, and those of hooks): git in a hook or alias sets them, and every other git would then work there.
# Those that hold single settings stay, as git keeps them for its own submodules.
_REPOSITORY_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_QUARANTINE_PATH",
    "GIT_REFLOG_ACTION",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
)
_OURS: Mapping[str, str] = MappingProxyType(
    {
        "LC_ALL": "C",  # messages that can be read, whatever the user's language
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",  # reading must not refresh the index of the user's checkout
        "GIT_NO_REPLACE_OBJECTS": "1",  # a clone does not have the replacements, so that both see the same history
    }
)
# No hooks, no clean-up in the background, no signatures in the output of log.
_SETTINGS = ("core.hooksPath=/dev/null", "gc.auto=0", "maintenance.auto=false", "log.showSignature=false", "advice.detachedHead=false")
_PATH = re.compile(r"(?:/[^\s/'\":]+){2,}")
_USER = re.compile(r"(\w+://)[^/@\s]+@")
_LONGEST = 300
_NOTHING = "Nothing was run."
_TRAILER = re.compile(r"(?i)^\s*(?:[\w-]+-by|cc)\s*:.*$")
_ADDRESS = re.compile(r"<?[\w.+-]+@[\w-]+(?:\.[\w-]+)+>?")


class GitError(UsageError):
    """Git is not there, or a repository can't be used as asked."""


class GitFailedError(GitError):
    """A call of git failed; `reason` is what it said, without paths and user names."""

    def __init__(self, reason: str, code: int) -> None:
        self.reason, self.code = reason, code
        super().__init__(f"git failed: {reason}.", effect=_NOTHING)


def environment() -> dict[str, str]:
    """This process' environment without the variables that point git to a repository."""
    return {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}


def git(folder: Path, *arguments: str, settings: Sequence[str] = (), repository: Path | None = None, given: str = "") -> str:
    """Standard output of one call of git in `folder`.

    `settings` (name=value) hold for this call alone. With `repository` (a .git folder) no other one is looked for: a damaged clone inside the user's checkout must not make git find the latter. `given` goes to standard input.
    Raises GitError where there is no git, GitFailedError where it fails.
    """
    own = ["-c", "core.quotePath=false", *(part for one in (*_SETTINGS, *settings) for part in ("-c", one))]
    where = [] if repository is None else [f"--git-dir={repository}", f"--work-tree={folder}"]
    try:
        ended = subprocess.run(  # noqa: S603 - an argument list, no shell; the program is the user's own git
            ["git", *own, *where, *arguments],  # noqa: S607 - whichever git the user has
            cwd=folder,
            env={**environment(), **_OURS},
            input=given.encode(),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as fault:
        raise _not_started(folder) from fault
    except OSError as fault:
        raise GitError(f"git could not be started: {fault.strerror}.", effect=_NOTHING) from fault
    if ended.returncode:
        raise GitFailedError(said(ended.stderr.decode(errors="replace")) or f"it ended with {ended.returncode}", ended.returncode)
    return ended.stdout.decode(errors="replace")


def _not_started(folder: Path) -> GitError:
    if not folder.is_dir():
        return GitError(f"{folder} is no folder.", effect=_NOTHING, next_step="Name a folder of the repository.")
    return GitError("git was not found.", effect="Commits can't be searched without it.", next_step="Install git, or put it on PATH.")


def said(text: str) -> str:
    """The line of git's output that says why it failed, without paths and user names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(?i)(fatal|error):", line)]
    chosen = (named or lines or [""])[0]
    return _PATH.sub("…", _USER.sub(r"\1", re.sub(r"(?i)^(fatal|error):\s*", "", chosen)))[:_LONGEST].rstrip(".")


# --- questions --------------------------------------------------------------------------------------------------------


def check_repository(folder: Path) -> None:
    """Raise GitError unless `folder` is in a repository that holds its whole history with all contents."""
    try:
        shallow = git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"
    except GitFailedError as fault:
        raise GitError(
            f"{folder} can't be used as a git repository: {fault.reason}.",
            effect=_NOTHING,
            next_step="Run it inside the repository that holds the commits.",
        ) from fault
    if shallow:
        raise GitError(
            "The repository is a shallow clone, whose history is cut off.",
            effect=f"Commits between good and bad may be missing. {_NOTHING}",
            next_step="Fetch the rest: git fetch --unshallow",
        )
    if "true" in answer(folder, "config", "--get-regexp", r"^remote\..*\.promisor$").split():
        raise GitError(
            "The repository is a partial clone, which lacks contents of older commits.",
            effect=f"They could not be checked out without a network. {_NOTHING}",
            next_step="Fetch them all: git fetch --refetch --no-filter",
        )


def answer(folder: Path, *arguments: str) -> str:
    """What a git command prints, without its last line end; empty where it fails."""
    try:
        return git(folder, *arguments).removesuffix("\n")
    except GitFailedError:
        return ""


def commit_of(folder: Path, name: str) -> str:
    """The full hash of the commit that `name` stands for. Raises GitError."""
    found = (
        "" if name.startswith("-") else answer(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    )  # it would be an option
    if not found:
        raise GitError(f"{name!r} is no commit of this repository.", effect=_NOTHING, next_step="Name a commit, a tag or a branch.")
    return found


def is_ancestor(folder: Path, old: str, new: str) -> bool:
    """True when `new` descends from `old`."""
    try:
        git(folder, "merge-base", "--is-ancestor", old, new)
    except GitFailedError as fault:
        if fault.code != 1:
            raise
        return False
    return True


def common_ancestor(folder: Path, one: str, other: str) -> str:
    """The newest commit that both descend from; empty where there is none."""
    return answer(folder, "merge-base", one, other)


def line_of(folder: Path, good: str, bad: str) -> tuple[tuple[str, str], ...]:
    """Hash and subject of the commits after `good` up to `bad`, along first parents, oldest first. Those that do not descend from `good` are left out: where it lies on a branch that was merged, the merge comes first."""
    between = f"{good}..{bad}"
    line = set(git(folder, "rev-list", "--first-parent", between).split())
    behind = git(folder, "rev-list", "--topo-order", "--reverse", "--ancestry-path", between).split()
    chosen = [commit for commit in behind if commit in line]
    named = subjects(folder, chosen)
    return tuple((commit, named[commit]) for commit in chosen)


def subjects(folder: Path, commits: Sequence[str]) -> dict[str, str]:
    """First line of each commit's message, without people."""
    return _told(folder, commits, "%s")


def message_of(folder: Path, commit: str) -> str:
    """The whole message of a commit, without people."""
    return _told(folder, [commit], "%B")[commit]


def _told(folder: Path, commits: Sequence[str], what: str) -> dict[str, str]:
    fields = git(
        folder,
        "log",
        "--no-walk=unsorted",
        "--stdin",
        "-z",
        f"--format=%H%x00{what}",
        settings=["i18n.logOutputEncoding=UTF-8"],
        given="".join(f"{commit}\n" for commit in commits),
    ).split("\0")
    return {fields[start]: _nobody(fields[start + 1]) for start in range(0, len(fields) - 1, 2)}


def _nobody(text: str) -> str:
    """A message without people: no lines such as Signed-off-by, no addresses."""
    kept = [line.rstrip() for line in text.splitlines() if not _TRAILER.match(line)]
    return _ADDRESS.sub("…", "\n".join(kept)).strip()


def parents_of(folder: Path, commit: str) -> tuple[str, ...]:
    """The parents of a commit."""
    return tuple(git(folder, "rev-list", "--no-walk", "--parents", commit).split()[1:])


def top_of(folder: Path) -> Path:
    """The top folder of the checkout; of a bare repository the repository itself."""
    top = answer(folder, "rev-parse", "--show-toplevel")
    return Path(top) if top else (folder / answer(folder, "rev-parse", "--git-common-dir")).resolve()
