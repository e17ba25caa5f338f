"""The graph of one device, from what is measured of it: nodes of its host threads and operations, and what each waited for.

It begins where the capture does, so that what leads up to the first kept step is replayed too, and ends with the last kept step. What an
edge says is what was recorded, or (`inferred`) what times tell. The unmodified graph gives back what was measured, to the nanosecond: what
no edge explains stays with the node as its delay, and an edge that the times contradict is no edge.
"""

from __future__ import annotations

import polars as pl

from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.host import HostActivity
from diagnose.measure.replay.graph import EDGES, NODES, STEPS, Graph
from diagnose.measure.replay.links import Links, links
from diagnose.measure.replay.threads import Threads, threads_of, with_calls
from diagnose.measure.waits.dependencies import StreamWaits, prepare
from diagnose.model.trace import Trace

ACCURATE = 0.005  # design contract: the unmodified replay gives back a step to within this share of it
TIES = 1_000  # rounds in which nodes that begin at the same moment are put in order


def graph_of(
    trace: Trace,
    work: pl.DataFrame,
    windows: pl.DataFrame,
    classes: pl.DataFrame,
    waits: StreamWaits,
    host: HostActivity,
    rules: HostRules,
    *,
    rank: int,
    device: int,
    repeated: pl.Series,
    sm_count: int | None,
    lost: pl.DataFrame,
) -> Graph:
    """The graph of a device whose operations are `work` (as `device_work` gives it) and whose kept steps are `windows`.

    `repeated`: rows of the compute that is done a second time; `sm_count`: multiprocessors of the device, where known; `lost`: op, lost as
    `contention.losses` gives it.
    """
    until = int(windows["end"].max())  # type: ignore[arg-type]
    shown = work.filter(pl.col("start") <= until)
    shown = shown.with_columns(_phases(shown, repeated))
    threads = threads_of(trace, shown, host, rules, rank, until)
    shown = shown.with_columns(with_calls(shown, threads.calls).alias("call"))
    found = links(shown, prepare(work, waits), threads.calls, sm_count)
    nodes = _nodes(shown, threads, windows, classes).join(
        lost.select(pl.col("op").cast(pl.UInt32), "lost"), on="op", how="left", maintain_order="left"
    )
    edges = _edges(found, threads)
    nodes, edges, places = _in_order(nodes, edges)
    reached, begins = _reached(nodes, edges), nodes["start"].gather(edges["dst"])
    edges, reached = edges.filter(reached <= begins), reached.filter(reached <= begins)  # what the measured times contradict is no edge
    nodes = nodes.with_columns(_delays(nodes, edges["dst"], reached))
    steps = _steps(shown, windows, places)
    return Graph(
        rank=rank,
        device=device,
        nodes=nodes.select(pl.col(name).cast(kind) for name, kind in NODES.items()),
        edges=edges.select(pl.col(name).cast(kind) for name, kind in EDGES.items()),
        steps=steps,
        names=trace.names.select("id", "text").filter(pl.col("id").is_in(nodes["name_id"].unique().implode())),
        classes=classes.select("class_id", "operation", "backend"),
        host=bool(len(found.launches)),
        refused=_refusal(nodes, steps, windows),
    )


def _phases(work: pl.DataFrame, repeated: pl.Series) -> pl.Series:
    """The phase of each operation, where recompute is what `repeated` says: what else is called so is part of backward.

    What is no compute belongs to a repetition where it was launched between two of its operations.
    """
    again = pl.col("op").is_in(repeated.implode())
    computes = pl.col("role") == "compute"
    launched = (
        work.select("op", "role", "phase", again.alias("again"), pl.coalesce("call_start", "start").alias("at"), "start")
        .sort("at", "start", "op")
        .with_columns(pl.when(computes).then("again").alias("known"))
        .with_columns(pl.col("known").forward_fill().alias("before"), pl.col("known").backward_fill().alias("after"))
    )
    inside = pl.when(computes).then("again").otherwise(pl.col("before") & pl.col("after")).fill_null(value=False)
    said = pl.col("phase") == "recompute"
    phase = pl.when(inside).then(pl.lit("recompute")).when(said).then(pl.lit("backward")).otherwise(pl.col("phase").cast(pl.String))
    return launched.select("op", phase.cast(work.schema["phase"]).alias("phase")).sort("op")["phase"]


