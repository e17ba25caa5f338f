"""What changed among the kernels: new, gone, renamed, slower or faster per launch, launched more or less often, moved to another stream. Nothing is left out; outputs cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diagnose.document.comparison import KernelChange, KernelChangeKind
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.steps import DeviceKernels, KernelUse
from diagnose.reason.compare.limits import load_limits
from diagnose.reason.compare.matching import Matched, Pair, match


@dataclass(frozen=True, kw_only=True)
class KernelChanges:
    """The changes, how many kernels are as they were, and what has to be said."""

    changes: tuple[KernelChange, ...] = ()
    same: int = 0
    notes: tuple[str, ...] = ()


def kernels_of(document: Diagnosis, place: tuple[int, int]) -> DeviceKernels | None:
    """What one device ran; None in a document that does not hold it."""
    return next((one for one in document.kernels if (one.rank, one.device) == place), None)


def kernels(
    base: Diagnosis, new: Diagnosis, places: tuple[tuple[int, int], tuple[int, int]], scale: Fraction = Fraction(1)
) -> KernelChanges:
    """All changes, most time first. `scale`: what the new run's launches and work are multiplied by (captures without steps, of different length)."""
    here, there = kernels_of(base, places[0]), kernels_of(new, places[1])
    if here is None or there is None:
        return KernelChanges(notes=_untold(here, there, places))
    rows = [_scaled(row, scale) for row in there.kernels]
    matched = match(here.kernels, rows)
    slack = load_limits().capture.proportion.value if scale != 1 else load_limits().kernels.launches.value
    found = [_pair(pair, here.kernels, rows, slack) for pair in matched.pairs]
    changed = [one for one in found if one is not None]
    changed += [_gone(here.kernels[place], rows, matched) for place in matched.gone]
    changed += [_added(rows[place], here.kernels, matched.streams) for place in matched.added]
    return KernelChanges(
        changes=tuple(sorted(changed, key=lambda row: (-abs(row.delta_ns), row.name, row.stream or 0))),
        same=len(found) - sum(one is not None for one in found),
        notes=tuple(_omitted(side, one) for side, one in (("base", here), ("new", there)) if one.omitted),
    )


def _untold(here: DeviceKernels | None, there: DeviceKernels | None, places: tuple[tuple[int, int], tuple[int, int]]) -> tuple[str, ...]:
    sides = [(side, place) for side, one, place in (("base", here, places[0]), ("new", there, places[1])) if one is None]
    return tuple(
        f"The {side} document does not hold the kernels of rank {place[0]}, so single kernels were not compared: diagnose its trace again with this version of the program."
        for side, place in sides
    )


def _omitted(side: str, one: DeviceKernels) -> str:
    return f"The {side} document leaves out {one.omitted} kernel names with the least work ({one.omitted_ns / 1e6:.3f} ms per step together): one of them may look new or gone on the other side."


def _scaled(row: KernelUse, scale: Fraction) -> KernelUse:
    if scale == 1:
        return row
    return KernelUse(
        name=row.name,
        bucket=row.bucket,
        role=row.role,
        stream=row.stream,
        launches=round(row.launches * scale),
        work_ns=round(row.work_ns * scale),
        launch_ns=row.launch_ns,
        previous=row.previous,
        next=row.next,
    )


def _pair(pair: Pair, base: Sequence[KernelUse], new: Sequence[KernelUse], slack: float) -> KernelChange | None:
    """What changed of one kernel; None where nothing did. Of several changes the one that explains most time names it."""
    here, there = base[pair.base], new[pair.new]
    limits = load_limits().kernels
    pace = _mean(there) - _mean(here)
    slower = abs(pace) > max(limits.pace.value * _mean(here), limits.pace_least_ns.value)
    often = abs(there.launches - here.launches) > slack * max(here.launches, there.launches)
    by_pace, by_count = (pace * there.launches if slower else 0), ((there.launches - here.launches) * _mean(here) if often else 0)
    kind: KernelChangeKind | None = None
    if pair.renamed:
        kind = "renamed"
    elif slower and abs(by_pace) >= abs(by_count):
        kind = "slower" if pace > 0 else "faster"
    elif often:
        kind = "more" if there.launches > here.launches else "fewer"
    elif pair.moved:
        kind = "moved"
    if kind is None:
        return None
    return KernelChange(
        kind=kind,
        name=there.name,
        bucket=there.bucket,
        was=here.name if pair.renamed else None,
        stream=there.stream,
        was_stream=here.stream,
        base_launches=here.launches,
        new_launches=there.launches,
        base_launch_ns=here.launch_ns,
        new_launch_ns=there.launch_ns,
        base_work_ns=here.work_ns,
        new_work_ns=there.work_ns,
        delta_ns=there.work_ns - here.work_ns,
        why=pair.why or (_two_ways(here, there, pace) if kind in ("slower", "faster") else ""),
    )


def _mean(row: KernelUse) -> float:
    """The mean duration of a launch (ns), which is what its work goes by; the usual one where no launch was counted in the median step."""
    return row.work_ns / row.launches if row.launches else float(row.launch_ns)


def _two_ways(here: KernelUse, there: KernelUse, pace: float) -> str:
    """What has to be said where the mean launch went one way and the usual (median) one the other: few long launches decide."""
    usual = there.launch_ns - here.launch_ns
    if usual * pace >= 0:
        return ""
    return f"On average; the usual launch became {'longer' if usual > 0 else 'shorter'}, so a few long launches decide."


def _gone(row: KernelUse, new: Sequence[KernelUse], matched: Matched) -> KernelChange:
    back = {first: second for second, first in matched.streams.items()}
    why = "" if row.stream in back else "No stream of the new run does the work of this one."
    for one in new:
        if one.name == row.name:
            why = _still("It still runs", one, row, back.get(row.stream))
    return KernelChange(
        kind="gone",
        name=row.name,
        bucket=row.bucket,
        was=None,
        stream=back.get(row.stream),
        was_stream=row.stream,
        base_launches=row.launches,
        new_launches=0,
        base_launch_ns=row.launch_ns,
        new_launch_ns=None,
        base_work_ns=row.work_ns,
        new_work_ns=0,
        delta_ns=-row.work_ns,
        why=why,
    )


def _still(words: str, other: KernelUse, row: KernelUse, stream: int | None) -> str:
    """Where the same name runs on the other side: for another part of the model, or on another stream."""
    return (
        f"{words} for another part of the model ({other.bucket})."
        if other.stream == stream and other.bucket != row.bucket
        else f"{words} on stream {other.stream}."
    )


def _added(row: KernelUse, base: Sequence[KernelUse], streams: Mapping[int | None, int | None]) -> KernelChange:
    why = next((_still("In base it runs", one, row, streams.get(row.stream)) for one in base if one.name == row.name), "")
    return KernelChange(
        kind="new",
        name=row.name,
        bucket=row.bucket,
        was=None,
        stream=row.stream,
        was_stream=None,
        base_launches=0,
        new_launches=row.launches,
        base_launch_ns=None,
        new_launch_ns=row.launch_ns,
        base_work_ns=0,
        new_work_ns=row.work_ns,
        delta_ns=row.work_ns,
        why=why,
    )
