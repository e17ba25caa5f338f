"""The action, the workflows of the documentation, and the summary of a step: their command lines, run or held against the options."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.cli import cli, main
from tests.bisect.profile_step import scaled

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(captures: tuple[Path, dict[str, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved diagnoses of eight runs as they were, and of three on a slower network."""
    folder = tmp_path_factory.mktemp("runs")
    for name, count in (("base", 8), ("network-150", 3)):
        document = json.loads((captures[0] / f"{name}.json").read_text())
        for number in range(count):
            made = scaled(json.loads(json.dumps(document)), math.exp(0.004 * ((number * 5) % 8 - 3.5) / 3))
            (folder / f"{name}-{number}.json").write_text(json.dumps(made))
    return folder


def action() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "action.yml").read_text()))


def run_gate(folder: Path, runs: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's own script, as a runner runs it, with its inputs' defaults."""
    described = action()
    step = next(step for step in described["runs"]["steps"] if step["name"] == "Gate")
    given = {name: str(one.get("default", "")) for name, one in described["inputs"].items()} | {"runs": runs, **inputs}
    names = {variable: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text) for variable, text in step["env"].items()}
    variables = {variable: given[found.group(1)] for variable, found in names.items() if found is not None}
    assert len(variables) == len(step["env"])
    program = folder / "bin" / "diagnose"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m diagnose "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.deep
def test_the_action_passes_adds_and_fails(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = [str(runs / f"base-{number}.json") for number in range(5)]
    assert main(["baseline", "add", "nightly", *old, "--store", str(tmp_path / "store")]) == 0
    inputs = {"baseline": "nightly", "store": "store"}
    good = " ".join(str(runs / f"base-{number}.json") for number in (5, 6, 7))
    passed = run_gate(tmp_path, good, add="true", **inputs)
    assert passed.returncode == 0, passed.stderr + passed.stdout
    assert len(list((tmp_path / "store" / "nightly").rglob("*.json"))) == 8
    slow = " ".join(str(runs / f"network-150-{number}.json") for number in range(3))
    failed = run_gate(tmp_path, slow, add="true", **inputs)
    assert failed.returncode == 1, failed.stderr + failed.stdout
    assert re.search(r"^::error ", failed.stdout, re.MULTILINE)
    assert len(list((tmp_path / "store" / "nightly").rglob("*.json"))) == 8  # what failed is not stored
    assert {path.name for path in (tmp_path / "diagnose-report").iterdir()} == {
        f"gate.{end}" for end in ("html", "md", "json", "xml", "sarif")
    }
    summary = (tmp_path / "summary.md").read_text()
    assert summary.count("slower") >= 1
    hostile = run_gate(tmp_path, "$(touch owned) runs.json;touch owned2", **inputs)
    assert hostile.returncode not in (0, 1)
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path / "owned2").exists()


def commands() -> Iterator[list[str]]:
    """Every command line of this program in the workflows of the documentation and in the action."""
    text = (ROOT / "docs" / "how-to" / "ci.md").read_text() + (ROOT / "action.yml").read_text().replace("\\\n", " ")
    for found in re.finditer(r"(?m)(?:^|run: |- )\s*(diagnose (?:gate|baseline|history|bisect|capture|compare)\b[^\n`|]*)", text):
        yield [word for word in shlex.split(found.group(1).replace("$(git rev-parse HEAD~20)", "HEAD")) if word]


def test_the_options_of_the_workflows_exist() -> None:
    found = list(commands())
    assert len(found) >= 7
    for words in found:
        verb = cli.commands[words[1]]
        if words[1] == "baseline":
            verb = verb.commands[words[2]]  # type: ignore[attr-defined]
        known = {name for parameter in verb.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own = words[: words.index("--")] if "--" in words else words
        assert [word for word in own if word.startswith("-") and word not in known] == [], words


def test_a_summary_that_can_not_be_written_is_said(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "nowhere" / "summary.md"))
    both = (str(runs / "base-0.json"), str(runs / "base-1.json"))
    assert main(["compare", *both, "--format", "github"]) == 74
    assert "could not be written" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    assert main(["compare", *both, "--format", "github"]) == 0
    assert (tmp_path / "summary.md").read_text().startswith("before\n#")


@pytest.mark.deep
def test_two_traces_without_job_files_are_compared_and_the_cause_is_named(
    captures: tuple[Path, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The network became slower: exit 1 of the gate, the exchange that grew first, and what a job file would add in one sentence."""
    both = (str(captures[0] / "base.sqlite"), str(captures[0] / "network-100.sqlite"))
    assert main(["gate", *both, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["comparability"]["comparable"]
    assert found["outcome"]["result"] == "regression"
    assert "DP collectives" in found["outcome"]["moved"].partition(". ")[0]
    assert sum("job file" in one for one in (*found["outcome"]["reasons"], *found["notes"])) <= 2
