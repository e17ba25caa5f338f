"""Every alternative of every pattern in `trace_rules/` is held by a name that nothing else of its entry matches.

Names: the examples of families, and `names.tsv` (columns: file, entry, name, where it is from; `pattern` where nothing in a real trace or
library was found and the name was made from the pattern's own words). An alternative that no name can hold, since others match all that it
matches, stands in `redundant.tsv`, which may only become shorter.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml

from diagnose.knowledge.taxonomy import Taxonomy, union
from diagnose.measure.buckets.classify import families, op_kinds

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "trace_rules"
GROUP = re.compile(r"\((\?[a-zA-Z]*:|\?P?<\w+>|\?<?[=!])?")
FLAGS = re.compile(r"\(\?[a-z]+\)")
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The patterns that stand in one list."""

    file: str
    id: str
    patterns: tuple[str, ...]


def entries() -> Iterator[Entry]:
    for path in sorted(RULES.rglob("*.yaml")):
        yield from _entries(path.relative_to(RULES).as_posix(), "", yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))


def _entries(file: str, name: str, node: object) -> Iterator[Entry]:
    if isinstance(node, list):
        for item in node:
            yield from _entries(file, name, item)
    elif isinstance(node, dict):
        name = str(node.get("id", name))
        for key, value in node.items():
            if key in {"patterns", "unless"} and isinstance(value, list):
                yield Entry(file=file, id=name, patterns=tuple(value))
            elif key == "pattern" and isinstance(value, str) and "|" in value:
                yield Entry(file=file, id=name, patterns=(value,))
            else:
                yield from _entries(file, name if isinstance(value, list) else key, value)


def alternatives(pattern: str) -> Iterator[tuple[str, str]]:
    """Each alternative of a pattern, and the pattern without it."""
    opened, place = [[0]], 0  # of each open group: where its alternatives begin
    found = []
    while place < len(pattern):
        sign = pattern[place]
        jump = CLASS.match(pattern, place) if sign == "[" else FLAGS.match(pattern, place) if sign == "(" else None
        group = GROUP.match(pattern, place) if sign == "(" and jump is None else None
        if jump is not None:
            if opened[-1][-1] == place and sign == "(":
                opened[-1][-1] = jump.end()
            place = jump.end()
            continue
        if group is not None:
            opened.append([group.end()])
            place = group.end()
            continue
        if sign == "|":
            opened[-1].append(place + 1)
        elif sign == ")":
            found.append((*opened.pop(), place + 1))
        place += 2 if sign == "\\" else 1
    found.append((*opened.pop(), len(pattern) + 1))
    for *starts, end in found:
        for number, (begin, after) in enumerate(zip(starts, [*starts[1:], end], strict=True)):
            if len(starts) > 1:
                yield (
                    pattern[begin : after - 1],
                    pattern[:begin] + pattern[after:] if number == 0 else pattern[: begin - 1] + pattern[after - 1 :],
                )


def matches(file: str, pattern: str, names: pl.Series) -> pl.Series:
    """As the program asks: Python's expressions in features.yaml, Rust's elsewhere."""
    if file == "features.yaml":
        compiled = re.compile(pattern)
        return pl.Series([compiled.search(name) is not None for name in names], dtype=pl.Boolean)
    return names.str.contains(union([pattern]))


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def names_by_entry() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file, entry, name, _ in table(HERE / "names.tsv"):
        found[file, entry].append(name)
    return found


def unheld(entry: Entry, names: Sequence[str]) -> Iterator[str]:
    """The alternatives (or whole patterns, where there are several) whose loss would change nothing for any name."""
    texts = pl.Series(names, dtype=pl.String)
    matched = [matches(entry.file, pattern, texts) for pattern in entry.patterns]
    times = pl.select(pl.sum_horizontal(*matched)).to_series() if len(names) else pl.Series([], dtype=pl.UInt32)
    for pattern, found in zip(entry.patterns, matched, strict=True):
        own = texts.filter(found & (times == 1))
        if len(entry.patterns) > 1 and own.is_empty():
            yield pattern
        for alternative, without in alternatives(pattern):
            if matches(entry.file, without, own).all():
                yield alternative


def test_every_alternative_of_every_pattern_is_held_by_a_name(taxonomy: Taxonomy) -> None:
    texts = pl.Series([example for family in taxonomy.families for example in family.examples]).unique()
    given = names_by_entry()
    found = []
    for entry in entries():
        names = given.get((entry.file, entry.id), [])
        if entry.file.startswith("buckets/") and not entry.file.startswith(("buckets/80", "buckets/90")):
            names = [*names, *texts.filter(texts.str.contains(union(entry.patterns)))]
        found += [(entry.file, entry.id, alternative) for alternative in unheld(entry, names)]
    redundant = [tuple(line) for line in table(HERE / "redundant.tsv")]
    assert sorted(set(found) - set(redundant)) == []  # add a name to the entry's examples, or to names.tsv
    assert sorted(set(redundant) - set(found)) == []  # a name holds these: take them out of redundant.tsv


def test_every_name_lands_in_its_own_family(taxonomy: Taxonomy) -> None:
    """No family before it takes it away."""
    ids = {family.id for family in taxonomy.families}
    kernels = [(entry, name) for file, entry, name, _ in table(HERE / "names.tsv") if file.startswith("buckets/") and file < "buckets/80"]
    assert {entry for entry, _ in kernels} <= ids
    texts = pl.Series([name for _, name in kernels])
    found = [taxonomy.families[place].id for place in families(texts, op_kinds(texts, taxonomy), taxonomy)]
    assert [(name, entry, landed) for (entry, name), landed in zip(kernels, found, strict=True) if entry != landed] == []


def test_entries_mean_what_they_are_listed_with(taxonomy: Taxonomy) -> None:
    """The second place in which it stands what a family, a context or a group stands for: one of them alone is changed by mistake."""
    now = {("family", one.id): one.bucket or one.default for one in taxonomy.families}
    now |= {("context", one.id): one.bucket or one.phase for one in taxonomy.contexts}
    now |= {("group", one.id): one.kind for one in taxonomy.groups}
    assert [
        (*key, meaning, now[key]) for *key_, meaning in table(HERE / "meanings.tsv") if now.get(key := tuple(key_), meaning) != meaning
    ] == []


def test_every_name_is_matched_by_its_entry() -> None:
    given, found = names_by_entry(), defaultdict(set)
    for entry in entries():
        texts = pl.Series(given.get((entry.file, entry.id), []), dtype=pl.String)
        for pattern in entry.patterns:
            found[entry.file, entry.id].update(texts.filter(matches(entry.file, pattern, texts)))
    assert [(*entry, name) for entry, names in given.items() for name in names if name not in found[entry]] == []


def test_the_alternatives_of_a_pattern() -> None:
    told: Callable[[str], list[tuple[str, str]]] = lambda pattern: list(alternatives(pattern))  # noqa: E731
    assert told("ab[|)]c") == []
    assert told(r"(?i)a\||b") == [(r"a\|", "(?i)b"), ("b", r"(?i)a\|")]
    assert told("x(?:a|b(c|d))?y") == [
        ("c", "x(?:a|b(d))?y"), ("d", "x(?:a|b(c))?y"), ("a", "x(?:b(c|d))?y"), ("b(c|d)", "x(?:a)?y")
    ]  # fmt: skip
