"""Facts of what differs between ranks: the names of trace_rules/facts.yaml with scope ranks, each with one producer here.

All are read from the records of `diagnose.document.ranks`; with one captured rank all are null. Of several groups (expert-parallel groups,
groups with a late rank) the one that loses most speaks. Nought means that the thing was looked for and is not there; null that it could not
be looked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median, median_low

from msgspec import Struct, structs

from diagnose.document.device import of_device
from diagnose.document.ranks import ExpertImbalance, Late, LateCause, MatchedExchange, Ranks, RankSurvey, Stage
from diagnose.model.vocabulary import GROUP_OF_KIND, FactValue


class SlowLink(Struct, frozen=True, kw_only=True):
    """The group, what it exchanges, and what its transfers take longer than its likes': ns per step, and as a share of the likes' time.

    `stalled_ns`: how much longer compute is stalled on them, ns per step; None where that is not known of all groups. `wider_ns`: how much
    longer at most on exchanges of more ranks over the same path, which have no likes.
    """

    ranks: tuple[int, ...]
    exchange: str
    excess_ns: int
    share: float
    stalled_ns: int | None
    wider_ns: int = 0

    @property
    def costs_ns(self) -> int:
        """What it costs at most, ns per step."""
        return self.excess_ns if self.stalled_ns is None else self.stalled_ns


class _Group(Struct, frozen=True, kw_only=True):
    """Exchanges of one kind in one group. `transfer_ns` per step, `duration_ns` of one exchange, `pace` in GB/s where it is known.

    `stalled_ns`: of one exchange's transfer what compute is stalled on; None where that is not known. `number`: exchanges per step.
    """

    ranks: tuple[int, ...]
    exchange: str
    transfer_ns: int
    duration_ns: float
    pace: float | None
    stalled_ns: float | None
    number: float


def slow_link(ranks: Ranks) -> SlowLink | None:
    """The group that loses most against the median of its likes; None where no group has a like.

    Likes do the same exchange in groups of one size that hold the same parts of the model, span the same number of hosts and share no rank:
    a group inside one host is never held against one across hosts. All members have to be captured (by the group's size, or because the
    whole job was), or the transfer may hold waiting for one that was not. Where sizes are known for all of them (algorithm bandwidth),
    paces in bytes are compared, otherwise durations of one exchange.
    """
    families: dict[tuple[object, ...], list[MatchedExchange]] = defaultdict(list)
    survey = {one.rank: one for one in ranks.survey}
    everybody = ranks.world_size is not None and ranks.captured >= ranks.world_size
    for one in ranks.exchanges:
        whole = everybody if one.size is None else one.size == len(one.ranks)
        if whole and one.matched and one.transfer_ns > 0:
            families[_likeness(one, survey)].append(one)
    found = [slow for family in families.values() for slow in _against_likes(_groups(family, survey))]
    slowest = max(found, key=lambda one: (one.costs_ns, one.excess_ns, [-rank for rank in one.ranks]), default=None)
    if slowest is None:
        return None
    hosts = {rank: member.host for rank, member in survey.items()}
    alone = [one for family in families.values() if not _against_likes(_groups(family, survey)) for one in family]
    return structs.replace(slowest, wider_ns=sum(_wider(slowest, one, hosts) for one in alone))


def _wider(slow: SlowLink, one: MatchedExchange, hosts: Mapping[int, str]) -> int:
    """How much longer a slow group's link makes compute stall on another exchange at most (ns per step): its members and more take part.

    A group inside a host has a path of its own where the other exchange leaves that host.
    """
    inside, outside = ({hosts.get(rank, "unknown") for rank in ranks} for ranks in (slow.ranks, one.ranks))
    if not set(slow.ranks) < set(one.ranks) or "unknown" in outside or (len(inside) == 1 < len(outside)):
        return 0
    return round((one.stalled_ns or 0) * slow.share / (1 + slow.share))


def _likeness(one: MatchedExchange, survey: Mapping[int, RankSurvey]) -> tuple[object, ...]:
    """What two groups must share to be held against each other."""
    members = [survey[rank] for rank in one.ranks if rank in survey]
    hosts = [member.host for member in members]
    spanned = tuple(sorted(hosts.count(host) for host in set(hosts)))
    held = tuple(sorted({member.group for member in members}))
    return one.kind, one.backend, one.operation, one.size, spanned, "unknown" in hosts, held


def _groups(family: Sequence[MatchedExchange], survey: Mapping[int, RankSurvey]) -> list[_Group]:
    """One entry for each set of ranks: several communicators of the same ranks are taken together, because they carry different things."""
    by_ranks: dict[tuple[int, ...], list[MatchedExchange]] = defaultdict(list)
    for one in family:
        by_ranks[one.ranks].append(one)
    found = []
    for ranks, own in sorted(by_ranks.items()):
        transfer = sum(one.transfer_ns for one in own)
        steps = min((len(survey[rank].steps) for rank in ranks if rank in survey), default=1)  # the count is of the whole capture
        stalled = [one.stalled_ns for one in own if one.stalled_ns is not None]
        number = sum(one.matched for one in own) / max(steps, 1)
        found.append(
            _Group(
                ranks=ranks,
                exchange=f"{own[0].kind} {own[0].backend} {own[0].operation}",
                transfer_ns=transfer,
                duration_ns=transfer / number,
                pace=own[0].algorithm_gb_s if len(own) == 1 else None,
                stalled_ns=sum(stalled) / number if len(stalled) == len(own) else None,
                number=number,
            )
        )
    return found


def _against_likes(groups: Sequence[_Group]) -> list[SlowLink]:
    """Each group against the median of the others that share no rank with it; one that is no slower loses nothing."""
    found = []
    for one in groups:
        likes = [like for like in groups if not set(like.ranks) & set(one.ranks)]
        if not likes:
            continue
        paces = [like.pace for like in likes if like.pace]
        if one.pace and len(paces) == len(likes):
            ratio = median(paces) / one.pace
        else:
            ratio = one.duration_ns / median(like.duration_ns for like in likes)
        ratio = max(ratio, 1.0)
        excess = round(one.transfer_ns * (1 - 1 / ratio))
        found.append(
            SlowLink(
                ranks=one.ranks, exchange=one.exchange, excess_ns=excess, share=ratio - 1, stalled_ns=_stalled_longer(one, likes, excess)
            )
        )
    return found


def _stalled_longer(one: _Group, likes: Sequence[_Group], excess: int) -> int | None:
    """How much longer a group's compute is stalled on transfers than its likes' (median), ns per step, at most their `excess`.

    Behind compute transfers may take longer at no cost: where the likes' are hidden in part, that part of a slower one is hidden, too.
    """
    usual = [like.stalled_ns for like in likes if like.stalled_ns is not None]
    if one.stalled_ns is None or len(usual) < len(likes):
        return None
    return min(excess, max(0, round((one.stalled_ns - median(usual)) * one.number)))


_LISTED = 8  # ranks that a text names before it counts the rest
_FROM_LATENESS = ("rank", "with", "cause", "longer_ns")


def rank_facts(ranks: Ranks | None, step_ns: int, device: int = 0) -> dict[str, FactValue]:
    """All facts of scope ranks; shares are of `step_ns`, the step that the verdict speaks of; `device` is that of its rank."""
    tail = _mean([one.tail_ns for one in ranks.tail]) if ranks else None  # waiting for data-parallel exchanges at the end of a step
    return {
        **_matched(ranks, step_ns, device),
        **_straggler(ranks, step_ns),
        **_another(ranks, step_ns),
        **_rotating(ranks, step_ns),
        **_start_skew(ranks),
        **_experts(ranks, step_ns),
        **_pipeline(ranks, step_ns),
        "data_tail_ns": tail,
        "data_tail_share": _share(tail, step_ns),
        **_problems(ranks),
        **_clocks(ranks),
        **_link(ranks),
    }


def inferred_rank_facts(ranks: Ranks | None) -> frozenset[str]:
    """Names of those facts that rest on a stated heuristic: what the record of the late rank itself does not call measured."""
    told = (
        ("straggler", the_straggler(ranks), (*_FROM_LATENESS, "bucket")),
        ("another", another_straggler(ranks), (*_FROM_LATENESS, "because")),
    )
    return frozenset(f"{whose}_{name}" for whose, late, names in told if late is not None and late.status != "measured" for name in names)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _mean(values: Sequence[int]) -> int | None:
    return round(fmean(values)) if values else None


def rank_list(ranks: Sequence[int], count: int | None = None) -> str:
    """Rank numbers as a text: the first few, then how many more there are. `count`: of how many `ranks` are the first; None: all."""
    shown, count = ", ".join(str(rank) for rank in ranks[:_LISTED]), len(ranks) if count is None else count
    return shown if count <= _LISTED else f"{shown} and {count - _LISTED} more"


# --- matched exchanges ------------------------------------------------------------------------------------------------


def _matched(ranks: Ranks | None, step_ns: int, device: int) -> dict[str, FactValue]:
    """How many exchanges were matched, and how their time splits into transfer and waiting for others."""
    survey = ranks.survey if ranks else ()
    exchanges = ranks.exchanges if ranks else ()
    matched, unmatched = sum(one.matched for one in exchanges), sum(one.unmatched for one in exchanges)
    waits = {(one.rank, one.device): one.wait_ns for one in survey if one.wait_ns is not None}
    wait = _mean(list(waits.values()))
    transfer = _mean([one.transfer_ns for one in survey if one.transfer_ns is not None])
    bubble = sum(part.wait_ns for one in exchanges if one.kind == "pipeline" or _between_stages(one, survey) for part in one.waits)
    pipeline = min(round(bubble / len(waits)), wait) if wait is not None else None
    own = None if ranks is None else of_device(survey, (ranks.slowest, device))
    return {
        "own_wait_ns": own.wait_ns if own is not None else None,
        "own_transfer_ns": own.transfer_ns if own is not None else None,
        "matched_exchanges": matched if ranks else None,
        "unmatched_exchanges": unmatched if ranks else None,
        "matched_share": _share(matched, matched + unmatched),
        "ranks_wait_ns": wait,
        "ranks_wait_share": _share(wait, step_ns),
        "ranks_wait_pipeline_ns": pipeline,
        "ranks_wait_blocking_ns": _blocking(ranks, wait, pipeline),
        "ranks_transfer_ns": transfer,
        "ranks_wait_over_transfer": _share(wait, transfer),
        **{f"{name}_wait_share": _wait_share([one for one in exchanges if one.kind == kind]) for kind, name in GROUP_OF_KIND.items()},
    }


def _between_stages(one: MatchedExchange, survey: Sequence[RankSurvey]) -> bool:
    """Whether ranks of several pipeline stages take part: the stage that is done first waits there for the pipeline to drain."""
    return len({member.stage for member in survey if member.rank in one.ranks and member.stage is not None}) > 1


def _blocking(ranks: Ranks | None, wait: int | None, pipeline: int | None) -> int | None:
    """What steps lost to others, without the bubble: waiting in exchanges other than the pipeline's, as far as it can hold compute up."""
    if ranks is None or wait is None or pipeline is None:
        return None
    held = _mean([lost for one in ranks.survey if (lost := _lost(one)) is not None])
    stages = ranks.pipeline.stages if ranks.pipeline else ()
    bubble = _mean([one.bubble_ns for one in stages]) or 0
    return None if held is None else max(0, min(wait - pipeline, held - bubble))


