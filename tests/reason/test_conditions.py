"""The conditions of fixes, walls and relevance against examples on both sides (cases/conditions.jsonl); rules and checks have their own."""

import polars as pl

from diagnose.knowledge.conditions import compile_expression
from tests.reason.make_conditions import SCHEMA, known, moved, wanted

UNNOTICED = 0.04  # of the moved numbers, texts and signs: what stands for "not told" in COALESCE, or lies between two whole numbers


def test_every_condition_holds_and_fails_as_its_examples_say() -> None:
    have, want = known(), wanted()
    assert sorted(want.keys() - have.keys()) == []  # python -m tests.reason.make_conditions, and look at what it adds
    assert sorted(have.keys() - want.keys()) == []
    wrong, idle, tried = [], [], 0
    for text, expression in want.items():
        schema = {name: SCHEMA[name] for name in expression.names}
        examples = [*have[text]["holds"], *have[text]["fails"]]
        others = [compile_expression(other, "condition", SCHEMA).compiled for other in moved(text)]
        frame = pl.from_dicts([{name: example.get(name) for name in schema} for example in examples], schema=schema)
        first, *rest = (
            column.to_list() for column in frame.select([one.alias(str(at)) for at, one in enumerate([expression.compiled, *others])])
        )
        if first != [True] * len(have[text]["holds"]) + [False] * len(have[text]["fails"]) or len(set(first)) < 2:
            wrong.append((text, first))
        tried += len(rest)
        idle += [other for other, found in zip(moved(text), rest, strict=True) if found == first]
    assert wrong == []
    assert len(idle) <= UNNOTICED * tried, (tried, idle)
