"""load → measure → reason: from paths to a Diagnosis. The command line, notebooks and workers all come through here."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Unpack

from msgspec.structs import replace

from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import SCHEMA, Diagnosis
from diagnose.document.files import read, schema_of
from diagnose.document.forecast import Forecast
from diagnose.errors import DiagnoseError, ForeignInputError, InputError, JobFileError, MissingInputError, UsageError
from diagnose.job import Job
from diagnose.load.readers import STDIN
from diagnose.load.trainer_log import load_specs, logged_run
from diagnose.measure.capture import Measured
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Rank
from diagnose.reason.compare.metrics import STEP_TIME, side_label
from diagnose.reason.conclude import comparable, conclude
from diagnose.scale.engine import (
    Engine,
    HereEngine,
    Inputs,
    Prepared,
    ReadingOptions,
    Run,
    Say,
    Task,
    find_inputs,
    for_inputs,
    measure_each,
    name_of,
    prepare,
    silent,
    tasks_of,
)


def diagnose(
    inputs: str | Path | Sequence[str | Path],
    *,
    log: str | Path | None = None,
    include_host_info: bool = False,
    forecasts: bool = True,
    progress: Say | None = None,
    rank: int | None = None,
    engine: Engine | None = None,
    notice: Say | None = None,
    **reading: Unpack[ReadingOptions],
) -> Diagnosis:
    """Diagnose one or several traces of a job.

    `inputs` are (or is) files, folders of traces, patterns, or "-". Each is measured by itself, by `engine` (by default in this process,
    one after the other); one that can't be analysed, among several, is counted in the ledger with its reason. `config` is the job file,
    `overrides` (KEY=VALUE) go on top of it, `command` is the number of one of several commands in it; its own rules are used beside
    `rules`. `log` is the trainer's, for a step's length without the profiler. `step_range` is a pattern for the ranges that mark steps.
    Without `forecasts` the plan tells what each step wins at most, not what it is likely to. `progress` is told where the run stands,
    `notice` what a log should keep (a worker that died). Raises the errors of `diagnose.errors`.
    """
    prepared = prepare(**reading)
    found = find_inputs(inputs)
    logged = None if log is None else logged_run(Path(log), load_specs(), profiled=_profiled(prepared.job))
    settings = for_inputs(prepared, len(found.paths)) if forecasts else prepared.settings
    run, outcomes, measured = _all_measured(found, replace(prepared, settings=settings), rank, engine, progress, notice)
    document = conclude(measured, prepared.job, prepared.knowledge, include_host_info=include_host_info, logged=logged)
    if not forecasts:
        return document
    run.doing("replaying")
    return _with_forecasts(
        document, measured, prepared, run, [task for task in run.tasks if isinstance(outcomes[task.place], Measured)], engine
    )


def _all_measured(
    found: Inputs, prepared: Prepared, rank: int | None, engine: Engine | None, progress: Say | None, notice: Say | None
) -> tuple[Run, dict[int, Measured | InputError], Sequence[Measured]]:
    """Measure every input: the run, what each of its tasks came to, and what was measured. Raises the errors of `diagnose.errors`."""
    if getattr(engine, "scheduler", None) is None:  # workers elsewhere may see what is not to be seen from here
        _check_there(found)
    run = Run(
        settings=prepared.settings,
        knowledge=prepared.knowledge,
        tasks=tuple(tasks_of(found.paths, rank)),
        doing=progress or silent,
        notice=notice or silent,
    )
    outcomes = _outcomes(run, engine)
    return run, outcomes, _measured(found, outcomes, run.doing)


def _outcomes(run: Run, engine: Engine | None) -> dict[int, Measured | InputError]:
    """What every task came to, by its place."""
    with closing(measure_each(run, engine or HereEngine())) as stream:
        return dict(stream)


def _with_forecasts(
    document: Diagnosis, measured: Sequence[Measured], prepared: Prepared, run: Run, tasks: Sequence[Task], engine: Engine | None
) -> Diagnosis:
    """The document with forecasts; of many ranks the verdict's is measured again, to be replayed. `tasks`: one for each of `measured`."""
    from diagnose.measure.ranks.meetings import meeting_ranks  # noqa: PLC0415 - bisect and compare need neither
    from diagnose.reason.forecast.report import with_forecasts  # noqa: PLC0415

    place = (document.verdict.rank, document.verdict.device)
    number, part = next(
        (number, part) for number, part in enumerate(measured) if any((one.rank, one.device) == place for one in part.devices)
    )
    row = next(row for row, one in enumerate(part.devices) if (one.rank, one.device) == place)
    if run.settings.replay or not document.plan:
        graph = part.devices[row].graph
    else:
        again = replace(run, settings=replace(run.settings, replay=True), tasks=(replace(tasks[number], place=0),))
        found = _outcomes(again, engine)[0]
        graph = found.devices[row].graph if isinstance(found, Measured) else None
        graph = None if graph is None else dataclasses.replace(graph, rank=part.devices[row].rank)
    return with_forecasts(
        document,
        graph,
        prepared.job,
        prepared.knowledge,
        lambda: meeting_ranks(comparable(measured), prepared.job, prepared.knowledge.buckets, place),
    )


