"""The comparison of two diagnoses, schema `comparison/2`.

Made from two documents, never from traces. The conventions are the diagnosis document's: integer nanoseconds in fields named `_ns`, shares from 0 to 1, None for what could not be
measured. A delta is new less base: positive means more time. Same documents and options give the same bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from diagnose.document.device import Spread, Why
from diagnose.document.diagnosis import Tool
from diagnose.document.notebook import Writable
from diagnose.model.environment import EnvironmentKind
from diagnose.model.vocabulary import CommKind, Level, Topic, Wall

SCHEMA = "comparison/2"
Result = Literal["regression", "improvement", "no_change", "cannot_tell", "refused"]
Basis = Literal["interval and rank test", "separation", "single step", "identical", "none"]
MismatchState = Literal["refused", "normalised", "noted"]
KernelChangeKind = Literal["new", "gone", "renamed", "slower", "faster", "more", "fewer", "moved"]
FindingState = Literal["new", "gone", "worse", "better", "same", "not_assessed"]


class Side(Struct, frozen=True, kw_only=True):
    """One of the two runs. `label` is a file's bare name, or a baseline's; `rank` and `device` are those that are compared."""

    label: str
    rank: int
    device: int
    gpu: str | None
    steps: Spread  # ns; the steps compared
    anchor: str
    target_wall: Wall | None  # what to attack first; None where the capture gives no verdict
    certainty: str
    sentence: str
    fingerprint: str


class Mismatch(Struct, frozen=True, kw_only=True):
    """Something in which the two runs are not the same work. `aspect`: model, layers, batch, sequence, tokens, layout, precision, world, ranks, device, capture, kernels.

    refused: no verdict unless asked for anyway; normalised: taken out of the figures; noted: said, and no more.
    """

    aspect: str
    name: str
    base: str
    new: str
    state: MismatchState
    text: str


class Normalised(Struct, frozen=True, kw_only=True):
    """Useful tokens per step of both runs; the effect is then in ns per token. `source` says who tells them.

    Where neither capture was cut into steps, the amounts are of kernel work instead (`unit`), and all figures of the new run (effect, delta, walls, kernels, overlap) are brought to the base's amount, in plain ns.
    """

    base_tokens: float
    new_tokens: float
    source: str
    unit: Literal["tokens", "ns of kernel work"] = "tokens"


class Comparability(Struct, frozen=True, kw_only=True):
    """Whether the two may be compared. `unknown` lists aspects that one side or both do not tell."""

    comparable: bool
    anyway: bool
    mismatches: tuple[Mismatch, ...]
    unknown: tuple[str, ...]
    normalised: Normalised | None = None


class EnvironmentChange(Struct, frozen=True, kw_only=True):
    """Something around the code that differs; None: that side does not have it."""

    name: str
    kind: EnvironmentKind
    base: str | None
    new: str | None


class SettingChange(Struct, frozen=True, kw_only=True):
    """One normalised setting of the job file that differs; None: that side does not give it. `key` as the file shows it (the new one, else the base's)."""

    name: str
    key: str
    base: str | None
    new: str | None
    line: int | None = None  # of the new job file


class Effect(Struct, frozen=True, kw_only=True):
    """How the metric moved: difference of medians, its bootstrap interval and a rank test over the steps of both.

    `worse`: by how much, relative to base, in the direction that is bad for this metric (negative: better). `smallest`: the smallest relative change that these samples could have shown. Values are
    in `unit`; of a normalised comparison, per token.
    """

    metric: str
    unit: str
    base: float
    new: float
    delta: float
    relative: float | None  # None where base is nought
    worse: float | None
    low: float | None  # 95 % interval of delta
    high: float | None
    p_value: float | None
    n_base: int
    n_new: int
    smallest: float | None
    basis: Basis
    result: Result


class Part(Struct, frozen=True, kw_only=True):
    """The part of a category that has one cause (of compute having been absent)."""

    why: Why
    base_ns: int
    new_ns: int
    delta_ns: int


class Category(Struct, frozen=True, kw_only=True):
    """One exclusive category of the step: `compute:BUCKET`, transport, packing, copy (exposed: no compute ran), launch_starved, host_sync, dependency_stalled, idle.

    `delta_ns` over all categories is the delta of the median step, to the nanosecond. `moved`: beyond the noise of its steps. `low`, `high`: 95 % interval of the difference of its medians.
    """

    category: str
    base_ns: int
    new_ns: int
    delta_ns: int
    moved: bool
    low: int | None = None
    high: int | None = None
    parts: tuple[Part, ...] = ()


class StepDelta(Struct, frozen=True, kw_only=True):
    """The delta of the median step (the middle one, or the mean of the two in the middle), reconciled: sum of `categories` = `delta_ns`."""

    base_ns: int
    new_ns: int
    delta_ns: int
    base_steps: tuple[int, ...]  # indices of the steps in the middle
    new_steps: tuple[int, ...]
    categories: tuple[Category, ...]


class KernelChange(Struct, frozen=True, kw_only=True):
    """One kernel that changed, per step (median). `was`: its name in base, where renamed. A stream is named as in the new run, `was_stream` as in base."""

    kind: KernelChangeKind
    name: str
    bucket: str
    was: str | None
    stream: int | None
    was_stream: int | None
    base_launches: int
    new_launches: int
    base_launch_ns: int | None
    new_launch_ns: int | None
    base_work_ns: int
    new_work_ns: int
    delta_ns: int
    why: str = ""  # how a renamed or moved kernel was recognised


class OverlapChange(Struct, frozen=True, kw_only=True):
    """Transport of one kind: how much of it ran beside compute. `lost_ns`: exposed time that base's share of overlap would have hidden."""

    kind: CommKind
    backend: str
    base_busy_ns: int
    new_busy_ns: int
    base_exposed_ns: int
    new_exposed_ns: int
    base_overlap: float | None
    new_overlap: float | None
    lost_ns: int | None


class WallChange(Struct, frozen=True, kw_only=True):
    """The bound of one wall in both runs."""

    wall: Wall
    base_ns: int | None
    new_ns: int | None
    delta_ns: int | None


class FindingChange(Struct, frozen=True, kw_only=True):
    """One finding in both runs. `worse`: more severe, or a bound that grew beyond noise; `not_assessed`: base has it, and the new run could not be asked.

    `key` and `line` are of the setting that the first applicable fix of the new run's finding changes: as the new job file shows it, and on which of its lines.
    """

    id: str
    name: str
    severity: Level
    state: FindingState
    summary: str
    base_bound_ns: int | None
    new_bound_ns: int | None
    wall: Topic | None = None
    key: str = ""
    line: int | None = None
    fix: str = ""  # title of that fix
    why: str = ""


class Gate(Struct, frozen=True, kw_only=True):
    """The gate that was asked for. `met` None: it can't be judged. `limit`: the largest regression allowed, relative."""

    limit: float | None
    fail_on: Level | None
    met: bool | None
    sentence: str


class Outcome(Struct, frozen=True, kw_only=True):
    """The headline: the result, one sentence with the figures, one with what moved, and what a reader must know before believing it."""

    result: Result
    sentence: str
    moved: str
    reasons: tuple[str, ...]


class Comparison(Writable, Struct, frozen=True, kw_only=True):
    """The whole document. `delta` is None where a side's document does not hold the split of its steps."""

    schema: str
    tool: Tool
    outcome: Outcome
    base: Side
    new: Side
    comparability: Comparability
    environment: tuple[EnvironmentChange, ...]
    settings: tuple[SettingChange, ...]
    effect: Effect
    delta: StepDelta | None
    walls: tuple[WallChange, ...]
    kernels: tuple[KernelChange, ...]
    overlap: tuple[OverlapChange, ...]
    findings: tuple[FindingChange, ...]
    gate: Gate | None = None
    notes: tuple[str, ...] = ()
    environment_same: int = 0  # things around the code that both tell and that are the same
    kernels_same: int = 0

    def __repr__(self) -> str:
        """The result in a line."""
        return f"<Comparison {self.base.label} -> {self.new.label}: {self.outcome.result}>"


def decode(data: bytes) -> Comparison:
    """A Comparison from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Comparison)
