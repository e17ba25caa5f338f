"""One table of a document as CSV (RFC 4180, UTF-8): exact numbers under the names of its JSON fields, which end in their unit.

Null is empty.

Every list of records in a document is a table, named by where it stands: `findings`, `findings.fixes`, `budget.per_step`. A row of an inner
list repeats what tells its outer row apart. What a document holds column by column (the step of the timeline) is a table too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

from diagnose.model.names import visible
from diagnose.render.writers import Options, Writer

if TYPE_CHECKING:
    from diagnose.document.device import Timeline

_PLACE = ("rank", "device")  # these fields and the first of those tell rows apart
_KEYS = ("id", "fix", "index", "bucket", "phase", "wall", "name", "kind", "place")
_BY_COLUMN = ("TimelineColumns", "HostColumns")
_THINNED = ("ops", "gaps")  # of a timeline, for drawing
_POWERFUL = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the beginning of a text
_COLUMNAR = {
    "operations": ("start_ns", "duration_ns", "stream", "bucket", "name", "launched_before_ns", "range"),
    "gaps": ("start_ns", "duration_ns", "cause", "waited_for"),
    "calls": ("start_ns", "duration_ns", "thread", "name"),
    "ranges": ("start_ns", "duration_ns", "thread", "name"),
}

Cell = str | int | float | bool | None


class Shape(NamedTuple):
    """The columns of a table, and how to reach its rows: fields from the document on, `many` where one holds several."""

    columns: tuple[str, ...]
    steps: tuple[Step, ...]


class Step(NamedTuple):
    """One field on the way.

    Whether it holds one record, a list of them, or a map of them, and the columns that an inner table repeats of its rows.
    """

    field: str
    holds: str  # one, list, map
    keys: tuple[str, ...]
    called: str


def write(document: Any, options: Options) -> str:
    """The table that `options.table` names; without a name the list of them. Raises KeyError where there is none of that name."""
    import csv  # noqa: PLC0415
    import io  # noqa: PLC0415

    shapes: Mapping[str, Shape] = _shapes(type(document).__name__)
    kind = options.table.removeprefix("timeline.")
    head: tuple[str, ...]
    rows: Iterable[Iterable[Cell]]
    if not options.table:
        head, rows = ("table", "rows"), ((name, sum(1 for _ in _rows(document, shape.steps, {}))) for name, shape in shapes.items())
    elif kind != options.table and kind in _COLUMNAR:
        head, rows = _COLUMNAR[kind], () if document.timeline is None else _columnar(document.timeline, kind)
    else:
        head, steps = shapes[options.table]
        rows = ((row.get(column) for column in head) for row in _rows(document, steps, {}))
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows(map(_text, row) for row in rows)
    return made.getvalue()


def tables_of(name: str) -> tuple[str, ...]:
    """The names of all tables of documents of a class, in the order of the document."""
    return (*_shapes(name), *(f"timeline.{kind}" for kind in _COLUMNAR if name == "Diagnosis"))


# --- what tables there are --------------------------------------------------------------------------------------------


@cache
def _shapes(name: str) -> Mapping[str, Shape]:
    """The tables of the documents of a class, which stands in the module of its name."""
    return dict(_walk(getattr(import_module(f"diagnose.document.{name.lower()}"), name), (), (), ()))


def _walk(record: type, path: tuple[str, ...], steps: tuple[Step, ...], outer: tuple[str, ...]) -> Iterator[tuple[str, Shape]]:
    """The tables below a record. `outer`: the columns that stand for the rows around it."""
    from msgspec import structs  # noqa: PLC0415 - so that the command line starts quickly

    for field in structs.fields(record):
        holds, inner = _content(field.type)
        name = (*path, field.encode_name)
        if holds == "" or inner.__name__ in _BY_COLUMN or (record.__name__ == "Timeline" and field.name in _THINNED):
            continue
        own = _columns(inner, "") if _is_record(inner) else ("value",)
        named = ("name", *own) if holds == "map" else own
        plural = "es" if field.encode_name.endswith(("xes", "sses")) else "s"
        step = Step(field.name, holds, _keys(named) if holds != "one" else (), field.encode_name.removesuffix(plural))
        way = (*steps, step)
        if holds != "one" and (_is_record(inner) or not steps or holds == "map"):
            yield ".".join(name), Shape((*outer, *named), way)
        elif holds == "one" and not steps and own:
            yield ".".join(name), Shape(own, way)
        if _is_record(inner):
            yield from _walk(inner, name, way, (*outer, *(f"{step.called}.{key}" for key in step.keys)))


def _keys(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that tell the rows of a table apart."""
    first = next((key for key in _KEYS if key in columns), None)
    found = tuple(key for key in _PLACE if key in columns) + (() if first is None else (first,))
    return found or tuple(columns[:1])


