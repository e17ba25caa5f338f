"""The comparison as its own JSON document, schema `comparison/1`."""

from __future__ import annotations

from diagnose.document.comparison import Comparison, encode
from diagnose.render.options import Options


def render(document: Comparison, _options: Options) -> str:
    """The document as `diagnose.document.comparison.encode` writes it; `decode` reads it back."""
    return encode(document).decode("utf-8")
