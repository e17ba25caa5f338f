"""The words, colours and sentences of a bisection that every output says alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.document.bisection import Bisection, BisectResult, CandidateState, Culprit, Kind
from diagnose.document.comparison import RunRead
from diagnose.render import units
from diagnose.render.figures.figure import Look
from diagnose.render.reports.comparison.story import metric as metric  # noqa: PLC0414 - asked for here with the other words of a bisection
from diagnose.render.reports.comparison.story import value

RESULT: dict[BisectResult, str] = {
    "found": "Found",
    "several": "Several steps",
    "range": "Narrowed down",
    "ends_alike": "The ends are alike",
    "cannot_tell": "Can't tell",
}
LOOK: dict[CandidateState, Look] = {  # shapes beside colours, so that neither is needed alone
    "good": Look("as the good end", "#0072b2", shape="circle"),
    "bad": Look("as the bad end", "#d55e00", shape="square"),
    "between": Look("between the ends", "#8a2f7d", shape="diamond"),
    "outside": Look("beyond both ends", "#00704d", shape="triangle"),
    "cannot_tell": Look("can't tell", "#6b7683", shape="ring"),
    "skipped": Look("skipped", "#6b7683", shape="cross"),
    "untested": Look("not needed", "#6b7683", shape="ring"),
}
NOUN: dict[Kind, str] = {"commits": "commit", "items": "item", "traces": "trace"}
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST = 60


def short(label: str) -> str:
    """A label in a sentence: of a full commit hash its beginning, of a long name its end."""
    if _HASH.fullmatch(label):
        return label[:12]
    return label if len(label) <= _LONGEST else f"…{label[1 - _LONGEST :]}"


def headline(document: Bisection) -> str:
    """The result in a word or two."""
    return RESULT[document.result]


def effort(document: Bisection) -> str:
    """How much was run."""
    tried = sum(one.state != "untested" for one in document.candidates)
    runs = units.plural(len(document.trials), "run")
    without = sum(one.state == "skipped" for one in document.candidates)
    failed = f", {without:,} of which gave no value" if without else ""
    return f"{runs} of {units.plural(tried, NOUN[document.kind])} out of {len(document.candidates):,}{failed}"


def noise(document: Bisection) -> str:
    """The noise between captures."""
    return "noise between captures not known" if document.noise is None else f"noise between captures {units.percent(document.noise)}"


def ends(document: Bisection) -> str:
    """Both ends with their values."""
    return (
        f"good end {short(document.good)} {value(document.good_value, document.unit)}, "
        f"bad end {short(document.bad)} {value(document.bad_value, document.unit)}"
    )


def title_of(document: Bisection, culprit: Culprit) -> str:
    """What a step is called: its candidate, or the stretch that holds it."""
    if culprit.among:
        count = len(culprit.among) + 1
        return f"One of {count} {document.kind} up to {short(culprit.label)}"
    return f"{NOUN[document.kind].capitalize()} {short(culprit.label)}"


def change_of(document: Bisection, culprit: Culprit) -> str:
    """How the metric moved with a step."""
    moved = f"{value(culprit.base, document.unit)} → {value(culprit.new, document.unit)}"
    return f"{metric(document.metric)} {moved}{units.bracketed(culprit.relative)}"


def origin(culprit: Culprit) -> str:
    """Who made a commit, when, and how much it changes; empty of anything else."""
    return " · ".join(part for part in (culprit.author, culprit.date, culprit.diff_stat) if part)


def compared(culprit: Culprit) -> str:
    """What the tables of a step compare: captures, whose difference is not quite that of the levels of all captures."""
    found = culprit.comparison
    before = _compared(culprit.before, () if found is None else found.base.runs, "up to {}")
    after = _compared(culprit.label, () if found is None else found.new.runs, "from {} on")
    return f"Below: {before} against {after}; the change above is between the levels of all captures, so the two may differ a little."


def _compared(label: str, runs: Sequence[RunRead], several: str) -> str:
    """One side: a candidate with its captures, or several traces."""
    count = units.plural(len(runs), "capture")
    if len({one.label for one in runs}) > 1:
        return f"{count} {several.format(short(label))}"
    return f"{short(label)}{f' ({count})' if len(runs) > 1 else ''}"


def among(document: Bisection, culprit: Culprit) -> str:
    """The candidates that could be it, where they are several."""
    names = [short(label) for label in (*culprit.among, culprit.label)]
    return (
        f"It is one of {units.listed(names, 30)}. The {document.kind} among them could not be measured, or their captures did not decide."
    )


def shape(document: Bisection) -> str:
    """That the metric goes up and down; empty where it does not."""
    return "" if document.monotone else "The metric does not go one way: between the ends it steps back as well."
