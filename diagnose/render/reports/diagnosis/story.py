"""Sentences and small lists about the verdict, its findings and fixes that every output says alike."""

from __future__ import annotations

from diagnose.document.diagnosis import ASSUMED, MOST_SPANS, WINS_NOTHING, Change, Diagnosis, Finding, Fix, WallBound
from diagnose.reason.plan import members, stays, written
from diagnose.render import units, words
from diagnose.render.reports.diagnosis.tables import per, wall_ceiling

MEAN_APART = 0.01  # a mean step that is further from the median is told beside it: shares are of the mean


def headline(document: Diagnosis) -> str:
    """What holds the run back, in a word or two: the wall and its cause, or a cause alone that lies elsewhere (a straggler)."""
    found = document.verdict
    cause = found.cause.headline if found.cause is not None else None
    if found.target_wall is None:
        return cause or "No verdict"
    if _mostly_unexplained(document):
        return "Waits without a known cause"
    title = words.wall(found.target_wall)
    wall = words.VOCABULARY.bound_by(found.target_wall) if found.target_wall == found.dominant_wall else f"{title} first"
    if found.cause is None or not cause:
        tied = found.tie and found.target_wall != found.dominant_wall
        return f"{title} or {words.wall_in_text(found.runner_up)} first" if tied and found.runner_up else wall
    own = any(one.id == found.cause.finding and one.wall == found.target_wall for one in document.findings)
    return f"{wall} · {cause}" if own else cause


def _mostly_unexplained(document: Diagnosis) -> bool:
    """Whether waiting that nothing explains takes more than all walls together, or, where no wall is shown, more than any but compute.

    Not where compute takes half of the step.
    """
    others = {one.wall: one.bound_ns or 0 for one in document.walls if words.VOCABULARY.is_ceiling(one.wall)}
    compute = next((one for one in document.walls if one.wall not in others), None)
    if compute is None or (compute.share or 0) >= 0.5:  # as in walls.yaml
        return False
    shown = max(others.values(), default=0)
    if document.verdict.target_wall in others:
        shown = sum(others.values()) + (compute.bound_ns or 0)
    return (compute.beside.get("unexplained_wait") or 0) > shown


def ceiling(wall: WallBound, document: Diagnosis) -> str:
    """A wall's bound as one phrase."""
    if wall.bound_ns is None:
        return units.NOT_MEASURED
    if not words.VOCABULARY.is_ceiling(wall.wall):
        return f"compute active {units.ms(wall.bound_ns)} ms {per(document)}"
    faster = wall_ceiling(wall.wall, wall.share)
    most = (
        f"at most {units.ms(wall.bound_ns)}"
        if wall.lower_ns is None
        else f"between {units.ms(wall.lower_ns)} and {units.ms(wall.bound_ns)}"
    )
    return f"{most} ms {per(document)}" + ("" if faster is None else f", ≤ {units.factor(faster)} faster")


def finding_ceiling(finding: Finding, document: Diagnosis) -> str:
    """A finding's bound as one phrase; empty where it has none."""
    if finding.bound_ns is None:
        return ""
    faster = finding.speedup_ceiling
    return f"at most {units.time(finding.bound_ns)} {per(document)}" + ("" if faster is None else f", ≤ {units.factor(faster)} faster")


def finding_where(finding: Finding, document: Diagnosis) -> str:
    """Ranks and steps of a finding; empty where it names none."""
    parts = [
        f"{units.plural(len(numbers), one).split(' ', 1)[1]} {units.listed(numbers, 12)}"
        for one, numbers in (("rank", finding.where.ranks), ("step", () if document.steps.anchor == "capture" else finding.where.steps))
        if numbers
    ]
    return " · ".join([*parts, *([looked] if (looked := finding_when(finding, document)) else [])])


def finding_when(finding: Finding, document: Diagnosis) -> str:
    """When to look at a timeline for a finding: its longest stretch in the step that is shown; empty where that is not known."""
    shown, spans = document.timeline, finding.where.spans
    if shown is None or not spans:
        return ""
    start, duration = max(spans, key=lambda span: (span[1], -span[0]))
    inside = "the capture" if document.steps.anchor == "capture" else f"step {shown.step}"
    unit, divisor = units.scale(shown.end_ns - shown.start_ns)
    digits = 1 if duration >= divisor else 3
    number = f"{MOST_SPANS} or more" if len(spans) >= MOST_SPANS else len(spans)
    more = f", the longest of {number} stretches" if len(spans) > 1 else ""
    return f"look at {start / divisor:,.{digits}f} to {(start + duration) / divisor:,.{digits}f} {unit} of {inside}{more}"


def framework(name: str) -> str:
    """A framework, or a format of job files, as its people spell it."""
    format_ = words.job_settings().formats.get(name)
    return name if format_ is None else format_.title


def target(op: str, to: str, *, choose: bool = False) -> str:
    """What is done with a setting, in words that can stand behind its name."""
    match op:
        case "add" | "remove":
            return f"{op} {', '.join(members(to)) or to}"
        case "unset":
            return "unset"
        case _:
            return f"choose {to}" if choose else to


def change(one: Change) -> str:
    """One setting's change on one line; flags and variables as they are typed."""
    if one.key.startswith("-") or (one.framework == "environment" and not one.choose):
        said = written(one)[1]
        if stays(one):
            return f"{said}, as it is"
        return said if one.from_ is None else f"{said} (now {one.from_})"
    if one.op in ("add", "remove"):
        now = f" (now {one.from_})" if one.from_ is not None else ""
        said = f"{target(one.op, one.to)} {'to' if one.op == 'add' else 'from'} {one.key}{now}"
        return f"{said}, as it is" if stays(one) else said
    if one.op == "unset":
        return f"unset {one.key}{f' (now {one.from_})' if one.from_ is not None else ''}"
    to = target(
        one.op, one.to, choose=one.choose and one.framework in (*words.job_settings().frameworks, "environment")
    )  # elsewhere it is words anyway
    if one.from_ is None:
        return f"{one.key}: {to}"
    return f"{one.key}: {to}, as it is" if stays(one) else f"{one.key}: {one.from_} → {to}"


def changes_by_framework(fix: Fix) -> list[tuple[str, str]]:
    """Framework and its changes on one line, in the rules' order; settings that stay are named only where nothing changes."""
    lines: dict[str, list[str]] = {}
    for one in [one for one in fix.changes if not stays(one)] or fix.changes:
        lines.setdefault(framework(one.framework), []).append(change(one))
    return [(name, "; ".join(changes)) for name, changes in lines.items()]


def fix_reason(fix: Fix) -> str:
    """Why a fix is not simply applicable, and what an applicable one still needs; empty where nothing is left to say."""
    if fix.state == "blocked":
        return " ".join(fix.blocked_by) or "what it needs is not there"
    if fix.state == "unknown":
        return " ".join(fix.unknown) or "not in the job file"
    return " ".join(line for line in fix.unknown if not line.startswith(ASSUMED)) if fix.state == "applicable" else ""


def first_try(document: Diagnosis) -> str:
    """The first fix of the plan that may win something, with its first new setting; an empty text where the plan has none."""
    known = {fix.id: fix for finding in document.findings for fix in finding.fixes}
    for step in document.plan:
        fix = known.get(step.fix or "")
        new = None if fix is None else next((one for one in fix.changes if not stays(one)), None)
        if fix is not None and new is not None and step.instead_of is None and step.no_forecast != WINS_NOTHING:
            return f"{fix.title} ({framework(new.framework)}: {change(new)})"
    return ""
