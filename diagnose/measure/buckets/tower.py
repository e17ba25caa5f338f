"""Which kernels are a vision tower's, where ranges do not say it of all of them.

By name a vision tower's kernels are those of any transformer. Three things tell it apart.

*Its make*, where the decoder's layers are of another: LayerNorm and GELU by themselves, biased products, convolutions and interpolation
in a capture whose experts' layers have another norm, or none with a kernel of its own. The stretch between two kernels of the decoder
that holds such kernels of several kinds, LayerNorm or GELU among them, is the tower's from the first to the last of them, with a linear
layer's two products on either side (the projector's and the patch embedding's gradients). Where any range says which kernels are the
tower's, this rule is silent.

*Its place in forward*, where ranges enclose the decoder's layers and not the tower's (Megatron-Core's, with a tower of another library in
front): layers of attention whose products stand in no range, two or more, and behind them layers whose products do. The stretch begins
behind the last copy, backward kernel or kernel of the decoder before them, and ends before the decoder's first. A tower has the same
layers each time, or some times over where images go one by one.

*Its place in backward*, once its forward is known, be it by ranges (autograd's thread opens none, so that a capture of Megatron's ranges
says nothing of backward) or by its make. A backward pass runs the layers the other way round: those of the decoder, then those of the
tower. A layer is told by its attention, which every capture names, forward and backward: with V of them in the tower's forward and D in
the decoder's after it, the last V of each D + V in backward are the tower's. With D alone the tower is frozen, and with any other number
nothing is said. The stretch begins behind the products that mirror the decoder's first ones, or behind the last kernel that only a decoder
has, and ends with those that mirror the tower's first ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import polars as pl

from diagnose.measure.buckets.line import Line, Sign, chosen, decisions, is_sign, nothing
from diagnose.model.vocabulary import LOSS, VISION_ENCODER

MIN_KINDS = 2  # of kernels that speak for a tower, in one stretch
MIN_KERNELS = 3  # that speak for a tower, in one stretch: a layer has two norms and an activation
EDGE_PRODUCTS = 2  # a linear layer's, in backward

_MADE = ("layer_norm", "gelu", "patches", "biased")
_DECODER = (Sign.EXPERT, Sign.ROUTER, Sign.OPEN, Sign.CLOSE, Sign.PACKING, Sign.OPTIMIZER, Sign.OTHER)


def vision_tower(line: Line) -> pl.DataFrame:
    """What stands between the decoder's kernels and is of another make."""
    facts = line.facts
    experts = line.has(Sign.EXPERT, Sign.ROUTER)
    if not (experts and (facts["layer_norm"] | facts["gelu"]).any() and (facts["other_norm"].any() or _apart(line))):
        return nothing()
    if _towers(line).any():
        return nothing()
    rows = line.known(line.rows, *_MADE, "other_norm", "by_place", "copies", "goes_forward", "goes_back")
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
    near = cut.join(sure, on="run", how="inner", maintain_order="left").filter(~pl.col("decoder") & pl.col("by_place") & ~pl.col("copies"))
    product = is_sign("sign", Sign.PRODUCT)
    early, late = product & (pl.col("at") < pl.col("from")), product & (pl.col("at") > pl.col("to"))
    numbered = near.with_columns(early.cum_sum(reverse=True).over("run").alias("early"), late.cum_sum().over("run").alias("late"))
    inside = pl.col("at").is_between("from", "to")
    edge = EDGE_PRODUCTS if facts["other_norm"].any() else 0  # else nothing stands between the tower and the decoder's first products
    beside = (early & (pl.col("early") <= edge)) | (late & (pl.col("late") <= edge))
    back = pl.when("goes_back").then(1).when("goes_forward").then(0)  # by names: of a product the one before it tells
    way = pl.coalesce(back.forward_fill().over("run"), back.backward_fill().over("run"))
    found = numbered.with_columns(way.alias("back")).filter(inside | beside)
    rules = {0: "unlike_the_decoder", 1: "unlike_the_decoder_in_backward"}
    made = [
        decisions(line, found.filter(pl.col("back") == number), VISION_ENCODER, rule, sign=Sign.OTHER) for number, rule in rules.items()
    ]
    return pl.concat(made)


