"""What every output of a diagnosis begins with.

Which run this is, where the step goes, what to change, what to know before it is believed, what to do next.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import PurePath

from msgspec.structs import replace

from diagnose.document.device import StepBudget
from diagnose.document.diagnosis import (
    LEFT_OPEN,
    NOT_WAITED_FOR,
    WANTED,
    WINS_NOTHING,
    Diagnosis,
    Displaced,
    Finding,
    Identity,
    PlanSetting,
    PlanStep,
    StepForecast,
    Verdict,
)
from diagnose.document.forecast import Span
from diagnose.knowledge.rulebook import BESIDE_FRAMEWORKS, GENERAL
from diagnose.knowledge.templates import capitalised, enumerated
from diagnose.model.vocabulary import CAPTURE, COLLECTIVE
from diagnose.reason.plan import LEAST_SHARE
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.issues import in_sentence
from diagnose.render.reports.comparison.story import look
from diagnose.render.reports.diagnosis import lost, story, tables
from diagnose.render.reports.ranks import story as ranks

MOST_PARTS = 7  # rows of the bar, what is left over included
LEAST_PART = 0.005  # of the step: a smaller part is told with the others
SPLIT_COMPUTE = 0.5  # of the step: where compute takes more, the bar says what it computes
SHORT = 10  # units of time below which parts of the step have two decimals
LITTLE = words.VOCABULARY.walls.severity.medium or 0.0  # of the step: a wall whose bound is below brings little
MOST_STAGES = 8  # pipeline stages of which a rank each is asked for
CLAIM_TOLD = 0.34  # of the bar's length: what the words of a claim take on a wide page
LEAST_COMPUTED = 4  # rows for what was computed, where waiting has many
_REST, _COMPUTE, _COMPUTE_REST, _AGAIN = "rest", "computing", "computing_rest", "computing_again"


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
        return f"{units.time(mean)} captured, not cut into steps"
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


# --- where the step goes ----------------------------------------------------------------------------------------------


def bar(document: Diagnosis) -> r.Bar:
    """The step of the device that the verdict speaks of, as parts that add up to it."""
    title = f"Where the {tables.whole(document)} goes"
    device = tables.focus(document)
    step = None if device is None else tables.usual(device)
    if device is None or step is None or step.window_ns <= 0:
        return r.Bar(title=title, unit="ms", whole="", parts=(), empty="no operation of the device was captured")
    amounts = _merged(dict(_amounts(document, step)), step)
    unit, length = units.scale(step.window_ns)
    digits = _digits(step.window_ns / length)
    shown = units.adding_up([ns / length for ns in amounts.values()], round(step.window_ns / length, digits), digits)
    percents = units.adding_up([100 * ns / step.window_ns for ns in amounts.values()], 100.0)
    parts = (
        r.Part(
            key=key,
            label=_LABELS.get(key) or f"compute: {words.bucket(key.removeprefix(_COMPUTE + '_'))}",
            colour=_colour(key),
            amount=amount,
            percent=percent,
            share=ns / step.window_ns,
        )
        for (key, ns), amount, percent in zip(amounts.items(), shown, percents, strict=True)
    )
    judged = document.verdict.dominant_wall is not None
    claims = () if not judged else _lined(_claims(document, {key: ns / step.window_ns for key, ns in amounts.items()}))
    return r.Bar(title=title, unit=unit, whole=units.time(step.window_ns), parts=tuple(parts), claims=claims)


def _claims(document: Diagnosis, shares: Mapping[str, float]) -> Iterator[r.Claim]:
    """What of the step each wall claims, if it is notable: where its first part stands on the bar, as long as its bound."""
    starts = dict(zip(shares, accumulate(shares.values(), initial=0.0), strict=False))
    for wall in document.walls:
        mark = tables.wall_mark(wall.wall, document)
        if wall.bound_ns is None or not wall.share or (wall.share < LITTLE and wall.wall != document.verdict.target_wall):
            continue
        ceiling = words.VOCABULARY.is_ceiling(wall.wall)
        own = [start for key, start in starts.items() if (_part(key) in wall.parts if ceiling else key.startswith(_COMPUTE))]
        share = min(wall.share, 1.0)
        low = wall.bound_ns if wall.lower_ns is None else wall.lower_ns
        least, most = units.time(low), units.time(wall.bound_ns)
        amount = f"{'at most ' if ceiling else ''}{most}" if least == most else f"{least} to {most}"
        yield r.Claim(
            look=wall.wall,
            title=words.wall(wall.wall),
            text=f"{amount}, {units.percent(wall.share)}{'' if ceiling else ' ran'}",
            meaning=words.WALL_MEANING[wall.wall],
            mark=mark,
            start=min(min(own, default=starts.get(_REST, 0.0)), 1 - share),
            share=share,
            lower=share * low / wall.bound_ns if wall.bound_ns else share,
        )


def _lined(claims: Iterable[r.Claim]) -> tuple[r.Claim, ...]:
    """Claims from left to right, each on the first line where it and its words touch no other."""
    ends: list[float] = []
    found = []
    for one in sorted(claims, key=lambda one: (one.start, -one.share)):
        end = one.start + max(one.share, CLAIM_TOLD)
        line = next((line for line, before in enumerate(ends) if before <= one.start + 1e-9), len(ends))
        ends[line:] = [end, *ends[line + 1 :]]
        found.append(replace(one, line=line + 1))
    return tuple(found)


def _part(key: str) -> str:
    """The part of a wall's bound that a part of the bar is."""
    return _WALL_PART.get(key, key.removeprefix("waiting_"))


