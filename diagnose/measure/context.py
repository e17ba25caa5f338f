"""What the host was doing when it launched each device operation.

Ranges (NVTX, annotations, framework operators, Python frames) are matched against the contexts of the taxonomy once per
distinct text. Only ranges that match take part in the sweep, so that the cost follows what is known, not what was recorded.
The answer is a bit mask per operation: bit i stands for `taxonomy.contexts[i]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from diagnose.intervals import MAX_CLASSES, sweep
from diagnose.measure.launches import Launches
from diagnose.taxonomy import Source, Taxonomy, union
from diagnose.trace import Trace

FORWARD_BIT = MAX_CLASSES - 1  # inside an operator that autograd recorded: forward work
SOURCE_KINDS: Mapping[Source, tuple[str, ...]] = {
    "nvtx": ("push_pop", "start_end"),
    "annotation": ("annotation",),
    "operator": ("operator", "comms"),
    "module": ("python",),
}
_BACKWARD_NODE = r"Backward\d*$|^autograd::engine::evaluate_function"
_KEY_LIMIT = 1 << 62


@dataclass(frozen=True, kw_only=True)
class HostContext:
    """One value per row of `Trace.ops`, in the same order."""

    mask: pl.Series  # Int64: bits of the contexts that enclose the launch; 0 without a launch
    payload_id: pl.Series  # Int32: the collective's description, null where none is known


@dataclass(frozen=True, kw_only=True)
class _Timeline:
    """Maps (rank, thread, time) to one sortable integer."""

    lanes: pl.DataFrame  # rank, thread, lane
    stride: int
    quantum: int

    def key(self, time: str) -> pl.Expr:
        """Key of the column `time` in the row's lane."""
        moment = pl.col(time).clip(0, None)
        return pl.col("lane").cast(pl.Int64) * self.stride + (moment // self.quantum if self.quantum > 1 else moment)


def text_bits(texts: pl.Series, source: Source, taxonomy: Taxonomy) -> pl.DataFrame:
    """Which contexts the distinct `texts` of ranges of `source` match: columns row (UInt32), bit (Int8)."""
    contexts = [(bit, context) for bit, context in enumerate(taxonomy.contexts) if source in context.sources]
    frame = pl.DataFrame({"text": texts.cast(pl.String)}).with_row_index("row")
    frame = frame.filter(pl.col("text").str.contains(union([pattern for _, context in contexts for pattern in context.patterns])))
    found = [frame.select("row", pl.lit(0, dtype=pl.Int8).alias("bit")).clear()]
    for bit, context in contexts:
        matches = pl.col("text").str.contains(union(context.patterns))
        if context.unless:
            matches &= ~pl.col("text").str.contains(union(context.unless))
        found.append(frame.filter(matches).select("row", pl.lit(bit, dtype=pl.Int8).alias("bit")))
    return pl.concat(found)


def _tags(trace: Trace, taxonomy: Taxonomy) -> pl.DataFrame:
    """Columns kind (RangeKind), text_id, bit: what each distinct text means as a range of that kind."""
    pairs = trace.ranges.lazy().select("kind", "text_id").unique().drop_nulls().collect()
    parts = [pairs.with_columns(pl.lit(0, dtype=pl.Int8).alias("bit")).clear()]
    for source, kinds in SOURCE_KINDS.items():
        mine = pairs.filter(pl.col("kind").cast(pl.String).is_in(list(kinds)))
        if mine.is_empty():
            continue
        ids = mine["text_id"].unique().sort()
        bits = text_bits(trace.names["text"].gather(ids), source, taxonomy)
        known = bits.select(ids.gather(bits["row"]).alias("text_id"), bits["bit"])
        parts.append(mine.join(known, on="text_id", how="inner").select("kind", "text_id", "bit"))
    return pl.concat(parts)


def _timeline(trace: Trace, launches: Launches) -> _Timeline:
    # Threads that launch, and those whose operators lend their contexts to backward nodes.
    launching = pl.DataFrame({"rank": trace.ops["rank"], "thread": launches.frame["thread"]}).lazy()
    lending = trace.ranges.lazy().filter(pl.col("sequence").is_not_null()).select("rank", "thread")
    lanes = pl.concat([launching.unique(), lending.unique()]).drop_nulls().unique().sort("rank", "thread").with_row_index("lane").collect()
    last = max((int(end) for frame in (trace.ranges, trace.calls) if isinstance(end := frame["end"].max(), int)), default=0)
    quantum = -(-(last + 2) * (lanes.height + 1) // _KEY_LIMIT)
    return _Timeline(lanes=lanes, stride=(last // quantum) + 2, quantum=quantum)


def innermost(frame: pl.DataFrame) -> pl.DataFrame:
    """Segments in which the innermost of nested ranges stays the same.

    `frame`: lane, start, end, value. Result: lane, start, end, value, sorted; nothing outside all ranges.
    """
    rows = frame.filter(pl.col("end") > pl.col("start")).with_row_index("id")
    lasting = pl.col("end") - pl.col("start")
    events = pl.concat(
        [
            rows.select("lane", pl.col("start").alias("time"), pl.lit(1, dtype=pl.Int8).alias("step"), (-lasting).alias("order"), "id"),
            rows.select("lane", pl.col("end").alias("time"), pl.lit(-1, dtype=pl.Int8).alias("step"), lasting.alias("order"), "id"),
        ]
    ).sort("lane", "time", "step", "order")
    depth = pl.col("step").cast(pl.Int32).cum_sum().over("lane")
    opened = pl.when(pl.col("step") > 0).then("id")
    events = events.with_columns(depth.alias("depth"), opened.alias("opened")).with_columns(
        pl.col("opened").forward_fill().over("lane", "depth").alias("inside")
    )
    inside = events.select(pl.when(pl.col("depth") > 0).then("inside")).to_series()
    values = rows["value"].gather(inside)
    # Several events at one time: only the state after the last of them counts.
    states = events.select("lane", pl.col("time").alias("start"), values.alias("value")).unique(
        ["lane", "start"], keep="last", maintain_order=True
    )
    until = pl.col("start").shift(-1).over("lane").alias("end")
    return states.with_columns(until).filter(pl.col("value").is_not_null()).select("lane", "start", "end", "value")


def _looked_up(segments: pl.DataFrame, value: str, points: pl.DataFrame, time: str, line: _Timeline) -> pl.Series:
    """Value of the segment (lane, start, end, `value`) in which each point (lane, `time`) lies; null where there is none."""
    if segments.is_empty() or points.is_empty():
        return pl.repeat(None, points.height, dtype=segments.schema[value], eager=True)
    keys = segments.select(line.key("start")).to_series()
    at = keys.search_sorted(points.select(line.key(time).fill_null(-1)).to_series(), side="right").cast(pl.Int64) - 1
    row = at.clip(0, None)
    inside = (at >= 0) & (segments["lane"].gather(row) == points["lane"]) & (points[time] < segments["end"].gather(row))
    return pl.DataFrame({"value": segments[value].gather(row), "inside": inside}).select(pl.when("inside").then("value")).to_series()


def _tagged(trace: Trace, tags: pl.DataFrame, line: _Timeline) -> pl.DataFrame:
    """Ranges that match a context or record a forward operator: lane, start, end, bit; a row for each bit."""
    texts = trace.names["text"]
    used = trace.ranges.lazy().select("text_id").unique().drop_nulls().collect()["text_id"]
    nodes = used.filter(texts.gather(used).str.contains(_BACKWARD_NODE).fill_null(value=False))
    recorded = (
        trace.ranges.lazy()
        .filter(pl.col("sequence").is_not_null() & pl.col("forward_thread").is_null() & ~pl.col("text_id").is_in(nodes.implode()))
        .select("rank", "thread", "start", "end", pl.lit(FORWARD_BIT, dtype=pl.Int8).alias("bit"))
    )
    matched = (
        trace.ranges.lazy()
        .select("rank", "thread", "start", "end", "kind", "text_id")
        .join(tags.lazy(), on=["kind", "text_id"], how="inner")
        .select("rank", "thread", "start", "end", "bit")
    )
    return (
        pl.concat([matched, recorded])
        .join(line.lanes.lazy(), on=["rank", "thread"], how="inner")
        .select("lane", "start", "end", "bit")
        .collect()
    )


def _inherited(trace: Trace, segments: pl.DataFrame, line: _Timeline, taxonomy: Taxonomy) -> pl.DataFrame:
    """Contexts that backward nodes take over from their forward operators, as segments: lane, start, end, value (a mask).

    A backward node and its forward operator share the sequence number; the forward operator is the last one with that number
    that began before the node.
    """
    keep = sum(1 << bit for bit, context in enumerate(taxonomy.contexts) if context.inherited and (context.bucket or context.kind))
    numbered = (
        trace.ranges.lazy()
        .filter(pl.col("sequence").is_not_null())
        .select("rank", "thread", "start", "end", "text_id", "sequence", "forward_thread")
        .join(line.lanes.lazy(), on=["rank", "thread"], how="inner")
        .collect()
    )
    empty = pl.DataFrame(schema={"lane": pl.UInt32, "start": pl.Int64, "end": pl.Int64, "value": pl.Int64})
    if numbered.is_empty() or segments.is_empty():
        return empty
    used = numbered["text_id"].unique()
    nodes = used.filter(trace.names["text"].gather(used).str.contains(_BACKWARD_NODE).fill_null(value=False))
    is_node = numbered["forward_thread"].is_not_null() | numbered["text_id"].is_in(nodes.implode())
    forward = numbered.filter(~is_node)
    mask = _looked_up(segments, "mask", forward, "start", line).fill_null(0)
    forward = forward.select("rank", "sequence", "start", (mask & keep).alias("value")).filter(pl.col("value") != 0)
    if forward.is_empty():
        return empty
    backward = numbered.filter(is_node).select("rank", "sequence", "start", "end", "lane")
    linked = backward.sort("start").join_asof(
        forward.sort("start"), on="start", by=["rank", "sequence"], strategy="backward", check_sortedness=False
    )
    return innermost(linked.filter(pl.col("value").is_not_null()).select("lane", "start", "end", "value"))


def _described(trace: Trace, line: _Timeline) -> pl.DataFrame:
    """Collective descriptions as segments: lane, start, end, value (payload_id of the innermost range that carries one)."""
    carrying = (
        trace.ranges.lazy()
        .filter(pl.col("payload_id").is_not_null())
        .select("rank", "thread", "start", "end", pl.col("payload_id").alias("value"))
        .join(line.lanes.lazy(), on=["rank", "thread"], how="inner")
        .select("lane", "start", "end", "value")
        .collect()
    )
    return innermost(carrying)


def host_context(trace: Trace, launches: Launches, taxonomy: Taxonomy) -> HostContext:
    """Contexts and collective descriptions at the launch of every device operation."""
    own = trace.ops["payload_id"]
    nothing = HostContext(mask=pl.repeat(0, trace.ops.height, dtype=pl.Int64, eager=True), payload_id=own)
    if trace.ranges.is_empty() or launches.frame["thread"].null_count() == launches.frame.height:
        return nothing
    line = _timeline(trace, launches)
    points = pl.DataFrame({"rank": trace.ops["rank"], "thread": launches.frame["thread"], "call_start": launches.frame["call_start"]}).join(
        line.lanes, on=["rank", "thread"], how="left", maintain_order="left"
    )
    segments = sweep(_tagged(trace, _tags(trace, taxonomy), line), by=["lane"])
    mask = _looked_up(segments, "mask", points, "call_start", line).fill_null(0)
    inherited = _inherited(trace, segments, line, taxonomy)
    if not inherited.is_empty():
        mask = mask | _looked_up(inherited, "value", points, "call_start", line).fill_null(0)
    payload = _looked_up(_described(trace, line), "value", points, "call_start", line)
    both = pl.DataFrame({"own": own, "around": payload})
    return HostContext(mask=mask.alias("mask"), payload_id=both.select(pl.coalesce("own", "around")).to_series())


def masks_of(cases: Sequence[Mapping[Source, Sequence[str]]], taxonomy: Taxonomy) -> list[int]:
    """The mask of each launch that the given range texts (by source) enclose."""
    masks = [0] * len(cases)
    for source in SOURCE_KINDS:
        owners = [(number, text) for number, texts in enumerate(cases) for text in texts.get(source, ())]
        found = text_bits(pl.Series([text for _, text in owners], dtype=pl.String), source, taxonomy)
        for row, bit in found.iter_rows():
            masks[owners[row][0]] |= 1 << bit
    return masks
