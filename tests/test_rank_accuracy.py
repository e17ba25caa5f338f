"""What the document says of many ranks is true: every scenario of several ranks, in both formats, against what the simulator knows."""

from __future__ import annotations

import pytest

from fixtures.rank_accuracy import ROWS, names, read_rows, rows_text, score
from tests.same_text import check_same

RENEW = "a change of behaviour: run `make accuracy`, read the difference, and commit reports/*accuracy.*"


@pytest.mark.parametrize("name", names())
def test_what_is_said_of_many_ranks_is_true(name: str) -> None:
    row = score(name)
    assert [f"{kind}: {wrong}" for kind, read in row.read.items() for wrong in read.wrong] == []
    assert {one.name: one for one in read_rows()}.get(name) == row, RENEW


def test_the_report_has_a_row_for_every_scenario_of_several_ranks() -> None:
    rows = read_rows()
    assert tuple(row.name for row in rows) == names()
    check_same(ROWS.name, ROWS.read_text(encoding="utf-8"), rows_text(rows), RENEW)
