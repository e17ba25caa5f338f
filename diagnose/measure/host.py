"""What the host was doing: which call launched each operation, calls by family, what synchronising calls waited for, garbage collection."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from diagnose.knowledge.features import Features
from diagnose.knowledge.taxonomy import HostRole, HostRules, union
from diagnose.measure.steps import inside_windows
from diagnose.model.intervals import lasting, merge, sweep
from diagnose.model.trace import NAMING_NS, Trace
from diagnose.model.vocabulary import DISPATCH, EXPERT_GEMM, OPTIMIZER, ROUTER

# This project's choice: a host that polls goes quiet this soon after the launch and calls again this soon after the kernel's end
POLL_REACH_NS = 30_000
MANY_LAUNCHES = 50  # in a step: of fewer a median says little of the CPU's speed
POLL_RETURN_NS = 100_000  # and what a slow CPU needs from the end of a kernel that is known to be polled for to its next call

# Bits of the host's state.
ALLOCATOR, WAITING, SYNC, GC, FIRST_USE, LOADING, MESSAGES, RECOMPILING = 1, 2, 4, 8, 16, 32, 64, 128


class HostActivity(Struct, frozen=True, kw_only=True):
    """The launching threads of one rank.

    `state`: start, end (cut where a synchronising call begins or its work ends), mask of ALLOCATOR, WAITING (a synchronising call while the
    work that it waits for runs), SYNC (after that work), GC, FIRST_USE, LOADING (data), MESSAGES (MPI), RECOMPILING (what was
    compiled or loaded before). `in_call`: union of all API calls.
    `blocked`: synchronising calls with start,
    end, awaited_end and the awaited operation (op row, null when nothing was awaited), sorted by start. `freeing`: the same for allocator
    calls that wait for the device. `named`: the allocator and
    synchronising calls (start, end, name_id, cause). `python`: whether the process runs Python. `long`: calls and ranges that last long
    enough to name a pause, those that mark steps left out (start, end, name_id, call and frame: whether it is one), by start.
    """

    state: pl.DataFrame
    in_call: pl.DataFrame
    blocked: pl.DataFrame
    freeing: pl.DataFrame
    named: pl.DataFrame
    has_calls: bool
    has_gc_ranges: bool
    python: bool
    long: pl.DataFrame


def host_activity(
    trace: Trace,
    work: pl.DataFrame,
    rank: int,
    rules: HostRules,
    device: int | None = None,
    first_use: pl.DataFrame | None = None,
    again: pl.DataFrame | None = None,
    *,
    python: bool = False,
) -> HostActivity:
    """Classify the API calls of the threads that launch compute on this device.

    A thread that launches only copies is a loader or a helper; what it waits for does not hold compute up. `work`: the device's operations
    with op, start, end, stream, kind, role, correlation, pinned, copy_kind, issued, call_start, thread; `first_use`: start, end of what was
    paid once; `again`: of such work that comes back.
    """
    launching = work.filter(pl.col("role") == "compute")["thread"].drop_nulls().unique()
    threads = launching if len(launching) else work["thread"].drop_nulls().unique()
    calls = trace.calls.filter((pl.col("rank") == rank) & pl.col("thread").is_in(threads.implode()))
    known = calls.join(call_roles(trace.names, calls, rules), on="name_id", how="inner")
    allocator = known.filter(pl.col("host_role") == "allocator")
    here = pl.lit(value=True) if device is None else (pl.col("device") == device) | pl.col("device").is_null()
    waits = trace.waits.filter((pl.col("rank") == rank) & here)
    whole_device, frees = (
        trace.names.filter(pl.col("text").str.contains(rules.call_pattern(role, "device")))["id"] for role in ("synchronise", "allocator")
    )
    synchronising = known.filter(pl.col("host_role") == "synchronise").with_columns(
        pl.col("name_id").is_in(whole_device.implode()).alias("whole_device")
    )
    freeing = allocator.filter(pl.col("name_id").is_in(frees.implode())).with_columns(pl.lit(value=True).alias("whole_device"))
    in_call = merge(calls)
    syncs = pl.concat([_synchronising(waits, work, calls, synchronising), _polling(work, in_call, trace.names, rules)]).sort("start")
    gc = _ranges(trace, rank, rules, "garbage_collection")
    loading, messages = (
        _ranges(trace, rank, rules, meaning).join(threads.to_frame("thread"), on="thread", how="semi")
        for meaning in ("data_loading", "message_passing")
    )
    waiting = syncs.select("start", pl.col("awaited_end").alias("end"))
    after = syncs.select(pl.col("awaited_end").alias("start"), "end")
    once, anew = (allocator.clear() if frame is None else frame for frame in (first_use, again))
    states = pl.concat(
        frame.select("start", "end", pl.lit(bit, dtype=pl.UInt8).alias("bit"))
        for bit, frame in enumerate((allocator, waiting, after, gc, once, loading, messages, anew))
    )
    named = pl.concat(
        frame.select("start", "end", "name_id", pl.lit(cause).alias("cause"))
        for cause, frame in (("allocator", allocator), ("sync", syncs), ("gc", gc), ("loading", loading), ("message_passing", messages))
    ).sort("start")
    return HostActivity(
        state=sweep(states, cuts=pl.concat([syncs["start"], syncs["awaited_end"]])).filter(pl.col("mask") != 0),
        in_call=in_call,
        blocked=syncs,
        freeing=_synchronising(waits, work, calls.clear(), freeing),
        named=named,
        has_calls=not calls.is_empty(),
        has_gc_ranges=not gc.is_empty(),
        python=python,
        long=_long(trace, rank, threads, calls, rules),
    )


def calls_named(trace: Trace, pattern: str) -> pl.DataFrame:
    """The API calls whose name matches a pattern."""
    ids = trace.names.filter(pl.col("text").str.contains(pattern))["id"]
    return trace.calls.filter(pl.col("name_id").is_in(ids.implode()))


def from_its_start(trace: Trace, rank: int, rules: HostRules) -> bool:
    """Whether the capture holds a rank's process from its start: its first call is one that a process begins with."""
    first = trace.calls.filter(pl.col("rank") == rank)["name_id"].head(1)
    return bool(trace.names["text"].gather(first).str.contains(rules.starting_pattern()).any())


