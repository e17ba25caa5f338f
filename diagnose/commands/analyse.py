"""`diagnose TRACE...`, the default verb."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands.options import (
    GATE,
    OUTPUT,
    PATH,
    READING,
    USUAL,
    Detail,
    Gate,
    Group,
    JobFile,
    Measuring,
    Output,
    Verb,
    option,
    set_option,
    takes,
)
from diagnose.commands.output import check_outputs, lost, progress, say, write_diagnosis
from diagnose.commands.project import job_beside
from diagnose.errors import DataLossError, JobFileError


class AnalysedJob(JobFile):
    """The job file of the traces, in the words of the main verb."""

    config: Path | None = option(
        "--config",
        panel=USUAL,
        type=PATH,
        help="Job file: Megatron-Bridge dump, Megatron-LM arguments, launch script, torchtitan, DeepSpeed or Hugging Face, plain job.yaml.",
    )
    overrides: tuple[str, ...] = set_option("the job file, as Hydra writes it")
    no_config: bool = option("--no-config", is_flag=True, help="Leave a job file that lies beside the trace alone.")


class Analysis(Group):
    """What this verb alone takes."""

    panel = READING
    strict: bool = option("--strict", panel=GATE, is_flag=True, help="Exit 4 if data was lost.")
    log: Path | None = option("--log", type=PATH, help="The trainer's log, for the step time without the profiler, and for memory.")
    include_host_info: bool = option("--include-host-info", panel=OUTPUT, is_flag=True, help="Keep host names in the result.")


@click.command(cls=Verb)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@takes(job=AnalysedJob, measuring=Measuring, analysis=Analysis, output=Output, gate=Gate, detail=Detail)
def analyse(
    traces: tuple[str, ...], job: AnalysedJob, measuring: Measuring, analysis: Analysis, output: Output, gate: Gate, detail: Detail
) -> int:
    """Analyse traces (the default command)."""
    job = _with_job_beside(traces, job, quiet=output.quiet)
    check_outputs(output, inputs=tuple(Path(trace) for trace in traces if trace != "-") + ((job.config,) if job.config else ()))
    measuring.check()
    with progress(shown=not output.quiet and output.format == "text") as report:
        document = measuring.diagnose(
            traces,
            job,
            log=analysis.log,
            include_host_info=analysis.include_host_info,
            progress=report,
            notice=None if output.quiet else say,
        )
    status = write_diagnosis(document, output, config=job.config, fail_on=gate.fail_on, detail=detail)
    if analysis.strict and lost(document):
        raise DataLossError(
            "Data was lost.",
            effect="The result is written but not complete.",
            next_step="Read its ledger; it says what is missing and why.",
        )
    return status


def _with_job_beside(traces: tuple[str, ...], job: AnalysedJob, *, quiet: bool) -> AnalysedJob:
    """The job with the file that lies beside the trace, where none was named; what was found there is said."""
    beside = None if job.config is not None or job.no_config else job_beside(traces)
    if beside is None:
        return job
    from diagnose.job.read import read_job  # noqa: PLC0415
    from diagnose.knowledge.settings import load_job_settings  # noqa: PLC0415

    try:
        read_job(beside, load_job_settings(), job.overrides, command=job.job_command)
    except JobFileError as fault:
        if not quiet:
            say(f"{beside.name} lies beside the trace and was not used: {fault.what}")
        return job
    if not quiet:
        say(f"using {beside.name}, which lies beside the trace (--no-config leaves it alone)")
    return job.replace(config=beside)
