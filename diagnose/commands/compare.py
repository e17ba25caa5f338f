"""`diagnose compare` and `diagnose gate`: two runs held against each other."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from diagnose.commands import sides
from diagnose.commands.baseline import Store
from diagnose.commands.options import LEVELS, PATH, Group, JobFile, Measuring, Output, Share, metric_option, option, set_option, takes
from diagnose.commands.output import EXIT_GATE, check_outputs, lost, progress, say, write_document
from diagnose.errors import ComparisonRefusedError, DataLossError, UsageError

if TYPE_CHECKING:
    from diagnose.document.comparison import Comparison
    from diagnose.document.diagnosis import Diagnosis
    from diagnose.knowledge.comparison import ComparisonRules
    from diagnose.model.vocabulary import Level


class Sides(Store):
    """What stands for BASE, and the job files of both."""

    baseline: str | None = option(
        "--baseline", metavar="NAME", help="Compare with this stored baseline; then only NEW is given.", before="store"
    )
    config: Path | None = option("--config", type=PATH, help="Job file of NEW, and of BASE unless --base-config names another.")
    base_config: Path | None = option("--base-config", type=PATH, help="Job file of BASE.")
    overrides: tuple[str, ...] = set_option("NEW's job file")
    base_overrides: tuple[str, ...] = option("--base-set", multiple=True, metavar="KEY=VALUE", help="The same for BASE. Repeatable.")


class Question(Group):
    """What is compared, and when the answer fails a gate."""

    metric: str = metric_option("What is compared: ")
    max_regression: float | None = option(
        "--max-regression", type=Share(), metavar="SHARE", help="Exit 1 if NEW is worse by more than this, such as 3%."
    )
    fail_on: Level | None = option("--fail-on", type=click.Choice(LEVELS), help="Exit 1 if a finding that severe or more is new or worse.")
    tokens: tuple[float, float] | None = option(
        "--tokens", type=float, nargs=2, metavar="BASE NEW", help="Useful tokens per step of both, from your logs."
    )
    logs: tuple[Path, Path] | None = option(
        "--logs", type=PATH, nargs=2, metavar="BASE NEW", help="The trainer's logs of both, which tell the tokens per step."
    )
    anyway: bool = option("--anyway", is_flag=True, help="Give figures and a verdict although they are not the same work.")
    strict: bool = option("--strict", is_flag=True, help="Exit 4 if data was lost on either side.")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="BASE NEW")
@takes(asked=Sides, question=Question, measuring=Measuring, output=Output)
def compare(runs: tuple[str, ...], asked: Sides, question: Question, measuring: Measuring, output: Output) -> int:
    """Compare two runs: may they be compared, what changed around the code, what moved, and is it more than noise.

    BASE and NEW are each a trace, a folder or quoted pattern of several ranks' traces, or a saved diagnosis (.json).

    Exit codes: 0 compared; 1 the gate of --max-regression or --fail-on is not met; 3 refused because they are not the same work, or the
    gate can't be judged; 4 data lost, with --strict.
    """
    return _compare(runs, asked, question, measuring, output)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="BASE NEW")
@takes(asked=Sides, question=Question, measuring=Measuring, output=Output)
@click.pass_context
def gate(context: click.Context, /, runs: tuple[str, ...], asked: Sides, question: Question, measuring: Measuring, output: Output) -> int:
    """Compare two runs and fail where the new one is slower: `compare` for continuous integration.

    As `compare`, with --max-regression 5% unless another is given, and --format github within GitHub Actions.
    """
    rules = None
    if question.max_regression is None:
        from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415

        rules = load_comparison_rules(measuring.rules)
        question = question.replace(max_regression=rules.limits.noise.tolerance.value)
    if context.get_parameter_source("format") is ParameterSource.DEFAULT and os.environ.get("GITHUB_ACTIONS") == "true":
        output = output.replace(format="github")
    return _compare(runs, asked, question, measuring, output, rules)


def _compare(
    runs: tuple[str, ...], asked: Sides, question: Question, measuring: Measuring, output: Output, rules: ComparisonRules | None = None
) -> int:
    """Check, measure, compare, write, judge; `rules` where they were read already."""
    base, new = _sides(runs, asked)
    both = [side for side in (base, new) if side is not None]
    sides.check(both, measuring)
    _check_tokens(question)
    check_outputs(output, inputs=tuple(path for side in both for path in (side.path, side.job.config) if path is not None))
    measuring.check()
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415

    rules = rules or load_comparison_rules(measuring.rules)
    documents = _documents(base, new, asked, measuring, output, rules)
    first, second = (f"baseline {asked.baseline}", new.name) if base is None else sides.labels(base, new)
    from diagnose.reason.compare import compare as compared  # noqa: PLC0415

    tokens, source = _tokens(question, documents)
    result = compared(
        *documents,
        rules=rules,
        base_label=first,
        new_label=second,
        tokens=tokens,
        tokens_source=source,
        metric=question.metric,
        anyway=question.anyway,
        max_regression=question.max_regression,
        fail_on=question.fail_on,
    )
    write_document(result, output, config=new.job.config)
    return _status(result, documents, strict=question.strict)


def _sides(runs: tuple[str, ...], asked: Sides) -> tuple[sides.Given | None, sides.Given]:
    """Both sides; BASE is None where a baseline stands for it. Raises UsageError."""
    wanted = 1 if asked.baseline is not None else 2
    if len(runs) != wanted:
        sentence = "With --baseline only NEW is given." if asked.baseline is not None else "Two runs are compared: BASE and NEW."
        raise UsageError(
            f"{sentence} {len(runs)} {'was' if len(runs) == 1 else 'were'} given.",
            effect="Nothing was compared.",
            next_step="Name several traces of one run as a folder or a quoted pattern.",
        )
    new = sides.given(runs[-1], JobFile(config=asked.config, overrides=asked.overrides))
    if asked.baseline is None:
        if asked.store is not None:
            raise UsageError("--store says where baselines are.", effect="Nothing was compared.", next_step="Name one with --baseline.")
        return sides.given(runs[0], JobFile(config=asked.base_config, overrides=asked.base_overrides), otherwise=asked.config), new
    if asked.base_config is not None or asked.base_overrides:
        raise UsageError(
            "A baseline has its own job file.", effect="Nothing was compared.", next_step="Leave out --base-config and --base-set."
        )
    return None, new


def _check_tokens(question: Question) -> None:
    tokens = question.tokens
    if tokens is not None and question.logs is not None:
        raise UsageError("--tokens and --logs say the same.", effect="Nothing was compared.", next_step="Give one of them.")
    if tokens is not None and not all(0 < number < math.inf for number in tokens):
        raise UsageError("--tokens takes two numbers above nought.", effect="Nothing was compared.", next_step="Read both from the logs.")


def _tokens(question: Question, documents: tuple[Diagnosis, Diagnosis]) -> tuple[tuple[float, float] | None, str]:
    """Useful tokens per step of both, where the user or the logs tell them, and who does. Raises InputError."""
    if question.tokens is not None or question.logs is None:
        return question.tokens, "--tokens" if question.tokens is not None else ""
    from diagnose.load.trainer_log import load_specs, tokens_per_step  # noqa: PLC0415

    specs = load_specs()
    settings = ([] if document.job is None else document.job.settings for document in documents)
    integers = [{setting.name: setting.value for setting in own if isinstance(setting.value, int)} for own in settings]
    base, new = (tokens_per_step(path, lengths.get("seq_length"), specs) for path, lengths in zip(question.logs, integers, strict=True))
    return (base.tokens, new.tokens), base.source if base.source == new.source else f"{base.source}; {new.source}"


def _documents(
    base: sides.Given | None, new: sides.Given, asked: Sides, measuring: Measuring, output: Output, rules: ComparisonRules
) -> tuple[Diagnosis, Diagnosis]:
    """The diagnoses of both sides. What is given twice is measured once."""
    notice = None if output.quiet else say
    with progress(shown=not output.quiet and output.format == "text") as report:
        if base is None:
            from diagnose.reason.compare import baselines  # noqa: PLC0415

            name = asked.baseline or ""
            baselines.check_name(name)
            second = sides.side_document(new, measuring, progress=report, notice=notice)
            return baselines.find(asked.path, name, second, rules)[-1].document, second
        first = sides.side_document(base, measuring, progress=report, notice=notice)
        same = base.same_as == new.same_as
        return first, first if same else sides.side_document(new, measuring, progress=report, notice=notice)


def _status(result: Comparison, documents: tuple[Diagnosis, Diagnosis], *, strict: bool) -> int:
    """The exit code, after everything is written. Raises the errors that have one of their own."""
    if result.outcome.result == "refused":
        raise ComparisonRefusedError(
            "The two runs are not the same work, so there is no verdict.",
            effect="The result is written; it says in what they differ.",
            next_step="Compare runs of the same work, or give --anyway.",
        )
    if strict and any(lost(document) for document in documents):
        raise DataLossError(
            "Data was lost on one side.",
            effect="The result is written but not complete.",
            next_step="Read the ledger in each run's diagnosis; it says what is missing and why.",
        )
    met = result.gate is None or result.gate.met
    if met is None and result.gate is not None:
        raise ComparisonRefusedError(result.gate.sentence, effect="The result is written.")
    return 0 if met else EXIT_GATE
