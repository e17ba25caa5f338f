"""Exchanges of several ranks become instances of groups, by what names the group or by ends that come together."""

import random
from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from diagnose.knowledge.buckets import load_buckets
from diagnose.measure.exchanges import Lane
from diagnose.measure.ranks.matching import (
    ALONE,
    CERTAIN,
    CLOSE_NS,
    LIMIT_NS,
    LOOSE_NS,
    MIN_ENDS,
    NO_FIT,
    PAIRWISE,
    Course,
    _likely,
    aligned,
    clocks,
    fit,
    match,
)
from diagnose.measure.ranks.members import Mesh, mesh_of
from diagnose.measure.ranks.stages import at_stages
from tests.builders.cases import for_each
from tests.builders.jobs import overridden_job
from tests.builders.records import replace
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
    return [(one.kind, one.by, one.ranks, one.matched) for one in matched], [(one.part.member.rank.rank, one.why) for one in unmatched]


def test_a_group_is_told_by_its_communicator_or_by_its_members_and_name() -> None:
    a, b = ends(20, 1), ends(20, 2)
    one, two = lane(communicator=7), lane(communicator=8)
    found, left = job([Did(rank=rank, lanes={one if rank < 2 else two: rans(a if rank < 2 else b, waits=rank)}) for rank in range(4)])
    assert found == [("expert", "communicator", (0, 1), 20), ("expert", "communicator", (2, 3), 20)]
    assert not left
    a = ends(12, 3)
    first = lane(group="EXPERT_MODEL_PARALLEL_GROUP", group_name="21", size=2, members="[0, 1]")
    second = lane(group="EXPERT_MODEL_PARALLEL_GROUP", group_name="22", size=2, members="[2, 3]")
    found, left = job([Did(rank=rank, lanes={first if rank < 2 else second: rans(a)}) for rank in range(3)])
    assert found == [("expert", "process group", (0, 1), 12)]
    assert left == [(2, ALONE)]
    told = lane(group="DATA_PARALLEL_GROUP", group_name="3", size=64, members="[0, 1, 2, ..., 63]", kind="data")
    found, _ = job([Did(rank=rank, lanes={told: rans(ends(9, 4))}) for rank in (0, 63)])
    assert found == [("data", "process group", (0, 63), 9)]


def test_without_a_name_common_ends_or_the_job_s_sizes_tell_who_belongs_together() -> None:
    near, far = ends(30, 5), ends(30, 6)
    unnamed = lane(stream=20)
    found, left = job([Did(rank=rank, lanes={unnamed: rans(near if rank % 2 else far, waits=rank * 1000)}) for rank in range(4)])
    assert found == [("expert", "common ends", (0, 2), 30), ("expert", "common ends", (1, 3), 30)]
    assert not left
    times = ends(30, 7)
    words = ["world_size=4", "model.expert_model_parallel_size=2"]
    found, _ = job([Did(rank=rank, lanes={lane(stream=20): rans(times)}) for rank in range(4)], words)
    assert found == [("expert", "job", (0, 1), 30), ("expert", "job", (2, 3), 30)]


