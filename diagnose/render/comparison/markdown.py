"""The comparison as Markdown for a pull request's comment: at most 60 KB by construction, details folded.

Blocks are added in the order of their worth until the room is used up; what was left out is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.document.comparison import Comparison, FindingChange
from diagnose.render import marked
from diagnose.render.options import Options
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison import words as own

MOST_LINES = 8  # of reasons and notes
MOST_FINDINGS = 12
LONGEST_SENTENCE = 400
MOST_OPEN = 8  # rows of a table that is not folded


def render(document: Comparison, _options: Options) -> str:
    """The report as GitHub-flavoured Markdown of at most `marked.MOST_BYTES` bytes."""
    return marked.packed(_blocks(document), document.tool)


def _blocks(document: Comparison) -> Iterator[tuple[str, str]]:
    """Title and text of every block, in the order of their worth."""
    yield "outcome", _outcome(document)
    yield "whether they may be compared", _comparability(document)
    for table in (tables.environment(document), tables.settings(document)):
        yield table.title, marked.table(table) if len(table.rows) <= MOST_OPEN else f"### {table.title}\n\n{marked.folded(table)}"
    if story.refused(document):
        yield "figures", marked.text(story.NO_FIGURES)
    else:
        yield from _figures(document)
    if document.notes:
        yield "notes", f"<details><summary>Notes ({len(document.notes)})</summary>\n\n{_listed(document.notes)}\n\n</details>"


def _figures(document: Comparison) -> Iterator[tuple[str, str]]:
    """What moved, and by how much."""
    yield "effect", marked.table(tables.effect(document))
    yield "delta", marked.table(tables.delta(document, moved_only=True))
    yield "findings", _findings(document)
    for table in (
        tables.delta(document),
        tables.kernels(document),
        tables.renamed(document),
        tables.overlap(document),
        tables.walls(document),
        tables.sides(document),
    ):
        if table.rows:
            yield table.title, marked.folded(table)


def _outcome(document: Comparison) -> str:
    outcome = document.outcome
    lines = [f"## {story.headline(document)}: {marked.text(story.movement(document.effect))}", f"**{marked.text(outcome.sentence)}**"]
    lines += [marked.text(text) for text in (outcome.moved, _gate(document)) if text]
    lines.append(f"<sub>base {marked.code(document.base.label, 90)}, new {marked.code(document.new.label, 90)}</sub>")
    if outcome.reasons:
        lines.append(_listed(outcome.reasons))
    return "\n\n".join(lines)


def _gate(document: Comparison) -> str:
    return "" if document.gate is None else document.gate.sentence


def _listed(texts: Sequence[str]) -> str:
    lines = [f"- {_sentence(text)}" for text in texts[:MOST_LINES]]
    if len(texts) > MOST_LINES:
        lines.append(f"- {len(texts) - MOST_LINES} more in the JSON output")
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return marked.text(text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]}…")


def _comparability(document: Comparison) -> str:
    table = tables.mismatches(document)
    said = " ".join(text for text in (story.comparable(document), story.unknown(document)) if text)
    if not table.rows:
        return f"### {table.title}\n\n{marked.text(said)}"
    return f"{marked.table(table)}\n\n{marked.text(said)}"


def _findings(document: Comparison) -> str:
    found = story.ordered_findings(document)
    lines = [_finding(one) for one in found[:MOST_FINDINGS]]
    if len(found) > MOST_FINDINGS:
        lines.append(f"- {len(found) - MOST_FINDINGS} more in the JSON and HTML outputs")
    same = story.same_findings(document)
    return "\n\n".join(["### Findings", "\n".join(lines) or "None came, none went.", *([f"<sub>{same}</sub>"] if same else [])])


def _finding(one: FindingChange) -> str:
    head = f"- **{own.FINDING[one.state]}** ({one.severity}): {marked.text(one.name)} ({marked.code(one.id)})"
    if one.state not in ("new", "worse"):
        return head
    lines = [head, f"  - {_sentence(one.summary)}"]
    lines += [
        f"  - {label}: {marked.text(text)}"
        for label, text in (("bound", story.finding_bound(one)), ("change", story.finding_setting(one)))
        if text
    ]
    return "\n".join(lines)
