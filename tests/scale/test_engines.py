"""Engines: the same bytes from all of them, whatever ends first, fails, or is killed. Real processes, a real Dask scheduler."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.encoding import encode
from diagnose.errors import InputError, MissingInputError, UsageError
from diagnose.pipeline import diagnose
from diagnose.scale import dask as dask_engine
from diagnose.scale import local
from diagnose.scale.dask import DaskEngine
from diagnose.scale.engine import Attempt, Engine, Outcome, Run, WorkerFaultError, attempt
from diagnose.scale.local import THREADS, LocalEngine, few_threads, processors, report_end
from tests.builders.cases import for_each
from tests.builders.processes import gone
from tests.scale import tasks
from tests.scale.conftest import ROOT, Killer, Ranks, start, taken, wait_until

Make = Callable[[Attempt], Engine]


DASK = (pytest.mark.dask, pytest.mark.deep)
LOCAL, CLUSTER, SCHEDULER = "local", pytest.param("dask", marks=DASK), pytest.param("scheduler", marks=DASK)


@pytest.fixture(params=[LOCAL, CLUSTER, SCHEDULER])
def each_engine(request: pytest.FixtureRequest) -> Make:
    """Makes the engine for a task function: two processes here, two of a Dask cluster of our own, or a cluster that runs already."""
    return made(request)


@pytest.fixture(params=[LOCAL, SCHEDULER])
def engine(request: pytest.FixtureRequest) -> Make:
    """The same without a cluster of our own, which takes seconds to start."""
    return made(request)


class Inside:
    """Runs tasks in this process: for what is concluded from outcomes, wherever they come from."""

    def __init__(self, task: Attempt) -> None:
        self.task = task

    def run(self, run: Run) -> Iterator[Outcome]:
        yield from (self.task(run.settings, one) for one in run.tasks)


def made(request: pytest.FixtureRequest) -> Make:
    if request.param == "inside":
        return Inside
    if request.param == "local":
        return lambda task: LocalEngine(jobs=2, task=task)
    pytest.importorskip("distributed", reason="distributed is not installed")
    if request.param == "dask":
        return lambda task: DaskEngine(jobs=2, task=task)
    file = request.getfixturevalue("scheduler_file")
    return lambda task: DaskEngine(scheduler=str(file), task=task)


def refused(found: Diagnosis) -> list[str]:
    return [entry.detail for entry in found.ledger if entry.code == "refused_input"]


# ---------------------------------------------------------------------------------------------------- the same bytes


@pytest.mark.deep
def test_the_same_bytes_from_every_engine(job: Path, each_engine: Make) -> None:
    """Nsight and PyTorch mixed, a pattern and a name."""
    given = [job / "*.sqlite", job / "rank1.pt.trace.json"]
    expected = encode(diagnose(given, config=job / "job.yaml"))
    assert encode(diagnose(given, config=job / "job.yaml", engine=each_engine(attempt))) == expected


@pytest.mark.deep
def test_the_same_bytes_whatever_ends_first(ranks: Ranks, engine: Make) -> None:
    traces = ranks("a", "b", "c", "d")
    assert encode(diagnose(traces, engine=engine(tasks.last_first))) == encode(diagnose(traces))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "diagnose", *map(str, arguments)], cwd=ROOT, capture_output=True, timeout=600, check=False)


@pytest.mark.dask
@pytest.mark.deep
def test_the_same_bytes_from_the_command_line(ranks: Ranks, scheduler_file: Path) -> None:
    import json

    folder = ranks("a", "b", "c")[0].parent
    address = json.loads(scheduler_file.read_text())["address"]
    ways = [["--jobs", "1"], ["--jobs", "2"], ["--engine", "dask", "--scheduler", address], ["--engine", "dask", "--jobs", "2"]]
    done = [run(folder, "--format", "json", *way) for way in ways]
    assert [(one.returncode, one.stderr) for one in done] == [(0, b"")] * len(ways)
    assert len({one.stdout for one in done}) == 1
    assert b'"ranks_captured"' in done[0].stdout


# ---------------------------------------------------------------------------------------------------- failures


def test_an_input_that_fails_is_told_and_the_others_go_on(ranks: Ranks, engine: Make) -> None:
    first, middle, last = ranks("a", "b", "c")
    middle.write_text("nothing of use")
    found = diagnose([first, middle, last], engine=engine(attempt))
    assert encode(found) == encode(diagnose([first, middle, last]))
    assert [rank.file for rank in found.capture.ranks] == ["a.json", "c.json"]
    assert len(refused(found)) == 1
    assert "b.json" in refused(found)[0]


def test_when_all_fail_the_first_error_is_raised(ranks: Ranks, engine: Make) -> None:
    traces = ranks("a", "b", "c")
    for trace in traces:
        trace.write_text("nothing of use")
    with pytest.raises(InputError, match=r"^a\.json"):
        diagnose(traces, engine=engine(tasks.last_first))


def test_an_error_that_is_not_about_one_input_ends_the_run(ranks: Ranks, engine: Make) -> None:
    with pytest.raises(UsageError, match="marks no step"):
        diagnose(ranks("a", "b"), step_range="nothing", engine=engine(attempt))


def test_a_fault_in_a_worker_is_a_fault_with_its_traceback(ranks: Ranks, engine: Make) -> None:
    with pytest.raises(WorkerFaultError, match=r"victim\.json: TypeError") as raised:
        diagnose(ranks("a", "victim", "c"), engine=engine(tasks.faulty))
    assert "Traceback" in str(raised.value)
    assert "engine.py" in str(raised.value)


@pytest.mark.parametrize(
    ("task", "said"),
    [(tasks.other_version, r"A worker has diagnose .*, and this is 0\.0\.1"), (tasks.other_rules, "rules of a worker differ")],
)
@pytest.mark.parametrize("each_engine", ["inside", pytest.param("local", marks=pytest.mark.deep), SCHEDULER], indirect=True)
def test_a_worker_with_another_version_or_other_rules_is_refused(ranks: Ranks, each_engine: Make, task: Attempt, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        diagnose(ranks("a", "b"), engine=each_engine(task))


# ---------------------------------------------------------------------------------------------------- workers that die


@pytest.mark.deep
@for_each("names", "a b victim c d", "a victim-1 b victim-2 c")
def test_killed_workers_change_nothing(ranks: Ranks, each_engine: Make, names: str) -> None:
    traces = ranks(*names.split())
    victims = [path for path in traces if path.name.startswith("victim")]
    expected = encode(diagnose(traces))
    killer = Killer(*victims)
    killer.start()
    found = diagnose(traces, engine=each_engine(tasks.held))
    killer.join(10)
    assert len(killer.killed) == len(victims)
    assert encode(found) == expected


@pytest.mark.deep
def test_the_log_names_what_was_in_flight_and_how_the_worker_ended(ranks: Ranks) -> None:
    traces = ranks("a", "b", "victim", "c")
    log: list[str] = []
    killer = Killer(traces[2])
    killer.start()
    diagnose(traces, engine=LocalEngine(jobs=2, task=tasks.held), notice=log.append)
    assert len(log) == 1
    assert "by SIGKILL" in log[0]
    assert "victim.json" in log[0]
    assert log[0].count(".json") <= 2, "no more in flight than workers"


@pytest.mark.deep
@pytest.mark.parametrize("kind", [LOCAL, CLUSTER])
def test_an_input_that_always_ends_its_worker_is_a_failed_input(ranks: Ranks, kind: str) -> None:
    traces = ranks("a", "victim", "b", "c")
    engine: Engine = LocalEngine(jobs=2, task=tasks.deadly) if kind == "local" else DaskEngine(jobs=2, task=tasks.deadly)
    found = diagnose(traces, engine=engine)
    assert refused(found) == ["victim.json ended its worker process in each of 3 attempts."]
    assert traces[1].with_suffix(".attempts").read_text() == "xxx"
    assert [rank.file for rank in found.capture.ranks] == ["a.json", "b.json", "c.json"], "whoever shared a pool with it is not to blame"


def test_workers_that_cannot_start_are_a_fault_at_once(ranks: Ranks) -> None:
    with pytest.raises(WorkerFaultError, match="exit status 3"):
        diagnose(ranks("a", "b", "c"), engine=LocalEngine(jobs=2, task=tasks.exits))


@for_each("codes, raised", ([3, 3], True), ([3, -signal.SIGKILL], False), ([-signal.SIGKILL], False), ([None, -signal.SIGTERM], False))
def test_only_workers_that_end_by_themselves_before_any_work_are_a_fault(codes: list[int | None], raised: bool) -> None:
    log: list[str] = []
    run = SimpleNamespace(notice=log.append)
    try:
        report_end(run, [SimpleNamespace(name="a.json")], [SimpleNamespace(exitcode=code) for code in codes], some_ended=False)  # type: ignore[arg-type, list-item]
    except WorkerFaultError:
        assert raised
        return
    assert not raised
    assert "a.json" in log[0]


@pytest.mark.deep
@pytest.mark.parametrize("kind", [LOCAL, CLUSTER])
def test_ctrl_c_ends_the_workers_at_once(ranks: Ranks, kind: str) -> None:
    traces = ranks("victim-1", "victim-2", "a")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scale.interrupted", kind, *map(str, traces)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    workers = [taken(trace) for trace in traces[:2]]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to everyone
    _, said = process.communicate(timeout=600)  # the tasks would take an hour
    assert process.returncode == 130, said
    assert said.decode().splitlines()[-1] == "interrupted"
    assert b"Traceback" not in said
    assert all(gone(worker, 60) for worker in workers)


def test_a_new_worker_leaves_ctrl_c_to_its_parent_and_watches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, object] = {}
    watching = threading.Event()
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(local, "end_with_parent", watching.set)
    local.prepare()
    assert watching.wait(60)
    assert handlers == {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: local.unwind}


@pytest.mark.deep
def test_workers_do_not_outlive_a_killed_parent(ranks: Ranks) -> None:
    traces = ranks("victim-1", "victim-2", "a")
    process = subprocess.Popen([sys.executable, "-m", "tests.scale.interrupted", "local", *map(str, traces)], cwd=ROOT)
    workers = [taken(trace) for trace in traces[:2]]
    process.kill()
    process.wait()
    assert all(gone(worker, 60) for worker in workers)


# ---------------------------------------------------------------------------------------------------- Dask alone


@pytest.mark.dask
@pytest.mark.deep
def test_a_file_that_only_this_machine_sees_is_told_so(ranks: Ranks, scheduler_file: Path) -> None:
    traces, engine = ranks("a", "victim", "b"), DaskEngine(scheduler=str(scheduler_file), task=tasks.unseeing)
    said = "victim.json is here, but the Dask worker that was to read it does not see it."
    assert refused(diagnose([traces[0].parent], engine=engine)) == [said]
    with pytest.raises(MissingInputError, match=said):  # named: the others alone would pass for the whole
        diagnose(traces, engine=engine)


def test_a_file_that_is_nowhere_is_told_as_by_every_engine(ranks: Ranks, engine: Make) -> None:
    traces = [*ranks("a", "b"), Path("nowhere.json")]
    with pytest.raises(MissingInputError, match=r"nowhere\.json does not exist\."):
        diagnose(traces, engine=engine(attempt))


def test_a_cluster_of_our_own_has_processes_of_one_thread_each_and_listens_here_alone() -> None:
    """A reader holds its process's interpreter for long, and what kills one must not take the others along."""
    pytest.importorskip("dask", reason="dask is not installed")
    asked: list[dict[str, object]] = []
    cluster = SimpleNamespace(close=lambda: asked.append({"closed": True}))
    distributed = SimpleNamespace(LocalCluster=lambda **options: asked.append(options) or cluster)
    with dask_engine.own_cluster(distributed, 3) as own:
        assert own is cluster
        assert {name: asked[0][name] for name in ("n_workers", "threads_per_worker", "processes", "host")} == {
            "n_workers": 3, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1",
        }  # fmt: skip
        assert asked[1:] == []
    assert asked[1:] == [{"closed": True}]


