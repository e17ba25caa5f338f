"""How a comparison says its figures: signs, units, and what categories and metrics are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from diagnose.knowledge.templates import decimal, percent
from diagnose.reason.compare.metrics import BLOCKING, BUCKET, COMPUTE, KERNELS, STEP_TIME

_CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "transport": "exposed transport",
        "packing": "exposed packing",
        "copy": "exposed copies",
        "launch_starved": "launch-starved time (the host had not issued the next kernel)",
        "host_sync": "idle time under synchronising calls",
        "dependency_stalled": "waiting that no resolved dependency explains",
        "idle": "idle time without a cause",
    }
)
_LONGEST_NAME = 72


def category_title(name: str) -> str:
    """A category in words, without an article."""
    if name.startswith(COMPUTE):
        return f"compute in {name.removeprefix(COMPUTE).replace('_', ' ')}"
    return _CATEGORIES.get(name, name.replace("_", " "))


def metric_title(metric: str) -> str:
    """A metric as the subject of a sentence."""
    if metric == STEP_TIME:
        return "the step"
    if metric == KERNELS:
        return "the number of kernels per step"
    if metric.startswith(BUCKET):
        return f"the time in which {metric.removeprefix(BUCKET).replace('_', ' ')} runs"
    if metric.startswith(BLOCKING):
        return f"the time that compute waits for {metric.removeprefix(BLOCKING).replace('_', ' ')}"
    return category_title(metric)


def capital(text: str) -> str:
    """The first sign in upper case, and the rest as it is."""
    return text[:1].upper() + text[1:]


_SHOWN: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "ns": lambda value: f"{decimal(value / 1e6)} ms",
        "share": percent,
        "bytes": lambda value: f"{decimal(value / 2**30)} GiB",
        "count": lambda value: f"{value:,.0f}" if value == round(value) else f"{value:,.1f}",
        "ns per token": lambda value: f"{decimal(value)} ns per token",
    }
)


def figure(value: float, unit: str) -> str:
    """A value with its unit."""
    return _SHOWN[unit](value) if unit in _SHOWN else f"{decimal(value)} {unit}"


def signed(value: float, unit: str) -> str:
    """A difference with its sign and unit; what is shown as nought has no sign."""
    return _with_sign(value, figure(abs(value), unit))


def signed_share(value: float) -> str:
    """A relative difference with its sign."""
    return _with_sign(value, percent(abs(value)))


def _with_sign(value: float, shown: str) -> str:
    sign = "−" if value < 0 else "+"
    return f"{sign}{shown}" if any(digit in "123456789" for digit in shown) else shown


def ms(ns: float) -> str:
    """Nanoseconds as milliseconds with the unit."""
    return figure(ns, "ns")


def brief(name: str) -> str:
    """A kernel's name short enough for a sentence: without its return type, then without arguments, then cut."""
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    if len(text) > _LONGEST_NAME and "<" in text[1:]:
        text = f"{text[: text.index('<', 1)]}<…>"
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def listed(parts: list[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1] if parts else "") if part)
