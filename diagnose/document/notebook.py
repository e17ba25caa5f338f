"""Documents in a notebook or a program: written out by their own methods.

What writes them lies on a higher floor and is imported by name when it is first used, as the package's own public names are.
"""

from __future__ import annotations

from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any


class Writable:
    """A document that can be written out: `to_html()`, `to_markdown()`, `to_json()`, `to_text()`, `save(path)`."""

    __slots__ = ()

    def to_html(self) -> str:
        """The page, in one file."""
        return self._written("html")

    def to_markdown(self) -> str:
        """As for an issue or a pull request."""
        return self._written("markdown")

    def to_json(self) -> str:
        """The document itself."""
        return self._written("json")

    def to_text(self, *, width: int = 100, detail: int = 0) -> str:
        """As a terminal of `width` columns shows it; `detail` 1: every finding too, 2: every table."""
        return self._written("text", width=width, detail=detail)

    def to_csv(self, table: str) -> str:
        """One list of the document, such as `findings` or `budget.per_step`. Raises KeyError for a table that it has not."""
        return self._written("csv", table=table)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a file whose extension names the format, a CSV file's name its table; an existing one only with `force`.

        Raises OutputError, UsageError.
        """
        from diagnose.document.files import write_file  # noqa: PLC0415 - imports the documents
        from diagnose.errors import UsageError  # noqa: PLC0415

        render = _render()
        target = Path(path)
        format_name = render.format_of(target, render.kind_of(self))
        if format_name is None:
            extensions = " ".join(sorted(render.extensions_for(render.kind_of(self))))
            raise UsageError(
                f"The extension of {target} names no format.", effect="Nothing was written.", next_step=f"Use one of {extensions}."
            )
        tables = render.table_names(render.kind_of(self)) if format_name == "csv" else (target.stem,)
        if target.stem not in tables:
            raise UsageError(
                f"{target.name} names no table.", effect="Nothing was written.", next_step=f"Call it {', '.join(tables)} (.csv)."
            )
        write_file(target, self._written(format_name, table=target.stem), force=force)
        return target

    def _written(self, format_name: str, **options: Any) -> str:
        render = _render()
        text: str = render.write(self, format_name, render.Options(**options))
        return text

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer on one screen."""
        return f"<pre>{escape(self.to_text())}</pre>"


def _render() -> Any:
    return import_module("diagnose.render")
