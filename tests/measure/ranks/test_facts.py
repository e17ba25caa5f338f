"""Facts of what differs between ranks: derived from the records, null where nothing could be looked for, nought where it was and is not
there.
"""

from msgspec import structs

from diagnose.document.ranks import DataTail, Late, LateCause, Pipeline, RankProblem, Ranks, RankSurvey, Stage, StartSkew
from diagnose.knowledge.buckets import load_buckets
from diagnose.knowledge.catalogue import places_of
from diagnose.knowledge.load import load_rulebook
from diagnose.measure.ranks.facts import inferred_rank_facts, rank_facts, rank_list
from diagnose.measure.where import rank_where
from diagnose.model.vocabulary import FactValue
from tests.builders.cases import for_each
from tests.builders.ranks import STEP, clock, exchange, experts, late, ranks, survey

OF_RANKS = {name for name, spec in load_rulebook().facts.items() if spec.scope == "ranks"}


def stage(number: int, compute: int, bubble: int) -> Stage:
    return Stage(stage=number, ranks=(number,), compute_busy_ns=compute, bubble_ns=bubble, warm_up_ns=0, steady_ns=0, cool_down_ns=0)


PIPELINE = Pipeline(
    stages=(stage(0, 60_000_000, 30_000_000), stage(1, 80_000_000, 10_000_000)),
    bubble_share=0.2,
    expected_share=0.12,
    imbalance_ns=10_000_000,
    virtual_saves_ns=6_000_000,
    even_saves_ns=8_000_000,
)


def given(found: Ranks, *names: str) -> dict[str, FactValue]:
    facts = rank_facts(found, STEP)
    return {name: facts[name] for name in names}


def figures(found: Ranks, *names: str) -> tuple[FactValue, ...]:
    return tuple(given(found, *names).values())


def test_every_fact_of_ranks_has_its_producer_here_and_with_one_rank_all_are_null() -> None:
    assert set(rank_facts(None, STEP)) == OF_RANKS
    assert set(rank_facts(ranks(), STEP)) == OF_RANKS
    assert rank_facts(None, STEP) == dict.fromkeys(OF_RANKS)


def test_even_ranks() -> None:
    """Nothing is wrong: what was looked for is nought, what is only there when something is wrong is null."""
    found = {name: value for name, value in rank_facts(ranks(), STEP).items() if value is not None}
    assert found == {
        "own_wait_ns": 4_000_000, "own_transfer_ns": 10_000_000, "matched_exchanges": 800, "unmatched_exchanges": 0,
        "matched_share": 1.0, "ranks_wait_ns": 4_000_000, "ranks_wait_share": 0.04, "ranks_wait_pipeline_ns": 0,
        "ranks_wait_blocking_ns": 4_000_000, "ranks_transfer_ns": 10_000_000, "ranks_wait_over_transfer": 0.4,
        "expert_exchange_wait_share": 4 / 14, "straggler_wait_ns": 0, "straggler_wait_share": 0.0,
        "straggler_saves_ns": 0, "straggler_saves_share": 0.0, "rotating_wait_ns": 0, "rotating_wait_share": 0.0, "rotating_saves_ns": 0,
        "start_skew_ns": 0, "start_skew_ranks": 0, "ranks_missing": 0, "ranks_duplicate": 0,
        "ranks_uneven_steps": 0, "ranks_failed": 0, "clocks_aligned": True, "clock_residual_ns": 5_000, "slow_link_ns": 0,
        "slow_link_share": 0.0, "slow_link_stalled_ns": 0, "another_wait_ns": 0, "another_saves_ns": 0, "another_saves_share": 0.0,
    }  # fmt: skip


def test_waiting_of_the_rank_of_the_verdict_is_that_of_its_device() -> None:
    both = (survey(0), structs.replace(survey(0, wait=7_000_000), device=1))
    found = structs.replace(ranks(survey=both), slowest=0)
    assert [rank_facts(found, STEP, device)["own_wait_ns"] for device in (0, 1, 2)] == [4_000_000, 7_000_000, None]


