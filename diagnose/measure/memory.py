"""The memory wall as time (recompute) and as level (allocator events)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from diagnose.measure.steps import per_window
from diagnose.model.intervals import union_length
from diagnose.model.vocabulary import Status

REPEATED = 1.5  # forward attention kernels per backward one from which on a repetition is inferred


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """Forward work repeated in backward, per window (index, ns), and how that is known; None where it can't be told."""

    per_window: pl.DataFrame | None
    status: Status | None
    forward: int | None  # attention kernels inside the steps
    backward: int | None

    @property
    def ratio(self) -> float | None:
        """Forward attention kernels per backward one."""
        if self.forward is None or not self.backward:
            return None
        return self.forward / self.backward


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Recompute, and the highest allocated and reserved bytes of a device; None without allocator events."""

    recompute: Recompute
    peak_allocated: int | None
    peak_reserved: int | None


def memory_use(
    inside: pl.DataFrame, windows: pl.DataFrame, pieces: pl.DataFrame, events: pl.DataFrame, rank: int, device: int
) -> MemoryUse:
    """`inside`: the operations in the steps, with index; `pieces`: the gaps without compute; `events`: the trace's allocator events."""
    allocated, reserved = peaks(events, rank, device)
    columns = ("index", "op", "start", "end", "role", "bucket", "operation", "phase", "name_id")
    return MemoryUse(recompute=recompute(inside.select(columns), windows, pieces), peak_allocated=allocated, peak_reserved=reserved)


def recompute(work: pl.DataFrame, windows: pl.DataFrame, pieces: pl.DataFrame) -> Recompute:
    """Find repeated forward work: by phase where ranges tell it, otherwise by counting attention kernels.

    Where ranges tell it, it is the time in which repeated compute ran and the time in which compute was absent until repeated compute
    began: what the repetition exchanges, packs and launches goes with it. `work`: the operations inside the steps with index (window), op,
    start, end, role, bucket, operation, phase, name_id. `pieces`: the gaps without compute, with index, start, end, op (the operation that
    ends the gap).
    """
    attention = work.filter((pl.col("operation") == "attention") & pl.col("phase").is_not_null())
    forward = _main_kernels(attention.filter(pl.col("phase").is_in(["forward", "recompute"])))
    backward = _main_kernels(attention.filter(pl.col("phase") == "backward"))
    forward = forward.join(backward.select("bucket").unique(), on="bucket", how="semi")  # a frozen tower has no backward to compare with
    counts = (forward.height, backward.height) if backward.height else (None, None)
    repeated = work.filter((pl.col("phase") == "recompute") & (pl.col("role") == "compute"))
    if not repeated.is_empty():
        waited = pieces.filter(pl.col("op").is_in(repeated["op"].implode()))
        per_window = pl.DataFrame(
            {"index": windows["index"], "ns": [_repeated(repeated, waited, index) for index in windows["index"]]},
            schema={"index": pl.Int64, "ns": pl.Int64},
        )
        return Recompute(per_window=per_window, status="measured", forward=counts[0], backward=counts[1])
    if counts[1] is None:
        return _without_backward_attention(work, windows)
    return Recompute(per_window=_extra_forward(forward, backward, windows), status="inferred", forward=counts[0], backward=counts[1])


def _without_backward_attention(work: pl.DataFrame, windows: pl.DataFrame) -> Recompute:
    """Nothing is recomputed where forward kernels ran and no backward kernel did; with other kernels in backward it can't be told."""
    phases = set(work["phase"].drop_nulls().unique().cast(pl.String).to_list())
    if "forward" in phases and "backward" not in phases:
        nothing = windows.select("index", pl.lit(0, dtype=pl.Int64).alias("ns"))
        return Recompute(per_window=nothing, status="inferred", forward=None, backward=None)
    return Recompute(per_window=None, status=None, forward=None, backward=None)


def _repeated(work: pl.DataFrame, pieces: pl.DataFrame, index: int) -> int:
    """Time (ns) of one step in which any of the operations ran, and that of its pieces."""
    ran, waited = (frame.filter(pl.col("index") == index) for frame in (work, pieces))
    return union_length(ran["start"], ran["end"]) + int((waited["end"] - waited["start"]).sum())


def _main_kernels(attention: pl.DataFrame) -> pl.DataFrame:
    """For each part of the model (bucket) the kernels of the name that carries most work: one per attention call, helpers left out."""
    by_name = attention.group_by("bucket", "name_id").agg((pl.col("end") - pl.col("start")).sum().alias("work")).sort("work", "name_id")
    main = by_name.unique("bucket", keep="last", maintain_order=True)
    return attention.join(main.select("bucket", "name_id"), on=["bucket", "name_id"], how="semi")


def _extra_forward(forward: pl.DataFrame, backward: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Time of forward attention beyond one kernel per backward one of the same part: a lower bound of recomputation, 0 below REPEATED."""
    keys = ["index", "bucket"]
    ahead = forward.group_by(keys).agg(pl.len().alias("n"), (pl.col("end") - pl.col("start")).sum().alias("work"))
    behind = backward.group_by(keys).agg(pl.len().alias("m"))
    extra = pl.when(pl.col("n") >= REPEATED * pl.col("m")).then(pl.col("work") * (pl.col("n") - pl.col("m")) // pl.col("n")).otherwise(0)
    per_part = ahead.join(behind, on=keys, how="inner").select("index", extra.cast(pl.Int64).alias("ns"))
    return per_window(windows, per_part.group_by("index").sum()).fill_null(0)


def peaks(events: pl.DataFrame, rank: int, device: int) -> tuple[int | None, int | None]:
    """Highest allocated and reserved bytes of a device; None without allocator events."""
    events = events.filter((pl.col("rank") == rank) & ((pl.col("device") == device) | pl.col("device").is_null()))
    allocated, reserved = events.select(pl.col("total_allocated", "total_reserved").max()).row(0)
    return allocated, reserved