def graph_launches(trace: Trace, rank: int, rules: HostRules) -> pl.Series:
    """Correlation ids of a rank's API calls that launched a CUDA graph: not every format tells a kernel's graph."""
    return calls_named(trace, rules.call_pattern("graph_launch")).filter(pl.col("rank") == rank)["correlation"].drop_nulls()


_NOT_ALWAYS_RECORDED = (
    r"(?i)mem(set|cpy)"  # profilers leave out what a driver does without the device: sets of nothing, copies inside host memory
)
FEW = 100  # launches: of fewer a share tells nothing; this project's choice


def lost_share(trace: Trace, inside: pl.DataFrame, rank: int, rules: HostRules) -> float | None:
    """Share of the kernel launches in the steps whose kernel was not recorded on any device; None where few launches were recorded.

    Looked at are the launches between the first and the last of the stream that runs most of the steps' operations (`inside`): what is
    launched before the capture's end may run after it. A launch into a graph that is being captured runs nothing by itself.
    """
    copies = trace.names.filter(pl.col("text").str.contains(_NOT_ALWAYS_RECORDED))["id"]
    launches = calls_named(trace, rules.call_pattern("launch")).filter(
        (pl.col("rank") == rank) & pl.col("correlation").is_not_null() & ~pl.col("name_id").is_in(copies.implode())
    )
    streams = (
        inside.filter(pl.col("issued").is_not_null())
        .group_by("stream")
        .agg(pl.len(), pl.col("call_start").min().alias("first"), pl.col("call_start").max().alias("last"))
    )
    if streams.is_empty() or launches.is_empty():
        return None
    _, _, first, last = streams.sort("len", "stream", nulls_last=True).row(-1)
    between = launches.filter(pl.col("start").is_between(first, last))
    captures = calls_named(trace, rules.call_pattern("capture")).filter(pl.col("rank") == rank)
    if between.height < FEW or not captures.is_empty():
        return None
    known = trace.ops.filter(pl.col("rank") == rank)["correlation"].drop_nulls()
    return None if known.is_empty() else 1 - int(between["correlation"].is_in(known.implode()).sum()) / between.height


