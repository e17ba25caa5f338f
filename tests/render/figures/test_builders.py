"""What each figure shows: the numbers of its document, in the places where a reader looks for them."""

from itertools import pairwise

import pytest
from msgspec import structs

from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from diagnose.document.device import TimelineColumns
from diagnose.render import words
from diagnose.render.figures import bisection, comparison, ranks, step
from diagnose.render.figures import forecast as forecasts
from diagnose.render.figures.figure import Bars, Cells, Figure, Point, Points, Spans
from tests.builders import bisection as bisections
from tests.builders import comparison as comparisons
from tests.builders.diagnosis import many_ranks, minimal, ms, rich, rich_ranks
from tests.builders.documents import COLUMNS, figures_of, forecast


def having(found: k.Ranks) -> d.Diagnosis:
    return structs.replace(rich(), ranks=found)


def lengths(figure: Figure, row: int) -> int:
    """The sum of a row's bars, in ns; they follow each other without a gap."""
    spans = sorted((bar.start, bar.length) for mark in figure.marks if isinstance(mark, Bars) for bar in mark.data if bar.row == row)
    assert all(start + length == pytest.approx(after, abs=1e-6) for (start, length), (after, _) in pairwise(spans))
    return round(sum(length for _, length in spans) * 1e6)


def cells(figure: Figure) -> Cells:
    (mark,) = figure.marks
    assert isinstance(mark, Cells)
    return mark


# --- a diagnosis ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_step_add_up_to_it() -> None:
    (device, *_) = rich().budget
    figure = step.budget(rich(), device)
    assert figure.y.names == tuple(f"step {one.index}" for one in device.per_step)
    assert [lengths(figure, row) for row in range(3)] == [one.window_ns for one in device.per_step]
    assert [note.text for note in figure.notes] == [f"{one.window_ns / 1e6:,.3f} ms" for one in device.per_step]


def test_buckets_and_communication_add_up_to_their_busy_time() -> None:
    document = rich()
    (device, *_) = document.budget
    buckets, exchanges = step.buckets(document, device), step.communication(document, device)
    busy = {words.bucket(row.bucket): row.busy_ns for row in document.buckets if (row.rank, row.device) == (0, 0)}
    assert {name: lengths(buckets, row) for row, name in enumerate(buckets.y.names)} == busy
    known = [row.busy_ns for row in document.communication if (row.rank, row.device) == (0, 0)]
    assert [lengths(exchanges, row) for row in range(len(exchanges.y.names))] == sorted(known, reverse=True)


def spans_of(columns: TimelineColumns) -> tuple[Figure, Spans]:
    shown = rich().timeline
    assert shown is not None
    figure = step.timeline(rich(), structs.replace(shown, columns=columns))
    (spans,) = figure.marks
    assert isinstance(spans, Spans)
    return figure, spans


def test_the_timeline_has_every_operation_and_gap_in_its_lane() -> None:
    figure, spans = spans_of(COLUMNS)
    assert len(spans.row) == 20_003
    assert sorted(figure.y.names[1:]) == ["stream 7", "stream not recorded"]
    assert [look.label for look in spans.looks[:3]] == [
        "no compute: stalled on communication",
        "no compute: CPU: Python",
        "no compute: sunspots",
    ]
    first, rows = COLUMNS.start_ns[1], [figure.y.names.index(name) for name in ("stream 7", "stream not recorded")]
    assert (spans.row[:5], spans.start[:5]) == ((0, 0, 0, *rows), (*COLUMNS.gap_start_ns, 0, first))
    assert (spans.length[:3], spans.length[3:]) == (COLUMNS.gap_duration_ns, COLUMNS.duration_ns)
    assert [spans.looks[place].label for place in spans.look[3:5]] == ["attention", "dispatch"]
    assert [spans.names[place] for place in spans.name[3:5]] == ["flash", "combine"]
    assert (spans.queued[3:5], spans.range[3:5], spans.by[:5]) == ((COLUMNS.queued_ns[0], -1), (2, -1), (4, -1, -1, -1, -1))
    assert "20,000 operations" in figure.caption


