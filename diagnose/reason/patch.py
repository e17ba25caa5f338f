"""The changes that fixes ask for, as edits with typed values, applied to a job file's text one after the other, and where they stand in it.

What is no value is left to a person, with the reason. What would break a need, a conflict or a check is refused or skipped: after each fix
the changed text is read again as a job, and every fix applied so far is held against it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from diagnose.document.diagnosis import Change, Diagnosis, Fact, Finding, Fix, JobRead, Tool
from diagnose.document.job import AT_LAUNCH, PATCH_SCHEMA, Applied, CheckResult, LeftToYou, PatchReport, Skipped, Written
from diagnose.errors import JobFileError, PatchRefusedError
from diagnose.job import Job, SettingValue
from diagnose.job.edit import ENVIRONMENT, Edit, Editor, shown
from diagnose.job.edit_yaml import YamlEditError
from diagnose.job.formats import READERS, megatron_bridge, megatron_lm, torchtitan
from diagnose.job.formats.overrides import NAME as OVERRIDES
from diagnose.job.read import parse_job
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.catalogue import GENERAL, ChangeSpec, FixSpec
from diagnose.knowledge.repairs import as_fix
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.settings import JobSettings, SettingSpec, flag_name, foreign
from diagnose.reason.checks import check
from diagnose.reason.context import Context, make_context
from diagnose.reason.findings import FixReader, as_held, held_keys, taken_changes
from diagnose.reason.findings import shown as setting_shown

_NONE: frozenset[type] = frozenset()
_TYPES: Mapping[str, frozenset[type]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "float": frozenset({int, float}),
    "version": frozenset({str}),
}


class Plan(Struct, frozen=True, kw_only=True):
    """What one fix asks for: edits that can be written, and what is left to a person."""

    edits: tuple[Edit, ...]
    left: tuple[LeftToYou, ...]


def framework_of(format_: str | None, table: JobSettings) -> str:
    """In whose keys fixes of a job file of this format are written; without a job file, in those that overrides take."""
    return table.formats[OVERRIDES if format_ is None else format_].framework


def plan(spec: FixSpec, context: Context, framework: str) -> Plan:
    """The changes of `spec` for one framework, with the environment's."""
    edits: list[Edit] = []
    left: list[LeftToYou] = []
    changes = taken_changes(spec, context)
    own = any(change.framework in context.frameworks for change in changes)
    takes = () if context.job is None else context.job.table.formats[context.job.format].takes
    for change in changes:
        elsewhere = change.framework in context.rulebook.job.frameworks and change.framework != framework
        beside = elsewhere and framework in context.frameworks and change.framework in context.frameworks and bool(takes)
        if (elsewhere and not beside) or (own and change.framework == GENERAL):
            continue
        wanted = True if change.only is None else context.holds(change.only)
        if wanted is False:
            continue
        names = [] if wanted else context.missing(context.rulebook.expression(change.only or ""))
        missing = ", ".join(name.removeprefix("job_") for name in names)
        held = change if context.job is None else as_held(change, context.job)
        if beside:
            made: Edit | str = f"it stands in the file of {context.rulebook.job.formats[change.framework].title}"
        else:
            made = _edit(held, context) if wanted else f"whether it is wanted is not known: {missing} is not given"
        if isinstance(made, Edit):
            edits.append(made)
        else:
            left.append(LeftToYou(fix=spec.id, framework=change.framework, key=held.key, to=change.to, why=made))
    return Plan(edits=tuple(edits), left=tuple(left))


