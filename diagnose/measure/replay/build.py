"""The graph of one device, from what is measured of it: nodes of its host threads and operations, and what each waited for.

It begins where the capture does, so that what leads up to the first kept step is replayed too, and ends with the last kept step. What an
edge says is what was recorded, or (`inferred`) what times tell. The unmodified graph gives back what was measured, to the nanosecond: what
no edge explains stays with the node as its delay, and an edge that the times contradict is no edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.host import HostActivity
from diagnose.measure.replay.graph import EDGES, NODES, STEPS, Graph, by_row
from diagnose.measure.replay.links import Links, links
from diagnose.measure.replay.threads import Threads, threads_of
from diagnose.measure.waits.dependencies import StreamWaits, prepare
from diagnose.model.intervals import latest
from diagnose.model.trace import Trace

ACCURATE = 0.005  # design contract: the unmodified replay gives back a step to within this share of it
LAUNCHED = 0.9  # this project's choice: of the operations so many have a recorded launch, or their times tell too little (as in walls.yaml)
TIES = 1_000  # rounds in which nodes that begin at the same moment are put in order


class GraphSource(Struct, frozen=True, kw_only=True):
    """What the graph of a device is made from, beside its trace.

    `operations` as `device_work` gives them; `repeated`: rows of the compute that is done a second time; `sm_count`: multiprocessors of the
    device, where known; `lost`: op, lost as `contention.losses` gives it; `traits`: operations by trait; `exchanges`: what each does, as
    `Exchanges.operations` tells it.
    """

    rank: int
    device: int
    operations: pl.DataFrame
    classes: pl.DataFrame
    waits: StreamWaits
    host: HostActivity
    repeated: pl.Series
    sm_count: int | None
    lost: pl.DataFrame
    traits: Mapping[str, pl.Series]
    exchanges: pl.DataFrame


def graph_of(trace: Trace, source: GraphSource, windows: pl.DataFrame, rules: HostRules) -> Graph:
    """The graph of a device whose kept steps are `windows`."""
    work = source.operations
    until = latest(windows["end"])
    shown = work.select(_READ).head(work["start"].search_sorted(until, side="right"))
    shown = shown.with_columns(_phases(shown, source.repeated))
    threads = threads_of(trace, shown, source.host, rules, source.rank, until)
    waits = prepare(work, _resolved(source.waits), from_times=False)
    found = links(shown.with_columns(threads.called), waits, threads.calls, source.sm_count)
    edges, launches = _edges(found, threads), len(found.launches)
    del found, waits
    begins, ends = (pl.concat([threads.items[edge], shown[edge]], rechunk=True) for edge in ("start", "end"))
    edges, order, places = _in_order(begins, ends, edges)
    nodes = _nodes(shown, threads, _columns_of(shown, source), order)
    del threads
    begins, spent = begins.gather(order), (ends - begins).gather(order)
    nodes = nodes.with_columns(
        begins.alias("start"),
        spent.alias("duration"),
        _delays(len(begins), edges.select("dst", "left")).alias("delay"),
        _step_of(begins, windows).alias("step"),
        pl.lit(None, dtype=NODES["instance"]).alias("instance"),
    )
    steps = _steps(shown, windows, places)
    return Graph(
        rank=source.rank,
        device=source.device,
        nodes=nodes.select(pl.col(name).cast(kind) for name, kind in NODES.items()),
        edges=edges.select(list(EDGES)),
        steps=steps,
        names=trace.names.select("id", "text").filter(pl.col("id").is_in(nodes["name_id"].unique().implode())),
        classes=source.classes.select("class_id", "operation", "backend"),
        host=launches > 0,
        refused=_unlaunched(shown.filter(pl.col("start") >= windows["start"].min())) or _refusal(nodes, steps, windows),
    )


_READ = ("op", "start", "end", "stream", "name_id", "correlation", "graph_node", "grid_x", "grid_y", "grid_z", "copy_kind", "pinned",
         "call_start", "issued", "thread", "class_id", "bucket", "role", "phase")  # fmt: skip


def _resolved(waits: StreamWaits) -> StreamWaits:
    """The waits whose record is known: no edge can be drawn of another."""
    return replace(waits, stream_waits=waits.stream_waits.filter(pl.col("record_correlation").is_not_null()))


def _phases(work: pl.DataFrame, repeated: pl.Series) -> pl.Series:
    """The phase of each operation, where recompute is what `repeated` says: what else is called so is part of backward.

    What is no compute belongs to a repetition where it was launched between two of its operations, or next to one and is called so: what
    a repetition exchanges before its first kernel and behind its last.
    """
    said, backward = work["phase"], pl.lit("backward", dtype=work.schema["phase"])
    phase = pl.select(pl.when(said == "recompute").then(backward).otherwise(said).alias("phase")).to_series()
    if repeated.is_empty():
        return phase
    again = pl.col("op").is_in(repeated.implode())
    computes = pl.col("role") == "compute"
    launched = (
        work.select("op", "role", "phase", again.alias("again"), pl.coalesce("call_start", "start").alias("at"), "start")
        .sort("at", "start", "op")
        .with_columns(pl.when(computes).then("again").alias("known"))
        .with_columns(pl.col("known").forward_fill().alias("before"), pl.col("known").backward_fill().alias("after"))
    )
    called = (pl.col("phase") == "recompute").fill_null(value=False)
    beside = (pl.col("before") & pl.col("after")) | (called & (pl.col("before") | pl.col("after")))
    inside = pl.when(computes).then("again").otherwise(beside).fill_null(value=False)
    repeats = launched.filter(inside)["op"]
    return phase.scatter(repeats, pl.repeat("recompute", len(repeats), dtype=phase.dtype, eager=True))


class _Columns(NamedTuple):
    """Columns of each operation alone (`own`), and those of the host's work for it, too (`shared`)."""

    own: pl.DataFrame
    shared: pl.DataFrame


