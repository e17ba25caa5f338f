"""What the operations around an undecided one tell about it.

The weakest evidence, used only where name and context left a default. Each rule says what it can of the operations in their order on a
stream or on the device; the next one builds on it: the router's runs and its products in backward, the experts' products and the kernels
that rearrange tokens around them, NCCL kernels of unknown process group, the optimizer's tail and a vision tower, tails of matrix products.
All of it is vectorised. Where the pattern isn't clear the default stays. The thresholds are this project's own choice.

**Router**: forward, a gate product and the generic kernels after it, where a selection of experts is among them. Backward, the first two
products after the backward of a fused selection: the gate's, for its input and for its weight. Where the selection is not fused, its
backward is generic kernels; it is found between the way back of the tokens' gradient and a gate product, and a gate product by having the
same kernel as gates that are known, with the result in single precision that gates have.

**Experts**: three kinds of evidence for a product, each enough by itself:

* *between*: on its stream it stands after a kernel that brings tokens to the experts and before one that takes them back, with nothing
  between that never runs there (attention, norm, router, loss, optimizer);
* *spread*: its stream holds nothing but products, and so do others with the same kernels: a library that runs one product per local expert
  over several streams. Where user buffers split dense products the same way, this is not enough;
* *majority*: its stream holds nothing but products, and where those are decided or can be placed on the device (just after tokens arrived,
  or next to an activation between the way out and the way back) they are the experts'.

Where nothing rearranges tokens for all experts at once, a program may loop over them: rows are selected, multiplied, activated, multiplied,
and added up where they came from, for one expert after another with nothing between that never runs there. Such turns are the experts' in
the forward pass behind a selection (top-k), and in backward where a forward pass has them.

A product that an operator calls a plain linear layer is an expert's only where several activations stand between the way out and the way
back, each for one expert, and nothing there, nor on another stream, is known to be the experts' already (where ranges tell forward
alone, backward's are found so).

Unfused permutation is generic kernels. Where all experts are on the device, what moves tokens stands right around them, be they known or
a loop: rows taken, multiplied, activated and added up again, several times. Else a gather in front of an exchange that experts follow
brings tokens out; a scatter or gather behind one that experts precede takes them back; sorts that lead to the first, and copies between
exchange and experts, are packing too. The exchange may be unknown: experts stand behind it, and attention (context parallelism gathers as
well) on neither side. Where a library such as DeepEP brings each token once, they are put in the experts' order after it: between two of
its exchanges with nothing between that never runs there, a gather in front of products brings tokens out, and one that adds up behind them
takes them back.

**Collectives** of NCCL, of unknown process group: see `collectives`.

**Optimizer**: copies right after its kernels (main parameters to model parameters), and generic kernels between two of them. **Loss**: see
`beside_the_loss`. **Vision tower**: see `tower`.
"""

from __future__ import annotations

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.measure.buckets.collectives import transfers
from diagnose.measure.buckets.line import (
    BREAKS,
    EDGE,
    EXPERT_SIDE,
    LOOP,
    Line,
    Sign,
    after,
    before,
    chosen,
    decisions,
    facts_of,
    is_sign,
    line_of,
    nothing,
)
from diagnose.measure.buckets.tower import outside_ranges, tower_backward, vision_tower
from diagnose.model.vocabulary import ATTENTION, DISPATCH, EXPERT_GEMM, LOSS, OPTIMIZER, ROUTER, CommKind

MAX_ROUTER_RUN = 120  # kernels; an unfused router has 15 to 70
GATE_PRODUCTS = 2  # in backward: for the input and for the weight
MIN_GATES = 2  # products with one kernel that are known to be gates


