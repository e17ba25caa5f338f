"""The walls with their bounds, and the verdict over them. Bounds, thresholds and sentences are data (trace_rules/walls.yaml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from diagnose.document.diagnosis import Cause, Fact, Finding, Verdict, WallBound
from diagnose.job import Job
from diagnose.knowledge import conditions, templates
from diagnose.knowledge.catalogue import CauseSpec, Rule
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.walls import VERDICT_COLUMNS, CertaintyRule, Floor, Lead, WallSpec
from diagnose.model.vocabulary import Certainty, Status, Wall
from diagnose.reason.context import Context, make_context, unit

RANGE_SHARE = 0.005  # this project's choice: a bound whose ends lie closer (of the step) is said as one number
ROUNDING_NS = 2  # each part is a sum or difference of means, of which each is rounded
_STATUS_ORDER: tuple[Status, ...] = ("measured", "config", "inferred", "hypothesis")


def weakest(statuses: Sequence[Status]) -> Status:
    """The status that a claim over several facts may carry."""
    return max(statuses, key=_STATUS_ORDER.index, default="measured")


def bounds(facts: Mapping[str, Fact], rulebook: Rulebook, typical: Mapping[str, Fact] | None = None) -> tuple[WallBound, ...]:
    """All walls in ns per step, over all kept steps together; `typical`: the facts of the typical step alone."""
    context = make_context(facts, None, rulebook)
    texts = [spec.bound for spec in rulebook.walls.walls.values()]
    alone: Sequence[float | None] = [None] * len(texts) if typical is None else make_context(typical, None, rulebook).numbers(texts)
    found = [_bound(wall, spec, context) for wall, spec in rulebook.walls.walls.items()]
    return tuple(
        structs.replace(bound, typical_ns=None if value is None or bound.bound_ns is None else max(round(value), 0))
        for bound, value in zip(found, alone, strict=True)
    )


def _bound(wall: Wall, spec: WallSpec, context: Context) -> WallBound:
    """One wall; parts add up to the bound, but for what rounding each of them to a nanosecond leaves, which goes to the largest."""
    texts = [spec.bound, *spec.parts.values(), *spec.beside.values()]
    numbers = [None if value is None else round(value) for value in context.numbers(texts)]
    bound = None if numbers[0] is None else max(numbers[0], 0)
    split = 1 + len(spec.parts)
    parts = dict(zip(spec.parts, numbers[1:split], strict=True))
    measured = {name: value for name, value in parts.items() if value is not None}
    left = 0 if bound is None or len(measured) < len(parts) else bound - sum(measured.values())
    if 0 < abs(left) <= ROUNDING_NS * len(parts):
        largest = max(measured, key=lambda name: measured[name])
        parts[largest] = measured[largest] + left
    elif left:
        parts["rest"] = left
    lower = context.numbers([spec.lower])[0] if spec.lower is not None else None
    least = None if lower is None or bound is None or lower >= bound else max(round(lower), 0)
    return WallBound(
        wall=wall,
        bound_ns=bound,
        lower_ns=least,
        share=_share(bound, context.values.get("step_ns")),
        parts=parts,
        status=weakest([context.facts[name].status for name in spec.status_facts if name in context.facts]),
        beside=dict(zip(spec.beside, numbers[split:], strict=True)),
    )


def verdict(
    walls: Sequence[WallBound],
    facts: Mapping[str, Fact],
    rulebook: Rulebook,
    job: Job | None = None,
    *,
    findings: Sequence[Finding] = (),
    typical_step_ns: int | None = None,
) -> Verdict:
    """Where the step goes, what to attack first and its cause among the findings, the runner-up, one sentence, and how certain it is."""
    context = make_context(facts, job, rulebook)
    little = [clause for clause in rulebook.walls.floor if context.holds(clause.when)]
    hidden = context.holds(rulebook.walls.hidden) is True
    if little:
        return _no_verdict(little[0], context, hidden=hidden)
    named = _within(_named(walls, context), walls, findings, context)
    columns = _verdict_columns(named, walls, context) | _apart(walls, context, typical_step_ns)
    if named.target is not None:
        clauses = rulebook.walls.walls[named.target.wall].says
        columns |= {"says": templates.fill(_first(clauses, context, columns), {**context.values, **columns})}
    holds = _holds([clause.when for clause in rulebook.walls.also], context, columns)
    also = [clause.say for clause, true in zip(rulebook.walls.also, holds, strict=True) if true]
    certainty, doubts = _certainty(context, columns)
    cause = _cause(named, findings, context)
    said = [templates.fill(say, {**context.values, **columns}) for say in [_first(rulebook.walls.lead, context, columns), *also]]
    sentence = "; ".join(said)
    if cause is not None:
        sentence = f"{cause.sentence}. {sentence[:1].upper()}{sentence[1:]}"
    return Verdict(
        dominant_wall=named.dominant.wall if named.dominant else None,
        target_wall=named.target.wall if named.target else None,
        cause=cause,
        runner_up=named.runner_up.wall if named.runner_up else None,
        tie=named.tie,
        certainty=certainty,
        sentence=f"{sentence[:1].upper()}{sentence[1:]}.",
        perturbed=_holds([rulebook.walls.perturbed], context, columns)[0] is True,
        hidden=hidden,
        certainty_reasons=tuple(templates.fill(rule.say, {**context.values, **columns}) for rule in doubts),
        certainty_findings=tuple(dict.fromkeys(rule.finding for rule in doubts if rule.finding)),
    )


def _no_verdict(floor: Floor, context: Context, *, hidden: bool) -> Verdict:
    """What is said of a capture that holds too little to judge."""
    return Verdict(
        dominant_wall=None,
        target_wall=None,
        runner_up=None,
        certainty="low",
        sentence=f"{templates.fill(floor.say, context.values)}.",
        perturbed=False,
        hidden=hidden,
        certainty_findings=(floor.finding,) if floor.finding else (),
    )


class _Named(Struct, frozen=True, kw_only=True):
    """The walls that a verdict names."""

    dominant: WallBound | None
    target: WallBound | None
    runner_up: WallBound | None
    tie: bool


def _named(walls: Sequence[WallBound], context: Context) -> _Named:
    """The walls by share: of the contenders the largest from the target's share on, otherwise the wall that is none, if it ran."""
    rules, step = context.rulebook.walls, context.values.get("step_ns")
    by_wall = {bound.wall: bound for bound in walls}
    shares = {wall: _share(known(bound), step) or 0.0 for wall, bound in by_wall.items()}
    first, second = sorted(rules.contenders, key=lambda wall: -shares[wall])[:2]
    left = by_wall[rules.fallback] if by_wall[rules.fallback].bound_ns is not None else None
    largest = max(by_wall, key=lambda wall: shares[wall])
    dominant = by_wall[largest] if shares[largest] > 0 else None
    if shares[first] < rules.target_share:
        return _Named(dominant=dominant, target=left, runner_up=by_wall[first] if left else None, tie=False)
    tie = shares[first] - shares[second] <= rules.tie_share
    runner_up = by_wall[second] if tie or left is None or shares[second] >= rules.target_share else left
    return _Named(dominant=dominant, target=by_wall[first], runner_up=runner_up, tie=tie)


