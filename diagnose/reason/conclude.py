"""measure → reason: from what was measured of every input to the document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from diagnose.document.device import Communication, Memory
from diagnose.document.diagnosis import (
    SCHEMA,
    Capture,
    DeviceInfo,
    Diagnosis,
    Efficiency,
    Fact,
    Finding,
    JobProblem,
    JobRead,
    LedgerEntry,
    NotAssessed,
    PlanStep,
    RankInfo,
    TableCount,
    Tool,
    Verdict,
    WallBound,
    Where,
)
from diagnose.document.ranks import RankProblem, Ranks
from diagnose.job import Job, count_of
from diagnose.job.derived import completed
from diagnose.knowledge.load import Knowledge
from diagnose.knowledge.platforms import Platform, maker_of, platform_of
from diagnose.knowledge.rulebook import Rulebook
from diagnose.load.trainer_log import LoggedRun
from diagnose.measure.capture import Measured, merged, typical
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.facts import device_facts, of_all, typed_facts, typical_facts
from diagnose.measure.ranks.compare import Compared, compare
from diagnose.measure.ranks.facts import inferred_rank_facts, rank_facts
from diagnose.measure.ranks.members import Input
from diagnose.measure.records import DeviceRecords, device_records, kernels, moe_layer, split, steps, timeline, unclassified, vision
from diagnose.measure.where import device_where, rank_where
from diagnose.model.ledger import CODES, Ledger
from diagnose.model.vocabulary import FactValue
from diagnose.reason.context import make_context
from diagnose.reason.efficiency import ANOTHER_CAPTURE, efficiency, identity
from diagnose.reason.findings import find, passed
from diagnose.reason.forecast.configured import repeats_no_products
from diagnose.reason.nvlink import nvlink_domain, with_links
from diagnose.reason.plan import plan_of
from diagnose.reason.walls import bounds, verdict
from diagnose.version import __version__

KERNELS_OF = 8  # up to so many devices all show their kernels: those of one node
FAILURES_SHOWN = 4  # refused inputs whose reasons a report on ranks repeats


def conclude(
    measured: Sequence[Measured],
    job: Job | None,
    knowledge: Knowledge,
    *,
    include_host_info: bool = False,
    logged: LoggedRun | None = None,
) -> Diagnosis:
    """From measurements to the document, without forecasts. `logged`: what the trainer's log tells."""
    devices = [device for part in measured for device in part.devices]
    records = {(one.rank, one.device): device_records(one) for one in devices}
    worlds = [value for part in measured if isinstance(value := part.facts["world_size"], int)]
    traced = max(worlds, default=None)
    job = None if job is None else completed(job, world_size=traced)
    ledger = sum((part.ledger for part in measured), start=Ledger())
    choice = _choice(measured, job, traced, knowledge, ledger)
    shown, compared, ranks = choice.shown, choice.compared, choice.ranks
    own = records[shown.rank, shown.device]
    named = {rank.rank for part in measured for rank in part.ranks if rank.claimed is None}
    run = {**of_all([part.facts for part in measured]), **_slowdown(shown, None if logged is None else logged.step_ns)}
    captured = len({one.rank for one in devices} & named)
    facts = _facts(choice, own, job, knowledge, captured=captured, run=run, logged=logged)
    judged = _judged(shown, facts, {**device_where(shown, own), **rank_where(ranks)}, job, knowledge.rulebook)
    read, capture = _job(job, traced), _capture(measured, facts, ledger, shown, choice.why, include_host_info=include_host_info)
    known = identity(capture, job, facts, rank=shown.rank, device=shown.device, captured=len(named))
    platform = make_context(facts, job, knowledge.rulebook).values.get("platform")
    speed = efficiency(known, read, facts, knowledge.rulebook, platform=platform if isinstance(platform, str) else None)
    return Diagnosis(
        schema=SCHEMA,
        tool=Tool(name="diagnose", version=__version__, rules_sha256=knowledge.rulebook.sha256),
        verdict=judged.verdict,
        walls=judged.walls,
        identity=known,
        efficiency=speed,
        plan=judged.plan,
        job=_held_against(read, speed),
        capture=capture,
        ledger=_ledger_entries(ledger, measured),
        steps=steps(devices, shown),
        totals=tuple(one.totals for one in records.values()),
        budget=tuple(one.budget for one in records.values()),
        buckets=tuple(row for one in records.values() for row in one.buckets),
        unclassified=unclassified(shown),
        communication=tuple(_with_waits(row, compared) for one in records.values() for row in one.communication),
        blocking=tuple(row for one in records.values() for row in one.blocking),
        host=tuple(row for one in records.values() for row in one.host),
        memory=_with_levels(own.memory, facts),
        occupancy=shown.occupancy.record,
        facts=facts,
        findings=judged.findings,
        not_assessed=judged.not_assessed,
        timeline=timeline(shown),
        moe_layer=moe_layer(shown),
        vision=vision(devices),
        ranks=ranks,
        passed=passed(knowledge.rulebook, judged.findings, judged.not_assessed),
        environment=merged([part.provenance.environment for part in measured]),
        split=tuple(split(one) for one in devices),
        kernels=tuple(kernels(one) for one in with_kernels(devices, shown)),
    )


