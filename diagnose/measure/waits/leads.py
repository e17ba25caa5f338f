"""How far the host leads the device: a faster network saves no more than that, and a host that launches less saves more.

Without transport the device would come to each operation earlier, but not before the host has issued it. On the stream that computes most
an operation k moves forward by what is gone before it, and by no more than its lead (the time that it lay issued) and what the host gains
itself: a call that held the host returns earlier, as far as what it waited for ends earlier. What is lost at one operation none after it
regains:

    shift(k) = min(shift(k - 1) + gone(k), lead(k) + gained(k))

`gone` is generous (whole gaps in which transport or the host held compute up), so the shift at a step's end is a ceiling, as the bound is.
Other operations that compute waited for there (a copy to the host, the update's copies back) move as compute does, each by its own lead,
and what waited for such an operation comes no earlier than its end.

Without repeated work the same holds the other way round. The host need not launch it nor wait in it, so it gains all the time that it
spends there, which may be more than the device does. What it gains more shortens the gaps in which it is late (a loader between two
micro-batches), until a call holds it again. There gone(k) is what is repeated and the time in which compute was launch-starved; where k
was, lead(k) is 0.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from diagnose.measure.host import POLL_REACH_NS, HostActivity
from diagnose.measure.memory import Recompute
from diagnose.measure.waits.hold_ups import GAP, HOST_WORK
from diagnose.measure.waits.stalls import HANDOVER_NS, HOST_CAUSES, Stalls
from diagnose.model.intervals import lasting, length_until, merge

# This project's choice: a launching call this long may have waited for room in the queue, and then returns earlier where the device is.
HELD_NS = 50_000
# This project's choice: where the host waits for the device, nearly each silence ends just after the device has run dry. Work of its own
# ends then by chance alone.
_POLLED_SHARE = 0.8


class Leads(Struct, frozen=True, kw_only=True):
    """How far the host led, of each stretch between two exchanges and two holds where it led least: `line` (start, issued, lead), by start;
    and what held it until something happened on the device: `holds` (start, end), by end. What is gone only inside exchanges moves all
    operations of a stretch alike, so that no other one bounds it.
    """

    line: pl.DataFrame
    holds: pl.DataFrame

    def limited_share(self, gone: pl.DataFrame, windows: pl.DataFrame) -> float:
        """Of time inside exchanges that would be gone (start, end; disjoint, by start) the share in whose place the host would be late."""
        total = int((length_until(gone, windows["end"]) - length_until(gone, windows["start"])).sum())
        if self.line.is_empty() or not total:
            return 0.0
        return min(1.0, max(0, total - _saved(self.line, gone, self.holds, windows)) / total)


def leads(found: Stalls, work: pl.DataFrame, inside: pl.DataFrame, holds: pl.DataFrame, exchanges: pl.DataFrame) -> Leads:
    """`found`, `work`, `inside`, `holds`: as for `host_limited`; `exchanges`: their start, in order."""
    line = _with_others(_line(inside), found, work)
    part = holds["end"].search_sorted(line["issued"], side="right").alias("part")
    stretch = exchanges["start"].search_sorted(line["start"], side="left").alias("stretch")
    least = line.with_columns(part, stretch).group_by("part", "stretch").agg(pl.col(*line.columns).get(pl.col("lead").arg_min()))
    return Leads(line=least.select(line.columns).sort("start", "issued"), holds=holds)


def claims(per_step: pl.DataFrame) -> pl.Series:
    """What transport is charged with on one device's own time, per window: what blocked, and what goes with that. `per_step`: a budget."""
    columns = ("blocking_transport_ns", "transport_follow_ns", "transport_handover_ns", "transport_restart_ns")
    return per_step.select(pl.sum_horizontal(columns)).to_series()


def host_limited(
    found: Stalls, work: pl.DataFrame, inside: pl.DataFrame, windows: pl.DataFrame, holds: pl.DataFrame, claimed: pl.Series
) -> pl.DataFrame:
    """Of `claimed` (ns per window, by transport) that in whose place the host would hold compute up: index, transport_host_limited_ns.

    `work`: start, end, stream, role, call_start, issued, in order of start; `inside`: those in the windows; `holds`: what `holds_of` finds.
    """
    total = int(claimed.sum())
    line = _with_others(_line(inside), found, work)
    limited = 0 if line.is_empty() or not total else max(0, total - max(0, _saved(line, _gone(found, work), holds, windows)))
    share = limited / total if total else 0.0
    return windows.select("index", (claimed * share).floor().cast(pl.Int64).alias("transport_host_limited_ns"))


