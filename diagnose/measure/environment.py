"""The environments of several inputs as one list."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.knowledge.environment import digest
from diagnose.model.environment import EnvironmentItem

SHOWN_VALUES = 3  # of one thing that differs between inputs
NOT_SET = "(not set)"


def merged(parts: Sequence[tuple[EnvironmentItem, ...]]) -> tuple[EnvironmentItem, ...]:
    """One list of what all inputs tell.

    What they share is said once, what differs with its few values, or with their number and a digest of all.

    An input that tells nothing of a thing does not count against it, but for a variable: there an input that tells others has it not set.
    """
    told = [part for part in parts if part]
    with_variables = sum(1 for part in told if any(item.kind == "variable" for item in part))
    found: dict[tuple[str, str], list[EnvironmentItem]] = {}
    for part in told:
        for item in part:
            found.setdefault((item.kind, item.name), []).append(item)
    kinds = list(dict.fromkeys(item.kind for part in told for item in part))
    joined = []
    for (kind, _), items in found.items():
        values = sorted({item.value for item in items})
        if kind == "variable" and len(items) < with_variables:
            values.append(NOT_SET)
        joined.append(items[0] if len(values) == 1 else _differing(items, values))
    return tuple(sorted(joined, key=lambda item: (kinds.index(item.kind), item.name if item.kind == "variable" else "")))


def _differing(items: Sequence[EnvironmentItem], values: Sequence[str]) -> EnvironmentItem:
    short = " | ".join(values) if len(values) <= SHOWN_VALUES else f"{len(values)} values, {digest(repr(values))}"
    first = items[0]
    return EnvironmentItem(name=first.name, kind=first.kind, value=f"differs between inputs: {short}", source=first.source)
