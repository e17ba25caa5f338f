"""Changes of a step's graph: the laws of the closed vocabulary of effects, each a pure function from graph to graph.

What a law keeps: who waits for whom where nothing says otherwise, what a node waited for that no edge explains (`delay` moves with it), and
the order of the rows (everything that a node waits for stands before it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Literal, get_args

import polars as pl

from diagnose.knowledge.effects import Basis, EffectSpec, Transformation
from diagnose.knowledge.rulebook import FixSpec
from diagnose.measure.replay.graph import EDGES, Graph
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import OPTIMIZER
from diagnose.reason.context import Context
from diagnose.reason.forecast.select import selected

End = Literal["low", "likely", "high"]  # of the step time: low is the best case
ENDS: tuple[End, ...] = get_args(End)
OWN_WORK = (None, "host", "python", "launch")  # causes of host work that belongs to the launch after it, and goes with it
# Gap between two nodes of a CUDA graph where the trace has none to measure, ns. Nodes of a straight line begin within about 1 µs of each
# other (NVIDIA developer blog, "Constant time launch for straight-line CUDA graphs", 2024: 1.0 to 1.3 µs per node on the device).
NODE_GAP_NS: Mapping[End, int] = {"low": 700, "likely": 1000, "high": 1500}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One transformation, of a fix's effect or of a question. `select`: over `effects.SELECT_COLUMNS`; of `resize` a setting.

    `by` (and `host_ns`): one value per end. The other fields are those of `EffectSpec`, where trace_rules/README.md explains them.
    """

    transformation: Transformation
    select: str
    by: tuple[float, float, float] | None = None
    to: float | None = None
    host_ns: tuple[float, float, float] | None = None
    with_host: bool = False
    since: str | None = None
    until: str | None = None
    spread: bool = False
    parts: int = 1
    basis: Basis
    why: str
    source: str


def effect_of(fix: FixSpec, context: Context) -> tuple[Change, ...] | str:
    """The changes that a fix makes here, or the sentence why none can be told."""
    if not fix.effect:
        return fix.no_effect or "Its file tells no effect on time."
    conditions = [one.only for one in fix.effect if one.only is not None]
    holds = dict(zip(conditions, context.holds_all(conditions), strict=True))
    found: list[Change] = []
    for one in fix.effect:
        if one.only is not None:
            if holds[one.only] is None:
                return _unknown(context, one.only, "condition")
            if not holds[one.only]:
                continue
        numbers: dict[str, float] = {}
        for text in (value for value in (*(one.by or ()), one.to) if isinstance(value, str)):
            (value,) = context.numbers([text])
            if value is None:
                return _unknown(context, text, "number")
            numbers[text] = value
        found.append(_change(one, numbers))
    return tuple(found) or "None of what it changes applies to this job."


def _unknown(context: Context, text: str, kind: Literal["condition", "number"]) -> str:
    lacking = context.missing(context.rulebook.expression(text, kind))
    return f"It hangs on {', '.join(name.removeprefix('job_') for name in lacking) or text}, which is not known here."


def _change(one: EffectSpec, numbers: Mapping[str, float]) -> Change:
    def number(value: float | str) -> float:
        return numbers[value] if isinstance(value, str) else float(value)

    by = None
    if one.by is not None:
        low, likely, high = sorted(number(value) for value in one.by)
        by = (low, likely, high)
    return Change(
        transformation=one.transformation,
        select=getattr(one, one.transformation),
        by=by,
        to=None if one.to is None else number(one.to),
        host_ns=None if one.host_us is None else (one.host_us[0] * 1000, one.host_us[1] * 1000, one.host_us[2] * 1000),
        with_host=one.with_host,
        since=one.since,
        until=one.until,
        spread=one.spread,
        parts=one.parts,
        basis=one.basis,
        why=one.why,
        source=one.source,
    )


def changed(graph: Graph, changes: Sequence[Change], end: End) -> Graph:
    """The graph after all changes, one after the other, at one end of their ranges. What a change finds nothing for it leaves."""
    for change in changes:
        graph = _LAWS[change.transformation](graph, change, end)
    return graph


def touches(graph: Graph, change: Change) -> bool:
    """Whether there is anything in the graph that the change speaks of."""
    return change.transformation == "resize" or bool(selected(graph, change.select).any())


