"""What the program knows about one rule, fix, bucket, fact and so on, in words; with a diagnosis, in its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from diagnose.document.diagnosis import Diagnosis
from diagnose.errors import UsageError, nearest
from diagnose.knowledge.glossary import Word
from diagnose.knowledge.vocabulary import Vocabulary
from diagnose.model.names import shorten
from diagnose.render import report as r
from diagnose.render.knowledge.entries import Catalogue, Kind
from diagnose.render.knowledge.kinds import KINDS
from diagnose.render.report import Block, Section
from diagnose.render.reports.rules import listing


class Explanation(Catalogue, frozen=True, kw_only=True):
    """What is known of everything that is called `name`; with `diagnosis` in its numbers.

    `kind:name` asks for one kind, a kind's plural for all of it.
    """

    name: str
    diagnosis: Diagnosis | None = None


def report(document: Explanation) -> r.Report:
    """An entry for each thing of that name, or the list of a kind. Raises UsageError when nothing has that name."""
    wanted = document.name.strip().lower()
    kind = next((kind for kind in KINDS if kind.plural == wanted), None)
    if kind is not None:
        table = listing(kind.plural, (kind.name, "what"), [(key, kind.entry(document, key).title) for key in kind.ids(document)])
        return _report(document, (Block(content=table, section=kind.plural, worth=90),), (Section(id=kind.plural),))
    entries = []
    called = {wanted, _word(wanted, document.words), _word(wanted.rstrip("0123456789"), document.words)}  # EP16 is EP
    named = _named(called, document) or _named(_titles(document).get(wanted.removeprefix("compute: "), set()), document)
    for one, key in named:
        known = one.entry(document, key)
        run = one.run(document, key, document.diagnosis) if one.run is not None and document.diagnosis else []
        entries.append(replace(known, parts=(*run, *known.parts)))
    if entries:
        return _report(document, tuple(Block(content=one, name=one.name, worth=90) for one in entries))
    bare = wanted.rpartition(":")[2].removeprefix("job_")
    near = nearest(bare, [key for kind in KINDS for key in kind.ids(document)], most=3, alike=0.5)
    plurals = ", ".join(kind.plural for kind in KINDS)
    raise UsageError(
        f"Nothing is called {shorten(document.name, 80)!r}.",
        effect="There is nothing to explain.",
        next_step=f"Did you mean {', '.join(near)}?" if near else f"`diagnose explain KIND` lists one of {plurals}.",
    )


def _report(document: Explanation, blocks: tuple[Block, ...], sections: tuple[Section, ...] = ()) -> r.Report:
    return r.Report(title=document.name, heading="what the program knows", about=document.name, blocks=blocks, sections=sections)


def _named(called: set[str], know: Catalogue) -> list[tuple[Kind, str]]:
    return [(one, key) for one in KINDS for key in one.ids(know) if not called.isdisjoint(_names(one, key))]


def _titles(know: Catalogue) -> Mapping[str, set[str]]:
    """What outputs print in the place of an id: verdicts, causes, parts of bounds and buckets, each with what explains it."""
    walls, vocabulary = know.book.walls, Vocabulary(buckets=know.book.buckets, walls=know.book.walls)
    titles = [(f"bucket:{key}", vocabulary.bucket(key)) for key in know.book.buckets]
    titles += [(f"rule:{key}", one.cause.headline) for key, one in know.book.rules.items() if one.cause and one.cause.headline]
    for key, spec in walls.walls.items():
        names = (vocabulary.bound_by(key), f"{spec.title} first", *map(walls.part, (*spec.parts, *spec.beside)))
        titles += [(f"wall:{key}", name) for name in names]
    found: dict[str, set[str]] = {}
    for key, title in titles:
        found.setdefault(title.lower(), set()).add(key)
    return found


def _names(kind: Kind, key: str) -> tuple[str, ...]:
    """What an entry may be called."""
    plain = key.lower()
    return (plain, f"{kind.name}:{plain}", *((f"job_{plain}",) if kind.name == "setting" else ()))


def _word(wanted: str, words: Mapping[str, Word]) -> str:
    """The id of the word of the field that is also called so; otherwise the name itself."""
    return next((f"word:{key}" for key, one in words.items() if wanted in one.spellings(key)), wanted)
