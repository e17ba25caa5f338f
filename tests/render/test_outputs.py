"""Every output of a diagnosis, on a full and on an almost empty one: numbers, findings, changes of settings, what was not assessed."""

import json
import re
from collections.abc import Iterable

import msgspec
from msgspec import structs

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.document.baselines import Baselines, RunRow, StoredBaseline
from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import SEVERAL_RANKS, Change, NotAssessed
from diagnose.render import Options, words, write
from diagnose.render.reports.diagnosis import appendix, story, tables
from diagnose.render.writers.markdown.page import MOST_BYTES
from tests.builders.cases import for_each
from tests.builders.diagnosis import minimal, rich
from tests.render.reading import PAGES, rendered
from tests.render.regenerate import SCHEMA, schema_text

# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_keeps_null_and_the_key_from() -> None:
    data = json.loads(rendered("json", rich()))
    assert data["walls"][1]["parts"] == {"transfer": None, "wait": None}
    assert (data["findings"][0]["fixes"][0]["changes"][1]["from"], data["schema"]) == (None, "diagnosis/2")


def test_schema_is_published_and_describes_the_document() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema == json.loads(schema_text())
    assert set(schema["$defs"]["Diagnosis"]["properties"]) == set(json.loads(rendered("json", minimal())))


@for_each("document", d.Diagnosis, Comparison, Bisection)
def test_every_field_of_a_schema_is_described(document: type) -> None:
    schema = json.loads(schema_text(document))
    assert (schema["$schema"], schema["$id"].rpartition(":")[0]) == ("https://json-schema.org/draft/2020-12/schema", "urn:diagnose:schema")
    fields = [(name, key, field) for name, part in schema["$defs"].items() for key, field in part.get("properties", {}).items()]
    assert [(name, key) for name, key, field in fields if len(field.get("description", "")) < 3] == []
    assert schema["$defs"][document.__name__]["description"]


# --- numbers ----------------------------------------------------------------------------------------------------------


@for_each("format_", *PAGES)
def test_what_was_not_measured_is_never_zero(format_: str) -> None:
    report = rendered(format_, minimal())
    budget = tables.budget(minimal(), minimal().budget[0])
    starved = {row.cells[0]: row.cells[1:] for row in budget.rows}
    assert starved["launch-bound"] == starved["CPU synchronisation"] == ("–", "–", "–", "–", "–")
    assert starved["stalled"][0] == "0.000"
    assert [row.cells[2] for row in tables.walls(minimal()).rows] == ["–"] * 4
    assert "not measured" in report


@for_each(
    "bound, parts, said",
    (None, {"host_work": 2_000_000, "host_sync": None}, "known parts 2.0"),
    (5_000_000, {"host_work": 2_000_000, "host_sync": None}, ""),
    (None, {"host_work": None}, ""),
)
def test_of_a_bound_that_is_not_known_as_a_whole_the_known_parts_are_told(
    bound: int | None, parts: dict[str, int | None], said: str
) -> None:
    document = minimal()
    wall = structs.replace(document.walls[0], bound_ns=bound, lower_ns=None, parts=parts)
    (row,) = tables.walls(structs.replace(document, walls=(wall,))).rows
    assert ("known parts" in str(row.cells[-1])) == bool(said)
    assert said in str(row.cells[-1])


@for_each("format_", "text", "markdown", "html", "github", "junit", "sarif", "json")
def test_a_document_without_a_verdict_is_shown_and_says_why(format_: str) -> None:
    said = "Too little was captured to judge: 9.00 µs of GPU time in the whole capture (device operations: 3)."
    least = structs.replace(minimal().verdict, dominant_wall=None, target_wall=None, runner_up=None, certainty="low", sentence=said)
    shown = rendered(format_, structs.replace(minimal(), verdict=least))
    assert ("Too little was captured to judge" in shown) is (format_ != "sarif")  # which lists findings alone
    if format_ in PAGES:
        assert "no verdict" in shown.lower()
        assert "dominant" not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", shown, flags=re.DOTALL)


