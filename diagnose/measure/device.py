"""Everything that is measured of one device of one rank: steps, budget, buckets, stalls, communication, memory, occupancy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from diagnose.document.device import Occupancy, Timeline, Totals
from diagnose.document.steps import StepSplit
from diagnose.knowledge.rule_types import SmLimits
from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure import budget, occupancy
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.exchanges import Exchanges, exchanges
from diagnose.measure.host import HostActivity, graph_launches, host_activity
from diagnose.measure.kernels import KernelTable, kernel_table, uses
from diagnose.measure.launches import Launches
from diagnose.measure.memory import Recompute, recompute
from diagnose.measure.split import split
from diagnose.measure.steps import StepWindows
from diagnose.measure.timeline import timeline
from diagnose.measure.waits import stalls
from diagnose.measure.waits.bounds import ceilings
from diagnose.measure.waits.dependencies import resolve_waits
from diagnose.model.intervals import merge, overlaps
from diagnose.model.statistics import integer_median
from diagnose.model.trace import Device, Trace
from diagnose.model.vocabulary import BUCKETS, PHASES

TINY_NS = 10_000  # a kernel shorter than this costs about as much to launch as to run
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory")


@dataclass(frozen=True, kw_only=True)
class DeviceMeasure:
    """The measurements of one device. Frames with a column index have one row (or several) per step window.

    `budget`: the document's step budget. `buckets`: bucket, kernels, work_ns, busy_ns, exclusive_ns. `details`: bucket, phase, decided_by,
    work_ns over all steps. `communication`: kind, backend, count, work_ns, busy_ns, exposed_ns, blocking_ns. `beside`: kind, ns (transport
    while compute ran). `blocking`: bucket, role, kind,
    ns, inferred. `host`: name, cause, ns, count. `counts`: figures that only facts use, one row per window. `names`: kernels by name with
    bucket, operation, kernels, work_ns over all steps. `split` and `kernels` are what two captures are compared by.
    """

    rank: int
    device: int
    info: Device | None
    steps: StepWindows
    budget: pl.DataFrame
    buckets: pl.DataFrame
    details: pl.DataFrame
    communication: pl.DataFrame
    beside: pl.DataFrame
    blocking: pl.DataFrame
    host: pl.DataFrame
    counts: pl.DataFrame
    names: pl.DataFrame
    totals: Totals
    resolved_wait_rate: float | None  # share of stream waits whose event record was found
    recompute: Recompute
    occupancy: Occupancy | None
    fills: dict[str, float | None]
    timeline: Timeline
    split: tuple[StepSplit, ...]
    kernels: KernelTable
    exchanges: Exchanges
    operations: int
    launched: int
    merged_classes: int
    has_calls: bool
    has_gc_ranges: bool
    has_pinned: bool
    has_bytes: bool

    @property
    def median_step_ns(self) -> int:
        """Median window length."""
        return median(self.budget["window_ns"])


def median(values: pl.Series) -> int:
    """Median as an integer (the mean of the two middle values, rounded down); 0 for no value."""
    return integer_median(values.drop_nulls().to_list())


def device_work(trace: Trace, launches: Launches, classified: Classified) -> Iterator[tuple[int, int, pl.DataFrame]]:
    """(rank, device, operations in order of start) of every device.

    Columns: those of Trace.ops except rank and device; call_start, issued, thread; class_id, bucket, role, kind_of, backend, phase, operation,
    decided_by; op, the row number.
    """
    every = trace.ops.hstack(launches.frame).with_columns(classified.class_id.alias("class_id"), classified.payload_id.alias("payload_id"))
    classes = classified.classes.sort("class_id").select(
        "class_id",
        pl.col("bucket").cast(pl.Enum(BUCKETS)),
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
    rules: HostRules,
    *,
    rank: int,
    device: int,
    sm_limits: Mapping[str, SmLimits],
    steps: StepWindows,
) -> DeviceMeasure:
    """Measure one device; `work` as `device_work` gives it, `steps` as `find_steps`."""
    info = next((one for one in trace.devices if (one.rank, one.device) == (rank, device)), None)
    windows = steps.frame
    ran = budget.concurrency(work, classified.classes, windows)
    host = host_activity(trace, work, rank, rules, device)
    own_waits = trace.waits.filter((pl.col("rank") == rank) & ((pl.col("device") == device) | pl.col("device").is_null()))
    waits = resolve_waits(own_waits, _stream_wait_calls(trace, rank))
    found = stalls.stalls(work, windows, waits, host)
    inside = _inside(work, windows)
    blocking = _blocking(found, work, classified.classes)
    times = budget.step_times(ran, windows).join(
        stalls.stall_times(found, windows, work["role"], work["copy_kind"]), on="index", how="left", maintain_order="left"
    )
    times = times.join(
        ceilings(found, windows, work["role"], work["copy_kind"], work.select("start", "issued")),
        on="index",
        how="left",
        maintain_order="left",
    )
    used = uses(inside)
    names = _names(used.per_step, trace)
    part, fills = occupancy.occupancy(
        inside.filter((pl.col("kind") == "kernel") & (pl.col("role") == "compute")).select("name_id", "bucket", "start", "end", *SHAPE),
        trace.name_texts(),
        info,
        occupancy.limits(info, sm_limits),
    )
    return DeviceMeasure(
        rank=rank,
        device=device,
        info=info,
        steps=steps,
        budget=times,
        buckets=_buckets(ran, used.per_step, windows),
        details=_details(inside, classified.classes),
        communication=_communication(ran, inside, windows, classified.classes, blocking),
        beside=budget.beside_compute(ran, windows),
        blocking=blocking,
        host=_host_costs(found, host, trace),
        counts=_counts(inside, windows, found, host, graph_launches(trace, rank, rules)),
        names=names.drop("name_id", "kind"),
        totals=budget.totals(work, ran, rank, device, trace.provenance.origin_ns),
        resolved_wait_rate=waits.resolved_rate,
        recompute=recompute(
            inside.select("index", "op", "start", "end", "role", "bucket", "operation", "phase", "name_id"), windows, found.pieces
        ),
        occupancy=part,
        fills=fills,
        timeline=_timeline(inside, found, windows, trace, work["role"], (rank, device)),
        split=split(found, ran, work, windows),
        kernels=kernel_table(used, windows, names),
        exchanges=exchanges(work, inside, windows, classified.classes, found, trace),
        operations=work.height,
        launched=work.height - work["issued"].null_count(),
        merged_classes=ran.merged_classes,
        has_calls=host.has_calls,
        has_gc_ranges=host.has_gc_ranges,
        has_pinned=work["pinned"].null_count() < work.height,
        has_bytes=work["bytes"].null_count() < work.height,
    )


def _stream_wait_calls(trace: Trace, rank: int) -> pl.Series:
    """Correlation ids of the stream-wait API calls of a rank."""
    ids = trace.names.filter(pl.col("text").str.contains("StreamWaitEvent"))["id"]
    return trace.calls.filter((pl.col("rank") == rank) & pl.col("name_id").is_in(ids.implode()))["correlation"]


def _inside(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Operations that start inside a step, with the step's index."""
    placed = work.join_asof(
        windows.select("index", pl.col("start").alias("_begin"), pl.col("end").alias("_close")),
        left_on="start",
        right_on="_begin",
        strategy="backward",
    )
    return placed.filter(pl.col("start") < pl.col("_close")).drop("_begin", "_close")


