"""Which exchanges of different ranks are one: groups of ranks, the instances that all captured members took part in, and hosts' clocks.

Members of a group run its exchanges in the same order, but captures begin and end at different places. Exchanges end together, whoever came
late: at the right shift of the two sequences the differences of ends are all alike, at a wrong one they are not. By the same ends the
clocks of hosts are compared. Of a group with few exchanges any shift by whole steps may look right: there the clocks decide, which the
groups with many exchanges have aligned, or the start times of the captures.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.ranks import ClockPair, Grouping
from diagnose.knowledge.exchanges import Shape
from diagnose.measure.exchanges import PIPELINE, Lane
from diagnose.measure.ranks.members import Member, Mesh, host_label, share_clock
from diagnose.model.statistics import integer_median

SAMPLES = 96  # differences looked at for one shift
NEAR = 12  # shifts tried on either side of a likely one
FARTHEST = 1500  # shifts tried at most where no likely one fits
FIRM_NS = 150_000  # scatter of the differences (p90 − p10) below which a shift is right beyond doubt; this project's choice
LOOSE_NS = 2_000_000  # scatter above which no shift is believed; this project's choice
FEW = 4  # instances that two sequences must have in common, where the shorter has as many
CERTAIN = 8  # instances whose common ends are no chance, and outweigh a start time that contradicts them; this project's choice
CLOSE_NS = 10_000  # two shifts whose scatters differ by less are told apart by what is likely

Leads = Mapping[int, tuple[int, int]]  # by a member's place: its set of aligned clocks, and by how much its own is ahead there (ns)


class Course(Struct, frozen=True, kw_only=True):
    """One rank's instances in one group, in order. Ends by its wall clock (or own zero), sizes (None: unknown), steps (None: outside)."""

    ends: Sequence[int]
    sizes: Sequence[int | None]
    steps: Sequence[int | None]


class Fit(Struct, frozen=True, kw_only=True):
    """`other[i]` is `reference[i + shift]`. `scatter`: p90 − p10 of the differences of ends (`n` were possible), `offset` their median."""

    shift: int
    scatter: int
    n: int
    offset: int = 0


def fit(reference: Course, other: Course, *, limit: int = LOOSE_NS, thorough: bool = True) -> Fit | None:
    """The shift at which both end together; None: none within `limit` (ns of scatter). Not `thorough`: only likely shifts are tried."""
    if not reference.ends or not other.ends:
        return None
    likely = list(dict.fromkeys(_likely(reference, other)))
    best: Fit | None = None
    for shift in likely:
        best = _better(best, _tried(reference, other, shift))
        if best is not None and best.scatter <= FIRM_NS // 4 and best.n >= CERTAIN:  # fewer fit by chance
            return best
    near = (shift + step for shift in likely for step in range(-NEAR, NEAR + 1))
    for shift in dict.fromkeys(near):
        best = _better(best, _tried(reference, other, shift))
    if thorough and (best is None or best.scatter > FIRM_NS):
        reach = min(FARTHEST, max(len(reference.ends), len(other.ends)))
        for shift in range(-reach, reach + 1):
            best = _better(best, _tried(reference, other, shift))
    return best if best is not None and best.scatter <= limit else None


def fit_by_clock(reference: Course, other: Course, *, ahead: int) -> Fit | None:
    """The shift at which both end together by clocks of which the other's is `ahead` by so much; None: none within FIRM_NS of that.

    Here `scatter` is the distance from it (p90).
    """
    first, last = (bisect_left(reference.ends, end - ahead) for end in (other.ends[0], other.ends[-1]))
    middle = {first, last - len(other.ends) + 1}
    best: Fit | None = None
    for shift in sorted(middle | {one + step for one in middle for step in (-1, 1)}):
        best = _better(best, _tried(reference, other, shift, ahead=ahead))
    return best if best is not None and best.scatter <= FIRM_NS else None


