"""From questions to the forecast document: fixes by id, free questions, or the plan that a search finds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from diagnose.document.device import of_device
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.forecast import SCHEMA, Forecast, Refused, Span
from diagnose.job import Job
from diagnose.job.derived import completed
from diagnose.knowledge.load import Knowledge
from diagnose.measure.ranks.meetings import ONE_RANK, Met
from diagnose.measure.replay.excerpt import part
from diagnose.measure.replay.graph import Graph
from diagnose.model.vocabulary import CAPTURE
from diagnose.reason.context import Context, make_context
from diagnose.reason.findings import FixReader
from diagnose.reason.forecast.categories import drawn
from diagnose.reason.forecast.configured import as_configured
from diagnose.reason.forecast.outcome import Replays, asked, categories_of, ingredients_of, per_step, sequence, steps_of
from diagnose.reason.forecast.plan import Compatible, Search, search
from diagnose.reason.forecast.questions import Free, Question, fix_question, free_questions, note_of, rank_questions
from diagnose.reason.forecast.ranks import middle_in_step

SHORT = 10  # ms below which a forecast is told in tenths, however wide it is: 1 to 2 ms would hide what is told
_ALONE = "waiting for ranks that were not captured stays what it was"
_ASSUMED = (
    "the CPU does the same work in the same order, and every operation takes as long as it did unless a change says otherwise",
    "what no recorded dependency explains stays a gap before the operation that it stood before",
)


def answer(
    diagnosis: Diagnosis,
    graph: Graph | None,
    job: Job | None,
    knowledge: Knowledge,
    *,
    fixes: Sequence[str] = (),
    free: Free | None = None,
    plan: bool = False,
    anyway: bool = False,
    met: Met | str = ONE_RANK,
) -> Forecast:
    """The forecast for the device of the verdict; with all ranks in step, for the one in the middle. Without fixes and free questions, or
    with `plan`, the plan is searched for, of a long capture on a few of its steps (`Whatif`).

    `anyway`: fixes that are blocked or on already are replayed all the same. `met`: all captured ranks, which what is asked for is replayed
    with, or why they can't be. Raises UsageError for a question that can't be understood.
    """
    context = context_of(diagnosis, job, knowledge)
    own = _together([fix_question(key, context, diagnosis.findings) for key in dict.fromkeys(fixes)], context)
    of_ranks, rest = rank_questions(free or Free(), met, diagnosis.ranks, knowledge.buckets)
    own += [*of_ranks, *free_questions(rest, context, knowledge.forecast, diagnosis.walls)]
    if free is not None and free.no_wait and isinstance(met, Met) and not plan:
        graph = middle_in_step(met)
        diagnosis = _shown(diagnosis, graph)
    if graph is None or graph.refused is not None:
        return _refused(diagnosis, own, "No operation was captured." if graph is None else graph.refused or "")
    ranks = met if isinstance(met, Met) and own and not plan else None
    planned, limits = plan or not own, knowledge.forecast.whatif
    whole = as_configured(graph, job) if ranks is None else ranks.of(graph)
    replays = Replays(part(whole, limits.answered) if planned else whole, knowledge.forecast, ranks)
    refused = [one for one in (_refusal(replays, question, anyway=anyway) for question in own) if one is not None]
    known = {one.question for one in refused}
    open_ = [one for one in own if one.id not in known]
    found = None
    if planned:
        few = part(replays.graph, limits.searched)
        sought = replays if few is replays.graph else Replays(few, knowledge.forecast)
        found = search(sought, candidates(diagnosis, context, open_), Compatible(context), knowledge.forecast)
        open_ += found.chosen
        own += found.chosen
        refused += _without(found, replays)
    return _answered(diagnosis, replays, open_, own, refused, found, whole.steps.height)


def _together(alone: Sequence[Question], context: Context) -> list[Question]:
    """These fixes, of which one that is blocked alone is asked again as it is with the others on: they may clear its way."""
    together = Compatible(context)

    def beside_others(one: Question) -> Question:
        others = [other.id for other in alone if other.id != one.id]
        if one.state != "blocked" or not others:
            return one
        fix = FixReader(context=together.after(others)).fix(context.rulebook.fixes[one.id])
        return one if fix.state == "blocked" else replace(one, state=fix.state, note=note_of(fix))

    return [beside_others(one) for one in alone]


def _shown(diagnosis: Diagnosis, graph: Graph) -> Diagnosis:
    """The same with another device's name on it."""
    known = diagnosis.identity
    survey = diagnosis.ranks.survey if diagnosis.ranks is not None else ()
    own = of_device(survey, (graph.rank, graph.device))
    if known is None or own is None:
        return diagnosis
    return replace(diagnosis, identity=replace(known, rank=own.rank, file=own.file))


def context_of(diagnosis: Diagnosis, job: Job | None, knowledge: Knowledge) -> Context:
    """What conditions of fixes and effects see."""
    world = diagnosis.facts.get("world_size")
    size = None if world is None or not isinstance(world.value, int) else world.value
    return make_context(diagnosis.facts, None if job is None else completed(job, world_size=size), knowledge.rulebook)


