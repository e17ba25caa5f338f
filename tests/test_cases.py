"""Many cases as one test: every case is tried, and those that fail are named."""

import inspect
import os
from pathlib import Path

import pytest

from tests.builders.cases import for_each


def test_what_a_case_sets_is_undone_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_ALL", "kept")

    @for_each("name", "FIRST", "SECOND")
    def only_its_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        assert {"FIRST", "SECOND"}.isdisjoint(os.environ)
        monkeypatch.setenv(name, "set")
        assert os.environ["OF_ALL"] == "kept"

    only_its_own(monkeypatch=monkeypatch)
    assert os.environ["OF_ALL"] == "kept"


def test_every_case_is_tried_and_each_that_fails_is_named(tmp_path: Path) -> None:
    tried = []

    @for_each("number, text", (1, "one"), (2, "two"), (3, "three"), (4, "four"))
    def holds(tmp_path: Path, number: int, text: str) -> None:
        tried.append(number)
        (tmp_path / text).touch()
        assert list(tmp_path.iterdir()) == [tmp_path / text]
        if number == 2:
            pytest.fail("even")
        assert number != 3

    assert list(inspect.signature(holds).parameters) == ["tmp_path"]
    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as caught:
        holds(tmp_path=tmp_path)
    assert tried == [1, 2, 3, 4]
    assert [one.__notes__ for one in caught.value.exceptions] == [
        ["in case 2: {'number': 2, 'text': 'two'}"], ["in case 3: {'number': 3, 'text': 'three'}"]
    ]  # fmt: skip


def test_no_case_is_no_success() -> None:
    with pytest.raises(ValueError, match="number: there is no case"):
        for_each("number", *())
