"""Sentences, names and choices about ranks that every output shares.

Who is late, of how many ranks this speaks, which ranks a short table shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median

from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import Late, Ranks, RankSurvey
from diagnose.render import units, words
from diagnose.render.report import Point, Points
from diagnose.render.reports.diagnosis import tables

MOST_RANKS = 1_024  # of which every figure and table of the page speaks
SINGLE_STEPS = 0.02  # of the own time: what single steps must add to a rank's mean for it to be named; this project's choice
MOST_SAID = 3  # late ranks that the headline tells in full
WAIT_AND_TRANSFER = (
    "Transfer: as long as a collective's shortest participant takes. Wait: the rest of each participant's time in it, for the straggler; "
    "no faster link removes it."
)


# --- names ------------------------------------------------------------------------------------------------------------


def ranges(numbers: Sequence[int], most: int = 8) -> str:
    """Numbers in order as runs: `0–7, 12, 16–19 and 24 more`, at most `most` runs."""
    ordered = sorted(set(numbers))
    runs = [[number for _, number in run] for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])]
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(str(number) for number in run) for run in runs[:most]]
    more = sum(len(run) for run in runs[most:])
    return ", ".join(parts) + (f" and {more:,} more" if more else "")


def these(numbers: Sequence[int]) -> str:
    """`rank 5`, `ranks 0–7`."""
    return f"rank{'' if len(set(numbers)) == 1 else 's'} {ranges(numbers)}"


def labels(ranks: Ranks) -> list[str]:
    """One name for each surveyed device, in their order: with the device where a rank has several, and no name twice."""
    often = Counter(one.rank for one in ranks.survey)
    seen: dict[str, int] = {}
    found = []
    for one in ranks.survey:
        label = tables.device_label(one.rank, one.device) if often[one.rank] > 1 else f"rank {one.rank}"
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


def grouped(ranks: Ranks) -> list[tuple[str, list[int]]]:
    """Name and places in the survey of every like group, in the document's order; groups that only the survey names come last."""
    places: dict[str, list[int]] = {one.id: [] for one in ranks.groups}
    for place, one in enumerate(ranks.survey):
        places.setdefault(one.group, []).append(place)
    return [
        (name, sorted(mine, key=lambda place: (ranks.survey[place].rank, ranks.survey[place].device)))
        for name, mine in places.items()
        if mine
    ]


def middle(values: Sequence[int | None]) -> float | None:
    """The median of what was measured."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def own_time(one: RankSurvey) -> int | None:
    """The median over the steps of the time that is not waiting for others in matched exchanges."""
    found = middle([step.own_ns for step in one.steps])
    return None if found is None else round(found)


def by_pace(members: Sequence[RankSurvey]) -> list[RankSurvey]:
    """Slowest first, by own time; ranks without one are left out unless none has one, then by the step.

    Ranks that wait for each other have equal steps: only what a rank does itself tells who is slow.
    """
    own = [(one, own_time(one)) for one in members]
    known = [(one, time) for one, time in own if time is not None] or [
        (one, one.step.median) for one in members if one.step.median is not None
    ]
    return [one for one, _ in sorted(known, key=lambda pair: (-pair[1], pair[0].rank, pair[0].device))]


def chosen_places(ranks: Ranks, most: int) -> list[int]:
    """Places in the survey of the ranks that a short table shows, in its order.

    All where they are few. Else the one that the verdict speaks of, the late and the skewed, then the slowest and the fastest of each
    group, slowest group first, then the next slowest.
    """
    survey = ranks.survey
    if len(survey) <= most:
        return list(range(len(survey)))
    told = {one.rank for one in ranks.late} | {one.rank for one in ranks.skew}
    first = [place for place, one in enumerate(survey) if one.rank == ranks.slowest]
    first += [place for place, one in enumerate(survey) if one.rank in told]
    place_of = {id(one): place for place, one in enumerate(survey)}
    paces = [by_pace([survey[place] for place in mine]) for _, mine in grouped(ranks)]
    slowest = [place_of[id(one)] for one in by_pace([pace[0] for pace in paces if pace])]
    fastest = [place_of[id(pace[-1])] for pace in paces if len(pace) > 1]
    rest = [place_of[id(one)] for one in by_pace(survey)]
    order = dict.fromkeys([*first[: most // 2], *slowest, *fastest, *first, *rest])
    return sorted(list(order)[:most])


def compared(ranks: Ranks) -> tuple[int, int] | None:
    """Places of the two ranks that are compared at first.

    The one that the verdict speaks of, and the one in the middle of its group by own time.
    """
    if len(ranks.survey) < 2:
        return None
    place = next((place for place, one in enumerate(ranks.survey) if one.rank == ranks.slowest), 0)
    mine = next(places for _, places in grouped(ranks) if place in places)
    others = [ranks.survey[other] for other in (mine if len(mine) > 1 else range(len(ranks.survey))) if other != place]
    paced = by_pace(others) or others
    middle_one = paced[len(paced) // 2]
    return place, next(other for other, survey in enumerate(ranks.survey) if survey is middle_one)


# --- who is late ------------------------------------------------------------------------------------------------------


def ordered_late(ranks: Ranks) -> list[Late]:
    """The costliest first; those without one late rank come last."""
    return sorted(ranks.late, key=lambda one: (one.rank is None, -one.wait_ns, one.ranks))


def headline(document: Diagnosis, ranks: Ranks) -> Points:
    """Who is late, or that nobody is, or that it can't be told; and of which ranks all this speaks. It stands right below the verdict."""
    late = ordered_late(ranks)
    return Points(
        name="ranks",
        title=_title(ranks),
        points=tuple(_late(one, document) for one in late[:MOST_SAID]),
        more=max(0, len(late) - MOST_SAID),
        more_in="stragglers",
        to="rank-late",
        lines=tuple(line for line in (_stages(document, ranks), coverage(ranks), chosen(ranks), _clocks(ranks)) if line),
    )


