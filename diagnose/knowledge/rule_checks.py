"""Whether what rule files say can be: every expression is parsed and tried on data, every name looked up, every template checked.

So a wrong rule file is an error with the file and the place, never a wrong diagnosis. The program's own alone are checked so by tests: they
are the same in each run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import polars as pl
from msgspec.structs import replace

from diagnose.knowledge import templates
from diagnose.knowledge.catalogue import BESIDE_FRAMEWORKS, CheckSpec, FixSpec, Rule, places_of
from diagnose.knowledge.conditions import ConditionError, Expression, Kind, check_types, compared, compile_expression, written_in
from diagnose.knowledge.effects import OF_BUCKETS, SELECT_COLUMNS, Select
from diagnose.knowledge.platforms import PLATFORM_FACTS
from diagnose.knowledge.rule_files import Placed, rule_error
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.walls import VERDICT_COLUMNS, Walls
from diagnose.model.vocabulary import CAPTURE, COMM_KINDS


class Wanted(NamedTuple):
    """An expression somewhere in a rule file, with the place to name when it is wrong."""

    label: str
    place: str
    text: str
    kind: Kind


def checked(
    book: Rulebook,
    rules: Mapping[str, Placed[Rule]],
    fixes: Mapping[str, Placed[FixSpec]],
    checks: Mapping[str, Placed[CheckSpec]],
    texts: Mapping[str, bytes],
) -> Rulebook:
    """The rulebook with all its expressions compiled. Raises RuleFileError for one that is wrong, and for names and templates."""
    entries = [(label, "", entry) for label, entry in (*rules.values(), *fixes.values())]
    entries += [(label, key, check) for key, (label, check) in checks.items()]
    of_wordings = [("wordings.yaml", key, wording) for key, wording in book.wordings.items()]
    wanted = [
        Wanted(label, *found)
        for label, place, entry in (*entries, ("relevance.yaml", "", book.relevance), *of_wordings)
        for found in written_in(entry, place)
    ]
    of_walls = [Wanted("walls.yaml", *found) for found in written_in(book.walls)]
    compiled = compile_all(wanted, book.schema, texts) | compile_all(of_walls, {**book.schema, **VERDICT_COLUMNS}, texts)
    book = replace(book, expressions=compiled)
    _check_names(book, {key: label for key, (label, _) in [*rules.items(), *fixes.items()]}, texts)
    selects = [Wanted(label, *found) for label, fix in fixes.values() for found in written_in(fix, declared=(Select,))]
    compile_all(selects, SELECT_COLUMNS, texts)
    for one in selects:
        _check_words(one, book.buckets, texts[one.label])
    units = {name: book.unit(name) for name in book.schema if name.startswith("job_") or name in PLATFORM_FACTS}
    for key, (label, check) in checks.items():
        _check_check(book, units, label, key, check, texts[label])
    return book


def compile_all(
    wanted: Sequence[Wanted], schema: Mapping[str, pl.DataType], files: Mapping[str, bytes]
) -> dict[tuple[str, Kind], Expression]:
    """Checked expressions by text and kind; types are tried for all at once."""
    first: dict[tuple[str, Kind], Wanted] = {}
    for item in wanted:
        first.setdefault((item.text, item.kind), item)
    expressions = []
    for item in first.values():
        try:
            expressions.append(compile_expression(item.text, item.kind, schema))
        except ConditionError as error:
            raise rule_error(item.label, f"{item.place}: {error}", files[item.label]) from error
    wrong = check_types(expressions, schema)
    if wrong is not None:
        item = list(first.values())[wrong[0]]
        raise rule_error(item.label, f"{item.place}: {wrong[1]}", files[item.label])
    return dict(zip(first, expressions, strict=True))


def _check_words(select: Wanted, buckets: Collection[str], text: bytes) -> None:
    """Refuse a bucket that there is not: nothing would be selected, and nothing said of it. Raises RuleFileError."""
    held = {"comm": COMM_KINDS, **dict.fromkeys(OF_BUCKETS, buckets)}
    wrong = next(((name, word) for name, word in compared(select.text) if name in held and word not in held[name]), None)
    if wrong is not None:
        name, word = wrong
        kind = "kind of communication" if name == "comm" else "bucket"
        raise rule_error(select.label, f"{select.place}: unknown {kind} {word}", text)


def check_walls(walls: Walls) -> None:
    """Raise RuleFileError unless two walls can be the target, one is where none of them is, and each says so in some words."""
    mute = [wall for wall, spec in walls.walls.items() if not any(lead.when is None for lead in spec.says)]
    wrong = (
        [f"walls.{wall}.says: no clause without `when`, so it could go unsaid" for wall in mute]
        + ([] if any(lead.when is None for lead in walls.lead) else ["lead: no clause without `when`, so a verdict could have no sentence"])
        + ([] if len(walls.contenders) > 1 else ["walls: at least two have to be contenders"])
        + (
            []
            if len(walls.walls) - len(walls.contenders) == 1
            else ["walls: just one is no contender, and is the target where no other is"]
        )
    )
    if wrong:
        raise rule_error("walls.yaml", wrong[0])


def _check_check(book: Rulebook, units: Mapping[str, str], label: str, key: str, check: CheckSpec, text: bytes) -> None:
    """Names of one check that stand outside its condition: only settings and the platform (`units`) are known without a trace."""
    examples = () if check.examples is None else (*check.examples.fires, *check.examples.silent)
    read = () if check.when is None else book.expression(check.when).names
    wrong = (
        [f"when: {name} is not known without a trace" for name in read if name not in units]
        + [f"fixes: unknown fix {name}" for name in check.fixes if name not in book.fixes]
        + [f"repair: unknown setting {name}" for name in check.repair if name not in book.settings]
        + [f"frameworks: unknown framework {name}" for name in check.frameworks if name not in book.job.frameworks]
        + [f"examples: unknown name {name}" for name in sorted({name for facts in examples for name in facts}) if name not in units]
        + [f"say: {problem}" for problem in templates.problems(check.say, units)]
        + (["examples: a check with a condition needs them"] if check.when is not None and check.examples is None else [])
        + (["no_fix: there is a fix"] if check.no_fix and (check.fixes or check.repair) else [])
        + (["confirm: without a condition, say how to tell"] if check.when is None and not check.confirm else [])
    )
    if wrong:
        raise rule_error(label, wrong[0], text, key)


def _check_names(book: Rulebook, labels: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Names that stand outside expressions: evidence, fixes, places, settings, templates, examples. Raises RuleFileError."""
    units = {name: book.unit(name) for name in book.schema}
    places = places_of(book.buckets)
    wrong = {key: _wrong_in_rule(rule, book, units, places) for key, rule in book.rules.items()}
    wrong |= {key: _wrong_in_fix(fix, book, units) for key, fix in book.fixes.items()}
    for key in [key for key, found in wrong.items() if found][:1]:
        raise rule_error(labels[key], wrong[key][0], files[labels[key]])
    of_tables = {
        "relevance.yaml": book.relevance.problems(fixes=book.fixes, rules=book.rules, frameworks=book.job.frameworks),
        "walls.yaml": _wrong_in_walls(book, units),
    }
    for label in [label for label, found in of_tables.items() if found][:1]:
        raise rule_error(label, of_tables[label][0])


