"""One browser for all pages, and what a page did that it should not."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from diagnose.render import write

FRAMES = 3  # a new size of the window, what observes sizes, what that has drawn
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


_ALL_DRAWN = (
    "document.querySelectorAll('.open').length === document.querySelectorAll('.plot .main-svg:first-child').length"
    " && document.querySelectorAll('[data-live]').length === document.querySelectorAll('.live canvas').length"
)


def settled(page: Any) -> Any:
    """The page some frames later: observers of sizes, and what they have drawn, have had their turn however busy the machine."""
    for _ in range(FRAMES):
        page.evaluate("() => new Promise(requestAnimationFrame)")
    return page


@dataclass
class Seen:
    """What the page did that it should not."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


Opened = tuple[Any, Seen]
Opener = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Opens a document as a page, all folds and figures opened where scripts run (`zoomed`); closes all at the end of the module."""
    contexts = []

    def open_page(document: Any, *, width: int = 1280, scheme: str = "light", scripts: bool = True, zoomed: bool = True) -> Opened:
        file = tmp_path_factory.mktemp("page") / "report.html"
        file.write_text(write(document, "html"), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts))
        page, seen = contexts[-1].new_page(), Seen()
        own = (Path(file).as_uri(), "data:", "blob:")  # no other file either
        page.on("request", lambda request: None if request.url.startswith(own) else seen.requests.append(request.url))
        page.on("console", lambda message: seen.console.append(message.text))
        page.on("pageerror", lambda error: seen.console.append(str(error)))

        def dismissed(dialog: Any) -> None:
            seen.dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismissed)
        page.goto(Path(file).as_uri())
        if scripts and zoomed:
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.evaluate("document.querySelectorAll('.open').forEach(one => one.click())")
            for _ in range(300):  # the policy forbids the eval that wait_for_function needs
                if page.evaluate(_ALL_DRAWN):
                    break
                page.wait_for_timeout(100)
        return page, seen

    yield open_page
    for context in contexts:
        context.close()
