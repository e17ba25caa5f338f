"""Clocks are compared by the ends of exchanges, and nothing is said where they differ too much."""

from __future__ import annotations

from diagnose.measure.ranks.matching import LIMIT_NS, MIN_ENDS, clocks, match
from tests.measure.ranks.job_of_ranks import Did, Ran, lane, members

ENDS = [3_000_000 * number + 137_000 * (number * number % 11) for number in range(1, 41)]


def did(rank: int, offset: int, *, host: int | None = None, spread: int = 0, n: int = 40, group: int = 7) -> Did:
    rows = [Ran(start=end - 50_000 + offset, end=end + offset + (number % 5 - 2) * spread // 2) for number, end in enumerate(ENDS[:n])]
    return Did(rank=rank, host=host, lanes={lane(communicator=group): rows})


def compared(*every: Did):  # type: ignore[no-untyped-def]
    found = members(every)
    return clocks(found, match(found, None)[0])


def test_the_offset_is_the_median_of_the_ends() -> None:
    told = compared(did(0, 0), did(1, 4_321_000, spread=30_000))
    (pair,) = told.pairs
    assert (pair.reference, pair.rank, pair.n, pair.aligned) == (0, 1, 40, True)
    assert abs(pair.offset_ns - 4_321_000) <= 15_000
    assert -30_000 <= pair.residual_p5_ns <= 0 <= pair.residual_p95_ns <= 30_000
    assert told.known == {0: (0, 0), 1: (0, pair.offset_ns)}


def test_a_residual_above_the_limit_aligns_nothing() -> None:
    told = compared(did(0, 0), did(1, 0, spread=4 * LIMIT_NS))
    assert [pair.aligned for pair in told.pairs] == [False]
    assert told.known == {0: (0, 0), 1: (1, 0)}
    assert "who comes late" in told.notes[0]


def test_too_few_ends_align_nothing() -> None:
    assert compared(did(0, 0, n=MIN_ENDS - 1), did(1, 0, n=MIN_ENDS - 1)).pairs == ()


def test_one_host_has_one_clock() -> None:
    told = compared(did(0, 0, host=0), did(1, 0, host=0), did(2, 900_000, host=1), did(3, 900_000, host=1))
    assert [(pair.reference_host, pair.host) for pair in told.pairs] == [("host 0", "host 1")]
    assert told.known == {0: (0, 0), 1: (0, 0), 2: (0, 900_000), 3: (0, 900_000)}


def test_offsets_follow_groups_that_share_a_rank() -> None:
    first, third = did(0, 0), did(2, 900_000, group=8)
    both = Did(rank=1, lanes={**did(1, 500_000).lanes, **did(1, 500_000, group=8).lanes})
    assert compared(first, both, third).known == {0: (0, 0), 1: (0, 500_000), 2: (0, 900_000)}


def test_hosts_that_never_meet_are_apart_and_nothing_is_missing() -> None:
    told = compared(did(0, 0, host=0), did(1, 0, host=0), did(2, 5, host=1, group=8), did(3, 5, host=1, group=8))
    assert told.known == {0: (0, 0), 1: (0, 0), 2: (1, 0), 3: (1, 0)}
    assert told.notes == ()
