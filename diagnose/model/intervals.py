"""The only interval arithmetic of the project: half-open `[start, end)` in integer nanoseconds, on polars frames.

Two ideas carry everything:

* `merge` turns overlapping intervals into disjoint ones (one sort and one running maximum);
* `sweep` takes intervals of up to 62 classes and returns the segments of time with a bit mask of the classes that were
  running. Every union, intersection, "exposed" or "exclusive" figure is then a sum over masks, so that they agree with
  each other to the nanosecond by construction.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

MAX_CLASSES = 62  # bits of a signed 64-bit mask that can be added and subtracted without touching the sign
lasting = pl.col("end") - pl.col("start")  # of each row's interval, ns


def earliest(times: pl.Series) -> int:
    """The first of at least one time, ns."""
    return int(times.min())  # type: ignore[arg-type]


def latest(times: pl.Series) -> int:
    """The last of at least one time, ns."""
    return int(times.max())  # type: ignore[arg-type]


def total_length(frame: pl.DataFrame) -> int:
    """How long the rows' intervals are together, ns; what several cover counts for each."""
    return int((frame["end"] - frame["start"]).sum())


def union_length(starts: pl.Series, ends: pl.Series) -> int:
    """Length of the union of `[starts[i], ends[i])`, without building it.

    Starts and ends are sorted apart; the union is the span less the positive distances from the i-th end to the
    (i+1)-th start. Empty intervals add nothing. 0 for no interval.
    """
    if starts.is_empty():
        return 0
    first, last = starts.sort(), ends.sort()
    holes = (first.slice(1) - last.slice(0, len(last) - 1)).clip(lower_bound=0).sum()
    return int(last[-1]) - int(first[0]) - int(holes or 0)


