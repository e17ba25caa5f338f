"""The forecast document, schema `forecast/1`: what a step would take after changes, replayed with what each operation waited for.

Conventions are those of the diagnosis document: integer nanoseconds in fields named `_ns`, None for what can't be told. A delta is likely
less now: negative means less time. Same trace, rules and questions give the same bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from diagnose.document.device import Timeline
from diagnose.document.diagnosis import Expected, Identity, PlanSetting, Tool
from diagnose.document.notebook import Writable
from diagnose.model.vocabulary import FixState, Wall

SCHEMA = "forecast/1"
Basis = Literal["measured", "inferred", "assumed"]  # what an ingredient rests on; a published figure of another job is assumed here


class Span(Struct, frozen=True, kw_only=True):
    """A time now and after the changes: in the best case, likely, and in the worst. now ≥ 0, low ≤ likely ≤ high."""

    now: int
    low: int
    likely: int
    high: int


class Question(Struct, frozen=True, kw_only=True):
    """One change that was asked about: a fix, or words of the command line (then `fix` is None)."""

    id: str
    title: str
    fix: str | None = None
    state: FixState | None = None  # of the fix in this job; None: it is no finding's
    changes: tuple[PlanSetting, ...] = ()
    published: tuple[Expected, ...] = ()
    verify: str = ""
    cost: str = ""
    note: str = ""  # what stands against it here: blocked, on already, or not known


class Ingredient(Struct, frozen=True, kw_only=True):
    """One thing that a forecast is made of: `question` is the id of the question that brought it, "" what holds for all."""

    question: str
    text: str
    basis: Basis
    source: str


class Step(Struct, frozen=True, kw_only=True):
    """One kept step of the capture."""

    index: int
    now_ns: int
    likely_ns: int


class Category(Struct, frozen=True, kw_only=True):
    """An exclusive category of all kept steps together (those of a comparison), now and likely. Deltas add up to that of the steps."""

    category: str
    now_ns: int
    likely_ns: int
    delta_ns: int


class Ceiling(Struct, frozen=True, kw_only=True):
    """A bound of the diagnosis below which no change of its kind can bring the step; the forecast was cut off there."""

    question: str
    finding: str
    bound_ns: int


class Refused(Struct, frozen=True, kw_only=True):
    """A question without an answer (`question`: its id, "" all of them), why, and what to do."""

    question: str
    reason: str
    next_step: str


class Planned(Struct, frozen=True, kw_only=True):
    """One change of a sequence, with the mean step after it and all before it.

    `alone_ns` is what it would save by itself, `saves_ns` what it saves after those before it (both likely, per step): they differ where
    two changes win the same time.
    """

    question: str
    title: str
    step_ns: Span
    saves_ns: int
    alone_ns: int | None
    why: str = ""  # why it saves less, or more, than alone


class Forecast(Writable, Struct, frozen=True, kw_only=True):
    """The whole document. `step_ns` is the mean of the kept steps, `sum_ns` their sum; both None where nothing can be told (`refused`)."""

    schema: str
    tool: Tool
    identity: Identity | None
    rank: int | None
    device: int | None
    sentence: str
    questions: tuple[Question, ...]
    step_ns: Span | None
    sum_ns: Span | None
    steps: tuple[Step, ...] = ()
    categories: tuple[Category, ...] = ()
    ingredients: tuple[Ingredient, ...] = ()
    assumptions: tuple[str, ...] = ()  # what the replay itself takes for granted
    capped_by: tuple[Ceiling, ...] = ()
    doubt: str = ""  # why it is of low certainty: it goes beyond what was tried
    refused: tuple[Refused, ...] = ()
    plan: tuple[Planned, ...] = ()
    planned: bool = False  # the questions were chosen by a search, not asked
    searched: int = 0  # sets of fixes that the search replayed
    target_wall: Wall | None = None
    now: Timeline | None = None  # the shown step
    likely: Timeline | None = None  # the same step afterwards, on the same scale

    def __repr__(self) -> str:
        """The result in a line."""
        return f"<Forecast: {self.sentence}>"


def decode(data: bytes) -> Forecast:
    """A Forecast from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Forecast)
