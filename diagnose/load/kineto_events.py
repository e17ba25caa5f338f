"""The events of the PyTorch profiler as typed structs: only the fields that a measure uses are decoded."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

Number = int | float | str | None
_NULL = msgspec.Raw(b"null")


_ARG_KEYS = {
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "graph_node": "graph node id",
    "collective": "Collective name",
    "group": "Process Group Description",
    "group_name": "Process Group Name",
    "group_size": "Group size",
    "members": "Process Group Ranks",
    "communicator": "Comms Id",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "source_rank": "Src Rank",
    "target_rank": "Dst Rank",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "sync_kind": "cuda_sync_kind",
    "record": "wait_on_cuda_event_record_corr_id",
    "event": "wait_on_cuda_event_id",
    "recorded_on": "wait_on_stream",
    "allocated": "Bytes",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
    "device_type": "Device Type",
    "device_id": "Device Id",
}


class Triple(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """A grid or block: up to three extents."""

    x: int = 1
    y: int = 1
    z: int = 1


class Args(msgspec.Struct, gc=False, frozen=True, rename=_ARG_KEYS):
    """The arguments that any measure uses, of all categories together; all others are skipped while decoding."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    grid: Triple | None = None
    block: Triple | None = None
    registers: Number = None
    shared_memory: Number = None
    graph_node: Number = None
    bytes: Number = None
    collective: str | None = None
    group: str | None = None
    group_name: str | None = None
    group_size: Number = None
    members: str | None = None
    communicator: Number = None
    dtype: str | None = None
    elements_in: Number = None
    elements_out: Number = None
    source_rank: Number = None
    target_rank: Number = None
    sequence: Number = None
    forward_thread: Number = None
    sync_kind: str | None = None
    record: Number = None
    event: Number = None
    recorded_on: Number = None
    allocated: Number = None
    total_allocated: Number = None
    total_reserved: Number = None
    device_type: Number = None
    device_id: Number = None
    name: Any = None


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event whose times are whole microseconds, as older profilers write them."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: int | None = None
    dur: int | None = None
    pid: Number = None
    tid: Number = None
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """One event whose times are kept as their text, since a float would lose nanoseconds."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: msgspec.Raw = _NULL
    dur: msgspec.Raw = _NULL
    pid: Number = None
    tid: Number = None
    args: Args | None = None


Events = list[Event] | list[ExactEvent]

WHOLE_EVENTS = msgspec.json.Decoder(list[Event])
EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent])
_one = msgspec.json.Decoder(ExactEvent)

# ValueError covers msgspec's errors, stdlib's JSONDecodeError, UnicodeDecodeError and over-long integers.
UNDECODABLE = (ValueError, RecursionError)
_BAD_NUMBER = re.compile(rb"(?<=[:\[,])\s*[-+]?(?:nan|inf)(?:inity)?(?:\([a-z0-9]*\))?(?=\s*[,}\]])", re.IGNORECASE)


def one_event(text: bytes) -> tuple[ExactEvent | None, bool]:
    """One event, read as leniently as possible, or None; and whether a text in it was no Unicode."""
    try:
        return _one.decode(text), False
    except UNDECODABLE:
        pass
    try:
        value = json.loads(text.decode(errors="replace"), strict=False, parse_float=str, parse_constant=str, parse_int=str)
    except UNDECODABLE:
        try:
            value = json.loads(_BAD_NUMBER.sub(b" null", text).decode(errors="replace"), strict=False, parse_float=str, parse_int=str)
        except UNDECODABLE:
            return None, False
    if not isinstance(value, dict):
        return None, False
    event, bad = lenient_event(value)
    return event, bad or _not_utf8(text)


def _not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def lenient_event(value: dict[str, Any]) -> tuple[ExactEvent, bool]:
    """An event from loosely typed JSON (numbers as text), wrong types becoming null; True when a text was no Unicode."""
    bad = False

    def text(found: object) -> str | None:
        nonlocal bad
        if not isinstance(found, str):
            return None
        clean = found.encode("utf-8", errors="replace").decode()
        bad = bad or clean != found
        return clean

    args = value.get("args")
    known: dict[str, Any] = {}
    if isinstance(args, dict):
        for name, key in zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True):
            found = args.get(key)
            if name in {"grid", "block"}:
                known[name] = _triple(found)
            else:
                known[name] = text(found)
    event = ExactEvent(
        ph=text(value.get("ph")),
        cat=text(value.get("cat")),
        name=text(value.get("name")),
        ts=_number_text(value.get("ts")),
        dur=_number_text(value.get("dur")),
        pid=text(value.get("pid")),
        tid=text(value.get("tid")),
        args=Args(**known),
    )
    return event, bad


def _number_text(found: object) -> msgspec.Raw:
    if not isinstance(found, str) or "\n" in found:
        return _NULL
    return msgspec.Raw(found.encode("ascii", errors="replace"))


def _triple(found: object) -> Triple | None:
    if not isinstance(found, list) or not all(
        isinstance(extent, str) and extent.isascii() and extent.isdigit() and len(extent) < 12 for extent in found
    ):
        return None
    return Triple(*(int(extent) for extent in found[:3]))
