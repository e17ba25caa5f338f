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


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("ranks-healthy-eight", 2),
        ("ranks-healthy-eight", 3),
        ("ranks-straggler", 2),
        ("ranks-slow-host-two-hosts", 2),
        ("ranks-expert-hot-rank", 3),
        ("ranks-expert-imbalance", 2),
        ("ranks-vision-imbalance", 2),
        ("ranks-start-skew-two-hosts", 2),
        ("ranks-pipeline-uneven", 2),
    ],
)
def test_it_is_true_under_other_chances(name: str, seed: int) -> None:
    """Limits that fit only one draw of noise would be no limits."""
    row = score(name, ("nsys",), seed=seed)
    assert [wrong for read in row.read.values() for wrong in read.wrong] == []


def test_the_report_has_a_row_for_every_scenario_of_several_ranks() -> None:
    rows = read_rows()
    assert tuple(row.name for row in rows) == names()
    check_same(ROWS.name, ROWS.read_text(encoding="utf-8"), rows_text(rows), RENEW)
