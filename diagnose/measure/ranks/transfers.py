"""Transfer and wait of matched exchanges: the shortest participant's duration is an instance's transfer, the rest of each is wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from statistics import median_low

import polars as pl
from msgspec import Struct, structs

from diagnose.document.ranks import MatchedExchange, RankWait
from diagnose.knowledge.exchanges import bus_factor
from diagnose.measure.ranks.matching import ALONE, Matched, Unmatched
from diagnose.measure.ranks.members import Member
from diagnose.model.intervals import lasting, merge
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import COMM_KINDS, CommKind

NOTICEABLE_NS = 10_000  # an instance in which nobody waits longer has no last rank; this project's choice
NOTICEABLE_SHARE = 0.05  # of the transfer; likewise
_NO_SIZES = "no bandwidth: the trace does not record the sizes of these collectives"
_NOT_ALL = "no bandwidth: not all members were captured, so that the transfer time may hold waiting"


class Transfers(Struct, frozen=True, kw_only=True, dict=True):
    """One matched group with its times.

    `rows`: those of its instances, with duration, transfer and wait in ns, moving (of the transfer what compute was stalled on), and last
    (bool): this member came last, and another waited noticeably. `sums`: by (place in the group, step of that member): transfer and wait.
    `lasts`: by place, how often it came last. `covered`: by (place, that member's step), how many of its instances are matched, and how
    many there are.
    """

    group: Matched
    rows: pl.DataFrame
    sums: Mapping[tuple[int, int], tuple[int, int]]
    lasts: Mapping[int, int]
    covered: Mapping[tuple[int, int], tuple[int, int]]

    @cached_property
    def covered_in_all(self) -> Mapping[int, tuple[int, int]]:
        """By place: how many of the member's instances are matched in all its steps, and how many there are."""
        sums: dict[int, tuple[int, int]] = {}
        for (place, _), (matched, number) in self.covered.items():
            held, every = sums.get(place, (0, 0))
            sums[place] = held + matched, every + number
        return sums

    @cached_property
    def by_member(self) -> pl.DataFrame:
        """`rows` with member, the place among all members."""
        places = {place: part.member.place for place, part in enumerate(self.group.parts)}
        return self.rows.with_columns(pl.col("place").replace_strict(places, return_dtype=pl.Int32).alias("member"))

    def of_steps(self, place: int) -> list[tuple[int, int]]:
        """Transfer and wait of one member in each of its steps, those aside that other captures do not cover."""
        return [self.sums.get((place, step), (0, 0)) for step in self.shared_steps(place)]

    def shared_steps(self, place: int) -> list[int]:
        """Those steps of a member that other captures cover too; all of them where none is."""
        steps = [step.index for step in self.group.parts[place].member.steps if step.index is not None]
        return [step for step in steps if _shared(self.covered.get((place, step), (0, 0)))] or steps


def split_exchanges(group: Matched, ahead: Sequence[int] | None = None) -> Transfers:
    """Split every instance of a group.

    `ahead`: by how much each member's clock is, where members do not end together: then each one's transfer is what it takes once the last
    has come.
    """
    rows = group.instances.with_columns(lasting.alias("duration"), lasting.min().over("ordinal").alias("transfer"))
    if ahead is not None:
        moved = pl.col("place").replace_strict(dict(enumerate(ahead)), return_dtype=pl.Int64)
        since = (pl.col("start") - moved).max().over("ordinal")  # the last has come
        rows = rows.with_columns((pl.col("end") - moved - since).clip(0, pl.col("duration")).alias("transfer"))
    rows = rows.with_columns(
        (pl.col("duration") - pl.col("transfer")).alias("wait"), pl.min_horizontal("held_ns", "transfer").alias("moving")
    )
    least = (pl.col("transfer").min().over("ordinal") * NOTICEABLE_SHARE).cast(pl.Int64)
    noticed = pl.col("wait").max().over("ordinal") > pl.max_horizontal(pl.lit(NOTICEABLE_NS), least)
    first_of_last = pl.col("place").filter(pl.col("wait") == pl.col("wait").min()).first().over("ordinal") == pl.col("place")
    rows = rows.with_columns((noticed & first_of_last).alias("last"), _kept(group, _step(rows)))
    summed = rows.filter(pl.col("index").is_not_null()).group_by("place", "index").agg(pl.col("transfer", "wait").sum())
    return Transfers(
        group=group,
        rows=rows,
        sums={(place, index): (transfer, wait) for place, index, transfer, wait in summed.iter_rows()},
        lasts=dict(rows.group_by("place").agg(pl.col("last").sum()).iter_rows()),
        covered=_covered(group),
    )


def _covered(group: Matched) -> dict[tuple[int, int], tuple[int, int]]:
    """By (place, that member's step): how many of its instances are matched, and how many there are."""
    matched = group.instances.drop_nulls("index").group_by("place", "index").len()
    met = {(place, index): number for place, index, number in matched.iter_rows()}
    every = {
        (place, index): number
        for place, part in enumerate(group.parts)
        for index, number in Counter(part.rows["index"].to_list()).items()
        if index is not None
    }
    return {key: (met.get(key, 0), number) for key, number in every.items()}


def _shared(covered: tuple[int, int]) -> bool:
    """Whether most of a step's instances are matched: of a step that another capture does not hold nothing is known of waiting."""
    matched, every = covered
    return 2 * matched >= every


def _step(rows: pl.DataFrame) -> pl.Expr:
    """The step of each instance, alike on all members that number theirs alike; at the border of two steps it counts to the later one."""
    steps = rows.group_by("ordinal").agg(pl.col("index").drop_nulls().n_unique().alias("n"), pl.col("index").count().alias("told"))
    alike = steps.filter((pl.col("n") == 1) & (pl.col("told") > 1)).height
    if 2 * alike < steps.filter(pl.col("told") > 1).height:
        return pl.col("index")
    return pl.col("index").max().over("ordinal")


def _kept(group: Matched, index: pl.Expr) -> pl.Expr:
    """The step, or null on members whose own kept steps do not reach there: their capture's start is no step of theirs to wait in."""
    reach = [[step.index or 0 for step in part.member.steps] for part in group.parts]
    if len({(min(steps), max(steps)) for steps in reach if steps}) < 2:
        return index
    first, last = (
        pl.col("place").replace_strict({place: side(steps, default=0) for place, steps in enumerate(reach)}, return_dtype=pl.Int64)
        for side in (min, max)
    )
    return pl.when(index.is_between(first, last)).then(index).alias("index")


def record(found: Transfers) -> MatchedExchange:
    """The group for the document; the link that it could reach is told where the platform is known."""
    group = found.group
    kind: CommKind = next((known for known in COMM_KINDS if known == group.kind), "other")
    middle = [medians(found, place) for place in range(len(group.parts))]
    noticed = sum(found.lasts.values())
    algorithm, bus, note = _bandwidth(found)
    moving = stalling([found])
    return MatchedExchange(
        kind=kind,
        backend=group.backend,
        operation=group.operation,
        by=group.by,
        ranks=group.ranks,
        size=group.size,
        matched=group.matched,
        unmatched=group.seen - group.matched,
        transfer_ns=median_low(transfer for transfer, _ in middle),
        wait_ns=sum(wait for _, wait in middle) // len(middle),
        waits=tuple(
            RankWait(
                rank=part.member.rank.rank,
                wait_ns=middle[place][1],
                last_share=round(found.lasts.get(place, 0) / noticed, 6) if noticed else 0.0,
            )
            for place, part in enumerate(group.parts)
        ),
        stalled_ns=median_low(_stalled(found, place, moving) for place in range(len(group.parts))),
        algorithm_gb_s=algorithm,
        bus_gb_s=bus,
        note=note,
    )


def medians(found: Transfers, place: int) -> tuple[int, int]:
    """Transfer and wait per step of one member."""
    steps = found.of_steps(place)
    return integer_median(transfer for transfer, _ in steps), integer_median(wait for _, wait in steps)


def _stalled(found: Transfers, place: int, moving: Mapping[tuple[int, int], int]) -> int:
    """Of one member's transfer what its compute was stalled on, ns per step; `moving`: by (member's place, step)."""
    member = found.group.parts[place].member.place
    return integer_median(moving.get((member, step), 0) for step in found.shared_steps(place))


def _bandwidth(found: Transfers) -> tuple[float | None, float | None, str]:
    """Algorithm and bus bandwidth (GB/s) over all matched instances, or why there is none; of an all-to-all's sizes the largest counts."""
    group = found.group
    factor = bus_factor(group.shape, group.size or 0)
    if factor is None:
        return None, None, ""
    if not group.whole:
        return None, None, _NOT_ALL
    one = found.rows.group_by("ordinal").agg(pl.col("bytes").max(), pl.col("bytes").null_count().alias("unknown"), pl.col("transfer").max())
    if one["unknown"].sum() or not one["transfer"].sum():
        return None, None, _NO_SIZES
    algorithm = float(one["bytes"].sum()) / float(one["transfer"].sum())
    return round(algorithm, 3), round(algorithm * factor, 3), ""


# ------------------------------------------------------------------------------------------------ by member


class OwnTimes(Struct, frozen=True, kw_only=True):
    """One member's waiting, transfer and own time by step. `matched`: some of its exchanges were.

    Own time is the step less the waiting for others: for other pipeline stages, and in matched exchanges as far as that can have held
    compute up, which their transfer did too; `lost` is that waiting, and `host_limited` the share of it in whose place the host would be
    late. `shared`: the steps that all captures of its exchanges hold; of others nothing is known of waiting.
    """

    matched: bool
    shared: tuple[bool, ...]
    wait: tuple[int, ...]
    transfer: tuple[int, ...]
    time: tuple[int, ...]
    lost: tuple[int, ...]
    host_limited: float = 0.0

    def in_shared(self, figures: Sequence[int]) -> list[int]:
        """Those of shared steps."""
        return [figure for figure, shared in zip(figures, self.shared, strict=True) if shared]

    @property
    def median_ns(self) -> int:
        """Own time per step."""
        return integer_median(self.in_shared(self.time))

    @property
    def mean_ns(self) -> int:
        """Own time per step, the mean: what single steps take longer counts."""
        told = self.in_shared(self.time)
        return sum(told) // len(told) if told else 0

    @property
    def step_mean_ns(self) -> int:
        """Length of a step, waiting for others with it, the mean."""
        return self.mean_ns + self.lost_mean_ns

    @property
    def lost_mean_ns(self) -> int:
        """Waiting for others that can have held compute up, per step, the mean."""
        lost = self.in_shared(self.lost)
        return sum(lost) // len(lost) if lost else 0

    @property
    def unhindered_mean_ns(self) -> int:
        """What a step would take if it waited for nobody, the mean: where the host is late then, that holds compute up in its place."""
        return self.mean_ns + round(self.lost_mean_ns * self.host_limited)

    @property
    def wait_ns(self) -> int:
        """Waiting per step."""
        return integer_median(self.in_shared(self.wait))

    @property
    def transfer_ns(self) -> int:
        """Transfer per step."""
        return integer_median(self.in_shared(self.transfer))


def own_times(members: Sequence[Member], every: Sequence[Transfers]) -> Mapping[int, OwnTimes]:
    """By place: a member's own times over all its groups. Waiting comes first in an exchange, then transfer; what overlaps counts once."""
    rows = [
        found.by_member.filter(pl.col("index").is_not_null()).select(
            "member", "index", "start", (pl.col("start") + pl.col("wait")).alias("middle"), "end"
        )
        for found in every
    ]
    held = stalling(every)
    waited = unions(rows, "start", "middle")
    moved = unions(rows, "middle", "end")
    matched = {part.member.place for found in every for part in found.group.parts}
    shared = _shared_steps(every)
    limited = _host_limited(members, every)
    return {
        member.place: structs.replace(
            _own_times(member, waited, moved, held, shared.get(member.place, {}), matched=member.place in matched),
            host_limited=limited.get(member.place, 0.0),
        )
        for member in members
    }


def _host_limited(members: Sequence[Member], every: Sequence[Transfers]) -> Mapping[int, float]:
    """By place: of a member's waiting that held compute up the share in whose place its host would be late."""
    length = pl.min_horizontal("wait", pl.col("held_ns") - pl.col("moving"))
    rows = [
        found.by_member.filter(pl.col("index").is_not_null()).select("member", "start", (pl.col("start") + length).alias("end"))
        for found in every
    ]
    spans = merge(pl.concat(rows), ["member"]).partition_by("member", as_dict=True) if rows else {}
    return {
        member.place: member.device.leads.limited_share(
            spans[member.place,].select(pl.col("start", "end") - member.start_unix_ns),  # its trace's own zero, as its launches have
            member.device.steps.frame,
        )
        for member in members
        if (member.place,) in spans
    }


def stalling(every: Sequence[Transfers]) -> Mapping[tuple[int, int], int]:
    """By (member's place, step): transfer in these groups that its compute was stalled on, ns."""
    sums: Counter[tuple[int, int]] = Counter()
    for found in every:
        inside = found.by_member.filter(pl.col("index").is_not_null()).group_by("member", "index").agg(pl.col("moving").sum())
        sums.update({(member, index): ns for member, index, ns in inside.iter_rows()})
    return sums


def _shared_steps(every: Sequence[Transfers]) -> dict[int, dict[int, bool]]:
    """By a member's place and step, whether most of its instances in groups with others are matched."""
    sums: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for found in every:
        for (place, step), (matched, number) in found.covered.items():
            own = sums[found.group.parts[place].member.place]
            before = own.get(step, (0, 0))
            own[step] = (before[0] + matched, before[1] + number)
    return {place: {step: _shared(covered) for step, covered in own.items()} for place, own in sums.items()}


def unions(rows: Sequence[pl.DataFrame], start: str, end: str) -> dict[tuple[int, int], int]:
    """By (member, step): the length of the union of the intervals between two columns."""
    if not rows:
        return {}
    ordered = pl.concat(rows).select("member", "index", pl.col(start).alias("a"), pl.col(end).alias("b")).sort("member", "index", "a")
    reach = pl.col("b").cum_max().shift(1).over("member", "index")
    new = (pl.col("b") - pl.max_horizontal("a", reach)).clip(0, None)
    summed = ordered.with_columns(new.alias("new")).group_by("member", "index").agg(pl.col("new").sum())
    return {(member, index): ns for member, index, ns in summed.iter_rows()}


def _own_times(
    member: Member,
    waited: Mapping[tuple[int, int], int],
    moved: Mapping[tuple[int, int], int],
    stalled: Mapping[tuple[int, int], int],
    shared: Mapping[int, bool],
    *,
    matched: bool,
) -> OwnTimes:
    """`waited`, `moved`, `stalled`: waiting, transfer, and what of it compute was stalled on (ns), by member's place and step.

    `shared`: by step; all are where none is.
    """
    steps = [step.index or 0 for step in member.steps]
    wait = tuple(waited.get((member.place, step), 0) for step in steps)
    lost = tuple(
        bubble + min(ns, max(0, step.blocking_transport_ns - bubble - stalled.get((member.place, index), 0)))
        for step, index, bubble, ns in zip(member.steps, steps, member.bubble, wait, strict=True)
    )
    held = tuple(shared.get(step, True) for step in steps)
    return OwnTimes(
        matched=matched,
        shared=held if any(held) else (True,) * len(held),
        wait=wait,
        transfer=tuple(moved.get((member.place, step), 0) for step in steps),
        time=tuple(step.window_ns - ns for step, ns in zip(member.steps, lost, strict=True)),
        lost=lost,
    )


def left_alone(unmatched: Sequence[Unmatched]) -> tuple[str, ...]:
    """One sentence for each reason why exchanges were not matched."""
    counts: dict[tuple[str, str], tuple[int, set[int]]] = {}
    for one in unmatched:
        kind, rank = one.part.lane.kind, one.part.member.rank.rank
        number, ranks = counts.get((kind, one.why), (0, set()))
        counts[kind, one.why] = number + one.part.rows.height, ranks | {rank}
    return tuple(
        f"{number} {kind} exchange{'s' if number != 1 else ''} on {len(ranks)} rank{'s' if len(ranks) != 1 else ''} "
        f"{'are' if number != 1 else 'is'} not matched: {why}."
        for (kind, why), (number, ranks) in sorted(counts.items(), key=lambda item: (item[0][1] == ALONE, -item[1][0], item[0]))
    )


# --- when ranks came to their exchanges, and for how long all others waited there for some of them --------------------


class Arrivals(Struct, frozen=True, kw_only=True):
    """When members came to their exchanges.

    `tables`, one for each group: group, ordinal, member (its place), index, came (the last one, by the member's clock), wait. `met`: by
    member and group, how many of its instances are matched, and how many there are; `steps`: by member, how many steps it has.
    """

    tables: Sequence[pl.DataFrame]
    met: Mapping[int, Mapping[int, tuple[int, int]]]
    steps: Mapping[int, int]


def arrivals_of(every: Sequence[Transfers]) -> Arrivals:
    """Those of all groups."""
    met: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for number, one in enumerate(every):
        for place, part in enumerate(one.group.parts):
            met[part.member.place][number] = one.covered_in_all.get(place, (0, 0))
    came = (pl.col("start") + pl.col("wait")).alias("came")
    return Arrivals(
        tables=[
            one.by_member.select(pl.lit(number).alias("group"), "ordinal", "member", "index", came, "wait")
            for number, one in enumerate(every)
        ],
        met=met,
        steps={part.member.place: len(part.member.steps) for one in every for part in one.group.parts},
    )


def waited_for_alone(known: Arrivals, late_ones: Collection[int]) -> int:
    """For how long (ns per step) all others of an exchange were there and only the late ones were not; what overlaps counts once.

    By so much, and no more, a step can get shorter without their lateness: then the next to come is waited for. Of the others the one
    that waits so most counts, because it is in most of their groups; those that meet them in the same exchanges wait alike, so that one
    of each such set is looked at.
    """
    shared = sorted({group for member in late_ones for group in known.met.get(member, ())})
    counts = {member: [(group, *own[group]) for group in shared if group in own] for member, own in known.met.items()}
    alike = {(member in late_ones, known.steps[member], *own): member for member, own in sorted(counts.items(), reverse=True) if own}
    rows = pl.concat([known.tables[group] for group in shared]).filter(~pl.col("member").is_in(list(late_ones)))
    least = rows.group_by("group", "ordinal").agg(pl.col("wait").min().alias("least"))  # of the next to come
    looked_at = rows.filter(pl.col("member").is_in(list(alike.values())) & pl.col("index").is_not_null()).join(
        least, on=["group", "ordinal"]
    )
    sums: Counter[int] = Counter()
    for (member, _), ns in unions([looked_at.with_columns((pl.col("came") - pl.col("least")).alias("next"))], "next", "came").items():
        sums[member] += ns
    per_step = [ns / _steps_covered(known.steps[member], counts[member]) for member, ns in sums.items()]
    return int(max(per_step, default=0))


def _steps_covered(steps: int, counts: Sequence[tuple[int, int, int]]) -> float:
    """How many of a member's steps its matched instances make up; `counts`: group, how many are matched, how many there are."""
    _, matched, every = (sum(numbers) for numbers in zip(*counts, strict=True))
    return max(1.0, steps * matched / every) if every else 1.0
