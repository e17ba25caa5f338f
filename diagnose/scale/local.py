"""Processes on this machine.

As many tasks are in flight as there are workers, so that memory is bounded by them and a broken pool leaves few suspects. When a worker
dies (most often because memory ran out), nobody knows which of the tasks in flight was to blame: each of them is run again by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType
from typing import Any

from msgspec import Struct

from diagnose.scale.engine import MOST_ATTEMPTS, Attempt, HereEngine, Outcome, Run, Settings, Task, WorkerFaultError, attempt, lost

TICK_S = 1.0  # how often a run says that it is alive
GRACE_S = 2.0  # for a worker to stop its nsys and remove its private folder before it is killed
THREADS = "POLARS_MAX_THREADS"


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def few_threads(workers: int) -> Iterator[None]:
    """Processes that are started inside share the processors: polars reads the variable once, when it is imported."""
    before = os.environ.get(THREADS)
    os.environ.setdefault(THREADS, str(max(1, processors() // workers)))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(THREADS, None)


class _Workers(SpawnContext):
    """Spawned processes, kept in `started`: a pool does not tell which are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802 - the context's name for it
        """Start none yet, but remember it."""
        process = SpawnProcess(*arguments, **named)
        self.started.append(process)
        return process


class LocalEngine(Struct, frozen=True, kw_only=True):
    """Up to `jobs` processes; by default one per processor. One job, or one input, needs no process beside this one."""

    jobs: int | None = None
    task: Attempt = attempt

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """As the protocol says."""
        workers = min(self.jobs or processors(), len(run.tasks))
        if workers <= 1:
            yield from HereEngine().run(run)
            return
        attempts: Counter[int] = Counter()
        waiting, suspects = deque(run.tasks), deque[Task]()
        with few_threads(workers):
            while waiting or suspects:
                queue, size = (suspects, 1) if suspects else (waiting, workers)
                for task in (yield from self._until_broken(run, queue, size)):
                    attempts[task.place] += 1
                    if attempts[task.place] < MOST_ATTEMPTS:
                        suspects.append(task)
                    else:
                        yield Outcome(place=task.place, result=lost(task.name))

    def _until_broken(self, run: Run, queue: deque[Task], size: int) -> Generator[Outcome | None, None, list[Task]]:
        """Run tasks from `queue` in a fresh pool, until none is left or a worker dies; the tasks that were in flight then."""
        context = _Workers()
        pool = ProcessPoolExecutor(size, mp_context=context, initializer=prepare)
        flying: dict[Future[Outcome], Task] = {}
        broken: list[Task] = []
        whole = False
        some_ended = False
        try:
            while flying or (queue and not broken):
                while queue and len(flying) < size and not broken:
                    task = queue.popleft()
                    try:
                        flying[pool.submit(_run, self.task, run.settings, task)] = task
                    except BrokenProcessPool:
                        broken.append(task)
                ended, _ = wait(flying, timeout=TICK_S, return_when=FIRST_COMPLETED)
                if not ended:
                    yield None
                for future in ended:
                    task = flying.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        broken.append(task)
                    else:
                        some_ended = True
                        yield outcome
            whole = not broken
        finally:
            if not whole:
                _end(context.started)
            pool.shutdown(wait=True, cancel_futures=True)
        if broken:
            report_end(run, broken, context.started, some_ended=some_ended)
        return sorted(broken, key=lambda task: task.place)


def report_end(run: Run, broken: list[Task], started: list[SpawnProcess], *, some_ended: bool) -> None:
    """Log what happened. Raises WorkerFaultError where processes do not even start: every other task would end the same way."""
    codes = sorted({code for process in started if (code := process.exitcode) not in (None, 0, -signal.SIGTERM)})
    names = ", ".join(sorted(task.name for task in broken))
    if not some_ended and codes and all(code is not None and code > 0 for code in codes):
        raise WorkerFaultError(f"worker processes end with exit status {codes[0]} before they have done anything ({names})")
    reasons = " and ".join(f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit status {code}" for code in codes)
    run.notice(f"A worker process was ended{' ' + reasons if reasons else ''}. In flight were: {names}. Each is tried again by itself.")


def _run(task: Attempt, settings: Settings, what: Task) -> Outcome:
    """One task in a worker. Asked to end, it has unwound (nsys stopped, private folder removed) when SystemExit arrives here."""
    try:
        return task(settings, what)
    except SystemExit:
        os._exit(128 + signal.SIGTERM)  # the pool's own loop would go on


def prepare() -> None:
    """In a new worker: leave Ctrl-C to the parent, unwind when asked to end, and end when the parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, unwind)
    threading.Thread(target=end_with_parent, daemon=True).start()


def unwind(_signal: int, _frame: FrameType | None) -> None:
    """Asked to end (SIGTERM): leave as an exception, so that temporary folders are removed."""
    raise SystemExit(128 + signal.SIGTERM)


def end_with_parent() -> None:
    """Once the parent has gone: unwind, and after a while end in any case."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait_for([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(128 + signal.SIGTERM)


def _end(processes: list[SpawnProcess]) -> None:
    """End all of them, politely first; no longer than the time of grace."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    last = time.monotonic() + GRACE_S
    for process in processes:
        process.join(max(0.0, last - time.monotonic()))
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
