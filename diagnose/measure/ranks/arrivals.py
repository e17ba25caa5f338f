"""When ranks came to their exchanges, and for how long all others waited there for some of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import polars as pl
from msgspec import Struct

from diagnose.measure.ranks.transfers import Transfers, unions


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
