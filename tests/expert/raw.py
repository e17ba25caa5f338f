"""What lies in a trace, read with nothing of the program: SQL on an Nsight export, the JSON of a PyTorch trace.

`python tests/expert/raw.py TRACE …` prints the numbers from which the sheets beside it were written. Times are nanoseconds from the first
device operation; nothing here is cut into steps or judged.
"""

import gzip
import json
import re
import sqlite3
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP", 11: "unified HtoD", 12: "unified DtoH"}
TRANSPORT = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|cross_device_reduce|nvshmem|deep_ep|internode|intranode|PtoP|Peer|lamport",
    re.IGNORECASE,
)
GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "set", "memset": "set"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime"}
RANGES = {"user_annotation", "cpu_op", "operator", "python_function", "python_func"}
WORK = (  # what a kernel's name means, in a reader's words; the first that is found
    ("attention", r"flash|fmha|attn|attention|mla|sdpa|ck_tile.*Fmha|paged"),
    ("experts", r"moe|expert|grouped_?gemm|topk|permute"),
    ("convolution", r"conv|cudnn|winograd|implicit|miopen|Im2Col|Sp3"),
    ("gemm", r"gemm|cutlass|cublas|nvjet|Cijk|sgemm|matmul|gemv|sm\d+_xmma|splitK"),
    ("norm", r"norm|welford"),
    ("softmax", r"softmax"),
    ("reduce", r"reduce"),
    ("optimizer", r"multi_tensor|adam|sgd|foreach|optim"),
    ("embedding", r"embed|index"),
    ("triton", r"triton"),
    ("copying", r"copy|Cat|transpose|permut|memcpy"),
    ("elementwise", r"elementwise|vectorized|pointwise"),
)


@dataclass(frozen=True, order=True)
class Span:
    """An interval of a device or of a host thread."""

    start: int
    end: int
    name: str
    kind: str
    place: tuple[Any, ...] = ()  # (device, stream) or (process, thread)
    link: int | None = None
    more: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass
class Raw:
    """One trace as three lists in the order of time."""

    operations: list[Span]
    calls: list[Span]
    ranges: list[Span]
    notes: list[str] = field(default_factory=list)


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Maximal intervals, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def total(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in union(spans))


def times(spans: Iterable[Span]) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def transport(operation: Span) -> bool:
    return bool(TRANSPORT.search(operation.name))


def work(name: str) -> str:
    return next((word for word, pattern in WORK if re.search(pattern, name, re.IGNORECASE)), "other")


def read(path: Path) -> Raw:
    """Any trace that the sheets speak of, but Parquet folders, which are SQLite exports over again."""
    found = read_nsys(path) if path.suffix == ".sqlite" else read_torch(path)
    for spans in (found.operations, found.calls, found.ranges):
        spans.sort(key=lambda span: (span.start, span.end))
    return found


def read_nsys(path: Path) -> Raw:
    """An Nsight Systems export."""
    base = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    base.row_factory = sqlite3.Row
    tables = {row["name"] for row in base.execute("select name from sqlite_master where type in ('table', 'view')")}

    def rows(table: str) -> Iterator[dict[str, Any]]:
        yield from map(dict, base.execute(f"select * from {table}") if table in tables else ())

    text = {row["id"]: row["value"] for row in rows("StringIds")}
    found = Raw(
        [],
        [],
        [],
        sorted(f"{table}: {base.execute(f'select count(*) from {table}').fetchone()[0]}" for table in tables if "ENUM" not in table),
    )
    for row in rows("CUPTI_ACTIVITY_KIND_KERNEL"):
        name = text.get(row.get("demangledName"), text.get(row.get("shortName"), "?"))
        found.operations.append(device_span(row, name, "kernel"))
    for row in rows("CUPTI_ACTIVITY_KIND_MEMCPY"):
        found.operations.append(device_span(row, f"Memcpy {COPY_KINDS.get(row['copyKind'], row['copyKind'])}", "copy"))
    for row in rows("CUPTI_ACTIVITY_KIND_MEMSET"):
        found.operations.append(device_span(row, "Memset", "set"))
    for row in rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        found.operations.append(device_span(row, "graph", "kernel"))
    for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
        found.calls.append(host_span(row, text.get(row["nameId"], "?"), "call"))
    for row in rows("NVTX_EVENTS"):
        if row.get("end") is not None:
            found.ranges.append(host_span(row, row.get("text") or text.get(row.get("textId"), "?"), "nvtx"))
    for row in rows("DIAGNOSTIC_EVENT"):
        if row.get("severity", 0) >= 2:
            found.notes.append(f"diagnostic: {row['text'][:160]}")
    found.notes += [f"gpu: {row['name']}" for row in rows("TARGET_INFO_GPU")]
    return found