def test_groups_that_profilers_name_differently_are_one_where_nothing_speaks_against_it() -> None:
    """Mixed captures: the one names a communicator, the other its process group. Each line: what the ranks show, and the groups."""
    a, b = rans(ends(20, 1)), rans(ends(20, 2))
    number = [lane(communicator=one, size=2) for one in (7, 8)]
    name, wide = (lane(group="EXPERT_MODEL_PARALLEL_GROUP", group_name="21", size=size) for size in (2, 3))
    unnamed = lane(stream=20)
    words = ["world_size=4", "model.expert_model_parallel_size=2"]

    def groups(*shown: Mapping[Lane, Sequence[Ran]], ranks: Sequence[int] = range(9), job_words: Sequence[str] = ()) -> object:
        found, left = job([Did(rank=rank, lanes=lanes) for rank, lanes in zip(ranks, shown, strict=False)], job_words)
        return [(by, members) for _, by, members, _ in found], left

    alone = [(0, ALONE), (1, ALONE)]
    assert groups({number[0]: a}, {name: a}) == ([("common ends", (0, 1))], [])
    assert groups({number[0]: a}, {unnamed: a}) == ([("common ends", (0, 1))], [])
    assert groups({number[0]: a}, {name: b}) == ([], alone)  # they end apart
    assert groups({number[0]: a}, {number[0]: a}, {name: a}) == ([("communicator", (0, 1))], [(2, ALONE)])  # it is whole
    assert groups({number[0]: a}, {number[0]: a}, {wide: a}) == ([("common ends", (0, 1, 2))], [])  # it has room for one more
    assert groups({number[0]: a}, {number[1]: a}, {name: a}) == (
        [("common ends", (0, 2))],
        [(1, ALONE)],
    )  # one way of naming tells them apart
    assert groups({number[0]: a, name: a}) == ([], [(0, ALONE), (0, ALONE)])  # one rank has two groups
    assert groups({number[0]: a}, {name: a}, ranks=(0, 2), job_words=words) == ([], [(0, ALONE), (2, ALONE)])  # two places in the job
    assert groups({number[0]: a}, {name: a}, job_words=words) == ([("common ends", (0, 1))], [])
    assert groups({unnamed: a}, {name: a}, job_words=words) == ([("job", (0, 1))], [])


def test_a_transfer_between_stages_is_not_matched_by_order() -> None:
    transfer = lane(kind="pipeline", operation="send-receive", shape="pairwise", communicator=5)
    found, left = job([Did(rank=rank, lanes={transfer: rans(ends(8, 8))}) for rank in range(2)])
    assert not found
    assert left == [(0, PAIRWISE), (1, PAIRWISE)]


def test_what_each_member_does_by_itself_is_not_matched() -> None:
    """The flags that HybridEP raises before it meets the others end where each rank begins to wait."""
    alone = lane(kind="expert", operation="expected value", shape="own", stream=5)
    met = lane(kind="expert", operation="notify", shape="sync", stream=5)
    times = ends(12, 8)
    lanes = [{alone: rans([end - 400_000 * rank for end in times]), met: rans(times)} for rank in range(3)]
    found, left = job([Did(rank=rank, lanes=own) for rank, own in enumerate(lanes)])
    assert ([one[0] for one in found], [one[2:] for one in found]) == (["expert"], [((0, 1, 2), 12)])
    assert left == []


def test_unknown_transfers_may_be_the_pipeline_s_where_ranks_hold_different_parts_of_the_model() -> None:
    """Two stages of two ranks send and receive in step, so that all four end together; that is no exchange of four."""
    unknown = lane(kind="other", operation="send-receive", shape="pairwise", stream=5)
    parts = ("embedding", "embedding", "loss", "loss")
    every = members([Did(rank=rank, lanes={unknown: rans(ends(8, 8))}, work={part: 9}) for rank, part in enumerate(parts)])
    assert [one.ranks for one in match(every, None)[0]] == [(0, 1, 2, 3)]
    found, left = match(at_stages(every, load_buckets()), None)
    assert not found
    assert {one.why for one in left} == {PAIRWISE}


def test_of_two_groups_that_follow_each_other_all_along_a_sequence_belongs_to_that_on_its_stream() -> None:
    """Without common clocks both fit both."""
    times = ends(8, 8)
    one, other = (lane(kind="data", operation="all-gather", shape="all_gather", stream=stream) for stream in (1, 2))
    own = {one: rans(times), other: rans(times, moved=300)}
    found, _ = match(members([Did(rank=rank, lanes=own) for rank in range(3)]), None)
    assert [[part.lane.stream for part in group.parts] for group in found] == [[1, 1, 1], [2, 2, 2]]


