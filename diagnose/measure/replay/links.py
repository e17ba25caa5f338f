"""What the operations of a device wait for, as edges with the lag that is usual: the call that launches them, their stream, events.

The lag of an edge is what was measured, but at most what is usual in this trace where nothing else holds an operation up. So an edge that
did not bind holds with its own latency once it does. What no edge explains is left over (`delay`, in `build`). Where no event is recorded
a producer is inferred as `waits.dependencies` infers it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from diagnose.measure.replay.graph import After, EdgeKind, by_row
from diagnose.measure.shapes import blocks
from diagnose.measure.waits.dependencies import INFERENCE_REACH_NS, Dependencies, event_producers

# This project's choices
SMALL_NS = 20_000  # an operation may begin so long before what it follows ends (programmatic launches); more is another order
LATENCY_NS = 5_000  # from a launch to the start on an idle device, where nothing in the trace tells it
GAP_NS = 1_000  # between two operations of a stream, where nothing in the trace tells it
LONGEST_NS = 50_000  # a latency beyond this is no latency
EXPLAINED_NS = 2_000  # an operation that begins so long after all that it is known to wait for waits for something else
LINGER_NS = 200_000  # a kernel that another watches by a flag in memory stays at most so long after it set the flag
TRIED = 4  # candidates that are tried for one inferred producer


class Links(Struct, frozen=True, kw_only=True):
    """`edges` between operations: src, dst (op), after, lag, kind, inferred. `launches`: op, call, after, lag."""

    edges: pl.DataFrame
    launches: pl.DataFrame


def links(work: pl.DataFrame, known: Dependencies, calls: pl.DataFrame, sm_count: int | None) -> Links:
    """The edges of one device's operations.

    `work` in order of start: op (the row number), start, end, stream, correlation, issued, role, graph_node, the grid, and `call`; `calls`:
    call, start, end. `sm_count`: multiprocessors of the device.
    """
    before = _stream(work)
    events = _events(work, known, before)
    turns = _in_turn(work, sm_count)
    ready = _latest(work, before, [events, turns], pl.col("src_end"))
    launched = _launched(work, calls)
    launches = _launches(launched.with_columns(ready.gather(launched["op"]).alias("ready")))
    begins = by_row(launches["op"], launches["until"], work.height)
    on_stream, on_events = (_with_lag(pairs, begins, ready) for pairs in (before, events))
    until = pl.select(pl.max_horizontal(begins, _latest(work, on_stream, [on_events], _UNTIL))).to_series()
    return Links(
        edges=pl.concat(
            [
                *_followed(on_stream, "stream"),
                *_followed(on_events, "event"),
                *_inferred(work, until),
                _edges(turns, "device", inferred=True),
            ]
        ),
        launches=launches.select("op", "call", "after", "lag"),
    )


def _launched(work: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The operations with what is known of their call: op, call, start, began, returned."""
    known = work.select("op", "call", "start").drop_nulls("call")
    times = calls.select(pl.col("start").alias("began"), pl.col("end").alias("returned"))[known["call"]]
    return known.hstack(times).filter(pl.col("start") >= pl.col("began"))


def _latest(work: pl.DataFrame, one: pl.DataFrame, more: Sequence[pl.DataFrame], moment: pl.Expr) -> pl.Series:
    """For each operation the latest `moment` of the rows whose dst it is; of `one` none has two."""
    latest = by_row(one["dst"], one.select(moment).to_series(), work.height)
    several = pl.concat(rows.select("dst", moment.alias("moment")) for rows in more).group_by("dst").agg(pl.col("moment").max())
    if several.is_empty():
        return latest
    return pl.select(pl.max_horizontal(latest, by_row(several["dst"], several["moment"], work.height))).to_series()


def _edges(frame: pl.DataFrame, kind: str, *, after: str = "end", inferred: bool | pl.Expr = False) -> pl.DataFrame:
    return frame.select(
        pl.col("src").cast(pl.UInt32),
        pl.col("dst").cast(pl.UInt32),
        pl.lit(after, dtype=After).alias("after"),
        pl.col("lag").cast(pl.Int64),
        pl.lit(kind, dtype=EdgeKind).alias("kind"),
        (inferred if isinstance(inferred, pl.Expr) else pl.lit(value=inferred)).alias("inferred"),
    )


