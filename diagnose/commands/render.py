"""`diagnose render`: a saved diagnosis or comparison in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from diagnose.commands.shared import PATH, check_outputs, deliver, output_options, written
from diagnose.errors import UsageError


@click.command()
@click.argument("document", type=PATH, metavar="DOCUMENT.json")
@click.option("--config", type=PATH, help="Job file, for outputs that point at its lines (github, junit, sarif).")
@output_options
def render(document: Path, *, config: Path | None, fail_on: Any, **output: Any) -> int:
    """Write a saved diagnosis or comparison (JSON) in another format."""
    check_outputs(output, inputs=(document,))
    from diagnose.commands.documents import read  # noqa: PLC0415
    from diagnose.comparison import Comparison  # noqa: PLC0415

    found = read(document)
    if not isinstance(found, Comparison):
        return deliver(found, config=config, fail_on=fail_on, **output)
    if fail_on:
        raise UsageError(
            f"--fail-on: {document} is a comparison, whose gate was judged when it was made.",
            effect="Nothing was written.",
            next_step="Give --fail-on to `diagnose compare`.",
        )
    from diagnose.commands.repository import path_in_repository  # noqa: PLC0415
    from diagnose.render.comparison import RENDERERS, Options  # noqa: PLC0415

    written(found, RENDERERS, Options(job_file="" if config is None else path_in_repository(config)), **output)
    return 0
