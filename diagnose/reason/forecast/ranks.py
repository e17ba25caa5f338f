"""Questions about several ranks: all in step, one late rank as fast as its likes, experts with equal work, a faster link.

Each is answered by a joint replay (`measure.replay.meetings`): what changes is durations of single ranks' work, and who waits for whom
follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.ranks import Ranks
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.effects import Basis
from diagnose.measure.ranks.groups import SLOWER
from diagnose.measure.ranks.meetings import Met
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import replayed_together
from diagnose.measure.replay.path import step_times
from diagnose.model.vocabulary import EXPERT_GEMM

SAME_WORK = ("kind", "role", "bucket", "phase", "cause")  # nodes that agree in these do the same work, on ranks that are alike


class Variant(Struct, frozen=True, kw_only=True):
    """The graphs of all ranks as a question has them; `waiting`: whether ranks still wait for each other. The rest as in a change."""

    graphs: tuple[Graph, ...]
    waiting: bool = True
    basis: Basis
    why: str
    source: str = "these traces"


OfRanks = Callable[[Met], Variant | str]  # what all ranks do otherwise, or the sentence why that can't be told


def mean_steps(met: Met, asked: Variant | None = None) -> tuple[float, ...]:
    """By rank, the mean length of its kept steps (ns) after the joint replay; without a question: of what was measured."""
    graphs = met.graphs if asked is None else asked.graphs
    found = replayed_together(graphs, met.meetings, waiting=asked is None or asked.waiting)
    steps = (step_times(graph, times) for graph, times in zip(graphs, found.times, strict=True))
    return tuple(float((own["end"] - own["start"]).sum()) / own.height for own in steps)


def in_step(met: Met) -> Variant:
    """Nobody waits for another captured rank: each collective takes what its transfer takes, from when its own rank is there."""
    partial = int((~met.meetings.instances["whole"]).sum())
    beside = "; where members were not captured it still holds waiting for these" if partial else ""
    waits = f"Ranks wait for nobody in {met.meetings.instances.height} matched collectives; transfer stays what it was{beside}."
    free = Variant(graphs=met.graphs, waiting=False, basis="inferred" if partial else "measured", why=waits)
    alone = [ns / 1e6 for ns in mean_steps(met, free)]
    return replace(free, why=f"{waits} Then each steps by itself, in {min(alone):.1f} to {max(alone):.1f} ms.")


def middle_in_step(met: Met) -> Graph:
    """The rank that steps in the middle once nobody waits, of two the shorter: the late rank itself waits for nobody and wins nothing."""
    alone = mean_steps(met, Variant(graphs=met.graphs, waiting=False, basis="inferred", why=""))
    ordered = sorted(zip(alone, met.graphs, strict=True), key=lambda one: (one[0], one[1].rank, one[1].device))
    return ordered[(len(ordered) - 1) // 2][1]


def evened(met: Met, late: int, likes: Collection[int]) -> Variant | str:
    """A late rank takes no longer for the same work than its likes (their median); a sentence where it has none here."""
    sums = {graph.rank: _work(graph) for graph in met.graphs if graph.rank in {late, *likes}}
    others = [table for rank, table in sums.items() if rank != late]
    if late not in sums or not others:
        return f"Rank {late} has no peer rank among those that can be replayed."
    usual = pl.concat(others).group_by(SAME_WORK).agg(pl.col("ns").median().alias("usual"), pl.len().alias("ranks"))
    factors = (
        sums[late]
        .join(usual.filter(2 * pl.col("ranks") > len(others)), on=SAME_WORK, nulls_equal=True)
        .select(*SAME_WORK, (pl.col("usual") / pl.col("ns")).clip(upper_bound=1).alias("by"))
    )
    graphs = tuple(_by_work(graph, factors) if graph.rank == late else graph for graph in met.graphs)
    return Variant(
        graphs=graphs, basis="inferred", why=f"Rank {late} takes for each part of its work what the median of its peer ranks takes."
    )


def evened_all(met: Met, likes: Mapping[int, Collection[int]]) -> Variant | str:
    """The same of several late ranks, each with its likes."""
    if not likes:
        return "No captured rank is known, by collectives that were matched, to keep the others waiting."
    graphs, whys = met.graphs, []
    for late, others in likes.items():
        variant = evened(replace(met, graphs=graphs), late, others)
        if isinstance(variant, str):
            return variant
        graphs = variant.graphs
        whys.append(variant.why)
    return Variant(graphs=graphs, basis="inferred", why=" ".join(whys))


def likes_of_late(ranks: Ranks | None) -> dict[int, tuple[int, ...]]:
    """By late rank its likes, which are not late: those that a comparison of the ranks names, always or mostly the last, alone or together.

    Not those that are known by their own time alone, in a pipeline: its transfers are not matched, so that nothing tells which of the other
    stages' work follows on theirs.
    """
    late = {
        rank
        for one in (ranks.late if ranks else ())
        if one.rank is not None and one.pattern != "rotating" and set(one.kinds) != {"pipeline"}
        for rank in (one.rank, *one.alike)
    }
    return {
        rank: tuple(other for other in group.ranks if other not in late)
        for group in (ranks.groups if ranks else ())
        for rank in group.ranks
        if rank in late
    }


def _work(graph: Graph) -> pl.DataFrame:
    """SAME_WORK and ns per kept step; without the operations of transport, which hold the waiting."""
    waits = (pl.col("kind") == "op") & (pl.col("role") == "transport")
    rows = graph.nodes.filter(pl.col("step").is_not_null() & ~waits.fill_null(value=False))
    return rows.group_by(SAME_WORK).agg((pl.col("duration").sum() / graph.steps.height).alias("ns")).filter(pl.col("ns") > 0)


def _by_work(graph: Graph, factors: pl.DataFrame) -> Graph:
    by = graph.nodes.join(factors, on=SAME_WORK, how="left", nulls_equal=True, maintain_order="left")["by"]
    return _scaled(graph, by)


def _scaled(graph: Graph, by: pl.Series) -> Graph:
    """Durations times `by` (null: as they are)."""
    duration = (pl.col("duration") * by.fill_null(1.0)).round().cast(pl.Int64)
    return dataclasses.replace(graph, nodes=graph.nodes.with_columns(duration.alias("duration")))


def balanced(met: Met, buckets: Buckets) -> Variant | str:
    """Between one token exchange and the next the experts of every rank have the mean work of their group; a sentence where none shows.

    The exchanges before and after them take as much less as the rank with most tokens has more than the mean: it is who they last for.
    """
    exchanges = met.meetings.instances.filter((pl.col("kind") == "expert") & (pl.col("shape") == "all_to_all"))
    members = met.meetings.members.join(exchanges.select("instance"), on="instance", how="semi")
    uneven = [bucket for bucket, spec in buckets.items() if spec.late_cause == buckets[EXPERT_GEMM].late_cause]
    passes = [_passes(graph, members.filter(pl.col("place") == place), uneven) for place, graph in enumerate(met.graphs)]
    work = _expert_work(passes, _speeds(met.graphs, uneven), members)
    if work.is_empty():
        return "No work of experts shows between exchanges of tokens that all captured members of a group took part in."
    own = work.select("place", "pass", (pl.col("mean") / pl.col("ns")).alias("by"))
    shorter = work.group_by("pass").agg((pl.col("mean") / pl.col("ns").max()).first().alias("by"))
    graphs = []
    for place, (graph, rows) in enumerate(zip(met.graphs, passes, strict=True)):
        nodes = rows.join(own.filter(pl.col("place") == place), on="pass").select("node", "by")
        moves = _moves(graph, members.filter(pl.col("place") == place), shorter)
        numbers = pl.int_range(graph.nodes.height, dtype=pl.UInt32, eager=True).alias("node").to_frame()
        graphs.append(_scaled(graph, numbers.join(pl.concat([nodes, moves]), on="node", how="left", maintain_order="left")["by"]))
    why = (
        "The experts of each rank have the mean work of their group from one exchange of tokens to the next, and the exchanges beside them "
        "take as much less as the busiest rank has more than the mean."
    )
    return Variant(graphs=tuple(graphs), basis="inferred", why=why)


def _passes(graph: Graph, members: pl.DataFrame, uneven: Collection[str]) -> pl.DataFrame:
    """Operations of the experts' buckets after an exchange of tokens: node, bucket, duration, pass (the last instance that had ended)."""
    nodes = graph.nodes.with_row_index("node").filter(pl.col("kind") == "op")
    ended = nodes.join(members.select("op", pl.col("instance").alias("pass")), on="op")
    ended = ended.select((pl.col("start") + pl.col("duration")).alias("start"), "pass").sort("start")
    rows = nodes.filter(pl.col("bucket").is_in(list(uneven)) & (pl.col("role") != "transport")).sort("start", maintain_order=True)
    return rows.select("node", "bucket", "start", "duration").join_asof(ended, on="start", strategy="backward").drop_nulls("pass")


