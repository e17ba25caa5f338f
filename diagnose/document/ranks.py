"""The records of what differs between ranks: the section `ranks` of the diagnosis document.

The conventions are the document's (`diagnose.document.diagnosis`): integer nanoseconds in fields named `_ns`, per step (median) unless said
otherwise, shares from 0 to 1, None for what could not be measured. Everything speaks of the ranks that were captured and of no other.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from diagnose.document.device import OnDevice, Spread
from diagnose.model.vocabulary import CommKind, Status

UNKNOWN_HOST = "unknown"  # of a rank whose trace does not tell its host

Grouping = Literal["communicator", "process group", "job", "common ends"]
Pattern = Literal["always", "mostly", "rotating"]
LateCause = Literal["slow_gpu", "slow_host", "expert_work", "vision_work", "more_work", "slow_link", "unknown"]


class StepTime(Struct, frozen=True, kw_only=True):
    """One step of one device.

    `own_ns`: the step less its waiting for others, in matched exchanges (as far as that can have held compute up) and for other stages;
    None where nothing was matched.
    """

    index: int
    window_ns: int
    own_ns: int | None = None


class RankSurvey(OnDevice, frozen=True, kw_only=True):
    """What one device did, before any verdict. `group` names the like group it is compared in; `buckets` holds work by bucket.

    `collectives` counts transport operations by "kind operation" (for example "expert alltoall"). `wait_ns`: time waiting for others inside
    matched exchanges (what overlaps counts once); `transfer_ns`: time in the rest of them, likewise. `start_skew_ns`: how much later than
    the middle of its group its first step begins (negative: earlier), only where clocks allow.
    """

    file: str
    host: str  # "host 0", "host 1", … in order of rank; "unknown" where the trace does not tell
    group: str
    stage: int | None
    step: Spread
    compute_busy_ns: int
    transport_busy_ns: int
    packing_busy_ns: int
    copy_busy_ns: int
    device_idle_ns: int
    launch_starved_ns: int
    blocking_transport_ns: int
    buckets: dict[str, int]
    collectives: dict[str, int]
    steps: tuple[StepTime, ...]
    wait_ns: int | None = None
    transfer_ns: int | None = None
    start_skew_ns: int | None = None


class LikeGroup(Struct, frozen=True, kw_only=True):
    """Ranks that hold the same part of the model and may be compared.

    `by`: from the job's sizes, or from what the ranks do. `holds` says what, in words.
    """

    id: str
    ranks: tuple[int, ...]
    stage: int | None
    by: Literal["job", "fingerprint"]
    holds: str


class RankProblem(Struct, frozen=True, kw_only=True):
    """Ranks of another run, missing, given twice, or with other steps. `ranks` lists at most 64 of them, `count` says how many."""

    kind: Literal["runs", "missing", "duplicate", "steps", "failed"]
    ranks: tuple[int, ...]
    count: int
    text: str


class ClockPair(Struct, frozen=True, kw_only=True):
    """How the clocks of two hosts (or, where hosts are not known, of two ranks) compare, by the ends of exchanges that both took part in.

    `offset_ns` is what `rank`'s clock shows more than `reference`'s after alignment by start times, the median over `n` matched ends; the
    residuals are what is left around it. `aligned`: they are small enough (`limit_ns`) for statements about who came late by the clock.
    """

    reference: int  # a rank of the one host
    rank: int  # a rank of the other
    reference_host: str
    host: str
    by_start_times: bool  # both captures tell when they began
    offset_ns: int
    residual_p5_ns: int
    residual_p95_ns: int
    n: int
    limit_ns: int
    aligned: bool


class RankWait(Struct, frozen=True, kw_only=True):
    """One rank in matched exchanges of one kind: its waiting per step, and the share of instances in which it came last."""

    rank: int
    wait_ns: int
    last_share: float


class MatchedExchange(Struct, frozen=True, kw_only=True):
    """Exchanges of one kind in one group of ranks, matched instance by instance.

    `ranks`: the captured members; `size`: how many members there are, where known. An instance's transfer is the shortest participant's
    duration, the rest of each duration is wait; `transfer_ns` is their sum per step (of the member in the middle), `wait_ns` the mean over
    members. `stalled_ns`: of the transfer what compute was stalled on, likewise per step of the member in the middle. `matched`
    and `unmatched` count instances in the whole capture. Bandwidths are in GB/s, from the sizes of instances and the transfer time; None
    where sizes are not recorded or not all members were captured.
    """

    kind: CommKind
    backend: str
    operation: str
    by: Grouping
    ranks: tuple[int, ...]
    size: int | None
    matched: int
    unmatched: int
    transfer_ns: int
    wait_ns: int
    waits: tuple[RankWait, ...]
    stalled_ns: int | None = None
    algorithm_gb_s: float | None = None
    bus_gb_s: float | None = None
    link_gb_s: float | None = None  # NVLink's, one way, between ranks of one domain
    note: str = ""  # why instances are unmatched, or bandwidths absent

    @property
    def partial(self) -> bool:
        """Whether members were not captured: one of them may have come last, so that even the shortest duration holds waiting."""
        return self.size is not None and self.size > len(self.ranks)


class Late(Struct, frozen=True, kw_only=True):
    """Who keeps the others waiting in one group of ranks, and what it does meanwhile.

    `rank` comes last, in `last_share` of the instances with noticeable waiting, and costs `wait_ns` per step: for so long all others were
    there and only it was not (or it and those that are late with it). With nobody in particular `wait_ns` is the mean of all waits.
    `pattern` goes by the waiting: "always" if at least 80 % of it is behind `rank`, "mostly" from 50 % on, or where `rank` alone has steps
    in which its GPU is slow; with "rotating" no rank does so much, and `rank` is None. `alike` are late with it by the same cause, and what
    it costs is the cost of all. `bucket` takes longer there than on the others (by `longer_ns` per step), or is what those that take turns
    have uneven work in; `evidence` one sentence with the figures.

    `saves_ns`: what the step could win at most of what `rank` costs, because work that is evened out falls on it too, and another pipeline
    stage may take its place; None: as much as it costs. `launch_ratio`: how many times as long as the others' CPUs its own usually takes
    from one launch to the next; None where that is not known.
    """

    kinds: tuple[CommKind, ...]
    ranks: tuple[int, ...]
    rank: int | None
    pattern: Pattern
    last_share: float
    wait_ns: int
    cause: LateCause
    bucket: str | None
    longer_ns: int | None
    evidence: str
    status: Status
    alike: tuple[int, ...] = ()
    saves_ns: int | None = None
    launch_ratio: float | None = None


class StartSkew(Struct, frozen=True, kw_only=True):
    """A rank whose window began earlier or later than the others' although they end together: not a straggler."""

    rank: int
    begins_ns: int  # after (negative: before) the middle of its group
    ends_ns: int
    text: str


