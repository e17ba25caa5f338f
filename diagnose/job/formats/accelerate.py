"""Configurations of Hugging Face Accelerate (default_config.yaml): how many processes, what splits the model, in which precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from diagnose.job.edit import Edit, section_editor
from diagnose.job.edit_yaml import Node
from diagnose.job.formats import deepspeed
from diagnose.job.formats.reader import Key, Reader, keys_of
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, leaves_of
from diagnose.knowledge.settings import JobSettings, SettingSpec

NAME = "accelerate"


def is_accelerate(data: Mapping[object, object]) -> bool:
    """Whether a map is a configuration of Accelerate: `distributed_type` is the one key that it must hold."""
    return "distributed_type" in data or ("compute_environment" in data and bool({"num_processes", "num_machines"} & data.keys()))


def taken(text: JobText) -> tuple[list[Leaf], list[str]]:
    """The values of a configuration with those of the DeepSpeed file that it names, and what has to be said of them."""
    tree = text.yaml
    if tree is None:
        return [], []
    kind = tree.data.get("distributed_type")
    leaves = []
    for leaf in leaves_of(tree.data, tree.lines):
        plugin = leaf.key.partition(".")[0]
        without = (plugin == "fsdp_config" and kind != "FSDP") or (plugin == "deepspeed_config" and kind != "DEEPSPEED")
        auto = leaf.value in ("auto", "None", -1) or (leaf.key == "num_processes" and leaf.value == "gpu")  # left to the launcher
        value = "no" if leaf.key == "mixed_precision" and leaf.value is False else leaf.value  # YAML takes no for false
        leaves.append(replace(leaf, value=None if without or auto else value, known=True))
    if kind == "FSDP" and not any(leaf.key == "fsdp_config.fsdp_version" for leaf in leaves):
        place = "Accelerate's default"  # src/accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin
        leaves.append(Leaf(key="fsdp_config.fsdp_version", shown="fsdp_config.fsdp_version", value=1, known=True, place=place))
    file = next(
        (leaf.value for leaf in leaves if leaf.key == "deepspeed_config.deepspeed_config_file" and isinstance(leaf.value, str)), None
    )
    if file is None:
        return leaves, []
    inner = text.beside(file)
    if inner is None or inner.yaml is None:
        return leaves, [f"{file}, which it names, is not beside {text.source}: what it sets is not known"]
    below, notes = deepspeed.taken(inner.yaml)
    return [*leaves, *(prefixed(leaf).moved(inner.source) for leaf in below)], notes


def prefixed(leaf: Leaf) -> Leaf:
    """A value of DeepSpeed's own file, under a key that is no other's."""
    return replace(leaf, key=f"deepspeed.{leaf.key}", known=True)


def _read(text: JobText) -> Parsed | None:
    if text.yaml is None or not is_accelerate(text.yaml.data):
        return None
    leaves, notes = taken(text)
    return Parsed(format=NAME, leaves=tuple(leaves), rules=text.yaml.rules, notes=(*text.yaml.notes, *notes))


def keys_below(spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
    """The keys of DeepSpeed's file that a configuration names."""
    for key in keys_of(deepspeed.NAME, spec, table):
        yield replace(key, spellings=tuple(f"deepspeed.{one}" for one in key.spellings), level=1)


def _keys(spec: SettingSpec, table: JobSettings) -> Iterator[Key]:
    yield from keys_of(NAME, spec, table)
    yield from keys_below(spec, table)


_PLUGINS = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED"}


def _refused(root: Node, edit: Edit) -> str | None:
    """Of the plugins only that of distributed_type is asked, and beside a file of DeepSpeed none of the keys that the file sets.

    (src/accelerate/utils/dataclasses.py)
    """
    wanted = _PLUGINS.get(edit.key.partition(".")[0])
    kind = root.at(("distributed_type",))
    if wanted is not None and (kind is None or kind.value != wanted):
        return f"{edit.key} has no effect here: distributed_type is {'not set' if kind is None else kind.value}, and {wanted} would read it"
    named = root.at(("deepspeed_config", "deepspeed_config_file"))
    if named is None or named.is_null or not edit.key.startswith("deepspeed_config."):
        return None
    return f"{edit.key} has to be set in {named.value}, which this file names: beside it Accelerate refuses the key"


READER = Reader(name=NAME, read=_read, keys=_keys, editor=lambda text: section_editor(text, _refused))
