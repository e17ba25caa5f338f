"""Entries of buckets, and of what decides them: families of names, contexts, process groups."""

from __future__ import annotations

import re

from diagnose.document.device import on_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.knowledge.taxonomy import Context, Family, Group
from diagnose.model.vocabulary import COLLECTIVE, DISPATCH, OTHER_BUCKET
from diagnose.render import units, words
from diagnose.render.knowledge.entries import Catalogue, Entry, Part, Ref, Span, items, paragraph, refs, rows, verbatim
from diagnose.render.reports.diagnosis import tables

_SOURCE = {"nvtx": "NVTX ranges", "annotation": "annotations", "operator": "operators", "module": "modules"}
_EXAMPLES = 4  # kernel names under a bucket; its families show the rest


def bucket(know: Catalogue, key: str) -> Entry:
    """One part of the model that a kernel may serve."""
    meaning = know.book.buckets[key]
    families, contexts = know.taxonomy.families, know.taxonomy.contexts
    decided = [one for one in families if key == one.bucket]
    default = [one for one in families if one.bucket is None and key == one.default]
    possible = [one for one in families if key in one.alternatives]
    examples = [one.examples[0] for one in (*decided, *default) if one.examples]
    return Entry(
        name=key,
        title=meaning.holds,
        about="bucket: which part of the model a device operation serves",
        brief=", ".join(dict.fromkeys(words.role(one.role) for one in decided + default)) or "compute",
        parts=(
            *paragraph("belongs elsewhere", meaning.elsewhere),
            *paragraph("recognised by", meaning.told_by),
            *items("traps", meaning.traps),
            *verbatim("names, for example", examples[:_EXAMPLES]),
            *rows("by its name", ("family", "what"), ((Ref("family", one.id), _family_about(one)) for one in decided)),
            *rows(
                "by its name, unless something around it knows better",
                ("family", "what"),
                ((Ref("family", one.id), _family_about(one)) for one in default),
            ),
            *paragraph("may come here by what is around them", *refs("family", (one.id for one in possible))),
            *rows(
                "by what encloses the launch",
                ("context", "applies to"),
                ((Ref("context", one.id), _operations(one)) for one in contexts if key == one.bucket),
            ),
            *paragraph(
                "rules that show its costliest names",
                *refs("rule", (rule.id for rule in know.book.rules.values() if f"bucket:{key}" in rule.where)),
            ),
            *items("sources", meaning.sources),
        ),
    )


def _family_about(one: Family) -> str:
    parts = (words.words(one.operation), words.role(one.role), one.kind and words.COMM_KIND[one.kind], one.backend, one.phase)
    return ", ".join(part for part in parts if part)


def _operations(one: Context) -> str:
    return ", ".join(words.words(name) for name in one.operations) or "every operation"


def bucket_in_run(_know: Catalogue, key: str, document: Diagnosis) -> list[Part]:
    """The bucket's time on the device that the verdict speaks of."""
    device = tables.focus(document)
    found = [] if device is None else [one for one in on_device(document.buckets, (device.rank, device.device)) if one.bucket == key]
    times = (f"busy {units.ms_unit(one.busy_ns)} {tables.per(document)}, alone {units.ms_unit(one.exclusive_ns)}" for one in found)
    return [part for text in times for part in paragraph("in this run", text)] or paragraph("in this run", "no work in it")


def family(know: Catalogue, key: str) -> Entry:
    """One family of device operations, recognised by name."""
    one = next(one for one in know.taxonomy.families if one.id == key)
    return Entry(
        name=key,
        title=f"{words.words(one.operation)}, recognised by name",
        about="family of names; the first family in order whose pattern or words match decides",
        brief=one.bucket or one.default or "",
        parts=(
            *paragraph("bucket", *_target(one)),
            *paragraph("role", _family_about(one)),
            *paragraph(
                "marks", f"{'begins' if one.marker == 'open' else 'ends'} the stretch in which experts compute" if one.marker else ""
            ),
            *paragraph("elsewhere, by what is around it", *refs("bucket", one.alternatives)),
            *verbatim("patterns", (pattern or "(anything)" for pattern in one.patterns)),
            *verbatim("words of its function", one.words),
            *verbatim("words of its namespaces", one.namespaces),
            *_sets(know, one.words + one.namespaces),
            *verbatim("examples", one.examples),
        ),
    )


def _sets(know: Catalogue, lines: tuple[str, ...]) -> list[Part]:
    """The words of the sets that lines of words name."""
    named = dict.fromkeys(name for line in lines for name in re.findall(r"@(\w+)", line))
    return verbatim("where", (f"@{name}: {', '.join(know.taxonomy.sets[name])}" for name in named))


def _target(one: Family) -> tuple[Span, ...]:
    if one.bucket is None:
        return (Ref("bucket", one.default or OTHER_BUCKET), " by default: what encloses the launch, or a neighbour, may know better")
    held = "; only a context that overrides may change it" if one.decisive else "; a context may change it"
    return (Ref("bucket", one.bucket), held)


def context(know: Catalogue, key: str) -> Entry:
    """What an enclosing range tells about a launch."""
    one = next(one for one in know.taxonomy.contexts if one.id == key)
    gives: list[Span] = []
    if one.bucket is not None:
        gives += ["bucket ", Ref("bucket", one.bucket)]
    if one.kind is not None:
        gives += [", " if gives else "", f"communication is {words.COMM_KIND[one.kind]}"]
    if one.phase is not None:
        gives += [", " if gives else "", f"phase {one.phase} to every launch inside"]
    return Entry(
        name=key,
        title=f"{one.evidence} around the launch",
        about="context: a range, operator or module that encloses a launch; the first in order decides",
        brief=one.bucket or one.kind or one.phase or "what others ask for",
        parts=(
            *paragraph("gives", *gives),
            *paragraph("to", _operations(one)),
            *paragraph("holds even against", "a name that already decided" if one.overrides else ""),
            *paragraph("only inside", *refs("context", one.requires)),
            *paragraph("only outside", *refs("context", one.outside)),
            *paragraph("looked for in", ", ".join(_SOURCE[source] for source in one.sources)),
            *paragraph("backward nodes", "" if one.inherited else "do not take it over from their forward operator"),
            *verbatim("patterns", one.patterns),
            *verbatim("words of the range", one.words),
            *_sets(know, one.words),
            *verbatim("but not", one.unless),
        ),
    )


def group(know: Catalogue, key: str) -> Entry:
    """What a process group's description tells about its collectives."""
    one = next(one for one in know.taxonomy.groups if one.id == key)
    return Entry(
        name=key,
        title=f"{words.COMM_KIND[one.kind]} communication",
        about="process group: the first in order whose pattern is found in the group's description decides"
        if one.payload is None
        else "payload: where no description tells the process group, the collective's name and what it carries decide",
        brief=one.kind,
        parts=(
            *paragraph("bucket", Ref("bucket", DISPATCH if one.kind == "expert" else COLLECTIVE)),
            *verbatim("patterns", one.patterns),
            *verbatim("payload", _payload_of(one)),
        ),
    )


def _payload_of(one: Group) -> tuple[str, ...]:
    if one.payload is None:
        return ()
    kinds = (f"element type {' or '.join(one.payload.dtypes)}",) if one.payload.dtypes else ()
    least = (f"at least {one.payload.min_elements:,} elements",) if one.payload.min_elements else ()
    most = () if one.payload.max_elements is None else (f"at most {one.payload.max_elements:,} elements",)
    world = ("in the group of all ranks of a job that splits its optimizer over data-parallel ranks",) if one.payload.sharded else ()
    return (*kinds, *least, *most, *world)
