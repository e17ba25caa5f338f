"""Attention that is computed in steps, found by their order on a stream: a product, a softmax, a product."""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.line import Line, Sign, decisions, is_sign, nothing
from diagnose.model.vocabulary import ATTENTION

MOST_BESIDE_SOFTMAX = 16  # kernels between the two products: scale, mask, casts, dropout


def attention_in_steps(line: Line) -> pl.DataFrame:
    """A softmax between two products of its stream, with these and what lies between; in backward two products on either side."""
    if not line.facts["weighs"].any():
        return nothing()
    known = line.known(line.rows, "weighs", "pointwise", "copies", "goes_back").filter(~pl.col("copies"))
    open_ = pl.col("choice") == 0
    product = is_sign("sign", Sign.PRODUCT) & open_
    edge = ~(pl.col("pointwise") & open_) | pl.col("first")
    cut = known.with_columns(product.alias("product"), edge.cum_sum().alias("run"))
    runs = cut.group_by("run", maintain_order=True).agg(
        pl.col("lane", "product").first(), pl.col("goes_back").any(), (pl.col("weighs") & open_).any().alias("weighs"), pl.len().alias("n")
    )
    single = pl.col("product") & (pl.col("n") == 1)
    follows, next_one = (pl.col("product").shift(-at).over("lane").fill_null(value=False) for at in (1, 2))
    middle = runs.with_columns(
        (pl.col("product") & pl.col("weighs") & follows & (pl.col("n") <= MOST_BESIDE_SOFTMAX)).alias("here"),
        (pl.col("goes_back") & single.shift(1).over("lane").fill_null(value=False)).alias("before"),
        (pl.col("goes_back") & single.shift(-1).over("lane").fill_null(value=False) & next_one).alias("behind"),
    ).filter("here")
    whole = middle["run"]
    heads = pl.concat([whole + 1, middle.filter("before")["run"] - 1, middle.filter("behind")["run"] + 2])
    head = pl.col("run") != pl.col("run").shift(1).fill_null(0)
    found = cut.filter(pl.col("run").is_in(whole.implode()) | (head & pl.col("run").is_in(heads.implode())))
    return decisions(line, found, ATTENTION, "softmax_between_products", sign=Sign.ATTENTION)
