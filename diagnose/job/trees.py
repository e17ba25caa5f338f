"""Job files that are trees of keys, YAML or TOML: their content, where each key stands, and their values by dotted key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.job.model import Leaf, job_error, type_name, wrong_type
from diagnose.knowledge import strict_yaml

KeyPath = tuple[str, ...]
Lines = Mapping[KeyPath, int]  # the line of what stands at a path of keys, from 1


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The content of a tree of keys without its `rules`, which are the rule folders that it names."""

    data: Mapping[Any, object]
    lines: Lines
    rules: tuple[Path, ...] = ()


def yaml_tree(text: str, source: str, folder: Path | None) -> Tree:
    """A YAML job file; its rule folders are relative to `folder`. Raises JobFileError."""
    try:
        data = strict_yaml.load(text)
    except (strict_yaml.YamlError, ValueError) as error:  # a scalar that YAML takes for a date or a number and Python does not
        raise job_error(source, f"is not valid YAML: {error}", "Correct the YAML.") from error
    if not isinstance(data, dict) or not data:
        raise job_error(
            source,
            f"must hold a map of settings, but holds {type_name(data)}",
            "Give the job's configuration as keys and values, as flags, or as the command that started it.",
        )
    rules, data = _rules(data, source, folder)
    return Tree(data=data, lines=strict_yaml.lines(text), rules=rules)


def toml_tree(text: str, source: str) -> Tree:
    """A TOML job file. Raises JobFileError."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise job_error(source, f"is not valid TOML: {str(error)[:200]}", "Correct the TOML.") from error
    return Tree(data=data, lines=toml_lines(text))


def _rules(data: Mapping[object, object], source: str, folder: Path | None) -> tuple[tuple[Path, ...], dict[object, object]]:
    """The rule folders that the file names, relative to it, and the rest of the file."""
    rest = {key: value for key, value in data.items() if key != "rules"}
    given = data.get("rules")
    named = [given] if isinstance(given, str) else given
    if named is None:
        return (), rest
    if not isinstance(named, list) or not all(isinstance(one, str) and one for one in named):
        raise wrong_type(source, "rules", "path or list of paths", given)
    return tuple((folder or Path()) / one for one in named), rest


def line_of(lines: Lines, path: KeyPath) -> int | None:
    """The line of what stands at `path`, or of the nearest thing around it that stands in the file as such."""
    return next((lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines), None)


# --- values by dotted key ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Level:
    """Where `_walk` stands: the key to look up so far, the key as the file shows it, and the keys in the file."""

    path: str = ""
    shown: str = ""
    keys: KeyPath = ()


def leaves_of(node: Mapping[Any, object], lines: Lines, *, below: KeyPath = ()) -> Iterator[Leaf]:
    """Dotted keys and plain values of a nested map that stands at the path `below` in its file."""
    return _walk(node, _Level(keys=below), lines)


def _walk(node: Mapping[Any, object], level: _Level, lines: Lines) -> Iterator[Leaf]:
    """Dotted keys and plain values; levels that only wrap others are left out of the key to look up."""
    path = level.path
    wraps_config = str(node.get("_target_", "")).endswith("from_dict")
    for key, value in node.items():
        wrapper = (path == "model" and key == "transformer") or (wraps_config and key == "config_dict")
        inner = path if wrapper else f"{path}.{key}" if path else str(key)
        below = _Level(path=inner, shown=f"{level.shown}.{key}" if level.shown else str(key), keys=(*level.keys, str(key)))
        plain = plain_value(value)
        if isinstance(plain, dict):
            yield from _walk(plain, below, lines)
        else:
            of_wrapper = key == "_target_" and inner != below.shown  # the class of model.transformer is not that of the model
            yield Leaf(
                key=below.shown if of_wrapper else inner,
                shown=below.shown,
                value=plain,
                known=key in ("_target_", "_call_"),
                line=line_of(lines, below.keys),
            )


def plain_value(value: object) -> object:
    """Enums, precisions and partials as the plain names or values that they stand for; anything else as it is."""
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "_name_" in value:
        return value["_name_"]
    if "_target_" in value and (value.get("_call_") is False or "_partial_" in value):
        return str(value["_target_"]).rpartition(".")[2]
    arguments = value.get("_args_")
    if "_target_" in value and isinstance(arguments, list):
        return arguments[0] if len(arguments) == 1 else arguments
    return value


# --- lines of TOML: the standard library reads it without them ---------------------------------------------------------

# What can hold a line break, a bracket or a sign of equality without meaning it; longest first.
_SKIPPED = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT = re.compile(rf"[ \t]*(?:(?P<table>\[{{1,2}})[ \t]*(?P<header>{_PATH})[ \t]*\]{{1,2}}|(?P<key>{_PATH})[ \t]*=)")
_TOKEN = re.compile(rf"(?P<skip>{_SKIPPED.pattern})|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)", re.DOTALL)


def toml_lines(text: str) -> Lines:
    """The line of every key and table in a text that tomllib accepts; of an array of tables the first.

    Keys inside an inline table are not told apart from it.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    at, line = 0, 1
    while at < len(text):
        match = _STATEMENT.match(text, at)
        if match is not None:
            path = _path(match["header"] or match["key"])
            table = path if match["table"] else table
            found.setdefault(path if match["table"] else (*table, *path), line)
        end = _statement_end(text, at if match is None else match.end())
        line += text.count("\n", at, end)
        at = end
    return found


def _statement_end(text: str, at: int) -> int:
    """Index behind the line break that ends the statement which `at` stands in."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["end"] and depth <= 0:
            return token.end()
    return len(text)


def _path(dotted: str) -> KeyPath:
    """The keys of a dotted path, without quotes."""
    return tuple(_unquoted(part) for part in re.findall(_PART, dotted))


def _unquoted(part: str) -> str:
    if part[0] == '"':
        return str(tomllib.loads(f"x = {part}")["x"])
    return part[1:-1] if part[0] == "'" else part