class _Choice(Struct, frozen=True, kw_only=True):
    """The device that the document speaks of, its input, why it is that one, and the comparison of ranks, with its links and failures."""

    shown: DeviceMeasure
    source: Measured
    why: str
    compared: Compared | None
    ranks: Ranks | None


def _choice(measured: Sequence[Measured], job: Job | None, world: int | None, knowledge: Knowledge, ledger: Ledger) -> _Choice:
    """What a comparison of ranks chooses; without one, the device in the middle."""
    middle = _middle(measured)
    compared = _compared(measured, middle, job, world, knowledge)
    place = middle if compared is None else (compared.shown.rank, compared.shown.device)
    source, shown = next((part, one) for part in measured for one in part.devices if (one.rank, one.device) == place)
    why = "it is the one in the middle by step" if compared is None else compared.ranks.chosen
    ranks = None
    if compared is not None:
        ranks = with_links(_with_failed(compared.ranks, ledger), _platform(shown, knowledge.rulebook)[1])
    return _Choice(shown=shown, source=source, why=why, compared=compared, ranks=ranks)


class _Judgement(Struct, frozen=True, kw_only=True):
    """What the rules say of one device."""

    walls: tuple[WallBound, ...]
    findings: tuple[Finding, ...]
    not_assessed: tuple[NotAssessed, ...]
    verdict: Verdict
    plan: tuple[PlanStep, ...]


def _judged(shown: DeviceMeasure, facts: Mapping[str, Fact], where: Mapping[str, Where], job: Job | None, rulebook: Rulebook) -> _Judgement:
    """Facts × rules: bounds, findings with the places in `where`, verdict and plan."""
    usual = typical_facts(shown, facts)
    walls = bounds(facts, rulebook, usual)
    findings, not_assessed = find(facts, job=job, rulebook=rulebook, where=where, walls=walls)
    said = structs.replace(
        verdict(walls, facts, rulebook, job, findings=findings, typical_step_ns=_length(usual)), rank=shown.rank, device=shown.device
    )
    single = [rule.id for rule in rulebook.rules.values() if rule.one_change]
    plan = plan_of(findings, said, shown.mean_step_ns, single)
    return _Judgement(walls=walls, findings=findings, not_assessed=not_assessed, verdict=said, plan=plan)


def _ledger_entries(ledger: Ledger, measured: Sequence[Measured]) -> tuple[LedgerEntry, ...]:
    """What was refused, repaired or lost, with what it means."""
    return tuple(
        LedgerEntry(
            code=entry.code,
            severity=entry.severity,
            origin=CODES[entry.code].origin,
            table=entry.table,
            count=entry.count,
            meaning=CODES[entry.code].meaning,
            detail=entry.detail,
            files=_losers(measured, entry.code),
        )
        for entry in ledger.folded().entries
    )


def _losers(measured: Sequence[Measured], code: str) -> tuple[str, ...]:
    """Of several inputs those that lost data in this way; an input that was refused is told by its entry."""
    if len(measured) == 1 or CODES[code].severity != "data_loss" or code == "refused_input":
        return ()
    return tuple(part.provenance.file for part in measured if any(entry.code == code for entry in part.ledger.entries))


def _length(typical: Mapping[str, Fact]) -> int | None:
    """The length of the typical step, ns."""
    step = typical["step_ns"].value
    return step if isinstance(step, int) else None


def with_kernels(devices: Sequence[DeviceMeasure], shown: DeviceMeasure) -> Sequence[DeviceMeasure]:
    """The devices whose kernels are listed: all, or of many the verdict's and the lowest, which other captures are likely to hold too."""
    if len(devices) <= KERNELS_OF:
        return devices
    lowest = min(devices, key=lambda one: (one.rank, one.device))
    return [lowest] if lowest is shown else [lowest, shown]


