"""A document as its own JSON, which programs read and `diagnose render` reads back."""

from __future__ import annotations

from diagnose.render.writers import Options, Writer


def write(text: str, _options: Options) -> str:
    """The JSON as the document's builder makes it."""
    return text


WRITER = Writer(name="json", extensions=(".json",), takes="json", place=2, write=write)