class Layer(Struct, frozen=True, kw_only=True):
    """One place of the expert-parallel exchange in a step (layer and micro-batch, in order).

    Work of the experts behind it on each rank, the mean over steps.
    """

    place: int
    work_ns: tuple[int, ...]  # in the order of ExpertImbalance.ranks
    elements: tuple[int, ...] | None = None  # what each rank received, where the trace tells


class ExpertImbalance(Struct, frozen=True, kw_only=True):
    """Expert work over one expert-parallel group.

    `lost_ns` per step: at each place the longest less the mean, added up: what perfect balance would win of the experts alone (permutation
    and exchange follow the tokens too).

    `busiest` had the most work in `busiest_share` of the places. `spread`: median over places of longest / mean. `layers`: those that lose
    most, at most 32.
    """

    ranks: tuple[int, ...]
    places: int  # per step
    lost_ns: int
    spread: float
    busiest: int
    busiest_share: float
    layers: tuple[Layer, ...]
    elements_spread: float | None = None  # the same for received elements
    transfer_ns: int | None = None  # of these exchanges, per step, as far as it grows with the longest work


class Stage(Struct, frozen=True, kw_only=True):
    """One pipeline stage: the mean over its captured ranks.

    The bubble is the waiting for other stages: before the first backward (warm-up), after the last forward (cool-down), between (steady).
    """

    stage: int
    ranks: tuple[int, ...]
    compute_busy_ns: int
    bubble_ns: int
    warm_up_ns: int
    steady_ns: int
    cool_down_ns: int


class Pipeline(Struct, frozen=True, kw_only=True):
    """The pipeline as captured.

    `expected_share`: (p − 1) / (v · m + p − 1) of the step for even stages; `even_saves_ns`: what these could win, `virtual_saves_ns`: what
    twice the virtual stages could, both at most.
    """

    stages: tuple[Stage, ...]
    bubble_share: float  # of the step, mean over stages
    expected_share: float | None
    imbalance_ns: int  # slowest stage's compute less the mean, at the speed of the others
    virtual_saves_ns: int | None
    note: str = ""
    even_saves_ns: int | None = None


class DataTail(Struct, frozen=True, kw_only=True):
    """How long compute waits for the data-parallel exchange at the end of a step."""

    rank: int
    tail_ns: int


class Ranks(Struct, frozen=True, kw_only=True):
    """What differs between the captured ranks. None in the document where only one rank was captured.

    `slowest`: the rank that the verdict speaks of, with why it was chosen in `chosen`.
    """

    world_size: int | None
    captured: int
    slowest: int
    chosen: str
    problems: tuple[RankProblem, ...]
    groups: tuple[LikeGroup, ...]
    survey: tuple[RankSurvey, ...]
    clocks: tuple[ClockPair, ...]
    exchanges: tuple[MatchedExchange, ...]
    late: tuple[Late, ...]
    skew: tuple[StartSkew, ...]
    experts: tuple[ExpertImbalance, ...]
    pipeline: Pipeline | None
    tail: tuple[DataTail, ...]
    notes: tuple[str, ...] = ()  # what can't be said of these ranks, and why

    @property
    def clocks_agree(self) -> bool | None:
        """Whether times of all ranks can be compared; one host has one clock. None where hosts are unknown and no pair was compared."""
        if self.clocks:
            return all(pair.aligned for pair in self.clocks)
        hosts = {one.host for one in self.survey}
        return True if len(hosts) == 1 and UNKNOWN_HOST not in hosts else None