def _nodes(work: pl.DataFrame, threads: Threads, windows: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """All nodes with what NODES tells of them but their delay: those of the threads as they come, then the operations."""
    lanes = threads.items["thread"].unique().sort()
    numbers = pl.DataFrame({"thread": lanes, "lane": pl.int_range(len(lanes), dtype=pl.Int32, eager=True)})
    streams = work["stream"].unique().sort()
    rows = pl.DataFrame({"stream": streams, "lane": pl.int_range(len(lanes), len(lanes) + len(streams), dtype=pl.Int32, eager=True)})
    kinds = classes.select("class_id", pl.when(pl.col("role") == "transport").then(pl.col("kind")).alias("comm"))
    replayed = pl.col("graph_node").is_not_null() & (pl.col("correlation").is_null() | ~pl.col("correlation").is_first_distinct())
    nothing = pl.lit(None)
    told = ["bucket", "role", "phase", "comm"]
    ops = (
        work.join(kinds, on="class_id", how="left", maintain_order="left")
        .join(rows, on="stream", how="left", nulls_equal=True, maintain_order="left")
        .select(
            pl.lit("op").alias("kind"),
            "lane",
            "start",
            (pl.col("end") - pl.col("start")).alias("duration"),
            pl.col("op").cast(pl.UInt32),
            pl.col("name_id").cast(pl.Int32),
            pl.col("class_id").cast(pl.Int32),
            pl.col("bucket").cast(pl.String),
            pl.col("role").cast(pl.String),
            pl.col("phase").cast(pl.String),
            pl.col("comm").cast(pl.String),
            pl.col("copy_kind").cast(pl.String).alias("copy"),
            nothing.cast(pl.String).alias("cause"),
            replayed.fill_null(value=False).alias("replayed"),
        )
    )
    launched = ops.select(told).hstack(work.select("call")).filter(pl.col("call").is_not_null()).unique("call", keep="first")
    filled = [pl.col(name).fill_null(strategy="backward").over("thread") for name in ("next", *told)]
    host = (
        threads.items.join(launched.with_columns(pl.col("call").alias("next")), on="call", how="left", maintain_order="left")
        .join(numbers, on="thread", how="left", maintain_order="left")
        .with_columns(filled[0])
        .drop(told)
        .join(launched.rename({"call": "next"}), on="next", how="left", maintain_order="left")
        .select(
            "kind",
            "lane",
            "start",
            (pl.col("end") - pl.col("start")).alias("duration"),
            nothing.cast(pl.UInt32).alias("op"),
            pl.col("name_id").cast(pl.Int32),
            nothing.cast(pl.Int32).alias("class_id"),
            *told,
            nothing.cast(pl.String).alias("copy"),
            "cause",
            pl.lit(value=False).alias("replayed"),
        )
    )
    every = pl.concat([host, ops])
    return every.with_columns(
        _step_of(every["start"], windows).alias("step"), nothing.cast(pl.Int64).alias("instance"), pl.lit(0, dtype=pl.Int64).alias("delay")
    )


def _step_of(moments: pl.Series, windows: pl.DataFrame) -> pl.Series:
    """The index of the kept step in which each moment lies; null outside."""
    place = windows["start"].search_sorted(moments, side="right").cast(pl.Int64) - 1
    row = place.clip(0)
    inside = (place >= 0) & (moments < windows["end"].gather(row))
    return pl.select(pl.when(inside).then(windows["index"].gather(row)).cast(pl.Int32)).to_series()


def _edges(found: Links, threads: Threads) -> pl.DataFrame:
    """All edges with their nodes as `_nodes` numbers them: an operation stands behind all of the host's."""
    first = threads.items.height
    ends = threads.calls.select("call", "first", "last")
    zero = pl.lit(0, dtype=pl.Int64).alias("lag")
    host = threads.edges.select("src", "dst", pl.lit("end").alias("after"), zero, "kind", "inferred")
    issue = found.launches.join(ends, on="call").select(
        pl.when(pl.col("after") == "end").then("last").otherwise("first").alias("src"),
        (pl.col("op") + first).alias("dst"),
        "after",
        "lag",
        pl.lit("issue").alias("kind"),
        pl.lit(value=False).alias("inferred"),
    )
    device = found.edges.with_columns(pl.col("src", "dst") + first)
    awaited = threads.awaited.select((pl.col("op") + first).alias("src"), pl.col("item").alias("dst"), "after", zero, "kind", "inferred")
    return pl.concat(
        part.select(
            pl.col("src", "dst").cast(pl.UInt32),
            pl.col("after").cast(EDGES["after"]),
            "lag",
            pl.col("kind").cast(EDGES["kind"]),
            "inferred",
        )
        for part in (host, issue, device, awaited)
    )


def _in_order(nodes: pl.DataFrame, edges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Nodes by start, what others wait for first; edges between them by their new numbers, and the new number of each old one.

    An edge from a node that begins later than the one that waits for it is left out.
    """
    start = nodes["start"]
    early, late = start.gather(edges["src"]), start.gather(edges["dst"])
    forward = edges.filter(early <= late)
    layer = _layers(nodes.height, edges.filter(early == late))
    order = pl.DataFrame({"key": start * TIES + layer}).with_row_index("old").sort("key", maintain_order=True)["old"]
    place = pl.DataFrame({"old": order}).with_row_index("new").sort("old")["new"]
    renamed = forward.with_columns(place.gather(forward[end]).alias(end) for end in ("src", "dst"))
    return (
        nodes.select(pl.all().gather(order)),
        renamed.filter(pl.col("src") < pl.col("dst")).sort("dst", maintain_order=True),
        place,
    )


def _layers(height: int, ties: pl.DataFrame) -> pl.Series:
    """How many nodes that begin at the same moment each one waits for, one after the other."""
    if ties.is_empty():
        return pl.repeat(0, height, dtype=pl.Int32, eager=True)
    layers = [0] * height
    pairs = list(zip(ties["src"].to_list(), ties["dst"].to_list(), strict=True))
    for _ in range(TIES):
        changed = False
        for src, dst in pairs:
            if layers[dst] <= layers[src]:
                layers[dst] = layers[src] + 1
                changed = True
        if not changed:
            break
    return pl.Series("layer", layers, dtype=pl.Int32)


def _reached(nodes: pl.DataFrame, edges: pl.DataFrame) -> pl.Series:
    """When each edge lets its node begin, by the measured times."""
    start = nodes["start"].gather(edges["src"])
    moment = pl.select(pl.when(edges["after"] == "end").then(start + nodes["duration"].gather(edges["src"])).otherwise(start)).to_series()
    return moment + edges["lag"]


def _delays(nodes: pl.DataFrame, at: pl.Series, reached: pl.Series) -> pl.Series:
    """How long after all that it waited for each node began; 0 for a node that waits for nothing. `at`: nodes in order, each `reached`."""
    ready = pl.DataFrame({"dst": at, "ready": reached}).group_by("dst").agg(pl.col("ready").max())
    known = nodes.select("start").with_row_index("dst").join(ready, on="dst", how="left", maintain_order="left")
    return (known["start"] - known["ready"]).fill_null(0).alias("delay")


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