def test_what_runs_inside_the_vision_encoder_is_a_table_where_one_ran() -> None:
    parts = (r.VisionPart(operation="grouped_gemm", kernels=7.5, busy_ns=3_250_000),)
    forward = r.VisionPass(phase="forward", kernels=7.5, busy_ns=3_250_000, alone_ns=3_000_000, idle_ns=640_000, parts=parts)
    encoder = r.VisionEncoder(rank=1, device=0, passes=(forward,))
    said = write(structs.replace(rich(), vision=encoder), "text", Options(detail=2))
    assert "Inside the vision encoder · rank 1, device 0" in said
    (row,) = re.findall(r"^ *forward .*$", said[said.index("Inside the vision encoder") :][:600], re.MULTILINE)
    assert row.split()[1:] == ["3.250", "7.5", "3.000", "0.640"]
    assert "grouped gemm" in said
    assert "Inside the vision encoder" not in write(rich(), "text", Options(detail=2))


def test_parts_of_every_bar_add_up_to_its_step() -> None:
    for device in rich().budget:
        for step in device.per_step:
            assert sum(segment.of(step) for segment in words.SEGMENTS) == step.window_ns


def test_a_capture_without_steps_is_never_called_a_step() -> None:
    assert "per capture" in rendered("text", minimal())
    assert "per step" not in rendered("text", minimal())
    assert "per step" not in re.sub(r"<script>.*?</script>", "", rendered("html", minimal()), flags=re.DOTALL)


# --- sizes ------------------------------------------------------------------------------------------------------------


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
    assert "### Communication first" in report


# --- changes of settings ----------------------------------------------------------------------------------------------


KEY = "model.recompute_modules"


def change(op: str, to: str, now: str | None, *, choose: bool = False, framework: str = "megatron-bridge") -> Change:
    return msgspec.convert(
        {"framework": framework, "key": KEY, "from": now, "to": to, "op": op, "choose": choose}, Change
    )  # as it is read from a document


@for_each(
    "one, said, stays",
    (change("set", "flex", None), f"{KEY}: flex", False),
    (change("set", "flex", "alltoall"), f"{KEY}: alltoall → flex", False),
    (change("set", "flex", "flex"), f"{KEY}: flex, as it is", True),
    (change("set", "16 to 32", "24", choose=True), f"{KEY}: 24 → choose 16 to 32", False),
    (change("set", "out of the step", None, choose=True, framework="code"), f"{KEY}: out of the step", False),
    (change("add", "moe_act", None), f"add moe_act to {KEY}", False),
    (change("add", "[moe_act, mlp]", "[moe_act]"), f"add moe_act, mlp to {KEY} (now [moe_act])", False),
    (change("add", "moe_act", "[core_attn, moe_act]"), f"add moe_act to {KEY} (now [core_attn, moe_act]), as it is", True),
    (change("remove", "moe", "[moe, mlp]"), f"remove moe from {KEY} (now [moe, mlp])", False),
    (change("remove", "moe", "[moe_act]"), f"remove moe from {KEY} (now [moe_act]), as it is", True),
    (change("remove", "moe", None), f"remove moe from {KEY}", False),
    (change("unset", "", "uniform"), f"unset {KEY} (now uniform)", False),
    (change("unset", "null", None), f"unset {KEY}", False),
    (change("unset", "", "none"), f"unset {KEY} (now none)", True),
)
def test_a_change_reads_as_what_is_done(one: Change, said: str, stays: bool) -> None:
    assert story.change(one) == said
    assert story.stays(one) is stays


