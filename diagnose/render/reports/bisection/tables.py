"""The tables of a bisection, the same in every output. Cells are plain text that may come from anywhere: each output makes it harmless."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from diagnose.document.bisection import Bisection, Candidate, Culprit
from diagnose.render import units
from diagnose.render.reports.bisection import story
from diagnose.render.reports.comparison import tables as compared
from diagnose.render.reports.comparison.story import value
from diagnose.render.report import Column, Row, Table, columns

LONGEST_TEXT = 400
MOST_ROWS = 400  # rows that are all shown; of longer tables each output shows what it has room for
_STRIP = 26


def shown_candidates(document: Bisection) -> list[Candidate]:
    """The candidates that were tried, in their order."""
    return [one for one in document.candidates if one.state != "untested"]


def candidates(document: Bisection) -> Table:
    """What was tried, in the order of the candidates, with intervals; these as strips of signs too, for media without figures."""
    found = shown_candidates(document)
    low, high = bounds(document)
    culprits = {one.label for one in document.culprits if not one.among}
    rows = []
    for one in found:
        here = one.label in culprits
        cells = [
            story.short(one.label),
            value(one.value, document.unit) if one.value is not None else units.MISSING,
            strip(one, low, high),
            f"{story.STATE[one.state]}{' ◄' if here else ''}",
            str(one.trials) if one.trials else units.MISSING,
            _interval(one, document.unit),
            one.subject[:LONGEST_TEXT],
        ]
        rows.append(Row(cells=tuple(cells), strong=here))
    strips = Column(label="value and 95 % interval", kind="name", only="plain")
    heads = columns(story.NOUN[document.kind], f"#{story.metric(document.metric)}", "level", "#captures?", "#95 % interval?", "subject?")
    left = len(document.candidates) - len(found)
    note = f"{units.plural(left, 'other candidate')} did not have to be measured." if left else ""
    note = f"{note} ◄: the step is there.".strip() if culprits else note
    return Table(
        key="candidates",
        title="What was measured",
        columns=(*heads[:2], strips, *heads[2:]),
        rows=tuple(rows),
        note=note,
        whole=len(rows) <= MOST_ROWS,
    )


def _interval(one: Candidate, unit: str) -> str:
    if one.low is None or one.high is None:
        return units.MISSING
    return f"{value(one.low, unit)} to {value(one.high, unit)}"


def bounds(document: Bisection) -> tuple[float, float]:
    """The least and the greatest of all values and intervals, a little apart where all are the same."""
    found = [number for one in document.candidates for number in (one.value, one.low, one.high) if number is not None]
    if not found:
        return 0.0, 1.0
    low, high = min(found), max(found)
    return (low, high) if high > low else (low - (abs(low) or 1.0) / 100, high + (abs(high) or 1.0) / 100)


def strip(one: Candidate, low: float, high: float) -> str:
    """A candidate's value and interval on a line of signs."""
    if one.value is None or one.low is None or one.high is None:
        return ""
    places = [round((number - low) / (high - low) * (_STRIP - 1)) for number in (one.low, one.value, one.high)]
    left, middle, right = (min(max(place, 0), _STRIP - 1) for place in places)
    signs = ["·"] * _STRIP
    signs[left : right + 1] = ["─"] * (right + 1 - left)
    signs[middle] = "●"
    return "".join(signs)


def trials(document: Bisection) -> Table:
    """Every run, in the order of running."""
    rows = []
    for one in document.trials:
        label = document.candidates[one.candidate].label
        middle = value(statistics.median(one.values), document.unit) if one.values else units.MISSING
        spread = f"{value(min(one.values), document.unit)} to {value(max(one.values), document.unit)}" if len(one.values) > 1 else ""
        rows.append(
            Row(
                cells=(
                    str(one.number),
                    story.short(label),
                    story.TRIAL[one.state],
                    middle,
                    str(len(one.values)) if one.values else units.MISSING,
                    spread or units.MISSING,
                    one.text[:LONGEST_TEXT],
                )
            )
        )
    return Table(
        key="trials",
        title="All runs",
        columns=columns("run", story.NOUN[document.kind], "outcome", "#median", "#values?", "#from … to?", "why?"),
        rows=tuple(rows),
        whole=len(rows) <= MOST_ROWS,
    )


def skipped(document: Bisection) -> Table:
    """Candidates that gave no value, with the last reason."""
    reasons = {one.candidate: one.text for one in document.trials if one.state != "measured"}
    found = [(one, reasons.get(index, "")) for index, one in enumerate(document.candidates) if one.state == "skipped"]
    return Table(
        key="skipped",
        title="Skipped",
        columns=columns(story.NOUN[document.kind], "why"),
        rows=tuple(Row(cells=(story.short(one.label), text[:LONGEST_TEXT] or "not told")) for one, text in found),
        empty="none",
        whole=len(found) <= MOST_ROWS,
    )


def moved(culprit: Culprit, number: int) -> Sequence[Table]:
    """What moved with one step: the reconciled delta, kernels, waits (overlap), what changed around the code; nothing without a comparison."""
    found = culprit.comparison
    if found is None:
        return ()
    built = (
        compared.mismatches(found),
        compared.environment(found),
        compared.settings(found),
        compared.delta(found),
        compared.kernels(found),
        compared.overlap(found),
    )
    return tuple(replace(table, key=f"{table.key}-{number}") for table in built if table.rows)