def _buckets(ran: budget.Concurrency, per_step: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    counted = per_step.group_by("index", "bucket").agg(pl.col("kernels", "work_ns").sum())
    times = budget.bucket_times(ran, windows).with_columns(pl.col("bucket").cast(pl.Enum(BUCKETS)))
    return times.join(counted, on=["index", "bucket"], how="left", maintain_order="left").with_columns(
        pl.col("kernels", "work_ns").fill_null(0)
    )


def _details(inside: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    work = inside.group_by("class_id").agg((pl.col("end") - pl.col("start")).sum().alias("work_ns"))
    return (
        work.join(classes.select("class_id", "bucket", "phase", "decided_by"), on="class_id")
        .group_by("bucket", "phase", "decided_by")
        .agg(pl.col("work_ns").sum())
        .sort("bucket", "phase", "decided_by", nulls_last=True)
    )


def _blocking(found: stalls.Stalls, work: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """index, bucket, role, kind, backend, ns, inferred: what blocked, by the class of the producer."""
    pieces = found.pieces.filter(pl.col("cause") == "blocking").select(
        "index", "producer", "inferred", (pl.col("end") - pl.col("start")).alias("ns")
    )
    producers = work.select("op", "class_id").filter(pl.col("op").is_in(pieces["producer"].drop_nulls().unique().implode()))
    return (
        pieces.join(producers, left_on="producer", right_on="op", how="left")
        .join(classes.select("class_id", "bucket", "role", "kind", "backend"), on="class_id", how="left")
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("kind").fill_null("other")).alias("kind"))
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("backend").fill_null("other")).alias("backend"))
        .group_by("index", "bucket", "role", "kind", "backend", "inferred")
        .agg(pl.col("ns").sum())
        .sort("index", "bucket", "role", "kind", "backend", "inferred", nulls_last=True)
    )


