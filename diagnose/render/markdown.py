"""The diagnosis as Markdown to paste into a bug report: at most 60 KB by construction.

Blocks are added in the order of their worth until the room is used up; what was left out is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.diagnosis import Diagnosis, Finding, Fix
from diagnose.render import marked, units, words
from diagnose.render.options import Options
from diagnose.render.reports.diagnosis import appendix, story, tables
from diagnose.render.reports.ranks import balance as rank_balance
from diagnose.render.reports.ranks import story as rank_story
from diagnose.render.reports.ranks import tables as rank_tables

MOST_RANKS = 24  # in the survey of ranks


def render(document: Diagnosis, _options: Options) -> str:
    """The report as GitHub-flavoured Markdown of at most `marked.MOST_BYTES` bytes."""
    return marked.packed(_blocks(document), document.tool)


def _blocks(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """Title and text of every block, in the order of their worth."""
    yield "verdict", _verdict(document)
    yield from _who_is_late(document)
    yield "walls", marked.table(tables.walls(document))
    if document.ranks is not None:
        yield "survey of ranks", marked.table(rank_tables.survey(document, document.ranks, MOST_RANKS))
    problems = appendix.job_problems(document)
    if problems.rows:
        yield "job problems", marked.table(problems)
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
        yield table.title, marked.folded(table)


def _about_device(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """The figures of the device that the verdict speaks of."""
    device = tables.focus(document)
    if device is not None:
        yield "budget", marked.table(tables.budget(document, device))
        if len(document.budget) > 1:
            yield "budget", f"_{units.plural(len(document.budget) - 1, 'other device')}: see the HTML or JSON output._"
        for build in (tables.buckets, tables.communication, tables.blocking, tables.host):
            yield "figures", marked.table(build(document, device.rank, device.device))


def _about_ranks(document: Diagnosis) -> Iterator[tuple[str, str]]:
    """The tables about ranks after their survey."""
    ranks = document.ranks
    if ranks is None:
        return
    late = [rank_tables.late(document, ranks)] if ranks.late else []
    for table in (*late, rank_tables.groups(ranks), *rank_balance.sections(document, ranks)):
        yield table.title, marked.table(table)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _verdict(document: Diagnosis) -> str:
    verdict = document.verdict
    lines = [
        f"## {story.headline(document)} wall",
        f"**{marked.text(verdict.sentence)}**",
        f"{words.CERTAINTY[verdict.certainty]} · {story.step_time(document)}",
    ]
    lines += [f"- {marked.text(reason)}" for reason in verdict.certainty_reasons]
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
    lines = [f"### Ranks: {marked.text(said.title[:1].lower() + said.title[1:])}", ""]
    for one in said.late:
        lines += [f"- **{marked.text(one.who)}**: {marked.text('; '.join(one.parts))}.", f"  {marked.text(one.evidence)}"]
    if said.more:
        lines.append(f"- {said.more} more in the table of who keeps others waiting")
    yield "ranks", "\n".join([*lines, *([""] if said.late else []), "  \n".join(marked.text(line) for line in said.lines)])
    if ranks.problems:
        yield "ranks", marked.table(rank_tables.problems(ranks))


def _finding(finding: Finding, document: Diagnosis) -> str:
    facts = "; ".join(f"{marked.code(one.fact)} {marked.text(units.fact(one.value, one.unit))}" for one in finding.evidence)
    entries = [
        ("bound", marked.text(story.finding_ceiling(finding, document))),
        ("evidence", facts),
        ("where", marked.text(story.finding_where(finding, document))),
        ("top", ", ".join(marked.code(name, marked.LONGEST_NAME) for name in finding.where.top[:5])),
        ("why", marked.text(finding.why)),
        ("check", marked.text(finding.check)),
        ("wrong when", marked.text(finding.wrong_when)),
    ]
    return "\n".join(
        [
            f"#### {marked.text(story.title(finding.name))}",
            "",
            f"{marked.text(finding.summary)} (severity **{finding.severity}**, {words.WALL[finding.wall].lower()}, {finding.status}, {marked.code(finding.id)})",
            "",
            *(f"- {label}: {text}" for label, text in entries if text),
            *(_fix(fix) for fix in story.ordered_fixes(finding)),
        ]
    )


def _fix(fix: Fix) -> str:
    lines = [f"- {words.STATE_SIGN[fix.state]} **{words.STATE[fix.state]}**: {marked.text(story.title(fix.title))} ({marked.code(fix.id)})"]
    reason = story.fix_reason(fix)
    if reason:
        lines.append(f"  - because: {marked.text(reason)}")
    if fix.state in ("applicable", "unknown"):
        lines += [f"  - {marked.text(story.framework(one.framework))}: {marked.code(story.change(one), 200)}" for one in fix.changes]
    if fix.state != "applicable":  # of the others the HTML output tells the rest, as it does beside the terminal's text
        return "\n".join(lines)
    lines += [f"  - expected: {marked.text(expected.text)} (source: {marked.text(expected.source)})" for expected in fix.expected]
    lines += [
        f"  - {label}: {marked.text(text)}"
        for label, text in (("disputed", fix.disputed), ("cost", fix.cost), ("risk", fix.risk), ("verify", fix.verify))
        if text
    ]
    return "\n".join(lines)
