"""The tables of a bisection, the same in every output. Cells are plain text that may come from anywhere: each output makes it harmless."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from diagnose.document.bisection import Bisection, Candidate, Culprit, Trial
from diagnose.render import units
from diagnose.render.report import Row, Table, rows_of
from diagnose.render.reports.bisection import story
from diagnose.render.reports.comparison import tables as compared
from diagnose.render.reports.comparison.story import value

LONGEST_TEXT = 400
MOST_ROWS = 400  # rows that are all shown; of longer tables each output shows what it has room for
MOST_AROUND = 12  # candidates that are all shown where there is room for few
NEAR = 3  # of more so many on either side of a step
_STRIP = 26


def candidates(document: Bisection) -> Table:
    """What was tried, in the order of the candidates, with intervals; these as strips of signs too, for media without figures."""
    found = [one for one in document.candidates if one.state != "untested"]
    low, high = bounds(document)
    culprits = {one.label for one in document.culprits if not one.among}
    left = len(document.candidates) - len(found)
    note = f"{units.plural(left, 'other candidate')} did not have to be measured." if left else ""
    return Table(
        "candidates",
        "What was measured",
        tuple(
            Row(
                {
                    story.NOUN[document.kind]: story.short(one.label),
                    f"#{story.metric(document.metric, document.window)}": value(one.value, document.unit)
                    if one.value is not None
                    else units.MISSING,
                    "~$value and 95 % interval": strip(one, low, high),
                    "level": f"{story.LOOK[one.state].label}{' ◄' if one.label in culprits else ''}",
                    "#captures?": str(one.trials) if one.trials else units.MISSING,
                    "#95 % interval?": _interval(one, document.unit),
                    "subject?": one.subject[:LONGEST_TEXT],
                },
                strong=one.label in culprits,
            )
            for one in found
        ),
        note=f"{note} ◄: the step is there.".strip() if culprits else note,
        whole=len(found) <= MOST_ROWS,
    )


def around_steps(table: Table) -> Table | None:
    """The first and last candidate and those next to each step (or in the middle); None where all are few enough to be shown."""
    rows = table.rows
    if len(rows) <= MOST_AROUND:
        return None
    steps = [place for place, row in enumerate(rows) if row.strong] or [len(rows) // 2]
    near = [place for place in range(len(rows)) if place in (0, len(rows) - 1) or any(abs(place - step) <= NEAR for step in steps)]
    note = f"{units.plural(len(rows) - len(near), 'candidate')} further away left out."
    return replace(table, rows=tuple(rows[place] for place in near), note=note, whole=True)


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
    return Table("trials", "All runs", rows_of(_trial(document, one) for one in document.trials), whole=len(document.trials) <= MOST_ROWS)


def _trial(document: Bisection, one: Trial) -> dict[str, str]:
    def amount(number: float) -> str:
        return value(number, document.unit)

    return {
        "run": str(one.number),
        story.NOUN[document.kind]: story.short(document.candidates[one.candidate].label),
        "outcome": one.state,
        "#median": amount(statistics.median(one.values)) if one.values else units.MISSING,
        "#values?": str(len(one.values)) if one.values else units.MISSING,
        "#from … to?": f"{amount(min(one.values))} to {amount(max(one.values))}" if len(one.values) > 1 else units.MISSING,
        "why?": one.text[:LONGEST_TEXT],
    }


def skipped(document: Bisection) -> Table:
    """Candidates that gave no value, with the last reason."""
    reasons = {one.candidate: one.text for one in document.trials if one.state != "measured"}
    found = [(one, reasons.get(index, "")) for index, one in enumerate(document.candidates) if one.state == "skipped"]
    rows = rows_of({story.NOUN[document.kind]: story.short(one.label), "why": text[:LONGEST_TEXT] or "not told"} for one, text in found)
    return Table("skipped", "Skipped", rows, empty="none", whole=len(found) <= MOST_ROWS)


def moved(culprit: Culprit, number: int) -> Sequence[Table]:
    """What moved with one step: the reconciled delta, kernels, waits (overlap), what changed around the code.

    Nothing without a comparison.
    """
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
