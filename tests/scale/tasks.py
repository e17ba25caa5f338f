"""Task functions for workers in tests: what happens to an input depends on its name, and what happened before on a file beside it."""

import os
import signal
import time
from pathlib import Path

import polars as pl

from diagnose.errors import InputError
from diagnose.scale.engine import Outcome, Settings, Task, attempt
from tests.builders.records import replace


def mark_of(path: str | Path) -> Path:
    """Where a worker writes its process id when it takes an input."""
    return Path(path).with_suffix(".pid")


def held(settings: Settings, task: Task) -> Outcome:
    """A victim's first attempt says where it runs and waits to be killed."""
    mark = mark_of(task.path)
    if "victim" in task.name and not mark.exists():
        mark.with_suffix(".new").write_text(str(os.getpid()))
        mark.with_suffix(".new").rename(mark)
        time.sleep(3600)
    return attempt(settings, task)


def deadly(settings: Settings, task: Task) -> Outcome:
    """A victim ends its worker each time; the attempts are counted beside it."""
    if "victim" in task.name:
        with Path(task.path).with_suffix(".attempts").open("a") as file:
            file.write("x")
        time.sleep(0.3)  # let another task be in flight
        os.kill(os.getpid(), signal.SIGKILL)
    return attempt(settings, task)


def exits(settings: Settings, task: Task) -> Outcome:
    """Like a worker that can't start."""
    os._exit(3)


def faulty(settings: Settings, task: Task) -> Outcome:
    """A victim meets an exception that nobody foresaw."""
    return attempt(settings, replace(task, path=5) if "victim" in task.name else task)  # type: ignore[arg-type]


def other_version(settings: Settings, task: Task) -> Outcome:
    """A worker of another version."""
    return attempt(replace(settings, version="0.0.1"), task)


def other_rules(settings: Settings, task: Task) -> Outcome:
    """A worker with other rules."""
    return attempt(replace(settings, rules_sha256="0" * 64), task)


def unseeing(settings: Settings, task: Task) -> Outcome:
    """A worker that does not see a victim's file."""
    return attempt(settings, replace(task, path=f"{task.path}.elsewhere") if "victim" in task.name else task)


def last_first(settings: Settings, task: Task) -> Outcome:
    """The first inputs end last."""
    time.sleep(max(0.0, 0.9 - 0.3 * task.place))
    return attempt(settings, task)


def threads(settings: Settings, task: Task) -> Outcome:
    """Says how many threads polars has here."""
    return Outcome(place=task.place, result=InputError(f"{pl.thread_pool_size()} threads"))
