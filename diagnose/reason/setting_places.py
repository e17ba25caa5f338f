"""Where in a job file stands what a finding asks to change: outputs for CI runners point at that line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from diagnose.document.diagnosis import Change, Finding, Fix, JobRead, JobSetting
from diagnose.job.edit import ENVIRONMENT
from diagnose.knowledge.settings import flag_name, frameworks, load_formats, load_settings
from diagnose.reason.changes import framework_of


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
