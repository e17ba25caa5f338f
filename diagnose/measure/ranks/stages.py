"""Pipeline stages against each other, and the data-parallel tail of each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean

from diagnose.document.ranks import DataTail, Pipeline, Stage
from diagnose.job import Job
from diagnose.measure.ranks.members import STAGE_PARTS, Member, Mesh
from diagnose.measure.typical import step_median
from diagnose.model.statistics import integer_median

NO_PHASES = "forward and backward could not be told apart, so that all waiting for other stages is called steady"


def pipeline(members: Sequence[Member], mesh: Mesh | None, job: Job | None) -> Pipeline | None:
    """The pipeline as captured; None without a job that has one, or with one stage captured."""
    if mesh is None or mesh.pipeline < 2:
        return None
    by_stage: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        by_stage[mesh.stage(member.rank.rank)].append(member)
    if len(by_stage) < 2:
        return None
    stages = tuple(_stage(number, own) for number, own in sorted(by_stage.items()))
    steps = [member.median.window_ns for member in members]
    bubble, step = mean(one.bubble_ns for one in stages), mean(steps)
    compute = [one.compute_busy_ns for one in stages]
    expected, saves = _expected(mesh, job, int(bubble))
    return Pipeline(
        stages=stages,
        bubble_share=round(bubble / step, 6) if step else 0.0,
        expected_share=expected,
        imbalance_ns=max(compute) - int(mean(compute)),
        virtual_saves_ns=saves,
        note="" if all(member.device.exchanges.has_phases for member in members) else NO_PHASES,
    )


def _stage(number: int, members: Sequence[Member]) -> Stage:
    """One stage: the mean over its captured ranks, per step."""
    waits = {part: [step_median(member.device.exchanges.stage_waits[part]) for member in members] for part in STAGE_PARTS}
    return Stage(
        stage=number,
        ranks=tuple(member.rank.rank for member in members),
        compute_busy_ns=int(mean(member.median.compute_busy_ns for member in members)),
        bubble_ns=int(mean(integer_median(member.bubble) for member in members)),
        warm_up_ns=int(mean(waits["warm_up_ns"])),
        steady_ns=int(mean(waits["steady_ns"])),
        cool_down_ns=int(mean(waits["cool_down_ns"])),
    )


def _expected(mesh: Mesh, job: Job | None, bubble: int) -> tuple[float | None, int | None]:
    """The bubble's share of the step for even stages, and the most that twice the virtual stages could win of the bubble.

    With p stages, m micro-batches and v virtual stages the bubble is (p − 1) / (v · m) of the compute (Narayanan et al. 2021,
    arXiv:2104.04473, section 2.2).
    """
    batches, virtual = (job.get(name) if job is not None else None for name in ("num_microbatches", "virtual_pipeline_model_parallel_size"))
    v = virtual if isinstance(virtual, int) and virtual > 0 else 1
    if not isinstance(batches, int) or batches < 1:
        return None, None
    idle = (mesh.pipeline - 1) / (v * batches)
    return round(idle / (1 + idle), 6), bubble // 2


def tails(members: Sequence[Member]) -> tuple[DataTail, ...]:
    """How long each rank's compute waits for data-parallel exchanges after its last backward.

    Nothing for ranks that could not tell, or that have no such exchange.
    """
    told = [
        member
        for member in members
        if member.device.exchanges.has_phases and any(lane.kind == "data" for lane in member.device.exchanges.lanes)
    ]
    return tuple(DataTail(rank=member.rank.rank, tail_ns=step_median(member.device.exchanges.stage_waits["tail_ns"])) for member in told)