def _amounts(document: Diagnosis, step: StepBudget) -> Iterator[tuple[str, int]]:
    """Every part of the step, ns: compute (by bucket where it takes most of the step), then what there was instead of it."""
    computed = _computed(document, step)
    if step.compute_busy_ns > SPLIT_COMPUTE * step.window_ns:
        yield from computed.items()
    else:
        again = computed.get(_AGAIN, 0)
        yield _COMPUTE, step.compute_busy_ns - again
        yield _AGAIN, again
    if "launch_starved_ns" in tables.unmeasured(document):
        yield "not_recorded", step.compute_absent_ns
        return
    place = (document.verdict.rank, document.verdict.device)
    rows = [row for row in document.blocking if (row.rank, row.device) == place and row.role == "transport"]
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row.kind or _REST] = kinds.get(row.kind or _REST, 0) + row.blocking_ns
    over = step.blocking_transport_ns - sum(kinds.values())
    if over > 0:
        kinds[_REST] = kinds.get(_REST, 0) + over
    elif over < 0 and kinds:  # each kind's mean is rounded by itself
        kinds[max(kinds, key=lambda kind: kinds[kind])] += over
    yield from ((f"waiting_{kind}", ns) for kind, ns in kinds.items())
    packed = [row for row in document.blocking if (row.rank, row.device) == place and row.role == "packing" and row.bucket == COLLECTIVE]
    buffers = min(sum(row.blocking_ns for row in packed), step.blocking_packing_ns)
    yield "packing", step.blocking_packing_ns - buffers
    yield "buffers", buffers
    yield "copy", step.blocking_copy_ns
    yield "launch", step.host_work_ns
    yield "sync", step.host_sync_ns
    yield "allocator", step.allocator_ns
    latency = min(sum(wall.parts.get("handover") or 0 for wall in document.walls), step.dependency_stalled_ns)
    yield "latency", latency
    yield "unknown", step.dependency_stalled_ns - latency


def _digits(whole: float) -> int:
    """Decimals of the parts of a whole: a part that is notable shows more than zero."""
    return 1 if whole >= SHORT else 2 if whole >= 1 else 3


