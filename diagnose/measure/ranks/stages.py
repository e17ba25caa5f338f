"""Which stage of a pipeline each captured rank holds: by the job's sizes, by recorded process groups, or by what the ranks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from diagnose.job import Job
from diagnose.knowledge.buckets import Buckets
from diagnose.measure.exchanges import PIPELINE
from diagnose.measure.ranks.matching import members_told
from diagnose.measure.ranks.members import Member, Mesh


class Stages(Struct, frozen=True, kw_only=True):
    """`count`: how many stages the pipeline has, 1 without one; `of`: by rank its stage. `inferred`: neither job nor groups tell it."""

    count: int
    of: Mapping[int, int]
    inferred: bool = False


def stages_of(members: Sequence[Member], mesh: Mesh | None, job: Job | None, world: int | None, buckets: Buckets) -> Stages | None:
    """The stages of the captured ranks; None where nothing tells them. `world`: ranks of the job, None: not known."""
    ranks = [member.rank.rank for member in members]
    if mesh is not None:
        return Stages(count=mesh.pipeline, of={rank: mesh.stage(rank) for rank in ranks if rank < mesh.world})
    if job is not None and job.get("pipeline_model_parallel_size") == 1:
        return None
    return _by_groups(members) or _by_ends(members, world, buckets)


def _by_groups(members: Sequence[Member]) -> Stages | None:
    """By the place of each rank in its recorded pipeline group, which lists the stages in order; None unless all ranks tell alike."""
    told = {}
    for member in members:
        lanes = (lane for lane in member.device.exchanges.lanes if lane.kind == PIPELINE)
        groups = {group for lane in lanes if (group := members_told(lane)) is not None and member.rank.rank in group}
        if len(groups) != 1:
            return None
        told[member.rank.rank] = groups.pop()
    sizes = {len(group) for group in told.values()}
    if len(sizes) != 1 or sizes == {1}:
        return None
    return Stages(count=sizes.pop(), of={rank: group.index(rank) for rank, group in told.items()})


def _by_ends(members: Sequence[Member], world: int | None, buckets: Buckets) -> Stages | None:
    """By the first and the last part of the model, where all ranks of the job were captured and send to other stages.

    Megatron-Core gives each stage as many ranks in a row: the first ones hold the first part (the embedding), as many at the end the
    last (the loss). Where the job's ranks are not known, these are all: the last part is on the last stage alone.
    """
    ranks = {member.rank.rank for member in members}
    world = len(ranks) if world is None else world
    sending = all(any(lane.kind == PIPELINE for lane in member.device.exchanges.lanes) for member in members)
    if not sending or ranks != set(range(world)):
        return None
    first, last = _holders(members, buckets)
    width = len(last)
    if not 0 < width < world or world % width or last != set(range(world - width, world)) or first - last != set(range(width)):
        return None
    return Stages(count=world // width, of={rank: rank // width for rank in ranks}, inferred=True)


def at_stages(members: tuple[Member, ...], buckets: Buckets) -> tuple[Member, ...]:
    """The members; where they hold different ends of the model, with unknown transfers between two ranks as the pipeline's."""
    first, last = _holders(members, buckets)
    return tuple(member.of_split_model() for member in members) if first - last and last - first else members


def _holders(members: Sequence[Member], buckets: Buckets) -> tuple[set[int], ...]:
    """The ranks that hold the first part of the model, and those that hold the last."""
    return tuple({member.rank.rank for member in members if member.kernels.get(part, 0)} for part in end_parts(buckets))


def end_parts(buckets: Buckets) -> tuple[str, str]:
    """The buckets of the first and the last part of the model, each of which one stage alone holds."""
    parts = sorted((spec.part.order, bucket) for bucket, spec in buckets.items() if spec.part is not None and spec.alike == "held")
    return parts[0][1], parts[-1][1]
