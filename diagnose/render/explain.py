"""What the program knows about one rule, fix, fact, wall, ledger code or kernel name, in words; with a diagnosis, in its numbers."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from diagnose.diagnosis import Diagnosis
from diagnose.errors import UsageError
from diagnose.ledger import CODES
from diagnose.render import story, tables, units, words
from diagnose.rule_types import FixSpec, Requirement, Rule
from diagnose.rulebook import Rulebook

_WIDTH = 96


class Described(Protocol):
    """What is known of a kernel name (diagnose.measure.buckets.NameVerdict)."""

    @property
    def bucket(self) -> str: ...  # noqa: D102
    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str | None: ...  # noqa: D102
    @property
    def backend(self) -> str | None: ...  # noqa: D102
    @property
    def phase(self) -> str | None: ...  # noqa: D102
    @property
    def operation(self) -> str: ...  # noqa: D102
    @property
    def evidence(self) -> str: ...  # noqa: D102
    @property
    def rule(self) -> str: ...  # noqa: D102
    @property
    def weak(self) -> bool: ...  # noqa: D102
    @property
    def alternatives(self) -> tuple[str, ...]: ...  # noqa: D102


def explain(book: Rulebook, name: str, document: Diagnosis | None = None) -> str:
    """The explanation of `name`, as text. Raises UsageError when nothing has that name."""
    kinds: tuple[tuple[Collection[str], Callable[[str], list[str]]], ...] = (
        (book.rules, lambda key: _rule(book, book.rules[key], document)),
        (book.fixes, lambda key: _fix(book, book.fixes[key], document)),
        (book.facts, lambda key: _fact(book, key, document)),
        (CODES, lambda key: _code(key, document)),
        (book.walls.walls, lambda key: _wall(book, key, document)),
    )
    wanted = name.strip().lower()
    for names, told in kinds:
        key = next((key for key in names if key.lower() == wanted), None)
        if key is not None:
            return "\n".join(told(key)) + "\n"
    near = difflib.get_close_matches(name, [key for names, _ in kinds for key in names], n=3, cutoff=0.5)
    raise UsageError(
        f"Nothing is called {units.shorten(name, 80)!r}.",
        effect="There is nothing to explain.",
        next_step=f"Did you mean {', '.join(near)}?" if near else "`diagnose rules` lists rules and fixes.",
    )


# --- one of each ------------------------------------------------------------------------------------------------------


def _rule(book: Rulebook, rule: Rule, document: Diagnosis | None) -> list[str]:
    lines = [
        f"{rule.id}: {rule.name}",
        f"rule ({rule.status}, since {rule.since}) for the {words.WALL[rule.wall].lower()} wall; its claim is {rule.claim}: {words.STATUS_MEANING[rule.claim]}",
        *_entry("fires when", rule.when),
        *_entry("saves at most", rule.saves or ""),
        *_entry("why", rule.why),
        *_entry("wrong when", rule.wrong_when),
        *_entry("check", rule.check),
        *_entry("to assess it", rule.capture),
    ]
    if document is not None:
        lines += _in_this_run(book, rule, document)
    lines += ["", "fixes:", *(f"  {key:<12} {book.fixes[key].title}" for key in rule.fixes if key in book.fixes)] if rule.fixes else []
    return lines + _refs(rule.refs)


def _in_this_run(book: Rulebook, rule: Rule, document: Diagnosis) -> list[str]:
    """Whether the rule fired in the document, and the numbers that its expressions read."""
    fired = next((finding for finding in document.findings if finding.id == rule.id), None)
    unknown = next((one for one in document.not_assessed if one.id == rule.id), None)
    if fired is not None:
        bound = story.finding_ceiling(fired, document)
        said = f"fired ({fired.severity}{f'; {bound}' if bound else ''}): {fired.summary}"
    elif unknown is not None:
        said = f"not assessed: {', '.join(unknown.missing)} could not be measured. {unknown.how}"
    else:
        said = "silent: its condition does not hold"
    names = list(book.expression(rule.when).names)
    if rule.saves:
        names += [name for name in book.expression(rule.saves, "number").names if name not in names]
    return [
        "",
        *_wrapped(f"in this run: {said}"),
        *_values(book, [*names, *(name for name in rule.evidence if name not in names)], document),
    ]


def _values(book: Rulebook, names: Iterable[str], document: Diagnosis) -> list[str]:
    settings = {} if document.job is None else {f"job_{setting.name}": setting.value for setting in document.job.settings}
    lines = []
    for name in names:
        fact = document.facts.get(name)
        if fact is not None:
            shown = units.fact(fact.value, fact.unit)
        elif name in settings:
            value = settings[name]
            shown = ", ".join(value) if isinstance(value, tuple) else units.fact(value, "")
        else:
            shown = "not in the job file" if name.startswith("job_") else units.NOT_MEASURED
        meaning = book.facts[name].meaning if name in book.facts else "setting of the job file"
        lines.append(f"  {name:<34} {units.visible(shown):>16}  {meaning}")
    return lines


def _fix(book: Rulebook, fix: FixSpec, document: Diagnosis | None) -> list[str]:
    lines = [
        f"{fix.id}: {fix.title}",
        f"fix for: {', '.join(words.WALL[wall].lower() for wall in fix.walls)}; phase {fix.phase}; evidence: {fix.evidence}",
        "",
        "set:",
        *(f"  {story.framework(change.framework):<16} {change.key}: {change.to}" for change in fix.changes),
        *_entry("already on when", fix.already_on or ""),
        *_requirements("needs", fix.needs),
        *_requirements("conflicts with", fix.conflicts),
        *(line for one in fix.expected for line in _entry("expected", f"{one.text} [{one.source}]")),
        *_entry("cost", fix.cost),
        *_entry("risk", fix.risk),
        *_entry("verify", fix.verify),
    ]
    if document is not None:
        found = [(finding, one) for finding in document.findings for one in finding.fixes if one.id == fix.id]
        lines.append("")
        lines += [
            line
            for finding, one in found
            for line in _wrapped(f"in this run, for {finding.id}: {words.STATE[one.state]}. {story.fix_reason(one)}".rstrip())
        ] or ["in this run: no finding calls for it"]
    users = [rule.id for rule in book.rules.values() if fix.id in rule.fixes]
    return lines + _entry("called for by", ", ".join(users)) + _refs(fix.refs)


def _requirements(label: str, requirements: Iterable[Requirement]) -> list[str]:
    return [line for one in requirements for line in _entry(label, f"{one.condition} ({one.say})")]


def _fact(book: Rulebook, name: str, document: Diagnosis | None) -> list[str]:
    spec = book.facts[name]
    users = [rule.id for rule in book.rules.values() if name in book.expression(rule.when).names or name in rule.evidence]
    lines = [f"{name}: {spec.meaning}", f"fact, unit: {spec.unit}", *_entry("null means", spec.null)]
    if document is not None:
        fact = document.facts.get(name)
        lines += _entry("in this run", units.NOT_MEASURED if fact is None else f"{units.fact(fact.value, fact.unit)} ({fact.status})")
    return lines + _entry("used by", ", ".join(users) or "no rule")


def _code(name: str, document: Diagnosis | None) -> list[str]:
    code = CODES[name]
    lines = [
        f"{name}: {code.meaning}",
        f"ledger code, severity {words.words(code.severity)}, from the {code.origin}; {'its rows are left out' if code.refuses else 'no row is left out'}",
    ]
    if document is None:
        return lines
    found = [f"{units.count(entry.count)} in {entry.table}" for entry in document.ledger if entry.code == name]
    return lines + _entry("in this run", ", ".join(found) or "none")


def _wall(book: Rulebook, name: str, document: Diagnosis | None) -> list[str]:
    spec = next(spec for wall, spec in book.walls.walls.items() if wall == name)
    lines = [
        f"{words.WALL[name]} wall: {words.WALL_MEANING[name]}",
        *_entry("bound", spec.bound),
        *(line for label, text in spec.parts.items() for line in _entry(f"part {words.words(label)}", text)),
        *(line for label, text in spec.beside.items() for line in _entry(f"beside {words.words(label)}", text)),
        *_entry(
            "dominant",
            f"the largest of the first three walls from {units.percent(book.walls.dominance_share, 0)} of the step on, else compute",
        ),
    ]
    found = None if document is None else next((wall for wall in document.walls if wall.wall == name), None)
    if document is not None and found is not None:
        lines += _entry(
            "in this run",
            f"{story.ceiling(found, document)} ({units.percent(found.share)} of the {tables.whole(document)}, {found.status})",
        )
    return lines + _entry("rules", ", ".join(rule.id for rule in book.rules.values() if rule.wall == name) or "none")


# --- lists ------------------------------------------------------------------------------------------------------------


def listing(book: Rulebook) -> str:
    """All rules and fixes, one a line."""
    widest = max((len(key) for key in (*book.rules, *book.fixes)), default=0)
    lines = [
        f"rules ({len(book.rules)})",
        *(f"  {rule.id:<{widest}}  {words.WALL[rule.wall].lower():<13}  {rule.name}" for rule in book.rules.values()),
    ]
    lines += ["", f"fixes ({len(book.fixes)})"]
    lines += [
        f"  {fix.id:<{widest}}  {', '.join(words.WALL[wall].lower() for wall in fix.walls):<13}  {fix.title}" for fix in book.fixes.values()
    ]
    return "\n".join([*lines, "", "`diagnose explain ID` tells more.", ""])


def listing_json(book: Rulebook) -> str:
    """Rules and fixes as the rule files hold them."""
    data = {"rules": list(book.rules.values()), "fixes": list(book.fixes.values()), "rules_sha256": book.sha256}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode("utf-8") + "\n"


_KERNEL_FIELDS = ("bucket", "role", "kind", "backend", "phase", "operation", "evidence", "rule", "weak", "alternatives")


def kernel_json(name: str, found: Described) -> str:
    """One line of JSON."""
    return msgspec.json.encode({"name": name} | {field: getattr(found, field) for field in _KERNEL_FIELDS}).decode("utf-8") + "\n"


def kernel_text(name: str, found: Described) -> str:
    """The bucket of a kernel name and why."""
    moves = ", ".join(part for part in (found.kind and words.COMM_KIND.get(found.kind, found.kind), found.backend) if part)
    rows = {
        "bucket": words.words(found.bucket),
        "role": found.role + (f" ({moves})" if moves else ""),
        "phase": found.phase or "",
        "operation": found.operation,
        "because": f"{found.evidence}, rule {found.rule}{' (weak: by default only)' if found.weak else ''}",
        "elsewhere": ", ".join(words.words(bucket) for bucket in found.alternatives),
    }
    lines = [f"  {label:<10} {units.visible(value)}" for label, value in rows.items() if value]
    return "\n".join([units.shorten(name, 200), *lines, ""])


# --- lines ------------------------------------------------------------------------------------------------------------


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(units.visible(text), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _entry(label: str, text: str) -> list[str]:
    """A labelled paragraph behind an empty line; nothing without text."""
    return ["", *_wrapped(f"{label}: {' '.join(text.split())}")] if text.strip() else []


def _refs(refs: Iterable[str]) -> list[str]:
    shown = [f"  {units.visible(ref)}" for ref in refs]
    return ["", "see:", *shown] if shown else []
