"""The diagnosis for a terminal: verdict first, then the walls, the budget, the findings, and how far to trust it all.

Nothing from a trace reaches the terminal as anything but visible text: no markup, no escape codes, no line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from diagnose.document.diagnosis import Diagnosis, Finding, Fix
from diagnose.render import terminal, units, words
from diagnose.render.options import Options
from diagnose.render.report import Table
from diagnose.render.reports.diagnosis import appendix, story, tables
from diagnose.render.reports.ranks import balance as rank_balance
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks import tables as rank_tables

MOST_RANKS = 16  # in the survey of ranks
STATE_STYLE = {"applicable": "bold green", "already_on": "dim", "blocked": "red", "unknown": "yellow"}


def render(document: Diagnosis, options: Options) -> str:
    """The report as text of `options.width` columns, with colours where `options.color` is set."""
    return terminal.printed(_blocks(document, terminal.width_of(options)), options)


def _blocks(document: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield _verdict(document)
    yield from _who_is_late(document, width)
    yield from terminal.table(tables.walls(document), width)
    for table in _rank_tables(document):
        yield from terminal.table(table, width)
    device = tables.focus(document)
    if device is not None:
        yield from terminal.table(tables.budget(document, device), width)
        if len(document.budget) > 1:
            yield terminal.note(f"{units.plural(len(document.budget) - 1, 'other device')}: see the HTML or JSON output.")
        for build in (tables.buckets, tables.communication, tables.blocking, tables.host):
            yield from terminal.table(build(document, device.rank, device.device), width)
    for table in (appendix.memory(document), appendix.fill(document), appendix.occupancy(document), appendix.job_problems(document)):
        if table.rows:
            yield from terminal.table(table, width)
    yield terminal.heading(f"Findings ({len(document.findings)})")
    if not document.findings:
        yield terminal.note("No rule found anything to change.")
    for finding in story.ordered_findings(document):
        yield _finding(finding, document, width)
    for table in (
        tables.unclassified(document),
        appendix.job(document),
        *[table for table in (appendix.job_sizes(document),) if table.rows],
        appendix.capture(document),
    ):
        yield from terminal.table(table, width)
    yield from _not_assessed(document)
    yield from _ledger(document)
    yield Text()
    yield Rule(style="dim", characters="─")
    yield _closing(document)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _verdict(document: Diagnosis) -> RenderableType:
    verdict = document.verdict
    head = Text()
    head.append(story.headline(document).upper(), style=f"bold {terminal.WALL_STYLE[verdict.dominant_wall]}")
    head.append(terminal.shown(f"  {words.CERTAINTY[verdict.certainty]} · {story.step_time(document)}"), style="dim")
    body: list[RenderableType] = [head, Text(terminal.shown(verdict.sentence), style="bold")]
    if verdict.certainty_reasons:
        body.append(Text(f"certainty: {'; '.join(terminal.shown(reason) for reason in verdict.certainty_reasons)}", style="dim"))
    if verdict.perturbed:
        body.append(Text("perturbed: the profiler slowed this run; times are longer than without it", style="yellow"))
    if any(entry.severity in ("data_loss", "error") for entry in document.ledger):
        body.append(Text("data was lost: see the ledger at the end", style="bold red"))
    return Panel(
        Group(*body), box=box.ROUNDED, border_style=terminal.WALL_STYLE[verdict.dominant_wall], title="verdict", title_align="left"
    )


def _who_is_late(document: Diagnosis, width: int) -> Iterator[RenderableType]:
    """What is said about ranks before any table, and the ranks that are missing or can't be compared; nothing where one rank was captured."""
    ranks = document.ranks
    if ranks is None:
        return
    said = rank_story.headline(document, ranks)
    body: list[RenderableType] = [Text(terminal.shown(said.title), style="bold")]
    for one in said.late:
        head = Text()
        head.append(terminal.shown(one.who), style="bold")
        head.append(terminal.shown(f": {'; '.join(one.parts)}."))
        body += [head, Padding(Text(terminal.shown(one.evidence)), (0, 0, 0, 2))]
    if said.more:
        body.append(Text(f"{said.more} more in the table of who keeps others waiting", style="dim"))
    body += [Text(terminal.shown(line), style="dim") for line in said.lines]
    yield Panel(Group(*body), box=box.ROUNDED, border_style="dim", title="ranks", title_align="left")
    if ranks.problems:
        yield from terminal.table(rank_tables.problems(ranks), width)


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


