"""What a device operation had to wait for: its producers.

Producers of an operation are the operation before it on its stream, and those covered by the events that its stream was told to
wait for, followed through relays (an event recorded on a stream that itself only waited). Host calls are put in order by
correlation id, which the profiler hands out in the order in which calls are made.

Where a trace holds no event, producers are inferred: from times, and from the order of calls (a stream-wait call makes the operation
launched after it wait for the one launched before it on another stream). Inside a replayed graph no trace holds events, so there too.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

MAX_RELAYS = 16  # streams that an event may be passed through before following it ends
TRIED = 4  # candidates that are tried for one inferred producer
INFERENCE_REACH_NS = 10_000  # analysis contract: an inferred producer ends at most 10 µs before its consumer starts


class StreamWaits(Struct, frozen=True, kw_only=True):
    """The stream waits of one rank, resolved to the records that they wait for.

    `stream_waits`: stream, correlation, record_stream, record_correlation (null where unresolved), previous (correlation of the last
    operation on the stream before the wait, null for none). `calls`: correlation ids of the stream-wait API calls, in order. `total` counts
    all stream waits, those that only an API call shows included, and those for a value in memory, whose writer no trace tells.
    """

    stream_waits: pl.DataFrame
    total: int
    resolved: int
    calls: pl.Series

    @property
    def resolved_rate(self) -> float | None:
        """Share of stream waits whose record was found; None without waits."""
        return self.resolved / self.total if self.total else None


def resolve_waits(waits: pl.DataFrame, calls: pl.Series, memory_waits: int = 0) -> StreamWaits:
    """Find the event record behind each stream wait of one rank.

    `waits` has the columns of Trace.waits. A wait and a record with the same sync_id belong together; without sync_id the last record
    of the same event handle before the wait counts. `calls`: the correlation ids of the stream-wait API calls (null where not recorded).
    `memory_waits`: how many calls made a stream wait for a value in memory.
    """
    asked = (
        waits.filter(pl.col("kind") == "stream_wait")
        .select("stream", "correlation", "event", "sync_id")
        .sort("correlation", nulls_last=True)
    )
    records = waits.filter(pl.col("kind") == "record").select(
        pl.col("stream").alias("record_stream"), pl.col("correlation").alias("record_correlation"), "event", "sync_id"
    )
    by_id = asked.filter(pl.col("sync_id").is_not_null()).join(
        records.filter(pl.col("sync_id").is_not_null()).drop("event").unique("sync_id", keep="last", maintain_order=True),
        on="sync_id",
        how="left",
        maintain_order="left",
    )
    ordered_records = records.filter(pl.col("event").is_not_null() & pl.col("record_correlation").is_not_null()).sort("record_correlation")
    by_order = (
        asked.filter(pl.col("sync_id").is_null() & pl.col("correlation").is_not_null())
        .join_asof(
            ordered_records.select("record_stream", "record_correlation", "event").with_columns(
                pl.col("record_correlation").alias("order")
            ),
            left_on="correlation",
            right_on="order",
            by="event",
            strategy="backward",
            check_sortedness=False,
        )
        .drop("order", strict=False)
    )
    columns = ["stream", "correlation", "record_stream", "record_correlation"]
    resolved = pl.concat([by_id.select(columns), by_order.select(columns)]).sort("correlation", nulls_last=True)
    found = int(resolved["record_correlation"].is_not_null().sum())
    return StreamWaits(
        stream_waits=resolved, total=max(asked.height, len(calls)) + memory_waits, resolved=found, calls=calls.drop_nulls().sort()
    )


class Dependencies(Struct, frozen=True, kw_only=True):
    """One device's operations prepared for asking what they waited for, again and again.

    `before`: by op, the one before it on its stream (producer, producer_end; null: none). `issued`: op, end, stream, correlation in order
    of correlation. `stream_waits`: those of `StreamWaits`, with the correlation of the operation issued before (`previous`) and after
    (`next`) them on their stream. `candidates`: what may be inferred as a producer. `called`: op, guess, guess_end, inferred from the order
    of calls. `everywhere`: the trace holds no resolved wait, so that producers are inferred for all operations; otherwise only for
    `replayed` ones (op rows): nodes of a graph after its first.
    """

    before: pl.DataFrame
    issued: pl.DataFrame
    stream_waits: pl.DataFrame
    candidates: pl.DataFrame
    called: pl.DataFrame
    everywhere: bool
    replayed: pl.Series


def prepare(work: pl.DataFrame, waits: StreamWaits, *, from_times: bool = True) -> Dependencies:
    """Put one device's operations in the orders needed. `work`, by start: op (its row), start, end, stream, correlation, issued, role.

    Without `from_times` only events tell producers.
    """
    stream_waits = waits.stream_waits.filter(pl.col("correlation").is_not_null() & pl.col("stream").is_not_null())
    issued = work.select("op", "end", "stream", "correlation")
    if stream_waits.is_empty():
        issued = issued.clear()
    else:
        issued = _whole_graphs(work, issued).filter(pl.col("correlation").is_not_null()).sort("correlation", "end")
        stream_waits = _neighbouring(stream_waits, issued)
    return Dependencies(
        before=_before(work if from_times else work.clear()),
        issued=issued,
        stream_waits=stream_waits,
        candidates=_candidates(work if from_times else work.clear()),
        called=_called(work, waits.calls if waits.resolved == 0 else waits.calls.clear()),
        everywhere=waits.resolved == 0,
        replayed=_inner_nodes(work if from_times else work.clear()),
    )


def latest_producers(known: Dependencies, consumers: pl.DataFrame) -> pl.DataFrame:
    """The producer of each consumer that ends last.

    `consumers`: op, start, stream, correlation, issued; distinct, sorted by start. Result, one row per consumer in the same order: op,
    producer (row number, null: none), producer_end, inferred, unresolved (a wait has no known record, or the trace holds no dependency at
    all).
    """
    before = consumers.select("op").hstack(known.before.select(pl.all().gather(consumers["op"])))
    covered, unresolved = event_producers(known, consumers)
    found = _later(before, covered).with_columns(
        pl.lit(value=False).alias("inferred"),
        pl.lit(value=True).alias("unresolved")
        if known.everywhere
        else pl.col("op").is_in(pl.concat([unresolved["op"], known.replayed]).unique().implode()).alias("unresolved"),
    )
    return found if not known.everywhere and known.replayed.is_empty() else _with_inferred(found, consumers, known)


def _before(work: pl.DataFrame) -> pl.DataFrame:
    """Of each operation (`work`: all, by start) the last one on its stream that started earlier: producer, producer_end."""
    began = (pl.col("start") != pl.col("start").shift(1)).fill_null(value=True)  # of those that start at once none is before another
    last = pl.when(began).then(pl.col("op").shift(1)).forward_fill().over("stream")
    producer = work.select(pl.when(pl.col("stream").is_not_null()).then(last).alias("producer"))
    return producer.with_columns(work["end"].gather(producer["producer"]).alias("producer_end"))


def _later(found: pl.DataFrame, covered: pl.DataFrame) -> pl.DataFrame:
    """`found` (op, producer, producer_end) with the producers of `covered` where those end later; of equal ends the later operation."""
    if covered.is_empty():
        return found
    best = covered.sort("producer_end", "producer").unique("op", keep="last", maintain_order=True)
    both = found.join(best.rename({"producer": "event", "producer_end": "event_end"}), on="op", how="left", maintain_order="left")
    ends_later = (pl.col("event_end") > pl.col("producer_end")) | (
        (pl.col("event_end") == pl.col("producer_end")) & (pl.col("event") > pl.col("producer"))
    )
    taken = (ends_later | pl.col("producer").is_null()) & pl.col("event").is_not_null()
    return both.select(
        "op",
        pl.when(taken).then("event").otherwise("producer").alias("producer"),
        pl.when(taken).then("event_end").otherwise("producer_end").alias("producer_end"),
    )


def event_producers(known: Dependencies, consumers: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Producers through events: (op, producer, producer_end), and the consumers with a wait that has no record (op)."""
    row = consumers.schema["op"]
    nothing = pl.DataFrame(schema={"op": row, "producer": row, "producer_end": pl.Int64})
    if known.stream_waits.is_empty():
        return nothing, nothing.select("op")
    pairs = (
        consumers.select("op", "stream", "correlation")
        .filter(pl.col("correlation").is_not_null())
        .join(known.stream_waits.rename({"correlation": "wait", "next": "correlation"}), on=["stream", "correlation"], how="inner")
    )
    unresolved = pairs.filter(pl.col("record_correlation").is_null()).select("op")
    reached = _through_relays(pairs.filter(pl.col("record_correlation").is_not_null()), known.stream_waits, known.issued)
    return reached.select("op", "producer", "producer_end"), unresolved