@for_each("format_", *PAGES)
def test_reports_show_what_is_done_and_what_is_disputed(format_: str) -> None:
    document = rich()
    finding = document.findings[0]
    fix = msgspec.structs.replace(
        finding.fixes[0],
        state="applicable",
        disputed="two guides name different defaults",
        changes=(change("add", "moe_act", "[mlp]"), change("unset", "null", "uniform")),
    )
    document = msgspec.structs.replace(document, findings=(msgspec.structs.replace(finding, fixes=(fix,)),))
    report = " ".join(write(document, format_, Options(width=200, detail=2)).split())
    assert "two guides name different defaults" in report
    assert {"html": "add <code>moe_act</code>"}.get(format_, f"add moe_act to {KEY} (now [mlp])") in report
    assert {"html": "<td>unset</td>"}.get(format_, f"unset {KEY} (now uniform)") in report


# --- what was not assessed --------------------------------------------------------------------------------------------


def not_assessed(rules: Iterable[NotAssessed]) -> list[tuple[str, ...]]:
    found = appendix.not_assessed(structs.replace(minimal(), not_assessed=tuple(rules)))
    return [row.cells for row in found.rows]


def of_ranks(key: str) -> NotAssessed:
    return NotAssessed(id=key, missing=(f"{key}_ns", "ranks_wait_ns"), how=SEVERAL_RANKS)


OTHER = NotAssessed(id="host-garbage-collection", missing=("gc_ns",), how="gc_ns: no range.")
SETTING = NotAssessed(id="capture-benchmark-only", missing=("job_a",), how="Pass the job file (--config): a.")


def test_rules_that_only_lack_other_ranks_or_settings_share_a_row_of_each_kind() -> None:
    rows = not_assessed([of_ranks("late"), OTHER, of_ranks("uneven")])
    assert rows == [
        ("host-garbage-collection", "gc_ns", "gc_ns: no range."),
        ("2 rules", "several ranks", f"{SEVERAL_RANKS} Rules: late, uneven."),
    ]
    assert not_assessed([of_ranks("late"), SETTING]) == [
        ("late", "late_ns, ranks_wait_ns", SEVERAL_RANKS),
        ("capture-benchmark-only", "job_a", "Pass the job file (--config): a."),
    ]
    also = structs.replace(SETTING, id="other", missing=("job_b",))
    rows = not_assessed([SETTING, of_ranks("late"), also, of_ranks("uneven")])
    assert [row[:2] for row in rows] == [("2 rules", "several ranks"), ("2 rules", "job settings")]


def test_rules_that_lack_the_same_for_the_same_reason_share_one_row_with_what_else_they_need() -> None:
    twin = structs.replace(OTHER, id="host-manual-gc-not-active")
    other = structs.replace(OTHER, id="host-other", how="gc_ns: no range. Capture it.")
    assert not_assessed([OTHER, other, twin]) == [
        ("2 rules", "gc_ns", "gc_ns: no range. Rules: host-garbage-collection, host-manual-gc-not-active."),
        ("host-other", "gc_ns", "gc_ns: no range. Capture it."),
    ]
    also = NotAssessed(id="stages", missing=("job_pipeline", "stage_ns"), how=f"{SEVERAL_RANKS} Pass the job file (--config): pipeline.")
    assert not_assessed([of_ranks("late"), also]) == [
        ("2 rules", "several ranks", f"{SEVERAL_RANKS} Some also need the job file (--config): pipeline. Rules: late, stages.")
    ]


def test_the_runs_of_a_baseline_are_held_against_its_median_where_both_are_known() -> None:
    def against(median: int | None, *steps: int | None) -> list[str]:
        rows = tuple(
            RunRow(run=f"r{place}", date="", commit=None, host_class=None, label="a", bytes=1, step_ns=ns) for place, ns in enumerate(steps)
        )
        one = StoredBaseline(name="main", fingerprint="0a1b", bytes=1, runs=rows, step_ns=median)
        page = write(Baselines(entries=(one,), detail=True), "markdown")
        return [line.split(" | ")[6] for line in page.splitlines() if line.startswith("| r") and "run" not in line]

    assert against(2_000_000, 2_200_000, None, 1_900_000) == ["+10.0 %", "–", "-5.0 %"]
    assert against(None, 2_200_000) == ["–"]
