"""Files of frameworks that no reader knows: told apart by their keys, imports and programs, so that none is taken for what it is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from diagnose.errors import JobFileError
from diagnose.job.model import job_error
from diagnose.job.text import JobText
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.settings import ForeignJob


def refuse_foreign(text: JobText) -> None:
    """Raise JobFileError for a tree of keys that is a configuration of such a framework: plain YAML would take any map."""
    try:
        tree = text.yaml or text.toml
    except JobFileError:  # no tree of keys: a reader knows the text otherwise, or says what is wrong with it
        trees = list(_documents(text))
    else:
        trees = [] if tree is None else [tree.data]
    wanted = [(one, [key.partition("=") for key in keys]) for one in text.table.foreign for keys in one.keys]
    held = (one for data in trees for one, keys in wanted if all(_holds(data, path.split("."), start) for path, _, start in keys))
    found = next(held, None)
    if found is not None:
        raise refusal(text, found)


def _documents(text: JobText) -> Iterator[Mapping[Any, object]]:
    """The maps in a file of several YAML documents, as Kubernetes takes them; nothing of a file that is none."""
    parts = re.split(r"^---[ \t]*(?:#.*)?$", text.text, flags=re.MULTILINE) if text.syntax == "yaml" else []
    for part in parts[:_MOST_DOCUMENTS] if len(parts) > 1 else []:
        try:
            data = strict_yaml.load(part)
        except (strict_yaml.YamlError, ValueError):
            return
        if isinstance(data, Mapping):
            yield data


_MOST_DOCUMENTS = 20
_NAMES = re.compile(r"\s*(export +)?\w+=(['\"]?)\w+\2\s*")  # a variable that holds one bare word, which is a name as a rule


def refusal(text: JobText, found: ForeignJob) -> JobFileError:
    """The error for a file of another framework."""
    return job_error(text.source, f"is of {found.title}, which is not read as a job file", found.advice)


def program_of(text: JobText) -> ForeignJob | None:
    """The framework that a script starts, or that a Python file imports; None where it is none of them."""
    if text.python is not None:
        names = tuple(_imported(text.python))
        return next(
            (one for one in text.table.foreign if any(f"{name}.".startswith(f"{module}.") for name in names for module in one.modules)),
            None,
        )
    if text.syntax != "shell":
        return None
    lines = [re.split(r"[\s\"'=;]+", line) for line in text.lines if not line.startswith("#") and not _NAMES.fullmatch(line)]
    started = [
        word for line in lines for before, word in pairwise(["", *line]) if not before.startswith("--")
    ]  # an option's value starts nothing
    return next((one for one in text.table.foreign if one.programs and any(re.fullmatch(one.programs, word) for word in started)), None)


def gathered(text: JobText) -> ForeignJob | None:
    """The framework whose package a script names that starts no training which is known, and gathers flags in variables."""
    if text.syntax != "shell" or text.command is None or text.command.program:
        return None
    words = [
        set(re.split(r"[./]", word))
        for line in text.lines
        if not line.startswith("#")
        for word in re.split(r"[\s\"'=;]+", line)
        if "." in word
    ]
    return next((one for one in text.table.foreign if one.programs and any(parts & set(one.modules) for parts in words)), None)


def started(text: JobText) -> ForeignJob | None:
    """The framework whose own package, or else program, a script's command starts, whatever arguments it has."""
    program = text.command.program if text.syntax == "shell" and text.command is not None else ""
    parts = set(re.split(r"[./]", program)) if re.search(r"[./]", program) else set()  # a bare word may be anyone's program
    if not parts:
        return None
    named = (one for one in text.table.foreign if one.programs and re.fullmatch(one.programs, program))
    return next((one for one in named if not one.modules or parts & set(one.modules)), None)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _holds(node: object, path: list[str], start: str) -> bool:
    """Whether a value stands at a path of keys, and begins with `start`."""
    if not path:
        return str(node).startswith(start)
    if not isinstance(node, Mapping):
        return False
    first, *rest = path
    if first == "*":
        return any(_holds(value, rest, start) for value in node.values())
    return first in node and _holds(node[first], rest, start)
