"""A slow, independent reading of a PyTorch trace: totals per device in integer nanoseconds, with the standard library alone."""

import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

KINDS = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "memcpy", "Memcpy": "memcpy", "gpu_memset": "memset", "Memset": "memset"}


@dataclass(frozen=True)
class Totals:
    kernels: int
    work: int
    operations: int
    busy: int
    first: int
    last: int


def ns(value: Any) -> int:
    return int((Decimal(value) * 1000).to_integral_value())


def events_of(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw, parse_float=Decimal, strict=False)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def operations_of(events: list[dict[str, Any]]) -> dict[int, list[tuple[int, int, str, str]]]:
    found: dict[int, list[tuple[int, int, str, str]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in KINDS:
            start = ns(event["ts"])
            end = start + ns(event["dur"])
            if end >= start:
                device = (event.get("args") or {}).get("device", event.get("pid"))
                found.setdefault(int(device), []).append((start, end, KINDS[event["cat"]], event["name"]))
    return found


def union(intervals: list[tuple[int, int]]) -> int:
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def totals_of(events: list[dict[str, Any]]) -> dict[int, Totals]:
    result = {}
    for device, rows in operations_of(events).items():
        kernels = [row for row in rows if row[2] == "kernel"]
        result[device] = Totals(
            kernels=len(kernels),
            work=sum(end - start for start, end, _, _ in kernels),
            operations=len(rows),
            busy=union([(start, end) for start, end, _, _ in rows]),
            first=min(start for start, _, _, _ in rows),
            last=max(end for _, end, _, _ in rows),
        )
    return result
