"""What every HTML page is made of: one file, offline, without a single request, readable without JavaScript, in print and in the dark.

Every figure stands in the page as SVG; where scripts run plotly draws it from the same description, to be zoomed.
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
from diagnose.render.figures import plotly, svg
from diagnose.render.figures.figure import Figure

LONGEST_SHOWN = 110
LONGEST_KEPT = 6_000
MOST_ROWS = 200
_ADDRESS = re.compile(r"https://[\w.~:/?#@!$&'()*+,;=%-]{1,300}")


def filled(template: str, figures: Mapping[str, Figure], *, script: str = "", **values: object) -> str:
    """The page made from a template of this package, its figures (by key), and an own script after the one that draws."""
    library, boot = plotly.library(), plotly.BOOT + script
    return _template(template).render(
        policy=_policy(library, boot),
        figures_json=data_block(plotly.data(figures)),
        plotly=Markup(library),  # noqa: S704 - plotly's own script
        boot=Markup(boot),  # noqa: S704 - our own script
        figures=figures,
        drawing=lambda figure: Markup(svg.draw(figure)),  # noqa: S704 - our own drawer, which escapes
        legend=lambda figure: Markup(svg.legend(figure)),  # noqa: S704 - our own drawer, which escapes
        words=words,
        units=units,
        most_rows=MOST_ROWS,
        **values,
    )


def data_block(data: object) -> Markup:
    """JSON for a data block of the page, which only `<` could end early."""
    text = msgspec.json.encode(data).decode("utf-8")
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 - JSON, escaped here


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
