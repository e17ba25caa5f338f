"""Documents and traces in a program or a notebook."""

from pathlib import Path

import pytest

import diagnose
from diagnose.errors import InputError, JobFileError, OutputError, UsageError
from tests.builders.comparison import rich as compared
from tests.builders.diagnosis import minimal, rich
from tests.conftest import ROOT


def test_a_document_is_written_out_by_its_own_methods(tmp_path: Path) -> None:
    document = rich()
    assert document.to_html().startswith("<!doctype html>")
    assert document.to_markdown().startswith("**")
    assert diagnose.Diagnosis.__name__ in repr(document)
    assert "\n" not in repr(document)
    assert len(repr(document)) < 200
    assert document._repr_html_().startswith("<pre>")
    assert "<script" not in document._repr_html_()
    assert document.save(str(tmp_path / "x.json")).read_text(encoding="utf-8") == document.to_json()
    with pytest.raises(OutputError):
        document.save(tmp_path / "x.json")
    with pytest.raises(UsageError, match=r"names no format.*\.html"):
        document.save(tmp_path / "x.docx")
    assert len(repr(minimal())) < 200
    assert len(repr(compared())) < 200
    assert compared().to_markdown()


def test_paths_are_texts_or_paths_and_one_trace_needs_no_list(tmp_path: Path) -> None:
    with pytest.raises(JobFileError):
        diagnose.diagnose("x.sqlite", config=str(tmp_path / "nowhere.yaml"))
    with pytest.raises(InputError, match="does not exist"):
        diagnose.diagnose(str(tmp_path / "x.sqlite"))
    saved = minimal().save(tmp_path / "x.json")
    found = diagnose.compare(str(saved), minimal(), anyway=True)
    assert len(repr(found)) < 300
    assert (found.base.label, found.new.label) == (saved.name, "new"), "a document that names no file is called by its side"


def test_load_reads_a_trace_and_says_in_a_line_what_it_holds() -> None:
    trace = diagnose.load(ROOT / "fixtures" / "traces" / "vision.pt.trace.json.gz")
    assert isinstance(trace, diagnose.Trace)
    assert repr(trace).startswith("<Trace vision.pt.trace.json.gz (PyTorch profiler): ")
    assert (ROOT / "diagnose" / "py.typed").is_file()
