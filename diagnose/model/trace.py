"""The Trace: typed, immutable frames of one profiled capture, whatever tool wrote it.

All times are int64 nanoseconds from the capture's start (`Provenance.origin_ns` in the file's own clock). Null means that the profiler did
not record it. Every schema is one constant here, and `diagnose.load.conform` is the only producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl
from msgspec import Struct, field

from diagnose.model.environment import EnvironmentItem
from diagnose.model.ledger import Ledger

OP_KINDS = ("kernel", "memcpy", "memset", "graph")
# python: a frame that tells a module or what the host does; frame: any other that lasts NAMING_NS, which may only name a pause
RANGE_KINDS = ("push_pop", "start_end", "mark", "annotation", "gpu_annotation", "operator", "python", "comms", "frame", "system")
SYSTEM = "system"  # a long call of the operating system
NAMING_NS = 500_000  # this project's choice: a range that names a long pause (1 ms or more) covers half of it
WAIT_KINDS = ("record", "stream_wait", "stream_sync", "event_sync", "device_sync")
COPY_KINDS = ("h2d", "d2h", "d2d", "h2h", "p2p", "other")

OpKind = pl.Enum(OP_KINDS)
RangeKind = pl.Enum(RANGE_KINDS)
WaitKind = pl.Enum(WAIT_KINDS)
CopyKind = pl.Enum(COPY_KINDS)

Schema = Mapping[str, pl.DataType | type[pl.DataType]]


# One device operation: a kernel, copy, memory set, or one opaque execution of a whole CUDA graph.
OPS: Schema = {
    "rank": pl.Int32,  # key into Trace.ranks; correlation ids are unique within a rank
    "device": pl.Int32,  # CUDA ordinal as the process sees it
    "start": pl.Int64,
    "end": pl.Int64,
    "kind": OpKind,
    "stream": pl.Int64,
    "name_id": pl.Int32,  # key into Trace.names
    "correlation": pl.Int64,  # null: not recorded
    "graph_node": pl.Int64,  # set when a CUDA graph launched it and its nodes were traced
    "grid_x": pl.Int32,
    "grid_y": pl.Int32,
    "grid_z": pl.Int32,
    "block_x": pl.Int32,
    "block_y": pl.Int32,
    "block_z": pl.Int32,
    "registers": pl.Int32,  # per thread
    "shared_memory": pl.Int32,  # bytes per block, static and dynamic together
    "bytes": pl.Int64,  # of a copy or set
    "copy_kind": CopyKind,
    "pinned": pl.Boolean,  # False: a host side of the copy is pageable
    "payload_id": pl.Int32,  # key into Trace.payloads, when the kernel itself carries a collective's description
}

# One host API call (CUDA runtime or driver).
CALLS: Schema = {
    "rank": pl.Int32,
    "thread": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "name_id": pl.Int32,  # name without version suffix: cudaLaunchKernel, not cudaLaunchKernel_v7000
    "correlation": pl.Int64,
}

# One NVTX range or mark, user annotation, framework operator, Python frame or long call of the operating system (`system`).
RANGES: Schema = {
    "rank": pl.Int32,
    "thread": pl.Int64,  # null for a range that belongs to no host thread (gpu_annotation)
    "start": pl.Int64,
    "end": pl.Int64,  # never null: a mark ends where it starts, an open range at the capture's end
    "kind": RangeKind,
    "text_id": pl.Int32,  # key into Trace.names; the emit_nvtx suffix ", seq = …, op_id = …, sizes = …" is cut off
    "domain": pl.Int32,  # NVTX domain, 0 = default
    "sequence": pl.Int64,  # autograd sequence number: links a backward node to its forward operator
    "forward_thread": pl.Int64,  # thread of that forward operator, where recorded
    "flop": pl.Int64,  # of an operator that is a matrix product, by the shapes recorded of it
    "payload_id": pl.Int32,  # key into Trace.payloads
}

# One dependency: an event record, a stream's wait for an event, or a host synchronisation.
WAITS: Schema = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,  # the stream that records, waits, or is synchronised; null = all (device_sync) or unknown
    "start": pl.Int64,  # of the host call; null where only the correlation is known
    "end": pl.Int64,
    "kind": WaitKind,
    "event": pl.Int64,  # event handle: reused by the application, so only with order
    "sync_id": pl.Int64,  # unique number of one record; a wait carries the number of the record that it waits for
    "correlation": pl.Int64,
}

# One sample of a hardware metric.
COUNTERS: Schema = {"rank": pl.Int32, "device": pl.Int32, "time": pl.Int64, "name_id": pl.Int32, "value": pl.Float64}

# One allocator event.
MEMORY: Schema = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "time": pl.Int64,
    "bytes": pl.Int64,  # positive: allocated, negative: freed
    "total_allocated": pl.Int64,
    "total_reserved": pl.Int64,
}

# One interned string; ids are dense from 0. `short` is the bare function name where the export holds it.
NAMES: Schema = {"id": pl.Int32, "text": pl.String, "short": pl.String}

# One distinct description of a collective call.
PAYLOADS: Schema = {
    "id": pl.Int32,
    "collective": pl.String,  # as recorded: allreduce, _allgather_base, alltoallv, ncclSend …
    "group": pl.String,  # process group description, e.g. EXPERT_MODEL_PARALLEL_GROUP
    "group_name": pl.String,
    "group_size": pl.Int64,
    "communicator": pl.Int64,
    "dtype": pl.String,
    "elements_in": pl.Int64,
    "elements_out": pl.Int64,
    "bytes": pl.Int64,
    "peer": pl.Int64,
    "members": pl.String,  # the group's global ranks as recorded: "[0, 1, 2, 3]", long lists cut short with "..."
}

# One host thread.
THREADS: Schema = {"rank": pl.Int32, "thread": pl.Int64, "name": pl.String}

SCHEMAS: Mapping[str, Schema] = {
    "ops": OPS, "calls": CALLS, "ranges": RANGES, "waits": WAITS, "counters": COUNTERS, "memory": MEMORY, "names": NAMES,
    "payloads": PAYLOADS, "threads": THREADS,
}  # fmt: skip


class Device(Struct, frozen=True, kw_only=True):
    """One GPU as a rank sees it. Limits are per multiprocessor or block as named; null = not in the trace."""

    rank: int
    device: int
    name: str | None = None
    uuid: str | None = None
    sm_count: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    total_memory: int | None = None  # bytes
    max_threads_per_sm: int | None = None
    max_blocks_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_memory_per_sm: int | None = None  # bytes
    warp_size: int | None = None


RankSource = Literal["trace", "environment", "option", "nvtx", "name", "assigned"]


class Rank(Struct, frozen=True, kw_only=True):
    """One process of the job. `rank` is global where `source` says so, otherwise a number given in order."""

    rank: int
    world_size: int | None = None
    pid: int | None = None
    host: str | None = None  # shown only on request
    source: RankSource = "assigned"
    start_unix_ns: int | None = None  # wall-clock time of the capture's start, for aligning ranks
    claimed: int | None = None  # the rank that the trace told, where another input has that number


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a trace came from. `file` is a bare name, never a path."""

    file: str
    size: int  # bytes of the input
    format: str  # the name of its reader
    profiler: str  # "Nsight Systems" or "PyTorch profiler"
    profiler_version: str | None = None
    schema_version: str | None = None
    origin_ns: int = 0  # what was subtracted from the file's own times
    duration_ns: int | None = None  # of the capture, where the file tells it
    has_python_stacks: bool = False
    overhead: tuple[tuple[int, int], ...] | None = None  # what the profiler took itself while the GPU was at work: disjoint, in order
    graph_trace: Literal["none", "nodes", "opaque"] = "none"
    diagnostics: tuple[str, ...] = ()  # messages of the profiler itself
    environment: tuple[EnvironmentItem, ...] = ()
    notes: tuple[str, ...] = ()  # one sentence each, on how the input was obtained

    def own_spans(self) -> pl.DataFrame:
        """`overhead` as a frame of start and end; empty where the profiler does not tell."""
        return pl.DataFrame(self.overhead or [], schema={"start": pl.Int64, "end": pl.Int64}, orient="row")


