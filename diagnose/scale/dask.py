"""Workers of a Dask cluster, the engine that NVIDIA's own recipes use: one that runs already, or one that is started here and closed.

Needs the package `distributed` (the extra `dask`), imported only when the engine is used. A task whose worker dies is started again by the
scheduler as often as its own settings allow, and then at most twice more from here, by itself.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import replace

from diagnose.errors import MissingInputError, UsageError
from diagnose.scale.engine import MOST_ATTEMPTS, Attempt, Outcome, Run, Settings, Task, attempt, lost
from diagnose.scale.local import few_threads, processors

CONNECT_S = 15  # how long a scheduler may take to answer
WORKERS_S = 60  # how long a cluster may take to have a first worker
_NOTHING = "Nothing was analysed."


class DaskEngine(Struct, frozen=True, kw_only=True):
    """The cluster behind `scheduler` (an address such as tcp://host:8786, or a scheduler file).

    Without it, one of `jobs` processes that is started here.
    """

    scheduler: str | None = None
    jobs: int | None = None
    task: Attempt = attempt

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """As the protocol says."""
        distributed = _distributed()
        with self._client(distributed, run) as client:
            # paths that mean the same in any folder
            rules, nsys = tuple(path.absolute() for path in run.settings.rules), run.settings.nsys
            settings = replace(run.settings, rules=rules, nsys=nsys.absolute() if nsys else None)
            work = _Work(distributed, client, self.task, settings)
            # alone, each has the cluster to itself: a worker that dies then was ended by this very task
            suspects: deque[Task] = deque()
            attempts: Counter[int] = Counter()
            try:
                yield from work.outcomes([replace(task, path=Path(task.path).absolute()) for task in run.tasks], suspects, run)
                while suspects:
                    task = suspects.popleft()
                    attempts[task.place] += 1
                    if attempts[task.place] < MOST_ATTEMPTS:
                        yield from work.outcomes([task], suspects, run)
                    else:
                        yield Outcome(place=task.place, result=lost(task.name))
            finally:
                work.cancel()

    @contextmanager
    def _client(self, distributed: Any, run: Run) -> Iterator[Any]:
        """A client of the cluster; of one that is started here, the cluster ends with it. Raises UsageError."""
        if self.scheduler is None:
            workers = min(self.jobs or processors(), len(run.tasks))
            with (
                few_threads(workers),
                own_cluster(distributed, workers) as cluster,
                distributed.Client(cluster, set_as_default=False) as own,
            ):
                yield own
            return
        with _connected(distributed, self.scheduler) as client:
            if not client.scheduler_info()["workers"]:
                run.notice(f"The scheduler at {self.scheduler} has no worker yet; waiting up to {WORKERS_S} s for one.")
                try:
                    client.wait_for_workers(1, timeout=WORKERS_S)
                except TimeoutError:
                    raise UsageError(
                        f"The Dask scheduler at {self.scheduler} has no workers.",
                        effect=_NOTHING,
                        next_step="Start some with: dask worker SCHEDULER, in an environment that has this diagnose.",
                    ) from None
            yield client


def _distributed() -> Any:
    try:
        import distributed  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise UsageError(
            "--engine dask needs the package distributed, which is not installed here.",
            effect=_NOTHING,
            next_step="Install it with: pip install 'moe-diagnose[dask]' — or leave out --engine dask.",
        ) from None
    return distributed


@contextmanager
def own_cluster(distributed: Any, workers: int) -> Iterator[Any]:
    """Worker processes of one thread each, under the same limits as those of the local engine."""
    import dask  # noqa: PLC0415

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):  # who dies is tried again from here, by itself
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # None would take the default port, and warn where another cluster has it
                silence_logs=logging.CRITICAL,
            )
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"No Dask cluster could be started here: {' '.join(str(error).split())[:200]}.",
                effect=_NOTHING,
                next_step="Leave out --engine dask to use processes, or name a scheduler that runs with --scheduler.",
            ) from None
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def _connected(distributed: Any, scheduler: str) -> Iterator[Any]:
    address = _address(scheduler)
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"The Dask scheduler at {scheduler} can't be reached: {reason}.",
            effect=_NOTHING,
            next_step="Check that it runs and that this machine may connect to it, or leave out --scheduler.",
        ) from None
    with client:
        yield client


def _address(scheduler: str) -> str:
    """The address itself, or the one that a scheduler file holds. Raises UsageError."""
    file = Path(scheduler)
    if not file.is_file():
        if ":" in scheduler:
            return scheduler
        raise UsageError(
            f"There is no scheduler file {scheduler}.",
            effect=_NOTHING,
            next_step="Give tcp://HOST:PORT, or the file that dask scheduler wrote.",
        )
    try:
        address = json.loads(file.read_bytes())["address"]
    except (OSError, ValueError, KeyError, TypeError):
        address = None
    if not isinstance(address, str):
        raise UsageError(
            f"{scheduler} is no scheduler file: it names no address.", effect=_NOTHING, next_step="Give the file that dask scheduler wrote."
        )
    return address


class _Call:
    """A call that is made where its pickle is loaded.

    A cluster is handed plain bytes: a scheduler or worker that lacks this package does not stumble over a message that it can't read (it
    would try again for ever); the task fails instead, with an error that says so.
    """

    def __init__(self, task: Attempt, settings: Settings, what: Task) -> None:
        self._parts = task, (settings, what)

    def __reduce__(self) -> tuple[Attempt, tuple[Settings, Task]]:
        return self._parts


class _Work(Struct, frozen=True):
    """Tasks handed to a cluster, and their outcomes."""

    distributed: Any
    client: Any
    task: Attempt
    settings: Settings
    flying: dict[Any, Task] = field(default_factory=dict)

    def outcomes(self, tasks: list[Task], suspects: deque[Task], run: Run) -> Iterator[Outcome]:
        """The outcome of each task but of those whose worker died, which join `suspects`.

        A result is let go here and on its worker once it is yielded.
        """
        prefix = f"diagnose-{uuid4().hex}"  # never a key that was used before, so that no old result is taken for a new one
        for task in tasks:
            call = pickle.dumps(_Call(self.task, self.settings, task))
            future = self.client.submit(pickle.loads, call, key=(prefix, task.place), pure=False, retries=MOST_ATTEMPTS - 1)
            self.flying[future] = task
        for future in self.distributed.as_completed(list(self.flying), loop=self.client.loop):
            task = self.flying.pop(future)
            outcome = self._outcome(future, task)
            future.release()
            if outcome is None:
                suspects.append(task)
                run.notice(f"The Dask worker that ran {task.name} died. It is tried again by itself.")
            else:
                yield outcome

    def _outcome(self, future: Any, task: Task) -> Outcome | None:
        """What became of a task that has ended; None where its worker died.

        Waits again where a worker died with the result. Raises what ends the run.
        """
        try:
            return _seen(future.result(), task)
        except self.distributed.KilledWorker:
            return None
        except self.distributed.CancelledError:
            raise UsageError(
                f"The Dask scheduler dropped the task of {task.name}.",
                effect="There is no result.",
                next_step="Look at the scheduler's log: it was closed, or the connection to it was lost.",
            ) from None
        except (ImportError, AttributeError) as error:  # the call could not be read there
            raise UsageError(
                f"A Dask worker can't run this version of diagnose: {' '.join(str(error).split())[:200]}.",
                effect=_NOTHING,
                next_step="Install the same moe-diagnose in the environment of every worker.",
            ) from error

    def cancel(self) -> None:
        """Let go of everything that is still in flight."""
        if self.flying:
            self.client.cancel(list(self.flying), force=True)
            self.flying.clear()


def _seen(outcome: Outcome, task: Task) -> Outcome:
    """The outcome; where a worker can't see a file that this process can, an error that says so."""
    if isinstance(outcome.result, MissingInputError) and Path(task.path).exists():
        unseen = MissingInputError(
            f"{task.name} is here, but the Dask worker that was to read it does not see it.",
            effect=outcome.result.effect,
            next_step="Put the traces on a file system that all workers mount at the same path.",
        )
        return replace(outcome, result=unseen)
    return outcome
