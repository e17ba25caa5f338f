"""How fast matrix products ran, by the shapes that PyTorch's profilers record: operations, and the time of the kernels that did them."""

from __future__ import annotations

import polars as pl

from diagnose.model.intervals import lasting
from diagnose.model.trace import Trace


def product_ranges(trace: Trace) -> pl.DataFrame:
    """Operators that are matrix products of known shapes, in order of start: product (a number), rank, thread, start, end, flop."""
    known = trace.ranges.filter(pl.col("flop").is_not_null() & pl.col("thread").is_not_null())
    return known.select("rank", "thread", "start", "end", "flop").sort("start").with_row_index("product")


def products(inside: pl.DataFrame, ranges: pl.DataFrame, rank: int) -> pl.DataFrame:
    """By bucket, of all steps: flop of the products whose kernels ran in them, product_ns of what those operators launched.

    A product counts for the bucket of its longest kernel. `inside`: the operations in the steps; `ranges`: `product_ranges` of the trace.
    """
    own = ranges.filter(pl.col("rank") == rank).drop("rank")
    launched = inside.filter((pl.col("kind") == "kernel") & pl.col("thread").is_not_null() & pl.col("call_start").is_not_null())
    kernels = launched.select("thread", "call_start", "bucket", lasting.alias("ns")).sort("call_start")
    placed = kernels.join_asof(
        own, left_on="call_start", right_on="start", by="thread", strategy="backward", check_sortedness=False
    ).filter(pl.col("call_start") <= pl.col("end"))
    each = placed.group_by("product").agg(
        pl.col("bucket").sort_by("ns", descending=True).first(), pl.col("flop").first(), pl.col("ns").sum().alias("product_ns")
    )
    return each.group_by("bucket").agg(pl.col("flop", "product_ns").sum())