def _lost(one: RankSurvey) -> int | None:
    """What a device's steps lost to others (median); None where it is not known."""
    lost = [step.window_ns - step.own_ns for step in one.steps if step.own_ns is not None]
    return median_low(lost) if lost else None


def _wait_share(exchanges: Sequence[MatchedExchange]) -> float | None:
    """Waiting as a share of the time that all members spend in matched exchanges."""
    matched = [one for one in exchanges if one.matched]
    waits = sum(one.wait_ns * len(one.ranks) for one in matched)
    return _share(waits, waits + sum(one.transfer_ns * len(one.ranks) for one in matched))


# --- who is late ------------------------------------------------------------------------------------------------------


def _nobody(ranks: Ranks | None) -> int | None:
    """Waiting for a late rank where none is named: nought where exchanges were matched and all clocks agree, otherwise not known."""
    if ranks is None or not ranks.clocks_agree:
        return None
    return 0 if any(one.matched for one in ranks.exchanges) else None


def the_straggler(ranks: Ranks | None) -> Late | None:
    """The rank that always or mostly comes last and costs most."""
    found = [one for one in (ranks.late if ranks else ()) if one.pattern != "rotating" and one.rank is not None]
    return min(found, key=lambda one: (-one.wait_ns, one.rank or 0), default=None)


