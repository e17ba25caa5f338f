"""How every document is written as JSON."""

from __future__ import annotations

import msgspec


def encode(document: object) -> bytes:
    """The document as JSON bytes that people can read, fields in their order, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
