"""The bisection as one HTML file, made as the report of a diagnosis is: offline, readable without JavaScript, in print and in the dark."""

from __future__ import annotations

from diagnose.document.bisection import Bisection, BisectResult
from diagnose.render import page
from diagnose.render.comparison.html import LOOK as COMPARISON_LOOK
from diagnose.render.figures import figures_of
from diagnose.render.options import Options
from diagnose.render.reports.bisection import story, tables
from diagnose.render.reports.bisection import words as own

TALL = 24  # rows from which a table scrolls in a frame of its own
# What the result's box is coloured by, as that of a comparison.
LOOK: dict[BisectResult, str] = {
    "found": COMPARISON_LOOK["regression"],
    "several": COMPARISON_LOOK["regression"],
    "range": COMPARISON_LOOK["cannot_tell"],
    "ends_alike": COMPARISON_LOOK["no_change"],
    "cannot_tell": COMPARISON_LOOK["cannot_tell"],
}


def render(document: Bisection, _options: Options) -> str:
    """The whole page."""
    return page.filled(
        "bisection.html.j2",
        figures_of(document),
        b=document,
        look=LOOK[document.result],
        own=own,
        story=story,
        culprits=[(culprit, tables.moved(culprit, number)) for number, culprit in enumerate(document.culprits, 1)],
        candidates=tables.candidates(document, drawn=False),
        skipped=tables.skipped(document),
        trials=tables.trials(document),
        tall=TALL,
    )
