"""What the host did while compute was launch-starved: by call and range, and what of it belongs to causes of their own."""

from __future__ import annotations

import polars as pl

from diagnose.measure.host import HostActivity
from diagnose.measure.waits.hold_ups import HOST_WORK, PLAIN_WORK
from diagnose.measure.waits.stalls import HOST_CAUSES, Stalls
from diagnose.model.intervals import covered, lasting, merge, overlaps, total_length
from diagnose.model.trace import Trace

# This project's own choices for the range that is named for launch-starved time: it holds so much of that, and takes no more than this
# share of the time that it would take if the rest of the step were as bad.
NEARLY_ALL, DENSER = 0.8, 0.8
NAMED_PAUSES = 40  # of the longest pieces in pauses so many are named
FRAME_TO_PAUSE = 2  # how much longer than the piece a Python frame may take that names it (this project's choice)


def host_costs(found: Stalls, host: HostActivity, trace: Trace) -> pl.DataFrame:
    """index, name, cause, ns, count, pause: launch-starved time by the call or range that the host was in.

    Plain host work in long pauses (`pause`) goes by the innermost call or range that covers at least half of it, where one does.
    """
    causes = {"allocator": "allocator", "host_sync": "sync", "first_use": "first_use"}
    pieces = found.pieces.filter(pl.col("cause").is_in([*causes, *HOST_WORK])).with_columns(
        pl.col("cause").replace(causes).alias("cause"), lasting.alias("ns")
    )
    named = (
        pieces.sort("start")
        .join_asof(
            host.named.select(pl.col("start").alias("call_start"), "name_id", "cause"),
            left_on="start",
            right_on="call_start",
            by="cause",
            strategy="backward",
            check_sortedness=False,
        )
        .join(_pause_names(found, host), on="start", how="left")
        .with_columns(pl.coalesce("pause_id", "name_id").alias("name_id"))
        .join(trace.names.select(pl.col("id").alias("name_id"), "text"), on="name_id", how="left")
    )
    nothing = "no CUDA call on the launching threads"
    plain = pl.col("cause").replace_strict(
        {
            "launch": "launching API calls",
            "python": nothing,
            "host": nothing,
            "first_use": "first use of code and memory",
            "recompilation": "compilation that comes back",
        },
        default="unknown call",
    )
    return (
        named.with_columns(pl.coalesce("text", plain).alias("name"))
        .group_by("index", "name", "cause")
        .agg(pl.col("ns").sum(), pl.len().alias("count"), pl.col("pause_id").is_not_null().any().alias("pause"))
        .sort("index", "name", "cause")
    )


def unexplained_calls(found: Stalls, host: HostActivity, trace: Trace) -> pl.DataFrame:
    """name, ns: dependency-stalled time during which the host was in a synchronising call of that name, most first.

    Both may wait for the same: work of another process, or work that began before the capture.
    """
    pieces = found.pieces.filter(pl.col("cause") == "dependency_stalled").select("start", "end").sort("start")
    syncs = host.named.filter(pl.col("cause") == "sync").join(trace.names.select(pl.col("id").alias("name_id"), "text"), on="name_id")
    rows = [(name, total_length(common)) for (name,), calls in syncs.group_by("text") if (common := overlaps(pieces, merge(calls))).height]
    return pl.DataFrame(rows, schema={"name": pl.String, "ns": pl.Int64}, orient="row").sort("ns", "name", descending=[True, False])


def _pause_names(found: Stalls, host: HostActivity) -> pl.DataFrame:
    """Start (of a piece in a long pause), pause_id: the name of the innermost call or range that covers at least half of the piece.

    A Python frame around much more than the pause (the loop, the program) tells nothing of it.
    """
    work = found.worked.filter(pl.col("pause") & ~pl.col("recurs") & pl.col("cause").is_in(list(PLAIN_WORK)))
    longest = work.sort("length", "start", descending=[True, False]).head(NAMED_PAUSES)
    rows = []
    for start, length, cause in longest.select("start", "length", "cause").iter_rows():
        common = pl.min_horizontal("end", pl.lit(start + length)) - pl.max_horizontal("start", pl.lit(start))
        wide = pl.col("frame") & (lasting > FRAME_TO_PAUSE * length)
        around = host.long.filter((common * 2 >= length) & (pl.col("call") == (cause == "launch")) & ~wide)
        if around.height:
            rows.append((start, around["name_id"][-1]))
    return pl.DataFrame(rows, schema={"start": pl.Int64, "pause_id": host.long.schema["name_id"]}, orient="row")