def _likely(reference: Course, other: Course) -> Iterable[int]:
    """Shifts worth trying first: the same steps side by side, the same ordinals, the nearest end by the clock."""
    firsts: dict[int, int] = {}
    for place, step in enumerate(reference.steps):
        if step is not None:
            firsts.setdefault(step, place)
    seen = False
    for place, step in enumerate(other.steps):
        if step is not None and step in firsts and (place == 0 or other.steps[place - 1] != step):
            yield firsts[step] - place
            seen = True
            break
    yield 0
    if not seen or len(reference.ends) != len(other.ends):
        nearest = min(range(len(reference.ends)), key=lambda place: abs(reference.ends[place] - other.ends[0]))
        yield nearest
    yield len(reference.ends) - len(other.ends)


def _tried(reference: Course, other: Course, shift: int, *, ahead: int | None = None) -> Fit | None:
    """How well a shift fits; None where too little of the two overlaps, or sizes contradict it. `ahead`: as the clocks have it."""
    first, last = max(0, -shift), min(len(other.ends), len(reference.ends) - shift)
    overlap = last - first
    shorter = min(len(reference.ends), len(other.ends))
    if overlap < (1 if ahead is not None else max(1, shorter // 3, min(shorter, FEW))):
        return None
    places = range(first, last) if overlap <= SAMPLES else [first + overlap * number // SAMPLES for number in range(SAMPLES)]
    differences = []
    for place in places:
        mine, theirs = other.sizes[place], reference.sizes[place + shift]
        if mine is not None and theirs is not None and mine != theirs:
            return None
        differences.append(other.ends[place] - reference.ends[place + shift])
    if ahead is not None:
        away = sorted(abs(difference - ahead) for difference in differences)
        return Fit(shift=shift, scatter=away[len(away) - 1 - len(away) // 10], n=overlap, offset=ahead)
    differences.sort()
    low, high = differences[len(differences) // 10], differences[len(differences) - 1 - len(differences) // 10]
    return Fit(shift=shift, scatter=high - low, n=overlap, offset=differences[len(differences) // 2])


def _better(best: Fit | None, new: Fit | None) -> Fit | None:
    """The one that fits better; of two that fit alike the one with more in common, then the one tried first."""
    if best is None or new is None:
        return best if new is None else new
    if abs(new.scatter - best.scatter) <= CLOSE_NS:
        return new if new.n > best.n + 1 else best
    return new if new.scatter < best.scatter else best


_SYMMETRIC: tuple[Shape, ...] = ("all_reduce", "all_gather", "reduce_scatter")  # every member gives the same number of bytes
_CANDIDATES = 24  # groups that a lane without a name is tried against, the nearest in rank first


class MemberLane(Struct, frozen=True, kw_only=True):
    """One member's sequence of exchanges in one group. `rows`: op, start, end, index, bytes, elements, expert_ns, held_ns, by start."""

    member: Member
    lane: Lane
    rows: pl.DataFrame

    def course(self) -> Course:
        """What alignment looks at; ends by the host's wall clock."""
        sizes = self.rows["bytes"].to_list() if self.lane.shape in _SYMMETRIC else [None] * self.rows.height
        return Course(ends=(self.rows["end"] + self.member.start_unix_ns).to_list(), sizes=sizes, steps=self.rows["index"].to_list())


class Matched(Struct, frozen=True, kw_only=True):
    """One operation of one group of ranks.

    `instances`, one row for each member of each instance that all captured members took part in: ordinal, place (index into `parts`), op
    (row of the member's operations), start and end (own clock, with the wall clock of the trace's start), index (the member's own step;
    null outside), bytes, elements, expert_ns, held_ns. `seen`: instances that any member shows.
    """

    kind: str
    backend: str
    operation: str
    shape: Shape
    by: Grouping
    size: int | None
    parts: tuple[MemberLane, ...]
    instances: pl.DataFrame
    matched: int
    seen: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """The captured members."""
        return tuple(part.member.rank.rank for part in self.parts)

    @property
    def whole(self) -> bool:
        """Whether every member was captured, as far as the trace tells."""
        return self.size is not None and len(self.parts) == self.size


class Unmatched(Struct, frozen=True, kw_only=True):
    """Exchanges of one member that were not held against anybody's, and why."""

    part: MemberLane
    why: str


PAIRWISE = "a transfer between two ranks, and the trace does not name the other"
ALONE = "no other member of its group was captured"
NO_FIT = "the captured members' sequences do not fit together"
_SPAN = re.compile(r"^\[(\d+(?:, ?\d+)*)\]$")


def match(members: Sequence[Member], mesh: Mesh | None, clocks: Leads | None = None) -> tuple[tuple[Matched, ...], tuple[Unmatched, ...]]:
    """All exchanges, matched as far as possible; by the `clocks`, where they are known."""
    known = clocks or {}
    named: dict[tuple[str, str, str, Hashable], list[MemberLane]] = defaultdict(list)
    nameless: dict[tuple[str, str, str, Hashable], list[MemberLane]] = defaultdict(list)
    unmatched = []
    for part in _member_lanes(members):
        lane = part.lane
        if lane.shape == "pairwise" and lane.kind == PIPELINE:
            unmatched.append(Unmatched(part=part, why=PAIRWISE))
        elif (key := _group_key(lane)) is not None and lane.shape != "pairwise":
            named[lane.kind, lane.backend, lane.operation, key].append(part)
        else:
            # NCCL sends and receives between all members of a group in one kernel, too: then all of them end together
            nameless[lane.kind, lane.backend, lane.operation, key].append(part)
    pools: dict[Hashable, list[_Group]] = defaultdict(list)
    for key, parts in named.items():
        by: Grouping = "communicator" if parts[0].lane.communicator is not None else "process group"
        pools[key[:3]].append(_Group(by=by, parts=tuple(_one_each(parts)), tried=False))
    for key, parts in nameless.items():
        pools[key[:3]] += [_Group(by=by, parts=tuple(group), tried=tried) for by, group, tried in _by_common_ends(parts, mesh)]
    matched: list[Matched] = []
    for pool in pools.values():
        for group in _joined(pool, mesh):
            found, left = _matched(group.parts, known, group.by)
            if found is not None:
                matched.append(found)
            unmatched += [replace(one, why=NO_FIT) for one in left] if group.tried else left
    ordered = sorted(matched, key=lambda one: (one.kind, one.backend, one.operation, one.ranks))
    return tuple(ordered), tuple(unmatched)


def _member_lanes(members: Sequence[Member]) -> Iterator[MemberLane]:
    """Every lane of every member in which it meets others, with its instances."""
    for member in members:
        found = member.device.exchanges
        for (number,), rows in found.instances.group_by("lane", maintain_order=True):
            if (lane := found.lanes[int(number)]).shape != "own":
                yield MemberLane(member=member, lane=lane, rows=rows)


def _group_key(lane: Lane) -> Hashable | None:
    """What names the group alike on every rank; None: nothing. PyTorch's names count up alike; a bare name goes with its description."""
    if lane.communicator is not None:
        return lane.communicator
    members = members_told(lane)
    if members is not None:
        return members, lane.group_name
    return (lane.group, lane.group_name) if lane.group_name is not None else None


def members_told(lane: Lane) -> tuple[int, ...] | None:
    """The group's global ranks, where the trace lists them all."""
    found = _SPAN.match(lane.members or "")
    if found is None:
        return None
    ranks = tuple(int(number) for number in found[1].split(","))
    return ranks if lane.size is None or len(ranks) == lane.size else None


def _one_each(parts: Sequence[MemberLane]) -> list[MemberLane]:
    """One sequence for each member: a member that shows the group more than once (several streams) has them put in order of start."""
    by_member: dict[int, list[MemberLane]] = defaultdict(list)
    for part in parts:
        by_member[part.member.place].append(part)
    return [
        own[0]
        if len(own) == 1
        else MemberLane(member=own[0].member, lane=own[0].lane, rows=pl.concat([one.rows for one in own]).sort("start", "end"))
        for own in by_member.values()
    ]


# ----------------------------------------------------------------------------------------------- groups that two profilers name differently


class _Group(Struct, frozen=True, kw_only=True):
    """Sequences that belong together before they are laid beside each other; `tried`: others of the kind were tried too and did not fit."""

    by: Grouping
    parts: tuple[MemberLane, ...]
    tried: bool


def _joined(pool: Sequence[_Group], mesh: Mesh | None) -> list[_Group]:
    """Groups of one operation; those that only look apart, because two profilers name groups differently, are put together."""
    if len({_naming(group.parts[0].lane) for group in pool}) < 2:
        return list(pool)
    joined: list[_Group] = []
    for group in sorted(pool, key=lambda one: (-len(one.parts), one.parts[0].member.place)):
        home = next((place for place, other in enumerate(joined) if _one_group(other, group, mesh)), None)
        if home is None:
            joined.append(group)
        else:
            other = joined[home]
            parts = sorted((*other.parts, *group.parts), key=lambda part: part.member.place)
            joined[home] = replace(other, by="job" if other.by == "job" else "common ends", parts=tuple(parts))
    return joined


def _naming(lane: Lane) -> str:
    """By what a profiler names the lane's group."""
    if lane.communicator is not None:
        return "communicator"
    return "process group" if _group_key(lane) is not None else "nothing"


def _one_group(one: _Group, other: _Group, mesh: Mesh | None) -> bool:
    """Whether groups of different names are one: no member in common, room for all, the same place in the job, and the same ends."""
    first, second = one.parts[0], other.parts[0]
    members = {part.member.place for part in one.parts}
    size = max((part.lane.size or 0 for part in (*one.parts, *other.parts)), default=0)
    if members & {part.member.place for part in other.parts} or (size and len(one.parts) + len(other.parts) > size):
        return False
    if {_naming(part.lane) for part in one.parts} & {_naming(part.lane) for part in other.parts}:
        return False
    if mesh is not None and mesh.group(first.lane.kind, first.member.rank.rank) != mesh.group(second.lane.kind, second.member.rank.rank):
        return False
    return _end_together(first.course(), second.course())


# ------------------------------------------------------------------------------------------------ groups without a name


def _by_common_ends(parts: Sequence[MemberLane], mesh: Mesh | None) -> Iterator[tuple[Grouping, list[MemberLane], bool]]:
    """Groups of sequences that end together (of ranks with one coordinate, where sizes are known), and whether there were others to try."""
    pools: dict[tuple[int, ...] | None, list[MemberLane]] = defaultdict(list)
    for part in parts:
        told = mesh.group(part.lane.kind, part.member.rank.rank) if mesh is not None else None
        pools[told].append(part)
    for told, pool in pools.items():
        groups: list[tuple[Course, list[MemberLane]]] = []
        for part in pool:
            course = part.course()
            # a rank's groups that follow each other all along fit each other's too: the program gives them the same streams on all ranks
            near = sorted(groups[: -_CANDIDATES - 1 : -1], key=lambda one: one[1][0].lane.stream != part.lane.stream)
            home = next((group for reference, group in near if _fits(reference, course, group, part)), None)
            if home is None:
                groups.append((course, [part]))
            else:
                home.append(part)
        for _, group in groups:
            yield "job" if told is not None else "common ends", group, len(pool) > 1


def _fits(reference: Course, course: Course, group: Sequence[MemberLane], part: MemberLane) -> bool:
    """Whether a sequence belongs to a group: another rank's, as long, and ending together."""
    return all(one.member.place != part.member.place for one in group) and _end_together(reference, course)


def _end_together(reference: Course, course: Course) -> bool:
    """Whether ends alone say that two sequences are of one group; only likely shifts are tried, because many groups are."""
    found = fit(reference, course, limit=FIRM_NS, thorough=False)
    return found is not None and found.n >= 2


# ------------------------------------------------------------------------------------------------ instances


def _matched(parts: Sequence[MemberLane], clocks: Leads, by: Grouping) -> tuple[Matched | None, list[Unmatched]]:
    """The group's instances, None where no exchange is one of two members or more; members whose sequence fits nobody's are left out."""
    courses = [part.course() for part in parts]
    reference = max(range(len(parts)), key=lambda place: (len(courses[place].ends), -place))
    fits: dict[int, Fit] = {reference: Fit(shift=0, scatter=0, n=len(courses[reference].ends))}
    for place in range(len(courses)):
        if place == reference:
            continue
        found = _beside_a_mate(parts, courses, fits, place, clocks) or _fit_of(parts, courses, reference, place, clocks)
        if found is not None:
            fits[place] = found
    together = _of_common_instances({place: (one.shift, len(courses[place].ends)) for place, one in fits.items()})
    inside = [(place, parts[place]) for place in together]
    left = [Unmatched(part=part, why=NO_FIT) for place, part in enumerate(parts) if place not in together]
    if len(inside) < 2:
        why = ALONE if len(parts) == 1 else NO_FIT
        return None, [*left, *(Unmatched(part=part, why=why) for _, part in inside)]
    kept = tuple(part for _, part in inside)
    table = pl.concat([_numbered_instances(part, number, fits[place].shift) for number, (place, part) in enumerate(inside)])
    complete = table.group_by("ordinal").len().filter(pl.col("len") == len(kept)).select("ordinal")
    lane = kept[0].lane
    told = members_told(lane)
    return (
        Matched(
            kind=lane.kind,
            backend=lane.backend,
            operation=lane.operation,
            shape=lane.shape,
            by=by,
            size=max((part.lane.size or 0 for part in kept), default=0) or (len(told) if told else None),
            parts=kept,
            instances=table.join(complete, on="ordinal", how="semi").sort("ordinal", "place"),
            matched=complete.height,
            seen=table["ordinal"].n_unique(),
        ),
        left,
    )


def _of_common_instances(spans: Mapping[int, tuple[int, int]]) -> list[int]:
    """The members that have instances in common, those aside that hold fewest until there are some. `spans`: first ordinal, number."""
    kept = dict(spans)
    while len(kept) > 1 and max(first for first, _ in kept.values()) >= min(first + number for first, number in kept.values()):
        del kept[min(kept, key=lambda place: (kept[place][1], place))]
    return sorted(kept)


def _ahead(one: Member, other: Member, clocks: Leads) -> int | None:
    """By how much the other's clock is ahead (ns), where they are aligned or, none being compared yet, one; None elsewhere."""
    if not clocks:
        return 0 if share_clock(one, other) else None
    mine, theirs = clocks[one.place], clocks[other.place]
    return theirs[1] - mine[1] if mine[0] == theirs[0] else None


def _beside_a_mate(
    parts: Sequence[MemberLane], courses: Sequence[Course], fits: Mapping[int, Fit], place: int, clocks: Leads
) -> Fit | None:
    """The shift of one member's sequence by another's that is known, where they end together by aligned clocks; None otherwise.

    Steps that are alike fit each other at any shift by whole steps, and captures that begin at different ones number them differently.
    """
    leads = ((mate, _ahead(parts[mate].member, parts[place].member, clocks)) for mate in fits)
    mate, ahead = next(((mate, lead) for mate, lead in leads if lead is not None), (place, None))
    found = None if ahead is None else fit_by_clock(courses[mate], courses[place], ahead=ahead)
    return None if found is None else replace(found, shift=found.shift + fits[mate].shift)


def _fit_of(parts: Sequence[MemberLane], courses: Sequence[Course], reference: int, place: int, clocks: Leads) -> Fit | None:
    """The shift of one member's sequence against the reference's; None where none is to be believed.

    By one clock a group's exchanges end together. If not, they are of several groups, or, where many alike say so, a start time is wrong:
    where few say so, the shift by the clocks counts.
    """
    one, other = parts[reference].member, parts[place].member
    found, ahead = fit(courses[reference], courses[place]), _ahead(one, other, clocks)
    certain = found is not None and found.n >= CERTAIN and found.scatter <= FIRM_NS
    if certain or (found is not None and abs(found.offset - (ahead or 0)) <= LOOSE_NS):
        return found
    timed = None not in (one.rank.start_unix_ns, other.rank.start_unix_ns)
    by_clock = fit_by_clock(courses[reference], courses[place], ahead=ahead or 0) if timed or ahead is not None else None
    if by_clock is not None and (ahead is not None or by_clock.n > 1):
        return by_clock
    return found if ahead is None else None


def _numbered_instances(part: MemberLane, place: int, shift: int) -> pl.DataFrame:
    """A member's instances by their number in the group (ordinal), with times by the wall clock of the trace's start."""
    moved = part.member.start_unix_ns
    return part.rows.with_row_index("row").select(
        (pl.col("row").cast(pl.Int64) + shift).alias("ordinal"),
        pl.lit(place, dtype=pl.Int32).alias("place"),
        "op",
        (pl.col("start") + moved).alias("start"),
        (pl.col("end") + moved).alias("end"),
        "index",
        "bytes",
        "elements",
        "expert_ns",
        "held_ns",
    )


# Residual (p5, p95) above which nothing is said by the clock; matched ends of real two-node captures agree within it (playbook, section
# 9.3)
LIMIT_NS = 100_000
MIN_ENDS = 8  # fewer matched ends align nothing


class Clocks(Struct, frozen=True, kw_only=True):
    """`pairs` for the report; `known`: by place, the set of aligned clocks, and what to take off its times for those of its first."""

    pairs: tuple[ClockPair, ...]
    known: Leads
    notes: tuple[str, ...] = ()

    def together(self, members: Iterable[Member]) -> bool:
        """Whether the clocks of all these are aligned with each other."""
        return len({self.known[member.place][0] for member in members}) == 1


def clocks(members: Sequence[Member], matched: Sequence[Matched]) -> Clocks:
    """Compare the clocks of all hosts that meet in an exchange. Devices of one input, and of one host that is known, share a clock."""
    clock_of = _clocks_of(members, matched)
    first = {clock: one for one in reversed(members) for clock in [clock_of[one.place]]}
    pooled = {pair: _agreed(values) for pair, values in sorted(_differences(matched, clock_of).items())}
    pairs = {pair: _pair(first[pair[0]], first[pair[1]], pl.Series(values)) for pair, values in pooled.items() if len(values) >= MIN_ENDS}
    offsets = _offsets(list(dict.fromkeys(clock_of.values())), pairs)
    known = {one.place: offsets[clock_of[one.place]] for one in members}
    apart = {
        part.member.rank.rank
        for group in matched
        for part in group.parts
        if len({known[other.member.place][0] for other in group.parts}) > 1
    }
    return Clocks(pairs=tuple(pairs.values()), known=known, notes=(_unaligned(sorted(apart)),) if apart else ())


def aligned(members: Sequence[Member], mesh: Mesh | None) -> tuple[tuple[Matched, ...], tuple[Unmatched, ...], Clocks]:
    """All exchanges, matched as far as possible, and how the clocks compare; matched once more where the clocks are known better then."""
    matched, unmatched = match(members, mesh)
    told = clocks(members, matched)
    certain = [group for group in matched if _certain(group)]
    sure = told if len(certain) == len(matched) else clocks(members, certain)
    contradicted = any(_contradicts(group, sure.known) for group in matched)
    known = sure.known if contradicted else told.known
    if contradicted or (any(ahead for _, ahead in known.values()) and any(one.why == NO_FIT for one in unmatched)):
        matched, unmatched = match(members, mesh, known)
        told = clocks(members, matched)
    return matched, unmatched, told


def _certain(group: Matched) -> bool:
    """Whether a group's ends leave no doubt of how its members' clocks compare."""
    ends = group.instances.with_columns((pl.col("end") - pl.col("end").first().over("ordinal")).alias("later"))
    scatter = ends.group_by("place").agg((pl.col("later").quantile(0.9) - pl.col("later").quantile(0.1)).alias("scatter"))["scatter"].max()
    return group.matched >= CERTAIN and isinstance(scatter, float) and scatter <= FIRM_NS


def _contradicts(group: Matched, known: Leads) -> bool:
    """Whether members whose clocks are aligned end the group's exchanges apart by these clocks: then these are not the same ones."""
    ends: dict[int, list[int]] = defaultdict(list)
    for (place,), rows in group.instances.group_by("place", maintain_order=True):
        clock, ahead = known[group.parts[int(place)].member.place]
        ends[clock].append(integer_median(rows["end"].to_list()) - ahead)
    return any(max(own) - min(own) > LOOSE_NS for own in ends.values())


def _unaligned(ranks: Sequence[int]) -> str:
    """The note on ranks whose clocks could not be aligned."""
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return (
        f"Not all clocks of ranks {shown} could be aligned (fewer than {MIN_ENDS} collectives matched between two nodes, or ends "
        f"that scatter by more than {LIMIT_NS // 1000} µs): "
        "the straggler of collectives between them is unknown."
    )


def _clocks_of(members: Sequence[Member], matched: Sequence[Matched]) -> dict[int, tuple[int, int]]:
    """By place, what tells clocks apart: host, else input; a capture whose wrong start time contradicts its host's has one of its own."""
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
    for (reference, other), by_group in _differences(matched, alone).items():
        values = [value for own in by_group for value in own]
        here = [place for place in of_input[other] if hosts[place][0] == 0 and leaders[hosts[place]] == reference]
        if here and len(values) >= MIN_ENDS and abs(int(pl.Series(values).median())) > LIMIT_NS:  # type: ignore[arg-type]
            found |= dict.fromkeys(here, other)
    return found


def _differences(
    matched: Sequence[Matched], clock_of: Mapping[int, tuple[int, int]]
) -> dict[tuple[tuple[int, int], tuple[int, int]], list[list[int]]]:
    """By pair of clocks and group: the end of the one less the end of the other, for every matched instance."""
    found: dict[tuple[tuple[int, int], tuple[int, int]], list[list[int]]] = defaultdict(list)
    for group in matched:
        own = [clock_of[part.member.place] for part in group.parts]
        leaders = {clock: place for place, clock in reversed(list(enumerate(own)))}
        reference, *others = sorted(leaders)
        if not others:
            continue
        ends = {place: rows["end"] for (place,), rows in group.instances.group_by("place", maintain_order=True)}
        for other in others:
            found[reference, other].append((ends[leaders[other]] - ends[leaders[reference]]).to_list())
    return found


def _agreed(by_group: Sequence[list[int]]) -> list[int]:
    """Differences of two clocks; where all together scatter too much for two clocks, those of the groups that agree, if most do.

    In the others a member ends later than the rest, always by as much: its own part of the exchange is slow.
    """
    every = pl.Series([value for own in by_group for value in own], dtype=pl.Int64)
    low, high = (int((every - integer_median(every.to_list())).quantile(share, "nearest") or 0) for share in (0.05, 0.95))
    told = [(integer_median(own), own) for own in by_group if own]
    if max(abs(low), abs(high)) > LIMIT_NS:
        near = [[own for other, own in told if abs(other - middle) <= LIMIT_NS] for middle, _ in told]
        most = max(near, key=lambda groups: (len(groups), sum(map(len, groups))))
        values = [value for own in most for value in own]
        if 2 * len(most) > len(told) and len(values) >= MIN_ENDS:
            return values
    return every.to_list()


def ends_apart(group: Matched, told: Clocks) -> tuple[int, ...] | None:
    """What each member's clock is ahead, where by clocks that other groups align some members end the group's exchanges after the rest."""
    if not told.together(part.member for part in group.parts):
        return None
    ahead = tuple(told.known[part.member.place][1] for part in group.parts)
    first = pl.col("end").first().over("ordinal")
    later = group.instances.sort("ordinal", "place").with_columns((pl.col("end") - first).alias("later")).group_by("place").agg("later")
    offsets = [integer_median(values) - ahead[place] for place, values in later.iter_rows()]
    return ahead if max(offsets, default=0) - min(offsets, default=0) > LIMIT_NS else None


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
