"""The words and colours that every output of a bisection shares."""

from __future__ import annotations

import re

from diagnose.document.bisection import BisectResult, CandidateState, Kind, TrialState
from diagnose.render.reports.comparison.words import metric

__all__ = ["COLOUR", "NOUN", "NOUNS", "RESULT", "STATE", "TRIAL", "metric", "short"]

RESULT: dict[BisectResult, str] = {
    "found": "Found",
    "several": "Several steps",
    "range": "Narrowed down",
    "ends_alike": "The ends are alike",
    "cannot_tell": "Can't tell",
}
STATE: dict[CandidateState, str] = {
    "good": "as the good end",
    "bad": "as the bad end",
    "between": "between the ends",
    "outside": "beyond both ends",
    "cannot_tell": "can't tell",
    "skipped": "skipped",
    "untested": "not needed",
}
COLOUR: dict[CandidateState, str] = {
    "good": "#0072b2",
    "bad": "#d55e00",
    "between": "#8a2f7d",
    "outside": "#00704d",
    "cannot_tell": "#6b7683",
    "skipped": "#6b7683",
    "untested": "#6b7683",
}
TRIAL: dict[TrialState, str] = {"measured": "measured", "failed": "failed", "unusable": "unusable"}
NOUN: dict[Kind, str] = {"commits": "commit", "items": "item", "traces": "trace"}
NOUNS: dict[Kind, str] = {"commits": "commits", "items": "items", "traces": "traces"}
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST = 60


def short(label: str) -> str:
    """A label in a sentence: of a full commit hash its beginning, of a long name its end."""
    if _HASH.fullmatch(label):
        return label[:12]
    return label if len(label) <= _LONGEST else f"…{label[1 - _LONGEST :]}"
