"""Start-up is not the run: what a program pays once is recognised, measured as phases, and kept out of what is judged.

A first-use cost is a call that takes milliseconds where it is made for the first time (code is loaded, a context is created, memory grows)
and that no full queue explains, or a compilation. Start-up is what lies before the steady work: such costs, uploads before the first
compute kernel, and ranges that say so. What comes back in later steps is no first use: a program that compiles again
and again pays for it. `trace_rules/hosts.yaml` holds the names and the limits.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.device import LongestCall, Phase
from diagnose.knowledge.taxonomy import HostRules
from diagnose.model.intervals import covered, earliest, lasting, latest, merge, total_length, union_length
from diagnose.model.statistics import median_of
from diagnose.model.trace import Trace

_COSTS = {"start": pl.Int64, "end": pl.Int64, "name": pl.String}
LONGER_FIRST = 1.5  # this project's choice, as for warm-up steps
USER_KINDS = ["push_pop", "start_end", "annotation"]


class StartUp(Struct, frozen=True, kw_only=True):
    """What one process paid once, as one of its devices saw it. Host's times, but for `begin`.

    `costs`: start, end, name of each first-use cost (a call, with the kernel that it launched), and whether it `compiles`, by start.
    `again`: the same of such costs that come back, once steps are known (`without_repeated`). `ranges`: start, end, name of ranges that are
    start-up by their name. `begin`: when the first operation of the steady work ran; None where nothing had to be left out.
    """

    costs: pl.DataFrame
    again: pl.DataFrame
    ranges: pl.DataFrame
    begin: int | None
    phases: tuple[Phase, ...]
    left: float  # share of the compute work that lies behind `begin`; 1 where nothing is left out
    before: float  # share of the same time that lies before `begin`, or that all this takes where it is more
    share: float  # of `span_ns`
    span_ns: int  # from the first of all this, or the first operation, to the last operation


def start_up(trace: Trace, work: pl.DataFrame, rank: int, rules: HostRules) -> StartUp:
    """Find the start-up of one device. `work`: its operations in order of start, with call_start, issued, thread, kind, role, name_id."""
    limits = rules.start_up
    computes = (pl.col("role") == "compute") & (pl.col("end") > pl.col("start"))
    placed = work.select(
        pl.col("start").filter(computes),
        pl.coalesce("call_start", "start").filter(computes).alias("at"),
        lasting.filter(computes).alias("ns"),
    ).sort("at")
    uploads = _uploads(work, limits.long_call_ns)
    costs = _costs(trace, work, rank, rules)
    ranges = _leading_ranges(trace, placed, rank, rules)
    ends = [*ranges["end"], *_followed(costs["end"], placed, limits.steady_share)]
    behind = placed.filter(pl.col("at") >= max(ends)) if ends else placed.clear()
    begins = [one for one in (behind["start"].min(), placed["start"].min() if not uploads.is_empty() else None) if isinstance(one, int)]
    begin = max(begins, default=None)
    phases = _phases(trace, rank, costs, ranges, uploads, max(ends, default=None))
    work_ns = int(placed["ns"].sum())
    left = int(placed.filter(pl.col("start") >= begin)["ns"].sum()) / work_ns if begin is not None and work_ns else 1.0
    paid = pl.concat([frame.select("start", "end") for frame in (costs, ranges, uploads)])
    first, last = min(earliest(work["start"]), *(phase.start_ns for phase in phases), 2**62), latest(work["end"])
    span, taken = max(last - first, 1), union_length(paid["start"], paid["end"])
    share = min(taken / span, 1.0)
    before = max((begin - first) / span, share) if begin is not None else share
    return StartUp(
        costs=costs, again=costs.clear(), ranges=ranges, begin=begin, phases=phases, share=share, span_ns=span, before=before, left=left
    )


PAID = 0.1  # of a step: with so much in first uses they are paid there; this project's choice
CLEAN = 0.02  # of a step: with no more they are not; this project's choice
REPEATED = 2  # steps that pay again after one that did not: one alone may be a second shape, met once; this project's choice
SETTLED = 2  # steps that pay nothing, before one that does: what is compiled so late was compiled before; this project's choice
EACH = 4  # steps of which each pays, the least at least half of the most: this project's choice


def pays_again(shares: pl.Series) -> pl.Series:
    """Whether each step pays first uses after one that did not. `shares`: of each step's time, in order."""
    return (shares >= PAID) & (shares <= CLEAN).cum_max().shift(1, fill_value=False)


