"""Both drawers show what is described, and nothing else: every figure of every sample document, hostile ones too."""

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from plotly import graph_objects

from diagnose.model.names import visible
from diagnose.render import words
from diagnose.render.figures import plotly, svg
from diagnose.render.figures.figure import Axis, Bar, Bars, Cell, Cells, Fields, Figure, Look, Point, Points, Spans, stacked
from tests.builders import bisection, comparison, diagnosis, hostile
from tests.builders.cases import for_each
from tests.builders.diagnosis import many_ranks
from tests.builders.documents import figures_of
from tests.render.reading import parsed

SVG = "{http://www.w3.org/2000/svg}"
DOCUMENTS = {
    "diagnosis": diagnosis.rich,
    "empty diagnosis": diagnosis.minimal,
    "many ranks": lambda: structs.replace(diagnosis.rich(), ranks=many_ranks(96)),
    **{f"comparison {name}": made for name, made in (comparison.SAMPLES | {"huge": comparison.huge}).items()},
    **{f"bisection {name}": made for name, made in bisection.SAMPLES.items()},
    **{f"hostile diagnosis {first}": (lambda first=first: hostile.hostile_diagnosis(first)) for first in (None, 3)},
    **{f"hostile comparison {first}": (lambda first=first: hostile.hostile_comparison(first)) for first in (None, 3)},
    **{f"hostile bisection {first}": (lambda first=first: hostile.hostile_bisection(first)) for first in (None, 3)},
}
KEYS = {"budget", "buckets", "communication", "timeline", "rank-heat", "rank-strips", "budgets", "waterfall", "metric"}


@cache
def described() -> dict[str, Figure]:
    return {f"{name}: {key}": figure for name, made in DOCUMENTS.items() for key, figure in figures_of(made()).items()}


def each(check: Callable[[Figure], None]) -> None:
    """Checks every figure, and names all that fail."""
    failed = []
    for name, figure in described().items():
        try:
            check(figure)
        except AssertionError as wrong:
            failed.append(f"{name}: {wrong}")
    assert failed == []


def test_every_figure_is_among_the_samples() -> None:
    assert {figure.key for figure in described().values()} == KEYS
    assert {type(mark) for figure in described().values() for mark in figure.marks} == {Bars, Points, Cells, Spans}


def hover_text(hover: str, fields: Fields) -> str:
    """What a pointer is told of one datum."""
    return hover.format(*(visible(field) for field in fields))


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def straight(pairs: list[tuple[float, float]], slack: float = 0.03) -> bool:
    """Whether one linear scale leads from each first value to its second, to a hundredth of a unit of length."""
    (low, at_low), (high, at_high) = min(pairs), max(pairs)
    slope = 0.0 if high == low else (at_high - at_low) / (high - low)
    return all(abs(at_low + slope * (value - low) - at) <= slack for value, at in pairs)


# --- SVG --------------------------------------------------------------------------------------------------------------


def title_of(element: ET.Element) -> str | None:
    found = element.find(f"{SVG}title")
    return None if found is None else found.text or ""


def groups(root: ET.Element) -> Iterator[list[ET.Element]]:
    """The elements of each group of the drawing that is told to a pointer, in their order."""
    for group in root.findall(f"{SVG}g"):
        yield [element for element in group if element.tag in (f"{SVG}rect", f"{SVG}g")]


def check_svg(figure: Figure) -> None:
    """Every datum is told, and lies where the axes put it."""
    root = parsed(svg.draw(figure))
    drawn = [group for group in groups(root) if group]
    across: list[tuple[float, float]] = []
    down: list[tuple[float, float]] = []
    for mark in figure.marks:
        if isinstance(mark, Cells):
            check_cells(figure, mark, drawn)
            continue
        if isinstance(mark, Spans):
            check_spans(figure, mark, root)
            continue
        elements = drawn.pop(0)
        if mark.hover:
            assert [title_of(element) for element in elements] == [hover_text(mark.hover, datum.fields) for datum in mark.data]
        for element, datum in zip(elements, mark.data, strict=True):
            if isinstance(datum, Bar):
                x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
                across.append((datum.start, x))
                down.append((datum.row, y + height / 2))
                if width > svg.THINNEST:
                    across.append((datum.start + datum.length, x + width))
            else:
                *interval, sign = element.findall(f"{SVG}path")
                at = numbers(sign.attrib["transform"])
                across.append((datum.x, at[0]))
                down.append((datum.y, at[1]))
                assert len(interval) == (datum.low is not None)
                if datum.low is not None and datum.high is not None:
                    (_, top, bottom) = numbers(interval[0].attrib["d"])
                    down += [(datum.high, top), (datum.low, bottom)]
    assert not across or straight(across)
    assert not down or straight(down)
    assert all(14 <= at <= svg.WIDTH for _, at in across)


