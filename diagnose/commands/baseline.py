"""`diagnose baseline`: named baselines in a folder of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from diagnose.commands.deliver import write_stdout
from diagnose.commands.shared import PATH, coloured, measuring_options, say, width
from diagnose.errors import InputError
from diagnose.scale.choose import check_engine

_FOLDER = click.option("--folder", type=PATH, help="Where baselines are stored. [default: .diagnose/baselines of the repository]")


@click.group(no_args_is_help=True)
def baseline() -> None:
    """Store runs by name, for `compare --baseline NAME`.

    A baseline is a diagnosis in a folder of the repository, to be committed. One name may hold several: one for each job and kind of GPU.
    """


@baseline.command()
@click.argument("name")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--config", type=PATH, help="Job file of the traces.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file. Repeatable.")
@measuring_options
@_FOLDER
@click.option("--force", is_flag=True, help="Replace the baseline of this job and device.")
def save(
    name: str,
    inputs: tuple[str, ...],
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    folder: Path | None,
    force: bool,
    engine: str,
    jobs: int | None,
    scheduler: str | None,
    **measuring: Any,
) -> int:
    """Store a run: traces of it, or its saved diagnosis (.json). Host names are not kept."""
    from diagnose.commands import sides  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415
    from diagnose.scale.choose import engine_for  # noqa: PLC0415

    baselines.check_name(name)
    check_engine(engine, jobs=jobs, scheduler=scheduler)
    how = {**measuring, "engine": engine_for(engine, jobs=jobs, scheduler=scheduler), "progress": None, "notice": say}
    document = sides.one(inputs, config=config, overrides=overrides, how=how)
    path = baselines.save(folder_of(folder), name, document, force=force)
    say(f"saved {name} as {path}")
    if document.job is None:
        say("note: without a job file a baseline is told from others by the device and the number of ranks alone; give it with --config")
    return 0


@baseline.command("list")
@_FOLDER
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours on standard output. [default: auto]")
def list_baselines(*, folder: Path | None, format_: str, color: str) -> int:
    """List the stored baselines; exit 3 if one of them can't be read."""
    from diagnose.reason.compare import baselines  # noqa: PLC0415
    from diagnose.render import Options  # noqa: PLC0415
    from diagnose.render import baselines as shown  # noqa: PLC0415

    found = baselines.listed(folder_of(folder))
    options = Options(width=width(), color=coloured(color))
    write_stdout(shown.json(found) if format_ == "json" else shown.text(found, options), utf8=format_ == "json")
    return InputError.exit_code if any(one.problem for one in found) else 0


@baseline.command()
@click.argument("name")
@click.option("--fingerprint", help="Only the one of this job and device. [default: all of the name]")
@_FOLDER
def remove(name: str, *, fingerprint: str | None, folder: Path | None) -> int:
    """Remove a stored baseline."""
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    for one in baselines.remove(folder_of(folder), name, lambda stem: fingerprint in (None, stem)):
        say(f"removed {name}, {one}")
    return 0


def folder_of(folder: Path | None) -> Path:
    """Where baselines are: as asked, else in the repository that the current folder is in, else in the current folder."""
    from diagnose.commands.repository import root_of  # noqa: PLC0415
    from diagnose.reason.compare.baselines import FOLDER  # noqa: PLC0415

    return folder if folder is not None else (root_of(Path.cwd()) or Path.cwd()) / FOLDER
