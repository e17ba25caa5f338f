"""All that the captured ranks tell together: one Ranks record, and the device whose path is the slowest.

First comes the survey of all ranks: what each did, which are missing or given twice, and whose window only looks longer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median_low

import polars as pl
from msgspec import Struct

from diagnose.document.device import Spread
from diagnose.document.ranks import Late, RankProblem, Ranks, RankSurvey, StartSkew, StepTime
from diagnose.job import Job
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.templates import enumerated
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.ranks import transfers
from diagnose.measure.ranks.background import Background
from diagnose.measure.ranks.facts import rank_list
from diagnose.measure.ranks.groups import experts, like_groups, pipeline, slow_devices, tails
from diagnose.measure.ranks.lateness import late
from diagnose.measure.ranks.matching import Clocks, aligned, ends_apart
from diagnose.measure.ranks.members import Input, Member, host_label, members_of, mesh_of
from diagnose.measure.ranks.schedule import schedule_of
from diagnose.measure.ranks.stages import Stages, at_stages, stages_of
from diagnose.measure.ranks.transfers import OwnTimes, Transfers
from diagnose.model.statistics import integer_median

LISTED = 64  # ranks that a problem lists
SKEW_SHARE = 0.02  # of the step: a window that begins less early or late is not skewed; this project's choice
SKEW_NS = 1_000_000  # likewise
TOGETHER = 0.2  # of the skew: windows whose ends differ by less end together; this project's choice
APART_NS = 60_000_000_000  # clocks of one cluster do not differ by so much; this project's choice
UNLIKE = 0.1  # of the step: ranks of one job, which its collectives keep in step, differ by less; this project's choice


def surveyed(member: Member, known: Background, stages: Stages | None, skew_ns: int | None) -> RankSurvey:
    """One device's row."""
    own = known.own[member.place]
    lengths = [step.window_ns for step in member.steps]
    return RankSurvey(
        rank=member.rank.rank,
        device=member.device.device,
        file=member.file,
        host=host_label(member),
        group=known.alike[member.place],
        stage=None if stages is None else stages.of.get(member.rank.rank),
        step=Spread(median=integer_median(lengths), min=min(lengths), max=max(lengths), n=len(lengths)),
        **{name: getattr(member.median, name) for name in _COLUMNS},
        buckets=dict(member.work),
        collectives=_collectives(member),
        steps=tuple(
            StepTime(index=step.index or 0, window_ns=step.window_ns, own_ns=left if own.matched and shared else None)
            for step, left, shared in zip(member.steps, own.time, own.shared, strict=True)
        ),
        wait_ns=own.wait_ns if own.matched else None,
        transfer_ns=own.transfer_ns if own.matched else None,
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


def problems(
    members: Sequence[Member], world: int | None, claimed: Mapping[int, int], every: Sequence[Transfers]
) -> tuple[RankProblem, ...]:
    """Ranks of other runs, missing, given twice, or with other steps. `claimed`: how many inputs said to be that rank at first."""
    captured = sorted({member.rank.rank for member in members})
    found = _runs(members, every)
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


def _runs(members: Sequence[Member], every: Sequence[Transfers]) -> list[RankProblem]:
    """Captures that can't be of one run: of jobs of other sizes, or that no matched exchange joins, of other times or other steps."""
    sizes = sorted({member.rank.world_size for member in members if member.rank.world_size})
    first, *others = _joined(members, every)
    if len(sizes) > 1:
        of, why = "jobs", f", with {enumerated([f'{size:,}' for size in sizes])} ranks by what they tell"
    elif apart := next(((other, words) for other in others if (words := _unlike(first, other, told=bool(sizes)))), None):
        others, (of, why) = (
            [apart[0]],
            ("runs or of other steps", f": no collective joins {_these(first)} to {_these(apart[0])}, {apart[1]}"),
        )
    else:
        return []
    ranks = tuple(member.rank.rank for own in others for member in own)
    text = f"The captures are of several {of}{why}: what is said of all ranks together is wrong. Give those of one."
    return [RankProblem(kind="runs", ranks=ranks[:LISTED], count=len(ranks), text=text)]


def _joined(members: Sequence[Member], every: Sequence[Transfers]) -> list[list[Member]]:
    """Members that matched exchanges join, directly or through others: the sets, in order of their first."""
    of = {member.place: member.place for member in members}
    for found in every:
        sets = {of[part.member.place] for part in found.group.parts}
        of = {place: min(sets) if own in sets else own for place, own in of.items()}
    joined: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        joined[of[member.place]].append(member)
    return list(joined.values())


def _unlike(one: Sequence[Member], other: Sequence[Member], *, told: bool) -> str:
    """How two sets of ranks differ as those of one job can't; empty where they do not. `told`: captures say how many ranks the job has."""
    spans = [span for own in (one, other) if (span := _time(own))]
    gap = max(spans[1][0] - spans[0][1], spans[0][0] - spans[1][1]) if len(spans) == 2 else 0
    if gap > APART_NS:
        return f"which were captured {gap / 60e9:,.0f} minutes apart"
    steps = [median_low([member.median.window_ns for member in own]) for own in (one, other)]
    alike = not told or min(len(one), len(other)) == 1 or max(steps) <= (1 + UNLIKE) * min(steps)
    return "" if alike else f"and their steps take {steps[0] / 1e6:.1f} and {steps[1] / 1e6:.1f} ms"


def _time(members: Sequence[Member]) -> tuple[int, int] | None:
    """From when to when the members' steps last by the wall clock; None where it is not known of all."""
    if any(member.rank.start_unix_ns is None for member in members):
        return None
    steps = [member.device.steps.every.select(pl.col("start", "end") + member.start_unix_ns) for member in members]
    return min(own["start"][0] for own in steps), max(own["end"][-1] for own in steps)


def _these(members: Sequence[Member]) -> str:
    """`ranks 0, 1, 2`."""
    return f"rank{'s' if len(members) > 1 else ''} {rank_list([member.rank.rank for member in members])}"


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


class Skews(Struct, frozen=True, kw_only=True):
    """By a member's place, how much later than the middle of its like group its capture's first step begins (`later_ns`).

    `apart`: those whose windows end together all the same; `begun`: by place, the first step of those among them that began later.
    """

    later_ns: Mapping[int, int]
    apart: tuple[StartSkew, ...]
    begun: Mapping[int, int]


def skews(members: Sequence[Member], groups: Mapping[int, str], clocks: Clocks) -> Skews:
    """Which captures begin apart from the others of their like group.

    Only members whose clocks are aligned with each other, and whose start is known, are compared; the first step that all of them show
    counts, warm-up or not.
    """
    pools: dict[tuple[str, int], list[Member]] = defaultdict(list)
    for member in members:
        if member.rank.start_unix_ns is not None:
            pools[groups[member.place], clocks.known[member.place][0]].append(member)
    late: dict[int, int] = {}
    begun: dict[int, int] = {}
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
                begun |= {member.place: min(common)} if begins > 0 else {}
    return Skews(later_ns=late, apart=tuple(found), begun=begun)


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


SLOWEST = 0.02  # of the step: own times that exceed the middle by less make no slowest path; this project's choice


class Compared(Struct, frozen=True, kw_only=True):
    """`shown`: the device on the slowest path. `exchanged`: by (rank, device, kind, backend) transfer, wait, matched, unmatched."""

    ranks: Ranks
    shown: DeviceMeasure
    exchanged: Mapping[tuple[int, int, str, str], tuple[int, int, int, int]]


def compare(
    inputs: Sequence[Input],
    job: Job | None,
    *,
    world: int | None,
    claimed: Mapping[int, int],
    middle: tuple[int, int],
    buckets: Buckets,
) -> Compared:
    """Compare all devices; `middle`: (rank, device) in the middle by step time; `buckets`: the rows of buckets.yaml in use."""
    captured_members = members_of(inputs)
    members = at_stages(captured_members, buckets)
    mesh = mesh_of(job)
    matched, unmatched, told = aligned(members, mesh)
    every = [transfers.split_exchanges(group, ends_apart(group, told)) for group in matched]
    groups, group_of = like_groups(members, mesh, buckets)
    skewed = skews(members, group_of, told)
    captured = len({member.rank.rank for member in members})
    world = world if world is not None and world >= captured else None  # one of them is of another job, or the number is wrong
    stages = stages_of(members, mesh, job, world, buckets)
    slow = slow_devices(members, group_of, buckets, stages)
    known = Background(
        members=members,
        own=transfers.own_times(members, every),
        slow=slow,
        alike=group_of,
        experts=experts(every, slow),
        clocks=told,
        buckets=buckets,
        schedule=schedule_of(members, stages, job, buckets),
        transfers=None if captured == world else whole_transfers(members, every, unknown=world is None),
        begun=skewed.begun,
    )
    lateness = late(every, known)
    slowest, chosen = chosen_member(members, known.own, lateness, middle)
    return Compared(
        ranks=Ranks(
            world_size=world,
            captured=captured,
            slowest=slowest.rank.rank,
            chosen=chosen,
            problems=problems(members, world, claimed, every),
            groups=groups,
            survey=tuple(surveyed(member, known, stages, skewed.later_ns.get(member.place)) for member in members),
            clocks=told.pairs,
            exchanges=tuple(transfers.record(found) for found in every),
            late=lateness,
            skew=skewed.apart,
            experts=tuple(known.experts),
            pipeline=pipeline(members, stages, known.schedule, {place: one.median_ns for place, one in known.own.items()}, slow),
            tail=tails(members),
            notes=(*transfers.left_alone(unmatched), *(() if every else (_NOTHING,)), *told.notes),
        ),
        shown=captured_members[slowest.place].device,
        exchanged=_exchanged(every),
    )


_NOTHING = "No collective could be matched across ranks, so stragglers, and how much of a collective is waiting, are unknown."


def whole_transfers(members: Sequence[Member], every: Sequence[Transfers], *, unknown: bool) -> dict[int, int]:
    """By place: transfer per step in groups all of whose members were captured; those of an `unknown` job need not tell their size."""
    whole = [one for one in every if one.group.whole or (unknown and one.group.size is None)]
    return {place: own.transfer_ns for place, own in transfers.own_times(members, whole).items()}


def chosen_member(
    members: Sequence[Member], own: Mapping[int, OwnTimes], lateness: Sequence[Late], middle: tuple[int, int]
) -> tuple[Member, str]:
    """The member that the verdict speaks of, and why it."""
    central = next(member for member in members if (member.rank.rank, member.device.device) == middle)
    if not any(own[member.place].matched or any(member.bubble) for member in members):
        return (
            central,
            f"rank {central.rank.rank} is the one in the middle by step time; no collective between ranks shows the slowest path",
        )
    in_steps = [member for member in members if member.device.steps.anchor != "capture"]  # a capture that was not cut is no step
    times = {member.place: own[member.place].median_ns for member in in_steps or members}
    behind = [entry.rank for entry in lateness if entry.rank is not None]
    if behind:
        member = next(one for one in members if one.rank.rank == behind[0])
        return member, f"rank {member.rank.rank} is the slowest path: the ranks of its collectives wait for it"
    step = central.median.window_ns
    waits = {place: own[place].wait_ns for place in times}
    place, above = _longest(times)
    if above > SLOWEST * step:
        why = "it waits least for others" if waits[place] == min(waits.values()) else "its time without waiting for others is the longest"
        return members[place], f"rank {members[place].rank.rank} is the slowest path: {why}"
    place, above = _longest({place: own[place].mean_ns for place in times})
    if above > SLOWEST * step:
        why = "single steps, in which the others wait for it, make its time without waiting the longest on average"
        return members[place], f"rank {members[place].rank.rank} is the slowest path: {why}"
    return central, f"no rank's time without waiting stands out; rank {central.rank.rank} is the one in the middle by step time"


def _longest(times: Mapping[int, int]) -> tuple[int, int]:
    """The place with the longest time, of equal ones the first, and by how much it exceeds the middle."""
    place = max(times, key=lambda one: (times[one], -one))
    return place, times[place] - median_low(list(times.values()))


def _exchanged(every: Sequence[Transfers]) -> dict[tuple[int, int, str, str], tuple[int, int, int, int]]:
    """Transfer and wait per step (median), matched and unmatched instances, by (rank, device, kind, backend)."""
    sums: dict[tuple[int, int, str, str], tuple[int, int, int, int]] = {}
    for found in every:
        for place, part in enumerate(found.group.parts):
            key = (part.member.rank.rank, part.member.device.device, found.group.kind, found.group.backend)
            transfer, wait = transfers.medians(found, place)
            before = sums.get(key, (0, 0, 0, 0))
            left = part.rows.height - found.group.matched
            sums[key] = (before[0] + transfer, before[1] + wait, before[2] + found.group.matched, before[3] + left)
    return sums
