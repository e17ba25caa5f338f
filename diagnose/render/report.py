"""The neutral parts of which every report is made, whatever its document and its medium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "number", "name"]  # a name is shortened where it does not fit


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `weak` columns are left out where there is little room."""

    label: str
    kind: Kind = "text"
    weak: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: as many cells as the table has columns. `indent` nests the first cell below the row above."""

    cells: tuple[str, ...]
    indent: int = 0
    strong: bool = False
    bar: float | None = None  # share of the longest bar of the table, 0..1
    colour: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled table. `note` explains its terms; `empty` is said instead when it has no rows; `copy` is a text to copy, below it.

    `whole`: its rows were chosen already, so that no output cuts it.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    empty: str = "nothing to show"
    copy: str = ""
    whole: bool = False


def columns(*labels: str) -> tuple[Column, ...]:
    """Columns from labels: `#` before a label makes numbers, `$` names, a `?` after it a weak column."""
    kinds: dict[str, Kind] = {"#": "number", "$": "name"}
    return tuple(
        Column(label=label.lstrip("#$").rstrip("?"), kind=kinds.get(label[0], "text"), weak=label.endswith("?")) for label in labels
    )


def rows_of(cells: Sequence[Sequence[str]]) -> tuple[Row, ...]:
    """Plain rows from their cells."""
    return tuple(Row(cells=tuple(row)) for row in cells)
