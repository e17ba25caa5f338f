"""Every list of a document as CSV: strictly RFC 4180, exact, null empty, harmless in a spreadsheet."""

import csv
import io
import re
from pathlib import Path

import pytest
from msgspec import structs

from diagnose.cli import main
from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import UsageError
from diagnose.render import Options, kind_of, table_names, write
from tests.builders.diagnosis import rich
from tests.builders.documents import DOCUMENTS, HOSTILE

FIELD = r'(?:"(?:[^"]|"")*"|[^",\r\n]*)'
RFC_4180 = re.compile(rf"(?:{FIELD}(?:,{FIELD})*\r\n)+")


def rows(document: object, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(write(document, "csv", Options(table=table)), newline=""), strict=True))


@pytest.mark.deep
def test_every_table_of_every_document_is_strict_csv_with_one_cell_for_each_column() -> None:
    wrong = []
    for name, make in {**DOCUMENTS, **HOSTILE}.items():
        document = make()
        for table in table_names(kind_of(document)):
            text = write(document, "csv", Options(table=table))
            parsed = list(csv.reader(io.StringIO(text, newline=""), strict=True))
            widths = {len(row) for row in parsed}
            head = parsed[0]
            if not RFC_4180.fullmatch(text) or len(widths) != 1 or len(set(head)) != len(head) or "" in head:
                wrong.append(f"{name}: {table}")
            wrong += [f"{name}: {table}: {cell!r}" for row in parsed for cell in row if cell.startswith(("=", "+", "@", "\t"))]
            wrong += [f"{name}: {table}: {cell!r}" for row in parsed for cell in row if re.match(r"-(?![\d.])", cell)]
    assert wrong == []


def test_rows_are_the_documents_with_exact_numbers_and_null_empty() -> None:
    document = rich()
    found = rows(document, "findings")
    assert [row["id"] for row in found] == [one.id for one in document.findings]
    assert [row["bound_ns"] for row in found] == ["" if one.bound_ns is None else str(one.bound_ns) for one in document.findings]
    assert [row["where.ranks"] for row in found] == ["; ".join(map(str, one.where.ranks)) for one in document.findings]
    fixes = rows(document, "findings.fixes")
    assert [(row["finding.id"], row["id"]) for row in fixes] == [(one.id, fix.id) for one in document.findings for fix in one.fixes]
    facts = {row["name"]: row for row in rows(document, "facts")}
    assert facts.keys() == document.facts.keys()
    assert {name: row["value"] for name, row in facts.items() if document.facts[name].value is None} == {
        name: "" for name, fact in document.facts.items() if fact.value is None
    }
    steps = rows(document, "budget.per_step")
    assert [int(row["window_ns"]) for row in steps] == [one.window_ns for device in document.budget for one in device.per_step]
    parts = [(row["wall.wall"], row["name"]) for row in rows(document, "walls.parts")]
    assert parts == [(wall.wall, name) for wall in document.walls for name in wall.parts]


def test_the_step_is_a_table_too() -> None:
    from tests.render.test_perfetto import small

    document = small()
    operations, calls = rows(document, "timeline.operations"), rows(document, "timeline.calls")
    assert [(row["start_ns"], row["stream"], row["name"], row["range"]) for row in operations][:2] == [
        ("1", "7", "gemm", "aten::mm"),
        ("1001", "", "nccl", ""),
    ]
    assert [row["start_ns"] for row in calls] == ["-3999", "4990"]
    assert rows(document, "timeline.gaps")[1]["waited_for"] == "nccl"
    assert rows(structs.replace(document, timeline=None), "timeline.ranges") == []


def test_every_list_that_the_page_shows_is_a_table() -> None:
    shown = {
        "findings", "plan", "walls", "budget.per_step", "buckets", "communication", "blocking", "host", "ledger", "facts", "environment",
    }  # fmt: skip
    shown |= {
        "kernels.kernels",
        "occupancy.kernels",
        "moe_layer.passes.parts",
        "vision.passes.parts",
        "not_assessed",
        "job.settings",
        "ranks.survey",
        "ranks.late",
    }
    lists = {field.name for field in structs.fields(Diagnosis) if str(field.type).startswith("tuple[")}
    assert shown | lists <= set(table_names("diagnosis"))


def test_a_file_is_named_after_its_table_or_section_names_it(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def run(*arguments: str) -> tuple[int, bytes, bytes]:
        code = main(arguments)
        return (code, *capfdbinary.readouterr())

    saved = tmp_path / "saved.json"
    saved.write_text(write(rich(), "json"), encoding="utf-8")
    assert run("render", str(saved), "-q", "-o", str(tmp_path / "findings.fixes.csv"))[0] == 0
    assert (tmp_path / "findings.fixes.csv").read_bytes().startswith(b"finding.id,id,title,")
    assert run("render", str(saved), "-q", "--section", "buckets", "-o", str(tmp_path / "x.csv"))[0] == 0
    assert (tmp_path / "x.csv").read_bytes().startswith(b"rank,device,bucket,")
    assert run("render", str(saved), "--format", "csv", "--section", "facts")[1].startswith(b"name,value,unit,status\r\n")
    code, _, said = run("render", str(saved), "-q", "-o", str(tmp_path / "bukets.csv"))
    assert (code, b"Did you mean buckets?" in said, b"timeline.operations" in said) == (2, True, True)
    assert run("render", str(saved), "--format", "csv", "--section", "bukets")[0] == 2
    listed = run("render", str(saved), "--format", "csv")[1].decode()
    assert listed.startswith("table,rows\r\n")
    assert f"findings,{len(rich().findings)}\r\n" in listed
    assert rich().save(tmp_path / "ledger.csv").read_bytes().decode() == rich().to_csv("ledger")
    with pytest.raises(UsageError, match="names no table"):
        rich().save(tmp_path / "nothing.csv")
