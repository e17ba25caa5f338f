"""The bisection as Markdown for an issue or a pull request's comment: at most 60 KB by construction, details folded."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.bisection import Bisection, Culprit
from diagnose.render import marked
from diagnose.render.options import Options
from diagnose.render.reports.bisection import story, tables

LONGEST_MESSAGE = 2_000
MOST_NOTES = 20


def render(document: Bisection, _options: Options) -> str:
    """The report as GitHub-flavoured Markdown of at most `marked.MOST_BYTES` bytes."""
    return marked.packed(_blocks(document), document.tool)


def _blocks(document: Bisection) -> Iterator[tuple[str, str]]:
    """Title and text of every block, in the order of their worth."""
    yield "result", _outcome(document)
    for number, culprit in enumerate(document.culprits, 1):
        yield "step", _culprit(document, culprit)
        for table in tables.moved(culprit, number):
            yield table.title, marked.folded(table)
    yield "what was measured", marked.table(tables.candidates(document, drawn=True))
    if tables.skipped(document).rows:
        yield "skipped", marked.table(tables.skipped(document))
    notes = [note for note in (document.order, *document.notes) if note]
    if notes:
        lines = [f"- {marked.text(note)}" for note in notes[:MOST_NOTES]]
        more = [f"- {len(notes) - MOST_NOTES} more in the JSON output"] if len(notes) > MOST_NOTES else []
        yield "notes", "\n".join(["### Notes", "", *lines, *more])
    yield "all runs", marked.folded(tables.trials(document))


def _outcome(document: Bisection) -> str:
    lines = [f"## {story.headline(document)}", f"**{marked.text(document.sentence)}**"]
    if story.shape(document):
        lines.append(story.shape(document))
    lines.append(
        f"<sub>{marked.text(story.effort(document))} · {marked.text(story.noise(document))} · {marked.text(story.ends(document))}</sub>"
    )
    return "\n\n".join(lines)


def _culprit(document: Bisection, culprit: Culprit) -> str:
    lines = [f"### {marked.text(story.title_of(document, culprit))}", marked.text(story.change_of(document, culprit))]
    if culprit.message:
        message = culprit.message[:LONGEST_MESSAGE]
        lines.append("\n".join(f"> {marked.text(line)}  " for line in message.splitlines()))
    if culprit.among:
        lines.append(marked.text(story.among(document, culprit)))
    if culprit.comparison is not None and culprit.comparison.outcome.moved:
        lines.append(marked.text(culprit.comparison.outcome.moved))
    return "\n\n".join(lines)
