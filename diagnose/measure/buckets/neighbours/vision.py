"""Two parts of a step that stand apart by order: the optimizer's tail, and a vision tower before the decoder.

*Optimizer*: copies right after its kernels (main parameters to model parameters), and generic kernels between two of them.

*Vision tower*: by name a vision tower's kernels are those of any transformer. It is told apart only where the decoder's layers are
of another make: LayerNorm and GELU by themselves, biased products, convolutions and interpolation in a capture whose experts'
layers have another norm. The stretch between two kernels of the decoder that holds such kernels of several kinds, LayerNorm or
GELU among them, is the tower's from the first to the last of them, with a linear layer's two products on either side (the
projector's and the patch embedding's gradients). Where any range says which kernels are the tower's, this rule is silent.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.neighbours.line import Line, Sign, after, before, decisions, is_sign, nothing
from diagnose.model.vocabulary import OPTIMIZER, VISION_ENCODER

MIN_KINDS = 2  # of kernels that speak for a tower, in one stretch
MIN_KERNELS = 3  # that speak for a tower, in one stretch: a layer has two norms and an activation
EDGE_PRODUCTS = 2  # a linear layer's, in backward

_MADE = ("layer_norm", "gelu", "patches", "biased")
_DECODER = (Sign.EXPERT, Sign.ROUTER, Sign.OPEN, Sign.CLOSE, Sign.PACKING, Sign.OPTIMIZER, Sign.OTHER)


def optimizer_tail(line: Line) -> pl.DataFrame:
    """Copies right after the optimizer's kernels, and generic kernels between two of them."""
    if not line.has(Sign.OPTIMIZER) or not line.facts["casts"].any():
        return nothing()
    known = line.known(line.rows, "casts", "part", "generic")
    plain = pl.when(~pl.col("casts")).then("sign")
    telling = pl.when(pl.col("sign") != int(Sign.NONE)).then("sign")
    placed = known.with_columns(
        before(plain, "lane").alias("previous"), before(telling, "lane").alias("begun"), after(telling, "lane").alias("ending")
    )
    within = pl.col("part") & pl.col("generic") & is_sign("begun", Sign.OPTIMIZER) & is_sign("ending", Sign.OPTIMIZER)
    found = placed.filter(is_sign("sign", Sign.NONE) & ((pl.col("casts") & is_sign("previous", Sign.OPTIMIZER)) | within))
    return decisions(line, found, OPTIMIZER, "beside_the_optimizer", sign=Sign.OPTIMIZER)


def vision_tower(line: Line) -> pl.DataFrame:
    """What stands between the decoder's kernels and is of another make."""
    facts = line.facts
    experts = line.has(Sign.EXPERT, Sign.ROUTER)
    if not (experts and (facts["layer_norm"] | facts["gelu"]).any() and facts["other_norm"].any()):
        return nothing()
    if (facts["bucket"] == VISION_ENCODER).any():
        return nothing()
    rows = line.known(line.rows, *_MADE, "other_norm", "by_name", "copies")
    decoder = is_sign("sign", *_DECODER) | pl.col("other_norm")
    decoder |= is_sign("sign", Sign.ACTIVATION) & ~pl.col("gelu")
    cut = rows.with_columns((decoder | pl.col("first")).cum_sum().alias("run"), decoder.alias("decoder"))
    speaks = pl.any_horizontal(*_MADE)
    spoken = (
        cut.filter(speaks & ~pl.col("decoder"))
        .group_by("run")
        .agg(
            pl.len().alias("n"),
            pl.sum_horizontal(pl.col(kind).any().cast(pl.UInt8) for kind in _MADE).alias("kinds"),
            (pl.col("layer_norm") | pl.col("gelu")).any().alias("sure"),
            pl.col("at").min().alias("from"),
            pl.col("at").max().alias("to"),
        )
    )
    sure = spoken.filter("sure", pl.col("kinds") >= MIN_KINDS, pl.col("n") >= MIN_KERNELS).select("run", "from", "to")
    near = cut.join(sure, on="run", how="inner", maintain_order="left").filter(~pl.col("decoder") & pl.col("by_name") & ~pl.col("copies"))
    product = is_sign("sign", Sign.PRODUCT)
    early, late = product & (pl.col("at") < pl.col("from")), product & (pl.col("at") > pl.col("to"))
    numbered = near.with_columns(early.cum_sum(reverse=True).over("run").alias("early"), late.cum_sum().over("run").alias("late"))
    inside = pl.col("at").is_between("from", "to")
    beside = (early & (pl.col("early") <= EDGE_PRODUCTS)) | (late & (pl.col("late") <= EDGE_PRODUCTS))
    return decisions(line, numbered.filter(inside | beside), VISION_ENCODER, "unlike_the_decoder", sign=Sign.OTHER)
