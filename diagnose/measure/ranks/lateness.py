"""Who keeps the others waiting, how often, and what that costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean, median_low

import polars as pl
from msgspec import Struct, structs

from diagnose.document.ranks import Late, LateCause, Pattern
from diagnose.measure.device import step_mean
from diagnose.measure.ranks.background import Background
from diagnose.measure.ranks.causes import EXPLAINS, cause_of, has_most, launch_ratio, more_work, slow_cpus, slow_in_turn, uneven
from diagnose.measure.ranks.members import Member
from diagnose.measure.ranks.transfers import Arrivals, Transfers, arrivals_of, stalling, waited_for_alone
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import COMM_KINDS, EXPERT_GEMM, CommKind

# All of these are this project's choice.
WORTH = 0.03  # of the step: less waiting behind one rank is not reported
WORTH_ROTATING = 0.05  # likewise for waiting behind nobody in particular
ALWAYS, MOSTLY = 0.8, 0.5  # share of the waiting that is behind one rank
OWN = 0.6  # of the waiting: by so much the late rank's own time must exceed that of its likes, or it is late because it waited elsewhere
MOST_STEPS = 0.7  # of the steps: there it must exceed theirs by half of that at least
EVENED: tuple[LateCause, ...] = ("expert_work", "vision_work", "more_work")  # work of which the late ones keep their share when it is even
TOGETHER = 0.1  # of the longest wait in an exchange: who waits less than that came as late as the last


class _Blame(Struct, frozen=True, kw_only=True):
    """Waiting in one set of ranks: per step by who came last (by place), how often each did, and in which kinds.

    `held`: by a member's place, how long waiting in these exchanges may have held its compute up, ns per step. `near`: exchange (lane,
    ordinal) and place among `members` of each that came last or as late as the last. Of several that come late together the waiting is
    behind the one that does so most often. `of_steps`: by a member's place and step, what the others wait for it on average, ns.
    """

    members: tuple[Member, ...]
    behind: Mapping[int, int]  # by a member's place: mean wait of the others per step
    of_steps: Mapping[int, Mapping[int, int]]
    held: Mapping[int, int]
    lasts: Mapping[int, int]
    near: pl.DataFrame
    noticed: int
    kinds: tuple[CommKind, ...]

    def together(self, place: int) -> set[int]:
        """Places of those that come as late as a member in most of the exchanges to which it comes last, or nearly."""
        local = next(number for number, member in enumerate(self.members) if member.place == place)
        own = self.near.filter(pl.col("place") == local).select(*_EXCHANGE)
        counts = self.near.join(own, on=_EXCHANGE, how="semi").group_by("place").len().iter_rows()
        return {self.members[other].place for other, number in counts if other != local and number >= MOSTLY * own.height}


_EXCHANGE = ("lane", "ordinal")


def late(every: Sequence[Transfers], known: Background) -> tuple[Late, ...]:
    """One entry for each rank that others wait for, and one for those that are late in turn; costliest first."""
    # only where the group's exchanges are known to end together does the shorter duration mean that a rank came later
    firm = [one for one in every if known.clocks.together(part.member for part in one.group.parts)]
    arrivals = arrivals_of(firm)
    blames = list(_blames(firm, known.begun))
    entries = [entry for blame in blames for entry in _late(blame, arrivals, known)]
    if not any(entry.rank is not None for entry in entries):
        entries += [entry for blame in blames for entry in _in_turn(blame, blame.members, sum(blame.behind.values()), known, shown=True)]
        entries = [_of_all_groups(entry, known) for entry in entries] + _slow_stages(known)
    best: dict[int | None, Late] = {}
    for entry in sorted((_of_its_stage(entry, entries, known) for entry in entries), key=lambda entry: (-entry.wait_ns, entry.ranks)):
        best.setdefault(entry.rank, entry)
    return tuple(best.values())


def _blames(every: Sequence[Transfers], begun: Mapping[int, int]) -> Iterator[_Blame]:
    """Waiting by who came last, for each set of ranks that exchange with each other; `begun`: see Background."""
    sets: dict[tuple[int, ...], list[Transfers]] = defaultdict(list)
    for found in every:
        sets[tuple(part.member.place for part in found.group.parts)].append(found)
    for _, group in sorted(sets.items()):
        members = tuple(part.member for part in group[0].group.parts)
        held = _held_up(group, members)
        behind, of_steps, lasts, near = _behind(group, members, held, begun)
        costly = sorted(group, key=lambda one: -int(one.rows["wait"].sum()))
        kinds = tuple(dict.fromkeys(kind for one in costly for kind in COMM_KINDS if kind == one.group.kind and one.rows["last"].any()))
        yield _Blame(
            members=members,
            behind=behind,
            of_steps=of_steps,
            held=held,
            lasts=lasts,
            near=near,
            noticed=sum(lasts.values()),
            kinds=kinds,
        )


def _behind(
    group: Sequence[Transfers], members: tuple[Member, ...], held_up: Mapping[int, int], begun: Mapping[int, int]
) -> tuple[dict[int, int], Mapping[int, Mapping[int, int]], dict[int, int], pl.DataFrame]:
    """By member: how long the others wait (mean ns per step, at most what that held them up), likewise of each step (whatever it held
    up), how often it came last; and who came last or nearly, by exchange.
    """
    table = pl.concat(
        [
            one.rows.select("ordinal", "place", "index", "wait", "last").with_columns(pl.lit(number).alias("lane"))
            for number, one in enumerate(group)
        ]
    )
    noticed = table.filter(pl.col("last").any().over(_EXCHANGE))
    nearly = noticed.filter(pl.col("last") | (pl.col("wait") <= TOGETHER * pl.col("wait").max().over(_EXCHANGE)))
    often = nearly.group_by("place").len("often")
    named = nearly.join(often, on="place").sort(*_EXCHANGE, "often", "place", descending=[False, False, True, False])
    last = named.unique(_EXCHANGE, keep="first", maintain_order=True).select(*_EXCHANGE, pl.col("place").alias("culprit"))
    costs = (
        table.filter(pl.col("index").is_not_null())
        .join(last, on=_EXCHANGE)
        .filter(pl.col("place") != pl.col("culprit"))
        .group_by("culprit", "place", "index")
        .agg(pl.col("wait").sum())
        .sort("culprit", "place", "index")
    )
    steps, others = _steps_matched(group, table, begun), max(1, len(members) - 1)
    sums: dict[int, float] = defaultdict(float)
    of_steps: dict[int, Counter[int]] = defaultdict(Counter)
    for culprit, place, step, waited in costs.iter_rows():
        late = members[culprit].place
        if step not in (begun.get(late), begun.get(members[place].place)):
            sums[late] += waited / steps[place] / others
            of_steps[late][step] += waited // others
    behind = {
        late: min(round(sums[late]), median_low([ns for place, ns in held_up.items() if place != late]))
        for late in (member.place for member in members)
    }
    counts = dict(table.filter("last").group_by("place").len().iter_rows())
    lasts = {member.place: counts.get(place, 0) for place, member in enumerate(members)}
    return behind, of_steps, lasts, nearly.select(*_EXCHANGE, "place")


def _held_up(group: Sequence[Transfers], members: Sequence[Member]) -> dict[int, int]:
    """By member: how long waiting in a set's exchanges may have held its compute up, ns per step (mean, as the waiting is).

    That is all transport less what surely other kinds did, and less the transfer that it was stalled on here. Waiting beside compute costs
    nothing: a reduction of gradients that overlaps backward, or an exchange beside another micro-batch, waits there for the late rank, too.
    """
    kinds = {one.group.kind for one in group} | {None}
    moving, held = stalling(group), {}
    for member in members:
        rows = [row for row in member.device.listed.blocking if row["role"] == "transport" and row["kind"] not in kinds]
        moved = sum(moving.get((member.place, step.index or 0), 0) for step in member.steps)
        blocked, inferred = (step_mean(member.device.budget.per_step[name]) for name in ("blocking_transport_ns", "blocking_inferred_ns"))
        others = max(0, sum(row["blocking_ns"] for row in rows) - inferred)  # of which kind, that may be wrong
        held[member.place] = max(0, blocked - others - moved // len(member.steps))
    return held


def _steps_matched(group: Sequence[Transfers], table: pl.DataFrame, begun: Mapping[int, int]) -> list[float]:
    """How many of each member's steps its matched exchanges make up: where another capture covers it only in part, so many are compared.

    A step that began late (`begun`) is none of them.
    """
    matched = dict(table.filter(pl.col("index").is_not_null()).group_by("place").len().iter_rows())
    found = []
    for place, part in enumerate(group[0].group.parts):
        every = sum(one.group.parts[place].rows["index"].count() for one in group)
        whole = sum(step.index != begun.get(part.member.place) for step in part.member.steps)
        found.append(max(1.0, whole * min(1.0, matched.get(place, 0) / every)) if every else 1.0)
    return found


def _late(blame: _Blame, arrivals: Arrivals, known: Background) -> Iterator[Late]:
    """The entries for one set of ranks: who is late, and what of the waiting is for ranks that have more work in turn.

    Nobody is where nobody waits long enough, or whoever comes last is itself held up elsewhere.
    """
    step = median_low([member.median.window_ns for member in blame.members])
    total = sum(blame.behind.values())
    if not total or not step:
        return
    culprit = max(blame.behind, key=lambda place: (blame.behind[place], -place))
    others, wait = [one for one in blame.members if one.place != culprit], blame.behind[culprit]
    if wait < MOSTLY * total:
        yield from _in_turn(blame, blame.members, total, known)
    elif (
        wait >= WORTH * step
        and culprit not in known.launchless
        and (
            (steadily := _slower(known, culprit, others, wait)) or _slower_at_times(known, culprit, others, blame.of_steps.get(culprit, {}))
        )
        and (_slow_itself(known, culprit) >= OWN * wait or _held_up_unseen(known, culprit, others) < OWN * wait)
    ):
        named = _straggler(blame, culprit, total, arrivals, known)
        if not steadily:  # it waits beside compute too, which steps that differ do not show in medians
            wait = min(named.wait_ns, max(known.own[one.place].lost_mean_ns for one in others))
            named = structs.replace(named, wait_ns=wait, saves_ns=None if named.saves_ns is None else min(named.saves_ns, wait))
        if (turns := _same_in_turn(blame, named, total, known)) is not None:
            yield turns
            return
        yield named
        rest = total - blame.behind[culprit]
        left = total - named.wait_ns
        second = _second(blame, named, rest, known)
        if second is not None:
            another = _straggler(blame, second, rest, arrivals, known, beside=named.rank)
            yield another
            left -= another.wait_ns
        yield from _in_turn(blame, others, left, known, shown=True)


def _same_in_turn(blame: _Blame, named: Late, total: int, known: Background) -> Late | None:
    """The entry of all ranks in place of the straggler's, where the others take turns by the same uneven work, and that costs more.

    Then it has most of that work by chance: even work is one cure for all of the waiting. None where it stands out, unless it has
    most in some steps alone, and there another has as much: then hardly anything is won where it has less.
    """
    others = [one for one in blame.members if one.rank.rank != named.rank]
    if named.cause not in EVENED or named.alike:
        return None
    beside = next(_in_turn(blame, others, total - named.wait_ns, known, shown=True), None)
    if beside is None or (beside.cause, beside.bucket) != (named.cause, named.bucket) or beside.wait_ns <= named.wait_ns:
        return None
    culprit = next(one for one in blame.members if one.rank.rank == named.rank)
    alone = named.wait_ns >= WORTH * median_low([member.median.window_ns for member in blame.members])
    alone |= has_most(culprit, others, named.cause, known.buckets)
    return next(_in_turn(blame, blame.members, total, known, shown=True, of=None if alone else named), None)


def _second(blame: _Blame, first: Late, rest: int, known: Background) -> int | None:
    """Of a set of ranks the place of another that is late by a cause of its own, beside the first; None: there is none.

    `rest`: the waiting (ns per step) that is not for the first.
    """
    named = {first.rank, *first.alike}
    left = [one for one in blame.members if one.rank.rank not in named]
    step = median_low([member.median.window_ns for member in blame.members])
    place = max((one.place for one in left), key=lambda place: (blame.behind[place], -place))
    others, wait = [one for one in left if one.place != place], blame.behind[place]
    if not others or place in known.launchless or wait < max(WORTH * step, MOSTLY * rest):
        return None
    likes = [one for one in others if one.place in known.likes(place, others)]
    if not likes or not _slower(known, place, others, wait) or _held_up_unseen(known, place, others) >= OWN * wait:
        return None
    return place if cause_of(known.members[place], likes, wait, known)[0] not in {"unknown", first.cause} else None


def _straggler(blame: _Blame, culprit: int, total: int, arrivals: Arrivals, known: Background, *, beside: int | None = None) -> Late:
    """The entry of the rank that others wait for most (a place); `total` is all waiting in its set of ranks, that for rank `beside` left
    aside.
    """
    share = blame.behind[culprit] / total
    member = next(one for one in blame.members if one.place == culprit)
    others = [one for one in blame.members if one.place != culprit]
    together = blame.together(culprit)
    with_it = [one for one in others if one.place in together and one.rank.rank != beside]
    cause, bucket, longer, words = cause_of(member, others, blame.behind[culprit], known)
    slow = slow_cpus((member, *others)) if cause == "slow_host" else known.slow.keys()
    fellows = {one.place for one in others if culprit in slow and one.place in slow} | {one.place for one in with_it}
    late_ones = {culprit, *fellows} if len(fellows) < len(others) else {culprit}
    waited = sum(blame.behind[place] for place in late_ones) * len(others) // (len(blame.members) - len(late_ones))
    held = median_low([ns for place, ns in blame.held.items() if place not in late_ones])
    wait = min(waited, held, waited_for_alone(arrivals, late_ones))
    pattern: Pattern = "always" if share >= ALWAYS else "mostly"
    if cause == "slow_gpu":
        early = [one for one in others if one.place not in late_ones]
        wait = min(wait, max(more_work(one, early) for one in (member, *others) if one.place in late_ones) or wait)
    times = blame.lasts[culprit] / blame.noticed
    aside = "" if beside is None else f" beside that for rank {beside}"
    much = f"{share:.1%} of the waiting{aside} is for it".replace("%", " %")
    alike = [one for one in others if one.place in late_ones and _late_alike(one, blame, late_ones, cause, known)]
    like, keep = max(len(blame.members), len(known.likes(culprit, others)) + 1), len(late_ones)  # share the work, once it is even
    if (own := _sharing(member, cause, known)) is not None:
        like, keep = own, min(len(alike) + 1, own)
    also = _ranks("; as late as it in most of them: rank", with_it)
    also += _ranks("; as slow as it, and late with it: rank", [one for one in others if one.place in fellows and one not in with_it])
    often = f"{times:.1%} of the {blame.noticed} collectives with notable waiting".replace("%", " %")
    return Late(
        kinds=blame.kinds,
        ranks=tuple(one.rank.rank for one in blame.members),
        rank=member.rank.rank,
        pattern=pattern,
        last_share=round(times, 4),
        wait_ns=wait,
        cause=cause,
        bucket=bucket,
        longer_ns=longer,
        evidence=f"Rank {member.rank.rank} comes last in {often}, and {much}{also}; {words}.",
        status="inferred",
        alike=tuple(one.rank.rank for one in alike),
        saves_ns=min(wait, waited * (like - keep) // like) if cause in EVENED else _beyond_captured(culprit, wait, known),
        launch_ratio=launch_ratio(member, [one for one in others if one.place not in late_ones]),
    )


def _sharing(member: Member, cause: LateCause, known: Background) -> int | None:
    """How many ranks share a straggler's work once it is even, where that is told: tokens go to the experts of its own group alone."""
    if cause != "expert_work":
        return None
    return next((len(one.ranks) for one in known.experts if member.rank.rank in one.ranks), None)


