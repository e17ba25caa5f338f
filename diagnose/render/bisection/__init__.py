"""One file per output of a Bisection: each renders it, and nothing but it, as text. The modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render import EXTENSIONS as EVERY_EXTENSION
from diagnose.render.options import Options
from diagnose.render.registry import pages

if TYPE_CHECKING:
    from diagnose.document.bisection import Bisection

    Renderer = Callable[[Bisection, Options], str]

__all__ = ["EXTENSIONS", "RENDERERS", "Options", "Renderer"]

RENDERERS: Mapping[str, Renderer] = pages(__name__)
EXTENSIONS: Mapping[str, str] = MappingProxyType({ending: name for ending, name in EVERY_EXTENSION.items() if name in RENDERERS})
