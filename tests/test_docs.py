"""The documentation does what it says.

Each command of the tutorial runs as it stands there, and the site builds with every link and anchor in place.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.cli import main
from diagnose.model.vocabulary import OTHER_BUCKET
from fixtures import accuracy_report
from tests.builders.cases import for_each
from tests.conftest import ROOT

DOCS = ROOT / "docs"


def shell_blocks(page: str) -> list[str]:
    """The blocks of a page that a reader is to type, in order."""
    return re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_kernel_that_the_page_on_families_adds_is_one_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = set(re.findall(r"diagnose kernel '([^']+)'", (DOCS / "how-to" / "add-a-kernel-family.md").read_text(encoding="utf-8")))
    assert main(["kernel", name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["bucket"] == OTHER_BUCKET


@pytest.mark.deep
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    """From the repository's root, `diagnose` and `python` being this program and this interpreter."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("diagnose", f"{sys.executable} -m diagnose"), ("python", sys.executable)):
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (tools / name).chmod(0o755)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    blocks = shell_blocks("tutorial.md")
    assert len(blocks) >= 8
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    said = []
    for block in blocks:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block}\n{ended.stdout[-600:]}{ended.stderr[-600:]}"
        said.append(ended.stdout + ended.stderr)
    told = "\n".join(said)
    for words in (
        "COMMUNICATION-BOUND",
        "overlap_moe_expert_parallel_comm: false → true",
        "THE CAPTURES DIFFER, FOR THE BETTER",
        "nsys profile",
    ):
        assert words in told
    assert {path.name for path in (tmp_path / "tutorial").iterdir()} >= {"report.html", "before.json", "new.yaml", "compare.html"}


def test_commands_of_the_pages_name_verbs_that_exist() -> None:
    from diagnose.cli import cli

    verbs = set(cli.commands)
    wrong = []
    for page in sorted(DOCS.rglob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                words = line.split()
                if words[:1] == ["diagnose"] and re.fullmatch(r"[a-z-]+", words[1]) and words[1] not in verbs:
                    wrong.append((page.name, line))
    assert wrong == []


@for_each("page, least", ("graded-cases.md", 30), ("answer.md", 40), ("field-knowledge.md", 50), ("house.md", 30))
def test_the_tests_and_places_that_a_page_names_exist(page: str, least: int) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    places = re.findall(r"`((?:diagnose|trace_rules|tests|docs)/[\w./-]+)`", text)
    assert [place for place in places if not (ROOT / place).exists()] == []
    named = re.findall(r"`(tests/[\w/]+\.py)::([\w*]+)`", text)
    assert len(named) > least
    absent = [
        (file, test)
        for file, test in named
        if not (ROOT / file).is_file() or f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert absent == [], "a whole file, or `*`, shows nothing"


@pytest.mark.deep
def test_the_site_builds_with_every_link_in_place(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed (dependency group docs)")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    page = (tmp_path / "sceptics.html").read_text(encoding="utf-8")
    criteria = accuracy_report.criteria(accuracy_report.read_rows())
    assert page.count("holds</td>") + page.count("does not hold") == len(criteria)
    for name in ("tutorial.html", "reference/rules.html", "reference/fixes.html", "architecture.html", "changelog.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', text), name  # nothing is fetched from elsewhere
