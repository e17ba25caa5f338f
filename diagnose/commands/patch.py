"""`diagnose patch`, and what `--patch` of the main command does after the diagnosis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose import __version__
from diagnose.commands.deliver import check_target, progress, write_stdout
from diagnose.commands.shared import PATH, say
from diagnose.document.files import write_file
from diagnose.errors import JobFileError, PatchRefusedError, UsageError

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.knowledge.rulebook import Rulebook
    from diagnose.reason.patch import Patched, Wanted


@click.command()
@click.argument("traces", nargs=-1, metavar="[TRACE...]")
@click.option("--config", type=PATH, required=True, help="The job file to change.")
@click.option(
    "--fix", "fixes", multiple=True, metavar="ID", help="Apply this fix. Repeatable. [default: the first applicable fix of each finding]"
)
@click.option("-o", "--output", type=PATH, help="Write the changed job file here. [default: only say what would change]")
@click.option("--force", is_flag=True, help="Overwrite the file of -o.")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules, fixes and checks. Repeatable.")
@click.option("--rank", type=click.IntRange(min=0), help="Rank of a trace that does not tell it.")
@click.option("--step-range", metavar="PATTERN", help="Pattern for the ranges that mark a step.")
@click.option("--nsys", type=PATH, help="The nsys to export .nsys-rep files with. [default: the one found]")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json", "yaml"]), default="text", help="yaml: the changed file. [default: text]"
)
def patch(
    traces: tuple[str, ...],
    *,
    config: Path,
    fixes: tuple[str, ...],
    output: Path | None,
    force: bool,
    rules: tuple[Path, ...],
    format_: str,
    **options: Any,
) -> int:
    """Change a job file as a diagnosis advises, and leave every other byte of it alone.

    With --fix a trace is not needed; fixes that depend on measured facts then count as unknown. A change that would break what a fix
    needs is refused (exit 2), and nothing is written.
    """
    if not traces and not fixes:
        raise UsageError("There is nothing to go by.", effect="Nothing was changed.", next_step="Give a TRACE, or name a fix with --fix.")
    if output is not None:
        check_target(output, force=force, inputs=(config, *(Path(trace) for trace in traces if trace != "-")))
    with progress(shown=sys.stderr.isatty() and format_ == "text") as report:
        from diagnose.job import read_job  # noqa: PLC0415
        from diagnose.knowledge.rulebook import load_rulebook  # noqa: PLC0415
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

        rules = (*read_job(config).rules, *rules)
        book = load_rulebook(tuple(dict.fromkeys(rules)))
        document = diagnose(traces, config=config, rules=rules, progress=report, **options) if traces else None
    patched = apply(config, book, document, fixes)
    if output is not None:
        check_rewritten(patched)
        write_file(output, patched.text, force=force)
    if format_ == "yaml":
        write_stdout(patched.text, utf8=True)
        return 0
    from diagnose.render import check  # noqa: PLC0415
    from diagnose.render import patch as rendering  # noqa: PLC0415

    write_stdout(rendering.text(patched.report) if format_ == "text" else check.json(patched.report), utf8=format_ == "json")
    if format_ == "text":
        say(f"wrote {output}" if output is not None else "nothing was written; name a file with -o")
    return 0


def check_rewritten(patched: Patched) -> None:
    """Refuse to write a file that holds none of the changes. Raises PatchRefusedError."""
    if not patched.report.rewritten:
        raise PatchRefusedError(
            f"{patched.report.source} is a launch script, a recipe's command line or TOML, which is not rewritten.",
            effect="Nothing was written.",
            next_step="Run `diagnose patch` without -o, and give what it prints at launch.",
        )


def apply(config: Path, book: Rulebook, document: Diagnosis | None, fixes: tuple[str, ...] = ()) -> Patched:
    """The job file at `config` with fixes applied: those named, else what the document's findings ask for. Raises DiagnoseError."""
    from diagnose.document.diagnosis import Tool  # noqa: PLC0415
    from diagnose.reason.patch import Patcher, wanted_by  # noqa: PLC0415

    try:
        text = config.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(
            f"The job file {config} cannot be read: {error}.", effect="Nothing was changed.", next_step="Give --config a YAML file."
        ) from error
    wanted = _named(fixes, book) if fixes or document is None else wanted_by(document)
    tool = Tool(name="diagnose", version=__version__, rules_sha256=book.sha256)
    patcher = Patcher(book=book, tool=tool, facts={} if document is None else document.facts)
    return patcher.patch(text, config.name, wanted)


def _named(fixes: tuple[str, ...], book: Rulebook) -> tuple[Wanted, ...]:
    """Fixes that the user named, by id in any case. Raises UsageError."""
    from diagnose.reason.patch import Wanted  # noqa: PLC0415

    known = {key.lower(): key for key in book.fixes}
    unknown = [fix for fix in fixes if fix.lower() not in known]
    if unknown:
        raise UsageError(
            f"--fix {unknown[0]}: no fix has this id.", effect="Nothing was changed.", next_step="`diagnose rules` lists all fixes."
        )
    return tuple(Wanted(fixes=(known[fix.lower()],)) for fix in fixes)