# This project's choice, of what the straggler costs: others that are late by the same cause and cost as much are named with it.
WITH_IT = 0.5


def late_with(ranks: Ranks | None) -> tuple[int, ...]:
    """Ranks that are late as the straggler is, by the same cause: together with it, or in groups of their own, where that costs as much."""
    first = the_straggler(ranks)
    if ranks is None or first is None:
        return ()
    alike = [one for one in ranks.late if one.rank is not None and one.cause == first.cause and one.wait_ns >= WITH_IT * first.wait_ns]
    return tuple(sorted({rank for one in alike for rank in (one.rank, *one.alike) if rank is not None} - {first.rank}))


def another_straggler(ranks: Ranks | None) -> Late | None:
    """Of the ranks that are late by another known cause than the straggler, the one that costs most: its lateness is its own."""
    first = the_straggler(ranks)
    if ranks is None or first is None:
        return None
    named = {first.rank, *first.alike, *late_with(ranks)}
    found = [one for one in ranks.late if one.pattern != "rotating" and one.rank not in named and one.cause not in {"unknown", first.cause}]
    return max((one for one in found if one.rank is not None), key=lambda one: (_saves(one), -(one.rank or 0)), default=None)


_BECAUSE: Mapping[LateCause, str] = {
    "slow_gpu": "its GPU is slow",
    "slow_host": "its CPU launches late",
    "expert_work": "its experts get more tokens",
    "vision_work": "it has more images",
    "more_work": "it has more work",
    "slow_link": "its other collectives are slow",
}


