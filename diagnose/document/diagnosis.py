"""The diagnosis document, schema `diagnosis/2`: the one machine-readable result.

Every other output is rendered from it, and comparing reads it, never the traces. Times are integer nanoseconds in fields
named `_ns`; shares run from 0 to 1; None means "could not be measured". Additive changes keep the schema's name.
Same input and rules give the same bytes: no clock, no random id, stable order.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from diagnose.document.device import (
    Blocking,
    BucketTime,
    Communication,
    DeviceBudget,
    DeviceKernels,
    DeviceSplit,
    HostCost,
    Memory,
    MetricSamples,
    MoeLayer,
    Occupancy,
    OnDevice,
    Phase,
    Steps,
    Timeline,
    Totals,
    Unclassified,
    VisionEncoder,
)
from diagnose.document.notebook import Writable
from diagnose.document.ranks import Ranks
from diagnose.model.environment import EnvironmentItem
from diagnose.model.vocabulary import CAPTURE, Certainty, FactValue, FixState, JobFormatName, Level, Status, Topic, Wall

SCHEMA = "diagnosis/2"
LEFT_OPEN = "The trace does not show whether this is done already."  # of a fix, where a job file would
WANTED = "Pass the job file (--config)"  # how the sentence begins that names the settings which decide a fix
ASSUMED = "Framework defaults assumed: "  # how the sentence on defaults begins among what a fix leaves open
# `NotAssessed.how` of a rule that lacks nothing but other ranks; reports tell such rules together.
SEVERAL_RANKS = "Capture the same steps on several ranks of the job and give all traces in one run."


class Tool(Struct, frozen=True, kw_only=True):
    """The program that wrote the document; `rules_sha256` covers every rule file in use."""

    name: str
    version: str
    rules_sha256: str


class Cause(Struct, frozen=True, kw_only=True):
    """The one finding that explains most of the target wall's bound, and how the verdict says so: as its heading and in a sentence."""

    finding: str
    sentence: str
    headline: str | None = None  # in a word or two; None where the rule has none, and in documents of older versions


class Verdict(Struct, frozen=True, kw_only=True):
    """The headline: where the step goes, and what to attack first. Without enough evidence no wall is named.

    `dominant_wall` has the largest share of the step (compute with the time that it ran, each other wall with its bound); `target_wall` the
    largest bound of the other walls if it reaches 10 % of the step, otherwise it is compute. `tie`: the runner-up's bound is too near to
    the
    target's to tell which is larger. `hidden`: too much of the kernel time is of an unknown kind for anything to be called absent.
    `certainty_findings` are those on the capture that tell what to do about a reason for less certainty.
    """

    dominant_wall: Wall | None
    target_wall: Wall | None
    cause: Cause | None = None
    runner_up: Wall | None
    tie: bool = False
    certainty: Certainty
    sentence: str
    perturbed: bool
    hidden: bool = False
    certainty_reasons: tuple[str, ...] = ()
    certainty_findings: tuple[str, ...] = ()
    rank: int | None = None  # the device that walls, facts and findings speak of
    device: int | None = None


class WallBound(Struct, frozen=True, kw_only=True):
    """What could be won at most, per step. `share` is of the step; `parts` add up to the bound.

    `typical_ns` is the same of the typical step alone. `lower_ns` is the lower end where the bound is a range; None where it is none.
    """

    wall: Wall
    bound_ns: int | None
    share: float | None
    parts: dict[str, int | None]
    status: Status
    beside: dict[str, int | None] = {}  # shown beside, not part of the bound (packing)
    typical_ns: int | None = None
    lower_ns: int | None = None


class JobSetting(Struct, frozen=True, kw_only=True):
    """One normalised setting that was read, with the key it came from."""

    name: str
    value: FactValue | tuple[str, ...]
    key: str
    line: int | None = None  # of the job file, from 1; None where it stands on no line of it (`--set`)


class JobSize(Struct, frozen=True, kw_only=True):
    """A size that follows from the job file. Null where something that it needs is not known; `from` says how, or what is missing."""

    name: str
    value: int | float | str | None
    unit: str
    from_: str = msgspec.field(name="from")


class JobProblem(Struct, frozen=True, kw_only=True):
    """What does not fit together in the job file; such a job would not start, or not run as written."""

    id: str
    text: str


class ScriptDefault(Struct, frozen=True, kw_only=True):
    """A variable of a script that was read at the script's own default; an environment that sets it goes before that."""

    variable: str
    value: str
    line: int
    file: str = ""  # beside the job file, where it stands in another


class JobRead(Struct, frozen=True, kw_only=True):
    """What the job file says. `unknown` lists keys that the program does not know (kept, never an error)."""

    format: JobFormatName
    settings: tuple[JobSetting, ...]
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    script_defaults: tuple[ScriptDefault, ...] = ()
    derived: tuple[JobSize, ...] = ()
    problems: tuple[JobProblem, ...] = ()
    file: str | None = None  # bare name of the job file


class DeviceInfo(OnDevice, frozen=True, kw_only=True):
    """One GPU as a rank saw it."""

    name: str | None
    sm_count: int | None
    compute_capability: str | None
    memory_bytes: int | None


