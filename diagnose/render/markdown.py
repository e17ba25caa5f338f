"""The diagnosis as Markdown to paste into a bug report: at most 60 KB by construction.

Blocks are added in the order of their worth until the room is used up; what was left out is said. Texts that a trace can fill
lose every power over the page: no HTML, no links, no mentions, no table cells of their own, no orders to a CI runner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.diagnosis import Diagnosis, Finding, Fix
from diagnose.render import appendix, rank_balance, rank_story, rank_tables, story, tables, units, words
from diagnose.render.options import Options
from diagnose.render.tables import Column, Row, Table

MOST_BYTES = 60_000
MOST_RANKS = 24  # in the survey of ranks
MOST_ROWS = 20
LONGEST_TEXT = 800
LONGEST_NAME = 90
_RESERVE = 400  # for the closing lines

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#|~!$])")
_MENTION = re.compile(r"(?<=[@#])(?=\w)|(?<=\bGH)(?=-\d)|(?<=://)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_JOINER = "\u200b"  # keeps a mention, a reference or an address from becoming a link


def render(document: Diagnosis, _options: Options) -> str:
    """The report as GitHub-flavoured Markdown of at most `MOST_BYTES` bytes."""
    room = MOST_BYTES - _RESERVE
    kept: list[str] = []
    left_out: list[str] = []
    for title, block in _blocks(document):
        need = len(block.encode("utf-8")) + 2
        if need > room:
            left_out.append(title)
            continue
        room -= need
        kept.append(block)
    if left_out:
        shown = ", ".join(dict.fromkeys(left_out[:5]))
        kept.append(
            f"_Left out to stay below {MOST_BYTES // 1000} KB: {len(left_out)} parts ({shown}…); the JSON and HTML outputs hold all._"
        )
    rules = f", rules `{document.tool.rules_sha256[:12]}`" if document.tool.rules_sha256 else ""
    kept.append(f"<sub>{_text(document.tool.name)} {_text(document.tool.version)}{rules}; “{units.MISSING}” means not measured</sub>")
    return "\n\n".join(kept) + "\n"


def _blocks(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """Title and text of every block, in the order of their worth."""
    yield "verdict", _verdict(document)
    yield from _who_is_late(document)
    yield "walls", _table(tables.walls(document))
    if document.ranks is not None:
        yield "survey of ranks", _table(rank_tables.survey(document, document.ranks, MOST_RANKS))
    problems = appendix.job_problems(document)
    if problems.rows:
        yield "job problems", _table(problems)
    findings = story.ordered_findings(document)
    yield "findings", f"### Findings ({len(findings)})" + ("" if findings else "\n\nNo rule found anything to change.")
    for finding in findings:
        yield "findings", _finding(finding, document)
    yield from _about_ranks(document)
    yield from _about_device(document)
    for table in (
        appendix.capture(document),
        appendix.ledger(document),
        appendix.not_assessed(document),
        tables.unclassified(document),
        appendix.job(document),
        *[table for table in (appendix.job_sizes(document),) if table.rows],
        appendix.memory(document),
        appendix.fill(document),
        appendix.occupancy(document),
        appendix.tables_read(document),
    ):
        yield table.title, _folded(table)


def _about_device(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """The figures of the device that the verdict speaks of."""
    device = tables.focus(document)
    if device is not None:
        yield "budget", _table(tables.budget(document, device))
        if len(document.budget) > 1:
            yield "budget", f"_{units.plural(len(document.budget) - 1, 'other device')}: see the HTML or JSON output._"
        for build in (tables.buckets, tables.communication, tables.blocking, tables.host):
            yield "figures", _table(build(document, device.rank, device.device))


def _about_ranks(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """The tables about ranks after their survey."""
    ranks = document.ranks
    if ranks is None:
        return
    late = [rank_tables.late(document, ranks)] if ranks.late else []
    for table in (*late, rank_tables.groups(ranks), *rank_balance.sections(document, ranks)):
        yield table.title, _table(table)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _verdict(document: Diagnosis) -> str:
    verdict = document.verdict
    lines = [
        f"## {story.headline(document)} wall",
        f"**{_text(verdict.sentence)}**",
        f"{words.CERTAINTY[verdict.certainty]} · {story.step_time(document)}",
    ]
    lines += [f"- {_text(reason)}" for reason in verdict.certainty_reasons]
    if verdict.perturbed:
        lines.append("- perturbed: the profiler slowed this run; times are longer than without it")
    if any(entry.severity in ("data_loss", "error") for entry in document.ledger):
        lines.append("- **data was lost: see the ledger**")
    return "\n\n".join(lines[:3]) + "".join(f"\n{line}" if index else f"\n\n{line}" for index, line in enumerate(lines[3:]))


def _who_is_late(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """What is said about ranks before any table, and the ranks that are missing or can't be compared; nothing where one rank was captured."""
    ranks = document.ranks
    if ranks is None:
        return
    said = rank_story.headline(document, ranks)
    lines = [f"### Ranks: {_text(said.title[:1].lower() + said.title[1:])}", ""]
    for one in said.late:
        lines += [f"- **{_text(one.who)}**: {_text('; '.join(one.parts))}.", f"  {_text(one.evidence)}"]
    if said.more:
        lines.append(f"- {said.more} more in the table of who keeps others waiting")
    yield "ranks", "\n".join([*lines, *([""] if said.late else []), "  \n".join(_text(line) for line in said.lines)])
    if ranks.problems:
        yield "ranks", _table(rank_tables.problems(ranks))


