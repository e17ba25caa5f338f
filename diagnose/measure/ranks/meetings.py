"""Which operations of several captured ranks meet: the matched collectives as numbers in their graphs, and what was measured of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from diagnose.job import Job
from diagnose.measure.ranks.matching import LIMIT_NS, Clocks, Matched, aligned
from diagnose.measure.ranks.members import Input, Member, members_of, mesh_of
from diagnose.measure.ranks.transfers import left_alone
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import INSTANCES, MEMBERS, Meetings, replayed_together
from diagnose.measure.replay.path import step_times

RANKS_AT_ONCE = 64  # more are not replayed together: a rank of 100,000 operations takes some 60 MB then; this project's choice
FAITHFUL = 0.005  # of a step: what the replay of what was measured may be off (the contract of the forecast, section 1)


@dataclass(frozen=True, kw_only=True)
class Met:
    """The graphs of all devices that can be replayed, with the numbers of their meetings, and these.

    `notes`: what is left as it was measured, in sentences. `refused`: why they can't be replayed together; None where they can.
    """

    graphs: tuple[Graph, ...]
    meetings: Meetings
    notes: tuple[str, ...] = ()
    refused: str | None = None


def too_many(ranks: int) -> str | None:
    """Why so many ranks are not replayed together, and how to choose among them."""
    if ranks <= RANKS_AT_ONCE:
        return None
    return (
        f"{ranks} ranks are too many to replay together (at most {RANKS_AT_ONCE}): name the traces of some, best all of one node or of one "
        "expert-parallel group, the slowest among them."
    )


def meet(inputs: Sequence[Input], job: Job | None) -> Met:
    """Number the collectives in which the ranks of these inputs meet, and prove that their joint replay gives back what was measured."""
    members = members_of(inputs)
    matched, unmatched, clocks = aligned(members, mesh_of(job))
    met = met_of(members, matched, clocks)
    return replace(met, notes=(*met.notes, *left_alone(unmatched)))


def met_of(members: Sequence[Member], matched: Sequence[Matched], clocks: Clocks) -> Met:
    """The same of exchanges that are matched already."""
    able = [member for member in members if (graph := member.device.graph) is not None and graph.refused is None]
    graphs = [member.device.graph for member in able if member.device.graph is not None]
    places = {member.place: place for place, member in enumerate(able)}
    offsets = tuple(clocks.known[member.place][1] - member.start_unix_ns for member in able)
    rows, groups, apart = _rows(matched, clocks, places)
    met, contradicted = _measured(rows, graphs, offsets)
    numbered = tuple(_numbered(graph, met.filter(pl.col("place") == place)) for place, graph in enumerate(graphs))
    instances = groups.join(met.select("instance").unique(), on="instance", how="semi")
    found = Meetings(members=met.select(*MEMBERS), instances=instances.select(*INSTANCES), offsets=offsets)
    whole = instances["whole"]
    notes = (*_dropped(apart, contradicted), *_missing(int((~whole).sum()), whole.len()))
    return _proven(Met(graphs=numbered, meetings=found, notes=notes, refused=too_many(len(graphs))))


def _rows(matched: Sequence[Matched], clocks: Clocks, places: dict[int, int]) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Members of instances (instance, place of the graph, op), instances, and how many have members whose clocks can't be aligned."""
    rows, groups, first, apart = [], [], 0, 0
    for number, group in enumerate(matched):
        if not clocks.together(part.member for part in group.parts):
            apart += group.matched
            continue
        graph_of = {place: places[part.member.place] for place, part in enumerate(group.parts) if part.member.place in places}
        hosts = {part.member.host for part in group.parts}
        own = group.instances.select(
            (pl.col("ordinal").rank("dense").cast(pl.Int64) - 1 + first).alias("instance"),
            pl.col("place").replace_strict(graph_of, default=None, return_dtype=pl.Int32),
            pl.col("op").cast(pl.UInt32),
        )
        rows.append(own.drop_nulls("place"))
        groups.append(
            pl.DataFrame({"instance": range(first, first + group.matched)}, schema={"instance": pl.Int64}).with_columns(
                pl.lit(number, dtype=pl.Int32).alias("group"),
                pl.lit(group.kind).alias("kind"),
                pl.lit(group.shape).alias("shape"),
                pl.lit(None if group.size is None else group.whole and len(graph_of) == len(group.parts), dtype=pl.Boolean).alias("whole"),
                pl.lit(None if None in hosts else len(hosts), dtype=pl.Int32).alias("hosts"),
            )
        )
        first += group.matched
    empty = {name: MEMBERS[name] for name in ("instance", "place", "op")}
    return pl.concat([pl.DataFrame(schema=empty), *rows]), pl.concat([pl.DataFrame(schema=INSTANCES), *groups]), apart


