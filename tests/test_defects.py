"""Defects that a first reader of the reports met, each with the tests that hold it.

| | the reader met | held by |
|---|---|---|
| D1 | the first advice loses what it needs | `test_relevance`, and below in every output |
| D2 | compare and bisect answer differently on captures without steps | `test_step` |
| D3 | a mistyped verb or path is swallowed | `test_cli` |
| D4 | "dominates" is said of the smaller share, the cause comes second | `test_walls` |
| D5 | the answer is hidden among 590 lines | `test_answer` |
| D6 | a verdict from nothing | `test_walls`, `test_units` |
| D7 | convolution and quantisation have no bucket | below |
| D8 | "compute" leads nowhere | below |
| D9 | Markdown is no comment | `test_answer` |
| D10 | a page does not say which run it is of | below |
| D11 | what is printed can't be looked up | `test_words` |
| D12 | the Python API is rough | `test_notebook` |
| D13 | progress shows no progress | `test_progress` |
| D14 | a narrow page overflows | `test_pages` |
| D15 | one colour has two meanings, bars are left out | `test_builders` |
| D16 | a cut trace is not said to be cut | below |
| D17 | a file that begins with a bracket is taken for a trace | `test_cli` |
| D18 | a broken sentence | below |
| D19 | flags are written as YAML | `test_answer` |
| D20 | small: the job file's error names an option | below |
"""

import ast
from pathlib import Path

import msgspec
import pytest

from diagnose.cli import main
from diagnose.document.diagnosis import PlanSetting, PlanStep
from diagnose.errors import InputError
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.load.readers import load
from diagnose.render import Options, write
from tests.builders.diagnosis import rich

TESTS = Path(__file__).parent
HELD = {
    "D1": "reason/test_relevance.py::test_what_an_applicable_fix_still_needs_is_told",
    "D2": "bisect/test_step.py::test_captures_without_steps_are_brought_to_the_same_work_or_refused",
    "D3": "commands/test_cli.py::test_what_is_mistyped_is_an_error",
    "D3, paths": "commands/test_cli.py::test_a_named_path_that_does_not_exist_is_an_error_even_beside_good_ones",
    "D4": "reason/test_walls.py::test_where_the_step_goes_and_what_to_attack_are_two_answers",
    "D4, cause": "reason/test_walls.py::test_the_cause_goes_before_the_wall",
    "D5": "render/test_answer.py::test_the_answer_fits_on_a_screen",
    "D6": "reason/test_walls.py::test_below_the_floor_of_evidence_there_is_no_verdict",
    "D6, units": "render/test_answer.py::test_times_are_told_in_the_unit_that_suits_them",
    "D9": "render/test_answer.py::test_the_answer_to_every_scenario_fits_on_a_screen",
    "D11": "knowledge/test_words.py::test_what_is_printed_is_explained",
    "D12": "document/test_notebook.py::test_paths_are_texts_or_paths_and_one_trace_needs_no_list",
    "D13": "load/test_progress.py::test_how_far_reading_is_is_said_with_percent_and_time_left",
    "D14": "browser/test_pages.py::test_figures_are_drawn_and_nothing_overflows",
    "D15": "render/figures/test_builders.py::test_one_colour_of_the_timeline_has_one_meaning",
    "D15, bars": "render/figures/test_builders.py::test_the_timeline_has_every_operation_and_gap_in_its_lane",
    "D17": "commands/test_cli.py::test_a_file_that_merely_begins_with_a_bracket_is_no_trace",
    "D19": "render/test_answer.py::test_a_setting_is_written_as_it_is_typed",
}


def functions(file: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("defect", HELD)
def test_each_defect_has_its_test(defect: str) -> None:
    file, _, name = HELD[defect].partition("::")
    assert name in functions(file)


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_what_the_first_advice_needs_stands_beside_it(format_: str) -> None:
    """D1: an applicable fix is never told without what has to be checked first."""
    document = rich()
    needs = "Needs something 2.6 or newer (version not in the job file)."
    step = PlanStep(
        fix="COM-06",
        finding=document.findings[0].id,
        title="overlap it",
        state="applicable",
        bound_ns=1_000_000,
        speedup_ceiling=1.1,
        changes=(PlanSetting(framework="megatron-lm", key="--overlap", from_=None, language="sh", text="--overlap"),),
        needs=(needs,),
        published=(),
        cost="none",
    )
    shown = write(msgspec.structs.replace(document, plan=(step,)), format_, Options(width=200))
    assert needs in " ".join(shown.replace("\\", "").replace("\u00a0", " ").split())


def test_convolution_and_quantisation_have_buckets() -> None:
    """D7."""
    assert {"convolution", "quantize"} <= set(load_rulebook().buckets)


def test_a_compute_bound_run_has_rules_that_say_what_next() -> None:
    """D8: rules of the compute wall, with fixes, for GEMMs, waves, casts and the costliest kernel."""
    rules = load_rulebook().rules
    asked = (
        "compute-costliest-kernel", "compute-low-fill", "compute-casts", "compute-bf16-gemms", "compute-fp32-products",
        "compute-unfused-pointwise",
    )  # fmt: skip
    assert [name for name in asked if rules[name].wall != "compute" or not rules[name].fixes] == []


def test_a_page_is_called_by_its_run() -> None:
    """D10: ten attachments can be told apart by their titles."""
    known = rich().identity
    page = write(rich(), "html", Options())
    title = page[page.index("<title>") : page.index("</title>")]
    assert known is None or (known.file or "") in title
    other = msgspec.structs.replace(rich(), identity=msgspec.structs.replace(known, file="other.sqlite") if known else None)
    assert known is None or "other.sqlite" in write(other, "html", Options()).partition("</title>")[0]


def test_a_cut_trace_is_said_to_be_cut(tmp_path: Path) -> None:
    """D16: and nobody is sent to capture with CUDA tracing on."""
    path = tmp_path / "cut.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %d, "dur": 1}'
    path.write_text(
        '{"schemaVersion": 1, "traceEvents": [' + ",".join(event % time for time in range(50)) + ',{"ph": "X", "cat', encoding="utf-8"
    )
    with pytest.raises(InputError) as error:
        load(path)
    assert "is cut off" in str(error.value)
    assert "CUDA tracing" not in str(error.value)


def test_reasons_are_whole_clauses() -> None:
    """D18: what is joined by semicolons begins with no relative clause."""
    said = [one.say for one in load_rulebook().walls.certainty]
    assert said
    assert [text for text in said if text.startswith(("which ", "that ", "because "))] == []


def test_the_error_of_a_job_file_names_no_option_of_another_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D20."""
    assert main(["check", str(tmp_path / "nope.yaml")]) == 2
    assert "--config" not in capsys.readouterr().err