def _computed(document: Diagnosis, step: StepBudget) -> dict[str, int]:
    """Compute by bucket, which adds up to its time; what each repeats in backward stands together, by the share of the bucket's work."""
    place = (document.verdict.rank or 0, document.verdict.device or 0)
    steps = next((one.steps for one in document.split if (one.rank, one.device) == place), ())
    whole: dict[str, int] = {}
    for one in steps:
        for bucket, ns in one.compute.items():
            whole[bucket] = whole.get(bucket, 0) + ns
    found = {f"{_COMPUTE}_{bucket}": round(ns / len(steps)) for bucket, ns in whole.items()}
    if not found or abs(sum(found.values()) - step.compute_busy_ns) > 0.01 * step.compute_busy_ns:
        return {_COMPUTE: step.compute_busy_ns}
    found[max(found, key=lambda key: found[key])] += step.compute_busy_ns - sum(found.values())
    computed, again = dict(found), 0
    for row in tables.on(document.buckets, *place):
        repeated, key = row.phase.get("recompute", 0), f"{_COMPUTE}_{row.bucket}"
        if repeated and key in found:
            moved = round(found[key] * repeated / sum(row.phase.values()))
            found[key], again = found[key] - moved, again + moved
    # no row for so little, nor for kernels that a name calls forward where the count of passes says that none is repeated
    if again < LEAST_PART * step.window_ns or (document.memory and document.memory.recompute_ns == 0):
        return computed
    return found | {_AGAIN: again}


def _merged(amounts: dict[str, int], step: StepBudget) -> dict[str, int]:
    """The parts by size, compute's first, small ones of each kind as one; nothing is left out of the sum."""
    by_size = sorted(((key, ns) for key, ns in amounts.items() if ns > 0), key=lambda part: -part[1])
    computing = [part for part in by_size if part[0].startswith(_COMPUTE)]
    waiting = [part for part in by_size if not part[0].startswith(_COMPUTE)]
    notable = sum(ns >= LEAST_PART * step.window_ns for _, ns in waiting)
    room = MOST_PARTS - min(len(computing), LEAST_COMPUTED)
    shown = _cut(waiting, notable, room, _REST)
    return dict(_cut(computing, len(computing), MOST_PARTS - len(shown), _COMPUTE_REST)) | dict(shown)


def _cut(parts: list[tuple[str, int]], notable: int, room: int, rest: str) -> list[tuple[str, int]]:
    """The first parts, as many as are notable and there is room for, and one for the others."""
    most = len(parts) if notable >= len(parts) and len(parts) <= room else min(notable, room - 1)
    left = sum(ns for _, ns in parts[most:])
    return [*parts[:most], *([(rest, left)] if left else [])]


_LABELS: Mapping[str, str] = {
    _COMPUTE: "compute active",
    _COMPUTE_REST: "compute: the rest",
    _AGAIN: "compute: recomputed in backward",
    "waiting_expert": "waiting: EP all-to-all",
    "waiting_data": "waiting: DP collectives",
    "waiting_tensor": "waiting: TP collectives",
    "waiting_pipeline": "waiting: pipeline send/recv",
    "waiting_context": "waiting: CP communication",
    "waiting_other": "waiting: other communication",
    "waiting_rest": "waiting: other communication",
    "packing": "waiting: permute/unpermute",
    "buffers": "waiting: copy-in/copy-out",  # FSDP's buffers are filled and emptied
    "copy": "waiting: copies",
    "launch": "CPU: next kernel not launched",
    "sync": "CPU: synchronisation",
    "allocator": "CPU: allocator calls",
    "latency": "launch latency",
    "unknown": "waiting, cause unknown",
    "not_recorded": "no compute (launches not recorded)",
    _REST: "the rest",
}
_LOOKS: Mapping[str, str] = {
    "waiting_data": "#e8744f",
    "waiting_tensor": "#b5651d",
    "waiting_pipeline": "#8f1d4f",
    "waiting_context": "#f0a3a3",
    "waiting_other": "#c46a8f",
    "waiting_rest": "#c46a8f",
    "packing": "#f2a07b",
    "buffers": "#d8b48a",
    "latency": "#a3b18a",
    _REST: "#8c8c8c",
    _COMPUTE_REST: "#88ccee",
    _AGAIN: "#4b0082",
    "not_recorded": "#b9bec4",
}
_WALL_PART = {"copy": "blocking_copies", "launch": "host_work", "sync": "host_sync", _AGAIN: "recompute"}  # names of walls.yaml
_SEGMENT = {
    "waiting_expert": "blocking_transport",
    "copy": "blocking_copy",
    "launch": "host_work",
    "sync": "host_sync",
    "unknown": "dependency_stalled",
}


