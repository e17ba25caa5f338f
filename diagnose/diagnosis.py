"""The diagnosis document, schema `diagnosis/1`: the one machine-readable result.

Every other output is rendered from it, and comparing reads it, never the traces. Times are integer nanoseconds in fields
named `_ns`; shares run from 0 to 1; None means "could not be measured". Additive changes keep the schema's name.
Same input and rules give the same bytes: no clock, no random id, stable order.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

SCHEMA = "diagnosis/1"

Wall = Literal["memory", "communication", "host_overhead", "compute"]
Status = Literal["measured", "inferred", "config", "hypothesis"]
Certainty = Literal["high", "medium", "low"]
Level = Literal["low", "medium", "high"]
FixState = Literal["applicable", "already_on", "blocked", "unknown"]
Role = Literal["compute", "transport", "packing", "copy"]
CommKind = Literal["expert", "data", "tensor", "pipeline", "context", "other"]
Cause = Literal["allocator", "sync", "gc", "python", "launch"]
FactValue = int | float | bool | str | None

WALLS: tuple[Wall, ...] = ("memory", "communication", "host_overhead", "compute")
COMM_KINDS: tuple[CommKind, ...] = ("expert", "data", "tensor", "pipeline", "context", "other")
BUCKETS = (
    "vision_encoder",
    "attention",
    "router",
    "dispatch",
    "expert_gemm",
    "optimizer",
    "dense_gemm",
    "norm",
    "activation",
    "embedding",
    "loss",
    "collective",
    "memcpy",
    "memset",
    "elementwise",
    "other",
)
PHASES = ("forward", "backward", "recompute", "optimizer")
EVIDENCE = ("rule", "module", "operator", "name", "neighbours")


class Tool(Struct, frozen=True, kw_only=True):
    """The program that wrote the document; `rules_sha256` covers every rule file in use."""

    name: str
    version: str
    rules_sha256: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The headline. `dominant_wall` is the largest bound of the first three walls if it reaches 10 % of the step, otherwise compute."""

    dominant_wall: Wall
    runner_up: Wall
    certainty: Certainty
    sentence: str
    perturbed: bool
    certainty_reasons: tuple[str, ...] = ()


class WallBound(Struct, frozen=True, kw_only=True):
    """What could be won at most, per step (median). `share` is of the step; `parts` add up to the bound."""

    wall: Wall
    bound_ns: int | None
    share: float | None
    parts: dict[str, int | None]
    status: Status
    beside: dict[str, int | None] = {}  # shown beside, not part of the bound (packing)


class JobSetting(Struct, frozen=True, kw_only=True):
    """One normalised setting that was read, with the key it came from."""

    name: str
    value: FactValue | tuple[str, ...]
    key: str


class JobRead(Struct, frozen=True, kw_only=True):
    """What the job file says. `unknown` lists keys that the program does not know (kept, never an error)."""

    format: Literal["megatron-bridge", "megatron-lm", "plain"]
    settings: tuple[JobSetting, ...]
    unknown: tuple[str, ...] = ()


class DeviceInfo(Struct, frozen=True, kw_only=True):
    """One GPU as a rank saw it."""

    rank: int
    device: int
    name: str | None
    sm_count: int | None
    compute_capability: str | None
    memory_bytes: int | None


class RankInfo(Struct, frozen=True, kw_only=True):
    """One process of the job. `source` says where the rank came from: "assigned" means given in order."""

    rank: int
    world_size: int | None
    source: str
    file: str
    host: str | None = None  # only on request


class TableCount(Struct, frozen=True, kw_only=True):
    """Rows of one foreign table: read = kept + refused."""

    table: str
    read: int
    kept: int
    refused: int


class Capture(Struct, frozen=True, kw_only=True):
    """What was captured and how well."""

    format: str
    profiler: str
    profiler_version: str | None
    schema_version: str | None
    devices: tuple[DeviceInfo, ...]
    ranks: tuple[RankInfo, ...]
    diagnostics: tuple[str, ...]
    cuda_graphs: Literal["none", "nodes", "opaque"]
    correlation_rate: float | None  # share of device operations that joined their launch
    resolved_wait_rate: float | None  # share of stream waits whose event record was found
    metrics: tuple[str, ...]
    slowdown: float | None
    tables: tuple[TableCount, ...] = ()
    notes: tuple[str, ...] = ()


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """One kind of data-quality event, with its count and what it means for the result."""

    code: str
    severity: str
    origin: str
    table: str
    count: int
    meaning: str
    detail: str = ""