def _saves(late: Late) -> int:
    """What the step could win at most without a rank's lateness, ns."""
    return late.wait_ns if late.saves_ns is None else late.saves_ns


def _fellows(ranks: Sequence[int]) -> str | None:
    """Ranks late with another as a text; None for none."""
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_list(ranks)}" if ranks else None


def _another(ranks: Ranks | None, step_ns: int) -> dict[str, FactValue]:
    """Who else is late by a cause of its own, and what that costs per step."""
    first, late = the_straggler(ranks), another_straggler(ranks)
    none = _nobody(ranks) if first is None else 0
    saves = none if late is None else _saves(late)
    moving = _straggler_transfer(ranks, late, saves)
    saves = saves if saves is None or moving is None else saves + moving
    return {
        "another_rank": str(late.rank) if late else None,
        "another_with": _fellows(late.alike) if late else None,
        "another_cause": late.cause if late else None,
        "another_because": _BECAUSE[late.cause] if late else None,
        "another_wait_ns": late.wait_ns if late else none,
        "another_saves_ns": saves,
        "another_saves_share": _share(saves, step_ns),
        "another_longer_ns": late.longer_ns if late else None,
    }


def _straggler(ranks: Ranks | None, step_ns: int) -> dict[str, FactValue]:
    """Who always or mostly comes last, what it costs per step, and why."""
    late, fellows = the_straggler(ranks), late_with(ranks)
    rotates = any(one.pattern == "rotating" for one in (ranks.late if ranks else ()))
    wait = late.wait_ns if late else _nobody(ranks)
    saves = wait if late is None else max(_saves(late), _link_costs(ranks, late))
    moving = _straggler_transfer(ranks, late, saves)
    return {
        "straggler_rank": str(late.rank) if late else None,
        "straggler_with": _fellows(fellows),
        "straggler_wait_ns": wait,
        "straggler_wait_share": _share(wait, step_ns),
        "straggler_saves_ns": saves,
        "straggler_saves_share": _share(saves, step_ns),
        "straggler_paced_ns": saves if late and late.cause == "slow_host" and saves is not None and saves < late.wait_ns else None,
        "straggler_transfer_saves_ns": moving,
        "straggler_unseen_ns": _saves(late) - late.wait_ns if late and _saves(late) > late.wait_ns else None,
        "straggler_last_share": late.last_share if late else None,
        "straggler_cause": late.cause if late else None,
        "straggler_bucket": late.bucket if late else None,
        "straggler_longer_ns": late.longer_ns if late else None,
        "straggler_launch_ratio": late.launch_ratio if late else None,
        "straggler_exchanges": ", ".join(late.kinds) if late else None,
        "lateness_pattern": late.pattern if late else "rotating" if rotates else None,
    }


