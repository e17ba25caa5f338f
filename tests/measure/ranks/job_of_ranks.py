"""Small invented jobs: members whose exchanges are written down, without a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
from msgspec import defstruct

from diagnose.measure.exchanges import Exchanges, Lane
from diagnose.measure.ranks.members import Member
from diagnose.measure.waits.leads import Leads
from diagnose.model.trace import Rank

SHAPES = {
    "name": pl.String, "launch": pl.String, "bucket": pl.String, "kernels": pl.UInt32, "median_ns": pl.Int64, "short_ns": pl.Int64,
    "work_ns": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One exchange of one rank."""

    start: int
    end: int
    step: int | None = 0
    bytes: int | None = None
    elements: int | None = None
    expert_ns: int = 0
    phase: str | None = None
    held_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Did:
    """One rank: its exchanges by lane, and the figures of its step."""

    rank: int
    lanes: Mapping[Lane, Sequence[Ran]]
    host: int | None = None
    started: int | None = 0
    step_ns: int = 1_000_000
    blocked_ns: int = 1_000_000
    blocked_in: Sequence[int] = ()  # likewise of each step; without it they all have blocked_ns
    compute_ns: int = 500_000
    starved_ns: int = 0
    steps: int = 1
    bubble_ns: int = 0  # waiting for other stages, per step
    unnamed_ns: int = 0  # for transfers between two ranks of an unknown group, per step
    elsewhere_ns: int = 0  # of blocked_ns, by pipeline transfers
    work: Mapping[str, int] = field(default_factory=dict)
    streams: int = 1  # that share the work of a bucket evenly, all at once
    in_steps: Sequence[Mapping[str, int]] = ()  # compute by bucket, of each step
    shapes: Sequence[tuple[str, str, int] | tuple[str, str, int, int]] = ()  # name, bucket, median ns, and of the shortest tenth if another
    launch_gap_ns: int | None = None  # CPU time from one launch to the next
    launched: int = 100  # launching calls per step that were recorded
    paces: Sequence[float] = ()  # of each step: how many times as long as usual kernels take


def lane(kind: str = "expert", operation: str = "all-to-all", shape: str = "all_to_all", **told: Any) -> Lane:
    """A lane; `told`: what names its group."""
    known = {"group": None, "group_name": None, "size": None, "communicator": None, "members": None, "stream": None}
    return Lane(kind=kind, backend="nccl", operation=operation, shape=cast("Any", shape), **{**known, **told})


# What a comparison of ranks reads of a DeviceMeasure.
_Device = defstruct("_Device", ["budget", "exchanges", "device", "usage", "steps", "listed", "split", "counts", "leads"], frozen=True)

_NEVER = pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64})


def members(did: Sequence[Did]) -> tuple[Member, ...]:
    """The members, in the order given."""
    return tuple(_member(place, one) for place, one in enumerate(did))


def _member(place: int, did: Did) -> Member:
    return Member(
        place=place,
        rank=Rank(rank=did.rank, start_unix_ns=did.started, source="trace"),
        device=cast(
            "Any",
            _Device(
                budget=SimpleNamespace(
                    per_step=pl.DataFrame(
                        {
                            "blocking_inferred_ns": [0] * did.steps,
                            "blocking_transport_ns": list(did.blocked_in) or [did.blocked_ns] * did.steps,
                        }
                    )
                ),
                exchanges=_exchanges(did),
                device=0,
                usage=SimpleNamespace(names=pl.DataFrame(schema={"bucket": pl.String, "role": pl.String, "work_ns": pl.Int64})),
                steps=SimpleNamespace(anchor="range", frame=_NEVER),
                listed=_listed(did),
                split=tuple(SimpleNamespace(index=index, compute=work) for index, work in enumerate(did.in_steps)),
                counts=_counts(did),
                leads=Leads(line=_NEVER.with_columns(issued="start", lead="start"), holds=_NEVER),
            ),
        ),
        bubble=(did.bubble_ns,) * did.steps,
        file=f"rank{did.rank}",
        part=place,
        host=did.host,
    )


_TOLD = ("start", "end", "bytes", "elements", "expert_ns", "phase", "held_ns")  # what a row of exchanges has of `Ran` as it is
_INSTANCES = {"lane": pl.UInt16, "index": pl.Int64, **dict.fromkeys(_TOLD, pl.Int64), "phase": pl.String}


def _exchanges(did: Did) -> Exchanges:
    rows = [
        {"lane": number, "index": ran.step, **{name: getattr(ran, name) for name in _TOLD}}
        for number, one in enumerate(did.lanes)
        for ran in did.lanes[one]
    ]
    waits = {"index": range(did.steps), "warm_up_ns": did.bubble_ns, "steady_ns": 0, "cool_down_ns": 0, "tail_ns": 0}
    return Exchanges(
        lanes=tuple(did.lanes),
        instances=pl.DataFrame(rows, schema=_INSTANCES).sort("start", "end").with_row_index("op"),
        shapes=pl.DataFrame(
            [(name, "1,1,1,128,1,1", bucket, 10, ns, short[0] if short else ns, ns * 10) for name, bucket, ns, *short in did.shapes],
            schema=SHAPES,
            orient="row",
        ),
        stage_waits=pl.DataFrame(waits),
        split_waits=pl.DataFrame({**waits, "steady_ns": did.unnamed_ns}),
        has_phases=True,
    )


def _listed(did: Did) -> SimpleNamespace:
    """What is listed of a device: every step as the others, the buckets' work, and what blocks for pipeline transfers."""
    budget = {
        "window_ns": did.step_ns, "blocking_transport_ns": did.blocked_ns, "compute_busy_ns": did.compute_ns,
        "launch_starved_ns": did.starved_ns,
    }  # fmt: skip
    return SimpleNamespace(
        blocking=({"role": "transport", "kind": "pipeline", "blocking_ns": did.elsewhere_ns, "status": "measured"},),
        steps=tuple(SimpleNamespace(index=index, **budget) for index in range(did.steps)),
        median=SimpleNamespace(index=0, **budget),
        buckets=[{"bucket": bucket, "work_ns": ns, "busy_ns": ns // did.streams, "kernels": 1} for bucket, ns in did.work.items()],
    )


def _counts(did: Did) -> pl.DataFrame:
    """The figures of each step that only facts use: those that comparisons of ranks read."""
    schema = {"index": pl.Int64, "pace": pl.Float64, "launch_gap_median_ns": pl.Int64, "launch_calls_per_step": pl.Int64}
    paces = did.paces or [None] * did.steps
    each = {"launch_gap_median_ns": did.launch_gap_ns, "launch_calls_per_step": did.launched}
    return pl.DataFrame(
        {"index": range(len(paces)), "pace": paces, **{name: [ns] * len(paces) for name, ns in each.items()}}, schema=schema
    )
