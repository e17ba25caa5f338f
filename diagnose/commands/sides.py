"""The two sides of a comparison: what the user named, checked before any work, and made into diagnoses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagnose.commands.options import JobFile, Measuring, Reading
from diagnose.commands.output import say
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis

STDIN = "-"
_NOTHING = "Nothing was compared."


class Given(NamedTuple):
    """One side as the user named it: a saved diagnosis, a trace, or a folder or pattern of several ranks' traces; with its job file."""

    text: str
    job: JobFile
    saved: bool = False

    @property
    def path(self) -> Path | None:
        """The file or folder; None for standard input."""
        return None if self.text == STDIN else Path(self.text)

    @property
    def name(self) -> str:
        """The bare name of the file or folder; of a pattern, the folder's with it."""
        return self.called(1) if self.path is None or not set("*?[") & set(self.path.name) else self.called(2)

    def called(self, parts: int) -> str:
        """The last `parts` of its path."""
        if self.path is None:
            return "standard input"
        return "/".join(self.path.absolute().parts[-parts:]).lstrip("/") or self.text

    @property
    def same_as(self) -> tuple[object, ...]:
        """Equal for two sides that are the same input with the same job file."""
        if self.path is None:
            return (STDIN,)
        try:
            path = self.path.resolve()
        except (OSError, RuntimeError, ValueError):
            path = self.path
        return path, self.job


def given(text: str, job: JobFile, *, otherwise: Path | None = None) -> Given:
    """One side; whether it is a saved diagnosis is known by its content. `otherwise`: the job file of a trace that has none of its own.

    Raises UsageError for a comparison.
    """
    from diagnose.document.files import schema_of  # noqa: PLC0415

    schema = None if text == STDIN else schema_of(Path(text))
    if schema is not None and schema.startswith("comparison/"):
        raise UsageError(f"{text} is a comparison already.", effect=_NOTHING, next_step=f"Show it with: diagnose render {text}")
    if schema is None and job.config is None:
        job = JobFile(config=otherwise, job_command=job.job_command, overrides=job.overrides)
    return Given(text=text, job=job, saved=schema is not None)


def labels(runs: Sequence[Given]) -> list[str]:
    """What the runs are called: their bare names, with the folder's before it where two of these are the same."""
    names = [one.name for one in runs]
    return names if len(set(names)) == len({one.same_as for one in runs}) else [one.called(2) for one in runs]


def check(sides: Sequence[Given], measuring: Measuring) -> None:
    """Refuse what does not go together, before any work. Raises UsageError."""
    if sum(side.text == STDIN for side in sides) > 1:
        raise UsageError("Standard input can be one side only.", effect=_NOTHING, next_step="Name a file for the other.")
    used = [name for name in Reading.options if getattr(measuring, name)]
    if used and all(side.saved for side in sides):
        raise UsageError(
            f"--{used[0].replace('_', '-')} is about measuring a trace, and both sides are saved diagnoses.",
            effect=_NOTHING,
            next_step="Give the traces.",
        )
    for side in sides:
        if side.saved and side.job.overrides:
            raise UsageError(
                f"{side.text} is a saved diagnosis, to which no setting can be added.",
                effect=_NOTHING,
                next_step="Give the trace it was made from, or make the diagnosis again with --set.",
            )


def check_job_file(side: Given, document: Diagnosis) -> None:
    """Refuse a job file beside a saved diagnosis that was made with another one. Raises UsageError."""
    if not side.saved or side.job.config is None:
        return
    made_with = None if document.job is None else document.job.file
    if made_with != side.job.config.name:
        raise UsageError(
            f"{side.text} is a saved diagnosis, which was made {f'with the job file {made_with}' if made_with else 'without a job file'}.",
            effect=f"{side.job.config} would not be read. {_NOTHING}",
            next_step="Give the trace it was made from, or leave the job file out.",
        )


def side_document(
    side: Given, measuring: Measuring, *, progress: Callable[[str], None] | None, notice: Callable[[str], None] | None
) -> Diagnosis:
    """The diagnosis of one side: read where it is saved, else made from its traces; a comparison reads no plan."""
    if side.saved and side.path is not None:
        from diagnose.document.files import read_diagnosis  # noqa: PLC0415

        document = read_diagnosis(side.path)
        check_job_file(side, document)
        return document
    return measuring.diagnose((side.text,), side.job, forecasts=False, progress=progress, notice=notice)


def run_document(inputs: tuple[str, ...], job: JobFile, measuring: Measuring) -> Diagnosis:
    """The diagnosis of a single run: a saved one, or made from all of its traces."""
    first = given(inputs[0], job)
    if not first.saved:
        return measuring.diagnose(inputs, job, notice=say)
    check((first,), measuring)
    if len(inputs) > 1:
        raise UsageError(
            f"{first.text} is a saved diagnosis.", effect="Nothing was stored.", next_step="Give it alone, or give the traces."
        )
    return side_document(first, measuring, progress=None, notice=say)
