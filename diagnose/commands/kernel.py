"""`diagnose kernel`: the bucket of a kernel name."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from diagnose.commands.deliver import write_stdout
from diagnose.commands.shared import PATH
from diagnose.errors import InputError


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own buckets. Repeatable.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", help="text, or one JSON object per line. [default: text]"
)
def kernel(names: tuple[str, ...], rules: tuple[Path, ...], format_: str) -> int:
    """Say which bucket a kernel name belongs to, and why; - reads names from standard input.

    A line (or NAME) may be a JSON object {"name": …, "context": {…}}; trace_rules/README.md lists the context's keys. Exit code 3 when
    a line could not be read; it is answered with an error, and the others are answered all the same.
    """
    from diagnose.commands.kernel_lines import answers  # noqa: PLC0415
    from diagnose.knowledge.taxonomy import load_taxonomy, own_bucket_files  # noqa: PLC0415
    from diagnose.render import write  # noqa: PLC0415

    taxonomy = load_taxonomy(extra=own_bucket_files(rules))
    found = answers([line for name in names for line in (_lines() if name == "-" else [name])], taxonomy)
    write_stdout(write(found, format_), utf8=format_ == "json")
    return InputError.exit_code if any(answer.error for answer in found.answers) else 0


def _lines() -> list[str]:
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").splitlines()
