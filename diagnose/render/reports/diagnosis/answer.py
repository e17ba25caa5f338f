"""What every output of a diagnosis begins with, but for where the step goes and what to change.

Which run this is, the verdict, what to know before it is believed, what to do next.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from diagnose.document.diagnosis import (
    Diagnosis,
    Finding,
    Identity,
    Verdict,
)
from diagnose.knowledge.templates import capitalised
from diagnose.model.names import visible
from diagnose.model.vocabulary import CAPTURE
from diagnose.render import TypedFiles, units
from diagnose.render import report as r
from diagnose.render.issues import in_sentence
from diagnose.render.reports.diagnosis import advice, lost, story, tables
from diagnose.render.reports.ranks import story as ranks

STDIN = "-"  # no name of a trace
MOST_STAGES = 8  # pipeline stages of which a rank each is asked for


# --- which run, and how fast ------------------------------------------------------------------------------------------


def masthead(document: Diagnosis) -> r.Masthead:
    """Which run this is and how fast."""
    speed = document.efficiency
    figures = [step_time(document)]
    note = ""
    if speed is not None:
        if speed.tflops_per_gpu is not None:
            figures.append(f"{speed.tflops_per_gpu:,.0f} TFLOP/s/GPU")
        if speed.mfu is not None:
            figures.append(f"MFU {units.percent(speed.mfu)}")
        if speed.tokens_per_second_per_gpu is not None:
            rate = speed.tokens_per_second_per_gpu
            shown = f"{rate / 1000:,.1f}k" if rate >= 10_000 else f"{rate:,.0f}"
            figures.append(f"{shown} tokens/s/GPU")
        missing = "TFLOP/s and MFU" if speed.tflops_per_gpu is None else "MFU"
        lacking = speed.lacking.removeprefix("TFLOP/s: ").removeprefix("MFU: ")
        note = "; ".join(part for part in (speed.how, f"no {missing}: {lacking}" if lacking else "") if part)
    return r.Masthead(run=tuple(_run(document)), speed=tuple(figures), note=note)


def run_name(document: Diagnosis) -> str:
    """The run in a few words, as the title of a page."""
    return "" if document.identity is None else identity_name(document.identity)


def identity_name(known: Identity) -> str:
    """A run in a few words."""
    return " · ".join(part for part in (known.model or "", _gpus(known), known.file) if part)


def layout(document: Diagnosis) -> str:
    """How the job is split over GPUs, in short; what is not split is left out."""
    known = document.identity
    return "" if known is None else " ".join(f"{name}{size}" for name, size in known.layout.items() if size > 1)


def _run(document: Diagnosis) -> Iterator[str]:
    if document.identity is None:  # a document that an older version wrote
        yield ", ".join(dict.fromkeys(device.name or "GPU not named" for device in document.capture.devices))
        return
    yield from identity(document.identity)


def identity(known: Identity) -> Iterator[str]:
    """Which run it is, in phrases."""
    layers = "" if known.layers is None else units.plural(known.layers, "layer")
    experts = "" if not known.experts else f"{known.experts} experts"
    inside = ", ".join(part for part in (layers, experts) if part)
    if known.model or inside:
        yield f"{known.model} ({inside})" if known.model and inside else known.model or inside
    yield _gpus(known)
    if known.layout:
        yield " ".join(f"{name}{size}" for name, size in known.layout.items())
    if known.precision:
        yield known.precision
    if known.ranks_captured > 1:
        yield f"{known.ranks_captured} of {units.count(known.gpus) if known.gpus else 'an unknown number of'} ranks, shown: rank {known.rank}"
    elif known.gpus:
        yield f"rank {known.rank} of {known.gpus}"
    if known.file:
        yield tables.file_label(known.file)


def _gpus(known: Identity) -> str:
    name = (known.gpu or "GPU not named").removeprefix("NVIDIA ").removesuffix(" HBM3").removesuffix(" HBM2e")
    return f"{known.gpus}× {name}" if known.gpus else name


def step_time(document: Diagnosis) -> str:
    """The mean step, which all shares are of, with its spread."""
    spread = document.steps.duration_ns
    mean = spread.mean if spread.mean is not None else spread.median
    if mean is None:
        return "not cut into steps" if document.steps.anchor == CAPTURE else "step time not measured"
    if document.steps.anchor == CAPTURE:
        cut = document.facts.get("start_up_cut")
        return f"{units.time(mean)} {'after start-up' if cut is not None and cut.value else 'captured'}, not cut into steps"
    if document.steps.n < 2:
        return f"{tables.whole(document)} {units.time(mean)} (1 {tables.whole(document)})"
    unit, length = units.scale(mean)
    digits = units.decimals(mean)
    low, high = ("–" if end is None else f"{end / length:,.{digits}f}" for end in (spread.min, spread.max))
    apart = spread.median is not None and abs(mean - spread.median) > story.MEAN_APART * spread.median
    middle = f", median {spread.median / length:,.{digits}f}" if apart and spread.median is not None else ""
    return f"{tables.whole(document)} {mean / length:,.{digits}f} {unit} (mean of {document.steps.n}, {low}–{high}{middle})"


# --- the verdict --------------------------------------------------------------------------------------------------------


def verdict(document: Diagnosis) -> r.Panel:
    """What holds the run back, and how certain that is and why."""
    found = document.verdict
    phrases = [r.Phrase(text=_certainty(document))] if found.target_wall is not None else []
    return r.Panel(
        name="verdict",
        look=found.target_wall or "result-open",
        headline=story.headline(document),
        title=story.headline(document),
        sentence=found.sentence,
        phrases=tuple(phrases),
        reasons=found.certainty_reasons,
        reasons_label="certainty",
    )


_RESOLVED = 0.9  # of the stream waits, from which on that speaks for a verdict (trace_rules/walls.yaml)


def _certainty(document: Diagnosis) -> str:
    """How certain the verdict is; what speaks for it where nothing speaks against it."""
    found, level = document.capture, document.verdict.certainty
    if document.verdict.certainty_reasons:
        return f"certainty: {level}"
    parts = [units.plural(document.steps.n, tables.whole(document))] if document.steps.anchor != CAPTURE else []
    parts += [f"{units.percent(found.correlation_rate, 0)} of launches found"] if found.correlation_rate is not None else []
    parts += [f"{units.percent(found.resolved_wait_rate, 0)} of waits resolved"] if (found.resolved_wait_rate or 0) >= _RESOLVED else []
    return f"certainty: {level}{' (' + ', '.join(parts) + ')' if parts else ''}"


# --- before it is believed, and what next -----------------------------------------------------------------------------


def remarks(document: Diagnosis) -> r.Remarks:
    """What this capture can't tell, and how to capture what is missing."""
    return r.Remarks(title="Before you believe it", texts=tuple(_remarks(document)))


