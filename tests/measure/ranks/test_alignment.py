"""Sequences of ends are laid beside each other where they end together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.measure.ranks.matching import LOOSE_NS, Course, fit


def course(ends: list[int], *, sizes: list[int | None] | None = None, steps: list[int | None] | None = None) -> Course:
    return Course(ends=ends, sizes=sizes or [None] * len(ends), steps=steps or [None] * len(ends))


def ends(n: int, seed: int) -> list[int]:
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
    whole = ends(n, seed)
    missing_first = min(missing_first, n // 3)
    kept = whole[missing_first : n - min(missing_last, n // 4)]
    chance = random.Random(seed + 1)
    found = fit(course(whole), course([end + offset + chance.randrange(-jitter, jitter + 1) for end in kept]))
    assert found is not None
    assert found.shift == missing_first
    assert abs(found.offset - offset) <= jitter


@pytest.mark.parametrize("seed", range(20))
def test_sequences_of_different_groups_do_not_fit(seed: int) -> None:
    chance = random.Random(seed)
    other = sorted(chance.randrange(200_000_000) for _ in range(60))
    assert fit(course(ends(60, seed)), course(other), limit=150_000) is None


def test_a_step_more_on_one_side_does_not_move_the_others() -> None:
    whole = ends(40, 3)
    steps: list[int | None] = [number // 4 for number in range(40)]
    found = fit(course(whole, steps=steps), course(whole[8:], steps=steps[8:]))
    assert found is not None
    assert (found.shift, found.scatter) == (8, 0)


def test_sizes_contradict_a_shift() -> None:
    same = [1_000_000 * number for number in range(1, 21)]
    sizes: list[int | None] = [number % 5 for number in range(20)]
    found = fit(course(same, sizes=sizes), course([end + 7 for end in same[2:]], sizes=sizes[2:]))
    assert found is not None
    assert found.shift % 5 == 2  # evenly spaced: only the sizes tell


def test_nothing_fits_nothing() -> None:
    assert fit(course([]), course([1, 2, 3])) is None
    assert fit(course([1, 2, 3]), course([])) is None


def test_a_spread_beyond_the_limit_is_no_fit() -> None:
    whole = ends(40, 5)
    wild = [end + (number % 2) * 3 * LOOSE_NS for number, end in enumerate(whole)]
    assert fit(course(whole), course(wild)) is None
