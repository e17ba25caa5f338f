"""A job alone, without a trace: what would fail, hang or silently be off.

Two sources: the checks of trace_rules/checks, and the needs and conflicts of every fix that the job has on. A check wins over a
fix's requirement that reads the same settings. What follows only with a framework's default, which the file does not state, is
doubtful, except in formats that are a run's only source of settings (Megatron-LM's arguments), and so is what holds only as long as
nothing more is given than the file shows, where it is laid over something else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from diagnose.document.diagnosis import Change, Fact, Tool
from diagnose.document.job import CHECK_SCHEMA, CheckReport, CheckResult, Deciding, FixName, NotAssessed
from diagnose.errors import UsageError
from diagnose.job import Job, Setting
from diagnose.job.advised import advised
from diagnose.job.model import PLAIN, SettingValue
from diagnose.knowledge import conditions, templates
from diagnose.knowledge.catalogue import ChangeSpec, CheckSpec, FixSpec, Requirement
from diagnose.knowledge.platforms import PLATFORM_FACTS, platform_of
from diagnose.knowledge.repairs import as_fix
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.settings import JobFormat, SettingType, version_number
from diagnose.model.vocabulary import GROUP_OF, GROUPS
from diagnose.reason.context import Context, make_context
from diagnose.reason.findings import FixReader

_NO_FACTS: Mapping[str, Fact] = MappingProxyType({})


def check(job: Job, book: Rulebook, tool: Tool, platform: str | None = None) -> CheckReport:
    """Everything that is known to go wrong with `job`. `platform` overrules the job file's own. Raises UsageError."""
    job = on_platform(job, book, platform)
    context = make_context(_NO_FACTS, job, book)
    own = job.table.formats[job.format]
    # without what whoever starts the job may say otherwise, and without defaults that the file leaves to others
    told = {name: item for name, item in job.settings.items() if not item.assumed and (own.sure or item.source == "read")}
    stated = make_context(_NO_FACTS, dataclasses.replace(job, settings=MappingProxyType(told)), book)
    # those for this file's framework; a plain one may be meant for either
    concerned = {key: spec for key, spec in book.checks.items() if _concerns(spec, own, book)}
    specs = {key: spec for key, spec in concerned.items() if spec.when is not None}
    texts = [spec.when or "" for spec in specs.values()]
    holds = dict(zip(specs, context.holds_all(texts), strict=True))
    certain = dict(zip(specs, stated.holds_all(texts), strict=True))
    found = [
        _result(key, specs[key], context, assumes=not (certain[key] and _sure(specs[key].when or "", stated)))
        for key, value in holds.items()
        if value and _in_release(specs[key], context) is not False
    ]
    derived = _of_fixes(context, stated, [book.expression(specs[result.id].when or "").names for result in found])
    results = tuple(sorted([*found, *derived], key=lambda result: GROUPS.index(result.group)))
    named = context.values.get("platform")
    return CheckReport(
        schema=CHECK_SCHEMA,
        tool=tool,
        job=job.read(),
        platform=named if isinstance(named, str) else None,
        failed=any(result.group != "doubtful" for result in results),
        checked=sum(value is not None for value in holds.values()),
        results=results,
        not_assessed=tuple(_lacking(key, specs[key], context) for key, value in holds.items() if value is None),
    )


# Values that a setting of each type could have where the file does not show it.
_OTHERS: Mapping[SettingType, tuple[SettingValue, ...]] = MappingProxyType(
    {"bool": (True, False), "int": (1,), "float": (1.0,), "text": ("another",), "version": (1,), "list": (("another",),)}
)


def _sure(text: str, stated: Context) -> bool:
    """Whether a condition that holds by what the file states would hold still if a setting were given that the file may hide.

    A file of overrides hides what it lies over, and a value that is not understood may be any.
    """
    job, schema = stated.job, stated.rulebook.schema
    if job is None:
        return True
    hidden = job.table.specs.keys() - job.settings.keys() if job.open_ended else job.unresolved
    others = {f"job_{name}": _OTHERS[job.table.specs[name].type] for name in hidden}
    asked = [name for name in stated.rulebook.expression(text).names if name in others]
    rows = [{**stated.values, name: other} for name in asked for other in others[name]]
    return all(structs.replace(stated, values=values, frame=conditions.row(values, schema)).holds(text) for values in rows)


