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
from diagnose.measure.replay.threads import Threads, threads_of
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
    shown = work.head(work["start"].search_sorted(until, side="right"))
    shown = shown.with_columns(_phases(shown, repeated))
    threads = threads_of(trace, shown, host, rules, rank, until)
    found = links(_with_calls(shown, threads.launched), prepare(work, waits), threads.calls, sm_count)
    edges, launches = _edges(found, threads), len(found.launches)
    del found
    begins = pl.concat([threads.items["start"], shown["start"]])
    spent = pl.concat([threads.items["end"], shown["end"]]) - begins
    edges, places = _in_order(begins, edges)
    begins, spent = (_moved(values, places) for values in (begins, spent))
    reached = _reached(begins, spent, edges)
    told = reached <= begins.gather(edges["dst"])  # what the measured times contradict is no edge
    edges, reached = edges.filter(told), reached.filter(told)
    delay = _delays(begins, edges["dst"], reached)
    del reached, told
    nodes = _nodes(shown, threads, classes, lost)
    nodes = nodes.select(pl.all().gather(_inverse(places))).with_columns(
        begins.alias("start"), spent.alias("duration"), delay.alias("delay"), _step_of(begins, windows).alias("step")
    )
    steps = _steps(shown, windows, places)
    return Graph(
        rank=rank,
        device=device,
        nodes=nodes.select(pl.col(name).cast(kind) for name, kind in NODES.items()),
        edges=edges,
        steps=steps,
        names=trace.names.select("id", "text").filter(pl.col("id").is_in(nodes["name_id"].unique().implode())),
        classes=classes.select("class_id", "operation", "backend"),
        host=launches > 0,
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


def _with_calls(work: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """The operations with the call that launched each, where known."""
    nobody = pl.repeat(None, work.height, dtype=launched.schema["call"], eager=True)
    return work.with_columns(nobody.scatter(launched["op"], launched["call"]).alias("call"))


_TOLD = ("bucket", "role", "phase", "comm")  # what is told of an operation, and of the host's work for it


def _nodes(work: pl.DataFrame, threads: Threads, classes: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """What NODES tells of all nodes but when: those of the threads as they come, then the operations."""
    kinds = classes.select("class_id", pl.when(pl.col("role") == "transport").then(pl.col("kind")).alias("comm"))
    replayed = pl.col("graph_node").is_not_null() & (pl.col("correlation").is_null() | ~pl.col("correlation").is_first_distinct())
    lanes = threads.items["thread"].n_unique()
    streams = work.select("stream").unique().sort("stream").with_row_index("lane", offset=lanes)
    nothing = pl.lit(None)
    ops = (
        work.select("op", "stream", "name_id", "class_id", *_TOLD[:3], "copy_kind", replayed.fill_null(value=False).alias("replayed"))
        .join(kinds, on="class_id", how="left", maintain_order="left")
        .join(streams, on="stream", how="left", nulls_equal=True, maintain_order="left")
        .join(lost.select(pl.col("op").cast(pl.UInt32), "lost"), on="op", how="left", maintain_order="left")
        .select(
            pl.lit("op").alias("kind"),
            "lane",
            "lost",
            "op",
            "name_id",
            "class_id",
            *_TOLD,
            pl.col("copy_kind").alias("copy"),
            nothing.alias("cause"),
            "replayed",
        )
        .select(pl.col(name).cast(NODES[name]) for name in _OF_NODES)
    )
    first = threads.launched.sort("op").unique("call", keep="first")
    calls = pl.repeat(None, threads.calls.height, dtype=pl.UInt32, eager=True).scatter(first["call"], first["op"])
    numbered = threads.items.select("kind", pl.col("thread").rle_id().alias("lane"), "name_id", "cause")  # in order of their threads
    launching = numbered.with_columns(calls.gather(threads.items["call"]).alias("next"))
    items = launching.with_columns(pl.col("next").fill_null(strategy="backward").over("lane"))
    host = items.with_columns(ops[name].gather(items["next"]).alias(name) for name in _TOLD).select(
        "kind",
        "lane",
        nothing.alias("lost"),
        nothing.alias("op"),
        "name_id",
        nothing.alias("class_id"),
        *_TOLD,
        nothing.alias("copy"),
        "cause",
        pl.lit(value=False).alias("replayed"),
    )
    every = pl.concat([host.select(pl.col(name).cast(NODES[name]) for name in _OF_NODES), ops])
    return every.with_columns(nothing.cast(NODES["instance"]).alias("instance"))


_OF_NODES = ("kind", "lane", "lost", "op", "name_id", "class_id", *_TOLD, "copy", "cause", "replayed")


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
    host = threads.edges.select("src", "dst", pl.lit("end", dtype=EDGES["after"]).alias("after"), zero, "kind", "inferred")
    issue = found.launches.join(ends, on="call").select(
        pl.when(pl.col("after") == "end").then("last").otherwise("first").alias("src"),
        (pl.col("op") + first).alias("dst"),
        "after",
        "lag",
        pl.lit("issue", dtype=EDGES["kind"]).alias("kind"),
        pl.lit(value=False).alias("inferred"),
    )
    device = found.edges.with_columns(pl.col("src", "dst") + first)
    awaited = threads.awaited.select((pl.col("op") + first).alias("src"), pl.col("item").alias("dst"), "after", zero, "kind", "inferred")
    return pl.concat(part.select(pl.col(name).cast(kind) for name, kind in EDGES.items()) for part in (host, issue, device, awaited))


def _in_order(start: pl.Series, edges: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Edges between nodes by start, what others wait for first; and the place of each node in that order.

    An edge from a node that begins later than the one that waits for it is left out.
    """
    early, late = start.gather(edges["src"]), start.gather(edges["dst"])
    layer = _layers(len(start), edges.filter(early == late))
    order = pl.DataFrame({"key": start * TIES + layer}).with_row_index("old").sort("key", maintain_order=True)["old"]
    place = _inverse(order)
    forward = edges.filter(early <= late)
    renamed = forward.with_columns(place.gather(forward[end]).alias(end) for end in ("src", "dst"))
    return renamed.filter(pl.col("src") < pl.col("dst")).sort("dst", maintain_order=True), place


def _inverse(order: pl.Series) -> pl.Series:
    """Where each number stands in an order of all of them."""
    return pl.zeros(len(order), dtype=pl.UInt32, eager=True).scatter(order, pl.int_range(len(order), dtype=pl.UInt32, eager=True))


def _moved(values: pl.Series, places: pl.Series) -> pl.Series:
    """Every value at its new place."""
    return pl.zeros(len(values), dtype=values.dtype, eager=True).scatter(places, values)


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


def _reached(start: pl.Series, spent: pl.Series, edges: pl.DataFrame) -> pl.Series:
    """When each edge lets its node begin, by the measured times."""
    after = pl.when(edges["after"] == "end").then(spent.gather(edges["src"])).otherwise(0)
    return start.gather(edges["src"]) + pl.select(after).to_series() + edges["lag"]


def _delays(start: pl.Series, at: pl.Series, reached: pl.Series) -> pl.Series:
    """How long after all that it waited for each node began; 0 for a node that waits for nothing. `at`: nodes in order, each `reached`."""
    latest, distance = pl.DataFrame({"dst": at, "ready": reached}), 1
    while True:  # the latest of a node's edges from each one on, twice as many each time
        same = pl.col("dst") == pl.col("dst").shift(-distance)
        if not latest.select(same.any()).item():
            break
        later = pl.max_horizontal("ready", pl.col("ready").shift(-distance))
        latest = latest.with_columns(pl.when(same).then(later).otherwise("ready").alias("ready"))
        distance *= 2
    ready = latest.filter(at.ne_missing(at.shift(1)))
    return start - start.clone().scatter(ready["dst"], ready["ready"])


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
