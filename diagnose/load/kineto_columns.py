"""Events of the PyTorch profiler as typed structs (only the fields that a measure uses), and as columns.

A compact frame per chunk and category.

Loosely written numbers become exact columns: ids, sizes, and microseconds as nanoseconds.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec
import polars as pl

from diagnose.load.products import FACTORS, operations
from diagnose.model.trace import NAMING_NS

Number = int | float | str | None
_NULL = msgspec.Raw(b"null")


class Triple(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """A grid or block: up to three extents."""

    x: int = 1
    y: int = 1
    z: int = 1


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that any measure uses, of all categories together; all others are skipped while decoding."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    grid: Triple | None = None
    block: Triple | None = None
    registers: Number = msgspec.field(default=None, name="registers per thread")
    shared_memory: Number = msgspec.field(default=None, name="shared memory")
    graph_node: Number = msgspec.field(default=None, name="graph node id")
    bytes: Number = None
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group: str | None = msgspec.field(default=None, name="Process Group Description")
    group_name: str | None = msgspec.field(default=None, name="Process Group Name")
    group_size: Number = msgspec.field(default=None, name="Group size")
    members: str | None = msgspec.field(default=None, name="Process Group Ranks")
    communicator: Number = msgspec.field(default=None, name="Comms Id")
    dtype: str | None = None
    elements_in: Number = msgspec.field(default=None, name="In msg nelems")
    elements_out: Number = msgspec.field(default=None, name="Out msg nelems")
    source_rank: Number = msgspec.field(default=None, name="Src Rank")
    target_rank: Number = msgspec.field(default=None, name="Dst Rank")
    sequence: Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: Number = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=_NULL, name="Input Dims")
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    record: Number = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    event: Number = msgspec.field(default=None, name="wait_on_cuda_event_id")
    recorded_on: Number = msgspec.field(default=None, name="wait_on_stream")
    allocated: Number = msgspec.field(default=None, name="Bytes")
    total_allocated: Number = msgspec.field(default=None, name="Total Allocated")
    total_reserved: Number = msgspec.field(default=None, name="Total Reserved")
    device_type: Number = msgspec.field(default=None, name="Device Type")
    device_id: Number = msgspec.field(default=None, name="Device Id")
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
_ESCAPE = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')


def _escaped(found: re.Match[bytes]) -> bytes:
    """An escape of JSON as it is; a backslash that begins none (in a path of Windows, which the profiler does not escape) as a sign."""
    return found[0] if found[1] else rb"\\"


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
            mended = _ESCAPE.sub(_escaped, _BAD_NUMBER.sub(b" null", text)).decode(errors="replace")
            value = json.loads(mended, strict=False, parse_float=str, parse_int=str)
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
            elif name != "shapes":
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


_DIGITS = re.compile(r"\s*(?:stream\s+)?(-?\d{1,18})\b")
_LAST_US = 3_000_000_000_000_000  # ± 95 years: sums and differences of nanoseconds stay within 64 bits
_UNSIGNED_MINUS_ONE = (1 << 32) - 1


def thread_number(tid: object) -> int:
    """A stable number for a thread or stream id: the id itself, the number in its text, else a negative hash of it."""
    if isinstance(tid, int) and -(1 << 63) <= tid < 1 << 63:
        return tid
    text = "" if tid is None else str(tid)
    match = _DIGITS.match(text)
    return int(match.group(1)) if match else -2 - zlib.crc32(text.encode("utf-8", errors="replace"))


def integer(value: object, *, bits: int = 63) -> int | None:
    """`value` as a 64-bit integer, also where it is written as text or with a zero fraction; None where it is neither."""
    if isinstance(value, str):
        match = _DIGITS.match(value)
        value = int(match.group(1)) if match else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << bits:
        return None
    return value if value < 1 << 63 else value - (1 << 64)


def integers(name: str, values: Sequence[object], dtype: type[pl.DataType] = pl.Int64) -> pl.Series:
    """A column of integers; what isn't one or doesn't fit becomes null."""
    try:
        column = pl.Series(name, values, dtype=pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        column = pl.Series(name, [integer(value) for value in values], dtype=pl.Int64)
    return column if dtype == pl.Int64 else column.cast(dtype, strict=False)


def _devices(events: Sequence[Any], args: Sequence[Args]) -> pl.Series:
    """The device of each event: its argument, or where that is no device (−1), the process that Kineto files the device's events under."""
    own = integers("device", [one.device for one in args], pl.Int32)
    own = own.set(own < 0, None)
    return own.zip_with(own.is_not_null(), integers("device", [event.pid for event in events], pl.Int32)) if own.null_count() else own


