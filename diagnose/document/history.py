"""The history of a metric over the runs of one job, schema `history/1`: every run, and where the metric stepped.

Conventions are those of the diagnosis document. The same runs and options give the same bytes.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from diagnose.document.comparison import Window
from diagnose.document.diagnosis import Tool

SCHEMA = "history/1"


class HistoryRun(Struct, frozen=True, kw_only=True):
    """One run. `value`: the median of its steps, in the metric's unit; None where it gave none, and `problem` says why.

    `date` (UTC, ISO 8601) and `commit` as they were told, else None. `level`: the level of the runs between the steps around it.
    `categories`:
    its median step by exclusive category, in ns, which add up to that step; empty where the capture does not hold them.
    """

    label: str
    date: str | None
    commit: str | None
    value: float | None
    steps: int
    level: float | None
    categories: dict[str, int]
    problem: str = ""


class CategoryMove(Struct, frozen=True, kw_only=True):
    """One exclusive category across a step: the medians of the runs before and after it, up to the next steps, in ns."""

    category: str
    base_ns: int
    new_ns: int
    delta_ns: int


class HistoryStep(Struct, frozen=True, kw_only=True):
    """One step of the metric: after the run `before`, with `last` at the latest, most probably (`chance`, 0 to 1) with `label`.

    All three are labels of runs. `base` and `new` are the levels before and after it, `relative` its size. `base_commit` and `commit`:
    those of the runs `before` and `last`. `taken_back_by`: the label of the later step after which the metric is where it was before.
    `moved`: the categories that it consists of, largest first.
    """

    label: str
    chance: float
    before: str
    last: str
    base: float
    new: float
    relative: float | None
    base_commit: str | None
    commit: str | None
    taken_back_by: str | None
    moved: tuple[CategoryMove, ...]


class HistoryTrend(Struct, frozen=True, kw_only=True):
    """The metric creeps: a straight line says more of its runs than levels and steps do.

    `base` and `new`: the line at the first and the last run, `relative` the size of that. `evidence`: the difference of the Bayesian
    information criteria of steps and line; above 10 it is called very strong. `moved`: the categories that it consists of, by the
    medians of the first and the last third of the runs, largest first.
    """

    base: float
    new: float
    relative: float | None
    evidence: float
    moved: tuple[CategoryMove, ...]


class History(Struct, frozen=True, kw_only=True):
    """The whole document. `noise`: the relative standard deviation of a run around its level, None where there are too few runs."""

    schema: str
    tool: Tool
    name: str
    metric: str
    unit: str
    larger_is_worse: bool
    sentence: str
    noise: float | None
    runs: tuple[HistoryRun, ...]
    steps: tuple[HistoryStep, ...]
    order: str = ""  # how the runs were put in order, as a sentence
    notes: tuple[str, ...] = ()
    window: Window = "step"  # what times are of
    gradual: HistoryTrend | None = None  # None: it steps, or stays; no step is told of what creeps


def decode(data: bytes) -> History:
    """A History from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=History)