def whatif(
    inputs: str | Path | Sequence[str | Path],
    *,
    fixes: Sequence[str] = (),
    plan: bool = False,
    remove: Sequence[str] = (),
    scale: Sequence[str] = (),
    detach: Sequence[str] = (),
    link: str | None = None,
    no_wait: bool = False,
    gpu: str | None = None,
    anyway: bool = False,
    progress: Say | None = None,
    rank: int | None = None,
    engine: Engine | None = None,
    notice: Say | None = None,
    **reading: Unpack[ReadingOptions],
) -> Forecast:
    """What a step of a job would take after changes: fixes by id, free questions as `diagnose whatif` takes them, or a plan.

    Without any question the plan is searched for. Other options are those of `diagnose`. Raises the errors of `diagnose.errors`.
    """
    from diagnose.measure.ranks.meetings import ONE_RANK, meeting_ranks, too_many  # noqa: PLC0415
    from diagnose.reason.forecast.answer import answer  # noqa: PLC0415 - a diagnosis alone needs neither
    from diagnose.reason.forecast.plan import undecided  # noqa: PLC0415
    from diagnose.reason.forecast.questions import Free  # noqa: PLC0415
    from diagnose.reason.forecast.report import with_forecasts  # noqa: PLC0415
    from diagnose.reason.plan import of_numerics  # noqa: PLC0415

    prepared = prepare(**reading)
    found = find_inputs(inputs)
    crowd = too_many(len(found.paths))
    if crowd is not None:
        raise UsageError(crowd, effect="Nothing was forecast.", next_step="`diagnose` itself compares all of them.")
    replayed = replace(prepared, settings=replace(prepared.settings, replay=True))
    run, _, measured = _all_measured(found, replayed, rank, engine, progress, notice)
    free = Free(remove=tuple(remove), scale=tuple(scale), detach=tuple(detach), link=link, no_wait=no_wait, gpu=gpu)
    searched = plan or not (fixes or free.any)  # only then the order of the report's plan counts, and only where numerics are in it
    document = conclude(measured, prepared.job, prepared.knowledge)
    run.doing("replaying")
    place = (document.verdict.rank, document.verdict.device)
    graph = next(one.graph for part in measured for one in part.devices if (one.rank, one.device) == place)
    if searched and undecided(document.plan, of_numerics(document.findings)):
        document = with_forecasts(document, graph, prepared.job, prepared.knowledge)
    return answer(
        document,
        graph,
        prepared.job,
        prepared.knowledge,
        fixes=fixes,
        free=free,
        plan=plan,
        anyway=anyway,
        met=meeting_ranks(comparable(measured), prepared.job, prepared.knowledge.buckets, place) if free.any or not searched else ONE_RANK,
    )


def _profiled(job: Job | None) -> range:
    """The iterations that the job says it profiles: the trainer's log has them too, and slower."""
    start, end = (None if job is None else job.get(f"profile_step_{end}") for end in ("start", "end"))
    return range(start, end + 1) if isinstance(start, int) and isinstance(end, int) else range(0)


OneRun = Diagnosis | str | Path


