"""What is more than noise: decisions one by one; what is assumed, and what is measured. How often they are right: test_noise_rates.py."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import scipy
from hypothesis import example, given
from hypothesis import strategies as st

from diagnose.document.device import StepSplit
from diagnose.reason.compare.delta import SplitRun
from diagnose.reason.compare.noise import Decision, distance_astray
from diagnose.reason.compare.outcome import held_in_long_steps
from diagnose.reason.compare.patterns import NO_LONG_STEPS, Held, long_steps, patterns, what_long_steps_hold
from diagnose.reason.compare.runs import Named
from tests.builders.cases import for_each
from tests.builders.compared import document
from tests.builders.comparing import RULES, compare, decide

STEPS = st.floats(1e6, 1e9)
SIDE = st.lists(st.lists(STEPS, min_size=2, max_size=5), min_size=1, max_size=4)
QUIET = (0.0, 0.1, -0.1, 0.05, -0.05)


def said(base: Sequence[float], new: Sequence[float], **options: Any) -> Decision:
    """One run against one."""
    return decide([base], [new], **options)


def runs(*levels: float) -> list[list[float]]:
    """Runs of five quiet steps each at these levels."""
    return [[level + wobble for wobble in QUIET] for level in levels]


@given(SIDE, SIDE, st.booleans())
@example(base=[[1e6, 1e6]], new=[[1e6, 1e6, 37e6, 62e6]], paired=False)  # steps of two kinds on one side, and another number of steps
def test_swapping_the_sides_turns_everything_round(base: list[list[float]], new: list[list[float]], paired: bool) -> None:
    there, back = (decide(*sides, paired=paired) for sides in ((base, new), (new, base)))
    assert there.delta == pytest.approx(-back.delta, abs=1e-6)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.low is not None
    assert there.high is not None
    assert there.low <= there.delta <= there.high
    moved = {"regression", "improvement"}
    if there.result in moved and back.result in moved:
        assert there.result != back.result


@given(SIDE)
def test_the_same_samples_are_no_change(side: list[list[float]]) -> None:
    found = decide(side, [list(reversed(run)) for run in side])
    assert (found.result, found.basis, found.delta) == ("no_change", "identical", 0.0)


# --- several runs -----------------------------------------------------------------------------------------------------


def test_noise_between_runs_is_measured_and_decides() -> None:
    """Runs 2 % apart: one new run 3 % above shows nothing, however quiet its steps are; three at 6 % do."""
    base = runs(100, 102, 98, 101, 99)
    one = decide(base, runs(103))
    assert (one.result, one.basis, one.source) == ("cannot_tell", "runs", "measured")
    assert one.between == pytest.approx(0.0158, rel=0.02)
    three = decide(base, runs(105, 107, 106))
    assert three.result == "regression"
    assert three.base == pytest.approx(100)
    assert three.new == pytest.approx(106)
    assert three.low is not None
    assert 0 < three.low < 6
    assert decide(runs(105, 107, 106), base).result == "improvement"
    better = decide(base, runs(105, 107, 106), larger_is_worse=False)
    assert (better.result, better.worse) == ("improvement", pytest.approx(-0.06))


def test_what_few_runs_show_is_held_together_with_what_is_assumed() -> None:
    quiet = decide(runs(100, 100.1), runs(103))
    assert (quiet.source, quiet.result) == ("partly assumed", "regression")
    assert decide(runs(100, 100.1), runs(103), run_noise=0.03).result == "cannot_tell"
    measured = runs(100, 101, 99, 100, 100.5, 99.5)
    assert decide(measured, runs(106, 105), run_noise=0.2) == decide(measured, runs(106, 105)), "what is measured needs no assumption"


def test_what_is_assumed_never_makes_less_of_the_noise_that_few_runs_show() -> None:
    base, new = runs(100, 106), runs(108, 112)
    found = decide(base, new)
    assert (found.source, found.result) == ("partly assumed", "cannot_tell"), "held together it would be 2.1 %, and a regression"
    assert found.between == pytest.approx(0.0347, rel=0.02)
    assert decide(base, new, run_noise=0.03).p_value == found.p_value


def test_measured_noise_shows_less_than_the_floor_of_assumed_noise() -> None:
    base = runs(100, 100.05, 99.95, 100.02, 99.98)
    assert decide(base, runs(101, 101.05, 100.95)).result == "regression"
    assert decide(base, runs(100.3, 100.31, 100.29)).result == "no_change", "half a per cent is of no use to anybody"


def shown_by(base: int, new: int, of_one: float) -> float:
    """What so many runs show in four of five comparisons, where one new run beside as many shows `of_one`: by Student's t of scipy."""

    def reach(size: int) -> float:
        freedom = base + size - 2
        shares = 1 - RULES.limits.noise.p_value.value / 2, RULES.limits.noise.power.value
        return float(math.sqrt(1 / base + 1 / size) * sum(scipy.stats.t.ppf(share, freedom) for share in shares))

    return math.expm1(math.log1p(of_one) / reach(1) * reach(new))


