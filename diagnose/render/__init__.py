"""One file per output: each renders a Diagnosis, and nothing but a Diagnosis, as text.

A new output is one module with a `render` function and one line in `RENDERERS`. The modules are imported when they are used, so
that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render.options import Options

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis

    Renderer = Callable[[Diagnosis, Options], str]

__all__ = ["EXTENSIONS", "RENDERERS", "Options", "Renderer"]


def _renderer(module: str) -> Renderer:
    """The `render` function of one module of this package, imported at its first call."""

    def render(document: Diagnosis, options: Options) -> str:
        found: Renderer = import_module(f"diagnose.render.{module}").render
        return found(document, options)

    return render


def _for_runners(module: str) -> Renderer:
    """The `render` function of one module of `issues`, given the checks of a diagnosis."""

    def render(document: Diagnosis, options: Options) -> str:
        checks = import_module("diagnose.render.issues.of_diagnosis").report(document, options)
        text: str = import_module(f"diagnose.render.issues.{module}").render(checks, options)
        return text

    return render


RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        **{name: _renderer(name) for name in ("text", "json", "markdown", "html")},
        **{name: _for_runners(name) for name in ("github", "junit", "sarif")},
    }
)
EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {".txt": "text", ".json": "json", ".md": "markdown", ".html": "html", ".xml": "junit", ".sarif": "sarif"}
)
