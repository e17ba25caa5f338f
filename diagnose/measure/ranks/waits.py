"""Transfer and wait of matched exchanges: an instance's transfer is its shortest participant's duration, the rest of each duration is wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.exchange_names import bus_factor
from diagnose.measure.device import median
from diagnose.measure.ranks.matching import ALONE, Matched, Unmatched
from diagnose.measure.ranks.members import Member
from diagnose.rank_records import MatchedExchange, RankWait
from diagnose.vocabulary import COMM_KINDS, CommKind

NOTICEABLE_NS = 10_000  # an instance in which nobody waits longer has no last rank; this project's choice
NOTICEABLE_SHARE = 0.05  # of the transfer; likewise
_NO_SIZES = "no bandwidth: the trace does not hold the sizes of these exchanges"
_NOT_ALL = "no bandwidth: not all members were captured, so that the transfer time may hold waiting"


@dataclass(frozen=True, kw_only=True)
class Waits:
    """One matched group with its times.

    `rows`: those of its instances, with duration, transfer and wait in ns, and last (bool): this member came last, and another waited noticeably.
    """

    group: Matched
    rows: pl.DataFrame


def waits(group: Matched) -> Waits:
    """Split every instance of a group."""
    duration = pl.col("end") - pl.col("start")
    rows = group.instances.with_columns(duration.alias("duration"), duration.min().over("ordinal").alias("transfer"))
    longest = pl.col("duration").max().over("ordinal") - pl.col("transfer")
    noticed = longest > pl.max_horizontal(pl.lit(NOTICEABLE_NS), (pl.col("transfer") * NOTICEABLE_SHARE).cast(pl.Int64))
    first_of_last = pl.col("place").filter(pl.col("duration") == pl.col("transfer")).first().over("ordinal") == pl.col("place")
    return Waits(
        group=group,
        rows=rows.with_columns((pl.col("duration") - pl.col("transfer")).alias("wait"), (noticed & first_of_last).alias("last")),
    )


def per_step(rows: pl.DataFrame, column: str, steps: pl.Series) -> pl.Series:
    """Sum of a column by the steps of one member, in the order of `steps`; 0 where it has none."""
    summed = rows.filter(pl.col("index").is_not_null()).group_by("index").agg(pl.col(column).sum())
    return pl.DataFrame({"index": steps}).join(summed, on="index", how="left", maintain_order="left")[column].fill_null(0)


def record(found: Waits, link_gb_s: float | None) -> MatchedExchange:
    """The group for the document."""
    group = found.group
    kind: CommKind = next((known for known in COMM_KINDS if known == group.kind), "other")
    own = {place: rows for (place,), rows in found.rows.group_by("place", maintain_order=True)}
    middle = {place: _medians(own[place], part.member) for place, part in enumerate(group.parts) if place in own}
    noticed = found.rows.filter("last").height
    algorithm, bus, note = _bandwidth(found)
    return MatchedExchange(
        kind=kind,
        backend=group.backend,
        operation=group.operation,
        by=group.by,
        ranks=group.ranks,
        size=group.size,
        matched=group.matched,
        unmatched=group.seen - group.matched,
        transfer_ns=min((transfer for transfer, _ in middle.values()), default=0),
        wait_ns=sum(wait for _, wait in middle.values()) // max(1, len(middle)),
        waits=tuple(
            RankWait(
                rank=part.member.rank.rank,
                wait_ns=middle[place][1] if place in middle else 0,
                last_share=own[place].filter("last").height / noticed if noticed and place in own else 0.0,
            )
            for place, part in enumerate(group.parts)
        ),
        algorithm_gb_s=algorithm,
        bus_gb_s=bus,
        link_gb_s=link_gb_s if bus is not None else None,
        note=note,
    )


def _medians(rows: pl.DataFrame, member: Member) -> tuple[int, int]:
    """Transfer and wait per step of one member."""
    steps = member.device.budget["index"]
    return median(per_step(rows, "transfer", steps)), median(per_step(rows, "wait", steps))


def _bandwidth(found: Waits) -> tuple[float | None, float | None, str]:
    """Algorithm and bus bandwidth in GB/s over all matched instances, and why there is none. Sizes of an all-to-all differ by rank: the largest counts."""
    group = found.group
    factor = bus_factor(group.shape, group.size or 0)
    if factor is None:
        return None, None, ""
    if not group.whole:
        return None, None, _NOT_ALL
    one = found.rows.group_by("ordinal").agg(
        pl.col("bytes").max(), pl.col("bytes").null_count().alias("unknown"), pl.col("transfer").first()
    )
    if one["unknown"].sum() or not one["transfer"].sum():
        return None, None, _NO_SIZES
    algorithm = float(one["bytes"].sum()) / float(one["transfer"].sum())
    return round(algorithm, 3), round(algorithm * factor, 3), ""


# ------------------------------------------------------------------------------------------------ by member


@dataclass(frozen=True, kw_only=True)
class Own:
    """One member's waiting and transfer by step, over all its matched groups; None for both where nothing was matched."""

    wait: pl.Series | None
    transfer: pl.Series | None


def by_member(members: Sequence[Member], every: Sequence[Waits]) -> Mapping[int, Own]:
    """By a member's place: its waiting and transfer per step. Exchanges that overlap on one device are counted each."""
    sums: dict[int, list[pl.DataFrame]] = defaultdict(list)
    for found in every:
        for (place,), rows in found.rows.group_by("place"):
            sums[found.group.parts[int(place)].member.place].append(rows.select("index", "wait", "transfer"))
    result = {}
    for member in members:
        parts = sums.get(member.place)
        if not parts:
            result[member.place] = Own(wait=None, transfer=None)
            continue
        rows, steps = pl.concat(parts), member.device.budget["index"]
        result[member.place] = Own(wait=per_step(rows, "wait", steps), transfer=per_step(rows, "transfer", steps))
    return result


def left_alone(unmatched: Sequence[Unmatched]) -> tuple[str, ...]:
    """One sentence for each reason why exchanges were not matched."""
    counts: dict[tuple[str, str], tuple[int, set[int]]] = {}
    for one in unmatched:
        number, ranks = counts.get((one.lane.kind, one.why), (0, set()))
        counts[one.lane.kind, one.why] = number + one.count, ranks | {one.member.rank.rank}
    return tuple(
        f"{number} {kind} exchange{'s' if number != 1 else ''} on {len(ranks)} rank{'s' if len(ranks) != 1 else ''} {'are' if number != 1 else 'is'} not matched: {why}."
        for (kind, why), (number, ranks) in sorted(counts.items(), key=lambda item: (item[0][1] == ALONE, -item[1][0], item[0]))
    )