def call_roles(names: pl.DataFrame, calls: pl.DataFrame, rules: HostRules) -> pl.DataFrame:
    """name_id → role of the API calls that matter here (HostRole; at most one per name)."""
    used = names.join(calls.select(pl.col("name_id").alias("id")).unique(), on="id", how="semi")
    roles: tuple[HostRole, ...] = ("allocator", "synchronise", "graph_launch", "launch")
    role = pl.coalesce(
        *(pl.when(pl.col("text").str.contains(rules.call_pattern(role))).then(pl.lit(role)) for role in roles),
        pl.lit(None, dtype=pl.String),
    )
    return used.select(pl.col("id").alias("name_id"), role.alias("host_role")).filter(pl.col("host_role").is_not_null())


def _synchronising(waits: pl.DataFrame, work: pl.DataFrame, calls: pl.DataFrame, plain: pl.DataFrame) -> pl.DataFrame:
    """Calls that held the host until device work was done: start, end, name_id, awaited (op row or null), awaited_end, guessed.

    A copy call waited for its own copy. Otherwise the call waited for what ended last on its stream, or on the device, before it returned.
    Where the trace does not tell the stream, the last of any stream is taken, and `guessed` is set.
    """
    streams = (
        waits.filter(
            pl.col("kind").is_in(["stream_sync", "event_sync"]) & pl.col("correlation").is_not_null() & pl.col("stream").is_not_null()
        )
        .select("correlation", "stream")
        .unique("correlation", keep="first", maintain_order=True)
    )
    copies = work.filter((pl.col("kind") == "memcpy") & pl.col("correlation").is_not_null())
    own = copies.select(pl.col("op").alias("awaited"), pl.col("end").alias("done"), "correlation")
    named = plain.select("start", "end", "name_id", "correlation", "whole_device")
    copying = named.join(own, on="correlation", how="inner")
    others = named.join(own, on="correlation", how="anti").join(streams, on="correlation", how="left").sort("end")
    finished = work.select(pl.col("op").alias("awaited"), pl.col("end").alias("done"), "stream").sort("done")
    on_stream = others.filter(pl.col("stream").is_not_null()).join_asof(
        finished, left_on="end", right_on="done", by="stream", strategy="backward", coalesce=False, check_sortedness=False
    )
    on_any = others.filter(pl.col("stream").is_null()).join_asof(
        finished.drop("stream"), left_on="end", right_on="done", strategy="backward", coalesce=False
    )
    columns = ["start", "end", "name_id", "awaited", "done", "guessed"]
    known = pl.lit(value=False).alias("guessed")
    every = pl.concat(
        [
            copying.with_columns(known).select(columns),
            on_stream.with_columns(known).select(columns),
            on_any.with_columns((~pl.col("whole_device")).alias("guessed")).select(columns),
            _staged_copies(copies, calls).with_columns(known).select(columns),
        ]
    )
    return (
        every.with_columns(pl.when(pl.col("done") > pl.col("start")).then("awaited").alias("awaited"))
        .with_columns(pl.col("done").fill_null(pl.col("start")).clip(pl.col("start"), pl.col("end")).alias("awaited_end"))
        .select("start", "end", "name_id", "awaited", "awaited_end", "guessed")
        .sort("start")
    )


def _polling(work: pl.DataFrame, in_call: pl.DataFrame, names: pl.DataFrame, rules: HostRules) -> pl.DataFrame:
    """Stretches without any call in which the host polled for the end of a kernel: the columns of `_synchronising`, all guessed.

    Such a stretch begins right after the kernel's launch (POLL_REACH_NS) and ends soon after its end (POLL_RETURN_NS).
    """
    polled = names.filter(pl.col("text").str.contains(rules.polled_pattern()))["id"]
    kernels = work.filter(pl.col("name_id").is_in(polled.implode()) & pl.col("issued").is_not_null()).select(
        "op", "end", "issued", "name_id"
    )
    quiet = in_call.select(pl.col("end").alias("from"), pl.col("start").shift(-1).alias("until")).drop_nulls()
    held = kernels.sort("issued").join_asof(
        quiet, left_on="issued", right_on="from", strategy="forward", tolerance=POLL_REACH_NS, coalesce=False
    )
    inside = (pl.col("end") > pl.col("from")) & (pl.col("until") >= pl.col("end")) & (pl.col("until") <= pl.col("end") + POLL_RETURN_NS)
    return held.filter(inside).select(
        pl.col("from").alias("start"),
        pl.col("until").alias("end"),
        "name_id",
        pl.col("op").alias("awaited"),
        pl.col("end").alias("awaited_end"),
        pl.lit(value=True).alias("guessed"),
    )


