"""`diagnose TRACE...`, the default verb."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from diagnose.commands.shared import PATH, check_outputs, deliver, output_options
from diagnose.errors import DataLossError
from diagnose.render.deliver import progress


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--config", type=PATH, help="Job file: Megatron-Bridge dump, Megatron-LM arguments or plain job.yaml.")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules, fixes and buckets. Repeatable.")
@click.option("--rank", type=click.IntRange(min=0), help="Rank of a trace that does not tell it.")
@click.option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step.")
@click.option("--nsys", type=PATH, help="The nsys to export .nsys-rep files with. [default: the one found]")
@click.option("--strict", is_flag=True, help="Exit 4 if data was lost.")
@click.option("--include-host-info", is_flag=True, help="Keep host names in the result.")
@output_options
def analyse(
    traces: tuple[str, ...],
    *,
    config: Path | None,
    rules: tuple[Path, ...],
    rank: int | None,
    step_range: str | None,
    nsys: Path | None,
    strict: bool,
    include_host_info: bool,
    **output: Any,
) -> int:
    """Analyse traces (the default command)."""
    check_outputs(output, inputs=tuple(Path(trace) for trace in traces if trace != "-") + ((config,) if config else ()))
    with progress(shown=sys.stderr.isatty() and not output["quiet"] and output["format_"] == "text") as report:
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

        document = diagnose(
            traces,
            config=config,
            rules=rules,
            rank=rank,
            step_range=step_range,
            nsys=nsys,
            include_host_info=include_host_info,
            progress=report,
        )
    status = deliver(document, **output)
    if strict and any(entry.severity in ("data_loss", "error") for entry in document.ledger):
        raise DataLossError(
            "Data was lost.",
            effect="The result is written but not complete.",
            next_step="Read its ledger; it says what is missing and why.",
        )
    return status
