"""A group of ranks whose transfers take longer than those of its likes: a slow link, if the likes move the same amount."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from diagnose.document.ranks import MatchedExchange, Ranks, RankSurvey


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """The group, what it exchanges, and what its transfers take longer than its likes': ns per step, and as a share of the likes' time."""

    ranks: tuple[int, ...]
    exchange: str
    excess_ns: int
    share: float


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Exchanges of one kind in one group. `transfer_ns` per step, `duration_ns` of one exchange, `pace` in GB/s where it is known."""

    ranks: tuple[int, ...]
    exchange: str
    transfer_ns: int
    duration_ns: float
    pace: float | None


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
    return max(found, key=lambda one: (one.excess_ns, [-rank for rank in one.ranks]), default=None)


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
        found.append(
            _Group(
                ranks=ranks,
                exchange=f"{own[0].kind} {own[0].backend} {own[0].operation}",
                transfer_ns=transfer,
                duration_ns=transfer * max(steps, 1) / sum(one.matched for one in own),
                pace=own[0].algorithm_gb_s if len(own) == 1 else None,
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
        found.append(SlowLink(ranks=one.ranks, exchange=one.exchange, excess_ns=round(one.transfer_ns * (1 - 1 / ratio)), share=ratio - 1))
    return found
