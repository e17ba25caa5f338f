"""Invented sections `ranks`: a rich one of eight captured ranks, and one of any size."""

from __future__ import annotations

from typing import get_args

from diagnose.document import ranks as k
from diagnose.document.device import Spread
from diagnose.model.vocabulary import CommKind

SCRIPT = "</script><script>alert(1)</script>"
MARKUP = "a|b`c`|d [link](https://example.invalid) **bold** @octocat #1"
TEMPLATE = "%{customdata} <b>bold</b><a href='https://example.invalid'>x</a>"
TERMINAL = "\x1b[31mred\x1b[0m\x1b]0;title\x07"
ORDER = "line one\nline two\r\n::warning::x"


def ms(value: float) -> int:
    return round(value * 1_000_000)


_STAGE_BUCKETS = (
    {"attention": 31.4, "expert_gemm": 48.2, "dispatch": 22.6, "router": 6.8, "norm": 4.1, "embedding": 0.4},
    {"attention": 30.9, "expert_gemm": 47.7, "dispatch": 22.1, "router": 6.7, "norm": 4.0, "loss": 5.2},
)


def surveyed(
    rank: int, *, stage: int, scale: float = 1.0, slow: float = 0.0, host: str | None = None, steps: int = 3, file: str | None = None
) -> k.RankSurvey:
    """One rank whose work takes `scale` as long and whose expert work takes `slow` ms more; it waits so much less."""
    wait = max(0.4, 21.3 - slow)
    windows = [215.05 + 0.71 * index for index in range(steps)]
    buckets = {name: ms(value * scale) for name, value in _STAGE_BUCKETS[stage % 2].items()}
    buckets["expert_gemm"] += ms(slow)
    return k.RankSurvey(
        rank=rank,
        device=rank % 8,
        file=f"traces/rank{rank}.sqlite" if file is None else file,
        host=f"host {rank // 4}" if host is None else host,
        group=f"stage {stage}",
        stage=stage,
        step=Spread(median=ms(windows[steps // 2]), min=ms(windows[0]), max=ms(windows[-1]), n=steps),
        compute_busy_ns=ms(128.412 * scale + slow),
        transport_busy_ns=ms(84.902 - slow),
        packing_busy_ns=ms(16.435),
        copy_busy_ns=ms(3.218),
        device_idle_ns=ms(30.25),
        launch_starved_ns=ms(24.807),
        blocking_transport_ns=ms(45.273 - slow),
        buckets=buckets,
        collectives={"expert alltoall": 192, "data reduce_scatter": 24, "pipeline sendrecv": 16},
        steps=tuple(
            k.StepTime(index=3 + index, window_ns=ms(window), own_ns=ms(window - wait - 0.05 * index))
            for index, window in enumerate(windows)
        ),
        wait_ns=ms(wait),
        transfer_ns=ms(61.07),
        start_skew_ns=ms(0.03 * (rank % 4) - 0.045),
    )


def _survey() -> tuple[k.RankSurvey, ...]:
    plain = [
        surveyed(0, stage=0, slow=20.4),
        surveyed(1, stage=0, file=f"/home/somebody/{SCRIPT.replace('/', '')}.sqlite"),
        surveyed(2, stage=0, scale=1.004, file=MARKUP),
        surveyed(3, stage=0, scale=0.996, file=TEMPLATE),
        surveyed(4, stage=1),
        surveyed(5, stage=1, scale=1.09, slow=4.1),
        surveyed(6, stage=1, steps=2),
        surveyed(7, stage=1, host="unknown"),
    ]
    alone = plain[-1]
    unmatched = {name: getattr(alone, name) for name in k.RankSurvey.__struct_fields__} | {
        "wait_ns": None,
        "transfer_ns": None,
        "start_skew_ns": None,
        "steps": tuple(k.StepTime(index=one.index, window_ns=one.window_ns) for one in alone.steps),
    }
    return (*plain[:-1], k.RankSurvey(**unmatched))


def _exchanges() -> tuple[k.MatchedExchange, ...]:
    first = (0, 1, 2, 3)
    return (
        k.MatchedExchange(
            kind="expert",
            backend="deepep",
            operation="alltoall",
            by="communicator",
            ranks=first,
            size=4,
            matched=576,
            unmatched=0,
            transfer_ns=ms(48.11),
            wait_ns=ms(15.302),
            waits=tuple(
                k.RankWait(rank=rank, wait_ns=ms(value), last_share=share)
                for rank, value, share in ((0, 0.3, 0.963), (1, 20.1, 0.02), (2, 19.8, 0.01), (3, 21.008, 0.007))
            ),
            algorithm_gb_s=171.2,
            bus_gb_s=149.8,
            link_gb_s=450.0,
        ),
        k.MatchedExchange(
            kind="data",
            backend="nccl",
            operation="reduce_scatter",
            by="job",
            ranks=(0, 4),
            size=8,
            matched=70,
            unmatched=2,
            transfer_ns=ms(9.911),
            wait_ns=ms(1.2),
            waits=(k.RankWait(rank=0, wait_ns=ms(0.7), last_share=0.5), k.RankWait(rank=4, wait_ns=ms(1.7), last_share=0.5)),
            note="6 of the 8 members were not captured, so no bandwidth; 2 instances lie outside of one capture",
        ),
        k.MatchedExchange(
            kind="pipeline",
            backend="nccl",
            operation="sendrecv",
            by="common ends",
            ranks=(1, 5),
            size=None,
            matched=48,
            unmatched=48,
            transfer_ns=ms(2.4),
            wait_ns=ms(7.7),
            waits=(),
            note=f"half of the instances have no counterpart {TERMINAL}",
        ),
    )


def _late() -> tuple[k.Late, ...]:
    return (
        k.Late(
            kinds=("expert", "data"),
            ranks=(0, 1, 2, 3),
            rank=0,
            pattern="always",
            last_share=0.963,
            wait_ns=ms(20.302),
            cause="expert_work",
            bucket="expert_gemm",
            longer_ns=ms(20.4),
            evidence=f"Rank 0 comes last in 555 of 576 exchanges; its expert GEMMs take 20.400 ms per step more than the others' ({SCRIPT}).",
            status="measured",
        ),
        k.Late(
            kinds=("expert",),
            ranks=(4, 5, 6, 7),
            rank=5,
            pattern="mostly",
            last_share=0.71,
            wait_ns=ms(8.118),
            cause="slow_gpu",
            bucket="attention",
            longer_ns=ms(2.781),
            evidence="Every compute kernel of like shape takes 1.09 times as long on rank 5 as on the others of its group: look at its clocks.",
            status="inferred",
        ),
        k.Late(
            kinds=("pipeline",),
            ranks=(1, 5),
            rank=None,
            pattern="rotating",
            last_share=0.52,
            wait_ns=ms(1.377),
            cause="unknown",
            bucket=None,
            longer_ns=None,
            evidence=f"Ranks 1 and 5 come last in turn. {MARKUP}",
            status="hypothesis",
        ),
    )


def rich_ranks() -> k.Ranks:
    """Eight of sixteen ranks on two hosts in two stages: one always late, one mostly, clocks that do not align, and every kind of
    problem.
    """
    return k.Ranks(
        world_size=16,
        captured=8,
        slowest=0,
        chosen="its own time without waiting is the longest of all captured ranks",
        problems=(
            k.RankProblem(kind="missing", ranks=tuple(range(8, 16)), count=8, text="Ranks 8 to 15 of 16 were not given."),
            k.RankProblem(kind="duplicate", ranks=(3,), count=1, text=f"Rank 3 was given twice; {MARKUP} is left out."),
            k.RankProblem(kind="steps", ranks=(6,), count=1, text="Rank 6 holds 2 steps, the others 3; the first two are compared."),
            k.RankProblem(kind="failed", ranks=(9,), count=1, text=f"rank9.json can't be read: {ORDER} {SCRIPT}"),
        ),
        groups=(
            k.LikeGroup(id="stage 0", ranks=(0, 1, 2, 3), stage=0, by="job", holds="pipeline stage 0: the embedding and layers 0 to 23"),
            k.LikeGroup(id="stage 1", ranks=(4, 5, 6, 7), stage=1, by="fingerprint", holds=f"pipeline stage 1: the loss {TEMPLATE}"),
        ),
        survey=_survey(),
        clocks=(
            _clock(0, 4, "host 0", "host 1", offset=1_203.417, residual=(-0.011, 0.014)),
            _clock(0, 7, "host 0", "unknown", offset=-48_771.9, residual=(-3.91, 4.402)),
        ),
        exchanges=_exchanges(),
        late=_late(),
        skew=(
            k.StartSkew(rank=2, begins_ns=ms(-14.2), ends_ns=ms(0.03), text="Its windows begin earlier and end together with the others'."),
        ),
        experts=(
            k.ExpertImbalance(
                ranks=(0, 1, 2, 3),
                places=96,
                lost_ns=ms(15.61),
                spread=1.318,
                busiest=0,
                busiest_share=0.94,
                layers=tuple(
                    k.Layer(
                        place=place,
                        work_ns=(ms(0.9 - place / 200), ms(0.5), ms(0.52), ms(0.49)),
                        elements=(9_437_184, 4_194_304, 4_718_592, 4_194_304) if place % 2 else None,
                    )
                    for place in (17, 3, 41, 66)
                ),
                elements_spread=1.67,
            ),
            k.ExpertImbalance(
                ranks=(4, 5, 6, 7), places=96, lost_ns=ms(2.004), spread=1.04, busiest=5, busiest_share=0.6, layers=(), elements_spread=None
            ),
        ),
        pipeline=k.Pipeline(
            stages=(
                _stage(0, (0, 1, 2, 3), 133.6, (21.7, 9.1, 3.2, 9.4)),
                _stage(1, (4, 5, 6, 7), 131.2, (24.9, 11.8, 2.6, 10.5)),
            ),
            bubble_share=0.1084,
            expected_share=0.1111,
            imbalance_ns=ms(1.2),
            virtual_saves_ns=ms(10.72),
            note="Even stages would leave 11.1 % of the step idle.",
        ),
        tail=tuple(k.DataTail(rank=rank, tail_ns=ms(4.1 + 0.3 * rank)) for rank in range(8)),
        notes=("Sizes of messages are not recorded for pipeline exchanges, so no bandwidth is told.", f"Hosts: {MARKUP}"),
    )


def _clock(reference: int, rank: int, reference_host: str, host: str, *, offset: float, residual: tuple[float, float]) -> k.ClockPair:
    limit = 0.5
    return k.ClockPair(
        reference=reference,
        rank=rank,
        reference_host=reference_host,
        host=host,
        by_start_times=host != "unknown",
        offset_ns=ms(offset),
        residual_p5_ns=ms(residual[0]),
        residual_p95_ns=ms(residual[1]),
        n=574,
        limit_ns=ms(limit),
        aligned=residual[1] < limit,
    )


def _stage(stage: int, ranks: tuple[int, ...], compute: float, bubble: tuple[float, float, float, float]) -> k.Stage:
    whole, warm, steady, cool = bubble
    return k.Stage(
        stage=stage,
        ranks=ranks,
        compute_busy_ns=ms(compute),
        bubble_ns=ms(whole),
        warm_up_ns=ms(warm),
        steady_ns=ms(steady),
        cool_down_ns=ms(cool),
    )


def many_ranks(count: int, *, stages: int = 8, steps: int = 10) -> k.Ranks:
    """`count` ranks in `stages` pipeline stages, expert groups of eight with a late rank each, and ten steps: as large as a document
    gets.
    """
    each = count // stages
    survey = tuple(
        surveyed(rank, stage=rank // each, scale=1 + rank * 7919 % 101 / 5_000, slow=12.5 if rank % 64 == 5 else 0.0, steps=steps)
        for rank in range(count)
    )
    expert = [tuple(range(first, first + 8)) for first in range(0, count, 8)]
    kinds: tuple[CommKind, ...] = get_args(CommKind)
    return k.Ranks(
        world_size=count * 2,
        captured=count,
        slowest=5,
        chosen="its own time is the longest",
        problems=(
            k.RankProblem(kind="missing", ranks=tuple(range(count, count + 64)), count=count, text="Half of the ranks were not given."),
        ),
        groups=tuple(
            k.LikeGroup(id=f"stage {stage}", ranks=tuple(range(stage * each, (stage + 1) * each)), stage=stage, by="job", holds="layers")
            for stage in range(stages)
        ),
        survey=survey,
        clocks=tuple(_clock(0, rank, "host 0", f"host {rank // 4}", offset=rank, residual=(-0.01, 0.01)) for rank in range(4, count, 4)),
        exchanges=tuple(
            k.MatchedExchange(
                kind=kind,
                backend="nccl",
                operation="alltoall",
                by="communicator",
                ranks=ranks,
                size=8,
                matched=5_760,
                unmatched=0,
                transfer_ns=ms(48.11),
                wait_ns=ms(15.302),
                waits=tuple(k.RankWait(rank=rank, wait_ns=ms(2.0), last_share=0.125) for rank in ranks),
            )
            for kind in kinds[:4]
            for ranks in expert
        ),
        late=tuple(
            k.Late(
                kinds=("expert",),
                ranks=ranks,
                rank=ranks[5],
                pattern="always",
                last_share=0.99,
                wait_ns=ms(12.1),
                cause="expert_work",
                bucket="expert_gemm",
                longer_ns=ms(12.5),
                evidence="Its expert GEMMs take longer. " * 5,
                status="measured",
            )
            for ranks in expert
            if ranks[5] % 64 == 5
        ),
        skew=(),
        experts=tuple(
            k.ExpertImbalance(
                ranks=ranks,
                places=96,
                lost_ns=ms(2.0 + ranks[0] / 1_000),
                spread=1.04,
                busiest=ranks[5],
                busiest_share=0.6,
                layers=tuple(k.Layer(place=place, work_ns=(ms(0.5),) * 7 + (ms(0.7),), elements=(4_194_304,) * 8) for place in range(32)),
            )
            for ranks in expert
        ),
        pipeline=k.Pipeline(
            stages=tuple(
                _stage(stage, tuple(range(stage * each, (stage + 1) * each)), 130, (21.7, 9.1, 3.2, 9.4)) for stage in range(stages)
            ),
            bubble_share=0.1,
            expected_share=None,
            imbalance_ns=ms(1.2),
            virtual_saves_ns=None,
        ),
        tail=tuple(k.DataTail(rank=rank, tail_ns=ms(4.1)) for rank in range(count)),
    )
