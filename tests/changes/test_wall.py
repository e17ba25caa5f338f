"""A new wall is its row in walls.yaml; the document, the verdict and every output know it."""

from __future__ import annotations

from pathlib import Path

from tests.changes.conftest import ProgramCopy

ROWS = "trace_rules/walls.yaml"
ROW = """
  probe:
    title: probing
    meaning: what a probe takes
    style: red
    lead:
      - say: "Probing dominates: {dominant_bound_ns:ms} of {step_ns:ms} ms {per} ({dominant_share:pct})"
    bound: 0.9 * step_ns
    parts: {all_of_it: 0.9 * step_ns}
    status_facts: [step_ns]
"""


def test_a_wall_is_a_row(program: ProgramCopy, demo_trace: Path) -> None:
    before = program.json(demo_trace)
    program.replace(ROWS, "\n# Rules about the capture itself", ROW + "\n# Rules about the capture itself")

    after = program.json(demo_trace)
    assert [wall["wall"] for wall in after["walls"]] == [*(wall["wall"] for wall in before["walls"]), "probe"]
    assert after["walls"][:-1] == before["walls"]
    bound, verdict = after["walls"][-1], after["verdict"]
    assert bound["bound_ns"] == round(0.9 * after["facts"]["step_ns"]["value"])
    assert bound["status"] == "measured"
    assert verdict["dominant_wall"] == "probe"
    assert verdict["runner_up"] == before["verdict"]["dominant_wall"] or verdict["runner_up"] == before["verdict"]["runner_up"]
    assert verdict["sentence"].startswith("Probing dominates: ")

    saved = program.write("after.json", program.run(demo_trace, "--format", "json"))
    for form in ("text", "markdown", "html"):
        assert "probing" in program.run("render", saved, "--format", form).lower()
    assert "what a probe takes" in program.run("explain", "wall:probe")
    assert '"wall": "probe"' in program.run("compare", saved, saved, "--format", "json")
    program.remove("after.json")
    assert program.changed() == {ROWS}


def test_a_wall_that_could_dominate_without_a_word_is_an_error_of_the_data(program: ProgramCopy, demo_trace: Path) -> None:
    mute = ROW.replace("    lead:\n", "    lead: []\n").replace('      - say: "Probing dominates', '    # "Probing dominates')
    program.replace(ROWS, "\n# Rules about the capture itself", mute + "\n# Rules about the capture itself")
    program.run(demo_trace, status=2)
