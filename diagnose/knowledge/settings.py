"""Formats of job files (trace_rules/job_formats.yaml) and the settings in them (trace_rules/job_settings.yaml): types, keys, defaults."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Literal

import polars as pl
from msgspec import Struct, structs

from diagnose.knowledge import conditions
from diagnose.knowledge.data import WrongDataError, checked, contents

SettingType = Literal["int", "float", "bool", "text", "list", "version"]
Numerics = Literal["precision", "training"]
KeysAre = Literal["dotted", "flags", "options"]
Scalar = int | float | bool | str
DTYPES: Mapping[str, pl.DataType] = {
    "int": pl.Int64(),
    "float": pl.Float64(),
    "bool": pl.Boolean(),
    "text": pl.String(),
    "list": pl.List(pl.String()),
    "version": pl.Int64(),
}


class Calls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one program calls the keys of the framework that it hands them to; the fields are explained at the top of job_formats.yaml."""

    of: str
    keys: dict[str, str] = {}
    own: dict[str, tuple[str, ...]] = {}
    sections: dict[str, str] = {}
    lacks: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def name(self, key: str) -> str | None:
        """The program's own key; None where it has none."""
        if key in self.lacks:
            return None
        section, _, last = key.rpartition(".")
        group = next((group for group, names in self.own.items() if key in names), self.sections.get(section))
        return self.keys.get(key) or (None if group is None else f"{group}.{last}")

    def under(self, root: str) -> Calls:
        """The same for a file whose keys lie below another name than `of`."""
        keys, sections = ({key: name.replace(self.of, root) for key, name in named.items()} for named in (self.keys, self.sections))
        return structs.replace(
            self, of=root, keys=keys, own={key.replace(self.of, root): own for key, own in self.own.items()}, sections=sections
        )


class JobFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One format of job files; the fields are explained at the top of the YAML file."""

    title: str
    frameworks: tuple[str, ...]
    defaults: Literal["shared", "own", "none"]
    keys_are: KeysAre | None = None
    in_files: str = ""
    sure: bool = False
    whole: bool = False
    asserts: bool = True
    takes: tuple[str, ...] = ()
    calls: tuple[Calls, ...] = ()

    @property
    def framework(self) -> str:
        """The format whose keys fixes are written in."""
        return self.frameworks[0]

    def called(self, key: str, held: Collection[str]) -> str | None:
        """A key of its framework as the program calls it whose keys the file holds; None where that has no such key."""
        if self.takes and key not in self.takes:
            return None
        own = self.calls_in(held)
        return key if own is None else own.name(key)

    def calls_in(self, held: Collection[str]) -> Calls | None:
        """How the program calls keys whose own ones the file holds; None for one that takes those of the framework."""
        roots = ((one, root) for one in self.calls for root in (one.of, *one.also))
        return next((one.under(root) for one, root in roots if any(other.startswith(root) for other in held)), None)


class ForeignJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A framework whose configurations no reader knows; the fields are explained at the top of foreign_jobs.yaml."""

    title: str
    keys: tuple[tuple[str, ...], ...] = ()
    modules: tuple[str, ...] = ()
    programs: str = ""
    advice: str = "Give the settings as a plain job.yaml, in Megatron's own names."


class DefaultWhen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A default that holds only where another setting has a certain value."""

    setting: str
    equals: Scalar
    value: Scalar | tuple[str, ...]


class SettingSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting; the fields are explained at the top of the YAML file."""

    type: SettingType
    meaning: str
    keys: dict[str, tuple[str, ...] | dict[str, dict[str, Scalar] | None]] = {}
    env: tuple[str, ...] = ()
    default: Scalar | tuple[str, ...] | None = None
    default_when: tuple[DefaultWhen, ...] = ()
    defaults: dict[str, Scalar] = {}
    no_default_in: tuple[str, ...] = ()
    combine: Literal["conflict", "first", "any"] = "conflict"
    aliases: dict[str, str] = {}
    presets: dict[str, dict[str, Scalar]] = {}
    derive: str | None = None
    derive_is_default: bool = False
    numerics: Numerics | None = None
    scalar: bool = False
    expression: bool = False
    nested: bool = False

    def keys_in(self, format_: str) -> tuple[str, ...]:
        """What a format calls the setting, best first; of options all spellings together."""
        return tuple(self.keys.get(format_, ()))

    def values_in(self, format_: str, key: str) -> Mapping[str, Scalar] | None:
        """What the values of a key stand for; None where they are the setting's own."""
        keys = self.keys.get(format_, ())
        return keys.get(key) if isinstance(keys, dict) else None

    def words_in(self, format_: str, key: str) -> dict[object, str]:
        """What a key says for each value, where it has words of its own; the first word of several."""
        values = self.values_in(format_, key) or {}
        numbers = any(word.isdigit() for word in values)
        found: dict[object, str] = {}
        for word, value in values.items():
            found.setdefault(value, "1" if word == "true" and numbers else word)
        return found


