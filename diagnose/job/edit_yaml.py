"""Changes to YAML text that leave every other byte as it was: comments, order, quotes and spacing stay.

The places come from the parser's own marks, and the text is cut there. A library that loads and dumps would keep comments and order, but
re-indent lists, re-wrap lines and re-space flow maps; a job file that is under version control should show the changed lines only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal

import yaml
from msgspec import Struct

Path = tuple[str, ...]
_NULLS = frozenset({"", "null", "Null", "NULL", "~"})


class YamlEditError(ValueError):
    """The change can't be made in this text; the message says why."""


class Node(Struct, frozen=True, kw_only=True):
    """One value with its place in the text. `end` is behind the last character of the value itself, before comments and blank lines."""

    kind: Literal["scalar", "map", "list", "alias"]
    start: int
    end: int
    flow: bool = True
    anchored: bool = False
    value: str = ""
    quote: str = ""
    entries: tuple[tuple[Node, Node], ...] = ()
    items: tuple[Node, ...] = ()

    @property
    def is_null(self) -> bool:
        """True for a value that is left out or written as null."""
        return self.kind == "scalar" and not self.quote and self.value in _NULLS

    def entry(self, key: str) -> tuple[Node, Node] | None:
        """The entry of a map with this key; of several the last, which counts."""
        return next((pair for pair in reversed(self.entries) if pair[0].value == key), None)

    def at(self, path: Path) -> Node | None:
        """The value under a path of keys, or None."""
        node: Node | None = self
        for key in path:
            found = None if node is None else node.entry(key)
            node = None if found is None else found[1]
        return node


