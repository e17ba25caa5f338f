"""What a patch did, as text."""

from __future__ import annotations

import textwrap

from diagnose.document.job import Applied, PatchReport, Written
from diagnose.render import units

_WIDTH = 110


def text(report: PatchReport) -> str:
    """Fixes with the keys that they changed, what was left, and the same changes for a command line."""
    done = f"{units.plural(len(report.applied), 'fix', 'fixes')} applied, {units.plural(len(report.written), 'setting')} changed"
    lines = [f"{report.source}: {done}."]
    for one in report.applied:
        lines += _applied(one, [row for row in report.written if row.fix == one.id])
    lines += _section("Left to you", [f"{row.fix}: {row.key} {row.to} ({row.why})" for row in report.left_to_you])
    lines += _section("Not applied", [f"{row.id} {row.title}. {row.why}" for row in report.skipped])
    lines += _section("Wrong before, and still", [f"{row.id}: {row.summary}" for row in report.still_wrong])
    lines += _section("Instead of the file, Megatron-Bridge", [" ".join(report.bridge_overrides)])
    lines += _section("Instead of the file, Megatron-LM", [" ".join(report.megatron_flags)])
    lines += _section("Environment", list(report.environment))
    return "\n".join(units.visible(line) for line in lines) + "\n"


def _applied(one: Applied, rows: list[Written]) -> list[str]:
    reason = f", for {one.for_finding}" if one.for_finding else ""
    lines = ["", *_wrapped(f"{one.id} {one.title}{reason}", "")]
    lines += [f"  {row.key}: {row.from_ or '(not set)'} → {row.to or '(removed)'}" for row in rows]
    lines += [line for expected in one.expected for line in _wrapped(f"expected: {expected.text} [{expected.source}]", "  ")]
    lines += _wrapped(f"verify: {one.verify}", "  ")
    return lines + [line for sentence in one.unknown for line in _wrapped(f"not known: {sentence}", "  ")]


def _section(title: str, rows: list[str]) -> list[str]:
    found = [row for row in rows if row]
    return ["", f"{title}:", *(line for row in found for line in _wrapped(row, "  "))] if found else []


def _wrapped(value: str, indent: str) -> list[str]:
    return textwrap.wrap(
        value, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
