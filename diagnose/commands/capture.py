"""`diagnose capture`: the commands and the snippet that capture what a diagnosis needs, for a job file or without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.options import PATH, Group, command_option, option, takes
from diagnose.commands.output import write_stdout
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.job import Job

# Kernels inside CUDA graphs are recorded only with node-level graph tracing, what a stream waited for only with event tracing; sampling
# slows the host.
NSYS = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--cuda-event-trace=true", "--sample=none", "--cpuctxsw=none")
RANGE = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")  # the steps that the program itself marks
_SYNC_EVENTS = "    experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True),\n"
TORCH = f"""\
from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=5, warmup=2, active=4),
    on_trace_ready=lambda prof: prof.export_chrome_trace(f"rank{{rank}}.json.gz"),
{_SYNC_EVENTS}) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()
"""
# Four steps after the warm-up: the last is the first that is not profiled (Megatron-LM megatron/training/training.py).
_FIRST, _LAST = 10, 14
_STEPS = {"profile_step_start": str(_FIRST), "profile_step_end": str(_LAST), "profile_ranks": ""}
_BY_NSYS = {"use_nsys_profiler": "true", **_STEPS, "nvtx_ranges": "true"}
_BY_TORCH = {"use_pytorch_profiler": "true", **_STEPS}  # what else than NVIDIA's GPUs Nsight Systems does not see


class Chosen(Group):
    """Which of several jobs in the file, and for which GPU."""

    job_command: str | None = command_option()
    platform: str | None = option(
        "--platform",
        metavar="NAME",
        help="The GPU, such as h100 or mi300x, or its maker: nvidia or amd. [default: the job file's, else nvidia]",
    )


@click.command()
@click.argument("job", type=PATH, required=False, metavar="[JOB]")
@takes(chosen=Chosen)
def capture(job: Path | None, chosen: Chosen) -> int:
    """Print how to capture a run: the nsys command, the settings of this job file, and the snippet for PyTorch's profiler.

    Nothing is run. With a job file the settings are written in its own keys, and the ranks are chosen by its layout. For AMD's GPUs, which
    Nsight Systems does not see, it is PyTorch's profiler alone.
    """
    from diagnose.knowledge.platforms import load_platforms, maker_of  # noqa: PLC0415

    read: Job | None = None
    if job is not None:
        from diagnose.job.read import read_job  # noqa: PLC0415
        from diagnose.knowledge.settings import load_job_settings  # noqa: PLC0415

        read = read_job(job, load_job_settings(), command=chosen.job_command)
    platforms = load_platforms()
    if chosen.platform is not None and maker_of(chosen.platform, platforms) is None:
        known = ", ".join(("nvidia", "amd", *sorted(platforms.platforms)))
        raise UsageError(f"--platform {chosen.platform} is not known.", effect="Nothing was printed.", next_step=f"Use one of {known}.")
    told = None if read is None else read.get("platform")
    maker = maker_of(chosen.platform or (told if isinstance(told, str) else None), platforms)
    write_stdout("\n".join(_lines(read, job, nsys=maker != "amd")) + "\n")
    return 0


def _lines(job: Job | None, path: Path | None, *, nsys: bool) -> Iterator[str]:
    """`nsys`: whether Nsight Systems sees the GPUs."""
    ranks = ranks_of(job)
    chosen = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    settings = () if job is None else tuple(_settings(job, ranks, _BY_NSYS if nsys else _BY_TORCH))
    if settings:
        yield f"# 1. In {path.name if path is not None else 'the job'}: profile steps {_FIRST} to {_LAST - 1} of {chosen}"
        yield from settings
        if len(ranks) == 1:
            yield "# With more ranks add one beside it and one in the middle: a straggler then shows (the job file gives no world size)."
        yield ""
    number = 2 if settings else 1
    if nsys:
        yield from _by_nsys(number, "" if settings else chosen)
    else:
        where = ", in a program without such settings" if settings else ""
        yield f"# {number}. PyTorch's profiler{where}: Nsight Systems does not see AMD's GPUs"
        yield TORCH.replace(_SYNC_EVENTS, "")
    yield "# Then, with all ranks' traces in one folder:"
    yield f"diagnose FOLDER --config {path if path is not None else 'JOB'}"


def _by_nsys(number: int, ranks: str) -> Iterator[str]:
    """The nsys command, and the snippet for PyTorch's profiler in its place; `ranks`: on which the range has to be opened by hand."""
    yield f"# {number}. Nsight Systems, around the command that starts each rank"
    yield "export NVTE_NVTX_ENABLED=1   # Transformer Engine's ranges"
    yield f"nsys profile {' '.join(NSYS)} \\"
    yield f"  {' '.join(RANGE)} -o rank_%q{{RANK}} \\"
    yield "  python pretrain.py ..."
    yield "# an older nsys (2023.4) refuses --cuda-event-trace=true: leave it out there (`diagnose run` does so by itself)"
    if ranks:
        yield f"# open the range around steps {_FIRST} to {_LAST - 1} (torch.cuda.profiler.start(), .stop()) on {ranks}"
    yield ""
    yield "# Instead of Nsight Systems: PyTorch's profiler"
    yield TORCH


def ranks_of(job: Job | None) -> tuple[int, ...]:
    """The first rank, one beside it, and one in the middle of the job.

    Two of one group and one of another show whether communication is slow or waits for a straggler.
    """
    world = None if job is None else job.count("world_size")
    if world is None:
        return (0,)
    return tuple(sorted({0, min(1, world - 1), world // 2}))


def _settings(job: Job, ranks: tuple[int, ...], wanted: Mapping[str, str]) -> Iterator[str]:
    """What turns profiling on, in the job's own keys."""
    framework = job.table.formats[job.format].framework
    for name, value in wanted.items():
        key = next(iter(job.table.specs[name].keys_in(framework)), None)
        if key is None:
            continue
        dotted = "." in key
        members = list(map(str, ranks)) if name == "profile_ranks" else [value]
        if dotted:
            yield f"{key}: {value or '[' + ', '.join(members) + ']'}"
        else:
            yield f"--{key}" if value == "true" else f"--{key} {' '.join(members)}"