def router_runs(line: Line) -> pl.DataFrame:
    """A gate product and the generic kernels after it, where a selection of experts is among them."""
    if not line.facts["selects"].any():
        return nothing()
    known = line.known(line.rows, "generic", "gate", "likely", "selects", "routes", "part", "operation")
    known = known.with_columns(after(pl.when(pl.col("sign") != int(Sign.NONE)).then("sign"), "lane").alias("next"))
    runs = known.with_columns((pl.col("first") | ~pl.col("generic")).cum_sum().alias("run"))
    choosing = runs.filter("selects").group_by("run").agg(pl.col("routes").any().alias("certain"))
    members = runs.join(choosing, on="run", how="inner", maintain_order="left")
    # A product that only its single-precision result makes look like a gate needs top-k after it; any other undecided one a
    # kernel that only routers have, or a softmax besides and then the way to the experts.
    scored = (pl.col("operation") == "softmax").any().over("run") & is_sign("next", Sign.EXPERT, Sign.OPEN, Sign.PACKING).last().over("run")
    headed = (
        pl.col("gate").first().over("run")
        & (pl.len().over("run") <= MAX_ROUTER_RUN)
        & (pl.col("certain") | pl.col("likely").first().over("run") | scored)
    )
    mine = headed & pl.col("part") & (pl.col("choice") == 0)  # what sorts tokens for their experts is said already
    return decisions(line, members.filter(mine), ROUTER, "between_gate_and_permutation", sign=Sign.ROUTER)


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


ALONE = 0.95  # of a stream's kernels that are products: the stream holds nothing else
ALIKE = 0.5  # of a stream's products whose kernels run on a second such stream
PRODUCTS_MAJORITY = 0.7  # of the products that tell whose they are
PRODUCTS_TURNOUT = 0.1  # products that tell, of the stream's
MIN_PRODUCTS = 2  # products that tell
SEVERAL = 2  # activations between the way out and the way back: more than one expert by itself

_TELLING = (
    Sign.PRODUCT, Sign.LINEAR, Sign.DENSE, Sign.EXPERT, Sign.ROUTER, Sign.OPEN, Sign.CLOSE, Sign.PACKING, Sign.ATTENTION, Sign.NORM,
    Sign.ACTIVATION, Sign.OPTIMIZER, Sign.OTHER,
)  # fmt: skip
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
    placed = _arrivals(line, rows, "lane").with_columns(
        before(state, "lane").alias("begun"), after(state, "lane").alias("ending"), state.is_not_null().cum_sum().alias("window")
    )
    inside = placed.filter(is_sign("begun", Sign.OPEN) & is_sign("ending", Sign.CLOSE) & ~is_sign("sign", *marks) & pl.col("arrived"))
    lanes = _with_experts(line, inside)
    alone = (is_sign("sign", Sign.ACTIVATION).sum() >= SEVERAL).over("window") & ~is_sign("sign", Sign.EXPERT).any().over("window")
    known = is_sign("sign", Sign.PRODUCT) | (is_sign("sign", Sign.LINEAR) & alone & ~pl.col("elsewhere"))
    inside = inside.join(lanes, on="lane", how="left", maintain_order="left").filter(known & (pl.col("own") | ~pl.col("any")))
    return decisions(line, inside, EXPERT_GEMM, "between_permutation_and_return", sign=Sign.EXPERT)


def loops(line: Line) -> pl.DataFrame:
    """Products of experts that run one after the other, each on rows that are selected for it, and what selects and adds up these rows."""
    if not (line.facts["selects"].any() and line.has(Sign.PRODUCT, Sign.LINEAR)):
        return nothing()
    multiplies = is_sign("sign", Sign.PRODUCT, Sign.LINEAR, Sign.EXPERT)
    computes = multiplies | is_sign("sign", Sign.ACTIVATION)
    stops = pl.col("first") | pl.col("selects") | ~(computes | is_sign("sign", Sign.NONE))
    rows = line.known(line.rows, "selects", "moves", "operation", "adds").with_columns(
        stops.cum_sum().alias("stretch"),
        pl.col("selects") | is_sign("sign", Sign.ROUTER),
        multiplies.alias("multiplies"),
        computes.alias("computes"),
        pl.col("moves") & pl.col("operation").is_in(["gather", "sort"]) & ~stops,
    )
    gathers = pl.col("moves") & (pl.col("operation") == "gather")
    rows = rows.filter(pl.col("computes") | pl.col("moves") | stops).with_columns(
        (gathers & ~pl.col("adds")).alias("out"),
        (gathers & pl.col("adds")).alias("back"),
        pl.struct("stretch", "computes").rle_id().alias("run"),
    )
    runs = _turns(rows)
    placed = rows.join(runs.select("run", "turn", "before", "behind"), on="run", how="inner", maintain_order="left")
    from_out = pl.col("out").cum_sum().over("run") == pl.col("out").sum().over("run")
    until_back = pl.col("back").cum_sum().over("run") <= pl.col("back").cast(pl.UInt32)
    near = pl.col("moves") & (pl.col("before") | pl.col("behind"))
    near &= (pl.col("behind") | from_out) & (pl.col("before") | until_back)
    products = placed.filter(pl.col("turn") & is_sign("sign", Sign.PRODUCT, Sign.LINEAR))
    made = (
        decisions(line, products, EXPERT_GEMM, LOOP, sign=Sign.EXPERT),
        decisions(line, placed.filter(near), DISPATCH, LOOP, sign=Sign.NONE),
    )
    return pl.concat(made)


