"""What is made from the program's own files is kept beside Python's bytecode, and used for the same text and maker alone."""

import sys
from pathlib import Path

import pytest

from diagnose.knowledge import compiled, data, strict_yaml
from diagnose.knowledge.compiled import Compiled


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rule file in a folder of its own, whose bytecode would lie in `__pycache__` beside it."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "walls.yaml"
    file.write_bytes(b"a: 1\nb: [x, 2.5, null]\n")
    return file


def place(file: Path, text: bytes = b"text", code: str = __file__, library: str = "1.0") -> Compiled:
    return compiled.beside(file, text, code=code, library=library)


def kept_files(file: Path) -> list[Path]:
    return sorted((file.parent / "__pycache__").glob("*"))


def test_what_was_kept_is_found_for_the_same_text_and_maker_alone(beside: Path, tmp_path: Path) -> None:
    assert place(beside).read() is None
    place(beside).write(b"made")
    assert place(beside).read() == b"made"
    assert [one.read() for one in (place(beside, text=b"other"), place(beside, library="1.1"))] == [None, None]
    code = tmp_path / "maker.py"
    code.write_text("1", encoding="utf-8")
    place(beside, code=str(code)).write(b"by the first")
    code.write_text("12", encoding="utf-8")
    assert place(beside, code=str(code)).read() is None
    place(beside).write(b"")
    assert place(beside).read() == b""


def test_nothing_is_left_but_the_last(beside: Path) -> None:
    for text in (b"one", b"two"):
        place(beside, text=text).write(text)
    [kept] = kept_files(beside)
    assert kept.stat().st_mode & 0o777 == 0o644  # for other users of the same installation too
    assert place(beside, text=b"two").read() == b"two"


def test_where_nothing_may_be_written_nothing_is(beside: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        place(beside).write(b"made")
    assert kept_files(beside) == []
    (tmp_path / "__pycache__").write_text("a file in the way", encoding="utf-8")
    place(beside).write(b"made")
    assert place(beside).read() is None
    nowhere = compiled.beside(beside, b"text", code=str(tmp_path / "absent.py"), library="1.0")
    nowhere.write(b"made")
    assert nowhere.read() is None


def test_a_prefix_moves_the_folder(beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    place(beside).write(b"made")
    assert kept_files(beside) == []
    assert place(beside).read() == b"made"


def test_a_document_is_parsed_once_for_each_text(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    load = strict_yaml.load

    def noted(text: bytes) -> object:
        parsed.append(text)
        return load(text)

    monkeypatch.setattr(strict_yaml, "load", noted)
    wanted = {"a": 1, "b": ["x", 2.5, None]}
    first, again = (data.document(beside, beside.read_bytes()) for _ in range(2))
    assert first == again == wanted
    assert first is not again
    assert len(parsed) == 1
    assert data.document(beside, b"a: 2\n") == {"a": 2}
    [kept] = kept_files(beside)
    kept.write_bytes(kept.read_bytes()[:-1])  # cut
    assert data.document(beside, b"a: 2\n") == {"a": 2}
    assert len(parsed) == 3
    day = data.document(beside, b"d: 2026-01-01\n")
    assert data.document(beside, b"d: 2026-01-01\n") == day
    assert len(parsed) == 5