_PER = {"per": "text"}  # what every sentence but a check's may say beyond the facts


def _wrong_in_rule(rule: Rule, book: Rulebook, units: Mapping[str, str], places: Collection[str]) -> list[str]:
    names = sorted({name for facts in (*rule.examples.fires, *rule.examples.silent) for name in facts})
    said = {**units, **_PER, "bound_ns": "ns", "bound_share": "share", "speedup_ceiling": "count"}
    causes = [cause for cause in (rule.cause, rule.late) if cause is not None]
    return [
        *([] if rule.wall in (*book.walls.walls, CAPTURE) else [f"wall: unknown wall {rule.wall}"]),
        *(f"evidence: unknown name {name}" for name in rule.evidence if name not in units),
        *(f"fixes: unknown fix {name}" for name in rule.fixes if name not in book.fixes),
        *(f"first: unknown fix {name}" for name in rule.first if name not in book.fixes),
        *(f"reach: {name} is no fix of this rule" for name in rule.reach if name not in {*rule.fixes, *rule.first}),
        *(f"where: unknown place {name}" for name in rule.where if name not in places),
        *(f"examples: unknown name {name}" for name in names if name not in units),
        *(f"summary: {problem}" for problem in templates.problems(rule.summary, said)),
        *(f"cause: {problem}" for cause in causes for problem in templates.problems(cause.say, said)),
        *(f"cause.of: unknown wall {cause.of}" for cause in causes if cause.of and cause.of not in book.walls.walls),
    ]


def _wrong_in_fix(fix: FixSpec, book: Rulebook, units: Mapping[str, str]) -> list[str]:
    lists = (("needs", fix.needs), ("conflicts", fix.conflicts))
    items = [(f"{name}[{place}]", item) for name, found in lists for place, item in enumerate(found)]
    frameworks = (*book.job.frameworks, *BESIDE_FRAMEWORKS)
    changes, effects = list(enumerate(fix.changes)), list(enumerate(fix.effect))
    libraries = {None, *book.platforms.exchange_libraries}
    return [
        *(f"walls: unknown wall {name}" for name in fix.walls if name not in book.walls.walls),
        *(f"{where}.first: unknown fix {item.first}" for where, item in items if item.first and item.first not in book.fixes),
        *(f"changes[{place}].framework: unknown framework {one.framework}" for place, one in changes if one.framework not in frameworks),
        *(f"changes: unknown setting {one.setting}" for _, one in changes if one.setting and one.setting not in book.settings),
        *(f"{where}.say: {problem}" for where, item in items for problem in templates.problems(item.say, {**units, **_PER})),
        *(f"effect[{place}].{problem}" for place, one in effects if (problem := one.problem())),
        *(f"effect[{place}].library: unknown library {one.library}" for place, one in effects if one.library not in libraries),
        *(["no_effect: there is an effect"] if fix.effect and fix.no_effect else []),
        *([] if fix.effect or fix.no_effect else ["id: what it does to a step is missing: effect, or no_effect with the reason"]),
    ]


def _wrong_in_walls(book: Rulebook, units: Mapping[str, str]) -> list[str]:
    walls = book.walls
    own = {name: "share" if name.endswith("share") else "ns" if name.endswith("_ns") else "text" for name in VERDICT_COLUMNS}
    leads = [*walls.lead, *(lead for spec in walls.walls.values() for lead in spec.says)]
    sentences = [item.say for group in (leads, walls.floor, walls.also, walls.certainty) for item in group]
    told = [*(one.finding for one in walls.floor), *(one.finding for one in walls.certainty)]
    return [
        *(problem for text in sentences for problem in templates.problems(text, {**units, **_PER, **own})),
        *(f"finding: unknown rule {name}" for name in told if name and name not in book.rules),
    ]