def empty(table: str) -> pl.DataFrame:
    """An empty frame with the schema of `table`."""
    return pl.DataFrame(schema=dict(SCHEMAS[table]))


class Trace(Struct, frozen=True, kw_only=True):
    """One capture: see the schema constants above for each frame's columns."""

    ops: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: empty("calls"))
    ranges: pl.DataFrame = field(default_factory=lambda: empty("ranges"))
    waits: pl.DataFrame = field(default_factory=lambda: empty("waits"))
    counters: pl.DataFrame = field(default_factory=lambda: empty("counters"))
    memory: pl.DataFrame = field(default_factory=lambda: empty("memory"))
    names: pl.DataFrame = field(default_factory=lambda: empty("names"))
    payloads: pl.DataFrame = field(default_factory=lambda: empty("payloads"))
    threads: pl.DataFrame = field(default_factory=lambda: empty("threads"))
    devices: tuple[Device, ...] = ()
    ranks: tuple[Rank, ...] = ()
    provenance: Provenance
    ledger: Ledger = field(default_factory=Ledger)

    def __repr__(self) -> str:
        """What it holds in a line: the frames would fill a screen each."""
        ranks = ", ".join(str(one.rank) for one in self.ranks[:4]) + ("…" if len(self.ranks) > 4 else "")
        return f"<Trace {self.provenance.file} ({self.provenance.profiler}): {self.ops.height:,} device operations, rank {ranks or '?'}>"
