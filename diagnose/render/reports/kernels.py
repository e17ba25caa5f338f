"""What kernel names are: one entry for each name, or why there is no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from diagnose.model.names import shorten
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.report import Block, Entry, Pairs

if TYPE_CHECKING:
    from diagnose.measure.buckets.describe import NameVerdict


class KernelAnswer(Struct, frozen=True, kw_only=True):
    """What one line of `diagnose kernel` asked, and the answer: `found`, or `error`, why there is none."""

    line: int  # place among the lines given, from 1; empty ones count
    name: str
    found: NameVerdict | None = None
    error: str | None = None


class KernelAnswers(Struct, frozen=True, kw_only=True):
    """Answers in the order of the lines."""

    answers: tuple[KernelAnswer, ...]


def report(document: KernelAnswers) -> r.Report:
    """An entry for each answer."""
    return r.Report(
        title="Kernels",
        heading="which bucket a kernel belongs to",
        about=units.plural(len(document.answers), "name"),
        blocks=tuple(Block(content=_entry(answer), name="kernels", worth=90) for answer in document.answers),
    )


def _entry(answer: KernelAnswer) -> Entry:
    """The bucket of a kernel name and why."""
    found = answer.found
    if found is None:
        return Entry(name=f"line {answer.line}", parts=(Pairs(rows=(("error", answer.error or ""),)),))
    moves = ", ".join(part for part in (found.kind and words.COMM_KIND.get(found.kind, found.kind), found.backend) if part)
    rows = (
        ("bucket", words.bucket(found.bucket)),
        ("role", words.role(found.role) + (f" ({moves})" if moves else "")),
        ("phase", found.phase or ""),
        ("operation", words.words(found.operation)),
        ("because", f"{found.evidence}, rule {found.rule}{' (weak: by default only)' if found.weak else ''}"),
        ("elsewhere", ", ".join(words.bucket(bucket) for bucket in found.alternatives)),
        ("not understood", ", ".join(found.not_understood)),
    )
    return Entry(name=shorten(answer.name, 200), parts=(Pairs(rows=tuple(row for row in rows if row[1])),))


def json(document: KernelAnswers) -> str:
    """One line of JSON for each answer."""
    return "".join(msgspec.json.encode(_data(answer)).decode("utf-8") + "\n" for answer in document.answers)


def _data(answer: KernelAnswer) -> Mapping[str, object]:
    found = answer.found
    if found is None:
        return {"line": answer.line, "error": answer.error}
    return {
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
    } | ({"not_understood": found.not_understood} if found.not_understood else {})
