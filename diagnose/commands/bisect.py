"""`diagnose bisect`: the commit, artefact or trace with which a metric changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.compare import Share
from diagnose.commands.shared import PATH, applied, check_outputs, measuring_options, page_options, say, written
from diagnose.errors import InputError, UsageError
from diagnose.render.bisection import EXTENSIONS
from diagnose.scale.choose import check_engine

if TYPE_CHECKING:
    from diagnose.bisect.candidates import Order
    from diagnose.bisect.log import Criteria, Experiment
    from diagnose.bisect.session import Options as SearchOptions
    from diagnose.document.bisection import BisectResult

REPEATS = 10
_OUTPUT = ("format_", "outputs", "force", "color", "quiet")
_UNANSWERED: tuple[BisectResult, ...] = ("ends_alike", "cannot_tell")


def _about(command: Any) -> Any:
    """What is searched, and how."""
    return applied(
        command,
        [
            click.option("--good", metavar="COMMIT|LABEL", help="The end where it was well."),
            click.option("--bad", metavar="COMMIT|LABEL", help="The end where it is not."),
            click.option(
                "--items",
                type=PATH,
                metavar="FILE",
                help="Search a list of artefacts instead of commits: one a line, or LABEL, a tab, ITEM.",
            ),
            click.option("--traces", metavar="PATTERN", help="Search traces that are there already, ordered by commit, time or name."),
            click.option(
                "--metric",
                default="step_time",
                metavar="NAME",
                help="What changed: step_time, a category, bucket:NAME, kernels, or any fact. [default: step_time]",
            ),
            click.option("--max-regression", type=Share(), metavar="SHARE", help="The ends must differ by more than this, such as 3%."),
            click.option(
                "--repeats",
                type=click.IntRange(min=1),
                help=f"Captures of one candidate at most, where noise asks for them. [default: {REPEATS}]",
            ),
            click.option("--first/--all", "first", default=None, help="Stop at the first step, or look for all. [default: --all]"),
            click.option(
                "--smallest-step", type=Share(), metavar="SHARE", help="Smallest step to look for. [default: a fifth of the difference]"
            ),
            click.option(
                "--noise",
                type=Share(),
                metavar="SHARE",
                help="Noise of a capture to begin with; what is seen soon outweighs it. [default: 1%]",
            ),
            click.option(
                "--trace", metavar="PATTERN", help="Where the command leaves its trace. [default: in the folder $DIAGNOSE_OUTPUT]"
            ),
            click.option(
                "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Skip a candidate that takes longer."
            ),
            click.option("--keep-untracked", is_flag=True, help="Keep untracked files between commits, for build caches."),
            click.option("--skip", multiple=True, metavar="COMMIT|LABEL", help="Leave a candidate out. Repeatable."),
            click.option(
                "--state", type=PATH, metavar="DIR", help="Folder of the search. [default: in .diagnose/bisect of the repository]"
            ),
            click.option("--resume", is_flag=True, help="Go on with a search that was interrupted; alone with the one that ran last."),
            click.option("--config", metavar="PATH", help="Job file; a relative path is looked for where the command runs."),
            click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file. Repeatable."),
        ],
    )


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@_about
@measuring_options
@page_options
def bisect(command: tuple[str, ...], **options: Any) -> int:
    """Find the commit, artefact or trace with which a metric changed, in as few runs as its noise allows.

    \b
    diagnose bisect --good v1.2 --bad main -- ./profile.sh {commit}
    diagnose bisect --items containers.txt -- ./profile.sh {item}
    diagnose bisect --traces 'nightly/*.sqlite'

    The command runs in a checkout of its own; yours is never touched. It builds, profiles, and leaves its trace in the folder that
    $DIAGNOSE_OUTPUT names ({trace} is a path in it, without an extension). Exit code 0: there is a trace; 125 or any other below 128:
    the candidate is skipped; 128 and more: stop. Everything is kept in the folder of --state; --resume goes on.

    Exit codes: 0 found, or narrowed down; 3 the ends are alike, or it can't be told; 130 interrupted, go on with --resume.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    _check(options)
    from diagnose.bisect import session  # noqa: PLC0415
    from diagnose.bisect.log import SearchFolder  # noqa: PLC0415
    from diagnose.bisect.numbers import load_numbers  # noqa: PLC0415
    from diagnose.commands.repository import root_of  # noqa: PLC0415
    from diagnose.render.bisection import RENDERERS, Options  # noqa: PLC0415

    here = Path.cwd()
    base = root_of(here) or here
    tell = (lambda _: None) if options["quiet"] else say
    state = None if options["state"] is None else options["state"].absolute()  # commands run in other folders than this
    if options["resume"] and not _names_candidates(options):
        experiment, folder = None, SearchFolder(state or session.latest(base))
    else:
        order, work = _order(options, command, here)
        experiment = _experiment(options, command, order)
        folder = SearchFolder(state or session.folder_for(experiment, base))
        if not options["resume"]:
            session.begin(folder.path, experiment, _criteria(options), order, work)
            tell(f"{len(order.entries)} candidates. {order.how} Everything is kept in {folder.path}")
    found = session.run(folder, experiment, lambda before: _criteria(options, before), _running(options), load_numbers(), tell)
    written(found, RENDERERS, Options(), **{name: options[name] for name in _OUTPUT})
    return InputError.exit_code if found.result in _UNANSWERED else 0


