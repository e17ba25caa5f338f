"""What several verbs share: the options for outputs, reading saved documents, writing results."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.deliver import check_target, write_stdout
from diagnose.document.files import write_file
from diagnose.errors import InputError, UsageError
from diagnose.render import EXTENSIONS, RENDERERS, Options
from diagnose.render.registry import PAGES
from diagnose.scale.choose import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.document.diagnosis import Diagnosis
    from diagnose.model.vocabulary import Level

EXIT_GATE = 1
LEVELS = ("low", "medium", "high")
PATH = click.Path(path_type=Path)


def applied(command: Any, options: Sequence[Any]) -> Any:
    """A command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def _format(names: Sequence[str]) -> Any:
    return click.option(
        "--format", "format_", type=click.Choice(list(names)), default="text", help="Format of standard output. [default: text]"
    )


def _outputs(extensions: str) -> Any:
    return click.option(
        "-o",
        "--output",
        "outputs",
        type=PATH,
        multiple=True,
        help=f"Write a file too; format by extension: {extensions}. Repeatable.",
    )


_PAGES = ".html .json .md .txt"
_FORMAT, _OUTPUTS = _format(list(RENDERERS)), _outputs(f"{_PAGES} .xml (JUnit) .sarif")
_FORCE = click.option("--force", is_flag=True, help="Overwrite files of -o.")
_FAIL_ON = click.option("--fail-on", type=click.Choice(LEVELS), help="Exit 1 if a finding is that severe or more.")
_COLOR = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours on standard output. [default: auto]"
)
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; for use with -o.")


def page_options(command: Any) -> Any:
    """The same as `writing_options` for a document that CI runners have no format for."""
    return applied(command, [_format(PAGES), _outputs(_PAGES), _FORCE, _COLOR, _QUIET])


def writing_options(command: Any) -> Any:
    """The options that say where a document goes, and in which format."""
    return applied(command, [_FORMAT, _OUTPUTS, _FORCE, _COLOR, _QUIET])


def output_options(command: Any) -> Any:
    """The options that say where a diagnosis goes, and which findings fail it."""
    return applied(command, [_FORMAT, _OUTPUTS, _FORCE, _FAIL_ON, _COLOR, _QUIET])


def measuring_options(command: Any) -> Any:
    """The options that say how traces are measured, where they are not the first thing that a verb is about."""
    return applied(
        command,
        [
            click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules, fixes and buckets. Repeatable."),
            click.option("--rank", type=click.IntRange(min=0), help="Rank of a trace that does not tell it."),
            click.option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step."),
            click.option("--nsys", type=PATH, help="The nsys to export .nsys-rep files with. [default: the one found]"),
            click.option("--jobs", type=click.IntRange(min=1), help="Traces measured at once. [default: one per processor]"),
            click.option(
                "--engine", type=click.Choice(ENGINES), default="local", help="Where: processes here, or Dask workers. [default: local]"
            ),
            click.option("--scheduler", metavar="ADDRESS|FILE", help="Dask scheduler that runs already. [default: a cluster of our own]"),
        ],
    )


def read_diagnosis(path: Path) -> Diagnosis:
    """A diagnosis from its JSON file. Raises InputError."""
    from diagnose.document.diagnosis import SCHEMA, Diagnosis  # noqa: PLC0415
    from diagnose.document.files import read  # noqa: PLC0415

    found = read(path, (SCHEMA,))
    if not isinstance(found, Diagnosis):
        raise InputError(f"{path} is not a diagnosis.", effect="Nothing was written.")
    return found


def check_outputs(
    output: dict[str, Any],
    inputs: tuple[Path, ...] = (),
    *,
    extensions: Mapping[str, str] = EXTENSIONS,
    format_: str = "a format",
    effect: str = "Nothing was analysed.",
) -> None:
    """Refuse outputs that can't be written before any work is done. `extensions`: those that the document has, `format_` what they name."""
    for path in output["outputs"]:
        if path.suffix.lower() not in extensions:
            raise UsageError(
                f"-o {path}: the extension does not name {format_}.", effect=effect, next_step=f"Use one of {' '.join(sorted(extensions))}."
            )
        check_target(path, force=output["force"], inputs=inputs)


def deliver(
    document: Diagnosis,
    *,
    format_: str,
    outputs: Sequence[Path],
    force: bool,
    fail_on: Level | None,
    color: str,
    quiet: bool,
    config: Path | None = None,
) -> int:
    """Write the diagnosis to its files and to standard output; 1 if the gate of `fail_on` is not met. `config`: the job file, for outputs that point at its lines."""
    from diagnose.commands.repository import path_in_repository  # noqa: PLC0415

    job_file = "" if config is None else path_in_repository(config)
    written(
        document,
        RENDERERS,
        Options(job_file=job_file, fail_on=fail_on),
        format_=format_,
        outputs=outputs,
        force=force,
        color=color,
        quiet=quiet,
    )
    return EXIT_GATE if fail_on and _reaches(document, fail_on) else 0


def written(
    document: Any,
    renderers: Mapping[str, Callable[[Any, Options], str]],
    options: Options,
    *,
    format_: str,
    outputs: Sequence[Path],
    force: bool,
    color: str,
    quiet: bool,
) -> None:
    """Write a document of any kind to its files and to standard output."""
    for path in outputs:
        write_file(path, renderers[EXTENSIONS[path.suffix.lower()]](document, options), force=force)
    if quiet:
        return
    shown = replace(options, width=width(), color=coloured(color))
    write_stdout(renderers[format_](document, shown), utf8=format_ != "text")
    if format_ == "text":
        for path in outputs:
            say(f"wrote {path}")


def _reaches(document: Diagnosis, level: str) -> bool:
    """True when a finding about the run (not about its capture) is at least that severe."""
    return any(LEVELS.index(finding.severity) >= LEVELS.index(level) for finding in document.findings if finding.wall != "capture")


def lost(document: Diagnosis) -> bool:
    """Whether data was lost while the trace was captured or read."""
    return any(entry.severity in ("data_loss", "error") for entry in document.ledger)


def width() -> int:
    """Width of the terminal; 100 where there is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Options().width
    import shutil  # noqa: PLC0415

    return shutil.get_terminal_size((Options().width, 24)).columns


def coloured(choice: str) -> bool:
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
