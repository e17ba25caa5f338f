"""The page on a bisection in a real browser: offline, drawn, readable without scripts, and never wider than the window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from diagnose.document.bisection import Bisection
from diagnose.render import Options, write
from tests.browser.test_report import Seen, browser, opened
from tests.builders.bisection import rich, several
from tests.builders.diagnosis import HOSTILE

pytestmark = pytest.mark.browser
__all__ = ["browser"]  # the fixture


def hostile() -> Bisection:
    document = rich()
    return structs.replace(
        document,
        sentence=HOSTILE[0],
        notes=HOSTILE,
        candidates=tuple(structs.replace(one, subject=HOSTILE[place % len(HOSTILE)]) for place, one in enumerate(document.candidates)),
        trials=tuple(structs.replace(one, text=HOSTILE[place % len(HOSTILE)]) for place, one in enumerate(document.trials)),
        culprits=tuple(structs.replace(one, message="\n".join(HOSTILE), subject=HOSTILE[1]) for one in document.culprits),
    )


@pytest.mark.parametrize(("width", "scripts"), [(1280, True), (800, True), (390, True), (800, False)])
@pytest.mark.parametrize("document", [rich(), several(), hostile()], ids=["rich", "several", "hostile"])
def test_the_page(browser: Any, tmp_path: Path, document: Bisection, width: int, scripts: bool) -> None:
    file = tmp_path / "bisection.html"
    file.write_text(write(document, "html", Options()), encoding="utf-8")
    page, seen = opened(browser, file, width=width, scripts=scripts)
    if scripts:
        page.wait_for_selector(".plot .main-svg .scatterlayer")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.locator(".static svg.chart").is_visible()
    else:
        assert page.locator("svg.chart").is_visible()
        box = page.locator("svg.chart").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.locator(".verdict .sentence").is_visible()
    assert page.locator("#trials").is_visible()
    assert seen == Seen()
    page.context.close()