class Spread(Struct, frozen=True, kw_only=True):
    """Median, minimum and maximum over the steps."""

    median: int | None
    min: int | None
    max: int | None
    n: int = 0


class Dropped(Struct, frozen=True, kw_only=True):
    """A step that is left out of every per-step figure."""

    index: int
    why: str


class Window(Struct, frozen=True, kw_only=True):
    """One step on one device's clock, relative to the capture's start."""

    index: int
    start_ns: int
    end_ns: int
    rank: int = 0
    device: int = 0


class CrossCheck(Struct, frozen=True, kw_only=True):
    """A second anchor's view of the step time."""

    anchor: str
    median_ns: int | None
    n: int
    disagrees: bool


class Steps(Struct, frozen=True, kw_only=True):
    """How the capture was cut into steps. With anchor "capture" every per-step figure is per capture."""

    anchor: str
    n: int
    dropped: tuple[Dropped, ...]
    duration_ns: Spread
    windows: tuple[Window, ...]
    cross_check: tuple[CrossCheck, ...] = ()


class Totals(Struct, frozen=True, kw_only=True):
    """Figures of one device over the whole capture, without windows, that anybody can recompute. First and last in the file's clock."""

    rank: int
    device: int
    kernel_count: int
    kernel_work_ns: int
    device_busy_ns: int
    kernel_busy_ns: int
    transport_busy_ns: int
    transport_exposed_ns: int
    first_ns: int
    last_ns: int


class StepBudget(Struct, frozen=True, kw_only=True):
    """The budget of one step of one device; for the median, each figure is the median of its own."""

    index: int | None
    window_ns: int
    device_busy_ns: int
    device_idle_ns: int
    compute_busy_ns: int
    compute_absent_ns: int
    communication_busy_ns: int
    communication_exposed_ns: int
    transport_busy_ns: int
    transport_exposed_ns: int
    packing_busy_ns: int
    packing_exposed_ns: int
    copy_busy_ns: int
    copy_exposed_ns: int
    launch_starved_ns: int
    allocator_ns: int
    host_sync_ns: int
    host_work_ns: int
    blocking_ns: int
    blocking_transport_ns: int
    blocking_packing_ns: int
    blocking_copy_ns: int
    dependency_stalled_ns: int
    blocking_lower_ns: int
    blocking_upper_ns: int


class DeviceBudget(Struct, frozen=True, kw_only=True):
    """All steps of one device, and the median of each figure."""

    rank: int
    device: int
    per_step: tuple[StepBudget, ...]
    median: StepBudget | None


class BucketTime(Struct, frozen=True, kw_only=True):
    """One bucket of one rank, per step (median). Work sums durations; busy is a union; exclusive is when nothing else ran."""

    rank: int
    device: int
    bucket: str
    kernels: int
    work_ns: int
    busy_ns: int
    exclusive_ns: int
    share: float  # of all device work
    phase: dict[str, int]  # work by phase: forward, backward, recompute, optimizer, unknown
    decided_by: dict[str, float]  # share of the bucket's work by kind of evidence


class Unclassified(Struct, frozen=True, kw_only=True):
    """One kernel name in the bucket `other`, or decided by weak evidence only."""

    name: str
    kernels: int
    work_ns: int
    share: float


class Communication(Struct, frozen=True, kw_only=True):
    """One kind of exchange by one backend, per step (median)."""

    rank: int
    device: int
    kind: CommKind
    backend: str
    count: int
    work_ns: int
    busy_ns: int
    exposed_ns: int
    blocking_ns: int | None
    overlap: float | None  # 1 − exposed/busy
    transfer_ns: int | None = None  # needs several ranks
    wait_ns: int | None = None
    matched: int | None = None
    unmatched: int | None = None


class Blocking(Struct, frozen=True, kw_only=True):
    """What compute waited for, per step (median)."""

    rank: int
    device: int
    bucket: str
    role: Role
    kind: CommKind | None
    blocking_ns: int
    status: Status


class HostCost(Struct, frozen=True, kw_only=True):
    """A host activity during which compute was launch-starved, per step (median)."""

    rank: int
    device: int
    name: str
    launch_starved_ns: int
    count: int
    cause: Cause


class Memory(Struct, frozen=True, kw_only=True):
    """The memory wall as time and level."""

    recompute_ns: int | None
    recompute_status: Status | None
    attention_forward_kernels: int | None
    attention_backward_kernels: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    capacity_bytes: int | None


