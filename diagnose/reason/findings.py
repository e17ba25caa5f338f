"""Findings and their fixes: every rule asked against the facts and the job, every fix read against the job.

Rules and fixes of another kind of program (relevance.yaml) are left out, and a framework's own settings where nothing shows that framework.

A rule that lacks a fact is listed as not assessed, never as fine. A fix is already on, blocked with the sentence that says why, unknown, or
applicable. A requirement that cannot be decided makes a fix unknown, never applicable; without a job file most fixes are unknown and say
which settings would decide. A platform or a backend that the trace shows decides without a job file too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from diagnose.document.diagnosis import (
    ASSUMED,
    LEFT_OPEN,
    SEVERAL_RANKS,
    WANTED,
    Change,
    Evidence,
    Expected,
    Fact,
    Finding,
    Fix,
    NotAssessed,
    WallBound,
    Where,
)
from diagnose.job import Job
from diagnose.job.edit import ENVIRONMENT
from diagnose.knowledge import templates
from diagnose.knowledge.catalogue import BESIDE_FRAMEWORKS, GENERAL, ChangeSpec, FixSpec, LateSpec, Requirement, Rule
from diagnose.knowledge.platforms import platform_of
from diagnose.knowledge.rulebook import Rulebook, changes_numerics
from diagnose.knowledge.settings import flag_name
from diagnose.model.vocabulary import CAPTURE, FactValue, FixState, Level, Status
from diagnose.reason.context import Context, make_context
from diagnose.reason.walls import cause_of, known, target, weakest

_BACK: Mapping[FixState, int] = {"applicable": 0, "unknown": 0, "blocked": 1, "already_on": 2}


class Verdicts(Struct, frozen=True, kw_only=True):
    """Conditions of one fix, decided: a requirement with True where it is met, False where it fails, None where it is unknown."""

    already_on: bool | None
    requirements: tuple[tuple[Requirement, bool | None], ...]

    @property
    def failed(self) -> list[Requirement]:
        """Requirements that are certainly not met and that block."""
        return [item for item, met in self.requirements if met is False and item.gate != "note"]

    @property
    def undecided(self) -> list[Requirement]:
        """Requirements that could not be decided and that matter for the state."""
        return [item for item, met in self.requirements if met is None and item.gate == "hard"]

    @property
    def notes(self) -> list[tuple[Requirement, bool | None]]:
        """Requirements that do not decide the state, where they are not met or not known."""
        return [
            (item, met)
            for item, met in self.requirements
            if (item.gate == "note" and met is not True) or (item.gate == "known" and met is None)
        ]

    @property
    def state(self) -> FixState:
        """The fix's state, strongest first."""
        if self.already_on:
            return "already_on"
        if self.failed:
            return "blocked"
        return "unknown" if self.already_on is None or self.undecided else "applicable"


_ELSEWHERE: Mapping[str, bool | None] = {"met": True, "unmet": False, "open": None}


def _asked_for(spec: FixSpec) -> Iterator[str]:
    """Every condition of a fix: of its state, its changes and what was published of it."""
    yield from (item.condition for item in (*spec.needs, *spec.conflicts))
    only = (*(one.only for one in spec.changes), *(one.only for one in spec.expected))
    yield from (text for text in (spec.already_on, *only) if text)


