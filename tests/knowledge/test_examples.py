"""Every rule and every check of a job file against its own examples, and every number in their conditions against them too."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from diagnose.knowledge import conditions
from diagnose.knowledge.conditions import Expression, compile_expression
from diagnose.knowledge.load import load_rulebook
from tests.builders.cases import for_each

ROOT = Path(__file__).parents[2]
BOOK = load_rulebook(check=True)
Example = Mapping[str, object]
Values = list[bool | float | None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A condition with the examples on which it has to be true (`fires`) and false (`silent`). `moved`: the texts that differ in one
    number.
    """

    id: str
    when: str
    fires: Sequence[Example]
    silent: Sequence[Example]
    moved: Callable[[str], Iterator[str]]

    @property
    def examples(self) -> tuple[Example, ...]:
        return (*self.fires, *self.silent)


def thresholds(text: str) -> Iterator[str]:
    """Each number of a rule, 20 % less and more."""
    for match in re.finditer(r"(?<![\w.'])\d+(?:\.\d+)?", text):
        if float(match.group()):
            yield from (f"{text[: match.start()]}{float(match.group()) * factor:.6f}{text[match.end() :]}" for factor in (0.8, 1.2))


def counts(text: str) -> Iterator[str]:
    """Each number of a check, one less and one more; not those that only keep a division from being by zero, and indices."""
    guards = r"NULLIF\((.*?), 0\)|COALESCE\((\w+), 0\)|ARRAY_LENGTH\(\w+\)(?:, 0\))? = \d|ARRAY_GET\(\w+, \d\)"
    plain = re.sub(guards, lambda guard: "x" * len(guard.group()), text)
    for match in (*re.finditer(r"(?<![\w.'])\d+(?:\.\d+)?", plain), *re.finditer(r"\b2(?= \* job_context)", text)):
        for number in (float(match.group()) - 1, float(match.group()) + 1):
            shown = str(int(number)) if number == int(number) else str(number)
            yield f"{text[: match.start()]}{shown}{text[match.end() :]}"


RULES = [
    Case(id=rule.id, when=rule.when, fires=rule.examples.fires, silent=rule.examples.silent, moved=thresholds)
    for rule in BOOK.rules.values()
]
CHECKS = [
    Case(id=key, when=check.when, fires=check.examples.fires, silent=check.examples.silent, moved=counts)
    for key, check in BOOK.checks.items()
    if check.when is not None and check.examples is not None
]
BOTH = for_each("cases", RULES, CHECKS)


def values(expressions: Sequence[Expression], examples: Sequence[Example]) -> list[Values]:
    """The values of each expression, one for each example, all at once. What an example does not give is null."""
    schema = {name: BOOK.schema[name] for expression in expressions for name in expression.names}
    frame = pl.DataFrame(
        [pl.Series(name, [number(example.get(name), kind) for example in examples], dtype=kind) for name, kind in schema.items()]
    )
    found = frame.select([expression.compiled.alias(str(place)) for place, expression in enumerate(expressions)])
    return [column.to_list() for column in found]


def number(value: object, kind: pl.DataType) -> object:
    return float(value) if kind == pl.Float64 and isinstance(value, int | float) else value


def value(expression: Expression, example: Example) -> bool | float | None:
    return values([expression], [example])[0][0]


def test_all_have_examples() -> None:
    assert len(RULES) == len(BOOK.rules) > 100
    assert len(CHECKS) == len([check for check in BOOK.checks.values() if check.when is not None]) > 100
    assert [case.id for case in (*RULES, *CHECKS) if len(case.fires) < 1 or len(case.silent) < 2] == []


@BOTH
def test_examples(cases: list[Case]) -> None:
    """Silent means false, not unknown."""
    offenders = {}
    for case in cases:
        found = values([BOOK.expression(case.when)], case.examples)[0]
        if found != [True] * len(case.fires) + [False] * len(case.silent):
            offenders[case.id] = found
    assert offenders == {}


