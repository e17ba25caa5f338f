"""NCCL kernels of unknown process group, by their stream and by the work around them on the device.

A communicator has a stream of its own, so its exchanges, and its other collectives, go with a clear majority of votes. A kernel
of known kind votes for it. An unknown one votes by its place:

* an exchange is of experts where a kernel that brings tokens to them ran last before it and none that takes them back, nor
  anything that never runs between (attention, norm, router, loss), and no such work starts while it runs. At the end of a
  micro-batch's layers tokens are back already, so a pipeline transfer, which stands there, does not pass for one. Where the
  capture shows no kernel that brings tokens out, an exchange with the experts' work on either side counts. Where another
  backend carries the tokens, none does;
* an exchange next to attention serves context parallelism;
* an all-gather is of experts (token counts, or a dispatcher that gathers tokens) where their work stands on both sides and
  nothing starts while it runs: parameters are gathered beside the forward pass, or before it. A reduce-scatter has no vote of
  its own and goes with the all-gathers of its stream; an all-reduce is never an exchange of tokens;
* where most of the compute is launched inside forward or backward ranges, a gather or reduce-scatter launched outside all of
  them moves parameters or gradients.

A kernel that nothing runs beside, in a place where none of the experts' would be, votes against them. Tokens travel over one
communicator, so a stream with far fewer votes for experts than another has them by chance. Without a majority nothing is said.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.neighbours.line import BREAKS, EXPERT_SIDE, Line, Sign, decisions, is_sign, nothing
from diagnose.model.vocabulary import COLLECTIVE, DISPATCH

MIN_VOTES = 2  # collectives of one stream that agree
MAJORITY = 0.7  # of the votes cast
TURNOUT = 0.1  # votes cast, of the stream's collectives
FEWEST = 0.5  # votes for experts, of those on the device's stream that has most: tokens travel over one communicator

_SIDES = (Sign.ATTENTION, Sign.NORM, Sign.OPTIMIZER, Sign.OTHER, *EXPERT_SIDE)
_AGAINST = "not expert"


def transfers(line: Line) -> pl.DataFrame:
    """What the streams and places of unknown NCCL kernels say of them."""
    if not line.facts["unknown"].any():
        return nothing()
    moving = line.known(line.placed(line.those("moving")), "unknown", "exchange", "gathers", "kind", "unphased_gather")
    moving = moving.with_columns(line.ends(moving).alias("end"))
    telling = line.known(line.those("telling"), "phased")["phased"]
    voted = _beside(moving, line).with_columns(
        _vote(phased=int(telling.sum()) * 2 > telling.len(), marked=line.has(Sign.OPEN), carried=bool(line.facts["carries"].any())).alias(
            "vote"
        )
    )
    keys = ["lane", "exchange"]
    votes = (
        voted.with_columns(pl.len().over(keys).alias("all"))
        .filter(pl.col("vote").is_not_null())
        .group_by(*keys, "vote")
        .agg(pl.len().alias("votes"), pl.col("all").first(), pl.col("place").first())
        .with_columns(
            pl.col("votes").sum().over(keys).alias("cast"),
            pl.col("votes").filter(pl.col("vote") == _AGAINST).sum().over(keys).alias("against"),
            pl.col("votes").max().over("place", "exchange", "vote").alias("most"),
        )
        .with_columns((pl.col("cast") - pl.when(pl.col("vote") == "expert").then(0).otherwise("against")).alias("cast"))
    )
    shares = votes.filter(
        pl.col("vote") != _AGAINST,
        pl.col("votes") >= MIN_VOTES,
        pl.col("votes") >= MAJORITY * pl.col("cast"),
        (pl.col("vote") != "expert") | (pl.col("votes") >= FEWEST * pl.col("most")),
        pl.col("cast") >= TURNOUT * pl.col("all"),
    )
    able = pl.col("exchange") | pl.col("gathers") | pl.col("unphased_gather") | (pl.col("vote") != "expert")
    clear = moving.filter("unknown").join(shares.select(*keys, "vote"), on=keys, how="inner", maintain_order="left").filter(able)
    expert = pl.col("vote") == "expert"
    bucket = pl.when(expert).then(pl.lit(DISPATCH)).otherwise(pl.lit(COLLECTIVE))
    sign = pl.when(expert).then(pl.lit(int(Sign.EXCHANGE))).otherwise(pl.lit(int(Sign.NONE)))
    return decisions(line, clear, bucket, "collective_by_stream_and_neighbours", sign=sign, kind=pl.col("vote"))


def _beside(moving: pl.DataFrame, line: Line) -> pl.DataFrame:
    """`moving` with the signs on either side of its start (before, after), and two columns more.

    `alone`: nothing that tells starts while it runs. `last`: of what brings and takes tokens, and what never runs between, the one
    that ran last.
    """
    rows = line.placed(line.signed(_SIDES))
    rows = line.known(rows, "transports")
    marks = rows.filter(~pl.col("transports")).select("place", "start", "sign")
    states = rows.filter(is_sign("sign", Sign.OPEN, Sign.CLOSE, *BREAKS)).select("place", "start", "sign")

    def joined(left: pl.DataFrame, right: pl.DataFrame, on: str, *, backward: bool) -> pl.DataFrame:
        strategy = "backward" if backward else "forward"
        found = left.sort(on).join_asof(
            right.sort("start"),
            left_on=on,
            right_on="start",
            by="place",
            strategy=strategy,  # type: ignore[arg-type]
            coalesce=False,
            check_sortedness=False,
        )
        return found.drop("start_right") if "start_right" in found.columns else found

    found = joined(moving, marks.rename({"sign": "before"}), "start", backward=True)
    found = joined(found, marks.with_columns(pl.col("start").alias("soonest")).rename({"sign": "after"}), "start", backward=False)
    found = joined(found, states.rename({"sign": "last"}), "start", backward=True)
    return found.with_columns((pl.col("soonest") >= pl.col("end")).fill_null(value=True).alias("alone"))


def _vote(*, phased: bool, marked: bool, carried: bool) -> pl.Expr:
    """Which kind each collective speaks for; null where it has nothing to say.

    `phased`: most of the compute is launched inside phases. `marked`: the capture has kernels that bring tokens out. `carried`:
    kernels of another library carry the tokens.
    """
    sides = [is_sign(side, *EXPERT_SIDE) for side in ("before", "after")]
    context = is_sign("before", Sign.ATTENTION) | is_sign("after", Sign.ATTENTION)
    in_window = is_sign("last", Sign.OPEN)
    of_experts = in_window & pl.col("alone") if marked else sides[0] | sides[1]
    elsewhere = ~in_window & pl.col("alone") if marked else pl.lit(value=True)
    known = pl.when(pl.col("kind") != "other").then("kind")
    return (
        pl.when(~pl.col("unknown"))
        .then(known)
        .when(pl.col("exchange") & of_experts & pl.lit(not carried))
        .then(pl.lit("expert"))
        .when(pl.col("gathers") & pl.col("alone") & sides[0] & sides[1])
        .then(pl.lit("expert"))
        .when(pl.col("exchange") & context)
        .then(pl.lit("context"))
        .when(pl.lit(phased) & pl.col("unphased_gather"))
        .then(pl.lit("data"))
        .when((pl.col("exchange") & elsewhere) | (pl.col("gathers") & (~pl.col("alone") | ~(sides[0] | sides[1]))))
        .then(pl.lit(_AGAINST))
    )
