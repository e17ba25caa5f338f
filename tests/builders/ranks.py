"""Records of ranks for tests: two expert-parallel groups of four ranks on two hosts, with nothing wrong, and what a test changes of it."""

from collections.abc import Sequence

from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import (
    ClockPair,
    ExpertImbalance,
    Late,
    LateCause,
    MatchedExchange,
    Pattern,
    Ranks,
    RankSurvey,
    RankWait,
    StepTime,
)
from diagnose.model.vocabulary import CommKind, Status

STEP = 100_000_000


def survey(
    rank: int,
    *,
    host: str = "host 0",
    group: str = "all",
    steps: int = 4,
    wait: int | None = 4_000_000,
    skew: int | None = 0,
    held: int | None = None,
) -> RankSurvey:
    """One rank with `steps` steps of 100 ms; 10 ms of transfer in each. `held`: what the waiting holds compute up, all of it if not
    given.
    """
    return RankSurvey(
        rank=rank,
        device=0,
        file=f"rank{rank}.sqlite",
        host=host,
        group=group,
        stage=None,
        step=Spread(median=STEP, min=STEP, max=STEP, n=steps),
        compute_busy_ns=80_000_000,
        transport_busy_ns=14_000_000,
        packing_busy_ns=0,
        copy_busy_ns=0,
        device_idle_ns=6_000_000,
        launch_starved_ns=1_000_000,
        blocking_transport_ns=10_000_000,
        buckets={},
        collectives={},
        steps=tuple(
            StepTime(index=index, window_ns=STEP, own_ns=None if wait is None else STEP - (wait if held is None else held))
            for index in range(steps)
        ),
        wait_ns=wait,
        transfer_ns=None if wait is None else 10_000_000,
        start_skew_ns=skew,
    )


def exchange(
    members: Sequence[int],
    *,
    kind: CommKind = "expert",
    transfer: int = 10_000_000,
    stalled: int | None = None,
    wait: int = 4_000_000,
    matched: int = 400,
    unmatched: int = 0,
    pace: float | None = None,
    size: int | None = 0,
) -> MatchedExchange:
    """Exchanges of one group, a hundred per step; every member waits the same, and all members are captured unless `size` says more
    (None: not known). Compute is `stalled` on the whole transfer if not given.
    """
    return MatchedExchange(
        kind=kind,
        backend="nccl",
        operation="alltoall",
        by="communicator",
        ranks=tuple(members),
        size=len(members) if size == 0 else size,
        matched=matched,
        unmatched=unmatched,
        transfer_ns=transfer,
        stalled_ns=transfer if stalled is None else stalled,
        wait_ns=wait,
        waits=tuple(RankWait(rank=rank, wait_ns=wait, last_share=1 / len(members)) for rank in members),
        algorithm_gb_s=pace,
    )


def late(
    rank: int | None,
    wait: int,
    *,
    cause: LateCause = "slow_gpu",
    pattern: Pattern = "always",
    share: float = 0.97,
    status: Status = "measured",
    longer: int = 9_000_000,
) -> Late:
    """A late rank, or a group without a single one."""
    return Late(
        kinds=("expert", "data"),
        ranks=(0, 1, 2, 3),
        rank=rank,
        pattern=pattern,
        last_share=share,
        wait_ns=wait,
        cause=cause,
        bucket="dense_gemm" if rank is not None else None,
        longer_ns=longer if rank is not None else None,
        evidence="",
        status=status,
    )


def clock(aligned: bool, residual: tuple[int, int] = (-3_000, 5_000)) -> ClockPair:
    """The clocks of the two hosts, held against each other."""
    return ClockPair(
        reference=0,
        rank=4,
        reference_host="host 0",
        host="host 1",
        by_start_times=True,
        offset_ns=40_000,
        residual_p5_ns=residual[0],
        residual_p95_ns=residual[1],
        n=400,
        limit_ns=100_000,
        aligned=aligned,
    )


def experts(members: Sequence[int], lost: int) -> ExpertImbalance:
    """An expert-parallel group whose last rank is the busiest in most places."""
    return ExpertImbalance(
        ranks=tuple(members), places=48, lost_ns=lost, spread=1.3, busiest=members[-1], busiest_share=0.75, layers=(), elements_spread=None
    )


def ranks(**changed: object) -> Ranks:
    """Eight even ranks of eight on two hosts, aligned and matched, with what a test changes."""
    given: dict[str, object] = {
        "world_size": 8,
        "captured": 8,
        "slowest": 0,
        "chosen": "",
        "problems": (),
        "groups": (),
        "survey": tuple(survey(rank, host=f"host {rank // 4}") for rank in range(8)),
        "clocks": (clock(aligned=True),),
        "exchanges": (exchange((0, 1, 2, 3)), exchange((4, 5, 6, 7))),
        "late": (),
        "skew": (),
        "experts": (),
        "pipeline": None,
        "tail": (),
        **changed,
    }
    return Ranks(**given)  # type: ignore[arg-type]


def ranks_of(found: Diagnosis) -> Ranks:
    """What a document says of several ranks."""
    assert found.ranks is not None
    return found.ranks
