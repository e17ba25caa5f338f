"""The checks of a diagnosis: one per finding, one per rule that found nothing or could not be assessed."""

from __future__ import annotations

from diagnose.document.diagnosis import Diagnosis, Finding
from diagnose.reason.patch import place_of
from diagnose.render.issues import SEVERITY, Issue, IssueList, State, capitalised
from diagnose.render import Options
from diagnose.render.words import SEVERITY_RANK


def issues(document: Diagnosis, options: Options) -> IssueList:
    """All checks. Without a gate (`options.fail_on`) every finding about the run fails; with one, those that it asks about."""
    found = [_finding(one, document, options) for one in document.findings]
    found += [
        Issue(id=one.id, name="not assessed", group="not assessed", state="skipped", severity="note", text=one.how)
        for one in document.not_assessed
    ]
    found += [Issue(id=name, name="nothing found", group="passed", state="passed", severity="note", text="") for name in document.passed]
    return IssueList(tool=document.tool, suite="diagnose", sentence=document.verdict.sentence, issues=tuple(found))


def _finding(one: Finding, document: Diagnosis, options: Options) -> Issue:
    place = place_of(one, document.job)
    change = f" To change: {place.fix}{f' ({place.key})' if place.key else ''}." if place.fix else ""
    return Issue(
        id=one.id,
        name=capitalised(one.name),
        group=one.wall,
        state=_state(one, options),
        severity=SEVERITY[one.severity],
        text=f"{one.summary}{change}",
        cost_ns=one.bound_ns,
        help=one.why,
        key=place.key,
        line=place.line,
    )


def _state(one: Finding, options: Options) -> State:
    """A finding about the capture says nothing against the run."""
    asked = options.fail_on is None or SEVERITY_RANK[one.severity] <= SEVERITY_RANK[options.fail_on]
    return "failed" if asked and one.wall != "capture" else "told"
