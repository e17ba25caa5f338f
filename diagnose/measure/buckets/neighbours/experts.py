"""Matrix products and rearranging kernels that belong to the experts by where they stand.

Three kinds of evidence for a product, each enough by itself:

* *between*: on its stream it stands after a kernel that brings tokens to the experts and before one that takes them back, with
  nothing between that never runs there (attention, norm, router, loss, optimizer);
* *spread*: its stream holds nothing but products, and so do others with the same kernels: a library that runs one product per
  local expert over several streams. Where user buffers split dense products the same way, this is not enough;
* *majority*: its stream holds nothing but products, and where those are decided or can be placed on the device (just after
  tokens arrived, or next to an activation between the way out and the way back) they are the experts'.

A product that an operator calls a plain linear layer is an expert's only where several activations stand between the way out
and the way back, each for one expert, and nothing there is known to be the experts' already.

Unfused permutation is generic kernels. A gather in front of an exchange that experts follow brings tokens out; a scatter or
gather behind one that experts precede takes them back; sorts that lead to the first, and copies between exchange and experts,
are packing too. The exchange may be unknown: experts stand behind it, and attention (context parallelism gathers as well) on
neither side.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.neighbours.line import BREAKS, EDGE, Line, Sign, after, before, decisions, is_sign, nothing
from diagnose.model.vocabulary import DISPATCH, EXPERT_GEMM

ALONE = 0.95  # of a stream's kernels that are products: the stream holds nothing else
ALIKE = 0.5  # of a stream's products whose kernels run on a second such stream
MAJORITY = 0.7  # of the products that tell whose they are
TURNOUT = 0.1  # products that tell, of the stream's
MIN_VOTES = 2  # products that tell
SEVERAL = 2  # activations between the way out and the way back: more than one expert by itself

_TELLING = (
    Sign.PRODUCT,
    Sign.LINEAR,
    Sign.DENSE,
    Sign.EXPERT,
    Sign.ROUTER,
    Sign.OPEN,
    Sign.CLOSE,
    Sign.PACKING,
    Sign.ATTENTION,
    Sign.NORM,
    Sign.ACTIVATION,
    Sign.OPTIMIZER,
    Sign.OTHER,
)
_FORKS = (Sign.OPEN, Sign.CLOSE, Sign.PACKING, Sign.ATTENTION, Sign.NORM)  # on a stream that others branch off from
_ARRIVED = (Sign.OPEN, Sign.PACKING, Sign.ACTIVATION)
_LEAVING = (Sign.CLOSE, Sign.PACKING, Sign.ACTIVATION)


def between_products(line: Line) -> pl.DataFrame:
    """Products between a kernel that brings tokens to the experts and one that takes them back, on one stream."""
    if not (line.has(Sign.OPEN) and line.has(Sign.CLOSE) and line.has(Sign.PRODUCT, Sign.LINEAR)):
        return nothing()
    marks = (Sign.OPEN, Sign.CLOSE, *BREAKS)
    rows = line.signed((*marks, Sign.PRODUCT, Sign.LINEAR, Sign.EXPERT, Sign.ACTIVATION))
    state = pl.when(is_sign("sign", *marks)).then("sign")
    placed = rows.with_columns(
        before(state, "lane").alias("begun"), after(state, "lane").alias("ending"), state.is_not_null().cum_sum().alias("window")
    )
    inside = placed.filter(is_sign("begun", Sign.OPEN) & is_sign("ending", Sign.CLOSE) & ~is_sign("sign", *marks))
    lanes = _with_experts(line, inside)
    alone = is_sign("sign", Sign.ACTIVATION).sum().over("window") >= SEVERAL
    known = is_sign("sign", Sign.PRODUCT) | (is_sign("sign", Sign.LINEAR) & alone & ~pl.col("any"))
    inside = inside.join(lanes, on="lane", how="left", maintain_order="left").filter(known & (pl.col("own") | ~pl.col("any")))
    return decisions(line, inside, EXPERT_GEMM, "between_permutation_and_return", sign=Sign.EXPERT)


def _with_experts(line: Line, rows: pl.DataFrame) -> pl.DataFrame:
    """For the lanes of `rows`, whether products known to be the experts' run on it (own), and anywhere on its device (any)."""
    own = line.signed((Sign.EXPERT,)).group_by("lane").len("experts")
    counted = line.lanes.join(own, on="lane", how="left").with_columns((pl.col("experts") > 0).fill_null(value=False).alias("own"))
    return (
        counted.with_columns(pl.col("own").any().over("place").alias("any")).join(rows, on="lane", how="semi").select("lane", "own", "any")
    )