def test_steps_that_are_all_alike_are_laid_beside_each_other_by_a_common_clock() -> None:
    """The second capture begins four steps later and counts from there; on another host nothing but the count tells."""
    times = [1_000_000 * (number + 1) for number in range(20)]
    one = lane(communicator=7)

    def matched(host: int) -> list[int]:
        own = [[replace(ran, step=step) for step, ran in enumerate(rans(part))] for part in (times, times[4:])]
        both = members([Did(rank=rank, host=rank * host, lanes={one: own[rank]}, steps=len(own[rank])) for rank in range(2)])
        (group,) = match(both, None)[0]
        ends = group.instances.group_by("ordinal", maintain_order=True).agg("end")["end"].to_list()
        return sorted({second - first for first, second in ends})

    assert matched(host=0) == [0]
    assert matched(host=1) == [4_000_000]


def test_few_exchanges_of_other_steps_meet_by_start_times_of_clocks_that_are_synchronised() -> None:
    times = [33_000_000 * step + 20_000 * (step * step % 7) for step in range(6)]
    own = [[replace(ran, step=step) for step, ran in enumerate(rans(times[first : first + 4]))] for first in (0, 2)]
    both = members([Did(rank=rank, lanes={lane(communicator=7): own[rank]}, steps=4) for rank in range(2)])
    (group,) = match(both, None)[0]
    ended = group.instances.group_by("ordinal", maintain_order=True).agg("end")["end"].to_list()
    assert ended == [[times[2], times[2]], [times[3], times[3]]]


def test_a_later_beginning_and_several_streams_still_make_one_sequence() -> None:
    times = ends(40, 9)
    one = lane(communicator=7)
    found, _ = match(members([Did(rank=0, lanes={one: rans(times)}), Did(rank=1, lanes={one: rans(times[13:], moved=55)})]), None)
    assert (found[0].matched, found[0].seen) == (27, 40)
    pairs = found[0].instances.group_by("ordinal", maintain_order=True).agg("end")["end"].to_list()
    assert all(second - first == 55 for first, second in pairs)
    times = ends(10, 11)
    name: Lane = lane(communicator=7)
    split = {name: rans(times[::2]), lane(communicator=7, stream=3): rans(times[1::2])}
    found, _ = job([Did(rank=0, lanes=split), Did(rank=1, lanes={name: rans(times)})])
    assert found == [("expert", "communicator", (0, 1), 10)]


def test_of_captures_that_have_no_exchange_in_common_those_that_hold_most_are_matched() -> None:
    """Each of two fits the first one, which captured the steps of both."""
    times, group = ends(40, 11), lane(communicator=7)
    did = [Did(rank=rank, lanes={group: rans(times[cut])}) for rank, cut in enumerate((slice(40), slice(15), slice(24, 40)))]
    assert job(did) == ([("expert", "communicator", (0, 2), 16)], [(1, NO_FIT)])


def test_one_clock_that_contradicts_the_match_refuses_it() -> None:
    """A group of which most ranks are missing: two captured ranks on one host whose exchanges never end together."""
    times, one = ends(6, 10), lane(communicator=7)
    apart = [Did(rank=0, host=0, lanes={one: rans(times)}), Did(rank=1, host=0, lanes={one: rans(times, moved=21_000_000)})]
    assert job(apart) == ([], [(1, NO_FIT), (0, NO_FIT)])
    elsewhere = [apart[0], Did(rank=1, host=1, lanes={one: rans(times, moved=21_000_000)})]
    assert job(elsewhere)[0] == [("expert", "communicator", (0, 1), 6)]


# -------------------- sequences of ends are laid beside each other where they end together


def course(ends: list[int], *, sizes: list[int | None] | None = None, steps: list[int | None] | None = None) -> Course:
    return Course(ends=ends, sizes=sizes or [None] * len(ends), steps=steps or [None] * len(ends))


