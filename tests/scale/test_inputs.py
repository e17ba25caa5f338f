"""Which inputs a run has, and what progress says of them."""

import pickle
from pathlib import Path

import pytest

from diagnose.errors import InputError, MissingInputError
from diagnose.pipeline import diagnose
from diagnose.scale.engine import Tally, fault_of, find_inputs, name_of
from tests.scale.conftest import Ranks


def test_each_file_is_one_input_however_often_it_is_named(ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ranks("a", "b")
    (a.parent / "notes.txt").write_text("hello")
    link = tmp_path / "link.json"
    link.symlink_to(a)
    monkeypatch.chdir(tmp_path)
    found = find_inputs([b, a.parent, Path("traces") / "a.json", link, a.parent])
    assert found.paths == (b, a), "in the order in which they are named first"
    assert [name for name, _ in found.ignored] == ["notes.txt"]


def test_standard_input_keeps_its_place(ranks: Ranks) -> None:
    a, b = ranks("a", "b")
    assert find_inputs([a, "-", b, "-"]).paths == (a, "-", b)
    assert [name_of(path) for path in ("-", a)] == ["standard input", "a.json"]


def test_other_json_of_a_folder_is_ignored_unless_somebody_named_it(ranks: Ranks) -> None:
    a, b = ranks("a", "b")
    other = a.parent / "truth.json"
    other.write_text('[{"schema": "something else", "steps": [1, 2]}]')

    def told(*given: Path) -> dict[str, str]:
        return {entry.code: entry.detail for entry in diagnose(given).ledger if entry.code in ("ignored_file", "refused_input")}

    (code,) = (found := told(a.parent))
    assert code == "ignored_file"
    assert found[code].startswith("truth.json: truth.json holds none of the events")
    assert set(told(a.parent, other)) == {"refused_input"}
    assert set(told(a, b, other)) == {"refused_input"}
    with pytest.raises(InputError, match=r"truth\.json holds none of the events"):
        diagnose([other])


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no trace"):
        find_inputs([tmp_path])


def test_progress_says_done_failed_left_and_time() -> None:
    said: list[str] = []
    tally = Tally(4, said.append)
    assert tally.line(3) == "0 of 4 traces measured, 4 left, 0:03 so far"
    tally.end(failed=False)
    tally.end(failed=True)
    assert tally.line(70) == "1 of 4 traces measured, 1 failed, 2 left, 1:10 so far, about 1:10 to go"
    tally.end(failed=False)
    assert tally.line(3 * 3600) == "2 of 4 traces measured, 1 failed, 1 left, 3:00:00 so far, about 1:00:00 to go"
    tally.end(failed=False)
    assert tally.line(5) == "3 of 4 traces measured, 1 failed, 0 left, 0:05 so far"
    tally.show("reading x")
    assert len(said) == 5
    assert said[-1].endswith(" · reading x")


def test_one_input_needs_no_count() -> None:
    said: list[str] = []
    tally = Tally(1, said.append)
    tally.show("reading x")
    tally.end(failed=False)
    assert said == ["reading x"]


def test_errors_travel_whole_and_faults_keep_the_number_of_the_system() -> None:
    sent = pickle.dumps(MissingInputError("What.", effect="Effect.", next_step="Next."))
    error = pickle.loads(sent)  # noqa: S301 - our own
    assert isinstance(error, MissingInputError)
    assert (error.what, error.effect, error.next_step, str(error)) == ("What.", "Effect.", "Next.", "What. Effect. Next.")
    assert fault_of("x", OSError(28, "No space left on device")).errno == 28
    fault = fault_of("x", ValueError("first\nsecond"))
    assert (fault.what, fault.errno) == ("x: ValueError: first", None)
