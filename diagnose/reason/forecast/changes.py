"""Changes of a step's graph: the laws of the closed vocabulary of effects, each a pure function from graph to graph.

What a law keeps: who waits for whom where nothing says otherwise, what a node waited for that no edge explains (`delay` moves with it), and
the order of the rows (everything that a node waits for stands before it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Literal, get_args

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.catalogue import FixSpec
from diagnose.knowledge.effects import Basis, EffectSpec, Transformation
from diagnose.knowledge.walls import WallSpec
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.links import LONGEST_NS
from diagnose.measure.waits.hold_ups import LONG_NS
from diagnose.model.statistics import integer_median
from diagnose.model.vocabulary import OPTIMIZER
from diagnose.reason.context import Context
from diagnose.reason.forecast.launches import launched_for
from diagnose.reason.forecast.select import selected
from diagnose.reason.forecast.traffic import taken_over
from diagnose.reason.forecast.turns import interleaved
from diagnose.reason.forecast.walls import without as without_wall
from diagnose.reason.forecast.wiring import at_end, burst_size, delayed, detached, numbered, pieced, runs, split, without

End = Literal["low", "likely", "high"]  # of the step time: low is the best case
ENDS: tuple[End, ...] = get_args(End)
OWN_WORK = (None, "host", "python", "launch")  # causes of host work that belongs to the launch after it, and goes with it


class Change(Struct, frozen=True, kw_only=True, eq=False):  # two are the same where they are one: a wall's table can't be hashed
    """One transformation, of a fix's effect or of a question. `select`: over `effects.SELECT_COLUMNS`; of `resize` a setting.

    `by`, `host_ns` and `gap_ns`: one value per end. The other fields are those of `EffectSpec`, where trace_rules/README.md explains them.
    """

    transformation: Transformation
    select: str
    by: tuple[float, float, float] | None = None
    start_ns: float | None = None
    to: float | None = None
    host_ns: tuple[float, float, float] | None = None
    launch_ns: float | None = None
    gap_ns: tuple[float, float, float] | None = None
    into: int = 1
    with_host: bool = False
    since: str | None = None
    until: str | None = None
    spread: bool = False
    parts: int = 1
    beside: str | None = None
    pieces: tuple[int, int, int] | None = None
    basis: Basis
    why: str
    source: str
    wall: WallSpec | None = None  # of `remove`: all that the wall is made of


def effect_of(fix: FixSpec, context: Context) -> tuple[Change, ...] | str:
    """The changes that a fix makes here, or the sentence why none can be told."""
    if not fix.effect:
        return fix.no_effect
    conditions = [one.only for one in fix.effect if one.only is not None]
    holds = dict(zip(conditions, context.holds_all(conditions), strict=True))
    found: list[Change] = []
    for one in fix.effect:
        if one.only is not None:
            if holds[one.only] is None:
                return _unknown(context, one.only, "condition")
            if not holds[one.only]:
                continue
        taken = None if one.library is None else taken_over(one.library, context)
        if taken is not None:
            found.append(replace(_change(replace(one, by=taken.by), {}), why=f"{one.why} {taken.how}"))
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


_AS_TOLD = ("into", "with_host", "since", "until", "spread", "parts", "beside", "pieces", "basis", "why", "source")


def _change(one: EffectSpec, numbers: Mapping[str, float]) -> Change:
    def number(value: float | str) -> float:
        return numbers[value] if isinstance(value, str) else float(value)

    low, likely, high = sorted(map(number, one.by or (1.0, 1.0, 1.0)))
    return Change(
        transformation=one.transformation,
        select=getattr(one, one.transformation),
        by=None if one.by is None else (low, likely, high),
        to=None if one.to is None else number(one.to),
        start_ns=None if one.start_us is None else one.start_us * 1000,
        host_ns=_ns(one.host_us),
        launch_ns=None if one.launch_us is None else one.launch_us * 1000,
        gap_ns=_ns(one.gap_us),
        **{name: getattr(one, name) for name in _AS_TOLD},
    )


def _ns(us: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
    return None if us is None else (us[0] * 1000, us[1] * 1000, us[2] * 1000)


_SAME_AT_ALL_ENDS = ("remove", "interleave")  # laws that have one outcome


def changed(graph: Graph, changes: Sequence[Change], end: End) -> Graph:
    """The graph after all changes but `scale`, one after the other, at one end of their ranges. What a change finds nothing for it leaves.

    What several questions scale is scaled at once (outcome.py).
    """
    for change in changes:
        if change.transformation == "scale":
            continue
        key = (change, None if change.transformation in _SAME_AT_ALL_ENDS else end)
        graph = graph.once(key, partial(_LAWS[change.transformation], graph, change, end))
    return graph


def touches(graph: Graph, change: Change) -> bool:
    """Whether there is anything in the graph that the change speaks of."""
    return change.transformation == "resize" or bool(selected(graph, change.select).any())


def factor(change: Change, end: End) -> float:
    """What durations are multiplied by at one end."""
    return 1.0 if change.by is None else change.by[ENDS.index(end)]


# ---------------------------------------------------------------------------------------------------------------- what the laws share


def launch_limit(graph: Graph, changes: Sequence[Change]) -> int | None:
    """What the host spends on what becomes graphs or is merged and on what follows it, and the device on what is merged.

    In ns of all kept steps; None where changes of another kind shorten anything.
    """
    ours = [one for one in changes if one.transformation in ("graph", "merge")]
    if not ours or any(one not in ours and (one.transformation != "scale" or factor(one, "low") < 1) for one in changes):
        return None
    mask = reduce(or_, (selected(graph, one.select) for one in ours))
    merged = reduce(or_, (selected(graph, one.select) & (one.transformation == "merge") for one in ours))
    nodes = graph.nodes.select("kind", "lane", "step", "duration", mask.alias("mask"), merged.alias("merged")).with_row_index("node")
    ops = nodes.filter((pl.col("kind") == "op") & pl.col("step").is_not_null())
    near = ops.filter(pl.col("mask") | pl.col("mask").shift(1).over("lane"))["node"]
    issue = graph.edges.filter(pl.col("kind") == "issue")
    calls = issue.filter(at_end(issue, numbered(graph, near), "dst"))["src"].unique()
    host = launched_for(graph).filter(pl.col("call").is_in(calls.implode()))["node"]
    durations: list[int] = nodes["duration"].gather(pl.concat([host, ops.filter("merged")["node"]])).to_list()
    return sum(durations)


def _unlaunched(graph: Graph, gone: pl.Series) -> pl.Series:
    """Host nodes without a purpose once the operations `gone` are not launched: their calls, and the work for these."""
    issue = graph.edges.filter(pl.col("kind") == "issue")
    calls = issue.with_columns(at_end(issue, gone, "dst").alias("gone")).group_by("src").agg(pl.col("gone").all()).filter("gone")["src"]
    of_launches = launched_for(graph)
    host = of_launches.filter(pl.col("call").is_in(calls.implode()))["node"]
    own = graph.nodes["cause"].is_in([cause for cause in OWN_WORK if cause]) | graph.nodes["cause"].is_null()
    return numbered(graph, host) & own


def _unawaited(graph: Graph, gone: pl.Series) -> pl.Series:
    """Calls that waited for nothing but the operations `gone`."""
    awaited = graph.edges.filter(pl.col("kind") == "awaited")
    awaited = awaited.with_columns(at_end(awaited, gone, "src").alias("gone"))
    return numbered(graph, awaited.group_by("dst").agg(pl.col("gone").all()).filter("gone")["dst"])


def _without_cost(graph: Graph, gone: pl.Series) -> Graph:
    """Nodes that cost nothing: no time, no latency before them, and no wait for what they alone waited for; their order stays.

    A gap longer than a latency is a wait for something unknown, which stays.
    """
    if not gone.any():
        return graph
    nothing = pl.when(gone).then(0)
    nodes = graph.nodes.with_columns(
        nothing.otherwise("duration").cast(pl.Int64).alias("duration"),
        pl.when(gone & (pl.col("delay") <= LONGEST_NS)).then(0).otherwise("delay").cast(pl.Int64).alias("delay"),
    )
    at = at_end(graph.edges, gone, "dst")
    edges = graph.edges.with_columns(pl.when(at).then(pl.min_horizontal("lag", pl.lit(0, dtype=pl.Int64))).otherwise("lag").alias("lag"))
    edges = without(edges, at & pl.col("kind").is_in(["awaited", "queue", "meeting"]))
    return dataclasses.replace(graph, nodes=nodes, edges=edges)


# ---------------------------------------------------------------------------------------------------------------- the laws


def _remove(graph: Graph, change: Change, _: End) -> Graph:
    """The operations cost nothing; with `with_host` they aren't launched either, nor waited for.

    Where copies alone are removed, the waiting for them has changes of its own.
    """
    if change.wall is not None:
        return without_wall(graph, change.wall)
    gone = selected(graph, change.select)
    if not change.with_host:
        return _without_cost(graph, gone)
    lost = gone | _unlaunched(graph, gone)
    copies_alone = not (gone & selected(graph, "copy IS NULL")).any()
    return _without_cost(graph, lost if copies_alone else lost | _unawaited(graph, gone))


def _merge(graph: Graph, change: Change, end: End) -> Graph:
    """What follows one another becomes `into` launches: host cost of these, device work kept, times `by` where one is given."""
    emptied, left = graph.once(("emptied", change), lambda: _emptied(graph, change))
    if left.is_empty():
        return graph
    shared = (left["duration"] * factor(change, end) / change.into).round().cast(pl.Int64)
    durations = emptied.nodes["duration"].clone().scatter(left["node"], shared)
    return dataclasses.replace(emptied, nodes=emptied.nodes.with_columns(durations))


def _emptied(graph: Graph, change: Change) -> tuple[Graph, pl.DataFrame]:
    """The graph with all but `into` launches of each run emptied, and these (node, duration: of the whole run)."""
    found = runs(graph, selected(graph, change.select))
    found = found.filter(pl.len().over("run") > change.into)
    work = found.with_columns(graph.nodes["duration"].gather(found["node"])).group_by("run").agg(pl.col("duration").sum())
    left = found.filter(pl.col("place") < change.into).join(work, on="run").select("node", "duration")
    gone = numbered(graph, found.filter(pl.col("place") >= change.into)["node"])
    return (graph if left.is_empty() else _without_cost(graph, gone | _unlaunched(graph, gone))), left


def _graph(graph: Graph, change: Change, end: End) -> Graph:
    """One launch for all operations in the scope that follow one another; a call that waits for the device begins a new graph.

    So does long work of the host, but at best: what takes a millisecond launches nothing, and whether a graph's replay leaves it out (it
    lies inside the captured code) the trace does not tell.
    """
    mask = selected(graph, change.select)
    begins = _after_waits(graph) if end == "low" else _after_waits(graph) | _after_pauses(graph)
    found = runs(graph, mask, begins).filter(pl.len().over("run") > 1)
    if found.is_empty():
        return graph
    later = numbered(graph, found.filter(pl.col("place") > 0)["node"])
    first = numbered(graph, found.filter(pl.col("place") == 0)["node"])
    issue = graph.edges.filter(pl.col("kind") == "issue")
    heads = issue.filter(at_end(issue, first, "dst"))["src"].unique()
    gone = _unlaunched(graph, later) & ~numbered(graph, heads)
    gap = _node_gap(graph, change, end)
    emptied = _without_cost(graph, gone)
    at = at_end(emptied.edges, later, "dst")
    edges = emptied.edges.with_columns(
        pl.when(at & (pl.col("kind") == "stream")).then(pl.min_horizontal("lag", pl.lit(gap, dtype=pl.Int64))).otherwise("lag").alias("lag")
    )
    edges = without(edges, at & (pl.col("kind") == "issue"))
    launch = (change.host_ns or (0.0, 0.0, 0.0))[ENDS.index(end)] * _slowness(graph, change)
    taken = pl.min_horizontal(pl.lit(round(launch), dtype=pl.Int64), _replaced(graph, found, gone))
    nodes = emptied.nodes.with_columns(
        pl.when(numbered(graph, heads)).then(pl.max_horizontal("duration", taken)).otherwise("duration").alias("duration"),
        pl.when(later).then(pl.min_horizontal("delay", pl.lit(gap, dtype=pl.Int64))).otherwise("delay").alias("delay"),
        (pl.col("replayed").fill_null(value=False) | later).alias("replayed"),
    )
    return dataclasses.replace(emptied, nodes=nodes, edges=edges)


def _replaced(graph: Graph, found: pl.DataFrame, gone: pl.Series) -> pl.Series:
    """Per node that launches the first of a run: for how long the host launches the run, ns; one launch of all takes no longer."""
    issue = graph.edges.filter(pl.col("kind") == "issue").select(pl.col("dst").alias("node"), pl.col("src").alias("call"))
    calls = found.join(issue, on="node").sort("run", "place").unique("call", keep="first", maintain_order=True)
    each = graph.nodes.select("duration", gone.alias("gone")).with_row_index("node")
    host = launched_for(graph).join(each, on="node").filter(pl.col("own") | pl.col("gone"))
    takes = host.join(calls.select("call", "run"), on="call").group_by("run").agg(pl.col("duration").sum().alias("takes"))
    heads = calls.filter(pl.col("place") == 0).join(takes, on="run").select(pl.col("call").alias("node"), "takes")
    return each.join(heads, on="node", how="left", maintain_order="left")["takes"]


def _after_waits(graph: Graph) -> pl.Series:
    """Operations whose launch is the first on its thread after a call that waited for the device: no graph spans it."""
    waiting = graph.edges.filter(pl.col("kind") == "awaited")["dst"].unique()
    of_launches = launched_for(graph)
    return _launched_by(graph, of_launches.filter(pl.col("node").is_in(waiting.implode()))["call"].drop_nulls())


def _after_pauses(graph: Graph) -> pl.Series:
    """Operations whose launch is the first on its thread after other work of the host that took a pause's time (LONG_NS)."""
    of_launches = launched_for(graph).filter(~pl.col("own"))
    work = (
        of_launches.with_columns(graph.nodes["duration"].gather(of_launches["node"]).alias("ns")).group_by("call").agg(pl.col("ns").sum())
    )
    return _launched_by(graph, work.filter(pl.col("ns") >= LONG_NS)["call"])


