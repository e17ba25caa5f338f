"""Small ranks in both formats, and a real Dask scheduler with two workers in processes of their own."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders.simulated import traces
from tests.measure.test_pipeline import write
from tests.scale.tasks import mark_of

ROOT = Path(__file__).parents[2]
Ranks = Callable[..., list[Path]]


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    """Makes tiny PyTorch traces of those names, each a rank of its own."""

    def make(*names: str) -> list[Path]:
        folder = tmp_path / "traces"
        folder.mkdir(exist_ok=True)
        return [write(folder, name, rank=place, step=100 + 10 * place) for place, name in enumerate(names)]

    return make


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four simulated ranks in both formats, with their job file."""
    folder = tmp_path_factory.mktemp("job")
    for path in (*traces("ranks-straggler", "nsys"), *traces("ranks-straggler", "torch")):
        shutil.copy(path, folder)
        shutil.copy(path.with_name("job.yaml"), folder)
    return folder


class Killer(threading.Thread):
    """Kills the worker that takes one of the given inputs (or whom `victim_of` tells for it), as soon as it says that it has it."""

    def __init__(self, *victims: Path, victim_of: Callable[[int], int] = int) -> None:
        super().__init__(daemon=True)
        self.victims = victims
        self.victim_of = victim_of
        self.killed: list[int] = []

    def run(self) -> None:
        for victim in self.victims:
            self.killed.append(self.victim_of(taken(victim)))
            os.kill(self.killed[-1], signal.SIGKILL)


def taken(victim: Path, seconds: float = 300) -> int:
    """The process that has taken an input."""
    last = time.monotonic() + seconds
    while not mark_of(victim).exists():
        assert time.monotonic() < last, f"nobody took {victim.name}"
        time.sleep(0.02)
    return int(mark_of(victim).read_text())


@pytest.fixture(scope="session")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a running scheduler with two worker processes."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    here = ["--scheduler-file", str(file)]
    with start("scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", *here, folder=folder) as scheduler:
        wait_until(file.exists, scheduler)
        with start("worker", *here, "--no-dashboard", "--nworkers", "2", "--nthreads", "1", folder=folder):
            yield file


class start:  # noqa: N801 - reads as a verb
    """A command of Dask's for as long as the block lasts, in a group of its own that ends as a whole."""

    def __init__(self, kind: str, *arguments: str, folder: Path) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (folder / f"{kind}.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 300) -> None:
    last = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < last, "it did not start"
        time.sleep(0.05)
