"""Two invented diagnoses that hold everything a renderer can meet, and almost nothing; and ranks, as many as a document gets."""

from functools import partial
from typing import get_args

from msgspec import structs

from diagnose.document.device import Spread
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.ranks import DataTail, Layer, LikeGroup, Ranks, RankSurvey, RankWait, StepTime
from diagnose.model.vocabulary import CommKind
from tests.builders.kept import kept

rich = partial(kept, Diagnosis)  # two devices, three steps, eight ranks, hostile texts in every field that a trace can fill
minimal = partial(kept, Diagnosis, "minimal")  # one device, the capture as its window, no job, null wherever null is allowed

LONG_KERNEL = rich().unclassified[0].name
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "kernel_\u202eevil\u202c_name",
    "a|b`c`|d [link](https://example.invalid) **bold** @octocat #1",
    "::error::the build is broken",
    "%{customdata} <b>bold</b><a href='https://example.invalid'>x</a>",
    '" onmouseover="alert(3)',
    "{{ 7*7 }}{% raw %}",
    "line one\nline two\r\n::warning::x",
)


def ms(value: float) -> int:
    """Milliseconds as ns."""
    return round(value * 1_000_000)


def rich_ranks() -> Ranks:
    """Eight of sixteen ranks on two hosts in two stages: one always late, one mostly, clocks that do not align, each kind of problem."""
    ranks = rich().ranks
    assert ranks is not None
    return ranks


def _rank(base: RankSurvey, rank: int, stage: int, steps: int) -> RankSurvey:
    """A rank like `base`, at a pace of its own; every 64th has 12.5 ms more of expert work and waits so much less."""
    scale, slow = 1 + rank * 7919 % 101 / 5_000, 12.5 if rank % 64 == 5 else 0.0
    windows = [215.05 + 0.71 * index for index in range(steps)]
    buckets = {name: round(ns * scale) for name, ns in base.buckets.items()}
    return structs.replace(
        base,
        rank=rank,
        device=rank % 8,
        file=f"traces/rank{rank}.sqlite",
        host=f"host {rank // 4}",
        group=f"stage {stage}",
        stage=stage,
        step=Spread(median=ms(windows[steps // 2]), min=ms(windows[0]), max=ms(windows[-1]), n=steps),
        compute_busy_ns=round(base.compute_busy_ns * scale) + ms(slow),
        transport_busy_ns=base.transport_busy_ns - ms(slow),
        blocking_transport_ns=base.blocking_transport_ns - ms(slow),
        buckets=buckets | {"expert_gemm": buckets["expert_gemm"] + ms(slow)},
        steps=tuple(
            StepTime(index=3 + index, window_ns=ms(window), own_ns=ms(window - 21.3 + slow - 0.05 * index))
            for index, window in enumerate(windows)
        ),
        wait_ns=ms(21.3 - slow),
        start_skew_ns=ms(0.03 * (rank % 4) - 0.045),
    )


def many_ranks(count: int, *, stages: int = 8, steps: int = 10) -> Ranks:
    """`count` ranks in `stages` pipeline stages, expert groups of eight with a late rank each, and ten steps.

    As large as a document gets.
    """
    few, each = rich_ranks(), count // stages
    assert few.pipeline is not None
    members = {stage: tuple(range(stage * each, (stage + 1) * each)) for stage in range(stages)}
    expert = [tuple(range(first, first + 8)) for first in range(0, count, 8)]
    return structs.replace(
        few,
        world_size=count * 2,
        captured=count,
        slowest=5,
        problems=(structs.replace(few.problems[0], ranks=tuple(range(count, count + 64)), count=count),),
        groups=tuple(
            LikeGroup(id=f"stage {stage}", ranks=ranks, stage=stage, by="job", holds="layers") for stage, ranks in members.items()
        ),
        survey=tuple(_rank(few.survey[(1, 4)[stage % 2]], rank, stage, steps) for stage, ranks in members.items() for rank in ranks),
        clocks=tuple(
            structs.replace(few.clocks[0], rank=rank, host=f"host {rank // 4}", offset_ns=ms(rank)) for rank in range(4, count, 4)
        ),
        exchanges=tuple(
            structs.replace(
                few.exchanges[0],
                kind=kind,
                ranks=ranks,
                size=8,
                waits=tuple(RankWait(rank=rank, wait_ns=ms(2.0), last_share=0.125) for rank in ranks),
            )
            for kind in get_args(CommKind)[:4]
            for ranks in expert
        ),
        late=tuple(
            structs.replace(few.late[0], ranks=ranks, rank=ranks[5], wait_ns=ms(12.1), longer_ns=ms(12.5))
            for ranks in expert
            if ranks[5] % 64 == 5
        ),
        skew=(),
        experts=tuple(
            structs.replace(
                few.experts[0],
                ranks=ranks,
                busiest=ranks[5],
                layers=tuple(Layer(place=place, work_ns=(ms(0.5),) * 7 + (ms(0.7),), elements=(4_194_304,) * 8) for place in range(32)),
            )
            for ranks in expert
        ),
        pipeline=structs.replace(
            few.pipeline,
            stages=tuple(structs.replace(few.pipeline.stages[0], stage=stage, ranks=ranks) for stage, ranks in members.items()),
        ),
        tail=tuple(DataTail(rank=rank, tail_ns=ms(4.1)) for rank in range(count)),
        notes=(),
    )
