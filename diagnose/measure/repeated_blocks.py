"""Products that run again before a backward attention, told by the kernels around them where neither a range nor their names tell.

A layer's forward pass stands between two forward attentions. Backward computes other things between its products, so that a part of a
forward pass with products and something between them, in the same order before a backward attention, is that part once more. How often a
kernel follows itself says nothing: each expert may have its own product, or all of them one, and weights are cast in a step's first
micro-batch alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from typing import NamedTuple

import polars as pl

from diagnose.model.vocabulary import EXPERT_GEMM

_FORWARD, _BACKWARD = 0, 1  # the directions of attention
_EXPERTS = -1  # the name of all experts' products
_USUAL = 0.1  # of the forward passes: an order that fewer have belongs to no kind of layer; this project's choice
FAMILY = ["bucket", "operation"]  # kernels that are counted together
PRODUCT = pl.col("operation").is_in(["gemm", "grouped_gemm"]).fill_null(value=False)

Names = tuple[int, ...]


class Blocks(NamedTuple):
    """What the order of kernels tells of products.

    `units`: rows of the operations with `ahead`: the products of the part that runs again, as often as it runs, and as many of backward.
    `experts_told`: whether forward passes have an order in common by which experts' products would be found again.
    """

    units: pl.DataFrame
    experts_told: bool


class _Order(NamedTuple):
    """In which order kernels lie between two attentions, whose directions are `before` and `after` (None at an end of a step)."""

    before: int | None
    after: int | None
    names: Names


def repeated_blocks(work: pl.DataFrame, attention: pl.DataFrame) -> Blocks:
    """`work`: the operations in the steps, as `recompute` takes them; `attention`: its kernels with `ahead`, one per call."""
    products = work.filter((pl.col("role") == "compute") & PRODUCT & pl.col("phase").is_null())
    none = products.clear().with_columns(ahead=pl.lit(value=None, dtype=pl.Boolean))
    if products.is_empty() or attention["ahead"].n_unique() < 2:
        return Blocks(none, experts_told=False)
    kernels = _between(work, products["op"], attention)
    orders = _orders(kernels)
    times = Counter(orders.values())
    ahead = {order.names: n for order, n in times.items() if order.before == order.after == _FORWARD}
    usual = [names for names, n in ahead.items() if n >= _USUAL * sum(ahead.values())]
    names = frozenset(kernels.filter("product")["name"])
    backward = {order.names: n for order, n in times.items() if order.before == _BACKWARD and order.after is not None}
    block = _again(usual, backward, names)
    units = _placed(kernels, orders, block).select(none.columns) if block else none
    return Blocks(units, experts_told=any(_part(one, {_EXPERTS}) for one in usual))


def _between(work: pl.DataFrame, products: pl.Series, attention: pl.DataFrame) -> pl.DataFrame:
    """What computes on the streams of attention and of experts, in order, but for attention: the columns of `work`, product, name, the gap
    between two attentions, their directions before and after, and the place in the gap, by which kernels that follow themselves are one.
    """
    expert = (pl.col("bucket") == EXPERT_GEMM).fill_null(value=False)
    streams = pl.concat([attention["stream"], work.filter(expert & pl.col("op").is_in(products.implode()))["stream"]]).unique()
    own = work.filter((pl.col("role") == "compute") & pl.col("stream").is_in(streams.implode())).sort("index", "start", "op")
    way = pl.when("ahead").then(_FORWARD).otherwise(_BACKWARD).cast(pl.Int8)
    line = own.join(attention.select("op", way.alias("way")), on="op", how="left", maintain_order="left").with_columns(
        pl.col("op").is_in(products.implode()).alias("product"),
        pl.when(expert).then(_EXPERTS).otherwise(pl.col("name_id").cast(pl.Int64)).alias("name"),
        (pl.col("way").is_not_null() | (pl.col("index") != pl.col("index").shift(1)).fill_null(value=True)).cum_sum().alias("gap"),
        pl.col("way").forward_fill().over("index").alias("before"),
        pl.col("way").backward_fill().over("index").alias("after"),
    )
    between = line.filter(pl.col("way").is_null())
    changed = (pl.col("name") != pl.col("name").shift(1)) | (pl.col("gap") != pl.col("gap").shift(1))
    runs = between.with_columns(changed.fill_null(value=True).cum_sum().cast(pl.Int64).alias("place"))
    return runs.with_columns(pl.col("place") - pl.col("place").min().over("gap"))


def _orders(kernels: pl.DataFrame) -> dict[int, _Order]:
    """The order of each gap."""
    once = kernels.unique(["gap", "place"], keep="first", maintain_order=True)
    gaps = once.group_by("gap", maintain_order=True).agg(pl.col("before", "after").first(), pl.col("name"))
    return {gap: _Order(before, after, tuple(names)) for gap, before, after, names in gaps.iter_rows()}


def _part(names: Sequence[int], products: AbstractSet[int]) -> Names:
    """The names from the first product to the last; empty where no other kernel lies between them."""
    places = [place for place, name in enumerate(names) if name in products]
    part = tuple(names[places[0] : places[-1] + 1]) if places else ()
    return part if any(name not in products for name in part) else ()


def _again(usual: Sequence[Names], backward: dict[Names, int], products: AbstractSet[int]) -> Names:
    """The part of a usual forward pass that lies in most of backward's gaps (how often each: `backward`); empty without one."""
    found: Counter[Names] = Counter()
    for names, times in backward.items():
        for ahead in usual:
            match = SequenceMatcher(None, ahead, names, autojunk=False).find_longest_match()
            found[_part(ahead[match.a : match.a + match.size], products)] += times
    del found[()]
    return max(found, key=lambda part: (found[part], len(part)), default=())