def _concerns(spec: CheckSpec, own: JobFormat, book: Rulebook) -> bool:
    """Whether a check speaks of a format's framework.

    By its name, else by settings that this framework has, of which it needs every one.
    """
    if spec.frameworks or spec.when is None:
        return not spec.frameworks or bool(set(spec.frameworks) & set(own.frameworks))
    if set(own.frameworks) & set(book.job.formats[PLAIN].frameworks):
        return True
    settings = [book.settings[name.removeprefix("job_")] for name in book.expression(spec.when).names if name.startswith("job_")]
    return all(one.keys_in(own.framework) or one.env or not one.keys for one in settings)


def on_platform(job: Job, book: Rulebook, platform: str | None) -> Job:
    """The job as if its file named `platform`. Raises UsageError for a platform that the table does not hold."""
    if platform is None:
        return job
    table = book.platforms.platforms
    if platform.lower() not in table and platform_of(platform, book.platforms) is None:
        raise UsageError(
            f"--platform {platform} is not known.", effect="Nothing was checked.", next_step=f"Use one of {', '.join(sorted(table))}."
        )
    named = Setting(name="platform", value=platform, key="--platform", source="read")
    return dataclasses.replace(job, settings=MappingProxyType({**job.settings, "platform": named}))


def _result(key: str, spec: CheckSpec, context: Context, *, assumes: bool) -> CheckResult:
    book = context.rulebook
    names = book.expression(spec.when or "").names
    settings = _deciding(names, context)
    job = context.job
    reached = job is None or _asks(job, spec) or ("%" in (spec.when or "") and _only_counts(names, book))
    return CheckResult(
        id=key,
        title=spec.title,
        group="doubtful" if assumes or not spec.sure or not reached or not _in_release(spec, context) else GROUP_OF[spec.outcome],
        outcome=spec.outcome,
        summary=templates.fill(spec.say, context.values),
        symptom=spec.symptom,
        settings=settings,
        assumed=tuple(item.name for item in settings if assumes and item.source == "default"),
        remedy=spec.remedy,
        fixes=tuple(FixName(id=fix, title=book.fixes[fix].title) for fix in spec.fixes),
        refs=spec.refs,
        source="check",
        repair=_repair(key, spec, context),
        no_fix=spec.no_fix,
    )


def _asks(job: Job, spec: CheckSpec) -> bool:
    """Whether the job's program asks what a check says that the framework asserts.

    What stands in Megatron-LM's own argument parser, another program on Megatron-Core need not ask.
    """
    places = [place for place in spec.asserted if place.startswith("Megatron-LM@")]
    of_parser = bool(places) and all(" megatron/training/" in place for place in places)
    return job.table.formats[job.format].asserts and not (job.another_program and of_parser)


def _in_release(spec: CheckSpec, context: Context) -> bool | None:
    """Whether the job's release of Megatron-Core behaves as a check says; None where the job does not say which it is."""
    if not spec.since:
        return True
    release = None if context.job is None else context.job.get("megatron_core_version")
    return version_number(release) >= version_number(spec.since) if isinstance(release, str) else None


def _only_counts(names: Sequence[str], book: Rulebook) -> bool:
    """Whether a condition reads numbers alone: then sizes that do not divide fail whoever checks them."""
    found = [book.settings[name.removeprefix("job_")] for name in names if name.startswith("job_") and name != "job_is_training"]
    return all(one.type == "int" for one in found)


def _repair(key: str, spec: CheckSpec, context: Context) -> tuple[Change, ...]:
    """What the check's repair writes, in the keys of the job's own framework."""
    fix = as_fix(key, spec, context.rulebook.job)
    if fix is None or context.job is None:
        return ()
    own = (context.rulebook.job.formats[context.job.format].framework, "environment")
    known = {
        change.key
        for change in fix.changes
        if (change.value is None or context.numbers([change.value])[0] is not None) and not _stands(change, context.job)
    }
    return tuple(one for one in FixReader(context=context).fix(fix).changes if one.framework in own and one.key in known)


def _stands(change: ChangeSpec, job: Job) -> bool:
    """Whether a job has a setting as a change writes it already, in its file or by default."""
    held = None if change.setting is None else job.settings.get(change.setting)
    if change.op == "unset":
        return held is None or held.source == "default"
    if change.op != "set" or change.value is not None or held is None or not isinstance(held.value, bool | int | float | str):
        return False
    return templates.literal(held.value) == change.to


def _deciding(names: Sequence[str], context: Context) -> tuple[Deciding, ...]:
    """The values that a condition read, with the keys they came from; what is unset is left out."""
    settings = {} if context.job is None else context.job.settings
    found = [settings[name.removeprefix("job_")] for name in names if name.removeprefix("job_") in settings and name.startswith("job_")]
    rows = [Deciding(name=item.name, value=item.value, key=item.key, source=item.source) for item in found]
    told = {} if context.job is None else {f"job_{name}": one for name, one in advised(context.job).items()}
    rows += [
        Deciding(name=name.removeprefix("job_"), value=told[name].value, key=told[name].how, source="computed")
        for name in names
        if name in told
    ]
    plain = {name: value for name in names if name in PLATFORM_FACTS and not isinstance(value := context.values.get(name), tuple)}
    rows += [Deciding(name=name, value=value, key="platform", source="platform") for name, value in plain.items() if value is not None]
    return tuple(rows)