def _colour(key: str) -> str:
    if key in _LOOKS:
        return _LOOKS[key]
    if key.startswith(_COMPUTE + "_"):
        return words.bucket_colour(key.removeprefix(_COMPUTE + "_"))
    return next((part.look.colour for part in words.SEGMENTS if part.key == _SEGMENT.get(key, key)), words.SEGMENTS[0].look.colour)


# --- what to change ---------------------------------------------------------------------------------------------------


def plan(document: Diagnosis) -> r.Plan:
    """What to change, in order, each with all its settings."""
    numbers: dict[str | None, str] = {}
    steps, number = [], 0
    for one in document.plan:
        alternatives = sum(other.instead_of == one.instead_of for other in document.plan[: document.plan.index(one)])
        number += one.instead_of is None
        label = str(number) if one.instead_of is None else f"{numbers.get(one.instead_of, number)}{chr(ord('b') + alternatives)}"
        numbers[one.fix] = label
        steps.append(_step(one, label, numbers))
    return r.Plan(
        title="What to change",
        steps=tuple(steps),
        decided=document.job is not None,
        empty="" if steps else _nothing(document),
        blocked=tuple(_blocked(document)),
        not_worth=_not_worth(document),
        ask=_ask(document),
        forecast=" ".join(part for part in (_forecast(document, numbers), _beyond(document) if steps else "") if part),
    )


def _beyond(document: Diagnosis) -> str:
    """What changes what is computed and by itself leaves less of the step than the plan: the user's choice, so no part of it."""
    planned = {one.fix for one in document.plan}
    left = min((one.forecast.likely_ns for one in document.plan if one.forecast is not None and one.instead_of is None), default=None)
    found = [
        (fix.forecast, fix)
        for finding in document.findings
        for fix in finding.fixes
        if fix.numerics and fix.state == "applicable" and fix.id not in planned and fix.forecast is not None
    ]
    if not found:
        return ""
    most, fix = min(found, key=lambda one: one[0].likely_ns)
    if (most.now_ns if left is None else left) - most.likely_ns < LEAST_SHARE * most.now_ns:
        return ""
    return f"More would come of {fix.id} ({fix.title}), which changes what is computed: {alone(most)} by itself."


def _step(one: PlanStep, number: str, numbers: Mapping[str | None, str]) -> r.Step:
    first = None if one.instead_of is None else numbers.get(one.instead_of)
    instead = "" if first is None else f"instead of {first}" if one.instead_of in one.exclusive_with else f"instead of {first}, or with it"
    return r.Step(
        number=number,
        title=capitalised(one.title),
        id=one.fix or "",
        state=one.state,
        why=one.finding,
        bound="" if one.bound_ns is None or instead else units.time(one.bound_ns),
        faster="" if one.speedup_ceiling is None or instead else units.factor(one.speedup_ceiling),
        settings=tuple(written(one.changes)),
        published=tuple((said.text, said.source) for said in one.published),
        needs=one.needs,
        cost="" if one.cost == "none" else one.cost,
        instead=instead,
        forecast="" if one.forecast is None else likely(one.forecast),
    )


