"""Whether a device's clock agrees with the host's, by what can't be: work that starts before its launch, or ends after a wait for it.

Profilers convert the device's timestamps to the host's clock; where that goes wrong, all operations of a device lie too early or too late
by the same time. Whether compute waits for the CPU is then told wrongly, in either direction, so the operations are moved by the least
that ends the contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.measure.host import Launches
from diagnose.model.ledger import Ledger
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import FactValue

# Contradictions up to here are the timestamps' own: 6.7 µs in GindaChen/nsys-ai's mfu_2gpu_before (tests/fixtures, schema 3.25.0), none
# in 83 other devices of public captures, 32 of which record waits. The limit itself is this project's choice.
TOLERATED_NS = 20_000
_FEW = 3  # fewer contradictions may be wrong rows
_SHARE = 0.001  # and so may a smaller share of the launches, or of the waits; this project's choice


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


class Shifts(Struct, frozen=True, kw_only=True):
    """By how much at most the devices of a trace were moved (ns), and how far both ways at most where no move mends it.

    None: no launch was recorded.
    """

    moved_ns: int | None = None
    apart_ns: int | None = None

    @property
    def facts(self) -> dict[str, FactValue]:
        """The two as facts of the capture."""
        return {"clock_moved_ns": self.moved_ns, "clock_apart_ns": self.apart_ns}


def on_host_clock(trace: Trace, launches: Launches) -> tuple[Trace, Shifts]:
    """The trace with every device's operations on the host's clock; what was moved, and what no move mends, is in its ledger."""
    if launches.frame["call_start"].null_count() == trace.ops.height:
        return trace, Shifts()
    table = trace.ops.select("rank", "device", "stream", "start", "end").hstack(launches.frame)
    devices = table.select("rank", "device").unique(maintain_order=True).rows()
    found = {
        (rank, device): contradictions(_of_device(table, rank, device, alone=len(devices) == 1), _waits(trace, rank, device))
        for rank, device in devices
    }
    amounts = pl.DataFrame(
        [(rank, device, one.correction_ns) for (rank, device), one in found.items()],
        schema={"rank": pl.Int32, "device": pl.Int32, "by": pl.Int64},
        orient="row",
    ).filter(pl.col("by") != 0)
    shifts = Shifts(
        moved_ns=max(abs(one.correction_ns) for one in found.values()),
        apart_ns=max(min(one.early_ns, one.late_ns) for one in found.values()),
    )
    return replace(trace, ops=_moved(trace.ops, amounts), ledger=_noted(trace, found)), shifts


def _of_device(table: pl.DataFrame, rank: int, device: int, *, alone: bool) -> pl.DataFrame:
    """The rows of one device; no copy of those of the only one, as a capture may hold millions."""
    return table if alone else table.filter((pl.col("rank") == rank) & (pl.col("device") == device))


def _moved(ops: pl.DataFrame, amounts: pl.DataFrame) -> pl.DataFrame:
    """The operations, those of some devices later by so much. `amounts`: rank, device, by (ns)."""
    if amounts.is_empty():
        return ops
    moved = ops.join(amounts, on=["rank", "device"], how="left", maintain_order="left")
    return moved.with_columns((pl.col(edge) + pl.col("by").fill_null(0)).alias(edge) for edge in ("start", "end")).drop("by")


def _noted(trace: Trace, found: Mapping[tuple[int, int], Contradictions]) -> Ledger:
    """The trace's ledger with what was moved, and what no move mends."""
    ledger = trace.ledger
    rows = {(rank, device): count for rank, device, count in trace.ops.group_by("rank", "device").len().iter_rows()}
    for (rank, device), one in found.items():
        where, by = f"rank {rank}, device {device}", one.correction_ns
        if one.early_ns and one.late_ns:
            detail = f"starts {_ms(one.early_ns)} before the launch, ends {_ms(one.late_ns)} after a wait ({where})"
            ledger = ledger.note("clocks_disagree", "ops", rows[rank, device], detail)
        elif by:
            why = "starts before its launch" if by > 0 else "ends after the CPU waited for it"
            detail = f"moved {'later' if by > 0 else 'earlier'} by {_ms(abs(by))}: work {why} ({where})"
            ledger = ledger.note("moved_clock", "ops", rows[rank, device], detail)
    return ledger


def contradictions(work: pl.DataFrame, waits: pl.DataFrame) -> Contradictions:
    """Of one device. `work`: start, end, stream, call_start, issued; `waits`: stream (null: all), begin, returned.

    A few rows prove nothing: what three of them exceed, and a thousandth of them, is taken. Copies to pageable memory prove nothing
    either, though CUDA's documentation has their calls return after them: a shift where none is costs more than one that is not found.
    """
    before = work.select(pl.col("call_start") - pl.col("start")).to_series().drop_nulls()
    streams = work["stream"].drop_nulls().unique().to_list() if waits.height else []
    after = [_after(work.filter(pl.col("stream") == stream), waits) for stream in streams]
    return Contradictions(_exceeded(before), _exceeded(pl.concat(after)) if after else 0)


def _after(work: pl.DataFrame, waits: pl.DataFrame) -> pl.Series:
    """How long after each wait's return (ns; negative: before) the last work ended that it waited for, of one stream, in order of start."""
    launched = work.select("stream", "issued", "end").drop_nulls("issued")
    if launched.is_empty():
        return pl.Series(dtype=pl.Int64)
    covering = waits.filter(pl.col("stream").is_null() | (pl.col("stream") == launched["stream"][0])).sort("begin")
    done = launched.select(pl.col("issued").cum_max(), pl.col("end").cum_max())  # what is issued later on a stream ends later
    found = covering.join_asof(done, left_on="begin", right_on="issued", strategy="backward")
    return found.select(pl.col("end") - pl.col("returned")).to_series().drop_nulls()


def _exceeded(times: pl.Series) -> int:
    """What as many of them exceed as can't be wrong rows, where it is above the tolerated (ns); 0 otherwise."""
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
