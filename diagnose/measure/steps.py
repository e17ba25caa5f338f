"""Step windows: where each training step begins and ends on a device's clock.

Anchors, in order of trust: what the user names; a numbered iteration range; optimizer bursts; a recurring sequence of
collectives; a recurring sequence of kernels. Without any, the whole capture is one window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import Struct

from diagnose.document.device import CrossCheck, Dropped
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.taxonomy import StepAnchor
from diagnose.measure.phases import StartUp, cost_within, under_start_up, without_repeated
from diagnose.model.intervals import covered, earliest, lasting, latest, merge, total_length
from diagnose.model.statistics import mean_of, median_of
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import OPTIMIZER

STEP_RANGE = "step range"  # how the anchor that the user names is called
DISAGREEMENT = 0.05  # two anchors whose medians differ by more are reported
WARM_UP_FACTOR = 1.5  # a first step, or one after warm-up, this much longer than the median of those that follow is warm-up
FIRST_USE_FACTOR = 1.1  # the same where first-use costs explain half of what it takes longer
# steps of which the longest is at most this much longer than the shortest are steady: there FIRST_USE_FACTOR alone tells a first step
STEADY = 1.05
PART = 0.05  # a range that usually leaves more of the compute work between it and the next one outside is only a part of a step
PAUSE, PAUSE_NS = 0.1, 100_000  # the least time without work between steps, as a share of them and in ns, that the last step must not lack
SAME_TAIL = 1.5  # work after the last range, up to so many times what follows another range, belongs to the last step
LEAD = 0.1  # steps that each begin by so much of their length before the one before has ended run as a pipeline
WHOLE = 0.5  # a first or last window with less than this share of the usual compute operations is cut by the capture's edge
HARDLY_ANY = 0.1  # the same for the last of two windows
MIN_PERIOD = 20  # kernels in a recurring sequence below which it is a loop inside a step, not a step
MIN_COLLECTIVES = 4  # the same for collectives
MIN_REPEATS = 3
HOLE_NS = 1_000_000  # a pause that shows work from before the capture; this project's choice
HARDLY = 0.01  # of such a pause: what may have run before it; this project's choice
NAMING = 0.8  # share of a stretch that a range has to hold to name it; this project's choice
SAME_SEQUENCE = 0.9  # share of equal names that makes two stretches the same sequence


class HostLead(Struct, frozen=True, kw_only=True):
    """How long (ns) the host had worked in the only range before it launched its first operation, on an idle device, and the range inside
    which most of that lies, where one does.
    """

    ns: int
    range: str | None


class StepWindows(Struct, frozen=True, kw_only=True):
    """Windows of one device. `frame`: index, start, end (relative ns, disjoint, in order); dropped steps are in `every` alone.

    `lead`: of the step whose range is the only one, what no window holds; of several the next ones' lies at the end of the one before.
    `unseen_ns`: how long the device worked on what had been launched before the capture, and what is left out for that; `unseen_call`: the
    call in which the host waited for most of it, where there is one.
    """

    frame: pl.DataFrame
    every: pl.DataFrame
    anchor: str
    dropped: tuple[Dropped, ...] = ()
    cross_check: tuple[CrossCheck, ...] = ()
    lead: HostLead | None = None
    unseen_ns: int = 0
    unseen_call: str | None = None


class Anchored(Struct, frozen=True, kw_only=True):
    """One anchor's proposal: the anchor's name, and the windows with index, start, end."""

    anchor: str
    windows: pl.DataFrame
    dropped: tuple[Dropped, ...] = ()
    lead: HostLead | None = None

    @property
    def median_ns(self) -> int:
        """Median window length."""
        return int(median_of(self.windows["end"] - self.windows["start"]))


def model_work(buckets: Buckets) -> list[str]:
    """The buckets that hold work of the model, which an optimizer does not do."""
    return [bucket for bucket, spec in buckets.items() if spec.model_work]


def find_steps(
    trace: Trace,
    work: pl.DataFrame,
    rank: int,
    anchors: Sequence[StepAnchor],
    model_work: Sequence[str],
    step_range: str | None,
    start_up: StartUp,
) -> StepWindows:
    """Cut one device's operations into steps.

    `work` holds the device's operations in order of start: start, end, kind, stream, name_id, bucket, role, call_start, issued. `anchors`
    are the spellings of iteration ranges, best first; `model_work` as `model_work` gives it. `step_range` is the user's own pattern and
    goes before all. `start_up` is left out: of steps, or where none could be cut, of the one window.
    """
    seen, unseen_ns = _seen(work)
    unseen_call = _call_within(trace, rank, seen - unseen_ns, seen) if unseen_ns else None
    if unseen_ns:
        work = work.filter(pl.col("start") >= seen)
    own = [StepAnchor(id=STEP_RANGE, pattern=step_range, numbered="(" in step_range)] if step_range else []
    by_range = next((found for anchor in [*own, *anchors] if (found := _by_range(trace, work, rank, anchor)) is not None), None)
    proposals = [found for found in (by_range, _by_optimizer(work, model_work)) if found is not None]
    if not proposals:
        transport = work.filter(pl.col("role") == "transport")
        repeating = _by_recurrence(transport, work, "recurring collectives", MIN_COLLECTIVES)
        steady = work if start_up.begin is None else work.filter(pl.col("start") >= start_up.begin)
        repeating = repeating or _by_recurrence(_busiest_stream(steady), steady, "recurring kernels", MIN_PERIOD, forward=True)
        repeating = repeating or _by_graph(steady)
        proposals = [repeating] if repeating is not None else []
    proposals = _whole_first(work, proposals) if proposals else []
    if not proposals or (proposals[0].windows.height == 1 and _is_cut(trace)):
        whole = pl.DataFrame(
            {"index": [0], "start": [work["start"].min() if start_up.begin is None else start_up.begin], "end": [work["end"].max()]}
        )
        dropped = tuple(Dropped(index=index, why=CUT_OFF) for one in proposals[:1] for index in one.windows["index"])
        whole = _typed(whole)
        return StepWindows(frame=whole, every=whole, anchor="capture", dropped=dropped, unseen_ns=unseen_ns, unseen_call=unseen_call)
    best, *others = proposals
    kept, dropped = _drop_unsteady(trace, work, best.windows, rank, start_up)
    reference = Anchored(anchor=best.anchor, windows=kept)
    return StepWindows(
        frame=_typed(kept),
        every=_typed(best.windows),
        anchor=best.anchor,
        dropped=tuple(sorted((*best.dropped, *dropped), key=lambda one: one.index)),
        cross_check=tuple(_compare(reference, other) for other in others),
        lead=best.lead,
        unseen_ns=unseen_ns,
        unseen_call=unseen_call,
    )


def _call_within(trace: Trace, rank: int, begin: int, end: int) -> str | None:
    """The host call that lasts through most of a stretch (ns, relative); None where none does."""
    shared = pl.min_horizontal("end", pl.lit(end)) - pl.max_horizontal("start", pl.lit(begin))
    through = trace.calls.lazy().filter(pl.col("rank") == rank, shared >= NAMING * (end - begin))
    found = through.sort(shared, "start", descending=[True, False]).collect()["name_id"]
    return _text(trace, found)


def _text(trace: Trace, ids: pl.Series) -> str | None:
    """The text of the first id (keys into `trace.names`); None where there is none."""
    return next(iter(trace.names["text"].gather(ids.head(1))), None)


def _seen(work: pl.DataFrame) -> tuple[int, int]:
    """When what had been launched before the capture was done, and how long that took; (0, 0) where nothing shows it.

    It shows in the first operation of a stream: launched at once, and begun only after a pause in which no recorded operation ran, and
    with hardly anything before. A profiler that starts beside a busy device and sees only what is launched from then on leaves such a hole.
    """
    placed = work.select(
        "start",
        "issued",
        pl.col("end").cum_max().shift(1).alias("done"),  # of all before it; null of the very first
        lasting.cum_sum().shift(1).alias("before"),
        pl.col("stream").is_first_distinct().alias("first"),
    )
    held = placed.filter("first").select(
        "start", "before", (pl.col("start") - pl.max_horizontal("issued", "done")).alias("hole"), pl.col("issued", "done").is_null()
    )
    held = held.filter(~(pl.col("issued") | pl.col("done")) & (pl.col("hole") >= HOLE_NS) & (pl.col("before") <= HARDLY * pl.col("hole")))
    return (int(held["start"][-1]), int(held["hole"].sum())) if held.height else (0, 0)


CUT_OFF = "the file was cut off in it: what it launched may be missing"


def _is_cut(trace: Trace) -> bool:
    """Whether the trace's file ends before its content does."""
    return any(entry.code == "cut_file" for entry in trace.ledger.entries)


