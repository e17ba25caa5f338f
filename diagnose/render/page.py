"""What every HTML page is made of: one file, offline, without a single request, readable without JavaScript, in print and in the dark.

Every figure exists twice, from the same numbers: drawn by the browser from HTML and SVG alone, and by plotly where scripts run.
The content security policy allows exactly our two scripts, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache

import jinja2
import msgspec
from markupsafe import Markup

from diagnose.render import units, words
from diagnose.render.drawings import Drawing
from diagnose.render.figures import Figure

LONGEST_SHOWN = 110
LONGEST_KEPT = 6_000
MOST_ROWS = 200
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


def filled(template: str, drawn: Mapping[str, tuple[Figure, Drawing]], *, script: str = "", **values: object) -> str:
    """The page made from a template of this package, its figures (by key), and an own script after the one that draws."""
    plotly, boot = _plotly(), BOOT + script
    return _template(template).render(
        policy=_policy(plotly, boot),
        figures_json=data_block({key: figure for key, (figure, _) in drawn.items()}),
        plotly=Markup(plotly),  # noqa: S704 - plotly's own script
        boot=Markup(boot),  # noqa: S704 - our own script
        drawings={key: drawing for key, (_, drawing) in drawn.items()},
        words=words,
        units=units,
        most_rows=MOST_ROWS,
        **values,
    )


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
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("diagnose.render", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
    )
    environment.filters |= {"short": _short, "address": _address}
    environment.tests |= {"long": lambda text: len(text) > LONGEST_SHOWN}
    return environment.get_template(name)


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
