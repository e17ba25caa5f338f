"""Job files that are trees of keys: configuration dumps, plain YAML, Megatron-LM YAML, torchtitan TOML, and Hydra overrides of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.job.model import Leaf, Parsed, job_error, type_name, wrong_type
from diagnose.job.toml_lines import toml_lines
from diagnose.knowledge import strict_yaml
from diagnose.knowledge.settings import JobFormat, flag_name, load_settings

_BRIDGE_SECTIONS = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "dist", "scheduler", "checkpoint", "rng", "tokenizer"})
_LM_SECTIONS = ("MODEL_ARGS", "ENV_VARS")
_LM_OTHER = frozenset({"TEST_TYPE", "METRICS", "LAUNCHER", "MODE"})
Lines = Mapping[tuple[str, ...], int]  # the line of what stands at a path of keys
OVERRIDE = re.compile(r"(?P<sign>~|\+\+|\+)?(?P<key>-{0,2}[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def parse_yaml(text: str, source: str, folder: Path | None) -> Parsed:
    """A YAML job file taken apart. Raises JobFileError."""
    try:
        data = strict_yaml.load(text)
    except (strict_yaml.YamlError, ValueError) as error:  # a scalar that YAML takes for a date or a number and Python does not
        raise job_error(source, f"is not valid YAML: {error}", "Correct the YAML.") from error
    if not isinstance(data, dict) or not data:
        raise job_error(
            source,
            f"must hold a map of settings, but holds {type_name(data)}",
            "Give the job's configuration as keys and values, as flags, or as the command that started it.",
        )
    rules, data = _rules(data, source, folder)
    kind, lines = _format(data), strict_yaml.lines(text)
    leaves = _lm_leaves(data, source, lines) if kind == "megatron-lm" else list(_walk(data, _Level(), lines))
    return Parsed(format=kind, leaves=tuple(leaves), rules=rules)


def parse_toml(text: str, source: str) -> Parsed:
    """A torchtitan configuration taken apart. Raises JobFileError."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise job_error(source, f"is not valid TOML: {str(error)[:200]}", "Correct the TOML.") from error
    leaves = tuple(_without_auto(leaf) for leaf in _walk(data, _Level(), toml_lines(text)))
    if not leaves:
        raise job_error(source, "holds no settings", "Give torchtitan's configuration, with tables such as [training] and [parallelism].")
    return Parsed(format="torchtitan", leaves=leaves)


def parse_overrides(texts: Sequence[str], *, source: str = "--set") -> tuple[Leaf, ...]:
    """Hydra overrides (`key=value`, `+key=value`, `++key=value`, `~key`) as values that go before a file's. Raises JobFileError.

    Of two for one key the later counts, as in Hydra.
    """
    found: dict[str, Leaf] = {}
    for text in texts:
        leaf = override(text, source, forced=True)
        found.pop(leaf.key, None)
        found[leaf.key] = leaf
    return tuple(found.values())


def override(text: str, source: str, *, line: int | None = None, forced: bool = False) -> Leaf:
    """One Hydra override, of a line of the file or, without one, of what `source` names. Raises JobFileError."""
    match = OVERRIDE.fullmatch(text.strip())
    if match is None or (match["value"] is None and match["sign"] != "~"):
        raise job_error(source, f"has {text.strip()[:80]!r}, which is no override", "Write KEY=VALUE, ++KEY=VALUE or ~KEY.")
    key = match["key"].replace("/", ".")
    removed = match["sign"] == "~"
    return Leaf(
        key=_lookup(key),
        shown=key,
        value=None if removed else _value(match["value"] or "", source, key),
        place=source if line is None else f"line {line}",
        line=line,
        forced=forced,
        removed=removed,
    )


def _value(text: str, source: str, key: str) -> object:
    """A value of Hydra's grammar; what YAML can't read is text."""
    try:
        value = strict_yaml.load(text)
    except (strict_yaml.YamlError, ValueError) as error:
        raise job_error(source, f"has {key}={text[:60]!r}, which can't be read: {error}", "Quote the value.") from error
    return _reduce(value)


def _lookup(key: str) -> str:
    """The key without the level that some dumps put between model and its settings."""
    return "model." + key.removeprefix("model.transformer.") if key.startswith("model.transformer.") else key