def _title(ranks: Ranks) -> str:
    named = sorted({rank for one in ranks.late if one.rank is not None for rank in (one.rank, *one.alike)})
    if named:
        who = f"Ranks {named[0]} and {named[1]}" if len(named) == 2 else these(named).capitalize()
        return f"{who} {'is the straggler' if len(named) == 1 else 'are stragglers'}"
    if ranks.late:
        return "Ranks take turns as the straggler; no single one is"
    if any(one.matched for one in ranks.exchanges):
        if ranks.clocks_agree is None:
            return "The straggler is unknown: too few collectives were matched to compare the clocks of the ranks"
        single = _late_in_single_steps(ranks)
        others = "" if single is None else f" in most steps; in single ones the others wait for rank {single}"
        return f"No captured rank is a straggler{others}"
    return "The straggler is unknown: no collective was matched between ranks"


def _late_in_single_steps(ranks: Ranks) -> int | None:
    """The rank of which the verdict speaks, where its time without waiting stands out on average, though not in the median step."""
    own = {one.rank: times for one in ranks.survey if (times := [step.own_ns for step in one.steps if step.own_ns is not None])}
    if len(own) < 2 or ranks.slowest not in own:
        return None
    by_mean, by_median = ({rank: function(times) for rank, times in own.items()} for function in (fmean, median))
    above = [times[ranks.slowest] - median(times.values()) for times in (by_mean, by_median)]
    least = SINGLE_STEPS * median(by_median.values())
    return ranks.slowest if above[0] > least >= above[1] else None


def _late(one: Late, document: Diagnosis) -> Point:
    kinds = ", ".join(words.COMM_KIND[kind] for kind in one.kinds)
    if one.rank is None:
        who = f"{these(one.ranks).capitalize()}, in turn"
        often = f"none comes last most of the time (the most frequent: {units.percent(one.last_share)}; {kinds})"
    else:
        who = these(sorted((one.rank, *one.alike))).capitalize()
        often = (
            f"last in {units.percent(one.last_share)} of the collectives with notable waiting, {words.LATE_PATTERN[one.pattern]} ({kinds})"
        )
    others = "they" if one.rank is None else these([rank for rank in one.ranks if rank not in (one.rank, *one.alike)])
    cost = f"{others} wait{'s' if others.startswith('rank ') else ''} {units.time(one.wait_ns)} {tables.per(document)} on average"
    why = words.LATE_CAUSE[one.cause]
    if longer(one) and one.longer_ns is not None:
        why += f" ({longer(one)} {units.time(one.longer_ns)} longer)"
    return Point(name=who, parts=(often, cost, why, one.status), evidence=one.evidence)


def longer(one: Late) -> str:
    """What takes longer on the late rank; empty where nothing is known to."""
    return words.bucket(one.bucket) if one.bucket else words.LATE_LONGER.get(one.cause, "")


def _stages(document: Diagnosis, ranks: Ranks) -> str:
    """Stages that differ keep each other waiting although no rank is the straggler among its peers."""
    found = ranks.pipeline
    if found is None or len(found.stages) < 2:
        return ""
    slowest = max(found.stages, key=lambda one: (one.compute_busy_ns, -one.stage))
    return (
        f"Pipeline: stage {slowest.stage} computes most; were all GPUs equally fast, one stage would compute {units.time(found.imbalance_ns)} "
        f"{tables.per(document)} more than the mean of the stages; "
        f"on average {units.percent(found.bubble_share)} of the {tables.whole(document)} is waiting for other stages."
    )


def _clocks(ranks: Ranks) -> str:
    """What unaligned clocks keep from being said."""
    apart = [one for one in ranks.clocks if not one.aligned]
    if not apart:
        return ""
    return f"Clocks could not be aligned for {len(apart)} of {units.plural(len(ranks.clocks), 'pair')} of nodes, so start times are not compared there."


def coverage(ranks: Ranks) -> str:
    """How many ranks were captured of how many; nothing is said of the others, but that one may come late where no captured one does."""
    which = f" ({ranges([one.rank for one in ranks.survey])})" if ranks.survey else ""
    if ranks.world_size is None:
        many = units.plural(ranks.captured, "rank was", "ranks were")
        return f"{many} captured{which}; the size of the job is not recorded."
    if any(problem.kind == "runs" for problem in ranks.problems):
        return f"{units.plural(ranks.captured, 'rank was', 'ranks were')} captured{which}, not all of one run."
    if ranks.captured >= ranks.world_size:
        return f"All {ranks.world_size:,} ranks of the job were captured."
    left = ranks.world_size - ranks.captured
    others = "one is" if left == 1 else f"{left:,} are"
    open_ = not ranks.late and any(one.matched for one in ranks.exchanges)  # somebody may come late, and it is none of these
    waits = f", and these may wait for {'it' if left == 1 else 'one of them'}" if open_ else ""
    return f"{ranks.captured:,} of {ranks.world_size:,} ranks were captured{which}; the other {others} unknown{waits}."


def chosen(ranks: Ranks) -> str:
    """Why the verdict speaks of the rank that it speaks of."""
    reason = f", because {ranks.chosen.rstrip('.')}" if ranks.chosen else ""
    return f"The verdict is of rank {ranks.slowest}{reason}."
