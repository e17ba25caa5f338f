"""Every rule against its own examples, and every threshold against them too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagnose.knowledge import conditions
from diagnose.knowledge.conditions import Expression, compile_expression
from diagnose.knowledge.rulebook import load_rulebook

ROOT = Path(__file__).parents[2]
BOOK = load_rulebook()
REQUIRED_FIXES = [
    "COM-01",
    "COM-02",
    "COM-05",
    "COM-06",
    "COM-07",
    "COM-09",
    "COM-10",
    "COM-11",
    "COM-13",
    "COM-15",
    "COM-18",
    "COM-20",
    "HOST-01",
    "HOST-03",
    "HOST-04",
    "HOST-05",
    "HOST-07",
    "HOST-08",
    "MEM-01",
    "MEM-02",
    "MEM-03",
    "MEM-06",
    "MEM-08",
    "CPY-02",
    "CMP-01",
    "CMP-02",
    "CMP-03",
    "CMP-05",
]
BRIDGE_ONLY = {"MEM-13"}  # Megatron-LM trains no LoRA adapters


def outcome(expression: Expression, example: dict[str, object]) -> bool | None:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in example.items()}
    return conditions.evaluate([expression], conditions.row(values, BOOK.schema))[0]


def outcomes(expression: Expression, rule_id: str) -> list[bool | None]:
    examples = BOOK.rules[rule_id].examples
    return [outcome(expression, example) for example in (*examples.fires, *examples.silent)]


@pytest.mark.parametrize("rule_id", list(BOOK.rules))
def test_examples(rule_id: str) -> None:
    rule = BOOK.rules[rule_id]
    assert len(rule.examples.fires) >= 1
    assert len(rule.examples.silent) >= 2
    got = outcomes(BOOK.expression(rule.when), rule_id)
    fires = len(rule.examples.fires)
    assert got[:fires] == [True] * fires
    assert got[fires:] == [False] * len(rule.examples.silent), "silent means false, not unknown"


@pytest.mark.parametrize("rule_id", list(BOOK.rules))
def test_every_threshold_is_guarded(rule_id: str) -> None:
    """Each number in `when`, moved by 20 % either way, changes the outcome of some example."""
    text = BOOK.rules[rule_id].when
    before = outcomes(BOOK.expression(text), rule_id)
    for match in re.finditer(r"(?<![\w.'])\d+(?:\.\d+)?", text):
        if float(match.group()) == 0:
            continue
        for factor in (0.8, 1.2):
            moved = f"{text[: match.start()]}{float(match.group()) * factor:.6f}{text[match.end() :]}"
            after = outcomes(compile_expression(moved, "condition", BOOK.schema), rule_id)
            assert after != before, f"{match.group()} × {factor} in {text!r} goes unnoticed"


@pytest.mark.parametrize("rule_id", list(BOOK.rules))
def test_without_facts_nothing_is_fine(rule_id: str) -> None:
    """On no facts at all a rule is unknown: neither fired nor silent."""
    assert outcome(BOOK.expression(BOOK.rules[rule_id].when), {}) is None


@pytest.mark.parametrize("rule_id", list(BOOK.rules))
def test_saves_is_a_bound_within_the_step(rule_id: str) -> None:
    rule = BOOK.rules[rule_id]
    if rule.saves is None:
        return
    for example in rule.examples.fires:
        saved = outcome(BOOK.expression(rule.saves, "number"), example)
        step = example.get("step_ns")
        assert isinstance(step, int), "an example with a bound names the step"
        if saved is not None:
            assert 0 < saved <= step


def test_files_and_ids_agree() -> None:
    names = {path.stem for path in (ROOT / "trace_rules" / "rules").glob("*.yaml")}
    assert names == set(BOOK.rules)
    prefixes = {"host": "host_overhead"}
    for rule in BOOK.rules.values():
        prefix = rule.id.split("-")[0]
        assert prefixes.get(prefix, prefix) == rule.wall


def test_every_required_fix_exists_and_is_used() -> None:
    assert set(REQUIRED_FIXES) <= set(BOOK.fixes)
    used = {fix for rule in BOOK.rules.values() for fix in rule.fixes}
    reached = used | {item.first for fix in BOOK.fixes.values() for item in (*fix.needs, *fix.conflicts) if item.first}
    assert set(BOOK.fixes) == reached, "a fix that nothing leads to is never shown"


@pytest.mark.parametrize("fix_id", list(BOOK.fixes))
def test_fix_is_complete(fix_id: str) -> None:
    fix = BOOK.fixes[fix_id]
    assert fix.changes
    assert fix.refs
    assert re.search(r"[a-z]+_ns\b|[a-z]+_bytes\b|_per_step\b|_share\b|expert_exchange_backend", fix.verify), "verify names a fact"
    named = set(re.findall(r"\b[a-z_]+_(?:ns|share|bytes|per_step|backend)\b", fix.verify))
    assert named <= set(BOOK.facts)
    frameworks = {change.framework for change in fix.changes}
    wanted = {"megatron-bridge"} if fix_id in BRIDGE_ONLY else {"megatron-bridge", "megatron-lm"}
    assert wanted <= frameworks or frameworks & {"environment", "launcher", "code"}


NOT_CAPTURED = re.compile(r"not recorded|was recorded|holds no range|does not tell|allocator events|neither checkpoint|traced as a whole")


@pytest.mark.parametrize("rule_id", list(BOOK.rules))
def test_facts_that_need_a_capture_option_come_with_it(rule_id: str) -> None:
    rule = BOOK.rules[rule_id]
    names = [name for name in BOOK.expression(rule.when).names if name in BOOK.facts and NOT_CAPTURED.search(BOOK.facts[name].null)]
    assert bool(rule.capture) or not names, f"say in `capture` how to get {names}"
