"""How numbers and names are written."""

from collections.abc import Callable

from diagnose.knowledge.templates import enumerated
from diagnose.render import units
from tests.builders.cases import for_each


@for_each(
    "value, text",
    (None, "–"), (0, "0.000"), (129_012_345, "129.012"), (61_800_000_000, "61,800.000"), (-1_500_000, "-1.500"), (499, "0.000"),
    (500.0, "0.001"),
)  # fmt: skip
def test_milliseconds(value: float | None, text: str) -> None:
    assert units.ms(value) == text


@for_each(
    "value, text", (None, "–"), (1.0, "1.00×"), (6.954, "6.95×"), (9.99, "9.99×"), (84.64, "85×"), (1234.5, "1,234×"), (float("inf"), "∞")
)
def test_a_factor_claims_no_more_than_a_bound_can_know(value: float | None, text: str) -> None:
    assert units.factor(value) == text


@for_each("items, text", ([], ""), (["1"], "1"), (["1", "2"], "1 and 2"), (["1", "2", "3"], "1, 2 and 3"))
def test_a_few_things_in_a_sentence(items: list[str], text: str) -> None:
    assert enumerated(items) == text


def test_a_bound_that_is_hardly_anything_says_so_once() -> None:
    assert [units.at_most(share) for share in (0.029, 0.0002)] == ["at most 2.9 %", "< 0.1 %"]


@for_each(
    "share, text",
    (None, "–"), (0.0, "0.0 %"), (0.0004, "< 0.1 %"), (0.0006, "0.1 %"), (0.123, "12.3 %"), (1.0, "100.0 %"), (-0.02, "-2.0 %"),
)  # fmt: skip
def test_percent_never_rounds_something_to_nothing(share: float | None, text: str) -> None:
    assert units.percent(share) == text


@for_each("told", units.count, units.size, units.ms, units.percent)
def test_what_is_not_known_is_a_dash_whatever_it_is(told: Callable[[float | None], str]) -> None:
    assert told(None) == units.MISSING


@for_each(
    "value, unit, text",
    (None, "ns", "not measured"), (1_500_000, "ns", "1.500 ms"), (0.5, "share", "50.0 %"), (85_520_809_984, "bytes", "79.6 GiB"),
    (512, "bytes", "512 B"), (7_996.5, "count", "7,996.5"), (8_000.0, "count", "8,000"), (True, "bool", "yes"), (False, "bool", "no"),
    ("deepep", "text", "deepep"), (3, "lightyears", "3 lightyears"),
)  # fmt: skip
def test_facts_carry_their_unit(value: float | bool | str | None, unit: str, text: str) -> None:
    assert units.fact(value, unit) == text
