"""From options to what the tasks of a run share. Everything that measures, in this process or another one, prepares with this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from diagnose.errors import UsageError
from diagnose.job import Job, overridden_job, read_job
from diagnose.knowledge.load import Knowledge, load_knowledge
from diagnose.scale.tasks import Settings


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The job, all rules, and what goes to tasks."""

    job: Job | None
    knowledge: Knowledge
    settings: Settings


def prepare(*, config: Path | None, overrides: Sequence[str], rules: Sequence[Path], step_range: str | None, nsys: Path | None) -> Prepared:
    """Read the job file and the rules. Raises JobFileError, RuleFileError, UsageError."""
    job = read_job(config, overrides) if config else overridden_job(overrides) if overrides else None
    own = tuple(dict.fromkeys((*(job.rules if job else ()), *rules)))  # named in both places: read once; one id in two files is refused
    wanted = step_range or (job.step_range if job else None)
    _check_pattern(wanted)
    knowledge = load_knowledge(own)
    settings = Settings(rules=own, rules_sha256=knowledge.rulebook.sha256, step_range=wanted, nsys=nsys)
    return Prepared(job=job, knowledge=knowledge, settings=settings)


def _check_pattern(step_range: str | None) -> None:
    """Raise UsageError unless the user's pattern for step ranges is a regular expression of the kind that polars takes."""
    try:
        pl.select(pl.lit("").str.contains(step_range or ""))
    except pl.exceptions.ComputeError as error:
        raise UsageError(
            f"The step range {step_range!r} is no regular expression: {' '.join(str(error).split())[:200]}",
            effect="Nothing was analysed.",
            next_step="Give a pattern without look-around, for example 'iteration (\\d+)'.",
        ) from None
