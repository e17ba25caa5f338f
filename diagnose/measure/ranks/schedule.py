"""How long a pipeline takes by what each stage has to do: its passes, worked off in Megatron-Core's order, 1F1B or interleaved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import gcd
from statistics import median_low

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.job import Job, count_of
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.device import step_median
from diagnose.measure.exchanges import PIPELINE
from diagnose.measure.ranks.members import Member
from diagnose.measure.ranks.stages import Stages, end_parts

_SPLIT = 1 / 3  # of a pass forward and backward is forward, where phases are not told: backward computes two gradients
_LONGER = 1.02  # a step that takes so many times as long by the schedule as was measured does not follow it; this project's choice
_WAYS = 4  # transfers of a micro-batch through a stage: received and sent on, forward and backward

Pass = tuple[bool, int, int]  # forward; micro-batch; chunk


class Schedule(Struct, frozen=True, kw_only=True):
    """`of`: by rank its stage, of `count`. `forward`: by stage, the share of its work that is forward. Micro-batches, chunks of a stage.

    `measured`: how long a step takes (ns); None: not compared. `outside`: of that, after the passes (reductions of gradients, optimizer).
    """

    count: int
    of: Mapping[int, int]
    forward: Mapping[int, float]
    batches: int
    virtual: int = 1
    measured: int | None = None
    outside: int = 0

    @property
    def bubble_share(self) -> float:
        """Of the step, with even stages.

        With p stages, m micro-batches and v virtual stages the bubble is (p − 1) / (v · m) of the compute (Narayanan et al. 2021,
        arXiv:2104.04473, section 2.2).
        """
        idle = (self.count - 1) / (self.virtual * self.batches)
        return idle / (1 + idle)

    def paces(self, own: Mapping[int, int], late: Collection[int]) -> dict[int, int]:
        """By stage, what its step takes (ns) by its ranks' own times: the middle one's, or that of a late rank where it is longer.

        A stage's exchanges and reductions wait for its late ranks. Of others a longer own time is waiting that no exchange showed. Stages
        of which no rank was captured are taken to be like the middle one of the others.
        """
        mates: dict[int, list[int]] = defaultdict(list)
        for rank in own.keys() & self.of.keys():
            mates[self.of[rank]].append(rank)
        middle = {stage: median_low([own[rank] for rank in ranks]) for stage, ranks in mates.items()}
        told = {stage: max(middle[stage], *(own[rank] for rank in ranks if rank in late), 0) for stage, ranks in mates.items()}
        return {stage: told.get(stage, median_low(middle.values())) for stage in range(self.count)} if told else {}

    def lasts(self, work: Mapping[int, int]) -> int | None:
        """How long a step takes (ns) by the work of each stage per step (ns), transfers left aside; None unless all stages are told."""
        if len(work) != self.count:
            return None
        ends: dict[Pass, float] = {}
        orders = [passes_of_stage(self.count, stage, self.batches, self.virtual) for stage in range(self.count)]
        passes = self.batches * self.virtual
        clocks, places = [0.0] * self.count, [0] * self.count
        moved = True
        while moved:
            moved = False
            for stage, order in enumerate(orders):
                forward = self.forward.get(stage, _SPLIT)
                while places[stage] < len(order):
                    way, batch, chunk = order[places[stage]]
                    depth = chunk * self.count + stage
                    ready = _ready(ends, way=way, batch=batch, depth=depth, last=self.count * self.virtual - 1)
                    if ready is None:
                        break
                    clocks[stage] = max(clocks[stage], ready) + (work[stage] - self.outside) * (forward if way else 1 - forward) / passes
                    ends[way, batch, depth] = clocks[stage]
                    places[stage] += 1
                    moved = True
        return round(max(clocks)) + self.outside

    def contradicted(self, work: Mapping[int, int]) -> bool:
        """Whether a step with the stages' work as it is would take longer than was measured: then it goes by another schedule.

        With split backward passes (zero bubble), or passes of two micro-batches side by side, stages wait less than by this one.
        """
        lasts = self.lasts(work)
        return lasts is not None and self.measured is not None and lasts > _LONGER * self.measured

    def saves(self, before: Mapping[int, int], after: Mapping[int, int]) -> int | None:
        """What a step wins where the stages' work changes; None where it can't be told."""
        return _won(self.lasts(before), self.lasts(after))

    def interleaved(self, work: Mapping[int, int]) -> int | None:
        """What twice the chunks would win."""
        return _won(self.lasts(work), replace(self, virtual=2 * self.virtual).lasts(work))


def _won(before: int | None, after: int | None) -> int | None:
    """How much shorter it becomes; None where either is not told."""
    return None if before is None or after is None else max(0, before - after)


def _ready(ends: Mapping[Pass, float], *, way: bool, batch: int, depth: int, last: int) -> float | None:
    """When what a pass needs is there; None: not yet known."""
    if way:
        return 0 if depth == 0 else ends.get((True, batch, depth - 1))
    return ends.get((True, batch, depth) if depth == last else (False, batch, depth + 1))


def passes_of_stage(stages: int, stage: int, batches: int, virtual: int) -> list[Pass]:
    """The passes of one stage (Megatron-Core pipeline_parallel/schedules.py): interleaved, micro-batches go in groups of `stages`."""
    group = stages if virtual > 1 else batches
    table = [
        (batch, chunk)
        for first in range(0, batches, group)
        for chunk in range(virtual)
        for batch in range(first, min(first + group, batches))
    ]
    ahead = stages - stage - 1 if virtual == 1 else 2 * (stages - stage - 1) + (virtual - 1) * stages
    ahead = len(table) if virtual > 1 and batches == stages else min(ahead, len(table))
    forward = [(True, *one) for one in table]
    backward = [(False, batch, virtual - 1 - chunk) for batch, chunk in table]
    steady = [one for pair in zip(forward[ahead:], backward, strict=False) for one in pair]
    return [*forward[:ahead], *steady, *backward[len(table) - ahead :]]


def schedule_of(members: Sequence[Member], stages: Stages | None, job: Job | None, buckets: Buckets) -> Schedule | None:
    """The pipeline's schedule, by the job or by what ran; None without a pipeline, or where nothing tells its micro-batches."""
    if stages is None or stages.count < 2:
        return None
    batches = count_of(job, "num_microbatches") or _repeated(members, buckets)
    if batches is None:
        return None
    virtual = count_of(job, "virtual_pipeline_model_parallel_size")
    if virtual is None:
        virtual = 1 if job is not None else _chunks(members, batches)
    shares: dict[int, list[float]] = {}
    for member in members:
        if member.rank.rank in stages.of and (share := _forward(member)) is not None:
            shares.setdefault(stages.of[member.rank.rank], []).append(share)
    forward = {stage: median_low(own) for stage, own in shares.items()}
    return Schedule(
        count=stages.count,
        of=stages.of,
        forward=forward,
        batches=batches,
        virtual=virtual,
        measured=median_low([member.median.window_ns for member in members]),
        outside=median_low([_outside(member) for member in members]),
    )