def _towers(line: Line) -> pl.Series:
    """Whether each row is known to be a vision tower's."""
    known = (line.facts["bucket"] == VISION_ENCODER).gather(line.rows["case"]).to_frame("known")
    decided = (chosen(line.buckets)["bucket"] == VISION_ENCODER).gather(line.rows["choice"])
    return known.select(pl.coalesce(decided, "known").alias("tower"))["tower"]


def _apart(line: Line) -> bool:
    """Whether experts' layers hold no LayerNorm (one stands between most else), where the decoder's norm has no kernel of its own."""
    known = line.known(line.rows, "layer_norm")
    layers = known.with_columns((is_sign("sign", Sign.EXPERT, Sign.ROUTER) | pl.col("first")).cum_sum().alias("run"))
    experts = layers.filter(is_sign("sign", Sign.EXPERT, Sign.ROUTER))
    runs = layers.group_by("run").agg(pl.col("layer_norm").any(), is_sign("sign", Sign.ATTENTION).any().alias("attends"))
    between = runs.join(experts.select("run"), on="run", how="semi").filter("attends")
    return between.height > 0 and int(between["layer_norm"].sum()) * 2 <= between.height


MIN_LAYERS = 2  # of attention outside all ranges, in front of those inside


def outside_ranges(line: Line) -> pl.DataFrame:
    """What attends in front of the decoder, outside the ranges that enclose the decoder's layers."""
    facts = line.facts
    if (facts["bucket"] == VISION_ENCODER).any() or not (facts["any_product"] & facts["ranged"]).any():
        return nothing()
    known = line.known(line.rows, "attends_ahead", "attends_back", "any_product", "ranged", "copies", "by_place", "goes_back")
    # nothing tells the ranges of what was launched before the capture began
    unknown = ~line.ops["launched"].gather(known["row"])
    rows = known.with_columns(pl.lit(value=False).alias("tower"), pl.col("ranged") | unknown)
    layers = _layers(rows)
    losses = (facts["bucket"] == LOSS).gather(rows["case"]).cast(pl.UInt32).cum_sum().gather(layers["from"])
    again = rows["goes_back"].gather(layers["from"])  # a decoder's whole layers that a checkpoint runs without ranges, and once more with
    outside = pl.col("ahead") & ~pl.col("ranged")
    turns = layers.with_columns(again.alias("again"), outside.alias("outside"), losses.alias("losses")).with_columns(
        pl.any_horizontal((pl.col(one) != pl.col(one).shift(1).over("lane")).fill_null(value=True) for one in ("outside", "losses"))
        .cum_sum()
        .alias("run")
    )
    runs = turns.group_by("run", maintain_order=True).agg(
        pl.col("lane", "outside", "from", "again", "losses", "ahead").first(), pl.col("to").last(), pl.len().alias("n")
    )
    followed = (pl.col("ahead") & ~pl.col("outside") & ~pl.col("again")).shift(-1).over("lane").fill_null(value=False)
    followed &= (pl.col("losses") == pl.col("losses").shift(-1).over("lane")).fill_null(value=False)  # else a whole pass: an evaluation's
    towers = runs.filter(pl.col("outside") & followed & (pl.col("n") >= MIN_LAYERS))
    depths = towers["n"].slice(1)  # a capture may begin within the first
    if not depths.is_empty() and (depths % depths.min() != 0).any():  # one tower runs its layers once, or image by image
        return nothing()  # the decoder's own layers, of which some lost their ranges
    decoder = is_sign("sign", *_DECODER) | (pl.col("any_product") & pl.col("ranged"))
    first = decoder | (is_sign("sign", Sign.NORM) & decoder.shift(-1, fill_value=False))  # with the norm in front of it
    ended = pl.col("first").shift(-1, fill_value=False)  # the lane before
    foreign = decoder | pl.col("copies") | pl.col("goes_back") | ended
    before, behind = (rows.filter(one)["at"].to_list() for one in (foreign, first))
    spans = [(_last(before, begin) + 1, _next(behind, end, rows.height) - 1) for begin, end in towers.select("from", "to").iter_rows()]
    return _within(line, rows, spans, "outside_the_decoder_s_ranges")


