"""YAML as data only: the safe tags alone, duplicate keys refused or told, alias bombs refused, bounded size.

A document is built from the flat stream of its parse events: half the time that PyYAML's own constructor takes, and no depth of nesting
overflows a stack. What a scalar means is PyYAML's own answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from msgspec import Struct

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 200_000
MAX_DEPTH = 100  # what asks a loaded document for its lines goes down it level by level

_MERGE = "tag:yaml.org,2002:merge"  # the key `<<`, which brings the entries of other maps
_STRING = "tag:yaml.org,2002:str"
_SET = "tag:yaml.org,2002:set"
# The place that a complaint names: at its beginning, or, as msgspec has it, at its end.
_TOLD = re.compile(r"^(?P<start>[a-z][\w-]*(?:[.\[][\w.\[\]]*)?): |at `\$\.?(?P<end>[^`]*)`")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_IS_MAP = {"tag:yaml.org,2002:map": True, _SET: True, "tag:yaml.org,2002:seq": False}  # which tags lists and maps may have


class YamlError(ValueError):
    """The text is not acceptable YAML; the message names line and column where known."""


class Repeated(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that stands twice in one map: the lines of both, from 1."""

    key: str
    first: int
    last: int


def load(text: str | bytes, repeated: list[Repeated] | None = None) -> object:
    """The document in `text`; an empty one is None. Of a key that stands twice the last counts where `repeated` takes note of it.

    Aliases are resolved (config dumps contain them), but a document that would unfold to more than MAX_NODES values, or that
    contains itself, is refused. Raises YamlError.
    """
    if len(text) > MAX_BYTES:
        raise YamlError(f"more than {MAX_BYTES // 2**20} MiB")
    try:
        parser = yaml.CSafeLoader(text)
        try:
            return _Builder(parser, repeated).document()
        finally:
            parser.dispose()
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error


@dataclass(kw_only=True, slots=True)
class _Open:
    """A list, map or set whose end has not come yet, and how many values it unfolds to so far."""

    value: list[Any] | dict[Any, Any]
    anchor: str | None
    line: int
    is_set: bool = False
    size: int = 1
    key: Any = None
    has_key: bool = False
    lines: dict[Any, int] = field(default_factory=dict)
    merged: list[dict[Any, Any]] = field(default_factory=list)


class _Merge:
    """The key `<<` itself."""


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