def check_spans(figure: Figure, spans: Spans, root: ET.Element) -> None:
    """Every span has its box in its row, or what is narrower than a pixel shares one; nothing else is drawn."""
    boxes = [
        [float(number) for number in re.findall(r"-?[\d.]+", box)]
        for path in root.findall(f"{SVG}path")
        for box in path.attrib["d"].split("M")[1:]
    ]
    area = svg.area_of(figure)
    rows = {row: round(area.down(row), 1) for row in range(len(figure.y.names))}
    for row, start, length in zip(spans.row, spans.start, spans.length, strict=True):
        left, right = area.across(start / 1e6), area.across((start + length) / 1e6)
        assert any(
            abs(top + tall / 2 - rows[row]) < 0.2 and at - 0.1 <= left <= at + wide + 0.1 and right <= at + max(wide, 2 * svg.PIXEL) + 0.1
            for at, top, wide, tall, *_ in boxes
        )
    assert len(boxes) <= len(spans.row)


def check_cells(figure: Figure, cells: Cells, drawn: list[list[ET.Element]]) -> None:
    """Known cells stand in their row and column; what is farther from nothing is stronger."""
    shades: dict[str, list[tuple[float, float]]] = {}
    for row in cells.data:
        assert len(row) == len(figure.x.names)
        rects = [element for element in drawn.pop(0) if title_of(element) is not None]
        known = [(column, cell.value) for column, cell in enumerate(row) if cell.value is not None]
        assert [title_of(element) for element in rects] == [hover_text(cells.hover, row[column].fields) for column, _ in known]
        assert not known or straight([(column, float(element.attrib["x"])) for (column, _), element in zip(known, rects, strict=True)])
        for (_, value), element in zip(known, rects, strict=True):
            shades.setdefault(element.attrib["fill"], []).append((abs(value), float(element.attrib["fill-opacity"])))
    assert all(straight(pairs) for pairs in shades.values())
    assert set(shades) <= {colour for colour in cells.colours if colour}


def texts(root: ET.Element) -> set[str]:
    """Every text, whole: what is cut has the whole of it as its title."""
    return {title_of(element) or element.text or "" for element in root.iter(f"{SVG}text")}


def check_texts(figure: Figure) -> None:
    """Names, notes, units, title and caption stand in the drawing."""
    root = parsed(svg.draw(figure))
    wanted = [*figure.y.names, *(note.text for note in figure.notes if note.y is not None), figure.x.title, figure.y.title]
    wanted += [mark.unit for mark in figure.marks if isinstance(mark, Cells)]
    wanted += figure.x.names[:1]
    assert [text for text in wanted if text and visible(text) not in texts(root)] == []
    assert root.find(f"{SVG}title").text == visible(figure.title)  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text == visible(figure.caption)  # type: ignore[union-attr]
    for key in ("aria-labelledby", "aria-describedby"):
        assert any(element.get("id") == root.attrib[key] for element in root)


def check_legend(figure: Figure) -> None:
    """Each kind of mark, once."""
    source = svg.legend(figure)
    kinds = {(look.label, look.colour) for look in figure.legend}
    single = [mark for mark in figure.marks if not isinstance(mark, (Cells, Spans)) and not getattr(mark, "faint", False)]
    assert kinds >= {(mark.look.label, mark.look.colour) for mark in single}
    if figure.spans is not None:
        known = [colour for _, colour in kinds if colour not in (words.gap_look("?").colour, words.bucket_colour("?"))]
        assert len(set(known)) == len(known), "one colour has two meanings"
    if not kinds:
        assert source == ""
        return
    items = parsed(source).findall("li")
    assert {"".join(item.itertext()) for item in items} == {visible(label) for label, _ in kinds}
    assert len(items) == len(figure.legend)
    assert all(colour in source for _, colour in kinds)


TAGS = {"svg", "g", "title", "desc", "text", "rect", "path", "pattern", "linearGradient", "stop", "ul", "li"}
ATTRIBUTES = (
    "class viewBox role aria-labelledby aria-describedby aria-hidden style font-size font-weight fill fill-opacity fill-rule id d x y "
    "x1 y1 x2 y2 rx width height stroke stroke-width stroke-opacity stroke-dasharray opacity transform text-anchor pointer-events patternUnits "
    "offset stop-color stop-opacity"
)


def check_powerless(figure: Figure) -> None:
    """Tags and attributes of ours alone, with values that ask for nothing."""
    for source in (svg.draw(figure), svg.legend(figure)):
        if not source:
            continue
        root = parsed(source)
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
        assert {name for element in root.iter() for name in element.attrib} <= set(ATTRIBUTES.split())
        values = [value for element in root.iter() for value in element.attrib.values()]
        assert all(re.fullmatch(r"[\w\s#%().,:;+-]*", value) for value in values)
        assert all(found.startswith("url(#") for value in values for found in re.findall(r"url\(.?", value))


def test_no_two_elements_of_a_page_have_one_name() -> None:
    for name, made in DOCUMENTS.items():
        source = "".join(svg.draw(figure) + svg.legend(figure) for figure in figures_of(made()).values())
        names = re.findall(r' id="([^"]*)"', source)
        assert len(names) == len(set(names)), name


# --- plotly -----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Texts as plotly shows them."""
    return [plain(item) for item in value] if isinstance(value, list) else html.unescape(value)


