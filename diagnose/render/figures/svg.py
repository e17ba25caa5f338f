"""A described figure as inline SVG: whole without a script, in print and in the dark. What a pointer is told stands in `<title>`."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from diagnose.model.names import shorten, visible
from diagnose.render import units
from diagnose.render.figures.figure import EVEN, Axis, Band, Bars, Cell, Cells, Fields, Figure, Look, Note, Points, Spans

WIDTH, HALF = 960, 600  # units of length, of a figure and of one that shares its line; the page fits them to its own width
_SIGN = 7.2  # the width of one sign of a label, about
_LONGEST_NAME = 34
_MOST_TICKS = 8  # of an axis, about
THINNEST = 0.4  # no bar is thinner than that
PIXEL = 1.5  # what is narrower on a printed page is drawn with its neighbours
_CELL_TEXT = 54  # from this width on a cell holds its number
_SHAPES = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "square": "M-4.5-4.5h9v9h-9z",
    "diamond": "M0-6l6 6l-6 6l-6-6z",
    "triangle": "M0-6l6 10h-12z",
    "ring": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0zm2 0a3 3 0 1 1 6 0a3 3 0 1 1-6 0z",
    "cross": "M-5-4l1-1l4 4l4-4l1 1l-4 4l4 4l-1 1l-4-4l-4 4l-1-1l4-4z",
}
_LINES = {  # of fill patterns, in a square of 6
    "/": "M-1 7L7-1M-1 1L1-1M5 7L7 5",
    "\\": "M-1-1L7 7M5-1L7 1M-1 5L1 7",
    "x": "M-1 7L7-1M-1-1L7 7",
    "+": "M3 0V6M0 3H6",
    "-": "M0 3H6",
    ".": "M2 3H4",
}


class Area(Struct, frozen=True, kw_only=True):
    """The area of the marks, in units of length, and how places on the axes lie in it."""

    left: float
    right: float
    top: float
    bottom: float
    x: Axis
    y: Axis

    def across(self, value: float) -> float:
        """How far from the left a value of the x axis is drawn."""
        low, high = self.x.extent
        return self.left + (self.right - self.left) * (value - low) / (high - low)

    def down(self, value: float) -> float:
        """How far from the top a value of the y axis is drawn; rows with names go from above, numbers from below."""
        low, high = self.y.extent
        share = (value - low) / (high - low)
        return self.top + (self.bottom - self.top) * (share if self.y.names else 1 - share)


def draw(figure: Figure) -> str:
    """The figure as one `<svg>` element. The legend is apart: see `legend`."""
    area = area_of(figure)
    height = area.bottom + (40 if figure.x.title else 22)
    key, width = _text(figure.key), _width(figure)
    size = f'viewBox="0 0 {width} {_n(height)}" style="min-width:{_n(0.6 * width)}px;max-width:{_n(1.25 * width)}px"'
    names = f'role="img" aria-labelledby="{key}-title" aria-describedby="{key}-desc"'
    return "".join(
        [
            f'<svg class="chart" {size} {names} font-size="12" fill="currentColor" xmlns="http://www.w3.org/2000/svg">',
            f'<title id="{key}-title">{_text(figure.title)}</title><desc id="{key}-desc">{_text(figure.caption)}</desc>',
            *_axes(area),
            *(_band(area, band) for band in figure.bands if band.low < band.high),
            *(part for place, mark in enumerate(figure.marks) for part in _mark(area, mark, f"{key}-fill-{place}")),
            *(_band(area, band) for band in figure.bands if band.low >= band.high),
            *_notes(area, figure.notes),
            "</svg>\n",
        ]
    )


def legend(figure: Figure) -> str:
    """The legend as an HTML list, which wraps at any width; empty where the figure has none."""
    signs = enumerate(figure.legend)
    entries = [f"<li>{_swatch(look, f'{_text(figure.key)}-sign-{place}')}{_text(look.label)}</li>" for place, look in signs]
    return f'<ul class="legend">{"".join(entries)}</ul>\n' if entries else ""


def _swatch(look: Look, identifier: str) -> str:
    sign = f'{_pattern(look, identifier)}<rect width="14" height="14" rx="2" fill="{_fill(look, identifier)}"/>'
    if look.shape:
        sign = f'<path d="{_SHAPES[look.shape]}" transform="translate(7 7)" fill="{_text(look.colour)}" fill-rule="evenodd"/>'
    return f'<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">{sign}</svg>'


def ticks(axis: Axis) -> list[tuple[float, str]]:
    """Round numbers on an axis and how they are written."""
    low, high = axis.extent
    rough = (high - low) / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    step = max(step, 1.0) if axis.whole else step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    slack = 1e-9 * min(1.0, (high - low) / step)
    places = range(math.ceil(low / step - slack), math.floor(high / step + slack) + 1)
    return [(place * step, f"{place * step:,.{digits}f}") for place in places]


# --- parts ------------------------------------------------------------------------------------------------------------


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(text: str) -> str:
    return html.escape(visible(text))


def _title(hover: str, fields: Fields) -> str:
    return f"<title>{html.escape(hover.format(*map(visible, fields)))}</title>" if hover else ""


def _width(figure: Figure) -> int:
    return HALF if figure.half else WIDTH


def area_of(figure: Figure) -> Area:
    """Where a figure's marks lie: beside the names of its rows, the scale of its colours and what stands above."""
    names = figure.y.names or tuple(text for _, text in ticks(figure.y))
    left = max(44.0, 14 + _SIGN * min(_LONGEST_NAME, max(len(name) for name in names)))
    scale = 88 if any(isinstance(mark, Cells) for mark in figure.marks) else 0
    above = 26 if any(note.y is None for note in figure.notes) or figure.y.title else 6
    return Area(left=left, right=_width(figure) - 14.0 - scale, top=above, bottom=above + figure.height, x=figure.x, y=figure.y)


