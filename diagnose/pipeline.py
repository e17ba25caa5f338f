"""load → measure → reason: from paths to a Diagnosis. The command line, notebooks and workers all come through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import structs

from diagnose.conclude import conclude
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError, UsageError
from diagnose.job import overridden_job, read_job
from diagnose.ledger import Ledger
from diagnose.load.files import Inputs, expand
from diagnose.load.readers import STDIN, load
from diagnose.measure.capture import Knowledge, Measured, measure, moved
from diagnose.measure.device import DeviceMeasure
from diagnose.rulebook import load_rulebook
from diagnose.taxonomy import load_host_rules, load_taxonomy, own_bucket_files
from diagnose.trace import Rank, Trace

Progress = Callable[[str], None]


def diagnose(
    inputs: Sequence[str | Path],
    *,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    rules: Sequence[Path] = (),
    rank: int | None = None,
    step_range: str | None = None,
    nsys: Path | None = None,
    include_host_info: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose one or several traces of a job.

    Each input is measured by itself; one that can't be analysed, among several, is counted in the ledger with its reason. The verdict speaks of one device: the one in the middle by median step, first within each input, then
    among the inputs.
    `config` is the job file, `overrides` (KEY=VALUE) go on top of it; its own rules are used beside `rules`.
    `step_range` is a pattern for the ranges that mark steps. Raises the errors of `diagnose.errors`.
    """
    report = progress or (lambda _: None)
    job = read_job(config, overrides) if config else overridden_job(overrides) if overrides else None
    rules = tuple(dict.fromkeys((*(job.rules if job else ()), *rules)))  # named in both places: read once; one id in two files is refused
    wanted = step_range or (job.step_range if job else None)
    _check_pattern(wanted)
    knowledge = Knowledge(
        rulebook=load_rulebook(tuple(rules)), taxonomy=load_taxonomy(extra=own_bucket_files(rules)), hosts=load_host_rules()
    )
    paths: list[str | Path] = []
    ignored: list[tuple[str, str]] = []
    for given in inputs:
        found = Inputs(traces=()) if str(given) == STDIN else expand([Path(given)])
        paths += found.traces or [given]
        ignored += found.ignored
    measured = []
    refused: list[InputError] = []
    for place, path in enumerate(paths, start=1):
        name = Path(path).name if str(path) != STDIN else "standard input"
        report(f"reading {name}" + (f" ({place} of {len(paths)})" if len(paths) > 1 else ""))
        try:
            # no name here holds the trace, so that `measure` can let go of parts of it
            measured.append(
                measure(_read(path, rank if len(paths) == 1 else None, nsys, partial(report, f"measuring {name}")), knowledge, wanted)
            )
        except InputError as error:
            refused.append(error)
    if not measured:
        raise refused[0]
    measured[0] = replace(measured[0], ledger=_with_inputs_left_out(measured[0].ledger, refused, ignored))
    report("drawing conclusions")
    return conclude(_told_apart(measured), job, knowledge, include_host_info=include_host_info)


def _with_inputs_left_out(ledger: Ledger, refused: Sequence[InputError], ignored: Sequence[tuple[str, str]]) -> Ledger:
    """The ledger with an entry for every input that was refused and for every file of a folder that is no input."""
    for error in refused:
        ledger = ledger.note("refused_input", "inputs", detail=error.what)
    for name, reason in ignored:
        ledger = ledger.note("ignored_file", "inputs", detail=f"{name}: {reason}")
    return ledger


def _read(path: str | Path, rank: int | None, nsys: Path | None, done: Callable[[], None]) -> Trace:
    """One trace; `done` is called when it is read."""
    trace = load(path, rank=rank, nsys=nsys)
    done()
    return trace


def _check_pattern(step_range: str | None) -> None:
    """Raise UsageError unless the user's pattern for step ranges is a regular expression of the kind that polars takes."""
    try:
        pl.select(pl.lit("").str.contains(step_range or ""))
    except pl.exceptions.ComputeError as error:
        raise UsageError(
            f"The step range {step_range!r} is no regular expression: {' '.join(str(error).split())[:200]}",
            effect="Nothing was analysed.",
            next_step="Give a pattern without look-around, for example 'iteration (\\d+)'.",
        ) from None


def _told_apart(measured: Sequence[Measured]) -> list[Measured]:
    """Inputs whose ranks do not collide: a rank that is taken, or only assigned, gets the next free number."""
    taken: set[int] = set()
    told = [(place, rank) for place, one in enumerate(measured) for rank in one.ranks]
    numbers: dict[tuple[int, int], int] = {}
    for place, rank in sorted(told, key=lambda pair: pair[1].source == "assigned"):  # what a trace tells goes before what was assigned
        number = rank.rank
        while number in taken:
            number += 1
        taken.add(number)
        numbers[place, rank.rank] = number
    result = []
    for place, one in enumerate(measured):
        claimed = sum(1 for rank in one.ranks if rank.source != "assigned" and numbers[place, rank.rank] != rank.rank)
        result.append(
            replace(
                one,
                ranks=tuple(_moved(rank, numbers[place, rank.rank]) for rank in one.ranks),
                devices=tuple(_renumbered(device, numbers[place, device.rank]) for device in one.devices),
                records=tuple(
                    moved(records, numbers[place, device.rank]) for records, device in zip(one.records, one.devices, strict=True)
                ),
                ledger=one.ledger.note("renumbered_rank", "ranks", claimed, one.provenance.file),
            )
        )
    return result


def _moved(rank: Rank, number: int) -> Rank:
    """The same rank under another number; what it claimed to be is kept, unless that was only assigned."""
    return replace(rank, rank=number, claimed=rank.rank if number != rank.rank and rank.source != "assigned" else None)


def _renumbered(device: DeviceMeasure, rank: int) -> DeviceMeasure:
    """The same measurements under another rank."""
    if device.rank == rank:
        return device
    return replace(
        device, rank=rank, totals=structs.replace(device.totals, rank=rank), timeline=structs.replace(device.timeline, rank=rank)
    )
