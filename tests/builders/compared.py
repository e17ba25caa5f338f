"""Small documents for comparisons: a device with steps, kernels, a job and an environment, all figures as asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from diagnose.document import device as r
from diagnose.document import diagnosis as d
from diagnose.document.device import Absent, DeviceKernels, DeviceSplit, KernelUse, Ran, StepSplit, Why
from diagnose.model.environment import EnvironmentItem
from tests.builders.diagnosis import minimal

Cells = Mapping[str | tuple[Ran, Why], int]  # a bucket's compute, or (what ran, why compute was absent), in ns
H100 = "NVIDIA H100 80GB HBM3"
SETTINGS: Mapping[str, Any] = {
    "hidden_size": 2048, "num_attention_heads": 32, "num_layers": 48, "num_moe_experts": 128, "global_batch_size": 32,
    "micro_batch_size": 1, "seq_length": 4096, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
    "expert_model_parallel_size": 16, "bf16": True, "fp8": "none", "world_size": 16,
}  # fmt: skip


def split(index: int, cells: Cells) -> StepSplit:
    """One step."""
    return StepSplit(
        index=index,
        window_ns=sum(cells.values()),
        compute={key: ns for key, ns in cells.items() if isinstance(key, str)},
        absent=tuple(Absent(ran=key[0], why=key[1], ns=ns) for key, ns in cells.items() if not isinstance(key, str)),
    )


def job(settings: Mapping[str, Any] | None = None, *, tokens: int | None = None, **changes: Any) -> d.JobRead:
    """A job file; None takes a setting out. `tokens`: what follows for tokens per step."""
    told = {**(SETTINGS if settings is None else settings), **changes}
    rows = tuple(
        d.JobSetting(name=name, value=value, key=f"model.{name}", line=line)
        for line, (name, value) in enumerate(told.items(), 1)
        if value is not None
    )
    derived = (d.JobSize(name="tokens_per_step", value=tokens, unit="tokens", from_="GBS × seq"),) if tokens is not None else ()
    return d.JobRead(format="megatron-bridge", settings=rows, derived=derived)


def kernel(name: str, launches: int, launch_ns: int, **fields: Any) -> KernelUse:
    """One row of the kernels; by default attention on stream 7."""
    defaults: dict[str, Any] = {"bucket": "attention", "role": "compute", "stream": 7, "work_ns": launches * launch_ns}
    return KernelUse(name=name, launches=launches, launch_ns=launch_ns, **{**defaults, **fields})


def sequence(rows: Sequence[KernelUse]) -> tuple[KernelUse, ...]:
    """The rows as they follow each other on each stream, in a ring."""
    result = []
    for place, row in enumerate(rows):
        mine = [other for other, one in enumerate(rows) if one.stream == row.stream]
        at = mine.index(place)
        result.append(structs.replace(row, previous=mine[at - 1], next=mine[(at + 1) % len(mine)]))
    return tuple(result)


def document(
    steps: Sequence[Cells] = ({"attention": 1_000_000},),
    *,
    rank: int = 0,
    anchor: str = "range ProfilerStep#N",
    kernels: Sequence[KernelUse] | None = None,
    gpu: str | None = H100,
    job: d.JobRead | None = None,
    environment: Sequence[EnvironmentItem] = (),
    ranks: Sequence[int] | None = None,
    **fields: Any,
) -> d.Diagnosis:
    """A diagnosis of `ranks` (by default of `rank` alone), all alike; `fields` go over the document's."""
    base = minimal()
    splits = tuple(split(index, cells) for index, cells in enumerate(steps))
    all_ranks = tuple(ranks) if ranks is not None else (rank,)
    budget = tuple(structs.replace(base.budget[0].per_step[0], index=one.index, window_ns=one.window_ns) for one in splits)
    lengths = sorted(one.window_ns for one in splits)
    whole = structs.replace(
        base,
        verdict=structs.replace(base.verdict, rank=rank, certainty="high"),
        capture=structs.replace(
            base.capture,
            devices=tuple(
                d.DeviceInfo(rank=one, device=0, name=gpu, sm_count=None, compute_capability=None, memory_bytes=None) for one in all_ranks
            ),
            ranks=tuple(d.RankInfo(rank=one, world_size=None, source="distributed info", file=f"rank{one}.json") for one in all_ranks),
        ),
        steps=r.Steps(
            anchor=anchor,
            n=len(splits),
            dropped=(),
            duration_ns=r.Spread(median=lengths[len(lengths) // 2], min=lengths[0], max=lengths[-1], n=len(lengths)),
            windows=tuple(r.Window(index=one.index, start_ns=0, end_ns=one.window_ns) for one in splits),
        ),
        budget=tuple(r.DeviceBudget(rank=one, device=0, per_step=budget, median=None) for one in all_ranks),
        buckets=tuple(row for one in all_ranks for row in buckets(one, splits)),
        split=tuple(DeviceSplit(rank=one, device=0, steps=splits) for one in all_ranks),
        kernels=() if kernels is None else tuple(DeviceKernels(rank=one, device=0, kernels=tuple(kernels)) for one in all_ranks),
        job=job,
        environment=tuple(environment),
    )
    return structs.replace(whole, **fields)


def buckets(rank: int, splits: Sequence[StepSplit]) -> list[r.BucketTime]:
    """The buckets that compute in the first step, ten kernels each."""
    total = sum(splits[0].compute.values()) or 1
    return [
        r.BucketTime(
            rank=rank,
            device=0,
            bucket=bucket,
            kernels=10,
            work_ns=ns,
            busy_ns=ns,
            exclusive_ns=ns,
            share=ns / total,
            phase={},
            decided_by={},
        )
        for bucket, ns in splits[0].compute.items()
    ]


def capture(base: d.Diagnosis, **changes: Any) -> d.Diagnosis:
    """The document with another capture."""
    return structs.replace(base, capture=structs.replace(base.capture, **changes))
