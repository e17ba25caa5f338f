"""Every output of a comparison and of a bisection, on ones that hold everything, ones that hold almost nothing, and one for each result."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from diagnose import cli
from diagnose.document import bisection as b
from diagnose.document import comparison as c
from diagnose.reason.compare.outcome import signed, signed_share
from diagnose.render import Options, units, write
from diagnose.render import report as r
from diagnose.render.reports.bisection import story as bisection_story
from diagnose.render.reports.bisection import tables as bisection_tables
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison.report import LOOK
from diagnose.render.reports.comparison.report import report as built
from diagnose.render.writers.markdown.page import MOST_BYTES
from tests.builders import bisection
from tests.builders.cases import for_each
from tests.builders.comparison import SAMPLES, anyway, huge, improvement, minimal, refused, rich
from tests.render.reading import PAGES, plain

Sample = Callable[[], c.Comparison]


def rendered(format_: str, document: c.Comparison | b.Bisection, **options: object) -> str:
    return write(document, format_, Options(**{"detail": r.EVERYTHING, **options}))  # type: ignore[arg-type]


# --- what is said -----------------------------------------------------------------------------------------------------


@for_each("format_", *PAGES)
@for_each("sample", *SAMPLES.values())
def test_the_outcome_and_its_reasons_come_first(format_: str, sample: Sample) -> None:
    document, report = sample(), plain(rendered(format_, sample()))
    body = report if format_ != "html" else report[report.index("<body>") :]
    assert document.outcome.sentence in plain(body)
    heading = body.upper().index(story.RESULT[document.outcome.result].upper())
    assert heading < body.index(document.outcome.sentence)
    assert body.index(document.outcome.sentence) < body.index("May they be compared?")
    assert body.index("May they be compared?") < body.index("What changed around the code") < body.index("What changed in the job file")


@for_each("sample", *SAMPLES.values())
@for_each("width", 80, 100)
def test_a_terminal_gets_the_answer_on_one_screen_and_how_to_see_the_rest(sample: Sample, width: int) -> None:
    document, whole = sample(), rendered("text", sample(), width=width)
    screen = rendered("text", document, width=width, detail=r.ANSWER)
    assert len(screen.splitlines()) <= 60  # half of it lists that are full to the brim
    assert screen.splitlines()[-1].startswith(" more: -v")
    assert document.outcome.sentence in plain(screen)
    if document.gate is not None:
        assert document.gate.sentence in plain(screen)
    assert "What is compared" in whole
    assert "more: -v" not in whole
    assert "with -v" not in whole


def test_the_screen_names_what_moved_most_and_what_came_or_got_worse() -> None:
    """Of lists it shows the beginning and says how much more there is; what went, or is as before, waits for -v."""
    screen = rendered("text", rich(), detail=r.ANSWER)
    assert "within noise" in screen
    assert all(row.texts["#delta ms"] in screen for row in tables.kernels(rich()).rows[:4])
    assert f"… and {len(rich().kernels) - 4} more with -v" in screen
    loud = [one for one in story.ordered_findings(rich()) if one.state in ("new", "worse")]
    assert all(one.id in screen for one in loud[:4])
    assert not any(one.id in screen for one in rich().findings if one.state not in ("new", "worse"))
    (long,) = (block for block in built(many_worse()).blocks if isinstance(block.content, r.Findings))
    assert isinstance(long.content, r.Findings)
    assert f"… and {len(long.content.findings) - 4} more with -v" in rendered("text", many_worse(), detail=r.ANSWER)


def many_worse() -> c.Comparison:
    """A comparison in which six findings got worse."""
    (worse, *_) = (one for one in rich().findings if one.state == "worse")
    return structs.replace(rich(), findings=tuple(structs.replace(worse, id=f"finding-{number}") for number in range(6)))


@for_each("runs, said", (1, ""), (2, " of all 2 runs"), (3, " of all 3 runs"))
def test_a_step_time_of_several_runs_says_so(runs: int, said: str) -> None:
    side = rich().base
    several = tuple(c.RunRead(label=f"{number}.sqlite", value=1.0, n=1) for number in range(runs))
    told = story.step(structs.replace(side, runs=several), "step")
    assert f"(median of {side.steps.n}{said}; " in told


def test_how_the_delta_adds_up_is_told_beside_it() -> None:
    found = rich()
    assert found.delta is not None
    said = f"their deltas add up to {units.signed_ms(found.delta.delta_ns)} ms, that of the median step, exactly"
    assert said in tables.delta(found, moved_only=False).note
    assert story.reconciled(refused()) == ""


def test_the_table_of_the_delta_adds_up_whether_short_or_whole() -> None:
    document = rich()
    assert document.delta is not None
    for moved_only in (False, True):
        rows = tables.delta(document, moved_only=moved_only).rows
        told = [float(row.cells[3]) for row in rows if row.indent == 1]
        assert sum(told) == pytest.approx(document.delta.delta_ns / 1e6, abs=0.0006 * len(told))
    assert [row.cells[5] for row in tables.delta(document, moved_only=True).rows[1:]] == ["moved"] * 4 + [""]


def test_what_anyway_and_a_range_of_commits_mean_is_said() -> None:
    assert "because --anyway asked for them" in plain(rendered("text", anyway()))
    assert "It is one of 000700070007, 000800080008, 000900090009." in plain(rendered("text", bisection.range_()))


@for_each("format_", *PAGES)
def test_what_is_not_known_is_never_nought(format_: str) -> None:
    report = plain(rendered(format_, minimal()))
    assert "ot known: a document on one side does not hold the split of its steps" in report
    assert "a single step on a side: the noise is assumed, not measured" in report
    effect = {row.cells[0]: row.cells[1] for row in tables.effect(minimal()).rows}
    assert effect["95 % interval of it"] == "not measured"
    assert (effect["found in four of five such comparisons"], effect["probability of as much by noise"]) == ("unknown", "not possible")
    assert tables.walls(rich()).rows[2].cells == ("CPU overhead", "–", "12.940", "–")


def test_figures_per_token_are_in_nanoseconds_per_token() -> None:
    lines = dict(story.effect_lines(improvement()))
    assert lines["step time, median"] == "1,842.7 ns per token → 1,765.3 ns per token"
    assert lines["difference of levels"] == "-77.4 ns per token (-4.20 %)"
    assert lines["useful tokens"] == "65,536 → 131,072 per step, from the job files"


@for_each(
    "amount, unit, said",
    (None, "ns", "not measured"), (1_500_000.0, "ns", "+1.500 ms"), (-1_500_000.0, "ns", "-1.500 ms"), (0.0, "ns", "0.000 ms"),
    (100.0, "ns", "0.000 ms"), (-12.0, "count", "-12"), (0.034, "share", "+3.40 %"), (2048.0, "bytes", "+2.0 KiB"),
    (3.0, "GB/s", "+3 GB/s"),
)  # fmt: skip
def test_a_difference_has_its_sign_and_its_unit(amount: float | None, unit: str, said: str) -> None:
    assert story.signed(amount, unit) == said


def test_sentences_have_the_sign_of_the_tables() -> None:
    """One character for less: what is searched for in a heading is found in a table."""
    assert (signed(-1_500_000.0, "ns"), signed_share(-0.031)) == ("-1.50 ms", "-3.1 %")


@for_each("share, said", (None, "–"), (0.0, "0.0 %"), (0.031, "+3.1 %"), (-0.031, "-3.1 %"), (0.00001, "< +0.1 %"), (-0.00001, "> -0.1 %"))
def test_a_relative_change_is_never_shown_as_none(share: float | None, said: str) -> None:
    assert units.signed_percent(share) == said


def test_a_change_in_whole_percent_has_a_decimal_where_it_would_be_none() -> None:
    assert [units.signed_percent(share, 0) for share in (-0.12, -0.002, -0.00001)] == ["-12 %", "-0.2 %", "> -0.1 %"]


@for_each(
    "name, said",
    ("step_time", "step time"), ("kernels", "launches"), ("transport", "exposed communication"),
    ("compute:expert_gemm", "compute: expert GEMM"), ("bucket:dense_gemm", "bucket dense GEMM"),
    ("blocking_dispatch", "blocking dispatch"),
)  # fmt: skip
def test_every_metric_has_a_name(name: str, said: str) -> None:
    assert story.metric(name) == said


def test_every_word_of_the_vocabulary_is_spoken() -> None:
    def members(of: object) -> set[str]:
        return set(of.__args__)  # type: ignore[attr-defined]

    assert set(story.RESULT) == set(LOOK) == members(c.Result)
    assert set(story.BASIS) == members(c.Basis)
    assert set(story.KERNEL) == members(c.KernelChangeKind)
    assert set(story.FINDING) == set(story.FINDING_ORDER) == members(c.FindingState)
    assert set(story.MISMATCH) == members(c.MismatchState)
    assert set(story.WHY) == members(c.Why)


@for_each(
    "met, said", (False, "Gate not met · Median step time unchanged"), (True, "Gate met · No change"), (None, "Gate not judged · No change")
)
def test_a_gate_that_long_steps_fail_stands_beside_no_contradiction(met: bool | None, said: str) -> None:
    document = rich()
    assert document.gate is not None
    outcome = structs.replace(document.outcome, result="no_change")
    calm = structs.replace(document, outcome=outcome, gate=structs.replace(document.gate, met=met))
    assert f"## {said}" in rendered("markdown", calm)


# --- hostile texts and sizes ------------------------------------------------------------------------------------------


@for_each("width", 60, 80, 100, 140)
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    report = rendered("text", rich(), width=width)
    assert not re.search(r"\d…", report)


def test_markdown_of_a_huge_comparison_stays_below_sixty_kilobytes_and_says_what_is_missing() -> None:
    report = rendered("markdown", huge())
    assert len(report.encode("utf-8")) <= MOST_BYTES
    assert "Left out to stay below 60 KB" in report
    assert "## Gate not met · Regression" in report
    assert "2980 more rows in the JSON and HTML outputs" in report
    assert "more in the JSON" in report
    assert report.count("<details>") == report.count("</details>")


def test_html_of_a_huge_comparison_is_cut_with_what_is_left_out() -> None:
    report = re.sub(r"<script>.*?</script>", "", rendered("html", huge()), flags=re.DOTALL)
    assert "2800 more rows in the JSON output." in report
    assert len(report) < 12_000_000


# --- a bisection ------------------------------------------------------------------------------------------------------


@for_each("sample", *bisection.SAMPLES.values())
@for_each("width", 80, 100)
def test_a_terminal_gets_the_steps_and_what_moved_most_and_how_to_see_the_rest(sample: Callable[[], b.Bisection], width: int) -> None:
    document = sample()
    screen, whole = (rendered("text", document, width=width, detail=detail) for detail in (r.ANSWER, r.EVERYTHING))
    assert len(screen.splitlines()) <= 80  # most of it lists that are full to the brim
    assert screen.splitlines()[-1].startswith(" more: -v")
    assert document.sentence in plain(screen)
    assert "What was measured" in screen
    assert ("All runs" in whole, "All runs" in screen) == (True, False)


def test_of_many_candidates_a_screen_shows_the_ends_and_those_next_to_the_step() -> None:
    """Of forty the sixteenth is the step: the first, three on either side of it, and the last."""
    (measured, *_) = (one for one in bisection.rich().candidates if one.state != "untested")
    labels = [f"{number:012d}" for number in range(40)]
    (culprit, *_) = bisection.rich().culprits
    document = structs.replace(
        bisection.rich(),
        candidates=tuple(structs.replace(measured, label=label) for label in labels),
        culprits=(structs.replace(culprit, label=labels[16], among=()),),
    )
    table = bisection_tables.around_steps(bisection_tables.candidates(document))
    assert table is not None
    assert [row.cells[0] for row in table.rows] == [bisection_story.short(labels[place]) for place in (0, *range(13, 20), 39)]
    assert "31 candidates further away left out." in table.note
    assert bisection_tables.around_steps(bisection_tables.candidates(bisection.rich())) is None


@for_each("format_", *PAGES)
@for_each("sample", *bisection.SAMPLES.values())
def test_the_result_comes_first(format_: str, sample: Callable[[], b.Bisection]) -> None:
    document, report = sample(), rendered(format_, sample())
    body = plain(report if format_ != "html" else report[report.index("<body>") :])
    assert body.upper().index(bisection_story.RESULT[document.result].upper()) < body.index(document.sentence)
    assert body.index(document.sentence) < body.index("What was measured")
    assert ("does not go one way" in body) == (not document.monotone)


@for_each("format_", *PAGES)
def test_what_is_not_known_of_a_bisection_is_never_nought(format_: str) -> None:
    report = plain(rendered(format_, bisection.minimal()))
    assert "not measured" in report
    assert "not told" in report
    assert "0 ms" not in report
    assert "noise between captures not known" in report


def test_a_huge_one_is_still_a_page() -> None:
    page = rendered("html", bisection.huge())
    assert page.count("<g><title>") == 3000
    assert "more rows in the JSON output" in page


# --- `diagnose render` ------------------------------------------------------------------------------------------------


def test_a_saved_one_is_shown_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", bisection.rich()))
    outputs = [tmp_path / f"x.{ending}" for ending in ("html", "md", "txt", "json")]
    assert cli.main(["render", str(saved), "--format", "markdown", *(part for path in outputs for part in ("-o", str(path)))]) == 0
    assert capsys.readouterr().out == rendered("markdown", bisection.rich(), width=100)
    assert outputs[3].read_bytes() == saved.read_bytes()
    assert outputs[0].read_text() == rendered("html", bisection.rich())


def test_formats_that_it_does_not_have_are_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", bisection.rich()))
    for arguments in (["--format", "sarif"], ["-o", str(tmp_path / "x.xml"), "-o", str(tmp_path / "y.md")], ["--fail-on", "high"]):
        assert cli.main(["render", str(saved), *arguments]) == 2
        assert "is a bisection, which has no" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    newer = tmp_path / "newer.json"
    newer.write_text(saved.read_text().replace("bisect/2", "bisect/3"))
    assert cli.main(["render", str(newer)]) == 3
    assert "a newer version of this program wrote" in capsys.readouterr().err


@for_each("format_", "text", "markdown")
def test_communication_that_did_not_change_is_not_said_to_be_absent(format_: str) -> None:
    """The document lists exchanges whose time or overlap changed: an empty list does not mean that there was none."""
    text = rendered(format_, structs.replace(rich(), overlap=(), settings=(), notes=()))
    assert "no communication whose time or overlap changed" in text
    assert "no communication on either side" not in text
    assert "or no job file" not in text