def _measured(rows: pl.DataFrame, graphs: Sequence[Graph], offsets: Sequence[int]) -> tuple[pl.DataFrame, int]:
    """The members that are nodes of a graph, with what they took and transferred; and how many instances clocks contradict."""
    schema = {"op": pl.UInt32, "start": pl.Int64, "duration": pl.Int64, "place": pl.Int32, "offset": pl.Int64}
    nodes = pl.concat(
        [
            pl.DataFrame(schema=schema),
            *(
                graph.nodes.filter(pl.col("op").is_not_null()).select(
                    "op", "start", "duration", pl.lit(place, dtype=pl.Int32).alias("place"), pl.lit(offset, dtype=pl.Int64).alias("offset")
                )
                for place, (graph, offset) in enumerate(zip(graphs, offsets, strict=True))
            ),
        ]
    )
    came = pl.col("start") - pl.col("offset")
    inside = rows.join(nodes, on=["place", "op"]).filter(pl.len().over("instance") > 1)
    split = inside.with_columns((came + pl.col("duration") - came.max().over("instance")).alias("transfer"))
    wrong = pl.col("transfer").min().over("instance") < -LIMIT_NS  # one had ended before the last came
    return split.filter(~wrong).sort("instance", "place"), split.filter(wrong)["instance"].n_unique()


def _numbered(graph: Graph, own: pl.DataFrame) -> Graph:
    """The graph with the numbers of its meetings."""
    nodes = graph.nodes.drop("instance").join(own.select("op", "instance"), on="op", how="left", maintain_order="left")
    return replace(graph, nodes=nodes.select(graph.nodes.columns))


def _dropped(apart: int, contradicted: int) -> tuple[str, ...]:
    """One sentence for each reason why matched collectives are no meetings."""
    reasons = (
        (apart, "their members' clocks can't be aligned"),
        (contradicted, f"by the clocks a member ended over {LIMIT_NS // 1000} µs before the last came"),
    )
    return tuple(f"{number} matched collectives stay as they were measured: {why}." for number, why in reasons if number)


def _missing(partial: int, every: int) -> tuple[str, ...]:
    """The sentence on ranks that were not captured."""
    if not partial:
        return ()
    return (f"In {partial} of {every} collectives members were not captured: waiting for these stays.",)


def _proven(met: Met) -> Met:
    """With meetings that could not come about dropped; refused where a step's replay is not what was measured."""
    if met.refused or met.meetings.instances.is_empty():
        return met
    found = replayed_together(met.graphs, met.meetings)
    if found.broken:
        note = f"{len(found.broken)} matched collectives stay as they were measured: each waits for another."
        met = replace(met, meetings=met.meetings.without(found.broken), notes=(*met.notes, note))
    for graph, times in zip(met.graphs, found.times, strict=True):
        after = step_times(graph, times)
        length = graph.steps["end"] - graph.steps["start"]
        off = ((after["end"] - after["start"] - length) / length).abs().max()
        if isinstance(off, float) and off > FAITHFUL:
            why = f"A joint replay of what was measured is {100 * off:.1f} % off in a step of rank {graph.rank}, so that it would forecast nothing."
            return replace(met, refused=why)
    return met
