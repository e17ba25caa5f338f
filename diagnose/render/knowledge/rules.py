"""Entries of rules, walls, fixes and checks of job files."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.catalogue import ChangeSpec, FixSpec, Requirement, Rule
from diagnose.knowledge.repairs import as_fix
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.templates import capitalised
from diagnose.knowledge.walls import Severity
from diagnose.model.vocabulary import CAPTURE, GROUP_OF
from diagnose.reason.plan import members
from diagnose.render import units, words
from diagnose.render.knowledge.entries import (
    Catalogue,
    Code,
    Entry,
    Line,
    Part,
    Ref,
    Span,
    column,
    expression,
    items,
    paragraph,
    refs,
    rows,
    rule_columns,
    unfilled,
)
from diagnose.render.reports.diagnosis import story, tables


def rule(know: Catalogue, key: str) -> Entry:
    """One bad pattern."""
    one = know.book.rules[key]
    topic = "the capture itself" if one.wall == CAPTURE else f"the {know.book.walls.topic(one.wall).title} wall"
    return Entry(
        name=key,
        title=one.name,
        about=f"rule ({one.status}, since {one.since}) for {topic}; its claim is {one.claim}: {words.STATUS_MEANING[one.claim]}",
        brief=know.book.walls.topic(one.wall).title,
        parts=(
            *paragraph("says", unfilled(one.summary)),
            *expression("fires when", one.when),
            *expression("saves at most", one.saves),
            *(expression("makes one rank late, and saves what the others wait, when", one.late.when) if one.late is not None else ()),
            *paragraph("severity", _severity(know, one)),
            *paragraph("why", one.why),
            *paragraph("not this if", one.wrong_when),
            *paragraph("check", one.check),
            *paragraph("to assess it", one.capture),
            *rows("reads", ("fact or setting", "meaning"), ((column(name), meaning(know, name)) for name in _columns(know, one))),
            *paragraph("shows the costliest names of", ", ".join(one.where)),
            *rows("fixes", ("fix", "what"), ((Ref("fix", fix), know.book.fixes[fix].title) for fix in one.fixes)),
            *rows("a fix wins at most", ("fix", "of the bound, ns"), ((Ref("fix", fix), Code(part)) for fix, part in one.reach.items())),
            *items("see", one.refs),
        ),
    )


def topics(book: Rulebook) -> list[str]:
    """What rules are about, in order: the walls, then the capture."""
    return [*book.walls.walls, CAPTURE]


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
    limits = {level: limit for level, limit in (("high", high), ("medium", medium)) if limit is not None}
    parts = [f"{level} from {limit:g} ({units.percent(limit, 0)}) on" for level, limit in limits.items()]
    return f"by {of}: {', '.join(parts)}, else low"


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


def _values(know: Catalogue, names: Iterable[str], document: Diagnosis) -> list[tuple[Span, Span]]:
    settings = {} if document.job is None else {f"job_{setting.name}": setting.value for setting in document.job.settings}
    lines: list[tuple[Span, Span]] = []
    for name in names:
        fact = document.facts.get(name)
        if fact is not None:
            shown = units.fact(fact.value, fact.unit)
        elif name in settings:
            value = settings[name]
            shown = ", ".join(value) if isinstance(value, tuple) else units.fact(value, "")
        else:
            shown = "not in the job file" if name.startswith("job_") else units.NOT_MEASURED
        lines.append((column(name), f"{shown}: {meaning(know, name)}"))
    return lines


# --- walls ------------------------------------------------------------------------------------------------------------


def wall(know: Catalogue, key: str) -> Entry:
    """One of the walls."""
    book = know.book
    spec = book.walls.walls[key]
    *most, last = (book.walls.walls[name].title for name in book.walls.contenders)
    return Entry(
        name=key,
        title=f"{capitalised(spec.title)} wall",
        about=f"wall: {spec.meaning}",
        brief="at most, in ns per step",
        parts=(
            *expression("bound", spec.bound),
            *(expression("lower end", spec.lower) if spec.lower is not None else ()),
            *rows("parts", ("part", "formula"), ((words.part(label), Code(text)) for label, text in spec.parts.items())),
            *rows("to compare", ("figure", "formula"), ((words.part(label), Code(text)) for label, text in spec.beside.items())),
            *paragraph(
                "first target",
                f"the largest of {', '.join(most)} and {last} from {units.percent(book.walls.target_share, 0)} of the step on, else {book.walls.walls[book.walls.fallback].title}; the threshold is this project's own choice",
            ),
            *paragraph("rules", *refs("rule", (one.id for one in book.rules.values() if one.wall == key))),
            *paragraph("fixes", *refs("fix", (one.id for one in book.fixes.values() if key in one.walls))),
        ),
    )


def word(know: Catalogue, key: str) -> Entry:
    """A word of the field."""
    one = know.words[key]
    title = one.title or key.replace("-", " ")
    return Entry(
        name=key,
        title=one.means,
        about="word of the field",
        brief=title,
        parts=(
            *paragraph("what follows", one.says),
            *paragraph("also", ", ".join(text for text in dict.fromkeys((title, *one.also, *one.labels)) if text != key)),
            *items("see", (f"diagnose explain {name.partition(':')[2]}" for name in one.see)),
            *items("sources", one.refs),
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


PHASES = ("fit", "scale", "profile", "retune")
_GATE = {"hard": "", "known": " (blocks only where it is known)", "note": " (a note, never blocks)"}  # what a reader expects needs no words


def order(know: Catalogue) -> list[str]:
    """Fixes in the order in which they are tried: by phase, then by step, then by id."""
    return sorted(know.book.fixes, key=lambda key: (PHASES.index(know.book.fixes[key].phase), know.book.fixes[key].step, key))


def fix(know: Catalogue, key: str) -> Entry:
    """One remedy."""
    one = know.book.fixes[key]
    walls = ", ".join(know.book.walls.topic(wall).title for wall in one.walls)
    return Entry(
        name=key,
        title=one.title,
        about=f"fix for: {walls}; phase {one.phase}, step {one.step}; evidence: {one.evidence}",
        brief=f"{one.phase} {one.step}",
        parts=(
            *rows("set", ("where", "change"), ((story.framework(change.framework), change_line(change)) for change in one.changes)),
            *items("offered for", (Line(kind.meaning, ": ", Code(kind.when)) for kind in know.book.relevance.kinds_of(key))),
            *expression("already on when", one.already_on),
            *paragraph("undecidable", one.undecidable),
            *items("needs", (_requirement(item, wanted=True) for item in one.needs)),
            *items("conflicts with", (_requirement(item, wanted=False) for item in one.conflicts)),
            *rows("published effect", ("what", "source"), ((item.text, item.source) for item in one.expected)),
            *(paragraph("published effect", "no published figure") if not one.expected else []),
            *paragraph("evidence", words.EVIDENCE[one.evidence]),
            *paragraph("disputed", one.disputed),
            *paragraph("cost", one.cost),
            *paragraph("risk", one.risk),
            *paragraph("verify", one.verify),
            *paragraph("order", *_order(know, one)),
            *paragraph("called for by", *refs("rule", (rule.id for rule in know.book.rules.values() if key in rule.fixes))),
            *items("see", one.refs),
        ),
    )


def change_line(change: ChangeSpec) -> Line:
    """What is set, with where it holds and how its value is computed."""
    shown = _assigned(change)
    key: Span = Ref("setting", change.setting, shown) if change.setting else Code(shown)
    joined = [span for member in members(change.to) or (change.to,) for span in (", ", Code(member))][1:]
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
    return Line(*line)


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
    return Line(*line, _GATE[item.gate])


def _order(know: Catalogue, one: FixSpec) -> list[Span]:
    """Its phase, the fixes that clear the way for it, and those that it clears the way for."""
    line: list[Span] = [f"step {one.step} of the phase {words.FIX_PHASE[one.phase]}"]
    before = dict.fromkeys(item.first for item in (*one.needs, *one.conflicts) if item.first is not None)
    after = [key for key, other in know.book.fixes.items() if any(item.first == one.id for item in (*other.needs, *other.conflicts))]
    if before:
        line += ["; what may have to come first: ", *refs("fix", before)]
    if after:
        line += ["; clears the way for ", *refs("fix", after)]
    return line


def fix_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """Which findings of the document call for the fix, and whether it can be applied."""
    found = [(finding, one) for finding in document.findings for one in finding.fixes if one.id == key]
    if not found:
        return paragraph("in this run", "no finding calls for it")
    told: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}  # what is the same for several findings once
    for finding, one in found:
        changes = tuple((name, changes) for name, changes in story.changes_by_framework(one) if one.state in ("applicable", "unknown"))
        told.setdefault((f"{words.STATE[one.state]}. {story.fix_reason(one)}".rstrip(), changes), []).append(finding.id)
    lines: list[Part] = []
    for (said, changes), ids in told.items():
        lines += [*paragraph(f"in this run, for {', '.join(ids)}", said), *rows("here", ("where", "change"), changes)]
    return lines


def _repair(know: Catalogue, key: str) -> tuple[ChangeSpec, ...]:
    """What `diagnose patch --checks` writes where the check goes wrong."""
    found = as_fix(key, know.book.checks[key], know.book.job)
    return () if found is None else found.changes


def check(know: Catalogue, key: str) -> Entry:
    """One way in which a job goes wrong."""
    one = know.book.checks[key]
    names = () if one.when is None else know.book.expression(one.when).names
    group = GROUP_OF[one.outcome] if one.sure else "doubtful"
    asked = f"; asked of {' and '.join(story.framework(name) for name in one.frameworks)} jobs only" if one.frameworks else ""
    shown = "shown by a job file alone" if one.when is not None else "no job file shows it: a log or a run has to"
    return Entry(
        name=key,
        title=one.title,
        about=f"check of job files ({words.words(group)}), outcome: {words.OUTCOME[one.outcome]}; {shown}{asked}",
        brief=words.OUTCOME[one.outcome],
        parts=(
            *paragraph("says", unfilled(one.say)),
            *paragraph("seen as", one.symptom),
            *expression("goes wrong when", one.when),
            *paragraph("to tell", one.confirm),
            *paragraph("remedy", one.remedy),
            *items("repair", (change_line(change) for change in _repair(know, key))),
            *paragraph("no fix", one.no_fix),
            *rows("reads", ("fact or setting", "meaning"), ((column(name), meaning(know, name)) for name in names)),
            *rows("fixes", ("fix", "what"), ((Ref("fix", fix), know.book.fixes[fix].title) for fix in one.fixes)),
            *rows("asserted in", ("source", "words"), tuple(one.asserted.items())),
            *items("see", one.refs),
        ),
    )
