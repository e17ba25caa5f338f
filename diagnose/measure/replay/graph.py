"""A device's kept steps as a graph: host work, host calls and device operations, and what each waited for.

Every number in it was measured: how long a node took, how far behind what it waited for it began. A replay (`replay`) gives the measured
times back; a change of the graph gives the times that follow from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeVar, get_args

import polars as pl
from msgspec import Struct

from diagnose.model.trace import CopyKind
from diagnose.model.vocabulary import PHASES, TRAITS, Role

NODE_KINDS = ("host", "call", "op")  # host work between calls; a host call, or the return of one that waited; a device operation
EDGE_KINDS = (
    "thread",  # the host goes on after what it did before
    "handover",  # another thread of the rank goes on (autograd)
    "issue",  # a call launches an operation
    "stream",  # an operation follows the one before it on its stream
    "event",  # a stream waits for what was recorded on another
    "awaited",  # a call returns once an operation is done
    "queue",  # a launch waits for room in the launch queue
    "device",  # compute that fills the device begins once other such compute on another stream is done
    "meeting",  # a collective begins its work once its last member has come
)
NodeKind, EdgeKind, After = pl.Enum(NODE_KINDS), pl.Enum(EDGE_KINDS), pl.Enum(["start", "end"])
Roles = pl.Enum(get_args(Role))

# One row per node, in an order in which everything that a node waits for stands before it. The row number is the node's number.
NODES: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "kind": NodeKind,
    "lane": pl.Int32,  # dense number of the thread or stream that it runs on, no two of a rank alike
    "start": pl.Int64,  # measured, ns from the capture's start
    "duration": pl.Int64,  # ns; a call that waited has a node for its beginning and one for its return, with what it took after the wait
    "lost": pl.Int64,  # of its duration what it loses beside transport (`contention.losses`); null where that is not known
    "delay": pl.Int64,  # ns from what it waited for last to its start that no edge explains: it moves with the node
    "step": pl.Int32,  # index of the kept step in which it begins; null outside
    "op": pl.UInt32,  # row of the device's operations; null for the host
    "name_id": pl.Int32,  # of the operation, call or (host work) what ran meanwhile; null: not known
    "class_id": pl.Int32,  # of the operation's class (`Classified.classes`), null for the host
    "bucket": pl.Categorical(),  # of an operation; for the host of what its next call launches
    "role": Roles,
    "phase": pl.Enum(PHASES),
    "comm": pl.Categorical(),  # kind of exchange, of transport
    "exchange": pl.Categorical(),  # what it does, of transport: an id of exchanges.yaml
    "copy": CopyKind,  # of a copy: between host and device, or inside it
    "pinned": pl.Boolean,  # of a copy, and of the host's work for it: whether the host's memory is page-locked; null: not told
    # what the host was doing: one of `waits.stalls.HOST_CAUSES`: launch, host_sync, allocator, gc …; null for operations
    "cause": pl.Categorical(),
    "replayed": pl.Boolean,  # launched by a CUDA graph, after its first node
    **dict.fromkeys(TRAITS, pl.Boolean),  # of an operation in a kept step
    "instance": pl.Int64,  # number of the collective that it takes part in, the same on all ranks; null: none, or not matched
}
# One row per edge, sorted by dst. src < dst. The node can't begin before the time of `src` + `lag`.
EDGES: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "src": pl.UInt32,
    "dst": pl.UInt32,
    "after": After,  # of src
    "lag": pl.Int64,  # ns; negative where dst was seen to begin before
    "kind": EdgeKind,
    "inferred": pl.Boolean,  # not recorded: from times, or from the order of calls
}
# One row per kept step: it begins with node `opens` and ends where `closes` begins (`at` = start) or ends (`at` = end).
STEPS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "index": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "opens": pl.UInt32,
    "closes": pl.UInt32,
    "at": pl.Enum(["start", "end"]),
}


Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, eq=False)  # two are the same where they are one: what follows from a graph is kept with it
class Graph:
    """One device of one rank up to the end of its last kept step. Frames as NODES, EDGES and STEPS.

    What the capture holds before is part of it (a change was there before, too), and the steps between kept ones. `host`: whether calls
    were recorded; without, nothing the host does is in it. `refused`: why no forecast can be made of it (a sentence); None where the replay
    gives back every kept step. `names` and `classes`: what name_id and class_id stand for, as `Trace.names` and `Classified.classes` have
    it.
    """

    rank: int
    device: int
    nodes: pl.DataFrame
    edges: pl.DataFrame
    steps: pl.DataFrame
    names: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema={"id": pl.Int32, "text": pl.String}))
    classes: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema={"class_id": pl.UInt16, "operation": pl.String, "backend": pl.String})
    )
    host: bool = True
    refused: str | None = None
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What follows from this graph (`key` names it), made when it is first asked for and held as long as the graph is."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found


def by_row(rows: pl.Series, values: pl.Series, height: int) -> pl.Series:
    """A column of so many rows with `values` at `rows`, null elsewhere."""
    return pl.repeat(None, height, dtype=values.dtype, eager=True).scatter(rows, values)


PACKED_FROM = 100_000  # nodes; this project's choice: 10 MB and more become a tenth, for a quarter of the time that building takes


class Kept(Struct, frozen=True, kw_only=True):
    """A graph until it is asked for, a large one packed: those of all devices and ranks are held, few of them are replayed.

    `told`: all of it but, where `nodes` and `edges` hold them packed, its rows. `height`: number of its nodes.
    """

    told: Graph
    height: int
    nodes: bytes = b""
    edges: bytes = b""

    @property
    def graph(self) -> Graph:
        """The graph."""
        if not self.nodes:
            return self.told
        nodes = pl.read_ipc(BytesIO(self.nodes)).with_columns(pl.col("start").cum_sum())
        edges = pl.read_ipc(BytesIO(self.edges)).with_columns(pl.col("dst").cum_sum())
        return dataclasses.replace(self.told, nodes=nodes, edges=edges.with_columns((pl.col("dst") - pl.col("src")).alias("src")))


def kept(graph: Graph) -> Kept:
    """The graph as it is held."""
    if graph.nodes.height < PACKED_FROM:
        return Kept(told=graph, height=graph.nodes.height)
    # Times and numbers as distances, which are small and alike: that halves what zstd takes, and its time
    nodes = _packed(graph.nodes.with_columns(_since("start")))
    edges = _packed(graph.edges.with_columns(_since("dst"), (pl.col("dst") - pl.col("src")).alias("src")))
    told = dataclasses.replace(graph, nodes=graph.nodes.clear(), edges=graph.edges.clear())
    return Kept(told=told, height=graph.nodes.height, nodes=nodes, edges=edges)


def _since(name: str) -> pl.Expr:
    """How far each value lies behind the one before."""
    return pl.col(name) - pl.col(name).shift(1, fill_value=0)


def _packed(rows: pl.DataFrame) -> bytes:
    target = BytesIO()
    rows.write_ipc(target, compression="zstd")
    return target.getvalue()
