"""One file per output of a Comparison: each renders it, and nothing but it, as text. The modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render.options import Options

if TYPE_CHECKING:
    from diagnose.comparison import Comparison

    Renderer = Callable[[Comparison, Options], str]

__all__ = ["RENDERERS", "Options", "Renderer"]


def _renderer(module: str) -> Renderer:
    """The `render` function of one module of this package, imported at its first call."""

    def render(document: Comparison, options: Options) -> str:
        found: Renderer = import_module(f"diagnose.render.comparison.{module}").render
        return found(document, options)

    return render


def _for_runners(module: str) -> Renderer:
    """The `render` function of one module of `issues`, given the checks of a comparison."""

    def render(document: Comparison, options: Options) -> str:
        checks = import_module("diagnose.render.issues.of_comparison").report(document, options)
        text: str = import_module(f"diagnose.render.issues.{module}").render(checks, options)
        return text

    return render


RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        **{name: _renderer(name) for name in ("text", "json", "markdown", "html")},
        **{name: _for_runners(name) for name in ("github", "junit", "sarif")},
    }
)
