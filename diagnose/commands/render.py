"""`diagnose render`: a diagnosis in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from diagnose.commands.shared import PATH, check_outputs, deliver, output_options, read_diagnosis


@click.command()
@click.argument("diagnosis", type=PATH, metavar="DIAGNOSIS.json")
@output_options
def render(diagnosis: Path, **output: Any) -> int:
    """Write a diagnosis (JSON) in another format."""
    check_outputs(output, inputs=(diagnosis,))
    return deliver(read_diagnosis(diagnosis), **output)