def _table(table: Table, heading: bool = True) -> str:
    head = [f"### {_text(table.title)}", ""] if heading else []
    if not table.rows:
        return "\n".join([*head, f"{_text(table.empty)}."])
    lines = [
        *head,
        _line([_text(column.label) for column in table.columns]),
        _line(["---:" if column.kind == "number" else "---" for column in table.columns]),
        *(_line(_cells(row, table.columns)) for row in table.rows[: _most(table)]),
    ]
    if len(table.rows) > _most(table):
        lines += ["", f"_{len(table.rows) - _most(table)} more rows in the JSON and HTML outputs._"]
    if table.note:
        lines += ["", f"<sub>{_text(table.note)}</sub>"]
    if table.copy:
        lines += ["", "```yaml", table.copy.rstrip("\n"), "```"]  # made of words and numbers alone, so that nothing can end the block
    return "\n".join(lines)


def _most(table: Table) -> int:
    if table.whole:
        return len(table.rows)
    return 60 if table.key.startswith(("budget", "buckets", "capture")) else MOST_ROWS


def _folded(table: Table) -> str:
    """The table behind a heading that opens on a click."""
    return f"<details><summary>{_text(table.title)} ({len(table.rows)})</summary>\n\n{_table(table, heading=False)}\n\n</details>"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row, columns: tuple[Column, ...]) -> list[str]:
    cells = [_code(cell, LONGEST_NAME) if column.kind == "name" else _text(cell) for cell, column in zip(row.cells, columns, strict=True)]
    if row.strong:
        cells[0] = f"**{cells[0]}**"
    cells[0] = "&emsp;" * row.indent + cells[0]
    return cells


def _finding(finding: Finding, document: Diagnosis) -> str:
    facts = "; ".join(f"{_code(one.fact)} {_text(units.fact(one.value, one.unit))}" for one in finding.evidence)
    entries = [
        ("bound", _text(story.finding_ceiling(finding, document))),
        ("evidence", facts),
        ("where", _text(story.finding_where(finding, document))),
        ("top", ", ".join(_code(name, LONGEST_NAME) for name in finding.where.top[:5])),
        ("why", _text(finding.why)),
        ("check", _text(finding.check)),
        ("wrong when", _text(finding.wrong_when)),
    ]
    return "\n".join(
        [
            f"#### {_text(story.title(finding.name))}",
            "",
            f"{_text(finding.summary)} (severity **{finding.severity}**, {words.WALL[finding.wall].lower()}, {finding.status}, {_code(finding.id)})",
            "",
            *(f"- {label}: {text}" for label, text in entries if text),
            *(_fix(fix) for fix in story.ordered_fixes(finding)),
        ]
    )


def _fix(fix: Fix) -> str:
    lines = [f"- {words.STATE_SIGN[fix.state]} **{words.STATE[fix.state]}**: {_text(story.title(fix.title))} ({_code(fix.id)})"]
    reason = story.fix_reason(fix)
    if reason:
        lines.append(f"  - because: {_text(reason)}")
    if fix.state in ("applicable", "unknown"):
        lines += [f"  - {_text(story.framework(one.framework))}: {_code(story.change(one), 200)}" for one in fix.changes]
    if fix.state != "applicable":  # of the others the HTML output tells the rest, as it does beside the terminal's text
        return "\n".join(lines)
    lines += [f"  - expected: {_text(expected.text)} (source: {_text(expected.source)})" for expected in fix.expected]
    lines += [
        f"  - {label}: {_text(text)}"
        for label, text in (("disputed", fix.disputed), ("cost", fix.cost), ("risk", fix.risk), ("verify", fix.verify))
        if text
    ]
    return "\n".join(lines)


# --- harmless text ----------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Prose in which nothing is markup, a link, a mention or a reference."""
    shown = units.visible(text)
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}…"
    shown = _SPECIAL.sub(r"\\\1", _MENTION.sub(_JOINER, shown).replace("&", "&amp;").replace("::", f":{_JOINER}:"))
    return shown.replace("<", "&lt;").replace(">", "&gt;").replace("\\&lt;", "&lt;").replace("\\&gt;", "&gt;")


def _code(text: str, limit: int = LONGEST_TEXT) -> str:
    """A code span; backticks become primes and pipes are escaped, which a table needs even inside code."""
    shown = units.shorten(text, limit).replace("`", "′").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else "` `"
