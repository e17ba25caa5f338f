"""From a graph and questions to the forecast: the steps now and after the changes, what they rest on, and what could not be answered."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from operator import mul

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.forecast import Basis, Category, Ceiling, Ingredient, Planned, Refused, Span, Step
from diagnose.document.forecast import Question as Asked
from diagnose.knowledge.forecast import ForecastRules
from diagnose.measure.ranks.meetings import Met
from diagnose.measure.replay.graph import Graph
from diagnose.measure.replay.meetings import replayed_together
from diagnose.measure.replay.path import Times, replay, step_times
from diagnose.reason.compare.delta import portioned
from diagnose.reason.compare.metrics import COMPUTE
from diagnose.reason.forecast.categories import Replayed
from diagnose.reason.forecast.changes import ENDS, End, changed, factor, touches
from diagnose.reason.forecast.contention import settled
from diagnose.reason.forecast.questions import Question
from diagnose.reason.forecast.ranks import Variant
from diagnose.reason.forecast.select import described, selected

MOVING = ("detach", "interleave", "delay")  # what lets operations run side by side that did not
NOTHING_THERE = "Nothing ran in these steps that it would change."
_ONE_VALUE = re.compile(r"(?P<name>bucket|cause|comm|exchange|role|phase|operation|backend) = '[^']*'")


class Outcome(Struct, frozen=True, kw_only=True):
    """What the kept steps take after the changes of some questions, together. `span`: their sum, ns."""

    span: Span
    likely: Replayed
    cut: Fraction = Fraction(1)  # share of what the replay saves that no bound forbids
    capped_by: tuple[Ceiling, ...] = ()
    doubt: str = ""  # why it is of low certainty


class Replays(Struct, frozen=True, dict=True):
    """One graph, replayed as it is and after changes; each set of changes once. `met`: other ranks that are replayed with it.

    `stretch`: the mean of all kept steps over that of the replayed ones, by which what is told of these is stretched: bounds are of all.
    """

    graph: Graph
    rules: ForecastRules
    met: Met | None = None
    most: int | None = None  # sets of changes to replay; None: however many are asked
    stretch: Fraction = Fraction(1)

    def affordable(self, questions: Sequence[Question]) -> bool:
        """Whether this set was replayed already, or still may be."""
        return self.most is None or _ids(questions) in self._likely or self.count < self.most

    @cached_property
    def now(self) -> Replayed:
        """The steps as they were measured."""
        return replayed(self.graph)

    def of_steps(self, kept: int) -> str:
        """Which of so many kept steps are replayed; empty where that is all of them."""
        indices = self.now.steps["index"].to_list()
        if len(indices) == kept:
            return ""
        which = f"step {indices[0]}" if len(indices) == 1 else f"steps {indices[0]} to {indices[-1]}"
        return f"{which}, {len(indices)} of {kept}"

    @cached_property
    def _likely(self) -> dict[tuple[str, ...], Replayed]:
        return {}

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Outcome]:
        return {}

    @property
    def count(self) -> int:
        """How many sets of changes were replayed."""
        return len(self._likely)

    def likely(self, questions: Sequence[Question]) -> Replayed:
        """The steps as all these changes, in this order, likely leave them."""
        key = _ids(questions)
        if key not in self._likely:
            self._likely[key] = self._replayed(questions, "likely")
        return self._likely[key]

    def saves(self, questions: Sequence[Question]) -> int:
        """What these changes likely win of all kept steps, ns; this needs no replay at best and at worst."""
        if not questions:
            return 0
        now = sum(self.now.lengths)
        return now - max(sum(self.likely(questions).lengths), self._floor(questions, now)[0])

    def after(self, questions: Sequence[Question]) -> Outcome:
        """What all these changes, in this order, make of the steps."""
        key = _ids(questions)
        if key not in self._known:
            self._known[key] = self._outcome(questions)
        return self._known[key]

    def unanswered(self, question: Question) -> Refused | None:
        """Why a question has no answer in this graph; None where it has one."""
        reason = question.refused
        if not reason and question.of_ranks is None and not any(touches(self.graph, change) for change in question.changes):
            reason = NOTHING_THERE
        if not reason:
            return None
        return Refused(question=question.id, reason=reason, next_step=question.next_step or self._known_values(question))

    def _known_values(self, question: Question) -> str:
        """Which values there are of what a question names one of that is not there."""
        found = [_ONE_VALUE.fullmatch(change.select) for change in question.changes]
        names = dict.fromkeys(one["name"] for one in found if one is not None)
        told = {name: described(self.graph, {name})[name].drop_nulls().unique().sort().to_list() for name in names}
        return " ".join(f"Here {name} is one of {', '.join(map(str, values))}." for name, values in told.items() if values)

    def _outcome(self, questions: Sequence[Question]) -> Outcome:
        now = sum(self.now.lengths)
        ends = {"likely": self.likely(questions)}
        if ranged(questions) or self._stages_follow(questions):
            ends |= {end: self._replayed(questions, end) for end in ENDS if end not in ends}
        sums = {end: sum(one.lengths) for end, one in ends.items()}
        likely = sums["likely"]
        floor, ceilings = self._floor(questions, now)
        best = min(sums.get("low", likely), likely - self._margin(questions, now, likely))
        told = max(likely, floor)
        # what meets its ceiling is known no better for that
        worst = max(sums.get("high", likely), told + self._margin(questions, now, told))
        far, doubt = self.rules.far, self._doubt(questions, now, told)
        if doubt:
            least = now - round(far.worst * (now - told))
            if len(questions) > 1:  # the last change at worst wins nothing: it takes nothing from those before it
                least = min(least, self.after(questions[:-1]).span.high)
            worst = max(worst, least)
        if 2 * best < told:
            categories = ends.get("low", ends["likely"]).categories  # one device does it all, one after the other or side by side
            best = max(best, min(told, sum(ns for name, ns in categories.items() if name.startswith(COMPUTE))))
        span = Span(now=now, low=max(best, floor), likely=told, high=worst)
        cut = Fraction(now - span.likely, now - likely) if likely != now else Fraction(1)
        return Outcome(span=span, likely=ends["likely"], cut=cut, capped_by=ceilings if likely < floor else (), doubt=doubt)

    def graph_after(self, questions: Sequence[Question], end: End) -> Graph:
        """The graph after the changes, with what newly runs side by side slowed down."""
        found = after(self.graph, questions, end)
        moved = any(change.transformation in MOVING for question in questions for change in question.changes)
        found = settled(self.graph, found, end, self.rules.contention) if moved else found
        return self._with_stages(found, end) if self._stages_follow(questions) else found

    def _stages_follow(self, questions: Sequence[Question]) -> bool:
        """Whether other pipeline stages are waited for and get the same change: nothing that one alone has is changed."""
        if not self.without_stages:
            return False
        apart = selected(self.graph, self.rules.stages.apart)
        changes = [change for question in questions for change in question.changes if change.wall is None]
        return not any((selected(self.graph, one.select) & apart).any() for one in changes if one.transformation != "resize")

    def _with_stages(self, graph: Graph, end: End) -> Graph:
        """The same with waiting for other stages in proportion to what this one does itself; at worst no shorter than it was."""
        if graph is self.graph:
            return graph
        by = self._length_without_stages(graph) / self.without_stages
        waits, by = self._waits(graph), max(by, 1.0) if end == "high" else by
        return dataclasses.replace(graph, nodes=graph.nodes.with_columns(_times("duration", waits, by)))

    def _waits(self, graph: Graph) -> pl.Series:
        """What waits for other pipeline stages that no captured rank explains."""
        return self._of(graph, self.rules.stages.select) & graph.nodes["instance"].is_null()

    def _of(self, graph: Graph, select: str) -> pl.Series:
        """What is selected of the graph as it was, also where it is changed since; of what a law cut anew."""
        return selected(self.graph if graph.nodes.height == self.graph.nodes.height else graph, select)

    @cached_property
    def without_stages(self) -> int:
        """What the passes would take without waiting for other stages, ns; 0 where there is no pipeline, or none are waited for."""
        piped = selected(self.graph, "comm = 'pipeline'").any() and self._waits(self.graph).any()
        return self._length_without_stages(self.graph) if piped else 0

    def _length_without_stages(self, graph: Graph) -> int:
        """What the passes over all micro-batches take by themselves, ns."""
        besides = self._waits(graph) | self._of(graph, self.rules.stages.besides)
        nodes = graph.nodes.with_columns(_times("duration", besides, 0.0))
        return sum(replayed(dataclasses.replace(graph, nodes=nodes)).lengths)

    @cached_property
    def _ranks(self) -> tuple[Replays, ...]:
        """The other ranks, and this one among them."""
        shown = (self.graph.rank, self.graph.device)
        graphs = () if self.met is None else self.met.graphs
        return tuple(self if (one.rank, one.device) == shown else Replays(one, self.rules) for one in graphs)

    def _replayed(self, questions: Sequence[Question], end: End) -> Replayed:
        """The graph after these questions; with other ranks that have the same changes, where there are any."""
        if self.met is None:
            return replayed(self.graph_after(questions, end))
        met, waiting = replace(self.met, graphs=tuple(one.graph_after(questions, end) for one in self._ranks)), True
        for question in questions:
            variant = None if question.of_ranks is None else question.of_ranks(met)
            if isinstance(variant, Variant):
                met, waiting = replace(met, graphs=variant.graphs), waiting and variant.waiting
        found = replayed_together(met.graphs, met.meetings, waiting=waiting)
        place = [(graph.rank, graph.device) for graph in met.graphs].index((self.graph.rank, self.graph.device))
        return _timed(met.graphs[place], found.times[place])

    def _doubt(self, questions: Sequence[Question], now: int, likely: int) -> str:
        """Why fixes that save so much are of low certainty; empty where others were seen to save as much, or somebody only asks."""
        far = self.rules.far
        if now - likely <= far.saving * now or not all(one.fix for one in questions):
            return ""
        graphs = any(change.transformation == "graph" for one in questions for change in one.changes)
        return f"{far.why} {far.of_graphs}" if graphs else far.why

    def _margin(self, questions: Sequence[Question], now: int, likely: int) -> int:
        """What the replay and the least certain of the laws leave out, ns; it does not make a loss of what saves."""
        margin, saved = self.rules.margin, abs(now - likely)  # 0 where nothing is saved
        laws = {change.transformation for question in questions for change in question.changes} or margin.of_saving.keys()
        return min(round(saved * max(margin.of_saving[law] for law in laws) + now * margin.of_step), saved)

    def _floor(self, questions: Sequence[Question], now: int) -> tuple[int, tuple[Ceiling, ...]]:
        """The least that the bounds of the walls leave of the steps, and which these are; nothing where a question has none."""
        if not all(one.ceilings for one in questions):
            return 0, ()
        largest = {wall: Ceiling(question=one.id, finding=wall, bound_ns=ns) for one in questions for wall, ns in one.ceilings.items()}
        ceilings = tuple(largest.values())
        return max(now - int(len(self.now.lengths) * sum(one.bound_ns for one in ceilings) / self.stretch), 0), ceilings


def _ids(questions: Sequence[Question]) -> tuple[str, ...]:
    return tuple(one.id for one in questions)


def after(graph: Graph, questions: Sequence[Question], end: End) -> Graph:
    """The graph after all changes, at one end of their ranges.

    What several questions shorten is shortened by the one that does so most: their reasons may be the same (fewer bytes, a faster way for
    them). Only at best their factors multiply, as they do where they lengthen.
    """
    found = _scaled(graph, questions, end)
    for question in questions:
        found = changed(found, question.changes, end)
    return found


def _scaled(graph: Graph, questions: Sequence[Question], end: End) -> Graph:
    """Durations times what the `scale` of all questions come to.

    What they likely come to is kept, and with it what other changes make of it: many sets of questions begin alike. The ends are not: a
    graph takes memory, and few sets are asked for theirs.
    """
    scales = (
        tuple(
            (one.select, factor(one, end), one.start_ns or 0.0)
            for one in question.changes
            if one.transformation == "scale" and one.by is not None
        )
        for question in questions
    )
    of_questions = tuple(filter(None, scales))
    if not of_questions:
        return graph
    if end != "likely":
        return _times_factors(graph, of_questions, end)
    return graph.once(("scaled", of_questions), lambda: _times_factors(graph, of_questions, end))


def _times_factors(graph: Graph, of_questions: Sequence[Sequence[tuple[str, float, float]]], end: End) -> Graph:
    """Durations times the factors of what is selected (SELECT, factor, ns of each operation that it leaves as they are), by question."""
    factors = []
    for scales in of_questions:
        own = pl.repeat(1.0, graph.nodes.height, dtype=pl.Float64, eager=True)
        for select, by, start in scales:
            kept = (start / graph.nodes["duration"].clip(lower_bound=1)).clip(upper_bound=1.0)
            own = own * pl.select(pl.when(selected(graph, select)).then(kept + (1 - kept) * by).otherwise(1.0)).to_series()
        factors.append(own)
    shorter, longer = ([own.clip(**limit) for own in factors] for limit in ({"upper_bound": 1.0}, {"lower_bound": 1.0}))
    most = reduce(mul, shorter) if end == "low" else pl.select(pl.min_horizontal(*shorter)).to_series()
    together = most * reduce(mul, longer)
    return dataclasses.replace(
        graph, nodes=graph.nodes.with_columns((pl.col("duration") * together).round().cast(pl.Int64).alias("duration"))
    )


def _times(column: str, mask: pl.Series, by: float) -> pl.Expr:
    """Whole ns of a column, times a factor where `mask` holds."""
    return pl.when(mask).then((pl.col(column) * by).round().cast(pl.Int64)).otherwise(column).alias(column)


def ranged(questions: Sequence[Question]) -> bool:
    """Whether the ends of the ranges differ."""
    changes = [change for question in questions for change in question.changes]
    return any(values is not None and len(set(values)) > 1 for change in changes for values in (change.by, change.host_ns)) or any(
        change.transformation in ("graph", "detach", "interleave", "delay") for change in changes
    )


def replayed(graph: Graph) -> Replayed:
    """A graph with its times and its kept steps, each ending at the latest where the next one begins."""
    return _timed(graph, replay(graph))


def _timed(graph: Graph, times: Times) -> Replayed:
    return Replayed(graph=graph, times=times, steps=step_times(graph, times).sort("start"))


# --- as the document tells it -----------------------------------------------------------------------------------------


def per_step(span: Span, count: int) -> Span:
    """The mean step of a sum, rounded to whole ns."""
    return Span(**{name: round(getattr(span, name) / count) for name in Span.__struct_fields__})


def steps_of(now: Replayed, outcome: Outcome) -> tuple[Step, ...]:
    """Every kept step now and likely; what a bound forbids is taken off in proportion, so that they add up to the sum."""
    likely = dict(zip(outcome.likely.steps["index"], outcome.likely.lengths, strict=True))
    before = dict(zip(now.steps["index"], now.lengths, strict=True))
    deltas = _cut({str(index): likely[index] - before[index] for index in before}, outcome)
    return tuple(Step(index=index, now_ns=ns, likely_ns=ns + deltas[str(index)]) for index, ns in before.items())


def categories_of(now: Replayed, outcome: Outcome) -> tuple[Category, ...]:
    """All kept steps by exclusive category, what changes most first; deltas add up to that of the sum, to the nanosecond."""
    before, later = now.categories, outcome.likely.categories
    deltas = _cut({name: later.get(name, 0) - before.get(name, 0) for name in dict.fromkeys((*before, *later))}, outcome)
    rows = (
        Category(category=name, now_ns=before.get(name, 0), likely_ns=before.get(name, 0) + delta, delta_ns=delta)
        for name, delta in deltas.items()
    )
    return tuple(sorted(rows, key=lambda row: (-abs(row.delta_ns), -row.now_ns, row.category)))


def _cut(deltas: Mapping[str, int], outcome: Outcome) -> dict[str, int]:
    """Deltas that add up to the likely one of the steps, each less what a bound forbids of it."""
    if outcome.cut == 1:
        return dict(deltas)
    found = portioned(deltas, outcome.cut)
    left = outcome.span.likely - outcome.span.now - sum(found.values())
    if left and found:
        largest = max(found, key=lambda name: abs(found[name]))
        found[largest] += left
    return found


def ingredients_of(graph: Graph, questions: Sequence[Question]) -> tuple[Ingredient, ...]:
    """What a forecast is made of: the measured times, what waits for what, and every change that finds something to change."""
    edges = graph.edges.height
    guessed = int(graph.edges["inferred"].sum())
    found = [
        Ingredient(
            question="",
            text="durations of all operations and of the CPU's work, as they were captured",
            basis="measured",
            source="this trace",
        )
    ]
    if guessed:
        text = f"what waited for what: {guessed:,} of {edges:,} dependencies are inferred from times or from the order of calls"
        found.append(Ingredient(question="", text=text, basis="inferred", source="this trace"))
    for question in questions:
        made = [one for one in question.changes if touches(graph, one)] or question.changes
        found += [Ingredient(question=question.id, text=one.why, basis=one.basis, source=one.source) for one in made]
        found += question.ingredients
    return tuple(dict.fromkeys(found))


def weakest_basis(questions: Sequence[Question]) -> Basis:
    """The weakest basis among the changes."""
    order: tuple[Basis, ...] = ("assumed", "inferred", "measured")
    return next((one for one in order if any(change.basis == one for question in questions for change in question.changes)), "measured")


def sequence(replays: Replays, questions: Sequence[Question]) -> tuple[Planned, ...]:
    """The mean step after each change and all before it, and what each would save alone."""
    count = len(replays.now.lengths)
    found: list[Planned] = []
    before = sum(replays.now.lengths)
    for place, question in enumerate(questions, 1):
        outcome, alone = replays.after(questions[:place]), replays.saves([question])
        saves = before - outcome.span.likely
        found.append(
            Planned(
                question=question.id,
                title=question.title,
                step_ns=per_step(outcome.span, count),
                saves_ns=round(saves / count),
                alone_ns=round(alone / count),
                why=_why(saves, alone, place),
            )
        )
        before = outcome.span.likely
    return tuple(found)


NOTABLE = 0.1  # a saving that differs from that alone by less than this share of it needs no word


def _why(saves: int, alone: int, place: int) -> str:
    """Why a change saves less or more after others than alone."""
    if place == 1 or abs(saves - alone) <= NOTABLE * max(abs(alone), 1):
        return ""
    if saves < alone:
        return "less than alone: the changes before it win a part of the same time"
    return "more than alone: what it shortens is waited for only after the changes before it"


def asked(questions: Sequence[Question]) -> tuple[Asked, ...]:
    """The questions as the document has them."""
    return tuple(one.asked() for one in questions)
