"""What to change: the steps of the plan with their settings and forecasts, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from diagnose.document.diagnosis import (
    LEFT_OPEN,
    NOT_WAITED_FOR,
    WANTED,
    WINS_NOTHING,
    Diagnosis,
    Displaced,
    PlanSetting,
    PlanStep,
    StepForecast,
)
from diagnose.document.forecast import Span
from diagnose.knowledge.catalogue import BESIDE_FRAMEWORKS, GENERAL
from diagnose.knowledge.templates import capitalised, enumerated
from diagnose.model.vocabulary import CAPTURE
from diagnose.reason.plan import LEAST_SHARE
from diagnose.render import report as r
from diagnose.render import units, words
from diagnose.render.issues import in_sentence
from diagnose.render.reports.comparison.story import look
from diagnose.render.reports.diagnosis import lost, story, tables

LITTLE = words.VOCABULARY.walls.severity.medium or 0.0  # of the step: a wall whose bound is below brings little
_ENDS_OTHER = "it ends other waiting too"


def plan(document: Diagnosis) -> r.Plan:
    """What to change, in order, each with all its settings."""
    numbers: dict[str | None, str] = {}
    steps, number = [], 0
    for one in document.plan:
        alternatives = sum(other.instead_of == one.instead_of for other in document.plan[: document.plan.index(one)])
        number += one.instead_of is None
        label = str(number) if one.instead_of is None else f"{numbers.get(one.instead_of, number)}{chr(ord('b') + alternatives)}"
        numbers[one.fix] = label
        steps.append(_step(one, label, numbers))
    return r.Plan(
        title="What to change",
        steps=tuple(steps),
        decided=document.job is not None,
        empty="" if steps else _nothing(document),
        blocked=tuple(_blocked(document)),
        unanswered=_unanswered(document),
        not_worth=_not_worth(document),
        ask=_ask(document),
        forecast=" ".join(
            part for part in (_forecast(document, numbers), *_above(document, numbers), _beyond(document) if steps else "") if part
        ),
    )


def _beyond(document: Diagnosis) -> str:
    """What changes what is computed and by itself leaves less of the step than the plan: the user's choice, so no part of it."""
    planned = {one.fix for one in document.plan}
    left = min((one.forecast.likely_ns for one in document.plan if one.forecast is not None and one.instead_of is None), default=None)
    found = [
        (fix.forecast, fix)
        for finding in document.findings
        for fix in finding.fixes
        if fix.numerics and fix.state == "applicable" and fix.id not in planned and fix.forecast is not None
    ]
    if not found:
        return ""
    most, fix = min(found, key=lambda one: one[0].likely_ns)
    if (most.now_ns if left is None else left) - most.likely_ns < LEAST_SHARE * most.now_ns:
        return ""
    return f"More would come of {fix.id} ({fix.title}), which changes what is computed: {alone(most)} by itself."


def _step(one: PlanStep, number: str, numbers: Mapping[str | None, str]) -> r.Step:
    first = None if one.instead_of is None else numbers.get(one.instead_of)
    instead = "" if first is None else f"instead of {first}" if one.instead_of in one.exclusive_with else f"instead of {first}, or with it"
    return r.Step(
        number=number,
        title=capitalised(one.title),
        id=one.fix or "",
        state=one.state,
        why=one.finding,
        bound="" if one.bound_ns is None or instead else units.time(one.bound_ns),
        faster="" if one.speedup_ceiling is None or instead else units.factor(one.speedup_ceiling),
        settings=tuple(written(one.changes)),
        published=tuple((said.text, said.source) for said in one.published),
        needs=one.needs,
        cost="" if one.cost == "none" else one.cost,
        instead=instead,
        forecast="" if one.forecast is None else likely(one.forecast),
    )


