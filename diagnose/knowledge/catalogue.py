"""What one entry of trace_rules/ may hold: a fact, a rule, a fix, a check; trace_rules/README.md explains the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec
import polars as pl

from diagnose.knowledge.conditions import Condition, Formula
from diagnose.knowledge.data import Strict
from diagnose.knowledge.effects import EffectSpec
from diagnose.knowledge.walls import Severity
from diagnose.model.vocabulary import COMM_KINDS, Cause, FactValue, Level, Outcome, Status, Topic, Wall

Unit = Literal["ns", "share", "count", "bytes", "text", "bool"]
_NUMBERS = dict.fromkeys(("ns", "share", "count", "bytes"), pl.Float64())
UNIT_TYPES: Mapping[str, pl.DataType] = {**_NUMBERS, "text": pl.String(), "bool": pl.Boolean()}
_PLACES = (
    *(f"communication:{kind}" for kind in COMM_KINDS),
    *(f"host:{cause}" for cause in get_args(Cause)),
    *(f"role:{role}" for role in ("compute", "transport", "packing", "copy")),
    *(
        f"ranks:{part}"
        for part in ("straggler", "another", "rotating", "skewed", "experts", "stages", "tail", "link", "duplicate", "steps", "captured")
    ),
    "tiny",
)


def places_of(buckets: Iterable[str]) -> tuple[str, ...]:
    """Where a finding may show: every place that a rule may name."""
    return (*(f"bucket:{bucket}" for bucket in buckets), *_PLACES)


class FactSpec(Strict, frozen=True, kw_only=True):
    """One line of the table of facts. `scope`: what the value speaks of; facts of ranks need several captured ranks.

    `status`: what a claim that rests on it is at best.
    """

    unit: Unit
    meaning: str
    null: str
    scope: Literal["device", "ranks"] = "device"
    status: Literal["measured", "inferred"] = "measured"


class Examples(Strict, frozen=True, kw_only=True):
    """Facts and settings on which a rule must fire, and on which it must not."""

    fires: tuple[dict[str, FactValue | list[str]], ...]
    silent: tuple[dict[str, FactValue | list[str]], ...]


class CauseSpec(Strict, frozen=True, kw_only=True):
    """How the verdict begins where the finding is the cause of what the target wall loses: `of` is that wall (default: the rule's own).

    `headline`: the cause in a word or two, for the verdict's heading; without one the heading is the wall. `outranks`: a failure that
    comes before every wall, however much it costs. `when`: it is a cause only where this holds.
    """

    say: str
    when: Condition | None = None
    headline: str | None = None
    of: Wall | None = None
    outranks: bool = False


class LateSpec(CauseSpec, frozen=True, kw_only=True):
    """How it begins instead `when` the finding makes one rank late: its bound is then at least what the others wait for that (`saves`)."""

    when: Condition
    saves: Formula


class Rule(Strict, frozen=True, kw_only=True):
    """One bad pattern; trace_rules/README.md explains the fields."""

    id: str
    name: str
    wall: Topic
    status: Literal["preview", "stable", "deprecated"]
    since: str
    summary: str
    when: Condition
    claim: Status
    why: str
    wrong_when: str
    check: str
    evidence: tuple[str, ...]
    examples: Examples
    saves: Formula | None = None
    cause: CauseSpec | None = None
    late: LateSpec | None = None
    severity: Level | Severity | None = None
    fixes: tuple[str, ...] = ()
    first: dict[str, Condition] = msgspec.field(default_factory=dict)
    reach: dict[str, Formula] = msgspec.field(default_factory=dict)
    one_change: bool = False
    where: tuple[str, ...] = ()
    capture: str = ""
    refs: tuple[str, ...] = ()


GENERAL = "general"  # the change in words, for a program of which no framework with settings of its own is known
BESIDE_FRAMEWORKS = ("environment", "launcher", "code", GENERAL)  # where a change can be made that is no setting of a framework


class ChangeSpec(Strict, frozen=True, kw_only=True):
    """One setting to change in one framework, unless `only` is false; `value` computes what to set, `to` is shown where it cannot.

    `to` is a YAML literal that can be written into a job file (`true`, `flex`, `[attn, moe_router]`), except where `choose` says that it
    is words and a person has to choose. `op` says what is done with it: `add` and `remove` change single members of a list, `unset`
    removes the setting.
    """

    framework: str  # a framework of job_formats.yaml, or one of BESIDE_FRAMEWORKS
    key: str
    to: str
    setting: str | None = None
    value: Formula | None = None
    only: Condition | None = None
    op: Literal["set", "add", "remove", "unset"] = "set"
    choose: bool = False


class Requirement(Strict, frozen=True, kw_only=True):
    """A condition with the sentence for when it fails.

    The gate says what it does to the fix: `hard` blocks when it fails and leaves the fix unknown when it is unknown; `known` blocks
    when it fails, but is only told when it is unknown (versions); `note` is only told. `elsewhere`: what it is where the job's framework
    has no such setting.
    """

    condition: Condition = msgspec.field(name="if")
    say: str
    unknown: str = ""
    gate: Literal["hard", "known", "note"] = "hard"
    first: str | None = None
    elsewhere: Literal["met", "unmet", "open"] = "met"
    outcome: Outcome | None = None  # what a run does that has the fix on and breaks this; None where no source tells


class Published(Strict, frozen=True, kw_only=True):
    """A published effect with its source; of jobs for which `only` is false it does not speak."""

    text: str
    source: str
    only: Condition | None = None


class FixSpec(Strict, frozen=True, kw_only=True):
    """One remedy; trace_rules/README.md explains the fields."""

    id: str
    title: str
    walls: tuple[Wall, ...]
    phase: Literal["fit", "scale", "profile", "retune"]
    evidence: Literal["measured", "candidate", "required"]
    changes: tuple[ChangeSpec, ...]
    expected: tuple[Published, ...]
    cost: str
    risk: str
    verify: str
    refs: tuple[str, ...]
    already_on: Condition | None = None
    undecidable: str = ""
    step: int = 1
    disputed: str = ""
    needs: tuple[Requirement, ...] = ()
    conflicts: tuple[Requirement, ...] = ()
    effect: tuple[EffectSpec, ...] = ()
    no_effect: str = ""


class RepairSpec(Strict, frozen=True, kw_only=True):
    """A setting repaired by a computed `value`, or by members of a list that go and come."""

    value: Formula | None = None
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()


Repair = bool | int | float | str | tuple[str, ...] | RepairSpec | None  # None: the setting goes


class CheckSpec(Strict, frozen=True, kw_only=True):
    """One way in which a job fails or silently errs (fields: trace_rules/README.md); without `when` only a log or run can show it."""

    title: str
    outcome: Outcome
    when: Condition | None
    say: str
    remedy: str
    refs: tuple[str, ...]
    asserted: dict[str, str] = msgspec.field(default_factory=dict)
    symptom: str = ""
    confirm: str = ""
    repair: dict[str, Repair] = msgspec.field(default_factory=dict)
    no_fix: str = ""
    sure: bool = True
    since: str = ""
    frameworks: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    examples: Examples | None = None
