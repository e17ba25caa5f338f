"""`diagnose check`: a job file alone, without a trace."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose import __version__
from diagnose.commands.deliver import write_stdout
from diagnose.commands.shared import EXIT_GATE, PATH


@click.command()
@click.argument("job", type=PATH, metavar="JOB")
@click.option("--platform", help="Platform to check for, such as h100. [default: the job file's own]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file. Repeatable.")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own checks, rules and fixes. Repeatable.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
def check(job: Path, platform: str | None, overrides: tuple[str, ...], rules: tuple[Path, ...], format_: str) -> int:
    """Check a job file without a trace: what would fail, hang or silently be off.

    Exits with 1 when something would, with 0 when nothing would (doubtful results alone count as nothing).
    """
    from diagnose.document.diagnosis import Tool  # noqa: PLC0415
    from diagnose.job import read_job  # noqa: PLC0415
    from diagnose.knowledge.rulebook import load_rulebook  # noqa: PLC0415
    from diagnose.reason.checks import check as checked  # noqa: PLC0415
    from diagnose.render import check as rendering  # noqa: PLC0415

    found = read_job(job, overrides)
    book = load_rulebook(tuple(dict.fromkeys((*found.rules, *rules))))
    report = checked(found, book, Tool(name="diagnose", version=__version__, rules_sha256=book.sha256), platform)
    write_stdout(rendering.text(report) if format_ == "text" else rendering.json(report), utf8=format_ == "json")
    return EXIT_GATE if report.failed else 0