def test_types_are_those_of_the_units() -> None:
    kinds = {"ns": int, "count": int, "share": float, "text": str, "bool": bool}
    full = ranks(late=(late(3, 20_000_000), late(None, 1_000, pattern="rotating")), experts=(experts((0, 1), 5),), pipeline=PIPELINE)
    units = {name: spec.unit for name, spec in load_rulebook().facts.items()}
    wrong = [name for name, value in rank_facts(full, STEP).items() if value is not None and type(value) is not kinds[units[name]]]
    assert wrong == []


# --- matched exchanges ------------------------------------------------------------------------------------------------


def test_waiting_is_the_mean_over_matched_ranks_and_what_compute_hides_does_not_block() -> None:
    some = (survey(0, wait=3_000_000), survey(1, wait=9_000_000), survey(2, wait=None))
    assert figures(ranks(survey=some), "ranks_wait_ns", "ranks_transfer_ns") == (6_000_000, 10_000_000)
    some = (survey(0, wait=6_000_000, held=1_000_000), survey(1, wait=6_000_000, held=3_000_000))
    assert figures(ranks(survey=some), "ranks_wait_ns", "ranks_wait_blocking_ns") == (6_000_000, 2_000_000)


def test_waiting_for_other_stages_is_told_apart() -> None:
    both = (exchange((0, 1, 2, 3)), exchange((0, 1), kind="pipeline", wait=3_000_000))
    found = ranks(survey=tuple(survey(rank) for rank in range(4)), exchanges=both)
    assert given(found, "ranks_wait_pipeline_ns", "pipeline_parallel_wait_share", "data_parallel_wait_share") == {
        "ranks_wait_pipeline_ns": 1_500_000,  # 3 ms on two of four ranks
        "pipeline_parallel_wait_share": 3 / 13,
        "data_parallel_wait_share": None,
    }