class RankInfo(Struct, frozen=True, kw_only=True):
    """One process of the job.

    `source` says where the rank came from: "name" is the file's or its folder's, "assigned" means given in order.
    """

    rank: int
    world_size: int | None
    source: str
    file: str
    host: str | None = None  # only on request


class TableCount(Struct, frozen=True, kw_only=True):
    """Rows of one foreign table: read = kept + refused."""

    table: str
    read: int
    kept: int
    refused: int


class Capture(Struct, frozen=True, kw_only=True):
    """What was captured and how well."""

    format: str
    profiler: str
    profiler_version: str | None
    schema_version: str | None
    devices: tuple[DeviceInfo, ...]
    ranks: tuple[RankInfo, ...]
    diagnostics: tuple[str, ...]
    cuda_graphs: Literal["none", "nodes", "opaque"]
    correlation_rate: float | None  # share of device operations that joined their launch
    resolved_wait_rate: float | None  # share of stream waits whose event record was found
    metrics: tuple[str, ...]  # names of the hardware metrics that were sampled
    slowdown: float | None
    tables: tuple[TableCount, ...] = ()
    notes: tuple[str, ...] = ()
    samples: tuple[MetricSamples, ...] = ()  # what those metrics show in the steps
    phases: tuple[Phase, ...] = ()  # start-up, as the device saw it that the verdict speaks of


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """One kind of data-quality event, with its count and what it means for the result. `files`: of several inputs, who lost data."""

    code: str
    severity: str
    origin: str
    table: str
    count: int
    meaning: str
    detail: str = ""
    files: tuple[str, ...] = ()


class Fact(Struct, frozen=True, kw_only=True):
    """One number that rules may use; value None means not measured."""

    value: FactValue
    unit: str
    status: Status


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that a finding rests on."""

    fact: str
    value: FactValue
    unit: str


# stretches of one place that are kept: more than anyone looks at, and as many as a step has exchanges of a kind in a few layers
MOST_SPANS = 64


class Where(Struct, frozen=True, kw_only=True):
    """Where a finding shows: ranks, steps, the costliest kernels or calls, and when in the step of `timeline`.

    The longest stretches, in order.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    top: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()  # start and duration, ns from that step's start


class Change(Struct, frozen=True, kw_only=True):
    """One setting to change, in one framework's own key.

    `op` says what is done: `add` and `remove` change members of a list, `unset` takes the setting out. `choose`: `to` is words, not a
    value, and a person has to choose. `how`: how a computed value follows from the job.
    """

    framework: str
    key: str
    from_: str | None = msgspec.field(name="from")
    to: str
    op: Literal["set", "add", "remove", "unset"] = "set"
    choose: bool = False
    how: str = ""


class Expected(Struct, frozen=True, kw_only=True):
    """A published effect, with its source."""

    text: str
    source: str


NOT_WAITED_FOR = "what it would shorten is not waited for, or other work is waited for in its place."
WINS_NOTHING = f"Replayed, it wins nothing: {NOT_WAITED_FOR}"  # the reason of a step of the plan that has no forecast for that


class Displaced(Struct, frozen=True, kw_only=True):
    """Of the time that a change frees per step (`freed_ns`) the part that becomes another exclusive category: time is not won by that."""

    category: str
    ns: int
    freed_ns: int


class StepForecast(Struct, frozen=True, kw_only=True):
    """The mean step now and after a change (a replay; `forecast/1` tells it in full): in the best case, likely, in the worst."""

    now_ns: int
    low_ns: int
    likely_ns: int
    high_ns: int
    basis: Literal["measured", "inferred", "assumed"]  # the weakest of what it rests on
    with_: tuple[str, ...] = msgspec.field(name="with", default=())  # the fixes that are on, this one last
    doubt: str = ""  # why it is of low certainty: it goes beyond what was tried
    displaced: Displaced | None = None  # of a step of the plan that wins far less than its bound: what takes most of what it frees


