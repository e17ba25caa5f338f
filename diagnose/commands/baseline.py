"""`diagnose baseline`: the last runs of a job, stored by name in a folder of the repository or anywhere else."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands import sides
from diagnose.commands.options import Group, JobFile, Measuring, color_option, format_option, option, store_option, takes
from diagnose.commands.output import coloured, print_document, root_of, say, width
from diagnose.errors import DiagnoseError, InputError

if TYPE_CHECKING:
    from diagnose.knowledge.comparison import ComparisonRules
    from diagnose.reason.compare import baselines

_COMMIT = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")  # the variables of GitHub, GitLab and Jenkins that name the commit
_SHOWN_DIGITS = 12  # of a commit


class Store(Group):
    """Where baselines are."""

    store: Path | None = store_option()

    @property
    def path(self) -> Path:
        """As asked, else in the repository that the current folder is in, else in the current folder."""
        from diagnose.reason.compare.baselines import FOLDER  # noqa: PLC0415

        return self.store if self.store is not None else (root_of(Path.cwd()) or Path.cwd()) / FOLDER

    @property
    def store_words(self) -> str:
        """What a command says besides to mean the same store; nothing for the usual one."""
        return "" if self.store is None else f" --store {shlex.quote(str(self.store))}"

    def opened(self, rules: ComparisonRules | None = None) -> baselines.Store:
        """The store; `rules` where they were read already."""
        from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
        from diagnose.reason.compare import baselines  # noqa: PLC0415

        return baselines.Store(folder=self.path, rules=rules or load_comparison_rules(), option=self.store_words)


class Adding(Store):
    """Where a run goes, what is told of it, and how many are kept."""

    keep: int = option("--keep", type=click.IntRange(min=1), default=10, help="Runs that are kept of this job and GPU. [default: 10]")
    date: datetime | None = option(
        "--date",
        type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S%z"]),
        metavar="WHEN",
        help="When it ran, such as 2026-01-31 (UTC). [default: when its file was written]",
    )
    commit: str | None = option("--commit", metavar="SHA", help="Commit that ran. [default: the CI runner's, else HEAD of this repository]")
    host_class: str | None = option("--host-class", metavar="TEXT", help="Kind of host that it ran on, such as a partition.")
    replace_: bool = option("--replace", is_flag=True, help="Forget the runs of this job and GPU that were stored before.")


class Listing(Store):
    """Which baselines are listed, and how."""

    format: str = format_option("baselines")
    color: str = color_option()


class Removal(Store):
    """Which runs of a name are removed."""

    fingerprint: str | None = option("--fingerprint", help="Only those of this job and device. [default: all of the name]", before="store")
    run: str | None = option("--run", metavar="RUN", help="Only this run, as `baseline show` names it.", before="store")


@click.group(no_args_is_help=True)
def baseline() -> None:
    """Store runs by name, for `gate --baseline NAME` and `compare --baseline NAME`.

    A baseline is the last runs of a job: several tell how much runs differ by chance. Each run is a file (its diagnosis, date and commit)
    in a folder of the repository, to be committed, or in any other. One name may hold several jobs and kinds of GPU.
    """


@baseline.command()
@click.argument("name")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@takes(job=JobFile, measuring=Measuring, adding=Adding)
def add(name: str, runs: tuple[str, ...], job: JobFile, measuring: Measuring, adding: Adding) -> int:
    """Store runs, and keep the last ten of a job and GPU.

    Each RUN is a run of its own: a trace, a folder or quoted pattern of several ranks' traces, or a saved diagnosis (.json). Host names are
    not kept.
    """
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    baselines.check_name(name)
    measuring.check()
    rules = load_comparison_rules(measuring.rules)
    store, commit = adding.opened(rules), adding.commit or _commit()
    for index, one in enumerate(runs):
        document = sides.run_document((one,), job, measuring)
        fingerprint = baselines.fingerprint(document, rules)
        if adding.replace_ and index == 0 and any(row.fingerprint == fingerprint for row in store.listed(name)):
            store.remove(name, fingerprint)
        added = store.add(
            name,
            document,
            date=adding.date.replace(tzinfo=adding.date.tzinfo or UTC) if adding.date is not None else _written(Path(one)),
            commit=commit,
            host_class=adding.host_class,
            label=Path(one).name,
            keep=adding.keep,
        )
        if added.known:
            say(f"{name} holds {one} already, as {added.path}")
            continue
        at = f", commit {commit[:_SHOWN_DIGITS]}" if commit else ""
        gone = f"; {added.dropped} older {'run was' if added.dropped == 1 else 'runs were'} dropped" if added.dropped else ""
        say(f"added to {name} as {added.path}{at}{gone}")
        if document.job is None and index == 0:
            say(
                "note: without a job file a baseline is told from others by the device and the number of ranks alone; give it with --config"
            )
    return 0


def _written(path: Path) -> datetime:
    """When the file of a run was written; of a pattern, or one that can't be asked, now."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return datetime.now(UTC)


def _commit() -> str | None:
    """The commit that a CI runner names, else HEAD of the repository that the current folder is in; None outside of any."""
    told = next((os.environ[name] for name in _COMMIT if os.environ.get(name)), None)
    if told is not None or root_of(Path.cwd()) is None:
        return told
    from diagnose.bisect import git  # noqa: PLC0415

    try:
        return git.commit_of(Path.cwd(), "HEAD")
    except DiagnoseError:  # a repository without a commit, or no git
        return None


def _print(listing: Listing, name: str | None) -> int:
    from diagnose.document.baselines import Baselines  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415
    from diagnose.render import Options  # noqa: PLC0415

    if name is not None:
        baselines.check_name(name)
    store = listing.opened()
    stored = Baselines(entries=store.listed(name), detail=name is not None, store=store.option)
    if name is not None and not stored.entries:
        raise store.lacks(name)
    print_document(stored, listing.format, Options(width=width(), color=coloured(listing.color)))
    return InputError.exit_code if any(entry.problem for entry in stored.entries) else 0


@baseline.command("list")
@takes(listing=Listing)
def list_baselines(listing: Listing) -> int:
    """List the stored baselines; exit 3 if one of them can't be read."""
    return _print(listing, None)


@baseline.command()
@click.argument("name")
@takes(listing=Listing)
def show(name: str, listing: Listing) -> int:
    """Show every run of a stored baseline; exit 3 if one of them can't be read."""
    return _print(listing, name)


@baseline.command()
@click.argument("name")
@takes(removal=Removal)
def remove(name: str, removal: Removal) -> int:
    """Remove a stored baseline, or runs of it."""
    for fingerprint, run in removal.opened().remove(name, removal.fingerprint, removal.run):
        say(f"removed {name}, {fingerprint}{'' if run == fingerprint else f', {run}'}")
    return 0
