"""One file per output: each renders a Diagnosis, and nothing but a Diagnosis, as text.

A new output is one module with a `render` function and its name in `registry`. The modules are imported when they are used, so
that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from diagnose.render.options import Options
from diagnose.render.registry import for_runners, pages

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis

    Renderer = Callable[[Diagnosis, Options], str]

__all__ = ["EXTENSIONS", "RENDERERS", "Options", "Renderer"]

RENDERERS: Mapping[str, Renderer] = MappingProxyType({**pages(__name__), **for_runners("diagnosis")})
EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {".txt": "text", ".json": "json", ".md": "markdown", ".html": "html", ".xml": "junit", ".sarif": "sarif"}
)