def _expert_work(passes: Sequence[pl.DataFrame], speeds: Sequence[float], members: pl.DataFrame) -> pl.DataFrame:
    """By place and pass the work of experts at equal speed (ns), and the mean of the pass; only where all members show some."""
    worked = pl.concat(
        [
            rows.filter(pl.col("bucket") == EXPERT_GEMM)
            .group_by("pass")
            .agg((pl.col("duration").sum() / speed).alias("ns"))
            .with_columns(pl.lit(place, dtype=pl.Int32).alias("place"))
            for place, (rows, speed) in enumerate(zip(passes, speeds, strict=True))
        ]
    )
    told = worked.join(members.group_by("instance").len("members").rename({"instance": "pass"}), on="pass")
    return told.filter(pl.len().over("pass") == pl.col("members")).with_columns(pl.col("ns").mean().over("pass").alias("mean"))


def _moves(graph: Graph, members: pl.DataFrame, shorter: pl.DataFrame) -> pl.DataFrame:
    """Node and `by` of the exchanges of tokens: that of the pass before, else of the nearest after (tokens go out in two), or before."""
    nodes = graph.nodes.with_row_index("node").select("node", "op", "start", "duration").join(members.select("op", "instance"), on="op")
    ordered = nodes.sort(pl.col("start") + pl.col("duration")).join(
        shorter, left_on="instance", right_on="pass", how="left", maintain_order="left"
    )
    here = pl.col("by")
    return ordered.select("node", pl.coalesce(here.shift(1), here, here.shift(-1), here.shift(2)).alias("by")).drop_nulls("by")


