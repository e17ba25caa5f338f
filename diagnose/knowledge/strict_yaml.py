"""YAML as data only: safe loader, duplicate keys refused or told, alias bombs refused, bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 200_000
MAX_DEPTH = 100  # the C composer recurses per level and would overflow its stack


class YamlError(ValueError):
    """The text is not acceptable YAML; the message names line and column where known."""


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A key that stands twice in one map: the lines of both, from 1."""

    key: str
    first: int
    last: int


_MERGE = "tag:yaml.org,2002:merge"  # the key `<<`, which brings the entries of other maps


class _StrictLoader(yaml.CSafeLoader):
    """Safe loader that refuses duplicate keys, which PyYAML accepts in silence, or notes them where it has a list for them."""

    repeated: list[Repeated] | None = None

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == _MERGE:  # seldom: all others are done with
                if _merged_size(node, {}) > MAX_NODES:
                    raise YamlError(f"line {node.start_mark.line + 1}: merges more than {MAX_NODES} entries")
                return super().flatten_mapping(node)
        return None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[object, int] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            try:
                first = seen.get(key)
            except TypeError:
                raise YamlError(f"line {line}: a list or map can't be a key") from None
            if first is not None and self.repeated is not None:
                self.repeated.append(Repeated(key=str(key), first=first, last=line))
            elif first is not None:
                raise YamlError(f"line {line}: the key {key!r} stands already in line {first}")
            seen[key] = line
        return super().construct_mapping(node, deep=deep)


class _TellingLoader(_StrictLoader):
    """The same, which says where a value does not fit its tag; slower, so that it is asked only where one does not."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, YamlError):
                raise
            raise YamlError(f"line {node.start_mark.line + 1}: the value does not fit its tag {node.tag}") from None


def load(text: str | bytes, repeated: list[Repeated] | None = None) -> object:
    """The document in `text`; an empty one is None. Of a key that stands twice the last counts where `repeated` takes note of it.

    Aliases are resolved (config dumps contain them), but a document that would unfold to more than MAX_NODES values, or that
    contains itself, is refused. Raises YamlError.
    """
    if len(text) > MAX_BYTES:
        raise YamlError(f"more than {MAX_BYTES // 2**20} MiB")
    try:
        _check_depth(text)
        try:
            data = _constructed(_StrictLoader, text, repeated)
        except (KeyError, AttributeError, TypeError, ValueError) as error:  # what PyYAML raises for a value that does not fit its tag
            if isinstance(error, YamlError):
                raise
            data = _constructed(_TellingLoader, text, repeated)
        if _unfolded_size(data, {}) > MAX_NODES:
            raise YamlError(f"unfolds to more than {MAX_NODES} values")
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    except RecursionError:
        raise YamlError("nested too deeply") from None
    return data


def _constructed(loader_class: type[_StrictLoader], text: str | bytes, repeated: list[Repeated] | None) -> object:
    loader = loader_class(text)
    loader.repeated = repeated
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def line_of(text: str | bytes, path: Sequence[str | int], word: str = "") -> int | None:
    """The line, from 1, of what stands at `path` (keys and places in lists) in a document that `load` accepts.

    Where the path ends early, or is not there at all, the line of what it reaches; with `word`, the line of the scalar or key below
    that reads so. None for an empty document.
    """
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    if node is None:
        return None
    line = node.start_mark.line
    for step in path:
        entry = _entry(node, step)
        if entry is None:
            break
        line, node = entry
    if word:
        line = next((found.start_mark.line for found in _scalars(node, set()) if found.value == word), line)
    return int(line) + 1


def lines(text: str | bytes) -> dict[tuple[str, ...], int]:
    """The line, from 1, of every key of nested maps in a document that `load` accepts, by the keys above it and itself.

    What an alias brings in stands where it is written; keys in lists are left out.
    """
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    found: dict[tuple[str, ...], int] = {}
    if isinstance(node, yaml.MappingNode):
        _note_lines(node, (), found)
    return found


def _note_lines(node: yaml.MappingNode, path: tuple[str, ...], found: dict[tuple[str, ...], int]) -> None:
    """What a map merges in first, the last of several first, so that the entries that hold stand last."""
    merged = [one for key, value in node.value if key.tag == _MERGE for one in _maps(value)]
    for one in reversed(merged):
        _note_lines(one, path, found)
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            found[*path, key.value] = key.start_mark.line + 1
            if isinstance(value, yaml.MappingNode):
                _note_lines(value, (*path, key.value), found)


def _merged_size(node: yaml.MappingNode, known: dict[int, int]) -> int:
    """Number of entries of a map with those that it merges in. `known` holds 0 for maps in progress."""
    size = known.get(id(node))
    if size == 0:
        raise YamlError(f"line {node.start_mark.line + 1}: a map merges itself")
    if size is None:
        known[id(node)] = 0
        merged = [one for key, value in node.value if key.tag == _MERGE for one in _maps(value)]
        known[id(node)] = size = 1 + len(node.value) + sum(_merged_size(one, known) for one in merged)
    return size


def _maps(value: yaml.Node) -> list[yaml.MappingNode]:
    """The maps that a merge key names: one, or a list of them."""
    return [one for one in (value.value if isinstance(value, yaml.SequenceNode) else [value]) if isinstance(one, yaml.MappingNode)]


def _entry(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    """The line and the node of one entry of a map or list."""
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in node.value if getattr(key, "value", None) == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    return None


def _scalars(node: yaml.Node, seen: set[int]) -> list[yaml.ScalarNode]:
    """All scalars at and below a node, keys before their values."""
    if id(node) in seen:
        return []
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return [node]
    below = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    return [found for one in below for found in _scalars(one, seen)]


def _check_depth(text: str | bytes) -> None:
    """Raise YamlError where lists and maps nest deeper than MAX_DEPTH, from the flat stream of parse events."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlError(f"nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _unfolded_size(value: object, known: dict[int, int]) -> int:
    """Number of values with every alias written out, without writing them out. `known` holds 0 for values in progress."""
    if not isinstance(value, dict | list):
        return 1
    size = known.get(id(value))
    if size == 0:
        raise YamlError("a list or map contains itself")
    if size is None:
        known[id(value)] = 0
        children = list(value.values()) if isinstance(value, dict) else value
        size = 1 + sum(_unfolded_size(child, known) for child in children)
        known[id(value)] = size
    return size