def _middle(measured: Sequence[Measured]) -> tuple[int, int]:
    """(rank, device) in the middle by median step: first within each input, then among the inputs."""
    parts = [part.devices for part in comparable(measured) if part.devices]
    of_inputs = [typical([(one.median_step_ns, one.rank, one.device) for one in devices]) for devices in parts]
    _, rank, device = typical(of_inputs)
    return rank, device


def _compared(
    measured: Sequence[Measured], middle: tuple[int, int], job: Job | None, world: int | None, knowledge: Knowledge
) -> Compared | None:
    """The comparison of ranks; None below two comparable devices."""
    claimed: Counter[int] = Counter(rank.claimed for part in measured for rank in part.ranks if rank.claimed is not None)
    kept = comparable(measured)
    devices = [device for one in kept for device in one.devices]
    if len(devices) < 2:
        return None
    places = [(device.rank, device.device) for device in devices]
    stated = count_of(job, "world_size")
    return compare(
        kept,
        job,
        world=world if stated is None else stated,
        claimed={rank: number + 1 for rank, number in claimed.items()},
        middle=middle if middle in places else places[0],
        buckets=knowledge.buckets,
    )


def comparable(measured: Sequence[Measured]) -> list[Input]:
    """What each input adds to a comparison of ranks: without those that say to be a rank that another is too."""
    kept = []
    for number, part in enumerate(measured):
        own = {rank.rank for rank in part.ranks if rank.claimed is None}
        known = tuple(device for device in part.devices if device.rank in own)
        kept.append(Input(number=number, file=part.provenance.file, ranks=part.ranks, devices=known))
    return kept


def _platform(device: DeviceMeasure, rulebook: Rulebook) -> tuple[str | None, Platform | None]:
    """The platform table's entry for a device, and its key."""
    key = platform_of(device.info.name if device.info else None, rulebook.platforms)
    return key, rulebook.platforms.platforms[key] if key else None


def _with_failed(ranks: Ranks, ledger: Ledger) -> Ranks:
    """The comparison with the inputs that could not be analysed, and why; which ranks they are is not known."""
    refused = [entry for entry in ledger.entries if entry.code == "refused_input"]
    failed = sum(entry.count for entry in refused)
    if not failed:
        return ranks
    why = " ".join(entry.detail for entry in refused[:FAILURES_SHOWN])
    more = "" if len(refused) <= FAILURES_SHOWN else f" (and {len(refused) - FAILURES_SHOWN} more, see the ledger)"
    text = (
        f"{failed} input{' was' if failed == 1 else 's were'} not analysed, and nothing here speaks of "
        f"{'it' if failed == 1 else 'them'}: {why}{more}"
    )
    return structs.replace(ranks, problems=(*ranks.problems, RankProblem(kind="failed", ranks=(), count=failed, text=text)))


def _with_waits(row: Communication, compared: Compared | None) -> Communication:
    """The row with what matching across ranks adds."""
    found = compared.exchanged.get((row.rank, row.device, row.kind, row.backend)) if compared is not None else None
    if found is None:
        return row
    transfer, wait, matched, unmatched = found
    return structs.replace(row, transfer_ns=transfer, wait_ns=wait, matched=matched, unmatched=unmatched)


def _job(job: Job | None, world_size: int | None) -> JobRead | None:
    """What the job file says, with what follows from it."""
    if job is None:
        return None
    from diagnose.job.sizes import sizes  # noqa: PLC0415 - without a job file it is not needed

    found = sizes(job, world_size=world_size)
    read = job.read()
    return structs.replace(read, derived=found.derived, problems=(*read.problems, *found.problems))


def _held_against(read: JobRead | None, speed: Efficiency) -> JobRead | None:
    """The job file, with a problem more where this capture can't be of it."""
    if read is None or not speed.lacking.endswith(ANOTHER_CAPTURE):
        return read
    problem = JobProblem(id="another-capture", text=f"{speed.lacking[:1].upper()}{speed.lacking[1:]}.")
    return structs.replace(read, problems=(*read.problems, problem))


