"""The reference pages: everything that the program knows, as Markdown made from the data.

`python -m diagnose.render.knowledge.reference FOLDER` writes them; `make docs` does so for build/reference.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from diagnose.render.knowledge.as_markdown import links, page
from diagnose.render.knowledge.entries import Catalogue, load_catalogue
from diagnose.render.knowledge.kinds import KINDS, PAGES

INDEX = "README.md"


def pages(know: Catalogue) -> dict[str, str]:
    """The text of every page by its file name; the same for the same knowledge."""
    where = links(know, KINDS)
    made = {name: page(know, title, [kind for kind in KINDS if kind.page == name], where) for name, title in PAGES.items()}
    return {INDEX: _index(know), **made}


def _index(know: Catalogue) -> str:
    lines = [
        "<!-- Made from the data by `make docs`; do not edit. -->",
        "",
        "# What the program knows",
        "",
        "Made from the files of `trace_rules/`, which `diagnose` itself reads; `diagnose explain ID` says the same on a terminal, and with a",
        "diagnosis (`diagnose explain ID result.json`) in that run's numbers. Every entry has an anchor, such as `fixes.md#com-06`.",
        "",
        "| page | holds |",
        "|---|---|",
    ]
    for name, title in PAGES.items():
        held = ", ".join(f"{len(kind.ids(know))} {kind.plural}" for kind in KINDS if kind.page == name)
        lines.append(f"| [{title}]({name}) | {held} |")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> list[Path]:
    """Write the pages into `folder`, and remove pages that are no longer made. Gives what changed."""
    know = load_catalogue()
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder / name: content for name, content in pages(know).items()}
    changed = [path for path, content in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != content]
    for path in changed:
        path.write_text(made[path], encoding="utf-8")
    stale = sorted(path for path in folder.glob("*.md") if path not in made)
    for path in stale:
        path.unlink()
    return [*changed, *stale]


def main(arguments: Sequence[str]) -> int:
    """Command line: one folder."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m diagnose.render.knowledge.reference FOLDER\n")
        return 2
    sys.stdout.write("".join(f"{path}\n" for path in write(Path(arguments[0]))) or "The pages are up to date.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