def _communication(
    ran: budget.Concurrency, inside: pl.DataFrame, windows: pl.DataFrame, classes: pl.DataFrame, blocking: pl.DataFrame
) -> pl.DataFrame:
    keys = ["index", "kind", "backend"]
    transport = classes.filter(pl.col("role") == "transport").select(
        "class_id", pl.col("kind").fill_null("other"), pl.col("backend").fill_null("other")
    )
    counted = (
        inside.select("index", "class_id", (pl.col("end") - pl.col("start")).alias("ns"))
        .join(transport, on="class_id", how="inner")
        .group_by(keys)
        .agg(pl.len().alias("count"), pl.col("ns").sum().alias("work_ns"))
    )
    blocked = blocking.filter(pl.col("role") == "transport").group_by(keys).agg(pl.col("ns").sum().alias("blocking_ns"))
    table = budget.communication_times(ran, windows)
    for part in (counted, blocked):
        table = table.join(part, on=keys, how="left", maintain_order="left")
    return table.with_columns(pl.col("count", "work_ns", "blocking_ns").fill_null(0))


def _host_costs(found: stalls.Stalls, host: HostActivity, trace: Trace) -> pl.DataFrame:
    """index, name, cause, ns, count: launch-starved time by the call or range that the host was in."""
    causes = {"allocator": "allocator", "host_sync": "sync", "gc": "gc"}
    pieces = found.pieces.filter(pl.col("cause").is_in([*causes, "launch", "python"])).with_columns(
        pl.col("cause").replace(causes).alias("cause"), (pl.col("end") - pl.col("start")).alias("ns")
    )
    named = (
        pieces.sort("start")
        .join_asof(
            host.named.select(pl.col("start").alias("call_start"), "name_id", "cause"),
            left_on="start",
            right_on="call_start",
            by="cause",
            strategy="backward",
            check_sortedness=False,
        )
        .join(trace.names.select(pl.col("id").alias("name_id"), "text"), on="name_id", how="left")
    )
    plain = pl.col("cause").replace_strict(
        {"launch": "launching API calls", "python": "no CUDA call on the launching threads"}, default="unknown call"
    )
    return (
        named.with_columns(pl.coalesce("text", plain).alias("name"))
        .group_by("index", "name", "cause")
        .agg(pl.col("ns").sum(), pl.len().alias("count"))
        .sort("index", "name", "cause")
    )


def _counts(inside: pl.DataFrame, windows: pl.DataFrame, found: stalls.Stalls, host: HostActivity, graphs: pl.Series) -> pl.DataFrame:
    """Counts per window that only facts use. `graphs`: correlation ids of the calls that launched a CUDA graph."""
    of_graph = pl.col("graph_node").is_not_null() | (pl.col("correlation").is_in(graphs.implode()) & pl.col("correlation").is_not_null())
    length = pl.col("end") - pl.col("start")
    kernel, compute = pl.col("kind") == "kernel", (pl.col("kind") == "kernel") & (pl.col("role") == "compute")
    by_ops = inside.group_by("index").agg(
        kernel.sum().alias("kernels"),
        compute.sum().alias("compute_kernels"),
        (compute & (length < TINY_NS)).sum().alias("tiny_kernels"),
        length.filter(compute).median().cast(pl.Int64).alias("kernel_median_ns"),
        (kernel & of_graph).sum().alias("graph_kernels"),
        pl.col("correlation").filter(pl.col("issued").is_not_null()).n_unique().alias("launch_calls"),
        pl.col("correlation").filter(of_graph | (pl.col("kind") == "graph")).n_unique().alias("graph_launches"),
        length.filter(pl.col("kind") == "graph").sum().alias("opaque_work_ns"),
        length.sum().alias("work_ns"),
        (pl.col("role") == "packing").sum().alias("packing_kernels"),
        (pl.col("bucket") == "router").sum().alias("router_kernels"),
        ((pl.col("bucket") == "expert_gemm") & kernel).sum().alias("expert_kernels"),
        length.filter(pl.col("bucket") == "expert_gemm").median().cast(pl.Int64).alias("expert_median_ns"),
        length.filter(pl.col("bucket") == "expert_gemm").sum().alias("expert_work_ns"),
        length.filter((pl.col("bucket") == "expert_gemm") & (pl.col("operation") == "grouped_gemm")).sum().alias("expert_grouped_ns"),
        pl.col("bytes").filter(pl.col("copy_kind") == "h2d").sum().alias("h2d_bytes"),
        (pl.col("copy_kind") == "p2p").sum().alias("peer_copies"),
        pl.col("bytes").filter(pl.col("copy_kind") == "d2h").sum().alias("d2h_bytes"),
    )
    return (
        windows.select("index")
        .join(by_ops, on="index", how="left", maintain_order="left")
        .join(_busy(inside, windows), on="index", how="left", maintain_order="left")
        .join(_host_counts(host, windows), on="index", how="left", maintain_order="left")
        .join(_long_gaps(found), on="index", how="left", maintain_order="left")
    )


