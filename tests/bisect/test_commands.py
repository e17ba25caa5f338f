"""`diagnose bisect` from its command line: what it takes, what it refuses, how it ends."""

import contextlib
import io
import json
import re
import shlex
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from diagnose.bisect.log import Entry, Experiment, Header, Line, SearchFolder
from diagnose.bisect.model import load_numbers
from diagnose.bisect.report import CulpritBuilder
from diagnose.bisect.search import Answer, Measurement, Question, State, advise
from diagnose.bisect.sentences import capture_notes, duration, notes, sentence, steps_found
from diagnose.bisect.trial import TraceOptions, Trials, no_value
from diagnose.cli import main
from diagnose.commands.bisect import Search, told_by_gate
from diagnose.document import diagnosis
from diagnose.document.bisection import Bisection, Culprit, decode
from diagnose.document.comparison import Gate
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.encoding import encode
from diagnose.knowledge.comparison import load_comparison_rules
from diagnose.reason.compare import baselines
from tests.bisect.profile_step import scaled, stretched
from tests.bisect.repositories import call as git
from tests.bisect.repositories import line, new
from tests.bisect.simulated import COMMAND, History, make_repository, set_world, snapshot
from tests.builders.cases import for_each
from tests.builders.compared import document
from tests.builders.comparing import run as compared_runs


def make_history(folder: Path, store: Path) -> History:
    """A repository of 14 commits whose tenth is slower."""
    settings = tuple({"step": "network-150" if place >= 9 else "base", "version": place} for place in range(14))
    set_world(store, seed=7, noise=0.005)
    return History(folder, make_repository(folder, settings), settings, 9, "network-150")


