"""The captured ranks, and where each stands in the job: which ranks share a pipeline stage, an expert group, a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.device import StepBudget
from diagnose.document.ranks import UNKNOWN_HOST
from diagnose.job import Job
from diagnose.measure.device import DeviceMeasure
from diagnose.model.statistics import integer_median
from diagnose.model.trace import Rank

STAGE_PARTS = ("warm_up_ns", "steady_ns", "cool_down_ns")


class Input(Struct, frozen=True, kw_only=True):
    """What one input adds to the comparison: its ranks and its devices."""

    number: int
    file: str
    ranks: Sequence[Rank]
    devices: Sequence[DeviceMeasure]


class Member(Struct, frozen=True, kw_only=True, dict=True):
    """One device of one rank. `host`: numbered in order of rank, None: not told. `bubble`: waiting for other stages, by budget's step."""

    place: int  # its place among all members
    rank: Rank
    device: DeviceMeasure
    bubble: tuple[int, ...]
    file: str
    part: int  # its input
    host: int | None = None

    def of_split_model(self) -> Member:
        """The same, of a model split over ranks: what it sends to and gets from one other rank, of whatever group, is the pipeline's."""
        found = self.device.exchanges.of_split_model()
        return replace(self, device=replace(self.device, exchanges=found), bubble=_bubble(found.stage_waits))

    @property
    def steps(self) -> tuple[StepBudget, ...]:
        """The budget of every step."""
        return self.device.listed.steps

    @property
    def median(self) -> StepBudget:
        """The median of each figure of the budget."""
        return self.device.listed.median

    @property
    def work(self) -> Mapping[str, int]:
        """Work by bucket per step (median, ns), most first."""
        return {row["bucket"]: row["work_ns"] for row in self.device.listed.buckets}

    @property
    def busy(self) -> Mapping[str, int]:
        """How long a bucket runs per step (median, ns), work on several streams at once counted once."""
        return {row["bucket"]: row["busy_ns"] for row in self.device.listed.buckets}

    @property
    def kernels(self) -> Mapping[str, int]:
        """Kernels per step by bucket (median)."""
        return {row["bucket"]: row["kernels"] for row in self.device.listed.buckets}

    @cached_property
    def _paces(self) -> Mapping[int, float]:
        return dict(self.device.counts.select("index", "pace").drop_nulls().iter_rows())

    @property
    def launches(self) -> bool:
        """Whether the launches of its operations were recorded: without them nothing tells what held its compute up."""
        return bool(self.device.counts["launch_calls_per_step"].sum())

    @cached_property
    def launch_gap_ns(self) -> int | None:
        """What its CPU usually takes from one launching call to the next (median over the steps); None where too few are known."""
        gaps = self.device.counts["launch_gap_median_ns"].drop_nulls()
        return None if gaps.is_empty() else integer_median(gaps.to_list())

    def pace(self, step: int | None) -> float:
        """How many times as long as usual all its kernels take in a step; 1 where that can't be told."""
        return self._paces.get(-1 if step is None else step, 1.0)

    @property
    def start_unix_ns(self) -> int:
        """Wall clock at the trace's zero; 0 where it is not known."""
        return self.rank.start_unix_ns or 0


class Mesh(Struct, frozen=True, kw_only=True):
    """The ranks' coordinates as Megatron-Core lays them out: tensor fastest, then context, data, pipeline (or pipeline before data).

    Sizes of the attention mesh, and of the expert mesh over the same ranks. Source: Megatron-Core parallel_state.py, order
    "tp-cp-ep-dp-pp".
    """

    world: int
    tensor: int
    context: int
    pipeline: int
    expert: int | None
    expert_tensor: int
    pipeline_before_data: bool

    def stage(self, rank: int) -> int:
        """The rank's pipeline stage."""
        if self.pipeline_before_data:
            return rank // (self.tensor * self.context) % self.pipeline
        return rank // (self.world // self.pipeline)

    def _inside_stage(self, rank: int) -> int:
        """The rank's number among those of its stage."""
        if not self.pipeline_before_data:
            return rank % (self.world // self.pipeline)
        inner = self.tensor * self.context
        return rank % inner + rank // (inner * self.pipeline) * inner

    def group(self, kind: str, rank: int) -> tuple[int, ...] | None:
        """What the members of the rank's group of `kind` have in common: their shared coordinates. None where the sizes do not tell."""
        stage, inside = self.stage(rank), self._inside_stage(rank)
        if kind == "tensor":
            return stage, inside // self.tensor
        if kind == "context":
            return stage, inside // (self.tensor * self.context), inside % self.tensor
        if kind == "expert" and self.expert is not None:
            return stage, inside // (self.expert_tensor * self.expert), inside % self.expert_tensor
        if kind == "pipeline":
            return (inside,)
        return None


def mesh_of(job: Job | None) -> Mesh | None:
    """The mesh of a job whose sizes are all known and fit the world; None otherwise."""
    if job is None:
        return None
    names = ("world_size", "tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size")
    world, *sizes = (job.count(name) for name in names)
    tensor, context, pipeline = (size or 1 for size in sizes)
    if world is None or world % (tensor * context * pipeline):
        return None
    return Mesh(
        world=world,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        expert=job.count("expert_model_parallel_size"),
        expert_tensor=job.count("expert_tensor_parallel_size") or 1,
        pipeline_before_data=job.get("use_tp_pp_dp_mapping") is True,
    )


def members_of(inputs: Sequence[Input]) -> tuple[Member, ...]:
    """All devices in order of rank; hosts numbered in that order."""
    found = [
        Member(
            place=0,
            rank=next(rank for rank in one.ranks if rank.rank == device.rank),
            device=device,
            bubble=_bubble(device.exchanges.stage_waits),
            file=one.file,
            part=one.number,
        )
        for one in inputs
        for device in one.devices
    ]
    ordered = sorted(found, key=lambda one: (one.rank.rank, one.device.device, one.part))
    hosts = {name: number for number, name in enumerate(dict.fromkeys(one.rank.host for one in ordered if one.rank.host))}
    return tuple(replace(one, place=place, host=hosts.get(one.rank.host or "")) for place, one in enumerate(ordered))


def _bubble(stage_waits: pl.DataFrame) -> tuple[int, ...]:
    """Waiting for other stages by step, ns."""
    return tuple(stage_waits.select(pl.sum_horizontal(STAGE_PARTS)).to_series().to_list())


def share_clock(one: Member, other: Member) -> bool:
    """Whether both captures' times are known to be of one clock."""
    timed = one.rank.start_unix_ns is not None and other.rank.start_unix_ns is not None
    return one.part == other.part or (timed and one.host is not None and one.host == other.host)


def host_label(member: Member) -> str:
    """How a report names the member's host: never by its name."""
    return UNKNOWN_HOST if member.host is None else f"host {member.host}"
