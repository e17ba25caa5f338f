"""Entries as plain text of at most `WIDTH` columns."""

from __future__ import annotations

import textwrap

from diagnose.render import units
from diagnose.render.knowledge.entries import Code, Entry, Expression, Line, Listed, Part, Raw, Rows, Said

WIDTH = 96
_LEFT = 40  # the widest first column; longer ones are sentences, which stand above what belongs to them


def text(entry: Entry, run: list[Part]) -> str:
    """An entry, with what a diagnosis says of it (`run`) first."""
    lines = [*wrapped(f"{entry.id}: {entry.title}"), *wrapped(entry.about)]
    for part in (*run, *entry.parts):
        lines += ["", *_part(part)]
    return "\n".join(lines) + "\n"


def plain(line: Line) -> str:
    """The words of a line."""
    return "".join(span if isinstance(span, str) else span.text if isinstance(span, Code) else span.label or span.id for span in line)


def wrapped(said: str, first: str = "", rest: str = "  ") -> list[str]:
    """`said` in lines that fit; a single word that is longer than a line is cut."""
    return _fitted(" ".join(said.split()), first, rest)


def _fitted(said: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(units.visible(said), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [""]


def _part(part: Part) -> list[str]:
    match part:
        case Said(label, line):
            return wrapped(f"{label}: {plain(line)}")
        case Expression(label, expression):
            return wrapped(f"{label}: {expression}")
        case Listed(label, lines):
            return [f"{label}:", *(row for line in lines for row in wrapped(plain(line), "  - ", "    "))]
        case Raw(label, texts):
            return [f"{label}:", *(row for one in texts for row in _fitted(one, "  ", "    "))]
        case Rows(label, _, rows):
            return [f"{label}:", *_rows([(plain(left), plain(right)) for left, right in rows])]


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    """Two columns; where the first is sentences, each with the other below it."""
    widest = max(len(one) for one, _ in rows)
    if widest > _LEFT:
        return [line for one, other in rows for line in (*wrapped(one, "  - ", "    "), *wrapped(f"[{other}]", "    ", "    "))]
    indent = " " * (widest + 4)
    return [line for one, other in rows for line in wrapped(other, f"  {one:<{widest}}  ", indent)]
