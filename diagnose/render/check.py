"""A check of a job file, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from diagnose.document.job import CheckReport, CheckResult, Deciding
from diagnose.model.vocabulary import GROUPS, Group
from diagnose.render import units, words

HEADINGS: Mapping[Group, str] = MappingProxyType(
    {
        "will_fail": "Will fail",
        "will_hang": "Will hang",
        "silently_off": "Silently off",
        "doubtful": "Doubtful",
    }
)
_WIDTH = 110


def text(report: CheckReport) -> str:
    """What goes wrong, by how bad it is, with the settings that decide and the remedy."""
    counts = {group: sum(result.group == group for result in report.results) for group in GROUPS}
    said = ", ".join(f"{HEADINGS[group].lower()}: {number}" for group, number in counts.items() if number) or "nothing found wrong"
    where = f"on {report.platform}" if report.platform else "on no named platform"
    lines = [f"{report.job.format} job {where}: {said}. {report.checked} checks decided, {len(report.not_assessed)} not assessed."]
    for group in GROUPS:
        found = [result for result in report.results if result.group == group]
        lines += ["", HEADINGS[group]] if found else []
        for result in found:
            lines += _result(result)
    lines += _not_assessed(report)
    return "\n".join(units.visible(line) for line in lines) + "\n"


def _result(result: CheckResult) -> list[str]:
    kind = f"{words.OUTCOME[result.outcome]}" if result.outcome else "does not go together"
    lines = ["", *_wrapped(f"{result.id} ({kind})", "  "), *_wrapped(result.summary, "    ")]
    if result.assumed:
        lines += _wrapped(f"Follows only with defaults that the file does not state: {', '.join(result.assumed)}.", "    ")
    lines += _entry("seen as", result.symptom)
    lines += _entry("decided by", ", ".join(_shown(one) for one in result.settings))
    lines += _entry("remedy", result.remedy)
    lines += _entry("fixes", ", ".join(f"{fix.id} {fix.title}" for fix in result.fixes))
    return lines + _entry("source", "; ".join(result.refs))


def _shown(one: Deciding) -> str:
    value = (
        f"[{', '.join(one.value)}]"
        if isinstance(one.value, tuple)
        else str(one.value).lower()
        if isinstance(one.value, bool)
        else one.value
    )
    origin = {"read": "" if one.key == one.name else f" ({one.key})", "default": " (default, not in the file)", "platform": ""}[one.source]
    return f"{one.name} = {value}{origin}"


def _not_assessed(report: CheckReport) -> list[str]:
    """Checks that lack settings, by the settings that they lack."""
    by_missing: dict[str, list[str]] = {}
    for one in report.not_assessed:
        by_missing.setdefault(one.how, []).append(one.id)
    if not by_missing:
        return []
    lines = ["", "Not assessed: the job file does not say"]
    for how, ids in by_missing.items():
        lines += ["", *_wrapped(how, "  "), *_wrapped(f"would decide {', '.join(ids)}", "    ")]
    return lines


def _entry(label: str, value: str) -> list[str]:
    return _wrapped(f"{label}: {value}", "    ") if value else []


def _wrapped(value: str, indent: str) -> list[str]:
    return textwrap.wrap(
        value, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )


def json(document: msgspec.Struct) -> str:
    """The document as JSON, fields in their order."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode("utf-8") + "\n"
