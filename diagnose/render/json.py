"""The diagnosis as its own JSON document, schema `diagnosis/1`."""

from __future__ import annotations

from diagnose.document.diagnosis import Diagnosis, encode
from diagnose.render.options import Options


def render(document: Diagnosis, _options: Options) -> str:
    """The document as `diagnose.document.diagnosis.encode` writes it; `decode` reads it back."""
    return encode(document).decode("utf-8")
