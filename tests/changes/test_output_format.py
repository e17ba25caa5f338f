"""An output format is one writer, a document one builder and its line.

Both are added to a copy of the program, and everything else knows them.
"""

from pathlib import Path

import pytest

from diagnose.render import kind_of, write
from tests.builders.bisection import rich as bisection
from tests.builders.comparison import rich as comparison
from tests.builders.diagnosis import rich as diagnosis
from tests.changes.conftest import ROOT, ProgramCopy

WRITERS = Path("diagnose/render/writers")
REPORTS = Path("diagnose/render/reports")
WRITER = '''"""The names of a report's parts, one a line."""

from diagnose.render.report import Report
from diagnose.render.writers import Options, Writer


def write(report: Report, options: Options) -> str:
    """A first line that tells the probe, then what every part is."""
    return "\\n".join([f"probed: {report.title}", *(type(block.content).__name__ for block in report.blocks)]) + "\\n"


WRITER = Writer(name="probe", extensions=(".probe",), takes="report", place=9, write=write)
'''
BUILDER = '''"""The report of a probe: one sentence."""

from __future__ import annotations

from diagnose.render.report import Block, Report, Text


def report(document: object) -> Report:
    """One sentence."""
    return Report(title="Probe", heading="a probe", about="", blocks=(Block(content=Text(text="It was probed.")),))
'''
LINE = 'DocumentKind(name="rules", type="Rulebook", module="rules", json="builder"),\n'
CALL = """
from diagnose.render import formats_for, write
class Probe: ...
for name in formats_for("probe"):
    assert "It was probed." in write(Probe(), name), name
print(*formats_for("probe"))
"""


@pytest.mark.deep
def test_a_format_is_one_writer(program: ProgramCopy, tmp_path: Path) -> None:
    added = (WRITERS / "probe.py").as_posix()
    program.write(added, WRITER)
    job = ROOT / "fixtures" / "jobs" / "a1_qwen3_30b_h100.yaml"
    documents = (diagnosis(), comparison(), bisection())
    saved = {kind_of(document): tmp_path / f"{kind_of(document)}.json" for document in documents}
    for document in documents:
        saved[kind_of(document)].write_text(write(document, "json"), encoding="utf-8")
    verbs = {
        **{name: ["render", path] for name, path in saved.items()},
        "check": ["check", job],
        "patch": ["patch", "--config", job, "--fix", "COM-06"],
        "baselines": ["baseline", "list", "--store", tmp_path / "none"],
        "explanation": ["explain", "router"],
        "kernels": ["kernel", "nccl_AllGather_RING"],
        "rules": ["rules"],
    }
    files = {path: path.with_suffix(".probe") for path in saved.values()}
    said = program.runs(
        *((*arguments, "--format", "probe") for arguments in verbs.values()),
        *(("render", path, "-q", "-o", file) for path, file in files.items()),
        ("render", "--help"),
    )
    assert [name for name, text in zip(verbs, said, strict=False) if not text.startswith("probed: ")] == []
    assert all(file.read_text(encoding="utf-8").startswith("probed: ") for file in files.values())
    assert "probe" in said[-1]
    assert program.changed() == {added}


def test_a_document_is_one_builder_and_its_line(program: ProgramCopy) -> None:
    builder, table = (REPORTS / "probe.py").as_posix(), (REPORTS / "__init__.py").as_posix()
    program.write(builder, BUILDER)
    program.replace(table, LINE, f'{LINE}    DocumentKind(name="probe", type="Probe", module="probe", json=None),\n')
    assert program.python("-c", CALL).split() == ["text", "markdown", "html"]
    assert program.changed() == {builder, table}