def _not_assessed(document: Diagnosis) -> Iterator[RenderableType]:
    table = appendix.not_assessed(document)
    yield terminal.heading(f"{table.title} ({len(document.not_assessed)})")
    yield terminal.note(table.note if table.rows else f"{table.empty}.")
    for row in table.rows:
        rule, missing, how = (terminal.shown(cell) for cell in row.cells)
        head = Text(f" {rule}")
        head.append(f"  lacking {missing}", style="dim")
        yield head
        yield Padding(Text(how, style="dim"), (0, 0, 0, 4))


def _ledger(document: Diagnosis) -> Iterator[RenderableType]:
    table = appendix.ledger(document)
    yield terminal.heading(table.title)
    if not table.rows:
        yield terminal.note(f"{table.empty}.")
    for row in table.rows:
        severity, code, source, count, meaning = (terminal.shown(cell) for cell in row.cells)
        head = Text(f" {severity:<9} ", style="bold red" if row.strong else "dim")
        head.append(f"{count} × {code}", style="bold not dim" if row.strong else "not dim")
        head.append(f" in {source}", style="not bold dim")
        yield head
        yield Padding(Text(meaning, style="dim"), (0, 0, 0, 11))


def _finding(finding: Finding, document: Diagnosis, width: int) -> RenderableType:
    head = Text()
    head.append(f"{finding.severity.upper():<6} ", style=terminal.SEVERITY_STYLE[finding.severity])
    head.append(terminal.shown(story.title(finding.name)), style="bold")
    kind = f"{words.WALL[finding.wall].lower()} · {finding.status} · {finding.id}"
    body: list[RenderableType] = [Text(terminal.shown(kind), style="dim"), Text(terminal.shown(finding.summary))]
    terminal.add(body, "bound", story.finding_ceiling(finding, document))
    evidence = " · ".join(f"{one.fact} {units.fact(one.value, one.unit)}" for one in finding.evidence)
    terminal.add(body, "evidence", evidence)
    terminal.add(body, "where", story.finding_where(finding, document))
    top = (f"· {units.shorten(name, width - 12)}" for name in finding.where.top[:5])
    body.extend(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in top)
    terminal.add(body, "why", finding.why)
    terminal.add(body, "check", finding.check)
    terminal.add(body, "wrong when", finding.wrong_when)
    body.extend(_fix(fix) for fix in story.ordered_fixes(finding))
    return Padding(Group(head, Padding(Group(*body), (0, 0, 0, 3))), (1, 0, 0, 0))


def _fix(fix: Fix) -> RenderableType:
    head = Text()
    head.append(f"{words.STATE_SIGN[fix.state]} {words.STATE[fix.state]}: ", style=STATE_STYLE[fix.state])
    head.append(terminal.shown(story.title(fix.title)), style="bold" if fix.state == "applicable" else "")
    head.append(f"  {fix.id}", style="dim")
    body: list[RenderableType] = []
    terminal.add(body, "because", story.fix_reason(fix))
    if fix.state in ("applicable", "unknown"):
        for framework, changes in story.changes_by_framework(fix):
            terminal.add(body, f"set ({framework})", changes, style="cyan")
    if fix.state == "applicable":  # of the others the HTML output tells the rest
        for expected in fix.expected:
            terminal.add(body, "expected", f"{expected.text} [{expected.source}]")
        terminal.add(body, "disputed", fix.disputed)
        terminal.add(body, "cost", fix.cost)
        terminal.add(body, "risk", fix.risk)
        terminal.add(body, "verify", fix.verify)
    return Group(head, Padding(Group(*body), (0, 0, 0, 4))) if body else head


def _closing(document: Diagnosis) -> RenderableType:
    line = Text()
    line.append(terminal.shown(document.verdict.sentence))
    first = story.first_try(document)
    if first:
        line.append("\nfirst to try: ", style="dim")
        line.append(terminal.shown(first))
    rules = document.tool.rules_sha256[:12]
    line.append(f"\n{document.tool.name} {document.tool.version}{f', rules {rules}' if rules else ''}; “–” means not measured", style="dim")
    return line