def _beyond_captured(culprit: int, wait: int, known: Background) -> int | None:
    """What a slow device may cost beyond what captured ranks wait for it: all that its kernels take longer (ns per step).

    Where its other groups were captured in part, ranks of which nothing is known wait for it too, and those that were captured wait for
    these. None where all ranks were captured, or where the waiting that is known is no less.
    """
    longer = _slow_itself(known, culprit)
    return None if known.transfers is None or longer <= wait else longer


def _late_alike(member: Member, blame: _Blame, late_ones: Collection[int], cause: LateCause, known: Background) -> bool:
    """Whether one that comes late with the straggler has its own reason for that, and the same, rather than waiting for it elsewhere."""
    rest = [one for one in blame.members if one.place not in late_ones]
    wait = max(blame.behind.values())
    return _slower(known, member.place, rest, wait) and cause_of(member, rest, wait, known)[0] == cause


def _ranks(words: str, members: Sequence[Member]) -> str:
    """Words before the numbers of ranks; nothing for none."""
    return f"{words} {', '.join(str(one.rank.rank) for one in members)}" if members else ""


def _slow_stages(known: Background) -> list[Late]:
    """Slow devices of a pipeline, whose sends and receives name no other end: the rank with the longest own time, if its device is slow.

    Where all of its stage are as slow they are named with it.

    What the step takes longer for it is at most by how much its own time exceeds the longest of all others.
    """
    members = [member for member in known.members if any(member.bubble)]
    if len(members) < 2:
        return []
    culprit, *rest = sorted(members, key=lambda member: (-known.own[member.place].median_ns, member.place))
    mates = [member for member in rest if known.alike[member.place] == known.alike[culprit.place]]
    slow = [member for member in mates if member.place in known.slow]
    others = [member for member in rest if member not in slow]
    if culprit.place not in known.slow or not others or not (mates or known.schedule):
        return []
    longer = known.own[culprit.place].median_ns - known.own[others[0].place].median_ns
    if longer < WORTH * culprit.median.window_ns:
        return []
    cause, bucket, above, words = cause_of(culprit, [member for member in mates if member in others] or others, longer, known)
    return [
        Late(
            kinds=("pipeline",),
            ranks=tuple(sorted(member.rank.rank for member in members)),
            rank=culprit.rank.rank,
            pattern="always",
            last_share=1.0,
            wait_ns=longer,
            cause=cause,
            bucket=bucket,
            longer_ns=above,
            evidence=(
                f"Rank {culprit.rank.rank} works longest without waiting for others, {longer / 1e6:.3f} ms more than the next of its "
                f"pipelines; {words}{_ranks('; as slow as it: rank', slow)}."
            ),
            status="inferred",
            alike=tuple(sorted(member.rank.rank for member in slow)),
        )
    ]


