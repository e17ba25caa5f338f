"""How far the host leads the device: a faster network saves no more than that.

Without transport the device would come to each operation earlier, but not before the host has issued it. On the stream that computes most
an operation k moves forward by what is gone before it, and by no more than its lead (the time that it lay issued) and what the host gains
itself: a call that held the host returns earlier, as far as what it waited for ends earlier. What is lost at one operation none after it
regains:

    shift(k) = min(shift(k - 1) + gone(k), lead(k) + gained(k))

`gone` is generous (whole gaps in which transport or the host held compute up), so the shift at a step's end is a ceiling, as the bound is.
"""

from __future__ import annotations

import polars as pl

from diagnose.measure.host import POLL_REACH_NS, HostActivity
from diagnose.measure.steps import inside_windows
from diagnose.measure.waits.stalls import HOST_CAUSES, Stalls

# This project's choice: a launching call this long may have waited for room in the queue, and then returns earlier where the device is.
HELD_NS = 50_000


def claims(per_step: pl.DataFrame) -> pl.Series:
    """What transport is charged with on one device's own time, per window: what blocked, and what goes with that.

    `per_step`: the budget's.
    """
    columns = ("blocking_transport_ns", "transport_follow_ns", "transport_handover_ns", "transport_restart_ns")
    return per_step.select(pl.sum_horizontal(columns)).to_series()


def host_limited(found: Stalls, work: pl.DataFrame, windows: pl.DataFrame, host: HostActivity, claimed: pl.Series) -> pl.DataFrame:
    """Of `claimed` (ns per window, by transport) that in whose place the host would hold compute up: index, transport_host_limited_ns.

    `work`: start, end, stream, role, call_start, issued, in order of start; `host`: its calls, and what held it.
    """
    total = int(claimed.sum())
    line = _line(work, windows)
    limited = 0 if line.is_empty() or not total else max(0, total - max(0, _saved(line, _gone(found, work), _holds(work, host), windows)))
    share = limited / total if total else 0.0
    return windows.select("index", (claimed * share).floor().cast(pl.Int64).alias("transport_host_limited_ns"))


def _line(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Operations in the windows on the stream that computes most, where their launch was recorded: start, issued, lead."""
    inside = inside_windows(work, windows)
    lengths = inside.filter(pl.col("role") == "compute").group_by("stream").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    main = lengths.sort("ns", "stream", nulls_last=True).tail(1)
    own = inside.join(main, on="stream", how="semi", nulls_equal=True, maintain_order="left").filter(pl.col("issued").is_not_null())
    return own.select("start", "issued", (pl.col("start") - pl.col("issued")).clip(0, None).alias("lead"))


def _gone(found: Stalls, work: pl.DataFrame) -> pl.DataFrame:
    """What would be gone without transport, at most: disjoint pieces by start, with `until`, their sum so far. start, end, until."""
    transport = (work["role"].gather(found.pieces["producer"]) == "transport").fill_null(value=False)
    held = transport.alias("held") | found.pieces["cause"].is_in(list(HOST_CAUSES))
    gaps = found.pieces.filter(held).select("index", "op").unique()
    gone = found.pieces.join(gaps, on=["index", "op"], how="semi", nulls_equal=True).select("start", "end").sort("start")
    return gone.with_columns((pl.col("end") - pl.col("start")).cum_sum().alias("until"))


def _sum_until(gone: pl.DataFrame, moments: pl.Series) -> pl.Series:
    """How much of `gone` lies before each moment."""
    if gone.is_empty():
        return moments * 0
    place = gone["start"].search_sorted(moments, side="right").cast(pl.Int64) - 1
    row = place.clip(0)
    open_ = (gone["end"].gather(row) - moments).clip(0)
    return pl.select(pl.when(place < 0).then(0).otherwise(gone["until"].gather(row) - open_)).to_series()


def _holds(work: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """What held the host until something happened on the device, by its end: start, end.

    Calls that waited, launches that found the queue full, and stretches without any call that end just when the device has run dry: what
    waits there, a poll or a call that was not recorded, no trace tells.
    """
    waited = host.blocked.select("start", pl.col("awaited_end").alias("end"))
    long = pl.col("end") - pl.col("start") >= HELD_NS
    launches = work.select(pl.col("call_start").alias("start"), pl.col("issued").alias("end")).filter(long).unique()
    quiet = host.in_call.select(pl.col("end").alias("start"), pl.col("start").shift(-1).alias("end")).drop_nulls().filter(long)
    opened, closed = work.select(pl.min_horizontal("issued", "start")).to_series().sort(), work["end"].sort()
    done = closed.search_sorted(quiet["end"], side="right").cast(pl.Int64)
    drained = (done > 0) & (opened.search_sorted(quiet["end"], side="right").cast(pl.Int64) == done)
    last = closed.gather((done - 1).clip(0))
    silent = quiet.with_columns(last.alias("end")).filter(drained & (quiet["end"] - last <= POLL_REACH_NS))
    return pl.concat([waited, launches, silent]).filter(pl.col("end") > pl.col("start")).sort("end", "start")


def _saved(line: pl.DataFrame, gone: pl.DataFrame, holds: pl.DataFrame, windows: pl.DataFrame) -> int:
    """By how much the windows together end earlier, at most."""
    slack = line["lead"] - _sum_until(gone, line["start"])
    part = holds["end"].search_sorted(line["issued"], side="right").cast(pl.Int64)  # how many holds lay behind the host
    least = dict(pl.DataFrame({"part": part, "slack": slack}).group_by("part").agg(pl.col("slack").min()).iter_rows())
    gained, lowest, gains = 0, 0, [0]
    for number, (length, moved) in enumerate(zip(holds["end"] - holds["start"], _sum_until(gone, holds["end"]), strict=True)):
        lowest = min(lowest, least.get(number, 0) + gained) if number in least else lowest
        gained = max(0, min(length + gained, lowest + moved))
        gains.append(gained)
    reached = (slack + pl.Series("gains", gains, dtype=pl.Int64).gather(part)).cum_min()

    def shift(moments: pl.Series) -> pl.Series:
        place = line["start"].search_sorted(moments, side="left").cast(pl.Int64) - 1
        low = pl.select(pl.when(place < 0).then(0).otherwise(pl.min_horizontal(reached.gather(place.clip(0)), pl.lit(0)))).to_series()
        return low + _sum_until(gone, moments)

    return int((shift(windows["end"]) - shift(windows["start"])).sum())
