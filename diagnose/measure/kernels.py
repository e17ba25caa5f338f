"""How each name was used on each stream: launches, work, the usual duration of a launch, and what ran before and after.

Two captures are compared by these rows: a kernel that was renamed stands at the same place in the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

KEPT = 400  # rows of one device; our own choice: real training steps have 100 to 300 names with noticeable work
KEY = ["name_id", "bucket", "role", "stream"]


@dataclass(frozen=True, kw_only=True)
class KernelUses:
    """One device's names by use, most work first.

    `frame`: place (row of `DeviceMeasure.names`), stream, launches, work_ns (medians over the steps), launch_ns (median over all launches), previous, next
    (rows of this frame; null where nothing ran, and where what ran is left out). `omitted` rows with `omitted_ns` of work per step (median) are left out.
    """

    frame: pl.DataFrame
    omitted: int
    omitted_ns: int


def kernel_uses(inside: pl.DataFrame, windows: pl.DataFrame, names: pl.DataFrame, kept: int = KEPT) -> KernelUses:
    """The rows of one device.

    `inside`: operations in the steps, in order of start, with index, name_id, bucket, role, stream, start, end; `names`: name_id, bucket, role, in the
    order of `DeviceMeasure.names`.
    """
    rows = inside.select(*KEY, "index", (pl.col("end") - pl.col("start")).alias("ns"))
    per_step = rows.group_by(*KEY, "index").agg(pl.len().cast(pl.Int64).alias("launches"), pl.col("ns").sum().alias("work_ns"))
    places = names.select(KEY[:3]).with_row_index("place").unique(KEY[:3], keep="first", maintain_order=True)
    keys = (
        per_step.group_by(KEY)
        .agg(pl.col("work_ns").sum().alias("total"))
        .join(places, on=KEY[:3], how="left", nulls_equal=True)
        .sort("total", "place", "stream", descending=[True, False, False])
        .with_row_index("key")
    )
    per_step = per_step.join(keys.select(*KEY, "key"), on=KEY, how="left", nulls_equal=True)
    medians = _medians(per_step.filter(pl.col("key") < kept), windows).with_columns(pl.col("work_ns", "launches").cast(pl.Int64))
    used = rows.join(keys.select(*KEY, "key"), on=KEY, how="left", nulls_equal=True, maintain_order="left").select(
        "key", "index", "stream", "ns"
    )
    lengths = used.filter(pl.col("key") < kept).group_by("key").agg(pl.col("ns").median().floor().cast(pl.Int64).alias("launch_ns"))
    ordered = (
        keys.head(kept)
        .select("key", "place", "stream")
        .join(medians, on="key", how="left")
        .join(lengths, on="key", how="left")
        .join(_neighbours(used), on="key", how="left")
        .sort("work_ns", "key", descending=[True, False])
        .with_row_index("row")
    )
    rest = _per_window(per_step.filter(pl.col("key") >= kept).group_by("index").agg(pl.col("work_ns").sum()), windows)
    return KernelUses(frame=_placed(ordered), omitted=max(0, keys.height - kept), omitted_ns=rest)


def _medians(per_step: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """key, launches, work_ns: medians over all steps, in which a step without the key counts as 0."""
    every = per_step.select("key").unique().join(windows.select("index"), how="cross")
    filled = every.join(per_step.select("key", "index", "launches", "work_ns"), on=["key", "index"], how="left").fill_null(0)
    return filled.group_by("key").agg(pl.col("launches", "work_ns").median().floor().cast(pl.Int64))


def _per_window(summed: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Median over all steps of index, work_ns."""
    middle = windows.select("index").join(summed, on="index", how="left")["work_ns"].fill_null(0).median()
    return int(middle) if isinstance(middle, int | float) else 0


def _neighbours(used: pl.DataFrame) -> pl.DataFrame:
    """key, previous, next: the keys that most often ran just before and after on the same stream within a step; of equally frequent ones that with more work."""
    ordered = used.select("key", "index", "stream").sort("stream", maintain_order=True)
    same = (pl.col("index") == pl.col("index").shift(1)) & pl.col("stream").eq_missing(pl.col("stream").shift(1))
    pairs = (
        ordered.select("key", pl.when(same).then(pl.col("key").shift(1)).alias("before"))
        .drop_nulls()
        .group_by("before", "key")
        .agg(pl.len().alias("times"))
        .sort("times", "before", "key", descending=[True, False, False])
    )
    previous = pairs.group_by("key").agg(
        pl.col("before").sort_by(pl.col("times"), "before", descending=[True, False]).first().alias("previous")
    )
    following = pairs.group_by("before").agg(pl.col("key").sort_by(pl.col("times"), "key", descending=[True, False]).first().alias("next"))
    return previous.join(following, left_on="key", right_on="before", how="full", coalesce=True)


def _placed(ordered: pl.DataFrame) -> pl.DataFrame:
    """Neighbours as rows of the frame instead of keys."""
    rows = ordered.select("key", pl.col("row").cast(pl.UInt16))
    for side in ("previous", "next"):
        told = rows.rename({"key": side, "row": f"{side}_row"})
        ordered = ordered.join(told, on=side, how="left", maintain_order="left").drop(side).rename({f"{side}_row": side})
    return ordered.select(pl.col("place").cast(pl.UInt32), "stream", "launches", "work_ns", "launch_ns", "previous", "next")
