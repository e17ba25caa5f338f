"""The HTML report in a real browser: inert, offline, drawn, and readable without scripts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.document import ranks as k
from diagnose.render import Options, units, write
from tests.builders.diagnosis import HOSTILE, minimal, rich

pytestmark = pytest.mark.browser

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
PAYLOADS = (
    *HOSTILE,
    "<svg onload=alert(4)>",
    "javascript:alert(5)",
    "<!--<script>",
    "]]><script>alert(6)</script>",
    "<iframe srcdoc='<script>alert(7)</script>'>",
    "<a href='https://example.invalid/x'>click</a>",
    "url(https://example.invalid/y)",
    "&lt;b&gt;",
    "</title><script>alert(8)</script>",
    "</style><script>alert(9)</script>",
)


@dataclass
class Seen:
    """What the page did that it should not."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser: Any, page_file: Path, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> tuple[Any, Seen]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts)
    page, seen = context.new_page(), Seen()
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else seen.requests.append(request.url))
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))

    def dismissed(dialog: Any) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismissed)
    page.goto(page_file.as_uri())
    if scripts and page.locator("[data-figure]").count():
        page.wait_for_function(
            "document.querySelectorAll('[data-figure]').length === document.querySelectorAll('.plot .main-svg:first-child').length"
        )
    return page, seen


def written(folder: Path, document: d.Diagnosis) -> Path:
    path = folder / "report.html"
    path.write_text(write(document, "html", Options()), encoding="utf-8")
    return path


def _poisoned(value: Any, texts: Iterator[str]) -> Any:
    """`value` with every free text replaced by the next payload; numbers and closed words stay."""
    if isinstance(value, msgspec.Struct):
        closed = {
            "wall",
            "dominant_wall",
            "runner_up",
            "certainty",
            "status",
            "severity",
            "state",
            "role",
            "kind",
            "cuda_graphs",
            "schema",
            "format",
            "recompute_status",
            "by",
            "pattern",
            "kinds",
        }
        if isinstance(value, r.Steps | r.HostCost | k.Late):
            closed |= {"anchor"} if isinstance(value, r.Steps) else {"cause"}
        if isinstance(value, d.Capture):
            closed -= {"format"}
        return msgspec.structs.replace(
            value, **{name: _poisoned(getattr(value, name), texts) for name in value.__struct_fields__ if name not in closed}
        )
    if isinstance(value, tuple):
        return tuple(_poisoned(item, texts) for item in value)
    if isinstance(value, dict):
        return {f"{next(texts)} {index}": _poisoned(item, texts) for index, item in enumerate(value.values())}
    return next(texts) if isinstance(value, str) else value


def payloads(first: int | None) -> Iterator[str]:
    """Endlessly the payloads, beginning with the `first`; all of them each time when None."""
    index = first or 0
    while True:
        yield " ".join(PAYLOADS) if first is None else PAYLOADS[index % len(PAYLOADS)]
        index += 1


def poisoned(first: int | None) -> d.Diagnosis:
    """Every text a payload, beginning with the `first`; all payloads in every text when None."""
    result: d.Diagnosis = _poisoned(rich(), payloads(first))
    return result


@pytest.mark.parametrize("first", [None, 0, 7, 14])
def test_no_text_of_a_document_has_any_power(browser: Any, tmp_path: Path, first: int | None) -> None:
    document = poisoned(first)
    page, seen = opened(browser, written(tmp_path, document))
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.mouse.move(640, 700)
    assert seen == Seen()
    assert page.locator("iframe, img, object, embed, base, form, svg [onload], [onmouseover], [onerror]").count() == 0
    assert page.locator("script").count() == 4
    assert page.evaluate("[...document.querySelectorAll('a')].every(one => one.getAttribute('href').startsWith('#'))")
    assert (
        page.locator(".sentence").inner_text().replace("\u00a0", " ")
        == re.sub(r"\s+", " ", units.visible(document.verdict.sentence)).strip()
    )
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_figures_are_drawn_and_nothing_overflows(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, seen = opened(browser, written(tmp_path, rich()), width=width, scheme=scheme)
    assert seen == Seen()
    assert page.locator(".drawn .plot .main-svg").first.is_visible()
    assert page.locator("[data-figure]").count() == 6
    assert page.locator(".static").locator("visible=true").count() == 0
    bars = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map(one => [one.dataset.figure, one.querySelectorAll('.plot .point path').length]))"
    )
    assert bars["budget"] == 3 * 8
    assert bars["timeline"] == len(rich().timeline.ops) + len(rich().timeline.gaps)  # type: ignore[union-attr]
    assert bars.pop("rank-heat") == 0  # an image
    assert page.locator("[data-figure=rank-heat] .plot .hm image").count() == 1
    assert all(count > 0 for count in bars.values())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


def test_hovering_shows_a_hostile_name_as_text(browser: Any, tmp_path: Path) -> None:
    page, seen = opened(browser, written(tmp_path, rich()))
    shown = page.evaluate(
        """() => {
            const plot = document.querySelector('[data-figure=timeline] .plot');
            const curve = plot.data.findIndex(trace => (trace.customdata || []).some(row => String(row[0]).includes('customdata')));
            const point = plot.data[curve].customdata.findIndex(row => String(row[0]).includes('customdata'));
            Plotly.Fx.hover(plot, [{curveNumber: curve, pointNumber: point}]);
            return plot.querySelector('.hoverlayer').textContent;
        }"""
    )
    assert "%{customdata} <b>bold</b><a href='https://example.invalid'>x</a>" in shown
    assert page.locator(".hoverlayer a, .hoverlayer b").count() == 0
    assert seen == Seen()
    page.context.close()


@pytest.mark.parametrize("width", [1280, 800])
def test_everything_is_readable_without_scripts(browser: Any, tmp_path: Path, width: int) -> None:
    page, seen = opened(browser, written(tmp_path, rich()), width=width, scripts=False)
    text = page.locator("body").inner_text().replace("\u00a0", " ")
    for said in (
        rich().verdict.sentence,
        "45.273",
        "128.412",
        "Blocking expert exchange",
        "waited for transport",
        "stream 20",
        "expert exchange",
    ):
        assert said in text
    assert page.locator(".static .bar").locator("visible=true").count() == 3 + 4 + 16 + 5 + 8
    assert page.locator(".plot").locator("visible=true").count() == 0
    box = page.locator("body").bounding_box()
    assert box is not None
    assert box["width"] <= width
    assert seen == Seen()
    page.context.close()


def test_print_uses_the_static_figures(browser: Any, tmp_path: Path) -> None:
    page, _ = opened(browser, written(tmp_path, rich()))
    page.emulate_media(media="print")
    assert page.locator(".static").locator("visible=true").count() == 5
    assert page.locator(".plot").locator("visible=true").count() == 0
    page.context.close()


def test_an_almost_empty_document_is_a_whole_page(browser: Any, tmp_path: Path) -> None:
    page, seen = opened(browser, written(tmp_path, minimal()), width=800)
    assert seen == Seen()
    text = page.locator("body").inner_text()
    assert "not cut into steps" in text
    assert "No rule found anything to change." in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    page.context.close()


def test_the_page_is_built_for_everyone(browser: Any, tmp_path: Path) -> None:
    page, _ = opened(browser, written(tmp_path, rich()))
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title() == "Communication wall · diagnose"
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
