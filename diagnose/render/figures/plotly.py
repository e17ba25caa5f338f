"""A described figure for plotly, as plain data; plotly's own script, packed: a page unpacks it when its reader wants to zoom.

Every text goes through `literal`: plotly reads a few tags inside labels. A hover template is always one of ours.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from diagnose.knowledge import compiled
from diagnose.model.names import visible
from diagnose.render.figures.figure import EVEN, Axis, Band, Bar, Bars, Cell, Cells, Figure, Note, Point, Points, Spans

_MOST_TICKS = 12  # names on the x axis beyond which only some stand there
_SYMBOLS = {
    "circle": "circle",
    "square": "square",
    "diamond": "diamond",
    "triangle": "triangle-up",
    "ring": "circle-open",
    "cross": "x-thin-open",
}


class Library(Struct, frozen=True, kw_only=True):
    """Plotly's own script: compressed, as a text that a page can hold and a browser inflates (DecompressionStream); its digest."""

    packed: str
    digest: str


@cache
def library() -> Library:
    """Plotly's script as it is installed, packed once for each version of it and kept beside the bytecode."""
    import plotly  # noqa: PLC0415 - only this output needs it
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - the same

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    place = compiled.beside(Path(__file__), b"packed", code=str(script), library=f"plotly {plotly.__version__}")
    found, _, packed = (place.read() or b"").decode("ascii").partition("\n")
    if not packed:
        text: str = get_plotlyjs()
        found, packed = digest(text), pack(text, level=5)  # as small as at 9 but for 1 %, in half the time
        place.write(f"{found}\n{packed}".encode("ascii"))
    return Library(packed=packed, digest=found)


def digest(script: str) -> str:
    """The SHA-256 of a script, in base64, by which a policy of content security allows it."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def pack(text: str, level: int = 9) -> str:
    """A text compressed by gzip, in base64. The same text gives the same bytes: no clock."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), level, mtime=0)).decode("ascii")


def literal(text: str) -> str:
    """A text as plotly shows it literally."""
    return html.escape(visible(text), quote=False)


def draw(figure: Figure) -> dict[str, Any]:
    """`data` and `layout` for plotly, which is not asked for spans. The same figure gives the same bytes: no ids, no clock."""
    heat = next((mark for mark in figure.marks if isinstance(mark, Cells)), None)
    above = any(note.y is None for note in figure.notes)
    layout: dict[str, Any] = {
        "height": figure.height + 66,
        "margin": {"l": 8, "r": 8 if heat else 20, "t": 30 if above else 8, "b": 44},
        "barmode": "overlay",
        "font": {"size": 12},
        "hoverlabel": {"align": "left", "font": {"size": 12}},
        "hovermode": "closest",
        "showlegend": False,  # the page has one that wraps at any width
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": _across(figure.x),
        "yaxis": _down(figure.y),
        "shapes": [_shape(band) for band in figure.bands],
        "annotations": [_annotation(note) for note in figure.notes],
    }
    if heat is not None:
        layout["coloraxis"] = _colours(heat)
    return {"data": [_trace(figure, mark) for mark in figure.marks if not isinstance(mark, Spans)], "layout": layout}


def _axis(axis: Axis, **more: Any) -> dict[str, Any]:
    return {"title": {"text": literal(axis.title)}, "automargin": True, "zeroline": False, **more}


def _across(axis: Axis) -> dict[str, Any]:
    """The x axis: a name under each mark where there is room, else under a few."""
    if not axis.names:
        return _axis(axis, range=list(axis.extent), **({"tickformat": ",d"} if axis.whole else {}))
    few: dict[str, Any] = {"nticks": 9, "tickangle": 0} if len(axis.names) > _MOST_TICKS else {}
    return _axis(axis, type="category", showgrid=False, **few)


def _down(axis: Axis) -> dict[str, Any]:
    """The y axis; names stand at numbers, so that two of the same name stay two."""
    low, high = axis.extent
    if not axis.names:
        return _axis(axis, range=[low, high])
    names = [literal(name) for name in axis.names]
    return _axis(axis, range=[high, low], fixedrange=True, showgrid=False, tickvals=list(range(len(names))), ticktext=names)


