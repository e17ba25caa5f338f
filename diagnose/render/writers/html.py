"""A report as one HTML file: offline, without a single request, readable without JavaScript, in print and in the dark.

Every figure exists twice, from the same numbers: drawn by the browser from HTML and SVG alone, and by plotly where scripts run.
The content security policy allows exactly our two scripts, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
from markupsafe import Markup

from diagnose.render import units
from diagnose.render.options import Options
from diagnose.render.report import PAGE, Block, Figure, Report, Section, SideBySide, Table, without
from diagnose.render.writers import Writer

LONGEST_SHOWN = 110
LONGEST_KEPT = 6_000
_ADDRESS = re.compile(r"https://[\w.~:/?#@!$&'()*+,;=%-]{1,300}")

BOOT = """
(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var root = document.documentElement;
  function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }
  function axis(own) {
    return Object.assign({}, own, {color: colour("--muted"), gridcolor: colour("--line"), linecolor: colour("--line")});
  }
  function themed(own) {
    var layout = Object.assign({}, own);
    layout.font = Object.assign({}, own.font, {color: colour("--text"), family: getComputedStyle(document.body).fontFamily});
    layout.xaxis = axis(own.xaxis);
    layout.yaxis = Object.assign(axis(own.yaxis), {color: colour("--text")});
    if (own.coloraxis) {
      layout.coloraxis = Object.assign({}, own.coloraxis, {
        colorscale: own.coloraxis.colorscale.map(function (stop) { return [stop[0], stop[1] === "#f2f2f2" ? colour("--even") : stop[1]]; })
      });
    }
    layout.hoverlabel = Object.assign({}, own.hoverlabel, {
      bgcolor: colour("--panel"), bordercolor: colour("--line"),
      font: Object.assign({}, own.hoverlabel.font, {color: colour("--text")})
    });
    return layout;
  }
  var config = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
  function draw(how) {
    document.querySelectorAll("[data-figure]").forEach(function (box) {
      var figure = figures[box.dataset.figure];
      box.classList.add("drawn");
      Plotly[how](box.querySelector(".plot"), figure.data, themed(figure.layout), config).catch(function (fault) {
        box.classList.remove("drawn");
        console.error(fault);
      });
    });
  }
  draw("newPlot");
  document.querySelectorAll(".drawn details.fallback").forEach(function (one) { one.open = false; });
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details.finding, details.fallback").forEach(function (one) { one.open = true; });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { draw("react"); });
})();
"""


def write(report: Report, _options: Options) -> str:
    """The whole page."""
    contents = [block.content for block in report.blocks if block.least <= PAGE <= block.most]
    figures = [content for content in contents if isinstance(content, Figure)]
    pair = next((content for content in contents if isinstance(content, SideBySide)), None)
    plotly, boot = _plotly(), BOOT + ("" if pair is None else pair.script)
    page: str = _template().render(
        r=report,
        parts=_sections(report),
        policy=_policy(plotly, boot),
        figures=bool(figures),
        figures_json=data_block({figure.key: figure.plotly for figure in figures}),
        pair_json=None if pair is None else data_block(pair.data),
        plotly=Markup(plotly),  # noqa: S704 - plotly's own script
        boot=Markup(boot),  # noqa: S704 - our own script
        most=Limits(),
    )
    return page


WRITER = Writer(name="html", extensions=(".html",), takes="report", place=4, write=write)


@dataclass(frozen=True)
class Limits:
    """How much of what grows with the input a page shows."""

    rows: int = 200
    tall: int = 24  # rows from which a table scrolls in a frame of its own
    texts: int = 200
    reasons: int = 12


@dataclass(frozen=True, kw_only=True)
class Group:
    """Blocks one below the other, or two `columns` of them; or groups that open together with a click on `title`."""

    blocks: tuple[Block, ...] = ()
    columns: tuple[tuple[Block, ...], ...] = ()
    title: str = ""
    inner: tuple[Group, ...] = ()


def _sections(report: Report) -> list[tuple[Section | None, tuple[Group, ...]]]:
    """Sections in their order with what stands in them, empty ones left out; first what stands above all sections."""
    shown = [block for block in report.blocks if block.least <= PAGE <= block.most]
    keys: list[Section | None] = [None, *report.sections]
    found = [(section, [block for block in shown if block.section == ("" if section is None else section.id)]) for section in keys]
    return [(section, _groups(blocks)) for section, blocks in found if blocks]


def _groups(blocks: Sequence[Block]) -> tuple[Group, ...]:
    """Blocks in their order; those of one fold, and the two columns of a section, stand together at the place of the first."""
    made: dict[str, Group] = {}
    for place, block in enumerate(blocks):
        if block.fold:
            mine = [replace(one, fold="") for one in blocks if one.fold == block.fold]
            made.setdefault(f"fold {block.fold}", Group(title=block.fold, inner=() if block.fold in made else _groups(mine)))
        elif block.column:
            columns = tuple(tuple(one for one in blocks if one.column == column and not one.fold) for column in (1, 2))
            made.setdefault("columns", Group(columns=tuple(column for column in columns if column)))
        else:
            made[str(place)] = Group(blocks=(block,))
    return tuple(made.values())


def _wide(table: Table) -> Table:
    """The table as a page shows it: figures stand for what plain media draw with signs."""
    return without(table, "plain")


def data_block(data: object) -> Markup:
    """JSON for a data block of the page, which only `<` could end early."""
    text = msgspec.json.encode(data).decode("utf-8")
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 - JSON, escaped here


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - heavy, and only this output needs it

    script: str = get_plotlyjs()
    return script


def _policy(*scripts: str) -> str:
    """The content security policy: nothing but these scripts, inline styles, and images from the page itself."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


@cache
def _template() -> Any:
    import jinja2  # noqa: PLC0415 - only this output needs it

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("diagnose.render.writers", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
    )
    environment.filters |= {"short": _short, "address": _address, "wide": _wide, "kind": lambda content: type(content).__name__.lower()}
    environment.tests |= {"long": lambda text: len(text) > LONGEST_SHOWN}
    return environment.get_template("page.html.j2")


def _finalized(value: object) -> object:
    """Every value that is printed: texts lose control signs, changes of direction, and length beyond reason."""
    if isinstance(value, str) and not isinstance(value, Markup):
        shown = units.glued(units.visible(value[:LONGEST_KEPT]))
        return shown if len(value) <= LONGEST_KEPT else f"{shown}… ({len(value) - LONGEST_KEPT:,} more)"
    return value


def _short(name: str) -> str:
    return units.shorten(name, LONGEST_SHOWN)


def _address(text: str) -> str:
    """`text` if it is nothing but a web address, else an empty text."""
    return text if _ADDRESS.fullmatch(text) else ""
