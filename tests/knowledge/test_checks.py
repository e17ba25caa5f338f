"""Checks of a job file: what each has to say, and files of checks that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagnose.errors import RuleFileError
from diagnose.knowledge.rulebook import load_rulebook
from diagnose.model.vocabulary import GROUPS

BOOK = load_rulebook()


def test_sentences() -> None:
    checks = BOOK.checks
    assert [key for key, check in checks.items() if not check.say.endswith(".") or check.remedy.endswith(".")] == [], "`say` is a sentence"
    assert [key for key, check in checks.items() if not check.refs] == []
    assert [key for key in checks if not re.fullmatch(r"[a-z0-9-]+", key) or key in {*BOOK.rules, *BOOK.fixes, *BOOK.facts}] == []


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
