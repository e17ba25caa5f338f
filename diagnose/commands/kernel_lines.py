"""Kernel names in, one answer per line out: what `diagnose kernel` does with its arguments and its standard input.

A line is a bare name, or a JSON object `{"name": …, "context": {…}}`. A line that cannot be read is answered with its reason, in its
place, and the others are answered all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from diagnose.knowledge.taxonomy import Taxonomy
from diagnose.measure.buckets.describe import Context, describe_all
from diagnose.render.reports.kernels import KernelAnswer, KernelAnswers


class LineError(ValueError):
    """The line does not say which kernel is meant."""


def answers(lines: Sequence[str], taxonomy: Taxonomy) -> KernelAnswers:
    """An answer for every line that is not empty, in order."""
    read: list[tuple[int, str, Context | None]] = []
    wrong: dict[int, KernelAnswer] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read.append((number, *_name_and_context(line)))
        except LineError as error:
            wrong[number] = KernelAnswer(line=number, name=line, error=str(error))
    found = describe_all([(name, context) for _, name, context in read], taxonomy)
    right = {number: KernelAnswer(line=number, name=name, found=verdict) for (number, name, _), verdict in zip(read, found, strict=True)}
    return KernelAnswers(answers=tuple((right | wrong)[number] for number in sorted(right | wrong)))


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
