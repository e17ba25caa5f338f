"""A figure described once, for no medium: axes, marks, what is said of each datum. `svg` and `plotly` draw it.

Texts may come from a trace: each drawer makes them harmless. Builders shorten them by `label`. Colours are `#rrggbb`, never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from diagnose.model.names import shorten
from diagnose.render import units

Shape = Literal["", "circle", "square", "diamond", "triangle", "ring", "cross"]
Fields = tuple[str, ...]  # of what a pointer is told of one datum
EVEN = "#f2f2f2"  # no difference, on a light page
LONGEST_LABEL = 90
ROW, PLAIN_HEIGHT = 28, 280  # heights in pixels: of one named row; of a figure whose y axis is a number


def label(text: str) -> str:
    """A text from a trace, short and on one line."""
    return shorten(text, LONGEST_LABEL)


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds, exact to the nanosecond."""
    return round(ns / 1e6, 6)


class Axis(Struct, frozen=True, kw_only=True):
    """Numbers from `low` to `high`, only whole ones if `whole`; or names at 0, 1, 2 …, from left to right or the top down."""

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


class Look(Struct, frozen=True):
    r"""How one kind of mark is called and drawn. `pattern` is a fill that looks as it reads: / \ x + - .

    `order` is its place among others.
    """

    label: str
    colour: str
    pattern: str = ""  # beside the colour, so that that is not the only sign
    shape: Shape = ""
    order: int = 0


class Bar(NamedTuple):
    """A horizontal bar: place on the y axis, start and length on the x axis."""

    row: int
    start: float
    length: float
    fields: Fields


class Point(NamedTuple):
    """A point, with the interval of its y where there is one."""

    x: float
    y: float
    fields: Fields = ()
    low: float | None = None
    high: float | None = None


class Cell(NamedTuple):
    """A value of a heat map, None where nothing is known."""

    value: float | None
    fields: Fields


class Bars(Struct, frozen=True, kw_only=True):
    """Bars of one kind. `hover` is what a pointer is told: its `{0}`, `{1}` … stand for the datum's fields; a line feed parts lines."""

    look: Look
    hover: str
    data: tuple[Bar, ...]
    outlined: bool = False


class Points(Struct, frozen=True, kw_only=True):
    """Points of one kind; `hover` as for bars, empty where nothing is told. `faint` ones lie behind the others and are in no legend."""

    look: Look
    data: tuple[Point, ...]
    hover: str = ""
    faint: bool = False


class Cells(Struct, frozen=True, kw_only=True):
    """A heat map, a row for each name of the y axis. `colours`: from `low` to `high`, evenly; an empty one is the page's, no difference."""

    data: tuple[tuple[Cell, ...], ...]
    hover: str
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


class Spans(Struct, frozen=True, kw_only=True):
    """Many bars of many kinds, one column per figure.

    Still media merge what is narrower than a pixel, the page's own script does so as it zooms.

    Of each: `row`, `start` and `length` in ns, `look` and `name` (places in `looks` and `names`), `queued` (ns from its launch to its
    start), `range` (around its launch, in `names`), `by` (the span that it waited for). -1 stands for what is not known.
    """

    looks: tuple[Look, ...]
    names: tuple[str, ...]
    row: tuple[int, ...]
    start: tuple[int, ...]
    length: tuple[int, ...]
    look: tuple[int, ...]
    name: tuple[int, ...]
    queued: tuple[int, ...]
    range: tuple[int, ...]
    by: tuple[int, ...]


class Band(Struct, frozen=True, kw_only=True):
    """A stretch of one axis over the whole of the other; a line where it begins and ends at the same place."""

    axis: Literal["x", "y"]
    low: float
    high: float
    colour: str
    dashed: bool = False


class Note(Struct, frozen=True, kw_only=True):
    """A text that begins (or ends, with `ends`) at a place; above all marks where `y` is None."""

    x: float
    text: str
    y: float | None = None
    ends: bool = False


class Figure(Struct, frozen=True, kw_only=True):
    """One figure; `key` is its name in the page."""

    key: str
    title: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Bars | Points | Cells | Spans, ...] = ()
    bands: tuple[Band, ...] = ()
    notes: tuple[Note, ...] = ()
    half: bool = False  # stands beside another on a wide page

    @property
    def height(self) -> int:
        """Height of the area of the marks, in pixels."""
        return ROW * len(self.y.names) or PLAIN_HEIGHT

    @property
    def legend(self) -> tuple[Look, ...]:
        """Each kind of mark once; a heat map has a scale instead."""
        single = (mark.look for mark in self.marks if isinstance(mark, Bars) or (isinstance(mark, Points) and not mark.faint))
        return tuple(dict.fromkeys((*single, *(look for mark in self.marks if isinstance(mark, Spans) for look in mark.looks))))

    @property
    def spans(self) -> Spans | None:
        """What the page's own script draws, where the figure is made of that."""
        return next((mark for mark in self.marks if isinstance(mark, Spans)), None)


Layer = tuple[Look, Iterable[tuple[int, int, Fields]]]  # of stacked bars: row, length in ns, fields


def stacked(figure: Figure, hover: str, layers: Iterable[Layer], *, outlined: bool = False) -> Figure:
    """The figure with bars of each row one after the other and the sum beside them, in ms. What has no length is left out."""
    ends = [0] * len(figure.y.names)
    marks = []
    for look, spans in layers:
        data = []
        for row, length, fields in spans:
            if length:
                data.append(Bar(row, ms(ends[row]), ms(length), fields))
                ends[row] += length
        if data:
            marks.append(Bars(look=look, hover=hover, data=tuple(data), outlined=outlined))
    room = 1.25 if figure.half else 1.12  # for the sums
    notes = tuple(Note(x=ms(end), y=row, text=f"{units.ms(end)} ms") for row, end in enumerate(ends))
    return replace(figure, x=replace(figure.x, high=room * ms(max(ends, default=0))), marks=tuple(marks), notes=notes)