def _nodes(work: pl.DataFrame, threads: Threads, columns: _Columns, order: pl.Series) -> pl.DataFrame:
    """What NODES tells of all nodes but when, in `order`: a number stands for one of the items of threads, or behind them an operation.

    `of`: the operation itself, or what the host launches next.
    """
    items = threads.items
    lanes = items["thread"].rle_id()  # in order of their threads
    streams = work.select(pl.col("stream").unique()).sort("stream").with_row_index("lane", offset=items["thread"].n_unique())
    launched = by_row(threads.launching["call"], threads.launching["op"], threads.calls.height).gather(items["call"])
    following = pl.DataFrame([lanes.alias("lane"), launched.alias("of")]).select(pl.col("of").fill_null(strategy="backward").over("lane"))
    host = items.select(
        "kind", lanes.cast(NODES["lane"]).alias("lane"), "name_id", "cause", pl.lit(None, dtype=NODES["op"]).alias("op"), following["of"]
    )
    ops = work.select(
        pl.lit("op", dtype=NODES["kind"]).alias("kind"),
        work.select("stream").join(streams, on="stream", how="left", nulls_equal=True, maintain_order="left")["lane"].cast(NODES["lane"]),
        "name_id",
        pl.lit(None, dtype=NODES["cause"]).alias("cause"),
        "op",
        pl.col("op").alias("of"),
    )
    nodes = pl.concat([host, ops])[order]
    known = nodes.drop("of").hstack(columns.own[nodes["op"]]).hstack(columns.shared[nodes["of"]])
    return known.with_columns(pl.col("replayed").fill_null(value=False))


def _columns_of(work: pl.DataFrame, source: GraphSource) -> _Columns:
    """What the measurements tell of the operations `work`, which others may follow behind the last kept step."""
    here, named = (frame.filter(pl.col("op") < work.height) for frame in (source.lost, source.exchanges))
    own = work.select(
        by_row(here["op"], here["lost"], work.height).alias("lost"),
        "class_id",
        pl.col("copy_kind").alias("copy"),
        replayed_nodes(work).alias("replayed"),
        by_row(named["op"], named["exchange"], work.height).alias("exchange"),
        *(pl.col("op").is_in(ops.implode()).alias(trait) for trait, ops in source.traits.items()),
    )
    kinds = source.classes.select("class_id", pl.when(pl.col("role") == "transport").then(pl.col("kind")).cast(NODES["comm"]).alias("comm"))
    comm = work.select("class_id").join(kinds, on="class_id", how="left", maintain_order="left")["comm"]
    return _Columns(own, work.select(pl.col("bucket").cast(NODES["bucket"]), "role", "phase", "pinned", comm))


