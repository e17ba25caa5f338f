"""`diagnose bisect-step`: good, bad or skip, in the language of `git bisect run`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from diagnose.commands.compare import Share
from diagnose.commands.shared import PATH, applied, measuring_options, say
from diagnose.errors import InputError, TerminatedError
from diagnose.scale.choose import check_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from diagnose.bisect.trial import Measuring
    from diagnose.document.diagnosis import Diagnosis

VERB = "bisect-step"
# Exit codes of our own errors under `git bisect run`: below 128 they would be taken for a verdict, and from 129 to 192 they stand for signals.
ABORTS: Mapping[int, int] = MappingProxyType({0: 141, 1: 193, 2: 194, 3: 195, 4: 196, 70: 198, 74: 202})
_ANYTHING = 198
_NOTHING = "Nothing was run, and git stops bisecting."


def aborting(code: int) -> int:
    """The exit code for an error that had another one: git stops, and takes it for no verdict. Those of interrupts stay."""
    return code if code >= 128 else ABORTS.get(code, _ANYTHING)


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
            click.option("--log", type=PATH, help="Keep in this file what the command printed last. [default: only its end is shown]"),
            click.option("--config", type=PATH, help="Job file of each commit's trace, and of a baseline that is a trace."),
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

    Exit codes, as git reads them: 0 good; 1 bad; 125 skip: the command failed or left no usable trace, it is not the same work, or the
    noise is larger than the effect. 128 and more stop git: what the command itself ended with, from 128 on; 130 interrupted; 129, 143
    terminated; 194 usage, job file or metric wrong; 195 the baseline can't be used; 196 data lost; 198 internal fault; 202 something could
    not be written.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    with _terminable():
        return _stepped(command, options)


def _stepped(command: tuple[str, ...], options: dict[str, Any]) -> int:
    check_engine(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"])
    from diagnose.bisect import git  # noqa: PLC0415
    from diagnose.bisect.log import Entry, Experiment  # noqa: PLC0415
    from diagnose.bisect.numbers import load_numbers  # noqa: PLC0415
    from diagnose.bisect.step import Step  # noqa: PLC0415
    from diagnose.bisect.trial import Measuring, StopRequestedError  # noqa: PLC0415
    from diagnose.scale.choose import engine_for  # noqa: PLC0415
    from diagnose.scale.prepare import prepare  # noqa: PLC0415

    given = {name: options[name] for name in ("config", "overrides", "rules", "step_range", "nsys")}
    prepare(**given)  # a wrong job file, rule or pattern shows before anything is run
    measuring = Measuring(
        config=None if options["config"] is None else str(options["config"]),
        overrides=options["overrides"],
        rules=options["rules"],
        rank=options["rank"],
        step_range=options["step_range"],
        nsys=options["nsys"],
        engine=engine_for(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"]),
        notice=say,
    )
    try:
        head = git.commit_of(Path.cwd(), "HEAD")
    except git.GitError:
        head = "HEAD"
    entry = Entry(label=head, subject="", item=head)
    step = Step(
        experiment=Experiment(mode="items", entries=(entry,), metric=options["metric"], command=command, trace=options["trace"]),
        measuring=measuring,
        baseline=_baseline(options, measuring),
        limit=options["max_regression"],
        repeats=options["repeats"],
        numbers=load_numbers(),
        say=say,
        timeout=options["timeout"],
        anyway=options["anyway"],
        log=options["log"],
    )
    try:
        return step.run(Path.cwd())
    except StopRequestedError as fault:
        say(f"stopped: {fault}")
        return fault.code


def _baseline(options: dict[str, Any], measuring: Measuring) -> Callable[[Diagnosis], list[tuple[str, Diagnosis]]]:
    """The good captures. Files are read at once, so that a wrong one is found before anything runs; which one of a stored name fits, only a first diagnosis tells. Raises InputError."""
    from diagnose.bisect.trial import UnusableError, document_of, values_of  # noqa: PLC0415
    from diagnose.commands.baseline import folder_of  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    folder = folder_of(options["folder"])
    files: dict[str, Diagnosis] = {}
    names: list[str] = []
    for name in options["baselines"]:
        if _is_run(name):
            try:
                files[name] = document_of([Path(name)], measuring, Path.cwd())
                values_of(files[name], options["metric"], None)
            except UnusableError as fault:
                raise InputError(f"--baseline {name} can't be used: {fault}", effect=_NOTHING) from fault
            continue
        baselines.check_name(name)
        if not any(one.name == name and not one.problem for one in baselines.listed(folder)):
            raise InputError(
                f"--baseline {name} is neither a file nor a baseline in {folder}.",
                effect=_NOTHING,
                next_step="Save what is good: diagnose TRACE -o good.json. Keep it outside of what git checks out, or untracked.",
            )
        names.append(name)

    def found(new: Diagnosis) -> list[tuple[str, Diagnosis]]:
        return [*files.items(), *((name, baselines.find(folder, name, new)) for name in names)]

    return found


def _is_run(text: str) -> bool:
    return any(sign in text for sign in "*?[/") or text.endswith(".json") or Path(text).exists()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process like Ctrl-C, so that what it started and wrote is cleared away."""
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    def stop(number: int, _: object) -> None:
        raise TerminatedError(number)

    ours = [signal.SIGTERM, signal.SIGHUP] if threading.current_thread() is threading.main_thread() else []
    before = {number: handler for number in ours if (handler := signal.getsignal(number)) is signal.SIG_DFL}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