def _turns(rows: pl.DataFrame) -> pl.DataFrame:
    """The runs of `rows` in loops over experts: run, whether it is an expert's turn, whether the next (before) or the last (behind) is.

    A turn: products with an activation between, rows brought out before it, and rows added up behind it.
    """
    kinds = pl.col("multiplies")
    runs = rows.group_by("run", maintain_order=True).agg(
        pl.col("stretch", "lane").first(),
        pl.col("selects", "out", "back").any(),
        (kinds.first() & kinds.last() & pl.col("computes").first() & ~kinds.all()).alias("expert"),
    )

    def near(column: str, far: int) -> pl.Expr:
        # a stretch's runs stand together; a window of its own for each took a hundred times as long
        alike = pl.col("stretch") == pl.col("stretch").shift(far)
        return (pl.col(column).shift(far) & alike).fill_null(value=False)

    runs = runs.with_columns((pl.col("expert") & near("out", 1) & near("back", -1)).alias("turn"))
    runs = runs.with_columns(near("turn", -1).alias("before"), near("turn", 1).alias("behind"))
    looped = runs.filter((pl.col("turn").sum() >= SEVERAL).over("stretch"))
    ahead = looped.filter(pl.col("selects").any().over("stretch")).select("lane").unique()
    return looped.join(ahead, on="lane", how="semi", maintain_order="left")


def _arrivals(line: Line, rows: pl.DataFrame, group: str) -> pl.DataFrame:
    """`rows` with the column arrived: false while the first exchange after the last way out of their `group` is under way.

    Tokens that are still travelling are multiplied with nothing: what starts meanwhile (a shared expert beside the dispatch) is dense.
    """
    opened = pl.when(is_sign("sign", Sign.OPEN)).then("start").forward_fill().over(group)
    marked = rows.with_columns(opened.alias("opened"), line.lanes["place"].gather(rows["lane"]).alias("place"))
    moving = line.placed(line.signed((Sign.EXCHANGE,)))
    moving = moving.select("place", pl.col("start").alias("sent"), line.ops["end"].gather(moving["row"]).alias("there"))
    asked = marked.select("place", "opened").unique().drop_nulls().sort("opened")
    first = asked.join_asof(moving.sort("sent"), left_on="opened", right_on="sent", by="place", strategy="forward", check_sortedness=False)
    found = marked.join(first.select("place", "opened", "sent", "there"), on=["place", "opened"], how="left", maintain_order="left")
    travelling = (pl.col("sent") <= pl.col("start")) & (pl.col("start") < pl.col("there"))
    return found.with_columns((~travelling).fill_null(value=True).alias("arrived")).drop("opened", "sent", "there")


def _with_experts(line: Line, rows: pl.DataFrame) -> pl.DataFrame:
    """For the lanes of `rows`, whether products known to be the experts' run on it (own), on another one (elsewhere), on either (any)."""
    own = line.signed((Sign.EXPERT,)).group_by("lane").len("experts")
    counted = line.lanes.join(own, on="lane", how="left").with_columns((pl.col("experts") > 0).fill_null(value=False).alias("own"))
    lanes = counted.with_columns(
        pl.col("own").any().over("place").alias("any"), (pl.col("own").sum().over("place") > pl.col("own")).alias("elsewhere")
    )
    return lanes.join(rows, on="lane", how="semi").select("lane", "own", "any", "elsewhere")


