"""Configurations as Megatron-Bridge saves them: YAML with a section for the model, the optimizer and so on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose.job.edit import map_editor
from diagnose.job.formats.reader import Reader
from diagnose.job.model import Parsed
from diagnose.job.text import JobText, leaves_of

NAME = "megatron-bridge"
_SECTIONS = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "dist", "scheduler", "checkpoint", "rng", "tokenizer"})
_SHAPE = frozenset({"model.num_layers", "model.hidden_size", "num_layers", "hidden_size"})
_LAID = "no section names its class, and no model is described: what the recipe sets below this file of overrides is not known"


def has_sections(data: Mapping[Any, object]) -> bool:
    """Whether a map holds a section of a configuration."""
    return any(key in _SECTIONS and isinstance(value, dict) for key, value in data.items())


def _read(text: JobText) -> Parsed | None:
    tree = text.yaml
    if tree is None or not has_sections(tree.data):
        return None
    leaves = tuple(leaves_of(tree.data, tree.lines))
    laid = not any(leaf.known or leaf.key in _SHAPE for leaf in leaves)
    notes = (*tree.notes, _LAID) if laid else tree.notes
    return Parsed(format=NAME, leaves=leaves, rules=tree.rules, notes=notes, open_ended=laid)


READER = Reader(name=NAME, read=_read, editor=map_editor)
