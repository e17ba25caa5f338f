"""What to change, in order.

Of each finding the first fix that can be had, what could be had instead of it, and every setting as it is written.

A plan says nothing that the findings do not say; it leaves out what is blocked or on already. Bounds of different steps need not add up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import structs

from diagnose.document.diagnosis import ASSUMED, WANTED, Change, Finding, Fix, PlanSetting, PlanStep, Verdict
from diagnose.job.edit import ENVIRONMENT
from diagnose.knowledge.catalogue import BESIDE_FRAMEWORKS
from diagnose.model.vocabulary import CAPTURE

MOST_STEPS = 6  # findings that the plan answers: more than that nobody tries at once
MOST_INSTEAD = 3  # fixes beside the first of a finding
# of the step that a finding's bound must reach to be planned for: below it a change is not worth a run (this project's choice)
LEAST_SHARE = 0.01
# of the step, from which bound on it is worth a run to look further (this project's choice): a step waits a little for others anyway
LOOK_SHARE = 0.05
_LOOKING = "profile"  # the phase of fixes that only find out more: they stand instead of nothing
LEFT_OUT = "leave out "  # begins what is said of a flag that goes: an edit of the job file, though no line of it
_PROSE = re.compile(r"\b(?:the|a|an|of|in|to|or|and|as|with|one)\b|[A-Z]\w+ \w+ ")


def of_numerics(findings: Iterable[Finding]) -> frozenset[str]:
    """The fixes among theirs that are about what is computed."""
    return frozenset(fix.id for finding in findings for fix in finding.fixes if fix.numerics)


def plan_of(findings: Sequence[Finding], verdict: Verdict, step_ns: int | None, one_change: Collection[str] = ()) -> tuple[PlanStep, ...]:
    """The steps in order. `one_change`: findings whose bound is all that one change wins, on whichever wall.

    What the verdict names as the cause first, then the findings as they stand, each followed by what could be had instead.

    Of what holds too little to judge nothing is planned, nothing is only looked at for little, and no fix answers a finding of which it
    reaches next to nothing.

    A fix that changes what is computed is no equal alternative of one that doesn't: it stands in a plan only as the first of its finding,
    or beside a first that only looks.
    """
    if verdict.dominant_wall is None and verdict.cause is None:
        return ()
    cause = None if verdict.cause is None else verdict.cause.finding
    worth = [one for one in findings if _worth(one, cause, step_ns)]
    most = max((one.bound_ns or 0 for one in worth if _first_phase(one) not in (None, _LOOKING)), default=0)
    placed = _parts_later(worth, cause)
    ordered = _sure_first(sorted(placed, key=lambda one: (one.id != cause, _first_phase(one) == _LOOKING and (one.bound_ns or 0) < most)))
    steps: list[PlanStep] = []
    answers: dict[str, dict[str, int]] = {}  # of each fix, by wall, the most that it can win of a finding there
    whole: dict[str, int] = {}  # the same of fixes whose bound on one wall counts the others
    answered = 0
    for finding in ordered:
        if answered == MOST_STEPS:
            break
        taken = {step.fix for step in steps}
        able = _able(finding, step_ns, looks=finding.id == cause or (finding.bound_ns or 0) >= LOOK_SHARE * (step_ns or 0))
        if able and able[0].id in taken:
            here, reached = answers[able[0].id], within_reach(able[0], finding) or 0
            here[finding.wall] = max(here.get(finding.wall, 0), reached)
            if finding.id in one_change:
                whole[able[0].id] = max(whole.get(able[0].id, 0), reached)
            continue
        new = _first_and_instead(able, taken)
        if new:
            made = [_step(fix, finding, None if place == 0 else new[0].id, step_ns) for place, fix in enumerate(new)]
            steps += made
            won = {fix.id: step.bound_ns or 0 for fix, step in zip(new, made, strict=True)}
            answers |= {key: {finding.wall: bound} for key, bound in won.items()}
            whole |= won if finding.id in one_change else {}
        elif not finding.fixes and finding.check and (finding.id == cause or finding.severity == "high"):
            if finding.check in {step.title for step in steps}:  # a slow link and the straggler by it are looked at alike
                continue
            steps.append(_look(finding))
        else:
            continue
        answered += 1
    steps = [on_all_walls(step, answers.get(step.fix or "", {}), whole.get(step.fix or ""), step_ns) for step in steps]
    return tuple(structs.replace(step, exclusive_with=tuple(_exclusive(step, steps))) for step in steps)


def _able(finding: Finding, step_ns: int | None, *, looks: bool) -> list[Fix]:
    """The fixes that surely apply to a finding, or where none does, those that may; without what reaches next to nothing.

    `looks`: with those that only find out more.
    """
    able = [
        fix
        for fix in finding.fixes
        if fix.state in ("applicable", "unknown")
        and (fix.reach_ns is None or fix.reach_ns >= LEAST_SHARE * (step_ns or 0))
        and (looks or fix.phase != _LOOKING)
    ]
    return [fix for fix in able if fix.state == "applicable"] or able


def _first_and_instead(able: Sequence[Fix], taken: Collection[str | None]) -> list[Fix]:
    """The first of a finding's fixes, and those that could be had instead and are not `taken` by another step."""
    instead = [fix for fix in able[1:] if fix.id not in taken and fix.phase != _LOOKING and (able[0].phase == _LOOKING or not fix.numerics)]
    return [*able[:1], *instead[:MOST_INSTEAD]]


