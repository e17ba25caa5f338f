"""Where the step goes: a bar of parts that add up to it, with what each wall claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from msgspec.structs import replace

from diagnose.document.device import StepBudget, on_device
from diagnose.document.diagnosis import (
    Diagnosis,
)
from diagnose.model.vocabulary import COLLECTIVE
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.reports.diagnosis import tables

MOST_PARTS = 7  # rows of the bar, what is left over included
LEAST_PART = 0.005  # of the step: a smaller part is told with the others
SPLIT_COMPUTE = 0.5  # of the step: where compute takes more, the bar says what it computes
SHORT = 10  # units of time below which parts of the step have two decimals
LITTLE = words.VOCABULARY.walls.severity.medium or 0.0  # of the step: a wall whose bound is below brings little
CLAIM_TOLD = 0.34  # of the bar's length: what the words of a claim take on a wide page
LEAST_COMPUTED = 4  # rows for what was computed, where waiting has many
_REST, _COMPUTE, _COMPUTE_REST, _AGAIN = "rest", "computing", "computing_rest", "computing_again"


def bar(document: Diagnosis) -> r.Bar:
    """The step of the device that the verdict speaks of, as parts that add up to it."""
    title = f"Where the {tables.whole(document)} goes"
    device = tables.focus(document)
    step = None if device is None else tables.usual(device)
    if device is None or step is None or step.window_ns <= 0:
        return r.Bar(title=title, unit="ms", whole="", parts=(), empty="no operation of the device was captured")
    amounts = _merged(dict(amounts_of(document, step)), step)
    unit, length = units.scale(step.window_ns)
    digits = decimals(step.window_ns / length)
    told = [not key.startswith(_COMPUTE + "_") for key in amounts]  # compute stands in the verdict as a whole
    shown = units.adding_up([ns / length for ns in amounts.values()], round(step.window_ns / length, digits), digits, told=told)
    percents = units.adding_up([100 * ns / step.window_ns for ns in amounts.values()], 100.0, told=told)
    parts = (
        r.Part(
            key=key,
            label=LABELS.get(key) or f"compute: {words.bucket(key.removeprefix(_COMPUTE + '_'))}",
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
        parts = {key: _WALL_PART.get(key, key.removeprefix("waiting_")) for key in starts}  # of a wall's bound, by those of the bar
        own = [start for key, start in starts.items() if (parts[key] in wall.parts if ceiling else key.startswith(_COMPUTE))]
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


def amounts_of(document: Diagnosis, step: StepBudget) -> Iterator[tuple[str, int]]:
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
    blocking = on_device(document.blocking, (document.verdict.rank, document.verdict.device))
    rows = [row for row in blocking if row.role == "transport"]
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row.kind or _REST] = kinds.get(row.kind or _REST, 0) + row.blocking_ns
    over = step.blocking_transport_ns - sum(kinds.values())
    if over > 0:
        kinds[_REST] = kinds.get(_REST, 0) + over
    elif over < 0 and kinds:  # each kind's mean is rounded by itself
        kinds[max(kinds, key=lambda kind: kinds[kind])] += over
    yield from ((f"waiting_{kind}", ns) for kind, ns in kinds.items())
    packed = [row for row in blocking if row.role == "packing" and row.bucket == COLLECTIVE]
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


def decimals(whole: float) -> int:
    """Decimals of the parts of a whole: a part that is notable shows more than zero."""
    return 1 if whole >= SHORT else 2 if whole >= 1 else 3


def _computed(document: Diagnosis, step: StepBudget) -> dict[str, int]:
    """Compute by bucket, which adds up to its time; what each repeats in backward stands together, by the share of the bucket's work."""
    place = (document.verdict.rank or 0, document.verdict.device or 0)
    steps = [step for split in on_device(document.split, place) for step in split.steps]
    whole: dict[str, int] = {}
    for one in steps:
        for bucket, ns in one.compute.items():
            whole[bucket] = whole.get(bucket, 0) + ns
    found = {f"{_COMPUTE}_{bucket}": round(ns / len(steps)) for bucket, ns in whole.items()}
    if not found or abs(sum(found.values()) - step.compute_busy_ns) > 0.01 * step.compute_busy_ns:
        return {_COMPUTE: step.compute_busy_ns}
    found[max(found, key=lambda key: found[key])] += step.compute_busy_ns - sum(found.values())
    computed, again = dict(found), 0
    for row in on_device(document.buckets, place):
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


LABELS: Mapping[str, str] = {
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
COLOURS: Mapping[str, str] = {
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
    if key in COLOURS:
        return COLOURS[key]
    if key.startswith(_COMPUTE + "_"):
        return words.bucket_colour(key.removeprefix(_COMPUTE + "_"))
    return next((part.look.colour for part in words.SEGMENTS if part.key == _SEGMENT.get(key, key)), words.SEGMENTS[0].look.colour)