def noisy_ends(n: int, seed: int) -> list[int]:
    """Ends of a training step's exchanges: a pattern that comes again, with a little noise."""
    chance = random.Random(seed)
    time, found = 0, []
    for number in range(n):
        time += (900_000, 300_000, 2_500_000, 1_200_000)[number % 4] + chance.randrange(200_000)
        found.append(time)
    return found


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(12, 120),
    missing_first=st.integers(0, 30),
    missing_last=st.integers(0, 8),
    offset=st.integers(-(10**12), 10**12),
    jitter=st.integers(0, 20_000),
)
def test_the_shift_is_found_whatever_the_clocks_say(
    seed: int, n: int, missing_first: int, missing_last: int, offset: int, jitter: int
) -> None:
    whole = noisy_ends(n, seed)
    missing_first = min(missing_first, n // 3)
    kept = whole[missing_first : n - min(missing_last, n // 4)]
    chance = random.Random(seed + 1)
    found = fit(course(whole), course([end + offset + chance.randrange(-jitter, jitter + 1) for end in kept]))
    assert found is not None
    if len(kept) < CERTAIN and found.shift != missing_first:  # so few may fit elsewhere by chance, as well as where they belong
        assert found.scatter <= 2 * jitter + CLOSE_NS
    else:
        assert found.shift == missing_first
        assert abs(found.offset - offset) <= jitter


def test_few_ends_are_laid_where_they_fit_best_and_not_where_they_fit_first() -> None:
    """Five of twelve, which fit to 30 µs from the first on, too."""
    whole = noisy_ends(12, 1376)
    found = fit(course(whole), course(whole[4:9]))
    assert found is not None
    assert (found.shift, found.scatter) == (4, 0)


@for_each("seed", *range(20))
def test_sequences_of_different_groups_do_not_fit(seed: int) -> None:
    chance = random.Random(seed)
    other = sorted(chance.randrange(200_000_000) for _ in range(60))
    assert fit(course(noisy_ends(60, seed)), course(other), limit=150_000) is None


def test_a_step_more_does_not_move_the_others_and_sizes_contradict_a_shift() -> None:
    whole = noisy_ends(40, 3)
    steps: list[int | None] = [number // 4 for number in range(40)]
    found = fit(course(whole, steps=steps), course(whole[8:], steps=steps[8:]))
    assert found is not None
    assert (found.shift, found.scatter) == (8, 0)
    same = [1_000_000 * number for number in range(1, 21)]
    sizes: list[int | None] = [number % 5 for number in range(20)]
    found = fit(course(same, sizes=sizes), course([end + 7 for end in same[2:]], sizes=sizes[2:]))
    assert found is not None
    assert found.shift % 5 == 2  # evenly spaced: only the sizes tell


def test_nothing_and_a_spread_beyond_the_limit_do_not_fit() -> None:
    assert fit(course([]), course([1, 2, 3])) is None
    assert fit(course([1, 2, 3]), course([])) is None
    whole = noisy_ends(40, 5)
    wild = [end + (number % 2) * 3 * LOOSE_NS for number, end in enumerate(whole)]
    assert fit(course(whole), course(wild)) is None


# -------------------- clocks are compared by the ends of exchanges

ENDS = [3_000_000 * number + 137_000 * (number * number % 11) for number in range(1, 41)]


def did(rank: int, offset: int, *, host: int | None = None, spread: int = 0, n: int = 40, group: int = 7) -> Did:
    rows = [Ran(start=end - 50_000 + offset, end=end + offset + (number % 5 - 2) * spread // 2) for number, end in enumerate(ENDS[:n])]
    return Did(rank=rank, host=host, lanes={lane(communicator=group): rows})


def compared(*every: Did):  # type: ignore[no-untyped-def]
    found = members(every)
    return clocks(found, match(found, None)[0])


def test_the_offset_is_the_median_of_ends_that_are_enough_and_agree() -> None:
    told = compared(did(0, 0), did(1, 4_321_000, spread=30_000))
    (pair,) = told.pairs
    assert (pair.reference, pair.rank, pair.n, pair.aligned) == (0, 1, 40, True)
    assert abs(pair.offset_ns - 4_321_000) <= 15_000
    assert -30_000 <= pair.residual_p5_ns <= 0 <= pair.residual_p95_ns <= 30_000
    assert told.known == {0: (0, 0), 1: (0, pair.offset_ns)}
    told = compared(did(0, 0), did(1, 0, spread=4 * LIMIT_NS))
    assert [pair.aligned for pair in told.pairs] == [False]
    assert told.known == {0: (0, 0), 1: (1, 0)}
    assert "straggler of collectives" in told.notes[0]
    assert compared(did(0, 0, n=MIN_ENDS - 1), did(1, 0, n=MIN_ENDS - 1)).pairs == ()


def test_one_host_has_one_clock_and_offsets_follow_groups_that_share_a_rank() -> None:
    told = compared(did(0, 0, host=0), did(1, 0, host=0), did(2, 900_000, host=1), did(3, 900_000, host=1))
    assert [(pair.reference_host, pair.host) for pair in told.pairs] == [("host 0", "host 1")]
    assert told.known == {0: (0, 0), 1: (0, 0), 2: (0, 900_000), 3: (0, 900_000)}
    first, third = did(0, 0), did(2, 900_000, group=8)
    both = Did(rank=1, lanes={**did(1, 500_000).lanes, **did(1, 500_000, group=8).lanes})
    assert compared(first, both, third).known == {0: (0, 0), 1: (0, 500_000), 2: (0, 900_000)}
    told = compared(did(0, 0, host=0), did(1, 0, host=0), did(2, 5, host=1, group=8), did(3, 5, host=1, group=8))
    assert told.known == {0: (0, 0), 1: (0, 0), 2: (1, 0), 3: (1, 0)}
    assert told.notes == ()


@for_each("clock", 0, 4_321_000)
@for_each("few", 1, 2)
def test_captures_of_other_steps_meet_in_the_steps_that_both_hold(clock: int, few: int) -> None:
    """Steps 0 to 3 and 2 to 5. Of exchanges that come once or twice in a step any whole step more looks right; those of many know better.

    Whether the other's clock is right or not.
    """
    layers = [33_000_000 * step + end for step in range(6) for end in ends(12, step)]
    last = [33_000_000 * step + 30_000_000 + 900_000 * number + 20_000 * (step * step % 7) for step in range(6) for number in range(few)]
    norm = lane("other", "all-reduce", "all_reduce", communicator=8)

    def rank(number: int, first: int, ahead: int) -> Did:
        lanes = {
            lane(communicator=7): rans(layers[12 * first : 12 * first + 48], moved=ahead),
            norm: rans(last[few * first : few * first + 4 * few], moved=ahead),
        }
        return Did(rank=number, lanes=lanes)

    found, _, told = aligned(members([rank(0, 0, 0), rank(1, 2, clock)]), None)
    assert {one.operation: (one.matched, one.seen) for one in found} == {"all-to-all": (24, 72), "all-reduce": (2 * few, 6 * few)}
    assert told.known == {0: (0, 0), 1: (0, clock)}


def test_a_rare_exchange_of_all_groups_meets_by_the_clocks_that_each_group_aligns() -> None:
    """Two groups with many exchanges each; no two clocks are alike, and captures begin at different steps."""
    layers = [[33_000_000 * step + end for step in range(6) for end in ends(12, 10 * group + step)] for group in range(2)]
    last = [33_000_000 * step + 30_000_000 + 20_000 * (step * step % 7) for step in range(6)]

    def rank(number: int, first: int, ahead: int) -> Did:
        lanes = {
            lane(communicator=number // 2): rans(layers[number // 2][12 * first : 12 * first + 48], moved=ahead),
            lane("other", "all-reduce", "all_reduce", communicator=8): rans(last[first : first + 4], moved=ahead),
        }
        return Did(rank=number, lanes=lanes)

    firsts = (0, 1, 0, 2)
    found, _, _ = aligned(members([rank(number, first, 7_000_000_000 * number) for number, first in enumerate(firsts)]), None)
    (whole,) = (one for one in found if one.operation == "all-reduce")
    later = whole.instances.sort("ordinal", "place").group_by("ordinal", maintain_order=True).agg("end")["end"].to_list()
    assert [end - own[2] for own in later for end in own[3:]] == [7_000_000_000] * whole.matched, "one group's members meet by its clocks"


# -------------------- which ranks share a stage and a group, against Megatron-Core's order counted out rank by rank

SIZES = [(16, 2, 1, 2, 4, 1), (16, 1, 2, 4, 2, 1), (32, 2, 2, 2, 4, 2), (8, 1, 1, 1, 8, 1), (24, 2, 1, 3, 2, 1)]


def meshed(world: int, tensor: int, context: int, pipeline: int, expert: int, expert_tensor: int, **more: str) -> Mesh | None:
    settings = {
        "world_size": world,
        "model.tensor_model_parallel_size": tensor,
        "model.context_parallel_size": context,
        "model.pipeline_model_parallel_size": pipeline,
        "model.expert_model_parallel_size": expert,
        "model.expert_tensor_parallel_size": expert_tensor,
    }
    return mesh_of(
        overridden_job([*(f"{key}={value}" for key, value in settings.items()), *(f"{key}={value}" for key, value in more.items())])
    )


@for_each("sizes", *SIZES)
def test_groups_of_the_attention_mesh(sizes: tuple[int, ...]) -> None:
    world, tensor, context, pipeline, *_ = sizes
    mesh = meshed(*sizes)
    assert mesh is not None
    data = world // (tensor * context * pipeline)
    # order tp-cp-ep-dp-pp: tensor counts fastest, the pipeline slowest
    places = {rank: (t, c, d, p) for rank, (p, d, c, t) in enumerate(product(range(pipeline), range(data), range(context), range(tensor)))}
    for a, b in product(range(world), repeat=2):
        (ta, ca, da, pa), (tb, cb, db, pb) = places[a], places[b]
        assert mesh.stage(a) == pa
        assert (mesh.group("tensor", a) == mesh.group("tensor", b)) == ((ca, da, pa) == (cb, db, pb))
        assert (mesh.group("context", a) == mesh.group("context", b)) == ((ta, da, pa) == (tb, db, pb))
        assert (mesh.group("pipeline", a) == mesh.group("pipeline", b)) == ((ta, ca, da) == (tb, cb, db))


@for_each("sizes", *SIZES)
def test_groups_of_the_expert_mesh(sizes: tuple[int, ...]) -> None:
    world, _, _, pipeline, expert, expert_tensor = sizes
    mesh = meshed(*sizes)
    assert mesh is not None
    replicas = world // (pipeline * expert * expert_tensor)
    places = {
        rank: (t, e, d, p)
        for rank, (p, d, e, t) in enumerate(product(range(pipeline), range(replicas), range(expert), range(expert_tensor)))
    }
    for a, b in product(range(world), repeat=2):
        (ta, _, da, pa), (tb, _, db, pb) = places[a], places[b]
        assert (mesh.group("expert", a) == mesh.group("expert", b)) == ((ta, da, pa) == (tb, db, pb))


def test_the_pipeline_before_data_and_no_mesh_of_sizes_that_do_not_fit() -> None:
    mesh = meshed(8, 2, 1, 2, 1, 1, **{"dist.use_tp_pp_dp_mapping": "true"})
    assert mesh is not None
    assert [mesh.stage(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert meshed(10, 4, 1, 1, 1, 1) is None
    assert mesh_of(None) is None
    assert mesh_of(overridden_job(["model.tensor_model_parallel_size=2"])) is None


@for_each(
    "reference, other, shift",
    ([1, 1, 2, 2, 3], [2, 2, 3], 2),
    ([1, 1, 2, 2, 3], [None, 2, 2, 3], 1),  # what ran before the step came one place earlier
    ([None, 1, 1, 2], [1, 1, 2, 2], 1),
    ([1, 2], [3, 4], 0),  # no step in common
)
def test_the_same_steps_side_by_side_are_tried_first(reference: list[int | None], other: list[int | None], shift: int) -> None:
    sides = (Course(ends=range(len(steps)), sizes=[None] * len(steps), steps=steps) for steps in (reference, other))
    assert next(iter(_likely(*sides))) == shift