def _names_candidates(options: dict[str, Any]) -> bool:
    return any(options[name] is not None for name in ("good", "bad", "items", "traces"))


def _check(options: dict[str, Any]) -> None:
    """Refuse what does not go together, and outputs that can't be written, before any work. Raises UsageError."""
    check_engine(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"])
    if options["items"] is not None and options["traces"] is not None:
        raise UsageError("--items and --traces do not go together.", effect="Nothing was run.", next_step="Give one of them.")
    check_outputs(options, extensions=EXTENSIONS, format_="a format of a bisection", effect="Nothing was run.")


def _order(options: dict[str, Any], command: tuple[str, ...], here: Path) -> tuple[Order, Path]:
    """The candidates, and the folder that the search is about: the repository, or where the user is."""
    from diagnose.bisect import candidates, git  # noqa: PLC0415

    good, bad = options["good"], options["bad"]
    if options["items"] is not None:
        if command and not any("{item}" in word for word in command):
            raise UsageError("The command does not say {item}.", effect="It would do the same for every candidate; nothing was run.")
        return candidates.between(candidates.items(options["items"]), good, bad), here
    if options["traces"] is not None:
        if command:
            raise UsageError(
                "--traces reads what is there and runs no command.", effect="Nothing was run.", next_step="Use --items to run one."
            )
        return candidates.between(candidates.traces(options["traces"], here), good, bad), here
    if good is None or bad is None or not command:
        raise UsageError(
            "A search among commits needs --good, --bad and, after --, the command that profiles one of them.",
            effect="Nothing was run.",
            next_step="For example: diagnose bisect --good v1.2 --bad main -- ./profile.sh {commit}",
        )
    return candidates.commits(here, good, bad), git.top_of(here)


def _experiment(options: dict[str, Any], command: tuple[str, ...], order: Order) -> Experiment:
    from diagnose.bisect.log import Experiment  # noqa: PLC0415

    return Experiment(
        mode="items" if options["items"] is not None else "traces" if options["traces"] is not None else "commits",
        entries=order.entries,
        metric=options["metric"],
        command=command,
        trace=options["trace"],
        config=options["config"],
        overrides=options["overrides"],
        rules=tuple(str(path.absolute()) for path in options["rules"]),
        rank=options["rank"],
        step_range=options["step_range"],
        keep_untracked=options["keep_untracked"],
    )


def _criteria(options: dict[str, Any], before: Criteria | None = None) -> Criteria:
    """How trials are judged: as asked for now, else as before."""
    from diagnose.bisect.log import Criteria  # noqa: PLC0415

    old = before or Criteria(repeats=REPEATS)
    given = {
        "repeats": options["repeats"],
        "max_regression": options["max_regression"],
        "smallest": options["smallest_step"],
        "noise": options["noise"],
        "first": options["first"],
    }
    return Criteria(**{name: getattr(old, name) if value is None else value for name, value in given.items()})


def _running(options: dict[str, Any]) -> SearchOptions:
    from diagnose.bisect.session import Options  # noqa: PLC0415
    from diagnose.scale.choose import engine_for  # noqa: PLC0415

    return Options(
        timeout=options["timeout"],
        skip=options["skip"],
        nsys=options["nsys"],
        engine=engine_for(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"]),
        notice=None if options["quiet"] else say,
    )
