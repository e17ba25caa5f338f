"""The records of what was measured.

Steps, budget, buckets, communication, host, memory, occupancy, timeline, and what captures are compared by.

Parts of the diagnosis document (`diagnose.document.diagnosis`), with its conventions: integer nanoseconds in fields named `_ns`, shares
from 0 to 1, None for what could not be measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from diagnose.model.vocabulary import Cause, CommKind, MoePart, Role, Status
from diagnose.model.vocabulary import Phase as PhaseName


class OnDevice(Struct, frozen=True, kw_only=True):
    """What is told of one device of one rank."""

    rank: int
    device: int


T = TypeVar("T", bound=OnDevice)


def on_device(rows: Iterable[T], place: tuple[int | None, int | None]) -> list[T]:
    """The rows of one device; `place`: its rank and number."""
    return [row for row in rows if (row.rank, row.device) == place]


def of_device(rows: Iterable[T], place: tuple[int | None, int | None]) -> T | None:
    """The one row of a device, if there is one; `place`: its rank and number."""
    return next(iter(on_device(rows, place)), None)


class Spread(Struct, frozen=True, kw_only=True):
    """Median, minimum and maximum over the steps, and their mean, which shares of the step are of."""

    median: int | None
    min: int | None
    max: int | None
    n: int = 0
    mean: int | None = None


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


class MetricSamples(OnDevice, frozen=True, kw_only=True):
    """One hardware metric of one device inside the steps.

    A sample is of the whole GPU, so it speaks of one operation only where that ran alone.
    """

    name: str
    samples: int
    alone: int  # samples at which just one operation ran on the device
    mean: float | None  # in the metric's own unit
    mean_alone: float | None  # over the samples of `alone`


class LongestCall(Struct, frozen=True, kw_only=True):
    """One API call (and the kernel that it launched)."""

    name: str
    duration_ns: int


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the capture that is start-up, by the host's clock relative to the capture's start; `why` says how it was recognised."""

    name: str
    start_ns: int
    end_ns: int
    why: str
    longest_call: LongestCall | None


class StepClass(Struct, frozen=True, kw_only=True):
    """Steps of one kind. `duration_ns` is their mean; `differs_by`: what tells them from the largest class, which has None."""

    n: int
    duration_ns: int
    differs_by: str | None
    steps: tuple[int, ...] = ()


class CrossCheck(Struct, frozen=True, kw_only=True):
    """A second anchor's view of the step time."""

    anchor: str
    median_ns: int | None
    n: int
    disagrees: bool


class Steps(Struct, frozen=True, kw_only=True):
    """How the capture was cut into steps. With anchor "capture" every per-step figure is per capture.

    `classes`: steps told apart by work and duration, largest class first; one class where all are alike. `outside_ns`: device time (union)
    of the whole capture that lies outside the steps.
    """

    anchor: str
    n: int
    dropped: tuple[Dropped, ...]
    duration_ns: Spread
    windows: tuple[Window, ...]
    cross_check: tuple[CrossCheck, ...] = ()
    classes: tuple[StepClass, ...] = ()
    outside_ns: int | None = None


class Totals(OnDevice, frozen=True, kw_only=True):
    """Figures of one device over the whole capture, without windows, that anybody can recompute. First and last in the file's clock."""

    kernel_count: int
    kernel_work_ns: int
    device_busy_ns: int
    kernel_busy_ns: int
    transport_busy_ns: int
    transport_exposed_ns: int
    first_ns: int
    last_ns: int


class StepBudget(Struct, frozen=True, kw_only=True):
    """The budget of one step of one device.

    For the mean and the median each figure is that of its own: means add up as the steps do, medians need not.
    """

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
    blocking_host_copy_ns: int  # the part of blocking_copy_ns by copies between host and device
    dependency_stalled_ns: int
    blocking_lower_ns: int
    blocking_upper_ns: int


class DeviceBudget(OnDevice, frozen=True, kw_only=True):
    """All steps of one device, with the median and the mean (sum over the steps ÷ n) of each figure.

    `typical` is the index of the step of median length.
    """

    per_step: tuple[StepBudget, ...]
    median: StepBudget | None
    mean: StepBudget | None = None
    typical: int | None = None


class Products(Struct, frozen=True, kw_only=True):
    """Matrix products of one bucket whose shapes the trace holds (PyTorch's `record_shapes`), per step (mean)."""

    flop: float  # two per multiply-add
    ns: int  # work of the kernels that did them, and of what the same operators launched beside