def compose(text: str) -> Node:
    """The tree of the document in `text`. Raises YamlEditError where it is no YAML."""
    try:
        # JSON may be indented with tabs, which YAML forbids; a blank in place of each leaves every place where it is
        events = yaml.parse(text.replace("\t", " ") if _is_json(text) else text, Loader=yaml.SafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return _node(next(events), events, text)
    except yaml.YAMLError as error:
        raise YamlEditError(" ".join(str(error).split())) from error
    raise YamlEditError("the text holds no document")


def _index(mark: object) -> int:
    """Place of a mark, in characters; the loader in Python always has one."""
    return int(getattr(mark, "index", 0))


def _node(event: yaml.Event, events: Iterator[yaml.Event], text: str) -> Node:
    start, end = _index(event.start_mark), _index(event.end_mark)
    if isinstance(event, yaml.AliasEvent):
        return Node(kind="alias", start=start, end=end)
    anchored = getattr(event, "anchor", None) is not None
    if isinstance(event, yaml.ScalarEvent):
        end = start + len(text[start:end].rstrip()) if event.style in ("|", ">") else end
        quote = event.style or ""
        return Node(kind="scalar", start=start, end=end, flow=quote not in ("|", ">"), anchored=anchored, value=event.value, quote=quote)
    children = []
    last: yaml.Event = next(events)
    while not isinstance(last, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        children.append(_node(last, events, text))
        last = next(events)
    flow = bool(getattr(event, "flow_style", False))
    end = _index(last.end_mark) if flow else children[-1].end
    if isinstance(event, yaml.MappingStartEvent):
        pairs = tuple(zip(children[::2], children[1::2], strict=True))
        return Node(kind="map", start=start, end=end, flow=flow, anchored=anchored, entries=pairs)
    return Node(kind="list", start=start, end=end, flow=flow, anchored=anchored, items=tuple(children))


# --- changes ----------------------------------------------------------------------------------------------------------


def _is_json(text: str) -> bool:
    """Whether a text is JSON, in which keys and words stand in double quotes."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _as_json(literal_: str) -> str:
    """One line of YAML as JSON."""
    try:
        return json.dumps(json.loads(literal_))
    except ValueError:
        return json.dumps(yaml.safe_load(literal_))


def put(text: str, path: Path, literal: str) -> str:
    """`text` with the value under `path` set to `literal`, one line of YAML; missing maps on the way are made. Raises YamlEditError."""
    node = compose(text)
    literal = _as_json(literal) if _is_json(text) else literal
    for depth, key in enumerate(path):
        if node.kind != "map":
            raise YamlEditError(f"{'.'.join(path[:depth]) or 'the document'} is no map")
        found = node.entry(key)
        if found is None:
            return _insert(text, node, path[depth:], literal)
        if depth == len(path) - 1:
            return _replace(text, found[0], found[1], literal)
        if found[1].is_null:
            return _open(text, found[0], found[1], path[depth + 1 :], literal, flow=node.flow)
        node = found[1]
        _refuse_shared(node, path[: depth + 1])
    raise YamlEditError("an empty path")


def drop(text: str, path: Path) -> str:
    """`text` without the entry at `path`, however often it stands; unchanged if there is none. Raises YamlEditError."""
    shorter = _without(text, path)
    while shorter.strip() and shorter != text:
        text, shorter = shorter, _without(shorter, path)
    return shorter


def _without(text: str, path: Path) -> str:
    """`text` without the first entry at `path`."""
    parent = compose(text).at(path[:-1])
    if parent is None or parent.kind != "map" or parent.entry(path[-1]) is None:
        return text
    position = next(index for index, (key, _) in enumerate(parent.entries) if key.value == path[-1])
    key, value = parent.entries[position]
    if not parent.flow:
        start, end = _line_start(text, key.start), _line_end(text, value.end)
        if text[start : key.start].strip():
            raise YamlEditError(f"{'.'.join(path)} begins an item of a list")
        return text[:start] + text[min(end + 1, len(text)) :]
    if position:
        return text[: parent.entries[position - 1][1].end] + text[value.end :]
    following = parent.entries[1][0].start if len(parent.entries) > 1 else value.end
    return text[: key.start] + text[following:]


def add_items(text: str, path: Path, literals: Sequence[str]) -> str:
    """`text` with members added to the end of the list under `path`, which is made where it is missing. Raises YamlEditError."""
    node = compose(text).at(path)
    if node is None or node.is_null:
        return put(text, path, f"[{', '.join(literals)}]")
    if node.kind != "list":
        raise YamlEditError(f"{'.'.join(path)} is no list")
    _refuse_shared(node, path)
    if node.flow:
        shown = [text[item.start : item.end] for item in node.items] + list(literals)
        return f"{text[: node.start]}[{', '.join(shown)}]{text[node.end :]}"
    indent = text[_line_start(text, node.start) : node.start]
    return _add_lines(text, node.end, [f"{indent}- {literal}" for literal in literals])


def remove_items(text: str, path: Path, names: Sequence[str]) -> str:
    """`text` with members taken out of the list under `path`. Raises YamlEditError."""
    node = compose(text).at(path)
    if node is None or node.is_null:
        return text
    if node.kind != "list":
        raise YamlEditError(f"{'.'.join(path)} is no list")
    _refuse_shared(node, path)
    kept = [item for item in node.items if item_name(item) not in names]
    if node.flow or not kept:
        literal = f"[{', '.join(text[item.start : item.end] for item in kept)}]"
        return put(text, path, literal) if not node.flow else text[: node.start] + literal + text[node.end :]
    for item in reversed(node.items):
        if item not in kept:
            text = text[: _line_start(text, item.start)] + text[min(_line_end(text, item.end) + 1, len(text)) :]
    return text


def item_name(node: Node) -> str:
    """What a member of a list is called: its text, or the name of the enum that it stands for."""
    named = node.at(("_name_",))
    return node.value if named is None else named.value


def literal(value: object, *, flow: bool = False) -> str:
    """A value as one line of YAML, quoted only where it would be read as something else."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item, flow=True) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    try:
        plain = yaml.safe_load(f"[{value}]" if flow else f"x: {value}") == ([value] if flow else {"x": value})
    except yaml.YAMLError:
        plain = False
    return value if plain and "#" not in value else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- cutting ----------------------------------------------------------------------------------------------------------


def _refuse_shared(node: Node, path: Path) -> None:
    if node.anchored or node.kind == "alias":
        raise YamlEditError(f"{'.'.join(path)} is shared with other places of the file by an anchor")


def _replace(text: str, key: Node, value: Node, literal_: str) -> str:
    if value.anchored:
        raise YamlEditError(f"{key.value} is shared with other places of the file by an anchor")
    # {_target_: torch.bfloat16, _call_: false} stands for one name
    if value.kind == "map" and {inner.value for inner, _ in value.entries} != {"_target_", "_call_"}:
        raise YamlEditError(f"{key.value} is a map here, which {literal_} would replace as a whole")
    if value.start == value.end or not value.flow:
        start = text.index(":", key.end) + 1
        return f"{text[:start]} {literal_}{text[value.end :]}"
    return text[: value.start] + literal_ + text[value.end :]


def _insert(text: str, parent: Node, rest: Path, literal_: str) -> str:
    """A new entry behind the last one of a map."""
    if parent.flow:
        entry = _as_flow(rest, literal_, quoted=_is_json(text))
        if not parent.entries:
            return f"{text[: parent.start + 1]}{entry}{text[parent.start + 1 :]}"
        key, last = parent.entries[-1]
        start = _line_start(text, key.start)
        indent = text[start : key.start]
        joint = ", " if indent.strip() or start == 0 else f",\n{indent}"  # each entry on a line of its own, as JSON is mostly written
        return f"{text[: last.end]}{joint}{entry}{text[last.end :]}"
    first = parent.entries[0][0].start
    return _add_lines(text, parent.end, _as_block(rest, literal_, first - _line_start(text, first)))


def _open(text: str, key: Node, value: Node, rest: Path, literal_: str, *, flow: bool) -> str:
    """A null becomes a map with one entry."""
    if flow:
        space = " " if value.start == value.end else ""
        return f"{text[: value.start]}{space}{{{_as_flow(rest, literal_, quoted=_is_json(text))}}}{text[value.end :]}"
    colon = text.index(":", key.end) + 1
    text = text[:colon] + text[max(colon, value.end) :]
    return _add_lines(text, colon, _as_block(rest, literal_, key.start - _line_start(text, key.start) + 2))


def _as_flow(path: Path, literal_: str, *, quoted: bool) -> str:
    inner = literal_ if len(path) == 1 else "{" + _as_flow(path[1:], literal_, quoted=quoted) + "}"
    return f"{json.dumps(path[0]) if quoted else literal(path[0], flow=True)}: {inner}"


def _as_block(path: Path, literal_: str, indent: int) -> list[str]:
    lines = [f"{' ' * (indent + 2 * depth)}{literal(key)}:" for depth, key in enumerate(path)]
    return [*lines[:-1], f"{lines[-1]} {literal_}"]


def _add_lines(text: str, place: int, lines: Sequence[str]) -> str:
    """`text` with whole lines behind the line that holds `place`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    end = _line_end(text, place)
    if end < len(text):
        return text[: end + 1] + "".join(f"{line}{newline}" for line in lines) + text[end + 1 :]
    return text + newline + newline.join(lines)


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _line_end(text: str, place: int) -> int:
    """Index of the newline that ends the line of `place`, or the length of the text."""
    found = text.find("\n", place)
    return len(text) if found < 0 else found
