"""One file per output of a Comparison: each renders it, and nothing but it, as text. The modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render.options import Options
from diagnose.render.registry import for_runners, pages

if TYPE_CHECKING:
    from diagnose.document.comparison import Comparison

    Renderer = Callable[[Comparison, Options], str]

__all__ = ["RENDERERS", "Options", "Renderer"]

RENDERERS: Mapping[str, Renderer] = MappingProxyType({**pages(__name__), **for_runners("comparison")})
