"""PyTorch profiler (Kineto) JSON in, a RawTrace out; one file is one rank."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from diagnose.errors import InputError
from diagnose.knowledge.environment import EnvironmentRules, load_environment_rules
from diagnose.load.conform import RawTrace
from diagnose.load.json_chunks import CHUNK, CutError, open_blocks
from diagnose.load.kineto_parallel import PAYS_FROM, Decoded, collector_off, decode_ranges, decode_stream
from diagnose.load.kineto_stream import EventStream
from diagnose.load.kineto_tables import raw_trace

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*[^\s\[]')
_MAX_HEAD = 64 << 20
_WRITE = "Write the trace with torch.profiler: prof.export_chrome_trace(path), or on_trace_ready=tensorboard_trace_handler(folder)."

# Other tools' JSON, known by keys near its beginning.
_LOOKALIKES = (
    (re.compile(rb'"nodes"\s*:\s*\['), "a PyTorch execution trace (operators and tensors, without times on the GPU)"),
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

    `rank` names the global rank and goes before what the file tells. `rules` say what may be taken out of the environment (by default the program's own).
    `chunk` is the size in bytes of the pieces decoded
    at once. With `processes` above 1 a large plain file is decoded by that many processes. Raises InputError for what is
    not such a trace.
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
    if is_object and decoded.tail is not None:
        more = _object(b'{"traceEvents": [' + decoded.tail)
        if more is None and cut is None:
            cut = "what follows the events is not whole"
        keys = {**keys, **(more or {})}
    if not decoded.part.read and decoded.undecodable == 0:
        raise InputError(f"{display_name} is an empty list of events.", effect="There is nothing to diagnose.", next_step=_WRITE)
    size = source.stat().st_size if isinstance(source, Path) and opened.is_plain else opened.size
    return raw_trace(
        keys, decoded.part, decoded.undecodable, cut, file=display_name, size=size, rank=rank, rules=rules or load_environment_rules()
    )


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
            raise InputError(f"{name} is not JSON.", effect="Nothing was analysed.", next_step=_WRITE)
        found = _first_events(head)
        if found is not None:
            return found
        if not block or len(head) > _MAX_HEAD:
            raise _no_events(head, name)


def _first_events(head: bytes) -> tuple[dict[str, Any], bytes, bool] | None:
    fallback: tuple[dict[str, Any], bytes, bool] | None = None
    for match in _EVENTS.finditer(head):
        keys = _object(head[: match.start()].rstrip().removesuffix(b",") + b"}")
        if keys is not None:
            return keys, head[match.end() :], True
        fallback = fallback or ({}, head[match.end() :], True)
    return fallback


def _object(text: bytes) -> dict[str, Any] | None:
    """The JSON object that `text` starts with, or None; whatever follows it is ignored."""
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    value.pop("traceEvents", None)
    return value


def _no_events(head: bytes, name: str) -> InputError:
    if not head:
        return InputError(f"{name} is empty.", effect="Nothing was analysed.", next_step=_WRITE)
    if _EVENTS_KEY.search(head):
        return InputError(f'{name}: "traceEvents" is not a list.', effect="Nothing was analysed.", next_step=_WRITE)
    for pattern, what in _LOOKALIKES:
        if pattern.search(head[: 1 << 16]):
            return InputError(f"{name} is {what}.", effect="Nothing was analysed.", next_step=_WRITE)
    return InputError(
        f'{name} is JSON, but no profiler trace: it has no "traceEvents", or it ends before them.',
        effect="Nothing was analysed.",
        next_step=_WRITE,
    )