def _launched_by(graph: Graph, calls: pl.Series) -> pl.Series:
    """Which nodes are operations that these calls launch."""
    issue = graph.edges.filter(pl.col("kind") == "issue")
    return numbered(graph, issue.filter(pl.col("src").is_in(calls.implode()))["dst"])


def _slowness(graph: Graph, change: Change) -> float:
    """How many times longer a launch takes on this host than on that which `host_ns` was told of; at least 1."""
    if change.launch_ns is None:
        return 1.0
    calls = graph.edges.filter(pl.col("kind") == "issue")["src"].unique()
    launches = graph.nodes["duration"].gather(calls).to_list()
    return max(1.0, integer_median(launches) / change.launch_ns) if launches else 1.0


def _node_gap(graph: Graph, change: Change, end: End) -> int:
    """The gap between nodes of a graph, ns: the median of this trace where it replays any, else the published one."""
    replayed = graph.nodes["replayed"].fill_null(value=False)
    between = graph.edges.filter((pl.col("kind") == "stream") & at_end(graph.edges, replayed, "dst") & at_end(graph.edges, replayed, "src"))
    gaps = (between["lag"] + graph.nodes["delay"].gather(between["dst"])).clip(lower_bound=0)
    published = (change.gap_ns or (0.0, 0.0, 0.0))[ENDS.index(end)]
    return round(published) if len(gaps) < 5 else integer_median(gaps.to_list())