def _repeated(members: Sequence[Member], buckets: Buckets) -> int | None:
    """How often a step passes the parts of the model that one stage alone holds (embedding, loss): once for each micro-batch."""
    counts = [
        gcd(*(int(number) for number in member.device.usage.names.filter(bucket=part)["kernels"])) // len(member.steps)
        for part in end_parts(buckets)
        for member in members
    ]
    told = {often for often in counts if often}
    return told.pop() if len(told) == 1 else None


def _chunks(members: Sequence[Member], batches: int) -> int:
    """Chunks of a stage, by the transfers of the one that has most: a micro-batch passes each at most four times."""
    counts = [member.device.exchanges.in_steps(PIPELINE).height // len(member.steps) for member in members]
    return max(1, -(-max(counts) // (_WAYS * batches)))


def _outside(member: Member) -> int:
    """How long its step goes on after the last backward pass (ns), as far as phases are told."""
    after = member.device.usage.details.filter(~pl.col("phase").is_in(["forward", "backward"]))["work_ns"].sum()
    return step_median(member.device.exchanges.stage_waits["tail_ns"]) + int(after) // len(member.steps)


def _forward(member: Member) -> float | None:
    """The share of its work that is forward; None where phases are not told."""
    details = member.device.usage.details
    sums = {phase: int(details.filter(phase=phase)["work_ns"].sum()) for phase in ("forward", "backward")}
    return sums["forward"] / sum(sums.values()) if all(sums.values()) else None
