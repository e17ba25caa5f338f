"""What the site of the documentation holds beside docs/.

The reference, made from the data; pages that lie elsewhere in the tree; and, where a page
says so, the table of accuracy, made from reports/accuracy.json. mkdocs calls the functions here by their names (mkdocs.yml).
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from diagnose.knowledge.load import load_rulebook  # noqa: E402 - of this tree, wherever mkdocs is installed
from diagnose.knowledge.taxonomy import load_taxonomy  # noqa: E402
from diagnose.render.knowledge.entries import Catalogue  # noqa: E402
from fixtures import accuracy_report  # noqa: E402
from pages import reference  # noqa: E402
from pages.reference import PAGES  # noqa: E402

ELSEWHERE = {  # path in the tree: page of the site
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/results.md": "benchmarks.md",
    "fixtures/README.md": "simulator-files.md",
    "reports/accuracy.md": "accuracy.md",
    "reports/captures.md": "captures.md",
    "trace_rules/README.md": "rules-as-data.md",
}
ACCURACY = "<!-- accuracy -->"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The pages of the reference stand in the navigation, whichever there are."""
    pages = {"What the program knows": reference.INDEX} | {title: name for name, title in PAGES.items()}
    section = next(one["Reference"] for one in config.nav if isinstance(one, dict) and "Reference" in one)
    section[:0] = [{title: f"reference/{name}"} for title, name in pages.items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """The reference, and the pages that lie elsewhere."""
    know = Catalogue(book=load_rulebook(), taxonomy=load_taxonomy())
    made = {f"reference/{name}": text for name, text in reference.pages(know).items()}
    made |= {page: relinked((ROOT / source).read_text(encoding="utf-8"), source, page) for source, page in ELSEWHERE.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page of docs/, its links to other places of the tree leading to their pages."""
    name = page.file.src_uri
    if page.file.generated_by:
        return markdown
    return relinked(markdown, f"docs/{name}", name).replace(ACCURACY, accuracy())


def relinked(text: str, source: str, page: str) -> str:
    """`text` of a file of the tree as a page of the site: links between files are links between pages; what has no page is only named."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = place.removeprefix("docs/") if place.startswith("docs/") and (ROOT / place).is_file() else ELSEWHERE.get(place)
        if inside is None:
            return words if (ROOT / place).exists() else found[0]  # a link to nowhere stays, for mkdocs to refuse
        return f"[{words}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(link, text)


def accuracy() -> str:
    """What was claimed of simulated captures and what was found, a row each."""
    rows = accuracy_report.read_rows()
    lines = [f"| | claim, over {len(rows)} simulated scenarios | found | |", "|---|---|---|---|"]
    lines += [
        f"| {one.number} | {one.claim} | {one.found} | {'holds' if one.holds else '**does not hold**'} |"
        for one in accuracy_report.criteria(rows)
    ]
    return "\n".join(lines)
