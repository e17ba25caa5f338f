"""Tables of renderers: the `render` function of each module of a package, imported at its first call, so that the command line starts quickly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from diagnose.render.options import Options

PAGES = ("text", "json", "markdown", "html")
FOR_RUNNERS = ("github", "junit", "sarif")
Renderer = Callable[[Any, Options], str]


def pages(package: str) -> Mapping[str, Renderer]:
    """The outputs for people and programs, each a module of `package` with the format's name."""
    return MappingProxyType({name: _renderer(f"{package}.{name}") for name in PAGES})


def for_runners(kind: str) -> Mapping[str, Renderer]:
    """The outputs for CI runners, from the checks that `diagnose.render.reports.KIND.issues` makes of a document."""
    return MappingProxyType({name: _checked(kind, name) for name in FOR_RUNNERS})


def _renderer(module: str) -> Renderer:
    def render(document: Any, options: Options) -> str:
        text: str = import_module(module).render(document, options)
        return text

    return render


def _checked(kind: str, format_: str) -> Renderer:
    def render(document: Any, options: Options) -> str:
        checks = import_module(f"diagnose.render.reports.{kind}.issues").report(document, options)
        text: str = import_module(f"diagnose.render.writers.{format_}").render(checks, options)
        return text

    return render