def _hover(template: str) -> dict[str, Any]:
    """The template for the fields of each datum, which stand in `customdata`."""
    if not template:
        return {"hoverinfo": "skip"}
    fields = (f"%{{customdata[{field}]}}" for field in range(template.count("{")))
    return {"hovertemplate": f"{template.replace(chr(10), '<br>').format(*fields)}<extra></extra>"}


def _customdata(data: Iterable[Bar | Point | Cell]) -> list[list[str]]:
    return [[literal(field) for field in datum.fields] for datum in data]


def _trace(figure: Figure, mark: Bars | Points | Cells) -> dict[str, Any]:
    if isinstance(mark, Bars):
        return {
            "type": "bar",
            "orientation": "h",
            "name": literal(mark.look.label),
            "y": [bar.row for bar in mark.data],
            "base": [bar.start for bar in mark.data],
            "x": [bar.length for bar in mark.data],
            "width": 0.75,
            "marker": _marker(mark),
            "customdata": _customdata(mark.data),
            **_hover(mark.hover),
        }
    if isinstance(mark, Points):
        return _scatter(mark)
    return {
        "type": "heatmap",
        "x": [literal(name) for name in figure.x.names],
        "z": [[cell.value for cell in row] for row in mark.data],
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "xgap": 1 if len(figure.x.names) <= 64 else 0,
        "ygap": 1,
        "customdata": [_customdata(row) for row in mark.data],
        **_hover(mark.hover),
    }


def _marker(bars: Bars) -> dict[str, Any]:
    colour = bars.look.colour
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0.8, "color": "rgba(0,0,0,0.55)"} if bars.outlined else {"width": 0}}
    if bars.look.pattern:
        white = "rgba(255,255,255,0.55)"
        fill = {"shape": bars.look.pattern, "size": 6, "solidity": 0.25, "fillmode": "overlay", "bgcolor": colour, "fgcolor": white}
        marker["pattern"] = fill
    return marker


def _scatter(points: Points) -> dict[str, Any]:
    look = points.look
    symbol = {"color": look.colour, "size": 5 if points.faint else 9, "symbol": _SYMBOLS[look.shape]}
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": literal(look.label),
        "x": [point.x for point in points.data],
        "y": [point.y for point in points.data],
        "marker": symbol | ({"opacity": 0.55} if points.faint else {}) | ({"line": {"width": 2}} if look.shape == "cross" else {}),
        "customdata": _customdata(points.data),
        **_hover(points.hover),
    }
    if any(point.low is not None for point in points.data):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if point.high is None else round(point.high - point.y, 6) for point in points.data],
            "arrayminus": [0.0 if point.low is None else round(point.y - point.low, 6) for point in points.data],
            "color": look.colour,
            "thickness": 1.5,
        }
    return trace


def _colours(cells: Cells) -> dict[str, Any]:
    """The colour axis; the page's script puts the theme's own colour in the place of `EVEN`."""
    last = len(cells.colours) - 1
    form = "+~g" if last > 1 else "~g"
    return {
        "colorscale": [[place / last, colour or EVEN] for place, colour in enumerate(cells.colours)],
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": literal(cells.unit), "side": "right"}, "tickformat": form},
        "cmin": cells.low,
        "cmax": cells.high,
    }


def _shape(band: Band) -> dict[str, Any]:
    ends: dict[str, Any] = {"xref": "x", "yref": "paper", "x0": band.low, "x1": band.high, "y0": 0, "y1": 1}
    if band.axis == "y":
        ends = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": band.low, "y1": band.high}
    line = {"color": band.colour, "width": 1.5, "dash": "dash" if band.dashed else "solid"}
    if band.low >= band.high:
        return {"type": "line", "line": line, **ends}
    red, green, blue = (int(band.colour[place : place + 2], 16) for place in (1, 3, 5))
    return {"type": "rect", "fillcolor": f"rgba({red},{green},{blue},0.15)", "layer": "below", "line": line | {"width": 1}, **ends}


def _annotation(note: Note) -> dict[str, Any]:
    at: dict[str, Any] = {"yref": "paper", "y": 1, "yanchor": "bottom"}
    if note.y is not None:
        at = {"yref": "y", "y": note.y, "xshift": 4}
    return {
        "text": literal(note.text),
        "xref": "x",
        "x": note.x,
        "xanchor": "right" if note.ends else "left",
        "showarrow": False,
        **at,
    }


def data(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """All figures of a page, by key."""
    return {key: draw(figure) for key, figure in figures.items()}
