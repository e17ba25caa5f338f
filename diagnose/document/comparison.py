"""The comparison of two diagnoses, schema `comparison/2`.

Made from two documents, never from traces. The conventions are the diagnosis document's: integer nanoseconds in fields named `_ns`, shares
from 0 to 1, None for what could not be measured. A delta is new less base: positive means more time. Same documents and options give the
same bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from diagnose.document.device import Spread, Why
from diagnose.document.diagnosis import Tool
from diagnose.document.notebook import Writable
from diagnose.model.environment import EnvironmentKind
from diagnose.model.vocabulary import CommKind, Level, Role, Topic, Wall

SCHEMA = "comparison/2"
Result = Literal["regression", "improvement", "no_change", "cannot_tell", "refused"]
# runs: Student's t over the medians of runs; two captures: one run against one, the noise between runs assumed
Basis = Literal["single step", "identical", "none", "runs", "two captures"]
NoiseSource = Literal["measured", "partly assumed", "assumed", "given"]
MismatchState = Literal["refused", "normalised", "noted"]
KernelChangeKind = Literal["new", "gone", "renamed", "slower", "faster", "more", "fewer", "moved"]
Window = Literal["step", "iteration", "capture"]  # what times are of: an iteration where nothing trains on either side
OnUnclear = Literal["pass", "fail", "warn"]
CategoryState = Literal["moved", "small", "within noise", "same"]
FindingState = Literal["new", "gone", "worse", "better", "same", "not_assessed"]


class RunRead(Struct, frozen=True, kw_only=True):
    """One run of a side.

    Its value of the metric (the median of its `n` values, in the effect's unit), and when and of which commit it ran, where it was stored
    with that.
    """

    label: str
    value: float
    n: int
    date: str = ""  # UTC, ISO 8601; empty: not told
    commit: str | None = None


class Side(Struct, frozen=True, kw_only=True):
    """One of the two sides, of one run or several.

    `label` is a file's bare name, a baseline's, or says how many runs; `rank` and `device` are those that are compared.

    What is said of one document (steps, walls, kernels, findings, environment) is of the run whose value is the middle one of its side.
    """

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
    runs: tuple[RunRead, ...] = ()  # oldest first where they are dated, else as given; empty in a document of an older version


class Mismatch(Struct, frozen=True, kw_only=True):
    """Something in which the two runs are not the same work.

    `aspect`: model, layers, batch, sequence, tokens, layout, precision, world, ranks, device, capture, kernels.

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

    Where neither capture was cut into steps, the amounts are of kernel work instead (`unit`), and all figures of the new run (effect,
    delta, walls, kernels, overlap) are brought to the base's amount, in plain ns.
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
    """One normalised setting of the job file that differs; None: that side does not give it.

    `key` as the file shows it (the new one, else the base's).
    """

    name: str
    key: str
    base: str | None
    new: str | None
    line: int | None = None  # of the new job file


class Effect(Struct, frozen=True, kw_only=True):
    """How the metric moved.

    The difference of the sides' levels (the mean of their runs' medians), its interval, and Student's t over the runs.

    `worse`: by how much, relative to base, in the direction that is bad for this metric (negative: better). `smallest`: the smallest
    relative change that runs like these find with a probability
    of 80 %. `between` is the standard deviation of a run around the level of its side, `within` that of a step around the median of its
    run, both relative to the level; `source` says whether
    `between` was measured (by these runs), partly assumed, assumed, or given. Values are in `unit`; of a normalised comparison, per token.
    """

    metric: str
    unit: str
    base: float
    new: float
    delta: float
    relative: float | None  # None where base is nought
    worse: float | None
    low: float | None  # the interval of delta at `level`
    high: float | None
    p_value: float | None
    n_base: int
    n_new: int
    smallest: float | None
    basis: Basis
    result: Result
    level: float = 0.95  # share of such intervals that hold the true difference, if `between` is right
    runs_base: int = 1
    runs_new: int = 1
    between: float | None = None
    source: NoiseSource | None = None
    within: float | None = None  # None: the runs have a single value each
    tolerance: float | None = None  # the relative change that counts as none: what was asked about, or more where such noise asks for more
    doubt: float | None = None  # relative difference that equal runs stay within if they differ by more than is assumed; None: not assumed
    more_base: int | None = None  # runs more of each side that would show that change; None: none are wanted, or no number would do
    more_new: int | None = None


class Part(Struct, frozen=True, kw_only=True):
    """The part of a category that has one cause (of compute having been absent)."""

    why: Why
    base_ns: int
    new_ns: int
    delta_ns: int


class Category(Struct, frozen=True, kw_only=True):
    """One exclusive category of the step: `compute:BUCKET`, launch_starved, host_sync, dependency_stalled, idle, or exposed transport,
    packing or copy (no compute ran).

    `delta_ns` over all categories is the delta of the median step, to the nanosecond. `low`, `high`: 95 % interval of `delta_ns`. `state`:
    moved (the interval leaves out nought, and it is half a per cent of the step or more), small (less), within noise (the interval holds
    nought), same; `moved` says the first again.
    """

    category: str
    base_ns: int
    new_ns: int
    delta_ns: int
    moved: bool
    state: CategoryState | None = None  # None in a document of an older version
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
    """One kernel that changed, per step (median). `was`: its name in base, where renamed.

    A stream is named as in the new run, `was_stream` as in base.
    """

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
    role: Role | None = None  # None: a document of an older version


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
    base_count: int | None = None  # exchanges per step; None in a document of an older version
    new_count: int | None = None


class WallChange(Struct, frozen=True, kw_only=True):
    """The bound of one wall in both runs."""

    wall: Wall
    base_ns: int | None
    new_ns: int | None
    delta_ns: int | None


class FindingChange(Struct, frozen=True, kw_only=True):
    """One finding in both runs.

    `worse`: more severe, or a bound that grew beyond noise; `not_assessed`: base has it, and the new run could not be asked.

    `key` and `line` are of the setting that the first applicable fix of the new run's finding changes: as the new job file shows it, and on
    which of its lines.
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
    """The gate that was asked for. `met` None: it can't be judged; `on_unclear` says what follows then (None: exit code 3).

    `limit`: the largest regression allowed, relative.
    """

    limit: float | None
    fail_on: Level | None
    met: bool | None
    sentence: str
    on_unclear: OnUnclear | None = None


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
    window: Window = "step"

    def __repr__(self) -> str:
        """The result in a line."""
        return f"<Comparison {self.base.label} -> {self.new.label}: {self.outcome.result}>"


def decode(data: bytes) -> Comparison:
    """A Comparison from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Comparison)
