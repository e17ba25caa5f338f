"""`diagnose bisect`: the commit, artefact or trace with which a metric changed."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.options import (
    COMMAND,
    NOISE,
    PATH,
    SEARCH,
    USUAL,
    Group,
    Measuring,
    Output,
    RunsVerb,
    Share,
    Shown,
    command_option,
    metric_option,
    option,
    output_of,
    set_option,
    takes,
    timeout_option,
    trace_option,
)
from diagnose.commands.output import check_outputs, check_sections, root_of, say, write_document
from diagnose.errors import InputError, UsageError

if TYPE_CHECKING:
    from diagnose.bisect.candidates import Order
    from diagnose.bisect.log import Criteria, Experiment, Line
    from diagnose.document.bisection import BisectResult

STEP_TIME = "step_time"
REPEATS = 10
RETRIES = 1
_UNANSWERED: tuple[BisectResult, ...] = ("ends_alike", "cannot_tell")

_refused = partial(UsageError, effect="Nothing was run.")


class Search(Group):
    """What is searched, and how."""

    panel = SEARCH
    good: str | None = option("--good", panel=USUAL, metavar="COMMIT|LABEL", help="The good end: where the metric was as it should be.")
    bad: str | None = option("--bad", panel=USUAL, metavar="COMMIT|LABEL", help="The bad end: where it is not.")
    items: Path | None = option(
        "--items",
        panel=USUAL,
        type=PATH,
        metavar="FILE",
        help="Search a list of artefacts instead of commits: one a line, or LABEL, a tab, ITEM.",
    )
    traces: tuple[str, ...] = option(
        "--traces",
        panel=USUAL,
        multiple=True,
        metavar="TRACE|PATTERN...",
        help="Search traces that are there already, ordered by commit, time or name.",
    )
    from_gate: Path | None = option(
        "--from-gate",
        type=PATH,
        metavar="RESULT.json",
        help="Begin where a gate or comparison stopped: its commits, metric, limit and runs. --good and --bad may name what it does not hold.",
    )
    metric: str = metric_option("What changed: ")
    max_regression: float | None = option(
        "--max-regression", panel=USUAL, type=Share(), metavar="SHARE", help="The ends must differ by more than this, such as 3%."
    )
    repeats: int | None = option(
        "--repeats",
        panel=NOISE,
        type=click.IntRange(min=1),
        metavar="N",
        help=f"Captures of one candidate at most, where noise asks for them. [default: {REPEATS}]",
    )
    first: bool | None = option("--first/--all", default=None, help="Stop at the first change, or look for all. [default: --all]")
    smallest_step: float | None = option(
        "--smallest-step", type=Share(), metavar="SHARE", help="Smallest change to look for. [default: a fifth of the difference]"
    )
    noise: float | None = option(
        "--noise",
        panel=NOISE,
        type=Share(),
        metavar="SHARE",
        help="Noise of a capture to begin with; what is seen soon outweighs it. [default: 1%]",
    )
    trace: str | None = trace_option()
    timeout: float | None = timeout_option("candidate")
    keep_untracked: bool = option(
        "--keep-untracked", panel=COMMAND, is_flag=True, help="Keep untracked files between commits, for build caches."
    )
    retries: int | None = option(
        "--retries",
        panel=COMMAND,
        type=click.IntRange(min=0),
        metavar="N",
        help=f"How often a command that failed is run again, at an end once more; exit code 125 is final. [default: {RETRIES}]",
    )
    skip: tuple[str, ...] = option(
        "--skip", multiple=True, metavar="COMMIT|LABEL", help="Leave a candidate out, with what it gave already. Repeatable."
    )
    retry: tuple[str, ...] = option(
        "--retry", multiple=True, metavar="COMMIT|LABEL", help="With --resume: try a candidate afresh that gave nothing. Repeatable."
    )
    state: Path | None = option(
        "--state", type=PATH, metavar="DIR", help="Folder of the search. [default: in .diagnose/bisect of the repository]"
    )
    resume: bool = option(
        "--resume", panel=USUAL, is_flag=True, help="Go on with a search that was interrupted; alone with the one that ran last."
    )
    config: str | None = option(
        "--config", panel=USUAL, metavar="PATH", help="Job file; a relative path is looked for where the command runs."
    )
    job_command: str | None = command_option()
    overrides: tuple[str, ...] = set_option()


@click.command(cls=RunsVerb, takes_runs=("--traces",), context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@takes(search=Search, measuring=Measuring, output=output_of("bisection"), shown=Shown)
def bisect(command: tuple[str, ...], search: Search, measuring: Measuring, output: Output, shown: Shown) -> int:
    """Find the commit, artefact or trace with which a metric changed, in as few runs as its noise allows.

    \b
    diagnose bisect --good v1.2 --bad main -- ./profile.sh {commit}
    diagnose bisect --items containers.txt -- ./profile.sh {item}
    diagnose bisect --traces 'nightly/*.sqlite'
    diagnose bisect --from-gate gate.json -- ./profile.sh {commit}

    The command runs in a checkout of its own; yours is never touched. It builds, profiles, and leaves its trace in the folder that
    $DIAGNOSE_OUTPUT names ({trace} is a path in it, without an extension). Exit code 0: there is a trace; 125: skip this candidate; any
    other below 128: it failed, and is run again (--retries) before the search goes around it; 128 and more: stop. Everything is kept in the
    folder of --state; --resume goes on, and --retry LABEL with it gives a candidate another chance.

    Exit codes: 0 found, or narrowed down; 3 the ends are alike, or it can't be told; 130 interrupted, go on with --resume.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    measuring.check()
    if search.items is not None and search.traces:
        raise _refused("--items and --traces do not go together.", next_step="Give one of them.")
    check_outputs(output, kind="bisection", effect="Nothing was run.")
    check_sections(output, "bisection", shown.sections)
    from diagnose.bisect import session  # noqa: PLC0415
    from diagnose.bisect.log import SearchFolder  # noqa: PLC0415
    from diagnose.bisect.model import load_numbers  # noqa: PLC0415
    from diagnose.bisect.trial import TraceOptions  # noqa: PLC0415
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare.metrics import check_metric  # noqa: PLC0415

    here = Path.cwd()
    base = root_of(here) or here
    tell = (lambda _: None) if output.quiet else say
    state = None if search.state is None else search.state.absolute()  # commands run in other folders than this
    if search.resume and not any((search.good, search.bad, search.items, search.traces)):
        _check_idle(search, measuring, command)
        experiment, folder = None, SearchFolder(state or session.latest(base))
    else:
        check_metric(search.metric, load_comparison_rules(measuring.rules), effect="Nothing was run.")
        search, seen = told_by_gate(search, here)
        order, work = _order(search, command, here)
        read = tuple(Path(entry.item) for entry in order.entries) if search.traces else ()
        check_outputs(output, inputs=read, kind="bisection", effect="Nothing was run.")
        experiment = _experiment(search, measuring, command, order)
        folder = SearchFolder(state or session.folder_for(experiment, base))
        if not search.resume:
            again = _words(search, measuring, command, "state", "resume", "retry", "from_gate")
            session.begin(folder.path, experiment, _criteria(search), order, work, ("diagnose", "bisect", *again))
            told = session.measured_before(folder, seen)
            if told:
                tell(f"{told} runs of the ends are taken from {search.from_gate}")
            tell(f"{len(order.entries)} candidates. {order.how} Everything is kept in {folder.path}")
    options = session.Options(
        timeout=search.timeout,
        skip=search.skip,
        retry=search.retry,
        traces=TraceOptions(reading={"nsys": measuring.nsys}, engine=measuring.chosen_engine(), notice=None if output.quiet else say),
    )
    result = session.run(folder, experiment, lambda before: _criteria(search, before), options, load_numbers(), tell)
    write_document(result, output, detail=shown)
    return InputError.exit_code if result.result in _UNANSWERED else 0


