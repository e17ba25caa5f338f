"""`diagnose kernel`: the bucket of a kernel name."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from diagnose.commands.shared import PATH
from diagnose.render.deliver import write_stdout


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own buckets. Repeatable.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", help="text, or one JSON object per line. [default: text]"
)
def kernel(names: tuple[str, ...], rules: tuple[Path, ...], format_: str) -> int:
    """Say which bucket a kernel name belongs to, and why; - reads names from standard input."""
    from diagnose.measure.buckets import describe  # noqa: PLC0415
    from diagnose.render.explain import kernel_json, kernel_text  # noqa: PLC0415
    from diagnose.taxonomy import load_taxonomy  # noqa: PLC0415

    own = [file for path in rules for file in (sorted((path / "buckets").glob("*.yaml")) if path.is_dir() else [path])]
    taxonomy = load_taxonomy(extra=own)
    shown = kernel_text if format_ == "text" else kernel_json
    wanted = [line for name in names for line in (_lines() if name == "-" else [name]) if line.strip()]
    write_stdout("".join(shown(name, describe(name, taxonomy)) for name in wanted), utf8=format_ == "json")
    return 0


def _lines() -> list[str]:
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").splitlines()
