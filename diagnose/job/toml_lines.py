"""Where the keys of a TOML text stand: the standard library reads TOML without places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

Path = tuple[str, ...]
# What can hold a line break, a bracket or a sign of equality without meaning it; longest first.
_SKIPPED = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT = re.compile(rf"[ \t]*(?:(?P<table>\[{{1,2}})[ \t]*(?P<header>{_PATH})[ \t]*\]{{1,2}}|(?P<key>{_PATH})[ \t]*=)")
_TOKEN = re.compile(rf"(?P<skip>{_SKIPPED.pattern})|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)", re.DOTALL)


def toml_lines(text: str) -> Mapping[Path, int]:
    """The line, from 1, of every key and table in a text that tomllib accepts; of an array of tables the first. Keys inside an inline table are not told apart from it."""
    found: dict[Path, int] = {}
    table: Path = ()
    at, line = 0, 1
    while at < len(text):
        match = _STATEMENT.match(text, at)
        if match is not None:
            path = _parts(match["header"] or match["key"])
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


def _parts(path: str) -> Path:
    """The keys of a dotted path, without quotes."""
    return tuple(_plain(part) for part in re.findall(_PART, path))


def _plain(part: str) -> str:
    if part[0] == '"':
        return str(tomllib.loads(f"x = {part}")["x"])
    return part[1:-1] if part[0] == "'" else part
