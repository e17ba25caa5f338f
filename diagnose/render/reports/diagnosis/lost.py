"""What the ledger says that has to be known before a result is believed: what was lost, has no name, or was given twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.document.diagnosis import Diagnosis, LedgerEntry
from diagnose.knowledge.templates import enumerated
from diagnose.render.issues import in_sentence

_MOST_FILES = 3


def is_hidden(document: Diagnosis) -> bool:
    """Whether it is not known what much of the kernel time was for, or copies are missing: nothing can be said not to be there."""
    return document.verdict.hidden or any(entry.code == "no_copies" for entry in document.ledger)


def first_sentence(text: str) -> str:
    """A text up to its first full stop."""
    head, stop, _ = text.partition(". ")
    return f"{head}." if stop else head


def remarks(document: Diagnosis) -> Iterator[str]:
    """A sentence for each thing."""
    lost = next((entry for entry in document.ledger if entry.severity == "data_loss"), None)
    if lost is not None:
        yield f"Data was lost: {_what(lost)}; see --section ledger."
    elif any(entry.severity == "error" for entry in document.ledger):
        yield "The profiler reported an error, so something may be missing: --section capture shows its words."
    for entry in document.ledger:
        if entry.code == "no_copies" or (entry.code == "unknown_name" and document.verdict.hidden and "KERNEL" in entry.table):
            yield f"{entry.count:,} {in_sentence(entry.meaning)}"
    if document.ranks is not None:
        yield from (problem.text for problem in document.ranks.problems if problem.kind == "runs")
    if again := [entry.detail for entry in document.ledger if entry.code == "renumbered_rank"]:
        yield f"{named(again)}: of a rank that another file is of too (a second capture, or a copy), and left out of the comparison of ranks."


def _what(entry: LedgerEntry) -> str:
    """What was lost, within a sentence."""
    if entry.code == "refused_input":
        return entry.detail.rstrip(".")
    meaning = in_sentence(first_sentence(entry.meaning).rstrip("."))
    where = [f"{entry.count:,} in {entry.table}"] if entry.count > 1 else []
    told = "; ".join([*([named(entry.files)] if entry.files else []), *where])
    return f"{meaning} ({told})" if told else meaning


def named(files: Sequence[str]) -> str:
    """A few files by name, and how many more there are."""
    more = [f"{len(files) - _MOST_FILES:,} more"] if len(files) > _MOST_FILES else []
    return enumerated([*files[:_MOST_FILES], *more])