def _axes(area: Area) -> Iterator[str]:
    """Lines and labels of both axes."""
    yield '<g stroke="currentColor" stroke-opacity="0.16">'
    if not area.x.names:
        for value, _ in ticks(area.x):
            yield f'<path d="M{_n(area.across(value))} {_n(area.top)}V{_n(area.bottom)}"/>'
    if not area.y.names:
        for value, _ in ticks(area.y):
            yield f'<path d="M{_n(area.left)} {_n(area.down(value))}H{_n(area.right)}"/>'
    yield '</g><g text-anchor="end">'
    for value, text in enumerate(area.y.names) if area.y.names else ticks(area.y):
        yield f'<text x="{_n(area.left - 8)}" y="{_n(area.down(value) + 4)}">{_short(text, _LONGEST_NAME)}</text>'
    yield '</g><g text-anchor="middle" fill-opacity="0.75">'
    for value, text in _named_ticks(area) if area.x.names else ticks(area.x):
        yield f'<text x="{_n(area.across(value))}" y="{_n(area.bottom + 16)}">{_text(text)}</text>'
    if area.x.title:
        yield f'<text x="{_n((area.left + area.right) / 2)}" y="{_n(area.bottom + 34)}">{_text(area.x.title)}</text>'
    yield "</g>"
    if area.y.title:
        yield f'<text x="{_n(area.left - 8)}" y="14" text-anchor="end" fill-opacity="0.75">{_text(area.y.title)}</text>'


def _named_ticks(area: Area) -> list[tuple[float, str]]:
    """The names on the x axis that have room."""
    room = (area.right - area.left) / len(area.x.names)
    every = math.ceil((_SIGN * max(len(name) for name in area.x.names) + 14) / room)
    return [(place, name) for place, name in enumerate(area.x.names) if place % every == 0]


def _short(text: str, most: int) -> str:
    """A label cut to its room, with the whole of it for a pointer."""
    seen = visible(text)
    return html.escape(seen) if len(seen) <= most else f"{html.escape(shorten(text, most))}<title>{html.escape(seen)}</title>"


def _fill(look: Look, identifier: str) -> str:
    return f"url(#{identifier})" if look.pattern in _LINES else _text(look.colour)


def _pattern(look: Look, identifier: str) -> str:
    """The definition of a fill with a pattern; nothing where it has none."""
    if look.pattern not in _LINES:
        return ""
    return (
        f'<pattern id="{identifier}" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 0H6V6H0z" fill="{_text(look.colour)}"/>'
        f'<path d="{_LINES[look.pattern]}" stroke="#fff" stroke-opacity="0.6" stroke-width="1.3"/></pattern>'
    )


