"""The log: appended to line by line, read back whatever the moment at which the run before was killed."""

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from diagnose.bisect import log as logs
from diagnose.bisect import session
from diagnose.bisect.log import SCHEMA, Criteria, Entry, Experiment, Header, Line, Log, SearchFolder, parse
from diagnose.bisect.model import load_numbers
from diagnose.bisect.session import StoppedError
from diagnose.bisect.trial import StopRequestedError
from diagnose.document.bisection import Bisection, Trial
from diagnose.document.encoding import encode
from diagnose.errors import InputError, UsageError
from diagnose.knowledge.comparison import load_comparison_rules
from diagnose.render import Options, write
from diagnose.render.reports.bisection.story import short
from tests.builders.bisection import rich

ENTRIES = tuple(Entry(label=f"image-{number}", subject="", item=f"registry/image:{number}") for number in range(40))
EXPERIMENT = Experiment(mode="items", entries=ENTRIES, metric="step_time", command=("profile", "{item}"))
HEADER = Header(schema=SCHEMA, version="0", experiment=EXPERIMENT, criteria=Criteria(repeats=6), work="/nowhere", order="As they stand.")


def capture(place: int, number: int, log: Log) -> Line:
    """A capture that depends on its candidate and on how many of it the log holds, so that a run that is lost is repeated alike."""
    if place == 17:
        return Line(trial=Trial(candidate=place, number=number, state="failed", text="broken"), seconds=0.1)
    before = sum(trial.candidate == place for trial in log.trials)
    chance = random.Random(f"{place} {before}")
    level = 1e8 * (1.12 if place >= 23 else 1.0) * (1 + chance.gauss(0, 0.02))
    values = tuple(float(round(level * (1 + chance.gauss(0, 0.01)))) for _ in range(4))
    return Line(trial=Trial(candidate=place, number=number, state="measured", values=values), seconds=0.2, unit="ns")


def finished(folder: SearchFolder, log: Log) -> Bisection:
    answer = session.search(log, HEADER.criteria, lambda place, number: capture(place, number, log), load_numbers(), lambda _: None)
    return session.document(folder, log, HEADER.criteria, answer, load_numbers(), load_comparison_rules())


@pytest.fixture
def whole(tmp_path: Path) -> tuple[bytes, bytes]:
    """The log of a search that was never interrupted, and its document."""
    folder = SearchFolder(tmp_path / "whole")
    folder.make()
    document = finished(folder, logs.begin(folder.log, HEADER))
    assert [one.label for one in document.culprits] == ["image-23"]
    return folder.log.read_bytes(), encode(document)


def test_a_log_that_is_cut_anywhere_is_read_up_to_its_last_whole_line(whole: tuple[bytes, bytes]) -> None:
    data, _ = whole
    ends = [place + 1 for place, sign in enumerate(data) if sign == ord("\n")]
    for length in range(ends[0], len(data) + 1):
        found = parse(data[:length])
        lines = sum(end <= length for end in ends)
        assert len(found.lines) == lines - 1
        assert found.length == ends[lines - 1]
        assert found.torn == length - ends[lines - 1]
    for length in range(ends[0]):
        with pytest.raises(InputError, match="can't be used"):
            parse(data[:length])


def test_a_search_goes_on_from_any_cut_to_the_same_document(whole: tuple[bytes, bytes], tmp_path: Path) -> None:
    data, document = whole
    ends = [place + 1 for place, sign in enumerate(data) if sign == ord("\n")]
    chance = random.Random(1)
    cuts = sorted({*ends, *(end + 1 for end in ends[:-1]), *(end - 1 for end in ends[1:]), *chance.sample(range(ends[0], len(data)), 25)})
    for cut in cuts:
        folder = SearchFolder(tmp_path / f"cut-{cut}")
        folder.make()
        folder.log.write_bytes(data[:cut])
        log, warning = logs.resume(folder.log)
        assert bool(warning) == (cut not in ends)
        assert encode(finished(folder, log)) == document
        assert folder.log.read_bytes() == data


def test_a_line_that_is_damaged_in_the_middle_is_an_error(whole: tuple[bytes, bytes]) -> None:
    lines = whole[0].splitlines(keepends=True)
    for wrong in (b"{\n", b"\xff\xfe\n", lines[1].replace(b'"candidate":0', b'"candidate":77'), lines[0]):
        with pytest.raises(InputError, match="can't be used"):
            parse(b"".join([lines[0], wrong, *lines[2:]]))
    with pytest.raises(InputError, match="schema"):
        parse(whole[0].replace(b"bisect-log/1", b"bisect-log/9"))