def _places(names: Names, block: Names) -> Iterator[int]:
    """Where the block begins in a gap, without overlap."""
    end = 0
    for place in range(len(names) - len(block) + 1):
        if place >= end and names[place : place + len(block)] == block:
            end = place + len(block)
            yield place


def _placed(kernels: pl.DataFrame, orders: dict[int, _Order], block: Names) -> pl.DataFrame:
    """The products that are known, with `ahead`: of each family as many as a forward pass's block has, and as many of backward behind it.

    A block may end in backward's first products, where nothing computes between them: what it has beyond its own are those.
    """
    found = [(gap, place) for gap, order in orders.items() for place in _places(order.names, block)]
    begins = pl.DataFrame(found, schema={"gap": kernels.schema["gap"], "begin": pl.Int64}, orient="row")
    last = begins.group_by("gap").agg(pl.col("begin").max().alias("last"))
    products = kernels.filter("product").sort("place", maintain_order=True)
    held = products.join_asof(begins.sort("begin"), left_on="place", right_on="begin", by="gap", check_sortedness=False)
    inside = (pl.col("place") < pl.col("begin") + len(block)).fill_null(value=False)
    turn = pl.int_range(pl.len()).over("gap", "begin", *FAMILY)
    told = held.join(last, on="gap", how="left", maintain_order="left").with_columns(inside.alias("inside"), turn.alias("turn"))
    forward = told.filter(pl.col("inside") & (pl.col("before") == _FORWARD) & (pl.col("after") == _FORWARD))
    sizes = forward.group_by("gap", "begin", *FAMILY).len("size").group_by(FAMILY).agg(pl.col("size").median().cast(pl.Int64))
    sized = told.join(sizes, on=FAMILY, how="inner", maintain_order="left")
    ahead = pl.col("inside") & (pl.col("turn") < pl.col("size"))
    of_backward = (pl.col("before") == _BACKWARD) | (pl.col("after") == _BACKWARD)
    beyond = pl.when(pl.col("begin").is_null()).then(pl.col("turn")).otherwise(pl.col("turn") - pl.col("size"))
    behind = of_backward & pl.col("begin").eq_missing(pl.col("last")) & beyond.is_between(0, pl.col("size") - 1)
    return sized.filter(ahead | behind.fill_null(value=False)).with_columns(ahead.alias("ahead"))
