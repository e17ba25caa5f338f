"""The diagnosis for a terminal: verdict first, then the walls, the budget, the findings, and how far to trust it all.

Nothing from a trace reaches the terminal as anything but visible text: no markup, no escape codes, no line of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from diagnose.diagnosis import Diagnosis, Finding, Fix
from diagnose.render import appendix, rank_balance, rank_story, rank_tables, story, tables, units, words
from diagnose.render.options import NARROWEST, WIDEST, Options
from diagnose.render.tables import Column, Row, Table

MOST_RANKS = 16  # in the survey of ranks
MOST_ROWS = 12  # rows of a list that grows with the trace; the other outputs hold all
WALL_STYLE = {"memory": "magenta", "communication": "yellow", "host_overhead": "green", "compute": "blue", "capture": "cyan"}
SEVERITY_STYLE = {"high": "bold red", "medium": "yellow", "low": "dim"}
STATE_STYLE = {"applicable": "bold green", "already_on": "dim", "blocked": "red", "unknown": "yellow"}

# A number keeps its unit on its line: rich breaks at every kind of space, so a private sign (which no visible text holds) stands in.
_GLUE = "\ue000"

# A line that starts so is an order to a CI runner, even behind spaces.
_WORKFLOW_COMMAND = re.compile(r"^(\s*)(?=::|##\[|##vso|##teamcity)", re.MULTILINE)


def render(document: Diagnosis, options: Options) -> str:
    """The report as text of `options.width` columns, with colours where `options.color` is set."""
    width = min(max(options.width, NARROWEST), WIDEST)
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=options.color,
        no_color=not options.color,
        color_system="standard" if options.color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for block in _blocks(document, width):
        console.print(block)
    lines = (line.rstrip() for line in out.getvalue().replace(_GLUE, " ").splitlines())
    return _WORKFLOW_COMMAND.sub(r"\1\\", "\n".join(lines)) + "\n"


def _blocks(document: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield _verdict(document)
    yield from _who_is_late(document, width)
    yield from _table(tables.walls(document), width)
    for table in _rank_tables(document):
        yield from _table(table, width)
    device = tables.focus(document)
    if device is not None:
        yield from _table(tables.budget(document, device), width)
        if len(document.budget) > 1:
            yield _note(f"{units.plural(len(document.budget) - 1, 'other device')}: see the HTML or JSON output.")
        for build in (tables.buckets, tables.communication, tables.blocking, tables.host):
            yield from _table(build(document, device.rank, device.device), width)
    for table in (appendix.memory(document), appendix.fill(document), appendix.occupancy(document), appendix.job_problems(document)):
        if table.rows:
            yield from _table(table, width)
    yield _heading(f"Findings ({len(document.findings)})")
    if not document.findings:
        yield _note("No rule found anything to change.")
    for finding in story.ordered_findings(document):
        yield _finding(finding, document, width)
    for table in (
        tables.unclassified(document),
        appendix.job(document),
        *[table for table in (appendix.job_sizes(document),) if table.rows],
        appendix.capture(document),
    ):
        yield from _table(table, width)
    yield from _not_assessed(document)
    yield from _ledger(document)
    yield Text()
    yield Rule(style="dim", characters="─")
    yield _closing(document)


def _shown(text: str) -> str:
    """A text from anywhere as it may stand on the terminal."""
    return units.glued(units.visible(text), _GLUE)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _verdict(document: Diagnosis) -> RenderableType:
    verdict = document.verdict
    head = Text()
    head.append(story.headline(document).upper(), style=f"bold {WALL_STYLE[verdict.dominant_wall]}")
    head.append(_shown(f"  {words.CERTAINTY[verdict.certainty]} · {story.step_time(document)}"), style="dim")
    body: list[RenderableType] = [head, Text(_shown(verdict.sentence), style="bold")]
    if verdict.certainty_reasons:
        body.append(Text(f"certainty: {'; '.join(_shown(reason) for reason in verdict.certainty_reasons)}", style="dim"))
    if verdict.perturbed:
        body.append(Text("perturbed: the profiler slowed this run; times are longer than without it", style="yellow"))
    if any(entry.severity in ("data_loss", "error") for entry in document.ledger):
        body.append(Text("data was lost: see the ledger at the end", style="bold red"))
    return Panel(Group(*body), box=box.ROUNDED, border_style=WALL_STYLE[verdict.dominant_wall], title="verdict", title_align="left")


def _who_is_late(document: Diagnosis, width: int) -> Iterator[RenderableType]:
    """What is said about ranks before any table, and the ranks that are missing or can't be compared; nothing where one rank was captured."""
    ranks = document.ranks
    if ranks is None:
        return
    said = rank_story.headline(document, ranks)
    body: list[RenderableType] = [Text(_shown(said.title), style="bold")]
    for one in said.late:
        head = Text()
        head.append(_shown(one.who), style="bold")
        head.append(_shown(f": {'; '.join(one.parts)}."))
        body += [head, Padding(Text(_shown(one.evidence)), (0, 0, 0, 2))]
    if said.more:
        body.append(Text(f"{said.more} more in the table of who keeps others waiting", style="dim"))
    body += [Text(_shown(line), style="dim") for line in said.lines]
    yield Panel(Group(*body), box=box.ROUNDED, border_style="dim", title="ranks", title_align="left")
    if ranks.problems:
        yield from _table(rank_tables.problems(ranks), width)


