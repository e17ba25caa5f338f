"""What the host did for the step that is drawn: the calls that launched it and those during it, and the ranges around them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from diagnose.document.device import HostColumns
from diagnose.model.intervals import lasting
from diagnose.model.trace import Trace

WHOLE = 20_000  # calls, and as many ranges, that are kept one by one: about 0.8 MB of JSON; what has more is a capture with Python frames
LONGEST_NAME = 300


def median_step(windows: pl.DataFrame) -> tuple[int, int, int]:
    """Index, start and end of the step of median length (of two middle ones the shorter), which figures show."""
    ordered = windows.with_columns(lasting.alias("length")).sort("length", "index")
    index, start, end = ordered.select("index", "start", "end").row((ordered.height - 1) // 2)
    return index, start, end


def step_ranges(trace: Trace, rank: int, windows: pl.DataFrame) -> pl.DataFrame:
    """The ranges of a rank's threads that the step to be drawn can show: within it, or its length before, the longest WHOLE twice over."""
    _, start, end = median_step(windows)
    own = (pl.col("rank") == rank) & pl.col("thread").is_not_null() & ~pl.col("kind").is_in(["gpu_annotation", "frame"])
    found = trace.ranges.filter(own & (pl.col("end") > 2 * start - end) & (pl.col("start") < end))
    return found.select("thread", "start", "end", "text_id").sort(pl.col("start") - pl.col("end"), "start").head(2 * WHOLE)


def host_columns(ops: pl.DataFrame, ranges: pl.DataFrame, window: tuple[int, int], trace: Trace, rank: int) -> HostColumns | None:
    """Calls and ranges for `ops` (call_start, issued, thread of each operation in the document's order).

    None where the trace holds neither.

    Times are those of the trace, not cut at the step's edges: a call that launched the step's first operation began before it.
    """
    start, end = window
    launches = ops.select("thread", pl.col("call_start").alias("start"), pl.col("issued").alias("end")).with_row_index("place")
    launched = launches.drop_nulls().filter(pl.col("start") >= 2 * start - end)
    during = trace.calls.filter((pl.col("rank") == rank) & (pl.col("end") > start) & (pl.col("start") < end))
    before = trace.calls.filter((pl.col("rank") == rank) & (pl.col("end") <= start)).join(
        launched.select("thread", "start", "end").unique(), on=["thread", "start", "end"], how="semi"
    )
    calls = pl.concat([before, during]).select("thread", "start", "end", pl.col("name_id").alias("text_id"))
    begin = min([start, *launched.select(pl.col("start").min()).drop_nulls()["start"].to_list()])
    around = ranges.filter((pl.col("end") > begin) & (pl.col("start") < end)).select(calls.columns)
    if calls.is_empty() and around.is_empty():
        return None
    kept_calls, kept_ranges = (_kept(frame) for frame in (calls, around))
    threads = pl.concat([kept_calls["thread"], kept_ranges["thread"]]).unique(maintain_order=True)
    ids = pl.concat([kept_calls["text_id"], kept_ranges["text_id"]]).unique(maintain_order=True)
    return HostColumns(
        threads=tuple(_labels(threads, trace, rank)),
        names=tuple(trace.names["text"].gather(ids).str.slice(0, LONGEST_NAME).fill_null("").to_list()),
        call_start_ns=tuple((kept_calls["start"] - start).to_list()),
        call_duration_ns=tuple((kept_calls["end"] - kept_calls["start"]).to_list()),
        call_thread=_places(kept_calls["thread"], threads),
        call_name=_places(kept_calls["text_id"], ids),
        range_start_ns=tuple((kept_ranges["start"] - start).to_list()),
        range_duration_ns=tuple((kept_ranges["end"] - kept_ranges["start"]).to_list()),
        range_thread=_places(kept_ranges["thread"], threads),
        range_name=_places(kept_ranges["text_id"], ids),
        launched_by=tuple(_launched_by(launches, kept_calls)),
        omitted=calls.height + around.height - kept_calls.height - kept_ranges.height,
    )


def _kept(frame: pl.DataFrame) -> pl.DataFrame:
    """The longest WHOLE rows, in order of start, what encloses others first."""
    longest = frame.sort(pl.col("start") - pl.col("end"), "start", "thread", "text_id").head(WHOLE)
    return longest.sort("start", pl.col("start") - pl.col("end"), "thread", "text_id", maintain_order=True)


def _launched_by(launches: pl.DataFrame, calls: pl.DataFrame) -> Sequence[int | None]:
    """For each operation the place of its launching call among those kept; null where it was not recorded, or not kept."""
    key = ["thread", "start", "end"]
    known = calls.select(key).with_row_index("call").unique(key, keep="first", maintain_order=True)
    found: list[int | None] = launches.join(known, on=key, how="left", maintain_order="left")["call"].to_list()
    return found


def _labels(threads: pl.Series, trace: Trace, rank: int) -> list[str]:
    named = trace.threads.filter(pl.col("rank") == rank).drop_nulls("name").unique("thread", keep="first", maintain_order=True)
    names = dict(named.select("thread", "name").iter_rows())
    labels = ((f"thread {one}", (names.get(one) or "")[:LONGEST_NAME]) for one in threads.to_list())
    return [name if name.startswith(label) else f"{label} {name}".rstrip() for label, name in labels]


def _places(values: pl.Series, among: pl.Series) -> tuple[int, ...]:
    at = {value: place for place, value in enumerate(among.to_list())}
    return tuple(at[value] for value in values.to_list())
