"""The diagnosis as one HTML file: offline, without a single request, readable without JavaScript, in print and in the dark.

Every figure exists twice, from the same numbers: drawn by the browser from HTML and SVG alone, and by plotly where scripts run.
The content security policy allows exactly our two scripts, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from diagnose.diagnosis import Diagnosis
from diagnose.render import appendix, drawings, figures, rank_compare, rank_page, story, tables, units, words
from diagnose.render.options import Options
from diagnose.render.tables import Table

LONGEST_SHOWN = 110
LONGEST_KEPT = 6_000
MOST_DEVICES = 8
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


def render(document: Diagnosis, _options: Options) -> str:
    """The whole page."""
    ranks = rank_page.page(document)
    drawn = dict(_figures(document)) | ({} if ranks is None else ranks.figures)
    plotly, boot = _plotly(), BOOT + (rank_compare.SCRIPT if ranks is not None and ranks.comparison is not None else "")
    return _template().render(
        d=document,
        policy=_policy(plotly, boot),
        figures_json=_data_block({key: figure for key, (figure, _) in drawn.items()}),
        ranks=ranks,
        compare_json=_data_block(None if ranks is None or ranks.comparison is None else ranks.comparison.data),
        plotly=Markup(plotly),  # noqa: S704 - plotly's own script
        boot=Markup(boot),  # noqa: S704 - our own script
        drawings={key: drawing for key, (_, drawing) in drawn.items()},
        walls=tables.walls(document),
        devices=[_device(document, budget.rank, budget.device, index) for index, budget in enumerate(_devices(document))],
        more_devices=max(0, len(document.budget) - MOST_DEVICES),
        problems=appendix.job_problems(document),
        findings=story.ordered_findings(document),
        tables=_appendix(document),
        unclassified=tables.unclassified(document),
        not_assessed=appendix.not_assessed(document),
        capture=appendix.capture(document),
        ledger=appendix.ledger(document),
        words=words,
        units=units,
        story=story,
        shown_parts=tables.shown_parts,
        known_parts=tables.known_parts,
        whole=tables.whole(document),
        most_rows=MOST_ROWS,
        lost=any(entry.severity in ("data_loss", "error") for entry in document.ledger),
        gpu=", ".join(dict.fromkeys(device.name or "GPU name not recorded" for device in document.capture.devices)),
    )


def _data_block(data: object) -> Markup:
    """JSON for a data block of the page, which only `<` could end early."""
    text = msgspec.json.encode(data).decode("utf-8")
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 - JSON, escaped here


def _devices(document: Diagnosis) -> list[Any]:
    """The devices in their order, the one that the verdict speaks of first, at most MOST_DEVICES."""
    first = tables.focus(document)
    return sorted(document.budget, key=lambda one: one is not first)[:MOST_DEVICES]


def _device(document: Diagnosis, rank: int, device: int, index: int) -> dict[str, Any]:
    budget = next(one for one in document.budget if (one.rank, one.device) == (rank, device))
    return {
        "label": tables.device_label(rank, device),
        "first": index == 0,
        "budget": tables.budget(document, budget),
        "steps": tables.budget_steps(budget),
        "buckets": tables.buckets(document, rank, device),
        "communication": tables.communication(document, rank, device),
        "blocking": tables.blocking(document, rank, device),
        "host": tables.host(document, rank, device),
    }


def _appendix(document: Diagnosis) -> list[Table]:
    return [
        appendix.memory(document),
        appendix.fill(document),
        appendix.occupancy(document),
        appendix.job(document),
        *[table for table in (appendix.job_sizes(document),) if table.rows],
        appendix.totals(document),
        appendix.tables_read(document),
        appendix.facts(document),
    ]


# --- figures ----------------------------------------------------------------------------------------------------------


def _figures(document: Diagnosis) -> Iterator[tuple[str, tuple[figures.Figure, drawings.Drawing]]]:
    """Key, plotly figure and static drawing of each figure that has something to show."""
    device = tables.focus(document)
    if device is None:
        return
    label, rank, number = tables.device_label(device.rank, device.device), device.rank, device.device
    longest = f" The first {figures.MOST_STEPS} steps are drawn." if len(device.per_step) > figures.MOST_STEPS else ""
    plain = (
        (
            "budget",
            "Where the capture went" if document.steps.anchor == "capture" else "Where each step went",
            f"{label}. The parts of a bar add up to its window, exactly.{longest}",
            figures.budget(document, device),
        ),
        (
            "buckets",
            "Buckets: busy and exclusive time",
            f"{label}, {tables.median_per(document)}. Buckets overlap in time.",
            figures.buckets(document, rank, number),
        ),
        (
            "communication",
            "Communication: exposed and hidden",
            f"{label}, {tables.median_per(document)}. Exposed is an upper bound; only blocking time makes a bottleneck.",
            figures.communication(document, rank, number),
        ),
    )
    for key, title, caption, figure in plain:
        if any(trace["x"] for trace in figure["data"]):
            yield key, (figure, drawings.stacked(key, title, caption, figure))
    if document.timeline is not None:
        yield "timeline", (figures.timeline(document.timeline), _timeline(document))


def _timeline(document: Diagnosis) -> drawings.Drawing:
    """The static form of the timeline: one lane per stream, and one for the gaps."""
    found = document.timeline
    if found is None:
        raise ValueError("no timeline")
    figure = figures.timeline(found)
    lanes: dict[str, list[drawings.Part]] = {lane: [] for lane in figure["layout"]["yaxis"]["categoryarray"]}
    scale = 100 / (figure["layout"]["xaxis"]["range"][1] or 1)
    for trace in figure["data"]:
        for lane, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True):
            lanes[lane].append(drawings.part_of(trace, base * scale, length * scale, f"{length:,.3f} ms"))
    _, omitted = figures.drawn(found)
    short = f" {units.plural(omitted, 'bar')} too short to draw." if omitted else ""
    window = "The whole capture" if document.steps.anchor == "capture" else f"Step {found.step}"
    return drawings.Drawing(
        key="timeline",
        title="Timeline of one step by stream" if document.steps.anchor != "capture" else "Timeline by stream",
        caption=f"{window} on {tables.device_label(found.rank, found.device)}, {units.ms(found.end_ns - found.start_ns)} ms. Above the streams: when no compute ran, and why.{short}",
        bars=tuple(drawings.Bar(label=lane, text="", parts=tuple(parts)) for lane, parts in lanes.items()),
        legend=drawings.legend_of(figure["data"]),
        timeline=True,
    )


# --- page -------------------------------------------------------------------------------------------------------------


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
def _template() -> jinja2.Template:
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
    return environment.get_template("report.html.j2")


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