def _factor(change: Change, end: End) -> float:
    return 1.0 if change.by is None else change.by[ENDS.index(end)]


# ---------------------------------------------------------------------------------------------------------------- what the laws share


def _mask(graph: Graph, numbers: pl.Series) -> pl.Series:
    """Per node whether its number is among `numbers`."""
    return pl.int_range(graph.nodes.height, dtype=pl.UInt32, eager=True).is_in(numbers.implode())


def _kept(edges: pl.DataFrame, dropped: pl.Expr) -> pl.DataFrame:
    """`edges` without `dropped`, but for those of a node that would be left with none: it would stand where it was measured."""
    marked = edges.with_columns(dropped.fill_null(value=False).alias("dropped"))
    return marked.filter(~pl.col("dropped") | pl.col("dropped").all().over("dst")).drop("dropped")


def _at(edges: pl.DataFrame, mask: pl.Series, end: Literal["src", "dst"]) -> pl.Series:
    """Per edge the value of `mask` at its source or its target."""
    return mask.gather(edges[end])


def launched_for(graph: Graph) -> pl.DataFrame:
    """Per host node, by thread: node, lane, `call` (the number of the launching call that it is, or works for) and `own`: it launches.

    Work between two launches is for the second. Null: nothing is launched after it.
    """
    issues = graph.edges.filter(pl.col("kind") == "issue")["src"].unique()
    host = graph.nodes.with_row_index("node").filter(pl.col("kind") != "op").select("node", "lane")
    own = host["node"].is_in(issues.implode())
    return (
        host.with_columns(own.alias("own"))
        .sort("lane", "node", maintain_order=True)
        .with_columns(pl.when("own").then("node").alias("call"))
        .with_columns(pl.col("call").backward_fill().over("lane"))
    )


def _unlaunched(graph: Graph, gone: pl.Series) -> pl.Series:
    """Host nodes without a purpose once the operations `gone` are not launched: their calls, and the work for these."""
    issue = graph.edges.filter(pl.col("kind") == "issue")
    calls = issue.with_columns(_at(issue, gone, "dst").alias("gone")).group_by("src").agg(pl.col("gone").all()).filter("gone")["src"]
    of_launches = launched_for(graph)
    host = of_launches.filter(pl.col("call").is_in(calls.implode()))["node"]
    own = graph.nodes["cause"].is_in([cause for cause in OWN_WORK if cause]) | graph.nodes["cause"].is_null()
    return _mask(graph, host) & own


def _without_cost(graph: Graph, gone: pl.Series) -> Graph:
    """Nodes that cost nothing: no time, no gap before them, and no wait for what they alone waited for; their order stays."""
    if not gone.any():
        return graph
    nothing = pl.when(gone).then(0)
    nodes = graph.nodes.with_columns(
        nothing.otherwise("duration").cast(pl.Int64).alias("duration"), nothing.otherwise("delay").cast(pl.Int64).alias("delay")
    )
    at = _at(graph.edges, gone, "dst")
    edges = graph.edges.with_columns(pl.when(at).then(pl.min_horizontal("lag", pl.lit(0, dtype=pl.Int64))).otherwise("lag").alias("lag"))
    edges = _kept(edges, at & pl.col("kind").is_in(["awaited", "queue", "meeting"]))
    return replace(graph, nodes=nodes, edges=edges)


def _scaled(graph: Graph, mask: pl.Series, by: float) -> Graph:
    duration = pl.when(mask).then((pl.col("duration") * by).round().cast(pl.Int64)).otherwise("duration")
    return replace(graph, nodes=graph.nodes.with_columns(duration.alias("duration")))


def runs(graph: Graph, mask: pl.Series, breaks: pl.Series | None = None) -> pl.DataFrame:
    """Selected operations with their `run`: those of one step that follow one another on their stream with no other between.

    Columns node, lane, run (number), place (0 for the first of its run), in order. `breaks`: nodes before which a new run begins.
    """
    ops = graph.nodes.with_row_index("node").with_columns(
        mask.alias("selected"), (pl.lit(value=False) if breaks is None else breaks).alias("breaks")
    )
    ops = ops.filter(pl.col("kind") == "op").sort("lane", "node", maintain_order=True)
    begins = (
        ~pl.col("selected").shift(1, fill_value=False)
        | (pl.col("lane") != pl.col("lane").shift(1))
        | pl.col("step").ne_missing(pl.col("step").shift(1))
        | pl.col("breaks")
    )
    return (
        ops.with_columns((pl.col("selected") & begins).cum_sum().alias("run"))
        .filter("selected")
        .select("node", "lane", "run", pl.int_range(pl.len()).over("run").alias("place"))
    )