def _staged_copies(copies: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Copies of pageable memory that ran inside their call: the driver stages them there, even where the call's name says Async."""
    staged = (pl.col("pinned") == False) & pl.col("copy_kind").is_in(["h2d", "d2h"]) & (pl.col("start") < pl.col("issued"))  # noqa: E712
    return (
        copies.filter(staged)
        .select(pl.col("op").alias("awaited"), pl.col("end").alias("done"), "correlation")
        .join(calls.select("start", "end", "name_id", "correlation"), on="correlation", how="inner")
    )


def kept_ranges(trace: Trace, rules: HostRules) -> pl.DataFrame:
    """The ranges that are still looked at once steps and buckets are known: those with a meaning, and long ones that may name a pause."""
    ids = _meaning(trace, rules, "garbage_collection", "data_loading", "message_passing")
    return trace.ranges.filter(pl.col("text_id").is_in(ids.implode()) | (lasting >= NAMING_NS))


def _meaning(trace: Trace, rules: HostRules, *meanings: str) -> pl.Series:
    return trace.names.filter(pl.any_horizontal(pl.col("text").str.contains(rules.range_pattern(one)) for one in meanings))["id"]


def _ranges(trace: Trace, rank: int, rules: HostRules, meaning: str) -> pl.DataFrame:
    """Ranges of a rank that show what the host does: start, end, thread, name_id."""
    return (
        trace.ranges.filter(
            (pl.col("rank") == rank) & (pl.col("kind") != "frame") & pl.col("text_id").is_in(_meaning(trace, rules, meaning).implode())
        )
        .select("start", "end", "thread", pl.col("text_id").alias("name_id"))
        .filter(pl.col("end") > pl.col("start"))
    )


def step_marks(trace: Trace, rules: HostRules) -> pl.Series:
    """The names of ranges that are steps: what lies inside one is known to do so. One that ends a step says which part of it runs."""
    return trace.names.filter(pl.col("text").str.contains(union([anchor.pattern for anchor in rules.steps if not anchor.ends])))["id"]


def _long(trace: Trace, rank: int, threads: pl.Series, calls: pl.DataFrame, rules: HostRules) -> pl.DataFrame:
    """What may name a pause: the columns of `HostActivity.long`."""
    ranges = trace.ranges.filter(
        (pl.col("rank") == rank) & pl.col("thread").is_in(threads.implode()) & ~pl.col("text_id").is_in(step_marks(trace, rules).implode())
    )
    long = lasting >= NAMING_NS
    return pl.concat(
        [
            calls.filter(long).select("start", "end", "name_id", pl.lit(value=True).alias("call"), pl.lit(value=False).alias("frame")),
            ranges.filter(long).select(
                "start",
                "end",
                pl.col("text_id").alias("name_id"),
                pl.lit(value=False).alias("call"),
                (pl.col("kind") == "frame").alias("frame"),
            ),
        ]
    ).sort("start", "end", descending=[False, True])


def python_seen(trace: Trace, features: Features) -> bool:
    """Whether ranges, operators, stacks or kernels show that Python drives the program."""
    if trace.provenance.has_python_stacks:
        return True
    return any(map(features["python"].search, texts_of(trace)))


def texts_of(trace: Trace) -> list[str]:
    """All names of kernels, calls, ranges and operators, and the descriptions of process groups."""
    return [*trace.names["text"].drop_nulls().to_list(), *trace.payloads["group"].drop_nulls().unique().to_list()]


def host_counts(host: HostActivity, inside: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Index and counts per step, by the host's clock; of synchronising calls also those that the experts' part or the optimizer waits for.

    The host is ahead of the device: the first step begins with its first launch, and the last ends once both are done with it. `inside`:
    the operations in the steps.
    """
    launches = inside.select(pl.col("call_start").min().alias("begin"), pl.col("issued").max().alias("done"))
    first, last = pl.int_range(pl.len()) == 0, pl.int_range(pl.len()) == pl.len() - 1
    hosted = windows.sort("start").with_columns(
        pl.when(first).then(pl.min_horizontal("start", pl.lit(launches["begin"][0]))).otherwise("start").alias("start"),
        pl.when(last).then(pl.max_horizontal("end", pl.lit(launches["done"][0]))).otherwise("end").alias("end"),
    )
    kernels = inside.filter(pl.col("role") != "copy")  # experts' products clear their workspace first
    follows = kernels.select("call_start", pl.col("bucket").alias("follows")).drop_nulls().sort("call_start")
    named = host.named.sort("end").join_asof(follows, left_on="end", right_on="call_start", strategy="forward", coalesce=False)
    counted = (("sync", "sync_calls_per_step"), ("allocator", "allocator_calls_per_step"), ("gc", "gc_ranges_per_step"))
    before = {"dispatch_syncs_per_step": [ROUTER, DISPATCH, EXPERT_GEMM], "optimizer_syncs_per_step": [OPTIMIZER]}
    return (
        inside_windows(named.sort("start"), hosted)
        .group_by("index")
        .agg(
            *((pl.col("cause") == cause).sum().alias(name) for cause, name in counted),
            *(((pl.col("cause") == "sync") & pl.col("follows").is_in(buckets)).sum().alias(name) for name, buckets in before.items()),
        )
    )


def launch_gaps(inside: pl.DataFrame) -> pl.DataFrame:
    """Index and `launch_gap_median_ns`: how long a thread's CPU usually takes from the end of one launching call to the begin of its next.

    Of the operations of each step, median: pauses are few and leave it as it is. A call that blocks is no part of it. Steps with few
    launches (MANY_LAUNCHES), as where a graph holds the step, have none.
    """
    calls = inside.select("index", "thread", "call_start", "issued").drop_nulls().sort("thread", "call_start")
    follows = (pl.col("thread") == pl.col("thread").shift()) & (pl.col("call_start") > pl.col("call_start").shift())  # not of one graph
    gaps = calls.with_columns((pl.col("call_start") - pl.col("issued").shift()).alias("gap")).filter(follows & (pl.col("gap") >= 0))
    per_step = gaps.group_by("index").agg(pl.len(), pl.col("gap").median().cast(pl.Int64).alias("launch_gap_median_ns"))
    return per_step.filter(pl.col("len") >= MANY_LAUNCHES).drop("len")


# ------------------------------------------------------------------------------------------------ launches


class Launches(Struct, frozen=True, kw_only=True):
    """Which host API call launched each device operation. `frame` has one row per row of `Trace.ops`, in the same order.

    Columns: call_start, issued (the end of the launching call), thread; all null where the launch was not recorded. What the driver moves
    by itself (`_of_the_driver`) has but `issued`: its own start.
    """

    frame: pl.DataFrame
    duplicates: int  # API calls that shared their correlation id with another


def attribute(trace: Trace) -> Launches:
    """Every operation's issuing call, joined on rank and correlation id (unique in a process); a CUDA graph's nodes have its launch's."""
    key = _launch_key(trace)
    calls = (
        trace.calls.lazy()
        .select(key, pl.col("start").alias("call_start"), pl.col("end").alias("issued"), "thread")
        .filter(pl.col("key").is_not_null())
        .collect()
    )
    wanted = trace.ops.select(key)
    repeated = calls.height - calls["key"].n_unique()
    duplicates = 0
    if repeated:
        calls = calls.join(wanted.filter(pl.col("key").is_not_null()).unique(), on="key", how="semi")
        unique = calls.sort("issued").unique("key", keep="last", maintain_order=True)
        duplicates, calls = calls.height - unique.height, unique
    found = wanted.join(calls, on="key", how="left", maintain_order="left").drop("key")
    return Launches(frame=_of_the_driver(trace.ops, found), duplicates=duplicates)


def _of_the_driver(ops: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """`found` with the start as `issued` of page migrations: copies that no call asked for, in a trace that tells the calls of others."""
    if found["issued"].null_count() == found.height:
        return found
    migrates = (ops["kind"] == "memcpy") & ops["correlation"].is_null()
    return found.with_columns(pl.when(migrates).then(ops["start"]).otherwise("issued").alias("issued"))


def _launch_key(trace: Trace) -> pl.Expr:
    """Rank and correlation id as one number, which joins faster than two columns; null where there is no correlation id."""
    several = trace.ops["rank"].n_unique() > 1
    key = pl.col("rank").cast(pl.Int64) * (1 << 44) + pl.col("correlation") if several else pl.col("correlation")
    return key.alias("key")