def present(name: str, values: Sequence[object]) -> pl.Series:
    """Integers of which −1, also written as an unsigned number, means "none"."""
    column = integers(name, values)
    return column.to_frame().select(pl.when((pl.col(name) >= 0) & (pl.col(name) != _UNSIGNED_MINUS_ONE)).then(pl.col(name)))[name]


def times(group: Sequence[Event | ExactEvent]) -> tuple[pl.Series, pl.Series]:
    """Columns start and end in nanoseconds, exact: both numbers are rounded to the nearest one (half to even) on their own."""
    in_ns = exact_ns if isinstance(group[0], ExactEvent) else whole_ns
    start, length = in_ns([event.ts for event in group]), in_ns([event.dur for event in group])
    return start.alias("start"), (start + length).alias("end")


def whole_ns(microseconds: Sequence[object]) -> pl.Series:
    """Integer microseconds as nanoseconds; null where out of range."""
    column = integers("us", microseconds)
    low, high = column.min(), column.max()
    if isinstance(low, int) and isinstance(high, int) and not -_LAST_US <= low <= high <= _LAST_US:
        column = column.to_frame().select(pl.when(pl.col("us").is_between(-_LAST_US, _LAST_US)).then("us"))["us"]
    return column * 1000


def exact_ns(texts: Sequence[Any]) -> pl.Series:
    """Numbers written as text, in microseconds, as nanoseconds rounded half to even; null where out of range or no number.

    Eighteen decimals are held exactly; longer ones (no profiler writes them) go through Python's decimals.
    """
    joined = b"\n".join(texts).decode("ascii", errors="replace")
    column = pl.Series("us", joined.split("\n"), dtype=pl.String)
    if len(column) != len(texts):  # an object or list with line breaks stands where a number belongs
        column = pl.Series("us", [bytes(text).decode("ascii", errors="replace").replace("\n", " ") for text in texts], dtype=pl.String)
    if '"' in joined:
        column = column.str.strip_chars('" ')
    number = pl.col("us").cast(pl.Decimal(38, 18), strict=False)
    rounded = (pl.when(number.is_between(-_LAST_US, _LAST_US)).then(number) * 1000).round(0, mode="half_to_even")
    frame = column.to_frame().select(rounded.cast(pl.Int64, strict=False).alias("ns"), (pl.col("us").str.len_bytes() > 34).alias("long"))
    if not frame["long"].any():
        return frame["ns"]
    slow = [_decimal_ns(text) if is_long else ns for text, is_long, ns in zip(column, frame["long"], frame["ns"], strict=True)]
    return pl.Series("ns", slow, dtype=pl.Int64)


def _decimal_ns(text: str) -> int | None:
    try:
        number = Decimal(text[:400]) * 1000
    except InvalidOperation:
        return None
    return int(number.to_integral_value()) if number.is_finite() and abs(number) <= _LAST_US * 1000 else None