def rebuilt(graph: Graph, nodes: pl.DataFrame, edges: pl.DataFrame, steps: pl.DataFrame | None = None) -> Graph:
    """A graph of these frames, its rows put in an order in which everything that a node waits for stands before it."""
    steps = graph.steps if steps is None else steps
    edges = edges.select(EDGES)
    if (edges["src"] < edges["dst"]).all():
        return replace(graph, nodes=nodes, edges=edges.sort("dst", maintain_order=True), steps=steps)
    place = _order(nodes.height, edges)
    order = place.arg_sort()
    moved = (pl.Series(place).gather(edges[name]).cast(pl.UInt32).alias(name) for name in ("src", "dst"))
    return replace(
        graph,
        nodes=nodes[order],
        edges=edges.with_columns(*moved).sort("dst", maintain_order=True),
        steps=steps.with_columns(place.gather(steps[name]).cast(pl.UInt32).alias(name) for name in ("opens", "closes")),
    )


def _order(count: int, edges: pl.DataFrame) -> pl.Series:
    """The place of each node in a topological order that keeps the present one where it can. Raises ValueError for a circle."""
    after: list[list[int]] = [[] for _ in range(count)]
    open_ = [0] * count
    for source, target in edges.select("src", "dst").iter_rows():
        after[source].append(target)
        open_[target] += 1
    ready = [node for node in range(count) if not open_[node]]
    heapify(ready)
    place = [-1] * count
    for position in range(count):
        if not ready:
            raise ValueError("what waits for what runs in a circle")
        node = heappop(ready)
        place[node] = position
        for target in after[node]:
            open_[target] -= 1
            if not open_[target]:
                heappush(ready, target)
    return pl.Series(place, dtype=pl.UInt32)


# ---------------------------------------------------------------------------------------------------------------- the laws


def _remove(graph: Graph, change: Change, _: End) -> Graph:
    """The operations cost nothing; with `with_host` they aren't launched either."""
    gone = selected(graph, change.select)
    return _without_cost(graph, gone | _unlaunched(graph, gone) if change.with_host else gone)


def _scale(graph: Graph, change: Change, end: End) -> Graph:
    """Durations times a factor."""
    return _scaled(graph, selected(graph, change.select), _factor(change, end))


def _merge(graph: Graph, change: Change, end: End) -> Graph:
    """What follows one another becomes one launch: host cost of one, device work kept, times `by` where one is given."""
    found = runs(graph, selected(graph, change.select))
    found = found.filter(pl.len().over("run") > 1)
    if found.is_empty():
        return graph
    work = found.with_columns(graph.nodes["duration"].gather(found["node"])).group_by("run").agg(pl.col("duration").sum())
    first = found.filter(pl.col("place") == 0).join(work, on="run").select("node", "duration")
    summed = (pl.col("duration") * _factor(change, end)).round().cast(pl.Int64)
    gone = _mask(graph, found.filter(pl.col("place") > 0)["node"])
    emptied = _without_cost(graph, gone | _unlaunched(graph, gone))
    nodes = emptied.nodes.with_row_index("node").update(first.select("node", summed.alias("duration")), on="node").drop("node")
    return replace(emptied, nodes=nodes)


