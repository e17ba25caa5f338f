"""What changed among the kernels: new, gone, renamed, slower or faster per launch, launched more or less often, moved to another stream.

Nothing is left out; outputs cut. Which kernel of one run is which of the other is told by name and stream, then by place in the sequence.
Streams are matched by what runs on them, because their numbers mean nothing. A kernel that one run lacks and one that the other lacks are
the same under another name where they stand in the same place: between kernels that are matched already, launched about as often, for the
same part of the model. What has been matched so helps to match its neighbours, until nothing more is found. Where several could be meant,
none is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from msgspec import Struct, structs

from diagnose.document.comparison import KernelChange, KernelChangeKind
from diagnose.document.device import KernelUse, of_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.comparison import KernelLimits, Limits

_ENOUGH = 2.0  # two signs, such as a neighbour and equal launches


class KernelChanges(Struct, frozen=True, kw_only=True):
    """The changes, how many kernels are as they were, and what has to be said."""

    changes: tuple[KernelChange, ...] = ()
    same: int = 0
    notes: tuple[str, ...] = ()


def kernels(
    base: Diagnosis, new: Diagnosis, places: tuple[tuple[int, int], tuple[int, int]], scale: Fraction = Fraction(1), *, limits: Limits
) -> KernelChanges:
    """All changes, most time first. `scale`: what the new run's launches and work are multiplied by (captures without steps)."""
    here, there = of_device(base.kernels, places[0]), of_device(new.kernels, places[1])
    if here is None or there is None:
        return KernelChanges(
            notes=tuple(
                f"The {side} document does not hold the kernels of rank {rank}, so single kernels were not compared: diagnose its trace "
                "again with this version of the program."
                for side, one, (rank, _) in (("base", here, places[0]), ("new", there, places[1]))
                if one is None
            )
        )
    rows = [structs.replace(row, launches=round(row.launches * scale), work_ns=round(row.work_ns * scale)) for row in there.kernels]
    matched = match(here.kernels, rows, limits.kernels)
    slack = limits.capture.proportion.value if scale != 1 else limits.kernels.launches.value
    found = [_pair(pair, here.kernels, rows, slack, limits.kernels) for pair in matched.pairs]
    changed = [one for one in found if one is not None]
    changed += [_gone(here.kernels[place], rows, matched) for place in matched.gone]
    changed += [_added(rows[place], here.kernels, matched.streams) for place in matched.added]
    return KernelChanges(
        changes=tuple(sorted(changed, key=lambda row: (-abs(row.delta_ns), row.name, row.stream or 0))),
        same=len(found) - sum(one is not None for one in found),
        notes=tuple(
            f"The {side} document leaves out {one.omitted} kernel names with the least work ({one.omitted_ns / 1e6:.3f} ms per step "
            "together): one of them may look new or gone on the other side."
            for side, one in (("base", here), ("new", there))
            if one.omitted
        ),
    )


def _pair(pair: Pair, base: Sequence[KernelUse], new: Sequence[KernelUse], slack: float, limits: KernelLimits) -> KernelChange | None:
    """What changed of one kernel; None where nothing did. Of several changes the one that explains most time names it."""
    here, there = base[pair.base], new[pair.new]
    pace = _mean(there) - _mean(here)
    slower = abs(pace) > max(limits.pace.value * _mean(here), limits.pace_least_ns.value)
    often = abs(there.launches - here.launches) > slack * max(here.launches, there.launches)
    by_pace, by_count = (pace * there.launches if slower else 0), ((there.launches - here.launches) * _mean(here) if often else 0)
    kind: KernelChangeKind | None = None
    if pair.renamed:
        kind = "renamed"
    elif slower and abs(by_pace) >= abs(by_count):
        kind = "slower" if pace > 0 else "faster"
    elif often:
        kind = "more" if there.launches > here.launches else "fewer"
    elif pair.moved:
        kind = "moved"
    if kind is None:
        return None
    why = pair.why or (_two_ways(here, there, pace) if kind in ("slower", "faster") else "")
    return _change(kind, there, here, there, (here.stream, there.stream), why)


def _change(
    kind: KernelChangeKind,
    shown: KernelUse,
    here: KernelUse | None,
    there: KernelUse | None,
    streams: tuple[int | None, int | None],
    why: str,
) -> KernelChange:
    """The change of a kernel called as `shown`, on these streams of base and new; None on a side that does not run it."""
    base_ns, new_ns = here.work_ns if here else 0, there.work_ns if there else 0
    return KernelChange(
        kind=kind,
        name=shown.name,
        bucket=shown.bucket,
        role=shown.role,
        was=here.name if here and kind == "renamed" else None,
        stream=streams[1],
        was_stream=streams[0],
        base_launches=here.launches if here else 0,
        new_launches=there.launches if there else 0,
        base_launch_ns=here.launch_ns if here else None,
        new_launch_ns=there.launch_ns if there else None,
        base_work_ns=base_ns,
        new_work_ns=new_ns,
        delta_ns=new_ns - base_ns,
        why=why,
    )


