"""JSON Schemas of the documents, made from their classes; what the data decides (which walls there are) is filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from diagnose.model.vocabulary import CAPTURE


def json_schema(document: type, walls: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a document's class; `walls`: the ids of all walls."""
    filled: dict[str, Any] = _filled(msgspec.json.schema(document), {"walls": sorted(walls), "topics": sorted((*walls, CAPTURE))})
    return filled


def _filled(value: Any, words: Mapping[str, Sequence[str]]) -> Any:
    """`value` with an enum wherever a type is marked as holding words of a vocabulary."""
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    if not isinstance(value, dict):
        return value
    if "x-words" in value:
        return {"enum": [*words[value["x-words"]]]}
    options = value.get("anyOf", [])
    if any("x-words" in option for option in options):  # words or null: one list, as for any other enum
        known = next(words[option["x-words"]] for option in options if "x-words" in option)
        return {**{key: item for key, item in value.items() if key != "anyOf"}, "enum": [*known, None]}
    return {key: _filled(item, words) for key, item in value.items()}
