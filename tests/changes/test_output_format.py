"""An output format is one writer, which writes every kind of document; a document is one report builder, which every writer writes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.changes.conftest import ROOT, ProgramCopy

PATH = "diagnose/render/writers/outline.py"
GUIDE = ROOT / "docs" / "how-to" / "add-an-output-format.md"


def writer() -> str:
    """The writer that the guide for newcomers shows."""
    block = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return "\n".join(line.removeprefix("   ") for line in block[1].splitlines()).rstrip() + "\n"


def test_an_output_format_is_one_writer(program: ProgramCopy, demo_trace: Path, tmp_path: Path) -> None:
    program.write(PATH, writer())
    saved, page = tmp_path / "run.json", tmp_path / "run.outline"
    program.run(demo_trace, "-q", "-o", saved, "-o", page)
    outline = program.run("render", saved, "--format", "outline")
    assert "Findings" in outline.splitlines()
    assert page.read_text(encoding="utf-8") == outline
    assert program.run("compare", saved, saved, "--format", "outline").strip()
    job = tmp_path / "job.yaml"
    job.write_text("model: {num_layers: 2}\n", encoding="utf-8")
    for words in (["check", job], ["rules"], ["kernel", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"], ["baseline", "list"]):
        assert program.run(*words, "--format", "outline").strip(), words
    assert "|outline]" in program.run("--help")
    assert ".outline" in program.run("bisect", "--help")
    assert program.changed() == {PATH}


def test_a_document_is_one_report_builder(program: ProgramCopy) -> None:
    kinds, builder = "diagnose/render/reports/__init__.py", "diagnose/render/reports/probe.py"
    program.replace(kinds, "\nKINDS = (\n", '\nKINDS = (\n    DocumentKind(name="probe", type="Probe", module="probe", json=False),\n')
    program.write(
        builder,
        "from diagnose.render.report import Block, Report, Text\n\n\n"
        "def report(document):\n"
        '    return Report(title="A probe", heading="Probe", about="", blocks=(Block(content=Text(text=document.sentence)),))\n',
    )
    script = (
        "class Probe:\n    sentence = 'what the probe says'\n"
        "from diagnose.render import formats_for, write\n"
        "for name in formats_for('probe'):\n    print(name, 'what the probe says' in write(Probe(), name))\n"
    )
    assert program.python("-c", script).splitlines() == ["text True", "markdown True", "html True"]
    assert program.changed() == {kinds, builder}
