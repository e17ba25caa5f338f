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
_ENOUGH = 2_000_000  # operations of a trace that tell: a clock that is off is off from the start
_FEW = 3  # fewer contradictions may be wrong rows
_SHARE = 0.001  # and so may a smaller share of the launches, or of the waits; this project's choice


class Contradictions(Struct, frozen=True):
    """By how much a device's operations begin before the calls that launch them, and end after the calls that waited for them (ns)."""

    early_ns: int = 0
    late_ns: int = 0

    @property
    def apart_ns(self) -> int:
        """How far they contradict both ways, so that no one shift mends it; 0 where they do not."""
        return min(self.early_ns, self.late_ns)

    @property
    def correction_ns(self) -> int:
        """What the device's times are moved by: the least that ends the contradiction; 0 where there is none, or it goes both ways."""
        return 0 if self.apart_ns else self.early_ns - self.late_ns


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
    first = trace.ops.head(_ENOUGH).select("rank", "device", "stream", "start", "end")
    table, waits = first.hstack(launches.frame.head(_ENOUGH)).lazy(), _waits(trace)
    found = {}
    for rank, device in first.select("rank", "device").unique(maintain_order=True).iter_rows():
        own = (pl.col("rank") == rank) & (pl.col("device") == device)
        found[rank, device] = contradictions(table.filter(own), waits.filter(own))
    shifts = Shifts(
        moved_ns=max(abs(one.correction_ns) for one in found.values()),
        apart_ns=max(one.apart_ns for one in found.values()),
    )
    if not (shifts.moved_ns or shifts.apart_ns):
        return trace, shifts
    return replace(trace, ops=_moved(trace.ops, found), ledger=_noted(trace, found)), shifts


def _moved(ops: pl.DataFrame, found: Mapping[tuple[int, int], Contradictions]) -> pl.DataFrame:
    """The operations, those of each device later by its correction."""
    amounts = pl.DataFrame(
        [(rank, device, one.correction_ns) for (rank, device), one in found.items()],
        schema={"rank": pl.Int32, "device": pl.Int32, "by": pl.Int64},
        orient="row",
    )
    moved = ops.join(amounts, on=["rank", "device"], how="left", maintain_order="left")
    return moved.with_columns((pl.col(edge) + pl.col("by").fill_null(0)).alias(edge) for edge in ("start", "end")).drop("by")


def _noted(trace: Trace, found: Mapping[tuple[int, int], Contradictions]) -> Ledger:
    """The trace's ledger with what was moved, and what no move mends."""
    ledger = trace.ledger
    rows = {(rank, device): count for rank, device, count in trace.ops.group_by("rank", "device").len().iter_rows()}
    for (rank, device), one in found.items():
        where, by = f"rank {rank}, device {device}", one.correction_ns
        if one.apart_ns:
            detail = f"starts {_ms(one.early_ns)} before the launch, ends {_ms(one.late_ns)} after a wait ({where})"
            ledger = ledger.note("clocks_disagree", "ops", rows[rank, device], detail)
        elif by:
            why = "starts before its launch" if by > 0 else "ends after the CPU waited for it"
            detail = f"moved {'later' if by > 0 else 'earlier'} by {_ms(abs(by))}: work {why} ({where})"
            ledger = ledger.note("moved_clock", "ops", rows[rank, device], detail)
    return ledger


def contradictions(work: pl.LazyFrame, waits: pl.DataFrame) -> Contradictions:
    """Of one device. `work`: start, end, stream, call_start, issued; `waits`: stream (null: all), begin, returned.

    A few rows prove nothing: what three of them exceed, and a thousandth of them, is taken. Copies to pageable memory prove nothing
    either, though CUDA's documentation has their calls return after them: a shift where none is costs more than one that is not found.
    """
    early = pl.col("call_start") - pl.col("start")
    launches = int(work.select(pl.col("call_start").count()).collect().item())
    before = work.select(early.alias("ns")).filter(pl.col("ns") > TOLERATED_NS).collect().to_series()
    streams = work.select(pl.col("stream").drop_nulls().unique()).collect().to_series() if waits.height else ()
    after = [_after(work, waits, stream) for stream in streams]
    late = pl.concat(after) if after else pl.Series(dtype=pl.Int64)
    return Contradictions(_exceeded(before, launches), _exceeded(late.filter(late > TOLERATED_NS), len(late)))


def _after(work: pl.LazyFrame, waits: pl.DataFrame, stream: int) -> pl.Series:
    """How long after each wait's return (ns; negative: before) the last work of a stream ended that it waited for."""
    covering = waits.filter(pl.col("stream").is_null() | (pl.col("stream") == stream)).sort("begin")
    if covering.is_empty():
        return pl.Series(dtype=pl.Int64)
    done = work.filter((pl.col("stream") == stream) & pl.col("issued").is_not_null()).select(
        pl.col("issued").cum_max(),
        pl.col("end").cum_max(),  # in order of start: what is issued later on a stream ends later
    )
    found = covering.join_asof(done.collect(), left_on="begin", right_on="issued", strategy="backward")
    return found.select(pl.col("end") - pl.col("returned")).to_series().drop_nulls()


def _exceeded(over: pl.Series, rows: int) -> int:
    """What as many contradictions exceed as can't be wrong rows (ns), of so many rows; 0 where there are fewer."""
    allowed = max(_FEW - 1, int(rows * _SHARE))
    return int(over.sort(descending=True)[allowed]) if len(over) > allowed else 0


def _waits(trace: Trace) -> pl.DataFrame:
    """Calls that return when earlier work of a stream (null: of all) is done: rank, device, stream, begin, returned."""
    known = (pl.col("kind") == "device_sync") | ((pl.col("kind") == "stream_sync") & pl.col("stream").is_not_null())
    stream = pl.when(pl.col("kind") == "stream_sync").then("stream").alias("stream")
    waits = trace.waits.filter(known & pl.col("correlation").is_not_null()).select("rank", "device", "correlation", stream)
    calls = trace.calls.lazy().filter(pl.col("correlation").is_in(waits["correlation"].implode()))
    times = calls.select("rank", "correlation", pl.col("start").alias("begin"), pl.col("end").alias("returned"))
    return waits.join(times.collect(), on=["rank", "correlation"]).drop("correlation")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"