class FixReader(Struct, frozen=True, kw_only=True):
    """Reads fixes against one job and one trace."""

    context: Context

    def read(self, ids: Sequence[str], first: Mapping[str, str] | None = None) -> tuple[Fix, ...]:
        """The fixes with these ids that matter to the program: those whose condition to be `first` holds, then the order given.

        Blocked ones and those already on stand at the end. A fix that changes settings, none of them one of the job's framework, is left
        out unless it is on.
        """
        conditions = first or {}
        holds = self.context.holds_all(list(conditions.values())) if conditions else []
        ahead = [key for key, true in zip(conditions, holds, strict=True) if true]
        specs = [self.context.rulebook.fixes[key] for key in dict.fromkeys((*ahead, *ids))]
        offered = [spec for spec in specs if self._offered(spec)]
        self.context.holds_all([text for spec in offered for text in _asked_for(spec)])  # one pass for all
        read = ((spec, self.fix(spec)) for spec in offered)
        fixes = (fix for spec, fix in read if fix.changes or not spec.changes or fix.state == "already_on")
        return tuple(sorted(fixes, key=lambda fix: _BACK[fix.state]))

    def fix(self, spec: FixSpec) -> Fix:
        """One fix with its state, the sentences behind it, and the changes that it asks for."""
        verdicts = self.decide(spec)
        return Fix(
            id=spec.id,
            title=spec.title,
            state=verdicts.state,
            blocked_by=tuple(self.sentence(item) for item in verdicts.failed) if verdicts.state == "blocked" else (),
            changes=tuple(map(self._change, self._changes(spec))),
            expected=self._published(spec),
            cost=spec.cost,
            risk=spec.risk,
            verify=spec.verify,
            refs=spec.refs,
            disputed=spec.disputed,
            evidence=spec.evidence,
            phase=spec.phase,
            step=spec.step,
            unknown=() if verdicts.state == "already_on" else tuple(self._unknown(spec, verdicts)),
            numerics=changes_numerics(spec, self.context.rulebook) is not None,
        )

    def _published(self, spec: FixSpec) -> tuple[Expected, ...]:
        """The published effects that speak of such jobs: those measured on this platform first, those on a named other one last."""
        here, platforms = self.context.values.get("platform"), self.context.rulebook.platforms
        told = [one for one in spec.expected if one.only is None or self.context.holds(one.only) is not False]
        if here is not None:
            on = {one.text: platform_of(one.text, platforms) for one in told}
            told.sort(key=lambda one: 1 if on[one.text] is None else 0 if on[one.text] == here else 2)
        return tuple(Expected(text=one.text, source=one.source) for one in told)

    def _offered(self, spec: FixSpec) -> bool:
        """Whether the program is of the fix's kind, and there is a way to say what to do in it."""
        where = {one.framework for one in spec.changes}
        said = where & {*self.context.frameworks, GENERAL, "code"} or where.issubset(BESIDE_FRAMEWORKS)
        return bool(said) and spec.id not in self.context.irrelevant

    def _changes(self, spec: FixSpec) -> list[ChangeSpec]:
        """What is to be changed here.

        In the keys of the frameworks that are known, and in general words where the fix has none of these keys.

        A condition that nobody can decide leaves a change in, for a reader to weigh; but not a setting to leave out that the job file
        does not give, nor a variable that goes with settings of a framework which is not known to be there, and without a job file
        nothing whose condition only that would decide, where something else of the fix is certain.
        """
        changes = taken_changes(spec, self.context)
        here = {one.framework for one in changes} & set(self.context.frameworks)
        beside = set(BESIDE_FRAMEWORKS) - ({GENERAL} if here else set())
        wanted = [one for one in changes if one.framework in here | beside and self.is_wanted(one, framework_known=bool(here))]
        if self.context.job is not None:
            return wanted
        certain = [one for one in wanted if one.only is None or self.context.holds(one.only) is True]
        return certain or wanted

    def is_wanted(self, change: ChangeSpec, *, framework_known: bool) -> bool:
        """Whether a fix's change is shown: not where its condition fails, nor, undecided, where there is nothing to take out."""
        held = None if change.only is None else self.context.holds(change.only)
        if change.only is None or held is not None:
            return held is not False
        if change.op == "unset" and self._not_given(change.only):
            return False
        return framework_known or change.framework != ENVIRONMENT

    def _not_given(self, condition: str) -> bool:
        """Whether there is a job file, and it gives none of the settings that a condition asks for."""
        job, names = self.context.job, self.context.rulebook.expression(condition).names
        asked = [name.removeprefix("job_") for name in names]
        return (
            job is not None
            and all(name.startswith("job_") for name in names)
            and not any(job.get(name) is not None or name in job.unresolved for name in asked)
        )

    def decide(self, spec: FixSpec) -> Verdicts:
        """Every condition of one fix, decided; what asks for settings of a framework only where one is known."""
        needs, conflicts = ([item for item in items if self._asked(item.condition)] for items in (spec.needs, spec.conflicts))
        requirements = (*needs, *conflicts)
        on = spec.already_on
        holds = self.context.holds_all([item.condition for item in requirements] + ([on] if on else []))
        met = [value if index < len(needs) or value is None else not value for index, value in enumerate(holds[: len(requirements)])]
        met = [
            _ELSEWHERE[item.elsewhere] if value is None and self._foreign(item.condition) else value
            for item, value in zip(requirements, met, strict=True)
        ]
        # what the trace shows to run is on, whoever set it; what settings do not tell, and it shows not to be so, is off
        if on and (holds[-1] or self._asked(on) or (spec.undecidable and holds[-1] is False)):
            already_on = False if holds[-1] is None and self._foreign(on) else holds[-1]
        else:
            already_on = False if self.context.job is not None and not spec.undecidable else None
        if already_on is False and any(item.gate == "hard" and not self._asked(item.condition) for item in (*spec.needs, *spec.conflicts)):
            already_on = None  # what it waits for could not be asked: no more certain than the others
        return Verdicts(already_on=already_on, requirements=tuple(zip(requirements, met, strict=True)))

    def _asked(self, text: str) -> bool:
        """Whether a condition can be asked: without a framework nothing tells its settings, but for what the trace is asked beside them."""
        names = self.context.rulebook.expression(text).names
        settings = [name.removeprefix("job_") for name in names if name.startswith("job_")]
        return bool(self.context.frameworks) or all(name in names for name in settings)

    def _foreign(self, text: str) -> bool:
        """Whether only settings that the job's framework does not have leave a condition open."""
        return self.context.foreign(self.context.rulebook.expression(text))

    def sentence(self, item: Requirement) -> str:
        """Why a requirement fails, with the fix that clears the way."""
        said = templates.fill(item.say, self.context.values)
        if item.first is None:
            return said
        return f"{said} First: {item.first}, {self.context.rulebook.fixes[item.first].title}."

    def _unknown(self, spec: FixSpec, verdicts: Verdicts) -> list[str]:
        """What would have to be known, what was decided on a framework's default, and what is only told."""
        told = [templates.fill(item.say, self.context.values) for item, met in verdicts.notes if met is False]
        if not self.context.frameworks:
            on = [] if verdicts.already_on is False else [spec.undecidable or LEFT_OPEN]
            return [*on, *(item.unknown or self._lacking(item.condition) for item in verdicts.undecided), *told]
        if self.context.job is None:
            return [*self._settings_wanted(spec), *self._facts_wanted(spec, verdicts), *told]
        left_open = spec.undecidable or (self._lacking(spec.already_on) if spec.already_on else "")
        lines = [left_open] if spec.already_on is None or verdicts.already_on is None else []
        lines += [item.unknown or self._lacking(item.condition) for item in verdicts.undecided]
        for item, met in verdicts.notes:
            if met is False:
                lines.append(templates.fill(item.say, self.context.values))
            else:
                lines.append(item.unknown or (self._lacking(item.condition) if item.gate == "known" else ""))
        lines += self._unset(spec, self.context.job)
        assumed = self._assumed(spec, self.context.job)
        return list(dict.fromkeys(line for line in lines if line)) + ([f"{ASSUMED}{', '.join(assumed)}."] if assumed else [])

    def _names(self, spec: FixSpec) -> list[str]:
        """Columns that decide a fix, in order of appearance."""
        return self._columns([spec.already_on, *(one.condition for one in (*spec.needs, *spec.conflicts))])

    def _columns(self, conditions: Sequence[str | None]) -> list[str]:
        """Columns that conditions read, in order of appearance."""
        return list(dict.fromkeys(name for text in conditions if text for name in self.context.rulebook.expression(text).names))

    def _settings_wanted(self, spec: FixSpec) -> list[str]:
        names = [name.removeprefix("job_") for name in self._names(spec) if name.startswith("job_")]
        names += [change.setting for change in spec.changes if change.setting is not None]
        wanted = ", ".join(dict.fromkeys(names))
        return [f"{WANTED}: {wanted} decide." if wanted else f"{WANTED}."]

    def _facts_wanted(self, spec: FixSpec, verdicts: Verdicts) -> list[str]:
        facts = self.context.rulebook.facts
        open_still = [spec.already_on] if verdicts.already_on is None else []
        names = self._columns([*open_still, *(one.condition for one in verdicts.undecided)])
        lacking = [name for name in names if name in facts and self.context.values.get(name) is None]
        wanted = [name for name in lacking if facts[name].scope != "ranks"]  # facts of ranks only add notes; no fix waits for them
        return [f"{name} is not in the trace: {facts[name].null}." for name in wanted]

    def _lacking(self, text: str) -> str:
        names = self.context.missing(self.context.rulebook.expression(text))
        settings = _askable([name.removeprefix("job_") for name in names if name.startswith("job_")], self.context)
        facts = [name for name in names if not name.startswith("job_")]
        parts = ([f"not in the job file: {', '.join(settings)}"] if settings else []) + (
            [f"not in the trace: {', '.join(facts)}"] if facts else []
        )
        sentence = "; ".join(parts)
        return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""

    def _unset(self, spec: FixSpec, job: Job) -> list[str]:
        """The variables that decide a fix and that the job file does not set: a launcher may."""
        names = dict.fromkeys(name.removeprefix("job_") for name in self._names(spec))
        found = [job.settings[name] for name in names if name in job.settings and job.settings[name].source == "default"]
        variables = [(job.table.specs[item.name].env, item.value) for item in found]
        return [f"{env[0]} is not in the job file and was taken as its default, {shown(value)}." for env, value in variables if env]

    def _assumed(self, spec: FixSpec, job: Job) -> list[str]:
        names = [name.removeprefix("job_") for name in self._names(spec)]
        found = [job.settings[name] for name in names if name in job.settings]
        return [f"{item.name} = {shown(item.value)}" for item in found if item.source == "default" and not job.table.specs[item.name].env]

    def _change(self, spec: ChangeSpec) -> Change:
        """One change with the job's present value."""
        spec = spec if self.context.job is None else as_held(spec, self.context.job)
        number = self.context.numbers([spec.value])[0] if spec.value is not None else None
        to = spec.to if number is None else str(round(number)) if number == round(number) else f"{number:.3g}"
        now = self.context.job.get(spec.setting) if self.context.job is not None and spec.setting is not None else None
        return Change(
            framework=spec.framework,
            key=spec.key,
            from_=shown(now),
            to=to,
            op=spec.op,
            choose=spec.choose and number is None,
            how="" if spec.value is None or number is None else self.context.how(spec.value),
        )