def shown_fields(data: Iterable[Bar | Point | Cell]) -> list[list[str]]:
    return [[visible(field) for field in datum.fields] for datum in data]


def check_plotly(figure: Figure) -> None:
    """Plotly takes it, and holds every datum, name and note as it is described."""
    if figure.spans is not None:
        return  # the page's own script draws it
    drawn = plotly.draw(figure)
    graph_objects.Figure(drawn)  # plotly takes it
    assert len(drawn["data"]) == len(figure.marks)
    for trace, mark in zip(drawn["data"], figure.marks, strict=True):
        if isinstance(mark, Cells):
            assert trace["z"] == [[cell.value for cell in row] for row in mark.data]
            assert plain(trace["customdata"]) == [shown_fields(row) for row in mark.data]
            assert [html.unescape(name) for name in trace["x"]] == [visible(name) for name in figure.x.names]
            assert (drawn["layout"]["coloraxis"]["cmin"], drawn["layout"]["coloraxis"]["cmax"]) == (mark.low, mark.high)
            continue
        assert plain(trace["customdata"]) == shown_fields(mark.data)
        assert html.unescape(trace["name"]) == visible(mark.look.label)
        assert trace["marker"]["color"] == mark.look.colour
        if isinstance(mark, Bars):
            assert list(zip(trace["y"], trace["base"], trace["x"], strict=True)) == [bar[:3] for bar in mark.data]
            assert trace["marker"].get("pattern", {}).get("shape", "") == mark.look.pattern
            assert (trace["marker"]["line"]["width"] > 0) == mark.outlined
        else:
            assert list(zip(trace["x"], trace["y"], strict=True)) == [point[:2] for point in mark.data]
            for name, ends in (("array", [point.high for point in mark.data]), ("arrayminus", [point.low for point in mark.data])):
                reach = [0 if end is None else abs(end - point.y) for end, point in zip(ends, mark.data, strict=True)]
                assert trace.get("error_y", {}).get(name, [0] * len(ends)) == pytest.approx(reach, abs=1e-6)
    layout = drawn["layout"]
    assert [html.unescape(note["text"]) for note in layout["annotations"]] == [visible(note.text) for note in figure.notes]
    assert [html.unescape(name) for name in layout["yaxis"].get("ticktext", [])] == [visible(name) for name in figure.y.names]
    assert len(layout["shapes"]) == len(figure.bands)
    assert (layout["margin"]["t"] >= 30) == any(note.y is None for note in figure.notes)  # room for a line above the marks


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def check_literal(figure: Figure) -> None:
    """No text is markup, and every template is one of ours."""
    drawn = plotly.draw(figure)
    templates = {trace.pop("hovertemplate", "") for trace in drawn["data"]}
    assert [text for text in strings(drawn) if "<" in text] == []
    assert all(re.fullmatch(r"((%\{customdata\[\d\]\})|[\w ,·:]|<br>)*(<extra></extra>)?", template) for template in templates), templates


# --- any figure -------------------------------------------------------------------------------------------------------


@given(
    names=st.lists(st.text(max_size=80), min_size=1, max_size=6),
    layers=st.lists(st.lists(st.integers(0, 10**12), min_size=6, max_size=6), min_size=1, max_size=4),
    text=st.text(max_size=200),
)
def test_any_names_and_lengths_are_drawn_to_the_nanosecond(names: list[str], layers: list[list[int]], text: str) -> None:
    rows = range(len(names))
    bare = Figure(key="any", title=text, caption=text, x=Axis(title=text), y=Axis(names=tuple(names)))
    look = Look(label=text, colour="#123456", pattern="x")
    figure = stacked(bare, "{0}", [(look, [(row, lengths[row], (text,)) for row in rows]) for lengths in layers])
    for row in rows:
        total = sum(bar.length for mark in figure.marks if isinstance(mark, Bars) for bar in mark.data if bar.row == row)
        assert round(total * 1e6) == sum(lengths[row] for lengths in layers)
    check_svg(figure)
    check_plotly(figure)


@given(low=st.floats(-1e15, 1e15), span=st.floats(1e-6, 1e15), whole=st.booleans())
@example(low=1e-9, span=1e-6, whole=True)  # far less than the distance of two whole numbers
def test_ticks_are_round_few_and_inside(low: float, span: float, whole: bool) -> None:
    axis = Axis(low=low, high=low + span, whole=whole)
    if axis.high - low < abs(low) * 1e-9:
        return
    found = svg.ticks(axis)
    start, end = axis.extent
    assert len(found) <= 9
    assert len(found) >= 3 or (whole and end - start < 8)
    assert all(start - 1e-6 * (end - start) <= value <= end + 1e-6 * (end - start) for value, _ in found)
    assert all(math.isclose(value, round(value)) for value, _ in found) or not whole


# Every datum, name and note is in the SVG, each kind of mark stands once in its legend, and nothing in it has any power; every datum is in
# Plotly's figure, for which no text is markup or a template.
@for_each("check", check_svg, check_texts, check_legend, check_powerless, check_plotly, check_literal)
def test_every_figure_is_drawn_whole_and_harmless(check: Callable[[Figure], None]) -> None:
    each(check)
