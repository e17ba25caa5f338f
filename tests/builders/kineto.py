"""Small PyTorch traces made by hand, as text."""

import json
from typing import Any

Event = dict[str, Any]


def kernel(ts: Any, dur: Any, *, name: str = "gemm", device: int = 0, stream: int = 7, correlation: int = 1, **more: Any) -> Event:
    args = {
        "device": device, "stream": stream, "correlation": correlation, "grid": [4, 2, 1], "block": [128, 1, 1],
        "registers per thread": 32, "shared memory": 1024,
    }  # fmt: skip
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": {**args, **more}}


def call(ts: Any, dur: Any, *, name: str = "cudaLaunchKernel", correlation: int = 1, tid: Any = 11) -> Event:
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 10,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {"cbid": 211, "correlation": correlation},
    }


def operator(ts: Any, dur: Any, *, name: str = "aten::mm", tid: Any = 11, **args: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}


def small(count: int = 12) -> list[Event]:
    """`count` operators, launches and kernels, 10 µs apart, and the arrows between them."""
    events: list[Event] = []
    for index in range(count):
        at = 1000 + 10 * index
        events += [
            operator(at, 6),
            call(at + 1, 2, correlation=index),
            {"ph": "s", "id": index, "pid": 10, "tid": 11, "ts": at + 1, "cat": "ac2g", "name": "ac2g"},
            kernel(at + 4, 5, correlation=index, name=f"kernel_{index % 3}"),
            {"ph": "f", "id": index, "pid": 0, "tid": 7, "ts": at + 4, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        ]
    return events


def document(events: list[Event], **keys: Any) -> bytes:
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, **keys}
    return json.dumps({**head, "traceEvents": events, "traceName": "/secret/place/t.json"}).encode()
