"""The synthetic traces: reproducible, self-consistent, alike in both formats, and diagnosed as they were made."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.inputs import repeat_nsys, repeat_torch
from diagnose.diagnosis import Diagnosis
from diagnose.pipeline import diagnose
from fixtures.__main__ import FOLDER, NSYS, TORCH, make, unpack
from fixtures.machine import Machine, Operation, Recording
from fixtures.model import AUTOGRAD, BASE_MODEL, MAIN
from fixtures.nsys_writer import SYNTHETIC
from fixtures.torch_writer import BASE_NS
from fixtures.training import demo

JOB = FOLDER.parent / "jobs" / "qwen3_30b_a3b_alltoall_h100.yaml"
STEPS, MICRO_BATCHES = 4, 2


@pytest.fixture(scope="module")
def recording() -> Recording:
    return demo()


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


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def _kernels(recording: Recording) -> list[Operation]:
    return [operation for operation in recording.operations if operation.kind == "kernel"]


def test_the_checked_in_traces_are_what_the_simulator_makes(recording: Recording, database: Path, tmp_path: Path) -> None:
    make(recording, tmp_path)
    assert gzip.decompress((tmp_path / TORCH).read_bytes()) == gzip.decompress((FOLDER / TORCH).read_bytes())
    fresh = tmp_path / "fresh.sqlite"
    fresh.write_bytes(gzip.decompress((tmp_path / NSYS).read_bytes()))
    assert _dump(fresh) == _dump(database)


def test_the_same_recording_gives_the_same_bytes(recording: Recording, tmp_path: Path) -> None:
    one, two = (make(recording, tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_the_traces_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 600_000


def test_the_traces_say_that_they_are_synthetic(database: Path) -> None:
    assert json.loads(gzip.decompress((FOLDER / TORCH).read_bytes()))["synthetic"] == SYNTHETIC
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT value FROM META_DATA_EXPORT WHERE name = 'DERIVED_BY'").fetchall() == [(SYNTHETIC,)]
        assert (SYNTHETIC,) in opened.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall()


def test_operations_of_a_stream_keep_their_order(recording: Recording) -> None:
    ends: dict[int, int] = {}
    by_issue = sorted(recording.operations, key=lambda operation: operation.correlation)
    for operation in by_issue:
        assert operation.start >= ends.get(operation.stream, 0)
        assert operation.end > operation.start
        ends[operation.stream] = operation.end


def test_nothing_starts_before_it_is_issued(recording: Recording) -> None:
    issued = {call.correlation: call.end for call in recording.calls}
    assert len(issued) == len(recording.calls)
    assert all(operation.start > issued[operation.correlation] for operation in recording.operations)


def test_waits_hold_and_synchronisations_block(recording: Recording) -> None:
    streams: dict[int, list[Operation]] = defaultdict(list)
    for operation in sorted(recording.operations, key=lambda operation: operation.correlation):
        streams[operation.stream].append(operation)
    checked = 0
    for item in recording.dependencies:
        if item.kind == "stream_wait":
            covered = [operation.end for operation in streams[item.record_stream] if operation.correlation < item.record_correlation]
            later = [operation.start for operation in streams[item.stream] if operation.correlation > item.correlation]
            if covered and later:
                assert later[0] >= covered[-1]
                checked += 1
        elif item.kind == "stream_sync":
            covered = [operation.end for operation in streams[item.stream] if operation.correlation < item.correlation]
            assert item.end >= covered[-1]
            checked += 1
    assert checked > 1000


def test_ranges_nest_on_each_thread(recording: Recording) -> None:
    for thread in (MAIN, AUTOGRAD):
        open_ends: list[int] = []
        for item in (one for one in recording.ranges if one.thread == thread):
            while open_ends and open_ends[-1] <= item.start:
                open_ends.pop()
            assert not open_ends or item.end <= open_ends[-1]
            open_ends.append(item.end)


def test_both_files_hold_the_same_operations(recording: Recording, database: Path) -> None:
    true = sorted((kernel.start, kernel.end, kernel.stream, kernel.correlation) for kernel in _kernels(recording))
    with closing(sqlite3.connect(database)) as opened:
        nsys = opened.execute('SELECT start, "end", streamId, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 2, 3').fetchall()
        origin = opened.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0] - BASE_NS
    document = json.loads(gzip.decompress((FOLDER / TORCH).read_bytes()), parse_float=Decimal)
    torch = []
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            start = int(event["ts"] * 1000) - origin
            torch.append((start, start + int(event["dur"] * 1000), event["args"]["stream"], event["args"]["correlation"]))
    assert sorted(nsys) == true
    assert sorted(torch) == true


def test_exchanges_per_step_are_those_of_the_dispatcher(recording: Recording) -> None:
    """Tokens, probabilities and combine: three all-to-all per layer, micro-batch and direction."""
    exchanges = [kernel for kernel in _kernels(recording) if kernel.message and kernel.message.collective == "all_to_allv"]
    assert len(exchanges) == 3 * 2 * BASE_MODEL.layers * MICRO_BATCHES * STEPS
    for kernel in exchanges:
        assert kernel.message is not None
        rows = sum(kernel.message.splits_in)
        assert kernel.message.elements_in % rows == 0
        assert rows == BASE_MODEL.tokens * BASE_MODEL.top_k


def test_the_clock_stops_for_synchronisation() -> None:
    machine = Machine(seed=1)
    machine.copy("h2d", 25_000_000, stream=7)  # a millisecond
    machine.synchronize(7)
    made = machine.recording()
    assert machine.now >= made.operations[0].end
    assert made.calls[-1].end == machine.now


@pytest.mark.parametrize("name", ["from_nsys", "from_torch"])
def test_totals_equal_the_truth(name: str, recording: Recording, request: pytest.FixtureRequest) -> None:
    document: Diagnosis = request.getfixturevalue(name)
    kernels = _kernels(recording)
    collectives = [kernel for kernel in kernels if kernel.message is not None]
    (total,) = document.totals
    assert total.kernel_count == len(kernels)
    assert total.kernel_work_ns == sum(kernel.end - kernel.start for kernel in kernels)
    assert total.transport_busy_ns == sum(kernel.end - kernel.start for kernel in collectives)  # never two at once in this job
    assert total.transport_exposed_ns == total.transport_busy_ns  # and nothing beside them
    assert document.steps.n == STEPS
    assert document.capture.correlation_rate == 1.0
    assert document.capture.resolved_wait_rate == 1.0
    assert (document.capture.ranks[0].rank, document.capture.ranks[0].world_size) == (0, 16)


@pytest.mark.parametrize("name", ["from_nsys", "from_torch"])
def test_the_expert_exchange_dominates(name: str, recording: Recording, request: pytest.FixtureRequest) -> None:
    """By construction: the compute stream waits for every exchange, and nothing runs beside one."""
    document: Diagnosis = request.getfixturevalue(name)
    exchanges = [kernel for kernel in _kernels(recording) if kernel.message and kernel.message.group == "EXPERT_MODEL_PARALLEL_GROUP"]
    per_step = sum(kernel.end - kernel.start for kernel in exchanges) / STEPS
    walls = {wall.wall: wall for wall in document.walls}
    assert document.verdict.dominant_wall == "communication"
    assert walls["communication"].parts["expert"] == pytest.approx(per_step, rel=0.02)
    assert walls["communication"].parts["expert"] == max(walls["communication"].parts.values())
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
        document = diagnose([path])
        assert document.totals[0].kernel_count == 2 * len(_kernels(recording))
        assert document.totals[0].kernel_work_ns == 2 * sum(kernel.end - kernel.start for kernel in _kernels(recording))
        assert (document.capture.correlation_rate, document.capture.resolved_wait_rate) == (1.0, 1.0)
        assert document.steps.n == 2 * STEPS
