"""The launching threads as nodes: host work between calls, calls, and the returns of calls that waited; and what orders them.

A thread that launches goes on with its next call when the one before has returned and the work between is done. Where one thread launches
while another is quiet and then the other way round (autograd's backward thread), the second goes on after the first: nobody records that
hand-over, so it is inferred. A call that waited for the device is two nodes: its beginning, and its return once what it waited for was
there, with what it took from then on.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from diagnose.knowledge.taxonomy import HostRules
from diagnose.measure.host import FIRST_USE, GC, LOADING, MESSAGES, RECOMPILING, HostActivity, call_roles
from diagnose.measure.replay.graph import NODES, After, EdgeKind, NodeKind, by_row
from diagnose.model.intervals import latest, overlaps, sweep
from diagnose.model.trace import Trace

QUEUE = 1_024  # launches that a device takes before the next one waits (design contract; CUDA's limit)
# this project's choice: places of the queue that the driver may keep for itself (1,021 launches fit on real V100 and A100)
KEPT = 64
BROKEN = 0.01  # share of launches beyond which the limit is another one here, and not known
QUIET_NS = 100_000  # this project's choice: a thread that is quiet for so long while another one launches waits for that one
# this project's choice: with so many calls in a row that no call of the other falls between, a short pause of that is a turn
TURN_CALLS = 4

# What the host was doing, of parts of the gaps between calls: the first that applies.
_PAUSES = ((FIRST_USE, "first_use"), (MESSAGES, "message_passing"), (GC, "gc"), (LOADING, "loading"), (RECOMPILING, "recompilation"))


class Threads(Struct, frozen=True, kw_only=True):
    """The host of one device.

    `items`: nodes in order of thread and time: item (row number), thread, start, end, kind (host or call), name_id, cause, call, piece.
    `calls`: call (row number), thread, entered, start, end, first, last (items), correlation, name_id. `edges` between items: src, dst,
    kind, inferred (lag 0, after the end). `awaited`: op, item, kind (awaited or queue), after, inferred: what an item waits for on the
    device. `called`: the call that launched each operation, where known; `launching`: op, call: what each call that launched any did
    first.
    """

    items: pl.DataFrame
    calls: pl.DataFrame
    edges: pl.DataFrame
    awaited: pl.DataFrame
    called: pl.Series
    launching: pl.DataFrame


def threads_of(trace: Trace, work: pl.DataFrame, host: HostActivity, rules: HostRules, rank: int, until: int) -> Threads:
    """The threads that launch work of this device, up to `until`. `work` as `device_work` gives it, perhaps fewer rows."""
    launched = work.select("op", "end", "stream", "thread", "call_start", "role").drop_nulls("thread")
    computing = launched["thread"].filter(launched["role"] == "compute").unique()
    here = (pl.col("rank") == rank) & (pl.col("start") < until) & pl.col("thread").is_in(launched["thread"].unique().implode())
    calls = _outer(trace.calls.lazy().filter(here).select("thread", "start", "end", "name_id", "correlation").collect())
    issued = launched.drop_nulls("call_start").sort("call_start", maintain_order=True)
    begun = calls.select("thread", "call", pl.col("entered").alias("began"), pl.col("end").alias("returned")).sort("began")
    issued = issued.with_columns(_calls_of(issued, begun).alias("call"))
    called = by_row(issued["op"], issued["call"], work.height).alias("call")
    roles = call_roles(trace.names, calls, rules)
    frees = trace.names.filter(pl.col("text").str.contains(rules.call_pattern("allocator", "device")))["id"]
    freeing = calls.filter(pl.col("name_id").is_in(frees.implode()))
    launching = _first(work.select("op", called, pl.col("start").alias("freed")).drop_nulls("call"), calls.height)
    queued = _queue(calls, launching)
    held = _held(begun, launched["op"], issued, host, trace.calls.filter(pl.col("rank") == rank), freeing, queued)
    gaps = _gaps(calls, computing)
    pieces = _pieces(gaps, host, computing)
    items = _items(calls, held, pieces, roles, host)
    opens = items["call"].ne_missing(items["call"].shift(1))
    ends = {"begin": opens, "first": items["piece"] == 0, "last": opens.shift(-1, fill_value=True)}  # one each of every call, in order
    calls = calls.with_columns(items["item"].filter(chosen).alias(name) for name, chosen in ends.items())
    return Threads(
        items=items,
        calls=calls,
        edges=_order(items, calls, gaps),
        awaited=_awaited(items, calls, held, pieces, queued, _found_done(calls, freeing, issued, trace, roles, rank)),
        called=called,
        launching=launching.select("op", "call"),
    )


def _calls_of(issued: pl.DataFrame, begun: pl.DataFrame) -> pl.Series:
    """The call of `begun` (calls by their begin) that launched each operation of `issued` (by their calls); null where not known."""
    found = issued.select("thread", "call_start").join_asof(
        begun, left_on="call_start", right_on="began", by="thread", strategy="backward", check_sortedness=False
    )
    return found.select(pl.when(pl.col("call_start") <= pl.col("returned")).then("call")).to_series()


def _outer(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that lie in no other one, disjoint on their thread, by thread and start, numbered.

    `entered`: when each began as it was recorded. Times that were rounded let a call begin before the one before it ends: what it launched
    or waited for is found by that moment all the same.
    """
    own = calls if in_turn(calls) else calls.sort(["thread", "start", "end"], descending=[False, False, True])
    reach = pl.col("end").cum_max().shift(1).over("thread")
    outer = own.with_columns(reach.alias("reach")).filter(pl.col("reach").is_null() | (pl.col("end") > pl.col("reach")))
    begun = pl.max_horizontal("start", "reach").alias("start")
    return outer.select("thread", pl.col("start").alias("entered"), begun, "end", "name_id", "correlation").with_row_index("call")


