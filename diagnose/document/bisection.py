"""The result of a bisection, schema `bisect/1`: which candidate changed a metric, and how sure that is.

A candidate is a commit, an artefact of a list, or a trace, in their order from good to bad. Conventions are those of the diagnosis
document. The same log gives the same bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from diagnose.document.comparison import Comparison, Window
from diagnose.document.diagnosis import Tool

SCHEMA = "bisect/2"
TrialState = Literal["measured", "failed", "unusable", "skipped", "left_out", "retried"]
CandidateState = Literal["good", "bad", "between", "outside", "cannot_tell", "skipped", "untested"]
Kind = Literal["commits", "items", "traces"]
BisectResult = Literal["found", "several", "range", "ends_alike", "cannot_tell"]


class Trial(Struct, frozen=True, kw_only=True):
    """One run of one candidate.

    `values`: the metric of each step; `document`: bare name of its saved diagnosis; `text`: why there is none. `state`: it gave values; its
    command failed (tried again, it may have been a mishap); it left nothing to measure; its command asked to skip it (code 125); the user
    left it out (what it gave before does not count); the user asked to try it again (what failed before does not count).
    """

    candidate: int  # place in the order
    number: int  # from 1, in order of running
    state: TrialState
    values: tuple[float, ...] = ()
    document: str | None = None
    text: str = ""


class Candidate(Struct, frozen=True, kw_only=True):
    """One candidate. `value` is the median over its trials, `low` and `high` its 95 % interval; all None where it was not measured."""

    label: str
    subject: str
    state: CandidateState
    trials: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Culprit(Struct, frozen=True, kw_only=True):
    """One step of the metric: it moved with `label`, against `before`, the last candidate measured ahead of it.

    `among`: candidates between the two that could not be measured, so that one of them may be it. `taken_back_by`: the label of the later
    step with which the metric went back to where it was before this one; None where it lasts. `author`, `date` (ISO 8601, the author's) and
    `diff_stat` (files changed, lines added and removed) of a commit; None of anything else.
    """

    label: str
    subject: str
    message: str
    before: str
    base: float
    new: float
    relative: float | None
    among: tuple[str, ...] = ()
    comparison: Comparison | None = None
    taken_back_by: str | None = None
    author: str | None = None
    date: str | None = None
    diff_stat: str | None = None


class Bisection(Struct, frozen=True, kw_only=True):
    """The whole document.

    `noise`: the relative standard deviation of one trial's value around its candidate's level, None where it can't be told.
    """

    schema: str
    tool: Tool
    metric: str
    unit: str
    result: BisectResult
    sentence: str
    good: str
    bad: str
    good_value: float | None
    bad_value: float | None
    noise: float | None
    monotone: bool
    culprits: tuple[Culprit, ...]
    candidates: tuple[Candidate, ...]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
    kind: Kind = "commits"
    order: str = ""  # how the candidates were put in order, as a sentence
    larger_is_worse: bool
    window: Window = "step"  # what times are of
    max_regression: float | None = None  # the change that is allowed, as asked for
    command: tuple[str, ...] = ()  # what repeats the search, a word each


def decode(data: bytes) -> Bisection:
    """A Bisection from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Bisection)
