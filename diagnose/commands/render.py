"""`diagnose render`: a saved diagnosis, comparison or bisection in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from diagnose.commands.shared import PATH, check_outputs, deliver, output_options, written
from diagnose.errors import UsageError
from diagnose.render import EXTENSIONS

_NO_GATE = MappingProxyType({"comparison": "whose gate was judged when it was made", "bisection": "which has no findings of its own"})


@click.command()
@click.argument("document", type=PATH, metavar="DOCUMENT.json")
@click.option("--config", type=PATH, help="Job file, for outputs that point at its lines (github, junit, sarif).")
@output_options
def render(document: Path, *, config: Path | None, fail_on: Any, **output: Any) -> int:
    """Write a saved diagnosis, comparison or bisection (JSON) in another format."""
    check_outputs(output, inputs=(document,))
    from diagnose.document.diagnosis import Diagnosis  # noqa: PLC0415
    from diagnose.document.files import read  # noqa: PLC0415

    found = read(document)
    if isinstance(found, Diagnosis):
        return deliver(found, config=config, fail_on=fail_on, **output)
    kind = _kind(found)
    if fail_on:
        raise UsageError(
            f"--fail-on: {document} is a {kind}, {_NO_GATE[kind]}.",
            effect="Nothing was written.",
            next_step="Give --fail-on to `diagnose compare`.",
        )
    from diagnose.commands.repository import path_in_repository  # noqa: PLC0415
    from diagnose.render import Options  # noqa: PLC0415

    renderers = _renderers(kind)
    _check_formats(document, kind, renderers, output)
    written(found, renderers, Options(job_file="" if config is None else path_in_repository(config)), **output)
    return 0


def _kind(found: object) -> str:
    from diagnose.document.comparison import Comparison  # noqa: PLC0415

    return "comparison" if isinstance(found, Comparison) else "bisection"


def _renderers(kind: str) -> Mapping[str, Callable[[Any, Any], str]]:
    if kind == "comparison":
        from diagnose.render.comparison import RENDERERS  # noqa: PLC0415

        return RENDERERS
    from diagnose.render.bisection import RENDERERS as BISECTION  # noqa: PLC0415

    return BISECTION


def _check_formats(document: Path, kind: str, renderers: Mapping[str, object], output: dict[str, Any]) -> None:
    """Refuse formats that this kind of document does not have, before anything is written."""
    wanted = [EXTENSIONS[path.suffix.lower()] for path in output["outputs"]]
    wanted += [] if output["quiet"] else [output["format_"]]
    missing = next((one for one in wanted if one not in renderers), None)
    if missing is not None:
        raise UsageError(
            f"{document} is a {kind}, which has no {missing} format.",
            effect="Nothing was written.",
            next_step=f"Use one of {', '.join(renderers)}.",
        )