@BOTH
def test_an_example_alone_is_what_it_is_among_the_others(cases: list[Case]) -> None:
    """The program evaluates a condition on one row that holds every fact and setting; so do these tests for some."""
    for case in cases[::10]:
        expression = BOOK.expression(case.when)
        rows = [{name: tuple(item) if isinstance(item, list) else item for name, item in example.items()} for example in case.examples]
        alone = [conditions.evaluate([expression], conditions.row(row, BOOK.schema))[0] for row in rows]  # type: ignore[arg-type]
        assert alone == values([expression], case.examples)[0]


@BOTH
def test_every_number_is_guarded(cases: list[Case]) -> None:
    """Each number in a condition, moved, changes the outcome of some example."""
    unnoticed = []
    for case in cases:
        moved = list(case.moved(case.when))
        expressions = [BOOK.expression(case.when), *(compile_expression(text, "condition", BOOK.schema) for text in moved)]
        before, *after = values(expressions, case.examples)
        unnoticed += [(case.id, text) for text, found in zip(moved, after, strict=True) if found == before]
    assert unnoticed == []


def test_every_setting_that_a_check_reads_is_in_an_example() -> None:
    absent = [
        (case.id, name)
        for case in CHECKS
        for name in BOOK.expression(case.when).names
        if not any(name in example for example in case.examples)
    ]
    assert absent == []


def test_without_facts_and_without_a_job_nothing_is_said() -> None:
    # On no facts at all a rule is unknown: neither fired nor silent
    assert [case.id for case in RULES if value(BOOK.expression(case.when), {}) is not None] == []
    # On no settings at all no check fires, and only those are silent for which a setting that is left out means none
    found = {case.id: value(BOOK.expression(case.when), {}) for case in CHECKS}
    assert [key for key, fires in found.items() if fires] == []
    assert [case.id for case in CHECKS if found[case.id] is False and not case.when.startswith("COALESCE(")] == []


def test_saves_is_a_bound_within_the_step() -> None:
    offenders = []
    for rule in BOOK.rules.values():
        if rule.saves is None:
            continue
        saved = values([BOOK.expression(rule.saves, "number")], rule.examples.fires)[0]
        for example, bound in zip(rule.examples.fires, saved, strict=True):
            step = example.get("step_ns")
            if not isinstance(step, int) or not (bound is None or 0 < bound <= step):
                offenders.append((rule.id, step, bound))
    assert offenders == []


# --- numbers that are said --------------------------------------------------------------------------------------------


def numbers(text: str) -> set[str]:
    """The numbers and versions in a text, without those inside names."""
    return set(re.findall(r"(?<![\w.-])\d+(?:\.\d+)*(?!\w)", text))


def in_conditions(number: str) -> set[str]:
    """How a condition may write a number: as it is, as a share where the text says per cent, a version as the program holds it."""
    parts = [int(part) for part in (*number.split("."), 0, 0)[:3]]
    return {number, str(1_000_000 * parts[0] + 1_000 * parts[1] + parts[2]), *([f"{int(number) / 100:g}"] if number.isdigit() else [])}


def said() -> Iterator[tuple[str, str, str]]:
    """(id, condition, sentence) of all that fixes need and all that checks say, without what is filled in."""
    fixes = (
        (fix.id, one.condition, text)
        for fix in BOOK.fixes.values()
        for one in (*fix.needs, *fix.conflicts)
        for text in (one.say, one.unknown)
    )
    for key, condition, text in (*fixes, *((key, check.when or "", check.say) for key, check in BOOK.checks.items())):
        yield key, condition, re.sub(r"\{.*?\}", "", text)


def test_a_sentence_says_the_numbers_of_its_condition() -> None:
    """Other numbers that it says (of other versions, of published runs) stand in numbers_said.tsv."""
    others = {
        (key, number) for key, condition, text in said() for number in numbers(text) if not in_conditions(number) & numbers(condition)
    }
    listed = [tuple(line.split("\t")) for line in (Path(__file__).parent / "numbers_said.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert sorted(others) == listed