def _words(search: Search, measuring: Measuring, command: tuple[str, ...], *without: str) -> list[str]:
    """The words of a command line that begin the same search; without options that say only how its captures are read."""
    return [*search.words(*without), *measuring.words("nsys", "jobs", "engine", "scheduler"), *(("--", *command) if command else ())]


# What may differ between runs of one search.
_FREE = ("state", "resume", "retry", "skip", "timeout", "retries", "repeats", "max_regression", "smallest_step", "noise", "first")


def _check_idle(search: Search, measuring: Measuring, command: tuple[str, ...]) -> None:
    """Refuse what a search that is gone on with can't take up. Raises UsageError."""
    idle = _words(search, measuring, command, *_FREE)
    if idle:
        raise _refused(
            f"--resume alone goes on with a search as it was begun, and {shlex.join(idle)} would count for nothing.",
            next_step="Leave it out, or begin another search without --resume.",
        )


def told_by_gate(search: Search, here: Path) -> tuple[Search, dict[str, tuple[Line, ...]]]:
    """The search with what a saved comparison tells of it, and the runs that it read of both ends, by commit.

    Raises InputError, UsageError.
    """
    if search.from_gate is None:
        return search, {}
    if search.items is not None or search.traces:
        raise _refused("--from-gate searches commits.", next_step="Leave out --items and --traces.")
    from diagnose.bisect import git, session  # noqa: PLC0415
    from diagnose.document.comparison import Comparison  # noqa: PLC0415
    from diagnose.document.files import read  # noqa: PLC0415

    gate = read(search.from_gate)
    if not isinstance(gate, Comparison):
        raise _refused(f"{search.from_gate} is not the JSON of a gate or comparison.", next_step="Save it with -o gate.json.")
    commits = [next((run.commit for run in reversed(side.runs) if run.commit), None) for side in (gate.base, gate.new)]
    good, bad = search.good or commits[0], search.bad or commits[1] or "HEAD"
    if good is None:
        raise _refused(
            f"{search.from_gate} does not tell the commit of its base.",
            next_step="Name it with --good; `diagnose baseline add` stores runs with their commits.",
        )
    found = search.replace(
        good=good,
        bad=bad,
        metric=gate.effect.metric if search.metric == STEP_TIME else search.metric,
        max_regression=search.max_regression if search.max_regression is not None or gate.gate is None else gate.gate.limit,
    )
    same = found.metric == gate.effect.metric and gate.comparability.normalised is None  # else the values are of something else
    ends = {git.commit_of(here, good): (gate.base, commits[0]), git.commit_of(here, bad): (gate.new, commits[1])}
    seen = {
        end: session.lines_of(gate.effect, [run for run in side.runs if run.commit == commit])
        if same and commit in {None, good, bad, end}
        else ()
        for end, (side, commit) in ends.items()
    }
    return found, seen


