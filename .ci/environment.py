"""Make the virtual environment that a make target needs, with the standard library alone.

    environment.py FOLDER run|dev|lowest|docs

`run` installs the program, `dev` also what tests and checks need, `lowest` the same with the oldest libraries that pyproject.toml allows,
`docs` what builds the site of the documentation. A stamp makes a second call return at once; a marker tells that an earlier call was
interrupted, and then the environment is made anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("run", "dev", "lowest", "docs")
GROUPS = {"lowest": "dev"}  # of pyproject.toml, where it has another name
OLDEST = (3, 11)


def say(text: str) -> None:
    """One line to standard error: standard output belongs to the target."""
    sys.stderr.write(f"environment: {text}\n")


def stamp_of(kind: str) -> str:
    """What an environment is made from: a change of it makes the stamp stale."""
    made_from = (ROOT / "pyproject.toml").read_bytes() + f"{kind} {ROOT} {sys.version_info[:2]}".encode()
    return hashlib.sha256(made_from).hexdigest()


def requirements(kind: str) -> list[str]:
    """What to install besides the project: the group of that name, read here because an old pip does not know --group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["dependency-groups"].get(GROUPS.get(kind, kind), ()))


def oldest() -> list[str]:
    """The lowest version of each library that the program itself needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [re.sub(r"^([\w-]+)>=([\w.]+).*", r"\1==\2", one) for one in project["project"]["dependencies"]]


def is_ready(folder: Path, kind: str) -> bool:
    """True if the environment holds `kind`; each of the others holds `run`."""
    enough = KINDS if kind == "run" else (kind,)
    return any((folder / f".stamp-{one}").is_file() and (folder / f".stamp-{one}").read_text() == stamp_of(one) for one in enough)


def works(folder: Path) -> bool:
    """True if there is a Python with pip in it, new enough, and no earlier installation was cut short."""
    python = folder / "bin" / "python"
    if (folder / ".installing").exists() or not python.exists():
        return False
    check = f"import pip, sys; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def create(folder: Path) -> None:
    """A fresh, empty environment. Refuses to clear a folder that is no virtual environment."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists() and not (folder / ".installing").exists():
        sys.exit(f"{folder} exists and is no virtual environment; name another with make VENV=…")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".installing").touch()
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=False)
    if done.returncode:
        sys.exit("Python's venv module could not make the environment (on Debian and Ubuntu it is the package python3-venv).")


def install(folder: Path, kind: str) -> None:
    """Install the project in place, with what `kind` needs."""
    say(f"installing into {folder.name} (once; takes a minute or two)")
    marker = folder / ".installing"
    marker.touch()
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--editable", ".[gzip]", *requirements(kind), *(oldest() if kind == "lowest" else ())],
        cwd=ROOT,
        env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"},
        check=False,
    )
    if done.returncode:
        sys.exit("pip could not install what is needed; its message stands above.")
    (folder / f".stamp-{kind}").write_text(stamp_of(kind))
    marker.unlink()


def main() -> None:
    """Command line."""
    if sys.version_info < OLDEST:
        sys.exit("Python 3.11 or newer is needed.")
    folder, kind = ROOT / sys.argv[1], sys.argv[2]
    if is_ready(folder, kind) and works(folder):
        return
    if not works(folder):
        create(folder)
    install(folder, kind)


if __name__ == "__main__":
    main()
