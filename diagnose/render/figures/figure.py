"""A figure described once, for no medium: axes, marks, what is said of each datum. `svg` and `plotly` draw it.

Texts may come from a trace: each drawer makes them harmless. Builders shorten them by `label`. Colours are `#rrggbb`, never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from diagnose.render import units

Shape = Literal["", "circle", "square", "diamond", "triangle", "ring", "cross"]
EVEN = "#f2f2f2"  # no difference, on a light page
LONGEST_LABEL = 90
ROW, PLAIN_HEIGHT = 28, 280  # heights in pixels: of one named row; of a figure whose y axis is a number


def label(text: str) -> str:
    """A text from a trace, short and on one line."""
    return units.shorten(text, LONGEST_LABEL)


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds, exact to the nanosecond."""
    return round(ns / 1e6, 6)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Numbers from `low` to `high`, or names that stand at 0, 1, 2 …: from left to right, or from the top down. `whole`: only whole numbers."""

    title: str = ""
    low: float = 0.0
    high: float = 1.0
    names: tuple[str, ...] = ()
    whole: bool = False

    @property
    def extent(self) -> tuple[float, float]:
        """Where it begins and ends."""
        if self.names:
            return -0.5, len(self.names) - 0.5
        return self.low, self.high if self.high > self.low else self.low + 1.0


@dataclass(frozen=True, kw_only=True)
class Hover:
    """What is said of each datum: `text`, whose `{0}`, `{1}` … stand for the fields of the datum's row; a line feed parts lines."""

    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    r"""Horizontal bars of one kind: place on the y axis, start and length on the x axis of each. `pattern` looks as it reads: / \ x + - ."""

    label: str
    colour: str
    pattern: str = ""
    rows: tuple[int, ...]
    starts: tuple[float, ...]
    lengths: tuple[float, ...]
    hover: Hover
    outlined: bool = False


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points of one kind with their intervals; `lows` and `highs` are empty where there are none. `faint` ones lie behind the others."""

    label: str
    colour: str
    shape: Shape
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    hover: Hover = Hover()
    faint: bool = False


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A heat map: one row of values for each name of the y axis, None where nothing is known; the hover's rows follow each other as the cells do.

    `colours`: from that of `low` to that of `high`, evenly spaced; an empty one is the page's own for "no difference".
    """

    values: tuple[tuple[float | None, ...], ...]
    hover: Hover
    low: float
    high: float
    colours: tuple[str, ...]
    unit: str

    def shade(self, value: float) -> tuple[str, float]:
        """Colour of a value, and how strong it is from 0 to 1."""
        if len(self.colours) > 2 and value < 0:
            return self.colours[0], min(1.0, value / self.low)
        start = 0.0 if len(self.colours) > 2 else self.low
        return self.colours[-1], min(1.0, (value - start) / ((self.high - start) or 1.0))


@dataclass(frozen=True, kw_only=True)
class Band:
    """A stretch of one axis over the whole of the other; a line where it begins and ends at the same place."""

    axis: Literal["x", "y"]
    low: float
    high: float
    colour: str
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Note:
    """A text that begins (or ends, with `ends`) at a place; above all marks where `y` is None."""

    x: float
    text: str
    y: float | None = None
    colour: str = ""
    ends: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a legend."""

    label: str
    colour: str
    pattern: str = ""
    shape: Shape = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure; `key` is its name in the page."""

    key: str
    title: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Bars | Points | Cells, ...]
    bands: tuple[Band, ...] = ()
    notes: tuple[Note, ...] = ()
    half: bool = False  # stands beside another on a wide page

    @property
    def height(self) -> int:
        """Height of the area of the marks, in pixels."""
        return ROW * len(self.y.names) or PLAIN_HEIGHT

    @property
    def legend(self) -> tuple[Entry, ...]:
        """Each kind of mark once; a heat map has a scale instead."""
        entries = [
            Entry(label=mark.label, colour=mark.colour, pattern=mark.pattern)
            if isinstance(mark, Bars)
            else Entry(label=mark.label, colour=mark.colour, shape=mark.shape)
            for mark in self.marks
            if isinstance(mark, Bars) or (isinstance(mark, Points) and not mark.faint)
        ]
        return tuple(dict.fromkeys(entries))


def layer(text: str, colour: str, pattern: str, lengths: Iterable[int], hover: Hover) -> Bars:
    """Bars of one kind, one for each row and as many ns long, to be laid upon others by `stacked`."""
    found = tuple(ms(length) for length in lengths)
    return Bars(
        label=text,
        colour=colour,
        pattern=pattern,
        rows=tuple(range(len(found))),
        starts=(0.0,) * len(found),
        lengths=found,
        hover=hover,
    )


def stacked(key: str, title: str, caption: str, axis: str, names: Iterable[str], layers: Iterable[Bars], *, half: bool = False) -> Figure:
    """Bars of each row one after the other, and the sum beside it, in ms. What has no length is left out."""
    rows = tuple(names)
    ends = [0.0] * len(rows)
    marks = []
    for bars in layers:
        kept = [index for index, length in enumerate(bars.lengths) if length]
        starts = []
        for index in kept:
            starts.append(ends[bars.rows[index]])
            ends[bars.rows[index]] = round(ends[bars.rows[index]] + bars.lengths[index], 6)
        if kept:
            hover = replace(bars.hover, rows=tuple(bars.hover.rows[index] for index in kept))
            found = (tuple(bars.rows[index] for index in kept), tuple(bars.lengths[index] for index in kept))
            marks.append(replace(bars, rows=found[0], starts=tuple(starts), lengths=found[1], hover=hover))
    return Figure(
        key=key,
        title=title,
        caption=caption,
        x=Axis(title=axis, high=(1.25 if half else 1.12) * max(ends, default=0.0)),
        y=Axis(names=rows),
        marks=tuple(marks),
        notes=tuple(Note(x=end, y=row, text=f"{end:,.3f} ms") for row, end in enumerate(ends)),
        half=half,
    )