class BucketTime(OnDevice, frozen=True, kw_only=True):
    """One bucket of one rank, per step (mean). Work sums durations; busy is a union; exclusive is when nothing else ran."""

    bucket: str
    kernels: int
    work_ns: int
    busy_ns: int
    exclusive_ns: int
    share: float  # of all device work
    phase: dict[str, int]  # work by phase: forward, backward, recompute, optimizer, unknown
    decided_by: dict[str, float]  # share of the bucket's work by kind of evidence
    products: Products | None = None


class Unclassified(Struct, frozen=True, kw_only=True):
    """One kernel name in the bucket `other`, or decided by weak evidence only."""

    name: str
    kernels: int
    work_ns: int
    share: float


class Communication(OnDevice, frozen=True, kw_only=True):
    """One kind of exchange by one backend, per step (mean)."""

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


class Blocking(OnDevice, frozen=True, kw_only=True):
    """What compute waited for, per step (mean)."""

    bucket: str
    role: Role
    kind: CommKind | None
    blocking_ns: int
    status: Status


class HostCost(OnDevice, frozen=True, kw_only=True):
    """A host activity during which compute was launch-starved, per step (mean)."""

    name: str
    launch_starved_ns: int
    count: int
    cause: Cause


class Memory(Struct, frozen=True, kw_only=True):
    """The memory wall as time and level."""

    recompute_ns: int | None
    recompute_lower_ns: int | None  # what is certainly repeated; recompute_ns where ranges tell how far each repetition goes
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
    fill: float | None  # share of SM·time in which an SM has a block: full waves, and the part of the SMs that the last wave reaches
    limited_by: str | None


class Occupancy(Struct, frozen=True, kw_only=True):
    """SM occupancy from launch shapes, by bucket and for the costliest kernels."""

    device: str | None
    sm_count: int | None
    buckets: dict[str, float | None]  # fill by bucket, weighted by work
    kernels: tuple[KernelOccupancy, ...]


class LayerPart(Struct, frozen=True, kw_only=True):
    """One part of a pass through a mixture-of-experts layer, the mean over its passes.

    `busy_ns` is the union of its operations, `exposed_ns` of that when nothing else ran on the device; least and most over the passes of a
    step.
    """

    part: MoePart
    kernels: float
    busy_ns: int
    exposed_ns: int
    busy_min_ns: int
    busy_max_ns: int


class LayerPass(Struct, frozen=True, kw_only=True):
    """The mean pass of one phase through a mixture-of-experts layer.

    Its parts in the order in which they run, backward named by what they are the gradient of.

    `passes`: per step, layers × micro-batches. `span_ns`: from the first operation of a pass to the end of its last. `phase` is None where
    forward and backward can't be told apart. `status`: inferred where not every pass shows an exchange before its experts and one behind
    them.
    """

    phase: PhaseName | None
    passes: int
    status: Status
    span_ns: int
    span_min_ns: int
    span_max_ns: int
    parts: tuple[LayerPart, ...]


class MoeLayer(OnDevice, frozen=True, kw_only=True):
    """One mixture-of-experts layer of one device: the mean over layers and micro-batches, forward, recomputed and backward."""

    passes: tuple[LayerPass, ...]


class VisionPart(Struct, frozen=True, kw_only=True):
    """The operations of one kind in a vision encoder, by what their names stand for; per step, `busy_ns` their union."""

    operation: str
    kernels: float
    busy_ns: int


class VisionPass(Struct, frozen=True, kw_only=True):
    """One phase of a vision encoder, the mean over the steps; its parts longest first.

    `busy_ns` is the union of its operations, `alone_ns` of that when nothing else ran on the device, `idle_ns` when the device did nothing
    between two of them that follow one another. `phase` is None for what no phase is known of.
    """

    phase: PhaseName | None
    kernels: float
    busy_ns: int
    alone_ns: int
    idle_ns: int
    parts: tuple[VisionPart, ...]


class VisionEncoder(OnDevice, frozen=True, kw_only=True):
    """The vision encoder on the device on which it ran longest."""

    passes: tuple[VisionPass, ...]