def recompute_restart(
    found: Stalls, work: pl.DataFrame, inside: pl.DataFrame, windows: pl.DataFrame, holds: pl.DataFrame, repeated: Recompute
) -> pl.DataFrame:
    """By what the host would be late less without the repeated work, beyond what that takes: index, recompute_restart_ns (or null)."""
    if repeated.per_window is None:
        return windows.select("index", pl.lit(None, dtype=pl.Int64).alias("recompute_restart_ns"))
    claimed = repeated.per_window["ns"]
    if not claimed.sum():
        return windows.select("index", (claimed * 0).alias("recompute_restart_ns"))
    again = pl.col("op").is_in(repeated.ops.implode()).fill_null(value=False)
    pieces, is_late = found.pieces.sort("start"), pl.col("cause").is_in(["host_sync", *HOST_WORK]) & ~again
    late = pieces.filter(is_late)
    follows = is_late.shift(1, fill_value=False) & (pl.col("start") == pl.col("end").shift(1))
    launched = _launching(work.with_columns(again.alias("again")))
    share = 0.0
    if not late.is_empty() and not launched.is_empty():
        own = _line(inside, late["op"], pieces.filter(follows)["producer"])
        line, held = (frame.filter(~_within(frame[moment], launched)) for frame, moment in ((own, "issued"), (holds, "end")))
        moments = pl.concat([held.with_columns(pl.lit(value=False).alias("free")), launched.with_columns(pl.lit(value=True).alias("free"))])
        gone = pl.concat([repeated.spans.select("start", "end"), late.select("start", "end")]).sort("start")
        share = max(0.0, _saved(line, gone, moments.sort("end", "start"), windows) / int(claimed.sum()) - 1)
    return windows.select("index", (claimed * share).floor().cast(pl.Int64).alias("recompute_restart_ns"))


def _launching(work: pl.DataFrame) -> pl.DataFrame:
    """When the host was busy with repeated work: from the launch of the compute before it to that after it. start, end; disjoint."""
    compute = work.filter((pl.col("role") == "compute") & pl.col("issued").is_not_null()).sort("issued", "op")
    issued = pl.col("issued")
    runs = compute.with_columns(issued.shift(1).alias("from"), issued.shift(-1).alias("to"), pl.col("again").rle_id().alias("run"))
    spans = runs.filter("again").group_by("run").agg(pl.col("from").first().alias("start"), pl.col("to").last().alias("end"))
    return merge(spans.drop_nulls().select("start", "end"))


def _within(moments: pl.Series, spans: pl.DataFrame) -> pl.Series:
    """Whether each moment lies in one of the spans (disjoint, sorted), its end included."""
    place = spans["start"].search_sorted(moments, side="left").cast(pl.Int64) - 1
    return (place >= 0) & (spans["end"].gather(place.clip(0)) >= moments)


def _line(inside: pl.DataFrame, starved: pl.Series | None = None, awaited: pl.Series | None = None) -> pl.DataFrame:
    """Operations in the windows (`inside`) on the stream that computes most, where their launch was recorded: start, issued, lead.

    With those of `starved` (rows), on any stream, which lead by nothing, and `awaited`: for these compute waited once they were launched.
    """
    lengths = inside.filter(pl.col("role") == "compute").group_by("stream").agg(lasting.sum().alias("ns"))
    main = lengths.sort("ns", "stream", nulls_last=True).tail(1)
    on_main = pl.col("stream").eq_missing(main["stream"].first()) if main.height else pl.lit(value=False)
    lead = (pl.col("start") - pl.col("issued")).clip(0, None).alias("lead")
    if starved is None or awaited is None:
        return inside.select(pl.col("start", "issued").filter(on_main & pl.col("issued").is_not_null())).with_columns(lead)
    bound = pl.col("op").is_in(starved.drop_nulls().implode())
    others = bound | pl.col("op").is_in(awaited.drop_nulls().implode())
    own = inside.filter((on_main | others) & pl.col("issued").is_not_null())
    return own.select("start", "issued", pl.when(bound).then(0).otherwise(lead).alias("lead"))


def _with_others(line: pl.DataFrame, found: Stalls, work: pl.DataFrame) -> pl.DataFrame:
    """`line` with what blocked compute besides transport, on any stream, by its end: what waited for it comes no earlier than that."""
    producers = found.pieces["producer"].drop_nulls().unique()
    others = work.select("op", "start", "end", "role", "issued").select(pl.all().gather(producers))
    others = others.filter((pl.col("role") != "transport") & pl.col("issued").is_not_null())
    lead = (pl.col("start") - pl.col("issued")).clip(0, None)
    return pl.concat([line, others.select(pl.col("end").alias("start"), "issued", lead.alias("lead"))]).sort("start", "issued")