def _band(area: Area, band: Band) -> str:
    if band.axis == "x":
        left, right, top, bottom = area.across(band.low), area.across(band.high), area.top, area.bottom
    else:
        left, right, top, bottom = area.left, area.right, area.down(band.high), area.down(band.low)
    line = f'stroke="{_text(band.colour)}"' + (' stroke-dasharray="5 4"' if band.dashed else "")
    if band.low >= band.high:
        return f'<path d="M{_n(left)} {_n(top)}L{_n(right)} {_n(bottom)}" {line} stroke-width="1.5"/>'
    box = f'x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}"'
    return f'<rect {box} fill="{_text(band.colour)}" fill-opacity="0.15" {line}/>'


def _notes(area: Area, notes: tuple[Note, ...]) -> Iterator[str]:
    above = sorted(note.x for note in notes if note.y is None)
    for note in notes:
        x = area.across(note.x)
        limit = _LONGEST_NAME
        if note.y is None and not note.ends:  # up to the next one
            limit = int((min((area.across(other) for other in above if other > note.x), default=area.right) - x) / _SIGN)
        if limit < 2:
            continue
        y = area.top - 6 if note.y is None else area.down(note.y) + 4
        anchor = ' text-anchor="end"' if note.ends else ""
        yield f'<text x="{_n(x + (0 if note.y is None else 6))}" y="{_n(y)}"{anchor}>{_short(note.text, limit)}</text>'


def _mark(area: Area, mark: Bars | Points | Cells | Spans, identifier: str) -> Iterator[str]:
    if isinstance(mark, Bars):
        yield from _bars(area, mark, identifier)
    elif isinstance(mark, Spans):
        yield from _spans(area, mark, identifier)
    elif isinstance(mark, Points):
        yield from _points(area, mark)
    else:
        yield from _cells(area, mark, identifier)


def _bars(area: Area, bars: Bars, identifier: str) -> Iterator[str]:
    row = (area.bottom - area.top) / len(area.y.names)
    line = ' stroke="#000" stroke-opacity="0.55" stroke-width="0.8"' if bars.outlined else ""
    yield f'{_pattern(bars.look, identifier)}<g fill="{_fill(bars.look, identifier)}"{line}>'
    for bar in bars.data:
        left, top = area.across(bar.start), area.down(bar.row) - 0.375 * row
        width = max(area.across(bar.start + bar.length) - left, THINNEST)
        shape = f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(0.75 * row)}">'
        yield f"{shape}{_title(bars.hover, bar.fields)}</rect>"
    yield "</g>\n"


def _spans(area: Area, spans: Spans, identifier: str) -> Iterator[str]:
    """One path for each look: a box for what is wider than a pixel; of what is narrower the look that fills most of its pixel."""
    row = (area.bottom - area.top) / len(area.y.names)
    boxes: list[list[tuple[int, float, float]]] = [[] for _ in spans.looks]
    narrow: dict[tuple[int, int], Counter[int]] = {}
    for line, start, length, look in zip(spans.row, spans.start, spans.length, spans.look, strict=True):
        left, right = area.across(start / 1e6), area.across((start + length) / 1e6)
        if right - left >= PIXEL:
            boxes[look].append((line, left, right))
        else:
            narrow.setdefault((line, int(left / PIXEL)), Counter())[look] += length + 1
    for (line, pixel), looks in sorted(narrow.items()):
        look = min(looks, key=lambda one: (-looks[one], one))
        before = boxes[look][-1] if boxes[look] else None
        if before is not None and before[0] == line and abs(before[2] - pixel * PIXEL) < THINNEST:
            boxes[look][-1] = (line, before[1], (pixel + 1) * PIXEL)
        else:
            boxes[look].append((line, pixel * PIXEL, (pixel + 1) * PIXEL))
    for place, kind in enumerate(spans.looks):
        tall, mine = 0.75 * row, f"{identifier}-{place}"
        shapes = (
            f"M{left:.1f} {area.down(line) - tall / 2:.1f}h{right - left:.1f}v{tall:.1f}h{left - right:.1f}z"
            for line, left, right in boxes[place]
        )
        if boxes[place]:
            yield f'{_pattern(kind, mine)}<path fill="{_fill(kind, mine)}" d="{"".join(shapes)}"/>\n'


