"""One file per output of a Bisection: each renders it, and nothing but it, as text. The modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render.options import Options

if TYPE_CHECKING:
    from diagnose.bisection import Bisection

    Renderer = Callable[[Bisection, Options], str]

__all__ = ["EXTENSIONS", "RENDERERS", "Options", "Renderer"]


def _renderer(module: str) -> Renderer:
    """The `render` function of one module of this package, imported at its first call."""

    def render(document: Bisection, options: Options) -> str:
        found: Renderer = import_module(f"diagnose.render.bisection.{module}").render
        return found(document, options)

    return render


RENDERERS: Mapping[str, Renderer] = MappingProxyType({name: _renderer(name) for name in ("text", "json", "markdown", "html")})
EXTENSIONS: Mapping[str, str] = MappingProxyType({".txt": "text", ".json": "json", ".md": "markdown", ".html": "html"})