class _Builder:
    """Values from parse events. What holds others waits in `open`, the innermost last."""

    def __init__(self, parser: yaml.CSafeLoader, repeated: list[Repeated] | None) -> None:
        self.parser = parser
        self.repeated = repeated
        self.open: list[_Open] = []
        self.root: list[Any] = []
        self.named: dict[str, tuple[Any, int]] = {}  # by anchor: the value, and how many it unfolds to; none while it is open
        self.plain: dict[str, Any] = {}  # what a plain scalar means, by its text
        self.anchors: dict[str, int] = {}  # the lines that name them

    def document(self) -> object:
        """The one value of the stream, None where there is none."""
        while not isinstance(event := self.parser.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.ScalarEvent):
                self._add(self._scalar(event), 1, event)
            elif isinstance(event, yaml.AliasEvent):
                self._add(*self._alias(event), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)
            elif isinstance(event, yaml.DocumentStartEvent) and self.root:
                raise YamlError(f"line {_line(event)}: expected a single document, found another one")
        return self.root[0] if self.root else None

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if event.tag is None and not event.implicit[0]:
            value = text
        elif event.tag is None and text in self.plain:
            value = self.plain[text]
        else:
            tag = event.tag if event.tag not in (None, "!") else self.parser.resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]
            value = self._meaning(tag, event)
            if event.tag is None:
                self.plain[text] = value
        if event.anchor is not None:
            self._note_anchor(event.anchor, event)
            self.named[event.anchor] = value, 1
        return value

    def _meaning(self, tag: str, event: yaml.ScalarEvent) -> Any:
        if tag == _STRING:
            return event.value
        if tag == _MERGE:
            return _Merge
        try:
            return self.parser.construct_document(yaml.ScalarNode(tag, event.value, event.start_mark))  # type: ignore[arg-type]
        except (KeyError, AttributeError, TypeError, ValueError) as error:  # what PyYAML raises for a value that does not fit its tag
            raise YamlError(f"line {_line(event)}: the value does not fit its tag {tag}") from error

    def _note_anchor(self, anchor: str, event: yaml.Event) -> None:
        if anchor in self.anchors:
            raise YamlError(f"line {_line(event)}: the anchor {anchor!r} stands already in line {self.anchors[anchor]}")
        self.anchors[anchor] = _line(event)

    def _alias(self, event: yaml.AliasEvent) -> tuple[Any, int]:
        if any(one.anchor == event.anchor for one in self.open):
            merges = self.open[-1].key is _Merge
            raise YamlError(f"line {_line(event)}: {'a map merges itself' if merges else 'a list or map contains itself'}")
        if event.anchor not in self.named:
            raise YamlError(f"line {_line(event)}: found undefined alias {event.anchor!r}")
        return self.named[event.anchor]

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        line = _line(event)
        is_map = isinstance(event, yaml.MappingStartEvent)
        if len(self.open) == MAX_DEPTH:
            raise YamlError(f"nested more than {MAX_DEPTH} levels deep")
        if event.tag not in (None, "!"):
            wanted = _IS_MAP.get(event.tag)
            if wanted is None:
                raise YamlError(f"line {line}: could not determine a constructor for the tag {event.tag!r}")
            if wanted != is_map:
                raise YamlError(f"line {line}: expected a {'mapping' if wanted else 'sequence'} for the tag {event.tag!r}")
        if self.open and isinstance(self.open[-1].value, dict) and not self.open[-1].has_key:
            raise YamlError(f"line {line}: a list or map can't be a key")
        if event.anchor is not None:
            self._note_anchor(event.anchor, event)
        self.open.append(_Open(value={} if is_map else [], anchor=event.anchor, line=line, is_set=event.tag == _SET))

    def _end(self, event: yaml.CollectionEndEvent) -> None:
        one = self.open.pop()
        if one.size > MAX_NODES:
            merges = bool(one.merged) or any(above.key is _Merge for above in self.open)
            raise YamlError(
                f"line {one.line}: {'merges' if merges else 'unfolds to'} more than {MAX_NODES} {'entries' if merges else 'values'}"
            )
        value: Any = one.value
        if one.merged and isinstance(value, dict):
            own = dict(value)
            value.clear()
            for merged in reversed(one.merged):  # of several the first holds, and before all what stands in the map itself
                value |= merged
            value |= own
        if one.is_set:
            value = set(value)
        if one.anchor is not None:
            self.named[one.anchor] = value, one.size
        self._add(value, one.size, event)

    def _add(self, value: Any, size: int, event: yaml.Event) -> None:
        """Put a finished value where it belongs: into the list or map that is open, as a key of it, or at the top."""
        if not self.open:
            self.root.append(value)
            return
        above = self.open[-1]
        if isinstance(above.value, dict) and not above.has_key:
            self._key(above, value, _line(event))
            return
        if value is _Merge:
            raise YamlError(f"line {_line(event)}: could not determine a constructor for the tag {_MERGE!r}")
        above.size += size
        if isinstance(above.value, list):
            above.value.append(value)
            return
        if above.key is _Merge:
            maps = value if isinstance(value, list) else [value]
            if not all(isinstance(one, dict) for one in maps):
                raise YamlError(f"line {_line(event)}: expected a mapping or list of mappings for merging")
            above.merged.extend(maps)
        else:
            above.value[above.key] = value
        above.has_key = False

    def _key(self, above: _Open, key: Any, line: int) -> None:
        above.key, above.has_key = key, True
        if key is _Merge:
            return
        try:
            first = above.lines.get(key)
        except TypeError:
            raise YamlError(f"line {line}: a list or map can't be a key") from None
        if first is not None and self.repeated is not None:
            self.repeated.append(Repeated(key=str(key), first=first, last=line))
        elif first is not None:
            raise YamlError(f"line {line}: the key {key!r} stands already in line {first}")
        above.lines[key] = line


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


def line_told(text: bytes, what: str, within: Sequence[str] = ()) -> int | None:
    """The line that a complaint speaks of: the place that it names, and in it the word that it ends in or the field in its quotes.

    `within`: the keys above that place.
    """
    match = _TOLD.search(what)
    place = (match["start"] or match["end"] or "") if match else ""
    field = re.search(r"field `(\w+)`", what)
    word = field[1] if field and "unknown" in what else what.rsplit(" ", 1)[-1] if match and match["start"] else ""
    return line_of(text, [*within, *(int(index) if index else key for key, index in _STEP.findall(place))], word)


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
