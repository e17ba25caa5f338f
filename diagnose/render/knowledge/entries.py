"""What an entry is made of: the parts of a report, whose lines know beside their words which of them name other entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

from msgspec import Struct, field

from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.glossary import Word, load_glossary
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.render import report as r
from diagnose.render.report import Label, Labelled, Lines, Listing, Pairs


class Ref(Struct, frozen=True):
    """The name of another entry; `label` is shown in its place."""

    kind: str
    id: str
    label: str = ""


class Code(Struct, frozen=True):
    """A piece of code, a key, or a name that is to be read letter by letter."""

    text: str


Span = str | Ref | Code
Part = Label | Labelled


class Line(str):
    """Words, of which `spans` tells where they name an entry or are code."""

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, *spans: Span) -> Self:
        """The line that these spans make."""
        texts = (span if isinstance(span, str) else span.text if isinstance(span, Code) else span.label or span.id for span in spans)
        line = super().__new__(cls, "".join(texts))
        line.spans = spans
        return line


def line_of(span: Span) -> str:
    """A span as a line of its own."""
    return span if isinstance(span, str) else Line(span)


class Entry(r.Entry, frozen=True, kw_only=True):
    """One thing that the program knows; `brief` stands beside it in a list of contents."""

    brief: str
    parts: tuple[Part, ...] = ()
    spaced: bool = True


class Catalogue(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that entries are made of."""

    book: Rulebook
    taxonomy: Taxonomy
    words: Mapping[str, Word] = field(default_factory=load_glossary)

    @cached_property
    def readers(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """By kind (rule, fix, wall) and column (a fact's name, or `job_` and a setting's) which of that kind read it, in their order."""
        book = self.book
        reads = [
            *(("rule", key, (*rule_columns(book, key), *one.evidence)) for key, one in book.rules.items()),
            *(("fix", key, fix_columns(book, key)) for key in book.fixes),
            *(("wall", key, book.expression(one.bound, "number").names) for key, one in book.walls.walls.items()),
        ]
        found: dict[tuple[str, str], list[str]] = {}
        for kind, key, names in reads:
            for name in dict.fromkeys(names):
                found.setdefault((kind, name), []).append(key)
        return found


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of entry: its ids in order, how an entry is made, and what a diagnosis says about it (`run`)."""

    name: str
    plural: str
    ids: Callable[[Catalogue], Sequence[str]]
    entry: Callable[[Catalogue, str], Entry]
    run: Callable[[Catalogue, str, Diagnosis], list[Part]] | None = None


# --- building parts ---------------------------------------------------------------------------------------------------

_FIELD = re.compile(r"\{(?:job_)?([a-z0-9_]+)(?::[a-z]+)?\}")


def unfilled(template: str) -> str:
    """A sentence whose numbers are not known yet: `{step_ns:ms} ms {per}` becomes `‹step_ns› ms per step`, what may be left out `[…]`."""
    said = _FIELD.sub(lambda found: "per step" if found[1] == "per" else f"‹{found[1]}›", template)
    return said.replace("[[", "[").replace("]]", "]")


def paragraph(label: str, *spans: Span) -> list[Part]:
    """A paragraph; nothing where there is no text."""
    return [Label(label=label, text=Line(*spans))] if any(not isinstance(span, str) or span.strip() for span in spans) else []


def expression(label: str, text: str | None) -> list[Part]:
    """A condition or a formula over facts and settings; nothing where there is none."""
    return [Label(label=label, text=" ".join(text.split()), tone="code")] if text else []


def items(label: str, lines: Iterable[Span]) -> list[Part]:
    """A list; nothing where it is empty."""
    return _labelled(label, Listing(texts=tuple(map(line_of, lines))))


def rows(label: str, head: tuple[str, str], pairs: Iterable[tuple[Span, Span]]) -> list[Part]:
    """A list of pairs, with a heading for either side; nothing where it is empty."""
    return _labelled(label, Pairs(rows=tuple((line_of(left), line_of(right)) for left, right in pairs), head=head))


def verbatim(label: str, texts: Iterable[str]) -> list[Part]:
    """Texts as they are, one on a line: patterns, kernel names; nothing where there are none."""
    return _labelled(label, Lines(texts=tuple(texts)))


def _labelled(label: str, content: Listing | Pairs | Lines) -> list[Part]:
    return [Labelled(label=label, content=content)] if (content.rows if isinstance(content, Pairs) else content.texts) else []


def refs(kind: str, ids: Iterable[str]) -> list[str | Ref]:
    """Names of entries, with commas between."""
    return [span for key in ids for span in (", ", Ref(kind, key))][1:]


def users(know: Catalogue, name: str) -> list[Part]:
    """Which rules, fixes and walls read a column."""
    rules, fixes, walls = (know.readers.get((kind, name), ()) for kind in ("rule", "fix", "wall"))
    return [
        *(paragraph("used by", *refs("rule", rules)) if rules else paragraph("used by", "no rule")),
        *paragraph("read by the fixes", *refs("fix", fixes)),
        *paragraph("part of the bound of", *refs("wall", walls)),
    ]


def rule_columns(book: Rulebook, key: str) -> list[str]:
    """Facts and settings that a rule's expressions read, in order of appearance."""
    rule = book.rules[key]
    names = list(book.expression(rule.when).names) + (list(book.expression(rule.late.when).names) if rule.late else [])
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
