"""What the operations of a device wait for, as edges with the lag that is usual: the call that launches them, their stream, events.

The lag of an edge is what was measured, but at most what is usual in this trace where nothing else holds an operation up. So an edge that
did not bind holds with its own latency once it does. What no edge explains is left over (`delay`, in `build`). Where no event is recorded
a producer is inferred as `waits.dependencies` infers it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.measure.replay.graph import After, EdgeKind
from diagnose.measure.waits.dependencies import INFERENCE_REACH_NS, Dependencies, event_producers

# This project's choices
SMALL_NS = 20_000  # an operation may begin so long before what it follows ends (programmatic launches); more is another order
LATENCY_NS = 5_000  # from a launch to the start on an idle device, where nothing in the trace tells it
GAP_NS = 1_000  # between two operations of a stream, where nothing in the trace tells it
LONGEST_NS = 50_000  # a latency beyond this is no latency
EXPLAINED_NS = 2_000  # an operation that begins so long after all that it is known to wait for waits for something else
LINGER_NS = 200_000  # a kernel that another watches by a flag in memory stays at most so long after it set the flag
TRIED = 4  # candidates that are tried for one inferred producer


@dataclass(frozen=True, kw_only=True)
class Links:
    """`edges` between operations: src, dst (op), after, lag, kind, inferred. `launches`: op, call, after, lag. `dropped`: waits that the
    times of the trace contradict.
    """

    edges: pl.DataFrame
    launches: pl.DataFrame
    dropped: int


def links(work: pl.DataFrame, known: Dependencies, calls: pl.DataFrame, sm_count: int | None) -> Links:
    """The edges of one device's operations.

    `work` in order of start: op, start, end, stream, correlation, issued, role, graph_node, the grid, and `call`; `calls`: call, start,
    end. `sm_count`: multiprocessors of the device.
    """
    before = _stream(work)
    events, contradicted = _events(work, known, before)
    launched = (
        work.select("op", "call", "start")
        .drop_nulls("call")
        .join(calls.select("call", pl.col("start").alias("began"), pl.col("end").alias("returned")), on="call", maintain_order="left")
    )
    launched = launched.filter(pl.col("start") >= pl.col("began"))
    turns = _in_turn(work, sm_count)
    latest = (
        pl.concat([before.select("dst", "src_end"), events.select("dst", "src_end"), turns.select("dst", "src_end")])
        .group_by("dst")
        .agg(pl.col("src_end").max().alias("ready"))
    )
    launches = _launches(launched.join(latest, left_on="op", right_on="dst", how="left", maintain_order="left"))
    edges = pl.concat([_with_lag(before, launches, latest, "stream"), _with_lag(events, launches, latest, "event")])
    guessed = _inferred(work, edges, launches)
    return Links(
        edges=pl.concat([edges, guessed, _edges(turns, "device", inferred=True)]),
        launches=launches.select("op", "call", "after", "lag"),
        dropped=contradicted,
    )


_EDGE = ("src", "dst", "after", "lag", "kind", "inferred")


def _edges(frame: pl.DataFrame, kind: str, *, after: str = "end", inferred: bool = False) -> pl.DataFrame:
    return frame.select(
        pl.col("src").cast(pl.UInt32),
        pl.col("dst").cast(pl.UInt32),
        pl.lit(after, dtype=After).alias("after"),
        pl.col("lag").cast(pl.Int64),
        pl.lit(kind, dtype=EdgeKind).alias("kind"),
        pl.lit(value=inferred).alias("inferred"),
    )


def _stream(work: pl.DataFrame) -> pl.DataFrame:
    """What each operation follows on its stream: src, dst, src_start, src_end, start, inner (both are nodes of one replayed graph).

    Where the one before still runs far into it, what had ended before that.
    """
    place = ("op", "start", "end", "correlation")
    ordered = work.select(*place, "stream", "graph_node")
    pairs = ordered.with_columns(pl.col(name).shift(1).over("stream").alias(f"src_{name}") for name in place)
    inner = pl.col("graph_node").is_not_null() & (pl.col("correlation") == pl.col("src_correlation")).fill_null(value=False)
    pairs = pairs.with_columns(inner.alias("inner")).filter(pl.col("src_op").is_not_null())
    columns = [pl.col("src_op").alias("src"), pl.col("op").alias("dst"), "src_start", "src_end", "start", "inner"]
    near = pl.col("src_end") <= pl.col("start") + SMALL_NS
    far = pairs.filter(~near).select("op", "start", "stream", "inner")
    if far.is_empty():
        return pairs.select(columns)
    ended = work.select(pl.col("op").alias("src_op"), pl.col("start").alias("src_start"), pl.col("end").alias("src_end"), "stream")
    other = far.join_asof(
        ended.sort("src_end"), left_on="start", right_on="src_end", by="stream", strategy="backward", coalesce=False, check_sortedness=False
    ).filter(pl.col("src_op").is_not_null() & (pl.col("src_op") != pl.col("op")))
    return pl.concat([pairs.filter(near).select(columns), other.select(columns)]).sort("dst")


def _events(work: pl.DataFrame, known: Dependencies, before: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """What streams were told to wait for, the last of each stream: the columns of `_stream`, and how many waits the times contradict."""
    found, _ = event_producers(known, work.select("op", "start", "stream", "correlation", "issued"))
    calls = known.called.select("op", pl.col("guess").alias("producer"), pl.col("guess_end").alias("producer_end"))
    start, stream, began = work["start"], work["stream"], work["op"]
    waits = pl.concat(
        [
            found.select("op", "producer", "producer_end", pl.lit(value=False).alias("inferred")),
            calls.with_columns(pl.lit(value=True).alias("inferred")),
        ]
    )
    first = int(began[0]) if len(began) else 0
    shown = [pl.col(name).cast(pl.Int64).is_between(first, first + work.height - 1) for name in ("op", "producer")]
    waits = waits.filter(*shown)  # others lie behind the last kept step
    rows, sources = waits["op"].cast(pl.Int64) - first, waits["producer"].cast(pl.Int64) - first
    told = waits.with_columns(
        start.gather(rows).alias("start"), stream.gather(rows).alias("stream"), stream.gather(sources).alias("src_stream"),
        start.gather(sources).alias("src_start"),
    )  # fmt: skip
    last = (
        told.filter(pl.col("stream").ne_missing(pl.col("src_stream")))
        .sort("producer_end", "producer")
        .unique(["op", "src_stream"], keep="last", maintain_order=True)
        .join(before.select(pl.col("dst").alias("op"), "inner"), on="op", how="left", maintain_order="left")
        .filter(~pl.col("inner").fill_null(value=False))
    )
    fits = pl.col("producer_end") <= pl.col("start") + SMALL_NS
    kept = last.filter(fits & (pl.col("src_start") <= pl.col("start")))
    return (
        kept.select(
            pl.col("producer").alias("src"),
            pl.col("op").alias("dst"),
            "src_start",
            pl.col("producer_end").alias("src_end"),
            "start",
            pl.lit(value=False).alias("inner"),
            "inferred",
        ),
        last.height - kept.height,
    )


def _in_turn(work: pl.DataFrame, sm_count: int | None) -> pl.DataFrame:
    """Compute of which two need more blocks than there are multiprocessors runs in turn: src, dst, src_end, lag.

    Side by side it would take as long. Where the launches come too slowly for it ever to overlap, nothing else says so. What did overlap is
    left as it is.
    """
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    fills = (pl.col("role") == "compute") & (2 * blocks > (sm_count or 0)).fill_null(value=False)
    filling = work.lazy().filter(fills).select("op", "start", "end", "stream").collect()
    other = pl.col("stream").ne_missing(pl.col("stream").shift(1))
    done = pl.col("end").cum_max().shift(1)
    before = filling.select(
        pl.col("op").shift(1).alias("src"),
        pl.col("op").alias("dst"),
        pl.col("end").shift(1).alias("src_end"),
        pl.lit(0).alias("lag"),
        (other & (done <= pl.col("start")) & pl.lit(value=sm_count is not None)).alias("turn"),
    )
    return before.filter("turn")


def _usual(values: pl.Series, otherwise: int) -> int:
    """The median of what is short enough to be a latency."""
    short = values.filter((values >= 0) & (values <= LONGEST_NS))
    median = short.median()
    return int(median) if isinstance(median, int | float) else otherwise


def _launches(launched: pl.DataFrame) -> pl.DataFrame:
    """op, call, after, lag, until (when the launch lets it begin). What began inside its call waits for the call's beginning."""
    inside = pl.col("start") < pl.col("returned")
    idle = launched.filter(pl.col("ready").fill_null(-1) <= pl.col("began"))
    lags = {
        "start": _usual((idle.filter(inside)["start"] - idle.filter(inside)["began"]), LATENCY_NS),
        "end": _usual((idle.filter(~inside)["start"] - idle.filter(~inside)["returned"]), LATENCY_NS),
    }
    measured = pl.when(inside).then(pl.col("start") - pl.col("began")).otherwise(pl.col("start") - pl.col("returned"))
    usual = pl.when(inside).then(lags["start"]).otherwise(lags["end"])
    return launched.select(
        "op",
        "call",
        pl.when(inside).then(pl.lit("start", dtype=After)).otherwise(pl.lit("end", dtype=After)).alias("after"),
        pl.min_horizontal(measured, usual).cast(pl.Int64).alias("lag"),
        pl.when(inside).then("began").otherwise("returned").alias("moment"),
    ).with_columns((pl.col("moment") + pl.col("lag")).alias("until"))


