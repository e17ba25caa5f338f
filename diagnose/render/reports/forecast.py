"""The report of a forecast: the step now and after the changes, where the time goes that is won, and what all of it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.forecast import Forecast, Planned, Question
from diagnose.knowledge.templates import capitalised
from diagnose.render import report as r
from diagnose.render import units
from diagnose.render.figures import forecast as figures
from diagnose.render.report import PAGE, Block, Phrase, Row, Section, Table, Text, rows_of
from diagnose.render.reports.comparison.story import look
from diagnose.render.reports.diagnosis import advice, answer

MOST_CATEGORIES = 9  # rows of categories on one screen; the others are told as one
SETTINGS = "+settings?"
LITTLE = 0.0005  # of the step: what changes by less is told with the others
# What `--section` can name of it, in order; the tests hold it against reports.
PARTS = (
    "run", "forecast", "changes", "sequence", "where", "categories", "rests", "what-it-rests-on", "refused", "no-forecast", "verify",
)  # fmt: skip


def report(document: Forecast) -> r.Report:
    """The whole report."""
    headline = _headline(document)
    return r.Report(
        title=f"{headline}: {answer.identity_name(document.identity)}" if document.identity else headline,
        heading="what a change would do to the step",
        about=_about(document),
        blocks=tuple(_blocks(document)),
        sections=(
            Section(id="changes", title="After each change", nav="After each change"),
            Section(id="where", title="Where it is won", nav="Where it is won"),
            Section(id="timelines", title="Now and likely", nav="Timelines" if document.likely is not None else ""),
            Section(
                id="rests",
                title="What it rests on",
                nav="What it rests on" if document.ingredients else "",
                headed=True,
                folded=True,
                printed=True,
            ),
            Section(id="refused", title="No forecast", nav="No forecast" if document.refused else "", headed=True),
            Section(id="verify", title="To verify", nav="To verify", headed=True),
        ),
        tool=document.tool,
        schema=document.schema,
    )


def _about(document: Forecast) -> str:
    return "" if document.identity is None else " · ".join(answer.identity(document.identity))


def _headline(document: Forecast) -> str:
    span = document.step_ns
    if span is None:
        return "No forecast"
    return f"{units.time(span.now)} → {units.forecast(span.likely, span)} likely" if document.plan else "Nothing to win"


def _blocks(document: Forecast) -> Iterator[Block]:
    if document.identity is not None:
        yield Block(content=Text(text=_about(document), tone="strong"), name="run", worth=100, most=r.LIMITED)
    yield Block(content=_panel(document), name="forecast", worth=100)
    if document.plan:
        if any(question.changes for _, question in _asked(document)):
            yield Block(content=_changes(document), name="plan", worth=99, least=PAGE)
        yield Block(content=_sequence(document), section="changes", worth=98, most=r.LIMITED)
        yield Block(content=_sequence(document, settings=False), section="changes", worth=98, least=PAGE)
        yield from (Block(content=figure, section="where", least=PAGE) for figure in figures.deltas(document))
        yield Block(content=_categories(document), section="where", worth=96)
        yield from (Block(content=figure, section="timelines", least=PAGE) for figure in figures.timelines(document))
        yield Block(content=_ingredients(document), section="rests", name="what it rests on", worth=90, detail=r.FINDINGS)
        yield Block(content=_brief_ingredients(document), section="rests", name="what it rests on", most=r.TERMINAL, until=r.ANSWER)
    if document.refused:
        yield Block(content=r.Listing(texts=tuple(_refusals(document))), section="refused", name="no forecast", worth=94)
    refused = {one.question for one in document.refused}
    verify = tuple(f"{one.id}: {one.verify}" for one in document.questions if one.verify and one.id not in refused)
    if verify:
        yield Block(content=r.Listing(texts=verify), section="verify", name="verify", worth=85)


def _refusals(document: Forecast) -> Iterator[str]:
    """Each reason once, with what to do, and the questions that it is for."""
    told: dict[tuple[str, str], list[str]] = {}
    for one in document.refused:
        told.setdefault((one.reason, one.next_step), []).append(one.question)
    for (reason, next_step), questions in told.items():
        which = ", ".join(filter(None, questions))
        yield " ".join(part for part in (f"{which}:" if which else "", reason, next_step) if part)


def _panel(document: Forecast) -> r.Panel:
    span = document.step_ns
    phrases = []
    if span is not None and document.plan:
        phrases.append(Phrase(text=f"{units.signed_percent((span.likely - span.now) / span.now if span.now else None)} of the step"))
        phrases.append(Phrase(text=f"{units.factor(span.now / span.likely)}" if span.likely > 0 else "all of it"))
        phrases.append(Phrase(text=f"range {units.between(span)}"))
    if document.planned and document.searched:
        phrases.append(Phrase(text=f"searched: {units.plural(document.searched, 'set')} of fixes", wide=True))
    texts = [
        Text(text=f"Cut off at the bound of {one.finding}: {units.time(one.bound_ns)} per step at most.", tone="warning")
        for one in document.capped_by
    ]
    if document.doubt:
        texts.append(Text(text=document.doubt, tone="warning"))
    look_ = (
        "result-open" if span is None or document.doubt else "result-good" if document.plan and span.likely < span.now else "result-same"
    )
    return r.Panel(
        name="forecast",
        look=look_,
        headline="Forecast" if span is not None else "No forecast",
        title=_headline(document),
        sentence=document.sentence,
        phrases=tuple(phrases),
        texts=tuple(texts),
    )


def _asked(document: Forecast) -> Iterator[tuple[Planned, Question]]:
    """The changes in order, each with what was asked."""
    questions = {one.id: one for one in document.questions}
    return ((one, questions[one.question]) for one in document.plan if one.question in questions)


def _changes(document: Forecast) -> r.Plan:
    """What to set, as the plan of a diagnosis shows it: to be copied."""
    return r.Plan(
        title="What to change",
        steps=tuple(
            r.Step(
                number=str(number),
                title=capitalised(one.title),
                id=asked.fix or "",
                state=asked.state or "",
                why="",
                bound="",
                faster="",
                settings=tuple(advice.written(asked.changes)),
                needs=(asked.note,) if asked.note else (),
                cost="" if asked.cost == "none" else asked.cost,
                forecast=f"{units.forecast(one.step_ns.likely, one.step_ns)} ({units.between(one.step_ns)})",
            )
            for number, (one, asked) in enumerate(_asked(document), 1)
        ),
    )


def _sequence(document: Forecast, *, settings: bool = True) -> Table:
    """The step after each change; without settings where they stand above."""
    rows = (_step(document, number, one) for number, one in enumerate(document.plan, 1))
    return Table(
        "sequence",
        "After each change",
        tuple(rows) if settings else tuple(Row({head: cell for head, cell in row.texts.items() if head != SETTINGS}) for row in rows),
        note="Each with all before it; savings do not add up where two changes win the same time." if len(document.plan) > 1 else "",
        whole=True,
    )


def _step(document: Forecast, number: int, one: Planned) -> Row:
    question = next((asked for asked in document.questions if asked.id == one.question), None)
    settings = "; ".join(setting.text for setting in question.changes if not setting.stays) if question is not None else ""
    return Row(
        {
            "no.": str(number),
            "change": f"{capitalised(one.title)}{f'  {one.question}' if question is not None and question.fix else ''}",
            "#then": units.forecast(one.step_ns.likely, one.step_ns),
            "#range": units.between(one.step_ns),
            "#saves": units.time(one.saves_ns),
            "#alone?": units.MISSING if one.alone_ns is None else units.time(one.alone_ns),
            SETTINGS: settings,
            "+why?": one.why,
        }
    )


def _categories(document: Forecast) -> Table:
    """Per step (mean), what changes most first."""
    count = max(len(document.steps), 1)
    step, width = document.step_ns, figures.width(document)
    notable = [row for row in document.categories if step is not None and abs(row.delta_ns) > LITTLE * step.now * count][:MOST_CATEGORIES]
    rest = [row for row in document.categories if row not in notable]
    cells = [(look(row.category).label, row.now_ns, row.likely_ns, row.delta_ns) for row in notable]
    if rest:
        label = "all else" if cells else "everything"
        cells.append((label, *(sum(getattr(row, name) for row in rest) for name in ("now_ns", "likely_ns", "delta_ns"))))
    if step is not None and document.sum_ns is not None:
        cells.append(("step", document.sum_ns.now, document.sum_ns.likely, document.sum_ns.likely - document.sum_ns.now))
    return Table(
        "categories",
        "Where it is won",
        rows_of(
            {
                "part of the step": label,
                "#now ms": units.ms(now / count, width),
                "#likely ms": units.ms(likely / count, width),
                "#change ms": units.signed_ms(delta / count, width),
            }
            for label, now, likely, delta in cells
        ),
        note="Each moment of a step counts once, as compute wherever compute runs: exposed is here what no compute hides. The changes add up to that of the step.",
        whole=True,
    )


def _ingredients(document: Forecast) -> r.Listing:
    """What it is made of, each with its source, and what every replay assumes."""
    sources = [f"{text} [{one.source}]" for text, one in zip(_sentences(document), document.ingredients, strict=True)]
    return r.Listing(texts=(*sources, *(f"assumed: {text}" for text in document.assumptions)))


def _brief_ingredients(document: Forecast) -> r.Listing:
    """The same where there is little room: without sources, and what is assumed only counted."""
    more = f"assumed: {units.plural(len(document.assumptions), 'thing')} of every replay; -v shows them, and all sources"
    return r.Listing(texts=(*_sentences(document), *([more] if document.assumptions else [])))


def _sentences(document: Forecast) -> list[str]:
    several = len({one.question for one in document.ingredients if one.question}) > 1
    return [f"{one.basis}: {f'{one.question}, ' if several and one.question else ''}{one.text}" for one in document.ingredients]
