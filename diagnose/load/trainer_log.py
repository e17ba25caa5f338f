"""What a trainer's log tells (trace_rules/trainer_logs.yaml): tokens of a step, its length without a profiler, memory that it held."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from msgspec import Struct

from diagnose.errors import InputError
from diagnose.knowledge.data import checked, contents

_FILE = "trainer_logs.yaml"
_NOTHING = "Nothing was compared."
_NOT_ANALYSED = "Nothing was analysed."
_BY_HAND = "Give both numbers with --tokens."
_OUTLIER = 2  # times the median
_LONGEST_LINE = 20_000  # characters of a line that are looked at


class Spec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number of a line, and whose format it is."""

    pattern: str
    source: str


class LogSpecs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    iteration: Spec
    elapsed: Spec
    tokens: Spec
    samples: Spec
    max_allocated: Spec
    max_reserved: Spec
    out_of_memory: Spec


class LogTokens(Struct, frozen=True, kw_only=True):
    """Tokens per step: the median over iterations of the log. `source` says in words where they are from, and of how many."""

    tokens: float
    source: str


class LoggedRun(Struct, frozen=True, kw_only=True):
    """What a log tells of the whole run.

    `step_ns`: a step, the median without outliers. `peak_allocated`, `peak_reserved`: bytes, both of the rank that reserved most.
    `out_of_memory`: how often GPU memory ran out after the last iteration. None where the log does not tell.
    """

    step_ns: float | None
    peak_allocated: int | None
    peak_reserved: int | None
    out_of_memory: int


def load_specs() -> LogSpecs:
    """The patterns that come with the program. Raises RuleFileError."""
    with checked(_FILE, effect="No log can be read.", next_step="Correct the file."):
        found = contents(_FILE, LogSpecs)
        for name in LogSpecs.__struct_fields__:
            re.compile(getattr(found, name).pattern)
        return found


def tokens_per_step(path: Path, sequence: int | None, specs: LogSpecs) -> LogTokens:
    """Tokens per step that a log tells; of samples only, these times `sequence` (tokens, padding included). Raises InputError."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            tokens, samples = _counted(lines, specs)
    except OSError as fault:
        raise InputError(f"The log {path} can't be read: {fault.strerror}.", effect=_NOTHING, next_step="Check the path.") from fault
    name = path.name
    if len(tokens) > 1:
        return _per_step(tokens, 1, f"{name}, consumed tokens")
    if len(samples) > 1 and sequence is not None:
        return _per_step(samples, sequence, f"{name}, consumed samples times the job file's sequence length, padding included")
    if len(samples) > 1:
        raise InputError(
            f"The log {name} counts samples, and the sequence length is not known.",
            effect=_NOTHING,
            next_step=f"Give the job file (--config). {_BY_HAND}",
        )
    raise InputError(
        f"The log {name} does not tell the consumed tokens or samples of two iterations.",
        effect=_NOTHING,
        next_step=f"It takes logs of Megatron-LM, Megatron-Bridge and Megatron-DeepSpeed. {_BY_HAND}",
    )


def logged_run(path: Path, specs: LogSpecs, *, profiled: range = range(0)) -> LoggedRun:
    """What a log tells; of iterations those in `profiled` are left out where there are others. Raises InputError."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            log = _read((whole[:_LONGEST_LINE] for whole in lines), specs)
    except OSError as fault:
        raise InputError(f"The log {path} can't be read: {fault.strerror}.", effect=_NOT_ANALYSED, next_step="Check the path.") from fault
    times = [ms for iteration, ms in log.iterations.items() if iteration not in profiled] or list(log.iterations.values())
    if not (times or log.failures or log.levels):
        raise InputError(
            f"The log {path.name} does not tell how long an iteration took, nor how much memory it held.",
            effect=_NOT_ANALYSED,
            next_step="It takes logs of Megatron-LM and Megatron-Bridge (elapsed time per iteration). Leave --log out otherwise.",
        )
    peak_reserved, peak_allocated = max(log.levels, default=(None, None))
    usual = [value for value in times if value <= _OUTLIER * median(times)]  # not start-up, nor a profiler that writes its file
    step = median(usual) * 1e6 if usual else None
    return LoggedRun(step_ns=step, peak_allocated=peak_allocated, peak_reserved=peak_reserved, out_of_memory=log.failures)


class _Log(Struct, frozen=True, kw_only=True):
    """Milliseconds by iteration, (reserved, allocated) bytes of ranks, and how often memory ran out after the last iteration."""

    iterations: Mapping[int, float]
    levels: Sequence[tuple[int, int]]
    failures: int


def _read(lines: Iterable[str], specs: LogSpecs) -> _Log:
    """What a log's lines tell, whichever rank wrote them."""
    number, elapsed, allocated, reserved, failed = (
        re.compile(spec.pattern) for spec in (specs.iteration, specs.elapsed, specs.max_allocated, specs.max_reserved, specs.out_of_memory)
    )
    iterations: dict[int, float] = {}
    levels: list[tuple[int, int]] = []
    failures = 0
    for line in lines:
        if (at := number.search(line)) and (took := elapsed.search(line)):
            iterations[int(at[1])] = float(took[1])
            failures = 0
        if (most := reserved.search(line)) and (used := allocated.search(line)):
            levels.append((round(float(most[1]) * 2**20), round(float(used[1]) * 2**20)))
        failures += failed.search(line) is not None
    return _Log(iterations=iterations, levels=levels, failures=failures)


def _counted(lines: Iterable[str], specs: LogSpecs) -> tuple[dict[int, int], dict[int, int]]:
    """Consumed tokens and samples by iteration. Several ranks may write one log; a run taken up again counts from where it began again."""
    iteration, *wanted = (re.compile(spec.pattern) for spec in (specs.iteration, specs.tokens, specs.samples))
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for line in lines:
        number = iteration.search(line[:_LONGEST_LINE])
        if number is None:
            continue
        for pattern, counts in zip(wanted, found, strict=True):
            count = pattern.search(line[:_LONGEST_LINE])
            if count is not None:
                counts[int(number[1])] = int(count[1])
    return found


def _per_step(counts: dict[int, int], each: int, source: str) -> LogTokens:
    """The median increase per iteration, times `each`; a log may leave iterations out."""
    steps = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(sorted(counts.items()))]
    return LogTokens(tokens=float(median(steps) * each), source=f"{source}, median of {len(steps)} iterations")
