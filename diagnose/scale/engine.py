"""What an engine is, the one that measures in this process, and how a run over all inputs is put together.

Engines yield outcomes in any order; `measure_all` puts them back into the order of the inputs, so that the document has the same bytes
whichever task ended first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from diagnose.errors import DiagnoseError, InputError
from diagnose.knowledge.load import Knowledge
from diagnose.load.readers import STDIN
from diagnose.measure.capture import Measured
from diagnose.scale.inputs import name_of
from diagnose.scale.tasks import Fault, Outcome, Settings, Task, WorkerFaultError, measured

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What an engine is asked to do.

    Only `settings` and `tasks` go to workers. `doing` tells what happens just now, `notice` what is worth a line in a log.
    """

    settings: Settings
    tasks: tuple[Task, ...]
    knowledge: Knowledge
    doing: Say
    notice: Say


class Engine(Protocol):
    """Runs all tasks of a run."""

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """One outcome per task, in any order, and None now and then while nothing ends. Closing the iterator ends all workers."""


@dataclass(frozen=True, kw_only=True)
class HereEngine:
    """One input after the other, in this process; exceptions that are no fault of an input are raised as they are."""

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """As the protocol says."""
        for task in run.tasks:
            result: Measured | InputError
            try:
                result = measured(task, run.settings, run.knowledge, run.doing)
            except InputError as error:
                result = error
            yield Outcome(place=task.place, result=result)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Summaries of the inputs that could be measured, and the others with their errors, both in the order of the inputs."""

    measured: tuple[Measured, ...]
    refused: tuple[tuple[str | Path, InputError], ...]


class Tally:
    """How far a run is: inputs done, failed, left, and the time."""

    def __init__(self, total: int, say: Say) -> None:
        self._total = total
        self._say = say
        self._begun = time.monotonic()
        self._ended = 0
        self._failed = 0

    def end(self, *, failed: bool) -> None:
        """One input more has ended."""
        self._ended += 1
        self._failed += failed
        self.show()

    def show(self, doing: str = "") -> None:
        """Say where the run stands, and what it does just now."""
        if said := " · ".join(part for part in (self.line(time.monotonic() - self._begun), doing) if part):
            self._say(said)

    def line(self, seconds: float) -> str:
        """Where the run stands after `seconds`; empty for a single input."""
        if self._total == 1:
            return ""
        left = self._total - self._ended
        parts = [f"{self._ended - self._failed} of {self._total} traces measured"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts.append(f"{left} left")
        parts.append(f"{_clock(seconds)} so far")
        if self._ended and left:
            parts.append(f"about {_clock(seconds / self._ended * left)} to go")
        return ", ".join(parts)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def tasks_of(paths: Sequence[str | Path], rank: int | None) -> list[Task]:
    """The tasks of the inputs of one capture; `rank` names that of a single input."""
    return [Task(place=place, path=path, name=name_of(path), rank=rank if len(paths) == 1 else None) for place, path in enumerate(paths)]


def measure_all(
    paths: Sequence[str | Path], *, engine: Engine, settings: Settings, knowledge: Knowledge, rank: int | None, say: Say, notice: Say
) -> Gathered:
    """Measure every input of one capture, each in its own task. Raises as `measure_each` does."""
    stream = measure_each(tasks_of(paths, rank), engine=engine, settings=settings, knowledge=knowledge, say=say, notice=notice)
    with closing(stream):
        return gathered(paths, dict(stream))


def gathered(paths: Sequence[str | Path], outcomes: Mapping[int, Measured | InputError]) -> Gathered:
    """The outcomes of the inputs of one capture, in their order."""
    in_order = [outcomes[place] for place in range(len(paths))]
    return Gathered(
        measured=tuple(outcome for outcome in in_order if not isinstance(outcome, InputError)),
        refused=tuple((path, outcome) for path, outcome in zip(paths, in_order, strict=True) if isinstance(outcome, InputError)),
    )


def measure_each(
    tasks: Sequence[Task], *, engine: Engine, settings: Settings, knowledge: Knowledge, say: Say, notice: Say
) -> Generator[tuple[int, Measured | InputError], None, None]:
    """Run every task: its place and its outcome, as they end. Closing the generator ends all workers.

    Raises what ends a run: errors that are not about one input, and faults in workers (WorkerFaultError).
    """
    tally = Tally(len(tasks), say)
    ended: set[int] = set()
    # standard input can't be read by another process
    for here, part in ((True, [task for task in tasks if task.path == STDIN]), (False, [task for task in tasks if task.path != STDIN])):
        if not part:
            continue
        run = Run(settings=settings, tasks=tuple(part), knowledge=knowledge, doing=tally.show, notice=notice)
        with closing(_outcomes(HereEngine() if here else engine, run)) as outcomes:
            for outcome in outcomes:
                if outcome is None:
                    tally.show()
                    continue
                if outcome.place in ended:
                    raise AssertionError(f"two outcomes of input {outcome.place}")
                ended.add(outcome.place)
                result = _of_one_input(outcome)
                tally.end(failed=isinstance(result, InputError))
                yield outcome.place, result
    missing = [task.name for task in tasks if task.place not in ended]
    if missing:
        raise AssertionError(f"no outcome of {', '.join(missing[:8])}")


def _outcomes(engine: Engine, run: Run) -> Generator[Outcome | None, None, None]:
    """The engine's outcomes, as a generator that can be closed."""
    yield from engine.run(run)


def _of_one_input(outcome: Outcome) -> Measured | InputError:
    """The outcome, if it concerns its input alone; raises what ends the run."""
    result = outcome.result
    if isinstance(result, Fault):
        fault = WorkerFaultError(f"{result.what}\n{result.trace}")
        if result.errno is not None:
            raise OSError(result.errno, result.what) from fault
        raise fault
    if isinstance(result, DiagnoseError) and not isinstance(result, InputError):
        raise result
    return result