def _lacking(key: str, spec: CheckSpec, context: Context) -> NotAssessed:
    """Which settings a check lacks, and where they are given."""
    missing = tuple(name.removeprefix("job_") for name in context.missing(context.rulebook.expression(spec.when or "")))
    settings = context.rulebook.settings  # without a key in some framework a setting follows from others
    given = [name for name in missing if name in PLATFORM_FACTS or settings[name].keys or settings[name].env]
    return NotAssessed(id=key, title=spec.title, missing=missing, how="; ".join(_key_of(name, context) for name in given or missing))


def _key_of(name: str, context: Context) -> str:
    """Where a missing value is given: the key of this job's framework, else of the first that a plain job file may hold."""
    if name in PLATFORM_FACTS:
        return "--platform, or platform in the job file"
    spec = context.rulebook.settings[name]
    formats = context.rulebook.job.formats
    known = formats[PLAIN].frameworks
    framework = known[0] if context.job is None else formats[context.job.format].framework
    known = known if framework in known else (framework,)
    first = framework
    written = {
        one: [f"--{key.lstrip('!').split('=')[0]}" if formats[one].keys_are == "flags" else key for key in spec.keys_in(one)]
        for one in known
    }
    others = (key for one in known if one != first for key in written[one])
    return next(iter((*written[first], *(f"env_vars.{key}" for key in spec.env), *others)), name)


# --- what the job has on, against what that needs ---------------------------------------------------------------------


def _of_fixes(context: Context, stated: Context, told: Sequence[Sequence[str]]) -> Iterator[CheckResult]:
    """Conflicts of switches that are on, unless one of `told` (the settings that a fired check read) covers them.

    Of other fixes, and of needs, only what has an outcome: the rest speaks of the fix's own changes, or of when it is worth while.
    """
    reader, certain = FixReader(context=context), FixReader(context=stated)
    seen: set[str] = set()
    switches = [(spec, spec.already_on) for spec in context.rulebook.fixes.values() if spec.already_on is not None]
    for (spec, on), held in zip(switches, context.holds_all([on for _, on in switches]), strict=True):
        if not held:
            continue
        verdicts = reader.decide(spec)
        sure = {item.condition for item in certain.decide(spec).failed}
        own = set(context.rulebook.expression(on).names)
        asked = spec.conflicts if _is_switch(spec, own) else ()
        for item in (one for one in verdicts.failed if one in asked or one.outcome is not None):
            names = set(context.rulebook.expression(item.condition).names)
            covered = any(names <= set(read) and (own & set(read) or own <= names) for read in told)
            static = all(name.startswith("job_") or name in PLATFORM_FACTS for name in names)
            if covered or item.condition in seen or not static:
                continue
            seen.add(item.condition)
            yield _conflict(spec, item, reader, assumes=item.condition not in sure)


def _is_switch(spec: FixSpec, own: set[str]) -> bool:
    """Whether a fix is on exactly where the settings that it turns on are on; its conflicts then hold for any job that has them."""
    turned_on = {f"job_{change.setting}" for change in spec.changes if change.to == "true" and change.only is None}
    return own <= turned_on and (spec.already_on or "") == " AND ".join(sorted(own, key=(spec.already_on or "").index))


def _conflict(spec: FixSpec, item: Requirement, reader: FixReader, *, assumes: bool) -> CheckResult:
    book = reader.context.rulebook
    names = dict.fromkeys([*book.expression(spec.already_on or "").names, *book.expression(item.condition).names])
    settings = _deciding(tuple(names), reader.context)
    return CheckResult(
        id=f"{spec.id}-requirement",
        title=f"{spec.title}: on, without what it needs",
        group="doubtful" if assumes or item.outcome is None else GROUP_OF[item.outcome],
        outcome=item.outcome,
        summary=templates.fill(item.say, reader.context.values),
        symptom="",
        settings=settings,
        assumed=tuple(row.name for row in settings if assumes and row.source == "default"),
        remedy=f"see `diagnose explain {spec.id}`",
        fixes=() if item.first is None else (FixName(id=item.first, title=book.fixes[item.first].title),),
        refs=spec.refs,
        source="fix",
    )
