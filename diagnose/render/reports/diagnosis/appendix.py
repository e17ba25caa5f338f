"""The tables behind a report's figures: memory, occupancy, the job file, the capture's quality, the ledger, totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.document.device import MetricSamples, Phase, Steps, on_device
from diagnose.document.diagnosis import SEVERAL_RANKS, Capture, Diagnosis, JobRead, NotAssessed
from diagnose.knowledge.templates import capitalised
from diagnose.render import units, words
from diagnose.render.report import Row, Table, rows_of
from diagnose.render.reports.diagnosis import lost, story
from diagnose.render.reports.diagnosis.tables import file_label, per

MEMORY = "memory"  # the table's key, by which --section asks for it
_SizeValue = int | float | str | None
_MOST_KEYS = 40  # of a whole configuration dump, hundreds of keys decide nothing here; the JSON output lists all
_MOST_RANKS = 16
_MOST_NOTES = 20


def memory(document: Diagnosis) -> Table:
    """Memory as time and as level."""
    found = document.memory
    rows = []
    if found is not None:
        counts = (found.attention_forward_kernels, found.attention_backward_kernels)
        attention = units.NOT_MEASURED if counts == (None, None) else " / ".join(map(units.count, counts))
        rows = [
            (f"recompute {per(document)}", units.ms_unit(found.recompute_ns), found.recompute_status or units.MISSING),
            ("attention kernels, forward / backward", attention, units.MISSING),
            ("peak allocated", _level(found.peak_allocated_bytes, found.capacity_bytes), units.MISSING),
            ("peak reserved", _level(found.peak_reserved_bytes, found.capacity_bytes), units.MISSING),
            ("capacity", _level(found.capacity_bytes, None), units.MISSING),
        ]
    texts = ({"figure": label, "#value": value, "status": status} for label, value, status in rows)
    return Table(MEMORY, "Memory", rows_of(texts), empty="not measured")


def _level(value: int | None, capacity: int | None) -> str:
    if value is None:
        return units.NOT_MEASURED
    return f"{units.size(value)} ({units.percent(value / capacity)} of capacity)" if capacity else units.size(value)


def fill(document: Diagnosis) -> Table:
    """SM coverage by bucket."""
    found = document.occupancy
    filled = [] if found is None else sorted(found.buckets.items())
    return Table(
        "fill",
        "SM coverage by bucket",
        rows_of({"bucket": words.bucket(bucket), "#SM coverage": units.percent(value)} for bucket, value in filled),
        note="Share of SM time with a resident block, from waves; kernels that run at once fill them together. 100 % does not mean that the blocks used their SMs well.",
        empty="not measured",
    )


def occupancy(document: Diagnosis) -> Table:
    """Launch shapes of the costliest kernels."""
    found = document.occupancy
    return Table(
        "occupancy",
        "Launch shape of the costliest kernels",
        rows_of(
            {
                "$kernel": row.name,
                "bucket": words.bucket(row.bucket),
                "#work ms": units.ms(row.work_ns),
                "#kernels": units.count(row.kernels),
                "#waves": units.MISSING if row.waves is None else f"{row.waves:,.2f}",
                "#SM coverage": units.percent(row.fill),
                "#occupancy?": units.percent(row.occupancy),
                "limited by?": row.limited_by or units.MISSING,
            }
            for row in (() if found is None else found.kernels)
        ),
        note="Waves: how often the launch fills all SMs. Occupancy is theoretical: resident warps over the GPU's maximum.",
        empty="not measured",
    )


def job(document: Diagnosis) -> Table:
    """The settings that were read from the job file."""
    settings = () if document.job is None else document.job.settings
    return Table(
        "job",
        "Job file" if document.job is None else f"Job file · {story.framework(document.job.format)}",
        rows_of({"setting": setting.name, "value": _setting(setting.value), "$key in the file": setting.key} for setting in settings),
        note="" if document.job is None else _job_note(document.job),
        empty="no job file was given (--config), so nothing shows which fixes are on already",
    )


def _job_note(found: JobRead) -> str:
    """Notes on reading the file, and what it holds beside the settings."""
    parts = [f"{capitalised(note)}." for note in found.notes]
    if found.unknown:
        parts.append(f"Keys that are not read: {units.listed(found.unknown, _MOST_KEYS)}.")
    return " ".join(parts)


def job_sizes(document: Diagnosis) -> Table:
    """What is derived from the job file, and how."""
    found = () if document.job is None else document.job.derived
    return Table(
        "job-sizes",
        "Derived from the job file",
        rows_of({"size": words.words(one.name), "#value": _size(one.value), "unit": one.unit, "from": one.from_} for one in found),
        empty="nothing can be derived from the job file",
    )


def job_problems(document: Diagnosis) -> Table:
    """What contradicts itself in the job file, and what it holds that is likely misspelt."""
    found = () if document.job is None else document.job.problems
    return Table(
        "job-problems",
        "Problems of the job file",
        rows_of({"check": words.words(one.id), "problem": one.text} for one in found),
        note="Such a job would not start, or not run as written: the settings may belong to another run than the trace.",
        empty="nothing",
    )


def _size(value: _SizeValue) -> str:
    if value is None:
        return units.MISSING
    if isinstance(value, str):
        return value
    return units.count(round(value)) if value == round(value) and abs(value) < 10**9 else f"{value:.5g}"


def _setting(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def capture(document: Diagnosis) -> Table:
    """How well the run was captured."""
    rows = [*_captured(document.capture), *_steps_captured(document.steps), *_recorded(document)]
    return Table("capture", "Capture quality", rows_of({"what": what, "found": text} for what, text in rows))


def _captured(found: Capture) -> Iterator[tuple[str, str]]:
    """What was captured, by what, and on which devices and ranks."""
    yield "format", f"{found.format}{'' if found.schema_version is None else f', schema {found.schema_version}'}"
    yield "profiler", f"{found.profiler} {found.profiler_version or '(version not recorded)'}"
    devices = sorted({_device(one.name, one.sm_count, one.memory_bytes) for one in found.devices})
    yield "devices", "; ".join(devices) or units.MISSING
    ranks = sorted({one.rank for one in found.ranks})
    worlds = sorted({one.world_size for one in found.ranks if one.world_size is not None})
    whole = units.count(worlds[-1]) if worlds else "an unknown number"
    yield "ranks captured", f"{len(ranks)} of {whole}: {units.listed(ranks, _MOST_RANKS)}"
    for one in found.ranks[:_MOST_RANKS]:
        yield f"rank {one.rank}", f"{file_label(one.file)} (rank from: {one.source}){'' if one.host is None else f', host {one.host}'}"


def _steps_captured(steps: Steps) -> Iterator[tuple[str, str]]:
    """The steps, their lengths, and which were left out."""
    yield "steps", f"{units.plural(steps.n, 'step')}, cut by: {steps.anchor}"
    spread = steps.duration_ns
    if spread.median is None:
        yield "step time", units.NOT_MEASURED
    else:
        yield "step time", f"median {units.ms(spread.median)}, minimum {units.ms(spread.min)}, maximum {units.ms(spread.max)} ms"
    yield "steps left out", "; ".join(f"step {one.index}: {one.why}" for one in steps.dropped) or "none"
    for kind in steps.classes if len(steps.classes) > 1 else ():
        differs = "" if kind.differs_by is None else f": {kind.differs_by}"
        yield "kind of step", f"{kind.n} of {units.ms_unit(kind.duration_ns)}{differs}"
    if steps.outside_ns:
        yield "outside", f"{units.ms_unit(steps.outside_ns)} of GPU time lie outside the steps"


def _recorded(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """How much of what was wanted the profiler recorded, and what it says itself."""
    found = document.capture
    yield from ((f"start-up: {one.name[:80]}", _phase(one)) for one in found.phases)
    for check in document.steps.cross_check:
        agrees = "disagrees by more than 5 %" if check.disagrees else "agrees"
        yield f"cross-check: {check.anchor}", f"median {units.ms_unit(check.median_ns)} over {units.plural(check.n, 'step')}: {agrees}"
    yield "CUDA graphs", words.GRAPHS[found.cuda_graphs]
    yield "launches found", _rate(found.correlation_rate, "of device operations")
    yield "waits resolved", _rate(found.resolved_wait_rate, "of stream waits")
    samples = on_device(found.samples, (document.verdict.rank or 0, document.verdict.device or 0))
    yield from ((f"metric: {one.name[:80]}", _sampled(one)) for one in samples[:_MOST_KEYS])
    if not found.samples:
        yield "hardware metrics", ", ".join(found.metrics) or "not sampled"
    yield "slowdown by profiling", units.NOT_MEASURED if found.slowdown is None else units.percent(found.slowdown)
    yield from (("the profiler says", text) for text in found.diagnostics[:_MOST_NOTES])
    yield from (("note", text) for text in found.notes[:_MOST_NOTES])


def _sampled(one: MetricSamples) -> str:
    """What one metric shows: of the whole GPU, and how much of that is one kernel's."""
    if one.mean is None:
        return "no sample lies in the steps"
    alone = (
        "none while just one operation ran"
        if one.mean_alone is None
        else f"{one.mean_alone:,.1f} over {units.count(one.alone)} while just one operation ran"
    )
    return f"mean {one.mean:,.1f} over {units.plural(one.samples, 'sample')} in the steps, {alone}"