def _link_costs(ranks: Ranks | None, late: Late) -> int:
    """What compute is stalled on a straggler's slow link longer than in peer groups, ns per step; 0 where that is not why it is late, or
    another sets the pace without it.

    So much its own step gets shorter. Of that the others' waiting holds only what meets them in exchanges that compute is stalled on: what
    comes late beside compute may make another exchange late in turn.
    """
    link = slow_link(ranks) if ranks is not None and late.cause == "slow_link" and late.saves_ns is None else None
    return 0 if link is None or late.rank not in link.ranks else (link.stalled_ns or 0) + link.wider_ns


def _straggler_transfer(ranks: Ranks | None, late: Late | None, saves: int | None) -> int | None:
    """What the experts' exchanges take longer because the straggler has more tokens (ns per step), beside what the others wait for it.

    Ranks of other groups of experts wait for these exchanges too: where such wait, no more is won than their waiting, and what they win
    themselves where all have even work, of which the group with the least tells.
    """
    worst = worst_experts(ranks)
    moving = _transfer_saves(worst)
    if ranks is None or worst is None or late is None or moving is None or saves is None or late.cause != "expert_work":
        return None
    if set(late.ranks) <= set(worst.ranks):
        return moving
    others = [one.lost_ns + (_transfer_saves(one) or 0) for one in ranks.experts if one.ranks != worst.ranks]
    return min(moving, max(0, late.wait_ns - saves) + min(others, default=0))


def _rotating(ranks: Ranks | None, step_ns: int) -> dict[str, FactValue]:
    """Waiting per step behind ranks that come last in turn, and what they have uneven work in."""
    every = [one for one in (ranks.late if ranks else ()) if one.pattern == "rotating"]
    late = max(every, key=lambda one: one.wait_ns, default=None)
    wait = late.wait_ns if late else _nobody(ranks)
    saves = wait if late is None else _saves(late)
    moving = _transfer_saves(worst_experts(ranks)) if late and late.cause == "expert_work" else None
    return {
        "rotating_wait_ns": wait,
        "rotating_wait_share": _share(wait, step_ns),
        "rotating_saves_ns": saves if saves is None or moving is None else saves + moving,
        "rotating_cause": late.cause if late else None,
        "rotating_bucket": late.bucket if late else None,
        "rotating_uneven_ns": late.longer_ns if late else None,
    }


def _start_skew(ranks: Ranks | None) -> dict[str, FactValue]:
    """Skew is known where any rank's start could be compared, or one was found."""
    if ranks is None or not (ranks.skew or any(one.start_skew_ns is not None for one in ranks.survey)):
        return {"start_skew_ns": None, "start_skew_ranks": None}
    return {
        "start_skew_ns": max((abs(one.begins_ns) for one in ranks.skew), default=0),
        "start_skew_ranks": len({one.rank for one in ranks.skew}),
    }


# --- imbalance --------------------------------------------------------------------------------------------------------


def worst_experts(ranks: Ranks | None) -> ExpertImbalance | None:
    """The expert-parallel group that loses most; of equal ones the first."""
    return max(ranks.experts if ranks else (), key=lambda one: (one.lost_ns, -min(one.ranks)), default=None)


