"""The gallery is what the program says today, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.cli import main
from diagnose.diagnosis import decode
from fixtures import gallery, sample, scenario
from fixtures.gallery import CHECKED_IN, FOLDER, README
from tests.document_parts import check_parts
from tests.same_text import check_same

SHOWN = gallery.shown()
MEANT = "the program's output has changed; if that is meant: make gallery"


@pytest.mark.parametrize("name", SHOWN)
def test_an_exhibit_is_what_the_program_says(name: str) -> None:
    fresh = gallery.exhibit(name)
    for ending in CHECKED_IN:
        kept = (FOLDER / f"{name}{ending}").read_bytes().decode("utf-8")
        check_same(f"{name}{ending}", kept, fresh.files[ending], MEANT)
    assert fresh.row in (FOLDER / README).read_text(encoding="utf-8").splitlines(keepends=True), f"{README}: {MEANT}"


@pytest.mark.parametrize("name", SHOWN)
def test_the_parts_of_an_exhibit_agree(name: str) -> None:
    found = decode((FOLDER / f"{name}.json").read_bytes())
    check_parts(found)
    assert found.kernels
    assert {item.kind for item in found.environment} >= {"version", "hardware", "clock"}
    assert found.job is not None
    assert all(row.line is not None for row in found.job.settings if "," not in row.key)


def test_the_gallery_holds_all_exhibits_and_nothing_else() -> None:
    kept = {path.name for path in FOLDER.iterdir() if path.suffix != ".html"}
    assert kept == {README, *(f"{name}{ending}" for name in SHOWN for ending in CHECKED_IN)}, MEANT
    text = (FOLDER / README).read_text(encoding="utf-8")
    rows = {name: next(row for row in text.splitlines(keepends=True) if f"({name}.md)" in row) for name in SHOWN}
    check_same(README, text, gallery.readme(rows), MEANT)


def test_the_bytes_are_those_of_the_command_line(tmp_path: Path) -> None:
    """One exhibit as a user would make it, from the files of `python -m fixtures make`."""
    name = SHOWN[0]
    one = scenario.load(name)
    folder = tmp_path / name
    traces = [str(path) for path in sample.export(one, tmp_path, ("nsys",)) if path.suffix == ".sqlite"]
    outputs = [folder / f"out{ending}" for ending in (*CHECKED_IN, ".html")]
    words = [word for path in outputs for word in ("-o", str(path))]
    assert main([*traces, "--config", str(folder / "job.yaml"), "--quiet", *words]) == 0
    fresh = gallery.exhibit(name, html=True)
    assert [path.suffix for path in outputs] == list(fresh.files)
    for path in outputs:
        check_same(path.name, path.read_bytes().decode("utf-8"), fresh.files[path.suffix], "another text than gallery.exhibit's")