def _parts_later(findings: Sequence[Finding], cause: str | None) -> list[Finding]:
    """The findings as they stand; one of which the first fix reaches only a part goes behind those whose first fix wins more than that."""

    def wins(finding: Finding) -> int:
        able = _able(finding, None, looks=True)
        return (within_reach(able[0], finding) if able else finding.bound_ns) or 0

    later = [one for one in findings if one.id != cause and wins(one) < (one.bound_ns or 0)]
    parts = {one.id for one in later}
    placed = [one for one in findings if one.id not in parts]
    for one in later:
        behind = (place + 1 for place, other in enumerate(placed) if wins(other) > wins(one))
        placed.insert(max([findings.index(one), *behind]), one)
    return placed


def _sure_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings as they stand; behind the first, what has a fix that applies goes before what may have none and wins less."""
    placed: list[Finding] = []
    for one in findings:
        passed = (n for n, other in enumerate(placed) if n and _first_phase(other) is None and (other.bound_ns or 0) < (one.bound_ns or 0))
        placed.insert(len(placed) if _first_phase(one) is None else next(passed, len(placed)), one)
    return placed


def _worth(finding: Finding, cause: str | None, step_ns: int | None) -> bool:
    """Findings about the run that could win something, and what the verdict names as the cause."""
    if finding.id == cause:
        return True
    return finding.wall != CAPTURE and finding.bound_ns is not None and finding.bound_ns >= LEAST_SHARE * (step_ns or 0)


def _first_phase(finding: Finding) -> str | None:
    """The phase of the first fix that can be had; none, where no fix can."""
    return next((fix.phase for fix in finding.fixes if fix.state == "applicable"), None)


def _step(fix: Fix, finding: Finding, instead_of: str | None, step_ns: int | None) -> PlanStep:
    step = PlanStep(
        fix=fix.id,
        finding=finding.id,
        title=fix.title,
        state=fix.state,
        bound_ns=finding.bound_ns,
        speedup_ceiling=finding.speedup_ceiling,
        changes=settings(fix.changes),
        needs=tuple(line for line in fix.unknown if not line.startswith((ASSUMED, WANTED))),
        published=fix.expected,
        cost=fix.cost,
        instead_of=instead_of,
    )
    most = within_reach(fix, finding)
    return step if most is None or most == finding.bound_ns or step_ns is None else bounded(step, most, step_ns)


def within_reach(fix: Fix, finding: Finding) -> int | None:
    """What a fix can win of a finding at most, ns: the finding's bound, or the part that it reaches; None without a bound."""
    return finding.bound_ns if finding.bound_ns is None or fix.reach_ns is None else min(fix.reach_ns, finding.bound_ns)


def on_all_walls(step: PlanStep, bounds: Mapping[str, int], whole: int | None, step_ns: int | None) -> PlanStep:
    """A step whose fix is the answer on several walls can win on each, unless `whole` is all that it wins; of two on one the larger."""
    won = sum(bounds.values())
    if step_ns is None or (len(bounds) < 2 and won <= (step.bound_ns or 0)):
        return step
    return bounded(step, min(won if whole is None else max(whole, step.bound_ns or 0), step_ns), step_ns)


