"""Entries of fixes."""

from __future__ import annotations

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.rulebook import ChangeSpec, FixSpec, Requirement
from diagnose.render import words
from diagnose.render.knowledge.entries import (
    Catalogue,
    Code,
    Entry,
    Line,
    Part,
    Ref,
    Span,
    expression,
    items,
    paragraph,
    refs,
    rows,
    sources,
    unfilled,
)
from diagnose.render.reports.diagnosis import story

PHASES = ("fit", "scale", "profile", "retune")
_GATE = {
    "hard": "",
    "known": " (blocks only where it is known)",
    "note": " (only told, never blocks)",
}  # what a reader expects needs no words


def order(know: Catalogue) -> list[str]:
    """Fixes in the order in which they are tried: by phase, then by step, then by id."""
    return sorted(know.book.fixes, key=lambda key: (PHASES.index(know.book.fixes[key].phase), know.book.fixes[key].step, key))


def fix(know: Catalogue, key: str) -> Entry:
    """One remedy."""
    one = know.book.fixes[key]
    walls = ", ".join(know.book.walls.topic(wall).title for wall in one.walls)
    return Entry(
        kind="fix",
        id=key,
        title=one.title,
        about=f"fix for: {walls}; phase {one.phase}, step {one.step}; evidence: {one.evidence}",
        brief=f"{one.phase} {one.step}",
        parts=(
            *rows("set", ("where", "change"), ((((story.framework(change.framework)),), change_line(change)) for change in one.changes)),
            *expression("already on when", one.already_on),
            *paragraph("undecidable", one.undecidable),
            *items("needs", (_requirement(item, wanted=True) for item in one.needs)),
            *items("conflicts with", (_requirement(item, wanted=False) for item in one.conflicts)),
            *rows("expected", ("published effect", "source"), ((((item.text),), ((item.source),)) for item in one.expected)),
            *(paragraph("expected", "no published figure") if not one.expected else []),
            *paragraph("evidence", words.EVIDENCE[one.evidence]),
            *paragraph("disputed", one.disputed),
            *paragraph("cost", one.cost),
            *paragraph("risk", one.risk),
            *paragraph("verify", one.verify),
            *paragraph("order", *_order(know, one)),
            *paragraph("called for by", *refs("rule", (rule.id for rule in know.book.rules.values() if key in rule.fixes))),
            *sources("see", one.refs),
        ),
    )


def change_line(change: ChangeSpec) -> Line:
    """What is set, with where it holds and how its value is computed."""
    shown = _assigned(change)
    key: Span = Ref("setting", change.setting, shown) if change.setting else Code(shown)
    joined: list[Span] = []
    for member in story.members(change.to) or (change.to,):
        joined += [", ", Code(member)] if joined else [Code(member)]
    line: list[Span]
    if change.op in ("add", "remove"):
        line = [f"{change.op} ", *joined, " to " if change.op == "add" else " from ", key]
    elif change.op == "unset":
        line = ["unset ", key]
    elif shown != change.key or (change.key.startswith("--") and change.to == "true"):
        line = [key]
    else:
        line = [key, f": {change.to}"]
    if change.choose and change.value is None:
        line.append(" (to choose)")
    if change.value is not None:
        line += [", computed as ", Code(change.value)]
    if change.only is not None:
        line += ["; only where ", Code(change.only)]
    return tuple(line)


def _assigned(change: ChangeSpec) -> str:
    """The key as it is written with its value; the key alone where the value is words or is computed, or a list is changed."""
    if change.op != "set" or change.choose or change.value is not None or change.framework in ("launcher", "code"):
        return change.key
    if change.key.startswith("--"):
        return change.key if change.to == "true" else f"{change.key} {change.to}"
    return f"{change.key}={change.to}"


def _requirement(item: Requirement, *, wanted: bool) -> Line:
    line: list[Span] = [Code(item.condition), "; else: " if wanted else "; then: ", unfilled(item.say)]
    if item.unknown:
        line.append(f" Where unknown: {item.unknown}")
    if item.first is not None:
        line += [" First: ", Ref("fix", item.first), "."]
    return (*line, _GATE[item.gate])


def _order(know: Catalogue, one: FixSpec) -> Line:
    """Its phase, the fixes that clear the way for it, and those that it clears the way for."""
    line: list[Span] = [f"step {one.step} of the phase {words.FIX_PHASE[one.phase]}"]
    before = dict.fromkeys(item.first for item in (*one.needs, *one.conflicts) if item.first is not None)
    after = [key for key, other in know.book.fixes.items() if any(item.first == one.id for item in (*other.needs, *other.conflicts))]
    if before:
        line += ["; what may have to come first: ", *refs("fix", before)]
    if after:
        line += ["; clears the way for ", *refs("fix", after)]
    return tuple(line)


def fix_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """Which findings of the document call for the fix, and whether it can be applied."""
    found = [(finding, one) for finding in document.findings for one in finding.fixes if one.id == key]
    if not found:
        return paragraph("in this run", "no finding calls for it")
    lines: list[Part] = []
    for finding, one in found:
        lines += paragraph(f"in this run, for {finding.id}", f"{words.STATE[one.state]}. {story.fix_reason(one)}".rstrip())
        changes = [(name, changes) for name, changes in story.changes_by_framework(one) if one.state in ("applicable", "unknown")]
        lines += rows("here", ("where", "change"), (((name,), (text,)) for name, text in changes))
    return lines
