"""Every output on a full and on an almost empty diagnosis."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.render import Options, units, words, write
from diagnose.render.reports.diagnosis import story, tables
from diagnose.render.writers.markdown.page import MOST_BYTES
from tests.builders.diagnosis import LONG_KERNEL, minimal, rich
from tests.render.regenerate import SCHEMA, schema_text

SAMPLES = {"rich": rich, "minimal": minimal}


def rendered(format_: str, document: d.Diagnosis, **options: object) -> str:
    return write(document, format_, Options(**options))  # type: ignore[arg-type]


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_keeps_null_and_the_key_from() -> None:
    data = json.loads(rendered("json", rich()))
    assert data["walls"][1]["parts"] == {"transfer": None, "wait": None}
    assert data["findings"][0]["fixes"][0]["changes"][1]["from"] is None
    assert data["schema"] == "diagnosis/1"


def test_schema_is_published_and_describes_the_document() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema == json.loads(schema_text())
    assert set(schema["$defs"]["Diagnosis"]["properties"]) == set(json.loads(rendered("json", minimal())))


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(document: d.Diagnosis) -> set[str]:
    """The figures of the device that the verdict speaks of, as they must stand in every report."""
    device = tables.focus(document)
    assert device is not None
    assert device.median is not None
    found = {
        units.ms(getattr(device.median, name)) for name in r.StepBudget.__struct_fields__ if name.endswith("_ns") and "er_ns" not in name
    }
    found |= {units.ms(wall.bound_ns) for wall in document.walls}
    found |= {units.ms(value) for wall in document.walls for value in wall.parts.values()}
    mine = [row for row in (*document.buckets, *document.communication, *document.blocking, *document.host) if row.rank == device.rank]
    found |= {
        units.ms(value)
        for row in mine
        for name in ("busy_ns", "exclusive_ns", "exposed_ns", "blocking_ns")
        if (value := getattr(row, name, None)) is not None
    }
    found |= {units.ms(row.work_ns) for row in document.unclassified}
    return found


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_every_number_stands_in_the_report(format_: str) -> None:
    report = rendered(format_, rich())
    assert [number for number in sorted(_numbers(rich())) if number not in report] == []


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_findings_and_fixes_are_told_in_full(format_: str) -> None:
    report = re.sub(r"\s+", " ", rendered(format_, rich()).replace("\\", "").replace("\u200b", ""))
    for finding in rich().findings:
        assert story.title(finding.name) in report
        for fix in finding.fixes:
            assert story.title(fix.title) in report
            assert words.STATE[fix.state].replace("'", "&#39;" if format_ == "html" else "'") in report
    for said in (
        "comm_overlap.overlap_moe_expert_parallel_comm",
        "--overlap-moe-expert-parallel-comm",
        "1.06× to 1.14× on 64 H100, EP 8 (published A/B)",
        "example.invalid/benchmarks#ep-overlap",
        "HybridEP pays within one NVLink domain; EP 64 spans 8 nodes here.",
        "Whether it fits: peak_reserved_bytes, device_memory_bytes are not measured.",
        "Another rank came late",
    ):
        assert said in report


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_what_was_not_measured_is_never_zero(format_: str) -> None:
    report = rendered(format_, minimal())
    budget = tables.budget(minimal(), minimal().budget[0])
    starved = {row.cells[0]: row.cells[1:] for row in budget.rows}
    assert starved["launch-starved"] == starved["host sync"] == ("–", "–", "–", "–")
    assert starved["blocking"][0] == "0.000"
    assert [row.cells[2] for row in tables.walls(minimal()).rows] == ["–"] * 4
    assert "not measured" in report


def test_parts_of_every_bar_add_up_to_its_step() -> None:
    for device in rich().budget:
        for step in device.per_step:
            assert sum(segment.of(step) for segment in words.SEGMENTS) == step.window_ns


def test_a_capture_without_steps_is_never_called_a_step() -> None:
    assert "per capture" in rendered("text", minimal())
    assert "per step" not in rendered("text", minimal())
    assert "per step" not in re.sub(r"<script>.*?</script>", "", rendered("html", minimal()), flags=re.DOTALL)


# --- hostile texts ----------------------------------------------------------------------------------------------------


def test_markdown_stays_below_sixty_kilobytes() -> None:
    document = rich()
    many = msgspec.structs.replace(document.findings[0], summary="é" * 5_000)
    huge = msgspec.structs.replace(
        document,
        findings=tuple(msgspec.structs.replace(many, id=f"rule-{index:03}") for index in range(300)),
        unclassified=document.unclassified * 100,
        not_assessed=document.not_assessed * 200,
    )
    report = rendered("markdown", huge)
    assert len(report.encode("utf-8")) <= MOST_BYTES
    assert "Left out to stay below 60 KB" in report
    assert "## Communication wall" in report


def test_long_names_are_cut_in_tables_but_whole_in_json() -> None:
    assert LONG_KERNEL not in rendered("text", rich())
    assert json.loads(rendered("json", rich()))["unclassified"][0]["name"] == LONG_KERNEL
    assert len(LONG_KERNEL) > 4_500


def test_figure_data_cannot_end_their_block_early() -> None:
    block = re.search(r'<script type="application/json" id="figures">(.*?)</script>', rendered("html", rich()), flags=re.DOTALL)
    assert block is not None
    assert "<" not in block.group(1)
    assert sorted(json.loads(block.group(1))) == ["buckets", "budget", "communication", "rank-heat", "rank-strips", "timeline"]