def test_how_many_runs_more_would_show_the_tolerance() -> None:
    found = decide(runs(100, 103, 97, 101, 99), runs(102))
    assert found.result == "cannot_tell"
    assert found.smallest is not None
    assert found.smallest > 0.05
    assert found.more is not None
    more_base, more_new = found.more
    assert more_base == 0
    assert more_new + 1 == next(size for size in range(2, 99) if shown_by(5, size, found.smallest) <= 0.05)
    few = decide([[100.0, 103, 97]], [[101.0, 104, 98]])
    assert few.more is not None
    assert few.more[0] == few.more[1] > 0
    assert decide(runs(100, 101, 99, 100, 100), runs(100, 100, 101)).more is None, "what shows the tolerance already needs none"


@for_each(
    "steps, result",
    ((100.1, 112.0, 128.0), "cannot_tell"), ((112.0, 112.1, 128.0), "regression"),
    ((100.1, 100.2, 112.0, 128.0), "cannot_tell"), ((112.0, 128.0), "cannot_tell"), ((112.0,), "regression"),
)  # fmt: skip
def test_a_median_that_no_other_step_bears_is_not_known(steps: tuple[float, ...], result: str) -> None:
    """Two of three steps were held up: ten quiet runs do not tell how well the median of this one is known."""
    base = [[level, level + 0.1, level - 0.1] for level in (100, 100.5, 99.5, 101, 99, 100.2, 99.8, 100.1, 99.9, 100)]
    assert decide(base, [list(steps)]).result == result
    assert decide([list(steps)], base).result in {result, "improvement"}


# --- one run against one ----------------------------------------------------------------------------------------------


def test_one_run_against_one_goes_by_an_assumed_noise() -> None:
    found = said([100.0, 100.1, 99.9, 100.05, 100.02], [102.5, 102.6, 102.4, 102.55, 102.52])
    assert (found.basis, found.source, found.between, found.result) == ("two captures", "assumed", 0.01, "cannot_tell")
    assert found.low is not None
    assert found.low < 0 < found.delta
    assert said([100.0, 100.1, 99.9], [106.0, 106.1, 105.9]).result == "regression"
    known = said([100.0, 100.1, 99.9, 100.05, 100.02], [102.5, 102.6, 102.4, 102.55, 102.52], run_noise=0.002)
    assert (known.source, known.result) == ("given", "regression")


def test_more_steps_do_not_make_up_for_runs() -> None:
    """A hundred steps of one run each: the interval still holds what runs differ by."""
    chance = random.Random(1)
    base, new = ([level + chance.gauss(0, 0.5) for _ in range(100)] for level in (100, 102))
    found = said(base, new)
    assert found.result != "regression"
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 5


@for_each("new, result", (112.0, "regression"), (88.0, "improvement"), (101.5, "cannot_tell"), (103.0, "cannot_tell"), (100.0, "no_change"))
def test_one_step_against_one_is_never_no_change_but_where_it_is_the_same(new: float, result: str) -> None:
    found = said([100.0], [new])
    assert found.result == result
    assert (found.low, found.high, found.p_value) == (None, None, None)
    if new != 100:
        assert found.basis == "single step"


@for_each(
    "base, new, options, result",
    # counts repeat more exactly than times
    ([1000.0], [1030.0], {"counts": True}, "regression"),
    ([1000.0], [1003.0], {"counts": True}, "no_change"),
    ([100.0, 101, 99, 130, 100.5], [112.0, 145, 113, 111, 112.5], {}, "regression"),  # spikes do not blind it
    # steps of two lengths widen the interval
    ([100.0, 108.1, 100.2, 107.9, 100.1], [108.0, 100.1, 108.2, 107.8, 99.9], {}, "cannot_tell"),
)
def test_of_one_run_against_one(base: list[float], new: list[float], options: dict[str, bool], result: str) -> None:
    assert said(base, new, **options).result == result


def test_the_same_steps_in_both_captures_cancel_out() -> None:
    """Steps that differ much among themselves, and alike in both runs (a warm-up): what they have in common tells nothing of noise."""
    base = [108.0, 104.1, 102.2, 101.0, 100.4]
    new = [value * 1.05 for value in base]
    assert said(base, new).result == "cannot_tell"
    assert said(base, new, paired=True).result == "regression"
    several = decide([base, [one + 0.2 for one in base], [one - 0.1 for one in base]], [new, [*new[:4], 106.0]])
    assert several.result == "regression"