def compare(
    base: OneRun | Sequence[OneRun],
    new: OneRun | Sequence[OneRun],
    *,
    config: str | Path | None = None,
    base_config: str | Path | None = None,
    rules: Sequence[str | Path] = (),
    metric: str = STEP_TIME,
    anyway: bool = False,
    max_regression: float | None = None,
    run_noise: float | None = None,
) -> Comparison:
    """Hold one run against another, or several against several: diagnoses, traces, folders of traces, or saved diagnoses.

    `config` is the job file of both, or of `new` where `base_config` names another; `run_noise` the relative standard deviation between
    runs, where these do not measure it. Raises the errors of `diagnose.errors`.
    """
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415 - a diagnosis alone needs neither
    from diagnose.reason.compare.runs import Named, Runs, Terms  # noqa: PLC0415
    from diagnose.reason.compare.runs import compare as compare_documents  # noqa: PLC0415

    def named(runs: OneRun | Sequence[OneRun], job: str | Path | None, otherwise: str) -> list[Named]:
        found = []
        for one in [runs] if isinstance(runs, Diagnosis | str | Path) else runs:
            document = one if isinstance(one, Diagnosis) else _side(Path(one), job, rules)
            name = str(one) if isinstance(one, str | Path) else one.identity.file if one.identity else ""
            found.append(Named(Path(name).name or otherwise, document))
        return found

    here, there = named(base, base_config or config, "base"), named(new, config, "new")
    return compare_documents(
        Runs(side_label([run.label for run in here]), here),
        Runs(side_label([run.label for run in there]), there),
        rules=load_comparison_rules([Path(one) for one in rules]),
        terms=Terms(metric=metric, anyway=anyway, max_regression=max_regression, run_noise=run_noise),
    )


def _side(path: Path, config: str | Path | None, rules: Sequence[str | Path]) -> Diagnosis:
    """A saved diagnosis, or the one of a trace."""
    if schema_of(path) == SCHEMA:
        saved = read(path, (SCHEMA,))
        if isinstance(saved, Diagnosis):
            return saved
    return diagnose(path, config=config, rules=rules)


def diagnose_each(
    captures: Sequence[Sequence[str | Path]],
    *,
    rank: int | None = None,
    engine: Engine | None = None,
    notice: Say | None = None,
    **reading: Unpack[ReadingOptions],
) -> Generator[Diagnosis | DiagnoseError, None, None]:
    """Diagnose several captures of a job, each by itself, all in one run of the engine: diagnoses or errors, in order.

    Options are those of `diagnose`. Closing the generator ends all workers. Raises what is wrong with all captures alike.
    """
    prepared = prepare(**reading)
    inputs = [_inputs(capture) for capture in captures]
    of_one = [[] if isinstance(found, InputError) else tasks_of(found.paths, rank) for found in inputs]
    owners = [(index, task) for index, tasks in enumerate(of_one) for task in tasks]
    outcomes: dict[int, dict[int, Measured | InputError]] = {index: {} for index in range(len(captures))}
    run = Run(
        settings=prepared.settings,
        knowledge=prepared.knowledge,
        tasks=tuple(replace(task, place=place) for place, (_, task) in enumerate(owners)),
        notice=notice or silent,
    )
    with closing(measure_each(run, engine or HereEngine())) as stream:
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
        return conclude(_measured(found, outcomes, silent), prepared.job, prepared.knowledge)
    except (InputError, JobFileError, UsageError) as fault:
        return fault


def _check_there(found: Inputs) -> None:
    """Raise MissingInputError for a path that does not exist, before work is done for the others, which alone would pass for the whole."""
    for path in found.paths:
        try:
            there = str(path) == STDIN or Path(path).exists() or Path(path).is_symlink()
        except (OSError, ValueError):
            there = True  # reading says what is wrong with the path
        if not there:
            raise MissingInputError(f"{path} does not exist.", effect="Nothing was analysed.", next_step="Check the path.")


