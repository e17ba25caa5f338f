"""`diagnose kernel`: the bucket of a kernel name."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import click

from diagnose.commands.options import Group, format_option, rules_option, takes
from diagnose.commands.output import print_document
from diagnose.errors import InputError


class Asking(Group):
    """By what a name is classified, and how the answer looks."""

    rules: tuple[Path, ...] = rules_option("buckets")
    format: str = format_option("kernels", "json: one object per line. ")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@takes(asking=Asking)
def kernel(names: tuple[str, ...], asking: Asking) -> int:
    """Say which bucket a kernel name belongs to, and why; - reads names from standard input.

    A line (or NAME) may be a JSON object {"name": …, "context": {…}}; trace_rules/README.md lists the context's keys. Exit code 3 when
    a line could not be read; it is answered with an error, and the others are answered all the same.
    """
    from diagnose.commands.kernel_lines import answers  # noqa: PLC0415
    from diagnose.knowledge.taxonomy import load_taxonomy, own_bucket_files  # noqa: PLC0415

    taxonomy = load_taxonomy(extra=own_bucket_files(asking.rules))
    lines = [sys.stdin.buffer.read().decode("utf-8", errors="replace").splitlines() if name == "-" else [name] for name in names]
    answered = answers(list(chain.from_iterable(lines)), taxonomy)
    print_document(answered, asking.format)
    return InputError.exit_code if any(answer.error for answer in answered.answers) else 0