def merge(frame: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Disjoint, sorted union of the rows' intervals, apart for each combination of the columns `by`.

    Touching intervals are joined and empty ones dropped. Result columns: `by`, start, end.
    """
    keys = list(by)
    if frame.is_empty():
        return frame.select(*keys, "start", "end")
    filled = frame.select(*keys, "start", "end").filter(pl.col("end") > pl.col("start"))
    ordered = filled if filled["start"].is_sorted() else filled.sort("start")
    reach, other_part = pl.col("end").cum_max(), pl.lit(value=False)
    if keys:
        ordered = ordered.sort(keys, maintain_order=True)
        reach = reach.over(keys)
        other_part = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in keys)
    # an interval is new where none of the earlier ones reaches it; the one before a new one is the last of its own
    is_new = (other_part | (pl.col("start") > reach.shift(1))).fill_null(value=True)
    told = ordered.select(*keys, "start", reach.alias("end"), is_new.alias("_new"))
    return told.select(pl.col(*keys, "start").filter("_new"), pl.col("end").filter(pl.col("_new").shift(-1, fill_value=True)))


def clip(frame: pl.DataFrame, start: int, end: int) -> pl.DataFrame:
    """The rows cut to `[start, end)`; rows that lie outside are dropped, empty ones too."""
    return frame.with_columns(pl.col("start").clip(lower_bound=start), pl.col("end").clip(upper_bound=end)).filter(
        pl.col("end") > pl.col("start")
    )


def length_until(disjoint: pl.DataFrame, moments: pl.Series) -> pl.Series:
    """How much of disjoint, sorted intervals lies before each moment."""
    if disjoint.is_empty() or moments.is_empty():
        return moments * 0
    lengths, begun = (disjoint["end"] - disjoint["start"]).cum_sum(), disjoint["start"].search_sorted(moments, side="right")
    row = begun.cast(pl.Int64) - 1  # of the interval that is running or was last; -1 before the first
    still = (pl.lit(disjoint["end"]).gather(pl.lit(row).clip(0)) - moments).clip(0)
    return pl.select(pl.when(row < 0).then(0).otherwise(pl.lit(lengths).gather(pl.lit(row).clip(0)) - still)).to_series()


def covered(frame: pl.DataFrame, disjoint: pl.DataFrame) -> pl.Series:
    """How much of each row's interval disjoint, sorted intervals cover."""
    return length_until(disjoint, frame["end"]) - length_until(disjoint, frame["start"])


def overlaps(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Every overlap of a row of `left` with a row of `right`; both must be disjoint and sorted.

    Result columns: left, right (row numbers, UInt32), start, end of the common part; sorted by right, then left.
    """
    if left.is_empty() or right.is_empty():
        return pl.DataFrame(schema={"left": pl.UInt32, "right": pl.UInt32, "start": pl.Int64, "end": pl.Int64})
    low = left["end"].search_sorted(right["start"], side="right")
    high = left["start"].search_sorted(right["end"], side="left")
    pairs = (
        pl.DataFrame({"low": low, "high": high})
        .with_row_index("right")
        .filter(pl.col("high") > pl.col("low"))
        .select("right", pl.int_ranges("low", "high", dtype=pl.UInt32).alias("left"))
        .explode("left")
    )
    return pairs.select(
        "left",
        "right",
        pl.max_horizontal(left["start"][pairs["left"]], right["start"][pairs["right"]]).alias("start"),
        pl.min_horizontal(left["end"][pairs["left"]], right["end"][pairs["right"]]).alias("end"),
    ).filter(pl.col("end") > pl.col("start"))


def uncovered(frame: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """What `taken` (disjoint pieces inside rows of `frame`, whose number is `left`) leaves of each row: start, end, left; by start."""
    rows = pl.int_range(frame.height, dtype=pl.UInt32, eager=True).alias("left")
    edges = [pl.DataFrame([frame[edge].alias("start"), frame[edge].alias("end"), rows]) for edge in ("start", "end")]
    pieces = pl.concat([*edges, taken.select("start", "end", "left")]).sort("left", "start", "end")
    until = pl.when(pl.col("left") == pl.col("left").shift(-1)).then(pl.col("start").shift(-1))
    return pieces.select(pl.col("end").alias("start"), until.alias("end"), "left").filter(pl.col("end") > pl.col("start")).sort("start")


def sweep(frame: pl.DataFrame, cuts: pl.Series | None = None) -> pl.DataFrame:
    """Segments of time with the set of classes running in each.

    `frame` has start, end and `bit` (0 … 61, the row's class). Result columns: start, end, mask (Int64; bit c is set while any interval of
    class c runs). Segments are disjoint and sorted; those with mask 0 lie between busy ones. They are also cut at the times `cuts`.
    """
    if frame.is_empty():
        return frame.select("start", "end").with_columns(pl.lit(0, dtype=pl.Int64).alias("mask")).clear()
    weights = pl.Series([1 << bit for bit in range(MAX_CLASSES)], dtype=pl.Int64)
    disjoint = merge(frame, ["bit"])
    return levels(disjoint.select("start", "end", weights[disjoint["bit"]].alias("mask")), cuts)


def levels(frame: pl.DataFrame, cuts: pl.Series | None = None) -> pl.DataFrame:
    """Segments of time with what the intervals running in each add up to.

    `frame` has start, end and columns of whole numbers, each interval's own. Result columns: the same, with the sums; segments are disjoint
    and sorted, those between busy ones hold zeros. They are also cut at the times `cuts`.
    """
    own = pl.exclude("start", "end")
    events = [frame.select(pl.col("start").alias("time"), own), frame.select(pl.col("end").alias("time"), own.neg())]
    if cuts is not None and not cuts.is_empty():
        none = (pl.lit(0, dtype=kind).alias(name) for name, kind in frame.drop("start", "end").schema.items())
        events.append(pl.DataFrame({"time": cuts.cast(pl.Int64)}).with_columns(*none))
    following, running = pl.col("time").shift(-1), pl.exclude("time").cum_sum()
    segments = pl.concat(events).sort("time").select(pl.col("time").alias("start"), following.alias("end"), running)
    return segments.filter(pl.col("end") > pl.col("start"))