def _experts(ranks: Ranks | None, step_ns: int) -> dict[str, FactValue]:
    """The imbalance of the expert-parallel group that loses most."""
    worst = worst_experts(ranks)
    return {
        "expert_imbalance_ns": worst.lost_ns if worst else None,
        "expert_imbalance_share": _share(worst.lost_ns, step_ns) if worst else None,
        "expert_imbalance_spread": worst.spread if worst else None,
        "expert_transfer_saves_ns": _transfer_saves(worst),
        "expert_busiest_rank": str(worst.busiest) if worst else None,
        "expert_busiest_share": worst.busiest_share if worst else None,
    }


def _transfer_saves(experts: ExpertImbalance | None) -> int | None:
    """What the exchanges of a group take longer at most because the busiest rank gets, and sends back, more tokens than the mean."""
    if experts is None or experts.transfer_ns is None:
        return None
    spread = experts.spread if experts.elements_spread is None else experts.elements_spread
    return round(experts.transfer_ns * (1 - 1 / spread)) if spread > 1 else 0


def slowest_stage(stages: Sequence[Stage]) -> Stage | None:
    """The stage that computes longest; of equal ones the first."""
    return max(stages, key=lambda one: (one.compute_busy_ns, -one.stage), default=None)


def _pipeline(ranks: Ranks | None, step_ns: int) -> dict[str, FactValue]:
    """Bubble and imbalance of the stages per step."""
    pipeline = ranks.pipeline if ranks else None
    stages = pipeline.stages if pipeline else ()
    slowest = slowest_stage(stages)
    imbalance = pipeline.imbalance_ns if pipeline else None
    return {
        "pipeline_bubble_ns": _mean([one.bubble_ns for one in stages]),
        "pipeline_bubble_share": pipeline.bubble_share if pipeline else None,
        "pipeline_expected_bubble_share": pipeline.expected_share if pipeline else None,
        "stage_imbalance_ns": imbalance,
        "stage_imbalance_share": _share(imbalance, step_ns),
        "stage_even_saves_ns": pipeline.even_saves_ns if pipeline else None,
        "stage_slowest": str(slowest.stage) if slowest else None,
        "pipeline_virtual_saves_ns": pipeline.virtual_saves_ns if pipeline else None,
    }


# --- the capture ------------------------------------------------------------------------------------------------------


def _problems(ranks: Ranks | None) -> dict[str, FactValue]:
    """How many ranks are missing, given twice, uneven in their steps, or could not be analysed."""

    def counted(kind: str) -> int | None:
        return sum(one.count for one in ranks.problems if one.kind == kind) if ranks else None

    return {
        "ranks_missing": counted("missing") if ranks and ranks.world_size is not None else None,
        "ranks_not_captured": _not_captured(ranks) if ranks and ranks.world_size is not None else None,
        "ranks_duplicate": counted("duplicate"),
        "ranks_uneven_steps": counted("steps"),
        "ranks_failed": counted("failed"),
    }


def _not_captured(ranks: Ranks) -> str | None:
    """`ranks 3, 4`: those of the job that were not captured; None where all were."""
    found = next((one for one in ranks.problems if one.kind == "missing"), None)
    if found is None:
        return None
    return f"rank{'s' if found.count > 1 else ''} {rank_list(found.ranks, found.count)}"


def _clocks(ranks: Ranks | None) -> dict[str, FactValue]:
    pairs = ranks.clocks if ranks else ()
    return {
        "clocks_aligned": ranks.clocks_agree if ranks else None,
        "clock_residual_ns": max((max(abs(pair.residual_p5_ns), abs(pair.residual_p95_ns)) for pair in pairs), default=None),
    }


def _link(ranks: Ranks | None) -> dict[str, FactValue]:
    """The group is named only where it is slower than its likes at all."""
    found = slow_link(ranks) if ranks else None
    named = found if found and found.excess_ns else None
    return {
        "slow_link_ns": found.excess_ns if found else None,
        "slow_link_share": found.share if found else None,
        "slow_link_stalled_ns": found.stalled_ns if found else None,
        "slow_link_wider_ns": found.wider_ns or None if found else None,
        "slow_link_exchange": named.exchange if named else None,
        "slow_link_ranks": rank_list(named.ranks) if named else None,
    }
