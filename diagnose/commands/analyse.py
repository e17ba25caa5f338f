"""`diagnose TRACE...`, the default verb."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.deliver import check_target, progress, write_stdout
from diagnose.commands.patch import check_rewritten
from diagnose.commands.shared import PATH, check_outputs, deliver, lost, output_options, say
from diagnose.document.files import write_file
from diagnose.errors import DataLossError, UsageError
from diagnose.scale.choose import ENGINES, check_engine

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.reason.patch import Patched


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--config", type=PATH, help="Job file: Megatron-Bridge dump, Megatron-LM arguments, launch script, torchtitan TOML or plain job.yaml."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file, as Hydra writes it. Repeatable."
)
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules, fixes and buckets. Repeatable.")
@click.option("--rank", type=click.IntRange(min=0), help="Rank of a trace that does not tell it.")
@click.option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step.")
@click.option("--nsys", type=PATH, help="The nsys to export .nsys-rep files with. [default: the one found]")
@click.option("--jobs", type=click.IntRange(min=1), help="Traces measured at once. [default: one per processor]")
@click.option("--engine", type=click.Choice(ENGINES), default="local", help="Where: processes here, or Dask workers. [default: local]")
@click.option("--scheduler", metavar="ADDRESS|FILE", help="Dask scheduler that runs already. [default: a cluster of our own]")
@click.option("--strict", is_flag=True, help="Exit 4 if data was lost.")
@click.option("--patch", "patch_to", type=PATH, help="Write the job file of --config, changed as advised, to this file.")
@click.option("--include-host-info", is_flag=True, help="Keep host names in the result.")
@output_options
def analyse(
    traces: tuple[str, ...],
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    rules: tuple[Path, ...],
    rank: int | None,
    step_range: str | None,
    nsys: Path | None,
    jobs: int | None,
    engine: str,
    scheduler: str | None,
    strict: bool,
    patch_to: Path | None,
    include_host_info: bool,
    **output: Any,
) -> int:
    """Analyse traces (the default command)."""
    check_outputs(output, inputs=tuple(Path(trace) for trace in traces if trace != "-") + ((config,) if config else ()))
    check_engine(engine, jobs=jobs, scheduler=scheduler)
    if patch_to is not None:
        _check_patch(patch_to, config, overrides, force=output["force"])
    with progress(shown=sys.stderr.isatty() and not output["quiet"] and output["format_"] == "text") as report:
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars
        from diagnose.scale.choose import engine_for  # noqa: PLC0415

        document = diagnose(
            traces,
            config=config,
            overrides=overrides,
            rules=rules,
            rank=rank,
            step_range=step_range,
            nsys=nsys,
            include_host_info=include_host_info,
            engine=engine_for(engine, jobs=jobs, scheduler=scheduler),
            progress=report,
            notice=None if output["quiet"] else say,
        )
    patched = _patched(document, config, rules) if patch_to is not None and config is not None else None
    status = deliver(document, config=config, **output)
    if patched is not None and patch_to is not None:
        check_rewritten(patched)
        write_file(patch_to, patched.text, force=output["force"])
        if output["format_"] == "text" and not output["quiet"]:
            from diagnose.render.patch import text  # noqa: PLC0415

            write_stdout("\n" + text(patched.report))
            say(f"wrote {patch_to}")
    if strict and lost(document):
        raise DataLossError(
            "Data was lost.",
            effect="The result is written but not complete.",
            next_step="Read its ledger; it says what is missing and why.",
        )
    return status


def _check_patch(path: Path, config: Path | None, overrides: tuple[str, ...], *, force: bool) -> None:
    """Refuse a place for the changed job file, or settings that the file does not hold, before any work is done."""
    if config is None:
        raise UsageError("--patch changes a job file.", effect="Nothing was analysed.", next_step="Name it with --config.")
    if overrides:
        raise UsageError(
            "--patch and --set do not go together: the changed file would lack what --set adds.",
            effect="Nothing was analysed.",
            next_step="Write those settings into the job file first.",
        )
    check_target(path, force=force, inputs=(config,))


def _patched(document: Diagnosis, config: Path, rules: tuple[Path, ...]) -> Patched:
    from diagnose.commands.patch import apply  # noqa: PLC0415
    from diagnose.job import read_job  # noqa: PLC0415
    from diagnose.knowledge.rulebook import load_rulebook  # noqa: PLC0415

    return apply(config, load_rulebook(tuple(dict.fromkeys((*read_job(config).rules, *rules)))), document)