def replayed_nodes(work: pl.DataFrame) -> pl.Series:
    """Which operations a CUDA graph launched after its first node."""
    if work["graph_node"].null_count() == work.height:
        return pl.repeat(value=False, n=work.height, eager=True)
    first = work["correlation"].is_first_distinct() & work["correlation"].is_not_null()
    return work["graph_node"].is_not_null() & ~first


def _step_of(moments: pl.Series, windows: pl.DataFrame) -> pl.Series:
    """The index of the kept step in which each of `moments` (in order) lies; null outside."""
    first, until = (moments.search_sorted(windows[edge]).alias(edge) for edge in ("start", "end"))
    between = first - until.shift(1, fill_value=0)
    runs = pl.DataFrame(
        {
            "step": [step for index in windows["index"] for step in (None, index)] + [None],
            "count": [
                *pl.DataFrame([between, until - first]).select(pl.concat_list(pl.all()).explode()).to_series(),
                len(moments) - until[-1],
            ],
        },
        schema={"step": pl.Int32, "count": pl.UInt32},
    )
    return runs.filter(pl.col("count") > 0).select(pl.col("step").repeat_by("count").explode()).to_series()


def _edges(found: Links, threads: Threads) -> pl.DataFrame:
    """All edges with their nodes as `_nodes` numbers them: an operation stands behind all of the host's."""
    first = threads.items.height
    item, zero = pl.UInt32, pl.lit(0, dtype=pl.Int64).alias("lag")
    op = (pl.col("op").cast(item) + first).alias
    calls, launches = threads.calls, found.launches
    issue = launches.select(
        pl.when(pl.col("after") == "end")
        .then(calls["last"].gather(launches["call"]))
        .otherwise(calls["first"].gather(launches["call"]))
        .alias("src"),
        op("dst"),
        "after",
        "lag",
        pl.lit("issue", dtype=EDGES["kind"]).alias("kind"),
        pl.lit(value=False).alias("inferred"),
    )
    host = threads.edges.select("src", "dst", pl.lit("end", dtype=EDGES["after"]).alias("after"), zero, "kind", "inferred")
    device = found.edges.with_columns(pl.col("src", "dst") + first)
    awaited = threads.awaited.select(op("src"), pl.col("item").alias("dst"), "after", zero, "kind", "inferred")
    parts = (part.select(pl.col(name).cast(kind) for name, kind in EDGES.items()) for part in (host, issue, device, awaited))
    return pl.concat(parts, rechunk=True)


