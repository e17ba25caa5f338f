"""Write examples for the conditions of fixes, walls and relevance that have none: `python -m tests.reason.make_conditions`.

Look at what it adds.

The examples are few of many drawn rows, chosen so that a change of any number, name, comparison or link of the condition changes one of
them.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from diagnose.knowledge.conditions import Expression, compile_expression
from diagnose.knowledge.load import load_rulebook
from diagnose.knowledge.walls import VERDICT_COLUMNS

FILE = Path(__file__).parent / "cases" / "conditions.jsonl"
BOOK = load_rulebook(check=True)
SCHEMA: Mapping[str, pl.DataType] = {**BOOK.schema, **VERDICT_COLUMNS}
TRIES = 4000
NUMBER = re.compile(r"(?<![\w.'])\d+(?:\.\d+)?(?![\w.'])")
TEXT = re.compile(r"'([^']*)'")
OTHER = {">=": ">", "<=": "<", ">": ">=", "<": "<=", "=": "<>", "<>": "=", "AND": "OR", "OR": "AND"}
SIGN = re.compile(r"(?<= )(?:>=|<=|<>|[<>=]|AND|OR)(?= )")


def wanted() -> dict[str, Expression]:
    """The conditions that are no rule's and no check's own, which have examples beside them."""
    own = {rule.when for rule in BOOK.rules.values()} | {check.when for check in BOOK.checks.values()}
    return {text: found for (text, kind), found in sorted(BOOK.expressions.items()) if kind == "condition" and text not in own}


def known() -> dict[str, dict[str, list[dict[str, object]]]]:
    """For each condition, rows on which it `holds` and on which it `fails`."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return {one.pop("when"): one for one in map(json.loads, lines)}


def moved(text: str) -> Iterator[str]:
    """The condition with each number one (a share or a large number.

    A fifth) less and more, each text another one, each sign its neighbour.
    """
    for match in NUMBER.finditer(text):
        number = float(match.group())
        near = (number - 1, number + 1) if number < 50 and "." not in match.group() else (number * 0.8, number * 1.2)
        yield from (f"{text[: match.start()]}{one:.6f}".rstrip("0").rstrip(".") + text[match.end() :] for one in near if one >= 0)
    for match in TEXT.finditer(text):
        yield f"{text[: match.start()]}'{match[1].replace('%', '')}x'{text[match.end() :]}"
    for match in SIGN.finditer(text):
        if re.search(r"BETWEEN \S+ $", text[: match.start()]):
            continue
        yield f"{text[: match.start()]}{OTHER[match.group()]}{text[match.end() :]}"


def drawn(text: str, names: tuple[str, ...], chance: random.Random) -> dict[str, object]:
    """Values about the condition's own numbers and texts; seldom none."""
    numbers = [float(match.group()) for match in NUMBER.finditer(text)]
    words = [word.replace("%", "") for word in TEXT.findall(text)]

    def one(name: str, kind: pl.DataType) -> object:
        beside = re.findall(rf"\b{name}(?:, \w+\))? (?:>=|<=|<>|[<>=]) (\d+(?:\.\d+)?)(?![\w.])", text)
        near = list(map(float, beside)) if beside and chance.random() < 0.8 else numbers
        if isinstance(kind, pl.Boolean):
            return chance.random() < 0.5
        if isinstance(kind, pl.String):
            return chance.choice([*words, "other", "another"])
        if isinstance(kind, pl.List):
            return sorted({chance.choice([*words, "other"]) for _ in range(chance.choice([0, 1, 1, 2]))})
        if isinstance(kind, pl.Int64):
            at = int(chance.choice([*near, chance.choice([1, 2, 4, 8, 64, 1000])]))
            return max(-1, at + chance.choice([0, 0, 0, -1, 1]))
        return round(chance.choice([*near, 1.0]) * chance.choice([1, 1, 0.9, 1.1, 0.5]), 6)

    return {name: one(name, SCHEMA[name]) for name in names if chance.random() > 0.1}


def made(text: str, expression: Expression) -> dict[str, list[dict[str, object]]]:
    """Rows on which the condition holds and fails, as few as notice what can be noticed."""
    chance = random.Random(text)
    schema = {name: SCHEMA[name] for name in expression.names}
    rows = [drawn(text, expression.names, chance) for _ in range(TRIES)]
    frame = pl.from_dicts([{name: one.get(name) for name in schema} for one in rows], schema=schema)
    others = [compile_expression(other, "condition", SCHEMA) for other in moved(text)]
    first, *rest = (
        column.to_list() for column in frame.select([one.compiled.alias(str(at)) for at, one in enumerate([expression, *others])])
    )
    noticed = [{at for at, found in enumerate(rest) if found[place] is not first[place]} for place in range(TRIES)]
    sized = sorted((place for place in range(TRIES) if first[place] is not None), key=lambda place: (len(str(rows[place])), place))
    chosen = [place for outcome in (True, False) for place in [at for at in sized if first[at] is outcome][:1]]
    left = set().union(*noticed) - set().union(*(noticed[place] for place in chosen))
    while left:
        best = max(sized, key=lambda place: (len(noticed[place] & left), -len(str(rows[place]))))
        if not noticed[best] & left:
            break
        chosen.append(best)
        left -= noticed[best]
    return {name: [rows[place] for place in chosen if first[place] is outcome] for name, outcome in (("holds", True), ("fails", False))}


def main() -> None:
    have, want = known(), wanted()
    found = {text: have.get(text) or made(text, expression) for text, expression in want.items()}
    FILE.write_text("".join(json.dumps({"when": text, **rows}) + "\n" for text, rows in found.items()), encoding="utf-8")
    print(f"{len(want)} conditions, {len(want.keys() - have)} of them new, {len(have.keys() - want)} gone")  # noqa: T201


if __name__ == "__main__":
    main()
