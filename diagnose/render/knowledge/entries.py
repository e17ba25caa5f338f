"""The shape of an entry: a title, one line about what it is, and labelled parts that both outputs can render."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.rulebook import Rulebook, load_rulebook
from diagnose.knowledge.taxonomy import Taxonomy, load_taxonomy


@dataclass(frozen=True)
class Ref:
    """The name of another entry; `label` is shown in its place."""

    kind: str
    id: str
    label: str = ""


@dataclass(frozen=True)
class Code:
    """A piece of code, a key, or a name that is to be read letter by letter."""

    text: str


Span = str | Ref | Code
Line = tuple[Span, ...]


@dataclass(frozen=True)
class Paragraph:
    """A labelled paragraph."""

    label: str
    line: Line


@dataclass(frozen=True)
class Expression:
    """A condition or a formula over facts and settings."""

    label: str
    text: str


@dataclass(frozen=True)
class Items:
    """A labelled list."""

    label: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Rows:
    """A labelled list of pairs, with a heading for either side."""

    label: str
    head: tuple[str, str]
    rows: tuple[tuple[Line, Line], ...]


@dataclass(frozen=True)
class Verbatim:
    """Texts that are shown as they are, one on a line: patterns, kernel names."""

    label: str
    texts: tuple[str, ...]


Part = Paragraph | Expression | Items | Rows | Verbatim


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that the program knows. `about` says what kind of thing it is; `brief` stands beside it in a list of contents."""

    kind: str
    id: str
    title: str
    about: str
    brief: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Everything that entries are made of."""

    book: Rulebook
    taxonomy: Taxonomy


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of entry: its ids in order, how an entry is made, and what a diagnosis says about it (`run`).

    `brief`: what the entries' field of that name is. `intro`: what stands above the entries on the page. Ids of kinds with a `prefix`
    may be those of another kind, so their anchors begin with it.
    """

    name: str
    plural: str
    page: str
    brief: str
    intro: str
    ids: Callable[[Catalogue], Sequence[str]]
    entry: Callable[[Catalogue, str], Entry]
    run: Callable[[Catalogue, str, Diagnosis], list[Part]] | None = None
    prefix: str = ""

    def anchor(self, key: str) -> str:
        """The name by which a page can be linked at this entry."""
        return f"{self.prefix}{key.lower()}"


def load_catalogue(rules: Sequence[Path] = ()) -> Catalogue:
    """The built-in knowledge with the rules and fixes of the user. Raises RuleFileError."""
    return catalogue(load_rulebook(rules))


def catalogue(book: Rulebook, taxonomy: Taxonomy | None = None) -> Catalogue:
    """Catalogue around a rulebook; without a taxonomy the built-in one. Raises RuleFileError."""
    return Catalogue(book=book, taxonomy=taxonomy or load_taxonomy(buckets=book.buckets))


# --- building parts ---------------------------------------------------------------------------------------------------

_FIELD = re.compile(r"\{(?:job_)?([a-z0-9_]+)(?::[a-z]+)?\}")


def unfilled(template: str) -> str:
    """A sentence whose numbers are not known yet: `{step_ns:ms} ms {per}` becomes `‹step_ns› ms per step`."""
    return _FIELD.sub(lambda found: "per step" if found[1] == "per" else f"‹{found[1]}›", template)


def paragraph(label: str, *spans: Span) -> list[Part]:
    """A paragraph; nothing where there is no text."""
    return [Paragraph(label, spans)] if any(not isinstance(span, str) or span.strip() for span in spans) else []


def expression(label: str, text: str | None) -> list[Part]:
    """A condition; nothing where there is none."""
    return [Expression(label, " ".join(text.split()))] if text else []


def items(label: str, lines: Iterable[Line]) -> list[Part]:
    """A list; nothing where it is empty."""
    found = tuple(lines)
    return [Items(label, found)] if found else []


def rows(label: str, head: tuple[str, str], pairs: Iterable[tuple[Line, Line]]) -> list[Part]:
    """A list of pairs; nothing where it is empty."""
    found = tuple(pairs)
    return [Rows(label, head, found)] if found else []


def verbatim(label: str, texts: Iterable[str]) -> list[Part]:
    """Texts as they are; nothing where there are none."""
    found = tuple(texts)
    return [Verbatim(label, found)] if found else []


def refs(kind: str, ids: Iterable[str]) -> Line:
    """Names of entries, with commas between."""
    line: list[Span] = []
    for key in ids:
        line += [", ", Ref(kind, key)] if line else [Ref(kind, key)]
    return tuple(line)


def sources(label: str, texts: Iterable[str]) -> list[Part]:
    """Where something was published."""
    return items(label, ((text,) for text in texts))


def users(know: Catalogue, name: str) -> list[Part]:
    """Which rules, fixes and walls read a column (a fact's name, or `job_` and a setting's)."""
    book = know.book
    rules = [key for key, one in book.rules.items() if name in rule_columns(book, key) or name in one.evidence]
    fixes = [key for key in book.fixes if name in fix_columns(book, key)]
    walls = [wall for wall, spec in book.walls.walls.items() if name in book.expression(spec.bound, "number").names]
    return [
        *(paragraph("used by", *refs("rule", rules)) if rules else paragraph("used by", "no rule")),
        *paragraph("read by the fixes", *refs("fix", fixes)),
        *paragraph("part of the bound of", *refs("wall", walls)),
    ]


def rule_columns(book: Rulebook, key: str) -> list[str]:
    """Facts and settings that a rule's expressions read, in order of appearance."""
    rule = book.rules[key]
    names = list(book.expression(rule.when).names)
    return list(dict.fromkeys(names + (list(book.expression(rule.saves, "number").names) if rule.saves else [])))


def fix_columns(book: Rulebook, key: str) -> list[str]:
    """Facts and settings that a fix reads, in order of appearance."""
    fix = book.fixes[key]
    conditions = [*([fix.already_on] if fix.already_on else []), *(one.condition for one in (*fix.needs, *fix.conflicts))]
    conditions += [change.only for change in fix.changes if change.only is not None]
    names = [name for text in conditions for name in book.expression(text).names]
    names += [name for change in fix.changes if change.value is not None for name in book.expression(change.value, "number").names]
    return list(dict.fromkeys(names))


def column(name: str) -> Ref:
    """The entry of a fact, or of the setting behind `job_…`."""
    return Ref("setting", name.removeprefix("job_"), name) if name.startswith("job_") else Ref("fact", name)
