"""Reads the small files of `trace_rules/` that hold one table each: bytes, content in a type, and one error for whatever is wrong."""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from diagnose.errors import RuleFileError
from diagnose.knowledge import compiled, strict_yaml

T = TypeVar("T")


class WrongDataError(Exception):
    """What a file says can't be, although its shape is right; raised inside `checked`."""


def contents(file: str, kind: type[T], own: bytes | None = None) -> T:
    """A file of `trace_rules/` in the shape of `kind`, as it comes with the program or in the text `own`; for use inside `checked`."""
    path = files("trace_rules") / file
    text = path.read_bytes() if own is None else own
    value = document(path, text) if own is None else strict_yaml.load(own)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        entry, what = complaint(value, kind, error)
        line = strict_yaml.line_told(text, what, (entry,) if entry else ())
        raise WrongDataError(f"line {line}: {f'{entry}: ' if entry else ''}{what}") from error


def complaint(value: object, kind: Any, error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong with a value that is no `kind`, and in which entry of it, where that maps names to entries: msgspec names none."""
    if get_origin(kind) is dict and isinstance(value, dict):
        for key, item in value.items():
            try:
                msgspec.convert(item, get_args(kind)[1])
            except msgspec.ValidationError as own:
                return str(key), str(own)
    return "", str(error)


def document(file: Traversable, text: bytes) -> object:
    """The YAML in `text`, the content of one of the program's own files, parsed only where it was not before. Raises YamlError."""
    place = compiled.beside(file, text, code=strict_yaml.__file__, library=yaml.__version__)
    data = place.read()
    if data is not None:
        with suppress(ValueError, EOFError, TypeError):  # not what was written there
            return marshal.loads(data)  # noqa: S302 - it lies, as Python's bytecode does, where the program itself lies
    value = strict_yaml.load(text)
    with suppress(ValueError):  # what marshal does not know, such as a date
        place.write(marshal.dumps(value))  # type: ignore[arg-type]
    return value


# A folder of the user's may hold these in place of the program's.
OWN_TABLES = tuple(
    f"{name}.yaml" for name in ("buckets", "comparison", "environment", "exchanges", "features", "forecast", "hosts", "platforms", "walls")
)


def own_table(file: str, rules: Sequence[Path]) -> Path | None:
    """The last of the files of that name that lie bare in the user's folders `rules`; None where the program's own counts."""
    own = [folder / file for folder in rules if file in OWN_TABLES and (folder / file).is_file()]
    return own[-1] if own else None


def own_text(file: str, rules: Sequence[Path]) -> bytes | None:
    """The text of `own_table`."""
    path = own_table(file, rules)
    return None if path is None else path.read_bytes()


COMMENTED = "Correct the file; the comments at its top explain the fields."


@contextmanager
def checked(file: str, *, effect: str, next_step: str = COMMENTED) -> Iterator[None]:
    """Makes a RuleFileError of what is wrong with `file`: its YAML, its shape, a regular expression, or what it says."""
    try:
        yield
    except (strict_yaml.YamlError, msgspec.ValidationError, re.error, WrongDataError) as error:
        raise RuleFileError(f"{file} is wrong: {str(error).rstrip('.')}.", effect=effect, next_step=next_step) from error


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that a rule file may hold: an unknown field is an error."""