def mostly_clean(shares: pl.Series) -> bool:
    """Whether steady steps can be judged beside those that pay first uses: more steps pay none, and several. `shares`: as above."""
    clean = int((shares <= CLEAN).sum())
    return clean > REPEATED and 2 * clean > len(shares)


def without_repeated(begun: StartUp, windows: pl.DataFrame, work: pl.DataFrame) -> StartUp:
    """The same without the costs that come back in the steps `windows` (start, end): those are `again`, no start-up.

    `work`: the device's operations (start, end), in order of start.

    They come back where several steps compile after one that did not, or one after several, or where each does for about as long; the last
    one ends before the next one's. A call that takes long at its first use alone can't.
    """
    compiled = begun.costs.filter("compiles")
    if compiled.is_empty() or windows.is_empty():
        return begun
    windows = _with_what_leads_up(windows, compiled, work)
    shares = covered(windows, merge(_where_it_ends(compiled, windows))) / (windows["end"] - windows["start"]).clip(1)
    clean = (shares <= CLEAN).cum_sum()
    if int(pays_again(shares).sum()) >= REPEATED or (pays_again(shares) & (clean >= SETTLED)).any():
        since = windows["start"][int((shares <= CLEAN).arg_true()[0])]
    elif len(each := shares.head(-1) if shares[-1] <= CLEAN else shares) >= EACH and min(each) >= max(PAID, max(each) / 2):
        since = windows["start"][0]
    else:
        return begun
    again = pl.col("end") > since
    left = begun.costs.filter(~again)
    others = [one for one in begun.phases if one.name not in (FIRST_USE, AMONG)]
    return replace(begun, costs=left, again=begun.costs.filter(again), phases=_in_time([*others, *_cost_phase(FIRST_USE, left)]))


