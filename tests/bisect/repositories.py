"""Git repositories for tests, made with fixed names and times and without the settings of whoever runs them."""

import os
import subprocess
from pathlib import Path

WHO = "Ann Author"
ADDRESS = "ann@example.invalid"


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": WHO,
        "GIT_AUTHOR_EMAIL": ADDRESS,
        "GIT_COMMITTER_NAME": WHO,
        "GIT_COMMITTER_EMAIL": ADDRESS,
        "LC_ALL": "C",
    }


def call(folder: Path, *arguments: str, time: int | None = None, ok: bool = True, extra: dict[str, str] | None = None) -> str:
    """Standard output of git in `folder`; raises where it fails, unless not `ok`."""
    dates = {} if time is None else {"GIT_AUTHOR_DATE": f"{time} +0000", "GIT_COMMITTER_DATE": f"{time} +0000"}
    ended = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env={**environment(), **dates, **(extra or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if ok and ended.returncode:
        raise AssertionError(f"git {arguments}: {ended.stderr}")
    return ended.stdout


def new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    call(folder, "init", "--quiet", "--initial-branch=main")
    return folder


def commit(repository: Path, message: str, files: dict[str, str] | None = None, *, time: int = 1_700_000_000) -> str:
    """A commit that writes these files; its hash."""
    for name, text in (files or {}).items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    call(repository, "add", "--all")
    call(repository, "commit", "--quiet", "--allow-empty", "-m", message, time=time)
    return call(repository, "rev-parse", "HEAD").strip()


def line(repository: Path, count: int, *, start: int = 0) -> list[str]:
    """So many commits, each with another content of `value`; their hashes."""
    return [
        commit(repository, f"change {number}", {"value": f"{number}\n"}, time=1_700_000_000 + 60 * number)
        for number in range(start, start + count)
    ]


def everything(repository: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of a repository and its checkout, so that any change shows."""
    return {
        str(path.relative_to(repository)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(repository.rglob("*"))
        if path.is_file()
    }
