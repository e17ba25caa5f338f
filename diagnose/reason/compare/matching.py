"""Which kernel of one run is which of the other: by name and stream, then by place in the sequence.

Streams are matched by what runs on them, because their numbers mean nothing. A kernel that one run lacks and one that the other lacks are the same under another name where they stand in the same place: between
kernels that are matched already, launched about as often, for the same part of the model. What has been matched so helps to match its neighbours, until nothing more is found. Where several could
be meant, none is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

from diagnose.document.steps import KernelUse
from diagnose.reason.compare.limits import load_limits

_ENOUGH = 2.0  # two signs, such as a neighbour and equal launches


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A kernel in both runs. `why` says how it was recognised where the name or the stream differs."""

    base: int
    new: int
    renamed: bool = False
    moved: bool = False
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Matched:
    """All pairs, and the places of what is left over on both sides."""

    pairs: tuple[Pair, ...]
    gone: tuple[int, ...]
    added: tuple[int, ...]
    streams: Mapping[int | None, int | None]  # the base's stream of each of the new run's


def match(base: Sequence[KernelUse], new: Sequence[KernelUse]) -> Matched:
    """The kernels of one device in both runs."""
    streams = _streams(base, new)
    pairs = _by_name(base, new, streams)
    left = _Left(base=base, new=new, streams=streams, pairs={pair.base: pair for pair in pairs})
    left.rename()
    found = tuple(sorted(left.pairs.values(), key=lambda pair: pair.base))
    return Matched(pairs=found, gone=left.gone, added=left.added, streams=streams)


# --- streams ----------------------------------------------------------------------------------------------------------


def _streams(base: Sequence[KernelUse], new: Sequence[KernelUse]) -> dict[int | None, int | None]:
    """The base's stream of each stream of the new run: most work under the same names first, then most work for the same buckets and roles."""
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
    """The same name for the same part of the model on corresponding streams, then for any part, then on other streams (costliest with costliest)."""
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


@dataclass(frozen=True, kw_only=True)
class _Sign:
    """How much speaks for a pair, and in words."""

    score: float
    why: str


@dataclass(kw_only=True)
class _Left:
    """What is matched so far; grows."""

    base: Sequence[KernelUse]
    new: Sequence[KernelUse]
    streams: Mapping[int | None, int | None]
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
        variant = family(here.name) == family(there.name)
        if here.bucket != there.bucket and not variant:
            return None
        ratio = abs(there.launches - here.launches) / max(there.launches, here.launches, 1)
        limits = load_limits().kernels
        near = [word for word, same in self._neighbours(here, there) if same]
        if ratio > limits.alike_launches.value and len(near) < 2:
            return None
        equal = 1.0 if ratio <= limits.launches.value else 0.5 if ratio <= limits.alike_launches.value else 0.0
        function = 1.5 if variant else 0.5 if _function(here.name) == _function(there.name) else 0.0
        words = (
            ["the same function in another variant"] if variant else ["the same function with other template arguments"] if function else []
        )
        words += [f"the same kernel {' and '.join(near)} it"] if near else []
        words += ["launched as often" if equal == 1.0 else "launched about as often"] if equal else []
        return _Sign(score=len(near) + equal + function, why=f"Recognised by: {', '.join(words)}.")

    def _neighbours(self, here: KernelUse, there: KernelUse) -> tuple[tuple[str, bool], tuple[str, bool]]:
        return ("before", self._same(here.previous, there.previous)), ("after", self._same(here.next, there.next))

    def _same(self, first: int | None, second: int | None) -> bool:
        """Whether two neighbours are one kernel; a stream's end is no sign."""
        return first is not None and second is not None and first in self.pairs and self.pairs[first].new == second


def _only_best(score: float, scores: Sequence[float]) -> bool:
    return score == max(scores) and scores.count(score) == 1


@lru_cache(maxsize=4096)
def family(name: str) -> str:
    """A name without what only tells variants of one function apart: tile sizes, stages, numbers (trace_rules/comparison.yaml)."""
    text = name
    for pattern in load_limits().kernels.variants:
        text = re.sub(pattern, "#", text)
    return re.sub(r"[#_\s]*#[#_\s]*", "#", text)


def _function(name: str) -> str:
    """A name without template and call arguments."""
    return re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]
