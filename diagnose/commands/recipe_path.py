"""`diagnose recipe-path`: where the Nsight recipe lies."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands.output import write_stdout


@click.command("recipe-path")
def recipe_path() -> None:
    """Print the folder for NSYS_RECIPE_PATH, so that `nsys recipe diagnose` works."""
    write_stdout(f"{Path(__file__).parent.parent / 'recipe'}\n")
