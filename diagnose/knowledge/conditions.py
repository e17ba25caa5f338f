"""Conditions of rules and fixes: a small, safe part of SQL over facts (`launch_starved_ns`) and job settings (`job_bf16`).

Evaluation has three values: true, false and null. Null means that something was not measured or not told, and stays null; the
operations that would turn it into a value in silence (CASE, GREATEST, CONCAT …) are not part of the language, and LEAST is null where one
of its arguments is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import polars as pl
from msgspec import Meta, Struct, structs

MAX_LENGTH = 500  # a sum of many thousand terms crashes the parser
MAX_DEPTH = 30
FUNCTIONS = frozenset({"NULLIF", "COALESCE", "ABS", "LEAST", "ARRAY_CONTAINS", "ARRAY_LENGTH", "ARRAY_GET", "TRY_CAST"})
KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "AS", "BIGINT"})
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|[<>=+\-*/%(),]))"
)
_COMPARED = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?:\s*,\s*'[^']*'\s*\))?\s*(?:=|<>|!=|(?:NOT\s+)?IN\b)\s*(?P<words>'[^']*'|\([^()]*\))", re.IGNORECASE
)  # also of a column inside COALESCE
_QUOTED = re.compile(r"'([^']+)'")
_CALL = re.compile(r"LEAST\s*\(", re.IGNORECASE)

Kind = Literal["condition", "number"]
# How fields of rule files are declared that hold expressions over facts and job settings; `written_in` finds them.
Condition = Annotated[str, Meta(extra={"kind": "condition"})]
Formula = Annotated[str, Meta(extra={"kind": "number"})]
Value = int | float | bool | str | tuple[str, ...] | None


class ConditionError(ValueError):
    """An expression is not acceptable; the message says what is wrong with it."""


class Expression(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One checked expression with the columns that it reads."""

    kind: Kind
    names: tuple[str, ...]
    compiled: pl.Expr


def compile_expression(text: str, kind: Kind, schema: Mapping[str, pl.DataType]) -> Expression:
    """`text` parsed and its names looked up in `schema`; its types are checked by `check_types`. Raises ConditionError."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"longer than {MAX_LENGTH} characters")
    names = _names(text)
    unknown = [name for name in names if name not in schema]
    if unknown:
        raise ConditionError(f"unknown name {', '.join(unknown)}")
    if not names:
        raise ConditionError("reads no fact and no setting, so it never changes")
    try:
        compiled = pl.sql_expr(_strict(text))
    except pl.exceptions.PolarsError as error:
        raise ConditionError(f"not an expression: {error}") from None
    return Expression(kind=kind, names=names, compiled=compiled)


def written_in(entry: Struct, place: str = "", declared: Sequence[object] = (Condition, Formula)) -> Iterator[tuple[str, str, Kind]]:
    """Place, text and kind of every expression in an entry of a rule file: of every text that a field of it is `declared` to hold."""
    for field in _fields(type(entry)):
        yield from _written(getattr(entry, field.name), field.type, f"{place}.{field.encode_name}".removeprefix("."), declared)


@cache
def _fields(entry: type[Struct]) -> list[structs.FieldInfo]:
    """The fields of an entry below which an expression may stand."""
    return [field for field in structs.fields(entry) if _may_hold(field.type)]


def _may_hold(kind: Any) -> bool:
    entry = isinstance(kind, type) and issubclass(kind, Struct)
    return entry or get_origin(kind) is Annotated or any(map(_may_hold, get_args(kind)))


def _written(value: object, kind: Any, place: str, declared: Sequence[object]) -> Iterator[tuple[str, str, Kind]]:
    """The same of one value of that kind."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if isinstance(value, Struct):
        yield from written_in(value, place, declared)
    elif isinstance(value, str):
        yield from ((place, value, one.__metadata__[0].extra["kind"]) for one in options if one in declared)
    elif isinstance(value, dict):
        inner = next(get_args(one)[1] for one in options if get_origin(one) is dict)
        for key, item in value.items():
            yield from _written(item, inner, f"{place}.{key}", declared)
    elif isinstance(value, tuple):
        inner = next(get_args(one)[0] for one in options if get_origin(one) is tuple)
        for index, item in enumerate(value):
            yield from _written(item, inner, f"{place}[{index}]", declared)


def _names(text: str) -> tuple[str, ...]:
    """Column names in order of appearance; refuses every token that is not part of the language."""
    names: dict[str, None] = {}
    position = depth = 0
    previous = ""
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ConditionError(f"unexpected {stripped[position:].lstrip()[:12]!r}")
        word = match.group().strip()
        position = match.end()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth > MAX_DEPTH:
            raise ConditionError(f"more than {MAX_DEPTH} brackets deep")
        _check_pair(previous, word)
        if match.group("name") and word.upper() not in KEYWORDS:
            if not stripped[position:].lstrip().startswith("("):
                names[word] = None
            elif word.upper() not in FUNCTIONS:
                raise ConditionError(f"{word}() is not allowed; allowed are {', '.join(sorted(FUNCTIONS))}")
        previous = word
    return tuple(names)


