"""The table of what was not assessed: rules that lack the same thing share a row, all others keep their own."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from diagnose.document.diagnosis import SEVERAL_RANKS, NotAssessed
from diagnose.render.reports.diagnosis import appendix
from tests.builders.diagnosis import minimal


def table(rules: Iterable[NotAssessed]) -> list[tuple[str, ...]]:
    found = appendix.not_assessed(structs.replace(minimal(), not_assessed=tuple(rules)))
    return [row.cells for row in found.rows]


def of_ranks(key: str) -> NotAssessed:
    return NotAssessed(id=key, missing=(f"{key}_ns", "ranks_wait_ns"), how=SEVERAL_RANKS)


OTHER = NotAssessed(id="host-garbage-collection", missing=("gc_ns",), how="gc_ns: no range.")
SETTING = NotAssessed(id="capture-benchmark-only", missing=("job_a",), how="Give the job file (--config), which says a.")


def test_rules_that_only_lack_other_ranks_share_one_row() -> None:
    rows = table([of_ranks("late"), OTHER, of_ranks("uneven")])
    assert rows == [
        ("host-garbage-collection", "gc_ns", "gc_ns: no range."),
        ("2 rules", "several ranks", f"{SEVERAL_RANKS} Rules: late, uneven."),
    ]


def test_one_such_rule_keeps_its_own_row() -> None:
    assert table([of_ranks("late"), SETTING]) == [
        ("late", "late_ns, ranks_wait_ns", SEVERAL_RANKS),
        ("capture-benchmark-only", "job_a", "Give the job file (--config), which says a."),
    ]


def test_rules_that_lack_settings_stay_apart_from_them() -> None:
    also = structs.replace(SETTING, id="other", missing=("job_b",))
    rows = table([SETTING, of_ranks("late"), also, of_ranks("uneven")])
    assert [row[:2] for row in rows] == [("2 rules", "several ranks"), ("2 rules", "only job settings")]


def test_rules_that_lack_the_same_facts_for_the_same_reason_share_one_row() -> None:
    twin = structs.replace(OTHER, id="host-manual-gc-not-active")
    other = structs.replace(OTHER, id="host-other", how="gc_ns: no range. Capture it.")
    assert table([OTHER, other, twin]) == [
        ("2 rules", "gc_ns", "gc_ns: no range. Rules: host-garbage-collection, host-manual-gc-not-active."),
        ("host-other", "gc_ns", "gc_ns: no range. Capture it."),
    ]


def test_what_else_rules_of_several_ranks_need_is_told_in_their_row() -> None:
    also = NotAssessed(
        id="stages", missing=("job_pipeline", "stage_ns"), how=f"{SEVERAL_RANKS} Give the job file (--config), which says pipeline."
    )
    assert table([of_ranks("late"), also]) == [
        ("2 rules", "several ranks", f"{SEVERAL_RANKS} Some also need the job file (--config), which says pipeline. Rules: late, stages."),
    ]
