"""One trial: a candidate is checked out, run, diagnosed and measured; or a trace that is there already is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from diagnose.bisect import command as commands
from diagnose.bisect import measure
from diagnose.bisect.checkout import Checkout, CheckoutError
from diagnose.bisect.folder import Folder, name_of
from diagnose.bisect.journal import Asked, Entry, Line
from diagnose.bisect.measure import How, UnusableError
from diagnose.document.bisection import Trial
from diagnose.reason.compare.metrics import place_of

Runner = Callable[[int, int], Line]  # candidate, number of the trial → the trial


class AskedToStopError(Exception):
    """The command ended in a way that asks for the end of it all: by a signal, or with 128 or more."""

    def __init__(self, code: int, label: str, log: Path, said: str) -> None:
        self.code, self.label, self.log = code, label, log
        super().__init__(said)


class _FailedError(Exception):
    """The command gave no capture; this candidate is not tried again."""


@dataclass(kw_only=True)
class Runs:
    """Runs trials of one search. `work` is where the command runs; with a checkout, that is put there first. `where`: (rank, device) that values are taken from, that of the first capture."""

    asked: Asked
    folder: Folder
    how: How
    lock: int
    work: Path
    checkout: Checkout | None = None
    timeout: float | None = None
    where: tuple[int, int] | None = None

    def __call__(self, candidate: int, number: int) -> Line:
        """Run one trial. Raises AskedToStopError."""
        started = time.monotonic()
        entry = self.asked.entries[candidate]
        try:
            line = self._measured(entry, candidate, number, self._capture(entry, number))
        except (_FailedError, CheckoutError) as fault:
            line = Line(trial=Trial(candidate=candidate, number=number, state="failed", text=str(fault)), seconds=0.0)
        except UnusableError as fault:
            line = Line(trial=Trial(candidate=candidate, number=number, state="unusable", text=str(fault)), seconds=0.0)
        return structs.replace(line, seconds=round(time.monotonic() - started, 3))

    def _capture(self, entry: Entry, number: int) -> Sequence[Path]:
        """The traces of one capture: made by the command, or the candidate itself where there is none."""
        if not self.asked.command:
            return (self.work / entry.item,)
        if self.checkout is not None:
            self.checkout.check_out(entry.item)
        place = self.folder.place(number, entry.label, self.work, self.lock, apart=self.checkout is not None)
        values = {"commit": entry.item, "item": entry.item, "trace": str(place.output / "trace")}
        pattern = None if self.asked.trace is None else commands.substituted([self.asked.trace], values)[0]
        before = {} if pattern is None else commands.matches(place, pattern)
        ran = commands.run(commands.substituted(self.asked.command, values), place, self.timeout)
        if ran.code >= commands.ABORT and not ran.timed_out:
            raise AskedToStopError(ran.code, entry.label, place.log, commands.why_not(ran, None))
        reason = commands.why_not(ran, self.timeout)
        if reason:
            raise _FailedError(reason)
        found = commands.traces(place, pattern, before)
        if not found:
            raise UnusableError(commands.nothing_left(pattern, before))
        return found

    def _measured(self, entry: Entry, candidate: int, number: int, found: Sequence[Path]) -> Line:
        document = measure.document_of(found, self.how, self.work)
        name = f"{name_of(number, entry.label)}.json"
        measure.save(self.folder.documents / name, document)
        values = measure.values_of(document, self.asked.metric, self.where)
        self.where = self.where or place_of(document)
        note = (
            "The capture could not be cut into steps; the value is of all of it." if measure.no_steps(document, self.asked.metric) else ""
        )
        trial = Trial(candidate=candidate, number=number, state="measured", values=values.values, document=name, text=note)
        return Line(trial=trial, seconds=0.0, unit=values.unit, larger_is_worse=values.larger_is_worse)
