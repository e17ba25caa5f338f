"""Interval arithmetic against a model that counts single nanoseconds."""

import random
from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from diagnose.model.intervals import clip, covered, levels, merge, overlaps, sweep, union_length
from tests.builders.cases import for_each

SPAN = st.tuples(st.integers(-40, 40), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))
SPANS = st.lists(SPAN, max_size=12)


def frame(spans: list[tuple[int, int]], **more: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {"start": [a for a, _ in spans], "end": [b for _, b in spans], **more}, schema_overrides={"start": pl.Int64, "end": pl.Int64}
    )


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for a, b in spans for moment in range(a, b)}


def rows(table: pl.DataFrame) -> list[tuple[int, int]]:
    return list(table.select("start", "end").iter_rows())


@given(SPANS)
def test_union_length_counts_each_moment_once(spans: list[tuple[int, int]]) -> None:
    table = frame(spans)
    assert union_length(table["start"], table["end"]) == len(moments(spans))


@given(SPANS)
def test_merge_is_disjoint_sorted_and_covers_the_same_moments(spans: list[tuple[int, int]]) -> None:
    merged = rows(merge(frame(spans)))
    assert moments(merged) == moments(spans)
    assert all(before[1] < after[0] for before, after in pairwise(merged))


@for_each("parts, spans_of_all", (3, 900), (300, 900), (3, 3900))
def test_parts_are_merged_apart_however_many_there_are_and_however_long(parts: int, spans_of_all: int) -> None:
    chance = random.Random(parts)
    starts = [chance.randrange(3 * spans_of_all // parts) for _ in range(spans_of_all)]
    spans = [(chance.randrange(parts), start, start + chance.randrange(6)) for start in starts]
    found = merge(pl.DataFrame(spans, schema=["part", "start", "end"], orient="row").sample(fraction=1, shuffle=True, seed=1), ["part"])
    assert found.columns == ["part", "start", "end"]
    nothing = merge(found.clear().with_columns(pl.lit(0).alias("other")), ["part"])
    assert (nothing.schema, nothing.height) == (found.schema, 0)
    assert found.rows() == [
        (part, *row) for part in range(parts) for row in rows(merge(frame([(start, end) for one, start, end in spans if one == part])))
    ]


@given(SPANS, st.integers(-50, 50), st.integers(0, 60))
def test_what_is_clipped_lies_in_the_window(spans: list[tuple[int, int]], start: int, length: int) -> None:
    merged = merge(frame(spans))
    assert moments(rows(clip(merged, start, start + length))) == set(range(start, start + length)) & moments(spans)


@given(SPANS, SPANS)
def test_what_is_covered_of_each_is_their_common_moments(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    found = covered(frame(spans), merge(frame(others)))
    assert found.to_list() == [len(moments([span]) & moments(others)) for span in spans]


@given(SPANS, SPANS)
def test_overlaps_are_the_common_moments_of_each_pair(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = merge(frame(left)), merge(frame(right))
    found = overlaps(a, b)
    assert moments(rows(found)) == moments(left) & moments(right)
    for i, j, start, end in found.select("left", "right", "start", "end").iter_rows():
        assert max(a["start"][i], b["start"][j]) == start
        assert min(a["end"][i], b["end"][j]) == end


@given(st.lists(st.tuples(SPAN, st.integers(0, 4)), max_size=14), st.lists(st.integers(-40, 60), max_size=3))
def test_sweep_tells_for_every_moment_which_classes_ran(items: list[tuple[tuple[int, int], int]], cuts: list[int]) -> None:
    swept = sweep(frame([span for span, _ in items], bit=[bit for _, bit in items]), cuts=pl.Series(cuts, dtype=pl.Int64))
    expected: dict[int, int] = {}
    for (a, b), bit in items:
        for moment in range(a, b):
            expected[moment] = expected.get(moment, 0) | 1 << bit
    assert {moment: mask for a, b, mask in swept.iter_rows() for moment in range(a, b) if mask} == expected
    assert not any(a < cut < b for a, b, _ in swept.iter_rows() for cut in cuts)


def test_the_highest_class_keeps_the_sign_of_the_mask() -> None:
    table = frame([(0, 10), (2, 8)], bit=[61, 0])
    assert sweep(table).rows() == [(0, 2, 1 << 61), (2, 8, (1 << 61) + 1), (8, 10, 1 << 61)]


def test_levels_add_up_what_runs_in_each_segment() -> None:
    """Cut at 6 too; between busy segments nothing runs."""
    table = frame([(0, 4), (2, 8), (10, 12)], weight=[5, 3, 7])
    assert levels(table, cuts=pl.Series([6])).rows() == [(0, 2, 5), (2, 4, 8), (4, 6, 3), (6, 8, 3), (8, 10, 0), (10, 12, 7)]