def _stream(work: pl.DataFrame) -> pl.DataFrame:
    """What each operation follows on its stream: src, dst, src_start, src_end, start, inner (both are nodes of one replayed graph).

    Where the one before still runs far into it, what had ended before that.
    """
    before = work.select(pl.col("op").shift(1).over("stream")).to_series()
    known, source = work.filter(before.is_not_null()), before.drop_nulls()
    alike = known["correlation"] == work["correlation"].gather(source)
    pairs = known.select(
        source.alias("src"),
        pl.col("op").alias("dst"),
        work["start"].gather(source).alias("src_start"),
        work["end"].gather(source).alias("src_end"),
        "start",
        (known["graph_node"].is_not_null() & alike.fill_null(value=False)).alias("inner"),
    )
    far = pairs["src_end"] > pairs["start"] + SMALL_NS
    if not far.any():
        return pairs
    ended = work.select(pl.col("op").alias("src"), pl.col("start").alias("src_start"), pl.col("end").alias("src_end"), "stream")
    other = (
        known.filter(far)
        .select(pl.col("op").alias("dst"), "start", "stream", pairs["inner"].filter(far))
        .join_asof(
            ended.sort("src_end"),
            left_on="start",
            right_on="src_end",
            by="stream",
            strategy="backward",
            coalesce=False,
            check_sortedness=False,
        )
        .filter(pl.col("src").is_not_null() & (pl.col("src") != pl.col("dst")))
    )
    return pl.concat([pairs.filter(~far), other.select(pairs.columns)]).sort("dst")


def _events(work: pl.DataFrame, known: Dependencies, before: pl.DataFrame) -> pl.DataFrame:
    """What streams were told to wait for, the last of each stream, unless times contradict it: the columns of `_stream`."""
    found, _ = event_producers(known, work.select("op", "start", "stream", "correlation", "issued"))
    calls = known.called.select("op", pl.col("guess").alias("producer"), pl.col("guess_end").alias("producer_end"))
    start, stream, inner = work["start"], work["stream"], before.filter("inner")["dst"]
    waits = pl.concat(
        [
            found.select("op", "producer", "producer_end", pl.lit(value=False).alias("inferred")),
            calls.with_columns(pl.lit(value=True).alias("inferred")),
        ]
    ).filter((pl.col("op") < work.height) & (pl.col("producer") < work.height))  # others lie behind the last kept step
    rows, sources = waits["op"], waits["producer"]
    told = waits.with_columns(
        start.gather(rows).alias("start"),
        stream.gather(rows).alias("stream"),
        stream.gather(sources).alias("src_stream"),
        start.gather(sources).alias("src_start"),
    )
    last = (
        told.filter(pl.col("stream").ne_missing(pl.col("src_stream")))
        .sort("producer_end", "producer")
        .unique(["op", "src_stream"], keep="last", maintain_order=True)
        .filter(~pl.col("op").is_in(inner.implode()))
    )
    fits = pl.col("producer_end") <= pl.col("start") + SMALL_NS
    return last.filter(fits & (pl.col("src_start") <= pl.col("start"))).select(
        pl.col("producer").alias("src"),
        pl.col("op").alias("dst"),
        "src_start",
        pl.col("producer_end").alias("src_end"),
        "start",
        pl.lit(value=False).alias("inner"),
        "inferred",
    )


def _in_turn(work: pl.DataFrame, sm_count: int | None) -> pl.DataFrame:
    """Compute of which two need more blocks than there are multiprocessors runs in turn: src, dst, src_end, lag.

    Side by side it would take as long. Where the launches come too slowly for it ever to overlap, nothing else says so. What did overlap is
    left as it is.
    """
    fills = (pl.col("role") == "compute") & (2 * blocks() > (sm_count or 0)).fill_null(value=False)
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


# When an edge lets its operation begin; one that begins before the end of what it follows waits for the beginning of that, too.
_UNTIL = pl.max_horizontal(pl.col("src_end") + pl.col("lag"), pl.when(pl.col("lag") < 0).then("src_start"))


def _with_lag(pairs: pl.DataFrame, begins: pl.Series, ready: pl.Series) -> pl.DataFrame:
    """`pairs` with the lag that is usual where nothing else holds the operation up.

    By operation: `begins`: when its launch lets it begin; `ready`: when the last that it follows has ended.
    """
    known = pairs.with_columns((pl.col("start") - pl.col("src_end")).alias("measured"))
    done = known["src_end"]
    binds = (done == ready.gather(known["dst"])) & (begins.gather(known["dst"]).fill_null(-1) <= done)
    usual = {inner: _usual(known.filter(binds & (known["inner"] == inner))["measured"], GAP_NS) for inner in (True, False)}
    limit = pl.when("inner").then(usual[True]).otherwise(usual[False])
    return known.with_columns(pl.min_horizontal("measured", limit).cast(pl.Int64).alias("lag"))


