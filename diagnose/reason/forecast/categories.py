"""Where the time of replayed steps goes: the exclusive categories of a measured step, found in the operations as they were replayed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import polars as pl
from msgspec import Struct

from diagnose.document.device import Timeline, TimelineColumns
from diagnose.measure.budget import Concurrency, compute_shares, concurrency, is_role
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.path import Times
from diagnose.measure.timeline import LONGEST_NAME
from diagnose.model.intervals import lasting, merge, overlaps, uncovered
from diagnose.reason.compare.metrics import CATEGORIES, COMPUTE

DRAWN = 20_000  # operations of a step that a figure shows, the longest: two of them stand on one page
_TRANSPORT, _PACKING, _COPY, _LAUNCH, _SYNC, _STALLED, _IDLE = CATEGORIES
# How a figure calls stretches without compute of each category (render/words.py).
_GAPS: Mapping[str, str] = {
    _TRANSPORT: "blocking_transport",
    _PACKING: "blocking_packing",
    _COPY: "blocking_copy",
    _LAUNCH: "host_work",
    _SYNC: "host_sync",
    _STALLED: "dependency_stalled",
    _IDLE: "dependency_stalled",
}


class Replayed(Struct, frozen=True, kw_only=True, dict=True):
    """A graph with its times after a replay, and the kept steps (index, start, end), disjoint and in order."""

    graph: Graph
    times: Times
    steps: pl.DataFrame

    @property
    def lengths(self) -> list[int]:
        """Length of each kept step, ns."""
        return (self.steps["end"] - self.steps["start"]).to_list()

    @cached_property
    def operations(self) -> pl.DataFrame:
        """What ran, in order of start: node, start, end, bucket, role, comm, lane, name_id, issued (ns; null: launch not recorded)."""
        issue = self.graph.edges.filter(pl.col("kind") == "issue").unique("dst", keep="first", maintain_order=True)
        from_end = issue["after"] == "end"
        begun, ended = (series.gather(issue["src"]) for series in (self.times.start, self.times.end))
        issued = issue.select(
            pl.col("dst").alias("node"), pl.select(pl.when(from_end).then(ended).otherwise(begun)).to_series().alias("issued")
        )
        return (
            self.graph.nodes.select("kind", "bucket", pl.col("role").cast(pl.String), "comm", "lane", "name_id")
            .with_row_index("node")
            .with_columns(self.times.start.alias("start"), self.times.end.alias("end"))
            .filter((pl.col("kind") == "op") & (pl.col("end") > pl.col("start")))
            .drop("kind")
            .join(issued, on="node", how="left", maintain_order="left")
            .sort("start", "node")
        )

    @cached_property
    def ran(self) -> Concurrency:
        """What ran together."""
        keys = ["bucket", "role", "comm"]
        classes = self.operations.select(keys).unique().sort(keys, nulls_last=True).with_row_index("class_id")
        work = self.operations.join(classes, on=keys, how="left", nulls_equal=True, maintain_order="left")
        known = classes.rename({"comm": "kind"}).with_columns(pl.lit(None, dtype=pl.String).alias("backend"))
        return concurrency(work.select("start", "end", "class_id", pl.lit("kernel").alias("kind")), known, self.steps)

    @cached_property
    def pieces(self) -> pl.DataFrame:
        """Every stretch of a step without compute: index, start, end, category; disjoint and in order."""
        transport, packing = self.ran.mask(is_role("transport")), self.ran.mask(is_role("packing"))
        what = pl.when(pl.col("mask") & transport != 0).then(pl.lit(_TRANSPORT)).when(pl.col("mask") & packing != 0).then(pl.lit(_PACKING))
        others = self.ran.without_compute.select("start", "end", what.otherwise(pl.lit(_COPY)).alias("category"))
        common = overlaps(others, self.steps)
        beside = pl.DataFrame(
            {
                "index": self.steps["index"].gather(common["right"]),
                "start": common["start"],
                "end": common["end"],
                "category": others["category"].gather(common["left"]),
            }
        )
        return pl.concat([beside, self._still()]).sort("start")

    def _still(self) -> pl.DataFrame:
        """Stretches of a step in which nothing ran, by why: the host had not launched what comes next, or it is not known."""
        busy = merge(self.operations.select("start", "end"))
        first, last = int(self.steps["start"][0]), int(self.steps["end"][-1])
        low = pl.concat([pl.Series([first], dtype=pl.Int64), busy["end"]])
        high = pl.concat([busy["start"], pl.Series([last], dtype=pl.Int64)])
        nothing = pl.DataFrame({"start": low, "end": high}).filter(pl.col("end") > pl.col("start"))
        common = overlaps(nothing, self.steps)
        closes = self.steps["end"].gather(common["right"]).alias("closes")
        still = common.select(self.steps["index"].gather(common["right"]).alias("index"), "start", "end", closes)
        compute = self.operations.filter(pl.col("role") == "compute").select(pl.col("start").alias("begins"), "issued")
        told = still.join_asof(compute, left_on="end", right_on="begins", strategy="forward", coalesce=False)
        late = told.select("index", "start", pl.min_horizontal("end", pl.col("issued").fill_null(pl.col("start"))).alias("end"))
        late = late.filter(pl.col("end") > pl.col("start"))
        follows = (pl.col("begins") < pl.col("closes")).fill_null(value=False)
        rest = told.select(
            "index",
            pl.max_horizontal("start", "issued").alias("start"),
            "end",
            pl.when(follows).then(pl.lit(_STALLED)).otherwise(pl.lit(_IDLE)).alias("category"),
        )
        sync = self.graph.nodes["cause"] == _SYNC
        held = pl.DataFrame({"start": self.times.start, "end": self.times.end}).filter(sync).filter(pl.col("end") > pl.col("start"))
        held = merge(held.sort("start")) if held.height else held
        common = overlaps(held, late)
        beyond = uncovered(late, common.select("start", "end", pl.col("right").alias("left")))
        return pl.concat(
            [
                common.select(late["index"].gather(common["right"]), "start", "end", pl.lit(_SYNC).alias("category")),
                beyond.select(late["index"].gather(beyond["left"]), "start", "end", pl.lit(_LAUNCH).alias("category")),
                rest.filter(pl.col("end") > pl.col("start")),
            ]
        )

    @cached_property
    def categories(self) -> dict[str, int]:
        """Ns by category over all kept steps; they add up to these exactly."""
        used = self.operations["bucket"].drop_nulls().unique().sort().to_list()
        computed = compute_shares(self.ran, pl.Enum(used))
        found = {
            f"{COMPUTE}{bucket}": int(ns) for bucket, ns in computed.group_by("bucket").agg(pl.col("ns").sum()).sort("bucket").iter_rows()
        }
        rest = self.pieces.group_by("category").agg(lasting.sum().alias("ns"))
        absent = dict(rest.iter_rows())
        return found | {name: int(absent[name]) for name in CATEGORIES if name in absent}


def drawn(replayed: Replayed, step: int) -> Timeline:
    """One kept step after a replay, for a figure."""
    window = replayed.steps.filter(pl.col("index") == step)
    begin, close = int(window["start"][0]), int(window["end"][0])
    own = replayed.operations.filter((pl.col("start") < close) & (pl.col("end") > begin))
    omitted = max(own.height - DRAWN, 0)
    if omitted:
        own = own.sort(lasting, descending=True).head(DRAWN).sort("start", "node")
    own = own.with_columns(pl.col("start").clip(lower_bound=begin), pl.col("end").clip(upper_bound=close))
    gaps = replayed.pieces.filter(pl.col("index") == step)
    texts = dict(replayed.graph.names.select("id", "text").iter_rows())
    names = [(texts.get(one) or "")[:LONGEST_NAME] for one in own["name_id"].to_list()]
    lanes, buckets = list(dict.fromkeys(own["lane"].to_list())), list(dict.fromkeys(own["bucket"].fill_null("").to_list()))
    known, causes = list(dict.fromkeys(names)), list(dict.fromkeys(_GAPS[one] for one in gaps["category"].to_list()))
    numbers = {name: place for place, name in enumerate(known)}
    columns = TimelineColumns(
        streams=tuple(lanes),
        buckets=tuple(buckets),
        names=tuple(known),
        causes=tuple(causes),
        start_ns=tuple((own["start"] - begin).to_list()),
        duration_ns=tuple((own["end"] - own["start"]).to_list()),
        stream=tuple(map(lanes.index, own["lane"].to_list())),
        bucket=tuple(map(buckets.index, own["bucket"].fill_null("").to_list())),
        name=tuple(map(numbers.__getitem__, names)),
        queued_ns=(None,) * own.height,
        range=(None,) * own.height,
        gap_start_ns=tuple((gaps["start"] - begin).to_list()),
        gap_duration_ns=tuple((gaps["end"] - gaps["start"]).to_list()),
        gap_cause=tuple(causes.index(_GAPS[one]) for one in gaps["category"].to_list()),
        gap_blocked_by=(None,) * gaps.height,
        omitted=omitted,
    )
    graph = replayed.graph
    return Timeline(rank=graph.rank, device=graph.device, step=step, start_ns=begin, end_ns=close, columns=columns)
