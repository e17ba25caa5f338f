"""`diagnose history`: a metric over the runs of a job, and where it stepped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.commands.baseline import Store
from diagnose.commands.options import USUAL, JobFile, Measuring, Output, Verb, metric_option, option, output_of, takes
from diagnose.commands.output import check_outputs, say, write_document
from diagnose.errors import DiagnoseError, UsageError

if TYPE_CHECKING:
    from diagnose.bisect.history import Captured
    from diagnose.knowledge.comparison import ComparisonRules


class Series(Store):
    """Which runs, and what is looked at."""

    baseline: str | None = option("--baseline", panel=USUAL, metavar="NAME", help="The runs of this stored baseline.", before="store")
    fingerprint: str | None = option(
        "--fingerprint", panel=USUAL, metavar="TEXT", help="Of a baseline with several jobs or GPUs, this one.", before="store"
    )
    metric: str = metric_option("What is looked at: ")


@click.command(cls=Verb)
@click.argument("runs", nargs=-1, metavar="[RUN|FOLDER|PATTERN]...")
@takes(series=Series, job=JobFile, measuring=Measuring, output=output_of("history"))
def history(runs: tuple[str, ...], series: Series, job: JobFile, measuring: Measuring, output: Output) -> int:
    """Show a metric over the runs of a job, and where it stepped.

    \b
    diagnose history --baseline nightly -o history.html
    diagnose history runs/
    diagnose history 'nightly/*.sqlite' --metric transport

    Runs are traces, folders of one run's traces, or saved diagnoses; of a folder, those in it. They are ordered by the commit in their
    names, by when they were captured, by the date in their names, or by name, and the result says which. Steps are found by the model of
    `diagnose bisect`, so that a step has a range of runs and a probability.
    """  # noqa: D301 - \\b is click's sign for "do not rewrap"
    if bool(runs) == (series.baseline is not None):
        raise UsageError(
            "A history is made of RUNs, or of a stored --baseline." if not runs else "RUNs and --baseline do not go together.",
            effect="Nothing was read.",
            next_step="For example: diagnose history runs/, or diagnose history --baseline nightly",
        )
    measuring.check()
    check_outputs(output, kind="history")
    from diagnose.bisect.history import history as made  # noqa: PLC0415
    from diagnose.bisect.model import load_numbers  # noqa: PLC0415
    from diagnose.document.diagnosis import Tool  # noqa: PLC0415
    from diagnose.knowledge.comparison import load_comparison_rules  # noqa: PLC0415
    from diagnose.reason.compare.metrics import check_metric  # noqa: PLC0415
    from diagnose.version import __version__  # noqa: PLC0415

    rules = load_comparison_rules(measuring.rules)
    check_metric(series.metric, rules, effect="Nothing was read.")
    name = series.baseline or (Path(runs[0]).name if len(runs) == 1 and Path(runs[0]).is_dir() else "the runs")
    captured, order = _stored(series, rules) if series.baseline is not None else _captured(runs, job, measuring, output)
    first = next((one.document for one in captured if one.document is not None), None)
    tool = Tool(name="diagnose", version=__version__, rules_sha256="" if first is None else first.tool.rules_sha256)
    document = made(captured, metric=series.metric, rules=rules, numbers=load_numbers(), tool=tool, name=name, order=order)
    write_document(document, output)
    return 0


def _stored(series: Series, rules: ComparisonRules) -> tuple[list[Captured], str]:
    """The runs of a stored baseline, oldest first. Raises BaselineError, UsageError."""
    from diagnose.bisect.history import Captured  # noqa: PLC0415

    name, store = series.baseline or "", series.opened(rules)
    found = store.runs(name, series.fingerprint)
    if not found:
        raise store.lacks(name)
    kinds = sorted({one.fingerprint for one in found})
    if len(kinds) > 1:
        raise UsageError(
            f"The baseline {name} holds runs of {len(kinds)} jobs or GPUs: {', '.join(kinds)}.",
            effect="Nothing was shown.",
            next_step=f"Choose one with --fingerprint; `diagnose baseline list{store.option}` shows which is which.",
        )
    days = [one.date[: len("2026-01-31")] for one in found]
    several = len(set(days)) < len(days)
    captured = [
        Captured(label=one.run if several or not day else day, document=one.document, date=one.date or None, commit=one.commit)
        for day, one in zip(days, found, strict=True)
    ]
    return captured, "By the dates with which they were stored."


def _captured(inputs: Sequence[str], job: JobFile, measuring: Measuring, output: Output) -> tuple[list[Captured], str]:
    """Runs that were named, measured in one go. Raises InputError, and UsageError where an output is one of them."""
    from diagnose.bisect import candidates, trial  # noqa: PLC0415
    from diagnose.bisect.history import Captured  # noqa: PLC0415
    from diagnose.load.readers import start_of  # noqa: PLC0415
    from diagnose.pipeline import diagnose_each  # noqa: PLC0415

    here = Path.cwd()
    order = candidates.runs(inputs, here)
    paths = [Path(entry.item) for entry in order.entries]
    check_outputs(output, inputs=tuple(paths), kind="history")
    unsaved = [[path] for path in paths if not trial.is_saved([path])]
    found = []
    with closing(diagnose_each(unsaved, **measuring.arguments(job, None if output.quiet else say))) as stream:
        for entry, path in zip(order.entries, paths, strict=True):
            start = start_of(path)
            told = None if start is None else f"{datetime.fromtimestamp(start / 1e9, UTC):%Y-%m-%dT%H:%M:%SZ}"
            date = candidates.date_in(path.name) or told
            commit = candidates.commit_in(path.name, here)
            try:
                outcome = trial.read_capture([path]) if trial.is_saved([path]) else next(stream)
                document, problem = (None, str(outcome)) if isinstance(outcome, DiagnoseError) else (outcome, "")
            except trial.UnusableError as fault:
                document, problem = None, str(fault)
            if problem and not output.quiet:
                say(f"{entry.label}: {problem}")
            found.append(Captured(label=entry.label, document=document, date=date, commit=commit, problem=problem))
    return found, order.how