def _with_lag(pairs: pl.DataFrame, launches: pl.DataFrame, latest: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Edges of `pairs` with the lag that is usual where nothing else holds the operation up."""
    inferred = pl.col("inferred") if "inferred" in pairs.columns else pl.lit(value=False)
    known = (
        pairs.with_columns(inferred.alias("inferred"), (pl.col("start") - pl.col("src_end")).alias("measured"))
        .join(launches.select(pl.col("op").alias("dst"), "until"), on="dst", how="left", maintain_order="left")
        .join(latest, on="dst", how="left", maintain_order="left")
    )
    binds = (pl.col("src_end") == pl.col("ready")) & (pl.col("until").fill_null(-1) <= pl.col("src_end"))
    bound = known.filter(binds)
    usual = {inner: _usual(bound.filter(pl.col("inner") == inner)["measured"], GAP_NS) for inner in (True, False)}
    limit = pl.when("inner").then(usual[True]).otherwise(usual[False])
    with_lag = known.with_columns(pl.min_horizontal("measured", limit).alias("lag"))
    follows = with_lag.select(
        pl.col("src").cast(pl.UInt32),
        pl.col("dst").cast(pl.UInt32),
        pl.lit("end", dtype=After).alias("after"),
        pl.col("lag").cast(pl.Int64),
        pl.lit(kind, dtype=EdgeKind).alias("kind"),
        "inferred",
    )
    early = with_lag.filter(pl.col("lag") < 0).with_columns(pl.lit(0, dtype=pl.Int64).alias("lag"))
    return pl.concat([follows, _edges(early, kind, after="start")])


def _inferred(work: pl.DataFrame, edges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Likely producers of operations that begin long after all that they are known to wait for.

    The last operation of another stream that ended within 10 µs before, and had been issued before; where an operation waits for nothing at
    all, or was not launched and follows nothing closely (pages that migrate), the last that ended before it began, however long ago.
    """
    first, ends = int(work["op"][0]) if work.height else 0, pl.when(pl.col("after") == "end")
    rows = edges["src"].cast(pl.Int64) - first  # `work` has its operations by their numbers
    timed = edges.select(
        pl.col("dst").cast(pl.Int64) - first,
        (ends.then(work["end"].gather(rows)).otherwise(work["start"].gather(rows)) + pl.col("lag")).alias("until"),
    )
    timed = timed.group_by("dst").agg(pl.col("until").max())
    nothing = pl.repeat(None, work.height, dtype=pl.Int64, eager=True)
    until = pl.DataFrame(
        {
            "edges": nothing.clone().scatter(timed["dst"], timed["until"]),
            "launch": nothing.clone().scatter(launches["op"].cast(pl.Int64) - first, launches["until"]),
        }
    )
    asked = pl.coalesce("issued", "start").alias("asked")
    held = work.select(
        pl.col("op").cast(pl.UInt32), "start", "stream", "role", asked, pl.col("issued").is_null().alias("alone")
    ).with_columns(until.select(pl.max_horizontal(pl.all()).alias("until")).to_series())
    late = held.filter(pl.col("until").is_null() | (pl.col("start") - pl.col("until") > EXPLAINED_NS)).with_columns(
        (pl.col("until").is_null() | (pl.col("alone") & (pl.col("start") - pl.col("until") > LONGEST_NS))).alias("alone")
    )
    done = work.select(
        pl.col("op").cast(pl.UInt32).alias("src"),
        pl.col("end").alias("src_end"),
        pl.col("stream").alias("src_stream"),
        pl.coalesce("issued", "start").alias("src_asked"),
    ).sort("src_end", "src")
    newest = done["src_end"].search_sorted(late["start"], side="right").cast(pl.Int64) - 1
    schema = {"src": pl.UInt32, "dst": pl.UInt32, "lag": pl.Int64}
    guesses = [pl.DataFrame(schema=schema)]
    for back in range(TRIED):
        place = newest - back
        tried = late.hstack(done.select(pl.all().gather(pl.select(pl.when(place >= 0).then(place)).to_series())))
        near = (pl.col("src_end") >= pl.col("start") - INFERENCE_REACH_NS) | pl.col("alone")
        fits = near & pl.col("stream").ne_missing(pl.col("src_stream")) & (pl.col("src") != pl.col("op"))
        issued = pl.col("src_asked") <= pl.col("asked")
        later = pl.col("until").is_null() | (pl.col("src_end") > pl.col("until"))
        found = tried.filter((fits & issued & later).fill_null(value=False))
        guesses.append(
            found.select("src", pl.col("op").alias("dst"), pl.min_horizontal(pl.col("start") - pl.col("src_end"), GAP_NS).cast(pl.Int64).alias("lag"))
        )  # fmt: skip
    unique = pl.concat(guesses).unique("dst", keep="first", maintain_order=True)
    watched = _watched(work, late.join(unique, left_on="op", right_on="dst", how="anti"))
    early = watched.with_columns(pl.lit(0, dtype=pl.Int64).alias("lag"))
    return pl.concat(
        [_edges(part, "event", inferred=True) for part in (unique, watched)] + [_edges(early, "event", after="start", inferred=True)]
    )


def _watched(work: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Transport that ran all the while an operation waited for nothing known, and soon ends: src, dst, lag (negative).

    A persistent kernel sets a flag in memory when its data is there, and stays a little longer; no trace tells who watches the flag.
    """
    moving = work.filter(pl.col("role") == "transport").select(
        pl.col("op").cast(pl.UInt32).alias("src"),
        pl.col("start").alias("src_start"),
        pl.col("end").alias("src_end"),
        pl.col("stream").alias("src_stream"),
    )
    waiting = late.filter(pl.col("until").is_not_null() & (pl.col("role") != "transport"))
    beside = waiting.sort("start").join_asof(
        moving.sort("src_end"), left_on="start", right_on="src_end", strategy="forward", tolerance=LINGER_NS, coalesce=False
    )
    ran = (pl.col("src_start") <= pl.col("until")) & pl.col("stream").ne_missing(pl.col("src_stream"))
    return beside.filter(ran).select("src", pl.col("op").alias("dst"), (pl.col("start") - pl.col("src_end")).alias("lag"))
