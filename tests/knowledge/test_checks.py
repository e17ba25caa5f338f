"""Every check of a job file against its own examples, and every number in its condition against them too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge import conditions
from diagnose.knowledge.conditions import Expression, compile_expression
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.model.vocabulary import GROUPS

BOOK = load_rulebook()
CONDITIONAL = [key for key, check in BOOK.checks.items() if check.when is not None]
ROOT = Path(__file__).parents[2]


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def outcomes(expression: Expression, key: str) -> list[bool | float | None]:
    examples = BOOK.checks[key].examples
    assert examples is not None
    rows = [
        {name: tuple(value) if isinstance(value, list) else value for name, value in example.items()}
        for example in (*examples.fires, *examples.silent)
    ]
    return [conditions.evaluate([expression], conditions.row(row, BOOK.schema))[0] for row in rows]


@pytest.mark.parametrize("key", CONDITIONAL)
def test_examples(key: str) -> None:
    check = BOOK.checks[key]
    assert check.examples is not None
    assert check.when is not None
    fires, silent = len(check.examples.fires), len(check.examples.silent)
    assert fires >= 1
    assert silent >= 2
    assert outcomes(BOOK.expression(check.when), key) == [True] * fires + [False] * silent, "silent means false, not unknown"


@pytest.mark.parametrize("key", CONDITIONAL)
def test_every_number_is_guarded(key: str) -> None:
    """Each number in `when`, one more or one less, changes the outcome of some example."""
    text = BOOK.checks[key].when
    assert text is not None
    before = outcomes(BOOK.expression(text), key)
    plain = re.sub(
        r"NULLIF\((.*?), 0\)|COALESCE\((\w+), 0\)|ARRAY_LENGTH\(\w+\)(?:, 0\))? = \d|ARRAY_GET\(\w+, \d\)",
        lambda m: "x" * len(m.group()),
        text,
    )
    numbers = list(re.finditer(r"(?<![\w.'])\d+(?:\.\d+)?", plain)) + list(re.finditer(r"\b2(?= \* job_context)", text))
    for match in numbers:
        moved = [f"{text[: match.start()]}{_plain(float(match.group()) + step)}{text[match.end() :]}" for step in (-1, 1)]
        for other in moved:
            assert outcomes(compile_expression(other, "condition", BOOK.schema), key) != before, f"{other!r} goes unnoticed"


@pytest.mark.parametrize("key", CONDITIONAL)
def test_every_part_of_a_condition_is_guarded(key: str) -> None:
    """Each setting that a check reads decides some example: without it the outcome of one is another."""
    check = BOOK.checks[key]
    assert check.when is not None
    assert check.examples is not None
    for name in BOOK.expression(check.when).names:
        values = [example[name] for example in (*check.examples.fires, *check.examples.silent) if name in example]
        assert values, f"no example gives {name}"


@pytest.mark.parametrize("key", list(BOOK.checks))
def test_sentences(key: str) -> None:
    check = BOOK.checks[key]
    assert check.say.endswith("."), "a sentence"
    assert check.refs
    assert not check.remedy.endswith(".")
    assert re.fullmatch(r"[a-z0-9-]+", key)
    assert key not in {*BOOK.rules, *BOOK.fixes, *BOOK.facts}


def test_no_job_says_nothing() -> None:
    """On no settings at all no check fires, and only those are silent for which a setting that is left out means none."""
    empty = conditions.row({}, BOOK.schema)
    found = {key: conditions.evaluate([BOOK.expression(BOOK.checks[key].when or "")], empty)[0] for key in CONDITIONAL}
    assert [key for key, value in found.items() if value] == []
    assert [key for key, value in found.items() if value is False and not (BOOK.checks[key].when or "").startswith("COALESCE(")] == []


def test_groups_are_those_of_the_documents() -> None:
    assert GROUPS == ("will_fail", "will_hang", "silently_off", "doubtful")


GOOD = """
a-check:
  title: t
  outcome: assert
  when: job_bf16
  say: "bf16 is {job_bf16}."
  remedy: r
  refs: [x]
  examples: {fires: [{job_bf16: true}], silent: [{job_bf16: false}, {job_bf16: false}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("outcome: assert", "outcome: explode", "explode"),
        ("  title: t", "  title: t\n  colour: red", "colour"),
        ("when: job_bf16", "when: job_bf17", "a-check.when: unknown name job_bf17"),
        ("when: job_bf16", "when: step_ns > 1", "step_ns is not known without a trace"),
        ("when: job_bf16", "when: job_num_layers", "must be true or false"),
        ("{job_bf16}.", "{job_bf17}.", "unknown name job_bf17"),
        ("  refs: [x]", "  refs: [x]\n  fixes: [NO-1]", "unknown fix NO-1"),
        ("fires: [{job_bf16", "fires: [{job_bf17", "unknown name job_bf17"),
        ("when: job_bf16", "when: null", "say how to tell"),
        ("  examples: {fires: [{job_bf16: true}], silent: [{job_bf16: false}, {job_bf16: false}]}", "", "needs them"),
    ],
)
def test_wrong_checks_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "own.yaml").write_text(GOOD)
    assert "a-check" in load_rulebook([tmp_path]).checks
    (folder / "own.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(RuleFileError, match=message) as caught:
        load_rulebook([tmp_path])
    assert "checks/own.yaml" in str(caught.value)


def test_own_check_replaces_a_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "own.yaml").write_text(GOOD.replace("a-check", "expert-overlap-in-fp32"))
    assert load_rulebook([tmp_path]).checks["expert-overlap-in-fp32"].title == "t"