def _first(launched: pl.DataFrame, calls: int) -> pl.DataFrame:
    """Of what each of so many calls launched what began first, in order of calls; `launched` in order of start."""
    row = by_row(launched["call"], pl.int_range(launched.height, dtype=pl.UInt32, eager=True), calls)
    if len(row) - row.null_count() == launched.height:  # each call launched one at most
        return launched[row.drop_nulls()]
    return launched.unique("call", keep="first", maintain_order=True).sort("call")


def in_turn(calls: pl.DataFrame) -> bool:
    """Whether the calls are of one thread and no two begin at once, in order: as most traces have them."""
    thread, start = calls["thread"], calls["start"]
    return bool(((thread == thread.shift(1)) & (start > start.shift(1))).all())


# ------------------------------------------------------------------------------------------------ calls that waited


def _held(
    begun: pl.DataFrame,
    launched: pl.Series,
    issued: pl.DataFrame,
    host: HostActivity,
    every: pl.DataFrame,
    freeing: pl.DataFrame,
    queued: pl.DataFrame,
) -> pl.DataFrame:
    """The calls that waited for the device: call, op, freed (when they could go on), kind, after, inferred. One row per call.

    `begun`: the calls by their begin; `launched`: operations that the threads launched; `issued`: those of which it is known when, in that
    order; `queued` as `_queue` gives it.
    """
    waited = host.blocked.filter(pl.col("awaited").is_not_null())
    waited = waited.filter(waited["awaited"].is_in(launched.implode()))
    threads = (
        every.join(waited.select("start").unique(), on="start", how="semi", maintain_order="left")
        .select("start", "end", "name_id", "thread")
        .unique(["start", "end", "name_id"], keep="first", maintain_order=True)
    )
    inside = waited.join(threads, on=["start", "end", "name_id"], how="inner").sort("start")
    found = inside.join_asof(begun, left_on="start", right_on="began", by="thread", strategy="backward", check_sortedness=False).filter(
        (pl.col("awaited_end") > pl.col("began")) & (pl.col("awaited_end") <= pl.col("returned"))
    )
    syncs = found.select(
        "call", pl.col("awaited").alias("op"), pl.col("awaited_end").alias("freed"), *_waits("awaited", inferred=pl.col("guessed"))
    )
    drained = (
        _last_ended(freeing, issued)
        .filter((pl.col("freed") > pl.col("start")) & (pl.col("freed") <= pl.col("end")))
        .select("call", "op", "freed", *_waits("awaited", inferred=True))
    )
    full = queued.filter((pl.col("freed") > pl.col("start")) & (pl.col("freed") <= pl.col("end"))).select(
        "call", "op", "freed", *_waits("queue", inferred=False)
    )
    return pl.concat([syncs, drained, full]).sort("call", "freed").unique("call", keep="last", maintain_order=True)


