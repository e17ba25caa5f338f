"""What a device ran in its steps: work by bucket and by name, how each name was used on each stream, counts, and SM occupancy.

Of a name on a stream: launches, work, the usual duration of a launch, and what ran before and after. Two captures are compared by these
rows: a kernel that was renamed stands at the same place in the sequence. Every operation gets one number, its *code*, for what is told
apart; grouping ten million rows by one number is several times as fast as by the columns that it stands for.

Occupancy comes from launch shapes: resident warps, waves and fill, against the device's limits. Rules of residency: CUDA C++ Programming
Guide, "Hardware Multithreading". The limits by compute capability are data (trace_rules/platforms.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl
from msgspec import Struct, field, structs

from diagnose.document.device import KernelOccupancy, Occupancy
from diagnose.knowledge.platforms import SmLimits
from diagnose.measure.buckets.classify import Classified
from diagnose.measure.budget import Concurrency
from diagnose.measure.host import HostActivity, host_counts, launch_gaps
from diagnose.measure.shapes import blocks
from diagnose.measure.steps import per_window
from diagnose.measure.waits.host_costs import long_gaps
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.intervals import lasting, levels, merge, overlaps
from diagnose.model.trace import Device, OpKind, Trace
from diagnose.model.vocabulary import (
    ATTENTION,
    CAST,
    DENSE_GEMM,
    DISPATCH,
    ELEMENTWISE,
    EXPERT_GEMM,
    OPTIMIZER,
    ROUTER,
    UNFUSED_ATTENTION,
    VISION_ENCODER,
)

KEPT = 400  # rows of one device; our own choice: steps of training seldom run more names, and the rest has little work
Role = pl.Enum(["compute", "transport", "packing", "copy"])
NAME = ["name_id", "bucket", "role", "kind"]


class Usage(Struct, frozen=True, kw_only=True):
    """Work in the steps of one device.

    `buckets`: index, bucket, kernels, work_ns, busy_ns, exclusive_ns. `details`: bucket, phase, decided_by, work_ns over all steps.
    `names`: name, bucket, role, operation, kernels, work_ns over all steps, costliest first. `kernels` is what two captures are compared
    by. `products`: bucket, flop, product_ns over all steps.
    """

    buckets: pl.DataFrame
    details: pl.DataFrame
    names: pl.DataFrame
    kernels: KernelTable
    products: pl.DataFrame


class Uses(Struct, frozen=True, kw_only=True):
    """All operations in the steps of one device, told apart by name, bucket, role, kind and stream.

    `per_step`: code, index, name_id, bucket, role, kind, operation, stream, kernels, work_ns. `coded`: code, index, ns of every operation,
    on each stream in order of start.
    """

    per_step: pl.DataFrame
    coded: pl.DataFrame


class KernelTable(Struct, frozen=True, kw_only=True):
    """One device's names by use, most work first.

    `frame`: place (row of `Usage.names`), stream, launches, work_ns (medians over the steps), launch_ns (median over all launches),
    previous, next (rows of this frame; null where nothing ran, and where what ran is left out). `omitted` rows with `omitted_ns` of work
    per step (median) are left out.
    """

    frame: pl.DataFrame
    omitted: int
    omitted_ns: int


def usage(
    inside: pl.DataFrame, ran: Concurrency, windows: pl.DataFrame, classified: Classified, trace: Trace, multiplied: pl.DataFrame
) -> Usage:
    """Count what ran. `inside`: the operations in the steps as `uses` needs them, with class_id; `multiplied` as `products` gives it."""
    used = uses(inside, classified.buckets)
    names = by_name(used.per_step, trace)
    return Usage(
        buckets=by_bucket(ran, used.per_step, windows, classified.buckets),
        details=by_evidence(inside, classified.classes),
        names=names.drop("name_id", "kind"),
        kernels=kernel_table(used, windows, names),
        products=multiplied,
    )


def by_bucket(ran: Concurrency, per_step: pl.DataFrame, windows: pl.DataFrame, buckets: pl.Enum) -> pl.DataFrame:
    """index, bucket, busy_ns, exclusive_ns, kernels, work_ns."""
    counted = per_step.group_by("index", "bucket").agg(pl.col("kernels", "work_ns").sum())
    times = bucket_times(ran, windows).with_columns(pl.col("bucket").cast(buckets))
    return times.join(counted, on=["index", "bucket"], how="left", maintain_order="left").with_columns(
        pl.col("kernels", "work_ns").fill_null(0)
    )


def bucket_times(ran: Concurrency, windows: pl.DataFrame) -> pl.DataFrame:
    """Busy and exclusive time per window and bucket: index, bucket, busy_ns, exclusive_ns."""
    masks: dict[str, int] = {}
    for one in sorted(ran.classes, key=lambda one: one.bucket):
        masks[one.bucket] = masks.get(one.bucket, 0) | one.mask
    return pl.concat(ran.times(mask, windows, "exclusive_ns", bucket=bucket) for bucket, mask in masks.items())


def by_evidence(inside: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """bucket, phase, decided_by (the kind of evidence), work_ns over all steps."""
    work = inside.group_by("class_id").agg(lasting.sum().alias("work_ns"))
    return (
        work.join(classes.select("class_id", "bucket", "phase", "decided_by"), on="class_id")
        .group_by("bucket", "phase", "decided_by")
        .agg(pl.col("work_ns").sum())
        .sort("bucket", "phase", "decided_by", nulls_last=True)
    )


def by_name(per_step: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Work by name inside the steps: name_id, kind, name, bucket, role, operation, kernels, work_ns; costliest first."""
    return (
        per_step.group_by("name_id", "bucket", "role", "kind")
        .agg(pl.col("operation").first(), pl.col("kernels", "work_ns").sum())
        .join(trace.names.select(pl.col("id").alias("name_id"), pl.col("text").alias("name")), on="name_id", how="left")
        .sort("work_ns", "name", "bucket", "role", "kind", descending=[True, False, False, False, False])
        .select("name_id", "kind", "name", "bucket", "role", "operation", "kernels", "work_ns")
    )


