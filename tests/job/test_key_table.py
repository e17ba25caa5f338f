"""Every key and flag that the rules read or write stands in the table of where the frameworks have it, made from their sources."""

import csv

from tests.builders.facts import BOOK
from tests.job.make_key_table import KNOWN, MISSING, OWN, TABLE, asked_keys


def rows() -> dict[tuple[str, str], list[str]]:
    lines = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {(row[0], row[1]): row[2:] for row in csv.reader(lines, delimiter="\t")}


def test_every_key_of_the_rules_is_in_the_table_and_none_beside() -> None:
    asked = {(framework, key) for framework, keys in asked_keys(BOOK).items() for key in keys}
    table = set(rows())
    assert asked - table == set(), "run `python -m tests.job.make_key_table` on the frameworks' sources"
    assert table - asked == set()


def test_every_key_has_a_place_in_the_sources_or_says_why_it_is_known() -> None:
    found = rows()
    assert {key: row for key, row in found.items() if row[1] == MISSING} == {}
    without = {key: row[1] for key, row in found.items() if row[2] == "-"}
    assert {key: why for key, why in without.items() if why not in (OWN, *KNOWN.values())} == {}
    assert len(without) < 0.05 * len(found)


def test_what_is_written_is_taken_by_the_newest_version() -> None:
    """A fix may read an older key, but it writes one that the framework has today."""
    found = rows()
    newest = {framework: row[2] for (framework, key), row in found.items() if key in NEWEST}
    written = {(one.framework, one.key) for fix in BOOK.fixes.values() for one in fix.changes if one.op == "set" and not one.choose}
    older = {key: found[key] for key in written & set(found) if key[0] in newest and found[key][2] != newest[key[0]]}
    assert {key for key in older if key[0] != "torchtitan"} == set()


NEWEST = ("--num-experts", "model.num_moe_experts")
