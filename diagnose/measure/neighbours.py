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
    undecided = verdicts["weak"] | ((verdicts["role"] == "transport") & (verdicts["kind"] == "other"))
    if not undecided.any():
        return pl.DataFrame(schema=_SCHEMA)
    line = _ordered(ops, case, verdicts, taxonomy)
    inside = _expert_windows(line)
    routed = _router_runs(line)
    tails = _tails(line, pl.concat([inside, routed]))
    sent = _transfers(line)
    return pl.concat([inside, routed, tails, sent]).unique("row", keep="first", maintain_order=True)


def _ordered(ops: pl.DataFrame, case: pl.Series, verdicts: pl.DataFrame, taxonomy: Taxonomy) -> pl.DataFrame:
    """Kernels along each stream: row, lane (UInt32), first (of its lane), start, and what is known of their kind."""
    hinted = [family.id for family in taxonomy.families if family.phase is not None]
    markers = {family.id: family.marker for family in taxonomy.families if family.marker is not None}
    known = verdicts.with_row_index("case").select(
        "case",
        "bucket",
        "kind",
        "backend",
        "phase",
        "operation",
        "decided_by",
        "role",
        "weak",
        "family",
        pl.col("family").is_in(hinted).alias("hinted"),
        pl.col("family").replace_strict(markers, default=None, return_dtype=pl.String).alias("marker"),
    )
    lanes = ops.select("rank", "device", "stream").unique().sort("rank", "device", "stream").with_row_index("lane")
    rows = (
        ops.lazy()
        .select("rank", "device", "stream", "start", case.alias("case"))
        .with_row_index("row")
        .join(lanes.lazy(), on=["rank", "device", "stream"], how="left", nulls_equal=True, maintain_order="left")
        .select("row", "lane", "start", "case", "rank", "device")
        .collect()
        .sort("lane", maintain_order=True)
    )
    first = (rows["lane"] != rows["lane"].shift(1)).fill_null(value=True)
    return rows.with_columns(first.alias("first")).join(known, on="case", how="left", maintain_order="left")


def _said(frame: pl.DataFrame, bucket: pl.Expr, rule: str, kind: pl.Expr | None = None) -> pl.DataFrame:
    return frame.select(
        pl.col("row").cast(pl.UInt32),
        bucket.cast(pl.String).alias("bucket"),
        (pl.lit(None) if kind is None else kind).cast(pl.String).alias("kind"),
        pl.lit(rule).alias("rule"),
    )


def _expert_windows(line: pl.DataFrame) -> pl.DataFrame:
    """Undecided matrix products between a kernel that brings tokens to the experts and one that takes them back."""
    last = pl.col("lane") != pl.col("lane").shift(-1).fill_null(2**32 - 1)
    state = (
        pl.when(pl.col("marker").is_not_null())
        .then("marker")
        .when((pl.col("bucket") == "attention") & ~pl.col("weak"))
        .then(pl.lit("break"))
    )
    begun = pl.when(pl.col("first") & state.is_null()).then(pl.lit("break")).otherwise(state).forward_fill()
    ending = pl.when(last & state.is_null()).then(pl.lit("break")).otherwise(state).backward_fill()
    product = pl.col("weak") & (pl.col("operation") == "gemm")
    return _said(line.filter(product & (begun == "open") & (ending == "close")), pl.lit("expert_gemm"), "between_permutation_and_return")


def _router_runs(line: pl.DataFrame) -> pl.DataFrame:
    """A gate product and the generic kernels after it, where a selection of experts is among them."""
    generic = pl.col("operation").is_in(list(_GENERIC)) & (pl.col("family") != "index_select")
    selects = (pl.col("operation") == "router") | (pl.col("family") == "topk")
    gate = (pl.col("operation") == "gemm") & ((pl.col("bucket") == "router") | pl.col("weak"))
    runs = line.with_columns((pl.col("first") | ~generic).cum_sum().alias("run"), selects.alias("selects"), gate.alias("gate"))
    # A product that only its single-precision result makes look like a gate needs top-k after it; any other undecided one a
    # kernel that only routers have.
    heads = runs.group_by("run").agg(
        pl.col("gate").first(),
        ((pl.col("family") == _GATE_FAMILY) | (pl.col("bucket") == "router")).first().alias("likely"),
        pl.col("selects").any(),
        (pl.col("operation") == "router").any().alias("routes"),
        pl.len().alias("length"),
    )
    found = heads.filter(
        pl.col("gate") & (pl.col("length") <= MAX_ROUTER_RUN) & (pl.col("routes") | (pl.col("likely") & pl.col("selects")))
    )
    members = runs.filter(pl.col("weak") & pl.col("role").is_in(["compute"])).join(found.select("run"), on="run", how="semi")
    return _said(members, pl.lit("router"), "between_gate_and_permutation")


