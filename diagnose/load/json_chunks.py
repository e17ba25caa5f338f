"""Large JSON files as a stream of bytes, and the bytes as chunks of whole events, in bounded memory.

Between two events of a list stands a closing brace, a comma, an opening brace and one of an event's keys. Inside a JSON
string quotes are escaped, so this pattern can't occur there, and a file can be cut at it without being parsed.
"""

from __future__ import annotations

import io
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO

from diagnose.errors import InputError


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

    blocks: Blocks
    size: int = 0
    is_plain: bool = False  # a regular file that is not packed


def open_blocks(source: Path | BinaryIO, display_name: str, chunk: int = CHUNK) -> Opened:
    """Open a plain, gzip or zip file, or a stream of one, whatever its name ends in.

    The blocks raise CutError, after everything that could be read, where the file is truncated or damaged, and
    InputError where it can't be read, is packed in another way, or unpacks to an implausible size.
    """
    try:
        file = source.open("rb") if isinstance(source, Path) else source
        opened = Opened(_nothing())
        first = _head(file, chunk)
    except OSError as error:
        raise InputError(
            f"{display_name} cannot be read: {error.strerror or error}.",
            effect="Nothing was analysed.",
            next_step="Check the path and its permissions.",
        ) from error
    is_regular = isinstance(source, Path) and stat.S_ISREG(source.stat().st_mode)
    opened.is_plain = is_regular and not first.startswith((b"\x1f\x8b", b"PK"))
    opened.blocks = _unpacked(file, first, opened, display_name, owned=isinstance(source, Path), chunk=chunk)
    return opened


def _head(file: BinaryIO, chunk: int) -> bytes:
    """At least the bytes that tell how the input is packed, if there are as many; a pipe may give fewer at a time."""
    head = b""
    while len(head) < 8 and (more := file.read(max(chunk, 8))):
        head += more
    return head


def _nothing() -> Blocks:
    yield from ()


def _unpacked(file: BinaryIO, first: bytes, opened: Opened, name: str, *, owned: bool, chunk: int) -> Blocks:
    try:
        packed = _counted(file, first, opened, chunk)
        if first.startswith(b"\x1f\x8b"):
            yield from _read_ahead(_gunzipped(packed, name))
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
        yield block
        try:
            block = file.read(chunk)
        except OSError as error:
            raise CutError(f"reading failed: {error.strerror or error}") from error


def _refuse_other_packing(first: bytes, name: str) -> None:
    packings = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7-Zip", b"\x04\x22\x4d\x18": "lz4"}
    for magic, packing in packings.items():
        if first.startswith(magic):
            raise InputError(
                f"{name} is packed with {packing}.", effect="Nothing was analysed.", next_step="Unpack it, or pack it with gzip."
            )
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            f"{name} is text in UTF-16.", effect="Nothing was analysed.", next_step="Convert it to UTF-8; the profiler itself writes UTF-8."
        )


def _bomb(name: str, unpacked: int) -> InputError:
    return InputError(
        f"{name} unpacks to an implausible size "
        f"(stopped at {unpacked >> 20} MiB, more than {_MAX_RATIO} times its own size or above 64 GiB).",
        effect="It was not analysed, since such a file may be made to exhaust memory.",
        next_step="If you trust the file, unpack it yourself and give the plain .json.",
    )


def _gunzipped(packed: Iterator[bytes], name: str) -> Blocks:
    """Unpack a gzip stream; memory stays at one chunk whatever the ratio."""
    written = 0
    for seen, out in _members(packed):
        written += len(out)
        if written > _MAX_UNPACKED or (written > _RATIO_FROM and written > _MAX_RATIO * seen):
            raise _bomb(name, written)
        if out:
            yield out


def _members(packed: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Bytes read so far and bytes unpacked, member by member of a gzip stream."""
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
            raise InputError(
                f"{name} is a zip file that cannot be unpacked: {error}.",
                effect="Nothing was analysed.",
                next_step="Unpack it and give the trace inside.",
            ) from error


def _only_trace(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename.lower().endswith((".json", ".json.gz")) and not info.is_dir()]
    if len(found) != 1:
        held = "no .json file" if not found else f"{len(found)} .json files"
        raise InputError(
            f"{name} is a zip file that holds {held}.",
            effect="Nothing was analysed.",
            next_step="Unpack it and give the trace, or the folder of traces.",
        )
    return found[0]


def _member_blocks(member: IO[bytes], info: zipfile.ZipInfo, name: str) -> Blocks:
    first = member.read(CHUNK)
    if first.startswith(b"\x1f\x8b"):
        yield from _gunzipped(_chain(first, member), name)
        return
    written = 0
    for block in _chain(first, member):
        written += len(block)
        if written > _MAX_UNPACKED or (written > _RATIO_FROM and written > _MAX_RATIO * max(info.compress_size, 1)):
            raise _bomb(name, written)
        yield block


def _chain(first: bytes, member: IO[bytes]) -> Blocks:
    block = first
    while block:
        yield block
        block = member.read(CHUNK)


def last_boundary(data: bytes | bytearray, start: int = 0) -> int | None:
    """Where the last whole event in `data` ends (just after its brace), or None when no boundary is found after `start`."""
    for pattern in (BOUNDARY, _ANY_BOUNDARY):
        high = len(data)
        while high > start:
            low = max(start, high - _WINDOW)
            found = None
            for match in pattern.finditer(data, low, min(len(data), high + 256)):
                found = match
            if found is not None:
                return found.start() + 1
            high = low
        if len(data) - start < 4 * CHUNK:
            return None  # wait for more before falling back on the looser pattern
    return None