def _facts(
    choice: _Choice,
    records: DeviceRecords,
    job: Job | None,
    knowledge: Knowledge,
    *,
    captured: int,
    run: dict[str, FactValue],
    logged: LoggedRun | None,
) -> dict[str, Fact]:
    """All facts of the document, in the order of the facts table."""
    shown, ranks = choice.shown, choice.ranks
    values = {
        **choice.source.facts,
        **run,
        **device_facts(shown, records, knowledge),
        **rank_facts(ranks, shown.mean_step_ns, shown.device),
        "ranks_captured": captured,
    }
    if logged is not None:
        values |= _memory_of_log(logged, values)
    values["profiler_starved_ns"] = _profilers(values, min(shown.mean_step_ns, shown.median_step_ns))
    rulebook = knowledge.rulebook
    key, platform = _platform(shown, rulebook)
    values["platform"] = key
    name = values["gpu_name"] if isinstance(values["gpu_name"], str) else None
    values["gpu_maker"] = "amd" if values["hip_version"] is not None else maker_of(name, rulebook.platforms)
    values["nvlink_domain"] = nvlink_domain(platform, ranks)
    if values["gpu_compute_major"] is None and platform:
        values["gpu_compute_major"] = platform.compute_major
    guessed = {name for name, spec in rulebook.facts.items() if spec.status == "inferred" and values.get(name)} | set(
        inferred_rank_facts(ranks)
    )
    configured: set[str] = set()
    if records.memory.recompute_status == "inferred":
        chosen = configured_recompute(values, job)
        (configured if chosen else guessed).update(_RECOMPUTE)
        values |= chosen
    if (stages := repeated_in_other_stages(values, job)) is not None:
        values["recompute_stages_ns"] = stages
        guessed.add("recompute_stages_ns")
    if values["blocking_inferred_share"]:
        guessed |= {name for name in rulebook.facts if "blocking" in name}
    found = typed_facts(values, {name: spec.unit for name, spec in rulebook.facts.items()}, frozenset(guessed))
    return found | {name: structs.replace(found[name], status="config") for name in configured}


def _slowdown(shown: DeviceMeasure, unprofiled_step_ns: float | None) -> dict[str, FactValue]:
    """How much longer the profiled step took than the trainer's log says; steps that no range marks are no steps of the trainer."""
    if unprofiled_step_ns is None or shown.steps.anchor == "capture":
        return {"unprofiled_step_ns": unprofiled_step_ns, "profiler_slowdown": None}
    return {"unprofiled_step_ns": unprofiled_step_ns, "profiler_slowdown": shown.mean_step_ns / unprofiled_step_ns - 1}


def _profilers(values: Mapping[str, FactValue], step_ns: int) -> int | None:
    """Of what a step loses to the CPU (ns), what is most likely the profiler's: `step_ns` is so much longer than in the log."""
    unprofiled, starved, freeing = (values.get(name) for name in ("unprofiled_step_ns", "launch_starved_ns", "allocator_ns"))
    if values.get("profiler_slowdown") is None or not isinstance(unprofiled, int | float) or not isinstance(starved, int):
        return None
    return max(0, min(round(step_ns - unprofiled), starved - (freeing if isinstance(freeing, int) else 0)))


_LEVELS = ("peak_allocated_bytes", "peak_reserved_bytes")


def _memory_of_log(logged: LoggedRun, values: Mapping[str, FactValue]) -> dict[str, FactValue]:
    """The memory that the trainer's log tells, where the trace holds no level, and failed allocations that either shows."""
    found: dict[str, FactValue] = {}
    if all(values[name] is None for name in _LEVELS):
        found |= dict(zip(_LEVELS, (logged.peak_allocated, logged.peak_reserved), strict=True))
    recorded = values["out_of_memory_events"]
    return found | {"out_of_memory_events": (recorded if isinstance(recorded, int) else 0) + logged.out_of_memory}


def _with_levels(memory: Memory, facts: Mapping[str, Fact]) -> Memory:
    """The record with the levels that the facts hold, and without a recompute that they do not."""
    allocated, reserved = (value if isinstance(value := facts[name].value, int) else None for name in _LEVELS)
    known = memory
    if facts["recompute_ns"].value is None:
        known = structs.replace(memory, recompute_ns=None, recompute_lower_ns=None, recompute_status=None)
    return structs.replace(known, peak_allocated_bytes=allocated, peak_reserved_bytes=reserved)


