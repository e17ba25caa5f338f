"""The bisection as its own JSON document, schema `bisect/1`."""

from __future__ import annotations

from diagnose.document.bisection import Bisection, encode
from diagnose.render.options import Options


def render(document: Bisection, _options: Options) -> str:
    """The document as `diagnose.document.bisection.encode` writes it; `decode` reads it back."""
    return encode(document).decode("utf-8")