class JobSettings(Struct, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True, dict=True):
    """What is known of job files: their formats and settings by name, and what new sections of a saved configuration hold."""

    formats: Mapping[str, JobFormat]
    specs: Mapping[str, SettingSpec]
    sections: Mapping[str, Mapping[str, object]]
    foreign: tuple[ForeignJob, ...] = ()

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """The formats in whose keys fixes are written."""
        return tuple(dict.fromkeys(row.framework for row in self.formats.values()))

    @cached_property
    def schema(self) -> Mapping[str, pl.DataType]:
        """Columns job_<name> with their types, as conditions see them."""
        return {f"job_{name}": DTYPES[spec.type] for name, spec in self.specs.items()}

    @cached_property
    def derivations(self) -> Mapping[str, conditions.Expression]:
        """How the settings that follow from others follow from them, by name."""
        return {name: conditions.compile_expression(spec.derive, "number", self.schema) for name, spec in self.specs.items() if spec.derive}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Names of settings by every key that a fix may call them by."""
        names: dict[str, str] = {}
        for name, spec in self.specs.items():
            keys = [flag_name(key) if self.has_flags(one) else key for one in self.frameworks for key in spec.keys_in(one)]
            for key in (*keys, *spec.env, name):
                names.setdefault(key, name)
        return names

    def has_flags(self, format_: str) -> bool:
        """Whether a format writes its settings as flags."""
        return self.formats[format_].keys_are == "flags"

    def keys_written(self, kind: KeysAre) -> Iterator[str]:
        """The keys of every setting in the formats that write them so."""
        names = [name for name, row in self.formats.items() if row.keys_are == kind]
        return (key for spec in self.specs.values() for name in names for key in spec.keys_in(name))

    def default(self, name: str, format_: str, settings: Mapping[str, object]) -> Scalar | tuple[str, ...] | None:
        """A setting in a job of a format that does not set it, beside the values in `settings`; None: not known."""
        spec = self.specs[name]
        if self.formats[format_].defaults != "shared":
            return spec.defaults.get(format_)
        if format_ in spec.no_default_in:
            return None
        return next((rule.value for rule in spec.default_when if settings.get(rule.setting) == rule.equals), spec.default)


@lru_cache(maxsize=1)  # three entrances of one run ask for it, and no rules of the user change it
def load_job_settings() -> JobSettings:
    """The formats and settings as they come with the program. Raises RuleFileError."""
    with checked("job_formats.yaml", effect="No job file can be read.", next_step="Correct the file; its first lines explain its fields."):
        formats = contents("job_formats.yaml", dict[str, JobFormat])
        wrong = [f"{name}: unknown framework {one}" for name, row in formats.items() for one in row.frameworks if one not in formats]
        wrong += [f"{name}: a format needs a framework" for name, row in formats.items() if not row.frameworks]
        if wrong:
            raise WrongDataError(wrong[0])
    with checked(
        "job_settings.yaml", effect="No job file can be read.", next_step="Correct the file; trace_rules/README.md explains its fields."
    ):
        specs = contents("job_settings.yaml", dict[str, SettingSpec])
        named = ((name, one) for name, spec in specs.items() for one in (*spec.keys, *spec.defaults, *spec.no_default_in))
        unknown = [f"{name}: unknown format {one}" for name, one in named if one not in formats]
        if unknown:
            raise WrongDataError(unknown[0])
    with checked("job_sections.yaml", effect="No job file can be changed.", next_step="Correct the file."):
        sections = contents("job_sections.yaml", dict[str, dict[str, object]])
    with checked("foreign_jobs.yaml", effect="No job file can be read.", next_step="Correct the file; its first lines explain its fields."):
        others = contents("foreign_jobs.yaml", tuple[ForeignJob, ...])
    return JobSettings(formats=formats, specs=specs, sections=sections, foreign=others)


def foreign(raw: object) -> str:
    """A value of a framework's own as a table of `values_in` writes it: YAML has one kind of true."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    text = str(raw)
    return {"1": "true", "t": "true", "yes": "true", "y": "true", "true": "true"}.get(text.lower(), text)


def flag_name(text: str) -> str:
    """A Megatron-LM flag as its argument is called: --num-layers is num_layers."""
    return text.lstrip("-!").split("=")[0].replace("-", "_")


def version_number(text: str) -> int:
    """A version such as 2.6.0a0+git as major * 1000000 + minor * 1000 + patch. Raises ValueError."""
    release = text.strip().removeprefix("v").split("+")[0].split("-")[0]
    parts = [re.match(r"[0-9]{1,3}(?![0-9])", part) for part in release.split(".")[:3]]
    if parts[0] is None:
        raise ValueError(text)
    major, minor, patch = [int(part[0]) if part else 0 for part in (*parts, None, None)][:3]
    return major * 1_000_000 + minor * 1000 + patch
