"""The checked-in traces and the command that makes them: reproducible, small, alike in both formats, and diagnosed as they were made."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.inputs import repeat_nsys, repeat_torch
from diagnose.diagnosis import Diagnosis
from diagnose.job import read_job
from diagnose.pipeline import diagnose
from fixtures import __main__ as command
from fixtures import sample, scenario
from fixtures.capture import START_UNIX_NS, SYNTHETIC
from fixtures.recording import Operation, Recording
from fixtures.sample import FOLDER, JOB, NSYS, SAMPLES, TORCH, Sample, make, unpack
from fixtures.torch_writer import BASE_NS
from fixtures.truth import counterfactuals, splits, step_time
from fixtures.truth_file import busy

from .fixtures import checks

DEMO = scenario.load("demo")
EXPERT_GROUP = "EXPERT_MODEL_PARALLEL_GROUP"
RENEW = "the simulator or a scenario has changed; if that is meant: python -m fixtures samples"


@pytest.fixture(scope="module")
def recording() -> Recording:
    (made,) = sample.run_of("demo")
    return made


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    unpack(NSYS, path)
    return path


@pytest.fixture(scope="module")
def from_nsys(database: Path) -> Diagnosis:
    return diagnose([database], config=JOB)


@pytest.fixture(scope="module")
def from_torch() -> Diagnosis:
    return diagnose([FOLDER / TORCH], config=JOB)


@pytest.fixture(params=["from_nsys", "from_torch"])
def document(request: pytest.FixtureRequest) -> Diagnosis:
    found: Diagnosis = request.getfixturevalue(request.param)
    return found


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def _kernels(recording: Recording) -> list[Operation]:
    return [operation for operation in recording.operations if operation.kind == "kernel"]


def _content(path: Path, folder: Path) -> object:
    """What a checked-in file holds, whatever packed it."""
    if path.suffix != ".gz":
        return path.read_text(encoding="utf-8")
    plain = gzip.decompress(path.read_bytes())
    if ".sqlite" not in path.name:
        return plain
    opened = folder / "opened.sqlite"
    opened.write_bytes(plain)
    return _dump(opened)


# ---------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("one", SAMPLES, ids=lambda one: one.stem)
def test_the_checked_in_traces_are_what_the_simulator_makes(one: Sample, tmp_path: Path) -> None:
    for path in make(one, tmp_path / "fresh"):
        assert _content(path, tmp_path) == _content(FOLDER / path.name, tmp_path), RENEW


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = ([path.read_bytes() for path in make(SAMPLES[0], tmp_path / name)] for name in ("one", "two"))
    assert one == two


def test_the_traces_stay_small_and_there_are_no_others() -> None:
    kept = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(kept) == {name for one in SAMPLES for name in (*one.traces.values(), one.truth)}
    assert sum(kept.values()) < 3_000_000
    assert kept[NSYS] + kept[TORCH] < 700_000


def test_what_the_samples_show() -> None:
    """Both formats, DeepEP, CUDA graphs, images, recompute, and two ranks of one run."""
    assert {kind for one in SAMPLES for kind in one.formats} == {"nsys", "torch"}
    plans = {one.stem: scenario.load(one.scenario).plan for one in SAMPLES}
    assert plans["deepep"].dispatcher == "deepep"
    assert plans["graphs"].graphs("attn")
    assert plans["vision"].has_vision
    assert plans["recompute"].recomputes_all
    assert len({one.rank for one in SAMPLES if one.scenario == "ranks-straggler"}) == 2
    for stem, nodes in (("graphs", True), ("deepep", False)):
        recorded = sample.run_of(next(one.scenario for one in SAMPLES if one.stem == stem))[0]
        assert any(operation.graph for operation in recorded.operations) == nodes


def test_the_traces_say_that_they_are_synthetic(tmp_path: Path) -> None:
    for one in SAMPLES:
        if "torch" in one.formats:
            assert json.loads(gzip.decompress((FOLDER / one.traces["torch"]).read_bytes()))["synthetic"] == SYNTHETIC
        if "nsys" in one.formats:
            path = tmp_path / f"{one.stem}.sqlite"
            unpack(one.traces["nsys"], path)
            with closing(sqlite3.connect(path)) as opened:
                assert opened.execute("SELECT value FROM META_DATA_EXPORT WHERE name = 'DERIVED_BY'").fetchall() == [(SYNTHETIC,)]
                assert (SYNTHETIC,) in opened.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall()


# ---------------------------------------------------------------------------------------------- the demo


def test_the_demo_is_consistent(recording: Recording) -> None:
    checks.all_holds(recording)
    assert checks.waits_hold(recording) > 1_000
    assert all(operation.end > operation.start for operation in recording.operations)


def test_both_files_hold_the_same_operations(recording: Recording, database: Path) -> None:
    true = sorted((kernel.start, kernel.end, kernel.stream, kernel.correlation) for kernel in _kernels(recording))
    with closing(sqlite3.connect(database)) as opened:
        nsys = opened.execute('SELECT start, "end", streamId, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 2, 3').fetchall()
        origin = opened.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    assert origin == START_UNIX_NS
    parsed = json.loads(gzip.decompress((FOLDER / TORCH).read_bytes()), parse_float=Decimal)
    torch = []
    for event in parsed["traceEvents"]:
        if event.get("cat") == "kernel":
            start = int(event["ts"] * 1000) - (origin - BASE_NS)
            torch.append((start, start + int(event["dur"] * 1000), event["args"]["stream"], event["args"]["correlation"]))
    assert sorted(nsys) == true
    assert sorted(torch) == true


def test_exchanges_per_step_are_those_of_the_dispatcher(recording: Recording) -> None:
    """Tokens, probabilities and combine: three all-to-all per layer, micro-batch and direction."""
    plan = DEMO.plan
    exchanges = [kernel for kernel in _kernels(recording) if kernel.message and kernel.message.collective == "all_to_allv"]
    assert len(exchanges) == 3 * 2 * plan.layers_per_chunk * plan.micro_batches * DEMO.steps
    for kernel in exchanges:
        assert kernel.message is not None
        sent, received = sum(kernel.message.splits_in), sum(kernel.message.splits_out)
        width = kernel.message.elements_in // sent
        assert width in {1, plan.hidden}
        assert (kernel.message.elements_in, kernel.message.elements_out) == (sent * width, received * width)
        assert sent == pytest.approx(plan.routed, rel=0.1)


def test_garbage_is_collected_in_one_step() -> None:
    (made,) = sample.run_of("demo")
    starts = [item for item in made.ranges if item.kind == "step"]
    collected = [pause for pause in made.pauses if pause.cause == "gc"]
    assert len(collected) == DEMO.plan.micro_batches
    assert all(starts[2].start < pause.start < pause.end < starts[2].end for pause in collected)
    assert [step for step, split in splits(made).items() if split.host["gc"]] == [12]


def test_totals_equal_the_truth(document: Diagnosis, recording: Recording) -> None:
    kernels = _kernels(recording)
    collectives = [kernel for kernel in kernels if kernel.message is not None]
    (total,) = document.totals
    assert total.kernel_count == len(kernels)
    assert total.kernel_work_ns == sum(kernel.end - kernel.start for kernel in kernels)
    assert total.kernel_busy_ns == busy((kernel.start, kernel.end) for kernel in kernels)
    assert total.device_busy_ns == busy((operation.start, operation.end) for operation in recording.operations)
    assert total.transport_busy_ns == sum(kernel.end - kernel.start for kernel in collectives)  # never two at once in this job
    assert total.transport_exposed_ns == total.transport_busy_ns  # and nothing beside them
    assert document.steps.n == DEMO.steps
    assert document.capture.correlation_rate == 1.0
    assert document.capture.resolved_wait_rate == 1.0
    assert (document.capture.ranks[0].rank, document.capture.ranks[0].world_size) == (0, 16)


def test_the_expert_exchange_dominates(document: Diagnosis, recording: Recording) -> None:
    """By construction: the compute stream waits for every exchange, and nothing runs beside one; without them the step is that much shorter."""
    exchanges = [kernel for kernel in _kernels(recording) if kernel.message and kernel.message.group == EXPERT_GROUP]
    per_step = sum(kernel.end - kernel.start for kernel in exchanges) / DEMO.steps
    walls = {wall.wall: wall for wall in document.walls}
    assert document.verdict.dominant_wall == DEMO.about == "communication"
    assert walls["communication"].parts["expert"] == pytest.approx(per_step, rel=0.02)
    assert walls["communication"].parts["expert"] == max(walls["communication"].parts.values())
    saved = counterfactuals(DEMO.programs(), DEMO.offsets)[0]
    assert walls["communication"].bound_ns == pytest.approx(saved["communication"], abs=0.02 * step_time(recording))
    fixes = {fix.id: fix.state for finding in document.findings for fix in finding.fixes}
    assert fixes["COM-06"] == "applicable"


def test_both_formats_give_the_same_budget(from_nsys: Diagnosis, from_torch: Diagnosis) -> None:
    assert from_nsys.budget[0].per_step == from_torch.budget[0].per_step


def test_benchmark_inputs_repeat_the_demo_whole(tmp_path: Path, recording: Recording) -> None:
    """Times, correlations and event numbers are shifted together: every launch and every wait is found in every repetition."""
    database, text = tmp_path / "two.sqlite", tmp_path / "two.json"
    unpack(NSYS, database)
    repeat_nsys(database, 2 * len(_kernels(recording)))
    repeat_torch(FOLDER / TORCH, text, 2 * len(gzip.decompress((FOLDER / TORCH).read_bytes())))
    for path in (database, text):
        found = diagnose([path])
        assert found.totals[0].kernel_count == 2 * len(_kernels(recording))
        assert found.totals[0].kernel_work_ns == 2 * sum(kernel.end - kernel.start for kernel in _kernels(recording))
        assert (found.capture.correlation_rate, found.capture.resolved_wait_rate) == (1.0, 1.0)
        assert found.steps.n == 2 * DEMO.steps


# ---------------------------------------------------------------------------------------------- the command


def test_make_writes_what_a_scenario_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second time over the first
        assert command.main(["make", "ranks-missing", "--out", str(tmp_path), "--format", "both"]) == 0
    one = scenario.load("ranks-missing")
    captured = one.captured
    assert 0 < len(captured) < len(one.plan.machine.simulate)
    traces = {f"rank{rank}{ending}" for rank in captured for ending in (".sqlite", ".pt.trace.json")}
    folder = tmp_path / "ranks-missing"
    assert {path.name for path in folder.iterdir()} == {*traces, "job.yaml", "truth.json"}
    assert read_job(folder / "job.yaml").get("world_size") == one.plan.machine.world_size
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    *each, between = truth
    assert [item["rank"] for item in each] == list(captured)
    assert (between["schema"], between["captured"]) == ("simulated-ranks/1", list(captured))
    assert str(folder / "truth.json") in capsys.readouterr().out


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(scenario.names())
    assert all(line.endswith(scenario.load(line.split()[0]).title) for line in lines)


@pytest.mark.parametrize("words", [["make", "--out", "x"], ["make", "no-such", "--out", "x"], ["unpack", "no-such", "x"], []])
def test_a_wrong_command_says_so(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert "usage: python -m fixtures" in capsys.readouterr().err
