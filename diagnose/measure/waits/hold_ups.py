"""What stops the host for long, and what that costs: long pauses, and synchronising calls until the host leads again.

A synchronising call drains what the host had queued. The gaps that follow are its doing until the host leads by as many operations as it
did before the call, and together they are at most as long as the call held it: a host that is free that much earlier saves no more. Calls
that follow each other before the host leads again count as one. What has a cause of its own is left to that: pauses, garbage collection,
data loading, compiling again, message passing, and launching calls that themselves take long.

A pause that comes back before the same kernel within one forward or backward pass, step after step, recurs: it is what the program does in
each layer, no garbage collection. One that comes back just before a forward pass opens it: there the next batch is fetched.
"""

from __future__ import annotations

import polars as pl

from diagnose.model.intervals import lasting
from diagnose.model.vocabulary import ATTENTION

HOST_WORK = ("gc", "loading", "recompilation", "message_passing", "launch", "python", "host")
PLAIN_WORK = ("launch", "python", "host")  # no range tells more of it
LONG_NS = 1_000_000  # this project's choice: a pause, or a launching call, is long from here on
_PASSES = {"forward": 0, "backward": 1, "recompute": 1}
LAYER_KERNELS = 4  # this project's choice: fewer kernels that compute are no layer
UNUSUAL = 20  # this project's choice: a pause is that many times as long as the median launch of compute is late
# A gap, told by its window (index) and the operation that ends it (op, null at a window's end), as one number: joining and grouping by it
# takes a quarter of the time that two columns take, one of them with nulls.
GAP = pl.col("index").cast(pl.Int64) * (1 << 32) + pl.col("op").cast(pl.Int64).fill_null((1 << 32) - 1)