def side_products(line: Line) -> pl.DataFrame:
    """Undecided products on streams that hold nothing else, where those are the experts' streams."""
    lanes = _product_lanes(line)
    if lanes.is_empty():
        return nothing()
    known = line.signed((Sign.EXPERT, Sign.LINEAR, Sign.DENSE)).join(lanes, on="lane", how="semi", maintain_order="left")
    known = known.select("lane", is_sign("sign", Sign.EXPERT).alias("yes"))
    dense = known.group_by("lane").agg(pl.col("yes").mean()).filter(pl.col("yes") < PRODUCTS_MAJORITY)
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
        pl.col("for") >= PRODUCTS_MAJORITY * pl.col("cast"),
        pl.col("cast") >= PRODUCTS_TURNOUT * pl.col("all"),
        pl.col("cast") >= MIN_PRODUCTS,
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
    placed = _arrivals(line, both, "place").with_columns(before(state, "place").alias("begun"), after(state, "place").alias("ending"))
    own = placed.join(lanes, on="lane", how="semi", maintain_order="left").filter((pl.col("begun") != EDGE) & (pl.col("ending") != EDGE))
    return own.select("lane", (is_sign("begun", *_ARRIVED) & is_sign("ending", *_LEAVING) & pl.col("arrived")).alias("yes"))


def _movable(line: Line) -> pl.DataFrame:
    """What may move tokens, and what tells its place, in order on each device.

    Products and activations that are nobody's yet tell nothing on a stream of their own (a shared expert beside the exchange).
    """
    movable = line.facts["moves"].gather(line.rows["case"])
    apart = is_sign("sign", *_PLAIN) & ~pl.col("lane").is_in(line.rows["lane"].filter(movable).unique().implode())
    rows = line.placed(line.rows.filter((movable | (line.rows["sign"] != int(Sign.NONE))) & ~apart))
    rows = line.known(rows, "moves", "operation", "adds", "carries", "rows")
    return rows.with_columns(pl.when(pl.col("moves")).then(pl.lit(int(Sign.NONE))).otherwise("sign").cast(pl.UInt8).alias("sign"))


def around_experts(line: Line) -> pl.DataFrame:
    """Generic kernels that bring tokens into the experts' order and back where nothing carries them: all experts are on this device."""
    if not line.facts["moves"].any() or line.has(*_EXCHANGES) or not line.has(Sign.EXPERT):
        return nothing()
    found = _beside_experts(_around(_movable(line)))
    return decisions(line, found.filter("moves", _QUIET), DISPATCH, "around_the_experts", sign=pl.col("sign"))


def _beside_experts(rows: pl.DataFrame) -> pl.DataFrame:
    """What stands between known experts and anything that is not theirs, with its sign."""
    own = (Sign.EXPERT, Sign.ACTIVATION)
    out = is_sign("next", Sign.EXPERT) & ~is_sign("previous", *own)
    back = is_sign("previous", Sign.EXPERT) & ~is_sign("next", *own)
    gathers, adds = pl.col("operation") == "gather", pl.col("adds")
    sign = pl.when(out & gathers & ~adds).then(pl.lit(int(Sign.OPEN))).when(back & adds).then(pl.lit(int(Sign.CLOSE)))
    return rows.filter(out | back).with_columns(sign.otherwise(int(Sign.PACKING)).alias("sign"))