def bounded(step: PlanStep, bound_ns: int, step_ns: int) -> PlanStep:
    """The step with that bound."""
    return structs.replace(step, bound_ns=bound_ns, speedup_ceiling=step_ns / (step_ns - bound_ns) if bound_ns < step_ns else None)


def _look(finding: Finding) -> PlanStep:
    """A step without a fix: what the finding says to look at."""
    return PlanStep(
        fix=None,
        finding=finding.id,
        title=finding.check,
        state="applicable",
        bound_ns=finding.bound_ns,
        speedup_ceiling=finding.speedup_ceiling,
        changes=(),
        needs=(),
        published=(),
        cost="",
    )


def _exclusive(step: PlanStep, steps: Sequence[PlanStep]) -> Iterator[str]:
    """The other fixes that set the same setting to something else."""
    mine = {(one.framework, one.key): one.text for one in step.changes if one.language != "words"}
    for other in steps:
        theirs = {(one.framework, one.key): one.text for one in other.changes if one.language != "words"}
        if other.fix is not None and other.fix != step.fix and any(theirs.get(key, text) != text for key, text in mine.items()):
            yield other.fix


# --- settings as they are written --------------------------------------------------------------------------------------


def settings(changes: Iterable[Change]) -> tuple[PlanSetting, ...]:
    """Each setting once, as it is written; of two ways to set one the value goes before the words."""
    found: dict[tuple[str, str], PlanSetting] = {}
    for change in changes:
        language, text = written(change)
        made = PlanSetting(
            framework=change.framework, key=change.key, from_=change.from_, text=text, language=language, stays=stays(change)
        )
        known = found.get((change.framework, change.key))
        if known is None or known.language == "words":
            found[change.framework, change.key] = made
    return tuple(found.values())


def written(change: Change) -> tuple[Literal["yaml", "sh", "words"], str]:
    """A change as a job file, a command line or a shell takes it; in words where a person has to choose."""
    if change.framework in BESIDE_FRAMEWORKS and change.framework != ENVIRONMENT:
        return "words", f"{change.key}: {change.to}"
    flag, variable = change.key.startswith("-"), change.framework == ENVIRONMENT
    if change.op == "unset" or change.to in ("null", "none") or (flag and change.to == "false"):
        return (
            ("words", f"{LEFT_OUT}{change.key}") if flag else ("sh", f"unset {change.key}") if variable else ("yaml", f"{change.key}: null")
        )
    if change.choose or _PROSE.search(change.to):
        return "words", f"{change.key}: {'choose ' if change.choose else ''}{change.to}"
    values = _afterwards(change)
    if values is None:
        return "words", f"{change.op} {change.to} {'to' if change.op == 'add' else 'from'} {change.key}"
    if variable:
        return "sh", f"export {change.key}={shlex.quote(','.join(values))}"
    if flag:
        return "sh", change.key if values == ("true",) else f"{change.key} {' '.join(map(shlex.quote, values))}"
    listed = change.op != "set" or change.to.startswith("[")
    return "yaml", f"{change.key}: [{', '.join(values)}]" if listed else f"{change.key}: {change.to}"


def _afterwards(change: Change) -> tuple[str, ...] | None:
    """The values that the setting has afterwards; None where members are added to a list that is not known."""
    own = members(change.to) if change.op != "set" or change.to.startswith("[") or change.key.startswith("-") else (change.to,)
    if change.op == "set":
        return own
    if change.from_ is None:
        return None
    kept = (one for one in members(change.from_) if one not in own)
    return (*kept, *(own if change.op == "add" else ()))


def members(text: str) -> tuple[str, ...]:
    """The members of a list as it is written in a job file or on a command line: `[a, b]`, `a b`, or one word."""
    return tuple(part for part in text.strip("[] ").replace(",", " ").split() if part)


def stays(change: Change) -> bool:
    """True where the job already has what the change asks for."""
    if change.from_ is None:
        return False
    if change.op in ("add", "remove"):
        has = set(members(change.from_))
        return has.issuperset(members(change.to)) if change.op == "add" else has.isdisjoint(members(change.to))
    return change.from_ == change.to if change.op == "set" else change.from_ in ("none", "null")
