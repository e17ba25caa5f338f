"""Git: questions to the user's repository that change nothing in it, and a checkout of its own for a search.

The checkout is a clone that shares the objects of the user's repository, and nothing else with it. Whatever happens to it, and however a
run ends, the user's checkout, its index, refs, reflogs, settings and list of worktrees stay as they are: `git worktree add` would leave an
entry there when the run is killed, a clone can't. The clone has no remote, so that what the user's command does with git stays in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from msgspec import Struct

from diagnose.errors import OutputError, UsageError

# Variables that name a repository, its parts or how it is read (`git rev-parse --local-env-vars`, and those of hooks): git in a hook or
# alias sets them, and every other git would then work there. Those that hold single settings stay, as git keeps them for its own
# submodules.
_REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CONFIG"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
    *("GIT_INDEX_FILE", "GIT_INDEX_VERSION", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_REFLOG_ACTION"),
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    *("GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
}
_OURS: Mapping[str, str] = {
    "LC_ALL": "C",  # messages that can be read, whatever the user's language
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # reading must not refresh the index of the user's checkout
    "GIT_NO_REPLACE_OBJECTS": "1",  # a clone does not have the replacements, so that both see the same history
}
# No hooks, no clean-up in the background, no signatures in the output of log.
_SETTINGS = ("core.hooksPath=/dev/null", "gc.auto=0", "maintenance.auto=false", "log.showSignature=false", "advice.detachedHead=false")
_PATH = re.compile(r"(?:/[^\s/'\":]+){2,}")
_USER = re.compile(r"(\w+://)[^/@\s]+@")
_LONGEST = 300
_NOTHING = "Nothing was run."
_TRAILER = re.compile(r"(?i)^\s*(?:[\w-]+-by|cc)\s*:.*$")
_MARK = "made-by-diagnose"  # a file in the clone's .git, once that is complete: only such a folder is ever deleted
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REVERT = re.compile(
    r"(?i)(?:\[[^\]]*\]\s*)*(?:[\w()-]+:\s*)?(?:revert(?:s|ed|ing)?|back(?:s|ed|ing)?[ -]?out|roll(?:s|ed|ing)?[ -]?back)\b"
)
_DEEPEST = 20  # submodules within submodules; a module that holds itself must not go on for ever
_ADDRESS = re.compile(r"<?[\w.+-]+@[\w-]+(?:\.[\w-]+)+>?")


class GitError(UsageError):
    """Git is not there, or a repository can't be used as asked; as a rule nothing was run."""

    def __init__(self, what: str, *, effect: str = _NOTHING, next_step: str = "") -> None:
        super().__init__(what, effect=effect, next_step=next_step)


class GitFailedError(GitError):
    """A call of git failed; `reason` is what it said, without paths and user names."""

    def __init__(self, reason: str, code: int) -> None:
        self.reason, self.code = reason, code
        super().__init__(f"git failed: {reason}.")


def environment() -> dict[str, str]:
    """This process' environment without the variables that point git to a repository."""
    return {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}


