"""What is said about a job file: `check/1`, what would go wrong, and `patch/1`, what was changed. Additive changes keep the names."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from diagnose.document.diagnosis import Change, Expected, JobRead, Tool
from diagnose.model.vocabulary import FactValue, Group, Outcome

CHECK_SCHEMA = "check/1"
PATCH_SCHEMA = "patch/1"


class Deciding(Struct, frozen=True, kw_only=True):
    """A setting that decided a result; `default` means that the job file does not set it, `computed` that it follows from others, as `key`
    says.
    """

    name: str
    value: FactValue | tuple[str, ...]
    key: str
    source: Literal["read", "default", "trace", "platform", "computed"]


class FixName(Struct, frozen=True, kw_only=True):
    """A fix that helps."""

    id: str
    title: str


class CheckResult(Struct, frozen=True, kw_only=True):
    """One thing that goes wrong. `source` is "fix" where a fix that is on lacks something that it needs.

    `outcome` is None where no source tells what such a run does. `assumed` names defaults without which the result would not follow.
    """

    id: str
    title: str
    group: Group
    outcome: Outcome | None
    summary: str
    symptom: str
    settings: tuple[Deciding, ...]
    assumed: tuple[str, ...]
    remedy: str
    fixes: tuple[FixName, ...]
    refs: tuple[str, ...]
    source: Literal["check", "fix"]
    repair: tuple[Change, ...] = ()  # settings that `diagnose patch --checks` writes, in the keys of the job's own framework
    no_fix: str = ""  # why nothing can be written that mends it


class NotAssessed(Struct, frozen=True, kw_only=True):
    """A check that lacks settings; `how` says where to give them."""

    id: str
    title: str
    missing: tuple[str, ...]
    how: str


class CheckReport(Struct, frozen=True, kw_only=True):
    """Schema `check/1`. `failed` is what decides the exit code: something would fail, hang or silently be off."""

    schema: str
    tool: Tool
    job: JobRead
    platform: str | None
    failed: bool
    checked: int
    results: tuple[CheckResult, ...]
    not_assessed: tuple[NotAssessed, ...]


class Written(Struct, frozen=True, kw_only=True):
    """One key of the job file that changes. `to` is None where the key is removed."""

    fix: str
    framework: str
    key: str
    from_: str | None
    to: str | None
    how: str = ""  # of a computed value


class LeftToYou(Struct, frozen=True, kw_only=True):
    """A change that was not written, and why."""

    fix: str
    framework: str
    key: str
    to: str
    why: str


class Applied(Struct, frozen=True, kw_only=True):
    """One fix that was applied. `for_finding` is the finding that calls for it; None where the user named the fix."""

    id: str
    title: str
    for_finding: str | None
    expected: tuple[Expected, ...]
    verify: str
    unknown: tuple[str, ...]


class Skipped(Struct, frozen=True, kw_only=True):
    """One fix that was not applied, and why."""

    id: str
    title: str
    why: str


AT_LAUNCH = "this file can't take it; give it at launch"  # why a change is left to who starts the job


class PatchReport(Struct, frozen=True, kw_only=True):
    """Schema `patch/1`. The command-line forms hold the same changes for a launch without the changed file."""

    schema: str
    tool: Tool
    source: str
    rewritten: bool  # False for launch scripts, recipes and TOML, of which only the forms for the command line are given
    applied: tuple[Applied, ...]
    skipped: tuple[Skipped, ...]
    written: tuple[Written, ...]
    left_to_you: tuple[LeftToYou, ...]
    still_wrong: tuple[CheckResult, ...]
    bridge_overrides: tuple[str, ...]
    megatron_flags: tuple[str, ...]
    environment: tuple[str, ...]
    torchtitan_options: tuple[str, ...] = ()
    own_overrides: tuple[str, ...] = ()  # in the keys of a program that hands settings to a framework (verl, NeMo RL, NeMo 1)