def _gone(found: Stalls, work: pl.DataFrame) -> pl.DataFrame:
    """What would be gone without transport, at most: disjoint pieces (start, end) by start.

    An operation that began when compute, or another one that is no transport either, handed over to it goes on doing so: its time stays.
    """
    pieces = found.pieces.select(GAP.alias("gap"), "start", "end", "cause", "producer")
    held = pl.col("cause").is_in(list(HOST_CAUSES)) | (pl.lit(work["role"]).gather("producer") == "transport").fill_null(value=False)
    gaps = pieces.filter(held)["gap"].unique()
    pieces = pieces.filter(pl.col("gap").is_in(gaps.implode())).sort("start")  # gaps are disjoint: pieces of one stand together
    same = (pl.col("gap") == pl.col("gap").shift(1)).fill_null(value=False)
    opened = pl.when(~same).then("start").forward_fill().alias("opened")
    behind = pieces.with_columns(opened).with_row_index("place").filter(pl.col("cause") == "blocking")
    of_producer = work.select("role", pl.col("start").alias("began"), "issued").select(pl.all().gather(behind["producer"]))
    before, earlier = (pl.when(same).then(pl.col(name).shift(1)).alias(alias) for name, alias in (("end", "before"), ("role", "earlier")))
    behind = behind.hstack(of_producer).with_columns(before, earlier)
    handed = pl.when(pl.col("before").is_null()).then(pl.col("issued") < pl.col("opened")).otherwise(pl.col("earlier") != "transport")
    at_once = (pl.col("began") - pl.coalesce("before", "opened")).is_between(0, HANDOVER_NS)
    stays = behind.filter(handed & at_once & (pl.col("role") != "transport"))["place"]
    moved = pl.repeat(value=True, n=pieces.height, eager=True).scatter(stays, values=False)
    return pieces.select("start", "end").filter(moved)


def holds_of(work: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """What held the host until something happened on the device, by its end: start, end.

    Calls that waited, launches that found the queue full, and stretches without any call at places where they end just when the device has
    run dry: what waits there, a poll or a call that was not recorded, no trace tells.
    """
    waited = pl.concat([host.blocked, host.freeing]).select("start", pl.col("awaited_end").alias("end"))
    long = lasting >= HELD_NS
    launches = work.select(pl.col("call_start").alias("start"), pl.col("issued").alias("end")).filter(long).unique()
    quiet = host.in_call.select(pl.col("end").alias("start"), pl.col("start").shift(-1).alias("end")).drop_nulls().filter(long)
    opened, closed = work.select(pl.min_horizontal("issued", "start")).to_series().sort(), work["end"].sort()
    done = closed.search_sorted(quiet["end"], side="right").cast(pl.Int64)
    drained = (done > 0) & (opened.search_sorted(quiet["end"], side="right").cast(pl.Int64) == done)
    last = closed.gather((done - 1).clip(0))
    at_once = drained & (quiet["end"] - last <= POLL_REACH_NS)
    places = _places(quiet, work).with_columns(at_once.alias("at_once"), last.alias("end"))
    polled = pl.col("at_once").mean().over("before", "after") >= _POLLED_SHARE
    silent = places.filter(pl.col("at_once") & polled).select("start", "end")
    return pl.concat([waited, launches, silent]).filter(pl.col("end") > pl.col("start")).sort("end", "start")


def _places(quiet: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Stretches between two calls, with the names of what the host launched last before and first after them: `before`, `after`."""
    launched = work.select("issued", "op", "name_id").drop_nulls("issued").sort("issued", "op")
    row = launched["issued"].search_sorted(quiet["end"], side="left").cast(pl.Int64)

    def name(place: pl.Series) -> pl.Series:
        inside = (place >= 0) & (place < launched.height)
        return launched["name_id"].gather(place.set(~inside, None))

    return quiet.with_columns(name(row - 1).alias("before"), name(row).alias("after"))


def _saved(line: pl.DataFrame, gone: pl.DataFrame, holds: pl.DataFrame, windows: pl.DataFrame) -> int:
    """By how much the windows together end earlier, at most. `holds` that are `free` are gone whole, whatever the device does."""
    slack = line["lead"] - length_until(gone, line["start"])
    part = holds["end"].search_sorted(line["issued"], side="right").cast(pl.Int64)  # how many holds lay behind the host
    least = dict(pl.DataFrame({"part": part, "slack": slack}).group_by("part").agg(pl.col("slack").min()).iter_rows())
    gained, lowest, gains = 0, 0, [0]
    free = holds["free"] if "free" in holds.columns else pl.repeat(value=False, n=holds.height, eager=True)
    for number, (length, moved, whole) in enumerate(
        zip(holds["end"] - holds["start"], length_until(gone, holds["end"]), free, strict=True)
    ):
        lowest = min(lowest, least.get(number, 0) + gained) if number in least else lowest
        gained = length + gained if whole else max(0, min(length + gained, lowest + moved))
        gains.append(gained)
    reached = (slack + pl.Series("gains", gains, dtype=pl.Int64).gather(part)).cum_min()

    def shift(moments: pl.Series) -> pl.Series:
        place = line["start"].search_sorted(moments, side="left").cast(pl.Int64) - 1
        low = pl.select(pl.when(place < 0).then(0).otherwise(pl.min_horizontal(reached.gather(place.clip(0)), pl.lit(0)))).to_series()
        return low + length_until(gone, moments)

    return int((shift(windows["end"]) - shift(windows["start"])).sum())
