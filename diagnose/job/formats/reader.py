"""What a reader of one format of job files is: how it knows its files, reads them, calls the settings, and takes edits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from diagnose.job.edit import Editor
from diagnose.job.model import Leaf, Origin, Parsed
from diagnose.job.text import JobText
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.settings import JobSettings, Scalar, SettingSpec, flag_name


class Key(Struct, frozen=True, kw_only=True):
    """One key of a setting, in all its spellings. `values` turns the file's value into the setting's; what it lacks says nothing."""

    spellings: tuple[str, ...]
    origin: Origin = "key"
    inverted: bool = False  # a flag that turns its setting off
    constant: str | None = None  # a flag that stands for this value
    values: Mapping[str, Scalar] | None = None
    level: int = 0  # of a file below the job file: what an upper one says of the same setting goes before it


def keys_of(format_: str, spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
    """The keys that job_settings.yaml gives a setting in one format, best first."""
    keys_are = table.formats[format_].keys_are
    for key in spec.keys_in(format_):
        if keys_are == "flags":
            yield Key(spellings=(flag_name(key),), origin="flag", inverted=key.startswith("!"), constant=key.partition("=")[2] or None)
        else:
            options = keys_are == "options"
            spellings = tuple(f"-{name}" for name in key.split("|")) if options else (key,)
            yield Key(spellings=spellings, origin="option" if options else "key", values=spec.values_in(format_, key))


def world_size(sizes: Sequence[Leaf], shown: str) -> Iterator[Leaf]:
    """How many ranks nodes and the devices of each make up, at the place of the first; nothing unless both are whole numbers."""
    values = [leaf.value for leaf in sizes if isinstance(leaf.value, int) and not isinstance(leaf.value, bool)]
    if len(sizes) == len(values) == 2:
        yield replace(sizes[0], key="world_size", shown=shown, value=math.prod(values))


_INTERPOLATED = re.compile(r"\$\{(?P<dots>\.*)(?P<key>\w[\w.]*)\}")
_SELECTED = re.compile(r"\$\{oc\.select:\s*(?P<key>\w[\w.]*)\s*(?:,(?P<default>[^{}]*))?\}")
_MOST_STEPS = 8  # from one interpolation to the next


def interpolated(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Values that are another key's as OmegaConf puts them in: `${a.b}`, or `${.b}` beside it; those of keys that are not there stay.

    `${oc.select:a.b,default}` is the default where that key is not there.
    """
    by_key = {leaf.shown: leaf.value for leaf in leaves}

    def value(key: str, given: object, steps: int = 0) -> object:
        selected = _SELECTED.fullmatch(given) if isinstance(given, str) and steps < _MOST_STEPS else None
        if selected is not None:
            there = selected["key"] in by_key
            return value(selected["key"], by_key[selected["key"]], steps + 1) if there else strict_yaml.load(selected["default"] or "null")
        match = _INTERPOLATED.fullmatch(given) if isinstance(given, str) and steps < _MOST_STEPS else None
        if match is None:
            return given
        around = key.split(".")[: -len(match["dots"])] if match["dots"] else []
        target = ".".join([*around, match["key"]])
        return value(target, by_key[target], steps + 1) if target in by_key else given

    return [replace(leaf, value=value(leaf.shown, leaf.value)) for leaf in leaves]


class Reader(Struct, frozen=True, kw_only=True):
    """One format of job files; what else is known of it stands under its `name` in job_formats.yaml.

    `read` gives what a text holds, or None for a text of another format; it raises JobFileError. `editor` gives what writes into a text of
    the format, None for one that is not rewritten. Without `keys`, files hold the keys of the format's framework, then the format's own.
    """

    name: str
    read: Callable[[JobText], Parsed | None]
    keys: Callable[[SettingSpec, JobSettings], Iterable[Key]] | None = None
    editor: Callable[[str], Editor | None] = lambda _text: None

    def keys_for(self, spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
        """Every key that stands for a setting in a file of this format, best first, besides the setting's own name."""
        if self.keys is not None:
            yield from self.keys(spec, table)
            return
        for format_ in dict.fromkeys((table.formats[self.name].framework, self.name)):
            yield from keys_of(format_, spec, table)
