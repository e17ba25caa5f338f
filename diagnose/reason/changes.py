"""The changes that a fix asks for, as edits of a job file with typed values (what is no value is left to a person), and where they stand in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from diagnose.document.diagnosis import Change, Finding, Fix, JobRead, JobSetting
from diagnose.document.job import LeftToYou
from diagnose.job import Job, SettingValue
from diagnose.job.edit import ENVIRONMENT, Edit
from diagnose.job.formats import megatron_bridge, megatron_lm
from diagnose.job.formats.overrides import NAME as OVERRIDES
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.rulebook import ChangeSpec, FixSpec
from diagnose.knowledge.settings import SettingSpec, flag_name, frameworks, load_formats, load_settings
from diagnose.reason.context import Context

_NONE: frozenset[type] = frozenset()
_TYPES: Mapping[str, frozenset[type]] = MappingProxyType(
    {"bool": frozenset({bool}), "int": frozenset({int}), "float": frozenset({int, float}), "version": frozenset({str})}
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one fix asks for: edits that can be written, and what is left to a person."""

    edits: tuple[Edit, ...]
    left: tuple[LeftToYou, ...]


def framework_of(format_: str | None) -> str:
    """In whose keys fixes of a job file of this format are written; without a job file, in those that overrides take."""
    return load_formats()[OVERRIDES if format_ is None else format_].framework


def plan(spec: FixSpec, context: Context, framework: str) -> Plan:
    """The changes of `spec` for one framework, with the environment's."""
    edits: list[Edit] = []
    left: list[LeftToYou] = []
    for change in spec.changes:
        if change.framework in frameworks() and change.framework != framework:
            continue
        wanted = True if change.only is None else context.holds(change.only)
        if wanted is False:
            continue
        made = _edit(change, context) if wanted else "whether it is wanted is not known: " + _unknown(change, context)
        if isinstance(made, Edit):
            edits.append(made)
        else:
            left.append(LeftToYou(fix=spec.id, framework=change.framework, key=change.key, to=change.to, why=made))
    return Plan(edits=tuple(edits), left=tuple(left))


def _unknown(change: ChangeSpec, context: Context) -> str:
    names = context.missing(context.rulebook.expression(change.only or ""))
    return f"{', '.join(name.removeprefix('job_') for name in names)} is not given"


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
    literal = change.to if value is not None and change.to.startswith("{") else None
    return Edit(framework=change.framework, key=change.key, op=op, value=value, setting=change.setting, literal=literal)


def _value(change: ChangeSpec, setting: SettingSpec | None, context: Context) -> SettingValue | None:
    """The typed value of a change; None where there is none."""
    if change.value is not None:
        number = context.numbers([change.value])[0]
        if number is not None:
            return int(number) if number == round(number) else number
    try:
        plain = strict_yaml.load(change.to)
    except strict_yaml.YamlError:
        plain = change.to
    kind = setting.type if setting is not None else None
    if isinstance(plain, dict):
        plain = _class_name(plain, setting)
    if kind == "list" or (kind is None and isinstance(plain, list)):
        return _members(plain)
    if kind in ("text", "version") and change.op in ("add", "remove"):
        return tuple(change.to.split(","))
    if kind == "text" and isinstance(plain, str | int | float):
        return plain if change.to.startswith("{") else change.to
    if not isinstance(plain, bool | int | float | str):
        return None
    return plain if kind is None or _TYPES.get(kind, _NONE).issuperset({type(plain)}) else None


def _class_name(plain: dict[object, object], setting: SettingSpec | None) -> str:
    """The name that a map such as `{_target_: torch.bfloat16, _call_: false}` stands for."""
    named = str(plain.get("_target_", "")).rpartition(".")[2]
    return named if setting is None else setting.aliases.get(named, named)


def _members(plain: object) -> tuple[str, ...] | None:
    """Names of a list, from a YAML list or from words with spaces between; None for a sentence."""
    if isinstance(plain, list) and all(isinstance(item, str | int) for item in plain):
        return tuple(str(item) for item in plain)
    if isinstance(plain, str) and all(part.replace("_", "").replace("+", "").isalnum() for part in plain.split()):
        return tuple(plain.split())
    return None


# --- for the command line ---------------------------------------------------------------------------------------------