# ------------------------------------------------------------------------------------------------ names by stream


def uses(inside: pl.DataFrame, buckets: pl.Enum) -> Uses:
    """Count the operations in the steps. `inside`: index, name_id, bucket, role, kind, operation, stream, start, end, in order of start."""
    streams = inside["stream"].unique().sort()
    number = streams.search_sorted(inside["stream"]).alias("number")
    code = pl.col("name_id").cast(pl.Int64).fill_null(-1) + 1
    for column, dtype in (("bucket", buckets), ("role", Role), ("kind", OpKind)):
        code = code * len(dtype.categories) + pl.col(column).to_physical().cast(pl.Int64)
    length = lasting.alias("ns")
    rows = inside.select((code * len(streams) + number.cast(pl.Int64)).alias("code"), "index", length, "operation", number)
    coded = pl.concat(rows.partition_by("number", maintain_order=True)) if rows.height else rows
    first, last = (int(value) if isinstance(value, int) else 0 for value in (inside["index"].min(), inside["index"].max()))
    per_step = (
        coded.group_by((pl.col("code") * (last - first + 1) + pl.col("index") - first).alias("use"))
        .agg(pl.col("code", "index", "operation").first(), pl.len().alias("kernels"), pl.col("ns").sum().alias("work_ns"))
        .sort("index", "code")
    )
    return Uses(per_step=_decoded(per_step, streams, buckets), coded=coded.select("code", "index", "ns"))


def _decoded(frame: pl.DataFrame, streams: pl.Series, buckets: pl.Enum) -> pl.DataFrame:
    """What each code stands for."""
    several = max(1, len(streams))
    found, rest = [streams.gather(frame["code"] % several).alias("stream")], frame["code"] // several
    for column, dtype in (("kind", OpKind), ("role", Role), ("bucket", buckets)):
        values = dtype.categories.cast(dtype)
        found.append(values.gather(rest % len(values)).alias(column))
        rest //= len(values)
    name = pl.when(pl.col("rest") > 0).then(pl.col("rest") - 1).cast(pl.Int32).alias("name_id")
    return frame.hstack(found).with_columns(pl.DataFrame({"rest": rest}).select(name)["name_id"]).drop("use")


