"""Which stage of a pipeline a captured rank holds."""

from collections.abc import Sequence

from diagnose.knowledge.buckets import load_buckets
from diagnose.measure.ranks.groups import INFERRED_STAGES, OTHER_SCHEDULE, Slowness, pipeline
from diagnose.measure.ranks.members import Member, mesh_of
from diagnose.measure.ranks.schedule import Schedule
from diagnose.measure.ranks.stages import Stages, at_stages, stages_of
from tests.builders.jobs import overridden_job
from tests.builders.records import replace
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members

FIRST, MIDDLE, LAST = {"embedding": 1, "attention": 9}, {"attention": 9}, {"loss": 1, "attention": 9}


def sent(told: str | None = None, size: int | None = None) -> dict:
    """One transfer between stages, in a group whose ranks are `told`."""
    return {lane(kind="pipeline", operation="send-receive", shape="pairwise", members=told, size=size): [Ran(start=0, end=10)]}


def ends(work: Sequence[dict[str, int]]) -> tuple[Member, ...]:
    """Ranks of a pipeline whose groups are not recorded, by what they run; the last computes longest."""
    return members([Did(rank=rank, lanes=sent(), work=one, compute_ns=100 + 60 * (one is LAST)) for rank, one in enumerate(work)])


def known(ranks: Sequence[Member], world: int | None, *settings: str) -> Stages | None:
    job = overridden_job(list(settings)) if settings else None
    return stages_of(ranks, mesh_of(job), job, world, load_buckets())


def test_recorded_groups_list_the_stages_in_order() -> None:
    ranks = members([Did(rank=rank, lanes=sent(f"[{rank % 2}, {rank % 2 + 2}]", 2)) for rank in range(4)])
    assert known(ranks, None) == Stages(count=2, of={0: 0, 1: 0, 2: 1, 3: 1})
    assert known(ranks[:3], None) == Stages(count=2, of={0: 0, 1: 0, 2: 1})
    assert known(members([Did(rank=0, lanes=sent("[1, 2]", 2))]), None) is None  # a group that the rank is not in


def test_the_first_and_the_last_part_of_the_model_tell_the_ends_where_all_ranks_are_there() -> None:
    four = ends([FIRST, MIDDLE, MIDDLE, LAST])
    assert known(four, 4) == Stages(count=4, of={0: 0, 1: 1, 2: 2, 3: 3}, inferred=True)
    assert known(ends([FIRST, FIRST, LAST, LAST]), 4) == Stages(count=2, of={0: 0, 1: 0, 2: 1, 3: 1}, inferred=True)
    assert known(four, None) == known(four, 4)  # the last part is on the last stage alone: there are no more
    assert known(four[:3], None) is None
    assert known(four[:3], 4) is None
    assert known(ends([FIRST, LAST, FIRST, LAST]), 4) is None  # the pipeline goes before data
    assert known(ends([{**FIRST, **LAST}] * 2), 2) is None
    assert known(members([Did(rank=rank, lanes={}, work=one) for rank, one in enumerate((FIRST, LAST))]), 2) is None  # none sends


def test_unknown_transfers_are_the_pipeline_s_where_one_rank_holds_the_first_part_of_the_model_and_another_the_last() -> None:
    """Their waiting is its bubble then."""
    unknown = {lane(kind="other", operation="send-receive", shape="pairwise", stream=1): [Ran(start=0, end=10)]}

    def ran(*work: dict[str, int]) -> tuple[Member, ...]:
        did = [Did(rank=rank, lanes=unknown, work=one, bubble_ns=5, unnamed_ns=30) for rank, one in enumerate(work)]
        return at_stages(members(did), load_buckets())

    for same in (ran(FIRST, MIDDLE), ran({**FIRST, **LAST}, {**FIRST, **LAST})):
        assert {lane.kind for member in same for lane in member.device.exchanges.lanes} == {"other"}
        assert [member.bubble for member in same] == [(5,), (5,)]
        assert known(same, None) is None
    split = ran(FIRST, LAST)
    assert {lane.kind for member in split for lane in member.device.exchanges.lanes} == {"pipeline"}
    assert [member.bubble for member in split] == [(35,), (35,)]
    found = known(split, None)
    assert found == Stages(count=2, of={0: 0, 1: 1}, inferred=True)
    told = pipeline(split, found, None, {0: 100, 1: 100}, {})
    assert told is not None
    assert [stage.bubble_ns for stage in told.stages] == [35, 35]


def test_the_job_comes_first() -> None:
    four = ends([FIRST, MIDDLE, MIDDLE, LAST])
    assert known(four, 4, "model.pipeline_model_parallel_size=1") is None
    told = known(four, 4, "model.pipeline_model_parallel_size=2", "world_size=4")
    assert told == Stages(count=2, of={0: 0, 1: 0, 2: 1, 3: 1})


def test_a_pipeline_without_a_job_file_is_compared_stage_by_stage() -> None:
    four = ends([FIRST, MIDDLE, MIDDLE, LAST])
    own = {member.place: member.median.compute_busy_ns for member in four}
    found = pipeline(four, known(four, 4), None, own, {})
    assert found is not None
    assert [stage.ranks for stage in found.stages] == [(0,), (1,), (2,), (3,)]
    assert (found.imbalance_ns, found.even_saves_ns, found.expected_share, found.virtual_saves_ns) == (45, 45, None, None)
    assert found.note == INFERRED_STAGES
    assert pipeline(four, None, None, own, {}) is None


def test_what_stages_have_uneven_is_won_by_the_schedule_and_what_a_slow_device_takes_longer_is_no_unevenness() -> None:
    """The last stage has 160 ns of work, the others 100: even ones of 115 fill and drain (m + p - 1) / m of that."""
    four = ends([FIRST, MIDDLE, MIDDLE, LAST])
    own = {member.place: member.median.compute_busy_ns for member in four}
    told = known(four, 4)
    assert told is not None
    schedule = Schedule(count=4, of=told.of, forward={}, batches=10)
    found = pipeline(four, told, schedule, own, {})
    assert found is not None
    assert (found.imbalance_ns, found.even_saves_ns) == (45, 40)  # 10 micro-batches of 16 ns and 3 of 10 before them: 190, not 149.5
    assert found.expected_share == round(3 / 13, 6)
    even = pipeline(four, told, schedule, own, {3: Slowness(ratio=1.6, shapes=9)})
    assert even is not None
    assert (even.imbalance_ns, even.even_saves_ns) == (0, 0)
    hidden = pipeline(four, told, schedule, {**own, 0: 140}, {0: Slowness(ratio=1.4, shapes=9)})
    assert hidden is not None
    stays = {0: 117 + 29, 1: 117, 2: 117, 3: 117}  # the slow device of the first stage sets the pace of even ones
    assert hidden.even_saves_ns == schedule.saves({**own, 0: 140}, stays) == 22
    other = pipeline(four, told, replace(schedule, measured=170), own, {})  # 190 by the schedule
    assert other is not None
    assert (other.expected_share, other.even_saves_ns, other.virtual_saves_ns) == (None, other.imbalance_ns, None)
    assert OTHER_SCHEDULE in other.note
    assert OTHER_SCHEDULE not in found.note
