"""How a result reaches files and standard output, what is checked of files before that, and what is said on standard error."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.options import LEVELS, Detail, Output
from diagnose.errors import OutputError, UsageError, meant
from diagnose.render import Options, TypedFiles, extensions_for, format_of, kind_of, part_names, section_names, table_names, write

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.model.vocabulary import Level

EXIT_GATE = 1
_NUMBER = re.compile(r"-\d+$")  # of a part of which a report may have several


class ClosedPipeError(Exception):
    """The reader of standard output has gone; not a fault."""


def check_target(path: Path, *, force: bool, inputs: tuple[Path, ...] = ()) -> None:
    """Raise before any work is done if `path` can't or must not be written."""
    if not path.parent.is_dir():
        raise OutputError(
            f"The folder of {path} does not exist.", effect="Nothing was analysed.", next_step="Make it, or choose another -o."
        )
    for source in inputs:
        with contextlib.suppress(OSError):
            if path.exists() and path.samefile(source):
                raise UsageError(
                    f"{path} is an input.", effect="It would be overwritten; nothing was analysed.", next_step="Choose another -o."
                )
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", effect="Nothing was analysed.", next_step="Give -o the name of a file.")
    if not force and (path.exists() or path.is_symlink()):
        raise UsageError(f"{path} exists.", effect="Nothing was analysed.", next_step="Give --force to overwrite it, or choose another -o.")


def check_outputs(output: Output, inputs: tuple[Path, ...] = (), *, kind: str = "diagnosis", effect: str = "Nothing was analysed.") -> None:
    """Refuse outputs that can't be written before any work is done. `kind`: of the document that will be written."""
    for place, path in enumerate(output.output):
        if path in output.output[:place]:
            raise UsageError(f"-o {path} is given twice.", effect=effect, next_step="Name each file once.")
        if format_of(path, kind) is None:
            raise UsageError(
                f"-o {path}: the extension does not name a format{'' if kind == 'diagnosis' else f' of a {kind}'}.",
                effect=effect,
                next_step=f"Use one of {' '.join(sorted(extensions_for(kind)))}.",
            )
        check_target(path, force=output.force, inputs=inputs)


def check_sections(output: Output, kind: str, sections: tuple[str, ...] = ()) -> None:
    """Refuse parts that no report of this kind has, and CSV of which no table is named, before any work is done. Raises UsageError."""
    formats = [*(format_of(path, kind) for path in output.output), output.format]
    for path, format_name in zip(output.output, formats, strict=False):
        if format_name == "csv":
            _table(path, kind, sections)
    if output.format == "csv" and sections and not output.quiet:
        _table(None, kind, sections)
    parts = part_names(kind) if sections else ()
    known = {*parts, *(table_names(kind) if "csv" in formats else ())}
    unknown = next((name for name in sections if name not in known and _NUMBER.sub("", name) not in known), None)
    if unknown is not None:
        raise UsageError(
            f"--section {unknown}: the report of a {kind} has no such part.{meant(unknown, parts)}",
            effect="Nothing was done.",
            next_step=f"Use one of {', '.join(parts)}.",
        )


def _table(path: Path | None, kind: str, sections: tuple[str, ...]) -> str:
    """The table that a CSV file is named after, or the one of `--section`. Raises UsageError."""
    names = table_names(kind)
    given = [path.stem] if path is not None and path.stem in names else list(sections)
    if len(given) == 1 and given[0] in names:
        return given[0]
    near = meant((given or ["" if path is None else path.stem])[0], names)
    raise UsageError(
        f"{'--format csv' if path is None else f'-o {path}'} is one table, and none is named.{near}",
        effect="Nothing was written.",
        next_step=f"Call the file after it (-o findings.csv) or give --section NAME; the tables are {', '.join(names)}.",
    )


def write_document(
    document: Any,
    output: Output,
    *,
    config: Path | None = None,
    fail_on: Level | None = None,
    detail: Detail | None = None,
    typed: TypedFiles | None = None,
) -> None:
    """Write a document of any kind to its files and to standard output. `config`: the job file, for formats that point at its lines."""
    from diagnose.document.files import write_file  # noqa: PLC0415 - imports msgspec

    kind, sections = kind_of(document), () if detail is None else detail.sections
    check_sections(output, kind, sections)
    formats = [*(format_of(path, kind) or "" for path in output.output), output.format]
    parts = section_names(document) if sections else ()
    also = table_names(kind) if "csv" in formats else ()
    options = Options(
        job_file="" if config is None else path_in_repository(config),
        fail_on=fail_on,
        detail=0 if detail is None else detail.verbose,
        sections=tuple(name for name in sections if name in parts),
        light=output.light,
    )
    for path, format_name in zip(output.output, formats, strict=False):
        table = _table(path, kind, sections) if format_name == "csv" else ""
        write_file(path, write(document, format_name, options._replace(table=table)), force=output.force)
    if output.format == "github":
        _summarise(document, options)
    if not output.quiet:
        if output.format == "csv":
            options = options._replace(table=_table(None, kind, sections) if sections else "")
        if output.format != "text" or options.sections or not sections:  # else nothing that was asked for is there
            print_document(document, output.format, options._replace(width=width(), color=coloured(output.color), typed=typed))
        if output.format == "text":
            for path in output.output:
                say(f"wrote {path}")
    _refuse_unknown([name for name in sections if name not in {*parts, *also}], parts)


