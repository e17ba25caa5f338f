"""`diagnose bisect-step`: good, bad or skip, in the language of `git bisect run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.compare import Share
from diagnose.commands.shared import PATH, applied, measuring_options, say
from diagnose.errors import UsageError
from diagnose.scale.choose import check_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.bisect.measure import How
    from diagnose.diagnosis import Diagnosis

VERB = "bisect-step"
EXIT_STOP = 128  # from here on git stops its bisection instead of taking the code for an answer
_ANSWERS = (0, 1, 125)
_NOTHING = "Nothing was run, and git stops bisecting."


def for_git(status: int) -> int:
    """An exit code that git understands: 0 good, 1 bad, 125 can't tell; whatever else went wrong on our side stops git's bisection instead of being taken for an answer."""
    return status if status in _ANSWERS or status >= EXIT_STOP else EXIT_STOP


def _about(command: Any) -> Any:
    return applied(
        command,
        [
            click.option(
                "--baseline",
                "baselines",
                multiple=True,
                required=True,
                metavar="FILE|NAME",
                help="Good capture: a saved diagnosis, a trace, or a stored baseline. Repeatable: several tell its noise.",
            ),
            click.option("--folder", type=PATH, help="Where baselines are stored. [default: .diagnose/baselines of the repository]"),
            click.option(
                "--metric",
                default="step_time",
                metavar="NAME",
                help="step_time, a category, bucket:NAME, kernels, or any fact. [default: step_time]",
            ),
            click.option(
                "--max-regression",
                type=Share(),
                default="3%",
                metavar="SHARE",
                help="A commit is bad if it is worse by more than this. [default: 3%]",
            ),
            click.option(
                "--repeats",
                type=click.IntRange(min=1),
                default=5,
                help="Runs of one commit at most, where noise asks for them. [default: 5]",
            ),
            click.option(
                "--trace", metavar="PATTERN", help="Where the command leaves its trace. [default: in the folder $DIAGNOSE_OUTPUT]"
            ),
            click.option(
                "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Skip a commit that takes longer."
            ),
            click.option("--config", metavar="PATH", help="Job file of each commit's trace, and of a baseline that is a trace."),
            click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of the job file. Repeatable."),
            click.option("--anyway", is_flag=True, help="Judge although it is not the same work as the baseline."),
        ],
    )


@click.command(VERB, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@_about
@measuring_options
def bisect_step(command: tuple[str, ...], **options: Any) -> int:
    """Say whether the checked-out commit is good or bad: for git bisect run.

    \b
    git bisect run diagnose bisect-step --baseline good.json --max-regression 3% -- ./profile.sh

    The command builds, profiles, and leaves its trace in the folder that $DIAGNOSE_OUTPUT names. It is run again while noise leaves the
    answer open, up to --repeats times.

    Exit codes: 0 good; 1 bad; 125 it can't be judged (the command failed, the trace is unusable, not the same work, or the noise is larger
    than the effect); 128 and more, which stop git: a wrong command line or baseline, an interruption, a command that asks for it.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    check_engine(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"])
    from diagnose.bisect import git  # noqa: PLC0415
    from diagnose.bisect.journal import Asked, Entry  # noqa: PLC0415
    from diagnose.bisect.measure import How  # noqa: PLC0415
    from diagnose.bisect.numbers import load_numbers  # noqa: PLC0415
    from diagnose.bisect.runs import AskedToStopError  # noqa: PLC0415
    from diagnose.bisect.step import Step  # noqa: PLC0415
    from diagnose.scale.choose import engine_for  # noqa: PLC0415

    measuring = {
        "rank": options["rank"],
        "step_range": options["step_range"],
        "nsys": options["nsys"],
        "engine": engine_for(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"]),
        "notice": say,
    }
    how = How(config=options["config"], overrides=options["overrides"], rules=options["rules"], options=measuring)
    try:
        head = git.commit_of(Path.cwd(), "HEAD")
    except git.GitError:
        head = "HEAD"
    entry = Entry(label=head, subject="", item=head)
    step = Step(
        asked=Asked(mode="items", entries=(entry,), metric=options["metric"], command=command, trace=options["trace"]),
        how=how,
        baseline=_baseline(options, how),
        limit=options["max_regression"],
        repeats=options["repeats"],
        numbers=load_numbers(),
        say=say,
        timeout=options["timeout"],
        anyway=options["anyway"],
    )
    try:
        return step.run(Path.cwd())
    except AskedToStopError as fault:
        say(f"the command ended with exit code {fault.code}, which stops the bisection")
        return fault.code


def _baseline(options: dict[str, Any], how: How) -> Callable[[Diagnosis], list[tuple[str, Diagnosis]]]:
    """The good captures. Files are read at once, so that a wrong one is found before anything runs; which one of a stored name fits, only a first diagnosis tells. Raises UsageError or InputError."""
    from diagnose import baselines  # noqa: PLC0415
    from diagnose.bisect import measure  # noqa: PLC0415
    from diagnose.commands.baseline import folder_of  # noqa: PLC0415

    folder = folder_of(options["folder"])
    files: dict[str, Diagnosis] = {}
    names: list[str] = []
    for name in options["baselines"]:
        path = Path(name)
        if path.exists():
            try:
                files[name] = measure.document_of([path], how, Path.cwd())
                measure.values_of(files[name], options["metric"], None)
            except measure.UnusableError as fault:
                raise UsageError(f"--baseline {name} can't be used: {fault}", effect=_NOTHING) from fault
        elif any((folder / baselines.check_name(name)).glob("*.json")):
            names.append(name)
        else:
            raise UsageError(
                f"--baseline {name} is neither a file nor a stored baseline.",
                effect=_NOTHING,
                next_step="`diagnose baseline list` shows all.",
            )

    def found(new: Diagnosis) -> list[tuple[str, Diagnosis]]:
        return [*files.items(), *((name, baselines.find(folder, name, new)) for name in names)]

    return found
