"""A group of ranks whose transfers take longer than those of its likes: a slow link, if the likes move the same amount."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from diagnose.rank_records import MatchedExchange, Ranks, RankSurvey


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """The group, and what its transfers take longer than its likes': ns per step, and as a share of the likes' time."""

    exchange: MatchedExchange
    excess_ns: int
    share: float


def slow_link(ranks: Ranks) -> SlowLink | None:
    """The group that loses most against the median of its likes; None where no group has a like.

    Likes do the same exchange in groups of one size that hold the same parts of the model and span the same number of hosts: a group inside one host is never
    held against one across hosts. Where sizes are known for all of them (algorithm bandwidth), paces in bytes are compared, otherwise durations of one exchange.
    """
    families: dict[tuple[object, ...], list[MatchedExchange]] = defaultdict(list)
    survey = {one.rank: one for one in ranks.survey}
    for one in ranks.exchanges:
        if one.matched and one.transfer_ns > 0:
            families[_likeness(one, survey)].append(one)
    found = [_against_likes(one, family, survey) for family in families.values() if len(family) > 1 for one in family]
    return max(found, key=lambda one: (one.excess_ns, [-rank for rank in one.exchange.ranks]), default=None)


def _likeness(one: MatchedExchange, survey: Mapping[int, RankSurvey]) -> tuple[object, ...]:
    """What two groups must share to be held against each other."""
    members = [survey[rank] for rank in one.ranks if rank in survey]
    hosts = [member.host for member in members]
    spanned = tuple(sorted(hosts.count(host) for host in set(hosts)))
    held = tuple(sorted({member.group for member in members}))
    return one.kind, one.backend, one.operation, one.size, len(one.ranks), spanned, "unknown" in hosts, held


def _duration(one: MatchedExchange, survey: Mapping[int, RankSurvey]) -> float:
    """Mean transfer of one exchange in ns. The transfer is per step and the count of the whole capture, so it takes the steps that all members have."""
    steps = min((len(survey[rank].steps) for rank in one.ranks if rank in survey), default=1)
    return one.transfer_ns * max(steps, 1) / one.matched


def _against_likes(one: MatchedExchange, family: Sequence[MatchedExchange], survey: Mapping[int, RankSurvey]) -> SlowLink:
    """One group against the median of the others; a group that is no slower loses nothing."""
    others = [like for like in family if like is not one]
    paces = [like.algorithm_gb_s for like in others if like.algorithm_gb_s]
    if one.algorithm_gb_s and len(paces) == len(others):
        ratio = median(paces) / one.algorithm_gb_s
    else:
        ratio = _duration(one, survey) / median(_duration(like, survey) for like in others)
    ratio = max(ratio, 1.0)
    return SlowLink(exchange=one, excess_ns=round(one.transfer_ns * (1 - 1 / ratio)), share=ratio - 1)
