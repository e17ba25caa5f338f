"""What compute was waiting for, by the class of what blocked it and by what the host was doing."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.measure.host import HostActivity
from diagnose.measure.waits.stalls import Stalls
from diagnose.model.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Causes:
    """Time without compute by cause, one row (or several) per step window.

    `blocking`: index, bucket, role, kind, backend, ns, inferred. `host`: index, name, cause, ns, count (launch-starved time by the call or
    range that the host was in).
    """

    blocking: pl.DataFrame
    host: pl.DataFrame


def causes(found: Stalls, work: pl.DataFrame, classes: pl.DataFrame, host: HostActivity, trace: Trace) -> Causes:
    """Sum up the pieces of one device's gaps; `work` and `classes` tell what blocked, `host` and the trace's names what the host did."""
    return Causes(blocking=blocking(found, work, classes), host=host_costs(found, host, trace))


def blocking(found: Stalls, work: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """index, bucket, role, kind, backend, ns, inferred: what blocked, by the class of the producer."""
    pieces = found.pieces.filter(pl.col("cause") == "blocking").select(
        "index", "producer", "inferred", (pl.col("end") - pl.col("start")).alias("ns")
    )
    producers = work.select("op", "class_id").filter(pl.col("op").is_in(pieces["producer"].drop_nulls().unique().implode()))
    return (
        pieces.join(producers, left_on="producer", right_on="op", how="left")
        .join(classes.select("class_id", "bucket", "role", "kind", "backend"), on="class_id", how="left")
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("kind").fill_null("other")).alias("kind"))
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("backend").fill_null("other")).alias("backend"))
        .group_by("index", "bucket", "role", "kind", "backend", "inferred")
        .agg(pl.col("ns").sum())
        .sort("index", "bucket", "role", "kind", "backend", "inferred", nulls_last=True)
    )


def host_costs(found: Stalls, host: HostActivity, trace: Trace) -> pl.DataFrame:
    """index, name, cause, ns, count: launch-starved time by the call or range that the host was in."""
    causes = {"allocator": "allocator", "host_sync": "sync", "gc": "gc"}
    pieces = found.pieces.filter(pl.col("cause").is_in([*causes, "launch", "python"])).with_columns(
        pl.col("cause").replace(causes).alias("cause"), (pl.col("end") - pl.col("start")).alias("ns")
    )
    named = (
        pieces.sort("start")
        .join_asof(
            host.named.select(pl.col("start").alias("call_start"), "name_id", "cause"),
            left_on="start",
            right_on="call_start",
            by="cause",
            strategy="backward",
            check_sortedness=False,
        )
        .join(trace.names.select(pl.col("id").alias("name_id"), "text"), on="name_id", how="left")
    )
    plain = pl.col("cause").replace_strict(
        {"launch": "launching API calls", "python": "no CUDA call on the launching threads"}, default="unknown call"
    )
    return (
        named.with_columns(pl.coalesce("text", plain).alias("name"))
        .group_by("index", "name", "cause")
        .agg(pl.col("ns").sum(), pl.len().alias("count"))
        .sort("index", "name", "cause")
    )


def long_gaps(found: Stalls) -> pl.DataFrame:
    """index, longest_host_gap_ns (launch-starved), host_gap_excess_ns.

    Host work in gaps that stand out (20 × the median gap and more than 1 ms).
    """
    starved = found.pieces.filter(~pl.col("cause").is_in(["blocking", "dependency_stalled"]))
    worked = pl.col("cause").is_in(["gc", "launch", "python"])
    length = pl.col("end") - pl.col("start")
    gaps = starved.group_by("index", "op").agg(length.sum().alias("gap"), length.filter(worked).sum().alias("worked"))
    usual = gaps["gap"].median()
    limit = max(1_000_000, 20 * int(usual)) if isinstance(usual, int | float) else 1_000_000
    return gaps.group_by("index").agg(
        pl.col("gap").max().alias("longest_host_gap_ns"), pl.col("worked").filter(pl.col("gap") > limit).sum().alias("host_gap_excess_ns")
    )