def _edit(change: ChangeSpec, context: Context) -> Edit | str:
    """The edit, or why there is none."""
    if change.framework in ("launcher", "code"):
        return f"it is a matter of the {change.framework}, not of the job file"
    if change.choose:
        return "it is yours to choose"
    setting = None if change.setting is None else context.rulebook.settings[change.setting]
    value = None if change.op == "unset" else _value(change, setting, context)
    if value is None and change.op != "unset" and change.to != "null":
        return f"{change.to!r} is no value" if change.value is None else "the facts that it is computed from are not known"
    op = "unset" if value is None else change.op
    own = setting is not None and setting.values_in(change.framework, change.key) is not None
    literal = change.to if value is not None and (own or change.to.startswith("{")) else None
    return Edit(
        framework=change.framework,
        key=change.key,
        op=op,
        value=value,
        table=context.rulebook.job,
        setting=change.setting,
        literal=literal,
        how="" if change.value is None or value is None else context.how(change.value),
    )


def _value(change: ChangeSpec, setting: SettingSpec | None, context: Context) -> SettingValue | None:
    """The typed value of a change; None where there is none, or where what it is computed from is not known."""
    if change.value is not None:
        number = context.numbers([change.value])[0]
        return None if number is None else int(number) if number == round(number) else number
    try:
        plain = strict_yaml.load(change.to)
    except strict_yaml.YamlError:
        plain = change.to
    words = None if setting is None else setting.values_in(change.framework, change.key)
    if words is not None and change.op == "set":  # a word of the framework's own, which stands for the setting's value
        return words.get(foreign(plain))
    kind = setting.type if setting is not None else None
    if isinstance(plain, dict):  # a class, such as {_target_: torch.bfloat16, _call_: false}
        named = str(plain.get("_target_", "")).rpartition(".")[2]
        plain = named if setting is None else setting.aliases.get(named, named)
    if kind == "list" or (kind is None and isinstance(plain, list)):
        return _members(plain)
    if kind in ("text", "version") and change.op in ("add", "remove"):
        return tuple(change.to.split(","))
    if kind == "text" and isinstance(plain, str | int | float):
        return plain if change.to.startswith("{") else change.to
    if not isinstance(plain, bool | int | float | str):
        return None
    return plain if kind is None or _TYPES.get(kind, _NONE).issuperset({type(plain)}) else None


def _members(plain: object) -> tuple[str, ...] | None:
    """Names of a list, from a YAML list or from words with spaces between; None for a sentence."""
    if isinstance(plain, list) and all(isinstance(item, str | int) for item in plain):
        return tuple(str(item) for item in plain)
    if isinstance(plain, str) and all(part.replace("_", "").replace("+", "").isalnum() for part in plain.split()):
        return tuple(plain.split())
    return None


# --- for the command line ---------------------------------------------------------------------------------------------


def _bridge_override(key: str, value: SettingValue | None) -> str:
    return f"{key}={shlex.quote(_as_text(value))}"


def _megatron_flag(key: str, value: SettingValue | None) -> str:
    if value is True:
        return key
    return f"(leave out {key})" if value is None or value is False else f"{key} {' '.join(map(shlex.quote, _texts(value)))}"


def _export(key: str, value: SettingValue | None) -> str:
    return f"unset {key}" if value is None else f"export {key}={shlex.quote(_as_text(value, brackets=False))}"


def _titan_option(key: str, value: SettingValue | None) -> str:
    """As tyro reads it. What is an argument of the model's registry, or a list, stands in Python alone."""
    section, _, last = key.rpartition(".")
    if section == "model_spec":
        return f"model_registry(…, {last}={shlex.quote(_as_text(value))})"
    if not section:  # a choice between classes
        return f"{key.replace('_', '-')}:{_as_text(value)}"
    if isinstance(value, bool):
        return f"--{key}" if value else f"--{section}.no_{last}"
    return f"(leave out --{key})" if value is None else f"--{key} {shlex.quote(_as_text(value))}"


_LAUNCH: Mapping[str, Callable[[str, SettingValue | None], str]] = {
    megatron_bridge.NAME: _bridge_override,
    megatron_lm.NAME: _megatron_flag,
    torchtitan.NAME: _titan_option,
    ENVIRONMENT: _export,
}