def _within(line: Line, rows: pl.DataFrame, spans: list[tuple[int, int]], rule: str) -> pl.DataFrame:
    """The decision for what lies in one of the spans (from, to: places) and no context claims."""
    if not spans:
        return nothing()
    ordered = pl.DataFrame(spans, schema={"from": pl.UInt32, "to": pl.UInt32}, orient="row").sort("from")
    inside = rows.join_asof(ordered, left_on="at", right_on="from", strategy="backward", check_sortedness=False)
    found = inside.filter((pl.col("at") <= pl.col("to")).fill_null(value=False) & pl.col("by_place") & ~is_sign("sign", *_DECODER))
    return decisions(line, found, VISION_ENCODER, rule, sign=Sign.OTHER)


TRAINED = 1.5  # products in backward per product in forward, above which weights have a gradient too: two for one


def tower_backward(line: Line) -> pl.DataFrame:
    """The backward pass of a tower whose forward pass is known."""
    asked = ("attends_ahead", "attends_back", "any_product", "ranged", "patches", "other_norm", "copies", "by_place")
    towers = _towers(line)
    if not (towers.any() and line.facts["attends_back"].any()):
        return nothing()
    rows = line.known(line.rows, *asked).with_columns(towers)
    if not rows.select((pl.col("tower") & pl.col("attends_ahead")).any() & pl.col("attends_back").any()).item():
        return nothing()
    layers = _layers(rows)
    if layers.select((pl.col("tower") & ~pl.col("ahead")).any()).item():
        return nothing()
    behind = _behind(layers)
    if behind.is_empty():
        return nothing()
    return _within(line, rows, _spans(rows, layers, behind), "behind_the_decoder_s_backward")


