"""`diagnose compare` and `diagnose gate`: two runs held against each other."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diagnose.commands import sides
from diagnose.commands.deliver import progress
from diagnose.commands.shared import (
    EXIT_GATE,
    LEVELS,
    PATH,
    applied,
    check_outputs,
    lost,
    measuring_options,
    say,
    writing_options,
    written,
)
from diagnose.commands.sides import Given
from diagnose.errors import ComparisonRefusedError, DataLossError, UsageError
from diagnose.scale.choose import check_engine

if TYPE_CHECKING:
    from pathlib import Path

    from diagnose.document.comparison import Comparison
    from diagnose.document.diagnosis import Diagnosis

_OUTPUT = ("format_", "outputs", "force", "color", "quiet")
_MEASURING = ("rules", "rank", "step_range", "nsys")
_ENGINE = ("jobs", "scheduler")
_QUESTION = ("metric", "anyway", "max_regression", "fail_on")


class Share(click.ParamType):  # type: ignore[type-arg] # generic in some versions of click only
    """A share, as `3%` or `0.03`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number; `3` alone is refused, because it may mean either."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = math.nan
        if math.isnan(number) or not 0 <= number <= (math.inf if text.endswith("%") else 1) or math.isinf(number):
            self.fail(f"{value!r} is no share. Write it as 3% or 0.03.", param, ctx)
        return number


