"""PyTorch profiler (Kineto) JSON in, a RawTrace out; one file is one rank."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from diagnose.errors import ForeignInputError, InputError
from diagnose.knowledge.environment import EnvironmentRules
from diagnose.load.conform import RawTrace, conform
from diagnose.load.files import NOTHING, Reader, refused
from diagnose.load.kineto_stream import (
    CHUNK,
    PAYS_FROM,
    CutError,
    Decoded,
    EventStream,
    collector_off,
    decode_ranges,
    decode_stream,
    open_blocks,
)
from diagnose.load.kineto_tables import raw_trace

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*[^\s\[]')
_MAX_HEAD = 64 << 20
_WRITE = "Write the trace with torch.profiler: prof.export_chrome_trace(path), or on_trace_ready=tensorboard_trace_handler(folder)."

# Other tools' JSON, known by keys near its beginning.
_LOOKALIKES = (
    (
        re.compile(rb'^\s*\{\s*"schema".*"nodes"\s*:\s*\[|"(?:ctrl_deps|fw_parent)"\s*:', re.DOTALL),
        "a PyTorch execution trace (operators and tensors, without times on the GPU)",
    ),
    (
        re.compile(rb'^\s*\{"data"\s*:\s*\["|"Type"\s*:\s*\d+\s*,\s*"\w+Event"\s*:'),
        "an nsys export of type json, whose events are not tables",
    ),
    (re.compile(rb'"device_traces"\s*:'), "a CUDA memory snapshot"),
)


def read(
    source: Path | BinaryIO,
    *,
    display_name: str,
    rank: int | None = None,
    rules: EnvironmentRules | None = None,
    chunk: int = CHUNK,
    processes: int = 1,
) -> RawTrace:
    """Read one trace: a path or binary stream of plain, gzip or zip JSON.

    `rank` names the global rank and goes before what the file tells. `rules` say what may be taken out of the environment (without them
    nothing is). `chunk` is the size in bytes of the pieces decoded at once. With `processes` above 1 a large plain file is decoded by
    that many processes. Raises InputError for what is not such a trace.
    """
    opened = open_blocks(source, display_name, chunk)
    try:
        with collector_off():
            keys, start, is_object = find_events(opened.blocks, display_name)
            decoded = _in_parallel(source, opened.size - len(start), processes, chunk) if processes > 1 and opened.is_plain else None
            if decoded is None:
                decoded = decode_stream(EventStream(opened.blocks, start, chunk))
    finally:
        opened.blocks.close()
    cut = decoded.cut
    goes_on = not is_object and _is_json(decoded.tail.decode(errors="replace").lstrip().removeprefix("]")) if decoded.tail else False
    if is_object and decoded.tail is not None:
        more, rest = _object(b'{"traceEvents": [' + decoded.tail)
        if more is None and cut is None:
            cut = "what follows the events is not whole"
        if (more or {}).pop("traceEvents", None):
            raise refused(f'{display_name} holds "traceEvents" twice: which of the lists are its events can\'t be told.', _WRITE)
        keys, goes_on = {**keys, **(more or {})}, _is_json(rest)
    if not decoded.part.read and decoded.undecodable == 0:
        raise InputError(f"{display_name} is an empty list of events.", effect="There is nothing to diagnose.", next_step=_WRITE)
    size = source.stat().st_size if isinstance(source, Path) and opened.is_plain else opened.size
    return raw_trace(keys, decoded.part, decoded.undecodable, cut, file=display_name, size=size, rank=rank, rules=rules, goes_on=goes_on)


def _in_parallel(source: Path | BinaryIO, start: int, processes: int, chunk: int) -> Decoded | None:
    if not isinstance(source, Path) or source.stat().st_size < PAYS_FROM:
        return None
    return decode_ranges(source, start, processes, chunk)


def find_events(blocks: Iterator[bytes], name: str) -> tuple[dict[str, Any], bytes, bool]:
    """The keys before the list of events, the text from the first event on, and whether the list stands in an object."""
    head = b""
    while True:
        try:
            block = next(blocks, b"")
        except CutError:
            block = b""
        head = (head + block).removeprefix(b"\xef\xbb\xbf").lstrip()
        if head[:1] == b"[":
            return {}, head[1:], False
        if head and head[:1] != b"{":
            raise refused(f"{name} is not JSON.", _WRITE)
        found = _first_events(head)
        if found is not None:
            return found
        if not block or len(head) > _MAX_HEAD:
            raise _no_events(head, name)


def _first_events(head: bytes) -> tuple[dict[str, Any], bytes, bool] | None:
    fallback: tuple[dict[str, Any], bytes, bool] | None = None
    for match in _EVENTS.finditer(head):
        keys, _ = _object(head[: match.start()].rstrip().removesuffix(b",") + b"}")
        if keys is not None:
            return keys, head[match.end() :], True
        fallback = fallback or ({}, head[match.end() :], True)
    return fallback


def _is_json(text: str) -> bool:
    """Whether text begins as another trace does; zero bytes, with which copies are padded, aside."""
    return text.lstrip(" ,\t\r\n\0").startswith(("{", "["))


def _object(text: bytes) -> tuple[dict[str, Any] | None, str]:
    """The JSON object that `text` starts with, or None, and whatever follows it."""
    read = text.decode(errors="replace")
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(read)
    except (ValueError, RecursionError):
        return None, ""
    if not isinstance(value, dict):
        return None, ""
    return value, read[end:]


def _no_events(head: bytes, name: str) -> InputError:
    if not head:
        return refused(f"{name} is empty.", _WRITE)
    if _EVENTS_KEY.search(head):
        return refused(f'{name}: "traceEvents" is not a list.', _WRITE)
    for pattern, what in _LOOKALIKES:
        if pattern.search(head[: 1 << 16]):
            return ForeignInputError(f"{name} is {what}.", effect=NOTHING, next_step=_WRITE)
    if _object(head)[0] is not None:
        return ForeignInputError(f'{name} is JSON, but no profiler trace: it has no "traceEvents".', effect=NOTHING, next_step=_WRITE)
    return refused(f'{name} is JSON, but no profiler trace: it has no "traceEvents", or it ends before them.', _WRITE)


# --- the reader -------------------------------------------------------------------------------------------------------

_START_HEAD, _START_TAIL = 4 * 2**20, 2**16  # bytes that are looked through for the start of the capture
_UNIX_NS = 10**18  # from 2001 on: such a time is a date, a smaller one counts from the base that the file names
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*([0-9]{1,20})')
_TS = re.compile(rb'"ts"\s*:\s*"?([0-9]{1,20})(?:\.[0-9]*)?')


def _start(path: Path) -> int | None:
    """Start of the capture in ns since 1970: the first event's time, and the base that it counts from."""
    with path.open("rb") as file:
        magic = file.read(4)
        if not magic.startswith((b"\x1f\x8b", b"PK\x03\x04")):
            file.seek(0)
            head = file.read(_START_HEAD)
            file.seek(max(0, path.stat().st_size - _START_TAIL))
            return _first_time(head, file.read())
    if magic.startswith(b"\x1f\x8b"):
        with gzip.open(path) as packed:
            return _first_time(packed.read(_START_HEAD), b"")
    with zipfile.ZipFile(path) as archive, archive.open(next(item for item in archive.infolist() if not item.is_dir())) as member:
        return _first_time(member.read(_START_HEAD), b"")  # one file, as `sniff` saw; folders have entries of their own


def _first_time(head: bytes, tail: bytes) -> int | None:
    """The first event's time in ns since 1970; None where the file does not tell what its times count from."""
    first, base = _TS.search(head), _BASE.search(head) or _BASE.search(tail)
    if first is None:
        return None
    start = int(first.group(1)) * 1000
    if start > _UNIX_NS:
        return start
    return None if base is None else int(base.group(1)) + start


READER = Reader(
    name="torch-json",
    recognises=lambda given: given.is_json,
    load=lambda path, rank, _nsys, rules: conform(read(path, display_name=path.name, rank=rank, rules=rules)),
    start=_start,
)
