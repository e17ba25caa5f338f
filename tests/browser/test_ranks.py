"""Two ranks side by side, as the script of the HTML report fills them in, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from diagnose.render import units, write
from diagnose.render.reports.ranks import pair as rank_compare
from tests.browser.conftest import Opener, Seen
from tests.builders.diagnosis import rich, rich_ranks
from tests.builders.hostile import hostile_diagnosis

pytestmark = [pytest.mark.browser, pytest.mark.deep]


def having(ranks: k.Ranks) -> d.Diagnosis:
    return msgspec.structs.replace(rich(), ranks=ranks)


def lines(page: Any) -> dict[str, list[str]]:
    """The comparison as it stands: label to the three numbers."""
    rows: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('#compare tr[data-row]')].map(row => [...row.cells].slice(0, 4).map(cell => cell.textContent))"
    )
    return {row[0]: row[1:] for row in rows}


def expected(ranks: k.Ranks, first: int, second: int) -> dict[str, list[str]]:
    """The same as Python says it."""
    at_first = msgspec.structs.replace(ranks, slowest=first, survey=(ranks.survey[first], ranks.survey[second]), groups=())
    found = rank_compare.comparison(rich(), at_first)
    assert found is not None
    return {line.label: [line.first, line.second, line.difference] for _, part in found.sections for line in part}


def test_any_two_ranks_stand_side_by_side(opened: Opener) -> None:
    page, seen = opened(rich())
    assert page.locator("#compare .pickers").is_visible()
    assert page.evaluate("[...document.querySelectorAll('#compare select')].map(one => one.selectedOptions[0].text)") == [
        "rank 0 · late",
        "rank 2",
    ]
    before = lines(page)
    page.select_option("#compare-first", "5")
    page.select_option("#compare-second", "3")
    after = lines(page)
    assert after != before
    for label, said in expected(rich_ranks(), 5, 3).items():
        assert after[label] == said, label
    assert page.locator("[data-first]").inner_text() == "rank 5"
    assert page.locator("[data-note]").inner_text() == rank_compare.DIFFERENT
    page.select_option("#compare-second", "7")  # of which nothing was matched
    assert page.locator("[data-note]").inner_text() == rank_compare.SAME
    assert lines(page)["waiting in matched exchanges"] == ["17.200", units.MISSING, units.MISSING]
    page.select_option("#compare-first", "7")
    assert {said[2] for label, said in lines(page).items() if said[2] not in ("", units.MISSING)} == {"0", "0.000"}
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.versus span')].map(one => one.getBoundingClientRect().width))") == 0
    assert seen == Seen()


def test_a_difference_that_is_shown_as_zero_has_no_sign(opened: Opener) -> None:
    survey = rich_ranks().survey
    least = msgspec.structs.replace(survey[1], packing_busy_ns=survey[1].packing_busy_ns + 400, copy_busy_ns=survey[1].copy_busy_ns + 600)
    ranks = msgspec.structs.replace(rich_ranks(), survey=(survey[0], least, *survey[2:]))
    page, _ = opened(having(ranks))
    page.select_option("#compare-second", "1")
    assert (lines(page)["packing ran"][2], lines(page)["copies ran"][2]) == ("0.000", "-0.001")
    assert {label: said for label, said in lines(page).items() if label.endswith("ran")} == {
        label: said for label, said in expected(ranks, 0, 1).items() if label.endswith("ran")
    }


@pytest.mark.parametrize("ns", [62_500, 187_500, 1_234_567_500, 12_062_500, 500, 1_500, 999_999_500, 1_234_567_890_123])
def test_the_script_rounds_as_the_page_does(opened: Opener, ns: int) -> None:
    survey = rich_ranks().survey
    ranks = msgspec.structs.replace(rich_ranks(), survey=(msgspec.structs.replace(survey[0], packing_busy_ns=ns), *survey[1:]))
    page, _ = opened(having(ranks))
    assert lines(page)["packing ran"] == expected(ranks, 0, 2)["packing ran"]


def test_the_script_says_what_the_page_said_without_it(opened: Opener) -> None:
    plain, _ = opened(rich(), scripts=False)
    text = plain.locator("#compare").inner_text()
    assert not plain.locator("#compare .pickers").is_visible()
    drawn, _ = opened(rich())
    drawn.evaluate("document.querySelector('.pickers').hidden = true")
    assert drawn.locator("#compare").inner_text() == text
    assert "+20.400" in text
    widths = "[...document.querySelectorAll('.versus span')].map(one => [one.className, one.style.width])"
    assert [[name, float(width.rstrip("%"))] for name, width in drawn.evaluate(widths)] == [
        [name, float(width)]
        for name, width in re.findall(
            r'class="versus" aria-hidden="true"><span class="(\w+)" style="width:([\d.]+)%"', write(rich(), "html")
        )
    ]


@pytest.mark.parametrize("first", [None, 3])
def test_hostile_names_of_ranks_have_no_power_in_the_comparison(opened: Opener, first: int | None) -> None:
    page, seen = opened(hostile_diagnosis(first))

    def chosen() -> Iterator[tuple[str, str]]:
        for one in ("5", "2", "7"):
            page.select_option("#compare-first", one)
            page.select_option("#compare-second", "1")
            yield from ((label, cell) for label, cells in lines(page).items() for cell in cells)

    said = " ".join(f"{label} {cell}" for label, cell in chosen())
    assert re.search(r"script|onerror|example", said)
    assert page.locator("#compare").evaluate("one => one.querySelectorAll('img, a, iframe, svg, b, script').length") == 0
    assert page.locator("#ranks-said, .ranks-said").locator("img, iframe, svg, script").count() == 0
    assert seen == Seen()