def test_one_colour_of_the_timeline_has_one_meaning() -> None:
    buckets = {words.bucket_colour(name) for name in words.BUCKET_COLOUR}
    causes = [words.gap_look(cause) for cause in words.CAUSE_LOOKS]
    assert not buckets & {look.colour for look in causes}
    assert len({look.colour for look in causes}) == len(set(causes))


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    assert [key for key, figure in figures_of(minimal()).items() if not figure.marks] == []
    assert "rank-heat" not in figures_of(minimal())


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_the_heat_map_shows_differences_from_the_median_of_the_like() -> None:
    found = ranks.heat(rich_ranks())
    assert found is not None
    assert found.labels == tuple(f"rank {rank}" for rank in range(8))
    assert found.groups == (("stage 0", 0), ("stage 1", 4))
    assert found.buckets[:3] == ("expert_gemm", "attention", "dispatch")
    gemm = [cell.difference_ns for cell in found.cells[0]]
    middle = (ms(48.2) + ms(48.2 * 1.004)) / 2
    assert gemm[:2] == [ms(48.2) + ms(20.4) - middle, ms(48.2) - middle]
    assert found.largest_ns == gemm[0]
    by_bucket = dict(zip(found.buckets, found.cells, strict=True))
    assert [cell.difference_ns for cell in by_bucket["loss"]][:4] == [None] * 4  # no rank of stage 0 has a loss
    figure = ranks.heat_map(rich(), found)
    mark = cells(figure)
    assert mark.data[0][0].value == round(found.largest_ns / 1e6, 4)
    assert mark.high == -mark.low == pytest.approx(found.largest_ns / 1e6)
    assert [(mark.shade(value)[0], mark.shade(value)[1]) for value in (mark.high, mark.low)] == [(ranks.MORE, 1), (ranks.LESS, 1)]
    assert [(note.text, note.x) for note in figure.notes] == [("stage 0", -0.4), ("stage 1", 3.6)]
    assert [band.low for band in figure.bands] == [3.5]


def test_what_is_within_the_noise_of_a_step_has_no_strong_colour() -> None:
    found = ranks.heat(rich_ranks())
    assert found is not None
    even = structs.replace(
        rich(), steps=structs.replace(rich().steps, duration_ns=structs.replace(rich().steps.duration_ns, median=ms(4_000)))
    )
    assert cells(ranks.heat_map(even, found)).high == 80  # 2 % of the step, where the largest difference is 20 ms


def test_a_rank_alone_in_its_group_differs_from_nothing() -> None:
    lonely = structs.replace(rich_ranks(), survey=(rich_ranks().survey[0], rich_ranks().survey[4]))
    assert ranks.heat(lonely) is None
    assert "rank-heat" not in figures_of(having(lonely))


def test_the_parts_of_a_strip_add_up_to_the_steps() -> None:
    found = rich_ranks()
    figure = figures_of(having(found))["rank-strips"]
    for row, one in enumerate(found.survey):
        assert figure.y.names[row] == f"rank {one.rank}"
        assert lengths(figure, row) == sum(step.window_ns for step in one.steps)
    assert [look.label for look in figure.legend] == ["without waiting", "waiting for others", "not split: nothing was matched"]


def test_hundreds_of_ranks_are_drawn_as_a_map_of_own_time() -> None:
    figure = figures_of(having(many_ranks(512)))["rank-strips"]
    mark = cells(figure)
    assert (len(figure.x.names), len(figure.y.names)) == (512, 10)
    assert mark.data[0][5].value == pytest.approx(215.05 - 8.8)
    assert max(cell.value for row in mark.data for cell in row if cell.value is not None) == mark.high


# --- a comparison -----------------------------------------------------------------------------------------------------


def test_both_budgets_are_drawn_to_the_nanosecond_on_one_scale() -> None:
    document = comparisons.rich()
    assert document.delta is not None
    figure = figures_of(document)["budgets"]
    assert figure.y.names == ("base", "new")
    assert [lengths(figure, row) for row in range(2)] == [document.delta.base_ns, document.delta.new_ns]


def test_the_waterfall_leads_from_one_step_to_the_other() -> None:
    document = comparisons.rich()
    assert document.delta is not None
    legs = list(comparison.legs(document, document.delta))
    assert (legs[0].end, legs[-1].end) == (document.delta.base_ns, document.delta.new_ns)
    at = document.delta.base_ns
    for leg in legs[1:-1]:
        assert leg.start == at
        at = leg.end
    assert at == document.delta.new_ns
    labels = ["base", "exposed communication", "compute: expert GEMM", "launch-bound", "compute: elementwise", "9 others", "new"]
    assert [leg.label for leg in legs] == labels
    figure = figures_of(document)["waterfall"]
    assert figure.y.names == tuple(labels)
    low, high = figure.x.extent
    for mark in figure.marks:
        assert isinstance(mark, Bars)
        for row, start, length, _ in mark.data:
            assert round(start * 1e6) == max(min(legs[row].start, legs[row].end), round(low * 1e6))
            assert round((start + length) * 1e6) == max(legs[row].start, legs[row].end)
            assert low <= start <= start + length <= high


