"""The shape of rule files: one strict class per kind of entry. An unknown field in a file is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
import polars as pl
from msgspec import Struct

from diagnose.document.diagnosis import Expected
from diagnose.model.vocabulary import CAPTURE, COMM_KINDS, FactValue, Level, Outcome, Status, Topic, Wall

Unit = Literal["ns", "share", "count", "bytes", "text", "bool"]
UNIT_TYPES: Mapping[str, pl.DataType] = MappingProxyType(
    {"ns": pl.Float64(), "share": pl.Float64(), "count": pl.Float64(), "bytes": pl.Float64(), "text": pl.String(), "bool": pl.Boolean()}
)
_PLACES = (
    *(f"communication:{kind}" for kind in COMM_KINDS),
    *(f"host:{cause}" for cause in ("allocator", "sync", "gc", "python", "launch")),
    *(f"role:{role}" for role in ("compute", "transport", "packing", "copy")),
    *(
        f"ranks:{part}"
        for part in ("straggler", "rotating", "skewed", "experts", "stages", "tail", "link", "duplicate", "steps", "captured")
    ),
    "tiny",
)


def places_of(buckets: Iterable[str]) -> tuple[str, ...]:
    """Where a finding may show: every place that a rule may name."""
    return (*(f"bucket:{bucket}" for bucket in buckets), *_PLACES)


class _Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that a rule file may hold: an unknown field is an error."""


class FactSpec(_Strict, frozen=True, kw_only=True):
    """One line of the table of facts. `scope`: what the value speaks of; facts of ranks need several captured ranks."""

    unit: Unit
    meaning: str
    null: str
    scope: Literal["device", "ranks"] = "device"


class Severity(_Strict, frozen=True, kw_only=True):
    """Thresholds of a severity, by `of` (a share; default: the bound as a share of the step)."""

    of: str | None = None
    high: float | None = None
    medium: float | None = None


class Examples(_Strict, frozen=True, kw_only=True):
    """Facts and settings on which a rule must fire, and on which it must not."""

    fires: tuple[dict[str, FactValue | list[str]], ...]
    silent: tuple[dict[str, FactValue | list[str]], ...]


class Rule(_Strict, frozen=True, kw_only=True):
    """One bad pattern; trace_rules/README.md explains the fields."""

    id: str
    name: str
    wall: Topic
    status: Literal["preview", "stable", "deprecated"]
    since: str
    summary: str
    when: str
    claim: Status
    why: str
    wrong_when: str
    check: str
    evidence: tuple[str, ...]
    examples: Examples
    saves: str | None = None
    severity: Level | Severity | None = None
    fixes: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    capture: str = ""
    refs: tuple[str, ...] = ()


BESIDE_FRAMEWORKS = ("environment", "launcher", "code")  # where a change can be made that is no setting of a framework


class ChangeSpec(_Strict, frozen=True, kw_only=True):
    """One setting to change in one framework, unless `only` is false; `value` computes what to set, `to` is shown where it cannot.

    `to` is a YAML literal that can be written into a job file (`true`, `flex`, `[attn, moe_router]`), except where `choose` says that it
    is words and a person has to choose. `op` says what is done with it: `add` and `remove` change single members of a list, `unset`
    removes the setting.
    """

    framework: str  # a framework of job_formats.yaml, or one of BESIDE_FRAMEWORKS
    key: str
    to: str
    setting: str | None = None
    value: str | None = None
    only: str | None = None
    op: Literal["set", "add", "remove", "unset"] = "set"
    choose: bool = False


class Requirement(_Strict, frozen=True, kw_only=True):
    """A condition with the sentence for when it fails.

    The gate says what it does to the fix: `hard` blocks when it fails and leaves the fix unknown when it is unknown; `known` blocks
    when it fails, but is only told when it is unknown (versions); `note` is only told.
    """

    condition: str = msgspec.field(name="if")
    say: str
    unknown: str = ""
    gate: Literal["hard", "known", "note"] = "hard"
    first: str | None = None
    outcome: Outcome | None = None  # what a run does that has the fix on and breaks this; None where no source tells


class FixSpec(_Strict, frozen=True, kw_only=True):
    """One remedy; trace_rules/README.md explains the fields."""

    id: str
    title: str
    walls: tuple[Wall, ...]
    phase: Literal["fit", "scale", "profile", "retune"]
    evidence: Literal["measured", "candidate", "required"]
    changes: tuple[ChangeSpec, ...]
    expected: tuple[Expected, ...]
    cost: str
    risk: str
    verify: str
    refs: tuple[str, ...]
    already_on: str | None = None
    undecidable: str = ""
    step: int = 1
    disputed: str = ""
    needs: tuple[Requirement, ...] = ()
    conflicts: tuple[Requirement, ...] = ()


