"""What a reader of one profiler format is: how it knows its inputs, reads them, and tells when they were captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load.files import Opening
from diagnose.model.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One format of traces. `name` is what a trace's provenance calls it.

    `load(path, rank, nsys, rules)` reads one: `rank` names the global rank where the trace does not tell it, `nsys` is the program that exports
    a report, `rules` say what of the environment may be taken out (None: the program's own). It raises InputError. `start` tells when the capture began, in ns since 1970, from a few bytes of it; None where it does not.
    It may raise what a damaged file makes of it (OSError, ValueError and the like).
    """

    name: str
    recognises: Callable[[Opening], bool]
    load: Callable[[Path, int | None, Path | None, EnvironmentRules | None], Trace]
    start: Callable[[Path], int | None]