# What a category holds, in the spelling of any version of the profiler. Others are counted and not needed.
CATEGORIES = {
    **dict.fromkeys(("kernel", "Kernel"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
    **dict.fromkeys((f"{maker}_{part}" for maker in ("cuda", "hip", "xpu", "privateuse1") for part in ("runtime", "driver")), "call"),
    "Runtime": "call",
    **dict.fromkeys(("cpu_op", "Operator"), "operator"),
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "cuda_sync": "wait",
    "overhead": "overhead",
    "Trace": "span",
}
# Of the events that the profiler calls overhead, what CUDA spends itself (libkineto's overheadKindString, cupti_strings.cpp).
OF_CUDA = ("Driver Compiler", "Runtime Triggered Module Loading", "Lazy Function Loading", "Command Buffer Full")
METADATA, MEMORY, UNNAMED, MANY = "metadata", "[memory]", "events without category", "further categories"
OUT_OF_MEMORY = "[OutOfMemory]"  # written where memory is profiled, whenever an allocation of the device fails for good
_MAX_TABLES = 200
_HALF = ("B", "E")

_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
# Python frames that name a module, the garbage collector, recomputation or a training framework's phase. The others (two
# thirds of a trace with stacks) would cost memory and tell no measure anything.
FRAME = re.compile(
    r"^nn\.Module: |^<built-in (?:function|method) collect\b|(?:^|/)gc\.py\("
    r"|checkpoint\w*\.py\(\d+\): (?:\w*unpack\w*|\w*checkpoint\w*|forward|backward)$"
    r"|recompute|(?:^|/)(?:megatron|transformer_engine|deep_ep|deepspeed)/|(?:^|/)torch/optim/|dataloader\.py\("
)
# Where such a frame's file is given with its folder, only the part from the package on is kept.
_FOLDER = re.compile(r"^/.*/(?=(?:megatron|transformer_engine|deep_ep|deepspeed|torch)/)|^/.*/(?=[^/]*$)")


Payload = tuple[Any, ...]
PAYLOAD_COLUMNS = (
    "collective", "group", "group_name", "group_size", "communicator", "dtype", "elements_in", "elements_out", "peer", "members",
)  # fmt: skip


class Lookup(dict[Any, Any]):
    """A dict that computes a missing value once: what depends on a text alone is decided once per distinct text."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: object) -> object:
        value = self[key] = self._compute(key)
        return value


@dataclass(kw_only=True)
class Part:
    """Everything found in one part of the event list, with ids of its own; parts are joined by `diagnose.load.torch_json`."""

    names: list[str] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    pids: Counter[object] = field(default_factory=Counter)
    thread_names: dict[int, str] = field(default_factory=dict)
    overhead: list[pl.DataFrame] = field(default_factory=list)  # start, end of the profiler's own spans
    duration_ns: int | None = None
    events: int = 0
    halves: int = 0  # events that only begin or end (ph B and E), where complete ones (ph X) are needed
    bad_text: int = 0


class Columns:
    """Collects lists of events into a Part."""

    def __init__(self) -> None:
        self.part = part = Part()
        self._names = names = Lookup(lambda text: append(part.names, text or ""))
        self._calls = Lookup(lambda text: names[_VERSION.sub("", text or "")])
        self._frame_names = Lookup(lambda text: names[_FOLDER.sub("", text or "")])
        self._telling = Lookup(lambda text: bool(text and FRAME.search(text)))
        self._payloads = Lookup(lambda payload: append(part.payloads, payload))
        self._threads = Lookup(thread_number)
        self._sync_kinds = Lookup(sync_kind)
        self._products = Lookup(lambda product: operations(*product))
        self._handlers: dict[str, Callable[[str, list[Any]], None]] = {
            "kernel": self._kernels, "memcpy": self._copies, "memset": self._copies, "call": self._api_calls,
            "operator": self._operators, "annotation": self._annotations, "gpu_annotation": self._gpu_annotations,
            "python": self._python, "wait": self._waits,
        }  # fmt: skip

    def add(self, events: Events) -> None:
        """Take the events of one chunk."""
        part = self.part
        part.events += len(events)
        groups: defaultdict[str | None, list[Any]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        for category, group in groups.items():
            if any(event.ph in _HALF for event in (group[0], group[-1])):
                part.halves += sum(event.ph in _HALF for event in group)
            meaning = CATEGORIES.get(category) if category is not None else None
            handler = self._handlers.get(meaning) if meaning is not None else None
            if category is not None and handler is not None:
                self._complete(category, group, handler)
            elif category in {None, "", "cpu_instant_event", "__metadata"}:
                self._without_category(group)
            elif category is not None:
                self._other(category, meaning, group)

    def _complete(self, table: str, group: list[Any], handler: Callable[[str, list[Any]], None]) -> None:
        complete = [event for event in group if event.ph == "X"]
        self.part.read[table] += len(group)
        self.part.refused["wrong_type", table] += len(group) - len(complete)
        if complete:
            handler(table, complete)

    def _other(self, category: str, meaning: str | None, group: list[Any]) -> None:
        part = self.part
        table = category if category in part.read or len(part.read) < _MAX_TABLES else MANY
        part.read[table] += len(group)
        part.refused["not_needed", table] += len(group)
        if meaning is None:
            return
        spans = pl.DataFrame(times(group))
        if meaning == "overhead":
            part.overhead.append(spans.filter([event.name not in OF_CUDA for event in group]))
        elif meaning == "span":
            longest = (spans["end"] - spans["start"]).max()
            part.duration_ns = max((length for length in (part.duration_ns, longest) if isinstance(length, int)), default=None)

    def _without_category(self, group: list[Any]) -> None:
        part = self.part
        memory = [event for event in group if event.name == "[memory]"]
        metadata = [event for event in group if event.ph == "M"]
        failed = sum(event.name == OUT_OF_MEMORY for event in group)
        others = len(group) - len(memory) - len(metadata) - failed
        for table, count in ((OUT_OF_MEMORY, failed), (UNNAMED, others)):
            if count:
                part.read[table] += count
                part.refused["not_needed", table] += count
        if memory:
            self._memory(memory)
        part.read[METADATA] += len(metadata)
        for event in metadata:
            if event.name == "thread_name" and event.args is not None and isinstance(event.args.name, str):
                part.thread_names[self._threads[event.tid]] = event.args.name.strip()
            else:
                part.refused["not_needed", METADATA] += 1

    def _memory(self, group: list[Any]) -> None:
        """Allocator events of the GPU (device type 1 of PyTorch, CUDA and ROCm alike); those of the host are not needed."""
        on_gpu = [event for event in group if event.args is not None and integer(event.args.device_type) == 1]
        self.part.read[MEMORY] += len(group)
        self.part.refused["not_needed", MEMORY] += len(group) - len(on_gpu)
        if on_gpu:
            args = [event.args for event in on_gpu]
            columns = [
                times(on_gpu)[0].alias("time"),
                integers("device", [a.device_id for a in args], pl.Int32),
                integers("bytes", [a.allocated for a in args]),
                integers("total_allocated", [a.total_allocated for a in args]),
                integers("total_reserved", [a.total_reserved for a in args]),
            ]
            self.part.frames[MEMORY].append(pl.DataFrame(columns))

    def _operation(self, group: list[Any], args: list[Args]) -> list[pl.Series]:
        start, end = times(group)
        streams = [event.tid if a.stream is None else a.stream for event, a in zip(group, args, strict=True)]
        return [
            _devices(group, args),
            start,
            end,
            integers("stream", streams),
            self._ids("name_id", self._names, group),
            integers("correlation", [a.correlation for a in args]),
            integers("graph_node", [a.graph_node or None for a in args]),
        ]

    def _kernels(self, table: str, group: list[Any]) -> None:
        args = arguments(group)
        columns = self._operation(group, args)
        for prefix, extents in (("grid", [a.grid for a in args]), ("block", [a.block for a in args])):
            columns += [
                integers(f"{prefix}_x", [extent and extent.x for extent in extents], pl.Int32),
                integers(f"{prefix}_y", [extent and extent.y for extent in extents], pl.Int32),
                integers(f"{prefix}_z", [extent and extent.z for extent in extents], pl.Int32),
            ]
        columns += [
            integers("registers", [a.registers for a in args], pl.Int32),
            integers("shared_memory", [a.shared_memory for a in args], pl.Int32),
            self._payload_ids(args),
        ]
        self.part.frames[table].append(pl.DataFrame(columns))

    def _copies(self, table: str, group: list[Any]) -> None:
        args = arguments(group)
        self.part.frames[table].append(pl.DataFrame([*self._operation(group, args), integers("bytes", [a.bytes for a in args])]))

    def _api_calls(self, table: str, group: list[Any]) -> None:
        start, end = times(group)
        correlation = integers("correlation", [None if event.args is None else event.args.correlation for event in group])
        self.part.pids.update([event.pid for event in group])
        self.part.frames[table].append(
            pl.DataFrame([self._thread_column(group), start, end, self._ids("name_id", self._calls, group), correlation])
        )

    def _operators(self, table: str, group: list[Any]) -> None:
        args = arguments(group)
        start, end = times(group)
        columns = [
            self._thread_column(group),
            start,
            end,
            self._ids("text_id", self._names, group),
            integers("sequence", [a.sequence for a in args]),
            integers("forward_thread", [a.forward_thread or None for a in args]),
            self._flop(group, args),
            self._payload_ids(args),
        ]
        self.part.frames[table].append(pl.DataFrame(columns))

    def _annotations(self, table: str, group: list[Any]) -> None:
        self.part.frames[table].append(pl.DataFrame([self._thread_column(group), *times(group), self._ids("text_id", self._names, group)]))

    def _gpu_annotations(self, table: str, group: list[Any]) -> None:
        self.part.frames[table].append(pl.DataFrame([*times(group), self._ids("text_id", self._names, group)]))

    def _python(self, table: str, group: list[Any]) -> None:
        telling, exact = self._telling, isinstance(group[0], ExactEvent)  # of exact texts most are told short by their beginning
        kept = [
            event for event in group if telling[event.name] or ((not exact or bytes(event.dur)[:3].isdigit()) and _names_a_pause(event))
        ]
        self.part.refused["not_needed", table] += len(group) - len(kept)
        if kept:
            texts = self._ids("text_id", self._frame_names, kept)
            self.part.frames[table].append(pl.DataFrame([self._thread_column(kept), *times(kept), texts]))

    def _waits(self, table: str, group: list[Any]) -> None:
        kinds = [self._sync_kinds[(event.args and event.args.sync_kind) or event.name] for event in group]
        known = [event for event, kind in zip(group, kinds, strict=True) if kind is not None]
        self.part.refused["not_needed", table] += len(group) - len(known)
        if not known:
            return
        args = arguments(known)
        start, end = times(known)
        columns = [
            _devices(known, args),
            present("stream", [a.stream for a in args]),
            start,
            end,
            pl.Series("kind", [kind for kind in kinds if kind is not None], dtype=pl.String),
            present("event", [a.event for a in args]),
            present("sync_id", [a.record for a in args]),
            integers("correlation", [a.correlation for a in args]),
            present("recorded_on", [a.recorded_on for a in args]),
        ]
        self.part.frames[table].append(pl.DataFrame(columns))

    def _thread_column(self, group: list[Any]) -> pl.Series:
        return pl.Series("thread", list(map(self._threads.__getitem__, [event.tid for event in group])), dtype=pl.Int64)

    def _ids(self, column: str, lookup: Lookup, group: list[Any]) -> pl.Series:
        return pl.Series(column, list(map(lookup.__getitem__, [event.name for event in group])), dtype=pl.Int32)

    def _flop(self, group: list[Any], args: list[Args]) -> pl.Series:
        """Operations of those that are matrix products with recorded shapes."""
        found = [
            self._products[event.name, bytes(a.shapes)] if event.name in FACTORS else None for event, a in zip(group, args, strict=True)
        ]
        return pl.Series("flop", found, dtype=pl.Int64)

    def _payload_ids(self, args: list[Args]) -> pl.Series:
        ids = [None if a.collective is None and a.communicator is None else self._payloads[payload(a)] for a in args]
        return pl.Series("payload_id", ids, dtype=pl.Int32)


def append(values: list[Any], value: object) -> int:
    """The place of a value that is added to a list."""
    values.append(value)
    return len(values) - 1


def arguments(group: Iterable[Event | ExactEvent]) -> list[Args]:
    """The arguments of each event, empty ones where it has none."""
    return [event.args or NO_ARGS for event in group]


def _names_a_pause(frame: Event | ExactEvent) -> bool:
    """Whether a frame lasts long enough, and is no function that is built in (a lock, a socket): its caller tells more."""
    try:
        lasts = float(cast("float", frame.dur)) >= NAMING_NS / 1000
    except (TypeError, ValueError):  # no duration, or none that can be read
        return False
    return lasts and frame.name is not None and not frame.name.startswith("<built-in")


def payload(args: Args) -> Payload:
    """The description of a collective, in the order of PAYLOAD_COLUMNS; an unsigned communicator id is wrapped to 64 signed bits."""
    communicator = integer(args.communicator, bits=64)
    peer = {"send": args.target_rank, "recv": args.source_rank}.get((args.collective or "").lower())
    sizes = [integer(size) for size in (args.group_size, args.elements_in, args.elements_out, peer)]
    return (args.collective, args.group, args.group_name, sizes[0], communicator, args.dtype, sizes[1], sizes[2], sizes[3], args.members)


def sync_kind(text: object) -> str | None:
    """The kind of wait that a cuda_sync event's name means, or None."""
    words = str(text).lower()
    for sign, kind in (
        ("wait", "stream_wait"),
        ("event", "event_sync"),
        ("stream", "stream_sync"),
        ("context", "device_sync"),
        ("device", "device_sync"),
    ):
        if sign in words:
            return kind
    return None
