"""Large JSON files as a stream of bytes, the bytes as chunks of whole events, and the chunks decoded, in bounded memory.

Between two events of a list stands a closing brace, a comma, an opening brace and one of an event's keys. Inside a JSON string quotes are
escaped, so this pattern can't occur there, and a file can be cut at it without being parsed.

Good chunks are decoded in one call. A chunk that fails (a damaged event, NaN, a boundary inside a nested list, the list's end) is salvaged
event by event: what can be decoded is kept, the rest is counted. One large plain file is decoded by several processes: each takes a range
of whole events.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import polars as pl
from msgspec import Struct

from diagnose.errors import InputError
from diagnose.load.files import refused
from diagnose.load.kineto_columns import (
    EXACT_EVENTS,
    UNDECODABLE,
    WHOLE_EVENTS,
    Columns,
    Events,
    ExactEvent,
    Lookup,
    Part,
    append,
    one_event,
)
from diagnose.load.progress import tell


def _unpackers() -> tuple[Any, type[Exception]]:
    """The module that unpacks gzip, and what it raises for damaged data: isal where it is there, else the standard library's."""
    if find_spec("isal") is None:
        return zlib, zlib.error
    return import_module("isal.isal_zlib"), import_module("isal.igzip_lib").IsalError


_ZLIB, _DAMAGED = _unpackers()
CHUNK = 2 << 20  # bytes; 1 to 8 MiB are alike in speed, more costs memory
_GZIP_READ = 256 << 10
_MAX_UNPACKED = 64 << 30
_MAX_RATIO = 200  # JSON packs 10 to 40 times; a bomb about 1000 times
_RATIO_FROM = 64 << 20  # below this a high ratio does no harm

_KEYS = rb"ph|name|cat|pid|tid|ts|args|dur|id|bp|s|cname|tts|sf|bind_id"
BOUNDARY = re.compile(rb"\}\s*,\s*\{\s*\"(?:" + _KEYS + rb")\"")
_ANY_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_WINDOW = 1 << 16

Blocks = Generator[bytes, None, None]


class CutError(Exception):
    """Private to the readers: the input ends, or can't be unpacked any further, before its content ends."""


@dataclass
class Opened:
    """A byte stream being read: `blocks` yields it unpacked; `size` counts the packed bytes seen so far."""

    blocks: Blocks = field(init=False)
    size: int = 0
    whole: int = 0  # packed bytes of the file; 0 for a stream, which does not tell
    is_plain: bool = False  # a regular file that is not packed


def open_blocks(source: Path | BinaryIO, display_name: str, chunk: int = CHUNK) -> Opened:
    """Open a plain, gzip or zip file, or a stream of one, whatever its name ends in.

    The blocks raise CutError, after everything that could be read, where the file is truncated or damaged, and
    InputError where it can't be read, is packed in another way, or unpacks to an implausible size.
    """
    try:
        file = source.open("rb") if isinstance(source, Path) else source
        opened = Opened()
        first = _head(file, chunk)
    except OSError as error:
        raise refused(f"{display_name} cannot be read: {error.strerror or error}.", "Check the path and its permissions.") from error
    is_regular = isinstance(source, Path) and stat.S_ISREG(source.stat().st_mode)
    opened.whole = source.stat().st_size if is_regular and isinstance(source, Path) else 0
    opened.is_plain = is_regular and not first.startswith((b"\x1f\x8b", b"PK"))
    opened.blocks = _unpacked(file, first, opened, display_name, owned=isinstance(source, Path), chunk=chunk)
    return opened


def _head(file: BinaryIO, chunk: int) -> bytes:
    """At least the bytes that tell how the input is packed, if there are as many; a pipe may give fewer at a time."""
    head = b""
    while len(head) < 8 and (more := file.read(max(chunk, 8))):
        head += more
    return head


def _unpacked(file: BinaryIO, first: bytes, opened: Opened, name: str, *, owned: bool, chunk: int) -> Blocks:
    try:
        packed = _counted(file, first, opened, chunk)
        if first.startswith(b"\x1f\x8b"):
            yield from _read_ahead(_bounded(_members(packed), name))
        elif first.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            yield from _unzipped(file, first, opened, name)
        else:
            _refuse_other_packing(first, name)
            yield from packed
    finally:
        if owned:
            file.close()


def _counted(file: BinaryIO, first: bytes, opened: Opened, chunk: int) -> Blocks:
    block = first
    while block:
        opened.size += len(block)
        tell(opened.size, opened.whole, "bytes")
        yield block
        try:
            block = file.read(chunk)
        except OSError as error:
            raise CutError(f"reading failed: {error.strerror or error}") from error