def at_launch(edits: Sequence[Edit], job: Job, framework: str) -> tuple[str, ...]:
    """The edits for one framework's command line, or the shell's environment, each key once with what it has after all of them."""
    own = {edit.key: edit for edit in edits if edit.framework == framework}
    after = after_all([edit for edit in edits if edit.framework == framework], job)
    return tuple(_LAUNCH[framework](key, _worded(own[key], value)) for key, value in after.items())


def _worded(edit: Edit, value: SettingValue | None) -> SettingValue | None:
    """A value in the words that its key has for it, where it has some; of a class that is chosen the name of the choice."""
    words = {} if edit.spec is None or "." not in edit.key else edit.spec.words_in(edit.framework, edit.key)
    word = words.get(value, value)
    return word == "true" if word in ("true", "false") and isinstance(word, str) else word


def after_all(edits: Sequence[Edit], job: Job) -> dict[str, SettingValue | None]:
    """The value of each edit's key after all edits."""
    return {edit.key: value for edit, value in in_turn(edits, job)}


def in_turn(edits: Sequence[Edit], job: Job) -> Iterator[tuple[Edit, SettingValue | None]]:
    """Each edit with the value that its key has after it and those before it."""
    values: dict[str, SettingValue | None] = {}
    for edit in edits:
        now = values[edit.key] if edit.key in values else None if edit.setting is None else job.get(edit.setting)
        values[edit.key] = whole(edit, now)
        yield edit, values[edit.key]


def _texts(value: SettingValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


def whole(edit: Edit, now: SettingValue | None) -> SettingValue | None:
    """The value that a setting which is `now` has after the edit, all members of a list included."""
    if edit.op not in ("add", "remove") or edit.setting is None:
        return edit.value
    members = _texts(edit.value) if edit.value is not None else ()
    present = tuple(part for part in now.split(",") if part) if isinstance(now, str) else now if isinstance(now, tuple) else ()
    if edit.op == "remove":
        return tuple(member for member in present if member not in members)
    return (*present, *(member for member in members if member not in present))


def _as_text(value: SettingValue | None, *, brackets: bool = True) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(value)}]" if brackets else ",".join(value)
    if value is None:
        return "null"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


# --- where in the file it stands: outputs for CI runners point at that line -------------------------------------------


class SettingPlace(Struct, frozen=True, kw_only=True):
    """A finding's first applicable fix: its title, the key that it changes (as the job file shows it, else the framework), the key's line.

    All empty where no fix is applicable; no line where the job file does not hold the setting.
    """

    fix: str = ""
    key: str = ""
    line: int | None = None


def place_of(finding: Finding, job: JobRead | None, table: JobSettings) -> SettingPlace:
    """The place of the finding's first applicable fix. A setting that the file holds goes before one that it lacks."""
    fix = next((one for one in finding.fixes if one.state == "applicable"), None)
    if fix is None:
        return SettingPlace()
    changes = _own_changes(fix, job, table)
    held = {setting.name: setting for setting in job.settings} if job is not None else {}
    names = (table.names.get(flag_name(one.key) if one.key.startswith("-") else one.key) for one in changes)
    found = next((held[name] for name in names if name in held), None)
    if found is not None:
        return SettingPlace(fix=fix.title, key=found.key, line=found.line)
    return SettingPlace(fix=fix.title, key=changes[0].key if changes else "")


def _own_changes(fix: Fix, job: JobRead | None, table: JobSettings) -> Sequence[Change]:
    """The changes in the keys of the job's own framework, those of settings that differ from what is wanted first."""
    framework = framework_of(None if job is None else job.format, table)
    mine = [one for one in fix.changes if one.framework in (framework, ENVIRONMENT)] or [
        one for one in fix.changes if one.framework in (*table.frameworks, ENVIRONMENT)
    ]
    return sorted(mine, key=lambda one: one.from_ == one.to)


# --- fixes applied to the text ----------------------------------------------------------------------------------------


class Wanted(Struct, frozen=True, kw_only=True):
    """Fixes (or checks, for their repair) of which the first that can be had is applied.

    `finding` calls for them, a finding or a check; it is None where the user named the fix, who then also has what it changes in the
    numerics.
    """

    fixes: tuple[str, ...]
    finding: str | None = None
    until: str | None = None  # the check that has to be silent afterwards


