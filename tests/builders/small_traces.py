"""Small traces made of words, for tests that care about names, ranges and order."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.model.trace import CALLS, NAMES, OPS, PAYLOADS, RANGES, Provenance, Trace


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A device operation and its launch at `at` on `thread`; it runs `duration` from `start` (by default right after)."""

    name: str
    at: int | None = None
    thread: int = 1
    stream: int = 7
    start: int | None = None
    duration: int = 10
    kind: str = "kernel"
    payload: int | None = None
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Range:
    """One host range."""

    text: str
    start: int
    end: int
    kind: str = "operator"
    thread: int | None = 1
    sequence: int | None = None
    forward_thread: int | None = None
    payload: int | None = None
    rank: int = 0


def trace_of(launches: Sequence[Launch], ranges: Sequence[Range] = (), groups: Sequence[str | None] = ()) -> Trace:
    """The trace of `launches` under `ranges`; payload i belongs to the process group `groups[i]`."""
    texts = list(dict.fromkeys([*(one.name for one in launches), *(one.text for one in ranges), "cudaLaunchKernel"]))
    ids = {text: number for number, text in enumerate(texts)}
    ops, calls = [], []
    for number, one in enumerate(launches):
        start = one.start if one.start is not None else (one.at or 0) + 5
        linked = number if one.at is not None else None
        ops.append({"rank": one.rank, "device": 0, "start": start, "end": start + one.duration, "kind": one.kind, "stream": one.stream, "name_id": ids[one.name], "correlation": linked, "payload_id": one.payload})  # fmt: skip
        if one.at is not None:
            calls.append({"rank": one.rank, "thread": one.thread, "start": one.at, "end": one.at + 1, "name_id": ids["cudaLaunchKernel"], "correlation": number})  # fmt: skip
    rows = [
        {"rank": one.rank, "thread": one.thread, "start": one.start, "end": one.end, "kind": one.kind, "text_id": ids[one.text], "domain": 0, "sequence": one.sequence, "forward_thread": one.forward_thread, "payload_id": one.payload}
        for one in ranges
    ]  # fmt: skip
    payloads = [{"id": number, "collective": "alltoallv", "group": group} for number, group in enumerate(groups)]
    return Trace(
        ops=pl.DataFrame(ops, schema=dict(OPS)),
        calls=pl.DataFrame(calls, schema=dict(CALLS)),
        ranges=pl.DataFrame(rows, schema=dict(RANGES)),
        names=pl.DataFrame([{"id": number, "text": text} for text, number in ids.items()], schema=dict(NAMES)),
        payloads=pl.DataFrame(payloads, schema=dict(PAYLOADS)),
        provenance=Provenance(file="small", size=0, format="torch-json", profiler="test"),
    )
