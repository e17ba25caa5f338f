"""From a trace, or several ranks' traces, to a saved diagnosis and the metric's values in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from diagnose.document.diagnosis import SCHEMA, Diagnosis, decode, encode
from diagnose.errors import InputError, JobFileError, UsageError
from diagnose.knowledge.buckets import load_buckets
from diagnose.reason.compare.metrics import NO_STEPS, STEP_TIME, Samples, UnmeasuredError, place_of, samples

_OWN = re.compile(rb'\s*\{\s*"schema"\s*:\s*"diagnosis/[0-9]+"')


class UnusableError(Exception):
    """A capture that gives no value of the metric; the trial says so with this reason."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How traces are measured: the options of the pipeline. `config`, where it is relative, is looked for in the folder that the command works in."""

    config: str | None = None
    overrides: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    options: Mapping[str, Any]


def document_of(inputs: Sequence[Path], how: How, folder: Path) -> Diagnosis:
    """The diagnosis of one capture: made from its traces, or read where it is a saved one. Raises UnusableError, and RuleFileError for what is wrong with every capture alike."""
    try:
        if len(inputs) == 1 and (saved := _saved(inputs[0])) is not None:
            return saved
        from diagnose.pipeline import diagnose  # noqa: PLC0415 - imports polars

        config = None if how.config is None else folder / how.config
        return diagnose([str(path) for path in inputs], config=config, overrides=how.overrides, rules=how.rules, **how.options)
    except (InputError, JobFileError, UsageError) as fault:
        raise UnusableError(f"{fault.what} {fault.next_step}".strip()) from fault


def _saved(path: Path) -> Diagnosis | None:
    """The diagnosis at `path`; None where it is no saved one. Raises InputError."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if not _OWN.match(file.read(200)):
            return None
    return read(path)


def read(path: Path) -> Diagnosis:
    """A saved diagnosis. Raises InputError."""
    try:
        found = decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{path.name} is not a whole diagnosis: {fault}.", effect="It was not used.") from fault
    if found.schema != SCHEMA:
        raise InputError(f"{path.name} has the schema {found.schema[:40]}; this version of the program reads {SCHEMA}.")
    return found


def save(path: Path, document: Diagnosis) -> None:
    """Write a diagnosis, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(encode(document))
    temporary.replace(path)


def values_of(document: Diagnosis, metric: str, place: tuple[int, int] | None) -> Samples:
    """The metric's samples: at `place` (rank, device) where that was captured and has it, else on the device that the verdict speaks of. Raises UnusableError, and MetricError for a metric that there is not."""
    own = place_of(document)
    for where in dict.fromkeys((place or own, own)):
        try:
            return samples(document, metric, where, buckets=load_buckets())
        except UnmeasuredError as fault:
            reason = f"{fault.what} {fault.next_step}".strip()
    raise UnusableError(reason)


def no_steps(document: Diagnosis, metric: str) -> bool:
    """True where a time per step was asked for and the capture could not be cut into steps."""
    return metric == STEP_TIME and document.steps.anchor == NO_STEPS