@for_each(
    "run, astray",
    ((100.0, 104.0, 112.0), 0.0),  # the nearest lies four times as far as steps scatter, and no farther
    ((100.0, 104.5, 112.0), 4.5),
    ((100.0, 104.0, 104.0, 112.0), 0.0),
    ((100.0, 110.0), 5.0),  # each as far from what lies between them
    ((100.0,), 0.0),
)
def test_a_median_lies_astray_where_no_step_is_as_near_as_steps_scatter(run: tuple[float, ...], astray: float) -> None:
    assert (distance_astray(run, 1.0), distance_astray(run, 0.0)) == (astray, 0.0)


def test_what_is_relative_is_the_same_in_any_unit() -> None:
    """Steps of 100 that scatter by 2: in nanoseconds or in hours, 2 % of the level."""
    base, new = [[98.0, 100, 102, 100, 98.5], [99.0, 101, 100, 102.5, 98]], [[112.0, 110, 113, 111, 112.5], [111.0, 114, 112, 110, 113]]
    found, scaled = (decide(*([[one * by for one in run] for run in side] for side in (base, new))) for by in (1.0, 1e6))
    told = [(one.within, one.between, one.relative, one.smallest, one.tolerance, one.result) for one in (found, scaled)]
    assert told[0][:4] == pytest.approx(told[1][:4], rel=1e-6)
    assert told[0][4:] == told[1][4:]
    assert found.within == pytest.approx(0.02, rel=0.3)


def test_nought_in_base_has_no_relative_change() -> None:
    found = said([0.0, 0, 0, 0], [5.0, 6, 5, 6])
    assert (found.relative, found.worse, found.smallest, found.result) == (None, None, None, "regression")
    assert said([0.0], [0.0]).result == "no_change"


# --- patterns ---------------------------------------------------------------------------------------------------------


