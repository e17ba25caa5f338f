"""Which operations of several captured ranks meet: the matched collectives as numbers in their graphs, and what was measured of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.job import Job, count_of
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.ranks.matching import LIMIT_NS, Clocks, Matched, aligned
from diagnose.measure.ranks.members import Input, Member, members_of, mesh_of
from diagnose.measure.ranks.stages import at_stages
from diagnose.measure.ranks.transfers import left_alone
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import INSTANCES, MEMBERS, Meetings, replayed_together
from diagnose.measure.replay.path import step_times

RANKS_AT_ONCE = 64  # more ranks are not measured for a joint replay; this project's choice
NODES_AT_ONCE = 2_000_000  # nor are more nodes replayed: they take 0.9 GB and, on one processor, some 20 s each time; likewise
ONE_RANK = "It takes the traces of several ranks: one shows that it waits in a collective, not for whom."
FAITHFUL = 0.005  # of a step: what the replay of what was measured may be off (the contract of the forecast, section 1)


class Met(Struct, frozen=True, kw_only=True):
    """The graphs of all devices that can be replayed, with the numbers of their meetings, and these.

    `notes`: what is left as it was measured, in sentences. `refused`: why they can't be replayed together; None where they can.
    """

    graphs: tuple[Graph, ...]
    meetings: Meetings
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def of(self, graph: Graph) -> Graph:
        """The same device's graph among these."""
        return next(one for one in self.graphs if (one.rank, one.device) == (graph.rank, graph.device))


def too_many(ranks: int, nodes: int = 0) -> str | None:
    """Why so many ranks, with so many nodes in all, are not replayed together, and how to choose among them."""
    if ranks <= RANKS_AT_ONCE and nodes <= NODES_AT_ONCE:
        return None
    many, most = f"{ranks} ranks", f"{RANKS_AT_ONCE}"
    if ranks <= RANKS_AT_ONCE:
        many, most = f"{ranks} ranks with {nodes:,} nodes", f"{NODES_AT_ONCE:,} nodes"
    return (
        f"{many} are too many to replay together (at most {most}): name the traces of some, best all of one node or of one "
        "expert-parallel group, the slowest among them, or capture fewer steps."
    )


def meet(inputs: Sequence[Input], job: Job | None, buckets: Buckets) -> Met:
    """Number the collectives in which the ranks of these inputs meet, and prove that their joint replay gives back what was measured."""
    members = at_stages(members_of(inputs), buckets)
    matched, unmatched, clocks = aligned(members, mesh_of(job))
    met = met_of(members, matched, clocks)
    world = count_of(job, "world_size")
    absent = 0 if world is None else world - len({member.rank.rank for member in members})
    partly = (f"{absent} of {world} ranks were not captured: waiting for these stays what it was.",) if absent > 0 else ()
    return replace(met, notes=(*partly, *met.notes, *left_alone(unmatched)))


def meeting_ranks(inputs: Sequence[Input], job: Job | None, buckets: Buckets, shown: tuple[int | None, int | None]) -> Met | str:
    """The same, or the sentence why the ranks can't be replayed together; `shown` (rank, device) has to be among them."""
    if sum(len(one.devices) for one in inputs) < 2:
        return ONE_RANK
    able = [one.kept.height for part in inputs for one in part.devices if one.kept is not None and one.kept.told.refused is None]
    crowd = too_many(len(able), sum(able))
    if crowd is not None:
        return crowd
    met = meet(inputs, job, buckets)
    if met.refused is not None:
        return met.refused
    if shown not in {(graph.rank, graph.device) for graph in met.graphs}:
        return f"The graph of rank {shown[0]} can't be replayed."
    if met.meetings.instances.is_empty():
        return "No collective of the captured ranks could be matched, so it is not known who waits for whom."
    return met


def met_of(members: Sequence[Member], matched: Sequence[Matched], clocks: Clocks) -> Met:
    """The same of exchanges that are matched already."""
    able = [(member, graph) for member in members if (graph := member.device.graph) is not None and graph.refused is None]
    places = {member.place: place for place, (member, _) in enumerate(able)}
    rows, instances, apart = _rows(matched, clocks, places)
    offsets = tuple(clocks.known[member.place][1] - member.start_unix_ns for member, _ in able)
    met = meet_in([graph for _, graph in able], rows, instances, offsets)
    return replace(met, notes=(*_dropped(apart, "their members' clocks can't be aligned"), *met.notes))


def meet_in(graphs: Sequence[Graph], rows: pl.DataFrame, instances: pl.DataFrame, offsets: tuple[int, ...]) -> Met:
    """The graphs meet in these instances. `rows`: instance, place (of the graph), op; `instances`, `offsets` as in Meetings."""
    met, contradicted = _measured(rows, graphs, offsets)
    numbered = tuple(_numbered(graph, met.filter(pl.col("place") == place)) for place, graph in enumerate(graphs))
    kept = instances.join(met.select("instance").unique(), on="instance", how="semi", maintain_order="left").select(*INSTANCES)
    wrong = f"by the clocks a member ended over {LIMIT_NS // 1000} µs before the last came"
    found = Met(
        graphs=numbered,
        meetings=Meetings(members=met.select(*MEMBERS), instances=kept, offsets=offsets),
        notes=(*_dropped(contradicted, wrong), *_missing(kept["whole"])),
        refused=too_many(len(graphs), sum(graph.nodes.height for graph in graphs)),
    )
    return _proven(found)


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
    return dataclasses.replace(graph, nodes=nodes.select(graph.nodes.columns))


def _dropped(number: int, why: str) -> tuple[str, ...]:
    """The sentence on matched collectives that are no meetings."""
    are = "matched collective stays as it was" if number == 1 else "matched collectives stay as they were"
    return (f"{number} {are} measured: {why}.",) if number else ()


def _missing(whole: pl.Series) -> tuple[str, ...]:
    """The sentence on members that were not captured."""
    partial = int((~whole).sum())
    return (f"In {partial} of {whole.len()} collectives members were not captured: waiting for these stays.",) if partial else ()


def _proven(met: Met) -> Met:
    """With meetings that could not come about dropped; refused where a step's replay is not what was measured."""
    if met.refused or met.meetings.instances.is_empty():
        return met
    found = replayed_together(met.graphs, met.meetings)
    if found.broken:
        notes = (*_dropped(len(found.broken), "each waits for another"), *met.notes)
        met = replace(met, meetings=met.meetings.without(found.broken), notes=notes)
    for graph, times in zip(met.graphs, found.times, strict=True):
        after = step_times(graph, times)
        length = graph.steps["end"] - graph.steps["start"]
        off = ((after["end"] - after["start"] - length) / length).abs().max()
        if isinstance(off, float) and off > FAITHFUL:
            why = f"A joint replay of what was measured is {100 * off:.1f} % off in a step of rank {graph.rank}, so that it would forecast nothing."
            return replace(met, refused=why)
    return met
