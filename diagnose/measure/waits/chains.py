"""Who really held compute up: waiting time followed along the chain of producers.

A gap that ends with an expert GEMM is often held by a short sorting kernel that itself waited for a long all-to-all. While a producer ran,
the time is its own; before it started, the time belongs to what that producer waited for, and so on back to the start of the gap. Time in
which no producer of the chain ran is not blocking: nothing resolved explains it.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.waits.dependencies import Dependencies, latest_producers

MAX_CHAIN = 64  # producers that one gap is followed through


def follow_chains(pieces: pl.DataFrame, work: pl.DataFrame, known: Dependencies) -> pl.DataFrame:
    """Split waiting pieces among the producers of their chains.

    `pieces`: start, end, cause, producer (never null), inferred, otherwise (the cause of time that no producer explains), and any other
    columns; `work`: op, start, stream, correlation, issued of all operations. The result has the pieces' columns without `otherwise`;
    pieces without producer carry that cause.
    """
    columns = [name for name in pieces.columns if name != "otherwise"]
    unexplained = (
        pl.col("otherwise").alias("cause"),
        pl.lit(None, dtype=work.schema["op"]).alias("producer"),
        pl.lit(value=False).alias("inferred"),
    )
    details = work.select(pl.col("start").alias("began"), "stream", "correlation", "issued")
    done = []
    waiting = pieces
    for _ in range(MAX_CHAIN):
        if waiting.is_empty():
            break
        held = waiting.hstack(details.select(pl.all().gather(waiting["producer"])))
        done.append(held.with_columns(pl.max_horizontal("start", "began").alias("start")).select(columns))
        earlier = held.filter(pl.col("start") < pl.col("began")).with_columns(pl.min_horizontal("end", "began").alias("end"))
        consumers = (
            earlier.select(pl.col("producer").alias("op"), pl.col("began").alias("start"), "stream", "correlation", "issued")
            .unique("op", keep="first", maintain_order=True)
            .sort("start")
        )
        before = latest_producers(known, consumers).select(
            pl.col("op").alias("producer"), pl.col("producer").alias("cause_op"), "producer_end", pl.col("inferred").alias("guessed")
        )
        linked = earlier.join(before, on="producer", how="left", maintain_order="left").with_columns(
            pl.col("producer_end").fill_null(pl.col("start")).clip(pl.col("start"), pl.col("end")).alias("handed_over")
        )
        done.append(linked.with_columns(pl.col("handed_over").alias("start"), *unexplained).select(columns))
        waiting = (
            linked.filter(pl.col("handed_over") > pl.col("start"))
            .with_columns(
                pl.col("handed_over").alias("end"),
                pl.col("cause_op").alias("producer"),
                (pl.col("inferred") | pl.col("guessed")).alias("inferred"),
            )
            .select(pieces.columns)
        )
    done.append(waiting.with_columns(*unexplained).select(columns))
    return pl.concat(done).filter(pl.col("end") > pl.col("start"))
