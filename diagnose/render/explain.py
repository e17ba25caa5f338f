"""What the program knows about one rule, fix, bucket, fact and so on, or about a kernel name, in words; with a diagnosis, in its numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import UsageError
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.render import units, words
from diagnose.render.knowledge.as_text import text, wrapped
from diagnose.render.knowledge.entries import Catalogue, Kind, catalogue
from diagnose.render.knowledge.kinds import KINDS


class Described(Protocol):
    """What is known of a kernel name (diagnose.measure.describe.NameVerdict)."""

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
    @property
    def not_understood(self) -> tuple[str, ...]: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What is known of everything that is called `name`; with `diagnosis` in its numbers. The plural of a kind stands for all of it."""

    name: str
    book: Rulebook
    taxonomy: Taxonomy | None = None
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, kw_only=True)
class KernelAnswer:
    """What one line of `diagnose kernel` asked, and the answer: `found`, or `error`, why there is none."""

    line: int  # place among the lines given, from 1; empty ones count
    name: str
    found: Described | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class KernelAnswers:
    """Answers in the order of the lines."""

    answers: tuple[KernelAnswer, ...]


def written(document: Explanation | KernelAnswers | Rulebook, format_name: str) -> str:
    """One of these documents as text or JSON. Raises UsageError for a name that nothing has."""
    match document:
        case Explanation():
            return explain(document.book, document.name, document.diagnosis, document.taxonomy)
        case KernelAnswers():
            shown = _answer_text if format_name == "text" else _answer_json
            return "".join(shown(answer) for answer in document.answers)
        case _:
            return listing(document) if format_name == "text" else listing_json(document)


def _answer_text(answer: KernelAnswer) -> str:
    """A short paragraph."""
    if answer.found is None:
        return f"line {answer.line}\n  error      {units.visible(answer.error or '')}\n"
    return kernel_text(answer.name, answer.found)


def _answer_json(answer: KernelAnswer) -> str:
    """One line of JSON."""
    found = answer.found
    if found is None:
        return _line({"line": answer.line, "error": answer.error})
    return _line(
        {
            "name": answer.name,
            "bucket": found.bucket,
            "phase": found.phase,
            "role": found.role,
            "kind": found.kind,
            "backend": found.backend,
            "operation": found.operation,
            "evidence": found.evidence,
            "rule": found.rule,
            "ambiguous": found.weak,
            "alternatives": found.alternatives,
        }
        | ({"not_understood": found.not_understood} if found.not_understood else {})
    )


def _line(data: Mapping[str, object]) -> str:
    return msgspec.json.encode(data).decode("utf-8") + "\n"


def explain(book: Rulebook, name: str, document: Diagnosis | None = None, taxonomy: Taxonomy | None = None) -> str:
    """The explanation of everything that is called `name`, as text; of one kind only for `kind:name`.

    The plural of a kind lists all of it. Raises UsageError when nothing has that name.
    """
    know = catalogue(book, taxonomy)
    wanted = name.strip().lower()
    listed = next((kind for kind in KINDS if kind.plural == wanted), None)
    if listed is not None:
        return listing_of(know, listed)
    said = [
        text(kind.entry(know, key), kind.run(know, key, document) if kind.run is not None and document is not None else [])
        for kind in KINDS
        for key in kind.ids(know)
        if wanted in _names(kind, key)
    ]
    if said:
        return "\n".join(said)
    near = _near(name, [key for kind in KINDS for key in kind.ids(know)])
    raise UsageError(
        f"Nothing is called {units.shorten(name, 80)!r}.",
        effect="There is nothing to explain.",
        next_step=f"Did you mean {', '.join(near)}?" if near else f"`diagnose explain KIND` lists one of {', '.join(_plurals())}.",
    )


def _names(kind: Kind, key: str) -> tuple[str, ...]:
    """What an entry may be called."""
    plain = key.lower()
    return (plain, f"{kind.name}:{plain}", *((f"job_{plain}",) if kind.name == "setting" else ()))


def _near(name: str, ids: Iterable[str]) -> list[str]:
    """Ids like `name`, whatever its case and whether a kind stands before it."""
    plain = {key.lower(): key for key in ids}
    found = difflib.get_close_matches(name.strip().lower().rpartition(":")[2].removeprefix("job_"), plain, n=3, cutoff=0.5)
    return [plain[key] for key in found]


def _plurals() -> list[str]:
    return [kind.plural for kind in KINDS]


def listing_of(know: Catalogue, kind: Kind) -> str:
    """All entries of one kind, one a line."""
    ids = kind.ids(know)
    widest = max((len(key) for key in ids), default=0)
    lines = [f"{kind.plural} ({len(ids)})"]
    for key in ids:
        title = kind.entry(know, key).title
        lines += wrapped(title, f"  {key:<{widest}}  ", " " * (widest + 4))
    return "\n".join([*lines, "", "`diagnose explain ID` tells more.", ""])


# --- lists ------------------------------------------------------------------------------------------------------------


def listing(book: Rulebook) -> str:
    """All rules and fixes, one a line."""
    widest = max((len(key) for key in (*book.rules, *book.fixes)), default=0)
    lines = [
        f"rules ({len(book.rules)})",
        *(f"  {rule.id:<{widest}}  {book.walls.topic(rule.wall).title:<13}  {rule.name}" for rule in book.rules.values()),
    ]
    lines += ["", f"fixes ({len(book.fixes)})"]
    lines += [
        f"  {fix.id:<{widest}}  {', '.join(book.walls.topic(wall).title for wall in fix.walls):<13}  {fix.title}"
        for fix in book.fixes.values()
    ]
    return "\n".join([*lines, "", "`diagnose explain ID` tells more.", ""])


def listing_json(book: Rulebook) -> str:
    """Rules and fixes as the rule files hold them."""
    data = {"rules": list(book.rules.values()), "fixes": list(book.fixes.values()), "rules_sha256": book.sha256}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode("utf-8") + "\n"


def kernel_text(name: str, found: Described) -> str:
    """The bucket of a kernel name and why."""
    moves = ", ".join(part for part in (found.kind and words.COMM_KIND.get(found.kind, found.kind), found.backend) if part)
    rows = {
        "bucket": words.bucket(found.bucket),
        "role": found.role + (f" ({moves})" if moves else ""),
        "phase": found.phase or "",
        "operation": found.operation,
        "because": f"{found.evidence}, rule {found.rule}{' (weak: by default only)' if found.weak else ''}",
        "elsewhere": ", ".join(words.bucket(bucket) for bucket in found.alternatives),
        "not understood": ", ".join(found.not_understood),
    }
    lines = [f"  {label:<10} {units.visible(value)}" for label, value in rows.items() if value]
    return "\n".join([units.shorten(name, 200), *lines, ""])
