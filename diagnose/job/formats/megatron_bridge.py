"""Configurations as Megatron-Bridge saves them: YAML with a section for the model, the optimizer and so on.

A file of overrides may name the recipe that it lies on, with arguments for its function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from diagnose.job.edit import map_editor
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Leaf, Parsed
from diagnose.job.text import JobText, leaves_of
from diagnose.knowledge.settings import JobSettings

NAME = "megatron-bridge"
_SECTIONS = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "dist", "scheduler", "checkpoint", "rng", "tokenizer"})
_SHAPE = frozenset({"model.num_layers", "model.hidden_size", "num_layers", "hidden_size"})
_RECIPE = "recipe."
# Arguments of recipe functions that are not called as their settings, as nemotron_3_nano.py (5f26deb45c) and llama2_7b.py (e1155b43f4) in
# Megatron-Bridge's recipes have them.
_ARGUMENTS: Mapping[str, str] = {
    "tensor_parallelism": "tensor_model_parallel_size",
    "pipeline_parallelism": "pipeline_model_parallel_size",
    "virtual_pipeline_parallelism": "virtual_pipeline_model_parallel_size",
    "context_parallelism": "context_parallel_size",
    "expert_parallelism": "expert_model_parallel_size",
    "expert_model_parallelism": "expert_model_parallel_size",
    "expert_tensor_parallelism": "expert_tensor_parallel_size",
    "sequence_parallelism": "sequence_parallel",
}
_CALLED = "the recipe {name} decides what this file leaves out"
_LAID = "no section names its class, and no model is described: what the recipe sets below this file of overrides is not known"


def has_sections(data: Mapping[Any, object]) -> bool:
    """Whether a map holds a section of a configuration."""
    return any(key in _SECTIONS and isinstance(value, dict) for key, value in data.items())


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is None or not has_sections(tree.data):
        return None
    leaves = tuple(leaves_of(tree.data, tree.lines))
    recipe = next((leaf.value for leaf in leaves if leaf.key == f"{_RECIPE}_target_"), None)
    laid = recipe is not None or not any(leaf.known or leaf.key in _SHAPE for leaf in leaves)
    said = (_LAID if recipe is None else _CALLED.format(name=str(recipe).rpartition(".")[2]),) if laid else ()
    notes = (*tree.notes, *said)
    nameless = recipe is None and not any(leaf.known for leaf in leaves)
    leaves = leaves if recipe is None else tuple(_over_arguments(leaves, text.table))
    return Parsed(format=NAME, leaves=leaves, rules=tree.rules, notes=notes, open_ended=laid, nameless=nameless)


def _over_arguments(leaves: Sequence[Leaf], table: JobSettings) -> Iterator[Leaf]:
    """What the sections say, over what the recipe's function is called with."""
    given = {leaf.key for leaf in leaves}
    told = {name for name, spec in table.specs.items() if given & {name, *spec.keys_in(NAME)}}
    for leaf in leaves:
        argument = leaf.key.removeprefix(_RECIPE)
        name = _ARGUMENTS.get(argument, argument)
        if argument == leaf.key or name not in table.specs:
            yield leaf
        elif name not in told:
            yield replace(leaf, key=name)


READER = Reader(name=NAME, read=_read, editor=map_editor)
