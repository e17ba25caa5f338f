"""`diagnose patch`, and what `--patch` of the main command does after the diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.options import PATH, Group, JobFile, Reading, command_option, format_option, option, rules_option, takes
from diagnose.commands.output import check_target, print_document, progress, say, write_stdout
from diagnose.errors import JobFileError, PatchRefusedError, UsageError
from diagnose.version import __version__

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.knowledge.rulebook import Rulebook
    from diagnose.reason.patch import Patched, Wanted


class Change(Group):
    """The job file, what is changed in it, and where the result goes."""

    config: Path = option("--config", type=PATH, required=True, help="The job file to change.")
    job_command: str | None = command_option()
    fixes: tuple[str, ...] = option(
        "--fix",
        multiple=True,
        metavar="ID",
        help="Apply this fix, or the repair of this check. Repeatable. [default: of each finding the first applicable fix that leaves the numerics alone]",
    )
    checks: bool = option("--checks", is_flag=True, help="Repair what `diagnose check` says would fail, hang or silently be off.")
    output: Path | None = option("-o", "--output", type=PATH, help="Write the changed job file here. [default: only say what would change]")
    force: bool = option("--force", is_flag=True, help="Overwrite the file of -o.")


class PatchReading(Reading):
    """How traces are read; rules may be checks as well."""

    rules: tuple[Path, ...] = rules_option("rules, fixes and checks")


class PatchFormat(Group):
    """What standard output gets."""

    format: str = format_option("patch", "yaml: the changed file. ", besides=("yaml",))


@click.command()
@click.argument("traces", nargs=-1, metavar="[TRACE...]")
@takes(change=Change, reading=PatchReading, shown=PatchFormat)
def patch(traces: tuple[str, ...], change: Change, reading: Reading, shown: PatchFormat) -> int:
    """Change a job file as a diagnosis advises, and leave every other byte of it alone.

    With --fix a trace is not needed; fixes that depend on measured facts then count as unknown. A change that would break what a fix
    needs is refused (exit 2), and nothing is written.
    """
    if not traces and not change.fixes and not change.checks:
        next_step = "Give a TRACE, name a fix with --fix, or ask for --checks."
        raise UsageError("There is nothing to go by.", effect="Nothing was changed.", next_step=next_step)
    if change.output is not None:
        check_target(change.output, force=change.force, inputs=(change.config, *(Path(trace) for trace in traces if trace != "-")))
    with progress(shown=shown.format == "text") as report:
        job = JobFile(config=change.config, job_command=change.job_command, overrides=())
        book = _rulebook(change.config, change.job_command, reading.rules)
        document = reading.diagnose(traces, job, progress=report) if traces else None
    patched = apply(change.config, book, document, change.fixes, checks=change.checks, command=change.job_command)
    if change.output is not None:
        from diagnose.document.files import write_file  # noqa: PLC0415

        check_rewritten(patched)
        write_file(change.output, patched.text, force=change.force)
    if shown.format == "yaml":
        write_stdout(patched.text, utf8=True)
        return 0
    print_document(patched.report, shown.format)
    if shown.format == "text":
        hint = "; name a file with -o" if patched.report.rewritten else ""
        say(f"nothing was written{hint}" if change.output is None else f"wrote {change.output}")
    return 0


def patched_job(config: Path, rules: tuple[Path, ...], document: Diagnosis, command: str | None = None) -> Patched:
    """The job file at `config`, changed as the findings of `document` ask for. `rules`: the user's own beside those of the job file.

    Raises DiagnoseError.
    """
    return apply(config, _rulebook(config, command, rules), document, command=command)


def _rulebook(config: Path, command: str | None, rules: tuple[Path, ...]) -> Rulebook:
    """All rules: ours, those that the job file names, the user's own. Raises JobFileError, RuleFileError."""
    from diagnose.job.read import read_job  # noqa: PLC0415
    from diagnose.knowledge.load import load_rulebook  # noqa: PLC0415
    from diagnose.knowledge.settings import load_job_settings  # noqa: PLC0415

    return load_rulebook(tuple(dict.fromkeys((*read_job(config, load_job_settings(), command=command).rules, *rules))))


def check_rewritten(patched: Patched) -> None:
    """Refuse to write a file that holds none of the changes. Raises PatchRefusedError."""
    if not patched.report.rewritten:
        raise PatchRefusedError(
            f"{patched.report.source} is of a kind that is not rewritten, as are launch scripts, recipes and TOML.",
            effect="Nothing was written.",
            next_step="Run `diagnose patch` without -o, and give what it prints at launch.",
        )


def apply(
    config: Path,
    book: Rulebook,
    document: Diagnosis | None,
    fixes: tuple[str, ...] = (),
    *,
    checks: bool = False,
    command: str | None = None,
) -> Patched:
    """The job file at `config` with fixes applied: those named, else what the document's findings ask for; `checks`: what a check of it
    asks for before them. Raises DiagnoseError.
    """
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
    patcher = Patcher(book=book, tool=tool, facts={} if document is None else document.facts, folder=config.parent, command=command)
    if checks:
        wanted = (*patcher.wanted_by_checks(text, config.name), *wanted)
    return patcher.patch(text, config.name, wanted)


def _named(fixes: tuple[str, ...], book: Rulebook) -> tuple[Wanted, ...]:
    """Fixes that the user named, by id in any case. Raises UsageError."""
    from diagnose.reason.patch import Wanted  # noqa: PLC0415

    known = {key.lower(): key for key in (*book.fixes, *book.checks)}
    unknown = [fix for fix in fixes if fix.lower() not in known]
    if unknown:
        raise UsageError(
            f"--fix {unknown[0]}: no fix and no check has this id.",
            effect="Nothing was changed.",
            next_step="`diagnose rules` lists all fixes.",
        )
    return tuple(Wanted(fixes=(known[fix.lower()],)) for fix in fixes)
