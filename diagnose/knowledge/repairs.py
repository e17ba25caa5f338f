"""What a check's `repair` asks for, as a fix that can be applied: each setting under the key that every framework has for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from diagnose.knowledge.catalogue import ChangeSpec, CheckSpec, FixSpec, Repair, RepairSpec
from diagnose.knowledge.settings import JobSettings
from diagnose.knowledge.templates import literal

_ENVIRONMENT = "environment"


def as_fix(key: str, check: CheckSpec, table: JobSettings) -> FixSpec | None:
    """The repair of a check as a fix with the check's id; None where it has none."""
    if not check.repair:
        return None
    changes = tuple(change for name, wanted in check.repair.items() for change in _changes(name, wanted, table))
    return FixSpec(
        id=key,
        title=f"repair: {check.title}",
        walls=(),
        phase="fit",
        evidence="required",
        changes=changes,
        expected=(),
        cost="",
        risk="",
        verify="the check is silent",
        refs=check.refs,
    )


def _changes(name: str, wanted: Repair, table: JobSettings) -> Iterator[ChangeSpec]:
    """One setting's changes, in the keys of every framework that writes it as it is, or in its environment variable."""
    spec = table.specs[name]
    places = [(one, keys[0]) for one in table.frameworks if (keys := spec.keys_in(one)) and spec.values_in(one, keys[0]) is None]
    shown = [(one, f"--{key.lstrip('!').partition('=')[0]}" if table.has_flags(one) else key) for one, key in places]
    for framework, key in shown or [(_ENVIRONMENT, variable) for variable in spec.env[:1]]:
        for op, to, value in _edits(wanted):
            yield ChangeSpec(framework=framework, key=key, to=to, setting=name, op=op, value=value)


def _edits(wanted: Repair) -> Iterator[tuple[Literal["set", "add", "remove", "unset"], str, str | None]]:
    if wanted is None:
        yield "unset", "null", None
    elif not isinstance(wanted, RepairSpec):
        yield "set", literal(wanted), None
    elif wanted.value is not None:
        yield "set", f"computed as {wanted.value}", wanted.value
    else:
        for op, members in (("remove", wanted.remove), ("add", wanted.add)):
            for member in members:
                yield op, member, None  # type: ignore[misc]
