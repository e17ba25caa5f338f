"""Job files: a Megatron-Bridge config dump, Megatron-LM arguments, or a plain job.yaml, read into one set of normalised settings.

What a setting is called in each framework is data (trace_rules/job_settings.yaml). Wrong types are errors with the key that they
stand under; keys that the table does not know are kept and listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from diagnose import conditions, strict_yaml
from diagnose.diagnosis import JobRead, JobSetting
from diagnose.errors import JobFileError
from diagnose.job_settings import JobFormat, SettingSpec, job_schema, load_settings, version_number

SettingValue = int | float | bool | str | tuple[str, ...]
Origin = Literal["key", "flag", "env"]
_BRIDGE_SECTIONS = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "dist", "scheduler", "checkpoint", "rng", "tokenizer"})
_LM_SECTIONS = ("MODEL_ARGS", "ENV_VARS")
_LM_OTHER = frozenset({"TEST_TYPE", "METRICS", "LAUNCHER", "MODE"})
_INTEGER = re.compile(r"-?\d{1,15}")
_EFFECT = "The run was not compared with its settings."


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One normalised setting. `key` is where it was read, or what it was derived from; a default was not read at all."""

    name: str
    value: SettingValue
    key: str
    source: Literal["read", "default"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings of one training job."""

    format: JobFormat
    settings: Mapping[str, Setting]
    unknown: tuple[str, ...] = ()
    source: str = "job file"

    def get(self, name: str) -> SettingValue | None:
        """The value of a setting, read or default; None when it is not known."""
        found = self.settings.get(name)
        return None if found is None else found.value

    @property
    def step_range(self) -> str | None:
        """The user's own name for the range that is one step."""
        value = self.get("step_range")
        return value if isinstance(value, str) else None

    def columns(self) -> dict[str, SettingValue]:
        """Values as conditions see them: job_<name>, versions as numbers."""
        specs = load_settings()
        return {f"job_{name}": _column(specs[name], item.value) for name, item in self.settings.items()}

    def read(self) -> JobRead:
        """What was read, for the diagnosis document; defaults are not part of it."""
        rows = tuple(JobSetting(name=item.name, value=item.value, key=item.key) for item in self.settings.values() if item.source == "read")
        return JobRead(format=self.format, settings=rows, unknown=self.unknown)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """One value of one setting, with the key that it stood under; `order` is the standing of that key."""

    value: SettingValue
    key: str
    order: int


@dataclass(frozen=True, kw_only=True)
class _Alias:
    """What a foreign key stands for."""

    name: str
    order: int
    origin: Origin = "key"
    inverted: bool = False
    constant: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    """One value of a job file: the key to look up, and the key as the file shows it. Class names (`_target_`) count as known."""

    key: str
    shown: str
    value: object
    known: bool = False


def read_job(path: Path) -> Job:
    """The job in the file at `path`. Raises JobFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JobFileError(
            f"The job file {path} cannot be read: {error.strerror or error}.", effect=_EFFECT, next_step="Give --config a YAML file."
        ) from error
    return parse_job(data, source=path.name)


def parse_job(text: str | bytes, *, source: str = "job file") -> Job:
    """The job in `text`; `source` names it in messages. Raises JobFileError."""
    try:
        data = strict_yaml.load(text)
    except (strict_yaml.YamlError, UnicodeDecodeError) as error:
        raise _error(source, f"is not valid YAML: {error}", "Correct the YAML.") from error
    if not isinstance(data, dict) or not data:
        raise _error(
            source, f"must hold a map of settings, but holds {_type_name(data)}", "Give the job's configuration as keys and values."
        )
    kind = _format(data)
    leaves = _lm_leaves(data, source) if kind == "megatron-lm" else list(_walk(data, "", ""))
    found, unknown = _match(leaves, kind, source)
    return Job(format=kind, settings=MappingProxyType(_settle(found, kind, source)), unknown=tuple(unknown), source=source)


def _format(data: Mapping[object, object]) -> JobFormat:
    keys = {str(key) for key in data}
    if "MODEL_ARGS" in keys or any(key.startswith("--") for key in keys):
        return "megatron-lm"
    if any(key in _BRIDGE_SECTIONS and isinstance(value, dict) for key, value in data.items()):
        return "megatron-bridge"
    own = set(load_settings()) | {"versions", "env_vars"}
    flags = {_flag_name(flag) for spec in load_settings().values() for flag in spec.megatron}
    if not any("." in key for key in keys) and any(key in flags and key not in own for key in keys):
        return "megatron-lm"
    return "plain"


def _lm_leaves(data: Mapping[object, object], source: str) -> list[_Leaf]:
    """Flags with underscores; what stands outside the known sections counts as a flag too (a flat dump of the arguments)."""
    sections: dict[str, Mapping[object, object]] = {}
    for name in _LM_SECTIONS:
        value = data.get(name) or {}
        if not isinstance(value, dict):
            raise _wrong_type(source, name, "map", value)
        sections[name] = value
    leaves: list[_Leaf] = []
    flags = [(f"MODEL_ARGS.{key}", key, value) for key, value in sections["MODEL_ARGS"].items()]
    flags += [(str(key), key, value) for key, value in data.items() if key not in (*_LM_SECTIONS, *_LM_OTHER)]
    for shown, key, value in flags:
        if key in ("versions", "env_vars") and isinstance(value, dict):
            leaves += _walk({key: value}, "", "")
        else:
            leaves.append(_Leaf(key=_flag_name(str(key)), shown=shown, value=_reduce(value)))
    env = [_Leaf(key=f"env_vars.{key}", shown=f"ENV_VARS.{key}", value=value) for key, value in sections["ENV_VARS"].items()]
    return leaves + env


def _flag_name(text: str) -> str:
    return text.lstrip("-!").split("=")[0].replace("-", "_")


def _walk(node: Mapping[object, object], path: str, shown: str) -> Iterator[_Leaf]:
    """Dotted keys and plain values of a nested map; the level model.transformer is left out of the key to look up."""
    for key, value in node.items():
        inner = "model" if path == "model" and key == "transformer" else f"{path}.{key}" if path else str(key)
        inner_shown = f"{shown}.{key}" if shown else str(key)
        plain = _reduce(value)
        if isinstance(plain, dict):
            yield from _walk(plain, inner, inner_shown)
        else:
            own_class = key == "_target_" and inner != inner_shown  # the class of model.transformer is not that of the model
            yield _Leaf(key=inner_shown if own_class else inner, shown=inner_shown, value=plain, known=key == "_target_")


def _reduce(value: object) -> object:
    """Enums, precisions and partials as the plain names or values that they stand for; anything else as it is."""
    if isinstance(value, list):
        return [_reduce(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "_name_" in value:
        return value["_name_"]
    if "_target_" in value and (value.get("_call_") is False or "_partial_" in value):
        return str(value["_target_"]).rpartition(".")[2]
    arguments = value.get("_args_")
    if "_target_" in value and isinstance(arguments, list):
        return arguments[0] if len(arguments) == 1 else arguments
    return value


def _aliases(kind: JobFormat) -> dict[str, _Alias]:
    """Every key that stands for a setting in this format. The setting's own name has order 0."""
    table: dict[str, _Alias] = {}
    for name, spec in load_settings().items():
        table[name] = _Alias(name=name, order=0, origin="flag" if kind == "megatron-lm" else "key")
        keys = [key for key in spec.bridge if kind != "megatron-lm" or key.startswith("versions.")]
        table |= {key: _Alias(name=name, order=order) for order, key in enumerate(keys, 1)}
        table |= {f"env_vars.{key}": _Alias(name=name, order=order, origin="env") for order, key in enumerate(spec.env, 1)}
        for order, flag in enumerate(spec.megatron if kind == "megatron-lm" else (), 1):
            constant = flag.partition("=")[2] or None
            table[_flag_name(flag)] = _Alias(name=name, order=order, origin="flag", inverted=flag.startswith("!"), constant=constant)
    return table


def _match(leaves: Sequence[_Leaf], kind: JobFormat, source: str) -> tuple[dict[str, list[_Found]], list[str]]:
    """Values by setting, and the keys that stand for none. A null says nothing, as in the frameworks."""
    aliases, specs = _aliases(kind), load_settings()
    found: dict[str, list[_Found]] = {}
    for leaf in leaves:
        alias = aliases.get(leaf.key)
        if alias is None:
            _refuse_map(leaf, aliases, source)
        if alias is None or leaf.value is None:
            continue
        value = _coerce(leaf.value, specs[alias.name], alias, leaf.shown, source)
        if value is not None:
            found.setdefault(alias.name, []).append(_Found(value=value, key=leaf.shown, order=alias.order))
    return found, sorted({leaf.shown for leaf in leaves if leaf.key not in aliases and not leaf.known})


def _refuse_map(leaf: _Leaf, aliases: Mapping[str, _Alias], source: str) -> None:
    """Raise where an unknown key lies inside a setting that has no inner keys: a map stands where a value should."""
    parts, shown = leaf.key.split("."), leaf.shown.split(".")
    for length in range(1, len(parts)):
        parent = ".".join(parts[:length])
        if parent in aliases and not any(key.startswith(f"{parent}.") for key in aliases):
            spec = load_settings()[aliases[parent].name]
            inner = ".".join(shown[len(shown) - len(parts) + length :])
            raise _wrong_type(source, ".".join(shown[: len(shown) - len(parts) + length]), _expected(spec), {inner: leaf.value})


def _coerce(raw: object, spec: SettingSpec, alias: _Alias, key: str, source: str) -> SettingValue | None:
    """The value in the setting's type. Flags and environment variables are text by nature, so a number may be quoted there."""
    if alias.constant is not None or alias.inverted:
        given = _boolean(raw, alias.origin)
        if given is None:
            raise _wrong_type(source, key, "bool", raw)
        if alias.constant is not None:
            return alias.constant if given else None
        return not given
    value = _typed(raw, spec, alias.origin)
    if value is None:
        raise _wrong_type(source, key, _expected(spec), raw)
    if isinstance(value, str):
        return spec.aliases.get(value, value)
    return tuple(spec.aliases.get(item, item) for item in value) if isinstance(value, tuple) else value


def _typed(raw: object, spec: SettingSpec, origin: Origin) -> SettingValue | None:
    if spec.type == "bool":
        return _boolean(raw, origin)
    if spec.type in ("int", "float"):
        return _number(raw, spec.type, origin)
    if spec.type == "list":
        return _list(raw, spec, origin)
    if not isinstance(raw, str):
        return None
    if spec.type == "version":
        try:
            version_number(raw)
        except ValueError:
            return None
    return raw


def _boolean(raw: object, origin: Origin) -> bool | None:
    if isinstance(raw, bool):
        return raw
    if origin == "env":
        return {"0": False, "1": True}.get(str(raw))
    return None


def _number(raw: object, kind: str, origin: Origin) -> int | float | None:
    if isinstance(raw, str) and origin != "key" and _INTEGER.fullmatch(raw.strip()):
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not -(2**63) <= raw < 2**63:  # NaN and infinities fail here too
        return None
    if kind == "int":
        return raw if isinstance(raw, int) else None
    return float(raw) if math.isfinite(raw) else None


def _list(raw: object, spec: SettingSpec, origin: Origin) -> tuple[str, ...] | None:
    if isinstance(raw, str) and (spec.scalar or origin == "flag"):
        return tuple(part for part in re.split(r"[\s,\[\]'\"]+", raw) if part)
    if isinstance(raw, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in raw):
        return tuple(str(item) for item in raw)
    return None


def _settle(found: Mapping[str, list[_Found]], kind: JobFormat, source: str) -> dict[str, Setting]:
    """One value per setting: read, named by a preset, derived, or the framework's default, in this order."""
    specs = load_settings()
    settings = {name: _combine(name, specs[name], values, source) for name, values in found.items()}
    covered: set[str] = set()
    for name in [name for name, spec in specs.items() if spec.presets and name in settings]:
        covered |= {inner for preset in specs[name].presets.values() for inner in preset}
        settings |= _preset(settings, settings[name], specs[name], source)
    settings = _with_defaults(settings, covered, kind, derived=False)
    settings |= _derived(settings)
    settings = _with_defaults(settings, covered, kind, derived=True)
    return {name: settings[name] for name in specs if name in settings}


def _preset(settings: Mapping[str, Setting], named: Setting, spec: SettingSpec, source: str) -> dict[str, Setting]:
    """Settings that a named value stands for. It overrules framework keys, as in the framework, but not a setting's own name."""
    values = spec.presets.get(str(named.value), {})
    for name, value in values.items():
        other = settings.get(name)
        if other is not None and other.key == name and other.value != value:
            raise _conflict(source, name, (named.key, named.value), (other.key, other.value))
    return {name: Setting(name=name, value=value, key=f"{named.key} ({named.value})", source="read") for name, value in values.items()}


def _with_defaults(settings: Mapping[str, Setting], covered: set[str], kind: JobFormat, *, derived: bool) -> dict[str, Setting]:
    """`settings` and the defaults of those that are not set; settings that an unknown preset decides have none."""
    return dict(settings) | {
        name: Setting(name=name, value=spec.default, key="default", source="default")
        for name, spec in load_settings().items()
        if spec.default is not None
        and name not in settings
        and name not in covered
        and kind not in spec.no_default_in
        and bool(spec.derive) is derived
    }


def _derived(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings that follow from others, where those are known."""
    specs, schema = load_settings(), job_schema()
    wanted = {
        name: conditions.compile_expression(spec.derive, "number", schema)
        for name, spec in specs.items()
        if spec.derive and name not in settings
    }
    values = {f"job_{name}": _column(specs[name], item.value) for name, item in settings.items()}
    results = conditions.evaluate(list(wanted.values()), conditions.row(values, schema))
    known: dict[str, Setting] = {}
    for (name, expression), value in zip(wanted.items(), results, strict=True):
        if value is None or value != value // 1:
            continue
        parents = [settings[column.removeprefix("job_")] for column in expression.names]
        read = any(parent.source == "read" for parent in parents)
        key = ", ".join(parent.key for parent in parents if parent.source == "read") or "default"
        plain = bool(value) if specs[name].type == "bool" else int(value)
        known[name] = Setting(name=name, value=plain, key=key, source="read" if read else "default")
    return known


def _combine(name: str, spec: SettingSpec, values: list[_Found], source: str) -> Setting:
    """One of several values of a setting. A setting's own name, or the same key twice, never loses in silence."""
    ranked = sorted(values, key=lambda item: item.order)
    best = ranked[0]
    for other in ranked[1:]:
        if other.value != best.value and (spec.combine == "conflict" or best.order in (0, other.order)):
            raise _conflict(source, name, (best.key, best.value), (other.key, other.value))
    if spec.combine == "any":
        best = next((item for item in ranked if item.value is True), best)
    return Setting(name=name, value=best.value, key=best.key, source="read")


def _conflict(source: str, name: str, first: tuple[str, SettingValue], second: tuple[str, SettingValue]) -> JobFileError:
    what = f"says {first[0]} = {first[1]!r} and {second[0]} = {second[1]!r}, which are the same setting ({name})"
    return _error(source, what, "Keep one of the two.")


def _column(spec: SettingSpec, value: SettingValue) -> SettingValue:
    return version_number(value) if spec.type == "version" and isinstance(value, str) else value


def _expected(spec: SettingSpec) -> str:
    return {"list": "list of names", "version": 'version in quotes, such as "2.6.0"'}.get(spec.type, spec.type)


def _type_name(value: object) -> str:
    if value is None:
        return "nothing"
    return {"str": "text", "dict": "a map"}.get(type(value).__name__, type(value).__name__)


def _wrong_type(source: str, key: str, expected: str, raw: object) -> JobFileError:
    shown = repr(raw)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return _error(source, f"has {key} = {shown} ({_type_name(raw)}), but expected {expected}", f"Correct {key}.")


def _error(source: str, what: str, next_step: str) -> JobFileError:
    return JobFileError(f"{source} {what}.", effect=_EFFECT, next_step=next_step)
