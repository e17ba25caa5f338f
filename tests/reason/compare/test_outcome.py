"""The sentences of a comparison: what moved, and by which exchange."""

import pytest

from diagnose.document.comparison import Category, OverlapChange
from diagnose.model.vocabulary import CommKind
from diagnose.reason.compare.outcome import _exchange


def exchange(kind: CommKind, exposed_more: int) -> OverlapChange:
    """An exchange, all of it exposed, that takes so much longer."""
    return OverlapChange(
        kind=kind, backend="nccl", base_busy_ns=500, new_busy_ns=500 + exposed_more, base_exposed_ns=500, new_exposed_ns=500 + exposed_more,
        base_overlap=0.0, new_overlap=0.0, lost_ns=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("grew", "others", "named"),
    [
        ((100, 60), (), "expert"),
        ((100, 49), (), None),  # less than half of it
        ((100, -60), (), None),  # the other way
        ((-100, -60), (), "expert"),
        ((100, 60), (exchange("data", 70),), "data"),
        ((100, 30), (exchange("expert", 30),), "expert"),  # over two backends
    ],
)
def test_the_exchange_that_holds_half_of_what_moved_is_named(
    grew: tuple[int, int], others: tuple[OverlapChange, ...], named: CommKind | None
) -> None:
    row = Category(category="transport", base_ns=500, new_ns=500 + grew[0], delta_ns=grew[0], moved=True)
    found = _exchange(row, (exchange("expert", grew[1]), *others))
    assert (None if found is None else found.kind) == named
