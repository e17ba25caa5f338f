"""Which of the experts' products run forward and which back, told by the kernels between them where their names do not tell (FP8).

A block is what computes from the first of an MoE layer's expert products to the last, its activation between them. Forward it stands
between two forward attentions. Backward computes other things between its products, so that the same kernels in the same order before a
backward attention are the block once more. How often a kernel follows itself says nothing: each expert may have its own product, or all of
them one, and weights are cast in a step's first micro-batch alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from statistics import median_low
from typing import NamedTuple

import polars as pl

_FORWARD, _BACKWARD, _PRODUCT = 0, 1, 2  # what a kernel is known as: attention of either direction, or an expert's product
_PRODUCTS = -1  # the name of products that follow each other
_USUAL = 0.5  # of the forward gaps with products: a block that holds in fewer is none; this project's choice


class Gap(NamedTuple):
    """What computes between two attentions, in order: names, and the operations of each; what follows itself is one.

    `before`, `after`: the attentions' signs; None at an end of the steps.
    """

    before: int | None
    after: int | None
    names: Sequence[int]
    ops: Sequence[Sequence[int]]


def block_units(work: pl.DataFrame, experts: pl.DataFrame, attention: pl.DataFrame) -> pl.DataFrame:
    """Those of `experts` (rows of `work`) that a block places, with `ahead`: every forward one, and of backward as many as a block has.

    `attention`: its kernels with `ahead`, one per call. Empty where forward passes have no block in common.
    """
    sign = pl.when("ahead").then(_FORWARD).otherwise(_BACKWARD)
    signs = pl.concat([attention.select("op", sign.alias("sign")), experts.select("op", pl.lit(_PRODUCT).alias("sign"))])
    streams = pl.concat([experts["stream"], attention["stream"]]).unique()
    own = work.filter((pl.col("role") == "compute") & pl.col("stream").is_in(streams.implode()))
    line = own.sort("index", "start", "op").join(signs, on="op", how="left", maintain_order="left")
    gaps = [gap for window in line.partition_by("index", maintain_order=True) for gap in gaps_of(window)]
    forward = [gap for gap in gaps if gap.before == gap.after == _FORWARD and _PRODUCTS in gap.names]
    block = _common_block(forward)
    size = median_low(len(_products(gap, 0, len(gap.names))) for gap in forward) if block else 0
    placed = [one for gap in gaps for one in _placed(gap, block, size)]
    return experts.join(pl.DataFrame(placed, schema={"op": experts.schema["op"], "ahead": pl.Boolean}, orient="row"), on="op")


def gaps_of(window: pl.DataFrame) -> Iterator[Gap]:
    """The gaps of one window between its attentions, the first and the last open. `window`: op, name_id, sign, in order."""
    ops, names, signs = (window[column].to_list() for column in ("op", "name_id", "sign"))
    turns = [place for place, sign in enumerate(signs) if sign in {_FORWARD, _BACKWARD}]
    for left, right in pairwise([-1, *turns, len(signs)]):
        kernels = [(_PRODUCTS if signs[place] == _PRODUCT else names[place], ops[place]) for place in range(left + 1, right)]
        runs = [(name, [op for _, op in run]) for name, run in groupby(kernels, key=itemgetter(0))]
        before, after = (signs[place] if 0 <= place < len(signs) else None for place in (left, right))
        yield Gap(before, after, [name for name, _ in runs], [ops for _, ops in runs])


def _common_block(forward: Sequence[Gap]) -> tuple[int, ...]:
    """The names from the first products to the last that most forward gaps hold; empty without, or where nothing else lies between them."""

    def block(names: Sequence[int]) -> tuple[int, ...]:
        places = [place for place, name in enumerate(names) if name == _PRODUCTS]
        return tuple(names[places[0] : places[-1] + 1])

    held = Counter(block(gap.names) for gap in forward)
    common, times = max(held.items(), key=lambda one: one[1], default=((), 0))
    return common if len(common) > 1 and times >= _USUAL * len(forward) else ()


def _products(gap: Gap, begin: int, end: int) -> list[int]:
    """The products' operations in these places of a gap."""
    return list(chain.from_iterable(gap.ops[place] for place in range(begin, end) if gap.names[place] == _PRODUCTS))


def _placed(gap: Gap, block: tuple[int, ...], size: int) -> list[tuple[int, bool]]:
    """The operations of a gap that are known, and whether each goes ahead: its blocks, and `size` products behind backward's last one.

    A block of `size` products may end in backward's first ones, where nothing computes between them.
    """
    ahead, last, end = list[int](), 0, 0
    for place in range(len(gap.names) - len(block) + 1 if block else 0):
        if place >= end and tuple(gap.names[place : place + len(block)]) == block:
            last, end = place, place + len(block)
            ahead.extend(_products(gap, last, end)[:size])
    behind = [op for op in _products(gap, last, len(gap.names)) if op not in ahead] if _BACKWARD in {gap.before, gap.after} else []
    return [*((op, True) for op in ahead), *((op, False) for op in behind[:size])]
