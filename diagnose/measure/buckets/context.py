"""What the host was doing when it launched each device operation.

Ranges (NVTX, annotations, framework operators, Python frames) are matched against the contexts of the taxonomy once per
distinct text. Only ranges that match take part in the sweep, so that the cost follows what is known, not what was recorded.
The answer is a bit mask per operation: bit i stands for `taxonomy.contexts[i]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import Struct

from diagnose.knowledge.taxonomy import Context, Source, Taxonomy, union
from diagnose.measure.buckets.names import range_words
from diagnose.measure.host import Launches
from diagnose.model.intervals import MAX_CLASSES, lasting, merge, sweep
from diagnose.model.trace import Trace
from diagnose.model.vocabulary import OPTIMIZER

FORWARD_BIT = MAX_CLASSES - 1  # inside an operator that autograd recorded: forward work
AGAIN_BIT = MAX_CLASSES - 2  # inside one that it recorded while a backward node ran: forward work for the second time
TAIL_BIT = MAX_CLASSES - 3  # between the last backward node and the optimizer, on its thread: gradients are checked, summed up, clipped
SOURCE_KINDS: Mapping[Source, tuple[str, ...]] = {
    "nvtx": ("push_pop", "start_end"),
    "annotation": ("annotation",),
    "operator": ("operator", "comms"),
    "module": ("python",),
}
_BACKWARD_NODE = r"Backward\d*$|^(?:autograd::engine::evaluate_function|torch::autograd::)"  # AccumulateGrad and CopySlices are some, too
_MANY_TEXTS = 1_000  # of fewer, to leave out those that no context matches costs more than it saves
_KEY_LIMIT = 1 << 62


class HostContext(Struct, frozen=True, kw_only=True):
    """One value per row of `Trace.ops`, in the same order."""

    mask: pl.Series  # Int64: bits of the contexts that enclose the launch; 0 without a launch
    payload_id: pl.Series  # Int32: the collective's description, null where none is known


class _Timeline(Struct, frozen=True, kw_only=True):
    """Lays the threads' time lines end to end, so that (rank, thread, time) is one sortable integer, a moment."""

    lanes: pl.DataFrame  # rank, thread, lane
    stride: int
    quantum: int  # ns per unit: 1 unless the capture spans years

    def moment(self, time: str) -> pl.Expr:
        """The moment of the column `time` in the row's lane; null where the lane is."""
        inside = pl.col(time).clip(0, None)
        return pl.col("lane").cast(pl.Int64) * self.stride + (inside // self.quantum if self.quantum > 1 else inside)

    def laid(self, ranges: pl.LazyFrame, *columns: str) -> pl.LazyFrame:
        """`ranges` on these lanes with start and end as moments, and `columns`."""
        placed = ranges.join(self.lanes.lazy(), on=["rank", "thread"], how="inner")
        return placed.select(self.moment("start").alias("start"), self.moment("end").alias("end"), *columns)


def text_bits(texts: pl.Series, source: Source, taxonomy: Taxonomy) -> pl.DataFrame:
    """Which contexts the distinct `texts` of ranges of `source` match: columns row (UInt32), bit (Int8)."""
    contexts = [(bit, context) for bit, context in enumerate(taxonomy.contexts) if source in context.sources]
    frame = pl.DataFrame({"text": texts.cast(pl.String)}).with_row_index("row")
    found = [frame.select("row", pl.lit(0, dtype=pl.Int8).alias("bit")).clear(), _by_words(frame, contexts, taxonomy)]
    if frame.height > _MANY_TEXTS:
        frame = frame.filter(pl.col("text").str.contains(union([pattern for _, context in contexts for pattern in context.patterns])))
    if frame.height:
        flags = frame.select("row", *(_matches(context).alias(str(bit)) for bit, context in contexts if context.patterns))
        found.append(flags.unpivot(index="row", variable_name="bit").filter("value").select("row", pl.col("bit").cast(pl.Int8)))
    return pl.concat(found)


def _matches(context: Context) -> pl.Expr:
    """Whether a text matches a context by its patterns."""
    matches = pl.col("text").str.contains(union(context.patterns))
    return matches & ~pl.col("text").str.contains(union(context.unless)) if context.unless else matches


def _by_words(frame: pl.DataFrame, contexts: Sequence[tuple[int, Context]], taxonomy: Taxonomy) -> pl.DataFrame:
    """Which contexts the words of range texts (row, text) match: row, bit."""
    told = [(bit, context) for bit, context in contexts if context.words]
    lines = taxonomy.lines(*(context.words for _, context in told))
    said = frame.select("row", pl.col("text").str.extract(r"^([^,]*)").alias("text"))
    texts = said["text"].unique().drop_nulls()
    words = pl.DataFrame({"text": texts, "words": range_words(texts)})
    distinct = words["words"].unique()
    bits = [[told[number][0] for number in lines.holding(text)] for text in distinct]
    hits = pl.DataFrame({"words": distinct, "bit": pl.Series(bits, dtype=pl.List(pl.Int8))}).explode("bit").drop_nulls()
    found = words.join(hits, on="words")
    for bit, context in told:
        if context.unless:
            found = found.filter((pl.col("bit") != bit) | ~pl.col("text").str.contains(union(context.unless)))
    return said.join(found.select("text", "bit"), on="text", how="inner").select("row", "bit")


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
    """Segments (start, end, value; sorted, disjoint) in which the innermost of nested ranges (`frame`, same columns) stays the same."""
    rows = frame.filter(pl.col("end") > pl.col("start")).with_row_index("id")
    events = pl.concat(
        [
            rows.select(pl.col("start").alias("time"), pl.lit(1, dtype=pl.Int8).alias("step"), (-lasting).alias("order"), "id"),
            rows.select(pl.col("end").alias("time"), pl.lit(-1, dtype=pl.Int8).alias("step"), lasting.alias("order"), "id"),
        ]
    ).sort("time", "step", "order")
    opened = pl.when(pl.col("step") > 0).then("id")
    events = events.with_columns(pl.col("step").cast(pl.Int32).cum_sum().alias("depth"), opened.alias("opened")).with_columns(
        pl.col("opened").forward_fill().over("depth").alias("inside")
    )
    inside = events.select(pl.when(pl.col("depth") > 0).then("inside")).to_series()
    # Several events at one time: only the state after the last of them counts.
    last = pl.col("start") != pl.col("start").shift(-1).fill_null(-1)
    states = events.select(pl.col("time").alias("start"), rows["value"].gather(inside).alias("value")).filter(last)
    until = pl.col("start").shift(-1).alias("end")
    return states.with_columns(until).filter(pl.col("value").is_not_null()).select("start", "end", "value")


def _looked_up(segments: pl.DataFrame, value: str, moments: pl.Series) -> pl.Series:
    """Value of the segment (start, end, `value`; disjoint and sorted) in which each moment lies; null where there is none."""
    if segments.is_empty():
        return pl.repeat(None, moments.len(), dtype=segments.schema[value], eager=True)
    at = segments["start"].search_sorted(moments.fill_null(-1), side="right").cast(pl.Int64) - 1
    row = at.clip(0, None)
    inside = (at >= 0) & (moments < segments["end"].gather(row))
    return pl.DataFrame({"value": segments[value].gather(row), "inside": inside}).select(pl.when("inside").then("value")).to_series()


def _backward_nodes(trace: Trace) -> pl.Series:
    """Text ids of the ranges that are named as backward nodes."""
    used = trace.ranges.lazy().select("text_id").unique().drop_nulls().collect()["text_id"]
    return used.filter(trace.names["text"].gather(used).str.contains(_BACKWARD_NODE).fill_null(value=False))


def _tagged(trace: Trace, tags: pl.DataFrame, nodes: pl.Series, line: _Timeline, taxonomy: Taxonomy) -> pl.DataFrame:
    """Ranges that match a context or record a forward operator: start, end, bit; a row for each bit."""
    is_node = pl.col("forward_thread").is_not_null() | pl.col("text_id").is_in(nodes.implode())
    recorded = line.laid(trace.ranges.lazy().filter(pl.col("sequence").is_not_null() & ~is_node)).collect()
    again = _again(recorded, line.laid(trace.ranges.lazy().filter(is_node)).collect())
    matched = trace.ranges.lazy().select("rank", "thread", "start", "end", "kind", "text_id").join(tags.lazy(), on=["kind", "text_id"])
    updating = [bit for bit, context in enumerate(taxonomy.contexts) if context.phase == OPTIMIZER]
    tails = line.laid(_tails(matched.filter(pl.col("bit").is_in(updating)), trace.ranges.lazy().filter(is_node))).collect()
    told = ((recorded, FORWARD_BIT), (again, AGAIN_BIT), (tails, TAIL_BIT))
    marked = (frame.with_columns(pl.lit(bit, dtype=pl.Int8).alias("bit")) for frame, bit in told)
    return pl.concat([line.laid(matched, "bit").collect(), *marked])


def _again(recorded: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """When an operator that autograd `recorded` ran inside a backward node, and no further node in it: start, end, as the frames have.

    A node's own operators are not recorded. Those of a checkpoint are, whichever node it is that asks for what was not kept.
    """
    inside = recorded.filter(_looked_up(merge(nodes).with_columns(pl.lit(value=True).alias("in")), "in", recorded["start"]).is_not_null())
    if inside.is_empty():
        return inside
    both = pl.concat([frame.with_columns(pl.lit(again).alias("value")) for frame, again in ((inside, True), (nodes, False))])
    return innermost(both).filter("value").drop("value")


def _tails(updates: pl.LazyFrame, nodes: pl.LazyFrame) -> pl.LazyFrame:
    """From the last backward node before each range of the optimizer to its start, on its thread: rank, thread, start, end."""
    ended = nodes.select("rank", pl.col("end").alias("start")).sort("start")
    begun = updates.select("rank", "thread", pl.col("start").alias("end")).sort("end")
    return begun.join_asof(ended, left_on="end", right_on="start", by="rank", coalesce=False, check_sortedness=False).drop_nulls("start")


def inherited_mask(taxonomy: Taxonomy) -> int:
    """The contexts that backward nodes take over from their forward operators, as a mask."""
    return sum(1 << bit for bit, context in enumerate(taxonomy.contexts) if context.inherited)


def _inherited(trace: Trace, segments: pl.DataFrame, nodes: pl.Series, line: _Timeline, taxonomy: Taxonomy) -> pl.DataFrame:
    """Contexts that backward nodes take over from their forward operators, as segments: start, end, value (a mask).

    A backward node and its forward operator share the sequence number; the forward operator is the last one with that number
    that began before the node. One that a checkpoint runs again inside a backward node belongs where that node's own operator did.
    """
    keep = inherited_mask(taxonomy)
    numbered = trace.ranges.lazy().filter(pl.col("sequence").is_not_null())
    is_node = pl.col("forward_thread").is_not_null() | pl.col("text_id").is_in(nodes.implode())
    began = pl.col("start").alias("began")
    forward = line.laid(numbered.filter(~is_node).with_columns(began), "rank", "sequence", "began").collect()
    backward = line.laid(numbered.filter(is_node).with_columns(began), "rank", "sequence", "began").collect().sort("began")
    own = _looked_up(segments, "mask", forward["start"]).fill_null(0) & keep
    found = _lent(forward.with_columns(own.alias("value")), backward)
    around = _looked_up(found, "value", forward["start"]).fill_null(0)
    return _lent(forward.with_columns((own | around).alias("value")), backward) if around.cast(pl.Boolean).any() else found


def _lent(forward: pl.DataFrame, backward: pl.DataFrame) -> pl.DataFrame:
    """What the operators `forward` (rank, sequence, began, value) lend to the nodes `backward`, as segments: start, end, value."""
    lending = forward.filter(pl.col("value") != 0).select("rank", "sequence", "began", "value").sort("began")
    linked = backward.join_asof(lending, on="began", by=["rank", "sequence"], strategy="backward", check_sortedness=False)
    return innermost(linked.filter(pl.col("value").is_not_null()).select("start", "end", "value"))


def _described(trace: Trace, line: _Timeline) -> pl.DataFrame:
    """Collective descriptions as segments: start, end, value (payload_id of the innermost range that carries one)."""
    carrying = trace.ranges.lazy().filter(pl.col("payload_id").is_not_null()).with_columns(pl.col("payload_id").alias("value"))
    return innermost(line.laid(carrying, "value").collect())


def host_context(trace: Trace, launches: Launches, taxonomy: Taxonomy) -> HostContext:
    """Contexts and collective descriptions at the launch of every device operation."""
    own = trace.ops["payload_id"]
    if trace.ranges.is_empty() or launches.frame["thread"].null_count() == launches.frame.height:
        return HostContext(mask=pl.repeat(0, trace.ops.height, dtype=pl.Int64, eager=True), payload_id=own)
    line = _timeline(trace, launches)
    nodes = _backward_nodes(trace)
    launched = pl.DataFrame({"rank": trace.ops["rank"], "thread": launches.frame["thread"], "call_start": launches.frame["call_start"]})
    moments = (
        launched.join(line.lanes, on=["rank", "thread"], how="left", maintain_order="left").select(line.moment("call_start")).to_series()
    )
    segments = sweep(_tagged(trace, _tags(trace, taxonomy), nodes, line, taxonomy))
    mask = _looked_up(segments, "mask", moments).fill_null(0)
    inherited = _inherited(trace, segments, nodes, line, taxonomy)
    if not inherited.is_empty():
        mask = mask | _looked_up(inherited, "value", moments).fill_null(0)
    around = _looked_up(_described(trace, line), "value", moments)
    payload = pl.DataFrame({"own": own, "around": around}).select(pl.coalesce("own", "around")).to_series()
    return HostContext(mask=mask.alias("mask"), payload_id=payload)


def masks_of(cases: Sequence[Mapping[Source, Sequence[str]]], taxonomy: Taxonomy) -> list[int]:
    """The mask of each launch that the given range texts (by source) enclose."""
    masks = [0] * len(cases)
    for source in SOURCE_KINDS:
        owners = [(number, text) for number, texts in enumerate(cases) for text in texts.get(source, ())]
        if not owners:
            continue
        found = text_bits(pl.Series([text for _, text in owners], dtype=pl.String), source, taxonomy)
        for row, bit in found.iter_rows():
            masks[owners[row][0]] |= 1 << bit
    return masks
