"""Every page in a real browser: inert, offline, drawn, readable without scripts and in print, never wider than the window.

And two ranks side

by side, as the script fills them in. Each page is opened once for all tests of this module.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import structs

from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from diagnose.document.comparison import Comparison
from diagnose.model.names import visible
from diagnose.render import units, write
from diagnose.render.reports.ranks import pair as rank_compare
from tests.browser.conftest import Opened, Opener, Seen, settled
from tests.builders import bisection, comparison, diagnosis
from tests.builders.diagnosis import many_ranks, rich_ranks
from tests.builders.documents import figures_of
from tests.builders.hostile import hostile_bisection, hostile_comparison, hostile_diagnosis

pytestmark = [pytest.mark.browser, pytest.mark.deep]
DOCUMENTS = {
    "diagnosis": diagnosis.rich(),
    "empty diagnosis": diagnosis.minimal(),
    "many ranks": structs.replace(diagnosis.rich(), ranks=many_ranks(512)),
    **{f"comparison {name}": made() for name, made in (comparison.SAMPLES | {"huge": comparison.huge}).items()},
    "bisection": bisection.rich(),
    "bisection several": bisection.several(),
}
HOSTILE = {
    **{f"diagnosis {first}": hostile_diagnosis(first) for first in (None, 0, 7, 14)},
    **{f"comparison {first}": hostile_comparison(first) for first in (None, 0, 7)},
    **{f"bisection {first}": hostile_bisection(first) for first in (None, 3)},
}


WIDTHS = (1440, 800, 390)  # of the window, in pixels: a page fits each, a phone's too


@pytest.fixture(scope="module", params=DOCUMENTS)
def shown(request: pytest.FixtureRequest, opened: Opener) -> tuple[Any, Any, Seen]:
    """A document, its page with scripts, and what the page did."""
    return (DOCUMENTS[request.param], *opened(DOCUMENTS[request.param]))


@pytest.fixture(scope="module")
def page_of(opened: Opener) -> Iterator[Any]:
    """The page of a document of this module, opened once, with scripts or without."""
    known: dict[tuple[str, bool], Opened] = {}

    def found(name: str, *, scripts: bool = True) -> Any:
        known.setdefault(
            (name, scripts), opened(DOCUMENTS[name], scripts=scripts) if (name, scripts) not in known else known[name, scripts]
        )
        return known[name, scripts][0]

    return found


def fits(page: Any) -> bool:
    """Whether the page becomes no wider than its window: plotly follows a new width after a moment."""
    for _ in range(200):
        if page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"):
            return True
        page.wait_for_timeout(100)
    return False


def stops_are_right(page: Any) -> bool:
    """Whether just what is wider or taller than its frame is a stop of the Tab key."""
    return bool(
        settled(page).evaluate(
            "[...document.querySelectorAll('.scroll')].every(one => one.hasAttribute('tabindex') === "
            "(one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1))"
        )
    )


# --- every page -------------------------------------------------------------------------------------------------------


def test_figures_are_drawn_and_nothing_overflows(shown: tuple[Any, Any, Seen]) -> None:
    document, page, seen = shown
    figures = figures_of(document)
    drawn = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map(one => [one.dataset.figure, "
        "one.querySelectorAll('.plot .point path, .plot .scatterlayer path.point, .plot .hm image, .live canvas').length]))"
    )
    assert set(drawn) == set(figures)
    assert all(drawn.values())
    assert page.locator(".static").locator("visible=true").count() == 0
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert fits(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert seen == Seen()


def test_print_uses_the_static_figures(shown: tuple[Any, Any, Seen]) -> None:
    document, page, _ = shown
    page.emulate_media(media="print")
    assert page.locator(".static svg.chart").locator("visible=true").count() == len(figures_of(document))
    assert page.locator(".plot, .live, button").locator("visible=true").count() == 0
    page.emulate_media(media="screen")


def test_the_page_is_built_for_everyone(shown: tuple[Any, Any, Seen]) -> None:
    _, page, _ = shown
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => +one.tagName[1])")
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels[1:]) if later > earlier)
    identifiers = page.evaluate("[...document.querySelectorAll('body [id]')].filter(one => !one.closest('.plot')).map(one => one.id)")
    assert len(identifiers) == len(set(identifiers))
    targets = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(one => one.getAttribute('href').slice(1))")
    assert set(targets) <= set(identifiers)
    assert page.evaluate("[...document.querySelectorAll('th')].every(one => one.scope)")
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(one => one.getAttribute('aria-label'))")
    assert stops_are_right(page)
    assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.rows.length > 1)")


def test_without_scripts_every_figure_is_there_and_nothing_overflows(shown: tuple[Any, Any, Seen], opened: Opener) -> None:
    document = shown[0]
    page, seen = opened(document, scripts=False)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        charts = page.locator("svg.chart")
        assert charts.locator("visible=true").count() == charts.count() == len(figures_of(document))
        assert page.locator(".plot").locator("visible=true").count() == 0
        body = page.locator("body").bounding_box()
        assert body["width"] <= width
        boxes = [box.bounding_box() for box in page.locator(".static").all()]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    assert seen == Seen()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_document_has_any_power(opened: Opener, name: str) -> None:
    page, seen = opened(HOSTILE[name])
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.mouse.move(640, 700)
    assert seen == Seen()
    assert page.locator("iframe, img, object, embed, base, form, svg [onload], [onmouseover], [onerror]").count() == 0
    assert page.evaluate("[...document.scripts].every(one => one.parentNode.tagName !== 'MAIN')")
    assert page.evaluate("[...document.querySelectorAll('a')].every(one => one.getAttribute('href').startsWith('#'))")
    sentence = getattr(HOSTILE[name], "sentence", "") or getattr(getattr(HOSTILE[name], "verdict", None), "sentence", "")
    if sentence:
        assert page.locator(".sentence").inner_text().replace("\u00a0", " ") == re.sub(r"\s+", " ", visible(sentence)).strip()


# --- this page and that ----------------------------------------------------------------------------------------------


SAYS = {
    "diagnosis": ("45.273", "128.412", "Blocking expert exchange", "stalled on communication", "stream 20", "expert exchange", "+20.304"),
    "empty diagnosis": ("not cut into steps", "No rule found anything to change."),
    "comparison rich": (
        "NCCL_P2P_NET_CHUNKSIZE",
        "comm_overlap.overlap_moe_expert_parallel_comm",
        "exposed communication",
        "+29.565",
        "deep_ep::internode::dispatch<8, 8192>",
        "87.0 % → 52.0 %",
        "New: expert exchange blocks compute",
    ),
    "bisection": ("All runs", "place in the order (commits)", "Use the new grouped GEMM", bisection.rich().sentence),
}


@pytest.mark.parametrize("name", SAYS)
def test_everything_is_readable_without_scripts(page_of: Any, name: str) -> None:
    page = page_of(name, scripts=False)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    text = page.evaluate("document.body.innerText + [...document.querySelectorAll('svg text')].map(one => one.textContent)")
    assert [said for said in SAYS[name] if said not in text.replace("\u00a0", " ")] == []


BADGES = {
    "comparison rich": "Gate not met · Regression",
    "comparison minimal": "Can't tell",
    "comparison refused": "Gate not judged · Refused",
    "comparison anyway": "Regression",
    "comparison identical": "Gate met · No change",
    "comparison improvement": "Improvement",
    "comparison huge": "Gate not met · Regression",
}


@pytest.mark.parametrize("name", BADGES)
def test_every_result_of_a_comparison_is_said(page_of: Any, name: str) -> None:
    page, document = page_of(name), DOCUMENTS[name]
    assert isinstance(document, Comparison)
    assert page.locator(".badge").inner_text() == BADGES[name]
    assert ("can't be compared" in page.locator(".chips").inner_text()) is not document.comparability.comparable


def hovered(page: Any, key: str, curve: str, point: str) -> str:
    """What a pointer over one point is told; `curve` and `point` choose it, as expressions over `plot`."""
    text: str = page.evaluate(
        f"""() => {{
            const plot = document.querySelector('[data-figure={key}] .plot');
            const curve = {curve};
            Plotly.Fx.hover(plot, [{{curveNumber: curve, pointNumber: {point}}}]);
            return plot.querySelector('.hoverlayer').textContent;
        }}"""
    )
    return text


def test_hovering_says_category_share_and_delta(page_of: Any) -> None:
    text = hovered(page_of("comparison rich"), "budgets", "plot.data.findIndex(trace => trace.name === 'exposed communication')", "1")
    assert [said for said in ("exposed communication", "41.876 ms", "26.5 % of new", "+29.565 ms") if said not in text] == []


def test_hovering_over_the_timeline_shows_a_hostile_name_as_text(page_of: Any) -> None:
    page = page_of("diagnosis")
    canvas = page.locator(".live canvas")
    canvas.scroll_into_view_if_needed()
    box, said = canvas.bounding_box(), set()
    for row in range(1, int(box["height"] / 22) - 2):
        for across in range(160, int(box["width"]), 6):
            page.mouse.move(box["x"] + across, box["y"] + 22 * row + 12)
            said.add(page.locator(".tip").inner_text() if page.locator(".tip").is_visible() else "")
    assert any("%{customdata} <b>bold</b><a href='https://example.invalid'>x</a>" in text for text in said)
    assert page.locator(".tip a, .tip b").count() == 0


def test_hovering_over_the_maps_tells_the_numbers(page_of: Any) -> None:
    page = page_of("many ranks")
    for key, said in (("rank-heat", "the median of its group"), ("rank-strips", "own 206.250 ms, waiting 8.800 ms")):
        plot = page.locator(f"[data-figure={key}] .plot")
        plot.scroll_into_view_if_needed()
        text = plot.evaluate(
            """plot => {
                Plotly.Fx.hover(plot, [{curveNumber: 0, xval: 5, yval: 0}]);
                return new Promise(done => setTimeout(() => done(plot.querySelector('.hoverlayer').textContent), 300));
            }"""
        )
        assert text.startswith("rank 5, ")
        assert said in text


def test_no_difference_has_the_page_s_own_colour(page_of: Any) -> None:
    page = page_of("many ranks")
    scale = page.evaluate("document.querySelector('[data-figure=rank-heat] .plot').layout.coloraxis.colorscale")
    even = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--even').trim()")
    assert scale == [[0, "#0072b2"], [0.5, even], [1, "#d55e00"]]


def test_both_drawings_lay_the_bars_out_alike(page_of: Any) -> None:
    """Lengths and starts as the browser lays them out, with scripts and without, on one scale."""

    def spans(selector: str, *, scripts: bool) -> list[tuple[float, float]]:
        boxes = [one.bounding_box() for one in page_of("comparison rich", scripts=scripts).locator(selector).all()]
        first, last = min(box["x"] for box in boxes), max(box["x"] + box["width"] for box in boxes)
        return sorted(((box["x"] - first) / (last - first), box["width"] / (last - first)) for box in boxes)

    for key in ("budgets", "waterfall"):
        drawn = spans(f"[data-figure={key}] .plot .point path", scripts=True)
        static = spans(f"[data-figure={key}] svg.chart g > rect:has(title)", scripts=False)
        assert len(drawn) == len(static)
        for one, other in zip(drawn, static, strict=True):
            assert one == pytest.approx(other, abs=0.004)


# --- two ranks side by side -------------------------------------------------------------------------------------------


def having(ranks: k.Ranks) -> d.Diagnosis:
    return msgspec.structs.replace(diagnosis.rich(), ranks=ranks)


def lines(page: Any) -> dict[str, list[str]]:
    """The comparison as it stands: label to the three numbers."""
    rows: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('#compare tr[data-row]')].map(row => [...row.cells].slice(0, 4).map(cell => cell.textContent))"
    )
    return {row[0]: row[1:] for row in rows}


def expected(ranks: k.Ranks, first: int, second: int) -> dict[str, list[str]]:
    """The same as Python says it."""
    at_first = msgspec.structs.replace(ranks, slowest=first, survey=(ranks.survey[first], ranks.survey[second]), groups=())
    found = rank_compare.comparison(diagnosis.rich(), at_first)
    assert found is not None
    return {line.label: [line.first, line.second, line.difference] for _, part in found.sections for line in part}


def test_any_two_ranks_stand_side_by_side(opened: Opener) -> None:
    page, seen = opened(diagnosis.rich())
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
    assert lines(page)["waiting in matched collectives"] == ["17.200", units.MISSING, units.MISSING]
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
    assert (lines(page)["permute/unpermute"][2], lines(page)["copies"][2]) == ("0.000", "-0.001")
    ran = ("communication busy", "permute/unpermute", "copies")
    shown, wanted = lines(page), expected(ranks, 0, 1)
    assert [shown[label] for label in ran] == [wanted[label] for label in ran]


@pytest.mark.parametrize("ns", [62_500, 187_500, 1_234_567_500, 12_062_500, 500, 1_500, 999_999_500, 1_234_567_890_123])
def test_the_script_rounds_as_the_page_does(opened: Opener, ns: int) -> None:
    survey = rich_ranks().survey
    ranks = msgspec.structs.replace(rich_ranks(), survey=(msgspec.structs.replace(survey[0], packing_busy_ns=ns), *survey[1:]))
    page, _ = opened(having(ranks))
    assert lines(page)["permute/unpermute"] == expected(ranks, 0, 2)["permute/unpermute"]


def test_the_script_says_what_the_page_said_without_it(opened: Opener) -> None:
    plain, _ = opened(diagnosis.rich(), scripts=False)
    plain.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    text = plain.locator("#compare").inner_text()
    assert not plain.locator("#compare .pickers").is_visible()
    drawn, _ = opened(diagnosis.rich())
    drawn.evaluate("document.querySelector('.pickers').hidden = true")
    assert drawn.locator("#compare").inner_text() == text
    assert "+20.400" in text
    widths = "[...document.querySelectorAll('.versus span')].map(one => [one.className, one.style.width])"
    assert [[name, float(width.rstrip("%"))] for name, width in drawn.evaluate(widths)] == [
        [name, float(width)]
        for name, width in re.findall(
            r'class="versus" aria-hidden="true"><span class="(\w+)" style="width:([\d.]+)%"', write(diagnosis.rich(), "html")
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


def test_a_word_is_explained_to_who_has_no_mouse(opened: Opener) -> None:
    page, seen = opened(diagnosis.rich(), width=390, zoomed=False)
    word = page.locator("header abbr").first
    word.click()
    shown = page.locator(".tip[role=status]")
    assert shown.inner_text() == word.get_attribute("title")
    box = shown.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    assert shown.count() == 0
    page.locator("#words-of-the-field summary").press("Enter")
    assert page.locator("#words-of-the-field dt").first.is_visible()
    assert seen == Seen()


def test_stops_of_the_tab_key_follow_any_change_of_size(opened: Opener) -> None:
    """A larger font, print and a fold tell a page of no new width of its window."""
    page, seen = opened(diagnosis.rich(), width=1000, zoomed=False)
    counts = []
    for change in (
        "document.querySelectorAll('details').forEach(one => one.open = true)",
        "document.body.style.fontSize = document.querySelector('main').style.fontSize = '30px'",
        "document.body.style.zoom = 1.6",
    ):
        page.evaluate(change)
        assert stops_are_right(page), change
        counts.append(page.locator(".scroll[tabindex]").count())
    assert counts[0] < counts[-1]
    page.emulate_media(media="print")
    assert stops_are_right(page)
    page.emulate_media(media="screen", color_scheme="dark")
    page.set_viewport_size({"width": 400, "height": 900})
    assert stops_are_right(page)
    assert seen == Seen()


def test_a_timeline_has_its_names_again_after_print_a_fold_and_a_narrow_window(opened: Opener) -> None:
    page, seen = opened(diagnosis.rich(), width=1000)
    page.evaluate(
        "() => { window.said = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.said.push(text); fill.call(this, text, ...at); }; }"
    )

    def names() -> set[str]:
        page.evaluate("window.said = []")
        page.set_viewport_size({"width": 900 if page.viewport_size["width"] != 900 else 901, "height": 900})
        return set(settled(page).evaluate("window.said"))

    before = names()
    assert any(one.startswith("stream") for one in before)
    page.emulate_media(media="print")
    settled(page)
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 401, "height": 900})
    settled(page)
    assert names() >= before
    assert seen == Seen()


def test_a_long_heading_fits_on_a_phone(opened: Opener) -> None:
    """The wall and its cause, the longest of both, as a verdict may be headed."""
    document = diagnosis.rich()
    cause = d.Cause(finding=document.findings[0].id, sentence="It is so", headline="CPU code in every layer")
    wall = document.findings[0].wall
    found = structs.replace(document.verdict, cause=cause, target_wall=wall, dominant_wall=None)
    page, seen = opened(structs.replace(document, verdict=found), width=400, zoomed=False)
    assert cause.headline in page.locator(".badge").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert seen == Seen()