def _forecast(document: Diagnosis, numbers: Mapping[str | None, str]) -> str:
    """The step after each change in a sentence, `116.0 ms → 98 ms (92–104) with 1 → …`; where nothing can be told, why not."""
    main = [one for one in document.plan if one.instead_of is None and one.fix is not None]
    told = [(numbers[one.fix], one.forecast) for one in main if one.forecast is not None]
    nothing = [numbers[one.fix] for one in main if one.no_forecast == WINS_NOTHING]
    rest = [numbers[one.fix] for one in main if one.forecast is None and numbers[one.fix] not in nothing]
    unknown = f" Of {enumerated(rest)} only the bound is known." if rest else ""
    if nothing and not told:
        return f"Forecast: {_win_nothing(nothing)}: {NOT_WAITED_FOR}{unknown}"
    if not told:
        why = document.no_forecast or next((one.no_forecast for one in main if one.no_forecast), "")
        return f"No forecast, only bounds: {in_sentence(why)}" if why and main else ""
    way = "".join(f" → {likely(found)} with {number}" for number, found in told)
    without = f" Then {_win_nothing(nothing)}." if nothing else ""
    doubt = next((f" {found.doubt}" for _, found in told if found.doubt), "")
    moved = "".join(_moved(number, found.displaced) for number, found in told if found.displaced is not None)
    scope = f" ({document.forecast_scope})" if document.forecast_scope else ""
    return f"Forecast{scope}: {units.time(told[0][1].now_ns)}{way}.{moved}{without}{unknown}{doubt}"


def _above(document: Diagnosis, numbers: Mapping[str | None, str]) -> Iterator[str]:
    """Why changes may win more than their findings hold, a sentence for each reason where the figures differ."""
    above: dict[bool, list[tuple[str, str]]] = {}
    findings = {one.id: one for one in document.findings if one.bound_ns is not None}
    for step in document.plan:
        own = findings.get(step.finding)
        if own is None or step.instead_of is not None or (step.bound_ns or 0) <= (own.bound_ns or 0):
            continue
        holds = units.time(own.bound_ns)
        if units.time(step.bound_ns) == holds:
            continue
        asking = (one.wall for one in findings.values() if one.bound_ns and any(fix.id == step.fix for fix in one.fixes))
        above.setdefault(any(wall != own.wall for wall in asking), []).append((numbers[step.fix], holds))
    for elsewhere, told in above.items():
        changes, held = (enumerated(list(column)) for column in zip(*told, strict=True))
        if len(told) == 1:
            why = "a finding on another wall asks for it too" if elsewhere else _ENDS_OTHER
            yield f"{changes} may win more than the {held} of its finding: {why}."
        else:
            why = "findings on other walls ask for them too" if elsewhere else "they end other waiting too"
            yield f"{changes} may win more than the {held} of their findings: {why}."


def _win_nothing(numbers: Sequence[str]) -> str:
    return f"{enumerated(numbers)} {'wins' if len(numbers) == 1 else 'win'} nothing"


def _moved(number: str, found: Displaced) -> str:
    """Why a change wins little of its bound: ` Of 26.4 ms that 1 frees, 24.3 ms become launch-bound`."""
    return f" Of {units.time(found.freed_ns)} that {number} frees, {units.time(found.ns)} become {look(found.category).label}."


def likely(found: StepForecast) -> str:
    """The likely step and its range, with no more figures than that deserves: `98 ms (92–104)`."""
    span = Span(now=found.now_ns, low=found.low_ns, likely=found.likely_ns, high=found.high_ns)
    return f"{units.forecast(span.likely, span)} ({units.between(span).partition(' ')[0]})"


def alone(found: StepForecast, bound: int | None = None) -> str:
    """What one fix by itself makes of the step: `likely 98 ms (92–104), −16 %`.

    `bound` (ns) is what its finding alone would give back: a fix that ends other waiting too may win more, which is said.
    """
    doubt = ", low certainty" if found.doubt else ""
    more = f"; more than this finding's bound: {_ENDS_OTHER}" if bound is not None and found.now_ns - found.likely_ns > bound else ""
    return f"likely {likely(found)}{doubt}, {units.signed_percent((found.likely_ns - found.now_ns) / found.now_ns, 0)}{more}"


def written(changes: Sequence[PlanSetting]) -> Iterator[r.Written]:
    """The settings that change, by where they belong."""
    places: dict[tuple[str, str], list[str]] = {}
    for setting in changes:
        if not setting.stays:
            places.setdefault((setting.framework, setting.language), []).append(setting.text)
    for (framework, language), lines in places.items():
        where = "" if (language == "sh" and framework in BESIDE_FRAMEWORKS) or framework == GENERAL else story.framework(framework)
        yield r.Written(where=where, language=language, lines=tuple(lines))  # type: ignore[arg-type]


