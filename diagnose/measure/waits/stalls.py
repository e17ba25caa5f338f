"""Why compute was absent: every moment of a step without compute is launch-starved, blocking or dependency-stalled.

For each gap that ends with the compute operation k: until the host had issued k it is launch-starved; then, while a producer of k still
ran, blocking; the rest is dependency-stalled. The three sum to the compute-absent time of every window, exactly.

Who really held compute up is found by following waiting time along the chain of producers: a gap that ends with an expert GEMM is often
held by a short sorting kernel that itself waited for a long all-to-all. While a producer ran, the time is its own; before it started, the
time belongs to what that producer waited for, and so on back to the start of the gap. Time in which no producer of the chain ran is not
blocking: nothing resolved explains it.

The split says why compute was absent; a wall's bound says what could be won, which differs where causes overlap or follow from each other
(`ceilings`):

- *shadowed*: launch-starved time in which the operation to come could not have started anyway, because what it waits for still ran. A
  faster host would not win it.
- *follow*: what blocked compute after transport in the same gap, but would have run beside compute, or beside the host's work, had the
  transport not been there.
- *handover*: the short dependency-stalled rest of a gap that something blocked, or for which the host was late. It goes with its cause.
- *restart*: a host that was held up has nothing queued. What it does until its next launch lies bare, and would not without the hold-up.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from diagnose.measure.host import ALLOCATOR, FIRST_USE, GC, LOADING, MESSAGES, RECOMPILING, SYNC, WAITING, HostActivity
from diagnose.measure.steps import per_window
from diagnose.measure.waits.dependencies import Dependencies, StreamWaits, latest_producers, prepare
from diagnose.measure.waits.hold_ups import GAP, HOST_WORK, host_work, restarts
from diagnose.model.intervals import covered, earliest, lasting, latest, merge, overlaps, uncovered

MAX_CHAIN = 64  # producers that one gap is followed through


def follow_chains(pieces: pl.DataFrame, work: pl.DataFrame, known: Dependencies) -> pl.DataFrame:
    """Split waiting pieces among the producers of their chains.

    `pieces`: start, end, cause, producer (never null), inferred, otherwise (the cause of time that no producer explains), and any other
    columns; `work`: op, start, stream, correlation, issued of all operations. The result has the pieces' columns without `otherwise`;
    pieces without producer carry that cause.
    """
    columns = [name for name in pieces.columns if name != "otherwise"]
    unexplained = (
        pl.col("otherwise").alias("cause"),
        pl.lit(None, dtype=work.schema["op"]).alias("producer"),
        pl.lit(value=False).alias("inferred"),
    )
    details = work.select(pl.col("start").alias("began"), "stream", "correlation", "issued")
    done = []
    waiting = pieces
    for _ in range(MAX_CHAIN):
        if waiting.is_empty():
            break
        held = waiting.hstack(details.select(pl.all().gather(waiting["producer"])))
        done.append(held.with_columns(pl.max_horizontal("start", "began").alias("start")).select(columns))
        earlier = held.filter(pl.col("start") < pl.col("began")).with_columns(pl.min_horizontal("end", "began").alias("end"))
        consumers = (
            earlier.select(pl.col("producer").alias("op"), pl.col("began").alias("start"), "stream", "correlation", "issued")
            .unique("op", keep="first", maintain_order=True)
            .sort("start")
        )
        before = latest_producers(known, consumers).select(
            pl.col("op").alias("producer"), pl.col("producer").alias("cause_op"), "producer_end", pl.col("inferred").alias("guessed")
        )
        linked = earlier.join(before, on="producer", how="left", maintain_order="left").with_columns(
            pl.col("producer_end").fill_null(pl.col("start")).clip(pl.col("start"), pl.col("end")).alias("handed_over")
        )
        done.append(linked.with_columns(pl.col("handed_over").alias("start"), *unexplained).select(columns))
        waiting = (
            linked.filter(pl.col("handed_over") > pl.col("start"))
            .with_columns(
                pl.col("handed_over").alias("end"),
                pl.col("cause_op").alias("producer"),
                (pl.col("inferred") | pl.col("guessed")).alias("inferred"),
            )
            .select(pieces.columns)
        )
    done.append(waiting.with_columns(*unexplained).select(columns))
    return pl.concat(done).filter(pl.col("end") > pl.col("start"))


HOST_CAUSES = ("first_use", "allocator", "host_sync", *HOST_WORK)


class Stalls(Struct, frozen=True, kw_only=True):
    """All gaps of one device, cut into pieces.

    `pieces`: index (window), start, end, cause (one of HOST_CAUSES, blocking or dependency_stalled), op (the operation that ends the gap;
    null at the end of a step that ends idle), producer (op row that blocked; null elsewhere), inferred (bool), through_host (bool: it held
    the host in a synchronising call). `bounds`: index, blocking_lower_ns, blocking_upper_ns. `shadowed`: index, start, cause, ns:
    launch-starved time, of the piece that begins at `start`, while a producer of `op` ran. `restarts`: index, ns: host work with which
    synchronising calls are charged. `worked`: host work as `hold_ups.host_work` gives it. `entered`: index, op, ns: how long the host had
    been in an allocator call when the gap began. `beside`: index, op, ns: dependency-stalled time during which transport ran. It may be a
    wait that no event shows (flags in memory, persistent kernels, stream memory operations). `freeing`: index, ns: time under an allocator
    call that waited for the device while transport ran.
    """

    pieces: pl.DataFrame
    bounds: pl.DataFrame
    shadowed: pl.DataFrame
    entered: pl.DataFrame
    beside: pl.DataFrame
    freeing: pl.DataFrame
    restarts: pl.DataFrame
    worked: pl.DataFrame


def gaps(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Maximal stretches without compute, cut at the windows: index, start, end, op (the compute operation that ends it).

    `work`: op, start, end, role, in order of start. A gap at the end of the last window belongs to the operation that ends the window.
    """
    compute = work.filter((pl.col("role") == "compute") & (pl.col("end") > pl.col("start"))).select("op", "start", "end")
    reach = pl.col("end").cum_max().shift(1)
    first, last = earliest(windows["start"]), latest(windows["end"])
    opened = (
        compute.with_columns(reach.alias("reach"))
        .filter((pl.col("start") > pl.col("reach")).fill_null(value=True))
        .select(pl.col("reach").fill_null(first).alias("start"), pl.col("start").alias("end"), "op")
    )
    tail = pl.DataFrame(
        {"start": [first if compute.is_empty() else latest(compute["end"])], "end": [last], "op": [None]},
        schema={"start": pl.Int64, "end": pl.Int64, "op": work.schema["op"]},
    )
    found = pl.concat([opened, tail]).filter(pl.col("end") > pl.col("start"))
    common = overlaps(found, windows)
    return pl.DataFrame(
        {
            "index": windows["index"].gather(common["right"]),
            "start": common["start"],
            "end": common["end"],
            "op": found["op"].gather(common["left"]),
        }
    )


