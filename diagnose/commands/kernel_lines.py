"""Kernel names in, one answer per line out: what `diagnose kernel` does with its arguments and its standard input.

A line is a bare name, or a JSON object `{"name": …, "context": {…}}`. A line that cannot be read is answered with its reason, in its
place, and the others are answered all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.measure.buckets.describe import Context, NameVerdict, describe_all
from diagnose.render import units
from diagnose.render.explain import kernel_text


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One line's answer: `found`, or why there is none."""

    line: int  # place among the lines given, from 1; empty ones count
    name: str
    found: NameVerdict | None = None
    error: str | None = None


class LineError(ValueError):
    """The line does not say which kernel is meant."""


def answers(lines: Sequence[str], taxonomy: Taxonomy) -> list[Answer]:
    """An answer for every line that is not empty, in order."""
    read: list[tuple[int, str, Context | None]] = []
    wrong: dict[int, Answer] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read.append((number, *_name_and_context(line)))
        except LineError as error:
            wrong[number] = Answer(line=number, name=line, error=str(error))
    found = describe_all([(name, context) for _, name, context in read], taxonomy)
    right = {number: Answer(line=number, name=name, found=verdict) for (number, name, _), verdict in zip(read, found, strict=True)}
    return [(right | wrong)[number] for number in sorted(right | wrong)]


def _name_and_context(line: str) -> tuple[str, Context | None]:
    """Name and context of one line. Raises LineError."""
    if not line.lstrip().startswith("{"):
        return line.strip(), None
    try:
        data: Any = msgspec.json.decode(line.encode("utf-8", errors="replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise LineError(f"the line is no JSON object: {error}") from error
    name, context = data.get("name"), data.get("context")
    if not isinstance(name, str) or not name.strip():
        raise LineError("`name` is missing, or no text")
    if context is not None and not isinstance(context, dict):
        raise LineError("`context` is no object")
    return name, context


def as_text(answer: Answer) -> str:
    """A short paragraph."""
    if answer.found is None:
        return f"line {answer.line}\n  error      {units.visible(answer.error or '')}\n"
    return kernel_text(answer.name, answer.found)


def as_json(answer: Answer) -> str:
    """One line of JSON."""
    found = answer.found
    if found is None:
        return _line({"line": answer.line, "error": answer.error})
    return _line(
        {
            "name": answer.name,
            "bucket": found.bucket,
            "phase": found.phase,
            "role": found.role,
            "kind": found.kind,
            "backend": found.backend,
            "operation": found.operation,
            "evidence": found.evidence,
            "rule": found.rule,
            "ambiguous": found.weak,
            "alternatives": found.alternatives,
        }
        | ({"not_understood": found.not_understood} if found.not_understood else {})
    )


def _line(data: Mapping[str, object]) -> str:
    return msgspec.json.encode(data).decode("utf-8") + "\n"
