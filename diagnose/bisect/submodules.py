"""Submodules of a clone, filled from what the user's repository holds of them, so that no network is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from diagnose.bisect.git import GitFailedError, git

_DEEPEST = 20  # submodules within submodules; a module that holds itself must not go on for ever


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a repository of the user's keeps its own and shared things, its checkout (None where it is bare) and the URL of its origin ("" for none)."""

    git: Path
    common: Path
    top: Path | None
    remote: str


def fill(folder: Path, own: Path, source: Source | None, depth: int = 0) -> None:
    """The submodules of the commit that is checked out in `folder`, whose repository is `own`; from `source` where that holds them.

    A submodule that the user's own checkout has left empty stays empty. What is held nowhere here is fetched from where `.gitmodules` says. Raises GitFailedError.
    """
    wanted = [] if depth > _DEEPEST else list(_modules(folder))
    known = set() if source is None or source.top is None else {name for name, _ in _modules(source.top)}
    for name, path in wanted:
        inner = None if source is None else _held(source, name, path)
        if inner is None and name in known:
            continue
        _update(folder, own, name, path, inner, "" if source is None else source.remote)
        found = own / "modules" / name
        if (folder / path / ".gitmodules").is_file() and found.is_dir():
            fill(folder / path, found, inner, depth + 1)


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and path of every submodule that a checkout tells of."""
    if not (folder / ".gitmodules").is_file():
        return
    try:
        told = git(folder, "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    except GitFailedError:
        return
    for entry in told.split("\0"):
        key, _, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if name and path and all(_inside(one) for one in (name, path)):
            yield name, path


def _inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return ".." not in parts and not PurePosixPath(path).is_absolute()


def _held(source: Source, name: str, path: str) -> Source | None:
    """What the user's repository holds of a submodule: among its modules, else in its checkout."""
    top = None if source.top is None else source.top / path
    modules = [place / "modules" / name for place in dict.fromkeys((source.git, source.common))]
    if top is not None:
        modules.append(top / ".git")
    found = next((one for one in modules if (one / "objects").is_dir()), None)
    if found is None:
        return None
    return Source(git=found, common=found, top=top if top is not None and (top / ".git").exists() else None, remote="")


def _update(folder: Path, own: Path, name: str, path: str, inner: Source | None, remote: str) -> None:
    """Check out one submodule: from `inner` as far as that holds the commit, else from where `.gitmodules` says (a relative URL goes from `remote`)."""
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