def _measured(found: Inputs, outcomes: Mapping[int, Measured | InputError], say: Say) -> list[Measured]:
    """What could be measured of the inputs of one capture, with what could not noted. Raises InputError where nothing could."""
    in_order = [(path, outcomes[place]) for place, path in enumerate(found.paths)]
    refused = [(path, outcome) for path, outcome in in_order if isinstance(outcome, InputError)]
    measured = [outcome for _, outcome in in_order if not isinstance(outcome, InputError)]
    absent = [error for path, error in refused if isinstance(error, MissingInputError) and path not in found.in_folders]
    if absent:  # the others alone would pass for the whole
        raise absent[0]
    if refused and not measured:
        raise refused[0][1]
    if not measured:
        raise UsageError("No trace was given.", effect="Nothing was analysed.", next_step="Name a trace, a folder of traces, or a pattern.")
    say("drawing conclusions")
    first = replace(measured[0], ledger=_with_inputs_left_out(measured[0].ledger, refused, found))
    paths = [path for path, outcome in in_order if not isinstance(outcome, InputError)]
    return with_distinct_ranks(_named_by_files(_told_apart([first, *measured[1:]], paths), paths))


def _told_apart(measured: Sequence[Measured], paths: Sequence[str | Path]) -> list[Measured]:
    """Inputs of one name in several folders (rank_0/profile.sqlite), under the names of their folders too."""
    often = Counter(one.provenance.file for one in measured)
    return [
        one
        if often[one.provenance.file] == 1
        else replace(one, provenance=replace(one.provenance, file=f"{Path(path).parent.name}/{one.provenance.file}"))
        for one, path in zip(measured, paths, strict=True)
    ]


_RANK = re.compile(r"(?<![a-z])(?<!local[-_.])rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)


def _named_by_files(measured: Sequence[Measured], paths: Sequence[str | Path]) -> list[Measured]:
    """Inputs whose trace does not tell the rank, under the rank in the file's name, or else in that of its folder (rank_3.sqlite).

    Only where all of them have one of their own there: a name with the rank on its host comes back on the next host.
    """
    untold = {place: Path(paths[place]) for place, one in enumerate(measured) if [rank.source for rank in one.ranks] == ["assigned"]}
    spelt = {place: _RANK.findall(path.name) or _RANK.findall(path.parent.name) for place, path in untold.items()}
    numbers = {place: int(found[0]) for place, found in spelt.items() if len(set(found)) == 1}
    numbers = {place: number for place, number in numbers.items() if number < (measured[place].ranks[0].world_size or number + 1)}
    if len(set(numbers.values())) < len(untold):
        return list(measured)
    return [_under(one, numbers[place]) if place in numbers else one for place, one in enumerate(measured)]


def _under(one: Measured, number: int) -> Measured:
    """An input of one rank under the number that its name gives."""
    told = replace(one.ranks[0], rank=number, source="name")
    return replace(
        one,
        ranks=(told,),
        devices=tuple(replace(device, rank=number) for device in one.devices),
        ledger=replace(one.ledger, entries=tuple(entry for entry in one.ledger.entries if entry.code != "assigned_rank")),
    )


def _with_inputs_left_out(ledger: Ledger, refused: Sequence[tuple[str | Path, InputError]], found: Inputs) -> Ledger:
    """The ledger with an entry for every input that failed, and for every file of a folder that is no trace and that nobody named."""
    ignored = list(found.ignored)
    for path, error in refused:
        if isinstance(error, ForeignInputError) and path in found.in_folders:
            ignored.append((name_of(path), error.what))
        else:
            ledger = ledger.note("refused_input", "inputs", detail=error.what)
    for name, reason in ignored:
        ledger = ledger.note("ignored_file", "inputs", detail=f"{name}: {reason}")
    return ledger


def with_distinct_ranks(measured: Sequence[Measured]) -> list[Measured]:
    """Inputs whose ranks do not collide: a rank that is taken, or only assigned, gets the next free number.

    What a trace tells goes before what was assigned, and the first to say so keeps its number before another that says the same gets one.
    """
    taken: set[int] = set()
    claims = [(place, rank) for place, one in enumerate(measured) for rank in one.ranks]
    firsts = {rank.rank: place for place, rank in reversed(claims) if rank.source != "assigned"}
    numbers: dict[tuple[int, int], int] = {}
    for place, rank in sorted(claims, key=lambda pair: (pair[1].source == "assigned", firsts.get(pair[1].rank) != pair[0])):
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