def _mean(row: KernelUse) -> float:
    """The mean duration of a launch (ns), which is what its work goes by; the usual one where no launch was counted in the median step."""
    return row.work_ns / row.launches if row.launches else float(row.launch_ns)


def _two_ways(here: KernelUse, there: KernelUse, pace: float) -> str:
    """What has to be said where the mean launch went one way and the usual (median) one the other: few long launches decide."""
    usual = there.launch_ns - here.launch_ns
    if usual * pace >= 0:
        return ""
    return f"On average; the usual launch became {'longer' if usual > 0 else 'shorter'}, so a few long launches decide."


def _gone(row: KernelUse, new: Sequence[KernelUse], matched: Matched) -> KernelChange:
    back = {first: second for second, first in matched.streams.items()}
    why = "" if row.stream in back else "No stream of the new run does the work of this one."
    for one in new:
        if one.name == row.name:
            why = _still("It still runs", one, row, back.get(row.stream))
    return _change("gone", row, row, None, (row.stream, back.get(row.stream)), why)


def _still(words: str, other: KernelUse, row: KernelUse, stream: int | None) -> str:
    """Where the same name runs on the other side: for another part of the model, or on another stream."""
    return (
        f"{words} for another part of the model ({other.bucket})."
        if other.stream == stream and other.bucket != row.bucket
        else f"{words} on stream {other.stream}."
    )


def _added(row: KernelUse, base: Sequence[KernelUse], streams: Mapping[int | None, int | None]) -> KernelChange:
    why = next((_still("In base it runs", one, row, streams.get(row.stream)) for one in base if one.name == row.name), "")
    return _change("new", row, None, row, (None, row.stream), why)


# --- which kernel is which --------------------------------------------------------------------------------------------


class Pair(Struct, frozen=True, kw_only=True):
    """A kernel in both runs. `why` says how it was recognised where the name or the stream differs."""

    base: int
    new: int
    renamed: bool = False
    moved: bool = False
    why: str = ""


class Matched(Struct, frozen=True, kw_only=True):
    """All pairs, and the places of what is left over on both sides."""

    pairs: tuple[Pair, ...]
    gone: tuple[int, ...]
    added: tuple[int, ...]
    streams: Mapping[int | None, int | None]  # the base's stream of each of the new run's


def match(base: Sequence[KernelUse], new: Sequence[KernelUse], limits: KernelLimits) -> Matched:
    """The kernels of one device in both runs."""
    streams = _streams(base, new)
    pairs = _by_name(base, new, streams)
    left = _Left(base=base, new=new, streams=streams, limits=limits, pairs={pair.base: pair for pair in pairs})
    left.rename()
    found = tuple(sorted(left.pairs.values(), key=lambda pair: pair.base))
    return Matched(pairs=found, gone=left.gone, added=left.added, streams=streams)


# --- streams ----------------------------------------------------------------------------------------------------------


def _streams(base: Sequence[KernelUse], new: Sequence[KernelUse]) -> dict[int | None, int | None]:
    """The base's stream of each of the new run's: by most work under the same names, then for the same buckets and roles."""
    found: dict[int | None, int | None] = {}
    for by_name in (True, False):
        here, there = _profile(base, by_name), _profile(new, by_name)
        shared = [
            (sum(min(mine[key], yours[key]) for key in mine.keys() & yours.keys()), first, second)
            for first, mine in here.items()
            for second, yours in there.items()
        ]
        for work, first, second in sorted(shared, key=lambda row: (-row[0], _order(row[1]), _order(row[2]))):
            if work > 0 and second not in found and first not in found.values():
                found[second] = first
    return found


def _profile(rows: Sequence[KernelUse], by_name: bool) -> dict[int | None, dict[tuple[str, ...], int]]:
    found: dict[int | None, dict[tuple[str, ...], int]] = {}
    for row in rows:
        key = (row.name,) if by_name else (row.bucket, row.role)
        own = found.setdefault(row.stream, {})
        own[key] = own.get(key, 0) + row.work_ns + 1  # what takes no time counts a little
    return found


def _order(stream: int | None) -> int:
    return -1 if stream is None else stream


# --- the same name ----------------------------------------------------------------------------------------------------


def _by_name(base: Sequence[KernelUse], new: Sequence[KernelUse], streams: Mapping[int | None, int | None]) -> list[Pair]:
    """The same name for the same part on corresponding streams, then any part, then other streams; the costliest with the costliest."""
    pairs: list[Pair] = []
    for by_bucket, by_stream in ((True, True), (False, True), (True, False), (False, False)):
        taken_base, taken_new = {pair.base for pair in pairs}, {pair.new for pair in pairs}
        waiting: dict[tuple[object, ...], list[int]] = {}
        for place in _costliest(base, taken_base):
            waiting.setdefault(_key(base[place], base[place].stream, by_bucket, by_stream), []).append(place)
        for place in _costliest(new, taken_new):
            row = new[place]
            if by_stream and row.stream not in streams:
                continue
            found = waiting.get(_key(row, streams.get(row.stream), by_bucket, by_stream))
            if found:
                first = found.pop(0)
                pairs.append(
                    Pair(base=first, new=place, moved=not by_stream, why="" if by_stream else _moved_why(base[first], row, streams))
                )
    return pairs


