"""What the simulated scenarios prove: every row of reports/accuracy.json is scored afresh, and the rows prove what has to be proven."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures import scenario
from fixtures.accuracy import Row, score
from fixtures.accuracy_report import REPORT, ROWS, criteria, read_rows, report, rows_text
from tests.same_text import check_same

RENEW = "a change of behaviour: run `make accuracy`, read the difference, and commit reports/accuracy.*"


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return read_rows()


@pytest.mark.parametrize("name", scenario.names())
def test_a_fresh_score_equals_the_report(name: str, rows: tuple[Row, ...]) -> None:
    stored = {row.name: row for row in rows}
    assert name in stored, RENEW
    assert score(name) == stored[name], RENEW


def test_the_report_has_a_row_for_every_scenario_and_no_other(rows: tuple[Row, ...]) -> None:
    assert tuple(row.name for row in rows) == scenario.names()


def test_the_report_is_made_of_the_rows(rows: tuple[Row, ...]) -> None:
    check_same(REPORT.name, REPORT.read_text(encoding="utf-8"), report(rows), RENEW)
    check_same(ROWS.name, ROWS.read_text(encoding="utf-8"), rows_text(rows), RENEW)


@pytest.mark.parametrize("place", range(11))
def test_the_rows_prove_what_they_have_to(place: int, rows: tuple[Row, ...], record_property: Callable[[str, object], None]) -> None:
    checks = criteria(rows)
    assert len(checks) == 11
    one = checks[place]
    print(f"{one.number}. {one.claim}: {one.found}")  # noqa: T201 - shown with -rP, and where it fails
    record_property(one.claim, one.found)
    assert one.holds, one.found