def _forecast(document: Diagnosis, numbers: Mapping[str | None, str]) -> str:
    """The step after each change in a sentence, `116.0 ms → 98 ms (92–104) with 1 → …`; where nothing can be told, why not."""
    main = [one for one in document.plan if one.instead_of is None and one.fix is not None]
    told = [(numbers[one.fix], one.forecast) for one in main if one.forecast is not None]
    nothing = [numbers[one.fix] for one in main if one.no_forecast == WINS_NOTHING]
    rest = [numbers[one.fix] for one in main if one.forecast is None and numbers[one.fix] not in nothing]
    unknown = f" Of {enumerated(rest)} only the bound is known." if rest else ""
    if nothing and not told:
        return f"Forecast: {_win_nothing(nothing)}: {NOT_WAITED_FOR}{unknown}"
    if not told:
        why = document.no_forecast or next((one.no_forecast for one in main if one.no_forecast), "")
        return f"No forecast, only bounds: {in_sentence(why)}" if why and main else ""
    way = "".join(f" → {likely(found)} with {number}" for number, found in told)
    without = f" Then {_win_nothing(nothing)}." if nothing else ""
    doubt = next((f" {found.doubt}" for _, found in told if found.doubt), "")
    moved = "".join(_moved(number, found.displaced) for number, found in told if found.displaced is not None)
    scope = f" ({document.forecast_scope})" if document.forecast_scope else ""
    return f"Forecast{scope}: {units.time(told[0][1].now_ns)}{way}.{moved}{without}{unknown}{doubt}"


def _win_nothing(numbers: Sequence[str]) -> str:
    return f"{enumerated(numbers)} {'wins' if len(numbers) == 1 else 'win'} nothing"


def _moved(number: str, found: Displaced) -> str:
    """Why a change wins little of its bound: ` Of 26.4 ms that 1 frees, 24.3 ms become launch-bound`."""
    return f" Of {units.time(found.freed_ns)} that {number} frees, {units.time(found.ns)} become {look(found.category).label}."


def likely(found: StepForecast) -> str:
    """The likely step and its range, with no more figures than that deserves: `98 ms (92–104)`."""
    span = Span(now=found.now_ns, low=found.low_ns, likely=found.likely_ns, high=found.high_ns)
    return f"{units.forecast(span.likely, span)} ({units.between(span).partition(' ')[0]})"


def alone(found: StepForecast, bound: int | None = None) -> str:
    """What one fix by itself makes of the step: `likely 98 ms (92–104), −16 %`.

    `bound` (ns) is what its finding alone would give back: a fix that ends other waiting too may win more, which is said.
    """
    doubt = ", low certainty" if found.doubt else ""
    more = (
        "; more than this finding's bound: it ends other waiting too"
        if bound is not None and found.now_ns - found.likely_ns > bound
        else ""
    )
    return f"likely {likely(found)}{doubt}, {units.signed_percent((found.likely_ns - found.now_ns) / found.now_ns, 0)}{more}"


def written(changes: Sequence[PlanSetting]) -> Iterator[r.Written]:
    """The settings that change, by where they belong."""
    places: dict[tuple[str, str], list[str]] = {}
    for setting in changes:
        if not setting.stays:
            places.setdefault((setting.framework, setting.language), []).append(setting.text)
    for (framework, language), lines in places.items():
        where = "" if (language == "sh" and framework in BESIDE_FRAMEWORKS) or framework == GENERAL else story.framework(framework)
        yield r.Written(where=where, language=language, lines=tuple(lines))  # type: ignore[arg-type]


def _nothing(document: Diagnosis) -> str:
    if document.verdict.target_wall is None:
        return "Too little was captured to advise anything."
    named = next((one for one in document.findings if one.wall != CAPTURE), None)
    if named is None:
        return "No rule found anything to change."
    whole = tables.whole(document)
    foreseen = [(fix.forecast, fix) for finding in document.findings for fix in finding.fixes if fix.forecast is not None]
    winning = [(found, fix) for found, fix in foreseen if found.now_ns - found.likely_ns >= LEAST_SHARE * found.now_ns]
    if not winning:
        return f"No setting is known that would win a hundredth of the {whole}. {capitalised(named.name)}: {named.summary}"
    most, fix = max(winning, key=lambda one: one[0].now_ns - one[0].likely_ns)
    check = "; the trace does not show whether it is done already" if fix.state == "unknown" else ""
    named_fix = f"{fix.id} ({fix.title}): {alone(most)}{check}"
    return f"No finding with a bound of a hundredth of the {whole} has a setting to change. By forecast most would come of {named_fix}."


