"""What a report says of its own changes: the step after each one of its plan, and with each fix of its findings alone, by replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from msgspec.structs import replace

from diagnose.document.diagnosis import Diagnosis, Finding, Fix, StepForecast, Verdict
from diagnose.job import Job
from diagnose.knowledge.load import Knowledge
from diagnose.measure.ranks.meetings import ONE_RANK, Met
from diagnose.measure.replay.graph import Graph
from diagnose.model.vocabulary import CAPTURE
from diagnose.reason.context import Context
from diagnose.reason.forecast.answer import context_of
from diagnose.reason.forecast.configured import as_configured
from diagnose.reason.forecast.outcome import Replays
from diagnose.reason.forecast.plan import NOTHING, Compatible, forecast_of, foreseen
from diagnose.reason.forecast.questions import Question, fix_question
from diagnose.reason.plan import MOST_INSTEAD, of_numerics

_OPEN = ("applicable", "unknown")  # states of fixes that may be had


def with_forecasts(
    document: Diagnosis, graph: Graph | None, job: Job | None, knowledge: Knowledge, meet: Callable[[], Met | str] = lambda: ONE_RANK
) -> Diagnosis:
    """The document with forecasts, or with the sentence why there are none. `graph`: of the verdict's device, of as many steps as may be.

    `meet` gives all captured ranks, or why they can't be replayed together; it is asked only where that is cheap.
    """
    if not document.plan and not any(_to_replay(document.findings)):
        return document
    if graph is None or graph.refused is not None:
        return replace(document, no_forecast=_too_large(knowledge) if graph is None else graph.refused or "")
    replays = _replays(document, as_configured(graph, job), knowledge, meet)
    of_steps = _of_all_steps(document, replays)
    if of_steps != 1:
        replays = replace(replays, stretch=of_steps)
    context = context_of(document, job, knowledge)

    @cache
    def asked(key: str) -> Question:
        return fix_question(key, context, document.findings)

    # Fixes that change what is computed take no place of the first of a plan, unless that answers a cause.
    stay = of_numerics(document.findings) if document.verdict.cause is None else None
    plan, whole = foreseen(document.plan, asked, replays, Compatible(context), tie_ns=_tie(document.verdict, context), stay=stay)
    alone = {fix.id: found for fix in _to_replay(document.findings) if (found := _alone(asked(fix.id), replays)) is not None}
    return replace(
        document,
        plan=tuple(replace(step, forecast=_stretched(step.forecast, of_steps)) for step in plan),
        forecast=_stretched(whole, of_steps),
        forecast_scope=_scope(document, replays),
        findings=tuple(
            replace(finding, fixes=tuple(replace(fix, forecast=_stretched(alone.get(fix.id), of_steps)) for fix in finding.fixes))
            for finding in document.findings
        ),
    )


def _tie(verdict: Verdict, context: Context) -> int:
    """How far below the first of a plan, ns, another may take its place: where the verdict names no cause and walls that tie, or none."""
    rules = context.rulebook.walls
    open_ = verdict.cause is None and (verdict.tie or verdict.target_wall == rules.fallback)
    return round(rules.tie_share * (context.numbers(["step_ns"])[0] or 0)) if open_ else 0


def _to_replay(findings: Sequence[Finding]) -> tuple[Fix, ...]:
    """The fixes that may be had, each once, in the order of the findings about the run."""
    return tuple({fix.id: fix for finding in findings if finding.wall != CAPTURE for fix in finding.fixes if fix.state in _OPEN}.values())


def _too_large(knowledge: Knowledge) -> str:
    most = knowledge.forecast.report.one_step
    return (
        f"its first step ends after more than {most:,} operations, which is more than a report replays by itself; `diagnose whatif` does."
    )


def _replays(document: Diagnosis, graph: Graph, knowledge: Knowledge, meet: Callable[[], Met | str]) -> Replays:
    """The verdict's device, with the other captured ranks where that is cheap, and with as many sets of changes as are."""
    rules, limits = knowledge.forecast, knowledge.forecast.report
    operations = int((graph.nodes["kind"] == "op").sum())
    captured = len(document.capture.ranks)
    met: Met | str = ONE_RANK
    if captured > 1 and limits.work // (captured * operations) >= limits.together:
        met = meet()
    if isinstance(met, str):
        return Replays(graph, rules, most=_sets(limits.work // operations, rules.replays))
    together = sum(int((one.nodes["kind"] == "op").sum()) for one in met.graphs)
    return Replays(met.of(graph), rules, met, most=_sets(limits.work // together, rules.replays))


def _sets(afforded: int, most: int) -> int:
    """How many sets of changes to replay: at least the plan's first change and what could be had instead, a few dozen at most."""
    return min(max(afforded, 1 + MOST_INSTEAD), most)


def _alone(question: Question, replays: Replays) -> StepForecast | None:
    """The step with one fix by itself; None where that can't be told, is not replayed here, or wins nothing."""
    if replays.unanswered(question) is not None or not replays.affordable([question]):
        return None
    notable = replays.saves([question]) > NOTHING * sum(replays.now.lengths)
    return forecast_of(replays, [question]) if notable else None


# --- what was replayed ------------------------------------------------------------------------------------------------


def _of_all_steps(document: Diagnosis, replays: Replays) -> Fraction:
    """The mean kept step over that of the replayed ones: of the others the same share is taken to be saved."""
    lengths = replays.now.lengths
    mean = document.facts["step_ns"].value
    if len(lengths) == document.steps.n or not isinstance(mean, int) or not sum(lengths):
        return Fraction(1)
    return Fraction(mean * len(lengths), sum(lengths))


def _stretched(found: StepForecast | None, by: Fraction) -> StepForecast | None:
    if found is None or by == 1:
        return found
    names = ("now_ns", "low_ns", "likely_ns", "high_ns")
    return replace(found, **{name: round(getattr(found, name) * by) for name in names})


def _scope(document: Diagnosis, replays: Replays) -> str:
    """What was replayed, where that is not all kept steps of the one captured rank: half a sentence."""
    said = []
    ranks = sorted({rank.rank for rank in document.capture.ranks})
    if replays.met is not None:
        said.append(f"{len(replays.met.graphs)} captured ranks together, the step of rank {replays.graph.rank}")
    elif len(ranks) > 1:
        stages = ", for other stages in proportion to its own work" if replays.without_stages else ""
        said.append(f"rank {replays.graph.rank} alone, its waiting for other ranks as it was{stages}")
    if document.steps.anchor == CAPTURE:
        said.append("the whole capture, which was not cut into steps")
    elif some := replays.of_steps(document.steps.n):
        said.append(some)
    return f"replayed: {'; '.join(said)}" if said else ""
