"""The walls with their bounds, and the verdict over them. Bounds, thresholds and sentences are data (trace_rules/walls.yaml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.document.diagnosis import Fact, Verdict, WallBound
from diagnose.job import Job
from diagnose.knowledge import conditions, templates
from diagnose.knowledge.rulebook import VERDICT_COLUMNS, Rulebook, WallSpec
from diagnose.model.vocabulary import Certainty, Status, Wall
from diagnose.reason.context import Context, make_context

_STATUS_ORDER: tuple[Status, ...] = ("measured", "config", "inferred", "hypothesis")


def weakest(statuses: Sequence[Status]) -> Status:
    """The status that a claim over several facts may carry."""
    return max(statuses, key=_STATUS_ORDER.index, default="measured")


def bounds(facts: Mapping[str, Fact], rulebook: Rulebook) -> tuple[WallBound, ...]:
    """All walls in ns per step (median). Parts add up to the bound; `rest` is what medians of parts differ from the median of the sum."""
    context = make_context(facts, None, rulebook)
    return tuple(_bound(wall, spec, context) for wall, spec in rulebook.walls.walls.items())


def _bound(wall: Wall, spec: WallSpec, context: Context) -> WallBound:
    texts = [spec.bound, *spec.parts.values(), *spec.beside.values()]
    numbers = [None if value is None else round(value) for value in context.numbers(texts)]
    bound = None if numbers[0] is None else max(numbers[0], 0)
    split = 1 + len(spec.parts)
    parts = dict(zip(spec.parts, numbers[1:split], strict=True))
    measured = [value for value in parts.values() if value is not None]
    if bound is not None and len(measured) == len(parts) and bound != sum(measured):
        parts["rest"] = bound - sum(measured)
    return WallBound(
        wall=wall,
        bound_ns=bound,
        share=_share(bound, context.values.get("step_ns")),
        parts=parts,
        status=weakest([context.facts[name].status for name in spec.status_facts if name in context.facts]),
        beside=dict(zip(spec.beside, numbers[split:], strict=True)),
    )


def verdict(walls: Sequence[WallBound], facts: Mapping[str, Fact], rulebook: Rulebook, job: Job | None = None) -> Verdict:
    """The dominant wall, the runner-up, one sentence, and how certain it is."""
    by_wall = {bound.wall: bound for bound in walls}
    step = facts["step_ns"].value
    shares = {wall: _share(known(bound), step) or 0.0 for wall, bound in by_wall.items()}
    fallback = rulebook.walls.fallback
    ranked = sorted(rulebook.walls.contenders, key=lambda wall: -shares[wall])
    first = ranked[0]
    dominates = shares[first] >= rulebook.walls.dominance_share
    dominant = first if dominates else fallback
    second = ranked[1] if dominates else first
    runner_up = second if not dominates or shares[second] >= rulebook.walls.dominance_share else fallback
    context = make_context(facts, job, rulebook)
    columns = _verdict_columns(by_wall[dominant], by_wall[runner_up], walls, context)
    leads = [lead.say for lead in rulebook.walls.walls[dominant].lead if lead.when is None or _holds([lead.when], context, columns)[0]]
    holds = _holds([clause.when for clause in rulebook.walls.also], context, columns)
    also = [clause.say for clause, true in zip(rulebook.walls.also, holds, strict=True) if true]
    certainty, reasons = _certainty(context, columns)
    return Verdict(
        dominant_wall=dominant,
        runner_up=runner_up,
        certainty=certainty,
        sentence="; ".join(templates.fill(say, {**context.values, **columns}) for say in [*leads[:1], *also]) + ".",
        perturbed=_holds([rulebook.walls.perturbed], context, columns)[0] is True,
        certainty_reasons=reasons,
    )


def known(bound: WallBound) -> int:
    """The bound, or where a part of it is unknown, the sum of the known parts: a wall is at least that high."""
    return bound.bound_ns if bound.bound_ns is not None else sum(value or 0 for value in bound.parts.values())


def _share(value: int | None, step: object) -> float | None:
    return value / step if value is not None and isinstance(step, int | float) and step > 0 else None


def _verdict_columns(first: WallBound, second: WallBound, walls: Sequence[WallBound], context: Context) -> dict[str, conditions.Value]:
    """What the verdict's sentences may say beyond the facts."""
    titles = {wall: spec.title for wall, spec in context.rulebook.walls.walls.items()}
    step = context.values.get("step_ns")
    parts = [(name, value) for name, value in first.parts.items() if value and name != "rest"]
    shown = sorted(parts, key=lambda item: -item[1])[:3]
    return {
        "dominant_wall": first.wall,
        "runner_up": second.wall,
        "dominant_title": titles[first.wall],
        "runner_up_title": titles[second.wall],
        "dominant_limit": "at least " if first.bound_ns is None else "",
        "runner_up_limit": "at least" if second.bound_ns is None else "at most",
        "dominant_bound_ns": known(first),
        "dominant_share": _share(known(first), step),
        "runner_up_bound_ns": known(second),
        "runner_up_share": _share(known(second), step),
        "unknown_walls": ", ".join(titles[bound.wall] for bound in walls if bound.bound_ns is None) or None,
        "parts_text": ", ".join(f"{name.replace('_', ' ')} {templates.decimal(value / 1e6)} ms" for name, value in shown),
    }


def _holds(texts: Sequence[str], context: Context, columns: Mapping[str, conditions.Value]) -> list[bool | None]:
    """Conditions over facts, settings and the verdict's own columns."""
    frame = context.frame.hstack(conditions.row(columns, VERDICT_COLUMNS).get_columns())
    values = conditions.evaluate([context.rulebook.expression(text) for text in texts], frame)
    return [None if value is None else bool(value) for value in values]


def _certainty(context: Context, columns: Mapping[str, conditions.Value]) -> tuple[Certainty, tuple[str, ...]]:
    """The lowest level that some reason asks for, and the reasons in order."""
    rules = context.rulebook.walls.certainty
    fired = [rule for rule, true in zip(rules, _holds([rule.when for rule in rules], context, columns), strict=True) if true]
    level: Certainty = "low" if any(rule.level == "low" for rule in fired) else "medium" if fired else "high"
    values = {**context.values, **columns}
    return level, tuple(templates.fill(rule.say, values) for rule in fired)
