"""The table of job settings (trace_rules/job_settings.yaml): their types, the keys that frameworks use for them, their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import polars as pl
from msgspec import Struct

from diagnose.knowledge.data import checked, converted, packaged

SettingType = Literal["int", "float", "bool", "text", "list", "version"]
JobFormat = Literal["megatron-bridge", "megatron-lm", "plain", "overrides", "recipe", "torchtitan"]
PARTIAL_FORMATS: frozenset[JobFormat] = frozenset({"overrides", "recipe"})  # a recipe decides what they leave out
Scalar = int | float | bool | str
DTYPES: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "int": pl.Int64(),
        "float": pl.Float64(),
        "bool": pl.Boolean(),
        "text": pl.String(),
        "list": pl.List(pl.String()),
        "version": pl.Int64(),
    }
)


class DefaultWhen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A default that holds only where another setting has a certain value."""

    setting: str
    equals: Scalar
    value: Scalar | tuple[str, ...]


class SettingSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting; the fields are explained at the top of the YAML file."""

    type: SettingType
    meaning: str
    bridge: tuple[str, ...] = ()
    megatron: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    recipe: dict[str, dict[str, Scalar] | None] = {}
    torchtitan: dict[str, dict[str, Scalar] | None] = {}
    default: Scalar | tuple[str, ...] | None = None
    default_when: tuple[DefaultWhen, ...] = ()
    torchtitan_default: Scalar | None = None
    no_default_in: tuple[JobFormat, ...] = ()
    combine: Literal["conflict", "first", "any"] = "conflict"
    aliases: dict[str, str] = {}
    presets: dict[str, dict[str, Scalar]] = {}
    derive: str | None = None
    derive_is_default: bool = False
    scalar: bool = False
    expression: bool = False
    nested: bool = False


@lru_cache(maxsize=1)
def load_settings() -> Mapping[str, SettingSpec]:
    """The settings by name. Raises RuleFileError."""
    with checked(
        "job_settings.yaml", effect="No job file can be read.", next_step="Correct the file; trace_rules/README.md explains its fields."
    ):
        return MappingProxyType(converted(packaged("job_settings.yaml"), dict[str, SettingSpec]))


def job_schema() -> dict[str, pl.DataType]:
    """Columns job_<name> with their types, as conditions see them."""
    return {f"job_{name}": DTYPES[spec.type] for name, spec in load_settings().items()}


def flag_name(text: str) -> str:
    """A Megatron-LM flag as its argument is called: --num-layers is num_layers."""
    return text.lstrip("-!").split("=")[0].replace("-", "_")


def version_number(text: str) -> int:
    """A version such as 2.6.0a0+git as major * 1000000 + minor * 1000 + patch. Raises ValueError."""
    release = text.strip().removeprefix("v").split("+")[0].split("-")[0]
    parts = [_leading_digits(part) for part in release.split(".")[:3]]
    if not parts or parts[0] is None:
        raise ValueError(text)
    numbers = [part or 0 for part in parts] + [0, 0]
    return numbers[0] * 1_000_000 + numbers[1] * 1000 + numbers[2]


def _leading_digits(text: str) -> int | None:
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits) if digits and len(digits) < 4 else None
