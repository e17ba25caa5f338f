"""JSON Schemas of the documents, made from their classes; what the data decides (which walls and formats there are) is filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from diagnose.model.vocabulary import CAPTURE


def json_schema(document: type, *, walls: Sequence[str], job_formats: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a document's class; `walls`: the ids of all walls, `job_formats`: the names of all formats of job files."""
    wall = {"enum": sorted(walls)}
    words: dict[str, dict[str, Any]] = {
        "walls": wall,
        "topics": {"anyOf": [wall, {"enum": [CAPTURE]}]},
        "job formats": {"enum": sorted(job_formats)},
    }
    filled: dict[str, Any] = _filled(msgspec.json.schema(document), words)
    return filled


def _filled(value: Any, words: Mapping[str, dict[str, Any]]) -> Any:
    """`value` with the words of the data wherever a type is marked as one of them."""
    if isinstance(value, list):
        return [part for item in value for part in _choices(_filled(item, words))]
    if not isinstance(value, dict):
        return value
    return words[value["x-words"]] if "x-words" in value else {key: _filled(item, words) for key, item in value.items()}


def _choices(value: Any) -> list[Any]:
    """A choice inside a list of choices is part of it."""
    return list(value["anyOf"]) if isinstance(value, dict) and value.keys() == {"anyOf"} else [value]
