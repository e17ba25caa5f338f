"""The table of what buckets hold: complete, and wrong files are refused."""

from __future__ import annotations

import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge.bucket_meanings import load_bucket_meanings, parse_bucket_meanings
from diagnose.model.vocabulary import BUCKETS

ENTRY = "{holds: a, elsewhere: b, told_by: c, traps: [], sources: []}"


def whole() -> dict[str, str]:
    return dict.fromkeys(BUCKETS, ENTRY)


def written(entries: dict[str, str]) -> bytes:
    return "".join(f"{name}: {entry}\n" for name, entry in entries.items()).encode()


def test_every_bucket_is_told_in_the_order_of_the_vocabulary() -> None:
    assert tuple(load_bucket_meanings()) == BUCKETS
    assert tuple(parse_bucket_meanings(written(dict(reversed(whole().items()))))) == BUCKETS
    assert all(one.holds and one.told_by and one.traps for one in load_bucket_meanings().values())
    assert all(one.sources for name, one in load_bucket_meanings().items() if name != "other")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({name: entry for name, entry in whole().items() if name != "norm"}, "missing or unknown: norm"),
        (whole() | {"norms": ENTRY}, "missing or unknown: norms"),
        (whole() | {"norm": ENTRY.replace("holds", "hold")}, "unknown field `hold`"),
        (whole() | {"norm": "[]"}, "Expected `object`"),
        (whole() | {"norm": "{"}, "bucket_meanings.yaml is wrong"),
    ],
)
def test_wrong_files_are_refused(entries: dict[str, str], said: str) -> None:
    with pytest.raises(RuleFileError, match=said) as raised:
        parse_bucket_meanings(written(entries))
    assert raised.value.exit_code == 2