def _resize(graph: Graph, change: Change, end: End) -> Graph:
    """`to` micro-batches in one: the same work on the device, times `by` (fuller kernels), in 1/`to` of the launches.

    Operations and launches are not counted down one by one: of what an operation takes however little it works 1/`to` is left, and host
    work, calls, launch latencies and gaps all take 1/`to`, in forward and backward. Work that takes a pause's time launches nothing: if
    it comes with each sample (a loader) or with each micro-batch the trace does not tell, so that it only changes at one end.
    """
    fewer = 1 / (change.to or 1.0)
    nodes = graph.nodes
    outside = nodes["phase"].cast(pl.String).fill_null("") == OPTIMIZER
    of_launches = launched_for(graph)
    issue = graph.edges.filter(pl.col("kind") == "issue").unique("src", keep="first", maintain_order=True)
    phase = issue.select(pl.col("src").alias("call"), outside.gather(issue["dst"]).alias("outside"))
    host_outside = of_launches.join(phase, on="call", how="left").filter(pl.col("outside").fill_null(value=True))["node"]
    op = nodes["kind"] == "op"
    inside = ~(outside & op) & ~(numbered(graph, host_outside) & ~op)
    if end != ("low" if fewer < 1 else "high"):
        inside &= op | (nodes["duration"] < LONG_NS)

    def shrunk(name: str) -> pl.Expr:
        return (pl.col(name) * fewer).round().cast(pl.Int64)

    at = at_end(graph.edges, inside, "dst")
    start = pl.min_horizontal("duration", pl.lit(change.start_ns or 0.0))
    scaled = (
        pl.when(inside & op)
        .then(((pl.col("duration") - start * (1 - fewer)) * factor(change, end)).round().cast(pl.Int64))
        .when(inside)
        .then(shrunk("duration"))
        .otherwise("duration")
    )
    return dataclasses.replace(
        graph,
        nodes=nodes.with_columns(scaled.alias("duration"), pl.when(inside).then(shrunk("delay")).otherwise("delay").alias("delay")),
        edges=graph.edges.with_columns(pl.when(at).then(shrunk("lag")).otherwise("lag").alias("lag")),
    )