class Patched(Struct, frozen=True, kw_only=True):
    """The changed text and what was done."""

    text: str
    report: PatchReport


class _State(Struct, frozen=True, kw_only=True):
    """The job file so far."""

    text: str
    job: Job
    specs: tuple[FixSpec, ...] = ()
    applied: tuple[Applied, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    left: tuple[LeftToYou, ...] = ()
    written: tuple[Written, ...] = ()
    overrides: tuple[str, ...] = ()  # what can't be written into this file, as `key=value`
    edits: tuple[Edit, ...] = ()  # as the command line of the job's framework wants them


class Patcher(Struct, frozen=True, kw_only=True):
    """Applies fixes to one job file. `facts` are those of the trace; without one they are empty, and fixes that need them are unknown.

    `folder` is where the file's own paths start, `command` the number of one of several jobs in it.
    """

    book: Rulebook
    tool: Tool
    facts: Mapping[str, Fact] = field(default_factory=dict)
    folder: Path | None = None
    command: str | None = None

    def _job(self, text: str, source: str, overrides: Sequence[str] = ()) -> Job:
        return parse_job(text, self.book.job, source=source, overrides=overrides, folder=self.folder, command=self.command)

    def patch(self, text: str, source: str, wanted: Sequence[Wanted]) -> Patched:
        """The text with the wanted fixes applied. Raises PatchRefusedError where a fix that the user named can't be, and JobFileError."""
        job = self._job(text, source)
        state = _State(text=text, job=job)
        for one in wanted:
            state = self._apply(state, one)
        before = {result.id for result in self._wrong(job)}
        own = self._has_own_keys(job)
        report = PatchReport(
            schema=PATCH_SCHEMA,
            tool=self.tool,
            source=source,
            rewritten=_editor(state) is not None,
            applied=state.applied,
            skipped=state.skipped,
            written=state.written,
            left_to_you=state.left,
            still_wrong=tuple(result for result in self._wrong(state.job) if result.id in before),
            bridge_overrides=() if own else self._launch(job, state, megatron_bridge.NAME),
            megatron_flags=self._launch(job, state, megatron_lm.NAME),
            torchtitan_options=at_launch(state.edits, job, torchtitan.NAME),
            own_overrides=at_launch(state.edits, job, megatron_bridge.NAME) if own else (),
            environment=at_launch(state.edits, job, ENVIRONMENT),
        )
        return Patched(text=state.text, report=report)

    def wanted_by_checks(self, text: str, source: str) -> tuple[Wanted, ...]:
        """What a check of the job file in `text` asks for: for each thing that goes wrong its fixes, then its own repair.

        What mends most stands first: what it mends besides its own check needs nothing more.
        """
        job = self._job(text, source)
        rows = self._wrong(job)
        asked = ((one.id, (*(fix.id for fix in one.fixes), *((one.id,) if one.repair else ()))) for one in rows)
        wanted = [Wanted(fixes=fixes, finding=key, until=key) for key, fixes in asked if fixes]
        state = _State(text=text, job=job)
        return tuple(sorted(wanted, key=lambda one: len(self._wrong(self._apply(state, one).job))) if len(wanted) > 1 else wanted)

    def _context(self, job: Job) -> Context:
        return make_context(self.facts, job, self.book)

    def _wrong(self, job: Job) -> list[CheckResult]:
        """What is certainly wrong with a job on the platform of the trace."""
        seen = self.facts.get("platform")
        platform = seen.value if seen is not None and job.get("platform") is None and isinstance(seen.value, str) else None
        return [result for result in check(job, self.book, self.tool, platform).results if result.group != "doubtful"]

    def _fires(self, key: str, job: Job) -> bool:
        return any(result.id == key for result in self._wrong(job))

    def _has_own_keys(self, job: Job) -> bool:
        """Whether the program of the job calls its framework's settings by keys of its own."""
        return self.book.job.formats[job.format].calls_in(held_keys(job)) is not None

    def _launch(self, job: Job, state: _State, framework: str) -> tuple[str, ...]:
        """The changes as one framework's command line; where it is not the job's own, from the fixes anew."""
        if framework == framework_of(job.format, self.book.job):
            return at_launch(state.edits, job, framework)
        if framework_of(job.format, self.book.job) not in (megatron_bridge.NAME, megatron_lm.NAME):
            return ()  # another framework's words are of no use to it
        if self._has_own_keys(job):
            return ()  # nor to a program that has words of its own for the settings
        return at_launch([edit for spec in state.specs for edit in plan(spec, self._context(job), framework).edits], job, framework)

    def _apply(self, state: _State, wanted: Wanted) -> _State:
        """The first of some fixes that can be applied; for a finding the others are skipped with the reason."""
        if wanted.until is not None and not self._fires(wanted.until, state.job):
            return state  # what was done before has mended it
        for key in wanted.fixes:
            spec = self._spec(key)
            if spec in state.specs:
                break
            done = self._after_its_needs(state, spec, wanted)
            if isinstance(done, _State):
                return done
            if wanted.finding is None and not done.harmless:
                raise PatchRefusedError(
                    f"{spec.id} can't be applied: {done.why}",
                    effect="Nothing was written.",
                    next_step=f"`diagnose explain {spec.id}` tells more.",
                )
            state = replace(
                state, skipped=(*state.skipped, Skipped(id=spec.id, title=spec.title, why=done.why)), left=(*state.left, *done.left)
            )
        return state

    def _spec(self, key: str) -> FixSpec:
        """A fix, or the repair of a check. Raises PatchRefusedError for a check that has none."""
        found = self.book.fixes.get(key) or as_fix(key, self.book.checks[key], self.book.job)
        if found is None:
            check_ = self.book.checks[key]
            named = f"Name one of its fixes: {', '.join(check_.fixes)}." if check_.fixes else f"`diagnose explain {key}` tells more."
            raise PatchRefusedError(f"{key} has no repair of its own.", effect="Nothing was written.", next_step=named)
        return found

    def _after_its_needs(self, state: _State, spec: FixSpec, wanted: Wanted, seen: tuple[str, ...] = ()) -> _State | _Reason:
        """The state with a fix applied, after the fixes that clear its way, each in its turn; or why not."""
        reader = FixReader(context=self._context(state.job))
        firsts = dict.fromkeys(item.first for item in reader.decide(spec).failed if item.first is not None and item.first not in seen)
        ready = state
        for first in firsts:
            done = self._after_its_needs(ready, self.book.fixes[first], replace(wanted, until=None), (*seen, spec.id))
            if not isinstance(done, _State):
                break
            ready = done
        tried = self._try(ready, spec, wanted)
        return tried if isinstance(tried, _State) or ready is state else self._try(state, spec, wanted)

    def _try(self, state: _State, spec: FixSpec, wanted: Wanted) -> _State | _Reason:
        """The state with one fix applied, or why it is not."""
        context = self._context(state.job)
        fix = FixReader(context=context).fix(spec)
        asked = plan(spec, context, framework_of(state.job.format, self.book.job))
        if wanted.finding is not None:
            asked = _same_numerics(spec, asked, state.job)
        reason = _refusal(fix, asked)
        if reason is not None:
            return reason
        try:
            edited = _edited(state, asked)
            after, names = after_all(edited.unwritten, state.job), {edit.key: edit.setting or edit.key for edit in edited.unwritten}
            given = ((names[key], value) for key, value in after.items())
            overrides = (*state.overrides, *(f"~{key}" if value is None else f"{key}={shown(value)}" for key, value in given))
            job = self._job(edited.text, state.job.source, overrides)
        except (YamlEditError, JobFileError) as error:
            return _Reason(why=f"It can't be written: {str(error).rstrip('.')}.")
        if edited.text == state.text and asked.left and not edited.unwritten:
            return _Reason(why="What it changes is yours to choose.", harmless=True, left=asked.left)
        new = replace(state, text=edited.text, job=job, specs=(*state.specs, spec), overrides=overrides)
        reason = self._refused_afterwards(state, new, spec, asked, wanted)
        if reason is not None:
            return reason
        last = {one.key: one for one in edited.unwritten}.values()
        left = (LeftToYou(fix=spec.id, framework=one.framework, key=one.key, to=shown(after[one.key]), why=AT_LAUNCH) for one in last)
        return replace(
            new,
            applied=(
                *state.applied,
                Applied(
                    id=spec.id,
                    title=spec.title,
                    for_finding=wanted.finding,
                    expected=fix.expected,
                    verify=spec.verify,
                    unknown=fix.unknown,
                ),
            ),
            written=(*state.written, *_written(new, state.job, spec, asked, edited.there)),
            left=(*state.left, *asked.left, *left),
            edits=(*state.edits, *_by_key(state, asked)),
        )

    def _refused_afterwards(self, old: _State, new: _State, spec: FixSpec, asked: Plan, wanted: Wanted) -> _Reason | None:
        """Why a fix that could be written is not kept."""
        numerics = [one.key for one in asked.left if one.why.startswith(_NUMERICS)]
        if numerics and FixReader(context=self._context(new.job)).decide(spec).already_on is False:
            return _Reason(why=f"It changes what is computed ({', '.join(numerics)}): --fix {spec.id} writes it.", left=asked.left)
        broken = self._broken(old, new, spec, asked)
        if broken:
            return _Reason(why=broken)
        if wanted.until is not None and self._fires(wanted.until, new.job):
            return _Reason(why="The check is not silent with it.", left=asked.left)
        return None

    def _broken(self, old: _State, new: _State, spec: FixSpec, asked: Plan) -> str:
        """The sentence that says what the changed job would break; empty where it breaks nothing."""
        reader = FixReader(context=self._context(new.job))
        for one in new.specs:
            needs = () if is_step(one, self.book) else one.needs
            failed = [item for item in reader.decide(one).failed if item in (*needs, *one.conflicts)]
            if failed:
                return f"{reader.sentence(failed[0])}" if one is spec else f"It would break {one.id}: {reader.sentence(failed[0])}"
        if reader.decide(spec).already_on is False and not asked.left and not is_step(spec, self.book):
            return "Its changes would not turn it on, which is a fault of the rules; please report it."
        before = {(result.id, result.summary) for result in self._wrong(old.job)}
        worse = [result for result in self._wrong(new.job) if (result.id, result.summary) not in before]
        return f"The changed job would go wrong ({worse[0].id}): {worse[0].summary}" if worse else ""


class _Reason(Struct, frozen=True, kw_only=True):
    """Why a fix was not applied. Harmless reasons refuse nothing, even where the user named the fix."""

    why: str
    harmless: bool = False
    left: tuple[LeftToYou, ...] = ()


_NUMERICS = "it changes what is computed"


def _same_numerics(spec: FixSpec, asked: Plan, job: Job) -> Plan:
    """The plan without what changes precision, routing, optimizer or batch; that is left to a person."""
    after = after_all(asked.edits, job)
    left = [edit for edit in asked.edits if edit.spec is not None and edit.spec.numerics and job.get(edit.setting or "") != after[edit.key]]
    why = f"{_NUMERICS}: --fix {spec.id} writes it"
    told = (LeftToYou(fix=spec.id, framework=edit.framework, key=edit.key, to=shown(after[edit.key]), why=why) for edit in left)
    return Plan(edits=tuple(edit for edit in asked.edits if edit not in left), left=(*asked.left, *told))


def is_step(spec: FixSpec, book: Rulebook) -> bool:
    """Whether a fix is one step of several in a direction (a larger micro-batch, less recompute): applied once, it may be applied again.

    Its needs speak of the job before the step, so they are not asked of the job after it.
    """
    own = {f"job_{change.setting}" for change in spec.changes if change.setting is not None}
    asked = {name for change in spec.changes if change.only is not None for name in book.expression(change.only).names}
    return spec.already_on is None or any(change.value is not None for change in spec.changes) or bool(own & asked)


def _refusal(fix: Fix, asked: Plan) -> _Reason | None:
    """Why a fix is not even tried."""
    if fix.state == "already_on":
        return _Reason(why="It is on already.", harmless=True)
    if fix.state == "blocked":
        return _Reason(why=" ".join(fix.blocked_by))
    if asked.edits:
        return None
    numerics = [one for one in asked.left if one.why.startswith(_NUMERICS)]
    why = f"I{numerics[0].why[1:]}." if numerics else "Nothing of it can be written into a job file."
    return _Reason(why=why, harmless=True, left=asked.left)


def _editor(state: _State) -> Editor | None:
    """What writes into the job file; None where it is not rewritten."""
    return READERS[state.job.format].editor(state.text)


def _by_key(state: _State, asked: Plan) -> Iterator[Edit]:
    """The edits with one for each key that has to be overridden: a job file may set one thing in two places."""
    editor = _editor(state)
    for edit in asked.edits:
        yield from (edit,) if editor is None else (dataclasses.replace(edit, key=key) for key in editor.keys(state.text, edit))


class _Edited(Struct, frozen=True, kw_only=True):
    """The changed text, the edits that this kind of file can't take, and the keys that say so already (`there`)."""

    text: str
    unwritten: tuple[Edit, ...]
    there: frozenset[str]


def _edited(state: _State, asked: Plan) -> _Edited:
    """The text with the edits of a plan. Raises YamlEditError."""
    text, editor, unwritten, there = state.text, _editor(state), [], set()
    for edit, value in in_turn(asked.edits, state.job):
        if editor is not None and editor.takes(edit):
            before, text = text, editor.write(text, edit, value)
            there |= {edit.key} if text == before else set()
        else:
            unwritten.append(edit)
    return _Edited(text=text, unwritten=tuple(unwritten), there=frozenset(there))


def _written(now: _State, before: Job, spec: FixSpec, asked: Plan, there: frozenset[str]) -> Iterator[Written]:
    """What changed, setting by setting, with the key that it is read from now; of a file that is not rewritten its framework's."""
    after, rewritten = now.job, _editor(now) is not None
    for edit in {(one.key, None if one.setting is not None else index): one for index, one in enumerate(asked.edits)}.values():
        if edit.setting is None and edit.key in there:
            continue
        old = None if edit.setting is None else before.settings.get(edit.setting)
        new = None if edit.setting is None else after.settings.get(edit.setting)
        if edit.setting is not None and (None if old is None else old.value) == (None if new is None else new.value):
            continue
        several = sum(other.setting == edit.setting for other in asked.edits) > 1
        own = edit.spec.words_in(edit.framework, edit.key) if edit.spec is not None and edit.literal is not None else {}
        key = edit.key if several or not rewritten or new is None or new.source == "default" else new.key
        yield Written(
            fix=spec.id,
            framework=edit.framework,
            key=key,
            from_=None if old is None or old.source == "default" else own.get(old.value) or setting_shown(old.value),
            to=own.get(edit.value) or setting_shown(edit.value if new is None else new.value),
            how=edit.how,
        )


def wanted_by(document: Diagnosis) -> tuple[Wanted, ...]:
    """For each finding about the run that something can be won by, in order, its applicable fixes: the plan's, then the best first."""
    planned = {(step.finding, step.fix) for step in document.plan if step.instead_of is None}
    return tuple(
        Wanted(fixes=tuple(sorted(fixes, key=lambda fix: (finding.id, fix) not in planned)), finding=finding.id)
        for finding in document.findings
        if finding.wall != "capture" and finding.bound_ns and (fixes := tuple(fix.id for fix in finding.fixes if fix.state == "applicable"))
    )
