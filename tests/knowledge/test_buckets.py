"""The rows of buckets.yaml: wrong ones are refused, and what the program goes by is there."""

from __future__ import annotations

import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge.buckets import load_buckets
from diagnose.model.vocabulary import METHOD_BUCKETS

ENTRY = '{title: t, colour: "#aabbcc", holds: a, elsewhere: b, told_by: c, traps: [], sources: []}'


def whole() -> dict[str, str]:
    return dict.fromkeys((*METHOD_BUCKETS, "norm"), ENTRY)


def written(entries: dict[str, str]) -> bytes:
    return "".join(f"{name}: {entry}\n" for name, entry in entries.items()).encode()


def test_the_order_of_the_rows_is_the_vocabulary_s() -> None:
    entries = dict(reversed(whole().items()))
    assert tuple(load_buckets(written(entries))) == tuple(entries)


def test_every_bucket_is_explained_and_has_a_colour_of_its_own() -> None:
    rows = load_buckets()
    assert all(row.title and row.holds and row.told_by and row.traps for row in rows.values())
    assert all(row.sources for name, row in rows.items() if name != "other")
    assert len({row.colour for row in rows.values()}) == len(rows)
    assert len({row.part.order for row in rows.values() if row.part}) == sum(1 for row in rows.values() if row.part)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({name: entry for name, entry in whole().items() if name != "dispatch"}, "the bucket dispatch is missing, which measures go by"),
        (whole() | {"Norm s": ENTRY}, "'Norm s' is no name for a bucket"),
        (whole() | {"norm": ENTRY.replace("#aabbcc", "blue")}, "norm: 'blue' is no colour"),
        (whole() | {"norm": ENTRY.replace("holds", "hold")}, "unknown field `hold`"),
        (whole() | {"norm": ENTRY.replace("holds: a", "holds: a, sign: loud")}, "Invalid enum value 'loud'"),
        (whole() | {"norm": "[]"}, "Expected `object`"),
        (whole() | {"norm": "{"}, "buckets.yaml is wrong"),
    ],
)
def test_wrong_files_are_refused(entries: dict[str, str], reason: str) -> None:
    with pytest.raises(RuleFileError, match=reason) as raised:
        load_buckets(written(entries))
    assert raised.value.exit_code == 2
