"""`diagnose TRACE...`, the default verb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.options import (
    FAULT,
    GATE,
    JOB,
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
from diagnose.commands.output import check_outputs, check_sections, check_target, lost, progress, say, write_diagnosis, write_stdout
from diagnose.commands.patch import check_rewritten, patched_job
from diagnose.commands.project import job_beside
from diagnose.errors import DataLossError, JobFileError, UsageError
from diagnose.render import write

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis


class AnalysedJob(JobFile):
    """The job file of the traces, in the words of the main verb."""

    config: Path | None = option(
        "--config",
        panel=USUAL,
        type=PATH,
        help="Job file: Megatron-Bridge dump, Megatron-LM arguments, launch script, torchtitan, verl, NeMo RL, VeOmni, DeepSpeed or Hugging Face, plain job.yaml.",
    )
    overrides: tuple[str, ...] = set_option("the job file, as Hydra writes it")
    no_config: bool = option("--no-config", is_flag=True, help="Leave a job file that lies beside the trace alone.")


class Analysis(Group):
    """What this verb alone takes."""

    panel = READING
    strict: bool = option("--strict", panel=GATE, is_flag=True, help="Exit 4 if data was lost.")
    patch: Path | None = option("--patch", panel=JOB, type=PATH, help="Write the job file of --config, changed as advised, to this file.")
    log: Path | None = option("--log", type=PATH, help="The trainer's log, for the step time without the profiler, and for memory.")
    bundle: Path | None = option(
        "--bundle",
        panel=FAULT,
        type=PATH,
        help="Write report, document, job file and versions to this .zip, for a report of a fault; redacted.",
    )
    no_redact: bool = option("--no-redact", panel=FAULT, is_flag=True, help="Leave paths, hosts, users and secrets in the bundle.")
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
    check_sections(output, "diagnosis", detail.sections)
    measuring.check()
    if analysis.patch is not None:
        _check_patch(analysis.patch, job, force=output.force)
    _check_bundle(analysis, traces, job, force=output.force)
    with progress(shown=not output.quiet and output.format == "text") as report:
        document = measuring.diagnose(
            traces,
            job,
            log=analysis.log,
            include_host_info=analysis.include_host_info,
            progress=report,
            notice=None if output.quiet else say,
        )
    patched = None if analysis.patch is None or job.config is None else patched_job(job.config, measuring.rules, document, job.job_command)
    status = write_diagnosis(document, output, config=job.config, fail_on=gate.fail_on, detail=detail, typed=job.typed(traces))
    if patched is not None and analysis.patch is not None:
        from diagnose.document.files import write_file  # noqa: PLC0415 - imports msgspec

        check_rewritten(patched)
        write_file(analysis.patch, patched.text, force=output.force)
        if output.format == "text" and not output.quiet:
            write_stdout("\n" + write(patched.report, "text"))
            say(f"wrote {analysis.patch}")
    if analysis.bundle is not None:
        _write_bundle(document, analysis.bundle, job, redact=not analysis.no_redact, output=output)
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
        if job.overrides:  # --set asks for a job file
            raise
        if not quiet:
            say(f"{beside.name} lies beside the trace and was not used: {fault.what}")
        return job
    if not quiet:
        say(f"using {beside.name}, which lies beside the trace (--no-config leaves it alone)")
    return job.replace(config=beside)


def _check_bundle(analysis: Analysis, traces: tuple[str, ...], job: JobFile, *, force: bool) -> None:
    """Refuse a path for the bundle before any work is done. Raises UsageError."""
    if analysis.bundle is None:
        if analysis.no_redact:
            raise UsageError("--no-redact is about a bundle.", effect="Nothing was analysed.", next_step="Give --bundle FILE.zip too.")
        return
    if analysis.bundle.suffix.lower() != ".zip":
        raise UsageError(f"--bundle {analysis.bundle} is no .zip.", effect="Nothing was analysed.", next_step="Call it bug.zip.")
    sources = tuple(Path(trace) for trace in traces if trace != "-") + ((job.config,) if job.config else ())
    check_target(analysis.bundle, force=force, inputs=sources)


def _write_bundle(document: Diagnosis, path: Path, job: JobFile, *, redact: bool, output: Output) -> None:
    from diagnose.commands.bundle import ARGUMENTS, bundle  # noqa: PLC0415 - rarely wanted
    from diagnose.document.files import write_bytes  # noqa: PLC0415 - imports msgspec

    typed = click.get_current_context().find_root().meta.get(ARGUMENTS, ())
    write_bytes(path, bundle(document, job.config, typed, redact=redact), force=output.force)
    if output.format == "text" and not output.quiet:
        say(f"wrote {path}{'; look through it before you send it' if redact else ' with nothing redacted'}")


def _check_patch(path: Path, job: JobFile, *, force: bool) -> None:
    """Refuse a path for the changed job file, or settings that the file does not hold, before any work is done. Raises UsageError."""
    if job.config is None:
        raise UsageError("--patch changes a job file.", effect="Nothing was analysed.", next_step="Name it with --config.")
    if job.overrides:
        raise UsageError(
            "--patch and --set do not go together: the changed file would lack what --set adds.",
            effect="Nothing was analysed.",
            next_step="Write those settings into the job file first.",
        )
    check_target(path, force=force, inputs=(job.config,))
