"""load → measure → reason: from paths to a Diagnosis. The command line, notebooks and workers all come through here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import DiagnoseError, InputError, JobFileError, UsageError
from diagnose.measure.capture import Measured
from diagnose.model.trace import Rank
from diagnose.reason.conclude import conclude
from diagnose.scale.engine import (
    Engine,
    Gathered,
    HereEngine,
    Inputs,
    Prepared,
    find_inputs,
    gathered,
    measure_all,
    measure_each,
    prepare,
    sorted_out,
    tasks_of,
    with_inputs_left_out,
)

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
    engine: Engine | None = None,
    progress: Progress | None = None,
    notice: Progress | None = None,
) -> Diagnosis:
    """Diagnose one or several traces of a job.

    `inputs` are files, folders of traces, patterns, or "-". Each is measured by itself, by `engine` (by default in this process, one after
    the other); one that can't be analysed, among several, is counted in the ledger with its reason. `config` is the job file, `overrides`
    (KEY=VALUE) go on top of it; its own rules are used beside `rules`. `step_range` is a pattern for the ranges that mark steps. `progress`
    is told where the run stands, `notice` what a log should keep (a worker that died). Raises the errors of `diagnose.errors`.
    """
    say = progress or (lambda _: None)
    prepared = prepare(config=config, overrides=overrides, rules=rules, step_range=step_range, nsys=nsys)
    found = find_inputs(inputs)
    measured = measure_all(
        found.paths,
        engine=engine or HereEngine(),
        settings=prepared.settings,
        knowledge=prepared.knowledge,
        rank=rank,
        say=say,
        notice=notice or (lambda _: None),
    )
    if measured.measured:
        say("drawing conclusions")
    return _concluded(measured, found, prepared, include_host_info=include_host_info)


def diagnose_each(
    captures: Sequence[Sequence[str | Path]],
    *,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    rules: Sequence[Path] = (),
    rank: int | None = None,
    step_range: str | None = None,
    nsys: Path | None = None,
    engine: Engine | None = None,
    notice: Progress | None = None,
) -> Generator[Diagnosis | DiagnoseError, None, None]:
    """Diagnose several captures of a job, each by itself, all in one run of the engine: diagnoses or errors, in order.

    Options are those of `diagnose`. Closing the generator ends all workers. Raises what is wrong with all captures alike.
    """
    prepared = prepare(config=config, overrides=overrides, rules=rules, step_range=step_range, nsys=nsys)
    inputs = [_inputs(capture) for capture in captures]
    of_one = [[] if isinstance(found, InputError) else tasks_of(found.paths, rank) for found in inputs]
    owners = [(index, task) for index, tasks in enumerate(of_one) for task in tasks]
    outcomes: dict[int, dict[int, Measured | InputError]] = {index: {} for index in range(len(captures))}
    stream = measure_each(
        [replace(task, place=place) for place, (_, task) in enumerate(owners)],
        engine=engine or HereEngine(),
        settings=prepared.settings,
        knowledge=prepared.knowledge,
        say=lambda _: None,
        notice=notice or (lambda _: None),
    )
    with closing(stream):
        for index, found in enumerate(inputs):
            while len(outcomes[index]) < len(of_one[index]):
                place, outcome = next(stream)
                owner, task = owners[place]
                outcomes[owner][task.place] = outcome
            yield found if isinstance(found, InputError) else _diagnosis_or_error(found, outcomes.pop(index), prepared)


def _inputs(capture: Sequence[str | Path]) -> Inputs | InputError:
    try:
        return find_inputs(capture)
    except InputError as fault:
        return fault


def _diagnosis_or_error(found: Inputs, outcomes: Mapping[int, Measured | InputError], prepared: Prepared) -> Diagnosis | DiagnoseError:
    """What the measured inputs of one of several captures come to, or what is wrong with it."""
    try:
        return _concluded(gathered(found.paths, outcomes), found, prepared, include_host_info=False)
    except (InputError, JobFileError, UsageError) as fault:
        return fault


def _concluded(measured: Gathered, found: Inputs, prepared: Prepared, *, include_host_info: bool) -> Diagnosis:
    """What the measured inputs of one capture come to. Raises InputError where none could be measured."""
    if not measured.measured:
        raise measured.refused[0][1] if measured.refused else _nothing_given()
    first, *others = measured.measured
    failed, unfit = sorted_out(measured.refused, found)
    first = replace(first, ledger=with_inputs_left_out(first.ledger, failed, (*found.ignored, *unfit)))
    return conclude(with_distinct_ranks([first, *others]), prepared.job, prepared.knowledge, include_host_info=include_host_info)


def _nothing_given() -> UsageError:
    return UsageError("No trace was given.", effect="Nothing was analysed.", next_step="Name a trace, a folder of traces, or a pattern.")


def with_distinct_ranks(measured: Sequence[Measured]) -> list[Measured]:
    """Inputs whose ranks do not collide: a rank that is taken, or only assigned, gets the next free number."""
    taken: set[int] = set()
    claims = [(place, rank) for place, one in enumerate(measured) for rank in one.ranks]
    numbers: dict[tuple[int, int], int] = {}
    for place, rank in sorted(claims, key=lambda pair: pair[1].source == "assigned"):  # what a trace tells goes before what was assigned
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
                ranks=tuple(_renumbered(rank, numbers[place, rank.rank]) for rank in one.ranks),
                devices=tuple(replace(device, rank=numbers[place, device.rank]) for device in one.devices),
                ledger=one.ledger.note("renumbered_rank", "ranks", claimed, one.provenance.file),
            )
        )
    return result


def _renumbered(rank: Rank, number: int) -> Rank:
    """The same rank under another number; what it claimed to be is kept, unless that was only assigned."""
    return replace(rank, rank=number, claimed=rank.rank if number != rank.rank and rank.source != "assigned" else None)
