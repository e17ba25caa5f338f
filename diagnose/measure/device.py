"""Everything that is measured of one device of one rank, stage by stage.

Steps, sweep, stalls, budget, usage, communication, memory, occupancy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from diagnose.document.steps import StepSplit
from diagnose.knowledge.load import Knowledge
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.budget import Budget, budget, concurrency
from diagnose.measure.communication import CommunicationTimes, communication
from diagnose.measure.exchanges import Exchanges, exchanges
from diagnose.measure.facts.counts import step_counts
from diagnose.measure.host import Launches, graph_launches, host_activity
from diagnose.measure.memory import MemoryUse, memory_use
from diagnose.measure.occupancy import SmOccupancy, sm_occupancy
from diagnose.measure.split import split
from diagnose.measure.steps import StepWindows, inside_windows
from diagnose.measure.timeline import DrawnStep, timeline
from diagnose.measure.typical import TypicalStep, step_median, typical_step
from diagnose.measure.usage import Usage, usage
from diagnose.measure.waits.causes import Causes, causes
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.measure.waits.stalls import stalls
from diagnose.model.trace import Device, Trace
from diagnose.model.vocabulary import PHASES


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What the trace tells of one device: without it some figures are not known.

    `resolved_wait_rate`: share of stream waits whose event record was found.
    """

    operations: int
    launched: int  # operations whose launching call was recorded
    resolved_wait_rate: float | None
    calls: bool
    gc_ranges: bool
    pinned: bool
    bytes: bool


@dataclass(frozen=True, kw_only=True)
class DeviceMeasure:
    """The measurements of one device: the results of the stages of `measure_device`. Rank and device stand here and nowhere below.

    Frames with a column index have one row (or several) per step window. `counts`: figures that only facts use, one row per window.
    """

    rank: int
    device: int
    info: Device | None
    recorded: Recorded
    steps: StepWindows
    budget: Budget
    split: tuple[StepSplit, ...]
    causes: Causes
    communication: CommunicationTimes
    usage: Usage
    counts: pl.DataFrame
    memory: MemoryUse
    occupancy: SmOccupancy
    exchanges: Exchanges
    timeline: DrawnStep
    typical: TypicalStep

    @property
    def median_step_ns(self) -> int:
        """Median window length."""
        return step_median(self.budget.per_step["window_ns"])


def device_work(trace: Trace, launches: Launches, classified: Classified) -> Iterator[tuple[int, int, pl.DataFrame]]:
    """(rank, device, operations in order of start) of every device.

    Columns: those of Trace.ops except rank and device; call_start, issued, thread; class_id, payload_id, bucket, role, phase, operation;
    op, the row number.
    """
    every = trace.ops.hstack(launches.frame).with_columns(classified.class_id.alias("class_id"), classified.payload_id.alias("payload_id"))
    classes = classified.classes.sort("class_id").select(
        "class_id",
        pl.col("bucket").cast(classified.buckets),
        pl.col("role").cast(pl.Enum(["compute", "transport", "packing", "copy"])),
        pl.col("phase").cast(pl.Enum(PHASES)),
        pl.col("operation").cast(pl.Categorical),
    )
    places = every.select("rank", "device").unique().sort("rank", "device")
    for rank, device in places.iter_rows():
        own = every if places.height == 1 else every.filter((pl.col("rank") == rank) & (pl.col("device") == device))
        yield rank, device, own.drop("rank", "device").join(classes, on="class_id", how="left", maintain_order="left").with_row_index("op")


def measure_device(
    trace: Trace,
    work: pl.DataFrame,
    classified: Classified,
    knowledge: Knowledge,
    *,
    rank: int,
    device: int,
    steps: StepWindows,
) -> DeviceMeasure:
    """Measure one device; `work` as `device_work` gives it, `steps` as `find_steps`."""
    info = next((one for one in trace.devices if (one.rank, one.device) == (rank, device)), None)
    windows, classes = steps.frame, classified.classes
    inside = inside_windows(work, windows)
    ran = concurrency(work, classes, windows)
    host = host_activity(trace, work, rank, knowledge.hosts, device)
    waits = resolve_waits(_waits_of(trace, rank, device), _stream_wait_calls(trace, rank))
    found = stalls(work, windows, waits, host)
    times = budget(ran, found, work, windows, trace.provenance.origin_ns)
    why = causes(found, work, classes, host, trace)
    transport = communication(ran, inside, windows, classes, why.blocking)
    used = usage(inside, ran, windows, classified, trace)
    return DeviceMeasure(
        rank=rank,
        device=device,
        info=info,
        recorded=Recorded(
            operations=work.height,
            launched=work.height - work["issued"].null_count(),
            resolved_wait_rate=waits.resolved_rate,
            calls=host.has_calls,
            gc_ranges=host.has_gc_ranges,
            pinned=work["pinned"].null_count() < work.height,
            bytes=work["bytes"].null_count() < work.height,
        ),
        steps=steps,
        budget=times,
        split=split(found, ran, work, windows, classified.buckets),
        causes=why,
        communication=transport,
        usage=used,
        counts=step_counts(inside, windows, found, host, graph_launches(trace, rank, knowledge.hosts)),
        memory=memory_use(inside, windows, found.pieces, trace.memory, rank, device),
        occupancy=sm_occupancy(inside, trace, info, knowledge.rulebook.platforms.sm_limits),
        exchanges=exchanges(work, inside, windows, classes, found, trace, knowledge.exchanges),
        timeline=timeline(inside, found, windows, trace, work["role"]),
        typical=typical_step(times, used, transport, why),
    )


def _waits_of(trace: Trace, rank: int, device: int) -> pl.DataFrame:
    """The waits of one device; what names no device may concern any."""
    return trace.waits.filter((pl.col("rank") == rank) & ((pl.col("device") == device) | pl.col("device").is_null()))


def _stream_wait_calls(trace: Trace, rank: int) -> pl.Series:
    """Correlation ids of the stream-wait API calls of a rank."""
    ids = trace.names.filter(pl.col("text").str.contains("StreamWaitEvent"))["id"]
    return trace.calls.filter((pl.col("rank") == rank) & pl.col("name_id").is_in(ids.implode()))["correlation"]