def stalls(work: pl.DataFrame, windows: pl.DataFrame, waits: StreamWaits, host: HostActivity) -> Stalls:
    """Split every gap of one device. `work`, in order of start: op (row number), start, end, stream, correlation, role, issued."""
    cut = _with_last_operation(gaps(work, windows), work, windows)
    known = prepare(work, waits)
    found = _with_producers(cut, work, known)
    issued = pl.col("issued").clip(pl.col("start"), pl.col("end")).fill_null(pl.col("start"))
    found = found.with_columns(issued.alias("issued"))
    until = pl.max_horizontal(pl.col("producer_end").clip(pl.col("issued"), pl.col("end")), "issued").fill_null(pl.col("issued"))
    found = found.with_columns(until.alias("until"))
    columns = ["index", "start", "end", "cause", "op", "producer", "inferred", "through_host"]
    direct = pl.lit(value=False).alias("through_host")
    blocking = found.filter(pl.col("until") > pl.col("issued")).with_columns(
        pl.col("issued").alias("start"),
        pl.col("until").alias("end"),
        pl.lit("blocking").alias("cause"),
        pl.lit("dependency_stalled").alias("otherwise"),
        direct,
    )
    stalled = found.filter(pl.col("end") > pl.col("until")).with_columns(
        pl.col("until").alias("start"),
        pl.lit("dependency_stalled").alias("cause"),
        pl.lit(None, dtype=work.schema["op"]).alias("producer"),
        pl.lit(value=False).alias("inferred"),
        direct,
    )
    starved = found.filter(pl.col("issued") > pl.col("start")).select("index", "start", pl.col("issued").alias("end"), "op")
    host_pieces = _under_host_calls(starved, host)
    awaited = pl.col("producer").is_not_null()
    through_host = host_pieces.filter(awaited).with_columns(
        pl.lit("host_sync").alias("otherwise"), pl.lit(value=True).alias("through_host")
    )
    waiting = pl.concat([through_host.select(*columns, "otherwise"), blocking.select(*columns, "otherwise")])
    followed = follow_chains(waiting, work, known)
    pieces = pl.concat(
        [host_pieces.filter(~awaited).with_columns(direct).select(columns), followed.select(columns), stalled.select(columns)]
    )
    shadowed = _shadowed(found, host_pieces.filter(~awaited), work, known)
    first, last = windows["start"].min(), windows["end"].max()
    compute = work.filter((pl.col("role") == "compute") & pl.col("start").is_between(first, last)).select(
        "op", "name_id", "phase", "operation"
    )
    worked = host_work(pieces, shadowed, compute)
    moving = merge(work.filter(pl.col("role") == "transport"))
    return Stalls(
        pieces=pieces,
        bounds=_bounds(found, pieces, work, windows),
        shadowed=shadowed,
        entered=_entered(cut, host),
        beside=_beside(pieces, moving),
        freeing=_freeing(pieces, moving, host),
        restarts=restarts(worked, pieces, host.blocked.select("start", "end"), work),
        worked=worked,
    )


