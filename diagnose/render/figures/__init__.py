"""Figures: each is described once (`figure`), by one builder module for each topic, and drawn by `svg` and by `plotly`."""

from __future__ import annotations

from diagnose.document.bisection import Bisection
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.render.figures import bisection, comparison, ranks, step
from diagnose.render.figures.figure import Figure


def figures_of(document: Diagnosis | Comparison | Bisection) -> dict[str, Figure]:
    """Every figure of a document that has something to show, by its key."""
    if isinstance(document, Diagnosis):
        drawn = [*step.figures(document), *ranks.figures(document)]
    else:
        drawn = list(comparison.figures(document) if isinstance(document, Comparison) else bisection.figures(document))
    return {figure.key: figure for figure in drawn}
