"""The page on a comparison in a real browser: inert, offline, drawn, and readable without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from diagnose.document import comparison as c
from diagnose.render import Options, write
from tests.browser.test_report import Seen, browser, opened, payloads
from tests.builders.comparison import SAMPLES, huge, refused, rich

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.browser
CLOSED = {"schema", "state", "kind", "wall", "why", "severity", "result", "basis", "dominant_wall", "metric", "unit", "fail_on", "anchor"}


def written(folder: Path, document: c.Comparison) -> Path:
    path = folder / "comparison.html"
    path.write_text(write(document, "html", Options()), encoding="utf-8")
    return path


def _poisoned(value: Any, texts: Iterator[str]) -> Any:
    """`value` with every free text replaced by the next payload; numbers and closed words stay."""
    if isinstance(value, msgspec.Struct):
        free = [name for name in value.__struct_fields__ if name not in CLOSED]
        return msgspec.structs.replace(value, **{name: _poisoned(getattr(value, name), texts) for name in free})
    if isinstance(value, tuple):
        return tuple(_poisoned(item, texts) for item in value)
    return next(texts) if isinstance(value, str) else value


def poisoned(first: int | None) -> c.Comparison:
    """Every text a payload, beginning with the `first`; all payloads in every text when None."""
    result: c.Comparison = _poisoned(rich(), payloads(first))
    return result


@pytest.mark.parametrize("first", [None, 0, 7])
def test_no_text_of_a_document_has_any_power(browser: Any, tmp_path: Path, first: int | None) -> None:
    page, seen = opened(browser, written(tmp_path, poisoned(first)))
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.mouse.move(640, 700)
    assert seen == Seen()
    assert page.locator("iframe, img, object, embed, base, form, svg [onload], [onmouseover], [onerror]").count() == 0
    assert page.locator("script").count() == 3
    assert page.evaluate("[...document.querySelectorAll('a')].every(one => one.getAttribute('href').startsWith('#'))")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_figures_are_drawn_and_nothing_overflows(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, seen = opened(browser, written(tmp_path, rich()), width=width, scheme=scheme)
    assert seen == Seen()
    assert page.locator(".static").locator("visible=true").count() == 0
    bars = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map(one => [one.dataset.figure, one.querySelectorAll('.plot .point path').length]))"
    )
    assert bars == {"budgets": 2 * 14, "waterfall": 7}
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


BADGES = {
    "rich": ("Regression", 2),
    "minimal": ("Can't tell", 0),
    "refused": ("Refused", 0),
    "anyway": ("Regression", 2),
    "identical": ("No change", 1),
    "improvement": ("Improvement", 2),
    "huge": ("Regression", 2),
}


@pytest.mark.parametrize("name", BADGES)
def test_every_result_is_a_whole_page_that_fits_and_says_the_result(browser: Any, tmp_path: Path, name: str) -> None:
    document = (SAMPLES | {"huge": huge})[name]()
    page, seen = opened(browser, written(tmp_path, document), width=800)
    assert seen == Seen()
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert (page.locator(".badge").inner_text(), page.locator("[data-figure]").count()) == BADGES[name]
    assert ("not the same work" in page.locator(".chips").inner_text()) is not document.comparability.comparable
    page.context.close()


def test_both_bars_have_one_scale_and_the_way_begins_where_the_base_ends(browser: Any, tmp_path: Path) -> None:
    """The lengths as the browser lays them out, without scripts."""
    page, _ = opened(browser, written(tmp_path, rich()), scripts=False)

    def boxes(key: str) -> list[dict[str, float]]:
        found: list[dict[str, float]] = [one.bounding_box() for one in page.locator(f"[data-figure={key}] .track > span").all()]
        return found

    delta = rich().delta
    assert delta is not None
    parts = boxes("budgets")
    base, new = (sum(box["width"] for box in side) for side in (parts[:14], parts[14:]))
    assert base / new == pytest.approx(delta.base_ns / delta.new_ns, rel=0.005)
    way = boxes("waterfall")
    assert way[1]["x"] == pytest.approx(way[0]["x"] + way[0]["width"], abs=1.5)
    assert way[-1]["x"] == way[0]["x"]
    assert way[-1]["x"] + way[-1]["width"] == pytest.approx(way[-2]["x"] + way[-2]["width"], abs=3)
    page.context.close()


def test_hovering_says_category_share_and_delta(browser: Any, tmp_path: Path) -> None:
    page, seen = opened(browser, written(tmp_path, rich()))
    shown = page.evaluate(
        """() => {
            const plot = document.querySelector('[data-figure=budgets] .plot');
            const curve = plot.data.findIndex(trace => trace.name === 'exposed transport');
            Plotly.Fx.hover(plot, [{curveNumber: curve, pointNumber: 1}]);
            return plot.querySelector('.hoverlayer').textContent;
        }"""
    )
    for said in ("exposed transport", "41.876 ms", "26.5 % of new", "+29.565 ms"):
        assert said in shown
    assert seen == Seen()
    page.context.close()


def test_everything_is_readable_without_scripts(browser: Any, tmp_path: Path) -> None:
    page, seen = opened(browser, written(tmp_path, rich()), scripts=False)
    text = page.locator("body").inner_text().replace("\u00a0", " ")
    for said in (
        rich().outcome.sentence,
        "NCCL_P2P_NET_CHUNKSIZE",
        "comm_overlap.overlap_moe_expert_parallel_comm",
        "exposed transport",
        "+29.565",
        "deep_ep::internode::dispatch<8, 8192>",
        "87.0 % → 52.0 %",
        "New: expert exchange blocks compute",
    ):
        assert said in text
    assert page.locator(".static svg").locator("visible=true").count() == 2
    assert page.locator(".plot").locator("visible=true").count() == 0
    assert seen == Seen()
    page.context.close()


def test_print_uses_the_static_figures(browser: Any, tmp_path: Path) -> None:
    page, _ = opened(browser, written(tmp_path, rich()))
    page.emulate_media(media="print")
    assert page.locator(".static").locator("visible=true").count() == 2
    assert page.locator(".plot").locator("visible=true").count() == 0
    page.context.close()


@pytest.mark.parametrize("sample", [rich, refused])
def test_the_page_is_built_for_everyone(browser: Any, tmp_path: Path, sample: Any) -> None:
    page, _ = opened(browser, written(tmp_path, sample()))
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => +one.tagName[1])")
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels[1:]) if later > earlier)
    identifiers = page.evaluate("[...document.querySelectorAll('body [id]')].filter(one => !one.closest('.plot')).map(one => one.id)")
    assert len(identifiers) == len(set(identifiers))
    targets = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(one => one.getAttribute('href').slice(1))")
    assert set(targets) <= set(identifiers)
    assert page.evaluate("[...document.querySelectorAll('th')].every(one => one.scope)")
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(one => one.tabIndex === 0 && one.getAttribute('aria-label'))")
    assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.rows.length > 1)")
    page.context.close()
