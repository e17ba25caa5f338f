"""How tests read a report: its words without markup, and what no Markdown of ours may hold, whatever a trace says."""

import re
import xml.etree.ElementTree as ET
from typing import Any

from diagnose.render import Options, write

PAGES = ("text", "markdown", "html")
ALLOWED = {"<sub>", "</sub>", "<details>", "</details>", "<summary>", "</summary>"}


def rendered(format_: str, document: object, **options: Any) -> str:
    """A document in a format, with everything that it can tell."""
    return write(document, format_, Options(**{"detail": 2, **options}))


def parsed(source: str | bytes) -> ET.Element:
    """A document of ours in XML."""
    return ET.fromstring(source)  # noqa: S314


def plain(report: str) -> str:
    """A report's words without what markup adds to them."""
    bare = (
        re.sub(r"</?abbr[^>]*>", "", report)
        .replace("\\", "")
        .replace("\u200b", "")
        .replace("\u00a0", " ")
        .replace("&#39;", "'")
        .replace("│", " ")
    )
    return re.sub(r"\s+", " ", bare)


def check_powerless(markdown: str) -> None:
    """No tags but our own, nobody mentioned, no links."""
    prose = re.sub(r"`[^`]*`", "", markdown)
    assert set(re.findall(r"<[^>]+>", prose)) <= ALLOWED
    assert "@octocat" not in prose
    assert "](http" not in prose


def check_columns(markdown: str) -> None:
    """Every row of a table has as many cells as its first."""
    width = 0
    for line in markdown.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, line


def orders(report: str) -> list[str]:
    """Lines that a CI runner would take for orders."""
    return [line for line in report.splitlines() if line.lstrip().startswith(("::", "##["))]
