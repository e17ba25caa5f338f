"""Every report of the gallery, a comparison and a bisection as a reader meets them.

From a file, in the light and in the dark, on a phone, by the

keyboard, and by what axe (axe-core, of Deque Systems) finds.
"""

import importlib.resources
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from benchmarks import timeline
from fixtures import gallery, scenario
from fixtures.accuracy import document as diagnosed
from tests.browser.conftest import Opener, Seen, settled
from tests.builders import bisection, comparison

pytestmark = [pytest.mark.browser, pytest.mark.deep]
MOST_STOPS = 20  # of the Tab key before the first finding: skip link, print, what is to be copied, folds, contents
MOST_SHEETS = 6  # of a printed report
ALL_RULES, COLOURS = "{resultTypes: ['violations']}", "{resultTypes: ['violations'], runOnly: ['color-contrast']}"
OTHERS = {
    "comparison": comparison.SAMPLES["rich"],
    "comparison refused": comparison.SAMPLES["refused"],
    "bisection": bisection.rich,
    "bisection of several steps": bisection.several,
}


def report(name: str, folder: Path) -> Any:
    """The document of an exhibit of the gallery, or of another name."""
    if name in OTHERS:
        return OTHERS[name]()
    one = scenario.load(name)
    return diagnosed("nsys", one, one.record(), folder)


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which its package for Playwright brings along: nothing is fetched."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        pytest.skip("axe-playwright-python is not installed")
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Any, axe: str, options: str) -> list[str]:
    """What axe finds in a page that is drawn, a line each: the rule, how bad, the first place."""
    settled(page).evaluate(axe)
    found = page.evaluate(f"axe.run(document, {options})")["violations"]
    return [f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}" for one in found]


def stops_before_findings(page: Any) -> int:
    """How often Tab is pressed until a finding is reached."""
    page.evaluate("document.activeElement.blur()")
    for count in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.finding') !== null"):
            return count
    return 200


@pytest.mark.parametrize("name", [*gallery.shown(), *OTHERS])
def test_a_report_is_for_every_reader(name: str, opened: Opener, axe: str, tmp_path: Path) -> None:
    document = report(name, tmp_path)
    page, seen = opened(document, width=1440, zoomed=False)
    if page.locator(".finding").count():
        assert stops_before_findings(page) <= MOST_STOPS
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert violations(page, axe, ALL_RULES) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, axe, COLOURS) == []
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert violations(page, axe, ALL_RULES) == []
    assert seen == Seen()
    if name not in OTHERS:
        printed, _ = opened(document, width=1440, zoomed=False)
        assert printed.pdf(format="A4").count(b"/Type /Page\n") <= MOST_SHEETS


def test_what_a_frame_draws_does_not_grow_with_the_operations(opened: Opener) -> None:
    """As many operations as a page holds are no more rectangles than 20,000, where most are narrower than a pixel.

    Of a hundredth of it only what shows is drawn.
    """
    counts = {}
    for operations in (20_000, 50_000):
        page, seen = opened(timeline.document(operations), width=1440)
        page.evaluate(
            "() => { window.drawn = 0; const fill = CanvasRenderingContext2D.prototype.fillRect;"
            "CanvasRenderingContext2D.prototype.fillRect = function (...box) { window.drawn++; fill.apply(this, box); }; }"
        )
        for share in (1.0, 0.01):
            page.evaluate("window.drawn = 0")
            page.evaluate(timeline.ZOOM, share)
            counts[operations, share] = settled(page).evaluate("window.drawn")
        assert seen == Seen()
    assert counts[50_000, 1.0] <= 1.1 * counts[20_000, 1.0]
    assert counts[50_000, 0.01] * 5 <= counts[50_000, 1.0]
