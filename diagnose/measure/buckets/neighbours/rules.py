"""What the operations around an undecided one tell about it.

The weakest evidence, used only where name and context left a default. Each rule says what it can of the operations in their order
on a stream or on the device; the next one builds on it:

1. the router's runs, and its products in backward (`router_places`);
2. the experts' products and the kernels that rearrange tokens around them (`expert_places`);
3. NCCL kernels of unknown process group (`collective_places`);
4. the optimizer's tail and a vision tower (`tower_places`);
5. tails of matrix products, here.

All of it is vectorised. Where the pattern isn't clear the default stays. The thresholds are this project's own choice.
"""

from __future__ import annotations

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.measure.buckets.neighbours.collectives import transfers
from diagnose.measure.buckets.neighbours.experts import between_products, packing, side_products
from diagnose.measure.buckets.neighbours.line import EXPERT_SIDE, Line, Sign, chosen, decisions, facts_of, line_of, nothing
from diagnose.measure.buckets.neighbours.router import gate_gradients, router_runs, selection_gradients
from diagnose.measure.buckets.neighbours.vision import optimizer_tail, vision_tower

_ASKED = ("part", "tail", "unknown", "casts", "linear")


def neighbours(ops: pl.DataFrame, case: pl.Series, verdicts: pl.DataFrame, taxonomy: Taxonomy) -> pl.DataFrame:
    """What the neighbours of undecided operations say: columns row (of `ops`) and choice; one row each at most.

    `case` indexes `verdicts` for every operation. `line.chosen` tells what a choice stands for.
    """
    facts = facts_of(verdicts, taxonomy)
    if not facts.select(pl.any_horizontal(*_ASKED).any()).item():
        return pl.DataFrame(schema={"row": pl.UInt32, "choice": pl.UInt16})
    line = line_of(ops, case, facts, taxonomy.buckets)
    routed = router_runs(line)
    line = line.decided(routed)
    if line.has(*EXPERT_SIDE):
        line = _of_experts(line, routed)
    for rule in (transfers, optimizer_tail, vision_tower, _tails):
        line = line.decided(rule(line))
    return line.rows.filter(pl.col("choice") > 0).select("row", "choice")


def _of_experts(line: Line, routed: pl.DataFrame) -> Line:
    """The line that knows what belongs to router, experts and the way between them."""
    line = line.decided(gate_gradients(line, routed))
    for rule in (side_products, between_products):
        line = line.decided(rule(line))
    packed = packing(line)
    if packed.height:
        # What was packed shows where experts compute, and where experts compute shows what else was packed.
        line = line.decided(packed)
        for rule in (between_products, packing):
            line = line.decided(rule(line))
    return line.decided(selection_gradients(line))


def _tails(line: Line) -> pl.DataFrame:
    """Set-up and tail kernels take the bucket of the product before them on the stream."""
    if not line.facts["tail"].any():
        return nothing()
    known = line.known(line.rows, "tail", "any_product")
    around = line.known(known.filter(pl.col("tail") | pl.col("any_product") | pl.col("first")), "bucket")
    now = around.with_columns(chosen(line.buckets)["bucket"].gather(around["choice"]).alias("new"))
    before = pl.when("any_product").then(pl.coalesce("new", "bucket")).when("first").then(pl.lit("")).forward_fill()
    tails = now.with_columns(before.alias("before")).filter(
        pl.col("tail") & (pl.col("before") != "") & (pl.col("before") != pl.col("bucket"))
    )
    return decisions(line, tails, pl.col("before"), "tail_of_the_product_before", sign=Sign.NONE)
