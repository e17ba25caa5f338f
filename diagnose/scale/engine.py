"""From what the user named to a run over all inputs.

Inputs in a stable order, one task for each, what an engine is, the one in this process.

A task loads one input, measures it and gives its summary back, in this process or in a worker's. It gets `Settings` and a `Task`, both
small. Rules are not sent: each process reads them once and compares their digest with the caller's. Engines yield outcomes in any order;
the pipeline puts them back into the order of the inputs, so that the document has the same bytes whichever task ended first.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeAlias, TypedDict

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.errors import DiagnoseError, InputError, UsageError
from diagnose.job import Job
from diagnose.knowledge.forecast import Report
from diagnose.knowledge.load import Knowledge, load_knowledge
from diagnose.knowledge.settings import load_job_settings
from diagnose.load import progress
from diagnose.load.readers import STDIN, expand, load
from diagnose.measure.capture import Measured, measure
from diagnose.model.vocabulary import CommKind
from diagnose.version import __version__


class Inputs(Struct, frozen=True, kw_only=True):
    """The inputs of a run, those of them that nobody named but that lay in a folder, and what folders held besides: (bare name, reason)."""

    paths: tuple[str | Path, ...]
    in_folders: frozenset[str | Path]
    ignored: tuple[tuple[str, str], ...]


def find_inputs(given: str | Path | Sequence[str | Path]) -> Inputs:
    """Every input that `given` stands for, once. Raises InputError for a folder without traces and a pattern without matches."""
    paths: dict[str | Path, str | Path] = {}
    ignored: list[tuple[str, str]] = []
    in_folders: set[str | Path] = set()
    named: set[str | Path] = set()
    for one in [given] if isinstance(given, str | Path) else given:
        if str(one) == STDIN:
            paths.setdefault(STDIN, STDIN)
            continue
        found = expand([Path(one)])
        for path in found.traces or (Path(one),):
            paths.setdefault(_same_file(path), path)
            (named if path == Path(one) or not Path(one).is_dir() else in_folders).add(path)
        ignored += found.ignored
    return Inputs(paths=tuple(paths.values()), in_folders=frozenset(in_folders - named), ignored=tuple(dict.fromkeys(ignored)))


def _same_file(path: Path) -> Path:
    """What two names of one file share; the path itself where it can't be followed (its reader will say why)."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def name_of(path: str | Path) -> str:
    """How people know an input: its bare name."""
    return Path(path).name if str(path) != STDIN else "standard input"


MOST_ATTEMPTS = 3  # a task whose worker dies is started again at most twice


class Settings(Struct, frozen=True, kw_only=True):
    """What all tasks of a run share. `rules_sha256` and `version` are those of the process that asks."""

    rules: tuple[Path, ...]
    rules_sha256: str
    step_range: str | None
    nsys: Path | None
    absent: frozenset[CommKind] = frozenset()  # kinds of exchange that the job file rules out
    replay: bool = False  # whether the graphs of steps are kept, for forecasts
    most: Report | None = None  # how much of each is kept; None: all kept steps
    version: str = __version__


class Task(Struct, frozen=True, kw_only=True):
    """One input: its place in the order of inputs, its path, and the rank that the user gave it."""

    place: int
    path: str | Path
    name: str
    rank: int | None = None


class Fault(Struct, frozen=True, kw_only=True):
    """An exception in a worker that is nobody's input: ours. `errno` where the system raised it."""

    what: str
    trace: str
    errno: int | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """How the task at `place` ended: measured, refused with a sentence, or by a fault."""

    place: int
    result: Measured | DiagnoseError | Fault


Attempt: TypeAlias = Callable[[Settings, Task], Outcome]
Say = Callable[[str], None]


def silent(_: str) -> None:
    """Workers, and callers that do not ask, have nobody to tell what is done just now."""


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


def measured(task: Task, settings: Settings, knowledge: Knowledge, say: Say) -> Measured:
    """The summary of one input. Raises InputError where it can't be analysed."""
    say(f"reading {task.name}")
    begun = time.monotonic()
    with progress.listening(lambda done, whole, unit: say(f"reading {task.name} · {far(done, whole, unit, time.monotonic() - begun)}")):
        trace = load(task.path, rank=task.rank, nsys=settings.nsys, rules=knowledge.environment)
    say(f"measuring {task.name}")
    return measure(trace, knowledge, settings.step_range, settings.absent, replay=settings.replay, most=settings.most)


def far(done: int, whole: int, unit: str, seconds: float) -> str:
    """How far reading is after `seconds`: amounts, percent, and the time left where the whole is known."""
    amounts = [f"{done / 1e6:,.0f} MB", f"{whole / 1e6:,.0f} MB"] if unit == "bytes" else [f"{done:,}", f"{whole:,} {unit}"]
    if whole <= 0:
        return amounts[0]
    share = min(done / whole, 1.0)
    left = f", about {_clock(seconds / share - seconds)} left" if share else ""
    return f"{amounts[0]} of {amounts[1]}, {share * 100:.0f} %{left}"