def _rank_tables(document: Diagnosis) -> list[Table]:
    """The tables about ranks in the order in which they are read; of hundreds of ranks those that tell most."""
    ranks = document.ranks
    if ranks is None:
        return []
    return [
        rank_tables.groups(ranks),
        rank_tables.survey(document, ranks, MOST_RANKS),
        *([rank_tables.late(document, ranks, evidence=False)] if ranks.late else []),
        *rank_balance.sections(document, ranks),
    ]


def _heading(title: str) -> Text:
    return Text(f"\n{_shown(title)}", style="bold underline")


def _note(text: str) -> RenderableType:
    return Padding(Text(_shown(text), style="dim"), (0, 0, 0, 1))


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    yield _heading(table.title)
    if not table.rows:
        yield _note(f"{table.empty}.")
        return
    kept = _fitting(table, width)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, padding=(0, 1), header_style="dim")
    for index in kept:
        _add_column(grid, table.columns[index], first=index == 0)
    names = max(36, width - 6 - sum(_widest(table, index) + 3 for index in kept if table.columns[index].kind != "name"))
    for row in table.rows[: _most(table)]:
        grid.add_row(*(_cell(row, index, table.columns[index], names) for index in kept), style="bold" if row.strong else None)
    yield grid
    if len(table.rows) > _most(table):
        yield _note(f"… and {len(table.rows) - _most(table)} more in the HTML and JSON outputs")
    dropped = [column.label for index, column in enumerate(table.columns) if index not in kept]
    if dropped:
        yield _note(f"Left out for lack of room: {', '.join(dropped)}.")
    if table.note:
        yield _note(table.note)
    if table.copy:
        yield Text("\n".join(_shown(line) for line in ("", *table.copy.splitlines())), no_wrap=True, overflow="ignore")


def _fitting(table: Table, width: int) -> list[int]:
    """The columns that fit, without weak ones from the right where there is too little room."""
    kept = list(range(len(table.columns)))
    for index in reversed(kept.copy()):
        if sum(3 + _needed(table, one) for one in kept) > width and table.columns[index].weak:
            kept.remove(index)
    return kept


def _needed(table: Table, index: int) -> int:
    """Columns of text that a table's column needs at least: text can fold and names can be shortened."""
    widest = _widest(table, index)
    return {"number": widest, "text": widest if index == 0 else min(widest, 22), "name": 36}[table.columns[index].kind]


def _not_assessed(document: Diagnosis) -> Iterator[RenderableType]:
    table = appendix.not_assessed(document)
    yield _heading(f"{table.title} ({len(document.not_assessed)})")
    yield _note(table.note if table.rows else f"{table.empty}.")
    for row in table.rows:
        rule, missing, how = (_shown(cell) for cell in row.cells)
        head = Text(f" {rule}")
        head.append(f"  lacking {missing}", style="dim")
        yield head
        yield Padding(Text(how, style="dim"), (0, 0, 0, 4))


