"""All that the captured ranks tell together: one Ranks record, and the device whose path is the slowest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from diagnose.document.ranks import Late, Ranks
from diagnose.job import Job
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.device import DeviceMeasure
from diagnose.measure.ranks import transfers
from diagnose.measure.ranks.alike import like_groups
from diagnose.measure.ranks.clocks import clocks
from diagnose.measure.ranks.experts import experts
from diagnose.measure.ranks.lateness import Background, late
from diagnose.measure.ranks.matching import NO_FIT, match
from diagnose.measure.ranks.members import Input, Member, members_of, mesh_of
from diagnose.measure.ranks.slowness import slow_devices
from diagnose.measure.ranks.stages import pipeline, tails
from diagnose.measure.ranks.survey import problems, skews, surveyed
from diagnose.measure.ranks.transfers import OwnTimes, Transfers

SLOWEST = 0.02  # of the step: own times that exceed the middle by less make no slowest path; this project's choice

Links = Callable[[Sequence[int]], float | None]  # ranks of a group → GB/s of the link between them


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`ranks` for the document.

    `shown`: the device on the slowest path; `exchanged` by (rank, device, kind, backend): transfer, wait, matched, unmatched.
    """

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
    link_gb_s: Links,
    buckets: Buckets,
) -> Compared:
    """Compare all devices; `middle`: (rank, device) in the middle by step time; `buckets`: the rows of buckets.yaml in use."""
    members = members_of(inputs)
    mesh = mesh_of(job)
    matched, unmatched = match(members, mesh)
    told = clocks(members, matched)
    if any(ahead for _, ahead in told.known.values()) and any(one.why == NO_FIT for one in unmatched):  # the clocks are known better now
        matched, unmatched = match(members, mesh, told.known)
        told = clocks(members, matched)
    every = [transfers.split_exchanges(group) for group in matched]
    own = transfers.own_times(members, every)
    groups, group_of = like_groups(members, mesh, buckets)
    skewed, skew = skews(members, group_of, told)
    slow = slow_devices(members, group_of, buckets)
    uneven = experts(every, slow)
    lateness = late(every, Background(own=own, slow=slow, alike=group_of, experts=uneven, clocks=told, buckets=buckets))
    slowest, chosen = _slowest(members, own, lateness, middle)
    captured = len({member.rank.rank for member in members})
    world = world if world is not None and world >= captured else None  # one of them is of another job, or the number is wrong
    return Compared(
        ranks=Ranks(
            world_size=world,
            captured=captured,
            slowest=slowest.rank.rank,
            chosen=chosen,
            problems=problems(members, world, claimed),
            groups=groups,
            survey=tuple(surveyed(member, group_of[member.place], mesh, own[member.place], skewed.get(member.place)) for member in members),
            clocks=told.pairs,
            exchanges=tuple(transfers.record(found, link_gb_s(found.group.ranks)) for found in every),
            late=lateness,
            skew=skew,
            experts=uneven,
            pipeline=pipeline(members, mesh, job),
            tail=tails(members),
            notes=(*transfers.left_alone(unmatched), *(() if every else (_NOTHING,)), *told.notes),
        ),
        shown=slowest.device,
        exchanged=_exchanged(every),
    )


_NOTHING = "No exchange could be matched across ranks: who comes late, and how much of an exchange is waiting, can't be said."


def _slowest(
    members: Sequence[Member], own: Mapping[int, OwnTimes], lateness: Sequence[Late], middle: tuple[int, int]
) -> tuple[Member, str]:
    """The member that the verdict speaks of, and why it."""
    central = next(member for member in members if (member.rank.rank, member.device.device) == middle)
    if not any(own[member.place].matched or any(member.bubble) for member in members):
        return (
            central,
            f"rank {central.rank.rank} is the one in the middle by step time; no exchange between ranks tells the slowest path",
        )
    times = {member.place: own[member.place].median_ns for member in members}
    usual = median_low(list(times.values()))
    behind = [entry.rank for entry in lateness if entry.rank is not None]
    if behind:
        member = next(one for one in members if one.rank.rank == behind[0])
        return member, f"rank {member.rank.rank} is the slowest path: the ranks that it exchanges with wait for it"
    place = max(times, key=lambda one: (times[one], -one))
    step = central.median.window_ns
    if times[place] - usual > SLOWEST * step:
        member = members[place]
        return member, f"rank {member.rank.rank} is the slowest path: it waits least for others"
    return central, f"no rank's own time stands out; rank {central.rank.rank} is the one in the middle by step time"


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
