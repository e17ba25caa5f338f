"""One task: load one input, measure it, give its summary back. What every engine runs, in this process or in a worker's.

A task gets `Settings` and a `Task`, both small. Rules are not sent: each process reads them once and compares their digest with the
caller's.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from diagnose.errors import DiagnoseError, InputError, UsageError
from diagnose.knowledge.load import Knowledge, load_knowledge
from diagnose.load.readers import load
from diagnose.measure.capture import Measured, measure
from diagnose.version import __version__

MOST_ATTEMPTS = 3  # a task whose worker dies is started again at most twice


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all tasks of a run share. `rules_sha256` and `version` are those of the process that asks."""

    rules: tuple[Path, ...]
    rules_sha256: str
    step_range: str | None
    nsys: Path | None
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class Task:
    """One input: its place in the order of inputs, its path, and the rank that the user gave it."""

    place: int
    path: str | Path
    name: str
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An exception in a worker that is nobody's input: ours. `errno` where the system raised it."""

    what: str
    trace: str
    errno: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the task at `place` ended: measured, refused with a sentence, or by a fault."""

    place: int
    result: Measured | DiagnoseError | Fault


Attempt: TypeAlias = Callable[[Settings, Task], Outcome]


class WorkerFaultError(Exception):
    """A fault of the program inside a worker; its text holds the worker's traceback."""


@lru_cache(maxsize=2)
def _kept_knowledge(rules: tuple[Path, ...], rules_sha256: str) -> Knowledge:
    """The rules, read once per process; the digest is part of the key, so that a long-lived worker reads changed files again."""
    knowledge = load_knowledge(rules)
    if knowledge.rulebook.sha256 != rules_sha256:
        raise UsageError(
            "The rules of a worker differ from those here.",
            effect="Its figures would not be comparable; nothing was analysed.",
            next_step="Install the same diagnose everywhere, and let --rules name files that all machines share.",
        )
    return knowledge


def measured(task: Task, settings: Settings, knowledge: Knowledge, say: Callable[[str], None]) -> Measured:
    """The summary of one input. Raises InputError where it can't be analysed."""
    say(f"reading {task.name}")
    trace = load(task.path, rank=task.rank, nsys=settings.nsys, rules=knowledge.environment)
    say(f"measuring {task.name}")
    return measure(trace, knowledge, settings.step_range)


def attempt(settings: Settings, task: Task) -> Outcome:
    """The task as a worker runs it: never raises, since not every exception can travel between processes."""
    try:
        _check_version(settings.version)
        return Outcome(place=task.place, result=measured(task, settings, _kept_knowledge(settings.rules, settings.rules_sha256), _silent))
    except DiagnoseError as error:
        return Outcome(place=task.place, result=error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # noqa: BLE001 - the end of a worker's run: what came travels as text
        return Outcome(place=task.place, result=fault_of(task.name, fault))


def _check_version(asked: str) -> None:
    """Raise UsageError unless the process that asks runs this version."""
    if asked != __version__:
        raise UsageError(
            f"A worker has diagnose {__version__}, and this is {asked}.",
            effect="Their figures would not be comparable; nothing was analysed.",
            next_step="Install the same version everywhere.",
        )


def _silent(_: str) -> None:
    """Workers have nobody to tell what they do just now."""


def fault_of(name: str, fault: BaseException) -> Fault:
    """What travels of an exception."""
    first = (str(fault).splitlines() or [""])[0][:300]
    return Fault(
        what=f"{name}: {type(fault).__name__}: {first}",
        trace="".join(traceback.format_exception(fault)),
        errno=fault.errno if isinstance(fault, OSError) else None,
    )


def lost(name: str) -> InputError:
    """The error for an input whose worker died each time; the same words from every engine."""
    return InputError(
        f"{name} ended its worker process in each of {MOST_ATTEMPTS} attempts.",
        effect="It is not in the result.",
        next_step="Most often memory ran out: give fewer --jobs or a larger machine, or analyse this input by itself to see why.",
    )
