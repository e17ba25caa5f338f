"""What several verbs share: the options for outputs, reading a diagnosis, writing results."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.errors import InputError, UsageError
from diagnose.render import EXTENSIONS, RENDERERS, Options
from diagnose.render.deliver import check_target, write_file, write_stdout

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis

EXIT_GATE = 1
LEVELS = ("low", "medium", "high")
PATH = click.Path(path_type=Path)


def output_options(command: Any) -> Any:
    """The options that say where a diagnosis goes."""
    for option in reversed(
        [
            click.option(
                "--format", "format_", type=click.Choice(list(RENDERERS)), default="text", help="Format of standard output. [default: text]"
            ),
            click.option(
                "-o",
                "--output",
                "outputs",
                type=PATH,
                multiple=True,
                help="Write a file too; format by extension: .html .json .md .txt. Repeatable.",
            ),
            click.option("--force", is_flag=True, help="Overwrite files of -o."),
            click.option("--fail-on", type=click.Choice(LEVELS), help="Exit 1 if a finding is that severe or more."),
            click.option(
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                help="Colours on standard output. [default: auto]",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; for use with -o."),
        ]
    ):
        command = option(command)
    return command


def read_diagnosis(path: Path) -> Diagnosis:
    """A diagnosis from its JSON file. Raises InputError."""
    import msgspec  # noqa: PLC0415

    from diagnose.diagnosis import SCHEMA, decode  # noqa: PLC0415

    wanted = "Give the JSON that `diagnose TRACE -o x.json` wrote."
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"null"))
        if msgspec.json.decode(schema) != SCHEMA:
            raise InputError(f"{path} is not a diagnosis of schema {SCHEMA}.", effect="Nothing was written.", next_step=wanted)
        return decode(data)
    except OSError as fault:
        raise InputError(f"{path} could not be read: {fault.strerror}.", effect="Nothing was written.", next_step=wanted) from fault
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{path} is not a diagnosis: {fault}.", effect="Nothing was written.", next_step=wanted) from fault


def check_outputs(output: dict[str, Any], inputs: tuple[Path, ...]) -> None:
    """Refuse outputs that can't be written before any work is done."""
    for path in output["outputs"]:
        if path.suffix.lower() not in EXTENSIONS:
            raise UsageError(
                f"-o {path}: the extension does not name a format.",
                effect="Nothing was analysed.",
                next_step=f"Use one of {' '.join(sorted(EXTENSIONS))}.",
            )
        check_target(path, force=output["force"], inputs=inputs)


def deliver(
    document: Diagnosis, *, format_: str, outputs: Sequence[Path], force: bool, fail_on: str | None, color: str, quiet: bool
) -> int:
    """Write the document to its files and to standard output; 1 if the gate of `fail_on` is not met."""
    options = Options(width=_width(), color=_coloured(color))
    for path in outputs:
        write_file(path, RENDERERS[EXTENSIONS[path.suffix.lower()]](document, Options()), force=force)
    if not quiet:
        write_stdout(RENDERERS[format_](document, options), utf8=format_ != "text")
        if format_ == "text":
            for path in outputs:
                say(f"wrote {path}")
    return EXIT_GATE if fail_on and _reaches(document, fail_on) else 0


def _reaches(document: Diagnosis, level: str) -> bool:
    """True when a finding about the run (not about its capture) is at least that severe."""
    return any(LEVELS.index(finding.severity) >= LEVELS.index(level) for finding in document.findings if finding.wall != "capture")


def _width() -> int:
    """Width of the terminal; 100 where there is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Options().width
    import shutil  # noqa: PLC0415

    return shutil.get_terminal_size((Options().width, 24)).columns


def _coloured(choice: str) -> bool:
    """Whether to colour: as asked, else only for a terminal, heeding NO_COLOR and FORCE_COLOR."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Lines on standard error, made harmless; nothing if standard error is closed."""
    from diagnose.render.units import visible  # noqa: PLC0415

    with contextlib.suppress(OSError):
        for line in text.splitlines():
            click.echo(visible(line), err=True)
