"""Every output of a bisection, on one that holds everything, one with several steps, one for each other result, and a huge one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose import cli
from diagnose.document import bisection as b
from diagnose.render import Options, write
from diagnose.render.reports.bisection import story
from tests.builders.bisection import SAMPLES, huge, minimal, range_, rich, several
from tests.render.reading import plain

PEOPLE = ["text", "markdown", "html"]
Sample = Callable[[], b.Bisection]


def rendered(format_: str, document: b.Bisection, **options: object) -> str:
    return write(document, format_, Options(**options))  # type: ignore[arg-type]


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", PEOPLE)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_result_comes_first(format_: str, sample: Sample) -> None:
    document, report = sample(), rendered(format_, sample())
    body = plain(report if format_ != "html" else report[report.index("<body>") :])
    assert body.upper().index(story.RESULT[document.result].upper()) < body.index(document.sentence)
    assert body.index(document.sentence) < body.index("What was measured")
    assert ("does not go one way" in body) == (not document.monotone)


@pytest.mark.parametrize("format_", PEOPLE)
def test_the_commit_its_message_and_what_moved(format_: str) -> None:
    report = plain(rendered(format_, rich(), width=120))
    for said in (
        "Commit 000900090009",
        "120.100 ms → 157.900 ms (+31.5 %)",
        "Use the new grouped GEMM",
        "Refs: #4711",
        "Transport with nothing beside it took 29.565 ms more",
        "Where the difference comes from",
        "Kernels that changed",
        "NCCL_P2P_NET_CHUNKSIZE",
        "Overlap of transport",
        "8 other candidates did not have to be measured",
        "it holds no GPU work",
        "exit code 2",
        "Two captures of one commit contradict each other",
        "First parents from good to bad.",
        "All runs",
    ):
        assert said in report, said


@pytest.mark.parametrize("format_", PEOPLE)
def test_several_steps_and_stretches(format_: str) -> None:
    report = plain(rendered(format_, several()))
    titles = [
        f"Item {several().culprits[0].label}",
        f"One of 3 items up to {several().culprits[1].label}",
        f"Item {several().culprits[2].label}",
    ]
    places = [report.index(title) for title in titles]
    assert places == sorted(places)
    assert f"It is one of {', '.join((*several().culprits[1].among, several().culprits[1].label))}." in report
    assert "It is one of 000700070007, 000800080008, 000900090009." in plain(rendered(format_, range_()))


@pytest.mark.parametrize("format_", PEOPLE)
def test_what_is_not_known_is_never_nought(format_: str) -> None:
    report = plain(rendered(format_, minimal()))
    assert "not measured" in report
    assert "not told" in report
    assert "0 ms" not in report
    assert "noise between captures not known" in report


# --- HTML -------------------------------------------------------------------------------------------------------------


def test_a_huge_one_is_still_a_page() -> None:
    page = rendered("html", huge())
    assert page.count("<g><title>") == 3000
    assert "more rows in the JSON output" in page


# --- `diagnose render` ------------------------------------------------------------------------------------------------


def test_a_saved_one_is_shown_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", rich()))
    outputs = [tmp_path / f"x.{ending}" for ending in ("html", "md", "txt", "json")]
    assert cli.main(["render", str(saved), "--format", "markdown", *(part for path in outputs for part in ("-o", str(path)))]) == 0
    assert capsys.readouterr().out == rendered("markdown", rich(), width=100)
    assert outputs[3].read_bytes() == saved.read_bytes()
    assert outputs[0].read_text() == rendered("html", rich())


def test_formats_that_it_does_not_have_are_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "found.json"
    saved.write_text(rendered("json", rich()))
    for arguments in (["--format", "sarif"], ["-o", str(tmp_path / "x.xml"), "-o", str(tmp_path / "y.md")], ["--fail-on", "high"]):
        assert cli.main(["render", str(saved), *arguments]) == 2
        assert "is a bisection, which has no" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    newer = tmp_path / "newer.json"
    newer.write_text(saved.read_text().replace("bisect/1", "bisect/2"))
    assert cli.main(["render", str(newer)]) == 3
    assert "a newer version of this program wrote" in capsys.readouterr().err