@pytest.fixture
def history(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """The same; the current folder is its top."""
    found = make_history(tmp_path / "repository", store)
    monkeypatch.chdir(found.folder)
    return found


@dataclass(frozen=True)
class Searched:
    """A search that has ended, with a report in each format (`r.html` and so on in `reports`), and what it left as it was."""

    history: History
    reports: Path
    said: tuple[str, str]
    before: tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def ended(captures: tuple[Path, dict[str, int]], tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Made once: the tests that take it look at it, each from its top, and ask it again."""
    reports = tmp_path_factory.mktemp("ended")
    history = make_history(reports / "repository", captures[0])
    before = (git(history.folder, "status", "--porcelain"), snapshot(history.folder))
    outputs = [word for ending in ("html", "md", "json", "txt") for word in ("-o", str(reports / f"r.{ending}"))]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("SIMULATED", str(captures[0]))
        patch.chdir(history.folder)
        assert main(["bisect", *ends(history), *outputs, "--", *COMMAND]) == 0
    said = [stream.buffer.getvalue().decode() for stream in (out, err) if stream.flush() is None]
    return Searched(history, reports, (said[0], said[1]), before)


@pytest.fixture
def searched(ended: Searched, monkeypatch: pytest.MonkeyPatch) -> Searched:
    monkeypatch.chdir(ended.history.folder)
    return ended


def result(capsys: pytest.CaptureFixture[str]) -> Bisection:
    return decode(capsys.readouterr().out.encode())


def ends(history: History) -> tuple[str, ...]:
    return ("--good", history.commits[0], "--bad", "main")


def around(history: History) -> tuple[str, ...]:
    """Ends that leave a few runs to search: four commits, of which the third is slower."""
    return ("--good", history.commits[7], "--bad", history.commits[10])


def test_the_sentence_of_several_steps_names_each() -> None:
    first = Culprit(label="a" * 40, subject="one", message="", before="9" * 40, base=10e6, new=12e6, relative=0.2)
    second = Culprit(label="b" * 40, subject="", message="", before="a" * 40, base=12e6, new=18e6, relative=0.5, among=("c" * 40,))
    assert steps_found([first, second], "several", "commits", "ns") == (
        "stepped 2 times: 10.000 ms to 12.000 ms (+20.0 %) with commit aaaaaaaaaaaa “one”; "
        "12.000 ms to 18.000 ms (+50.0 %) with one of 2 commits after aaaaaaaaaaaa up to bbbbbbbbbbbb"
    )


@for_each(
    "values, limit, begins",
    (
        (100.0, 100.1, 105.0, 105.1),
        0.1,
        "The two ends differ by no more than the 10.0 % that are allowed: the level of step time differs by +5.0 %",
    ),
    ((100.0, 100.1, 100.2, 100.1, 100.0, 100.2), None, "The two ends are alike: the level of step time differs by 0.0 %"),
    ((100.0, 110.0), None, "The ends are likely to differ, but not beyond doubt: step time differs by +10.0 %"),
    ((100.0, 101.0), None, "Whether the ends differ is open: step time differs by +1.00 %"),
    (
        tuple(1e8 * (1 + 0.015 * place) for place in range(16)),
        None,
        "Step time creeps from 100.332 ms to 122.879 ms (+22.5 %), little by little over all traces",  # a straight line of logarithms
    ),
    (
        (*(1e8 + 2e5 * (-1) ** place for place in range(8)), 1.3e8),
        None,
        "The ends differ by +30.0 % (95 % interval +28.4 % to +31.6 %), but where step time changed is open: only single captures stand apart (n8)",
    ),
)
def test_what_is_said_of_ends_that_do_not_surely_differ(values: Sequence[float], limit: float | None, begins: str) -> None:
    taken = [Measurement(place, value, 0.0) for place, value in enumerate(values)]
    state = State(Question(count=len(values), repeats=10, again=False, limit=limit), load_numbers(), taken)
    answer = advise(state)
    assert isinstance(answer, Answer)
    entries = tuple(Entry(label=f"n{place}", subject="", item="") for place in range(len(values)))
    header = SimpleNamespace(experiment=SimpleNamespace(metric="step_time", command=(), mode="traces", entries=entries))
    for window in ("step", "iteration"):  # the latter where nothing trains
        told = structs.replace(no_value(0, 0, "failed", ""), unit="ns", window=window)
        said = sentence(cast("Header", header), state, answer, "cannot_tell", (), told, ())
        assert said.startswith(begins.replace("step time", f"{window} time").replace("Step time", f"{window.capitalize()} time"))


@for_each("base, new, told", (10e6, 10.5e6, "+5.0 %"), (10e6, 9.8e6, "-2.0 %"))
def test_a_step_that_was_not_searched_is_told_with_its_size(base: float, new: float, told: str) -> None:
    measured = [Measurement(place, 10e6, 0.0) for place in range(4)]
    state = State(Question(count=4, repeats=10), load_numbers(), measured)
    entries = tuple(Entry(label=f"n{place}", subject="", item="") for place in range(4))
    header = SimpleNamespace(experiment=SimpleNamespace(entries=entries))
    small = SimpleNamespace(base=base, new=new, before=1, place=2)
    answer = SimpleNamespace(ends="alike", found=(), small=(small,), lone=())
    (note,) = notes(cast("Header", header), state, cast("Answer", answer), (), "ns")
    assert note == f"A smaller step, {told}, lies after n1, not later than n2; it was not searched (--smallest-step)."


def test_traces_on_both_sides_of_a_step_are_compared_as_far_as_the_next_step() -> None:
    state = SimpleNamespace(last=11, raw=dict.fromkeys([0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]), aside={9})
    header = SimpleNamespace(experiment=SimpleNamespace(command=()))
    builder = CulpritBuilder(
        header=cast("Header", header),
        lines=(),
        state=cast("State", state),
        documents=Path(),
        origin=lambda _: None,
        rules=load_comparison_rules(),
    )
    steps = [SimpleNamespace(before=1, place=2), SimpleNamespace(before=4, place=6)]
    assert builder.sides(steps, 0) == ([0, 1], [2, 3, 4])
    assert builder.sides(steps, 1) == ([2, 3, 4], [6, 7, 8, 10, 11])


def test_captures_of_another_rank_than_the_first_are_told(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path)
    folder.make()
    entries = tuple(Entry(label=f"n{place}", subject="", item="") for place in range(3))
    trials = Trials(
        experiment=Experiment(mode="traces", entries=entries, metric="step_time"),
        folder=folder,
        options=TraceOptions(),
        rules=load_comparison_rules(),
        lock=0,
        work=tmp_path,
    )
    steps = ({"attention": 1_000_000},) * 4
    lines = [trials.measured(place, place, document(steps, ranks=ranks, rank=ranks[0])) for place, ranks in enumerate(((0,), (0, 5), (5,)))]
    assert [one.rank for one in lines] == [None, None, 5]
    (note,) = capture_notes(lines)
    assert note == "1 capture is of rank 5, not of the first one's rank: ranks of one job need not take equally long."


@for_each("seconds, text", (0.2, "1 s"), (89.4, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (8820, "2.5 h"))
def test_a_time_to_wait_is_told_in_the_unit_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# --- commits ----------------------------------------------------------------------------------------------------------


def test_a_commit_is_found_and_reported_in_every_format(searched: Searched) -> None:
    history, folder, (out, err) = searched.history, searched.reports, searched.said
    culprit = history.commits[9]
    assert "FOUND" in out
    assert culprit[:12] in out
    assert re.search(r"about \d+ runs? left(, \d+ at most)?; about \d+ (s|min)\b", err)
    found = decode((folder / "r.json").read_bytes())
    assert (found.result, found.culprits[0].label) == ("found", culprit)
    assert found.culprits[0].message == git(history.folder, "show", "--no-patch", "--format=%B", culprit).strip()
    one = found.culprits[0]
    assert (one.author, one.date, one.diff_stat) == (
        "A U Thor",
        git(history.folder, "show", "--no-patch", "--format=%aI", culprit).strip(),
        git(history.folder, "show", "--format=", "--shortstat", culprit).strip(),
    )
    assert one.diff_stat
    assert list(found.command) == ["diagnose", "bisect", *ends(history), "--", *COMMAND]
    assert f"diagnose bisect --good {history.commits[0]} --bad main -- python3" in (folder / "r.md").read_text()
    assert "author@example.com" not in (folder / "r.html").read_text()
    assert len((folder / "r.md").read_bytes()) < 60_000
    assert culprit in (folder / "r.html").read_text()
    assert {one.state for one in found.candidates} == {"good", "bad", "untested"}
    assert snapshot(history.folder) == searched.before[1]


@pytest.mark.deep
def test_a_command_that_fails_now_and_then_does_not_end_the_search(
    history: History, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every third run fails, the first one of the bad end among them; a candidate that asks to be skipped is not run again."""
    script = tmp_path / "flaky.sh"
    script.write_text(
        f"echo . >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs)\n"
        f'[ "$1" = {history.commits[7]} ] && exit 125\n'
        f'[ $((n % 3)) = 2 ] && exit 1\nexec python3 -S profile.py "$1"\n'
    )
    assert main(["bisect", *ends(history), "-o", str(tmp_path / "r.json"), "--", "sh", str(script), "{commit}"]) == 0
    found = decode((tmp_path / "r.json").read_bytes())
    assert [one.label for one in found.culprits] == [history.commits[9]]
    states = [one.state for one in found.trials]
    assert states[1] == "failed"
    assert states.count("failed") >= 2
    assert sum(one.candidate == 7 for one in found.trials) <= 1


@pytest.mark.deep
def test_an_end_that_failed_can_be_tried_again_by_hand(history: History, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    command = ("sh", "-c", f'test -e {broken} && exit 3; exec python3 -S profile.py "$0"', "{commit}")
    state = ("--state", str(tmp_path / "state"))
    assert main(["bisect", *ends(history), "--retries", "0", *state, "--", *command]) == 3
    assert "--retry" in capsys.readouterr().out
    broken.unlink()
    assert main(["bisect", "--resume", *state]) == 3  # it is not tried again by itself
    assert main(["bisect", "--resume", *state, "--retry", history.commits[0], "-o", str(tmp_path / "r.json")]) == 0
    assert decode((tmp_path / "r.json").read_bytes()).culprits[0].label == history.commits[9]


def test_a_search_begins_with_the_commits_of_its_gate_unless_others_are_named(tmp_path: Path) -> None:
    """And with its metric and limit; the runs of an end count where that end is the gate's."""
    commits = line(new(tmp_path / "repository"), 3)
    compared = compared_runs(document(({"attention": 1_000_000},) * 4), document(({"attention": 1_200_000},) * 4))
    sides = [
        structs.replace(side, runs=tuple(structs.replace(run, commit=commit) for run in side.runs))
        for side, commit in zip((compared.base, compared.new), (commits[0], commits[2]), strict=True)
    ]
    asked = Gate(limit=0.05, fail_on=None, met=False, sentence="It is slower.")
    (tmp_path / "gate.json").write_bytes(encode(structs.replace(compared, base=sides[0], new=sides[1], gate=asked)))
    usual = {name: one.attributes.get("default") for name, one in Search.options.items()}
    for good, bad in ((None, None), (commits[1], None), (None, commits[1])):
        search = Search(**usual).replace(good=good, bad=bad, from_gate=tmp_path / "gate.json", metric="step_time")
        found, seen = told_by_gate(search, tmp_path / "repository")
        assert (found.good, found.bad) == (good or commits[0], bad or commits[2])
        assert (found.metric, found.max_regression) == (compared.effect.metric, 0.05)
        assert {end: len(lines) for end, lines in seen.items()} == {found.good: int(good is None), found.bad: int(bad is None)}


@pytest.mark.deep
def test_a_gate_that_failed_is_handed_to_the_search(
    history: History, capsys: pytest.CaptureFixture[str], tmp_path: Path, store: Path
) -> None:
    """Its commits, metric, limit and the runs of both ends: these are not captured again unless the search asks for more."""
    rules = load_comparison_rules()
    for number in range(5):
        document = json.loads((store / "base.json").read_text())
        made = diagnosis.decode(json.dumps(scaled(document, 1 + 0.002 * (number - 2))).encode())
        when = datetime(2026, 10, 1 + number, tzinfo=UTC)
        baselines.Store(folder=tmp_path / "store", rules=rules).add("main", made, date=when, commit=history.commits[0])
    new = []
    for number in range(3):
        new.append(tmp_path / f"new-{number}.json")
        new[-1].write_text(json.dumps(scaled(json.loads((store / "network-150.json").read_text()), 1 + 0.002 * (number - 1))))
    gate = tmp_path / "gate.json"
    assert main(["gate", "--baseline", "main", "--store", str(tmp_path / "store"), "-o", str(gate), *map(str, new)]) == 1
    capsys.readouterr()
    assert main(["bisect", "--from-gate", str(gate), "--bad", "main", "-o", str(tmp_path / "r.json"), "--", *COMMAND]) == 0
    found = decode((tmp_path / "r.json").read_bytes())
    assert [one.label for one in found.culprits] == [history.commits[9]]
    assert found.max_regression == 0.05
    assert "8 runs of the ends are taken from" in capsys.readouterr().err
    assert [sum(one.candidate == end for one in found.trials) for end in (0, 13)] == [5, 3]
    assert list(found.command[:6]) == ["diagnose", "bisect", "--good", history.commits[0], "--bad", "main"]
    assert main(["bisect", "--from-gate", str(new[0]), "--", *COMMAND]) == 2
    assert "is not the JSON of a gate" in capsys.readouterr().err


@pytest.mark.deep
def test_a_step_that_was_taken_back_is_said_to_be(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow from commit 3 to 14, where it is reverted, and again from 20: the search that meets the first step names the last."""
    slow = {*range(3, 14), *range(20, 24)}
    settings = tuple({"step": "network-150" if place in slow else "base", "version": place} for place in range(24))
    subjects = {14: "Revert “another way of dispatch”"}
    folder = tmp_path / "repository"
    commits = make_repository(folder, settings, subjects=subjects)
    set_world(store, seed=3, noise=0.005)
    monkeypatch.chdir(folder)
    assert main(["bisect", "--good", commits[0], "--bad", commits[23], "-o", str(tmp_path / "r.json"), "--", *COMMAND]) == 0
    found = decode((tmp_path / "r.json").read_bytes())
    named = {one.label: one.taken_back_by for one in found.culprits}
    assert named == {commits[3]: commits[14], commits[14]: None, commits[20]: None}
    assert re.search(rf"with commit {commits[20][:12]}.*which lasts", found.sentence)
    assert f"taken back with commit {commits[14][:12]}" in found.sentence


def test_the_folder_of_a_search_is_invisible_to_git_and_holds_everything(searched: Searched) -> None:
    folder = searched.history.folder
    assert git(folder, "status", "--porcelain") == searched.before[0]
    (state,) = (folder / ".diagnose" / "bisect").iterdir()
    found = decode((state / "report.json").read_bytes())
    kept = {path.name for path in (state / "documents").iterdir()}
    assert {trial.document for trial in found.trials} == kept


def test_the_same_log_gives_the_same_report(searched: Searched, capsys: pytest.CaptureFixture[str]) -> None:
    first = (searched.reports / "r.json").read_text()
    asked = [*ends(searched.history), "--", *COMMAND]
    for arguments in (["--resume"], ["--resume", *asked]):
        assert main(["bisect", "--format", "json", *arguments]) == 0
        assert capsys.readouterr().out == first
    assert main(["bisect", *asked]) == 2
    assert "--resume" in capsys.readouterr().err


def test_another_question_is_another_search_or_refused(searched: Searched, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state,) = (searched.history.folder / ".diagnose" / "bisect").iterdir()
    asked = [*ends(searched.history), "--state", str(state), "--resume", "--metric", "transport"]
    assert main(["bisect", *asked, "--", *COMMAND]) == 2
    assert "different: metric" in capsys.readouterr().err
    for idle in (["--metric", "transport"], ["--rank", "3"], ["--", *COMMAND]):
        assert main(["bisect", "--resume", "--state", str(state), *idle]) == 2
        assert f"and {shlex.join(idle)} would count for nothing" in capsys.readouterr().err
    assert main(["bisect", "--resume", "--state", str(tmp_path / "nowhere")]) == 3


def test_a_category_is_a_metric_too(history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a quiet search says nothing."""
    asked = [*around(history), "--metric", "transport", "--state", str(tmp_path / "state"), "--quiet", "-o", str(tmp_path / "r.json")]
    assert main(["bisect", *asked, "--", *COMMAND]) == 0
    assert capsys.readouterr() == ("", "")
    found = decode((tmp_path / "r.json").read_bytes())
    assert found.culprits[0].label == history.commits[9]
    assert found.culprits[0].new > 1.3 * found.culprits[0].base


def test_ends_that_are_alike_are_said_and_nothing_between_is_run(history: History, capsys: pytest.CaptureFixture[str], store: Path) -> None:
    set_world(store, seed=3, noise=0.002)
    assert main(["bisect", "--good", history.commits[0], "--bad", history.commits[8], "--format", "json", "--", *COMMAND]) == 3
    found = result(capsys)
    assert found.result == "ends_alike"
    assert "Nothing between them was run" in found.sentence
    assert {trial.candidate for trial in found.trials} == {0, 8}


@for_each(
    "script, end, said",
    ("echo linker is missing; exit 2", "good", "linker is missing"),
    ('[ "$(git rev-parse HEAD)" != BAD ] || exit 2; exec "$@"', "bad", "failed with exit code 2"),
    ("true", "good", "left nothing in $DIAGNOSE_OUTPUT"),
)
def test_an_end_that_gives_no_value_is_named_with_the_reason(
    history: History, tmp_path: Path, script: str, end: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("sh", "-c", script.replace("BAD", history.commits[-1]), "sh", *COMMAND)
    assert main(["bisect", *ends(history), "--state", str(tmp_path / "state"), "--format", "json", "--", *command]) == 3
    found = result(capsys)
    label = history.commits[0 if end == "good" else -1][:12]
    assert found.result == "cannot_tell"
    assert found.sentence.startswith(f"The {end} end, {label}, gives no value")
    assert said in found.sentence
    assert found.sentence.endswith(f"; or begin beside it, with --{end} {history.commits[1 if end == 'good' else -2][:12]}")


def test_a_command_that_asks_for_the_end_stops_the_search(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    script = f'if [ "$(git rev-parse HEAD)" = {history.commits[13]} ]; then exit 200; fi; exec {" ".join(COMMAND)}'
    assert main(["bisect", *ends(history), "--", "sh", "-c", script]) == 130
    said = capsys.readouterr().err
    assert "exit code 200" in said
    assert "--resume" in said
    assert main(["bisect", "--resume"]) == 130


def test_candidates_can_be_left_out(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [word for number in (8, 9) for word in ("--skip", history.commits[number][:10])]
    assert main(["bisect", *ends(history), *left_out, "--format", "json", "--", *COMMAND]) == 0
    found = result(capsys)
    assert found.result == "range"
    assert found.culprits[0].label == history.commits[10]
    assert found.culprits[0].among == (history.commits[8], history.commits[9])
    assert main(["bisect", *ends(history), "--resume", "--skip", "nothing", "--", *COMMAND]) == 2


def test_a_trace_at_a_place_of_its_own_is_found(history: History, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = "DIAGNOSE_OUTPUT=out; export DIAGNOSE_OUTPUT; mkdir -p out; python3 -S profile.py {commit} && mv out/*.json run-{commit}.json"
    arguments = ["--trace", "run-{commit}.json", "--format", "json", "--", "sh", "-c", script]
    assert main(["bisect", *around(history), *arguments]) == 0
    assert result(capsys).culprits[0].label == history.commits[9]


def test_a_merge_says_how_to_look_inside(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    git(history.folder, "stash", "--quiet")
    git(history.folder, "checkout", "--quiet", "-b", "side", history.commits[2])
    for number in range(3):
        (history.folder / "job.json").write_text(json.dumps({"step": "slow-kernels" if number else "base", "side": number}))
        git(history.folder, "commit", "--quiet", "--all", "--message", f"side {number}")
    git(history.folder, "checkout", "--quiet", "-b", "line", history.commits[4])
    git(history.folder, "merge", "--quiet", "--no-ff", "--strategy-option", "theirs", "--message", "Merge side", "side")
    for number in range(3):
        (history.folder / f"more{number}").touch()
        git(history.folder, "add", "--all")
        git(history.folder, "commit", "--quiet", "--message", f"more {number}")
    assert main(["bisect", "--good", history.commits[0], "--bad", "line", "--format", "json", "--", *COMMAND]) == 0
    found = result(capsys)
    assert found.culprits[0].subject == "Merge side"
    assert any("is a merge that brings 3 commits" in note for note in found.notes)
    changed = git(history.folder, "diff", "--shortstat", f"{found.culprits[0].label}^1", found.culprits[0].label).strip()
    assert found.culprits[0].diff_stat == changed, "against the first parent alone"


# --- items and traces -------------------------------------------------------------------------------------------------


def test_a_list_of_artefacts_is_searched(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tags.txt").write_text("".join(f"24.{number:02d}\tregistry/image:24.{number:02d}\n" for number in range(1, 13)))
    script = 'case {item} in *:24.0[1-7]) step=base;; *) step=slow-kernels;; esac; cp "$SIMULATED/$step.json" "$DIAGNOSE_OUTPUT"'
    assert main(["bisect", "--items", "tags.txt", "--format", "json", "--", "sh", "-c", script]) == 0
    found = result(capsys)
    assert (found.kind, found.result) == ("items", "found")
    assert (found.culprits[0].before, found.culprits[0].label) == ("24.07", "24.08")
    assert "tags.txt" in found.order
    moved = found.culprits[0].comparison
    assert moved is not None
    assert moved.outcome.moved.startswith("GEMMs and attention take 1.2")


@pytest.fixture
def nightly(request: pytest.FixtureRequest, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty captures that are there already, or those nights of them that are asked for; from night 12 on the kernels are slower."""
    folder = tmp_path / "nightly"
    folder.mkdir()
    for number in getattr(request, "param", range(20)):
        trace = folder / f"night-{number}.sqlite"
        shutil.copy(store / f"{'slow-kernels' if number >= 12 else 'base'}.sqlite", trace)
        stretched(trace, 1 + ((number * 7) % 5 - 2) * 0.002)
        with sqlite3.connect(trace) as connection:
            connection.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (number * 86_400 * 10**9,))
        connection.close()
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("nightly", [range(8, 16), pytest.param(range(20), marks=pytest.mark.deep)], indirect=True)
def test_the_culprit_is_found_among_traces_that_are_there_already(nightly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--traces", "nightly/*.sqlite", "--jobs", "1", "--format", "json"]) == 0
    found = result(capsys)
    assert found.kind == "traces"
    assert (found.culprits[0].before, found.culprits[0].label) == ("night-11.sqlite", "night-12.sqlite")
    assert "time of capture" in found.order
    assert [trial.candidate for trial in found.trials] == list(range(len(list(nightly.iterdir()))))
    assert all(one.trials == 1 for one in found.candidates)
    assert found.noise is not None, "traces on one level tell the noise"
    assert 0 < found.noise < 0.05
    assert re.search(r"went from [\d.]+ ms to [\d.]+ ms \([+-][\d.]+ %\) with trace night-12", found.sentence), found.sentence
    moved = found.culprits[0].comparison
    assert moved is not None
    assert moved.delta is not None
    assert max(moved.delta.categories, key=lambda row: row.delta_ns).category.startswith("compute:")
    assert sum(row.delta_ns for row in moved.delta.categories) == moved.delta.delta_ns


@pytest.mark.deep
def test_a_step_that_is_not_sure_enough_is_told_as_the_likeliest_one(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten nights that scatter by about 1 %, the last four 2 % slower: too little to name one, enough to say where to look."""
    monkeypatch.chdir(tmp_path)
    for number, milliseconds in enumerate((17.61, 17.71, 17.74, 17.96, 17.35, 17.51, 18.23, 18.10, 18.22, 18.15)):
        shutil.copy(store / "base.sqlite", tmp_path / f"night-{number}.sqlite")
        stretched(tmp_path / f"night-{number}.sqlite", milliseconds / 17.61)
    assert main(["bisect", "--traces", "night-*.sqlite", "--format", "json"]) == 3
    found = result(capsys)
    assert (found.result, found.culprits) == ("cannot_tell", ())
    assert "If there is a step, it is most likely trace night-6.sqlite (" in found.sentence


@pytest.mark.deep
def test_a_command_that_the_job_file_has_not_is_refused(nightly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text("torchrun pretrain_gpt.py --num-layers 2\ntorchrun pretrain_gpt.py --num-layers 4\n")
    assert main(["bisect", "--traces", "nightly/*.sqlite", "--config", "job.sh", "--command", "3"]) != 0
    assert "no training command 3" in capsys.readouterr().err


@pytest.mark.deep
def test_a_trace_that_can_not_be_read_is_skipped(nightly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (9, 10):
        (nightly / f"night-{number}.sqlite").write_bytes((nightly / f"night-{number}.sqlite").read_bytes()[:9000])
    assert main(["bisect", "--traces", "nightly/*.sqlite", "--format", "json"]) == 0
    found = result(capsys)
    assert found.culprits[0].label == "night-12.sqlite"
    assert {one.label for one in found.candidates if one.state == "skipped"} == {"night-9.sqlite", "night-10.sqlite"}
    assert [trial.state for trial in found.trials].count("unusable") == 2
    assert all(str(nightly) not in trial.text for trial in found.trials)


@pytest.mark.deep
def test_a_trace_that_was_measured_is_not_measured_again(nightly: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["bisect", "--traces", "nightly/*.sqlite", "--format", "json", "--state", str(tmp_path / "state"), "--jobs", "1"]
    assert main(arguments) == 0
    whole = capsys.readouterr().out
    lines = (tmp_path / "state" / "log.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 21
    (tmp_path / "state" / "log.jsonl").write_bytes(b"".join(lines[:18]) + lines[18][:40])
    for number in range(20):
        if number < 17:
            (nightly / f"night-{number}.sqlite").write_bytes(b"no trace any more")
    assert main(["bisect", "--resume", "--state", str(tmp_path / "state"), "--format", "json"]) == 0
    said = capsys.readouterr()
    assert said.out == whole
    assert "night-17.sqlite" in said.err
    assert "night-16.sqlite" not in said.err


@pytest.mark.deep
def test_an_interrupted_series_keeps_what_was_measured(
    nightly: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.bisect.trial import Trials

    measured = Trials.measured

    def interrupted(trials: Trials, candidate: int, number: int, document: Diagnosis) -> Line:
        if number == 4:
            raise KeyboardInterrupt
        return measured(trials, candidate, number, document)

    monkeypatch.setattr(Trials, "measured", interrupted)
    assert main(["bisect", "--traces", "nightly/*.sqlite", "--state", str(tmp_path / "state"), "--jobs", "1"]) == 130
    assert "Kept: 3 runs; the last one is lost." in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["bisect", "--resume", "--state", str(tmp_path / "state"), "--format", "json"]) == 0
    assert len(result(capsys).trials) == 20


@pytest.mark.deep
def test_several_processes_give_the_document_of_one(nightly: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    documents = []
    for jobs in ("1", "2"):
        assert main(["bisect", "--traces", "nightly/*.sqlite", "--format", "json", "--state", str(tmp_path / jobs), "--jobs", jobs]) == 0
        documents.append(capsys.readouterr().out)
    assert documents[0] == documents[1]


@pytest.mark.deep
def test_saved_diagnoses_and_traces_stand_side_by_side(nightly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (3, 15):
        assert main(["analyse", f"nightly/night-{number}.sqlite", "-o", f"nightly/night-{number}.json", "--quiet"]) == 0
        (nightly / f"night-{number}.sqlite").unlink()
    Path("list.txt").write_text("".join(f"nightly/night-{number}.{'json' if number in {3, 15} else 'sqlite'}\n" for number in range(20)))
    assert main(["bisect", "--items", "list.txt", "--good", "nightly/night-2.sqlite", "--format", "json"]) == 0, "it needs no command"
    found = result(capsys)
    assert (found.culprits[0].label, len(found.candidates)) == ("nightly/night-12.sqlite", 18)
    assert all(trial.state == "measured" for trial in found.trials)


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    "arguments, words",
    (("--resume",), "no search to go on with"),  # before one of the others has begun one
    ((), "needs --good, --bad"),
    (("--good", "main~3", "--", "true"), "needs --good, --bad"),
    (("--good", "main~3", "--bad", "main"), "needs --good, --bad"),
    (("--good", "main", "--bad", "main~3", "--", "true"), "Swap"),
    (("--good", "nothing", "--bad", "main", "--", "true"), "no commit"),
    (("--items", "x", "--traces", "y"), "do not go together"),
    (("--items", "notes.txt", "--", "true"), "does not say {item}"),
    (("--items", "nothing.txt"), "can't be read"),
    (("--traces", "*.nothing"), "No file matches"),
    (("--traces", "*.py", "--", "true"), "runs no command"),
    (("--traces", "a.py", "b.py", "--", "true"), "runs no command"),
    (("--traces", "*.py", "--metric", "nonsense"), "no metric 'nonsense'. Nothing was run."),
    (("--traces", "[jn]o*", "-o", "job.json", "--force"), "job.json is an input"),
    (("--good", "main~3", "--bad", "main", "-o", "x.sarif", "--", "true"), "does not name a format"),
    (("--good", "main~3", "--bad", "main", "-o", "notes.txt", "--", "true"), "exists"),
    (("--good", "main~3", "--bad", "main", "--max-regression", "3", "--", "true"), "no share"),
    (("--good", "main~3", "--bad", "main", "--metric", "nonsense", "--", *COMMAND), "no metric 'nonsense'"),
)
def test_what_does_not_go_together_is_refused(
    history: History, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(history.folder)
    assert main(["bisect", *arguments]) in {2, 3}
    assert words in capsys.readouterr().err
    assert snapshot(history.folder) == before
