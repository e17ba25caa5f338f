"""A checkout of its own for a search: a clone that shares the objects of the user's repository, and nothing else with it.

Whatever happens to it, and however a run ends, the user's checkout, its index, refs, reflogs, settings and list of worktrees stay as they are: `git worktree add` would leave an entry there when the run is killed, a clone
can't. The clone has no remote, so that what the user's command does with git stays in it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diagnose.bisect.git import GitError, GitFailedError, answer, git
from diagnose.bisect.submodules import Source, fill
from diagnose.errors import OutputError

_MARK = "made-by-diagnose"  # a file in the clone's .git, once that is complete: only such a folder is ever deleted
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class CheckoutError(Exception):
    """A commit that can't be checked out with all it needs; the candidate is skipped with this reason."""


@dataclass(frozen=True)
class Checkout:
    """The clone at `folder` of the repository that `source` is a folder of. `keep`: what commands leave stays between commits, for build caches."""

    folder: Path
    source: Path
    keep: bool = False

    @cached_property
    def users(self) -> Source:
        """Where the user's repository keeps things."""
        own, common = git(self.source, "rev-parse", "--git-dir", "--git-common-dir").splitlines()
        top = answer(self.source, "rev-parse", "--show-toplevel")  # fails where it is bare
        return Source(
            git=(self.source / own).resolve(),
            common=(self.source / common).resolve(),
            top=Path(top) if top else None,
            remote=answer(self.source, "config", "--get", "remote.origin.url"),
        )

    def prepare(self) -> None:
        """Make the clone, or take over what an earlier run left if it is whole.

        Objects are read from the user's repository (alternates), so that it has to stay where it is, and nothing in it may be pruned while the clone is in use. Raises GitError or OutputError.
        """
        if self.folder.exists() and any(self.folder.iterdir()):
            if not (self.folder / ".git" / _MARK).is_file():
                raise GitError(
                    f"{self.folder} holds something else than a clone that this program made.",
                    effect="Nothing was run.",
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
        try:
            for old in (beside, self.folder):
                if old.exists():
                    shutil.rmtree(old)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            # An empty template: no hooks. No remote: what runs in the clone can't push to the user's repository by accident.
            git(
                self.folder.parent,
                "clone",
                "--quiet",
                "--shared",
                "--no-checkout",
                "--template=",
                "--",
                str(self.users.common),
                str(beside),
            )
            own = beside / ".git"
            git(beside, "remote", "remove", "origin", repository=own)
            git(
                beside, "config", "core.hooksPath", "/dev/null", repository=own
            )  # nor do those of the user's settings run when a command calls git here
            (own / _MARK).touch()
            beside.rename(self.folder)
        except OSError as fault:
            raise OutputError(
                f"The clone at {self.folder} could not be made: {fault.strerror}.",
                effect="Nothing was run.",
                next_step="Name another --state.",
            ) from fault
        except GitFailedError as fault:
            raise GitError(f"The repository could not be cloned to {self.folder}: {fault.reason}.", effect="Nothing was run.") from fault

    def check_out(self, commit: str) -> None:
        """Put `commit` (a full hash) into the folder, with its submodules and, unless `keep`, without anything else.

        Nothing is fetched for the commit itself, nor for submodules that the user's repository holds. Raises CheckoutError.
        """
        if not _HASH.fullmatch(commit):
            raise CheckoutError(f"{commit!r} is no full hash of a commit.")
        try:
            self._check_out(commit)
        except GitFailedError as fault:
            raise CheckoutError(f"{commit[:12]} could not be checked out: {fault.reason}.") from fault

    def _check_out(self, commit: str) -> None:
        own = self.folder / ".git"
        for lock in own.rglob("*.lock"):  # of a run that was killed; nobody else works here
            lock.unlink(missing_ok=True)
        if not self.keep and (self.folder / ".gitmodules").is_file():
            with contextlib.suppress(GitFailedError):  # of a commit whose .gitmodules is wrong
                git(self.folder, "submodule", "--quiet", "deinit", "--all", "--force", repository=own)
        git(self.folder, "checkout", "--quiet", "--detach", "--force", commit, repository=own)
        if not self.keep:
            git(self.folder, "clean", "--quiet", "-ffdx", repository=own)
        fill(self.folder, own, self.users)