def git(folder: Path, *arguments: str, settings: Sequence[str] = (), repository: Path | None = None, given: str = "") -> str:
    """Standard output of one call of git in `folder`.

    `settings` (name=value) hold for this call alone. With `repository` (a .git folder) no other one is looked for: a damaged clone inside
    the user's checkout must not make git find the latter. `given` goes to standard input. Raises GitError where there is no git,
    GitFailedError where it fails.
    """
    options = ["-c", "core.quotePath=false", *(part for one in (*_SETTINGS, *settings) for part in ("-c", one))]
    where = [] if repository is None else [f"--git-dir={repository}", f"--work-tree={folder}"]
    try:
        ended = subprocess.run(  # noqa: S603 - an argument list, no shell; the program is the user's own git
            ["git", *options, *where, *arguments],  # noqa: S607 - whichever git the user has
            cwd=folder,
            env={**environment(), **_OURS},
            input=given.encode(),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as fault:
        if not folder.is_dir():
            raise GitError(f"{folder} is no folder.", next_step="Name a folder of the repository.") from fault
        raise GitError(
            "git was not found.", effect="Commits can't be searched without it.", next_step="Install git, or put it on PATH."
        ) from fault
    except OSError as fault:
        raise GitError(f"git could not be started: {fault.strerror}.") from fault
    if ended.returncode:
        raise GitFailedError(failure_reason(ended.stderr.decode(errors="replace")) or f"it ended with {ended.returncode}", ended.returncode)
    return ended.stdout.decode(errors="replace")


def failure_reason(text: str) -> str:
    """The line of git's output that says why it failed, without paths and user names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(?i)(fatal|error):", line)]
    chosen = (named or lines or [""])[0]
    return _PATH.sub("…", _USER.sub(r"\1", re.sub(r"(?i)^(fatal|error):\s*", "", chosen)))[:_LONGEST].rstrip(".")


def is_revert(subject: str) -> bool:
    """Whether a commit's first line says that it takes an earlier one back: git's own word, and Mercurial's that large projects keep."""
    return _REVERT.match(subject) is not None


# --- questions --------------------------------------------------------------------------------------------------------


def check_repository(folder: Path) -> None:
    """Raise GitError unless `folder` is in a repository that holds its whole history with all contents."""
    try:
        shallow = git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"
    except GitFailedError as fault:
        raise GitError(
            f"{folder} can't be used as a git repository: {fault.reason}.", next_step="Run it inside the repository that holds the commits."
        ) from fault
    if shallow:
        raise GitError(
            "The repository is a shallow clone, whose history is cut off.",
            effect=f"Commits between good and bad may be missing. {_NOTHING}",
            next_step="Fetch the rest: git fetch --unshallow",
        )
    if "true" in output_or_empty(folder, "config", "--get-regexp", r"^remote\..*\.promisor$").split():
        raise GitError(
            "The repository is a partial clone, which lacks contents of older commits.",
            effect=f"They could not be checked out without a network. {_NOTHING}",
            next_step="Fetch them all: git fetch --refetch --no-filter",
        )


def output_or_empty(folder: Path, *arguments: str) -> str:
    """What a git command prints, without its last line end; empty where it fails."""
    try:
        return git(folder, *arguments).removesuffix("\n")
    except GitFailedError:
        return ""


def commit_of(folder: Path, name: str) -> str:
    """The full hash of the commit that `name` stands for. Raises GitError."""
    is_option = name.startswith("-")
    found = "" if is_option else output_or_empty(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if not found:
        raise GitError(f"{name!r} is no commit of this repository.", next_step="Name a commit, a tag or a branch.")
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


def line_of(folder: Path, good: str, bad: str) -> tuple[tuple[str, str], ...]:
    """Hash and subject of the first parents after `good` up to `bad`, oldest first, without those that do not descend from `good`."""
    between = f"{good}..{bad}"
    line = set(git(folder, "rev-list", "--first-parent", between).split())
    behind = git(folder, "rev-list", "--topo-order", "--reverse", "--ancestry-path", between).split()
    chosen = [commit for commit in behind if commit in line]
    named = subjects(folder, chosen)
    return tuple((commit, named[commit]) for commit in chosen)


def subjects(folder: Path, commits: Sequence[str]) -> dict[str, str]:
    """First line of each commit's message, without people."""
    return _log_field(folder, commits, "%s")


def message_of(folder: Path, commit: str) -> str:
    """The whole message of a commit, without people."""
    return _log_field(folder, [commit], "%B")[commit]


def author_of(folder: Path, commit: str) -> tuple[str, str]:
    """Who wrote a commit, by name alone, and when (ISO 8601, in the author's time zone)."""
    name, _, date = git(folder, "show", "--no-patch", "--format=%an%x00%aI", commit, settings=["i18n.logOutputEncoding=UTF-8"]).partition(
        "\0"
    )
    return _ADDRESS.sub("…", name).strip(), date.strip()


def diff_stat_of(folder: Path, commit: str) -> str:
    """What a commit changes against its first parent, as git counts it: files, and lines added and removed; empty where nothing."""
    return git(folder, "show", "-m", "--first-parent", "--format=", "--shortstat", commit).strip()


def _log_field(folder: Path, commits: Sequence[str], what: str) -> dict[str, str]:
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
    return {fields[start]: _without_people(fields[start + 1]) for start in range(0, len(fields) - 1, 2)}


def _without_people(text: str) -> str:
    """A message without people: no lines such as Signed-off-by, no addresses."""
    kept = [line.rstrip() for line in text.splitlines() if not _TRAILER.match(line)]
    return _ADDRESS.sub("…", "\n".join(kept)).strip()


def parents_of(folder: Path, commit: str) -> tuple[str, ...]:
    """The parents of a commit."""
    return tuple(git(folder, "rev-list", "--no-walk", "--parents", commit).split()[1:])


def top_of(folder: Path) -> Path:
    """The top folder of the checkout; of a bare repository the repository itself."""
    top = output_or_empty(folder, "rev-parse", "--show-toplevel")
    return Path(top) if top else (folder / output_or_empty(folder, "rev-parse", "--git-common-dir")).resolve()


# --- a checkout of its own --------------------------------------------------------------------------------------------


class UserRepository(Struct, frozen=True, kw_only=True):
    """Where a repository of the user's keeps its own and shared things, its checkout (None: bare) and the URL of its origin ("": none)."""

    git: Path
    common: Path
    top: Path | None
    remote: str


class CheckoutError(Exception):
    """A commit that can't be checked out with all it needs; the candidate is skipped with this reason."""


class Checkout(Struct, frozen=True, dict=True):
    """The clone at `folder` of the repository that `source` lies in. `keep`: what commands leave stays, for build caches."""

    folder: Path
    source: Path
    keep: bool = False

    @cached_property
    def users(self) -> UserRepository:
        """Where the user's repository keeps things."""
        own, common = git(self.source, "rev-parse", "--git-dir", "--git-common-dir").splitlines()
        top = output_or_empty(self.source, "rev-parse", "--show-toplevel")  # fails where it is bare
        return UserRepository(
            git=(self.source / own).resolve(),
            common=(self.source / common).resolve(),
            top=Path(top) if top else None,
            remote=output_or_empty(self.source, "config", "--get", "remote.origin.url"),
        )

    def prepare(self) -> None:
        """Make the clone, or take over what an earlier run left if it is whole.

        Objects are read from the user's repository (alternates), so that it has to stay where it is, and nothing in it may be pruned while
        the clone is in use. Raises GitError or OutputError.
        """
        if self.folder.exists() and any(self.folder.iterdir()):
            if not (self.folder / ".git" / _MARK).is_file():
                raise GitError(
                    f"{self.folder} holds something else than a clone that this program made.",
                    next_step="Remove it, or name another --state.",
                )
            if self._whole():
                return
        self._make()

    def _whole(self) -> bool:
        own = self.folder / ".git"
        try:
            shared = (own / "objects" / "info" / "alternates").read_text(encoding="utf-8").splitlines()
            if [Path(line).resolve() for line in shared] != [self.users.common / "objects"]:
                return False
            git(self.folder, "rev-parse", "--git-dir", repository=own)
        except (OSError, UnicodeDecodeError, GitFailedError):
            return False
        return True

    def _make(self) -> None:
        """Clone beside the folder and move it there at once, so that a clone that is there is a whole one."""
        beside = self.folder.with_name(f"{self.folder.name}.new")
        own = beside / ".git"
        # An empty template: no hooks. No remote: what runs in the clone can't push to the user's repository by accident.
        clone = ("clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", str(self.users.common), str(beside))
        told = f"The clone at {self.folder} could not be made"
        with OutputError.where_refused(told, effect="Nothing was run.", next_step="Name another --state."):
            for old in (beside, self.folder):
                if old.exists():
                    shutil.rmtree(old)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                git(self.folder.parent, *clone)
                git(beside, "remote", "remove", "origin", repository=own)
                # Nor do hooks of the user's settings run when a command calls git here.
                git(beside, "config", "core.hooksPath", "/dev/null", repository=own)
            except GitFailedError as fault:
                raise GitError(f"The repository could not be cloned to {self.folder}: {fault.reason}.") from fault
            (own / _MARK).touch()
            beside.rename(self.folder)

    def check_out(self, commit: str) -> None:
        """Put `commit` (a full hash) into the folder, with its submodules and, unless `keep`, without anything else.

        Nothing is fetched for the commit itself, nor for submodules that the user's repository holds. Raises CheckoutError.
        """
        if not _HASH.fullmatch(commit):
            raise CheckoutError(f"{commit!r} is no full hash of a commit.")
        own = self.folder / ".git"
        try:
            for lock in own.rglob("*.lock"):  # of a run that was killed; nobody else works here
                lock.unlink(missing_ok=True)
            if not self.keep and (self.folder / ".gitmodules").is_file():
                with contextlib.suppress(GitFailedError):  # of a commit whose .gitmodules is wrong
                    git(self.folder, "submodule", "--quiet", "deinit", "--all", "--force", repository=own)
            git(self.folder, "checkout", "--quiet", "--detach", "--force", commit, repository=own)
            if not self.keep:
                git(self.folder, "clean", "--quiet", "-ffdx", repository=own)
            _fill_submodules(self.folder, own, self.users)
        except GitFailedError as fault:
            raise CheckoutError(f"{commit[:12]} could not be checked out: {fault.reason}.") from fault


# --- submodules, filled from what the user's repository holds of them, so that no network is needed ---------------------


def _fill_submodules(folder: Path, own: Path, source: UserRepository | None, depth: int = 0) -> None:
    """The submodules of the commit that is checked out in `folder`, whose repository is `own`; from `source` where that holds them.

    A submodule that the user's own checkout has left empty stays empty. What is held nowhere here is fetched from where `.gitmodules` says.
    Raises GitFailedError.
    """
    wanted = [] if depth > _DEEPEST else list(_submodules(folder))
    known = set() if source is None or source.top is None else {name for name, _ in _submodules(source.top)}
    for name, path in wanted:
        inner = None if source is None else _available(source, name, path)
        if inner is None and name in known:
            continue
        _update_submodule(folder, own, name, path, inner, "" if source is None else source.remote)
        found = own / "modules" / name
        if (folder / path / ".gitmodules").is_file() and found.is_dir():
            _fill_submodules(folder / path, found, inner, depth + 1)


def _submodules(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and path of every submodule that a checkout tells of."""
    if not (folder / ".gitmodules").is_file():
        return
    try:
        paths = git(folder, "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    except GitFailedError:
        return
    for entry in paths.split("\0"):
        key, _, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if name and path and not any(PurePosixPath(one).is_absolute() or ".." in PurePosixPath(one).parts for one in (name, path)):
            yield name, path


def _available(source: UserRepository, name: str, path: str) -> UserRepository | None:
    """What the user's repository holds of a submodule: among its modules, else in its checkout."""
    top = None if source.top is None else source.top / path
    modules = [place / "modules" / name for place in dict.fromkeys((source.git, source.common))]
    if top is not None:
        modules.append(top / ".git")
    found = next((one for one in modules if (one / "objects").is_dir()), None)
    if found is None:
        return None
    return UserRepository(git=found, common=found, top=top if top is not None and (top / ".git").exists() else None, remote="")


def _update_submodule(folder: Path, own: Path, name: str, path: str, inner: UserRepository | None, remote: str) -> None:
    """Check out one submodule: from `inner` if that holds it, else by the URL in `.gitmodules` (a relative one goes from `remote`)."""
    from_there = [f"remote.origin.url={remote}"] if remote else []
    git(folder, "submodule", "--quiet", "init", "--", path, settings=from_there, repository=own)
    update = ("submodule", "--quiet", "update", "--init", "--checkout", "--force", "--", path)
    if inner is None:
        git(folder, *update, repository=own)
        return
    git(folder, "config", f"submodule.{name}.url", str(inner.git), repository=own)
    try:
        git(folder, *update, settings=["protocol.file.allow=always"], repository=own)  # local sources for this call alone
    except GitFailedError as first:
        try:
            git(folder, "submodule", "--quiet", "sync", "--", path, settings=from_there, repository=own)
            git(folder, *update, repository=own)
        except GitFailedError:
            raise first from None
