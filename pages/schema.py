"""The JSON Schemas of documents: types from the code, a description of every field from what the code says beside it.

A field's description is its name in words, with the unit that its ending tells, and the comment on its line.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

import msgspec

from diagnose.model.vocabulary import CAPTURE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNITS = {"_ns": "in integer nanoseconds", "_share": "as a share, 0 to 1", "_rate": "as a share, 0 to 1", "_bytes": "in bytes"}
_CODE = re.compile(r"^(?:noqa|type:)")


def json_schema(document: type, *, walls: Sequence[str], job_formats: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a document's class; `walls`: the ids of all walls, `job_formats`: the names of all formats of job files."""
    wall = {"enum": sorted(walls)}
    words: dict[str, dict[str, Any]] = {
        "walls": wall,
        "topics": {"anyOf": [wall, {"enum": [CAPTURE]}]},
        "job formats": {"enum": sorted(job_formats)},
    }
    made: dict[str, Any] = _filled(msgspec.json.schema(document), words)
    told = {struct.__name__: _fields(struct) for struct in _structs(document)}
    for name, definition in made.get("$defs", {}).items():
        if "description" in definition:  # a docstring, whose indent msgspec keeps before 0.23
            definition["description"] = inspect.cleandoc(definition["description"])
        for field, value in definition.get("properties", {}).items():
            if isinstance(value, dict):  # a description that the type has already stays
                said = told.get(name, {}).get(field) or _in_words(field)
                definition["properties"][field] = {"description": said, **value}
    version = getattr(sys.modules[document.__module__], "SCHEMA", document.__name__)
    return {"$schema": DIALECT, "$id": f"urn:diagnose:schema:{version}", "title": version, **made}


def _in_words(field: str) -> str:
    """`blocking_transport_ns` → "Blocking transport, in integer nanoseconds"."""
    unit = next((text for ending, text in _UNITS.items() if field.endswith(ending)), "")
    plain = "how many" if field == "n" else field.removesuffix("_ns").removesuffix("_bytes").strip("_").replace("_", " ")
    return f"{plain[:1].upper()}{plain[1:]}{f', {unit}' if unit else ''}."


def _structs(document: type) -> Iterator[type]:
    """Every record that a document is made of."""
    seen: set[type] = set()
    waiting: list[Any] = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            if one not in seen:
                seen.add(one)
                yield one
                waiting += [field.type for field in msgspec.structs.fields(one)]
        else:
            waiting += list(getattr(one, "__args__", ()))


def _fields(struct: type) -> dict[str, str]:
    """What the source says beside each field of a record and of those that it extends, by the field's name in JSON."""
    told: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base in (object, msgspec.Struct) or not (isinstance(base, type) and issubclass(base, msgspec.Struct)):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        comments = {
            token.start[0]: token.string.lstrip("# ").strip()
            for token in tokenize.generate_tokens(StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        body = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)).body
        for node in body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                said = comments.get(node.end_lineno or node.lineno) or comments.get(node.lineno, "")
                if said and not _CODE.match(said):
                    told[node.target.id] = f"{_in_words(node.target.id).rstrip('.')}: {said}"
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {names.get(name, name): said for name, said in told.items()}


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