def _followed(pairs: pl.DataFrame, kind: str) -> list[pl.DataFrame]:
    """The edges of `pairs`, and those to the beginning of what is followed where an operation begins before its end."""
    inferred = pl.col("inferred") if "inferred" in pairs.columns else pl.lit(value=False)
    early = pairs.filter(pl.col("lag") < 0).with_columns(pl.lit(0, dtype=pl.Int64).alias("lag"))
    return [_edges(pairs, kind, inferred=inferred), _edges(early, kind, after="start")]


def _inferred(work: pl.DataFrame, until: pl.Series) -> list[pl.DataFrame]:
    """Edges from likely producers of operations that begin long after all that they are known to wait for (`until`, by operation).

    The last operation of another stream that ended within 10 µs before, and had been issued before; where an operation waits for nothing at
    all, or was not launched and follows nothing closely (pages that migrate), the last that ended before it began, however long ago.
    """
    begun, waited = work["start"], until.is_not_null()
    asked = pl.coalesce("issued", "start")
    late = work.select(
        "op", "start", "stream", "role", asked.alias("asked"), pl.col("issued").is_null().alias("alone"), until.alias("until")
    ).filter(~waited | (begun - until > EXPLAINED_NS))
    if late.is_empty():
        return []
    late = late.with_columns(
        (pl.col("until").is_null() | (pl.col("alone") & (pl.col("start") - pl.col("until") > LONGEST_NS))).alias("alone")
    )
    by_end = work.select(pl.arg_sort_by("end", maintain_order=True)).to_series()
    done = work.select(pl.col("op", "start", "end", "stream", "issued").name.prefix("src_"))
    newest = work["end"].gather(by_end).search_sorted(late["start"], side="right").cast(pl.Int64) - 1
    guesses = [pl.DataFrame(schema={"src": pl.UInt32, "dst": pl.UInt32, "lag": pl.Int64})]
    for back in range(TRIED):
        place = newest - back
        tried = late.hstack(done[by_end.gather(pl.select(pl.when(place >= 0).then(place)).to_series())])
        near = (pl.col("src_end") >= pl.col("start") - INFERENCE_REACH_NS) | pl.col("alone")
        fits = near & pl.col("stream").ne_missing(pl.col("src_stream")) & (pl.col("src_op") != pl.col("op"))
        issued = pl.coalesce("src_issued", "src_start") <= pl.col("asked")
        later = pl.col("until").is_null() | (pl.col("src_end") > pl.col("until"))
        found = tried.filter((fits & issued & later).fill_null(value=False))
        lag = pl.min_horizontal(pl.col("start") - pl.col("src_end"), GAP_NS).cast(pl.Int64).alias("lag")
        guesses.append(found.select(pl.col("src_op").alias("src"), pl.col("op").alias("dst"), lag))
    unique = pl.concat(guesses).unique("dst", keep="first", maintain_order=True)
    watched = _watched(work, late.join(unique, left_on="op", right_on="dst", how="anti"))
    early = watched.with_columns(pl.lit(0, dtype=pl.Int64).alias("lag"))
    return [*(_edges(part, "event", inferred=True) for part in (unique, watched)), _edges(early, "event", after="start", inferred=True)]


def _watched(work: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Transport that ran all the while an operation waited for nothing known, and soon ends: src, dst, lag (negative).

    A persistent kernel sets a flag in memory when its data is there, and stays a little longer; no trace tells who watches the flag.
    """
    moving = (
        work.lazy()
        .filter(pl.col("role") == "transport")
        .select(
            pl.col("op").alias("src"),
            pl.col("start").alias("src_start"),
            pl.col("end").alias("src_end"),
            pl.col("stream").alias("src_stream"),
        )
        .collect()
    )
    waiting = late.filter(pl.col("until").is_not_null() & (pl.col("role") != "transport"))
    beside = waiting.sort("start").join_asof(
        moving.sort("src_end"), left_on="start", right_on="src_end", strategy="forward", tolerance=LINGER_NS, coalesce=False
    )
    ran = (pl.col("src_start") <= pl.col("until")) & pl.col("stream").ne_missing(pl.col("src_stream"))
    return beside.filter(ran).select("src", pl.col("op").alias("dst"), (pl.col("start") - pl.col("src_end")).alias("lag"))