def candidates(diagnosis: Diagnosis, context: Context, besides: Sequence[Question] = ()) -> list[Question]:
    """The fixes of findings about the run that can be had, in the order of the findings; without a job file those that may be.

    What changes what is computed (precision, routing) is a candidate only where the report's plan has it: whoever wants it asks for it.
    """
    planned = {step.fix for step in diagnosis.plan if step.instead_of is None}
    wanted = ("applicable",) if diagnosis.job is not None else ("applicable", "unknown")
    taken = {one.id for one in besides}
    ids = dict.fromkeys(
        fix.id
        for finding in diagnosis.findings
        if finding.wall != CAPTURE
        for fix in finding.fixes
        if fix.state in wanted and fix.id not in taken and (not fix.numerics or fix.id in planned)
    )
    return [fix_question(key, context, diagnosis.findings) for key in ids]


def _refusal(replays: Replays, question: Question, *, anyway: bool) -> Refused | None:
    """Why a question is not answered."""
    if question.state in ("blocked", "already_on") and not anyway:
        return Refused(question=question.id, reason=question.note, next_step="--anyway forecasts it all the same.")
    return replays.unanswered(question)


def _without(found: Search, replays: Replays) -> list[Refused]:
    """Fixes that could be had and of which no effect is known: the plan falls back to bounds there."""
    told = []
    for question in found.without:
        refused = replays.unanswered(question)
        if refused is not None and question.bounds:
            most = max(question.bounds.values())
            told.append(replace(refused, next_step=f"At most its finding's bound: {most / 1e6:.1f} ms per step."))
    return told


def _answered(
    diagnosis: Diagnosis,
    replays: Replays,
    questions: Sequence[Question],
    own: Sequence[Question],
    refused: Sequence[Refused],
    found: Search | None,
    kept: int,
) -> Forecast:
    """The document, once it is known what can be answered. `kept`: steps of the capture; a plan may be told for fewer."""
    count = len(replays.now.lengths)
    outcome = replays.after(questions)
    step = per_step(outcome.span, count)
    shown = _median(replays)
    alone = diagnosis.identity is not None and diagnosis.identity.ranks_captured == 1 and (diagnosis.identity.gpus or 0) > 1
    told = bool(questions) or (found is not None and not refused)
    some = replays.of_steps(kept)
    return Forecast(
        schema=SCHEMA,
        tool=diagnosis.tool,
        identity=diagnosis.identity,
        rank=replays.graph.rank,
        device=replays.graph.device,
        sentence=_sentence(step, questions, refused, found) + (f" Replayed: {some}." if some else ""),
        questions=asked(own),
        step_ns=step if told else None,
        sum_ns=outcome.span if told else None,
        steps=steps_of(replays.now, outcome) if told else (),
        categories=categories_of(replays.now, outcome) if told else (),
        ingredients=ingredients_of(replays.graph, questions) if told else (),
        assumptions=(
            *_ASSUMED,
            *([f"{some}, stand for all: `--fix` with the plan's fixes replays every one"] if some else []),
            *([_ALONE] if alone else []),
            *([replays.rules.stages.why] if replays.without_stages else []),
            *(replays.met.notes if replays.met else ()),
        )
        if told
        else (),
        capped_by=outcome.capped_by,
        doubt=outcome.doubt,
        refused=tuple(refused),
        plan=sequence(replays, questions),
        planned=found is not None,
        searched=0 if found is None else found.replays,
        target_wall=diagnosis.verdict.target_wall,
        now=drawn(replays.now, shown) if questions else None,
        likely=drawn(outcome.likely, shown) if questions else None,
    )


def _median(replays: Replays) -> int:
    """The index of the step of median length (of two middle ones the shorter)."""
    ordered = sorted(zip(replays.now.lengths, replays.now.steps["index"], strict=True))
    return int(ordered[(len(ordered) - 1) // 2][1])


def _sentence(step: Span, questions: Sequence[Question], refused: Sequence[Refused], found: Search | None) -> str:
    now = f"{step.now / 1e6:.1f} ms"
    if not questions:
        if found is None and refused:
            return f"The step takes {now}; no forecast: {refused[0].reason}"
        return f"The step takes {now}; no change whose effect is known would win anything notable."
    what = "with one change" if len(questions) == 1 else f"with {len(questions)} changes"
    low, likely, high = (round_to(ns, step) for ns in (step.low, step.likely, step.high))
    return f"{now} → about {likely} ms {what} ({low} to {high})."


def round_to(ns: int, step: Span) -> str:
    """A forecast time in ms with no more figures than its range deserves: tenths where that or it is short, below 1 ms thousandths."""
    digits = 0 if step.high - step.low >= 1e6 and step.likely >= SHORT * 1e6 else 1 if step.now >= 1e6 else 3
    return f"{ns / 1e6:,.{digits}f}"


def _refused(diagnosis: Diagnosis, questions: Sequence[Question], reason: str) -> Forecast:
    """The document where the steps can't be replayed."""
    known = diagnosis.identity
    said = Refused(question="", reason=reason, next_step="The bounds of `diagnose TRACE` hold all the same.")
    return Forecast(
        schema=SCHEMA,
        tool=diagnosis.tool,
        identity=known,
        rank=diagnosis.verdict.rank,
        device=diagnosis.verdict.device,
        sentence=f"No forecast: {reason}",
        questions=asked(questions),
        step_ns=None,
        sum_ns=None,
        refused=(said,),
        target_wall=diagnosis.verdict.target_wall,
    )
