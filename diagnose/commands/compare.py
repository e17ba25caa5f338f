"""`diagnose compare` and `diagnose gate`: runs held against each other."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from diagnose.commands import sides
from diagnose.commands.baseline import Store
from diagnose.commands.options import (
    GATE,
    JOB,
    LEVELS,
    NOISE,
    PATH,
    SUBJECT,
    USUAL,
    Group,
    JobFile,
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
)
from diagnose.commands.output import EXIT_GATE, check_outputs, check_sections, lost, progress, say, write_document
from diagnose.errors import ComparisonRefusedError, DataLossError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.document.comparison import Comparison, OnUnclear
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.knowledge.comparison import ComparisonRules
    from diagnose.model.vocabulary import Level
    from diagnose.reason.compare.comparable import Tokens
    from diagnose.reason.compare.runs import Named

_refused = partial(UsageError, effect="Nothing was compared.")


class Sides(Store):
    """The runs of both sides, what stands for BASE, and the job files of both."""

    base: tuple[str, ...] = option(
        "--base", panel=USUAL, multiple=True, metavar="RUN...", help="Runs to compare with, several to know their noise."
    )
    new: tuple[str, ...] = option("--new", panel=USUAL, multiple=True, metavar="RUN...", help="Runs that are compared with them.")
    baseline: str | None = option(
        "--baseline",
        panel=USUAL,
        metavar="NAME",
        help="Compare with the runs of this stored baseline; all RUNs are then new ones.",
        before="store",
    )
    config: Path | None = option(
        "--config", panel=USUAL, type=PATH, help="Job file of NEW, and of BASE unless --base-config names another."
    )
    base_config: Path | None = option("--base-config", panel=JOB, type=PATH, help="Job file of BASE.")
    job_command: str | None = command_option()
    base_command: str | None = option(
        "--base-command", panel=JOB, metavar="N", help="The same for BASE. [default: without --base-config that of --command]"
    )
    overrides: tuple[str, ...] = set_option("NEW's job file")
    base_overrides: tuple[str, ...] = option(
        "--base-set", panel=JOB, multiple=True, metavar="KEY=VALUE", help="The same for BASE. Repeatable."
    )


class Question(Group):
    """What is compared, and when the answer fails a gate."""

    panel = SUBJECT
    metric: str = metric_option("What is compared: ", SUBJECT)
    max_regression: float | None = option(
        "--max-regression", panel=USUAL, type=Share(), metavar="SHARE", help="Exit 1 if NEW is worse by more than this, such as 3%."
    )
    on_unclear: OnUnclear | None = option(
        "--on-unclear",
        panel=GATE,
        type=click.Choice(["pass", "fail", "warn"]),
        help="What a gate comes to that noise leaves open. [default: exit 3]",
    )
    run_noise: float | None = option(
        "--run-noise",
        panel=NOISE,
        type=Share(),
        metavar="SHARE",
        help="Standard deviation between runs, where they do not measure it. [default: 1%]",
    )
    fail_on: Level | None = option(
        "--fail-on", panel=GATE, type=click.Choice(LEVELS), help="Exit 1 if a finding that severe or more is new or worse."
    )
    tokens: tuple[float, float] | None = option(
        "--tokens", type=float, nargs=2, metavar="BASE NEW", help="Useful tokens per step of both, from your logs."
    )
    logs: tuple[Path, Path] | None = option(
        "--logs", type=PATH, nargs=2, metavar="BASE NEW", help="The trainer's logs of both, which hold the tokens per step."
    )
    anyway: bool = option("--anyway", is_flag=True, help="Give figures and a verdict although they are not the same work.")
    strict: bool = option("--strict", panel=GATE, is_flag=True, help="Exit 4 if data was lost on either side.")


@click.command(cls=RunsVerb, takes_runs=("--base", "--new"))
@click.argument("runs", nargs=-1, metavar="[BASE NEW]")
@takes(asked=Sides, question=Question, measuring=Measuring, output=output_of("comparison"), shown=Shown)
def compare(runs: tuple[str, ...], asked: Sides, question: Question, measuring: Measuring, output: Output, shown: Shown) -> int:
    """Compare runs: may they be compared, what changed around the code, what moved, and is it more than noise.

    \b
    diagnose compare BASE NEW
    diagnose compare --base RUN RUN RUN --new RUN RUN
    diagnose compare --baseline NAME NEW...

    Each RUN is one run: a trace, a folder or quoted pattern of several ranks' traces, or a saved diagnosis (.json). Several runs of a side
    tell how much runs differ by chance: that noise is measured from five of one side and one of the other, or three of each.

    Exit codes: 0 compared; 1 the gate of --max-regression or --fail-on is not met; 3 refused because they are not the same work, or the
    gate can't be judged; 4 data lost, with --strict.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    return _compare(runs, asked, question, measuring, output, shown)