def _detach(graph: Graph, change: Change, end: End) -> Graph:
    """The operations leave the stream that waits for them; what reads them still waits.

    Who reads them no trace tells. With `until` it is told; without it, it is inferred: in the worst case what waited for them waits on, in
    the likely one what waits for the next of them (one ahead), in the best one the first operation of another phase. With `beside` they run
    piece by piece beside what they feed or are fed by; in one piece it all stays as it is.
    """
    if change.until is None and end == "high" and change.since is None:
        return graph
    mask = selected(graph, change.select)
    if not mask.any():
        return graph
    if change.beside is not None and change.pieces is not None:
        return pieced(graph, mask, selected(graph, change.beside) & ~mask, change.pieces[ENDS.index(end)])
    until = None if change.until is None else selected(graph, change.until) & ~mask
    graph, mask = split(graph, mask, -(-change.parts // burst_size(graph, mask, until)))
    return detached(
        graph,
        mask,
        since=None if change.since is None else selected(graph, change.since) & ~mask,
        until=None if change.until is None else selected(graph, change.until) & ~mask,
        spread=change.spread,
        one_ahead=end != "low",
    )


def _interleave(graph: Graph, change: Change, _: End) -> Graph:
    """The exchange of one micro-batch beside the compute of its neighbour: each backward takes turns with the next forward."""
    return interleaved(graph, selected(graph, change.select))


def _delay(graph: Graph, change: Change, end: End) -> Graph:
    """The operations run beside what comes next of `until`, and nothing but what follows that waits for them; at worst all stays."""
    mask = selected(graph, change.select)
    return graph if change.until is None or end == "high" else delayed(graph, mask, selected(graph, change.until) & ~mask)


_LAWS: Mapping[Transformation, Callable[[Graph, Change, End], Graph]] = {  # all but `scale`
    "remove": _remove,
    "detach": _detach,
    "interleave": _interleave,
    "delay": _delay,
    "merge": _merge,
    "graph": _graph,
    "resize": _resize,
}
