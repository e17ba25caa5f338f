"""`diagnose whatif`: what a step would take after changes."""

from __future__ import annotations

import re
from pathlib import Path

import click

from diagnose.commands.options import CHANGE, USUAL, Explained, Group, JobFile, Measuring, Output, Verb, option, output_of, takes
from diagnose.commands.output import check_outputs, check_sections, progress, say, write_document
from diagnose.errors import InputError, UsageError

_FIX = re.compile(r"[A-Z]{3,4}-\d+")
_NOTHING = "Nothing was forecast."


class Change(Group):
    """The questions."""

    panel = CHANGE
    fixes: tuple[str, ...] = option("--fix", panel=USUAL, multiple=True, metavar="ID", help="With this fix on. Repeatable.")
    plan: bool = option(
        "--plan", panel=USUAL, is_flag=True, help="With the fixes that together save most. [default: without any other question]"
    )
    remove: tuple[str, ...] = option(
        "--remove", multiple=True, metavar="WHAT", help="Without this: communication, host_overhead, memory, cause:host_sync, bucket:NAME …"
    )
    scale: tuple[str, ...] = option("--scale", multiple=True, metavar="WHAT=F", help="With durations times F: bucket:expert_gemm=0.7.")
    detach: tuple[str, ...] = option("--detach", multiple=True, metavar="WHAT", help="With this beside what follows it on its stream.")
    link: str | None = option("--link", metavar="2x", help="With a link that many times as fast.")
    no_wait: bool = option("--no-wait", is_flag=True, help="With all captured ranks in step: nobody comes late.")
    gpu: str | None = option("--gpu", metavar="NAME", help="On another GPU of the same architecture, by its peaks.")
    anyway: bool = option("--anyway", is_flag=True, help="Forecast fixes that are blocked or on already all the same.")


@click.command(cls=Verb)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@takes(change=Change, job=JobFile, measuring=Measuring, output=output_of("forecast"), detail=Explained)
def whatif(traces: tuple[str, ...], change: Change, job: JobFile, measuring: Measuring, output: Output, detail: Explained) -> int:
    """Say what a step would take after changes, replayed with what each operation waited for.

    \b
    diagnose whatif run.nsys-rep --config job.yaml
    diagnose whatif run.nsys-rep --config job.yaml --fix COM-06 --fix HOST-03
    diagnose whatif run.nsys-rep --remove communication

    WHAT is a word (communication, host_overhead, memory, recompute, host_sync, gc …), a KIND:VALUE (bucket:, cause:, comm:, exchange:,
    role:, phase:, operation:, backend:, name:), or a condition over these such as "bucket = 'expert_gemm' AND us > 100". The traces of
    several ranks are replayed together; of them --remove late_rank and --remove expert_imbalance can be asked too.

    Exit codes: 0 forecast; 3 no question could be answered.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    misplaced = next((one for one in traces if _FIX.fullmatch(one) and not Path(one).exists()), None)
    if misplaced is not None:
        raise UsageError(f"{misplaced} is no trace.", effect=_NOTHING, next_step=f"Name a fix with --fix {misplaced}.")
    inputs = (*(Path(one) for one in traces if one != "-"), *((job.config,) if job.config else ()))
    check_outputs(output, inputs=inputs, kind="forecast", effect=_NOTHING)
    check_sections(output, "forecast", detail.sections)
    measuring.check()
    with progress(shown=not output.quiet and output.format == "text") as report:
        from diagnose.pipeline import whatif as forecast  # noqa: PLC0415 - imports polars

        document = forecast(traces, **vars(change), **measuring.arguments(job, None if output.quiet else say), progress=report)
    write_document(document, output, config=job.config, detail=detail)
    if document.step_ns is None:
        first = document.refused[0]
        raise InputError(first.reason, effect="There is no forecast.", next_step=first.next_step)
    return 0