def _remarks(document: Diagnosis) -> Iterator[str]:
    yield from lost.remarks(document)
    if document.ranks is not None:
        said = ranks.headline(document, document.ranks)
        points = [f"{point.name}: {'; '.join(point.parts)}." for point in said.points[:2]]
        if points or document.communication:  # without any, nobody waits for another rank
            yield from points or [f"{said.title}."]
        yield from said.lines[:1]
    for problem in () if document.job is None else document.job.problems:
        yield f"Job file: {problem.text}"
    known, alone = document.identity, _alone(document)
    if alone and known is not None and any(row.blocking_ns for row in document.communication):
        which = ", ".join(map(str, _wanted_ranks(known.rank or 0, known.gpus or 2, _stages(document))))
        yield (
            f"One of {known.gpus} ranks was captured: waiting for a straggler looks like slow communication{_speed(document)}. "
            f"Capture ranks {which} in the same steps and pass the folder."
        )
    for finding in document.findings:
        if finding.wall == CAPTURE:
            yield _of_capture(finding, document.verdict)
    first = next((one for one in document.findings if one.wall != CAPTURE and one.bound_ns), None)
    if first is not None and first.wrong_when and not alone and document.verdict.dominant_wall is not None:
        yield f"{capitalised(first.name)}: not this if {in_sentence(first.wrong_when)}"


def _of_capture(finding: Finding, verdict: Verdict) -> str:
    """What a finding on the capture says; where the verdict's certainty says that already, what to do about it."""
    if finding.id in verdict.certainty_findings and finding.check:
        return f"{capitalised(finding.name)}: {in_sentence(lost.first_sentence(finding.check))}"
    return lost.first_sentence(finding.summary)


def _speed(document: Diagnosis) -> str:
    """How fast large collectives move, where the trace tells their sizes; far below the links they mostly wait for other ranks."""
    moved = document.facts.get("transport_bus_bytes")
    told = None if moved is None else moved.value
    return f" (its large collectives: {told / 1e9:,.1f} GB/s of bus bandwidth, waiting included)" if isinstance(told, int) else ""


