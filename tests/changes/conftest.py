"""A copy of the program in which a test makes one change, as a newcomer would, and runs the program: the table "Which change touches
what" of ARCHITECTURE.md is proven on it.
"""

import compileall
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from diagnose.document.encoding import encode
from diagnose.pipeline import diagnose
from fixtures import scenario
from fixtures.accuracy import trace_of
from fixtures.plan import Plan
from tests.builders import simulated
from tests.builders.records import replace

ROOT = Path(__file__).parent.parent.parent
TREES = ("diagnose", "trace_rules")
ALSO = ("pyproject.toml",)
CALLS = """
import json, os, sys
from diagnose.cli import main
said, codes = os.dup(1), []
for place, call in enumerate(json.load(sys.stdin)):
    with open(os.path.join(sys.argv[1], str(place)), "wb") as file:
        os.dup2(file.fileno(), 1)
    codes.append(main(call))
    sys.stdout.flush()
os.write(said, json.dumps(codes).encode())
"""
MADE = shutil.ignore_patterns("__pycache__", "reference", "*_cache")  # bytecode; pages made from the data


@dataclass(frozen=True)
class ProgramCopy:
    """A copy of `diagnose/`, `trace_rules/` and `pyproject.toml` in `folder`; paths are relative to it, with `/`."""

    folder: Path

    def read(self, path: str) -> str:
        """The text of a file in the copy."""
        return (self.folder / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> Path:
        """Add a file, or write one anew; its folder is made."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def append(self, path: str, text: str) -> None:
        """Put text at the end of a file that is there."""
        self.write(path, self.read(path) + text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace text that stands exactly once in a file that is there."""
        text = self.read(path)
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
        self.write(path, text.replace(old, new))

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self.folder / path).unlink()

    def changed(self) -> set[str]:
        """The files that were added, removed, or hold other bytes than the original: what the change touched."""
        return {path for path in files_of(self.folder) | files_of(ROOT) if not _alike(self.folder / path, ROOT / path)}

    def python(self, *arguments: str, status: int = 0, stdin: str = "") -> str:
        """Standard output of Python with these arguments and the copy's packages; fails unless it ends with `status`."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DIAGNOSE", "PYTEST", "COVERAGE", "GITHUB", "FORCE_COLOR", "PYTHONPYCACHEPREFIX"))
        }
        environment |= {"PYTHONPATH": str(self.folder), "POLARS_MAX_THREADS": "2", "NO_COLOR": "1", "COLUMNS": "140"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == status, f"ended with {done.returncode}, not {status}:\n{done.stderr}\n{done.stdout[-2000:]}"
        return done.stdout

    def run(self, *arguments: str | Path, status: int = 0, stdin: str = "") -> str:
        """Standard output of `python -m diagnose` with these arguments, in the copy; fails unless it ends with `status`."""
        return self.python("-m", "diagnose", *map(str, arguments), status=status, stdin=stdin)

    def runs(self, *calls: Sequence[str | Path], status: int = 0) -> list[str]:
        """What `run` gives for each of several calls, all of them in one process; each has to end with `status`."""
        given = json.dumps([[str(one) for one in call] for call in calls])
        with tempfile.TemporaryDirectory() as outputs:
            said = self.python("-c", CALLS, outputs, stdin=given)
            assert json.loads(said) == [status] * len(calls)
            return [(Path(outputs) / str(place)).read_text(encoding="utf-8") for place in range(len(calls))]

    def json(self, *arguments: str | Path, status: int = 0) -> Any:
        """What `run` gives with `--format json`, read."""
        return msgspec.json.decode(self.run(*arguments, "--format", "json", status=status))


def files_of(root: Path) -> set[str]:
    """The files of the copied trees below `root`, relative to it, without what Python or a test makes."""
    paths = (path for tree in TREES for path in (root / tree).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {*ALSO} | {
        path.relative_to(root).as_posix() for path in paths if "reference" not in path.parts and "__pycache__" not in path.parts
    }


def _alike(first: Path, second: Path) -> bool:
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)


def _compiled(folder: Path) -> None:
    """The trees with the bytecode of all their modules, which holds as long as a source keeps its size and its time."""
    for tree in TREES:
        shutil.copytree(ROOT / tree, folder / tree, ignore=MADE)
    for name in ALSO:
        shutil.copy2(ROOT / name, folder / name)
    compileall.compile_dir(folder / "diagnose", quiet=1)


@pytest.fixture
def program(tmp_path: Path) -> ProgramCopy:
    """A fresh copy of the program, with bytecode that was made once in the session, so that it starts as quickly as the original."""
    folder = tmp_path / "program"
    shutil.copytree(simulated.shared("copy of the program", _compiled), folder)
    return ProgramCopy(folder)


def _small_demo(folder: Path) -> None:
    """The demo's job with one layer, so that a change is seen without much to diagnose."""
    one = scenario.load("demo")
    machine, faults = ({field.name: getattr(part, field.name) for field in fields(part)} for part in (one.plan.machine, one.plan.faults))
    plan = Plan.of({**one.plan.job, "model": {**one.plan.job["model"], "num_layers": 1}}, machine, faults)
    one = replace(one, plan=plan)
    trace_of("nsys", one, one.record()[0], folder).rename(folder / "demo.sqlite")


@pytest.fixture(scope="session")
def demo_trace() -> Path:
    """A small run of the demo's job (Nsight Systems)."""
    return simulated.shared("the demo's job with one layer", _small_demo) / "demo.sqlite"


@pytest.fixture(scope="session")
def before(demo_trace: Path) -> Any:
    """The document of the demo's trace before any change."""
    return msgspec.json.decode(encode(diagnose([demo_trace])))
