"""`diagnose baseline`: named baselines in a folder of the repository."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands import sides
from diagnose.commands.options import Group, JobFile, Measuring, color_option, folder_option, format_option, option, takes
from diagnose.commands.output import coloured, print_document, root_of, say, width
from diagnose.errors import InputError


class Store(Group):
    """Where baselines are."""

    folder: Path | None = folder_option()

    @property
    def path(self) -> Path:
        """As asked, else in the repository that the current folder is in, else in the current folder."""
        from diagnose.reason.compare.baselines import FOLDER  # noqa: PLC0415

        return self.folder if self.folder is not None else (root_of(Path.cwd()) or Path.cwd()) / FOLDER


class Saving(Store):
    """Where a baseline goes."""

    force: bool = option("--force", is_flag=True, help="Replace the baseline of this job and device.")


class Listing(Store):
    """Which baselines are listed, and how."""

    format: str = format_option("baselines")
    color: str = color_option()


class Removal(Store):
    """Which baselines of a name are removed."""

    fingerprint: str | None = option(
        "--fingerprint", help="Only the one of this job and device. [default: all of the name]", before="folder"
    )


@click.group(no_args_is_help=True)
def baseline() -> None:
    """Store runs by name, for `compare --baseline NAME`.

    A baseline is a diagnosis in a folder of the repository, to be committed. One name may hold several: one for each job and kind of GPU.
    """


@baseline.command()
@click.argument("name")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@takes(job=JobFile, measuring=Measuring, saving=Saving)
def save(name: str, inputs: tuple[str, ...], job: JobFile, measuring: Measuring, saving: Saving) -> int:
    """Store a run: traces of it, or its saved diagnosis (.json). Host names are not kept."""
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    baselines.check_name(name)
    measuring.check()
    document = sides.run_document(inputs, job, measuring)
    path = baselines.save(saving.path, name, document, load_comparison_rules(measuring.rules), force=saving.force)
    say(f"saved {name} as {path}")
    if document.job is None:
        say("note: without a job file a baseline is told from others by the device and the number of ranks alone; give it with --config")
    return 0


@baseline.command("list")
@takes(listing=Listing)
def list_baselines(listing: Listing) -> int:
    """List the stored baselines; exit 3 if one of them can't be read."""
    from diagnose.document.baselines import Baselines  # noqa: PLC0415
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415
    from diagnose.render import Options  # noqa: PLC0415

    stored = Baselines(entries=tuple(baselines.listed(listing.path, load_comparison_rules())))
    print_document(stored, listing.format, Options(width=width(), color=coloured(listing.color)))
    return InputError.exit_code if any(entry.problem for entry in stored.entries) else 0


@baseline.command()
@click.argument("name")
@takes(removal=Removal)
def remove(name: str, removal: Removal) -> int:
    """Remove a stored baseline."""
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    for fingerprint in baselines.remove(removal.path, name, lambda stem: removal.fingerprint in (None, stem)):
        say(f"removed {name}, {fingerprint}")
    return 0
