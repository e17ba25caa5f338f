"""Kernels that belong to the router by where they stand on their stream.

Forward, a gate product and the generic kernels after it, where a selection of experts is among them. Backward, the first two
products after the backward of a fused selection: the gate's, for its input and for its weight. Where the selection is not fused,
its backward is generic kernels; it is found between the way back of the tokens' gradient and a gate product, and a gate product
by having the same kernel as gates that are known, with the result in single precision that gates have.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.buckets.neighbours.line import Line, Sign, after, before, decisions, is_sign, nothing
from diagnose.model.vocabulary import ROUTER

MAX_ROUTER_RUN = 120  # kernels; an unfused router has 15 to 70
GATE_PRODUCTS = 2  # in backward: for the input and for the weight
MIN_GATES = 2  # products with one kernel that are known to be gates


def router_runs(line: Line) -> pl.DataFrame:
    """A gate product and the generic kernels after it, where a selection of experts is among them."""
    if not line.facts["selects"].any():
        return nothing()
    known = line.known(line.rows, "generic", "gate", "likely", "selects", "routes", "part")
    runs = known.with_columns((pl.col("first") | ~pl.col("generic")).cum_sum().alias("run"))
    choosing = runs.filter("selects").group_by("run").agg(pl.col("routes").any().alias("certain"))
    members = runs.join(choosing, on="run", how="inner", maintain_order="left")
    # A product that only its single-precision result makes look like a gate needs top-k after it; any other undecided one a
    # kernel that only routers have.
    headed = (
        pl.col("gate").first().over("run")
        & (pl.len().over("run") <= MAX_ROUTER_RUN)
        & (pl.col("certain") | pl.col("likely").first().over("run"))
    )
    return decisions(line, members.filter(headed & pl.col("part")), ROUTER, "between_gate_and_permutation", sign=Sign.ROUTER)


def gate_gradients(line: Line, routed: pl.DataFrame) -> pl.DataFrame:
    """A gate's products in backward. `routed`: what `router_runs` said."""
    return pl.concat([_after_selection(line), _like_gates(line, routed)])


def _after_selection(line: Line) -> pl.DataFrame:
    """The first products after the backward of a fused selection, generic kernels aside."""
    if not line.facts["routes_back"].any():
        return nothing()
    marked = line.rows.filter(pl.col("sign") != int(Sign.NONE)).select("at", "lane", "case", "sign")
    marked = line.known(marked, "routes_back")
    product, lane = is_sign("sign", Sign.PRODUCT), pl.col("lane")
    follows = pl.lit(value=False)
    for far in range(1, GATE_PRODUCTS + 1):
        between = pl.all_horizontal(pl.lit(value=True), *(product.shift(near) for near in range(1, far)))
        follows |= between & pl.col("routes_back").shift(far) & (lane == lane.shift(far))
    gates = marked.filter(product & follows.fill_null(value=False))
    return decisions(line, gates, ROUTER, "products_after_the_selection_s_backward", sign=Sign.ROUTER)


def _like_gates(line: Line, routed: pl.DataFrame) -> pl.DataFrame:
    """Undecided products whose kernel, with a result in single precision, is that of gates already found."""
    if routed.is_empty() or not line.facts["likely"].any():
        return nothing()
    likely = line.those("likely")
    named = likely.with_columns(line.ops["name_id"].gather(likely["row"]).alias("name"))
    found = named.join(routed.select("at"), on="at", how="semi").group_by("name").len().filter(pl.col("len") >= MIN_GATES)
    rest = named.filter(is_sign("sign", Sign.PRODUCT)).join(found, on="name", how="semi", maintain_order="left")
    return decisions(line, rest, ROUTER, "kernel_of_the_known_gates", sign=Sign.ROUTER)


def selection_gradients(line: Line) -> pl.DataFrame:
    """Generic kernels between the way back of the tokens' gradient and a gate's products in backward."""
    if not (line.has(Sign.ROUTER) and line.has(Sign.CLOSE) and (line.facts["part"] & line.facts["generic"]).any()):
        return nothing()
    known = line.known(line.rows, "part", "generic", "any_product")
    gate = is_sign("sign", Sign.ROUTER) & pl.col("any_product")
    edge = pl.when(gate).then(pl.lit(int(Sign.ROUTER))).when(is_sign("sign", Sign.ROUTER)).then(pl.lit(int(Sign.OTHER)))
    state = edge.when(pl.col("sign") != int(Sign.NONE)).then("sign")
    around = known.with_columns(before(state, "lane").alias("begun"), after(state, "lane").alias("ending"))
    found = around.filter(
        pl.col("part") & pl.col("generic") & is_sign("sign", Sign.NONE) & is_sign("begun", Sign.CLOSE) & is_sign("ending", Sign.ROUTER)
    )
    return decisions(line, found, ROUTER, "between_return_and_gate", sign=Sign.ROUTER)
