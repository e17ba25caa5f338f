"""Every output on a full and on an almost empty diagnosis."""

from __future__ import annotations

import base64
import hashlib
import html as html_module
import json
import re
from collections.abc import Callable

import msgspec
import pytest

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.render import EXTENSIONS, RENDERERS, Options, marked, units, words
from diagnose.render.reports.diagnosis import story, tables
from tests.builders.diagnosis import HOSTILE, LONG_KERNEL, minimal, rich
from tests.render.reading import check_columns, check_powerless, orders
from tests.render.regenerate import SCHEMA, goldens, schema_text

SAMPLES = {"rich": rich, "minimal": minimal}
FORMATS = sorted(RENDERERS)


def rendered(format_: str, document: d.Diagnosis, **options: object) -> str:
    return RENDERERS[format_](document, Options(**options))  # type: ignore[arg-type]


def test_goldens_are_current() -> None:
    changed = [path.name for path, text in goldens().items() if path.read_text(encoding="utf-8") != text]
    assert changed == [], "run python -m tests.render.regenerate and read the difference"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_same_document_gives_same_bytes(format_: str, sample: Callable[[], d.Diagnosis]) -> None:
    assert rendered(format_, sample()) == rendered(format_, sample())


def test_every_extension_names_a_format() -> None:
    assert set(EXTENSIONS.values()) == set(RENDERERS) - {"github"}  # annotations are read from the log alone


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_json_reads_back_equal(sample: Callable[[], d.Diagnosis]) -> None:
    assert d.decode(rendered("json", sample()).encode()) == sample()


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


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_text_fits_and_holds_no_control_sign(sample: Callable[[], d.Diagnosis], width: int) -> None:
    report = rendered("text", sample(), width=width)
    assert max(len(line) for line in report.splitlines()) <= width + 1  # a line that a CI runner would obey gets one sign more
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ue000]", report)


def test_colour_comes_only_when_asked_for_and_only_from_us() -> None:
    plain, coloured = rendered("text", rich()), rendered("text", rich(), color=True)
    assert "\x1b[" not in plain
    assert set(re.findall(r"\x1b\[([^m]*)m", coloured)) <= {"0", "1", "2", "4", "31", "32", "33", "34", "35", "36", "1;2", "2;4", "1;4"} | {
        f"{style};{colour}" for style in (1, 2) for colour in range(31, 37)
    }
    assert "\x1b]" not in coloured


@pytest.mark.parametrize("format_", ["text", "markdown"])
def test_no_line_gives_an_order_to_a_ci_runner(format_: str) -> None:
    assert orders(rendered(format_, rich())) == []


def test_markdown_gives_no_power_to_a_trace() -> None:
    check_powerless(rendered("markdown", rich()))


def test_markdown_cells_stay_in_their_columns() -> None:
    check_columns(rendered("markdown", rich()))


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
    assert len(report.encode("utf-8")) <= marked.MOST_BYTES
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


def test_the_policy_names_exactly_the_scripts_of_the_page() -> None:
    page = rendered("html", rich())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    rules = html_module.unescape(policy.group(1)).split("; ")
    assert rules[0] == "default-src 'none'"
    assert rules[1] == "script-src " + " ".join(f"'sha256-{value}'" for value in hashes)
    assert len(hashes) == 2


@pytest.mark.parametrize("payload", HOSTILE)
def test_html_holds_no_payload_as_markup(payload: str) -> None:
    page = rendered("html", rich())
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    if "<" in payload:
        assert payload not in body
    assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;|\\u003c[^\"]*", "", body)