def _refuse_other_packing(first: bytes, name: str) -> None:
    packings = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7-Zip", b"\x04\x22\x4d\x18": "lz4"}
    for magic, packing in packings.items():
        if first.startswith(magic):
            raise refused(f"{name} is packed with {packing}.", "Unpack it, or pack it with gzip.")
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refused(f"{name} is text in UTF-16.", "Convert it to UTF-8; the profiler itself writes UTF-8.")


def _bounded(blocks: Iterator[tuple[int, bytes]], name: str) -> Blocks:
    """The unpacked blocks that come with the packed bytes so far, while their sum is plausible."""
    written = 0
    for seen, out in blocks:
        written += len(out)
        if written > _MAX_UNPACKED or (written > _RATIO_FROM and written > _MAX_RATIO * seen):
            raise InputError(
                f"{name} unpacks to an implausible size "
                f"(stopped at {written >> 20} MiB, more than {_MAX_RATIO} times its own size or above 64 GiB).",
                effect="It was not analysed, since such a file may be made to exhaust memory.",
                next_step="If you trust the file, unpack it yourself and give the plain .json.",
            )
        if out:
            yield out


def _members(packed: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Bytes read so far and bytes unpacked, member by member of a gzip stream; memory stays at one chunk whatever the ratio."""
    unpacker = _ZLIB.decompressobj(wbits=31)
    seen, between, members = 0, True, 0
    for block in packed:
        for low in range(0, len(block), _GZIP_READ):
            data = block[low : low + _GZIP_READ]
            seen += len(data)
            while data:
                try:
                    out = unpacker.decompress(data, CHUNK)
                except _DAMAGED as error:
                    if between and members:
                        return  # padding or other bytes after the last member, as gzip itself ignores them
                    raise CutError("the gzip data is damaged") from error
                yield seen, out
                between = unpacker.eof
                data = unpacker.unused_data.lstrip(b"\0") if between else unpacker.unconsumed_tail
                if between:
                    unpacker, members = _ZLIB.decompressobj(wbits=31), members + 1
    while not between and (out := unpacker.decompress(b"", CHUNK)):
        yield seen, out
    if not between and not unpacker.eof:
        raise CutError("the gzip data ends early")


def _read_ahead(blocks: Iterator[bytes]) -> Blocks:
    """The same blocks, the next one being prepared by a thread meanwhile (unpacking frees the interpreter)."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        ahead = pool.submit(next, blocks, b"")
        while block := ahead.result():
            ahead = pool.submit(next, blocks, b"")
            yield block


def _unzipped(file: BinaryIO, first: bytes, opened: Opened, name: str) -> Blocks:
    """The one trace inside a zip file. No member's name is used as a path."""
    try:
        seekable = file.seekable()
    except AttributeError:
        seekable = False
    with tempfile.SpooledTemporaryFile(max_size=64 << 20) as spool:
        if not seekable:
            spool.write(first)
            shutil.copyfileobj(file, spool)
        try:
            whole: IO[bytes] = file if seekable else spool
            opened.size = whole.seek(0, io.SEEK_END)
            archive = zipfile.ZipFile(whole)
            info = _only_trace(archive, name)
            with archive.open(info) as member:
                yield from _member_blocks(member, info, name)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError, OSError) as error:
            if isinstance(error, RuntimeError) and "encrypted" not in str(error) and not isinstance(error, NotImplementedError):
                raise
            raise refused(f"{name} is a zip file that cannot be unpacked: {error}.", "Unpack it and give the trace inside.") from error


def _only_trace(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename.lower().endswith((".json", ".json.gz")) and not info.is_dir()]
    if len(found) != 1:
        held = "no .json file" if not found else f"{len(found)} .json files"
        raise refused(f"{name} is a zip file that holds {held}.", "Unpack it and give the trace, or the folder of traces.")
    return found[0]


def _member_blocks(member: IO[bytes], info: zipfile.ZipInfo, name: str) -> Blocks:
    first = member.read(CHUNK)
    blocks = chain([first], iter(partial(member.read, CHUNK), b""))
    packed = first.startswith(b"\x1f\x8b")
    return _bounded(_members(blocks) if packed else ((max(info.compress_size, 1), block) for block in blocks), name)


def last_boundary(data: bytes | bytearray) -> int | None:
    """Where the last whole event in `data` ends (just after its brace), or None when no boundary is found."""
    for pattern in (BOUNDARY, _ANY_BOUNDARY):
        high = len(data)
        while high > 0:
            low = max(0, high - _WINDOW)
            found = None
            for match in pattern.finditer(data, low, min(len(data), high + 256)):
                found = match
            if found is not None:
                return found.start() + 1
            high = low
        if len(data) < 4 * CHUNK:
            return None  # wait for more before falling back on the looser pattern
    return None


