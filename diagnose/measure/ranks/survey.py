"""The survey of all ranks before any verdict: what each did, which are missing or given twice, and whose window only looks longer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median_low

import polars as pl

from diagnose.document.device import Spread
from diagnose.document.ranks import RankProblem, RankSurvey, StartSkew, StepTime
from diagnose.measure.ranks.clocks import Clocks
from diagnose.measure.ranks.members import Member, Mesh, host_label
from diagnose.measure.ranks.transfers import OwnTimes
from diagnose.model.statistics import integer_median

LISTED = 64  # ranks that a problem lists
SKEW_SHARE = 0.02  # of the step: a window that begins less early or late is not skewed; this project's choice
SKEW_NS = 1_000_000  # likewise
TOGETHER = 0.2  # of the skew: windows whose ends differ by less end together; this project's choice


def surveyed(member: Member, group: str, mesh: Mesh | None, own: OwnTimes, skew_ns: int | None) -> RankSurvey:
    """One device's row."""
    lengths = [step.window_ns for step in member.steps]
    return RankSurvey(
        rank=member.rank.rank,
        device=member.device.device,
        file=member.file,
        host=host_label(member),
        group=group,
        stage=mesh.stage(member.rank.rank) if mesh is not None and member.rank.rank < mesh.world else None,
        step=Spread(median=integer_median(lengths), min=min(lengths), max=max(lengths), n=len(lengths)),
        **{name: getattr(member.median, name) for name in _COLUMNS},
        buckets=dict(member.work),
        collectives=_collectives(member),
        steps=tuple(
            StepTime(index=step.index or 0, window_ns=step.window_ns, own_ns=left if own.matched else None)
            for step, left in zip(member.steps, own.time, strict=True)
        ),
        wait_ns=integer_median(own.wait) if own.matched else None,
        transfer_ns=integer_median(own.transfer) if own.matched else None,
        start_skew_ns=skew_ns,
    )


_COLUMNS = (
    "compute_busy_ns", "transport_busy_ns", "packing_busy_ns", "copy_busy_ns", "device_idle_ns", "launch_starved_ns",
    "blocking_transport_ns",
)  # fmt: skip


def _collectives(member: Member) -> dict[str, int]:
    """Transport operations per step (median) by "kind operation"."""
    found = member.device.exchanges
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    inside = found.instances.filter(pl.col("index").is_not_null())
    for lane, step, number in inside.group_by("lane", "index").len().iter_rows():
        counts[f"{found.lanes[lane].kind} {found.lanes[lane].operation}"][step] += number
    steps = [step.index or 0 for step in member.steps]
    return {name: integer_median(by_step[step] for step in steps) for name, by_step in sorted(counts.items())}


# ------------------------------------------------------------------------------------------------ problems


def problems(members: Sequence[Member], world: int | None, claimed: Mapping[int, int]) -> tuple[RankProblem, ...]:
    """Ranks that are missing, given twice, or that differ in their steps.

    `claimed`: how many inputs said to be that rank, before they were told apart.
    """
    captured = sorted({member.rank.rank for member in members})
    found = []
    twice = tuple(rank for rank, number in sorted(claimed.items()) if number > 1)
    if world is not None and (absent := [rank for rank in range(world) if rank not in set(captured)]):
        text = f"{len(absent)} of {world} ranks were not captured; nothing here speaks of them."
        found.append(RankProblem(kind="missing", ranks=tuple(absent[:LISTED]), count=len(absent), text=text))
    if twice:
        text = (
            "More than one input says to be the same rank; the later ones were given other numbers, so that groups and stages may be wrong."
        )
        found.append(RankProblem(kind="duplicate", ranks=twice[:LISTED], count=len(twice), text=text))
    return (*found, *_uneven(members))


def _uneven(members: Sequence[Member]) -> list[RankProblem]:
    """Captures that hold another number of steps than most, dropped ones counted."""
    counts = {member.rank.rank: member.device.steps.every.height for member in members}
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [rank for rank, number in sorted(counts.items()) if number != usual]
    if not odd:
        return []
    shown = ", ".join(f"rank {rank} {counts[rank]}" for rank in odd[:8]) + (", …" if len(odd) > 8 else "")
    text = f"Not all captures hold the same number of steps ({usual} in most; {shown}); medians rest on what each has."
    return [RankProblem(kind="steps", ranks=tuple(odd[:LISTED]), count=len(odd), text=text)]


# ------------------------------------------------------------------------------------------------ start skew


def skews(members: Sequence[Member], groups: Mapping[int, str], clocks: Clocks) -> tuple[dict[int, int], tuple[StartSkew, ...]]:
    """By a member's place, how much later than the middle of its like group its capture's first step begins.

    And those whose windows end together all the same.

    Only members whose clocks are aligned with each other, and whose start is known, are compared; the first step that all of them show
    counts, warm-up or not.
    """
    pools: dict[tuple[str, int], list[Member]] = defaultdict(list)
    for member in members:
        if member.rank.start_unix_ns is not None:
            pools[groups[member.place], clocks.known[member.place][0]].append(member)
    late: dict[int, int] = {}
    found = []
    for pool in pools.values():
        common = set.intersection(*(set(member.device.steps.every["index"].to_list()) for member in pool))
        if len(pool) < 2 or not common:
            continue
        spans = {member.place: _span(member, min(common), clocks) for member in pool}
        begin, end = (median_low([span[side] for span in spans.values()]) for side in (0, 1))
        step = median_low([member.median.window_ns for member in pool])
        for member in pool:
            begins, ends = spans[member.place][0] - begin, spans[member.place][1] - end
            late[member.place] = begins
            if abs(begins) > max(SKEW_NS, SKEW_SHARE * step) and abs(ends) <= TOGETHER * abs(begins):
                found.append(_skew(member, begins, ends, min(common)))
    return late, tuple(found)


def _span(member: Member, index: int, clocks: Clocks) -> tuple[int, int]:
    """Begin and end of one step by the first member's clock."""
    start, end = member.device.steps.every.filter(pl.col("index") == index).select("start", "end").row(0)
    moved = member.start_unix_ns - clocks.known[member.place][1]
    return start + moved, end + moved


def _skew(member: Member, begins: int, ends: int, index: int) -> StartSkew:
    """The record of a window that begins `begins` ns after the middle of its group's, and ends `ends` ns after it."""
    side = "later" if begins > 0 else "earlier"
    shape = "shorter" if begins > 0 else "longer"
    text = (
        f"Step {index} of rank {member.rank.rank} begins {abs(begins) / 1e6:.3f} ms {side} than the middle of its group and ends with it: "
        f"its window is {shape} because it began {side}, which makes it no straggler."
    )
    return StartSkew(rank=member.rank.rank, begins_ns=begins, ends_ns=ends, text=text)
