"""Exchanges of several ranks become instances of groups, by what names the group or by ends that come together."""

from __future__ import annotations

import random
from collections.abc import Sequence

from diagnose.job import overridden_job
from diagnose.measure.exchanges import Lane
from diagnose.measure.ranks.matching import ALONE, NO_FIT, PAIRWISE, match
from diagnose.measure.ranks.members import mesh_of
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members


def ends(n: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    time, found = 0, []
    for _ in range(n):
        time += 1_000_000 + chance.randrange(900_000)
        found.append(time)
    return found


def rans(times: Sequence[int], *, waits: int = 0, moved: int = 0) -> list[Ran]:
    return [Ran(start=end - 100_000 - waits + moved, end=end + moved) for end in times]


def job(did: Sequence[Did], mesh_words: Sequence[str] = ()) -> tuple[list[tuple[str, str, tuple[int, ...], int]], list[tuple[int, str]]]:
    matched, unmatched = match(members(did), mesh_of(overridden_job(list(mesh_words))) if mesh_words else None)
    return [(one.kind, one.by, one.ranks, one.matched) for one in matched], [(one.member.rank.rank, one.why) for one in unmatched]


def test_a_communicator_names_its_group() -> None:
    a, b = ends(20, 1), ends(20, 2)
    one, two = lane(communicator=7), lane(communicator=8)
    found, left = job([Did(rank=rank, lanes={one if rank < 2 else two: rans(a if rank < 2 else b, waits=rank)}) for rank in range(4)])
    assert found == [("expert", "communicator", (0, 1), 20), ("expert", "communicator", (2, 3), 20)]
    assert not left


def test_a_process_group_is_told_by_its_members_and_name() -> None:
    a = ends(12, 3)
    first = lane(group="EXPERT_MODEL_PARALLEL_GROUP", group_name="21", size=2, members="[0, 1]")
    second = lane(group="EXPERT_MODEL_PARALLEL_GROUP", group_name="22", size=2, members="[2, 3]")
    found, left = job([Did(rank=rank, lanes={first if rank < 2 else second: rans(a)}) for rank in range(3)])
    assert found == [("expert", "process group", (0, 1), 12)]
    assert left == [(2, ALONE)]


def test_a_list_of_members_that_was_cut_short_still_has_a_name() -> None:
    told = lane(group="DATA_PARALLEL_GROUP", group_name="3", size=64, members="[0, 1, 2, ..., 63]", kind="data")
    found, _ = job([Did(rank=rank, lanes={told: rans(ends(9, 4))}) for rank in (0, 63)])
    assert found == [("data", "process group", (0, 63), 9)]


def test_without_a_name_those_belong_together_that_end_together() -> None:
    near, far = ends(30, 5), ends(30, 6)
    unnamed = lane(stream=20)
    found, left = job([Did(rank=rank, lanes={unnamed: rans(near if rank % 2 else far, waits=rank * 1000)}) for rank in range(4)])
    assert found == [("expert", "common ends", (0, 2), 30), ("expert", "common ends", (1, 3), 30)]
    assert not left


def test_the_jobs_sizes_say_who_may_belong_together() -> None:
    times = ends(30, 7)
    words = ["world_size=4", "model.expert_model_parallel_size=2"]
    found, _ = job([Did(rank=rank, lanes={lane(stream=20): rans(times)}) for rank in range(4)], words)
    assert found == [("expert", "job", (0, 1), 30), ("expert", "job", (2, 3), 30)]


def test_a_transfer_between_stages_is_not_matched_by_order() -> None:
    transfer = lane(kind="pipeline", operation="send-receive", shape="pairwise", communicator=5)
    found, left = job([Did(rank=rank, lanes={transfer: rans(ends(8, 8))}) for rank in range(2)])
    assert not found
    assert left == [(0, PAIRWISE), (1, PAIRWISE)]


def test_a_capture_that_began_later_is_matched_at_the_right_place() -> None:
    times = ends(40, 9)
    one = lane(communicator=7)
    found, _ = match(members([Did(rank=0, lanes={one: rans(times)}), Did(rank=1, lanes={one: rans(times[13:], moved=55)})]), None)
    assert (found[0].matched, found[0].seen) == (27, 40)
    pairs = found[0].instances.group_by("ordinal", maintain_order=True).agg("end")["end"].to_list()
    assert all(second - first == 55 for first, second in pairs)


def test_one_clock_that_contradicts_the_match_refuses_it() -> None:
    """A group of which most ranks are missing: two captured ranks on one host whose exchanges never end together."""
    times, one = ends(6, 10), lane(communicator=7)
    apart = [Did(rank=0, host=0, lanes={one: rans(times)}), Did(rank=1, host=0, lanes={one: rans(times, moved=21_000_000)})]
    assert job(apart) == ([], [(1, NO_FIT), (0, NO_FIT)])
    elsewhere = [apart[0], Did(rank=1, host=1, lanes={one: rans(times, moved=21_000_000)})]
    assert job(elsewhere)[0] == [("expert", "communicator", (0, 1), 6)]


def test_one_group_on_several_streams_is_one_sequence() -> None:
    times = ends(10, 11)
    name: Lane = lane(communicator=7)
    split = {name: rans(times[::2]), lane(communicator=7, stream=3): rans(times[1::2])}
    found, _ = job([Did(rank=0, lanes=split), Did(rank=1, lanes={name: rans(times)})])
    assert found == [("expert", "communicator", (0, 1), 10)]