def device_span(row: dict[str, Any], name: str, kind: str) -> Span:
    place = (row.get("globalPid", 0), row.get("deviceId", 0), row.get("streamId", 0))
    return Span(row["start"], row["end"], name, kind, place, row.get("correlationId"), row)


def host_span(row: dict[str, Any], name: str, kind: str) -> Span:
    return Span(row["start"], row["end"], str(name), kind, (row.get("globalTid", 0),), row.get("correlationId"), row)


def read_torch(path: Path) -> Raw:
    """A PyTorch profiler trace."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    found = Raw([], [], [])
    if isinstance(document, dict):
        found.notes = [f"{key}: {str(value)[:300]}" for key, value in document.items() if key != "traceEvents"]
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        kind, args = str(event.get("cat", "")).lower(), event.get("args") or {}
        start = round(Decimal(event["ts"]) * 1000)  # more digits than a float holds
        end = round((Decimal(event["ts"]) + Decimal(event.get("dur", 0))) * 1000)
        link = args.get("correlation", args.get("External id"))
        link = link if isinstance(link, int) else None
        name = str(event.get("name"))
        if kind in GPU:
            place = (event.get("pid"), args.get("device", event.get("pid")), args.get("stream", event.get("tid")))
            found.operations.append(Span(start, end, name, GPU[kind], place, link, args))
        elif kind in CALLS:
            found.calls.append(Span(start, end, name, "call", (event.get("pid"), event.get("tid")), link, args))
        elif kind in RANGES:
            found.ranges.append(Span(start, end, name, kind, (event.get("pid"), event.get("tid")), link, args))
    return found


def ms(value: float) -> str:
    return f"{value / 1e6:.3f}"


def enclosing(spans: list[Span], at: int, place: tuple[Any, ...] | None = None) -> list[Span]:
    """Longest first."""
    found = [span for span in spans[: bisect_left(spans, at, key=lambda span: span.start)] if span.end > at and place in {None, span.place}]
    return sorted(found, key=lambda span: -span.length)


def gaps(operations: list[Span], without: bool = False) -> list[tuple[int, int]]:
    """Where nothing ran (without transport too, if asked), longest first."""
    busy = union(times(one for one in operations if not (without and transport(one))))
    holes = [(before[1], after[0]) for before, after in pairwise(busy)]
    return sorted(holes, key=lambda hole: hole[0] - hole[1])


def short(name: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"^void ", "", name))[:110]


def by_name(spans: Iterable[Span]) -> list[tuple[str, list[Span]]]:
    groups: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[span.name].append(span)
    return sorted(groups.items(), key=lambda item: -sum(span.length for span in item[1]))


def report(path: Path, rows: int = 8) -> Iterator[str]:
    """Everything that a reader asks first."""
    found = read(path)
    yield f"##### {path.name}"
    yield from found.notes[:45]
    if not found.operations:
        yield f"NO DEVICE OPERATIONS; calls {len(found.calls)}, ranges {len(found.ranges)}"
        yield str(Counter(span.name for span in found.calls).most_common(12))
        yield str(Counter(span.name for span in found.ranges).most_common(12))
        return
    zero = found.operations[0].start
    for device in sorted({(one.place[0], one.place[1]) for one in found.operations}, key=str):
        yield from device_report(
            f"process, device {device}", [one for one in found.operations if one.place[:2] == device], found, zero, rows
        )
    yield f"-- calls: {len(found.calls)}; first at {ms(found.calls[0].start - zero) if found.calls else '-'} ms"
    for name, spans in by_name(found.calls)[:rows]:
        yield f"  {len(spans):6} x {ms(sum(span.length for span in spans)):>10} ms, longest {ms(max(span.length for span in spans)):>9}  {name}"
    yield "-- calls above 2 ms: " + "; ".join(
        f"{call.name} {ms(call.length)} at {ms(call.start - zero)}"
        for call in sorted(found.calls, key=lambda call: -call.length)[:12]
        if call.length > 2e6
    )
    yield f"-- ranges: {len(found.ranges)}"
    for kind in sorted({one.kind for one in found.ranges}):
        for name, spans in by_name(one for one in found.ranges if one.kind == kind)[: rows * 2]:
            lengths = sorted(span.length for span in spans)
            yield (
                f"  {kind[:8]} {len(spans):6} x {ms(sum(lengths)):>10} ms, median {ms(median(lengths)):>9}, {ms(lengths[0])} to {ms(lengths[-1])},"
                f" first at {ms(spans[0].start - zero)}  {short(name)}"
            )


def device_report(title: str, operations: list[Span], found: Raw, zero: int, rows: int) -> Iterator[str]:
    first, last = operations[0].start, max(one.end for one in operations)
    span, busy = last - first, total(times(operations))
    moved = [one for one in operations if transport(one)]
    compute = [one for one in operations if one.kind == "kernel" and not transport(one)]
    copies = [one for one in operations if one.kind != "kernel" and not transport(one)]
    exposed = busy - total(times(one for one in operations if not transport(one)))
    yield f"== {title}: {len(operations)} operations, {sum(one.kind == 'kernel' for one in operations)} kernels, first at {ms(first - zero)}"
    yield (
        f"span {ms(span)} busy {ms(busy)} ({busy / span:.1%}) idle {ms(span - busy)}; compute {ms(total(times(compute)))}"
        f" ({total(times(compute)) / span:.1%}); copies {ms(total(times(copies)))}, alone"
        f" {ms(busy - total(times(moved + compute)))}; transport {len(moved)}: {ms(total(times(moved)))}, exposed {ms(exposed)}"
    )
    kinds: Counter[str] = Counter()
    for one in compute:
        kinds[work(one.name)] += one.length
    yield "work: " + ", ".join(f"{kind} {ms(value)}" for kind, value in kinds.most_common())
    for stream in sorted({one.place for one in operations}, key=str):
        on = [one for one in operations if one.place == stream]
        yield f"  stream {stream[2]}: {len(on)} operations, {ms(total(times(on)))} busy, from {ms(on[0].start - zero)} to {ms(on[-1].end - zero)}"
    for name, spans in by_name(operations)[: rows * 2]:
        lengths = [one.length for one in spans]
        moved_bytes = sum(one.more.get("bytes", 0) or 0 for one in spans)
        yield (
            f"  {len(spans):6} x {ms(sum(lengths)):>10} ms, median {median(lengths) / 1e3:9.1f} us, longest {max(lengths) / 1e3:9.1f}"
            f"  {short(name)}" + (f" [{moved_bytes} B]" if moved_bytes else "")
        )
    parts = 24
    busy_parts = [
        sum(
            max(0, min(end, first + span * (part + 1) // parts) - max(start, first + span * part // parts))
            for start, end in union(times(operations))
        )
        for part in range(parts)
    ]
    yield f"busy in {parts} parts: " + " ".join(f"{100 * part * parts // span}" for part in busy_parts)
    issued = {call.link: call for call in found.calls if call.link is not None}
    by_start = {one.start: one for one in operations}
    holes = gaps(operations)
    yield f"gaps: {len(holes)}, above 1 ms {sum(b - a > 1e6 for a, b in holes)}, above 100 us {sum(b - a > 1e5 for a, b in holes)}, above 10 us {sum(b - a > 1e4 for a, b in holes)}"
    for start, end in holes[:rows]:
        after = by_start[end]
        call = issued.get(after.link)
        over = sorted(
            ((min(one.end, end) - max(one.start, start), one) for one in found.calls if one.start < end and one.end > start),
            key=lambda item: -item[0],
        )[:2]
        named = [short(one.name)[:50] for one in enclosing(found.ranges, start + (end - start) // 2)[:7]]
        yield (
            f"  {ms(end - start)} ms at {ms(start - zero)} before {short(after.name)[:50]}"
            + (
                f"; issued {ms(call.start - start)}..{ms(call.end - start)} by {call.name[:24]} {ms(call.length)}"
                if call
                else "; launch unknown"
            )
            + "; over it "
            + ", ".join(f"{one.name[:28]} {ms(length)}" for length, one in over)
            + f"; in {named}"
        )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        try:
            print("\n".join(report(Path(argument))))  # noqa: T201
        except (ValueError, sqlite3.DatabaseError, OSError) as error:
            print(f"##### {argument}\nUNREADABLE: {error}")  # noqa: T201