class KernelOccupancy(Struct, frozen=True, kw_only=True):
    """Launch shape of one kernel name against the device's limits, weighted by work."""

    name: str
    bucket: str
    kernels: int
    work_ns: int
    occupancy: float | None  # theoretical: resident warps / maximum
    waves: float | None  # blocks / blocks that fit on the device at once
    fill: float | None  # waves / ceil(waves): share of SM·time that had a block
    limited_by: str | None


class Occupancy(Struct, frozen=True, kw_only=True):
    """SM occupancy from launch shapes, by bucket and for the costliest kernels."""

    device: str | None
    sm_count: int | None
    buckets: dict[str, float | None]  # fill by bucket, weighted by work
    kernels: tuple[KernelOccupancy, ...]


class Fact(Struct, frozen=True, kw_only=True):
    """One number that rules may use; value None means not measured."""

    value: FactValue
    unit: str
    status: Status


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that a finding rests on."""

    fact: str
    value: FactValue
    unit: str


class Where(Struct, frozen=True, kw_only=True):
    """Where a finding shows: ranks, steps, and the costliest kernels or calls."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    top: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """One setting to change, in one framework's own key."""

    framework: str
    key: str
    from_: str | None = msgspec.field(name="from")
    to: str


class Expected(Struct, frozen=True, kw_only=True):
    """A published effect, with its source."""

    text: str
    source: str


class Fix(Struct, frozen=True, kw_only=True):
    """A remedy for a finding, read against the job file."""

    id: str
    title: str
    state: FixState
    blocked_by: tuple[str, ...]
    changes: tuple[Change, ...]
    expected: tuple[Expected, ...]
    cost: str
    risk: str
    verify: str
    refs: tuple[str, ...]
    unknown: tuple[str, ...] = ()  # what would have to be known to decide


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that holds the run back, or that a reader must know."""

    id: str
    name: str
    wall: Wall | Literal["capture"]
    severity: Level
    status: Status
    summary: str
    evidence: tuple[Evidence, ...]
    bound_ns: int | None
    speedup_ceiling: float | None  # step / (step − bound)
    where: Where
    fixes: tuple[Fix, ...]
    wrong_when: str
    why: str = ""
    check: str = ""
    refs: tuple[str, ...] = ()


class NotAssessed(Struct, frozen=True, kw_only=True):
    """A rule that lacked a fact, and how to get it."""

    id: str
    missing: tuple[str, ...]
    how: str


class TimelineOp(Struct, frozen=True, kw_only=True):
    """One bar of the timeline figure: consecutive operations of one stream and bucket drawn as one."""

    stream: int
    start_ns: int
    end_ns: int
    bucket: str
    role: Role
    name: str
    kernels: int


class TimelineGap(Struct, frozen=True, kw_only=True):
    """One stretch without compute, with its cause."""

    start_ns: int
    end_ns: int
    cause: str


class Timeline(Struct, frozen=True, kw_only=True):
    """One step of one device, thinned for drawing; `omitted` bars were too short to draw."""

    rank: int
    device: int
    step: int
    start_ns: int
    end_ns: int
    ops: tuple[TimelineOp, ...]
    gaps: tuple[TimelineGap, ...]
    omitted: int = 0


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema: str
    tool: Tool
    verdict: Verdict
    walls: tuple[WallBound, ...]
    job: JobRead | None
    capture: Capture
    ledger: tuple[LedgerEntry, ...]
    steps: Steps
    totals: tuple[Totals, ...]
    budget: tuple[DeviceBudget, ...]
    buckets: tuple[BucketTime, ...]
    unclassified: tuple[Unclassified, ...]
    communication: tuple[Communication, ...]
    blocking: tuple[Blocking, ...]
    host: tuple[HostCost, ...]
    memory: Memory | None
    occupancy: Occupancy | None
    efficiency: None = None
    vision: None = None
    ranks: None = None
    facts: dict[str, Fact]
    findings: tuple[Finding, ...]
    not_assessed: tuple[NotAssessed, ...]
    timeline: Timeline | None = None


def encode(diagnosis: Diagnosis) -> bytes:
    """The document as JSON bytes, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n"


def decode(data: bytes) -> Diagnosis:
    """A Diagnosis from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Diagnosis)


def json_schema() -> dict[str, object]:
    """JSON Schema of the document, generated from these classes."""
    return msgspec.json.schema(Diagnosis)
