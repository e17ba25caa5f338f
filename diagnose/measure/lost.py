"""Kernels that a profiler lost: launches whose kernel is not in the capture, among others whose is."""

from __future__ import annotations

import polars as pl

from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.host import calls_named
from diagnose.model.trace import Trace

_NOT_ALWAYS_RECORDED = (
    r"(?i)mem(set|cpy)"  # profilers leave out what a driver does without the device: sets of nothing, copies inside host memory
)
FEW = 100  # launches: of fewer a share tells nothing; this project's choice


def lost_share(trace: Trace, inside: pl.DataFrame, rank: int, rules: HostRules) -> float | None:
    """Share of the kernel launches in the steps whose kernel was not recorded on any device; None where few launches were recorded.

    Looked at are the launches between the first and the last of the stream that runs most of the steps' operations (`inside`): what is
    launched before the capture's end may run after it. A launch into a graph that is being captured runs nothing by itself.
    """
    copies = trace.names.filter(pl.col("text").str.contains(_NOT_ALWAYS_RECORDED))["id"]
    launches = calls_named(trace, rules.call_pattern("launch")).filter(
        (pl.col("rank") == rank) & pl.col("correlation").is_not_null() & ~pl.col("name_id").is_in(copies.implode())
    )
    streams = (
        inside.filter(pl.col("issued").is_not_null())
        .group_by("stream")
        .agg(pl.len(), pl.col("call_start").min().alias("first"), pl.col("call_start").max().alias("last"))
    )
    if streams.is_empty() or launches.is_empty():
        return None
    _, _, first, last = streams.sort("len", "stream", nulls_last=True).row(-1)
    between = launches.filter(pl.col("start").is_between(first, last))
    captures = calls_named(trace, rules.call_pattern("capture")).filter(pl.col("rank") == rank)
    if between.height < FEW or not captures.is_empty():
        return None
    known = trace.ops.filter(pl.col("rank") == rank)["correlation"].drop_nulls()
    return None if known.is_empty() else 1 - int(between["correlation"].is_in(known.implode()).sum()) / between.height