def _phase(phase: Phase) -> str:
    longest = phase.longest_call
    call = "" if longest is None else f"; the longest call: {longest.name[:80]}, {units.ms_unit(longest.duration_ns)}"
    return f"{units.ms(phase.start_ns)} to {units.ms_unit(phase.end_ns)}: {phase.why}{call}"


def _device(name: str | None, sms: int | None, memory_bytes: int | None) -> str:
    parts = [name or "name not recorded", "" if sms is None else f"{sms} SMs", "" if memory_bytes is None else units.size(memory_bytes)]
    return ", ".join(part for part in parts if part)


def _rate(value: float | None, of: str) -> str:
    return units.NOT_MEASURED if value is None else f"{units.percent(value)} {of}"


def ledger(document: Diagnosis) -> Table:
    """What was refused, repaired or worth knowing about the rows."""
    return Table(
        "ledger",
        "Data quality: dropped, repaired, missing",
        tuple(
            Row(
                {
                    "severity": words.words(entry.severity),
                    "code": entry.code,
                    "table": entry.table,
                    "#count": units.count(entry.count),
                    "meaning": " ".join((entry.meaning, *(f"({told})" for told in (entry.detail, lost.named(entry.files)) if told))),
                },
                strong=entry.severity in ("data_loss", "error"),
                line=f"{units.count(entry.count)} × {entry.code} in {entry.table}",
            )
            for entry in document.ledger
        ),
        empty="nothing was refused, repaired or doubtful",
        listed=True,
    )


