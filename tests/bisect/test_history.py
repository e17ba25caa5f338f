"""`diagnose history`: where a metric stepped over the runs of a job."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from diagnose import pipeline
from diagnose.bisect.history import Captured, common_pace, history, most_moved
from diagnose.bisect.model import load_numbers
from diagnose.bisect.search import Answer, Measurement, Question, State, advise, gradual
from diagnose.cli import main
from diagnose.document import diagnosis
from diagnose.document.diagnosis import Diagnosis, Tool
from diagnose.document.encoding import encode
from diagnose.document.history import CategoryMove, History, decode
from diagnose.errors import InputError
from diagnose.knowledge.comparison import load_comparison_rules
from diagnose.reason.compare.baselines import Store
from diagnose.render import Options, write
from tests.bisect.profile_step import scaled
from tests.builders import compared
from tests.builders.cases import for_each
from tests.builders.compared import kernel

TOOL = Tool(name="diagnose", version="test", rules_sha256="")


@pytest.fixture(scope="module")
def saved(captures: tuple[Path, dict[str, int]]) -> Mapping[str, dict[str, object]]:
    """The diagnoses of two settings, as JSON."""
    return {name: json.loads((captures[0] / f"{name}.json").read_text()) for name in ("base", "network-150")}


def document(saved: Mapping[str, dict[str, object]], name: str, factor: float) -> Diagnosis:
    return diagnosis.decode(json.dumps(scaled(json.loads(json.dumps(saved[name])), factor)).encode())


def commit(number: int) -> str:
    return f"{number:08x}" * 5


def nights(saved: Mapping[str, dict[str, object]], settings: list[str], noise: float, seed: int) -> list[Captured]:
    """One run a night, each shifted as a whole."""
    chance = random.Random(seed)
    return [
        Captured(label=f"night-{number:02d}", document=document(saved, name, math.exp(chance.gauss(0, noise))), commit=commit(number))
        for number, name in enumerate(settings)
    ]


def made(captured: list[Captured], metric: str = "step_time") -> History:
    return history(
        captured, metric=metric, rules=load_comparison_rules(), numbers=load_numbers(), tool=TOOL, name="nightly", order="As they came."
    )


def test_a_step_of_a_nightly_series_is_found_with_what_moved(saved: Mapping[str, dict[str, object]]) -> None:
    """The network became slower on the ninth night, and was as before from the fourteenth on."""
    settings = ["base"] * 8 + ["network-150"] * 5 + ["base"] * 5
    found = made(nights(saved, settings, 0.005, 1))
    assert [(one.label, one.taken_back_by) for one in found.steps] == [("night-08", "night-13"), ("night-13", None)]
    assert (found.steps[0].before, found.steps[0].last) == ("night-07", "night-08")
    assert found.steps[0].moved[0].category == "transport"
    assert found.steps[0].moved[0].delta_ns > 0
    assert (found.steps[0].base_commit, found.steps[0].commit) == (commit(7), commit(8))
    assert found.noise == pytest.approx(0.005, rel=0.6)
    for run in found.runs:
        assert sum(run.categories.values()) == pytest.approx(run.value, rel=0.05)
    assert decode(encode(found)) == found


def test_how_often_the_right_night_is_named() -> None:
    """200 such series: a step is seen in nearly all, its range holds the night in all of these, and the night itself is mostly named."""
    inside = named = 0
    for seed in range(200):
        chance = random.Random(seed)
        values = [100 * math.exp(chance.gauss(0, 0.015)) * (1.04 if night >= 17 else 1) for night in range(30)]
        state = State(Question(count=30, repeats=30, again=False), load_numbers(), [Measurement(*one) for one in enumerate(values)])
        answer = advise(state)
        assert isinstance(answer, Answer)
        assert len(answer.found) <= 1
        inside += any(one.before < 17 <= one.place for one in answer.found)
        named += any(one.likeliest[0] == 17 for one in answer.found)
    assert inside >= 190
    assert named >= 140


def test_nights_without_a_change_have_no_step(saved: Mapping[str, dict[str, object]]) -> None:
    for seed in range(3):
        found = made(nights(saved, ["base"] * 20, 0.02, seed))
        assert found.steps == ()
        assert found.sentence == "No step of step time is seen in 20 runs."


def test_what_creeps_is_said_to_be_gradual_and_no_night_is_blamed(saved: Mapping[str, dict[str, object]]) -> None:
    """6 % over thirty nights, evenly or in five small steps, at 1 % noise; one step of that size is a step."""
    chance = random.Random(3)
    kinds = {
        "line": [0.06 * night / 29 for night in range(30)],
        "small steps": [0.012 * (night // 5) for night in range(30)],
        "step": [0.06 * (night >= 15) for night in range(30)],
    }
    for kind, shares in kinds.items():
        captured = [
            Captured(label=f"night-{night:02d}", document=document(saved, "base", (1 + share) * math.exp(chance.gauss(0, 0.01))))
            for night, share in enumerate(shares)
        ]
        found = made(captured)
        if kind == "step":
            assert (found.gradual, [one.label for one in found.steps]) == (None, ["night-15"])
            continue
        assert found.gradual is not None
        assert found.steps == ()
        assert found.gradual.relative == pytest.approx(0.06, abs=0.02)
        assert found.gradual.moved
        assert found.noise == pytest.approx(0.01, rel=0.5)
        assert (
            " over 30 runs, little by little rather than in steps: from the first to the last third GEMMs and attention take "
            in found.sentence
        )
        levels = [run.level or 0.0 for run in found.runs]
        assert levels == sorted(levels)
        assert decode(encode(found)) == found
        told = write(found, "markdown", Options())
        assert "Creeping" in told
        assert "No single commit is behind it" in told


def test_how_often_a_creep_is_told_from_steps() -> None:
    """Twenty series of each kind at 1 % noise: what the documentation says of it."""
    shapes: dict[
        str, tuple[Callable[[float], float], int, int]
    ] = {  # the level by the share of the series; of 20 said to creep: least, most
        "level": (lambda _: 0.0, 0, 0),
        "line of 6 %": (lambda at: 0.06 * at, 16, 20),
        "six small steps of 1 %": (lambda at: 0.01 * math.floor(6.99 * at), 16, 20),
        "step of 4 %": (lambda at: 0.04 * (at > 0.55), 0, 0),
        "two steps of 5 %": (lambda at: 0.05 * ((at > 1 / 3) + (at > 2 / 3)), 0, 0),
        "step of 5 % that was taken back": (lambda at: 0.05 * (1 / 3 < at < 2 / 3), 0, 0),
    }
    for kind, (shape, least, most) in shapes.items():
        said = 0
        for seed in range(20):
            chance = random.Random(f"{kind} {seed}")
            values = [100 * (1 + shape(night / 29)) * math.exp(chance.gauss(0, 0.01)) for night in range(30)]
            state = State(Question(count=30, repeats=30, again=False), load_numbers(), [Measurement(*one) for one in enumerate(values)])
            said += gradual(state) is not None
        assert least <= said <= most, (kind, said)


def test_few_runs_are_never_said_to_creep() -> None:
    values = [100.0 + night for night in range(9)]
    for count, expected in ((9, False), (10, True)):
        taken = [Measurement(*one) for one in enumerate([*values, 109.0][:count])]
        assert (gradual(State(Question(count=count, repeats=count, again=False), load_numbers(), taken)) is not None) == expected


def test_what_holds_half_of_a_step_is_mostly_it_and_else_the_largest_are_named() -> None:
    def moved(*deltas: tuple[str, int]) -> str:
        return most_moved([CategoryMove(category=name, base_ns=10**7, new_ns=10**7 + ns, delta_ns=ns) for name, ns in deltas], "")

    assert moved(("transport", 600_000), ("compute:router", 400_000)) == ", mostly exposed communication (+0.600 ms)"
    assert moved(("transport", 400_000), ("compute:router", 300_000), ("copy", 200_000), ("packing", 100_000)) == (
        ", most of it in exposed communication (+0.400 ms), compute: router (+0.300 ms) and exposed copies (+0.200 ms)"
    )
    assert moved() == ""


def test_all_compute_is_said_to_be_slower_alike_only_where_the_same_kernels_run() -> None:
    moved = [
        CategoryMove(category=name, base_ns=10**7, new_ns=10**7 + ns, delta_ns=ns)
        for name, ns in (("compute:attention", 400_000), ("compute:dense_gemm", 410_000), ("compute:norm", 300_000))
    ]
    steps = ({"attention": 10_000_000},) * 4

    def night(name: str, pace: float) -> Diagnosis:
        return compared.document(
            steps, kernels=[kernel("flash_fwd", 10, round(1e6 * pace)), kernel(name, 10, round(1e6 * pace), bucket="dense_gemm")]
        )

    def said(base: Diagnosis | None, new: Diagnosis) -> str:
        return common_pace(moved, [None, base], [new], load_comparison_rules())

    before = night("nvjet_64x8", 1.0)
    assert said(before, night("nvjet_64x8", 1.04)).startswith("GEMMs and attention take 1.04 times as long, all alike")
    assert said(before, night("cutlass_gemm", 1.04)) == ""
    assert said(compared.document(steps), night("nvjet_64x8", 1.04)) == "", "its kernels are not known"
    assert said(None, night("nvjet_64x8", 1.04)) == ""


def test_runs_without_a_value_are_listed_with_the_reason_and_three_are_needed(saved: Mapping[str, dict[str, object]]) -> None:
    captured = nights(saved, ["base"] * 4, 0.005, 1)
    captured.insert(1, Captured(label="broken", document=None, problem="It is cut off."))
    found = made(captured)
    assert [(one.label, one.value, one.problem) for one in found.runs if one.problem] == [("broken", None, "It is cut off.")]
    assert "broken gave no value: It is cut off." in found.notes
    with pytest.raises(InputError, match="2 runs of 3"):
        made(captured[:3])


def test_ranks_of_one_run_are_no_runs_of_their_own() -> None:
    ranks = [Captured(label=f"night-{night}/rank{rank}", document=compared.document(rank=rank)) for night in range(3) for rank in (0, 1)]
    (said,) = [note for note in made(ranks).notes if "ranks" in note]
    assert said.startswith("The runs are of different ranks (0, 1): ranks of one run are no runs of their own")
    assert not [note for note in made(ranks[::2]).notes if "different ranks" in note]


@pytest.mark.deep
def test_the_history_of_a_stored_baseline_in_every_format(
    saved: Mapping[str, dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store, start = Store(folder=tmp_path / "store", rules=load_comparison_rules()), datetime(2026, 10, 1, tzinfo=UTC)
    for night, one in enumerate(nights(saved, ["base"] * 7 + ["network-150"] * 7, 0.005, 3)):
        assert one.document is not None
        store.add("nightly", one.document, date=start + timedelta(days=night), commit=one.commit, keep=30)
    outputs = [word for ending in ("html", "md", "json", "txt") for word in ("-o", f"h.{ending}")]
    assert main(["history", "--baseline", "nightly", "--store", "store", *outputs]) == 0
    found = decode((tmp_path / "h.json").read_bytes())
    (step,) = found.steps
    assert step.label == "2026-10-08"
    assert (step.base_commit, step.commit) == (commit(6), commit(7))
    assert f"diagnose bisect --good {commit(6)[:12]} --bad {commit(7)[:12]}" in (tmp_path / "h.md").read_text()
    page = (tmp_path / "h.html").read_text()
    assert "Where each run" in page
    assert found.order == "By the dates with which they were stored."
    capsys.readouterr()
    assert main(["history", *map(str, sorted(Path("store").rglob("*.json"))), "--format", "json"]) == 0, "stored runs by their files"
    assert [one.label for one in decode(capsys.readouterr().out.encode()).steps] == [Path(sorted(Path("store").rglob("*.json"))[7]).name]
    assert main(["render", "h.json", "--format", "markdown"]) == 0
    assert "stepped once in 14 runs" in capsys.readouterr().out


@for_each(
    "arguments, code, said",
    ((), 2, "A history is made of RUNs"),
    (("runs", "--baseline", "nightly"), 2, "do not go together"),
    (("--baseline", "nothing"), 3, "There is no baseline nothing"),
    (("nowhere/*.sqlite",), 3, "No file matches"),
    (("nowhere/*.sqlite", "-o", "h.docx"), 2, "does not name a format of a history"),
    (("runs", "-o", "runs/b.json", "--force"), 2, "runs/b.json is an input"),
    (("runs/*.json", "-o", "runs/b.json", "--force"), 2, "runs/b.json is an input"),
)
def test_refused(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("a.json", "b.json", "c.json"):
        (tmp_path / "runs" / name).write_text('{"schema": "diagnosis/1"}')
    assert main(["history", *arguments]) == code
    assert said in capsys.readouterr().err


def test_the_command_of_a_script_is_that_which_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def each(captures: list[list[Path]], **options: object) -> Iterator[InputError]:
        asked.update(options)
        yield from (InputError("It is empty.") for _ in captures)

    monkeypatch.setattr(pipeline, "diagnose_each", each)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]")
    assert main(["history", str(tmp_path), "--config", "job.sh", "--command", "2", "--rank", "3"]) == 3
    assert (asked["config"], asked["command"], asked["rank"]) == (Path("job.sh"), "2", 3)