@click.command(cls=RunsVerb, takes_runs=("--base", "--new"))
@click.argument("runs", nargs=-1, metavar="[BASE NEW]")
@takes(asked=Sides, question=Question, measuring=Measuring, output=output_of("comparison"), shown=Shown)
@click.pass_context
def gate(
    context: click.Context, /, runs: tuple[str, ...], asked: Sides, question: Question, measuring: Measuring, output: Output, shown: Shown
) -> int:
    """Compare runs and fail where the new ones are slower: `compare` for continuous integration.

    \b
    diagnose gate --baseline NAME NEW...

    As `compare`, with --max-regression 5% unless another is given, and --format github within GitHub Actions.

    Exit codes: 0 the gate is met; 1 it is not; 3 it can't be judged (--on-unclear pass and warn make that 0, fail makes it 1), or the runs
    are not the same work; 4 data lost, with --strict.
    """  # noqa: D301 - as above
    rules = None
    if question.max_regression is None:
        from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415

        rules = load_comparison_rules(measuring.rules)
        question = question.replace(max_regression=rules.limits.noise.tolerance.value)
    if context.get_parameter_source("format") is ParameterSource.DEFAULT and os.environ.get("GITHUB_ACTIONS") == "true":
        output = output.replace(format="github")
    return _compare(runs, asked, question, measuring, output, shown, rules)


def _compare(
    runs: tuple[str, ...],
    asked: Sides,
    question: Question,
    measuring: Measuring,
    output: Output,
    shown: Shown,
    rules: ComparisonRules | None = None,
) -> int:
    """Check, measure, compare, write, judge; `rules` where they were read already."""
    base, new = _sides(runs, asked)
    both = [*base, *new]
    sides.check(both, measuring)
    _check_tokens(question)
    inputs = tuple(path for side in both for path in (side.path, side.job.config) if path is not None)
    check_outputs(output, inputs=inputs, kind="comparison")
    check_sections(output, "comparison", shown.sections)
    measuring.check()
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415

    rules = rules or load_comparison_rules(measuring.rules)
    from diagnose.reason.compare.metrics import check_metric, side_label  # noqa: PLC0415

    if not all(side.saved for side in both):  # a saved one may hold what another version of the program measured
        check_metric(question.metric, rules)
    first, second = _named(base, new, asked, measuring, output, rules)
    documents = [run.document for run in (*first, *second)]
    from diagnose.reason.compare.runs import Runs, Terms  # noqa: PLC0415
    from diagnose.reason.compare.runs import compare as compared  # noqa: PLC0415

    result = compared(
        Runs(f"baseline {asked.baseline}" if asked.baseline is not None else side_label([run.label for run in first]), first),
        Runs(side_label([run.label for run in second]), second),
        rules=rules,
        terms=Terms(
            metric=question.metric,
            anyway=question.anyway,
            max_regression=question.max_regression,
            fail_on=question.fail_on,
            on_unclear=question.on_unclear,
            run_noise=question.run_noise,
            tokens=_tokens(question, (first[0].document, second[0].document)),
        ),
    )
    write_document(result, output, config=new[0].job.config, detail=shown)
    return _status(result, documents, strict=question.strict)


def _sides(runs: tuple[str, ...], asked: Sides) -> tuple[list[sides.Given], list[sides.Given]]:
    """The runs of both sides; none of base where a baseline stands for them. Raises UsageError."""
    base, new = _operands(runs, asked)
    own = JobFile(config=asked.config, job_command=asked.job_command, overrides=asked.overrides)
    there = [sides.given(one, own) for one in new]
    if asked.baseline is not None:
        if asked.base_config is not None or asked.base_overrides or asked.base_command is not None:
            raise _refused("A baseline has its own job file.", next_step="Leave out --base-config, --base-command and --base-set.")
        here = []
    else:
        if asked.store is not None:
            raise _refused("--store says where baselines are.", next_step="Name one with --baseline.")
        command = asked.base_command if asked.base_command is not None or asked.base_config is not None else asked.job_command
        of_base = JobFile(config=asked.base_config, job_command=command, overrides=asked.base_overrides)
        here = [sides.given(one, of_base, otherwise=asked.config) for one in base]
    for side in (here, there):
        twice = next((one.text for index, one in enumerate(side) if any(one.same_as == other.same_as for other in side[:index])), None)
        if twice is not None:
            raise UsageError(
                f"{twice} is named twice as a run of one side.",
                effect="Nothing was compared, because a run says nothing of noise beside itself.",
                next_step="Name each run once.",
            )
    return here, there


