"""Every job setting is judged by something, or the table says why nothing is to be judged."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.builders import yaml_text
from tests.builders.facts import BOOK

TABLE = Path(__file__).parent / "unjudged.tsv"
RULES = Path(__file__).parents[2] / "trace_rules"
SHOWN = {"examples", "say", "summary", "refs", "meaning"}  # these show a setting, or try a condition; they do not ask


def asked(node: Any) -> Iterator[str]:
    """Settings in conditions and expressions, in whatever is a part of a rule, check, fix or setting."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in SHOWN:
                yield from asked(value)
    elif isinstance(node, list):
        for value in node:
            yield from asked(value)
    elif isinstance(node, str):
        yield from re.findall(r"\bjob_(\w+)", node)


def test_every_setting_is_judged_or_has_a_reason_why_not() -> None:
    lines = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    reasons = dict(csv.reader(lines, delimiter="\t"))
    judged = {name for file in RULES.rglob("*.yaml") for name in asked(yaml_text.load(file.read_text(encoding="utf-8")))}
    assert set(BOOK.settings) - judged == set(reasons)
    assert all(len(reason) > 20 for reason in reasons.values())
