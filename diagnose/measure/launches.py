"""Which host API call launched each device operation.

Correlation ids are unique within a process (a rank), so the join is on rank and correlation id. A CUDA graph launch
issues all of its nodes with one id.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Launch attribution. `frame` has one row per row of `Trace.ops`, in the same order.

    Columns: call_start, issued (the end of the launching call), thread; all null where the launch was not recorded.
    """

    frame: pl.DataFrame
    duplicates: int  # API calls that shared their correlation id with another

    @property
    def rate(self) -> float | None:
        """Share of device operations that joined a launch; None without operations."""
        if self.frame.is_empty():
            return None
        return 1.0 - self.frame["issued"].null_count() / self.frame.height


def attribute(trace: Trace) -> Launches:
    """Join every device operation to the API call that issued it."""
    keys = ["rank", "correlation"]
    wanted = trace.ops.lazy().select(keys).filter(pl.col("correlation").is_not_null()).unique()
    calls = (
        trace.calls.lazy()
        .select(*keys, pl.col("start").alias("call_start"), pl.col("end").alias("issued"), "thread")
        .filter(pl.col("correlation").is_not_null())
        .join(wanted, on=keys, how="semi")
        .collect()
    )
    unique = calls
    if calls.select(keys).is_duplicated().any():
        unique = calls.sort("issued").unique(keys, keep="last", maintain_order=True)
    joined = trace.ops.select(keys).join(unique, on=keys, how="left", maintain_order="left")
    return Launches(frame=joined.drop(keys), duplicates=calls.height - unique.height)
