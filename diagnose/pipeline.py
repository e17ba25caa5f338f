"""load → measure → reason: from paths to a Diagnosis. The command line, notebooks and workers all come through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import structs

from diagnose import __version__
from diagnose.diagnosis import SCHEMA, Capture, DeviceInfo, Diagnosis, Fact, JobRead, LedgerEntry, RankInfo, TableCount, Tool
from diagnose.errors import InputError, UsageError
from diagnose.job import Job, completed, overridden_job, read_job, sizes
from diagnose.ledger import CODES, Ledger
from diagnose.load.files import Inputs, expand
from diagnose.load.readers import STDIN, load
from diagnose.measure import parts
from diagnose.measure.capture import Knowledge, Measured, measure, typical
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.facts import device_facts, typed_facts
from diagnose.measure.places import places as places_of
from diagnose.reason.findings import find
from diagnose.reason.walls import bounds, verdict
from diagnose.records import Communication, Memory
from diagnose.rulebook import Rulebook, load_rulebook, platform_of
from diagnose.taxonomy import load_host_rules, load_taxonomy, own_bucket_files
from diagnose.trace import Trace

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
        moved = {rank.rank: numbers[place, rank.rank] for rank in one.ranks}
        claimed = sum(1 for rank in one.ranks if rank.source != "assigned" and moved[rank.rank] != rank.rank)
        result.append(
            replace(
                one,
                ranks=tuple(replace(rank, rank=moved[rank.rank]) for rank in one.ranks),
                devices=tuple(_renumbered(device, moved.get(device.rank, device.rank)) for device in one.devices),
                ledger=one.ledger.note("renumbered_rank", "ranks", claimed, one.provenance.file),
            )
        )
    return result


def _renumbered(device: DeviceMeasure, rank: int) -> DeviceMeasure:
    """The same measurements under another rank."""
    if device.rank == rank:
        return device
    timeline = structs.replace(device.timeline, rank=rank) if device.timeline else None
    return replace(device, rank=rank, totals=structs.replace(device.totals, rank=rank), timeline=timeline)


def conclude(measured: Sequence[Measured], job: Job | None, knowledge: Knowledge, *, include_host_info: bool = False) -> Diagnosis:
    """From measurements to the document."""
    everywhere = [(one, memory) for part in measured for one, memory in zip(part.devices, part.memory, strict=True)]
    middle = typical([(one.median_step_ns, one.rank, one.device) for one, _ in everywhere if one.timeline is not None])
    shown, memory = next(pair for pair in everywhere if (pair[0].rank, pair[0].device) == middle[1:])
    source = next(part for part in measured if shown in part.devices)
    communication, host = parts.communication(shown), parts.host_costs(shown)
    ledger = sum((part.ledger for part in measured), start=Ledger())
    facts = _facts(source, shown, communication, memory, knowledge.rulebook, ranks=len({one.rank for one, _ in everywhere}))
    walls = bounds(facts, knowledge.rulebook)
    world = facts["world_size"].value
    traced = world if isinstance(world, int) else None
    job = None if job is None else completed(job, world_size=traced)
    findings, not_assessed = find(facts, job=job, rulebook=knowledge.rulebook, where=places_of(shown, communication, host))
    devices = [one for one, _ in everywhere]
    return Diagnosis(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version=__version__, rules_sha256=knowledge.rulebook.sha256),
        verdict=structs.replace(verdict(walls, facts, knowledge.rulebook, job), rank=shown.rank, device=shown.device),
        walls=walls,
        job=_job(job, traced),
        capture=_capture(measured, facts, ledger, shown, include_host_info=include_host_info),
        ledger=_ledger(ledger),
        steps=parts.steps(devices, shown),
        totals=tuple(one.totals for one in devices),
        budget=tuple(parts.device_budget(one) for one in devices),
        buckets=tuple(row for one in devices for row in parts.bucket_times(one)),
        unclassified=parts.unclassified(shown),
        communication=tuple(row for one in devices for row in parts.communication(one)),
        blocking=tuple(row for one in devices for row in parts.blocking(one)),
        host=tuple(row for one in devices for row in parts.host_costs(one)),
        memory=memory,
        occupancy=shown.occupancy,
        facts=facts,
        findings=findings,
        not_assessed=not_assessed,
        timeline=shown.timeline,
    )


def _job(job: Job | None, world_size: int | None) -> JobRead | None:
    """What the job file says, with what follows from it."""
    if job is None:
        return None
    found = sizes(job, world_size=world_size)
    return structs.replace(job.read(), derived=found.derived, problems=found.problems)


def _facts(
    source: Measured, shown: DeviceMeasure, communication: tuple[Communication, ...], memory: Memory, rulebook: Rulebook, *, ranks: int
) -> dict[str, Fact]:
    values = {**source.facts, **device_facts(shown, communication, memory), "ranks_captured": ranks}
    key = platform_of(shown.info.name if shown.info else None, rulebook.platforms)
    platform = rulebook.platforms.platforms[key] if key else None
    values["platform"] = key
    values["nvlink_domain"] = platform.nvlink_domain if platform else None
    if values["gpu_compute_major"] is None and platform:
        values["gpu_compute_major"] = platform.compute_major
    guessed = {"recompute_ns", "recompute_share"} if memory.recompute_status == "inferred" else set()
    if values["blocking_inferred_share"]:
        guessed |= {name for name in rulebook.facts if "blocking" in name}
    return typed_facts(values, {name: spec.unit for name, spec in rulebook.facts.items()}, frozenset(guessed))


def _capture(
    measured: Sequence[Measured], facts: dict[str, Fact], ledger: Ledger, verdict_of: DeviceMeasure, *, include_host_info: bool
) -> Capture:
    first = measured[0].provenance
    refused: dict[str, int] = {}
    for entry in ledger.entries:
        if CODES[entry.code].refuses:
            refused[entry.table] = refused.get(entry.table, 0) + entry.count
    graphs = {part.provenance.graph_trace for part in measured}
    rate, resolved = facts["correlation_rate"].value, facts["resolved_wait_rate"].value
    return Capture(
        format=first.format,
        profiler=first.profiler,
        profiler_version=first.profiler_version,
        schema_version=first.schema_version,
        devices=tuple(_device_info(one) for part in measured for one in part.devices),
        ranks=tuple(
            RankInfo(
                rank=rank.rank,
                world_size=rank.world_size,
                source=rank.source,
                file=part.provenance.file,
                host=rank.host if include_host_info else None,
            )
            for part in measured
            for rank in part.ranks
        ),
        diagnostics=tuple(dict.fromkeys(text for part in measured for text in part.provenance.diagnostics)),
        cuda_graphs="opaque" if "opaque" in graphs else "nodes" if "nodes" in graphs else "none",
        correlation_rate=rate if isinstance(rate, float) else None,
        resolved_wait_rate=resolved if isinstance(resolved, float) else None,
        metrics=measured[0].metrics,
        slowdown=None,
        tables=tuple(TableCount(table=row.table, read=row.read, kept=row.kept, refused=refused.get(row.table, 0)) for row in ledger.rows),
        notes=(*_scope(measured, verdict_of), *dict.fromkeys(note for part in measured for note in part.provenance.notes)),
    )


def _scope(measured: Sequence[Measured], shown: DeviceMeasure) -> tuple[str, ...]:
    """What the verdict speaks of, where there is more than one device."""
    devices = sum(len(part.devices) for part in measured)
    if devices == 1:
        return ()
    return (
        f"{devices} devices are analysed, each by itself; the verdict speaks of rank {shown.rank}, device {shown.device}, the one in the middle by step.",
        "What differs between ranks (stragglers, imbalance, transfer against wait) is not compared yet.",
    )


def _device_info(one: DeviceMeasure) -> DeviceInfo:
    info = one.info
    capability = None if info is None or info.compute_major is None else f"{info.compute_major}.{info.compute_minor or 0}"
    return DeviceInfo(
        rank=one.rank,
        device=one.device,
        name=info.name if info else None,
        sm_count=info.sm_count if info else None,
        compute_capability=capability,
        memory_bytes=info.total_memory if info else None,
    )


def _ledger(ledger: Ledger) -> tuple[LedgerEntry, ...]:
    return tuple(
        LedgerEntry(
            code=entry.code,
            severity=entry.severity,
            origin=CODES[entry.code].origin,
            table=entry.table,
            count=entry.count,
            meaning=CODES[entry.code].meaning,
            detail=entry.detail,
        )
        for entry in ledger.folded().entries
    )