def packing(line: Line) -> pl.DataFrame:
    """Generic kernels that bring tokens into the experts' order and back."""
    if not line.facts["moves"].any() or not line.has(*_EXCHANGES):
        return nothing()
    rows = _movable(line)
    edge = pl.when((pl.col("carries") & is_sign("sign", *_EXCHANGES)) | is_sign("sign", *BREAKS)).then("sign")
    rows = rows.with_columns(before(edge, "place").alias("begun"), after(edge, "place").alias("ending"))
    rows = rows.with_columns((is_sign("begun", Sign.OPEN, Sign.EXCHANGE) & is_sign("ending", Sign.CLOSE, Sign.EXCHANGE)).alias("away"))
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
_PLAIN = (Sign.PRODUCT, Sign.LINEAR, Sign.ACTIVATION)
_EXPERTS = (Sign.EXPERT, Sign.PACKING, Sign.PRODUCT, Sign.LINEAR)


def _gathers(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with signs for gathers: those that select rows bring tokens out, those that add them up take tokens back."""
    out = is_sign("next", *_EXCHANGES) & is_sign("told_after", *_EXPERTS)
    out |= is_sign("previous", Sign.OPEN, Sign.PACKING) & is_sign("next", Sign.EXPERT)
    out |= pl.col("away") & is_sign("next", Sign.EXPERT, Sign.PRODUCT, Sign.LINEAR)
    back = is_sign("previous", *_EXCHANGES) & is_sign("told_before", *_EXPERTS, Sign.ACTIVATION)
    back |= is_sign("previous", Sign.EXPERT) & is_sign("next", *_EXCHANGES)
    back |= pl.col("away") & is_sign("previous", Sign.EXPERT, Sign.PRODUCT, Sign.LINEAR, Sign.ACTIVATION)
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


_ASKED = ("part", "tail", "unknown", "casts", "linear")


def neighbours(
    ops: pl.DataFrame,
    case: pl.Series,
    verdicts: pl.DataFrame,
    taxonomy: Taxonomy,
    absent: frozenset[CommKind] = frozenset(),
    launched: pl.Series | None = None,
) -> pl.DataFrame:
    """What the neighbours of undecided operations say: row (of `ops`), choice (see `line.chosen`). `case` indexes `verdicts`.

    `absent`: kinds of exchange that a job file rules out; `launched`: whether each operation's launch was recorded (default: all were).
    """
    facts = facts_of(verdicts, taxonomy)
    if not facts.select(pl.any_horizontal(*_ASKED).any()).item():
        return pl.DataFrame(schema={"row": pl.UInt32, "choice": pl.UInt16})
    known = pl.lit(value=True) if launched is None else launched
    line = line_of(ops.with_columns(known.alias("launched")), case, facts, taxonomy.buckets)
    line = line.decided(loops(line))
    line = line.decided(around_experts(line))
    routed = router_runs(line)
    line = line.decided(routed)
    if line.has(*EXPERT_SIDE):
        line = _of_experts(line, routed)
    line = line.decided(attention_in_steps(line))
    line = line.decided(transfers(line, absent))
    for rule in (optimizer_tail, beside_the_loss, outside_ranges, vision_tower, tower_backward, _tails):
        line = line.decided(rule(line))
    return line.rows.filter(pl.col("choice") > 0).select("row", "choice")


def _of_experts(line: Line, routed: pl.DataFrame) -> Line:
    """The line that knows what belongs to router, experts and the way between them."""
    line = line.decided(pl.concat([_after_selection(line), _like_gates(line, routed)]))  # a gate's products in backward
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


# --- what is computed in steps, and a loss that is not fused -----------------------------------------------------------

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


_LOSS_PRODUCTS = (Sign.PRODUCT, Sign.LINEAR, Sign.DENSE)


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
    product = is_sign("sign", *_LOSS_PRODUCTS).alias("product")
    cut = known.with_columns(product, (pl.col("first") | ~quiet).cum_sum().alias("run"))
    runs = cut.group_by("run", maintain_order=True).agg(pl.col("lane", "product").first(), pl.col("loses").any())
    within = runs.filter("product", "loses", pl.col("product").shift(-1).over("lane").fill_null(value=False))
    mine = pl.col("part") & pl.col("generic") & ~pl.col("copies") & is_sign("sign", Sign.NONE) & (pl.col("choice") == 0)
    return decisions(line, cut.filter(mine & pl.col("run").is_in(within["run"].implode())), LOSS, "beside_the_loss", sign=Sign.OTHER)
