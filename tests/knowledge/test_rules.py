"""The catalogue of rules and fixes is whole: every file has its id, every fix is reached, every entry says what it has to say."""

from __future__ import annotations

import re
from pathlib import Path

from diagnose.knowledge.rulebook import load_rulebook

ROOT = Path(__file__).parents[2]
BOOK = load_rulebook()
REQUIRED = {
    "COM": (1, 2, 5, 6, 7, 9, 10, 11, 13, 15, 18, 20),
    "HOST": (1, 3, 4, 5, 7, 8),
    "MEM": (1, 2, 3, 6, 8),
    "CPY": (2,),
    "CMP": (1, 2, 3, 5),
}
REQUIRED_FIXES = {f"{group}-{number:02d}" for group, numbers in REQUIRED.items() for number in numbers}
BRIDGE_ONLY = {"MEM-13"}  # Megatron-LM trains no LoRA adapters
NOT_CAPTURED = re.compile(r"not recorded|was recorded|holds no range|does not tell|allocator events|neither checkpoint|traced as a whole")


def test_files_and_ids_agree() -> None:
    names = {path.stem for path in (ROOT / "trace_rules" / "rules").glob("*.yaml")}
    assert names == set(BOOK.rules)
    prefixes = {"host": "host_overhead"}
    assert [rule.id for rule in BOOK.rules.values() if rule.wall != prefixes.get(rule.id.split("-")[0], rule.id.split("-")[0])] == []


def test_every_required_fix_exists_and_is_used() -> None:
    assert set(BOOK.fixes) >= REQUIRED_FIXES
    used = {fix for rule in BOOK.rules.values() for fix in rule.fixes}
    reached = used | {item.first for fix in BOOK.fixes.values() for item in (*fix.needs, *fix.conflicts) if item.first}
    assert set(BOOK.fixes) == reached, "a fix that nothing leads to is never shown"


def test_fixes_change_something_cite_a_source_and_are_verified_by_facts() -> None:
    fact = r"[a-z]+_ns\b|[a-z]+_bytes\b|_per_step\b|_share\b|expert_exchange_backend"
    assert [key for key, fix in BOOK.fixes.items() if not (fix.changes and fix.refs)] == []
    assert [key for key, fix in BOOK.fixes.items() if not re.search(fact, fix.verify)] == []
    named = {key: set(re.findall(r"\b[a-z_]+_(?:ns|share|bytes|per_step|backend)\b", fix.verify)) for key, fix in BOOK.fixes.items()}
    assert {key: names - set(BOOK.facts) for key, names in named.items() if names - set(BOOK.facts)} == {}


def test_fixes_are_for_both_frameworks() -> None:
    offenders = []
    for key, fix in BOOK.fixes.items():
        frameworks = {change.framework for change in fix.changes}
        wanted = {"megatron-bridge"} if key in BRIDGE_ONLY else {"megatron-bridge", "megatron-lm"}
        if not (wanted <= frameworks or frameworks & {"environment", "launcher", "code"}):
            offenders.append((key, frameworks))
    assert offenders == []


def test_facts_that_need_a_capture_option_come_with_it() -> None:
    offenders = {}
    for rule in BOOK.rules.values():
        names = [name for name in BOOK.expression(rule.when).names if name in BOOK.facts and NOT_CAPTURED.search(BOOK.facts[name].null)]
        if names and not rule.capture:
            offenders[rule.id] = names
    assert offenders == {}, "say in `capture` how to get them"
