"""`--section`: which parts can be named, and what is said of one that there is not."""

from pathlib import Path

import pytest

from diagnose.cli import main
from diagnose.commands.output import _NUMBER
from diagnose.document.encoding import encode
from diagnose.document.files import read
from diagnose.render import kind_of, part_names, section_names
from tests.builders import documents
from tests.builders.cases import for_each
from tests.builders.diagnosis import rich

ROOT = Path(__file__).parents[2]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "d.json"
    path.write_bytes(encode(rich()))
    return path


@for_each(
    "words, kind",
    (["run.json"], "diagnosis"),
    (["run", "--dry-run"], "diagnosis"),
    (["whatif", "run.json"], "forecast"),
    (["compare", "run.json", "new.json"], "comparison"),
    (["gate", "run.json", "new.json"], "comparison"),
    (["bisect", "--traces", "*.json"], "bisection"),
    (["render", "saved.json"], "diagnosis"),
)
def test_a_part_that_no_report_has_is_refused_before_any_work(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved.json").write_bytes(encode(rich()))
    for name in ("run.json", "new.json"):
        (tmp_path / name).write_text("what would be an error if it were read")
    assert main([*words, "--section", "nix", *(["--", "true"] if words[0] == "run" else [])]) == 2
    out, err = capsys.readouterr()
    names = ", ".join(part_names(kind))
    assert (out, err) == ("", f"error: --section nix: the report of a {kind} has no such part. Nothing was done. Use one of {names}.\n")


def test_a_part_that_this_report_has_not_is_told_after_the_others(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(saved), "--section", "budget", "--section", "vision-encoder"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("Budget ·")
    assert "--section vision-encoder: this report has no such part. All else was written." in err


def test_of_a_part_that_this_report_has_not_alone_nothing_is_printed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(saved), "--section", "vision-encoder"]) == 2
    assert capsys.readouterr().out == ""


def test_every_part_of_a_report_can_be_named() -> None:
    gallery = (read(path) for path in sorted((ROOT / "reports" / "gallery").glob("*.json")))
    made = [*(make() for make in (*documents.DOCUMENTS.values(), *documents.HOSTILE.values())), *gallery]
    saved = [document for document in made if kind_of(document) in {"diagnosis", "comparison", "bisection", "forecast", "history"}]
    unlisted = {
        (kind_of(one), name) for one in saved for name in section_names(one) if _NUMBER.sub("", name) not in part_names(kind_of(one))
    }
    assert unlisted == set()
    seen = {(kind_of(one), name) for one in saved for name in section_names(one)}
    listed = {(kind, name) for kind, _ in seen for name in part_names(kind)}
    assert {name for _, name in listed - seen} == {
        *("inside-vision", "vision-encoder", "job-problems"),  # of images, and of a job file with a fault
        *("repeat", "to-repeat-it"),  # of a bisection that ran commands
        *("gradual", "moved-gradual"),  # of a history that crept
        "run",  # of a forecast for a run that is known
    }