class Fix(Struct, frozen=True, kw_only=True):
    """A remedy for a finding, read against the job file."""

    id: str
    title: str
    state: FixState
    blocked_by: tuple[str, ...]
    changes: tuple[Change, ...]
    expected: tuple[Expected, ...]
    cost: str
    risk: str
    verify: str
    refs: tuple[str, ...]
    unknown: tuple[str, ...] = ()  # what would have to be known to decide
    disputed: str = ""  # what sources disagree about
    evidence: str = ""  # measured, candidate or required
    phase: str = ""  # fit, scale, profile or retune
    step: int = 1  # place inside the phase: 1 is tried first
    forecast: StepForecast | None = None  # with this fix alone; None: not replayed, or its effect can't be told
    numerics: bool = False  # it decides what is computed (precision, routing, data), which is the user's to choose
    reach_ns: int | None = None  # the most that it can win, where it is about a part of what its finding tells


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that holds the run back, or that a reader must know."""

    id: str
    name: str
    wall: Topic
    severity: Level
    status: Status
    summary: str
    evidence: tuple[Evidence, ...]
    bound_ns: int | None
    speedup_ceiling: float | None  # step / (step − bound)
    where: Where
    fixes: tuple[Fix, ...]
    wrong_when: str
    why: str = ""
    check: str = ""
    refs: tuple[str, ...] = ()


class Identity(Struct, frozen=True, kw_only=True):
    """Which run this is.

    What neither the trace nor the job file says is null; `layout` holds ranks by their short names (TP, PP, EP, CP, DP).
    """

    model: str | None
    layers: int | None
    experts: int | None
    gpus: int | None  # of the whole job
    gpu: str | None
    layout: dict[str, int]
    precision: str | None  # of the matrix products
    precision_from: Literal["trace", "job file", ""]
    rank: int | None  # the one that the verdict speaks of
    ranks_captured: int
    file: str  # bare name of its trace
    job_file: str | None


class Efficiency(Struct, frozen=True, kw_only=True):
    """How fast the run is, as Megatron counts it.

    What can't be told is null, and `lacking` says why; `how` says in one line what was divided by what.

    `mfu` is the share of the dense peak of the precision that ran.
    """

    flop_per_step: float | None
    step_ns: int | None  # mean
    tflops_per_gpu: float | None
    peak_tflops: float | None
    mfu: float | None
    tokens_per_second_per_gpu: float | None
    how: str
    lacking: str


class PlanSetting(Struct, frozen=True, kw_only=True):
    """One setting of a plan's step, as it is written where it belongs: a YAML key, a flag, an `export`.

    `words` where a person has to choose.

    `stays`: the job has it already.
    """

    framework: str
    key: str
    from_: str | None = msgspec.field(name="from")
    text: str
    language: Literal["yaml", "sh", "words"]
    stays: bool = False


class PlanStep(Struct, frozen=True, kw_only=True):
    """One thing to change, or, without `fix`, to look at. Steps stand in order.

    `bound_ns` is the finding's, which alternatives share: `instead_of` names the fix whose time this one would win too, and
    `exclusive_with`
    the fixes of the plan that set the same setting to something else. `needs`: what it still needs, and what is not known about it.
    """

    fix: str | None
    finding: str
    title: str
    state: FixState
    bound_ns: int | None
    speedup_ceiling: float | None
    changes: tuple[PlanSetting, ...]
    needs: tuple[str, ...]
    published: tuple[Expected, ...]
    cost: str
    instead_of: str | None = None
    exclusive_with: tuple[str, ...] = ()
    forecast: StepForecast | None = None  # after it and the steps before it; of what is had instead: in its place
    no_forecast: str = ""  # why there is none


class NotAssessed(Struct, frozen=True, kw_only=True):
    """A rule that lacked a fact, and how to get it; without a name in `missing`, the capture holds too little for any."""

    id: str
    missing: tuple[str, ...]
    how: str


class Diagnosis(Writable, Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema: str
    tool: Tool
    verdict: Verdict
    walls: tuple[WallBound, ...]
    job: JobRead | None
    capture: Capture
    ledger: tuple[LedgerEntry, ...]
    steps: Steps
    totals: tuple[Totals, ...]
    budget: tuple[DeviceBudget, ...]
    buckets: tuple[BucketTime, ...]
    unclassified: tuple[Unclassified, ...]
    communication: tuple[Communication, ...]
    blocking: tuple[Blocking, ...]
    host: tuple[HostCost, ...]
    memory: Memory | None
    occupancy: Occupancy | None
    identity: Identity | None = None
    efficiency: Efficiency | None = None
    plan: tuple[PlanStep, ...] = ()
    forecast: StepForecast | None = None  # the whole plan
    forecast_scope: str = ""  # what the forecasts were replayed on, where that is not all kept steps of the one captured rank
    no_forecast: str = ""  # why none of the fixes has a forecast
    vision: VisionEncoder | None = None  # None where no vision encoder ran
    ranks: Ranks | None = None
    facts: dict[str, Fact]
    findings: tuple[Finding, ...]
    not_assessed: tuple[NotAssessed, ...]
    timeline: Timeline | None = None
    moe_layer: MoeLayer | None = None  # of the device that the verdict speaks of; None where no experts ran
    split: tuple[DeviceSplit, ...] = ()
    kernels: tuple[
        DeviceKernels, ...
    ] = ()  # of the device that the verdict speaks of, and where many are captured of the lowest rank; of up to eight devices: of all
    environment: tuple[EnvironmentItem, ...] = ()
    passed: tuple[str, ...] = ()  # ids of the rules that were asked and found nothing

    def __repr__(self) -> str:
        """The result in a line: the whole document is thousands."""
        wall, step = self.verdict.target_wall, self.steps.duration_ns.mean or self.steps.duration_ns.median
        length = "" if step is None else f", {step / 1e6:,.1f} ms per {'capture' if self.steps.anchor == CAPTURE else 'step'}"
        files = ", ".join(dict.fromkeys(one.file for one in self.capture.ranks[:1]))
        return f"<Diagnosis {files}: {wall or 'no verdict'} ({self.verdict.certainty} certainty){length}, {len(self.findings)} findings>"


def decode(data: bytes) -> Diagnosis:
    """A Diagnosis from JSON bytes. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(data, type=Diagnosis)
