"""The floor for PyTorch traces: cut into chunks of whole events, decoded into typed structs, put into columns; one process, no analysis.

``python -m benchmarks.decode FILE``
"""

from __future__ import annotations

import gc
import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct, field

CHUNK = 4 << 20
BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|args|dur|id|bp|s)"')


class Args(Struct, gc=False):
    """The arguments that an analysis needs."""

    correlation: int | None = None
    stream: int | None = None
    device: int | None = None
    external: int | None = field(name="External id", default=None)
    sequence: int | None = field(name="Sequence number", default=None)
    bytes: int | None = None
    grid: list[int] | None = None
    block: list[int] | None = None
    registers: int | None = field(name="registers per thread", default=None)
    shared: int | None = field(name="shared memory", default=None)
    collective: str | None = field(name="Collective name", default=None)
    group: str | None = field(name="Process Group Description", default=None)


class Event(Struct, gc=False):
    """One trace event."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


def chunks(data: mmap.mmap) -> Iterator[bytes]:
    """JSON arrays of whole events of a mapped trace."""
    place = data.find(b"{", data.find(b"[", data.find(b'"traceEvents"')))
    end = data.rfind(b"]")
    while 0 <= place < end:
        stop = min(place + CHUNK, end)
        found = BOUNDARY.search(data, stop, end)
        cut = found.start() + 1 if found else end
        yield b"[" + data[place:cut] + b"]"
        place = data.find(b"{", cut) if found else -1


def columns(events: list[Event]) -> pl.DataFrame:
    """The columns of one category's events."""
    args = [event.args or Args() for event in events]
    return pl.DataFrame(
        {
            "start": [float(event.ts) for event in events],
            "duration": [float(event.dur) for event in events],
            "thread": [event.tid if isinstance(event.tid, int) else -1 for event in events],
            "name": pl.Series([event.name for event in events], dtype=pl.String).cast(pl.Categorical),
            "correlation": [arg.correlation for arg in args],
            "stream": [arg.stream for arg in args],
            "external": [arg.external for arg in args],
            "sequence": [arg.sequence for arg in args],
            "registers": [arg.registers for arg in args],
            "shared": [arg.shared for arg in args],
            "grid": [arg.grid for arg in args],
            "block": [arg.block for arg in args],
        },
        strict=False,
    )


def decode(path: Path) -> int:
    """Decode all complete events; their number."""
    decoder = msgspec.json.Decoder(list[Event])
    frames: list[pl.DataFrame] = []
    gc.disable()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for chunk in chunks(data):
            kept: dict[str, list[Event]] = {}
            for event in decoder.decode(chunk):
                if event.ph == "X":
                    kept.setdefault(event.cat, []).append(event)
            frames.extend(columns(events) for events in kept.values())
    return sum(frame.height for frame in frames)


if __name__ == "__main__":
    sys.stdout.write(f"{decode(Path(sys.argv[1]))} events\n")