def kernel_table(found: Uses, windows: pl.DataFrame, names: pl.DataFrame, kept: int = KEPT) -> KernelTable:
    """The rows of one device. `windows` has index; `names` has name_id, bucket, role, kind in the order of `Usage.names`."""
    keys = (
        found.per_step.group_by("code", *NAME, "stream")
        .agg(pl.col("work_ns").sum().alias("total"))
        .join(names.select(NAME).with_row_index("place"), on=NAME, how="left", nulls_equal=True)
        .sort("total", "place", "stream", descending=[True, False, False])
        .with_row_index("key")
    )
    per_step = found.per_step.join(keys.select("code", "key"), on="code")
    lengths = found.coded.group_by("code").agg(pl.col("ns").median().floor().cast(pl.Int64).alias("launch_ns"))
    ordered = (
        keys.head(kept)
        .join(_medians(per_step.filter(pl.col("key") < kept), windows), on="key", how="left")
        .join(lengths, on="code", how="left")
        .join(_neighbours(found.coded, keys), on="key", how="left")
        .sort("work_ns", "key", descending=[True, False])
        .with_row_index("row")
    )
    rest = per_step.filter(pl.col("key") >= kept).group_by("index").agg(pl.col("work_ns").sum())
    middle = windows.select("index").join(rest, on="index", how="left")["work_ns"].fill_null(0).median()
    return KernelTable(
        frame=_neighbour_rows(ordered), omitted=max(0, keys.height - kept), omitted_ns=int(middle) if isinstance(middle, int | float) else 0
    )


