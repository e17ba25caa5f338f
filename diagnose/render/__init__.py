"""Every document in every format that suits it: `write(document, "markdown", Options())`.

A document is what a verb made. A builder of `reports/` makes it a report, a writer of `writers/` writes that; neither knows of the other.
`formats_for` and `extensions_for` name what a kind of document can be written as; both are cheap, so that the command line starts quickly.
"""

from __future__ import annotations

from pathlib import PurePath

from diagnose.render.reports import KINDS, DocumentKind
from diagnose.render.writers import Options, TypedFiles, Writer, writers

__all__ = [
    "Options",
    "TypedFiles",
    "extensions_for",
    "format_of",
    "formats_for",
    "kind_of",
    "part_names",
    "section_names",
    "table_names",
    "write",
]

WRITERS = writers()


def kind_of(document: object) -> str:
    """The kind of a document, by name: `diagnosis`, `comparison`, `check` and so on."""
    return next(kind.name for kind in KINDS if kind.type == type(document).__name__)


def formats_for(kind: str) -> tuple[str, ...]:
    """The formats that documents of this kind can be written in, by name, `text` first."""
    return tuple(writer.name for writer in _suiting(kind))


def extensions_for(kind: str) -> tuple[str, ...]:
    """File extensions that name a format of this kind of document, with their dot."""
    return tuple(extension for writer in _suiting(kind) for extension in writer.extensions)


def format_of(path: PurePath, kind: str) -> str | None:
    """The format that a file's extension names for this kind of document; None where it names none."""
    known = [
        (extension, writer.name) for writer in _suiting(kind) for extension in writer.extensions if path.name.lower().endswith(extension)
    ]
    return max(known, key=lambda pair: len(pair[0]))[1] if known else None


def write(document: object, format_name: str, options: Options | None = None) -> str:
    """The document as text in a format of `formats_for(kind_of(document))`. Raises KeyError for another format."""
    kind, shown = kind_of(document), options or Options()
    writer = next((writer for writer in _suiting(kind) if writer.name == format_name), None)
    if writer is None:
        raise KeyError(format_name)
    match writer.takes:
        case "report":
            report = _kind(kind).builder().report
            return writer.write(report(document, shown.typed) if _kind(kind).commands else report(document), shown)
        case "issues":
            return writer.write(_kind(kind).builder().issues(document, shown), shown)
        case "timeline" | "tables":
            return writer.write(document, shown)
        case "json" if _kind(kind).json == "builder":
            return writer.write(_kind(kind).builder().json(document), shown)
        case "json":
            from diagnose.document.encoding import encode  # noqa: PLC0415 - only now, so that the command line starts quickly

            return writer.write(encode(document).decode(), shown)


def table_names(kind: str) -> tuple[str, ...]:
    """The names of the tables that a kind of document can be written as, one by one; none where it has none."""
    from diagnose.render.writers.csv import tables_of  # noqa: PLC0415 - so that the command line starts quickly

    return tables_of(_kind(kind).type) if _kind(kind).tables else ()


def part_names(kind: str) -> tuple[str, ...]:
    """The names of all parts that reports of a kind may have, in order, known before there is a document; numbered ones without number."""
    return tuple(_kind(kind).builder().PARTS)


def section_names(document: object) -> tuple[str, ...]:
    """The names of the parts of a document's report, in order."""
    report = _kind(kind_of(document)).builder().report(document)
    return tuple(dict.fromkeys(name for block in report.blocks if block.least == 0 for name in sorted(block.names)))


def _kind(name: str) -> DocumentKind:
    return next(kind for kind in KINDS if kind.name == name)


def _suiting(kind: str) -> list[Writer]:
    """The writers whose input documents of this kind have."""
    offered = _kind(kind)
    gives = {"report": True, "issues": offered.issues, "json": bool(offered.json), "timeline": offered.timeline, "tables": offered.tables}
    return [writer for writer in WRITERS if gives[writer.takes]]
