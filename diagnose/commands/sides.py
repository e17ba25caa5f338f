"""The two sides of a comparison: what the user named, checked before any work, and made into diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.document.diagnosis import Diagnosis

STDIN = "-"
_NOTHING = "Nothing was compared."


@dataclass(frozen=True, kw_only=True)
class Given:
    """One side as the user named it: a saved diagnosis, a trace, or a folder or pattern of several ranks' traces; with its job file."""

    text: str
    config: Path | None = None
    overrides: tuple[str, ...] = ()
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
            place = self.path.resolve()
        except (OSError, RuntimeError, ValueError):
            place = self.path
        return place, self.config, self.overrides


def given(text: str, *, config: Path | None, overrides: tuple[str, ...], otherwise: Path | None = None) -> Given:
    """One side; whether it is a saved diagnosis is told by its content. `otherwise`: the job file of a trace that has none of its own. Raises UsageError for a comparison."""
    from diagnose.document.files import schema_of  # noqa: PLC0415

    schema = None if text == STDIN else schema_of(Path(text))
    if schema is not None and schema.startswith("comparison/"):
        raise UsageError(f"{text} is a comparison already.", effect=_NOTHING, next_step=f"Show it with: diagnose render {text}")
    saved = schema is not None
    return Given(text=text, config=config if saved else config or otherwise, overrides=overrides, saved=saved)


def labels(base: Given, new: Given) -> tuple[str, str]:
    """What the two are called: their bare names, with the folder's before it where these are the same."""
    if base.name != new.name:
        return base.name, new.name
    return base.called(2), new.called(2)


def check(sides: Sequence[Given], measuring: dict[str, Any]) -> None:
    """Refuse what does not go together, before any work. Raises UsageError."""
    if sum(side.text == STDIN for side in sides) > 1:
        raise UsageError("Standard input can be one side only.", effect=_NOTHING, next_step="Name a file for the other.")
    asked = [name for name in ("rules", "rank", "step_range", "nsys") if measuring[name]]
    if asked and all(side.saved for side in sides):
        option = f"--{asked[0].replace('_', '-')}"
        raise UsageError(
            f"{option} is about measuring a trace, and both sides are saved diagnoses.", effect=_NOTHING, next_step="Give the traces."
        )
    for side in sides:
        if side.saved and side.overrides:
            raise UsageError(
                f"{side.text} is a saved diagnosis, to which no setting can be added.",
                effect=_NOTHING,
                next_step="Give the trace it was made from, or make the diagnosis again with --set.",
            )


def check_job_file(side: Given, document: Diagnosis) -> None:
    """Refuse a job file beside a saved diagnosis that was made with another one. Raises UsageError."""
    if not side.saved or side.config is None:
        return
    made_with = None if document.job is None else document.job.file
    if made_with != side.config.name:
        raise UsageError(
            f"{side.text} is a saved diagnosis, which was made {f'with the job file {made_with}' if made_with else 'without a job file'}.",
            effect=f"{side.config} would not be read. {_NOTHING}",
            next_step="Give the trace it was made from, or leave the job file out.",
        )


def document(side: Given, how: dict[str, Any]) -> Diagnosis:
    """The diagnosis of one side: read where it is saved, else made from its traces, as `how` says (the options of the pipeline)."""
    if side.saved and side.path is not None:
        from diagnose.commands.shared import read_diagnosis  # noqa: PLC0415

        found = read_diagnosis(side.path)
        check_job_file(side, found)
        return found
    from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

    return diagnose((side.text,), config=side.config, overrides=side.overrides, **how)


def one(inputs: tuple[str, ...], *, config: Path | None, overrides: tuple[str, ...], how: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a single run: a saved one, or made from all of its traces."""
    first = given(inputs[0], config=config, overrides=overrides)
    if first.saved:
        check((first,), how)
        if len(inputs) > 1:
            raise UsageError(
                f"{first.text} is a saved diagnosis.", effect="Nothing was stored.", next_step="Give it alone, or give the traces."
            )
        return document(first, how)
    from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

    return diagnose(inputs, config=config, overrides=overrides, **how)