def _rules(data: Mapping[object, object], source: str, folder: Path | None) -> tuple[tuple[Path, ...], dict[object, object]]:
    """The rule folders that the file names, relative to it, and the rest of the file."""
    rest = {key: value for key, value in data.items() if key != "rules"}
    given = data.get("rules")
    named = [given] if isinstance(given, str) else given
    if named is None:
        return (), rest
    if not isinstance(named, list) or not all(isinstance(one, str) and one for one in named):
        raise wrong_type(source, "rules", "path or list of paths", given)
    return tuple((folder or Path()) / one for one in named), rest


def _format(data: Mapping[object, object]) -> JobFormat:
    keys = {str(key) for key in data}
    if "MODEL_ARGS" in keys or any(key.startswith("--") for key in keys):
        return "megatron-lm"
    if any(key in _BRIDGE_SECTIONS and isinstance(value, dict) for key, value in data.items()):
        return "megatron-bridge"
    own = set(load_settings()) | {"versions", "env_vars"}
    flags = {flag_name(flag) for spec in load_settings().values() for flag in spec.megatron}
    if not any("." in key for key in keys) and any(key in flags and key not in own for key in keys):
        return "megatron-lm"
    return "plain"


def _lm_leaves(data: Mapping[object, object], source: str, lines: Lines) -> list[Leaf]:
    """Flags with underscores; what stands outside the known sections counts as a flag too (a flat dump of the arguments)."""
    sections: dict[str, Mapping[object, object]] = {}
    for name in _LM_SECTIONS:
        value = data.get(name) or {}
        if not isinstance(value, dict):
            raise wrong_type(source, name, "map", value)
        sections[name] = value
    leaves: list[Leaf] = []
    flags: list[tuple[tuple[str, ...], object, object]] = [
        (("MODEL_ARGS", str(key)), key, value) for key, value in sections["MODEL_ARGS"].items()
    ]
    flags += [((str(key),), key, value) for key, value in data.items() if key not in (*_LM_SECTIONS, *_LM_OTHER)]
    for path, key, value in flags:
        if key in ("versions", "env_vars") and isinstance(value, dict):
            leaves += _walk({key: value}, _Level(keys=path[:-1]), lines)
        else:
            leaves.append(Leaf(key=flag_name(str(key)), shown=".".join(path), value=_reduce(value), line=_line(lines, path)))
    env = [
        Leaf(key=f"env_vars.{key}", shown=f"ENV_VARS.{key}", value=value, line=_line(lines, ("ENV_VARS", str(key))))
        for key, value in sections["ENV_VARS"].items()
    ]
    return leaves + env


def _line(lines: Lines, path: tuple[str, ...]) -> int | None:
    """The line of what stands at `path`, or of the nearest thing around it that stands in the file as such."""
    return next((lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines), None)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """Where `_walk` stands: the key to look up so far, the key as the file shows it, and the keys in the file."""

    path: str = ""
    shown: str = ""
    keys: tuple[str, ...] = ()


def _walk(node: Mapping[Any, object], level: _Level, lines: Lines) -> Iterator[Leaf]:
    """Dotted keys and plain values of a nested map; levels that only wrap others are left out of the key to look up."""
    path = level.path
    wraps_config = str(node.get("_target_", "")).endswith("from_dict")
    for key, value in node.items():
        wrapper = (path == "model" and key == "transformer") or (wraps_config and key == "config_dict")
        inner = path if wrapper else f"{path}.{key}" if path else str(key)
        below = _Level(path=inner, shown=f"{level.shown}.{key}" if level.shown else str(key), keys=(*level.keys, str(key)))
        plain = _reduce(value)
        if isinstance(plain, dict):
            yield from _walk(plain, below, lines)
        else:
            own_class = key == "_target_" and inner != below.shown  # the class of model.transformer is not that of the model
            yield Leaf(
                key=below.shown if own_class else inner,
                shown=below.shown,
                value=plain,
                known=key in ("_target_", "_call_"),
                line=_line(lines, below.keys),
            )


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


def _without_auto(leaf: Leaf) -> Leaf:
    """Torchtitan writes -1 where it works a size out by itself: that tells nothing."""
    return replace(leaf, value=None) if leaf.value == -1 else leaf
