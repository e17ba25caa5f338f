"""What the operations around an undecided one tell about it.

The weakest evidence, used only where name and context left a default. Everything runs along each stream in order of start,
vectorised. Where the pattern isn't clear the default stays.
"""

from __future__ import annotations

import polars as pl

from diagnose.taxonomy import Taxonomy

MAX_ROUTER_RUN = 120  # kernels; an unfused router has 15 to 70
MIN_VOTES = 2  # collectives of one stream that agree
MAJORITY = 0.7  # of the votes cast
TURNOUT = 0.1  # votes cast, of the stream's collectives

_GATE_FAMILY = "gemm_fp32_out"
_GATHER_FAMILY = "nccl_gather_scatter"
_GENERIC = ("elementwise", "layout", "reduce", "sort", "gather", "softmax", "random", "router", "copy", "tail")
_SCHEMA = {"row": pl.UInt32, "bucket": pl.String, "kind": pl.String, "rule": pl.String}


def neighbours(ops: pl.DataFrame, case: pl.Series, verdicts: pl.DataFrame, taxonomy: Taxonomy) -> pl.DataFrame:
    """What the neighbours of undecided operations say: columns row (of `ops`), bucket, kind, rule; one row each at most.

    `case` indexes `verdicts` for every operation.
    """
    facts = _facts(verdicts, taxonomy)
    if not facts.select(pl.any_horizontal("product", "part", "tail", "unknown").any()).item():
        return pl.DataFrame(schema=_SCHEMA)
    line = _ordered(ops, case)
    inside = _expert_windows(line, facts)
    routed = _router_runs(line, facts)
    tails = _tails(line, facts, pl.concat([inside, routed]))
    sent = _transfers(line, facts)
    return pl.concat([inside, routed, tails, sent]).unique("row", keep="first", maintain_order=True)


def _facts(verdicts: pl.DataFrame, taxonomy: Taxonomy) -> pl.DataFrame:
    """One row per verdict: what each rule below asks about a kernel."""
    markers = {family.id: family.marker for family in taxonomy.families if family.marker is not None}
    hinted = [family.id for family in taxonomy.families if family.phase is not None]
    weak, operation, bucket = pl.col("weak"), pl.col("operation"), pl.col("bucket")
    generic = operation.is_in(list(_GENERIC)) & (pl.col("family") != "index_select")
    gemm = operation == "gemm"
    nccl = pl.col("backend").is_in(["nccl", "rccl"]).fill_null(value=False)
    return verdicts.select(
        "bucket",
        "kind",
        pl.col("family").replace_strict(markers, default=None, return_dtype=pl.String).alias("marker"),
        ((bucket == "attention") & ~weak).alias("attention"),
        (weak & gemm).alias("product"),
        (weak & (pl.col("role") == "compute")).alias("part"),
        (weak & (operation == "tail")).alias("tail"),
        operation.is_in(["gemm", "grouped_gemm"]).alias("any_product"),
        generic.alias("generic"),
        (gemm & (weak | (bucket == "router"))).alias("gate"),
        (gemm & ((pl.col("family") == _GATE_FAMILY) | (bucket == "router"))).alias("likely"),
        ((operation == "router") | (pl.col("family") == "topk")).alias("selects"),
        (operation == "router").alias("routes"),
        nccl.alias("moving"),
        (nccl & (pl.col("decided_by") == "name") & (pl.col("kind") == "other")).alias("unknown"),
        (operation == "exchange").alias("exchange"),
        ((pl.col("family") == _GATHER_FAMILY) & pl.col("phase").is_null()).alias("unphased_gather"),
        ((pl.col("role") == "compute") & ~pl.col("family").is_in(hinted)).alias("telling"),  # a name's own hint proves no range
        pl.col("phase").is_not_null().alias("phased"),
        pl.when(weak | (pl.col("role") == "transport"))
        .then(None)
        .when(bucket.is_in(["router", "expert_gemm"]) | (operation == "permute"))
        .then(pl.lit("expert"))
        .when(bucket == "attention")
        .then(pl.lit("context"))
        .when(bucket.is_in(["norm", "loss", "embedding", "optimizer"]))
        .then(pl.lit("none"))
        .alias("side"),
    )


def _ordered(ops: pl.DataFrame, case: pl.Series) -> pl.DataFrame:
    """Operations along each stream: row, rank, device, lane (UInt32), start, case, first (of its lane)."""
    lanes = ops.select("rank", "device", "stream").unique().sort("rank", "device", "stream").with_row_index("lane")
    rows = (
        ops.lazy()
        .select("rank", "device", "stream", "start", case.alias("case"))
        .with_row_index("row")
        .join(lanes.lazy(), on=["rank", "device", "stream"], how="left", nulls_equal=True, maintain_order="left")
        .select("row", "rank", "device", "lane", "start", "case")
        .collect()
        .sort("lane", maintain_order=True)
    )
    first = (rows["lane"] != rows["lane"].shift(1)).fill_null(value=True)
    return rows.with_columns(first.alias("first"))


