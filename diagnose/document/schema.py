"""JSON Schemas of the documents, made from their classes; what the data decides (which walls there are) is filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from diagnose.model.vocabulary import CAPTURE


def json_schema(document: type, walls: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a document's class; `walls`: the ids of all walls."""
    filled: dict[str, Any] = _filled(msgspec.json.schema(document), {"enum": sorted(walls)})
    return filled


def _filled(value: Any, wall: dict[str, Any]) -> Any:
    """`value` with `wall` wherever a type is marked as the name of a wall; a topic is that, or the capture."""
    if isinstance(value, list):
        return [part for item in value for part in _choices(_filled(item, wall))]
    if not isinstance(value, dict):
        return value
    words = value.get("x-words")
    if words is not None:
        return wall if words == "walls" else {"anyOf": [wall, {"enum": [CAPTURE]}]}
    return {key: _filled(item, wall) for key, item in value.items()}


def _choices(value: Any) -> list[Any]:
    """A choice inside a list of choices is part of it."""
    return list(value["anyOf"]) if isinstance(value, dict) and value.keys() == {"anyOf"} else [value]