def _operands(runs: tuple[str, ...], asked: Sides) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was named as base and as new. Raises UsageError."""
    if asked.baseline is not None:
        if asked.base or not (runs or asked.new):
            what = "A baseline stands for base, and --base names other runs." if asked.base else "No new run was given."
            raise _refused(what, next_step="diagnose compare --baseline NAME NEW...")
        return (), (*runs, *asked.new)
    if not asked.base and not asked.new:
        if len(runs) != 2:
            raise _refused(
                f"Two runs are compared: BASE and NEW. {len(runs)} {'was' if len(runs) == 1 else 'were'} given.",
                next_step="Name several runs as --base RUN RUN --new RUN RUN, and several traces of one run as a folder or a quoted pattern.",
            )
        return (runs[0],), (runs[1],)
    if runs or not asked.base or not asked.new:
        missing = "--base" if not asked.base else "--new"
        what = f"{runs[0]} stands on neither side." if runs else f"{missing} names no run."
        raise _refused(what, next_step="diagnose compare --base RUN RUN --new RUN RUN")
    return asked.base, asked.new


def _check_tokens(question: Question) -> None:
    tokens = question.tokens
    if tokens is not None and question.logs is not None:
        raise _refused("--tokens and --logs say the same.", next_step="Give one of them.")
    if tokens is not None and not all(0 < number < math.inf for number in tokens):
        raise _refused("--tokens takes two numbers above nought.", next_step="Read both from the logs.")


def _tokens(question: Question, documents: tuple[Diagnosis, Diagnosis]) -> Tokens | None:
    """Useful tokens per step of both, where the user or the logs tell them. Raises InputError."""
    from diagnose.load.trainer_log import load_specs, tokens_per_step  # noqa: PLC0415
    from diagnose.reason.compare.comparable import Tokens  # noqa: PLC0415

    if question.tokens is not None:
        return Tokens(*question.tokens)
    if question.logs is None:
        return None

    specs = load_specs()
    settings = ([] if document.job is None else document.job.settings for document in documents)
    integers = [{setting.name: setting.value for setting in own if isinstance(setting.value, int)} for own in settings]
    base, new = (tokens_per_step(path, lengths.get("seq_length"), specs) for path, lengths in zip(question.logs, integers, strict=True))
    return Tokens(base.tokens, new.tokens, base.source if base.source == new.source else f"{base.source}; {new.source}")


def _named(
    base: Sequence[sides.Given], new: Sequence[sides.Given], asked: Sides, measuring: Measuring, output: Output, rules: ComparisonRules
) -> tuple[list[Named], list[Named]]:
    """The runs of both sides with their diagnoses. What is given twice is measured once."""
    from diagnose.reason.compare import baselines  # noqa: PLC0415
    from diagnose.reason.compare.runs import Named  # noqa: PLC0415

    notice = None if output.quiet else say
    known: dict[object, Diagnosis] = {}
    if asked.baseline is not None:
        baselines.check_name(asked.baseline)
    with progress(shown=not output.quiet and output.format == "text") as report:

        def document(side: sides.Given) -> Diagnosis:
            if side.same_as not in known:
                known[side.same_as] = sides.side_document(side, measuring, progress=report, notice=notice)
            return known[side.same_as]

        first = [document(one) for one in base]
        second = [document(one) for one in new]
    labels = sides.labels([*base, *new])
    there = [Named(label, one) for label, one in zip(labels[len(base) :], second, strict=True)]
    if asked.baseline is None:
        return [Named(label, one) for label, one in zip(labels[: len(base)], first, strict=True)], there
    stored = asked.opened(rules).find(asked.baseline, second[0])
    return [Named(run.label or run.run, run.document, run.date, run.commit) for run in stored], there


def _status(result: Comparison, documents: Sequence[Diagnosis], *, strict: bool) -> int:
    """The exit code, after everything is written. Raises the errors that have one of their own."""
    if result.outcome.result == "refused":
        raise ComparisonRefusedError(
            "The two runs can't be compared, so there is no verdict.",
            effect="The result is written; it says in what they differ.",
            next_step="Compare runs of the same work that were captured alike, or give --anyway.",
        )
    if strict and any(lost(document) for document in documents):
        raise DataLossError(
            "Data was lost on one side.",
            effect="The result is written but not complete.",
            next_step="Read the ledger in each run's diagnosis; it says what is missing and why.",
        )
    met = result.gate is None or result.gate.met
    if met is None and result.gate is not None and result.gate.on_unclear is not None:
        met = result.gate.on_unclear != "fail"
    if met is None and result.gate is not None:
        raise ComparisonRefusedError(result.gate.sentence, effect="The result is written.")
    return 0 if met else EXIT_GATE
