"""Sentences with numbers: `{launch_starved_ns:ms} ms per step`. Only names and the formats below; nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Value = int | float | bool | str | tuple[str, ...] | None
_FIELD = re.compile(r"\{([a-z0-9_]+)(?::([a-z]+))?\}")
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_SHOWN = re.compile(_FIELD.pattern + r"( (?:ms|µs|GiB))?")
_UNITS: Mapping[str, tuple[str, ...]] = {
    "ms": ("ns",),
    "us": ("ns",),
    "pct": ("share",),
    "num": ("count", "share", "int", "float"),
    "n": ("count", "int"),
    "gib": ("bytes",),
    "text": ("text", "bool", "list", "int", "float", "version"),
}
_ABSENT = "not known"


def decimal(value: float) -> str:
    """A number with three significant digits, from 100 on with one decimal and from 1,000 on with none."""
    size = abs(value)
    places = 0 if value == 0 else 3 if size < 1 else 2 if size < 10 else 1 if size < 1000 else 0
    return f"{value:,.{places}f}"


def percent(share: float) -> str:
    """A share as a percentage with its sign: 0.123 is 12.3 %."""
    size = abs(share)
    return f"{share * 100:.{2 if 0 < size < 0.01 else 1}f} %"


def capitalised(text: str) -> str:
    """The text as it begins a line: the first sign in upper case, and the rest as it is."""
    return f"{text[:1].upper()}{text[1:]}"


def enumerated(items: Sequence[str]) -> str:
    """All of a few things: `1`, `1 and 2`, `1, 2 and 3`."""
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)


def literal(value: Value) -> str:
    """A value as job files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ms": lambda value: decimal(value / 1e6),
    "us": lambda value: decimal(value / 1e3),
    "pct": percent,
    "num": decimal,
    "n": lambda value: f"{round(value):,}",
    "gib": lambda value: decimal(value / 2**30),
}


def fill(template: str, values: Mapping[str, Value]) -> str:
    """`template` with its fields filled in; what is not known says so, without the unit behind it.

    What stands in `[[…]]` is left out where one of its fields is not known.
    """

    def segment(match: re.Match[str]) -> str:
        return match[1] if all(values.get(name) is not None for name, _ in _FIELD.findall(match[1])) else ""

    def shown_value(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        if value is None:
            return _ABSENT
        numeric = _FORMATS.get(match.group(2) or "text")
        shown = numeric(float(value)) if numeric is not None and not isinstance(value, str | tuple) else literal(value)
        return shown + (match.group(3) or "")

    return _SHOWN.sub(shown_value, _OPTIONAL.sub(segment, template))


def problems(template: str, units: Mapping[str, str]) -> list[str]:
    """What is wrong with a template: stray braces, unknown names, formats that do not fit the unit."""
    found = ["stray brace"] if re.search(r"[{}]", _FIELD.sub("", template)) else []
    for name, form in _FIELD.findall(template):
        unit = units.get(name)
        if unit is None:
            found.append(f"unknown name {name}")
        elif unit not in _UNITS.get(form or "text", ()):
            found.append(f"{name} is in {unit}, which the format {form or 'text'} does not show")
    return found