def _blocked(document: Diagnosis) -> Iterator[str]:
    """Fixes of the planned findings that can't be had now, and why."""
    planned = {step.finding for step in document.plan}
    offered: set[str | None] = {step.fix for step in document.plan}
    told: set[str | None] = set()
    for finding in document.findings:
        for fix in finding.fixes if finding.id in planned else ():
            if fix.state == "blocked" and fix.id not in offered | told:
                told.add(fix.id)
                yield f"{fix.id} {fix.title}: {story.fix_reason(fix)}"


def _not_worth(document: Diagnosis) -> str:
    """Walls that bring little here and that no step is for, and fixes that are on already, in one line."""
    if document.verdict.target_wall is None:
        return ""
    planned = {step.finding for step in document.plan}
    answered = {finding.wall for finding in document.findings if finding.id in planned}
    low = [
        f"{words.wall_in_text(wall.wall)} ({units.at_most(wall.share) if wall.share else 'none'})"
        for wall in document.walls
        if words.VOCABULARY.is_ceiling(wall.wall)
        and wall.wall not in answered
        and wall.share is not None
        and wall.share < LITTLE
        and (wall.share or not lost.is_hidden(document))
    ]
    on = {fix.id: fix.title for finding in document.findings if finding.id in planned for fix in finding.fixes if fix.state == "already_on"}
    return "; ".join([*([", ".join(low)] if low else []), *([f"on already: {', '.join(on)}"] if on else [])])


def _ask(document: Diagnosis) -> str:
    """What a job file would decide; empty where one was given, or where none would decide anything: a program without Python has none."""
    if document.job is not None or document.verdict.dominant_wall is None or _without_job_file(document):
        return ""
    unknown = {fix.id: fix.unknown for finding in document.findings for fix in finding.fixes if fix.state == "unknown"}
    open_ = [key for key, lines in unknown.items() if not lines or any(line == LEFT_OPEN or line.startswith(WANTED) for line in lines)]
    if not open_:
        return ""
    return f"{units.plural(len(open_), 'fix', 'fixes')} may be on already or blocked: --config JOB decides."


def _without_job_file(document: Diagnosis) -> bool:
    """Whether it is a program that no format of job files describes: all are of trainers, which Python drives."""
    python = document.facts.get("python_seen")
    return python is not None and python.value is False


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


def commands(document: Diagnosis) -> r.Commands:
    """What to do next, letter by letter."""
    return r.Commands(title="What next", rows=tuple(_commands(document)), closing=_closing(document))


def _commands(document: Diagnosis) -> Iterator[tuple[str, str]]:
    known = document.identity
    several = known is not None and known.ranks_captured > 1 and len({one.file for one in document.capture.ranks}) > 1
    trace = "FOLDER" if several or known is None or not known.file else shlex.quote(units.visible(tables.file_label(known.file)))
    job = None if document.job is None else shlex.quote(units.visible(document.job.file or "JOB"))
    fixes = [step.fix for step in document.plan if step.fix is not None]
    if job is not None and any(step.state == "applicable" and step.fix for step in document.plan):
        kind = PurePath(document.job.file or "").suffix if document.job else ""
        yield "apply", f"diagnose patch {trace} --config {job}{f' -o new{kind}' if kind in _REWRITTEN else ''}"
    elif job is None and fixes and not _without_job_file(document):
        yield "decide", f"diagnose {trace} --config JOB"
    if fixes:
        yield "why", f"diagnose explain {fixes[0]}"
        yield "check", f"diagnose compare {trace} AFTER" + (f" --config {job}" if job is not None else "")
    if _alone(document):
        yield "capture", f"diagnose capture {job or 'JOB'}"
    yield "more", "-v every finding, -vv all tables, -o report.html the page"


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