def _in_turn(
    blame: _Blame, members: Sequence[Member], total: int, known: Background, *, shown: bool = False, of: Late | None = None
) -> Iterator[Late]:
    """The entry for a set of ranks of which another is late each time, and costs the others `total`; none where that is little.

    `members`: those among which work may fall unevenly; with `shown` there is no entry unless it does, or unless `of`, the entry of one of
    them, has told what. Evened out, the step is as long as
    the mean of what all do themselves, so no more than the mean of what waiting holds them up is won; and of what the others wait for the
    longest its own share of the evened work is none of it. The mean is over the longest too, which holds its share already.
    """
    held = int(fmean(blame.held.values()))
    waited = total if of is None else max(total, sum(map(Counter.total, map(Counter, blame.of_steps.values()))) // len(members[0].steps))
    evened = min(held, waited * (len(members) - 1) // len(members))
    total = min(total, held)
    if total < WORTH_ROTATING * median_low([member.median.window_ns for member in blame.members]):
        return
    ranks = tuple(one.rank.rank for one in blame.members)
    lost = next((entry.lost_ns for entry in known.experts if entry.ranks == ranks), 0)
    by_layer = lost >= EXPLAINS * total
    slow, whose = slow_in_turn(members)
    found: tuple[LateCause, str | None, int]
    if slow >= EXPLAINS * total:
        found = ("slow_gpu", None, slow)
    else:
        found = ("expert_work", EXPERT_GEMM, lost) if by_layer else uneven(members, known.buckets)
    if of is not None and found[2] < EXPLAINS * total:
        found = (of.cause, of.bucket, max(total, of.longer_ns or 0))
    cause, bucket, longer = found
    told = longer >= EXPLAINS * total
    if shown and not told:
        return
    whose = whose if cause == "slow_gpu" else None
    most = max((blame.lasts[member.place] for member in ([whose] if whose else members)), default=0) / max(1, blame.noticed)
    often = f"{100 * most:.1f} % of {blame.noticed}"
    turns = "Another rank comes last" if len(members) == len(blame.members) else "Beside the straggler another rank is late"
    turns += f" from one collective to the next (the one that does so most often, in {often})"
    words = "no rank does so most of the time"
    if whose is not None:
        turns = f"Rank {whose.rank.rank} comes last in {often} collectives with notable waiting"
    if cause == "slow_gpu":
        words = f"in single steps kernels of one shape take longer than in others, {slow / 1e6:.3f} ms more on the slowest than on the mean"
    elif by_layer:
        words = "the experts' work differs from layer to layer"
    elif told and bucket is not None:
        words = f"their work in {bucket.replace('_', ' ')} is uneven: the longest of a step takes {longer / 1e6:.3f} ms more than the mean"
    yield Late(
        kinds=blame.kinds,
        ranks=ranks,
        rank=whose.rank.rank if whose else None,
        pattern="mostly" if whose else "rotating",
        last_share=round(most, 4),
        wait_ns=total,
        cause=cause if told else "unknown",
        bucket=bucket if told else None,
        longer_ns=longer if told else None,
        evidence=f"{turns}; {words}.",
        status="inferred",
        saves_ns=evened if told and cause in EVENED else None,
    )


def _of_all_groups(entry: Late, known: Background) -> Late:
    """What ranks that are late in turn cost, in all groups: where nobody is late always, that is what their members wait on average."""
    if entry.rank is not None:
        return entry
    members = [member for member in known.members if member.rank.rank in entry.ranks]
    lost = [ns - bubble for member in members for ns, bubble in zip(known.own[member.place].lost, member.bubble, strict=True)]
    mean = sum(lost) // len(lost)
    saves = None if entry.saves_ns is None else max(entry.saves_ns, mean)
    return structs.replace(entry, wait_ns=max(entry.wait_ns, mean), saves_ns=saves)


def _of_its_stage(entry: Late, entries: Sequence[Late], known: Background) -> Late:
    """The entry with what the step could win of a straggler in one pipeline stage.

    By the schedule, with the own times of all stages as they are and as they were without those that are late by the same cause: another
    stage may set the pace then. Where the schedule is not known, or another, nothing is taken off. Without stages ranks that are late by
    another cause set the pace: no step is shorter than their own time.
    """
    if entry.rank is None:
        return entry
    cures: dict[int, int] = {}
    for one in entries:
        if one.rank is not None and one.cause == entry.cause:
            cures |= {rank: max(_cure(one, rank, known), cures.get(rank, 0)) for rank in (one.rank, *one.alike)}
    own = {member.rank.rank: known.own[member.place].median_ns for member in known.members}
    cured = {rank: ns - cures.get(rank, 0) for rank, ns in own.items()}
    late_ones = {rank for one in entries if one.rank is not None for rank in (one.rank, *one.alike)}
    if known.schedule is None:
        cost, left = entry.wait_ns if entry.saves_ns is None else entry.saves_ns, _left_by(entry.rank, late_ones - cures.keys(), known)
        return entry if left is None or left >= cost else structs.replace(entry, saves_ns=left)
    now = known.schedule.paces(own, late_ones)
    saves = None if known.schedule.contradicted(now) else known.schedule.saves(now, known.schedule.paces(cured, late_ones))
    return entry if saves is None else structs.replace(entry, saves_ns=min(saves, sum(cures.values())))


def _left_by(rank: int, others: Collection[int], known: Background) -> int | None:
    """How much longer a rank's step is than those that are late by another cause would take, waiting for nobody (ns), in all shared steps
    together.

    Means on both sides, as steps differ; None without such others.
    """
    longest = max((known.own[member.place].unhindered_mean_ns for member in known.members if member.rank.rank in others), default=None)
    step = next(known.own[member.place].step_mean_ns for member in known.members if member.rank.rank == rank)
    return None if longest is None else max(0, step - longest)


def _cure(entry: Late, rank: int, known: Background) -> int:
    """What a late rank would take less without the cause.

    All that a slow device computes longer; of work that is evened out, what the rank does itself beyond its likes, but for its own share
    of that. Otherwise, and at least, what the others wait for it in one set of ranks.
    """
    member = next(one for one in known.members if one.rank.rank == rank)
    won = entry.wait_ns if entry.saves_ns is None else entry.saves_ns
    if entry.cause == "slow_gpu" and member.place in known.slow:
        return known.slow[member.place].longer_ns(member.median.compute_busy_ns)
    likes = known.likes(member.place, ())
    if entry.cause not in EVENED or not likes:
        return won
    excess = known.own[member.place].median_ns - median_low([known.own[place].median_ns for place in likes])
    return max(won, excess * (len(likes) - len(entry.alike)) // (len(likes) + 1))


def _slower(known: Background, culprit: int, others: Sequence[Member], wait: int) -> bool:
    """Whether a rank's own time exceeds that of its likes by about what the others wait, in most steps.

    If not, it comes last because it waited elsewhere, or by chance. All its likes count, not only those that wait: within one set of ranks
    that end their steps together, whoever waits least has the most own time. Steps of ranks need not begin together (what makes one late
    may lie before its step, and the others wait for it within theirs): so it is enough that it waits by so much less than they do.
    """
    mine = known.own[culprit]
    likes = [known.own[place] for place in known.likes(culprit, others)]
    above = _over(mine.in_shared(mine.time), [one.in_shared(one.time) for one in likes])
    less = [-ns for ns in _over(mine.in_shared(mine.lost), [one.in_shared(one.lost) for one in likes])]
    return any(in_most_steps(excess, wait) for excess in (above, less))


def _slower_at_times(known: Background, culprit: int, others: Sequence[Member], waited: Mapping[int, int]) -> bool:
    """Whether a rank's own time exceeds that of its likes just where the others wait for it: a loader that stalls every second step.

    Of `waited`, what the others wait for it by step (ns), its own time has to explain as much as in `_slower`; several steps have to,
    since once is chance.
    """
    mine = known.own[culprit]
    likes = [known.own[place] for place in known.likes(culprit, others)]
    above = _over(mine.in_shared(mine.time), [one.in_shared(one.time) for one in likes])
    steps = mine.in_shared([step.index or 0 for step in known.members[culprit].steps])
    explained = [min(excess, waited.get(step, 0)) for step, excess in zip(steps, above, strict=False)]
    worth = [ns for ns in explained if ns >= WORTH * mine.step_mean_ns]
    return len(worth) > 1 and sum(worth) >= OWN * sum(waited.values())


def _slow_itself(known: Background, place: int) -> int:
    """What a rank's device, being slow, takes longer for its work, ns per step; 0 of one that is not: that is no waiting for anybody."""
    slowness = known.slow.get(place)
    return 0 if slowness is None else slowness.longer_ns(known.members[place].median.compute_busy_ns)


def _held_up_unseen(known: Background, culprit: int, others: Sequence[Member]) -> int:
    """By how much more than its likes transport that no other capture shows held a rank up, ns per step: there it may wait for others."""
    unseen = {place: _unseen(place, known) for place in (culprit, *known.likes(culprit, others))}
    return unseen.pop(culprit) - int(median_low(list(unseen.values())))


def _unseen(place: int, known: Background) -> int:
    """How long transport held a rank up beside the waiting and the transfers that are known of matched exchanges, ns per step."""
    held = integer_median(step.blocking_transport_ns for step in known.members[place].steps)
    return max(0, held - integer_median(known.own[place].lost) - known.transfer(place))


def _over(mine: Sequence[int], theirs: Sequence[Sequence[int]]) -> list[int]:
    """By step, how much more than the median of the others."""
    steps = min(len(mine), *(len(one) for one in theirs))
    return [mine[step] - median_low([one[step] for one in theirs]) for step in range(steps)]


def in_most_steps(excess: Sequence[int], wait: int) -> bool:
    """Whether it makes up about what the others wait, in most steps."""
    return integer_median(excess) >= OWN * wait and sum(one >= OWN * wait / 2 for one in excess) >= MOST_STEPS * len(excess)