def late_range(found: Stalls, marks: pl.DataFrame, windows: pl.DataFrame, names: pl.DataFrame) -> str | None:
    """The user's range inside which nearly all of the launch-starved time lies, more than its own length tells; the shortest such.

    `marks`: thread, start, end, text_id of the user's ranges. None where no range holds that much, or only one that holds the step as well.
    """
    late = merge(found.pieces.filter(pl.col("cause").is_in(list(HOST_CAUSES))))
    steps = merge(windows)
    lost, whole = (total_length(one) for one in (late, steps))
    lengths = marks.group_by("text_id").agg(lasting.sum().alias("ns"))
    if not lost:
        return None
    wide = marks.join(lengths.filter(pl.col("ns") >= NEARLY_ALL * lost), on="text_id", how="semi")
    spans = merge(wide, ["text_id"])
    common = spans.select("text_id", covered(spans, late).alias("inside"), covered(spans, steps).alias("own")).group_by("text_id").sum()
    held = [
        (own, str(names["text"][text_id]))
        for text_id, inside, own in common.iter_rows()
        if inside >= NEARLY_ALL * lost and own * lost <= DENSER * inside * whole
    ]
    return min(held)[1] if held else None


def long_gaps(found: Stalls, host: HostActivity, overhead: pl.DataFrame) -> pl.DataFrame:
    """index, longest_host_gap_ns (launch-starved), and less what is shadowed: host_gap_excess_ns, of that host_gap_profiler_ns,
    batch_pauses_ns, layer_pauses_ns, data_loading_ns, recompilation_ns, message_passing_ns.

    Where each step has ranges of the loader alone, without a call, a pause before a forward pass outside them fetches no batch. `overhead`:
    start, end of the profiler's own spans, disjoint, by start.
    """
    loading = host.named.filter(pl.col("cause") == "loading")
    unnamed = int((covered(loading, host.in_call) == 0).sum()) < found.pieces["index"].n_unique()
    starved = found.pieces.filter(~pl.col("cause").is_in(["blocking", "dependency_stalled", "first_use"]))
    gaps = starved.group_by("index", "op").agg(lasting.sum().alias("gap"))
    work = found.worked
    plain = pl.col("pause") & pl.col("cause").is_in(list(PLAIN_WORK))
    claimed = work.group_by("index").agg(
        pl.col("ns").filter(condition).sum().alias(name)
        for name, condition in (
            ("host_gap_excess_ns", plain & ~pl.col("recurs")),
            ("batch_pauses_ns", plain & ~pl.col("recurs") & pl.col("opens") & unnamed),
            ("layer_pauses_ns", plain & pl.col("recurs")),
            ("data_loading_ns", pl.col("cause") == "loading"),
            ("recompilation_ns", pl.col("cause") == "recompilation"),
            ("message_passing_ns", pl.col("cause") == "message_passing"),
        )
    )
    longest = gaps.group_by("index").agg(pl.col("gap").max().alias("longest_host_gap_ns"))
    profiled = _covered(work.filter(plain & ~pl.col("recurs")), overhead)
    return longest.join(claimed, on="index", how="left").join(profiled, on="index", how="left")


def _covered(pauses: pl.DataFrame, overhead: pl.DataFrame) -> pl.DataFrame:
    """index, host_gap_profiler_ns: what of `pauses` (index, start, length, ns; disjoint, by start) lies inside the profiler's own spans."""
    common = overlaps(pauses.select("start", (pl.col("start") + pl.col("length")).alias("end")), overhead)
    inside = common.group_by("left").agg(lasting.sum().alias("common"))
    rows = pauses.select("index", "ns").with_row_index("left").join(inside, on="left")
    return rows.group_by("index").agg(pl.min_horizontal("ns", "common").sum().alias("host_gap_profiler_ns"))
