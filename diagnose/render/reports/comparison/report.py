"""The report of a comparison: the outcome, whether the two may be compared, what changed around the code, then where the time went.

Beside it the checks for CI: the gate (or, without one, the step time), and one per finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.comparison import Comparison, FindingChange, Gate, OnUnclear, Result
from diagnose.knowledge.templates import capitalised
from diagnose.render import Options, words
from diagnose.render import report as r
from diagnose.render.figures import comparison as figures
from diagnose.render.issues import GATE, SEVERITY, Issue, IssueList, Severity, State
from diagnose.render.report import ANSWER, FINDINGS, PAGE, Block, Label, Phrase, Section, Text
from diagnose.render.reports.comparison import story, tables
from diagnose.render.words import SEVERITY_RANK

MOST_OPEN = 8  # rows of a table that is not folded where length is limited
MOST_OPENED = 3  # findings that stand open on a page
# What `--section` can name of it, in order; the tests hold it against reports.
PARTS = (
    "outcome", "effect-section", "sides", "comparability", "mismatches", "whether-they-may-be-compared", "changed", "environment", "settings",
    "effect", "figures", "delta", "where", "kernels", "renamed", "overlap", "walls", "findings", "notes",
)  # fmt: skip
LOOK: dict[Result, str] = {
    "regression": "result-bad",
    "improvement": "result-good",
    "no_change": "result-same",
    "cannot_tell": "result-open",
    "refused": "result-refused",
}


def report(document: Comparison) -> r.Report:
    """The whole report."""
    return r.Report(
        title=f"{_headline(document)}: {document.base.label} → {document.new.label}",
        heading="what changed between two runs" if document.gate is None else "a gate: may the new runs pass",
        about=f"base {document.base.label} · new {document.new.label}",
        blocks=tuple(_blocks(document)),
        sections=_sections(document),
        tool=document.tool,
        schema=document.schema,
        sentence=document.outcome.sentence,
        terms="new less base: + is more time",
        more="more: -v every table and finding, -o comparison.html the page",
    )


def _headline(document: Comparison) -> str:
    """The result; of a gate what became of it first."""
    return " · ".join(part for part in (story.gate(document), story.headline(document)) if part)


def _sections(document: Comparison) -> tuple[Section, ...]:
    refused, findings = story.refused(document), len(story.ordered_findings(document))
    what = "What is compared" if refused else "The effect"
    figures = (
        Section(id="where", title="Where the time went", nav="Where the time went"),
        Section(id="kernels", nav=f"Kernels ({len(document.kernels)})"),
        Section(id="overlap"),
        Section(id="walls"),
        Section(id="findings", title="Findings", nav=f"Findings ({findings})", headed=True),
    )
    return (
        Section(id="comparability", title="May they be compared?", nav="May they be compared?", headed=True),
        Section(id="changed", title="What changed around the code and in the job file", nav="What changed"),
        Section(id="effect-section", title=what, nav="" if refused else "The effect"),
        *(() if refused else figures),
        Section(id="notes", title="Notes", nav="Notes" if document.notes else "", headed=True),
        Section(id="sides-said", title="What each run's diagnosis says"),
    )


def _blocks(document: Comparison) -> Iterator[Block]:
    yield Block(content=_outcome(document), name="outcome", worth=100)
    yield Block(content=tables.sides(document), section="effect-section", worth=80, aside=True, column=1, detail=FINDINGS)
    yield from _comparability(document)
    for table, worth in ((tables.environment(document), 98), (tables.settings(document), 97)):
        detail = ANSWER if table.rows else FINDINGS
        yield Block(content=table, section="changed", worth=worth, aside=len(table.rows) > MOST_OPEN, detail=detail)
    if story.refused(document):
        said = Text(text=story.NO_FIGURES, tone="weak")
        yield Block(content=said, section="effect-section", name="figures", worth=96, detail=FINDINGS)
    else:
        yield from _figures(document)
    if document.notes:
        yield Block(content=r.Listing(texts=document.notes), section="notes", name="Notes", worth=70, aside=True, detail=FINDINGS)
    sides = tuple((label, side.sentence) for label, side in (("base", document.base), ("new", document.new)) if side.sentence)
    yield Block(content=r.Pairs(rows=sides), section="sides-said", least=PAGE)


def _figures(document: Comparison) -> Iterator[Block]:
    """What moved, and by how much."""
    yield Block(content=tables.effect(document), section="effect-section", worth=96, column=2, name="effect", detail=FINDINGS)
    yield from (Block(content=figure, section="where", least=PAGE) for figure in figures.figures(document))
    yield Block(content=tables.delta(document), section="where", worth=95, brief=tables.delta(document, moved_only=True))
    for table, section in (
        (tables.kernels(document), "kernels"),
        (tables.renamed(document), "kernels"),
        (tables.overlap(document), "overlap"),
        (tables.walls(document), "walls"),
    ):
        renamed = table.key == "renamed"
        if table.rows or not renamed:
            least = r.TERMINAL if table.rows or not renamed else PAGE
            detail = ANSWER if section == "kernels" and not renamed and table.rows else FINDINGS
            yield Block(content=table, section=section, worth=85, aside=True, folded=renamed, least=least, detail=detail)
    found = story.ordered_findings(document)
    content = r.Findings(findings=_findings(found)) if found else Text(text="None came, none went.", tone="weak")
    detail = ANSWER if any(one.state in ("new", "worse") for one in found) else FINDINGS
    yield Block(content=content, section="findings", worth=94, name="findings", detail=detail)
    if story.same_findings(document):
        same = Text(text=story.same_findings(document), hint=True)
        yield Block(content=same, section="findings", worth=94, name="findings", detail=FINDINGS)


def _outcome(document: Comparison) -> r.Panel:
    outcome, effect, comparability = document.outcome, document.effect, document.comparability
    phrases = [
        Phrase(text=story.movement(document)),
        Phrase(text=story.runs(effect), wide=True),
        Phrase(text=story.BASIS[effect.basis], wide=True),
    ]
    if not comparability.comparable:
        anyway = " as they are; compared anyway" if comparability.anyway else ""
        phrases.append(Phrase(text=f"can't be compared{anyway}", tone="warning", to="comparability", wide=True))
    texts = [Text(text=outcome.moved)] if outcome.moved else []
    if document.gate is not None:
        texts.append(Text(text=document.gate.sentence, tone="good" if document.gate.met else "bad"))
    return r.Panel(
        name="comparison",
        look=LOOK[outcome.result],
        headline=_headline(document),
        title=f"{_headline(document)}: {story.movement(document)}",
        sentence=outcome.sentence,
        caption=f"base {document.base.label}, new {document.new.label}",
        phrases=tuple(phrases),
        texts=tuple(texts),
        reasons=outcome.reasons,
    )


def _comparability(document: Comparison) -> Iterator[Block]:
    def block(content: r.Content) -> Block:
        return Block(content=content, section="comparability", name="whether they may be compared", worth=99, detail=FINDINGS)

    table = tables.mismatches(document)
    if table.rows:
        yield block(table)
    said = " ".join(text for text in (story.comparable(document), story.unknown(document)) if text)
    yield block(Text(text=said, tone="weak"))


def _findings(found: list[FindingChange]) -> tuple[r.Finding, ...]:
    return tuple(
        r.Finding(
            id=one.id,
            title=one.name,
            severity=one.severity,
            look=one.wall or "capture",
            kind=(words.wall_in_text(one.wall),) if one.wall else (),
            meaning="",
            bound=story.finding_bound(one),
            summary=one.summary,
            state=story.FINDING[one.state],
            loud=one.state in ("new", "worse"),
            opened=index < MOST_OPENED and one.state in ("new", "worse"),
            notes=(
                Label(label="change", full="to change", text=story.finding_setting(one), tone="code"),
                Label(label="why", full="why it matters", text=one.why),
            ),
        )
        for index, one in enumerate(found)
    )


REGRESSION = "regression"
_STATES: dict[str, State] = {
    "regression": "failed",
    "improvement": "passed",
    "no_change": "passed",
    "cannot_tell": "skipped",
    "refused": "unjudged",
}


def issues(document: Comparison, _options: Options) -> IssueList:
    """All checks, the gate first."""
    found = (_gate(document), *(_finding(one, document.gate) for one in document.findings))
    suite = "diagnose compare" if document.gate is None else "diagnose gate"
    return IssueList(tool=document.tool, suite=suite, sentence=document.outcome.sentence, issues=found)


_UNCLEAR: dict[OnUnclear | None, State] = {None: "unjudged", "pass": "passed", "warn": "told", "fail": "failed"}


def _gate(document: Comparison) -> Issue:
    """The gate that was asked for; without one what became of the metric."""
    outcome, gate = document.outcome, document.gate
    state: State = _STATES[outcome.result]
    severity: Severity = "warning"
    if gate is not None:
        state = _UNCLEAR[gate.on_unclear] if gate.met is None else "failed" if not gate.met else "passed"
        severity = "error"
        if gate.met and outcome.result == "regression":  # within the limit, and still for the worse
            state, severity = "told", "warning"
    pair = f"{document.base.label} → {document.new.label}:"
    said = [gate.sentence if gate is not None else "", pair, outcome.sentence, outcome.moved]
    said += [one.text for one in document.comparability.mismatches if one.state == "refused"]
    changed = [one for one in document.settings if one.line is not None]
    only = changed[0] if len(changed) == len(document.settings) == 1 else None
    return Issue(
        id=GATE if gate is not None else REGRESSION,
        name=f"{capitalised(story.metric(document.effect.metric, document.window))} against the base",
        group=GATE,
        state=state,
        severity=severity,
        text=" ".join(text for text in said if text),
        cost_ns=None,
        help="Compares runs by the medians of their steps; a verdict needs a difference beyond the noise between runs.",
        key="" if only is None else only.key,
        line=None if only is None else only.line,
    )


def _finding(one: FindingChange, gate: Gate | None) -> Issue:
    bound, setting = story.finding_bound(one), story.finding_setting(one)
    said = [
        f"{capitalised(story.FINDING[one.state])}: {one.summary}",
        f"Bound: {bound}." if bound else "",
        f"To change: {setting}." if setting else "",
    ]
    return Issue(
        id=one.id,
        name=capitalised(one.name),
        group=one.wall or "finding",
        state=_state(one, gate),
        severity=SEVERITY[one.severity],
        text=" ".join(text for text in said if text),
        cost_ns=story.finding_cost(one),
        help=one.why,
        key=one.key,
        line=one.line,
    )


def _state(one: FindingChange, gate: Gate | None) -> State:
    """A finding fails where it came or got worse and the gate asks about it; without any gate every such finding does."""
    if one.state == "not_assessed":
        return "skipped"
    if one.state not in ("new", "worse"):
        return "passed"
    if gate is not None and gate.fail_on is None:
        return "told"
    asked = gate is None or gate.fail_on is None or SEVERITY_RANK[one.severity] <= SEVERITY_RANK[gate.fail_on]
    return "failed" if asked and one.wall != "capture" else "told"