def _summarise(document: Any, options: Options) -> None:
    """Append the document to the summary of the GitHub job's step, where a runner names its file (GITHUB_STEP_SUMMARY).

    Raises OutputError.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    told, next_step = f"The step's summary {path} could not be written", "Unset GITHUB_STEP_SUMMARY, or make its folder writable."
    refusal = OutputError.where_refused(told, effect="The files of -o were written.", next_step=next_step)
    with refusal, Path(path).open("a", encoding="utf-8") as file:
        file.write(write(document, "markdown", options))


def print_document(document: Any, format_name: str, options: Options | None = None) -> None:
    """Write a document of any kind to standard output."""
    write_stdout(write(document, format_name, options), utf8=format_name != "text")


def _refuse_unknown(sections: Sequence[str], parts: Sequence[str]) -> None:
    """Refuse parts that reports of this kind may have and this one has not, which only now is known. Raises UsageError."""
    for name in sections:
        raise UsageError(
            f"--section {name}: this report has no such part.",
            effect="All else was written.",
            next_step=f"Use one of {', '.join(parts)}.",
        )


def write_diagnosis(
    document: Diagnosis,
    output: Output,
    *,
    config: Path | None,
    fail_on: Level | None,
    detail: Detail | None = None,
    typed: TypedFiles | None = None,
) -> int:
    """Write a diagnosis; the exit code: 1 if a finding about the run (not about its capture) is as severe as `fail_on`, or more."""
    write_document(document, output, config=config, fail_on=fail_on, detail=detail, typed=typed)
    levels = [LEVELS.index(finding.severity) for finding in document.findings if finding.wall != "capture"]
    return EXIT_GATE if fail_on and max(levels, default=-1) >= LEVELS.index(fail_on) else 0


def lost(document: Diagnosis) -> bool:
    """Whether data was lost while the trace was captured or read."""
    return any(entry.severity in ("data_loss", "error") for entry in document.ledger)


def write_stdout(text: str, *, utf8: bool = False) -> None:
    """Write and flush. With `utf8` the bytes are UTF-8 whatever the terminal speaks. Raises OutputError or ClosedPipeError."""
    out = sys.stdout
    if out is None:
        raise OutputError("Standard output is closed.", effect="The result was not written.", next_step="Use -o FILE.")
    encoding = "utf-8" if utf8 else out.encoding or "utf-8"
    try:
        out.flush()
        out.buffer.write(text.encode(encoding, errors="replace"))
        out.buffer.flush()
    except BrokenPipeError as fault:
        silence()
        raise ClosedPipeError from fault
    except OSError as fault:
        silence()
        raise OutputError(
            f"Standard output could not be written: {fault.strerror or fault}.",
            effect="The result is not complete.",
            next_step="Make room, or use -o FILE.",
        ) from fault


def silence() -> None:
    """Let the interpreter's last flush go nowhere instead of failing again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def say(text: str) -> None:
    """Lines on standard error, made harmless; nothing if standard error is closed."""
    from diagnose.model.names import visible  # noqa: PLC0415

    with contextlib.suppress(OSError):
        for line in text.splitlines():
            click.echo(visible(line), err=True)


@contextlib.contextmanager
def progress(*, shown: bool) -> Iterator[Callable[[str], None] | None]:
    """A callback for progress messages: a spinner on standard error that appears when work takes longer than half a second.

    None where it is not `shown` or nobody watches.
    """
    if not shown or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from threading import Timer  # noqa: PLC0415 - both only where a person watches

    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from diagnose.model.names import visible  # noqa: PLC0415

    status = Console(stderr=True, markup=False, highlight=False).status(Text("starting"))
    timer = Timer(0.5, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda message: status.update(Text(visible(message)))
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def width() -> int:
    """Width of the terminal in characters; 100 where there is none."""
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


# --- the user's repository: outputs for CI runners name files by their path within it -------------------------------------


def root_of(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a repository (`.git`, a folder or a file); None outside of any."""
    here = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links out of the repository
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def path_in_repository(path: Path) -> str:
    """A file's path within its repository, with `/`. Outside of any: as given where that is a path below the current folder, else empty."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - as above
    root = root_of(whole.parent)
    base = root if root is not None else Path.cwd()
    return str(PurePosixPath(whole.relative_to(base))) if whole.is_relative_to(base) else ""