def side_products(line: Line) -> pl.DataFrame:
    """Undecided products on streams that hold nothing else, where those are the experts' streams."""
    lanes = _product_lanes(line)
    if lanes.is_empty():
        return nothing()
    known = line.signed((Sign.EXPERT, Sign.LINEAR, Sign.DENSE)).join(lanes, on="lane", how="semi", maintain_order="left")
    known = known.select("lane", is_sign("sign", Sign.EXPERT).alias("yes"))
    dense = known.group_by("lane").agg(pl.col("yes").mean()).filter(pl.col("yes") < MAJORITY)
    rows = line.signed((Sign.PRODUCT,)).join(lanes.join(dense, on="lane", how="anti"), on="lane", how="semi", maintain_order="left")
    spread = _spread_lanes(line, rows, lanes)
    rest = rows.join(spread, on="lane", how="anti", maintain_order="left")
    theirs = spread if rest.is_empty() else pl.concat([spread, _majority_lanes(line, rest, known, lanes)])
    found = rows.join(theirs, on="lane", how="semi", maintain_order="left")
    return decisions(line, found, EXPERT_GEMM, "on_the_experts_streams", sign=Sign.EXPERT)


def _majority_lanes(line: Line, rows: pl.DataFrame, known: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """The lanes of the undecided products `rows` where those that are known or can be placed are the experts' by majority."""
    known = known.join(rows, on="lane", how="semi")
    votes = pl.concat([known, _placed_votes(line, rows, lanes)])
    cast = votes.group_by("lane").agg(pl.col("yes").sum().alias("for"), pl.len().alias("cast"))
    counts = pl.concat([rows.select("lane"), known.select("lane")]).group_by("lane").agg(pl.len().alias("all"))
    clear = counts.join(cast, on="lane", how="inner").filter(
        pl.col("for") >= MAJORITY * pl.col("cast"),
        pl.col("cast") >= TURNOUT * pl.col("all"),
        pl.col("cast") >= MIN_VOTES,
    )
    return clear.select("lane")


def _product_lanes(line: Line) -> pl.DataFrame:
    """Streams that hold nothing but matrix products (and copies), some of them undecided: lane, split (by user buffers, maybe)."""
    mixed = line.rows.group_by("lane", "case").agg(pl.len().alias("n")).sort("lane", "case")
    mixed = line.known(mixed, "multiplies", "copies", "sign", "userbuffers")
    split = (
        mixed.join(line.lanes, on="lane", how="left", maintain_order="left")
        .group_by("place")
        .agg(pl.col("userbuffers").any().alias("split"))
        .join(line.lanes, on="place", how="left")
        .select("lane", "split")
    )
    counted = (
        mixed.filter(~pl.col("copies"))
        .group_by("lane")
        .agg(
            pl.col("n").sum().alias("all"),
            pl.col("n").filter("multiplies").sum().alias("products"),
            pl.col("n").filter(is_sign("sign", Sign.PRODUCT)).sum().alias("open"),
        )
    )
    alone = counted.filter((pl.col("open") > 0) & (pl.col("products") >= ALONE * pl.col("all")))
    return alone.select("lane").join(split, on="lane", how="left").sort("lane")


def _spread_lanes(line: Line, rows: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Those of `lanes` whose products run on another of them as well; none where user buffers may have split them."""
    named = (
        rows.with_columns(line.ops["name_id"].gather(rows["row"]).alias("name"))
        .group_by("lane", "name")
        .agg(pl.len().alias("n"))
        .join(line.lanes, on="lane", how="left")
        .with_columns((pl.col("lane").n_unique().over("place", "name") > 1).alias("shared"))
    )
    shares = named.group_by("lane").agg(pl.col("n").filter("shared").sum().alias("alike"), pl.col("n").sum().alias("of"))
    alike = shares.filter(pl.col("alike") >= ALIKE * pl.col("of")).join(lanes.filter(~pl.col("split")), on="lane", how="semi")
    return alike.select("lane")


def _placed_votes(line: Line, rows: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """What the work on the main streams says of each product of `lanes`: lane, yes. Only products that it tells something about."""
    forks = line.signed(_FORKS).select("lane").unique()
    others = line.signed(_TELLING).join(forks, on="lane", how="semi", maintain_order="left")
    others = others.join(lanes, on="lane", how="anti", maintain_order="left")
    both = line.placed(pl.concat([others, rows]))
    state = pl.when(pl.col("lane").is_in(lanes["lane"].implode()).not_()).then("sign")
    placed = both.with_columns(before(state, "place").alias("begun"), after(state, "place").alias("ending"))
    own = placed.join(lanes, on="lane", how="semi", maintain_order="left").filter((pl.col("begun") != EDGE) & (pl.col("ending") != EDGE))
    return own.select("lane", (is_sign("begun", *_ARRIVED) & is_sign("ending", *_LEAVING)).alias("yes"))


def packing(line: Line) -> pl.DataFrame:
    """Generic kernels that bring tokens into the experts' order and back."""
    if not line.facts["moves"].any() or not line.has(Sign.EXCHANGE):
        return nothing()
    movable = line.facts["moves"].gather(line.rows["case"])
    rows = line.placed(line.rows.filter(movable | (line.rows["sign"] != int(Sign.NONE))))
    rows = line.known(rows, "moves", "operation", "adds")
    rows = rows.with_columns(pl.when(pl.col("moves")).then(pl.lit(int(Sign.NONE))).otherwise("sign").cast(pl.UInt8).alias("sign"))
    moved = _gathers(_around(rows))
    again = _around(moved)
    incoming = is_sign("previous", Sign.EXCHANGE) & is_sign("next", Sign.EXPERT)
    outgoing = is_sign("previous", Sign.EXPERT) & is_sign("next", Sign.EXCHANGE)
    copies = (pl.col("operation") == "layout") & (incoming | outgoing) & _QUIET
    sorts = (pl.col("operation") == "sort") & is_sign("next", Sign.OPEN) & ~is_sign("told_before", Sign.ATTENTION)
    decided = again.filter(pl.col("moves")).with_columns(
        pl.when(copies | sorts).then(pl.lit(int(Sign.PACKING))).otherwise("sign").cast(pl.UInt8).alias("sign")
    )
    return decisions(
        line, decided.filter(pl.col("sign") != int(Sign.NONE)), DISPATCH, "between_router_exchange_and_experts", sign=pl.col("sign")
    )


_QUIET = ~is_sign("told_before", Sign.ATTENTION) & ~is_sign("told_after", Sign.ATTENTION)
_EXCHANGES = (Sign.EXCHANGE, Sign.OPEN, Sign.CLOSE)
_EXPERTS = (Sign.EXPERT, Sign.PACKING, Sign.PRODUCT, Sign.LINEAR)


def _gathers(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with signs for gathers: those that select rows bring tokens out, those that add them up take tokens back."""
    out = is_sign("next", *_EXCHANGES) & is_sign("told_after", *_EXPERTS)
    out |= is_sign("previous", Sign.OPEN, Sign.PACKING) & is_sign("next", Sign.EXPERT)
    back = is_sign("previous", *_EXCHANGES) & is_sign("told_before", *_EXPERTS, Sign.ACTIVATION)
    back |= is_sign("previous", Sign.EXPERT) & is_sign("next", *_EXCHANGES)
    here = pl.col("moves") & (pl.col("operation") == "gather") & _QUIET
    sign = (
        pl.when(here & ~pl.col("adds") & out)
        .then(pl.lit(int(Sign.OPEN)))
        .when(here & pl.col("adds") & back)
        .then(pl.lit(int(Sign.CLOSE)))
        .otherwise("sign")
    )
    return rows.with_columns(sign.cast(pl.UInt8).alias("sign"))


def _around(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with what stands next to each on the device (previous, next), exchanges aside too (told_before, told_after)."""
    any_sign = pl.when(pl.col("sign") != int(Sign.NONE)).then("sign")
    telling = pl.when(is_sign("sign", *_TELLING)).then("sign")
    return rows.with_columns(
        before(any_sign, "place").alias("previous"),
        after(any_sign, "place").alias("next"),
        before(telling, "place").alias("told_before"),
        after(telling, "place").alias("told_after"),
    )