def _ledger(document: Diagnosis) -> Iterator[RenderableType]:
    table = appendix.ledger(document)
    yield _heading(table.title)
    if not table.rows:
        yield _note(f"{table.empty}.")
    for row in table.rows:
        severity, code, source, count, meaning = (_shown(cell) for cell in row.cells)
        head = Text(f" {severity:<9} ", style="bold red" if row.strong else "dim")
        head.append(f"{count} × {code}", style="bold not dim" if row.strong else "not dim")
        head.append(f" in {source}", style="not bold dim")
        yield head
        yield Padding(Text(meaning, style="dim"), (0, 0, 0, 11))


def _most(table: Table) -> int:
    if table.whole:
        return len(table.rows)
    return 40 if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def _add_column(grid: Grid, column: Column, *, first: bool) -> None:
    grid.add_column(
        Text(column.label),
        justify="right" if column.kind == "number" else "left",
        no_wrap=first or column.kind != "text",
        overflow="ellipsis" if column.kind != "text" else "fold",
    )


def _widest(table: Table, index: int) -> int:
    longest = max((len(row.cells[index]) for row in table.rows), default=0)
    return min(max(longest, len(table.columns[index].label)), 40)


def _cell(row: Row, index: int, column: Column, names: int) -> Text:
    text = row.cells[index]
    shown = units.shorten(text, names) if column.kind == "name" else _shown(text)
    return Text("  " * row.indent + shown if index == 0 else shown)


def _finding(finding: Finding, document: Diagnosis, width: int) -> RenderableType:
    head = Text()
    head.append(f"{finding.severity.upper():<6} ", style=SEVERITY_STYLE[finding.severity])
    head.append(_shown(story.title(finding.name)), style="bold")
    kind = f"{words.WALL[finding.wall].lower()} · {finding.status} · {finding.id}"
    body: list[RenderableType] = [Text(_shown(kind), style="dim"), Text(_shown(finding.summary))]
    _add(body, "bound", story.finding_ceiling(finding, document))
    evidence = " · ".join(f"{one.fact} {units.fact(one.value, one.unit)}" for one in finding.evidence)
    _add(body, "evidence", evidence)
    _add(body, "where", story.finding_where(finding, document))
    top = (f"· {units.shorten(name, width - 12)}" for name in finding.where.top[:5])
    body.extend(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in top)
    _add(body, "why", finding.why)
    _add(body, "check", finding.check)
    _add(body, "wrong when", finding.wrong_when)
    body.extend(_fix(fix) for fix in story.ordered_fixes(finding))
    return Padding(Group(head, Padding(Group(*body), (0, 0, 0, 3))), (1, 0, 0, 0))


def _fix(fix: Fix) -> RenderableType:
    head = Text()
    head.append(f"{words.STATE_SIGN[fix.state]} {words.STATE[fix.state]}: ", style=STATE_STYLE[fix.state])
    head.append(_shown(story.title(fix.title)), style="bold" if fix.state == "applicable" else "")
    head.append(f"  {fix.id}", style="dim")
    body: list[RenderableType] = []
    _add(body, "because", story.fix_reason(fix))
    if fix.state in ("applicable", "unknown"):
        for framework, changes in story.changes_by_framework(fix):
            _add(body, f"set ({framework})", changes, style="cyan")
    if fix.state == "applicable":  # of the others the HTML output tells the rest
        for expected in fix.expected:
            _add(body, "expected", f"{expected.text} [{expected.source}]")
        _add(body, "disputed", fix.disputed)
        _add(body, "cost", fix.cost)
        _add(body, "risk", fix.risk)
        _add(body, "verify", fix.verify)
    return Group(head, Padding(Group(*body), (0, 0, 0, 4))) if body else head


def _add(body: list[RenderableType], label: str, text: str, style: str = "") -> None:
    """Append `label: text`, unless there is no text."""
    if text:
        line = Text()
        line.append(f"{label}: ", style="dim")
        line.append(_shown(text), style=style)
        body.append(line)


def _closing(document: Diagnosis) -> RenderableType:
    line = Text()
    line.append(_shown(document.verdict.sentence))
    first = story.first_try(document)
    if first:
        line.append("\nfirst to try: ", style="dim")
        line.append(_shown(first))
    rules = document.tool.rules_sha256[:12]
    line.append(f"\n{document.tool.name} {document.tool.version}{f', rules {rules}' if rules else ''}; “–” means not measured", style="dim")
    return line
