"""YAML as data: the values that PyYAML's safe loader gives, and refusals that name the line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from diagnose.knowledge import strict_yaml
from diagnose.knowledge.strict_yaml import MAX_DEPTH, MAX_NODES, Repeated, YamlError
from tests.builders.cases import for_each

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.dates()
    | st.binary(max_size=4)
    | st.text(max_size=8)
    | st.sampled_from(["yes", "~", "0x1f", "1e3", "1_000", "12:30", "null", "<<", "- a", "#", "on: off"])
)
KEYS = st.integers() | st.booleans() | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.sets(KEYS, max_size=3)
)


@given(value=VALUES, shared=VALUES, flow=st.sampled_from([True, False, None]))
def test_values_are_those_of_pyyaml(value: Any, shared: Any, flow: bool | None) -> None:
    text = yaml.safe_dump({"value": value, "one": shared, "two": [shared, shared]}, default_flow_style=flow, allow_unicode=True)
    assert repr(strict_yaml.load(text)) == repr(yaml.safe_load(text))


@for_each(
    "text",
    "- &x [1, two, 0x10, 1e3, 1.5, .inf, ~, yes, 2026-11-23, 12:30]\n- *x\n- *x\n",
    "a: !!str 5\nb: !!int '7'\nc: !!set {x, y}\nd: ! plain\ne: !!map {k: !!seq [1]}\nf: !!float 3\n",
    "text: |\n  two\n  lines\nfolded: >\n  two\n  lines\n'quoted': \"\\t\"\nempty:\n",
    "%YAML 1.1\n---\na: 1\n...\n",
    "# nothing\n",
    "5\n",
)
def test_documents_as_people_write_them(text: str) -> None:
    assert repr(strict_yaml.load(text)) == repr(yaml.safe_load(text))


def test_merged_maps_hold_what_pyyaml_merges_in_whatever_order() -> None:
    """The order of the keys that a merge brings in differs between releases of PyYAML (6.0.4 changed it), and nothing hangs on it."""
    text = "base: &b {a: 1, b: 2}\nsecond: &s {b: 3, c: 4}\none: {<<: *b, b: 5}\nmany:\n  x: 0\n  <<: [*b, *s]\n  c: 6\n"
    wanted = {"base": {"a": 1, "b": 2}, "second": {"b": 3, "c": 4}, "one": {"a": 1, "b": 5}, "many": {"a": 1, "b": 2, "c": 6, "x": 0}}
    assert strict_yaml.load(text) == wanted == yaml.safe_load(text)


@for_each(
    "text, said",
    ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' stands already in line 1"),
    ("a: 1\n? [1]\n: 2\n", "line 2: a list or map can't be a key"),
    ("x: &x [1]\n*x : 2\n", "line 2: a list or map can't be a key"),
    ("a: 1\n--- \nb: 2\n", "line 2: expected a single document"),
    ("a: *x\n", "line 1: found undefined alias 'x'"),
    ("a: &x [*x]\n", "line 1: a list or map contains itself"),
    ("a: &x\n  b: {<<: *x}\n", "line 2: a map merges itself"),
    ("a: &x 1\nb: &x 2\n", "line 2: the anchor 'x' stands already in line 1"),
    ("a: <<\n", "line 1: could not determine a constructor"),
    ("a: !!python/tuple [1]\n", "line 1: could not determine a constructor"),
    ("a: !mine {b: 1}\n", "line 1: could not determine a constructor"),
    ("a: !!seq {b: 1}\n", "line 1: expected a sequence"),
    ("a:\n  <<: [1]\n", "line 2: expected a mapping or list of mappings for merging"),
    ("[" * (MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels deep"),
    ("- " * 100_000 + "a", f"nested more than {MAX_DEPTH} levels deep"),
    ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)), f"more than {MAX_NODES} values"),
    ("a: [1\nb: 2\n", "line 2, column 2"),
    ("a: \x01\n", "unacceptable character"),
)
def test_what_is_refused_says_where(text: str, said: str) -> None:
    with pytest.raises(YamlError) as caught:
        strict_yaml.load(text)
    assert said in str(caught.value)


def test_keys_that_stand_twice_are_told_with_the_lines_of_both() -> None:
    repeated: list[Repeated] = []
    assert strict_yaml.load("a: 1\nb: {c: 1, c: 2}\na: 3\na: 4\n", repeated) == {"a": 4, "b": {"c": 2}}
    assert repeated == [Repeated(key="c", first=2, last=2), Repeated(key="a", first=1, last=3), Repeated(key="a", first=3, last=4)]
