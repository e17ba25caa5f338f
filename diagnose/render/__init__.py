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


RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        "text": _renderer("text"),
        "json": _renderer("json"),
        "markdown": _renderer("markdown"),
        "html": _renderer("html"),
    }
)
EXTENSIONS: Mapping[str, str] = MappingProxyType({".txt": "text", ".json": "json", ".md": "markdown", ".html": "html"})
