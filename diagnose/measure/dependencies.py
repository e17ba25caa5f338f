"""What a device operation had to wait for: its producers.

Producers of an operation are the operation before it on its stream, and those covered by the events that its stream was told to
wait for, followed through relays (an event recorded on a stream that itself only waited). Host calls are put in order by
correlation id, which the profiler hands out in the order in which calls are made.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

MAX_RELAYS = 16  # streams that an event may be passed through before following it ends
INFERENCE_REACH_NS = 10_000  # analysis contract: an inferred producer ends at most 10 µs before its consumer starts


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The stream waits of one rank, resolved to the records that they wait for.

    `stream_waits`: stream, correlation, record_stream, record_correlation (null where unresolved), previous (correlation of the last
    operation on the stream before the wait, null for none). `total` counts all stream waits, those that only an API call shows included.
    """

    stream_waits: pl.DataFrame
    total: int
    resolved: int

    @property
    def resolved_rate(self) -> float | None:
        """Share of stream waits whose record was found; None without waits."""
        return self.resolved / self.total if self.total else None


def resolve_waits(waits: pl.DataFrame, stream_wait_calls: int) -> Waits:
    """Find the event record behind each stream wait of one rank.

    `waits` has the columns of Trace.waits. A wait and a record with the same sync_id belong together; without sync_id the last record
    of the same event handle before the wait counts. `stream_wait_calls` is the number of stream-wait API calls.
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
    return Waits(stream_waits=resolved, total=max(asked.height, stream_wait_calls), resolved=found)


def producers(work: pl.DataFrame, consumers: pl.DataFrame, waits: Waits) -> pl.DataFrame:
    """The producer of each consumer that ends last.

    `work`: all operations of one device in order of start, with op (row number), start, end, stream, correlation. `consumers`: op, start,
    stream, correlation, sorted by start. Result, one row per consumer in the same order: op, producer (row number, null: none),
    producer_end, unresolved (True where a wait of the consumer has no known record).
    """
    ordered = work.select("op", "start", "end", "stream", "correlation")
    before = consumers.select("op", "start", "stream", "correlation").join_asof(
        ordered.select(pl.col("op").alias("producer"), pl.col("end").alias("producer_end"), "start", "stream"),
        on="start",
        by="stream",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    edges = before.select("op", "producer", "producer_end").filter(pl.col("producer").is_not_null())
    covered, unresolved = _event_producers(ordered, consumers, waits)
    latest = (
        pl.concat([edges, covered.select(edges.columns)]).sort("producer_end", "producer").unique("op", keep="last", maintain_order=True)
    )
    return (
        consumers.select("op")
        .join(latest, on="op", how="left", maintain_order="left")
        .join(unresolved.select("op", pl.lit(value=True).alias("unresolved")).unique(), on="op", how="left", maintain_order="left")
        .with_columns(pl.col("unresolved").fill_null(value=False))
    )


def _event_producers(ordered: pl.DataFrame, consumers: pl.DataFrame, waits: Waits) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Producers through events: (op, producer, producer_end), and the consumers with a wait that has no record (op)."""
    nothing = pl.DataFrame(schema={"op": ordered.schema["op"], "producer": ordered.schema["op"], "producer_end": pl.Int64})
    stream_waits = waits.stream_waits.filter(pl.col("correlation").is_not_null() & pl.col("stream").is_not_null())
    if stream_waits.is_empty():
        return nothing, nothing.select("op")
    issued = ordered.filter(pl.col("correlation").is_not_null()).sort("correlation")
    stream_waits = _neighbouring(stream_waits, issued, "stream", "correlation")
    pairs = (
        consumers.select("op", "stream", "correlation")
        .filter(pl.col("correlation").is_not_null())
        .join(stream_waits.rename({"correlation": "wait", "next": "correlation"}), on=["stream", "correlation"], how="inner")
    )
    unresolved = pairs.filter(pl.col("record_correlation").is_null()).select("op")
    reached = _through_relays(pairs.filter(pl.col("record_correlation").is_not_null()), stream_waits, issued)
    return reached.select("op", "producer", "producer_end"), unresolved


def _neighbouring(items: pl.DataFrame, issued: pl.DataFrame, stream: str, order: str) -> pl.DataFrame:
    """`items` with the correlation of the operation issued before (`previous`) and after (`next`) them on their stream."""
    places = issued.select(pl.col("stream").alias(stream), pl.col("correlation").alias("place"))
    known = items.sort(order)
    for name, strategy in (("previous", "backward"), ("next", "forward")):
        known = known.join_asof(
            places.with_columns(pl.col("place").alias(name)),
            left_on=order,
            right_on="place",
            by=stream,
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


def infer_producers(work: pl.DataFrame, consumers: pl.DataFrame) -> pl.DataFrame:
    """A likely producer from times alone, for traces without dependencies.

    The operation that is no compute, ends last within 10 µs before the consumer starts, and was issued before it. `work` additionally has
    issued and role; `consumers` has op, start, issued, sorted by start. Result in the consumers' order: op, producer, producer_end.
    """
    candidates = (
        work.filter((pl.col("role") != "compute") & pl.col("issued").is_not_null())
        .select(pl.col("op").alias("producer"), pl.col("end").alias("producer_end"), pl.col("issued").alias("producer_issued"))
        .sort("producer_end")
    )
    return (
        consumers.select("op", "start", "issued")
        .join_asof(candidates, left_on="start", right_on="producer_end", strategy="backward", tolerance=INFERENCE_REACH_NS, coalesce=False)
        .with_columns(
            pl.when(pl.col("producer_issued") < pl.col("issued")).then(pl.col(name)).otherwise(None).alias(name)
            for name in ("producer", "producer_end")
        )
        .select("op", "producer", "producer_end")
    )
