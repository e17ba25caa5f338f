"""How often comparisons and gates are right: a small part of reports/noise.md, which `python -m fixtures noise` makes in full."""

import random

import pytest

from fixtures.noise import MODELS, POWER_OF, Row, gate_of, measured, misses, pair, power, text
from tests.builders.cases import for_each
from tests.builders.comparing import RULES
from tests.builders.suites import deep_unless

LIMITS = RULES.limits.noise


def row(model: str, base: int, new: int, effect: float, steps: int = 5, pairs: int = 150) -> Row:
    return measured(model, base, new, steps, effect, pairs, LIMITS)


@pytest.mark.parametrize("model", deep_unless(("run shift 2 %", "two kinds of step", "nightly"), MODELS))
def test_a_baseline_of_five_runs_is_seldom_wrong_about_equal_runs(model: str) -> None:
    """At most 5 % changed, 1 % of gates failed: with 150 pairs two standard errors are 3.6 and 1.6 points more.

    Of runs of two lengths alone an interval covers less than it says; noise.md tells by how much.
    """
    found = row(model, 5, 3, 0.0)
    assert found.false_changes <= 0.05 + 0.036
    assert found.gate_failed <= 0.01 + 0.016
    assert found.covered >= 0.88


@for_each(
    "model, effect, least", ("run shift 1 %", 0.05, 0.9), ("independent 1 %", 0.05, 0.95), ("spikes", 0.10, 0.95), ("warm-up", 0.05, 0.9)
)
def test_true_changes_are_found_with_three_new_runs(model: str, effect: float, least: float) -> None:
    assert row(model, 5, 3, effect, pairs=80).regression >= least


@for_each("steps", 3, 4, 5, 10)
def test_an_interval_that_is_called_95_per_cent_covers(steps: int) -> None:
    """Of one run against one too, if runs differ by no more than is assumed."""
    for model in ("independent 3 %", "run shift 1 %"):
        assert row(model, 1, 1, 0.0, steps=steps).covered >= 0.95 - 0.045, model


@for_each("model", *POWER_OF[1:3])
def test_what_would_have_shown_is_found_in_four_of_five(model: str) -> None:
    found = power(model, 5, 3, 5, 150, LIMITS)
    assert 0.7 <= found.found <= 0.9
    assert found.stated > 0.02


def test_no_change_is_hardly_ever_said_of_a_change_of_the_limit() -> None:
    for model in ("run shift 2 %", "nightly", "two kinds of run"):
        found = row(model, 5, 3, 0.05)
        assert found.no_change <= 0.05, model


def test_the_gate_of_the_report_is_that_of_the_program() -> None:
    clear = pair(MODELS["run shift 1 %"][1], random.Random(1), 5, 3, 5, 0.10, LIMITS)
    assert (clear.result, gate_of(clear, 5, 3, LIMITS)) == ("regression", False)
    none = pair(MODELS["run shift 1 %"][1], random.Random(1), 10, 3, 5, 0.0, LIMITS)
    assert gate_of(none, 10, 3, LIMITS) is True


def test_the_report_shows_what_is_missed() -> None:
    rows = [
        row("two kinds of run", base, new, effect, steps=steps, pairs=4)
        for base, new in ((5, 1),)
        for effect in (0.0,)
        for steps in (3, 5, 10)
    ]
    bad = Row(**{**{name: getattr(rows[0], name) for name in rows[0].__dataclass_fields__}, "gate_failed": 0.25, "steps": 7})
    assert misses([*rows, bad])["At most 1 % false gate failures"][-1] == "two kinds of run, 1 against 5, 7 steps: 25.0 %"
    assert "# Noise" in text([], [], 4).splitlines()[0]
