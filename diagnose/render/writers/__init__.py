"""One writer per medium: each module of this package that holds a `WRITER` is one, and nothing else names it.

A writer takes a report (then it writes every document), the issues that a document holds for CI, or the document itself. Modules stay
cheap to import: what is heavy is imported when something is written, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

from diagnose.render.options import Options

Takes = Literal["report", "issues", "json"]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A format: its name on the command line, the file extensions that stand for it, what it takes of a document, and how it writes that.

    `place` orders lists of formats that people read.
    """

    name: str
    extensions: tuple[str, ...]
    takes: Takes
    place: int
    write: Callable[[Any, Options], str]


def writers() -> tuple[Writer, ...]:
    """All writers, in the order in which people read them."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if not module.name.startswith("_")]
    return tuple(sorted((module.WRITER for module in modules), key=lambda writer: (writer.place, writer.name)))
