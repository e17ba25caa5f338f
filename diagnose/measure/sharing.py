"""Processes of one capture that work on the same GPU: which of them are ranks of the job, and what the others take from those.

NCCL gives every rank a GPU of its own. Where one of several processes on a GPU trains and another does not (an evaluation server, a
preprocessing pipeline, a monitor), the other is no rank: it takes time on the GPU by turns, or SMs beside the rank's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import polars as pl

from diagnose.model.intervals import lasting, merge, overlaps
from diagnose.model.trace import Device, Rank, Trace
from diagnose.model.vocabulary import OPTIMIZER

Place = tuple[int, int]  # rank, device as it sees it
THREAD_IDS = 1 << 24  # a thread's number holds the process's above its own


def shared(devices: Iterable[Device]) -> dict[Place, tuple[Place, ...]]:
    """The places of other processes on the same GPU, where the capture tells GPUs apart (`uuid`)."""
    by_gpu: dict[str, list[Place]] = {}
    for one in devices:
        if one.uuid is not None:
            by_gpu.setdefault(one.uuid, []).append((one.rank, one.device))
    groups = [places for places in by_gpu.values() if len({rank for rank, _ in places}) > 1]
    return {place: tuple(other for other in places if other[0] != place[0]) for places in groups for place in places}


def trains(work: pl.DataFrame) -> bool:
    """Whether a process's operations on a device hold backward or an optimizer. `work` as `device_work` gives it."""
    return bool(work.select(((pl.col("phase") == "backward") | (pl.col("bucket") == OPTIMIZER)).any()).item())


def guests(shared: Mapping[Place, Sequence[Place]], training: Mapping[Place, bool]) -> frozenset[Place]:
    """The places of processes that do not train on a GPU on which another one does."""
    return frozenset(place for place, others in shared.items() if not training[place] and any(training[other] for other in others))


def without(ranks: Sequence[Rank], guests: Collection[Place], places: Iterable[Place]) -> tuple[Rank, ...]:
    """The ranks without the processes that only are guests."""
    working = {rank for rank, _ in places}
    staying = {rank for rank, device in places if (rank, device) not in guests}
    return tuple(one for one in ranks if one.rank in staying or one.rank not in working)


def taken(windows: pl.DataFrame, others: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Per window: index, others_busy_ns (another process worked on the GPU), others_taken_ns: what that takes from this one at most.

    No rows where there is no other process. `others`: the operations of each. The driver gives processes equal turns, so that all of them
    together take no more than their share of the window.
    """
    if not others:
        return pl.DataFrame(schema={"index": windows.schema["index"], "others_busy_ns": pl.Int64, "others_taken_ns": pl.Int64})
    steps = windows.sort("start")
    common = overlaps(merge(pl.concat([work.select("start", "end") for work in others])), steps.select("start", "end"))
    busy = common.select(steps["index"].gather(common["right"]), lasting.alias("ns"))
    turns = lasting * len(others) // (len(others) + 1)
    every = steps.select("index", turns.alias("turns")).join(busy.group_by("index").agg(pl.col("ns").sum()), on="index", how="left")
    ns = pl.col("ns").fill_null(0)
    return every.select("index", ns.alias("others_busy_ns"), pl.min_horizontal(ns, "turns").alias("others_taken_ns"))


def named(trace: Trace, rank: int) -> str:
    """A process as a sentence names it: by its main thread and its number."""
    pid = next((one.pid for one in trace.ranks if one.rank == rank), None)
    if pid is None:
        return "another process"
    main = trace.threads.filter((pl.col("rank") == rank) & (pl.col("thread") % THREAD_IDS == pid))["name"].to_list()
    return f"{main[0]} (process {pid})" if main else f"process {pid}"
