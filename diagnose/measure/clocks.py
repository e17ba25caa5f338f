"""Whether a device's clock agrees with the host's, by what can't be: work that starts before its launch, or ends after a wait for it.

Profilers convert the device's timestamps to the host's clock; where that goes wrong, all operations of a device lie too early or too late
by the same time. Whether compute waits for the CPU is then told wrongly, in either direction, so the operations are moved by the least
that ends the contradiction.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.measure.host import Launches
from diagnose.model.trace import Trace

# Contradictions up to here are the timestamps' own: 6.7 µs in GindaChen/nsys-ai's mfu_2gpu_before (tests/fixtures, schema 3.25.0), none
# in 78 other devices of public captures. The limit itself is this project's choice.
TOLERATED_NS = 20_000
_FEW = 3  # contradictions that may be wrong rows
_SHARE = 0.001  # and of the launches, or waits; this project's choice


class Contradictions(Struct, frozen=True):
    """By how much a device's operations begin before the calls that launch them, and end after the calls that waited for them (ns)."""

    early_ns: int = 0
    late_ns: int = 0

    @property
    def correction_ns(self) -> int:
        """What the device's times are moved by: the least that ends the contradiction; 0 where there is none, or it goes both ways."""
        if self.early_ns and self.late_ns:
            return 0
        return self.early_ns - self.late_ns


def on_host_clock(trace: Trace, launches: Launches) -> Trace:
    """The trace with every device's operations on the host's clock; what was moved, and what no move mends, is in its ledger."""
    table = trace.ops.select("rank", "device", "stream", "start", "end", "kind", "copy_kind", "pinned").hstack(launches.frame)
    ledger, moves = trace.ledger, []
    for (rank, device), work in table.group_by("rank", "device", maintain_order=True):
        found = contradictions(work, _waits(trace, int(rank), int(device)))
        if found.early_ns and found.late_ns:
            detail = (
                f"starts {_ms(found.early_ns)} before the launch, ends {_ms(found.late_ns)} after a wait (rank {rank}, device {device})"
            )
            ledger = ledger.note("clocks_disagree", "ops", work.height, detail)
        elif by := found.correction_ns:
            why = "starts before its launch" if by > 0 else "ends after the CPU waited for it"
            detail = f"moved {'later' if by > 0 else 'earlier'} by {_ms(abs(by))}: work {why} (rank {rank}, device {device})"
            ledger = ledger.note("moved_clock", "ops", work.height, detail)
            moves.append({"rank": rank, "device": device, "by": by})
    if not moves:
        return replace(trace, ledger=ledger)
    amounts = pl.DataFrame(moves, schema={"rank": pl.Int32, "device": pl.Int32, "by": pl.Int64})
    moved = trace.ops.join(amounts, on=["rank", "device"], how="left", maintain_order="left").with_columns(
        (pl.col(edge) + pl.col("by").fill_null(0)).alias(edge) for edge in ("start", "end")
    )
    return replace(trace, ops=moved.drop("by"), ledger=ledger)


def contradictions(work: pl.DataFrame, waits: pl.DataFrame) -> Contradictions:
    """Of one device. `work`: start, end, stream, kind, copy_kind, pinned, call_start, issued; `waits`: stream (null: all), begin, returned.

    A few rows prove nothing: what more than three of them, and more than a thousandth, exceed is taken.
    """
    before = work.select(pl.col("call_start") - pl.col("start")).to_series().drop_nulls()
    pageable = work.filter((pl.col("copy_kind") == "d2h") & pl.col("pinned").not_()).select(pl.col("end") - pl.col("issued")).to_series()
    streams = work.filter(pl.col("issued").is_not_null()).sort("stream", "start").select("stream", "issued", "end")
    after = (
        [pageable.drop_nulls(), *(_after(one, waits) for one in streams.partition_by("stream"))]
        if waits.height
        else [pageable.drop_nulls()]
    )
    return Contradictions(_exceeded(before), _exceeded(pl.concat(after)))


def _after(work: pl.DataFrame, waits: pl.DataFrame) -> pl.Series:
    """How long after each wait's return (ns; negative: before) the last work ended that it waited for, of one stream."""
    covering = waits.filter(pl.col("stream").is_null() | (pl.col("stream") == work["stream"][0])).sort("begin")
    issued = work.select(pl.col("issued").cum_max(), pl.col("end").cum_max())  # what is issued later on a stream ends later
    found = covering.join_asof(issued, left_on="begin", right_on="issued", strategy="backward")
    return found.select(pl.col("end") - pl.col("returned")).to_series().drop_nulls()


def _exceeded(times: pl.Series) -> int:
    """What more of them exceed than may be wrong rows, where it is above the tolerated (ns); 0 otherwise."""
    allowed = max(_FEW - 1, int(len(times) * _SHARE))
    over = times.filter(times > TOLERATED_NS)
    return int(over.sort(descending=True)[allowed]) if len(over) > allowed else 0


def _waits(trace: Trace, rank: int, device: int) -> pl.DataFrame:
    """Calls that return when a stream's, or all of the device's, earlier work is done: stream (null: all), begin, returned."""
    known = (pl.col("kind") == "device_sync") | ((pl.col("kind") == "stream_sync") & pl.col("stream").is_not_null())
    waits = trace.waits.filter((pl.col("rank") == rank) & (pl.col("device") == device) & known & pl.col("correlation").is_not_null())
    calls = trace.calls.filter(pl.col("rank") == rank).select(
        "correlation", pl.col("start").alias("begin"), pl.col("end").alias("returned")
    )
    stream = pl.when(pl.col("kind") == "stream_sync").then("stream").alias("stream")
    return waits.select("correlation", stream).join(calls, on="correlation").select("stream", "begin", "returned")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"