def _whole_first(work: pl.DataFrame, proposals: list[Anchored]) -> list[Anchored]:
    """The proposals, best first: one whose only window holds but a piece of another's steps goes behind it.

    So it is where the capture ended soon after the first range that it recorded had begun on the device, steps behind the host.
    """
    best, *others = proposals
    if not others or best.windows.height > 1:
        return proposals
    compute = work.select(pl.col("start").filter(_COMPUTES))
    usual = _compute_counts(compute, others[0].windows).median()
    piece = isinstance(usual, float) and _compute_counts(compute, best.windows).sum() < WHOLE * usual
    return [*others, best] if piece else proposals


def inside_windows(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `work` that start inside one of the windows (index, start, end), with the window's index."""
    placed = work.join_asof(
        windows.select("index", pl.col("start").alias("_begin"), pl.col("end").alias("_close")),
        left_on="start",
        right_on="_begin",
        strategy="backward",
    )
    return placed.filter(pl.col("start") < pl.col("_close")).drop("_begin", "_close")


def per_window(windows: pl.DataFrame, *parts: pl.DataFrame) -> pl.DataFrame:
    """One row per window: index, and the columns of `parts` by their index; null where a part has no row for a window."""
    table = windows.select("index")
    for part in parts:
        table = table.join(part, on="index", how="left", maintain_order="left")
    return table


def _typed(windows: pl.DataFrame) -> pl.DataFrame:
    """Windows in the types of `StepWindows`."""
    return windows.select(pl.col("index").cast(pl.Int64), pl.col("start").cast(pl.Int64), pl.col("end").cast(pl.Int64))


def _compare(best: Anchored, other: Anchored) -> CrossCheck:
    """What another anchor says of the step time."""
    disagrees = abs(other.median_ns - best.median_ns) > DISAGREEMENT * best.median_ns
    return CrossCheck(anchor=other.anchor, median_ns=other.median_ns, n=other.windows.height, disagrees=disagrees)


def _windows_from_starts(starts: pl.DataFrame, last_end: int, own_ends: Mapping[int, int] | None = None) -> pl.DataFrame:
    """Windows that begin at `starts` (index, start; in order) and end where the next begins; the last ends at `last_end`.

    Those in `own_ends` (by index) end there, or where the next begins if that is earlier.
    """
    following = pl.col("start").shift(-1).fill_null(last_end)
    own = pl.col("index").replace_strict(own_ends or {}, default=None, return_dtype=pl.Int64)
    return starts.with_columns(pl.min_horizontal(following, own).alias("end")).filter(pl.col("end") > pl.col("start"))


def _windows_from_ends(work: pl.DataFrame, ends: pl.Series) -> pl.DataFrame:
    """Windows from the first operation after one end to the next end; what leads up to the first end may be cut, and is none.

    An end after which nothing starts begins no window: work that runs side by side may end later still, and the last window holds it.
    """
    starts = work["start"].unique().sort()
    places = starts.search_sorted(ends.head(-1))
    begins = starts.gather(places.filter(places < len(starts)))
    windows = pl.DataFrame({"index": pl.arange(1, len(begins) + 1, eager=True), "start": begins})
    return _windows_from_starts(windows, latest(ends) if len(ends) else 0)


def _with_first(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The windows, and before them what leads up to the first where it is a whole step: as many compute operations as are usual."""
    if windows.is_empty():
        return windows
    compute = work.select(pl.col("start").filter(_COMPUTES))
    first = pl.DataFrame({"index": [0], "start": [compute["start"].min()], "end": [windows["start"][0]]}, schema=windows.schema)
    counts = _compute_counts(compute, pl.concat([first, windows]))
    usual = counts[1:].median()
    return pl.concat([first, windows]) if isinstance(usual, int | float) and counts[0] == usual else windows


_COMPUTES = (pl.col("role") == "compute") & (pl.col("end") > pl.col("start"))


def _compute_counts(compute: pl.DataFrame, windows: pl.DataFrame) -> pl.Series:
    """Operations (start) that begin in each window."""
    placed = inside_windows(compute, windows).group_by("index").len()
    return per_window(windows, placed)["len"].fill_null(0).cast(pl.Int64)


# ------------------------------------------------------------------------------------------------ iteration ranges


def _by_range(trace: Trace, work: pl.DataFrame, rank: int, anchor: StepAnchor) -> Anchored | None:
    """Windows from host ranges whose text matches: each begins at the first operation launched inside the range."""
    number = pl.col("text").str.extract(anchor.pattern, 1).cast(pl.Int64, strict=False) if anchor.numbered else pl.lit(None, dtype=pl.Int64)
    names = trace.names.filter(pl.col("text").str.contains(anchor.pattern)).select(
        pl.col("id").alias("text_id"), pl.col("text"), number.alias("number")
    )
    if names.is_empty():
        return None
    ranges = (
        trace.ranges.lazy()
        .filter((pl.col("rank") == rank) & pl.col("kind").is_in(["push_pop", "start_end", "annotation", "operator"]))
        .join(names.lazy(), on="text_id")
        .select("start", "end", "number", "text", "thread")
        .sort("start")
        .collect()
    )
    if ranges.is_empty():
        return None
    launched = (
        work.select("start", "end", "call_start", "thread", "role", "kind").filter(pl.col("call_start").is_not_null()).sort("call_start")
    )
    ranges = _outermost(_one_thread(ranges, launched))
    inside = _launched_inside(ranges, launched)
    if inside.is_empty():
        return None
    name = f"{STEP_RANGE if anchor.id == STEP_RANGE else 'range'} {_generic(ranges['text'][0])}"
    if anchor.ends:
        ends = inside.group_by("range_start").agg(pl.col("end").max()).sort("range_start")["end"].cum_max().unique(maintain_order=True)
        windows = _with_first(work, _windows_from_ends(work, ends.head(-1) if _is_open(ranges, trace) else ends))
        return None if windows.is_empty() else Anchored(anchor=f"end of {name}", windows=windows)
    per_range = _begins(inside, work)
    numbered = per_range["number"].null_count() == 0 and per_range["number"].is_unique().all()
    index = per_range["number"] if numbered else pl.Series("number", range(per_range.height), dtype=pl.Int64)
    tail = _tail(ranges, launched)
    lead = _lead(per_range)
    last_end = max(latest(per_range["end"]), tail or 0) - lead
    windows = pl.DataFrame({"index": index, "start": per_range["start"]})
    dropped: tuple[Dropped, ...] = ()
    alone = _before_unrecorded(per_range, ranges, numbered=bool(numbered))
    windows = _windows_from_starts(windows, last_end, {int(index[place]): int(per_range["end"][place]) - lead for place in alone})
    if alone.len() and _leaves_out(ranges, launched) > PART:
        why = "its range holds only a part of the step, and the step after it was not recorded"
        dropped = tuple(Dropped(index=int(index[place]), why=why) for place in alone)
        windows = windows.filter(~pl.col("index").is_in([one.index for one in dropped]))
    if _is_open(ranges, trace):
        dropped += (Dropped(index=int(windows["index"][-1]), why="its range was still open at the capture's end"),)
        windows = windows.head(-1)
    elif tail is None and windows.height >= MIN_REPEATS and _leaves_out(ranges, launched) > PART:
        why = "its range holds only a part of the step, and no next one tells where it ends"
        dropped += (Dropped(index=int(windows["index"][-1]), why=why),)
        windows = windows.head(-1)
    if windows.is_empty():
        return None
    idle = ranges.join(per_range, left_on="start", right_on="range_start", how="anti") if numbered else ranges.clear()
    dropped += tuple(
        Dropped(index=number, why="its range launched nothing on this device")
        for number in idle["number"].drop_nulls().unique().sort().to_list()
    )
    return Anchored(anchor=name, windows=windows, dropped=dropped, lead=_host_lead(trace, work, rank, inside))


def _host_lead(trace: Trace, work: pl.DataFrame, rank: int, inside: pl.DataFrame) -> HostLead | None:
    """What the host did in the only range before it launched anything; None where there are several. `inside`: what ranges launched."""
    if inside["range_start"].n_unique() != 1:
        return None
    begin, first = earliest(inside["range_start"]), min(earliest(inside["call_start"]), earliest(inside["start"]))
    done = work.filter(pl.col("start") < first)["end"].max()
    begin = max(begin, done) if isinstance(done, int) else begin
    if begin >= first:
        return None
    own = pl.col("rank") == rank, pl.col("start") >= begin, pl.col("end") <= first, pl.col("kind") != "gpu_annotation"
    most = pl.col("end") - pl.col("start") >= NAMING * (first - begin)
    held = (
        trace.ranges.lazy().filter(*own, most).select("text_id", (~pl.col("kind").is_in(["python", "frame"])).alias("user"), "start", "end")
    )
    chosen = held.sort("user", pl.col("end") - pl.col("start"), descending=True).collect()
    return HostLead(ns=first - begin, range=_text(trace, chosen["text_id"]))


def _before_unrecorded(per_range: pl.DataFrame, ranges: pl.DataFrame, *, numbered: bool) -> pl.Series:
    """Places in `per_range` of the steps that the next one does not follow: numbers are left out, or a range has no operation, and there
    was time for a step.

    So it is between two cycles of a profiler that pauses, and where events were lost: what passed there belongs to no recorded step.
    """
    own = ranges.with_row_index("place").join(per_range, left_on="start", right_on="range_start", how="semi", maintain_order="left")
    skips = own["place"].cast(pl.Int64).diff() > 1
    if numbered:
        skips |= own["number"].diff() > 1
    pause, length = own["start"].shift(-1) - own["end"], own["end"] - own["start"]
    return (skips.shift(-1) & (pause > WHOLE * length)).fill_null(value=False).arg_true()


def _is_open(ranges: pl.DataFrame, trace: Trace) -> bool:
    """Whether the last of the ranges was still open at the capture's end; such a range ends with the last event."""
    return any(entry.code == "open_range" for entry in trace.ledger.entries) and int(ranges["end"][-1]) >= latest(trace.ranges["end"])


def _begins(inside: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Per range (range_start, number): when its first operation began, and its last ended.

    What began before the compute of the ranges before was done is a prefetch: it belongs to this step but does not begin it.
    """
    computing = (pl.col("role") == "compute") & (pl.col("kind") == "kernel")
    reach = inside.group_by("range_start").agg(pl.col("end").filter(computing).max().alias("reach")).sort("range_start")
    first = int(reach["range_start"][0])
    own = inside.filter(computing & (pl.col("range_start") == first))["start"].min()
    earlier = pl.col("call_start").is_null() | (pl.col("call_start") < first)
    left = None if own is None else work.filter(computing & earlier & (pl.col("start") < own))["end"].max()  # of before the first range
    before = reach.select("range_start", pl.col("reach").fill_null(strategy="forward").cum_max().shift(1, fill_value=left))
    begins = computing | (pl.col("start") >= pl.col("reach").fill_null(pl.col("start")))
    return (
        inside.join(before, on="range_start", how="left")
        .group_by("range_start")
        .agg(pl.coalesce(pl.col("start").filter(begins).min(), pl.col("start").min()), pl.col("end").max(), pl.col("number").first())
        .sort("range_start")
        .with_columns(pl.col("start").cum_max())  # a kernel that overtakes the step before it does not begin its own step earlier
    )


def _lead(per_range: pl.DataFrame) -> int:
    """By how much each step begins before the one before has ended (the median); 0 where not all of them do by a notable part.

    A pipeline looks up the rows of the next batch during this one: each window then holds the beginning of one step and the rest of the one
    before, and what is left of the last belongs to no window, since nothing runs beside it.
    """
    if per_range.height < MIN_REPEATS:
        return 0
    over, length = per_range["end"].head(-1) - per_range["start"].slice(1), per_range["start"].diff().drop_nulls()
    usual = int(median_of(length))
    return int(median_of(over)) if int(over.min() or 0) > LEAD * usual else 0  # type: ignore[arg-type]


def _tail(ranges: pl.DataFrame, launched: pl.DataFrame) -> int | None:
    """When the last operation launched after the last range ended, where as much follows other ranges too: it belongs to the last step."""
    done = pl.concat([pl.Series("ns", [0], dtype=pl.Int64), (launched["end"] - launched["start"]).cum_sum().cast(pl.Int64)])
    edges = {name: done.gather(launched["call_start"].search_sorted(ranges[name])) for name in ("start", "end")}
    most = (edges["start"].slice(1) - edges["end"].head(-1)).max()
    tail = int(done[-1]) - int(edges["end"][-1])
    if not isinstance(most, int) or not 0 < tail <= SAME_TAIL * most:
        return None
    return latest(launched.filter(pl.col("call_start") >= ranges["end"][-1])["end"])


def _leaves_out(ranges: pl.DataFrame, launched: pl.DataFrame) -> float:
    """Of the compute work from one range's start to the next one's, the share launched after the range's end: the median of all."""
    compute = launched.filter(pl.col("role") == "compute")
    done = pl.concat([pl.Series("ns", [0], dtype=pl.Int64), (compute["end"] - compute["start"]).cum_sum().cast(pl.Int64)])
    edges = {name: done.gather(compute["call_start"].search_sorted(ranges[name])) for name in ("start", "end")}
    whole = edges["start"].diff().drop_nulls()
    outside = edges["start"].slice(1) - edges["end"].head(-1)
    shares = (outside / whole).filter(whole > 0)
    return median_of(shares)


def _generic(text: str) -> str:
    """A range's text with its digits replaced, to name the anchor: ProfilerStep#12 → ProfilerStep#N."""
    return re.sub(r"\d+", "N", text)[:80]


def _launched_inside(ranges: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Operations launched inside one of `ranges` (disjoint, in order), with range_start and the range's number."""
    return launched.join_asof(
        ranges.select(pl.col("start").alias("range_start"), pl.col("end").alias("range_end"), "number"),
        left_on="call_start",
        right_on="range_start",
        strategy="backward",
    ).filter(pl.col("call_start") < pl.col("range_end"))


def _one_thread(ranges: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """The ranges of the thread that itself launches most inside its own; the same steps may be marked by loaders and helpers too."""
    counts = []
    for (thread,), own in ranges.group_by("thread", maintain_order=True):
        inside = _launched_inside(_outermost(own), launched)
        counts.append((int((inside["thread"] == thread).sum()), inside.height, own))
    return max(counts, key=lambda found: found[:2])[2]


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges of one thread that do not lie inside an earlier one (nested calls); each ends where the next begins at the latest."""
    reach = pl.col("end").cum_max().shift(1)
    outer = ranges.filter((pl.col("end") > reach).fill_null(value=True))
    return outer.with_columns(pl.min_horizontal("end", pl.col("start").shift(-1)).alias("end"))


# ------------------------------------------------------------------------------------------------ optimizer bursts


def _by_optimizer(work: pl.DataFrame, model_work: Sequence[str]) -> Anchored | None:
    """Windows that end with bursts of optimizer kernels; a burst is over where the model then works about as long as in a step."""
    kernels = work.filter((pl.col("kind") == "kernel") & (pl.col("end") > pl.col("start"))).select("start", "end", "bucket")
    is_optimizer = kernels["bucket"] == OPTIMIZER
    if int(is_optimizer.sum()) < 2 * MIN_REPEATS:
        return None
    other_work = pl.when(pl.col("bucket").is_in(model_work)).then(lasting).otherwise(0).cum_sum()
    bursts = kernels.with_columns(other_work.alias("other")).filter(pl.col("bucket") == OPTIMIZER)
    between = bursts["other"].diff()
    largest = int(between.max() or 0)  # type: ignore[arg-type]
    usual = between.filter(between * 10 >= largest).median()  # distances between steps, an evaluation or a checkpoint among them
    limit = int(usual) // 2 if isinstance(usual, int | float) else 0
    if limit == 0:
        return None
    grouped = (
        bursts.with_columns((between > limit).fill_null(value=False).cum_sum().alias("burst"))
        .group_by("burst")
        .agg(pl.col("start").min(), pl.col("end").max(), pl.len().alias("n"))
        .sort("burst")
    )
    counts = grouped["n"].sort()
    if grouped.height < MIN_REPEATS or counts[0] * 2 < counts[-1]:
        return None
    return Anchored(anchor="optimizer kernels", windows=_windows_from_ends(work, grouped["end"]))


# ------------------------------------------------------------------------------------------------ recurring sequences


def _busiest_stream(work: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the stream that computes longest; of collectives, which may last longer, a few names say nothing of steps."""
    kernels = work.filter(pl.col("kind") == "kernel")
    if kernels.is_empty():
        return kernels
    computing = lasting.filter(pl.col("role") == "compute").sum()
    busiest = kernels.group_by("stream").agg(computing.alias("busy")).sort("busy", "stream")["stream"][-1]
    return kernels.filter(pl.col("stream") == busiest)


def _by_recurrence(kernels: pl.DataFrame, work: pl.DataFrame, anchor: str, min_period: int, *, forward: bool = False) -> Anchored | None:
    """Windows from a sequence of names that repeats: the rarest name that comes back at regular places marks the step.

    A training step holds a backward pass: a sequence that repeats without one is a layer. `forward`: where nothing in the capture belongs
    to a backward pass, iterations are looked for (`_iterations`).
    """
    names = kernels["name_id"]
    n = len(names)
    if n < MIN_REPEATS * max(min_period, 2):
        return None
    phased = work.filter(pl.col("phase").is_in(["forward", "backward"])).select("start", pl.col("phase").cast(pl.String))
    training = phased["phase"].n_unique() == 2
    if not training and not (forward and "backward" not in phased["phase"]):
        return None
    counts = names.value_counts(sort=False).filter(pl.col("count") >= MIN_REPEATS).sort("count", "name_id").head(8)
    for name_id, count in counts.iter_rows():
        period = _regular_period(names, name_id, count)
        if period is None or period < min_period:
            continue
        places = (names == name_id).arg_true().cast(pl.Int64)
        if not training:
            windows = _iterations(kernels, places, period, work)
            if windows is not None:
                return Anchored(anchor=f"{anchor}, iterations without backward", windows=windows)
            continue
        windows = _windows_from_marks(kernels, places)
        if inside_windows(phased, windows).select("index", "phase").unique().height == 2 * windows.height:  # each window holds both
            return Anchored(anchor=anchor, windows=windows)
    return None


def _by_graph(work: pl.DataFrame) -> Anchored | None:
    """Windows from the replays of one CUDA graph that was traced as a whole and does nearly all of the work."""
    graphs = (
        work.filter(pl.col("kind") == "graph").group_by("name_id").agg(pl.len().alias("n"), lasting.sum().alias("ns")).sort("ns", "name_id")
    )
    if graphs.is_empty():
        return None
    name_id, n, ns = graphs.row(-1)
    if n < MIN_REPEATS or ns < SAME_SEQUENCE * total_length(work):
        return None
    starts = work.filter((pl.col("kind") == "graph") & (pl.col("name_id") == name_id)).select("start").with_row_index("index")
    return Anchored(anchor="replays of one graph", windows=_windows_from_starts(starts, latest(work["end"])))


def _windows_from_marks(kernels: pl.DataFrame, places: pl.Series) -> pl.DataFrame:
    """Windows from each place in `kernels` to the next."""
    starts = kernels["start"].gather(places)
    windows = pl.DataFrame({"index": range(len(places) - 1), "start": starts[:-1], "end": starts[1:]})
    return windows.filter(pl.col("end") > pl.col("start"))


def _iterations(kernels: pl.DataFrame, places: pl.Series, period: int, work: pl.DataFrame) -> pl.DataFrame | None:
    """Windows of iterations of a forward pass, by the `places` of a name that comes back every `period` kernels.

    Layers come back too. Where the distance is longer now and then, always after as many repetitions, those were layers and the longer
    distances lie between iterations. Where it never is, the repetitions are iterations if each fetches a result and no other kernel comes
    before or after them: one pass over layers has a head and a tail.
    """
    names = kernels["name_id"]
    longer = (places.diff() > max(period + 1, period * 51 // 50)).fill_null(value=False)
    if not longer.any():
        first, last = int(places[0]), int(places[-1])
        between = names.slice(first, last - first).unique()
        alone = pl.concat([names.head(first), names.slice(last)]).is_in(between.implode()).all()
        windows = _windows_from_marks(kernels, places)
        fetched = inside_windows(work.filter(pl.col("copy_kind") == "d2h").select("start"), windows)["index"].n_unique()
        return windows if alone and fetched >= SAME_SEQUENCE * windows.height else None
    begins = longer.arg_true().cast(pl.Int64)
    layers = pl.concat([begins.head(1), begins.diff().drop_nulls(), pl.Series([len(places) - int(begins[-1])])])
    usual = max(layers.to_list())
    if any(count != usual for count in layers[1:-1]):
        return None
    head = int(places[0]) if layers[0] == usual else 0  # kernels before the first layer's mark, where the first iteration is whole
    marks = places.gather(pl.concat([pl.Series([0] if layers[0] == usual else [], dtype=pl.Int64), begins])) - head
    windows = _windows_from_marks(kernels, marks)
    if layers[-1] == usual and head:
        last_window = {"index": [windows.height], "start": [kernels["start"][int(marks[-1])]], "end": [latest(kernels["end"])]}
        windows = pl.concat([windows, pl.DataFrame(last_window, schema=windows.schema)])
    return windows if windows.height >= MIN_REPEATS - 1 else None


def _regular_period(names: pl.Series, name_id: int, count: int) -> int | None:
    """Distance in kernels between occurrences of a name, where it is constant, covers the trace and repeats the same names."""
    distances = (names == name_id).arg_true().cast(pl.Int64).diff().drop_nulls()
    period = int(median_of(distances))
    steady = mean_of(abs(distances - period) <= max(1, period // 50))
    if period < 1 or steady < SAME_SEQUENCE or period * (count + 1) < 0.8 * len(names):
        return None
    equal = float((names.slice(period) == names.slice(0, len(names) - period)).mean() or 0.0)  # type: ignore[arg-type]
    return period if equal >= SAME_SEQUENCE else None


# ------------------------------------------------------------------------------------------------ what is no steady step


def _drop_unsteady(
    trace: Trace, work: pl.DataFrame, windows: pl.DataFrame, rank: int, start_up: StartUp
) -> tuple[pl.DataFrame, tuple[Dropped, ...]]:
    """Windows without warm-up, CUDA graph capture, and what the capture's edges cut; if nothing would be left, all of them."""
    reasons = _cut(work, windows)
    if windows.height > 1 and _is_cut(trace):
        reasons.setdefault(int(windows["index"][-1]), CUT_OFF)
    for index, name in under_start_up(work, windows, start_up.ranges).items():
        reasons.setdefault(index, f"inside the range {name!r}: start-up")
    whole = windows.filter(~pl.col("index").is_in(list(reasons)))
    reasons = _warm_up(whole, without_repeated(start_up, whole, work)) | reasons
    for index in _capturing(trace, work, windows, rank):
        reasons.setdefault(index, "a CUDA graph was captured in it")
    if len(reasons) == windows.height:
        return windows, ()
    kept = windows.filter(~pl.col("index").is_in(list(reasons)))
    return kept, tuple(Dropped(index=index, why=why) for index, why in sorted(reasons.items()))


def _cut(work: pl.DataFrame, windows: pl.DataFrame) -> dict[int, str]:
    """The first and the last window where far fewer compute operations ran than in the others; and the last one that lacks their pause."""
    counts = _compute_counts(work.select(pl.col("start").filter(_COMPUTES)), windows)
    if len(counts) < 2:
        return {}
    places = {0: (counts[1:], "beginning"), len(counts) - 1: (counts[:-1], "end")} if len(counts) > 2 else {1: (counts[:1], "end")}
    found = {}
    for place, (others, edge) in places.items():
        usual = int(median_of(others))
        if counts[place] < (WHOLE if len(counts) > 2 else HARDLY_ANY) * usual:
            why = f"cut by the capture's {edge}: {counts[place]} compute operations where the others have {usual}"
            found[int(windows["index"][place])] = why
    missing = _missing_pause(work, windows)
    if missing > 0:
        why = f"cut by the capture's end: the {missing / 1e6:.1f} ms without work that follow the others are not in it"
        found.setdefault(int(windows["index"][-1]), why)
    return found


def _missing_pause(work: pl.DataFrame, windows: pl.DataFrame) -> int:
    """How many ns the last window ends too early: the usual time between a step's last operation and the next one's first; 0 if little."""
    if windows.height < MIN_REPEATS:
        return 0
    done = inside_windows(work.select("start", "end"), windows).group_by("index").agg(pl.col("end").max().alias("done"))
    idle = windows["end"] - per_window(windows, done)["done"].fill_null(windows["end"])
    missing = int(median_of(idle[:-1])) - max(int(idle[-1]), 0)
    return missing if missing > max(PAUSE_NS, PAUSE * median_of(windows["end"] - windows["start"])) else 0


def _warm_up(windows: pl.DataFrame, start_up: StartUp) -> dict[int, str]:
    """The steps at the beginning that take longer than those that follow: by far, or by first-use costs that lie in them.

    What the program pays again and again (`start_up.again`) is left out of all lengths: the steps that happen to pay more are no warm-up.
    """
    found: dict[int, str] = {}
    paid = covered(windows, merge(start_up.again))
    rows = windows.with_columns((lasting - paid).alias("length")).rows(named=True)
    for place, row in enumerate(rows):
        following = [one["length"] for one in rows[place + 1 :]]
        rest = pl.Series(following, dtype=pl.Int64).median()
        if not isinstance(rest, int | float):
            break
        steady = max(following) <= STEADY * min(following)
        cost = cost_within(start_up.costs, row["start"], row["end"])
        if row["length"] > FIRST_USE_FACTOR * rest and 2 * cost >= row["length"] - rest:
            found[row["index"]] = f"warm-up: {cost / 1e6:.1f} ms of first-use costs in {row['length'] / 1e6:.1f} ms"
        elif row["length"] > (FIRST_USE_FACTOR if steady and not found else WARM_UP_FACTOR) * rest and (
            len(following) >= MIN_REPEATS or (steady and len(following) == MIN_REPEATS - 1)
        ):
            found[row["index"]] = f"warm-up: {row['length'] / 1e6:.3f} ms against a median of {rest / 1e6:.3f} ms"
        else:
            break
    return found


def _capturing(trace: Trace, work: pl.DataFrame, windows: pl.DataFrame, rank: int) -> list[int]:
    """Indices of windows with work that was launched right after the host captured a CUDA graph."""
    ids = trace.names.filter(pl.col("text").str.contains("(?i)^(cuda|cu|hip)StreamBeginCapture|GraphInstantiate"))["id"]
    calls = trace.calls.filter((pl.col("rank") == rank) & pl.col("name_id").is_in(ids.implode())).select("start").sort("start")
    launched = work.select("call_start", pl.col("start").alias("began")).filter(pl.col("call_start").is_not_null()).sort("call_start")
    if calls.is_empty() or launched.is_empty():
        return []
    following = calls.join_asof(launched, left_on="start", right_on="call_start", strategy="forward").filter(pl.col("began").is_not_null())
    return inside_windows(following.select(pl.col("began").alias("start")).sort("start"), windows)["index"].unique().sort().to_list()