def test_an_interruption_keeps_what_was_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path / "state")
    folder.make()
    log = logs.begin(folder.log, HEADER)

    def run(place: int, number: int) -> Line:
        if number == 4:
            raise KeyboardInterrupt
        if number == 6:
            raise StopRequestedError(137, "image-3", tmp_path / "x.log", "Ended.")
        return capture(place, number, log)

    for kept, words in ((3, "Interrupted"), (3, "Interrupted")):
        with pytest.raises(StoppedError, match=words) as stopped:
            session.search(log, HEADER.criteria, run, load_numbers(), lambda _: None)
        assert f"--resume --state {folder.path}" in str(stopped.value)
        assert stopped.value.exit_code == 130
        assert len(logs.resume(folder.log)[0].lines) == kept


def test_captures_that_stand_apart_make_an_answer_less_sure(tmp_path: Path) -> None:
    """A capture of each end took a third more: it is left out, and so is the usual certainty of 99.7 in 100."""
    counts: Counter[int] = Counter()

    def taken(astray: bool, place: int, number: int) -> Line:
        counts[place] += 1
        line = capture(place, number, log)
        wild = astray and place in {0, 39} and counts[place] == 1
        return (
            structs.replace(line, trial=structs.replace(line.trial, values=tuple(1.5 * one for one in line.trial.values))) if wild else line
        )

    for astray in (True, False):
        counts.clear()
        folder = SearchFolder(tmp_path / str(astray))
        folder.make()
        log = logs.begin(folder.log, HEADER)
        answer = session.search(log, HEADER.criteria, partial(taken, astray), load_numbers(), lambda _: None)
        found = session.document(folder, log, HEADER.criteria, answer, load_numbers(), load_comparison_rules())
        assert [one.label for one in found.culprits] == ["image-23"]
        assert any("left out as flaky" in note for note in found.notes) == astray
        assert any("about 98 of 100 searches, not in 99.7" in note for note in found.notes) == astray


def test_another_question_is_refused_by_what_differs() -> None:
    for other, name in (
        (Experiment(mode="items", entries=ENTRIES[1:], metric="step_time", command=("profile", "{item}")), "candidates"),
        (Experiment(mode="items", entries=ENTRIES, metric="kernels", command=("profile", "{item}")), "metric"),
        (Experiment(mode="items", entries=ENTRIES, metric="step_time", command=("other", "{item}")), "command"),
    ):
        with pytest.raises(UsageError, match=name):
            logs.check_same(other, EXPERIMENT)
    logs.check_same(EXPERIMENT, EXPERIMENT)


def test_a_search_is_not_begun_over_another(tmp_path: Path) -> None:
    logs.begin(tmp_path / "log.jsonl", HEADER)
    with pytest.raises(UsageError, match="--resume"):
        logs.begin(tmp_path / "log.jsonl", HEADER)


def test_candidates_left_out_by_hand_are_in_the_log(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path / "state")
    folder.make()
    log = logs.begin(folder.log, HEADER)
    session.leave_out(log, [19, 23])
    session.leave_out(log, [19])
    assert [(trial.candidate, trial.state) for trial in log.trials] == [(19, "left_out"), (23, "left_out")]
    document = finished(folder, log)
    assert (document.result, document.culprits[0].label) == ("range", "image-24")
    assert (document.culprits[0].among, document.candidates[19].state) == (("image-23",), "skipped")


def test_only_one_run_works_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.bisect.log._PATIENCE_SECONDS", 0.2)
    folder = SearchFolder(tmp_path / "state")
    folder.make()
    said: list[str] = []
    with folder.locked(said.append), pytest.raises(UsageError, match="Another run"), folder.locked(said.append):
        pass
    assert len(said) == 1
    with folder.locked(said.append):
        pass


def test_the_two_figures_of_a_step_are_told_apart_in_every_page() -> None:
    """Its change is between the levels of all captures; its tables hold the captures beside it."""
    found = rich()
    (one,) = [culprit for culprit in found.culprits if culprit.comparison is not None]
    assert one.comparison is not None
    assert one.relative != one.comparison.effect.relative
    for form in ("text", "markdown", "html"):
        told = " ".join(write(found, form, Options(detail=2)).split())
        assert told.count(f"Below: {short(one.before)} against {short(one.label)}; the change above") == 1, form
        assert "the change above is between the levels of all captures, so the two may differ a little" in told, form