def seen(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> str:
    return " ".join(
        patterns(
            base,
            new,
            [[f"{side}{number}" for number in range(len(runs))] for side, runs in (("b", base), ("n", new))],
            metric="step_time",
            rules=RULES,
        )
    )


def test_a_warm_up_two_kinds_of_steps_and_two_kinds_of_runs_are_said() -> None:
    falling = [[108.0, 104.1, 102.2, 101.0, 100.4], [107.5, 104.5, 102.0, 101.2, 100.1]]
    assert "a warm-up" in seen(falling[:1], falling[1:])
    assert "drop the first step" in seen(falling[:1], falling[1:])
    two = [[100.0, 108.1, 100.2, 107.9, 100.1, 108.0]]
    assert "The steps of base are of two lengths, 7.9 % apart (3 short, 3 long)" in seen(two, runs(100))
    assert "The runs of base fall into two groups, 6.0 % apart (3 fast, 2 slow)" in seen(runs(100, 106, 100.1, 106.1, 99.9), runs(100))


def test_steps_that_get_longer_within_a_capture_are_no_two_kinds_of_step() -> None:
    falling_clock = [[100.0, 100.3, 99.8, 100.1, 100.2, 99.9, 109.8, 110.1, 110.4, 109.9]]
    said = seen(runs(100), falling_clock)
    assert said.startswith("The steps of new get 9.9 % longer within the capture (6 short, then 4 long), as when the clock falls")
    assert "are of two lengths" in seen(runs(100), [falling_clock[0][::-1]]), "the other way no clock is known to go"
    assert "are of two lengths" in seen(runs(100), [[100.0, 100.1, 99.9, 110.0, 110.2, 109.9]]), "one of twenty orders"


def test_a_few_long_steps_leave_no_doubt_of_where_the_median_lies() -> None:
    assert not seen(runs(100), [[100.0, 100.2, 130.0, 99.9, 100.1, 100.0, 99.8, 130.4, 100.1, 100.3, 99.9, 100.0, 100.1, 99.9, 100.2]])


def test_one_run_that_stands_apart_from_the_others_of_its_side_is_named() -> None:
    base = runs(100, 100.5, 99.6, 100.2, 99.8)
    assert seen(base, runs(100.3, 120, 99.9)).startswith("n1 stands 19.9 % above the other runs of new")
    assert seen(runs(*(sum(run) / len(run) for run in base), 90), runs(100)).startswith("b5 stands 10.0 % below the other runs of base")
    assert not seen(base, runs(120)), "the only run of a side has no others"
    assert not seen(base, runs(110, 110.4, 109.7)), "a side that is slower as a whole"


def test_plain_noise_is_nothing_to_say() -> None:
    chance = random.Random(7)
    sides = [[[[100 * (1 + chance.gauss(0, 0.02)) for _ in range(5)] for _ in range(3)] for _ in range(2)] for _ in range(300)]
    assert sum(bool(seen(*pair)) for pair in sides) <= 3


def test_a_few_long_steps_are_told_by_the_mean_where_the_median_does_not_see_them() -> None:
    usual = [[60.0e6, 60.2e6, 59.9e6, 60.1e6, 60.0e6, 59.8e6, 60.3e6, 60.1e6]]
    held_up = [[60.1e6, 60.0e6, 180.0e6, 59.9e6, 60.2e6, 60.1e6, 60.0e6, 59.9e6]]
    change, said, steps, *chances = long_steps(usual, held_up, metric="step_time", step="step")
    assert (steps, chances) == (1, [0.5, 0.5])
    assert change == pytest.approx(0.249, abs=0.001)
    assert "The mean over all steps is 24.9 % longer (60.0 → 75.0 ms): 1 of 8 steps of new stand far out, up to 180.0 ms" in said
    back, again, *_ = long_steps(held_up, usual, metric="step_time", step="step")
    assert back < 0
    assert "20.0 % shorter" in again
    assert "of base stand far out" in again


@for_each(
    "n_base, n_new, long, met, said",
    (5, 3, 2, False, "The gate is not met: the typical step is within the 5.0 % that it allows, the mean over all steps is not (+12.5 %)"),
    (1, 1, 2, None, "The gate can't be judged: "),
    (3, 3, 2, None, "because 6 long ones make it. Capture more steps, or more runs, to see how many of them are long."),
    (1, 1, 1, True, "The gate is met: no regression"),  # a mishap of the capture
    (1, 2, 1, True, "The gate is met: no regression"),  # one of nine in each, as chance would have it
)
def test_a_gate_is_not_met_by_a_median_that_leaves_long_steps_out(n_base: int, n_new: int, long: int, met: bool | None, said: str) -> None:
    usual = [60.0e6, 60.2e6, 59.9e6, 60.1e6, 60.0e6, 59.8e6, 60.3e6, 60.1e6, 60.0e6]
    held_up = [90.0e6 if 2 <= place < 2 + long else value for place, value in enumerate(usual)]
    sides = document([{"attention": int(value)} for value in usual]), document([{"attention": int(value)} for value in held_up])
    base, new = ([Named(str(place), one) for place in range(count)] for one, count in zip(sides, (n_base, n_new), strict=True))
    found = compare(base, new, base_label="base", new_label="new", max_regression=0.05)
    assert found.gate is not None
    assert found.gate.met is met
    assert said in found.gate.sentence


def test_what_the_long_steps_hold_is_told_where_one_category_holds_half_of_it() -> None:
    def step(index: int, attention: int, experts: int) -> StepSplit:
        return StepSplit(index=index, window_ns=attention + experts, compute={"attention": attention, "expert_gemm": experts}, absent=())

    usual = [step(index, 20_000_000 + index, 40_000_000) for index in range(8)]
    experts = [SplitRun(steps=[*usual, step(8, 20_000_000, 60_000_000), step(9, 24_000_000, 62_000_000)])]
    assert what_long_steps_hold(experts) == ("compute:expert_gemm", 21_000_000.0, 2)
    said = held_in_long_steps(what_long_steps_hold(experts), RULES.words)
    assert said == " Each holds 21.0 ms more of compute in expert GEMM than the others."
    assert (
        held_in_long_steps(Held("host_sync", 5e6, 1), RULES.words)
        == " It holds 5.00 ms more of idle time under synchronising calls than the others."
    )
    assert what_long_steps_hold([SplitRun(steps=usual)]) == ("", 0.0, 0), "none stands far out"
    assert held_in_long_steps(Held(), RULES.words) == ""


def test_steps_that_both_sides_have_and_plain_noise_change_no_mean() -> None:
    warming = [[90.0, 60.0, 60.1, 59.9, 60.0, 60.2]]
    assert long_steps(warming, [[91.0, 60.1, 60.0, 60.1, 59.8, 60.0]], metric="step_time", step="step") == NO_LONG_STEPS
    assert long_steps(warming, [[60.0] * 6], metric="bucket:router", step="step") == NO_LONG_STEPS
    chance = random.Random(7)
    told = sum(
        bool(long_steps(*([[chance.gauss(100, 4) for _ in range(8)]] for _ in "bn"), metric="step_time", step="step").sentence)
        for _ in range(500)
    )
    assert told == 0


def test_what_is_said_of_other_tools_is_what_they_do() -> None:
    limits = RULES.limits.noise
    assert "asv prints 99 %" in limits.confidence.source
    assert "asv asks p < 0.002" in limits.p_value.source
