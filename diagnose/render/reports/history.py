"""The report of a history: the metric over the runs, where it stepped and what moved there, and every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.document.history import CategoryMove, History, HistoryRun, HistoryStep, HistoryTrend
from diagnose.render import report as r
from diagnose.render import units
from diagnose.render.figures import history as figures
from diagnose.render.report import PAGE, Block, Phrase, Row, Section, Table, Text, rows_of
from diagnose.render.reports.bisection.story import short
from diagnose.render.reports.comparison import story
from diagnose.render.reports.comparison.story import value

MOST_ROWS = 400  # runs that are all shown
_MOST_MOVED = 12  # categories of one step
_LEAST_MOVED = 0.1  # of the largest difference: a category that moved by less is left out
_COMMIT = 12  # digits of a commit
# What `--section` can name of it, in order, each step of the metric without its number; the tests hold it against reports.
PARTS = ("result", "step", "steps", "gradual", "moved", "moved-gradual", "all-runs", "runs", "notes")


def report(document: History) -> r.Report:
    """The whole report."""
    count = "creeping" if document.gradual is not None else units.plural(len(document.steps), "step")
    return r.Report(
        title=f"{document.name}: {count} in {units.plural(len(document.runs), 'run')}",
        heading=f"{story.metric(document.metric, document.window)} of {document.name}",
        about=units.plural(len(document.runs), "run"),
        blocks=tuple(_blocks(document)),
        sections=(
            Section(id="over", title="Over the runs", nav="Over the runs"),
            *(
                Section(id=f"step-{number}", title=f"Step {number}: {short(step.label)}", nav="Steps" if number == 1 else "", headed=True)
                for number, step in enumerate(document.steps, 1)
            ),
            *((Section(id="gradual", title="What crept", nav="What crept", headed=True),) if document.gradual is not None else ()),
            Section(id="runs", nav=f"All runs ({len(document.runs)})"),
            Section(id="notes", title="Notes", nav="Notes" if document.notes or document.order else "", headed=True),
        ),
        tool=document.tool,
        schema=document.schema,
        sentence=document.sentence,
    )


def _blocks(document: History) -> Iterator[Block]:
    yield Block(content=_outcome(document), name="result", worth=100)
    yield from (Block(content=figure, section="over", least=PAGE) for figure in figures.figures(document))
    for number, step in enumerate(document.steps, 1):
        section = f"step-{number}"
        yield Block(content=Text(text=_change(document, step), tone="strong"), section=section, name="steps", worth=99)
        yield Block(content=Text(text=_where(step)), section=section, name="steps", worth=99)
        if step.moved:
            yield Block(content=_moved(step.moved, str(number), _AROUND), section=section, worth=98, aside=True)
    if document.gradual is not None:
        yield Block(content=Text(text=_crept(document, document.gradual), tone="strong"), section="gradual", name="steps", worth=99)
        if document.gradual.moved:
            yield Block(content=_moved(document.gradual.moved, "gradual", _THIRDS), section="gradual", worth=98, aside=True)
    yield Block(content=_runs(document), section="runs", name="all runs", worth=80, aside=True)
    notes = tuple(note for note in (document.order, *document.notes) if note)
    if notes:
        yield Block(content=r.Listing(texts=notes), section="notes", name="notes", worth=90)


def _outcome(document: History) -> r.Panel:
    last = document.gradual or next((step for step in reversed(document.steps) if step.taken_back_by is None), None)
    worse = last is not None and (last.new > last.base) == document.larger_is_worse
    headline = "Creeping" if document.gradual else "No step" if not document.steps else units.plural(len(document.steps), "step")
    noise = "noise between runs not known" if document.noise is None else f"noise between runs {units.percent(document.noise)}"
    return r.Panel(
        name="history",
        look="result-bad" if worse else "result-same",
        headline=headline,
        title=headline,
        sentence=document.sentence,
        phrases=(Phrase(text=units.plural(len(document.runs), "run")), Phrase(text=noise)),
    )


def _crept(document: History, line: HistoryTrend) -> str:
    return (
        f"{_change(document, line)} along a straight line, which says more of these runs than steps do (difference of the Bayesian information "
        f"criteria {line.evidence:.0f}). No single commit is behind it: look at what grew, or bisect with ends far apart."
    )


def _change(document: History, step: HistoryStep | HistoryTrend) -> str:
    moved = f"{value(step.base, document.unit)} → {value(step.new, document.unit)}"
    return f"{story.metric(document.metric, document.window)} {moved}{units.bracketed(step.relative)}"


def _where(step: HistoryStep) -> str:
    """Between which runs, and commits, a step lies."""
    parts = [f"After {short(step.before)}, with {short(step.last)} at the latest; most probably with {short(step.label)}"]
    parts[0] += f" ({units.percent(step.chance, 0)})."
    if step.base_commit and step.commit and step.base_commit != step.commit:
        good, bad = step.base_commit[:_COMMIT], step.commit[:_COMMIT]
        parts.append(f"Commits {good}..{bad}; to find the one: diagnose bisect --good {good} --bad {bad} -- COMMAND.")
    if step.taken_back_by is not None:
        parts.append(f"Taken back with {short(step.taken_back_by)}.")
    return " ".join(parts)


_AROUND, _THIRDS = "Medians of the runs before and after the step.", "Medians of the first and the last third of the runs."


def _moved(moved: Sequence[CategoryMove], which: str, note: str) -> Table:
    shown = [one for one in moved[:_MOST_MOVED] if abs(one.delta_ns) >= _LEAST_MOVED * abs(moved[0].delta_ns)]
    left = len(moved) - len(shown)
    return Table(
        f"moved-{which}",
        "What moved",
        rows_of(
            {
                "category": story.metric(one.category),
                "#before ms": units.ms(one.base_ns),
                "#after ms": units.ms(one.new_ns),
                "#difference ms": units.signed_ms(one.delta_ns),
            }
            for one in shown
        ),
        note=note + (f" {units.plural(left, 'smaller one')} left out." if left > 0 else ""),
    )


def _runs(document: History) -> Table:
    steps = {step.label for step in document.steps}
    return Table(
        "runs",
        "All runs",
        tuple(Row(_run(document, one, step=one.label in steps), strong=one.label in steps) for one in document.runs),
        note="◄: the metric steps here." if steps else "",
        whole=len(document.runs) <= MOST_ROWS,
    )


def _run(document: History, one: HistoryRun, *, step: bool) -> dict[str, str]:
    away = None if one.value is None or not one.level else one.value / one.level - 1
    return {
        "run": f"{short(one.label)}{' ◄' if step else ''}",
        "date?": one.date or "",
        "commit?": (one.commit or "")[:_COMMIT],
        f"#{story.metric(document.metric, document.window)}": units.MISSING if one.value is None else value(one.value, document.unit),
        "#level": units.MISSING if one.level is None else value(one.level, document.unit),
        "#from the level?": units.MISSING if away is None else units.signed_percent(away),
        "#steps?": units.count(one.steps),
    }
