"""Measuring under somebody else's engine.

A function that measures one input wherever it is called, and an engine that hands out what it gave.

Nothing heavy is imported until the function is called, so that a process which forks its workers can do so before polars has threads.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from msgspec.structs import replace

if TYPE_CHECKING:
    from diagnose.scale.engine import Outcome, Prepared, Run


class Options(Struct, frozen=True, kw_only=True):
    """What the user asked for, with absolute paths."""

    config: Path | None
    overrides: tuple[str, ...]
    rules: tuple[Path, ...]
    step_range: str | None
    nsys: Path | None


def measure_input(path: str, options: Options, inputs: int) -> bytes:
    """The outcome of one of so many inputs and the settings it was measured under, as bytes: who passes them on need not know what is in
    them.
    """
    from diagnose.errors import DiagnoseError  # noqa: PLC0415
    from diagnose.scale.engine import Outcome, Task, attempt, for_inputs, name_of  # noqa: PLC0415

    try:
        settings = for_inputs(_prepared(options), inputs)
    except DiagnoseError as error:  # of the job file or the rules: the same for every input
        return pickle.dumps((None, Outcome(place=0, result=error)))
    return pickle.dumps((settings, attempt(settings, Task(place=0, path=path, name=name_of(path)))))


@lru_cache(maxsize=1)
def _prepared(options: Options) -> Prepared:
    from diagnose.scale.engine import prepare  # noqa: PLC0415

    return prepare(**structs.asdict(options))


class ElsewhereEngine(Struct, frozen=True, kw_only=True):
    """Outcomes that `measure_input` gave before, by path; what they lack of a later question is measured here."""

    outcomes: Mapping[str, bytes]

    def run(self, run: Run) -> Iterator[Outcome | None]:
        """As the protocol of engines says. Raises UsageError where a worker had another version or other rules."""
        from diagnose.errors import UsageError  # noqa: PLC0415
        from diagnose.scale.engine import HereEngine  # noqa: PLC0415

        for task in run.tasks:
            settings, outcome = pickle.loads(self.outcomes[str(task.path)])  # noqa: S301 - made by our own function in workers of the same user
            if settings is not None and (settings.version, settings.rules_sha256) != (run.settings.version, run.settings.rules_sha256):
                raise UsageError(
                    "A worker has another version of diagnose, or other rules, than this process.",
                    effect="Their figures would not be comparable; nothing was analysed.",
                    next_step="Install the same version everywhere, and let --rules name files that all machines share.",
                )
            if settings is not None and run.settings.replay and not settings.replay:  # the one graph that many ranks did not bring
                yield from HereEngine().run(replace(run, tasks=(task,)))
            else:
                yield replace(outcome, place=task.place)