def _within(named: _Named, walls: Sequence[WallBound], findings: Sequence[Finding], context: Context) -> _Named:
    """The same, but that the wall that is no contender is attacked first where a cause inside it costs more than all of the target."""
    rules = context.rulebook.walls
    inside = [
        one.bound_ns or 0
        for one in findings
        if (spec := cause_of(context.rulebook.rules[one.id], context)) is not None and (spec.of or one.wall) == rules.fallback
    ]
    if named.target is None or named.target.wall == rules.fallback:
        return named
    more = _share(max(inside, default=0) - known(named.target), context.values.get("step_ns"))
    if more is None or more <= rules.tie_share:
        return named
    left = next(bound for bound in walls if bound.wall == rules.fallback)
    return structs.replace(named, target=left, runner_up=named.target, tie=False)


def target(walls: Sequence[WallBound], context: Context) -> WallBound | None:
    """The wall to attack first."""
    return _named(walls, context).target


def known(bound: WallBound) -> int:
    """The bound, or where a part of it is unknown, the sum of the known parts: a wall is at least that high."""
    return bound.bound_ns if bound.bound_ns is not None else sum(value or 0 for value in bound.parts.values())


def _share(value: int | None, step: object) -> float | None:
    return value / step if value is not None and isinstance(step, int | float) and step > 0 else None


def _limit(bound: WallBound, step: object) -> str:
    """What stands before a wall's bound: it is a ceiling, the higher end of a range that is wide enough to say, or only partly known."""
    if bound.bound_ns is None:
        return "at least"
    width = _share(bound.bound_ns - bound.lower_ns, step) if bound.lower_ns is not None else None
    return "at most" if width is None or width < RANGE_SHARE else f"between {templates.decimal((bound.lower_ns or 0) / 1e6)} and"


def _verdict_columns(named: _Named, walls: Sequence[WallBound], context: Context) -> dict[str, conditions.Value]:
    """What the verdict's sentences may say beyond the facts."""
    rules, step = context.rulebook.walls, context.values.get("step_ns")
    titles = {wall: spec.title for wall, spec in rules.walls.items()}
    columns: dict[str, conditions.Value] = {
        "whole": unit(context.values),
        "tie": named.tie,
        "unowned_wait_ns": context.numbers([rules.unowned])[0],
        "unknown_walls": ", ".join(titles[bound.wall] for bound in walls if bound.bound_ns is None and bound.wall in rules.contenders)
        or None,
    }
    if named.target is not None:
        columns["target_lower_share"] = _share(named.target.lower_ns, step)
    if named.dominant is not None:
        columns |= {"dominant_wall": named.dominant.wall, "dominant_title": titles[named.dominant.wall]}
        columns |= {"dominant_share": _share(known(named.dominant), step)}
    for role, bound in (("target", named.target), ("runner_up", named.runner_up)):
        if bound is not None:
            columns |= {
                "target_wall" if role == "target" else role: bound.wall,
                f"{role}_title": titles[bound.wall],
                f"{role}_limit": _limit(bound, step),
                f"{role}_bound_ns": known(bound),
                f"{role}_share": _share(known(bound), step),
            }
    every = [(rules.part(name), value) for name, value in (named.target.parts.items() if named.target else ()) if value and name != "rest"]
    shown = sorted((item for item in every if item[1] > 0), key=lambda item: -item[1])[:3]
    less = [f"less {templates.decimal(-value / 1e6)} ms {name}" for name, value in every if value < -ROUNDING_NS * len(every)]
    parts = ", ".join([*(f"{name} {templates.decimal(value / 1e6)} ms" for name, value in shown), *less])
    return columns | {"parts_text": f"; {parts}" if parts else ""}