def _graph(graph: Graph, change: Change, end: End) -> Graph:
    """One launch for all operations in the scope that follow one another; a call that waits for the device begins a new graph."""
    mask = selected(graph, change.select)
    found = runs(graph, mask, _after_waits(graph)).filter(pl.len().over("run") > 1)
    if found.is_empty():
        return graph
    later = _mask(graph, found.filter(pl.col("place") > 0)["node"])
    first = _mask(graph, found.filter(pl.col("place") == 0)["node"])
    issue = graph.edges.filter(pl.col("kind") == "issue")
    heads = issue.filter(_at(issue, first, "dst"))["src"].unique()
    gone = _unlaunched(graph, later) & ~_mask(graph, heads)
    gap = _node_gap(graph, end)
    emptied = _without_cost(graph, gone)
    at = _at(emptied.edges, later, "dst")
    edges = emptied.edges.with_columns(
        pl.when(at & (pl.col("kind") == "stream")).then(pl.min_horizontal("lag", pl.lit(gap, dtype=pl.Int64))).otherwise("lag").alias("lag")
    )
    edges = _kept(edges, at & (pl.col("kind") == "issue"))
    launch = (change.host_ns or (0.0, 0.0, 0.0))[ENDS.index(end)]
    calls = _mask(graph, heads)
    nodes = emptied.nodes.with_columns(
        pl.when(calls).then(pl.max_horizontal("duration", pl.lit(round(launch), dtype=pl.Int64))).otherwise("duration").alias("duration"),
        pl.when(later).then(pl.min_horizontal("delay", pl.lit(gap, dtype=pl.Int64))).otherwise("delay").alias("delay"),
        (pl.col("replayed").fill_null(value=False) | later).alias("replayed"),
    )
    return replace(emptied, nodes=nodes, edges=edges)


def _after_waits(graph: Graph) -> pl.Series:
    """Operations whose launch is the first on its thread after a call that waited for the device: no graph spans it."""
    waiting = graph.edges.filter(pl.col("kind") == "awaited")["dst"].unique()
    of_launches = launched_for(graph)
    calls = of_launches.filter(pl.col("node").is_in(waiting.implode()))["call"].drop_nulls()
    issue = graph.edges.filter(pl.col("kind") == "issue")
    return _mask(graph, issue.filter(pl.col("src").is_in(calls.implode()))["dst"])


def _node_gap(graph: Graph, end: End) -> int:
    """The gap between nodes of a graph, ns: the median of this trace where it replays any, else the published one."""
    replayed = graph.nodes["replayed"].fill_null(value=False)
    between = graph.edges.filter((pl.col("kind") == "stream") & _at(graph.edges, replayed, "dst") & _at(graph.edges, replayed, "src"))
    gaps = (between["lag"] + graph.nodes["delay"].gather(between["dst"])).clip(lower_bound=0)
    return NODE_GAP_NS[end] if len(gaps) < 5 else integer_median(gaps.to_list())


def _resize(graph: Graph, change: Change, end: End) -> Graph:
    """`to` micro-batches in one: the same work on the device, times `by` (fuller kernels), in 1/`to` of the launches.

    Launches are not counted down one by one: host work, calls, launch latencies and gaps all take 1/`to`, in forward and backward.
    """
    fewer = 1 / (change.to or 1.0)
    nodes = graph.nodes
    outside = nodes["phase"].cast(pl.String).fill_null("") == OPTIMIZER
    of_launches = launched_for(graph)
    issue = graph.edges.filter(pl.col("kind") == "issue").unique("src", keep="first", maintain_order=True)
    phase = issue.select(pl.col("src").alias("call"), outside.gather(issue["dst"]).alias("outside"))
    host_outside = of_launches.join(phase, on="call", how="left").filter(pl.col("outside").fill_null(value=True))["node"]
    op = nodes["kind"] == "op"
    inside = ~(outside & op) & ~(_mask(graph, host_outside) & ~op)

    def shrunk(name: str) -> pl.Expr:
        return (pl.col(name) * fewer).round().cast(pl.Int64)

    at = _at(graph.edges, inside, "dst")
    scaled = (
        pl.when(inside & op)
        .then((pl.col("duration") * _factor(change, end)).round().cast(pl.Int64))
        .when(inside)
        .then(shrunk("duration"))
        .otherwise("duration")
    )
    return replace(
        graph,
        nodes=nodes.with_columns(scaled.alias("duration"), pl.when(inside).then(shrunk("delay")).otherwise("delay").alias("delay")),
        edges=graph.edges.with_columns(pl.when(at).then(shrunk("lag")).otherwise("lag").alias("lag")),
    )


def _unchanged(graph: Graph, _change: Change, _end: End) -> Graph:
    return graph


_LAWS: Mapping[Transformation, Callable[[Graph, Change, End], Graph]] = {
    "remove": _remove,
    "scale": _scale,
    "detach": _unchanged,
    "interleave": _unchanged,
    "delay": _unchanged,
    "merge": _merge,
    "graph": _graph,
    "resize": _resize,
}