class CheckSpec(_Strict, frozen=True, kw_only=True):
    """One way in which a job fails, hangs or silently does something else; trace_rules/README.md explains the fields.

    Without `when` no job file can show it: a log or a run has to, as `confirm` says.
    """

    title: str
    outcome: Outcome
    when: str | None
    say: str
    remedy: str
    refs: tuple[str, ...]
    symptom: str = ""
    confirm: str = ""
    sure: bool = True
    frameworks: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    examples: Examples | None = None


class Platform(_Strict, frozen=True, kw_only=True):
    """One GPU product. Peaks are dense TFLOP/s; None where no trustworthy figure is public."""

    pattern: str
    architecture: str
    compute_major: int | None
    compute_minor: int | None
    nvlink_domain: int | None
    gpus_per_node: int | None
    sm_count: int | None
    memory_gb: float | None
    memory_tb_per_s: float | None
    nvlink_gb_per_s: float | None = None  # one way, all links of one GPU together
    peak_tflops: dict[str, float]
    sources: tuple[str, ...]
    note: str = ""


class SmLimits(_Strict, frozen=True, kw_only=True):
    """What fits on one SM at once, by compute capability."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    register_unit: int
    shared_unit: int
    reserved_shared_bytes: int


class Platforms(_Strict, frozen=True, kw_only=True):
    """The platform table; the first pattern that is found in a GPU's name wins."""

    platforms: dict[str, Platform]
    sm_limits: dict[str, SmLimits]
    sm_limits_source: tuple[str, ...]


class Clause(_Strict, frozen=True, kw_only=True):
    """A sentence part that is said where its condition holds."""

    when: str
    say: str


class Lead(_Strict, frozen=True, kw_only=True):
    """How the verdict begins where a wall dominates, and the condition holds if there is one."""

    say: str
    when: str | None = None


class TopicSpec(_Strict, frozen=True, kw_only=True):
    """How what rules speak of is called (`title`, in small letters), and its colour in a terminal."""

    title: str
    style: str


class WallSpec(TopicSpec, frozen=True, kw_only=True):
    """One wall: an expression for its bound, the bound's named parts, and what is shown beside; the fields are explained in the YAML file."""

    meaning: str
    lead: tuple[Lead, ...]
    bound: str
    parts: dict[str, str]
    beside: dict[str, str] = {}
    status_facts: tuple[str, ...] = ()
    contender: bool = True


class CertaintyRule(_Strict, frozen=True, kw_only=True):
    """A reason to trust the verdict less."""

    when: str
    level: Literal["medium", "low"]
    say: str


class Walls(_Strict, frozen=True, kw_only=True):
    """walls.yaml: the walls in order, what stands where a wall does in rules about the capture, the threshold of dominance, and how the verdict is said."""

    dominance_share: float
    severity: Severity
    walls: dict[Wall, WallSpec]
    capture: TopicSpec
    also: tuple[Clause, ...]
    perturbed: str
    certainty: tuple[CertaintyRule, ...]

    @property
    def contenders(self) -> tuple[Wall, ...]:
        """The walls that can dominate by their bounds."""
        return tuple(wall for wall, spec in self.walls.items() if spec.contender)

    @property
    def fallback(self) -> Wall:
        """The wall that dominates where no other does. Raises StopIteration where there is none (a rulebook always has one)."""
        return next(wall for wall, spec in self.walls.items() if not spec.contender)

    def topic(self, name: Topic) -> TopicSpec:
        """What a rule about a wall, or about the capture, speaks of. Raises KeyError."""
        return self.capture if name == CAPTURE else self.walls[name]


VERDICT_COLUMNS: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "dominant_wall": pl.String(),
        "runner_up": pl.String(),
        "dominant_title": pl.String(),
        "runner_up_title": pl.String(),
        "dominant_limit": pl.String(),
        "runner_up_limit": pl.String(),
        "dominant_bound_ns": pl.Float64(),
        "dominant_share": pl.Float64(),
        "runner_up_bound_ns": pl.Float64(),
        "runner_up_share": pl.Float64(),
        "unknown_walls": pl.String(),
        "parts_text": pl.String(),
    }
)
