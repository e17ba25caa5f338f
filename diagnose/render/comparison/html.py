"""The comparison as one HTML file, made as the report of a diagnosis is: offline, readable without JavaScript, in print and in the dark."""

from __future__ import annotations

from diagnose.document.comparison import Comparison, Result
from diagnose.render import page
from diagnose.render.figures import figures_of
from diagnose.render.options import Options
from diagnose.render.reports.comparison import story, tables
from diagnose.render.reports.comparison import words as own

TALL = 24  # rows from which a table scrolls in a frame of its own
# What the outcome's box is coloured by; the names are those of the walls in the style sheet.
LOOK: dict[Result, str] = {
    "regression": "result-bad",
    "improvement": "result-good",
    "no_change": "result-same",
    "cannot_tell": "result-open",
    "refused": "result-refused",
}


def render(document: Comparison, _options: Options) -> str:
    """The whole page."""
    return page.filled(
        "comparison.html.j2",
        figures_of(document),
        c=document,
        refused=story.refused(document),
        look=LOOK[document.outcome.result],
        own=own,
        story=story,
        sides=tables.sides(document),
        mismatches=tables.mismatches(document),
        environment=tables.environment(document),
        settings=tables.settings(document),
        effect=tables.effect(document),
        delta=tables.delta(document),
        kernels=tables.kernels(document),
        renamed=tables.renamed(document),
        overlap=tables.overlap(document),
        walls=tables.walls(document),
        findings=story.ordered_findings(document),
        tall=TALL,
    )
