"""The report of a bisection: the result, what moved with each step, and what was measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from diagnose.document.bisection import Bisection, BisectResult, Culprit
from diagnose.render import report as r
from diagnose.render.figures import bisection as figures
from diagnose.render.report import ANSWER, FINDINGS, PAGE, Block, Phrase, Section, Text
from diagnose.render.reports.bisection import story, tables
from diagnose.render.reports.comparison.tables import delta as moved_by

LOOK: dict[BisectResult, str] = {
    "found": "result-bad",
    "several": "result-bad",
    "range": "result-open",
    "ends_alike": "result-same",
    "cannot_tell": "result-open",
}
# What `--section` can name of it, in order, each step of the metric without its number; the tests hold it against reports.
PARTS = (
    "result", "step", "mismatches", "environment", "settings", "delta", "kernels", "overlap", "candidates", "what-was-measured", "skipped",
    "all-runs", "trials", "repeat", "to-repeat-it", "notes",
)  # fmt: skip


def report(document: Bisection) -> r.Report:
    """The whole report."""
    good, bad = story.short(document.good), story.short(document.bad)
    return r.Report(
        title=f"{story.headline(document)}: {good} to {bad}",
        heading=f"where {story.metric(document.metric, document.window)} changed",
        about=f"good {good} · bad {bad}",
        blocks=tuple(_blocks(document)),
        sections=_sections(document),
        tool=document.tool,
        schema=document.schema,
        sentence=document.sentence,
        more="more: -v every table and run, -o bisection.html the page",
    )


def _sections(document: Bisection) -> tuple[Section, ...]:
    over = f"over the {document.kind}"
    metric = story.metric(document.metric, document.window)
    return (
        Section(id="over", title=f"{metric.capitalize()} {over}", nav=over.capitalize()),
        *(
            Section(id=f"step-{number}", title=story.title_of(document, culprit), nav="What moved" if number == 1 else "", headed=True)
            for number, culprit in enumerate(document.culprits, 1)
        ),
        Section(id="candidates", nav="What was measured"),
        Section(id="skipped"),
        Section(id="trials", nav=f"All runs ({len(document.trials)})"),
        Section(id="repeat", title="To repeat it", headed=True),
        Section(id="notes", title="Notes", nav="Notes" if document.notes or document.order else "", headed=True),
    )


def _blocks(document: Bisection) -> Iterator[Block]:
    yield Block(content=_outcome(document), name="result", worth=100)
    drawn = list(figures.figures(document))
    yield from (Block(content=figure, section="over", least=PAGE) for figure in drawn)
    if not drawn:
        yield Block(content=Text(text="Nothing was measured.", tone="weak"), section="over", least=PAGE)
    for number, culprit in enumerate(document.culprits, 1):
        yield from _culprit(document, culprit, number)
    candidates = tables.candidates(document)
    brief = tables.around_steps(candidates)
    yield Block(content=candidates, section="candidates", name="what was measured", worth=90, brief=brief)
    if tables.skipped(document).rows:
        yield Block(content=tables.skipped(document), section="skipped", name="skipped", worth=89, detail=FINDINGS)
    yield Block(content=tables.trials(document), section="trials", name="all runs", worth=70, aside=True, detail=FINDINGS)
    if document.command:
        yield Block(content=Text(text=shlex.join(document.command), tone="code"), section="repeat", name="to repeat it", worth=85)
    if document.notes:
        yield Block(content=r.Listing(texts=document.notes), section="notes", name="notes", worth=80)
    if document.order:
        yield Block(content=Text(text=document.order, tone="weak"), section="notes", name="notes", worth=80, detail=FINDINGS)


def _outcome(document: Bisection) -> r.Panel:
    return r.Panel(
        name="bisection",
        look=LOOK[document.result],
        headline=story.headline(document),
        title=story.headline(document),
        sentence=document.sentence,
        phrases=(
            Phrase(text=story.effort(document)),
            Phrase(text=story.noise(document)),
            *((Phrase(text=story.shape(document), tone="warning"),) if story.shape(document) else ()),
        ),
        texts=(Text(text=story.ends(document)),),
    )


def _culprit(document: Bisection, culprit: Culprit, number: int) -> Iterator[Block]:
    """How the metric moved with one step, what the step is, and what moved with it."""

    def block(content: Text, least: int = r.TERMINAL) -> Block:
        return Block(content=content, section=f"step-{number}", name="step", worth=99, least=least)

    compared = culprit.comparison
    yield block(Text(text=story.change_of(document, culprit), tone="strong"))
    if not culprit.among:
        yield block(Text(text=culprit.label, tone="code"), PAGE)
    if story.origin(culprit):
        yield block(Text(text=story.origin(culprit)))
    if culprit.taken_back_by is not None:
        yield block(Text(text=f"Taken back with {story.NOUN[document.kind]} {story.short(culprit.taken_back_by)}.", tone="warning"))
    if culprit.message:
        yield block(Text(text=culprit.message, quoted=True))
    if culprit.among:
        yield block(Text(text=story.among(document, culprit)))
    if compared is not None:
        if compared.outcome.moved:
            yield block(Text(text=compared.outcome.moved))
        yield block(Text(text=story.compared(culprit), hint=True))
    for table in tables.moved(culprit, number):
        brief = moved_by(compared, moved_only=True) if compared is not None and table.key.startswith("delta") else None
        detail = FINDINGS if table.key.startswith(("mismatches", "overlap")) else ANSWER
        yield Block(content=table, section=f"step-{number}", worth=99, aside=True, brief=brief, detail=detail)
