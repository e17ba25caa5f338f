"""Changes to YAML text: what they mean once read again, and that every other line stays as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from diagnose.job.edit_yaml import Path, YamlEditError, add_items, compose, drop, literal, put, remove_items

TEXT = """\
# a job
one: 1   # the first
section:   # a note
    flow: {p: 1,  q: 2}   # kept
    names:
    - a  # first
    - b
    # behind the list
empty: null  # was null
bare:
quoted: "32"
block: |
  line one

  line two

last: [1,  2]
"""


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that went and lines that came; the others are the same, byte by byte and in order."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    tail = next(
        (index for index, (a, b) in enumerate(zip(reversed(old[head:]), reversed(new[head:]), strict=False)) if a != b),
        min(len(old), len(new)) - head,
    )
    return old[head : len(old) - tail], new[head : len(new) - tail]


@pytest.mark.parametrize(
    ("path", "value", "went", "came"),
    [
        (("one",), "2", ["one: 1   # the first\n"], ["one: 2   # the first\n"]),
        (("section", "flow", "q"), "3", ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {p: 1,  q: 3}   # kept\n"]),
        (("section", "flow", "r"), "3", ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {p: 1,  q: 2, r: 3}   # kept\n"]),
        (("section", "new"), "true", [], ["    new: true\n"]),
        (("section", "deep", "er"), "1", [], ["    deep:\n", "      er: 1\n"]),
        (("section", "names"), "[c]", ["    names:\n", "    - a  # first\n", "    - b\n"], ["    names: [c]\n"]),
        (("empty",), "5", ["empty: null  # was null\n"], ["empty: 5  # was null\n"]),
        (("empty", "inner"), "5", ["empty: null  # was null\n"], ["empty:  # was null\n", "  inner: 5\n"]),
        (("bare",), "5", ["bare:\n"], ["bare: 5\n"]),
        (("bare", "inner"), "5", [], ["  inner: 5\n"]),
        (("quoted",), "0", ['quoted: "32"\n'], ["quoted: 0\n"]),
        (("block",), "text", ["block: |\n", "  line one\n", "\n", "  line two\n"], ["block: text\n"]),
        (("last",), "[3]", ["last: [1,  2]\n"], ["last: [3]\n"]),
        (("other", "key"), "1", [], ["other:\n", "  key: 1\n"]),
    ],
)
def test_put(path: Path, value: str, went: list[str], came: list[str]) -> None:
    after = put(TEXT, path, value)
    assert changed(TEXT, after) == (went, came)
    assert literal(at(yaml.safe_load(after), path)) == value
    assert put(after, path, value) == after, "again changes nothing"


def at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


@pytest.mark.parametrize(
    ("path", "went", "came"),
    [
        (("one",), ["one: 1   # the first\n"], []),
        (("section", "flow", "p"), ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {q: 2}   # kept\n"]),
        (("section", "flow", "q"), ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {p: 1}   # kept\n"]),
        (("section", "names"), ["    names:\n", "    - a  # first\n", "    - b\n"], []),
        (("block",), ["block: |\n", "  line one\n", "\n", "  line two\n"], []),
        (("nothing", "here"), [], []),
        (("one", "deeper"), [], []),
    ],
)
def test_drop(path: Path, went: list[str], came: list[str]) -> None:
    assert changed(TEXT, drop(TEXT, path)) == (went, came)


def test_members() -> None:
    assert changed(TEXT, add_items(TEXT, ("section", "names"), ["c"])) == ([], ["    - c\n"])
    assert changed(TEXT, remove_items(TEXT, ("section", "names"), ["a"])) == (["    - a  # first\n"], [])
    assert changed(TEXT, remove_items(TEXT, ("section", "names"), ["a", "b"]))[1] == ["    names: []\n"]
    assert changed(TEXT, add_items(TEXT, ("last",), ["3"])) == (["last: [1,  2]\n"], ["last: [1, 2, 3]\n"])
    assert changed(TEXT, remove_items(TEXT, ("last",), ["1"])) == (["last: [1,  2]\n"], ["last: [2]\n"])
    assert changed(TEXT, add_items(TEXT, ("bare",), ["x"])) == (["bare:\n"], ["bare: [x]\n"])
    assert changed(TEXT, add_items(TEXT, ("new",), ["x"])) == ([], ["new: [x]\n"])
    assert remove_items(TEXT, ("nothing",), ["x"]) == TEXT


def test_members_that_are_enums_go_by_their_name() -> None:
    text = "scope:\n- {_target_: Scope, _name_: attn}\n- {_target_: Scope, _name_: mlp}\n"
    assert remove_items(text, ("scope",), ["mlp"]) == "scope:\n- {_target_: Scope, _name_: attn}\n"


def test_a_file_without_a_last_newline_and_one_of_windows() -> None:
    assert put("a: 1\nb: 2", ("c",), "3") == "a: 1\nb: 2\nc: 3"
    assert put("a: 1\r\nb:\r\n  c: 2\r\nd: 4\r\n", ("b", "e"), "3") == "a: 1\r\nb:\r\n  c: 2\r\n  e: 3\r\nd: 4\r\n"
    assert drop("a: 1\r\nb: 2\r\n", ("a",)) == "b: 2\r\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("a", "b")),
        ("a: &x 1\nc: *x\n", ("a",)),
        ("a: &x {b: 1}\nc: *x\n", ("c", "b")),
        ("a: 1\n", ("a", "b")),
        ("a: {b: 1}\n", ("a",)),
        ("- 1\n", ("a",)),
        ("a: [\n", ("a",)),
        ("", ("a",)),
    ],
)
def test_what_is_refused(text: str, path: Path) -> None:
    with pytest.raises(YamlEditError):
        put(text, path, "2")


def test_an_alias_is_replaced_where_it_stands() -> None:
    assert put("a: &x 1\nc: *x\n", ("c",), "2") == "a: &x 1\nc: 2\n"


@pytest.mark.parametrize(
    "value", [True, None, 3, 1.5, "flex", "expandable_segments:True", "a b", "x: y", "# no", "", "yes", "12", "1e3", ["a", "b, c"]]
)
def test_a_literal_is_read_as_what_it_was(value: object) -> None:
    assert yaml.safe_load(f"x: {literal(value)}") == {"x": value}
    assert yaml.safe_load(f"x: {{y: {literal(value, flow=True)}}}") == {"x": {"y": value}}


KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["x", "y z", "1", "true", "", "a: b", "- c", "two\nlines"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)), max_leaves=12
)
MAPS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


def expected(data: dict[str, Any], path: Path, value: object) -> dict[str, Any] | None:
    """The data with the value set; None where something is in the way."""
    result = copy.deepcopy(data)
    inner = result
    for key in path[:-1]:
        if inner.get(key) is None:
            inner[key] = {}
        inner = inner[key]
        if not isinstance(inner, dict):
            return None
    if isinstance(inner.get(path[-1]), dict):
        return None
    inner[path[-1]] = value
    return result


@given(data=MAPS, path=st.lists(KEYS, min_size=1, max_size=3), value=SCALARS, flow=st.sampled_from([None, False, True]))
def test_put_means_what_it_says(data: dict[str, Any], path: list[str], value: object, flow: bool | None) -> None:
    if isinstance(value, str) and "\n" in value:
        value = "x"
    text = yaml.safe_dump(data, default_flow_style=flow, sort_keys=False)
    wanted = expected(data, tuple(path), value)
    if wanted is None:
        with pytest.raises(YamlEditError):
            put(text, tuple(path), literal(value, flow=True))
    else:
        assert yaml.safe_load(put(text, tuple(path), literal(value, flow=True))) == wanted


@given(data=MAPS, path=st.lists(KEYS, min_size=1, max_size=3), flow=st.sampled_from([False, True]))
def test_drop_means_what_it_says(data: dict[str, Any], path: list[str], flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, sort_keys=False)
    parent = compose(text).at(tuple(path[:-1]))
    wanted: Any = {"": copy.deepcopy(data)}
    holder, inner, last = wanted, wanted[""], ""
    for key in path[:-1]:
        holder, inner, last = inner, inner.get(key) if isinstance(inner, dict) else None, key
    if isinstance(inner, dict) and path[-1] in inner:
        inner.pop(path[-1])
        if not inner and parent is not None and not parent.flow:
            holder[last] = None  # nothing behind a key reads as null
    assert yaml.safe_load(drop(text, tuple(path))) == wanted[""]