def test_without_distributed_the_command_to_install_it_is_told(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'moe-diagnose\[dask\]'"):
        diagnose(ranks("a", "b"), engine=DaskEngine())


@for_each(
    "scheduler, said",
    ("tcp://127.0.0.1:9", "can't be reached"), ("missing.json", "no scheduler file"), ("{file}", "names no address"),
)  # fmt: skip
def test_a_scheduler_that_cannot_be_reached_is_told(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str, said: str
) -> None:
    monkeypatch.setattr(dask_engine, "CONNECT_S", 1)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=said):
        diagnose(ranks("a", "b"), engine=DaskEngine(scheduler=scheduler.format(file=tmp_path / "broken.json")))


@pytest.mark.dask
@pytest.mark.deep
def test_a_cluster_without_workers_and_one_without_diagnose_are_told(ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setattr(dask_engine, "WORKERS_S", 1)
    file = tmp_path / "scheduler.json"
    (tmp_path / "without.py").write_text("import sys\nsys.modules['diagnose.scale.engine'] = None\n")
    here = ["--scheduler-file", str(file)]
    log: list[str] = []
    with start(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", *here, folder=tmp_path
    ) as scheduler:
        wait_until(file.exists, scheduler)
        engine = DaskEngine(scheduler=str(file))
        with pytest.raises(UsageError, match="has no workers"):
            diagnose(ranks("a", "b"), engine=engine, notice=log.append)
        assert "no worker yet" in log[0]
        monkeypatch.setattr(dask_engine, "WORKERS_S", 60)
        with (
            start("worker", *here, "--no-dashboard", "--no-nanny", "--preload", str(tmp_path / "without.py"), folder=tmp_path),
            pytest.raises(UsageError, match="can't run this version of diagnose"),
        ):
            diagnose(ranks("a", "b"), engine=engine)


@pytest.mark.dask
@pytest.mark.deep
def test_a_scheduler_that_ends_in_the_middle_is_told(ranks: Ranks, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    file = tmp_path / "scheduler.json"
    traces = ranks("victim", "a")
    here = ["--scheduler-file", str(file)]
    with start(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", *here, folder=tmp_path
    ) as scheduler:
        wait_until(file.exists, scheduler)
        with start("worker", "--no-dashboard", "--no-nanny", *here, folder=tmp_path):
            killer = Killer(traces[0], victim_of=lambda _: scheduler.pid)
            killer.start()
            with pytest.raises(UsageError, match="dropped the task"):
                diagnose(traces, engine=DaskEngine(scheduler=str(file), task=tasks.held))


# ---------------------------------------------------------------------------------------------------- threads


def test_workers_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    with few_threads(1):
        assert os.environ[THREADS] == str(processors())
    with few_threads(10_000):
        assert os.environ[THREADS] == "1"
    assert THREADS not in os.environ
    monkeypatch.setenv(THREADS, "3")
    with few_threads(2):
        assert os.environ[THREADS] == "3", "the user's own choice"
    assert os.environ[THREADS] == "3"


@pytest.mark.deep
@pytest.mark.parametrize("kind", [LOCAL, CLUSTER])
def test_polars_in_a_worker_keeps_to_its_share(ranks: Ranks, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    engine: Engine = LocalEngine(jobs=2, task=tasks.threads) if kind == "local" else DaskEngine(jobs=2, task=tasks.threads)
    with pytest.raises(InputError, match=rf"^{max(1, processors() // 2)} threads"):
        diagnose(ranks("a", "b"), engine=engine)