def _tails(line: pl.DataFrame, changed: pl.DataFrame) -> pl.DataFrame:
    """Set-up and tail kernels take the bucket of the product before them on the stream."""
    if not (line["weak"] & (line["operation"] == "tail")).any():
        return pl.DataFrame(schema=_SCHEMA)
    now = line.join(changed.select("row", pl.col("bucket").alias("new")), on="row", how="left", maintain_order="left")
    bucket = pl.coalesce("new", "bucket")
    product = pl.col("operation").is_in(["gemm", "grouped_gemm"])
    before = pl.when(product).then(bucket).when("first").then(pl.lit("")).forward_fill()
    tails = now.with_columns(before.alias("before")).filter(
        pl.col("weak") & (pl.col("operation") == "tail") & (pl.col("before") != "") & (pl.col("before") != pl.col("bucket"))
    )
    return _said(tails, pl.col("before"), "tail_of_the_product_before")


def _transfers(line: pl.DataFrame) -> pl.DataFrame:
    """NCCL kernels of unknown process group, by their stream and by the work around them on the device.

    A communicator has a stream of its own, so its exchanges, and its other collectives, go with a clear majority of votes. A
    kernel of known kind votes for it; an unknown one for what its neighbours are (see `_vote`).
    """
    moving = line.filter(pl.col("backend").is_in(["nccl", "rccl"])).with_columns(
        ((pl.col("decided_by") == "name") & (pl.col("kind") == "other")).alias("unknown")
    )
    if not moving["unknown"].any():
        return pl.DataFrame(schema=_SCHEMA)
    telling = line.filter((pl.col("role") == "compute") & ~pl.col("hinted"))["phase"]  # a name's own hint proves no range
    phased = telling.null_count() < telling.len() / 2
    voted = _beside(moving.sort("start"), line).with_columns(_vote(phased=phased).alias("vote"))
    shares = (
        voted.with_columns(pl.len().over("lane", "operation").alias("all"))
        .filter(pl.col("vote").is_not_null())
        .group_by("lane", "operation", "vote")
        .agg(pl.len().alias("votes"), pl.col("all").first())
        .with_columns(pl.col("votes").sum().over("lane", "operation").alias("cast"))
        .filter(
            pl.col("votes") >= MIN_VOTES,
            pl.col("votes") >= MAJORITY * pl.col("cast"),
            pl.col("cast") >= TURNOUT * pl.col("all"),
        )
    )
    clear = moving.filter("unknown").join(
        shares.select("lane", "operation", "vote"), on=["lane", "operation"], how="inner", maintain_order="left"
    )
    bucket = pl.when(pl.col("vote") == "expert").then(pl.lit("dispatch")).otherwise(pl.lit("collective"))
    return _said(clear, bucket, "collective_by_stream_and_neighbours", pl.col("vote"))


def _beside(moving: pl.DataFrame, line: pl.DataFrame) -> pl.DataFrame:
    """`moving` with the columns before and after: what computes next to each on its device (expert, context, none, null)."""
    side = (
        pl.when(pl.col("bucket").is_in(["router", "expert_gemm"]) | (pl.col("operation") == "permute"))
        .then(pl.lit("expert"))
        .when(pl.col("bucket") == "attention")
        .then(pl.lit("context"))
        .when(pl.col("bucket").is_in(["norm", "loss", "embedding", "optimizer"]))
        .then(pl.lit("none"))
    )
    marks = (
        line.filter(~pl.col("weak") & (pl.col("role") != "transport"))
        .select("rank", "device", "start", side.alias("side"))
        .filter(pl.col("side").is_not_null())
        .sort("start")
    )
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
    expert = (pl.col("before") == "expert").fill_null(value=False), (pl.col("after") == "expert").fill_null(value=False)
    context = (pl.col("before") == "context").fill_null(value=False) | (pl.col("after") == "context").fill_null(value=False)
    exchange = pl.col("operation") == "exchange"
    outside = pl.lit(phased) & pl.col("phase").is_null() & (pl.col("family") == _GATHER_FAMILY)
    known = pl.when(pl.col("kind") != "other").then("kind")
    return (
        pl.when(~pl.col("unknown"))
        .then(known)
        .when((exchange & (expert[0] | expert[1])) | (expert[0] & expert[1]))
        .then(pl.lit("expert"))
        .when(exchange & context)
        .then(pl.lit("context"))
        .when(outside)
        .then(pl.lit("data"))
    )
