"""Findings: every rule asked against the facts and the job. A rule that lacks a fact is listed as not assessed, never as fine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.document.diagnosis import SEVERAL_RANKS, Evidence, Fact, Finding, NotAssessed, Where
from diagnose.job import Job
from diagnose.knowledge import templates
from diagnose.knowledge.rulebook import Rule, Rulebook
from diagnose.model.vocabulary import FactValue, Level, Status
from diagnose.reason.context import Context, make_context
from diagnose.reason.playbook import FixReader
from diagnose.reason.walls import weakest

_LEVELS: Mapping[Level, int] = {"high": 0, "medium": 1, "low": 2}
_NOWHERE = Where(ranks=(), steps=())
RUN = "run"  # the place that stands for the whole run: its ranks and steps
_TOP = 5


def find(
    facts: Mapping[str, Fact], *, job: Job | None, rulebook: Rulebook, where: Mapping[str, Where] | None = None
) -> tuple[tuple[Finding, ...], tuple[NotAssessed, ...]]:
    """All findings, largest bound first, then the more severe; and the rules that could not be asked.

    `where` maps places (rulebook.PLACES: "bucket:attention", "communication:expert", "host:sync", "role:copy", "tiny") to the ranks,
    steps and costliest kernels or calls there; the place "run" holds the ranks and steps of the verdict's device.
    """
    context = make_context(facts, job, rulebook)
    rules = [rule for rule in rulebook.rules.values() if rule.status != "deprecated"]
    holds = context.holds_all([rule.when for rule in rules])
    saving = [rule for rule in rules if rule.saves is not None]
    saves = dict(zip((rule.id for rule in saving), context.numbers([rule.saves or "" for rule in saving]), strict=True))
    reader = FixReader(context=context)
    found = [_finding(rule, saves.get(rule.id), context, reader, where or {}) for rule, true in zip(rules, holds, strict=True) if true]
    unknown = tuple(_not_assessed(rule, context) for rule, true in zip(rules, holds, strict=True) if true is None)
    return tuple(sorted(found, key=_order)), unknown


def passed(rulebook: Rulebook, findings: Sequence[Finding], not_assessed: Sequence[NotAssessed]) -> tuple[str, ...]:
    """Ids of the rules that were asked and found nothing, in order."""
    others = {finding.id for finding in findings} | {rule.id for rule in not_assessed}
    return tuple(sorted(rule.id for rule in rulebook.rules.values() if rule.status != "deprecated" and rule.id not in others))


def _order(finding: Finding) -> tuple[int, int, str]:
    return -(finding.bound_ns or 0), _LEVELS[finding.severity], finding.id


def _finding(rule: Rule, saves: float | None, context: Context, reader: FixReader, where: Mapping[str, Where]) -> Finding:
    step = context.values.get("step_ns")
    length = float(step) if isinstance(step, int | float) and step > 0 else None
    bound = None if saves is None else max(round(saves), 0)
    if bound is not None and length is not None:
        bound = min(bound, round(length))  # waiting on several streams at once adds up to more than the step, which nothing can save
    share = None if bound is None or length is None else bound / length
    ceiling = length / (length - bound) if bound is not None and length is not None and bound < length else None
    values = {**context.values, "bound_ns": bound, "bound_share": share, "speedup_ceiling": ceiling}
    return Finding(
        id=rule.id,
        name=rule.name,
        wall=rule.wall,
        severity=_severity(rule, share, context),
        status=weakest([rule.claim, *_statuses(rule, context)]),
        summary=templates.fill(rule.summary, values),
        evidence=tuple(_evidence(name, context) for name in rule.evidence if context.values.get(name) is not None),
        bound_ns=bound,
        speedup_ceiling=ceiling,
        where=_where(rule, where),
        fixes=reader.read(rule.fixes),
        wrong_when=rule.wrong_when,
        why=rule.why,
        check=rule.check,
        refs=rule.refs,
    )


def _statuses(rule: Rule, context: Context) -> list[Status]:
    """Statuses of the facts that the claim rests on."""
    expressions = [context.rulebook.expression(rule.when)] + ([context.rulebook.expression(rule.saves, "number")] if rule.saves else [])
    names = {name for expression in expressions for name in expression.names}
    return [context.facts[name].status for name in sorted(names) if name in context.facts and context.values.get(name) is not None]


def _severity(rule: Rule, share: float | None, context: Context) -> Level:
    """The level that the rule fixes, or that its thresholds give; a bound that is not known counts as low."""
    if isinstance(rule.severity, str):
        return rule.severity
    spec = rule.severity or context.rulebook.walls.severity
    measure = share if spec.of is None else context.numbers([spec.of])[0]
    if measure is None:
        return "low"
    if spec.high is not None and measure >= spec.high:
        return "high"
    return "medium" if spec.medium is not None and measure >= spec.medium else "low"


def _evidence(name: str, context: Context) -> Evidence:
    value = context.values[name]
    shown: FactValue = ", ".join(value) if isinstance(value, tuple) else value
    return Evidence(fact=name, value=shown, unit=context.rulebook.unit(name))


def _where(rule: Rule, where: Mapping[str, Where]) -> Where:
    """Ranks and steps of the rule's places, or of the run, with the costliest names of each place in turn."""
    places = [where[place] for place in rule.where if place in where]
    run = where.get(RUN, _NOWHERE)
    if not places:
        return Where(ranks=run.ranks, steps=run.steps)
    ranks = tuple(sorted({rank for place in places for rank in place.ranks})) or run.ranks
    steps = tuple(sorted({step for place in places for step in place.steps})) or run.steps
    top = tuple(dict.fromkeys(name for place in places for name in place.top))
    return Where(ranks=ranks, steps=steps, top=top[:_TOP])


def _not_assessed(rule: Rule, context: Context) -> NotAssessed:
    """What the rule lacks, why it is lacking, and what to capture or to give.

    Where one rank was captured, all facts of ranks lack for that reason: it is said once, and in the same words for every rule.
    """
    missing = context.missing(context.rulebook.expression(rule.when))
    specs = context.rulebook.facts
    alone = context.values.get("ranks_captured") == 1
    of_ranks = [name for name in missing if alone and name in specs and specs[name].scope == "ranks"]
    measured = [name for name in missing if name in specs and name not in of_ranks]
    told = [name.removeprefix("job_") for name in missing if name not in specs]
    sentences = [SEVERAL_RANKS] if of_ranks else []
    sentences += [f"{name}: {specs[name].null}." for name in measured]
    if measured and rule.capture:
        sentences.append(rule.capture)
    if told and context.job is None:
        sentences.append(f"Give the job file (--config), which says {', '.join(told)}.")
    elif told:
        sentences.append(f"The job file does not say {', '.join(told)}.")
    return NotAssessed(id=rule.id, missing=missing, how=" ".join(sentences))