def _with_what_leads_up(windows: pl.DataFrame, costs: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The windows, of which those begin earlier that a cost leads up to: start, end.

    A step begins with its first operation. What ended after all of the step before was under way, and before this one's first operation,
    was done for this one: the batch lay on the device already, and the model is compiled before anything runs.
    """
    if work.is_empty():
        return windows
    began, ended = work["start"], work["end"].cum_max()
    last = began.search_sorted(windows["start"], side="left").cast(pl.Int64) - 1  # the operation before the step's first
    known = windows.select("start", "end").with_columns(
        pl.when(last >= 0).then(began.gather(last.clip(0))).alias("under_way"),
        pl.when(last >= 0).then(ended.gather(last.clip(0))).alias("done"),
    )
    leading = costs.select(pl.col("start").alias("from"), pl.col("end").alias("until")).sort("until")
    joined = known.with_row_index("row").join_where(
        leading, pl.col("until") > pl.col("under_way"), pl.col("until") <= pl.col("start"), pl.col("from") < pl.col("start")
    )
    earlier = joined.group_by("row").agg(pl.max_horizontal("from", "done").min().alias("begin"))
    begins = known.with_row_index("row").join(earlier, on="row", how="left", maintain_order="left")
    begin = pl.min_horizontal(pl.col("start"), pl.col("begin").fill_null(pl.col("start")))
    follows = begin.shift(-1)
    moved = begins.select(begin.alias("start"), pl.min_horizontal("end", follows.fill_null(pl.col("end"))).alias("end"))
    return moved if moved.height and bool((moved["end"] > moved["start"]).all()) else windows


def _where_it_ends(costs: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The costs (start, end), cut to the step in which each ends: the device, behind the host, had work in the steps before."""
    ended = costs.select("start", "end").sort("end")
    own = ended.join_asof(windows.select(pl.col("start").alias("begin")), left_on="end", right_on="begin", strategy="backward")
    return own.select(pl.max_horizontal("start", "begin").alias("start"), "end")


def with_first_steps(begun: StartUp, work: pl.DataFrame, windows: pl.DataFrame, *, cut: bool) -> StartUp:
    """The same beside the kept steps: no more lies before them than what they leave out, and what computed between start-up and the first.

    That is told where it took longer than a step: first steps pay more. `cut`: whether the windows are steps, which leave something out.
    """
    first = earliest(windows["start"])
    if cut:
        outside = (first - (latest(work["end"]) - begun.span_ns)) / begun.span_ns
        begun = replace(begun, before=min(begun.before, max(outside, 0.0)))
    end = max((phase.end_ns for phase in begun.phases if phase.start_ns < first), default=None)
    if end is None or first - end <= LONGER_FIRST * median_of(windows["end"] - windows["start"]):
        return begun
    between = work.filter((pl.col("role") == "compute") & (pl.col("start") >= end) & (pl.col("start") < first))
    if between.is_empty():
        return begun
    why = f"{between.height} compute operations between start-up and the first step that is kept"
    return replace(begun, phases=(*begun.phases, Phase(name="first steps", start_ns=end, end_ns=first, why=why, longest_call=None)))


def under_start_up(work: pl.DataFrame, windows: pl.DataFrame, ranges: pl.DataFrame) -> dict[int, str]:
    """Windows most of whose operations were launched inside a start-up range: index → the range's name. `work`: in order of start."""
    found: dict[int, str] = {}
    if ranges.is_empty():
        return found
    launched = work.select("start", "call_start").drop_nulls("call_start")
    bounds = (launched["start"].search_sorted(windows[edge], side="left") for edge in ("start", "end"))
    for index, first, last in zip(windows["index"], *bounds, strict=True):
        own = launched["call_start"].slice(first, max(0, last - first))
        for begin, close, name in ranges.select("start", "end", "name").iter_rows():
            if len(own) and int(((own >= begin) & (own < close)).sum()) * 2 > len(own):
                found[index] = name
    return found


def longest_cost(costs: pl.DataFrame, windows: pl.DataFrame) -> LongestCall | None:
    """The first-use cost that took longest of those that reach into one of the windows."""
    if costs.is_empty() or windows.is_empty():
        return None
    inside = [((windows["start"] < end) & (windows["end"] > start)).any() for start, end in costs.select("start", "end").iter_rows()]
    found = costs.filter(pl.Series(inside, dtype=pl.Boolean)).with_columns(lasting.alias("ns"))
    longest = found.sort("ns", "start", descending=[True, False]).head(1)
    return None if longest.is_empty() else LongestCall(name=longest["name"][0], duration_ns=int(longest["ns"][0]))


def cost_within(costs: pl.DataFrame, start: int, end: int) -> int:
    """How long first-use costs took inside `[start, end)` (ns)."""
    return int(covered(pl.DataFrame({"start": [start], "end": [end]}), merge(costs))[0])


# ------------------------------------------------------------------------------------------------ what is start-up


def _costs(trace: Trace, work: pl.DataFrame, rank: int, rules: HostRules) -> pl.DataFrame:
    """The columns of `StartUp.costs`, of the threads that launch here."""
    threads = work["thread"].drop_nulls().unique()
    calls = trace.calls.filter((pl.col("rank") == rank) & pl.col("thread").is_in(threads.implode()))
    found = (
        (_first_calls(trace, work, calls, rules), False),
        (_compilations(trace, threads, rank, rules), True),
        (_compiled_before(trace, calls, rules), True),
    )
    return pl.concat(frame.with_columns(pl.lit(of).alias("compiles")) for frame, of in found).sort("start", "end")


def _first_calls(trace: Trace, work: pl.DataFrame, calls: pl.DataFrame, rules: HostRules) -> pl.DataFrame:
    """Calls that took long where they were made first, and calls that load code or create a context.

    A launch counts where hardly any launch of its kernel takes long (variants of a kernel share its name) and fewer operations than a queue
    holds were waiting, another call where few of its name do, or not nearly as long; copies and synchronising calls wait for data and work,
    and are no first use.
    """
    limits = rules.start_up
    named = trace.names.select(
        pl.col("id").alias("name_id"),
        pl.col("text").alias("name"),
        pl.col("text").str.contains(rules.call_pattern("first_use")).alias("once"),
        pl.col("text").str.contains(rules.call_pattern("synchronise")).alias("waits"),
    )
    long = calls.filter(lasting >= limits.long_call_ns).join(named, on="name_id", how="left").filter(~pl.col("waits"))
    loading = calls.join(named.filter(pl.col("once")), on="name_id", how="inner").select("start", "end", "name")
    if long.is_empty():
        return loading.cast(_COSTS)  # type: ignore[arg-type]
    launches = work.select("start", "call_start", "issued", "name_id", "role").drop_nulls("call_start")
    usual = launches.group_by("name_id").agg(
        pl.len().alias("launches"), (pl.col("issued") - pl.col("call_start") >= limits.long_call_ns).sum().alias("slow")
    )
    launched = (
        launches.filter(pl.col("call_start").is_in(long["start"].implode()))
        .join(trace.names.select(pl.col("id").alias("name_id"), pl.col("text").alias("kernel")), on="name_id", how="left")
        .join(usual, on="name_id", how="left")
        .group_by(pl.col("call_start").alias("start"))
        .agg((pl.col("role") == "copy").any().alias("copies"), pl.col("kernel", "launches", "slow").first())
    )
    alike = calls.join(long, on="name_id", how="semi").group_by("name_id")
    slow = lasting >= limits.long_call_ns
    of_name = alike.agg(pl.col("start").min().alias("first"), slow.sum().alias("slow_calls"), lasting.filter(slow).median().alias("usual"))
    issued, begun = launches["issued"].sort(), launches["start"].sort()
    found = (
        long.join(launched, on="start", how="left")
        .join(of_name, on="name_id", how="left")
        .with_columns(
            (issued.search_sorted(long["start"]).cast(pl.Int64) - begun.search_sorted(long["start"]).cast(pl.Int64)).alias("queued")
        )
    )
    rare = (pl.col("slow") <= limits.slow_launches) & ((pl.col("slow") * 10 <= pl.col("launches")) | (pl.col("slow") == 1))
    launching = ~pl.col("copies") & rare & (pl.col("queued") < limits.queue)
    alone = (pl.col("slow_calls") <= limits.slow_launches) | (lasting >= limits.longer * pl.col("usual"))
    plain = (pl.col("start") == pl.col("first")) & alone
    once = pl.when(pl.col("copies").is_null()).then(plain).otherwise(launching)
    bare = pl.col("kernel").str.replace("^void ", "").str.replace(r"[<(].*$", "")  # without template arguments and parameters
    kernel = pl.when(bare.str.len_chars() > 0).then(bare).otherwise("kernel")
    shown = pl.when(pl.col("kernel").is_not_null()).then(pl.format("{} of {}", "name", kernel)).otherwise("name")
    return pl.concat([found.filter(once).select("start", "end", shown.alias("name")), loading]).unique(["start", "end"]).cast(_COSTS)  # type: ignore[arg-type]


def _compiled_before(trace: Trace, calls: pl.DataFrame, rules: HostRules) -> pl.DataFrame:
    """Long silences of a thread just before a call that loads code: what it loads was compiled there (Triton, NVRTC), or read."""
    loads = trace.names.filter(pl.col("text").str.contains(rules.compiled_pattern())).select(
        pl.col("id").alias("name_id"), pl.format("compilation before {}", "text").alias("name")
    )
    if loads.is_empty():
        return pl.DataFrame(schema=_COSTS)
    before = pl.col("end").cum_max().shift(1).over("thread")
    return (
        calls.sort("start")
        .with_columns(before.alias("before"))
        .filter(pl.col("start") - pl.col("before") >= rules.start_up.long_call_ns)
        .join(loads, on="name_id", how="inner")
        .select(pl.col("before").alias("start"), pl.col("start").alias("end"), "name")
        .cast(_COSTS)  # type: ignore[arg-type]
    )


def _compilations(trace: Trace, threads: pl.Series, rank: int, rules: HostRules) -> pl.DataFrame:
    """Long ranges of compilation or of a search for the best kernel, on the threads that launch here."""
    ids = trace.names.filter(pl.col("text").str.contains(rules.range_pattern("compilation"))).select(
        pl.col("id").alias("text_id"), pl.col("text").alias("name")
    )
    return (
        trace.ranges.filter((pl.col("rank") == rank) & (pl.col("kind") != "frame") & pl.col("thread").is_in(threads.implode()))
        .join(ids, on="text_id", how="inner")
        .filter(lasting >= rules.start_up.long_call_ns)
        .select(list(_COSTS))
        .cast(_COSTS)  # type: ignore[arg-type]
    )


def _uploads(work: pl.DataFrame, long_ns: int) -> pl.DataFrame:
    """Copies to the device that ended before the first compute kernel began, where they took long in all; otherwise none."""
    first = work.select(pl.col("start").filter((pl.col("role") == "compute") & (pl.col("kind") == "kernel")).min()).item()
    if not isinstance(first, int):
        return work.clear()
    found = work.filter((pl.col("copy_kind") == "h2d") & (pl.col("end") <= first))
    return found if total_length(found) >= long_ns else found.clear()


def _leading_ranges(trace: Trace, placed: pl.DataFrame, rank: int, rules: HostRules) -> pl.DataFrame:
    """Outermost user ranges that are start-up by name and by place: steady work follows, and hardly any lies between their occurrences."""
    limits, total = rules.start_up, int(placed["ns"].sum())
    ids = trace.names.filter(pl.col("text").str.contains(rules.range_pattern("start_up"))).select(
        pl.col("id").alias("text_id"), pl.col("text").alias("name")
    )
    named = (
        trace.ranges.filter((pl.col("rank") == rank) & pl.col("kind").is_in(USER_KINDS) & (pl.col("end") > pl.col("start")))
        .join(ids, on="text_id", how="inner")
        .select(list(_COSTS))
        .cast(_COSTS)  # type: ignore[arg-type]
        .sort("start", "end", descending=[False, True])
    )
    if named.is_empty() or not total:
        return named.clear()
    inside = merge(named)
    leading = []
    for (name,), own in named.group_by("name", maintain_order=True):
        first, last = earliest(own["start"]), latest(own["end"])
        between = _launched(placed, first, last)
        within = sum(_launched(placed, max(start, first), min(end, last)) for start, end in inside.iter_rows())
        if between - within <= limits.named_share * total <= _launched(placed, last, None):
            leading.append(name)
    kept = named.filter(pl.col("name").is_in(leading))
    return kept.filter((pl.col("end") > pl.col("end").cum_max().shift(1)).fill_null(value=True))


def _launched(placed: pl.DataFrame, start: int, end: int | None) -> int:
    """Compute work (ns) launched inside `[start, end)`."""
    until = pl.lit(value=True) if end is None else pl.col("at") < end
    return int(placed.filter((pl.col("at") >= start) & until)["ns"].sum())


def _followed(ends: pl.Series, placed: pl.DataFrame, share: float) -> list[int]:
    """The ends that at least `share` of the compute work follows."""
    total = int(placed["ns"].sum())
    done = pl.concat([pl.Series("ns", [0], dtype=pl.Int64), placed["ns"].cum_sum().cast(pl.Int64)])
    after = total - done.gather(placed["at"].search_sorted(ends))
    return ends.filter(after >= share * total).to_list() if total else []


# ------------------------------------------------------------------------------------------------ phases


def _phases(
    trace: Trace, rank: int, costs: pl.DataFrame, ranges: pl.DataFrame, uploads: pl.DataFrame, until: int | None
) -> tuple[Phase, ...]:
    """What start-up is made of, in order of start: named ranges, uploads, first uses before the steady work, and those among it."""
    found = [
        Phase(name=name, start_ns=start, end_ns=end, why="its name says so", longest_call=_longest_call(trace, rank, start, end))
        for start, end, name in ranges.iter_rows()
    ]
    if not uploads.is_empty():
        moved = "" if uploads["bytes"].null_count() else f" of {int(uploads['bytes'].sum()) / 1e9:.2f} GB in all"
        start, end = earliest(uploads["start"]), latest(uploads["end"])
        why = f"{uploads.height} copies to the device{moved} before the first compute kernel"
        found.append(Phase(name="upload", start_ns=start, end_ns=end, why=why, longest_call=_longest_call(trace, rank, start, end)))
    before = pl.col("end") <= (until if until is not None else -1)
    return _in_time([*found, *_cost_phase(FIRST_USE, costs.filter(before)), *_cost_phase(AMONG, costs.filter(~before))])


FIRST_USE, AMONG = "first use", "first use among the work"  # phases


def _cost_phase(name: str, costs: pl.DataFrame) -> list[Phase]:
    """The phase of these costs; none without costs."""
    if costs.is_empty():
        return []
    took = union_length(costs["start"], costs["end"])
    longest = costs.row(int((costs["end"] - costs["start"]).arg_max() or 0), named=True)
    return [
        Phase(
            name=name,
            start_ns=earliest(costs["start"]),
            end_ns=latest(costs["end"]),
            why=f"{costs.height} calls or compilations at their first use took {took / 1e6:.1f} ms",
            longest_call=LongestCall(name=longest["name"], duration_ns=longest["end"] - longest["start"]),
        )
    ]


def _in_time(phases: list[Phase]) -> tuple[Phase, ...]:
    return tuple(sorted(phases, key=lambda phase: (phase.start_ns, phase.end_ns)))


def _longest_call(trace: Trace, rank: int, start: int, end: int) -> LongestCall | None:
    """The longest API call that began inside `[start, end)`."""
    calls = trace.calls.filter((pl.col("rank") == rank) & (pl.col("start") >= start) & (pl.col("start") < end))
    if calls.is_empty():
        return None
    longest = calls.row(int((calls["end"] - calls["start"]).arg_max() or 0), named=True)
    return LongestCall(name=str(trace.names["text"][longest["name_id"]]), duration_ns=longest["end"] - longest["start"])
