"""The project's own promises: what the README says exists, nothing names this machine, versions have ranges, modules stay small."""

import importlib.util
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

from diagnose import cli, errors
from fixtures import sample
from fixtures.__main__ import NSYS, unpack

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = "\n".join([README, *(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LONGEST_MODULE = 700
MADE = {
    ".git", ".venv", ".make", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache", ".hypothesis", "__pycache__",
    "build", "dist", ".whl",
}  # fmt: skip
# Written in pieces, so that this file does not hold what it looks for.
HOSTS = [
    "pypi" + ".org", "python" + "hosted", "ana" + "conda", "npm" + "js", "arti" + "factory", "deb." + "debian", "index" + "-url",
    "prox" + "y.golang",
]  # fmt: skip
PLACES = ["/wo" + "rk/", "/ro" + "ot/", "/op" + "t/wheels", "/op" + "t/pypi", "/Us" + "ers/"]


def project_files() -> Iterator[Path]:
    """All files of the project that people wrote: no caches, no environment, nothing that make or a program wrote."""
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(name for name in names if name not in MADE and not (Path(folder) / name / "pyvenv.cfg").exists())
        for name in sorted(files):
            path = Path(folder) / name
            if (
                name != ".git" and not name.endswith((".gz", ".pyc", ".png", ".sqlite")) and path.parent != ROOT / "reports"
            ):  # a file in a worktree
                yield path


def commands() -> dict[str, click.Command]:
    return dict(cli.cli.commands)


def code_of(text: str) -> list[str]:
    """Lines of fenced or indented code, and inline code, without the prompt."""
    fenced = [line for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [line.strip().removeprefix("$ ") for line in (*fenced, *re.findall(r"`([^`\n]+)`", text))]


def options_of(command: click.Command) -> set[str]:
    if isinstance(command, click.Group):
        return set().union(*(options_of(one) for one in command.commands.values()))
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help", "-h"}


def test_every_option_in_the_documentation_exists() -> None:
    seen = 0
    for line in code_of(TEXTS):
        words = line.split()
        if not words or words[0] != "diagnose":
            continue
        verb = words[1] if len(words) > 1 and words[1] in commands() else "analyse"
        known = options_of(commands()[verb]) | ({"--version"} if verb == "analyse" else set())
        used = {word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert used <= known, line
        seen += 1
    assert seen >= 6
    every = set().union(*(options_of(command) for command in commands().values())) | {"--version"}
    inline = {word.split("=")[0] for text in re.findall(r"`(--[a-z][^`]*)`", TEXTS) for word in text.split() if word.startswith("--")}
    foreign = {"--cuda-graph-trace", "--cuda-event-trace"}
    assert inline - foreign <= every


def test_the_exit_codes_of_the_documentation_are_those_of_the_program() -> None:
    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DiagnoseError)}
    returned = {value for name, value in vars(cli).items() if name.startswith("EXIT_")}
    assert written == raised | returned | {0}


def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    trace = tmp_path / "demo.sqlite"
    unpack(NSYS, trace)
    shown = sample.BLOCK.search(README)
    assert shown is not None
    assert shown[2] == sample.beginning(sample.printed(trace)), "renew it with: python -m fixtures readme"
    assert "What to change" in shown[2]


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    documents = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^ *make ([a-z]+)", documents, re.MULTILINE)) | set(re.findall(r"`make ([a-z]+)", documents))
    assert {"demo", "test", "bench"} <= named <= targets


def test_no_file_names_a_registry_or_this_machine() -> None:
    found = []
    for path in project_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [(str(path.relative_to(ROOT)), word) for word in (*HOSTS, *PLACES) if word in text]
    assert found == []


def test_dependencies_have_ranges() -> None:
    for requirement in PROJECT["project"]["dependencies"]:
        assert re.fullmatch(r"[a-z0-9-]+(\[[a-z,]+\])?>=[\d.]+,<\d+", requirement), requirement
    for requirement in PROJECT["dependency-groups"]["dev"]:
        assert re.fullmatch(r"[A-Za-z0-9-]+>=[\d.]+", requirement), requirement


def test_no_module_is_too_long() -> None:
    long = {}
    for folder in ("diagnose", "fixtures", "pages", "benchmarks", "trace_rules"):
        for path in (ROOT / folder).rglob("*.py"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > LONGEST_MODULE:
                long[str(path.relative_to(ROOT))] = lines
    assert long == {}


def test_comments_are_no_longer_than_lines() -> None:
    """Those behind a statement too, which the linter leaves out; what is said to tools is no comment."""
    longest = PROJECT["tool"]["ruff"]["lint"]["pycodestyle"]["max-doc-length"]
    long = []
    for path in (path for folder in ("diagnose", "fixtures", "pages", "benchmarks") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline) if any(len(line) > longest for line in text.splitlines()) else ()
        comments = (token for token in tokens if token.type == tokenize.COMMENT and token.end[1] > longest)
        long += [f"{path.relative_to(ROOT)}:{one.start[0]}" for one in comments if not re.match("# (noqa|type:|fmt:)", one.string)]
    assert long == []


@pytest.mark.deep
@pytest.mark.package
def test_the_wheel_holds_the_rules(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        names = set(wheel.namelist())
    rules = {str(path.relative_to(ROOT)) for path in (ROOT / "trace_rules").rglob("*.yaml")}
    templates = {str(path.relative_to(ROOT)) for kind in ("*.j2", "*.js") for path in (ROOT / "diagnose").rglob(kind)}
    recipe = {f"diagnose/recipe/diagnose/{name}" for name in ("metadata.json", "nsight_recipe.py")}
    assert rules | templates | recipe <= names
    assert any(name.endswith("LICENSE") for name in names)
    assert any(name.endswith(".data/data/share/man/man1/diagnose.1") for name in names)
    assert not any(name.startswith(("tests", "fixtures", "pages", "benchmarks")) for name in names)


def test_pre_commit_fetches_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["language"] for repository in config["repos"] for hook in repository["hooks"]} == {"system"}


@pytest.fixture
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_interrupted_installation_is_not_trusted(environment: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".stamp-dev").write_text(environment.stamp_of("dev"))
    assert environment.is_ready(tmp_path, "run")  # dev holds all that run needs
    assert environment.works(tmp_path)
    (tmp_path / ".installing").touch()
    assert not environment.works(tmp_path)


def test_a_changed_project_makes_the_environment_stale(environment: ModuleType, tmp_path: Path) -> None:
    (tmp_path / ".stamp-run").write_text("what an older pyproject.toml gave")
    assert not environment.is_ready(tmp_path, "run")
    assert environment.requirements("run") == []
    assert environment.requirements("dev") == PROJECT["dependency-groups"]["dev"]


def test_a_foreign_folder_is_not_cleared(environment: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit, match="no virtual environment"):
        environment.create(tmp_path)
    assert (tmp_path / "precious").exists()