def _costliest(rows: Sequence[KernelUse], taken: AbstractSet[int]) -> list[int]:
    """Places that are not taken, most work first."""
    return sorted((place for place in range(len(rows)) if place not in taken), key=lambda place: (-rows[place].work_ns, place))


def _key(row: KernelUse, stream: int | None, by_bucket: bool, by_stream: bool) -> tuple[object, ...]:
    return (row.name, (row.bucket, row.role) if by_bucket else None, stream if by_stream else None)


def _moved_why(first: KernelUse, second: KernelUse, streams: Mapping[int | None, int | None]) -> str:
    place = streams.get(second.stream)
    meant = f"which does the work of base's stream {place}" if second.stream in streams else "to which no stream of base corresponds"
    return f"The same name runs on stream {second.stream}, {meant}; in base it ran on stream {first.stream}."


# --- another name -----------------------------------------------------------------------------------------------------


class _Sign(Struct, frozen=True, kw_only=True):
    """How much speaks for a pair, and in words."""

    score: float
    why: str


@dataclass(kw_only=True)
class _Left:
    """What is matched so far; grows."""

    base: Sequence[KernelUse]
    new: Sequence[KernelUse]
    streams: Mapping[int | None, int | None]
    limits: KernelLimits
    pairs: dict[int, Pair]

    @property
    def gone(self) -> tuple[int, ...]:
        return tuple(place for place in range(len(self.base)) if place not in self.pairs)

    @property
    def added(self) -> tuple[int, ...]:
        taken = {pair.new for pair in self.pairs.values()}
        return tuple(place for place in range(len(self.new)) if place not in taken)

    def rename(self) -> None:
        """Match what stands in the same place under another name, the surest first, until nothing more is found."""
        while found := self._surest():
            self.pairs |= {pair.base: pair for pair in found}

    def _surest(self) -> list[Pair]:
        """The pairs for which most speaks, among those that are each other's only best."""
        signs = {
            (first, second): sign
            for first in self.gone
            for second in self.added
            if (sign := self._sign(first, second)) is not None and sign.score >= _ENOUGH
        }
        of_base = {first: [sign.score for (one, _), sign in signs.items() if one == first] for first, _ in signs}
        of_new = {second: [sign.score for (_, one), sign in signs.items() if one == second] for _, second in signs}
        only = {
            key: sign for key, sign in signs.items() if _only_best(sign.score, of_base[key[0]]) and _only_best(sign.score, of_new[key[1]])
        }
        most = max((sign.score for sign in only.values()), default=0.0)
        return [Pair(base=first, new=second, renamed=True, why=sign.why) for (first, second), sign in only.items() if sign.score == most]

    def _sign(self, first: int, second: int) -> _Sign | None:
        """What speaks for two rows being one kernel; None where they can't be."""
        here, there = self.base[first], self.new[second]
        if here.role != there.role or there.stream not in self.streams or self.streams[there.stream] != here.stream:
            return None
        variants, limits = self.limits.variants, self.limits
        variant = family(here.name, variants) == family(there.name, variants)
        if here.bucket != there.bucket and not variant:
            return None
        ratio = abs(there.launches - here.launches) / max(there.launches, here.launches, 1)
        beside = (("before", here.previous, there.previous), ("after", here.next, there.next))
        near = [word for word, mine, yours in beside if self._same(mine, yours)]
        itself = not near and any((mine, yours) == (first, second) for _, mine, yours in beside)  # runs of one kernel, on both sides
        if ratio > limits.alike_launches.value and len(near) < 2:
            return None
        equal = 1.0 if ratio <= limits.launches.value else 0.5 if ratio <= limits.alike_launches.value else 0.0
        function = 1.5 if variant else 0.5 if _function(here.name) == _function(there.name) else 0.0
        words = (
            ["the same function in another variant"] if variant else ["the same function with other template arguments"] if function else []
        )
        words += [f"the same kernel {' and '.join(near)} it"] if near else ["launched several times in a row"] if itself else []
        words += ["launched as often" if equal == 1.0 else "launched about as often"] if equal else []
        return _Sign(score=len(near) + itself + equal + function, why=f"Recognised by: {', '.join(words)}.")

    def _same(self, first: int | None, second: int | None) -> bool:
        """Whether two neighbours are one kernel; a stream's end is no sign."""
        return first is not None and second is not None and first in self.pairs and self.pairs[first].new == second


def _only_best(score: float, scores: Sequence[float]) -> bool:
    return score == max(scores) and scores.count(score) == 1


@lru_cache(maxsize=4096)
def family(name: str, variants: tuple[str, ...]) -> str:
    """A name without what only tells variants of one function apart: tile sizes, stages, numbers (trace_rules/comparison.yaml)."""
    text = name
    for pattern in variants:
        text = re.sub(pattern, "#", text)
    return re.sub(r"[#_\s]*#[#_\s]*", "#", text)


def _function(name: str) -> str:
    """A name without template and call arguments."""
    return re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]
