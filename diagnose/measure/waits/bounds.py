"""What a wall's bound counts beyond the split of waiting time, or short of it.

The split says why compute was absent; a bound says what could be won, which differs where causes overlap or follow from each other:

- *shadowed*: launch-starved time in which the operation to come could not have started anyway, because what it waits for still ran. A
  faster host would not win it.
- *follow*: what blocked compute after transport in the same gap, but would have run beside compute, or beside the host's work, had the
  transport not been there.
- *handover*: the short dependency-stalled rest of a gap that something blocked, or for which the host was late. It goes with its cause.
- *restart*: a host that was held up has nothing queued. What it does until its next launch lies bare, and would not without the hold-up.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.waits.stalls import Stalls

HANDOVER_NS = 10_000  # this project's choice, the reach of an inferred dependency: of a gap at most so much is a handover
_HOST = ["host_sync", "gc", "launch", "python"]


def ceilings(found: Stalls, windows: pl.DataFrame, roles: pl.Series, copy_kinds: pl.Series, times: pl.DataFrame) -> pl.DataFrame:
    """Per window (index): the figures in ns that `trace_rules/facts.yaml` describes.

    `roles`, `copy_kinds`, `times` (start, issued): of each operation by row number.
    """
    producer = found.pieces["producer"]
    blocks = pl.col("cause") == "blocking"
    pieces = found.pieces.with_columns(
        (pl.col("end") - pl.col("start")).alias("ns"),
        (blocks & (roles.gather(producer) == "transport")).fill_null(value=False).alias("transport"),
        (blocks & copy_kinds.gather(producer).is_in(["h2d", "d2h"])).fill_null(value=False).alias("host_copy"),
        pl.col("cause").is_in(_HOST).alias("host"),
        blocks.alias("blocks"),
        times["start"].gather(producer).alias("began"),
        times["issued"].gather(producer).alias("issued"),
    )
    through_host = pl.col("through_host")
    parts = (
        _handovers(pieces),
        _followers(pieces),
        _shadows(found.shadowed),
        _restarts(pieces, pl.col("transport") & through_host, "transport_restart_ns"),
        _restarts(pieces, pl.col("host_copy") & through_host, "host_copy_restart_ns"),
        _restarts(pieces, through_host | (pl.col("cause") == "host_sync"), "sync_restart_ns", capped=False),
        _restarts(pieces, pl.col("cause") == "allocator", "allocator_restart_ns", before=found.entered),
    )
    table = windows.select("index")
    for part in parts:
        table = table.join(part, on="index", how="left", maintain_order="left")
    return table.fill_null(0)


def _handovers(pieces: pl.DataFrame) -> pl.DataFrame:
    """index, and handover in ns behind transport, copies between host and device, and the host."""
    by_gap = pieces.group_by("index", "op").agg(
        pl.min_horizontal(pl.col("ns").filter(pl.col("cause") == "dependency_stalled").sum(), HANDOVER_NS).alias("stalled"),
        pl.col("transport", "host_copy", "host").any(),
    )
    return by_gap.group_by("index").agg(
        pl.col("stalled").filter("transport").sum().alias("transport_handover_ns"),
        pl.col("stalled").filter("host_copy").sum().alias("host_copy_handover_ns"),
        pl.col("stalled").filter("host").sum().alias("launch_handover_ns"),
    )


def _followers(pieces: pl.DataFrame) -> pl.DataFrame:
    """Of each gap: blocking by others after transport, as far as they could have run beside something else without the transport.

    That is as long as the transport had run before the gap began, beside compute, and as long as the host still worked in the gap after it
    had issued them.
    """
    gap = ["index", "op"]
    moved = pieces.filter("transport").select(gap).unique()
    pieces = pieces.join(moved, on=gap, how="semi", nulls_equal=True)  # nothing follows transport in any other gap
    first = pl.when("transport").then("start").min().over(gap)
    follows = (pl.col("blocks") & ~pl.col("transport") & (pl.col("start") > first)).fill_null(value=False)
    issued = pl.when("follows").then("issued").min().over(gap)
    worked = (
        pl.when(pl.col("cause").is_in([*_HOST, "allocator"]))
        .then((pl.col("end") - pl.max_horizontal("start", "after")).clip(0, None))
        .otherwise(0)
    )
    by_gap = (
        pieces.with_columns(follows.alias("follows"))
        .with_columns(issued.alias("after"))
        .group_by(gap)
        .agg(
            (pl.col("start").min() - pl.col("began").filter("transport").min()).clip(0, None).fill_null(0).alias("ahead"),
            pl.when(pl.col("after").first().is_not_null()).then(worked.sum()).otherwise(0).alias("beside"),
            pl.col("ns").filter("follows").sum().alias("behind"),
        )
    )
    followed = pl.min_horizontal(pl.col("ahead") + pl.col("beside"), "behind")
    return by_gap.group_by("index").agg(followed.sum().alias("transport_follow_ns"))


def _shadows(shadowed: pl.DataFrame) -> pl.DataFrame:
    """index, and shadowed time in ns of the host's work and of the allocator."""
    work = pl.col("cause").is_in(["gc", "launch", "python"])
    return shadowed.group_by("index").agg(
        pl.col("ns").filter(work).sum().alias("launch_shadowed_ns"),
        pl.col("ns").filter(pl.col("cause") == "allocator").sum().alias("allocator_shadowed_ns"),
    )


def _restarts(pieces: pl.DataFrame, holds: pl.Expr, name: str, *, capped: bool = True, before: pl.DataFrame | None = None) -> pl.DataFrame:
    """`index` and `name`: host work between the end of a hold-up of the host and the launch that it delayed.

    Of each gap at most as much counts (`capped`) as the hold-up kept the host from working ahead: what it took inside the gap where only
    what the host waited for would go, or with `before` (index, op, ns) what it had taken before the gap began, where the call itself would
    go.
    """
    held = pieces.filter(holds).group_by("index", "op").agg(pl.col("end").max().alias("freed"), pl.col("ns").sum().alias("held_ns"))
    if before is not None:
        earlier = before.group_by("index", "op").agg(pl.col("ns").max().alias("held_ns"))
        held = held.drop("held_ns").join(earlier, on=["index", "op"], how="inner", nulls_equal=True)
    after = pieces.filter("host").join(held, on=["index", "op"], how="inner", nulls_equal=True)
    by_gap = after.filter(pl.col("start") >= pl.col("freed")).group_by("index", "op").agg(pl.col("ns").sum(), pl.col("held_ns").first())
    return by_gap.group_by("index").agg((pl.min_horizontal("ns", "held_ns") if capped else pl.col("ns")).sum().alias(name))