def taken_changes(spec: FixSpec, context: Context) -> list[ChangeSpec]:
    """The changes of a fix without those in keys of the job's framework that the program which reads the job file does not take."""
    if context.job is None:
        return list(spec.changes)
    format_, held = context.job.table.formats[context.job.format], held_keys(context.job)
    return [one for one in spec.changes if one.framework != format_.framework or format_.called(one.key, held) is not None]


def held_keys(job: Job) -> list[str]:
    """The keys that the job file holds."""
    return [one.key for one in job.settings.values() if one.source == "read"]


def as_held(spec: ChangeSpec, job: Job) -> ChangeSpec:
    """The change under the key that the job file has for its setting: in the same words, or left out where it is a bare switch.

    A switch is a key that can only say one value (`--actor_gradient_checkpointing`): where the default is wanted, it goes. A framework
    that saves its whole configuration has every key of the setting in the file.
    """
    held, own = job.settings.get(spec.setting or ""), job.table.formats[job.format].framework
    if job.table.formats[job.format].calls and spec.framework == own:
        called = job.table.formats[job.format].called(spec.key, held_keys(job)) or spec.key
        there = held is not None and held.source == "read" and held.key.rpartition(".")[2] == called.rpartition(".")[2]
        return structs.replace(spec, key=held.key if held is not None and there else called)
    if held is None or held.source != "read" or spec.op != "set" or spec.framework != own or job.table.formats[own].whole:
        return spec
    known = job.table.specs[held.name]
    words = known.values_in(own, spec.key)
    named = {flag_name(key): key for key in (*known.keys_in(own), *([held.name] if words is None else []))}
    key = named.get(flag_name(held.key), spec.key)
    here = known.values_in(own, key)
    if here == words:
        return structs.replace(spec, key=key)
    switch = here is not None and here.keys() == {"true"} and held.value in here.values()
    off = words is not None and known.default is not None and words.get(spec.to) == known.default != held.value
    return structs.replace(spec, key=key, op="unset", to="null") if switch and off else spec


