"""Documents as JSON, fields in their order."""

from __future__ import annotations

import msgspec


def json(document: object) -> str:
    """The document as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode("utf-8") + "\n"