def _speeds(graphs: Sequence[Graph], uneven: Collection[str]) -> list[float]:
    """By rank, how many times as long as the median its work takes that does not hang on tokens; 1 where that is little more."""
    even = (pl.col("role") == "compute") & ~pl.col("bucket").is_in(list(uneven)) & pl.col("step").is_not_null()
    own = [float(graph.nodes.filter(even)["duration"].sum()) / graph.steps.height for graph in graphs]
    usual = median(own)
    return [ns / usual if usual and ns / usual >= SLOWER else 1.0 for ns in own]


def faster_link(met: Met, by: float) -> Variant | str:
    """Transfers of collectives between hosts take 1/`by` of what they took; a sentence where none is known to cross."""
    crossing = met.meetings.instances.filter(pl.col("hosts") > 1)["instance"]
    if crossing.is_empty():
        return "No matched collective is known to run between hosts."
    here = pl.col("instance").is_in(crossing.implode())
    graphs = tuple(
        dataclasses.replace(
            graph,
            nodes=graph.nodes.with_columns(
                pl.when(here).then((pl.col("duration") / by).round().cast(pl.Int64)).otherwise("duration").alias("duration")
            ),
        )
        for graph in met.graphs
    )
    why = f"The transfer of {crossing.len()} collectives between hosts takes 1/{by:g} of what it took, waiting for others what follows from it."
    return Variant(graphs=graphs, basis="assumed", why=why, source="the question: all of a transfer is taken for time on the link")