def attempt(settings: Settings, task: Task) -> Outcome:
    """The task as a worker runs it: never raises, since not every exception can travel between processes."""
    try:
        _check_version(settings.version)
        return Outcome(place=task.place, result=measured(task, settings, _kept_knowledge(settings.rules, settings.rules_sha256), silent))
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


class Prepared(Struct, frozen=True, kw_only=True):
    """The job, all rules, and what goes to tasks."""

    job: Job | None
    knowledge: Knowledge
    settings: Settings


class ReadingOptions(TypedDict, total=False):
    """How the traces of a job are read: the job file, what goes on top of it, rules, step marks, and the nsys that exports reports."""

    config: str | Path | None
    overrides: Sequence[str]
    rules: Sequence[str | Path]
    step_range: str | None
    nsys: str | Path | None
    command: str | None


class MeasuringOptions(ReadingOptions, total=False):
    """How they are measured too: the rank of a trace that does not tell it, where the work is done, and who is told of what is worth it."""

    rank: int | None
    engine: Engine | None
    notice: Say | None


def prepare(
    *,
    config: str | Path | None = None,
    overrides: Sequence[str] = (),
    rules: Sequence[str | Path] = (),
    step_range: str | None = None,
    nsys: str | Path | None = None,
    command: str | None = None,
) -> Prepared:
    """Read the job file and the rules. Raises JobFileError, RuleFileError, UsageError."""
    job = _job(config, overrides, command)
    both = (*(job.rules if job else ()), *map(Path, rules))
    own = tuple(dict.fromkeys(both))  # named in both places: read once; one id in two files is refused
    wanted = step_range or (job.step_range if job else None)
    if wanted is not None:
        _check_pattern(wanted)
    knowledge = load_knowledge(own)
    absent = frozenset[CommKind]()
    if job is not None:
        from diagnose.job.sizes import absent_kinds  # noqa: PLC0415 - without a job file it is not needed

        absent = absent_kinds(job)
    program = None if nsys is None else Path(nsys)
    settings = Settings(rules=own, rules_sha256=knowledge.rulebook.sha256, step_range=wanted, nsys=program, absent=absent)
    return Prepared(job=job, knowledge=knowledge, settings=settings)


def _job(config: str | Path | None, overrides: Sequence[str], command: str | None) -> Job | None:
    """The job file with what is set on top of it, or that alone; None where there is neither."""
    if config is None and not overrides:
        return None
    from diagnose.job.read import overridden_job, read_job  # noqa: PLC0415 - reading job files takes a while to load

    table = load_job_settings()
    return overridden_job(overrides, table) if config is None else read_job(Path(config), table, overrides, command=command)


def for_inputs(prepared: Prepared, inputs: int) -> Settings:
    """The settings of a diagnosis with forecasts: the graphs of so many inputs are kept, or of one later where there are more."""
    most = prepared.knowledge.forecast.report
    return replace(prepared.settings, replay=inputs <= most.ranks, most=most)


def _check_pattern(step_range: str) -> None:
    """Raise UsageError unless the user's pattern for step ranges is a regular expression of the kind that polars takes."""
    try:
        pl.select(pl.lit("").str.contains(step_range))
    except pl.exceptions.ComputeError as error:
        raise UsageError(
            f"The step range {step_range!r} is no regular expression: {' '.join(str(error).split())[:200]}",
            effect="Nothing was analysed.",
            next_step="Give a pattern without look-around, for example 'iteration (\\d+)'.",
        ) from None


class Run(Struct, frozen=True, kw_only=True):
    """What an engine is asked to do.

    Only `settings` and `tasks` go to workers. `doing` tells what happens just now, `notice` what is worth a line in a log.
    """

    settings: Settings
    tasks: tuple[Task, ...]
    knowledge: Knowledge
    doing: Say = silent
    notice: Say = silent


class Engine(Protocol):
    """Runs all tasks of a run."""

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """One outcome per task, in any order, and None now and then while nothing ends. Closing the iterator ends all workers."""


class HereEngine(Struct, frozen=True, kw_only=True):
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


def measure_each(run: Run, engine: Engine) -> Generator[tuple[int, Measured | InputError], None, None]:
    """Run every task: its place and its outcome, as they end. Closing the generator ends all workers.

    Raises what ends a run: errors that are not about one input, and faults in workers (WorkerFaultError).
    """
    tally = Tally(len(run.tasks), run.doing)
    ended: set[int] = set()
    for piped in (True, False):  # standard input can't be read by another process
        part = tuple(task for task in run.tasks if (task.path == STDIN) is piped)
        if not part:
            continue
        with closing(_outcomes(HereEngine() if piped else engine, replace(run, tasks=part, doing=tally.show))) as outcomes:
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
    missing = [task.name for task in run.tasks if task.place not in ended]
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
