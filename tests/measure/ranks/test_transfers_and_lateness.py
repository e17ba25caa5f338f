"""Transfer, wait, and who is to blame for it."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.buckets import load_buckets
from diagnose.measure.ranks.background import Background
from diagnose.measure.ranks.causes import has_most
from diagnose.measure.ranks.compare import chosen_member, problems, whole_transfers
from diagnose.measure.ranks.groups import experts, followed_shares, like_groups, slow_devices
from diagnose.measure.ranks.lateness import in_most_steps, late
from diagnose.measure.ranks.matching import clocks, ends_apart, match
from diagnose.measure.ranks.schedule import Schedule
from diagnose.measure.ranks.stages import Stages
from diagnose.measure.ranks.transfers import (
    NOTICEABLE_NS,
    NOTICEABLE_SHARE,
    OwnTimes,
    arrivals_of,
    left_alone,
    own_times,
    record,
    split_exchanges,
    waited_for_alone,
)
from diagnose.pipeline import diagnose
from fixtures import sample
from tests.builders.cases import for_each
from tests.builders.ranks import ranks_of
from tests.builders.records import replace
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members

TIMES = st.lists(st.lists(st.integers(1_000, 900_000), min_size=3, max_size=3), min_size=4, max_size=20)


@given(durations=TIMES)
def test_an_instance_splits_into_its_shortest_duration_and_the_rest(durations: list[list[int]]) -> None:
    ends = [2_000_000 * (number + 1) + 700 * number * number for number in range(len(durations))]
    did = [
        Did(
            rank=rank,
            steps=2,
            lanes={
                lane(communicator=1): [
                    Ran(start=end - own[rank], end=end, step=number % 2)
                    for number, (end, own) in enumerate(zip(ends, durations, strict=True))
                ]
            },
        )
        for rank in range(3)
    ]
    (group,), _ = match(members(did), None)
    found = split_exchanges(group)
    for rank in range(3):
        for step in (0, 1):
            mine = [own for number, own in enumerate(durations) if number % 2 == step]
            told = (sum(min(own) for own in mine), sum(own[rank] - min(own) for own in mine))
            assert found.sums.get((rank, step), (0, 0)) == told
    noticed = [own for own in durations if max(own) - min(own) > max(NOTICEABLE_NS, int(min(own) * NOTICEABLE_SHARE))]
    assert sum(found.lasts.values()) == len(noticed)
    assert found.lasts == {rank: sum(1 for own in noticed if own.index(min(own)) == rank) for rank in range(3)}
    one = record(found)
    assert one.matched == len(durations)
    assert one.bus_gb_s is None


def test_bandwidth_needs_sizes_and_every_member() -> None:
    def exchange(size: int | None, nbytes: int | None, ranks: int = 2) -> object:
        rows = [Ran(start=1_000_000 * n, end=1_000_000 * n + 500_000, bytes=nbytes) for n in range(1, 9)]
        did = [Did(rank=rank, lanes={lane("data", "all-reduce", "all_reduce", communicator=1, size=size): rows}) for rank in range(ranks)]
        (group,), _ = match(members(did), None)
        return record(split_exchanges(group))

    whole = exchange(2, 100_000_000)
    assert (whole.algorithm_gb_s, whole.bus_gb_s) == (200.0, 200.0)  # type: ignore[attr-defined]
    assert exchange(4, 100_000_000).bus_gb_s is None  # type: ignore[attr-defined]
    assert "captured" in exchange(4, 100_000_000).note  # type: ignore[attr-defined]
    assert "sizes" in exchange(2, None).note  # type: ignore[attr-defined]


def test_who_comes_last_and_who_waits_is_told_of_each_rank() -> None:
    did = [
        Did(
            rank=rank,
            lanes={
                lane("data", "all-reduce", "all_reduce", communicator=1, size=3): [
                    Ran(start=2_000_000 * n + late, end=2_000_000 * n + 900_000, bytes=8) for n in range(1, 9)
                ]
            },
        )
        for rank, late in enumerate((0, 300_000, 0))
    ]
    (group,), _ = match(members(did), None)
    told = [(one.rank, one.wait_ns, one.last_share) for one in record(split_exchanges(group)).waits]
    assert told == [(0, 8 * 300_000, 0.0), (1, 0, 1.0), (2, 8 * 300_000, 0.0)]


def judged(  # type: ignore[no-untyped-def]
    did: list[Did], schedule: Schedule | None = None, transfers: dict[int, int] | None = None, begun: dict[int, int] | None = None
):
    every = members(did)
    matched, _ = match(every, None)
    split = [split_exchanges(group) for group in matched]
    _, groups = like_groups(every, None, load_buckets())
    stages = None if schedule is None else Stages(count=schedule.count, of=schedule.of)
    slow = slow_devices(every, groups, load_buckets(), stages)
    uneven = experts(split, slow)
    own, told = own_times(every, split), clocks(every, matched)
    return late(
        split,
        Background(
            members=every,
            own=own,
            slow=slow,
            alike=groups,
            experts=uneven,
            clocks=told,
            buckets=load_buckets(),
            schedule=schedule,
            transfers=transfers,
            begun=begun or {},
        ),
    )


def moments(count: int = 20, apart: int = 3_000_000) -> list[int]:
    """When so many exchanges end, ns: nearly evenly apart, no two distances alike."""
    return [apart * (number + 1) + 1_000 * (number * number * 3 % 97) for number in range(count)]


def rows(n: int, late_by: int, seed: int) -> list[Ran]:
    """Exchanges that end together; who is late by `late_by` starts so much later."""
    ends = [3_000_000 * (number + 1) + 1_000 * (number * number * seed % 97) for number in range(n)]
    return [Ran(start=end - 400_000 + late_by, end=end) for end in ends]


@for_each("alone", (), (("read_checkpoint", "dense_gemm", 900),))
def test_a_rank_that_is_late_because_it_waited_elsewhere_is_not_to_blame(alone: tuple[tuple[str, str, int], ...]) -> None:
    """Rank 2 is slow. Its own group waits for it, so all of that group come late to the exchange with the other group."""
    did = []
    for rank in range(8):
        first = rank < 4
        inner = rows(20, 300_000 if rank == 2 else 0, 3) if first else rows(20, 0, 5)
        outer = rows(20, 300_000 if first else 0, 7)
        waited = 0 if rank == 2 else 20 * 300_000
        did.append(
            Did(
                rank=rank,
                lanes={
                    lane(communicator=1 if first else 2): inner,
                    lane("data", "reduce-scatter", "reduce_scatter", communicator=10 + rank % 4): outer,
                },
                step_ns=60_000_000,
                blocked_ns=waited,
                compute_ns=40_000_000 + (6_000_000 if rank == 2 else 0),
                shapes=[
                    ("gemm", "dense_gemm", 130 if rank == 2 else 100),
                    ("norm", "norm", 26 if rank == 2 else 20),
                    *(alone if rank == 2 else ()),
                ],
            )
        )
    found = judged(did)
    assert [(one.rank, one.cause, one.pattern) for one in found] == [(2, "slow_gpu", "always")]
    assert "1.30 times" in found[0].evidence


def test_ranks_that_run_the_same_parts_are_alike() -> None:
    """The first and the last stage of a pipeline run an embedding or a loss, the others neither."""
    first, middle, last = {"embedding": 1, "attention": 9}, {"attention": 9}, {"loss": 1, "attention": 9}
    groups, of = like_groups(
        members([Did(rank=rank, lanes={}, work=work) for rank, work in enumerate((first, middle, middle, last))]), None, load_buckets()
    )
    assert [group.ranks for group in groups] == [(0,), (1, 2), (3,)]
    assert of == {0: "A", 1: "B", 2: "B", 3: "C"}


def four(late_rank: int | None, **each: Callable[[bool], object]) -> list[Did]:
    """Four ranks with one expert exchange, to which `late_rank` comes 0.3 ms late; `each`: figures of a rank, late or not."""
    shapes = [("gemm", "dense_gemm", 100)]
    return [
        Did(
            rank=rank,
            lanes={lane(communicator=1): rows(20, 300_000 if rank == late_rank else 0, 3)},
            step_ns=60_000_000,
            shapes=shapes,
            **{name: value(rank == late_rank) for name, value in each.items()},  # type: ignore[arg-type]
        )
        for rank in range(4)
    ]


def blocked(is_late: bool) -> int:
    return 0 if is_late else 6_000_000


def test_attention_over_longer_packs_is_more_work_and_no_slow_gpu() -> None:
    """Its grid stays while the sequences of a pack are longer: products, norms and all the rest are as fast as on the others."""
    shapes = {late: [("gemm", "dense_gemm", 100), ("attention", "attention", 900 if late else 500)] for late in (True, False)}
    work = {True: {"attention": 15_000_000, "dense_gemm": 9_000_000}, False: {"attention": 8_000_000, "dense_gemm": 9_000_000}}
    (found,) = judged([
        replace(one, shapes=shapes[one.rank == 1]) for one in four(1, blocked_ns=blocked, work=lambda is_late: work[is_late])
    ])  # fmt: skip
    assert (found.rank, found.cause, found.bucket) == (1, "more_work", "attention")


def test_a_kernel_whose_shortest_launches_are_as_short_as_elsewhere_runs_other_products_there() -> None:
    """A last stage runs the head's product by the kernel of the layers' products: its median is longer, and the GPU as fast."""
    work = {True: {"dense_gemm": 15_000_000}, False: {"dense_gemm": 9_000_000}}
    shapes = {True: [("nvjet", "dense_gemm", 310, 90)], False: [("nvjet", "dense_gemm", 230, 90)]}
    (found,) = judged(
        [replace(one, shapes=shapes[one.rank == 1]) for one in four(1, blocked_ns=blocked, work=lambda is_late: work[is_late])]
    )
    assert (found.rank, found.cause, found.bucket) == (1, "more_work", "dense_gemm")


def test_who_issues_late_or_has_more_images_is_named_and_nobody_where_nobody_waits() -> None:
    (found,) = judged(four(1, blocked_ns=blocked, starved_ns=lambda is_late: 7_000_000 if is_late else 900_000))
    assert (found.rank, found.cause, found.bucket) == (1, "slow_host", None)
    work = {True: {"vision_encoder": 9_000_000, "attention": 5_000_000}, False: {"vision_encoder": 3_000_000, "attention": 5_000_000}}
    (found,) = judged(four(3, blocked_ns=blocked, work=lambda is_late: work[is_late]))
    assert (found.rank, found.cause, found.bucket, found.longer_ns) == (3, "vision_work", "vision_encoder", 6_000_000)
    assert (found.wait_ns, found.saves_ns) == (6_000_000, 4_500_000)  # a quarter of what is evened out falls on rank 3 too
    work = {True: {"expert_gemm": 36_000_000}, False: {"expert_gemm": 12_000_000}}  # 9 and 3 ms on four streams at once
    (found,) = judged(four(3, blocked_ns=blocked, work=lambda is_late: work[is_late], streams=lambda _: 4))
    assert (found.rank, found.cause, found.longer_ns) == (3, "expert_work", 6_000_000)
    assert judged(four(None)) == ()
    assert judged(four(1, blocked_ns=lambda _: 0)) == ()


def test_even_tokens_are_shared_by_the_ranks_of_one_group_of_experts() -> None:
    """Eight ranks are alike, in two groups of experts: a quarter of what is evened out falls on the busy rank, not an eighth."""
    work = {True: {"expert_gemm": 9_000_000}, False: {"expert_gemm": 3_000_000}}
    did = []
    for first, busy in ((0, 1), (4, None)):
        for one in four(busy, blocked_ns=blocked, work=lambda is_late: work[is_late]):
            (ran,) = one.lanes.values()
            each = (9 if one.rank == busy else 3) * 50_000
            ran = [replace(own, expert_ns=each * number) for number, own in enumerate(ran)]
            ends = [own.end + 1_000_000 for own in ran]  # all eight meet, and the busy group comes late
            met = [Ran(start=end - 400_000 - (300_000 if first else 0), end=end) for end in ends]
            lanes = {lane(communicator=first + 1): ran, lane("data", "all-reduce", "all_reduce", communicator=9): met}
            did.append(replace(one, rank=first + one.rank, lanes=lanes))
    (found,) = judged(did)
    assert (found.rank, found.cause, found.wait_ns, found.saves_ns) == (1, "expert_work", 6_000_000, 4_500_000)


def test_how_much_slower_the_late_rank_launches_than_its_peers_is_told_where_launches_are_known() -> None:
    def ratio(late: int | None, usual: int | None) -> float | None:
        gaps = {True: late, False: usual}
        (found,) = judged(
            four(
                1,
                blocked_ns=blocked,
                starved_ns=lambda is_late: 7_000_000 if is_late else 900_000,
                launch_gap_ns=lambda is_late: gaps[is_late],
            )
        )
        return found.launch_ratio

    assert ratio(15_000, 10_000) == 1.5
    assert ratio(10_000, 10_000) == 1.0
    assert (ratio(None, 10_000), ratio(15_000, None), ratio(15_000, 0)) == (None, None, None)


def test_two_cpus_that_are_slow_all_over_are_late_together_though_they_come_last_in_turn() -> None:
    """One is last by a little in three of five, the other in the rest: what they cost is what the two others wait for both."""
    both = {0: [300_000, 300_000, 300_000, 240_000, 240_000], 1: [240_000, 240_000, 240_000, 300_000, 300_000]}

    def costs(gap: int) -> int:
        did = [replace(one, launch_gap_ns=gap if one.rank in both else 10_000) for one in some(4, both)]
        found = [one for one in judged(did) if one.rank is not None]
        return max((one.wait_ns for one in found), default=0)

    assert costs(20_000) > 4 * costs(10_000)


def test_a_slow_device_costs_no_more_than_its_work_takes_longer() -> None:
    """The others wait 6 ms for it, but most of that is hidden: its kernels take 2 ms longer, its CPU 0.1 ms."""
    (found,) = judged(
        [
            replace(
                one,
                shapes=[("gemm", "dense_gemm", 130 if one.rank == 1 else 100)],
                work={"dense_gemm": 8_000_000 if one.rank == 1 else 6_000_000, "norm": 900_000 if one.rank == 1 else 1_000_000},
            )
            for one in four(1, blocked_ns=blocked, starved_ns=lambda is_late: 1_000_000 if is_late else 900_000)
        ]
    )
    assert (found.rank, found.cause, found.wait_ns) == (1, "slow_gpu", 2_100_000)


def test_a_slow_device_costs_no_more_where_others_are_late_with_it() -> None:
    """Rank 2 comes as late as rank 1, because it waited for it elsewhere; rank 1 works 2 ms more than those that wait 6 ms for both."""
    did = some(6, {1: [300_000, 295_000], 2: [296_000]})
    for rank, one in enumerate(did):
        shapes = [("gemm", "dense_gemm", 130 if rank == 1 else 100)]
        work = {"dense_gemm": 8_000_000 if rank == 1 else 6_000_000}
        did[rank] = replace(one, shapes=shapes, work=work, starved_ns=0, blocked_ns=0 if rank == 1 else 6_000_000)
    (found,) = judged(did)
    assert (found.rank, found.cause, found.wait_ns) == (1, "slow_gpu", 2_000_000)


def test_a_rank_that_communication_with_ranks_not_captured_holds_up_is_no_straggler() -> None:
    """It comes late by as much as transport that no other capture shows holds it up more than the others."""
    assert judged(four(3, blocked_ns=lambda _: 9_000_000)) == ()
    (found,) = judged(four(3, blocked_ns=lambda is_late: 4_000_000 if is_late else 9_000_000))
    assert found.rank == 3


def test_a_rank_whose_launches_were_lost_is_no_straggler() -> None:
    """What held it up is not known, so that it seems to wait for nobody; where no capture has launches nothing tells it from the others."""
    assert judged(four(3, blocked_ns=blocked, launched=lambda is_late: 0 if is_late else 100)) == ()
    (found,) = judged(four(3, blocked_ns=blocked, launched=lambda _: 0))
    assert found.rank == 3


def test_a_slow_device_is_named_though_ranks_that_were_not_captured_hold_it_up() -> None:
    """Its kernels are measured slow, which is no waiting for anybody; it may cost what they take longer, not only what is seen of it."""

    def slow(blocked_ns: Callable[[bool], int]) -> list[Did]:
        did = four(3, blocked_ns=blocked_ns, compute_ns=lambda is_late: 39_000_000 if is_late else 30_000_000)
        return [replace(one, shapes=[("gemm", "dense_gemm", 130 if one.rank == 3 else 100)]) for one in did]

    in_part = dict.fromkeys(range(4), 0)
    (found,) = judged(slow(lambda _: 9_000_000), transfers=in_part)
    assert (found.rank, found.cause, found.saves_ns) == (3, "slow_gpu", 9_000_000)
    assert found.wait_ns < 9_000_000
    (found,) = judged(slow(blocked))
    assert (found.rank, found.saves_ns) == (3, None)


@for_each("size, unknown, whole", (4, False, True), (8, True, False), (None, False, False), (None, True, True))
def test_a_transfer_of_which_members_were_not_captured_may_be_waiting_for_them(size: int | None, unknown: bool, whole: bool) -> None:
    every = members([Did(rank=rank, lanes={lane(communicator=1, size=size): rows(20, 0, 3)}) for rank in range(4)])
    split = [split_exchanges(group) for group in match(every, None)[0]]
    assert whole_transfers(every, split, unknown=unknown) == dict.fromkeys(range(4), 20 * 400_000 if whole else 0)


def test_who_comes_late_because_of_transfers_of_a_group_captured_in_part_is_no_straggler() -> None:
    """Ranks 2 and 3 come late to all, because their own all-to-all takes longer: a slow link, or a member of it that was not captured."""
    did = []
    for rank in range(4):
        slow = rank in {2, 3}
        ends = moments()
        inner = [Ran(start=end - 1_900_000, end=end - 1_500_000 + (600_000 if slow else 0)) for end in ends]
        outer = [Ran(start=end - 900_000 + (600_000 if slow else 0), end=end) for end in ends]
        lanes = {lane(communicator=1 + slow): inner, lane("data", "all-gather", "all_gather", communicator=9, size=4): outer}
        did.append(Did(rank=rank, lanes=lanes, step_ns=60_000_000, blocked_ns=26_000_000))
    (found, *_) = judged(did)
    assert (found.cause, found.rank) == ("slow_link", 2)
    assert judged(did, transfers=dict.fromkeys(range(4), 20 * 300_000)) == ()


def stage_of_four(late_rank: int | None, part: str, first: int, bubble_ns: int) -> list[Did]:
    """Four ranks of a pipeline stage that holds `part`, one of them late by 6 ms, all waiting for other stages for `bubble_ns`."""
    did = four(late_rank, blocked_ns=blocked, starved_ns=lambda is_late: 7_000_000 if is_late else 900_000)
    return [
        replace(
            one,
            rank=first + one.rank,
            lanes={lane(communicator=first + 1): next(iter(one.lanes.values()))},
            blocked_ns=one.blocked_ns + bubble_ns,
            bubble_ns=bubble_ns,
            work={part: 1},
        )
        for one in did
    ]


TWO_STAGES = Schedule(count=2, of={rank: rank // 4 for rank in range(8)}, forward={}, batches=8)


@for_each("schedule, saves", (None, None), (TWO_STAGES, 6_000_000 // 8), (replace(TWO_STAGES, measured=20_000_000), None))
def test_a_straggler_of_a_stage_saves_no_more_than_leads_to_the_longest_stage(schedule: Schedule | None, saves: int | None) -> None:
    """The other stage works longer than the straggler: of one micro-batch, which fills the pipeline, it is waited for."""
    (found,) = judged([*stage_of_four(1, "embedding", 0, 20_000_000), *stage_of_four(None, "loss", 4, 5_000_000)], schedule)
    assert (found.rank, found.cause, found.wait_ns, found.saves_ns) == (1, "slow_host", 6_000_000, saves)


def test_stragglers_of_all_stages_that_have_one_cause_are_mended_together() -> None:
    """Stage by stage one is late by as much: (m + p - 1) / m of it is won, for the pipeline fills and drains too."""
    found = judged([*stage_of_four(1, "embedding", 0, 20_000_000), *stage_of_four(2, "loss", 4, 20_000_000)], TWO_STAGES)
    assert [(one.rank, one.wait_ns, one.saves_ns) for one in found] == [(rank, 6_000_000, 6_000_000 * 9 // 8) for rank in (1, 6)]


def test_a_pair_that_ends_an_exchange_later_than_the_rest_is_late_by_its_slow_link() -> None:
    """Ranks 2 and 3 end the all-to-all 600 µs after the others and come late to the next; their other collectives end with all."""
    every = []
    for rank in range(5):
        slow = rank in {2, 3}
        ends = moments()
        tokens = [Ran(start=end - (400_000 if slow else 1_000_000), end=end + (600_000 if slow else 0)) for end in ends]
        others = {
            lane(kind, operation, shape, communicator=number): [Ran(start=end + 900_000, end=end + 1_000_000) for end in ends]
            for number, (kind, operation, shape) in enumerate(
                (("data", "all-gather", "all_gather"), ("other", "all-reduce", "all_reduce")), 2
            )
        }
        every.append(Did(rank=rank, lanes={lane(communicator=1): tokens, **others}, step_ns=60_000_000, blocked_ns=20_000_000))
    jobs = members(every)
    matched, _ = match(jobs, None)
    told = clocks(jobs, matched)
    assert told.known == dict.fromkeys(range(5), (0, 0))  # two of three groups agree
    ahead = {group.operation: ends_apart(group, told) for group in matched}
    assert ahead == {"all-to-all": (0,) * 5, "all-gather": None, "all-reduce": None}
    split = [split_exchanges(group, ahead[group.operation]) for group in matched]
    own = own_times(jobs, split)
    assert [(own[rank].wait_ns, own[rank].transfer_ns) for rank in (0, 2)] == [(20 * 600_000, 20 * 500_000), (0, 20 * 1_100_000)]
    _, groups = like_groups(jobs, None, load_buckets())
    (found,) = late(split, Background(members=jobs, own=own, slow={}, alike=groups, experts=(), clocks=told, buckets=load_buckets()))
    assert (found.rank, found.cause, found.wait_ns) == (2, "slow_link", 20 * 600_000)
    assert "as late as it in most of them: rank 3" in found.evidence


def some(ranks: int, late_by: dict[int, list[int]]) -> list[Did]:
    """Ranks with one expert exchange of 20 instances; those in `late_by` come so many ns late, in turn, and their hosts issue late."""
    ends = moments()
    found = []
    for rank in range(ranks):
        late_ns = late_by.get(rank, [0])
        ran = [Ran(start=end - 400_000 + late_ns[number % len(late_ns)], end=end) for number, end in enumerate(ends)]
        is_late = rank in late_by
        starved = 7_000_000 if is_late else 900_000
        did = Did(rank=rank, lanes={lane(communicator=1): ran}, step_ns=60_000_000, blocked_ns=blocked(is_late), starved_ns=starved)
        found.append(did)
    return found


def test_own_time_explains_waiting_where_it_exceeds_half_of_what_it_must_in_most_steps() -> None:
    """Of 100 ns of waiting 60 in the median step, and 30 in seven of ten."""
    for least, explains in ((30, True), (29, False)):
        assert in_most_steps([60] * 6 + [least] + [0] * 3, 100) is explains
    assert not in_most_steps([59] * 10, 100)


def in_steps(late_by: dict[int, list[int]]) -> list[Did]:
    """Four ranks with four steps of five exchanges, to which those in `late_by` come so many ns late by step, and launch late."""
    numbers = range(20)
    ends = moments(apart=4_000_000)
    found = []
    for rank in range(4):
        mine = late_by.get(rank, [0] * 4)
        last = [max(by[number // 5] for by in late_by.values()) for number in numbers]
        ran = [
            Ran(start=end - 400_000 - last[number] + mine[number // 5], end=end, step=number // 5)
            for number, end in zip(numbers, ends, strict=True)
        ]
        starved = 7_000_000 if rank == 1 else 900_000
        found.append(
            Did(
                rank=rank,
                lanes={lane(communicator=1): ran},
                step_ns=20_000_000,
                blocked_ns=0 if rank == 1 else 9_000_000,
                starved_ns=starved,
                steps=4,
            )
        )
    return found


@for_each("late_by, said", ([0, 1_600_000, 0, 1_600_000], 4_000_000), ([0, 1_600_000, 0, 0], None))
def test_a_rank_that_stalls_in_some_steps_is_named_and_costs_the_mean_of_all(late_by: list[int], said: int | None) -> None:
    """8 ms in two of four steps; once is chance."""
    assert [(one.rank, one.cause, one.wait_ns) for one in judged(in_steps({1: late_by}))] == (
        [] if said is None else [(1, "slow_host", said)]
    )


def test_waiting_for_a_capture_that_began_late_is_for_no_rank() -> None:
    """Rank 3 comes 3.2 ms late to all exchanges of the first step, in which its capture began; rank 1 0.8 ms to all."""
    did = in_steps({1: [800_000] * 4, 3: [3_200_000, 0, 0, 0]})
    (found,) = judged(did, begun={3: 0})
    assert (found.rank, found.pattern) == (1, "always")
    assert 1 not in {one.rank for one in judged(did)}


def test_of_two_ranks_with_causes_of_their_own_both_are_named() -> None:
    """A slow GPU that is last in most exchanges, and beside it a CPU that launches late in the others."""
    both = some(6, {1: [300_000, 0], 2: [0, 250_000]})
    shapes = {one.rank: [("gemm", "dense_gemm", 130 if one.rank == 1 else 100)] for one in both}
    did = [replace(one, shapes=shapes[one.rank], starved_ns=7_000_000 if one.rank == 2 else 900_000) for one in both]
    did = [replace(one, blocked_ns={1: 2_500_000, 2: 3_000_000}.get(one.rank, 5_500_000), compute_ns=9_000_000) for one in did]
    found = judged(did)
    assert [(one.rank, one.cause) for one in found] == [(1, "slow_gpu"), (2, "slow_host")]
    assert "beside that for rank 1" in found[1].evidence


def test_of_two_ranks_the_late_one_is_named() -> None:
    """What the others wait is held against what transport held them up, not the late one, whom nothing holds up."""
    (found,) = judged(some(2, {0: [300_000]}))
    assert (found.rank, found.cause, found.pattern) == (0, "slow_host", "always")


def test_of_two_ranks_that_come_last_as_often_the_one_that_costs_more_is_named() -> None:
    (found,) = judged(
        some(2, {0: [300_000, 0]})[:1] + [replace(one, starved_ns=0, blocked_ns=6_000_000) for one in some(2, {1: [0, 30_000]})[1:]]
    )
    assert (found.rank, found.last_share, found.wait_ns) == (0, 0.5, 10 * 300_000)


def test_two_ranks_that_come_late_together_are_found() -> None:
    """Now one of them is the very last, now the other; nobody waits for one of them alone."""
    (found,) = judged(some(6, {1: [300_000, 295_000], 4: [295_000, 300_000]}))
    assert (found.rank, found.cause, found.pattern) == (1, "slow_host", "always")
    assert "50.0 % of the 20 collectives" in found.evidence
    assert "as late as it in most of them: rank 4" in found.evidence


def test_ranks_are_late_together_only_where_they_come_last_in_the_same_exchanges() -> None:
    """Rank 1 is late in every third exchange; rank 2, late in all others, waits for it there."""
    both = some(6, {1: [380_000, 0, 0], 2: [0, 90_000, 90_000]})
    (found,) = judged([replace(one, blocked_ns={1: 1_200_000, 2: 2_700_000}.get(one.rank, 3_900_000)) for one in both])
    assert (found.rank, found.pattern, found.wait_ns) == (1, "mostly", 7 * 380_000)
    assert "late with it" not in found.evidence
    assert "as late as it" not in found.evidence


def test_of_a_capture_that_ends_early_the_steps_that_it_shares_count() -> None:
    """Rank 3 holds the first of two steps; in the second nothing could be matched, which is no step without waiting."""
    found = []
    for rank in range(4):
        steps = 1 if rank == 3 else 2
        ends = moments(10 * steps)
        ran = [Ran(start=end - 400_000 + (300_000 if rank == 1 else 0), end=end, step=number // 10) for number, end in enumerate(ends)]
        waited, starved = (0, 4_000_000) if rank == 1 else (3_000_000, 900_000)
        found.append(
            Did(rank=rank, lanes={lane(communicator=1): ran}, step_ns=30_000_000, blocked_ns=waited, starved_ns=starved, steps=steps)
        )
    (late,) = judged(found)
    assert (late.rank, late.cause) == (1, "slow_host")
    assert late.wait_ns == 3_000_000


def test_captures_that_hold_other_steps_are_compared_in_those_that_all_hold() -> None:
    """Ranks 0 to 2 hold the steps 0 and 1, rank 3 the steps 1 and 2: of the others nobody knows who waited."""
    found = []
    for rank in range(4):
        first = 1 if rank == 3 else 0
        ends = moments(30)[10 * first : 10 * first + 20]
        ran = [Ran(start=end - 400_000 + (300_000 if rank == 1 else 0), end=end, step=number // 10) for number, end in enumerate(ends)]
        waited, starved = (0, 4_000_000) if rank == 1 else (3_000_000, 900_000)
        found.append(Did(rank=rank, lanes={lane(communicator=1): ran}, step_ns=30_000_000, blocked_ns=waited, starved_ns=starved, steps=2))
    every = members(found)
    own = own_times(every, [split_exchanges(group) for group in match(every, None)[0]])
    assert [own[rank].shared for rank in range(4)] == [(False, True)] * 3 + [(True, False)]
    assert [(own[rank].wait_ns, own[rank].median_ns) for rank in range(4)] == [
        (3_000_000, 27_000_000), (0, 30_000_000), (3_000_000, 27_000_000), (3_000_000, 27_000_000)
    ]  # fmt: skip
    (late,) = judged(found)
    assert (late.rank, late.wait_ns) == (1, 3_000_000)


@for_each("pause", 9_000_000, 1_000_000)
def test_a_rank_that_is_late_in_one_step_alone_is_spoken_of_where_that_weighs(pause: int) -> None:
    """By the median step nobody stands out; over all steps one does, if its pause is more than 2 % of them."""
    did = [replace(one, step_ns=25_000_000) for one in four(None)]
    times = {rank: (24_000_000, 24_000_000 + (pause if rank == 3 else 0), 24_000_000, 24_000_000) for rank in range(4)}
    own = {
        rank: OwnTimes(matched=True, shared=(True,) * 4, wait=(0,) * 4, transfer=(0,) * 4, time=time, lost=(0,) * 4)
        for rank, time in times.items()
    }
    member, why = chosen_member(members(did), own, (), (1, 0))
    assert (member.rank.rank, "single steps" in why) == ((3, True) if pause > 4 * 500_000 else (1, False))


def test_a_capture_that_was_not_cut_into_steps_is_not_the_slowest() -> None:
    did = [replace(one, step_ns=100_000_000 if one.rank == 2 else 25_000_000) for one in four(None)]
    own = {
        rank: OwnTimes(matched=True, shared=(True,), wait=(0,), transfer=(0,), time=(95_000_000 if rank == 2 else 24_000_000,), lost=(0,))
        for rank in range(4)
    }
    every = members(did)
    uncut = replace(every[2], device=replace(every[2].device, steps=SimpleNamespace(anchor="capture")))
    assert chosen_member(every, own, (), (1, 0))[0].rank.rank == 2
    assert chosen_member((*every[:2], uncut, every[3]), own, (), (1, 0))[0].rank.rank == 1


@for_each(
    "apart, longer, size, said",
    (0, 1.0, 4, ""),
    (0, 1.0, None, ""),
    (0, 1.2, 4, "no collective joins ranks 0, 1 to ranks 2, 3, and their steps take 30.0 and 36.0 ms"),
    (0, 1.2, None, ""),
    (7_200_000_000_000, 1.0, None, "no collective joins ranks 0, 1 to ranks 2, 3, which were captured 120 minutes apart"),
)
def test_captures_of_several_runs_are_told(apart: int, longer: float, size: int | None, said: str) -> None:
    """Two pairs, each with exchanges of its own."""
    ran = [Ran(start=1_000_000 * number, end=1_000_000 * number + 400_000) for number in range(1, 31)]
    lanes = [lane(communicator=1 + rank // 2) for rank in range(4)]
    did = [
        Did(rank=rank, lanes={lanes[rank]: ran}, started=apart * (rank // 2), step_ns=round(30_000_000 * (longer if rank > 1 else 1)))
        for rank in range(4)
    ]
    windows = SimpleNamespace(anchor="range", every=pl.DataFrame({"index": [0], "start": [0], "end": [30_000_000]}))
    every = tuple(replace(one, rank=replace(one.rank, world_size=size), device=replace(one.device, steps=windows)) for one in members(did))
    found = problems(every, size, {}, [split_exchanges(group) for group in match(every, None)[0]])
    assert [(one.kind, one.ranks) for one in found] == ([("runs", (2, 3))] if said else [])
    assert said in "".join(one.text for one in found)


def test_what_makes_a_rank_late_may_lie_before_its_steps() -> None:
    """Rank 1 pauses before each of its steps, so that these begin later and are short; the others wait for it within theirs."""
    did = four(1, blocked_ns=blocked, starved_ns=lambda is_late: 7_000_000 if is_late else 900_000)
    (found,) = judged([replace(one, step_ns=54_000_000 if one.rank == 1 else 60_000_000) for one in did])
    assert (found.rank, found.cause) == (1, "slow_host")


def test_a_straggler_costs_no_more_than_it_comes_after_the_next() -> None:
    """Rank 1 comes 300 µs late; the next comes 200 µs late, another one each time. Of two groups that wait at once one counts."""
    found = []
    for rank in range(5):
        others = [one for one in range(5) if one != 1]
        behind = [300_000 if rank == 1 else 200_000 if others[number % 4] == rank else 0 for number in range(20)]
        ends = moments()
        ran = [Ran(start=end - 400_000 + late_ns, end=end) for end, late_ns in zip(ends, behind, strict=True)]
        lanes = {lane(communicator=1): ran, lane("data", "all-gather", "all_gather", communicator=2): ran}
        starved = 7_000_000 if rank == 1 else 900_000
        found.append(Did(rank=rank, lanes=lanes, step_ns=60_000_000, blocked_ns=0 if rank == 1 else 6_000_000, starved_ns=starved))
    (late,) = judged(found)
    assert (late.rank, late.wait_ns) == (1, 20 * 100_000)


def test_of_those_who_wait_for_a_straggler_the_one_that_waits_most_counts() -> None:
    """Ranks 0 and 2 meet rank 1 in one group and wait alike, rank 3 meets it in another as well, where it waits at another time."""
    ends = moments()
    late = [Ran(start=end - 400_000 + 300_000, end=end) for end in ends]
    waiting = [Ran(start=end - 400_000, end=end) for end in ends]
    other = [[Ran(start=ran.start + 1_000_000, end=ran.end + 1_000_000) for ran in one] for one in (late, waiting)]
    every, pair = lane(communicator=1), lane("tensor", "all-reduce", "all_reduce", communicator=2)
    did = [
        Did(
            rank=rank,
            lanes=lanes,
            step_ns=100_000_000,
            blocked_ns=0 if rank == 1 else 20_000_000,
            starved_ns=12_000_000 if rank == 1 else 0,
        )
        for rank, lanes in enumerate(({every: waiting}, {every: late, pair: other[0]}, {every: waiting}, {every: waiting, pair: other[1]}))
    ]
    jobs = members(did)
    split = [split_exchanges(group) for group in match(jobs, None)[0]]
    assert waited_for_alone(arrivals_of(split), {1}) == 2 * 20 * 300_000
    assert waited_for_alone(arrivals_of(split), {1, 3}) == 20 * 300_000  # whoever is late with it waits for nobody


def test_of_the_experts_exchanges_that_share_grows_with_the_busiest_rank_s_work_that_other_places_show() -> None:
    """Half as much again on the busiest rank takes a sixth of the 60 ns, where even places take 50."""
    even = pl.DataFrame({"longest": [100] * 4, "mean": [100.0] * 4, "transfer": [50] * 4})
    uneven = pl.DataFrame({"longest": [150] * 4, "mean": [100.0] * 4, "transfer": [60] * 4})
    wider = even.with_columns(transfer=9 * pl.col("transfer"))
    every = {(0, 1): even, (2, 3): uneven, (4, 5, 6): wider}
    told = followed_shares(every)
    assert told[2, 3] == pytest.approx(0.5)
    assert told[0, 1] == pytest.approx(0.4)
    assert told[4, 5, 6] == 1, "nothing differs among groups as large"
    assert followed_shares({(2, 3): uneven}) == {(2, 3): 1}
    assert followed_shares({(0, 1): even.with_columns(uneven["transfer"]), (2, 3): uneven})[2, 3] == 0


def test_waiting_is_by_the_steps_that_captures_of_its_exchanges_have_in_common() -> None:
    """Two wait 0.3 ms in each of ten exchanges a step, of which the late rank's capture holds two steps; its pair is captured whole."""
    ends = moments(40, apart=1_000_000)
    waiting = [Ran(start=end - 400_000, end=end, step=number // 10) for number, end in enumerate(ends)]
    late = [Ran(start=ran.start + 300_000, end=ran.end, step=ran.step) for ran in waiting[10:30]]
    every, pair = lane(communicator=1), lane("tensor", "all-reduce", "all_reduce", communicator=2)
    beside = [Ran(start=ran.end, end=ran.end + 10_000, step=ran.step) for ran in waiting]
    lanes = ({every: waiting}, {every: late, pair: beside}, {every: waiting}, {pair: beside})
    jobs = members([Did(rank=rank, lanes=own, steps=4) for rank, own in enumerate(lanes)])
    split = [split_exchanges(group) for group in match(jobs, None)[0]]
    assert waited_for_alone(arrivals_of(split), {1}) == 10 * 300_000


def in_turn(longest: Sequence[int], *, bucket: str = "vision_encoder", first: Sequence[float] | None = None) -> list[Did]:
    """Four ranks over as many steps as `longest` names ranks: that one has 6 ms more work of `bucket` in the step, and comes last.

    `first`: by step the part of that work, where 1.0 is 6 ms, that rank 0 has beside it; it never waits.
    """
    steps = len(longest)
    ends = moments(10 * steps)
    found = []
    for rank in range(4):
        share = [1.0 if one == rank else 0.0 for one in longest] if rank or first is None else first
        ran = [
            Ran(start=end - 400_000 + round(share[number // 10] * 380_000), end=end, step=number // 10) for number, end in enumerate(ends)
        ]
        work = [{bucket: 3_000_000 + round(part * 6_000_000), "dense_gemm": 8_000_000} for part in share]
        did = Did(rank=rank, lanes={lane(communicator=1): ran}, step_ns=30_000_000, blocked_ns=6_000_000, steps=steps, in_steps=work)
        if rank == 0 and first is not None:
            did = replace(did, blocked_ns=0, work=work[0])
        found.append(did)
    return found


@for_each(
    "longest, bucket, cause",
    ([0, 1, 2, 3], "vision_encoder", "vision_work"),
    ([2, 0, 0, 3, 1, 2], "attention", "more_work"),
    ([3, 3, 0, 3, 1], "vision_encoder", "vision_work"),  # most steps by chance, but it is late in no other
)
def test_ranks_that_have_most_work_in_turn_are_uneven_and_not_slow(longest: list[int], bucket: str, cause: str) -> None:
    """Each step costs what its longest works more than the mean: three of four wait 3.8 ms of 30."""
    (found,) = judged(in_turn(longest, bucket=bucket))
    assert (found.rank, found.pattern, found.cause, found.bucket) == (None, "rotating", cause, bucket)
    assert found.longer_ns == 4_500_000
    assert found.wait_ns >= 10 * 380_000 * 3 // 4
    assert found.saves_ns == pytest.approx(found.wait_ns * 3 / 4, abs=10), "evened out, one of four parts of it falls on the late one"
    assert "the longest of a step takes 4.500 ms more than the mean" in found.evidence


def test_a_rank_that_has_most_work_in_most_steps_takes_turns_where_what_the_others_have_in_turn_costs_more() -> None:
    """Rank 0 is hardly later than another one in four of six steps: even work is one cure, and wins what the longest has above the mean."""
    (found,) = judged(in_turn([1, 2, 3, 1, 2, 3], first=[1.04, 1.04, 1.04, 1.04, 0.2, 0.2]))
    assert (found.rank, found.pattern, found.cause, found.bucket) == (None, "rotating", "vision_work", "vision_encoder")
    won = [3_800_000 * (max(first, 1) - (first + 1) / 4) for first in (1.04, 1.04, 1.04, 1.04, 0.2, 0.2)]
    assert found.saves_ns == pytest.approx(sum(won) / 6, rel=0.001)
    assert {one.rank for one in judged(in_turn([1, 2, 3, 1, 2], first=[1.04] * 5))} == {None, 0}  # it has most in all steps


def test_waiting_in_fewer_than_half_of_the_steps_counts_with_the_mean_of_all() -> None:
    """In five of nine steps nobody waits, so that the median step tells nothing of what the others cost."""
    turns = [0, 1, 2, 3, -1, -1, -1, -1, -1]
    did = [
        replace(one, blocked_ns=0, blocked_in=[3_800_000 if turn not in (-1, rank) else 0 for turn in turns])
        for rank, one in enumerate(in_turn(turns))
    ]
    (found,) = judged([replace(one, step_ns=20_000_000) for one in did])
    assert (found.rank, found.cause) == (None, "vision_work")
    assert found.wait_ns == pytest.approx(3_800_000 * 3 / 9, rel=0.01), "each waits for three of the others"


def test_who_has_most_in_every_step_is_told_from_who_has_in_some() -> None:
    """Where rank 0 has most in two steps alone, beside another that has as much, less for it wins nothing."""
    every = members(in_turn([1, 2, 3, 1], first=[1.0, 1.0, 0.0, 0.0]))
    assert not has_most(every[0], every[1:], "vision_work", load_buckets())
    every = members(in_turn([1, 2, 3, 1], first=[1.04] * 4))
    assert has_most(every[0], every[1:], "vision_work", load_buckets())


def test_gpus_that_are_slow_in_turn_have_no_uneven_work() -> None:
    """The rank that comes last in a step has 6 ms more attention there: kernels of one shape take 17 / 11 times as long."""
    turns = [0, 1, 2, 3]
    throttled = [
        replace(one, in_steps=[{"attention": 17_000_000 if rank == turn else 11_000_000} for turn in turns])
        for rank, one in enumerate(in_turn(turns))
    ]
    assert [one.cause for one in judged(throttled)] == ["more_work"]
    paced = [replace(one, paces=[17 / 11 if rank == turn else 1.0 for turn in turns]) for rank, one in enumerate(throttled)]
    (found,) = judged(paced)
    assert (found.rank, found.pattern, found.cause, found.bucket, found.longer_ns) == (None, "rotating", "slow_gpu", None, 4_500_000)
    assert "kernels of one shape take longer" in found.evidence


def test_a_gpu_that_alone_is_slow_in_some_steps_is_named_though_most_waiting_is_for_others() -> None:
    """Rank 3 comes last in two of five steps, slowed by 17 / 11 there; why others do in the three that are left nothing tells."""
    turns = [3, 0, 3, 1, 2]
    steps = [
        replace(
            one,
            in_steps=[{"attention": 17_000_000 if rank == turn == 3 else 11_000_000} for turn in turns],
            paces=[17 / 11 if rank == turn == 3 else 1.0 for turn in turns],
        )
        for rank, one in enumerate(in_turn(turns))
    ]
    (found,) = judged(steps)
    assert (found.rank, found.pattern, found.cause, found.longer_ns) == (3, "mostly", "slow_gpu", 1_800_000)
    assert found.last_share == pytest.approx(0.4)
    assert found.evidence.startswith("Rank 3 comes last in 40.0 % of 50 collectives with notable waiting; in single steps kernels of one")


def test_work_that_the_same_ranks_have_most_of_is_not_uneven_in_turn() -> None:
    """Ranks 0 and 1 have more than 2 and 3 in every step; who of the two comes last changes, what they work on does not."""
    every = [
        replace(
            one, in_steps=[{"attention": 9_000_000 + 1_000 * step * (1 - 2 * one.rank) if one.rank < 2 else 3_000_000} for step in range(4)]
        )
        for one in in_turn([0, 1, 0, 1])
    ]
    assert all(one.cause != "more_work" for one in judged(every))


def test_of_a_slow_pair_both_are_named() -> None:
    """Ranks 1 and 4 come late together; rank 2 comes as late, but its own time is that of the others: it waited elsewhere."""
    did = some(7, {1: [300_000, 295_000], 2: [296_000], 4: [295_000, 300_000]})
    did[2] = replace(did[2], blocked_ns=6_000_000, starved_ns=900_000)
    elsewhere = [Ran(start=3_000_000 * (number + 1) - 900_000, end=3_000_000 * (number + 1) - 400_000) for number in range(20)]
    did[2] = replace(did[2], lanes={**did[2].lanes, lane("tensor", "all-reduce", "all_reduce", communicator=9): elsewhere})
    (found,) = judged(did)
    assert (found.rank, found.cause, found.alike) == (1, "slow_host", (4,))
    (alone,) = judged(some(6, {1: [300_000]}))
    assert alone.alike == ()


def in_stages(late: Collection[int], idle_ns: int, compute_ns: tuple[int, int], *, slow: bool) -> list[Did]:
    """Four ranks of which nothing is matched, of 60 ms a step. Those that are `late` wait 10 ms, the others `idle_ns`; `compute_ns` of the
    others and of these, whose kernels are 1.4 times as long where they are `slow`.
    """
    return [
        Did(
            rank=rank,
            lanes={},
            step_ns=60_000_000,
            bubble_ns=10_000_000 if rank in late else idle_ns + rank,
            blocked_ns=10_000_000 if rank in late else idle_ns + rank,
            compute_ns=compute_ns[rank in late],
            work={"loss" if rank > 1 else "embedding": 1},
            shapes=[("gemm", "dense_gemm", 140 if slow and rank in late else 100), ("norm", "norm", 28 if slow and rank in late else 20)],
        )
        for rank in range(4)
    ]


@for_each("slow", *(True, False))
def test_a_slow_device_of_a_pipeline_is_named_though_no_transfer_is_matched(slow: bool) -> None:
    """By how much its own time exceeds the longest of the others; one that merely works longest is no slow device."""
    did = in_stages({2}, 31_000_000, (27_000_000, 48_000_000), slow=slow)
    found = judged(did)
    assert [(one.rank, one.cause, one.kinds, one.wait_ns) for one in found] == (
        [(2, "slow_gpu", ("pipeline",), 21_000_000)] if slow else []
    )
    assert all("1.40 times" in one.evidence for one in found)


@for_each("alike", *(True, False))
def test_a_stage_all_of_whose_devices_are_slow_is_named_and_one_with_more_layers_is_not(alike: bool) -> None:
    """Ranks 2 and 3 work 12 ms longer than the other stage, in kernels that are 1.4 times as long, or in more of them."""
    did = in_stages({2, 3}, 22_000_000, (30_000_000, 42_000_000), slow=alike)
    schedule = replace(TWO_STAGES, of={rank: rank // 2 for rank in range(4)})
    found = judged(did, schedule)
    assert [(one.rank, one.alike, one.cause, one.saves_ns) for one in found] == (
        [(2, (3,), "slow_gpu", 12_000_000)] if alike else []  # 12 ms longer than 30, whatever the other stage waits
    )
    assert judged(did) == (), "which ranks are a stage is not known"


def test_a_stage_whose_persistent_kernels_hold_other_products_is_not_slow() -> None:
    """The first stage's encoder runs small products by the layers' kernel, which has one grid: its shortest launches are much shorter."""
    products = [[("gemm", "dense_gemm", 300, 120)], [("gemm", "dense_gemm", 700, 210)]]
    did = [
        dataclasses.replace(one, shapes=products[one.rank // 2])
        for one in in_stages({2, 3}, 22_000_000, (30_000_000, 42_000_000), slow=False)
    ]
    assert judged(did, replace(TWO_STAGES, of={rank: rank // 2 for rank in range(4)})) == ()


def test_the_lateness_goes_round() -> None:
    ends = moments()
    did = [
        Did(
            rank=rank,
            lanes={
                lane(communicator=1): [
                    Ran(start=end - 400_000 + (380_000 if number % 4 == rank else 0), end=end) for number, end in enumerate(ends)
                ]
            },
            step_ns=20_000_000,
            blocked_ns=6_000_000,
        )
        for rank in range(4)
    ]
    (found,) = judged(did)
    assert (found.rank, found.pattern) == (None, "rotating")
    # Another one each time is waited for, 380 µs in 20 exchanges; evened out, no more is won than what transport holds the ranks up.
    assert found.wait_ns == 6_000_000


@for_each("stalled", *(True, False))
def test_waiting_beside_another_micro_batch_is_nothing_to_win(stalled: bool) -> None:
    """The others wait 0.3 ms in each of ten exchanges, and compute is stalled on all of that, or on the 0.1 ms that they transfer alone."""
    found = []
    for rank in range(4):
        late_one = rank == 3
        ends = moments(10)
        held = 100_000 if late_one or not stalled else 400_000
        ran = [Ran(start=end - (100_000 if late_one else 400_000), end=end, held_ns=held) for end in ends]
        starved = 4_000_000 if late_one else 900_000
        found.append(Did(rank=rank, lanes={lane(communicator=1): ran}, step_ns=30_000_000, blocked_ns=10 * held, starved_ns=starved))
    assert [(late.rank, late.wait_ns) for late in judged(found)] == ([(3, 3_000_000)] if stalled else [])


def test_a_straggler_saves_no_more_than_leads_to_one_that_is_late_by_another_cause() -> None:
    """Two groups of two: a slow GPU costs its group 3 ms, a slow CPU the other one 1 ms, and a step ends for both at once."""
    found = []
    for rank in range(4):
        ends = moments(10)
        by = (300_000, 300_000, 100_000, 100_000)[rank]
        is_late = rank in (1, 3)
        ran = [Ran(start=end - 100_000 - (0 if is_late else by), end=end) for end in ends]
        whole = [Ran(start=end - 100_000 - (200_000 if rank > 1 else 0), end=end) for end in (end + 1_000_000 for end in ends)]
        waited = (0 if is_late else 10 * by) + (2_000_000 if rank > 1 else 0)
        shapes = [(str(number), "dense_gemm", 13_000 if rank == 1 else 10_000) for number in range(8)]
        starved = 5_000_000 if rank == 3 else 900_000
        lanes = {lane(communicator=1 + rank // 2): ran, lane("data", "all-reduce", "all_reduce", communicator=9): whole}
        found.append(
            Did(rank=rank, lanes=lanes, step_ns=30_000_000, blocked_ns=waited, compute_ns=13_000_000, starved_ns=starved, shapes=shapes)
        )
    late = {one.rank: (one.cause, one.wait_ns, one.saves_ns) for one in judged(found)}
    assert late[1] == ("slow_gpu", 3_000_000, 2_000_000)


@for_each("elsewhere_ns, wait_ns", (0, 7_600_000), (5_000_000, 3_000_000))
def test_waiting_beside_compute_is_nothing_to_win(elsewhere_ns: int, wait_ns: int) -> None:
    """The others wait 20 times 380 µs for rank 1, but of the 8 ms for which transport stalls them another kind takes a part."""
    did = [
        Did(
            rank=rank,
            lanes={lane(communicator=1): rows(20, 380_000 if rank == 1 else 0, 3)},
            step_ns=60_000_000,
            blocked_ns=0 if rank == 1 else 8_000_000,
            elsewhere_ns=0 if rank == 1 else elsewhere_ns,
            compute_ns=40_000_000,
            shapes=[("gemm", "dense_gemm", 130 if rank == 1 else 100)],
        )
        for rank in range(4)
    ]
    (found,) = judged(did)
    assert (found.rank, found.wait_ns) == (1, wait_ns)


def test_experts_work_is_compared_place_by_place() -> None:
    """Two places in a step, two steps: 100 and 300 µs against 200 and 200."""
    ends = [1_000_000, 2_000_000, 3_000_000, 11_000_000, 12_100_000, 13_000_000]
    mine, theirs = [0, 100_000, 400_000, 400_000, 500_000, 800_000], [0, 200_000, 400_000, 400_000, 600_000, 800_000]
    did = [
        Did(
            rank=rank,
            steps=2,
            lanes={
                lane(communicator=1): [
                    Ran(start=end - 50_000, end=end, step=number // 3, expert_ns=work[number]) for number, end in enumerate(ends)
                ]
            },
        )
        for rank, work in enumerate((mine, theirs))
    ]
    (group,), _ = match(members(did), None)
    (found,) = experts([split_exchanges(group)], {})
    assert (found.places, found.lost_ns) == (2, 100_000)
    assert [layer.work_ns for layer in found.layers] == [(100_000, 200_000), (300_000, 200_000)]


def test_what_was_left_unmatched_is_told_once_for_each_reason() -> None:
    _, left = match(
        members([Did(rank=0, lanes={lane(communicator=1): rows(5, 0, 1)}), Did(rank=1, lanes={lane(communicator=2): rows(7, 0, 1)})]), None
    )
    assert left_alone(left) == ("12 expert exchanges on 2 ranks are not matched: no other member of its group was captured.",)


# -------------------- the survey of ranks agrees with what the document says of each device by itself


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """Ranks 1 and 2 of four, of which 2 is the slow one."""
    folder = tmp_path_factory.mktemp("two")
    for rank in (1, 2):
        sample.unpack(f"straggler.rank{rank}.sqlite.gz", folder / f"rank{rank}.sqlite")
    return diagnose([folder])


def test_the_survey_repeats_the_budgets(two: Diagnosis) -> None:
    budgets = {one.rank: one for one in two.budget}
    for row in ranks_of(two).survey:
        middle = budgets[row.rank].median
        assert middle is not None
        assert (row.compute_busy_ns, row.transport_busy_ns, row.device_idle_ns) == (
            middle.compute_busy_ns,
            middle.transport_busy_ns,
            middle.device_idle_ns,
        )
        assert [(step.index, step.window_ns) for step in row.steps] == [(step.index, step.window_ns) for step in budgets[row.rank].per_step]
        assert row.buckets == {one.bucket: one.work_ns for one in two.buckets if one.rank == row.rank}


def test_operations_are_counted_per_step_and_waiting_never_exceeds_it(two: Diagnosis) -> None:
    for row in ranks_of(two).survey:
        counted: Counter[str] = Counter()
        for name, number in row.collectives.items():
            counted[name.split()[0]] += number
        assert counted == {one.kind: one.count for one in two.communication if one.rank == row.rank}
    blocked = {one.rank: {step.index: step.blocking_transport_ns for step in one.per_step} for one in two.budget}
    for row in ranks_of(two).survey:
        assert row.wait_ns is not None
        assert 0 <= row.wait_ns <= row.step.max  # type: ignore[operator]
        for step in row.steps:
            assert step.own_ns is not None
            assert step.window_ns - blocked[row.rank][step.index] <= step.own_ns <= step.window_ns


def test_the_slow_one_is_named_and_the_verdict_speaks_of_it(two: Diagnosis) -> None:
    ranks = ranks_of(two)
    assert [(one.rank, one.cause) for one in ranks.late] == [(2, "slow_gpu")]
    assert (ranks.slowest, two.verdict.rank) == (2, 2)
    assert [(one.kind, one.ranks, one.count) for one in ranks.problems] == [("missing", (0, 3), 2)]
    waits = {(one.rank, one.kind): one.wait_ns for one in two.communication}
    assert (waits[1, "expert"] or 0) > 10 * (waits[2, "expert"] or 0)
