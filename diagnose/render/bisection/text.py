"""The bisection for a terminal: the result, what moved with each step, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from diagnose.document.bisection import Bisection, Culprit
from diagnose.render import terminal, units
from diagnose.render.options import Options
from diagnose.render.reports.bisection import story, tables

MOST_LINES = 12  # of a commit's message
STYLE = {"found": "red", "several": "red", "range": "yellow", "ends_alike": "blue", "cannot_tell": "yellow"}


def render(document: Bisection, options: Options) -> str:
    """The report as text of `options.width` columns, with colours where `options.color` is set."""
    return terminal.printed(_blocks(document, terminal.width_of(options)), options)


def _blocks(document: Bisection, width: int) -> Iterator[RenderableType]:
    yield _outcome(document)
    for number, culprit in enumerate(document.culprits, 1):
        yield from _culprit(document, culprit, number, width)
    yield from terminal.table(tables.candidates(document, drawn=True), width)
    if tables.skipped(document).rows:
        yield from terminal.table(tables.skipped(document), width)
    yield from terminal.table(tables.trials(document), width)
    if document.notes or document.order:
        yield terminal.heading("Notes")
    for note in (document.order, *document.notes):
        if note:
            yield terminal.note(note)
    yield Text()
    yield Rule(style="dim", characters="─")
    yield _closing(document)


def _outcome(document: Bisection) -> RenderableType:
    style = STYLE[document.result]
    head = Text()
    head.append(story.headline(document).upper(), style=f"bold {style}")
    head.append(terminal.shown(f"  {story.effort(document)} · {story.noise(document)}"), style="dim")
    body: list[RenderableType] = [head, Text(terminal.shown(document.sentence), style="bold"), Text(terminal.shown(story.ends(document)))]
    if story.shape(document):
        body.append(Text(story.shape(document), style="yellow"))
    return Panel(Group(*body), box=box.ROUNDED, border_style=style, title="bisection", title_align="left")


def _culprit(document: Bisection, culprit: Culprit, number: int, width: int) -> Iterator[RenderableType]:
    yield terminal.heading(story.title_of(document, culprit))
    body: list[RenderableType] = [Text(terminal.shown(story.change_of(document, culprit)), style="bold")]
    lines = [line.rstrip() for line in culprit.message.splitlines()]
    body += [Text(terminal.shown(line), style="cyan") for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        body.append(Text(f"… {len(lines) - MOST_LINES} more lines in the HTML and JSON outputs", style="dim"))
    if culprit.among:
        body.append(Text(terminal.shown(story.among(document, culprit))))
    if culprit.comparison is not None:
        body += [Text(terminal.shown(text)) for text in (culprit.comparison.outcome.moved,) if text]
    yield Padding(Group(*body), (0, 0, 0, 1))
    for table in tables.moved(culprit, number):
        yield from terminal.table(table, width)


def _closing(document: Bisection) -> RenderableType:
    line = Text()
    line.append(terminal.shown(document.sentence))
    rules = document.tool.rules_sha256[:12]
    said = f"{document.tool.name} {document.tool.version}{f', rules {rules}' if rules else ''}"
    line.append(f"\n{terminal.shown(said)}; “{units.MISSING}” means not measured", style="dim")
    return line
