"""How the clocks of hosts compare, by the ends of the exchanges that both took part in."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.document.ranks import ClockPair
from diagnose.measure.ranks.matching import Matched
from diagnose.measure.ranks.members import Member, host_label

# Residual (p5, p95) above which nothing is said by the clock; matched ends of real two-node captures agree within it (playbook, section
# 9.3)
LIMIT_NS = 100_000
MIN_ENDS = 8  # fewer matched ends align nothing


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """`pairs` for the report.

    `known`: by a member's place, the set of clocks that are aligned with its own, and what to take off its times to have those of that
    set's first.
    """

    pairs: tuple[ClockPair, ...]
    known: Mapping[int, tuple[int, int]]
    notes: tuple[str, ...] = ()

    def together(self, members: Iterable[Member]) -> bool:
        """Whether the clocks of all these are aligned with each other."""
        return len({self.known[member.place][0] for member in members}) == 1


def clocks(members: Sequence[Member], matched: Sequence[Matched]) -> Clocks:
    """Compare the clocks of all hosts that meet in an exchange. Devices of one input, and of one host that is known, share a clock."""
    clock_of = _clocks_of(members, matched)
    first = {clock: one for one in reversed(members) for clock in [clock_of[one.place]]}
    pooled = _differences(matched, clock_of)
    pairs = {
        pair: _pair(first[pair[0]], first[pair[1]], pl.Series(values)) for pair, values in sorted(pooled.items()) if len(values) >= MIN_ENDS
    }
    offsets = _offsets(list(dict.fromkeys(clock_of.values())), pairs)
    known = {one.place: offsets[clock_of[one.place]] for one in members}
    apart = {
        part.member.rank.rank
        for group in matched
        for part in group.parts
        if len({known[other.member.place][0] for other in group.parts}) > 1
    }
    return Clocks(pairs=tuple(pairs.values()), known=known, notes=(_unaligned(sorted(apart)),) if apart else ())


def _unaligned(ranks: Sequence[int]) -> str:
    """The note on ranks whose clocks could not be aligned."""
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return (
        f"Not all clocks of ranks {shown} could be aligned (fewer than {MIN_ENDS} exchanges matched between two hosts, or ends "
        f"that scatter by more than {LIMIT_NS // 1000} µs): "
        "who comes late in the exchanges between them is not said."
    )


def _clocks_of(members: Sequence[Member], matched: Sequence[Matched]) -> dict[int, tuple[int, int]]:
    """By a member's place, what tells its clock from others: its host, else its input.

    A capture whose ends contradict its host's, by a wrong start time, has a clock of its own.
    """
    alone = {one.place: (1, one.part) for one in members}
    hosts = {
        one.place: (0, one.host) if one.host is not None and one.rank.start_unix_ns is not None else alone[one.place] for one in members
    }
    leaders: dict[tuple[int, int], tuple[int, int]] = {}
    of_input: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in members:
        leaders.setdefault(hosts[one.place], alone[one.place])
        of_input[alone[one.place]].append(one.place)
    found = dict(hosts)
    for (reference, other), values in _differences(matched, alone).items():
        here = [place for place in of_input[other] if hosts[place][0] == 0 and leaders[hosts[place]] == reference]
        if here and len(values) >= MIN_ENDS and abs(int(pl.Series(values).median())) > LIMIT_NS:  # type: ignore[arg-type]
            found |= dict.fromkeys(here, other)
    return found


def _differences(
    matched: Sequence[Matched], clock_of: Mapping[int, tuple[int, int]]
) -> dict[tuple[tuple[int, int], tuple[int, int]], list[int]]:
    """By pair of clocks: the end of the one less the end of the other, for every matched instance."""
    found: dict[tuple[tuple[int, int], tuple[int, int]], list[int]] = defaultdict(list)
    for group in matched:
        own = [clock_of[part.member.place] for part in group.parts]
        leaders = {clock: place for place, clock in reversed(list(enumerate(own)))}
        reference, *others = sorted(leaders)
        if not others:
            continue
        ends = {place: rows["end"] for (place,), rows in group.instances.group_by("place", maintain_order=True)}
        for other in others:
            found[reference, other] += (ends[leaders[other]] - ends[leaders[reference]]).to_list()
    return found


def _pair(reference: Member, other: Member, differences: pl.Series) -> ClockPair:
    """How two clocks compare, by the differences (ns) of the ends of matched exchanges."""
    middle = int(differences.median())  # type: ignore[arg-type]
    low, high = (int((differences - middle).quantile(share, "nearest")) for share in (0.05, 0.95))  # type: ignore[arg-type]
    return ClockPair(
        reference=reference.rank.rank,
        rank=other.rank.rank,
        reference_host=host_label(reference),
        host=host_label(other),
        by_start_times=reference.rank.start_unix_ns is not None and other.rank.start_unix_ns is not None,
        offset_ns=middle,
        residual_p5_ns=low,
        residual_p95_ns=high,
        n=len(differences),
        limit_ns=LIMIT_NS,
        aligned=max(abs(low), abs(high)) <= LIMIT_NS,
    )


def _offsets(
    every: Sequence[tuple[int, int]], pairs: Mapping[tuple[tuple[int, int], tuple[int, int]], ClockPair]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Each clock's set (clocks that pairs align, directly or through others) and its offset from the first one of that set."""
    beside: dict[tuple[int, int], list[tuple[tuple[int, int], int]]] = defaultdict(list)
    for (a, b), pair in pairs.items():
        if pair.aligned:
            beside[a].append((b, pair.offset_ns))
            beside[b].append((a, -pair.offset_ns))
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, root in enumerate(every):
        if root in found:
            continue
        found[root] = (number, 0)
        waiting = deque([root])
        while waiting:
            here = waiting.popleft()
            for there, offset in beside[here]:
                if there not in found:
                    found[there] = (number, found[here][1] + offset)
                    waiting.append(there)
    return found