def _nothing(document: Diagnosis) -> str:
    if document.verdict.target_wall is None:
        return "Too little was captured to advise anything."
    named = next((one for one in document.findings if one.wall != CAPTURE), None)
    if named is None:
        return "No rule found anything to change."
    whole = tables.whole(document)
    foreseen = [(fix.forecast, fix) for finding in document.findings for fix in finding.fixes if fix.forecast is not None]
    winning = [(found, fix) for found, fix in foreseen if found.now_ns - found.likely_ns >= LEAST_SHARE * found.now_ns]
    if not winning:
        return f"No setting is known that would win a hundredth of the {whole}. {capitalised(named.name)}: {named.summary}"
    most, fix = max(winning, key=lambda one: one[0].now_ns - one[0].likely_ns)
    check = "; the trace does not show whether it is done already" if fix.state == "unknown" else ""
    named_fix = f"{fix.id} ({fix.title}): {alone(most)}{check}"
    return f"No finding with a bound of a hundredth of the {whole} has a setting to change. By forecast most would come of {named_fix}."


def _blocked(document: Diagnosis) -> Iterator[str]:
    """Fixes of the planned findings that can't be had now, and why."""
    planned = {step.finding for step in document.plan}
    offered: set[str | None] = {step.fix for step in document.plan}
    told: set[str | None] = set()
    for finding in document.findings:
        for fix in finding.fixes if finding.id in planned else ():
            if fix.state == "blocked" and fix.id not in offered | told:
                told.add(fix.id)
                yield f"{fix.id} {fix.title}: {story.fix_reason(fix)}"


def _unanswered(document: Diagnosis) -> str:
    """Why nothing can be set for the finding that could win more than any step of the plan, and what to look at; empty without one."""
    bounded = [(one.bound_ns, one) for one in document.findings if one.bound_ns and one.wall != CAPTURE]
    if not document.plan or not bounded:
        return ""
    most, finding = max(bounded, key=lambda pair: pair[0])
    blocked = [fix for fix in finding.fixes if fix.state == "blocked"]
    if not blocked or len(blocked) < len(finding.fixes) or most <= max(step.bound_ns or 0 for step in document.plan):
        return ""
    reasons = " ".join(f"{fix.id} ({fix.title}) is blocked: {story.fix_reason(fix)}" for fix in blocked)
    return f"Nothing can be set for the largest finding: {finding.name} ({units.time(most)}). {reasons} {finding.check}".strip()


def _not_worth(document: Diagnosis) -> str:
    """Walls that bring little here and that no step is for, and fixes that are on already, in one line."""
    if document.verdict.target_wall is None:
        return ""
    planned = {step.finding for step in document.plan}
    answered = {finding.wall for finding in document.findings if finding.id in planned}
    low = [
        f"{words.wall_in_text(wall.wall)} ({units.at_most(wall.share) if wall.share else 'none'})"
        for wall in document.walls
        if words.VOCABULARY.is_ceiling(wall.wall)
        and wall.wall not in answered
        and wall.share is not None
        and wall.share < LITTLE
        and (wall.share or not lost.is_hidden(document))
    ]
    on = {fix.id: fix.title for finding in document.findings if finding.id in planned for fix in finding.fixes if fix.state == "already_on"}
    return "; ".join([*([", ".join(low)] if low else []), *([f"on already: {', '.join(on)}"] if on else [])])


def _ask(document: Diagnosis) -> str:
    """What a job file would decide; empty where one was given, or where none would decide anything: a program without Python has none."""
    if document.job is not None or document.verdict.dominant_wall is None or without_job_file(document):
        return ""
    unknown = {fix.id: fix.unknown for finding in document.findings for fix in finding.fixes if fix.state == "unknown"}
    open_ = [key for key, lines in unknown.items() if not lines or any(line == LEFT_OPEN or line.startswith(WANTED) for line in lines)]
    if not open_:
        return ""
    return f"{units.plural(len(open_), 'fix', 'fixes')} may be on already or blocked: --config JOB decides."


def without_job_file(document: Diagnosis) -> bool:
    """Whether it is a program that no format of job files describes: all are of trainers, which Python drives."""
    python = document.facts.get("python_seen")
    return python is not None and python.value is False