def shown(value: object) -> str | None:
    """A setting's value as documents show it; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


_LEVELS: Mapping[Level, int] = {"high": 0, "medium": 1, "low": 2}
_NOWHERE = Where(ranks=(), steps=())
RUN = "run"  # the place that stands for the whole run: its ranks and steps
_TOP = 5


def find(
    facts: Mapping[str, Fact],
    *,
    job: Job | None,
    rulebook: Rulebook,
    where: Mapping[str, Where] | None = None,
    walls: Sequence[WallBound] = (),
) -> tuple[tuple[Finding, ...], tuple[NotAssessed, ...]]:
    """All findings, what to attack first on top (`_order`); and the rules that could not be asked.

    `where` maps places (catalogue.places_of: "bucket:attention", "communication:expert", "host:sync", "role:copy", "tiny") to the ranks,
    steps and costliest kernels or calls there; the place "run" holds the ranks and steps of the verdict's device. `walls`: their bounds,
    among which the target is.
    """
    context = make_context(facts, job, rulebook)
    relevant = [rule for rule in rulebook.rules.values() if rule.status != "deprecated" and rule.id not in context.irrelevant]
    too_little = [clause.say for clause in rulebook.walls.floor if not clause.advice and context.holds(clause.when)]
    rules = [rule for rule in relevant if not too_little or rule.wall == CAPTURE or rule.claim == "config"]
    holds = context.holds_all([rule.when for rule in rules])
    saving = [rule for rule in rules if rule.saves is not None]
    saves = dict(zip((rule.id for rule in saving), context.numbers([rule.saves or "" for rule in saving]), strict=True))
    reader = FixReader(context=context)
    found = [_finding(rule, saves.get(rule.id), context, reader, where or {}) for rule, true in zip(rules, holds, strict=True) if true]
    unknown = tuple(_not_assessed(rule, context) for rule, true in zip(rules, holds, strict=True) if true is None)
    unasked = [rule.id for rule in relevant if rule not in rules]
    unknown += tuple(NotAssessed(id=key, missing=(), how=templates.fill(too_little[0], context.values) + ".") for key in unasked)
    first = target(walls, context) if walls else None
    return tuple(sorted(found, key=lambda finding: _order(finding, rulebook, first))), unknown


def _order(finding: Finding, rulebook: Rulebook, first: WallBound | None) -> tuple[bool | int | str, ...]:
    """What to attack first on top: a failure, the target wall (`first`) and what is larger than all of it, then by severity and bound.

    Of equal severity what holds compute up goes before compute's own quality, as in the choice of the target: its bounds leave out what has
    to be computed all the same. One change that wins nearly as much goes before many, and where it is severe before the target too. What
    bounds nothing and has its severity from its rule is a note (configured, but not active) and follows what is shown to take the step;
    notes on the job file and on the capture come last.
    """
    rule, fallback = rulebook.rules[finding.id], rulebook.walls.fallback
    of = rule.cause.of if rule.cause is not None and rule.cause.of is not None else finding.wall
    bound, level = finding.bound_ns, _LEVELS[finding.severity]
    note = bound is None and (finding.status == "config" or finding.wall == CAPTURE)
    unbounded = bound is None and isinstance(rule.severity, str) and not note
    worth = (bound or 0) / (rulebook.walls.one_change_share if rule.one_change else 1)
    ahead = False
    if first is not None and first.wall != fallback and level < _LEVELS["low"] and not unbounded and not note:
        fix = rulebook.fixes[finding.fixes[0].id] if finding.fixes else None
        another = fix is not None and changes_numerics(fix, rulebook) == "training"  # what another training wins is no loss of this one
        weighed = worth if finding.severity == "high" else bound or 0
        ahead = first.wall in {of, finding.wall} or (weighed > known(first) and not another)
    return (
        not (rule.cause is not None and rule.cause.outranks),
        note,
        not ahead,
        max(level, _LEVELS["medium"]) if unbounded else 0 if ahead and bound is not None else level,
        bound is None,
        not ahead and of == fallback,
        -round(worth),
        finding.id,
    )


def passed(rulebook: Rulebook, findings: Sequence[Finding], not_assessed: Sequence[NotAssessed]) -> tuple[str, ...]:
    """Ids of the rules that were asked and found nothing, in order."""
    others = {finding.id for finding in findings} | {rule.id for rule in not_assessed}
    return tuple(sorted(rule.id for rule in rulebook.rules.values() if rule.status != "deprecated" and rule.id not in others))


def _finding(rule: Rule, saves: float | None, context: Context, reader: FixReader, where: Mapping[str, Where]) -> Finding:
    step = context.values.get("step_ns")
    length = float(step) if isinstance(step, int | float) and step > 0 else None
    late = one if isinstance(one := cause_of(rule, context), LateSpec) else None
    if late is not None:
        saves = max(saves or 0.0, context.numbers([late.saves])[0] or 0.0)
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
        status=weakest([rule.claim, *_statuses(rule, late, context)]),
        summary=templates.fill(context.worded(rule.summary), values),
        evidence=tuple(_evidence(name, context) for name in rule.evidence if context.values.get(name) is not None),
        bound_ns=bound,
        speedup_ceiling=ceiling,
        where=_where(rule, where),
        fixes=tuple(_within_reach(fix, rule, context) for fix in reader.read(rule.fixes, rule.first)),
        wrong_when=context.worded(rule.wrong_when),
        why=rule.why,
        check=context.worded(rule.check),
        refs=rule.refs,
    )


def _within_reach(fix: Fix, rule: Rule, context: Context) -> Fix:
    """The fix with the most that it can win, where it is about a part of what the rule tells."""
    reach = context.numbers([rule.reach[fix.id]])[0] if fix.id in rule.reach else None
    return fix if reach is None else structs.replace(fix, reach_ns=max(round(reach), 0))


def _statuses(rule: Rule, late: LateSpec | None, context: Context) -> list[Status]:
    """Statuses of the facts that the claim rests on."""
    conditions = [rule.when, *([late.when] if late is not None else [])]
    expressions = [context.rulebook.expression(text) for text in conditions]
    expressions += [context.rulebook.expression(rule.saves, "number")] if rule.saves else []
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
    spans = tuple(sorted({span for place in places for span in place.spans}))
    return Where(ranks=ranks, steps=steps, top=top[:_TOP], spans=spans)


def _askable(settings: Sequence[str], context: Context) -> Sequence[str]:
    """Those that the framework of the job file has a key for, or none has; all where that leaves none."""
    table = context.rulebook.job
    framework = "" if context.job is None else table.formats[context.job.format].framework
    known = {name: table.specs.get(name) for name in settings}
    return [name for name, spec in known.items() if spec is None or not spec.keys or spec.keys_in(framework) or spec.env] or settings


def _not_assessed(rule: Rule, context: Context) -> NotAssessed:
    """What the rule lacks, why, and what to capture or give; with one rank captured, that is why facts of ranks lack, said once."""
    missing = context.missing(context.rulebook.expression(rule.when))
    specs = context.rulebook.facts
    alone = context.values.get("ranks_captured") == 1
    of_ranks = [name for name in missing if alone and name in specs and specs[name].scope == "ranks"]
    measured = [name for name in missing if name in specs and name not in of_ranks]
    told = [name.removeprefix("job_") for name in missing if name not in specs]
    sentences = [SEVERAL_RANKS] if of_ranks and not measured else []
    sentences += [context.worded(f"{name}: {specs[name].null}.") for name in measured]
    if measured and rule.capture:
        sentences.append(context.worded(rule.capture))
    if told and context.job is None:
        sentences.append(f"{WANTED}: {', '.join(told)}.")
    elif told:
        sentences.append(f"Not in the job file: {', '.join(_askable(told, context))}.")
    return NotAssessed(id=rule.id, missing=missing, how=" ".join(sentences))
