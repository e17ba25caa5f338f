"""`diagnose render`: a saved diagnosis, comparison or bisection in another format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from diagnose.commands.options import PATH, Detail, Gate, Group, Output, option, takes
from diagnose.commands.output import check_outputs, write_diagnosis, write_document
from diagnose.errors import UsageError
from diagnose.render import format_of, formats_for, kind_of

_NO_GATE: Mapping[str, str] = {
    "comparison": "whose gate was judged when it was made",
    "bisection": "which has no findings of its own",
    "history": "which has none",
    "forecast": "which has none",
}


class JobLines(Group):
    """The file that outputs point into."""

    config: Path | None = option("--config", type=PATH, help="Job file, for outputs that point at its lines (github, junit, sarif).")


@click.command()
@click.argument("document", type=PATH, metavar="DOCUMENT.json")
@takes(job=JobLines, output=Output, gate=Gate, detail=Detail)
def render(document: Path, job: JobLines, output: Output, gate: Gate, detail: Detail) -> int:
    """Write a saved diagnosis, comparison or bisection (JSON) in another format."""
    check_outputs(output, inputs=(document,))
    from diagnose.document.diagnosis import Diagnosis  # noqa: PLC0415
    from diagnose.document.files import read  # noqa: PLC0415

    saved = read(document)
    if isinstance(saved, Diagnosis):
        return write_diagnosis(saved, output, config=job.config, fail_on=gate.fail_on, detail=detail)
    kind = kind_of(saved)
    if gate.fail_on:
        raise UsageError(
            f"--fail-on: {document} is a {kind}, {_NO_GATE[kind]}.",
            effect="Nothing was written.",
            next_step="Give --fail-on to `diagnose compare`.",
        )
    _check_formats(document, kind, output)
    write_document(saved, output, config=job.config, detail=detail)
    return 0


def _check_formats(document: Path, kind: str, output: Output) -> None:
    """Refuse formats that this kind of document does not have, before anything is written. Raises UsageError."""
    wanted = [format_of(path, "diagnosis") or "" for path in output.output] + ([] if output.quiet else [output.format])
    missing = next((name for name in wanted if name not in formats_for(kind)), None)
    if missing is not None:
        raise UsageError(
            f"{document} is a {kind}, which has no {missing} format.",
            effect="Nothing was written.",
            next_step=f"Use one of {', '.join(formats_for(kind))}.",
        )