def repeated_in_other_stages(values: Mapping[str, FactValue], job: Job | None) -> int | None:
    """By what waiting for other pipeline stages would be shorter without recompute, ns per step; None where there is none of either.

    They repeat as much as this one, and the bubble is made of their passes, with the same share of recompute as the rest of the step. With
    p even stages, v virtual stages on each and m micro-batches that is (p − 1) / (v m) of what one repeats; a stage that waits little
    because it has most to do wins that, too.
    """
    repeated, waiting, step = (values.get(name) for name in ("recompute_ns", "pipeline_parallel_blocking_ns", "step_ns"))
    if not isinstance(repeated, int) or not isinstance(waiting, int) or not isinstance(step, int) or not repeated or not 0 < waiting < step:
        return None
    stages, batches = count_of(job, "pipeline_model_parallel_size"), count_of(job, "num_microbatches")
    virtual = count_of(job, "virtual_pipeline_model_parallel_size") or 1
    even = 0.0 if stages is None or batches is None else (stages - 1) / (virtual * batches)
    return min(waiting, round(repeated * max(waiting / (step - waiting), even)))


_RECOMPUTE = ("recompute_ns", "recompute_lower_ns", "recompute_share", "recompute_restart_ns")


def _repeats_experts(job: Job | None) -> bool:
    """Whether selective recompute holds the whole block of experts."""
    modules = None if job is None else job.get("recompute_modules")
    return isinstance(modules, tuple) and "moe" in modules


def configured_recompute(values: Mapping[str, FactValue], job: Job | None) -> dict[str, FactValue]:
    """The value within the range of counted recompute that the job file speaks for; nothing where it says nothing or the trace shows none.

    Recompute of attention alone repeats what is repeated for certain, that of modules without products no products; anything more repeats
    what the order of the kernels shows. Where it is of experts, and nothing in the trace tells if those are repeated, none is known.
    """
    upper, lower, light = values["recompute_ns"], values["recompute_lower_ns"], values["recompute_light_ns"]
    granularity = None if job is None else job.get("recompute_granularity")
    if granularity == "selective" and upper == 0 and values.get("experts_recompute_told") is False and _repeats_experts(job):
        return dict.fromkeys((*_RECOMPUTE, "recompute_light_ns"))
    if job is None or not isinstance(upper, int) or not isinstance(lower, int) or not upper or granularity not in {"full", "selective"}:
        return {}
    chosen = upper
    if repeats_no_products(job):
        chosen = lower if job.get("recompute_modules") == ("core_attn",) or not isinstance(light, int) else light
    step, restart = values["step_ns"], values.get("recompute_restart_ns")
    return {
        "recompute_ns": chosen,
        "recompute_lower_ns": chosen,
        "recompute_restart_ns": round(restart * chosen / upper) if isinstance(restart, int) else None,
        "recompute_share": chosen / step if isinstance(step, int) and step else None,
    }


def _capture(
    measured: Sequence[Measured], facts: dict[str, Fact], ledger: Ledger, verdict_of: DeviceMeasure, chosen: str, *, include_host_info: bool
) -> Capture:
    """What was captured, with the device that the verdict speaks of and why it was chosen."""
    first = measured[0].provenance
    refused: dict[str, int] = {}
    for entry in ledger.entries:
        if CODES[entry.code].refuses:
            refused[entry.table] = refused.get(entry.table, 0) + entry.count
    graphs = {part.provenance.graph_trace for part in measured}
    devices = [device for part in measured for device in part.devices]
    several = f"{len(devices)} devices are analysed; the verdict is of rank {verdict_of.rank}, device {verdict_of.device}: {chosen}."
    rate, resolved = facts["correlation_rate"].value, facts["resolved_wait_rate"].value
    return Capture(
        format=first.format,
        profiler=first.profiler,
        profiler_version=first.profiler_version,
        schema_version=first.schema_version,
        devices=tuple(_device_info(one) for one in devices),
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
        metrics=tuple(sorted({one.name for part in measured for one in part.samples})),
        samples=tuple(one for part in measured for one in part.samples),
        slowdown=slowdown if isinstance(slowdown := facts["profiler_slowdown"].value, float) else None,
        tables=tuple(TableCount(table=row.table, read=row.read, kept=row.kept, refused=refused.get(row.table, 0)) for row in ledger.rows),
        notes=(*([several] if len(devices) > 1 else []), *dict.fromkeys(note for part in measured for note in part.provenance.notes)),
        phases=verdict_of.start_up.phases,
    )


def _device_info(one: DeviceMeasure) -> DeviceInfo:
    """What the trace tells of a device itself."""
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
