"""Every document in every format that suits it: `write(document, "markdown", Options())`.

A document is what a verb made: a Diagnosis, Comparison or Bisection, a CheckReport or PatchReport, the stored Baselines, an Explanation, the
answers about kernel names, a Rulebook (its list). `formats_for` and `extensions_for` name what a kind of document can be written as; both
are cheap, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from diagnose.render.options import Options
from diagnose.render.registry import for_runners, pages

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis

    Renderer = Callable[[Diagnosis, Options], str]

__all__ = ["EXTENSIONS", "RENDERERS", "Options", "Renderer", "extensions_for", "format_of", "formats_for", "kind_of", "write"]

RENDERERS: Mapping[str, Renderer] = MappingProxyType({**pages(__name__), **for_runners("diagnosis")})
EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {".txt": "text", ".json": "json", ".md": "markdown", ".html": "html", ".xml": "junit", ".sarif": "sarif"}
)

_KINDS = {
    "Diagnosis": "diagnosis",
    "Comparison": "comparison",
    "Bisection": "bisection",
    "CheckReport": "check",
    "PatchReport": "patch",
    "Baselines": "baselines",
    "Explanation": "explanation",
    "KernelAnswers": "kernels",
    "Rulebook": "rules",
}
_FEW = ("text", "json")


def kind_of(document: object) -> str:
    """The kind of a document: `diagnosis`, `comparison`, `bisection`, `check`, `patch`, `baselines`, `explanation`, `kernels` or `rules`."""
    return _KINDS[type(document).__name__]


def formats_for(kind: str) -> tuple[str, ...]:
    """The formats that documents of this kind can be written in, by name, `text` first."""
    if kind in ("diagnosis", "comparison"):
        return tuple(RENDERERS)
    if kind == "explanation":
        return ("text",)
    return ("text", "json", "markdown", "html") if kind == "bisection" else _FEW


def extensions_for(kind: str) -> tuple[str, ...]:
    """File extensions that name a format of this kind of document, with their dot."""
    return tuple(ending for ending, name in EXTENSIONS.items() if name in formats_for(kind))


def format_of(path: PurePath, kind: str) -> str | None:
    """The format that a file's extension names for this kind of document; None where it names none."""
    return EXTENSIONS.get(path.suffix.lower()) if path.suffix.lower() in extensions_for(kind) else None


def write(document: Any, format_name: str, options: Options | None = None) -> str:
    """The document as text in a format of `formats_for(kind_of(document))`. Raises KeyError for another format."""
    from importlib import import_module  # noqa: PLC0415

    kind, shown = kind_of(document), options or Options()
    if format_name not in formats_for(kind):
        raise KeyError(format_name)
    text: str
    match kind:
        case "diagnosis":
            text = RENDERERS[format_name](document, shown)
        case "comparison" | "bisection":
            text = import_module(f"diagnose.render.{kind}").RENDERERS[format_name](document, shown)
        case "check" | "patch":
            from diagnose.render import check, patch  # noqa: PLC0415

            text = check.json(document) if format_name == "json" else (check if kind == "check" else patch).text(document)
        case "baselines":
            from diagnose.render import baselines  # noqa: PLC0415

            text = baselines.json(document.entries) if format_name == "json" else baselines.text(document.entries, shown)
        case _:
            from diagnose.render import explain  # noqa: PLC0415

            text = explain.written(document, format_name)
    return text
