"""What every output for a terminal is made of: a console without surprises, headings, notes, and tables that fit the width.

Nothing from a trace reaches the terminal as anything but visible text: no markup, no escape codes, no line of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from diagnose.render import units, words
from diagnose.render.options import NARROWEST, WIDEST, Options
from diagnose.render.report import Column, Row, Table

MOST_ROWS = 12  # rows of a list that grows with the trace; the other outputs hold all
MOST_ROWS_LONG = 40  # of lists that are as long as the vocabulary
WALL_STYLE = {name: words.VOCABULARY.wall_style(name) for name in words.WALL}
SEVERITY_STYLE = {"high": "bold red", "medium": "yellow", "low": "dim"}

# A number keeps its unit on its line: rich breaks at every kind of space, so a private sign (which no visible text holds) stands in.
_GLUE = "\ue000"

# A line that starts so is an order to a CI runner, even behind spaces.
_WORKFLOW_COMMAND = re.compile(r"^(\s*)(?=::|##\[|##vso|##teamcity)", re.MULTILINE)


def width_of(options: Options) -> int:
    """The width that is used: as asked, within what helps reading."""
    return min(max(options.width, NARROWEST), WIDEST)


def printed(blocks: Iterable[RenderableType], options: Options) -> str:
    """The blocks as text of `options.width` columns, with colours where `options.color` is set."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width_of(options),
        force_terminal=options.color,
        no_color=not options.color,
        color_system="standard" if options.color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for block in blocks:
        console.print(block)
    lines = (line.rstrip() for line in out.getvalue().replace(_GLUE, " ").splitlines())
    return _WORKFLOW_COMMAND.sub(r"\1\\", "\n".join(lines)) + "\n"


def shown(text: str) -> str:
    """A text from anywhere as it may stand on the terminal."""
    return units.glued(units.visible(text), _GLUE)


def heading(title: str) -> Text:
    """A heading with an empty line above it."""
    return Text(f"\n{shown(title)}", style="bold underline")


def note(text: str) -> RenderableType:
    """A remark."""
    return Padding(Text(shown(text), style="dim"), (0, 0, 0, 1))


def add(body: list[RenderableType], label: str, text: str, style: str = "") -> None:
    """Append `label: text`, unless there is no text."""
    if text:
        line = Text()
        line.append(f"{label}: ", style="dim")
        line.append(shown(text), style=style)
        body.append(line)


def table(found: Table, width: int) -> Iterator[RenderableType]:
    """A titled table without the weak columns that do not fit, cut to what a terminal can hold."""
    yield heading(found.title)
    if not found.rows:
        yield note(f"{found.empty}.")
        return
    kept = _fitting(found, width)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, padding=(0, 1), header_style="dim")
    for index in kept:
        _add_column(grid, found.columns[index], first=index == 0)
    others = sum(_widest(found, index) + 3 for index in kept if found.columns[index].kind != "name")
    columns = sum(found.columns[index].kind == "name" for index in kept) or 1
    names = max(_least_name(width), (width - 6 - others - 3 * (columns - 1)) // columns)
    for row in found.rows[: _most(found)]:
        grid.add_row(*(_cell(row, index, found.columns[index], names) for index in kept), style="bold" if row.strong else None)
    yield grid
    if len(found.rows) > _most(found):
        yield note(f"… and {len(found.rows) - _most(found)} more in the HTML and JSON outputs")
    dropped = [column.label for index, column in enumerate(found.columns) if index not in kept]
    if dropped:
        yield note(f"Left out for lack of room: {', '.join(dropped)}.")
    if found.note:
        yield note(found.note)
    if found.copy:
        yield Text("\n".join(shown(line) for line in ("", *found.copy.splitlines())), no_wrap=True, overflow="ignore")


def _fitting(table: Table, width: int) -> list[int]:
    """The columns that fit, without weak ones from the right where there is too little room."""
    kept = list(range(len(table.columns)))
    for index in reversed(kept.copy()):
        if sum(3 + _needed(table, one, width) for one in kept) > width and table.columns[index].weak:
            kept.remove(index)
    return kept


def _needed(table: Table, index: int, width: int) -> int:
    """Columns of text that a table's column needs at least: text can fold and names can be shortened."""
    widest = _widest(table, index)
    return {"number": widest, "text": widest if index == 0 else min(widest, 22), "name": _least_name(width)}[table.columns[index].kind]


def _least_name(width: int) -> int:
    """How far a name is shortened before columns are left out."""
    return 36 if width >= 80 else 28


def _most(table: Table) -> int:
    if table.whole:
        return len(table.rows)
    return MOST_ROWS_LONG if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def _add_column(grid: Grid, column: Column, *, first: bool) -> None:
    grid.add_column(
        Text(column.label),
        justify="right" if column.kind == "number" else "left",
        no_wrap=first or column.kind != "text",
        overflow="ellipsis" if column.kind != "text" else "fold",
    )


def _widest(table: Table, index: int) -> int:
    longest = max((len(row.cells[index]) + (0 if index else 2 * row.indent) for row in table.rows), default=0)
    return min(max(longest, len(table.columns[index].label)), 40)


def _cell(row: Row, index: int, column: Column, names: int) -> Text:
    text = row.cells[index]
    said = units.shorten(text, names) if column.kind == "name" else shown(text)
    return Text("  " * row.indent + said if index == 0 else said)