_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)
_BETWEEN = re.compile(rb"[\s,]*")
_SCALAR = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^,\[{\s"]+', re.DOTALL)
_LIST_END = re.compile(rb"\}\s*\]\s*(?:,\s*\"|\}|\Z)")
_AFTER_END = re.compile(rb"\]\s*+(?:,\s*+(?!\{)|\}|\Z|[^\s,])")
_MAX_EVENT = 1 << 19  # an unbalanced event is given up after this many bytes
_MAX_PENDING = 64 << 20  # without any boundary; then what can be decoded is taken and the rest given up
_MAX_TAIL = 64 << 20
_LONG_SCAN = 1 << 16
_MAX_SCANS = 60  # long ones, of unbalanced events; after that the next boundary decides


@dataclass
class EventStream:
    """Iterate to get lists of events; afterwards `tail` is the text from the list's closing bracket on.

    `undecodable` counts events that were given up, `bad_text` those with text that is no Unicode, and `cut` says why the
    input ended early. `open_end`: the text is a part of a larger list, so that no closing bracket is expected.
    """

    blocks: Iterator[bytes]
    start: bytes
    chunk: int = CHUNK
    open_end: bool = False
    tail: bytes | None = None
    cut: str | None = None
    undecodable: int = 0
    bad_text: int = 0
    _exact_times: bool = False
    _scans: int = 0

    def __iter__(self) -> Iterator[Events]:
        pending, size = [self.start] if self.start else [], len(self.start)  # the first piece is where separators are stripped
        while self.tail is None:
            block = self._next_block()
            pending.append(block)
            size += len(block)
            if block and size < self.chunk:
                continue
            if not block:
                yield from self._take_last(b"".join(pending))
                return
            end = last_boundary(block)
            if end is None:  # none in the last block: it may lie across blocks, or further back
                pending = [b"".join(pending)]
                end = last_boundary(pending[0])
            if end is None and size < _MAX_PENDING:
                continue
            after = pending[-1][end:] if end is not None else b""
            pending[-1] = pending[-1][:end]
            events, rest = self._take(pending)
            if events:
                yield events
            del events
            pending = [rest + after]
            size = len(pending[0])
        self._collect_tail(b"".join(pending))

    def _next_block(self) -> bytes:
        try:
            return next(self.blocks, b"")
        except CutError as error:
            self.cut = str(error)
            return b""

    def _take(self, pieces: list[bytes]) -> tuple[Events, bytes]:
        """Decode a chunk that is followed by more input: its events, and what must wait for the next chunk."""
        events = self._decode(pieces)
        if events is not None:
            return events, b""
        text = b"".join(pieces)
        events, rest = self._decode_up_to_end(text)
        if events is not None:
            self.tail = b""
            return events, rest
        salvaged, position, ended = self._salvage(text, last=False)
        if ended:
            self.tail = b""
        return salvaged, text[position:]

    def _take_last(self, text: bytes) -> Iterator[Events]:
        if not text.strip(b", \t\r\n"):
            self._end_missing()
            return
        events, rest = self._decode_up_to_end(text)
        if events is not None:
            self.tail = rest
        else:
            salvaged, position, ended = self._salvage(text, last=True)
            events = salvaged
            if ended:
                self.tail = text[position:]
            else:
                self._end_missing()
        if events:
            yield events

    def _end_missing(self) -> None:
        if not self.open_end and self.cut is None:
            self.cut = "the list of events has no end"

    def _collect_tail(self, start: bytes) -> None:
        tail = [start]
        size = len(start)
        while block := self._next_block():
            size += len(block)
            if size < _MAX_TAIL:
                tail.append(block)
        self.tail = b"".join(tail)

    def _decode(self, pieces: list[bytes]) -> Events | None:
        """All of the joined `pieces` as events; None when any part is something else. Whole microseconds while they last."""
        wrapped = b"".join((b"[", pieces[0].lstrip(b", \t\r\n"), *pieces[1:], b"]"))
        if not self._exact_times:
            try:
                return WHOLE_EVENTS.decode(wrapped)
            except UNDECODABLE:
                pass
        try:
            events = EXACT_EVENTS.decode(wrapped)
        except UNDECODABLE:
            return None
        self._exact_times = True
        return events

    def _decode_up_to_end(self, text: bytes) -> tuple[Events | None, bytes]:
        """The events before the list's closing bracket and the text from it on, when all of them are good."""
        for match in list(zip(_LIST_END.finditer(text), range(3), strict=False)):
            bracket = text.index(b"]", match[0].start())
            events = self._decode([text[: match[0].start() + 1]])
            if events is not None:
                return events, text[bracket:]
        return None, b""

    def _salvage(self, text: bytes, *, last: bool) -> tuple[Events, int, bool]:
        """Decode event by event: the good ones, where reading stopped, and whether that is the list's end."""
        events: list[ExactEvent] = []
        self._exact_times = True
        position = 0
        while True:
            position = cast("re.Match[bytes]", _BETWEEN.match(text, position)).end()
            if position >= len(text):
                return events, position, False
            sign = text[position]
            if sign == 0x5D:  # a closing bracket
                if not last and len(text) - position < 64:
                    return events, position, False
                if _AFTER_END.match(text, position):
                    return events, position, True
                position += 1
                self.undecodable += 1
                continue
            if sign in b"{[":
                following = self._salvage_one(text, position, events, last=last)
                if following is None:
                    return events, position, False
                position = following
                continue
            self.undecodable += 1
            scalar = _SCALAR.match(text, position)
            position = max(scalar.end() if scalar else 0, position + 1)

    def _salvage_one(self, text: bytes, position: int, events: list[ExactEvent], *, last: bool) -> int | None:
        """Decode the event at `position`; where the next one starts, or None when this one goes on beyond `text`."""
        boundary = BOUNDARY.search(text, position)
        if boundary is not None:
            event = self._decode_one(text[position : boundary.start() + 1])
            if event is not None:
                events.append(event)
                return boundary.start() + 1
        end = self._balanced_end(text, position)
        if end is not None and (boundary is None or end != boundary.start() + 1):
            event = self._decode_one(text[position:end])
            if event is not None:
                events.append(event)
                return end
        if end is None and not last and len(text) - position < _MAX_EVENT:
            return None
        if end is None and boundary is None and last:
            self.undecodable += self.open_end
            self._end_missing()
            return len(text)
        self.undecodable += 1
        return boundary.start() + 1 if boundary else (end or len(text))

    def _balanced_end(self, text: bytes, position: int) -> int | None:
        """Where the JSON value that opens at `position` is closed; None when that isn't within reach."""
        if self._scans > _MAX_SCANS:
            return None
        depth = 0
        for token in _TOKEN.finditer(text, position, position + _MAX_EVENT):
            sign = text[token.start()]
            if sign in b"{[":
                depth += 1
            elif sign in b"}]":
                depth -= 1
                if depth == 0:
                    return token.end()
        self._scans += len(text) - position > _LONG_SCAN
        return None

    def _decode_one(self, text: bytes) -> ExactEvent | None:
        event, bad = one_event(text)
        self.bad_text += bad
        return event


PAYS_FROM = 300 << 20  # bytes; below this, starting a process costs more than it saves
_HEAD_START = 0.07  # share of the file that this process takes more, since the others have to be started first
_REACH = 8 << 20  # how far from the ideal place a split may be
_IDS = {"name_id": "names", "text_id": "names", "payload_id": "payloads"}


class Decoded(Struct, frozen=True, kw_only=True):
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
    ends = splits(path, start, processes)
    if len(ends) < 3:
        return None
    (first, *others) = list(pairwise(ends))
    try:
        with ProcessPoolExecutor(len(others), mp_context=multiprocessing.get_context("spawn")) as pool:
            futures = [pool.submit(decode_range, path, low, high, chunk, is_last=high == ends[-1]) for low, high in others]
            found = [decode_range(path, *first, chunk, is_last=False), *(future.result() for future in futures)]
    except (BrokenProcessPool, OSError):
        return None
    return Decoded(
        part=joined([piece.part for piece in found]),
        undecodable=sum(piece.undecodable for piece in found),
        cut=next((piece.cut for piece in found if piece.cut is not None), None),
        tail=found[-1].tail,
    )


def splits(path: Path, start: int, processes: int) -> list[int]:
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


def decode_range(path: Path, low: int, high: int, chunk: int, *, is_last: bool) -> Decoded:
    """Decode the events in the bytes from `low` to `high`, `chunk` at a time; the list's closing bracket is expected in the last alone."""
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
    known = {column: Lookup(partial(append, getattr(whole, column))) for column in ("names", "payloads")}
    for column, lookup in known.items():
        lookup.update({value: index for index, value in enumerate(getattr(whole, column))})
    for part in others:
        new_ids = {
            column: pl.Series([lookup[value] for value in getattr(part, column)], dtype=pl.Int32) for column, lookup in known.items()
        }
        for table, pieces in part.frames.items():
            whole.frames[table] += [
                piece.with_columns(new_ids[_IDS[name]].gather(piece[name]).alias(name) for name in piece.columns if name in _IDS)
                for piece in pieces
            ]
        whole.read.update(part.read)
        whole.refused.update(part.refused)
        whole.pids.update(part.pids)
        whole.thread_names.update(part.thread_names)
        whole.overhead += part.overhead
        whole.duration_ns = max((length for length in (whole.duration_ns, part.duration_ns) if length is not None), default=None)
        whole.events += part.events
        whole.halves += part.halves
        whole.bad_text += part.bad_text
    return whole