def comparing_options(command: Any) -> Any:
    """What `compare` and `gate` take: both sides, how they are measured and compared, where the result goes."""
    about = [
        click.argument("runs", nargs=-1, required=True, metavar="BASE NEW"),
        click.option("--baseline", metavar="NAME", help="Compare with this stored baseline; then only NEW is given."),
        click.option("--folder", type=PATH, help="Where baselines are stored. [default: .diagnose/baselines of the repository]"),
        click.option("--config", type=PATH, help="Job file of NEW, and of BASE unless --base-config names another."),
        click.option("--base-config", type=PATH, help="Job file of BASE."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting on top of NEW's job file. Repeatable."),
        click.option("--base-set", "base_overrides", multiple=True, metavar="KEY=VALUE", help="The same for BASE. Repeatable."),
        click.option(
            "--metric",
            default="step_time",
            metavar="NAME",
            help="What is compared: step_time, a category, bucket:NAME, kernels, or any fact. [default: step_time]",
        ),
        click.option("--max-regression", type=Share(), metavar="SHARE", help="Exit 1 if NEW is worse by more than this, such as 3%."),
        click.option("--fail-on", type=click.Choice(LEVELS), help="Exit 1 if a finding that severe or more is new or worse."),
        click.option("--tokens", type=float, nargs=2, metavar="BASE NEW", help="Useful tokens per step of both, from your logs."),
        click.option("--logs", type=PATH, nargs=2, metavar="BASE NEW", help="The trainer's logs of both, which tell the tokens per step."),
        click.option("--anyway", is_flag=True, help="Give figures and a verdict although they are not the same work."),
        click.option("--strict", is_flag=True, help="Exit 4 if data was lost on either side."),
    ]
    return applied(measuring_options(writing_options(command)), about)


@click.command()
@comparing_options
def compare(runs: tuple[str, ...], **options: Any) -> int:
    """Compare two runs: may they be compared, what changed around the code, what moved, and is it more than noise.

    BASE and NEW are each a trace, a folder or quoted pattern of several ranks' traces, or a saved diagnosis (.json).

    Exit codes: 0 compared; 1 the gate of --max-regression or --fail-on is not met; 3 refused because they are not the same work, or the
    gate can't be judged; 4 data lost, with --strict.
    """
    return _compare(runs, options)


@click.command()
@comparing_options
@click.pass_context
def gate(context: click.Context, /, runs: tuple[str, ...], **options: Any) -> int:
    """Compare two runs and fail where the new one is slower: `compare` for continuous integration.

    As `compare`, with --max-regression 5% unless another is given, and --format github within GitHub Actions.
    """
    if options["max_regression"] is None:
        from diagnose.reason.compare.limits import load_limits  # noqa: PLC0415

        options["max_regression"] = load_limits().noise.tolerance.value
    if context.get_parameter_source("format_") is ParameterSource.DEFAULT and os.environ.get("GITHUB_ACTIONS") == "true":
        options["format_"] = "github"
    return _compare(runs, options)


def _compare(runs: tuple[str, ...], options: dict[str, Any]) -> int:
    """Check, measure, compare, write, judge."""
    base, new = _sides(runs, options)
    output, measuring = _part(options, _OUTPUT), _part(options, _MEASURING)
    both = [side for side in (base, new) if side is not None]
    sides.check(both, measuring)
    _check_tokens(options["tokens"], options["logs"])
    check_outputs(output, inputs=tuple(path for side in both for path in (side.path, side.config) if path is not None))
    check_engine(**_part(options, _ENGINE), kind=options["engine"])
    documents = _documents(base, new, options)
    first, second = (f"baseline {options['baseline']}", new.name) if base is None else sides.labels(base, new)
    from diagnose.reason.compare import compare as compared  # noqa: PLC0415

    tokens, told = _tokens(options, documents)
    result = compared(*documents, base_label=first, new_label=second, tokens=tokens, tokens_source=told, **_part(options, _QUESTION))
    _write(result, new, output)
    return _status(result, documents, strict=options["strict"])


def _part(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options[name] for name in names}


def _sides(runs: tuple[str, ...], options: dict[str, Any]) -> tuple[Given | None, Given]:
    """Both sides; BASE is None where a baseline stands for it. Raises UsageError."""
    baseline, config = options["baseline"], options["config"]
    wanted = 1 if baseline is not None else 2
    if len(runs) != wanted:
        said = "With --baseline only NEW is given." if baseline is not None else "Two runs are compared: BASE and NEW."
        raise UsageError(
            f"{said} {len(runs)} {'was' if len(runs) == 1 else 'were'} given.",
            effect="Nothing was compared.",
            next_step="Name several traces of one run as a folder or a quoted pattern.",
        )
    new = sides.given(runs[-1], config=config, overrides=options["overrides"])
    if baseline is None:
        if options["folder"] is not None:
            raise UsageError("--folder says where baselines are.", effect="Nothing was compared.", next_step="Name one with --baseline.")
        return sides.given(runs[0], config=options["base_config"], otherwise=config, overrides=options["base_overrides"]), new
    if options["base_config"] is not None or options["base_overrides"]:
        raise UsageError(
            "A baseline has its own job file.", effect="Nothing was compared.", next_step="Leave out --base-config and --base-set."
        )
    return None, new


def _check_tokens(tokens: tuple[float, float] | None, logs: tuple[Path, Path] | None) -> None:
    if tokens is not None and logs is not None:
        raise UsageError("--tokens and --logs say the same.", effect="Nothing was compared.", next_step="Give one of them.")
    if tokens is not None and not all(0 < number < math.inf for number in tokens):
        raise UsageError("--tokens takes two numbers above nought.", effect="Nothing was compared.", next_step="Read both from the logs.")


def _tokens(options: dict[str, Any], documents: tuple[Diagnosis, Diagnosis]) -> tuple[tuple[float, float] | None, str]:
    """Useful tokens per step of both, where the user or the logs tell them, and who does. Raises InputError."""
    if options["tokens"] is not None or options["logs"] is None:
        return options["tokens"], "--tokens" if options["tokens"] is not None else ""
    from diagnose.load.trainer_log import tokens_per_step  # noqa: PLC0415

    base, new = (tokens_per_step(path, _sequence(one)) for path, one in zip(options["logs"], documents, strict=True))
    return (base.tokens, new.tokens), base.source if base.source == new.source else f"{base.source}; {new.source}"


def _sequence(document: Diagnosis) -> int | None:
    """The job file's sequence length."""
    settings = document.job.settings if document.job is not None else ()
    return next((one.value for one in settings if one.name == "seq_length" and isinstance(one.value, int)), None)


def _documents(base: Given | None, new: Given, options: dict[str, Any]) -> tuple[Diagnosis, Diagnosis]:
    """The diagnoses of both sides. What is given twice is measured once."""
    quiet, format_ = options["quiet"], options["format_"]
    with progress(shown=sys.stderr.isatty() and not quiet and format_ == "text") as report:
        from diagnose.scale.choose import engine_for  # noqa: PLC0415

        how = {
            **_part(options, _MEASURING),
            "engine": engine_for(options["engine"], jobs=options["jobs"], scheduler=options["scheduler"]),
            "progress": report,
            "notice": None if quiet else say,
        }
        if base is None:
            from diagnose.commands.baseline import folder_of  # noqa: PLC0415
            from diagnose.reason.compare import baselines  # noqa: PLC0415

            baselines.check_name(options["baseline"])
            second = sides.document(new, how)
            return baselines.find(folder_of(options["folder"]), options["baseline"], second), second
        first = sides.document(base, how)
        return first, first if base.same_as == new.same_as else sides.document(new, how)


def _write(result: Comparison, new: Given, output: dict[str, Any]) -> None:
    from diagnose.commands.repository import path_in_repository  # noqa: PLC0415
    from diagnose.render.comparison import RENDERERS, Options  # noqa: PLC0415

    job_file = "" if new.config is None else path_in_repository(new.config)
    written(result, RENDERERS, Options(job_file=job_file), **output)


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
