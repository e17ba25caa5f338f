"""`diagnose whatif`: what it passes on, what it prints, and how it ends."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import diagnose.pipeline
from diagnose.cli import main
from diagnose.document.forecast import Forecast
from diagnose.errors import UsageError
from diagnose.knowledge.load import load_rulebook
from diagnose.reason.forecast.questions import known_fix
from diagnose.render import write
from tests.builders.documents import forecast
from tests.builders.stand_in import StandIn


def run(monkeypatch: pytest.MonkeyPatch, answer: Forecast, *words: str) -> tuple[int, dict[str, Any]]:
    stand_in = StandIn(answer)
    monkeypatch.setattr(diagnose.pipeline, "whatif", stand_in)
    return main(["whatif", *words]), {"inputs": stand_in.inputs, **stand_in.options}


def test_questions_reach_the_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "forecast.html"
    words = (
        "a.sqlite", "--fix", "COM-06", "--fix", "HOST-03", "--remove", "memory", "--scale", "bucket:router=2", "--link", "2x",
        "--no-wait",
    )  # fmt: skip
    code, options = run(monkeypatch, forecast(), *words, "--anyway", "-o", str(page))
    told = {name: options[name] for name in ("inputs", "fixes", "remove", "scale", "detach", "link", "no_wait", "plan", "anyway")}
    assert told == {
        "inputs": ("a.sqlite",), "fixes": ("COM-06", "HOST-03"), "remove": ("memory",), "scale": ("bucket:router=2",), "detach": (),
        "link": "2x", "no_wait": True, "plan": False, "anyway": True,
    }  # fmt: skip
    assert code == 0
    said = capsys.readouterr().out
    assert "about 65 ms with 2 changes (62 to 90)" in said
    assert len(said.splitlines()) <= 45  # one screen
    assert max(map(len, said.splitlines())) <= 100
    assert page.read_text(encoding="utf-8").count("data-live") >= 2  # both timelines


def test_json_is_the_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(monkeypatch, forecast(), "a.sqlite", "--format", "json")
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["schema"] == "forecast/1"
    assert told["step_ns"] == {"now": 100_000_000, "low": 62_000_000, "likely": 65_000_000, "high": 90_000_000}
    assert sum(row["delta_ns"] for row in told["categories"]) == told["sum_ns"]["likely"] - told["sum_ns"]["now"]


def test_without_an_answer_it_ends_as_input_that_tells_too_little(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(monkeypatch, forecast(told=False), "a.sqlite", "--fix", "CMP-05")
    captured = capsys.readouterr()
    assert code == 3
    assert "CMP-05: Nothing ran in these steps that it would change." in captured.out
    assert "There is no forecast." in captured.err


def test_a_fix_in_the_place_of_a_trace_is_told_how_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(monkeypatch, forecast(), "a.sqlite", "HOST-03")
    assert code != 0
    assert "HOST-03 is no trace. Nothing was forecast. Name a fix with --fix HOST-03." in capsys.readouterr().err


def test_a_change_that_costs_a_little_is_no_negative_saving(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    span = structs.replace(forecast().step_ns, now=100_000_000, likely=100_004_000, high=101_000_000)
    run(monkeypatch, structs.replace(forecast(), step_ns=span), "a.sqlite")
    assert "< +0.1 % of the step" in capsys.readouterr().out


def test_a_doubt_is_told_beside_the_forecast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, structs.replace(forecast(), doubt="Low certainty: nobody tried."), "a.sqlite")
    said = capsys.readouterr().out
    assert said.index("with 2 changes (62 to 90).") < said.index("Low certainty: nobody tried.") < said.index("After each change")


def test_sources_and_assumptions_are_told_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, forecast(), "a.sqlite")
    brief = capsys.readouterr().out.partition("What it rests on\n")[2]
    assert brief.splitlines()[:3] == [
        " measured: durations",
        " assumed: turns",
        " assumed: 1 thing of every replay; -v shows them, and all sources",
    ]
    for words in (["-v"], ["--section", "rests"]):
        run(monkeypatch, forecast(), "a.sqlite", *words)
        whole = capsys.readouterr().out.partition("What it rests on\n")[2]
        assert whole.splitlines()[:3] == [
            " measured: durations [this trace]",
            " assumed: turns [a paper]",
            " assumed: the CPU does the same work",
        ]


def test_help_lists_questions_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--help"]) == 0
    said = capsys.readouterr().out
    places = [said.index(f"\n{heading}:\n") for heading in ("Usual", "The change", "Job file", "Reading traces", "Output")]
    assert places == sorted(places)
    assert places[0] < said.index("--fix ID") < places[1] < said.index("--link 2x") < places[2]


def test_a_fix_that_there_is_not() -> None:
    book = load_rulebook()
    assert known_fix("com-06", book) == "COM-06"
    with pytest.raises(UsageError, match=r"COM-066: no fix has this id. Did you mean COM-06\?"):
        known_fix("COM-066", book)


def test_a_page_has_the_settings_to_copy_and_no_figure_is_finer_than_the_range() -> None:
    """The range is 28 ms wide: three decimals of a part would be invented."""
    page = write(forecast(), "html")
    assert re.search(r"<pre>k: true</pre><button [^>]*class=\"copy\"", page)
    assert page.count(">settings<") == 0
    parts = write(forecast(), "text").partition("Where it is won")[2].partition("Each moment")[0]
    assert re.findall(r"\d\.\d+", parts)
    assert [one for one in re.findall(r"\d\.(\d+)", parts) if len(one) > 1] == []