def _points(area: Area, points: Points) -> Iterator[str]:
    colour, faint = _text(points.look.colour), ' opacity="0.55"' if points.faint else ""
    yield f'<g fill="{colour}" stroke="{colour}"{faint}>'
    for point in points.data:
        x, y, interval = _n(area.across(point.x)), _n(area.down(point.y)), ""
        if point.low is not None and point.high is not None:
            interval = f'<path d="M{x} {_n(area.down(point.high))}V{_n(area.down(point.low))}" stroke-width="1.5"/>'
        place = f"translate({x} {y}){' scale(0.5)' if points.faint else ''}"
        sign = f'<path d="{_SHAPES[points.look.shape]}" transform="{place}" stroke="none" fill-rule="evenodd"/>'
        yield f"<g>{_title(points.hover, point.fields)}{interval}{sign}</g>"
    yield "</g>\n"


def _cells(area: Area, cells: Cells, identifier: str) -> Iterator[str]:
    width, height = (area.right - area.left) / len(area.x.names), (area.bottom - area.top) / len(area.y.names)
    gap = 1 if width > 6 else 0
    written = width >= _CELL_TEXT
    number = units.signed_ms if len(cells.colours) > 2 else units.ms
    for row, data in enumerate(cells.data):
        yield f'<g transform="translate({_n(area.left)} {_n(area.top + row * height)})">'
        for first, last in _runs(data):  # what does not differ has the page's own colour, what is not known has none
            box = f'x="{_n(first * width)}" width="{_n((last - first) * width - gap)}" height="{_n(height - 1)}"'
            yield f'<rect {box} style="fill:var(--even,{EVEN})"/>'
        for column, cell in enumerate(data):
            if cell.value is None:
                continue
            colour, strength = cells.shade(cell.value)
            box = f'x="{_n(column * width)}" width="{_n(width - gap)}" height="{_n(height - 1)}"'
            look = f'fill="{_text(colour)}" fill-opacity="{_n(strength * (0.75 if written else 1))}"'
            yield f"<rect {box} {look}>{_title(cells.hover, cell.fields)}</rect>"
            if written:
                place = f'x="{_n((column + 0.5) * width)}" y="{_n(height / 2 + 4)}"'
                yield f'<text {place} text-anchor="middle" pointer-events="none">{number(cell.value * 1e6)}</text>'
        yield "</g>\n"
    yield from _scale(area, cells, identifier)


def _runs(cells: tuple[Cell, ...]) -> Iterator[tuple[int, int]]:
    """First column and the one after the last of every run of known cells."""
    for known, run in groupby(enumerate(cells), key=lambda pair: pair[1].value is not None):
        columns = [column for column, _ in run]
        if known:
            yield columns[0], columns[-1] + 1


def _scale(area: Area, cells: Cells, identifier: str) -> Iterator[str]:
    """The scale of a heat map's colours, right of it."""
    left, height = area.right + 14, area.bottom - area.top
    last = len(cells.colours) - 1
    stops = "".join(
        f'<stop offset="{_n(1 - place / last)}" stop-color="{_text(colour or EVEN)}" stop-opacity="{1 if colour else 0}"/>'
        for place, colour in reversed(list(enumerate(cells.colours)))
    )
    yield f'<linearGradient id="{identifier}" x1="0" y1="0" x2="0" y2="1">{stops}</linearGradient>'
    box = f'x="{_n(left)}" y="{_n(area.top)}" width="10" height="{_n(height)}"'
    yield f'<rect {box} fill="url(#{identifier})" stroke="currentColor" stroke-opacity="0.3"/>'
    signed = "+" if last > 1 else ""
    for place, value in ((0, cells.high), (1, (cells.low + cells.high) / 2), (2, cells.low)):
        shown = f"{value:{signed},.4g}" if value else "0"
        yield f'<text x="{_n(left + 15)}" y="{_n(area.top + 9 + place * (height - 10) / 2)}">{shown}</text>'
    yield f'<text x="{_n(left - 4)}" y="{_n(area.bottom + 16)}">{_text(cells.unit)}</text>'
