"""Run a command to its end and say how long it took and how much memory it held at most."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process, start-up and all: wall-clock seconds, seconds of processor time, and the largest resident set in MiB."""

    seconds: float
    processor: float
    peak_mib: float


class CommandError(RuntimeError):
    """The measured command failed, so there is nothing to compare."""


def measure(command: Sequence[str | Path], *, accept: tuple[int, ...] = (0,)) -> Run:
    """Run `command` once, its output discarded, with compiled modules as an installed program has them from its second run on.

    Raises CommandError with the end of its standard error.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stderr:
        process.stderr.close()
    if process.returncode not in accept:
        raise CommandError(f"exit {process.returncode}: {errors.decode(errors='replace')[-400:]}")
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Run(seconds=seconds, processor=usage.ru_utime + usage.ru_stime, peak_mib=usage.ru_maxrss / scale)


def median(runs: Sequence[Run]) -> Run:
    """Median times and highest peak of several runs."""
    return Run(
        seconds=statistics.median(run.seconds for run in runs),
        processor=statistics.median(run.processor for run in runs),
        peak_mib=max(run.peak_mib for run in runs),
    )


def alternate(commands: dict[str, Sequence[str | Path]], repeats: int) -> dict[str, Run]:
    """Run the commands in turn, `repeats` times, so that a busy moment of the machine meets them alike; their medians."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(measure(command))
    return {name: median(those) for name, those in runs.items()}
