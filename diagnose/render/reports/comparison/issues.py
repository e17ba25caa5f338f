"""The checks of a comparison: the gate (or, without one, the step time), and one per finding."""

from __future__ import annotations

from diagnose.document.comparison import Comparison, FindingChange, Gate
from diagnose.render.reports.comparison import story
from diagnose.render.reports.comparison import words as own
from diagnose.render.issues import GATE, SEVERITY, Issue, IssueList, Severity, State, capitalised
from diagnose.render import Options
from diagnose.render.words import SEVERITY_RANK

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
    return IssueList(tool=document.tool, suite="diagnose compare", sentence=document.outcome.sentence, issues=found)


def _gate(document: Comparison) -> Issue:
    """The gate that was asked for; without one what became of the metric."""
    outcome, gate = document.outcome, document.gate
    state: State = _STATES[outcome.result]
    severity: Severity = "warning"
    if gate is not None:
        state = "unjudged" if gate.met is None else "passed" if gate.met else "failed"
        severity = "error"
    pair = f"{document.base.label} → {document.new.label}:"
    said = [gate.sentence if gate is not None else "", pair, outcome.sentence, outcome.moved]
    said += [one.text for one in document.comparability.mismatches if one.state == "refused"]
    changed = [one for one in document.settings if one.line is not None]
    only = changed[0] if len(changed) == len(document.settings) == 1 else None
    return Issue(
        id=GATE if gate is not None else REGRESSION,
        name=f"{capitalised(own.metric(document.effect.metric))} against the base",
        group=GATE,
        state=state,
        severity=severity,
        text=" ".join(text for text in said if text),
        cost_ns=None,
        help="Compares the steps of two runs; a verdict needs a difference beyond the noise of both.",
        key="" if only is None else only.key,
        line=None if only is None else only.line,
    )


def _finding(one: FindingChange, gate: Gate | None) -> Issue:
    bound, setting = story.finding_bound(one), story.finding_setting(one)
    said = [
        f"{capitalised(own.FINDING[one.state])}: {one.summary}",
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
