"""`diagnose capture`: the commands and the snippet that capture what a diagnosis needs, for a job file or without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.options import PATH, Group, command_option, takes
from diagnose.commands.output import write_stdout

if TYPE_CHECKING:
    from diagnose.job import Job

# Kernels inside CUDA graphs are recorded only with node-level graph tracing, what a stream waited for only with event tracing; sampling
# slows the host.
NSYS = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--cuda-event-trace=true", "--sample=none", "--cpuctxsw=none")
RANGE = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")  # the steps that the program itself marks
TORCH = """\
from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=5, warmup=2, active=4),
    on_trace_ready=lambda prof: prof.export_chrome_trace(f"rank{rank}.json.gz"),
    experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True),
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()
"""
# Four steps after the warm-up: the last is the first that is not profiled (Megatron-LM megatron/training/training.py).
_FIRST, _LAST = 10, 14
_WANTED = {
    "use_nsys_profiler": "true",
    "profile_step_start": str(_FIRST),
    "profile_step_end": str(_LAST),
    "profile_ranks": "",
    "nvtx_ranges": "true",
}


class Chosen(Group):
    """Which of several jobs in the file."""

    job_command: str | None = command_option()


@click.command()
@click.argument("job", type=PATH, required=False, metavar="[JOB]")
@takes(chosen=Chosen)
def capture(job: Path | None, chosen: Chosen) -> int:
    """Print how to capture a run: the nsys command, the settings of this job file, and the snippet for PyTorch's profiler.

    Nothing is run. With a job file the settings are written in its own keys, and the ranks are chosen by its layout.
    """
    read: Job | None = None
    if job is not None:
        from diagnose.job.read import read_job  # noqa: PLC0415
        from diagnose.knowledge.settings import load_job_settings  # noqa: PLC0415

        read = read_job(job, load_job_settings(), command=chosen.job_command)
    write_stdout("\n".join(_lines(read, job)) + "\n")
    return 0


def _lines(job: Job | None, path: Path | None) -> Iterator[str]:
    ranks = ranks_of(job)
    chosen = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    settings = () if job is None else tuple(_settings(job, ranks))
    if settings:
        yield f"# 1. In {path.name if path is not None else 'the job'}: profile steps {_FIRST} to {_LAST - 1} of {chosen}"
        yield from settings
        if len(ranks) == 1:
            yield "# With more ranks add one beside it and one in the middle: a straggler then shows (the job file gives no world size)."
        yield ""
    yield f"# {'2' if settings else '1'}. Nsight Systems, around the command that starts each rank"
    yield "export NVTE_NVTX_ENABLED=1   # Transformer Engine's ranges"
    yield f"nsys profile {' '.join(NSYS)} \\"
    yield f"  {' '.join(RANGE)} -o rank_%q{{RANK}} \\"
    yield "  python pretrain.py ..."
    yield "# an older nsys (2023.4) refuses --cuda-event-trace=true: leave it out there (`diagnose run` does so by itself)"
    if not settings:
        yield f"# open the range around steps {_FIRST} to {_LAST - 1} (torch.cuda.profiler.start(), .stop()) on {chosen}"
    yield ""
    yield "# Instead of Nsight Systems: PyTorch's profiler"
    yield TORCH
    yield "# Then, with all ranks' traces in one folder:"
    yield f"diagnose FOLDER --config {path if path is not None else 'JOB'}"


def ranks_of(job: Job | None) -> tuple[int, ...]:
    """The first rank, one beside it, and one in the middle of the job.

    Two of one group and one of another show whether communication is slow or waits for a straggler.
    """
    world = None if job is None else job.count("world_size")
    if world is None:
        return (0,)
    return tuple(sorted({0, min(1, world - 1), world // 2}))


def _settings(job: Job, ranks: tuple[int, ...]) -> Iterator[str]:
    """What turns profiling on, in the job's own keys."""
    framework = job.table.formats[job.format].framework
    for name, value in _WANTED.items():
        key = next(iter(job.table.specs[name].keys_in(framework)), None)
        if key is None:
            continue
        dotted = "." in key
        members = list(map(str, ranks)) if name == "profile_ranks" else [value]
        if dotted:
            yield f"{key}: {value or '[' + ', '.join(members) + ']'}"
        else:
            yield f"--{key}" if value == "true" else f"--{key} {' '.join(members)}"
