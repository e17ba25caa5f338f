"""One trial: a candidate is checked out, run, diagnosed and measured; or a capture that is there already is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import structs

from diagnose.bisect import command as commands
from diagnose.bisect.git import Checkout, CheckoutError
from diagnose.bisect.log import Entry, Experiment, Line, SearchFolder, file_name
from diagnose.document import files
from diagnose.document.bisection import Trial, TrialState
from diagnose.document.diagnosis import SCHEMA, Diagnosis, encode
from diagnose.errors import DiagnoseError, InputError, JobFileError, UsageError
from diagnose.knowledge.buckets import load_buckets
from diagnose.reason.compare.metrics import NO_STEPS, STEP_TIME, Samples, UnmeasuredError, place_of, samples

if TYPE_CHECKING:
    from diagnose.pipeline import Progress
    from diagnose.scale.engine import Engine


class UnusableError(Exception):
    """A capture that gives no value of the metric; the trial says so with this reason."""


class StopRequestedError(Exception):
    """The command ended in a way that asks for the end of it all: by a signal, or with 128 or more."""

    def __init__(self, code: int, label: str, log: Path, reason: str) -> None:
        self.code, self.label, self.log = code, label, log
        super().__init__(reason)


class _FailedError(Exception):
    """The command gave no capture; this candidate is not tried again."""


# --- diagnoses and their values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """How traces are measured: the options of the pipeline.

    `config`, where it is relative, is looked for in the folder that the command works in.
    """

    config: str | None = None
    overrides: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    rank: int | None = None
    step_range: str | None = None
    nsys: Path | None = None
    engine: Engine | None = None
    notice: Progress | None = None


def document_of(capture: Sequence[Path], options: TraceOptions, folder: Path) -> Diagnosis:
    """The diagnosis of one capture: made from its traces, or read where it is a saved one.

    Raises UnusableError, and RuleFileError for what is wrong with every capture alike.
    """
    if is_saved(capture):
        return read_capture(capture)
    from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

    try:
        return diagnose(
            [str(path) for path in capture],
            config=None if options.config is None else folder / options.config,
            overrides=options.overrides,
            rules=options.rules,
            rank=options.rank,
            step_range=options.step_range,
            nsys=options.nsys,
            engine=options.engine,
            notice=options.notice,
        )
    except (InputError, JobFileError, UsageError) as fault:
        raise unusable(fault, capture) from fault


def is_saved(capture: Sequence[Path]) -> bool:
    """Whether a capture is no trace but a document of this program."""
    return len(capture) == 1 and files.schema_of(capture[0]) is not None


def read_capture(capture: Sequence[Path]) -> Diagnosis:
    """A capture that is a saved diagnosis. Raises UnusableError for another document, and a damaged one."""
    try:
        return read_diagnosis(capture[0])
    except InputError as fault:
        raise unusable(fault, capture) from fault


def read_diagnosis(path: Path) -> Diagnosis:
    """The saved diagnosis at `path`. Raises InputError."""
    return cast("Diagnosis", files.read(path, (SCHEMA,)))


def unusable(fault: DiagnoseError, capture: Sequence[Path]) -> UnusableError:
    """The same fault as a reason that a trial tells: without the folders of the capture's files, because documents name bare files."""
    reason = f"{fault.what} {fault.next_step}".strip()
    for path in capture:
        reason = reason.replace(f"{path.parent}{os.sep}", "")
    return UnusableError(reason)


def values_of(document: Diagnosis, metric: str, place: tuple[int, int] | None) -> Samples:
    """The metric's samples: at `place` (rank, device) where that was captured and has it, else on the device that the verdict speaks of.

    Raises UnusableError, and MetricError for a metric that there is not.
    """
    verdict = place_of(document)
    for where in dict.fromkeys((place or verdict, verdict)):
        try:
            return samples(document, metric, where, buckets=load_buckets())
        except UnmeasuredError as fault:
            reason = f"{fault.what} {fault.next_step}".strip()
    raise UnusableError(reason)


# --- trials -----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Trials:
    """Runs trials of one search. `work` is where the command runs; with a checkout, that is put there first.

    `lock`: descriptor of the search's lock. `place`: (rank, device) that values are taken from, that of the first capture. `timeout` in
    seconds.
    """

    experiment: Experiment
    folder: SearchFolder
    options: TraceOptions
    lock: int
    work: Path
    checkout: Checkout | None = None
    timeout: float | None = None
    place: tuple[int, int] | None = None

    def run(self, candidate: int, number: int) -> Line:
        """Run one trial. Raises StopRequestedError."""
        started = time.monotonic()
        entry = self.experiment.entries[candidate]
        try:
            line = self.measured(candidate, number, document_of(self._capture(entry, number), self.options, self.work))
        except (_FailedError, CheckoutError) as fault:
            line = no_value(candidate, number, "failed", fault)
        except UnusableError as fault:
            line = no_value(candidate, number, "unusable", fault)
        return structs.replace(line, seconds=round(time.monotonic() - started, 3))

    def captures(self, candidates: Sequence[int]) -> list[list[Path]]:
        """The traces of candidates that are captures themselves."""
        return [[self.work / self.experiment.entries[candidate].item] for candidate in candidates]

    def _capture(self, entry: Entry, number: int) -> Sequence[Path]:
        """The traces that the command left."""
        if self.checkout is not None:
            self.checkout.check_out(entry.item)
        workspace = self.folder.workspace(number, entry.label, self.work, self.lock, apart=self.checkout is not None)
        values = {"commit": entry.item, "item": entry.item, "trace": str(workspace.output / "trace")}
        pattern = None if self.experiment.trace is None else commands.substituted([self.experiment.trace], values)[0]
        before = {} if pattern is None else commands.matches(workspace, pattern)
        result = commands.run(commands.substituted(self.experiment.command, values), workspace, self.timeout)
        if result.code >= commands.ABORT and not result.timed_out:
            raise StopRequestedError(result.code, entry.label, workspace.log, commands.why_not(result, None))
        reason = commands.why_not(result, self.timeout)
        if reason:
            raise _FailedError(reason)
        traces = commands.traces(workspace, pattern, before)
        if not traces:
            raise UnusableError(commands.nothing_left(pattern, before))
        return traces

    def measured(self, candidate: int, number: int, document: Diagnosis) -> Line:
        """The trial of a capture that was diagnosed; its document is kept. Raises UnusableError, and OutputError where it can't be kept."""
        name = f"{file_name(number, self.experiment.entries[candidate].label)}.json"
        files.write_file(self.folder.documents / name, encode(document).decode(), force=True)
        values = values_of(document, self.experiment.metric, self.place)
        self.place = self.place or place_of(document)
        whole = self.experiment.metric == STEP_TIME and document.steps.anchor == NO_STEPS
        note = "The capture could not be cut into steps; the value is of all of it." if whole else ""
        trial = Trial(candidate=candidate, number=number, state="measured", values=values.values, document=name, text=note)
        return Line(trial=trial, seconds=0.0, unit=values.unit, larger_is_worse=values.larger_is_worse)


def no_value(candidate: int, number: int, state: TrialState, reason: object) -> Line:
    """The trial of a candidate that gave no value."""
    return Line(trial=Trial(candidate=candidate, number=number, state=state, text=str(reason)), seconds=0.0)