def _layers(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per layer's attention, in order: lane, from, to (places), ahead (forward or backward), tower, own, others, ranged.

    Own and others: products of the tower, and others, since the layer before it on its lane. Ranged: whether a range tells the product
    right before it.

    Kernels of one direction with no product between them are one layer's: a backward one has several, and so has one of many images.
    """
    product = pl.col("any_product")
    kept = rows.with_columns((product & pl.col("tower")).cum_sum().alias("own"), (product & ~pl.col("tower")).cum_sum().alias("others"))
    kept = kept.filter(pl.col("attends_ahead") | pl.col("attends_back") | product)
    kind = pl.when("attends_ahead").then(1).when("attends_back").then(2).otherwise(0)
    telling = pl.when(product).then("ranged").forward_fill().over("lane").fill_null(value=False)
    kept = kept.with_columns(kind.alias("kind"), telling.alias("ranged"))
    new = ((pl.col("kind") != pl.col("kind").shift(1)) | (pl.col("lane") != pl.col("lane").shift(1))).fill_null(value=True)
    return (
        kept.with_columns(new.cum_sum().alias("layer"))
        .filter(pl.col("kind") > 0)
        .group_by("layer", maintain_order=True)
        .agg(
            pl.col("lane", "own", "others", "ranged").first(),
            pl.col("at").min().alias("from"),
            pl.col("at").max().alias("to"),
            (pl.col("kind").first() == 1).alias("ahead"),
            pl.col("tower").any(),
        )
        .with_columns((pl.col(one) - pl.col(one).shift(1).over("lane").fill_null(0)) for one in ("own", "others"))
    )


def _behind(layers: pl.DataFrame) -> pl.DataFrame:
    """The tower's layers in backward: from, to, stretch (a number for each pass), since (where the decoder's last layer before it ends)."""
    tower = pl.col("ahead") & pl.col("tower")
    begins = tower & ~tower.shift(1, fill_value=False).over("lane")
    placed = layers.with_columns(begins.cum_sum().over("lane").alias("pass"), pl.col("to").shift(1).alias("since")).filter(
        pl.col("pass") > 0
    )
    early = (~pl.col("ahead")).cum_sum().over("lane", "pass") == 0  # before the pass's first layer in backward
    counted = placed.group_by("lane", "pass").agg(
        tower.sum().alias("height"), (pl.col("ahead") & ~pl.col("tower") & early).sum().alias("depth"), (~pl.col("ahead")).sum().alias("n")
    )
    heights, n = counted["height"].unique(), counted.filter(pl.col("n") > 0)["n"]
    least = counted.filter(pl.col("depth") > 0)["depth"].min()
    if len(heights) != 1 or not isinstance(least, int) or n.is_empty():
        return layers.clear()
    height = int(heights[0])
    # A decoder that is recomputed runs one layer forward before the first one goes back, and the others between.
    again = placed.select((pl.col("ahead") & ~pl.col("tower") & ~early).any()).item()
    depth = next((one for one in (least, *[least - 1] * again) if one > 0 and _whole(n, one + height)), None)
    each = float(n.sum()) / counted.height
    if depth is None or (_whole(n, depth) and abs(each - depth) < abs(each - depth - height)):
        return layers.clear()
    whole = counted.filter(pl.col("n") % (depth + height) == 0)
    back = placed.join(whole, on=["lane", "pass"], how="semi", maintain_order="left").filter(~pl.col("ahead"))
    turn = pl.int_range(pl.len()).over("lane", "pass") % (depth + height)
    return (
        back.with_columns(turn.alias("turn"))
        .filter(pl.col("turn") >= depth)
        .with_columns((pl.col("turn") == depth).cum_sum().alias("stretch"))
    )


def _whole(counts: pl.Series, layers: int) -> bool:
    """Whether most passes, by their `counts` of layers, hold so many, or a multiple of it."""
    return int((counts % layers == 0).sum()) * 2 > len(counts)


def _spans(rows: pl.DataFrame, layers: pl.DataFrame, behind: pl.DataFrame) -> list[tuple[int, int]]:
    """From where to where each backward pass of the tower goes: from, to (places)."""
    foreign = is_sign("sign", *_DECODER) & ~pl.col("tower")
    if not rows.select((pl.col("tower") & pl.col("other_norm")).any()).item():
        foreign |= pl.col("other_norm")
    marks, edges = (rows.filter(one)["at"].to_list() for one in (foreign, foreign | pl.col("tower") | pl.col("copies") | pl.col("first")))
    products, norms = (rows.filter(one)["at"].to_list() for one in (pl.col("any_product") | pl.col("patches"), is_sign("sign", Sign.NORM)))
    own, others = _mirrored(layers, behind)
    spans = []
    for since, begin, last in (
        behind.group_by("stretch").agg(pl.col("since", "from").first(), pl.col("to").last()).drop("stretch").iter_rows()
    ):
        skipped = _between(products, since, begin)[:others]
        start = max([since, _last(marks, begin), *skipped]) + 1
        limit = _next(edges, last, rows.height)
        end = max([last, *_between(products, last, limit)[:own]])
        norm = sum(1 for n, at in enumerate(_between(norms, end, limit), 1) if at == end + n)  # the one in front of its first layer
        spans.append((start, end + norm))
    return spans


def _between(places: Sequence[int], low: int, high: int) -> Sequence[int]:
    """Those places that lie between two."""
    return places[bisect_right(places, low) : bisect_left(places, high)]


def _last(places: Sequence[int], before: int) -> int:
    """The last place before one; -1 where none is."""
    number = bisect_left(places, before)
    return places[number - 1] if number else -1


def _next(places: Sequence[int], after: int, end: int) -> int:
    """The first place after one; `end` where none is."""
    number = bisect_right(places, after)
    return places[number] if number < len(places) else end


def _mirrored(layers: pl.DataFrame, behind: pl.DataFrame) -> tuple[int, int]:
    """How many products in backward mirror those before the first attention in forward: of the tower, of the decoder behind it."""
    told = layers.with_columns(pl.col("tower", "ahead").shift(1).over("lane").name.prefix("after_"))
    decoder = told.join(behind, on="from", how="anti").filter(~pl.col("tower") & ~pl.col("after_tower"))
    alike = decoder.filter(pl.col("ahead") == pl.col("after_ahead"))
    per_layer = dict(alike.group_by("ahead").agg(pl.col("others").median()).iter_rows())
    ways = 2 if len(per_layer) < 2 or per_layer[False] >= TRAINED * per_layer[True] else 1
    ahead = told.filter("ahead")
    first = ahead.filter(pl.col("tower") & ~pl.col("after_tower").fill_null(value=False))["own"].median()
    second = ahead.filter(~pl.col("tower") & pl.col("after_tower"))["others"].median()
    return ways * int(first or 0), ways * int(second or 0)  # type: ignore[arg-type]
