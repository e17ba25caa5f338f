"""The comparison for a terminal: the outcome, whether they may be compared, what changed around the code, then where the time went."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from diagnose.document.comparison import Comparison, FindingChange
from diagnose.render import terminal, units
from diagnose.render.options import Options
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison import words as own

MOST_REASONS = 8
MOST_FINDINGS = 12
MOST_NOTES = 12
RESULT_STYLE = {"regression": "red", "improvement": "green", "no_change": "blue", "cannot_tell": "yellow", "refused": "magenta"}


def render(document: Comparison, options: Options) -> str:
    """The report as text of `options.width` columns, with colours where `options.color` is set."""
    return terminal.printed(_blocks(document, terminal.width_of(options)), options)


def _blocks(document: Comparison, width: int) -> Iterator[RenderableType]:
    yield _outcome(document)
    yield from terminal.table(tables.sides(document), width)
    yield from _comparability(document, width)
    yield from terminal.table(tables.environment(document), width)
    yield from terminal.table(tables.settings(document), width)
    yield from _figures(document, width)
    yield from _notes(document)
    yield Text()
    yield Rule(style="dim", characters="─")
    yield _closing(document)


def _figures(document: Comparison, width: int) -> Iterator[RenderableType]:
    """What moved, and by how much; a refused comparison has none."""
    if story.refused(document):
        yield Text()
        yield terminal.note(story.NO_FIGURES)
        return
    for table in (tables.effect(document), tables.delta(document), tables.kernels(document)):
        yield from terminal.table(table, width)
    if tables.renamed(document).rows:
        yield from terminal.table(tables.renamed(document), width)
    for table in (tables.overlap(document), tables.walls(document)):
        yield from terminal.table(table, width)
    yield from _findings(document)


def _outcome(document: Comparison) -> RenderableType:
    outcome = document.outcome
    style = RESULT_STYLE[outcome.result]
    head = Text()
    head.append(story.headline(document).upper(), style=f"bold {style}")
    head.append(terminal.shown(f"  {story.movement(document.effect)}"), style="dim")
    body: list[RenderableType] = [head, Text(terminal.shown(outcome.sentence), style="bold")]
    if outcome.moved:
        body.append(Text(terminal.shown(outcome.moved)))
    if document.gate is not None:
        body.append(Text(terminal.shown(document.gate.sentence), style="green" if document.gate.met else "bold red"))
    body += [Text(terminal.shown(f"· {reason}"), style="dim") for reason in outcome.reasons[:MOST_REASONS]]
    if len(outcome.reasons) > MOST_REASONS:
        body.append(Text(f"· {len(outcome.reasons) - MOST_REASONS} more in the JSON output", style="dim"))
    return Panel(Group(*body), box=box.ROUNDED, border_style=style, title="comparison", title_align="left")


def _comparability(document: Comparison, width: int) -> Iterator[RenderableType]:
    table = tables.mismatches(document)
    if table.rows:
        yield from terminal.table(table, width)
    else:
        yield terminal.heading(table.title)
    for line in (story.comparable(document), story.unknown(document)):
        if line:
            yield terminal.note(line)


def _findings(document: Comparison) -> Iterator[RenderableType]:
    found = story.ordered_findings(document)
    yield terminal.heading("Findings")
    if not found:
        yield terminal.note("None came, none went.")
    for one in found[:MOST_FINDINGS]:
        yield _finding(one)
    if len(found) > MOST_FINDINGS:
        yield terminal.note(f"… and {len(found) - MOST_FINDINGS} more in the HTML and JSON outputs")
    if story.same_findings(document):
        yield terminal.note(story.same_findings(document))


def _finding(one: FindingChange) -> RenderableType:
    costs_more = one.state in ("new", "worse")
    head = Text()
    head.append(f" {own.FINDING[one.state].upper() if costs_more else own.FINDING[one.state]} ", style="bold red" if costs_more else "dim")
    head.append(f"{one.severity} ", style=terminal.SEVERITY_STYLE[one.severity])
    head.append(terminal.shown(f"{one.name[:1].upper()}{one.name[1:]}"), style="bold" if costs_more else "")
    head.append(terminal.shown(f"  {one.id}"), style="dim")
    body: list[RenderableType] = []
    if costs_more:
        body.append(Text(terminal.shown(one.summary)))
    terminal.add(body, "bound", story.finding_bound(one))
    if costs_more:
        terminal.add(body, "change", story.finding_setting(one), style="cyan")
    return Group(head, Padding(Group(*body), (0, 0, 0, 4))) if body else head


def _notes(document: Comparison) -> Iterator[RenderableType]:
    if document.notes:
        yield terminal.heading("Notes")
    for one in document.notes[:MOST_NOTES]:
        yield terminal.note(one)
    if len(document.notes) > MOST_NOTES:
        yield terminal.note(f"… and {len(document.notes) - MOST_NOTES} more in the JSON output")


def _closing(document: Comparison) -> RenderableType:
    line = Text()
    line.append(terminal.shown(document.outcome.sentence))
    rules = document.tool.rules_sha256[:12]
    said = f"{document.tool.name} {document.tool.version}{f', rules {rules}' if rules else ''}"
    line.append(f"\n{terminal.shown(said)}; new less base: + is more time; “{units.MISSING}” means not measured", style="dim")
    return line
