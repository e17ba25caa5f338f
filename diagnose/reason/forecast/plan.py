"""The plan: the smallest set of fixes that go together with the largest joint forecast, found by replays; and a report's, foreseen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.diagnosis import WINS_NOTHING, Displaced, PlanStep, StepForecast
from diagnose.job import Job
from diagnose.job.model import Setting
from diagnose.knowledge.catalogue import FixSpec
from diagnose.knowledge.forecast import ForecastRules
from diagnose.reason.context import Context, make_context
from diagnose.reason.findings import FixReader
from diagnose.reason.forecast.changes import launch_limit
from diagnose.reason.forecast.outcome import NOTHING_THERE, Replays, per_step, weakest_basis
from diagnose.reason.forecast.questions import Question
from diagnose.reason.plan import LEFT_OUT, bounded

NOT_HERE = "More than a report replays by itself; `diagnose whatif` does."
NOTHING = 0.0005  # of the step: less is not seen in a figure with tenths of a per cent
NEXT_TO_NOTHING = 0.01  # of its bound: a step that wins less does not do what it is in the plan for
FAR_MORE = 2  # times what another step wins at its best: what likely wins so much goes before it; this project's choice
FAR_BELOW = 0.5  # of its bound: a step that wins less says what becomes of the time, where that can be told


class Search(Struct, frozen=True, kw_only=True):
    """What a search came to: the chosen fixes in the order of what they save, and how many sets were replayed."""

    chosen: tuple[Question, ...]
    replays: int
    without: tuple[Question, ...] = ()  # fixes that can be had and whose effect is not known: only bounds tell of them


@dataclass
class Compatible:
    """Which fixes go together: after the settings of some, every other is asked again, and they are asked what still holds of them."""

    context: Context
    _after: dict[frozenset[str], Context] = field(default_factory=dict)

    def goes_with(self, chosen: Sequence[str], key: str) -> bool:
        """Whether a fix can be had once those chosen are on, and whether none of these is blocked by it."""
        fixes = self.context.rulebook.fixes
        if self._overwrites(chosen, fixes[key]):
            return False
        if FixReader(context=self.after(chosen)).decide(fixes[key]).state in ("blocked", "already_on"):
            return False
        before, after = (FixReader(context=self.after(those)) for those in (chosen, (*chosen, key)))
        return not any(self._failed(after, one) - self._failed(before, one) for one in chosen)

    def _failed(self, reader: FixReader, key: str) -> frozenset[str]:
        """What a fix asks for and a job lacks, as sentences; one that can be had once (a batch twice as large) lacks it when it is on."""
        return frozenset(one.say for one in reader.decide(self.context.rulebook.fixes[key]).failed)

    def after(self, chosen: Sequence[str]) -> Context:
        """The context of the job with the settings of these fixes."""
        wanted = frozenset(chosen)
        if wanted not in self._after:
            self._after[wanted] = self._with(chosen)
        return self._after[wanted]

    def _with(self, chosen: Sequence[str]) -> Context:
        job = self.context.job
        if job is None or not chosen:
            return self.context
        for key in chosen:
            job = _set(job, self._values(self.context.rulebook.fixes[key]))
        return make_context(self.context.facts, job, self.context.rulebook)

    def _values(self, spec: FixSpec) -> Mapping[str, object]:
        """Settings after a fix, by normalised name."""
        job = self.context.job
        if job is None:
            return {}
        from diagnose.reason.patch import after_all, framework_of, plan  # noqa: PLC0415 - without a job file nothing is written

        edits = plan(spec, self.context, framework_of(job.format, self.context.rulebook.job)).edits
        values = after_all(edits, job)
        return {edit.setting: self._typed(edit.setting, values[edit.key]) for edit in edits if edit.setting is not None}

    def _typed(self, setting: str, value: object) -> object:
        """The value as rules know it: options in one text (an environment variable's) are edited as a list."""
        text = isinstance(value, tuple | list) and self.context.rulebook.schema.get(f"job_{setting}") == pl.String()
        return ",".join(str(one) for one in value) if text and isinstance(value, tuple | list) else value

    def _overwrites(self, chosen: Sequence[str], spec: FixSpec) -> bool:
        """Whether a fix sets a setting of one of those to another value."""
        own = self._values(spec)
        for key in chosen:
            theirs = self._values(self.context.rulebook.fixes[key])
            if any(theirs[name] != value for name, value in own.items() if name in theirs):
                return True
        return False


def _set(job: Job, values: Mapping[str, object]) -> Job:
    """The job with these settings."""
    settings = dict(job.settings)
    for name, value in values.items():
        known = settings.get(name)
        if value is None:
            settings.pop(name, None)
        elif known is not None:
            settings[name] = replace(known, value=value, source="read")
        else:
            settings[name] = Setting(name=name, value=value, key=name, source="read")  # type: ignore[arg-type]
    return dataclasses.replace(job, settings=settings)


def search(replays: Replays, candidates: Sequence[Question], together: Compatible, rules: ForecastRules) -> Search:
    """The smallest set of compatible fixes with the largest joint forecast.

    Each is replayed alone; from those that save most a set grows by what adds most to it, once from each of the best two beginnings, since
    two that go well together need not hold the best one. What adds less than `worth` of the step is left out.
    """
    answerable = [one for one in candidates if replays.unanswered(one) is None]
    without = tuple(one for one in candidates if one not in answerable)
    least = rules.worth * sum(replays.now.lengths)
    alone = sorted(answerable, key=lambda one: (-replays.saves([one]), one.id))
    useful = [one for one in alone if replays.saves([one]) > least][: rules.candidates]
    best: list[Question] = []
    for first in useful[:2]:
        grown = _grown(first, useful, replays, together, rules, least)
        if replays.saves(grown) > replays.saves(best) + least or (not best and grown):
            best = grown
    return Search(chosen=tuple(best), replays=replays.count, without=without)


def _grown(
    first: Question, useful: Sequence[Question], replays: Replays, together: Compatible, rules: ForecastRules, least: float
) -> list[Question]:
    """A set grown from one fix by what adds most, as long as anything adds enough and replays are left."""
    chosen = [first]
    while True:
        known = replays.saves(chosen)
        ids = [one.id for one in chosen]
        open_ = [one for one in useful if one.id not in ids and together.goes_with(ids, one.id)]
        open_ = open_[: max(rules.replays - replays.count, 0)]
        gains = [(replays.saves([*chosen, one]) - known, place) for place, one in enumerate(open_)]
        gain, place = max(gains, key=lambda pair: (pair[0], -pair[1]), default=(0, 0))
        if gain <= least:
            return chosen
        chosen.append(open_[place])


# --- the plan of a report ---------------------------------------------------------------------------------------------


def foreseen(
    steps: Sequence[PlanStep],
    asked: Callable[[str], Question],
    replays: Replays,
    together: Compatible,
    *,
    tie_ns: int = 0,
    stay: Container[str] | None = (),
) -> tuple[tuple[PlanStep, ...], StepForecast | None]:
    """The steps of a plan with the mean step after each and all before it (of an alternative: in the place of its own), and after all.

    Of alternatives the first goes first that none is surely better than (at its worst than it at its best). A fix that can't be had with
    those before it, or whose effect is not known, has no forecast, with the reason. One that wins nothing goes behind all others, and is
    asked once more there: what it shortens may be waited for only after them. `asked` gives the question of a fix. Findings whose bounds
    are no further below the first's than `tie_ns` may take its place. What at its worst wins more than the first likely does, by what is in
    the trace alone, takes it, but for the fixes that `stay` where they are; None: all do. What would change nothing that ran is no
    alternative of what was replayed.
    """

    def alone(group: Sequence[PlanStep]) -> list[PlanStep]:
        return [_with_forecast(step, asked, (), replays, together) for step in group]

    groups = _first_of_tied(_alternatives(steps), tie_ns, alone)
    if stay is not None:
        seen = [group for group in groups[1:] if (fix := group[0].fix) is not None and fix not in stay and not _assumes(asked(fix))]
        groups = _surest_first(groups, seen, alone, replays)
    first, chosen = _forecasts(groups, asked, (), replays, together)
    idle = [place for place, group in enumerate(first) if group[0].no_forecast == WINS_NOTHING]
    again, chosen = _forecasts([groups[place] for place in idle], asked, chosen, replays, together)
    behind = [new if new[0].forecast is not None else first[place] for place, new in zip(idle, again, strict=True)]
    behind.sort(key=lambda group: group[0].no_forecast == WINS_NOTHING)
    found = [step for group in (*(one for place, one in enumerate(first) if place not in idle), *behind) for step in group]
    return _with_something_to_change(found), forecast_of(replays, chosen) if chosen else None


def _with_something_to_change(steps: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps without alternatives that would change nothing that ran, where the first of them has a forecast."""
    told = {step.fix for step in steps if step.instead_of is None and step.forecast is not None}
    gone = {step.fix for step in steps if step.instead_of in told and step.no_forecast == NOTHING_THERE}
    return tuple(
        replace(step, exclusive_with=tuple(one for one in step.exclusive_with if one not in gone)) for step in steps if step.fix not in gone
    )


def _first_of_tied(
    groups: Sequence[Sequence[PlanStep]], tie_ns: int, forecast: Callable[[Sequence[PlanStep]], list[PlanStep]]
) -> list[Sequence[PlanStep]]:
    """The groups, of those whose bounds tie with that of the first the one first that is surely better.

    What can be had and replayed goes before what has to be asked for and can't be.
    """
    first, *others = groups or [()]
    near = [group for group in others if (group[0].bound_ns or 0) + tie_ns >= (first[0].bound_ns or 0)]
    if not tie_ns or not near:
        return list(groups)
    lead = _best_first(forecast(first))[0]
    open_ = lead.forecast is None and lead.no_forecast != WINS_NOTHING
    if open_ and lead.state == "applicable":
        return list(groups)
    best = next((group for group in near if _surely_better(forecast(group[:1])[0], lead)), first)
    return [best, *(group for group in groups if group is not best)]


def _assumes(question: Question) -> bool:
    """Whether the size of what a fix wins comes from elsewhere, or is not known."""
    return not question.changes or weakest_basis([question]) == "assumed"


def _surest_first(
    groups: list[Sequence[PlanStep]],
    others: Sequence[Sequence[PlanStep]],
    forecast: Callable[[Sequence[PlanStep]], list[PlanStep]],
    replays: Replays,
) -> list[Sequence[PlanStep]]:
    """The groups, that of `others` first which wins most at its worst, where this is more than the first of all likely wins.

    A finding's bound says how much it is about at most, and some are loose: what surely wins goes before what may win little. The first
    has to have a forecast; whose bound leaves no room for that is not replayed.
    """
    if not others:
        return groups
    lead = _best_first(forecast(groups[0]))[0]
    if lead.forecast is None and lead.no_forecast != WINS_NOTHING:
        return groups
    least = _likely_wins(lead)
    sure = 1 - min(replays.rules.margin.of_saving.values())  # no forecast's worst end is nearer to its likely one
    room = [group for group in others if _as_sure(group[0], lead) and sure * (group[0].bound_ns or 0) > least * replays.stretch]
    worst = [_surely_wins(forecast(group[:1])[0]) for group in room]
    if max(worst, default=least) <= least:
        return groups
    best = room[worst.index(max(worst))]
    return [best, *(group for group in groups if group is not best)]


def _as_sure(one: PlanStep, than: PlanStep) -> bool:
    """Whether a step can be had as surely as another one."""
    return one.state in (than.state, "applicable") and (_in_words(than) or not _in_words(one))


def _surely_wins(step: PlanStep) -> int:
    """What a step by itself wins at its worst, ns; nothing where it has no forecast."""
    return 0 if step.forecast is None else step.forecast.now_ns - step.forecast.high_ns


def _likely_wins(step: PlanStep) -> int:
    """What a step by itself likely wins, ns; nothing where it has no forecast."""
    return 0 if step.forecast is None else step.forecast.now_ns - step.forecast.likely_ns


def _forecasts(
    groups: Iterable[Sequence[PlanStep]],
    asked: Callable[[str], Question],
    chosen: Sequence[Question],
    replays: Replays,
    together: Compatible,
) -> tuple[list[list[PlanStep]], tuple[Question, ...]]:
    """Each group with its forecasts after those chosen and the first of the groups before it, the best first; and what is chosen then."""
    found: list[list[PlanStep]] = []
    for group in groups:
        best = _best_first([_with_forecast(step, asked, chosen, replays, together) for step in group])
        found.append(best)
        if best[0].fix is not None and best[0].forecast is not None:
            chosen = (*chosen, asked(best[0].fix))
    return found, tuple(chosen)


def undecided(steps: Sequence[PlanStep], numerics: Container[str]) -> bool:
    """Whether forecasts decide if a fix of `numerics` goes first in its group: a candidate of `whatif` it is only there."""
    return any(step.instead_of in numerics for step in steps if step.instead_of is not None)


def _alternatives(steps: Sequence[PlanStep]) -> list[list[PlanStep]]:
    """Each step of its own with those that can be had instead of it."""
    groups: list[list[PlanStep]] = []
    for step in steps:
        if step.instead_of is None or not groups:
            groups.append([step])
        else:
            groups[-1].append(step)
    return groups


def _with_forecast(
    step: PlanStep, asked: Callable[[str], Question], chosen: Sequence[Question], replays: Replays, together: Compatible
) -> PlanStep:
    """A step with what it gives after those chosen, or with why that can't be told."""
    if step.fix is None:
        return replace(step, no_forecast="There is no change to replay.")
    question = asked(step.fix)
    refused = replays.unanswered(question)
    if refused is not None:
        return replace(step, no_forecast=refused.reason)
    if not together.goes_with([one.id for one in chosen], question.id):
        return replace(step, no_forecast=f"It does not go together with {' and '.join(one.id for one in chosen)}.")
    if not replays.affordable([*chosen, question]):
        return replace(step, no_forecast=NOT_HERE)
    bound = (step.bound_ns or 0) * len(replays.now.lengths) if step.instead_of is None else 0
    least = max(NOTHING * sum(replays.now.lengths), NEXT_TO_NOTHING * bound)
    if replays.saves([*chosen, question]) - replays.saves(chosen) <= least:
        return replace(step, no_forecast=WINS_NOTHING)
    found = forecast_of(replays, [*chosen, question])
    before = forecast_of(replays, chosen) if chosen else None
    likely, low = (found.now_ns, found.now_ns) if before is None else (before.likely_ns, before.low_ns)
    wins = likely - found.likely_ns
    if step.bound_ns is not None and wins < FAR_BELOW * step.bound_ns:
        found = replace(found, displaced=_displaced(replays, chosen, [*chosen, question]))
    best = max(wins, low - found.low_ns)
    limit = launch_limit(replays.graph, question.changes)
    left_out = 1 + max(replays.rules.margin.of_saving[one.transformation] for one in question.changes)
    most = None if limit is None else round(limit * left_out * replays.stretch / len(replays.now.lengths))
    told = replace(step, forecast=found)
    return _fitted(told, round(wins * replays.stretch), round(best * replays.stretch), most, round(found.now_ns * replays.stretch))


def _displaced(replays: Replays, before: Sequence[Question], after: Sequence[Question]) -> Displaced | None:
    """The category that takes more than half of the time that the last change frees; None where none does, or next to nothing is freed."""
    was, then = (replays.likely(before) if before else replays.now).categories, replays.likely(after).categories
    freed = sum(max(ns - then.get(name, 0), 0) for name, ns in was.items())
    category, grown = max(((name, ns - was.get(name, 0)) for name, ns in then.items()), key=lambda one: (one[1], one[0]))
    if freed < NOTHING * sum(replays.now.lengths) or 2 * grown <= freed:
        return None
    count = len(replays.now.lengths)
    return Displaced(category=category, ns=round(grown / count), freed_ns=round(freed / count))


def _fitted(step: PlanStep, likely: int, best: int, most: int | None, now: int) -> PlanStep:
    """A step whose bound is no less than what it likely wins, and no more than what it is about (`most`), where that is known.

    A change may win more than what its finding is about, within the walls: then at most what it wins at best. Where it likely wins
    less, the finding's bound stands: it was measured, and what a forecast errs by raises it not.
    """
    if step.bound_ns is None:
        return step
    own = step.bound_ns if most is None else min(step.bound_ns, most)
    bound = best if likely > own else own
    return step if bound == step.bound_ns else bounded(step, bound, now)


def _best_first(group: Sequence[PlanStep]) -> list[PlanStep]:
    """Alternatives in their order, but for one before which none is surely better (`_surely_better`).

    Of one that makes all changes of another and more what is likely decides: they err alike. It has to be had as surely as what it passes.
    Where the first wins nothing, any that likely wins is better. Behind it what is surely better passes what sets the same otherwise.
    """
    best, *others = group
    if best.forecast is None and best.no_forecast != WINS_NOTHING:
        return list(group)
    while (better := next((one for one in others if _surely_better(one, best)), None)) is not None:
        best = better
    rest: list[PlanStep] = []
    for one in (one for one in group if one is not best):
        passed = (place for place, than in enumerate(rest) if one.fix in than.exclusive_with and _surely_better(one, than))
        rest.insert(next(passed, len(rest)), replace(one, instead_of=best.fix))
    return [replace(best, instead_of=None), *rest]


def _surely_better(one: PlanStep, than: PlanStep) -> bool:
    """Whether a step is to be had as surely and wins more: at its worst more than the other at its best, or likely far more than that
    and at its worst more than the other at its worst. A forecast goes before none.
    """
    if one.forecast is None or not _as_sure(one, than):
        return False
    if than.forecast is None or one.forecast.high_ns < than.forecast.low_ns:
        return True
    most = max(than.forecast.now_ns - than.forecast.low_ns, 0)
    if _likely_wins(one) > FAR_MORE * most and one.forecast.high_ns < than.forecast.high_ns:
        return True
    more = {(change.key, change.text) for change in than.changes} < {(change.key, change.text) for change in one.changes}
    return more and than.forecast.likely_ns - one.forecast.likely_ns > NOTHING * than.forecast.now_ns


def _in_words(step: PlanStep) -> bool:
    """Whether no setting makes the change: somebody has to write it, or to choose."""
    return all(change.stays or (change.language == "words" and not change.text.startswith(LEFT_OUT)) for change in step.changes)


def forecast_of(replays: Replays, questions: Sequence[Question]) -> StepForecast:
    """What a step takes with these fixes, in short."""
    outcome = replays.after(questions)
    span = per_step(outcome.span, len(replays.now.lengths))
    return StepForecast(
        now_ns=span.now,
        low_ns=span.low,
        likely_ns=span.likely,
        high_ns=span.high,
        basis=weakest_basis(questions),
        with_=tuple(one.id for one in questions),
        doubt=outcome.doubt,
    )
