"""The list of all rules and fixes."""

from __future__ import annotations

from diagnose.document.encoding import encode
from diagnose.knowledge.rulebook import Rulebook
from diagnose.render import report as r
from diagnose.render.report import Block, Section, Table, rows_of

MORE = "`diagnose explain ID` tells more."


def json(book: Rulebook) -> str:
    """Rules and fixes as the rule files hold them."""
    return encode({"rules": list(book.rules.values()), "fixes": list(book.fixes.values()), "rules_sha256": book.sha256}).decode()


def report(book: Rulebook) -> r.Report:
    """Two tables."""
    rules = listing(
        "rules", ("rule", "wall", "what"), [(one.id, book.walls.topic(one.wall).title, one.name) for one in book.rules.values()]
    )
    fixes = listing(
        "fixes",
        ("fix", "walls", "what"),
        [(one.id, ", ".join(book.walls.topic(wall).title for wall in one.walls), one.title) for one in book.fixes.values()],
    )
    return r.Report(
        title="Rules and fixes",
        heading="what the program knows",
        about=f"rules sha256 {book.sha256}",
        blocks=tuple(Block(content=table, section=table.key, worth=90) for table in (rules, fixes)),
        sections=tuple(Section(id=table.key, nav=table.title) for table in (rules, fixes)),
    )


def listing(plural: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """All of one kind as a table."""
    texts = (dict(zip(head, row, strict=True)) for row in rows)
    return Table(plural, f"{plural} ({len(rows)})", rows_of(texts), note=MORE, empty="none", whole=True)
