"""What one device shows of its exchanges, for the reduction over ranks; no other rank is looked at. Times: ns from the capture's start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.exchanges import ExchangeNames, Shape, operation_of
from diagnose.knowledge.features import Features, matching
from diagnose.measure.shapes import blocks
from diagnose.measure.steps import per_window
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.intervals import lasting
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import EXPERT_GEMM

SHAPES_KEPT = 48
_LAUNCH = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
# Bytes of one element, by the names that PyTorch prints.
_ITEM_BYTES: Mapping[str, int] = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8,
}  # fmt: skip
# NCCL describes these by what one rank gives or gets (its enqueue.cc); as a whole they move that times the number of ranks.
_PER_RANK = ("ncclAllGather", "ncclReduceScatter")


PIPELINE = "pipeline"  # the kind of exchange between the stages of a split model


class Lane(Struct, frozen=True, kw_only=True):
    """Exchanges of one rank that follow each other in the same group of ranks, on one communicator where the trace tells it."""

    kind: str
    backend: str
    operation: str
    shape: Shape
    group: str | None
    group_name: str | None
    size: int | None
    communicator: int | None
    members: str | None
    stream: int | None  # only where nothing else tells groups apart

    @property
    def unnamed_transfer(self) -> bool:
        """Whether it goes between two ranks of a group that nothing tells: where the model is split, from stage to stage."""
        return self.kind == "other" and self.shape == "pairwise"


class Exchanges(Struct, frozen=True, kw_only=True):
    """One device's part in exchanges.

    `instances`, in order of start: op (row of the device's operations), lane (index into `lanes`), index (step; null outside the steps),
    start, end, bytes (null where not recorded), elements (that this rank received; null likewise), item (bytes of an element; null where
    neither the call nor, of a reduction, the kernel's name tells), expert_ns (how long expert GEMMs ran that began before it, from
    the capture's start, those of several streams together), forward_ns (forward compute of its step that began before it, likewise),
    phase (null where not told), blocks (thread blocks of its kernel; null likewise), held_ns (how long compute was stalled on it).
    `shapes`: name, launch (grid and block as text), bucket, kernels, median_ns, short_ns (of the shortest tenth), work_ns: the costliest
    compute kernels inside the steps. A kernel that keeps its grid whatever it is given has a row for each bucket that it serves.
    `stage_waits`: index, warm_up_ns, steady_ns, cool_down_ns (waiting for pipeline transfers), tail_ns (waiting for data-parallel exchanges
    after the last backward); `has_phases`: whether forward and backward could be told apart, which that split needs. `split_waits`: the
    same as `stage_waits`, with transfers between two ranks of an unknown group as the pipeline's.
    """

    lanes: tuple[Lane, ...]
    instances: pl.DataFrame
    shapes: pl.DataFrame
    stage_waits: pl.DataFrame
    split_waits: pl.DataFrame
    has_phases: bool

    def of_split_model(self) -> Exchanges:
        """The same, of a rank whose model is split over ranks: unnamed transfers between two ranks are the pipeline's."""
        lanes = tuple(replace(lane, kind=PIPELINE) if lane.unnamed_transfer else lane for lane in self.lanes)
        return replace(self, lanes=lanes, stage_waits=self.split_waits)

    @property
    def operations(self) -> pl.DataFrame:
        """What each exchange of the device does: op, exchange (String, an id of exchanges.yaml)."""
        named = pl.Series("exchange", [lane.operation for lane in self.lanes], dtype=pl.String)
        return self.instances.select("op", named.gather(self.instances["lane"]))

    def lanes_of(self, kind: str, shapes: Collection[str] | None = None) -> list[int]:
        """The lanes of one kind, only of these shapes where they are given."""
        return [number for number, lane in enumerate(self.lanes) if lane.kind == kind and (shapes is None or lane.shape in shapes)]

    def in_steps(self, kind: str, shapes: Collection[str] | None = None) -> pl.DataFrame:
        """The instances of such lanes in the steps, with their duration (ns), in order of start."""
        ran = self.instances.filter(pl.col("index").is_not_null() & pl.col("lane").is_in(self.lanes_of(kind, shapes)))
        return ran.with_columns(lasting.alias("ns"))


def exchanges(
    work: pl.DataFrame,
    inside: pl.DataFrame,
    windows: pl.DataFrame,
    classes: pl.DataFrame,
    found: Stalls,
    trace: Trace,
    names: ExchangeNames,
    features: Features,
    repeated: pl.Series,
) -> Exchanges:
    """`work`: all operations, `inside`: those in steps, with index; both by start, with class_id, name_id, payload_id, bucket, role, phase.

    `repeated`: rows of forward work that backward runs again: where no range says so its names still tell forward, and so does that of a
    kernel just before it.
    """
    lanes, instances = _instances(work, windows, classes, trace, names, features)
    compute = inside.filter(pl.col("role") == "compute")
    again = pl.col("op").is_in(repeated.implode())
    phases = compute.filter(pl.col("phase").is_in(["forward", "backward"]) & ~again & ~again.shift(-1, fill_value=False))
    blocking = found.pieces.filter(pl.col("cause") == "blocking").select("index", "start", "end", "op", "producer")
    unnamed = instances.filter(pl.col("lane").is_in([number for number, lane in enumerate(lanes) if lane.unnamed_transfer]))["op"]
    waits = _stage_waits(blocking, work, windows, classes, phases)
    return Exchanges(
        lanes=lanes,
        instances=_with_stalls(instances, blocking),
        shapes=costliest_shapes(inside, trace),
        stage_waits=waits,
        split_waits=waits if unnamed.is_empty() else _stage_waits(blocking, work, windows, classes, phases, unnamed),
        has_phases=phases["phase"].n_unique() == 2,
    )


# ------------------------------------------------------------------------------------------------ instances


def _instances(
    work: pl.DataFrame, windows: pl.DataFrame, classes: pl.DataFrame, trace: Trace, names: ExchangeNames, features: Features
) -> tuple[tuple[Lane, ...], pl.DataFrame]:
    """The lanes of all transport of one device, and its instances as `Exchanges` holds them."""
    transport = classes.filter(pl.col("role") == "transport").select("class_id", "kind", "backend")
    transported = work.filter(pl.col("role") == "transport").with_columns(blocks().alias("blocks"))
    moved = transported.select("op", "start", "end", "stream", "name_id", "payload_id", "class_id", "phase", "blocks")
    rows = (
        moved.join(
            transport.with_columns(pl.col("kind").fill_null("other"), pl.col("backend").fill_null("other")), on="class_id", how="left"
        )
        .join(described_sizes(trace), left_on="payload_id", right_on="id", how="left")
        .join(_items(moved["name_id"], trace, features), on="name_id", how="left")
        .sort("start", "end")
    )
    lanes, lane = _lanes(rows, trace, names)
    placed = rows.with_columns(lane.alias("lane")).join_asof(
        windows.select("index", pl.col("start").alias("_begin"), pl.col("end").alias("_close")),
        left_on="start",
        right_on="_begin",
        strategy="backward",
    )
    gemms = _lasting(work, (pl.col("bucket") == EXPERT_GEMM) & (pl.col("kind") == "kernel"))
    forward = _lasting(work, (pl.col("phase") == "forward") & (pl.col("role") == "compute"))
    inside = pl.when(pl.col("start") < pl.col("_close"))
    return lanes, placed.with_columns(
        inside.then("index").alias("index"),
        inside.then(_work_before(forward, placed["start"]) - _work_before(forward, placed["_begin"])).alias("forward_ns"),
        _work_before(gemms, placed["start"]).alias("expert_ns"),
    ).select(
        "op", "lane", "index", "start", "end", "bytes", pl.col("elements_out").alias("elements"),
        pl.coalesce("item", "named_item").alias("item"), "expert_ns", "forward_ns", "phase", "blocks",
    )  # fmt: skip


def described_sizes(trace: Trace) -> pl.DataFrame:
    """Per description: id, group, group_name, group_size, communicator, members, collective, elements_out, item, bytes (in all)."""
    item = pl.col("dtype").replace_strict(dict(_ITEM_BYTES), default=None, return_dtype=pl.Int64)
    largest = pl.max_horizontal("elements_in", "elements_out") * item
    told = pl.when(pl.col("collective").is_in(_PER_RANK)).then(pl.col("bytes") * pl.col("group_size")).otherwise("bytes")
    return trace.payloads.select(
        "id",
        "group",
        "group_name",
        "group_size",
        "communicator",
        "members",
        "collective",
        "elements_out",
        item.alias("item"),
        pl.coalesce(told, largest).alias("bytes"),
    )


def _items(name_ids: pl.Series, trace: Trace, features: Features) -> pl.DataFrame:
    """Bytes of one element of the reductions whose kernels' names tell them, at most 2 or at least 4: name_id, named_item."""
    ids = name_ids.unique().drop_nulls().sort()
    names = trace.names["text"].gather(ids).to_list()
    found = dict.fromkeys(matching(features["narrow_reduction"], names), 2) | dict.fromkeys(matching(features["wide_reduction"], names), 4)
    return pl.DataFrame({"name_id": ids, "named_item": pl.Series([found.get(name) for name in names], dtype=pl.Int64)})


_TELLING = ["kind", "backend", "name_id", "collective", "group", "group_name", "group_size", "communicator", "members", "stream"]


def _lanes(rows: pl.DataFrame, trace: Trace, names: ExchangeNames) -> tuple[tuple[Lane, ...], pl.Series]:
    """The distinct lanes, and the lane of each row. Kernels of one operation in one group are one lane, whatever the kernel's variant."""
    known = pl.col("communicator").is_not_null() | pl.col("group_name").is_not_null() | pl.col("group").is_not_null()
    keyed = rows.with_columns(pl.when(~known).then("stream").alias("stream"))
    distinct = keyed.select(_TELLING).unique(maintain_order=True)
    found = [_lane(row, trace, names) for row in distinct.iter_rows(named=True)]
    numbers = {lane: number for number, lane in enumerate(dict.fromkeys(found))}
    table = distinct.with_columns(pl.Series("lane", [numbers[lane] for lane in found], dtype=pl.UInt16))
    return tuple(numbers), keyed.join(table, on=_TELLING, how="left", nulls_equal=True, maintain_order="left")["lane"]


def _lane(row: Mapping[str, Any], trace: Trace, names: ExchangeNames) -> Lane:
    """The lane of one row of what tells lanes apart."""
    operation = operation_of(names, row["kind"], row["collective"], str(trace.names["text"][row["name_id"] or 0]))
    told: dict[str, Any] = {name: row[name] for name in ("kind", "backend", "communicator", "stream")}
    told |= {name: row[name] or None for name in ("group", "group_name", "members")}
    return Lane(operation=operation.id, shape=operation.shape, size=row["group_size"], **told)


def _lasting(work: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """Start of some of the operations, by start, and how long each lasts beyond all before it (ns), so that their sum is the union."""
    chosen = work.lazy().filter(which).select("start", "end").sort("start")
    since = pl.max_horizontal("start", pl.col("end").cum_max().shift(1))  # several streams may share them
    return chosen.select("start", (pl.col("end") - since).clip(0, None).alias("ns")).collect()


def _work_before(lasted: pl.DataFrame, until: pl.Series) -> pl.Series:
    """How long those of these operations ran that began before each moment, from the capture's start; null where it is not given."""
    summed = pl.concat([pl.Series("ns", [0], dtype=pl.Int64), lasted["ns"].cum_sum()])
    return summed.gather(lasted["start"].search_sorted(until, side="left"))


# ------------------------------------------------------------------------------------------------ kernels of like shape


def costliest_shapes(inside: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """The costliest compute kernels in the steps by name and launch shape, as `Exchanges` holds them."""
    costly = (
        inside.lazy()
        .filter((pl.col("role") == "compute") & (pl.col("kind") == "kernel"))
        .group_by("name_id", *_LAUNCH, "bucket")
        .agg(
            pl.len().alias("kernels"),
            lasting.median().cast(pl.Int64).alias("median_ns"),
            lasting.quantile(0.1, "lower").cast(pl.Int64).alias("short_ns"),
            lasting.sum().alias("work_ns"),
        )
        .sort(["work_ns", "name_id", *_LAUNCH, "bucket"], descending=[True, *[False] * (2 + len(_LAUNCH))])
        .head(SHAPES_KEPT)
        .collect()
    )
    launch = pl.concat_str([pl.col(name).fill_null(-1) for name in _LAUNCH], separator=",")
    return costly.select(
        trace.names["text"].gather(costly["name_id"]).alias("name"),
        launch.alias("launch"),
        pl.col("bucket").cast(pl.String),
        "kernels",
        "median_ns",
        "short_ns",
        "work_ns",
    )


# ------------------------------------------------------------------------------------------------ waiting for exchanges


def _with_stalls(instances: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """The instances with held_ns. `pieces`: all that blocks (index, start, end, op, producer)."""
    theirs = pieces.filter(pl.col("producer").is_in(instances["op"].implode()))  # few of all that block are for transport
    held = theirs.group_by(pl.col("producer").alias("op")).agg(lasting.sum().alias("held_ns"))
    return instances.join(held, on="op", how="left", maintain_order="left").with_columns(pl.col("held_ns").fill_null(0))


def _stage_waits(
    pieces: pl.DataFrame,
    work: pl.DataFrame,
    windows: pl.DataFrame,
    classes: pl.DataFrame,
    phases: pl.DataFrame,
    unnamed: pl.Series | None = None,
) -> pl.DataFrame:
    """Blocking by pipeline transfers, by the part of the step that it lies in, and by data-parallel exchanges after the last backward.

    `unnamed`: operations that count as pipeline transfers too.

    What ends with an operation of the next step belongs to that step's warm-up, although it lies before its first operation.
    """
    of_class = pl.concat([pl.DataFrame({"kind": [None]}, schema={"kind": pl.String}), classes.sort("class_id").select("kind")])["kind"]
    kind = of_class.gather(work["class_id"].gather(pieces["producer"]).cast(pl.Int64).fill_null(-1) + 1)
    backward = (
        phases.filter(pl.col("phase") == "backward")
        .group_by("index")
        .agg(pl.col("start").min().alias("first_backward"), pl.col("end").max().alias("last_backward"))
    )
    forward = phases.filter(pl.col("phase") == "forward").group_by("index").agg(pl.col("end").max().alias("last_forward"))
    if unnamed is not None:
        kind = kind.zip_with(~pieces["producer"].is_in(unnamed.implode()).fill_null(value=False), pl.Series([PIPELINE]))
    placed = (
        pieces.with_columns(kind.alias("kind"), work["start"].gather(pieces["op"]).alias("next"))
        .filter(pl.col("kind").is_in([PIPELINE, "data"]))
        .join(windows.select("index", pl.col("end").alias("close")), on="index", how="left")
        .join(backward, on="index", how="left")
        .join(forward, on="index", how="left")
    )
    pipeline = pl.col("kind") == PIPELINE
    warm = pl.coalesce((pl.col("next") >= pl.col("close")) | (pl.col("next") <= pl.col("first_backward")), pl.lit(value=False))
    cool = ~warm & pl.coalesce(pl.col("start") >= pl.col("last_forward"), pl.lit(value=False))
    tail = (pl.col("kind") == "data") & pl.coalesce(pl.col("end") > pl.col("last_backward"), pl.lit(value=False))
    summed = placed.group_by("index").agg(
        lasting.filter(pipeline & warm).sum().alias("warm_up_ns"),
        lasting.filter(pipeline & ~warm & ~cool).sum().alias("steady_ns"),
        lasting.filter(pipeline & cool).sum().alias("cool_down_ns"),
        lasting.filter(tail).sum().alias("tail_ns"),
    )
    return per_window(windows, summed).fill_null(0)