def _busy(inside: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """index, tiny_busy_ns, quantize_busy_ns, pageable_busy_ns: unions per window."""
    short = (pl.col("kind") == "kernel") & (pl.col("role") == "compute") & (pl.col("end") - pl.col("start") < TINY_NS)
    subsets = {"tiny_busy_ns": short, "quantize_busy_ns": pl.col("operation") == "quantize", "pageable_busy_ns": pl.col("pinned") == False}  # noqa: E712
    table = windows.select("index")
    for name, condition in subsets.items():
        common = overlaps(merge(inside.filter(condition)), windows)
        summed = (
            pl.DataFrame({"index": windows["index"].gather(common["right"]), name: common["end"] - common["start"]}).group_by("index").sum()
        )
        table = table.join(summed, on="index", how="left", maintain_order="left").with_columns(pl.col(name).fill_null(0))
    return table


def _host_counts(host: HostActivity, windows: pl.DataFrame) -> pl.DataFrame:
    """index, sync_calls, allocator_calls, gc_ranges: by the host's clock, with what lies before the first or after the last step counted to those."""
    open_ended = windows.with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(-(2**62))).otherwise("start").alias("start"),
        pl.when(pl.int_range(pl.len()) == pl.len() - 1).then(pl.lit(2**62)).otherwise("end").alias("end"),
    )
    return (
        _inside(host.named, open_ended)
        .group_by("index")
        .agg(
            (pl.col("cause") == cause).sum().alias(name)
            for cause, name in (("sync", "sync_calls"), ("allocator", "allocator_calls"), ("gc", "gc_ranges"))
        )
    )


def _long_gaps(found: stalls.Stalls) -> pl.DataFrame:
    """Per window: the longest launch-starved gap, and host work in gaps that stand out (20 × the median gap and more than 1 ms)."""
    starved = found.pieces.filter(~pl.col("cause").is_in(["blocking", "dependency_stalled"]))
    worked = pl.col("cause").is_in(["gc", "launch", "python"])
    length = pl.col("end") - pl.col("start")
    gaps = starved.group_by("index", "op").agg(length.sum().alias("gap"), length.filter(worked).sum().alias("worked"))
    usual = gaps["gap"].median()
    limit = max(1_000_000, 20 * int(usual)) if isinstance(usual, int | float) else 1_000_000
    return gaps.group_by("index").agg(
        pl.col("gap").max().alias("longest_gap_ns"), pl.col("worked").filter(pl.col("gap") > limit).sum().alias("gap_excess_ns")
    )


def _names(per_step: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Work by name inside the steps: name_id, kind, name, bucket, role, operation, kernels, work_ns; costliest first."""
    return (
        per_step.group_by("name_id", "bucket", "role", "kind")
        .agg(pl.col("operation").first(), pl.col("kernels", "work_ns").sum())
        .join(trace.names.select(pl.col("id").alias("name_id"), pl.col("text").alias("name")), on="name_id", how="left")
        .sort("work_ns", "name", "bucket", "role", "kind", descending=[True, False, False, False, False])
        .select("name_id", "kind", "name", "bucket", "role", "operation", "kernels", "work_ns")
    )


def _timeline(
    inside: pl.DataFrame, found: stalls.Stalls, windows: pl.DataFrame, trace: Trace, roles: pl.Series, place: tuple[int, int]
) -> Timeline:
    """The step of median length; blocking pieces are named by the role of what blocked."""
    ordered = windows.with_columns((pl.col("end") - pl.col("start")).alias("length")).sort("length", "index")
    index, start, end = ordered.select("index", "start", "end").row((ordered.height - 1) // 2)
    own = inside.filter(pl.col("index") == index).select("start", "end", "stream", "bucket", "role", "name_id")
    pieces = found.pieces.filter(pl.col("index") == index)
    role = roles.gather(pieces["producer"]).cast(pl.String)
    by_role = pl.when(pl.col("cause") == "blocking").then(pl.concat_str(pl.lit("blocking_"), role)).otherwise(None)
    named = pieces.select("start", "end", pl.coalesce(by_role, "cause").alias("cause"))
    return timeline(own, named, (index, start, end), trace.name_texts(), *place)
