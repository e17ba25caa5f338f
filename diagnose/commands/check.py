"""`diagnose check`: a job file alone, without a trace."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands.options import PATH, Group, command_option, format_option, option, rules_option, set_option, takes
from diagnose.commands.output import EXIT_GATE, print_document
from diagnose.render import Options
from diagnose.version import __version__


class Checking(Group):
    """What a job file is checked for."""

    platform: str | None = option("--platform", help="Platform to check for, such as h100. [default: the job file's own]")
    overrides: tuple[str, ...] = set_option()
    job_command: str | None = command_option()
    rules: tuple[Path, ...] = rules_option("checks, rules and fixes")
    verbose: bool = option("-v", "--verbose", is_flag=True, help="Print every check that was not assessed, with what it needs.")
    format: str = format_option("check")


@click.command()
@click.argument("job", type=PATH, metavar="JOB")
@takes(checking=Checking)
def check(job: Path, checking: Checking) -> int:
    """Check a job file without a trace: what would fail, hang or silently be off.

    Exits with 1 when something would, with 0 when nothing would (doubtful results alone count as nothing).
    """
    from diagnose.document.diagnosis import Tool  # noqa: PLC0415
    from diagnose.job.read import read_job  # noqa: PLC0415
    from diagnose.knowledge.load import load_rulebook  # noqa: PLC0415
    from diagnose.knowledge.settings import load_job_settings  # noqa: PLC0415
    from diagnose.reason.checks import check as checked  # noqa: PLC0415
    from diagnose.render.report import ANSWER, EVERYTHING  # noqa: PLC0415

    settings = read_job(job, load_job_settings(), checking.overrides, command=checking.job_command)
    book = load_rulebook(tuple(dict.fromkeys((*settings.rules, *checking.rules))))
    report = checked(settings, book, Tool(name="diagnose", version=__version__, rules_sha256=book.sha256), checking.platform)
    print_document(report, checking.format, Options(detail=EVERYTHING if checking.verbose else ANSWER))
    return EXIT_GATE if report.failed else 0