def test_an_all_reduce_over_the_stages_waits_for_the_pipeline_to_drain() -> None:
    stages = tuple(structs.replace(survey(rank), stage=rank // 2) for rank in range(4))
    told = ranks(survey=stages, exchanges=(exchange((0, 1, 2, 3), wait=1_000_000), exchange((0, 1), wait=3_000_000)))
    assert figures(told, "ranks_wait_pipeline_ns") == (1_000_000,)


def test_the_bubble_is_no_waiting_that_balance_could_win() -> None:
    """Steps lose 25 ms to others, 20 of them in the bubble; of 30 ms of waiting 4 are outside pipeline exchanges."""
    some = tuple(survey(rank, wait=30_000_000, held=25_000_000) for rank in range(2))
    both = (exchange((0, 1), kind="pipeline", wait=26_000_000), exchange((0, 1), wait=4_000_000))
    found = ranks(survey=some, exchanges=both, pipeline=PIPELINE)
    assert figures(found, "ranks_wait_pipeline_ns", "ranks_wait_blocking_ns") == (26_000_000, 4_000_000)
    less = ranks(survey=tuple(survey(rank, wait=30_000_000, held=22_000_000) for rank in range(2)), exchanges=both, pipeline=PIPELINE)
    assert rank_facts(less, STEP)["ranks_wait_blocking_ns"] == 2_000_000


def test_nothing_matched_is_not_known_rather_than_nought() -> None:
    bare = ranks(survey=tuple(survey(rank, wait=None) for rank in range(2)), exchanges=(exchange((0, 1), matched=0, unmatched=5, wait=0),))
    assert figures(bare, "matched_exchanges", "matched_share") == (0, 0.0)
    waits = ("ranks_wait_ns", "ranks_wait_blocking_ns", "expert_exchange_wait_share", "straggler_wait_ns", "rotating_wait_ns")
    assert given(bare, *waits) == dict.fromkeys(waits)
    assert figures(ranks(exchanges=()), "matched_exchanges", "matched_share") == (0, None)


# --- who is late ------------------------------------------------------------------------------------------------------


def test_the_costliest_straggler_speaks() -> None:
    slow = structs.replace(late(6, 20_000_000, cause="slow_host", pattern="mostly", share=0.7), alike=(2, 7), launch_ratio=1.5)
    uneven = structs.replace(late(None, 90, cause="more_work", pattern="rotating"), bucket="attention", longer_ns=80)
    found = ranks(late=(late(1, 5_000_000), slow, uneven))
    names = [name for name in OF_RANKS if name.startswith(("straggler", "lateness", "rotating"))]
    assert given(found, *names) == {
        "straggler_rank": "6", "straggler_wait_ns": 20_000_000, "straggler_wait_share": 0.2, "straggler_saves_ns": 20_000_000,
        "straggler_saves_share": 0.2, "rotating_saves_ns": 90, "straggler_last_share": 0.7,
        "straggler_cause": "slow_host", "straggler_bucket": "dense_gemm", "straggler_longer_ns": 9_000_000,
        "straggler_launch_ratio": 1.5,
        "straggler_exchanges": "expert, data", "lateness_pattern": "mostly", "rotating_wait_ns": 90, "rotating_wait_share": 90 / STEP,
        "rotating_cause": "more_work", "rotating_bucket": "attention", "rotating_uneven_ns": 80, "straggler_with": "ranks 2, 7",
        "straggler_transfer_saves_ns": None, "straggler_unseen_ns": None, "straggler_paced_ns": None,
    }  # fmt: skip


SECOND = structs.replace(late(6, 9_000_000, cause="slow_host", longer=8_000_000), saves_ns=7_000_000, alike=(2, 7))
ANOTHER: dict[str, tuple[tuple[Late, ...], tuple[FactValue, ...]]] = {  # late ranks; rank, those with it, wait, what is saved
    "by a cause of its own": ((late(1, 20_000_000), SECOND), ("6", "ranks 2, 7", 9_000_000, 7_000_000)),
    "of several the one that costs most": (
        (late(1, 20_000_000), SECOND, late(4, 8_000_000, cause="vision_work")), ("4", None, 8_000_000, 8_000_000)),
    "by the same cause it is no other": ((late(1, 20_000_000), late(6, 9_000_000)), (None, None, 0, 0)),
    "late with the straggler": (
        (structs.replace(late(1, 20_000_000), alike=(6,)), late(6, 9_000_000, cause="slow_host")), (None, None, 0, 0)),
    "of an unknown cause it may wait for the straggler": ((late(1, 20_000_000), late(6, 9_000_000, cause="unknown")), (None, None, 0, 0)),
    "ranks that are late in turn are no other rank": (
        (late(1, 20_000_000), late(None, 9_000_000, cause="expert_work", pattern="rotating")), (None, None, 0, 0)),
    "alone": ((late(1, 20_000_000),), (None, None, 0, 0)),
}  # fmt: skip


@for_each("found, expected", *ANOTHER.values())
def test_another_straggler(found: tuple[Late, ...], expected: tuple[FactValue, ...]) -> None:
    assert figures(ranks(late=found), "another_rank", "another_with", "another_wait_ns", "another_saves_ns") == expected


def test_another_straggler_s_cause_is_told_in_words_and_its_heuristics_are_inferred() -> None:
    found = ranks(late=(late(1, 20_000_000), structs.replace(SECOND, status="inferred")))
    told = figures(found, "another_cause", "another_because", "another_longer_ns", "another_saves_share")
    assert told == ("slow_host", "its CPU launches late", 8_000_000, 0.07)
    assert inferred_rank_facts(found) == {"another_rank", "another_with", "another_cause", "another_because", "another_longer_ns"}
    unmatched = ranks(survey=tuple(survey(rank, wait=None) for rank in range(2)), exchanges=(exchange((0, 1), matched=0, wait=0),))
    assert figures(unmatched, "another_wait_ns", "another_saves_ns") == (None, None)


def test_another_straggler_s_tokens_also_make_the_exchanges_longer() -> None:
    worst = structs.replace(experts((0, 1, 2, 3), 6_000_000), transfer_ns=8_000_000, elements_spread=2.0)
    found = ranks(late=(late(1, 20_000_000), late(3, 6_000_000, cause="expert_work")), experts=(worst,))
    assert figures(found, "another_saves_ns") == (10_000_000,)


def test_what_ranks_that_were_not_captured_may_wait_longer_is_told() -> None:
    slow = structs.replace(late(2, 5_000_000), saves_ns=7_000_000)
    assert figures(ranks(late=(slow,)), "straggler_wait_ns", "straggler_unseen_ns") == (5_000_000, 2_000_000)
    assert figures(ranks(late=(structs.replace(slow, saves_ns=5_000_000),)), "straggler_unseen_ns") == (None,)


@for_each("members, said", (range(8), 3_000_000), (range(4), 1_000_000))
def test_ranks_of_other_groups_wait_for_the_exchanges_of_a_busy_rank_too(members: range, said: int) -> None:
    """Of 13 ms of transfer 3 ms are the busy rank's; where others than its group's wait, they wait for these."""
    busy = structs.replace(late(7, 5_000_000, cause="expert_work"), ranks=tuple(range(8)), saves_ns=4_000_000)
    group = structs.replace(experts(tuple(members), 5_000_000), transfer_ns=13_000_000)
    assert figures(ranks(late=(busy,), experts=(group,)), "straggler_transfer_saves_ns") == (said,)
    even = structs.replace(experts(range(4, 8), 500_000), transfer_ns=1_300_000)  # wins 0.5 and 0.3 ms itself
    assert figures(ranks(late=(busy,), experts=(group, even)), "straggler_transfer_saves_ns") == (min(3_000_000, said + 800_000),)
    other = structs.replace(busy, cause="slow_host")
    assert figures(ranks(late=(other,), experts=(group,)), "straggler_transfer_saves_ns") == (None,)


def test_who_is_late_alike_is_named_and_where_ranks_take_turns_nobody_is() -> None:
    slow = late(2, 5_000_000)
    assert figures(ranks(late=(slow,)), "straggler_rank", "straggler_with") == ("2", None)
    others = (late(3, 2_600_000), late(4, 2_400_000), late(5, 5_000_000, cause="slow_host"))  # as costly; less than half; another cause
    assert figures(ranks(late=(slow, *others)), "straggler_rank", "straggler_with") == ("2", "rank 3")
    found = ranks(late=(late(None, 7_000_000, pattern="rotating"), late(None, 8_000_000, pattern="rotating")))
    names = ("straggler_rank", "straggler_wait_ns", "lateness_pattern", "rotating_wait_ns")
    assert figures(found, *names) == (None, 0, "rotating", 8_000_000)


def test_between_clocks_that_do_not_agree_or_were_not_compared_it_is_not_said_that_nobody_is_late() -> None:
    found = ranks(clocks=(clock(aligned=True), clock(aligned=False, residual=(-9_000_000, 4))))
    assert figures(found, "clocks_aligned", "straggler_wait_ns", "clock_residual_ns") == (False, None, 9_000_000)
    assert rank_facts(ranks(clocks=()), STEP)["clocks_aligned"] is None


@for_each("host, aligned", ("host 0", True), ("unknown", None))
def test_ranks_of_one_host_share_its_clock(host: str, aligned: bool | None) -> None:
    found = ranks(survey=(survey(0, host=host), survey(1, host=host)), clocks=())
    assert figures(found, "clocks_aligned", "clock_residual_ns") == (aligned, None)


@for_each("cause", "slow_gpu", "unknown")
def test_an_inferred_cause_is_marked(cause: LateCause) -> None:
    assert inferred_rank_facts(None) == inferred_rank_facts(ranks(late=(late(1, 5, cause=cause),))) == frozenset()
    marked = inferred_rank_facts(ranks(late=(late(1, 5, cause=cause, status="inferred"),)))
    assert "straggler_cause" in marked
    assert "straggler_wait_ns" not in marked, "the waiting is measured"
    assert marked <= OF_RANKS


def test_start_skew() -> None:
    def skewed(rank: int, begins: int) -> StartSkew:
        return StartSkew(rank=rank, begins_ns=begins, ends_ns=100, text="")

    found = ranks(skew=(skewed(0, 3_000_000), skewed(4, -102_000_000)))
    assert figures(found, "start_skew_ns", "start_skew_ranks") == (102_000_000, 2)
    blind = ranks(survey=tuple(survey(rank, skew=None) for rank in range(2)))
    assert figures(blind, "start_skew_ns", "start_skew_ranks") == (None, None)


# --- imbalance --------------------------------------------------------------------------------------------------------


def test_the_expert_group_that_loses_most_speaks() -> None:
    found = ranks(experts=(experts((0, 1, 2, 3), 2_000_000), experts((4, 5, 6, 7), 6_000_000)))
    assert given(found, *(name for name in OF_RANKS if name.startswith(("expert_imbalance", "expert_busiest")))) == {
        "expert_imbalance_ns": 6_000_000, "expert_imbalance_share": 0.06, "expert_imbalance_spread": 1.3, "expert_busiest_rank": "7",
        "expert_busiest_share": 0.75,
    }  # fmt: skip


def test_uneven_experts_lengthen_their_all_to_alls_too() -> None:
    """The exchanges take 13 ms, 1.3 times what they would with the mean's tokens; None where their transfer is not told."""
    uneven = structs.replace(experts((0, 1, 2, 3), 2_000_000), transfer_ns=13_000_000)
    turns = late(None, 5_000_000, cause="expert_work", pattern="rotating")
    names = ("expert_transfer_saves_ns", "rotating_saves_ns")
    assert figures(ranks(experts=(uneven,), late=(turns,)), *names) == (3_000_000, 8_000_000)
    assert figures(ranks(experts=(uneven,), late=(structs.replace(turns, cause="more_work"),)), *names) == (3_000_000, 5_000_000)
    assert figures(ranks(experts=(experts((0, 1, 2, 3), 2_000_000),), late=(turns,)), *names) == (None, 5_000_000)


def test_what_a_straggler_saves_is_what_it_costs_unless_told() -> None:
    one = late(1, 6_000_000)
    assert figures(ranks(late=(one,)), "straggler_wait_ns", "straggler_saves_ns") == (6_000_000, 6_000_000)
    assert figures(ranks(late=(structs.replace(one, saves_ns=750_000),)), "straggler_wait_ns", "straggler_saves_ns") == (6_000_000, 750_000)


def test_where_another_sets_the_pace_pauses_of_a_straggler_win_what_the_step_does() -> None:
    one = late(1, 6_000_000, cause="slow_host")
    less = structs.replace(one, saves_ns=750_000)
    told = [figures(ranks(late=(each,)), "straggler_paced_ns") for each in (one, less, structs.replace(less, cause="slow_gpu"))]
    assert told == [(None,), (750_000,), (None,)]


def test_the_pipeline_and_the_tail_of_data_parallel_ranks() -> None:
    names = [name for name in OF_RANKS if name.startswith(("pipeline_bubble", "pipeline_expected", "pipeline_virtual", "stage"))]
    assert given(ranks(pipeline=PIPELINE), *names) == {
        "pipeline_bubble_ns": 20_000_000, "pipeline_bubble_share": 0.2, "pipeline_expected_bubble_share": 0.12,
        "stage_imbalance_ns": 10_000_000, "stage_imbalance_share": 0.1, "stage_slowest": "1", "stage_even_saves_ns": 8_000_000,
        "pipeline_virtual_saves_ns": 6_000_000,
    }  # fmt: skip
    found = ranks(tail=(DataTail(rank=0, tail_ns=1_000_000), DataTail(rank=1, tail_ns=4_000_000)))
    assert figures(found, "data_tail_ns", "data_tail_share") == (2_500_000, 0.025)


# --- the capture ------------------------------------------------------------------------------------------------------


def test_problems_are_counted_in_full_and_missing_ranks_only_with_a_world_size() -> None:
    problems = (
        RankProblem(kind="missing", ranks=tuple(range(8, 72)), count=504, text=""),
        RankProblem(kind="duplicate", ranks=(3,), count=1, text=""),
        RankProblem(kind="steps", ranks=(1, 2), count=2, text=""),
        RankProblem(kind="failed", ranks=(5,), count=1, text=""),
    )
    names = ("ranks_missing", "ranks_duplicate", "ranks_uneven_steps", "ranks_failed")
    assert figures(ranks(world_size=512, problems=problems), *names) == (504, 1, 2, 1)
    assert figures(ranks(world_size=None), "ranks_missing", "ranks_not_captured") == (None, None)
    assert figures(ranks(), "ranks_missing", "ranks_not_captured") == (0, None)


def test_ranks_that_were_not_captured_are_named_as_far_as_they_are_few() -> None:
    def told(*missing: int, count: int) -> FactValue:
        return rank_facts(ranks(problems=(RankProblem(kind="missing", ranks=missing, count=count, text=""),)), STEP)["ranks_not_captured"]

    assert told(3, count=1) == "rank 3"
    assert told(*range(10), count=100) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"


# --- a slow link ------------------------------------------------------------------------------------------------------

LINK = ("slow_link_ns", "slow_link_share", "slow_link_ranks")


def groups(*changed: object, hosts: tuple[str, ...] = ("host 0", "host 1", "host 2")) -> Ranks:
    """Three groups of two ranks, one per host, with these exchanges."""
    found = tuple(survey(rank, host=hosts[rank // 2]) for rank in range(6))
    return ranks(survey=found, exchanges=changed)


def surveyed(**each: list[object]) -> tuple[RankSurvey, ...]:
    """Six ranks; `each`: what differs, per rank."""
    return tuple(survey(rank, **{name: values[rank] for name, values in each.items()}) for rank in range(6))


SAME = exchange((0, 1)), exchange((4, 5))
SLOW = exchange((2, 3), transfer=20_000_000)
PACED = exchange((0, 1), pace=50.0), exchange((4, 5), pace=50.0)
SIZES = [exchange(members, transfer=transfer) for members in ((0, 1), (2, 3)) for transfer in (1_000_000, 19_000_000)]
NO_LINK: tuple[int | None, float | None, str | None] = (None, None, None)  # nothing to hold a group against
EVEN = (0, 0.0, None)
TWICE = (10_000_000, 1.0, "2, 3")
HOST_PAIRS = [f"host {rank // 2}" for rank in range(6)]
LINKS: dict[str, tuple[Ranks, tuple[int | None, float | None, str | None]]] = {
    "held against the median of its likes": (
        groups(exchange((0, 1)), exchange((2, 3), transfer=15_000_000), exchange((4, 5), transfer=10_000_000)), (5_000_000, 0.5, "2, 3")),
    # Half the exchanges matched in half the time: the same pace.
    "fewer matched exchanges are no faster link": (
        groups(*SAME, exchange((2, 3), transfer=5_000_000, matched=200, unmatched=200)), EVEN),
    # The transfer is per step, the count of the whole capture: eight steps instead of four hold twice the exchanges.
    "more captured steps are no slower link": (
        ranks(survey=surveyed(host=HOST_PAIRS, steps=[8, 8, 4, 4, 4, 4]),
              exchanges=(exchange((0, 1), matched=800), exchange((2, 3)), exchange((4, 5)))), EVEN),
    # Known sizes go before durations: a group that moves twice as much in twice the time has the same link; one at half the pace has not.
    "twice as much in twice the time": (groups(*PACED, exchange((2, 3), transfer=20_000_000, pace=50.0)), EVEN),
    "half the pace": (groups(*PACED, exchange((2, 3), transfer=20_000_000, pace=25.0)), TWICE),
    "one size that is not known leaves durations": (
        groups(exchange((0, 1)), exchange((2, 3), transfer=20_000_000, pace=50.0), exchange((4, 5), pace=50.0)), TWICE),
    "each group inside a host": (groups(*SAME, SLOW, hosts=("host 0", "host 1", "host 0")), TWICE),
    "a group inside a host is not held against one across hosts": (
        ranks(survey=surveyed(host=["host 0"] * 3 + ["host 1"] + ["host 0"] * 2), exchanges=(*SAME, SLOW)), EVEN),
    "other parts of the model are no likes": (
        ranks(survey=surveyed(group=[f"stage {rank // 2}" for rank in range(6)]),
              exchanges=(exchange((0, 1)), SLOW, exchange((4, 5), transfer=40_000_000))), NO_LINK),
    "other kinds are no likes": (groups(exchange((0, 1)), exchange((2, 3), kind="data", transfer=20_000_000)), NO_LINK),
    "unmatched groups are no likes": (groups(exchange((0, 1)), exchange((2, 3), matched=0, transfer=0)), NO_LINK),
    # Its shortest participant may still have waited for one that was not captured.
    "a group that was not captured as a whole": (groups(*SAME, exchange((2, 3), transfer=20_000_000, size=4)), EVEN),
    # Large and small exchanges of the same ranks are no likes of each other.
    "several communicators of the same ranks are taken together": (groups(*SIZES), EVEN),
    "several communicators of the same ranks alone": (groups(*SIZES[:2]), NO_LINK),
    "several communicators, one slow": (groups(*SIZES[:3], exchange((2, 3), transfer=29_000_000)), (10_000_000, 0.5, "2, 3")),
    "groups that share a rank are no likes": (groups(exchange((0, 1)), exchange((1, 2), transfer=20_000_000)), NO_LINK),
}  # fmt: skip


@for_each("found, expected", *LINKS.values())
def test_a_slow_link(found: Ranks, expected: tuple[int | None, float | None, str | None]) -> None:
    assert tuple(given(found, *LINK).values()) == expected


HIDDEN = exchange((0, 1), stalled=4_000_000), exchange((4, 5), stalled=6_000_000)
STALLED: dict[str, tuple[Ranks, tuple[int | None, int | None, str | None]]] = {
    "as much is hidden of a slow one": (groups(*HIDDEN, exchange((2, 3), transfer=20_000_000, stalled=15_000_000)), (10_000_000, 10_000_000, "2, 3")),
    "the likes' are hidden, and most of the slow one's": (
        groups(exchange((0, 1), stalled=0), exchange((2, 3), transfer=20_000_000, stalled=3_000_000), exchange((4, 5), stalled=0)),
        (10_000_000, 3_000_000, "2, 3")),
    "hidden, it costs nothing": (groups(*HIDDEN, exchange((2, 3), transfer=20_000_000, stalled=4_000_000)), (10_000_000, 0, "2, 3")),
    "at most what they take longer": (groups(*HIDDEN, exchange((2, 3), transfer=12_000_000, stalled=12_000_000)), (2_000_000, 2_000_000, "2, 3")),
    # Of half the exchanges half is stalled: as much of one as of its likes', and half as much again.
    "by one exchange": (groups(*SAME, exchange((2, 3), transfer=10_000_000, stalled=7_500_000, matched=200)), (5_000_000, 2_500_000, "2, 3")),
    "the group speaks that compute is stalled on most": (
        groups(*SAME, exchange((2, 3), transfer=20_000_000, stalled=10_000_000),
               *(exchange(members, kind="data") for members in ((0, 1), (2, 3))), exchange((4, 5), kind="data", transfer=14_000_000)),
        (4_000_000, 4_000_000, "4, 5")),
    "not recorded": (groups(*SAME, structs.replace(SLOW, stalled_ns=None)), (10_000_000, None, "2, 3")),
}  # fmt: skip


@for_each("found, expected", *STALLED.values())
def test_a_slow_link_costs_what_compute_is_stalled_on_it_longer(found: Ranks, expected: tuple[int | None, int | None, str | None]) -> None:
    assert tuple(given(found, "slow_link_ns", "slow_link_stalled_ns", "slow_link_ranks").values()) == expected


ACROSS = [f"host {number}" for number in (0, 1, 2, 3, 4, 5)]
WIDER: dict[str, tuple[list[str], tuple[object, ...], int | None]] = {  # hosts; exchanges beside a link of half the pace; what they add
    "of all ranks over the same path": (ACROSS, (exchange(range(6), kind="data", transfer=8_000_000, stalled=3_000_000),), 1_500_000),
    "compute hides them": (ACROSS, (exchange(range(6), kind="data", stalled=0),), None),
    "not with all of its ranks": (ACROSS, (exchange((0, 1, 2), kind="data"),), None),
    "within the group itself": (ACROSS, (exchange((2, 3), kind="data"),), None),
    "that leave the host have another path": (HOST_PAIRS, (exchange(range(6), kind="data"),), None),
    "hosts are not known": (["unknown"] * 6, (exchange(range(6), kind="data"),), None),
    "with peer groups of their own": (
        [*ACROSS, "host 6", "host 7"], (exchange((0, 1, 2, 3), kind="data"), exchange((4, 5, 6, 7), kind="data")), None),
}  # fmt: skip


@for_each("hosts, others, expected", *WIDER.values())
def test_collectives_without_peers_may_be_as_slow_over_the_same_link(
    hosts: list[str], others: tuple[object, ...], expected: int | None
) -> None:
    found = ranks(survey=tuple(survey(rank, host=host) for rank, host in enumerate(hosts)), exchanges=(*SAME, SLOW, *others))
    assert figures(found, "slow_link_stalled_ns", "slow_link_wider_ns") == (10_000_000, expected)


def test_a_straggler_by_its_slow_link_costs_at_least_what_the_link_does() -> None:
    """The link of ranks 2 and 3 stalls compute 10 ms longer; rank 1 has another, and a rank of another stage may set the pace."""
    told = [
        figures(structs.replace(groups(*SAME, SLOW), late=(each,)), "straggler_saves_ns")[0]
        for one in (late(2, 3_000_000, cause="slow_link"), late(2, 12_000_000, cause="slow_link"), late(1, 3_000_000, cause="slow_link"))
        for each in (one, structs.replace(one, saves_ns=2_000_000))
    ]
    assert told == [10_000_000, 2_000_000, 12_000_000, 2_000_000, 3_000_000, 2_000_000]
    assert figures(structs.replace(groups(*SAME, SLOW), late=(late(2, 3_000_000, cause="slow_gpu"),)), "straggler_saves_ns") == (3_000_000,)


@for_each("world, share", (6, 1.0), (8, None), (None, None))
def test_groups_of_unknown_size_are_whole_where_the_whole_job_was_captured(world: int | None, share: float | None) -> None:
    unsized = groups(exchange((0, 1), size=None), exchange((2, 3), transfer=20_000_000, size=None), exchange((4, 5), size=None))
    assert rank_facts(structs.replace(unsized, world_size=world, captured=6), STEP)["slow_link_share"] == share


# --- texts and places -------------------------------------------------------------------------------------------------


def test_long_lists_of_ranks_are_cut() -> None:
    assert rank_list(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert rank_list(range(64)) == "0, 1, 2, 3, 4, 5, 6, 7 and 56 more"


def test_places_name_the_ranks_behind_the_facts_that_are_there() -> None:
    found = ranks(
        late=(late(3, 5_000_000), late(6, 4_000_000, cause="slow_host"), late(None, 90, pattern="rotating")),
        skew=(StartSkew(rank=4, begins_ns=5, ends_ns=0, text=""),),
        experts=(experts((4, 5, 6, 7), 6),),
        pipeline=PIPELINE,
        tail=(DataTail(rank=0, tail_ns=1), DataTail(rank=1, tail_ns=4)),
        exchanges=(exchange((0, 1, 2, 3), transfer=12_000_000), exchange((4, 5, 6, 7))),
        problems=(RankProblem(kind="duplicate", ranks=(6, 2), count=2, text=""), RankProblem(kind="steps", ranks=(1,), count=1, text="")),
    )
    assert {place.removeprefix("ranks:"): where.ranks for place, where in rank_where(found).items()} == {
        "straggler": (3,),
        "another": (6,),
        "rotating": (0, 1, 2, 3),
        "skewed": (4,),
        "experts": (7,),
        "stages": (1,),
        "tail": (1,),
        "link": (0, 1, 2, 3),
        "duplicate": (2, 6),
        "steps": (1,),
        "captured": tuple(range(8)),
    }
    assert set(rank_where(found)) == {place for place in places_of(load_buckets()) if place.startswith("ranks:")}
    assert rank_where(None) == {}
    assert set(rank_where(ranks())) == {"ranks:captured"}