def not_assessed(document: Diagnosis) -> Table:
    """Rules that lacked a fact: neither found nor ruled out.

    Those that lack the same thing share one row; the JSON output holds each with what it lacks.
    """
    groups: dict[str, list[NotAssessed]] = {}
    for one in document.not_assessed:
        groups.setdefault(_lacking(one), []).append(one)
    ends = [key for key in (_RANKS, _JOB) if len(groups.get(key, ())) > 1]
    rows = [_lacking_alike(group) for key, group in groups.items() if key not in ends]
    given = document.job is not None
    rows += [_ranks_only(groups[key]) if key == _RANKS else _job_only(groups[key], given=given) for key in ends]
    return Table(
        "not-assessed",
        "Not assessed",
        tuple(Row({"rule": rule, "missing": missing, "how to know": how}, line=f"needs {missing}") for rule, missing, how in rows),
        note="Neither found nor ruled out: a fact that these rules need could not be measured.",
        empty="every rule could be judged",
        listed=True,
        of=len(document.not_assessed),
    )


_RANKS, _JOB = "ranks", "job"


def _lacking(one: NotAssessed) -> str:
    """What a rule lacks, as far as it decides with whom it shares a row."""
    if one.missing and all(name.startswith("job_") for name in one.missing):
        return _JOB
    return _RANKS if one.how.startswith(SEVERAL_RANKS) else one.how


def _lacking_alike(rules: Sequence[NotAssessed]) -> list[str]:
    """One row for rules that lack the same facts for the same reasons."""
    first = rules[0]
    missing = ", ".join(first.missing) or "a longer capture"
    if len(rules) == 1:
        return [first.id, missing, first.how]
    return [f"{len(rules)} rules", missing, f"{first.how} Rules: {', '.join(one.id for one in rules)}."]


def _ranks_only(rules: Sequence[NotAssessed]) -> list[str]:
    """One row for all rules that need other ranks, whatever else some of them need."""
    settings = sorted({name.removeprefix("job_") for one in rules for name in one.missing if name.startswith("job_")})
    more = f" Some also need the job file (--config): {', '.join(settings)}." if settings else ""
    return [f"{len(rules)} rules", "several ranks", f"{SEVERAL_RANKS}{more} Rules: {', '.join(one.id for one in rules)}."]


def _job_only(rules: Sequence[NotAssessed], *, given: bool) -> list[str]:
    """One row for all rules that lack nothing but job settings."""
    settings = sorted({name.removeprefix("job_") for one in rules for name in one.missing})
    ask = "Not in the job file:" if given else "Pass the job file (--config) with"
    return [f"{len(rules)} rules", "job settings", f"{ask} {', '.join(settings)}. Rules: {', '.join(one.id for one in rules)}."]


def facts(document: Diagnosis) -> Table:
    """Every fact that rules may use."""
    shown = ((name, units.fact(fact.value, fact.unit), fact.status) for name, fact in sorted(document.facts.items()))
    return Table("facts", "All facts", rows_of({"fact": name, "#value": value, "status": status} for name, value, status in shown))