def _in_order(start: pl.Series, end: pl.Series, edges: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """Edges between nodes by start, what others wait for first; the nodes in that order; and the place of each.

    `left`: how long after an edge lets its node begin it does, by the measured times. What these contradict is no edge and left out, as is
    an edge from a node that begins later than the one that waits for it. A call that waits for its copy from ordinary memory returns once
    all is staged, before the copy ends: its edge has that lag.
    """
    early, late = start.gather(edges["src"]), start.gather(edges["dst"])
    ties = edges.filter(early == late)
    key = start if ties.is_empty() else start * TIES + _layers(len(start), ties)
    order = key.to_frame("start").select(pl.arg_sort_by("start", maintain_order=True)).to_series()
    place = _inverse(order)
    after = pl.when(pl.col("after") == "end").then(end.gather(edges["src"])).otherwise(early)
    returns = (late - after).clip(upper_bound=0)  # as early as a call returns
    lag = pl.when(pl.col("kind") == "awaited").then(pl.min_horizontal("lag", returns)).otherwise("lag").alias("lag")
    renamed = edges.with_columns(lag).with_columns(
        *(place.gather(edges[side]).alias(side) for side in ("src", "dst")), (late - after - pl.col("lag")).alias("left")
    )
    told = (early <= late) & (renamed["left"] >= 0) & (renamed["src"] < renamed["dst"])
    del early, late, after, ties, key  # a graph is large: nothing is held that is not read again
    rows = renamed.select("dst").with_row_index("row").filter(told).sort("dst", maintain_order=True)["row"]
    return renamed[rows], order, place


def _inverse(order: pl.Series) -> pl.Series:
    """Where each number stands in an order of all of them."""
    return pl.zeros(len(order), dtype=pl.UInt32, eager=True).scatter(order, pl.int_range(len(order), dtype=pl.UInt32, eager=True))


def _layers(height: int, ties: pl.DataFrame) -> pl.Series:
    """How many nodes that begin at the same moment each one waits for, one after the other."""
    layers = dict.fromkeys([*ties["src"].to_list(), *ties["dst"].to_list()], 0)
    pairs = list(zip(ties["src"].to_list(), ties["dst"].to_list(), strict=True))
    for _ in range(TIES):
        changed = False
        for src, dst in pairs:
            if layers[dst] <= layers[src]:
                layers[dst] = layers[src] + 1
                changed = True
        if not changed:
            break
    return pl.zeros(height, dtype=pl.Int64, eager=True).scatter(list(layers), list(layers.values()))


def _delays(nodes: int, edges: pl.DataFrame) -> pl.Series:
    """How long after all that it waited for each node began; 0 for a node that waits for nothing. `edges`, by dst: dst, left."""
    delay = pl.repeat(None, nodes, dtype=pl.Int64, eager=True)
    while not edges.is_empty():  # of each node one edge at a time; few have more than two
        first = edges["dst"].ne_missing(edges["dst"].shift(1))
        one = edges.filter(first)
        least = one.select(pl.min_horizontal("left", delay.gather(one["dst"])))
        delay = delay.scatter(one["dst"], least.to_series())
        edges = edges.filter(~first)
    return delay.fill_null(0)


def _steps(work: pl.DataFrame, windows: pl.DataFrame, places: pl.Series) -> pl.DataFrame:
    """The kept steps with the operations that open and close them.

    A step ends where the next operation begins, or with the last that ends by its end: whichever is nearer.
    """
    first = len(places) - work.height
    starts = work["start"]
    by_end = work.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "end").sort("end", "row")
    last = work.height - 1
    opens = starts.search_sorted(windows["start"], side="left").clip(0, last)
    follows = starts.search_sorted(windows["end"], side="left").clip(0, last)
    ended = (by_end["end"].search_sorted(windows["end"], side="right").cast(pl.Int64) - 1).clip(0)
    closing = by_end["row"].gather(ended)
    to_start = (starts.gather(follows) - windows["end"]).abs()
    to_end = (work["end"].gather(closing) - windows["end"]).abs()
    begins = to_start <= to_end
    row = pl.select(pl.when(begins).then(follows).otherwise(closing)).to_series()
    return windows.select(
        pl.col("index").cast(pl.Int64),
        "start",
        "end",
        places.gather(opens + first).alias("opens"),
        places.gather(row + first).alias("closes"),
        pl.select(pl.when(begins).then(pl.lit("start")).otherwise(pl.lit("end"))).to_series().cast(STEPS["at"]).alias("at"),
    )


def _unlaunched(work: pl.DataFrame) -> str | None:
    """Why no forecast can be made where many launches in the steps are missing: what was not launched by a known call stays where it was.

    Where the trace has no launches at all, the device alone is replayed.
    """
    share = 1 - work["call_start"].null_count() / max(work.height, 1)
    if not 0 < share < LAUNCHED:
        return None
    migrated = bool((work["issued"].is_not_null() & work["call_start"].is_null()).any())  # only these are issued by no call
    others = "the others, page migrations among them," if migrated else "the others"
    return f"Only {100 * share:.1f} % of the operations were launched by a call that the trace holds: a replay would leave {others} where they are."


def _refusal(nodes: pl.DataFrame, steps: pl.DataFrame, windows: pl.DataFrame) -> str | None:
    """Why no forecast can be made of the graph: a step that does not begin and end with operations."""
    opened = nodes["start"].gather(steps["opens"])
    begun = nodes["start"].gather(steps["closes"])
    closed = pl.select(pl.when(steps["at"] == "start").then(begun).otherwise(begun + nodes["duration"].gather(steps["closes"]))).to_series()
    measured = windows["end"] - windows["start"]
    worst = ((closed - opened) / measured - 1).abs().max()
    if isinstance(worst, int | float) and worst > ACCURATE:
        return f"The replay of the steps as they were is {100 * worst:.1f} % off: they do not begin and end with operations of the device."
    return None