def compared(text: str) -> Iterator[tuple[str, str]]:
    """The columns that an expression holds against words, each with the word: `bucket IN ('norm', 'loss')` gives both."""
    for match in _COMPARED.finditer(text):
        yield from ((match["name"], word) for word in _QUOTED.findall(match["words"]))


def _strict(text: str) -> str:
    """`text` with every LEAST null where one of its arguments is; polars would leave that one out."""
    found = next((one for one in _TOKEN.finditer(text) if one.group("name") and _CALL.match(text, one.start("name"))), None)
    if found is None:
        return text
    given, end = _arguments(text, text.index("(", found.end()) + 1)
    if any(_strict(one) != one for one in given):
        raise ConditionError("LEAST inside LEAST: one takes any number of arguments")
    strict = f"(LEAST({', '.join(given)}){''.join(f' + 0 * ({one})' for one in given)})"
    return f"{text[: found.start('name')]}{strict}{_strict(text[end:])}"


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """What stands between the commas of a call from behind its opening bracket on, and where it ends."""
    given: list[str] = []
    depth = 0
    for match in _TOKEN.finditer(text, begin):
        word = match.group().strip()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0 or (word == "," and depth == 0):
            given.append(text[begin : match.start()].strip())
            begin = match.end()
        if depth < 0:
            break
    return given, begin


def _check_pair(previous: str, word: str) -> None:
    if previous == "/" and word.upper() != "NULLIF":
        raise ConditionError("a division must be by NULLIF(…, 0): x / 0 is infinite, which counts as large")
    if previous == "%" and word.upper() != "NULLIF":
        raise ConditionError("a remainder must be by NULLIF(…, 0), so that it is unknown where there is nothing to divide by")
    if previous == "-" and word == "-":
        raise ConditionError("'--' would begin a comment")


def check_types(expressions: Sequence[Expression], schema: Mapping[str, pl.DataType]) -> tuple[int, str] | None:
    """Index and message of the first expression whose result has the wrong type, or that fails on data; None when all are right.

    All run together on one full row: comparing a list with text fails only on data.
    """
    read = {name for expression in expressions for name in expression.names}
    schema = {name: kind for name, kind in schema.items() if name in read}
    full = pl.DataFrame([pl.Series(name, [_sample(kind)], dtype=kind) for name, kind in schema.items()])
    try:
        kinds = _select(expressions, full).dtypes
    except pl.exceptions.PolarsError as error:
        if len(expressions) == 1:
            return 0, " ".join(str(error).split("\n")[0].split())
        single = ((index, check_types([expression], schema)) for index, expression in enumerate(expressions))
        return next(((index, wrong[1]) for index, wrong in single if wrong), None)
    for index, (expression, kind) in enumerate(zip(expressions, kinds, strict=True)):
        if expression.kind == "condition" and kind != pl.Boolean:
            return index, f"must be true or false, but is {kind}"
        if expression.kind == "number" and not kind.is_numeric():
            return index, f"must be a number, but is {kind}"
    return None


def _sample(kind: pl.DataType) -> object:
    if kind == pl.Boolean:
        return True
    if kind == pl.String:
        return "sample"
    return ["sample"] if isinstance(kind, pl.List) else 3


def _select(expressions: Sequence[Expression], frame: pl.DataFrame) -> pl.DataFrame:
    """The value of each expression in each row; of the hundreds of columns only those read are taken along, which halves the time."""
    read = dict.fromkeys(name for expression in expressions for name in expression.names)
    return pl.DataFrame([frame[name] for name in read]).select(
        [expression.compiled.alias(str(index)) for index, expression in enumerate(expressions)]
    )


def row(values: Mapping[str, Value], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """One row with every column of `schema`; what `values` lacks is null. Raises TypeError where a value is not of its column's type."""
    given = {name: _plain(name, value, schema[name]) for name, value in values.items() if value is not None and name in schema}
    return pl.from_dicts([{name: given.get(name) for name in schema}], schema=schema)


def _plain(name: str, value: Value, kind: pl.DataType) -> object:
    if isinstance(value, str) != isinstance(kind, pl.String) or (isinstance(value, float) and not isinstance(kind, pl.Float64)):
        raise TypeError(f"{name} can't be {value!r}: its column holds {kind}")  # polars would turn it into something else
    return list(value) if isinstance(value, tuple) else value


def evaluate(expressions: Sequence[Expression], frame: pl.DataFrame) -> tuple[bool | float | None, ...]:
    """The value of each expression on the one row of `frame`."""
    if not expressions:
        return ()
    return tuple(_select(expressions, frame).row(0))
