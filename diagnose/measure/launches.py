"""Which host API call launched each device operation.

Correlation ids are unique within a process (a rank), so the join is on rank and correlation id. A CUDA graph launch
issues all of its nodes with one id.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.model.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Launch attribution. `frame` has one row per row of `Trace.ops`, in the same order.

    Columns: call_start, issued (the end of the launching call), thread; all null where the launch was not recorded.
    """

    frame: pl.DataFrame
    duplicates: int  # API calls that shared their correlation id with another


def attribute(trace: Trace) -> Launches:
    """Join every device operation to the API call that issued it."""
    key = _launch_key(trace)
    calls = (
        trace.calls.lazy()
        .select(key, pl.col("start").alias("call_start"), pl.col("end").alias("issued"), "thread")
        .filter(pl.col("key").is_not_null())
        .collect()
    )
    wanted = trace.ops.select(key)
    repeated = calls.height - calls["key"].n_unique()
    duplicates = 0
    if repeated:
        calls = calls.join(wanted.filter(pl.col("key").is_not_null()).unique(), on="key", how="semi")
        unique = calls.sort("issued").unique("key", keep="last", maintain_order=True)
        duplicates, calls = calls.height - unique.height, unique
    return Launches(frame=wanted.join(calls, on="key", how="left", maintain_order="left").drop("key"), duplicates=duplicates)


def _launch_key(trace: Trace) -> pl.Expr:
    """Rank and correlation id as one number, which joins faster than two columns; null where there is no correlation id."""
    several = trace.ops["rank"].n_unique() > 1
    key = pl.col("rank").cast(pl.Int64) * (1 << 44) + pl.col("correlation") if several else pl.col("correlation")
    return key.alias("key")
