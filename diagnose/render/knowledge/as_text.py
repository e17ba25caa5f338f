"""Entries as plain text of at most `WIDTH` columns."""

from __future__ import annotations

import textwrap

from diagnose.render import units
from diagnose.render.knowledge.entries import Code, Entry, Expression, Line, Listed, Part, Raw, Rows, Said

WIDTH = 96
_LEFT = 34  # the widest first column; what is longer stands on a line of its own


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
    shown = units.visible(" ".join(said.split()))
    return textwrap.wrap(shown, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [""]


def _part(part: Part) -> list[str]:
    match part:
        case Said(label, line):
            return wrapped(f"{label}: {plain(line)}")
        case Expression(label, expression):
            return wrapped(f"{label}: {expression}")
        case Listed(label, lines):
            return [f"{label}:", *(row for line in lines for row in wrapped(plain(line), "  - ", "    "))]
        case Raw(label, texts):
            return [f"{label}:", *(row for one in texts for row in wrapped(one, "  ", "    "))]
        case Rows(label, _, rows):
            return [f"{label}:", *_rows([(plain(left), plain(right)) for left, right in rows])]


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    left = min(_LEFT, max(len(one) for one, _ in rows))
    lines: list[str] = []
    for one, other in rows:
        indent = " " * (left + 4)
        if len(one) > left:
            lines += [*wrapped(one, "  ", "    "), *wrapped(other, indent, indent)]
        else:
            lines += wrapped(other, f"  {one:<{left}}  ", indent)
    return lines