def _apart(walls: Sequence[WallBound], context: Context, typical_step_ns: int | None) -> dict[str, conditions.Value]:
    """The wall whose share of all kept steps together is furthest from that of the typical step; nothing where all are near."""
    rules, step = context.rulebook.walls, context.values.get("step_ns")
    found = [
        (abs(whole - alone), bound.wall, whole, alone)
        for bound in walls
        if bound.wall in rules.contenders  # compute is what they leave
        and (whole := _share(bound.bound_ns, step)) is not None
        and (alone := _share(bound.typical_ns, typical_step_ns)) is not None
    ]
    far, wall, whole, alone = max(found, default=(0.0, "", 0.0, 0.0))
    if far <= rules.apart_share:
        return {}
    title = rules.walls[wall].title
    return {"apart_title": title, "apart_share": whole, "apart_typical_share": alone, "apart_typical_step_ns": typical_step_ns}


def cause_of(rule: Rule, context: Context) -> CauseSpec | None:
    """How the verdict begins where the rule's finding is the cause: also, or instead, as what makes one rank late."""
    found = rule.late if rule.late is not None and context.holds(rule.late.when) else rule.cause
    return found if found is None or found.when is None or context.holds(found.when) else None


def _cause(named: _Named, findings: Sequence[Finding], context: Context) -> Cause | None:
    """The finding that explains most of the target wall's bound; a failure that outranks every wall before all.

    Of bounds that are a tie what holds the other ranks up, too, is named before what was seen on one of them, then the claim that rests on
    most.
    What costs the others more than all of this rank's target, or where none of its walls reaches the target's share costs them that much,
    is the cause: a rank that is late waits for nobody.
    """
    rules, walls = context.rulebook.rules, context.rulebook.walls
    target = None if context.holds(walls.no_cause) else named.target
    elsewhere = target is not None and target.wall == walls.fallback
    step = context.values.get("step_ns")
    length = step if isinstance(step, int | float) else 0.0
    least = 0.0 if target is None else walls.target_share * length if elsewhere else walls.cause_share * known(target)
    found = [
        (spec, one)
        for one in findings
        if (spec := cause_of(rules[one.id], context)) is not None
        and (
            spec.outranks
            or (target is not None and spec.of is not None and (one.bound_ns or 0) > known(target))
            or (target is not None and (elsewhere or target.wall in (spec.of, one.wall)) and (one.bound_ns or 0) >= max(least, 1))
        )
    ]
    if not found:
        return None
    most = max((item[0].outranks, item[1].bound_ns or 0) for item in found)
    alike = [item for item in found if item[0].outranks == most[0] and (item[1].bound_ns or 0) >= most[1] - walls.tie_share * length]
    spec, first = max(
        alike, key=lambda item: (item[0].of not in {None, item[1].wall}, -_STATUS_ORDER.index(item[1].status), item[1].bound_ns or 0)
    )
    share = _share(first.bound_ns, context.values.get("step_ns"))
    values = {**context.values, "bound_ns": first.bound_ns, "bound_share": share, "speedup_ceiling": first.speedup_ceiling}
    return Cause(finding=first.id, sentence=templates.fill(spec.say, values), headline=spec.headline)


def _first(leads: Sequence[Lead], context: Context, columns: Mapping[str, conditions.Value]) -> str:
    """The first clause that holds; the rulebook sees to it that there is one."""
    return next(lead.say for lead in leads if lead.when is None or _holds([lead.when], context, columns)[0])


def _holds(texts: Sequence[str], context: Context, columns: Mapping[str, conditions.Value]) -> list[bool | None]:
    """Conditions over facts, settings and the verdict's own columns."""
    frame = context.frame.hstack(conditions.row(columns, VERDICT_COLUMNS).get_columns())
    values = conditions.evaluate([context.rulebook.expression(text) for text in texts], frame)
    return [None if value is None else bool(value) for value in values]


def _certainty(context: Context, columns: Mapping[str, conditions.Value]) -> tuple[Certainty, list[CertaintyRule]]:
    """The lowest level that some reason asks for, and the reasons, those for that level first."""
    rules = context.rulebook.walls.certainty
    fired = [rule for rule, true in zip(rules, _holds([rule.when for rule in rules], context, columns), strict=True) if true]
    fired.sort(key=lambda rule: rule.level != "low")
    return fired[0].level if fired else "high", fired
