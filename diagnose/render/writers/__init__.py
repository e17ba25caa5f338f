"""One writer per medium: each module of this package that holds a `WRITER` is one, and nothing else names it.

A writer takes a report (then it writes every document), the issues that a document holds for CI, its JSON, or, for the step that it shows
(`timeline`) or its lists (`tables`), the document itself. Modules stay cheap to import: what is heavy is imported when something is
written, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from diagnose.model.vocabulary import Level

Takes = Literal["report", "issues", "json", "timeline", "tables"]
NARROWEST, WIDEST = 60, 140  # beyond these a terminal's width no longer helps reading


class TypedFiles(NamedTuple):
    """The files of a run as the user named them, from where he stands: for commands that he may paste. `command`: that of `--command`."""

    traces: tuple[str, ...] = ()
    job: str | None = None
    command: str | None = None


class Options(NamedTuple):
    """What a caller may choose about an output's looks; no choice changes a number.

    `width` in characters and `color` are for the terminal; the other outputs ignore them.

    `detail`: how much a terminal gets of a diagnosis or comparison: 0 the answer on one screen, 1 every finding too (all of a comparison),
    2 every table; `sections`: these parts alone.

    `light`: a page without the script that zooms its figures. `table`: the one to write, of those of `table_names`.

    `job_file` (its path within the repository) and `fail_on` (the severity from which a finding fails) are for outputs that a CI runner
    reads.

    `typed` is for a screen alone: what is written to files is made from the document, and says nothing of anybody's folders.
    """

    width: int = 100
    color: bool = False
    job_file: str = ""
    fail_on: Level | None = None
    detail: int = 0
    sections: tuple[str, ...] = ()
    light: bool = False
    table: str = ""
    typed: TypedFiles | None = None


class Writer(NamedTuple):
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
    names = {path.stem for path in Path(__file__).parent.iterdir() if path.suffix in ("", ".py") and not path.name.startswith(("_", "."))}
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(sorted((module.WRITER for module in modules), key=lambda writer: (writer.place, writer.name)))