def _beside(pieces: pl.DataFrame, moving: pl.DataFrame) -> pl.DataFrame:
    """Dependency-stalled time during which transport ran: index, op, ns. `moving`: when any ran, disjoint."""
    stalled = pieces.filter(pl.col("cause") == "dependency_stalled").select("index", "start", "end", "op").sort("start")
    common = overlaps(stalled, moving)
    return stalled.select("index", "op").select(pl.all().gather(common["left"])).with_columns((common["end"] - common["start"]).alias("ns"))


def _freeing(pieces: pl.DataFrame, moving: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """Time under an allocator call that waited for the device, while transport ran there (`moving`, disjoint): index, ns."""
    under = pieces.filter(pl.col("cause") == "allocator").select("index", "start", "end").sort("start")
    waited = merge(host.freeing.select("start", pl.col("awaited_end").alias("end")))
    common = overlaps(waited, moving).select("start", "end").sort("start")
    return under.select("index", covered(under, common).alias("ns"))


def _entered(cut: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """Gaps that begin while the host is in an allocator call, with how long it has been there: index, op, ns."""
    calls = host.named.filter(pl.col("cause") == "allocator").sort("start").with_columns(pl.col("end").cum_max().alias("returned"))
    longest = calls.select(
        pl.col("start").alias("begun"),
        pl.when(pl.col("end") == pl.col("returned")).then("start").forward_fill().alias("called"),
        "returned",
    )
    held = cut.sort("start").join_asof(longest, left_on="start", right_on="begun", strategy="backward", coalesce=False)
    return held.filter(pl.col("returned") > pl.col("start")).select("index", "op", (pl.col("start") - pl.col("called")).alias("ns"))


def _shadowed(found: pl.DataFrame, host_pieces: pl.DataFrame, work: pl.DataFrame, known: Dependencies) -> pl.DataFrame:
    """Launch-starved time in which the operation to come could not have started, because what it waits for still ran.

    index, start (of the piece), cause, ns.
    """
    waiting = found.filter(pl.col("producer").is_not_null() & (pl.col("issued") > pl.col("start"))).select(
        "index",
        "start",
        pl.min_horizontal("issued", "producer_end").alias("end"),
        pl.lit("blocking").alias("cause"),
        "op",
        "producer",
        "inferred",
        pl.lit("none").alias("otherwise"),
    )
    ran = follow_chains(waiting.filter(pl.col("end") > pl.col("start")), work, known).filter(pl.col("producer").is_not_null()).sort("start")
    common = overlaps(host_pieces.sort("start"), ran.select("start", "end"))
    ordered = host_pieces.sort("start")
    return (
        ordered.select("index", "start", "cause")
        .select(pl.all().gather(common["left"]))
        .with_columns((common["end"] - common["start"]).alias("ns"))
    )


def _with_last_operation(cut: pl.DataFrame, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The gap that no compute ends gets the operation that ends the step; its own running then counts as what blocks."""
    open_gap = cut["op"].is_null()
    if not open_gap.any():
        return cut.with_columns(pl.lit(value=False).alias("ends_step"))
    last = latest(windows["end"])
    ending = work.filter((pl.col("end") <= last) & (pl.col("end") > pl.col("start"))).sort("end", "op")["op"]
    closing = ending[-1] if len(ending) else None
    return cut.with_columns(pl.col("op").fill_null(pl.lit(closing, dtype=work.schema["op"])), open_gap.alias("ends_step"))


def _with_producers(cut: pl.DataFrame, work: pl.DataFrame, known: Dependencies) -> pl.DataFrame:
    """Each gap with its operation's issue time and latest producer; whether that is inferred, and whether anything is unresolved."""
    details = work.select("issued", pl.col("start").alias("op_start"), "stream", "correlation", pl.col("end").alias("op_end"))
    found = cut.hstack(details.select(pl.all().gather(cut["op"])))
    consumers = (
        found.filter(~pl.col("ends_step"))
        .select("op", pl.col("op_start").alias("start"), "stream", "correlation", "issued")
        # a gap that a window cuts stands in two rows, one after the other
        .filter((pl.col("op") != pl.col("op").shift(1)).fill_null(value=True))
    )
    found = found.join(latest_producers(known, consumers), on="op", how="left", maintain_order="left")
    at_end, launched = pl.col("ends_step"), pl.col("issued").is_not_null()
    return found.with_columns(
        # without a launch nothing but the order of its stream tells what it waited for
        pl.when(at_end).then("op").otherwise("producer").alias("producer"),
        pl.when(at_end).then("op_end").otherwise("producer_end").alias("producer_end"),
        pl.col("inferred").fill_null(value=False) & ~at_end,
        (pl.col("unresolved").fill_null(value=False) | ~launched) & ~at_end,
    )


# What launch-starved time counts for while a bit of the host's state is set; the first that is.
_UNDER = {
    ALLOCATOR: "allocator", WAITING: "blocking", MESSAGES: "message_passing", SYNC: "host_sync", GC: "gc", LOADING: "loading",
    RECOMPILING: "recompilation",
}  # fmt: skip


def _under_host_calls(starved: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """Launch-starved stretches split by what the launching threads did.

    First_use (what is paid once), allocator, host_sync, one of HOST_WORK, or blocking through the host.
    """
    starved = starved.sort("start")
    state = overlaps(starved, host.state)
    mask = host.state["mask"].gather(state["right"])
    cause: Any = pl.when((pl.col("mask") & FIRST_USE != 0) & (pl.col("mask") & WAITING == 0)).then(pl.lit("first_use"))
    for bit, name in _UNDER.items():
        cause = cause.when(pl.col("mask") & bit != 0).then(pl.lit(name))
    under = (
        state.select("start", "end", "left").with_columns(mask.alias("mask")).with_columns(cause.alias("cause")).drop("mask").sort("start")
    )
    rest = uncovered(starved, under)
    in_call = overlaps(rest, host.in_call)
    launching = in_call.select("start", "end", rest["left"].gather(in_call["left"]).alias("left"), pl.lit("launch").alias("cause")).sort(
        "start"
    )
    python = uncovered(rest, launching.with_columns(in_call.sort("start")["left"].alias("left")))
    python = python.with_columns(rest["left"].gather(python["left"]), pl.lit("python" if host.python else "host").alias("cause"))
    pieces = pl.concat([under, launching, python.select(under.columns)]).sort("start")
    awaited = _awaited(pieces, host.blocked)
    return pieces.select(
        starved["index"].gather(pieces["left"]).alias("index"),
        "start",
        "end",
        "cause",
        starved["op"].gather(pieces["left"]).alias("op"),
        awaited["awaited"].alias("producer"),
        awaited["guessed"].alias("inferred"),
    )


def _awaited(pieces: pl.DataFrame, blocked: pl.DataFrame) -> pl.DataFrame:
    """The operation that a synchronising call waited for, for the pieces with cause blocking (null elsewhere), and whether it is guessed.

    Of several calls at once, the one whose work ends last.
    """
    calls = (
        blocked.filter(pl.col("awaited_end") > pl.col("start"))
        .with_columns((pl.col("awaited_end") == pl.col("awaited_end").cum_max()).alias("reaches"))
        .select(
            pl.col("start").alias("call_start"),
            *(pl.when("reaches").then(name).otherwise(None).forward_fill().alias(name) for name in ("awaited", "guessed")),
        )
    )
    joined = pieces.select("start", "cause").join_asof(calls, left_on="start", right_on="call_start", strategy="backward")
    is_blocking = pl.col("cause") == "blocking"
    return joined.select(pl.when(is_blocking).then("awaited"), (pl.col("guessed") & is_blocking).fill_null(value=False))


def _bounds(found: pl.DataFrame, pieces: pl.DataFrame, work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Lower and upper bound of blocking per window.

    Lower: what is resolved. Upper: also what ran, other than compute, while a consumer with unresolved waits was waiting.
    """
    blocking = pieces.filter(pl.col("cause") == "blocking")
    length = lasting.alias("ns")
    lower = blocking.filter(~pl.col("inferred")).select("index", length)
    open_gaps = found.filter(pl.col("unresolved") & (pl.col("end") > pl.col("issued"))).select(
        "index", pl.col("issued").alias("start"), "end", "op"
    )
    others = merge(work.filter(pl.col("role") != "compute"))
    ran = overlaps(open_gaps, others)
    may_block = pl.DataFrame({"index": open_gaps["index"].gather(ran["left"]), "ns": ran["end"] - ran["start"]})
    is_open = pl.col("op").is_in(open_gaps["op"].implode()).fill_null(value=False)
    resolved = blocking.filter(~is_open).select("index", length)
    # what blocked through the host did so before the issue, all else after it
    through_host = blocking.filter(pl.col("through_host") & is_open)
    gaps = found.select("op", "index", "issued").join(through_host.select("op").unique(), on="op", how="semi")
    issued = gaps.unique(["op", "index"], keep="first", maintain_order=True)
    before_issue = (
        through_host.join(issued, on=["op", "index"], how="left").filter(pl.col("end") <= pl.col("issued")).select("index", length)
    )
    upper = pl.concat([may_block, resolved, before_issue])
    bounds = (("blocking_lower_ns", lower), ("blocking_upper_ns", upper))
    return per_window(windows, *(part.group_by("index").agg(pl.col("ns").sum().alias(name)) for name, part in bounds)).fill_null(0)


def stall_times(found: Stalls, windows: pl.DataFrame, roles: pl.Series, copy_kinds: pl.Series) -> pl.DataFrame:
    """The stalls of every window, in the document's names. `roles`, `copy_kinds`: of each operation by row number."""
    producer = found.pieces["producer"]
    sized = found.pieces.select(
        "index",
        "cause",
        "inferred",
        lasting.alias("ns"),
        roles.gather(producer).alias("role"),
        copy_kinds.gather(producer).alias("copy_kind"),
    )
    host = pl.col("cause").is_in(list(HOST_CAUSES))
    blocking = pl.col("cause") == "blocking"

    def total(condition: pl.Expr, name: str) -> pl.Expr:
        return pl.col("ns").filter(condition).sum().alias(name)

    summed = sized.group_by("index").agg(
        total(host, "launch_starved_ns"),
        total(pl.col("cause") == "allocator", "allocator_ns"),
        total(pl.col("cause") == "host_sync", "host_sync_ns"),
        total(pl.col("cause").is_in(["first_use", *HOST_WORK]), "host_work_ns"),
        total(pl.col("cause") == "first_use", "first_use_ns"),
        total(pl.col("cause") == "gc", "gc_ns"),
        total(pl.col("cause").is_in(["python", "host"]), "python_gap_ns"),
        total(blocking, "blocking_ns"),
        total(blocking & (pl.col("role") == "transport"), "blocking_transport_ns"),
        total(blocking & (pl.col("role") == "packing"), "blocking_packing_ns"),
        total(blocking & (pl.col("role") == "copy"), "blocking_copy_ns"),
        total(blocking & pl.col("copy_kind").is_in(["h2d", "d2h"]), "blocking_host_copy_ns"),
        total(blocking & pl.col("inferred"), "blocking_inferred_ns"),
        total(pl.col("cause") == "dependency_stalled", "dependency_stalled_ns"),
    )
    beside = found.beside.group_by("index").agg(pl.col("ns").sum().alias("beside_transport_ns"))
    return per_window(windows, summed, beside, found.bounds).fill_null(0)


class Causes(Struct, frozen=True, kw_only=True):
    """Time without compute by cause, one row (or several) per step window.

    `blocking`: index, bucket, role, kind, backend, ns, inferred. `host`: index, name, cause, ns, count (launch-starved time by the call or
    range that the host was in). `unexplained`, of all steps: name, ns (dependency-stalled time by the synchronising call that the host was
    in). `late_range`: the user's range that holds nearly all of the launch-starved time.
    """

    blocking: pl.DataFrame
    host: pl.DataFrame
    unexplained: pl.DataFrame
    late_range: str | None = None


def blocking(found: Stalls, work: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """index, bucket, role, kind, backend, ns, inferred: what blocked, by the class of the producer."""
    pieces = found.pieces.filter(pl.col("cause") == "blocking").select("index", "producer", "inferred", lasting.alias("ns"))
    producers = work.select("op", "class_id").filter(pl.col("op").is_in(pieces["producer"].drop_nulls().unique().implode()))
    return (
        pieces.join(producers, left_on="producer", right_on="op", how="left")
        .join(classes.select("class_id", "bucket", "role", "kind", "backend"), on="class_id", how="left")
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("kind").fill_null("other")).alias("kind"))
        .with_columns(pl.when(pl.col("role") == "transport").then(pl.col("backend").fill_null("other")).alias("backend"))
        .group_by("index", "bucket", "role", "kind", "backend", "inferred")
        .agg(pl.col("ns").sum())
        .sort("index", "bucket", "role", "kind", "backend", "inferred", nulls_last=True)
    )


HANDOVER_NS = 10_000  # this project's choice, the reach of an inferred dependency: of a gap at most so much is a handover
_HOST = ["host_sync", *HOST_WORK]


def ceilings(found: Stalls, windows: pl.DataFrame, roles: pl.Series, copy_kinds: pl.Series, times: pl.DataFrame) -> pl.DataFrame:
    """Per window (index): the figures in ns that `trace_rules/facts.yaml` describes.

    `roles`, `copy_kinds`, `times` (start, issued): of each operation by row number.
    """
    producer = found.pieces["producer"]
    blocks = pl.col("cause") == "blocking"
    pieces = found.pieces.with_columns(
        lasting.alias("ns"),
        (blocks & (roles.gather(producer) == "transport")).fill_null(value=False).alias("transport"),
        (blocks & copy_kinds.gather(producer).is_in(["h2d", "d2h"])).fill_null(value=False).alias("host_copy"),
        pl.col("cause").is_in(_HOST).alias("host"),
        blocks.alias("blocks"),
        times["start"].gather(producer).alias("began"),
        times["issued"].gather(producer).alias("issued"),
        GAP.alias("gap"),
    )
    # at the end of a capture no launch of compute is left that a hold-up could have delayed
    through_host = pl.col("through_host") & (roles.gather(pieces["op"]) == "compute").fill_null(value=False)
    return per_window(
        windows,
        _handovers(pieces, found.beside),
        _followers(pieces),
        _shadows(found.shadowed),
        found.freeing.group_by("index").agg(pl.col("ns").sum().alias("transport_freeing_ns")),
        _restarts(pieces, pl.col("transport") & through_host, "transport_restart_ns"),
        _restarts(pieces, pl.col("host_copy") & through_host, "host_copy_restart_ns", awaited=True),
        found.restarts.group_by("index").agg(pl.col("ns").sum().alias("sync_restart_ns")),
        _restarts(pieces, pl.col("cause") == "allocator", "allocator_restart_ns", before=found.entered),
    ).fill_null(0)


def _handovers(pieces: pl.DataFrame, beside: pl.DataFrame) -> pl.DataFrame:
    """index, and handover in ns behind transport, copies between host and device, and the host.

    What is handed over by transport comes after it: time beside (other) transport counts for itself.
    """
    behind = (
        pieces.filter(pl.any_horizontal("transport", "host_copy", "host"))
        .group_by("gap")
        .agg(pl.col("index").first(), pl.col("transport", "host_copy", "host").any())
    )
    waited = (
        pieces.select("gap", "ns", stalled=pl.col("cause") == "dependency_stalled")
        .filter("stalled", pl.col("gap").is_in(behind["gap"].implode()))  # in most gaps nothing else is to be counted
        .group_by("gap")
        .agg(pl.col("ns").sum().alias("all"))
    )
    by_gap = (
        waited.join(behind, on="gap")
        .join(beside.group_by(GAP.alias("gap")).agg(pl.col("ns").sum().alias("beside")), on="gap", how="left")
        .with_columns(
            pl.min_horizontal("all", HANDOVER_NS).alias("stalled"),
            pl.min_horizontal(pl.col("all") - pl.col("beside").fill_null(0), HANDOVER_NS).alias("after"),
        )
    )
    return by_gap.group_by("index").agg(
        pl.col("after").filter("transport").sum().alias("transport_handover_ns"),
        pl.col("stalled").filter("host_copy").sum().alias("host_copy_handover_ns"),
        pl.col("stalled").filter("host").sum().alias("launch_handover_ns"),
    )


def _followers(pieces: pl.DataFrame) -> pl.DataFrame:
    """Of each gap: blocking by others after transport, as far as they could have run beside something else without the transport.

    That is as long as the transport had run before the gap began, beside compute, and as long as the host still worked in the gap after it
    had issued them; and no longer than the transport had run when the first of them began, for without it they come no earlier than that.
    """
    moved = pieces["gap"].filter(pieces["transport"]).unique()
    pieces = pieces.filter(pl.col("gap").is_in(moved.implode()))  # nothing follows transport in any other gap
    first = pl.when("transport").then("start").min().over("gap")
    follows = (pl.col("blocks") & ~pl.col("transport") & (pl.col("start") > first)).fill_null(value=False)
    issued = pl.when("follows").then("issued").min().over("gap")
    worked = (
        pl.when(pl.col("cause").is_in([*_HOST, "allocator"]))
        .then((pl.col("end") - pl.max_horizontal("start", "after")).clip(0, None))
        .otherwise(0)
    )
    by_gap = (
        pieces.with_columns(follows.alias("follows"))
        .with_columns(issued.alias("after"))
        .group_by("gap")
        .agg(
            pl.col("index").first(),
            (pl.col("start").min() - pl.col("began").filter("transport").min()).clip(0, None).fill_null(0).alias("ahead"),
            pl.when(pl.col("after").first().is_not_null()).then(worked.sum()).otherwise(0).alias("beside"),
            pl.col("ns").filter("follows").sum().alias("behind"),
            (pl.col("start").filter("follows").min() - pl.col("began").filter("transport").min()).clip(0, None).alias("earlier"),
        )
    )
    followed = pl.min_horizontal(pl.col("ahead") + pl.col("beside"), "behind", "earlier")
    return by_gap.group_by("index").agg(followed.sum().alias("transport_follow_ns"))


def _shadows(shadowed: pl.DataFrame) -> pl.DataFrame:
    """index, and shadowed time in ns of the host's work and of the allocator."""
    work = pl.col("cause").is_in(list(HOST_WORK))
    return shadowed.group_by("index").agg(
        pl.col("ns").filter(work).sum().alias("launch_shadowed_ns"),
        pl.col("ns").filter(pl.col("cause") == "allocator").sum().alias("allocator_shadowed_ns"),
    )


def _restarts(
    pieces: pl.DataFrame, holds: pl.Expr, name: str, *, before: pl.DataFrame | None = None, awaited: bool = False
) -> pl.DataFrame:
    """`index` and `name`: host work between the end of a hold-up of the host and the launch that it delayed.

    Of each gap at most as much counts as the hold-up kept the host from working ahead: what it took inside the gap where only what the host
    waited for would go, or with `before` (index, op, ns) what it had taken before the gap began, where the call itself would go. With
    `awaited` the host needs what comes (a copy): without the way there it still waits for the compute before it, so that no more counts
    than the copy ran before the gap.
    """
    held = (
        pieces.filter(holds)
        .group_by("gap")
        .agg(pl.col("end").max().alias("freed"), pl.col("ns").sum().alias("held_ns"), pl.col("began").min())
    )
    pieces = pieces.filter(pl.col("gap").is_in(held["gap"].implode()) & pl.col("op").is_not_null())
    if awaited:
        gaps = pieces.group_by("gap").agg(pl.col("start").min().alias("begins"))
        held = held.join(gaps, on="gap", how="left").with_columns(
            pl.min_horizontal("held_ns", (pl.col("begins") - pl.col("began")).clip(0, None)).alias("held_ns")
        )
    if before is not None:
        earlier = before.group_by(GAP.alias("gap")).agg(pl.col("ns").max().alias("held_ns"))
        held = held.drop("held_ns").join(earlier, on="gap", how="inner")
    after = pieces.filter("host").select("index", "gap", "start", "ns").join(held, on="gap", how="inner")
    by_gap = (
        after.filter(pl.col("start") >= pl.col("freed"))
        .group_by("gap")
        .agg(pl.col("index").first(), pl.col("ns").sum(), pl.col("held_ns").first())
    )
    return by_gap.group_by("index").agg(pl.min_horizontal("ns", "held_ns").sum().alias(name))
