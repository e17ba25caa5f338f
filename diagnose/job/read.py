"""From a path or a text to a Job: the first reader that takes the text, and what its values settle to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.errors import JobFileError
from diagnose.job.formats import READERS
from diagnose.job.formats.overrides import NAME as OVERRIDES
from diagnose.job.model import EFFECT, Job, Parsed, job_error
from diagnose.job.overrides import parse_overrides
from diagnose.job.settle import settle
from diagnose.job.text import JobText, decoded
from diagnose.knowledge.strict_yaml import MAX_BYTES


def read_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """The job in the file at `path`, with `overrides` (KEY=VALUE) on top. Raises JobFileError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise JobFileError(
            f"The job file {path} cannot be read: {error.strerror or error}.",
            effect=EFFECT,
            next_step="Give --config a file: a configuration dump, Megatron-LM arguments, the command line, or a plain job.yaml.",
        ) from error
    return replace(parse_job(data, source=path.name, overrides=overrides, folder=path.parent), file=path.name)


def parse_job(text: str | bytes, *, source: str = "job file", overrides: Sequence[str] = (), folder: Path | None = None) -> Job:
    """The job in `text`; `source` names it in messages, `folder` is where its own paths start. Raises JobFileError."""
    parsed = _parsed(JobText(text=decoded(text, source), source=source, folder=folder))
    return settle(replace(parsed, leaves=(*parsed.leaves, *parse_overrides(overrides))), source)


def overridden_job(overrides: Sequence[str]) -> Job:
    """A job of which only overrides are known. Raises JobFileError."""
    return settle(Parsed(format=OVERRIDES, leaves=parse_overrides(overrides)), "--set")


def _parsed(text: JobText) -> Parsed:
    for reader in READERS.values():
        parsed = reader.read(text)
        if parsed is not None:
            return parsed
    raise job_error(text.source, "is in no format that is known", "Give a configuration dump, flags, or the command that started the job.")