def _neighbouring(items: pl.DataFrame, issued: pl.DataFrame) -> pl.DataFrame:
    """`items` with the correlation of the operation issued before (`previous`) and after (`next`) them on their stream."""
    places = issued.select("stream", pl.col("correlation").alias("place"))
    known = items.sort("correlation")
    for name, strategy in (("previous", "backward"), ("next", "forward")):
        known = known.join_asof(
            places.with_columns(pl.col("place").alias(name)),
            left_on="correlation",
            right_on="place",
            by="stream",
            strategy=strategy,  # type: ignore[arg-type]
            allow_exact_matches=False,
            check_sortedness=False,
        ).drop("place", strict=False)
    return known


def _through_relays(pairs: pl.DataFrame, stream_waits: pl.DataFrame, issued: pl.DataFrame) -> pl.DataFrame:
    """Follow (op → record) pairs to the operations that the records cover: op, producer, producer_end."""
    covered: list[pl.DataFrame] = []
    last_ops = issued.select(
        pl.col("op").alias("producer"),
        pl.col("end").alias("producer_end"),
        pl.col("stream").alias("record_stream"),
        pl.col("correlation").alias("place"),
    )
    frontier = pairs.select("op", "record_stream", "record_correlation").unique(maintain_order=True)
    for _ in range(MAX_RELAYS):
        if frontier.is_empty():
            break
        at = frontier.sort("record_correlation").join_asof(
            last_ops.with_columns(pl.col("place").alias("previous")),
            left_on="record_correlation",
            right_on="place",
            by="record_stream",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        covered.append(at.select("op", "producer", "producer_end").filter(pl.col("producer").is_not_null()))
        relays = at.select("op", "record_stream", "record_correlation", "previous").join(
            stream_waits.filter(pl.col("record_correlation").is_not_null()).select(
                pl.col("stream").alias("record_stream"),
                pl.col("correlation").alias("wait"),
                "previous",
                pl.col("record_stream").alias("next_stream"),
                pl.col("record_correlation").alias("next_record"),
            ),
            on=["record_stream", "previous"],
            how="inner",
            nulls_equal=True,
        )
        frontier = (
            relays.filter(pl.col("wait") < pl.col("record_correlation"))
            .select("op", pl.col("next_stream").alias("record_stream"), pl.col("next_record").alias("record_correlation"))
            .unique(maintain_order=True)
        )
    return (
        pl.concat(covered)
        if covered
        else pl.DataFrame(schema={"op": issued.schema["op"], "producer": issued.schema["op"], "producer_end": pl.Int64})
    )


def _whole_graphs(work: pl.DataFrame, issued: pl.DataFrame) -> pl.DataFrame:
    """`issued` with the end of a whole graph launch for each of its nodes: an event recorded after the launch covers all of them."""
    nodes = work.filter(pl.col("graph_node").is_not_null() & pl.col("correlation").is_not_null()).select("op", "end", "correlation")
    if nodes.is_empty():
        return issued
    last = nodes.sort("end", "op").unique("correlation", keep="last").rename({"op": "graph_op", "end": "graph_end"})
    whole = issued.join(last, on="correlation", how="left", maintain_order="left")
    return whole.select(pl.coalesce("graph_op", "op").alias("op"), pl.coalesce("graph_end", "end").alias("end"), "stream", "correlation")


def _candidates(work: pl.DataFrame) -> pl.DataFrame:
    """Operations that may be inferred as producers, in order of end: no compute, which can't run in a gap of compute."""
    return (
        work.filter(pl.col("role") != "compute")
        .select(
            pl.col("op").alias("guess"),
            pl.col("end").alias("guess_end"),
            # one that already ran when the consumer was issued was issued before it, even if its own launch was not recorded
            pl.coalesce("issued", "start").alias("guess_issued"),
        )
        .sort("guess_end", "guess")
    )


def _inner_nodes(work: pl.DataFrame) -> pl.Series:
    """The nodes of replayed graphs, less the first of each launch, which waits as any other launch does."""
    nodes = work.filter(pl.col("graph_node").is_not_null()).select("op", "start", "correlation").sort("start", "op")
    return nodes.filter(pl.col("correlation").is_null() | ~pl.col("correlation").is_first_distinct())["op"]


def _called(work: pl.DataFrame, calls: pl.Series) -> pl.DataFrame:
    """What stream-wait calls tell by their place among the launches alone: op, guess, guess_end.

    The operation launched next after such a call waits for the one launched last before it on another stream. A guess that had not ended
    when the consumer started is wrong and left out.
    """
    launched = (
        work.filter(pl.col("correlation").is_not_null()).select("op", "start", "end", "stream", "correlation").sort("correlation", "start")
    )
    nothing = pl.DataFrame(schema={"op": work.schema["op"], "guess": work.schema["op"], "guess_end": pl.Int64})
    if calls.is_empty() or launched.is_empty():
        return nothing
    places = launched.with_row_index("place")
    changed = (pl.col("stream") != pl.col("stream").shift(1)).fill_null(value=True)
    begun = places.select(pl.when(changed).then("place").forward_fill().cast(pl.Int64).alias("begun"))["begun"]
    following = launched["correlation"].search_sorted(calls, side="right").cast(pl.Int64)
    following = following.filter((following > 0) & (following < launched.height))
    before = following - 1
    same = launched["stream"].gather(before) == launched["stream"].gather(following)
    place = pl.select(pl.when(same).then(begun.gather(before) - 1).otherwise(before)).to_series()
    guessed = pl.DataFrame({"next": following, "place": place}).filter(pl.col("place") >= 0)
    return (
        pl.DataFrame(
            {
                "op": launched["op"].gather(guessed["next"]),
                "start": launched["start"].gather(guessed["next"]),
                "guess": launched["op"].gather(guessed["place"]),
                "guess_end": launched["end"].gather(guessed["place"]),
            }
        )
        .filter(pl.col("guess_end") <= pl.col("start"))
        .sort("guess_end", "guess")
        .unique("op", keep="last", maintain_order=True)
        .select("op", "guess", "guess_end")
    )


def _with_inferred(found: pl.DataFrame, consumers: pl.DataFrame, known: Dependencies) -> pl.DataFrame:
    """`found` with a likely producer where it ends later than the resolved one.

    From times that is the candidate which ends last within 10 µs before the consumer starts and was issued before it; of candidates that
    end close together the last TRIED are looked at. Where a stream-wait call names one that ends later, that one. Where the trace holds
    resolved waits, only the inner nodes of graphs are looked at: what orders those no trace holds.
    """
    guesses = _from_times(consumers, known.candidates)
    called = consumers.select("op").join(known.called, on="op", how="left", maintain_order="left")
    named_later = (called["guess_end"] > guesses["guess_end"]).fill_null(value=False) | guesses["guess_end"].is_null()
    guesses = guesses.select(
        pl.when(named_later).then(called[name]).otherwise(guesses[name]).alias(name) for name in ("guess", "guess_end")
    )
    allowed = pl.lit(value=True) if known.everywhere else pl.col("op").is_in(known.replayed.implode())
    later = ((pl.col("guess_end") > pl.col("producer_end")) | (pl.col("producer_end").is_null() & pl.col("guess").is_not_null())).fill_null(
        value=False
    )
    return (
        found.hstack(guesses)
        .with_columns((later & allowed).alias("inferred"))
        .with_columns(
            pl.when("inferred").then("guess").otherwise("producer").alias("producer"),
            pl.when("inferred").then("guess_end").otherwise("producer_end").alias("producer_end"),
        )
        .drop("guess", "guess_end")
    )


def _from_times(consumers: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """For each consumer the candidate that times suggest: guess, guess_end (null: none)."""
    newest = candidates["guess_end"].search_sorted(consumers["start"], side="right").cast(pl.Int64)
    asked = consumers.select("op", "start", "issued").with_row_index("row").with_columns(newest.alias("place"))
    # candidates come in order of their ends: where one ends too early, all before it do
    near = pl.col("guess_end") >= pl.col("start") - INFERENCE_REACH_NS
    fits = ((pl.col("guess_issued") <= pl.col("issued")) & (pl.col("guess") != pl.col("op"))).fill_null(value=False)
    found = []
    for _ in range(TRIED):
        asked = asked.select("row", "op", "start", "issued", pl.col("place") - 1).filter(pl.col("place") >= 0)
        asked = asked.hstack(candidates.select(pl.all().gather(asked["place"]))).filter(near)
        found.append(asked.filter(fits).select("row", "guess", "guess_end"))
        asked = asked.filter(~fits)
        if asked.is_empty():
            break
    guesses = pl.concat(found)
    return pl.DataFrame(
        pl.repeat(None, consumers.height, dtype=column.dtype, eager=True).alias(column.name).scatter(guesses["row"], column)
        for column in guesses.drop("row").get_columns()
    )
