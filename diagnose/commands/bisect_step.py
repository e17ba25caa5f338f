"""`diagnose bisect-step`: good, bad or skip, in the language of `git bisect run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.baseline import Store
from diagnose.commands.options import (
    COMMAND,
    NOISE,
    PATH,
    USUAL,
    JobFile,
    Measuring,
    Share,
    Verb,
    metric_option,
    option,
    takes,
    timeout_option,
    trace_option,
)
from diagnose.commands.output import say
from diagnose.commands.verbs import BISECT_STEP
from diagnose.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.bisect.trial import TraceOptions
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.knowledge.comparison import ComparisonRules

# Exit codes of our own errors under `git bisect run`: below 128 they would be taken for a verdict, and from 129 to 192 they stand for
# signals.
ABORTS: Mapping[int, int] = {0: 141, 1: 193, 2: 194, 3: 195, 4: 196, 70: 198, 74: 202}
_ANYTHING = 198
_NOTHING = "Nothing was run, and git stops bisecting."


def aborting(code: int) -> int:
    """The exit code for an error that had another one: git stops, and takes it for no verdict. Those of interrupts stay."""
    return code if code >= 128 else ABORTS.get(code, _ANYTHING)


class Limit(Store):
    """The good captures, and when a commit is worse than they are."""

    baselines: tuple[str, ...] = option(
        "--baseline",
        panel=USUAL,
        multiple=True,
        required=True,
        metavar="FILE|NAME",
        help="Good capture: a saved diagnosis, a trace, or a stored baseline. Repeatable: several tell its noise.",
        before="store",
    )
    metric: str = metric_option()
    max_regression: float = option(
        "--max-regression",
        panel=USUAL,
        type=Share(),
        default="3%",
        metavar="SHARE",
        help="A commit is bad if it is worse by more than this. [default: 3%]",
    )
    repeats: int = option(
        "--repeats",
        panel=NOISE,
        type=click.IntRange(min=1),
        metavar="N",
        default=5,
        help="Runs of one commit at most, where noise asks for them. [default: 5]",
    )
    trace: str | None = trace_option()
    timeout: float | None = timeout_option("commit")
    log: Path | None = option(
        "--log", panel=COMMAND, type=PATH, help="Keep in this file what the command printed last. [default: only its end is shown]"
    )


class StepJob(JobFile):
    """The job file of the captures, and whether it must be that of the baseline."""

    config: Path | None = option(
        "--config", panel=USUAL, type=PATH, help="Job file of each commit's trace, and of a baseline that is a trace."
    )
    anyway: bool = option("--anyway", panel=USUAL, is_flag=True, help="Judge although it is not the same work as the baseline.")


@click.command(BISECT_STEP, cls=Verb, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@takes(limit=Limit, job=StepJob, measuring=Measuring)
def bisect_step(command: tuple[str, ...], limit: Limit, job: StepJob, measuring: Measuring) -> int:
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
    measuring.check()
    from diagnose.bisect import git  # noqa: PLC0415
    from diagnose.bisect.log import Entry, Experiment  # noqa: PLC0415
    from diagnose.bisect.model import load_numbers  # noqa: PLC0415
    from diagnose.bisect.step import Step  # noqa: PLC0415
    from diagnose.bisect.trial import StopRequestedError, TraceOptions  # noqa: PLC0415
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare.metrics import check_metric  # noqa: PLC0415
    from diagnose.scale.engine import prepare  # noqa: PLC0415

    # a wrong job file, rule or pattern shows before anything is run
    prepare(**measuring.reading(job))
    rules = load_comparison_rules(measuring.rules)
    check_metric(limit.metric, rules, effect=_NOTHING)
    options = TraceOptions(reading=measuring.reading(job), rank=measuring.rank, engine=measuring.chosen_engine(), notice=say)
    try:
        head = git.commit_of(Path.cwd(), "HEAD")
    except git.GitError:
        head = "HEAD"
    entry = Entry(label=head, subject="", item=head)
    step = Step(
        experiment=Experiment(mode="items", entries=(entry,), metric=limit.metric, command=command, trace=limit.trace),
        options=options,
        baseline=_baseline(limit, options, rules),
        limit=limit.max_regression,
        repeats=limit.repeats,
        numbers=load_numbers(),
        rules=rules,
        say=say,
        timeout=limit.timeout,
        anyway=job.anyway,
        log=limit.log,
    )
    try:
        return step.run(Path.cwd())
    except StopRequestedError as fault:
        say(f"stopped: {fault}")
        return fault.code


def _baseline(limit: Limit, options: TraceOptions, rules: ComparisonRules) -> Callable[[Diagnosis], list[tuple[str, Diagnosis]]]:
    """The good captures.

    Files are read at once, so that a wrong one is found before anything runs; which one of a stored name fits, only a first diagnosis
    tells. Raises InputError.
    """
    from diagnose.bisect.trial import UnusableError, document_of, values_of  # noqa: PLC0415
    from diagnose.reason.compare import baselines  # noqa: PLC0415

    files: dict[str, Diagnosis] = {}
    names: list[str] = []
    store = limit.opened(rules)
    for name in limit.baselines:
        if any(sign in name for sign in "*?[/") or name.endswith(".json") or Path(name).exists():
            try:
                files[name] = document_of([Path(name)], options, Path.cwd())
                values_of(files[name], limit.metric, None, rules)
            except UnusableError as fault:
                raise InputError(f"--baseline {name} can't be used: {fault}", effect=_NOTHING) from fault
            continue
        baselines.check_name(name)
        if not any(entry.name == name and not entry.problem for entry in store.listed()):
            raise InputError(
                f"--baseline {name} is neither a file nor a baseline in {store.folder}.",
                effect=_NOTHING,
                next_step="Save what is good: diagnose TRACE -o good.json. Keep it outside of what git checks out, or untracked.",
            )
        names.append(name)

    def good_captures(new: Diagnosis) -> list[tuple[str, Diagnosis]]:
        found = ((name, run) for name in names for run in store.find(name, new))
        stored = [(f"{name} {run.run}", run.document) for name, run in found]
        return [*files.items(), *stored]

    return good_captures