class TimelineColumns(Struct, frozen=True, kw_only=True):
    """Every operation of the step and every stretch without compute, one column per figure: what a timeline draws when it is zoomed.

    Columns of operations have one entry each, in order of start; `stream`, `bucket` and `name` are places in `streams`, `buckets` and
    `names`.
    Starts are from the step's start. `queued_ns`: how long before its start the host had launched it, None where that is not recorded.
    `range`: the innermost range around that launch, a place in `names`, or None. Columns of gaps alike: `gap_cause` is a place in `causes`,
    `gap_blocked_by` the operation that compute waited for, or None. `omitted`: operations beyond the bound, the shortest, which are left
    out.
    """

    streams: tuple[int | None, ...]
    buckets: tuple[str, ...]
    names: tuple[str, ...]
    causes: tuple[str, ...]
    start_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]
    stream: tuple[int, ...]
    bucket: tuple[int, ...]
    name: tuple[int, ...]
    queued_ns: tuple[int | None, ...]
    range: tuple[int | None, ...]
    gap_start_ns: tuple[int, ...]
    gap_duration_ns: tuple[int, ...]
    gap_cause: tuple[int, ...]
    gap_blocked_by: tuple[int | None, ...]
    omitted: int = 0


class HostColumns(Struct, frozen=True, kw_only=True):
    """What the host did for the step: API calls and ranges, one column per figure.

    Starts are from the step's start; what launched the step's first operations began before it. `call_thread` and `range_thread` are places
    in
    `threads`, `call_name` and `range_name` in `names`. `launched_by`: for each operation of the step the call that launched it, a place in
    the columns of calls, or None. `omitted`: calls and ranges beyond the bound, the shortest, which are left out.
    """

    threads: tuple[str, ...]
    names: tuple[str, ...]
    call_start_ns: tuple[int, ...]
    call_duration_ns: tuple[int, ...]
    call_thread: tuple[int, ...]
    call_name: tuple[int, ...]
    range_start_ns: tuple[int, ...]
    range_duration_ns: tuple[int, ...]
    range_thread: tuple[int, ...]
    range_name: tuple[int, ...]
    launched_by: tuple[int | None, ...]
    omitted: int = 0


class Timeline(OnDevice, frozen=True, kw_only=True):
    """One step of one device: `columns` holds its operations, `host` what launched them."""

    step: int
    start_ns: int
    end_ns: int
    columns: TimelineColumns
    host: HostColumns | None = None


Ran = Literal["transport", "packing", "copy", "nothing"]
Why = Literal["transport", "packing", "copy", "allocator", "host_sync", "host_work", "dependency_stalled", "step_end"]
RAN: tuple[Ran, ...] = get_args(Ran)
WHY: tuple[Why, ...] = get_args(Why)


class Absent(Struct, frozen=True, kw_only=True):
    """Time of one step without compute.

    What ran meanwhile (transport before packing before copies, where several did), and why nothing computed.

    `why` is the split of `StepBudget`: what compute waited for (transport, packing, copy), what kept the host from launching (allocator,
    host_sync, host_work), or dependency_stalled; step_end: nothing ran and nothing is known to have been waited for, and no compute follows
    in the step. dependency_stalled and step_end together are the step's `dependency_stalled_ns`.
    """

    ran: Ran
    why: Why
    ns: int


class StepSplit(Struct, frozen=True, kw_only=True):
    """One step, each nanosecond counted once.

    `compute` by bucket (where several buckets compute at once, each gets an equal share) and the rest add up to `window_ns`.

    Both hold no zeros and stand in the order of their vocabularies. What does not divide equally goes to the first buckets, nanosecond by
    nanosecond.
    """

    index: int
    window_ns: int
    compute: dict[str, int]
    absent: tuple[Absent, ...]


class DeviceSplit(OnDevice, frozen=True, kw_only=True):
    """All steps of one device."""

    steps: tuple[StepSplit, ...]


class KernelUse(Struct, frozen=True, kw_only=True):
    """One name on one stream: launches and work per step (median), and the median duration of one launch in all steps.

    `previous` and `next` are the places, in this device's rows, of the names that most often ran before and after it on the stream, within
    a step; None where nothing did, and where what did is left out. A step without the name counts as 0 launches and 0 work.
    """

    name: str
    bucket: str
    role: Role
    stream: int | None
    launches: int
    work_ns: int
    launch_ns: int
    previous: int | None = None
    next: int | None = None


class DeviceKernels(OnDevice, frozen=True, kw_only=True):
    """What one device ran, most work first. `omitted`: names that are left out, with `omitted_ns` of work per step."""

    kernels: tuple[KernelUse, ...]
    omitted: int = 0
    omitted_ns: int = 0
