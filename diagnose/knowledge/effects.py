"""Effects of fixes: transformations of a replayed step as fix files tell them. A closed vocabulary, told in trace_rules/README.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Literal, get_args

import polars as pl
from msgspec import Meta

from diagnose.knowledge.conditions import Condition, ConditionError, Expression, Formula, check_types, compile_expression
from diagnose.knowledge.data import Strict
from diagnose.model.vocabulary import ATTENTION, DISPATCH, EXPERT_GEMM, OPTIMIZER, ROUTER, TRAITS

Transformation = Literal["remove", "scale", "detach", "interleave", "delay", "merge", "graph", "resize"]
Basis = Literal["measured", "inferred", "assumed"]  # what an ingredient rests on; a published figure of another job is assumed here
TRANSFORMATIONS: tuple[Transformation, ...] = get_args(Transformation)
_NEEDED: Mapping[Transformation, tuple[str, ...]] = {
    "scale": ("by",),
    "resize": ("by", "to"),
    "graph": ("host_us", "gap_us"),
    "delay": ("until",),
}
_TAKEN: Mapping[Transformation, tuple[str, ...]] = {  # fields that one of them has and the others have not
    "remove": ("with_host",),
    "scale": ("by", "library", "start_us"),
    "detach": ("since", "until", "spread", "parts", "beside", "pieces"),
    "interleave": (),
    "delay": ("until",),
    "merge": ("by", "into"),
    "graph": ("host_us", "launch_us", "gap_us"),
    "resize": ("by", "to", "start_us"),
}
RESIZED = ("micro_batch_size",)  # settings whose law `resize` knows; what others change is a matter of `scale`
PARTS = (ATTENTION, ROUTER, DISPATCH, EXPERT_GEMM, OPTIMIZER)  # buckets that show where in a step an operation stands
Select = Annotated[str, Meta(extra={"kind": "condition", "over": "operations"})]  # a condition over the operations of a replay
# The columns that a SELECT reads: of every host work, call and operation of the graph.
SELECT_COLUMNS: Mapping[str, pl.DataType] = {
    "node": pl.String(),  # host, call or op
    "name": pl.String(),  # of the kernel, copy or call; of host work: what ran meanwhile
    "bucket": pl.String(),  # of host work and calls: that of what is launched next
    "role": pl.String(),
    "phase": pl.String(),
    "comm": pl.String(),  # of transport: what it is for, such as expert
    "exchange": pl.String(),  # of transport: what it does, such as all-reduce (an id of exchanges.yaml)
    "operation": pl.String(),  # what the kernel does, such as gemm
    "backend": pl.String(),  # library of an exchange
    "copy": pl.String(),  # of a copy: h2d, d2h, d2d
    "pinned": pl.Boolean(),  # of a copy, and of host work and calls for one: between page-locked memory and the GPU
    "cause": pl.String(),  # what the host was doing; null for operations
    "replayed": pl.Boolean(),  # launched by a CUDA graph
    **dict.fromkeys(TRAITS, pl.Boolean()),  # what a fact counts: cast for cast_busy_ns, and so on
    "awaited": pl.Boolean(),  # the host waits for it before it goes on
    "after": pl.String(),  # bucket of the operation before it on its stream that shows the part of a layer (PARTS)
    "before": pl.String(),  # the same of the one after it
    "behind": pl.String(),  # bucket of the nearest earlier operation on any stream that is of PARTS and no packing of the exchange,
    "ahead": pl.String(),  # and of the nearest later one: what stands around a permutation
    "head": pl.Boolean(),  # of the head over the vocabulary: a product with no norm's kernel between it and the loss
    "us": pl.Float64(),  # how long it took, in µs
}

OF_BUCKETS = frozenset({"bucket", "after", "before", "behind", "ahead"})  # of these columns those that hold buckets


class EffectSpec(Strict, frozen=True, kw_only=True):
    """One transformation with what it rests on: just one of the first eight, whose value is a SELECT (of `resize`: a setting).

    `by`: factors on durations for the best, the likely and the worst case: numbers, or expressions over facts and job settings. `only`:
    the condition under which it is part of the effect.
    """

    remove: Select | None = None
    scale: Select | None = None
    detach: Select | None = None
    interleave: Select | None = None
    delay: Select | None = None
    merge: Select | None = None
    graph: Select | None = None
    resize: str | None = None
    by: tuple[float | Formula, float | Formula, float | Formula] | None = None
    library: str | None = None  # of `scale` of an exchange: takes it over; `by` only where its bytes and links are not known
    start_us: float | None = None  # of `scale`, `resize`: what an operation takes however little it works; `by` is of the rest
    to: float | Formula | None = None  # of `resize`: how many times the setting
    host_us: tuple[float, float, float] | None = None  # of `graph`: what its launch takes,
    launch_us: float | None = None  # where that of a kernel takes so long; on a slower host so many times longer
    gap_us: tuple[float, float, float] | None = None  # of `graph`: between two of its nodes, where the trace has no graph to show it
    into: int = 1  # of `merge`: how many launches are left of those that follow one another
    with_host: bool = False  # of `remove`: nothing is launched, so the host work for it goes too
    since: Select | None = None  # of `detach`: what the operations are made ready by, share by share
    until: Select | None = None  # of `detach` and `delay`: what waits for them
    spread: bool = False  # of `detach` with `until`: each is waited for by its own share of that, not all by the first
    parts: int = 1  # of `detach`: in how many equal pieces a burst of them goes at least; fewer operations are cut
    beside: Select | None = None  # of `detach`: what each runs beside piece by piece, where it feeds it or is fed by it
    pieces: tuple[int, int, int] | None = None  # of `detach` with `beside`: in how many at the best, likely and worst end; in 1: not at all
    only: Condition | None = None
    basis: Basis
    why: str
    source: str

    @property
    def transformation(self) -> Transformation:
        """Which of the eight it is."""
        return self.named[0]

    @property
    def named(self) -> tuple[Transformation, ...]:
        """The transformations that the entry names; just one in a valid entry."""
        return tuple(name for name in TRANSFORMATIONS if getattr(self, name) is not None)

    def problem(self) -> str | None:
        """What is wrong with the entry, as `field: what`; None where nothing is. What it selects and computes is checked elsewhere."""
        if len(self.named) != 1:
            return f"names {' and '.join(self.named) or 'none'} of {', '.join(TRANSFORMATIONS)}, but has to name just one"
        return next(chain(self._wrong_fields(), self._wrong_values()), None)

    def _wrong_fields(self) -> Iterator[str]:
        """Fields that the transformation needs, or can't have, and those that only go together."""
        one = self.transformation
        if one == "resize" and self.resize not in RESIZED:
            yield f"resize: unknown setting {self.resize}, known are {', '.join(RESIZED)}"
        yield from (f"{name}: {one} needs it" for name in _NEEDED.get(one, ()) if getattr(self, name) is None)
        for name in dict.fromkeys(name for names in _TAKEN.values() for name in names):
            if getattr(self, name) not in (None, False, 1) and name not in _TAKEN[one]:
                yield f"{name}: {one} has no such field"
        if self.spread and self.until is None:
            yield "spread: without `until` there is nothing to spread over"
        if (self.beside is None) != (self.pieces is None):
            yield "beside: goes with `pieces`"
        if self.beside is not None and (self.since is not None or self.until is not None):
            yield "beside: without `since` and `until`"

    def _wrong_values(self) -> Iterator[str]:
        if self.pieces is not None and not self.pieces[0] >= self.pieces[1] >= self.pieces[2] >= 1:
            yield "pieces: low, likely and high have to fall to 1 at least"
        if self.start_us is not None and self.start_us <= 0:
            yield "start_us: more than 0"
        yield from (f"{name}: at least 1" for name in ("parts", "into") if getattr(self, name) < 1)
        for name in ("by", "host_us", "gap_us"):
            numbers = [value for value in getattr(self, name) or () if isinstance(value, int | float)]
            if len(numbers) == 3 and not 0 <= numbers[0] <= numbers[1] <= numbers[2]:
                yield f"{name}: low, likely and high have to rise from 0 on"
        yield from (f"{name}: is empty" for name in ("why", "source") if not getattr(self, name).strip())


def compile_select(text: str) -> Expression:
    """A SELECT, parsed and its columns looked up. Raises ConditionError."""
    return compile_expression(text, "condition", SELECT_COLUMNS)


def select_problem(text: str) -> str | None:
    """What is wrong with a SELECT; None where nothing is."""
    wrong = selects_problem({"": text})
    return None if wrong is None else wrong[1]


def selects_problem(texts: Mapping[str, str]) -> tuple[str, str] | None:
    """The place of the first wrong one of several SELECTs (place → text), and what is wrong with it; None where all are right."""
    expressions = []
    for place, text in texts.items():
        try:
            expressions.append(compile_select(text))
        except ConditionError as error:
            return place, str(error)
    wrong = check_types(expressions, SELECT_COLUMNS)
    return None if wrong is None else (list(texts)[wrong[0]], wrong[1])
