"""Everything that is measured of one device of one rank, stage by stage: steps, sweep, stalls, budget, kernels, communication, memory.

What the document lists is per step, the sum over the kept steps ÷ their number, so that parts add up; beside it stand the medians and the
typical step. Rank and device are added when the document is written (`records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.device import LayerPass, Products, StepBudget, StepSplit, VisionPass
from diagnose.knowledge.features import Features, matching
from diagnose.knowledge.forecast import Report
from diagnose.knowledge.load import Knowledge
from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.budget import Budget, CommunicationTimes, Concurrency, beside_compute, budget, by_kind, concurrency, is_role, split
from diagnose.measure.contention import compared, contention, losses
from diagnose.measure.exchanges import Exchanges, exchanges
from diagnose.measure.host import (
    HostActivity,
    Launches,
    calls_named,
    from_its_start,
    graph_launches,
    host_activity,
    lost_share,
    python_seen,
)
from diagnose.measure.kernels import SmOccupancy, Usage, limits, occupancy, step_counts, unfused_attention, usage
from diagnose.measure.memory import Directions, MemoryUse, memory_use
from diagnose.measure.moe_layer import moe_layer
from diagnose.measure.phases import StartUp, with_first_steps, without_repeated
from diagnose.measure.products import products
from diagnose.measure.replay.build import GraphSource, graph_of
from diagnose.measure.replay.excerpt import cut, excerpt
from diagnose.measure.replay.graph import Graph, Kept, kept
from diagnose.measure.sharing import taken
from diagnose.measure.slowing import speeds
from diagnose.measure.step_classes import Classes, step_classes
from diagnose.measure.steps import StepWindows, inside_windows, per_window
from diagnose.measure.timeline import DrawnStep, timeline
from diagnose.measure.vision import vision_encoder
from diagnose.measure.waits.dependencies import StreamWaits, resolve_waits
from diagnose.measure.waits.host_costs import host_costs, late_range, unexplained_calls
from diagnose.measure.waits.leads import Leads, claims, holds_of, host_limited, leads, recompute_restart
from diagnose.measure.waits.stalls import Causes, Stalls, blocking, stalls
from diagnose.model.statistics import integer_median
from diagnose.model.trace import Device, Trace
from diagnose.model.vocabulary import (
    CAPTURE,
    CAST,
    EVIDENCE,
    FP32_PRODUCT,
    LAYOUT_COPY,
    LOSS,
    OPTIMIZER,
    PHASES,
    QUANTIZE,
    UNFUSED_ATTENTION,
)

SHOWN_HOST_COSTS = 20
Row = Mapping[str, Any]


class PerStep(Struct, frozen=True, kw_only=True):
    """What the document lists per step: `mean` and the rows are sums over the kept steps ÷ n, `median` is of each figure by itself.

    `typical` is the index of the step of median length (of two middle ones the shorter): a real step, whose parts add up. `buckets`,
    `communication`, `blocking` and `host` hold the fields of the document's rows of those names (BucketTime, Communication,
    Blocking, HostCost) but for rank and device, in the document's order.
    """

    steps: tuple[StepBudget, ...]
    typical: int
    mean: StepBudget
    median: StepBudget
    buckets: tuple[Row, ...]
    communication: tuple[Row, ...]
    blocking: tuple[Row, ...]
    host: tuple[Row, ...]


def listed_per_step(budget: Budget, usage: Usage, communication: CommunicationTimes, causes: Causes) -> PerStep:
    """What the stages found, per step."""
    names = [field for field in StepBudget.__struct_fields__ if field != "index"]
    per_step = budget.per_step.select("index", *names)
    windows = per_step["index"]
    by_length = per_step.sort("window_ns", "index")["index"]
    return PerStep(
        steps=tuple(StepBudget(**row) for row in per_step.iter_rows(named=True)),
        typical=by_length[(len(by_length) - 1) // 2],
        mean=StepBudget(index=None, **{name: step_mean(per_step[name]) for name in names}),
        median=StepBudget(index=None, **{name: step_median(per_step[name]) for name in names}),
        buckets=_buckets(usage, windows),
        communication=_communication(communication.by_kind, windows),
        blocking=_blocking(causes.blocking, windows),
        host=_host(causes.host, windows),
    )


def step_median(values: pl.Series) -> int:
    """The median over the steps as a whole number, rounded down; steps without a value (null) are left out."""
    return integer_median(values.drop_nulls().to_list())


def step_mean(values: pl.Series) -> int:
    """The sum over the steps ÷ their number as a whole number, halves up; steps without a value (null) are left out, 0 for no value."""
    known = len(values) - values.null_count()
    return (2 * int(values.sum()) + known) // (2 * known) if known else 0


def _means(frame: pl.DataFrame, keys: list[str], columns: list[str], windows: pl.Series) -> list[dict[str, Any]]:
    """One row per combination of `keys` with each column's sum ÷ the number of windows (times rounded to the nearest, counts up)."""
    inside = frame.filter(pl.col("index").is_in(windows.implode())).group_by(keys, maintain_order=True).agg(pl.col(columns).sum())
    n = len(windows)
    up = {column: n // 2 if column.endswith("_ns") else n - 1 for column in columns}
    return [{**row, **{column: (int(row[column]) + up[column]) // n for column in columns}} for row in inside.iter_rows(named=True)]


def _buckets(usage: Usage, windows: pl.Series) -> tuple[Row, ...]:
    """The buckets that hold work, most work first."""
    rows = _means(usage.buckets, ["bucket"], ["kernels", "work_ns", "busy_ns", "exclusive_ns"], windows)
    summed = dict(usage.buckets.group_by("bucket").agg(pl.col("work_ns").sum()).iter_rows())
    total = sum(summed.values()) or 1
    found = []
    for row in rows:
        details = usage.details.filter(pl.col("bucket") == row["bucket"])
        if summed[row["bucket"]] or row["kernels"]:
            share = summed[row["bucket"]] / total
            told = {"share": share, "phase": _phases(details, len(windows)), "decided_by": _evidence(details)}
            found.append({**row, **told, "products": _products(usage.products, row["bucket"], len(windows))})
    return tuple(sorted(found, key=lambda row: (-summed[row["bucket"]], row["bucket"])))


def _products(products: pl.DataFrame, bucket: str, steps: int) -> Products | None:
    """The matrix products of a bucket per step (mean); None where no shapes are known."""
    own = products.filter(pl.col("bucket") == bucket)
    return None if own.is_empty() else Products(flop=own["flop"][0] / steps, ns=round(own["product_ns"][0] / steps))


def _phases(details: pl.DataFrame, steps: int) -> dict[str, int]:
    """Mean work per step by phase; "unknown" where it can't be told."""
    by_phase = dict(details.group_by("phase").agg(pl.col("work_ns").sum()).iter_rows())
    named: dict[str, int] = {phase: by_phase.get(phase, 0) // steps for phase in PHASES}
    return {**named, "unknown": by_phase.get(None, 0) // steps}


def _evidence(details: pl.DataFrame) -> dict[str, float]:
    """Share of work by the kind of evidence that decided the bucket."""
    by_evidence = dict(details.group_by("decided_by").agg(pl.col("work_ns").sum()).iter_rows())
    total = sum(by_evidence.values())
    return {kind: by_evidence.get(kind, 0) / total for kind in EVIDENCE} if total else dict.fromkeys(EVIDENCE, 0.0)


def _communication(by_kind: pl.DataFrame, windows: pl.Series) -> tuple[Row, ...]:
    """Transport by kind and backend."""
    rows = _means(by_kind, ["kind", "backend"], ["count", "work_ns", "busy_ns", "exposed_ns", "blocking_ns"], windows)
    return tuple({**row, "overlap": 1 - row["exposed_ns"] / row["busy_ns"] if row["busy_ns"] else None} for row in rows)


def _blocking(by_class: pl.DataFrame, windows: pl.Series) -> tuple[Row, ...]:
    """What compute waited for, longest first; inferred where any of it is."""
    merged = (
        by_class.filter(pl.col("bucket").is_not_null())
        .group_by("index", "bucket", "role", "kind", maintain_order=True)
        .agg(pl.col("ns").sum().alias("blocking_ns"), pl.col("ns").filter(pl.col("inferred")).sum().alias("inferred_ns"))
    )
    rows = _means(merged, ["bucket", "role", "kind"], ["blocking_ns", "inferred_ns"], windows)
    found = []
    for row in rows:
        status = "inferred" if row.pop("inferred_ns") else "measured"
        if row["blocking_ns"]:
            found.append({**row, "status": status})
    return tuple(sorted(found, key=lambda row: (-row["blocking_ns"], row["bucket"], row["role"], row["kind"] or "")))


def _host(costs: pl.DataFrame, windows: pl.Series) -> tuple[Row, ...]:
    """Host activities during which compute was launch-starved, costliest first."""
    rows = _means(costs.rename({"ns": "launch_starved_ns"}), ["name", "cause"], ["launch_starved_ns", "count"], windows)
    found = [row for row in rows if row["launch_starved_ns"]]
    return tuple(sorted(found, key=lambda row: (-row["launch_starved_ns"], row["name"]))[:SHOWN_HOST_COSTS])


def check_identities(per_step: Sequence[StepBudget], rank: int) -> None:
    """Raise AssertionError unless every step's budget adds up to the nanosecond."""
    for step in per_step:
        sums = {
            "device_busy + device_idle = window": step.device_busy_ns + step.device_idle_ns - step.window_ns,
            "compute_busy + compute_absent = window": step.compute_busy_ns + step.compute_absent_ns - step.window_ns,
            "stalls = compute_absent": step.launch_starved_ns + step.blocking_ns + step.dependency_stalled_ns - step.compute_absent_ns,
            "host parts = launch_starved": step.allocator_ns + step.host_sync_ns + step.host_work_ns - step.launch_starved_ns,
            "blocking parts ≤ blocking": min(
                0, step.blocking_ns - step.blocking_transport_ns - step.blocking_packing_ns - step.blocking_copy_ns
            ),
        }
        wrong = {name: difference for name, difference in sums.items() if difference}
        if wrong:
            raise AssertionError(f"budget of step {step.index} on rank {rank} does not add up: {wrong}")


class Recorded(Struct, frozen=True, kw_only=True):
    """What a trace may lack: some figures are then not known. `resolved_wait_rate`: share of stream waits whose event record was found."""

    operations: int
    launched: int  # operations whose launching call was recorded
    resolved_wait_rate: float | None
    calls: bool
    gc_ranges: bool
    overhead: bool  # of the profiler itself
    python: bool
    pinned: bool
    bytes: bool
    lost: float | None  # share of launches whose operation is missing


class DeviceMeasure(Struct, frozen=True, kw_only=True):
    """The measurements of one device: the results of the stages of `measure_device`. Rank and device stand here and nowhere below.

    Frames with a column index have one row (or several) per step window. `counts`: figures that only facts use, one row per window.
    """

    rank: int
    device: int
    info: Device | None
    recorded: Recorded
    steps: StepWindows
    start_up: StartUp
    classes: Classes
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
    moe_layer: tuple[LayerPass, ...]
    vision: tuple[VisionPass, ...]
    listed: PerStep
    leads: Leads
    others: str | None = None  # the processes that are no ranks and work on the same GPU, as a sentence names them
    kept: Kept | None = None  # its graph, only where asked for

    @property
    def graph(self) -> Graph | None:
        """The graph of its steps."""
        return None if self.kept is None else self.kept.graph

    @property
    def median_step_ns(self) -> int:
        """Median window length."""
        return self.listed.median.window_ns

    @property
    def mean_step_ns(self) -> int:
        """Mean window length, which shares of the step are of."""
        return self.listed.mean.window_ns


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


_CLAIMED = (LOSS, OPTIMIZER, QUANTIZE)  # buckets whose findings claim all that runs there, casts among it


def names_inside(trace: Trace, inside: pl.DataFrame) -> pl.DataFrame:
    """id, text: the names of the operations in the steps."""
    return trace.names.join(inside.select(pl.col("name_id").alias("id")), on="id", how="semi").drop_nulls("text")


def _proving(names: pl.DataFrame, features: Features, feature: str, *, but: frozenset[str] = frozenset()) -> pl.Series:
    """The ids of the names that prove a feature; those of `but` (texts) prove nothing."""
    return names.filter(pl.col("text").is_in(sorted(matching(features[feature], names["text"].to_list()) - but)))["id"]


def kernel_traits(names: pl.DataFrame, inside: pl.DataFrame, features: Features) -> dict[str, pl.Series]:
    """By trait (`TRAITS`), the operations in the steps that have it: by their names, or by what runs around them."""

    def named(feature: str) -> pl.Series:
        proof = _proving(names, features, feature)
        return inside.filter((pl.col("role") == "compute") & pl.col("name_id").is_in(proof.implode()))["op"]

    attention = inside["op"].filter(unfused_attention(inside, named("backward_softmax")))
    elsewhere = inside["op"].filter(inside["bucket"].cast(pl.String).is_in(_CLAIMED) | inside["op"].is_in(attention.implode()))
    casts = named(CAST)
    return {
        FP32_PRODUCT: named(FP32_PRODUCT),
        CAST: casts.filter(~casts.is_in(elsewhere.implode())),
        LAYOUT_COPY: named(LAYOUT_COPY),
        UNFUSED_ATTENTION: attention,
    }


def directions(names: pl.DataFrame, features: Features) -> Directions:
    """Which products in the steps go forward and which back, by their names."""
    narrow = matching(features["narrow_gemm"], names["text"].to_list())
    ahead, back = (_proving(names, features, feature, but=narrow) for feature in ("forward_product", "backward_product"))
    return Directions(ahead=ahead, back=back)


class DeviceWork(Struct, frozen=True, kw_only=True):
    """One device before it is measured: its operations and steps, and what the trace holds of its rank.

    `operations` as `device_work` gives them, `steps` as `find_steps`, `begun` as `start_up`, `marks` as `user_ranges`, `around` as
    `step_ranges`, `multiplied` as `product_ranges`; `others`: the operations of other processes on the same GPU, by their names.
    """

    rank: int
    device: int
    operations: pl.DataFrame
    steps: StepWindows
    begun: StartUp
    marks: pl.DataFrame
    around: pl.DataFrame
    multiplied: pl.DataFrame
    others: Mapping[str, pl.DataFrame] = msgspec.field(default_factory=dict)


class Sweep(Struct, frozen=True, kw_only=True):
    """What every later stage reads of a device: what ran in its steps and beside what, what its host did, and why compute was absent.

    `inside`: the operations in the steps, with index, as `inside_windows` gives them.
    """

    inside: pl.DataFrame
    ran: Concurrency
    host: HostActivity
    waits: StreamWaits
    absent: Stalls


def sweep(trace: Trace, one: DeviceWork, begun: StartUp, classes: pl.DataFrame, knowledge: Knowledge) -> Sweep:
    """The first stages of one device; `begun`: what of its start-up lies before the steps."""
    work, windows, hosts = one.operations, one.steps.frame, knowledge.hosts
    python = python_seen(trace, knowledge.features)
    host = host_activity(trace, work, one.rank, hosts, one.device, begun.costs, begun.again, python=python)
    waits = _stream_waits(trace, one, hosts)
    return Sweep(
        inside=inside_windows(work, windows),
        ran=concurrency(work, classes, windows),
        host=host,
        waits=waits,
        absent=stalls(work, windows, waits, host),
    )


def _stream_waits(trace: Trace, one: DeviceWork, hosts: HostRules) -> StreamWaits:
    """The stream waits of a device; one that names no device may concern any."""
    here = (pl.col("device") == one.device) | pl.col("device").is_null()
    of_events, of_memory = (
        calls_named(trace, pattern).filter(pl.col("rank") == one.rank)["correlation"]
        for pattern in ("StreamWaitEvent", hosts.call_pattern("stream_memory_wait"))
    )
    return resolve_waits(trace.waits.filter((pl.col("rank") == one.rank) & here), of_events, memory_waits=len(of_memory))


def _recorded(trace: Trace, one: DeviceWork, swept: Sweep, hosts: HostRules) -> Recorded:
    """What the trace tells of a device, and what it lacks."""
    work, host = one.operations, swept.host
    stepped = swept.inside.select("op", "issued").unique("op")  # what the capture began in the middle of says nothing about its steps
    return Recorded(
        operations=stepped.height,
        launched=stepped.height - stepped["issued"].null_count(),
        resolved_wait_rate=swept.waits.resolved_rate,
        calls=host.has_calls,
        gc_ranges=host.has_gc_ranges,
        overhead=trace.provenance.overhead is not None,
        python=host.python,
        pinned=work["pinned"].null_count() < work.height,
        bytes=work["bytes"].null_count() < work.height,
        lost=lost_share(trace, swept.inside, one.rank, hosts),
    )


def measure_device(
    trace: Trace, one: DeviceWork, classified: Classified, knowledge: Knowledge, *, replay: bool = False, most: Report | None = None
) -> DeviceMeasure:
    """Measure one device. `replay`: whether its graph is built, of all kept steps or (`most`) of as many as a report replays."""
    work, windows = one.operations, one.steps.frame
    replayed = (windows if most is None else excerpt(work, windows, most.operations, most.one_step)) if replay else windows.clear()
    measured, source = _measured(trace, one, classified, knowledge, replay=not replayed.is_empty())
    if source is None:
        return measured
    graph = graph_of(trace, source, replayed, knowledge.hosts)
    return replace(measured, kept=kept(graph if replayed.height == windows.height else cut(graph)))


def _measured(
    trace: Trace, one: DeviceWork, classified: Classified, knowledge: Knowledge, *, replay: bool
) -> tuple[DeviceMeasure, GraphSource | None]:
    """All stages but the graph, and what that is made from, if it is wanted: it is large, so that no more is held beside it."""
    rank, work, classes, windows = one.rank, one.operations, classified.classes, one.steps.frame
    info = next((device for device in trace.devices if (device.rank, device.device) == (rank, one.device)), None)
    begun = without_repeated(one.begun, windows, work)
    swept = sweep(trace, one, begun, classes, knowledge)
    inside, ran, host, absent = swept.inside, swept.ran, swept.host, swept.absent
    times = budget(ran, absent, work, windows, trace.provenance.origin_ns)
    why = _causes(trace, one, classes, swept)
    transport = CommunicationTimes(by_kind=by_kind(ran, inside, windows, classes, why.blocking), beside=beside_compute(ran, windows))
    used = usage(inside, ran, windows, classified, trace, products(inside, one.multiplied, rank))
    names = names_inside(trace, inside)
    traits = kernel_traits(names, inside, knowledge.features)
    launching = graph_launches(trace, rank, knowledge.hosts)
    counted = step_counts(inside, windows, absent, host, launching, traits, trace.provenance.own_spans())
    beside = compared(inside, work)
    memory = memory_of(trace, one, swept, names, knowledge)
    data_dependent = [bucket for bucket, spec in knowledge.buckets.items() if spec.data_dependent]
    holds = holds_of(work, host)
    exchanged = exchanges(work, inside, windows, classes, absent, trace, knowledge.exchanges, knowledge.features, memory.recompute.ops)
    measured = DeviceMeasure(
        rank=rank,
        device=one.device,
        info=info,
        recorded=_recorded(trace, one, swept, knowledge.hosts),
        steps=one.steps,
        start_up=with_first_steps(begun, work, windows, cut=one.steps.anchor != CAPTURE),
        classes=step_classes(times.per_step, counted, absent, inside, one.marks, trace.names),
        budget=times,
        split=split(absent, ran, work, windows, classified.buckets),
        causes=why,
        communication=transport,
        usage=used,
        counts=per_window(
            windows,
            counted,
            host_limited(absent, work, inside, windows, holds, claims(times.per_step)),
            recompute_restart(absent, work, inside, windows, holds, memory.recompute),
            *speeds(inside, windows, data_dependent),
            contention(beside, windows, ran.together(ran.mask(is_role("compute")), ran.mask(is_role("transport")), windows)),
            taken(windows, list(one.others.values())),
        ),
        memory=memory,
        occupancy=occupancy(inside, trace.names["text"], info, limits(info, knowledge.rulebook.platforms.sm_limits)),
        exchanges=exchanged,
        timeline=timeline(inside, absent, windows, trace, work, classes, one.around, rank),
        moe_layer=moe_layer(inside, classes),
        vision=vision_encoder(inside, classes, windows.height),
        listed=listed_per_step(times, used, transport, why),
        leads=leads(absent, work, inside, holds, exchanged.instances),
        others=", ".join(one.others) if one.others else None,
    )
    return measured, _graph_source(one, measured, classes, swept, losses(beside), traits) if replay else None


def memory_of(trace: Trace, one: DeviceWork, swept: Sweep, names: pl.DataFrame, knowledge: Knowledge) -> MemoryUse:
    """What a device repeats for memory, and the memory it takes; `names` as `names_inside` gives them."""
    whole = not trace.memory.is_empty() and from_its_start(trace, one.rank, knowledge.hosts)
    told = directions(names, knowledge.features)
    return memory_use(swept.inside, one.steps.frame, swept.absent.pieces, told, trace.memory, one.rank, one.device, whole=whole)


def _causes(trace: Trace, one: DeviceWork, classes: pl.DataFrame, swept: Sweep) -> Causes:
    """Why compute was absent."""
    return Causes(
        blocking=blocking(swept.absent, one.operations, classes),
        host=host_costs(swept.absent, swept.host, trace),
        unexplained=unexplained_calls(swept.absent, swept.host, trace),
        late_range=late_range(swept.absent, one.marks, one.steps.frame, trace.names),
    )


def _graph_source(
    one: DeviceWork, measured: DeviceMeasure, classes: pl.DataFrame, swept: Sweep, lost: pl.DataFrame, traits: Mapping[str, pl.Series]
) -> GraphSource:
    """What the graph of a device is made from; `lost` as `losses`, `traits` as `kernel_traits`."""
    return GraphSource(
        rank=one.rank,
        device=one.device,
        operations=one.operations,
        classes=classes,
        waits=swept.waits,
        host=swept.host,
        repeated=measured.memory.recompute.ops,
        sm_count=None if measured.info is None else measured.info.sm_count,
        lost=lost,
        traits=traits,
        exchanges=measured.exchanges.operations,
    )