def _columns(record: type, prefix: str) -> tuple[str, ...]:
    """The columns of a record's row: its own figures and texts, and those of the records in it, with a dot between."""
    from msgspec import structs  # noqa: PLC0415

    found: list[str] = []
    for field in structs.fields(record):
        holds, inner = _content(field.type)
        name = f"{prefix}{field.encode_name}"
        if holds == "" or (holds == "list" and not _is_record(inner)):
            found.append(name)
        elif holds == "one" and inner.__name__ not in _BY_COLUMN:
            found += _columns(inner, f"{name}.")
    return tuple(found)


def _content(kind: Any) -> tuple[str, type]:
    """What a field holds: nothing but a value (""), one record, a list, or a map, and of what."""
    options = [one for one in get_args(kind) if one is not type(None)] if get_origin(kind) not in (tuple, dict) else [kind]
    kind = options[0] if len(options) == 1 and get_args(kind) and get_origin(kind) not in (tuple, dict) else kind
    if get_origin(kind) is tuple:
        of = get_args(kind)[0]
        return "list", of if isinstance(of, type) else str
    if get_origin(kind) is dict:
        of = get_args(kind)[1]
        return "map", of if isinstance(of, type) else str
    return ("one", kind) if _is_record(kind) else ("", str)


def _is_record(kind: Any) -> bool:
    import msgspec  # noqa: PLC0415

    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


# --- their rows -------------------------------------------------------------------------------------------------------


def _rows(record: Any, steps: Sequence[Step], outer: Mapping[str, Cell]) -> Iterator[dict[str, Cell]]:
    """The rows that the steps lead to from a record."""
    held = getattr(record, steps[0].field)
    if held is None:
        return
    if steps[0].holds == "map":
        items = [(one, {"name": name}) for name, one in held.items()]
    else:
        items = [(one, {}) for one in (held if steps[0].holds == "list" else (held,))]
    for one, named in items:
        row = {**named, **_cells(one, "")}
        if len(steps) == 1:
            yield {**outer, **row}
        else:
            yield from _rows(one, steps[1:], {**outer, **{f"{steps[0].called}.{key}": row.get(key) for key in steps[0].keys}})


def _cells(record: Any, prefix: str) -> dict[str, Cell]:
    """A record's row by column."""
    from msgspec import structs  # noqa: PLC0415

    if not _is_record(type(record)):
        return {"value": _joined(record)}
    found: dict[str, Cell] = {}
    for field in structs.fields(type(record)):
        value, name = getattr(record, field.name), f"{prefix}{field.encode_name}"
        if _is_record(type(value)):
            found |= _cells(value, f"{name}.")
        elif not isinstance(value, dict):
            found[name] = _joined(value)
    return found


def _joined(value: Any) -> Cell:
    """A value, or the values of a list in one cell."""
    if isinstance(value, tuple):
        return "; ".join(" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _columnar(shown: Timeline, kind: str) -> Iterable[tuple[Cell, ...]]:
    """The step of the timeline, row by row; starts count from the step's start."""
    held: tuple[Iterable[Cell], ...] = ()
    if kind in ("operations", "gaps") and (ops := shown.columns) is not None:
        names = _named(ops.names, ops.name)
        if kind == "operations":
            places = _named(ops.streams, ops.stream), _named(ops.buckets, ops.bucket), names
            held = (ops.start_ns, ops.duration_ns, *places, ops.queued_ns, _named(ops.names, ops.range))
        else:
            held = (ops.gap_start_ns, ops.gap_duration_ns, _named(ops.causes, ops.gap_cause), _named(names, ops.gap_blocked_by))
    elif kind in ("calls", "ranges") and (host := shown.host) is not None:
        one = kind.removesuffix("s")
        times = (getattr(host, f"{one}_start_ns"), getattr(host, f"{one}_duration_ns"))
        held = (*times, _named(host.threads, getattr(host, f"{one}_thread")), _named(host.names, getattr(host, f"{one}_name")))
    return zip(*held, strict=True)


def _named(names: Sequence[Cell], places: Iterable[int | None]) -> list[Cell]:
    """What stands at each of the places; None where there is none."""
    return [None if place is None else names[place] for place in places]


def _text(cell: Cell) -> str:
    """A cell as text: empty for null, true and false, numbers in full; a text that a spreadsheet would run gets an apostrophe before it."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if not isinstance(cell, str):
        return repr(cell)

    text = "\n".join(map(visible, cell.split("\n")))
    return f"'{text}" if text.startswith(_POWERFUL) else text


WRITER = Writer(name="csv", extensions=(".csv",), takes="tables", place=9, write=write)
