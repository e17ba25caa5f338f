"""The report of a patch: fixes with the keys that they changed, what was left, and the same changes for a command line."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document.job import AT_LAUNCH, Applied, PatchReport, Written
from diagnose.render import report as r
from diagnose.render import units
from diagnose.render.report import Block, Entry, Label, Lines, Listing, Section, Text


def report(document: PatchReport) -> r.Report:
    """The whole report."""
    lists = [(f"part-{place}", title, content) for place, (title, content) in enumerate(_lists(document)) if any(content.texts)]
    return r.Report(
        title="Changes of a job file",
        heading="what was changed in a job file",
        about=document.source,
        blocks=(
            Block(content=Text(text=_summary(document)), name="summary", worth=100),
            *(Block(content=entry, section="applied", name="applied", worth=90) for entry in _applied(document)),
            *(Block(content=content, section=key, name=title, worth=80) for key, title, content in lists),
        ),
        sections=(
            *((Section(id="applied", title="Applied", nav="Applied"),) if document.applied else ()),
            *(Section(id=key, title=title, nav=title, headed=True) for key, title, _ in lists),
        ),
        tool=document.tool,
        schema=document.schema,
    )


def _summary(document: PatchReport) -> str:
    if not (document.applied or document.skipped or document.left_to_you):
        return f"{document.source}: nothing to change. Neither a finding that time can be won by nor a check has a fix that applies here."
    fixes, changed = units.plural(len(document.applied), "fix", "fixes"), units.plural(len(document.written), "setting")
    if document.rewritten:
        return f"{document.source}: {fixes} applied, {changed} changed."
    return f"{document.source}: {fixes}, {changed} to give at launch; a file of this kind is not rewritten."


def _lists(document: PatchReport) -> Iterator[tuple[str, Listing | Lines]]:
    left = [row for row in document.left_to_you if document.rewritten or row.why != AT_LAUNCH]  # those stand below, as they are typed
    yield "Left to you", Listing(texts=tuple(f"{row.fix}: {row.key} {row.to} ({row.why})" for row in left))
    yield "Not applied", Listing(texts=tuple(f"{row.id} {row.title}. {row.why}" for row in document.skipped))
    yield "Wrong before, and still", Listing(texts=tuple(f"{row.id}: {row.summary}" for row in document.still_wrong))
    yield "Instead of the file, in its own keys", Lines(texts=_joined(document.own_overrides))
    yield "Instead of the file, Megatron-Bridge", Lines(texts=_joined(document.bridge_overrides))
    yield "Instead of the file, Megatron-LM", Lines(texts=_joined(document.megatron_flags))
    yield "Instead of the file, torchtitan", Lines(texts=_joined(document.torchtitan_options))
    yield "Environment", Lines(texts=document.environment)


def _joined(words: tuple[str, ...]) -> tuple[str, ...]:
    return (" ".join(words),) if words else ()


def _applied(document: PatchReport) -> Iterator[Entry]:
    for fix in document.applied:
        yield _entry(fix, [row for row in document.written if row.fix == fix.id])


def _entry(fix: Applied, rows: list[Written]) -> Entry:
    reason = f", for {fix.for_finding}" if fix.for_finding else ""
    return Entry(
        name=f"{fix.id} {fix.title}{reason}",
        parts=(
            *(
                Label(label=row.key, text=f"{row.from_ or '(not set)'} → {row.to or '(removed)'}{f' ({row.how})' if row.how else ''}")
                for row in rows
            ),
            *(Label(label="published", text=f"{expected.text} [{expected.source}]") for expected in fix.expected),
            Label(label="verify", text=fix.verify),
            *(Label(label="check first", text=sentence) for sentence in fix.unknown),
        ),
    )