def _with(line: pl.DataFrame, facts: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """`line` with columns of `facts` for each row's case."""
    return line.with_columns(facts[column].gather(line["case"]) for column in columns)


def _said(frame: pl.DataFrame, bucket: pl.Expr, rule: str, kind: pl.Expr | None = None) -> pl.DataFrame:
    return frame.select(
        pl.col("row").cast(pl.UInt32),
        bucket.cast(pl.String).alias("bucket"),
        (pl.lit(None) if kind is None else kind).cast(pl.String).alias("kind"),
        pl.lit(rule).alias("rule"),
    )


def _expert_windows(line: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Undecided matrix products between a kernel that brings tokens to the experts and one that takes them back."""
    if not (facts["product"].any() and {"open", "close"} <= set(facts["marker"])):
        return pl.DataFrame(schema=_SCHEMA)
    state = pl.when(pl.col("marker") == "open").then(1).when(pl.col("marker") == "close").then(2).when("attention").then(0)
    states = facts.select(state.cast(pl.UInt8).alias("state"))
    marked = _with(_with(line, facts, "product"), states, "state")
    last = pl.col("lane") != pl.col("lane").shift(-1).fill_null(2**32 - 1)
    broken = pl.lit(0, dtype=pl.UInt8)
    begun = pl.when(pl.col("first") & pl.col("state").is_null()).then(broken).otherwise("state").forward_fill()
    ending = pl.when(last & pl.col("state").is_null()).then(broken).otherwise("state").backward_fill()
    return _said(marked.filter(pl.col("product") & (begun == 1) & (ending == 2)), pl.lit("expert_gemm"), "between_permutation_and_return")


def _router_runs(line: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """A gate product and the generic kernels after it, where a selection of experts is among them."""
    if not facts["selects"].any():
        return pl.DataFrame(schema=_SCHEMA)
    known = _with(line, facts, "generic", "gate", "likely", "selects", "routes", "part")
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
    return _said(members.filter(headed & pl.col("part")), pl.lit("router"), "between_gate_and_permutation")


def _tails(line: pl.DataFrame, facts: pl.DataFrame, changed: pl.DataFrame) -> pl.DataFrame:
    """Set-up and tail kernels take the bucket of the product before them on the stream."""
    if not facts["tail"].any():
        return pl.DataFrame(schema=_SCHEMA)
    around = _with(line, facts, "tail", "any_product").filter(pl.col("tail") | pl.col("any_product") | pl.col("first"))
    now = _with(around, facts, "bucket").join(
        changed.select("row", pl.col("bucket").alias("new")), on="row", how="left", maintain_order="left"
    )
    before = pl.when("any_product").then(pl.coalesce("new", "bucket")).when("first").then(pl.lit("")).forward_fill()
    tails = now.with_columns(before.alias("before")).filter(
        pl.col("tail") & (pl.col("before") != "") & (pl.col("before") != pl.col("bucket"))
    )
    return _said(tails, pl.col("before"), "tail_of_the_product_before")


def _transfers(line: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """NCCL kernels of unknown process group, by their stream and by the work around them on the device.

    A communicator has a stream of its own, so its exchanges, and its other collectives, go with a clear majority of votes. A
    kernel of known kind votes for it; an unknown one for what its neighbours are (see `_vote`).
    """
    if not facts["unknown"].any():
        return pl.DataFrame(schema=_SCHEMA)
    moving = _with(line, facts, "moving").filter("moving")
    moving = _with(moving, facts, "unknown", "exchange", "kind", "unphased_gather").sort("start")
    telling = _with(line, facts, "telling", "phased").filter("telling")["phased"]
    voted = _beside(moving, line, facts).with_columns(_vote(phased=int(telling.sum()) * 2 > telling.len()).alias("vote"))
    shares = (
        voted.with_columns(pl.len().over("lane", "exchange").alias("all"))
        .filter(pl.col("vote").is_not_null())
        .group_by("lane", "exchange", "vote")
        .agg(pl.len().alias("votes"), pl.col("all").first())
        .with_columns(pl.col("votes").sum().over("lane", "exchange").alias("cast"))
        .filter(
            pl.col("votes") >= MIN_VOTES,
            pl.col("votes") >= MAJORITY * pl.col("cast"),
            pl.col("cast") >= TURNOUT * pl.col("all"),
        )
    )
    keys = ["lane", "exchange"]
    clear = moving.filter("unknown").join(shares.select(*keys, "vote"), on=keys, how="inner", maintain_order="left")
    bucket = pl.when(pl.col("vote") == "expert").then(pl.lit("dispatch")).otherwise(pl.lit("collective"))
    return _said(clear, bucket, "collective_by_stream_and_neighbours", pl.col("vote"))


def _beside(moving: pl.DataFrame, line: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """`moving` with the columns before and after: what computes next to each on its device (expert, context, none, null)."""
    sided = _with(line, facts.select(pl.col("side").is_not_null().alias("sided")), "sided").filter("sided")
    marks = _with(sided, facts, "side").select("rank", "device", "start", "side").sort("start")
    by = ["rank", "device"]
    before = moving.join_asof(marks.rename({"side": "before"}), on="start", by=by, strategy="backward", check_sortedness=False)
    return before.join_asof(marks.rename({"side": "after"}), on="start", by=by, strategy="forward", check_sortedness=False)


def _vote(*, phased: bool) -> pl.Expr:
    """Which kind each collective speaks for.

    An exchange votes for experts if they stand on one side of it, or for context parallelism if attention does. Any other
    collective (the exchange of token counts is an all-gather) only for experts, and only if they stand on both sides. Where most
    of the compute is `phased` (launched inside forward or backward ranges), a gather or reduce-scatter launched outside all of
    them moves parameters or gradients: data.
    """
    expert = [(pl.col(side) == "expert").fill_null(value=False) for side in ("before", "after")]
    context = [(pl.col(side) == "context").fill_null(value=False) for side in ("before", "after")]
    known = pl.when(pl.col("kind") != "other").then("kind")
    return (
        pl.when(~pl.col("unknown"))
        .then(known)
        .when((pl.col("exchange") & (expert[0] | expert[1])) | (expert[0] & expert[1]))
        .then(pl.lit("expert"))
        .when(pl.col("exchange") & (context[0] | context[1]))
        .then(pl.lit("context"))
        .when(pl.lit(phased) & pl.col("unphased_gather"))
        .then(pl.lit("data"))
    )