def _waits(kind: str, *, inferred: bool | pl.Expr) -> list[pl.Expr]:
    """The columns kind, after and inferred of waits of one kind: a queue has room when an operation begins, all else waits for ends."""
    return [
        pl.lit(kind, dtype=EdgeKind).alias("kind"),
        pl.lit("start" if kind == "queue" else "end", dtype=After).alias("after"),
        (inferred if isinstance(inferred, pl.Expr) else pl.lit(inferred)).alias("inferred"),
    ]


def _last_ended(calls: pl.DataFrame, issued: pl.DataFrame) -> pl.DataFrame:
    """What ends last of all that had been launched before each call: call, start, end, op, freed. `issued` in order of their calls."""
    ordered = issued.head(0 if calls.is_empty() else issued.height)
    latest = pl.col("end").cum_max()
    reached = ordered.select("call_start", latest.alias("freed"), pl.when(pl.col("end") == latest).then("op").forward_fill().alias("op"))
    return (
        calls.select("call", "start", "end").sort("start").join_asof(reached, left_on="start", right_on="call_start", strategy="backward")
    )


def _queue(calls: pl.DataFrame, launching: pl.DataFrame) -> pl.DataFrame:
    """Which operation has to begin before a launching call finds room: call, start, end, op, freed. Empty where the limit is another."""
    times = calls.select("start", "end")[launching["call"]]
    ordered = launching.select("call", "op", "freed").hstack(times).sort("start", maintain_order=True)
    depth = _depth(ordered)
    limited = ordered.select("call", "start", "end", pl.col("op", "freed").shift(depth)).slice(depth)
    if int((limited["freed"] > limited["end"]).sum()) > BROKEN * limited.height:
        return limited.clear()
    return limited.filter(pl.col("freed") <= pl.col("end"))


def _depth(launches: pl.DataFrame) -> int:
    """How many launches the queue takes: QUEUE, or the few less at which the trace shows launch after launch return.

    A call that returns because the oldest launch has begun would else be held for one begun earlier still, before the call: its wait
    would look like work of the host. `launches` in order of their calls: end, freed (when their operations began).
    """
    begun = launches["freed"].sort().search_sorted(launches["end"], side="right").cast(pl.Int64)
    ahead = pl.int_range(launches.height, eager=True) - begun  # launched before, and not yet begun when the call returned
    most = latest(ahead) if launches.height else 0
    full = QUEUE - KEPT <= most < QUEUE and int((ahead == most).sum()) > BROKEN * launches.height
    return most + 1 if full else QUEUE


def _awaited(
    items: pl.DataFrame, calls: pl.DataFrame, held: pl.DataFrame, pieces: pl.DataFrame, queued: pl.DataFrame, found_done: pl.DataFrame
) -> pl.DataFrame:
    """What items wait for on the device, those that found it done included: a faster host would have to wait."""
    columns = ["op", "item", "kind", "after", "inferred"]
    waited = held.with_columns(calls["last"].gather(held["call"]).alias("item")).select(columns)
    polled = (
        items.filter(pl.col("piece") < 0)
        .join(pieces.filter(pl.col("awaited").is_not_null()).select("call", "piece", "awaited"), on=["call", "piece"])
        .select(pl.col("awaited").alias("op"), "item", *_waits("awaited", inferred=True))
    )
    waiting = _among(held.filter(pl.col("kind") == "queue")["call"], calls)
    room = _in_time(queued.filter(~waiting.gather(queued["call"])), "freed", calls["first"], items["start"])
    room = room.select("op", "item", *_waits("queue", inferred=False))
    done = _in_time(found_done, "end", calls["last"], items["start"])
    done = done.select("op", "item", *_waits("awaited", inferred=pl.col("inferred")))
    of_others = pl.col("item").is_in(pl.concat([waited["item"], polled["item"], done["item"]]).implode())
    contested = pl.concat([waited, polled, room.filter(of_others), done]).unique(["op", "item"], keep="first", maintain_order=True)
    return pl.concat([contested, room.filter(~of_others)])  # of room, an item waits for one operation


