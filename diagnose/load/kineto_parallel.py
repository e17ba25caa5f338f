"""One large plain file decoded by several processes: each takes a range of whole events."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl

from diagnose.load.json_chunks import BOUNDARY, CHUNK, CutError
from diagnose.load.kineto_columns import Columns, Lookup, Part
from diagnose.load.kineto_events import one_event
from diagnose.load.kineto_stream import EventStream

PAYS_FROM = 300 << 20  # bytes; below this, starting a process costs more than it saves
_HEAD_START = 0.07  # share of the file that this process takes more, since the others have to be started first
_REACH = 8 << 20  # how far from the ideal place a split may be
_IDS = {"name_id": "names", "text_id": "names", "payload_id": "payloads"}


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """One part of the list as decoded: its columns, and what `EventStream` tells afterwards."""

    part: Part
    undecodable: int
    cut: str | None
    tail: bytes | None


@contextmanager
def collector_off() -> Iterator[None]:
    """Millions of structs without cycles: the collector would only walk them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def decode_stream(stream: EventStream) -> Decoded:
    """All of `stream` as columns."""
    columns = Columns()
    for events in stream:
        columns.add(events)
    part = columns.part
    part.bad_text = stream.bad_text
    return Decoded(part=part, undecodable=stream.undecodable, cut=stream.cut, tail=stream.tail)


def decode_ranges(path: Path, start: int, processes: int, chunk: int = CHUNK) -> Decoded | None:
    """Decode the events of the plain file `path` from byte `start` on in up to `processes` processes, this one included.

    None where that can't be done (no safe place to split, or no process could be started): decode in one then.
    """
    ends = _splits(path, start, processes)
    if len(ends) < 3:
        return None
    (first, *others) = list(pairwise(ends))
    try:
        with ProcessPoolExecutor(len(others), mp_context=multiprocessing.get_context("spawn")) as pool:
            futures = [pool.submit(_decode_range, path, low, high, chunk, is_last=high == ends[-1]) for low, high in others]
            found = [_decode_range(path, *first, chunk, is_last=False), *(future.result() for future in futures)]
    except (BrokenProcessPool, OSError):
        return None
    return Decoded(
        part=joined([piece.part for piece in found]),
        undecodable=sum(piece.undecodable for piece in found),
        cut=next((piece.cut for piece in found if piece.cut is not None), None),
        tail=found[-1].tail,
    )


def _splits(path: Path, start: int, processes: int) -> list[int]:
    """Byte offsets between which each process decodes: `start`, places between two events, and the file's size."""
    size = path.stat().st_size
    ends = [start]
    with path.open("rb") as file:
        for index in range(1, processes):
            share = index / processes + _HEAD_START * (processes - index) / (processes - 1)
            file.seek(start + int((size - start) * share))
            at = file.tell()
            place = _between_events(file.read(_REACH))
            if place is not None and at + place > ends[-1]:
                ends.append(at + place)
    return [*ends, size]


def _between_events(text: bytes) -> int | None:
    """Where an event ends in `text`, the next one being a real event and not part of a nested list; None if nowhere."""
    matches = BOUNDARY.finditer(text)
    for match, following in pairwise(matches):
        opening = text.index(b"{", match.start())
        event, _ = one_event(text[opening : following.start() + 1])
        if event is not None and event.ph is not None and event.ts != b"null" and event.name is not None:
            return match.start() + 1
    return None


def _decode_range(path: Path, low: int, high: int, chunk: int, *, is_last: bool) -> Decoded:
    with collector_off():
        found = decode_stream(EventStream(_blocks(path, low, high, chunk), b"", chunk, open_end=not is_last))
    frames = {table: [pl.concat(pieces)] for table, pieces in found.part.frames.items()}
    found.part.frames.clear()
    found.part.frames.update(frames)
    return found


def _blocks(path: Path, low: int, high: int, chunk: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(low)
            while low < high and (block := file.read(min(chunk, high - low))):
                low += len(block)
                yield block
    except OSError as error:
        raise CutError(f"reading failed: {error.strerror or error}") from error


def joined(parts: list[Part]) -> Part:
    """One Part of several, in order, with the ids of the first; the later ones' are translated."""
    whole, *others = parts
    known = {column: Lookup(partial(_append, getattr(whole, column))) for column in ("names", "payloads")}
    for column, lookup in known.items():
        lookup.update({value: index for index, value in enumerate(getattr(whole, column))})
    for part in others:
        new_ids = {
            column: pl.Series([lookup[value] for value in getattr(part, column)], dtype=pl.Int32) for column, lookup in known.items()
        }
        for table, pieces in part.frames.items():
            whole.frames[table] += [_translated(piece, new_ids) for piece in pieces]
        whole.read.update(part.read)
        whole.refused.update(part.refused)
        whole.pids.update(part.pids)
        whole.thread_names.update(part.thread_names)
        for name, duration in part.overhead.items():
            whole.overhead[name] = whole.overhead.get(name, 0) + duration
        whole.duration_ns = max((length for length in (whole.duration_ns, part.duration_ns) if length is not None), default=None)
        whole.events += part.events
        whole.bad_text += part.bad_text
    return whole


def _append(values: list[object], value: object) -> int:
    values.append(value)
    return len(values) - 1


def _translated(frame: pl.DataFrame, new_ids: dict[str, pl.Series]) -> pl.DataFrame:
    columns = [name for name in frame.columns if name in _IDS]
    return frame.with_columns(new_ids[_IDS[name]].gather(frame[name]).alias(name) for name in columns)
