"""Changes to YAML text: what they mean once read again, and that every other line stays as it was."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from diagnose.job.edit_yaml import Path as Keys
from diagnose.job.edit_yaml import YamlEditError, add_items, compose, drop, literal, put, remove_items
from diagnose.job.text import toml_lines
from diagnose.knowledge import strict_yaml
from tests.builders.cases import for_each
from tests.builders.jobs import overridden_job, parse_job, read_job

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


@for_each(
    "path, value, went, came",
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
)
def test_put(path: Keys, value: str, went: list[str], came: list[str]) -> None:
    after = put(TEXT, path, value)
    assert changed(TEXT, after) == (went, came)
    assert literal(at(yaml.safe_load(after), path)) == value
    assert put(after, path, value) == after, "again changes nothing"


def at(data: Any, path: Keys) -> Any:
    for key in path:
        data = data[key]
    return data


@for_each(
    "path, went, came",
    (("one",), ["one: 1   # the first\n"], []),
    (("section", "flow", "p"), ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {q: 2}   # kept\n"]),
    (("section", "flow", "q"), ["    flow: {p: 1,  q: 2}   # kept\n"], ["    flow: {p: 1}   # kept\n"]),
    (("section", "names"), ["    names:\n", "    - a  # first\n", "    - b\n"], []),
    (("block",), ["block: |\n", "  line one\n", "\n", "  line two\n"], []),
    (("nothing", "here"), [], []),
    (("one", "deeper"), [], []),
)
def test_drop(path: Keys, went: list[str], came: list[str]) -> None:
    assert changed(TEXT, drop(TEXT, path)) == (went, came)


def test_members_and_those_that_are_enums() -> None:
    assert changed(TEXT, add_items(TEXT, ("section", "names"), ["c"])) == ([], ["    - c\n"])
    assert changed(TEXT, remove_items(TEXT, ("section", "names"), ["a"])) == (["    - a  # first\n"], [])
    assert changed(TEXT, remove_items(TEXT, ("section", "names"), ["a", "b"]))[1] == ["    names: []\n"]
    assert changed(TEXT, add_items(TEXT, ("last",), ["3"])) == (["last: [1,  2]\n"], ["last: [1, 2, 3]\n"])
    assert changed(TEXT, remove_items(TEXT, ("last",), ["1"])) == (["last: [1,  2]\n"], ["last: [2]\n"])
    assert changed(TEXT, add_items(TEXT, ("bare",), ["x"])) == (["bare:\n"], ["bare: [x]\n"])
    assert changed(TEXT, add_items(TEXT, ("new",), ["x"])) == ([], ["new: [x]\n"])
    assert remove_items(TEXT, ("nothing",), ["x"]) == TEXT
    text = "scope:\n- {_target_: Scope, _name_: attn}\n- {_target_: Scope, _name_: mlp}\n"
    assert remove_items(text, ("scope",), ["mlp"]) == "scope:\n- {_target_: Scope, _name_: attn}\n"


def test_a_file_without_a_last_newline_and_one_of_windows() -> None:
    assert put("a: 1\nb: 2", ("c",), "3") == "a: 1\nb: 2\nc: 3"
    assert put("a: 1\r\nb:\r\n  c: 2\r\nd: 4\r\n", ("b", "e"), "3") == "a: 1\r\nb:\r\n  c: 2\r\n  e: 3\r\nd: 4\r\n"
    assert drop("a: 1\r\nb: 2\r\n", ("a",)) == "b: 2\r\n"


@for_each(
    "text, path",
    ("a: &x {b: 1}\nc: *x\n", ("a", "b")), ("a: &x 1\nc: *x\n", ("a",)), ("a: &x {b: 1}\nc: *x\n", ("c", "b")),
    ("a: 1\n", ("a", "b")), ("a: {b: 1}\n", ("a",)), ("- 1\n", ("a",)), ("a: [\n", ("a",)), ("", ("a",)),
)  # fmt: skip
def test_what_is_refused(text: str, path: Keys) -> None:
    with pytest.raises(YamlEditError):
        put(text, path, "2")


def test_an_alias_is_replaced_where_it_stands() -> None:
    assert put("a: &x 1\nc: *x\n", ("c",), "2") == "a: &x 1\nc: 2\n"


@for_each("value", *[True, None, 3, 1.5, "flex", "expandable_segments:True", "a b", "x: y", "# no", "", "yes", "12", "1e3", ["a", "b, c"]])
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


def expected(data: dict[str, Any], path: Keys, value: object) -> dict[str, Any] | None:
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


# -------------------- each setting knows the line of the job file that holds it, in every format

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
FILES = sorted(path.name for path in JOBS.iterdir() if path.suffix != ".md")


def lines_of(text: str, *overrides: str) -> dict[str, int | None]:
    return {row.name: row.line for row in parse_job(text, overrides=overrides).read().settings}


def words(key: str) -> set[str]:
    """The last parts of the keys that a row names, as files may spell them."""
    return {re.sub(r"\W.*", "", part.strip().lstrip("-").rpartition(".")[2]).replace("-", "_") for part in key.split(",")}


@for_each("name", *FILES)
def test_the_line_of_every_setting_holds_its_key(name: str) -> None:
    text = (JOBS / name).read_text(encoding="utf-8").split("\n")
    found = read_job(JOBS / name).read()
    assert found.file == name
    placed = [row for row in found.settings if row.line is not None]
    assert len(placed) > len(found.settings) / 2
    for row in placed:
        assert row.line is not None
        shown = text[row.line - 1].replace("-", "_")
        assert any(word in shown for word in words(row.key)) or "torchrun" in shown, (row, shown)
    for row in found.settings:
        if row.line is None:
            assert "," in row.key, f"{row} was read from one key, which stands on a line"


def test_a_configuration_dump_with_wrappers_anchors_and_classes() -> None:
    text = """\