def _among(chosen: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Whether each call is one of those chosen."""
    return pl.repeat(value=False, n=calls.height, eager=True).scatter(chosen, True)  # noqa: FBT003


def _in_time(waits: pl.DataFrame, moment: str, items: pl.Series, starts: pl.Series) -> pl.DataFrame:
    """The rows of which `moment` had come when the item of their call began, with it. `items`: of each call; `starts`: of each item."""
    item = items.gather(waits["call"]).alias("item")
    return waits.with_columns(item).filter(waits[moment] <= starts.gather(item))


def _found_done(
    calls: pl.DataFrame, freeing: pl.DataFrame, issued: pl.DataFrame, trace: Trace, roles: pl.DataFrame, rank: int
) -> pl.DataFrame:
    """The last operations that had been launched before a synchronising call on what it waits for: call, op, end, inferred.

    `freeing`: calls that wait for the whole device, too; `issued`: operations in order of their calls.
    """
    ids = roles.filter(pl.col("host_role") == "synchronise")["name_id"]
    syncs = calls.filter(pl.col("name_id").is_in(ids.implode()))
    told = trace.waits.filter((pl.col("rank") == rank) & pl.col("kind").is_in(["stream_sync", "device_sync"]))
    named = syncs.join(
        told.filter(pl.col("correlation").is_not_null()).select("correlation", "stream", "kind").unique("correlation", keep="first"),
        on="correlation",
        how="inner",
    )
    issued = issued.filter(pl.col("call").is_not_null()).select("op", "end", "stream", "call_start")
    of_stream = (
        named.filter(pl.col("stream").is_not_null() & (pl.col("kind") == "stream_sync"))
        .select("call", "start", "stream")
        .sort("start")
        .join_asof(issued, left_on="start", right_on="call_start", by="stream", strategy="backward", check_sortedness=False)
    )
    streams = issued.select("stream").unique()
    whole = pl.concat([named.filter(pl.col("kind") == "device_sync").select("call", "start"), freeing.select("call", "start")])
    of_device = (
        whole.unique("call")
        .join(streams, how="cross")
        .sort("start")
        .join_asof(issued, left_on="start", right_on="call_start", by="stream", strategy="backward", check_sortedness=False)
        .sort("call", "op")
        .unique("op", keep="first", maintain_order=True)
    )
    columns = ["call", "op", "end"]
    return (
        pl.concat([of_stream.select(columns), of_device.select(columns)])
        .drop_nulls("op")
        .with_columns(pl.lit(value=False).alias("inferred"))
    )


# ------------------------------------------------------------------------------------------------ between calls


def _gaps(calls: pl.DataFrame, computing: pl.Series) -> pl.DataFrame:
    """What lies before each call: call, thread, before (the call after which it begins), start, end, handover."""
    before = calls.select(
        "call",
        "thread",
        pl.col("call").shift(1).over("thread").alias("before"),
        pl.col("end").shift(1).over("thread").alias("start"),
        pl.col("start").alias("end"),
    )
    turns = _turns((calls if len(computing) > 1 else calls.clear()).filter(pl.col("thread").is_in(computing.implode())))
    return (
        before.join(turns, on="call", how="left", maintain_order="left")
        .with_columns(pl.col("after").is_not_null().alias("handover"))
        .with_columns(
            pl.coalesce("after", "before").alias("before"), pl.when("handover").then("after_end").otherwise("start").alias("start")
        )
        .select("call", "thread", "before", "start", "end", "handover")
        .filter(pl.col("before").is_not_null())
    )


def _turns(calls: pl.DataFrame) -> pl.DataFrame:
    """Where one thread goes on after another: call, after (the last call of the other), after_end."""
    ordered = calls.sort("start", "call").with_columns(pl.col("thread").rle_id().alias("block"))
    blocks = (
        ordered.group_by("block", maintain_order=True)
        .agg(
            pl.col("thread").first(),
            pl.col("call").first(),
            pl.col("call").last().alias("last"),
            pl.col("start").first(),
            pl.col("end").max(),
            pl.len().alias("count"),
        )
        .with_columns(
            (pl.col("start") - pl.col("end").shift(1).over("thread")).alias("quiet_before"),
            (pl.col("start").shift(-1).over("thread") - pl.col("end")).alias("quiet_after"),
        )
    )
    other = blocks.with_columns(
        pl.col("last").shift(1).alias("after"), pl.col("end").shift(1).alias("after_end"), pl.col("quiet_after").shift(1).alias("left")
    )
    left = (pl.col("left").fill_null(QUIET_NS) >= QUIET_NS) | (pl.col("count") >= TURN_CALLS)
    waits = (pl.col("quiet_before").fill_null(QUIET_NS) >= QUIET_NS) & left
    return other.filter(pl.col("after").is_not_null() & waits & (pl.col("after_end") <= pl.col("start"))).select(
        "call", "after", "after_end"
    )


def _pieces(gaps: pl.DataFrame, host: HostActivity, computing: pl.Series) -> pl.DataFrame:
    """The gaps cut by what the host was doing: call, piece (negative, in order), start, end, cause, awaited (polled: the operation)."""
    known = gaps.filter(pl.col("end") > pl.col("start")).select("call", "thread", "start", "end")
    segments = _segments(host)
    parts = [_cut(own.sort("start"), segments) for (thread,), own in known.group_by("thread", maintain_order=True) if thread in computing]
    cut = pl.concat([known.select("call", "start", "end", *_NOTHING).clear(), *parts])
    whole = known.join(cut, on="call", how="anti").select("call", "start", "end", *_NOTHING, pl.lit(-1, dtype=pl.Int64).alias("piece"))
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("call") - pl.len().over("call")
    known_parts = cut.filter(pl.col("cause").ne_missing(_POLLING)).sort("call", "start").with_columns(place.alias("piece"))
    return pl.concat([known_parts, whole]).with_columns(pl.col("cause").fill_null("python" if host.python else "host"))


_NOTHING = (pl.lit(None, dtype=pl.String).alias("cause"), pl.lit(None, dtype=pl.UInt32).alias("awaited"))


def _cut(gaps: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """The gaps of one thread, by start, in which more is known of the host, cut where that changes: call, start, end, cause, awaited."""
    common = overlaps(gaps, segments)
    of_gap = gaps.select("call", "start", "end").select(pl.all().gather(common["left"]))
    moments = pl.concat(
        [
            of_gap.select("call", "start", pl.col("end").alias("until")),
            *(of_gap.select("call", common[edge].alias("start"), pl.col("end").alias("until")) for edge in ("start", "end")),
        ]
    )
    cut = (
        moments.filter(pl.col("start") < pl.col("until"))
        .unique(["call", "start"])
        .sort("call", "start")
        .with_columns(pl.col("start").shift(-1).over("call").fill_null(pl.col("until")).alias("end"))
        .sort("start")
    )
    known = cut.join_asof(
        segments.select(pl.col("start").alias("from"), pl.col("end").alias("to"), "cause", "awaited"),
        left_on="start",
        right_on="from",
        strategy="backward",
    )
    inside = (pl.col("start") < pl.col("to")).fill_null(value=False)
    return known.select("call", "start", "end", *(pl.when(inside).then(name).alias(name) for name in ("cause", "awaited")))


_POLLING = "polling"


def _segments(host: HostActivity) -> pl.DataFrame:
    """What the host is known to do between calls, disjoint and by start: start, end, cause, awaited."""
    returned = host.in_call.select(pl.col("end").alias("start"))
    polls = host.blocked.filter(pl.col("guessed") & pl.col("awaited").is_not_null()).join(returned, on="start", how="semi")
    bits = [
        host.state.filter(pl.col("mask") & bit != 0).select("start", "end", pl.lit(place, dtype=pl.UInt8).alias("bit"))
        for place, (bit, _) in enumerate(_PAUSES)
    ]
    waits = polls.select("start", pl.col("awaited_end").alias("end"), pl.lit(len(_PAUSES), dtype=pl.UInt8).alias("bit"))
    after = polls.select(pl.col("awaited_end").alias("start"), "end", pl.lit(len(_PAUSES) + 1, dtype=pl.UInt8).alias("bit"))
    swept = sweep(pl.concat([*bits, waits, after]), cuts=pl.concat([polls["start"], polls["awaited_end"]])).filter(pl.col("mask") != 0)
    names = [_POLLING, *(name for _, name in _PAUSES)]
    places = [len(_PAUSES), *range(len(_PAUSES))]
    first = pl.coalesce(
        *(pl.when(pl.col("mask") & (1 << place) != 0).then(pl.lit(name)) for place, name in zip(places, names, strict=True)),
        pl.lit("host_sync"),
    )
    return swept.select("start", "end", first.alias("cause")).join(
        polls.select(pl.col("awaited_end").alias("start"), pl.col("awaited").cast(pl.UInt32)).unique("start", keep="last"),
        on="start",
        how="left",
        maintain_order="left",
    )


# ------------------------------------------------------------------------------------------------ nodes


def _items(calls: pl.DataFrame, held: pl.DataFrame, pieces: pl.DataFrame, roles: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """The nodes of the threads, in order of thread and time."""
    role = pl.col("host_role")
    cause = (
        pl.when(role == "allocator")
        .then(_cause("allocator"))
        .when(role == "synchronise")
        .then(_cause("host_sync"))
        .otherwise(_cause("launch"))
    )
    blocked = held.filter(pl.col("kind") == "awaited")["call"]
    waits = _among(blocked, calls)
    known = (
        calls.select("thread", "call", "start", "end", "name_id")
        .join(roles, on="name_id", how="left", maintain_order="left")
        .with_columns(cause.alias("cause"), by_row(held["call"], held["freed"], calls.height).alias("freed"))
        .with_columns(
            pl.when(waits & (role != "allocator").fill_null(value=True)).then(_cause("host_sync")).otherwise("cause").alias("cause")
        )
    )
    for bit, name in ((FIRST_USE, "first_use"), (RECOMPILING, "recompilation")):
        uses = host.state.filter(pl.col("mask") & bit != 0).select(pl.col("start").alias("used"), pl.col("end").alias("used_until"))
        if not uses.is_empty():
            used = pl.col("start") < pl.col("used_until")
            known = (
                known.sort("start")
                .join_asof(uses.sort("used"), left_on="start", right_on="used", strategy="backward")
                .with_columns(pl.when(used.fill_null(value=False)).then(_cause(name)).otherwise("cause").alias("cause"))
                .drop("used", "used_until")
            )
    waited = pl.col("freed").is_not_null()
    call = pl.lit("call", dtype=NodeKind).alias("kind")
    columns = ["thread", "call", "piece", "start", "end", "kind", "name_id", "cause"]
    begun = known.with_columns(_piece(0), pl.when(waited).then("start").otherwise("end").alias("end"), call)
    returned = known.filter(waited).with_columns(_piece(1), pl.col("freed").alias("start"), call)
    between = pieces.select(
        calls["thread"].gather(pieces["call"]),
        "call",
        "piece",
        "start",
        "end",
        pl.lit("host", dtype=NodeKind).alias("kind"),
        pl.lit(None, dtype=calls.schema["name_id"]).alias("name_id"),
        pl.col("cause").cast(NODES["cause"]),
    )
    return (
        pl.concat([begun.select(columns), returned.select(columns), between.select(columns)])
        .sort(pl.col("call").cast(pl.Int64) * _PIECES + pl.col("piece"), maintain_order=True)
        .with_row_index("item")
    )


def _cause(name: str) -> pl.Expr:
    return pl.lit(name, dtype=NODES["cause"])


def _piece(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.Int64).alias("piece")


_PIECES = 1 << 32  # more than a gap is ever cut into


def _order(items: pl.DataFrame, calls: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """What goes on after what on the host: src, dst (items), kind, inferred."""
    chain = items.select(
        pl.col("item").shift(1).over("thread").alias("src"),
        pl.col("item").alias("dst"),
        pl.lit("thread", dtype=EdgeKind).alias("kind"),
        pl.lit(value=False).alias("inferred"),
    ).drop_nulls("src")
    turns = (
        gaps.filter("handover")
        .join(calls.select("call", pl.col("begin").alias("dst")), on="call")
        .join(calls.select(pl.col("call").alias("before"), pl.col("last").alias("src")), on="before")
        .select("src", "dst", pl.lit("handover", dtype=EdgeKind).alias("kind"), pl.lit(value=True).alias("inferred"))
    )
    return pl.concat([chain, turns, _begun(items, turns)])


def _begun(items: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """A thread that nothing hands over to begins some time after what another one did before: src, dst, kind, inferred."""
    heads = items.filter(pl.col("thread").is_first_distinct() & ~pl.col("item").is_in(turns["dst"].implode()))
    before = items.select(pl.col("item").alias("src"), "end").filter(pl.col("end") <= pl.lit(heads["start"].max(), dtype=pl.Int64))
    return (
        heads.select(pl.col("item").alias("dst"), "start")
        .sort("start")
        .join_asof(before.sort("end"), left_on="start", right_on="end", strategy="backward", coalesce=False)
        .filter(pl.col("src").is_not_null() & (pl.col("src") != pl.col("dst")))
        .select("src", "dst", pl.lit("handover", dtype=EdgeKind).alias("kind"), pl.lit(value=True).alias("inferred"))
    )