def _order(search: Search, command: tuple[str, ...], here: Path) -> tuple[Order, Path]:
    """The candidates, and the folder that the search is about: the repository, or where the user is."""
    from diagnose.bisect import candidates, git  # noqa: PLC0415

    good, bad = search.good, search.bad
    if search.items is not None:
        if command and not any("{item}" in word for word in command):
            raise UsageError("The command does not say {item}.", effect="It would do the same for every candidate; nothing was run.")
        return candidates.between(candidates.items(search.items), good, bad), here
    if search.traces:
        if command:
            raise _refused("--traces reads what is there and runs no command.", next_step="Use --items to run one.")
        return candidates.between(candidates.traces(search.traces, here), good, bad), here
    if good is None or bad is None or not command:
        raise _refused(
            "A search among commits needs --good, --bad and, after --, the command that profiles one of them.",
            next_step="For example: diagnose bisect --good v1.2 --bad main -- ./profile.sh {commit}",
        )
    return candidates.commits(here, good, bad), git.top_of(here)


def _experiment(search: Search, measuring: Measuring, command: tuple[str, ...], order: Order) -> Experiment:
    from diagnose.bisect.log import Experiment  # noqa: PLC0415

    return Experiment(
        mode="items" if search.items is not None else "traces" if search.traces else "commits",
        entries=order.entries,
        metric=search.metric,
        command=command,
        trace=search.trace,
        config=search.config,
        job_command=search.job_command,
        overrides=search.overrides,
        rules=tuple(str(path.absolute()) for path in measuring.rules),
        rank=measuring.rank,
        step_range=measuring.step_range,
        keep_untracked=search.keep_untracked,
    )


def _criteria(search: Search, before: Criteria | None = None) -> Criteria:
    """How trials are judged: as asked for now, else as before."""
    from msgspec import structs  # noqa: PLC0415

    from diagnose.bisect.log import Criteria  # noqa: PLC0415

    asked = {"smallest": search.smallest_step}
    asked |= {name: getattr(search, name) for name in ("repeats", "max_regression", "noise", "first", "retries")}
    given = {name: value for name, value in asked.items() if value is not None}
    return structs.replace(before or Criteria(repeats=REPEATS, retries=RETRIES), **given)
