"""Entries of rules and walls."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.rulebook import Rule, Rulebook, Severity
from diagnose.model.vocabulary import CAPTURE
from diagnose.render import units, words
from diagnose.render.knowledge.entries import (
    Catalogue,
    Code,
    Entry,
    Line,
    Part,
    Ref,
    column,
    expression,
    paragraph,
    refs,
    rows,
    rule_columns,
    sources,
    unfilled,
)
from diagnose.render.reports.diagnosis import story, tables


def rule(know: Catalogue, key: str) -> Entry:
    """One bad pattern."""
    one = know.book.rules[key]
    return Entry(
        kind="rule",
        id=key,
        title=one.name,
        about=f"rule ({one.status}, since {one.since}) for {_for(know.book, one.wall)}; its claim is {one.claim}: {words.STATUS_MEANING[one.claim]}",
        brief=know.book.walls.topic(one.wall).title,
        parts=(
            *paragraph("says", unfilled(one.summary)),
            *expression("fires when", one.when),
            *expression("saves at most", one.saves),
            *paragraph("severity", _severity(know, one)),
            *paragraph("why", one.why),
            *paragraph("wrong when", one.wrong_when),
            *paragraph("check", one.check),
            *paragraph("to assess it", one.capture),
            *rows("reads", ("fact or setting", "meaning"), (((column(name),), (meaning(know, name),)) for name in _columns(know, one))),
            *paragraph("shows the costliest names of", ", ".join(one.where)),
            *rows("fixes", ("fix", "what"), (((Ref("fix", fix),), (know.book.fixes[fix].title,)) for fix in one.fixes)),
            *sources("see", one.refs),
        ),
    )


def topics(book: Rulebook) -> list[str]:
    """What rules are about, in order: the walls, then the capture."""
    return [*book.walls.walls, CAPTURE]


def _for(book: Rulebook, wall: str) -> str:
    return "the capture itself" if wall == CAPTURE else f"the {book.walls.topic(wall).title} wall"


def _severity(know: Catalogue, one: Rule) -> str:
    if isinstance(one.severity, str):
        return f"always {one.severity}"
    chosen = one.severity or Severity()
    default = know.book.walls.severity
    unset = chosen.high is None and chosen.medium is None
    if unset and chosen.of is None and one.saves is None:
        return ""
    high, medium = (default.high, default.medium) if unset else (chosen.high, chosen.medium)
    of = chosen.of or "the bound as a share of the step"
    parts = [f"{level} from {_number(limit)} on" for level, limit in (("high", high), ("medium", medium)) if limit is not None]
    return f"by {of}: {', '.join(parts)}, else low"


def _number(limit: float) -> str:
    return f"{limit:g} ({units.percent(limit, 0)})"


def _columns(know: Catalogue, one: Rule) -> list[str]:
    names = rule_columns(know.book, one.id)
    return names + [name for name in one.evidence if name not in names]


def meaning(know: Catalogue, name: str) -> str:
    """What a column says, with its unit."""
    if name.startswith("job_"):
        return f"{know.book.settings[name.removeprefix('job_')].meaning} (job file)"
    spec = know.book.facts[name]
    return f"{spec.meaning} ({spec.unit})"


def rule_in_run(know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """Whether the rule fired in the document, and the numbers that its expressions read."""
    one = know.book.rules[key]
    fired = next((finding for finding in document.findings if finding.id == key), None)
    unknown = next((item for item in document.not_assessed if item.id == key), None)
    if fired is not None:
        bound = story.finding_ceiling(fired, document)
        result = f"fired ({fired.severity}{f'; {bound}' if bound else ''}): {fired.summary}"
    elif unknown is not None:
        result = f"not assessed: {', '.join(unknown.missing)} could not be measured. {unknown.how}"
    else:
        result = "silent: its condition does not hold"
    return [
        *paragraph("in this run", result),
        *rows("its numbers", ("fact or setting", "value"), _values(know, _columns(know, one), document)),
    ]


def _values(know: Catalogue, names: Iterable[str], document: Diagnosis) -> list[tuple[Line, Line]]:
    settings = {} if document.job is None else {f"job_{setting.name}": setting.value for setting in document.job.settings}
    lines: list[tuple[Line, Line]] = []
    for name in names:
        fact = document.facts.get(name)
        if fact is not None:
            shown = units.fact(fact.value, fact.unit)
        elif name in settings:
            value = settings[name]
            shown = ", ".join(value) if isinstance(value, tuple) else units.fact(value, "")
        else:
            shown = "not in the job file" if name.startswith("job_") else units.NOT_MEASURED
        lines.append(((column(name),), (f"{shown}: {meaning(know, name)}",)))
    return lines


# --- walls ------------------------------------------------------------------------------------------------------------


def wall(know: Catalogue, key: str) -> Entry:
    """One of the walls."""
    book = know.book
    spec = book.walls.walls[key]
    *most, last = (book.walls.walls[name].title for name in book.walls.contenders)
    return Entry(
        kind="wall",
        id=key,
        title=f"{spec.title[:1].upper()}{spec.title[1:]} wall",
        about=f"wall: {spec.meaning}",
        brief="at most, in ns per step",
        parts=(
            *expression("bound", spec.bound),
            *rows("parts", ("part", "formula"), (((words.words(label),), (Code(text),)) for label, text in spec.parts.items())),
            *rows("shown beside", ("figure", "formula"), (((words.words(label),), (Code(text),)) for label, text in spec.beside.items())),
            *paragraph(
                "dominant",
                f"the largest of {', '.join(most)} and {last} from {units.percent(book.walls.dominance_share, 0)} of the step on, else {book.walls.walls[book.walls.fallback].title}; the threshold is this project's own choice",
            ),
            *paragraph("rules", *refs("rule", (one.id for one in book.rules.values() if one.wall == key))),
            *paragraph("fixes", *refs("fix", (one.id for one in book.fixes.values() if key in one.walls))),
        ),
    )


def wall_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """The wall's bound in the document."""
    found = next((one for one in document.walls if one.wall == key), None)
    if found is None:
        return paragraph("in this run", units.NOT_MEASURED)
    return paragraph(
        "in this run", f"{story.ceiling(found, document)} ({units.percent(found.share)} of the {tables.whole(document)}, {found.status})"
    )
