"""Settings that follow from others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from diagnose.job.model import Job, Setting, column
from diagnose.knowledge import conditions
from diagnose.knowledge.settings import JobSettings

_DERIVE_ROUNDS = 4  # a derived size may need another derived one: expert tensor parallelism, then expert data parallelism


def completed(job: Job, *, world_size: int | None) -> Job:
    """The job with the world size that the trace tells, where the file does not say, and the sizes that follow from it."""
    if world_size is None or world_size < 1 or "world_size" in job.settings or "world_size" in job.unresolved:
        return job
    told = Setting(name="world_size", value=world_size, key="world_size of the trace", source="trace")
    settings = dict(job.settings) | {"world_size": told}
    left = frozenset(name for name, spec in job.table.specs.items() if spec.derive_is_default)
    settings |= derived_from(settings, job.unresolved | left, job.table)
    return dataclasses.replace(job, settings={name: settings[name] for name in job.table.specs if name in settings})


def derived_from(settings: Mapping[str, Setting], unresolved: frozenset[str], table: JobSettings) -> dict[str, Setting]:
    """Settings that follow from others, where those are known."""
    known: dict[str, Setting] = {}
    for _ in range(_DERIVE_ROUNDS):
        fresh = _once({**settings, **known}, unresolved, table)
        if not fresh:
            break
        known |= fresh
    return known


def _once(settings: Mapping[str, Setting], unresolved: frozenset[str], table: JobSettings) -> dict[str, Setting]:
    specs, schema = table.specs, table.schema
    wanted = {
        name: expression
        for name, expression in table.derivations.items()
        if name not in settings and name not in unresolved and not _overflows(expression.names, settings)
    }
    values = {f"job_{name}": column(specs[name], item.value) for name, item in settings.items()}
    read = {one: schema[one] for expression in wanted.values() for one in expression.names}
    results = conditions.evaluate(list(wanted.values()), conditions.row(values, read))
    known: dict[str, Setting] = {}
    for (name, expression), value in zip(wanted.items(), results, strict=True):
        if value is None or value != value // 1:
            continue
        parents = [settings[one.removeprefix("job_")] for one in expression.names if one.removeprefix("job_") in settings]
        told = [parent for parent in parents if parent.source != "default"]
        plain = bool(value) if specs[name].type == "bool" else int(value)
        known[name] = Setting(
            name=name,
            value=plain,
            key=", ".join(dict.fromkeys(part for parent in told for part in parent.shown.split(", "))) or "default",
            source="read" if told else "default",
            line=told[0].line if len(told) == 1 else None,
            assumed=any(parent.assumed for parent in parents),
        )
    return known


def _overflows(names: Sequence[str], settings: Mapping[str, Setting]) -> bool:
    """Whether the numbers that an expression reads could multiply to more than 64 bits: polars would wrap around in silence."""
    found = [settings[name.removeprefix("job_")].value for name in names if name.removeprefix("job_") in settings]
    return math.prod(abs(value) + 1 for value in found if isinstance(value, int)) >= 2**62
