"""Why a rank is late: what takes longer on it than on the others, or what those that are late in turn have uneven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median_low

import polars as pl

from diagnose.document.ranks import LateCause
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.ranks.background import Background
from diagnose.measure.ranks.members import Member

# All of these are this project's choice.
EXPLAINS = 0.4  # share of the lateness that a cause must account for
IN_TURN = 0.15  # of the uneven work: where less of it moves from member to member, the same ones have most in all steps
OF_ONE = 0.8  # of what slow devices take longer in single steps: so much on one device is that device's
SLOW_CPU = 1.25  # times the others' time from one launch to the next


def cause_of(member: Member, others: Sequence[Member], wait: int, known: Background) -> tuple[LateCause, str | None, int | None, str]:
    """What takes longer on the late rank than on the others: cause, bucket, by how much per step, and the figures in words."""
    slowness = known.slow.get(member.place)
    per = "in the capture" if member.device.steps.anchor == "capture" else "a step"
    if slowness is not None:
        much = f"take {slowness.ratio:.2f} times as long as on the others (median of {slowness.shapes} shapes by their work)"
        return "slow_gpu", None, _above(member, others, "compute_busy_ns"), f"its kernels of like shape {much}"
    starved = _above(member, others, "launch_starved_ns")
    bucket, more = _longest_bucket(member, others)
    if starved >= EXPLAINS * wait and starved >= more:
        words = f"its CPU launches later: it is launch-bound for {starved / 1e6:.3f} ms {per} more than on the others"
        return "slow_host", None, starved, words
    moving = known.transfer(member.place) - median_low([known.transfer(one.place) for one in others])
    if moving >= EXPLAINS * wait and moving >= more:
        words = f"collectives in its other groups transfer for {moving / 1e6:.3f} ms {per} more than those of the others"
        return "slow_link", None, moving, words
    if bucket is None or more < EXPLAINS * wait:
        return "unknown", None, None, "no part of its step takes correspondingly longer than on the others"
    words = f"its work in the bucket {bucket.replace('_', ' ')} takes {more / 1e6:.3f} ms {per} more than on the others"
    return known.buckets[bucket].late_cause, bucket, more, words


def _above(member: Member, others: Sequence[Member], figure: str) -> int:
    """How much more of a budget's figure the member has per step than the median of the others."""
    return int(getattr(member.median, figure)) - int(median_low([getattr(one.median, figure) for one in others]))


def _work(member: Member) -> dict[str, int]:
    """How long each bucket runs per step (median), transport aside: that holds the waiting. Several streams at once count once."""
    roles = member.device.usage.names.filter(pl.col("role") == "transport").group_by("bucket").agg(pl.col("work_ns").sum())
    moving = {str(bucket): int(ns) for bucket, ns in roles.iter_rows()}
    return {bucket: max(0, min(ns - moving.get(bucket, 0) // len(member.steps), member.busy[bucket])) for bucket, ns in member.work.items()}


def more_work(member: Member, others: Sequence[Member]) -> int:
    """How much longer its operations take per step than the others', and its host keeps it waiting: no step gets shorter by more."""
    mine, theirs = _work(member), [_work(one) for one in others]
    above = (ns - int(median_low([one.get(bucket, 0) for one in theirs])) for bucket, ns in mine.items())
    return sum(max(0, ns) for ns in above) + max(0, _above(member, others, "launch_starved_ns"))


def _longest_bucket(member: Member, others: Sequence[Member]) -> tuple[str | None, int]:
    """The bucket whose work exceeds the others' most, and by how much."""
    mine, theirs = _work(member), [_work(one) for one in others]
    above = {bucket: ns - int(median_low([one.get(bucket, 0) for one in theirs])) for bucket, ns in mine.items()}
    if not above:
        return None, 0
    bucket = max(above, key=lambda name: (above[name], name))
    return bucket, above[bucket]


def slow_cpus(members: Sequence[Member]) -> set[int]:
    """Places of those whose CPUs are slow all over: from one launch to the next they take longer by SLOW_CPU than the others (median)."""
    gaps = {one.place: ns for one in members if (ns := one.launch_gap_ns) is not None}
    usual = median_low(gaps.values()) if gaps else 0
    return {place for place, ns in gaps.items() if ns >= SLOW_CPU * usual > 0}


def launch_ratio(member: Member, others: Sequence[Member]) -> float | None:
    """How many times as long as the others' CPUs its own takes from one launch to the next; None where that is not known."""
    mine, theirs = member.launch_gap_ns, [ns for one in others if (ns := one.launch_gap_ns) is not None]
    usual = median_low(theirs) if theirs else None
    return round(mine / usual, 3) if mine is not None and usual else None


def slow_in_turn(members: Sequence[Member]) -> tuple[int, Member | None]:
    """What the slowest device of each step takes longer than the mean, because its kernels take longer in this step (ns per step).

    And whose device that is, where nearly all of it is of one.
    """
    every = [
        {step.index: sum(step.compute.values()) * (1 - 1 / member.pace(step.index)) for step in member.device.split} for member in members
    ]
    common = set.intersection(*(set(steps) for steps in every)) if every else set()
    above: defaultdict[int, float] = defaultdict(float)  # by place
    for index in common:
        column = [steps[index] for steps in every]
        slowest = max(column)
        above[column.index(slowest)] += slowest - fmean(column)
    total = sum(above.values())
    whose = next((members[place] for place, ns in above.items() if ns >= OF_ONE * total), None)
    return round(total / max(1, len(common))), whose


def has_most(member: Member, others: Sequence[Member], cause: LateCause, buckets: Buckets) -> bool:
    """Whether a member has more work of a cause than each of the others in every step that all have."""
    own = [bucket for bucket, spec in buckets.items() if spec.late_cause == cause]
    table = [{step.index: sum(step.compute.get(bucket, 0) for bucket in own) for step in one.device.split} for one in (member, *others)]
    common = set.intersection(*(set(steps) for steps in table))
    return all(table[0][index] > max(steps[index] for steps in table[1:]) for index in common)


def uneven(members: Sequence[Member], buckets: Buckets) -> tuple[LateCause, str, int]:
    """What the members' work differs in most, another one having most in each step.

    Cause, the bucket with most of it, and by how much the longest of a step exceeds the mean (ns per step); 0 where it is the same members
    in all steps, so that they do not take turns.
    """
    every = [{step.index: step.compute for step in member.device.split} for member in members]
    common = sorted(set.intersection(*(set(steps) for steps in every))) if every else []
    found: list[tuple[int, LateCause, str]] = [(0, "unknown", "")]
    for cause in dict.fromkeys(spec.late_cause for spec in buckets.values()):
        own = [bucket for bucket, spec in buckets.items() if spec.late_cause == cause]
        table = [[sum(steps[index].get(bucket, 0) for bucket in own) for index in common] for steps in every]  # by member and step
        longest = [max((work, place) for place, work in enumerate(column))[1] for column in zip(*table, strict=True)]
        above = sum(table[place][step] for step, place in enumerate(longest)) - sum(map(sum, table)) // max(1, len(table))
        always = max(map(sum, table), default=0) - sum(map(sum, table)) // max(1, len(table))
        if above - always >= IN_TURN * above > 0:
            most = {bucket: sum(every[place][common[step]].get(bucket, 0) for step, place in enumerate(longest)) for bucket in own}
            usual = {bucket: sum(steps[index].get(bucket, 0) for steps in every for index in common) // len(every) for bucket in own}
            found.append((above // len(common), cause, max(own, key=lambda bucket: most[bucket] - usual[bucket])))
    ns, cause, bucket = max(found)
    return cause, bucket, ns