def _medians(per_step: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """key, launches, work_ns: medians over all steps, in which a step without the key counts as 0."""
    every = per_step.select("key").unique().join(windows.select("index"), how="cross")
    filled = every.join(per_step.select("key", "index", pl.col("kernels").alias("launches"), "work_ns"), on=["key", "index"], how="left")
    return filled.fill_null(0).group_by("key").agg(pl.col("launches", "work_ns").median().floor().cast(pl.Int64))


def _neighbours(coded: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """key, previous, next: the keys that most often ran just before and after on its stream in a step; of equals the one with more work."""
    told = keys.select("code", "key", "stream")
    pairs = (
        coded.select("code", pl.when(pl.col("index") == pl.col("index").shift(1)).then(pl.col("code").shift(1)).alias("before"))
        .drop_nulls()
        .group_by("code", "before")
        .agg(pl.len().alias("times"))
        .join(told, on="code")
        .join(told.rename({"code": "before", "key": "earlier", "stream": "beside"}), on="before")
        .filter(pl.col("stream").eq_missing(pl.col("beside")))
    )
    previous = pairs.group_by("key").agg(pl.col("earlier").sort_by("times", "earlier", descending=[True, False]).first().alias("previous"))
    following = pairs.group_by("earlier").agg(pl.col("key").sort_by("times", "key", descending=[True, False]).first().alias("next"))
    return previous.join(following, left_on="key", right_on="earlier", how="full", coalesce=True)


def _neighbour_rows(ordered: pl.DataFrame) -> pl.DataFrame:
    """Neighbours as rows of the frame instead of keys."""
    rows = ordered.select("key", pl.col("row").cast(pl.UInt16))
    for side in ("previous", "next"):
        told = rows.rename({"key": side, "row": f"{side}_row"})
        ordered = ordered.join(told, on=side, how="left", maintain_order="left").drop(side).rename({f"{side}_row": side})
    return ordered.select(pl.col("place").cast(pl.UInt32), "stream", "launches", "work_ns", "launch_ns", "previous", "next")


SCHEDULERS = 4  # a warp's registers come from one quarter of the register file
SHOWN_KERNELS = 20
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory")


class Limits(Struct, frozen=True, kw_only=True):
    """What one SM holds at most, how many SMs the device has, and the threads of a warp."""

    sm: SmLimits
    sm_count: int
    warp_size: int


def limits(device: Device | None, by_capability: Mapping[str, SmLimits]) -> Limits | None:
    """What the trace's own device row gives, completed from the table by compute capability; None where a limit stays unknown."""
    if device is None or device.sm_count is None or device.compute_major is None:
        return None
    known = by_capability.get(f"{device.compute_major}.{device.compute_minor or 0}")
    if known is None:
        return None
    warp = device.warp_size or 32
    own = structs.replace(
        known,
        warps=device.max_threads_per_sm // warp if device.max_threads_per_sm else known.warps,
        blocks=device.max_blocks_per_sm or known.blocks,
        registers=device.registers_per_sm or known.registers,
        shared_bytes=device.shared_memory_per_sm or known.shared_bytes,
    )
    return Limits(sm=own, sm_count=device.sm_count, warp_size=warp)


def _in_units(amount: pl.Expr, unit: int) -> pl.Expr:
    return (amount + unit - 1) // unit * unit


def residency(shapes: pl.DataFrame, limit: Limits) -> pl.DataFrame:
    """Occupancy, waves and fill of launch shapes.

    `shapes` has grid_x … block_z, registers, shared_memory. Adds occupancy (resident warps / maximum), waves (blocks / blocks that fit at
    once), fill (share of SM·time in which an SM has a block) and limited_by; null where the shape is incomplete or fits no block.
    """
    threads = pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z")
    grid = blocks()
    sm = limit.sm
    warps = (threads + limit.warp_size - 1) // limit.warp_size
    registers_per_warp = _in_units(pl.col("registers").cast(pl.Int64) * limit.warp_size, sm.register_unit)
    warps_by_registers = (sm.registers // SCHEDULERS) // registers_per_warp.clip(lower_bound=1) * SCHEDULERS
    shared = _in_units(pl.col("shared_memory").cast(pl.Int64) + sm.reserved_shared_bytes, sm.shared_unit)
    caps = {
        "warps": sm.warps // warps.clip(lower_bound=1),
        "blocks": pl.lit(sm.blocks, dtype=pl.Int64),
        "registers": warps_by_registers // warps.clip(lower_bound=1),
        "shared memory": sm.shared_bytes // shared.clip(lower_bound=1),
    }
    named = shapes.with_columns(threads.alias("_threads"), grid.alias("_grid"), *(cap.alias(f"_{name}") for name, cap in caps.items()))
    resident = pl.min_horizontal(*(f"_{name}" for name in caps))
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in ("_threads", "_grid", "registers", "shared_memory"))
    fits = complete & (resident > 0) & (pl.col("_threads") > 0) & (pl.col("_grid") > 0)
    limited = pl.coalesce(*(pl.when(pl.col(f"_{name}") == resident).then(pl.lit(name)) for name in caps))
    at_once = resident * limit.sm_count
    waves = pl.col("_grid") / at_once
    rest = pl.col("_grid") % at_once  # blocks of the last wave, which spread over the SMs before two share one
    last = pl.min_horizontal(rest / limit.sm_count, pl.lit(1.0))
    fill = (pl.col("_grid") // at_once + last) / (pl.col("_grid") // at_once + (rest > 0).cast(pl.Int64))
    return named.with_columns(
        pl.when(fits).then((resident * warps / sm.warps).clip(upper_bound=1.0)).alias("occupancy"),
        pl.when(fits).then(waves).alias("waves"),
        pl.when(fits).then(fill).alias("fill"),
        pl.when(fits).then(limited).alias("limited_by"),
    ).drop("_threads", "_grid", *(f"_{name}" for name in caps))


class SmOccupancy(Struct, frozen=True, kw_only=True):
    """`record` for the document, and `fills`: fill by bucket, "" for all compute kernels. Nothing where limits or shapes are unknown."""

    record: Occupancy | None = None
    fills: Mapping[str, float | None] = field(default_factory=dict)


def occupancy(inside: pl.DataFrame, names: pl.Series, device: Device | None, limit: Limits | None) -> SmOccupancy:
    """Occupancy of the costliest compute kernels, and fill by bucket. `inside`: the operations in the steps, in order of start."""
    if limit is None:
        return SmOccupancy()
    ran = inside.filter((pl.col("kind") == "kernel") & (pl.col("role") == "compute"))
    grouped = ran.group_by("name_id", "bucket", *_SHAPE).agg(pl.len().alias("kernels"), lasting.sum().alias("work"))
    known = residency(grouped, limit)
    if known["fill"].null_count() == known.height:
        return SmOccupancy()
    fills: dict[str, float | None] = {
        str(bucket): _filled(part, ran.filter(pl.col("bucket") == bucket))
        for (bucket,), part in sorted(known.group_by("bucket"), key=lambda pair: str(pair[0][0]))
    }
    by_work = known.group_by("name_id", "bucket").agg(pl.col("work").sum())
    costliest = by_work.sort("work", "name_id", pl.col("bucket").cast(pl.String), descending=[True, False, False]).head(SHOWN_KERNELS)
    shapes = dict(known.join(costliest, on=["name_id", "bucket"], how="semi").group_by("name_id", "bucket"))
    shown = costliest.select("name_id", "bucket").rows()
    rows = tuple(_kernel(names[name], str(bucket), shapes[name, bucket]) for name, bucket in shown)
    part = Occupancy(device=device.name if device else None, sm_count=limit.sm_count, buckets=fills, kernels=rows)
    return SmOccupancy(record=part, fills={**fills, "": _filled(known, ran)})


_PARTS = 1_000_000  # of all SMs: whole numbers, so that what is added and taken away again leaves nothing


def _filled(shapes: pl.DataFrame, ran: pl.DataFrame) -> float | None:
    """Share of SM time, while any of these kernels runs, in which an SM has a block: kernels at once add up, to all SMs at most.

    `ran`: the kernels of these shapes, in order of start. Null where no fill is known.
    """
    if ran.select((pl.col("start") >= pl.col("end").cum_max().shift(1)).all()).item():
        return _mean(shapes, "fill")
    told = shapes.filter(pl.col("fill").is_not_null()).select(
        "name_id", "bucket", *_SHAPE, (pl.col("fill") * _PARTS).round().cast(pl.Int64).alias("parts")
    )
    filled = ran.join(told, on=["name_id", "bucket", *_SHAPE], nulls_equal=True)
    running = levels(filled.select("start", "end", "parts", pl.lit(1).alias("kernels"))).filter(pl.col("kernels") > 0)
    length = running["end"] - running["start"]
    covered, busy = int((length * running["parts"].clip(0, _PARTS)).sum()), int(length.sum())
    return covered / (_PARTS * busy) if busy else None


def _kernel(name: str, bucket: str, shapes: pl.DataFrame) -> KernelOccupancy:
    """One kernel name over all its launch shapes."""
    return KernelOccupancy(
        name=name,
        bucket=bucket,
        kernels=int(shapes["kernels"].sum()),
        work_ns=int(shapes["work"].sum()),
        occupancy=_mean(shapes, "occupancy"),
        waves=_mean(shapes, "waves"),
        fill=_mean(shapes, "fill"),
        limited_by=shapes.sort("work", "grid_x", "block_x")["limited_by"][-1],
    )


def _mean(shapes: pl.DataFrame, column: str) -> float | None:
    """Mean of a column weighted by work; None where nothing is known. fsum makes it independent of the order of the rows."""
    known = [(value, work) for value, work in shapes.select(column, "work").iter_rows() if value is not None]
    weight = sum(work for _, work in known)
    return math.fsum(value * work for value, work in known) / weight if weight else None


# A launch call takes some µs by itself: only of a longer kernel does its return tell that it waited, and few of these tell nothing.
# Where launches block, nearly all do. The numbers are this project's choice.
TELLING_NS, TELLING, SYNCHRONOUS_SHARE = 20_000, 50, 0.9
TINY_NS = 10_000  # a kernel shorter than this costs about as much to launch as to run
# Null in a step without any; all else is 0 there.
_MAY_LACK = ("kernel_median_ns", "expert_gemm_median_ns", "longest_host_gap_ns", "launch_gap_median_ns")


def step_counts(
    inside: pl.DataFrame,
    windows: pl.DataFrame,
    found: Stalls,
    host: HostActivity,
    graphs: pl.Series,
    traits: Mapping[str, pl.Series],
    overhead: pl.DataFrame,
) -> pl.DataFrame:
    """One row per window. `inside`: operations in the steps, with index; `graphs`: correlation ids of calls that launched a CUDA graph.

    `traits`: by trait the operations that have it; `overhead`: start, end of the profiler's own spans, disjoint, by start.
    """
    table = per_window(
        windows,
        _of_operations(inside, graphs),
        _busy(inside, windows, traits),
        pointwise_chains(inside, traits[CAST], traits[UNFUSED_ATTENTION]),
        experts_one_by_one(inside),
        optimizer_stretches(inside),
        host_counts(host, inside, windows),
        long_gaps(found, host, overhead),
        launch_gaps(inside),
    )
    table = table.with_columns(pl.exclude("index", *_MAY_LACK).fill_null(0))
    share = synchronous_share(table)
    if share is not None and share >= SYNCHRONOUS_SHARE:
        return table
    return table.with_columns(pl.lit(None if share is None else 0, pl.Int64).alias("synchronous_launch_ns"))


def _of_operations(inside: pl.DataFrame, graphs: pl.Series) -> pl.DataFrame:
    """What each step's operations alone tell, by index; `graphs` as `step_counts` takes it."""
    of_graph = pl.col("graph_node").is_not_null() | (pl.col("correlation").is_in(graphs.implode()) & pl.col("correlation").is_not_null())
    kernel, compute = pl.col("kind") == "kernel", (pl.col("kind") == "kernel") & (pl.col("role") == "compute")
    to_host = pl.col("copy_kind") == "d2h"
    alone, held = kernel & ~of_graph & pl.col("issued").is_not_null(), pl.col("issued") >= pl.col("end")
    meanwhile = pl.when(pl.col("role") == "compute").then(pl.col("phase")).forward_fill().over("index")
    return (
        inside.with_columns(meanwhile.alias("meanwhile"))
        .group_by("index")
        .agg(
            pl.len().cast(pl.Int64).alias("operations"),
            kernel.sum().alias("kernels_per_step"),
            compute.sum().alias("compute_kernels"),
            (compute & (lasting < TINY_NS)).sum().alias("tiny_kernels_per_step"),
            lasting.filter(compute).median().cast(pl.Int64).alias("kernel_median_ns"),
            (kernel & of_graph).sum().alias("graph_kernels"),
            pl.col("correlation").filter(pl.col("issued").is_not_null()).drop_nulls().n_unique().alias("launch_calls_per_step"),
            pl.col("correlation").filter(of_graph | (pl.col("kind") == "graph")).n_unique().alias("graph_launches_per_step"),
            (alone & (lasting >= TELLING_NS)).sum().alias("telling_launches"),
            (alone & (lasting >= TELLING_NS) & held).sum().alias("synchronous_launches"),
            (pl.col("issued") - pl.col("call_start")).filter(alone & held).sum().alias("synchronous_launch_ns"),
            lasting.filter(pl.col("kind") == "graph").sum().alias("opaque_work_ns"),
            lasting.sum().alias("work_ns"),
            (pl.col("role") == "packing").sum().alias("packing_kernels_per_step"),
            (pl.col("bucket") == ROUTER).sum().alias("router_kernels_per_step"),
            ((pl.col("bucket") == OPTIMIZER) & kernel).sum().alias("optimizer_kernels_per_step"),
            ((pl.col("bucket") == EXPERT_GEMM) & kernel).sum().alias("expert_gemm_kernels_per_step"),
            lasting.filter(pl.col("bucket") == EXPERT_GEMM).median().cast(pl.Int64).alias("expert_gemm_median_ns"),
            lasting.filter(pl.col("bucket") == EXPERT_GEMM).sum().alias("expert_work_ns"),
            lasting.filter((pl.col("bucket") == EXPERT_GEMM) & (pl.col("operation") == "grouped_gemm")).sum().alias("expert_grouped_ns"),
            pl.col("bytes").filter(pl.col("copy_kind") == "h2d").sum().alias("copy_h2d_bytes"),
            (pl.col("copy_kind") == "p2p").sum().alias("peer_copies_per_step"),
            pl.col("bytes").filter(to_host).sum().alias("copy_d2h_bytes"),
            pl.col("bytes").filter(to_host & (pl.col("meanwhile") == "forward")).sum().alias("copy_d2h_forward_bytes"),
        )
    )


def synchronous_share(counts: pl.DataFrame) -> float | None:
    """Of the launches of kernels that are long enough to tell, the share that returned only after the kernel's end; None of few."""
    telling = int(counts["telling_launches"].sum())
    return int(counts["synchronous_launches"].sum()) / telling if telling >= TELLING else None


SEVERAL_PRODUCTS = 4  # two experts that run one after the other have two each


def experts_one_by_one(inside: pl.DataFrame) -> pl.DataFrame:
    """index, experts_one_by_one_ns: time of stretches in which experts run one by one, on the device or the CPU, whichever takes longer.

    A stretch goes from the first to the last product of an expert, with the packing around them; what other layers compute ends it, and
    so do an exchange of tokens and any transport during which no kernel begins (between forward and backward of a pipeline's stage).
    Products that are dealt out to several streams run side by side: so Transformer Engine groups them where no one kernel does.
    `inside`: operations in the steps in order of start.
    """
    bucket, role = pl.col("bucket"), pl.col("role")
    packs = (bucket == DISPATCH) & (role == "packing")
    next_begins = pl.when(role.is_in(["compute", "packing"])).then("start").backward_fill()
    ends_it = (role == "transport") & ((bucket == DISPATCH) | (next_begins >= pl.col("end")).fill_null(value=True))
    others = bucket.is_in([ATTENTION, DENSE_GEMM, ROUTER, OPTIMIZER]) | ends_it
    single = (bucket == EXPERT_GEMM) & (pl.col("operation") == "gemm")
    stretches = (
        inside.select(
            "index",
            "stream",
            "start",
            "end",
            "call_start",
            "issued",
            others.cum_sum().alias("stretch"),
            single=single,
            theirs=single | packs,
        )
        .filter("theirs")
        .group_by("index", "stretch")
        .agg(
            pl.col("single").sum(),
            pl.col("stream").filter("single").n_unique().alias("streams"),
            (pl.col("end").max() - pl.col("start").min()).alias("device"),
            (pl.col("issued").max() - pl.col("call_start").min()).alias("host"),
        )
    )
    longer = pl.max_horizontal("device", "host").sum().alias("experts_one_by_one_ns")
    return stretches.filter((pl.col("single") >= SEVERAL_PRODUCTS) & (pl.col("streams") == 1)).group_by("index").agg(longer)


def optimizer_stretches(inside: pl.DataFrame) -> pl.DataFrame:
    """index, optimizer_stretch_ns: time on the device from the first to the last kernel of the optimizer.

    What else computes, and exchanges, end a stretch. `inside`: operations in the steps in order of start.
    """
    theirs = (pl.col("bucket") == OPTIMIZER) & (pl.col("role") == "compute")
    others = ~theirs & pl.col("role").is_in(["compute", "packing", "transport"])
    stretches = inside.select("index", "start", "end", others.cum_sum().alias("stretch"), theirs=theirs).filter("theirs")
    lasted = stretches.group_by("index", "stretch").agg((pl.col("end").max() - pl.col("start").min()).alias("ns"))
    return lasted.group_by("index").agg(pl.col("ns").sum().alias("optimizer_stretch_ns"))


NARROW = 0.5  # of a wide kernel's bytes, those of a fused one that reads and writes the narrow type: 2 bytes an element for 4


def pointwise_chains(inside: pl.DataFrame, casts: pl.Series, attention: pl.Series) -> pl.DataFrame:
    """index, pointwise_chain_ns: work of generic kernels that follow each other on a stream, less what one fused kernel for each takes.

    One has to move the tensor all the same, as long as the longest of them; of a chain with casts it may move the narrow type alone. Casts
    count beside two other kernels at least: fewer are no chain to fuse. `inside`: operations in the steps in order of start; `casts`: which
    of them copy into another type; `attention`: those of unfused attention, another finding's, which break no chain and do not count.
    """
    chain = inside.filter(pl.col("kind") == "kernel").select(
        "index",
        (pl.col("bucket") == ELEMENTWISE).rle_id().over("stream", "index").alias("chain"),
        "stream",
        lasting.alias("ns"),
        own=(pl.col("bucket") == ELEMENTWISE) & ~pl.col("op").is_in(attention.implode()),
        cast=pl.col("op").is_in(casts.implode()),
    )
    least = pl.col("ns").max() * pl.when(pl.col("cast").any()).then(NARROW).otherwise(1)
    saved = pl.when((~pl.col("cast")).sum() > 1).then(pl.col("ns").sum() - least.cast(pl.Int64)).otherwise(0)
    joined = chain.filter("own").group_by("index", "stream", "chain").agg(saved.alias("pointwise_chain_ns"))
    return joined.group_by("index").agg(pl.col("pointwise_chain_ns").sum())


_BETWEEN = ("tail", ELEMENTWISE, "layout", "reduce", "random", "sort", "softmax")  # what runs between the two products of attention
_BESIDE_SOFTMAX = 8  # at most so many kernels lie between a softmax and either product: scale, mask, casts, dropout


def unfused_attention(inside: pl.DataFrame, back: pl.Series) -> pl.Series:
    """Which operations compute attention step by step.

    Those whose ranges say so, and softmax between two products on its stream with what lies between. Backward each product of the forward
    pass has two, so that a softmax of `back` (operations) lies between two and two.

    `inside`: operations in the steps in order of start.
    """
    operation, bucket = pl.col("operation"), pl.col("bucket")
    rows = inside.select(
        "stream",
        product=operation == "gemm",
        between=(pl.col("role") == "compute") & operation.is_in(_BETWEEN),
        softmax=(operation == "softmax") & bucket.is_in([ATTENTION, VISION_ENCODER]),
        told=(bucket == ATTENTION) & operation.is_in(["gemm", *_BETWEEN]),
        told_product=(bucket == ATTENTION) & (operation == "gemm"),
        back=pl.col("op").is_in(back.implode()),
    ).with_row_index("row")
    told = pl.col("told") & bool(rows["told_product"].any())
    if not rows["softmax"].any():
        return rows.select(told).to_series()
    place = pl.int_range(pl.len()).over("stream")
    near = pl.col("place") - pl.col("last") <= _BESIDE_SOFTMAX, pl.col("next") - pl.col("place") <= _BESIDE_SOFTMAX
    lines = (
        rows.with_columns(place.alias("place"))
        .with_columns(anchor=pl.when(~pl.col("between")).then(pl.col("place")), kind=pl.when(~pl.col("between")).then(pl.col("product")))
        .with_columns(
            last=pl.col("anchor").forward_fill().over("stream"),
            next=pl.col("anchor").backward_fill().over("stream"),
            after=pl.col("kind").forward_fill().over("stream"),
            before=pl.col("kind").backward_fill().over("stream"),
        )
    )
    found = lines.filter(pl.col("softmax") & pl.col("after") & pl.col("before") & near[0] & near[1]).select(
        "stream", "last", "next", "back"
    )
    # a row belongs to such a stretch where the product before it, or itself, begins one that ends at or behind it
    one = found.select("stream", begin="last", ends="next")
    begins = pl.concat([one, _second_products(lines, found.filter("back"))]).unique()
    ends = begins.select("stream", place=pl.col("ends"), ended=pl.lit(value=True)).unique()
    inner = lines.join(begins.unique(["stream", "begin"]), left_on=["stream", "last"], right_on=["stream", "begin"], how="left")
    marked = inner.join(ends, on=["stream", "place"], how="left").sort("row")
    return marked.select(told | pl.col("ends").is_not_null() | pl.col("ended").fill_null(value=False)).to_series()


def _second_products(lines: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """stream, begin, ends: from a product to the next on its stream, the second ones on both sides of those stretches of attention."""
    near = pl.col("ends") - pl.col("begin") <= _BESIDE_SOFTMAX
    pairs = (
        lines.filter(pl.col("anchor").is_not_null())
        .select(
            "stream",
            ends="place",
            begin=pl.col("place").shift().over("stream"),
            both="product",
            earlier=pl.col("product").shift().over("stream"),
        )
        .filter(pl.col("both") & pl.col("earlier") & near)
        .select("stream", "begin", "ends")
    )
    before = pairs.join(found.select("stream", ends="last"), on=["stream", "ends"], how="semi")
    after = pairs.join(found.select("stream", begin="next"), on=["stream", "begin"], how="semi")
    return pl.concat([before, after])


def _busy(inside: pl.DataFrame, windows: pl.DataFrame, traits: Mapping[str, pl.Series]) -> pl.DataFrame:
    """index, tiny_kernel_busy_ns, pageable_copy_ns, and for each trait its own, such as cast_busy_ns: unions per window."""
    short = (pl.col("kind") == "kernel") & (pl.col("role") == "compute") & (lasting < TINY_NS)
    subsets: dict[str, pl.Expr | pl.Series] = {
        "tiny_kernel_busy_ns": short,
        "pageable_copy_ns": ~pl.col("pinned"),
        **{f"{trait}_busy_ns": pl.col("op").is_in(ops.implode()) for trait, ops in traits.items()},
    }
    parts = []
    for name, condition in subsets.items():
        common = overlaps(merge(inside.select(pl.col("start", "end").filter(condition))), windows)
        timed = pl.DataFrame({"index": windows["index"].gather(common["right"]), name: common["end"] - common["start"]})
        parts.append(timed.group_by("index").sum())
    return per_window(windows, *parts).fill_null(0)
