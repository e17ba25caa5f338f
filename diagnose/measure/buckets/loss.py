"""What a loss that is not fused is made of, found by its place: between the head's product and the products of its backward."""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.line import Line, Sign, decisions, is_sign, nothing
from diagnose.model.vocabulary import LOSS

_PRODUCTS = (Sign.PRODUCT, Sign.LINEAR, Sign.DENSE)


def beside_the_loss(line: Line) -> pl.DataFrame:
    """Generic kernels between two products of a stream between which a loss is known and nothing of another part of the model runs.

    Logits are cast, made contiguous, scaled and masked there, and so are their gradients: nothing else lies between the head's product and
    its backward. A forward pass alone has no second product, so that its kernels stay what they are.
    """
    loses = (line.facts["bucket"] == LOSS).rename("loses")
    if not loses.any() or not (line.facts["part"] & line.facts["generic"]).any():
        return nothing()
    known = line.known(line.rows, "part", "generic", "copies").with_columns(loses.gather(line.rows["case"]))
    quiet = pl.col("loses") | is_sign("sign", Sign.NONE)
    product = is_sign("sign", *_PRODUCTS).alias("product")
    cut = known.with_columns(product, (pl.col("first") | ~quiet).cum_sum().alias("run"))
    runs = cut.group_by("run", maintain_order=True).agg(pl.col("lane", "product").first(), pl.col("loses").any())
    within = runs.filter("product", "loses", pl.col("product").shift(-1).over("lane").fill_null(value=False))
    mine = pl.col("part") & pl.col("generic") & ~pl.col("copies") & is_sign("sign", Sign.NONE) & (pl.col("choice") == 0)
    return decisions(line, cut.filter(mine & pl.col("run").is_in(within["run"].implode())), LOSS, "beside_the_loss", sign=Sign.OTHER)