layers: &half
  [dense, moe]
shared: &overlap
  overlap_grad_reduce: true
  overlap_param_gather: true
ddp: *overlap
model:
  _target_: megatron.bridge.GPTProvider
  transformer:
    num_layers: 48
    params_dtype: {_target_: torch.bfloat16, _call_: false}
    recompute_modules:
      - moe_act
      - layernorm
  expert_model_parallel_size: 8  # a comment
train: {global_batch_size: 512,
  micro_batch_size: 1}
"""
    found = lines_of(text)
    assert (found["overlap_grad_reduce"], found["overlap_param_gather"]) == (4, 5), "where the alias was written"
    assert (found["num_layers"], found["recompute_modules"], found["expert_model_parallel_size"]) == (10, 12, 15)
    assert (found["global_batch_size"], found["micro_batch_size"]) == (16, 17)


def test_lines_of_overrides_presets_and_arguments_of_megatron() -> None:
    text = "num_layers: 48\nmodel.expert_model_parallel_size: 8\n"
    assert lines_of(text) == {"num_layers": 1, "expert_model_parallel_size": 2}
    assert lines_of(text, "num_layers=24")["num_layers"] is None
    assert {row.line for row in overridden_job(["num_layers=24"]).read().settings} == {None}
    assert overridden_job(["num_layers=24"]).read().file is None
    text = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 48\n  --bf16: true\n"
    found = lines_of(text)
    assert (found["cuda_device_max_connections"], found["num_layers"], found["bf16"]) == (2, 4, 5)


def test_a_shell_script_with_variables_and_arrays() -> None:
    text = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=2
ARGS=(
    --num-layers 48
    --tensor-model-parallel-size $TP
)
torchrun --nproc-per-node 8 pretrain_gpt.py ${ARGS[@]} \\
    --bf16
"""
    found = lines_of(text)
    assert (found["num_layers"], found["tensor_model_parallel_size"], found["bf16"]) == (5, 6, 9)
    assert (found["cuda_device_max_connections"], found["world_size"]) == (2, 8)


def test_windows_line_ends_and_a_byte_order_mark_move_no_line() -> None:
    assert lines_of("\ufeffmodel:\r\n  num_layers: 48\r\n") == {"num_layers": 2}


TOML = '''\
title = "a = 1 [not.a.table]"
[training]
steps = 10  # [x]
text = """
[parallelism]
steps = 3
"""
local_batch_size = 4
list = [
  1, # ]
  "]",
]
[ parallelism ]
tensor_parallel_degree = 2
"expert_parallel_degree" = 8
model.'x y'.z = { inner = 1 }
[[runs]]
a = 1
[[runs]]
a = 2
'''


def test_lines_of_toml() -> None:
    found = toml_lines(TOML)
    assert found == {
        ("title",): 1, ("training",): 2, ("training", "steps"): 3, ("training", "text"): 4, ("training", "local_batch_size"): 8,
        ("training", "list"): 9, ("parallelism",): 13, ("parallelism", "tensor_parallel_degree"): 14,
        ("parallelism", "expert_parallel_degree"): 15, ("parallelism", "model", "x y", "z"): 16, ("runs",): 17, ("runs", "a"): 18,
    }  # fmt: skip
    data = tomllib.loads(TOML)
    assert data["parallelism"]["model"]["x y"]["z"] == {"inner": 1}


def test_a_hostile_toml_ends_soon() -> None:
    text = "x = '''" + '"' * 200_000 + "'''\n" + "y = [" + "[" * 50 + "]" * 50 + "]\nz = 1\n"
    assert toml_lines(text)["z",] == 3


def test_aliases_are_followed_once_per_place() -> None:
    assert strict_yaml.lines("a: &x {k: 1}\nb: *x\nc:\n- k: 2\n") == {("a",): 1, ("a", "k"): 1, ("b",): 2, ("b", "k"): 1, ("c",): 3}
    assert strict_yaml.lines("") == {}
    assert strict_yaml.lines("- 1\n") == {}
