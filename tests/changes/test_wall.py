"""A new wall is its row in walls.yaml; the document, the verdict and every output know it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.changes.conftest import ProgramCopy

ROWS = "trace_rules/walls.yaml"
ROW = """
  probe:
    title: probing
    meaning: what a probe takes
    style: red
    says:
      - say: "a probe takes {target_bound_ns:ms} of {step_ns:ms} ms {per} ({target_share:pct})"
    bound: 0.9 * step_ns
    parts: {all_of_it: 0.9 * step_ns}
    status_facts: [step_ns]
"""


@pytest.mark.deep
def test_a_wall_is_a_row(program: ProgramCopy, demo_trace: Path, before: dict[str, Any]) -> None:
    program.replace(ROWS, "\n# How the parts of bounds", ROW + "\n# How the parts of bounds")

    saved = program.folder / "after.json"
    _, *pages, explained, compared = program.runs(
        (demo_trace, "-o", saved),
        *(("render", saved, "-vv", "--format", form) for form in ("text", "markdown", "html")),
        ("explain", "wall:probe"),
        ("compare", saved, saved, "--format", "json"),
    )
    after = json.loads(saved.read_bytes())
    assert [wall["wall"] for wall in after["walls"]] == [*(wall["wall"] for wall in before["walls"]), "probe"]
    assert after["walls"][:-1] == before["walls"]
    bound, verdict = after["walls"][-1], after["verdict"]
    assert bound["bound_ns"] == round(0.9 * after["facts"]["step_ns"]["value"])
    assert bound["status"] == "measured"
    assert verdict["dominant_wall"] == verdict["target_wall"] == "probe"
    assert verdict["runner_up"] == before["verdict"]["target_wall"] or verdict["runner_up"] == before["verdict"]["runner_up"]
    assert verdict["sentence"].startswith("A probe takes ")

    assert ["probing" in page.lower() for page in pages] == [True] * 3
    assert "what a probe takes" in explained
    assert '"wall": "probe"' in compared
    program.remove("after.json")
    assert program.changed() == {ROWS}


def test_a_wall_that_could_be_the_target_without_a_word_is_an_error_of_the_data(program: ProgramCopy, demo_trace: Path) -> None:
    mute = ROW.replace("    says:\n", "    says: []\n").replace('      - say: "a probe takes', '    # "a probe takes')
    program.replace(ROWS, "\n# How the parts of bounds", mute + "\n# How the parts of bounds")
    program.run(demo_trace, status=2)