def pauses(pieces: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """Gaps in which the host's work stands out, whether they recur, and whether they open a forward pass: index, op, recurs, opens.

    `compute`: op, name_id, phase, operation of all that computes; most of it perhaps in time.
    """
    gaps = (
        pieces.filter(~pl.col("cause").is_in(["blocking", "dependency_stalled", "first_use"]))
        .group_by("index", "op")
        .agg(lasting.sum().alias("gap"), lasting.filter(pl.col("cause").is_in(list(HOST_WORK))).sum().alias("worked"))
    )
    in_time = pl.repeat(0, max(0, compute.height - gaps.height), dtype=pl.Int64, eager=True)
    usual = pl.concat([gaps["gap"], in_time]).median()
    limit = max(LONG_NS, UNUSUAL * int(usual)) if isinstance(usual, int | float) else LONG_NS
    found = gaps.filter(pl.col("worked") > limit).select("index", "op")
    steps = pieces["index"].n_unique()
    layers = _in_layers(found, compute, steps).with_columns(pl.lit(value=True).alias("recurs"))
    opening = _before_passes(found, compute, steps).with_columns(pl.lit(value=True).alias("opens"))
    for kind in (layers, opening):
        found = found.join(kind, on=["index", "op"], how="left", nulls_equal=True)
    return found.with_columns(pl.col("recurs", "opens").fill_null(value=False))


def _before_passes(found: pl.DataFrame, compute: pl.DataFrame, steps: int) -> pl.DataFrame:
    """The pauses (index, op) between another phase and a forward pass, where half of the steps at least have such.

    A pause before the same kernel opens one too: a pipeline's first stage begins with several forward passes. So it is where the passes of
    two micro-batches take turns, and what comes next tells another phase: of a kernel whose own phase nothing tells, and which seldom runs
    without such a pause.
    """
    forward = pl.col("phase").backward_fill() == "forward"
    begun = forward & pl.col("phase").shift(1).forward_fill().ne_missing("forward")
    paused = compute.with_columns(forward.alias("forward"), begun.alias("begun"), pl.len().over("name_id").alias("runs")).join(
        found, on="op"
    )
    first = paused.filter("begun").select("name_id").unique()
    mostly = pl.col("phase").is_null() & (2 * pl.len().over("name_id") >= pl.col("runs"))
    opening = paused.filter(pl.col("forward") | mostly).join(first, on="name_id", how="semi").select("index", "op")
    return opening.filter((steps > 1) & (2 * opening["index"].n_unique() >= steps))


def _in_layers(found: pl.DataFrame, compute: pl.DataFrame, steps: int) -> pl.DataFrame:
    """The pauses (index, op) that come back before the same kernel within one pass, equally many kernels apart.

    One layer is like the other, and runs attention once at most.

    Between two micro-batches, or two steps, a pass of the other kind or more than one layer lies (a pipeline's first micro-batches all run
    forward). What comes back in fewer than half of the steps, or fewer than twice in each, or where there is but one window to judge by,
    does not recur.
    """
    way = pl.col("phase").replace_strict(_PASSES, default=None, return_dtype=pl.Int8).forward_fill().rle_id()
    attends = (pl.col("operation") == ATTENTION).fill_null(value=False)
    layers = (attends & ~attends.shift(1, fill_value=False)).cum_sum().cast(pl.Int64)
    placed = compute.with_row_index("place").select(
        "op", "name_id", pl.col("place").cast(pl.Int64), way.alias("pass"), layers.alias("layers")
    )
    one = ("index", "name_id", "pass")
    near = found.join(placed, on="op").sort("place")
    near = near.with_columns(pl.col("place").diff().over(one).alias("since"), pl.col("layers").diff().over(one))
    near = near.with_columns(pl.col("since").shift(-1).over(one).alias("until"))
    apart = (
        near.filter((pl.col("since") >= LAYER_KERNELS) & (pl.col("layers") <= 1))
        .group_by("name_id", "since")
        .agg(pl.len(), pl.col("index").n_unique().alias("steps"))
    )
    often = apart.filter((2 * pl.col("steps") >= steps) & (pl.col("len") >= 2 * pl.col("steps")) & (steps > 1))
    alike = often.select("name_id", pl.col("since").alias("layer"))
    return (
        near.join(alike, on="name_id")
        .filter((pl.col("since") == pl.col("layer")) | (pl.col("until") == pl.col("layer")))
        .select("index", "op")
        .unique()
    )


def host_work(pieces: pl.DataFrame, shadowed: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """The pieces of host work, by start.

    Index, op, start, cause, length, ns less what is shadowed, whether the gap is a pause, one that recurs, and one that opens a pass.
    """
    work = pieces.filter(pl.col("cause").is_in(list(HOST_WORK)))
    hidden = shadowed.group_by("start").agg(pl.col("ns").sum().alias("hidden"))
    paused = pauses(pieces, compute).with_columns(pl.lit(value=True).alias("pause"))
    return (
        work.select("index", "op", "start", "cause", lasting.alias("length"))
        .join(hidden, on="start", how="left")
        .join(paused, on=["index", "op"], how="left", nulls_equal=True)
        .with_columns(
            (pl.col("length") - pl.col("hidden").fill_null(0)).alias("ns"), pl.col("pause", "recurs", "opens").fill_null(value=False)
        )
        .sort("start")
    )


def restarts(worked: pl.DataFrame, pieces: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Host work that synchronising calls are charged with beyond their own time: index, ns.

    `worked`: as `host_work` gives it; `calls`: start, end of the calls that held the host; `work`: start, end, issued of the device's
    operations.
    """
    own = worked.filter(
        pl.col("cause").is_in(list(PLAIN_WORK)) & ~pl.col("pause") & ~((pl.col("cause") == "launch") & (pl.col("length") >= LONG_NS))
    )
    if calls.is_empty() or own.is_empty():
        return pl.DataFrame(schema={"index": pieces.schema["index"], "ns": pl.Int64})
    held = _episodes(calls.sort("end", "start"), work)
    place = held["end"].search_sorted(own["start"], side="right").cast(pl.Int64) - 1
    after = own.select("index", "start", "ns").hstack(held.select("episode", "leads").select(pl.all().gather(place.clip(0, None))))
    charged = after.filter((place >= 0) & (pl.col("leads").is_null() | (pl.col("start") < pl.col("leads"))))
    before = pl.col("ns").cum_sum().over("episode") - pl.col("ns")
    return (
        charged.join(_left(held, pieces), on="episode", how="left", maintain_order="left")
        .with_columns(pl.min_horizontal("ns", (pl.col("left") - before).clip(0, None)).alias("ns"))
        .select("index", "ns")
    )


def _left(held: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """What an episode may be charged with at most, its calls' length less their own time in gaps after what they awaited: episode, left."""
    inside = pieces.filter(pl.col("cause") == "host_sync").select("start", lasting.alias("ns")).sort("start")
    place = held["end"].search_sorted(inside["start"], side="right").clip(0, held.height - 1)  # the call that had not returned yet
    spent = inside.select("ns", held["episode"].gather(place)).group_by("episode").agg(pl.col("ns").sum().alias("spent"))
    lengths = held.group_by("episode").agg(lasting.sum().alias("held"))
    return lengths.join(spent, on="episode", how="left").select(
        "episode", (pl.col("held") - pl.col("spent").fill_null(0)).clip(0, None).alias("left")
    )


def _episodes(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """`calls` (by end) with episode and `leads`: when, before the next call returns, the host leads again (null: not by then)."""
    launched = work.filter(pl.col("issued").is_not_null()).select(
        pl.min_horizontal("issued", "start").alias("opened"), pl.col("end").alias("closed")
    )
    opened, closed = launched["opened"].sort(), launched["closed"].sort()

    def queued(moments: pl.Series) -> pl.Series:
        """Operations issued and not ended."""
        return opened.search_sorted(moments, side="right").cast(pl.Int64) - closed.search_sorted(moments, side="right").cast(pl.Int64)

    launches = pl.DataFrame(
        {"moment": opened, "queued": queued(opened), "call": calls["end"].search_sorted(opened, side="right").cast(pl.Int64) - 1}
    )
    reached = pl.DataFrame({"call": pl.int_range(calls.height, eager=True)}).join(
        launches.group_by("call").agg(pl.col("queued").max()), on="call", how="left", maintain_order="left"
    )["queued"]
    wanted: list[int] = []
    episodes: list[int] = []
    episode, carried = 0, 0
    for before, after, most in zip(queued(calls["start"]), queued(calls["end"]), reached.fill_null(0), strict=True):
        target = max(before, carried)
        wanted.append(target)
        episodes.append(episode)
        leads = max(after, most) >= target
        episode, carried = (episode + 1, 0) if leads else (episode, target)
    known = calls.with_columns(pl.Series("target", wanted, dtype=pl.Int64), pl.Series("episode", episodes, dtype=pl.Int64)).with_row_index(
        "call"
    )
    first = (
        launches.filter(pl.col("call") >= 0)
        .join(known.select(pl.col("call").cast(pl.Int64), "target"), on="call", how="left")
        .filter(pl.col("queued") >= pl.col("target"))
        .group_by("call")
        .agg(pl.col("moment").min())
    )
    leading = pl.when(queued(calls["end"]) >= pl.col("target")).then("end").otherwise("moment").alias("leads")
    return (
        known.with_columns(pl.col("call").cast(pl.Int64))
        .join(first, on="call", how="left", maintain_order="left")
        .select("start", "end", "episode", leading)
    )