def bridge_overrides(edits: Sequence[Edit], job: Job) -> Iterator[str]:
    """`key=value` for Megatron-Bridge's command line."""
    for edit in edits:
        if edit.framework == megatron_bridge.NAME:
            yield f"{edit.key}={shlex.quote(_shown(whole(edit, job), ','))}"


def megatron_flags(edits: Sequence[Edit], job: Job) -> Iterator[str]:
    """`--flag value` for Megatron-LM's command line; a flag to leave out says so."""
    for edit in edits:
        if edit.framework != megatron_lm.NAME:
            continue
        value = whole(edit, job)
        if value is True:
            yield edit.key
        elif value is None or value is False:
            yield f"(leave out {edit.key})"
        else:
            yield f"{edit.key} {' '.join(map(shlex.quote, _texts(value)))}"


def exports(edits: Sequence[Edit], job: Job) -> Iterator[str]:
    """`export NAME=value` for the shell."""
    for edit in edits:
        if edit.framework == ENVIRONMENT:
            value = whole(edit, job)
            yield f"unset {edit.key}" if value is None else f"export {edit.key}={shlex.quote(_shown(value, ',', brackets=False))}"


def _texts(value: SettingValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


def whole(edit: Edit, job: Job) -> SettingValue | None:
    """The value that a setting has after the edit, all members of a list included."""
    if edit.op not in ("add", "remove") or edit.setting is None:
        return edit.value
    now = job.get(edit.setting)
    members = _texts(edit.value) if edit.value is not None else ()
    present = tuple(part for part in now.split(",") if part) if isinstance(now, str) else now if isinstance(now, tuple) else ()
    if edit.op == "remove":
        return tuple(member for member in present if member not in members)
    return (*present, *(member for member in members if member not in present))


def _shown(value: SettingValue | None, sign: str, *, brackets: bool = True) -> str:
    if isinstance(value, tuple):
        return f"[{sign.join(value)}]" if brackets else sign.join(value)
    if value is None:
        return "null"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class SettingPlace:
    """A finding's first applicable fix: its title, the key that it changes (as the job file shows it, else the framework), the key's line.

    All empty where no fix is applicable; no line where the job file does not hold the setting.
    """

    fix: str = ""
    key: str = ""
    line: int | None = None


def place_of(finding: Finding, job: JobRead | None) -> SettingPlace:
    """The place of the finding's first applicable fix. A setting that the file holds goes before one that it lacks."""
    fix = next((one for one in finding.fixes if one.state == "applicable"), None)
    if fix is None:
        return SettingPlace()
    changes = _own_changes(fix, job)
    held = {setting.name: setting for setting in job.settings} if job is not None else {}
    found = next((setting for setting in (_setting(one, held) for one in changes) if setting is not None), None)
    if found is not None:
        return SettingPlace(fix=fix.title, key=found.key, line=found.line)
    return SettingPlace(fix=fix.title, key=changes[0].key if changes else "")


def _own_changes(fix: Fix, job: JobRead | None) -> Sequence[Change]:
    """The changes in the keys of the job's own framework, those of settings that differ from what is wanted first."""
    framework = framework_of(None if job is None else job.format)
    mine = [one for one in fix.changes if one.framework in (framework, ENVIRONMENT)] or [
        one for one in fix.changes if one.framework in (*frameworks(), ENVIRONMENT)
    ]
    return sorted(mine, key=lambda one: one.from_ == one.to)


def _setting(change: Change, held: Mapping[str, JobSetting]) -> JobSetting | None:
    """The setting of the job file that a change is about; None where the file does not hold it."""
    name = _names().get(_plain(change.key))
    return None if name is None else held.get(name)


def _plain(key: str) -> str:
    return flag_name(key) if key.startswith("-") else key


@lru_cache(maxsize=1)
def _names() -> Mapping[str, str]:
    """Names of settings by every key that a fix may call them by."""
    names: dict[str, str] = {}
    flags = [format_ for format_, row in load_formats().items() if row.keys_are == "flags"]
    for name, spec in load_settings().items():
        keys = [flag_name(key) if framework in flags else key for framework in frameworks() for key in spec.keys_in(framework)]
        for key in (*keys, *spec.env, name):
            names.setdefault(key, name)
    return MappingProxyType(names)
