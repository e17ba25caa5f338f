"""What is more than noise: the rank test against enumeration, the interval, and how often equal runs are told apart."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.reason.compare.noise import Decision, Design
from tests.builders.comparing import apart_by, decide, smallest_effect
from tests.builders.suites import deep_unless

VALUES = st.integers(1, 12).map(float)
STEPS = st.floats(1e6, 1e9)


@given(st.lists(STEPS, min_size=2, max_size=7), st.lists(STEPS, min_size=2, max_size=7), st.booleans(), st.booleans())
def test_swapping_the_sides_turns_everything_round(base: list[float], new: list[float], last_apart: bool, paired: bool) -> None:
    design = Design(last_apart=last_apart, paired=paired)
    there, back = (decide(*sides, design=design) for sides in ((base, new), (new, base)))
    assert (there.delta, there.p_value, there.spread) == (-back.delta, back.p_value, back.spread)
    assert there.low is not None
    assert back.high is not None
    assert there.low == pytest.approx(-back.high)
    moved = {"regression", "improvement"}
    # Relative sizes and thresholds hang on the side that is base; what the samples say of the direction does not.
    if there.result in moved and back.result in moved:
        assert there.result != back.result


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_the_same_samples_are_no_change(values: list[float]) -> None:
    found = decide(values, list(reversed(values)))
    assert (found.result, found.basis, found.delta) == ("no_change", "identical", 0.0)


def noisy(chance: random.Random, steps: int, level: float, share: float) -> list[float]:
    return [level * (1 + chance.gauss(0, share)) for _ in range(steps)]


def results(steps: int, share: float, effect: float, times: int) -> Counter[str]:
    chance = random.Random(f"{steps} {share} {effect}")
    return Counter(
        decide(noisy(chance, steps, 100.0, share), noisy(chance, steps, 100.0 * (1 + effect), share)).result for _ in range(times)
    )


@pytest.mark.parametrize("steps", deep_unless((2, 5), [2, 3, 4, 5, 8, 16]))
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_equal_runs_are_seldom_told_apart(steps: int, share: float) -> None:
    """At most once in twenty, as the level of the test says, and hardly ever where steps differ by less than the floor."""
    times = 200
    found = results(steps, share, 0.0, times)
    wrong = found["regression"] + found["improvement"]
    assert wrong <= (0.01 if share == 0.01 else 0.05) * times + 2 * (0.05 * 0.95 * times) ** 0.5 * (share > 0.01), found
    if share == 0.01:
        assert found["no_change"] >= 0.97 * times


@pytest.mark.parametrize("steps", [2, 3, 4, 6, 8, 16])
def test_the_smallest_effect_is_what_is_mostly_found(steps: int) -> None:
    share = 0.03
    found = results(steps, share, smallest_effect(steps, steps, share), 150)
    assert 0.5 <= found["regression"] / 150 <= 0.95, found
    assert found["improvement"] == 0


def test_more_steps_show_less_and_never_less_than_the_floor() -> None:
    shown = [smallest_effect(steps, steps, 0.03) for steps in (2, 3, 4, 6, 8, 16, 32, 64, 128)]
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] > 0.02
    assert smallest_effect(1, 8, 0.001) == 0.05
    assert apart_by(2, 9) > apart_by(3, 9)


# --- decisions, one by one --------------------------------------------------------------------------------------------


def said(base: Sequence[float], new: Sequence[float], **options: Any) -> Decision:
    return decide(base, new, **options)


def test_a_clear_change_is_a_regression_or_an_improvement() -> None:
    base, new = [100.0, 101, 99, 100.5], [112.0, 113, 111, 112.5]
    found = said(base, new)
    assert (found.result, found.basis) == ("regression", "interval and rank test")
    assert found.p_value == pytest.approx(2 / 70)
    assert found.worse == pytest.approx(12 / 100.25)
    assert found.low is not None
    assert 0 < found.low <= found.delta == 12.0
    assert said(new, base).result == "improvement"
    better = said(base, new, larger_is_worse=False)
    assert (better.result, better.worse) == ("improvement", pytest.approx(-12 / 100.25))


def test_no_change_is_what_is_small_and_not_hidden_by_noise_above_the_tolerance() -> None:
    found = said([100.0, 100.1, 99.9, 100.05, 100.02], [101.0, 101.1, 100.9, 101.05, 101.02])
    assert found.p_value is not None
    assert found.p_value <= 0.05
    assert found.result == "no_change"
    assert said([100.0, 120, 90, 105], [104.0, 118, 92, 111]).result == "cannot_tell"
    base, new = [100.0, 103, 98, 101], [101.0, 104, 97, 102]
    assert said(base, new, tolerance=0.001).result == "cannot_tell"
    assert said(base, new, tolerance=0.10).result == "no_change"


@pytest.mark.parametrize(("new", "result"), [(112.0, "regression"), (88.0, "improvement"), (101.5, "no_change"), (103.0, "cannot_tell")])
def test_one_step_against_one_goes_by_an_assumed_noise(new: float, result: str) -> None:
    found = said([100.0], [new])
    assert (found.result, found.basis) == (result, "single step")
    assert (found.low, found.high, found.p_value, found.smallest) == (None, None, None, 0.05)


def test_few_steps_have_to_lie_apart_and_one_heeds_the_spread_of_the_others() -> None:
    assert said([100.0, 101, 99], [112.0]).result == "regression"
    assert said([80.0, 100, 120], [112.0]).result == "cannot_tell"
    found = said([100.0, 101, 99], [112.0, 113, 111])
    assert (found.result, found.basis) == ("regression", "separation")
    assert said([100.0, 101, 99], [104.0, 105, 103]).result == "cannot_tell"  # apart, but by less than is assumed of single steps
    assert said([100.0, 101, 99], [103.0, 104, 102]).result == "no_change"  # the interval lies within the tolerance
    assert said([100.0, 104], [110.0, 114]).result == "cannot_tell"  # two steps: their spread is hardly known


def test_a_last_step_that_is_cut_short_is_held_against_its_like() -> None:
    base, new = [100.0, 101, 99, 92], [95.0, 96, 94.5, 87]
    assert said(base, new).result == "cannot_tell"
    found = decide(base, new, design=Design(last_apart=True))
    assert found.result == "improvement"
    assert found.p_value == pytest.approx(2 / 40)


def test_the_same_steps_in_both_captures_are_drawn_in_pairs() -> None:
    """Steps that differ much among themselves, and alike in both runs: what they have in common cancels out of the interval."""
    base = [100.0, 130, 95, 111, 122, 87]
    new = [value * 1.01 for value in base]
    assert said(base, new).result == "cannot_tell"
    found = decide(base, new, design=Design(paired=True))
    assert found.result == "no_change"
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 1
    assert decide(base, new[:5], design=Design(paired=True)).low == said(base, new[:5]).low  # not of one length: no pairs


@pytest.mark.parametrize("steps", [3, 4, 8])
def test_pairs_do_not_make_a_change_look_like_none(steps: int) -> None:
    """Steps that have nothing in common: a change of 8 %, beyond the tolerance, is hardly ever called none."""
    chance = random.Random(steps)
    found = Counter(
        decide(noisy(chance, steps, 100, 0.05), noisy(chance, steps, 108, 0.05), design=Design(paired=True)).result for _ in range(200)
    )
    assert found["no_change"] <= 10, found


def test_nought_in_base_has_no_relative_change() -> None:
    found = said([0.0, 0, 0, 0], [5.0, 6, 5, 6])
    assert (found.relative, found.worse, found.smallest, found.result) == (None, None, None, "regression")
    assert said([0.0], [0.0]).result == "no_change"
