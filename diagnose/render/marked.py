"""What every Markdown output is made of: blocks that are kept while there is room, tables, folded parts, and texts without any power.

Texts that a trace can fill lose every power over the page: no HTML, no links, no mentions, no table cells of their own, no orders to a CI runner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagnose.document.diagnosis import Tool
from diagnose.render import units
from diagnose.render.report import Column, Row, Table

MOST_BYTES = 60_000
MOST_ROWS = 20
LONGEST_TEXT = 800
LONGEST_NAME = 90
_RESERVE = 400  # for the closing lines

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#|~!$])")
_MENTION = re.compile(r"(?<=[@#])(?=\w)|(?<=\bGH)(?=-\d)|(?<=://)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_JOINER = "\u200b"  # keeps a mention, a reference or an address from becoming a link


def packed(blocks: Iterable[tuple[str, str]], tool: Tool) -> str:
    """Blocks (title, text), in the order of their worth, as one text of at most `MOST_BYTES` bytes; what did not fit is said."""
    room = MOST_BYTES - _RESERVE
    kept: list[str] = []
    left_out: list[str] = []
    for title, block in blocks:
        need = len(block.encode("utf-8")) + 2
        if need > room:
            left_out.append(title)
            continue
        room -= need
        kept.append(block)
    if left_out:
        named = ", ".join(dict.fromkeys(left_out[:5]))
        kept.append(
            f"_Left out to stay below {MOST_BYTES // 1000} KB: {len(left_out)} parts ({named}…); the JSON and HTML outputs hold all._"
        )
    rules = f", rules `{tool.rules_sha256[:12]}`" if tool.rules_sha256 else ""
    kept.append(f"<sub>{text(tool.name)} {text(tool.version)}{rules}; “{units.MISSING}” means not measured</sub>")
    return "\n\n".join(kept) + "\n"


def table(found: Table, heading: bool = True) -> str:
    """A table, with as many rows as a page can hold and what it leaves out."""
    head = [f"### {text(found.title)}", ""] if heading else []
    if not found.rows:
        return "\n".join([*head, f"{text(found.empty)}."])
    lines = [
        *head,
        _line([text(column.label) for column in found.columns]),
        _line(["---:" if column.kind == "number" else "---" for column in found.columns]),
        *(_line(_cells(row, found.columns)) for row in found.rows[: _most(found)]),
    ]
    if len(found.rows) > _most(found):
        lines += ["", f"_{len(found.rows) - _most(found)} more rows in the JSON and HTML outputs._"]
    if found.note:
        lines += ["", f"<sub>{text(found.note)}</sub>"]
    if found.copy:
        lines += ["", "```yaml", found.copy.rstrip("\n"), "```"]  # made of words and numbers alone, so that nothing can end the block
    return "\n".join(lines)


def _most(table: Table) -> int:
    if table.whole:
        return len(table.rows)
    return 60 if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def folded(found: Table) -> str:
    """The table behind a heading that opens on a click."""
    return f"<details><summary>{text(found.title)} ({len(found.rows)})</summary>\n\n{table(found, heading=False)}\n\n</details>"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row, columns: tuple[Column, ...]) -> list[str]:
    cells = [code(cell, LONGEST_NAME) if column.kind == "name" else text(cell) for cell, column in zip(row.cells, columns, strict=True)]
    if row.strong:
        cells[0] = f"**{cells[0]}**"
    cells[0] = "&emsp;" * row.indent + cells[0]
    return cells


# --- harmless text ----------------------------------------------------------------------------------------------------


def text(said: str) -> str:
    """Prose in which nothing is markup, a link, a mention or a reference."""
    shown = units.visible(said)
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}…"
    shown = _SPECIAL.sub(r"\\\1", _MENTION.sub(_JOINER, shown).replace("&", "&amp;").replace("::", f":{_JOINER}:"))
    return shown.replace("<", "&lt;").replace(">", "&gt;").replace("\\&lt;", "&lt;").replace("\\&gt;", "&gt;")


def code(said: str, limit: int = LONGEST_TEXT) -> str:
    """A code span; backticks become primes and pipes are escaped, which a table needs even inside code."""
    shown = units.shorten(said, limit).replace("`", "′").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else "` `"