def test_no_way_is_drawn_where_nothing_is_known_or_differs() -> None:
    assert figures_of(comparisons.minimal()) == {}
    assert list(figures_of(comparisons.identical())) == ["budgets"]


def test_a_step_that_became_shorter_is_drawn_too() -> None:
    found = comparisons.rich().delta
    assert found is not None
    turned = structs.replace(
        found,
        base_ns=found.new_ns,
        new_ns=found.base_ns,
        delta_ns=-found.delta_ns,
        categories=tuple(structs.replace(row, base_ns=row.new_ns, new_ns=row.base_ns, delta_ns=-row.delta_ns) for row in found.categories),
    )
    figure = figures_of(structs.replace(comparisons.rich(), delta=turned))["waterfall"]
    assert figure.notes[1].text == "-29.565 ms"
    assert [look.label for look in figure.legend] == ["the whole", "takes longer", "takes less"]


# --- a bisection ------------------------------------------------------------------------------------------------------


def points(figure: Figure) -> dict[str, tuple[Point, ...]]:
    return {mark.look.label: mark.data for mark in figure.marks if isinstance(mark, Points)}


def test_the_metric_is_drawn_with_levels_skips_limit_and_the_step() -> None:
    figure = figures_of(bisections.rich())["metric"]
    found = points(figure)
    assert list(found) == ["one capture", "as the good end", "as the bad end", "can't tell", "skipped"]
    assert [point.x for point in found["as the good end"]] == [1, 4, 9]
    assert [(point.x, point.y) for point in found["as the bad end"]] == [(10, 157.9), (16, 158.3)]
    assert [(point.low, point.high) for point in found["as the bad end"]] == [(156.7, 159.1), (157.1, 159.5)]
    assert [point.x for point in found["skipped"]] == [8, 13]
    assert len(found["one capture"]) == 9
    good_band, bad_band, changed, allowed = figure.bands
    assert (good_band.low, good_band.high, bad_band.low, bad_band.high) == (119.2, 121.6, 157.1, 159.5)
    assert (changed.axis, changed.low, changed.high) == ("x", 9.2, 10.2)
    assert (allowed.axis, allowed.low) == ("y", pytest.approx(120.4 * 1.03))
    assert [(note.text, note.x) for note in figure.notes] == [(f"▼ {bisections.rich().culprits[0].label[:12]}", 10)]
    assert "change of 3.0 % that was allowed" in figure.caption
    low, high = figure.y.extent
    assert all(low < y < high for data in found.values() for point in data for y in (point.y, point.low, point.high) if y is not None)
    assert [look.label for look in figure.legend] == ["as the good end", "as the bad end", "can't tell", "skipped"]


def test_a_metric_of_which_less_is_worse_has_its_limit_below() -> None:
    document = structs.replace(bisections.rich(), larger_is_worse=False, max_regression=0.1)
    assert bisection.limit(document) == pytest.approx(120.4e6 * 0.9)
    assert bisection.limit(structs.replace(document, max_regression=None)) is None
    assert bisection.limit(structs.replace(document, good_value=None)) is None


def test_no_metric_is_drawn_where_nothing_was_measured() -> None:
    assert figures_of(bisections.minimal()) == {}


def test_a_single_value_and_a_step_that_is_not_in_the_list() -> None:
    document = structs.replace(bisections.several(), candidates=bisections.several().candidates[:1], good_value=None, bad_value=None)
    assert next(bisection.figures(document)).notes == ()
    alone = structs.replace(document.candidates[0], low=None, high=None)
    figure = figures_of(structs.replace(document, candidates=(alone,), trials=()))["metric"]
    assert figure.bands == ()
    low, high = figure.y.extent
    assert low < points(figure)["as the good end"][0].y < high


# --- a forecast -------------------------------------------------------------------------------------------------------


def test_a_forecast_is_as_wide_as_its_range() -> None:
    assert forecasts.width(forecast()) == 90_000_000 - 62_000_000
    assert forecasts.width(forecast(told=False)) == 0