def _stages(document: Diagnosis) -> int:
    """The pipeline's stages, where compute waits longer for them than for any other communication; else 1."""
    longest = max(document.communication, key=lambda row: row.blocking_ns or 0, default=None)
    if document.identity is None or longest is None or longest.kind != "pipeline":
        return 1
    return document.identity.layout.get("PP", 1)


def _wanted_ranks(rank: int, gpus: int, stages: int = 1) -> list[int]:
    """The captured rank and its like in every pipeline stage; with one stage one or two far from it: the first, the middle one, the last.

    The stages' ranks follow each other, as frameworks number them.
    """
    if 1 < stages <= MOST_STAGES and gpus % stages == 0:
        each = gpus // stages
        return [rank % each + stage * each for stage in range(stages)]
    others = {0 if rank else 1, gpus // 2, gpus - 1} - {rank}
    return sorted((rank, *sorted(others)[:2]))


def _alone(document: Diagnosis) -> bool:
    """Whether one rank of several was captured."""
    known = document.identity
    return known is not None and known.ranks_captured == 1 and (known.gpus or 0) > 1


def commands(document: Diagnosis, typed: TypedFiles | None = None) -> r.Commands:
    """What to do next, letter by letter: with files by their bare names, and as the user typed them."""
    rows = tuple(_commands(document, TypedFiles()))
    return r.Commands(title="What next", rows=rows, typed=tuple(_commands(document, typed or TypedFiles())), closing=_closing(document))


def _commands(document: Diagnosis, typed: TypedFiles) -> Iterator[tuple[str, str]]:
    trace, run = _traces(document, typed)
    chosen = "" if typed.command is None else f" --command {_word(typed.command)}"
    job = None if document.job is None else f"{_word(typed.job or document.job.file or 'JOB')}{chosen}"
    fixes = [step.fix for step in document.plan if step.fix is not None]
    if job is not None and any(step.state == "applicable" and step.fix for step in document.plan):
        kind = PurePath(document.job.file or "").suffix if document.job else ""
        yield "apply", f"diagnose patch {trace} --config {job}{f' -o new{kind}' if kind in _REWRITTEN else ''}"
    elif job is None and fixes and not advice.without_job_file(document):
        yield "decide", f"diagnose {trace} --config JOB"
    if fixes:
        yield "why", f"diagnose explain {fixes[0]}"
        yield "check", f"diagnose compare {run} AFTER" + (f" --config {job}" if job is not None else "")
    if _alone(document):
        yield "capture", f"diagnose capture {job or 'JOB'}{_on_platform(document)}"
    yield "more", "-v every finding, -vv all tables, -o report.html the page"


def _on_platform(document: Diagnosis) -> str:
    """Who made the GPU, where that is captured otherwise than most."""
    maker = document.facts.get("gpu_maker")
    return "" if maker is None or maker.value in (None, "nvidia") else f" --platform {maker.value}"


MOST_TYPED = 4  # traces that a command repeats; of more the folder is asked for


def _traces(document: Diagnosis, typed: TypedFiles) -> tuple[str, str]:
    """The traces as words of a shell, where several may stand, and where one has to stand for all of them."""
    known = document.identity
    given = [_word(name) for name in typed.traces if name != STDIN]
    if len(given) == 1:
        return given[0], given[0]
    several = known is not None and known.ranks_captured > 1 and len({one.file for one in document.capture.ranks}) > 1
    one = "FOLDER" if several or known is None or not known.file else _word(tables.file_label(known.file))
    return (" ".join(given), "FOLDER") if 1 < len(given) <= MOST_TYPED else (one, one)


def _word(text: str) -> str:
    """A text as a word of a shell."""
    return shlex.quote(visible(text))


_REWRITTEN = (".yaml", ".yml", ".json", ".flags", ".overrides")  # job files that a patch writes; of others it prints what to give at launch


def _closing(document: Diagnosis) -> str:
    """What is not on this screen, in one line."""
    levels = [one.severity for one in document.findings]
    high = levels.count("high")
    found = f"{units.plural(len(levels), 'finding')}{f' ({high} high)' if high else ''}"
    asked = len(document.findings) + len(document.passed) + len(document.not_assessed)
    rest = f"{len(document.not_assessed)} of {asked} rules not assessed"
    lost = sum(entry.severity in ("data_loss", "error") for entry in document.ledger)
    return f"{found} · {rest} · {'data was lost' if lost else 'no data lost'}"
